//! What mirrors of a game tell each other. A datagram is a byte that names family and version, then any number of items.

use super::{Echo, Error, Full, Reader, Writer};
use crate::mirror::{MAX_PAYLOAD, MAX_RUN, Source};
use crate::time::{GroupInstant, Instant, TimeDelta};

/// The first byte of every datagram: the family, and the version of this layout in it.
const FAMILY: u8 = 0x35;
/// The most bytes of a piece of a snapshot.
pub(crate) const MAX_PIECE: usize = 1_000;

/// One thing that a mirror tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MirrorItem<'a> {
    /// Something that happened in the game.
    Event(Happening<'a>),
    /// The sender issues nothing older than this any more, and so far its last event is this one.
    Alive {
        /// The time.
        at: GroupInstant,
        /// The number of the last event; 0 if there is none.
        last: u64,
    },
    /// What the sender has of a source.
    Have(Have),
    /// The sender wants events of a source.
    Ask {
        /// Whose.
        of: Source,
        /// The first of them.
        first: u64,
        /// How many in a row.
        count: u8,
    },
    /// What the sender takes the group's time to be: by how much it is ahead of the sender's clock. Nothing if it does not know.
    Time(Option<TimeDelta>),
    /// When this was sent, on the sender's clock; to be echoed.
    Probe(Instant),
    /// The answer to a probe.
    Echo(Echo),
    /// The sender wants a part of a snapshot of a source's objects.
    Want {
        /// Whose objects.
        of: Source,
        /// Of which snapshot; 0 is any.
        version: u32,
        /// The first piece.
        piece: u32,
        /// How many in a row.
        count: u8,
    },
    /// A piece of a snapshot.
    Piece {
        /// Whose objects.
        of: Source,
        /// Of which snapshot.
        version: u32,
        /// Bytes of the whole.
        total: u32,
        /// Which piece.
        piece: u32,
        /// What it says.
        bytes: &'a [u8],
    },
    /// The sender leaves.
    Bye,
}

/// What a mirror has of a source.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Have {
    /// Whose events.
    pub of: Source,
    /// The oldest that can still be asked for; the next one if there is none.
    pub base: u64,
    /// All up to this one are settled.
    pub settled: u64,
    /// The newest that it can be asked for.
    pub newest: u64,
}

/// An event on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Happening<'a> {
    /// Who issued it.
    pub source: Source,
    /// The number among all of that source, from 1 on.
    pub seq: u64,
    /// When.
    pub at: GroupInstant,
    /// What it is about; 0 if its place among others does not matter.
    pub key: u64,
    /// The last event of the key before the run, which nothing makes obsolete; 0 if there is none.
    pub after: u64,
    /// All events up to `after` come before this one, whatever they are about.
    pub barrier: bool,
    /// Whether it makes all of the run obsolete.
    pub replaces: bool,
    /// The events of the key since `after`.
    pub run: Run<'a>,
    /// What it says, for the game.
    pub payload: &'a [u8],
}

/// Numbers of events before another one, newest first; as they are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Run<'a> {
    seq: u64,
    bytes: &'a [u8],
}

impl<'a> Run<'a> {
    /// What was written by [`write`](Self::write) for an event.
    pub(crate) fn written(seq: u64, bytes: &'a [u8]) -> Self {
        Self { seq, bytes }
    }

    /// The bytes as they are written.
    pub(crate) fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Writes the numbers, newest first, before the event of a number.
    pub(crate) fn write(
        seq: u64,
        newest_first: impl Iterator<Item = u64>,
        writer: &mut Writer<'_>,
    ) -> Result<(), Full> {
        let mut before = seq;
        for member in newest_first {
            writer.varint64(before - member)?;
            before = member;
        }
        Ok(())
    }

    /// Checks that there are so many numbers, all above `after`.
    fn read(reader: &mut Reader<'a>, seq: u64, after: u64, count: usize) -> Result<Self, Error> {
        let all = reader.rest();
        let mut before = seq;
        for _ in 0..count {
            let step = reader.varint64()?;
            before = before.checked_sub(step).filter(|member| step > 0 && *member > after).ok_or(Error::Malformed)?;
        }
        let len = all.len() - reader.rest().len();
        Ok(Self { seq, bytes: &all[..len] })
    }
}

