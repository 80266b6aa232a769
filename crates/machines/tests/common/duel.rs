//! Machines under the session engine in virtual time, and a judge who believes nobody.
//!
//! Every site notes the state after every step. When a frame is certain, the note goes to the judge, who plays the confirmed inputs on a
//! machine of his own that never goes back, and compares all three.

use std::collections::VecDeque;

use coplay::frame::Frame;
use coplay::id::SiteId;
use coplay::input::InputWord;
use coplay::session::{Config, Event, Session, Settings, Stats};
use coplay::spectator_feed::FeedConfig;
use coplay::time::{Instant, TimeDelta};
use coplay_machines::Machine;
use coplay_machines::hosted::{self, Counts, Hosted, Terms, Turn};
use coplay_sim::link::{Delay, Jitter, LinkConfig, Loss};
use coplay_sim::stage::{Host, Stage};

use super::Fingers;

/// The number of every session here.
const SESSION: u64 = 0x5eed;
/// Frames that may be open at once; more than the engine allows.
const MOST_OPEN: usize = 256;

/// A frame that was stepped.
#[derive(Clone, Debug)]
pub struct Note {
    pub frame: u32,
    pub words: Vec<InputWord>,
    pub hash: u64,
}

/// What one kind of work has cost.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cost {
    pub times: u64,
    pub nanos: u64,
}

/// The kinds of work that are timed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Costs {
    pub fresh: Cost,
    pub again: Cost,
    pub save: Cost,
    pub load: Cost,
    pub hash: Cost,
}

/// A site: session, machine and player.
pub struct Seat {
    session: Session,
    pub hosted: Hosted,
    fingers: Fingers,
    open: VecDeque<Note>,
    /// Frames before this one are certain.
    told: u32,
    /// Frames that are certain and not judged yet.
    pub certain: VecDeque<Note>,
    pub events: Vec<Event>,
    pub trouble: Option<String>,
    pub costs: Costs,
    /// Nanoseconds of a real clock, where work is timed.
    clock: fn() -> u64,
}

impl Seat {
    pub fn new(now: Instant, config: Config, machine: Box<dyn Machine>, seed: u64, clock: fn() -> u64) -> Self {
        let players = config.settings.ownership.players();
        Self {
            fingers: Fingers::new(seed + u64::from(config.site.number()), players),
            session: Session::new(now, config).expect("sound settings"),
            hosted: Hosted::new(machine),
            open: VecDeque::new(),
            told: 0,
            certain: VecDeque::new(),
            events: Vec::new(),
            trouble: None,
            costs: Costs::default(),
            clock,
        }
    }

    pub fn stats(&self) -> Stats {
        self.session.stats()
    }

    pub fn counts(&self) -> Counts {
        self.hosted.counts()
    }

    fn note(&mut self, frame: Frame) {
        let number = frame.number();
        // The past is sometimes played again to look into a difference.
        if number < self.told {
            return;
        }
        let note = Note { frame: number, words: self.hosted.inputs().to_vec(), hash: self.hosted.machine_mut().hash() };
        match self.open.iter_mut().find(|open| open.frame == number) {
            Some(open) => *open = note,
            None => self.open.push_back(note),
        }
        assert!(self.open.len() <= MOST_OPEN, "frames never become certain");
    }

    fn count(&mut self, turn: &Turn, nanos: u64) {
        let cost = match turn {
            Turn::Stepped { fresh: true, .. } => &mut self.costs.fresh,
            Turn::Stepped { fresh: false, .. } => &mut self.costs.again,
            Turn::Saved { .. } => &mut self.costs.save,
            Turn::Loaded { .. } => &mut self.costs.load,
            Turn::Hashed { .. } => &mut self.costs.hash,
            _ => return,
        };
        cost.times += 1;
        cost.nanos += nanos;
    }
}

impl Host for Seat {
    fn session(&mut self) -> &mut Session {
        &mut self.session
    }

    fn serve(&mut self, now: Instant) -> bool {
        let begun = (self.clock)();
        let Some(turn) = self.hosted.serve(now, &mut self.session) else { return false };
        self.count(&turn, (self.clock)() - begun);
        match turn {
            Turn::Sample { .. } => self.session.handle_input(now, self.fingers.press(InputWord::MAX)),
            Turn::Stepped { frame, .. } => self.note(frame),
            Turn::Trouble(trouble) => self.trouble = Some(trouble.to_string()),
            _ => {}
        }
        true
    }

    fn rest(&mut self, _now: Instant) {
        let confirmed = self.stats().confirmed.number();
        while self.open.front().is_some_and(|note| note.frame < confirmed) {
            self.certain.extend(self.open.pop_front());
        }
        self.told = confirmed;
        while let Some(event) = self.session.poll_event() {
            self.events.push(event);
        }
    }
}

/// 80 ms round trip, jitter, 5 % loss.
pub fn bad_link() -> LinkConfig {
    LinkConfig {
        delay: Delay::Constant(TimeDelta::from_millis(36)),
        jitter: Jitter::Exponential { mean: TimeDelta::from_millis(4) },
        loss: Loss::Independent(0.05),
        ..LinkConfig::default()
    }
}

/// Lag 2, window 8, states compared every second.
pub fn terms(sites: u8) -> Terms {
    Terms { sites, lag: 2, window: 8, auto: false, compare_every: 60 }
}

/// How a site takes part, with a feed for those who come late.
pub fn config(machine: &dyn Machine, site: SiteId, settings: &Settings) -> Config {
    let peers = Stage::<Seat>::peers(site, usize::from(settings.site_count));
    let usual = hosted::config(machine, SESSION, site, peers, settings.clone());
    Config { feed: Some(FeedConfig::new(SESSION, u64::from(site.number()) + 1, settings.clone())), ..usual }
}

/// Compares what the sites played with a machine that plays only what is certain.
pub struct Judge {
    machine: Box<dyn Machine>,
    /// The frame that is judged next.
    pub next: u32,
    /// The first frame after which a site's state, or its inputs, were not those of the judge.
    pub fault: Option<(u32, usize)>,
}

impl Judge {
    pub fn new(machine: Box<dyn Machine>) -> Self {
        Self { machine, next: 0, fault: None }
    }

    /// Judges every frame that is certain at all of these sites.
    pub fn look(&mut self, sites: &mut [&mut Seat]) {
        while sites.iter().all(|site| !site.certain.is_empty()) {
            let notes: Vec<Note> = sites.iter_mut().filter_map(|site| site.certain.pop_front()).collect();
            self.machine.step(&notes[0].words, true);
            let hash = self.machine.hash();
            for (site, note) in notes.iter().enumerate() {
                let same = (note.frame, note.hash, &note.words) == (self.next, hash, &notes[0].words);
                if !same {
                    self.fault.get_or_insert((self.next, site));
                }
            }
            self.next += 1;
        }
    }
}

/// Runs the stage until the judge has seen so many frames, or a fault, or it takes too long.
pub fn run(stage: &mut Stage<Seat>, judge: &mut Judge, frames: u32, mut tell: impl FnMut(u32)) {
    let patience = Instant::ZERO + TimeDelta::from_millis(i64::from(frames) * 40) + TimeDelta::from_secs(30);
    while judge.next < frames && judge.fault.is_none() && stage.now() < patience {
        let until = stage.now() + TimeDelta::from_secs(1);
        stage.run_until(until);
        judge.look(&mut stage.hosts.iter_mut().collect::<Vec<_>>());
        tell(judge.next);
    }
}
