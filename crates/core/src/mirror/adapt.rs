//! Ours: an obsolete event that is missing is waited for as long as nobody behind it is late for that.

use super::{Mirror, Order, Peer, Policy, Source, Stream};
use crate::time::{GroupInstant, Instant, TimeDelta};

/// What is due so soon is due: delivering takes time, too.
const MARGIN: TimeDelta = TimeDelta::from_millis(3);

/// An obsolete event that is missing, and when it must not be waited for any more.
struct Hold {
    source: Source,
    seq: u32,
    until: Instant,
}

impl Mirror {
    /// Passes over what would come too late.
    pub(super) fn adapt(&mut self) {
        while let Some(hold) = self.first_hold() {
            if hold.until > self.now {
                return;
            }
            self.drop_event(hold.source, hold.seq);
        }
    }

    /// When to look again.
    pub(super) fn next_hold(&self) -> Option<Instant> {
        self.first_hold().map(|hold| hold.until)
    }

    /// What must be decided on first.
    fn first_hold(&self) -> Option<Hold> {
        let Policy::Adaptive { threshold } = self.config.policy else { return None };
        let sources = self.streams.iter().filter(|(_, stream)| stream.has_droppable());
        match self.config.order {
            Order::Total => {
                let is_hole = |stream: &Stream, seq| stream.event(seq).is_none() && stream.is_obsolete(seq);
                let mut holes = sources.filter(|(_, stream)| is_hole(stream, stream.settled() + 1)).peekable();
                holes.peek()?;
                let oldest = self.streams.values().filter_map(Stream::oldest).min()?;
                let holds =
                    holes.filter_map(|(source, stream)| self.hold(*source, stream.settled() + 1, oldest + threshold));
                holds.min_by_key(|hold| hold.until)
            }
            Order::Correlated => {
                let holds = sources.filter_map(|(source, stream)| self.first_hold_of(*source, stream, threshold));
                holds.min_by_key(|hold| hold.until)
            }
        }
    }

    fn first_hold_of(&self, source: Source, stream: &Stream, threshold: TimeDelta) -> Option<Hold> {
        let waiting = stream.waiting().iter().filter_map(|seq| stream.event(*seq).map(|event| (*seq, event)));
        let holds = waiting.flat_map(|(seq, event)| {
            let is_hole = |member: &u32| stream.event(*member).is_none() && stream.is_obsolete(*member);
            let late = event.at + threshold;
            event.run(seq).filter(is_hole).filter_map(move |member| self.hold(source, member, late))
        });
        holds.min_by_key(|hold| hold.until)
    }

    /// How long to wait for an event so that what is behind it is there at `late`: not at all if it cannot come by then.
    fn hold(&self, source: Source, seq: u32, late: GroupInstant) -> Option<Hold> {
        let until = self.time.local(late)? - MARGIN;
        let missing = self.streams.get(&source)?.missing();
        let found = missing.binary_search_by_key(&seq, |missing| missing.seq).ok()?;
        let takes = self.peers.get(&source).map_or(TimeDelta::ZERO, Peer::answer_time);
        let comes = missing[found].asked.unwrap_or(self.now) + takes;
        Some(Hold { source, seq, until: if comes > until { self.now } else { until } })
    }
}
