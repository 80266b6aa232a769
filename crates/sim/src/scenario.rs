//! Random sessions with faults: what can go wrong, when it heals, and how well the sites must do afterwards.
//!
//! A [`Scenario`] is drawn from a seed alone. It plays for at least [`PLAY`] after the faults begin to be possible; all faults
//! but those for good (a crash, a leave) are healed well before the end, and then the sites must run again.

use std::fmt;

use coplay::feed::{FeedConfig, Start};
use coplay::frame::{Frame, FrameRate};
use coplay::id::{SiteId, SiteSet};
use coplay::input::{Ownership, Recovery, Word};
use coplay::session::{Absent, Config, End, Event, Join, Session, Settings};
use coplay::time::{Instant, TimeDelta};

use crate::check::Ledger;
use crate::clock::NodeClock;
use crate::gallery::{self, Gallery};
use crate::link::{Delay, Jitter, LinkConfig, Loss, Rate};
use crate::measure::toy_settings;
use crate::random::Random;
use crate::recording::{self, Recording};
use crate::site::Sabotage;
use crate::world::{self, Happened, World};

/// How long a session is watched.
pub const PLAY: TimeDelta = TimeDelta::from_secs(22);
/// A session has begun by then if nothing is in its way.
const START: TimeDelta = TimeDelta::from_secs(3);
/// Sites must run again so long after the last fault.
const RECOVERY: TimeDelta = TimeDelta::from_secs(2);
/// The most memory that a session may take for each of its sites.
const MEMORY_PER_SITE: usize = 96 * 1024;
/// The most datagrams that may be under way at once on a link, on average over all links.
const UNDER_WAY_PER_LINK: usize = 64;
/// Sites that wait for a dead one give up after this.
const GIVE_UP: TimeDelta = TimeDelta::from_secs(3);

/// A session to be played, with everything that happens to it.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Where all of it comes from.
    pub seed: u64,
    /// How many sites play.
    pub sites: usize,
    /// Local lag in frames.
    pub lag: u32,
    /// Frames that may be guessed.
    pub window: u32,
    /// Frames per second.
    pub rate: FrameRate,
    /// How lost inputs come back, at each site.
    pub recovery: Vec<Recovery>,
    /// What players can do.
    pub pads: Pads,
    /// One direction of the link between two sites, by `from * sites + to`.
    pub links: Vec<LinkConfig>,
    /// Each site's clock.
    pub clocks: Vec<NodeClock>,
    /// How long a step takes, at each site.
    pub step_cost: Vec<TimeDelta>,
    /// What happens, in order of time.
    pub faults: Vec<(Instant, Fault)>,
    /// The site that is not there when the game starts.
    pub late: Option<usize>,
    /// Whether a site whose state is found to be wrong starts anew.
    pub heals: bool,
    /// Whether lag and window follow the links.
    pub auto: bool,
    /// Sites that are silent for so long are dropped.
    pub drop_after: Option<TimeDelta>,
    /// What is done for those who were dropped.
    pub absent: Absent,
    /// Who watches.
    pub gallery: Option<gallery::Plan>,
    /// The site that keeps a movie.
    pub movie: Option<usize>,
    /// A fault of the engine's own, put in on purpose.
    pub sabotage: Option<Sabotage>,
}

/// What players hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pads {
    /// 16 buttons each.
    Buttons,
    /// 16 buttons and four 16-bit sticks each, never at rest.
    Sticks,
    /// All sites share one pad, bit by bit.
    Shared,
    /// The first site has two pads.
    TwoAtOne,
}

/// Something that happens to a world.
#[derive(Clone, Debug, PartialEq)]
pub enum Fault {
    /// No way between two sites.
    Cut(usize, usize),
    /// The way is back.
    Heal(usize, usize),
    /// A site's computer sleeps until then; its clock goes on.
    Pause(usize, Instant),
    /// A site's computer is suspended until then, and its clock stands still.
    Suspend(usize, Instant),
    /// A site dies.
    Crash(usize),
    /// A dead site's program is started again, or one that was not there starts: it takes its seat in the running game.
    Restart(usize),
    /// A site's player leaves.
    Leave(usize),
    /// A site gets a new address.
    Move(usize),
    /// A link gets worse, both ways.
    Worsen(usize, usize, LinkConfig),
    /// It is as before.
    Restore(usize, usize),
    /// A site's machine takes this long for a step from now on.
    Slow(usize, TimeDelta),
    /// A site's machine goes astray at its next frame.
    Astray(usize),
    /// Strangers send nonsense to a site, this many packets.
    Garbage(usize, u32),
}

