//! A machine in the hands of a session: does everything that a [`Session`] asks for, but for the input of the person in front of it.
//!
//! ```
//! use coplay::input::Word;
//! use coplay::session::Session;
//! use coplay::time::Instant;
//! use coplay_machines::hosted::{Hosted, Turn};
//!
//! fn play(now: fn() -> Instant, session: &mut Session, hosted: &mut Hosted, pads: &[Word]) {
//!     while let Some(turn) = hosted.serve(now(), session) {
//!         match turn {
//!             Turn::Sample { .. } => session.handle_input(now(), pads),
//!             Turn::Stepped { fresh: true, .. } => { /* show hosted.machine().picture(), play its sound */ }
//!             Turn::Trouble(trouble) => {
//!                 eprintln!("{trouble}");
//!                 session.leave(now());
//!             }
//!             _ => {}
//!         }
//!         // Send all that session.poll_transmit() has, at once.
//!     }
//! }
//! ```
//!
//! It reads no clock: whoever wants to know what steps, saves and loads cost measures around [`serve`](Hosted::serve), whose answer
//! tells what was done.

mod terms;

use std::fmt;

use coplay::frame::Frame;
use coplay::hash::xxh64;
use coplay::input::InputWord;
use coplay::session::{MAX_REGIONS, PAGE_SIZE, Request, Session, StateRegion};
use coplay::time::Instant;

use crate::machine::{LoadError, Machine, SaveError};

pub use terms::{Terms, config, settings};

/// The most hashes that a session asks for at once.
const PAGES_AT_ONCE: usize = 256;

/// A machine and the states that a session keeps of it.
pub struct Hosted {
    machine: Box<dyn Machine>,
    slots: Vec<Slot>,
    /// The machine's state of now, while another is looked at; or one on its way to somebody who comes late.
    aside: Vec<u8>,
    pages: Vec<u32>,
    inputs: Vec<InputWord>,
    fresh: bool,
    counts: Counts,
}

/// A place for a state.
#[derive(Default)]
struct Slot {
    /// The frame that comes next in it; `None` if nothing of use is in it.
    frame: Option<Frame>,
    state: Vec<u8>,
}

/// What was done for the session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Nothing yet: the local input is wanted. Hand it to [`Session::handle_input`]; it takes effect in this frame.
    Sample {
        /// The frame.
        frame: Frame,
    },
    /// A frame was stepped.
    Stepped {
        /// Which.
        frame: Frame,
        /// Whether it is to be seen and heard.
        fresh: bool,
    },
    /// The state before a frame was kept.
    Saved {
        /// Which.
        frame: Frame,
    },
    /// The machine was put back to where a frame comes next.
    Loaded {
        /// Which.
        frame: Frame,
    },
    /// The state after a frame was hashed.
    Hashed {
        /// Which.
        frame: Frame,
    },
    /// Something for those who come late, or who look for a difference.
    Aside,
    /// The machine could not do what the session takes for done, so that this site would play something else than the others. Say so, and
    /// leave.
    Trouble(Trouble),
}

/// Why a machine cannot be shared any further.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// A state could not be kept.
    Save(SaveError),
    /// A state that was kept, or that came from another site, could not be taken.
    Load(LoadError),
    /// The state that a repair needs was never kept.
    NoState(Frame),
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Save(error) => error.fmt(f),
            Self::Load(error) => error.fmt(f),
            Self::NoState(frame) => write!(f, "the state before frame {frame} was not kept"),
        }
    }
}

impl std::error::Error for Trouble {}

/// What was done since the beginning, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Frames stepped to be seen.
    pub fresh: u64,
    /// Frames stepped to repair the past, or to make up for it.
    pub again: u64,
    /// States kept.
    pub saves: u64,
    /// States put back.
    pub loads: u64,
    /// States hashed.
    pub hashes: u64,
}

impl Hosted {
    /// A machine that has stepped no frame yet.
    pub fn new(machine: Box<dyn Machine>) -> Self {
        Self {
            machine,
            slots: Vec::new(),
            aside: Vec::new(),
            pages: Vec::new(),
            inputs: Vec::new(),
            fresh: false,
            counts: Counts::default(),
        }
    }

    /// The machine.
    pub fn machine(&self) -> &dyn Machine {
        &*self.machine
    }

    /// The machine, to look closer. Whoever changes its state during a session plays another game than the rest.
    pub fn machine_mut(&mut self) -> &mut dyn Machine {
        &mut *self.machine
    }

    /// The inputs of the frame stepped last, one word per player.
    pub fn inputs(&self) -> &[InputWord] {
        &self.inputs
    }

