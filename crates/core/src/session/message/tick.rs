//! Tick: the packet of a running game, with the newest inputs, an acknowledgement and optional parts.
//!
//! With the default send policy, a site sends one tick to every peer in every frame. The layout favours the common
//! case: five bytes of header, then only the changes of the input. Everything else (sender identity, clock probe, state
//! digest, request for lost inputs and the answer to one, extras) is optional, marked by a flag, and present only in
//! the packets that need it.
//!
//! ```text
//! flags  end u16  end-ack signed  [identity] [probe] [digest] [missing] [extras] [resends]  len varint  changes …
//! ```

use super::extra::Extras;
use crate::codec::{BufferFull, ByteReader, ByteWriter, DecodeError};
use crate::input::MissingRanges;

pub(super) const TICK_FLAG: u8 = 0x80;
const IDENTITY_FLAG: u8 = 0x40;
const PROBE_FLAG: u8 = 0x20;
const DIGEST_FLAG: u8 = 0x10;
const MISSING_FLAG: u8 = 0x08;
const EXTRAS_FLAG: u8 = 0x04;
const RESENDS_FLAG: u8 = 0x02;
const ABSOLUTE_FLAG: u8 = 0x01;

/// Unit of the age of an echoed stamp, in nanoseconds.
const ECHO_HELD_UNIT_NS: i64 = 16_000;
/// Unit of a frame's lateness, in nanoseconds.
const LATENESS_UNIT_NS: i64 = 31_250;
/// Absolute lateness, in nanoseconds, at and above which the packet states that the lateness is unknown.
const MAX_LATENESS_NS: i64 = 250_000_000;

/// The packet of a running game.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tick<'a> {
    /// Low 16 bits of the frame after the last frame in this packet.
    pub end: u16,
    /// `end` minus the acknowledgement: the frame up to which (exclusive) the receiver's inputs have arrived without a
    /// gap, plus 1 if the sender has all inputs of a receiver that leaves.
    pub end_minus_ack: i32,
    /// Identity of the sender, for a receiver that may not recognise the sender by its address.
    pub identity: Option<SenderIdentity>,
    /// Clock probe; `None` in most packets.
    pub probe: Option<ClockProbe>,
    /// Newest state digest of the sender; only in packets with a probe.
    pub digest: Option<TickDigest>,
    /// Lost inputs of the receiver that the sender requests.
    pub missing: MissingRanges,
    /// Entries for membership, scheduled commands, relays, tuning and pauses, which few ticks carry.
    pub extras: Extras<'a>,
    /// Inputs that the receiver requested.
    pub resends: ResentInputsList<'a>,
    /// Number of frames encoded in `changes`. The last of them is the one before `end`.
    pub frame_count: u32,
    /// Whether `changes` begins with a one-byte change counter and the whole input of its first frame. Otherwise its
    /// first token changes the input of the frame before its first frame.
    pub is_absolute: bool,
    /// Change tokens of [`input::delta_codec`](crate::input).
    pub changes: &'a [u8],
}

/// Session and site of a sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SenderIdentity {
    /// Id of the sender's session. The receiver drops packets of other sessions.
    pub session_id: u64,
    /// Site number, not yet validated.
    pub site: u8,
}

/// One half of a round-trip measurement: the send time of this packet, and the echo of a received one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockProbe {
    /// Send time in microseconds of the sender's clock. Only the low 40 bits are sent.
    pub stamp_us: u64,
    /// Low 32 bits of the newest stamp that the sender received from the receiver, and the time in nanoseconds for
    /// which the sender has held it; `None` if no new stamp was received.
    pub echo: Option<(u32, i64)>,
    /// `end` minus the frame that this probe reports, to which `lateness_ns` refers: the sender's current frame, the
    /// next frame while the host program steps the current one, or the join frame of a joiner that does not play yet.
    pub end_minus_frame: i32,
    /// Time from the planned start of that frame to the stamp, in nanoseconds; negative if the start is still ahead.
    /// `None` if there is no plan, or if the time is 250 ms or more in either direction.
    pub lateness_ns: Option<i64>,
}

/// Hashes of the state and of the sender's inputs after a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TickDigest {
    /// Low 16 bits of the frame.
    pub frame: u16,
    /// State hash, folded to 32 bits.
    pub state_hash: u32,
    /// Hash of all inputs of the sender up to and including this frame.
    pub input_digest: u64,
}

/// Retransmitted inputs, always with an absolute start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResentInputs<'a> {
    /// `end` of the tick minus the first frame of these inputs.
    pub end_minus_first: u32,
    /// Number of consecutive frames, at least 1.
    pub frame_count: u32,
    /// Change tokens of the inputs, with an absolute start as in [`Tick::is_absolute`].
    pub changes: &'a [u8],
}