/// Kinds of things that a scenario can contain, for counting.
pub const KINDS: [&str; 27] = [
    "cut",
    "pause",
    "suspend",
    "crash",
    "leave",
    "move",
    "worse link",
    "slow site",
    "garbage",
    "independent loss",
    "bursty loss",
    "duplicates",
    "reordering",
    "rate limit",
    "redundant",
    "history",
    "adaptive",
    "rollback",
    "auto",
    "drop",
    "absent repeat",
    "late or back",
    "astray, healed",
    "astray, not healed",
    "watched",
    "relayed",
    "movie",
];

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sites, lag, window, rate) = (self.sites, self.lag, self.window, self.rate);
        let auto = if self.auto { " (auto)" } else { "" };
        writeln!(
            f,
            "seed {}: {sites} sites, lag {lag}, window {window}{auto}, {rate}, {:?}, {:?}",
            self.seed, self.pads, self.recovery
        )?;
        for (at, link) in self.links.iter().enumerate().filter(|(at, _)| at / sites != at % sites) {
            let recorded = matches!(link.delay, Delay::Recorded(_));
            let delay = if recorded { "recorded".into() } else { format!("{:?}", link.delay) };
            write!(f, "  {} to {}: {delay}, {:?}, {:?}", at / sites, at % sites, link.jitter, link.loss)?;
            writeln!(f, ", reorder {}, duplicate {:.2}, {:?}", link.reorder, link.duplicate, link.rate)?;
        }
        for (site, (clock, cost)) in self.clocks.iter().zip(&self.step_cost).enumerate() {
            writeln!(f, "  site {site}: clock off by {:.0} ppm, {cost} a step", clock.skew_ppm)?;
        }
        for (at, fault) in &self.faults {
            match fault {
                Fault::Worsen(one, other, _) => writeln!(f, "  at {at:?} another link between {one} and {other}")?,
                fault => writeln!(f, "  at {at:?} {fault:?}")?,
            }
        }
        for (number, seat) in self.gallery.iter().flat_map(|plan| &plan.seats).enumerate() {
            let (comes, link) = (seat.comes, &seat.link);
            write!(f, "  watcher {number}: {:?}, at {comes:?} from {:?}, ", seat.habit, seat.from)?;
            writeln!(f, "{:?}, {:?}, {:?}, {:?}", link.delay, link.jitter, link.loss, link.rate)?;
        }
        write!(f, "  afterwards at least {:.1} fps", self.speed_floor())
    }
}

impl Scenario {
    /// Draws a scenario.
    pub fn new(seed: u64) -> Self {
        let mut luck = Random::stream(seed, "scenario");
        let sites = *luck.pick(&[2, 2, 2, 2, 3, 3, 4, 4, 5, 6, 8]);
        let lag = *luck.pick(&[0, 1, 2, 3, 4, 6, 6, 6, 8, 10, 18]);
        let window = *luck.pick(&[0, 0, 0, 1, 2, 4, 8, 8, 16, 60]);
        let rate = *luck.pick(&[(60, 1), (60, 1), (60_098_814, 1_000_000), (50, 1), (30, 1)]);
        let rate = FrameRate::new(rate.0, rate.1).expect("all of them are frame rates");
        let policies = [Recovery::Redundant, Recovery::History, Recovery::Adaptive, Recovery::Adaptive];
        let policy = *luck.pick(&policies);
        let mixed = luck.chance(0.2);
        let recovery = (0..sites).map(|_| if mixed { *luck.pick(&policies) } else { policy }).collect();
        let pads = *luck.pick(&[Pads::Buttons, Pads::Buttons, Pads::Sticks, Pads::Shared, Pads::TwoAtOne]);
        let mut scenario = Self {
            seed,
            sites,
            lag,
            window,
            rate,
            recovery,
            pads,
            links: Vec::new(),
            clocks: (0..sites).map(|_| random_clock(&mut luck)).collect(),
            // A full repair fits into a frame.
            step_cost: (0..sites)
                .map(|_| TimeDelta::from_micros(luck.range(0..=5_000 / (1 + i64::from(window)))))
                .collect(),
            faults: Vec::new(),
            late: None,
            heals: luck.chance(0.5),
            auto: luck.chance(0.25),
            drop_after: luck.chance(0.5).then(|| TimeDelta::from_millis(luck.range(400..=2_500))),
            absent: if Random::stream(seed, "absent").chance(0.5) { Absent::Repeat } else { Absent::Nothing },
            gallery: gallery::Plan::draw(seed, sites, random_link),
            movie: None,
            sabotage: None,
        };
        if sites > 2 && luck.chance(0.2) {
            scenario.late = Some(sites - 1);
        }
        scenario.movie = recording::draw(seed, scenario.starters());
        scenario.draw_links(&mut luck);
        if luck.chance(0.1) {
            scenario.draw_astray(&mut luck);
        } else {
            scenario.draw_faults(&mut luck);
        }
        scenario
    }

    fn draw_links(&mut self, luck: &mut Random) {
        let alike = luck.chance(0.5).then(|| random_link(luck));
        let asymmetric = luck.chance(0.2);
        self.links = vec![LinkConfig::perfect(); self.sites * self.sites];
        for one in 0..self.sites {
            for other in 0..one {
                let there = alike.clone().unwrap_or_else(|| random_link(luck));
                let mut back = there.clone();
                if asymmetric {
                    back.delay = random_delay(luck);
                }
                self.links[one * self.sites + other] = there;
                self.links[other * self.sites + one] = back;
            }
        }
    }

    /// One machine goes astray, and nothing else happens: whatever is told then must be right.
    fn draw_astray(&mut self, luck: &mut Random) {
        self.late = None;
        let site = luck.below(self.sites as u64) as usize;
        let at = Instant::ZERO + TimeDelta::from_millis(luck.range(4_000..=8_000));
        self.faults.push((at, Fault::Astray(site)));
    }

