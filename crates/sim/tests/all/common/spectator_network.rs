//! Test network for spectators: a game that plays by itself, its feeds, relays and spectators, and simulated links
//! between them.

use coplay::codec::MAX_DATAGRAM;
use coplay::frame::Frame;
use coplay::id::Addr;
use coplay::input::{InputWord, Ownership};
use coplay::session::Settings;
use coplay::spectator_feed::{
    Feed, FeedConfig, Spectator, SpectatorConfig, SpectatorEvent, SpectatorRequest, SpectatorStart,
};
use coplay::time::{Instant, TimeDelta};
use coplay_links::event_queue::TimedEventQueue;
use coplay_links::link::{Link, LinkConfig};
use coplay_links::random::Random;
use coplay_sim::session_experiment::toy_settings;
use coplay_sim::toy_machine::mix_hash;

use super::{ms, secs};

pub(crate) const SESSION_ID: u64 = 77;
const FRAME_PERIOD: TimeDelta = TimeDelta::from_nanos(16_666_667);

/// Machine with a state of any size, at most one byte of which changes in each frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LargeStateMachine {
    pub(crate) state: Vec<u8>,
    input_hash: u64,
    frames: u32,
}

impl LargeStateMachine {
    /// Creates a state of `size` bytes: incompressible noise, or compressible runs of equal bytes.
    pub(crate) fn new(size: usize, noise: bool) -> Self {
        let mut random = Random::new(5);
        let state = (0..size).map(|at| if noise { random.bits() as u8 } else { (at / 100) as u8 }).collect();
        Self { state, input_hash: 1, frames: 0 }
    }

    pub(crate) fn step(&mut self, words: &[InputWord]) {
        self.input_hash = words.iter().fold(self.input_hash, |memory, word| mix_hash(memory, *word as u64));
        if !self.state.is_empty() {
            let at = self.input_hash as usize % self.state.len();
            self.state[at] ^= self.input_hash as u8;
        }
        self.frames += 1;
    }

    pub(crate) fn hash(&self) -> u64 {
        let words = self.state.chunks(8).map(|chunk| chunk.iter().fold(0, |word, byte| word << 8 | u64::from(*byte)));
        words.fold(mix_hash(self.input_hash, u64::from(self.frames)), mix_hash)
    }

    pub(crate) fn save(&self) -> Vec<u8> {
        [&self.input_hash.to_le_bytes()[..], &self.frames.to_le_bytes(), &self.state].concat()
    }

    pub(crate) fn load(&mut self, bytes: &[u8]) {
        self.input_hash = u64::from_le_bytes(bytes[..8].try_into().unwrap());
        self.frames = u32::from_le_bytes(bytes[8..12].try_into().unwrap());
        self.state = bytes[12..].to_vec();
    }
}

/// Node of the network: a feed, a spectator, or a relay, which is both.
#[derive(Debug)]
pub(crate) struct FeedNode {
    pub(crate) feed: Option<Feed>,
    pub(crate) spectator: Option<Spectator>,
    pub(crate) machine: Option<LargeStateMachine>,
    pub(crate) is_dead: bool,
    pub(crate) live_at: Option<Instant>,
    pub(crate) loads: u32,
    pub(crate) events: Vec<(Instant, SpectatorEvent)>,
    /// Frames that the spectator has stepped since its last load.
    pub(crate) frames: Vec<u32>,
    /// Times at which frames were presented.
    pub(crate) shown_at: Vec<Instant>,
    pub(crate) wrong_frames: u32,
    pub(crate) peak_memory: usize,
    wake_id: u64,
    immediate_wakes: u32,
    /// Number of times the host program ran.
    pub(crate) wakes: u64,
}

#[derive(Debug)]
enum SpectatorQueueEvent {
    GameFrame,
    Wake { node: usize, wake_id: u64 },
    Arrive { link: usize, from: usize, to: usize, bytes: Vec<u8> },
}

/// The game, all nodes and the links between them.
#[derive(Debug)]
pub(crate) struct SpectatorTestNetwork {
    pub(crate) now: Instant,
    pub(crate) nodes: Vec<FeedNode>,
    links: Vec<Link>,
    seed: u64,
    queue: TimedEventQueue<SpectatorQueueEvent>,
    random: Random,
    held_inputs: Vec<InputWord>,
    /// Inputs of every frame played so far.
    pub(crate) played_inputs: Vec<Vec<InputWord>>,
    pub(crate) machine: LargeStateMachine,
    pub(crate) is_playing: bool,
    link: LinkConfig,
    /// Random numbers that corrupt about half of all sent datagrams; `None` if datagrams are sent unchanged.
    pub(crate) tamper_random: Option<Random>,
}

