//! What comes from other sites.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::gossip::{ClaimSource, RecordClaim, VersionComparison};
use super::remote_entity::RemoteEntity;
use super::send::PeerWorldControl;
use super::world_time::expand_tick;
use super::{
    DeadReckoning, EntityId, MAX_ENTITIES, MAX_ENTITIES_PER_SITE, PeerWorld, PeerWorldEvent, WorldPeer, WorldRegion,
    WorldSiteId, is_near_any,
};
use crate::clock::RoundTrip;
use crate::time::{Instant, TimeDelta};
use crate::wire::{DecodeError, EntityStateUpdate, PeerWorldItem, PeerWorldItems};

/// Who said goodbye is deaf to what was still under way for so long.
const LEAVE_QUARANTINE: TimeDelta = TimeDelta::from_secs(2);
/// Ticks by which an update may be ahead of our time: clocks differ.
const MAX_TICKS_AHEAD: u32 = 50;

impl<R: DeadReckoning> PeerWorld<R> {
    /// Takes in a datagram from a site; the network vouches for who that is.
    pub fn handle_datagram(&mut self, now: Instant, from: WorldSiteId, bytes: &[u8]) {
        self.now = self.now.max(now);
        self.stats.datagrams_received += 1;
        self.stats.bytes_received += bytes.len() as u64;
        if from == self.config.site || !self.mark_present(from, bytes) {
            return;
        }
        if self.handle_items(from, bytes).is_err() {
            self.stats.malformed += 1;
        }
    }

    /// Notes that a site is here. Not if the datagram was under way when the site left, or if there are too many sites.
    fn mark_present(&mut self, from: WorldSiteId, bytes: &[u8]) -> bool {
        let now = self.now;
        self.add_peer(now, from);
        let Some(peer) = self.peers.get_mut(&from) else { return false };
        if peer.left_at.is_some_and(|left| now - left < LEAVE_QUARANTINE) && !is_from_restarted_site(from, bytes) {
            return false;
        }
        if peer.left_at.is_some() {
            // It was restarted: its clock, and where its entities are, are not as they were.
            *peer = WorldPeer::new(now);
            self.next_clock_probe = now;
        }
        peer.last_received_at = now;
        if !core::mem::replace(&mut peer.is_present, true) {
            self.push_event(PeerWorldEvent::PeerJoined(from));
            self.beacon.next_at = self.beacon.next_at.min(now);
            if let Some(hold) = &mut self.beacon.record_hold {
                hold.first_peer_at.get_or_insert(now);
            }
        }
        true
    }

    fn handle_items(&mut self, from: WorldSiteId, bytes: &[u8]) -> Result<(), DecodeError> {
        let mut regions: Option<Vec<WorldRegion>> = None;
        for item in PeerWorldItems::new(bytes)? {
            match item? {
                PeerWorldItem::Update(update) => self.on_update(from, update),
                PeerWorldItem::WorldTime(ahead) => self.with_peer(from, |peer| peer.world_time_offset = ahead),
                PeerWorldItem::RegionsComplete => regions = Some(Vec::new()),
                PeerWorldItem::OwnRegion(region) => regions.iter_mut().for_each(|regions| regions.push(region)),
                PeerWorldItem::Probe(sent) => {
                    self.push_control(from, PeerWorldControl::Echo { sent, received: self.now })
                }
                PeerWorldItem::Echo(echo) => self.on_echo(from, echo),
                PeerWorldItem::LinkReport { site: of, lost, late } if of == self.config.site => {
                    let now = self.now;
                    self.with_peer(from, |peer| peer.on_report(now, lost, late));
                }
                PeerWorldItem::LinkReport { .. } => {}
                PeerWorldItem::RecordVersion { site: of, version } => self.on_digest(from, of, version),
                PeerWorldItem::RecordRequest { site: of } => self.push_control(from, PeerWorldControl::SendRecord(of)),
                PeerWorldItem::Record { site: of, version, bytes } => self.on_record(from, of, version, bytes),
                PeerWorldItem::Leave => self.on_bye(from),
            }
        }
        if let Some(regions) = regions {
            self.update_peer_regions(from, |peer| peer.set_regions(&regions));
        }
        Ok(())
    }

