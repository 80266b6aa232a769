//! Whose turn it is, and what is dropped before.

use super::policy::Verdict;
use super::{Delivery, Fate, Measure, Mirror, Notice, Order, Policy, Source, Stream};
use crate::time::{GroupInstant, Instant, TimeDelta};

impl Mirror {
    /// The next event whose turn it is. The game must have taken it in before anything else is asked for.
    pub fn poll_delivery(&mut self, now: Instant) -> Option<Delivery<'_>> {
        self.now = self.now.max(now);
        self.adapt();
        let (source, seq) = self.next_turn()?;
        let stream = self.streams.get_mut(&source)?;
        let (at, key) = stream.event(seq).map(|event| (event.at, event.key))?;
        stream.set_fate(seq, Fate::Delivered);
        if self.config.order == Order::Total {
            self.holds.on_change();
        }
        let (own, late) = (source == self.config.source, self.is_late(at, source, seq));
        let gtd = self.age(at);
        self.stats.delivered += 1;
        self.stats.late += u64::from(late);
        if !own {
            self.stats.on_gtd(gtd, self.config.policy.threshold());
            if self.config.measure == Measure::Delivery {
                self.on_sample(gtd);
            }
        }
        let payload = self.streams.get(&source)?.event(seq)?.payload();
        Some(Delivery { source, seq, at, key, payload, gtd, own, late })
    }

    fn next_turn(&mut self) -> Option<(Source, u64)> {
        loop {
            let (source, seq) = match self.config.order {
                Order::Total => self.first_in_time()?,
                Order::Correlated => self.ready.pop_front()?,
            };
            let stream = self.streams.get(&source)?;
            if self.config.order == Order::Correlated && stream.fate(seq) != Fate::Queued {
                continue;
            }
            if !self.is_too_late(source, seq) {
                return Some((source, seq));
            }
            self.drop_event(source, seq);
        }
    }

    /// Ours: whether it is not worth being delivered any more.
    fn is_too_late(&self, source: Source, seq: u64) -> bool {
        let Policy::Adaptive { threshold } = self.config.policy else { return false };
        let Some(stream) = self.streams.get(&source) else { return false };
        stream.is_obsolete(seq) && stream.event(seq).is_some_and(|event| self.age(event.at) > threshold)
    }

    /// Notes how far we are in the total order, and says whether this event should have come before.
    fn is_late(&mut self, at: GroupInstant, source: Source, seq: u64) -> bool {
        if self.config.order != Order::Total {
            return false;
        }
        // Nothing of ours comes before it any more.
        self.last_at = self.last_at.max(at + TimeDelta::from_nanos(1));
        let place = Some((at, source, seq));
        let late = place < self.reached;
        self.reached = self.reached.max(place);
        late
    }

    /// The first in total order, if nobody who is here can still say something that comes before it.
    fn first_in_time(&self) -> Option<(Source, u64)> {
        // Of who is gone something may be missing for ever: what has nothing to do with it does not wait for that.
        let heads = self.streams.iter().filter_map(|(source, stream)| {
            let head = if self.is_here(*source) { stream.head() } else { stream.head_of_its_key() };
            head.map(|(seq, event)| (event.at, *source, seq))
        });
        let (at, source, seq) = heads.min()?;
        let is_before = |(other, stream): (&Source, &Stream)| {
            let speaks = *other != self.config.source && stream.is_told() && self.is_here(*other);
            let floor = stream.floor().unwrap_or(GroupInstant::from_nanos(i64::MIN));
            speaks && stream.head().is_none() && (floor, *other) <= (at, source)
        };
        (!self.streams.iter().any(is_before)).then_some((source, seq))
    }

    /// A new event is here: is it its turn?
    pub(super) fn enqueue(&mut self, source: Source, seq: u64) {
        if self.config.order == Order::Total {
            return;
        }
        let Some(stream) = self.streams.get_mut(&source) else { return };
        if stream.fate(seq) != Fate::Open {
            return;
        }
        if stream.is_deliverable(seq) {
            stream.set_fate(seq, Fate::Queued);
            self.ready.push_back((source, seq));
            self.release(source);
        } else {
            stream.wait(seq);
            self.holds.on_change();
        }
    }

    /// Something of a source is settled: whose turn is it now?
    pub(super) fn release(&mut self, source: Source) {
        let Some(stream) = self.streams.get_mut(&source) else { return };
        self.ready.extend(stream.release().into_iter().map(|seq| (source, seq)));
    }

    /// An event took so long: the policy decides.
    pub(super) fn on_sample(&mut self, gtd: TimeDelta) {
        match self.dropper.on_sample(gtd) {
            Verdict::None => {}
            Verdict::One => {
                if let Some((source, seq)) = self.first_droppable() {
                    self.drop_event(source, seq);
                    self.dropper.on_dropped();
                }
            }
            Verdict::All => self.drop_all(),
        }
        if self.dropper.is_last_resort()
            && let Some((source, seq)) = self.first_hindrance()
        {
            self.dropper.on_gave_up();
            self.give_up(source, seq);
        }
    }

    /// The oldest event that may be dropped, by its own time or by the time of what is before it.
    fn first_droppable(&self) -> Option<(Source, u64)> {
        let first = |(source, stream): (&Source, &Stream)| {
            let seq = stream.droppable_from(0)?;
            let at = stream.event(seq).map_or(stream.floor(), |event| Some(event.at));
            Some((at, *source, seq))
        };
        self.streams.iter().filter_map(first).min().map(|(_, source, seq)| (source, seq))
    }

    fn drop_all(&mut self) {
        let mut last = None;
        while let Some((source, seq)) = self.next_droppable(last) {
            self.drop_event(source, seq);
            self.dropper.on_dropped();
            last = Some((source, seq));
        }
    }

    fn next_droppable(&self, last: Option<(Source, u64)>) -> Option<(Source, u64)> {
        let (first, from) = last.unwrap_or((Source(0), 0));
        self.streams.range(first..).filter(|(_, stream)| stream.has_droppable()).find_map(|(source, stream)| {
            let from = if *source == first { from } else { 0 };
            stream.droppable_from(from).map(|seq| (*source, seq))
        })
    }

    /// Drops an event that is obsolete.
    pub(super) fn drop_event(&mut self, source: Source, seq: u64) {
        let Some(stream) = self.streams.get_mut(&source) else { return };
        if stream.event(seq).is_some() {
            self.stats.dropped += 1;
        } else {
            self.stats.skipped += 1;
        }
        stream.drop(seq);
        self.holds.on_change();
        self.release(source);
    }

    /// What holds up the others the longest, of those that are not ours.
    fn first_hindrance(&self) -> Option<(Source, u64)> {
        let first = |(source, stream): (&Source, &Stream)| {
            let seq = stream.first_open().filter(|_| *source != self.config.source && stream.is_told())?;
            let at = stream.event(seq).map_or(stream.floor(), |event| Some(event.at));
            Some((at, *source, seq))
        };
        self.streams.iter().filter_map(first).min().map(|(_, source, seq)| (source, seq))
    }

    fn give_up(&mut self, source: Source, seq: u64) {
        let Some(stream) = self.streams.get_mut(&source) else { return };
        if stream.is_obsolete(seq) {
            return self.drop_event(source, seq);
        }
        stream.drop(seq);
        self.stats.gave_up += 1;
        self.tell(Notice::GaveUp { source, seq });
        self.release(source);
    }
}
