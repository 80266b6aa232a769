//! An entity of this site: its states, tick by tick, and the decision at every tick whether to send an update to the
//! peers.

use alloc::collections::VecDeque;

use super::config::UpdatePolicy;
use super::{DeadReckoning, INFINITE_DISTANCE};

/// Maximum repetitions of an update that reports a change, which apply at a loss share above 50/255.
const MAX_CHANGE_REPEATS: u32 = 3;
/// Minimum ticks between repetitions of an update that reports a change: losses come in bursts.
const CHANGE_REPEAT_TICKS: u32 = 5;

/// Decision whether to send an update of an entity at a tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SendDecision {
    Send,
    /// The rate allows an update, but peers can dead-reckon the entity.
    Skip,
    Wait,
}

/// An entity of this site, with its recent states and its send credit.
#[derive(Debug)]
pub(super) struct LocalEntity<S> {
    /// States of consecutive ticks; the last is that of tick `newest`.
    states: VecDeque<S>,
    newest: u32,
    last_sent: Option<(u32, S)>,
    last_decision_tick: u32,
    /// Send credit. Every tick adds the update rate per second, and one update costs `ticks_per_second`.
    send_credit: u32,
    /// Remaining repetitions of the last update that reported a change.
    repeats_left: u32,
    pub(super) sequence: u16,
    pub(super) is_due: bool,
}

/// Network conditions on which a send decision depends.
#[derive(Clone, Copy, Debug)]
pub(super) struct SendConditions {
    /// Current maximum rate in updates per entity and second.
    pub(super) updates_per_second: u32,
    /// Loss share at the worst receiver, in 255ths.
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

    /// Records the state of a tick and drops all but the newest `kept` states. Skipped ticks get the same state.
    pub(super) fn record(&mut self, tick: u32, state: S, kept: u32) {
        let skipped = tick.saturating_sub(self.newest).min(kept);
        if tick <= self.newest {
            // A second state for the same tick replaces the first. States of earlier ticks are ignored.
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

    /// Returns the state at `tick`, if it is kept.
    pub(super) fn state_at(&self, tick: u32) -> Option<&S> {
        let ago = self.newest.checked_sub(tick)? as usize;
        self.states.len().checked_sub(ago + 1).and_then(|index| self.states.get(index))
    }

    pub(super) fn newest(&self) -> (u32, &S) {
        (self.newest, self.states.back().expect("there is always at least one state"))
    }

    /// Returns the approximate size in bytes.
    pub(super) fn memory(&self) -> usize {
        size_of::<Self>() + self.states.capacity() * size_of::<S>()
    }

    /// Adds the send credit of the elapsed ticks and decides whether to send an update at `tick`.
    pub(super) fn decide<R: DeadReckoning<State = S>>(
        &mut self,
        reckoner: &R,
        policy: &UpdatePolicy,
        conditions: SendConditions,
        tick: u32,
    ) -> SendDecision {
        let update_cost = conditions.ticks_per_second;
        let elapsed = tick.saturating_sub(self.last_decision_tick);
        self.last_decision_tick = self.last_decision_tick.max(tick);
        self.send_credit =
            self.send_credit.saturating_add(elapsed.saturating_mul(conditions.updates_per_second)).min(update_cost * 2);
        let Some((sent_tick, state)) = &self.last_sent else { return SendDecision::Send };
        let Some(tolerance) = policy.tolerance else {
            return if self.send_credit < update_cost { SendDecision::Wait } else { SendDecision::Send };
        };
        let ago = self.newest.saturating_sub(*sent_tick);
        let error = reckoner.distance(&reckoner.extrapolate(state, ago), self.newest().1);
        let has_credit = self.send_credit >= update_cost;
        if error == INFINITE_DISTANCE || (error > tolerance && has_credit) {
            self.repeats_left = change_repeats(conditions.loss_share);
            return SendDecision::Send;
        }
        if self.repeats_left > 0 && ago >= CHANGE_REPEAT_TICKS && has_credit {
            self.repeats_left -= 1;
            return SendDecision::Send;
        }
        match has_credit {
            _ if ago.saturating_mul(policy.min_rate) >= update_cost => SendDecision::Send,
            true => SendDecision::Skip,
            false => SendDecision::Wait,
        }
    }

    /// Applies a decision: charges the send credit for `Send` and `Skip`; for `Send` also marks an update as due and
    /// notes its state as the last sent one.
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

/// Returns the number of repetitions that make it unlikely that a change is lost altogether, for a loss share in
/// 255ths.
fn change_repeats(loss_share: u8) -> u32 {
    match loss_share {
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

    /// Moves an entity for 10 s and returns the number of sent updates.
    fn count_sent_updates(policy: UpdatePolicy, conditions: SendConditions, speed: impl Fn(u32) -> i32) -> usize {
        let reckoner = TestGame::default();
        let mut state = reckoner.point(0, speed(0));
        let mut local = LocalEntity::new(0, state, 0);
        let mut count = 0;
        for tick in 1..=1_000 {
            state = reckoner.extrapolate(&state, 1);
            state.speed = speed(tick);
            local.record(tick, state, 50);
            let decision = local.decide(&reckoner, &policy, conditions, tick);
            local.on_decided(decision, conditions.ticks_per_second);
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
        let policy = UpdatePolicy::dead_reckoned(8);
        assert!((39..=42).contains(&count_sent_updates(policy, LOSSLESS, |_| 8)), "only keep-alive updates");
        let turns = count_sent_updates(policy, LOSSLESS, |tick| if tick / 70 % 2 == 0 { 8 } else { -8 });
        assert!((42..=60).contains(&turns), "{turns}");
        let lossy = count_sent_updates(policy, SendConditions { loss_share: 60, ..LOSSLESS }, |tick| {
            if tick / 70 % 2 == 0 { 8 } else { -8 }
        });
        assert!(lossy > turns + 10, "changes must be repeated: {lossy}");
    }

    #[test]
    fn own_states_are_kept_for_the_retention_time() {
        let reckoner = TestGame::default();
        let mut local = LocalEntity::new(10, reckoner.point(0, 0), 0);
        for tick in 11..=100 {
            local.record(tick, reckoner.point(tick as i32, 0), 20);
        }
        assert_eq!(local.state_at(100).unwrap().position, 100);
        assert_eq!(local.state_at(81).unwrap().position, 81);
        assert!(local.state_at(80).is_none() && local.state_at(101).is_none());
        local.record(200, reckoner.point(200, 0), 20);
        assert_eq!(local.state_at(190).unwrap().position, 200, "skipped ticks take the state after the gap");
    }
}
