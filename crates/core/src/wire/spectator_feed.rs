//! The packets of a feed: who watches, what is missing, what was played.
//!
//! The first byte is 0x10 to 0x1f and tells the kind. What a watcher sends carries the session's number always, what a feed sends
//! only where the watcher may not know the feed yet: later the address is enough, as it is for ticks.
//!
//! The first packet of a watcher is longer than the answer to it, so nobody can make a feed send more to a third party than he
//! sends himself.
//!
//! ```text
//! watch     10 version session u64 flags settings u64 token u64 [from u32] [have u64]
//! ack       11 session u64 next u32 fetching and count (skip varint, len varint)…
//! get       12 session u64 snapshot u16 count (block varint, parts u16)…
//! leave     13 session u64
//! challenge 18 session u64 token u64
//! welcome   19 session u64 oldest u32 end u32 batch u8
//! offer     1a session u64 snapshot u16 next u32 size u32 hash u64 digest u64
//! frames    1b flags end u32 first u32 (gap varint, count, [back varint, hash u64], size varint, changes)…
//! chunk     1c snapshot u16 block varint hash u64 raw and size u16 part u8 bytes…
//! bye       1d session u64 reason u8
//! ```

use core::fmt;

use super::{BufferFull, ByteReader, ByteWriter, DecodeError, VERSION};

const SUBSCRIBE: u8 = 0x10;
const ACK: u8 = 0x11;
const SNAPSHOT_REQUEST: u8 = 0x12;
const UNSUBSCRIBE: u8 = 0x13;
const CHALLENGE: u8 = 0x18;
const SUBSCRIBED: u8 = 0x19;
const SNAPSHOT_OFFER: u8 = 0x1a;
const FRAMES: u8 = 0x1b;
const SNAPSHOT_CHUNK: u8 = 0x1c;
const CLOSED: u8 = 0x1d;

const FROM_FLAG: u8 = 0x01;
const HAVE_FLAG: u8 = 0x02;
const ENDED_FLAG: u8 = 0x80;
const HASHED_FLAG: u8 = 0x80;
const FETCHING_FLAG: u8 = 0x80;
const RAW_FLAG: u16 = 0x8000;

/// The most spans of frames one packet asks for.
pub const MAX_FRAME_RANGES: usize = 8;
/// The most blocks of a snapshot one packet asks for.
pub const MAX_BLOCK_REQUESTS: usize = 32;
/// The most frames in one record.
pub const MAX_RECORD_FRAMES: u32 = 127;
/// The most a feed can slow a watcher down: to one packet for so many batches, as a power of two.
pub const MAX_THINNING_LEVEL: u8 = 7;

/// Whether a datagram belongs to a feed, if it is anything.
pub fn is_feed(bytes: &[u8]) -> bool {
    bytes.first().is_some_and(|first| first & 0xf0 == 0x10)
}

/// A packet of a feed or of one who watches it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FeedMessage<'a> {
    /// Let me watch.
    Subscribe(Subscribe),
    /// This is what I have and what I miss.
    Ack(FeedAck),
    /// Give me parts of a snapshot.
    SnapshotRequest(SnapshotRequest),
    /// I watch no more.
    Unsubscribe {
        /// The session's number.
        session_id: u64,
    },
    /// Say that again with this token, so that I know that you are where you say you are.
    Challenge {
        /// The session's number.
        session_id: u64,
        /// What to say.
        token: u64,
    },
    /// You may watch.
    Subscribed(Subscribed),
    /// Here is a snapshot to begin with.
    SnapshotOffer(SnapshotOffer),
    /// What was played.
    Frames(FeedFrames<'a>),
    /// A part of a snapshot.
    SnapshotChunk(SnapshotChunk<'a>),
    /// You do not watch any more, or never did.
    Closed {
        /// The session's number.
        session_id: u64,
        /// Why.
        reason: CloseReason,
    },
}

/// Asks to watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subscribe {
    /// The session's number.
    pub session_id: u64,
    /// A digest of the settings.
    pub settings_digest: u64,
    /// What the feed told to say; 0 if nothing yet.
    pub token: u64,
    /// The first frame that is needed; `None` for whatever follows on a snapshot.
    pub first_frame: Option<u32>,
    /// The digest of a snapshot of which some is here already.
    pub known_snapshot: Option<u64>,
}

/// Says what has arrived and what is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeedAck {
    /// The session's number.
    pub session_id: u64,
    /// The first frame that has not arrived, all before it being here or of no interest.
    pub next_frame: u32,
    /// Whether a snapshot is still awaited or downloaded.
    pub is_fetching_snapshot: bool,
    /// Frames that are asked for.
    pub missing: FrameRanges,
}

