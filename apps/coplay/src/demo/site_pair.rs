//! Two sites that share a game over a simulated link, in one process.
//!
//! The module reads no clock: the caller passes the time. The same pair runs in real time on a screen, and in virtual
//! time as fast as possible.

use std::collections::BTreeMap;

use coplay::codec::MAX_DATAGRAM;
use coplay::id::{Addr, SiteId};
use coplay::input::{InputWord, MAX_PLAYERS};
use coplay::session::Session;
use coplay::time::{Instant, TimeDelta};
use coplay_links::link::{Delay, Jitter, Link, LinkConfig, Loss};
use coplay_machines::identity::game_id;
use coplay_machines::session_adapter::{self, RequestOutcome, SessionAdapter};
use coplay_machines::{Machine, NetplaySupport};
use coplay_shell::error::AppError;

use super::tennis_bot::TennisBot;
use crate::bot::Bot;
use crate::game::GameImage;

/// Frames between two comparisons of the states.
pub const COMPARE_INTERVAL: u32 = 60;

/// Quality of the simulated link, and delay settings of the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DemoSettings {
    /// Round-trip time of the link, in milliseconds.
    pub rtt_ms: u32,
    /// Mean jitter of a round trip, in milliseconds; half of it in each direction.
    pub jitter_ms: u32,
    /// Packet loss in each direction, in percent.
    pub loss_percent: u32,
    /// Input delay of both sites, in frames.
    pub input_delay: u32,
    /// Prediction window of both sites, in frames.
    pub prediction_window: u32,
    /// Whether the engine adapts input delay and prediction window to the link. The session then starts with
    /// `input_delay` and `prediction_window`.
    pub auto_delay: bool,
}

impl Default for DemoSettings {
    fn default() -> Self {
        Self { rtt_ms: 80, jitter_ms: 5, loss_percent: 1, input_delay: 2, prediction_window: 8, auto_delay: false }
    }
}

impl DemoSettings {
    fn link_config(&self) -> LinkConfig {
        let millis = |millis: u32| TimeDelta::from_millis(i64::from(millis));
        LinkConfig {
            delay: Delay::Constant(millis(self.rtt_ms) / 2),
            jitter: match self.jitter_ms {
                0 => Jitter::None,
                mean => Jitter::Exponential { mean: millis(mean) / 2 },
            },
            loss: Loss::Independent(f64::from(self.loss_percent) / 100.0),
            ..LinkConfig::default()
        }
    }
}

/// One site of the demo: its session, its machine, and the bots and the person that play there.
pub struct DemoSite {
    /// Session of this site with the other site.
    pub session: Session,
    adapter: SessionAdapter,
    bot: Bot,
    /// Bot for the bundled tennis game; `None` if another game is played.
    tennis_bot: Option<TennisBot>,
    /// Input of a person at this site; `None` lets a bot play.
    pub human_input: Option<InputWord>,
    /// Number of the newest frame, and the time at which it was first simulated.
    pub newest_frame: (u32, Instant),
    /// Whether a new frame was simulated and not shown yet.
    pub has_new_picture: bool,
    /// Whether frames were resimulated since the sound of this site was last played. Only site 0's sound is played.
    pub has_rolled_back: bool,
    /// State hashes that are not compared yet, by the frame after which the state was hashed.
    state_hashes: BTreeMap<u32, u64>,
}

/// Result of comparing the state hashes of both sites.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateComparison {
    /// Number of frames whose hashes were compared.
    pub count: u64,
    /// First frame after which the compared hashes differed; `None` while all compared hashes were equal.
    pub first_desync: Option<u32>,
}

/// Both sites, and the simulated link between them.
pub struct SitePair {
    /// Sites with the numbers 0 and 1.
    pub sites: [DemoSite; 2],
    links: [Link; 2],
    /// Datagrams in flight: arrival time, receiving site and payload.
    in_flight: Vec<(Instant, usize, Vec<u8>)>,
    buffer: [u8; MAX_DATAGRAM],
    settings: DemoSettings,
    /// Number of the current session, from 1. A change of the delay settings starts the next session.
    session_number: u64,
    /// Time between the two sites' starts of the same frame. It is updated whenever both sites have the same newest
    /// frame.
    pub frame_start_skew: TimeDelta,
    /// Comparison of the confirmed states by the machines' hashes, independent of the sessions' own comparison.
    pub comparison: StateComparison,
}

