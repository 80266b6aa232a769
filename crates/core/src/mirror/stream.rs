//! The events of one source: those that are kept for others, those that wait, and those that are missing.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::event::Event;
use crate::time::{GroupInstant, Instant};
use crate::wire::EventRef;

/// Events of a source beyond the last that is settled that are taken in.
pub(super) const WINDOW: u64 = 4_096;
/// So many times more events are kept, at the most, while somebody fetches a snapshot.
const WHILE_GIVEN: usize = 16;
/// No event has a higher number. At a million events a second they last for nine years.
pub(super) const MAX_SEQ: u64 = (1 << 48) - 1;
/// The most bytes that tell how far apart two of them are: so the longest run and the longest payload fit in one datagram.
pub(super) const LONGEST_STEP: usize = 7;

/// What has become of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
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
struct Slot {
    event: Option<Event>,
    fate: Fate,
    obsolete: bool,
}

impl Slot {
    const EMPTY: Self = Self { event: None, fate: Fate::Open, obsolete: false };

    fn is_done(&self) -> bool {
        matches!(self.fate, Fate::Delivered | Fate::Dropped)
    }

    /// Whether it may be dropped.
    fn is_droppable(&self) -> bool {
        self.obsolete && !self.is_done()
    }
}

/// An event that did not come.
#[derive(Clone, Copy, Debug)]
pub(super) struct Missing {
    pub(super) seq: u64,
    /// When to ask for it next.
    pub(super) next: Instant,
    /// When it was asked for last.
    pub(super) asked: Option<Instant>,
    pub(super) times: u32,
}

/// What became of an event that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    New,
    Known,
    /// There is no room for it yet.
    Refused,
}

/// The events of one source.
#[derive(Debug)]
pub(super) struct Stream {
    /// The number of the first slot.
    base: u64,
    /// All up to this one are delivered or dropped.
    settled: u64,
    slots: VecDeque<Slot>,
    /// In order of their numbers.
    missing: Vec<Missing>,
    /// Events that are here and wait for others, in order of their numbers. Not used in total order.
    waiting: Vec<u64>,
    /// The newest that is here.
    newest: u64,
    droppable: usize,
    bytes: usize,
    /// What is not settled is not older.
    floor: Option<GroupInstant>,
    /// What the source said last: nothing after this event is older.
    told: Option<(u64, GroupInstant)>,
}

