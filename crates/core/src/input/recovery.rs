//! Recovery of lost inputs. Only the classic policy, which exists for comparison, sends extra packets for recovery. The
//! other policies differ in the inputs that normal packets carry.
//!
//! - [`Recovery::Redundant`] (Zhao et al., Algorithm 2): every packet carries all unacknowledged inputs. A loss costs
//!   only the wait for the next packet; the size grows with the round-trip time and the rate of change.
//! - [`Recovery::History`] (Kim and Park, sections 3.5 and 3.6): a packet carries the inputs since the previous packet.
//!   The receiver requests missing inputs in its own normal packets, in each of them until they arrive. A loss costs
//!   one more round trip; packets stay small.
//! - [`Recovery::Adaptive`]: redundant while that takes no more than 128 bytes, which pads practically never exceed.
//!   Otherwise (analog sticks that never rest, on a long link) a packet carries the newest inputs that fit, and history
//!   fills the gaps that loss bursts leave.
//! - [`Recovery::Classic`]: a packet carries the new inputs. The receiver requests lost inputs in a separate packet,
//!   gets the answer in another, and repeats the request if no answer arrives. This is the baseline of Kim and Park.
//!
//! A receiver understands all policies at any time, so sites need not agree on one.

use super::Stream;
use super::missing_ranges::{MAX_MISSING_RANGES, MissingRanges};
use super::stream::HALF_CAPACITY;
use crate::clock::Clock;
use crate::codec::{BufferFull, ByteWriter};
use crate::frame::Frame;
use crate::time::{Instant, TimeDelta};

/// Policy for lost inputs: which inputs each packet repeats, and how the receiver requests missing ones. A receiver
/// understands all policies at any time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Recovery {
    /// All unacknowledged inputs in every packet, as far as they fit.
    Redundant,
    /// Only new inputs; the receiver requests lost ones.
    History,
    /// Redundant while that takes at most 128 bytes, otherwise the newest inputs that fit into them, with history for
    /// the rest.
    #[default]
    Adaptive,
    /// Only new inputs, with a separate packet for every request and every answer.
    Classic,
}

/// Largest size in bytes of unacknowledged inputs that the adaptive policy repeats in every packet. One change is
/// always repeated, even if it is larger.
const MAX_REDUNDANT_BYTES: usize = 128;
/// Largest size in bytes of the local inputs in one packet without extras; retransmissions do not count.
const MAX_INPUT_BYTES: usize = 700;
/// Largest size in bytes of the local inputs in one packet with extras; retransmissions do not count.
const MAX_INPUT_BYTES_WITH_EXTRAS: usize = 500;
/// Largest size in bytes of retransmitted inputs in one packet.
const MAX_RESEND_BYTES: usize = 250;
/// Largest size in bytes of one third site's inputs in one packet. One input is always sent, even if it is larger.
const MAX_RELAY_BYTES: usize = 160;

/// Returns the largest size in bytes of one change token for an input of `width` bytes.
fn max_change_len(width: usize) -> usize {
    if width <= 4 { 2 + width } else { 5 + width.div_ceil(8) + width }
}

/// Returns the number of changes that fit into `bytes` bytes, less one for the absolute start.
fn changes_fitting(bytes: usize, width: usize) -> usize {
    (bytes / max_change_len(width)).saturating_sub(1)
}

/// The inputs of the local stream that a packet to one peer carries: those of `first..end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SendPlan {
    pub(crate) first: Frame,
    pub(crate) end: Frame,
    /// Whether the first input is encoded as a whole, not as a change of the input before it.
    pub(crate) is_absolute: bool,
}

/// Send state for one peer: the local inputs that the peer has and those that it requested.
#[derive(Debug)]
pub(crate) struct InputSender {
    /// Largest number of changes that a packet repeats unrequested with the adaptive policy.
    max_redundant_changes: usize,
    /// Largest number of changes in a packet without extras.
    max_changes: usize,
    /// Largest number of changes in a packet with extras.
    max_changes_with_extras: usize,
    /// Whether the peer is a late joiner that has acknowledged nothing, and so does not know the local input before its
    /// first frame.
    needs_absolute: bool,
    /// End of the inputs that the peer has acknowledged: it has all inputs before this frame.
    acked: Frame,
    /// End of the inputs that were sent at least once.
    sent_end: Frame,
    /// Ranges that the peer requested last, as (first, until). Empty ranges are unused.
    requested: [(Frame, Frame); MAX_MISSING_RANGES],
    has_requests: bool,
    /// Number of packets of the peer that contained a request.
    request_count: u64,
    /// The newest retransmissions, as (first, until, sent), in a ring.
    recent_resends: [(Frame, Frame, Instant); MAX_MISSING_RANGES],
    resend_count: usize,
}

