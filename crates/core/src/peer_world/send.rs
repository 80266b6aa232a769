//! Encoding of datagrams to other sites: updates, queued unicast messages, beacons and goodbyes.

use alloc::vec::Vec;

use super::{
    Beacon, DeadReckoning, LocalEntity, MAX_STATE_SIZE, PEER_TIMEOUT, PeerWorld, SiteRecord, WorldRegion, WorldSiteId,
};
use crate::clock::ClockEcho;
use crate::codec::{BufferFull, MAX_DATAGRAM};
use crate::peer_world::message::{EntityStateUpdate, PeerWorldDatagramWriter, PeerWorldItem};
use crate::time::{Instant, TimeDelta};

/// Maximum number of queued unicast messages; further ones are discarded.
const MAX_QUEUED_CONTROL: usize = 512;
/// Number of initial clock probes per peer, sent every [`INITIAL_PROBE_INTERVAL`].
const INITIAL_PROBES: u32 = 12;
/// Interval of the first [`INITIAL_PROBES`] clock probes to a peer.
const INITIAL_PROBE_INTERVAL: TimeDelta = TimeDelta::from_millis(40);
/// Interval of further probes until the clock is known, and while the jitter is above [`JITTER_THRESHOLD`]: with jitter
/// it takes many round trips to find a quick one.
const FAST_PROBE_INTERVAL: TimeDelta = TimeDelta::from_millis(50);
/// Jitter above which the fast probe interval is kept.
const JITTER_THRESHOLD: TimeDelta = TimeDelta::from_millis(4);
/// Probe interval for a known clock over a link with low jitter.
const SLOW_PROBE_INTERVAL: TimeDelta = TimeDelta::from_secs(1);
/// Divisor of the number of peers. The fast and slow probe intervals and the beacon interval are multiplied by the
/// quotient (rounded down, at least 1), so that the traffic of a site does not grow with the world.
const LARGE_WORLD_PEERS: usize = 16;
/// Interval of beacons in a world of fewer than 32 peers.
const BEACON_INTERVAL: TimeDelta = TimeDelta::from_secs(1);
/// Maximum number of regions in one datagram.
const MAX_REGIONS_PER_DATAGRAM: usize = 64;
/// Maximum number of link reports in one datagram.
const MAX_REPORTS_PER_DATAGRAM: usize = 32;
/// Maximum number of record versions in one datagram, besides this site's own.
const MAX_DIGESTS_PER_DATAGRAM: usize = 8;

/// Recipients of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerWorldDestination {
    /// All peers: [`PeerWorld::peers`].
    All,
    /// The peers that must receive updates from this region: [`PeerWorld::interested_peers`].
    Near(WorldRegion),
    /// The site with this id.
    One(WorldSiteId),
}

/// A datagram that [`PeerWorld::poll_transmit`] has encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerWorldTransmit {
    /// Recipients to which the host program must send the datagram.
    pub to: PeerWorldDestination,
    /// Length in bytes; the datagram is at the beginning of the buffer.
    pub len: usize,
    /// Current tick, 0 until the world time is known.
    pub tick: u32,
}

/// A queued message to one site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PeerWorldUnicast {
    Probe,
    Echo {
        sent: Instant,
        received: Instant,
    },
    RequestRecord(WorldSiteId),
    SendRecord(WorldSiteId),
    /// The regions of this site's entities.
    Regions,
    /// The newest state of each of this site's entities that the peer can see.
    States,
}

impl<R: DeadReckoning> PeerWorld<R> {
    pub(super) fn push_control(&mut self, to: WorldSiteId, control: PeerWorldUnicast) {
        if self.control_queue.len() < MAX_QUEUED_CONTROL && !self.control_queue.contains(&(to, control)) {
            self.control_queue.push_back((to, control));
        }
    }

