//! One of several servers of a world: the [realm](WorldState) and the [mirror](Mirror) that keeps it equal to the others'.
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
use coplay_maze::MazeSettings;

use crate::client::TICK_DURATION;
use crate::entity_update::{EntityUpdate, Update};
use crate::protocol::{ClientInput, Pong, decode_leave, decode_ping};
use crate::world_state::{WorldState, entity_number};

/// Objects whose server is gone are looked after this often.
const ORPHAN_CHECK_INTERVAL: TimeDelta = TimeDelta::from_millis(200);
/// Who comes late to a world lets players in only after so long: by then it knows of them.
const OPENING_DELAY: TimeDelta = TimeDelta::from_millis(1_000);
/// Deeds that wait to be told. If there are more, those go that a newer one makes useless: what is left is of three kinds, each once for an object.
const MAX_PENDING_UPDATES: usize = 8_192;

/// One of several servers of a world.
pub struct Server {
    mirror: Mirror,
    world: WorldState,
    pending_updates: VecDeque<EntityUpdate>,
    next_orphan_check: Instant,
    /// From when on players are let in: when the time of the world is known, and a little later if there are others to learn from.
    opens_at: Option<Instant>,
}

impl Server {
    /// A server that begins now.
    pub fn new(now: Instant, config: MirrorConfig, terms: MazeSettings, ninjas: u8) -> Result<Self, MirrorConfigError> {
        let realm = WorldState::new(config.source, terms, ninjas);
        Ok(Self {
            mirror: Mirror::new(now, config)?,
            world: realm,
            pending_updates: VecDeque::new(),
            next_orphan_check: now,
            opens_at: None,
        })
    }

    /// Who we are.
    pub fn source(&self) -> SourceId {
        self.mirror.source()
    }

    /// The world as it is here.
    pub fn world(&self) -> &WorldState {
        &self.world
    }

    /// The same, to change it.
    pub fn world_mut(&mut self) -> &mut WorldState {
        &mut self.world
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
        if let Some(stamp) = decode_ping(bytes) {
            let players = self.world.players().count().min(u16::MAX.into()) as u16;
            let drains = self.world.is_draining() || !self.is_open(now);
            let full = !self.world.entities().has_room_for(entity);
            return Some(Pong { stamp, is_draining: drains, is_full: full, player_count: players }.to_bytes());
        }
        if let Some(run) = decode_leave(bytes) {
            self.world.on_leave(now, entity, run);
            return None;
        }
        let wish = ClientInput::from_bytes(bytes).filter(|_| self.is_open(now))?;
        self.world.on_input(now, entity, &wish);
        None
    }

    /// Whether players are let in.
    pub fn is_open(&self, now: Instant) -> bool {
        self.opens_at.is_some_and(|opens| now >= opens)
    }

    /// Whether the world has no room for anybody new.
    pub fn is_full(&self) -> bool {
        self.world.is_full()
    }

    /// Whether all that we told has got to another server, or there is none.
    pub fn is_fully_replicated(&self) -> bool {
        self.pending_updates.is_empty()
            && self.mirror.replicated_up_to().is_none_or(|seq| seq >= self.mirror.settled(self.source()))
    }

    /// Does what is due: learns what the others did, moves everybody, and tells the others.
    pub fn advance(&mut self, now: Instant) {
        self.process_mirror(now);
        let Some(tick) = self.tick(now) else { return };
        let settle = if self.mirror.present_peers().next().is_some() { OPENING_DELAY } else { TimeDelta::ZERO };
        self.opens_at.get_or_insert(now + settle);
        self.world.advance(now, tick);
        if now >= self.next_orphan_check && self.is_open(now) {
            self.next_orphan_check = now + ORPHAN_CHECK_INTERVAL;
            let live: BTreeSet<SourceId> = self.mirror.present_peers().collect();
            self.world.reclaim_orphans(&live);
        }
        self.publish_updates(now);
        self.world.on_replicated(self.mirror.replicated_up_to().unwrap_or(u64::MAX));
    }

    /// The tick that it is in the world, if that is known.
    fn tick(&self, now: Instant) -> Option<u32> {
        u32::try_from(self.mirror.group_time(now)?.as_nanos() / TICK_DURATION.as_nanos()).ok()
    }

