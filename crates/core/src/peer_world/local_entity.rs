//! One of our own entities: where it was, tick by tick, and when the others are told.

use alloc::collections::VecDeque;

use super::config::UpdatePolicy;
use super::{DeadReckoning, INFINITE_DISTANCE};

/// An update that tells of a change is sent so often again where much is lost, and so many ticks apart: losses come in bursts.
const MAX_CHANGE_REPEATS: u32 = 3;
const CHANGE_REPEAT_TICKS: u32 = 5;

/// What is to be sent at a tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SendDecision {
    Send,
    /// It would have been sent, if others could not reckon it themselves.
    Skip,
    Wait,
}

/// An entity of ours.
#[derive(Debug)]
pub(super) struct LocalEntity<S> {
    /// The states of consecutive ticks; the last is that of `newest`.
    states: VecDeque<S>,
    newest: u32,
    last_sent: Option<(u32, S)>,
    /// The tick for which was decided last.
    last_decision_tick: u32,
    /// What may be sent by now: a whole update at `ticks_per_second`.
    send_credit: u32,
    /// Times the last change is still to be repeated.
    repeats_left: u32,
    pub(super) sequence: u16,
    pub(super) is_due: bool,
}

/// What the network is like, as far as sending is concerned.
#[derive(Clone, Copy, Debug)]
pub(super) struct SendConditions {
    /// Updates in a second at present.
    pub(super) updates_per_second: u32,
    /// The part of updates that does not arrive, in 255ths, at the receiver that has it worst.
    pub(super) loss_share: u8,
    pub(super) ticks_per_second: u32,
}

impl<S: Clone> LocalEntity<S> {
    pub(super) fn new(tick: u32, state: S, credit: u32) -> Self {
        let states = VecDeque::from_iter([state]);
        Self {
            states,
            newest: tick,
            last_sent: None,
            last_decision_tick: tick,
            send_credit: credit,
            repeats_left: 0,
            sequence: 0,
            is_due: false,
        }
    }

    /// Takes down the state of a tick, and forgets all but as many as are `kept`. Ticks that were left out are filled with it, too.
    pub(super) fn record(&mut self, tick: u32, state: S, kept: u32) {
        let skipped = tick.saturating_sub(self.newest).min(kept);
        if tick <= self.newest {
            // The same tick again: the newer state counts.
            if let (true, Some(newest)) = (tick == self.newest, self.states.back_mut()) {
                *newest = state;
            }
            return;
        }
        for _ in 0..skipped {
            self.states.push_back(state.clone());
        }
        self.newest = tick;
        while self.states.len() > kept as usize {
            self.states.pop_front();
        }
    }

    /// The state at a tick, if it is kept.
    pub(super) fn state_at(&self, tick: u32) -> Option<&S> {
        let ago = self.newest.checked_sub(tick)? as usize;
        self.states.len().checked_sub(ago + 1).and_then(|at| self.states.get(at))
    }

    pub(super) fn newest(&self) -> (u32, &S) {
        (self.newest, self.states.back().expect("there is always one"))
    }

    /// Bytes, roughly.
    pub(super) fn memory(&self) -> usize {
        size_of::<Self>() + self.states.capacity() * size_of::<S>()
    }

    /// Whether to tell the others at this tick.
    pub(super) fn decide<R: DeadReckoning<State = S>>(
        &mut self,
        reckoner: &R,
        sending: &UpdatePolicy,
        conditions: SendConditions,
        tick: u32,
    ) -> SendDecision {
        let whole = conditions.ticks_per_second;
        let elapsed = tick.saturating_sub(self.last_decision_tick);
        self.last_decision_tick = self.last_decision_tick.max(tick);
        self.send_credit =
            self.send_credit.saturating_add(elapsed.saturating_mul(conditions.updates_per_second)).min(whole * 2);
        let Some((told, state)) = &self.last_sent else { return SendDecision::Send };
        let Some(tolerance) = sending.tolerance else {
            return if self.send_credit < whole { SendDecision::Wait } else { SendDecision::Send };
        };
        let ago = self.newest.saturating_sub(*told);
        let off = reckoner.distance(&reckoner.extrapolate(state, ago), self.newest().1);
        let has_credit = self.send_credit >= whole;
        if off == INFINITE_DISTANCE || (off > tolerance && has_credit) {
            self.repeats_left = change_repeats(conditions.loss_share);
            return SendDecision::Send;
        }
        if self.repeats_left > 0 && ago >= CHANGE_REPEAT_TICKS && has_credit {
            self.repeats_left -= 1;
            return SendDecision::Send;
        }
        match has_credit {
            _ if ago.saturating_mul(sending.min_rate) >= whole => SendDecision::Send,
            true => SendDecision::Skip,
            false => SendDecision::Wait,
        }
    }

