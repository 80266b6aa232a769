//! One socket's worth of peers: handshakes in both directions, and the channels that come of them.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;

use coplay::time::{Instant, TimeDelta};

use super::channel::{Channel, Refused};
use super::cookie::{COOKIE as COOKIE_LEN, Cookie, Jar};
use super::handshake::{Handshake, PADDING};
use super::{COOKIE, DATA, FIRST, HELLO, SECOND, THIRD};
use crate::key::{Identity, PeerKey, Secret, random};

/// A message that is not answered is sent again so soon.
const AGAIN: TimeDelta = TimeDelta::from_millis(250);
/// Who calls is told after so long that nobody answers, and goes on trying.
const PATIENCE: TimeDelta = TimeDelta::from_secs(4);
/// A first message is sent for so long before another cookie is asked for: this one may be too old, or may not be from who we call.
/// It is sent for longer where the way is long: twice as long as the cookie took, within bounds.
const ROUND: TimeDelta = TimeDelta::from_millis(750);
const LONGEST_ROUND: TimeDelta = TimeDelta::from_secs(4);
/// Who was given so many cookies, one after the other, and never an answer to the first message that each went with, does not know the
/// secret. One cookie is not enough: it is not authenticated, so who reads our packets on their way can make one, and then the
/// first message is worth nothing. To keep that up through all rounds it must be quicker than the genuine answer each time; and who
/// can do that can keep us out anyway. Nobody else can make any, because a call has a random number.
const ROUNDS: u32 = 3;
/// Who was called forgets the caller after so long.
const HALF_OPEN: TimeDelta = TimeDelta::from_secs(5);
/// A channel that another one has replaced is kept for what is still under way.
const REPLACED: TimeDelta = TimeDelta::from_secs(10);
/// A channel from which nothing comes is kept so long: a computer may sleep.
const SILENT: TimeDelta = TimeDelta::from_secs(15 * 60);

/// The most handshakes that others can begin at once, and channels.
const MAX_HALF_OPEN: usize = 64;
const MAX_CHANNELS: usize = 4_096;
/// The most cookies given in a millisecond, and the most last messages of a handshake that are confirmed again: nobody shall use us to
/// flood another.
const COOKIES_PER_MS: u32 = 5;
const CONFIRMS_PER_MS: u32 = 2;
/// The most first messages looked at in a millisecond: each costs some fifty microseconds, whoever sends it.
const FIRSTS_PER_MS: u32 = 1;
/// Events not yet asked for.
const MAX_EVENTS: usize = 256;

/// A HELLO is longer than the cookie that answers it.
const HELLO_LEN: usize = 40;
const FIRST_LEN: usize = 5 + COOKIE_LEN + 32 + PADDING + 16;

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
pub enum Event {
    /// There is a channel to a peer, or a new one.
    Up {
        /// Who it is.
        peer: PeerKey,
        /// Where it is.
        addr: SocketAddr,
        /// Whether we called.
        called: bool,
    },
    /// Nobody has answered our call for a while; we go on calling. It is told once for silence, and once for a refusal.
    Unanswered {
        /// Where we call.
        addr: SocketAddr,
        /// Somebody is there, and again and again does not answer who does not know the secret.
        refused: bool,
    },
    /// Who answered our call is not who we wanted.
    Stranger {
        /// Where we called.
        addr: SocketAddr,
        /// Who answered.
        peer: PeerKey,
    },
}

/// What became of datagrams that were not taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Datagrams that made no sense, or for channels that are not there.
    pub garbage: u64,
    /// Those that were not made by who they seemed to be from.
    pub forged: u64,
    /// Those that came before.
    pub replayed: u64,
    /// Calls from addresses that were not proven, or without the secret.
    pub strangers: u64,
}

impl Counts {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.garbage + self.forged + self.replayed + self.strangers
    }
}