impl Iterator for Run<'_> {
    type Item = u64;

    #[inline]
    fn next(&mut self) -> Option<u64> {
        let mut reader = Reader::new(self.bytes);
        let step = reader.varint64().ok()?;
        self.bytes = reader.rest();
        self.seq = self.seq.checked_sub(step)?;
        Some(self.seq)
    }
}

const EVENT: u8 = 1;
const ALIVE: u8 = 2;
const HAVE: u8 = 3;
const ASK: u8 = 4;
const TIME: u8 = 5;
const NO_TIME: u8 = 6;
const PROBE: u8 = 7;
const ECHO: u8 = 8;
const WANT: u8 = 9;
const PIECE: u8 = 10;
const BYE: u8 = 11;

const REPLACES: u8 = 1;
const BARRIER: u8 = 2;

/// The items of a datagram; it ends with the first that makes no sense.
#[derive(Clone, Debug)]
pub struct MirrorItems<'a> {
    reader: Reader<'a>,
}

impl<'a> MirrorItems<'a> {
    /// The items of this datagram.
    pub fn new(bytes: &'a [u8]) -> Result<Self, Error> {
        let mut reader = Reader::new(bytes);
        match reader.u8()? {
            FAMILY => Ok(Self { reader }),
            other if other & 0xf0 == FAMILY & 0xf0 => Err(Error::Version(other & 0x0f)),
            _ => Err(Error::Malformed),
        }
    }

    fn read(&mut self) -> Result<MirrorItem<'a>, Error> {
        let reader = &mut self.reader;
        Ok(match reader.u8()? {
            EVENT => MirrorItem::Event(read_event(reader)?),
            ALIVE => MirrorItem::Alive { at: group_instant(reader)?, last: reader.varint64()? },
            HAVE => MirrorItem::Have(read_have(reader)?),
            ASK => MirrorItem::Ask { of: source(reader)?, first: number(reader)?, count: reader.u8()? },
            TIME => MirrorItem::Time(Some(TimeDelta::from_nanos(reader.u64()? as i64))),
            NO_TIME => MirrorItem::Time(None),
            PROBE => MirrorItem::Probe(instant(reader)?),
            ECHO => {
                let [sent, received, answered] = [instant(reader)?, instant(reader)?, instant(reader)?];
                MirrorItem::Echo(Echo { sent, received, answered })
            }
            WANT => {
                let (of, version) = (source(reader)?, reader.varint()?);
                MirrorItem::Want { of, version, piece: reader.varint()?, count: reader.u8()? }
            }
            PIECE => {
                let (of, version) = (source(reader)?, reader.varint()?);
                let (total, piece) = (reader.varint()?, reader.varint()?);
                MirrorItem::Piece { of, version, total, piece, bytes: bounded(reader, MAX_PIECE)? }
            }
            BYE => MirrorItem::Bye,
            _ => return Err(Error::Malformed),
        })
    }
}

impl<'a> Iterator for MirrorItems<'a> {
    type Item = Result<MirrorItem<'a>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.reader.is_empty() {
            return None;
        }
        let item = self.read();
        if item.is_err() {
            self.reader = Reader::new(&[]);
        }
        Some(item)
    }
}

fn read_event<'a>(reader: &mut Reader<'a>) -> Result<Happening<'a>, Error> {
    let (source, seq, at) = (source(reader)?, number(reader)?, group_instant(reader)?);
    let (key, flags, back) = (reader.u64()?, reader.u8()?, reader.varint64()?);
    let count = usize::from(reader.u8()?);
    if flags & !(REPLACES | BARRIER) != 0 || count > MAX_RUN || back > seq {
        return Err(Error::Malformed);
    }
    // Nothing is before the first.
    let after = if back == 0 { 0 } else { seq - back };
    let run = Run::read(reader, seq, after, count)?;
    let payload = bounded(reader, MAX_PAYLOAD)?;
    let (replaces, barrier) = (flags & REPLACES != 0, flags & BARRIER != 0);
    Ok(Happening { source, seq, at, key, after, barrier, replaces, run, payload })
}

fn read_have(reader: &mut Reader<'_>) -> Result<Have, Error> {
    let have =
        Have { of: source(reader)?, base: number(reader)?, settled: reader.varint64()?, newest: reader.varint64()? };
    if have.base - 1 <= have.settled && have.settled < u64::MAX { Ok(have) } else { Err(Error::Malformed) }
}

