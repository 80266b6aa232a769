//! Delivery of events to the game in their order, and dropping of events under the drop policies.

use super::policy::DropAmount;
use super::{Delivery, DeliveryOrder, DropPolicy, EventFate, EventStream, GtdMeasure, Mirror, MirrorEvent, SourceId};
use crate::time::{GroupInstant, Instant, TimeDelta};

/// An event that is being delivered, without its payload.
struct SettledEvent {
    source: SourceId,
    seq: u64,
    at: GroupInstant,
    key: u64,
    gtd: TimeDelta,
    is_out_of_order: bool,
}

impl Mirror {
    /// Returns the next event, which the game must apply before the host program calls this mirror again. `None` if no
    /// event can be delivered now.
    pub fn poll_delivery(&mut self, now: Instant) -> Option<Delivery<'_>> {
        let settled = self.settle_next(now)?;
        self.delivery(settled)
    }

    /// Returns the next event of another mirror, like [`poll_delivery`](Self::poll_delivery): for games that apply
    /// their own events when they issue them.
    pub fn poll_remote_delivery(&mut self, now: Instant) -> Option<Delivery<'_>> {
        let settled = loop {
            let settled = self.settle_next(now)?;
            if settled.source != self.config.source {
                break settled;
            }
        };
        self.delivery(settled)
    }

    /// Settles the next event that can be delivered.
    fn settle_next(&mut self, now: Instant) -> Option<SettledEvent> {
        self.now = self.now.max(now);
        self.apply_hold_policy();
        let (source, seq) = self.next_deliverable()?;
        let stream = self.streams.get_mut(&source)?;
        let (at, key) = stream.event(seq).map(|event| (event.at, event.key))?;
        stream.set_fate(seq, EventFate::Delivered);
        if self.config.order == DeliveryOrder::Total {
            self.holds.on_change();
        }
        let (is_own, is_out_of_order) = (source == self.config.source, self.advance_frontier(at, source, seq));
        let gtd = self.age(at);
        self.stats.delivered += 1;
        self.stats.out_of_order += u64::from(is_out_of_order);
        if !is_own {
            self.stats.on_gtd(gtd, self.config.policy.threshold());
            if self.config.measure == GtdMeasure::Delivery {
                self.on_sample(gtd);
            }
        }
        Some(SettledEvent { source, seq, at, key, gtd, is_out_of_order })
    }

    fn delivery(&self, settled: SettledEvent) -> Option<Delivery<'_>> {
        let SettledEvent { source, seq, at, key, gtd, is_out_of_order } = settled;
        let payload = self.streams.get(&source)?.event(seq)?.payload();
        let is_own = source == self.config.source;
        Some(Delivery { source, seq, at, key, payload, gtd, is_own, is_out_of_order })
    }

    fn next_deliverable(&mut self) -> Option<(SourceId, u64)> {
        loop {
            let (source, seq) = match self.config.order {
                DeliveryOrder::Total => self.next_in_total_order()?,
                DeliveryOrder::Correlated => self.ready.pop_front()?,
            };
            let stream = self.streams.get(&source)?;
            if self.config.order == DeliveryOrder::Correlated && stream.fate(seq) != EventFate::Queued {
                continue;
            }
            if !self.is_obsolete_and_overdue(source, seq) {
                return Some((source, seq));
            }
            self.drop_event(source, seq);
        }
    }

    /// Returns whether an event is obsolete and older than the threshold of [`DropPolicy::Adaptive`]. False under other
    /// policies.
    fn is_obsolete_and_overdue(&self, source: SourceId, seq: u64) -> bool {
        let DropPolicy::Adaptive { threshold } = self.config.policy else { return false };
        let Some(stream) = self.streams.get(&source) else { return false };
        stream.is_obsolete(seq) && stream.event(seq).is_some_and(|event| self.age(event.at) > threshold)
    }

    /// Advances the position in the total order to an event that is being delivered, and makes this mirror issue its
    /// further events after that position. Returns whether an event that is later in the order was delivered before. In
    /// correlated order, does nothing and returns false.
    fn advance_frontier(&mut self, at: GroupInstant, source: SourceId, seq: u64) -> bool {
        if self.config.order != DeliveryOrder::Total {
            return false;
        }
        // This mirror's own events must not come before a delivered one.
        self.issue_floor = self.issue_floor.max(at + TimeDelta::from_nanos(1));
        let position = Some((at, source, seq));
        let is_out_of_order = position < self.delivery_frontier;
        self.delivery_frontier = self.delivery_frontier.max(position);
        is_out_of_order
    }

    /// Returns the first event in total order. `None` if no event can be delivered, or if another present mirror that
    /// has sent a heartbeat can still send an earlier one.
    fn next_in_total_order(&self) -> Option<(SourceId, u64)> {
        // An event of an absent source may be missing for ever; events that do not depend on it do not wait for it.
        let heads = self.streams.iter().filter_map(|(source, stream)| {
            let head = if self.is_present(*source) { stream.next_in_sequence() } else { stream.first_deliverable() };
            head.map(|(seq, event)| (event.at, *source, seq))
        });
        let (at, source, seq) = heads.min()?;
        let may_precede = |(other, stream): (&SourceId, &EventStream)| {
            let is_live = *other != self.config.source && stream.has_announced_floor() && self.is_present(*other);
            let floor = stream.time_floor().unwrap_or(GroupInstant::from_nanos(i64::MIN));
            is_live && stream.next_in_sequence().is_none() && (floor, *other) <= (at, source)
        };
        (!self.streams.iter().any(may_precede)).then_some((source, seq))
    }

    /// Queues an open event, and the events that waited for it, if it is deliverable; otherwise adds it to the waiting
    /// events. Does nothing in total order or if the event is not open.
    pub(super) fn enqueue(&mut self, source: SourceId, seq: u64) {
        if self.config.order == DeliveryOrder::Total {
            return;
        }
        let Some(stream) = self.streams.get_mut(&source) else { return };
        if stream.fate(seq) != EventFate::Open {
            return;
        }
        if stream.is_deliverable(seq) {
            stream.set_fate(seq, EventFate::Queued);
            self.ready.push_back((source, seq));
            self.release_waiting(source);
        } else {
            stream.add_waiting(seq);
            self.holds.on_change();
        }
    }

    /// Queues the waiting events of a source that have become deliverable.
    pub(super) fn release_waiting(&mut self, source: SourceId) {
        let Some(stream) = self.streams.get_mut(&source) else { return };
        self.ready.extend(stream.release_waiting().into_iter().map(|seq| (source, seq)));
    }

    /// Passes a GTD sample to the drop policy and drops the events that it selects.
    pub(super) fn on_sample(&mut self, gtd: TimeDelta) {
        match self.dropper.on_sample(gtd) {
            DropAmount::None => {}
            DropAmount::One => {
                if let Some((source, seq)) = self.oldest_droppable() {
                    self.drop_event(source, seq);
                    self.dropper.on_dropped();
                }
            }
            DropAmount::All => self.drop_all_obsolete(),
        }
        if self.dropper.should_abandon()
            && let Some((source, seq)) = self.oldest_blocking()
        {
            self.dropper.on_abandoned();
            self.abandon_event(source, seq);
        }
    }

    /// Returns the oldest among the first unsettled obsolete events of all sources, by issue time or, for a missing
    /// event, by the time floor of its stream.
    fn oldest_droppable(&self) -> Option<(SourceId, u64)> {
        let first = |(source, stream): (&SourceId, &EventStream)| {
            let seq = stream.droppable_from(0)?;
            let at = stream.event(seq).map_or(stream.time_floor(), |event| Some(event.at));
            Some((at, *source, seq))
        };
        self.streams.iter().filter_map(first).min().map(|(_, source, seq)| (source, seq))
    }

    fn drop_all_obsolete(&mut self) {
        let mut last = None;
        while let Some((source, seq)) = self.next_droppable(last) {
            self.drop_event(source, seq);
            self.dropper.on_dropped();
            last = Some((source, seq));
        }
    }

    fn next_droppable(&self, last: Option<(SourceId, u64)>) -> Option<(SourceId, u64)> {
        let (first, from) = last.unwrap_or((SourceId(0), 0));
        self.streams.range(first..).filter(|(_, stream)| stream.has_droppable()).find_map(|(source, stream)| {
            let from = if *source == first { from } else { 0 };
            stream.droppable_from(from).map(|seq| (*source, seq))
        })
    }

    /// Drops an obsolete event, received or missing, and queues the events that waited for it.
    pub(super) fn drop_event(&mut self, source: SourceId, seq: u64) {
        let Some(stream) = self.streams.get_mut(&source) else { return };
        if stream.event(seq).is_some() {
            self.stats.dropped += 1;
        } else {
            self.stats.skipped += 1;
        }
        stream.drop_event(seq);
        self.holds.on_change();
        self.release_waiting(source);
    }

    /// Returns the oldest among the first unsettled events of all other sources that have sent a heartbeat, by issue
    /// time or, for a missing event, by the time floor of its stream.
    fn oldest_blocking(&self) -> Option<(SourceId, u64)> {
        let first = |(source, stream): (&SourceId, &EventStream)| {
            let seq = stream.first_open().filter(|_| *source != self.config.source && stream.has_announced_floor())?;
            let at = stream.event(seq).map_or(stream.time_floor(), |event| Some(event.at));
            Some((at, *source, seq))
        };
        self.streams.iter().filter_map(first).min().map(|(_, source, seq)| (source, seq))
    }

    fn abandon_event(&mut self, source: SourceId, seq: u64) {
        let Some(stream) = self.streams.get_mut(&source) else { return };
        if stream.is_obsolete(seq) {
            return self.drop_event(source, seq);
        }
        stream.drop_event(seq);
        self.stats.abandoned += 1;
        self.push_event(MirrorEvent::EventAbandoned { source, seq });
        self.release_waiting(source);
    }
}