    /// Queues the due clock probes for all peers that have not left, and with them [requests](Self::request_own_record)
    /// for this site's record. The first 12 probes of a peer are 40 ms apart.
    pub(super) fn probe_clocks(&mut self, now: Instant) {
        if now < self.next_clock_probe {
            return;
        }
        let interval_factor = (self.peers.len() / LARGE_WORLD_PEERS).max(1) as i64;
        let mut due = Vec::new();
        self.next_clock_probe = Instant::FAR_FUTURE;
        for (site, peer) in self.peers.iter_mut().filter(|(_, peer)| peer.left_at.is_none()) {
            if now < peer.next_probe {
                self.next_clock_probe = self.next_clock_probe.min(peer.next_probe);
                continue;
            }
            peer.probe_count += 1;
            peer.next_probe = now
                + match peer.probe_count {
                    ..INITIAL_PROBES => INITIAL_PROBE_INTERVAL,
                    _ if !peer.clock.is_ready() || peer.clock.jitter() > JITTER_THRESHOLD => {
                        FAST_PROBE_INTERVAL * interval_factor
                    }
                    _ => SLOW_PROBE_INTERVAL * interval_factor,
                };
            self.next_clock_probe = self.next_clock_probe.min(peer.next_probe);
            due.push(*site);
        }
        for site in due {
            self.push_control(site, PeerWorldUnicast::Probe);
            self.request_own_record(site);
        }
    }

    /// Queues a request for a peer's version of this site's record, if the record is held back and the peer has not
    /// answered. The request goes with every clock probe: probes are frequent at first, and a later one makes up for a
    /// lost request.
    fn request_own_record(&mut self, site: WorldSiteId) {
        let has_answered = self.peers.get(&site).is_some_and(|peer| peer.has_reported_our_record);
        if self.beacon.record_hold.is_some() && !has_answered {
            self.push_control(site, PeerWorldUnicast::RequestRecord(self.config.site));
        }
    }

    /// Queues this site's regions for the present peers that [need them](super::RemoteSite::needs_region_update).
    pub(super) fn send_regions(&mut self) {
        let own = &self.own_regions;
        let mut due = Vec::new();
        for (site, peer) in self.peers.iter_mut().filter(|(_, peer)| peer.is_present && peer.needs_region_update(own)) {
            peer.on_regions_sent(own);
            due.push(*site);
        }
        due.into_iter().for_each(|site| self.push_control(site, PeerWorldUnicast::Regions));
    }

    /// Encodes the next datagram to send into `buf`, which should have room for [`MAX_DATAGRAM`] bytes. `None` if
    /// nothing is to be sent now.
    pub fn poll_transmit(&mut self, now: Instant, buf: &mut [u8]) -> Option<PeerWorldTransmit> {
        self.now = self.now.max(now);
        let room = buf.len().min(MAX_DATAGRAM);
        let packet = self.next_packet(self.now, &mut buf[..room])?;
        self.stats.datagrams_sent += 1;
        self.stats.bytes_sent += packet.len as u64;
        Some(packet)
    }

    fn next_packet(&mut self, now: Instant, buf: &mut [u8]) -> Option<PeerWorldTransmit> {
        let tick = self.tick(now).unwrap_or(0);
        let (to, len) = if core::mem::take(&mut self.is_leaving) {
            (PeerWorldDestination::All, self.encode_leave(buf).ok()?)
        } else if let Some(sent) = self.encode_updates(buf) {
            sent
        } else if let Some((site, _)) = self.control_queue.front() {
            (PeerWorldDestination::One(*site), self.encode_control(now, *site, buf).ok()?)
        } else if self.is_beacon_due(now) {
            (PeerWorldDestination::All, self.encode_beacon(now, buf).ok()?)
        } else {
            return None;
        };
        Some(PeerWorldTransmit { to, len, tick })
    }

    /// Encodes this site's final record and its goodbye.
    fn encode_leave(&self, buf: &mut [u8]) -> Result<usize, BufferFull> {
        let mut datagram = PeerWorldDatagramWriter::new(buf)?;
        if let Some(SiteRecord { version, bytes }) = self.gossip.get(self.config.site) {
            datagram.put(PeerWorldItem::Record { site: self.config.site, version: *version, bytes })?;
        }
        datagram.put(PeerWorldItem::Leave)?;
        Ok(datagram.len())
    }

