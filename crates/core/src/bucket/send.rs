//! What goes to other sites.

use alloc::vec::Vec;

use super::{Beacon, FORGET, MAX_STATE, Reckoner, Record, Region, Site, Source, World};
use crate::time::{Instant, TimeDelta};
use crate::wire::{BufferFull, ClockEcho, EntityStateUpdate, MAX_DATAGRAM, PeerWorldDatagram, PeerWorldItem};

/// Things to be told to single sites that are kept waiting.
const MAX_CONTROL: usize = 512;
/// Round trips that are made at once, for a clock, and how soon; then less so until it is known; then seldom, unless they take a different
/// time every time: then it needs many to find a quick one.
const FIRST_PROBES: u32 = 12;
const PROBE_AT_ONCE: TimeDelta = TimeDelta::from_millis(40);
const PROBE_SOON: TimeDelta = TimeDelta::from_millis(50);
const UNEVEN: TimeDelta = TimeDelta::from_millis(4);
const PROBE_LATER: TimeDelta = TimeDelta::from_secs(1);
/// With more sites than this everybody asks and tells less often, so that a site's part does not grow.
const MANY: usize = 16;
/// Everybody is told how we are so often.
const BEACON: TimeDelta = TimeDelta::from_secs(1);
/// Regions, reports and versions in one datagram.
const MAX_HERE: usize = 64;
const MAX_REPORTS: usize = 32;
const MAX_DIGESTS: usize = 8;

/// To whom a datagram goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To {
    /// To everybody.
    All,
    /// To who can see what happens there: [`TestNetwork::wanting`] says who that is.
    Near(Region),
    /// To one site.
    One(Site),
}

/// A datagram to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// To whom.
    pub to: To,
    /// Its bytes in the buffer.
    pub len: usize,
    /// The tick that it tells of.
    pub tick: u32,
}

/// Something to be told to one site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Control {
    Probe,
    Echo {
        sent: Instant,
        received: Instant,
    },
    Ask(Site),
    Record(Site),
    /// Where our entities are.
    Here,
    /// How those of our entities are that it can see.
    States,
}

impl<R: Reckoner> World<R> {
    pub(super) fn push_control(&mut self, to: Site, what: Control) {
        if self.control.len() < MAX_CONTROL && !self.control.contains(&(to, what)) {
            self.control.push_back((to, what));
        }
    }

    /// Asks for the clocks of others; often at first.
    pub(super) fn ask_for_clocks(&mut self, now: Instant) {
        if now < self.next_ask {
            return;
        }
        let crowd = (self.peers.len() / MANY).max(1) as i64;
        let mut due = Vec::new();
        self.next_ask = Instant::FAR_FUTURE;
        for (site, peer) in self.peers.iter_mut().filter(|(_, peer)| peer.left.is_none()) {
            if now < peer.next_probe {
                self.next_ask = self.next_ask.min(peer.next_probe);
                continue;
            }
            peer.probes += 1;
            peer.next_probe = now
                + match peer.probes {
                    ..FIRST_PROBES => PROBE_AT_ONCE,
                    _ if !peer.clock.is_ready() || peer.clock.jitter() > UNEVEN => PROBE_SOON * crowd,
                    _ => PROBE_LATER * crowd,
                };
            self.next_ask = self.next_ask.min(peer.next_probe);
            due.push(*site);
        }
        for site in due {
            self.push_control(site, Control::Probe);
            self.ask_for_own_record(site);
        }
    }

    /// Asks a peer for the record that it has of us, while ours is held back and until the peer has answered. With the probes: these
    /// are frequent at first and are repeated when they get lost.
    fn ask_for_own_record(&mut self, site: Site) {
        let has_recalled = self.peers.get(&site).is_some_and(|peer| peer.has_recalled);
        if self.beacon.record_held.is_some() && !has_recalled {
            self.push_control(site, Control::Ask(self.config.site));
        }
    }

    /// Sees to it that those whom our entities come near know where they are.
    pub(super) fn tell_whereabouts(&mut self) {
        let own = &self.own_regions;
        let mut due = Vec::new();
        for (site, peer) in self.peers.iter_mut().filter(|(_, peer)| peer.is_here && peer.must_be_told(own)) {
            peer.on_told(own);
            due.push(*site);
        }
        due.into_iter().for_each(|site| self.push_control(site, Control::Here));
    }