pub(crate) fn settings() -> Settings {
    toy_settings(6, Ownership::one_player_per_site(2, 0xffff))
}

pub(crate) fn feed_config() -> FeedConfig {
    FeedConfig {
        max_bulk_rate: 4_000_000,
        max_bulk_rate_per_spectator: 4_000_000,
        ..FeedConfig::new(SESSION_ID, 99, settings())
    }
}

pub(crate) fn spectator_config(from: &[usize]) -> SpectatorConfig {
    SpectatorConfig::new(SESSION_ID, settings(), from.iter().map(|node| Addr(*node as u64)).collect())
}

impl FeedNode {
    fn new(feed: Option<Feed>, spectator: Option<Spectator>, machine: Option<LargeStateMachine>) -> Self {
        Self {
            feed,
            spectator,
            machine,
            is_dead: false,
            live_at: None,
            loads: 0,
            events: Vec::new(),
            frames: Vec::new(),
            shown_at: Vec::new(),
            wrong_frames: 0,
            peak_memory: 0,
            wake_id: 0,
            immediate_wakes: 0,
            wakes: 0,
        }
    }

    pub(crate) fn spectator(&self) -> &Spectator {
        self.spectator.as_ref().unwrap()
    }

    pub(crate) fn feed(&self) -> &Feed {
        self.feed.as_ref().unwrap()
    }

    pub(crate) fn has_event(&self, is_wanted: impl Fn(&SpectatorEvent) -> bool) -> bool {
        self.events.iter().any(|(_, event)| is_wanted(event))
    }
}

impl SpectatorTestNetwork {
    /// Creates a game on `machine`. Node 0 has a feed of it.
    pub(crate) fn new(seed: u64, machine: LargeStateMachine, config: FeedConfig, link: LinkConfig) -> Self {
        let mut network = Self {
            now: Instant::ZERO,
            nodes: Vec::new(),
            links: Vec::new(),
            seed,
            queue: TimedEventQueue::new(),
            random: Random::stream(seed, "stand"),
            held_inputs: vec![0; 2],
            played_inputs: Vec::new(),
            machine,
            is_playing: true,
            link,
            tamper_random: None,
        };
        network.nodes.push(FeedNode::new(Some(Feed::new(config).unwrap()), None, None));
        network.queue.push(Instant::ZERO, SpectatorQueueEvent::GameFrame);
        network
    }

    /// Adds another feed that gets its frames directly from the game.
    pub(crate) fn add_feed(&mut self, config: FeedConfig) -> usize {
        self.nodes.push(FeedNode::new(Some(Feed::new(config).unwrap()), None, None));
        self.nodes.len() - 1
    }

    pub(crate) fn add_spectator(&mut self, config: SpectatorConfig, machine: LargeStateMachine) -> usize {
        self.nodes.push(FeedNode::new(None, Some(Spectator::new(self.now, config).unwrap()), Some(machine)));
        self.schedule_wake(self.nodes.len() - 1);
        self.nodes.len() - 1
    }

    /// Adds a relay: a spectator with a feed of its own, with or without a machine.
    pub(crate) fn add_relay(
        &mut self,
        upstream: SpectatorConfig,
        feed: FeedConfig,
        machine: Option<LargeStateMachine>,
    ) -> usize {
        let mut node =
            FeedNode::new(Some(Feed::new(feed).unwrap()), Some(Spectator::new(self.now, upstream).unwrap()), None);
        node.machine = machine;
        self.nodes.push(node);
        self.schedule_wake(self.nodes.len() - 1);
        self.nodes.len() - 1
    }

    fn schedule_wake(&mut self, node: usize) {
        self.nodes[node].wake_id += 1;
        self.queue.push(self.now, SpectatorQueueEvent::Wake { node, wake_id: self.nodes[node].wake_id });
    }

    pub(crate) fn link(&mut self, from: usize, to: usize) -> &mut Link {
        let at = self.link_index(from, to);
        &mut self.links[at]
    }

    fn link_index(&mut self, from: usize, to: usize) -> usize {
        const MAX_NODES: usize = 64;
        while self.links.len() < MAX_NODES * MAX_NODES {
            let at = self.links.len();
            let name = format!("{}>{}", at / MAX_NODES, at % MAX_NODES);
            self.links.push(Link::new(self.link.clone(), self.seed, &name));
        }
        from * MAX_NODES + to
    }

