//! A session on a simulated network, observed from outside: the steps of every site with their times, the inputs of the
//! players, and the events that the sessions report.

pub(crate) mod manual_hosts;
pub(crate) mod spectator_network;

use std::collections::BTreeMap;

use coplay::id::{SiteId, SiteSet};
use coplay::input::Ownership;
use coplay::session::{Config, Event, LateJoinConfig, PeerStats, Session, SessionEnd, Settings, State, Stats};
use coplay::spectator_feed::SpectatorStart;
use coplay::time::{Instant, TimeDelta};
use coplay_links::link::{LinkConfig, Loss};
use coplay_sim::clock::NodeClock;
use coplay_sim::network::Computer;
use coplay_sim::session::checker::SessionChecker;
use coplay_sim::session_experiment::toy_settings;
use coplay_sim::session_network::{SessionNetwork, SiteEvent};
use coplay_sim::site::SimulatedSite;
use coplay_sim::toy_machine::ToyMachine;

/// Input bits of one player: a pad with 16 buttons.
const PAD_MASK: u128 = 0xffff;

pub(crate) const fn ms(millis: i64) -> TimeDelta {
    TimeDelta::from_millis(millis)
}

pub(crate) const fn secs(secs: i64) -> TimeDelta {
    TimeDelta::from_secs(secs)
}

/// Returns the true time `since_start` after the start of the simulation.
pub(crate) fn at(since_start: TimeDelta) -> Instant {
    Instant::ZERO + since_start
}

pub(crate) fn site_id(site: usize) -> SiteId {
    SiteId::new(site as u8).expect("valid site number")
}

pub(crate) fn site_set<const N: usize>(sites: [usize; N]) -> SiteSet {
    sites.into_iter().map(site_id).collect()
}

/// Returns a link with a constant round-trip time, without jitter or loss.
pub(crate) fn rtt_link(millis: i64) -> LinkConfig {
    LinkConfig::constant_rtt(ms(millis))
}

/// Returns a link with a constant round-trip time and independent packet loss.
pub(crate) fn lossy_link(millis: i64, loss: f64) -> LinkConfig {
    LinkConfig { loss: Loss::Independent(loss), ..rtt_link(millis) }
}

/// Sites, links and settings of a test session with one player per site.
#[derive(Clone, Debug)]
pub(crate) struct SessionSetup {
    pub(crate) seed: u64,
    pub(crate) sites: usize,
    pub(crate) input_delay: u32,
    /// Prediction window in frames; 0 disables prediction.
    pub(crate) prediction_window: u32,
    pub(crate) input_mask: u128,
    pub(crate) link: LinkConfig,
    /// Clock of each site. A site beyond the end of this list gets its `crystal_clock`.
    pub(crate) clocks: Vec<NodeClock>,
}

impl SessionSetup {
    /// Sets up the toy machine at 60 frames per second with an input delay of 6 frames and equal links.
    pub(crate) fn new(sites: usize, link: LinkConfig) -> Self {
        Self { seed: 1, sites, input_delay: 6, prediction_window: 0, input_mask: PAD_MASK, link, clocks: Vec::new() }
    }

    /// Returns the configuration of `site` for these settings, without desync bisection.
    pub(crate) fn config(&self, site: usize) -> Config {
        let ownership = Ownership::one_player_per_site(self.sites, self.input_mask);
        let settings =
            Settings { prediction_window: self.prediction_window, ..toy_settings(self.input_delay, ownership) };
        let config =
            Config::new(0x5e55_1011 + self.seed, site_id(site), SessionNetwork::peers(site, self.sites), settings);
        // States saved for a desync bisection would be counted as rollback saves.
        Config { bisect_desyncs: false, ..config }
    }

    pub(crate) fn start(&self) -> TestSession {
        self.start_with(|_, _| {})
    }

