//! A game in a simulated world, watched from outside: who stepped what and when, what was promised, and what the sessions told.
#![allow(dead_code, reason = "every test file uses another part of it")]

pub(crate) mod by_hand;
pub(crate) mod stand;

use std::collections::BTreeMap;

use coplay::id::{SiteId, SiteSet};
use coplay::input::Ownership;
use coplay::session::{Config, Event, LateJoin, PeerStats, Session, SessionEnd, Settings, State, Stats};
use coplay::spectator_feed::SpectatorStart;
use coplay::time::{Instant, TimeDelta};
use coplay_sim::check::Ledger;
use coplay_sim::clock::NodeClock;
use coplay_sim::link::{LinkConfig, Loss};
use coplay_sim::measure::toy_settings;
use coplay_sim::site::Site;
use coplay_sim::toy::Toy;
use coplay_sim::world::{Happened, World};

/// The bits of a player's word: a pad with 16 buttons.
const PAD: u128 = 0xffff;

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

pub(crate) fn id(site: usize) -> SiteId {
    SiteId::new(site as u8).expect("a site number")
}

pub(crate) fn set<const N: usize>(sites: [usize; N]) -> SiteSet {
    sites.into_iter().map(id).collect()
}

/// A link of this round trip that is perfect otherwise.
pub(crate) fn rtt(millis: i64) -> LinkConfig {
    LinkConfig::constant_rtt(ms(millis))
}

/// A link of this round trip that loses packets.
pub(crate) fn lossy(millis: i64, loss: f64) -> LinkConfig {
    LinkConfig { loss: Loss::Independent(loss), ..rtt(millis) }
}

/// What is to be played.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) seed: u64,
    pub(crate) sites: usize,
    pub(crate) lag: u32,
    /// Frames that may be guessed.
    pub(crate) window: u32,
    pub(crate) mask: u128,
    pub(crate) link: LinkConfig,
    /// Each site's clock; those of sites that are not named are off by what a crystal is.
    pub(crate) clocks: Vec<NodeClock>,
}

impl Setup {
    /// The toy at 60 frames per second with a lag of 6, over links that are all alike.
    pub(crate) fn new(sites: usize, link: LinkConfig) -> Self {
        Self { seed: 1, sites, lag: 6, window: 0, mask: PAD, link, clocks: Vec::new() }
    }

    /// How a site takes part if nothing special is asked for.
    pub(crate) fn config(&self, site: usize) -> Config {
        let ownership = Ownership::one_player_per_site(self.sites, self.mask);
        let settings = Settings { prediction_window: self.window, ..toy_settings(self.lag, ownership) };
        let config = Config::new(0x5e55_1011 + self.seed, id(site), World::peers(site, self.sites), settings);
        // What a search for differences keeps would be counted as saved for repairs.
        Config { bisect_desyncs: false, ..config }
    }

    pub(crate) fn play(&self) -> Game {
        self.play_with(|_, _| {})
    }

    /// Lets each site's way of taking part be changed first.
    pub(crate) fn play_with(&self, change: impl Fn(usize, &mut Config)) -> Game {
        let configs: Vec<Config> = (0..self.sites)
            .map(|site| {
                let mut config = self.config(site);
                change(site, &mut config);
                config
            })
            .collect();
        let sites = configs.iter().enumerate().map(|(number, config)| {
            let clock = self.clocks.get(number).copied().unwrap_or_else(|| crystal(number));
            let session = Session::new(clock.local(Instant::ZERO), config.clone()).expect("a sound config");
            let players = config.settings.ownership.players();
            let addr = World::address(number, 0);
            let mut site = Site::new(session, clock, addr, players, self.seed * 100 + number as u64);
            site.player.mask = self.mask;
            site
        });
        let world = World::new(self.seed, sites.collect(), |_, _| self.link.clone());
        let ownership = |site: usize| &configs[site].settings.ownership;
        let owned =
            |site: usize| (0..ownership(site).players()).map(move |player| ownership(site).mask(id(site), player));
        let mut ledger = Ledger::new((0..self.sites).map(|site| owned(site).collect()).collect(), self.lag);
        ledger.absent = configs[0].settings.absent_input;
        ledger.reach = (configs[0].settings.input_delay + configs[0].settings.prediction_window) as usize;
        Game {
            world,
            ledger,
            configs,
            watched: vec![true; self.sites],
            steps: vec![Vec::new(); self.sites],
            hashes: vec![Vec::new(); self.sites],
            sampled: vec![Instant::ZERO; self.sites],
            done: vec![Vec::new(); self.sites],
            events: Vec::new(),
        }
    }
}

/// Clocks that show very different times and are off by up to 60 ppm, each in its own way.
fn crystal(site: usize) -> NodeClock {
    let skew_ppm = [20.0, -35.0, 60.0, 0.0, -60.0, 5.0, 41.0, -12.0][site % 8];
    NodeClock { offset: secs(1_000 * (site as i64 * 7 % 5)), skew_ppm }
}

