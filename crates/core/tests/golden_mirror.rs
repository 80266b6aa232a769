//! Golden bytes of the packets between mirrored servers, written by hand. A change to any of them changes the layout
//! and needs a new layout version.

use coplay::clock::ClockEcho;
use coplay::codec::MAX_DATAGRAM;
use coplay::mirror::SourceId;
use coplay::mirror::message::{EncodedEvent, MirrorDatagramWriter, MirrorItem, MirrorItems, ObsoleteSet, StreamStatus};
use coplay::time::{GroupInstant, Instant, TimeDelta};

/// An item, field by field, in hexadecimal.
type Golden = &'static [&'static str];

const FAMILY: &str = "35";
const SOURCE: SourceId = SourceId(0x0403_0201);

fn bytes(golden: Golden) -> Vec<u8> {
    let text: String = std::iter::once(&FAMILY).chain(golden).copied().collect();
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

#[track_caller]
fn assert_golden(golden: Golden, item: &MirrorItem<'_>) {
    let golden = bytes(golden);
    let mut buf = [0; MAX_DATAGRAM];
    let mut datagram = MirrorDatagramWriter::new(&mut buf).unwrap();
    datagram.put(item).unwrap();
    let len = datagram.len();
    assert_eq!(buf[..len], golden);
    let read: Vec<_> = MirrorItems::new(&golden).unwrap().collect();
    assert_eq!(read, [Ok(item.clone())]);
}

#[test]
fn replacing_event_matches_golden_bytes() {
    const EVENT: Golden = &[
        "01",               // kind
        "01020304",         // source
        "ac02",             // number 300
        "40420f0000000000", // issued at 1 ms
        "0700000000000000", // key 7
        "01",               // flags: replaces
        "ac01",             // after: 172 events back, 128
        "03",               // obsolete set: three events
        "01",               // 299
        "02",               // 297
        "6f",               // 186
        "02",               // payload: two bytes
        "4869",             // payload: "Hi"
    ];
    let golden = bytes(EVENT);
    let read: Vec<_> = MirrorItems::new(&golden).unwrap().collect();
    let [Ok(item @ MirrorItem::Event(event))] = &read[..] else { panic!("{read:?}") };
    assert_eq!(event.obsolete_set.collect::<Vec<_>>(), [299, 297, 186]);
    let expected = EncodedEvent {
        source: SOURCE,
        seq: 300,
        issued_at: GroupInstant::from_nanos(1_000_000),
        key: 7,
        after: 128,
        is_barrier: false,
        replaces: true,
        obsolete_set: event.obsolete_set,
        payload: b"Hi",
    };
    assert_eq!(*event, expected);
    assert_golden(EVENT, item);
}

#[test]
fn barrier_event_matches_golden_bytes() {
    let event = EncodedEvent {
        source: SOURCE,
        seq: 5,
        issued_at: GroupInstant::from_nanos(-1),
        key: u64::MAX,
        after: 4,
        is_barrier: true,
        replaces: false,
        obsolete_set: ObsoleteSet::default(),
        payload: b"",
    };
    const EVENT: Golden = &["01", "01020304", "05", "ffffffffffffffff", "ffffffffffffffff", "02", "01", "00", "00"];
    let golden = bytes(EVENT);
    let read = MirrorItems::new(&golden).unwrap().next().unwrap().unwrap();
    let MirrorItem::Event(read) = read else { panic!("not an event") };
    assert_eq!(EncodedEvent { obsolete_set: ObsoleteSet::default(), ..read }, event);
}

#[test]
fn heartbeat_status_and_request_match_golden_bytes() {
    let at = GroupInstant::from_nanos(258);
    assert_golden(&["02", "0201000000000000", "ac02"], &MirrorItem::Heartbeat { at, last_event: 300 });
    let status = StreamStatus { source: SOURCE, oldest: 1, settled_end: 299, newest: 300 };
    assert_golden(&["03", "01020304", "01", "ab02", "ac02"], &MirrorItem::StreamStatus(status));
    assert_golden(
        &["04", "01020304", "ac02", "10"],
        &MirrorItem::EventRequest { source: SOURCE, first: 300, count: 16 },
    );
    let late_status =
        StreamStatus { source: SOURCE, oldest: 1 << 32, settled_end: (1 << 48) - 2, newest: (1 << 48) - 1 };
    assert_golden(
        &["03", "01020304", "8080808010", "feffffffffff3f", "ffffffffffff3f"],
        &MirrorItem::StreamStatus(late_status),
    );
    assert_golden(&["0b"], &MirrorItem::Leave);
}

#[test]
fn clock_items_match_golden_bytes() {
    let at = Instant::from_nanos;
    assert_golden(&["05", "fbffffffffffffff"], &MirrorItem::GroupTime(Some(TimeDelta::from_nanos(-5))));
    assert_golden(&["06"], &MirrorItem::GroupTime(None));
    assert_golden(&["07", "0100000000000000"], &MirrorItem::Probe(at(1)));
    let echo = ClockEcho { sent: at(1), received: at(2), answered: at(3) };
    assert_golden(&["08", "0100000000000000", "0200000000000000", "0300000000000000"], &MirrorItem::Echo(echo));
}

#[test]
fn snapshot_items_match_golden_bytes() {
    let request = MirrorItem::SnapshotRequest { source: SOURCE, version: 0, first_piece: 32, count: 32 };
    assert_golden(&["09", "01020304", "00", "20", "20"], &request);
    let piece = MirrorItem::SnapshotPiece { source: SOURCE, version: 9, total_len: 1_002, piece: 1, bytes: b"ab" };
    assert_golden(&["0a", "01020304", "09", "ea07", "01", "02", "6162"], &piece);
}
