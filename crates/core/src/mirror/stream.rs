//! The events of one source: those kept for other mirrors, those that wait and those that are missing.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::event::StoredEvent;
use crate::mirror::message::EncodedEvent;
use crate::time::{GroupInstant, Instant};

/// Maximum difference between the sequence number of an accepted event and that of its source's last settled event.
pub(super) const MAX_UNSETTLED: u64 = 4_096;
/// Factor by which the maximum of the history limits grows while a snapshot is served.
const SNAPSHOT_HISTORY_FACTOR: usize = 16;
/// Maximum sequence number: at a million events per second it lasts for nine years.
pub(super) const MAX_SEQ: u64 = (1 << 48) - 1;
/// Maximum encoded size of the difference of two sequence numbers, in bytes. It bounds the largest obsolete set, which
/// fits in one datagram with the largest payload.
pub(super) const MAX_SEQ_DELTA_SIZE: usize = 7;

/// Progress of an event towards its delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EventFate {
    /// Missing, or received and neither queued nor settled.
    Open,
    /// Queued for delivery, in correlated order only.
    Queued,
    Delivered,
    /// Obsolete and not delivered, or abandoned.
    Dropped,
}

/// One sequence number of a source: the event, once it has arrived, and its fate.
#[derive(Debug)]
struct EventSlot {
    event: Option<StoredEvent>,
    fate: EventFate,
    is_obsolete: bool,
}

impl EventSlot {
    const EMPTY: Self = Self { event: None, fate: EventFate::Open, is_obsolete: false };

    fn is_settled(&self) -> bool {
        matches!(self.fate, EventFate::Delivered | EventFate::Dropped)
    }

    /// Returns whether the event is obsolete and neither delivered nor dropped yet.
    fn is_droppable(&self) -> bool {
        self.is_obsolete && !self.is_settled()
    }
}

/// An expected event that has not arrived.
#[derive(Clone, Copy, Debug)]
pub(super) struct MissingEvent {
    pub(super) seq: u64,
    pub(super) next_request_at: Instant,
    /// Time of the last request; `None` before the first.
    pub(super) last_requested_at: Option<Instant>,
    pub(super) attempts: u32,
}

/// Outcome of inserting a received event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InsertOutcome {
    New,
    Duplicate,
    /// The event is more than [`MAX_UNSETTLED`] ahead of the last settled one, or above [`MAX_SEQ`].
    NoRoom,
}

/// Events of one source that were received or are known to exist.
#[derive(Debug)]
pub(super) struct EventStream {
    /// Sequence number of the first slot.
    base: u64,
    /// Sequence number up to which all events are delivered or dropped.
    settled: u64,
    slots: VecDeque<EventSlot>,
    /// Missing events, sorted by sequence number.
    missing: Vec<MissingEvent>,
    /// Received events that wait for others, sorted by sequence number. Unused in total order.
    waiting: Vec<u64>,
    /// Sequence number of the newest event that was received or is settled in an installed snapshot; 0 without one.
    newest: u64,
    droppable_count: usize,
    event_bytes: usize,
    /// Newest issue time of the settled events, or the floor of the installed snapshot: no unsettled event is older.
    time_floor: Option<GroupInstant>,
    /// Sequence number and time of the source's heartbeat with the latest time: no event after that number is older
    /// than that time.
    announced_floor: Option<(u64, GroupInstant)>,
}

impl EventStream {
    pub(super) fn new() -> Self {
        Self {
            base: 1,
            settled: 0,
            slots: VecDeque::new(),
            missing: Vec::new(),
            waiting: Vec::new(),
            newest: 0,
            droppable_count: 0,
            event_bytes: 0,
            time_floor: None,
            announced_floor: None,
        }
    }

    pub(super) fn base(&self) -> u64 {
        self.base
    }

    pub(super) fn settled(&self) -> u64 {
        self.settled
    }

    pub(super) fn newest(&self) -> u64 {
        self.newest.max(self.settled)
    }

    /// Returns the sequence number after the last slot.
    fn end(&self) -> u64 {
        self.base + self.slots.len() as u64
    }

    fn slot(&self, seq: u64) -> Option<&EventSlot> {
        self.slots.get(seq.checked_sub(self.base)? as usize)
    }

    fn slot_mut(&mut self, seq: u64) -> Option<&mut EventSlot> {
        self.slots.get_mut(seq.checked_sub(self.base)? as usize)
    }

    pub(super) fn event(&self, seq: u64) -> Option<&StoredEvent> {
        self.slot(seq)?.event.as_ref()
    }