    /// Something was learned of where a site's entities are. If they have just come near ours, it is told of those at once.
    fn update_peer_regions(&mut self, site: WorldSiteId, learn: impl FnOnce(&mut WorldPeer)) {
        let Some(peer) = self.peers.get_mut(&site) else { return };
        let wants = |peer: &WorldPeer| self.own_regions.iter().filter(|own| peer.is_interested_in(**own)).count();
        let before = wants(peer);
        learn(peer);
        if wants(peer) > before {
            self.push_control(site, PeerWorldControl::States);
        }
    }

    fn with_peer(&mut self, site: WorldSiteId, change: impl FnOnce(&mut WorldPeer)) {
        if let Some(peer) = self.peers.get_mut(&site) {
            change(peer);
        }
    }

    fn on_update(&mut self, from: WorldSiteId, update: EntityStateUpdate<'_>) {
        match self.store_update(from, update) {
            Some(late) => {
                self.stats.updates_received += 1;
                self.stats.updates_late += u64::from(late);
            }
            None => self.stats.updates_refused += 1,
        }
    }

    /// Puts an update into its bucket, and says whether it is late; `None` if it is of no use.
    fn store_update(&mut self, from: WorldSiteId, update: EntityStateUpdate<'_>) -> Option<bool> {
        let present = self.tick(self.now)?;
        let tick = expand_tick(present, update.tick)?;
        if tick > present.saturating_add(MAX_TICKS_AHEAD)
            || tick.saturating_add(self.config.retention_ticks()) < present
        {
            return None;
        }
        let state = self.dead_reckoning.decode(update.state)?;
        let region = self.dead_reckoning.region(&state);
        let late = self.last_view_tick.is_some_and(|viewed| tick <= viewed);
        let entity = EntityId { site: from, index: update.entity_index };
        if !self.remote_entities.contains_key(&entity) && !self.has_room_for_entity(from) {
            return None;
        }
        let track = self.remote_entities.entry(entity).or_insert_with(RemoteEntity::new);
        let before = track.newest_state().map(|(tick, state)| (tick, self.dead_reckoning.region(state)));
        if track.insert(tick, state) {
            let is_followed = before.is_some_and(|(_, before)| is_near_any(&self.own_regions, before));
            track.loss.on_update(update.sequence, tick, late, is_followed && is_near_any(&self.own_regions, region));
        }
        // Who comes near tells us by that where it is, should its whereabouts have been lost.
        if before.is_none_or(|(newest, _)| newest < tick) {
            self.update_peer_regions(from, |peer| peer.on_entity_seen(region));
        }
        Some(late)
    }

    fn has_room_for_entity(&self, site: WorldSiteId) -> bool {
        let (first, last) = (EntityId { site, index: 0 }, EntityId { site, index: u8::MAX });
        self.remote_entities.len() < MAX_ENTITIES
            && self.remote_entities.range(first..=last).count() < MAX_ENTITIES_PER_SITE
    }

    fn on_echo(&mut self, from: WorldSiteId, echo: crate::wire::ClockEcho) {
        let trip = RoundTrip { sent: echo.sent, received: echo.received, answered: echo.answered, returned: self.now };
        if echo.sent <= self.now {
            self.with_peer(from, |peer| peer.clock.on_round_trip(trip));
        }
    }

    /// A peer reports its version of a record. A site that is heard sends its own record; this site requests only records of silent, departed or unknown sites.
    fn on_digest(&mut self, from: WorldSiteId, of: WorldSiteId, version: u32) {
        self.on_own_record_version(from, of, version);
        let tells_itself = of != from && self.is_responsive(of) || self.is_record_held(of);
        let told = self.record_claim(from, of, version);
        let is_wanted = || self.gossip.should_accept(told, presence_check(self.config.site, &self.peers));
        let control = match self.gossip.compare_version(of, version) {
            VersionComparison::PeerOutdated if !tells_itself => PeerWorldControl::SendRecord(of),
            VersionComparison::LocalOutdated if !self.rejects_third_party(of, from) && is_wanted() => {
                PeerWorldControl::RequestRecord(of)
            }
            _ => return,
        };
        self.push_control(from, control);
    }

