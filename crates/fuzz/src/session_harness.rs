//! The fuzzed session: its sites, what is under way between them, and a script that decides what becomes of it.

use std::collections::VecDeque;

use coplay::id::Addr;
use coplay::pace::Pacing;
use coplay::session::{Event, Settings, State};
use coplay::time::{Instant, TimeDelta};
use coplay::wire::{FeedMessage, MAX_DATAGRAM, Tick, is_feed};

use crate::checker::SeatHistory;
use crate::forged_feed::ForgedMessage;
use crate::forged_session::ForgedExtra;
use crate::script::{Script, ScriptAction, ScriptSetup};
use crate::site::{FuzzedSite, address, settings, site_id};
use crate::{checker, forged_session};

/// Packets under way; when there are more, the oldest is lost.
const MAX_IN_FLIGHT: usize = 1_024;
/// Packets kept, one of each flavour.
const MAX_SAMPLE_PACKETS: usize = 64;
/// The longest time that the deeds of a script may take together, not counting sleep: what is longer is slow to fuzz.
const MAX_ACTION_TIME: TimeDelta = TimeDelta::from_millis(640);
/// What they may take in addition when they begin in the lobby.
const LOBBY_EXTRA_TIME: TimeDelta = TimeDelta::from_millis(700);
/// What they may take in addition when sites are dropped.
const DROP_EXTRA_TIME: TimeDelta = TimeDelta::from_millis(1_000);
/// What they may take in addition when somebody comes late, or the dials turn.
const LATE_JOIN_EXTRA_TIME: TimeDelta = TimeDelta::from_millis(3_000);
/// A clean start takes no longer.
const START_TIMEOUT: TimeDelta = TimeDelta::from_secs(10);
/// How often all is well again in one script.
const MAX_HEALS: u32 = 3;
/// Once all is well, the next frames are there within this time.
const HEAL_TIMEOUT: TimeDelta = TimeDelta::from_secs(30);
/// The most memory that a session may take for each of its sites.
const MEMORY_PER_SITE: usize = 160 * 1024;
/// What it may take beside the game: what it serves to others, or downloads.
const FEED_MEMORY: usize = 1_024 * 1_024;
/// The most inputs that a frame asks for beside its own: dials turn by one frame at a time, also when a lie turns them.
const MAX_EXTRA_SAMPLES: i64 = 4;
/// Frames that a feed can claim to who comes late: as many as fit into what is kept.
const MAX_FORGED_FEED_FRAMES: i64 = 8_192 * 127;
/// Frames whose inputs can be here at once.
const MAX_BUFFERED_FRAMES: i64 = 600;

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
pub(crate) struct SessionHarness {
    setup: ScriptSetup,
    settings: Settings,
    now: Instant,
    sites: Vec<FuzzedSite>,
    in_flight: VecDeque<Packet>,
    sample_packets: Vec<Packet>,
    /// The newest tick to the victim from each site.
    newest_ticks: Vec<Vec<u8>>,
    /// The last one that was forged in its name.
    forged_tick: Vec<u8>,
    /// Whether something arrived that only a peer could have sent, and did not.
    has_forgery: bool,
    /// Whether a site, paced as in the paper, has more frames to make up for than a run can wait for.
    has_unbounded_backlog: bool,
    /// Whether all sites were asleep for a while.
    has_slept: bool,
    /// The sites between which and the others nothing passes, bit by bit.
    partition: u8,
    seat_history: SeatHistory,
    /// Whether a site was started anew.
    has_restarted: bool,
    /// Whether somebody died, was cut off or left, so that sites may have acted on what came to nothing.
    has_disruption: bool,
    heals_left: u32,
    /// The time that deeds may still take.
    time_left: TimeDelta,
}

impl SessionHarness {
    /// Plays a whole script.
    pub(crate) fn run_script(script: &Script) -> Self {
        let mut world = Self::new(script.setup);
        if !script.setup.starts_in_lobby {
            world.start();
        }
        for deed in &script.actions {
            if world.has_unbounded_backlog {
                break;
            }
            world.perform(deed);
        }
        world.check_invariants();
        world
    }

