//! In steady state a spectator feed does not allocate, even with 10 % packet loss. In 1,800 frames, each of its
//! spectators allocates less than once on average, when a buffer grows. The test prints the cost per spectator and
//! frame.

use std::collections::VecDeque;
use std::time::{Duration, Instant as Clock};

use coplay::codec::MAX_DATAGRAM;
use coplay::frame::Frame;
use coplay::id::Addr;
use coplay::input::Ownership;
use coplay::spectator_feed::{Feed, FeedConfig, Spectator, SpectatorConfig, SpectatorRequest};
use coplay::time::{Instant, TimeDelta};
use coplay_bench::allocation_counter::allocations;
use coplay_links::random::Random;
use coplay_sim::session_experiment::toy_settings;

const SPECTATOR_COUNT: usize = 500;
const WARM_UP: u32 = 600;
const FRAMES: u32 = 1_800;
const DELAY: TimeDelta = TimeDelta::from_millis(40);
const FEED_ADDRESS: Addr = Addr(u64::MAX);
const LOSS: f64 = 0.1;

/// Allocations and time of all calls of the feed, or of all spectators.
#[derive(Clone, Copy, Debug, Default)]
struct CallCost {
    allocations: u64,
    time: Duration,
}

impl CallCost {
    fn measure<T>(&mut self, engine: impl FnOnce() -> T) -> T {
        let (before, begun) = (allocations(), Clock::now());
        let result = engine();
        self.time += begun.elapsed();
        self.allocations += allocations() - before;
        result
    }
}

struct FeedBench {
    now: Instant,
    feed: Feed,
    spectators: Vec<Spectator>,
    /// Datagrams in flight: arrival time, index of the receiver, payload, and index of the sender. The index of the
    /// feed follows those of the spectators.
    in_flight: VecDeque<(Instant, usize, Vec<u8>, usize)>,
    random: Random,
    held_inputs: [u128; 2],
    feed_cost: CallCost,
    spectators_cost: CallCost,
    request_count: u64,
}

impl FeedBench {
    fn new() -> Self {
        let settings = toy_settings(6, Ownership::one_player_per_site(2, 0xffff));
        let config = FeedConfig { max_bulk_rate: 10_000_000, ..FeedConfig::new(1, 2, settings.clone()) };
        let spectator = |_| {
            Spectator::new(Instant::ZERO, SpectatorConfig::new(1, settings.clone(), vec![FEED_ADDRESS]))
                .expect("settings are valid")
        };
        Self {
            now: Instant::ZERO,
            feed: Feed::new(config).expect("settings are valid"),
            spectators: (0..SPECTATOR_COUNT).map(spectator).collect(),
            in_flight: VecDeque::new(),
            random: Random::new(1),
            held_inputs: [0; 2],
            feed_cost: CallCost::default(),
            spectators_cost: CallCost::default(),
            request_count: 0,
        }
    }

    fn step_frame(&mut self, frame: u32) {
        for word in &mut self.held_inputs {
            if self.random.chance(1.0 / 8.0) {
                *word = u128::from(self.random.bits() as u16);
            }
        }
        let (now, frame, words) = (self.now, Frame::new(frame), self.held_inputs);
        self.feed_cost.measure(|| self.feed.push(now, frame, &words));
        if self.feed.wants_snapshot() {
            self.feed.set_snapshot(now, frame.next(), &[7; 1_000], 3);
        }
        self.deliver();
        for at in 0..SPECTATOR_COUNT {
            self.run_spectator(at);
        }
        self.transmit_feed();
        self.now += TimeDelta::from_nanos(16_666_667);
    }

    fn send(&mut self, from: usize, to: usize, bytes: &[u8]) {
        if !self.random.chance(LOSS) {
            self.in_flight.push_back((self.now + DELAY, to, bytes.to_vec(), from));
        }
    }

    fn deliver(&mut self) {
        let now = self.now;
        while self.in_flight.front().is_some_and(|(at, ..)| *at <= now) {
            let Some((_, to, bytes, from)) = self.in_flight.pop_front() else { break };
            match self.spectators.get_mut(to) {
                Some(spectator) => {
                    self.spectators_cost.measure(|| spectator.handle_datagram(now, FEED_ADDRESS, &bytes))
                }
                None => self.feed_cost.measure(|| self.feed.handle_datagram(now, Addr(from as u64), &bytes)),
            }
        }
    }

    fn run_spectator(&mut self, at: usize) {
        let (now, mut buf) = (self.now, [0; MAX_DATAGRAM]);
        let spectator = &mut self.spectators[at];
        let request_count = &mut self.request_count;
        self.spectators_cost.measure(|| {
            while let Some(request) = spectator.poll_request(now) {
                let expected = match request {
                    SpectatorRequest::Hash { expected, .. } => Some(expected),
                    _ => None,
                };
                *request_count += 1;
                if let Some(hash) = expected {
                    spectator.handle_hash(hash);
                }
            }
            while spectator.poll_event().is_some() {}
        });
        while let Some(packet) = self.spectators_cost.measure(|| self.spectators[at].poll_transmit(now, &mut buf)) {
            self.send(at, SPECTATOR_COUNT, &buf[..packet.len]);
        }
    }

    fn transmit_feed(&mut self) {
        let (now, mut buf) = (self.now, [0; MAX_DATAGRAM]);
        while let Some(packet) = self.feed_cost.measure(|| self.feed.poll_transmit(now, &mut buf)) {
            self.send(SPECTATOR_COUNT, packet.to.0 as usize, &buf[..packet.len]);
        }
        while self.feed.poll_event().is_some() {}
    }
}

#[test]
fn feed_and_spectators_do_not_allocate_in_steady_state() {
    let mut bench = FeedBench::new();
    for frame in 0..WARM_UP {
        bench.step_frame(frame);
    }
    (bench.feed_cost, bench.spectators_cost, bench.request_count) = (CallCost::default(), CallCost::default(), 0);
    for frame in WARM_UP..WARM_UP + FRAMES {
        bench.step_frame(frame);
    }
    let all = f64::from(FRAMES) * SPECTATOR_COUNT as f64;
    let per = |cost: CallCost| cost.time.as_nanos() as f64 / all;
    println!("{SPECTATOR_COUNT} spectators, loss {LOSS}: {:?}", bench.feed.stats());
    // The Makefile searches for the end of this line.
    println!(
        "feed {:.0} ns, spectator {:.0} ns, per spectator and frame",
        per(bench.feed_cost),
        per(bench.spectators_cost)
    );
    assert_eq!(bench.feed.stats().spectators, SPECTATOR_COUNT);
    assert!(bench.request_count as f64 > 0.95 * all, "the spectators missed too many frames");
    assert_eq!(bench.feed_cost.allocations, 0, "allocations of the feed");
    assert!(
        bench.spectators_cost.allocations < SPECTATOR_COUNT as u64,
        "allocations of the spectators, beyond growing buffers: {:?}",
        bench.spectators_cost
    );
}
