//! One engine under one set of conditions, in numbers.

use coplay::time::{Instant, TimeDelta};

use super::forecast::effect;
use super::host::{Books, Host};
use super::machine::Machine;
use super::replay::Replay;
use super::world::{Site, World};
use super::{Case, PERIOD};
use crate::cycles::Spent;
use crate::work::{Inputs, Traffic};

/// Virtual time before anything is measured: sites have to find together first.
pub const WARM_UP: TimeDelta = TimeDelta::from_secs(15);
/// What is measured is measured in spans of this length, in seconds. Our clocks are fitted that often.
pub const SPAN_SECONDS: u32 = 10;

/// What came of it. A tick is a sixtieth of a virtual second; a link is one way between two sites.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Nanoseconds in the engine per frame and site, of every span.
    pub nanos: Vec<f64>,
    /// Allocations per tick and site.
    pub allocations: f64,
    /// Datagrams per tick and link.
    pub datagrams: f64,
    /// Bytes of payload per tick and link.
    pub bytes: f64,
    /// Frames stepped again, per 100 frames.
    pub resimulated: f64,
    /// Frames that had to be stepped again, whatever the engine, per 100 frames.
    pub forecast: f64,
    /// Ticks in which there was no frame, per 100.
    pub stalls: f64,
    /// Frames per virtual second.
    pub fps: f64,
    /// By how much sites differ in frames stepped again, per 100.
    pub spread_resimulated: f64,
    /// By how many frames sites are apart in the end.
    pub spread_frames: u64,
    /// Why this is not worth much, if something went wrong.
    pub trouble: Option<String>,
}

impl Outcome {
    /// Nanoseconds in the engine per frame and site, in the span in the middle.
    pub fn median_nanos(&self) -> f64 {
        median(self.nanos.iter().copied())
    }
}

/// All that is counted in a world.
#[derive(Clone, Debug)]
struct Counts {
    books: Vec<Books>,
    traffic: Traffic,
    spent: Spent,
}

impl Counts {
    fn of<S: Site>(world: &World<S>) -> Self {
        let books = world.hosts().iter().map(Host::books).collect();
        Self { books, traffic: world.traffic(), spent: world.spent() }
    }

    fn frames(&self) -> u64 {
        self.books.iter().map(|books| books.frames).sum()
    }

    fn since(&self, before: &Self) -> Self {
        Self {
            books: self.books.iter().zip(&before.books).map(|(books, before)| books.since(*before)).collect(),
            traffic: self.traffic.since(before.traffic),
            spent: self.spent.since(before.spent),
        }
    }
}

/// An engine that plays under measurement.
pub struct Run<S> {
    case: Case,
    world: World<S>,
    replay: Replay,
    began: Instant,
    /// At the ends of all spans so far.
    counts: Vec<Counts>,
    nanos: Vec<f64>,
}

impl<S: Site> Run<S> {
    /// Lets an engine warm up.
    pub fn new(case: Case) -> Self {
        let mut world = World::new(case);
        let began = Instant::ZERO + WARM_UP;
        world.run_until(began);
        world.record();
        let counts = vec![Counts::of(&world)];
        Self { case, world, replay: Replay::new(&case), began, counts, nanos: Vec::new() }
    }

    /// Measures it for one span, and what its host programs do alone, right afterwards.
    pub fn measure(&mut self, nanos_per_count: f64) {
        let Self { world, replay, counts, nanos, .. } = self;
        world.run_until(world.now() + TimeDelta::from_secs(SPAN_SECONDS.into()));
        counts.push(Counts::of(world));
        let host = replay.run(&world.take_trace());
        let span = counts[counts.len() - 1].since(&counts[counts.len() - 2]);
        let engine = span.spent.counts as f64 - host.counts as f64;
        nanos.push(engine / span.frames() as f64 * nanos_per_count);
    }

    /// What came of it.
    pub fn outcome(self) -> Outcome {
        let Self { case, world, began, counts, nanos, .. } = self;
        let (first, last) = (&counts[0], &counts[counts.len() - 1]);
        let (all, time) = (last.since(first), world.now() - began);
        let (ticks, frames) = (time.as_nanos() as f64 / PERIOD.as_nanos() as f64, all.frames() as f64);
        let (sites, links) = (case.sites as f64, case.links() as f64);
        let sum = |value: fn(&Books) -> u64| all.books.iter().map(value).sum::<u64>() as f64;
        let again = all.books.iter().map(|books| 100.0 * books.resimulated as f64 / books.frames as f64);
        Outcome {
            nanos,
            allocations: all.spent.allocations as f64 / ticks / sites,
            datagrams: all.traffic.datagrams as f64 / ticks / links,
            bytes: all.traffic.bytes as f64 / ticks / links,
            resimulated: 100.0 * sum(|books| books.resimulated) / frames,
            forecast: 100.0 * sum(|books| books.forecast) / frames,
            stalls: 100.0 * sum(|books| books.stalls) / ticks / sites,
            fps: frames / sites / time.as_secs_f64(),
            spread_resimulated: spread(again),
            spread_frames: spread(last.books.iter().map(|books| books.frames as f64)) as u64,
            trouble: world.trouble().or_else(|| difference(&world, case)),
        }
    }
}

/// The one in the middle.
pub fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn spread(values: impl Iterator<Item = f64> + Clone) -> f64 {
    values.clone().fold(f64::MIN, f64::max) - values.fold(f64::MAX, f64::min)
}

/// Where the state of a site is not the one that belongs to the inputs, after all frames that nobody guesses any more.
pub fn difference<S: Site>(world: &World<S>, case: Case) -> Option<String> {
    let truth = truth(case, world.confirmed());
    let wrong = |host: &Host| host.digests().iter().zip(&truth).position(|(is, should)| is != should);
    let mut found = world.hosts().iter().enumerate();
    found.find_map(|(site, host)| wrong(host).map(|frame| format!("site {site}: a wrong state after frame {frame}")))
}

/// The state after every frame, in one number each, as it must be.
fn truth(case: Case, frames: usize) -> Vec<u64> {
    let inputs = Inputs::new(case.seed, case.sites);
    let mut machine = Machine::NEW;
    let mut digest = |frame| {
        machine.step((0..case.sites).map(|player| effect(&inputs, player, frame, case.lag)));
        machine.digest()
    };
    (0..frames as u32).map(&mut digest).collect()
}