    fn new(scene: ScriptSetup) -> Self {
        Self {
            setup: scene,
            settings: settings(&scene),
            now: Instant::ZERO,
            sites: (0..scene.site_count()).map(|number| FuzzedSite::new(&scene, number)).collect(),
            in_flight: VecDeque::new(),
            sample_packets: Vec::new(),
            newest_ticks: vec![Vec::new(); scene.site_count()],
            forged_tick: Vec::new(),
            has_forgery: false,
            has_unbounded_backlog: false,
            has_slept: false,
            partition: 0,
            seat_history: SeatHistory::new(settings(&scene).starting_sites),
            has_restarted: false,
            has_disruption: false,
            heals_left: MAX_HEALS,
            time_left: action_time_limit(&scene),
        }
    }

    pub(crate) fn into_sample_packets(self) -> Vec<Vec<u8>> {
        self.sample_packets.into_iter().map(|packet| packet.bytes).collect()
    }

    /// From the lobby into the game.
    fn start(&mut self) {
        let limit = self.now + START_TIMEOUT;
        while self.sites.iter().any(|site| site.machine.stepped_frames < 3 && !site.is_absent) {
            assert!(self.now < limit, "the game does not start: {:?}", self.states());
            self.advance_time(TimeDelta::from_millis(20), true);
        }
    }

    /// The frames that all sites have stepped, together, in all their lives.
    fn total_steps(&self) -> u64 {
        self.sites.iter().map(|site| site.machine.fresh_steps).sum()
    }

    fn states(&self) -> Vec<State> {
        self.sites.iter().map(|site| site.session.state()).collect()
    }

    fn perform(&mut self, deed: &ScriptAction) {
        match deed {
            ScriptAction::RunNetwork(time) => self.spend_time(TimeDelta::from_millis(2 * (i64::from(*time) + 1)), true),
            ScriptAction::CutNetwork(time) => self.spend_time(TimeDelta::from_millis(i64::from(*time) + 1), false),
            ScriptAction::Sleep(time) => {
                self.has_slept = true;
                self.now += self.settings.rate.period() * 3 * i64::from(*time);
            }
            ScriptAction::Deliver(at) => {
                if let Some(packet) = self.choose_in_flight(*at).and_then(|at| self.in_flight.remove(at)) {
                    self.deliver(&packet);
                }
            }
            ScriptAction::Drop(at) => drop(self.choose_in_flight(*at).and_then(|at| self.in_flight.remove(at))),
            ScriptAction::Duplicate(at) => {
                if let Some(packet) = self.choose_in_flight(*at).map(|at| self.in_flight[at].clone()) {
                    self.deliver(&packet);
                }
            }
            ScriptAction::Replay(at) => {
                if let Some(packet) = self.choose_sample(*at).cloned() {
                    self.deliver(&packet);
                }
            }
            ScriptAction::Leave(site) => self.leave(usize::from(*site) % self.sites.len()),
            ScriptAction::Crash(site) => self.crash(usize::from(*site) % self.sites.len()),
            ScriptAction::Partition(sites) => {
                self.partition = *sites;
                self.has_disruption = true;
            }
            ScriptAction::Join(site) => self.join(usize::from(*site) % self.sites.len()),
            ScriptAction::Press { site, value } => {
                let site = usize::from(*site) % self.sites.len();
                self.sites[site].held_input = *value;
            }
            ScriptAction::Heal if self.heals_left > 0 => {
                self.heals_left -= 1;
                self.heal();
            }
            ScriptAction::Heal => {}
            _ => self.perform_attack(deed),
        }
    }

