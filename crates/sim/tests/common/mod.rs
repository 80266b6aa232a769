//! A game in a simulated world, watched from outside: who stepped what and when, what was promised, and what the sessions told.
#![allow(dead_code, reason = "every test file uses another part of it")]

pub(crate) mod manual_hosts;
pub(crate) mod spectator_network;

use std::collections::BTreeMap;

use coplay::id::{SiteId, SiteSet};
use coplay::input::Ownership;
use coplay::session::{Config, Event, LateJoin, PeerStats, Session, SessionEnd, Settings, State, Stats};
use coplay::spectator_feed::SpectatorStart;
use coplay::time::{Instant, TimeDelta};
use coplay_sim::clock::NodeClock;
use coplay_sim::link::{LinkConfig, Loss};
use coplay_sim::session::checker::SessionChecker;
use coplay_sim::session_experiment::toy_settings;
use coplay_sim::session_network::{SessionNetwork, SiteEvent};
use coplay_sim::site::SimulatedSite;
use coplay_sim::toy_machine::ToyMachine;

/// The bits of a player's word: a pad with 16 buttons.
const PAD_MASK: u128 = 0xffff;

pub(crate) const fn ms(millis: i64) -> TimeDelta {
    TimeDelta::from_millis(millis)
}

pub(crate) const fn secs(secs: i64) -> TimeDelta {
    TimeDelta::from_secs(secs)
}

/// The true time so long after everything began.
pub(crate) fn at(since_start: TimeDelta) -> Instant {
    Instant::ZERO + since_start
}

pub(crate) fn site_id(site: usize) -> SiteId {
    SiteId::new(site as u8).expect("a site number")
}

pub(crate) fn site_set<const N: usize>(sites: [usize; N]) -> SiteSet {
    sites.into_iter().map(site_id).collect()
}

/// A link of this round trip that is perfect otherwise.
pub(crate) fn rtt_link(millis: i64) -> LinkConfig {
    LinkConfig::constant_rtt(ms(millis))
}

/// A link of this round trip that loses packets.
pub(crate) fn lossy_link(millis: i64, loss: f64) -> LinkConfig {
    LinkConfig { loss: Loss::Independent(loss), ..rtt_link(millis) }
}

/// What is to be played.
#[derive(Clone, Debug)]
pub(crate) struct SessionSetup {
    pub(crate) seed: u64,
    pub(crate) sites: usize,
    pub(crate) input_delay: u32,
    /// Frames that may be guessed.
    pub(crate) prediction_window: u32,
    pub(crate) input_mask: u128,
    pub(crate) link: LinkConfig,
    /// Each site's clock; those of sites that are not named are off by what a crystal is.
    pub(crate) clocks: Vec<NodeClock>,
}

impl SessionSetup {
    /// The toy at 60 frames per second with a lag of 6, over links that are all alike.
    pub(crate) fn new(sites: usize, link: LinkConfig) -> Self {
        Self { seed: 1, sites, input_delay: 6, prediction_window: 0, input_mask: PAD_MASK, link, clocks: Vec::new() }
    }

    /// How a site takes part if nothing special is asked for.
    pub(crate) fn config(&self, site: usize) -> Config {
        let ownership = Ownership::one_player_per_site(self.sites, self.input_mask);
        let settings =
            Settings { prediction_window: self.prediction_window, ..toy_settings(self.input_delay, ownership) };
        let config =
            Config::new(0x5e55_1011 + self.seed, site_id(site), SessionNetwork::peers(site, self.sites), settings);
        // What a search for differences keeps would be counted as saved for repairs.
        Config { bisect_desyncs: false, ..config }
    }

    pub(crate) fn start(&self) -> TestSession {
        self.start_with(|_, _| {})
    }