impl SitePair {
    /// Starts a session between two equal machines. `seed` determines the bots and the link.
    pub fn new(
        now: Instant,
        machines: [Box<dyn Machine>; 2],
        settings: DemoSettings,
        seed: u64,
    ) -> Result<Self, AppError> {
        let [first, second] = machines;
        let links = ["there", "back"].map(|name| Link::new(settings.link_config(), seed, name));
        let site = |number: usize, machine: Box<dyn Machine>| {
            let session = new_session(now, number, &*machine, settings, 1)?;
            let pads = machine.pads();
            let pad = pads
                .get(number)
                .or(pads.first())
                .cloned()
                .unwrap_or_else(|| coplay_machines::pad::PadLayout::with_buttons(&[]));
            let bot = Bot::new(seed, number, &pad);
            let tennis_bot = is_tennis(&*machine).then(|| TennisBot::new(seed, number));
            Ok(DemoSite {
                session,
                adapter: SessionAdapter::new(machine),
                bot,
                tennis_bot,
                human_input: None,
                newest_frame: (0, now),
                has_new_picture: false,
                has_rolled_back: false,
                state_hashes: BTreeMap::new(),
            })
        };
        let sites = [site(0, first)?, site(1, second)?];
        Ok(Self {
            sites,
            links,
            in_flight: vec![],
            buffer: [0; MAX_DATAGRAM],
            settings,
            session_number: 1,
            frame_start_skew: TimeDelta::ZERO,
            comparison: StateComparison::default(),
        })
    }

    /// Returns the present settings of link and session.
    pub fn settings(&self) -> DemoSettings {
        self.settings
    }

    /// Changes the settings. The link changes at once. A change of `input_delay`, `prediction_window` or `auto_delay`
    /// starts a new session: from the current state of site 0, or after a reset if the machine does not support
    /// rollback.
    pub fn change_settings(&mut self, now: Instant, settings: DemoSettings) -> Result<(), AppError> {
        let delays = |settings: &DemoSettings| (settings.input_delay, settings.prediction_window, settings.auto_delay);
        let restart = delays(&settings) != delays(&self.settings);
        self.settings = settings;
        self.links.iter_mut().for_each(|link| link.set_config(settings.link_config()));
        if restart { self.restart_sessions(now) } else { Ok(()) }
    }

    fn restart_sessions(&mut self, now: Instant) -> Result<(), AppError> {
        self.session_number += 1;
        self.in_flight.clear();
        let failed = |error: String| {
            AppError::failure(format!("cannot continue the game in a new session: {error}"))
                .hint("run `coplay check` with the same game and core")
        };
        let (mut state, exact) = (vec![], self.sites[0].machine().netplay_support() == NetplaySupport::Rollback);
        if exact {
            self.sites[0].adapter.machine_mut().save(&mut state).map_err(|error| failed(error.to_string()))?;
        }
        for (number, site) in self.sites.iter_mut().enumerate() {
            let machine = site.adapter.machine_mut();
            match exact {
                true => machine.load(&state).map_err(|error| failed(error.to_string()))?,
                false => machine.reset(),
            }
            site.state_hashes.clear();
            site.session = new_session(now, number, site.adapter.machine(), self.settings, self.session_number)?;
            site.newest_frame = (0, now);
        }
        Ok(())
    }

    /// Delivers due datagrams, lets both sessions advance to `now`, and compares newly confirmed states.
    pub fn advance(&mut self, now: Instant) -> Result<(), AppError> {
        for (_, to, bytes) in self.in_flight.extract_if(.., |(arrival, ..)| *arrival <= now) {
            self.sites[to].session.handle_datagram(now, Addr(1 - to as u64), &bytes);
        }
        for number in 0..2 {
            while self.sites[number].serve_request(now)? {
                self.transmit(now, number);
            }
            self.transmit(now, number);
            while self.sites[number].session.poll_event().is_some() {}
        }
        self.compare_confirmed_states();
        let [(first, first_start), (second, second_start)] = [self.sites[0].newest_frame, self.sites[1].newest_frame];
        if first == second {
            self.frame_start_skew = (first_start - second_start).abs();
        }
        Ok(())
    }

