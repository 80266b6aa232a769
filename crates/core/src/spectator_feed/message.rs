//! Packets of the spectator feed: subscriptions, requests, frames and snapshots.
//!
//! The first byte is 0x10 to 0x1f and selects the type. A spectator's packet always carries the session id. A feed's
//! packet carries it only where the spectator may not know the feed yet; later the address is enough, as it is for
//! ticks.
//!
//! A spectator's first packet is longer than the answer to it, so a feed cannot be abused to amplify traffic to a third
//! party.
//!
//! ```text
//! subscribe        10 version session u64 flags settings u64 token u64 [from u32] [have u64]
//! ack              11 session u64 next u32 fetching and count (skip varint, len varint)…
//! snapshot request 12 session u64 snapshot u16 count (block varint, parts u16)…
//! unsubscribe      13 session u64
//! challenge        18 session u64 token u64
//! subscribed       19 session u64 oldest u32 end u32 batch u8
//! snapshot offer   1a session u64 snapshot u16 next u32 size u32 hash u64 digest u64
//! frames           1b flags end u32 first u32 (gap varint, count, [back varint, hash u64], size varint, changes)…
//! snapshot chunk   1c snapshot u16 block varint hash u64 raw and size u16 part u8 bytes…
//! closed           1d session u64 reason u8
//! ```

use core::fmt;

use crate::codec::{BufferFull, ByteReader, ByteWriter, DecodeError, VERSION};

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

/// Largest number of frame ranges that one packet requests.
pub const MAX_FRAME_RANGES: usize = 8;
/// Largest number of snapshot blocks that one packet requests.
pub const MAX_BLOCK_REQUESTS: usize = 32;
/// Largest number of frames in a record.
pub const MAX_RECORD_FRAMES: u32 = 127;
/// Highest thinning level that a packet can state. At level n, a spectator gets one live packet per 2^n batches.
pub const MAX_THINNING_LEVEL: u8 = 7;

/// Returns whether a datagram, if valid, belongs to a spectator feed.
pub fn is_feed(bytes: &[u8]) -> bool {
    bytes.first().is_some_and(|first| first & 0xf0 == 0x10)
}

/// A packet from a spectator to a feed, or from a feed to a spectator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FeedMessage<'a> {
    /// A spectator's request for a subscription.
    Subscribe(Subscribe),
    /// A spectator's report of received and missing frames.
    Ack(FeedAck),
    /// A spectator's request for parts of a snapshot.
    SnapshotRequest(SnapshotRequest),
    /// End of a subscription, sent by the spectator.
    Unsubscribe {
        /// Id of the session that the feed publishes.
        session_id: u64,
    },
    /// A feed's demand that the spectator repeat its subscribe request with this token, which proves the spectator's
    /// address.
    Challenge {
        /// Id of the session that the feed publishes.
        session_id: u64,
        /// Token to return in [`Subscribe::token`].
        token: u64,
    },
    /// A feed's confirmation of a subscription.
    Subscribed(Subscribed),
    /// A feed's offer of a snapshot to start from.
    SnapshotOffer(SnapshotOffer),
    /// Confirmed frames, sent by the feed.
    Frames(FeedFrames<'a>),
    /// A part of a snapshot, sent by the feed.
    SnapshotChunk(SnapshotChunk<'a>),
    /// A feed's refusal or end of a subscription.
    Closed {
        /// Id of the session that the feed publishes.
        session_id: u64,
        /// Reason for the refusal or the end.
        reason: CloseReason,
    },
}

/// A spectator's request for a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subscribe {
    /// Id of the session that the feed publishes.
    pub session_id: u64,
    /// Digest of the spectator's session settings. A feed with other settings refuses the subscription.
    pub settings_digest: u64,
    /// Token issued by the feed; 0 if there is none yet.
    pub token: u64,
    /// First frame that the spectator needs; `None` to start from a snapshot.
    pub first_frame: Option<u32>,
    /// Digest of a snapshot of which the spectator has already downloaded parts.
    pub known_snapshot: Option<u64>,
}

