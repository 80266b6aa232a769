//! Events: what a session reports to its host program.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::{fmt, iter};

use super::desync::report::DesyncReport;
use crate::frame::Frame;
use crate::id::{Addr, SiteId, SiteSet};
use crate::session::message::Refusal;
use crate::settings::SettingsDifference;
use crate::spectator_feed::SourceError;
use crate::time::{Instant, TimeDelta};

/// An event that the host program may show to the player.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A site is connected and has the same settings, and this site knows that site's clock.
    Agreed {
        /// The site that agrees.
        site: SiteId,
    },
    /// A site is connected and has different settings, another protocol version, or another site number than expected.
    /// A game does not start while two starting sites disagree, and a site cannot join a running game while it
    /// disagrees with a player.
    Disagreed {
        /// The site that disagrees.
        site: SiteId,
        /// All differences from this site.
        differences: Vec<SettingsDifference>,
    },
    /// Another site refuses to let this site take part.
    Refused {
        /// The site that refuses.
        site: SiteId,
        /// The reason that the other site gives.
        reason: Refusal,
    },
    /// All starting sites agree; the first frame begins at this instant.
    Starting {
        /// Start of the first frame, on this site's clock.
        at: Instant,
    },
    /// The game has waited for inputs for [`Config::freeze_timeout`](super::Config::freeze_timeout). The event is
    /// repeated when the sites that the game waits for, or the silent ones among them, change.
    Frozen(Freeze),
    /// The game goes on after a freeze.
    Resumed {
        /// The frame that had to wait.
        frame: Frame,
        /// Time from the start of the frame to its step.
        after: TimeDelta,
    },
    /// All sites pause together, because inputs are about to run out
    /// ([`StarvationPolicy::Pause`](super::StarvationPolicy::Pause)).
    Paused {
        /// The frame before which the site that asked for the pause waits.
        frame: Frame,
        /// Time from now until frames begin again at this site.
        duration: TimeDelta,
        /// The site that asked for the pause.
        site: SiteId,
    },
    /// A site sends from another address, which receives this site's packets from now on. Does not occur with
    /// [`Config::is_transport_authenticated`](super::Config::is_transport_authenticated).
    AddressChanged {
        /// The site that has moved.
        site: SiteId,
        /// The new address.
        addr: Addr,
    },
    /// A site left the game in an orderly way; the input of its players is neutral from `frame` on.
    Left {
        /// The site that left.
        site: SiteId,
        /// The first frame without its input; 0 in the lobby.
        frame: Frame,
    },
    /// A site was dropped: it was silent or held up the game for too long, its program was restarted, or a host program
    /// asked for the drop with [`Session::drop_site`](super::Session::drop_site) or
    /// [`Session::continue_alone`](super::Session::continue_alone). From `frame` on
    /// [`Settings::absent_input`](super::Settings::absent_input) defines its input. The event is repeated with an
    /// earlier frame if some of the site's last inputs were lost with another dropped site.
    Dropped {
        /// The dropped site.
        site: SiteId,
        /// The first frame without its input.
        frame: Frame,
    },
    /// A site, perhaps this one, took a seat in the running game.
    Joined {
        /// The site that joined.
        site: SiteId,
        /// The first frame with its input.
        frame: Frame,
    },
    /// This site has inputs of another site that differ from those that the other site gave: a relaying site changed
    /// them. Reported once per site, until the seat is taken again.
    InputsForged {
        /// The site whose inputs differ.
        site: SiteId,
        /// The compared frame at which this site found that the hashes of the inputs so far differ.
        frame: Frame,
    },
    /// All sites change input delay, prediction window or both at the same frame.
    DelayChanged {
        /// The first frame with the new values.
        frame: Frame,
        /// New input delay, in frames.
        input_delay: u32,
        /// New prediction window, in frames.
        prediction_window: u32,
        /// The highest input age that a site reported, in frames: the number of frames by which the inputs received
        /// from the slowest peer ended before the site's own, plus the frame periods for which the frame waited. 98 %
        /// of the frames at `site` did not exceed it.
        input_age: u32,
        /// The site that reported this input age.
        site: SiteId,
    },
    /// Two sites have different states after the same frame. Only the first mismatch with a site since that site or
    /// this one took its seat is reported; the statistics count every mismatch.
    Diverged {
        /// The site whose state differs from this site's. If this site joins late and its state differs from its
        /// feed's, this is the lowest other site.
        site: SiteId,
        /// The compared frame after which the states differ.
        frame: Frame,
    },
    /// The result of a desync search. A site whose state differs from that of most sites can be healed: restart its
    /// program, and let it join with [`Config::late_join`](super::Config::late_join).
    DesyncReport(Box<DesyncReport>),
    /// This site and another one went on without each other and have met again. One game is kept. The site that gives
    /// its own game up ends with [`SessionEnd::Dropped`] and can [join](super::Config::late_join) the other game.
    SplitBrainResolved {
        /// The site that this site has met again.
        site: SiteId,
        /// Whether this site's game is kept.
        is_own_game_kept: bool,
    },
    /// The session is over, for this reason.
    Ended(SessionEnd),
}

