//! Packets between mirrored servers. A datagram is one byte that selects family and layout, then any number of items.

use core::fmt;

use crate::clock::ClockEcho;
use crate::codec::{BufferFull, ByteReader, ByteWriter, DecodeError};
use crate::time::{GroupInstant, Instant, TimeDelta};

/// Maximum size of an event's payload in bytes, so that the event fits in one datagram.
pub const MAX_PAYLOAD: usize = 900;
/// Maximum number of events that one event can make obsolete.
pub const MAX_OBSOLETE_SET: usize = 32;

/// Id of a source of events: one run of a mirrored server. A restarted server is a different source.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SourceId(pub u32);

impl fmt::Display for SourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

/// First byte of every datagram: 0x30 for the family of the item lists, plus the number of this layout.
const FAMILY: u8 = 0x35;
/// Largest piece of a snapshot in bytes.
pub(crate) const MAX_PIECE_LEN: usize = 1_000;

/// One item of a datagram between mirrors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MirrorItem<'a> {
    /// An event of the game, from its source or passed on by another mirror.
    Event(EncodedEvent<'a>),
    /// Statement of the sender: its events after `last_event` are not older than `at`.
    Heartbeat {
        /// Lower bound for the time of the sender's later events.
        at: GroupInstant,
        /// Sequence number of the sender's last event; 0 if there is none.
        last_event: u64,
    },
    /// The part of a source's stream that the sender holds.
    StreamStatus(StreamStatus),
    /// Request for consecutive events of a source.
    EventRequest {
        /// The source that issued the events.
        source: SourceId,
        /// Sequence number of the first requested event.
        first: u64,
        /// Number of consecutive events that are requested.
        count: u8,
    },
    /// The sender's estimate of group time, as its lead over the sender's clock; `None` if the sender does not know it.
    GroupTime(Option<TimeDelta>),
    /// Clock probe: its send time on the sender's clock. The receiver returns it in an echo.
    Probe(Instant),
    /// The answer to a probe.
    Echo(ClockEcho),
    /// Request for pieces of a snapshot of a source's objects.
    SnapshotRequest {
        /// The source that owns the objects.
        source: SourceId,
        /// Version that the sender is downloading; 0 before the first piece has arrived.
        version: u32,
        /// Number of the first requested piece.
        first_piece: u32,
        /// Number of consecutive pieces that are requested.
        count: u8,
    },
    /// A piece of a snapshot.
    SnapshotPiece {
        /// The source that owns the objects.
        source: SourceId,
        /// Version of the snapshot. A piece of another version restarts the download.
        version: u32,
        /// Size of the whole snapshot in bytes.
        total_len: u32,
        /// Number of the piece, from 0 on.
        piece: u32,
        /// Bytes of the piece, at most 1,000.
        bytes: &'a [u8],
    },
    /// The sender leaves and sends no more datagrams.
    Leave,
}

/// The part of a source's stream that a mirror holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StreamStatus {
    /// The source that issued the events.
    pub source: SourceId,
    /// Sequence number from which on the sender keeps the events that it has; earlier ones cannot be requested.
    pub oldest: u64,
    /// Sequence number up to which, inclusive, all events are settled: delivered or dropped.
    pub settled_end: u64,
    /// Sequence number of the newest event that the sender has issued, received or settled; 0 if there is none.
    pub newest: u64,
}

/// An event in its wire encoding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodedEvent<'a> {
    /// The source that issued the event.
    pub source: SourceId,
    /// Sequence number among all events of that source, counted from 1.
    pub seq: u64,
    /// Time at which the source issued the event.
    pub issued_at: GroupInstant,
    /// Object that the event is about; 0 if the order of the event among other events does not matter.
    pub key: u64,
    /// Sequence number of the last irreplaceable event of the key before this event; 0 if there is none. If
    /// `is_barrier`, only an upper bound of that number.
    pub after: u64,
    /// Whether all events up to `after` must precede this one, whatever their keys.
    pub is_barrier: bool,
    /// Whether the event makes all of `obsolete_set` obsolete.
    pub replaces: bool,
    /// The replaceable events of the key between `after` and this event.
    pub obsolete_set: ObsoleteSet<'a>,
    /// Contents of the event, in the game's encoding.
    pub payload: &'a [u8],
}