/// A call of ours.
#[derive(Debug)]
struct Call {
    addr: SocketAddr,
    expect: Option<PeerKey>,
    index: u32,
    stage: Stage,
    next_send: Instant,
    since: Instant,
    /// What was told of it: that nobody answers, or that the secret is another.
    told: Option<Refusal>,
    /// Cookies that came, each after the first messages with the one before it were not answered.
    rounds: u32,
    /// When the next of them was first asked for.
    asked: Instant,
}

/// How a call is not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Refusal {
    Silence,
    Secret,
}

#[derive(Debug)]
enum Stage {
    Hello,
    First { handshake: Handshake, message: Vec<u8>, until: Instant },
    Third { message: Vec<u8>, channel: Arc<Channel> },
}

/// A call of somebody else's.
#[derive(Debug)]
struct Half {
    addr: SocketAddr,
    ours: u32,
    theirs: u32,
    /// What it said, and what we answered.
    first: Vec<u8>,
    second: Vec<u8>,
    handshake: Handshake,
    since: Instant,
}

/// So many things of a kind may be done in a millisecond.
#[derive(Debug)]
struct Budget {
    most: u32,
    millisecond: i64,
    used: u32,
}

impl Budget {
    fn new(most: u32) -> Self {
        Self { most, millisecond: 0, used: 0 }
    }

    /// Whether one more may be done now.
    fn allows(&mut self, now: Instant) -> bool {
        let millisecond = now.as_nanos() / 1_000_000;
        if self.millisecond != millisecond {
            (self.millisecond, self.used) = (millisecond, 0);
        }
        self.used += 1;
        self.used <= self.most
    }
}

/// Everything about the peers of one socket but the socket.
#[derive(Debug)]
pub struct Endpoint {
    identity: Identity,
    secret: Secret,
    jar: Jar,
    calls: Vec<Call>,
    halves: VecDeque<Half>,
    channels: BTreeMap<u32, Arc<Channel>>,
    /// The newest channel of each peer.
    newest: BTreeMap<PeerKey, u32>,
    replaced: VecDeque<(Instant, u32)>,
    out: VecDeque<(SocketAddr, Vec<u8>)>,
    events: VecDeque<Event>,
    cookies: Budget,
    firsts: Budget,
    confirms: Budget,
    repeats: Budget,
    next_sweep: Instant,
    counts: Counts,
}

impl Endpoint {
    /// An endpoint of somebody, in a group that shares a secret.
    pub fn new(identity: Identity, secret: Secret) -> Self {
        Self {
            identity,
            secret,
            jar: Jar::new(),
            calls: Vec::new(),
            halves: VecDeque::new(),
            channels: BTreeMap::new(),
            newest: BTreeMap::new(),
            replaced: VecDeque::new(),
            out: VecDeque::new(),
            events: VecDeque::new(),
            cookies: Budget::new(COOKIES_PER_MS),
            firsts: Budget::new(FIRSTS_PER_MS),
            confirms: Budget::new(CONFIRMS_PER_MS),
            repeats: Budget::new(CONFIRMS_PER_MS),
            next_sweep: Instant::ZERO,
            counts: Counts::default(),
        }
    }

    /// Who we are.
    pub fn key(&self) -> PeerKey {
        self.identity.key()
    }

    /// What was not taken.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// The newest channel to a peer.
    pub fn channel(&self, peer: &PeerKey) -> Option<&Arc<Channel>> {
        self.newest.get(peer).and_then(|index| self.channels.get(index))
    }

    /// Calls an address until somebody answers: anybody of the group, or only who is expected.
    pub fn call(&mut self, now: Instant, addr: SocketAddr, expect: Option<PeerKey>) {
        if self.calls.iter().any(|call| call.addr == addr && call.expect == expect) {
            return;
        }
        let index = self.free_index();
        let call = Call {
            addr,
            expect,
            index,
            stage: Stage::Hello,
            next_send: now,
            since: now,
            told: None,
            rounds: 0,
            asked: now,
        };
        self.calls.push(call);
        self.handle_timeout(now);
    }

    /// Stops calling wherever a peer was expected.
    pub fn hang_up(&mut self, peer: &PeerKey) {
        self.calls.retain(|call| call.expect != Some(*peer) || matches!(call.stage, Stage::Third { .. }));
    }

