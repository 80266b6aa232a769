//! One socket's worth of peers: handshakes in both directions, and the channels that come of them.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;

use coplay::time::{Instant, TimeDelta};

use super::cookie::{COOKIE_LEN, Cookie, CookieGenerator};
use super::handshake::{FIRST_PADDING_LEN, Handshake};
use super::secure_channel::{DecryptError, SecureChannel};
use super::{COOKIE, DATA, HANDSHAKE_FIRST, HANDSHAKE_SECOND, HANDSHAKE_THIRD, HELLO};
use crate::key::{Identity, PeerKey, Secret, random_bytes};

/// A message that is not answered is sent again so soon.
const RETRANSMIT_INTERVAL: TimeDelta = TimeDelta::from_millis(250);
/// Who calls is told after so long that nobody answers, and goes on trying.
const UNREACHABLE_TIMEOUT: TimeDelta = TimeDelta::from_secs(4);
/// A first message is sent for so long before another cookie is asked for: this one may be too old, or may not be from who we call.
/// It is sent for longer where the way is long: twice as long as the cookie took, within bounds.
const MIN_COOKIE_ROUND: TimeDelta = TimeDelta::from_millis(750);
const MAX_COOKIE_ROUND: TimeDelta = TimeDelta::from_secs(4);
/// Who was given so many cookies, one after the other, and never an answer to the first message that each went with, does not know the
/// secret. One cookie is not enough: it is not authenticated, so who reads our packets on their way can make one, and then the
/// first message is worth nothing. To keep that up through all rounds it must be quicker than the genuine answer each time; and who
/// can do that can keep us out anyway. Nobody else can make any, because a call has a random number.
const ROUNDS_UNTIL_WRONG_SECRET: u32 = 3;
/// Who was called forgets the caller after so long.
const HALF_OPEN_TIMEOUT: TimeDelta = TimeDelta::from_secs(5);
/// A channel that another one has replaced is kept for what is still under way.
const REPLACED_CHANNEL_TIMEOUT: TimeDelta = TimeDelta::from_secs(10);
/// A channel from which nothing comes is kept so long: a computer may sleep.
const CHANNEL_TIMEOUT: TimeDelta = TimeDelta::from_secs(15 * 60);

/// The most handshakes that others can begin at once, and channels.
const MAX_HALF_OPEN: usize = 64;
const MAX_CHANNELS: usize = 4_096;
/// The most cookies given in a millisecond, and the most last messages of a handshake that are confirmed again: nobody shall use us to
/// flood another.
const COOKIES_PER_MS: u32 = 5;
const CONFIRMS_PER_MS: u32 = 2;
/// The most first messages looked at in a millisecond: each costs some fifty microseconds, whoever sends it.
const HANDSHAKES_PER_MS: u32 = 1;
/// Events not yet asked for.
const MAX_EVENTS: usize = 256;

/// A HELLO is longer than the cookie that answers it.
const HELLO_LEN: usize = 40;
const HANDSHAKE_FIRST_LEN: usize = 5 + COOKIE_LEN + 32 + FIRST_PADDING_LEN + 16;

/// What came in a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// Nothing for anybody but the endpoint itself.
    Nothing,
    /// So many bytes from a peer.
    Data {
        /// Who sent them.
        from: PeerKey,
        /// How many there are.
        len: usize,
    },
}

/// Something that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndpointEvent {
    /// There is a channel to a peer, or a new one.
    Connected {
        /// Who it is.
        peer: PeerKey,
        /// Where it is.
        addr: SocketAddr,
        /// Whether we called.
        was_dialed: bool,
    },
    /// Nobody has answered our call for a while; we go on calling. It is told once for silence, and once for a refusal.
    Unreachable {
        /// Where we call.
        addr: SocketAddr,
        /// Somebody is there, and again and again does not answer who does not know the secret.
        wrong_secret: bool,
    },
    /// Who answered our call is not who we wanted.
    WrongPeer {
        /// Where we called.
        addr: SocketAddr,
        /// Who answered.
        peer: PeerKey,
    },
}