    /// Starts the session after `change` has edited the configuration of each site.
    pub(crate) fn start_with(&self, change: impl Fn(usize, &mut Config)) -> TestSession {
        let configs: Vec<Config> = (0..self.sites)
            .map(|site| {
                let mut config = self.config(site);
                change(site, &mut config);
                config
            })
            .collect();
        let sites = configs.iter().enumerate().map(|(number, config)| {
            let clock = self.clocks.get(number).copied().unwrap_or_else(|| crystal_clock(number));
            let session = Session::new(clock.local(Instant::ZERO), config.clone()).expect("valid config");
            let players = config.settings.ownership.players();
            let site = SimulatedSite::new(session, players, self.seed * 100 + number as u64);
            let mut site = Computer::new(site, clock, SessionNetwork::address(number, 0));
            site.player.mask = self.input_mask;
            site
        });
        let network = SessionNetwork::new(self.seed, sites.collect(), |_, _| self.link.clone());
        let ownership = |site: usize| &configs[site].settings.ownership;
        let owned =
            |site: usize| (0..ownership(site).players()).map(move |player| ownership(site).mask(site_id(site), player));
        let mut checker =
            SessionChecker::new((0..self.sites).map(|site| owned(site).collect()).collect(), self.input_delay);
        checker.absent_input = configs[0].settings.absent_input;
        checker.delay_plus_prediction =
            (configs[0].settings.input_delay + configs[0].settings.prediction_window) as usize;
        TestSession {
            network,
            checker,
            configs,
            is_observed: vec![true; self.sites],
            step_times: vec![Vec::new(); self.sites],
            state_hashes: vec![Vec::new(); self.sites],
            last_sample_at: vec![Instant::ZERO; self.sites],
            actions: vec![Vec::new(); self.sites],
            events: Vec::new(),
        }
    }
}

/// Returns the default clock of a site, with an offset of up to 4,000 s and a skew of up to 60 ppm.
fn crystal_clock(site: usize) -> NodeClock {
    let skew_ppm = [20.0, -35.0, 60.0, 0.0, -60.0, 5.0, 41.0, -12.0][site % 8];
    NodeClock { offset: secs(1_000 * (site as i64 * 7 % 5)), skew_ppm }
}

/// Event that a session reported, with its true time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReportedEvent {
    pub(crate) site: usize,
    pub(crate) at: Instant,
    pub(crate) event: Event,
}

/// Action of a site's machine, or confirmation of a frame, with the frame and the true time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MachineAction {
    pub(crate) at: Instant,
    pub(crate) kind: ActionKind,
    pub(crate) frame: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ActionKind {
    Save,
    Load,
    /// Fresh step: the first step of a frame, for display.
    FirstStep,
    /// Repeated step of a frame after a rollback, or step of a joiner that catches up.
    Resimulate,
    /// Confirmation of a frame: no rollback will step it again.
    Confirm,
}

/// Running test session and everything observed of it so far.
#[derive(Debug)]
pub(crate) struct TestSession {
    pub(crate) network: SessionNetwork,
    pub(crate) checker: SessionChecker,
    pub(crate) configs: Vec<Config>,
    is_observed: Vec<bool>,
    /// True time of the first step of each frame, by site.
    pub(crate) step_times: Vec<Vec<Instant>>,
    /// State hash after each confirmed frame, by site.
    pub(crate) state_hashes: Vec<Vec<u64>>,
    /// True time at which each site sampled its newest input.
    pub(crate) last_sample_at: Vec<Instant>,
    /// Actions of each site's machine and confirmations of its frames, in order.
    pub(crate) actions: Vec<Vec<MachineAction>>,
    pub(crate) events: Vec<ReportedEvent>,
}

impl TestSession {
    pub(crate) fn run_until(&mut self, until: Instant) {
        let Self { network, checker, is_observed, step_times, state_hashes, last_sample_at, actions, events, .. } =
            self;
        let mut record_action = |site: usize, at: Instant, kind: ActionKind, frame: u32| {
            if is_observed[site] {
                actions[site].push(MachineAction { at, kind, frame });
            }
        };
        network.run_until(until, &mut |site_event| match site_event {
            SiteEvent::Sampled { site, at, frame, words } if is_observed[site] => {
                last_sample_at[site] = at;
                checker.on_sampled(site, frame, words);
            }
            SiteEvent::Saved { site, at, frame } => record_action(site, at, ActionKind::Save, frame),
            SiteEvent::Loaded { site, at, frame } => record_action(site, at, ActionKind::Load, frame),
            SiteEvent::Restored { site, frame } => checker.on_restored(site, frame),
            SiteEvent::Stepped { site, at, frame, fresh: false, .. } => {
                record_action(site, at, ActionKind::Resimulate, frame)
            }
            SiteEvent::Stepped { site, at, frame, .. } if is_observed[site] => {
                record_action(site, at, ActionKind::FirstStep, frame);
                step_times[site].push(at);
            }
            SiteEvent::Confirmed { site, at, frame, words, hash } if is_observed[site] => {
                record_action(site, at, ActionKind::Confirm, frame);
                checker.on_confirmed(site, frame, words, hash);
                state_hashes[site].push(hash);
            }
            SiteEvent::Sampled { .. } | SiteEvent::Stepped { .. } | SiteEvent::Confirmed { .. } => {}
            SiteEvent::InvalidRequest { site, description } => panic!("site {site} {description}"),
            SiteEvent::SessionEvent { site, at, event } => {
                match event {
                    Event::Joined { site: joined, frame } => checker.on_join(site, joined.index(), frame.number()),
                    Event::Dropped { site: dropped, frame } => checker.on_drop(site, dropped.index(), frame.number()),
                    Event::Ended(SessionEnd::Dropped) => checker.on_eviction_notice(site),
                    _ => {}
                }
                events.push(ReportedEvent { site, at, event });
            }
        });
    }

