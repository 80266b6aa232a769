//! A crowd that watches one game: what it costs, and that the players cannot tell whether it is there.

use coplay::frame::Frame;
use coplay::id::Addr;
use coplay::input::InputWord;
use coplay::spectator_feed::{Feed, FeedConfig, Spectator, SpectatorConfig, SpectatorRequest};
use coplay::time::{Instant, TimeDelta};
use coplay::wire::MAX_DATAGRAM;

use crate::link::{Link, LinkConfig, Loss};
use crate::measure::Experiment;
use crate::queue::Queue;
use crate::random::Random;
use crate::toy::mix;
use crate::world::{Happened, World};

/// The world and the crowd take turns of this length.
const TURN: TimeDelta = TimeDelta::from_millis(1);
/// The crowd comes within this time, from the first frame on.
const COMING: TimeDelta = TimeDelta::from_secs(4);
/// The address of the feed; those who watch have the numbers after it.
const FEED: Addr = Addr(1_000);

/// What is run.
#[derive(Clone, Debug)]
pub struct Crowd {
    /// Two players; its seed is that of everything.
    pub game: Experiment,
    /// How many watch.
    pub watchers: usize,
    /// One direction of the way to each of them.
    pub link: LinkConfig,
    /// How long the game is.
    pub time: TimeDelta,
    /// Bytes of the state to begin with.
    pub state: usize,
}

impl Crowd {
    /// So many, each 15 to 30 ms away and with one packet in a hundred lost, for 20 seconds.
    pub fn new(watchers: usize) -> Self {
        let link = LinkConfig {
            jitter: crate::link::Jitter::Uniform(TimeDelta::from_millis(15)),
            loss: Loss::Independent(0.01),
            ..LinkConfig::constant_rtt(TimeDelta::from_millis(30))
        };
        Self {
            game: Experiment::new(LinkConfig::broadband()),
            watchers,
            link,
            time: TimeDelta::from_secs(20),
            state: 512,
        }
    }

    /// Runs it.
    pub fn run(&self) -> Outcome {
        Hall::new(self).run(self)
    }
}

/// So many watch, under the usual conditions.
pub fn run(watchers: usize) -> Outcome {
    Crowd::new(watchers).run()
}

/// What came of it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Outcome {
    /// All datagrams between the players with their times, and all steps with theirs, folded into one number.
    pub players: u64,
    /// Frames that the first player stepped.
    pub frames: u32,
    /// How many watch at the end, and how many of them see what is played as it is played.
    pub watching: usize,
    /// Those who see it as it is played.
    pub live: usize,
    /// Those whose state is not that of the players after the same frame.
    pub wrong: usize,
    /// How far behind the first player those who watch are on average, in frames.
    pub behind_frames: f64,
    /// How often a picture stood still, all in all.
    pub stalls: u64,
    /// Batches that were encoded, each once for all.
    pub batches: u64,
    /// Their bytes.
    pub batch_bytes: u64,
    /// Datagrams from the feed.
    pub packets_down: u64,
    /// Their bytes of payload.
    pub bytes_down: u64,
    /// Those of them that were asked for.
    pub bulk_bytes: u64,
    /// Datagrams to the feed.
    pub packets_up: u64,
    /// Their bytes of payload.
    pub bytes_up: u64,
    /// The time for which somebody watched, all in all, in seconds.
    pub watched_s: f64,
    /// Bytes that the feed takes, and the most that one who watches does.
    pub feed_memory: usize,
    /// The most that one who watches takes.
    pub watcher_memory: usize,
}

/// One who watches, and a machine that only counts.
#[derive(Debug)]
struct Seat {
    watcher: Spectator,
    up: Link,
    down: Link,
    tally: u64,
    alarm: u64,
    came: Instant,
}

#[derive(Debug)]
enum Happening {
    Come { seat: usize },
    Wake { seat: usize, alarm: u64 },
    Down { seat: usize, bytes: Box<[u8]> },
    Up { seat: usize, bytes: Box<[u8]> },
}

/// A frame that a player stepped.
struct Stepped {
    at: Instant,
    frame: u32,
    words: Vec<InputWord>,
}