    fn free_index(&self) -> u32 {
        loop {
            let index = u32::from_le_bytes(random());
            let taken = self.channels.contains_key(&index)
                || self.calls.iter().any(|call| call.index == index)
                || self.halves.iter().any(|half| half.ours == index);
            if !taken && index != 0 {
                return index;
            }
        }
    }

    /// Takes a datagram. What it brings is put into `out`.
    pub fn handle_datagram(&mut self, now: Instant, from: SocketAddr, bytes: &[u8], out: &mut [u8]) -> Received {
        let index = bytes.get(1..5).and_then(|index| index.try_into().ok()).map(u32::from_le_bytes);
        let (Some(kind), Some(index)) = (bytes.first(), index) else {
            self.counts.garbage += 1;
            return Received::Nothing;
        };
        match *kind {
            DATA => return self.on_data(now, from, index, bytes, out),
            HELLO if bytes.len() == HELLO_LEN => self.on_hello(now, from, index),
            COOKIE if bytes.len() == 5 + COOKIE_LEN => self.on_cookie(now, from, index, &bytes[5..]),
            FIRST if bytes.len() == FIRST_LEN => self.on_first(now, from, index, &bytes[5..]),
            SECOND => self.on_second(now, from, index, &bytes[5..]),
            THIRD => self.on_third(now, from, index, &bytes[5..]),
            _ => self.counts.garbage += 1,
        }
        Received::Nothing
    }

    fn on_data(&mut self, now: Instant, from: SocketAddr, index: u32, bytes: &[u8], out: &mut [u8]) -> Received {
        let Some(channel) = self.channels.get(&index) else {
            self.counts.garbage += 1;
            return Received::Nothing;
        };
        match channel.open(now, from, bytes, out) {
            // Nothing in it: it says that the last message of a handshake arrived.
            Ok(0) => {
                self.calls.retain(|call| call.index != index);
                Received::Nothing
            }
            Ok(len) => Received::Data { from: channel.peer, len },
            Err(refused) => {
                match refused {
                    Refused::Again => self.counts.replayed += 1,
                    Refused::Forged => self.counts.forged += 1,
                }
                Received::Nothing
            }
        }
    }

    /// Somebody calls, from an address that it may not have.
    fn on_hello(&mut self, now: Instant, from: SocketAddr, index: u32) {
        if !self.cookies.allows(now) {
            self.counts.strangers += 1;
            return;
        }
        let cookie = self.jar.cookie(now, from);
        self.out.push_back((from, message(COOKIE, index, &[&cookie])));
    }

    /// Our call was heard: say the cookie back, with the first message.
    fn on_cookie(&mut self, now: Instant, from: SocketAddr, index: u32, cookie: &[u8]) {
        let Some(call) = self.calls.iter_mut().find(|call| call.index == index && call.addr == from) else {
            self.counts.garbage += 1;
            return;
        };
        // One cookie at a time: whoever makes more of them must not undo what the first one began.
        let wanted = match &call.stage {
            Stage::Hello => true,
            Stage::First { until, .. } => now >= *until,
            Stage::Third { .. } => false,
        };
        if !wanted {
            return;
        }
        call.rounds += 1;
        let (handshake, first) = Handshake::call(&self.identity, &self.secret);
        let message = message(FIRST, index, &[cookie, &first]);
        self.out.push_back((from, message.clone()));
        let round = ((now - call.asked) * 2).clamp(ROUND, LONGEST_ROUND);
        call.stage = Stage::First { handshake, message, until: now + round };
        call.asked = now + round;
        call.next_send = now + AGAIN;
    }