    pub(crate) fn run_for(&mut self, time: TimeDelta) {
        self.run_until(self.now() + time);
    }

    /// Runs while `still` holds, which is checked every millisecond. Panics if it still holds after `limit`.
    #[track_caller]
    pub(crate) fn run_while(&mut self, limit: TimeDelta, still: impl Fn(&Self) -> bool) {
        let until = self.now() + limit;
        while still(self) {
            assert!(self.now() < until, "the condition still holds after {limit}: {:?}", self.states());
            self.run_for(ms(1));
        }
    }

    /// Runs until every site has stepped `frames` frames.
    #[track_caller]
    pub(crate) fn run_frames(&mut self, frames: usize) {
        let limit = secs(20) + ms(frames as i64 * 100);
        self.run_while(limit, |game| game.step_times.iter().any(|steps| steps.len() < frames));
    }

    pub(crate) fn now(&self) -> Instant {
        self.network.now()
    }

    /// Returns the time that the clock of `site` shows now.
    pub(crate) fn local_time(&self, site: usize) -> Instant {
        self.network.nodes[site].clock.local(self.now())
    }

    pub(crate) fn state(&self, site: usize) -> State {
        self.network.nodes[site].session.state()
    }

    fn states(&self) -> Vec<State> {
        (0..self.network.nodes.len()).map(|site| self.state(site)).collect()
    }

    pub(crate) fn stats(&self, site: usize) -> Stats {
        self.network.nodes[site].session.stats()
    }

    /// Returns the statistics of `site` about its link to `peer`.
    pub(crate) fn peer_stats(&self, site: usize, peer: usize) -> PeerStats {
        self.network.nodes[site].session.peer_stats(self.local_time(site), site_id(peer)).expect("a peer")
    }

    /// Returns the events that `site` reported, in order.
    pub(crate) fn events_of(&self, site: usize) -> impl Iterator<Item = &ReportedEvent> {
        self.events.iter().filter(move |reported| reported.site == site)
    }

    /// Returns the first event of `site` that `pick` accepts, with its true time.
    pub(crate) fn find_event<T>(&self, site: usize, pick: impl Fn(&Event) -> Option<T>) -> Option<(Instant, T)> {
        self.events_of(site).find_map(|reported| pick(&reported.event).map(|picked| (reported.at, picked)))
    }

    pub(crate) fn leave(&mut self, site: usize) {
        let local = self.local_time(site);
        self.network.nodes[site].session.leave(local);
        self.checker.on_leave(site);
        self.network.wake(site);
    }

    /// Asks the session of `site` to continue alone, as its player would. Returns whether the session agreed.
    pub(crate) fn continue_alone(&mut self, site: usize) -> bool {
        let local = self.local_time(site);
        let accepted = self.network.nodes[site].session.continue_alone(local);
        self.network.wake(site);
        accepted
    }

    /// Crashes a site: it stops without a leave message.
    pub(crate) fn crash(&mut self, site: usize) {
        self.network.crash(site);
        self.checker.on_crash(site);
    }

    /// Cuts or heals all links between `some` and all other sites.
    pub(crate) fn set_partition(&mut self, some: SiteSet, cut: bool) {
        for one in some.iter().map(SiteId::index) {
            for other in (0..self.network.nodes.len()).filter(|other| !some.contains(site_id(*other))) {
                self.network.set_cut(one, other, cut);
            }
        }
    }

    /// Cuts or heals all links of `site`.
    pub(crate) fn set_isolated(&mut self, site: usize, cut: bool) {
        self.set_partition(site_set([site]), cut);
    }

    /// Restarts the program of `site` on the same computer with the next incarnation. Its inputs and machine actions
    /// are no longer recorded; its events still are.
    pub(crate) fn restart(&mut self, site: usize) {
        self.configs[site].incarnation += 1;
        let session = Session::new(self.local_time(site), self.configs[site].clone()).expect("valid config");
        let computer = &mut self.network.nodes[site];
        computer.machine = ToyMachine::new(computer.machine.paddles.len());
        computer.session = session;
        self.is_observed[site] = false;
        self.network.wake(site);
    }