    /// Compares all states that are confirmed at both sites.
    fn compare_confirmed_states(&mut self) {
        let [first, second] = &mut self.sites;
        let confirmed = [&*first, &*second].map(|site| site.session.stats().confirmed.number());
        let confirmed = confirmed[0].min(confirmed[1]);
        while let Some(ours) = first.state_hashes.first_entry().filter(|ours| *ours.key() < confirmed) {
            let (frame, ours) = ours.remove_entry();
            let Some(theirs) = second.state_hashes.remove(&frame) else { continue };
            self.comparison.count += 1;
            if ours != theirs {
                self.comparison.first_desync.get_or_insert(frame);
            }
        }
    }

    fn transmit(&mut self, now: Instant, from: usize) {
        while let Some(packet) = self.sites[from].session.poll_transmit(now, &mut self.buffer) {
            for arrival in self.links[from].send(now, packet.len) {
                self.in_flight.push((arrival, 1 - from, self.buffer[..packet.len].to_vec()));
            }
        }
    }

    /// Returns the earliest time at which a datagram arrives or a session has work; `None` if there is none.
    pub fn next_event(&self) -> Option<Instant> {
        let arrivals = self.in_flight.iter().map(|(arrival, ..)| *arrival);
        let timers = self.sites.iter().filter_map(|site| site.session.poll_timeout());
        arrivals.chain(timers).min()
    }

    /// Returns the numbers of sent and of lost packets of both directions together.
    pub fn packet_counts(&self) -> (u64, u64) {
        self.links.iter().map(|link| link.stats()).fold((0, 0), |sum, link| (sum.0 + link.sent, sum.1 + link.lost))
    }
}

impl DemoSite {
    /// Returns the machine of this site.
    pub fn machine(&self) -> &dyn Machine {
        self.adapter.machine()
    }

    /// Returns the next input of the site's bots: of the tennis bot if it can play, else of the bot that presses random
    /// buttons.
    fn bot_input(&mut self) -> InputWord {
        let input_delay = self.session.stats().input_delay;
        let pressed = self.tennis_bot.as_mut().and_then(|bot| bot.press(self.adapter.machine_mut(), input_delay));
        pressed.unwrap_or_else(|| self.bot.press())
    }

    /// Carries out one request of the session; returns `false` if there is none.
    fn serve_request(&mut self, now: Instant) -> Result<bool, AppError> {
        let Some(outcome) = self.adapter.handle_next_request(now, &mut self.session) else { return Ok(false) };
        match outcome {
            RequestOutcome::InputNeeded { .. } => {
                let (player, pressed) = (self.session.site().index(), self.bot_input());
                let mut words = [0; MAX_PLAYERS];
                words[player] = self.human_input.unwrap_or(pressed);
                self.session.handle_input(now, &words[..self.machine().pads().len().min(MAX_PLAYERS)]);
            }
            RequestOutcome::Stepped { frame, rendered: true } => {
                (self.newest_frame, self.has_new_picture) = ((frame.number(), now), true)
            }
            RequestOutcome::Stepped { rendered: false, .. } => self.has_rolled_back = true,
            RequestOutcome::Failed(error) => {
                return Err(AppError::failure(format!("the machine failed during the game: {error}"))
                    .hint("run `coplay check` with the same game and core"));
            }
            // A resimulated frame is hashed again; the last hash counts.
            RequestOutcome::Hashed { frame } => {
                _ = self.state_hashes.insert(frame.number(), self.adapter.machine_mut().hash())
            }
            RequestOutcome::Saved { .. } | RequestOutcome::Loaded { .. } | RequestOutcome::SideWork => {}
        }
        Ok(true)
    }
}

/// Returns whether the machine runs the bundled tennis game.
fn is_tennis(machine: &dyn Machine) -> bool {
    GameImage::bundled().is_some_and(|game| game_id("", &game.bytes).hash == machine.game_id().hash)
}