    fn draw_faults(&mut self, luck: &mut Random) {
        if let Some(site) = self.late {
            let at = Instant::ZERO + TimeDelta::from_millis(luck.range(0..=9_000));
            self.faults.push((at, Fault::Restart(site)));
        }
        for _ in 0..luck.below(4) {
            let from = Instant::ZERO + TimeDelta::from_millis(luck.range(0..=11_000));
            let until = from + TimeDelta::from_millis(luck.range(50..=4_000));
            self.draw_fault(luck, from, until);
        }
        self.faults.sort_by_key(|(at, _)| *at);
    }

    fn draw_fault(&mut self, luck: &mut Random, from: Instant, until: Instant) {
        let one = luck.below(self.sites as u64) as usize;
        let other = (one + 1 + luck.below(self.sites as u64 - 1) as usize) % self.sites;
        let mover = (self.seed % self.sites as u64) as usize;
        let goes = self.faults.iter().any(|(_, fault)| [Fault::Crash(one), Fault::Leave(one)].contains(fault));
        let cost = self.step_cost[one];
        let returns = luck.chance(0.5);
        let mut add = |at: Instant, fault: Fault| self.faults.push((at, fault));
        match luck.below(10) {
            0 => {
                add(from, Fault::Cut(one, other));
                add(until, Fault::Heal(one, other));
            }
            1 => (0..self.sites).filter(|site| *site != one).for_each(|site| {
                add(from, Fault::Cut(one, site));
                add(until, Fault::Heal(one, site));
            }),
            2 => add(from, Fault::Pause(one, until)),
            8 => add(from, Fault::Suspend(one, until)),
            // Those for good come late, so that something has happened before.
            3 if !goes => {
                add(from + TimeDelta::from_secs(3), Fault::Crash(one));
                if returns {
                    add(from + TimeDelta::from_secs(3) + (until - from), Fault::Restart(one));
                }
            }
            4 if !goes => add(from + TimeDelta::from_secs(3), Fault::Leave(one)),
            3 | 4 => {}
            // Two that move at once cannot find each other by themselves.
            5 if self.late.is_none() => add(from, Fault::Move(mover)),
            6 => {
                add(from, Fault::Worsen(one, other, random_link(luck)));
                add(until, Fault::Restore(one, other));
            }
            7 => {
                add(from, Fault::Slow(one, self.rate.period().scale(0.8 + luck.unit())));
                add(until, Fault::Slow(one, cost));
            }
            _ => add(from, Fault::Garbage(one, luck.range(10..=2_000) as u32)),
        }
    }

    /// Which of [`KINDS`] it contains.
    pub fn contains(&self) -> [bool; KINDS.len()] {
        let fault = |is: fn(&Fault) -> bool| self.faults.iter().any(|(_, fault)| is(fault));
        let link = |is: fn(&LinkConfig) -> bool| self.between().any(is);
        let policy = |policy| self.recovery.contains(&policy);
        [
            fault(|fault| matches!(fault, Fault::Cut(..))),
            fault(|fault| matches!(fault, Fault::Pause(..))),
            fault(|fault| matches!(fault, Fault::Suspend(..))),
            fault(|fault| matches!(fault, Fault::Crash(_))),
            fault(|fault| matches!(fault, Fault::Leave(_))),
            fault(|fault| matches!(fault, Fault::Move(_))),
            fault(|fault| matches!(fault, Fault::Worsen(..))),
            fault(|fault| matches!(fault, Fault::Slow(..))),
            fault(|fault| matches!(fault, Fault::Garbage(..))),
            link(|link| matches!(link.loss, Loss::Independent(_))),
            link(|link| matches!(link.loss, Loss::Bursty { .. })),
            link(|link| link.duplicate > 0.0),
            link(|link| link.reorder),
            link(|link| link.rate.is_some()),
            policy(Recovery::Redundant),
            policy(Recovery::History),
            policy(Recovery::Adaptive),
            self.window > 0,
            self.auto,
            self.drop_after.is_some(),
            self.drop_after.is_some() && self.absent == Absent::Repeat,
            fault(|fault| matches!(fault, Fault::Restart(_))),
            fault(|fault| matches!(fault, Fault::Astray(_))) && self.heals,
            fault(|fault| matches!(fault, Fault::Astray(_))) && !self.heals,
            self.gallery.is_some(),
            self.gallery.as_ref().is_some_and(gallery::Plan::is_relayed),
            self.movie.is_some(),
        ]
    }

    /// The links between different sites.
    fn between(&self) -> impl Iterator<Item = &LinkConfig> {
        let sites = self.sites;
        self.links.iter().enumerate().filter(move |(at, _)| at / sites != at % sites).map(|(_, link)| link)
    }

    fn ownership(&self) -> Ownership {
        let sites = || SiteId::first(self.sites);
        match self.pads {
            Pads::Buttons => Ownership::one_each(self.sites, 0xffff),
            Pads::Sticks => Ownership::one_each(self.sites, (1 << 80) - 1),
            Pads::Shared => {
                let mut ownership = Ownership::new(1);
                for site in sites() {
                    let mask =
                        (0..16).filter(|bit| bit % self.sites == site.index()).fold(0, |mask, bit| mask | 1 << bit);
                    ownership.give(site, 0, mask).expect("the bits are dealt out one by one");
                }
                ownership
            }
            Pads::TwoAtOne => {
                let players = (self.sites + 1).min(coplay::input::MAX_PLAYERS);
                let mut ownership = Ownership::new(players);
                for (player, site) in (0..players).zip(SiteId::first(1).chain(sites())) {
                    ownership.give(site, player, 0xffff).expect("every player is given once");
                }
                ownership
            }
        }
    }

