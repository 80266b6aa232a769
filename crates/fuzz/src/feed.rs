//! The target `feed`: one who serves and one who watches, with any bytes between them.
//!
//! Two bytes set the scene; then one deed follows the other.

use std::collections::VecDeque;

use coplay::frame::Frame;
use coplay::id::Addr;
use coplay::input::InputWord;
use coplay::session::Settings;
use coplay::spectator_feed::{
    Feed, FeedConfig, Spectator, SpectatorConfig, SpectatorEvent, SpectatorRequest, SpectatorStart,
};
use coplay::time::{Instant, TimeDelta};
use coplay::wire::{FeedMessage, MAX_DATAGRAM};

use crate::attack;
use crate::beside::Fake;
use crate::bytes::Bytes;
use crate::machine::Machine;
use crate::script::{Owners, Scene};
use crate::site::{SESSION, settings, words};

/// Deeds of one run; further ones are ignored.
const MAX_DEEDS: usize = 48;
/// Where the feed is, and who watches it.
const FEED: Addr = Addr(1);
const WATCHER: Addr = Addr(2);
/// Packets kept, one of each kind.
const MAX_ALBUM: usize = 16;
/// The time between two looks.
const TICK: TimeDelta = TimeDelta::from_millis(8);
/// The most memory of either end, beside the state.
const MAX_MEMORY: usize = 640 * 1_024;
/// The largest state that is downloaded.
const MOST_STATE: usize = 48 * 1_024;
/// The most frames that are given out at once, whatever is claimed: as many as fit into what is kept.
const MAX_AT_ONCE: usize = 8_192 * 127;

/// Both ends, and what is between them.
struct Stage {
    settings: Settings,
    now: Instant,
    feed: Feed,
    watcher: Spectator,
    players: Machine,
    viewer: Machine,
    /// What was played, frame by frame.
    played: Vec<u8>,
    size: usize,
    pressed: u8,
    forged: bool,
    ended: bool,
    /// To whom, and what.
    under_way: VecDeque<(Addr, Vec<u8>)>,
    album: Vec<(Addr, Vec<u8>)>,
}

/// Plays what the bytes say.
pub(crate) fn check(data: &[u8]) {
    let mut bytes = Bytes::new(data);
    let mut stage = Stage::new(bytes.u8(), bytes.u8());
    for _ in 0..MAX_DEEDS {
        if bytes.is_empty() {
            break;
        }
        stage.perform(&mut bytes);
    }
}

impl Stage {
    fn new(how: u8, size: u8) -> Self {
        let owners = [Owners::Pads, Owners::Shared, Owners::Sticks, Owners::LastAll][usize::from(how & 3)];
        let settings = settings(&Scene { owners, ..Scene::PLAIN });
        let feed = FeedConfig {
            max_spectators: 3,
            batch_frames: [6, 1, 127, 30][usize::from(how >> 2 & 3)],
            log_bytes: if how & 16 != 0 { 8_192 } else { 0 },
            history_frames: if how & 64 != 0 { 60 } else { 1_200 },
            ..FeedConfig::new(SESSION, 9, settings.clone())
        };
        let start = if how & 32 != 0 { SpectatorStart::FirstFrame } else { SpectatorStart::Snapshot };
        let watch = SpectatorConfig {
            start,
            max_snapshot_size: MOST_STATE,
            ..SpectatorConfig::new(SESSION, settings.clone(), vec![FEED])
        };
        Self {
            now: Instant::ZERO,
            feed: Feed::new(feed).expect("sound settings"),
            watcher: Spectator::new(Instant::ZERO, watch).expect("sound settings"),
            players: Machine::new(0),
            viewer: Machine::new(0),
            played: Vec::new(),
            size: usize::from(size) << 8,
            pressed: 0,
            forged: false,
            ended: false,
            under_way: VecDeque::new(),
            album: Vec::new(),
            settings,
        }
    }

    fn perform(&mut self, bytes: &mut Bytes<'_>) {
        match bytes.u8() % 10 {
            0 => self.pass(bytes.u8(), true),
            1 => self.pass(bytes.u8() / 4, false),
            2 => {
                let junk = bytes.string();
                self.forge(FEED, WATCHER, &junk);
            }
            3 => {
                let (from, junk) = (bytes.u8(), bytes.string());
                self.forge(watcher_or(from), FEED, &junk);
            }
            4 => self.mutate(bytes, true),
            5 => self.mutate(bytes, false),
            6 => {
                let packet = self.fake(bytes);
                self.forge(FEED, WATCHER, &packet);
            }
            7 => {
                let (from, packet) = (bytes.u8(), self.fake(bytes));
                self.forge(watcher_or(from), FEED, &packet);
            }
            8 => self.pressed = bytes.u8(),
            _ => self.turn(bytes.u8()),
        }
        self.drive();
    }

    /// What happens once.
    fn turn(&mut self, what: u8) {
        match what & 3 {
            0 => {
                self.feed.end(self.now);
                self.ended = true;
            }
            1 => self.watcher.leave(self.now),
            2 => self.now += TimeDelta::from_millis(100) * i64::from(what),
            _ => self.under_way.clear(),
        }
    }

    fn fake(&self, bytes: &mut Bytes<'_>) -> Vec<u8> {
        let fake = Fake::new(bytes.u8(), self.viewer.stepped, bytes.u8(), bytes.u32());
        let genuine = self.album.iter().find(|(_, packet)| packet.first() == Some(&fake.first_byte()));
        fake.feed(genuine.map(|(_, packet)| &packet[..]))
    }