    /// Marks sites as absent at the start of the session. Call this before the first run.
    pub(crate) fn set_late_joiners<const N: usize>(&mut self, sites: [usize; N]) {
        self.checker.late_joiners = (0..self.network.nodes.len()).map(|site| sites.contains(&site)).collect();
        sites.into_iter().for_each(|site| self.network.crash(site));
    }

    /// Lets an absent or crashed site join the running session by snapshot, with the next incarnation and after
    /// `change` has edited its configuration. Discards the recorded events, steps and actions of the site.
    pub(crate) fn join(&mut self, site: usize, change: impl Fn(&mut Config)) {
        let config = &mut self.configs[site];
        config.incarnation += 1;
        config.late_join = Some(LateJoinConfig { start: SpectatorStart::Snapshot, max_state_len: 1 << 20 });
        change(config);
        let session = Session::new(self.local_time(site), self.configs[site].clone()).expect("valid config");
        self.checker.on_restart(site);
        self.events.retain(|reported| reported.site != site);
        self.step_times[site].clear();
        self.actions[site].clear();
        self.state_hashes[site].clear();
        self.network.restart(site, session);
    }

    /// Restarts the program of `site` like [`restart`](Self::restart), after `change` has edited its configuration.
    pub(crate) fn restart_with(&mut self, site: usize, change: impl Fn(&mut Config)) {
        change(&mut self.configs[site]);
        self.restart(site);
    }

    /// Returns the frame rate of `site` between two instants: frames stepped for the first time, per second.
    pub(crate) fn fps(&self, site: usize, from: Instant, until: Instant) -> f64 {
        let frames = self.step_times[site].iter().filter(|step| (from..until).contains(*step)).count();
        frames as f64 / (until - from).as_secs_f64()
    }

    /// Returns the frame times of `site` in milliseconds, for the frames stepped at or after `since`.
    pub(crate) fn frame_times(&self, site: usize, since: Instant) -> Vec<f64> {
        let steps = &self.step_times[site];
        let first = steps.partition_point(|step| *step < since);
        steps[first..].windows(2).map(|pair| (pair[1] - pair[0]).as_millis_f64()).collect()
    }

    /// Returns the largest difference, in milliseconds, between the times at which any two sites first stepped the same
    /// frame, over the frames that site 0 stepped at or after `since`.
    pub(crate) fn worst_start_skew_ms(&self, since: Instant) -> f64 {
        let frames = self.step_times.iter().map(Vec::len).min().unwrap_or(0);
        let spread = |frame: usize| {
            let times = self.step_times.iter().map(|steps| steps[frame]);
            times.clone().max().expect("a site") - times.min().expect("a site")
        };
        let recent = (0..frames).filter(|frame| self.step_times[0][*frame] >= since);
        recent.map(|frame| spread(frame).as_millis_f64()).fold(0.0, f64::max)
    }

    /// Returns the number of actions of one kind that the machine of `site` has performed since `since`.
    pub(crate) fn count_actions(&self, site: usize, kind: ActionKind, since: Instant) -> usize {
        self.actions[site].iter().filter(|action| action.kind == kind && action.at >= since).count()
    }

    /// Returns the state hash after each frame that `site` has confirmed since its program was last started.
    pub(crate) fn confirmed_states(&self, site: usize) -> BTreeMap<u32, u64> {
        let confirmed = self.actions[site].iter().filter(|action| action.kind == ActionKind::Confirm);
        confirmed.zip(&self.state_hashes[site]).map(|(action, hash)| (action.frame, *hash)).collect()
    }

    /// Asserts that the checker finds no violation of agreement or fidelity: in every frame that counts, the sites that
    /// confirmed it used the same inputs, reached the same state, and these inputs are those of the players.
    #[track_caller]
    pub(crate) fn assert_consistent(&self) {
        let violations = self.checker.find_violations();
        assert!(violations.is_empty(), "{violations:#?}");
    }
}

pub(crate) fn mean(values: &[f64]) -> f64 {
    assert!(!values.is_empty(), "no values");
    values.iter().sum::<f64>() / values.len() as f64
}

/// Returns the mean absolute difference from the mean.
pub(crate) fn mean_abs_deviation(values: &[f64]) -> f64 {
    let mean = mean(values);
    values.iter().map(|value| (value - mean).abs()).sum::<f64>() / values.len() as f64
}