    /// A site that is heard speaks for itself; of a site that is not, and of ourselves before we came, others may.
    fn on_record(&mut self, from: WorldSiteId, of: WorldSiteId, version: u32, bytes: &[u8]) {
        let (me, told) = (self.config.site, self.record_claim(from, of, version));
        if !self.rejects_third_party(of, from) && self.gossip.merge(told, bytes, presence_check(me, &self.peers)) {
            self.push_event(if of == me {
                PeerWorldEvent::OwnRecordRecovered
            } else {
                PeerWorldEvent::RecordChanged(of)
            });
        }
        self.on_own_record_version(from, of, version);
    }

    /// A peer told which version of a record it has. If the record is ours and we have that version, the peer can tell us nothing newer.
    fn on_own_record_version(&mut self, from: WorldSiteId, of: WorldSiteId, version: u32) {
        if of == self.config.site && self.gossip.compare_version(of, version) != VersionComparison::LocalOutdated {
            self.with_peer(from, |peer| peer.has_reported_our_record = true);
        }
    }

    /// Whether a record is our own and is held back.
    fn is_record_held(&self, of: WorldSiteId) -> bool {
        of == self.config.site && self.beacon.record_hold.is_some()
    }

    fn record_claim(&self, from: WorldSiteId, of: WorldSiteId, version: u32) -> RecordClaim {
        let by = match of {
            _ if of == from => ClaimSource::Owner,
            _ if of == self.config.site => ClaimSource::ThirdPartyAboutSelf,
            _ => ClaimSource::ThirdParty,
        };
        RecordClaim { site: of, version, source: by }
    }

    /// Whether somebody need not be told of by another: it is heard, and we know its record.
    fn rejects_third_party(&self, of: WorldSiteId, from: WorldSiteId) -> bool {
        of != from && self.is_responsive(of) && self.gossip.get(of).is_some()
    }

    /// Whether a site is present and not silent. A silent site may have left and its goodbye got lost: others know its last
    /// words, and may be gone themselves before it is forgotten.
    fn is_responsive(&self, site: WorldSiteId) -> bool {
        let is_heard = |peer: &WorldPeer| peer.is_present && self.now - peer.last_received_at < self.trust_timeout();
        self.peers.get(&site).is_some_and(is_heard)
    }

    /// How often any record was changed: for who keeps something that follows from them.
    pub fn record_revision(&self) -> u64 {
        self.gossip.revision()
    }

    fn on_bye(&mut self, from: WorldSiteId) {
        let now = self.now;
        self.with_peer(from, |peer| {
            peer.left_at = Some(now);
            peer.is_present = false;
            peer.world_time_offset = None;
        });
        self.remove_remote_entities(|entity, _| entity.site == from);
        self.push_event(PeerWorldEvent::PeerLeft(from));
    }
}

/// Whether a datagram is from a site that was started after its goodbye: a site asks for its own record only after a start.
fn is_from_restarted_site(from: WorldSiteId, bytes: &[u8]) -> bool {
    PeerWorldItems::new(bytes)
        .into_iter()
        .flatten()
        .flatten()
        .any(|item| item == PeerWorldItem::RecordRequest { site: from })
}

/// Whether a site is here: we are, and whoever was heard and has not left.
fn presence_check(me: WorldSiteId, peers: &BTreeMap<WorldSiteId, WorldPeer>) -> impl Fn(WorldSiteId) -> bool {
    move |site| site == me || peers.get(&site).is_some_and(|peer| peer.is_present)
}

#[cfg(test)]
mod tests {
    use super::super::test_game::TestGame;
    use super::super::{PeerWorldConfig, gossip};
    use super::*;
    use crate::wire::{MAX_DATAGRAM, PeerWorldDatagram};

    const ME: WorldSiteId = WorldSiteId(1);
    const LIAR: WorldSiteId = WorldSiteId(2);
    const ADA: WorldSiteId = WorldSiteId(3);

    fn test_world() -> PeerWorld<TestGame> {
        let mut world = PeerWorld::new(Instant::ZERO, PeerWorldConfig::new(ME, true), TestGame::default()).unwrap();
        world.publish_record(b"ours");
        world
    }

    fn receive_item(world: &mut PeerWorld<TestGame>, from: WorldSiteId, item: PeerWorldItem<'_>) {
        let mut buf = [0; MAX_DATAGRAM];
        let mut datagram = PeerWorldDatagram::new(&mut buf).unwrap();
        datagram.put(item).unwrap();
        let len = datagram.len();
        world.handle_datagram(Instant::ZERO, from, &buf[..len]);
    }

