//! Packets of motion between the server of a game and its clients.
//!
//! A datagram is one byte that selects family and layout, the incarnations of the sender and of the receiver, the send
//! time on the sender's clock, then any number of items. Every datagram is therefore a clock probe; the next datagram
//! in the other direction answers the newest one with a [`MotionItem::Echo`].

use super::{CommandNumber, MAX_STATE_SIZE, MAX_VECTOR_SIZE, ObjectId};
use crate::codec::{BufferFull, ByteReader, ByteWriter, DecodeError};
use crate::time::{Instant, TimeDelta};

/// First byte of every datagram: 0x30 for the family of the item lists, plus the number of this layout.
const FAMILY: u8 = 0x34;
/// Size of the header in bytes.
const HEADER_LEN: usize = 17;

/// Header of a datagram between server and client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MotionHeader {
    /// Incarnation of the sender's program. A later one has a greater number.
    pub sender_incarnation: u32,
    /// Incarnation of the receiver's program, as far as the sender knows; 0 if it does not.
    pub receiver_incarnation: u32,
    /// Send time on the sender's clock.
    pub sent_at: Instant,
}

/// One item of a datagram between server and client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MotionItem<'a> {
    /// State of an object when a command took effect. A receiver that knows the earlier commands does not need this
    /// item.
    StartState {
        /// Object whose state this is.
        object: ObjectId,
        /// The command that took effect at this state.
        number: CommandNumber,
        /// State in the game's encoding.
        state: &'a [u8],
    },
    /// A motion command: it begins a segment, on which the object moves by `vector`.
    Command {
        /// Object that the command moves.
        object: ObjectId,
        /// Number of this command.
        number: CommandNumber,
        /// Duration of the previous segment in motion time.
        previous_segment: TimeDelta,
        /// Motion vector in the game's encoding.
        vector: &'a [u8],
    },
    /// The sender's progress on the segment of an object's newest command, at the send time of the datagram.
    Timer {
        /// Object whose progress is reported.
        object: ObjectId,
        /// The newest command that the sender knows.
        number: CommandNumber,
        /// The sender's motion timer on the segment.
        timer: TimeDelta,
        /// Time by which the sender's timer is behind, which the sender will catch up by moving the object faster for a
        /// while.
        catch_up: TimeDelta,
        /// Time since the sender received or issued the command.
        command_age: TimeDelta,
        /// The sender's motion timer when the sender received or issued the command.
        timer_at_command: TimeDelta,
    },
    /// The sender knows an object's commands up to this one.
    Ack {
        /// Object whose commands are acknowledged.
        object: ObjectId,
        /// Newest command that the sender knows.
        number: CommandNumber,
        /// Send time of the acknowledged datagram, copied from its header.
        sent: Instant,
    },
    /// A client's request for updates of an object.
    Subscribe(ObjectId),
    /// A client's request to end the updates of an object.
    Unsubscribe(ObjectId),
    /// The server removed the object, hides it from the client, or has no such object.
    Removed {
        /// Id of the removed object.
        object: ObjectId,
        /// Objects with this id and this epoch or a later one are different objects.
        epoch: u32,
    },
    /// Send and arrival time of the newest datagram that the sender of this echo has received from the receiver.
    Echo {
        /// Send time of that datagram, copied from its header.
        sent: Instant,
        /// Arrival time of that datagram on the clock of the echo's sender.
        received: Instant,
    },
    /// Request to send an echo at once.
    Probe,
    /// The client leaves, and the server removes it.
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

/// Iterator over the items of a datagram, which ends after the first malformed item.
#[derive(Clone, Debug)]
pub struct MotionItems<'a> {
    header: MotionHeader,
    reader: ByteReader<'a>,
}

impl<'a> MotionItems<'a> {
    /// Reads the header of a datagram. Fails if the header is truncated, or of another family or layout.
    pub fn new(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = ByteReader::new(bytes);
        match reader.u8()? {
            FAMILY => Ok(Self {
                header: MotionHeader {
                    sender_incarnation: reader.u32()?,
                    receiver_incarnation: reader.u32()?,
                    sent_at: reader.instant()?,
                },
                reader,
            }),
            _ => Err(DecodeError::Malformed),
        }
    }

    /// Returns the header that [`MotionItems::new`] has read.
    pub fn header(&self) -> MotionHeader {
        self.header
    }

