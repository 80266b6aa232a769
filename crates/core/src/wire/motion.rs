//! What the server of a game and its clients tell each other of motion.
//!
//! A datagram is a byte that names family and version, the runs of the sender and of who it is for, the sender's clock when it left, then any number of items. So every
//! datagram is a probe of clocks; the answer is an [`Item::Echo`] in whatever goes back.

use super::{Error, Full, Reader, Writer};
use crate::motion::{MAX_STATE, MAX_VECTOR, Number, ObjectId};
use crate::time::{Instant, TimeDelta};

/// The first byte of every datagram.
const FAMILY: u8 = 0x34;
/// Bytes before the first item.
const HEAD: usize = 17;

/// What every datagram begins with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Head {
    /// Which run of its program the sender is in: a later one has a greater number.
    pub run: u32,
    /// Which run it is for, as far as the sender knows; nothing if it does not.
    pub to: u32,
    /// When the datagram left, on the sender's clock.
    pub sent: Instant,
}

/// One thing that is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Item<'a> {
    /// Where an object was when a command took effect. Who knows the commands before needs no telling.
    Start {
        /// Which object.
        object: ObjectId,
        /// The command that took effect there.
        number: Number,
        /// As the game writes it.
        state: &'a [u8],
    },
    /// A command: an object moves on differently.
    Command {
        /// Which object.
        object: ObjectId,
        /// Which of its commands.
        number: Number,
        /// How long, in motion time, the leg before it lasted.
        leg: TimeDelta,
        /// As the game writes it.
        vector: &'a [u8],
    },
    /// How far the sender is on the leg of an object's newest command, when the datagram leaves.
    Timer {
        /// Which object.
        object: ObjectId,
        /// The newest command that the sender knows.
        number: Number,
        /// The sender's motion timer.
        timer: TimeDelta,
        /// What the sender will make up for by being quicker for a while.
        owed: TimeDelta,
        /// How long ago the sender learned of the command, or was given it.
        since: TimeDelta,
        /// Its motion timer then.
        from: TimeDelta,
    },
    /// The sender knows an object's commands up to here.
    Heard {
        /// Which object.
        object: ObjectId,
        /// The newest.
        number: Number,
        /// When the datagram left that brought it, as it said.
        sent: Instant,
    },
    /// The sender wants to be told of an object.
    Watch(ObjectId),
    /// The sender does not want to be told of an object.
    Ignore(ObjectId),
    /// There is no such object any more.
    Gone {
        /// Which object.
        object: ObjectId,
        /// Those of this epoch or later are others that are called the same.
        epoch: u32,
    },
    /// Something that came here: when it left there, and when it came.
    Echo {
        /// As it said.
        sent: Instant,
        /// On the clock of who echoes.
        received: Instant,
    },
    /// An echo is wanted at once.
    Probe,
    /// The sender leaves.
    Bye,
}

const START: u8 = 1;
const COMMAND: u8 = 2;
const TIMER: u8 = 3;
const HEARD: u8 = 4;
const WATCH: u8 = 5;
const IGNORE: u8 = 6;
const GONE: u8 = 7;
const ECHO: u8 = 8;
const PROBE: u8 = 9;
const BYE: u8 = 10;

/// The items of a datagram; it ends with the first that makes no sense.
#[derive(Clone, Debug)]
pub struct Items<'a> {
    head: Head,
    reader: Reader<'a>,
}

impl<'a> Items<'a> {
    /// The items of this datagram.
    pub fn new(bytes: &'a [u8]) -> Result<Self, Error> {
        let mut reader = Reader::new(bytes);
        match reader.u8()? {
            FAMILY => {
                Ok(Self { head: Head { run: reader.u32()?, to: reader.u32()?, sent: instant(&mut reader)? }, reader })
            }
            _ => Err(Error::Malformed),
        }
    }

    /// What the datagram begins with.
    pub fn head(&self) -> Head {
        self.head
    }