/// What became of datagrams that were not taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RejectCounts {
    /// Datagrams that made no sense, or for channels that are not there.
    pub malformed: u64,
    /// Those that were not made by who they seemed to be from.
    pub forged: u64,
    /// Those that came before.
    pub replayed: u64,
    /// Calls from addresses that were not proven, or without the secret.
    pub unauthorized: u64,
}

impl RejectCounts {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.malformed + self.forged + self.replayed + self.unauthorized
    }
}

/// A call of ours.
#[derive(Debug)]
struct DialState {
    addr: SocketAddr,
    expected_peer: Option<PeerKey>,
    local_index: u32,
    stage: DialStage,
    next_send: Instant,
    started_at: Instant,
    /// What was told of it: that nobody answers, or that the secret is another.
    reported: Option<UnreachableReason>,
    /// Cookies that came, each after the first messages with the one before it were not answered.
    cookie_rounds: u32,
    /// When the next of them was first asked for.
    cookie_requested_at: Instant,
}

/// How a call is not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum UnreachableReason {
    NoAnswer,
    WrongSecret,
}

#[derive(Debug)]
enum DialStage {
    CookieRequested,
    FirstSent { handshake: Handshake, message: Vec<u8>, until: Instant },
    ThirdSent { message: Vec<u8>, channel: Arc<SecureChannel> },
}

/// A call of somebody else's.
#[derive(Debug)]
struct HalfOpenHandshake {
    addr: SocketAddr,
    local_index: u32,
    remote_index: u32,
    /// What it said, and what we answered.
    first: Vec<u8>,
    second: Vec<u8>,
    handshake: Handshake,
    started_at: Instant,
}

/// So many things of a kind may be done in a millisecond.
#[derive(Debug)]
struct RateLimiter {
    limit_per_ms: u32,
    current_ms: i64,
    used: u32,
}

impl RateLimiter {
    fn new(most: u32) -> Self {
        Self { limit_per_ms: most, current_ms: 0, used: 0 }
    }

    /// Whether one more may be done now.
    fn allows(&mut self, now: Instant) -> bool {
        let millisecond = now.as_nanos() / 1_000_000;
        if self.current_ms != millisecond {
            (self.current_ms, self.used) = (millisecond, 0);
        }
        self.used += 1;
        self.used <= self.limit_per_ms
    }
}

/// Everything about the peers of one socket but the socket.
#[derive(Debug)]
pub struct Endpoint {
    identity: Identity,
    secret: Secret,
    cookie_generator: CookieGenerator,
    dials: Vec<DialState>,
    half_open: VecDeque<HalfOpenHandshake>,
    channels: BTreeMap<u32, Arc<SecureChannel>>,
    /// The newest channel of each peer.
    newest_channels: BTreeMap<PeerKey, u32>,
    replaced_channels: VecDeque<(Instant, u32)>,
    outbox: VecDeque<(SocketAddr, Vec<u8>)>,
    events: VecDeque<EndpointEvent>,
    cookie_limiter: RateLimiter,
    handshake_limiter: RateLimiter,
    confirm_limiter: RateLimiter,
    repeat_limiter: RateLimiter,
    next_sweep: Instant,
    reject_counts: RejectCounts,
}

impl Endpoint {
    /// An endpoint of somebody, in a group that shares a secret.
    pub fn new(identity: Identity, secret: Secret) -> Self {
        Self {
            identity,
            secret,
            cookie_generator: CookieGenerator::new(),
            dials: Vec::new(),
            half_open: VecDeque::new(),
            channels: BTreeMap::new(),
            newest_channels: BTreeMap::new(),
            replaced_channels: VecDeque::new(),
            outbox: VecDeque::new(),
            events: VecDeque::new(),
            cookie_limiter: RateLimiter::new(COOKIES_PER_MS),
            handshake_limiter: RateLimiter::new(HANDSHAKES_PER_MS),
            confirm_limiter: RateLimiter::new(CONFIRMS_PER_MS),
            repeat_limiter: RateLimiter::new(CONFIRMS_PER_MS),
            next_sweep: Instant::ZERO,
            reject_counts: RejectCounts::default(),
        }
    }

