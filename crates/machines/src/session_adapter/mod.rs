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
//! It reads no clock: whoever wants to know what steps, saves and loads cost measures around [`serve`](SessionAdapter::serve), whose answer
//! tells what was done.

mod options;

use std::fmt;

use coplay::frame::Frame;
use coplay::hash::xxh64;
use coplay::input::InputWord;
use coplay::session::{MAX_REGIONS, PAGE_SIZE, Request, Session, StateRegion};
use coplay::time::Instant;

use crate::machine::{LoadError, Machine, SaveError};

pub use options::{SessionOptions, config, settings};

/// The most hashes that a session asks for at once.
const MAX_PAGES_PER_REQUEST: usize = 256;

/// A machine and the states that a session keeps of it.
pub struct SessionAdapter {
    machine: Box<dyn Machine>,
    slots: Vec<StateSlot>,
    /// The machine's state of now, while another is looked at; or one on its way to somebody who comes late.
    scratch_state: Vec<u8>,
    page_hashes: Vec<u32>,
    inputs: Vec<InputWord>,
    has_new_picture: bool,
    counts: RequestCounts,
}

/// A place for a state.
#[derive(Default)]
struct StateSlot {
    /// The frame that comes next in it; `None` if nothing of use is in it.
    frame: Option<Frame>,
    state: Vec<u8>,
}

/// What was done for the session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestOutcome {
    /// Nothing yet: the local input is wanted. Hand it to [`Session::handle_input`]; it takes effect in this frame.
    InputNeeded {
        /// The frame.
        frame: Frame,
    },
    /// A frame was stepped.
    Stepped {
        /// Which.
        frame: Frame,
        /// Whether it is to be seen and heard.
        rendered: bool,
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
    SideWork,
    /// The machine could not do what the session takes for done, so that this site would play something else than the others. Say so, and
    /// leave.
    Failed(AdapterError),
}

/// Why a machine cannot be shared any further.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AdapterError {
    /// A state could not be kept.
    Save(SaveError),
    /// A state that was kept, or that came from another site, could not be taken.
    Load(LoadError),
    /// The state that a repair needs was never kept.
    MissingState(Frame),
}

impl fmt::Display for AdapterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Save(error) => error.fmt(f),
            Self::Load(error) => error.fmt(f),
            Self::MissingState(frame) => write!(f, "the state before frame {frame} was not kept"),
        }
    }
}

impl std::error::Error for AdapterError {}

/// What was done since the beginning, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestCounts {
    /// Frames stepped to be seen.
    pub rendered_steps: u64,
    /// Frames stepped to repair the past, or to make up for it.
    pub resimulated_steps: u64,
    /// States kept.
    pub saves: u64,
    /// States put back.
    pub loads: u64,
    /// States hashed.
    pub hashes: u64,
}

