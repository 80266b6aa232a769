//! What comes from other sites.

use alloc::vec::Vec;

use super::ledger::Lack;
use super::send::Control;
use super::time::nearest;
use super::track::Track;
use super::{EntityId, Event, MAX_ENTITIES, MAX_ENTITIES_PER_SITE, Reckoner, Region, Site, World, is_near};
use crate::clock::RoundTrip;
use crate::time::{Instant, TimeDelta};
use crate::wire::{Error, Item, Items, Update};

/// Who said goodbye is deaf to what was still under way for so long.
const FAREWELL: TimeDelta = TimeDelta::from_secs(2);
/// Ticks by which an update may be ahead of our time: clocks differ.
const AHEAD: u32 = 50;

impl<R: Reckoner> World<R> {
    /// Takes in a datagram from a site; the network vouches for who that is.
    pub fn handle_datagram(&mut self, now: Instant, from: Site, bytes: &[u8]) {
        self.now = self.now.max(now);
        self.stats.datagrams_received += 1;
        self.stats.bytes_received += bytes.len() as u64;
        if from == self.config.site || !self.hear(from) {
            return;
        }
        if self.read(from, bytes).is_err() {
            self.stats.malformed += 1;
        }
    }

    /// Notes that a site is here. Not if it has just left, or if there are too many.
    fn hear(&mut self, from: Site) -> bool {
        let now = self.now;
        self.add_peer(now, from);
        let Some(peer) = self.peers.get_mut(&from) else { return false };
        if peer.left.is_some_and(|left| now - left < FAREWELL) {
            return false;
        }
        (peer.heard, peer.left) = (now, None);
        if !core::mem::replace(&mut peer.is_here, true) {
            self.tell(Event::Came(from));
            self.beacon.next = self.beacon.next.min(now);
        }
        true
    }

    fn read(&mut self, from: Site, bytes: &[u8]) -> Result<(), Error> {
        let mut regions: Option<Vec<Region>> = None;
        for item in Items::new(bytes)? {
            match item? {
                Item::Update(update) => self.on_update(from, update),
                Item::Time(ahead) => self.with_peer(from, |peer| peer.world_ahead = ahead),
                Item::Whole => regions = Some(Vec::new()),
                Item::Here(region) => regions.iter_mut().for_each(|regions| regions.push(region)),
                Item::Probe(sent) => self.push_control(from, Control::Echo { sent, received: self.now }),
                Item::Echo(echo) => self.on_echo(from, echo),
                Item::Report { of, lost, late } if of == self.config.site => {
                    let now = self.now;
                    self.with_peer(from, |peer| peer.on_report(now, lost, late));
                }
                Item::Report { .. } => {}
                Item::Digest { of, version } => self.on_digest(from, of, version),
                Item::Ask { of } => self.push_control(from, Control::Record(of)),
                Item::Record { of, version, bytes } => self.on_record(from, of, version, bytes),
                Item::Bye => self.on_bye(from),
            }
        }
        if let Some(regions) = regions {
            self.place_peer(from, |peer| peer.set_regions(&regions));
        }
        Ok(())
    }

    /// Something was learned of where a site's entities are. If they have just come near ours, it is told of those at once.
    fn place_peer(&mut self, site: Site, learn: impl FnOnce(&mut super::Peer)) {
        let Some(peer) = self.peers.get_mut(&site) else { return };
        let wants = |peer: &super::Peer| self.own_regions.iter().filter(|own| peer.wants(**own)).count();
        let before = wants(peer);
        learn(peer);
        if wants(peer) > before {
            self.push_control(site, Control::States);
        }
    }

    fn with_peer(&mut self, site: Site, change: impl FnOnce(&mut super::Peer)) {
        if let Some(peer) = self.peers.get_mut(&site) {
            change(peer);
        }
    }

    fn on_update(&mut self, from: Site, update: Update<'_>) {
        match self.place(from, update) {
            Some(late) => {
                self.stats.updates_received += 1;
                self.stats.updates_late += u64::from(late);
            }
            None => self.stats.updates_refused += 1,
        }
    }

    /// Puts an update into its bucket, and says whether it is late; `None` if it is of no use.
    fn place(&mut self, from: Site, update: Update<'_>) -> Option<bool> {
        let present = self.tick(self.now)?;
        let tick = nearest(present, update.tick)?;
        if tick > present.saturating_add(AHEAD) || tick.saturating_add(self.config.kept()) < present {
            return None;
        }
        let state = self.reckoner.decode(update.state)?;
        let region = self.reckoner.region(&state);
        let late = self.viewed.is_some_and(|viewed| tick <= viewed);
        let entity = EntityId { site: from, index: update.index };
        if !self.tracks.contains_key(&entity) && !self.has_room(from) {
            return None;
        }
        let track = self.tracks.entry(entity).or_insert_with(Track::new);
        let before = track.newest_state().map(|(tick, state)| (tick, self.reckoner.region(state)));
        if track.insert(tick, state) {
            let is_followed = before.is_some_and(|(_, before)| is_near(&self.own_regions, before));
            track.row.on_update(update.sequence, tick, late, is_followed && is_near(&self.own_regions, region));
        }
        // Who comes near tells us by that where it is, should its whereabouts have been lost.
        if before.is_none_or(|(newest, _)| newest < tick) {
            self.place_peer(from, |peer| peer.on_seen(region));
        }
        Some(late)
    }

    fn has_room(&self, site: Site) -> bool {
        let (first, last) = (EntityId { site, index: 0 }, EntityId { site, index: u8::MAX });
        self.tracks.len() < MAX_ENTITIES && self.tracks.range(first..=last).count() < MAX_ENTITIES_PER_SITE
    }

    fn on_echo(&mut self, from: Site, echo: crate::wire::Echo) {
        let trip = RoundTrip { sent: echo.sent, received: echo.received, answered: echo.answered, returned: self.now };
        if echo.sent <= self.now {
            self.with_peer(from, |peer| peer.clock.on_round_trip(trip));
        }
    }

    /// Somebody has this version of a record. Whoever is here tells its own; we care for those of others that are gone, or not known at all.
    fn on_digest(&mut self, from: Site, of: Site, version: u32) {
        let tells_itself = of != from && self.peers.get(&of).is_some_and(|peer| peer.is_here);
        let is_known = self.ledger.get(of).is_some();
        match self.ledger.compare(of, version) {
            Lack::Theirs if !tells_itself => self.push_control(from, Control::Record(of)),
            Lack::Ours if !tells_itself || !is_known => self.push_control(from, Control::Ask(of)),
            _ => {}
        }
    }

    /// Who is here speaks for itself; of who is not, and of ourselves before we came, others may.
    fn on_record(&mut self, from: Site, of: Site, version: u32, bytes: &[u8]) {
        let speaks_itself = self.peers.get(&of).is_some_and(|peer| peer.is_here) && self.ledger.get(of).is_some();
        if (of == from || !speaks_itself) && self.ledger.learn(of, version, bytes) {
            self.tell(if of == self.config.site { Event::Remembered } else { Event::Changed(of) });
        }
    }

    fn on_bye(&mut self, from: Site) {
        let now = self.now;
        self.with_peer(from, |peer| {
            peer.left = Some(now);
            peer.is_here = false;
            peer.world_ahead = None;
        });
        self.forget_tracks(|entity, _| entity.site == from);
        self.tell(Event::Left(from));
    }
}