    /// Encodes the due updates of one region, as many as fit, for the peers near it.
    fn encode_updates(&mut self, buf: &mut [u8]) -> Option<(PeerWorldDestination, usize)> {
        let due = self.local_entities.values().find(|local| local.is_due)?;
        let region = self.dead_reckoning.region(due.newest().1);
        let mut datagram = PeerWorldDatagramWriter::new(buf).ok()?;
        for (index, local) in self.local_entities.iter_mut().filter(|(_, local)| local.is_due) {
            if self.dead_reckoning.region(local.newest().1) != region {
                continue;
            }
            if put_update(&self.dead_reckoning, *index, local, &mut datagram).is_err() {
                break;
            }
            local.is_due = false;
            local.sequence = local.sequence.wrapping_add(1);
            self.stats.updates_sent += 1;
        }
        // An update that does not fit alone will never fit, so no update stays due.
        if datagram.is_empty() {
            self.local_entities.values_mut().for_each(|local| local.is_due = false);
            return None;
        }
        Some((PeerWorldDestination::Near(region), datagram.len()))
    }

    /// Encodes the messages queued for one site, as many as fit.
    fn encode_control(&mut self, now: Instant, site: WorldSiteId, buf: &mut [u8]) -> Result<usize, BufferFull> {
        let mut datagram = PeerWorldDatagramWriter::new(buf)?;
        let mut full = false;
        let (gossip, world_time, own) = (&self.gossip, &self.world_time, &self.own_regions);
        let (peers, locals, reckoner) = (&self.peers, &self.local_entities, &self.dead_reckoning);
        self.control_queue.retain(|(to, control)| {
            if *to != site || full {
                return true;
            }
            let put = match *control {
                PeerWorldUnicast::Probe => datagram.put(PeerWorldItem::Probe(now)),
                // A peer that measures this site's clock also needs the world time.
                PeerWorldUnicast::Echo { sent, received } => datagram
                    .put(PeerWorldItem::Echo(ClockEcho { sent, received, answered: now }))
                    .and_then(|()| datagram.put(PeerWorldItem::WorldTime(world_time.offset()))),
                PeerWorldUnicast::RequestRecord(record_site) => {
                    datagram.put(PeerWorldItem::RecordRequest { site: record_site })
                }
                PeerWorldUnicast::Regions => put_regions(own, &mut datagram),
                PeerWorldUnicast::States => {
                    let is_visible = |local: &LocalEntity<R::State>| {
                        peers.get(&site).is_some_and(|peer| peer.is_interested_in(reckoner.region(local.newest().1)))
                    };
                    let mut visible = locals.iter().filter(|(_, local)| is_visible(local));
                    // Entities whose states do not fit reach the peer with their next updates.
                    _ = visible.try_for_each(|(index, local)| put_update(reckoner, *index, local, &mut datagram));
                    Ok(())
                }
                PeerWorldUnicast::SendRecord(record_site) => datagram.put(match gossip.get(record_site) {
                    Some(record) => {
                        PeerWorldItem::Record { site: record_site, version: record.version, bytes: &record.bytes }
                    }
                    // Version 0 reports that there is no record; the peer would take a missing answer for a lost one.
                    None => PeerWorldItem::RecordVersion { site: record_site, version: 0 },
                }),
            };
            full = put.is_err();
            full
        });
        Ok(datagram.len())
    }

    fn is_beacon_due(&self, now: Instant) -> bool {
        !self.peers.is_empty() && (now >= self.beacon.next_at || self.is_record_due(now))
    }

    /// Returns whether the record of this site must be sent to all sites: at once after it is published, but not while
    /// it is held back and at most once per beacon interval.
    fn is_record_due(&self, now: Instant) -> bool {
        let Beacon { is_record_pending, record_hold, record_sent_at, .. } = self.beacon;
        is_record_pending && record_hold.is_none() && now - record_sent_at >= self.beacon_interval()
    }

    /// Returns the interval between two beacons. It grows with the number of peers, so that the traffic of a site does
    /// not.
    fn beacon_interval(&self) -> TimeDelta {
        BEACON_INTERVAL * (self.peers.len() / LARGE_WORLD_PEERS).max(1) as i64
    }

    /// Returns the silence after which a peer is removed: four beacon intervals, at least [`PEER_TIMEOUT`].
    pub(super) fn peer_timeout(&self) -> TimeDelta {
        PEER_TIMEOUT.max(self.beacon_interval() * 4)
    }

