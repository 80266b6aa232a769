//! Connects a machine to a session: serves every request of a [`Session`] except local input.
//!
//! ```
//! use coplay::input::InputWord;
//! use coplay::session::Session;
//! use coplay::time::Instant;
//! use coplay_machines::session_adapter::{RequestOutcome, SessionAdapter};
//!
//! fn run(now: fn() -> Instant, session: &mut Session, adapter: &mut SessionAdapter, pads: &[InputWord]) {
//!     while let Some(outcome) = adapter.handle_next_request(now(), session) {
//!         match outcome {
//!             RequestOutcome::InputNeeded { .. } => session.handle_input(now(), pads),
//!             // Show the picture and play the sound of adapter.machine().
//!             RequestOutcome::Stepped { rendered: true, .. } => {}
//!             RequestOutcome::Failed(error) => {
//!                 eprintln!("{error}");
//!                 session.leave(now());
//!             }
//!             _ => {}
//!         }
//!         // Send everything that session.poll_transmit() returns, at once.
//!     }
//! }
//! ```
//!
//! The adapter reads no clock. To measure the cost of steps, saves and loads, time the calls of
//! [`handle_next_request`](SessionAdapter::handle_next_request), whose result names the work done.

mod options;

use std::fmt;

use coplay::frame::Frame;
use coplay::hash::xxh64;
use coplay::input::InputWord;
use coplay::session::{MAX_REGIONS, PAGE_SIZE, Request, Session, StateRegion};
use coplay::time::Instant;

use crate::machine::{LoadError, Machine, SaveError};

pub use options::{SharedGameOptions, config, settings};

/// Maximum number of page hashes in one answer to the session, which requests at most as many at once.
const MAX_PAGES_PER_REQUEST: usize = 256;

/// A machine in a session, with the states that it saved for rollbacks and desync searches.
pub struct SessionAdapter {
    machine: Box<dyn Machine>,
    slots: Vec<StateSlot>,
    /// Buffer for a snapshot of the current state, or for the current state while the state of a slot is loaded and
    /// hashed.
    scratch_state: Vec<u8>,
    page_hashes: Vec<u32>,
    inputs: Vec<InputWord>,
    has_new_picture: bool,
    counts: RequestCounts,
}

/// A state saved for a rollback or a desync search, in the slot that the session chose.
#[derive(Default)]
struct StateSlot {
    /// Frame that the machine steps next from this state; `None` if the slot is empty.
    frame: Option<Frame>,
    state: Vec<u8>,
}

/// The work done for a request of the session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestOutcome {
    /// The session needs local input. Pass it to [`Session::handle_input`]; it takes effect in this frame.
    InputNeeded {
        /// Frame in which the input takes effect.
        frame: Frame,
    },
    /// The machine stepped a frame.
    Stepped {
        /// Frame that the machine stepped.
        frame: Frame,
        /// Whether the frame is to be shown and heard.
        rendered: bool,
    },
    /// The machine saved the state before a frame.
    Saved {
        /// Frame that follows the saved state.
        frame: Frame,
    },
    /// The machine loaded the state before a frame.
    Loaded {
        /// Frame that follows the loaded state.
        frame: Frame,
    },
    /// The machine hashed the state after a frame.
    Hashed {
        /// Frame after which the state was hashed.
        frame: Frame,
    },
    /// The adapter handled a request for a snapshot, state regions or page hashes, which late joiners, spectators or a
    /// desync search need.
    SideWork,
    /// The machine failed to do work that the session relies on, so this site would diverge. Report the error and leave
    /// the session.
    Failed(AdapterError),
}

/// Error after which the machine cannot stay in the session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AdapterError {
    /// Saving a state for a rollback or a desync search failed.
    Save(SaveError),
    /// Loading a saved state or the snapshot of another site failed.
    Load(LoadError),
    /// The slot from which the session loads a state does not hold the state before this frame.
    MissingState(Frame),
}

impl fmt::Display for AdapterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Save(error) => error.fmt(f),
            Self::Load(error) => error.fmt(f),
            Self::MissingState(frame) => write!(f, "the state before frame {frame} was not saved"),
        }
    }
}

impl std::error::Error for AdapterError {}

/// Numbers of requests served since the adapter was created, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestCounts {
    /// Frames that were rendered: shown and heard.
    pub rendered_steps: u64,
    /// Frames that were not rendered: resimulated after a rollback or for a desync search, or stepped to catch up.
    pub resimulated_steps: u64,
    /// Requests to save a state into a slot, for a rollback or a desync search.
    pub saves: u64,
    /// Requests to load a saved state, or the snapshot of another site.
    pub loads: u64,
    /// Requests for a state hash.
    pub hashes: u64,
}

impl SessionAdapter {
    /// Wraps a machine that has stepped no frame yet.
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

    /// Returns the machine, for its picture, sound and identity.
    pub fn machine(&self) -> &dyn Machine {
        &*self.machine
    }

    /// Returns the machine for calls that need `&mut`, such as [`Machine::hash`]. A change of the machine's state
    /// during a session makes this site diverge.
    pub fn machine_mut(&mut self) -> &mut dyn Machine {
        &mut *self.machine
    }

    /// Returns the inputs of the last stepped frame, one word per player.
    pub fn inputs(&self) -> &[InputWord] {
        &self.inputs
    }

    /// Returns the numbers of requests served since the adapter was created.
    pub fn counts(&self) -> RequestCounts {
        self.counts
    }

    /// Returns whether a frame was rendered since the last call.
    pub fn take_new_picture(&mut self) -> bool {
        std::mem::take(&mut self.has_new_picture)
    }

    /// Serves the next request of the session and returns the work done; `None` if no request is pending.
    pub fn handle_next_request(&mut self, now: Instant, session: &mut Session) -> Option<RequestOutcome> {
        let outcome = match session.poll_request(now)? {
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
        Some(outcome.unwrap_or_else(RequestOutcome::Failed))
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

    /// Passes a snapshot and its hash to the session: the state in `slot`, or the current state if `slot` is `None`. If
    /// the machine cannot save or load a state, or the slot does not hold the state before `frame`, the session gets no
    /// snapshot, and late joiners wait longer. Fails only if the machine cannot load its current state back.
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
        let saved_slot = self.slots.get(slot).filter(|slot| slot.frame == Some(frame));
        if let Some(slot) = saved_slot
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
        let (pages, mut index) = (&mut self.page_hashes, 0);
        pages.clear();
        self.machine.regions(&mut |_, bytes| {
            if index == usize::from(region) {
                let requested = bytes.chunks(PAGE_SIZE as usize).skip(from as usize).take(MAX_PAGES_PER_REQUEST);
                pages.extend(requested.map(short_hash));
            }
            index += 1;
        });
        session.handle_pages(pages);
        RequestOutcome::SideWork
    }
}

fn short_hash(bytes: &[u8]) -> u32 {
    xxh64(0, bytes) as u32
}
