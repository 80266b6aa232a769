//! The target `wire`: packets and inputs from arbitrary bytes.

use coplay::codec::MAX_DATAGRAM;
use coplay::frame::Frame;
use coplay::input::{STREAM_CAPACITY, Stream};
use coplay::mirror::message::MirrorItems;
use coplay::mirror::{self, Mirror, SourceId};
use coplay::motion::message as motion_message;
use coplay::motion::{ClientId, LinearPredictor, MilliVec2, MotionClient, MotionConfig, MotionServer, ObjectId};
use coplay::session::DesyncMessage;
use coplay::session::message::{Extra, Hello, SessionMessage, Tick};
use coplay::spectator_feed::message::FeedMessage;
use coplay::time::{Instant, TimeDelta};

use crate::forged_session::{decode_extras, encode_extras_tick};
use crate::script_reader::ScriptReader;

/// Input widths in bytes that exercise different branches of the decoder: no bytes, a mask inside the first number of
/// the token, one mask byte, masks for two groups of bytes, masks for 16 groups.
const WIDTHS: [usize; 5] = [0, 2, 5, 10, 128];
/// Maximum number of input fragments per run.
const MAX_PIECES: usize = 24;
/// First frame of every checked stream: the one after an input delay of 2 frames.
const START_FRAME: Frame = Frame::new(2);

/// Decodes a datagram as a message of a session, a feed, a desync search, a motion engine or a mirror, and checks that
/// each valid message, except one of a mirror, survives encoding.
pub(crate) fn check_message(data: &[u8]) {
    check_feed_and_search(data);
    check_motion(data);
    check_mirror(data);
    match SessionMessage::decode(data) {
        Ok(SessionMessage::Tick(tick)) => check_tick(data, &tick),
        Ok(SessionMessage::Hello(hello)) => check_hello(data, &hello),
        Err(_) => {}
    }
}

/// Checks that messages of feeds and desync searches have one encoding each.
fn check_feed_and_search(data: &[u8]) {
    let mut buf = vec![0; data.len()];
    if let Ok(message) = FeedMessage::decode(data) {
        assert_eq!(message.encode(&mut buf), Ok(data.len()));
        assert_eq!(buf, data, "a feed message has one encoding");
    }
    if let Ok(message) = DesyncMessage::decode(data) {
        assert_eq!(message.encode(&mut buf), Ok(data.len()));
        assert_eq!(buf, data, "a desync message has one encoding");
    }
}

/// Checks that a mirror survives the datagram and keeps less than 8 MiB.
fn check_mirror(data: &[u8]) {
    let Ok(items) = MirrorItems::new(data) else { return };
    let _ = items.count();
    let config = mirror::MirrorConfig { is_founder: true, ..mirror::MirrorConfig::new(SourceId(1)) };
    let mut mirror = Mirror::new(Instant::ZERO, config).expect("a valid configuration");
    let mut buf = [0; MAX_DATAGRAM];
    for step in 1..6 {
        let now = Instant::ZERO + TimeDelta::from_millis(step * 100);
        mirror.handle_datagram(now, SourceId(2), data);
        let _ = mirror.issue(now, mirror::NewEvent::state(7, b"here"));
        while mirror.poll_request(now).is_some() {}
        while mirror.poll_delivery(now).is_some() {}
        while mirror.poll_transmit(now, &mut buf).is_some() {}
    }
    assert!(mirror.memory() < 8 << 20, "{} bytes are kept", mirror.memory());
}

/// Checks that a motion datagram that decodes completely has one encoding, and that a server and a client survive any
/// datagram.
fn check_motion(data: &[u8]) {
    let Ok(items) = motion_message::MotionItems::new(data) else { return };
    let head = items.header();
    if let Ok(items) = items.collect::<Result<Vec<_>, _>>() {
        let mut buf = vec![0; data.len()];
        let mut datagram =
            motion_message::MotionDatagramWriter::new(&mut buf, head).expect("the encoding has the same length");
        items.into_iter().for_each(|item| datagram.put(item).expect("the encoding has the same length"));
        assert_eq!(buf, data, "a motion datagram has one encoding");
    }
    let (linear, config) = (LinearPredictor { max_speed: 1_000 }, MotionConfig::clocks(head.receiver_incarnation));
    let mut server = MotionServer::new(Instant::ZERO, config, linear).expect("a valid configuration");
    let mut client = MotionClient::new(Instant::ZERO, config, linear).expect("a valid configuration");
    let (client_id, object) = (ClientId(1), ObjectId(1));
    server.spawn(Instant::ZERO, object, Some(client_id), MilliVec2::default(), MilliVec2::default());
    client.own(object);
    let mut buf = [0; MAX_DATAGRAM];
    for step in 1..4 {
        let now = Instant::ZERO + TimeDelta::from_millis(step * 100);
        server.handle_datagram(now, client_id, data);
        client.handle_datagram(now, data);
        client.command(now, object, MilliVec2 { x: step, y: 0 });
        while server.poll_transmit(now, &mut buf).is_some() {}
        while client.poll_transmit(now, &mut buf).is_some() {}
        let _ = client.consistency(object);
    }
    assert!(server.memory() + client.memory() < 1 << 20);
}

