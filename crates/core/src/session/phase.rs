//! Phases: what a session does now, from the lobby to its end, and within a frame.

use super::event::{Freeze, SessionEnd};
use crate::id::SiteSet;
use crate::time::Instant;

/// Phase of a session. [`State`] is its public form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Lobby,
    /// This site follows a spectator feed until it plays.
    Joining,
    Starting {
        at: Instant,
    },
    Running(FramePhase),
    Over(SessionEnd),
}

/// Phase of a running game within its frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FramePhase {
    /// Between two frames: the next one has not begun.
    Idle,
    /// The frame has begun, and a local input has to be requested from the host program.
    SampleDue,
    /// The local input was requested from the host program.
    AwaitSample,
    /// The local input is known; waits until the frame may be stepped.
    AwaitInputs { began: Instant },
    /// Steps the machine up to the target. `is_saved` means that the machine's current state is saved already.
    Simulate { target: SimulationTarget, is_saved: bool },
    /// The host program steps the machine, and the pacer needs the end of that step.
    AwaitStep,
    /// Replays past frames for a desync search, while no frame is under way.
    Replay,
    /// Requests to save the machine's current state as an anchor for desync searches.
    SaveAnchor { slot: usize, target: Option<SimulationTarget> },
    /// Requests the hash of the state after the frame that was just stepped for the first time.
    Hash,
    /// Requests the hash of the state after a resimulated frame.
    HashResimulated { target: SimulationTarget },
}

impl FramePhase {
    /// Returns the phase that steps the machine up to a target, from a state that is not saved.
    pub(super) fn simulate(target: SimulationTarget) -> Self {
        Self::Simulate { target, is_saved: false }
    }

    /// Returns whether the current frame has not begun.
    pub(super) fn is_between_frames(self) -> bool {
        matches!(
            self,
            Self::Idle
                | Self::Hash
                | Self::Replay
                | Self::Simulate { target: SimulationTarget::BeforeNextFrame, .. }
                | Self::HashResimulated { target: SimulationTarget::BeforeNextFrame }
                | Self::SaveAnchor { target: None | Some(SimulationTarget::BeforeNextFrame), .. }
        )
    }
}

/// The frame up to which the machine is stepped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SimulationTarget {
    /// The state before the frame that has not begun yet. No frame waits for this rollback.
    BeforeNextFrame,
    /// The state after the current frame, which began at `began`; that frame is stepped, too.
    CurrentFrame { began: Instant },
}

/// Phase of a session, as [`Session::state`](super::Session::state) returns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Waits for the other sites to connect and agree.
    Lobby {
        /// Starting sites that are not connected, have left, do not agree with this site, or do not agree with every
        /// starting site.
        waiting_for: SiteSet,
    },
    /// Follows a running game, to take a seat in it.
    Joining {
        /// Downloaded part of the snapshot, in percent; 0 before the download of one begins.
        download_percent: u8,
    },
    /// All starting sites agree; the first frame begins at this instant.
    Starting {
        /// Start of the first frame, on this site's clock.
        at: Instant,
    },
    /// The game runs and is not frozen, or this site is leaving it.
    Running,
    /// Frames do not advance: inputs have been missing for longer than
    /// [`Config::freeze_timeout`](super::Config::freeze_timeout).
    Frozen(Freeze),
    /// The session is over, for this reason.
    Ended(SessionEnd),
}
