//! The target `wire`: packets and inputs out of any bytes.

use coplay::frame::Frame;
use coplay::input::{STREAM_CAPACITY, Stream};
use coplay::mirror::{self, Mirror, SourceId};
use coplay::motion::{ClientId, LinearPredictor, MilliVec2, MotionClient, MotionConfig, MotionServer, ObjectId};
use coplay::time::{Instant, TimeDelta};
use coplay::wire::{DesyncMessage, Extra, FeedMessage, Hello, MAX_DATAGRAM, MirrorItems, SessionMessage, Tick, motion};

use crate::forged_session::{decode_extras, encode_extras_tick};
use crate::script_reader::ScriptReader;

/// Widths of input that take different ways through the decoder: nothing, one token byte, one mask, masks by group, all.
const WIDTHS: [usize; 5] = [0, 2, 5, 10, 128];
/// Pieces of input per run.
const MAX_PIECES: usize = 24;
/// No stream begins before the lag is over.
const START_FRAME: Frame = Frame::new(2);

/// Reads a datagram, and, if it can be read, writes it and reads it again.
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

/// Those of feeds and searches have one form each.
fn check_feed_and_search(data: &[u8]) {
    let mut buf = vec![0; data.len()];
    if let Ok(message) = FeedMessage::decode(data) {
        assert_eq!(message.encode(&mut buf), Ok(data.len()));
        assert_eq!(buf, data, "a packet of a feed has one form");
    }
    if let Ok(message) = DesyncMessage::decode(data) {
        assert_eq!(message.encode(&mut buf), Ok(data.len()));
        assert_eq!(buf, data, "a packet of a search has one form");
    }
}

/// Whatever another mirror says, we go on, and keep little of it.
fn check_mirror(data: &[u8]) {
    let Ok(items) = MirrorItems::new(data) else { return };
    let _ = items.count();
    let config = mirror::MirrorConfig { is_founder: true, ..mirror::MirrorConfig::new(SourceId(1)) };
    let mut mirror = Mirror::new(Instant::ZERO, config).expect("a mirror can be like that");
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

/// So have those of motion, if they can be read to the end; and whatever they say, a server and a client go on.
fn check_motion(data: &[u8]) {
    let Ok(items) = motion::MotionItems::new(data) else { return };
    let head = items.header();
    if let Ok(items) = items.collect::<Result<Vec<_>, _>>() {
        let mut buf = vec![0; data.len()];
        let mut datagram = motion::MotionDatagram::new(&mut buf, head).expect("there is room for as much");
        items.into_iter().for_each(|item| datagram.put(item).expect("there is room for as much"));
        assert_eq!(buf, data, "a packet of motion has one form");
    }
    let (linear, config) = (LinearPredictor { max_speed: 1_000 }, MotionConfig::clocks(head.receiver_incarnation));
    let mut server = MotionServer::new(Instant::ZERO, config, linear).expect("motion can be shared like that");
    let mut client = MotionClient::new(Instant::ZERO, config, linear).expect("motion can be shared like that");
    let (who, object) = (ClientId(1), ObjectId(1));
    server.spawn(Instant::ZERO, object, Some(who), MilliVec2::default(), MilliVec2::default());
    client.own(object);
    let mut buf = [0; MAX_DATAGRAM];
    for step in 1..4 {
        let now = Instant::ZERO + TimeDelta::from_millis(step * 100);
        server.handle_datagram(now, who, data);
        client.handle_datagram(now, data);
        client.command(now, object, MilliVec2 { x: step, y: 0 });
        while server.poll_transmit(now, &mut buf).is_some() {}
        while client.poll_transmit(now, &mut buf).is_some() {}
        let _ = client.consistency(object);
    }
    assert!(server.memory() + client.memory() < 1 << 20);
}

fn check_tick(data: &[u8], tick: &Tick<'_>) {
    // A probe that is late by more than can be told has one canonical form more.
    let mut buf = vec![0; data.len() + 8];
    let len = tick.encode(&mut buf).expect("what was read can be written");
    let again = Tick::decode(&buf[..len]).expect("what was written can be read");
    assert_eq!(*tick, again);
    if tick.probe.is_none_or(|probe| probe.lateness_ns.is_some()) {
        assert_eq!(buf[..len], *data, "a tick has one form");
    }
    let extras: Vec<Extra<'_>> = tick.extras.iter().collect();
    assert_eq!(decode_extras(&encode_extras_tick(&extras)), tick.extras, "an extra has one form");
    for width in WIDTHS {
        let mut stream = CheckedStream::new(width);
        for extra in &extras {
            if let Extra::Relay(relay) = extra {
                stream.receive(relay.first_frame, relay.frame_count, true, relay.changes);
            }
        }
        for answer in tick.resends.iter() {
            assert!(answer.frame_count > 0 && answer.frame_count <= answer.end_minus_first);
            if let Some(first) = (START_FRAME + u32::from(tick.end)).checked_sub(answer.end_minus_first) {
                stream.receive(first, answer.frame_count, true, answer.changes);
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
    let len = hello.encode(&mut buf).expect("what was read can be written in as many bytes");
    assert_eq!(buf[..len], *data, "a hello has one form");
    assert_eq!(Hello::decode(&buf).as_ref(), Ok(hello));
    let settings = &hello.settings;
    assert_eq!(settings.differences(settings), []);
    let _ = settings.check();
}

/// Takes the bytes as change tokens: all of them at once, then as pieces with their place, length and kind in front.
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

/// A stream whose promises are checked at every step.
struct CheckedStream {
    stream: Stream,
    /// Inputs that were known, as (frame, input), with only the first byte of each kept.
    known_inputs: Vec<(Frame, Option<u8>)>,
}

impl CheckedStream {
    fn new(width: usize) -> Self {
        Self { stream: Stream::new(width, START_FRAME), known_inputs: Vec::new() }
    }

    fn receive(&mut self, first: Frame, len: u32, absolute: bool, changes: &[u8]) {
        let before = (self.stream.end(), self.stream.received_end());
        let taken = self.stream.receive(first, len, absolute, changes);
        let (end, top) = (self.stream.end(), self.stream.received_end());
        assert!(end <= top, "{end} is after {top}");
        assert!(top - end <= STREAM_CAPACITY as i64 / 2, "{top} is too far from {end}");
        match taken {
            Ok(()) => assert!(before.0 <= end && before.1 <= top, "nothing is lost again"),
            Err(_) => assert_eq!(before, (end, top), "what is not taken changes nothing"),
        }
        if taken.is_ok() {
            assert!(self.stream.contains(first + (len - 1)), "what is taken is here");
        }
        assert_eq!(self.stream.value(top), None);
        self.check_known();
        self.record_known(first, len);
    }

    /// What was known stays as it was, until it is forgotten.
    fn check_known(&self) {
        for (frame, first) in &self.known_inputs {
            if let Some(value) = self.stream.value(*frame) {
                assert_eq!(value.first(), first.as_ref(), "the input of frame {frame} was replaced");
            } else {
                assert!(self.stream.end() - *frame > STREAM_CAPACITY as i64 / 2, "the input of frame {frame} was lost");
            }
        }
    }

    /// Remembers some of the inputs that came now.
    fn record_known(&mut self, first: Frame, len: u32) {
        for at in [0, len / 2, len - 1] {
            if let Some(value) = self.stream.value(first + at) {
                self.known_inputs.push((first + at, value.first().copied()));
            }
        }
    }
}
