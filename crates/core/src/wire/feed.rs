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

use super::{Error, Full, Reader, VERSION, Writer};

const WATCH: u8 = 0x10;
const ACK: u8 = 0x11;
const GET: u8 = 0x12;
const LEAVE: u8 = 0x13;
const CHALLENGE: u8 = 0x18;
const WELCOME: u8 = 0x19;
const OFFER: u8 = 0x1a;
const FRAMES: u8 = 0x1b;
const CHUNK: u8 = 0x1c;
const BYE: u8 = 0x1d;

const FROM: u8 = 0x01;
const HAVE: u8 = 0x02;
const ENDED: u8 = 0x80;
const HASHED: u8 = 0x80;
const FETCHING: u8 = 0x80;
const RAW: u16 = 0x8000;

/// The most spans of frames one packet asks for.
pub const MAX_SPANS: usize = 8;
/// The most blocks of a snapshot one packet asks for.
pub const MAX_WANTS: usize = 32;
/// The most frames in one record.
pub const MAX_RECORD_FRAMES: u32 = 127;
/// The most a feed can slow a watcher down: to one packet for so many batches, as a power of two.
pub const MAX_LEVEL: u8 = 7;

/// Whether a datagram belongs to a feed, if it is anything.
pub fn is_feed(bytes: &[u8]) -> bool {
    bytes.first().is_some_and(|first| first & 0xf0 == 0x10)
}

/// A packet of a feed or of one who watches it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FeedMessage<'a> {
    /// Let me watch.
    Watch(Watch),
    /// This is what I have and what I miss.
    Ack(Ack),
    /// Give me parts of a snapshot.
    Get(Get),
    /// I watch no more.
    Leave {
        /// The session's number.
        session: u64,
    },
    /// Say that again with this token, so that I know that you are where you say you are.
    Challenge {
        /// The session's number.
        session: u64,
        /// What to say.
        token: u64,
    },
    /// You may watch.
    Welcome(Welcome),
    /// Here is a snapshot to begin with.
    Offer(Offer),
    /// What was played.
    Frames(Frames<'a>),
    /// A part of a snapshot.
    Chunk(Chunk<'a>),
    /// You do not watch any more, or never did.
    Bye {
        /// The session's number.
        session: u64,
        /// Why.
        reason: Bye,
    },
}

/// Asks to watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watch {
    /// The session's number.
    pub session: u64,
    /// A digest of the settings.
    pub settings: u64,
    /// What the feed told to say; 0 if nothing yet.
    pub token: u64,
    /// The first frame that is needed; `None` for whatever follows on a snapshot.
    pub from: Option<u32>,
    /// The digest of a snapshot of which some is here already.
    pub have: Option<u64>,
}

/// Says what has arrived and what is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack {
    /// The session's number.
    pub session: u64,
    /// The first frame that has not arrived, all before it being here or of no interest.
    pub next: u32,
    /// Whether a snapshot is still awaited or downloaded.
    pub fetching: bool,
    /// Frames that are asked for.
    pub spans: Spans,
}

/// Stretches of frames, as pairs of (frames skipped since the end of the one before, frames meant).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Spans {
    spans: [(u32, u32); MAX_SPANS],
    len: u8,
}

impl Spans {
    /// Adds a stretch; `false` when there is no room, or nothing in it.
    pub fn push(&mut self, skip: u32, len: u32) -> bool {
        let Some(slot) = self.spans.get_mut(usize::from(self.len)).filter(|_| len > 0) else { return false };
        *slot = (skip, len);
        self.len += 1;
        true
    }

    /// The stretches, in order.
    pub fn iter(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.spans[..usize::from(self.len)].iter().copied()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether no more can be added.
    pub fn is_full(&self) -> bool {
        usize::from(self.len) == MAX_SPANS
    }
}

/// Asks for parts of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Get {
    /// The session's number.
    pub session: u64,
    /// The snapshot's number.
    pub snapshot: u16,
    /// What is wanted.
    pub wants: Wants,
}

/// Blocks of a snapshot, each with one bit for every part that is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Wants {
    wants: [(u32, u16); MAX_WANTS],
    len: u8,
}

impl Wants {
    /// Adds parts of a block; `false` when there is no room, or no part is meant.
    pub fn push(&mut self, block: u32, parts: u16) -> bool {
        let Some(slot) = self.wants.get_mut(usize::from(self.len)).filter(|_| parts != 0) else { return false };
        *slot = (block, parts);
        self.len += 1;
        true
    }