    /// The next datagram to be sent, if there is one. The buffer should have room for [`MAX_DATAGRAM`] bytes.
    pub fn poll_transmit(&mut self, now: Instant, buf: &mut [u8]) -> Option<Packet> {
        self.now = self.now.max(now);
        let room = buf.len().min(MAX_DATAGRAM);
        let packet = self.next_packet(self.now, &mut buf[..room])?;
        self.stats.datagrams_sent += 1;
        self.stats.bytes_sent += packet.len as u64;
        Some(packet)
    }

    fn next_packet(&mut self, now: Instant, buf: &mut [u8]) -> Option<Packet> {
        let tick = self.tick(now).unwrap_or(0);
        let (to, len) = if core::mem::take(&mut self.leaving) {
            (To::All, self.farewell(buf).ok()?)
        } else if let Some(sent) = self.updates(buf) {
            sent
        } else if let Some((site, _)) = self.control.front() {
            (To::One(*site), self.control_for(now, *site, buf).ok()?)
        } else if self.is_beacon_due(now) {
            (To::All, self.beacon(now, buf).ok()?)
        } else {
            return None;
        };
        Some(Packet { to, len, tick })
    }

    /// Our last words: the record as it is, and goodbye.
    fn farewell(&self, buf: &mut [u8]) -> Result<usize, BufferFull> {
        let mut datagram = PeerWorldDatagram::new(buf)?;
        if let Some(Record { version, bytes }) = self.ledger.get(self.config.site) {
            datagram.put(PeerWorldItem::Record { site: self.config.site, version: *version, bytes })?;
        }
        datagram.put(PeerWorldItem::Leave)?;
        Ok(datagram.len())
    }

    /// All updates that are due in one region.
    fn updates(&mut self, buf: &mut [u8]) -> Option<(To, usize)> {
        let due = self.sources.values().find(|source| source.due)?;
        let region = self.reckoner.region(due.newest().1);
        let mut datagram = PeerWorldDatagram::new(buf).ok()?;
        for (index, source) in self.sources.iter_mut().filter(|(_, source)| source.due) {
            if self.reckoner.region(source.newest().1) != region {
                continue;
            }
            if put_update(&self.reckoner, *index, source, &mut datagram).is_err() {
                break;
            }
            source.due = false;
            source.sequence = source.sequence.wrapping_add(1);
            self.stats.updates_sent += 1;
        }
        // An update that does not even fit alone will never fit.
        if datagram.is_empty() {
            self.sources.values_mut().for_each(|source| source.due = false);
            return None;
        }
        Some((To::Near(region), datagram.len()))
    }

