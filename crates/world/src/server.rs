//! One of several servers of a world: the [realm](Realm) and the [mirror](Mirror) that keeps it equal to the others'.
//!
//! Pure: whoever owns clock and networks puts in what comes from the other servers and from players, calls [`advance`](Server::advance), and
//! sends what there is to send.

use std::collections::{BTreeSet, VecDeque};

use coplay::mirror::{
    IssueError, Mirror, MirrorConfig, MirrorConfigError, MirrorEvent, MirrorRequest, MirrorStats, MirrorTransmit,
    NewEvent, SourceId,
};
use coplay::peer_world::EntityId;
use coplay::time::{Instant, TimeDelta};
use coplay_maze::Terms;

use crate::client::TICK;
use crate::deed::{Deed, Fact};
use crate::realm::{Realm, number};
use crate::talk::{Pong, Wish, read_goodbye, read_ping};

/// Objects whose server is gone are looked after this often.
const CARE_EVERY: TimeDelta = TimeDelta::from_millis(200);
/// Who comes late to a world lets players in only after so long: by then it knows of them.
const SETTLE: TimeDelta = TimeDelta::from_millis(1_000);
/// Deeds that wait to be told. If there are more, those go that a newer one makes useless: what is left is of three kinds, each once for an object.
const MOST_WAITING: usize = 8_192;

/// One of several servers of a world.
pub struct Server {
    mirror: Mirror,
    realm: Realm,
    waiting: VecDeque<Deed>,
    next_care: Instant,
    /// From when on players are let in: when the time of the world is known, and a little later if there are others to learn from.
    opens: Option<Instant>,
}

impl Server {
    /// A server that begins now.
    pub fn new(now: Instant, config: MirrorConfig, terms: Terms, ninjas: u8) -> Result<Self, MirrorConfigError> {
        let realm = Realm::new(config.source, terms, ninjas);
        Ok(Self { mirror: Mirror::new(now, config)?, realm, waiting: VecDeque::new(), next_care: now, opens: None })
    }

    /// Who we are.
    pub fn source(&self) -> SourceId {
        self.mirror.source()
    }

    /// The world as it is here.
    pub fn realm(&self) -> &Realm {
        &self.realm
    }

    /// The same, to change it.
    pub fn realm_mut(&mut self) -> &mut Realm {
        &mut self.realm
    }

    /// What passed between the servers.
    pub fn stats(&self) -> &MirrorStats {
        self.mirror.stats()
    }

    /// The mirror itself, for its numbers.
    pub fn mirror(&self) -> &Mirror {
        &self.mirror
    }

    /// There is a way to another server.
    pub fn add_peer(&mut self, now: Instant, source: SourceId) {
        self.mirror.add_peer(now, source);
    }

    /// A datagram of another server.
    pub fn handle_mirror(&mut self, now: Instant, from: SourceId, bytes: &[u8]) {
        self.mirror.handle_datagram(now, from, bytes);
    }

    /// A datagram of a player, or of who may become one: perhaps with an answer to be sent at once.
    pub fn handle_player(&mut self, now: Instant, entity: EntityId, bytes: &[u8]) -> Option<Vec<u8>> {
        if let Some(stamp) = read_ping(bytes) {
            let players = self.realm.players().count().min(u16::MAX.into()) as u16;
            let drains = self.realm.drains() || !self.is_open(now);
            let full = !self.realm.register().has_room_for(entity);
            return Some(Pong { stamp, drains, full, players }.to_bytes());
        }
        if let Some(run) = read_goodbye(bytes) {
            self.realm.part(now, entity, run);
            return None;
        }
        let wish = Wish::from_bytes(bytes).filter(|_| self.is_open(now))?;
        self.realm.hear(now, entity, &wish);
        None
    }

    /// Whether players are let in.
    pub fn is_open(&self, now: Instant) -> bool {
        self.opens.is_some_and(|opens| now >= opens)
    }

    /// Whether the world has no room for anybody new.
    pub fn is_full(&self) -> bool {
        self.realm.is_full()
    }

    /// Whether all that we told has got to another server, or there is none.
    pub fn is_known_elsewhere(&self) -> bool {
        self.waiting.is_empty()
            && self.mirror.replicated_up_to().is_none_or(|seq| seq >= self.mirror.settled(self.source()))
    }

    /// Does what is due: learns what the others did, moves everybody, and tells the others.
    pub fn advance(&mut self, now: Instant) {
        self.hear_mirrors(now);
        let Some(tick) = self.tick(now) else { return };
        let settle = if self.mirror.present_peers().next().is_some() { SETTLE } else { TimeDelta::ZERO };
        self.opens.get_or_insert(now + settle);
        self.realm.advance(now, tick);
        if now >= self.next_care && self.is_open(now) {
            self.next_care = now + CARE_EVERY;
            let live: BTreeSet<SourceId> = self.mirror.present_peers().collect();
            self.realm.look_after(&live);
        }
        self.tell(now);
        self.realm.on_known_elsewhere(self.mirror.replicated_up_to().unwrap_or(u64::MAX));
    }

