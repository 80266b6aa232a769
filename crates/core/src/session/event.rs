//! What a session tells its host program.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::fmt;

use super::desync::report::DesyncReport;
use super::settings::SettingsDifference;
use crate::frame::Frame;
use crate::id::{Addr, SiteId, SiteSet};
use crate::input::InputWord;
use crate::spectator_feed::SourceError;
use crate::time::{Instant, TimeDelta};
use crate::wire::Refusal;

/// What the session asks its host program to do, in this order.
#[derive(Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// Take the local input and hand it to [`Session::handle_input`](super::Session::handle_input); it takes effect in `frame`.
    Sample {
        /// The frame that the input is for.
        frame: Frame,
    },
    /// Keep a copy of the machine's state in a place of yours; what was there is of no use any more. Asked only if the copy may be
    /// needed: where [`Settings::window`](super::Settings::window) allows guessing, and for
    /// [`Config::investigate`](super::Config::investigate).
    Save {
        /// The frame that the machine has not stepped yet.
        frame: Frame,
        /// The place, below [`Session::slots`](super::Session::rollback_slots).
        slot: usize,
    },
    /// Put the machine back into the state that was kept in a place. The frames from there on follow once more.
    Load {
        /// The frame that the machine had not stepped yet.
        frame: Frame,
        /// The place.
        slot: usize,
    },
    /// Step the machine.
    Advance {
        /// The frame to step.
        frame: Frame,
        /// One word per player.
        inputs: &'a [InputWord],
        /// Whether the frame comes for the first time and is to be seen and heard. If not, it repairs the past: its picture and sound
        /// were out already.
        fresh: bool,
    },
    /// Hand the machine's state, and its hash, to [`Session::handle_snapshot`](super::Session::handle_snapshot): somebody comes late.
    Snapshot {
        /// The frame that the machine had not stepped yet.
        frame: Frame,
        /// The place where that state was kept; `None` if it is the machine's own of now.
        slot: Option<usize>,
    },
    /// Put the machine into a state that comes from another site. We come late, and the frames from there on follow.
    Restore {
        /// The frame that the machine there had not stepped yet.
        frame: Frame,
        /// The state. It comes from a stranger: check it like any file.
        state: &'a [u8],
    },
    /// Hand the named parts of the machine's state, with their hashes, to
    /// [`Session::handle_regions`](super::Session::handle_regions). States differ, and somebody wants to know where. What is not answered is left open.
    Regions {
        /// The frame just stepped.
        frame: Frame,
    },
    /// Hand the hashes of up to 256 pages of a part of the machine's state to
    /// [`Session::handle_pages`](super::Session::handle_pages).
    Pages {
        /// The frame just stepped.
        frame: Frame,
        /// The part, counted from 0.
        region: u8,
        /// The first page.
        from: u32,
    },
    /// Hash the state after `frame` and hand it to [`Session::handle_hash`](super::Session::handle_hash).
    Hash {
        /// The frame just stepped.
        frame: Frame,
    },
}

/// Something the host program may want to show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A site is there and wants to play the same.
    Agreed {
        /// Which.
        site: SiteId,
    },
    /// A site is there and wants to play something else. The game cannot start like this.
    Disagreed {
        /// Which.
        site: SiteId,
        /// Everything that differs.
        differences: Vec<SettingsDifference>,
    },
    /// We cannot take part.
    Refused {
        /// Who says so.
        site: SiteId,
        /// Why.
        reason: Refusal,
    },
    /// All agree; the first frame comes at this instant.
    Starting {
        /// When, on our clock.
        at: Instant,
    },
    /// The game waits for inputs longer than it should.
    Frozen(Freeze),
    /// It goes on.
    Resumed {
        /// The frame that it waited in.
        frame: Frame,
        /// How long the wait was.
        after: TimeDelta,
    },
    /// All sites pause together, because inputs are about to run out ([`Starvation::Pause`](super::StarvationPolicy)).
    Paused {
        /// Before this frame.
        frame: Frame,
        /// For so long.
        duration: TimeDelta,
        /// The site that would run out of them.
        site: SiteId,
    },
    /// A site is heard from another address than before.
    AddressChanged {
        /// Which.
        site: SiteId,
        /// Where it is now.
        addr: Addr,
    },
    /// A site left the game properly; from `frame` on its input is neutral.
    Left {
        /// Which.
        site: SiteId,
        /// The first frame without it.
        frame: Frame,
    },
    /// A site was silent for too long, or held up the game for too long, and it goes on without it; from `frame` on its input is what
    /// [`Settings::absent`](super::Settings::absent) says. Told again with an earlier frame if some of its last inputs were lost with
    /// another site that was dropped.
    Dropped {
        /// Which.
        site: SiteId,
        /// The first frame without it.
        frame: Frame,
    },
    /// A site took a seat while the game runs.
    Joined {
        /// Which.
        site: SiteId,
        /// The first frame with it.
        frame: Frame,
    },
    /// The inputs that we have of a site are not those that it gave: somebody who passed them on changed them. Told once.
    InputsForged {
        /// Whose.
        site: SiteId,
        /// The first compared frame at which that is known.
        frame: Frame,
    },
    /// Lag and window have changed, everywhere.
    DelayChanged {
        /// At this frame.
        frame: Frame,
        /// By how many frames local input is delayed now.
        input_delay: u32,
        /// How many frames may be guessed now.
        prediction_window: u32,
        /// Because inputs are this many frames old when they are needed.
        input_age: u32,
        /// At the site for which they are oldest.
        site: SiteId,
    },
    /// Two sites have different states after the same frame with the same inputs. Told once per site; statistics count on.
    Diverged {
        /// The site that differs from us.
        site: SiteId,
        /// The first compared frame at which it does.
        frame: Frame,
    },
    /// All that could be found out about a difference between the sites' states. The site that is odd can be healed: start its program
    /// anew, and let it [join](super::Config::join).
    DesyncReport(Box<DesyncReport>),
    /// This site and another one each went on alone, and have met again. One game is kept; the site that gives its own up ends with
    /// [`End::DroppedDatagrams`] and can [join](super::Config::join) the other.
    SplitBrainResolved {
        /// The other site.
        site: SiteId,
        /// Whether this site's game is kept.
        is_own_game_kept: bool,
    },
    /// The session is over.
    Ended(SessionEnd),
}