    fn record_item(of: WorldSiteId, changes: u32, bytes: &[u8]) -> PeerWorldItem<'_> {
        PeerWorldItem::Record { site: of, version: gossip::make_version(changes, bytes), bytes }
    }

    fn record_bytes(world: &PeerWorld<TestGame>, of: WorldSiteId) -> Option<&[u8]> {
        world.gossip.get(of).map(|record| &record.bytes[..])
    }

    #[test]
    fn forged_record_is_replaced_once_its_owner_arrives() {
        let mut world = test_world();
        receive_item(&mut world, LIAR, PeerWorldItem::Record { site: ADA, version: u32::MAX, bytes: b"nonsense" });
        assert_eq!(record_bytes(&world, ADA), None, "that is not what the version stands for");
        receive_item(&mut world, LIAR, record_item(ADA, u32::MAX >> 12, b"the last word"));
        assert_eq!(record_bytes(&world, ADA), None, "nothing could follow");
        receive_item(&mut world, LIAR, record_item(ADA, 400_000, b"slander"));
        assert_eq!(record_bytes(&world, ADA), Some(&b"slander"[..]));
        world.control_queue.clear();
        receive_item(
            &mut world,
            ADA,
            PeerWorldItem::RecordVersion { site: ADA, version: gossip::make_version(1, b"true") },
        );
        assert_eq!(world.control_queue.front(), Some(&(ADA, PeerWorldControl::SendRecord(ADA))), "Ada is told");
        receive_item(&mut world, ADA, record_item(ADA, 400_001, b"true"));
        receive_item(&mut world, LIAR, record_item(ADA, 400_002, b"slander"));
        assert_eq!(record_bytes(&world, ADA), Some(&b"true"[..]), "who is here speaks for itself");
    }

    #[test]
    fn own_record_recovered_from_peer_can_still_be_superseded() {
        let mut world = test_world();
        receive_item(&mut world, LIAR, record_item(ME, u32::MAX >> 12, b"the last word"));
        assert_eq!(record_bytes(&world, ME), Some(&b"ours"[..]));
        receive_item(&mut world, LIAR, record_item(ME, 300_000, b"from before"));
        assert!(core::iter::from_fn(|| world.poll_event()).any(|event| event == PeerWorldEvent::OwnRecordRecovered));
        world.publish_record(b"ours");
        assert_eq!(world.gossip.get(ME).unwrap().version, gossip::make_version(300_001, b"ours"));
    }

    #[test]
    fn forged_sites_neither_block_real_ones_nor_are_requested() {
        let mut world = test_world();
        (1_000..3_000).for_each(|site| receive_item(&mut world, LIAR, record_item(WorldSiteId(site), 1, b"made up")));
        world.control_queue.clear();
        receive_item(
            &mut world,
            LIAR,
            PeerWorldItem::RecordVersion { site: WorldSiteId(5_000), version: gossip::make_version(1, b"made up") },
        );
        assert!(world.control_queue.is_empty(), "there is no room for it");
        receive_item(&mut world, ADA, record_item(ADA, 1, b"true"));
        assert_eq!(record_bytes(&world, ADA), Some(&b"true"[..]));
        assert_eq!(record_bytes(&world, ME), Some(&b"ours"[..]));
    }

    #[test]
    fn implausible_version_is_not_requested() {
        let mut world = test_world();
        receive_item(&mut world, LIAR, record_item(ADA, 5, b"true"));
        world.control_queue.clear();
        receive_item(&mut world, LIAR, PeerWorldItem::RecordVersion { site: ADA, version: u32::MAX });
        assert!(world.control_queue.is_empty());
        receive_item(
            &mut world,
            LIAR,
            PeerWorldItem::RecordVersion { site: ADA, version: gossip::make_version(6, b"") },
        );
        assert_eq!(world.control_queue.front(), Some(&(LIAR, PeerWorldControl::RequestRecord(ADA))));
    }

    #[test]
    fn record_revision_counts_every_change() {
        let mut world = test_world();
        let before = world.record_revision();
        receive_item(&mut world, ADA, record_item(ADA, 1, b"one"));
        receive_item(&mut world, ADA, record_item(ADA, 1, b"one"));
        assert_eq!(world.record_revision(), before + 1);
    }
}
