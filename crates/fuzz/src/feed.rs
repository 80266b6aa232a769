//! The target `feed`: a spectator feed and one spectator, with any bytes between them.
//!
//! Two bytes configure the run; actions follow.

use std::collections::VecDeque;

use coplay::codec::MAX_DATAGRAM;
use coplay::frame::Frame;
use coplay::id::Addr;
use coplay::input::InputWord;
use coplay::session::Settings;
use coplay::spectator_feed::message::FeedMessage;
use coplay::spectator_feed::{
    Feed, FeedConfig, Spectator, SpectatorConfig, SpectatorEvent, SpectatorRequest, SpectatorStart,
};
use coplay::time::{Instant, TimeDelta};

use crate::forged_feed::ForgedMessage;
use crate::forged_session;
use crate::machine::HashMachine;
use crate::script::{OwnershipKind, ScriptSetup};
use crate::script_reader::ScriptReader;
use crate::site::{SESSION_ID, input_words, settings};

/// Maximum number of actions per run; further bytes are ignored.
const MAX_ACTIONS: usize = 48;
/// Address of the feed.
const FEED_ADDR: Addr = Addr(1);
/// Address of the spectator.
const SPECTATOR_ADDR: Addr = Addr(2);
/// Maximum number of kept packets, one for each first byte.
const MAX_SAMPLES: usize = 16;
/// Interval of virtual time at which feed and spectator are polled. The players step a frame in every second interval.
const TICK_PERIOD: TimeDelta = TimeDelta::from_millis(8);
/// Maximum memory of the feed and of the spectator, each without its copies of the state, in bytes.
const MAX_MEMORY: usize = 640 * 1_024;
/// Maximum length of a downloaded state, in bytes.
const MAX_STATE_LEN: usize = 48 * 1_024;
/// Maximum number of frames that the spectator may present at once, whatever a packet claims: as many as fit into its
/// buffer.
const MAX_FRAMES_AT_ONCE: usize = 8_192 * 127;

/// A feed, a spectator, and the packets between them.
struct FeedHarness {
    settings: Settings,
    now: Instant,
    feed: Feed,
    spectator: Spectator,
    player_machine: HashMachine,
    spectator_machine: HashMachine,
    /// Input of the players in each frame.
    played_inputs: Vec<u8>,
    state_len: usize,
    held_input: u8,
    has_forgery: bool,
    is_ended: bool,
    /// Packets in flight, each with its destination.
    in_flight: VecDeque<(Addr, Vec<u8>)>,
    samples: Vec<(Addr, Vec<u8>)>,
}

/// Runs the script in `data` and panics if an invariant does not hold.
pub(crate) fn check(data: &[u8]) {
    let mut bytes = ScriptReader::new(data);
    let mut harness = FeedHarness::new(bytes.u8(), bytes.u8());
    for _ in 0..MAX_ACTIONS {
        if bytes.is_empty() {
            break;
        }
        harness.perform(&mut bytes);
    }
}

impl FeedHarness {
    fn new(flags: u8, size: u8) -> Self {
        let ownership =
            [OwnershipKind::Pads, OwnershipKind::Shared, OwnershipKind::AnalogSticks, OwnershipKind::AllToLast]
                [usize::from(flags & 3)];
        let settings = settings(&ScriptSetup { ownership, ..ScriptSetup::PLAIN });
        let feed = FeedConfig {
            max_spectators: 3,
            batch_frames: [6, 1, 127, 30][usize::from(flags >> 2 & 3)],
            log_bytes: if flags & 16 != 0 { 8_192 } else { 0 },
            history_frames: if flags & 64 != 0 { 60 } else { 1_200 },
            ..FeedConfig::new(SESSION_ID, 9, settings.clone())
        };
        let start = if flags & 32 != 0 { SpectatorStart::FirstFrame } else { SpectatorStart::Snapshot };
        let spectator_config = SpectatorConfig {
            start,
            max_snapshot_size: MAX_STATE_LEN,
            ..SpectatorConfig::new(SESSION_ID, settings.clone(), vec![FEED_ADDR])
        };
        Self {
            now: Instant::ZERO,
            feed: Feed::new(feed).expect("valid settings"),
            spectator: Spectator::new(Instant::ZERO, spectator_config).expect("valid settings"),
            player_machine: HashMachine::new(0),
            spectator_machine: HashMachine::new(0),
            played_inputs: Vec::new(),
            state_len: usize::from(size) << 8,
            held_input: 0,
            has_forgery: false,
            is_ended: false,
            in_flight: VecDeque::new(),
            samples: Vec::new(),
            settings,
        }
    }

