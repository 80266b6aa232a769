//! The events of one source: those that are kept for others, those that wait, and those that are missing.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::event::StoredEvent;
use crate::time::{GroupInstant, Instant};
use crate::wire::EventRef;

/// Events of a source beyond the last that is settled that are taken in.
pub(super) const MAX_UNSETTLED: u64 = 4_096;
/// So many times more events are kept, at the most, while somebody fetches a snapshot.
const SNAPSHOT_HISTORY_FACTOR: usize = 16;
/// No event has a higher number. At a million events a second they last for nine years.
pub(super) const MAX_SEQ: u64 = (1 << 48) - 1;
/// The most bytes that tell how far apart two of them are: so the longest run and the longest payload fit in one datagram.
pub(super) const MAX_SEQ_DELTA_SIZE: usize = 7;

/// What has become of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EventFate {
    /// It is missing, or waits for others.
    Open,
    /// It is its turn.
    Queued,
    Delivered,
    /// It is obsolete and was not delivered, or was given up on.
    Dropped,
}

/// The place of an event.
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

    /// Whether it may be dropped.
    fn is_droppable(&self) -> bool {
        self.is_obsolete && !self.is_settled()
    }
}

/// An event that did not come.
#[derive(Clone, Copy, Debug)]
pub(super) struct MissingEvent {
    pub(super) seq: u64,
    /// When to ask for it next.
    pub(super) next_request_at: Instant,
    /// When it was asked for last.
    pub(super) last_requested_at: Option<Instant>,
    pub(super) attempts: u32,
}

/// What became of an event that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InsertOutcome {
    New,
    Duplicate,
    /// There is no room for it yet.
    NoRoom,
}

/// The events of one source.
#[derive(Debug)]
pub(super) struct EventStream {
    /// The number of the first slot.
    base: u64,
    /// All up to this one are delivered or dropped.
    settled: u64,
    slots: VecDeque<EventSlot>,
    /// In order of their numbers.
    missing: Vec<MissingEvent>,
    /// Events that are here and wait for others, in order of their numbers. Not used in total order.
    waiting: Vec<u64>,
    /// The newest that is here.
    newest: u64,
    droppable_count: usize,
    event_bytes: usize,
    /// What is not settled is not older.
    time_floor: Option<GroupInstant>,
    /// What the source said last: nothing after this event is older.
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

    /// The number behind the last slot.
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

