//! One of several servers of a world: the [world state](ServerWorld) and the [mirror](Mirror) that keeps it equal to
//! those of the other servers.
//!
//! Pure: the host program owns clock and networks. It passes in the datagrams of other servers and of players, calls
//! [`advance`](Server::advance), and sends the polled datagrams.

use std::collections::BTreeSet;

use coplay::mirror::{
    IssueError, Mirror, MirrorConfig, MirrorConfigError, MirrorEvent, MirrorRequest, MirrorStats, MirrorTransmit,
    NewEvent, SourceId,
};
use coplay::peer_world::EntityId;
use coplay::time::{Instant, TimeDelta};
use coplay_maze::MazeSettings;

use crate::avatar_motion::entity_number;
use crate::entity_update::{EntityUpdate, Update};
use crate::protocol::TICK_DURATION;
use crate::protocol::{ClientInput, PROTOCOL_VERSION, Pong, decode_leave, decode_ping};
use crate::server_world::ServerWorld;

/// Interval at which entities of servers that are gone are reclaimed.
const ORPHAN_CHECK_INTERVAL: TimeDelta = TimeDelta::from_millis(200);
/// Delay before a server that joins a running world admits players: by then it knows the entities of the others.
const OPENING_DELAY: TimeDelta = TimeDelta::from_millis(1_000);
/// One of several servers of a world.
pub struct Server {
    mirror: Mirror,
    world: ServerWorld,
    next_orphan_check: Instant,
    /// Time from which players are admitted: when the world time is known, plus [`OPENING_DELAY`] if there are other
    /// servers to learn from.
    opens_at: Option<Instant>,
}

impl Server {
    /// Creates a server that knows nothing of its world yet. Fails if the mirror rejects `config`.
    pub fn new(
        now: Instant,
        config: MirrorConfig,
        settings: MazeSettings,
        ninja_count: u8,
    ) -> Result<Self, MirrorConfigError> {
        let world = ServerWorld::new(config.source, settings, ninja_count);
        Ok(Self { mirror: Mirror::new(now, config)?, world, next_orphan_check: now, opens_at: None })
    }

    /// Returns the id of this server run. A restarted server has another id.
    pub fn source(&self) -> SourceId {
        self.mirror.source()
    }

    /// Returns this server's copy of the world.
    pub fn world(&self) -> &ServerWorld {
        &self.world
    }

    /// Returns this server's copy of the world, to change it.
    pub fn world_mut(&mut self) -> &mut ServerWorld {
        &mut self.world
    }

    /// Returns the statistics of the mirror.
    pub fn stats(&self) -> &MirrorStats {
        self.mirror.stats()
    }

    /// Returns the mirror, which exchanges events with the other servers.
    pub fn mirror(&self) -> &Mirror {
        &self.mirror
    }

    /// Adds another server that datagrams can reach.
    pub fn add_peer(&mut self, now: Instant, source: SourceId) {
        self.mirror.add_peer(now, source);
    }

    /// Processes a datagram of another server.
    pub fn handle_mirror(&mut self, now: Instant, from: SourceId, bytes: &[u8]) {
        self.mirror.handle_datagram(now, from, bytes);
    }

    /// Processes a datagram of a player or of a client that may join. Returns the answer to a ping, to be sent at once;
    /// `None` for any other datagram.
    pub fn handle_player(&mut self, now: Instant, entity: EntityId, bytes: &[u8]) -> Option<Vec<u8>> {
        if let Some(stamp) = decode_ping(bytes) {
            let player_count = self.world.players().count().min(u16::MAX.into()) as u16;
            let is_draining = self.world.is_draining() || !self.is_open(now);
            let is_full = !self.world.has_room_for(entity);
            let pong = Pong { stamp, is_draining, is_full, player_count, protocol_version: PROTOCOL_VERSION };
            return Some(pong.to_bytes());
        }
        if let Some(run) = decode_leave(bytes) {
            self.world.on_leave(now, entity, run);
            return None;
        }
        let input = ClientInput::from_bytes(bytes).filter(|_| self.is_open(now))?;
        self.world.on_input(now, entity, &input);
        None
    }

    /// Returns whether the server is ready for players: it knows the time of the world, and has known it for 1 s if
    /// there were other servers when it learned the time.
    pub fn is_open(&self, now: Instant) -> bool {
        self.opens_at.is_some_and(|opens| now >= opens)
    }