    /// Lets each site's way of taking part be changed first.
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
            let session = Session::new(clock.local(Instant::ZERO), config.clone()).expect("a sound config");
            let players = config.settings.ownership.players();
            let addr = SessionNetwork::address(number, 0);
            let mut site = SimulatedSite::new(session, clock, addr, players, self.seed * 100 + number as u64);
            site.player.mask = self.input_mask;
            site
        });
        let world = SessionNetwork::new(self.seed, sites.collect(), |_, _| self.link.clone());
        let ownership = |site: usize| &configs[site].settings.ownership;
        let owned =
            |site: usize| (0..ownership(site).players()).map(move |player| ownership(site).mask(site_id(site), player));
        let mut ledger =
            SessionChecker::new((0..self.sites).map(|site| owned(site).collect()).collect(), self.input_delay);
        ledger.absent_input = configs[0].settings.absent_input;
        ledger.delay_plus_prediction =
            (configs[0].settings.input_delay + configs[0].settings.prediction_window) as usize;
        TestSession {
            network: world,
            checker: ledger,
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

/// Clocks that show very different times and are off by up to 60 ppm, each in its own way.
fn crystal_clock(site: usize) -> NodeClock {
    let skew_ppm = [20.0, -35.0, 60.0, 0.0, -60.0, 5.0, 41.0, -12.0][site % 8];
    NodeClock { offset: secs(1_000 * (site as i64 * 7 % 5)), skew_ppm }
}

/// Something that a session told, and when in true time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReportedEvent {
    pub(crate) site: usize,
    pub(crate) at: Instant,
    pub(crate) event: Event,
}

/// What a site's machine was made to do, to which frame, and when in true time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MachineAction {
    pub(crate) at: Instant,
    pub(crate) kind: ActionKind,
    pub(crate) frame: u32,
}

/// What a machine can be made to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ActionKind {
    Save,
    Load,
    /// A step for the first time.
    FirstStep,
    /// A step once more.
    Resimulate,
    /// Nothing, but it will not step the frame again.
    Confirm,
}

/// A game under way.
#[derive(Debug)]
pub(crate) struct TestSession {
    pub(crate) network: SessionNetwork,
    pub(crate) checker: SessionChecker,
    pub(crate) configs: Vec<Config>,
    is_observed: Vec<bool>,
    /// When each frame was stepped, in true time, by site.
    pub(crate) step_times: Vec<Vec<Instant>>,
    /// The state after each frame, by site.
    pub(crate) state_hashes: Vec<Vec<u64>>,
    /// When each site took its newest input, in true time.
    pub(crate) last_sample_at: Vec<Instant>,
    /// What each site's machine was made to do, in order.
    pub(crate) actions: Vec<Vec<MachineAction>>,
    pub(crate) events: Vec<ReportedEvent>,
}

impl TestSession {
    pub(crate) fn run_until(&mut self, until: Instant) {
        let Self {
            network: world,
            checker: ledger,
            is_observed: watched,
            step_times: steps,
            state_hashes: hashes,
            last_sample_at: sampled,
            actions: done,
            events,
            ..
        } = self;
        let mut note = |site: usize, at: Instant, act: ActionKind, frame: u32| {
            if watched[site] {
                done[site].push(MachineAction { at, kind: act, frame });
            }
        };
        world.run_until(until, &mut |happened| match happened {
            SiteEvent::Sampled { site, at, frame, words } if watched[site] => {
                sampled[site] = at;
                ledger.on_sampled(site, frame, words);
            }
            SiteEvent::Saved { site, at, frame } => note(site, at, ActionKind::Save, frame),
            SiteEvent::Loaded { site, at, frame } => note(site, at, ActionKind::Load, frame),
            SiteEvent::Restored { site, frame } => ledger.on_restored(site, frame),
            SiteEvent::Stepped { site, at, frame, fresh: false, .. } => note(site, at, ActionKind::Resimulate, frame),
            SiteEvent::Stepped { site, at, frame, .. } if watched[site] => {
                note(site, at, ActionKind::FirstStep, frame);
                steps[site].push(at);
            }
            SiteEvent::Confirmed { site, at, frame, words, hash } if watched[site] => {
                note(site, at, ActionKind::Confirm, frame);
                ledger.on_confirmed(site, frame, words, hash);
                hashes[site].push(hash);
            }
            SiteEvent::Sampled { .. } | SiteEvent::Stepped { .. } | SiteEvent::Confirmed { .. } => {}
            SiteEvent::InvalidRequest { site, description: what } => panic!("site {site} {what}"),
            SiteEvent::SessionEvent { site, at, event } => {
                match event {
                    Event::Joined { site: joined, frame } => ledger.on_join(site, joined.index(), frame.number()),
                    Event::Dropped { site: dropped, frame } => ledger.on_drop(site, dropped.index(), frame.number()),
                    Event::Ended(SessionEnd::Dropped) => ledger.on_eviction_notice(site),
                    _ => {}
                }
                events.push(ReportedEvent { site, at, event });
            }
        });
    }

