//! Handling of datagrams from other sites: presence, updates, regions, clock echoes, link reports and records.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::gossip::{ClaimSource, RecordClaim, VersionComparison};
use super::remote_entity::RemoteEntity;
use super::send::PeerWorldUnicast;
use super::world_time::expand_tick;
use super::{
    DeadReckoning, EntityId, MAX_ENTITIES, MAX_ENTITIES_PER_SITE, PeerWorld, PeerWorldEvent, RemoteSite, WorldRegion,
    WorldSiteId, is_near_any,
};
use crate::clock::RoundTrip;
use crate::codec::DecodeError;
use crate::peer_world::message::{EntityStateUpdate, PeerWorldItem, PeerWorldItems};
use crate::time::{Instant, TimeDelta};

/// Time after a site's goodbye for which its datagrams are ignored, because they were still in flight. A datagram that
/// shows that the site has restarted is not ignored.
const LEAVE_QUARANTINE: TimeDelta = TimeDelta::from_secs(2);
/// Maximum lead of an update over the local world time, in ticks, which allows for differences between the clocks.
const MAX_TICKS_AHEAD: u32 = 50;

impl<R: DeadReckoning> PeerWorld<R> {
    /// Handles a datagram from the site `from`, whose id the host program must have authenticated.
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

    /// Adds a site if it is unknown, and marks it as present. Returns false if the datagram must be ignored, because it
    /// was in flight when the site left or because there are too many peers.
    fn mark_present(&mut self, from: WorldSiteId, bytes: &[u8]) -> bool {
        let now = self.now;
        self.add_peer(now, from);
        let Some(peer) = self.peers.get_mut(&from) else { return false };
        if peer.left_at.is_some_and(|left_at| now - left_at < LEAVE_QUARANTINE) && !is_from_restarted_site(from, bytes)
        {
            return false;
        }
        if peer.left_at.is_some() {
            // The site has come back after its goodbye: its old clock and regions are no longer valid.
            *peer = RemoteSite::new(now);
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
                PeerWorldItem::WorldTime(offset) => self.with_peer(from, |peer| peer.world_time_offset = offset),
                PeerWorldItem::RegionsComplete => regions = Some(Vec::new()),
                PeerWorldItem::OwnRegion(region) => regions.iter_mut().for_each(|regions| regions.push(region)),
                PeerWorldItem::Probe(sent) => {
                    self.push_control(from, PeerWorldUnicast::Echo { sent, received: self.now })
                }
                PeerWorldItem::Echo(echo) => self.on_echo(from, echo),
                PeerWorldItem::LinkReport { site, lost, late } if site == self.config.site => {
                    let now = self.now;
                    self.with_peer(from, |peer| peer.on_report(now, lost, late));
                }
                PeerWorldItem::LinkReport { .. } => {}
                PeerWorldItem::RecordVersion { site, version } => self.on_digest(from, site, version),
                PeerWorldItem::RecordRequest { site } => self.push_control(from, PeerWorldUnicast::SendRecord(site)),
                PeerWorldItem::Record { site, version, bytes } => self.on_record(from, site, version, bytes),
                PeerWorldItem::Leave => self.on_leave(from),
            }
        }
        if let Some(regions) = regions {
            self.update_peer_regions(from, |peer| peer.set_regions(&regions));
        }
        Ok(())
    }

    /// Updates the known regions of a peer. If more of this site's regions are near the peer than before, queues the
    /// states of this site's entities for it.
    fn update_peer_regions(&mut self, site: WorldSiteId, update: impl FnOnce(&mut RemoteSite)) {
        let Some(peer) = self.peers.get_mut(&site) else { return };
        let interest = |peer: &RemoteSite| self.own_regions.iter().filter(|own| peer.is_interested_in(**own)).count();
        let before = interest(peer);
        update(peer);
        if interest(peer) > before {
            self.push_control(site, PeerWorldUnicast::States);
        }
    }

    fn with_peer(&mut self, site: WorldSiteId, change: impl FnOnce(&mut RemoteSite)) {
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

    /// Stores an update at its tick. Returns whether the update came after the view of that tick, or `None` if it is
    /// rejected.
    fn store_update(&mut self, from: WorldSiteId, update: EntityStateUpdate<'_>) -> Option<bool> {
        let current = self.tick(self.now)?;
        let tick = expand_tick(current, update.tick)?;
        if tick > current.saturating_add(MAX_TICKS_AHEAD)
            || tick.saturating_add(self.config.retention_ticks()) < current
        {
            return None;
        }
        let state = self.dead_reckoning.decode(update.state)?;
        let region = self.dead_reckoning.region(&state);
        let late = self.last_view_tick.is_some_and(|last| tick <= last);
        let entity = EntityId { site: from, index: update.entity_index };
        if !self.remote_entities.contains_key(&entity) && !self.has_room_for_entity(from) {
            return None;
        }
        let remote = self.remote_entities.entry(entity).or_insert_with(RemoteEntity::new);
        let before = remote.newest_state().map(|(tick, state)| (tick, self.dead_reckoning.region(state)));
        if remote.insert(tick, state) {
            let is_followed = before.is_some_and(|(_, before)| is_near_any(&self.own_regions, before));
            remote.loss.on_update(update.sequence, tick, late, is_followed && is_near_any(&self.own_regions, region));
        }
        // A newer update reveals the peer's region, in case its region report was lost.
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

    fn on_echo(&mut self, from: WorldSiteId, echo: crate::clock::ClockEcho) {
        let trip = RoundTrip { sent: echo.sent, received: echo.received, answered: echo.answered, returned: self.now };
        if echo.sent <= self.now {
            self.with_peer(from, |peer| peer.clock.on_round_trip(trip));
        }
    }

    /// Handles a peer's version of a record: sends the record if this version is older than the local one, requests it
    /// if newer. A responsive site sends its own record, so no other site sends it, and this site requests it from
    /// others only while it has no version of it.
    fn on_digest(&mut self, from: WorldSiteId, site: WorldSiteId, version: u32) {
        self.on_own_record_version(from, site, version);
        let must_not_send = site != from && self.is_responsive(site) || self.is_record_held(site);
        let claim = self.record_claim(from, site, version);
        let is_wanted = || self.gossip.should_accept(claim, presence_check(self.config.site, &self.peers));
        let control = match self.gossip.compare_version(site, version) {
            VersionComparison::PeerOutdated if !must_not_send => PeerWorldUnicast::SendRecord(site),
            VersionComparison::LocalOutdated if !self.rejects_third_party(site, from) && is_wanted() => {
                PeerWorldUnicast::RequestRecord(site)
            }
            _ => return,
        };
        self.push_control(from, control);
    }

    /// Handles a record: stores it and queues an event, if it is acceptable and newer than the local one. Once known,
    /// the record of a responsive site is accepted only from that site. Third parties may send the records of other
    /// sites, and this site's own from before its last start.
    fn on_record(&mut self, from: WorldSiteId, site: WorldSiteId, version: u32, bytes: &[u8]) {
        let (own_site, claim) = (self.config.site, self.record_claim(from, site, version));
        if !self.rejects_third_party(site, from)
            && self.gossip.merge(claim, bytes, presence_check(own_site, &self.peers))
        {
            self.push_event(if site == own_site {
                PeerWorldEvent::OwnRecordRecovered
            } else {
                PeerWorldEvent::RecordChanged(site)
            });
        }
        self.on_own_record_version(from, site, version);
    }

    /// Notes that a peer has answered if the record is this site's and the peer's version of it is not newer than the
    /// local one: the peer has nothing more to report.
    fn on_own_record_version(&mut self, from: WorldSiteId, site: WorldSiteId, version: u32) {
        if site == self.config.site && self.gossip.compare_version(site, version) != VersionComparison::LocalOutdated {
            self.with_peer(from, |peer| peer.has_reported_our_record = true);
        }
    }

    /// Returns whether `site` is this site and its record is held back.
    fn is_record_held(&self, site: WorldSiteId) -> bool {
        site == self.config.site && self.beacon.record_hold.is_some()
    }

    fn record_claim(&self, from: WorldSiteId, site: WorldSiteId, version: u32) -> RecordClaim {
        let source = match site {
            _ if site == from => ClaimSource::Owner,
            _ if site == self.config.site => ClaimSource::ThirdPartyAboutSelf,
            _ => ClaimSource::ThirdParty,
        };
        RecordClaim { site, version, source }
    }

    /// Returns whether information from `from` on the record of `site` is ignored: `from` is a third party, `site` is
    /// responsive, and its record is known.
    fn rejects_third_party(&self, site: WorldSiteId, from: WorldSiteId) -> bool {
        site != from && self.is_responsive(site) && self.gossip.get(site).is_some()
    }

    /// Returns whether a site is present and sent a datagram within the trust timeout. A site that is silent for longer
    /// may have left, and its goodbye may have been lost. Other peers may know its final record, and may leave
    /// themselves before this site removes the silent one.
    fn is_responsive(&self, site: WorldSiteId) -> bool {
        let is_recent = |peer: &RemoteSite| peer.is_present && self.now - peer.last_received_at < self.trust_timeout();
        self.peers.get(&site).is_some_and(is_recent)
    }

    /// Returns the number of times that any record was stored, for host programs that cache data derived from the
    /// records.
    pub fn record_revision(&self) -> u64 {
        self.gossip.revision()
    }

    fn on_leave(&mut self, from: WorldSiteId) {
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

/// Returns whether a datagram is from a site that was restarted after its goodbye: a site requests its own record only
/// after a start.
fn is_from_restarted_site(from: WorldSiteId, bytes: &[u8]) -> bool {
    PeerWorldItems::new(bytes)
        .into_iter()
        .flatten()
        .flatten()
        .any(|item| item == PeerWorldItem::RecordRequest { site: from })
}

/// Returns a predicate for present sites: this site, and every peer that has sent a datagram and not left.
fn presence_check(own_site: WorldSiteId, peers: &BTreeMap<WorldSiteId, RemoteSite>) -> impl Fn(WorldSiteId) -> bool {
    move |site| site == own_site || peers.get(&site).is_some_and(|peer| peer.is_present)
}

#[cfg(test)]
mod tests {
    use super::super::test_game::TestGame;
    use super::super::{PeerWorldConfig, gossip};
    use super::*;
    use crate::codec::MAX_DATAGRAM;
    use crate::peer_world::message::PeerWorldDatagramWriter;

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
        let mut datagram = PeerWorldDatagramWriter::new(&mut buf).unwrap();
        datagram.put(item).unwrap();
        let len = datagram.len();
        world.handle_datagram(Instant::ZERO, from, &buf[..len]);
    }

    fn record_item(site: WorldSiteId, changes: u32, bytes: &[u8]) -> PeerWorldItem<'_> {
        PeerWorldItem::Record { site, version: gossip::make_version(changes, bytes), bytes }
    }

    fn record_bytes(world: &PeerWorld<TestGame>, site: WorldSiteId) -> Option<&[u8]> {
        world.gossip.get(site).map(|record| &record.bytes[..])
    }

    #[test]
    fn forged_record_is_replaced_once_its_owner_arrives() {
        let mut world = test_world();
        receive_item(&mut world, LIAR, PeerWorldItem::Record { site: ADA, version: u32::MAX, bytes: b"nonsense" });
        assert_eq!(record_bytes(&world, ADA), None, "the version does not match the contents");
        receive_item(&mut world, LIAR, record_item(ADA, u32::MAX >> 12, b"the last word"));
        assert_eq!(record_bytes(&world, ADA), None, "the owner could not exceed the maximum change count");
        receive_item(&mut world, LIAR, record_item(ADA, 400_000, b"slander"));
        assert_eq!(record_bytes(&world, ADA), Some(&b"slander"[..]));
        world.control_queue.clear();
        receive_item(
            &mut world,
            ADA,
            PeerWorldItem::RecordVersion { site: ADA, version: gossip::make_version(1, b"true") },
        );
        assert_eq!(
            world.control_queue.front(),
            Some(&(ADA, PeerWorldUnicast::SendRecord(ADA))),
            "the owner must receive the forged record"
        );
        receive_item(&mut world, ADA, record_item(ADA, 400_001, b"true"));
        receive_item(&mut world, LIAR, record_item(ADA, 400_002, b"slander"));
        assert_eq!(record_bytes(&world, ADA), Some(&b"true"[..]), "a third party must not override a present owner");
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
        assert!(world.control_queue.is_empty(), "a full store must not request further records");
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
        assert_eq!(world.control_queue.front(), Some(&(LIAR, PeerWorldUnicast::RequestRecord(ADA))));
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