    /// Somebody at a proven address calls, and must know the secret.
    fn on_first(&mut self, now: Instant, from: SocketAddr, theirs: u32, rest: &[u8]) {
        let (cookie, first) = rest.split_at(COOKIE_LEN);
        let cookie: &Cookie = cookie.try_into().expect("it was split there");
        let good = self.jar.is_good(now, from, cookie);
        let same = |half: &&Half| (half.addr, half.theirs) == (from, theirs) && half.first == first;
        if let Some(half) = self.halves.iter().find(same).filter(|_| good) {
            if !self.repeats.allows(now) {
                self.counts.replayed += 1;
                return;
            }
            // Who sends it again has not heard our answer yet. Another one would undo the first, which may be on its way.
            return self.out.push_back((from, half.second.clone()));
        }
        let good = good && self.firsts.allows(now);
        let answer = good.then(|| Handshake::answer(&self.identity, &self.secret, first)).flatten();
        let Some((handshake, second)) = answer else {
            self.counts.strangers += 1;
            return;
        };
        // Who begins anew has given the old one up.
        self.halves.retain(|half| (half.addr, half.theirs) != (from, theirs));
        if self.halves.len() == MAX_HALF_OPEN {
            self.halves.pop_front();
        }
        let ours = self.free_index();
        let second = message(SECOND, theirs, &[&ours.to_le_bytes(), &second]);
        self.out.push_back((from, second.clone()));
        self.halves.push_back(Half { addr: from, ours, theirs, first: first.to_vec(), second, handshake, since: now });
    }

    /// Our call is answered.
    fn on_second(&mut self, now: Instant, from: SocketAddr, index: u32, rest: &[u8]) {
        let Some(at) = self.calls.iter().position(|call| call.index == index && call.addr == from) else {
            self.counts.garbage += 1;
            return;
        };
        let Some((theirs, second)) = rest.split_at_checked(4) else { return };
        let theirs = u32::from_le_bytes(theirs.try_into().expect("it was split there"));
        let Stage::First { handshake, .. } = &mut self.calls[at].stage else { return };
        let Some(third) = handshake.conclude(second) else {
            self.counts.forged += 1;
            return;
        };
        let call = &mut self.calls[at];
        let Stage::First { handshake, .. } = std::mem::replace(&mut call.stage, Stage::Hello) else { return };
        let Some((cipher, peer)) = handshake.finish() else { return };
        if call.expect.is_some_and(|expected| expected != peer) || peer == self.identity.key() {
            self.calls.remove(at);
            return self.tell(Event::Stranger { addr: from, peer });
        }
        let message = message(THIRD, theirs, &[&third]);
        self.out.push_back((from, message.clone()));
        let channel = Arc::new(Channel::new(now, peer, theirs, cipher, from));
        call.next_send = now + AGAIN;
        call.stage = Stage::Third { message, channel: Arc::clone(&channel) };
        self.open(now, index, channel, true);
    }

    /// Somebody whom we answered has shown who it is.
    fn on_third(&mut self, now: Instant, from: SocketAddr, index: u32, third: &[u8]) {
        if let Some(channel) = self.channels.get(&index) {
            // It did not hear that we heard; or somebody else has heard it say so.
            if !self.confirms.allows(now) {
                self.counts.replayed += 1;
                return;
            }
            let confirmed = confirm(channel);
            return self.out.extend(confirmed);
        }
        let Some(at) = self.halves.iter().position(|half| half.ours == index && half.addr == from) else {
            self.counts.garbage += 1;
            return;
        };
        if !self.halves[at].handshake.hear_last(third) {
            self.counts.forged += 1;
            return;
        }
        let Some(Half { theirs, handshake, .. }) = self.halves.remove(at) else { return };
        let Some((cipher, peer)) = handshake.finish() else { return };
        let channel = Arc::new(Channel::new(now, peer, theirs, cipher, from));
        self.out.extend(confirm(&channel));
        self.open(now, index, channel, false);
    }

    fn open(&mut self, now: Instant, index: u32, channel: Arc<Channel>, called: bool) {
        let (peer, addr) = (channel.peer, channel.addr());
        if self.channels.len() >= MAX_CHANNELS {
            self.close_stalest();
        }
        self.channels.insert(index, channel);
        // It was found: where else we call it does not matter any more.
        let calls = self.calls.len();
        self.hang_up(&peer);
        let called = called || self.calls.len() < calls;
        if let Some(old) = self.newest.insert(peer, index) {
            self.replaced.push_back((now, old));
        }
        self.tell(Event::Up { peer, addr, called });
    }