    pub(crate) fn run_for(&mut self, time: TimeDelta) {
        self.run_until(self.now() + time);
    }

    /// Runs until something holds; looks every millisecond and gives up after this long.
    #[track_caller]
    pub(crate) fn run_while(&mut self, limit: TimeDelta, still: impl Fn(&Self) -> bool) {
        let until = self.now() + limit;
        while still(self) {
            assert!(self.now() < until, "not within {limit}: {:?}", self.states());
            self.run_for(ms(1));
        }
    }

    /// Runs until every site has stepped so many frames.
    #[track_caller]
    pub(crate) fn run_frames(&mut self, frames: usize) {
        let limit = secs(20) + ms(frames as i64 * 100);
        self.run_while(limit, |game| game.step_times.iter().any(|steps| steps.len() < frames));
    }

    pub(crate) fn now(&self) -> Instant {
        self.network.now()
    }

    /// What a site's clock shows.
    pub(crate) fn local_time(&self, site: usize) -> Instant {
        self.network.sites[site].clock.local(self.now())
    }

    pub(crate) fn state(&self, site: usize) -> State {
        self.network.sites[site].session.state()
    }

    fn states(&self) -> Vec<State> {
        (0..self.network.sites.len()).map(|site| self.state(site)).collect()
    }

    pub(crate) fn stats(&self, site: usize) -> Stats {
        self.network.sites[site].session.stats()
    }

    /// The link of a site to a peer, as the site sees it.
    pub(crate) fn peer_stats(&self, site: usize, peer: usize) -> PeerStats {
        self.network.sites[site].session.peer_stats(self.local_time(site), site_id(peer)).expect("a peer")
    }

    /// What a site told, in order.
    pub(crate) fn events_of(&self, site: usize) -> impl Iterator<Item = &ReportedEvent> {
        self.events.iter().filter(move |told| told.site == site)
    }

    /// The first thing a site told that is of interest.
    pub(crate) fn find_event<T>(&self, site: usize, pick: impl Fn(&Event) -> Option<T>) -> Option<(Instant, T)> {
        self.events_of(site).find_map(|told| pick(&told.event).map(|picked| (told.at, picked)))
    }

    pub(crate) fn leave(&mut self, site: usize) {
        let local = self.local_time(site);
        self.network.sites[site].session.leave(local);
        self.checker.on_leave(site);
        self.network.wake(site);
    }

    /// The person at a site decides to go on alone; whether that was possible.
    pub(crate) fn continue_alone(&mut self, site: usize) -> bool {
        let local = self.local_time(site);
        let went = self.network.sites[site].session.continue_alone(local);
        self.network.wake(site);
        went
    }

    /// Stops a site dead.
    pub(crate) fn crash(&mut self, site: usize) {
        self.network.crash(site);
        self.checker.on_crash(site);
    }

    /// Cuts or heals all ways between some sites and all others.
    pub(crate) fn set_partition(&mut self, some: SiteSet, cut: bool) {
        for one in some.iter().map(SiteId::index) {
            for other in (0..self.network.sites.len()).filter(|other| !some.contains(site_id(*other))) {
                self.network.set_cut(one, other, cut);
            }
        }
    }

    /// Cuts or heals all ways to a site.
    pub(crate) fn set_isolated(&mut self, site: usize, cut: bool) {
        self.set_partition(site_set([site]), cut);
    }