    pub(crate) fn set_cut(&mut self, one: usize, other: usize, cut: bool) {
        self.link(one, other).set_cut(cut);
        self.link(other, one).set_cut(cut);
    }

    pub(crate) fn run_for(&mut self, time: TimeDelta) {
        let until = self.now + time;
        while self.queue.next_time().is_some_and(|at| at <= until) {
            let Some((at, event)) = self.queue.pop() else { break };
            self.now = self.now.max(at);
            match event {
                SpectatorQueueEvent::GameFrame => self.step_game(),
                SpectatorQueueEvent::Wake { node, wake_id } if self.nodes[node].wake_id == wake_id => {
                    self.run_host_program(node)
                }
                SpectatorQueueEvent::Wake { .. } => {}
                SpectatorQueueEvent::Arrive { link, from, to, bytes } => {
                    if self.links[link].admit_arrival() {
                        self.deliver(from, to, &bytes);
                    }
                }
            }
        }
        self.now = until;
    }

    /// Runs until a node is live. Returns the time that this took. Panics if the node is not live after `at_most`.
    #[track_caller]
    pub(crate) fn run_until_live(&mut self, node: usize, at_most: TimeDelta) -> TimeDelta {
        let (since, until) = (self.now, self.now + at_most);
        while self.nodes[node].live_at.is_none() {
            assert!(self.now < until, "node {node} is not live after {at_most}: {:?}", self.nodes[node].events);
            self.run_for(ms(50));
        }
        self.nodes[node].live_at.unwrap() - since
    }

    fn step_game(&mut self) {
        self.queue.push(self.now + FRAME_PERIOD, SpectatorQueueEvent::GameFrame);
        if !self.is_playing {
            return;
        }
        for word in &mut self.held_inputs {
            if self.random.chance(1.0 / 8.0) {
                *word = InputWord::from(self.random.bits() as u16);
            }
        }
        let frame = Frame::new(self.played_inputs.len() as u32);
        self.machine.step(&self.held_inputs);
        self.played_inputs.push(self.held_inputs.clone());
        let sources: Vec<usize> = (0..self.nodes.len()).filter(|node| self.nodes[*node].spectator.is_none()).collect();
        for node in sources {
            let Some(feed) = self.nodes[node].feed.as_mut() else { continue };
            feed.push(self.now, frame, &self.held_inputs);
            if frame.number() % 60 == 59 {
                feed.push_hash(frame, self.machine.hash());
            }
            if feed.wants_snapshot() {
                feed.set_snapshot(self.now, frame.next(), &self.machine.save(), self.machine.hash());
            }
            self.run_host_program(node);
        }
    }

    pub(crate) fn deliver(&mut self, from: usize, to: usize, bytes: &[u8]) {
        let (now, from) = (self.now, Addr(from as u64));
        let node = &mut self.nodes[to];
        if node.is_dead {
            return;
        }
        if let Some(spectator) = &mut node.spectator {
            spectator.handle_datagram(now, from, bytes);
        }
        if let Some(feed) = &mut node.feed {
            feed.handle_datagram(now, from, bytes);
        }
        self.run_host_program(to);
    }

    fn run_host_program(&mut self, at: usize) {
        let now = self.now;
        if self.nodes[at].is_dead {
            return;
        }
        self.serve_requests(at);
        self.nodes[at].wakes += 1;
        let mut buf = [0; MAX_DATAGRAM];
        let mut sent = Vec::new();
        let node = &mut self.nodes[at];
        if let Some(spectator) = &mut node.spectator {
            for _ in 0..1_000 {
                let Some(packet) = spectator.poll_transmit(now, &mut buf) else { break };
                sent.push((packet.to, buf[..packet.len].to_vec()));
            }
            while let Some(event) = spectator.poll_event() {
                if matches!(event, SpectatorEvent::Live { .. }) {
                    node.live_at.get_or_insert(now);
                }
                node.events.push((now, event));
            }
            node.peak_memory = node.peak_memory.max(spectator.memory());
        }
        if let Some(feed) = &mut node.feed {
            for _ in 0..100_000 {
                let Some(packet) = feed.poll_transmit(now, &mut buf) else { break };
                sent.push((packet.to, buf[..packet.len].to_vec()));
            }
        }
        let timeouts = [
            node.spectator.as_ref().and_then(Spectator::poll_timeout),
            node.feed.as_ref().and_then(Feed::poll_timeout),
        ];
        if let Some(next) = timeouts.into_iter().flatten().min() {
            node.wake_id += 1;
            let next = next.max(now);
            // An engine whose timeout is always now would keep its host program from ever sleeping.
            node.immediate_wakes = if next == now { node.immediate_wakes + 1 } else { 0 };
            assert!(node.immediate_wakes < 20, "node {at} never sleeps");
            self.queue.push(next, SpectatorQueueEvent::Wake { node: at, wake_id: node.wake_id });
        }
        for (to, bytes) in sent {
            self.send(at, to, bytes);
        }
    }

