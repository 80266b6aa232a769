//! Golden bytes of the packets of a spectator feed, written by hand. A change to any of them changes the protocol and
//! needs a new protocol version.

use coplay::codec::{DecodeError, MAX_DATAGRAM, VERSION};
use coplay::spectator_feed::message::{
    BlockRequests, CloseReason, FeedAck, FeedFrames, FeedMessage, FrameRanges, FrameRecords, MAX_BLOCK_REQUESTS,
    MAX_FRAME_RANGES, SnapshotChunk, SnapshotOffer, SnapshotRequest, Subscribe, Subscribed, is_feed,
};

/// A datagram, field by field, in hexadecimal.
type Golden = &'static [&'static str];

const SESSION: u64 = 0x0123_4567_89ab_cdef;

const SUBSCRIBE: Golden = &[
    "10",               // kind
    "04",               // version
    "efcdab8967452301", // session
    "03",               // flags: first frame, known snapshot
    "0807060504030201", // settings digest
    "1817161514131211", // token
    "88130000",         // first frame: 5000
    "2827262524232221", // known snapshot
];

const PLAIN_SUBSCRIBE: Golden = &[
    "10",               // kind
    "04",               // version
    "efcdab8967452301", // session
    "00",               // flags: snapshot needed, none known
    "0807060504030201", // settings digest
    "0000000000000000", // token: none yet
];

const ACK: Golden = &[
    "11",               // kind
    "efcdab8967452301", // session
    "e8030000",         // next: frame 1000
    "82",               // flags: fetching a snapshot; two ranges
    "0006",             // range: the next 6 frames
    "ac020c",           // range: 12 frames, after 300 others
];

const SNAPSHOT_REQUEST: Golden = &[
    "12",               // kind
    "efcdab8967452301", // session
    "0700",             // snapshot 7
    "02",               // two blocks
    "00ff7f",           // block 0: parts 0 to 14
    "ac020100",         // block 300: part 0
];

const UNSUBSCRIBE: Golden = &[
    "13",               // kind
    "efcdab8967452301", // session
];

const CHALLENGE: Golden = &[
    "18",               // kind
    "efcdab8967452301", // session
    "1817161514131211", // token
];

const SUBSCRIBED: Golden = &[
    "19",               // kind
    "efcdab8967452301", // session
    "64000000",         // oldest: frame 100
    "e8030000",         // end: frame 1000
    "06",               // frames per batch
];

const SNAPSHOT_OFFER: Golden = &[
    "1a",               // kind
    "efcdab8967452301", // session
    "0700",             // snapshot 7
    "e8030000",         // next: frame 1000
    "00001000",         // size: 1 MiB
    "0807060504030201", // hash
    "1817161514131211", // digest
];

const FRAMES: Golden = &[
    "1b",               // kind
    "82",               // flags: the game has ended; one packet per 4 batches
    "f8030000",         // end: frame 1016
    "e8030000",         // first: frame 1000
    "00",               // gap: none
    "06",               // 6 frames
    "03",               // 3 bytes
    "011109",           // changes
    "04",               // gap: 4 frames
    "86",               // 6 frames and a hash
    "02",               // hash: of the state after the last frame but one
    "0807060504030201", // hash
    "01",               // 1 byte
    "00",               // changes: neutral input
];

const SNAPSHOT_CHUNK: Golden = &[
    "1c",               // kind
    "0700",             // snapshot 7
    "ac02",             // block 300
    "0807060504030201", // hash
    "0080",             // flag: raw; block length in the other bits: 0
    "02",               // part 2
    "aabbcc",           // bytes
];

const CLOSED: Golden = &[
    "1d",               // kind
    "efcdab8967452301", // session
    "04",               // reason: too slow
];

fn bytes(golden: Golden) -> Vec<u8> {
    let digits: Vec<u8> = golden.iter().flat_map(|field| field.bytes()).collect();
    assert!(digits.len().is_multiple_of(2));
    let text = |pair| std::str::from_utf8(pair).expect("hexadecimal is ASCII");
    digits.chunks(2).map(|pair| u8::from_str_radix(text(pair), 16).expect("two hexadecimal digits")).collect()
}

fn frame_ranges() -> FrameRanges {
    let mut ranges = FrameRanges::default();
    assert!(ranges.push(0, 6) && ranges.push(300, 12));
    ranges
}

fn block_requests() -> BlockRequests {
    let mut requests = BlockRequests::default();
    assert!(requests.push(0, 0x7fff) && requests.push_part(300, 0));
    requests
}