    /// Who we are.
    pub fn key(&self) -> PeerKey {
        self.identity.key()
    }

    /// What was not taken.
    pub fn reject_counts(&self) -> RejectCounts {
        self.reject_counts
    }

    /// The newest channel to a peer.
    pub fn channel(&self, peer: &PeerKey) -> Option<&Arc<SecureChannel>> {
        self.newest_channels.get(peer).and_then(|index| self.channels.get(index))
    }

    /// Calls an address until somebody answers: anybody of the group, or only who is expected.
    pub fn dial(&mut self, now: Instant, addr: SocketAddr, expect: Option<PeerKey>) {
        if self.dials.iter().any(|call| call.addr == addr && call.expected_peer == expect) {
            return;
        }
        let index = self.free_index();
        let call = DialState {
            addr,
            expected_peer: expect,
            local_index: index,
            stage: DialStage::CookieRequested,
            next_send: now,
            started_at: now,
            reported: None,
            cookie_rounds: 0,
            cookie_requested_at: now,
        };
        self.dials.push(call);
        self.handle_timeout(now);
    }

    /// Stops calling wherever a peer was expected.
    pub fn cancel_dial(&mut self, peer: &PeerKey) {
        self.dials
            .retain(|call| call.expected_peer != Some(*peer) || matches!(call.stage, DialStage::ThirdSent { .. }));
    }

    fn free_index(&self) -> u32 {
        loop {
            let index = u32::from_le_bytes(random_bytes());
            let taken = self.channels.contains_key(&index)
                || self.dials.iter().any(|call| call.local_index == index)
                || self.half_open.iter().any(|half| half.local_index == index);
            if !taken && index != 0 {
                return index;
            }
        }
    }

    /// Takes a datagram. What it brings is put into `out`.
    pub fn handle_datagram(&mut self, now: Instant, from: SocketAddr, bytes: &[u8], out: &mut [u8]) -> Received {
        let index = bytes.get(1..5).and_then(|index| index.try_into().ok()).map(u32::from_le_bytes);
        let (Some(kind), Some(index)) = (bytes.first(), index) else {
            self.reject_counts.malformed += 1;
            return Received::Nothing;
        };
        match *kind {
            DATA => return self.on_data(now, from, index, bytes, out),
            HELLO if bytes.len() == HELLO_LEN => self.on_hello(now, from, index),
            COOKIE if bytes.len() == 5 + COOKIE_LEN => self.on_cookie(now, from, index, &bytes[5..]),
            HANDSHAKE_FIRST if bytes.len() == HANDSHAKE_FIRST_LEN => self.on_first(now, from, index, &bytes[5..]),
            HANDSHAKE_SECOND => self.on_second(now, from, index, &bytes[5..]),
            HANDSHAKE_THIRD => self.on_third(now, from, index, &bytes[5..]),
            _ => self.reject_counts.malformed += 1,
        }
        Received::Nothing
    }

    fn on_data(&mut self, now: Instant, from: SocketAddr, index: u32, bytes: &[u8], out: &mut [u8]) -> Received {
        let Some(channel) = self.channels.get(&index) else {
            self.reject_counts.malformed += 1;
            return Received::Nothing;
        };
        match channel.open(now, from, bytes, out) {
            // Nothing in it: it says that the last message of a handshake arrived.
            Ok(0) => {
                self.dials.retain(|call| call.local_index != index);
                Received::Nothing
            }
            Ok(len) => Received::Data { from: channel.peer, len },
            Err(refused) => {
                match refused {
                    DecryptError::Replayed => self.reject_counts.replayed += 1,
                    DecryptError::Forged => self.reject_counts.forged += 1,
                }
                Received::Nothing
            }
        }
    }

