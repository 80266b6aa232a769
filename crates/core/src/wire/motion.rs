//! What the server of a game and its clients tell each other of motion.
//!
//! A datagram is a byte that names family and version, the runs of the sender and of who it is for, the sender's clock when it left, then any number of items. So every
//! datagram is a probe of clocks; the answer is an [`Item::ClockEcho`] in whatever goes back.

use super::{BufferFull, ByteReader, ByteWriter, DecodeError};
use crate::motion::{CommandNumber, MAX_STATE_SIZE, MAX_VECTOR_SIZE, ObjectId};
use crate::time::{Instant, TimeDelta};

/// The first byte of every datagram.
const FAMILY: u8 = 0x34;
/// Bytes before the first item.
const HEADER_LEN: usize = 17;

/// What every datagram begins with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MotionHeader {
    /// Which run of its program the sender is in: a later one has a greater number.
    pub sender_incarnation: u32,
    /// Which run it is for, as far as the sender knows; nothing if it does not.
    pub receiver_incarnation: u32,
    /// When the datagram left, on the sender's clock.
    pub sent_at: Instant,
}

/// One thing that is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MotionItem<'a> {
    /// Where an object was when a command took effect. Who knows the commands before needs no telling.
    StartState {
        /// Which object.
        object: ObjectId,
        /// The command that took effect there.
        number: CommandNumber,
        /// As the game writes it.
        state: &'a [u8],
    },
    /// A command: an object moves on differently.
    Command {
        /// Which object.
        object: ObjectId,
        /// Which of its commands.
        number: CommandNumber,
        /// How long, in motion time, the leg before it lasted.
        previous_segment: TimeDelta,
        /// As the game writes it.
        vector: &'a [u8],
    },
    /// How far the sender is on the leg of an object's newest command, when the datagram leaves.
    Timer {
        /// Which object.
        object: ObjectId,
        /// The newest command that the sender knows.
        number: CommandNumber,
        /// The sender's motion timer.
        timer: TimeDelta,
        /// What the sender will make up for by being quicker for a while.
        catch_up: TimeDelta,
        /// How long ago the sender learned of the command, or was given it.
        command_age: TimeDelta,
        /// Its motion timer then.
        timer_at_command: TimeDelta,
    },
    /// The sender knows an object's commands up to here.
    Ack {
        /// Which object.
        object: ObjectId,
        /// The newest.
        number: CommandNumber,
        /// When the datagram left that brought it, as it said.
        sent: Instant,
    },
    /// The sender wants to be told of an object.
    Subscribe(ObjectId),
    /// The sender does not want to be told of an object.
    Unsubscribe(ObjectId),
    /// There is no such object any more.
    Removed {
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
    Leave,
}

const START_STATE: u8 = 1;
const COMMAND: u8 = 2;
const TIMER: u8 = 3;
const ACK: u8 = 4;
const SUBSCRIBE: u8 = 5;
const UNSUBSCRIBE: u8 = 6;
const REMOVED: u8 = 7;
const ECHO: u8 = 8;
const PROBE: u8 = 9;
const LEAVE: u8 = 10;

/// The items of a datagram; it ends with the first that makes no sense.
#[derive(Clone, Debug)]
pub struct MotionItems<'a> {
    header: MotionHeader,
    reader: ByteReader<'a>,
}

impl<'a> MotionItems<'a> {
    /// The items of this datagram.
    pub fn new(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = ByteReader::new(bytes);
        match reader.u8()? {
            FAMILY => Ok(Self {
                header: MotionHeader {
                    sender_incarnation: reader.u32()?,
                    receiver_incarnation: reader.u32()?,
                    sent_at: get_instant(&mut reader)?,
                },
                reader,
            }),
            _ => Err(DecodeError::Malformed),
        }
    }

    /// What the datagram begins with.
    pub fn header(&self) -> MotionHeader {
        self.header
    }

    fn read(&mut self) -> Result<MotionItem<'a>, DecodeError> {
        let reader = &mut self.reader;
        Ok(match reader.u8()? {
            START_STATE => {
                let (object, number) = (get_object(reader)?, get_number(reader)?);
                MotionItem::StartState { object, number, state: get_bytes(reader, MAX_STATE_SIZE)? }
            }
            COMMAND => {
                let (object, number, leg) = (get_object(reader)?, get_number(reader)?, get_span(reader)?);
                MotionItem::Command {
                    object,
                    number,
                    previous_segment: leg,
                    vector: get_bytes(reader, MAX_VECTOR_SIZE)?,
                }
            }
            TIMER => MotionItem::Timer {
                object: get_object(reader)?,
                number: get_number(reader)?,
                timer: get_span(reader)?,
                catch_up: get_span(reader)?,
                command_age: get_span(reader)?,
                timer_at_command: get_span(reader)?,
            },
            ACK => {
                MotionItem::Ack { object: get_object(reader)?, number: get_number(reader)?, sent: get_instant(reader)? }
            }
            SUBSCRIBE => MotionItem::Subscribe(get_object(reader)?),
            UNSUBSCRIBE => MotionItem::Unsubscribe(get_object(reader)?),
            REMOVED => MotionItem::Removed { object: get_object(reader)?, epoch: reader.varint()? },
            ECHO => MotionItem::Echo { sent: get_instant(reader)?, received: get_instant(reader)? },
            PROBE => MotionItem::Probe,
            LEAVE => MotionItem::Leave,
            _ => return Err(DecodeError::Malformed),
        })
    }
}

