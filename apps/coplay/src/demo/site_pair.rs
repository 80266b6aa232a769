//! Two sites that share a game over a link that is as bad as one likes, in one process.
//!
//! Pure: time comes from outside. So the same world runs in real time in front of somebody, and in virtual time as fast as it goes.

use std::collections::BTreeMap;

use coplay::id::{Addr, SiteId};
use coplay::input::{InputWord, MAX_PLAYERS};
use coplay::session::Session;
use coplay::time::{Instant, TimeDelta};
use coplay::wire::MAX_DATAGRAM;
use coplay_machines::identity::game_id;
use coplay_machines::session_adapter::{self, RequestOutcome, SessionAdapter};
use coplay_machines::{Machine, NetplaySupport};
use coplay_sim::link::{Delay, Jitter, Link, LinkConfig, Loss};

use super::tennis_bot::TennisBot;
use crate::bot::Bot;
use crate::error::AppError;
use crate::game::GameImage;

/// States are compared this often, in frames.
pub const COMPARE_INTERVAL: u32 = 60;

/// How bad the link is, and how the game is shared over it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DemoSettings {
    /// There and back, in milliseconds.
    pub rtt_ms: u32,
    /// What is added on the way, in the mean, in milliseconds.
    pub jitter_ms: u32,
    /// Packets that never arrive, in percent.
    pub loss_percent: u32,
    /// By how many frames local input is delayed.
    pub input_delay: u32,
    /// How many frames may be guessed.
    pub prediction_window: u32,
}

impl Default for DemoSettings {
    fn default() -> Self {
        Self { rtt_ms: 80, jitter_ms: 5, loss_percent: 1, input_delay: 2, prediction_window: 8 }
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

/// One site.
pub struct DemoSite {
    /// Its end of the game.
    pub session: Session,
    adapter: SessionAdapter,
    bot: Bot,
    /// Plays the tennis that comes with the program.
    tennis_bot: Option<TennisBot>,
    /// What a person presses here; a bot plays where there is none.
    pub human_input: Option<InputWord>,
    /// When the newest frame was stepped for the first time, and its number.
    pub newest_frame: (u32, Instant),
    /// There is a picture that was not there before.
    pub has_new_picture: bool,
    /// The past was repaired since the last fresh frame.
    pub has_rolled_back: bool,
    /// Hashes of states that were asked for and are not compared yet, by frame.
    state_hashes: BTreeMap<u32, u64>,
}

/// What came of comparing the states of both sites.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateComparison {
    /// How often they were compared.
    pub count: u64,
    /// The first frame after which they differed.
    pub first_desync: Option<u32>,
}

/// Both sites, and what is on the way between them.
pub struct SitePair {
    /// The sites.
    pub sites: [DemoSite; 2],
    links: [Link; 2],
    /// What arrives when, at which site.
    in_flight: Vec<(Instant, usize, Vec<u8>)>,
    buffer: [u8; MAX_DATAGRAM],
    settings: DemoSettings,
    /// Sessions so far.
    session_number: u64,
    /// When the sites began the same frame, how far apart that was.
    pub frame_start_skew: TimeDelta,
    /// Whether the sites played the same, by what their machines say and not by what their sessions do.
    pub comparison: StateComparison,
}

impl SitePair {
    /// A world of two equal machines.
    pub fn new(
        now: Instant,
        machines: [Box<dyn Machine>; 2],
        terms: DemoSettings,
        seed: u64,
    ) -> Result<Self, AppError> {
        let [first, second] = machines;
        let links = ["there", "back"].map(|name| Link::new(terms.link_config(), seed, name));
        let site = |number: usize, machine: Box<dyn Machine>| {
            let session = new_session(now, number, &*machine, terms, 1)?;
            let pads = machine.pads();
            let pad = pads
                .get(number)
                .or(pads.first())
                .cloned()
                .unwrap_or_else(|| coplay_machines::pad::Pad::with_buttons(&[]));
            let bot = Bot::new(seed, number, &pad);
            let newest = (0, now);
            let tennis = is_tennis(&*machine).then(|| TennisBot::new(seed, number));
            let hosted = SessionAdapter::new(machine);
            let digests = BTreeMap::new();
            Ok(DemoSite {
                session,
                adapter: hosted,
                bot,
                tennis_bot: tennis,
                human_input: None,
                newest_frame: newest,
                has_new_picture: false,
                has_rolled_back: false,
                state_hashes: digests,
            })
        };
        let sites = [site(0, first)?, site(1, second)?];
        let buffer = [0; MAX_DATAGRAM];
        let (apart, compared) = (TimeDelta::ZERO, StateComparison::default());
        Ok(Self {
            sites,
            links,
            in_flight: vec![],
            buffer,
            settings: terms,
            session_number: 1,
            frame_start_skew: apart,
            comparison: compared,
        })
    }