    pub(super) fn fate(&self, seq: u64) -> EventFate {
        self.slot(seq)
            .map_or(if seq <= self.settled { EventFate::Delivered } else { EventFate::Open }, |slot| slot.fate)
    }

    /// Stores a received event. Marks earlier events that have not arrived as missing, and the events that it replaces
    /// as obsolete.
    pub(super) fn insert(&mut self, now: Instant, encoded: &EncodedEvent<'_>) -> InsertOutcome {
        let seq = encoded.seq;
        if seq < self.base {
            return InsertOutcome::Duplicate;
        }
        if seq > self.settled.saturating_add(MAX_UNSETTLED).min(MAX_SEQ) {
            return InsertOutcome::NoRoom;
        }
        self.expect(now, seq);
        let Some(slot) = self.slot_mut(seq).filter(|slot| slot.event.is_none()) else {
            return InsertOutcome::Duplicate;
        };
        let event = StoredEvent::new(encoded);
        let (bytes, at) = (event.memory(), event.at);
        slot.event = Some(event);
        let is_open = slot.fate == EventFate::Open;
        self.event_bytes += bytes;
        self.newest = self.newest.max(seq);
        if let Ok(found) = self.missing.binary_search_by_key(&seq, |missing| missing.seq) {
            self.missing.remove(found);
        }
        if encoded.replaces {
            encoded.obsolete_set.for_each(|member| self.mark_obsolete(member));
        }
        if !is_open {
            if seq == self.settled {
                self.time_floor = self.time_floor.max(Some(at));
            }
            return InsertOutcome::Duplicate;
        }
        InsertOutcome::New
    }

    fn mark_obsolete(&mut self, seq: u64) {
        let Some(slot) = self.slot_mut(seq) else { return };
        if !slot.is_obsolete {
            slot.is_obsolete = true;
            self.droppable_count += usize::from(self.slot(seq).is_some_and(|slot| !slot.is_settled()));
        }
    }

    /// Notes that events up to `last` exist, limited to [`MAX_UNSETTLED`] beyond the last settled one. Events up to
    /// that limit that have not arrived become missing.
    pub(super) fn expect(&mut self, now: Instant, last: u64) {
        let last = last.min(self.settled.saturating_add(MAX_UNSETTLED)).min(MAX_SEQ);
        while self.end() <= last {
            self.missing.push(MissingEvent {
                seq: self.end(),
                next_request_at: now,
                last_requested_at: None,
                attempts: 0,
            });
            self.slots.push_back(EventSlot::EMPTY);
        }
    }

    /// Handles a heartbeat of the source: no event after `last` is older than `at`.
    pub(super) fn on_heartbeat(&mut self, now: Instant, last: u64, at: GroupInstant) {
        self.expect(now, last);
        if self.announced_floor.is_none_or(|(_, announced)| announced < at) {
            self.announced_floor = Some((last, at));
        }
    }

    /// Returns a lower bound on the issue times of unsettled events: the newest issue time of the settled events or, if
    /// that is later, the time of the last heartbeat, provided that all events before the heartbeat are settled. `None`
    /// without either.
    pub(super) fn time_floor(&self) -> Option<GroupInstant> {
        let announced = self.announced_floor.filter(|(last, _)| *last <= self.settled).map(|(_, at)| at);
        self.time_floor.max(announced)
    }

    /// Returns whether the source itself has sent a heartbeat.
    pub(super) fn has_announced_floor(&self) -> bool {
        self.announced_floor.is_some()
    }

    /// Returns the event after the last settled one, if it has arrived.
    pub(super) fn next_in_sequence(&self) -> Option<(u64, &StoredEvent)> {
        let seq = self.settled + 1;
        self.event(seq).map(|event| (seq, event))
    }

    /// Returns the first open event that may be delivered, even if events of other keys before it are missing.
    pub(super) fn first_deliverable(&self) -> Option<(u64, &StoredEvent)> {
        let seq = self.open_events().find(|seq| self.is_deliverable(*seq))?;
        self.event(seq).map(|event| (seq, event))
    }

    /// Returns the issue time of the first received event that is not settled.
    pub(super) fn oldest_pending(&self) -> Option<GroupInstant> {
        let from = (self.settled + 1 - self.base) as usize;
        let open = |slot: &&EventSlot| !slot.is_settled() && slot.event.is_some();
        self.slots.range(from.min(self.slots.len())..).find(open)?.event.as_ref().map(|event| event.at)
    }

    /// Returns whether an event has arrived and all earlier events of its key are settled or queued before it.
    pub(super) fn is_deliverable(&self, seq: u64) -> bool {
        let Some(event) = self.event(seq) else { return false };
        let is_passed = |seq: u64| seq <= self.settled || self.fate(seq) != EventFate::Open;
        let is_after_passed = if event.barrier { event.after <= self.settled } else { is_passed(event.after) };
        is_after_passed && event.obsolete_set(seq).all(is_passed)
    }

