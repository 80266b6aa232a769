//! The fuzzed session: its sites, what is under way between them, and a script that decides what becomes of it.

use std::collections::VecDeque;

use coplay::id::Addr;
use coplay::pace::Pacing;
use coplay::session::{Event, Settings, State};
use coplay::time::{Instant, TimeDelta};
use coplay::wire::{FeedMessage, MAX_DATAGRAM, Tick, is_feed};

use crate::attack::Lie;
use crate::beside::Fake;
use crate::honest::Seats;
use crate::script::{Deed, Scene, Script};
use crate::site::{Site, address, settings, site_id};
use crate::{attack, honest};

/// Packets under way; when there are more, the oldest is lost.
const MAX_UNDER_WAY: usize = 1_024;
/// Packets kept, one of each flavour.
const MAX_ALBUM: usize = 64;
/// The longest time that the deeds of a script may take together, not counting sleep: what is longer is slow to fuzz.
const MAX_TIME: TimeDelta = TimeDelta::from_millis(640);
/// What they may take in addition when they begin in the lobby.
const LOBBY_TIME: TimeDelta = TimeDelta::from_millis(700);
/// What they may take in addition when sites are dropped.
const DROP_TIME: TimeDelta = TimeDelta::from_millis(1_000);
/// What they may take in addition when somebody comes late, or the dials turn.
const LATE_TIME: TimeDelta = TimeDelta::from_millis(3_000);
/// A clean start takes no longer.
const MAX_START: TimeDelta = TimeDelta::from_secs(10);
/// How often all is well again in one script.
const MAX_HEALS: u32 = 3;
/// Once all is well, the next frames are there within this time.
const MAX_HEAL: TimeDelta = TimeDelta::from_secs(30);
/// The most memory that a session may take for each of its sites.
const MEMORY_PER_SITE: usize = 160 * 1024;
/// What it may take beside the game: what it serves to others, or downloads.
const MEMORY_BESIDE: usize = 1_024 * 1_024;
/// The most inputs that a frame asks for beside its own: dials turn by one frame at a time, also when a lie turns them.
const MAX_SAMPLES: i64 = 4;
/// Frames that a feed can claim to who comes late: as many as fit into what is kept.
const MAX_LIED: i64 = 8_192 * 127;
/// Frames whose inputs can be here at once.
const MAX_FRAMES: i64 = 600;

/// A packet that was sent.
#[derive(Clone, Debug)]
struct Packet {
    from: Addr,
    to: usize,
    due: Instant,
    bytes: Vec<u8>,
}

/// All sites and what is between them.
#[derive(Debug)]
pub(crate) struct World {
    scene: Scene,
    settings: Settings,
    now: Instant,
    sites: Vec<Site>,
    under_way: VecDeque<Packet>,
    album: Vec<Packet>,
    /// The newest tick to the victim from each site.
    newest_ticks: Vec<Vec<u8>>,
    /// The last one that was forged in its name.
    forged_tick: Vec<u8>,
    /// Whether something arrived that only a peer could have sent, and did not.
    forged: bool,
    /// Whether a site, paced as in the paper, has more frames to make up for than a run can wait for.
    astray: bool,
    /// Whether all sites were asleep for a while.
    slept: bool,
    /// The sites between which and the others nothing passes, bit by bit.
    apart: u8,
    seats: Seats,
    /// Whether a site was started anew.
    restarted: bool,
    /// Whether somebody died, was cut off or left, so that sites may have acted on what came to nothing.
    shaken: bool,
    heals_left: u32,
    /// The time that deeds may still take.
    time_left: TimeDelta,
}

impl World {
    /// Plays a whole script.
    pub(crate) fn play(script: &Script) -> Self {
        let mut world = Self::new(script.scene);
        if !script.scene.lobby {
            world.start();
        }
        for deed in &script.deeds {
            if world.astray {
                break;
            }
            world.perform(deed);
        }
        world.look_around();
        world
    }