impl InputSender {
    pub(crate) fn new(start: Frame, width: usize) -> Self {
        let nothing = (Frame::ZERO, Frame::ZERO);
        Self {
            max_redundant_changes: changes_fitting(MAX_REDUNDANT_BYTES, width) + 1,
            max_changes: changes_fitting(MAX_INPUT_BYTES, width),
            max_changes_with_extras: changes_fitting(MAX_INPUT_BYTES_WITH_EXTRAS, width),
            needs_absolute: false,
            acked: start,
            sent_end: start,
            requested: [nothing; MAX_MISSING_RANGES],
            has_requests: false,
            request_count: 0,
            recent_resends: [(Frame::ZERO, Frame::ZERO, Instant::ZERO); MAX_MISSING_RANGES],
            resend_count: 0,
        }
    }

    /// Creates the send state for a peer that joins a running game and needs the local inputs from `start` on.
    pub(crate) fn for_late_joiner(start: Frame, width: usize) -> Self {
        Self { needs_absolute: true, ..Self::new(start, width) }
    }

    pub(crate) fn acked(&self) -> Frame {
        self.acked
    }

    /// Returns the number of requests received from the peer and of ranges retransmitted to it.
    pub(crate) fn request_and_resend_counts(&self) -> (u64, u64) {
        (self.request_count, self.resend_count as u64)
    }

    /// Records that the peer has all inputs before `ack`. Returns whether that is new. Earlier values, and values
    /// beyond the local inputs, are ignored.
    pub(crate) fn on_ack(&mut self, ack: Frame, own: &Stream) -> bool {
        let is_new = ack > self.acked && ack <= own.end();
        if is_new {
            self.acked = ack;
            self.needs_absolute = false;
        }
        is_new
    }

    /// Records that the peer does not have the inputs from `ack` on, whatever it has acknowledged before.
    pub(crate) fn retract_ack(&mut self, ack: Frame) {
        self.acked = self.acked.min(ack);
    }

    /// Records the ranges that the peer lacks, counted from its acknowledgement. They replace those of its previous
    /// request.
    pub(crate) fn on_request(&mut self, ack: Frame, ranges: &MissingRanges) {
        self.request_count += 1;
        let mut at = ack;
        self.has_requests = true;
        self.requested.fill((Frame::ZERO, Frame::ZERO));
        for (slot, (held, missing)) in self.requested.iter_mut().zip(ranges.iter()) {
            let first = at + held.min(HALF_CAPACITY);
            at = first + missing.min(HALF_CAPACITY);
            *slot = (first, at);
        }
    }

    /// Selects the inputs of the next packet. `has_extras` states whether the packet carries
    /// [extras](crate::session::message::Extra) besides inputs.
    #[inline]
    pub(crate) fn plan(&self, policy: Recovery, own: &Stream, has_extras: bool) -> SendPlan {
        let newest = own.end();
        if self.acked > newest {
            // The peer joins after the end of the local inputs and needs none of them yet.
            return SendPlan { first: newest, end: newest, is_absolute: false };
        }
        // A site that left, or one that misbehaves, may not have acknowledged anything within the capacity of the
        // stream.
        let oldest = self.acked.max(newest.checked_sub(HALF_CAPACITY - 1).unwrap_or_default());
        let changes = usize::from(own.count_changes(oldest, newest));
        let room = if has_extras { self.max_changes_with_extras } else { self.max_changes };
        if !matches!(policy, Recovery::History | Recovery::Classic) && changes <= self.max_redundant_changes.min(room) {
            return SendPlan { first: oldest, end: newest, is_absolute: oldest > self.acked || self.needs_absolute };
        }
        let first = match policy {
            Recovery::Redundant => oldest,
            Recovery::History | Recovery::Classic => {
                self.sent_end.max(oldest).min(newest.checked_sub(1).unwrap_or(newest)).max(oldest)
            }
            Recovery::Adaptive => earliest_start_within(own, oldest, newest, self.max_redundant_changes),
        };
        let absolute = first > self.acked || self.needs_absolute;
        SendPlan { first, end: latest_end_fitting(own, first, newest, room), is_absolute: absolute }
    }