    /// How many sites are there when the game starts.
    fn starters(&self) -> usize {
        self.sites - usize::from(self.late.is_some())
    }

    fn settings(&self) -> Settings {
        let toy = toy_settings(self.lag, self.ownership());
        let starters = SiteSet::first(self.starters());
        Settings {
            rate: self.rate,
            sites: self.sites as u8,
            starters,
            window: self.window,
            auto: self.auto,
            absent: self.absent,
            ..toy
        }
    }

    fn config(&self, number: usize) -> Config {
        let settings = self.settings();
        let id = SiteId::first(self.sites).nth(number).expect("no more sites than there can be");
        let session = self.seed | 1;
        let somebody_comes = self.faults.iter().any(|(_, fault)| matches!(fault, Fault::Restart(_) | Fault::Astray(_)));
        Config {
            investigate: true,
            recovery: self.recovery[number],
            drop_after: self.drop_after,
            give_up_after: (self.has_casualty() && self.drop_after.is_none() && !somebody_comes).then_some(GIVE_UP),
            feed: (somebody_comes || self.gallery.is_some())
                .then(|| FeedConfig::new(session, self.seed, settings.clone())),
            ..Config::new(session, id, World::peers(number, self.sites), settings)
        }
    }

    fn world(&self) -> World {
        let players = self.settings().ownership.players();
        let sites = (0..self.sites).map(|number| {
            let clock = self.clocks[number];
            let session =
                Session::new(clock.local(Instant::ZERO), self.config(number)).expect("the settings are sound");
            let mut site = world::site(session, clock, players, self.seed ^ number as u64);
            site.step_cost = self.step_cost[number];
            site.crashed = self.late == Some(number);
            if self.pads == Pads::Sticks {
                (site.player.restlessness, site.player.mask) = (0.9, (1 << 80) - 1);
            }
            if number == self.sites - 1 {
                site.sabotage = self.sabotage;
            }
            site
        });
        let mut world = World::new(self.seed, sites.collect(), |from, to| self.links[from * self.sites + to].clone());
        if self.gallery.is_some() {
            world.open_door();
        }
        world
    }

    /// A site comes late, or comes back. It knows where the others are by now.
    fn restart(&self, world: &mut World, site: usize, incarnation: u32) {
        let local = world.sites[site].clock.local(world.now());
        let peers = World::peers(site, self.sites).into_iter();
        let config = Config {
            incarnation,
            join: Some(Join { start: Start::Snapshot, most_state: 1 << 20 }),
            peers: peers.map(|(id, _)| (id, World::address(id.index(), world.sites[id.index()].moves()))).collect(),
            ..self.config(site)
        };
        world.restart(site, Session::new(local, config).expect("the settings are sound"));
    }

    /// Whether a site dies in it.
    pub fn has_casualty(&self) -> bool {
        self.faults.iter().any(|(_, fault)| matches!(fault, Fault::Crash(_)))
    }

    fn masks(&self) -> Vec<Vec<Word>> {
        let ownership = self.ownership();
        let sites = SiteId::first(self.sites);
        sites.map(|site| (0..ownership.players()).map(|player| ownership.mask(site, player)).collect()).collect()
    }

    /// Plays it through.
    pub fn play(&self) -> Played {
        let mut ledger = Ledger::new(self.masks(), self.lag);
        ledger.absent = self.absent;
        ledger.late = (0..self.sites).map(|site| self.late == Some(site)).collect();
        let mut play = Play {
            ledger,
            astray: None,
            reports: Vec::new(),
            forged: Vec::new(),
            lives: vec![1; self.sites],
            ended: vec![None; self.sites],
            diverged: Vec::new(),
            gallery: self.gallery.clone().map(|plan| Gallery::new(self.seed, self.seed | 1, self.settings(), plan)),
            movie: self.movie.map(|site| Recording::new(self.seed, site, &self.settings())),
        };
        let mut world = self.world();
        let mut garbage = Random::stream(self.seed, "garbage");
        for (at, fault) in &self.faults {
            play.run_until(&mut world, *at);
            self.apply(&mut world, fault, &mut play, &mut garbage);
        }
        let recovered = self.recovered();
        while world.now() < recovered {
            let next = (world.now() + TimeDelta::from_millis(100)).min(recovered);
            play.run_until(&mut world, next);
            self.heal(&mut world, &mut play);
        }
        let running = play.ledger.frames.clone();
        play.run_until(&mut world, self.end());
        self.judge_reports(&mut play);
        Self::judge_divergence(&mut play);
        self.judge(&world, &mut play, &running);
        self.judge_guests(&world, &mut play, &running);
        Played::new(self, &world, play)
    }

