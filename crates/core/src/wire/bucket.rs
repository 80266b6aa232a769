//! What sites of a world without a server tell each other. A datagram is a byte that names family and version, then any number of items.

use super::{Error, Full, Reader, Writer};
use crate::bucket::{MAX_RECORD, MAX_STATE, Region, Site};
use crate::time::{Instant, TimeDelta};

/// The first byte of every datagram: the family, and the version of this layout in it.
const FAMILY: u8 = 0x31;

/// One thing that is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Item<'a> {
    /// The state of one of the sender's entities.
    Update(Update<'a>),
    /// What the sender takes the world's time to be: by how much it is ahead of the sender's clock. Nothing if it does not know.
    Time(Option<TimeDelta>),
    /// All regions in which the sender has an entity are named in this datagram.
    Whole,
    /// A region in which the sender has an entity.
    Here(Region),
    /// When this was sent, on the sender's clock; to be echoed.
    Probe(Instant),
    /// The answer to a probe.
    Echo(Echo),
    /// How much of what a site sends gets to the sender, in 255ths: lost, and too late.
    Report {
        /// Whose updates.
        of: Site,
        /// That never came.
        lost: u8,
        /// That came after they were needed.
        late: u8,
    },
    /// Which version of a site's record the sender has.
    Digest {
        /// Whose record.
        of: Site,
        /// How often it was changed; 0 if the sender has none.
        version: u32,
    },
    /// The sender wants a site's record. The answer is the record, or a digest that says that there is none. A site asks for its own record
    /// after a start only.
    Ask {
        /// Whose.
        of: Site,
    },
    /// A site's record.
    Record {
        /// Whose.
        of: Site,
        /// How often it was changed.
        version: u32,
        /// What it says.
        bytes: &'a [u8],
    },
    /// The sender leaves.
    Bye,
}

/// The state of an entity at a tick.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Update<'a> {
    /// Which of the sender's entities.
    pub index: u8,
    /// Counts the updates of this entity, so that lost ones are seen.
    pub sequence: u16,
    /// The world's tick, shortened: the nearest is meant.
    pub tick: u16,
    /// The state as the game writes it.
    pub state: &'a [u8],
}

/// The stamps of a round trip.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Echo {
    /// As it was in the probe.
    pub sent: Instant,
    /// When the probe came, on the clock of who answers.
    pub received: Instant,
    /// When the answer left, on the same clock.
    pub answered: Instant,
}

const UPDATE: u8 = 1;
const TIME: u8 = 2;
const NO_TIME: u8 = 3;
const WHOLE: u8 = 12;
const HERE: u8 = 4;
const PROBE: u8 = 5;
const ECHO: u8 = 6;
const REPORT: u8 = 7;
const DIGEST: u8 = 8;
const ASK: u8 = 9;
const RECORD: u8 = 10;
const BYE: u8 = 11;

/// The items of a datagram; it ends with the first that makes no sense.
#[derive(Clone, Debug)]
pub struct Items<'a> {
    reader: Reader<'a>,
}

impl<'a> Items<'a> {
    /// The items of this datagram.
    pub fn new(bytes: &'a [u8]) -> Result<Self, Error> {
        let mut reader = Reader::new(bytes);
        match reader.u8()? {
            FAMILY => Ok(Self { reader }),
            other if other & 0xf0 == FAMILY & 0xf0 => Err(Error::Version(other & 0x0f)),
            _ => Err(Error::Malformed),
        }
    }

    fn read(&mut self) -> Result<Item<'a>, Error> {
        let reader = &mut self.reader;
        Ok(match reader.u8()? {
            UPDATE => {
                let (index, sequence, tick) = (reader.u8()?, reader.u16()?, reader.u16()?);
                Item::Update(Update { index, sequence, tick, state: bounded(reader, MAX_STATE)? })
            }
            TIME => Item::Time(Some(TimeDelta::from_nanos(reader.u64()? as i64))),
            NO_TIME => Item::Time(None),
            WHOLE => Item::Whole,
            HERE => Item::Here(Region { x: reader.u8()?, y: reader.u8()? }),
            PROBE => Item::Probe(instant(reader)?),
            ECHO => Item::Echo(Echo { sent: instant(reader)?, received: instant(reader)?, answered: instant(reader)? }),
            REPORT => Item::Report { of: site(reader)?, lost: reader.u8()?, late: reader.u8()? },
            DIGEST => Item::Digest { of: site(reader)?, version: reader.varint()? },
            ASK => Item::Ask { of: site(reader)? },
            RECORD => {
                let (of, version) = (site(reader)?, reader.varint()?);
                Item::Record { of, version, bytes: bounded(reader, MAX_RECORD)? }
            }
            BYE => Item::Bye,
            _ => return Err(Error::Malformed),
        })
    }
}

impl<'a> Iterator for Items<'a> {
    type Item = Result<Item<'a>, Error>;

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

fn site(reader: &mut Reader<'_>) -> Result<Site, Error> {
    reader.u32().map(Site)
}

fn instant(reader: &mut Reader<'_>) -> Result<Instant, Error> {
    reader.u64().map(|nanos| Instant::from_nanos(nanos as i64))
}

fn bounded<'a>(reader: &mut Reader<'a>, most: usize) -> Result<&'a [u8], Error> {
    let len = reader.varint()? as usize;
    if len > most { Err(Error::Malformed) } else { reader.take(len) }
}