    /// Returns whether some inputs were not sent to the peer yet.
    pub(crate) fn has_unsent(&self, own: &Stream) -> bool {
        self.sent_end < own.end()
    }

    /// Returns whether a requested range should be retransmitted now, in the packet whose inputs end before `end`.
    #[inline]
    pub(crate) fn has_resends(&self, now: Instant, clock: &Clock, own: &Stream, end: Frame) -> bool {
        let rtt = || resend_rtt(clock);
        self.has_requests && self.requested.iter().any(|range| self.resendable(now, rtt(), own, end, *range).is_some())
    }

    /// Returns the rest of a range, up to the end of the packet, from its first frame that is neither acknowledged nor
    /// in flight twice already. `None` if no frame remains, or if the first of them is no longer kept.
    fn resendable(
        &self,
        now: Instant,
        rtt: TimeDelta,
        own: &Stream,
        end: Frame,
        range: (Frame, Frame),
    ) -> Option<(Frame, Frame)> {
        let (first, until) = range;
        let mut first = first.max(self.acked);
        while let Some(next) = self.in_flight_end(now, rtt, first) {
            first = next;
        }
        let until = until.min(end);
        (first < until && own.end() - first < i64::from(HALF_CAPACITY)).then_some((first, until))
    }

    /// Returns the end of the frames from `frame` on that two retransmissions in flight contain; `None` if fewer than
    /// two contain `frame`. A single retransmission may be lost, which would cost a round trip.
    fn in_flight_end(&self, now: Instant, rtt: TimeDelta, frame: Frame) -> Option<Frame> {
        let recent = self.recent_resends.iter().filter(|(_, _, sent)| now - *sent < rtt);
        let mut ends = recent.filter(|(first, until, _)| *first <= frame && frame < *until).map(|(_, until, _)| *until);
        let (one, other) = (ends.next()?, ends.next()?);
        Some(one.min(other))
    }

    /// Encodes requested inputs as far as they fit, with their size in front, and discards the other requests, which
    /// the peer will repeat.
    pub(crate) fn encode_resends(
        &mut self,
        now: Instant,
        clock: &Clock,
        own: &Stream,
        end: Frame,
        writer: &mut ByteWriter<'_>,
    ) -> Result<(), BufferFull> {
        let rtt = resend_rtt(clock);
        let mut room = MAX_RESEND_BYTES;
        let size_at = writer.len();
        writer.put(&[0; 2])?;
        for range in self.requested {
            let Some((first, until)) = self.resendable(now, rtt, own, end, range) else { continue };
            // The first frame is encoded as a whole, only the others as changes.
            let Some(changes) = (room.saturating_sub(16) / max_change_len(own.width())).checked_sub(1) else { break };
            let until = latest_end_fitting(own, first.next(), until, changes);
            let start = writer.len();
            writer.varint((end - first) as u32)?;
            writer.varint((until - first) as u32)?;
            write_with_length(writer, |writer| own.encode(writer, first, until, true))?;
            room = room.saturating_sub(writer.len() - start);
            self.recent_resends[self.resend_count % MAX_MISSING_RANGES] = (first, until, now);
            self.resend_count = self.resend_count.wrapping_add(1);
        }
        let size = (writer.len() - size_at - 2) as u16;
        writer.written_since(size_at)[..2].copy_from_slice(&size.to_le_bytes());
        self.has_requests = false;
        Ok(())
    }

    /// Records that a packet with the inputs of this plan was sent.
    pub(crate) fn on_sent(&mut self, plan: &SendPlan) {
        self.sent_end = self.sent_end.max(plan.end);
    }
}

/// Returns the time for which a retransmission counts as in flight: the round-trip time, unless a suspended host
/// program made it implausibly long.
fn resend_rtt(clock: &Clock) -> TimeDelta {
    clock.rtt().unwrap_or_default().min(clock.max_plausible_rtt())
}

/// Returns the end of the inputs of another site, from `first` on, that fit into one packet; `None` if the input of
/// `first` is missing or no longer kept.
pub(crate) fn relayable_end(stream: &Stream, first: Frame) -> Option<Frame> {
    let kept = first >= stream.start() && first < stream.end() && stream.end() - first < i64::from(HALF_CAPACITY);
    let changes = (MAX_RELAY_BYTES / max_change_len(stream.width())).saturating_sub(1);
    kept.then(|| latest_end_fitting(stream, first.next(), stream.end(), changes))
}