struct Hall {
    feed: Feed,
    seats: Vec<Option<Seat>>,
    queue: Queue<Happening>,
    tally: u64,
    /// The tally after each frame.
    truth: Vec<u64>,
    outcome: Outcome,
}

fn tally(sum: u64, words: &[InputWord]) -> u64 {
    words.iter().fold(sum, |sum, word| mix(mix(sum, *word as u64), (*word >> 64) as u64))
}

impl Hall {
    fn new(crowd: &Crowd) -> Self {
        let config = FeedConfig {
            max_spectators: crowd.watchers,
            max_bulk_rate: 20_000_000,
            ..FeedConfig::new(crowd.game.seed, 4_711, crowd.game.settings())
        };
        Self {
            feed: Feed::new(config).expect("the settings are sound"),
            seats: (0..crowd.watchers).map(|_| None).collect(),
            queue: Queue::new(),
            tally: 1,
            truth: Vec::new(),
            outcome: Outcome::default(),
        }
    }

    fn run(mut self, crowd: &Crowd) -> Outcome {
        let mut world = crowd.game.world();
        let mut steps = Vec::new();
        let mut first = None;
        while first.is_none_or(|first| world.now() < first + crowd.time) {
            self.play(&mut world, &mut steps);
            if first.is_none() && !steps.is_empty() {
                first = Some(world.now());
                self.invite(crowd, world.now());
            }
            self.push(&mut steps, crowd.state);
            self.pass_time(crowd, world.now());
        }
        self.finish(world.now())
    }

    /// Lets the players play, and hears all they say.
    fn play(&mut self, world: &mut World, steps: &mut Vec<Stepped>) {
        world.listen(10_000);
        let players = &mut self.outcome.players;
        let until = world.now() + TURN;
        world.run_until(until, &mut |happened| {
            if let Happened::Confirmed { site, at, frame, words, hash } = happened {
                *players = [site as u64, at.as_nanos() as u64, u64::from(frame), hash].into_iter().fold(*players, mix);
                if site == 0 {
                    steps.push(Stepped { at, frame, words: words.to_vec() });
                }
            }
        });
        for heard in world.overheard() {
            let head = [heard.at.as_nanos() as u64, heard.from as u64, heard.to as u64];
            let bytes = heard.bytes.iter().map(|byte| u64::from(*byte));
            *players = head.into_iter().chain(bytes).fold(*players, mix);
        }
    }

    fn invite(&mut self, crowd: &Crowd, now: Instant) {
        let mut luck = Random::stream(crowd.game.seed, "crowd");
        for seat in 0..crowd.watchers {
            let wait = TimeDelta::from_nanos(luck.range(0..=COMING.as_nanos()));
            self.queue.push(now + wait, Happening::Come { seat });
        }
    }

    fn push(&mut self, steps: &mut Vec<Stepped>, state: usize) {
        for Stepped { at, frame, words } in steps.drain(..) {
            let frame = Frame::new(frame);
            self.feed.push(at, frame, &words);
            self.tally = tally(self.tally, &words);
            self.truth.push(self.tally);
            if frame.number() % 60 == 59 {
                self.feed.push_hash(frame, self.tally);
            }
            if self.feed.wants_snapshot() {
                let mut bytes = vec![0; state.max(8)];
                bytes[..8].copy_from_slice(&self.tally.to_le_bytes());
                self.feed.set_snapshot(at, frame.next(), &bytes, self.tally);
            }
            self.outcome.frames = frame.number() + 1;
        }
    }

    fn pass_time(&mut self, crowd: &Crowd, now: Instant) {
        while let Some((at, happening)) = self.queue.next_time().filter(|at| *at <= now).and_then(|_| self.queue.pop())
        {
            match happening {
                Happening::Come { seat } => self.come(crowd, at, seat),
                Happening::Wake { seat, alarm } => {
                    if self.seats[seat].as_ref().is_some_and(|seat| seat.alarm == alarm) {
                        self.drive(at, seat);
                    }
                }
                Happening::Down { seat, bytes } => {
                    if let Some(there) = &mut self.seats[seat] {
                        there.watcher.handle_datagram(at, FEED, &bytes);
                        self.drive(at, seat);
                    }
                }
                Happening::Up { seat, bytes } => {
                    self.feed.handle_datagram(at, address(seat), &bytes);
                }
            }
        }
        self.send(now);
    }