    /// Somebody calls, from an address that it may not have.
    fn on_hello(&mut self, now: Instant, from: SocketAddr, index: u32) {
        if !self.cookie_limiter.allows(now) {
            self.reject_counts.unauthorized += 1;
            return;
        }
        let cookie = self.cookie_generator.cookie(now, from);
        self.outbox.push_back((from, encode_message(COOKIE, index, &[&cookie])));
    }

    /// Our call was heard: say the cookie back, with the first message.
    fn on_cookie(&mut self, now: Instant, from: SocketAddr, index: u32, cookie: &[u8]) {
        let Some(call) = self.dials.iter_mut().find(|call| call.local_index == index && call.addr == from) else {
            self.reject_counts.malformed += 1;
            return;
        };
        // One cookie at a time: whoever makes more of them must not undo what the first one began.
        let wanted = match &call.stage {
            DialStage::CookieRequested => true,
            DialStage::FirstSent { until, .. } => now >= *until,
            DialStage::ThirdSent { .. } => false,
        };
        if !wanted {
            return;
        }
        call.cookie_rounds += 1;
        let (handshake, first) = Handshake::initiate(&self.identity, &self.secret);
        let message = encode_message(HANDSHAKE_FIRST, index, &[cookie, &first]);
        self.outbox.push_back((from, message.clone()));
        let round = ((now - call.cookie_requested_at) * 2).clamp(MIN_COOKIE_ROUND, MAX_COOKIE_ROUND);
        call.stage = DialStage::FirstSent { handshake, message, until: now + round };
        call.cookie_requested_at = now + round;
        call.next_send = now + RETRANSMIT_INTERVAL;
    }

    /// Somebody at a proven address calls, and must know the secret.
    fn on_first(&mut self, now: Instant, from: SocketAddr, theirs: u32, rest: &[u8]) {
        let (cookie, first) = rest.split_at(COOKIE_LEN);
        let cookie: &Cookie = cookie.try_into().expect("it was split there");
        let good = self.cookie_generator.is_valid(now, from, cookie);
        let same = |half: &&HalfOpenHandshake| (half.addr, half.remote_index) == (from, theirs) && half.first == first;
        if let Some(half) = self.half_open.iter().find(same).filter(|_| good) {
            if !self.repeat_limiter.allows(now) {
                self.reject_counts.replayed += 1;
                return;
            }
            // Who sends it again has not heard our answer yet. Another one would undo the first, which may be on its way.
            return self.outbox.push_back((from, half.second.clone()));
        }
        let good = good && self.handshake_limiter.allows(now);
        let answer = good.then(|| Handshake::respond(&self.identity, &self.secret, first)).flatten();
        let Some((handshake, second)) = answer else {
            self.reject_counts.unauthorized += 1;
            return;
        };
        // Who begins anew has given the old one up.
        self.half_open.retain(|half| (half.addr, half.remote_index) != (from, theirs));
        if self.half_open.len() == MAX_HALF_OPEN {
            self.half_open.pop_front();
        }
        let ours = self.free_index();
        let second = encode_message(HANDSHAKE_SECOND, theirs, &[&ours.to_le_bytes(), &second]);
        self.outbox.push_back((from, second.clone()));
        self.half_open.push_back(HalfOpenHandshake {
            addr: from,
            local_index: ours,
            remote_index: theirs,
            first: first.to_vec(),
            second,
            handshake,
            started_at: now,
        });
    }