/// Stretches of frames, as pairs of (frames skipped since the end of the one before, frames meant).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct FrameRanges {
    ranges: [(u32, u32); MAX_FRAME_RANGES],
    len: u8,
}

impl FrameRanges {
    /// Adds a stretch; `false` when there is no room, or nothing in it.
    pub fn push(&mut self, skip: u32, len: u32) -> bool {
        let Some(slot) = self.ranges.get_mut(usize::from(self.len)).filter(|_| len > 0) else { return false };
        *slot = (skip, len);
        self.len += 1;
        true
    }

    /// The stretches, in order.
    pub fn iter(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.ranges[..usize::from(self.len)].iter().copied()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether no more can be added.
    pub fn is_full(&self) -> bool {
        usize::from(self.len) == MAX_FRAME_RANGES
    }
}

/// Asks for parts of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotRequest {
    /// The session's number.
    pub session_id: u64,
    /// The snapshot's number.
    pub snapshot_id: u16,
    /// What is wanted.
    pub blocks: BlockRequests,
}

/// Blocks of a snapshot, each with one bit for every part that is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct BlockRequests {
    requests: [(u32, u16); MAX_BLOCK_REQUESTS],
    len: u8,
}

impl BlockRequests {
    /// Adds parts of a block; `false` when there is no room, or no part is meant.
    pub fn push(&mut self, block: u32, parts: u16) -> bool {
        let Some(slot) = self.requests.get_mut(usize::from(self.len)).filter(|_| parts != 0) else { return false };
        *slot = (block, parts);
        self.len += 1;
        true
    }

    /// Adds one part of a block, to what is wanted of that block already if it is the last one named.
    pub fn push_part(&mut self, block: u32, part: u8) -> bool {
        let bit = 1u16.checked_shl(u32::from(part)).unwrap_or(0);
        match self.requests[..usize::from(self.len)].last_mut() {
            Some((last, parts)) if *last == block => {
                *parts |= bit;
                bit != 0
            }
            _ => self.push(block, bit),
        }
    }

    /// Blocks and parts, in order.
    pub fn iter(&self) -> impl Iterator<Item = (u32, u16)> + '_ {
        self.requests[..usize::from(self.len)].iter().copied()
    }

    /// Whether nothing is wanted.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// Says that one may watch, and what can be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subscribed {
    /// The session's number.
    pub session_id: u64,
    /// The first frame that can be had.
    pub oldest_frame: u32,
    /// The frame after the last that can be had.
    pub end_frame: u32,
    /// Frames in a batch.
    pub batch_frames: u8,
}

/// Offers a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotOffer {
    /// The session's number.
    pub session_id: u64,
    /// What the feed calls the snapshot.
    pub snapshot_id: u16,
    /// The first frame to be stepped from it.
    pub next_frame: u32,
    /// Its size in bytes.
    pub size: u32,
    /// The machine's own hash of the state.
    pub state_hash: u64,
    /// A digest of the bytes.
    pub digest: u64,
}

/// What was played.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeedFrames<'a> {
    /// Whether no frame will follow `end`.
    pub is_ended: bool,
    /// One packet comes for so many batches, as a power of two.
    pub thinning_level: u8,
    /// The frame after the last that can be had.
    pub end_frame: u32,
    /// The frames.
    pub records: FrameRecords<'a>,
}

/// The records in one packet, checked when the packet was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct FrameRecords<'a> {
    first: u32,
    bytes: &'a [u8],
}

/// Frames that follow each other, to be decoded without any other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameRecord<'a> {
    /// The first frame.
    pub first_frame: u32,
    /// How many frames.
    pub frame_count: u32,
    /// A frame before the end of the record, and the hash of the state after it.
    pub state_hash: Option<(u32, u64)>,
    /// Change tokens of [`input::code`](crate::input), the first of which starts from nothing.
    pub changes: &'a [u8],
}

impl<'a> FrameRecords<'a> {
    /// Records from their bytes, whose first gap is counted from `first` on.
    pub fn new(first: u32, bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let (mut at, mut reader) = (first, ByteReader::new(bytes));
        while !reader.is_empty() {
            get_record(&mut reader, &mut at)?;
        }
        Ok(Self { first, bytes })
    }

    /// The records in the order they were written.
    pub fn iter(&self) -> impl Iterator<Item = FrameRecord<'a>> + use<'a> {
        let (mut at, mut reader) = (self.first, ByteReader::new(self.bytes));
        core::iter::from_fn(move || (!reader.is_empty()).then(|| get_record(&mut reader, &mut at).ok()).flatten())
    }
}