    fn new(scene: Scene) -> Self {
        Self {
            scene,
            settings: settings(&scene),
            now: Instant::ZERO,
            sites: (0..scene.sites()).map(|number| Site::new(&scene, number)).collect(),
            under_way: VecDeque::new(),
            album: Vec::new(),
            newest_ticks: vec![Vec::new(); scene.sites()],
            forged_tick: Vec::new(),
            forged: false,
            astray: false,
            slept: false,
            apart: 0,
            seats: Seats::new(settings(&scene).starting_sites),
            restarted: false,
            shaken: false,
            heals_left: MAX_HEALS,
            time_left: time(&scene),
        }
    }

    pub(crate) fn into_album(self) -> Vec<Vec<u8>> {
        self.album.into_iter().map(|packet| packet.bytes).collect()
    }

    /// From the lobby into the game.
    fn start(&mut self) {
        let limit = self.now + MAX_START;
        while self.sites.iter().any(|site| site.machine.stepped < 3 && !site.absent) {
            assert!(self.now < limit, "the game does not start: {:?}", self.states());
            self.run(TimeDelta::from_millis(20), true);
        }
    }

    /// The frames that all sites have stepped, together, in all their lives.
    fn frames(&self) -> u64 {
        self.sites.iter().map(|site| site.machine.steps).sum()
    }

    fn states(&self) -> Vec<State> {
        self.sites.iter().map(|site| site.session.state()).collect()
    }

    fn perform(&mut self, deed: &Deed) {
        match deed {
            Deed::Flow(time) => self.pass(TimeDelta::from_millis(2 * (i64::from(*time) + 1)), true),
            Deed::Cut(time) => self.pass(TimeDelta::from_millis(i64::from(*time) + 1), false),
            Deed::Sleep(time) => {
                self.slept = true;
                self.now += self.settings.rate.period() * 3 * i64::from(*time);
            }
            Deed::Deliver(at) => {
                if let Some(packet) = self.choose(*at).and_then(|at| self.under_way.remove(at)) {
                    self.arrive(&packet);
                }
            }
            Deed::Drop(at) => drop(self.choose(*at).and_then(|at| self.under_way.remove(at))),
            Deed::Duplicate(at) => {
                if let Some(packet) = self.choose(*at).map(|at| self.under_way[at].clone()) {
                    self.arrive(&packet);
                }
            }
            Deed::Replay(at) => {
                if let Some(packet) = self.photograph(*at).cloned() {
                    self.arrive(&packet);
                }
            }
            Deed::Leave(site) => self.leave(usize::from(*site) % self.sites.len()),
            Deed::Crash(site) => self.crash(usize::from(*site) % self.sites.len()),
            Deed::Part(sites) => {
                self.apart = *sites;
                self.shaken = true;
            }
            Deed::Come(site) => self.come(usize::from(*site) % self.sites.len()),
            Deed::Press { site, value } => {
                let site = usize::from(*site) % self.sites.len();
                self.sites[site].pressed = *value;
            }
            Deed::Heal if self.heals_left > 0 => {
                self.heals_left -= 1;
                self.heal();
            }
            Deed::Heal => {}
            _ => self.attack(deed),
        }
    }