/// The retransmissions of one packet, validated when the packet was decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ResentInputsList<'a> {
    bytes: &'a [u8],
}

impl<'a> ResentInputsList<'a> {
    /// Iterates over the retransmissions in packet order.
    pub fn iter(&self) -> impl Iterator<Item = ResentInputs<'a>> + use<'a> {
        let mut reader = ByteReader::new(self.bytes);
        core::iter::from_fn(move || (!reader.is_empty()).then(|| get_resend(&mut reader).ok()).flatten())
    }

    /// Returns whether the packet has no retransmissions.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

fn get_resend<'a>(reader: &mut ByteReader<'a>) -> Result<ResentInputs<'a>, DecodeError> {
    let end_minus_first = reader.varint()?;
    let len = reader.varint()?;
    let size = reader.u16()?;
    let changes = reader.take(usize::from(size))?;
    if len == 0 || len > end_minus_first {
        return Err(DecodeError::Malformed);
    }
    Ok(ResentInputs { end_minus_first, frame_count: len, changes })
}

/// The parts of a tick that are known before its inputs are encoded.
#[derive(Clone, Debug, Default)]
pub(crate) struct TickHeader {
    pub(crate) end: u16,
    pub(crate) end_minus_ack: i32,
    pub(crate) identity: Option<SenderIdentity>,
    pub(crate) probe: Option<ClockProbe>,
    pub(crate) digest: Option<TickDigest>,
    pub(crate) missing: MissingRanges,
}

impl TickHeader {
    /// Encodes the header. `extras` and `resends` state whether such parts follow; `absolute` is [`Tick::is_absolute`].
    pub(crate) fn encode(
        &self,
        writer: &mut ByteWriter<'_>,
        (extras, resends): (bool, bool),
        absolute: bool,
    ) -> Result<(), BufferFull> {
        let flag = |on: bool, bit: u8| if on { bit } else { 0 };
        let flags = TICK_FLAG
            | flag(self.identity.is_some(), IDENTITY_FLAG)
            | flag(self.probe.is_some(), PROBE_FLAG)
            | flag(self.digest.is_some(), DIGEST_FLAG)
            | flag(!self.missing.is_empty(), MISSING_FLAG)
            | flag(extras, EXTRAS_FLAG)
            | flag(resends, RESENDS_FLAG)
            | flag(absolute, ABSOLUTE_FLAG);
        writer.u8(flags)?;
        writer.put(&self.end.to_le_bytes())?;
        writer.signed_varint(self.end_minus_ack)?;
        if flags & !(TICK_FLAG | ABSOLUTE_FLAG | RESENDS_FLAG | EXTRAS_FLAG) != 0 {
            self.put_optional_parts(writer)?;
        }
        Ok(())
    }

    /// Encodes the optional header fields that are present: sender identity, clock probe, digest and requested ranges.
    #[cold]
    fn put_optional_parts(&self, writer: &mut ByteWriter<'_>) -> Result<(), BufferFull> {
        if let Some(identity) = &self.identity {
            writer.put(&identity.session_id.to_le_bytes())?;
            writer.u8(identity.site)?;
        }
        if let Some(probe) = &self.probe {
            put_probe(writer, probe)?;
        }
        if let Some(digest) = &self.digest {
            writer.put(&digest.frame.to_le_bytes())?;
            writer.put(&digest.state_hash.to_le_bytes())?;
            writer.put(&digest.input_digest.to_le_bytes())?;
        }
        if !self.missing.is_empty() {
            self.missing.encode(writer)?;
        }
        Ok(())
    }
}

/// Encodes the header of a tick that carries nothing but inputs, as most do.
#[inline]
pub(crate) fn put_plain_header(
    writer: &mut ByteWriter<'_>,
    end: u16,
    end_minus_ack: i32,
    absolute: bool,
) -> Result<(), BufferFull> {
    let [low, high] = end.to_le_bytes();
    writer.put(&[if absolute { TICK_FLAG | ABSOLUTE_FLAG } else { TICK_FLAG }, low, high])?;
    writer.signed_varint(end_minus_ack)
}

fn put_probe(writer: &mut ByteWriter<'_>, probe: &ClockProbe) -> Result<(), BufferFull> {
    let stamp = probe.stamp_us.to_le_bytes();
    writer.put(&stamp[..5])?;
    match probe.echo {
        None => writer.varint(0)?,
        Some((stamp, held_ns)) => {
            let units = (held_ns / ECHO_HELD_UNIT_NS).clamp(0, i64::from(u32::MAX) - 1);
            writer.varint(units as u32 + 1)?;
            writer.put(&stamp.to_le_bytes())?;
        }
    }
    writer.signed_varint(probe.end_minus_frame)?;
    let late = probe.lateness_ns.filter(|late| late.unsigned_abs() < MAX_LATENESS_NS as u64).unwrap_or(MAX_LATENESS_NS);
    writer.signed_varint((late / LATENESS_UNIT_NS) as i32)
}