fn source(reader: &mut Reader<'_>) -> Result<Source, Error> {
    reader.u32().map(Source)
}

/// The number of an event, which is never 0.
fn number(reader: &mut Reader<'_>) -> Result<u64, Error> {
    reader.varint64().and_then(|number| if number == 0 { Err(Error::Malformed) } else { Ok(number) })
}

fn instant(reader: &mut Reader<'_>) -> Result<Instant, Error> {
    reader.u64().map(|nanos| Instant::from_nanos(nanos as i64))
}

fn group_instant(reader: &mut Reader<'_>) -> Result<GroupInstant, Error> {
    reader.u64().map(|nanos| GroupInstant::from_nanos(nanos as i64))
}

fn bounded<'a>(reader: &mut Reader<'a>, most: usize) -> Result<&'a [u8], Error> {
    let len = reader.varint()? as usize;
    if len > most { Err(Error::Malformed) } else { reader.take(len) }
}

/// Writes a datagram item by item; one for which there is no room is not begun.
#[derive(Debug)]
pub struct MirrorDatagram<'a> {
    writer: Writer<'a>,
}

impl<'a> MirrorDatagram<'a> {
    /// A datagram without items.
    pub fn new(buf: &'a mut [u8]) -> Result<Self, Full> {
        let mut writer = Writer::new(buf);
        writer.u8(FAMILY)?;
        Ok(Self { writer })
    }

    /// How long it is by now.
    pub fn len(&self) -> usize {
        self.writer.len()
    }

    /// Whether nothing is told yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 1
    }

    /// One more item.
    pub fn put(&mut self, item: &MirrorItem<'_>) -> Result<(), Full> {
        let begun = self.writer.len();
        self.write(item).inspect_err(|Full| self.writer.cut(begun))
    }

    fn write(&mut self, item: &MirrorItem<'_>) -> Result<(), Full> {
        let writer = &mut self.writer;
        match item {
            MirrorItem::Event(event) => write_event(writer, event),
            MirrorItem::Alive { at, last } => {
                writer.u8(ALIVE)?;
                writer.put(&at.as_nanos().to_le_bytes())?;
                writer.varint64(*last)
            }
            MirrorItem::Have(Have { of, base, settled, newest }) => {
                put_source(writer, HAVE, *of)?;
                [base, settled, newest].into_iter().try_for_each(|number| writer.varint64(*number))
            }
            MirrorItem::Ask { of, first, count } => {
                put_source(writer, ASK, *of)?;
                writer.varint64(*first)?;
                writer.u8(*count)
            }
            MirrorItem::Time(Some(ahead)) => {
                writer.u8(TIME)?;
                writer.put(&ahead.as_nanos().to_le_bytes())
            }
            MirrorItem::Time(None) => writer.u8(NO_TIME),
            MirrorItem::Probe(sent) => {
                writer.u8(PROBE)?;
                writer.put(&sent.as_nanos().to_le_bytes())
            }
            MirrorItem::Echo(Echo { sent, received, answered }) => {
                writer.u8(ECHO)?;
                [sent, received, answered].iter().try_for_each(|stamp| writer.put(&stamp.as_nanos().to_le_bytes()))
            }
            MirrorItem::Want { of, version, piece, count } => {
                put_source(writer, WANT, *of)?;
                writer.varint(*version)?;
                writer.varint(*piece)?;
                writer.u8(*count)
            }
            MirrorItem::Piece { of, version, total, piece, bytes } => {
                put_source(writer, PIECE, *of)?;
                [version, total, piece].into_iter().try_for_each(|number| writer.varint(*number))?;
                writer.varint(bytes.len() as u32)?;
                writer.put(bytes)
            }
            MirrorItem::Bye => writer.u8(BYE),
        }
    }
}

fn write_event(writer: &mut Writer<'_>, event: &Happening<'_>) -> Result<(), Full> {
    put_source(writer, EVENT, event.source)?;
    writer.varint64(event.seq)?;
    writer.put(&event.at.as_nanos().to_le_bytes())?;
    writer.put(&event.key.to_le_bytes())?;
    writer.u8(if event.replaces { REPLACES } else { 0 } | if event.barrier { BARRIER } else { 0 })?;
    writer.varint64(if event.after == 0 { 0 } else { event.seq - event.after })?;
    writer.u8(event.run.count() as u8)?;
    writer.put(event.run.bytes())?;
    writer.varint(event.payload.len() as u32)?;
    writer.put(event.payload)
}

