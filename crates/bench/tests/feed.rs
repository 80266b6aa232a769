//! In steady state neither a feed nor those who watch it allocate, also when a tenth of all packets is lost. Prints what a frame costs.

use std::collections::VecDeque;
use std::time::{Duration, Instant as Clock};

use coplay::frame::Frame;
use coplay::id::Addr;
use coplay::input::Ownership;
use coplay::spectator_feed::{Feed, FeedConfig, Spectator, SpectatorConfig, SpectatorRequest};
use coplay::time::{Instant, TimeDelta};
use coplay::wire::MAX_DATAGRAM;
use coplay_bench::counter::allocations;
use coplay_sim::measure::toy_settings;
use coplay_sim::random::Random;

const WATCHERS: usize = 500;
const WARM_UP: u32 = 600;
const FRAMES: u32 = 1_800;
const DELAY: TimeDelta = TimeDelta::from_millis(40);
const FEED: Addr = Addr(u64::MAX);
const LOSS: f64 = 0.1;

/// What was allocated and how long it took.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    allocations: u64,
    time: Duration,
}

impl Cost {
    fn of<T>(&mut self, engine: impl FnOnce() -> T) -> T {
        let (before, begun) = (allocations(), Clock::now());
        let result = engine();
        self.time += begun.elapsed();
        self.allocations += allocations() - before;
        result
    }
}

struct Hall {
    now: Instant,
    feed: Feed,
    watchers: Vec<Spectator>,
    /// When, to whom (the feed is the last), and what.
    flying: VecDeque<(Instant, usize, Vec<u8>, usize)>,
    luck: Random,
    words: [u128; 2],
    feed_cost: Cost,
    watchers_cost: Cost,
    stepped: u64,
}

impl Hall {
    fn new() -> Self {
        let settings = toy_settings(6, Ownership::one_player_per_site(2, 0xffff));
        let config = FeedConfig { max_bulk_rate: 10_000_000, ..FeedConfig::new(1, 2, settings.clone()) };
        let watcher =
            |_| Spectator::new(Instant::ZERO, SpectatorConfig::new(1, settings.clone(), vec![FEED])).expect("sound");
        Self {
            now: Instant::ZERO,
            feed: Feed::new(config).expect("sound settings"),
            watchers: (0..WATCHERS).map(watcher).collect(),
            flying: VecDeque::new(),
            luck: Random::new(1),
            words: [0; 2],
            feed_cost: Cost::default(),
            watchers_cost: Cost::default(),
            stepped: 0,
        }
    }

    fn play(&mut self, frame: u32) {
        for word in &mut self.words {
            if self.luck.chance(1.0 / 8.0) {
                *word = u128::from(self.luck.bits() as u16);
            }
        }
        let (now, frame, words) = (self.now, Frame::new(frame), self.words);
        self.feed_cost.of(|| self.feed.push(now, frame, &words));
        if self.feed.wants_snapshot() {
            self.feed.set_snapshot(now, frame.next(), &[7; 1_000], 3);
        }
        self.deliver();
        for at in 0..WATCHERS {
            self.drive(at);
        }
        self.send_feed();
        self.now += TimeDelta::from_nanos(16_666_667);
    }

    fn fly(&mut self, from: usize, to: usize, bytes: &[u8]) {
        if !self.luck.chance(LOSS) {
            self.flying.push_back((self.now + DELAY, to, bytes.to_vec(), from));
        }
    }

    fn deliver(&mut self) {
        let now = self.now;
        while self.flying.front().is_some_and(|(at, ..)| *at <= now) {
            let Some((_, to, bytes, from)) = self.flying.pop_front() else { break };
            match self.watchers.get_mut(to) {
                Some(watcher) => self.watchers_cost.of(|| watcher.handle_datagram(now, FEED, &bytes)),
                None => self.feed_cost.of(|| self.feed.handle_datagram(now, Addr(from as u64), &bytes)),
            }
        }
    }

    fn drive(&mut self, at: usize) {
        let (now, mut buf) = (self.now, [0; MAX_DATAGRAM]);
        let watcher = &mut self.watchers[at];
        let stepped = &mut self.stepped;
        self.watchers_cost.of(|| {
            while let Some(request) = watcher.poll_request(now) {
                let expected = match request {
                    SpectatorRequest::Hash { expected, .. } => Some(expected),
                    _ => None,
                };
                *stepped += 1;
                if let Some(hash) = expected {
                    watcher.handle_hash(hash);
                }
            }
            while watcher.poll_event().is_some() {}
        });
        while let Some(packet) = self.watchers_cost.of(|| self.watchers[at].poll_transmit(now, &mut buf)) {
            self.fly(at, WATCHERS, &buf[..packet.len]);
        }
    }

    fn send_feed(&mut self) {
        let (now, mut buf) = (self.now, [0; MAX_DATAGRAM]);
        while let Some(packet) = self.feed_cost.of(|| self.feed.poll_transmit(now, &mut buf)) {
            self.fly(WATCHERS, packet.to.0 as usize, &buf[..packet.len]);
        }
        while self.feed.poll_event().is_some() {}
    }
}

#[test]
fn a_watched_game_does_not_allocate() {
    let mut hall = Hall::new();
    for frame in 0..WARM_UP {
        hall.play(frame);
    }
    (hall.feed_cost, hall.watchers_cost, hall.stepped) = (Cost::default(), Cost::default(), 0);
    for frame in WARM_UP..WARM_UP + FRAMES {
        hall.play(frame);
    }
    let all = f64::from(FRAMES) * WATCHERS as f64;
    let per = |cost: Cost| cost.time.as_nanos() as f64 / all;
    println!("{WATCHERS} watchers, loss {LOSS}: {:?}", hall.feed.stats());
    println!("feed {:.0} ns, watcher {:.0} ns, per watcher and frame", per(hall.feed_cost), per(hall.watchers_cost));
    assert_eq!(hall.feed.stats().spectators, WATCHERS);
    assert!(hall.stepped as f64 > 0.95 * all, "all see the game");
    assert_eq!(hall.feed_cost.allocations, 0, "the feed");
    assert!(hall.watchers_cost.allocations < WATCHERS as u64, "rings that still grow: {:?}", hall.watchers_cost);
}