    fn attack(&mut self, deed: &Deed) {
        let (victim, peer) = (self.victim(), self.accused());
        let now_us = self.sites[peer].local(self.now).as_micros();
        let stranger = address(self.sites.len());
        let from = self.sites[peer].addr;
        match deed {
            Deed::Mutate { packet, how, at, value } => {
                let Some(packet) = self.photograph(*packet) else { return };
                let bytes = attack::mutate(&packet.bytes, *how, *at, *value);
                self.forge(victim, from, &bytes);
            }
            Deed::Stray { packet, how, at, value } => {
                let Some(packet) = self.photograph(*packet) else { return };
                let bytes = attack::mutate(&packet.bytes, *how, *at, *value);
                self.forge(victim, stranger, &bytes);
            }
            Deed::Feed { from, kind, near, value } => {
                let fake = Fake::new(*kind, self.sites[victim].machine.stepped, *near, *value);
                let genuine = self.album.iter().find(|packet| packet.bytes.first() == Some(&fake.first_byte()));
                let bytes = fake.feed(genuine.map(|packet| &packet.bytes[..]));
                self.forge(victim, address(usize::from(*from) % (self.sites.len() + 1)), &bytes);
            }
            Deed::Search { kind, near, value } => {
                let bytes = Fake::new(*kind, self.sites[victim].machine.stepped, *near, *value).search();
                self.forge(victim, from, &bytes);
            }
            Deed::Peer(bytes) => self.forge(victim, from, bytes),
            Deed::Stranger(bytes) => self.forge(victim, stranger, bytes),
            Deed::Identified { flags, rest } => {
                self.forge(victim, stranger, &attack::identified(site_id(peer), *flags, rest, now_us));
            }
            Deed::Forge { field, value } => {
                let fresh = field & 0x10 != 0 || self.forged_tick.is_empty();
                let genuine = if fresh { &self.newest_ticks[peer] } else { &self.forged_tick };
                self.forged_tick = attack::forge_tick(genuine, *field, *value, now_us);
                self.forge(victim, from, &self.forged_tick.clone());
            }
            Deed::Hello { field, value } => {
                let start_ns = self.sites[victim].local(self.now).as_nanos();
                let config = (self.settings.clone(), self.scene.incarnation);
                let bytes = attack::forge_hello(config, site_id(peer), (*field, *value), now_us, start_ns);
                self.forge(victim, from, &bytes);
            }
            Deed::Extra { from, kind, sites, near, value } => {
                let others: Vec<usize> = (0..self.sites.len()).filter(|site| *site != victim).collect();
                let from = others[usize::from(*from) % others.len()];
                let lie = Lie { kind: *kind, sites: *sites, near: *near, value: *value };
                let bytes = lie.put_into(&self.newest_ticks[from], self.sites[victim].machine.stepped);
                self.forge(victim, self.sites[from].addr, &bytes);
            }
            _ => {}
        }
    }

    /// The site that is attacked.
    fn victim(&self) -> usize {
        if self.scene.last_is_victim { self.sites.len() - 1 } else { 0 }
    }

    /// The site in whose name.
    fn accused(&self) -> usize {
        if self.scene.last_is_victim { 0 } else { 1 }
    }

    fn choose(&self, at: u8) -> Option<usize> {
        usize::from(at).checked_rem(self.under_way.len())
    }

    fn photograph(&self, at: u8) -> Option<&Packet> {
        usize::from(at).checked_rem(self.album.len()).map(|at| &self.album[at])
    }

    /// Bytes from nobody knows whom arrive.
    fn forge(&mut self, to: usize, from: Addr, bytes: &[u8]) {
        if self.sites[to].is_out() {
            return;
        }
        self.forged |= honest::is_forgery(bytes, self.sites.iter().any(|site| site.addr == from));
        let now = self.sites[to].local(self.now);
        let before = self.sites[to].session.stats().dropped_datagrams;
        self.sites[to].session.handle_datagram(now, from, bytes);
        let after = self.sites[to].session.stats().dropped_datagrams;
        assert!(after.total() - before.total() <= 1 + bytes.len() as u64, "what is dropped is counted, not multiplied");
        self.drive(to);
    }

    fn arrive(&mut self, packet: &Packet) {
        let from = self.sites.iter().position(|site| site.addr == packet.from);
        let side = |site: usize| self.apart >> site & 1;
        let site = &mut self.sites[packet.to];
        if site.is_out() || from.is_some_and(|from| side(from) != side(packet.to)) {
            return;
        }
        let before = site.session.stats().dropped_datagrams.malformed;
        site.session.handle_datagram(site.local(self.now), packet.from, &packet.bytes);
        assert_eq!(site.session.stats().dropped_datagrams.malformed, before, "what a site sends, another can read");
        self.drive(packet.to);
    }