    fn close_stalest(&mut self) {
        if let Some(stalest) = self.channels.iter().min_by_key(|(_, channel)| channel.heard()).map(|(index, _)| *index)
        {
            self.close(stalest);
        }
    }

    fn close(&mut self, index: u32) {
        if let Some(channel) = self.channels.remove(&index)
            && self.newest.get(&channel.peer) == Some(&index)
        {
            self.newest.remove(&channel.peer);
        }
    }

    fn tell(&mut self, event: Event) {
        if self.events.len() == MAX_EVENTS {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    /// What is due: messages that were not answered, and forgetting. Call it when [`poll_timeout`](Self::poll_timeout) says so.
    pub fn handle_timeout(&mut self, now: Instant) {
        for at in 0..self.calls.len() {
            self.call_again(now, at);
        }
        self.calls.retain(|call| !matches!(&call.stage, Stage::Third { .. }) || now - call.since < PATIENCE * 4);
        if now < self.next_sweep {
            return;
        }
        self.next_sweep = now + TimeDelta::from_secs(1);
        self.halves.retain(|half| now - half.since < HALF_OPEN);
        while let Some((_, index)) = self.replaced.front().copied().filter(|(since, _)| now - *since > REPLACED) {
            self.replaced.pop_front();
            self.close(index);
        }
        let silent = |(index, channel): (&u32, &Arc<Channel>)| (now - channel.heard() > SILENT).then_some(*index);
        let silent: Vec<u32> = self.channels.iter().filter_map(silent).collect();
        silent.into_iter().for_each(|index| self.close(index));
    }

    fn call_again(&mut self, now: Instant, at: usize) {
        let call = &mut self.calls[at];
        let mut unanswered = false;
        if now >= call.next_send {
            call.next_send = now + AGAIN;
            let bytes = match &call.stage {
                Stage::First { message, until, .. } if now < *until => message.clone(),
                Stage::Third { message, .. } => message.clone(),
                stage => {
                    // Also after first messages that nobody answered. What answers them late is still taken.
                    unanswered = matches!(stage, Stage::First { .. }) && call.rounds >= ROUNDS;
                    message(HELLO, call.index, &[&[0; HELLO_LEN - 5]])
                }
            };
            let to = match &call.stage {
                Stage::Third { channel, .. } => channel.addr(),
                _ => call.addr,
            };
            self.out.push_back((to, bytes));
        }
        if matches!(call.stage, Stage::Third { .. }) {
            return;
        }
        let refusal = match now - call.since > PATIENCE {
            _ if unanswered => Some(Refusal::Secret),
            late => late.then_some(Refusal::Silence),
        };
        if refusal > call.told {
            call.told = refusal;
            let event = Event::Unanswered { addr: call.addr, refused: unanswered };
            self.tell(event);
        }
    }

    /// When to call [`handle_timeout`](Self::handle_timeout) at the latest.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.calls.iter().map(|call| call.next_send).min()
    }

    /// The next datagram to be sent.
    pub fn poll_transmit(&mut self) -> Option<(SocketAddr, Vec<u8>)> {
        self.out.pop_front()
    }

    /// The next thing that happened.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }
}

fn message(kind: u8, index: u32, parts: &[&[u8]]) -> Vec<u8> {
    let mut message = vec![kind];
    message.extend_from_slice(&index.to_le_bytes());
    parts.iter().for_each(|part| message.extend_from_slice(part));
    message
}

/// An empty datagram: it shows that we have the keys.
fn confirm(channel: &Channel) -> Option<(SocketAddr, Vec<u8>)> {
    let mut bytes = vec![0; super::OVERHEAD];
    let len = channel.seal(&[], &mut bytes)?;
    bytes.truncate(len);
    Some((channel.addr(), bytes))
}

#[cfg(test)]
mod tests;