fn get_probe(reader: &mut ByteReader<'_>) -> Result<ClockProbe, DecodeError> {
    let mut stamp = [0; 8];
    stamp[..5].copy_from_slice(reader.take(5)?);
    let echo = match reader.varint()? {
        0 => None,
        units => {
            let stamp = reader.u32()?;
            Some((stamp, i64::from(units - 1) * ECHO_HELD_UNIT_NS))
        }
    };
    let end_minus_frame = reader.signed_varint()?;
    let late_ns =
        Some(i64::from(reader.signed_varint()?) * LATENESS_UNIT_NS).filter(|late| late.abs() < MAX_LATENESS_NS);
    Ok(ClockProbe { stamp_us: u64::from_le_bytes(stamp), echo, end_minus_frame, lateness_ns: late_ns })
}

impl<'a> Tick<'a> {
    /// Decodes a tick. Its change tokens are not validated.
    #[inline]
    pub fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut tick = Self::default();
        tick.read(bytes)?;
        Ok(tick)
    }

    /// Decodes a packet into this empty tick. Avoids a copy of the large struct, because a tick arrives from every peer
    /// in every frame.
    #[inline]
    pub(crate) fn read(&mut self, bytes: &'a [u8]) -> Result<(), DecodeError> {
        let mut reader = ByteReader::new(bytes);
        let flags = reader.u8()?;
        let has = |bit: u8| flags & bit != 0;
        if !has(TICK_FLAG) {
            return Err(DecodeError::Malformed);
        }
        self.end = reader.u16()?;
        self.end_minus_ack = reader.signed_varint()?;
        self.is_absolute = has(ABSOLUTE_FLAG);
        if flags & !(TICK_FLAG | ABSOLUTE_FLAG) != 0 {
            self.get_optional_parts(&mut reader, flags)?;
        }
        self.frame_count = reader.varint()?;
        self.changes = reader.rest();
        Ok(())
    }

    /// Decodes the parts that `flags` announces: sender identity, clock probe, digest, requested ranges, extras and
    /// retransmissions.
    #[cold]
    fn get_optional_parts(&mut self, reader: &mut ByteReader<'a>, flags: u8) -> Result<(), DecodeError> {
        let has = |bit: u8| flags & bit != 0;
        if has(IDENTITY_FLAG) {
            self.identity = Some(get_identity(reader)?);
        }
        if has(PROBE_FLAG) {
            self.probe = Some(get_probe(reader)?);
        }
        if has(DIGEST_FLAG) {
            self.digest =
                Some(TickDigest { frame: reader.u16()?, state_hash: reader.u32()?, input_digest: reader.u64()? });
        }
        if has(MISSING_FLAG) {
            self.missing = MissingRanges::decode(reader)?;
        }
        if has(EXTRAS_FLAG) {
            self.extras = Extras::decode(reader)?;
        }
        if has(RESENDS_FLAG) {
            self.resends = get_resends(reader)?;
        }
        Ok(())
    }

    /// Encodes a tick, for tests and tools. The session encodes its ticks in place.
    pub fn encode(&self, buf: &mut [u8]) -> Result<usize, BufferFull> {
        let head = TickHeader {
            end: self.end,
            end_minus_ack: self.end_minus_ack,
            identity: self.identity,
            probe: self.probe,
            digest: self.digest,
            missing: self.missing,
        };
        let mut writer = ByteWriter::new(buf);
        head.encode(&mut writer, (!self.extras.is_empty(), !self.resends.is_empty()), self.is_absolute)?;
        if !self.extras.is_empty() {
            self.extras.encode(&mut writer)?;
        }
        if !self.resends.is_empty() {
            writer.put(&(self.resends.bytes.len() as u16).to_le_bytes())?;
            writer.put(self.resends.bytes)?;
        }
        writer.varint(self.frame_count)?;
        writer.put(self.changes)?;
        Ok(writer.len())
    }
}

fn get_identity(reader: &mut ByteReader<'_>) -> Result<SenderIdentity, DecodeError> {
    Ok(SenderIdentity { session_id: reader.u64()?, site: reader.u8()? })
}

fn get_resends<'a>(reader: &mut ByteReader<'a>) -> Result<ResentInputsList<'a>, DecodeError> {
    let size = reader.u16()?;
    let bytes = reader.take(usize::from(size))?;
    let mut checked = ByteReader::new(bytes);
    while !checked.is_empty() {
        get_resend(&mut checked)?;
    }
    if bytes.is_empty() { Err(DecodeError::Malformed) } else { Ok(ResentInputsList { bytes }) }
}