    /// A decision was carried out.
    pub(super) fn on_decided(&mut self, decision: SendDecision, ticks_per_second: u32) {
        match decision {
            SendDecision::Send => {
                self.is_due = true;
                self.send_credit = self.send_credit.saturating_sub(ticks_per_second).min(ticks_per_second);
                let (tick, state) = self.newest();
                self.last_sent = Some((tick, state.clone()));
            }
            SendDecision::Skip => self.send_credit = self.send_credit.saturating_sub(ticks_per_second),
            SendDecision::Wait => {}
        }
    }
}

/// So often a change is repeated that it hardly ever gets lost altogether.
fn change_repeats(lost: u8) -> u32 {
    match lost {
        0 => 0,
        1..=12 => 1,
        13..=50 => 2,
        _ => MAX_CHANGE_REPEATS,
    }
}

#[cfg(test)]
mod tests {
    use super::super::test_game::TestGame;
    use super::*;

    const LOSSLESS: SendConditions = SendConditions { updates_per_second: 25, loss_share: 0, ticks_per_second: 100 };

    /// Walks for ten seconds and says how many updates are sent.
    fn count_sent_updates(sending: UpdatePolicy, conditions: SendConditions, speed: impl Fn(u32) -> i32) -> usize {
        let reckoner = TestGame::default();
        let mut state = reckoner.point(0, speed(0));
        let mut source = LocalEntity::new(0, state, 0);
        let mut count = 0;
        for tick in 1..=1_000 {
            state = reckoner.extrapolate(&state, 1);
            state.speed = speed(tick);
            source.record(tick, state, 50);
            let decision = source.decide(&reckoner, &sending, conditions, tick);
            source.on_decided(decision, conditions.ticks_per_second);
            count += usize::from(decision == SendDecision::Send);
        }
        count
    }

    #[test]
    fn fixed_update_rate_is_kept() {
        for rate in [1, 5, 25, 28] {
            let conditions = SendConditions { updates_per_second: rate, ..LOSSLESS };
            let count = count_sent_updates(UpdatePolicy::fixed(rate), conditions, |_| 8);
            assert!(count.abs_diff(rate as usize * 10) <= 2, "{rate}: {count}");
        }
    }

    #[test]
    fn update_within_tolerance_is_not_sent() {
        let sending = UpdatePolicy::dead_reckoned(8);
        assert!((39..=42).contains(&count_sent_updates(sending, LOSSLESS, |_| 8)), "only what shows that we are here");
        let turns = count_sent_updates(sending, LOSSLESS, |tick| if tick / 70 % 2 == 0 { 8 } else { -8 });
        assert!((42..=60).contains(&turns), "{turns}");
        let lossy = count_sent_updates(sending, SendConditions { loss_share: 60, ..LOSSLESS }, |tick| {
            if tick / 70 % 2 == 0 { 8 } else { -8 }
        });
        assert!(lossy > turns + 10, "changes are repeated: {lossy}");
    }

    #[test]
    fn own_states_are_kept_for_the_retention_time() {
        let reckoner = TestGame::default();
        let mut source = LocalEntity::new(10, reckoner.point(0, 0), 0);
        for tick in 11..=100 {
            source.record(tick, reckoner.point(tick as i32, 0), 20);
        }
        assert_eq!(source.state_at(100).unwrap().position, 100);
        assert_eq!(source.state_at(81).unwrap().position, 81);
        assert!(source.state_at(80).is_none() && source.state_at(101).is_none());
        source.record(200, reckoner.point(200, 0), 20);
        assert_eq!(source.state_at(190).unwrap().position, 200, "who slept was where it woke up");
    }
}
