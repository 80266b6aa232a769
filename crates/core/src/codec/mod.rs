//! Byte codec: the reader and writer that the messages of all engines use, and what all datagrams have in common. Each
//! engine defines its messages itself.
//!
//! Decoding is total: any bytes yield a message or a [`DecodeError`], never a panic, and no allocation grows with a
//! size that a packet claims. Encoding writes into the caller's buffer and returns [`BufferFull`] when the message does
//! not fit.
//!
//! The first byte of a datagram selects its family:
//! - top bit set: a tick, the packet of a running game, whose layout is that of the [`VERSION`] agreed on before the
//!   start;
//! - 0x10 to 0x1f: a message between a feed and its spectators;
//! - 0x20 to 0x2f: a message of a desync search, of the same version as the ticks;
//! - 0x30 to 0x3f: a list of items: 0x31 of a peer world, 0x34 of motion between server and clients, 0x35 between
//!   mirrored servers;
//! - anything else: a hello, whose first byte is the version of its protocol.

use crate::id::Addr;
use crate::time::Instant;

/// Protocol version of sessions, spectator feeds and desync searches. Two sites with different versions refuse each
/// other with a clear message.
pub const VERSION: u8 = 4;

/// Largest datagram in bytes. It passes practically every Internet path unfragmented, with room for a transport's own
/// header.
pub const MAX_DATAGRAM: usize = 1_200;

/// Reason that bytes are not a valid message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DecodeError {
    /// The bytes end in the middle of the message.
    Truncated,
    /// A field holds a value that no site sends.
    Malformed,
    /// The message has this version of the protocol or of its layout, which this program does not support.
    Version(u8),
}

/// The buffer is too small for the message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BufferFull;

/// A datagram to be sent, which a call of `poll_transmit` has written into the caller's buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Destination address, in the transport's numbering.
    pub to: Addr,
    /// Length of the datagram in the caller's buffer, in bytes.
    pub len: usize,
}

/// Reader of values from the front of a byte slice.
#[derive(Clone, Debug)]
pub(crate) struct ByteReader<'a> {
    rest: &'a [u8],
}