/// A wait for inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Freeze {
    /// The frame that cannot be stepped.
    pub frame: Frame,
    /// Since when.
    pub since: Instant,
    /// The sites whose input is missing.
    pub waiting_for: SiteSet,
    /// Those of them that are not heard at all; the others are heard, but they are slow or stuck themselves.
    pub silent_sites: SiteSet,
}

/// Why a session is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionEnd {
    /// We left.
    Left,
    /// Everybody else left, and [`Config::play_on_alone`](super::Config::can_play_alone) is not set.
    Alone,
    /// A site was silent for longer than we wanted to wait.
    Silent(SiteId),
    /// The others went on without us, because they did not hear us for too long, or had waited for us for too long.
    Dropped,
    /// Nobody could let us in.
    NoWayIn(SourceError),
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Agreed { site } => write!(f, "site {site} is here"),
            Self::Disagreed { site, differences } => {
                write!(f, "site {site} cannot play with us:")?;
                differences.iter().try_for_each(|difference| write!(f, " {difference};"))
            }
            Self::Refused { site, reason: Refusal::AlreadyRunning } => {
                write!(f, "site {site} says that the game is running and this seat was taken already")
            }
            Self::Refused { site, reason: Refusal::Dropped } => {
                write!(f, "site {site} says that the game goes on without us")
            }
            Self::Refused { site, reason: Refusal::ContinuedAlone { .. } } => {
                write!(f, "site {site} says that it plays on alone")
            }
            Self::SplitBrainResolved { site, is_own_game_kept: true } => {
                write!(f, "site {site} and this site both played on alone; this site's game is kept")
            }
            Self::SplitBrainResolved { site, is_own_game_kept: false } => {
                write!(f, "site {site} and this site both played on alone; the game of site {site} is kept")
            }
            Self::Starting { .. } => write!(f, "all agree, the game starts"),
            Self::Frozen(freeze) => freeze.fmt(f),
            Self::Resumed { frame, after } => write!(f, "goes on with frame {frame} after {after}"),
            Self::Paused { frame, duration: hold, site } => {
                write!(f, "all pause for {hold} before frame {frame}: inputs run out at site {site}")
            }
            Self::AddressChanged { site, .. } => write!(f, "site {site} has a new address"),
            Self::Left { site, frame } => write!(f, "site {site} left; frame {frame} is the first without it"),
            Self::Dropped { site, frame } => {
                write!(f, "site {site} was silent or late for too long; frame {frame} is the first without it")
            }
            Self::DelayChanged { frame, input_delay: lag, prediction_window: window, input_age: need, site } => write!(
                f,
                "lag {lag} and window {window} from frame {frame} on: inputs are {need} frames old at site {site}"
            ),
            Self::InputsForged { site, frame } => {
                write!(
                    f,
                    "up to frame {frame} we have other inputs of site {site} than it gave: somebody changed them on the way"
                )
            }
            Self::Joined { site, frame } => write!(f, "site {site} plays from frame {frame} on"),
            Self::Diverged { site, frame } => {
                write!(f, "the state of site {site} differs from ours after frame {frame}")
            }
            Self::DesyncReport(report) => report.fmt(f),
            Self::Ended(SessionEnd::Left) => write!(f, "we left"),
            Self::Ended(SessionEnd::Alone) => write!(f, "everybody else left"),
            Self::Ended(SessionEnd::Dropped) => write!(f, "the others went on without us"),
            Self::Ended(SessionEnd::NoWayIn(reason)) => write!(f, "nobody could let us in: {reason}"),
            Self::Ended(SessionEnd::Silent(site)) => write!(f, "site {site} was silent for too long"),
        }
    }
}

impl fmt::Display for Freeze {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "frozen at frame {}, waiting for", self.frame)?;
        for site in self.waiting_for.iter() {
            write!(f, " site {site}{}", if self.silent_sites.contains(site) { " (silent)" } else { "" })?;
        }
        Ok(())
    }
}

/// The most events kept for a host program that does not ask.
const MAX_EVENTS: usize = 64;

/// Events not yet asked for; when there are too many, the oldest go.
#[derive(Debug)]
pub(super) struct SessionEventQueue {
    queue: VecDeque<Event>,
}

impl SessionEventQueue {
    pub(super) fn new() -> Self {
        Self { queue: VecDeque::with_capacity(MAX_EVENTS) }
    }

    /// Bytes on the heap, without what single events hold.
    pub(super) fn memory(&self) -> usize {
        self.queue.capacity() * size_of::<Event>()
    }

    pub(super) fn push(&mut self, event: Event) {
        if self.queue.len() == MAX_EVENTS {
            self.queue.pop_front();
        }
        self.queue.push_back(event);
    }

    #[inline]
    pub(super) fn pop(&mut self) -> Option<Event> {
        self.queue.pop_front()
    }
}