    /// Adds one part of a block, to what is wanted of that block already if it is the last one named.
    pub fn push_part(&mut self, block: u32, part: u8) -> bool {
        let bit = 1u16.checked_shl(u32::from(part)).unwrap_or(0);
        match self.wants[..usize::from(self.len)].last_mut() {
            Some((last, parts)) if *last == block => {
                *parts |= bit;
                bit != 0
            }
            _ => self.push(block, bit),
        }
    }

    /// Blocks and parts, in order.
    pub fn iter(&self) -> impl Iterator<Item = (u32, u16)> + '_ {
        self.wants[..usize::from(self.len)].iter().copied()
    }

    /// Whether nothing is wanted.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// Says that one may watch, and what can be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// The session's number.
    pub session: u64,
    /// The first frame that can be had.
    pub oldest: u32,
    /// The frame after the last that can be had.
    pub end: u32,
    /// Frames in a batch.
    pub batch: u8,
}

/// Offers a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The session's number.
    pub session: u64,
    /// What the feed calls the snapshot.
    pub snapshot: u16,
    /// The first frame to be stepped from it.
    pub next: u32,
    /// Its size in bytes.
    pub size: u32,
    /// The machine's own hash of the state.
    pub hash: u64,
    /// A digest of the bytes.
    pub digest: u64,
}

/// What was played.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frames<'a> {
    /// Whether no frame will follow `end`.
    pub ended: bool,
    /// One packet comes for so many batches, as a power of two.
    pub level: u8,
    /// The frame after the last that can be had.
    pub end: u32,
    /// The frames.
    pub records: Records<'a>,
}

/// The records in one packet, checked when the packet was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Records<'a> {
    first: u32,
    bytes: &'a [u8],
}

/// Frames that follow each other, to be decoded without any other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// The first frame.
    pub first: u32,
    /// How many frames.
    pub count: u32,
    /// A frame before the end of the record, and the hash of the state after it.
    pub hash: Option<(u32, u64)>,
    /// Change tokens of [`input::code`](crate::input), the first of which starts from nothing.
    pub changes: &'a [u8],
}

impl<'a> Records<'a> {
    /// Records from their bytes, whose first gap is counted from `first` on.
    pub fn new(first: u32, bytes: &'a [u8]) -> Result<Self, Error> {
        let (mut at, mut reader) = (first, Reader::new(bytes));
        while !reader.is_empty() {
            get_record(&mut reader, &mut at)?;
        }
        Ok(Self { first, bytes })
    }

    /// The records in the order they were written.
    pub fn iter(&self) -> impl Iterator<Item = Record<'a>> + use<'a> {
        let (mut at, mut reader) = (self.first, Reader::new(self.bytes));
        core::iter::from_fn(move || (!reader.is_empty()).then(|| get_record(&mut reader, &mut at).ok()).flatten())
    }
}

fn get_record<'a>(reader: &mut Reader<'a>, at: &mut u32) -> Result<Record<'a>, Error> {
    let first = at.checked_add(reader.varint()?).ok_or(Error::Malformed)?;
    let head = reader.u8()?;
    let count = u32::from(head & !HASHED);
    let end = first.checked_add(count).filter(|_| count > 0).ok_or(Error::Malformed)?;
    let hash = if head & HASHED != 0 {
        let back = reader.varint()?;
        let frame = end.checked_sub(back).filter(|_| back > 0).ok_or(Error::Malformed)?;
        Some((frame, reader.u64()?))
    } else {
        None
    };
    let size = reader.varint()?;
    let changes = reader.take(size as usize)?;
    *at = end;
    Ok(Record { first, count, hash, changes })
}

/// Writes a record without the gap in front of it, so that it can be kept and put into any packet.
pub(crate) fn put_record(writer: &mut Writer<'_>, record: &Record<'_>) -> Result<(), Full> {
    writer.u8(record.count as u8 | if record.hash.is_some() { HASHED } else { 0 })?;
    if let Some((frame, hash)) = record.hash {
        writer.varint((record.first + record.count).saturating_sub(frame))?;
        writer.put(&hash.to_le_bytes())?;
    }
    writer.varint(record.changes.len() as u32)?;
    writer.put(record.changes)
}

/// Writes the head of a packet of frames; records follow, each with its gap in front.
pub(crate) fn put_frames_head(
    writer: &mut Writer<'_>,
    ended: bool,
    level: u8,
    end: u32,
    first: u32,
) -> Result<(), Full> {
    writer.put(&[FRAMES, level.min(MAX_LEVEL) | if ended { ENDED } else { 0 }])?;
    writer.put(&end.to_le_bytes())?;
    writer.put(&first.to_le_bytes())
}

