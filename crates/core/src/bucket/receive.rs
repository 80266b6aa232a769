//! What comes from other sites.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::ledger::{Lack, Teller, Told};
use super::send::Control;
use super::time::nearest;
use super::track::Track;
use super::{EntityId, Event, MAX_ENTITIES, MAX_ENTITIES_PER_SITE, Peer, Reckoner, Region, Site, World, is_near};
use crate::clock::RoundTrip;
use crate::time::{Instant, TimeDelta};
use crate::wire::{DecodeError, EntityStateUpdate, PeerWorldItem, PeerWorldItems};

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
        if from == self.config.site || !self.hear(from, bytes) {
            return;
        }
        if self.read(from, bytes).is_err() {
            self.stats.malformed += 1;
        }
    }

    /// Notes that a site is here. Not if the datagram was under way when the site left, or if there are too many sites.
    fn hear(&mut self, from: Site, bytes: &[u8]) -> bool {
        let now = self.now;
        self.add_peer(now, from);
        let Some(peer) = self.peers.get_mut(&from) else { return false };
        if peer.left.is_some_and(|left| now - left < FAREWELL) && !is_from_restarted(from, bytes) {
            return false;
        }
        if peer.left.is_some() {
            // It was restarted: its clock, and where its entities are, are not as they were.
            *peer = Peer::new(now);
            self.next_ask = now;
        }
        peer.heard = now;
        if !core::mem::replace(&mut peer.is_here, true) {
            self.tell(Event::Came(from));
            self.beacon.next = self.beacon.next.min(now);
            if let Some(hold) = &mut self.beacon.record_held {
                hold.since.get_or_insert(now);
            }
        }
        true
    }

    fn read(&mut self, from: Site, bytes: &[u8]) -> Result<(), DecodeError> {
        let mut regions: Option<Vec<Region>> = None;
        for item in PeerWorldItems::new(bytes)? {
            match item? {
                PeerWorldItem::Update(update) => self.on_update(from, update),
                PeerWorldItem::WorldTime(ahead) => self.with_peer(from, |peer| peer.world_ahead = ahead),
                PeerWorldItem::RegionsComplete => regions = Some(Vec::new()),
                PeerWorldItem::OwnRegion(region) => regions.iter_mut().for_each(|regions| regions.push(region)),
                PeerWorldItem::Probe(sent) => self.push_control(from, Control::Echo { sent, received: self.now }),
                PeerWorldItem::Echo(echo) => self.on_echo(from, echo),
                PeerWorldItem::LinkReport { site: of, lost, late } if of == self.config.site => {
                    let now = self.now;
                    self.with_peer(from, |peer| peer.on_report(now, lost, late));
                }
                PeerWorldItem::LinkReport { .. } => {}
                PeerWorldItem::RecordVersion { site: of, version } => self.on_digest(from, of, version),
                PeerWorldItem::RecordRequest { site: of } => self.push_control(from, Control::Record(of)),
                PeerWorldItem::Record { site: of, version, bytes } => self.on_record(from, of, version, bytes),
                PeerWorldItem::Leave => self.on_bye(from),
            }
        }
        if let Some(regions) = regions {
            self.place_peer(from, |peer| peer.set_regions(&regions));
        }
        Ok(())
    }

    /// Something was learned of where a site's entities are. If they have just come near ours, it is told of those at once.
    fn place_peer(&mut self, site: Site, learn: impl FnOnce(&mut Peer)) {
        let Some(peer) = self.peers.get_mut(&site) else { return };
        let wants = |peer: &Peer| self.own_regions.iter().filter(|own| peer.wants(**own)).count();
        let before = wants(peer);
        learn(peer);
        if wants(peer) > before {
            self.push_control(site, Control::States);
        }
    }

    fn with_peer(&mut self, site: Site, change: impl FnOnce(&mut Peer)) {
        if let Some(peer) = self.peers.get_mut(&site) {
            change(peer);
        }
    }

    fn on_update(&mut self, from: Site, update: EntityStateUpdate<'_>) {
        match self.place(from, update) {
            Some(late) => {
                self.stats.updates_received += 1;
                self.stats.updates_late += u64::from(late);
            }
            None => self.stats.updates_refused += 1,
        }
    }

    /// Puts an update into its bucket, and says whether it is late; `None` if it is of no use.
    fn place(&mut self, from: Site, update: EntityStateUpdate<'_>) -> Option<bool> {
        let present = self.tick(self.now)?;
        let tick = nearest(present, update.tick)?;
        if tick > present.saturating_add(AHEAD) || tick.saturating_add(self.config.kept()) < present {
            return None;
        }
        let state = self.reckoner.decode(update.state)?;
        let region = self.reckoner.region(&state);
        let late = self.viewed.is_some_and(|viewed| tick <= viewed);
        let entity = EntityId { site: from, index: update.entity_index };
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

    fn on_echo(&mut self, from: Site, echo: crate::wire::ClockEcho) {
        let trip = RoundTrip { sent: echo.sent, received: echo.received, answered: echo.answered, returned: self.now };
        if echo.sent <= self.now {
            self.with_peer(from, |peer| peer.clock.on_round_trip(trip));
        }
    }

    /// A peer reports its version of a record. A site that is heard sends its own record; this site requests only records of silent, departed or unknown sites.
    fn on_digest(&mut self, from: Site, of: Site, version: u32) {
        self.on_recall(from, of, version);
        let tells_itself = of != from && self.is_heard(of) || self.is_held_back(of);
        let told = self.told(from, of, version);
        let is_wanted = || self.ledger.wants(told, here(self.config.site, &self.peers));
        let control = match self.ledger.compare(of, version) {
            Lack::Theirs if !tells_itself => Control::Record(of),
            Lack::Ours if !self.speaks_for_itself(of, from) && is_wanted() => Control::Ask(of),
            _ => return,
        };
        self.push_control(from, control);
    }

    /// A site that is heard speaks for itself; of a site that is not, and of ourselves before we came, others may.
    fn on_record(&mut self, from: Site, of: Site, version: u32, bytes: &[u8]) {
        let (me, told) = (self.config.site, self.told(from, of, version));
        if !self.speaks_for_itself(of, from) && self.ledger.learn(told, bytes, here(me, &self.peers)) {
            self.tell(if of == me { Event::Remembered } else { Event::Changed(of) });
        }
        self.on_recall(from, of, version);
    }

    /// A peer told which version of a record it has. If the record is ours and we have that version, the peer can tell us nothing newer.
    fn on_recall(&mut self, from: Site, of: Site, version: u32) {
        if of == self.config.site && self.ledger.compare(of, version) != Lack::Ours {
            self.with_peer(from, |peer| peer.has_recalled = true);
        }
    }

    /// Whether a record is our own and is held back.
    fn is_held_back(&self, of: Site) -> bool {
        of == self.config.site && self.beacon.record_held.is_some()
    }

    fn told(&self, from: Site, of: Site, version: u32) -> Told {
        let by = match of {
            _ if of == from => Teller::Itself,
            _ if of == self.config.site => Teller::Reminder,
            _ => Teller::Another,
        };
        Told { of, version, by }
    }

    /// Whether somebody need not be told of by another: it is heard, and we know its record.
    fn speaks_for_itself(&self, of: Site, from: Site) -> bool {
        of != from && self.is_heard(of) && self.ledger.get(of).is_some()
    }

    /// Whether a site is present and not silent. A silent site may have left and its goodbye got lost: others know its last
    /// words, and may be gone themselves before it is forgotten.
    fn is_heard(&self, site: Site) -> bool {
        let is_heard = |peer: &Peer| peer.is_here && self.now - peer.heard < self.trusted_for();
        self.peers.get(&site).is_some_and(is_heard)
    }

    /// How often any record was changed: for who keeps something that follows from them.
    pub fn records_changed(&self) -> u64 {
        self.ledger.revision()
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

/// Whether a datagram is from a site that was started after its goodbye: a site asks for its own record only after a start.
fn is_from_restarted(from: Site, bytes: &[u8]) -> bool {
    PeerWorldItems::new(bytes)
        .into_iter()
        .flatten()
        .flatten()
        .any(|item| item == PeerWorldItem::RecordRequest { site: from })
}

/// Whether a site is here: we are, and whoever was heard and has not left.
fn here(me: Site, peers: &BTreeMap<Site, Peer>) -> impl Fn(Site) -> bool {
    move |site| site == me || peers.get(&site).is_some_and(|peer| peer.is_here)
}

#[cfg(test)]
mod tests {
    use super::super::line::Line;
    use super::super::{Config, ledger};
    use super::*;
    use crate::wire::{MAX_DATAGRAM, PeerWorldDatagram};

    const ME: Site = Site(1);
    const LIAR: Site = Site(2);
    const ADA: Site = Site(3);

    fn world() -> World<Line> {
        let mut world = World::new(Instant::ZERO, Config::new(ME, true), Line::default()).unwrap();
        world.post(b"ours");
        world
    }

    fn say(world: &mut World<Line>, from: Site, item: PeerWorldItem<'_>) {
        let mut buf = [0; MAX_DATAGRAM];
        let mut datagram = PeerWorldDatagram::new(&mut buf).unwrap();
        datagram.put(item).unwrap();
        let len = datagram.len();
        world.handle_datagram(Instant::ZERO, from, &buf[..len]);
    }

    fn record(of: Site, changes: u32, bytes: &[u8]) -> PeerWorldItem<'_> {
        PeerWorldItem::Record { site: of, version: ledger::version(changes, bytes), bytes }
    }

    fn bytes(world: &World<Line>, of: Site) -> Option<&[u8]> {
        world.ledger.get(of).map(|record| &record.bytes[..])
    }

    #[test]
    fn who_was_slandered_before_it_came_is_believed_in_the_end() {
        let mut world = world();
        say(&mut world, LIAR, PeerWorldItem::Record { site: ADA, version: u32::MAX, bytes: b"nonsense" });
        assert_eq!(bytes(&world, ADA), None, "that is not what the version stands for");
        say(&mut world, LIAR, record(ADA, u32::MAX >> 12, b"the last word"));
        assert_eq!(bytes(&world, ADA), None, "nothing could follow");
        say(&mut world, LIAR, record(ADA, 400_000, b"slander"));
        assert_eq!(bytes(&world, ADA), Some(&b"slander"[..]));
        world.control.clear();
        say(&mut world, ADA, PeerWorldItem::RecordVersion { site: ADA, version: ledger::version(1, b"true") });
        assert_eq!(world.control.front(), Some(&(ADA, Control::Record(ADA))), "Ada is told");
        say(&mut world, ADA, record(ADA, 400_001, b"true"));
        say(&mut world, LIAR, record(ADA, 400_002, b"slander"));
        assert_eq!(bytes(&world, ADA), Some(&b"true"[..]), "who is here speaks for itself");
    }

    #[test]
    fn what_is_told_of_ourselves_leaves_room_for_what_we_say_next() {
        let mut world = world();
        say(&mut world, LIAR, record(ME, u32::MAX >> 12, b"the last word"));
        assert_eq!(bytes(&world, ME), Some(&b"ours"[..]));
        say(&mut world, LIAR, record(ME, 300_000, b"from before"));
        assert!(core::iter::from_fn(|| world.poll_event()).any(|event| event == Event::Remembered));
        world.post(b"ours");
        assert_eq!(world.ledger.get(ME).unwrap().version, ledger::version(300_001, b"ours"));
    }

    #[test]
    fn made_up_sites_keep_nobody_out_and_are_not_asked_for() {
        let mut world = world();
        (1_000..3_000).for_each(|site| say(&mut world, LIAR, record(Site(site), 1, b"made up")));
        world.control.clear();
        say(
            &mut world,
            LIAR,
            PeerWorldItem::RecordVersion { site: Site(5_000), version: ledger::version(1, b"made up") },
        );
        assert!(world.control.is_empty(), "there is no room for it");
        say(&mut world, ADA, record(ADA, 1, b"true"));
        assert_eq!(bytes(&world, ADA), Some(&b"true"[..]));
        assert_eq!(bytes(&world, ME), Some(&b"ours"[..]));
    }

    #[test]
    fn what_cannot_be_believed_is_not_asked_for() {
        let mut world = world();
        say(&mut world, LIAR, record(ADA, 5, b"true"));
        world.control.clear();
        say(&mut world, LIAR, PeerWorldItem::RecordVersion { site: ADA, version: u32::MAX });
        assert!(world.control.is_empty());
        say(&mut world, LIAR, PeerWorldItem::RecordVersion { site: ADA, version: ledger::version(6, b"") });
        assert_eq!(world.control.front(), Some(&(LIAR, Control::Ask(ADA))));
    }

    #[test]
    fn every_change_of_a_record_is_counted() {
        let mut world = world();
        let before = world.records_changed();
        say(&mut world, ADA, record(ADA, 1, b"one"));
        say(&mut world, ADA, record(ADA, 1, b"one"));
        assert_eq!(world.records_changed(), before + 1);
    }
}