/// A wait for inputs that has lasted for at least [`Config::freeze_timeout`](super::Config::freeze_timeout).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Freeze {
    /// The frame that cannot be stepped.
    pub frame: Frame,
    /// Time at which that frame began, and with it the wait.
    pub since: Instant,
    /// Sites whose missing inputs keep the frame from being stepped.
    pub waiting_for: SiteSet,
    /// The sites of `waiting_for` from which no packet has arrived for
    /// [`Config::freeze_timeout`](super::Config::freeze_timeout). The rest of `waiting_for` sends, but is slow or
    /// stalled itself.
    pub silent_sites: SiteSet,
}

/// Reason that a session is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionEnd {
    /// This site left, on [`Session::leave`](super::Session::leave).
    Left,
    /// All other sites left, the game had started with all seats taken, and
    /// [`Config::can_play_alone`](super::Config::can_play_alone) is not set.
    Alone,
    /// A site was silent for longer than [`Config::silence_timeout`](super::Config::silence_timeout).
    Silent(SiteId),
    /// The others dropped this site or play without it, or this site gave its own game up after a split brain.
    Dropped,
    /// This site could not join the running game, for this reason.
    NoWayIn(SourceError),
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Agreed { site } => write!(f, "site {site} is connected and has the same settings"),
            Self::Disagreed { site, differences } => {
                write!(f, "site {site} does not match this site")?;
                let separators = iter::once(": ").chain(iter::repeat("; "));
                differences
                    .iter()
                    .zip(separators)
                    .try_for_each(|(difference, before)| write!(f, "{before}{difference}"))
            }
            Self::Refused { site, reason: Refusal::AlreadyRunning } => {
                write!(
                    f,
                    "site {site} refused this site: the game is running, and a site has already played in this seat"
                )
            }
            Self::Refused { site, reason: Refusal::Dropped } => {
                write!(f, "site {site} refused this site: the game continues without this site")
            }
            Self::Refused { site, reason: Refusal::ContinuedAlone { .. } } => {
                write!(f, "site {site} refused this site and plays on alone")
            }
            Self::SplitBrainResolved { site, is_own_game_kept: true } => {
                write!(f, "site {site} and this site both played on alone; this site's game is kept")
            }
            Self::SplitBrainResolved { site, is_own_game_kept: false } => {
                write!(f, "site {site} and this site both played on alone; the game of site {site} is kept")
            }
            Self::Starting { .. } => write!(f, "all starting sites agree on the settings; the game starts"),
            Self::Frozen(freeze) => freeze.fmt(f),
            Self::Resumed { frame, after } => write!(f, "the game resumed at frame {frame} after a wait of {after}"),
            Self::Paused { frame, duration, site } => {
                write!(f, "all sites pause for {duration} before frame {frame}: site {site} is running out of inputs")
            }
            Self::AddressChanged { site, .. } => write!(f, "site {site} has a new address"),
            Self::Left { site, frame } => write!(f, "site {site} left; frame {frame} is the first without it"),
            Self::Dropped { site, frame } => {
                write!(
                    f,
                    "site {site} was dropped (silent, slow, restarted, or at the request of a host program); \
                    frame {frame} is the first without its input"
                )
            }
            Self::DelayChanged { frame, input_delay, prediction_window, input_age, site } => write!(
                f,
                "input delay {input_delay} frames and prediction window {prediction_window} frames from frame {frame} on: \
                    the newest inputs at site {site} are up to {input_age} frames old"
            ),
            Self::InputsForged { site, frame } => {
                write!(
                    f,
                    "the inputs of site {site} up to frame {frame} differ from those that it sent: \
                    a relaying site changed them"
                )
            }
            Self::Joined { site, frame } => write!(f, "site {site} plays from frame {frame} on"),
            Self::Diverged { site, frame } => {
                write!(f, "desync: the state of site {site} differs from that of this site after frame {frame}")
            }
            Self::DesyncReport(report) => report.fmt(f),
            Self::Ended(SessionEnd::Left) => write!(f, "this site left the game"),
            Self::Ended(SessionEnd::Alone) => write!(f, "all other sites left the game"),
            Self::Ended(SessionEnd::Dropped) => write!(f, "the game continues without this site"),
            Self::Ended(SessionEnd::NoWayIn(reason)) => write!(f, "this site could not join the game: {reason}"),
            Self::Ended(SessionEnd::Silent(site)) => {
                write!(f, "site {site} was silent for longer than the silence timeout")
            }
        }
    }
}

impl fmt::Display for Freeze {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the game is frozen at frame {}, waiting for ", self.frame)?;
        for (site, before) in self.waiting_for.iter().zip(iter::once("").chain(iter::repeat(", "))) {
            write!(f, "{before}site {site}{}", if self.silent_sites.contains(site) { " (silent)" } else { "" })?;
        }
        Ok(())
    }
}

/// Maximum number of unread events in the queue.
const MAX_EVENTS: usize = 64;

/// Unread events. When the queue is full, the oldest event is discarded.
#[derive(Debug)]
pub(super) struct SessionEventQueue {
    queue: VecDeque<Event>,
}

impl SessionEventQueue {
    pub(super) fn new() -> Self {
        Self { queue: VecDeque::with_capacity(MAX_EVENTS) }
    }

    /// Returns the size of the queue on the heap, in bytes, without the heap data of single events.
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