/// A part of a block of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk<'a> {
    /// The snapshot's number.
    pub snapshot: u16,
    /// Which block.
    pub block: u32,
    /// A digest of the block as it is in the snapshot.
    pub hash: u64,
    /// Whether the block travels as it is, and not compressed.
    pub raw: bool,
    /// How many bytes the block takes as it travels; fewer than 32,768.
    pub size: u16,
    /// Which part of the block.
    pub part: u8,
    /// The part.
    pub bytes: &'a [u8],
}

/// Why one cannot watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bye {
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

const BYES: [Bye; 6] = [Bye::Version, Bye::Settings, Bye::Full, Bye::TooOld, Bye::TooSlow, Bye::Silent];

impl fmt::Display for Bye {
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
    pub fn decode(bytes: &'a [u8]) -> Result<Self, Error> {
        let mut reader = Reader::new(bytes);
        let message = match reader.u8()? {
            WATCH => Self::Watch(get_watch(&mut reader)?),
            ACK => Self::Ack(get_ack(&mut reader)?),
            GET => Self::Get(get_get(&mut reader)?),
            LEAVE => Self::Leave { session: reader.u64()? },
            CHALLENGE => Self::Challenge { session: reader.u64()?, token: reader.u64()? },
            WELCOME => Self::Welcome(Welcome {
                session: reader.u64()?,
                oldest: reader.u32()?,
                end: reader.u32()?,
                batch: reader.u8()?,
            }),
            OFFER => Self::Offer(Offer {
                session: reader.u64()?,
                snapshot: reader.u16()?,
                next: reader.u32()?,
                size: reader.u32()?,
                hash: reader.u64()?,
                digest: reader.u64()?,
            }),
            FRAMES => return get_frames(reader).map(Self::Frames),
            CHUNK => return get_chunk(reader).map(Self::Chunk),
            BYE => Self::Bye { session: reader.u64()?, reason: get_bye(&mut reader)? },
            _ => return Err(Error::Malformed),
        };
        if reader.is_empty() { Ok(message) } else { Err(Error::Malformed) }
    }

    /// Writes a packet of a feed.
    pub fn encode(&self, buf: &mut [u8]) -> Result<usize, Full> {
        let mut writer = Writer::new(buf);
        match self {
            Self::Watch(watch) => put_watch(&mut writer, watch)?,
            Self::Ack(ack) => put_ack(&mut writer, ack)?,
            Self::Get(get) => put_get(&mut writer, get)?,
            Self::Leave { session } => put_kind(&mut writer, LEAVE, *session)?,
            Self::Challenge { session, token } => {
                put_kind(&mut writer, CHALLENGE, *session)?;
                writer.put(&token.to_le_bytes())?;
            }
            Self::Welcome(welcome) => {
                put_kind(&mut writer, WELCOME, welcome.session)?;
                writer.put(&welcome.oldest.to_le_bytes())?;
                writer.put(&welcome.end.to_le_bytes())?;
                writer.u8(welcome.batch)?;
            }
            Self::Offer(offer) => put_offer(&mut writer, offer)?,
            Self::Frames(frames) => {
                put_frames_head(&mut writer, frames.ended, frames.level, frames.end, frames.records.first)?;
                writer.put(frames.records.bytes)?;
            }
            Self::Chunk(chunk) => put_chunk(&mut writer, chunk)?,
            Self::Bye { session, reason } => {
                put_kind(&mut writer, BYE, *session)?;
                writer.u8(BYES.iter().position(|bye| bye == reason).unwrap_or(0) as u8)?;
            }
        }
        Ok(writer.len())
    }
}

fn put_kind(writer: &mut Writer<'_>, kind: u8, session: u64) -> Result<(), Full> {
    writer.u8(kind)?;
    writer.put(&session.to_le_bytes())
}

fn put_watch(writer: &mut Writer<'_>, watch: &Watch) -> Result<(), Full> {
    writer.put(&[WATCH, VERSION])?;
    writer.put(&watch.session.to_le_bytes())?;
    writer.u8(if watch.from.is_some() { FROM } else { 0 } | if watch.have.is_some() { HAVE } else { 0 })?;
    writer.put(&watch.settings.to_le_bytes())?;
    writer.put(&watch.token.to_le_bytes())?;
    if let Some(from) = watch.from {
        writer.put(&from.to_le_bytes())?;
    }
    if let Some(have) = watch.have {
        writer.put(&have.to_le_bytes())?;
    }
    Ok(())
}