    fn leave(&mut self, site: usize) {
        let now = self.sites[site].local(self.now);
        self.sites[site].session.leave(now);
        (self.sites[site].left, self.sites[site].ever_left, self.shaken) = (true, true, true);
        self.drive(site);
    }

    /// A site comes that was not there, or whose program was started anew; others only if they are served.
    fn come(&mut self, site: usize) {
        if self.scene.late {
            self.restarted |= !self.sites[site].absent;
            self.shaken |= self.restarted;
            // A host program that does not count its starts breaks its promise.
            self.forged |= self.scene.incarnation.checked_add(self.sites[site].starts).is_none();
            self.sites[site].come(&self.scene, self.now);
            self.drive(site);
        }
    }

    fn crash(&mut self, site: usize) {
        if self.sites[site].absent {
            return;
        }
        self.shaken = true;
        self.sites[site].crashed = true;
        self.sites[site].wake = None;
    }

    /// Lets time pass as long as there is any left.
    fn pass(&mut self, time: TimeDelta, open: bool) {
        let time = time.min(self.time_left);
        self.time_left -= time;
        self.run(time, open);
    }

    /// Lets time pass; packets arrive when they are due, or not at all.
    fn run(&mut self, time: TimeDelta, open: bool) {
        let until = self.now + time;
        let before = self.frames();
        // A forged order may make the lag longer, so that every site asks for some inputs at once, and tells each of them.
        let at_once = if self.forged { MAX_SAMPLES * (self.sites.len() as i64).pow(2) } else { 0 };
        let beside = if self.scene.late { 2_000 + time.as_micros() / 50 } else { 0 };
        let expected = 100 + 2 * self.under_way.len() as i64 + time.as_micros() / 100 + at_once + beside;
        let mut happened = 0;
        loop {
            let due = self.under_way.front().map(|packet| packet.due).filter(|_| open);
            let wake = self.sites.iter().filter_map(|site| site.wake).min();
            let next = due.into_iter().chain(wake).min().unwrap_or(Instant::FAR_FUTURE).max(self.now);
            if next > until {
                break;
            }
            happened += 1;
            let stepped = (self.frames() - before) as i64;
            assert!(happened < expected + 40 * stepped, "too much happens in {time}");
            self.now = next;
            if due.is_some_and(|due| due <= next) {
                if let Some(packet) = self.under_way.pop_front() {
                    self.arrive(&packet);
                }
            } else if let Some(at) = self.sites.iter().position(|site| site.wake.is_some_and(|wake| wake <= next)) {
                self.drive(at);
            }
        }
        self.now = until;
    }

    /// The host program: does what its session asks for, sends, and notes when it wants to be called again.
    fn drive(&mut self, at: usize) {
        if self.astray || self.sites[at].is_out() {
            self.sites[at].wake = None;
            return;
        }
        let now = self.sites[at].local(self.now);
        // A site may make up at once for all that was slept away.
        let most = MAX_FRAMES + self.now.as_nanos() / self.settings.rate.period().as_nanos();
        let lied = self.forged && self.sites[at].seated.is_none();
        let most = most + if lied { MAX_LIED } else { 0 };
        // A frame asks three times, and so does each that it repairs.
        let per_frame = 3 * (2 + self.settings.rollback_slots() as i64);
        let first = self.sites[at].machine.steps;
        let players = self.settings.ownership.players();
        let mut requests = 0;
        while let Some(asked) = self.sites[at].ask(now) {
            requests += 1;
            let fresh = (self.sites[at].machine.steps - first) as i64;
            assert!(requests <= per_frame * (fresh + 1) + MAX_SAMPLES, "site {at} repairs for ever");
            if fresh > most {
                assert!(self.paper_may_err(), "site {at} asks for ever");
                self.astray = true;
                self.sites[at].wake = None;
                self.hear_events(at);
                return;
            }
            self.sites[at].serve(now, asked, players, self.scene.bulky);
            self.send_all(at, now);
        }
        self.send_all(at, now);
        self.hear_events(at);
        self.note_timeout(at, now);
    }