    /// How things are.
    pub fn settings(&self) -> DemoSettings {
        self.settings
    }

    /// Changes how things are. The link changes at once. Lag and window are agreed on when a session starts, so for those
    /// a new one does, from where the game is; where states are not exact, from its beginning.
    pub fn change_settings(&mut self, now: Instant, terms: DemoSettings) -> Result<(), AppError> {
        let restart = (terms.input_delay, terms.prediction_window)
            != (self.settings.input_delay, self.settings.prediction_window);
        self.settings = terms;
        self.links.iter_mut().for_each(|link| link.set_config(terms.link_config()));
        if restart { self.restart_sessions(now) } else { Ok(()) }
    }

    fn restart_sessions(&mut self, now: Instant) -> Result<(), AppError> {
        self.session_number += 1;
        self.in_flight.clear();
        let unfit = |error: String| AppError::failure(format!("the game cannot go on in a new session: {error}"));
        let (mut state, exact) = (vec![], self.sites[0].machine().netplay_support() == NetplaySupport::Rollback);
        if exact {
            self.sites[0].adapter.machine_mut().save(&mut state).map_err(|error| unfit(error.to_string()))?;
        }
        for (number, site) in self.sites.iter_mut().enumerate() {
            let machine = site.adapter.machine_mut();
            match exact {
                true => machine.load(&state).map_err(|error| unfit(error.to_string()))?,
                false => machine.reset(),
            }
            site.state_hashes.clear();
            site.session = new_session(now, number, site.adapter.machine(), self.settings, self.session_number)?;
            site.newest_frame = (0, now);
        }
        Ok(())
    }

    /// Lets everything happen that is due.
    pub fn advance(&mut self, now: Instant) -> Result<(), AppError> {
        for (_, to, bytes) in self.in_flight.extract_if(.., |(at, ..)| *at <= now) {
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
        let [(first, at), (second, then)] = [self.sites[0].newest_frame, self.sites[1].newest_frame];
        if first == second {
            self.frame_start_skew = (at - then).abs();
        }
        Ok(())
    }

    /// Compares all states that are certain at both sites.
    fn compare_confirmed_states(&mut self) {
        let [first, second] = &mut self.sites;
        let certain = [&*first, &*second].map(|site| site.session.stats().confirmed.number());
        let certain = certain[0].min(certain[1]);
        while let Some(ours) = first.state_hashes.first_entry().filter(|ours| *ours.key() < certain) {
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
            for at in self.links[from].send(now, packet.len) {
                self.in_flight.push((at, 1 - from, self.buffer[..packet.len].to_vec()));
            }
        }
    }

    /// When something happens next.
    pub fn next_event(&self) -> Option<Instant> {
        let arrivals = self.in_flight.iter().map(|(at, ..)| *at);
        let timers = self.sites.iter().filter_map(|site| site.session.poll_timeout());
        arrivals.chain(timers).min()
    }

    /// Packets that were sent, and that were lost.
    pub fn packet_counts(&self) -> (u64, u64) {
        self.links.iter().map(|link| link.stats()).fold((0, 0), |sum, link| (sum.0 + link.sent, sum.1 + link.lost))
    }
}

impl DemoSite {
    /// The machine.
    pub fn machine(&self) -> &dyn Machine {
        self.adapter.machine()
    }

    /// What is pressed here if nobody does.
    fn bot_input(&mut self) -> InputWord {
        let lag = self.session.stats().input_delay;
        let played = self.tennis_bot.as_mut().and_then(|player| player.press(self.adapter.machine_mut(), lag));
        played.unwrap_or_else(|| self.bot.press())
    }

