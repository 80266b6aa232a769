//! Playing a scenario: what happens, and what is noted of it.

use coplay::frame::Frame;
use coplay::id::SiteId;
use coplay::session::{Event, SessionEnd};
use coplay::time::{Instant, TimeDelta};

use super::{Fault, Scenario};
use crate::check::Ledger;
use crate::gallery::{self, Gallery};
use crate::random::Random;
use crate::recording::{self, Recording};
use crate::world::{Happened, World};

impl Scenario {
    /// Plays it through.
    pub fn play(&self) -> Played {
        let mut ledger = Ledger::new(self.masks(), self.lag);
        ledger.absent = self.absent;
        ledger.reach = (self.lag + self.window) as usize;
        ledger.late = (0..self.sites).map(|site| self.is_late(site)).collect();
        let mut play = Play {
            ledger,
            astray: None,
            told_when_healed: usize::MAX,
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
            Fault::CutOneWay(from, to) => world.link(*from, *to).set_cut(true),
            Fault::HealOneWay(from, to) => world.link(*from, *to).set_cut(false),
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

    /// Whose state is not what the others have, when a site's machine went astray. Of two, the first is taken to be right.
    pub(super) fn odd_one(&self, astray: usize) -> usize {
        if self.sites == 2 { 1 } else { astray }
    }

    /// The site that is odd starts anew, once that was told, and has the others' state again.
    fn heal(&self, world: &mut World, play: &mut Play) {
        let Some((astray, _)) = play.astray.filter(|_| self.heals) else { return };
        let sick = self.odd_one(astray);
        if play.lives[sick] == 1 && play.reports.iter().any(|(site, ..)| *site == sick) {
            play.lives[sick] += 1;
            play.told_when_healed = play.reports.len();
            self.restart(world, sick, 2);
            play.ledger.on_restart(sick);
        }
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
pub(super) struct Play {
    pub(super) ledger: Ledger,
    pub(super) ended: Vec<Option<SessionEnd>>,
    /// How many had told of a difference when the site that went astray was started anew.
    pub(super) told_when_healed: usize,
    /// The site that went astray, and in which frame.
    pub(super) astray: Option<(usize, u32)>,
    /// Who told of a difference: the first frame that differs, and whose state is odd.
    pub(super) reports: Vec<(usize, Option<u32>, Option<SiteId>)>,
    /// Who says that it has other inputs of whom than were given.
    pub(super) forged: Vec<(usize, usize, u32)>,
    /// How often each site was started.
    pub(super) lives: Vec<u32>,
    /// Who saw whom in another state, and after which frame.
    pub(super) diverged: Vec<(usize, usize, u32)>,
    /// Those who watch.
    pub(super) gallery: Option<Gallery>,
    /// What one site keeps, as long as its program runs.
    pub(super) movie: Option<Recording>,
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
            Happened::Restored { site, frame } => self.ledger.on_restored(site, frame),
            Happened::Event { site, event: Event::Ended(end), .. } => {
                self.ended[site] = Some(end);
                if end == SessionEnd::Dropped {
                    self.ledger.on_refused(site);
                }
            }
            Happened::Event { site, event: Event::InputsForged { site: other, frame }, .. } => {
                self.forged.push((site, other.index(), frame.number()));
            }
            Happened::Event { site, event: Event::DesyncReport(report), .. } => {
                self.reports.push((site, report.first_frame.map(Frame::number), report.odd_site));
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
    /// Which of [`KINDS`](super::KINDS) it contained.
    pub kinds: Vec<bool>,
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
            dropped: world.sites.iter().map(|site| site.session.stats().dropped_datagrams.total()).sum(),
            cuts: faults(|fault| matches!(fault, Fault::Cut(..) | Fault::CutOneWay(..))),
            crashes: faults(|fault| matches!(fault, Fault::Crash(_))),
            kinds: scenario.contains().to_vec(),
            seconds: (world.now() - Instant::ZERO).as_secs_f64(),
        }
    }
}