    fn hear_events(&mut self, at: usize) {
        let site = &mut self.sites[at];
        while let Some(event) = site.session.poll_event() {
            honest::check_event(&event, at, &mut self.seats, (self.forged, self.scene.late));
            assert!(!self.seats.unclear || self.scene.late && self.shaken, "sites disagree on who plays: {event}");
            if matches!(event, Event::Ended(_)) {
                assert!(site.session.is_over());
            }
        }
    }

    /// Who is not over wants to be called, soon and not at once.
    fn note_timeout(&mut self, at: usize, now: Instant) {
        let site = &mut self.sites[at];
        let timeout = site.session.poll_timeout();
        assert_eq!(timeout.is_none(), site.session.is_over(), "who is not over wants to be called");
        site.wake = timeout.map(|timeout| timeout - site.ahead);
        if let Some(timeout) = timeout {
            assert!(timeout > now, "site {at} wants to be called in the past");
            let soon = timeout - now <= TimeDelta::from_millis(200);
            // Who waits alone for a game that somebody refused has nothing to do.
            let refused = self.forged && matches!(site.session.state(), State::Lobby { .. });
            assert!(soon || refused || self.paper_may_err(), "site {at} falls asleep");
        }
    }

    fn send_all(&mut self, at: usize, now: Instant) {
        let mut buf = [0; MAX_DATAGRAM];
        let mut sent = 0;
        let beside = if self.scene.late { 256 } else { 0 };
        while let Some(transmit) = self.sites[at].session.poll_transmit(now, &mut buf) {
            sent += 1;
            assert!(sent <= 2 * self.sites.len() + beside, "site {at} sends for ever");
            let bytes = &buf[..transmit.len];
            self.keep(at, transmit.to, bytes);
        }
    }

    /// Puts a packet on its way, and one of each flavour into the album.
    fn keep(&mut self, from: usize, to: Addr, bytes: &[u8]) {
        let is_tick = bytes.first().is_some_and(|first| first & 0x80 != 0);
        // Hellos are slow to read, and whoever they are for does it anyway.
        if is_tick {
            let tick = Tick::decode(bytes);
            assert!(tick.is_ok(), "site {from} sends what is no tick: {tick:?}");
        }
        if is_feed(bytes) {
            let message = FeedMessage::decode(bytes);
            assert!(message.is_ok(), "site {from} sends what no feed can read: {message:?}");
        }
        let Some(to) = self.sites.iter().position(|site| site.addr == to) else { return };
        if to == self.victim() && is_tick {
            self.newest_ticks[from].clear();
            self.newest_ticks[from].extend_from_slice(bytes);
        }
        let packet = Packet {
            from: self.sites[from].addr,
            to,
            due: self.now + TimeDelta::from_millis(i64::from(self.scene.delay_ms)),
            bytes: bytes.to_vec(),
        };
        let alike = |other: &Packet| other.from == packet.from && flavour(&other.bytes) == flavour(bytes);
        if self.album.len() < MAX_ALBUM && !self.album.iter().any(alike) {
            self.album.push(packet.clone());
        }
        if self.under_way.len() == MAX_UNDER_WAY {
            self.under_way.pop_front();
        }
        self.under_way.push_back(packet);
    }

    /// A clean network: every site goes on. Where somebody lied, left, died or gave up, it may wait instead, but must know it.
    fn heal(&mut self) {
        self.apart = 0;
        let before: Vec<u64> = self.sites.iter().map(|site| site.machine.steps).collect();
        let limit = self.now + MAX_HEAL;
        let waits = |world: &Self| {
            let mut sites = world.sites.iter().zip(&before);
            let waits = |site: &Site, before: u64| site.machine.steps < before + 2 || site.seated.is_none();
            sites.any(|(site, before)| waits(site, *before) && !world.may_rest(site))
        };
        while waits(self) {
            assert!(self.now < limit, "the game does not go on: {:?}", self.states());
            self.run(TimeDelta::from_millis(20), true);
        }
    }