    fn read(&mut self) -> Result<Item<'a>, Error> {
        let reader = &mut self.reader;
        Ok(match reader.u8()? {
            START => {
                let (object, number) = (object(reader)?, number(reader)?);
                Item::Start { object, number, state: bounded(reader, MAX_STATE)? }
            }
            COMMAND => {
                let (object, number, leg) = (object(reader)?, number(reader)?, span(reader)?);
                Item::Command { object, number, leg, vector: bounded(reader, MAX_VECTOR)? }
            }
            TIMER => Item::Timer {
                object: object(reader)?,
                number: number(reader)?,
                timer: span(reader)?,
                owed: span(reader)?,
                since: span(reader)?,
                from: span(reader)?,
            },
            HEARD => Item::Heard { object: object(reader)?, number: number(reader)?, sent: instant(reader)? },
            WATCH => Item::Watch(object(reader)?),
            IGNORE => Item::Ignore(object(reader)?),
            GONE => Item::Gone { object: object(reader)?, epoch: reader.varint()? },
            ECHO => Item::Echo { sent: instant(reader)?, received: instant(reader)? },
            PROBE => Item::Probe,
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

fn object(reader: &mut Reader<'_>) -> Result<ObjectId, Error> {
    reader.varint().map(ObjectId)
}

fn number(reader: &mut Reader<'_>) -> Result<Number, Error> {
    Ok(Number { epoch: reader.varint()?, count: reader.varint()? })
}

fn instant(reader: &mut Reader<'_>) -> Result<Instant, Error> {
    reader.u64().map(|nanos| Instant::from_nanos(nanos as i64))
}

/// A length of time that is not negative.
fn span(reader: &mut Reader<'_>) -> Result<TimeDelta, Error> {
    let nanos = i64::try_from(reader.varint128()?).map_err(|_| Error::Malformed)?;
    Ok(TimeDelta::from_nanos(nanos))
}

fn bounded<'a>(reader: &mut Reader<'a>, most: usize) -> Result<&'a [u8], Error> {
    let len = reader.varint()? as usize;
    if len > most { Err(Error::Malformed) } else { reader.take(len) }
}

/// Writes a datagram item by item; one for which there is no room is not begun.
#[derive(Debug)]
pub struct Datagram<'a> {
    writer: Writer<'a>,
}

impl<'a> Datagram<'a> {
    /// With nothing in it.
    pub fn new(buf: &'a mut [u8], head: Head) -> Result<Self, Full> {
        let mut writer = Writer::new(buf);
        writer.u8(FAMILY)?;
        writer.put(&head.run.to_le_bytes())?;
        writer.put(&head.to.to_le_bytes())?;
        writer.put(&head.sent.as_nanos().to_le_bytes())?;
        Ok(Self { writer })
    }

    /// How long it is by now.
    pub fn len(&self) -> usize {
        self.writer.len()
    }

    /// Whether nothing is told yet.
    pub fn is_empty(&self) -> bool {
        self.len() == HEAD
    }

    /// Takes back what was written from `len` on.
    pub(crate) fn cut(&mut self, len: usize) {
        self.writer.cut(len.max(HEAD));
    }

    /// One more item.
    pub fn put(&mut self, item: Item<'_>) -> Result<(), Full> {
        let begun = self.writer.len();
        self.write(item).inspect_err(|Full| self.writer.cut(begun))
    }

    fn write(&mut self, item: Item<'_>) -> Result<(), Full> {
        match item {
            Item::Start { object, number, state } => {
                self.begin(START, object)?;
                self.number(number)?;
                self.text(state)
            }
            Item::Command { object, number, leg, vector } => {
                self.begin(COMMAND, object)?;
                self.number(number)?;
                self.span(leg)?;
                self.text(vector)
            }
            Item::Timer { object, number, timer, owed, since, from } => {
                self.begin(TIMER, object)?;
                self.number(number)?;
                [timer, owed, since, from].into_iter().try_for_each(|time| self.span(time))
            }
            Item::Heard { object, number, sent } => {
                self.begin(HEARD, object)?;
                self.number(number)?;
                self.instant(sent)
            }
            Item::Watch(object) => self.begin(WATCH, object),
            Item::Ignore(object) => self.begin(IGNORE, object),
            Item::Gone { object, epoch } => {
                self.begin(GONE, object)?;
                self.writer.varint(epoch)
            }
            Item::Echo { sent, received } => {
                self.writer.u8(ECHO)?;
                self.instant(sent)?;
                self.instant(received)
            }
            Item::Probe => self.writer.u8(PROBE),
            Item::Bye => self.writer.u8(BYE),
        }
    }

    fn begin(&mut self, kind: u8, object: ObjectId) -> Result<(), Full> {
        self.writer.u8(kind)?;
        self.writer.varint(object.0)
    }

    fn number(&mut self, number: Number) -> Result<(), Full> {
        self.writer.varint(number.epoch)?;
        self.writer.varint(number.count)
    }