    fn perform_attack(&mut self, deed: &ScriptAction) {
        let (victim, peer) = (self.victim(), self.impersonated());
        let now_us = self.sites[peer].local_time(self.now).as_micros();
        let stranger = address(self.sites.len());
        let from = self.sites[peer].addr;
        match deed {
            ScriptAction::Mutate { packet, mutation: how, offset: at, value } => {
                let Some(packet) = self.choose_sample(*packet) else { return };
                let bytes = forged_session::mutate(&packet.bytes, *how, *at, *value);
                self.inject(victim, from, &bytes);
            }
            ScriptAction::MutateFromStranger { packet, mutation: how, offset: at, value } => {
                let Some(packet) = self.choose_sample(*packet) else { return };
                let bytes = forged_session::mutate(&packet.bytes, *how, *at, *value);
                self.inject(victim, stranger, &bytes);
            }
            ScriptAction::ForgeFeed { from, kind, frame_offset: near, value } => {
                let fake = ForgedMessage::new(*kind, self.sites[victim].machine.stepped_frames, *near, *value);
                let genuine =
                    self.sample_packets.iter().find(|packet| packet.bytes.first() == Some(&fake.first_byte()));
                let bytes = fake.encode_feed(genuine.map(|packet| &packet.bytes[..]));
                self.inject(victim, address(usize::from(*from) % (self.sites.len() + 1)), &bytes);
            }
            ScriptAction::ForgeSearch { kind, frame_offset: near, value } => {
                let bytes =
                    ForgedMessage::new(*kind, self.sites[victim].machine.stepped_frames, *near, *value).encode_search();
                self.inject(victim, from, &bytes);
            }
            ScriptAction::InjectFromPeer(bytes) => self.inject(victim, from, bytes),
            ScriptAction::InjectFromStranger(bytes) => self.inject(victim, stranger, bytes),
            ScriptAction::InjectIdentified { flags, rest } => {
                self.inject(
                    victim,
                    stranger,
                    &forged_session::forge_identified_tick(site_id(peer), *flags, rest, now_us),
                );
            }
            ScriptAction::ForgeTick { field, value } => {
                let fresh = field & 0x10 != 0 || self.forged_tick.is_empty();
                let genuine = if fresh { &self.newest_ticks[peer] } else { &self.forged_tick };
                self.forged_tick = forged_session::forge_tick(genuine, *field, *value, now_us);
                self.inject(victim, from, &self.forged_tick.clone());
            }
            ScriptAction::ForgeHello { field, value } => {
                let start_ns = self.sites[victim].local_time(self.now).as_nanos();
                let config = (self.settings.clone(), self.setup.incarnation);
                let bytes = forged_session::forge_hello(config, site_id(peer), (*field, *value), now_us, start_ns);
                self.inject(victim, from, &bytes);
            }
            ScriptAction::ForgeExtra { from, kind, sites, frame_offset: near, value } => {
                let others: Vec<usize> = (0..self.sites.len()).filter(|site| *site != victim).collect();
                let from = others[usize::from(*from) % others.len()];
                let lie = ForgedExtra { kind: *kind, sites: *sites, frame_offset: *near, value: *value };
                let bytes = lie.insert_into(&self.newest_ticks[from], self.sites[victim].machine.stepped_frames);
                self.inject(victim, self.sites[from].addr, &bytes);
            }
            _ => {}
        }
    }

    /// The site that is attacked.
    fn victim(&self) -> usize {
        if self.setup.is_last_site_victim { self.sites.len() - 1 } else { 0 }
    }

    /// The site in whose name.
    fn impersonated(&self) -> usize {
        if self.setup.is_last_site_victim { 0 } else { 1 }
    }

    fn choose_in_flight(&self, at: u8) -> Option<usize> {
        usize::from(at).checked_rem(self.in_flight.len())
    }

    fn choose_sample(&self, at: u8) -> Option<&Packet> {
        usize::from(at).checked_rem(self.sample_packets.len()).map(|at| &self.sample_packets[at])
    }

    /// Bytes from nobody knows whom arrive.
    fn inject(&mut self, to: usize, from: Addr, bytes: &[u8]) {
        if self.sites[to].is_inactive() {
            return;
        }
        self.has_forgery |= checker::is_plausible_forgery(bytes, self.sites.iter().any(|site| site.addr == from));
        let now = self.sites[to].local_time(self.now);
        let before = self.sites[to].session.stats().dropped_datagrams;
        self.sites[to].session.handle_datagram(now, from, bytes);
        let after = self.sites[to].session.stats().dropped_datagrams;
        assert!(after.total() - before.total() <= 1 + bytes.len() as u64, "what is dropped is counted, not multiplied");
        self.run_site(to);
    }

