//! The bytes of the packets of a feed, written out by hand. Whoever changes one of these changes the protocol, and its version with
//! it.

use coplay::wire::{
    Ack, Bye, Chunk, Error, FeedMessage, Frames, Get, MAX_DATAGRAM, MAX_SPANS, MAX_WANTS, Offer, Records, Spans,
    VERSION, Wants, Watch, Welcome, is_feed,
};

/// A datagram field by field, in hexadecimal.
type Golden = &'static [&'static str];

const SESSION: u64 = 0x0123_4567_89ab_cdef;

const WATCH: Golden = &[
    "10",               // kind
    "04",               // version
    "efcdab8967452301", // session
    "03",               // flags: from, have
    "0807060504030201", // settings
    "1817161514131211", // token
    "88130000",         // from: frame 5000
    "2827262524232221", // have
];

const PLAIN_WATCH: Golden = &[
    "10",               // kind
    "04",               // version
    "efcdab8967452301", // session
    "00",               // flags: a snapshot is wanted, and none of it is here
    "0807060504030201", // settings
    "0000000000000000", // token: none yet
];

const ACK: Golden = &[
    "11",               // kind
    "efcdab8967452301", // session
    "e8030000",         // next: frame 1000
    "82",               // a snapshot is awaited; two stretches
    "0006",             // the next 6 frames
    "ac020c",           // 300 frames later, 12
];

const GET: Golden = &[
    "12",               // kind
    "efcdab8967452301", // session
    "0700",             // snapshot 7
    "02",               // two blocks
    "00ff7f",           // block 0: parts 0 to 14
    "ac020100",         // block 300: part 0
];

const LEAVE: Golden = &[
    "13",               // kind
    "efcdab8967452301", // session
];

const CHALLENGE: Golden = &[
    "18",               // kind
    "efcdab8967452301", // session
    "1817161514131211", // token
];

const WELCOME: Golden = &[
    "19",               // kind
    "efcdab8967452301", // session
    "64000000",         // oldest: frame 100
    "e8030000",         // end: frame 1000
    "06",               // frames in a batch
];

const OFFER: Golden = &[
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
    "82",               // flags: the game is over; one packet for 4 batches
    "f8030000",         // end: frame 1016
    "e8030000",         // first: frame 1000
    "00",               // gap: none
    "06",               // 6 frames
    "03",               // 3 bytes
    "011109",           // changes
    "04",               // gap: 4 frames
    "86",               // 6 frames, and a hash
    "02",               // hash: of the last but one
    "0807060504030201", // hash
    "01",               // 1 byte
    "00",               // changes: nothing is pressed
];

const CHUNK: Golden = &[
    "1c",               // kind
    "0700",             // snapshot 7
    "ac02",             // block 300
    "0807060504030201", // hash
    "0080",             // raw; the size follows in the same bits
    "02",               // part 2
    "aabbcc",           // bytes
];