    fn apply(&self, world: &mut World, fault: &Fault, play: &mut Play, garbage: &mut Random) {
        match fault {
            Fault::Cut(one, other) => world.set_cut(*one, *other, true),
            Fault::Heal(one, other) => world.set_cut(*one, *other, false),
            Fault::Pause(site, until) => world.pause(*site, *until),
            Fault::Suspend(site, until) => world.suspend(*site, *until),
            Fault::Crash(site) => {
                world.crash(*site);
                play.ledger.on_crash(*site);
            }
            Fault::Leave(site) if !world.sites[*site].crashed => {
                let local = world.sites[*site].clock.local(world.now());
                world.sites[*site].session.leave(local);
                play.ledger.on_leave(*site);
                world.wake(*site);
            }
            Fault::Leave(_) => {}
            Fault::Restart(site) if !world.sites[*site].crashed => {}
            Fault::Restart(site) => {
                play.lives[*site] += 1;
                self.restart(world, *site, play.lives[*site]);
                play.ledger.on_restart(*site);
                play.ended[*site] = None;
            }
            Fault::Move(site) => world.move_site(*site),
            Fault::Worsen(one, other, config) => {
                world.link(*one, *other).set_config(config.clone());
                world.link(*other, *one).set_config(config.clone());
            }
            Fault::Restore(one, other) => {
                for (from, to) in [(*one, *other), (*other, *one)] {
                    let config = self.links[from * self.sites + to].clone();
                    world.link(from, to).set_config(config);
                }
            }
            Fault::Astray(site) => {
                let frame = world.sites[*site].session.stats().frame.number() + 5;
                world.sites[*site].diverges_at = Some(frame);
                play.ledger.on_astray(self.odd_one(*site), frame);
                play.astray = Some((*site, frame));
            }
            Fault::Slow(site, cost) => world.sites[*site].step_cost = *cost,
            Fault::Garbage(site, packets) => throw_garbage(world, *site, *packets, garbage),
        }
    }

    /// When all is as it should be again. Sites that guess far ahead may be that far apart, and come together gently.
    fn recovered(&self) -> Instant {
        self.healed() + RECOVERY + self.rate.period() * i64::from(self.lag + self.window) * 2
    }

    /// When the session is left alone.
    fn end(&self) -> Instant {
        (Instant::ZERO + PLAY).max(self.recovered() + TimeDelta::from_secs(3))
    }

    /// When the last fault is over; the sites may need a moment to find together before that counts.
    fn healed(&self) -> Instant {
        let over = self.faults.iter().map(|(at, fault)| match fault {
            Fault::Pause(_, until) | Fault::Suspend(_, until) => *until,
            Fault::Restart(_) => *at + TimeDelta::from_secs(6),
            Fault::Astray(_) => *at + TimeDelta::from_secs(14),
            _ => *at,
        });
        // Whoever died is dropped a while later.
        let dropping = self.drop_after.map_or(TimeDelta::ZERO, |limit| limit + TimeDelta::from_secs(1));
        over.max().unwrap_or_default().max(Instant::ZERO + START) + dropping
    }

    /// Whose state is not what the others have, when a site's machine went astray. Of two, the first is taken to be right.
    fn odd_one(&self, astray: usize) -> usize {
        if self.sites == 2 { 1 } else { astray }
    }

    /// The site that is odd starts anew, once that was told, and has the others' state again.
    fn heal(&self, world: &mut World, play: &mut Play) {
        let Some((astray, _)) = play.astray.filter(|_| self.heals) else { return };
        let sick = self.odd_one(astray);
        if play.lives[sick] == 1 && play.reports.iter().any(|(site, ..)| *site == sick) {
            play.lives[sick] += 1;
            self.restart(world, sick, 2);
            play.ledger.on_restart(sick);
        }
    }

    /// Every report names the first frame that differs and, of three or more, the site that does.
    fn judge_reports(&self, play: &mut Play) {
        let Some((astray, frame)) = play.astray else { return };
        play.diverged.clear();
        let odd = SiteId::first(self.sites).nth(astray).filter(|_| self.sites > 2);
        let right = |report: &(usize, Option<u32>, Option<SiteId>)| (report.1, report.2) == (Some(frame), odd);
        for site in 0..self.sites {
            let mut reports = play.reports.iter().filter(|(teller, ..)| *teller == site);
            let told = reports.next();
            if told.is_none_or(|report| !right(report)) && self.speed_floor() > 25.0 {
                let what = format!("site {site} tells {told:?} of site {astray} that goes astray in frame {frame}");
                play.ledger.violate("divergence", what);
            }
        }
    }

    /// Who is not dropped sees no other state than its own.
    fn judge_divergence(play: &mut Play) {
        for (site, other, frame) in std::mem::take(&mut play.forged) {
            if !play.ledger.was_dropped(site) {
                play.ledger.violate("agreement", format!("site {site} has wrong inputs of {other} up to {frame}"));
            }
        }
        for (site, _, frame) in std::mem::take(&mut play.diverged) {
            if !play.ledger.was_dropped(site) {
                play.ledger.violate("agreement", format!("site {site} sees another state after frame {frame}"));
            }
        }
    }

    /// What those who watch saw, and what is on record.
    fn judge_guests(&self, world: &World, play: &mut Play, frames_when_healed: &[usize]) {
        let seconds = (self.end() - (self.healed() + RECOVERY)).as_secs_f64();
        let frames = play.ledger.frames.iter().zip(frames_when_healed);
        let speeds: Vec<f64> = frames.map(|(now, then)| now.saturating_sub(*then) as f64 / seconds).collect();
        if let Some(gallery) = play.gallery.take() {
            gallery.judge(world, &mut play.ledger, &speeds);
        }
        if let Some(movie) = play.movie.take() {
            movie.judge(&mut play.ledger);
        }
    }