/// Encodes a block with its length in bytes in front, as 16 bits.
pub(crate) fn write_with_length(
    writer: &mut ByteWriter<'_>,
    write: impl FnOnce(&mut ByteWriter<'_>) -> Result<(), BufferFull>,
) -> Result<(), BufferFull> {
    let size_at = writer.len();
    writer.put(&[0; 2])?;
    write(writer)?;
    let size = (writer.len() - size_at - 2) as u16;
    writer.written_since(size_at)[..2].copy_from_slice(&size.to_le_bytes());
    Ok(())
}

/// Returns the earliest frame, not before `oldest`, from which there are at most `changes` changes up to `newest`.
fn earliest_start_within(own: &Stream, oldest: Frame, newest: Frame, changes: usize) -> Frame {
    if usize::from(own.count_changes(oldest, newest)) <= changes {
        return oldest;
    }
    let mut left = changes;
    let mut first = newest;
    while first > oldest {
        let Some(before) = first.checked_sub(1) else { break };
        if own.is_changed_at(before) {
            if left == 0 && first < newest {
                break;
            }
            left = left.saturating_sub(1);
        }
        first = before;
    }
    first
}

/// Returns the latest frame, not after `newest`, up to which there are at most `changes` changes from `first` on.
fn latest_end_fitting(own: &Stream, first: Frame, newest: Frame, changes: usize) -> Frame {
    if usize::from(own.count_changes(first, newest)) <= changes {
        return newest;
    }
    let mut left = changes;
    let mut until = first;
    while until < newest {
        if own.is_changed_at(until) {
            if left == 0 {
                break;
            }
            left -= 1;
        }
        until = until.next();
    }
    until
}

/// Returns the missing ranges of a stream, counted from its gapless end: at most the first
/// [`MAX_MISSING_RANGES`](MAX_MISSING_RANGES).
pub(crate) fn missing_ranges(stream: &Stream) -> MissingRanges {
    let mut ranges = MissingRanges::default();
    let mut frame = stream.end();
    while frame < stream.received_end() {
        let held = skip_run(stream, &mut frame, true);
        let lost = skip_run(stream, &mut frame, false);
        if lost == 0 || !ranges.push(held, lost) {
            break;
        }
    }
    ranges
}

/// Counts the frames from `frame` on that are present (or missing, if not `is_present`), and moves `frame` past them.
fn skip_run(stream: &Stream, frame: &mut Frame, is_present: bool) -> u32 {
    let first = *frame;
    while *frame < stream.received_end() && stream.contains(*frame) == is_present {
        *frame = frame.next();
    }
    (*frame - first) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::RoundTrip;

    fn changing_stream(width: usize, frames: u32) -> Stream {
        let mut stream = Stream::new(width, Frame::ZERO);
        for frame in 0..frames {
            stream.push(&[(frame as u8).wrapping_add(1); crate::input::delta_codec::MAX_WIDTH][..width]);
        }
        stream
    }

    #[test]
    fn recovery_policies_differ_in_redundancy() {
        let own = changing_stream(2, 30);
        let mut sender = InputSender::new(Frame::ZERO, 2);
        sender.on_ack(Frame::new(10), &own);
        sender.on_sent(&SendPlan { first: Frame::ZERO, end: Frame::new(29), is_absolute: false });
        let first = |policy| sender.plan(policy, &own, false).first.number();
        assert_eq!(first(Recovery::Redundant), 10);
        assert_eq!(first(Recovery::History), 29);
        assert_eq!(first(Recovery::Adaptive), 10);
        assert!(sender.plan(Recovery::History, &own, false).is_absolute);
    }

    #[test]
    fn adaptive_recovery_respects_budget_and_redundant_fits_a_packet() {
        let own = changing_stream(128, 200);
        let sender = InputSender::new(Frame::ZERO, 128);
        let adaptive = sender.plan(Recovery::Adaptive, &own, false);
        assert_eq!((adaptive.first, adaptive.end, adaptive.is_absolute), (Frame::new(199), Frame::new(200), true));
        let redundant = sender.plan(Recovery::Redundant, &own, false);
        assert_eq!(redundant.first, Frame::ZERO);
        assert!(redundant.end > Frame::ZERO && redundant.end < Frame::new(6));
    }

    #[test]
    fn late_joiner_gets_no_inputs_before_its_join_frame() {
        for (frames, sent) in [(30, 0), (99, 0), (100, 0), (101, 1), (130, 30)] {
            let own = changing_stream(2, frames);
            for policy in [Recovery::Redundant, Recovery::History, Recovery::Adaptive] {
                let plan = InputSender::for_late_joiner(Frame::new(100), 2).plan(policy, &own, false);
                let len = plan.end - plan.first;
                assert!(plan.end == own.end() && len >= i64::from(sent > 0) && len <= sent, "{policy:?}: {plan:?}");
                assert!(len == 0 || plan.first >= Frame::new(100) && plan.is_absolute, "{policy:?}: {plan:?}");
                let mut buf = [0; 1_200];
                let mut writer = ByteWriter::new(&mut buf);
                own.encode(&mut writer, plan.first, plan.end, plan.is_absolute).unwrap();
                assert_eq!(writer.len() > 0, len > 0);
            }
        }
    }

    #[test]
    fn forgotten_inputs_are_not_sent() {
        let own = changing_stream(2, 2_000);
        let sender = InputSender::new(Frame::ZERO, 2);
        for policy in [Recovery::Redundant, Recovery::History, Recovery::Adaptive] {
            let plan = sender.plan(policy, &own, false);
            assert!(
                plan.is_absolute && plan.end > plan.first && own.value(plan.first).is_some(),
                "{policy:?}: {plan:?}"
            );
            let mut buf = [0; 1_200];
            own.encode(&mut ByteWriter::new(&mut buf), plan.first, plan.end, plan.is_absolute).unwrap();
        }
    }

    #[test]
    fn widest_inputs_are_resent() {
        let own = changing_stream(128, 40);
        let mut sender = InputSender::new(Frame::ZERO, 128);
        let mut ranges = MissingRanges::default();
        ranges.push(0, 40);
        sender.on_request(Frame::ZERO, &ranges);
        let mut buf = [0; 1_200];
        let mut writer = ByteWriter::new(&mut buf);
        sender.encode_resends(Instant::ZERO, &Clock::default(), &own, own.end(), &mut writer).unwrap();
        assert!((130..=2 + MAX_RESEND_BYTES).contains(&writer.len()), "{} bytes", writer.len());
    }

    #[test]
    fn requests_name_gaps_and_resends_in_flight_are_not_repeated() {
        let own = changing_stream(2, 40);
        let mut receiver = Stream::new(2, Frame::ZERO);
        for (first, until) in [(0, 3), (5, 6), (10, 12)] {
            let mut buf = [0; 100];
            let mut writer = ByteWriter::new(&mut buf);
            own.encode(&mut writer, Frame::new(first), Frame::new(until), true).unwrap();
            let len = writer.len();
            receiver.receive(Frame::new(first), until - first, true, &buf[..len]).unwrap();
        }
        let ranges = missing_ranges(&receiver);
        assert!(ranges.iter().eq([(0, 2), (1, 4)]));
        let mut sender = InputSender::new(Frame::ZERO, 2);
        sender.on_request(receiver.end(), &ranges);
        assert_eq!(sender.requested[..2], [(Frame::new(3), Frame::new(5)), (Frame::new(6), Frame::new(10))]);
        let (now, rtt) = (Instant::from_nanos(1 << 40), TimeDelta::from_millis(50));
        let mut clock = Clock::default();
        clock.on_round_trip(RoundTrip { sent: now - rtt, received: now, answered: now, returned: now });
        assert!(sender.has_resends(now, &clock, &own, own.end()));
        let mut buf = [0; 1_200];
        sender.encode_resends(now, &clock, &own, own.end(), &mut ByteWriter::new(&mut buf)).unwrap();
        sender.on_request(receiver.end(), &ranges);
        assert!(sender.has_resends(now, &clock, &own, own.end()), "a single retransmission may be lost");
        sender.encode_resends(now, &clock, &own, own.end(), &mut ByteWriter::new(&mut buf)).unwrap();
        sender.on_request(receiver.end(), &ranges);
        assert!(!sender.has_resends(now, &clock, &own, own.end()), "two retransmissions are in flight");
        assert!(sender.has_resends(now + rtt, &clock, &own, own.end()), "both may have been lost");
    }
}
