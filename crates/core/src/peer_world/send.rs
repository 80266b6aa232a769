//! What goes to other sites.

use alloc::vec::Vec;

use super::{
    Beacon, DeadReckoning, LocalEntity, MAX_STATE_SIZE, PEER_TIMEOUT, PeerWorld, SiteRecord, WorldRegion, WorldSiteId,
};
use crate::time::{Instant, TimeDelta};
use crate::wire::{BufferFull, ClockEcho, EntityStateUpdate, MAX_DATAGRAM, PeerWorldDatagram, PeerWorldItem};

/// Things to be told to single sites that are kept waiting.
const MAX_QUEUED_CONTROL: usize = 512;
/// Round trips that are made at once, for a clock, and how soon; then less so until it is known; then seldom, unless they take a different
/// time every time: then it needs many to find a quick one.
const INITIAL_PROBES: u32 = 12;
const INITIAL_PROBE_INTERVAL: TimeDelta = TimeDelta::from_millis(40);
const FAST_PROBE_INTERVAL: TimeDelta = TimeDelta::from_millis(50);
const JITTER_THRESHOLD: TimeDelta = TimeDelta::from_millis(4);
const SLOW_PROBE_INTERVAL: TimeDelta = TimeDelta::from_secs(1);
/// With more sites than this everybody asks and tells less often, so that a site's part does not grow.
const LARGE_WORLD_PEERS: usize = 16;
/// Everybody is told how we are so often.
const BEACON_INTERVAL: TimeDelta = TimeDelta::from_secs(1);
/// Regions, reports and versions in one datagram.
const MAX_REGIONS_PER_DATAGRAM: usize = 64;
const MAX_REPORTS_PER_DATAGRAM: usize = 32;
const MAX_DIGESTS_PER_DATAGRAM: usize = 8;

/// To whom a datagram goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerWorldDestination {
    /// To everybody.
    All,
    /// To who can see what happens there: [`TestNetwork::interested_peers`] says who that is.
    Near(WorldRegion),
    /// To one site.
    One(WorldSiteId),
}

/// A datagram to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerWorldTransmit {
    /// To whom.
    pub to: PeerWorldDestination,
    /// Its bytes in the buffer.
    pub len: usize,
    /// The tick that it tells of.
    pub tick: u32,
}

/// Something to be told to one site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PeerWorldControl {
    Probe,
    Echo {
        sent: Instant,
        received: Instant,
    },
    RequestRecord(WorldSiteId),
    SendRecord(WorldSiteId),
    /// Where our entities are.
    Regions,
    /// How those of our entities are that it can see.
    States,
}

impl<R: DeadReckoning> PeerWorld<R> {
    pub(super) fn push_control(&mut self, to: WorldSiteId, what: PeerWorldControl) {
        if self.control_queue.len() < MAX_QUEUED_CONTROL && !self.control_queue.contains(&(to, what)) {
            self.control_queue.push_back((to, what));
        }
    }