const BYE: Golden = &[
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

fn spans() -> Spans {
    let mut spans = Spans::default();
    assert!(spans.push(0, 6) && spans.push(300, 12));
    spans
}

fn wants() -> Wants {
    let mut wants = Wants::default();
    assert!(wants.push(0, 0x7fff) && wants.push_part(300, 0));
    wants
}

fn all() -> Vec<(Golden, FeedMessage<'static>)> {
    let (settings, token, session) = (0x0102_0304_0506_0708, 0x1112_1314_1516_1718, SESSION);
    const RECORDS: &[u8] = &[0, 6, 3, 1, 0x11, 9, 4, 0x86, 2, 8, 7, 6, 5, 4, 3, 2, 1, 1, 0];
    let records = Records::new(1_000, RECORDS).expect("sound records");
    let watch = Watch { session, settings, token, from: Some(5_000), have: Some(0x2122_2324_2526_2728) };
    let offer = Offer { session, snapshot: 7, next: 1_000, size: 1 << 20, hash: settings, digest: token };
    let chunk =
        Chunk { snapshot: 7, block: 300, hash: settings, raw: true, size: 0, part: 2, bytes: &[0xaa, 0xbb, 0xcc] };
    vec![
        (WATCH, FeedMessage::Watch(watch)),
        (PLAIN_WATCH, FeedMessage::Watch(Watch { token: 0, from: None, have: None, ..watch })),
        (ACK, FeedMessage::Ack(Ack { session, next: 1_000, fetching: true, spans: spans() })),
        (GET, FeedMessage::Get(Get { session, snapshot: 7, wants: wants() })),
        (LEAVE, FeedMessage::Leave { session }),
        (CHALLENGE, FeedMessage::Challenge { session, token }),
        (WELCOME, FeedMessage::Welcome(Welcome { session, oldest: 100, end: 1_000, batch: 6 })),
        (OFFER, FeedMessage::Offer(offer)),
        (FRAMES, FeedMessage::Frames(Frames { ended: true, level: 2, end: 1_016, records })),
        (CHUNK, FeedMessage::Chunk(chunk)),
        (BYE, FeedMessage::Bye { session, reason: Bye::TooSlow }),
    ]
}

#[test]
fn every_packet_has_its_bytes() {
    for (golden, message) in all() {
        let (golden, mut buf) = (bytes(golden), [0; MAX_DATAGRAM]);
        let len = message.encode(&mut buf).expect("room for a packet");
        assert_eq!(buf[..len], golden, "{message:?}");
        assert_eq!(FeedMessage::decode(&golden), Ok(message));
        assert!(is_feed(&golden));
    }
}

#[test]
fn a_packet_cut_short_or_too_long_is_none() {
    for (golden, message) in all() {
        let whole = bytes(golden);
        let open_ended = matches!(message, FeedMessage::Chunk(_));
        for len in 0..whole.len() {
            let cut = FeedMessage::decode(&whole[..len]);
            let ends_with_a_record = matches!(message, FeedMessage::Frames(_)) && (len == 10 || len == 16);
            assert_eq!(cut.is_ok(), (open_ended && len >= 16) || ends_with_a_record, "{message:?} cut to {len}");
        }
        let longer = [&whole[..], &[0]].concat();
        assert_eq!(FeedMessage::decode(&longer).is_ok(), open_ended, "{message:?}");
    }
}

#[test]
fn records_tell_their_frames_and_hashes() {
    let whole = bytes(FRAMES);
    let Ok(FeedMessage::Frames(frames)) = FeedMessage::decode(&whole) else { panic!("frames") };
    let told: Vec<_> = frames.records.iter().map(|record| (record.first, record.count, record.hash)).collect();
    assert_eq!(told, [(1_000, 6, None), (1_010, 6, Some((1_014, 0x0102_0304_0506_0708)))]);
}

#[test]
fn what_no_one_would_send_is_malformed() {
    for nonsense in [
        "11efcdab8967452301e8030000010000",       // a stretch of no frames
        "12efcdab89674523010700010000 00",        // a block without parts
        "1befe8030000e8030000",                   // slower than the slowest
        "1b00e8030000e8030000000001",             // a record of no frames
        "1b00e8030000ffffffff00020101",           // frames after the last there can be
        "1b00e8030000e803000000860000",           // the hash of a frame after the record
        "1defcdab896745230106",                   // a reason that there is not
        "1004efcdab8967452301040000000000000000", // a flag that there is not
        "14efcdab8967452301",                     // a kind that there is not
    ] {
        let digits: String = nonsense.split_whitespace().collect();
        let bytes: Vec<u8> =
            (0..digits.len() / 2).map(|at| u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).unwrap()).collect();
        assert_eq!(FeedMessage::decode(&bytes), Err(Error::Malformed), "{nonsense}");
    }
    let mut other = bytes(WATCH);
    other[1] = VERSION + 1;
    assert_eq!(FeedMessage::decode(&other), Err(Error::Version(VERSION + 1)));
}

#[test]
fn lists_have_a_bound() {
    let (mut spans, mut wants) = (Spans::default(), Wants::default());
    assert!(!spans.push(1, 0) && !wants.push(1, 0) && !wants.push_part(1, 16));
    assert!((0..MAX_SPANS).all(|_| spans.push(1, 1)) && !spans.push(1, 1) && spans.is_full());
    assert!((0..MAX_WANTS as u32).all(|block| wants.push_part(block, 15)) && !wants.push_part(99, 0));
    assert!(wants.push_part(MAX_WANTS as u32 - 1, 3), "more of the last block still fits");
}

#[test]
fn the_answer_to_a_stranger_is_shorter_than_his_question() {
    assert!(bytes(CHALLENGE).len() < bytes(PLAIN_WATCH).len());
    assert!(bytes(BYE).len() < bytes(PLAIN_WATCH).len());
    assert!(bytes(BYE).len() < 1 + 8 + 4 + 1, "the shortest acknowledgement");
}