/// Sequence numbers of events before a given event, newest first, in their wire encoding.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ObsoleteSet<'a> {
    seq: u64,
    bytes: &'a [u8],
}

impl<'a> ObsoleteSet<'a> {
    /// Wraps the output of [`write`](Self::write) for the event `seq`.
    pub(crate) fn from_bytes(seq: u64, bytes: &'a [u8]) -> Self {
        Self { seq, bytes }
    }

    pub(crate) fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Encodes sequence numbers, newest first, each as its distance from the previous one, the first as its distance
    /// from `seq`.
    pub(crate) fn write(
        seq: u64,
        newest_first: impl Iterator<Item = u64>,
        writer: &mut ByteWriter<'_>,
    ) -> Result<(), BufferFull> {
        let mut before = seq;
        for member in newest_first {
            writer.varint64(before - member)?;
            before = member;
        }
        Ok(())
    }

    /// Reads `count` numbers and checks that they descend and lie above `after`.
    fn read(reader: &mut ByteReader<'a>, seq: u64, after: u64, count: usize) -> Result<Self, DecodeError> {
        let all = reader.rest();
        let mut before = seq;
        for _ in 0..count {
            let step = reader.varint64()?;
            before =
                before.checked_sub(step).filter(|member| step > 0 && *member > after).ok_or(DecodeError::Malformed)?;
        }
        let len = all.len() - reader.rest().len();
        Ok(Self { seq, bytes: &all[..len] })
    }
}

impl Iterator for ObsoleteSet<'_> {
    type Item = u64;

    #[inline]
    fn next(&mut self) -> Option<u64> {
        let mut reader = ByteReader::new(self.bytes);
        let step = reader.varint64().ok()?;
        self.bytes = reader.rest();
        self.seq = self.seq.checked_sub(step)?;
        Some(self.seq)
    }
}

const EVENT: u8 = 1;
const HEARTBEAT: u8 = 2;
const STREAM_STATUS: u8 = 3;
const EVENT_REQUEST: u8 = 4;
const GROUP_TIME: u8 = 5;
const NO_GROUP_TIME: u8 = 6;
const PROBE: u8 = 7;
const ECHO: u8 = 8;
const SNAPSHOT_REQUEST: u8 = 9;
const SNAPSHOT_PIECE: u8 = 10;
const LEAVE: u8 = 11;

const REPLACES: u8 = 1;
const BARRIER: u8 = 2;

/// Iterator over the items of a datagram, which ends after the first malformed item.
#[derive(Clone, Debug)]
pub struct MirrorItems<'a> {
    reader: ByteReader<'a>,
}

impl<'a> MirrorItems<'a> {
    /// Checks the first byte of a datagram and returns an iterator over its items. Fails with [`DecodeError::Version`]
    /// for another layout of the family.
    pub fn new(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = ByteReader::new(bytes);
        match reader.u8()? {
            FAMILY => Ok(Self { reader }),
            other if other & 0xf0 == FAMILY & 0xf0 => Err(DecodeError::Version(other & 0x0f)),
            _ => Err(DecodeError::Malformed),
        }
    }

