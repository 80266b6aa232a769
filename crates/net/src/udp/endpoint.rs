//! Handshakes in both directions on one socket, and the channels that they establish.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;

use coplay::time::{Instant, TimeDelta};

use super::cookie::{COOKIE_LEN, Cookie, CookieGenerator};
use super::handshake::{FIRST_PADDING_LEN, Handshake};
use super::secure_channel::{DecryptError, SecureChannel};
use super::{COOKIE, DATA, HANDSHAKE_FIRST, HANDSHAKE_SECOND, HANDSHAKE_THIRD, HELLO};
use crate::key::{Identity, PeerKey, Secret, random_bytes};

/// Retransmission interval of handshake messages.
const RETRANSMIT_INTERVAL: TimeDelta = TimeDelta::from_millis(250);
/// Time without a valid second message after which a dial is reported as unreachable; dialing continues.
const UNREACHABLE_TIMEOUT: TimeDelta = TimeDelta::from_secs(4);
/// Minimum time for which a first message is retransmitted before another cookie is requested: the cookie may have
/// expired, or may be forged. The time is twice as long as the cookie took to arrive after its request, but at least
/// this and at most [`MAX_COOKIE_ROUND`].
const MIN_COOKIE_ROUND: TimeDelta = TimeDelta::from_millis(750);
/// Maximum time for which a first message is retransmitted before another cookie is requested.
const MAX_COOKIE_ROUND: TimeDelta = TimeDelta::from_secs(4);
/// Number of cookies after which the secret counts as wrong if no first message that returned one of them was answered.
/// One cookie is not enough: cookies are not authenticated, so an attacker that reads this endpoint's packets can forge
/// one, which makes the first message worthless. To do so in every round, the attacker must be faster than the acceptor
/// each time, and such an attacker can prevent the connection anyway. Others cannot forge cookies, because a dial has a
/// random number.
const ROUNDS_UNTIL_WRONG_SECRET: u32 = 3;
/// Lifetime of an incoming handshake that the dialer does not complete.
const HALF_OPEN_TIMEOUT: TimeDelta = TimeDelta::from_secs(5);
/// Time for which a replaced channel is kept for datagrams in flight.
const REPLACED_CHANNEL_TIMEOUT: TimeDelta = TimeDelta::from_secs(10);
/// Time without a received datagram after which a channel is closed; long, because a peer's computer may be suspended.
const CHANNEL_TIMEOUT: TimeDelta = TimeDelta::from_secs(15 * 60);

/// Maximum number of incomplete incoming handshakes; one more discards the oldest.
const MAX_HALF_OPEN: usize = 64;
/// Maximum number of channels; one more closes the channel silent for longest.
const MAX_CHANNELS: usize = 4_096;
/// Maximum number of cookies sent per millisecond, so that this endpoint cannot be abused to flood another.
const COOKIES_PER_MS: u32 = 5;
/// Maximum number of repeated second messages, and of repeated confirmations of a third message, sent per millisecond.
const CONFIRMS_PER_MS: u32 = 2;
/// Maximum number of first messages processed per millisecond: each costs about 50 µs.
const HANDSHAKES_PER_MS: u32 = 1;
/// Maximum number of queued events; one more discards the oldest.
const MAX_EVENTS: usize = 256;

/// Length of a HELLO in bytes, more than that of the cookie that answers it.
const HELLO_LEN: usize = 40;
const HANDSHAKE_FIRST_LEN: usize = 5 + COOKIE_LEN + 32 + FIRST_PADDING_LEN + 16;

/// Result of handling a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// A handshake message or a rejected datagram: nothing for the caller.
    Nothing,
    /// Data from a peer, decrypted into `out`.
    Data {
        /// Authenticated sender.
        from: PeerKey,
        /// Length of the data in `out`, in bytes.
        len: usize,
    },
}