fn get_watch(reader: &mut Reader<'_>) -> Result<Watch, Error> {
    let version = reader.u8()?;
    if version != VERSION {
        return Err(Error::Version(version));
    }
    let session = reader.u64()?;
    let flags = reader.u8()?;
    if flags & !(FROM | HAVE) != 0 {
        return Err(Error::Malformed);
    }
    let (settings, token) = (reader.u64()?, reader.u64()?);
    let from = if flags & FROM != 0 { Some(reader.u32()?) } else { None };
    let have = if flags & HAVE != 0 { Some(reader.u64()?) } else { None };
    Ok(Watch { session, settings, token, from, have })
}

fn put_ack(writer: &mut Writer<'_>, ack: &Ack) -> Result<(), Full> {
    put_kind(writer, ACK, ack.session)?;
    writer.put(&ack.next.to_le_bytes())?;
    writer.u8(ack.spans.len | if ack.fetching { FETCHING } else { 0 })?;
    for (skip, len) in ack.spans.iter() {
        writer.varint(skip)?;
        writer.varint(len)?;
    }
    Ok(())
}

fn get_ack(reader: &mut Reader<'_>) -> Result<Ack, Error> {
    let (session, next) = (reader.u64()?, reader.u32()?);
    let mut spans = Spans::default();
    let count = reader.u8()?;
    for _ in 0..count & !FETCHING {
        if !spans.push(reader.varint()?, reader.varint()?) {
            return Err(Error::Malformed);
        }
    }
    Ok(Ack { session, next, fetching: count & FETCHING != 0, spans })
}

fn put_get(writer: &mut Writer<'_>, get: &Get) -> Result<(), Full> {
    put_kind(writer, GET, get.session)?;
    writer.put(&get.snapshot.to_le_bytes())?;
    writer.u8(get.wants.len)?;
    for (block, parts) in get.wants.iter() {
        writer.varint(block)?;
        writer.put(&parts.to_le_bytes())?;
    }
    Ok(())
}

fn get_get(reader: &mut Reader<'_>) -> Result<Get, Error> {
    let (session, snapshot) = (reader.u64()?, reader.u16()?);
    let mut wants = Wants::default();
    for _ in 0..reader.u8()? {
        if !wants.push(reader.varint()?, reader.u16()?) {
            return Err(Error::Malformed);
        }
    }
    Ok(Get { session, snapshot, wants })
}

fn put_offer(writer: &mut Writer<'_>, offer: &Offer) -> Result<(), Full> {
    put_kind(writer, OFFER, offer.session)?;
    writer.put(&offer.snapshot.to_le_bytes())?;
    writer.put(&offer.next.to_le_bytes())?;
    writer.put(&offer.size.to_le_bytes())?;
    writer.put(&offer.hash.to_le_bytes())?;
    writer.put(&offer.digest.to_le_bytes())
}

fn get_frames(mut reader: Reader<'_>) -> Result<Frames<'_>, Error> {
    let flags = reader.u8()?;
    let level = flags & !ENDED;
    let (end, first) = (reader.u32()?, reader.u32()?);
    let records = Records::new(first, reader.rest())?;
    if level > MAX_LEVEL {
        Err(Error::Malformed)
    } else {
        Ok(Frames { ended: flags & ENDED != 0, level, end, records })
    }
}

fn put_chunk(writer: &mut Writer<'_>, chunk: &Chunk<'_>) -> Result<(), Full> {
    writer.u8(CHUNK)?;
    writer.put(&chunk.snapshot.to_le_bytes())?;
    writer.varint(chunk.block)?;
    writer.put(&chunk.hash.to_le_bytes())?;
    writer.put(&(chunk.size & !RAW | if chunk.raw { RAW } else { 0 }).to_le_bytes())?;
    writer.u8(chunk.part)?;
    writer.put(chunk.bytes)
}

fn get_chunk(mut reader: Reader<'_>) -> Result<Chunk<'_>, Error> {
    let (snapshot, block, hash) = (reader.u16()?, reader.varint()?, reader.u64()?);
    let size = reader.u16()?;
    let part = reader.u8()?;
    Ok(Chunk { snapshot, block, hash, raw: size & RAW != 0, size: size & !RAW, part, bytes: reader.rest() })
}

fn get_bye(reader: &mut Reader<'_>) -> Result<Bye, Error> {
    BYES.get(usize::from(reader.u8()?)).copied().ok_or(Error::Malformed)
}