    /// Our call is answered.
    fn on_second(&mut self, now: Instant, from: SocketAddr, index: u32, rest: &[u8]) {
        let Some(at) = self.dials.iter().position(|call| call.local_index == index && call.addr == from) else {
            self.reject_counts.malformed += 1;
            return;
        };
        let Some((theirs, second)) = rest.split_at_checked(4) else { return };
        let theirs = u32::from_le_bytes(theirs.try_into().expect("it was split there"));
        let DialStage::FirstSent { handshake, .. } = &mut self.dials[at].stage else { return };
        let Some(third) = handshake.handle_second(second) else {
            self.reject_counts.forged += 1;
            return;
        };
        let call = &mut self.dials[at];
        let DialStage::FirstSent { handshake, .. } = std::mem::replace(&mut call.stage, DialStage::CookieRequested)
        else {
            return;
        };
        let Some((cipher, peer)) = handshake.into_transport() else { return };
        if call.expected_peer.is_some_and(|expected| expected != peer) || peer == self.identity.key() {
            self.dials.remove(at);
            return self.push_event(EndpointEvent::WrongPeer { addr: from, peer });
        }
        let message = encode_message(HANDSHAKE_THIRD, theirs, &[&third]);
        self.outbox.push_back((from, message.clone()));
        let channel = Arc::new(SecureChannel::new(now, peer, theirs, cipher, from));
        call.next_send = now + RETRANSMIT_INTERVAL;
        call.stage = DialStage::ThirdSent { message, channel: Arc::clone(&channel) };
        self.add_channel(now, index, channel, true);
    }

    /// Somebody whom we answered has shown who it is.
    fn on_third(&mut self, now: Instant, from: SocketAddr, index: u32, third: &[u8]) {
        if let Some(channel) = self.channels.get(&index) {
            // It did not hear that we heard; or somebody else has heard it say so.
            if !self.confirm_limiter.allows(now) {
                self.reject_counts.replayed += 1;
                return;
            }
            let confirmed = encode_confirmation(channel);
            return self.outbox.extend(confirmed);
        }
        let Some(at) = self.half_open.iter().position(|half| half.local_index == index && half.addr == from) else {
            self.reject_counts.malformed += 1;
            return;
        };
        if !self.half_open[at].handshake.handle_third(third) {
            self.reject_counts.forged += 1;
            return;
        }
        let Some(HalfOpenHandshake { remote_index: theirs, handshake, .. }) = self.half_open.remove(at) else { return };
        let Some((cipher, peer)) = handshake.into_transport() else { return };
        let channel = Arc::new(SecureChannel::new(now, peer, theirs, cipher, from));
        self.outbox.extend(encode_confirmation(&channel));
        self.add_channel(now, index, channel, false);
    }

    fn add_channel(&mut self, now: Instant, index: u32, channel: Arc<SecureChannel>, called: bool) {
        let (peer, addr) = (channel.peer, channel.addr());
        if self.channels.len() >= MAX_CHANNELS {
            self.close_stalest_channel();
        }
        self.channels.insert(index, channel);
        // It was found: where else we call it does not matter any more.
        let calls = self.dials.len();
        self.cancel_dial(&peer);
        let called = called || self.dials.len() < calls;
        if let Some(old) = self.newest_channels.insert(peer, index) {
            self.replaced_channels.push_back((now, old));
        }
        self.push_event(EndpointEvent::Connected { peer, addr, was_dialed: called });
    }

    fn close_stalest_channel(&mut self) {
        if let Some(stalest) =
            self.channels.iter().min_by_key(|(_, channel)| channel.last_received()).map(|(index, _)| *index)
        {
            self.close_channel(stalest);
        }
    }

    fn close_channel(&mut self, index: u32) {
        if let Some(channel) = self.channels.remove(&index)
            && self.newest_channels.get(&channel.peer) == Some(&index)
        {
            self.newest_channels.remove(&channel.peer);
        }
    }