    fn deliver(&mut self, packet: &Packet) {
        let from = self.sites.iter().position(|site| site.addr == packet.from);
        let side = |site: usize| self.partition >> site & 1;
        let site = &mut self.sites[packet.to];
        if site.is_inactive() || from.is_some_and(|from| side(from) != side(packet.to)) {
            return;
        }
        let before = site.session.stats().dropped_datagrams.malformed;
        site.session.handle_datagram(site.local_time(self.now), packet.from, &packet.bytes);
        assert_eq!(site.session.stats().dropped_datagrams.malformed, before, "what a site sends, another can read");
        self.run_site(packet.to);
    }

    fn leave(&mut self, site: usize) {
        let now = self.sites[site].local_time(self.now);
        self.sites[site].session.leave(now);
        (self.sites[site].has_left, self.sites[site].has_ever_left, self.has_disruption) = (true, true, true);
        self.run_site(site);
    }

    /// A site comes that was not there, or whose program was started anew; others only if they are served.
    fn join(&mut self, site: usize) {
        if self.setup.has_late_joiner {
            self.has_restarted |= !self.sites[site].is_absent;
            self.has_disruption |= self.has_restarted;
            // A host program that does not count its starts breaks its promise.
            self.has_forgery |= self.setup.incarnation.checked_add(self.sites[site].start_count).is_none();
            self.sites[site].join(&self.setup, self.now);
            self.run_site(site);
        }
    }

    fn crash(&mut self, site: usize) {
        if self.sites[site].is_absent {
            return;
        }
        self.has_disruption = true;
        self.sites[site].is_crashed = true;
        self.sites[site].next_wake = None;
    }

    /// Lets time pass as long as there is any left.
    fn spend_time(&mut self, time: TimeDelta, open: bool) {
        let time = time.min(self.time_left);
        self.time_left -= time;
        self.advance_time(time, open);
    }

    /// Lets time pass; packets arrive when they are due, or not at all.
    fn advance_time(&mut self, time: TimeDelta, open: bool) {
        let until = self.now + time;
        let before = self.total_steps();
        // A forged order may make the lag longer, so that every site asks for some inputs at once, and tells each of them.
        let at_once = if self.has_forgery { MAX_EXTRA_SAMPLES * (self.sites.len() as i64).pow(2) } else { 0 };
        let beside = if self.setup.has_late_joiner { 2_000 + time.as_micros() / 50 } else { 0 };
        let expected = 100 + 2 * self.in_flight.len() as i64 + time.as_micros() / 100 + at_once + beside;
        let mut happened = 0;
        loop {
            let due = self.in_flight.front().map(|packet| packet.due).filter(|_| open);
            let wake = self.sites.iter().filter_map(|site| site.next_wake).min();
            let next = due.into_iter().chain(wake).min().unwrap_or(Instant::FAR_FUTURE).max(self.now);
            if next > until {
                break;
            }
            happened += 1;
            let stepped = (self.total_steps() - before) as i64;
            assert!(happened < expected + 40 * stepped, "too much happens in {time}");
            self.now = next;
            if due.is_some_and(|due| due <= next) {
                if let Some(packet) = self.in_flight.pop_front() {
                    self.deliver(&packet);
                }
            } else if let Some(at) = self.sites.iter().position(|site| site.next_wake.is_some_and(|wake| wake <= next))
            {
                self.run_site(at);
            }
        }
        self.now = until;
    }

    /// The host program: does what its session asks for, sends, and notes when it wants to be called again.
    fn run_site(&mut self, at: usize) {
        if self.has_unbounded_backlog || self.sites[at].is_inactive() {
            self.sites[at].next_wake = None;
            return;
        }
        let now = self.sites[at].local_time(self.now);
        // A site may make up at once for all that was slept away.
        let most = MAX_BUFFERED_FRAMES + self.now.as_nanos() / self.settings.rate.period().as_nanos();
        let lied = self.has_forgery && self.sites[at].seated_from.is_none();
        let most = most + if lied { MAX_FORGED_FEED_FRAMES } else { 0 };
        // A frame asks three times, and so does each that it repairs.
        let per_frame = 3 * (2 + self.settings.rollback_slots() as i64);
        let first = self.sites[at].machine.fresh_steps;
        let players = self.settings.ownership.players();
        let mut requests = 0;
        while let Some(asked) = self.sites[at].poll_owned_request(now) {
            requests += 1;
            let fresh = (self.sites[at].machine.fresh_steps - first) as i64;
            assert!(requests <= per_frame * (fresh + 1) + MAX_EXTRA_SAMPLES, "site {at} repairs for ever");
            if fresh > most {
                assert!(self.is_paper_pacing_excused(), "site {at} asks for ever");
                self.has_unbounded_backlog = true;
                self.sites[at].next_wake = None;
                self.check_events(at);
                return;
            }
            self.sites[at].serve_request(now, asked, players, self.setup.has_bulky_state);
            self.transmit_all(at, now);
        }
        self.transmit_all(at, now);
        self.check_events(at);
        self.check_timeout(at, now);
    }