    /// Whether somebody lied, left, died or gave up.
    fn is_troubled(&self) -> bool {
        self.forged
            || self.restarted
            || self.sites.iter().any(|site| site.left || site.crashed || site.session.is_over())
    }

    /// Whether so few died, and nobody else is missing, that the others must go on without them.
    fn goes_on_without(&self) -> bool {
        let dead = self.sites.iter().filter(|site| site.crashed).count();
        let gone = |site: &Site| !site.crashed && (site.left || site.session.is_over());
        let dropped = self.sites.iter().any(|site| self.seats.changed(site.session.site()) && !site.crashed);
        let all_there = !self.forged && !self.scene.late && !dropped && !self.sites.iter().any(gone);
        self.scene.drop_after_ms.is_some() && all_there && 2 * dead < self.sites.len()
    }

    /// The pacing of the paper pays any debt back at once and waits for any credit, however large a lie, a sleep or a master
    /// that has left made it.
    fn paper_may_err(&self) -> bool {
        self.scene.pacing != Pacing::Even && (self.slept || self.is_troubled())
    }

    /// Whether nothing can be expected of a site.
    fn may_rest(&self, site: &Site) -> bool {
        let excused = self.is_troubled() && !self.goes_on_without();
        match site.session.state() {
            _ if site.is_out() || self.paper_may_err() => true,
            State::Ended(_) => true,
            State::Running => site.left,
            // Somebody who left without a word is waited for, but not by who gives up.
            State::Frozen(_) => site.left || (excused && (self.forged || !self.scene.gives_up)),
            // The others may have gone on before it heard of the start.
            State::Lobby { .. } | State::Starting { .. } => {
                self.is_troubled() || self.seats.changed(site.session.site())
            }
            // Who comes cannot be told from nobody without a number; and where all slept, links look so slow that it is let in late.
            State::Joining { .. } => self.is_troubled() || self.scene.incarnation == 0 || self.slept,
        }
    }

    /// Whatever can be asked of a session can be asked at any time.
    fn look_around(&self) {
        for (at, site) in self.sites.iter().enumerate() {
            let now = site.local(self.now);
            assert!(site.session.stats().frame.number().abs_diff(site.machine.stepped) <= 1);
            let beside = if self.scene.late { MEMORY_BESIDE } else { 0 };
            let most = MEMORY_PER_SITE * self.sites.len() + beside;
            assert!(site.session.memory() <= most, "site {at} takes {} bytes", site.session.memory());
            honest::check_certain(&self.settings, &self.sites, at, &self.seats, self.forged || self.seats.unclear);
            for other in 0..self.sites.len() {
                let _ = site.session.peer_stats(now, site_id(other));
            }
            let _ = (site.session.group_time(now), site.session.state(), site.session.settings());
        }
    }
}

/// Where a hello has its flags.
const HELLO_FLAGS_AT: usize = 19;

/// How long the deeds of a script may take.
fn time(scene: &Scene) -> TimeDelta {
    let lobby = if scene.lobby { LOBBY_TIME } else { TimeDelta::ZERO };
    let drops = if scene.drop_after_ms.is_some() { DROP_TIME } else { TimeDelta::ZERO };
    let late = if scene.late || scene.auto { LATE_TIME } else { TimeDelta::ZERO };
    MAX_TIME + lobby + drops + late
}

/// Packets of a flavour have the same blocks in them: a tick's flags, or a hello's.
fn flavour(bytes: &[u8]) -> (u8, Option<u8>) {
    let first = bytes.first().copied().unwrap_or(0);
    (first, bytes.get(HELLO_FLAGS_AT).copied().filter(|_| first & 0x80 == 0 && !is_feed(bytes)))
}