/// A spectator's report of received and missing frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeedAck {
    /// Id of the session that the feed publishes.
    pub session_id: u64,
    /// The first frame that has not arrived. All earlier ones have arrived or are not needed.
    pub next_frame: u32,
    /// Whether the spectator still waits for a snapshot or downloads one.
    pub is_fetching_snapshot: bool,
    /// Missing frames that the spectator requests, counted from `next_frame`.
    pub missing: FrameRanges,
}

/// Ranges of frames, as pairs of frame counts: frames skipped since the end of the previous range, frames in the range.
/// The first pair counts from [`FeedAck::next_frame`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct FrameRanges {
    ranges: [(u32, u32); MAX_FRAME_RANGES],
    len: u8,
}

impl FrameRanges {
    /// Adds a range. Returns `false` when there is no room or the range is empty.
    pub fn push(&mut self, skip: u32, len: u32) -> bool {
        let Some(slot) = self.ranges.get_mut(usize::from(self.len)).filter(|_| len > 0) else { return false };
        *slot = (skip, len);
        self.len += 1;
        true
    }

    /// Iterates over the ranges in the order in which they were added.
    pub fn iter(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.ranges[..usize::from(self.len)].iter().copied()
    }

    /// Returns whether there are no ranges.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns whether no range can be added.
    pub fn is_full(&self) -> bool {
        usize::from(self.len) == MAX_FRAME_RANGES
    }
}

/// A spectator's request for parts of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotRequest {
    /// Id of the session that the feed publishes.
    pub session_id: u64,
    /// Id from the feed's [`SnapshotOffer`].
    pub snapshot_id: u16,
    /// Requested blocks of the snapshot and the parts of each.
    pub blocks: BlockRequests,
}

/// Blocks of a snapshot, each with a bit mask of the requested parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct BlockRequests {
    requests: [(u32, u16); MAX_BLOCK_REQUESTS],
    len: u8,
}

impl BlockRequests {
    /// Adds parts of a block. Returns `false` when there is no room or the mask is empty.
    pub fn push(&mut self, block: u32, parts: u16) -> bool {
        let Some(slot) = self.requests.get_mut(usize::from(self.len)).filter(|_| parts != 0) else { return false };
        *slot = (block, parts);
        self.len += 1;
        true
    }

    /// Adds one part of a block, to the last entry if that is for the same block. Returns `false` when there is no room
    /// or `part` is above 15.
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

    /// Iterates over blocks and part masks in the order in which they were added.
    pub fn iter(&self) -> impl Iterator<Item = (u32, u16)> + '_ {
        self.requests[..usize::from(self.len)].iter().copied()
    }

    /// Returns whether nothing is requested.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// A feed's confirmation of a subscription, with the range of available frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subscribed {
    /// Id of the session that the feed publishes.
    pub session_id: u64,
    /// Oldest frame that the feed can send.
    pub oldest_frame: u32,
    /// Frame after the newest one that the feed can send.
    pub end_frame: u32,
    /// Number of frames that the feed combines into one batch.
    pub batch_frames: u8,
}

/// A feed's offer of a snapshot to start from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotOffer {
    /// Id of the session that the feed publishes.
    pub session_id: u64,
    /// Snapshot id, assigned by the feed.
    pub snapshot_id: u16,
    /// The first frame to step from the snapshot.
    pub next_frame: u32,
    /// Size of the uncompressed state in bytes.
    pub size: u32,
    /// The machine's own hash of the state.
    pub state_hash: u64,
    /// Digest of the size and of all blocks, by which a download can continue at another feed.
    pub digest: u64,
}