    fn check_events(&mut self, at: usize) {
        let site = &mut self.sites[at];
        while let Some(event) = site.session.poll_event() {
            checker::check_event(&event, at, &mut self.seat_history, (self.has_forgery, self.setup.has_late_joiner));
            assert!(
                !self.seat_history.is_inconsistent || self.setup.has_late_joiner && self.has_disruption,
                "sites disagree on who plays: {event}"
            );
            if matches!(event, Event::Ended(_)) {
                assert!(site.session.is_over());
            }
        }
    }

    /// Who is not over wants to be called, soon and not at once.
    fn check_timeout(&mut self, at: usize, now: Instant) {
        let site = &mut self.sites[at];
        let timeout = site.session.poll_timeout();
        assert_eq!(timeout.is_none(), site.session.is_over(), "who is not over wants to be called");
        site.next_wake = timeout.map(|timeout| timeout - site.clock_offset);
        if let Some(timeout) = timeout {
            assert!(timeout > now, "site {at} wants to be called in the past");
            let soon = timeout - now <= TimeDelta::from_millis(200);
            // Who waits alone for a game that somebody refused has nothing to do.
            let refused = self.has_forgery && matches!(site.session.state(), State::Lobby { .. });
            assert!(soon || refused || self.is_paper_pacing_excused(), "site {at} falls asleep");
        }
    }

    fn transmit_all(&mut self, at: usize, now: Instant) {
        let mut buf = [0; MAX_DATAGRAM];
        let mut sent = 0;
        let beside = if self.setup.has_late_joiner { 256 } else { 0 };
        while let Some(transmit) = self.sites[at].session.poll_transmit(now, &mut buf) {
            sent += 1;
            assert!(sent <= 2 * self.sites.len() + beside, "site {at} sends for ever");
            let bytes = &buf[..transmit.len];
            self.enqueue(at, transmit.to, bytes);
        }
    }