    /// The tick that it is in the world, if that is known.
    fn tick(&self, now: Instant) -> Option<u32> {
        u32::try_from(self.mirror.group_time(now)?.as_nanos() / TICK.as_nanos()).ok()
    }

    fn hear_mirrors(&mut self, now: Instant) {
        while let Some(request) = self.mirror.poll_request(now) {
            match request {
                MirrorRequest::Snapshot { of } => {
                    let snapshot = self.realm.snapshot(of);
                    self.mirror.handle_snapshot(now, of, &snapshot);
                }
                MirrorRequest::Install { of, bytes } => _ = self.realm.learn_all(now, of, &bytes),
            }
        }
        while let Some(delivery) = self.mirror.poll_delivery(now) {
            if !delivery.is_own {
                self.realm.learn(now, delivery.source, delivery.payload);
            }
        }
    }

    /// Tells the others what was done here.
    fn tell(&mut self, now: Instant) {
        self.waiting.extend(self.realm.take_deeds());
        while let Some(deed) = self.waiting.front() {
            let payload = deed.to_bytes(self.realm.rules());
            match self.mirror.issue(now, issue(deed, &payload)) {
                Ok(seq) => self.realm.on_told(deed, seq),
                Err(IssueError::TooManyPending | IssueError::NoGroupTime) => break,
                // No deed is that long.
                Err(IssueError::TooLong) => {}
            }
            self.waiting.pop_front();
        }
        if self.waiting.len() > MOST_WAITING {
            condense(&mut self.waiting);
        }
        // Our own come back to us, too.
        self.hear_mirrors(now);
    }

    /// The next datagram for other servers.
    pub fn poll_mirror(&mut self, now: Instant, buf: &mut [u8]) -> Option<MirrorTransmit> {
        self.mirror.poll_transmit(now, buf)
    }

    /// What happened between the servers.
    pub fn poll_notice(&mut self) -> Option<MirrorEvent> {
        let notice = self.mirror.poll_event();
        if let Some(MirrorEvent::PeerLeft(source)) = notice {
            // Whoever comes back is heard, and known again.
            self.mirror.remove_peer(source);
        }
        notice
    }

    /// Datagrams for players. `mirrors` is where a player finds the other servers.
    pub fn poll_players<'a>(
        &mut self,
        now: Instant,
        mirrors: impl Fn(EntityId) -> &'a [String],
    ) -> Vec<(EntityId, Vec<u8>)> {
        self.realm.talk(now, mirrors)
    }

    /// When to [advance](Self::advance) again at the latest: with the next tick.
    pub fn poll_timeout(&self, now: Instant) -> Instant {
        let until_tick = match self.mirror.group_time(now) {
            Some(time) => TICK - TimeDelta::from_nanos(time.as_nanos().rem_euclid(TICK.as_nanos())),
            None => TICK,
        };
        self.mirror.poll_timeout().min(now + until_tick).max(now)
    }

    /// Says goodbye to the other servers with the next datagrams.
    pub fn leave(&mut self) {
        self.mirror.leave();
    }
}

/// Keeps of what is said of an object only the newest of each kind.
fn condense(waiting: &mut VecDeque<Deed>) {
    let mut newer = BTreeSet::new();
    waiting.make_contiguous().reverse();
    waiting.retain(|deed| newer.insert((deed.entity, deed.fact.kind())));
    waiting.make_contiguous().reverse();
}

/// Where something stands is made useless by the next; all else stands by itself.
fn issue<'a>(deed: &Deed, payload: &'a [u8]) -> NewEvent<'a> {
    match deed.fact {
        Fact::Stands { .. } => NewEvent::state(1 + number(deed.entity), payload),
        Fact::Named { .. } | Fact::Counted(_) => NewEvent::action(0, payload),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coplay::peer_world::WorldSiteId;
    use coplay_maze::Score;

    #[test]
    fn however_long_nothing_can_be_told_the_newest_waits() {
        let entity = |number| EntityId { site: WorldSiteId(number), index: 0 };
        let facts = |tick: u32| {
            let counted = Fact::Counted(Score { hits: tick, falls: tick });
            [Fact::Stands { epoch: 1, tick, avatar: None }, Fact::Named { epoch: tick, name: "Ada".into() }, counted]
        };
        let mut waiting: VecDeque<Deed> = VecDeque::new();
        for at in 0..9_000 {
            waiting.extend(facts(at).map(|fact| Deed { entity: entity(at % 10), fact }));
        }
        condense(&mut waiting);
        let newest = (8_990..9_000).flat_map(|at| facts(at).map(|fact| Deed { entity: entity(at % 10), fact }));
        assert_eq!(waiting, newest.collect::<VecDeque<Deed>>());
    }
}