    /// Liveness and bounds, which depend on what was done to the world.
    fn judge(&self, world: &World, play: &mut Play, frames_when_healed: &[usize]) {
        let seconds = (self.end() - (self.recovered())).as_secs_f64();
        let floor = self.speed_floor();
        let left = |site: usize| self.faults.iter().any(|(_, fault)| *fault == Fault::Leave(site));
        let leavers = (0..self.sites).filter(|site| left(*site)).count();
        // Who leaves before the start leaves the others in the lobby. But a game that has begun goes on.
        let nobody_started = play.ledger.frames.iter().all(|frames| *frames == 0);
        if nobody_started && leavers > 0 {
            return self.judge_bounds(world, play);
        }
        let comes = |fault: &Fault| matches!(fault, Fault::Restart(_) | Fault::Astray(_));
        if self.drop_after.is_some() || self.faults.iter().any(|(_, fault)| comes(fault)) {
            self.judge_droppers(world, play, frames_when_healed, seconds);
            return self.judge_bounds(world, play);
        }
        for site in (0..self.sites).filter(|site| !left(*site) && !world.sites[*site].crashed) {
            let speed = (play.ledger.frames[site] - frames_when_healed[site]) as f64 / seconds;
            if self.has_casualty() {
                self.judge_survivor(play, site, speed);
            } else if leavers + 1 >= self.sites {
                if play.ended[site] != Some(End::Alone) {
                    play.ledger.violate("liveness", format!("site {site} does not know that it is alone"));
                }
            } else if speed < floor {
                let what =
                    format!("site {site} runs at {speed:.1} fps after all is healed, the links allow {floor:.1}");
                play.ledger.violate("liveness", what);
            }
        }
        self.judge_bounds(world, play);
    }

    /// Where silent sites are dropped, those who can decide go on, at full speed, and nobody else does.
    fn judge_droppers(&self, world: &World, play: &mut Play, frames_when_healed: &[usize], seconds: f64) {
        let left = |site: usize| self.faults.iter().any(|(_, fault)| *fault == Fault::Leave(site));
        let base: Vec<usize> = (0..self.sites).filter(|site| !left(*site) && self.late != Some(*site)).collect();
        let out = |site: usize| play.ledger.is_dropped(site) || play.ended[site] == Some(End::Dropped);
        let alive = |site: &usize| !world.sites[*site].crashed && !left(*site) && !out(*site);
        let alive: Vec<usize> = (0..self.sites).filter(alive).collect();
        // Whoever came back could not decide before it was back.
        let steady: Vec<usize> = alive.iter().copied().filter(|site| play.lives[*site] == 1).collect();
        let decides = 2 * steady.len() > base.len() || 2 * steady.len() == base.len() && steady.first() == base.first();
        // Who comes while another moves cannot find it.
        let has = |is: fn(&Fault) -> bool| self.faults.iter().any(|(_, fault)| is(fault));
        if has(|fault| matches!(fault, Fault::Restart(_))) && has(|fault| matches!(fault, Fault::Move(_))) {
            return;
        }
        // Without a limit to patience, the dead are waited for.
        let waiting = self.drop_after.is_none() && (0..self.sites).any(|site| world.sites[site].crashed && !left(site));
        if waiting || !decides || alive.len() < 2 || play.ledger.frames.iter().all(|frames| *frames == 0) {
            return;
        }
        let floor = self.speed_floor();
        for site in alive {
            let speed = play.ledger.frames[site].saturating_sub(frames_when_healed[site]) as f64 / seconds;
            if speed < floor {
                let what =
                    format!("site {site} runs at {speed:.1} fps after all is healed, the links allow {floor:.1}");
                play.ledger.violate("liveness", what);
            }
        }
    }

    /// Nobody plays on alone by accident: whoever waits for a dead site says so and gives up, as it was told to.
    fn judge_survivor(&self, play: &mut Play, site: usize, speed: f64) {
        let started = play.ledger.frames[site] > 0;
        if started && speed > 0.0 {
            play.ledger.violate("agreement", format!("site {site} plays on without a site that died"));
        }
        if started && play.ended[site].is_none() {
            play.ledger.violate("liveness", format!("site {site} waits for a dead site longer than it was told to"));
        }
    }

    fn judge_bounds(&self, world: &World, play: &mut Play) {
        if world.oversized > 0 {
            play.ledger.violate("bounds", format!("{} datagrams were too long", world.oversized));
        }
        for (number, site) in world.sites.iter().enumerate() {
            let memory = site.session.memory();
            if memory > self.sites * MEMORY_PER_SITE {
                play.ledger.violate("bounds", format!("the session of site {number} takes {memory} bytes"));
            }
        }
        if world.most_under_way > self.sites * self.sites * UNDER_WAY_PER_LINK {
            play.ledger.violate("bounds", format!("{} things were under way at once", world.most_under_way));
        }
        let most = PLAY.as_secs_f64() * (1.05 / self.rate.period().as_secs_f64() + 60.0);
        let busiest = world.links().iter().map(|link| link.stats().sent).max().unwrap_or(0);
        if busiest as f64 > most {
            play.ledger.violate("bounds", format!("{busiest} datagrams on one link, {most:.0} are plenty"));
        }
    }