fn all_messages() -> Vec<(Golden, FeedMessage<'static>)> {
    let (settings, token, session) = (0x0102_0304_0506_0708, 0x1112_1314_1516_1718, SESSION);
    const RECORDS: &[u8] = &[0, 6, 3, 1, 0x11, 9, 4, 0x86, 2, 8, 7, 6, 5, 4, 3, 2, 1, 1, 0];
    let records = FrameRecords::new(1_000, RECORDS).expect("valid records");
    let subscribe = Subscribe {
        session_id: session,
        settings_digest: settings,
        token,
        first_frame: Some(5_000),
        known_snapshot: Some(0x2122_2324_2526_2728),
    };
    let offer = SnapshotOffer {
        session_id: session,
        snapshot_id: 7,
        next_frame: 1_000,
        size: 1 << 20,
        state_hash: settings,
        digest: token,
    };
    let chunk = SnapshotChunk {
        snapshot_id: 7,
        block: 300,
        block_hash: settings,
        is_raw: true,
        block_len: 0,
        part: 2,
        bytes: &[0xaa, 0xbb, 0xcc],
    };
    vec![
        (SUBSCRIBE, FeedMessage::Subscribe(subscribe)),
        (
            PLAIN_SUBSCRIBE,
            FeedMessage::Subscribe(Subscribe { token: 0, first_frame: None, known_snapshot: None, ..subscribe }),
        ),
        (
            ACK,
            FeedMessage::Ack(FeedAck {
                session_id: session,
                next_frame: 1_000,
                is_fetching_snapshot: true,
                missing: frame_ranges(),
            }),
        ),
        (
            SNAPSHOT_REQUEST,
            FeedMessage::SnapshotRequest(SnapshotRequest {
                session_id: session,
                snapshot_id: 7,
                blocks: block_requests(),
            }),
        ),
        (UNSUBSCRIBE, FeedMessage::Unsubscribe { session_id: session }),
        (CHALLENGE, FeedMessage::Challenge { session_id: session, token }),
        (
            SUBSCRIBED,
            FeedMessage::Subscribed(Subscribed {
                session_id: session,
                oldest_frame: 100,
                end_frame: 1_000,
                batch_frames: 6,
            }),
        ),
        (SNAPSHOT_OFFER, FeedMessage::SnapshotOffer(offer)),
        (FRAMES, FeedMessage::Frames(FeedFrames { is_ended: true, thinning_level: 2, end_frame: 1_016, records })),
        (SNAPSHOT_CHUNK, FeedMessage::SnapshotChunk(chunk)),
        (CLOSED, FeedMessage::Closed { session_id: session, reason: CloseReason::TooSlow }),
    ]
}

#[test]
fn every_feed_message_matches_golden_bytes() {
    for (golden, message) in all_messages() {
        let (golden, mut buf) = (bytes(golden), [0; MAX_DATAGRAM]);
        let len = message.encode(&mut buf).expect("packet fits the buffer");
        assert_eq!(buf[..len], golden, "{message:?}");
        assert_eq!(FeedMessage::decode(&golden), Ok(message));
        assert!(is_feed(&golden));
    }
}

#[test]
fn truncated_or_overlong_message_is_rejected() {
    for (golden, message) in all_messages() {
        let whole = bytes(golden);
        let open_ended = matches!(message, FeedMessage::SnapshotChunk(_));
        for len in 0..whole.len() {
            let cut = FeedMessage::decode(&whole[..len]);
            let ends_after_a_record = matches!(message, FeedMessage::Frames(_)) && (len == 10 || len == 16);
            assert_eq!(cut.is_ok(), (open_ended && len >= 16) || ends_after_a_record, "{message:?} cut to {len}");
        }
        let longer = [&whole[..], &[0]].concat();
        assert_eq!(FeedMessage::decode(&longer).is_ok(), open_ended, "{message:?}");
    }
}

#[test]
fn frame_records_carry_frames_and_hashes() {
    let whole = bytes(FRAMES);
    let Ok(FeedMessage::Frames(frames)) = FeedMessage::decode(&whole) else { panic!("frames") };
    let decoded: Vec<_> =
        frames.records.iter().map(|record| (record.first_frame, record.frame_count, record.state_hash)).collect();
    assert_eq!(decoded, [(1_000, 6, None), (1_010, 6, Some((1_014, 0x0102_0304_0506_0708)))]);
}

#[test]
fn impossible_values_are_malformed() {
    for malformed in [
        "11efcdab8967452301e8030000010000",       // range of no frames
        "12efcdab89674523010700010000 00",        // block without parts
        "1befe8030000e8030000",                   // thinning level above the highest
        "1b00e8030000e8030000000001",             // record of no frames
        "1b00e8030000ffffffff00020101",           // frames beyond the last frame number
        "1b00e8030000e803000000860000",           // hash of a frame after the record
        "1defcdab896745230106",                   // unknown reason
        "1004efcdab8967452301040000000000000000", // unknown flag
        "14efcdab8967452301",                     // unknown type
    ] {
        let digits: String = malformed.split_whitespace().collect();
        let bytes: Vec<u8> =
            (0..digits.len() / 2).map(|at| u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).unwrap()).collect();
        assert_eq!(FeedMessage::decode(&bytes), Err(DecodeError::Malformed), "{malformed}");
    }
    let mut other = bytes(SUBSCRIBE);
    other[1] = VERSION + 1;
    assert_eq!(FeedMessage::decode(&other), Err(DecodeError::Version(VERSION + 1)));
}

#[test]
fn request_lists_are_bounded() {
    let (mut ranges, mut requests) = (FrameRanges::default(), BlockRequests::default());
    assert!(!ranges.push(1, 0) && !requests.push(1, 0) && !requests.push_part(1, 16));
    assert!((0..MAX_FRAME_RANGES).all(|_| ranges.push(1, 1)) && !ranges.push(1, 1) && ranges.is_full());
    assert!((0..MAX_BLOCK_REQUESTS as u32).all(|block| requests.push_part(block, 15)) && !requests.push_part(99, 0));
    assert!(requests.push_part(MAX_BLOCK_REQUESTS as u32 - 1, 3), "more parts of the last block still fit");
}

#[test]
fn challenge_is_shorter_than_the_subscribe_request() {
    assert!(bytes(CHALLENGE).len() < bytes(PLAIN_SUBSCRIBE).len());
    assert!(bytes(CLOSED).len() < bytes(PLAIN_SUBSCRIBE).len());
    assert!(bytes(CLOSED).len() < 1 + 8 + 4 + 1, "shorter than the shortest acknowledgement");
}