    fn perform(&mut self, bytes: &mut ScriptReader<'_>) {
        match bytes.u8() % 10 {
            0 => self.advance_time(bytes.u8(), true),
            1 => self.advance_time(bytes.u8() / 4, false),
            2 => {
                let junk = bytes.string();
                self.inject(FEED_ADDR, SPECTATOR_ADDR, &junk);
            }
            3 => {
                let (from, junk) = (bytes.u8(), bytes.string());
                self.inject(spectator_addr(from), FEED_ADDR, &junk);
            }
            4 => self.inject_mutated(bytes, true),
            5 => self.inject_mutated(bytes, false),
            6 => {
                let packet = self.forge_message(bytes);
                self.inject(FEED_ADDR, SPECTATOR_ADDR, &packet);
            }
            7 => {
                let (from, packet) = (bytes.u8(), self.forge_message(bytes));
                self.inject(spectator_addr(from), FEED_ADDR, &packet);
            }
            8 => self.held_input = bytes.u8(),
            _ => self.perform_once(bytes.u8()),
        }
        self.run_due();
    }

    /// Performs a rare action: ends the feed, makes the spectator leave, lets up to 25.4 s pass, or loses all packets
    /// in flight.
    fn perform_once(&mut self, action: u8) {
        match action & 3 {
            0 => {
                self.feed.end(self.now);
                self.is_ended = true;
            }
            1 => self.spectator.leave(self.now),
            2 => self.now += TimeDelta::from_millis(100) * i64::from(action),
            _ => self.in_flight.clear(),
        }
    }

    fn forge_message(&self, bytes: &mut ScriptReader<'_>) -> Vec<u8> {
        let forged = ForgedMessage::new(bytes.u8(), self.spectator_machine.stepped_frames, bytes.u8(), bytes.u32());
        let genuine = self.samples.iter().find(|(_, packet)| packet.first() == Some(&forged.first_byte()));
        forged.encode_feed(genuine.map(|(_, packet)| &packet[..]))
    }

    /// Delivers a mutated copy of a kept packet; with `back`, a packet to the feed goes to the spectator instead.
    fn inject_mutated(&mut self, bytes: &mut ScriptReader<'_>, back: bool) {
        let (packet_number, mutation, at, value) = (bytes.u8(), bytes.u8(), bytes.u8(), bytes.u8());
        let Some(index) = usize::from(packet_number).checked_rem(self.samples.len()) else { return };
        let (to, packet) = &self.samples[index];
        let packet = forged_session::mutate(packet, mutation, at, value);
        let to = if back && *to == FEED_ADDR { SPECTATOR_ADDR } else { *to };
        let from = if to == FEED_ADDR { spectator_addr(mutation >> 4) } else { FEED_ADDR };
        self.inject(from, to, &packet);
    }

    fn inject(&mut self, from: Addr, to: Addr, packet: &[u8]) {
        self.has_forgery |= FeedMessage::decode(packet).is_ok();
        self.deliver(from, to, packet);
    }

    fn deliver(&mut self, from: Addr, to: Addr, packet: &[u8]) {
        if to == FEED_ADDR {
            self.feed.handle_datagram(self.now, from, packet);
        } else if to == SPECTATOR_ADDR {
            self.spectator.handle_datagram(self.now, from, packet);
        }
    }

    /// Lets time pass for `ticks` periods while the players play. Packets arrive at once if `open` is true, and are
    /// lost otherwise.
    fn advance_time(&mut self, ticks: u8, open: bool) {
        for tick in 0..ticks {
            self.now += TICK_PERIOD;
            if tick % 2 == 0 && !self.is_ended {
                self.play_frame();
            }
            self.run_due();
            while let Some((to, packet)) = self.in_flight.pop_front() {
                let from = if to == FEED_ADDR { SPECTATOR_ADDR } else { FEED_ADDR };
                if open {
                    self.deliver(from, to, &packet);
                    self.run_due();
                }
            }
        }
    }