    /// The speed that the worst link allows: full, or lag over one-way delay; less what its losses and jitter may cost.
    pub fn speed_floor(&self) -> f64 {
        let period = self.rate.period().as_millis_f64();
        let reach = self.lag + self.window;
        let lag_ms = f64::from(reach.max(1)) * period;
        let slowest =
            self.between().map(|link| worst_wait_ms(link, period, self.recovery.contains(&Recovery::History)));
        // Without lag the way and the step come one after the other, and so do a way that is too long and the repair after it.
        let repair = f64::from(self.window + u32::from(reach == 0));
        let step = self.step_cost.iter().max().map_or(0.0, |cost| cost.as_millis_f64() * repair);
        let wait = slowest.fold(0.0, f64::max) + step;
        let comes = self.faults.iter().any(|(_, fault)| matches!(fault, Fault::Restart(_)));
        let steady =
            !comes && self.between().all(is_steady) && self.clocks.iter().all(|clock| clock.skew_ppm.abs() < 200.0);
        // The more links there are, the more often one of them has bad luck; and without lag a lost packet is awaited for longer
        // than a frame, because none follows it.
        let share = match reach {
            0 if steady => 0.75,
            _ if steady && self.window == 0 => 0.95,
            _ if steady => 0.92,
            0 => 0.35,
            _ if self.sites > 4 => 0.45,
            _ => 0.6,
        };
        share * (1_000.0 / period) * (lag_ms / wait).min(1.0)
    }
}

/// Whether a link treats all packets alike.
fn is_steady(link: &LinkConfig) -> bool {
    matches!((&link.delay, link.jitter, link.loss), (Delay::Constant(_), Jitter::None, Loss::None))
}

/// How long an input may take over a link, in milliseconds, if its luck is as bad as it often is.
fn worst_wait_ms(link: &LinkConfig, period_ms: f64, history: bool) -> f64 {
    let delay = match &link.delay {
        Delay::Constant(delay) => delay.as_millis_f64(),
        Delay::Normal { mean, sd } | Delay::LogNormal { mean, sd } => (*mean + *sd).as_millis_f64(),
        Delay::Recorded(delays) => delays.iter().max().copied().unwrap_or_default().as_millis_f64(),
    };
    let jitter = match link.jitter {
        Jitter::None => 0.0,
        Jitter::Uniform(most) => most.as_millis_f64(),
        Jitter::Exponential { mean } => mean.as_millis_f64() * 2.0,
    };
    let packets_lost = match link.loss {
        Loss::None => 0.0,
        Loss::Independent(loss) => 0.5 + loss * 5.0,
        Loss::Bursty { leave, .. } => 1.0 / leave,
    };
    let queue = link.rate.map_or(0.0, |rate| rate.queue_bytes as f64 / rate.bytes_per_second as f64 * 1_000.0);
    let once = delay + jitter + queue + packets_lost * period_ms;
    if history && packets_lost > 0.0 { once * 3.5 + 2.0 * period_ms } else { once }
}

fn random_clock(luck: &mut Random) -> NodeClock {
    let extreme = luck.chance(0.05);
    let skew_ppm = (luck.unit() * 2.0 - 1.0) * if extreme { 10_000.0 } else { 100.0 };
    NodeClock { offset: TimeDelta::from_millis(luck.range(-1_000_000..=1_000_000_000)), skew_ppm }
}

fn random_delay(luck: &mut Random) -> Delay {
    let mean = TimeDelta::from_micros(luck.range(0..=100_000));
    match luck.below(5) {
        0 | 1 => Delay::Constant(mean),
        2 => Delay::Normal { mean, sd: mean / 10 },
        3 => Delay::LogNormal { mean: mean + TimeDelta::from_micros(100), sd: mean / 6 + TimeDelta::from_micros(10) },
        _ => Delay::Recorded((0..97).map(|_| mean + TimeDelta::from_micros(luck.range(0..=8_000))).collect()),
    }
}

fn random_link(luck: &mut Random) -> LinkConfig {
    let ms = TimeDelta::from_millis;
    LinkConfig {
        delay: random_delay(luck),
        jitter: match luck.below(5) {
            0 => Jitter::Uniform(ms(luck.range(1..=30))),
            1 => Jitter::Exponential { mean: ms(luck.range(1..=15)) },
            _ => Jitter::None,
        },
        reorder: luck.chance(0.3),
        loss: match luck.below(5) {
            0 | 1 => Loss::Independent(luck.unit() * 0.2),
            2 => Loss::bursts(luck.unit() * 0.1, 1.0 + luck.unit() * 4.0),
            _ => Loss::None,
        },
        duplicate: if luck.chance(0.2) { luck.unit() * 0.1 } else { 0.0 },
        rate: luck.chance(0.15).then_some(Rate { bytes_per_second: 32_000, queue_bytes: 4_000 }),
    }
}

/// Strangers throw random bytes, half of which look like hellos, from addresses of their own. What comes in a peer's name is the
/// transport's to tell.
fn throw_garbage(world: &mut World, site: usize, packets: u32, luck: &mut Random) {
    let mut bytes = [0u8; 200];
    for _ in 0..packets {
        let len = luck.below(bytes.len() as u64) as usize;
        bytes.fill_with(|| luck.bits() as u8);
        if luck.chance(0.5) {
            bytes[0] = coplay::wire::VERSION;
        }
        world.inject(site, coplay::id::Addr(1_000_000 + luck.below(1_000)), &bytes[..len]);
    }
}