    fn read(&mut self) -> Result<MotionItem<'a>, DecodeError> {
        let reader = &mut self.reader;
        Ok(match reader.u8()? {
            START_STATE => {
                let (object, number) = (get_object(reader)?, get_number(reader)?);
                MotionItem::StartState { object, number, state: reader.bytes(MAX_STATE_SIZE)? }
            }
            COMMAND => {
                let (object, number, previous_segment) = (get_object(reader)?, get_number(reader)?, get_span(reader)?);
                MotionItem::Command { object, number, previous_segment, vector: reader.bytes(MAX_VECTOR_SIZE)? }
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
                MotionItem::Ack { object: get_object(reader)?, number: get_number(reader)?, sent: reader.instant()? }
            }
            SUBSCRIBE => MotionItem::Subscribe(get_object(reader)?),
            UNSUBSCRIBE => MotionItem::Unsubscribe(get_object(reader)?),
            REMOVED => MotionItem::Removed { object: get_object(reader)?, epoch: reader.varint()? },
            ECHO => MotionItem::Echo { sent: reader.instant()?, received: reader.instant()? },
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
    reader.varint64().map(ObjectId)
}

fn get_number(reader: &mut ByteReader<'_>) -> Result<CommandNumber, DecodeError> {
    Ok(CommandNumber { epoch: reader.varint()?, count: reader.varint()? })
}

/// Decodes a duration, which is never negative.
fn get_span(reader: &mut ByteReader<'_>) -> Result<TimeDelta, DecodeError> {
    let nanos = i64::try_from(reader.varint128()?).map_err(|_| DecodeError::Malformed)?;
    Ok(TimeDelta::from_nanos(nanos))
}

/// Encoder of a datagram. An item that does not fit is left out as a whole.
#[derive(Debug)]
pub struct MotionDatagramWriter<'a> {
    writer: ByteWriter<'a>,
}

impl<'a> MotionDatagramWriter<'a> {
    /// Creates a datagram without items.
    pub fn new(buf: &'a mut [u8], head: MotionHeader) -> Result<Self, BufferFull> {
        let mut writer = ByteWriter::new(buf);
        writer.u8(FAMILY)?;
        writer.put(&head.sender_incarnation.to_le_bytes())?;
        writer.put(&head.receiver_incarnation.to_le_bytes())?;
        writer.put(&head.sent_at.as_nanos().to_le_bytes())?;
        Ok(Self { writer })
    }

    /// Returns the length so far in bytes.
    pub fn len(&self) -> usize {
        self.writer.len()
    }

    /// Returns whether the datagram has no items yet.
    pub fn is_empty(&self) -> bool {
        self.len() == HEADER_LEN
    }

    /// Discards everything written from `len` on, except for the header.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.writer.truncate(len.max(HEADER_LEN));
    }

    /// Appends an item, or nothing if it does not fit.
    pub fn put(&mut self, item: MotionItem<'_>) -> Result<(), BufferFull> {
        let start = self.writer.len();
        self.write(item).inspect_err(|BufferFull| self.writer.truncate(start))
    }

    fn write(&mut self, item: MotionItem<'_>) -> Result<(), BufferFull> {
        match item {
            MotionItem::StartState { object, number, state } => {
                self.put_kind(START_STATE, object)?;
                self.put_number(number)?;
                self.put_bytes(state)
            }
            MotionItem::Command { object, number, previous_segment, vector } => {
                self.put_kind(COMMAND, object)?;
                self.put_number(number)?;
                self.put_span(previous_segment)?;
                self.put_bytes(vector)
            }
            MotionItem::Timer { object, number, timer, catch_up, command_age, timer_at_command } => {
                self.put_kind(TIMER, object)?;
                self.put_number(number)?;
                [timer, catch_up, command_age, timer_at_command].into_iter().try_for_each(|time| self.put_span(time))
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
        self.writer.varint64(object.0)
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
        let mut datagram = MotionDatagramWriter::new(&mut buf, TEST_HEADER).unwrap();
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

    /// Pins the layout. A change of the layout needs a new version in the first byte.
    #[test]
    fn layout_matches_golden_bytes() {
        let golden: &[u8] = &[
            0x34, 1, 2, 3, 4, 5, 0, 0, 0, 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, // header
            1, 0xac, 2, 0x82, 1, 1, 4, b'h', b'e', b'r', b'e', // start state
            2, 0xac, 2, 0x82, 1, 2, 0x81, 1, 2, b'u', b'p', // command
            3, 0xac, 2, 0x82, 1, 2, 5, 0, 0x80, 1, 2, // timer
            4, 0xac, 2, 0x82, 1, 2, 1, 0, 0, 0, 0, 0, 0, 0, // ack
            5, 0xac, 2, // subscribe
            6, 0, // unsubscribe
            7, 0xac, 2, 0x83, 1, // removed
            8, 1, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, // echo
            9, 10, // probe, leave
        ];
        assert_eq!(written_datagram(), golden);
    }

    #[test]
    fn item_that_does_not_fit_is_not_written() {
        let mut buf = [0; 22];
        let mut datagram = MotionDatagramWriter::new(&mut buf, TEST_HEADER).unwrap();
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
            assert!(items.iter().rev().skip(1).all(Result::is_ok), "only the last item can be truncated");
        }
        assert!((0..HEADER_LEN).all(|cut| MotionItems::new(&bytes[..cut]).unwrap_err() == DecodeError::Truncated));
        assert_eq!(MotionItems::new(&[0x31; 20]).unwrap_err(), DecodeError::Malformed);
        let mut too_long = bytes[..HEADER_LEN].to_vec();
        too_long.extend([START_STATE, 0, 0, 0, 0xff, 0x7f]);
        assert_eq!(MotionItems::new(&too_long).unwrap().next(), Some(Err(DecodeError::Malformed)));
    }
}