    /// All that one site is to be told.
    fn control_for(&mut self, now: Instant, site: Site, buf: &mut [u8]) -> Result<usize, BufferFull> {
        let mut datagram = PeerWorldDatagram::new(buf)?;
        let mut full = false;
        let (ledger, time, own) = (&self.ledger, &self.time, &self.own_regions);
        let (peers, sources, reckoner) = (&self.peers, &self.sources, &self.reckoner);
        self.control.retain(|(to, control)| {
            if *to != site || full {
                return true;
            }
            let put = match *control {
                Control::Probe => datagram.put(PeerWorldItem::Probe(now)),
                // Who wants to know our clock wants to know the world's time, too.
                Control::Echo { sent, received } => datagram
                    .put(PeerWorldItem::Echo(ClockEcho { sent, received, answered: now }))
                    .and_then(|()| datagram.put(PeerWorldItem::WorldTime(time.ahead()))),
                Control::Ask(of) => datagram.put(PeerWorldItem::RecordRequest { site: of }),
                Control::Here => put_regions(own, &mut datagram),
                Control::States => {
                    let wants = |source: &Source<R::State>| {
                        peers.get(&site).is_some_and(|peer| peer.wants(reckoner.region(source.newest().1)))
                    };
                    let mut seen = sources.iter().filter(|(_, source)| wants(source));
                    // What has no room comes with the next updates.
                    _ = seen.try_for_each(|(index, source)| put_update(reckoner, *index, source, &mut datagram));
                    Ok(())
                }
                Control::Record(of) => datagram.put(match ledger.get(of) {
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
        !self.peers.is_empty() && (now >= self.beacon.next || self.is_record_due(now))
    }

    /// Whether to tell everybody of our record: at once, but not again and again.
    fn is_record_due(&self, now: Instant) -> bool {
        let Beacon { record, record_held, recorded, .. } = self.beacon;
        record && record_held.is_none() && now - recorded >= self.beacon_pause()
    }

    /// The time between two beacons: the longer the more sites there are, so that all together do not grow.
    fn beacon_pause(&self) -> TimeDelta {
        BEACON * (self.peers.len() / MANY).max(1) as i64
    }

    /// Who is silent for so long is gone: several beacons.
    pub(super) fn forget_after(&self) -> TimeDelta {
        FORGET.max(self.beacon_pause() * 4)
    }

    /// How we are: the world's time, where our entities are, what gets lost, and which records we have.
    fn beacon(&mut self, now: Instant, buf: &mut [u8]) -> Result<usize, BufferFull> {
        let pause = self.beacon_pause();
        // Not all at once.
        let apart = TimeDelta::from_nanos(pause.as_nanos() / 10 * i64::from(self.config.site.0 % 16) / 16);
        self.beacon.next = now + pause - apart;
        self.peers.values_mut().for_each(|peer| peer.on_told(&self.own_regions));
        let mut datagram = PeerWorldDatagram::new(buf)?;
        let is_record_due = self.is_record_due(now);
        if let Some(Record { version, bytes }) = self.ledger.get(self.config.site) {
            let (of, version) = (self.config.site, *version);
            if is_record_due {
                (self.beacon.record, self.beacon.recorded) = (false, now);
                datagram.put(PeerWorldItem::Record { site: of, version, bytes })?;
            } else {
                datagram.put(PeerWorldItem::RecordVersion { site: of, version })?;
            }
        }
        datagram.put(PeerWorldItem::WorldTime(self.time.ahead()))?;
        let here = put_regions(&self.own_regions, &mut datagram);
        let reports = here.and_then(|()| put_reports(&self.peers, &mut self.beacon.reported, &mut datagram));
        // What has no room is told another time.
        if reports.is_ok() {
            for _ in 0..self.ledger.len().min(MAX_DIGESTS) {
                let Some((of, version)) = self.ledger.next_digest() else { break };
                if datagram.put(PeerWorldItem::RecordVersion { site: of, version }).is_err() {
                    break;
                }
            }
        }
        Ok(datagram.len())
    }
}

/// How an entity of ours is.
fn put_update<R: Reckoner>(
    reckoner: &R,
    index: u8,
    source: &Source<R::State>,
    datagram: &mut PeerWorldDatagram<'_>,
) -> Result<(), BufferFull> {
    let (tick, state) = source.newest();
    let mut bytes = [0; MAX_STATE];
    let len = reckoner.encode(state, &mut bytes).unwrap_or(0).min(MAX_STATE);
    datagram.put(PeerWorldItem::Update(EntityStateUpdate {
        entity_index: index,
        sequence: source.sequence,
        tick: tick as u16,
        state: &bytes[..len],
    }))
}

/// Where entities are. Who is in more places than there is room for is told of everything.
fn put_regions(regions: &[Region], datagram: &mut PeerWorldDatagram<'_>) -> Result<(), BufferFull> {
    if regions.len() > MAX_HERE {
        return Ok(());
    }
    datagram.put(PeerWorldItem::RegionsComplete)?;
    regions.iter().try_for_each(|region| datagram.put(PeerWorldItem::OwnRegion(*region)))
}

/// What gets lost, of as many sites as there is room for, in turn.
fn put_reports(
    peers: &alloc::collections::BTreeMap<Site, super::Peer>,
    last: &mut Option<Site>,
    datagram: &mut PeerWorldDatagram<'_>,
) -> Result<(), BufferFull> {
    let after = |site: &Site| last.is_none_or(|last| *site > last);
    let mut sites: Vec<(Site, u8, u8)> = peers
        .iter()
        .filter(|(_, peer)| peer.is_here && peer.is_near)
        .map(|(site, peer)| (*site, peer.lost, peer.late))
        .collect();
    sites.sort_by_key(|(site, ..)| (!after(site), *site));
    for (of, lost, late) in sites.into_iter().take(MAX_REPORTS) {
        datagram.put(PeerWorldItem::LinkReport { site: of, lost, late })?;
        *last = Some(of);
    }
    Ok(())
}
