//! Pacing: decides when the next frame begins.
//!
//! Two algorithms share one interface, so that they can be compared: [`EvenPacer`], the default, and [`ZhaoPacer`],
//! Algorithms 3 and 4 of Zhao et al. exactly as published. A session reports events to its pacer, and the pacer returns
//! the start of the next frame.

mod even;
mod zhao;

pub use even::EvenPacer;
pub use zhao::{MasterObservation, ZhaoPacer};

use alloc::boxed::Box;

use crate::frame::Frame;
use crate::id::SiteId;
use crate::time::{Instant, TimeDelta};

/// Pacing algorithm of a site. Sites need not use the same one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Pacing {
    /// [`EvenPacer`]: follows the plan of the lowest site that plays by small corrections, and slows down evenly where
    /// the link delay is too long for input delay plus prediction window.
    #[default]
    Even,
    /// Algorithms 3 and 4 of Zhao et al.: the frame after one that ran long is shorter by the excess, and every site
    /// but the lowest one that plays corrects its whole distance to that site in each frame.
    Zhao,
    /// Algorithm 3 alone: no site follows another, and the site that starts first waits for inputs in most of its
    /// frames.
    ZhaoUnsynchronised,
}

/// The pacing algorithm of one site in a running game. A call that the algorithm does not need has no effect.
#[derive(Debug)]
pub(crate) enum Pacer {
    Even(Box<EvenPacer>),
    Zhao(ZhaoPacer),
}

impl Pacer {
    pub(crate) fn new(pacing: Pacing, period: TimeDelta, max_lead: u32, start: Instant) -> Self {
        match pacing {
            Pacing::Even => Self::Even(Box::new(EvenPacer::new(period, max_lead, start))),
            Pacing::Zhao | Pacing::ZhaoUnsynchronised => Self::Zhao(ZhaoPacer::new(period, max_lead, start)),
        }
    }

    /// Enables the dither of [`EvenPacer`], for a site with a prediction window. The site that sets the pace does not
    /// dither.
    pub(crate) fn enable_dither(&mut self, site: SiteId) {
        if let Self::Even(even) = self {
            even.enable_dither(site);
        }
    }

    /// Returns the local time at which the next frame is to begin.
    pub(crate) fn next_start(&self) -> Instant {
        match self {
            Self::Even(even) => even.next_start(),
            Self::Zhao(paper) => paper.next_start(),
        }
    }

    /// Returns the current time between two frames; for [`ZhaoPacer`] always the nominal period.
    pub(crate) fn period(&self) -> TimeDelta {
        match self {
            Self::Even(even) => even.current_period(),
            Self::Zhao(paper) => paper.period(),
        }
    }

    /// Returns the planned start of the current frame, or of the next one once the current frame was stepped; `None`
    /// for [`ZhaoPacer`], which has no plan.
    pub(crate) fn planned_start(&self) -> Option<Instant> {
        match self {
            Self::Even(even) => Some(even.planned_start()),
            Self::Zhao(_) => None,
        }
    }

    /// Records that `frame` begins at `now`, when its local input is sampled. Only [`ZhaoPacer`] uses `frame` and
    /// `master`.
    pub(crate) fn on_begin(&mut self, now: Instant, frame: Frame, master: Option<MasterObservation>) {
        match self {
            Self::Even(even) => even.on_begin(now),
            Self::Zhao(paper) => paper.begin_frame_timing(now, frame, master),
        }
    }

    /// Records that the machine is about to step `frame`, with real or predicted inputs. Returns whether the start of
    /// the next frame is known now; [`ZhaoPacer`] knows it only after [`on_end`](Self::on_end).
    pub(crate) fn on_step(&mut self, now: Instant, frame: Frame) -> bool {
        match self {
            Self::Even(even) => even.on_step(now, frame),
            Self::Zhao(_) => return false,
        }
        true
    }

    /// Records that the machine has finished its step, which only [`ZhaoPacer`] needs.
    pub(crate) fn on_end(&mut self, now: Instant) {
        if let Self::Zhao(paper) = self {
            paper.end_frame_timing(now);
        }
    }

    /// Records a one-way delay from `site`, measured with a packet or estimated as half of a round-trip time. It bounds
    /// the period of [`EvenPacer`] from below.
    pub(crate) fn on_delay(&mut self, now: Instant, site: SiteId, delay: TimeDelta) {
        if let Self::Even(even) = self {
            even.on_delay(now, site, delay);
        }
    }

    /// Records that the site that sets the pace planned to begin `frame` at the local time `at`.
    pub(crate) fn on_reference(&mut self, frame: Frame, at: Instant) {
        if let Self::Even(even) = self {
            even.on_reference(frame, at);
        }
    }

    /// Returns the frame that the site that sets the pace has reached at `now` by its last known plan; `None` if no
    /// plan is known, as always with [`ZhaoPacer`].
    pub(crate) fn frame_at(&self, now: Instant) -> Option<Frame> {
        match self {
            Self::Even(even) => even.frame_at(now),
            Self::Zhao(_) => None,
        }
    }

    /// Plans `frame` for the time at which the site that sets the pace plans it. Returns `false` if that time is
    /// unknown. [`ZhaoPacer`] does nothing and returns `true`.
    pub(crate) fn jump_to(&mut self, now: Instant, frame: Frame) -> bool {
        match self {
            Self::Even(even) => even.jump_to(now, frame),
            Self::Zhao(_) => true,
        }
    }

    /// Begins the next frame at `latest` if it is planned for later.
    pub(crate) fn begin_by(&mut self, latest: Instant) {
        if let Self::Even(even) = self {
            even.begin_by(latest);
        }
    }

    /// Sets the maximum lead in frames, after input delay or prediction window have changed. [`ZhaoPacer`] keeps its
    /// first one.
    pub(crate) fn set_max_lead(&mut self, max_lead: u32) {
        if let Self::Even(even) = self {
            even.set_max_lead(max_lead);
        }
    }

    /// Delays the planned start at least until `until`, for a pause of all sites. No effect on [`ZhaoPacer`], which has
    /// no plan.
    pub(crate) fn pause_until(&mut self, until: Instant) {
        if let Self::Even(even) = self {
            even.pause_until(until);
        }
    }

    /// Returns the site whose link is too slow for frames of `period`, and the fraction by which it lowers the frame
    /// rate; `None` if no link is too slow, and always with [`ZhaoPacer`].
    pub(crate) fn limiting_site(&self, period: TimeDelta) -> Option<(SiteId, f64)> {
        match self {
            Self::Even(even) => even.limiting_site(period),
            Self::Zhao(_) => None,
        }
    }

    /// Ignores the link delay of a site that has left or was dropped.
    pub(crate) fn forget_site(&mut self, site: SiteId) {
        if let Self::Even(even) = self {
            even.forget_site(site);
        }
    }
}