    fn push_event(&mut self, event: EndpointEvent) {
        if self.events.len() == MAX_EVENTS {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    /// What is due: messages that were not answered, and forgetting. Call it when [`poll_timeout`](Self::poll_timeout) says so.
    pub fn handle_timeout(&mut self, now: Instant) {
        for at in 0..self.dials.len() {
            self.retransmit_dial(now, at);
        }
        self.dials.retain(|call| {
            !matches!(&call.stage, DialStage::ThirdSent { .. }) || now - call.started_at < UNREACHABLE_TIMEOUT * 4
        });
        if now < self.next_sweep {
            return;
        }
        self.next_sweep = now + TimeDelta::from_secs(1);
        self.half_open.retain(|half| now - half.started_at < HALF_OPEN_TIMEOUT);
        while let Some((_, index)) =
            self.replaced_channels.front().copied().filter(|(since, _)| now - *since > REPLACED_CHANNEL_TIMEOUT)
        {
            self.replaced_channels.pop_front();
            self.close_channel(index);
        }
        let silent = |(index, channel): (&u32, &Arc<SecureChannel>)| {
            (now - channel.last_received() > CHANNEL_TIMEOUT).then_some(*index)
        };
        let silent: Vec<u32> = self.channels.iter().filter_map(silent).collect();
        silent.into_iter().for_each(|index| self.close_channel(index));
    }

    fn retransmit_dial(&mut self, now: Instant, at: usize) {
        let call = &mut self.dials[at];
        let mut unanswered = false;
        if now >= call.next_send {
            call.next_send = now + RETRANSMIT_INTERVAL;
            let bytes = match &call.stage {
                DialStage::FirstSent { message, until, .. } if now < *until => message.clone(),
                DialStage::ThirdSent { message, .. } => message.clone(),
                stage => {
                    // Also after first messages that nobody answered. What answers them late is still taken.
                    unanswered =
                        matches!(stage, DialStage::FirstSent { .. }) && call.cookie_rounds >= ROUNDS_UNTIL_WRONG_SECRET;
                    encode_message(HELLO, call.local_index, &[&[0; HELLO_LEN - 5]])
                }
            };
            let to = match &call.stage {
                DialStage::ThirdSent { channel, .. } => channel.addr(),
                _ => call.addr,
            };
            self.outbox.push_back((to, bytes));
        }
        if matches!(call.stage, DialStage::ThirdSent { .. }) {
            return;
        }
        let refusal = match now - call.started_at > UNREACHABLE_TIMEOUT {
            _ if unanswered => Some(UnreachableReason::WrongSecret),
            late => late.then_some(UnreachableReason::NoAnswer),
        };
        if refusal > call.reported {
            call.reported = refusal;
            let event = EndpointEvent::Unreachable { addr: call.addr, wrong_secret: unanswered };
            self.push_event(event);
        }
    }

    /// When to call [`handle_timeout`](Self::handle_timeout) at the latest.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.dials.iter().map(|call| call.next_send).min()
    }

    /// The next datagram to be sent.
    pub fn poll_transmit(&mut self) -> Option<(SocketAddr, Vec<u8>)> {
        self.outbox.pop_front()
    }

    /// The next thing that happened.
    pub fn poll_event(&mut self) -> Option<EndpointEvent> {
        self.events.pop_front()
    }
}

fn encode_message(kind: u8, index: u32, parts: &[&[u8]]) -> Vec<u8> {
    let mut message = vec![kind];
    message.extend_from_slice(&index.to_le_bytes());
    parts.iter().for_each(|part| message.extend_from_slice(part));
    message
}

/// An empty datagram: it shows that we have the keys.
fn encode_confirmation(channel: &SecureChannel) -> Option<(SocketAddr, Vec<u8>)> {
    let mut bytes = vec![0; super::SEAL_OVERHEAD];
    let len = channel.seal(&[], &mut bytes)?;
    bytes.truncate(len);
    Some((channel.addr(), bytes))
}

#[cfg(test)]
mod tests;