    fn instant(&mut self, at: Instant) -> Result<(), Full> {
        self.writer.put(&at.as_nanos().to_le_bytes())
    }

    fn span(&mut self, time: TimeDelta) -> Result<(), Full> {
        self.writer.varint128(time.as_nanos().max(0) as u128)
    }

    fn text(&mut self, bytes: &[u8]) -> Result<(), Full> {
        self.writer.varint(bytes.len() as u32)?;
        self.writer.put(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    const HEAD_OF_TESTS: Head = Head { run: 0x0403_0201, to: 5, sent: Instant::from_nanos(-2) };

    fn all_kinds() -> Vec<Item<'static>> {
        let (at, time) = (Instant::from_nanos, TimeDelta::from_nanos);
        let object = ObjectId(300);
        let number = |count| Number { epoch: 130, count };
        alloc::vec![
            Item::Start { object, number: number(1), state: b"here" },
            Item::Command { object, number: number(2), leg: time(129), vector: b"up" },
            Item::Timer { object, number: number(2), timer: time(5), owed: time(0), since: time(128), from: time(2) },
            Item::Heard { object, number: number(2), sent: at(1) },
            Item::Watch(object),
            Item::Ignore(ObjectId(0)),
            Item::Gone { object, epoch: 131 },
            Item::Echo { sent: at(1), received: at(-1) },
            Item::Probe,
            Item::Bye,
        ]
    }

    fn written() -> Vec<u8> {
        let mut buf = [0; 400];
        let mut datagram = Datagram::new(&mut buf, HEAD_OF_TESTS).unwrap();
        assert!(datagram.is_empty());
        all_kinds().into_iter().for_each(|item| datagram.put(item).unwrap());
        let len = datagram.len();
        buf[..len].to_vec()
    }

    #[test]
    fn every_item_comes_back() {
        let bytes = written();
        let items = Items::new(&bytes).unwrap();
        assert_eq!(items.head(), HEAD_OF_TESTS);
        assert_eq!(items.collect::<Result<Vec<_>, _>>().unwrap(), all_kinds());
    }

    /// The layout: whoever changes it names another version in the first byte.
    #[test]
    fn the_bytes_are_these() {
        let golden: &[u8] = &[
            0x34, 1, 2, 3, 4, 5, 0, 0, 0, 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, // head
            1, 0xac, 2, 0x82, 1, 1, 4, b'h', b'e', b'r', b'e', // start
            2, 0xac, 2, 0x82, 1, 2, 0x81, 1, 2, b'u', b'p', // command
            3, 0xac, 2, 0x82, 1, 2, 5, 0, 0x80, 1, 2, // timer
            4, 0xac, 2, 0x82, 1, 2, 1, 0, 0, 0, 0, 0, 0, 0, // heard
            5, 0xac, 2, // watch
            6, 0, // ignore
            7, 0xac, 2, 0x83, 1, // gone
            8, 1, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, // echo
            9, 10, // probe, bye
        ];
        assert_eq!(written(), golden);
    }

    #[test]
    fn an_item_that_does_not_fit_leaves_no_trace() {
        let mut buf = [0; 22];
        let mut datagram = Datagram::new(&mut buf, HEAD_OF_TESTS).unwrap();
        datagram.put(Item::Probe).unwrap();
        let len = datagram.len();
        assert_eq!(
            datagram.put(Item::Start { object: ObjectId(1), number: Number::default(), state: &[0; 9] }),
            Err(Full)
        );
        assert_eq!(datagram.len(), len);
        assert_eq!(Items::new(&buf[..len]).unwrap().count(), 1);
    }

    #[test]
    fn whatever_is_cut_off_or_made_up_is_an_error_and_no_more() {
        let bytes = written();
        for cut in HEAD..bytes.len() {
            let items: Vec<_> = Items::new(&bytes[..cut]).unwrap().collect();
            assert!(items.iter().rev().skip(1).all(Result::is_ok), "only the last can be broken off");
        }
        assert!((0..HEAD).all(|cut| Items::new(&bytes[..cut]).unwrap_err() == Error::Truncated));
        assert_eq!(Items::new(&[0x31; 20]).unwrap_err(), Error::Malformed);
        let mut too_long = bytes[..HEAD].to_vec();
        too_long.extend([START, 0, 0, 0, 0xff, 0x7f]);
        assert_eq!(Items::new(&too_long).unwrap().next(), Some(Err(Error::Malformed)));
    }
}