    pub(super) fn add_waiting(&mut self, seq: u64) {
        if let Err(index) = self.waiting.binary_search(&seq) {
            self.waiting.insert(index, seq);
        }
    }

    /// Marks the waiting events that have become deliverable as queued and returns their sequence numbers in ascending
    /// order. Events wait only for earlier ones, so one pass is enough.
    pub(super) fn release_waiting(&mut self) -> Vec<u64> {
        let mut released = Vec::new();
        if self.waiting.is_empty() {
            return released;
        }
        let mut waiting = core::mem::take(&mut self.waiting);
        waiting.retain(|seq| {
            let is_open = self.fate(*seq) == EventFate::Open;
            let is_released = is_open && self.is_deliverable(*seq);
            if is_released {
                self.set_fate(*seq, EventFate::Queued);
                released.push(*seq);
            }
            is_open && !is_released
        });
        self.waiting = waiting;
        released
    }

    pub(super) fn set_fate(&mut self, seq: u64, fate: EventFate) {
        let Some(slot) = self.slot_mut(seq) else { return };
        let was_droppable = slot.is_droppable();
        slot.fate = fate;
        let is_droppable = slot.is_droppable();
        self.droppable_count = self.droppable_count + usize::from(is_droppable) - usize::from(was_droppable);
        self.advance_settled();
    }

    fn advance_settled(&mut self) {
        while let Some(slot) = self.slot(self.settled + 1).filter(|slot| slot.is_settled()) {
            self.time_floor = self.time_floor.max(slot.event.as_ref().map(|event| event.at));
            self.settled += 1;
        }
    }

    /// Drops an event, whether it has arrived or not.
    pub(super) fn drop_event(&mut self, seq: u64) {
        if let Ok(found) = self.missing.binary_search_by_key(&seq, |missing| missing.seq) {
            self.missing.remove(found);
        }
        self.set_fate(seq, EventFate::Dropped);
    }

    /// Returns whether any unsettled event is obsolete.
    pub(super) fn has_droppable(&self) -> bool {
        self.droppable_count > 0
    }

    pub(super) fn is_obsolete(&self, seq: u64) -> bool {
        self.slot(seq).is_some_and(EventSlot::is_droppable)
    }

    /// Returns the first unsettled obsolete event from `seq` on.
    pub(super) fn droppable_from(&self, seq: u64) -> Option<u64> {
        if self.droppable_count == 0 {
            return None;
        }
        let from = seq.max(self.settled + 1) - self.base;
        let found = self.slots.range((from as usize).min(self.slots.len())..).position(EventSlot::is_droppable)?;
        Some(self.base + from + found as u64)
    }

    /// Returns the first unsettled event that is known to exist, obsolete or not.
    pub(super) fn first_open(&self) -> Option<u64> {
        (self.settled + 1 < self.end()).then_some(self.settled + 1)
    }

    pub(super) fn missing(&self) -> &[MissingEvent] {
        &self.missing
    }

    pub(super) fn missing_mut(&mut self) -> &mut [MissingEvent] {
        &mut self.missing
    }

    pub(super) fn waiting(&self) -> &[u64] {
        &self.waiting
    }

    /// Returns the number of events after [`settled`](Self::settled) that have arrived or are already settled.
    pub(super) fn backlog(&self) -> usize {
        ((self.end() - 1 - self.settled) as usize).saturating_sub(self.missing.len())
    }

    /// Discards settled events that all present mirrors have (up to `stable`), except for the newest `least`, and all
    /// beyond the newest `most`.
    ///
    /// A mirror that downloads a snapshot needs all later events. While a snapshot up to event `served` is served, the
    /// newest [`SNAPSHOT_HISTORY_FACTOR`] times `most` of the events after it are therefore kept, even if all present
    /// mirrors have them.
    pub(super) fn discard_history(&mut self, stable: u64, (least, most): (usize, usize), served: Option<u64>) {
        while self.base <= self.settled {
            let kept = (self.settled + 1 - self.base) as usize;
            let is_needed = served.is_some_and(|served| self.base > served) && kept <= most * SNAPSHOT_HISTORY_FACTOR;
            if kept <= least || (self.base > stable && kept <= most) || is_needed {
                return;
            }
            let discarded = self.slots.pop_front();
            self.event_bytes -= discarded.and_then(|slot| slot.event).map_or(0, |event| event.memory());
            self.base += 1;
        }
    }