#[derive(Debug)]
struct Play {
    ledger: Ledger,
    ended: Vec<Option<End>>,
    /// The site that went astray, and in which frame.
    astray: Option<(usize, u32)>,
    /// Who told of a difference: the first frame that differs, and whose state is odd.
    reports: Vec<(usize, Option<u32>, Option<SiteId>)>,
    /// Who says that it has other inputs of whom than were given.
    forged: Vec<(usize, usize, u32)>,
    /// How often each site was started.
    lives: Vec<u32>,
    /// Who saw whom in another state, and after which frame.
    diverged: Vec<(usize, usize, u32)>,
    /// Those who watch.
    gallery: Option<Gallery>,
    /// What one site keeps, as long as its program runs.
    movie: Option<Recording>,
}

impl Play {
    /// Lets all of it go on: the world, those who watch it and who keeps a movie take turns.
    fn run_until(&mut self, world: &mut World, until: Instant) {
        let turn = match (&self.gallery, &self.movie) {
            (Some(_), _) => gallery::TURN,
            (None, Some(_)) => recording::TURN,
            (None, None) => TimeDelta::MAX,
        };
        loop {
            let next = if until - world.now() > turn { world.now() + turn } else { until };
            world.run_until(next, &mut |happened| self.note(happened));
            if let Some(gallery) = &mut self.gallery {
                gallery.catch_up(world, &mut self.ledger);
            }
            let lives = &self.lives;
            if let Some(movie) = self.movie.as_mut().filter(|movie| lives[movie.site()] == 1) {
                movie.take(&mut world.sites[movie.site()].session);
            }
            if world.now() >= until {
                return;
            }
        }
    }

    fn note(&mut self, happened: Happened<'_>) {
        match happened {
            Happened::Sampled { site, frame, words, .. } => self.ledger.on_promise(site, frame, words),
            Happened::Confirmed { site, frame, words, hash, .. } => self.ledger.on_confirmed(site, frame, words, hash),
            Happened::Stepped { site, at, frame, .. } => self.ledger.on_any_step(site, frame, at.as_nanos()),
            Happened::Nonsense { site, what } => self.ledger.violate("agreement", format!("site {site} {what}")),
            Happened::Event { site, event: Event::Ended(end), .. } => self.ended[site] = Some(end),
            Happened::Event { site, event: Event::Forged { site: other, frame }, .. } => {
                self.forged.push((site, other.index(), frame.number()));
            }
            Happened::Event { site, event: Event::Report(report), .. } => {
                self.reports.push((site, report.first_frame.map(Frame::number), report.odd));
            }
            Happened::Event { site, event: Event::Joined { site: joined, frame }, .. } => {
                self.ledger.on_join(site, joined.index(), frame.number());
            }
            Happened::Event { site, event: Event::Dropped { site: dropped, frame }, .. } => {
                self.ledger.on_drop(site, dropped.index(), frame.number());
            }
            Happened::Event { site, event: Event::Diverged { site: other, frame }, .. } => {
                self.diverged.push((site, other.index(), frame.number()));
            }
            Happened::Saved { .. } | Happened::Loaded { .. } | Happened::Event { .. } => {}
        }
    }
}

/// What came of a scenario.
#[derive(Clone, Debug, Default)]
pub struct Played {
    /// A hash of everything that happened.
    pub trace: u64,
    /// What went wrong, readable.
    pub violations: Vec<String>,
    /// Frames stepped, over all sites.
    pub frames: u64,
    /// Frames that those who watch saw.
    pub seen: u64,
    /// Frames that were read back from a movie.
    pub recorded: u64,
    /// Datagrams sent.
    pub packets: u64,
    /// Datagrams lost, to loss, full queues and cuts.
    pub losses: u64,
    /// Datagrams dropped by the sites.
    pub dropped: u64,
    /// Cuts.
    pub cuts: u64,
    /// Crashes.
    pub crashes: u64,
    /// Which of [`KINDS`] it contained.
    pub kinds: [bool; KINDS.len()],
    /// Virtual seconds.
    pub seconds: f64,
}

impl Played {
    fn new(scenario: &Scenario, world: &World, play: Play) -> Self {
        let links = world.links().iter().map(|link| link.stats());
        let (packets, losses) = links.fold((0, 0), |(packets, losses), link| {
            (packets + link.sent, losses + link.lost + link.overflowed + link.cut)
        });
        let faults = |is: fn(&Fault) -> bool| scenario.faults.iter().filter(|(_, fault)| is(fault)).count() as u64;
        Self {
            trace: play.ledger.trace,
            violations: play.ledger.verdict().iter().map(ToString::to_string).collect(),
            frames: play.ledger.confirmed,
            seen: play.ledger.seen,
            recorded: play.ledger.recorded,
            packets,
            losses,
            dropped: world.sites.iter().map(|site| site.session.stats().dropped.total()).sum(),
            cuts: faults(|fault| matches!(fault, Fault::Cut(..))),
            crashes: faults(|fault| matches!(fault, Fault::Crash(_))),
            kinds: scenario.contains(),
            seconds: (world.now() - Instant::ZERO).as_secs_f64(),
        }
    }
}