fn new_session(
    now: Instant,
    number: usize,
    machine: &dyn Machine,
    settings: DemoSettings,
    session_number: u64,
) -> Result<Session, AppError> {
    let DemoSettings { input_delay, prediction_window, auto_delay, .. } = settings;
    let options = session_adapter::SharedGameOptions {
        sites: 2,
        input_delay,
        prediction_window,
        auto_delay,
        hash_interval: COMPARE_INTERVAL,
    };
    let settings = session_adapter::settings(machine, options);
    let ids: Vec<SiteId> = SiteId::first(2).collect();
    let peers = vec![(ids[1 - number], Addr(1 - number as u64))];
    let config = session_adapter::config(machine, session_number, ids[number], peers, settings);
    Session::new(now, config).map_err(|error| {
        AppError::failure(format!("invalid session settings: {error}"))
            .hint("try other numbers for --delay and --prediction")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_machine::ToyMachine;

    fn site_pair(settings: DemoSettings) -> SitePair {
        let machine = || -> Box<dyn Machine> { Box::new(ToyMachine::new(1)) };
        SitePair::new(Instant::ZERO, [machine(), machine()], settings, 5).unwrap()
    }

    fn run(pair: &mut SitePair, mut now: Instant, seconds: i64) -> Instant {
        let end = now + TimeDelta::from_secs(seconds);
        while now < end {
            pair.advance(now).unwrap();
            now = pair.next_event().unwrap().max(now + TimeDelta::from_nanos(1));
        }
        now
    }

    #[test]
    fn states_stay_equal_over_a_lossy_jittery_link() {
        let mut pair = site_pair(DemoSettings { loss_percent: 10, jitter_ms: 10, ..DemoSettings::default() });
        run(&mut pair, Instant::ZERO, 20);
        for site in &pair.sites {
            let stats = site.session.stats();
            assert!(stats.frame.number() > 1_000, "{stats:?}");
            assert!(stats.resimulated > 0 && stats.stalls < 100, "{stats:?}");
        }
        let other = pair.sites[1].session.site();
        assert_eq!(pair.sites[0].session.peer_stats(Instant::ZERO, other).unwrap().mismatches, 0);
        assert!(pair.packet_counts().1 > 50);
        assert!(pair.comparison.count > 15 && pair.comparison.first_desync.is_none(), "{:?}", pair.comparison);
    }

    #[test]
    fn desync_is_detected_from_machine_hashes() {
        let machines: [Box<dyn Machine>; 2] =
            [Box::new(ToyMachine::new(1)), Box::new(ToyMachine::new(1).diverging_after(200))];
        let mut pair = SitePair::new(Instant::ZERO, machines, DemoSettings::default(), 5).unwrap();
        run(&mut pair, Instant::ZERO, 10);
        assert!(pair.comparison.first_desync.is_some_and(|frame| frame < 300), "{:?}", pair.comparison);
    }

    #[test]
    fn changed_delay_settings_restart_the_session_from_the_current_state() {
        let mut pair = site_pair(DemoSettings::default());
        let now = run(&mut pair, Instant::ZERO, 5);
        let before = pair.sites[0].session.stats().frame;
        pair.change_settings(now, DemoSettings { rtt_ms: 200, ..pair.settings() }).unwrap();
        assert_eq!(pair.sites[0].session.stats().frame, before, "a change of the link keeps the session");
        pair.change_settings(now, DemoSettings { input_delay: 8, prediction_window: 0, ..pair.settings() }).unwrap();
        let hashes = [0, 1].map(|site| pair.sites[site].adapter.machine_mut().hash());
        assert_eq!(hashes[0], hashes[1]);
        run(&mut pair, now, 10);
        let stats = pair.sites[0].session.stats();
        assert!(stats.frame.number() > 300 && stats.input_delay == 8 && stats.resimulated == 0, "{stats:?}");
    }

    #[test]
    fn auto_delay_adapts_to_the_link() {
        let settings = DemoSettings { rtt_ms: 300, auto_delay: true, ..DemoSettings::default() };
        let mut pair = site_pair(settings);
        run(&mut pair, Instant::ZERO, 20);
        let stats = pair.sites[0].session.stats();
        assert!(stats.input_delay + stats.prediction_window > 10, "{stats:?}");
        assert!(pair.comparison.first_desync.is_none(), "{:?}", pair.comparison);
    }

    #[test]
    fn idle_human_input_causes_no_misprediction() {
        let mut pair = site_pair(DemoSettings::default());
        pair.sites[0].human_input = Some(0);
        pair.sites[1].human_input = Some(0);
        run(&mut pair, Instant::ZERO, 5);
        assert_eq!(pair.sites[0].session.stats().resimulated, 0, "constant input is predicted correctly");
    }
}