    fn process_mirror(&mut self, now: Instant) {
        while let Some(request) = self.mirror.poll_request(now) {
            match request {
                MirrorRequest::Snapshot { of } => {
                    let snapshot = self.world.snapshot(of);
                    self.mirror.handle_snapshot(now, of, &snapshot);
                }
                MirrorRequest::Install { of, bytes } => _ = self.world.merge_snapshot(now, of, &bytes),
            }
        }
        while let Some(delivery) = self.mirror.poll_delivery(now) {
            if !delivery.is_own {
                self.world.apply_update(now, delivery.source, delivery.payload);
            }
        }
    }

    /// Tells the others what was done here.
    fn publish_updates(&mut self, now: Instant) {
        self.pending_updates.extend(self.world.take_updates());
        while let Some(deed) = self.pending_updates.front() {
            let payload = deed.to_bytes(self.world.rules());
            match self.mirror.issue(now, mirror_issue(deed, &payload)) {
                Ok(seq) => self.world.on_published(deed, seq),
                Err(IssueError::TooManyPending | IssueError::NoGroupTime) => break,
                // No deed is that long.
                Err(IssueError::TooLong) => {}
            }
            self.pending_updates.pop_front();
        }
        if self.pending_updates.len() > MAX_PENDING_UPDATES {
            drop_superseded(&mut self.pending_updates);
        }
        // Our own come back to us, too.
        self.process_mirror(now);
    }

    /// The next datagram for other servers.
    pub fn poll_mirror(&mut self, now: Instant, buf: &mut [u8]) -> Option<MirrorTransmit> {
        self.mirror.poll_transmit(now, buf)
    }

    /// What happened between the servers.
    pub fn poll_mirror_event(&mut self) -> Option<MirrorEvent> {
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
        self.world.poll_player_messages(now, mirrors)
    }

    /// When to [advance](Self::advance) again at the latest: with the next tick.
    pub fn poll_timeout(&self, now: Instant) -> Instant {
        let until_tick = match self.mirror.group_time(now) {
            Some(time) => TICK_DURATION - TimeDelta::from_nanos(time.as_nanos().rem_euclid(TICK_DURATION.as_nanos())),
            None => TICK_DURATION,
        };
        self.mirror.poll_timeout().min(now + until_tick).max(now)
    }

    /// Says goodbye to the other servers with the next datagrams.
    pub fn leave(&mut self) {
        self.mirror.leave();
    }
}

/// Keeps of what is said of an object only the newest of each kind.
fn drop_superseded(waiting: &mut VecDeque<EntityUpdate>) {
    let mut newer = BTreeSet::new();
    waiting.make_contiguous().reverse();
    waiting.retain(|deed| newer.insert((deed.entity, deed.update.kind())));
    waiting.make_contiguous().reverse();
}

/// Where something stands is made useless by the next; all else stands by itself.
fn mirror_issue<'a>(deed: &EntityUpdate, payload: &'a [u8]) -> NewEvent<'a> {
    match deed.update {
        Update::Placement { .. } => NewEvent::state(1 + entity_number(deed.entity), payload),
        Update::Name { .. } | Update::Score(_) => NewEvent::action(0, payload),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coplay::peer_world::WorldSiteId;
    use coplay_maze::Score;

    #[test]
    fn newest_update_of_each_kind_stays_pending() {
        let entity = |number| EntityId { site: WorldSiteId(number), index: 0 };
        let facts = |tick: u32| {
            let counted = Update::Score(Score { hits: tick, falls: tick });
            [
                Update::Placement { epoch: 1, tick, avatar: None },
                Update::Name { epoch: tick, name: "Ada".into() },
                counted,
            ]
        };
        let mut waiting: VecDeque<EntityUpdate> = VecDeque::new();
        for at in 0..9_000 {
            waiting.extend(facts(at).map(|fact| EntityUpdate { entity: entity(at % 10), update: fact }));
        }
        drop_superseded(&mut waiting);
        let newest =
            (8_990..9_000).flat_map(|at| facts(at).map(|fact| EntityUpdate { entity: entity(at % 10), update: fact }));
        assert_eq!(waiting, newest.collect::<VecDeque<EntityUpdate>>());
    }
}
