//! Session time: the host program's time, corrected so that it never goes back.
//!
//! A call may name the arrival time of a datagram that waited in a queue, up to [`MAX_ARRIVAL_AGE`] before the previous
//! call; it then counts as the time of that call. If the host's clock was set back further, session time goes on from
//! the last call.

use crate::time::{Instant, TimeDelta};

/// Maximum age of an arrival time. If the time of a call is at most this much before that of the previous call, it is
/// taken for the arrival time of a datagram that waited in a queue. If it is further back, the host program's clock is
/// taken to have been set back.
const MAX_ARRIVAL_AGE: TimeDelta = TimeDelta::from_millis(250);
/// Interval of the periodic update, which handles leaves, freezes and timeouts.
pub(super) const UPDATE_INTERVAL: TimeDelta = TimeDelta::from_millis(50);

/// The clock of a session, and the time of its next periodic update.
#[derive(Debug)]
pub(super) struct SessionClock {
    /// Total by which the host program's clock has been set back. Session time is the host's time plus this.
    set_back: TimeDelta,
    /// Session time of the last call that noted its time.
    last_call: Instant,
    next_update: Instant,
}

impl SessionClock {
    pub(super) fn new(now: Instant) -> Self {
        Self { set_back: TimeDelta::ZERO, last_call: now, next_update: now }
    }

    /// Converts a time of the host program to session time, without the guarantee that it does not go back.
    #[inline]
    pub(super) fn session_time(&self, now: Instant) -> Instant {
        now + self.set_back
    }

    /// Converts session time to a time of the host program.
    #[inline]
    pub(super) fn host_time(&self, at: Instant) -> Instant {
        at - self.set_back
    }

    /// Converts the time of a call to session time, which is not before the last noted call.
    #[inline]
    pub(super) fn call_time(&mut self, now: Instant) -> Instant {
        let steady = self.set_back == TimeDelta::ZERO && now >= self.last_call;
        if steady { now } else { self.call_time_after_set_back(now) }
    }

    /// Converts the time of a call to session time after the host's clock went back, now or before.
    #[cold]
    fn call_time_after_set_back(&mut self, now: Instant) -> Instant {
        let session_time = now + self.set_back;
        // A datagram may be passed in with its arrival time, which is before the host program finished other work.
        if self.last_call - session_time > MAX_ARRIVAL_AGE {
            self.set_back += self.last_call - session_time;
        }
        session_time.max(self.last_call)
    }

    /// Notes a call at this session time. Returns the time since the last noted call.
    pub(super) fn note_call(&mut self, now: Instant) -> TimeDelta {
        let away = now - self.last_call;
        self.last_call = now;
        away
    }

    /// Returns the session time of the last noted call. While the game runs,
    /// [`Session::poll_request`](super::Session::poll_request) notes its time only at a periodic update.
    #[inline]
    pub(super) fn last_call(&self) -> Instant {
        self.last_call
    }

    /// Returns the time of the next periodic update.
    #[inline]
    pub(super) fn next_update(&self) -> Instant {
        self.next_update
    }

    /// Sets the next periodic update to one interval after `now`.
    pub(super) fn schedule_update(&mut self, now: Instant) {
        self.next_update = now + UPDATE_INTERVAL;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> Instant {
        Instant::ZERO + TimeDelta::from_millis(millis)
    }

    fn call(clock: &mut SessionClock, now: Instant) -> Instant {
        let now = clock.call_time(now);
        clock.note_call(now);
        now
    }

    #[test]
    fn arrival_time_of_queued_datagram_counts_as_last_call() {
        let mut clock = SessionClock::new(at(1_000));
        assert_eq!(call(&mut clock, at(750)), at(1_000));
        assert_eq!(call(&mut clock, at(1_001)), at(1_001), "the host's clock was not set back");
    }

    #[test]
    fn session_time_goes_on_after_clock_is_set_back() {
        let mut clock = SessionClock::new(at(5_000));
        assert_eq!(call(&mut clock, at(2_000)), at(5_000));
        assert_eq!(call(&mut clock, at(2_030)), at(5_030));
        assert_eq!((clock.session_time(at(2_100)), clock.host_time(at(5_100))), (at(5_100), at(2_100)));
    }

    #[test]
    fn noted_call_returns_time_since_previous_one() {
        let mut clock = SessionClock::new(at(0));
        assert_eq!(clock.note_call(at(40)), TimeDelta::from_millis(40));
        assert_eq!(clock.note_call(at(55)), TimeDelta::from_millis(15));
        clock.schedule_update(at(55));
        assert_eq!(clock.next_update(), at(105));
    }
}