    fn read(&mut self) -> Result<MirrorItem<'a>, DecodeError> {
        let reader = &mut self.reader;
        Ok(match reader.u8()? {
            EVENT => MirrorItem::Event(read_event(reader)?),
            HEARTBEAT => MirrorItem::Heartbeat { at: get_group_instant(reader)?, last_event: reader.varint64()? },
            STREAM_STATUS => MirrorItem::StreamStatus(read_stream_status(reader)?),
            EVENT_REQUEST => MirrorItem::EventRequest {
                source: get_source(reader)?,
                first: get_event_number(reader)?,
                count: reader.u8()?,
            },
            GROUP_TIME => MirrorItem::GroupTime(Some(TimeDelta::from_nanos(reader.u64()? as i64))),
            NO_GROUP_TIME => MirrorItem::GroupTime(None),
            PROBE => MirrorItem::Probe(reader.instant()?),
            ECHO => {
                let [sent, received, answered] = [reader.instant()?, reader.instant()?, reader.instant()?];
                MirrorItem::Echo(ClockEcho { sent, received, answered })
            }
            SNAPSHOT_REQUEST => {
                let (source, version) = (get_source(reader)?, reader.varint()?);
                MirrorItem::SnapshotRequest { source, version, first_piece: reader.varint()?, count: reader.u8()? }
            }
            SNAPSHOT_PIECE => {
                let (source, version) = (get_source(reader)?, reader.varint()?);
                let (total_len, piece) = (reader.varint()?, reader.varint()?);
                MirrorItem::SnapshotPiece { source, version, total_len, piece, bytes: reader.bytes(MAX_PIECE_LEN)? }
            }
            LEAVE => MirrorItem::Leave,
            _ => return Err(DecodeError::Malformed),
        })
    }
}

impl<'a> Iterator for MirrorItems<'a> {
    type Item = Result<MirrorItem<'a>, DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.reader.is_empty() {
            return None;
        }
        let item = self.read();
        if item.is_err() {
            self.reader = ByteReader::new(&[]);
        }
        Some(item)
    }
}

fn read_event<'a>(reader: &mut ByteReader<'a>) -> Result<EncodedEvent<'a>, DecodeError> {
    let (source, seq, issued_at) = (get_source(reader)?, get_event_number(reader)?, get_group_instant(reader)?);
    let (key, flags, back) = (reader.u64()?, reader.u8()?, reader.varint64()?);
    let count = usize::from(reader.u8()?);
    if flags & !(REPLACES | BARRIER) != 0 || count > MAX_OBSOLETE_SET || back > seq {
        return Err(DecodeError::Malformed);
    }
    // 0 stands for no previous event.
    let after = if back == 0 { 0 } else { seq - back };
    let obsolete_set = ObsoleteSet::read(reader, seq, after, count)?;
    let payload = reader.bytes(MAX_PAYLOAD)?;
    let (replaces, is_barrier) = (flags & REPLACES != 0, flags & BARRIER != 0);
    Ok(EncodedEvent { source, seq, issued_at, key, after, is_barrier, replaces, obsolete_set, payload })
}

fn read_stream_status(reader: &mut ByteReader<'_>) -> Result<StreamStatus, DecodeError> {
    let status = StreamStatus {
        source: get_source(reader)?,
        oldest: get_event_number(reader)?,
        settled_end: reader.varint64()?,
        newest: reader.varint64()?,
    };
    if status.oldest - 1 <= status.settled_end && status.settled_end < u64::MAX {
        Ok(status)
    } else {
        Err(DecodeError::Malformed)
    }
}

fn get_source(reader: &mut ByteReader<'_>) -> Result<SourceId, DecodeError> {
    reader.u32().map(SourceId)
}

/// Decodes an event number, which is never 0.
fn get_event_number(reader: &mut ByteReader<'_>) -> Result<u64, DecodeError> {
    reader.varint64().and_then(|number| if number == 0 { Err(DecodeError::Malformed) } else { Ok(number) })
}

fn get_group_instant(reader: &mut ByteReader<'_>) -> Result<GroupInstant, DecodeError> {
    reader.u64().map(|nanos| GroupInstant::from_nanos(nanos as i64))
}

/// Encoder of a datagram. An item that does not fit is left out as a whole.
#[derive(Debug)]
pub struct MirrorDatagramWriter<'a> {
    writer: ByteWriter<'a>,
}

impl<'a> MirrorDatagramWriter<'a> {
    /// Creates a datagram without items.
    pub fn new(buf: &'a mut [u8]) -> Result<Self, BufferFull> {
        let mut writer = ByteWriter::new(buf);
        writer.u8(FAMILY)?;
        Ok(Self { writer })
    }

    /// Returns the length so far in bytes.
    pub fn len(&self) -> usize {
        self.writer.len()
    }