    /// Plays one frame and passes it to the feed, with a hash after every eighth frame and a snapshot if the feed wants
    /// one.
    fn play_frame(&mut self) {
        let frame = self.played_inputs.len() as u32;
        let input = self.held_input.wrapping_add(if self.held_input & 0x80 != 0 { frame as u8 } else { 0 });
        self.played_inputs.push(input);
        let words = self.owned_words(input);
        self.player_machine.advance(frame, &words, true);
        self.feed.push(self.now, Frame::new(frame), &words);
        if frame % 8 == 7 {
            self.feed.push_hash(Frame::new(frame), self.player_machine.state_hash);
        }
        if self.feed.wants_snapshot() {
            let (state, hash) = self.player_machine.snapshot(frame + 1, None, self.state_len);
            self.feed.set_snapshot(self.now, Frame::new(frame + 1), &state, hash);
        }
        self.player_machine.confirm_until(frame + 1);
    }

    /// Returns the words of an input, reduced to the bits that some site owns.
    fn owned_words(&self, input: u8) -> Vec<InputWord> {
        let ownership = &self.settings.ownership;
        let all = |player| coplay::id::SiteId::first(2).fold(0, |bits, site| bits | ownership.mask(site, player));
        (0..ownership.players()).map(|player| input_words(input)[player] & all(player)).collect()
    }

    /// Polls feed and spectator at the current time, and checks their memory and timeouts.
    fn run_due(&mut self) {
        self.serve_spectator();
        self.transmit_all();
        let (feed, spectator) = (self.feed.memory(), self.spectator.memory());
        assert!(feed <= MAX_MEMORY + 6 * self.state_len, "the feed takes {feed} bytes");
        assert!(spectator <= MAX_MEMORY + 2 * MAX_STATE_LEN, "the spectator takes {spectator} bytes");
        let _ =
            (self.feed.stats(), self.spectator.stats(), self.spectator.download_progress(), self.spectator.is_live());
        for next in [self.feed.poll_timeout(), self.spectator.poll_timeout()].into_iter().flatten() {
            assert!(next > self.now, "the next timeout is in the past");
        }
    }

    fn serve_spectator(&mut self) {
        let mut requests = 0;
        while let Some(request) = self.spectator.poll_request(self.now) {
            requests += 1;
            assert!(requests < 2 * MAX_FRAMES_AT_ONCE, "a spectator requests frames for ever");
            match request {
                SpectatorRequest::Load { next_frame, state, .. } => {
                    self.spectator_machine.restore(next_frame.number(), state)
                }
                SpectatorRequest::Advance { frame, inputs, .. } => {
                    let known = self.played_inputs.get(frame.number() as usize).copied();
                    let inputs = inputs.to_vec();
                    assert!(
                        self.has_forgery || known.is_some_and(|input| self.owned_words(input) == inputs),
                        "frame {frame}"
                    );
                    self.spectator_machine.advance(frame.number(), &inputs, true);
                    self.spectator_machine.confirm_until(frame.number().saturating_add(1));
                }
                SpectatorRequest::Hash { .. } => self.spectator.handle_hash(self.spectator_machine.state_hash),
            }
        }
        while let Some(event) = self.spectator.poll_event() {
            assert!(
                self.has_forgery || !matches!(event, SpectatorEvent::Diverged { .. }),
                "unexpected event: {event:?}"
            );
        }
        while self.feed.poll_event().is_some() {}
    }

    fn transmit_all(&mut self) {
        let mut buf = [0; MAX_DATAGRAM];
        let mut sent = 0;
        while let Some(packet) = self.spectator.poll_transmit(self.now, &mut buf) {
            self.enqueue(packet.to, &buf[..packet.len]);
            sent += 1;
            assert!(sent < 100, "a spectator sends for ever");
        }
        while let Some(packet) = self.feed.poll_transmit(self.now, &mut buf) {
            self.enqueue(packet.to, &buf[..packet.len]);
            sent += 1;
            assert!(sent < 2_000, "a feed sends for ever");
        }
    }

    fn enqueue(&mut self, to: Addr, packet: &[u8]) {
        let message = FeedMessage::decode(packet);
        assert!(message.is_ok(), "a sent message can be decoded: {message:?}");
        if self.samples.len() < MAX_SAMPLES && !self.samples.iter().any(|(_, other)| other.first() == packet.first()) {
            self.samples.push((to, packet.to_vec()));
        }
        if self.in_flight.len() < 1_024 {
            self.in_flight.push_back((to, packet.to_vec()));
        }
    }
}

/// Returns the address of the spectator for multiples of 8, and of one of seven strangers for other values.
fn spectator_addr(other: u8) -> Addr {
    Addr(2 + u64::from(other & 7))
}
