//! Pace: when the next frame begins.
//!
//! Two rivals behind one surface, so that they can be compared: [`EvenPacer`], ours and the default, and [`Paper`], Algorithms 3 and 4 of
//! Zhao et al. exactly as written. A session tells its pacer what happens; the pacer tells when the next frame begins.

mod even;
mod zhao;

pub use even::EvenPacer;
pub use zhao::{ZhaoMaster, ZhaoPacer};

use alloc::boxed::Box;

use crate::frame::Frame;
use crate::id::SiteId;
use crate::time::{Instant, TimeDelta};

/// Which pacing a site uses. Sites need not use the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Pacing {
    /// Sub-frame, slew-limited, slowing evenly where the link is too long for the lag.
    #[default]
    Even,
    /// Algorithms 3 and 4: what ran long is repaid at once, and every site but the first moves towards the first.
    Zhao,
    /// Algorithm 3 alone, in which the site that starts first is penalised.
    ZhaoUnsynchronised,
}

/// The pacer of one site in one running game.
#[derive(Debug)]
pub(crate) enum Pacer {
    Even(Box<EvenPacer>),
    Zhao(ZhaoPacer),
}

impl Pacer {
    pub(crate) fn new(pacing: Pacing, period: TimeDelta, lag: u32, start: Instant) -> Self {
        match pacing {
            Pacing::Even => Self::Even(Box::new(EvenPacer::new(period, lag, start))),
            Pacing::Zhao | Pacing::ZhaoUnsynchronised => Self::Zhao(ZhaoPacer::new(period, lag, start)),
        }
    }

    /// Frames are guessed at this site, and it follows another's plan.
    pub(crate) fn enable_dither(&mut self, site: SiteId) {
        if let Self::Even(even) = self {
            even.enable_dither(site);
        }
    }

    /// When the next frame begins.
    pub(crate) fn next_start(&self) -> Instant {
        match self {
            Self::Even(even) => even.next_start(),
            Self::Zhao(paper) => paper.next_start(),
        }
    }

    /// The time from one frame to the next as things are.
    pub(crate) fn period(&self) -> TimeDelta {
        match self {
            Self::Even(even) => even.current_period(),
            Self::Zhao(paper) => paper.period(),
        }
    }

    /// When the current frame should have begun.
    pub(crate) fn planned_start(&self) -> Option<Instant> {
        match self {
            Self::Even(even) => Some(even.planned_start()),
            Self::Zhao(_) => None,
        }
    }

    /// A frame begins: its local input is taken.
    pub(crate) fn on_begin(&mut self, now: Instant, frame: Frame, master: Option<ZhaoMaster>) {
        match self {
            Self::Even(even) => even.on_begin(now),
            Self::Zhao(paper) => paper.begin_frame_timing(now, frame, master),
        }
    }

    /// All inputs are there, the machine is about to step. Returns whether that is enough to plan the next frame; the paper's
    /// pacing must also be told when the machine has stepped.
    pub(crate) fn on_step(&mut self, now: Instant, frame: Frame) -> bool {
        match self {
            Self::Even(even) => even.on_step(now, frame),
            Self::Zhao(_) => return false,
        }
        true
    }

    /// The machine has stepped.
    pub(crate) fn on_end(&mut self, now: Instant) {
        if let Self::Zhao(paper) = self {
            paper.end_frame_timing(now);
        }
    }

    /// A packet of a peer was under way for so long.
    pub(crate) fn on_delay(&mut self, now: Instant, site: SiteId, delay: TimeDelta) {
        if let Self::Even(even) = self {
            even.on_delay(now, site, delay);
        }
    }

    /// The site that sets the pace planned to begin a frame at this time of ours.
    pub(crate) fn on_reference(&mut self, frame: Frame, at: Instant) {
        if let Self::Even(even) = self {
            even.on_reference(frame, at);
        }
    }

    /// The frame that the reference is in at this time, if that is known.
    pub(crate) fn frame_at(&self, now: Instant) -> Option<Frame> {
        match self {
            Self::Even(even) => even.frame_at(now),
            Self::Zhao(_) => None,
        }
    }

    /// Goes to a frame at once, as the reference has it; `false` if that is not known.
    pub(crate) fn jump_to(&mut self, now: Instant, frame: Frame) -> bool {
        match self {
            Self::Even(even) => even.jump_to(now, frame),
            Self::Zhao(_) => true,
        }
    }

    /// Lag and window have changed: sites may be so many frames apart.
    pub(crate) fn set_max_lead(&mut self, reach: u32) {
        if let Self::Even(even) = self {
            even.set_max_lead(reach);
        }
    }

    /// Nobody begins a frame before this.
    pub(crate) fn pause_until(&mut self, until: Instant) {
        if let Self::Even(even) = self {
            even.pause_until(until);
        }
    }

    /// The site whose way is too long for frames of this period, and the part of the time that it costs.
    pub(crate) fn limiting_site(&self, period: TimeDelta) -> Option<(SiteId, f64)> {
        match self {
            Self::Even(even) => even.limiting_site(period),
            Self::Zhao(_) => None,
        }
    }

    /// The site will not be waited for again.
    pub(crate) fn forget_site(&mut self, site: SiteId) {
        if let Self::Even(even) = self {
            even.forget_site(site);
        }
    }
}