fn check_tick(data: &[u8], tick: &Tick<'_>) {
    // A probe whose lateness exceeds the range has a second, canonical encoding.
    let mut buf = vec![0; data.len() + 8];
    let len = tick.encode(&mut buf).expect("a decoded tick can be encoded");
    let decoded = Tick::decode(&buf[..len]).expect("an encoded tick can be decoded");
    assert_eq!(*tick, decoded);
    if tick.probe.is_none_or(|probe| probe.lateness_ns.is_some()) {
        assert_eq!(buf[..len], *data, "a tick has one encoding");
    }
    let extras: Vec<Extra<'_>> = tick.extras.iter().collect();
    assert_eq!(decode_extras(&encode_extras_tick(&extras)), tick.extras, "an extra has one encoding");
    for width in WIDTHS {
        let mut stream = CheckedStream::new(width);
        for extra in &extras {
            if let Extra::Relay(relay) = extra {
                stream.receive(relay.first_frame, relay.frame_count, true, relay.changes);
            }
        }
        for resend in tick.resends.iter() {
            assert!(resend.frame_count > 0 && resend.frame_count <= resend.end_minus_first);
            if let Some(first) = (START_FRAME + u32::from(tick.end)).checked_sub(resend.end_minus_first) {
                stream.receive(first, resend.frame_count, true, resend.changes);
            }
        }
        let len = tick.frame_count.max(1);
        for first in [START_FRAME, START_FRAME + len, START_FRAME + u32::from(tick.end)] {
            stream.receive(first, len, tick.is_absolute, tick.changes);
        }
    }
}

fn check_hello(data: &[u8], hello: &Hello) {
    let mut buf = vec![0; data.len()];
    let len = hello.encode(&mut buf).expect("a decoded hello can be encoded in the same length");
    assert_eq!(buf[..len], *data, "a hello has one encoding");
    assert_eq!(Hello::decode(&buf).as_ref(), Ok(hello));
    let settings = &hello.settings;
    assert_eq!(settings.differences(settings), []);
    let _ = settings.check();
}

/// Decodes the bytes as input changes: all of them at once, then as fragments that start with kind, first frame and
/// length.
pub(crate) fn check_streams(data: &[u8]) {
    for width in WIDTHS {
        for absolute in [false, true] {
            let mut stream = CheckedStream::new(width);
            stream.receive(START_FRAME, 200, absolute, data);
            stream.receive(START_FRAME + 100, 250, !absolute, data);
        }
        let (mut stream, mut bytes) = (CheckedStream::new(width), ScriptReader::new(data));
        for _ in 0..MAX_PIECES {
            if bytes.is_empty() {
                break;
            }
            let kind = bytes.u8();
            let (first, len) = (u32::from(bytes.u8()) + 256 * u32::from(kind >> 1 & 3), 1 + u32::from(bytes.u8()));
            let changes = bytes.take(usize::from(kind >> 3));
            stream.receive(START_FRAME + first, len, kind & 1 != 0, changes);
        }
    }
}

/// A stream whose invariants are checked at every step.
struct CheckedStream {
    stream: Stream,
    /// First, middle and last input of each fragment, as frame and first byte of the input.
    known_inputs: Vec<(Frame, Option<u8>)>,
}

impl CheckedStream {
    fn new(width: usize) -> Self {
        Self { stream: Stream::new(width, START_FRAME), known_inputs: Vec::new() }
    }

    fn receive(&mut self, first: Frame, len: u32, absolute: bool, changes: &[u8]) {
        let before = (self.stream.end(), self.stream.received_end());
        let received = self.stream.receive(first, len, absolute, changes);
        let (end, top) = (self.stream.end(), self.stream.received_end());
        assert!(end <= top, "{end} is after {top}");
        assert!(top - end <= STREAM_CAPACITY as i64 / 2, "{top} is too far from {end}");
        match received {
            Ok(()) => assert!(before.0 <= end && before.1 <= top, "received inputs stay"),
            Err(_) => assert_eq!(before, (end, top), "a rejected fragment changes nothing"),
        }
        if received.is_ok() {
            assert!(self.stream.contains(first + (len - 1)), "an accepted input is present");
        }
        assert_eq!(self.stream.value(top), None);
        self.check_known();
        self.record_known(first, len);
    }

    /// Checks that known inputs stay unchanged until they are discarded.
    fn check_known(&self) {
        for (frame, first) in &self.known_inputs {
            if let Some(value) = self.stream.value(*frame) {
                assert_eq!(value.first(), first.as_ref(), "the input of frame {frame} was replaced");
            } else {
                assert!(self.stream.end() - *frame > STREAM_CAPACITY as i64 / 2, "the input of frame {frame} was lost");
            }
        }
    }

    /// Remembers the first, middle and last of the inputs just received.
    fn record_known(&mut self, first: Frame, len: u32) {
        for at in [0, len / 2, len - 1] {
            if let Some(value) = self.stream.value(first + at) {
                self.known_inputs.push((first + at, value.first().copied()));
            }
        }
    }
}