impl<'a> Iterator for MotionItems<'a> {
    type Item = Result<MotionItem<'a>, DecodeError>;

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

fn get_object(reader: &mut ByteReader<'_>) -> Result<ObjectId, DecodeError> {
    reader.varint().map(ObjectId)
}

fn get_number(reader: &mut ByteReader<'_>) -> Result<CommandNumber, DecodeError> {
    Ok(CommandNumber { epoch: reader.varint()?, count: reader.varint()? })
}

fn get_instant(reader: &mut ByteReader<'_>) -> Result<Instant, DecodeError> {
    reader.u64().map(|nanos| Instant::from_nanos(nanos as i64))
}

/// A length of time that is not negative.
fn get_span(reader: &mut ByteReader<'_>) -> Result<TimeDelta, DecodeError> {
    let nanos = i64::try_from(reader.varint128()?).map_err(|_| DecodeError::Malformed)?;
    Ok(TimeDelta::from_nanos(nanos))
}

fn get_bytes<'a>(reader: &mut ByteReader<'a>, most: usize) -> Result<&'a [u8], DecodeError> {
    let len = reader.varint()? as usize;
    if len > most { Err(DecodeError::Malformed) } else { reader.take(len) }
}

/// Writes a datagram item by item; one for which there is no room is not begun.
#[derive(Debug)]
pub struct MotionDatagram<'a> {
    writer: ByteWriter<'a>,
}

impl<'a> MotionDatagram<'a> {
    /// With nothing in it.
    pub fn new(buf: &'a mut [u8], head: MotionHeader) -> Result<Self, BufferFull> {
        let mut writer = ByteWriter::new(buf);
        writer.u8(FAMILY)?;
        writer.put(&head.sender_incarnation.to_le_bytes())?;
        writer.put(&head.receiver_incarnation.to_le_bytes())?;
        writer.put(&head.sent_at.as_nanos().to_le_bytes())?;
        Ok(Self { writer })
    }

    /// How long it is by now.
    pub fn len(&self) -> usize {
        self.writer.len()
    }

    /// Whether nothing is told yet.
    pub fn is_empty(&self) -> bool {
        self.len() == HEADER_LEN
    }