fn put_source(writer: &mut Writer<'_>, kind: u8, source: Source) -> Result<(), Full> {
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
            MirrorItem::Event(Happening {
                source: Source(7),
                seq: 300,
                at: group(-1),
                key: u64::MAX,
                after: 3,
                barrier: false,
                replaces: true,
                run: Run::written(300, &[1, 0x80, 1]),
                payload: b"here",
            }),
            MirrorItem::Alive { at: group(5), last: 0 },
            MirrorItem::Have(Have { of: Source(1), base: 2, settled: 400, newest: 1 << 40 }),
            MirrorItem::Ask { of: Source(u32::MAX), first: 1, count: 255 },
            MirrorItem::Time(Some(TimeDelta::from_nanos(-5))),
            MirrorItem::Time(None),
            MirrorItem::Probe(at(-1)),
            MirrorItem::Echo(Echo { sent: at(1), received: at(2), answered: at(i64::MAX) }),
            MirrorItem::Want { of: Source(2), version: 0, piece: 70_000, count: 8 },
            MirrorItem::Piece { of: Source(2), version: 9, total: 5, piece: 0, bytes: b"state" },
            MirrorItem::Bye,
        ]
    }

    fn write_all(buf: &mut [u8]) -> usize {
        let mut datagram = MirrorDatagram::new(buf).unwrap();
        assert!(datagram.is_empty());
        all_kinds().iter().for_each(|item| datagram.put(item).unwrap());
        datagram.len()
    }

    #[test]
    fn every_item_comes_back() {
        let mut buf = [0; 400];
        let len = write_all(&mut buf);
        let read: Result<Vec<_>, _> = MirrorItems::new(&buf[..len]).unwrap().collect();
        assert_eq!(read.unwrap(), all_kinds());
        let MirrorItem::Event(event) = &all_kinds()[0] else { panic!("the first is an event") };
        assert_eq!(event.run.collect::<Vec<_>>(), [299, 171]);
    }

    #[test]
    fn an_item_that_does_not_fit_leaves_no_trace() {
        let mut buf = [0; 12];
        let mut datagram = MirrorDatagram::new(&mut buf).unwrap();
        datagram.put(&MirrorItem::Time(None)).unwrap();
        let len = datagram.len();
        assert_eq!(datagram.put(&all_kinds()[0]), Err(Full));
        assert_eq!(datagram.len(), len);
        assert_eq!(MirrorItems::new(&buf[..len]).unwrap().count(), 1);
    }

    #[test]
    fn whatever_is_cut_off_or_made_up_is_an_error_and_no_more() {
        let mut buf = [0; 400];
        let len = write_all(&mut buf);
        for cut in 1..len {
            let items: Vec<_> = MirrorItems::new(&buf[..cut]).unwrap().collect();
            assert!(items.iter().rev().skip(1).all(Result::is_ok), "only the last can be broken off");
        }
        assert_eq!(MirrorItems::new(&[0x31]).unwrap_err(), Error::Version(1));
        assert_eq!(MirrorItems::new(&[0x91]).unwrap_err(), Error::Malformed);
        assert_eq!(MirrorItems::new(&[]).unwrap_err(), Error::Truncated);
        let no_number = [FAMILY, ASK, 0, 0, 0, 0, 0, 1];
        assert_eq!(MirrorItems::new(&no_number).unwrap().next(), Some(Err(Error::Malformed)));
    }

    #[test]
    fn a_run_that_is_not_before_its_event_is_refused() {
        let event = |seq: u64, after: u64, run: &'static [u8]| {
            let mut buf = [0; 64];
            let mut datagram = MirrorDatagram::new(&mut buf).unwrap();
            let MirrorItem::Event(good) = all_kinds().remove(0) else { panic!("the first is an event") };
            let run = Run::written(seq, run);
            datagram.put(&MirrorItem::Event(Happening { seq, after, run, ..good })).unwrap();
            let len = datagram.len();
            MirrorItems::new(&buf[..len]).unwrap().next().unwrap().is_ok()
        };
        assert!(event(5, 0, &[1, 1, 1, 1]) && event(5, 2, &[1, 1]));
        assert!(!event(5, 2, &[1, 1, 1]), "a run begins behind what is before it");
        assert!(!event(5, 0, &[0]), "nothing replaces itself");
    }
}