    /// Encodes the beacon: this site's record or its version, the world time, this site's regions, link reports and
    /// record versions.
    fn encode_beacon(&mut self, now: Instant, buf: &mut [u8]) -> Result<usize, BufferFull> {
        let interval = self.beacon_interval();
        // A phase of up to a tenth of the interval keeps sites from sending their beacons together.
        let phase = TimeDelta::from_nanos(interval.as_nanos() / 10 * i64::from(self.config.site.0 % 16) / 16);
        self.beacon.next_at = now + interval - phase;
        self.peers.values_mut().for_each(|peer| peer.on_regions_sent(&self.own_regions));
        let mut datagram = PeerWorldDatagramWriter::new(buf)?;
        let is_record_due = self.is_record_due(now);
        if let Some(SiteRecord { version, bytes }) = self.gossip.get(self.config.site) {
            let (site, version) = (self.config.site, *version);
            if is_record_due {
                (self.beacon.is_record_pending, self.beacon.record_sent_at) = (false, now);
                datagram.put(PeerWorldItem::Record { site, version, bytes })?;
            } else {
                datagram.put(PeerWorldItem::RecordVersion { site, version })?;
            }
        }
        datagram.put(PeerWorldItem::WorldTime(self.world_time.offset()))?;
        let regions = put_regions(&self.own_regions, &mut datagram);
        let reports = regions.and_then(|()| put_reports(&self.peers, &mut self.beacon.last_reported, &mut datagram));
        // Items that do not fit go into a later beacon.
        if reports.is_ok() {
            for _ in 0..self.gossip.len().min(MAX_DIGESTS_PER_DATAGRAM) {
                let Some((site, version)) = self.gossip.next_digest() else { break };
                if datagram.put(PeerWorldItem::RecordVersion { site, version }).is_err() {
                    break;
                }
            }
        }
        Ok(datagram.len())
    }
}

/// Appends the newest state of an own entity.
fn put_update<R: DeadReckoning>(
    reckoner: &R,
    index: u8,
    local: &LocalEntity<R::State>,
    datagram: &mut PeerWorldDatagramWriter<'_>,
) -> Result<(), BufferFull> {
    let (tick, state) = local.newest();
    let mut bytes = [0; MAX_STATE_SIZE];
    let len = reckoner.encode(state, &mut bytes).unwrap_or(0).min(MAX_STATE_SIZE);
    datagram.put(PeerWorldItem::Update(EntityStateUpdate {
        entity_index: index,
        sequence: local.sequence,
        tick: tick as u16,
        state: &bytes[..len],
    }))
}

/// Appends the regions of this site's entities. A site in more than [`MAX_REGIONS_PER_DATAGRAM`] regions appends none,
/// and peers keep the regions that they know of it.
fn put_regions(regions: &[WorldRegion], datagram: &mut PeerWorldDatagramWriter<'_>) -> Result<(), BufferFull> {
    if regions.len() > MAX_REGIONS_PER_DATAGRAM {
        return Ok(());
    }
    datagram.put(PeerWorldItem::RegionsComplete)?;
    regions.iter().try_for_each(|region| datagram.put(PeerWorldItem::OwnRegion(*region)))
}

/// Appends link reports on the present peers with recent updates, at most [`MAX_REPORTS_PER_DATAGRAM`] of them, in
/// rotation.
fn put_reports(
    peers: &alloc::collections::BTreeMap<WorldSiteId, super::RemoteSite>,
    last: &mut Option<WorldSiteId>,
    datagram: &mut PeerWorldDatagramWriter<'_>,
) -> Result<(), BufferFull> {
    let after = |site: &WorldSiteId| last.is_none_or(|last| *site > last);
    let mut sites: Vec<(WorldSiteId, u8, u8)> = peers
        .iter()
        .filter(|(_, peer)| peer.is_present && peer.has_recent_updates)
        .map(|(site, peer)| (*site, peer.loss_share, peer.late_share))
        .collect();
    sites.sort_by_key(|(site, ..)| (!after(site), *site));
    for (site, lost, late) in sites.into_iter().take(MAX_REPORTS_PER_DATAGRAM) {
        datagram.put(PeerWorldItem::LinkReport { site, lost, late })?;
        *last = Some(site);
    }
    Ok(())
}