    /// Returns whether the world has no room for new players.
    pub fn is_full(&self) -> bool {
        self.world.is_full()
    }

    /// Returns whether all our updates are issued and, if other servers are present, one of them has all of the
    /// updates.
    pub fn is_fully_replicated(&self) -> bool {
        self.world.next_update().is_none()
            && self.mirror.replicated_up_to().is_none_or(|seq| seq >= self.mirror.settled(self.source()))
    }

    /// Does the due work: applies the events of other servers, simulates, reclaims entities of servers that are gone,
    /// and issues our updates.
    pub fn advance(&mut self, now: Instant) {
        self.process_mirror(now);
        let Some(tick) = self.tick(now) else { return };
        let opening_delay = if self.mirror.present_peers().next().is_some() { OPENING_DELAY } else { TimeDelta::ZERO };
        self.opens_at.get_or_insert(now + opening_delay);
        self.world.advance(now, tick);
        if now >= self.next_orphan_check && self.is_open(now) {
            self.next_orphan_check = now + ORPHAN_CHECK_INTERVAL;
            let live: BTreeSet<SourceId> = self.mirror.present_peers().collect();
            self.world.reclaim_orphans(&live);
        }
        self.publish_updates(now);
        self.world.on_replicated(self.mirror.replicated_up_to().unwrap_or(u64::MAX));
    }

    /// Returns the present tick of the world, if the group time is known.
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
        while let Some(delivery) = self.mirror.poll_remote_delivery(now) {
            self.world.apply_update(now, delivery.source, delivery.payload);
        }
    }

    /// Issues our updates to the other servers as mirror events; keeps those that the mirror cannot accept yet.
    fn publish_updates(&mut self, now: Instant) {
        while let Some(entity_update) = self.world.next_update() {
            let payload = entity_update.to_bytes(self.world.rules());
            let issued = match self.mirror.issue(now, mirror_issue(entity_update, &payload)) {
                Ok(seq) => Some(seq),
                Err(IssueError::TooManyPending | IssueError::NoGroupTime) => break,
                // No update exceeds the payload limit.
                Err(IssueError::TooLong) => None,
            };
            self.world.on_next_published(issued);
        }
        self.world.limit_updates();
        // The mirror settles our own events, too.
        self.process_mirror(now);
    }

    /// Writes the next datagram for other servers into `buf`. Returns its length and destination; `None` if none is
    /// due.
    pub fn poll_mirror(&mut self, now: Instant, buf: &mut [u8]) -> Option<MirrorTransmit> {
        self.mirror.poll_transmit(now, buf)
    }

    /// Returns the next event of the mirror, and removes a peer that has left.
    pub fn poll_mirror_event(&mut self) -> Option<MirrorEvent> {
        let event = self.mirror.poll_event();
        if let Some(MirrorEvent::PeerLeft(source)) = event {
            // A server that returns is added again with its first datagram.
            self.mirror.remove_peer(source);
        }
        event
    }

    /// Returns the datagrams that are due, each with its player. `mirrors` returns the addresses of the other servers
    /// for a player.
    pub fn poll_players<'a>(
        &mut self,
        now: Instant,
        mirrors: impl Fn(EntityId) -> &'a [String],
    ) -> Vec<(EntityId, Vec<u8>)> {
        self.world.poll_player_messages(now, mirrors)
    }

    /// Returns when [`advance`](Self::advance) must be called next: at the next tick at the latest.
    pub fn poll_timeout(&self, now: Instant) -> Instant {
        let until_tick = match self.mirror.group_time(now) {
            Some(time) => TICK_DURATION - TimeDelta::from_nanos(time.as_nanos().rem_euclid(TICK_DURATION.as_nanos())),
            None => TICK_DURATION,
        };
        self.mirror.poll_timeout().min(now + until_tick).max(now)
    }

    /// Announces with the next datagrams that this server leaves.
    pub fn leave(&mut self) {
        self.mirror.leave();
    }
}

/// Makes a mirror event of an update. A placement makes earlier placements of its entity obsolete. All other updates
/// are independent.
fn mirror_issue<'a>(entity_update: &EntityUpdate, payload: &'a [u8]) -> NewEvent<'a> {
    match entity_update.update {
        Update::Placement { .. } => NewEvent::state(1 + entity_number(entity_update.entity), payload),
        Update::Name { .. } | Update::Score(_) => NewEvent::action(0, payload),
    }
}
