//! The fuzzed session: its sites, the packets between them, and a script that decides which packets arrive.

use std::collections::VecDeque;

use coplay::codec::MAX_DATAGRAM;
use coplay::id::Addr;
use coplay::pace::Pacing;
use coplay::session::message::Tick;
use coplay::session::{Event, Settings, State};
use coplay::spectator_feed::message::{FeedMessage, is_feed};
use coplay::time::{Instant, TimeDelta};

use crate::checker::SeatOccupancyHistory;
use crate::forged_feed::ForgedMessage;
use crate::forged_session::ForgedExtra;
use crate::script::{Script, ScriptAction, ScriptSetup};
use crate::site::{FuzzedSite, address, settings, site_id};
use crate::{checker, forged_session};

/// Maximum number of packets in flight; one more drops the oldest.
const MAX_IN_FLIGHT: usize = 1_024;
/// Maximum number of kept packets, one of each flavor and sender.
const MAX_SAMPLE_PACKETS: usize = 64;
/// Maximum virtual time of all actions of a script together, without suspensions, heals and the additional times below.
/// Longer runs are slow to fuzz.
const MAX_ACTION_TIME: TimeDelta = TimeDelta::from_millis(640);
/// Additional time when the actions start in the lobby.
const LOBBY_EXTRA_TIME: TimeDelta = TimeDelta::from_millis(700);
/// Additional time when sites can be dropped.
const DROP_EXTRA_TIME: TimeDelta = TimeDelta::from_millis(1_000);
/// Additional time with a late joiner, or with automatic delay settings.
const LATE_JOIN_EXTRA_TIME: TimeDelta = TimeDelta::from_millis(3_000);
/// Time limit for the start of an undisturbed game.
const START_TIMEOUT: TimeDelta = TimeDelta::from_secs(10);
/// Maximum number of heals in one script.
const MAX_HEALS: u32 = 3;
/// Time limit within which every site that must continue after a heal has to step two frames.
const HEAL_TIMEOUT: TimeDelta = TimeDelta::from_secs(30);
/// Maximum memory of a session in bytes, for each site of the game.
const MEMORY_PER_SITE: usize = 160 * 1024;
/// Additional memory of a session that serves or downloads a feed, in bytes.
const FEED_MEMORY: usize = 1_024 * 1_024;
/// Maximum number of inputs that one frame requests beyond its own. Delay settings change by one frame at a time, also
/// when a forgery changes them.
const MAX_EXTRA_SAMPLES: i64 = 4;
/// Maximum number of frames that a forged feed can claim to a late joiner: as many as fit into the buffer.
const MAX_FORGED_FEED_FRAMES: i64 = 8_192 * 127;
/// Maximum number of frames whose inputs can be buffered at once.
const MAX_BUFFERED_FRAMES: i64 = 600;

/// A packet in flight.
#[derive(Clone, Debug)]
struct Packet {
    from: Addr,
    to: usize,
    due: Instant,
    bytes: Vec<u8>,
}

/// All sites and the packets between them.
#[derive(Debug)]
pub(crate) struct SessionHarness {
    setup: ScriptSetup,
    settings: Settings,
    now: Instant,
    sites: Vec<FuzzedSite>,
    in_flight: VecDeque<Packet>,
    sample_packets: Vec<Packet>,
    /// Newest tick from each site to the victim.
    newest_ticks: Vec<Vec<u8>>,
    /// Last forged tick, which the next forgery may change further.
    forged_tick: Vec<u8>,
    /// Whether a forgery arrived that could do harm, because the engine trusts its sender, or a site was restarted
    /// without a higher incarnation.
    has_forgery: bool,
    /// Whether a site, paced as in the paper, has a backlog of more frames than a run can wait for.
    has_unbounded_backlog: bool,
    /// Whether all sites were suspended at some time.
    has_slept: bool,
    /// Bit set of the sites whose links to the others are cut.
    partition: u8,
    seat_history: SeatOccupancyHistory,
    /// Whether a site was restarted.
    has_restarted: bool,
    /// Whether a site crashed, was cut off, left or restarted. Sites may then report different changes of seats.
    has_disruption: bool,
    heals_left: u32,
    /// Time that further actions may take.
    time_left: TimeDelta,
}