    /// Puts a packet on its way, and one of each flavour into the album.
    fn enqueue(&mut self, from: usize, to: Addr, bytes: &[u8]) {
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
            due: self.now + TimeDelta::from_millis(i64::from(self.setup.delay_ms)),
            bytes: bytes.to_vec(),
        };
        let alike = |other: &Packet| other.from == packet.from && packet_flavor(&other.bytes) == packet_flavor(bytes);
        if self.sample_packets.len() < MAX_SAMPLE_PACKETS && !self.sample_packets.iter().any(alike) {
            self.sample_packets.push(packet.clone());
        }
        if self.in_flight.len() == MAX_IN_FLIGHT {
            self.in_flight.pop_front();
        }
        self.in_flight.push_back(packet);
    }

    /// A clean network: every site goes on. Where somebody lied, left, died or gave up, it may wait instead, but must know it.
    fn heal(&mut self) {
        self.partition = 0;
        let before: Vec<u64> = self.sites.iter().map(|site| site.machine.fresh_steps).collect();
        let limit = self.now + HEAL_TIMEOUT;
        let waits = |world: &Self| {
            let mut sites = world.sites.iter().zip(&before);
            let waits =
                |site: &FuzzedSite, before: u64| site.machine.fresh_steps < before + 2 || site.seated_from.is_none();
            sites.any(|(site, before)| waits(site, *before) && !world.may_be_idle(site))
        };
        while waits(self) {
            assert!(self.now < limit, "the game does not go on: {:?}", self.states());
            self.advance_time(TimeDelta::from_millis(20), true);
        }
    }

    /// Whether somebody lied, left, died or gave up.
    fn has_fault(&self) -> bool {
        self.has_forgery
            || self.has_restarted
            || self.sites.iter().any(|site| site.has_left || site.is_crashed || site.session.is_over())
    }

    /// Whether so few died, and nobody else is missing, that the others must go on without them.
    fn must_continue_without_crashed(&self) -> bool {
        let dead = self.sites.iter().filter(|site| site.is_crashed).count();
        let gone = |site: &FuzzedSite| !site.is_crashed && (site.has_left || site.session.is_over());
        let dropped =
            self.sites.iter().any(|site| self.seat_history.has_changed(site.session.site()) && !site.is_crashed);
        let all_there = !self.has_forgery && !self.setup.has_late_joiner && !dropped && !self.sites.iter().any(gone);
        self.setup.drop_timeout_ms.is_some() && all_there && 2 * dead < self.sites.len()
    }

    /// The pacing of the paper pays any debt back at once and waits for any credit, however large a lie, a sleep or a master
    /// that has left made it.
    fn is_paper_pacing_excused(&self) -> bool {
        self.setup.pacing != Pacing::Even && (self.has_slept || self.has_fault())
    }

    /// Whether nothing can be expected of a site.
    fn may_be_idle(&self, site: &FuzzedSite) -> bool {
        let excused = self.has_fault() && !self.must_continue_without_crashed();
        match site.session.state() {
            _ if site.is_inactive() || self.is_paper_pacing_excused() => true,
            State::Ended(_) => true,
            State::Running => site.has_left,
            // Somebody who left without a word is waited for, but not by who gives up.
            State::Frozen(_) => site.has_left || (excused && (self.has_forgery || !self.setup.is_silence_fatal)),
            // The others may have gone on before it heard of the start.
            State::Lobby { .. } | State::Starting { .. } => {
                self.has_fault() || self.seat_history.has_changed(site.session.site())
            }
            // Who comes cannot be told from nobody without a number; and where all slept, links look so slow that it is let in late.
            State::Joining { .. } => self.has_fault() || self.setup.incarnation == 0 || self.has_slept,
        }
    }

    /// Whatever can be asked of a session can be asked at any time.
    fn check_invariants(&self) {
        for (at, site) in self.sites.iter().enumerate() {
            let now = site.local_time(self.now);
            assert!(site.session.stats().frame.number().abs_diff(site.machine.stepped_frames) <= 1);
            let beside = if self.setup.has_late_joiner { FEED_MEMORY } else { 0 };
            let most = MEMORY_PER_SITE * self.sites.len() + beside;
            assert!(site.session.memory() <= most, "site {at} takes {} bytes", site.session.memory());
            checker::check_confirmed(
                &self.settings,
                &self.sites,
                at,
                &self.seat_history,
                self.has_forgery || self.seat_history.is_inconsistent,
            );
            for other in 0..self.sites.len() {
                let _ = site.session.peer_stats(now, site_id(other));
            }
            let _ = (site.session.group_time(now), site.session.state(), site.session.settings());
        }
    }
}

/// Where a hello has its flags.
const HELLO_FLAGS_OFFSET: usize = 19;

/// How long the deeds of a script may take.
fn action_time_limit(scene: &ScriptSetup) -> TimeDelta {
    let lobby = if scene.starts_in_lobby { LOBBY_EXTRA_TIME } else { TimeDelta::ZERO };
    let drops = if scene.drop_timeout_ms.is_some() { DROP_EXTRA_TIME } else { TimeDelta::ZERO };
    let late = if scene.has_late_joiner || scene.is_auto { LATE_JOIN_EXTRA_TIME } else { TimeDelta::ZERO };
    MAX_ACTION_TIME + lobby + drops + late
}

/// Packets of a flavour have the same blocks in them: a tick's flags, or a hello's.
fn packet_flavor(bytes: &[u8]) -> (u8, Option<u8>) {
    let first = bytes.first().copied().unwrap_or(0);
    (first, bytes.get(HELLO_FLAGS_OFFSET).copied().filter(|_| first & 0x80 == 0 && !is_feed(bytes)))
}