impl Stream {
    pub(super) fn new() -> Self {
        Self {
            base: 1,
            settled: 0,
            slots: VecDeque::new(),
            missing: Vec::new(),
            waiting: Vec::new(),
            newest: 0,
            droppable: 0,
            bytes: 0,
            floor: None,
            told: None,
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

    fn slot(&self, seq: u64) -> Option<&Slot> {
        self.slots.get(seq.checked_sub(self.base)? as usize)
    }

    fn slot_mut(&mut self, seq: u64) -> Option<&mut Slot> {
        self.slots.get_mut(seq.checked_sub(self.base)? as usize)
    }

    pub(super) fn event(&self, seq: u64) -> Option<&Event> {
        self.slot(seq)?.event.as_ref()
    }

    pub(super) fn fate(&self, seq: u64) -> Fate {
        self.slot(seq).map_or(if seq <= self.settled { Fate::Delivered } else { Fate::Open }, |slot| slot.fate)
    }

    /// Takes in an event.
    pub(super) fn insert(&mut self, now: Instant, happening: &EventRef<'_>) -> Taken {
        let seq = happening.seq;
        if seq < self.base {
            return Taken::Known;
        }
        if seq > self.settled.saturating_add(WINDOW).min(MAX_SEQ) {
            return Taken::Refused;
        }
        self.expect(now, seq);
        let Some(slot) = self.slot_mut(seq).filter(|slot| slot.event.is_none()) else { return Taken::Known };
        let event = Event::new(happening);
        let (bytes, at) = (event.memory(), event.at);
        slot.event = Some(event);
        let is_open = slot.fate == Fate::Open;
        self.bytes += bytes;
        self.newest = self.newest.max(seq);
        if let Ok(found) = self.missing.binary_search_by_key(&seq, |missing| missing.seq) {
            self.missing.remove(found);
        }
        if happening.replaces {
            happening.obsolete_set.for_each(|member| self.mark_obsolete(member));
        }
        if !is_open {
            if seq == self.settled {
                self.floor = self.floor.max(Some(at));
            }
            return Taken::Known;
        }
        Taken::New
    }

    fn mark_obsolete(&mut self, seq: u64) {
        let Some(slot) = self.slot_mut(seq) else { return };
        if !slot.obsolete {
            slot.obsolete = true;
            self.droppable += usize::from(self.slot(seq).is_some_and(|slot| !slot.is_done()));
        }
    }

    /// There are events up to this number: those that are not here are missing.
    pub(super) fn expect(&mut self, now: Instant, last: u64) {
        let last = last.min(self.settled.saturating_add(WINDOW)).min(MAX_SEQ);
        while self.end() <= last {
            self.missing.push(Missing { seq: self.end(), next: now, asked: None, times: 0 });
            self.slots.push_back(Slot::EMPTY);
        }
    }

    /// The source says that nothing after the event of this number is older than this.
    pub(super) fn on_alive(&mut self, now: Instant, last: u64, at: GroupInstant) {
        self.expect(now, last);
        if self.told.is_none_or(|(_, told)| told < at) {
            self.told = Some((last, at));
        }
    }

    /// What is not settled is not older than this. `None` as long as nothing was heard.
    pub(super) fn floor(&self) -> Option<GroupInstant> {
        let told = self.told.filter(|(last, _)| *last <= self.settled).map(|(_, at)| at);
        self.floor.max(told)
    }

    /// Whether the source spoke of itself.
    pub(super) fn is_told(&self) -> bool {
        self.told.is_some()
    }

    /// The next in the order of numbers, if it is here.
    pub(super) fn head(&self) -> Option<(u64, &Event)> {
        let seq = self.settled + 1;
        self.event(seq).map(|event| (seq, event))
    }

    /// The first that may be delivered though others before it are missing.
    pub(super) fn head_of_its_key(&self) -> Option<(u64, &Event)> {
        let seq = self.open().find(|seq| self.is_deliverable(*seq))?;
        self.event(seq).map(|event| (seq, event))
    }

    /// How long the first that is here and not delivered was issued ago.
    pub(super) fn oldest(&self) -> Option<GroupInstant> {
        let from = (self.settled + 1 - self.base) as usize;
        let open = |slot: &&Slot| !slot.is_done() && slot.event.is_some();
        self.slots.range(from.min(self.slots.len())..).find(open)?.event.as_ref().map(|event| event.at)
    }

    /// Whether all events of its key that come before it are settled, or their turn comes before.
    pub(super) fn is_deliverable(&self, seq: u64) -> bool {
        let Some(event) = self.event(seq) else { return false };
        let is_passed = |seq: u64| seq <= self.settled || self.fate(seq) != Fate::Open;
        let is_behind = if event.barrier { event.after <= self.settled } else { is_passed(event.after) };
        is_behind && event.run(seq).all(is_passed)
    }

    pub(super) fn wait(&mut self, seq: u64) {
        if let Err(place) = self.waiting.binary_search(&seq) {
            self.waiting.insert(place, seq);
        }
    }

    /// Takes out all that wait no more, in their order, and makes it their turn. What one waits for comes before it, so one look is enough.
    pub(super) fn release(&mut self) -> Vec<u64> {
        let mut released = Vec::new();
        if self.waiting.is_empty() {
            return released;
        }
        let mut waiting = core::mem::take(&mut self.waiting);
        waiting.retain(|seq| {
            let is_open = self.fate(*seq) == Fate::Open;
            let is_released = is_open && self.is_deliverable(*seq);
            if is_released {
                self.set_fate(*seq, Fate::Queued);
                released.push(*seq);
            }
            is_open && !is_released
        });
        self.waiting = waiting;
        released
    }

    pub(super) fn set_fate(&mut self, seq: u64, fate: Fate) {
        let Some(slot) = self.slot_mut(seq) else { return };
        let was_droppable = slot.is_droppable();
        slot.fate = fate;
        let is_droppable = slot.is_droppable();
        self.droppable = self.droppable + usize::from(is_droppable) - usize::from(was_droppable);
        self.advance();
    }

    fn advance(&mut self) {
        while let Some(slot) = self.slot(self.settled + 1).filter(|slot| slot.is_done()) {
            self.floor = self.floor.max(slot.event.as_ref().map(|event| event.at));
            self.settled += 1;
        }
    }

    /// Drops an event, whether it is here or not.
    pub(super) fn drop(&mut self, seq: u64) {
        if let Ok(found) = self.missing.binary_search_by_key(&seq, |missing| missing.seq) {
            self.missing.remove(found);
        }
        self.set_fate(seq, Fate::Dropped);
    }

    /// Whether any event could be dropped.
    pub(super) fn has_droppable(&self) -> bool {
        self.droppable > 0
    }

    pub(super) fn is_obsolete(&self, seq: u64) -> bool {
        self.slot(seq).is_some_and(Slot::is_droppable)
    }

    /// The first that could be dropped from this number on.
    pub(super) fn droppable_from(&self, seq: u64) -> Option<u64> {
        if self.droppable == 0 {
            return None;
        }
        let from = seq.max(self.settled + 1) - self.base;
        let found = self.slots.range((from as usize).min(self.slots.len())..).position(Slot::is_droppable)?;
        Some(self.base + from + found as u64)
    }

    /// The first that is not done, obsolete or not.
    pub(super) fn first_open(&self) -> Option<u64> {
        (self.settled + 1 < self.end()).then_some(self.settled + 1)
    }

    pub(super) fn missing(&self) -> &[Missing] {
        &self.missing
    }

    pub(super) fn missing_mut(&mut self) -> &mut [Missing] {
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
    pub(super) fn forget(&mut self, stable: u64, (least, most): (usize, usize), given: Option<u64>) {
        while self.base <= self.settled {
            let kept = (self.settled + 1 - self.base) as usize;
            let is_wanted = given.is_some_and(|given| self.base > given) && kept <= most * WHILE_GIVEN;
            if kept <= least || (self.base > stable && kept <= most) || is_wanted {
                return;
            }
            let gone = self.slots.pop_front();
            self.bytes -= gone.and_then(|slot| slot.event).map_or(0, |event| event.memory());
            self.base += 1;
        }
    }

    /// Which events after the last that is settled are settled all the same, a bit for each.
    pub(super) fn done_bits(&self) -> Vec<u8> {
        let from = (self.settled + 1 - self.base) as usize;
        let slots: Vec<bool> = self.slots.range(from..).map(Slot::is_done).collect();
        let mut bits = alloc::vec![0u8; slots.iter().rposition(|done| *done).map_or(0, |last| last / 8 + 1)];
        for (at, _) in slots.iter().enumerate().filter(|(_, done)| **done) {
            bits[at / 8] |= 1 << (at % 8);
        }
        bits
    }

    /// What is settled, as somebody else says whose state we have taken over. What we had delivered beyond that is to be delivered again.
    pub(super) fn restart(&mut self, now: Instant, settled: u64, done: &[u8], floor: Option<GroupInstant>) {
        while self.base <= settled && !self.slots.is_empty() {
            let gone = self.slots.pop_front();
            self.bytes -= gone.and_then(|slot| slot.event).map_or(0, |event| event.memory());
            self.base += 1;
        }
        self.base = settled + 1;
        self.settled = settled;
        self.floor = floor;
        self.waiting.clear();
        self.missing.retain(|missing| missing.seq > settled);
        let is_done = |at: usize| done.get(at / 8).is_some_and(|byte| byte & 1 << (at % 8) != 0);
        self.expect(now, settled.saturating_add(last_bit(done)));
        for (at, slot) in self.slots.iter_mut().enumerate() {
            slot.fate = match slot.fate {
                _ if is_done(at) => Fate::Delivered,
                Fate::Dropped if slot.obsolete => Fate::Dropped,
                _ => Fate::Open,
            };
        }
        let slots = &self.slots;
        self.missing.retain(|missing| slots[(missing.seq - settled - 1) as usize].fate == Fate::Open);
        self.note_missing(now);
        self.droppable = self.slots.iter().filter(|slot| slot.is_droppable()).count();
        self.newest = self.newest.max(settled);
        self.advance();
    }

    /// What is open and not here is missing, whatever was thought of it before.
    fn note_missing(&mut self, now: Instant) {
        for (at, slot) in self.slots.iter().enumerate() {
            let seq = self.base + at as u64;
            if slot.event.is_none()
                && slot.fate == Fate::Open
                && let Err(place) = self.missing.binary_search_by_key(&seq, |missing| missing.seq)
            {
                self.missing.insert(place, Missing { seq, next: now, asked: None, times: 0 });
            }
        }
    }

    /// The numbers that are here and open.
    pub(super) fn open(&self) -> impl Iterator<Item = u64> + '_ {
        let is_open = |slot: &Slot| slot.fate == Fate::Open && slot.event.is_some();
        self.slots.iter().enumerate().filter(move |(_, slot)| is_open(slot)).map(|(at, _)| self.base + at as u64)
    }

    /// Bytes on the heap.
    pub(super) fn memory(&self) -> usize {
        self.bytes
            + self.slots.capacity() * size_of::<Slot>()
            + self.missing.capacity() * size_of::<Missing>()
            + self.waiting.capacity() * size_of::<u64>()
    }
}

/// The number of the last bit that is set, from 1 on. The bits that fill up the last byte stand for events that may never be issued.
fn last_bit(bits: &[u8]) -> u64 {
    let last = bits.iter().rposition(|byte| *byte != 0);
    last.map_or(0, |at| (at as u64 + 1) * 8 - u64::from(bits[at].leading_zeros()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_makes_nobody_expect_events_beyond_the_last_that_it_has() {
        let mut giver = Stream::new();
        giver.expect(Instant::ZERO, 7);
        [1, 2, 3, 4, 5, 7].into_iter().for_each(|seq| giver.set_fate(seq, Fate::Delivered));
        let mut taker = Stream::new();
        taker.restart(Instant::ZERO, giver.settled(), &giver.done_bits(), None);
        let missing: Vec<u64> = taker.missing().iter().map(|missing| missing.seq).collect();
        assert_eq!((giver.settled(), taker.settled(), missing), (5, 5, alloc::vec![6]));
        taker.drop(6);
        assert_eq!(
            taker.first_open(),
            None,
            "events that nobody issued would be given up, and the real ones with them"
        );
    }
}