/// Confirmed frames, sent by a feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeedFrames<'a> {
    /// Whether the game is over, so that `end_frame` is the frame after its last one.
    pub is_ended: bool,
    /// Thinning level n, the spectator's thinning level at the feed: the spectator gets one live packet per 2^n
    /// batches.
    pub thinning_level: u8,
    /// Frame after the newest one that the feed has published.
    pub end_frame: u32,
    /// Frames in this packet.
    pub records: FrameRecords<'a>,
}

/// The records of one packet, validated when the packet was decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct FrameRecords<'a> {
    first: u32,
    bytes: &'a [u8],
}

/// Consecutive frames that decode independently of other records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameRunRecord<'a> {
    /// First frame of the record.
    pub first_frame: u32,
    /// Number of frames, 1 to [`MAX_RECORD_FRAMES`].
    pub frame_count: u32,
    /// A frame before the end of the record, and the state hash after that frame; `None` in most records.
    pub state_hash: Option<(u32, u64)>,
    /// Change tokens of [`input::delta_codec`](crate::input), the first of which starts from neutral input.
    pub changes: &'a [u8],
}

impl<'a> FrameRecords<'a> {
    /// Validates encoded records. In front of each record is its gap, the number of frames between the end of the
    /// previous record and its first frame. The gap of the first record counts from `first`.
    pub fn new(first: u32, bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let (mut at, mut reader) = (first, ByteReader::new(bytes));
        while !reader.is_empty() {
            get_record(&mut reader, &mut at)?;
        }
        Ok(Self { first, bytes })
    }

    /// Iterates over the records in packet order.
    pub fn iter(&self) -> impl Iterator<Item = FrameRunRecord<'a>> + use<'a> {
        let (mut at, mut reader) = (self.first, ByteReader::new(self.bytes));
        core::iter::from_fn(move || (!reader.is_empty()).then(|| get_record(&mut reader, &mut at).ok()).flatten())
    }
}

fn get_record<'a>(reader: &mut ByteReader<'a>, at: &mut u32) -> Result<FrameRunRecord<'a>, DecodeError> {
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
    Ok(FrameRunRecord { first_frame: first, frame_count: count, state_hash: hash, changes })
}

/// Encodes a record without the gap in front of it, so that it can be stored and copied into any packet.
pub(crate) fn put_record(writer: &mut ByteWriter<'_>, record: &FrameRunRecord<'_>) -> Result<(), BufferFull> {
    writer.u8(record.frame_count as u8 | if record.state_hash.is_some() { HASHED_FLAG } else { 0 })?;
    if let Some((frame, hash)) = record.state_hash {
        writer.varint((record.first_frame + record.frame_count).saturating_sub(frame))?;
        writer.put(&hash.to_le_bytes())?;
    }
    writer.varint(record.changes.len() as u32)?;
    writer.put(record.changes)
}

/// Encodes the header of a frames packet. Records follow, each with its gap in front.
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
    /// Id from the feed's [`SnapshotOffer`].
    pub snapshot_id: u16,
    /// Number of the block in the snapshot.
    pub block: u32,
    /// Digest of the uncompressed block.
    pub block_hash: u64,
    /// Whether the block is sent uncompressed.
    pub is_raw: bool,
    /// Transfer size of the block in bytes, less than 32,768.
    pub block_len: u16,
    /// Number of the part in the block.
    pub part: u8,
    /// Bytes of the part in the transfer encoding.
    pub bytes: &'a [u8],
}

/// Reason that a subscription is refused or ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// The feed uses a different protocol version.
    Version,
    /// The feed's game has different settings.
    Settings,
    /// The feed has as many spectators as it accepts, or accepts none any more.
    Full,
    /// The requested frames or snapshot are no longer kept.
    TooOld,
    /// The spectator does not keep up with the game, for example because its link is too slow.
    TooSlow,
    /// The spectator was silent for too long, or the feed does not know it.
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
            Self::Version => "the protocol versions of the two sites differ",
            Self::Settings => "the game settings of the two sites differ",
            Self::Full => "the feed has no room for more spectators",
            Self::TooOld => "the requested frames or snapshot are no longer available",
            Self::TooSlow => "the link to the spectator is too slow to keep up with the game",
            Self::Silent => "the spectator was silent for too long",
        })
    }
}