    /// Returns a bitmap of the events after [`settled`](Self::settled): bit 0 stands for the first of them, and a set
    /// bit for a settled event.
    pub(super) fn settled_bits(&self) -> Vec<u8> {
        let from = (self.settled + 1 - self.base) as usize;
        let slots: Vec<bool> = self.slots.range(from..).map(EventSlot::is_settled).collect();
        let mut bits =
            alloc::vec![0u8; slots.iter().rposition(|is_settled| *is_settled).map_or(0, |last| last / 8 + 1)];
        for (index, _) in slots.iter().enumerate().filter(|(_, is_settled)| **is_settled) {
            bits[index / 8] |= 1 << (index % 8);
        }
        bits
    }

    /// Takes over the settled events of another mirror whose state was installed. Events that this mirror had delivered
    /// beyond those are delivered again.
    pub(super) fn restart_from_snapshot(
        &mut self,
        now: Instant,
        settled: u64,
        settled_bits: &[u8],
        time_floor: Option<GroupInstant>,
    ) {
        while self.base <= settled && !self.slots.is_empty() {
            let discarded = self.slots.pop_front();
            self.event_bytes -= discarded.and_then(|slot| slot.event).map_or(0, |event| event.memory());
            self.base += 1;
        }
        self.base = settled + 1;
        self.settled = settled;
        self.time_floor = time_floor;
        self.waiting.clear();
        self.missing.retain(|missing| missing.seq > settled);
        let is_settled = |index: usize| settled_bits.get(index / 8).is_some_and(|byte| byte & 1 << (index % 8) != 0);
        self.expect(now, settled.saturating_add(last_set_bit(settled_bits)));
        for (index, slot) in self.slots.iter_mut().enumerate() {
            slot.fate = match slot.fate {
                _ if is_settled(index) => EventFate::Delivered,
                EventFate::Dropped if slot.is_obsolete => EventFate::Dropped,
                _ => EventFate::Open,
            };
        }
        let slots = &self.slots;
        self.missing.retain(|missing| slots[(missing.seq - settled - 1) as usize].fate == EventFate::Open);
        self.rebuild_missing(now);
        self.droppable_count = self.slots.iter().filter(|slot| slot.is_droppable()).count();
        self.newest = self.newest.max(settled);
        self.advance_settled();
    }

    /// Adds all open events that have not arrived to the missing ones.
    fn rebuild_missing(&mut self, now: Instant) {
        for (index, slot) in self.slots.iter().enumerate() {
            let seq = self.base + index as u64;
            if slot.event.is_none()
                && slot.fate == EventFate::Open
                && let Err(position) = self.missing.binary_search_by_key(&seq, |missing| missing.seq)
            {
                self.missing
                    .insert(position, MissingEvent { seq, next_request_at: now, last_requested_at: None, attempts: 0 });
            }
        }
    }

    /// Returns the sequence numbers of received open events.
    pub(super) fn open_events(&self) -> impl Iterator<Item = u64> + '_ {
        let is_open = |slot: &EventSlot| slot.fate == EventFate::Open && slot.event.is_some();
        self.slots.iter().enumerate().filter(move |(_, slot)| is_open(slot)).map(|(index, _)| self.base + index as u64)
    }

    /// Returns the heap size in bytes.
    pub(super) fn memory(&self) -> usize {
        self.event_bytes
            + self.slots.capacity() * size_of::<EventSlot>()
            + self.missing.capacity() * size_of::<MissingEvent>()
            + self.waiting.capacity() * size_of::<u64>()
    }
}

/// Returns the position of the last set bit, from 1 on, or 0 if no bit is set. The padding bits of the last byte stand
/// for events that may never be issued.
fn last_set_bit(bits: &[u8]) -> u64 {
    let last = bits.iter().rposition(|byte| *byte != 0);
    last.map_or(0, |index| (index as u64 + 1) * 8 - u64::from(bits[index].leading_zeros()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshot_does_not_announce_events_beyond_its_last() {
        let mut provider = EventStream::new();
        provider.expect(Instant::ZERO, 7);
        [1, 2, 3, 4, 5, 7].into_iter().for_each(|seq| provider.set_fate(seq, EventFate::Delivered));
        let mut receiver = EventStream::new();
        receiver.restart_from_snapshot(Instant::ZERO, provider.settled(), &provider.settled_bits(), None);
        let missing: Vec<u64> = receiver.missing().iter().map(|missing| missing.seq).collect();
        assert_eq!((provider.settled(), receiver.settled(), missing), (5, 5, alloc::vec![6]));
        receiver.drop_event(6);
        assert_eq!(receiver.first_open(), None, "padding bits must not announce events, which would later be dropped");
    }
}