impl SessionHarness {
    /// Runs a whole script and panics if an invariant does not hold.
    pub(crate) fn run_script(script: &Script) -> Self {
        let mut harness = Self::new(script.setup);
        if !script.setup.starts_in_lobby {
            harness.start();
        }
        for action in &script.actions {
            if harness.has_unbounded_backlog {
                break;
            }
            harness.perform(action);
        }
        harness.check_invariants();
        harness
    }

    fn new(setup: ScriptSetup) -> Self {
        Self {
            setup,
            settings: settings(&setup),
            now: Instant::ZERO,
            sites: (0..setup.site_count()).map(|number| FuzzedSite::new(&setup, number)).collect(),
            in_flight: VecDeque::new(),
            sample_packets: Vec::new(),
            newest_ticks: vec![Vec::new(); setup.site_count()],
            forged_tick: Vec::new(),
            has_forgery: false,
            has_unbounded_backlog: false,
            has_slept: false,
            partition: 0,
            seat_history: SeatOccupancyHistory::new(settings(&setup).starting_sites),
            has_restarted: false,
            has_disruption: false,
            heals_left: MAX_HEALS,
            time_left: action_time_limit(&setup),
        }
    }

    pub(crate) fn into_sample_packets(self) -> Vec<Vec<u8>> {
        self.sample_packets.into_iter().map(|packet| packet.bytes).collect()
    }

    /// Runs an undisturbed network until every site has stepped three frames, except for a late joiner.
    fn start(&mut self) {
        let limit = self.now + START_TIMEOUT;
        while self.sites.iter().any(|site| site.machine.stepped_frames < 3 && !site.is_absent) {
            assert!(self.now < limit, "the game does not start: {:?}", self.states());
            self.advance_time(TimeDelta::from_millis(20), true);
        }
    }

    /// Returns the number of frames that all sites have stepped for the first time, each since its last start.
    fn total_steps(&self) -> u64 {
        self.sites.iter().map(|site| site.machine.fresh_steps).sum()
    }

    fn states(&self) -> Vec<State> {
        self.sites.iter().map(|site| site.session.state()).collect()
    }

    fn perform(&mut self, action: &ScriptAction) {
        match action {
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
            _ => self.perform_attack(action),
        }
    }

    fn perform_attack(&mut self, action: &ScriptAction) {
        let (victim, peer) = (self.victim(), self.impersonated());
        let now_us = self.sites[peer].local_time(self.now).as_micros();
        let stranger = address(self.sites.len());
        let from = self.sites[peer].addr;
        match action {
            ScriptAction::Mutate { packet, mutation, offset, value } => {
                let Some(packet) = self.choose_sample(*packet) else { return };
                let bytes = forged_session::mutate(&packet.bytes, *mutation, *offset, *value);
                self.inject(victim, from, &bytes);
            }
            ScriptAction::MutateFromStranger { packet, mutation, offset, value } => {
                let Some(packet) = self.choose_sample(*packet) else { return };
                let bytes = forged_session::mutate(&packet.bytes, *mutation, *offset, *value);
                self.inject(victim, stranger, &bytes);
            }
            ScriptAction::ForgeFeed { from, kind, frame_offset, value } => {
                let forged =
                    ForgedMessage::new(*kind, self.sites[victim].machine.stepped_frames, *frame_offset, *value);
                let genuine =
                    self.sample_packets.iter().find(|packet| packet.bytes.first() == Some(&forged.first_byte()));
                let bytes = forged.encode_feed(genuine.map(|packet| &packet.bytes[..]));
                self.inject(victim, address(usize::from(*from) % (self.sites.len() + 1)), &bytes);
            }
            ScriptAction::ForgeSearch { kind, frame_offset, value } => {
                let bytes = ForgedMessage::new(*kind, self.sites[victim].machine.stepped_frames, *frame_offset, *value)
                    .encode_search();
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
                let use_newest = field & 0x10 != 0 || self.forged_tick.is_empty();
                let genuine = if use_newest { &self.newest_ticks[peer] } else { &self.forged_tick };
                self.forged_tick = forged_session::forge_tick(genuine, *field, *value, now_us);
                self.inject(victim, from, &self.forged_tick.clone());
            }
            ScriptAction::ForgeHello { field, value } => {
                let start_ns = self.sites[victim].local_time(self.now).as_nanos();
                let config = (self.settings.clone(), self.setup.incarnation);
                let bytes = forged_session::forge_hello(config, site_id(peer), (*field, *value), now_us, start_ns);
                self.inject(victim, from, &bytes);
            }
            ScriptAction::ForgeExtra { from, kind, sites, frame_offset, value } => {
                let others: Vec<usize> = (0..self.sites.len()).filter(|site| *site != victim).collect();
                let from = others[usize::from(*from) % others.len()];
                let forged = ForgedExtra { kind: *kind, sites: *sites, frame_offset: *frame_offset, value: *value };
                let bytes = forged.insert_into(&self.newest_ticks[from], self.sites[victim].machine.stepped_frames);
                self.inject(victim, self.sites[from].addr, &bytes);
            }
            _ => {}
        }
    }