    fn send(&mut self, from: usize, to: Addr, mut bytes: Vec<u8>) {
        let to = to.0 as usize;
        if to >= self.nodes.len() {
            return;
        }
        if let Some(random) = &mut self.tamper_random {
            corrupt_datagram(random, &mut bytes);
        }
        let link = self.link_index(from, to);
        for at in self.links[link].send(self.now, bytes.len() + 28) {
            self.queue.push(at, SpectatorQueueEvent::Arrive { link, from, to, bytes: bytes.clone() });
        }
    }

    /// Serves the requests of the spectator at node `at`, as its host program.
    fn serve_requests(&mut self, at: usize) {
        let (now, node) = (self.now, &mut self.nodes[at]);
        let Some(spectator) = &mut node.spectator else { return };
        let mut answer = None;
        for _ in 0..100_000 {
            if let Some(hash) = answer.take() {
                spectator.handle_hash(hash);
            }
            let Some(request) = spectator.poll_request(now) else { return };
            match request {
                SpectatorRequest::Load { next_frame, state, hash } => {
                    node.loads += 1;
                    node.frames.clear();
                    if let Some(machine) = &mut node.machine {
                        if state.len() >= 12 {
                            machine.load(state);
                        }
                        node.wrong_frames += u32::from(state.len() < 12);
                    }
                    if let Some(feed) = &mut node.feed {
                        feed.set_snapshot(now, next_frame, state, hash);
                    }
                }
                SpectatorRequest::Advance { frame, inputs, is_presented } => {
                    node.wrong_frames += u32::from(
                        self.played_inputs.get(frame.number() as usize).is_none_or(|played| played != inputs),
                    );
                    node.frames.push(frame.number());
                    if is_presented {
                        node.shown_at.push(now);
                    }
                    if let Some(machine) = &mut node.machine {
                        machine.step(inputs);
                    }
                    if let Some(feed) = &mut node.feed {
                        feed.push(now, frame, inputs);
                        if let Some(machine) = node.machine.as_ref().filter(|_| feed.wants_snapshot()) {
                            feed.set_snapshot(now, frame.next(), &machine.save(), machine.hash());
                        }
                    }
                }
                SpectatorRequest::Hash { frame, expected } => {
                    answer = Some(node.machine.as_ref().map_or(expected, LargeStateMachine::hash));
                    if let Some(feed) = &mut node.feed {
                        feed.push_hash(frame, expected);
                    }
                }
            }
        }
    }

    /// Asserts that a node stepped every frame since its last load, is less than 90 frames behind the game, and never
    /// had other inputs than those played or another state hash than its source's.
    #[track_caller]
    pub(crate) fn assert_saw_every_frame(&self, node: usize) {
        let node = &self.nodes[node];
        assert_eq!(node.wrong_frames, 0, "wrong inputs");
        assert!(node.frames.windows(2).all(|pair| pair[1] == pair[0] + 1), "a gap");
        let last = node.frames.last().copied().unwrap_or(0);
        assert!(
            self.played_inputs.len() as u32 - last < 90,
            "the newest frame seen is {last} of {}: {:?}",
            self.played_inputs.len(),
            node.events
        );
        assert_eq!(node.spectator().stats().mismatches, 0);
    }
}

/// Corrupts a datagram with a probability of one half, in one to three places: flips a bit, replaces, appends or cuts
/// off bytes.
pub(crate) fn corrupt_datagram(random: &mut Random, bytes: &mut Vec<u8>) {
    if bytes.is_empty() || random.chance(0.5) {
        return;
    }
    for _ in 0..=random.below(3) {
        let at = random.below(bytes.len().max(1) as u64) as usize;
        match random.below(5) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes[at] = random.bits() as u8,
            2 => bytes.truncate(at.max(1)),
            3 => bytes.push(random.bits() as u8),
            _ => bytes[at] = *random.pick(&[0, 0x7f, 0x80, 0xff]),
        }
    }
}

pub(crate) fn spectator_config_from_start(from: &[usize]) -> SpectatorConfig {
    SpectatorConfig { start: SpectatorStart::FirstFrame, ..spectator_config(from) }
}

pub(crate) fn minute() -> TimeDelta {
    secs(60)
}