/// Something that a session told, and when in true time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) site: usize,
    pub(crate) at: Instant,
    pub(crate) event: Event,
}

/// What a site's machine was made to do, to which frame, and when in true time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Done {
    pub(crate) at: Instant,
    pub(crate) act: Act,
    pub(crate) frame: u32,
}

/// What a machine can be made to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    Save,
    Load,
    /// A step for the first time.
    Fresh,
    /// A step once more.
    Again,
    /// Nothing, but it will not step the frame again.
    Confirm,
}

/// A game under way.
#[derive(Debug)]
pub(crate) struct Game {
    pub(crate) world: World,
    pub(crate) ledger: Ledger,
    pub(crate) configs: Vec<Config>,
    watched: Vec<bool>,
    /// When each frame was stepped, in true time, by site.
    pub(crate) steps: Vec<Vec<Instant>>,
    /// The state after each frame, by site.
    pub(crate) hashes: Vec<Vec<u64>>,
    /// When each site took its newest input, in true time.
    pub(crate) sampled: Vec<Instant>,
    /// What each site's machine was made to do, in order.
    pub(crate) done: Vec<Vec<Done>>,
    pub(crate) events: Vec<Told>,
}

impl Game {
    pub(crate) fn run_until(&mut self, until: Instant) {
        let Self { world, ledger, watched, steps, hashes, sampled, done, events, .. } = self;
        let mut note = |site: usize, at: Instant, act: Act, frame: u32| {
            if watched[site] {
                done[site].push(Done { at, act, frame });
            }
        };
        world.run_until(until, &mut |happened| match happened {
            Happened::Sampled { site, at, frame, words } if watched[site] => {
                sampled[site] = at;
                ledger.on_promise(site, frame, words);
            }
            Happened::Saved { site, at, frame } => note(site, at, Act::Save, frame),
            Happened::Loaded { site, at, frame } => note(site, at, Act::Load, frame),
            Happened::Restored { site, frame } => ledger.on_restored(site, frame),
            Happened::Stepped { site, at, frame, fresh: false, .. } => note(site, at, Act::Again, frame),
            Happened::Stepped { site, at, frame, .. } if watched[site] => {
                note(site, at, Act::Fresh, frame);
                steps[site].push(at);
            }
            Happened::Confirmed { site, at, frame, words, hash } if watched[site] => {
                note(site, at, Act::Confirm, frame);
                ledger.on_confirmed(site, frame, words, hash);
                hashes[site].push(hash);
            }
            Happened::Sampled { .. } | Happened::Stepped { .. } | Happened::Confirmed { .. } => {}
            Happened::Nonsense { site, what } => panic!("site {site} {what}"),
            Happened::Event { site, at, event } => {
                match event {
                    Event::Joined { site: joined, frame } => ledger.on_join(site, joined.index(), frame.number()),
                    Event::Dropped { site: dropped, frame } => ledger.on_drop(site, dropped.index(), frame.number()),
                    Event::Ended(SessionEnd::Dropped) => ledger.on_refused(site),
                    _ => {}
                }
                events.push(Told { site, at, event });
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
        self.run_while(limit, |game| game.steps.iter().any(|steps| steps.len() < frames));
    }

    pub(crate) fn now(&self) -> Instant {
        self.world.now()
    }

    /// What a site's clock shows.
    pub(crate) fn local(&self, site: usize) -> Instant {
        self.world.sites[site].clock.local(self.now())
    }

    pub(crate) fn state(&self, site: usize) -> State {
        self.world.sites[site].session.state()
    }

    fn states(&self) -> Vec<State> {
        (0..self.world.sites.len()).map(|site| self.state(site)).collect()
    }

    pub(crate) fn stats(&self, site: usize) -> Stats {
        self.world.sites[site].session.stats()
    }

    /// The link of a site to a peer, as the site sees it.
    pub(crate) fn peer_stats(&self, site: usize, peer: usize) -> PeerStats {
        self.world.sites[site].session.peer_stats(self.local(site), id(peer)).expect("a peer")
    }

    /// What a site told, in order.
    pub(crate) fn told(&self, site: usize) -> impl Iterator<Item = &Told> {
        self.events.iter().filter(move |told| told.site == site)
    }

    /// The first thing a site told that is of interest.
    pub(crate) fn find<T>(&self, site: usize, pick: impl Fn(&Event) -> Option<T>) -> Option<(Instant, T)> {
        self.told(site).find_map(|told| pick(&told.event).map(|picked| (told.at, picked)))
    }

    pub(crate) fn leave(&mut self, site: usize) {
        let local = self.local(site);
        self.world.sites[site].session.leave(local);
        self.ledger.on_leave(site);
        self.world.wake(site);
    }

    /// The person at a site decides to go on alone; whether that was possible.
    pub(crate) fn go_on_alone(&mut self, site: usize) -> bool {
        let local = self.local(site);
        let went = self.world.sites[site].session.continue_alone(local);
        self.world.wake(site);
        went
    }

    /// Stops a site dead.
    pub(crate) fn crash(&mut self, site: usize) {
        self.world.crash(site);
        self.ledger.on_crash(site);
    }

    /// Cuts or heals all ways between some sites and all others.
    pub(crate) fn part(&mut self, some: SiteSet, cut: bool) {
        for one in some.iter().map(SiteId::index) {
            for other in (0..self.world.sites.len()).filter(|other| !some.contains(id(*other))) {
                self.world.set_cut(one, other, cut);
            }
        }
    }

    /// Cuts or heals all ways to a site.
    pub(crate) fn isolate(&mut self, site: usize, cut: bool) {
        self.part(set([site]), cut);
    }

    /// Starts a site's program anew, on the same computer. What it does from now on is not watched any more.
    pub(crate) fn restart(&mut self, site: usize) {
        self.configs[site].incarnation += 1;
        let session = Session::new(self.local(site), self.configs[site].clone()).expect("a sound config");
        let computer = &mut self.world.sites[site];
        computer.machine = Toy::new(computer.machine.paddles.len());
        computer.session = session;
        self.watched[site] = false;
        self.world.wake(site);
    }

    /// Sites that are not there when the game starts. To be called before anything happens.
    pub(crate) fn are_late<const N: usize>(&mut self, sites: [usize; N]) {
        self.ledger.late = (0..self.world.sites.len()).map(|site| sites.contains(&site)).collect();
        sites.into_iter().for_each(|site| self.world.crash(site));
    }

    /// A site that was not there, or has died, takes its seat in the running game.
    pub(crate) fn come(&mut self, site: usize, change: impl Fn(&mut Config)) {
        let config = &mut self.configs[site];
        config.incarnation += 1;
        config.late_join = Some(LateJoin { start: SpectatorStart::Snapshot, max_state_len: 1 << 20 });
        change(config);
        let session = Session::new(self.local(site), self.configs[site].clone()).expect("a sound config");
        self.ledger.on_restart(site);
        self.events.retain(|told| told.site != site);
        self.steps[site].clear();
        self.done[site].clear();
        self.hashes[site].clear();
        self.world.restart(site, session);
    }

    /// Starts a site's program anew with another way of taking part, on the same computer.
    pub(crate) fn restart_as(&mut self, site: usize, change: impl Fn(&mut Config)) {
        change(&mut self.configs[site]);
        self.restart(site);
    }

    /// Frames per second of a site between two instants.
    pub(crate) fn fps(&self, site: usize, from: Instant, until: Instant) -> f64 {
        let frames = self.steps[site].iter().filter(|step| (from..until).contains(*step)).count();
        frames as f64 / (until - from).as_secs_f64()
    }

    /// The times from each frame to the next, in milliseconds, for frames that a site stepped since then.
    pub(crate) fn frame_times(&self, site: usize, since: Instant) -> Vec<f64> {
        let steps = &self.steps[site];
        let first = steps.partition_point(|step| *step < since);
        steps[first..].windows(2).map(|pair| (pair[1] - pair[0]).as_millis_f64()).collect()
    }

    /// The largest difference, in milliseconds, between two sites' steps of a frame since then.
    pub(crate) fn worst_synchrony(&self, since: Instant) -> f64 {
        let frames = self.steps.iter().map(Vec::len).min().unwrap_or(0);
        let spread = |frame: usize| {
            let times = self.steps.iter().map(|steps| steps[frame]);
            times.clone().max().expect("a site") - times.min().expect("a site")
        };
        let of_late = (0..frames).filter(|frame| self.steps[0][*frame] >= since);
        of_late.map(|frame| spread(frame).as_millis_f64()).fold(0.0, f64::max)
    }

    /// How often a site's machine was made to do something since then.
    pub(crate) fn count(&self, site: usize, act: Act, since: Instant) -> usize {
        self.done[site].iter().filter(|done| done.act == act && done.at >= since).count()
    }

    /// The state after each frame that a site is certain of, since its program was last started.
    pub(crate) fn certain_states(&self, site: usize) -> BTreeMap<u32, u64> {
        let confirmed = self.done[site].iter().filter(|done| done.act == Act::Confirm);
        confirmed.zip(&self.hashes[site]).map(|(done, hash)| (done.frame, *hash)).collect()
    }

    /// Agreement and fidelity: everybody stepped the same, and just what the players did.
    #[track_caller]
    pub(crate) fn assert_sound(&self) {
        let violations = self.ledger.verdict();
        assert!(violations.is_empty(), "{violations:#?}");
    }
}

pub(crate) fn mean(values: &[f64]) -> f64 {
    assert!(!values.is_empty(), "no values");
    values.iter().sum::<f64>() / values.len() as f64
}

/// Mean absolute difference from the mean.
pub(crate) fn deviation(values: &[f64]) -> f64 {
    let mean = mean(values);
    values.iter().map(|value| (value - mean).abs()).sum::<f64>() / values.len() as f64
}
