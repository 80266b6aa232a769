//! Packets that no honest participant would send: of feeds, of spectators, and of desync searches.

use coplay::frame::Frame;
use coplay::session::{DesyncMessage, HashList, RegionList};
use coplay::session::{FrameSpan, StateRegion};
use coplay::spectator_feed::message::{
    BlockRequests, CloseReason, FeedAck, FeedFrames, FeedMessage, FrameRanges, FrameRecords, SnapshotChunk,
    SnapshotOffer, SnapshotRequest, Subscribe, Subscribed,
};

use crate::site::SESSION_ID;

/// Buffer length in bytes, longer than any datagram.
const BUFFER_LEN: usize = 2_048;
/// Number of bytes of records that fill a datagram.
const RECORDS_LEN: usize = 1_100;
const BYE_REASONS: [CloseReason; 6] = [
    CloseReason::Version,
    CloseReason::Settings,
    CloseReason::Full,
    CloseReason::TooOld,
    CloseReason::TooSlow,
    CloseReason::Silent,
];

/// A forged packet: its kind, a frame near the current one, and a number for all other fields.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ForgedMessage {
    kind: u8,
    frame: u32,
    value: u32,
}

impl ForgedMessage {
    /// Creates a forged packet; `at` is the current frame, and `near` a signed offset from it in units of three frames.
    /// If the top byte of `value` is 0xff, the frame is one of the 256 highest numbers instead.
    pub(crate) fn new(kind: u8, at: u32, near: u8, value: u32) -> Self {
        let near = at.saturating_add_signed(3 * i32::from(near as i8));
        let frame = if value >> 24 == 0xff { u32::MAX - u32::from(value as u8) } else { near };
        Self { kind, frame, value }
    }

    /// Encodes the forgery as a feed message. A forged subscription takes all fields except the first frame and the
    /// known snapshot from `genuine`, an authentic message of the same kind, if there is one.
    pub(crate) fn encode_feed(&self, genuine: Option<&[u8]>) -> Vec<u8> {
        let genuine = genuine.and_then(|bytes| FeedMessage::decode(bytes).ok());
        match self.kind % 14 {
            0 => encode_feed_message(&FeedMessage::Subscribe(self.subscribe(genuine))),
            1 => encode_feed_message(&FeedMessage::Ack(self.ack())),
            2 => encode_feed_message(&FeedMessage::SnapshotRequest(self.snapshot_request())),
            3 => encode_feed_message(&FeedMessage::Unsubscribe { session_id: SESSION_ID }),
            4 => encode_feed_message(&FeedMessage::Challenge { session_id: SESSION_ID, token: self.long_value() }),
            5 | 6 => encode_feed_message(&FeedMessage::Subscribed(self.subscribed())),
            7 => encode_feed_message(&FeedMessage::SnapshotOffer(self.offer())),
            8 => encode_feed_message(&FeedMessage::SnapshotChunk(self.chunk(&self.state()))),
            9 => encode_feed_message(&FeedMessage::Closed {
                session_id: SESSION_ID,
                reason: BYE_REASONS[self.value as usize % BYE_REASONS.len()],
            }),
            10 => self.encode_frames(1),
            11 => self.encode_frames(RECORDS_LEN),
            12 => self.encode_frames(0),
            _ => self.encode_frames(9),
        }
    }

    /// Returns the first byte of feed messages of this kind.
    pub(crate) fn first_byte(&self) -> u8 {
        [0x10, 0x11, 0x12, 0x13, 0x18, 0x19, 0x19, 0x1a, 0x1c, 0x1d, 0x1b, 0x1b, 0x1b, 0x1b]
            [usize::from(self.kind % 14)]
    }