    /// Takes in an event.
    pub(super) fn insert(&mut self, now: Instant, happening: &EventRef<'_>) -> InsertOutcome {
        let seq = happening.seq;
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
        let event = StoredEvent::new(happening);
        let (bytes, at) = (event.memory(), event.at);
        slot.event = Some(event);
        let is_open = slot.fate == EventFate::Open;
        self.event_bytes += bytes;
        self.newest = self.newest.max(seq);
        if let Ok(found) = self.missing.binary_search_by_key(&seq, |missing| missing.seq) {
            self.missing.remove(found);
        }
        if happening.replaces {
            happening.obsolete_set.for_each(|member| self.mark_obsolete(member));
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

    /// There are events up to this number: those that are not here are missing.
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

    /// The source says that nothing after the event of this number is older than this.
    pub(super) fn on_alive(&mut self, now: Instant, last: u64, at: GroupInstant) {
        self.expect(now, last);
        if self.announced_floor.is_none_or(|(_, told)| told < at) {
            self.announced_floor = Some((last, at));
        }
    }

    /// What is not settled is not older than this. `None` as long as nothing was heard.
    pub(super) fn time_floor(&self) -> Option<GroupInstant> {
        let told = self.announced_floor.filter(|(last, _)| *last <= self.settled).map(|(_, at)| at);
        self.time_floor.max(told)
    }

    /// Whether the source spoke of itself.
    pub(super) fn has_announced_floor(&self) -> bool {
        self.announced_floor.is_some()
    }

    /// The next in the order of numbers, if it is here.
    pub(super) fn next_in_sequence(&self) -> Option<(u64, &StoredEvent)> {
        let seq = self.settled + 1;
        self.event(seq).map(|event| (seq, event))
    }

    /// The first that may be delivered though others before it are missing.
    pub(super) fn first_deliverable(&self) -> Option<(u64, &StoredEvent)> {
        let seq = self.open_events().find(|seq| self.is_deliverable(*seq))?;
        self.event(seq).map(|event| (seq, event))
    }

    /// How long the first that is here and not delivered was issued ago.
    pub(super) fn oldest_pending(&self) -> Option<GroupInstant> {
        let from = (self.settled + 1 - self.base) as usize;
        let open = |slot: &&EventSlot| !slot.is_settled() && slot.event.is_some();
        self.slots.range(from.min(self.slots.len())..).find(open)?.event.as_ref().map(|event| event.at)
    }

    /// Whether all events of its key that come before it are settled, or their turn comes before.
    pub(super) fn is_deliverable(&self, seq: u64) -> bool {
        let Some(event) = self.event(seq) else { return false };
        let is_passed = |seq: u64| seq <= self.settled || self.fate(seq) != EventFate::Open;
        let is_behind = if event.barrier { event.after <= self.settled } else { is_passed(event.after) };
        is_behind && event.obsolete_set(seq).all(is_passed)
    }

    pub(super) fn add_waiting(&mut self, seq: u64) {
        if let Err(place) = self.waiting.binary_search(&seq) {
            self.waiting.insert(place, seq);
        }
    }

    /// Takes out all that wait no more, in their order, and makes it their turn. What one waits for comes before it, so one look is enough.
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

    /// Drops an event, whether it is here or not.
    pub(super) fn drop_event(&mut self, seq: u64) {
        if let Ok(found) = self.missing.binary_search_by_key(&seq, |missing| missing.seq) {
            self.missing.remove(found);
        }
        self.set_fate(seq, EventFate::Dropped);
    }

    /// Whether any event could be dropped.
    pub(super) fn has_droppable(&self) -> bool {
        self.droppable_count > 0
    }

    pub(super) fn is_obsolete(&self, seq: u64) -> bool {
        self.slot(seq).is_some_and(EventSlot::is_droppable)
    }

    /// The first that could be dropped from this number on.
    pub(super) fn droppable_from(&self, seq: u64) -> Option<u64> {
        if self.droppable_count == 0 {
            return None;
        }
        let from = seq.max(self.settled + 1) - self.base;
        let found = self.slots.range((from as usize).min(self.slots.len())..).position(EventSlot::is_droppable)?;
        Some(self.base + from + found as u64)
    }

    /// The first that is not done, obsolete or not.
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

    /// How many are here and not delivered.
    pub(super) fn backlog(&self) -> usize {
        ((self.end() - 1 - self.settled) as usize).saturating_sub(self.missing.len())
    }

    /// Lets go of what everybody has, but for the newest `least`, and of everything beyond the newest `most`.
    ///
    /// Who fetches a snapshot needs all that came after it, so more is kept from there on while one is given.
    pub(super) fn discard_history(&mut self, stable: u64, (least, most): (usize, usize), given: Option<u64>) {
        while self.base <= self.settled {
            let kept = (self.settled + 1 - self.base) as usize;
            let is_wanted = given.is_some_and(|given| self.base > given) && kept <= most * SNAPSHOT_HISTORY_FACTOR;
            if kept <= least || (self.base > stable && kept <= most) || is_wanted {
                return;
            }
            let gone = self.slots.pop_front();
            self.event_bytes -= gone.and_then(|slot| slot.event).map_or(0, |event| event.memory());
            self.base += 1;
        }
    }

    /// Which events after the last that is settled are settled all the same, a bit for each.
    pub(super) fn settled_bits(&self) -> Vec<u8> {
        let from = (self.settled + 1 - self.base) as usize;
        let slots: Vec<bool> = self.slots.range(from..).map(EventSlot::is_settled).collect();
        let mut bits = alloc::vec![0u8; slots.iter().rposition(|done| *done).map_or(0, |last| last / 8 + 1)];
        for (at, _) in slots.iter().enumerate().filter(|(_, done)| **done) {
            bits[at / 8] |= 1 << (at % 8);
        }
        bits
    }

    /// What is settled, as somebody else says whose state we have taken over. What we had delivered beyond that is to be delivered again.
    pub(super) fn restart_from_snapshot(
        &mut self,
        now: Instant,
        settled: u64,
        done: &[u8],
        floor: Option<GroupInstant>,
    ) {
        while self.base <= settled && !self.slots.is_empty() {
            let gone = self.slots.pop_front();
            self.event_bytes -= gone.and_then(|slot| slot.event).map_or(0, |event| event.memory());
            self.base += 1;
        }
        self.base = settled + 1;
        self.settled = settled;
        self.time_floor = floor;
        self.waiting.clear();
        self.missing.retain(|missing| missing.seq > settled);
        let is_done = |at: usize| done.get(at / 8).is_some_and(|byte| byte & 1 << (at % 8) != 0);
        self.expect(now, settled.saturating_add(last_set_bit(done)));
        for (at, slot) in self.slots.iter_mut().enumerate() {
            slot.fate = match slot.fate {
                _ if is_done(at) => EventFate::Delivered,
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

    /// What is open and not here is missing, whatever was thought of it before.
    fn rebuild_missing(&mut self, now: Instant) {
        for (at, slot) in self.slots.iter().enumerate() {
            let seq = self.base + at as u64;
            if slot.event.is_none()
                && slot.fate == EventFate::Open
                && let Err(place) = self.missing.binary_search_by_key(&seq, |missing| missing.seq)
            {
                self.missing
                    .insert(place, MissingEvent { seq, next_request_at: now, last_requested_at: None, attempts: 0 });
            }
        }
    }

    /// The numbers that are here and open.
    pub(super) fn open_events(&self) -> impl Iterator<Item = u64> + '_ {
        let is_open = |slot: &EventSlot| slot.fate == EventFate::Open && slot.event.is_some();
        self.slots.iter().enumerate().filter(move |(_, slot)| is_open(slot)).map(|(at, _)| self.base + at as u64)
    }

    /// Bytes on the heap.
    pub(super) fn memory(&self) -> usize {
        self.event_bytes
            + self.slots.capacity() * size_of::<EventSlot>()
            + self.missing.capacity() * size_of::<MissingEvent>()
            + self.waiting.capacity() * size_of::<u64>()
    }
}

/// The number of the last bit that is set, from 1 on. The bits that fill up the last byte stand for events that may never be issued.
fn last_set_bit(bits: &[u8]) -> u64 {
    let last = bits.iter().rposition(|byte| *byte != 0);
    last.map_or(0, |at| (at as u64 + 1) * 8 - u64::from(bits[at].leading_zeros()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshot_does_not_announce_events_beyond_its_last() {
        let mut giver = EventStream::new();
        giver.expect(Instant::ZERO, 7);
        [1, 2, 3, 4, 5, 7].into_iter().for_each(|seq| giver.set_fate(seq, EventFate::Delivered));
        let mut taker = EventStream::new();
        taker.restart_from_snapshot(Instant::ZERO, giver.settled(), &giver.settled_bits(), None);
        let missing: Vec<u64> = taker.missing().iter().map(|missing| missing.seq).collect();
        assert_eq!((giver.settled(), taker.settled(), missing), (5, 5, alloc::vec![6]));
        taker.drop_event(6);
        assert_eq!(
            taker.first_open(),
            None,
            "events that nobody issued would be given up, and the real ones with them"
        );
    }
}