fn get_record<'a>(reader: &mut ByteReader<'a>, at: &mut u32) -> Result<FrameRecord<'a>, DecodeError> {
    let first = at.checked_add(reader.varint()?).ok_or(DecodeError::Malformed)?;
    let head = reader.u8()?;
    let count = u32::from(head & !HASHED_FLAG);
    let end = first.checked_add(count).filter(|_| count > 0).ok_or(DecodeError::Malformed)?;
    let hash = if head & HASHED_FLAG != 0 {
        let back = reader.varint()?;
        let frame = end.checked_sub(back).filter(|_| back > 0).ok_or(DecodeError::Malformed)?;
        Some((frame, reader.u64()?))
    } else {
        None
    };
    let size = reader.varint()?;
    let changes = reader.take(size as usize)?;
    *at = end;
    Ok(FrameRecord { first_frame: first, frame_count: count, state_hash: hash, changes })
}

/// Writes a record without the gap in front of it, so that it can be kept and put into any packet.
pub(crate) fn put_record(writer: &mut ByteWriter<'_>, record: &FrameRecord<'_>) -> Result<(), BufferFull> {
    writer.u8(record.frame_count as u8 | if record.state_hash.is_some() { HASHED_FLAG } else { 0 })?;
    if let Some((frame, hash)) = record.state_hash {
        writer.varint((record.first_frame + record.frame_count).saturating_sub(frame))?;
        writer.put(&hash.to_le_bytes())?;
    }
    writer.varint(record.changes.len() as u32)?;
    writer.put(record.changes)
}

/// Writes the head of a packet of frames; records follow, each with its gap in front.
pub(crate) fn put_frames_header(
    writer: &mut ByteWriter<'_>,
    ended: bool,
    level: u8,
    end: u32,
    first: u32,
) -> Result<(), BufferFull> {
    writer.put(&[FRAMES, level.min(MAX_THINNING_LEVEL) | if ended { ENDED_FLAG } else { 0 }])?;
    writer.put(&end.to_le_bytes())?;
    writer.put(&first.to_le_bytes())
}

/// A part of a block of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotChunk<'a> {
    /// The snapshot's number.
    pub snapshot_id: u16,
    /// Which block.
    pub block: u32,
    /// A digest of the block as it is in the snapshot.
    pub block_hash: u64,
    /// Whether the block travels as it is, and not compressed.
    pub is_raw: bool,
    /// How many bytes the block takes as it travels; fewer than 32,768.
    pub block_len: u16,
    /// Which part of the block.
    pub part: u8,
    /// The part.
    pub bytes: &'a [u8],
}

/// Why one cannot watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// The feed speaks another version of the protocol.
    Version,
    /// The feed is of a game with other settings.
    Settings,
    /// As many watch as may.
    Full,
    /// What was asked for is not kept any more.
    TooOld,
    /// The watcher cannot keep up.
    TooSlow,
    /// Nothing was heard of the watcher for too long.
    Silent,
}

const CLOSE_REASONS: [CloseReason; 6] = [
    CloseReason::Version,
    CloseReason::Settings,
    CloseReason::Full,
    CloseReason::TooOld,
    CloseReason::TooSlow,
    CloseReason::Silent,
];

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Version => "it speaks another version of the protocol",
            Self::Settings => "it is of a game with other settings",
            Self::Full => "as many watch as may",
            Self::TooOld => "what is needed is not kept any more",
            Self::TooSlow => "the way to here is too slow to keep up",
            Self::Silent => "nothing was heard from here for too long",
        })
    }
}