    /// Asks for the clocks of others; often at first.
    pub(super) fn probe_clocks(&mut self, now: Instant) {
        if now < self.next_clock_probe {
            return;
        }
        let crowd = (self.peers.len() / LARGE_WORLD_PEERS).max(1) as i64;
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
                        FAST_PROBE_INTERVAL * crowd
                    }
                    _ => SLOW_PROBE_INTERVAL * crowd,
                };
            self.next_clock_probe = self.next_clock_probe.min(peer.next_probe);
            due.push(*site);
        }
        for site in due {
            self.push_control(site, PeerWorldControl::Probe);
            self.request_own_record(site);
        }
    }

    /// Asks a peer for the record that it has of us, while ours is held back and until the peer has answered. With the probes: these
    /// are frequent at first and are repeated when they get lost.
    fn request_own_record(&mut self, site: WorldSiteId) {
        let has_recalled = self.peers.get(&site).is_some_and(|peer| peer.has_reported_our_record);
        if self.beacon.record_hold.is_some() && !has_recalled {
            self.push_control(site, PeerWorldControl::RequestRecord(self.config.site));
        }
    }

    /// Sees to it that those whom our entities come near know where they are.
    pub(super) fn send_regions(&mut self) {
        let own = &self.own_regions;
        let mut due = Vec::new();
        for (site, peer) in self.peers.iter_mut().filter(|(_, peer)| peer.is_present && peer.needs_region_update(own)) {
            peer.on_regions_sent(own);
            due.push(*site);
        }
        due.into_iter().for_each(|site| self.push_control(site, PeerWorldControl::Regions));
    }

    /// The next datagram to be sent, if there is one. The buffer should have room for [`MAX_DATAGRAM`] bytes.
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

    /// Our last words: the record as it is, and goodbye.
    fn encode_leave(&self, buf: &mut [u8]) -> Result<usize, BufferFull> {
        let mut datagram = PeerWorldDatagram::new(buf)?;
        if let Some(SiteRecord { version, bytes }) = self.gossip.get(self.config.site) {
            datagram.put(PeerWorldItem::Record { site: self.config.site, version: *version, bytes })?;
        }
        datagram.put(PeerWorldItem::Leave)?;
        Ok(datagram.len())
    }

    /// All updates that are due in one region.
    fn encode_updates(&mut self, buf: &mut [u8]) -> Option<(PeerWorldDestination, usize)> {
        let due = self.local_entities.values().find(|source| source.is_due)?;
        let region = self.dead_reckoning.region(due.newest().1);
        let mut datagram = PeerWorldDatagram::new(buf).ok()?;
        for (index, source) in self.local_entities.iter_mut().filter(|(_, source)| source.is_due) {
            if self.dead_reckoning.region(source.newest().1) != region {
                continue;
            }
            if put_update(&self.dead_reckoning, *index, source, &mut datagram).is_err() {
                break;
            }
            source.is_due = false;
            source.sequence = source.sequence.wrapping_add(1);
            self.stats.updates_sent += 1;
        }
        // An update that does not even fit alone will never fit.
        if datagram.is_empty() {
            self.local_entities.values_mut().for_each(|source| source.is_due = false);
            return None;
        }
        Some((PeerWorldDestination::Near(region), datagram.len()))
    }

    /// All that one site is to be told.
    fn encode_control(&mut self, now: Instant, site: WorldSiteId, buf: &mut [u8]) -> Result<usize, BufferFull> {
        let mut datagram = PeerWorldDatagram::new(buf)?;
        let mut full = false;
        let (ledger, time, own) = (&self.gossip, &self.world_time, &self.own_regions);
        let (peers, sources, reckoner) = (&self.peers, &self.local_entities, &self.dead_reckoning);
        self.control_queue.retain(|(to, control)| {
            if *to != site || full {
                return true;
            }
            let put = match *control {
                PeerWorldControl::Probe => datagram.put(PeerWorldItem::Probe(now)),
                // Who wants to know our clock wants to know the world's time, too.
                PeerWorldControl::Echo { sent, received } => datagram
                    .put(PeerWorldItem::Echo(ClockEcho { sent, received, answered: now }))
                    .and_then(|()| datagram.put(PeerWorldItem::WorldTime(time.offset()))),
                PeerWorldControl::RequestRecord(of) => datagram.put(PeerWorldItem::RecordRequest { site: of }),
                PeerWorldControl::Regions => put_regions(own, &mut datagram),
                PeerWorldControl::States => {
                    let wants = |source: &LocalEntity<R::State>| {
                        peers.get(&site).is_some_and(|peer| peer.is_interested_in(reckoner.region(source.newest().1)))
                    };
                    let mut seen = sources.iter().filter(|(_, source)| wants(source));
                    // What has no room comes with the next updates.
                    _ = seen.try_for_each(|(index, source)| put_update(reckoner, *index, source, &mut datagram));
                    Ok(())
                }
                PeerWorldControl::SendRecord(of) => datagram.put(match ledger.get(of) {
                    Some(record) => PeerWorldItem::Record { site: of, version: record.version, bytes: &record.bytes },
                    // No answer would be taken for a lost one.
                    None => PeerWorldItem::RecordVersion { site: of, version: 0 },
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

    /// Whether to tell everybody of our record: at once, but not again and again.
    fn is_record_due(&self, now: Instant) -> bool {
        let Beacon { is_record_pending: record, record_hold: record_held, record_sent_at: recorded, .. } = self.beacon;
        record && record_held.is_none() && now - recorded >= self.beacon_interval()
    }

    /// The time between two beacons: the longer the more sites there are, so that all together do not grow.
    fn beacon_interval(&self) -> TimeDelta {
        BEACON_INTERVAL * (self.peers.len() / LARGE_WORLD_PEERS).max(1) as i64
    }

    /// Who is silent for so long is gone: several beacons.
    pub(super) fn peer_timeout(&self) -> TimeDelta {
        PEER_TIMEOUT.max(self.beacon_interval() * 4)
    }

    /// How we are: the world's time, where our entities are, what gets lost, and which records we have.
    fn encode_beacon(&mut self, now: Instant, buf: &mut [u8]) -> Result<usize, BufferFull> {
        let pause = self.beacon_interval();
        // Not all at once.
        let apart = TimeDelta::from_nanos(pause.as_nanos() / 10 * i64::from(self.config.site.0 % 16) / 16);
        self.beacon.next_at = now + pause - apart;
        self.peers.values_mut().for_each(|peer| peer.on_regions_sent(&self.own_regions));
        let mut datagram = PeerWorldDatagram::new(buf)?;
        let is_record_due = self.is_record_due(now);
        if let Some(SiteRecord { version, bytes }) = self.gossip.get(self.config.site) {
            let (of, version) = (self.config.site, *version);
            if is_record_due {
                (self.beacon.is_record_pending, self.beacon.record_sent_at) = (false, now);
                datagram.put(PeerWorldItem::Record { site: of, version, bytes })?;
            } else {
                datagram.put(PeerWorldItem::RecordVersion { site: of, version })?;
            }
        }
        datagram.put(PeerWorldItem::WorldTime(self.world_time.offset()))?;
        let here = put_regions(&self.own_regions, &mut datagram);
        let reports = here.and_then(|()| put_reports(&self.peers, &mut self.beacon.last_reported, &mut datagram));
        // What has no room is told another time.
        if reports.is_ok() {
            for _ in 0..self.gossip.len().min(MAX_DIGESTS_PER_DATAGRAM) {
                let Some((of, version)) = self.gossip.next_digest() else { break };
                if datagram.put(PeerWorldItem::RecordVersion { site: of, version }).is_err() {
                    break;
                }
            }
        }
        Ok(datagram.len())
    }
}

/// How an entity of ours is.
fn put_update<R: DeadReckoning>(
    reckoner: &R,
    index: u8,
    source: &LocalEntity<R::State>,
    datagram: &mut PeerWorldDatagram<'_>,
) -> Result<(), BufferFull> {
    let (tick, state) = source.newest();
    let mut bytes = [0; MAX_STATE_SIZE];
    let len = reckoner.encode(state, &mut bytes).unwrap_or(0).min(MAX_STATE_SIZE);
    datagram.put(PeerWorldItem::Update(EntityStateUpdate {
        entity_index: index,
        sequence: source.sequence,
        tick: tick as u16,
        state: &bytes[..len],
    }))
}

/// Where entities are. Who is in more places than there is room for is told of everything.
fn put_regions(regions: &[WorldRegion], datagram: &mut PeerWorldDatagram<'_>) -> Result<(), BufferFull> {
    if regions.len() > MAX_REGIONS_PER_DATAGRAM {
        return Ok(());
    }
    datagram.put(PeerWorldItem::RegionsComplete)?;
    regions.iter().try_for_each(|region| datagram.put(PeerWorldItem::OwnRegion(*region)))
}

/// What gets lost, of as many sites as there is room for, in turn.
fn put_reports(
    peers: &alloc::collections::BTreeMap<WorldSiteId, super::WorldPeer>,
    last: &mut Option<WorldSiteId>,
    datagram: &mut PeerWorldDatagram<'_>,
) -> Result<(), BufferFull> {
    let after = |site: &WorldSiteId| last.is_none_or(|last| *site > last);
    let mut sites: Vec<(WorldSiteId, u8, u8)> = peers
        .iter()
        .filter(|(_, peer)| peer.is_present && peer.has_recent_updates)
        .map(|(site, peer)| (*site, peer.loss_share, peer.late_share))
        .collect();
    sites.sort_by_key(|(site, ..)| (!after(site), *site));
    for (of, lost, late) in sites.into_iter().take(MAX_REPORTS_PER_DATAGRAM) {
        datagram.put(PeerWorldItem::LinkReport { site: of, lost, late })?;
        *last = Some(of);
    }
    Ok(())
}
