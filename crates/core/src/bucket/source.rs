//! One of our own entities: where it was, tick by tick, and when the others are told.

use alloc::collections::VecDeque;

use super::config::Sending;
use super::{FAR, Reckoner};

/// An update that tells of a change is sent so often again where much is lost, and so many ticks apart: losses come in bursts.
const MOST_REPEATS: u32 = 3;
const REPEAT_AFTER: u32 = 5;

/// What is to be sent at a tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    Send,
    /// It would have been sent, if others could not reckon it themselves.
    Skip,
    Wait,
}

/// An entity of ours.
#[derive(Debug)]
pub(super) struct Source<S> {
    /// The states of consecutive ticks; the last is that of `newest`.
    states: VecDeque<S>,
    newest: u32,
    told: Option<(u32, S)>,
    /// The tick for which was decided last.
    decided: u32,
    /// What may be sent by now: a whole update at `ticks_per_second`.
    credit: u32,
    /// Times the last change is still to be repeated.
    repeats: u32,
    pub(super) sequence: u16,
    pub(super) due: bool,
}

/// What the network is like, as far as sending is concerned.
#[derive(Clone, Copy, Debug)]
pub(super) struct Conditions {
    /// Updates in a second at present.
    pub(super) rate: u32,
    /// The part of updates that does not arrive, in 255ths, at the receiver that has it worst.
    pub(super) lost: u8,
    pub(super) ticks_per_second: u32,
}

impl<S: Clone> Source<S> {
    pub(super) fn new(tick: u32, state: S, credit: u32) -> Self {
        let states = VecDeque::from_iter([state]);
        Self { states, newest: tick, told: None, decided: tick, credit, repeats: 0, sequence: 0, due: false }
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
    pub(super) fn at(&self, tick: u32) -> Option<&S> {
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
    pub(super) fn decide<R: Reckoner<State = S>>(
        &mut self,
        reckoner: &R,
        sending: &Sending,
        conditions: Conditions,
        tick: u32,
    ) -> Decision {
        let whole = conditions.ticks_per_second;
        let elapsed = tick.saturating_sub(self.decided);
        self.decided = self.decided.max(tick);
        self.credit = self.credit.saturating_add(elapsed.saturating_mul(conditions.rate)).min(whole * 2);
        let Some((told, state)) = &self.told else { return Decision::Send };
        let Some(tolerance) = sending.tolerance else {
            return if self.credit < whole { Decision::Wait } else { Decision::Send };
        };
        let ago = self.newest.saturating_sub(*told);
        let off = reckoner.apart(&reckoner.ahead(state, ago), self.newest().1);
        let has_credit = self.credit >= whole;
        if off == FAR || (off > tolerance && has_credit) {
            self.repeats = repeats_for(conditions.lost);
            return Decision::Send;
        }
        if self.repeats > 0 && ago >= REPEAT_AFTER && has_credit {
            self.repeats -= 1;
            return Decision::Send;
        }
        match has_credit {
            _ if ago.saturating_mul(sending.least) >= whole => Decision::Send,
            true => Decision::Skip,
            false => Decision::Wait,
        }
    }

    /// A decision was carried out.
    pub(super) fn on_decided(&mut self, decision: Decision, ticks_per_second: u32) {
        match decision {
            Decision::Send => {
                self.due = true;
                self.credit = self.credit.saturating_sub(ticks_per_second).min(ticks_per_second);
                let (tick, state) = self.newest();
                self.told = Some((tick, state.clone()));
            }
            Decision::Skip => self.credit = self.credit.saturating_sub(ticks_per_second),
            Decision::Wait => {}
        }
    }
}

/// So often a change is repeated that it hardly ever gets lost altogether.
fn repeats_for(lost: u8) -> u32 {
    match lost {
        0 => 0,
        1..=12 => 1,
        13..=50 => 2,
        _ => MOST_REPEATS,
    }
}

#[cfg(test)]
mod tests {
    use super::super::line::Line;
    use super::*;

    const QUIET: Conditions = Conditions { rate: 25, lost: 0, ticks_per_second: 100 };

    /// Walks for ten seconds and says how many updates are sent.
    fn sent(sending: Sending, conditions: Conditions, speed: impl Fn(u32) -> i32) -> usize {
        let reckoner = Line::default();
        let mut state = reckoner.at(0, speed(0));
        let mut source = Source::new(0, state, 0);
        let mut count = 0;
        for tick in 1..=1_000 {
            state = reckoner.ahead(&state, 1);
            state.speed = speed(tick);
            source.record(tick, state, 50);
            let decision = source.decide(&reckoner, &sending, conditions, tick);
            source.on_decided(decision, conditions.ticks_per_second);
            count += usize::from(decision == Decision::Send);
        }
        count
    }

    #[test]
    fn a_fixed_rate_is_kept() {
        for rate in [1, 5, 25, 28] {
            let conditions = Conditions { rate, ..QUIET };
            let count = sent(Sending::fixed(rate), conditions, |_| 8);
            assert!(count.abs_diff(rate as usize * 10) <= 2, "{rate}: {count}");
        }
    }

    #[test]
    fn what_others_reckon_rightly_is_not_sent() {
        let sending = Sending::reckoned(8);
        assert!((39..=42).contains(&sent(sending, QUIET, |_| 8)), "only what shows that we are here");
        let turns = sent(sending, QUIET, |tick| if tick / 70 % 2 == 0 { 8 } else { -8 });
        assert!((42..=60).contains(&turns), "{turns}");
        let lossy = sent(sending, Conditions { lost: 60, ..QUIET }, |tick| if tick / 70 % 2 == 0 { 8 } else { -8 });
        assert!(lossy > turns + 10, "changes are repeated: {lossy}");
    }

    #[test]
    fn own_states_are_kept_for_a_while() {
        let reckoner = Line::default();
        let mut source = Source::new(10, reckoner.at(0, 0), 0);
        for tick in 11..=100 {
            source.record(tick, reckoner.at(tick as i32, 0), 20);
        }
        assert_eq!(source.at(100).unwrap().position, 100);
        assert_eq!(source.at(81).unwrap().position, 81);
        assert!(source.at(80).is_none() && source.at(101).is_none());
        source.record(200, reckoner.at(200, 0), 20);
        assert_eq!(source.at(190).unwrap().position, 200, "who slept was where it woke up");
    }
}