    /// What was done so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Whether there is a picture that was not there when this was asked last.
    pub fn take_fresh(&mut self) -> bool {
        std::mem::take(&mut self.fresh)
    }

    /// Does the next thing that the session asks for, and says what it was; `None` when there is nothing to do at present.
    pub fn serve(&mut self, now: Instant, session: &mut Session) -> Option<Turn> {
        let done = match session.poll_request(now)? {
            Request::Sample { frame } => Ok(Turn::Sample { frame }),
            Request::Advance { frame, inputs, fresh } => Ok(self.advance(frame, inputs, fresh)),
            Request::Save { frame, slot } => self.save(frame, slot),
            Request::Load { frame, slot } => self.load(frame, slot),
            Request::Restore { frame, state } => self.restore(frame, state),
            Request::Snapshot { frame, slot } => self.snapshot(frame, slot, session),
            Request::Regions { .. } => Ok(self.tell_regions(session)),
            Request::Pages { region, from, .. } => Ok(self.tell_pages(region, from, session)),
            Request::Hash { frame } => {
                self.counts.hashes += 1;
                session.handle_hash(self.machine.hash());
                Ok(Turn::Hashed { frame })
            }
        };
        Some(done.unwrap_or_else(Turn::Trouble))
    }

    fn advance(&mut self, frame: Frame, inputs: &[InputWord], fresh: bool) -> Turn {
        self.inputs.clear();
        self.inputs.extend_from_slice(inputs);
        self.machine.step(inputs, fresh);
        self.fresh |= fresh;
        *if fresh { &mut self.counts.fresh } else { &mut self.counts.again } += 1;
        Turn::Stepped { frame, fresh }
    }

    fn save(&mut self, frame: Frame, slot: usize) -> Result<Turn, Trouble> {
        self.counts.saves += 1;
        if self.slots.len() <= slot {
            self.slots.resize_with(slot + 1, Slot::default);
        }
        let slot = &mut self.slots[slot];
        slot.frame = None;
        self.machine.save(&mut slot.state).map_err(Trouble::Save)?;
        slot.frame = Some(frame);
        Ok(Turn::Saved { frame })
    }

    fn load(&mut self, frame: Frame, slot: usize) -> Result<Turn, Trouble> {
        self.counts.loads += 1;
        let slot = self.slots.get(slot).filter(|slot| slot.frame == Some(frame)).ok_or(Trouble::NoState(frame))?;
        self.machine.load(&slot.state).map_err(Trouble::Load)?;
        Ok(Turn::Loaded { frame })
    }

    fn restore(&mut self, frame: Frame, state: &[u8]) -> Result<Turn, Trouble> {
        self.counts.loads += 1;
        self.machine.load(state).map_err(Trouble::Load)?;
        Ok(Turn::Loaded { frame })
    }

    /// Hands out a state with its hash. What cannot be handed out is asked for again, of us or of another site.
    fn snapshot(&mut self, frame: Frame, slot: Option<usize>, session: &mut Session) -> Result<Turn, Trouble> {
        if self.machine.save(&mut self.aside).is_err() {
            return Ok(Turn::Aside);
        }
        let Some(slot) = slot else {
            session.handle_snapshot(&self.aside, self.machine.hash());
            return Ok(Turn::Aside);
        };
        let kept = self.slots.get(slot).filter(|slot| slot.frame == Some(frame));
        if let Some(slot) = kept
            && self.machine.load(&slot.state).is_ok()
        {
            session.handle_snapshot(&slot.state, self.machine.hash());
            self.machine.load(&self.aside).map_err(Trouble::Load)?;
        }
        Ok(Turn::Aside)
    }

    fn tell_regions(&mut self, session: &mut Session) -> Turn {
        let mut regions = Vec::new();
        self.machine.regions(&mut |name, bytes| {
            if regions.len() < MAX_REGIONS {
                regions.push(StateRegion { name: name.into(), len: bytes.len() as u32, hash: short_hash(bytes) });
            }
        });
        session.handle_regions(&regions);
        Turn::Aside
    }

    fn tell_pages(&mut self, region: u8, from: u32, session: &mut Session) -> Turn {
        let (pages, mut at) = (&mut self.pages, 0);
        pages.clear();
        self.machine.regions(&mut |_, bytes| {
            if at == usize::from(region) {
                let wanted = bytes.chunks(PAGE_SIZE as usize).skip(from as usize).take(PAGES_AT_ONCE);
                pages.extend(wanted.map(short_hash));
            }
            at += 1;
        });
        session.handle_pages(pages);
        Turn::Aside
    }
}

fn short_hash(bytes: &[u8]) -> u32 {
    xxh64(0, bytes) as u32
}