    /// Returns the index of the site that is attacked.
    fn victim(&self) -> usize {
        if self.setup.is_last_site_victim { self.sites.len() - 1 } else { 0 }
    }

    /// Returns the index of the site that the attacker impersonates.
    fn impersonated(&self) -> usize {
        if self.setup.is_last_site_victim { 0 } else { 1 }
    }

    fn choose_in_flight(&self, at: u8) -> Option<usize> {
        usize::from(at).checked_rem(self.in_flight.len())
    }

    fn choose_sample(&self, at: u8) -> Option<&Packet> {
        usize::from(at).checked_rem(self.sample_packets.len()).map(|at| &self.sample_packets[at])
    }

    /// Delivers bytes of an attacker to site `to`, from the address `from`.
    fn inject(&mut self, to: usize, from: Addr, bytes: &[u8]) {
        if self.sites[to].is_inactive() {
            return;
        }
        self.has_forgery |= checker::is_plausible_forgery(bytes, self.sites.iter().any(|site| site.addr == from));
        let now = self.sites[to].local_time(self.now);
        let before = self.sites[to].session.stats().dropped_datagrams;
        self.sites[to].session.handle_datagram(now, from, bytes);
        let after = self.sites[to].session.stats().dropped_datagrams;
        assert!(after.total() - before.total() <= 1 + bytes.len() as u64, "each dropped datagram is counted once");
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
        assert_eq!(
            site.session.stats().dropped_datagrams.malformed,
            before,
            "a site's datagram can be decoded by another"
        );
        self.run_site(packet.to);
    }

    fn leave(&mut self, site: usize) {
        let now = self.sites[site].local_time(self.now);
        self.sites[site].session.leave(now);
        (self.sites[site].has_left, self.sites[site].has_ever_left, self.has_disruption) = (true, true, true);
        self.run_site(site);
    }