/// Event for the caller of an endpoint, from [`Endpoint::poll_event`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndpointEvent {
    /// A channel to a peer was established or replaced.
    Connected {
        /// Public key that the peer proved.
        peer: PeerKey,
        /// Address from which the last handshake message of the peer came.
        addr: SocketAddr,
        /// Whether this endpoint was dialing: the channel results from its dial, or ends dials that expected this
        /// peer, at any address.
        was_dialed: bool,
    },
    /// A dial has got no valid second message for 4 s, or its secret counts as wrong; dialing continues. Reported at
    /// most once for the former and once for the latter.
    Unreachable {
        /// Dialed address.
        addr: SocketAddr,
        /// Whether an endpoint there sent at least three cookies and answered no first message: its secret is another
        /// one.
        wrong_secret: bool,
    },
    /// The answering peer is not the expected one, or is this endpoint itself. The dial ends.
    WrongPeer {
        /// Dialed address.
        addr: SocketAddr,
        /// Public key of the answering peer.
        peer: PeerKey,
    },
}

/// Counts of rejected datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RejectCounts {
    /// Datagrams that are malformed, or belong to no known channel or handshake.
    pub malformed: u64,
    /// Data datagrams, and second and third handshake messages, that fail authentication.
    pub forged: u64,
    /// Data datagrams that were received before or are too old to decide, and repeated handshake messages above a rate
    /// limit.
    pub replayed: u64,
    /// Cookie requests above the rate limit, and first messages without a valid cookie, without the secret, or above
    /// the rate limit.
    pub unauthorized: u64,
}

impl RejectCounts {
    /// Returns the sum of all counts.
    pub fn total(&self) -> u64 {
        self.malformed + self.forged + self.replayed + self.unauthorized
    }
}

/// Outgoing handshake with the endpoint at one address.
#[derive(Debug)]
struct DialState {
    addr: SocketAddr,
    expected_peer: Option<PeerKey>,
    local_index: u32,
    stage: DialStage,
    next_send: Instant,
    started_at: Instant,
    /// Most specific problem reported so far; `None` if none was.
    reported: Option<UnreachableReason>,
    /// Number of cookies accepted so far. Another one is accepted only after the first message with the previous cookie
    /// has remained unanswered.
    cookie_rounds: u32,
    /// Time of the first request for the current cookie or, while a first message is being retransmitted, for the next
    /// cookie.
    cookie_requested_at: Instant,
}

/// Reason why a dial is unreachable, from the least to the most specific.
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

/// Incoming handshake that waits for the third message.
#[derive(Debug)]
struct HalfOpenHandshake {
    addr: SocketAddr,
    local_index: u32,
    remote_index: u32,
    /// First message as received, to recognise a repetition.
    first: Vec<u8>,
    /// Second message sent in reply, sent again when the first is repeated.
    second: Vec<u8>,
    handshake: Handshake,
    started_at: Instant,
}

/// Limit of an action to a number of times per millisecond.
#[derive(Debug)]
struct RateLimiter {
    limit_per_ms: u32,
    current_ms: i64,
    used: u32,
}

impl RateLimiter {
    fn new(limit_per_ms: u32) -> Self {
        Self { limit_per_ms, current_ms: 0, used: 0 }
    }

    /// Returns whether one more action is allowed now, and counts it.
    fn allows(&mut self, now: Instant) -> bool {
        let millisecond = now.as_nanos() / 1_000_000;
        if self.current_ms != millisecond {
            (self.current_ms, self.used) = (millisecond, 0);
        }
        self.used += 1;
        self.used <= self.limit_per_ms
    }
}

/// Handshakes and channels of one socket, without the socket itself.
#[derive(Debug)]
pub struct Endpoint {
    identity: Identity,
    secret: Secret,
    cookie_generator: CookieGenerator,
    dials: Vec<DialState>,
    half_open: VecDeque<HalfOpenHandshake>,
    channels: BTreeMap<u32, Arc<SecureChannel>>,
    /// Number of the newest channel of each peer.
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
    /// Creates an endpoint without channels. Only peers that know `secret` can connect.
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

    /// Returns the public key by which peers know this endpoint.
    pub fn key(&self) -> PeerKey {
        self.identity.key()
    }

    /// Returns the counts of datagrams rejected since the endpoint was created.
    pub fn reject_counts(&self) -> RejectCounts {
        self.reject_counts
    }