    /// Returns whether the datagram has no items yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 1
    }

    /// Appends an item, or nothing if it does not fit.
    pub fn put(&mut self, item: &MirrorItem<'_>) -> Result<(), BufferFull> {
        let start = self.writer.len();
        self.write(item).inspect_err(|BufferFull| self.writer.truncate(start))
    }

    fn write(&mut self, item: &MirrorItem<'_>) -> Result<(), BufferFull> {
        let writer = &mut self.writer;
        match item {
            MirrorItem::Event(event) => write_event(writer, event),
            MirrorItem::Heartbeat { at, last_event } => {
                writer.u8(HEARTBEAT)?;
                writer.put(&at.as_nanos().to_le_bytes())?;
                writer.varint64(*last_event)
            }
            MirrorItem::StreamStatus(StreamStatus { source, oldest, settled_end, newest }) => {
                put_source(writer, STREAM_STATUS, *source)?;
                [oldest, settled_end, newest].into_iter().try_for_each(|number| writer.varint64(*number))
            }
            MirrorItem::EventRequest { source, first, count } => {
                put_source(writer, EVENT_REQUEST, *source)?;
                writer.varint64(*first)?;
                writer.u8(*count)
            }
            MirrorItem::GroupTime(Some(ahead)) => {
                writer.u8(GROUP_TIME)?;
                writer.put(&ahead.as_nanos().to_le_bytes())
            }
            MirrorItem::GroupTime(None) => writer.u8(NO_GROUP_TIME),
            MirrorItem::Probe(sent) => {
                writer.u8(PROBE)?;
                writer.put(&sent.as_nanos().to_le_bytes())
            }
            MirrorItem::Echo(ClockEcho { sent, received, answered }) => {
                writer.u8(ECHO)?;
                [sent, received, answered].iter().try_for_each(|stamp| writer.put(&stamp.as_nanos().to_le_bytes()))
            }
            MirrorItem::SnapshotRequest { source, version, first_piece, count } => {
                put_source(writer, SNAPSHOT_REQUEST, *source)?;
                writer.varint(*version)?;
                writer.varint(*first_piece)?;
                writer.u8(*count)
            }
            MirrorItem::SnapshotPiece { source, version, total_len, piece, bytes } => {
                put_source(writer, SNAPSHOT_PIECE, *source)?;
                [version, total_len, piece].into_iter().try_for_each(|number| writer.varint(*number))?;
                writer.varint(bytes.len() as u32)?;
                writer.put(bytes)
            }
            MirrorItem::Leave => writer.u8(LEAVE),
        }
    }
}

fn write_event(writer: &mut ByteWriter<'_>, event: &EncodedEvent<'_>) -> Result<(), BufferFull> {
    put_source(writer, EVENT, event.source)?;
    writer.varint64(event.seq)?;
    writer.put(&event.issued_at.as_nanos().to_le_bytes())?;
    writer.put(&event.key.to_le_bytes())?;
    writer.u8(if event.replaces { REPLACES } else { 0 } | if event.is_barrier { BARRIER } else { 0 })?;
    writer.varint64(if event.after == 0 { 0 } else { event.seq - event.after })?;
    writer.u8(event.obsolete_set.count() as u8)?;
    writer.put(event.obsolete_set.bytes())?;
    writer.varint(event.payload.len() as u32)?;
    writer.put(event.payload)
}