    /// Takes back what was written from `len` on.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.writer.truncate(len.max(HEADER_LEN));
    }

    /// One more item.
    pub fn put(&mut self, item: MotionItem<'_>) -> Result<(), BufferFull> {
        let begun = self.writer.len();
        self.write(item).inspect_err(|BufferFull| self.writer.truncate(begun))
    }

    fn write(&mut self, item: MotionItem<'_>) -> Result<(), BufferFull> {
        match item {
            MotionItem::StartState { object, number, state } => {
                self.put_kind(START_STATE, object)?;
                self.put_number(number)?;
                self.put_bytes(state)
            }
            MotionItem::Command { object, number, previous_segment: leg, vector } => {
                self.put_kind(COMMAND, object)?;
                self.put_number(number)?;
                self.put_span(leg)?;
                self.put_bytes(vector)
            }
            MotionItem::Timer { object, number, timer, catch_up: owed, command_age: since, timer_at_command: from } => {
                self.put_kind(TIMER, object)?;
                self.put_number(number)?;
                [timer, owed, since, from].into_iter().try_for_each(|time| self.put_span(time))
            }
            MotionItem::Ack { object, number, sent } => {
                self.put_kind(ACK, object)?;
                self.put_number(number)?;
                self.put_instant(sent)
            }
            MotionItem::Subscribe(object) => self.put_kind(SUBSCRIBE, object),
            MotionItem::Unsubscribe(object) => self.put_kind(UNSUBSCRIBE, object),
            MotionItem::Removed { object, epoch } => {
                self.put_kind(REMOVED, object)?;
                self.writer.varint(epoch)
            }
            MotionItem::Echo { sent, received } => {
                self.writer.u8(ECHO)?;
                self.put_instant(sent)?;
                self.put_instant(received)
            }
            MotionItem::Probe => self.writer.u8(PROBE),
            MotionItem::Leave => self.writer.u8(LEAVE),
        }
    }

    fn put_kind(&mut self, kind: u8, object: ObjectId) -> Result<(), BufferFull> {
        self.writer.u8(kind)?;
        self.writer.varint(object.0)
    }

    fn put_number(&mut self, number: CommandNumber) -> Result<(), BufferFull> {
        self.writer.varint(number.epoch)?;
        self.writer.varint(number.count)
    }

    fn put_instant(&mut self, at: Instant) -> Result<(), BufferFull> {
        self.writer.put(&at.as_nanos().to_le_bytes())
    }

    fn put_span(&mut self, time: TimeDelta) -> Result<(), BufferFull> {
        self.writer.varint128(time.as_nanos().max(0) as u128)
    }

    fn put_bytes(&mut self, bytes: &[u8]) -> Result<(), BufferFull> {
        self.writer.varint(bytes.len() as u32)?;
        self.writer.put(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    const TEST_HEADER: MotionHeader =
        MotionHeader { sender_incarnation: 0x0403_0201, receiver_incarnation: 5, sent_at: Instant::from_nanos(-2) };

    fn all_kinds() -> Vec<MotionItem<'static>> {
        let (at, time) = (Instant::from_nanos, TimeDelta::from_nanos);
        let object = ObjectId(300);
        let number = |count| CommandNumber { epoch: 130, count };
        alloc::vec![
            MotionItem::StartState { object, number: number(1), state: b"here" },
            MotionItem::Command { object, number: number(2), previous_segment: time(129), vector: b"up" },
            MotionItem::Timer {
                object,
                number: number(2),
                timer: time(5),
                catch_up: time(0),
                command_age: time(128),
                timer_at_command: time(2)
            },
            MotionItem::Ack { object, number: number(2), sent: at(1) },
            MotionItem::Subscribe(object),
            MotionItem::Unsubscribe(ObjectId(0)),
            MotionItem::Removed { object, epoch: 131 },
            MotionItem::Echo { sent: at(1), received: at(-1) },
            MotionItem::Probe,
            MotionItem::Leave,
        ]
    }

    fn written_datagram() -> Vec<u8> {
        let mut buf = [0; 400];
        let mut datagram = MotionDatagram::new(&mut buf, TEST_HEADER).unwrap();
        assert!(datagram.is_empty());
        all_kinds().into_iter().for_each(|item| datagram.put(item).unwrap());
        let len = datagram.len();
        buf[..len].to_vec()
    }

    #[test]
    fn every_item_round_trips() {
        let bytes = written_datagram();
        let items = MotionItems::new(&bytes).unwrap();
        assert_eq!(items.header(), TEST_HEADER);
        assert_eq!(items.collect::<Result<Vec<_>, _>>().unwrap(), all_kinds());
    }

    /// The layout: whoever changes it names another version in the first byte.
    #[test]
    fn layout_matches_golden_bytes() {
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
        assert_eq!(written_datagram(), golden);
    }

    #[test]
    fn item_that_does_not_fit_is_not_written() {
        let mut buf = [0; 22];
        let mut datagram = MotionDatagram::new(&mut buf, TEST_HEADER).unwrap();
        datagram.put(MotionItem::Probe).unwrap();
        let len = datagram.len();
        assert_eq!(
            datagram.put(MotionItem::StartState {
                object: ObjectId(1),
                number: CommandNumber::default(),
                state: &[0; 9]
            }),
            Err(BufferFull)
        );
        assert_eq!(datagram.len(), len);
        assert_eq!(MotionItems::new(&buf[..len]).unwrap().count(), 1);
    }

    #[test]
    fn truncated_or_invalid_items_are_errors() {
        let bytes = written_datagram();
        for cut in HEADER_LEN..bytes.len() {
            let items: Vec<_> = MotionItems::new(&bytes[..cut]).unwrap().collect();
            assert!(items.iter().rev().skip(1).all(Result::is_ok), "only the last can be broken off");
        }
        assert!((0..HEADER_LEN).all(|cut| MotionItems::new(&bytes[..cut]).unwrap_err() == DecodeError::Truncated));
        assert_eq!(MotionItems::new(&[0x31; 20]).unwrap_err(), DecodeError::Malformed);
        let mut too_long = bytes[..HEADER_LEN].to_vec();
        too_long.extend([START_STATE, 0, 0, 0, 0xff, 0x7f]);
        assert_eq!(MotionItems::new(&too_long).unwrap().next(), Some(Err(DecodeError::Malformed)));
    }
}