impl<'a> FeedMessage<'a> {
    /// Decodes a packet of a spectator feed.
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

    /// Encodes a packet of a spectator feed and returns its length in bytes.
    pub fn encode(&self, buf: &mut [u8]) -> Result<usize, BufferFull> {
        let mut writer = ByteWriter::new(buf);
        match self {
            Self::Subscribe(subscribe) => put_subscribe(&mut writer, subscribe)?,
            Self::Ack(ack) => put_ack(&mut writer, ack)?,
            Self::SnapshotRequest(request) => put_snapshot_request(&mut writer, request)?,
            Self::Unsubscribe { session_id: session } => put_kind(&mut writer, UNSUBSCRIBE, *session)?,
            Self::Challenge { session_id: session, token } => {
                put_kind(&mut writer, CHALLENGE, *session)?;
                writer.put(&token.to_le_bytes())?;
            }
            Self::Subscribed(subscribed) => {
                put_kind(&mut writer, SUBSCRIBED, subscribed.session_id)?;
                writer.put(&subscribed.oldest_frame.to_le_bytes())?;
                writer.put(&subscribed.end_frame.to_le_bytes())?;
                writer.u8(subscribed.batch_frames)?;
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
                writer.u8(CLOSE_REASONS.iter().position(|known| known == reason).unwrap_or(0) as u8)?;
            }
        }
        Ok(writer.len())
    }
}

fn put_kind(writer: &mut ByteWriter<'_>, kind: u8, session: u64) -> Result<(), BufferFull> {
    writer.u8(kind)?;
    writer.put(&session.to_le_bytes())
}

fn put_subscribe(writer: &mut ByteWriter<'_>, subscribe: &Subscribe) -> Result<(), BufferFull> {
    writer.put(&[SUBSCRIBE, VERSION])?;
    writer.put(&subscribe.session_id.to_le_bytes())?;
    writer.u8(if subscribe.first_frame.is_some() { FROM_FLAG } else { 0 }
        | if subscribe.known_snapshot.is_some() { HAVE_FLAG } else { 0 })?;
    writer.put(&subscribe.settings_digest.to_le_bytes())?;
    writer.put(&subscribe.token.to_le_bytes())?;
    if let Some(first_frame) = subscribe.first_frame {
        writer.put(&first_frame.to_le_bytes())?;
    }
    if let Some(digest) = subscribe.known_snapshot {
        writer.put(&digest.to_le_bytes())?;
    }
    Ok(())
}

fn get_subscribe(reader: &mut ByteReader<'_>) -> Result<Subscribe, DecodeError> {
    let version = reader.u8()?;
    if version != VERSION {
        return Err(DecodeError::Version(version));
    }
    let session_id = reader.u64()?;
    let flags = reader.u8()?;
    if flags & !(FROM_FLAG | HAVE_FLAG) != 0 {
        return Err(DecodeError::Malformed);
    }
    let (settings_digest, token) = (reader.u64()?, reader.u64()?);
    let first_frame = if flags & FROM_FLAG != 0 { Some(reader.u32()?) } else { None };
    let known_snapshot = if flags & HAVE_FLAG != 0 { Some(reader.u64()?) } else { None };
    Ok(Subscribe { session_id, settings_digest, token, first_frame, known_snapshot })
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

fn put_snapshot_request(writer: &mut ByteWriter<'_>, request: &SnapshotRequest) -> Result<(), BufferFull> {
    put_kind(writer, SNAPSHOT_REQUEST, request.session_id)?;
    writer.put(&request.snapshot_id.to_le_bytes())?;
    writer.u8(request.blocks.len)?;
    for (block, parts) in request.blocks.iter() {
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