    /// A packet of the album comes once more, changed, perhaps to the one who sent it.
    fn mutate(&mut self, bytes: &mut Bytes<'_>, back: bool) {
        let (which, how, at, value) = (bytes.u8(), bytes.u8(), bytes.u8(), bytes.u8());
        let Some(at_album) = usize::from(which).checked_rem(self.album.len()) else { return };
        let (to, packet) = &self.album[at_album];
        let packet = attack::mutate(packet, how, at, value);
        let to = if back && *to == FEED { WATCHER } else { *to };
        let from = if to == FEED { watcher_or(how >> 4) } else { FEED };
        self.forge(from, to, &packet);
    }

    fn forge(&mut self, from: Addr, to: Addr, packet: &[u8]) {
        self.forged |= FeedMessage::decode(packet).is_ok();
        self.arrive(from, to, packet);
    }

    fn arrive(&mut self, from: Addr, to: Addr, packet: &[u8]) {
        if to == FEED {
            self.feed.handle_datagram(self.now, from, packet);
        } else if to == WATCHER {
            self.watcher.handle_datagram(self.now, from, packet);
        }
    }

    /// Lets the players play for a while; what is said arrives at once, or not at all.
    fn pass(&mut self, ticks: u8, open: bool) {
        for tick in 0..ticks {
            self.now += TICK;
            if tick % 2 == 0 && !self.ended {
                self.play();
            }
            self.drive();
            while let Some((to, packet)) = self.under_way.pop_front() {
                let from = if to == FEED { WATCHER } else { FEED };
                if open {
                    self.arrive(from, to, &packet);
                    self.drive();
                }
            }
        }
    }

    /// One frame more.
    fn play(&mut self) {
        let frame = self.played.len() as u32;
        let input = self.pressed.wrapping_add(if self.pressed & 0x80 != 0 { frame as u8 } else { 0 });
        self.played.push(input);
        let words = self.owned(input);
        self.players.advance(frame, &words, true);
        self.feed.push(self.now, Frame::new(frame), &words);
        if frame % 8 == 7 {
            self.feed.push_hash(Frame::new(frame), self.players.state);
        }
        if self.feed.wants_snapshot() {
            let (state, hash) = self.players.snapshot(frame + 1, None, self.size);
            self.feed.set_snapshot(self.now, Frame::new(frame + 1), &state, hash);
        }
        self.players.confirm(frame + 1);
    }

    /// The bits of an input that anybody has.
    fn owned(&self, input: u8) -> Vec<InputWord> {
        let ownership = &self.settings.ownership;
        let all = |player| coplay::id::SiteId::first(2).fold(0, |bits, site| bits | ownership.mask(site, player));
        (0..ownership.players()).map(|player| words(input)[player] & all(player)).collect()
    }

    /// Both ends do what there is to do, and nothing more.
    fn drive(&mut self) {
        self.watch();
        self.send();
        let (feed, watcher) = (self.feed.memory(), self.watcher.memory());
        assert!(feed <= MAX_MEMORY + 6 * self.size, "the feed takes {feed} bytes");
        assert!(watcher <= MAX_MEMORY + 2 * MOST_STATE, "the watcher takes {watcher} bytes");
        let _ = (self.feed.stats(), self.watcher.stats(), self.watcher.download_progress(), self.watcher.is_live());
        for next in [self.feed.poll_timeout(), self.watcher.poll_timeout()].into_iter().flatten() {
            assert!(next > self.now, "who is done wants to be called in the past");
        }
    }

    fn watch(&mut self) {
        let mut requests = 0;
        while let Some(request) = self.watcher.poll_request(self.now) {
            requests += 1;
            assert!(requests < 2 * MAX_AT_ONCE, "a watcher asks for ever");
            match request {
                SpectatorRequest::Load { next_frame, state, .. } => self.viewer.restore(next_frame.number(), state),
                SpectatorRequest::Advance { frame, inputs, .. } => {
                    let known = self.played.get(frame.number() as usize).copied();
                    let inputs = inputs.to_vec();
                    assert!(self.forged || known.is_some_and(|input| self.owned(input) == inputs), "frame {frame}");
                    self.viewer.advance(frame.number(), &inputs, true);
                    self.viewer.confirm(frame.number().saturating_add(1));
                }
                SpectatorRequest::Hash { .. } => self.watcher.handle_hash(self.viewer.state),
            }
        }
        while let Some(event) = self.watcher.poll_event() {
            assert!(self.forged || !matches!(event, SpectatorEvent::Diverged { .. }), "out of the blue: {event:?}");
        }
        while self.feed.poll_event().is_some() {}
    }

    fn send(&mut self) {
        let mut buf = [0; MAX_DATAGRAM];
        let mut sent = 0;
        while let Some(packet) = self.watcher.poll_transmit(self.now, &mut buf) {
            self.keep(packet.to, &buf[..packet.len]);
            sent += 1;
            assert!(sent < 100, "a watcher sends for ever");
        }
        while let Some(packet) = self.feed.poll_transmit(self.now, &mut buf) {
            self.keep(packet.to, &buf[..packet.len]);
            sent += 1;
            assert!(sent < 2_000, "a feed sends for ever");
        }
    }

    fn keep(&mut self, to: Addr, packet: &[u8]) {
        let message = FeedMessage::decode(packet);
        assert!(message.is_ok(), "what is sent can be read: {message:?}");
        if self.album.len() < MAX_ALBUM && !self.album.iter().any(|(_, other)| other.first() == packet.first()) {
            self.album.push((to, packet.to_vec()));
        }
        if self.under_way.len() < 1_024 {
            self.under_way.push_back((to, packet.to_vec()));
        }
    }
}

/// The one who watches, or somebody else.
fn watcher_or(other: u8) -> Addr {
    Addr(2 + u64::from(other & 7))
}