    /// Does one thing that the session asks for; `false` if there is none.
    fn serve_request(&mut self, now: Instant) -> Result<bool, AppError> {
        let Some(turn) = self.adapter.handle_next_request(now, &mut self.session) else { return Ok(false) };
        match turn {
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
            RequestOutcome::Failed(trouble) => {
                return Err(AppError::failure(format!("the game cannot be shared any further: {trouble}")));
            }
            // A frame that is repaired is hashed again, and the last one counts.
            RequestOutcome::Hashed { frame } => {
                _ = self.state_hashes.insert(frame.number(), self.adapter.machine_mut().hash())
            }
            RequestOutcome::Saved { .. } | RequestOutcome::Loaded { .. } | RequestOutcome::SideWork => {}
        }
        Ok(true)
    }
}

/// Whether this is the game that comes with the program.
fn is_tennis(machine: &dyn Machine) -> bool {
    GameImage::bundled().is_some_and(|game| game_id("", &game.bytes).hash == machine.game_id().hash)
}

fn new_session(
    now: Instant,
    number: usize,
    machine: &dyn Machine,
    terms: DemoSettings,
    round: u64,
) -> Result<Session, AppError> {
    let DemoSettings { input_delay: lag, prediction_window: window, .. } = terms;
    let shared = session_adapter::SessionOptions {
        sites: 2,
        input_delay: lag,
        prediction_window: window,
        auto_delay: false,
        hash_interval: COMPARE_INTERVAL,
    };
    let settings = session_adapter::settings(machine, shared);
    let ids: Vec<SiteId> = SiteId::first(2).collect();
    let peers = vec![(ids[1 - number], Addr(1 - number as u64))];
    let config = session_adapter::config(machine, round, ids[number], peers, settings);
    Session::new(now, config).map_err(|error| AppError::failure(format!("this game cannot be shared so: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::toy_machine::ToyMachine;

    fn site_pair(terms: DemoSettings) -> SitePair {
        let machine = || -> Box<dyn Machine> { Box::new(ToyMachine::new(1)) };
        SitePair::new(Instant::ZERO, [machine(), machine()], terms, 5).unwrap()
    }

    fn run(world: &mut SitePair, mut now: Instant, seconds: i64) -> Instant {
        let end = now + TimeDelta::from_secs(seconds);
        while now < end {
            world.advance(now).unwrap();
            now = world.next_event().unwrap().max(now + TimeDelta::from_nanos(1));
        }
        now
    }

    #[test]
    fn states_stay_equal_over_a_lossy_jittery_link() {
        let mut world = site_pair(DemoSettings { loss_percent: 10, jitter_ms: 10, ..DemoSettings::default() });
        run(&mut world, Instant::ZERO, 20);
        for site in &world.sites {
            let stats = site.session.stats();
            assert!(stats.frame.number() > 1_000, "{stats:?}");
            assert!(stats.resimulated > 0 && stats.stalls < 100, "{stats:?}");
        }
        let other = world.sites[1].session.site();
        assert_eq!(world.sites[0].session.peer_stats(Instant::ZERO, other).unwrap().mismatches, 0);
        assert!(world.packet_counts().1 > 50);
        assert!(world.comparison.count > 15 && world.comparison.first_desync.is_none(), "{:?}", world.comparison);
    }

    #[test]
    fn desync_is_detected_from_machine_hashes() {
        let machines: [Box<dyn Machine>; 2] =
            [Box::new(ToyMachine::new(1)), Box::new(ToyMachine::new(1).diverging_after(200))];
        let mut world = SitePair::new(Instant::ZERO, machines, DemoSettings::default(), 5).unwrap();
        run(&mut world, Instant::ZERO, 10);
        assert!(world.comparison.first_desync.is_some_and(|frame| frame < 300), "{:?}", world.comparison);
    }

    #[test]
    fn changed_delay_settings_restart_the_session_from_the_current_state() {
        let mut world = site_pair(DemoSettings::default());
        let now = run(&mut world, Instant::ZERO, 5);
        let before = world.sites[0].session.stats().frame;
        world.change_settings(now, DemoSettings { rtt_ms: 200, ..world.settings() }).unwrap();
        assert_eq!(world.sites[0].session.stats().frame, before, "another link is no other session");
        world.change_settings(now, DemoSettings { input_delay: 8, prediction_window: 0, ..world.settings() }).unwrap();
        let hashes = [0, 1].map(|site| world.sites[site].adapter.machine_mut().hash());
        assert_eq!(hashes[0], hashes[1]);
        run(&mut world, now, 10);
        let stats = world.sites[0].session.stats();
        assert!(stats.frame.number() > 300 && stats.input_delay == 8 && stats.resimulated == 0, "{stats:?}");
    }

    #[test]
    fn idle_human_input_causes_no_misprediction() {
        let mut world = site_pair(DemoSettings::default());
        world.sites[0].human_input = Some(0);
        world.sites[1].human_input = Some(0);
        run(&mut world, Instant::ZERO, 5);
        assert_eq!(world.sites[0].session.stats().resimulated, 0, "who presses nothing is guessed rightly");
    }
}