/// Writes a datagram item by item; one for which there is no room is not begun.
#[derive(Debug)]
pub(crate) struct Datagram<'a> {
    writer: Writer<'a>,
}

impl<'a> Datagram<'a> {
    pub(crate) fn new(buf: &'a mut [u8]) -> Result<Self, Full> {
        let mut writer = Writer::new(buf);
        writer.u8(FAMILY)?;
        Ok(Self { writer })
    }

    /// How long it is by now.
    pub(crate) fn len(&self) -> usize {
        self.writer.len()
    }

    /// Whether nothing is told yet.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 1
    }

    pub(crate) fn put(&mut self, item: Item<'_>) -> Result<(), Full> {
        let begun = self.writer.len();
        self.write(item).inspect_err(|Full| self.writer.cut(begun))
    }

    fn write(&mut self, item: Item<'_>) -> Result<(), Full> {
        let writer = &mut self.writer;
        match item {
            Item::Update(update) => {
                writer.put(&[UPDATE, update.index])?;
                writer.put(&update.sequence.to_le_bytes())?;
                writer.put(&update.tick.to_le_bytes())?;
                writer.varint(update.state.len() as u32)?;
                writer.put(update.state)
            }
            Item::Time(Some(ahead)) => {
                writer.u8(TIME)?;
                writer.put(&ahead.as_nanos().to_le_bytes())
            }
            Item::Time(None) => writer.u8(NO_TIME),
            Item::Whole => writer.u8(WHOLE),
            Item::Here(Region { x, y }) => writer.put(&[HERE, x, y]),
            Item::Probe(sent) => {
                writer.u8(PROBE)?;
                writer.put(&sent.as_nanos().to_le_bytes())
            }
            Item::Echo(Echo { sent, received, answered }) => {
                writer.u8(ECHO)?;
                [sent, received, answered].iter().try_for_each(|stamp| writer.put(&stamp.as_nanos().to_le_bytes()))
            }
            Item::Report { of, lost, late } => {
                put_site(writer, REPORT, of)?;
                writer.put(&[lost, late])
            }
            Item::Digest { of, version } => {
                put_site(writer, DIGEST, of)?;
                writer.varint(version)
            }
            Item::Ask { of } => put_site(writer, ASK, of),
            Item::Record { of, version, bytes } => {
                put_site(writer, RECORD, of)?;
                writer.varint(version)?;
                writer.varint(bytes.len() as u32)?;
                writer.put(bytes)
            }
            Item::Bye => writer.u8(BYE),
        }
    }
}

fn put_site(writer: &mut Writer<'_>, kind: u8, site: Site) -> Result<(), Full> {
    writer.u8(kind)?;
    writer.put(&site.0.to_le_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn all_kinds() -> Vec<Item<'static>> {
        let at = Instant::from_nanos;
        alloc::vec![
            Item::Update(Update { index: 3, sequence: 65_535, tick: 258, state: b"here" }),
            Item::Time(Some(TimeDelta::from_nanos(-5))),
            Item::Time(None),
            Item::Whole,
            Item::Here(Region { x: 1, y: 255 }),
            Item::Probe(at(-1)),
            Item::Echo(Echo { sent: at(1), received: at(2), answered: at(i64::MAX) }),
            Item::Report { of: Site(9), lost: 255, late: 1 },
            Item::Digest { of: Site(u32::MAX), version: 1 << 20 },
            Item::Ask { of: Site(0) },
            Item::Record { of: Site(1), version: 0, bytes: b"score" },
            Item::Bye,
        ]
    }

    #[test]
    fn every_item_comes_back() {
        let mut buf = [0; 400];
        let mut datagram = Datagram::new(&mut buf).unwrap();
        assert!(datagram.is_empty());
        for item in all_kinds() {
            datagram.put(item).unwrap();
        }
        let len = datagram.len();
        let read: Result<Vec<_>, _> = Items::new(&buf[..len]).unwrap().collect();
        assert_eq!(read.unwrap(), all_kinds());
    }

    #[test]
    fn an_item_that_does_not_fit_leaves_no_trace() {
        let mut buf = [0; 12];
        let mut datagram = Datagram::new(&mut buf).unwrap();
        datagram.put(Item::Time(None)).unwrap();
        let len = datagram.len();
        assert_eq!(datagram.put(Item::Record { of: Site(1), version: 1, bytes: &[0; 9] }), Err(Full));
        assert_eq!(datagram.len(), len);
        assert_eq!(Items::new(&buf[..len]).unwrap().count(), 1);
    }

    #[test]
    fn whatever_is_cut_off_or_made_up_is_an_error_and_no_more() {
        let mut buf = [0; 400];
        let mut datagram = Datagram::new(&mut buf).unwrap();
        all_kinds().into_iter().for_each(|item| datagram.put(item).unwrap());
        let len = datagram.len();
        for cut in 1..len {
            let items: Vec<_> = Items::new(&buf[..cut]).unwrap().collect();
            assert!(items.iter().rev().skip(1).all(Result::is_ok), "only the last can be broken off");
        }
        assert_eq!(Items::new(&[0x3f]).unwrap_err(), Error::Version(15));
        assert_eq!(Items::new(&[0x91]).unwrap_err(), Error::Malformed);
        assert_eq!(Items::new(&[]).unwrap_err(), Error::Truncated);
        let too_long = [FAMILY, RECORD, 0, 0, 0, 0, 0, 0xff, 0x7f];
        assert_eq!(Items::new(&too_long).unwrap().next(), Some(Err(Error::Malformed)));
    }
}