    /// Starts a site that has not joined yet, or restarts one. Without late join in the setup this has no effect.
    fn join(&mut self, site: usize) {
        if self.setup.has_late_joiner {
            self.has_restarted |= !self.sites[site].is_absent;
            self.has_disruption |= self.has_restarted;
            // Without a higher incarnation the host program breaks its contract.
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

    /// Lets time pass, as far as the remaining action time allows. `open` is whether packets in flight arrive.
    fn spend_time(&mut self, time: TimeDelta, open: bool) {
        let time = time.min(self.time_left);
        self.time_left -= time;
        self.advance_time(time, open);
    }

    /// Lets time pass. Packets in flight arrive when they are due if `open` is true; otherwise they stay in flight.
    fn advance_time(&mut self, time: TimeDelta, open: bool) {
        let until = self.now + time;
        let before = self.total_steps();
        // A forged command may increase the input delay, so that every site requests some inputs at once and sends each
        // of them.
        let extra_samples = if self.has_forgery { MAX_EXTRA_SAMPLES * (self.sites.len() as i64).pow(2) } else { 0 };
        let feed_events = if self.setup.has_late_joiner { 2_000 + time.as_micros() / 50 } else { 0 };
        let expected = 100 + 2 * self.in_flight.len() as i64 + time.as_micros() / 100 + extra_samples + feed_events;
        let mut events = 0;
        loop {
            let due = self.in_flight.front().map(|packet| packet.due).filter(|_| open);
            let wake = self.sites.iter().filter_map(|site| site.next_wake).min();
            let next = due.into_iter().chain(wake).min().unwrap_or(Instant::FAR_FUTURE).max(self.now);
            if next > until {
                break;
            }
            events += 1;
            let stepped = (self.total_steps() - before) as i64;
            assert!(events < expected + 40 * stepped, "too many events in {time}");
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

    /// Serves the requests of a site's session, sends its datagrams, and stores its next timeout.
    fn run_site(&mut self, at: usize) {
        if self.has_unbounded_backlog || self.sites[at].is_inactive() {
            self.sites[at].next_wake = None;
            return;
        }
        let now = self.sites[at].local_time(self.now);
        // A site may catch up on all suspended time at once.
        let max_frames = MAX_BUFFERED_FRAMES + self.now.as_nanos() / self.settings.rate.period().as_nanos();
        let is_feed_forged = self.has_forgery && self.sites[at].seated_from.is_none();
        let max_frames = max_frames + if is_feed_forged { MAX_FORGED_FEED_FRAMES } else { 0 };
        // A frame causes up to three requests, and so does each frame that it resimulates.
        let per_frame = 3 * (2 + self.settings.rollback_slots() as i64);
        let first = self.sites[at].machine.fresh_steps;
        let players = self.settings.ownership.players();
        let mut requests = 0;
        while let Some(request) = self.sites[at].poll_owned_request(now) {
            requests += 1;
            let fresh = (self.sites[at].machine.fresh_steps - first) as i64;
            assert!(requests <= per_frame * (fresh + 1) + MAX_EXTRA_SAMPLES, "site {at} resimulates for ever");
            if fresh > max_frames {
                assert!(self.is_paper_pacing_excused(), "site {at} requests frames for ever");
                self.has_unbounded_backlog = true;
                self.sites[at].next_wake = None;
                self.check_events(at);
                return;
            }
            self.sites[at].serve_request(now, request, players, self.setup.has_bulky_state);
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
                "sites disagree on the seats: {event}"
            );
            if matches!(event, Event::Ended(_)) {
                assert!(site.session.is_over());
            }
        }
    }

    /// Stores the next timeout of a site's session, and checks it. There is one until the session is over. It is in the
    /// future, by at most 200 ms unless a forgery or the paper's pacing excuses the site.
    fn check_timeout(&mut self, at: usize, now: Instant) {
        let site = &mut self.sites[at];
        let timeout = site.session.poll_timeout();
        assert_eq!(timeout.is_none(), site.session.is_over(), "a session has a timeout until it is over");
        site.next_wake = timeout.map(|timeout| timeout - site.clock_offset);
        if let Some(timeout) = timeout {
            assert!(timeout > now, "the next timeout of site {at} is in the past");
            let soon = timeout - now <= TimeDelta::from_millis(200);
            // A site alone in the lobby, after a forged refusal, has nothing to do.
            let is_refused = self.has_forgery && matches!(site.session.state(), State::Lobby { .. });
            assert!(soon || is_refused || self.is_paper_pacing_excused(), "site {at} has no timeout soon");
        }
    }

    fn transmit_all(&mut self, at: usize, now: Instant) {
        let mut buf = [0; MAX_DATAGRAM];
        let mut sent = 0;
        let feed_packets = if self.setup.has_late_joiner { 256 } else { 0 };
        while let Some(transmit) = self.sites[at].session.poll_transmit(now, &mut buf) {
            sent += 1;
            assert!(sent <= 2 * self.sites.len() + feed_packets, "site {at} sends for ever");
            let bytes = &buf[..transmit.len];
            self.enqueue(at, transmit.to, bytes);
        }
    }

    /// Checks that a tick or a feed message can be decoded, puts a packet to a site in flight, and keeps the first of
    /// each flavor and sender.
    fn enqueue(&mut self, from: usize, to: Addr, bytes: &[u8]) {
        let is_tick = bytes.first().is_some_and(|first| first & 0x80 != 0);
        // Hellos are slow to decode, and their recipient decodes them anyway.
        if is_tick {
            let tick = Tick::decode(bytes);
            assert!(tick.is_ok(), "site {from} sends an invalid tick: {tick:?}");
        }
        if is_feed(bytes) {
            let message = FeedMessage::decode(bytes);
            assert!(message.is_ok(), "site {from} sends an invalid feed message: {message:?}");
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
        let is_same_flavor =
            |other: &Packet| other.from == packet.from && packet_flavor(&other.bytes) == packet_flavor(bytes);
        if self.sample_packets.len() < MAX_SAMPLE_PACKETS && !self.sample_packets.iter().any(is_same_flavor) {
            self.sample_packets.push(packet.clone());
        }
        if self.in_flight.len() == MAX_IN_FLIGHT {
            self.in_flight.pop_front();
        }
        self.in_flight.push_back(packet);
    }

    /// Heals the network and lets time pass until every site continues. After a forgery, leave, crash or end, a site
    /// may wait instead, but its state must show it.
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
            assert!(self.now < limit, "the game does not continue: {:?}", self.states());
            self.advance_time(TimeDelta::from_millis(20), true);
        }
    }

    /// Returns whether a forgery arrived, or a site left, crashed, restarted or ended.
    fn has_fault(&self) -> bool {
        self.has_forgery
            || self.has_restarted
            || self.sites.iter().any(|site| site.has_left || site.is_crashed || site.session.is_over())
    }

    /// Returns whether the other sites must continue without the crashed ones: these are a minority, silent sites are
    /// dropped, no site can join late, and nothing else disturbed the session.
    fn must_continue_without_crashed(&self) -> bool {
        let crashed = self.sites.iter().filter(|site| site.is_crashed).count();
        let is_missing = |site: &FuzzedSite| !site.is_crashed && (site.has_left || site.session.is_over());
        let dropped =
            self.sites.iter().any(|site| self.seat_history.has_changed(site.session.site()) && !site.is_crashed);
        let is_undisturbed =
            !self.has_forgery && !self.setup.has_late_joiner && !dropped && !self.sites.iter().any(is_missing);
        self.setup.drop_timeout_ms.is_some() && is_undisturbed && 2 * crashed < self.sites.len()
    }

    /// Returns whether the pacing of the paper may catch up or wait without bound: it makes up for any delay at once
    /// and waits out any lead, however large a forgery, a suspension or the departure of the site that it follows made
    /// them.
    fn is_paper_pacing_excused(&self) -> bool {
        self.setup.pacing != Pacing::Even && (self.has_slept || self.has_fault())
    }

    /// Returns whether a site need not step frames after a heal.
    fn may_be_idle(&self, site: &FuzzedSite) -> bool {
        let excused = self.has_fault() && !self.must_continue_without_crashed();
        match site.session.state() {
            _ if site.is_inactive() || self.is_paper_pacing_excused() => true,
            State::Ended(_) => true,
            State::Running => site.has_left,
            // The others wait for a site that left without notice, unless silence is fatal.
            State::Frozen(_) => site.has_left || (excused && (self.has_forgery || !self.setup.is_silence_fatal)),
            // The others may have continued before it received the start.
            State::Lobby { .. } | State::Starting { .. } => {
                self.has_fault() || self.seat_history.has_changed(site.session.site())
            }
            // Without an incarnation a joiner cannot be recognised. After a suspension the links seem slow, so that it
            // is admitted late.
            State::Joining { .. } => self.has_fault() || self.setup.incarnation == 0 || self.has_slept,
        }
    }

    /// Checks frame counter, memory and confirmed inputs of every site at the end of a run, and that peer statistics,
    /// group time, state and settings can be queried.
    fn check_invariants(&self) {
        for (at, site) in self.sites.iter().enumerate() {
            let now = site.local_time(self.now);
            assert!(site.session.stats().frame.number().abs_diff(site.machine.stepped_frames) <= 1);
            let feed_memory = if self.setup.has_late_joiner { FEED_MEMORY } else { 0 };
            let max_memory = MEMORY_PER_SITE * self.sites.len() + feed_memory;
            assert!(site.session.memory() <= max_memory, "site {at} takes {} bytes", site.session.memory());
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

/// Offset of the flags in a hello, in bytes.
const HELLO_FLAGS_OFFSET: usize = 19;

/// Returns the virtual time that the actions of a script may take.
fn action_time_limit(setup: &ScriptSetup) -> TimeDelta {
    let lobby = if setup.starts_in_lobby { LOBBY_EXTRA_TIME } else { TimeDelta::ZERO };
    let drops = if setup.drop_timeout_ms.is_some() { DROP_EXTRA_TIME } else { TimeDelta::ZERO };
    let late = if setup.has_late_joiner || setup.is_auto { LATE_JOIN_EXTRA_TIME } else { TimeDelta::ZERO };
    MAX_ACTION_TIME + lobby + drops + late
}

/// Returns the flavor of a packet, which determines its blocks: the first byte (in a tick, the flags) and, for a hello,
/// its flags.
fn packet_flavor(bytes: &[u8]) -> (u8, Option<u8>) {
    let first = bytes.first().copied().unwrap_or(0);
    (first, bytes.get(HELLO_FLAGS_OFFSET).copied().filter(|_| first & 0x80 == 0 && !is_feed(bytes)))
}