    fn come(&mut self, crowd: &Crowd, now: Instant, seat: usize) {
        let config = SpectatorConfig {
            max_snapshot_size: 64 * 1_024,
            max_backlog_bytes: 16 * 1_024,
            ..SpectatorConfig::new(crowd.game.seed, crowd.game.settings(), vec![FEED])
        };
        let link = |way: &str| Link::new(crowd.link.clone(), crowd.game.seed, &format!("{way} {seat}"));
        let watcher = Spectator::new(now, config).expect("the settings are sound");
        let (up, down) = (link("up"), link("down"));
        self.seats[seat] = Some(Seat { watcher, up, down, tally: 0, alarm: 0, came: now });
        self.drive(now, seat);
    }

    /// What the feed sends.
    fn send(&mut self, now: Instant) {
        let mut buf = [0; MAX_DATAGRAM];
        while let Some(packet) = self.feed.poll_transmit(now, &mut buf) {
            let number = (packet.to.0 - FEED.0 - 1) as usize;
            let Some(seat) = &mut self.seats[number] else { continue };
            for at in seat.down.send(now, packet.len) {
                self.queue.push(at, Happening::Down { seat: number, bytes: buf[..packet.len].into() });
            }
        }
        while self.feed.poll_event().is_some() {}
    }

    /// The host program of one who watches.
    fn drive(&mut self, now: Instant, number: usize) {
        let Some(seat) = &mut self.seats[number] else { return };
        seat.serve(now, &self.truth, &mut self.outcome.wrong);
        let mut buf = [0; MAX_DATAGRAM];
        while let Some(packet) = seat.watcher.poll_transmit(now, &mut buf) {
            for at in seat.up.send(now, packet.len) {
                self.queue.push(at, Happening::Up { seat: number, bytes: buf[..packet.len].into() });
            }
        }
        while seat.watcher.poll_event().is_some() {}
        seat.alarm += 1;
        if let Some(at) = seat.watcher.poll_timeout() {
            self.queue.push(at.max(now), Happening::Wake { seat: number, alarm: seat.alarm });
        }
    }

    fn finish(self, now: Instant) -> Outcome {
        let stats = self.feed.stats();
        let mut outcome = Outcome {
            watching: stats.spectators,
            batches: stats.batches,
            batch_bytes: stats.batch_bytes,
            packets_down: stats.packets_out,
            bytes_down: stats.bytes_out,
            bulk_bytes: stats.bulk_out,
            feed_memory: self.feed.memory(),
            ..self.outcome
        };
        for seat in self.seats.iter().flatten() {
            let stats = seat.watcher.stats();
            outcome.live += usize::from(seat.watcher.is_live());
            outcome.stalls += stats.stalls;
            outcome.packets_up += stats.packets_out;
            outcome.bytes_up += stats.bytes_out;
            outcome.watched_s += (now - seat.came).as_secs_f64();
            outcome.watcher_memory = outcome.watcher_memory.max(seat.watcher.memory());
            let behind = outcome.frames.saturating_sub(seat.watcher.next_frame().number());
            outcome.behind_frames += f64::from(behind) / self.seats.len() as f64;
        }
        outcome
    }
}

fn address(seat: usize) -> Addr {
    Addr(FEED.0 + 1 + seat as u64)
}

impl Seat {
    fn serve(&mut self, now: Instant, truth: &[u64], wrong: &mut usize) {
        while let Some(request) = self.watcher.poll_request(now) {
            match request {
                SpectatorRequest::Load { state, .. } => {
                    let bytes = state.first_chunk().copied().unwrap_or_default();
                    self.tally = u64::from_le_bytes(bytes);
                }
                SpectatorRequest::Advance { frame, inputs, .. } => {
                    self.tally = tally(self.tally, inputs);
                    *wrong += usize::from(truth.get(frame.number() as usize) != Some(&self.tally));
                }
                SpectatorRequest::Hash { .. } => self.watcher.handle_hash(self.tally),
            }
        }
    }
}