impl<'a> ByteReader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Returns the bytes that were not read yet.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub(crate) fn take(&mut self, len: usize) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(DecodeError::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(DecodeError::Truncated)?;
        self.rest = rest;
        Ok(*taken)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, DecodeError> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, DecodeError> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, DecodeError> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, DecodeError> {
        self.array().map(u64::from_le_bytes)
    }

    /// Reads an instant, in nanoseconds of its clock.
    pub(crate) fn instant(&mut self) -> Result<Instant, DecodeError> {
        self.u64().map(|nanos| Instant::from_nanos(nanos as i64))
    }

    /// Reads a length of at most `max_len` and that many bytes.
    pub(crate) fn bytes(&mut self, max_len: usize) -> Result<&'a [u8], DecodeError> {
        let len = self.varint()? as usize;
        if len > max_len { Err(DecodeError::Malformed) } else { self.take(len) }
    }

    /// Reads an unsigned number of at most 128 bits, encoded as seven bits per byte, lowest first. Only the shortest
    /// encoding of a number is accepted.
    #[inline]
    pub(crate) fn varint128(&mut self) -> Result<u128, DecodeError> {
        let mut value = 0u128;
        for shift in (0..128).step_by(7) {
            let byte = self.u8()?;
            let bits = u128::from(byte & 0x7f);
            if bits << shift >> shift != bits || (byte == 0 && shift > 0) {
                return Err(DecodeError::Malformed);
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(DecodeError::Malformed)
    }

    #[inline]
    pub(crate) fn varint(&mut self) -> Result<u32, DecodeError> {
        let byte = self.u8()?;
        if byte < 0x80 {
            return Ok(u32::from(byte));
        }
        self.varint_tail(byte, u32::BITS).map(|value| value as u32)
    }

    #[inline]
    pub(crate) fn varint64(&mut self) -> Result<u64, DecodeError> {
        let byte = self.u8()?;
        if byte < 0x80 {
            return Ok(u64::from(byte));
        }
        self.varint_tail(byte, u64::BITS)
    }

    /// Reads the rest of a number of at most `max_bits` bits, whose first byte is `first`.
    fn varint_tail(&mut self, first: u8, max_bits: u32) -> Result<u64, DecodeError> {
        let mut value = u64::from(first & 0x7f);
        for shift in (7..max_bits).step_by(7) {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            if bits > u64::MAX >> (u64::BITS - max_bits) >> shift || byte == 0 {
                return Err(DecodeError::Malformed);
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(DecodeError::Malformed)
    }

    /// Reads a zigzag-encoded signed number.
    #[inline]
    pub(crate) fn signed_varint(&mut self) -> Result<i32, DecodeError> {
        self.varint().map(|raw| (raw >> 1) as i32 ^ -((raw & 1) as i32))
    }
}

/// Writer of values into a caller's buffer.
#[derive(Debug)]
pub(crate) struct ByteWriter<'a> {
    buf: &'a mut [u8],
    len: usize,
}

impl<'a> ByteWriter<'a> {
    pub(crate) fn new(buf: &'a mut [u8]) -> Self {
        Self { buf, len: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Discards everything written from `len` on.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Returns the bytes written from `start` on.
    pub(crate) fn written_since(&mut self, start: usize) -> &mut [u8] {
        &mut self.buf[start.min(self.len)..self.len]
    }

    #[inline]
    pub(crate) fn put(&mut self, bytes: &[u8]) -> Result<(), BufferFull> {
        let room = self.buf.get_mut(self.len..self.len + bytes.len()).ok_or(BufferFull)?;
        room.copy_from_slice(bytes);
        self.len += bytes.len();
        Ok(())
    }

    #[inline]
    pub(crate) fn u8(&mut self, value: u8) -> Result<(), BufferFull> {
        *self.buf.get_mut(self.len).ok_or(BufferFull)? = value;
        self.len += 1;
        Ok(())
    }

    pub(crate) fn varint128(&mut self, mut value: u128) -> Result<(), BufferFull> {
        while value >= 0x80 {
            self.u8(value as u8 | 0x80)?;
            value >>= 7;
        }
        self.u8(value as u8)
    }

    #[inline]
    pub(crate) fn varint(&mut self, value: u32) -> Result<(), BufferFull> {
        self.varint64(value.into())
    }

    #[inline]
    pub(crate) fn varint64(&mut self, mut value: u64) -> Result<(), BufferFull> {
        while value >= 0x80 {
            self.u8(value as u8 | 0x80)?;
            value >>= 7;
        }
        self.u8(value as u8)
    }

    #[inline]
    pub(crate) fn signed_varint(&mut self, value: i32) -> Result<(), BufferFull> {
        self.varint((value << 1 ^ value >> 31) as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_round_trip_in_shortest_form_only() {
        let mut buf = [0; 64];
        for value in [0, 1, 127, 128, 16_383, 16_384, u32::MAX - 1, u32::MAX] {
            let mut writer = ByteWriter::new(&mut buf);
            writer.varint(value).unwrap();
            writer.varint128(u128::from(value) << 90).unwrap();
            writer.signed_varint(value as i32).unwrap();
            let len = writer.len();
            let mut reader = ByteReader::new(&buf[..len]);
            assert_eq!(reader.varint(), Ok(value));
            assert_eq!(reader.varint128(), Ok(u128::from(value) << 90));
            assert_eq!(reader.signed_varint(), Ok(value as i32));
            assert!(reader.is_empty());
        }
        for value in [0, 127, 128, 1 << 32, (1 << 48) - 1, u64::MAX] {
            let mut writer = ByteWriter::new(&mut buf);
            writer.varint64(value).unwrap();
            let len = writer.len();
            assert_eq!(ByteReader::new(&buf[..len]).varint64(), Ok(value));
        }
        assert_eq!(ByteReader::new(&[0xff, 0xff, 0xff, 0xff, 0x10]).varint(), Err(DecodeError::Malformed));
        assert_eq!(ByteReader::new(&[0xff; 10]).varint64(), Err(DecodeError::Malformed));
        assert_eq!(ByteReader::new(&[0x80, 0]).varint64(), Err(DecodeError::Malformed));
        assert_eq!(ByteReader::new(&[0x80, 0]).varint(), Err(DecodeError::Malformed));
        assert_eq!(ByteReader::new(&[0xff; 5]).varint(), Err(DecodeError::Malformed));
        assert_eq!(ByteReader::new(&[0x80]).varint(), Err(DecodeError::Truncated));
        assert_eq!(ByteReader::new(&[0xff; 19]).varint128(), Err(DecodeError::Malformed));
    }

    #[test]
    fn full_buffer_is_reported_and_not_overrun() {
        let mut buf = [0; 3];
        let mut writer = ByteWriter::new(&mut buf);
        assert_eq!(writer.put(&[1, 2, 3, 4]), Err(BufferFull));
        assert_eq!(writer.varint(u32::MAX), Err(BufferFull));
    }
}
