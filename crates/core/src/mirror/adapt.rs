//! Ours: an obsolete event that is missing is waited for as long as nobody behind it is late for that.

use alloc::vec::Vec;

use super::{Mirror, Order, Peer, Policy, Source, Stream};
use crate::time::{GroupInstant, Instant, TimeDelta};

/// What is due so soon is due: delivering takes time, too.
const MARGIN: TimeDelta = TimeDelta::from_millis(3);

/// After a look at so many a millisecond passes before the next: who has much to catch up with must not spend its time on looking.
const LOOKS_IN_A_MILLI: usize = 512;
const LONGEST_PAUSE: TimeDelta = TimeDelta::from_millis(10);

/// An obsolete event that is missing, and when it must not be waited for any more.
struct Hold {
    source: Source,
    seq: u64,
    until: Instant,
}

/// What was found at the last look.
#[derive(Debug, Default)]
pub(super) struct Holds {
    /// Nothing has changed since.
    is_fresh: bool,
    /// When the first must be decided on.
    next: Option<Instant>,
    /// It is not looked again before this.
    pause: Instant,
}

impl Holds {
    /// Something has come, or is not waited for any more.
    pub(super) fn on_change(&mut self) {
        self.is_fresh = false;
    }

    fn is_due(&self, now: Instant) -> bool {
        now >= self.pause && (!self.is_fresh || self.next.is_some_and(|next| next <= now))
    }
}

impl Mirror {
    /// Passes over what would come too late.
    pub(super) fn adapt(&mut self) {
        let Policy::Adaptive { threshold } = self.config.policy else { return };
        while self.holds.is_due(self.now) {
            let (now, holds) = (self.now, self.look(threshold));
            self.holds.next = holds.iter().map(|hold| hold.until).filter(|until| *until > now).min();
            for hold in holds.iter().filter(|hold| hold.until <= now) {
                if self.is_hole(hold.source, hold.seq) {
                    self.drop_event(hold.source, hold.seq);
                }
            }
        }
    }

    /// Sees to it that it is known when to look again.
    pub(super) fn look_ahead(&mut self) {
        let Policy::Adaptive { threshold } = self.config.policy else { return };
        if !self.holds.is_fresh && self.now >= self.holds.pause {
            self.look(threshold);
        }
    }

    fn look(&mut self, threshold: TimeDelta) -> Vec<Hold> {
        let holds = self.find_holds(threshold);
        let looks = holds.len() + self.streams.values().map(|stream| stream.waiting().len()).sum::<usize>();
        let pause = TimeDelta::from_millis((looks / LOOKS_IN_A_MILLI) as i64).min(LONGEST_PAUSE);
        let next = holds.iter().map(|hold| hold.until).min();
        self.holds = Holds { is_fresh: true, next, pause: self.now + pause };
        holds
    }

    /// When to look again.
    pub(super) fn next_hold(&self) -> Option<Instant> {
        let next = if self.holds.is_fresh { self.holds.next? } else { self.now };
        matches!(self.config.policy, Policy::Adaptive { .. }).then_some(next.max(self.holds.pause))
    }

    fn is_hole(&self, source: Source, seq: u64) -> bool {
        self.streams.get(&source).is_some_and(|stream| stream.event(seq).is_none() && stream.is_obsolete(seq))
    }

    /// All that must be decided on.
    fn find_holds(&self, threshold: TimeDelta) -> Vec<Hold> {
        let sources = self.streams.iter().filter(|(_, stream)| stream.has_droppable());
        match self.config.order {
            Order::Total => {
                let mut holes =
                    sources.filter(|(source, stream)| self.is_hole(**source, stream.settled() + 1)).peekable();
                if holes.peek().is_none() {
                    return Vec::new();
                }
                let Some(oldest) = self.streams.values().filter_map(Stream::oldest).min() else { return Vec::new() };
                holes
                    .filter_map(|(source, stream)| self.hold(*source, stream.settled() + 1, oldest + threshold))
                    .collect()
            }
            Order::Correlated => {
                sources.flat_map(|(source, stream)| self.holds_of(*source, stream, threshold)).collect()
            }
        }
    }

    fn holds_of(&self, source: Source, stream: &Stream, threshold: TimeDelta) -> impl Iterator<Item = Hold> {
        let waiting = stream.waiting().iter().filter_map(|seq| stream.event(*seq).map(|event| (*seq, event)));
        waiting.flat_map(move |(seq, event)| {
            let is_hole = |member: &u64| stream.event(*member).is_none() && stream.is_obsolete(*member);
            let late = event.at + threshold;
            event.run(seq).filter(is_hole).filter_map(move |member| self.hold(source, member, late))
        })
    }

    /// How long to wait for an event so that what is behind it is there at `late`: not at all if it cannot come by then.
    fn hold(&self, source: Source, seq: u64, late: GroupInstant) -> Option<Hold> {
        let until = self.time.local(late)? - MARGIN;
        let missing = self.streams.get(&source)?.missing();
        let found = missing.binary_search_by_key(&seq, |missing| missing.seq).ok()?;
        let takes = self.peers.get(&source).map_or(TimeDelta::ZERO, Peer::answer_time);
        // Of what was not asked for yet it is known when it will be too late to ask.
        let until = match missing[found].asked {
            Some(asked) if asked + takes > until => self.now,
            Some(_) => until,
            None => until - takes + TimeDelta::from_nanos(1),
        };
        Some(Hold { source, seq, until })
    }
}