impl SessionAdapter {
    /// A machine that has stepped no frame yet.
    pub fn new(machine: Box<dyn Machine>) -> Self {
        Self {
            machine,
            slots: Vec::new(),
            scratch_state: Vec::new(),
            page_hashes: Vec::new(),
            inputs: Vec::new(),
            has_new_picture: false,
            counts: RequestCounts::default(),
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
    pub fn counts(&self) -> RequestCounts {
        self.counts
    }

    /// Whether there is a picture that was not there when this was asked last.
    pub fn take_new_picture(&mut self) -> bool {
        std::mem::take(&mut self.has_new_picture)
    }

    /// Does the next thing that the session asks for, and says what it was; `None` when there is nothing to do at present.
    pub fn handle_next_request(&mut self, now: Instant, session: &mut Session) -> Option<RequestOutcome> {
        let done = match session.poll_request(now)? {
            Request::Sample { frame } => Ok(RequestOutcome::InputNeeded { frame }),
            Request::Advance { frame, inputs, fresh } => Ok(self.advance(frame, inputs, fresh)),
            Request::Save { frame, slot } => self.save(frame, slot),
            Request::Load { frame, slot } => self.load(frame, slot),
            Request::Restore { frame, state } => self.restore(frame, state),
            Request::Snapshot { frame, slot } => self.snapshot(frame, slot, session),
            Request::Regions { .. } => Ok(self.answer_regions(session)),
            Request::Pages { region, from, .. } => Ok(self.answer_pages(region, from, session)),
            Request::Hash { frame } => {
                self.counts.hashes += 1;
                session.handle_hash(self.machine.hash());
                Ok(RequestOutcome::Hashed { frame })
            }
        };
        Some(done.unwrap_or_else(RequestOutcome::Failed))
    }

    fn advance(&mut self, frame: Frame, inputs: &[InputWord], fresh: bool) -> RequestOutcome {
        self.inputs.clear();
        self.inputs.extend_from_slice(inputs);
        self.machine.step(inputs, fresh);
        self.has_new_picture |= fresh;
        *if fresh { &mut self.counts.rendered_steps } else { &mut self.counts.resimulated_steps } += 1;
        RequestOutcome::Stepped { frame, rendered: fresh }
    }

    fn save(&mut self, frame: Frame, slot: usize) -> Result<RequestOutcome, AdapterError> {
        self.counts.saves += 1;
        if self.slots.len() <= slot {
            self.slots.resize_with(slot + 1, StateSlot::default);
        }
        let slot = &mut self.slots[slot];
        slot.frame = None;
        self.machine.save(&mut slot.state).map_err(AdapterError::Save)?;
        slot.frame = Some(frame);
        Ok(RequestOutcome::Saved { frame })
    }

    fn load(&mut self, frame: Frame, slot: usize) -> Result<RequestOutcome, AdapterError> {
        self.counts.loads += 1;
        let slot =
            self.slots.get(slot).filter(|slot| slot.frame == Some(frame)).ok_or(AdapterError::MissingState(frame))?;
        self.machine.load(&slot.state).map_err(AdapterError::Load)?;
        Ok(RequestOutcome::Loaded { frame })
    }

    fn restore(&mut self, frame: Frame, state: &[u8]) -> Result<RequestOutcome, AdapterError> {
        self.counts.loads += 1;
        self.machine.load(state).map_err(AdapterError::Load)?;
        Ok(RequestOutcome::Loaded { frame })
    }

    /// Hands out a state with its hash. What cannot be handed out is asked for again, of us or of another site.
    fn snapshot(
        &mut self,
        frame: Frame,
        slot: Option<usize>,
        session: &mut Session,
    ) -> Result<RequestOutcome, AdapterError> {
        if self.machine.save(&mut self.scratch_state).is_err() {
            return Ok(RequestOutcome::SideWork);
        }
        let Some(slot) = slot else {
            session.handle_snapshot(&self.scratch_state, self.machine.hash());
            return Ok(RequestOutcome::SideWork);
        };
        let kept = self.slots.get(slot).filter(|slot| slot.frame == Some(frame));
        if let Some(slot) = kept
            && self.machine.load(&slot.state).is_ok()
        {
            session.handle_snapshot(&slot.state, self.machine.hash());
            self.machine.load(&self.scratch_state).map_err(AdapterError::Load)?;
        }
        Ok(RequestOutcome::SideWork)
    }

    fn answer_regions(&mut self, session: &mut Session) -> RequestOutcome {
        let mut regions = Vec::new();
        self.machine.regions(&mut |name, bytes| {
            if regions.len() < MAX_REGIONS {
                regions.push(StateRegion { name: name.into(), len: bytes.len() as u32, hash: short_hash(bytes) });
            }
        });
        session.handle_regions(&regions);
        RequestOutcome::SideWork
    }

    fn answer_pages(&mut self, region: u8, from: u32, session: &mut Session) -> RequestOutcome {
        let (pages, mut at) = (&mut self.page_hashes, 0);
        pages.clear();
        self.machine.regions(&mut |_, bytes| {
            if at == usize::from(region) {
                let wanted = bytes.chunks(PAGE_SIZE as usize).skip(from as usize).take(MAX_PAGES_PER_REQUEST);
                pages.extend(wanted.map(short_hash));
            }
            at += 1;
        });
        session.handle_pages(pages);
        RequestOutcome::SideWork
    }
}

fn short_hash(bytes: &[u8]) -> u32 {
    xxh64(0, bytes) as u32
}