    /// Starts a site's program anew, on the same computer. What it does from now on is not watched any more.
    pub(crate) fn restart(&mut self, site: usize) {
        self.configs[site].incarnation += 1;
        let session = Session::new(self.local_time(site), self.configs[site].clone()).expect("a sound config");
        let computer = &mut self.network.sites[site];
        computer.machine = ToyMachine::new(computer.machine.paddles.len());
        computer.session = session;
        self.is_observed[site] = false;
        self.network.wake(site);
    }

    /// Sites that are not there when the game starts. To be called before anything happens.
    pub(crate) fn set_late_joiners<const N: usize>(&mut self, sites: [usize; N]) {
        self.checker.late_joiners = (0..self.network.sites.len()).map(|site| sites.contains(&site)).collect();
        sites.into_iter().for_each(|site| self.network.crash(site));
    }

    /// A site that was not there, or has died, takes its seat in the running game.
    pub(crate) fn join(&mut self, site: usize, change: impl Fn(&mut Config)) {
        let config = &mut self.configs[site];
        config.incarnation += 1;
        config.late_join = Some(LateJoin { start: SpectatorStart::Snapshot, max_state_len: 1 << 20 });
        change(config);
        let session = Session::new(self.local_time(site), self.configs[site].clone()).expect("a sound config");
        self.checker.on_restart(site);
        self.events.retain(|told| told.site != site);
        self.step_times[site].clear();
        self.actions[site].clear();
        self.state_hashes[site].clear();
        self.network.restart(site, session);
    }

    /// Starts a site's program anew with another way of taking part, on the same computer.
    pub(crate) fn restart_with(&mut self, site: usize, change: impl Fn(&mut Config)) {
        change(&mut self.configs[site]);
        self.restart(site);
    }

    /// Frames per second of a site between two instants.
    pub(crate) fn fps(&self, site: usize, from: Instant, until: Instant) -> f64 {
        let frames = self.step_times[site].iter().filter(|step| (from..until).contains(*step)).count();
        frames as f64 / (until - from).as_secs_f64()
    }

    /// The times from each frame to the next, in milliseconds, for frames that a site stepped since then.
    pub(crate) fn frame_times(&self, site: usize, since: Instant) -> Vec<f64> {
        let steps = &self.step_times[site];
        let first = steps.partition_point(|step| *step < since);
        steps[first..].windows(2).map(|pair| (pair[1] - pair[0]).as_millis_f64()).collect()
    }

    /// The largest difference, in milliseconds, between two sites' steps of a frame since then.
    pub(crate) fn worst_start_skew_ms(&self, since: Instant) -> f64 {
        let frames = self.step_times.iter().map(Vec::len).min().unwrap_or(0);
        let spread = |frame: usize| {
            let times = self.step_times.iter().map(|steps| steps[frame]);
            times.clone().max().expect("a site") - times.min().expect("a site")
        };
        let of_late = (0..frames).filter(|frame| self.step_times[0][*frame] >= since);
        of_late.map(|frame| spread(frame).as_millis_f64()).fold(0.0, f64::max)
    }

    /// How often a site's machine was made to do something since then.
    pub(crate) fn count_actions(&self, site: usize, act: ActionKind, since: Instant) -> usize {
        self.actions[site].iter().filter(|done| done.kind == act && done.at >= since).count()
    }

    /// The state after each frame that a site is certain of, since its program was last started.
    pub(crate) fn confirmed_states(&self, site: usize) -> BTreeMap<u32, u64> {
        let confirmed = self.actions[site].iter().filter(|done| done.kind == ActionKind::Confirm);
        confirmed.zip(&self.state_hashes[site]).map(|(done, hash)| (done.frame, *hash)).collect()
    }

    /// Agreement and fidelity: everybody stepped the same, and just what the players did.
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

/// Mean absolute difference from the mean.
pub(crate) fn mean_abs_deviation(values: &[f64]) -> f64 {
    let mean = mean(values);
    values.iter().map(|value| (value - mean).abs()).sum::<f64>() / values.len() as f64
}