    /// Returns the newest channel to a peer; `None` if none is open.
    pub fn channel(&self, peer: &PeerKey) -> Option<&Arc<SecureChannel>> {
        self.newest_channels.get(peer).and_then(|index| self.channels.get(index))
    }

    /// Keeps dialing an address until the peer `expect` is connected, or with `None` any peer that knows the secret. If
    /// another peer than `expect`, or this endpoint itself, answers, the dial ends with [`EndpointEvent::WrongPeer`].
    pub fn dial(&mut self, now: Instant, addr: SocketAddr, expect: Option<PeerKey>) {
        if self.dials.iter().any(|dial| dial.addr == addr && dial.expected_peer == expect) {
            return;
        }
        let index = self.free_index();
        let dial = DialState {
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
        self.dials.push(dial);
        self.handle_timeout(now);
    }

    /// Stops dialing all addresses at which a peer was expected. A dial that has established a channel goes on until
    /// the peer confirms the channel, but not beyond 16 s after the start of the dial.
    pub fn cancel_dial(&mut self, peer: &PeerKey) {
        self.dials
            .retain(|dial| dial.expected_peer != Some(*peer) || matches!(dial.stage, DialStage::ThirdSent { .. }));
    }

    fn free_index(&self) -> u32 {
        loop {
            let index = u32::from_le_bytes(random_bytes());
            let taken = self.channels.contains_key(&index)
                || self.dials.iter().any(|dial| dial.local_index == index)
                || self.half_open.iter().any(|half| half.local_index == index);
            if !taken && index != 0 {
                return index;
            }
        }
    }

    /// Handles a datagram that arrived from the address `from`. Decrypts data into `out`.
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
            // An empty datagram confirms the third message of a handshake.
            Ok(0) => {
                self.dials.retain(|dial| dial.local_index != index);
                Received::Nothing
            }
            Ok(len) => Received::Data { from: channel.peer, len },
            Err(error) => {
                match error {
                    DecryptError::Replayed => self.reject_counts.replayed += 1,
                    DecryptError::Forged => self.reject_counts.forged += 1,
                }
                Received::Nothing
            }
        }
    }

    /// Answers a dialer at an unproven address with a cookie, unless the limit of cookies per millisecond is reached.
    fn on_hello(&mut self, now: Instant, from: SocketAddr, index: u32) {
        if !self.cookie_limiter.allows(now) {
            self.reject_counts.unauthorized += 1;
            return;
        }
        let cookie = self.cookie_generator.cookie(now, from);
        self.outbox.push_back((from, encode_message(COOKIE, index, &[&cookie])));
    }

    /// Answers a requested cookie with the first message, which contains the cookie. Ignores a cookie that was not
    /// requested.
    fn on_cookie(&mut self, now: Instant, from: SocketAddr, index: u32, cookie: &[u8]) {
        let Some(dial) = self.dials.iter_mut().find(|dial| dial.local_index == index && dial.addr == from) else {
            self.reject_counts.malformed += 1;
            return;
        };
        // One cookie at a time: a forger of more cookies must not disrupt the round of the first one.
        let is_wanted = match &dial.stage {
            DialStage::CookieRequested => true,
            DialStage::FirstSent { until, .. } => now >= *until,
            DialStage::ThirdSent { .. } => false,
        };
        if !is_wanted {
            return;
        }
        dial.cookie_rounds += 1;
        let (handshake, first) = Handshake::initiate(&self.identity, &self.secret);
        let message = encode_message(HANDSHAKE_FIRST, index, &[cookie, &first]);
        self.outbox.push_back((from, message.clone()));
        let round = ((now - dial.cookie_requested_at) * 2).clamp(MIN_COOKIE_ROUND, MAX_COOKIE_ROUND);
        dial.stage = DialStage::FirstSent { handshake, message, until: now + round };
        dial.cookie_requested_at = now + round;
        dial.next_send = now + RETRANSMIT_INTERVAL;
    }

    /// Answers the first message of a dialer with the second message. Rejects a message without a valid cookie, without
    /// the secret, or above a rate limit. Answers a repeated first message with the same second message again.
    fn on_first(&mut self, now: Instant, from: SocketAddr, remote_index: u32, rest: &[u8]) {
        let (cookie, first) = rest.split_at(COOKIE_LEN);
        let cookie: &Cookie = cookie.try_into().expect("the length was split off");
        let is_valid = self.cookie_generator.is_valid(now, from, cookie);
        let is_repeated =
            |half: &&HalfOpenHandshake| (half.addr, half.remote_index) == (from, remote_index) && half.first == first;
        if let Some(half) = self.half_open.iter().find(is_repeated).filter(|_| is_valid) {
            if !self.repeat_limiter.allows(now) {
                self.reject_counts.replayed += 1;
                return;
            }
            // The dialer has not received the second message yet. Another second message would invalidate the one sent
            // before, which may be in flight.
            return self.outbox.push_back((from, half.second.clone()));
        }
        let is_valid = is_valid && self.handshake_limiter.allows(now);
        let answer = is_valid.then(|| Handshake::respond(&self.identity, &self.secret, first)).flatten();
        let Some((handshake, second)) = answer else {
            self.reject_counts.unauthorized += 1;
            return;
        };
        // A dialer that starts again has abandoned its old handshake.
        self.half_open.retain(|half| (half.addr, half.remote_index) != (from, remote_index));
        if self.half_open.len() == MAX_HALF_OPEN {
            self.half_open.pop_front();
        }
        let local_index = self.free_index();
        let second = encode_message(HANDSHAKE_SECOND, remote_index, &[&local_index.to_le_bytes(), &second]);
        self.outbox.push_back((from, second.clone()));
        self.half_open.push_back(HalfOpenHandshake {
            addr: from,
            local_index,
            remote_index,
            first: first.to_vec(),
            second,
            handshake,
            started_at: now,
        });
    }

    /// Handles the second message, the answer to this endpoint's dial: sends the third message and opens the channel,
    /// or ends the dial if the peer is not the expected one or is this endpoint itself.
    fn on_second(&mut self, now: Instant, from: SocketAddr, index: u32, rest: &[u8]) {
        let Some(at) = self.dials.iter().position(|dial| dial.local_index == index && dial.addr == from) else {
            self.reject_counts.malformed += 1;
            return;
        };
        let Some((remote_index, second)) = rest.split_at_checked(4) else { return };
        let remote_index = u32::from_le_bytes(remote_index.try_into().expect("the length was split off"));
        let DialStage::FirstSent { handshake, .. } = &mut self.dials[at].stage else { return };
        let Some(third) = handshake.handle_second(second) else {
            self.reject_counts.forged += 1;
            return;
        };
        let dial = &mut self.dials[at];
        let DialStage::FirstSent { handshake, .. } = std::mem::replace(&mut dial.stage, DialStage::CookieRequested)
        else {
            return;
        };
        let Some((cipher, peer)) = handshake.into_transport() else { return };
        if dial.expected_peer.is_some_and(|expected| expected != peer) || peer == self.identity.key() {
            self.dials.remove(at);
            return self.push_event(EndpointEvent::WrongPeer { addr: from, peer });
        }
        let message = encode_message(HANDSHAKE_THIRD, remote_index, &[&third]);
        self.outbox.push_back((from, message.clone()));
        let channel = Arc::new(SecureChannel::new(now, peer, remote_index, cipher, from));
        dial.next_send = now + RETRANSMIT_INTERVAL;
        dial.stage = DialStage::ThirdSent { message, channel: Arc::clone(&channel) };
        self.add_channel(now, index, channel, true);
    }

    /// Handles the third message, with which a dialer proves its identity: opens the channel and confirms it. Confirms
    /// it again if the channel is open already.
    fn on_third(&mut self, now: Instant, from: SocketAddr, index: u32, third: &[u8]) {
        if let Some(channel) = self.channels.get(&index) {
            // The dialer did not receive the confirmation, or an attacker replays the message.
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
        let Some(HalfOpenHandshake { remote_index, handshake, .. }) = self.half_open.remove(at) else { return };
        let Some((cipher, peer)) = handshake.into_transport() else { return };
        let channel = Arc::new(SecureChannel::new(now, peer, remote_index, cipher, from));
        self.outbox.extend(encode_confirmation(&channel));
        self.add_channel(now, index, channel, false);
    }

    fn add_channel(&mut self, now: Instant, index: u32, channel: Arc<SecureChannel>, was_dialed: bool) {
        let (peer, addr) = (channel.peer, channel.addr());
        if self.channels.len() >= MAX_CHANNELS {
            self.close_stalest_channel();
        }
        self.channels.insert(index, channel);
        // The peer is connected: dialing it at other addresses is pointless.
        let dials_before = self.dials.len();
        self.cancel_dial(&peer);
        let was_dialed = was_dialed || self.dials.len() < dials_before;
        if let Some(old) = self.newest_channels.insert(peer, index) {
            self.replaced_channels.push_back((now, old));
        }
        self.push_event(EndpointEvent::Connected { peer, addr, was_dialed });
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

    /// Retransmits unanswered messages, and drops expired channels and handshakes. Call it at
    /// [`poll_timeout`](Self::poll_timeout), and about every second besides, because that time does not cover the
    /// expiry.
    pub fn handle_timeout(&mut self, now: Instant) {
        for at in 0..self.dials.len() {
            self.retransmit_dial(now, at);
        }
        self.dials.retain(|dial| {
            !matches!(&dial.stage, DialStage::ThirdSent { .. }) || now - dial.started_at < UNREACHABLE_TIMEOUT * 4
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
        let dial = &mut self.dials[at];
        let mut unanswered = false;
        if now >= dial.next_send {
            dial.next_send = now + RETRANSMIT_INTERVAL;
            let bytes = match &dial.stage {
                DialStage::FirstSent { message, until, .. } if now < *until => message.clone(),
                DialStage::ThirdSent { message, .. } => message.clone(),
                stage => {
                    // A cookie is requested at first, and again after unanswered first messages, to which a late answer
                    // is still accepted.
                    unanswered =
                        matches!(stage, DialStage::FirstSent { .. }) && dial.cookie_rounds >= ROUNDS_UNTIL_WRONG_SECRET;
                    encode_message(HELLO, dial.local_index, &[&[0; HELLO_LEN - 5]])
                }
            };
            let to = match &dial.stage {
                DialStage::ThirdSent { channel, .. } => channel.addr(),
                _ => dial.addr,
            };
            self.outbox.push_back((to, bytes));
        }
        if matches!(dial.stage, DialStage::ThirdSent { .. }) {
            return;
        }
        let reason = match now - dial.started_at > UNREACHABLE_TIMEOUT {
            _ if unanswered => Some(UnreachableReason::WrongSecret),
            is_late => is_late.then_some(UnreachableReason::NoAnswer),
        };
        if reason > dial.reported {
            dial.reported = reason;
            let event = EndpointEvent::Unreachable { addr: dial.addr, wrong_secret: unanswered };
            self.push_event(event);
        }
    }

    /// Returns the time of the next retransmission, for which [`handle_timeout`](Self::handle_timeout) must be called;
    /// `None` if no dial is pending.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.dials.iter().map(|dial| dial.next_send).min()
    }

    /// Returns the next handshake datagram to send, with its destination; `None` if there is none.
    pub fn poll_transmit(&mut self) -> Option<(SocketAddr, Vec<u8>)> {
        self.outbox.pop_front()
    }

    /// Returns the oldest unread event; `None` if there is none.
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

/// Seals an empty datagram, which proves to the peer that this endpoint has the keys of the channel. Returns it with
/// its destination.
fn encode_confirmation(channel: &SecureChannel) -> Option<(SocketAddr, Vec<u8>)> {
    let mut bytes = vec![0; super::SEAL_OVERHEAD];
    let len = channel.seal(&[], &mut bytes)?;
    bytes.truncate(len);
    Some((channel.addr(), bytes))
}

#[cfg(test)]
mod tests;
