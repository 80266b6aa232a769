//! Delay settings: the input delay and the prediction window in force, and those that are scheduled.
//!
//! The values stay within their limits, whatever is scheduled: the window fits the slots for saved states, and the
//! lead, their sum, is at most [`MAX_LEAD`]. New values apply from the frame on for which they are scheduled.

use crate::frame::Frame;
use crate::settings::{MAX_INPUT_DELAY, MAX_LEAD, Settings};

/// Input delay and prediction window, both in frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DelaySettings {
    /// The first frame with these values.
    from_frame: Frame,
    pub(super) input_delay: u32,
    pub(super) prediction_window: u32,
}

impl DelaySettings {
    /// Returns the sum of input delay and prediction window.
    #[inline]
    pub(super) fn lead(&self) -> u32 {
        self.input_delay + self.prediction_window
    }

    /// Returns whether these values differ from the given ones by at most one frame each.
    fn is_near(&self, input_delay: u32, prediction_window: u32) -> bool {
        self.input_delay.abs_diff(input_delay) <= 1 && self.prediction_window.abs_diff(prediction_window) <= 1
    }
}

/// The delay settings over time.
#[derive(Debug)]
pub(super) struct DelaySchedule {
    current: DelaySettings,
    /// The settings that were scheduled last and do not apply yet.
    next: Option<DelaySettings>,
    /// The largest lead that has been in force or scheduled.
    max_lead: u32,
    /// Number of slots for saved states, which limits the prediction window.
    slots: u32,
}

impl DelaySchedule {
    pub(super) fn new(settings: &Settings) -> Self {
        let Settings { input_delay, prediction_window, .. } = *settings;
        let current = DelaySettings { from_frame: Frame::ZERO, input_delay, prediction_window };
        Self { current, next: None, max_lead: current.lead(), slots: settings.rollback_slots() as u32 }
    }

    /// Creates a schedule with fixed settings, for tests.
    #[cfg(test)]
    pub(super) fn fixed(input_delay: u32, prediction_window: u32) -> Self {
        let current = DelaySettings { from_frame: Frame::ZERO, input_delay, prediction_window };
        Self { current, next: None, max_lead: current.lead(), slots: 8 }
    }

    /// Returns the settings in force.
    #[inline]
    pub(super) fn current(&self) -> DelaySettings {
        self.current
    }

    /// Returns the largest lead that has been in force or scheduled.
    #[inline]
    pub(super) fn max_lead(&self) -> u32 {
        self.max_lead
    }

    /// Returns the largest lead of any site: that in force or the largest that has been scheduled.
    pub(super) fn largest_lead(&self) -> u32 {
        self.current.lead().max(self.max_lead)
    }

    /// Schedules new settings from a frame on, limited to valid values.
    pub(super) fn schedule(&mut self, from_frame: Frame, input_delay: u32, prediction_window: u32) {
        let prediction_window = prediction_window.min(self.slots);
        let input_delay = input_delay.min(MAX_INPUT_DELAY).min(MAX_LEAD - prediction_window);
        let settings = DelaySettings { from_frame, input_delay, prediction_window };
        self.max_lead = self.max_lead.max(settings.lead());
        self.next = Some(settings);
    }

    /// Puts settings into force with which this site is admitted. They stay scheduled, so that they are announced when
    /// its first frame begins.
    pub(super) fn adopt(&mut self, input_delay: u32, prediction_window: u32) {
        self.schedule(Frame::ZERO, input_delay, prediction_window);
        self.next.inspect(|settings| self.current = *settings);
    }

    /// Puts the scheduled settings into force if they apply to a frame. Returns them if so.
    #[inline]
    pub(super) fn apply_due(&mut self, frame: Frame) -> Option<DelaySettings> {
        let due = self.next.filter(|settings| settings.from_frame <= frame)?;
        (self.current, self.next) = (due, None);
        Some(due)
    }

    /// Returns whether these values differ from those in force or scheduled by at most one frame each. A larger change
    /// would ask for many inputs at once.
    pub(super) fn is_gradual(&self, input_delay: u32, prediction_window: u32) -> bool {
        let known = [Some(self.current), self.next];
        known.iter().flatten().any(|settings| settings.is_near(input_delay, prediction_window))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_apply_from_their_frame_on() {
        let mut delays = DelaySchedule::fixed(2, 4);
        delays.schedule(Frame::new(10), 3, 4);
        assert_eq!(delays.apply_due(Frame::new(9)), None);
        assert_eq!((delays.current().input_delay, delays.max_lead()), (2, 7));
        assert!(delays.apply_due(Frame::new(10)).is_some_and(|settings| settings.input_delay == 3));
        assert_eq!(delays.apply_due(Frame::new(11)), None);
    }

    #[test]
    fn scheduled_values_are_limited() {
        let mut delays = DelaySchedule::fixed(2, 4);
        delays.schedule(Frame::ZERO, 1_000, 1_000);
        let settings = delays.apply_due(Frame::ZERO).unwrap();
        assert_eq!(settings.prediction_window, 8);
        assert!(settings.input_delay <= MAX_INPUT_DELAY && settings.lead() <= MAX_LEAD);
    }

    #[test]
    fn change_by_one_frame_is_gradual() {
        let mut delays = DelaySchedule::fixed(2, 4);
        assert!(delays.is_gradual(3, 3) && !delays.is_gradual(4, 4));
        delays.schedule(Frame::new(10), 3, 4);
        assert!(delays.is_gradual(4, 4), "one frame more than the scheduled value");
    }
}