impl<'a> FeedMessage<'a> {
    /// Reads a packet of a feed.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = ByteReader::new(bytes);
        let message = match reader.u8()? {
            SUBSCRIBE => Self::Subscribe(get_subscribe(&mut reader)?),
            ACK => Self::Ack(get_ack(&mut reader)?),
            SNAPSHOT_REQUEST => Self::SnapshotRequest(get_snapshot_request(&mut reader)?),
            UNSUBSCRIBE => Self::Unsubscribe { session_id: reader.u64()? },
            CHALLENGE => Self::Challenge { session_id: reader.u64()?, token: reader.u64()? },
            SUBSCRIBED => Self::Subscribed(Subscribed {
                session_id: reader.u64()?,
                oldest_frame: reader.u32()?,
                end_frame: reader.u32()?,
                batch_frames: reader.u8()?,
            }),
            SNAPSHOT_OFFER => Self::SnapshotOffer(SnapshotOffer {
                session_id: reader.u64()?,
                snapshot_id: reader.u16()?,
                next_frame: reader.u32()?,
                size: reader.u32()?,
                state_hash: reader.u64()?,
                digest: reader.u64()?,
            }),
            FRAMES => return get_frames(reader).map(Self::Frames),
            SNAPSHOT_CHUNK => return get_snapshot_chunk(reader).map(Self::SnapshotChunk),
            CLOSED => Self::Closed { session_id: reader.u64()?, reason: get_close_reason(&mut reader)? },
            _ => return Err(DecodeError::Malformed),
        };
        if reader.is_empty() { Ok(message) } else { Err(DecodeError::Malformed) }
    }

    /// Writes a packet of a feed.
    pub fn encode(&self, buf: &mut [u8]) -> Result<usize, BufferFull> {
        let mut writer = ByteWriter::new(buf);
        match self {
            Self::Subscribe(watch) => put_subscribe(&mut writer, watch)?,
            Self::Ack(ack) => put_ack(&mut writer, ack)?,
            Self::SnapshotRequest(get) => put_snapshot_request(&mut writer, get)?,
            Self::Unsubscribe { session_id: session } => put_kind(&mut writer, UNSUBSCRIBE, *session)?,
            Self::Challenge { session_id: session, token } => {
                put_kind(&mut writer, CHALLENGE, *session)?;
                writer.put(&token.to_le_bytes())?;
            }
            Self::Subscribed(welcome) => {
                put_kind(&mut writer, SUBSCRIBED, welcome.session_id)?;
                writer.put(&welcome.oldest_frame.to_le_bytes())?;
                writer.put(&welcome.end_frame.to_le_bytes())?;
                writer.u8(welcome.batch_frames)?;
            }
            Self::SnapshotOffer(offer) => put_snapshot_offer(&mut writer, offer)?,
            Self::Frames(frames) => {
                put_frames_header(
                    &mut writer,
                    frames.is_ended,
                    frames.thinning_level,
                    frames.end_frame,
                    frames.records.first,
                )?;
                writer.put(frames.records.bytes)?;
            }
            Self::SnapshotChunk(chunk) => put_snapshot_chunk(&mut writer, chunk)?,
            Self::Closed { session_id: session, reason } => {
                put_kind(&mut writer, CLOSED, *session)?;
                writer.u8(CLOSE_REASONS.iter().position(|bye| bye == reason).unwrap_or(0) as u8)?;
            }
        }
        Ok(writer.len())
    }
}

fn put_kind(writer: &mut ByteWriter<'_>, kind: u8, session: u64) -> Result<(), BufferFull> {
    writer.u8(kind)?;
    writer.put(&session.to_le_bytes())
}

fn put_subscribe(writer: &mut ByteWriter<'_>, watch: &Subscribe) -> Result<(), BufferFull> {
    writer.put(&[SUBSCRIBE, VERSION])?;
    writer.put(&watch.session_id.to_le_bytes())?;
    writer.u8(if watch.first_frame.is_some() { FROM_FLAG } else { 0 }
        | if watch.known_snapshot.is_some() { HAVE_FLAG } else { 0 })?;
    writer.put(&watch.settings_digest.to_le_bytes())?;
    writer.put(&watch.token.to_le_bytes())?;
    if let Some(from) = watch.first_frame {
        writer.put(&from.to_le_bytes())?;
    }
    if let Some(have) = watch.known_snapshot {
        writer.put(&have.to_le_bytes())?;
    }
    Ok(())
}

fn get_subscribe(reader: &mut ByteReader<'_>) -> Result<Subscribe, DecodeError> {
    let version = reader.u8()?;
    if version != VERSION {
        return Err(DecodeError::Version(version));
    }
    let session = reader.u64()?;
    let flags = reader.u8()?;
    if flags & !(FROM_FLAG | HAVE_FLAG) != 0 {
        return Err(DecodeError::Malformed);
    }
    let (settings, token) = (reader.u64()?, reader.u64()?);
    let from = if flags & FROM_FLAG != 0 { Some(reader.u32()?) } else { None };
    let have = if flags & HAVE_FLAG != 0 { Some(reader.u64()?) } else { None };
    Ok(Subscribe { session_id: session, settings_digest: settings, token, first_frame: from, known_snapshot: have })
}