fn put_source(writer: &mut ByteWriter<'_>, kind: u8, source: SourceId) -> Result<(), BufferFull> {
    writer.u8(kind)?;
    writer.put(&source.0.to_le_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn all_kinds() -> Vec<MirrorItem<'static>> {
        let (at, group) = (Instant::from_nanos, GroupInstant::from_nanos);
        alloc::vec![
            MirrorItem::Event(EncodedEvent {
                source: SourceId(7),
                seq: 300,
                issued_at: group(-1),
                key: u64::MAX,
                after: 3,
                is_barrier: false,
                replaces: true,
                obsolete_set: ObsoleteSet::from_bytes(300, &[1, 0x80, 1]),
                payload: b"here",
            }),
            MirrorItem::Heartbeat { at: group(5), last_event: 0 },
            MirrorItem::StreamStatus(StreamStatus {
                source: SourceId(1),
                oldest: 2,
                settled_end: 400,
                newest: 1 << 40
            }),
            MirrorItem::EventRequest { source: SourceId(u32::MAX), first: 1, count: 255 },
            MirrorItem::GroupTime(Some(TimeDelta::from_nanos(-5))),
            MirrorItem::GroupTime(None),
            MirrorItem::Probe(at(-1)),
            MirrorItem::Echo(ClockEcho { sent: at(1), received: at(2), answered: at(i64::MAX) }),
            MirrorItem::SnapshotRequest { source: SourceId(2), version: 0, first_piece: 70_000, count: 8 },
            MirrorItem::SnapshotPiece { source: SourceId(2), version: 9, total_len: 5, piece: 0, bytes: b"state" },
            MirrorItem::Leave,
        ]
    }

    fn write_all(buf: &mut [u8]) -> usize {
        let mut datagram = MirrorDatagramWriter::new(buf).unwrap();
        assert!(datagram.is_empty());
        all_kinds().iter().for_each(|item| datagram.put(item).unwrap());
        datagram.len()
    }

    #[test]
    fn every_item_round_trips() {
        let mut buf = [0; 400];
        let len = write_all(&mut buf);
        let read: Result<Vec<_>, _> = MirrorItems::new(&buf[..len]).unwrap().collect();
        assert_eq!(read.unwrap(), all_kinds());
        let MirrorItem::Event(event) = &all_kinds()[0] else { panic!("the first is an event") };
        assert_eq!(event.obsolete_set.collect::<Vec<_>>(), [299, 171]);
    }

    #[test]
    fn item_that_does_not_fit_is_not_written() {
        let mut buf = [0; 12];
        let mut datagram = MirrorDatagramWriter::new(&mut buf).unwrap();
        datagram.put(&MirrorItem::GroupTime(None)).unwrap();
        let len = datagram.len();
        assert_eq!(datagram.put(&all_kinds()[0]), Err(BufferFull));
        assert_eq!(datagram.len(), len);
        assert_eq!(MirrorItems::new(&buf[..len]).unwrap().count(), 1);
    }

    #[test]
    fn truncated_or_invalid_items_are_errors() {
        let mut buf = [0; 400];
        let len = write_all(&mut buf);
        for cut in 1..len {
            let items: Vec<_> = MirrorItems::new(&buf[..cut]).unwrap().collect();
            assert!(items.iter().rev().skip(1).all(Result::is_ok), "only the last can be broken off");
        }
        assert_eq!(MirrorItems::new(&[0x31]).unwrap_err(), DecodeError::Version(1));
        assert_eq!(MirrorItems::new(&[0x91]).unwrap_err(), DecodeError::Malformed);
        assert_eq!(MirrorItems::new(&[]).unwrap_err(), DecodeError::Truncated);
        let no_number = [FAMILY, EVENT_REQUEST, 0, 0, 0, 0, 0, 1];
        assert_eq!(MirrorItems::new(&no_number).unwrap().next(), Some(Err(DecodeError::Malformed)));
    }

    #[test]
    fn obsolete_set_must_precede_its_event() {
        let event = |seq: u64, after: u64, run: &'static [u8]| {
            let mut buf = [0; 64];
            let mut datagram = MirrorDatagramWriter::new(&mut buf).unwrap();
            let MirrorItem::Event(good) = all_kinds().remove(0) else { panic!("the first is an event") };
            let run = ObsoleteSet::from_bytes(seq, run);
            datagram.put(&MirrorItem::Event(EncodedEvent { seq, after, obsolete_set: run, ..good })).unwrap();
            let len = datagram.len();
            MirrorItems::new(&buf[..len]).unwrap().next().unwrap().is_ok()
        };
        assert!(event(5, 0, &[1, 1, 1, 1]) && event(5, 2, &[1, 1]));
        assert!(!event(5, 2, &[1, 1, 1]), "the set lies after the last irreplaceable event");
        assert!(!event(5, 0, &[0]), "an event cannot replace itself");
    }
}