    fn long_value(&self) -> u64 {
        u64::from(self.value).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    fn subscribe(&self, genuine: Option<FeedMessage<'_>>) -> Subscribe {
        let first_frame = (self.value & 1 != 0).then_some(self.frame);
        let known_snapshot = (self.value & 2 != 0).then(|| self.long_value());
        match genuine {
            Some(FeedMessage::Subscribe(genuine)) => Subscribe { first_frame, known_snapshot, ..genuine },
            _ => Subscribe {
                session_id: SESSION_ID,
                settings_digest: self.long_value(),
                token: self.long_value(),
                first_frame,
                known_snapshot,
            },
        }
    }

    fn ack(&self) -> FeedAck {
        let mut spans = FrameRanges::default();
        let [skip, len, count, _] = self.value.to_le_bytes();
        for index in 0..u32::from(count % 9) {
            spans.push(u32::from(skip) << (index * (index & 4)), u32::from(len) << (4 * index % 28));
        }
        FeedAck {
            session_id: SESSION_ID,
            next_frame: self.frame,
            is_fetching_snapshot: self.value & 1 != 0,
            missing: spans,
        }
    }

    fn snapshot_request(&self) -> SnapshotRequest {
        let mut blocks = BlockRequests::default();
        let [snapshot, block, parts, count] = self.value.to_le_bytes();
        for index in 0..u32::from(count % 33) {
            blocks.push(u32::from(block) * index, u16::from_le_bytes([parts, parts]));
        }
        SnapshotRequest { session_id: SESSION_ID, snapshot_id: u16::from(snapshot), blocks }
    }

    fn subscribed(&self) -> Subscribed {
        let [batch, back, ahead, _] = self.value.to_le_bytes();
        let oldest = self.frame.saturating_sub(u32::from(back));
        Subscribed {
            session_id: SESSION_ID,
            oldest_frame: oldest,
            end_frame: self.frame.saturating_add(u32::from(ahead)),
            batch_frames: batch,
        }
    }

    /// Returns an offer of the forged [`state`](Self::state), which fits into one part. Size, hash and digest may be
    /// wrong.
    fn offer(&self) -> SnapshotOffer {
        let state = self.state();
        let [kind, snapshot, ..] = self.value.to_le_bytes();
        let size = if kind >= 0xf0 { self.value } else { state.len() as u32 };
        let digest = if state.is_empty() { mix(1, 0) } else { mix(mix(1, state.len() as u64), block_digest(&state)) };
        SnapshotOffer {
            session_id: SESSION_ID,
            snapshot_id: u16::from(snapshot),
            next_frame: self.frame,
            size,
            state_hash: if kind & 1 != 0 { self.long_value() } else { 0 },
            digest: if kind & 2 != 0 { self.long_value() } else { digest },
        }
    }

    /// Returns the state that [`ForgedMessage::offer`] offers: up to 63 zeros.
    fn state(&self) -> Vec<u8> {
        vec![0; usize::from(self.value as u8 >> 2)]
    }

    fn chunk<'a>(&self, state: &'a [u8]) -> SnapshotChunk<'a> {
        let [kind, snapshot, block, part] = self.value.to_le_bytes();
        let size = if kind & 2 != 0 { u16::from_le_bytes([part, block]) } else { state.len() as u16 };
        let (block, part) = if kind & 1 != 0 { (u32::from(block), part) } else { (0, 0) };
        SnapshotChunk {
            snapshot_id: u16::from(snapshot),
            block,
            block_hash: block_digest(state),
            is_raw: kind & 1 == 0,
            block_len: size,
            part,
            bytes: state,
        }
    }

    /// Encodes a message of equal frame records, of about `bytes` bytes.
    fn encode_frames(&self, bytes: usize) -> Vec<u8> {
        let [count, flags, change, far] = self.value.to_le_bytes();
        let mut record = vec![u8::from(far & 1 != 0), (1 + count % 127) | flags & 0x80];
        if flags & 0x80 != 0 {
            record.push(1 + far % 9);
            record.extend(self.long_value().to_le_bytes());
        }
        let changes = [change, far, change ^ far];
        let taken = &changes[..usize::from(flags & 3)];
        record.push(taken.len() as u8);
        record.extend(taken);
        let records = record.repeat(bytes.div_ceil(record.len()));
        let Ok(records) = FrameRecords::new(self.frame, &records) else {
            return [&[0x1b, flags][..], &records].concat();
        };
        let end = self.frame.saturating_add(u32::from(far) << (flags >> 2 & 15));
        encode_feed_message(&FeedMessage::Frames(FeedFrames {
            is_ended: flags & 0x40 != 0,
            thinning_level: far & 7,
            end_frame: end,
            records,
        }))
    }

    /// Encodes the forgery as a message of a desync search.
    pub(crate) fn encode_search(&self) -> Vec<u8> {
        let [low, mid, high, far] = self.value.to_le_bytes();
        let (frame, hashes) = (Frame::new(self.frame), [[low, mid, high, far]; 300]);
        let last = Frame::new(self.frame.saturating_add(u32::from(mid)));
        let span = FrameSpan::new(frame, last).or_else(|| FrameSpan::new(frame, frame)).expect("one frame is a span");
        let digest = (low & 1 != 0).then_some(self.value);
        let from = Frame::new(self.frame.saturating_add(u32::from(high)));
        let hashes = HashList::new(&hashes[..usize::from(far)]);
        let region = StateRegion { name: "r".repeat(usize::from(high & 31)), len: self.value, hash: self.value };
        let all = vec![region; usize::from(mid & 63)];
        let mut packed = [0; RECORDS_LEN];
        let regions = RegionList::pack(&all, &mut packed);
        let message = match self.kind % 7 {
            0 => DesyncMessage::HashesRequest { span, from, digest },
            1 => DesyncMessage::Hashes { span, from, digest, hashes },
            2 => DesyncMessage::CannotReplay { span, digest },
            3 => DesyncMessage::RegionsRequest { frame, from: high },
            4 => DesyncMessage::Regions { frame, from: high, total: far, regions },
            5 => DesyncMessage::PagesRequest { frame, region: high, from: self.value },
            _ => DesyncMessage::Pages { frame, region: high, from: self.value, hashes },
        };
        let mut buf = [0; BUFFER_LEN];
        message.encode(&mut buf).map(|len| buf[..len].to_vec()).unwrap_or_default()
    }
}

fn encode_feed_message(message: &FeedMessage<'_>) -> Vec<u8> {
    let mut buf = [0; BUFFER_LEN];
    message.encode(&mut buf).map(|len| buf[..len].to_vec()).unwrap_or_default()
}

/// Returns the digest of a block, so that a forged offer looks valid.
fn block_digest(bytes: &[u8]) -> u64 {
    let words = bytes.chunks_exact(8).map(|word| word.try_into().expect("eight bytes"));
    let mut tail = [0; 8];
    let rest = bytes.chunks_exact(8).remainder();
    tail[..rest.len()].copy_from_slice(rest);
    words.chain([tail]).map(u64::from_le_bytes).fold(mix(0, bytes.len() as u64), mix)
}

fn mix(digest: u64, number: u64) -> u64 {
    let product = u128::from(digest ^ 0x9e37_79b9_7f4a_7c15) * u128::from(number ^ 0xd6e8_feb8_6659_fd93 | 1);
    let folded = (product as u64 ^ (product >> 64) as u64).wrapping_add(number.rotate_left(32));
    let spread = (folded ^ folded >> 32).wrapping_mul(0xe703_7ed1_a0b4_28db);
    spread ^ spread >> 29
}