fn put_ack(writer: &mut ByteWriter<'_>, ack: &FeedAck) -> Result<(), BufferFull> {
    put_kind(writer, ACK, ack.session_id)?;
    writer.put(&ack.next_frame.to_le_bytes())?;
    writer.u8(ack.missing.len | if ack.is_fetching_snapshot { FETCHING_FLAG } else { 0 })?;
    for (skip, len) in ack.missing.iter() {
        writer.varint(skip)?;
        writer.varint(len)?;
    }
    Ok(())
}

fn get_ack(reader: &mut ByteReader<'_>) -> Result<FeedAck, DecodeError> {
    let (session, next) = (reader.u64()?, reader.u32()?);
    let mut spans = FrameRanges::default();
    let count = reader.u8()?;
    for _ in 0..count & !FETCHING_FLAG {
        if !spans.push(reader.varint()?, reader.varint()?) {
            return Err(DecodeError::Malformed);
        }
    }
    Ok(FeedAck {
        session_id: session,
        next_frame: next,
        is_fetching_snapshot: count & FETCHING_FLAG != 0,
        missing: spans,
    })
}

fn put_snapshot_request(writer: &mut ByteWriter<'_>, get: &SnapshotRequest) -> Result<(), BufferFull> {
    put_kind(writer, SNAPSHOT_REQUEST, get.session_id)?;
    writer.put(&get.snapshot_id.to_le_bytes())?;
    writer.u8(get.blocks.len)?;
    for (block, parts) in get.blocks.iter() {
        writer.varint(block)?;
        writer.put(&parts.to_le_bytes())?;
    }
    Ok(())
}

fn get_snapshot_request(reader: &mut ByteReader<'_>) -> Result<SnapshotRequest, DecodeError> {
    let (session, snapshot) = (reader.u64()?, reader.u16()?);
    let mut wants = BlockRequests::default();
    for _ in 0..reader.u8()? {
        if !wants.push(reader.varint()?, reader.u16()?) {
            return Err(DecodeError::Malformed);
        }
    }
    Ok(SnapshotRequest { session_id: session, snapshot_id: snapshot, blocks: wants })
}

fn put_snapshot_offer(writer: &mut ByteWriter<'_>, offer: &SnapshotOffer) -> Result<(), BufferFull> {
    put_kind(writer, SNAPSHOT_OFFER, offer.session_id)?;
    writer.put(&offer.snapshot_id.to_le_bytes())?;
    writer.put(&offer.next_frame.to_le_bytes())?;
    writer.put(&offer.size.to_le_bytes())?;
    writer.put(&offer.state_hash.to_le_bytes())?;
    writer.put(&offer.digest.to_le_bytes())
}

fn get_frames(mut reader: ByteReader<'_>) -> Result<FeedFrames<'_>, DecodeError> {
    let flags = reader.u8()?;
    let level = flags & !ENDED_FLAG;
    let (end, first) = (reader.u32()?, reader.u32()?);
    let records = FrameRecords::new(first, reader.rest())?;
    if level > MAX_THINNING_LEVEL {
        Err(DecodeError::Malformed)
    } else {
        Ok(FeedFrames { is_ended: flags & ENDED_FLAG != 0, thinning_level: level, end_frame: end, records })
    }
}

fn put_snapshot_chunk(writer: &mut ByteWriter<'_>, chunk: &SnapshotChunk<'_>) -> Result<(), BufferFull> {
    writer.u8(SNAPSHOT_CHUNK)?;
    writer.put(&chunk.snapshot_id.to_le_bytes())?;
    writer.varint(chunk.block)?;
    writer.put(&chunk.block_hash.to_le_bytes())?;
    writer.put(&(chunk.block_len & !RAW_FLAG | if chunk.is_raw { RAW_FLAG } else { 0 }).to_le_bytes())?;
    writer.u8(chunk.part)?;
    writer.put(chunk.bytes)
}

fn get_snapshot_chunk(mut reader: ByteReader<'_>) -> Result<SnapshotChunk<'_>, DecodeError> {
    let (snapshot, block, hash) = (reader.u16()?, reader.varint()?, reader.u64()?);
    let size = reader.u16()?;
    let part = reader.u8()?;
    Ok(SnapshotChunk {
        snapshot_id: snapshot,
        block,
        block_hash: hash,
        is_raw: size & RAW_FLAG != 0,
        block_len: size & !RAW_FLAG,
        part,
        bytes: reader.rest(),
    })
}

fn get_close_reason(reader: &mut ByteReader<'_>) -> Result<CloseReason, DecodeError> {
    CLOSE_REASONS.get(usize::from(reader.u8()?)).copied().ok_or(DecodeError::Malformed)
}
