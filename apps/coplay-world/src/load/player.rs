//! One software player.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use coplay::peer_world::EntityId;
use coplay::time::{Instant, TimeDelta};
use coplay_maze::{Avatar, Controls, Ninja, RESPAWN, Score};
use coplay_net::impair::{Impairment, LinkEmulator};
use coplay_net::key::{Identity, Secret, random_bytes};
use coplay_net::udp::{Endpoint, EndpointEvent, MAX_SEALED, Received};
use coplay_net::{PeerKey, clock};
use coplay_world::{Client, Tally, Voyage, Word};
use tokio::net::UdpSocket;

/// Longer than this nobody waits before it looks around.
const LOOK: TimeDelta = TimeDelta::from_millis(50);
/// Servers that do not answer are called again this often.
const CALL_EVERY: TimeDelta = TimeDelta::from_secs(2);
/// Who leaves says so this often, so far apart: each may be lost.
const GOODBYES: u32 = 3;
const GOODBYE_EVERY: TimeDelta = TimeDelta::from_millis(10);
/// Software decides this often.
const DECIDE_EVERY: TimeDelta = TimeDelta::from_millis(40);
/// Of those who press other buttons whatever happens, one command in so many is a shot.
const SHOT_EVERY: u64 = 50;

/// How somebody plays.
pub(super) struct Manner {
    pub(super) number: usize,
    pub(super) seed: u64,
    /// Changes of buttons in a second; with 0 as a ninja plays.
    pub(super) commands: u32,
    pub(super) impairment: Option<Impairment>,
}

/// What it was like for somebody.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    /// Whether it has an avatar and hears of it.
    pub(super) is_in: bool,
    /// Avatars that began anew all of a sudden.
    pub(super) avatars_lost: u32,
    /// Acknowledged hits and falls that the server does not know of now.
    pub(super) scores_lost: u32,
    pub(super) acknowledged: Score,
    pub(super) moves: u32,
    /// The longest time without a word from any server, in milliseconds.
    pub(super) silence_ms: f64,
    pub(super) rtt_ms: Option<f64>,
    /// By how much its own avatar was ahead of the server's or behind it: sum and count.
    pub(super) ahead_ms: (f64, u64),
    pub(super) consistency: Tally,
    pub(super) sent: (u64, u64),
    pub(super) received: (u64, u64),
    /// How often it pressed other buttons, whether a server hears it or not.
    pub(super) commands: u64,
    /// Why it has no socket.
    pub(super) no_socket: Option<String>,
}

impl Seen {
    /// A server says what our score is. What any ever said is not to be less: the client believes servers that forget, we hold it against them.
    fn on_told(&mut self, told: Score) {
        let best = &mut self.acknowledged;
        *best = Score { hits: best.hits.max(told.hits), falls: best.falls.max(told.falls) };
        self.scores_lost = (best.hits - told.hits) + (best.falls - told.falls);
    }
}

/// A software player.
pub(super) struct Player {
    servers: Vec<SocketAddr>,
    endpoint: Endpoint,
    manner: Manner,
    client: Client,
    voyage: Voyage<PeerKey>,
    /// Where servers are, and who answered there last.
    places: BTreeMap<SocketAddr, Option<PeerKey>>,
    /// What the server said last of where others are.
    mirrors: Vec<String>,
    next_calls: Instant,
    ninja: Ninja,
    outbox: Option<LinkEmulator>,
    ready: Vec<(PeerKey, Vec<u8>)>,
    next_decision: Instant,
    heard: Instant,
    /// How often our avatar came to life, and in which tick we saw that.
    lives: Option<(u16, u32)>,
    seen: Seen,
    shared: Arc<Mutex<Seen>>,
}

impl Player {
    pub(super) fn new(servers: Vec<SocketAddr>, secret: Secret, manner: Manner, shared: Arc<Mutex<Seen>>) -> Self {
        let now = clock::now();
        let impairment =
            manner.impairment.clone().map(|of_all| Impairment { seed: of_all.seed ^ manner.number as u64, ..of_all });
        Self {
            servers,
            endpoint: Endpoint::new(Identity::random(), secret),
            client: Client::new(now, &format!("player {}", manner.number + 1), u32::from_le_bytes(random_bytes())),
            voyage: Voyage::new(now),
            places: BTreeMap::new(),
            mirrors: Vec::new(),
            next_calls: now,
            ninja: Ninja::new(manner.seed ^ manner.number as u64),
            outbox: impairment.map(|impairment| LinkEmulator::new(now, impairment)),
            ready: Vec::new(),
            next_decision: now,
            heard: now,
            lives: None,
            seen: Seen::default(),
            shared,
            manner,
        }
    }

    /// Plays until all is over.
    pub(super) async fn play(mut self, over: Arc<AtomicBool>) {
        let any = match self.servers.first() {
            Some(SocketAddr::V6(_)) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
            _ => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        };
        let socket = match UdpSocket::bind(any).await {
            Ok(socket) => socket,
            Err(error) => {
                self.seen.no_socket = Some(error.to_string());
                return self.share();
            }
        };
        self.learn(self.servers.clone());
        while !over.load(Ordering::Relaxed) {
            let due = self.work(&socket);
            let wait = tokio::time::Instant::now() + (due - clock::now()).to_duration();
            let _ = tokio::time::timeout_at(wait, socket.readable()).await;
            self.receive(&socket);
        }
        self.leave(&socket).await;
    }

    async fn leave(&mut self, socket: &UdpSocket) {
        let Some(server) = self.voyage.current() else { return };
        for _ in 0..GOODBYES {
            self.say(clock::now(), server, &self.client.goodbye());
            self.flush(clock::now(), socket);
            tokio::time::sleep(GOODBYE_EVERY.to_duration()).await;
        }
        self.flush(clock::now(), socket);
    }

    /// There are servers at these places.
    fn learn(&mut self, places: impl IntoIterator<Item = SocketAddr>) {
        for place in places {
            if let Entry::Vacant(entry) = self.places.entry(place) {
                entry.insert(None);
                self.endpoint.dial(clock::now(), place, None);
            }
        }
    }

    /// Calls again where nobody answers any more: a server that is started anew is another one.
    fn call_again(&mut self, now: Instant) {
        if now < self.next_calls {
            return;
        }
        self.next_calls = now + CALL_EVERY;
        self.voyage.forget_silent(now);
        let is_silent = |key: &Option<PeerKey>| key.is_none_or(|key| !self.voyage.is_there(now, key));
        for (place, _) in self.places.iter().filter(|(_, key)| is_silent(key)) {
            self.endpoint.dial(now, *place, None);
        }
    }

    fn receive(&mut self, socket: &UdpSocket) {
        let (mut bytes, mut out) = ([0; 2_048], [0; MAX_SEALED]);
        while let Ok((len, from)) = socket.try_recv_from(&mut bytes) {
            self.seen.received.0 += 1;
            self.seen.received.1 += len as u64;
            let now = clock::now();
            if let Received::Data { from, len } = self.endpoint.handle_datagram(now, from, &bytes[..len], &mut out) {
                self.take(now, from, &out[..len]);
            }
        }
    }

    fn take(&mut self, now: Instant, from: PeerKey, bytes: &[u8]) {
        if let Some(Word::Pong(pong)) = Word::from_bytes(bytes, None) {
            self.voyage.on_pong(now, from, &pong);
        } else if self.voyage.current() == Some(from) && self.client.handle_datagram(now, bytes) {
            if self.lives.is_some() {
                self.seen.silence_ms = self.seen.silence_ms.max((now - self.heard).as_millis_f64());
            }
            self.heard = now;
            self.note();
            self.learn_mirrors();
        }
    }

    /// There may be other servers than before.
    fn learn_mirrors(&mut self) {
        if self.client.mirrors() != self.mirrors {
            self.mirrors = self.client.mirrors().to_vec();
            let places: Vec<SocketAddr> = self.mirrors.iter().filter_map(|place| place.parse().ok()).collect();
            self.learn(places);
        }
    }

    /// Looks whether anything was taken from us.
    fn note(&mut self) {
        self.seen.on_told(self.client.told());
        let lives = self.client.avatar().map(|avatar| avatar.lives).zip(self.client.tick(self.heard));
        if let (Some(before), Some(now)) = (self.lives, lives) {
            self.seen.avatars_lost += u32::from(is_another(before, now));
        }
        self.lives = lives.or(self.lives);
        self.seen.rtt_ms = self.client.rtt().map(TimeDelta::as_millis_f64);
        self.seen.ahead_ms.0 += self.client.ahead().as_millis_f64().abs();
        self.seen.ahead_ms.1 += 1;
        self.seen.consistency.look(self.heard, &self.client);
    }

    /// Does all that is due; says when something is again.
    fn work(&mut self, socket: &UdpSocket) -> Instant {
        let now = clock::now();
        if self.endpoint.poll_timeout().is_some_and(|due| due <= now) {
            self.endpoint.handle_timeout(now);
        }
        while let Some(event) = self.endpoint.poll_event() {
            if let EndpointEvent::Connected { peer, addr, .. } = event {
                self.places.entry(addr).and_modify(|key| *key = Some(peer));
                self.voyage.on_up(peer);
            }
        }
        while let Some((to, bytes)) = self.endpoint.poll_transmit() {
            self.count_and_send(socket, &bytes, to);
        }
        self.call_again(now);
        self.play_on(now);
        if self.voyage.choose(now, self.client.heard(), self.client.drains()).is_some() {
            self.client.on_other_server(now);
        }
        self.seen.moves = self.voyage.moves();
        self.speak(now);
        self.flush(now, socket);
        self.seen.is_in = self.client.avatar().is_some() && now - self.heard < TimeDelta::from_secs(1);
        self.share();
        let outbox = self.outbox.as_ref().and_then(LinkEmulator::poll_timeout);
        let due = [Some(self.voyage.poll_timeout()), self.endpoint.poll_timeout(), outbox];
        let soonest = self.client.poll_timeout().min(self.next_decision).min(now + LOOK);
        due.into_iter().flatten().fold(soonest, Instant::min)
    }

    /// Tells whoever looks how it is.
    fn share(&self) {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&self.seen);
    }

    /// Decides if it is time to, and moves. Who does not look at others does not draw them up to now either.
    fn play_on(&mut self, now: Instant) {
        let is_time = now >= self.next_decision;
        if self.manner.commands > 0 {
            if is_time {
                let often = TimeDelta::from_micros(1_000_000 / i64::from(self.manner.commands));
                self.next_decision = (self.next_decision + often).max(now);
                self.client.advance_own(now);
                self.press_others(now);
            }
            return;
        }
        if is_time {
            self.next_decision = (self.next_decision + DECIDE_EVERY).max(now);
            self.think(now);
        }
        self.client.advance(now);
    }

    /// Presses other buttons than before: such that the servers have to tell each other every time, because the avatar goes another way. Also
    /// before it has one, so that what is pressed tells how well the player keeps up, and not its server.
    fn press_others(&mut self, now: Instant) {
        self.seen.commands += 1;
        let (forward, fire) = (self.seen.commands % 2 == 1, self.seen.commands.is_multiple_of(SHOT_EVERY));
        self.client.press(now, Controls { forward, back: !forward, left: forward, fire, ..Controls::default() });
    }

    fn think(&mut self, now: Instant) {
        let (Some(rules), Some(me), Some(tick)) = (self.client.rules(), self.client.avatar(), self.client.tick(now))
        else {
            return;
        };
        let others: Vec<(EntityId, Avatar)> =
            self.client.others().map(|(entity, avatar)| (entity, avatar.clone())).collect();
        let controls = self.ninja.think(tick, rules, me, &others);
        self.client.press(now, controls);
    }

    fn speak(&mut self, now: Instant) {
        if let Some((servers, ping)) = self.voyage.poll_pings(now) {
            servers.into_iter().for_each(|server| self.say(now, server, &ping));
        }
        if let Some((wish, server)) = self.client.poll_wish(now).zip(self.voyage.current()) {
            self.say(now, server, &wish);
        }
    }

    fn say(&mut self, now: Instant, to: PeerKey, bytes: &[u8]) {
        match &mut self.outbox {
            Some(outbox) => outbox.send(now, to, bytes),
            None => self.ready.push((to, bytes.to_vec())),
        }
    }

    /// Sends what has been said, as soon as it is to leave.
    fn flush(&mut self, now: Instant, socket: &UdpSocket) {
        while let Some((to, bytes)) = self.outbox.as_mut().and_then(|outbox| outbox.poll_transmit(now)) {
            self.ready.push((to, bytes));
        }
        let mut out = [0; MAX_SEALED];
        for (to, bytes) in std::mem::take(&mut self.ready) {
            let Some(channel) = self.endpoint.channel(&to).cloned() else { continue };
            if let Some(len) = channel.seal(&bytes, &mut out) {
                self.count_and_send(socket, &out[..len], channel.addr());
            }
        }
    }

    fn count_and_send(&mut self, socket: &UdpSocket, bytes: &[u8], to: SocketAddr) {
        self.seen.sent.0 += 1;
        self.seen.sent.1 += bytes.len() as u64;
        // A datagram that cannot be sent is lost.
        let _ = socket.try_send_to(bytes, to);
    }
}

/// Whether it is another avatar, given how often it had come to life in which tick: who falls takes a while to come back, and a newcomer's lives
/// are counted from the tick in which it came.
fn is_another((before, then): (u16, u32), (lives, now): (u16, u32)) -> bool {
    let most = now.saturating_sub(then) / RESPAWN + 1;
    u32::from(lives.wrapping_sub(before)) > most
}

#[cfg(test)]
mod tests {
    use super::*;
    use coplay::mirror::SourceId;
    use coplay_maze::Terms;
    use coplay_world::{Realm, Wish, entity_of};

    #[test]
    fn what_servers_forget_is_lost_for_as_long_as_they_do_not_know_it_again() {
        let mut seen = Seen::default();
        let lost = [(5, 3), (4, 4), (0, 0), (1, 0), (5, 4), (6, 4)].map(|(hits, falls)| {
            seen.on_told(Score { hits, falls });
            seen.scores_lost
        });
        assert_eq!(lost, [0, 1, 9, 8, 0, 0]);
        assert_eq!(seen.acknowledged, Score { hits: 6, falls: 4 });
    }

    #[test]
    fn a_newcomer_is_another_avatar_and_who_fell_is_not() {
        assert!(!is_another((7, 1_000), (7, 1_004)) && !is_another((7, 1_000), (8, 1_004)));
        assert!(!is_another((u16::MAX, 1_000), (1, 1_000 + RESPAWN)), "it wraps");
        assert!(is_another((7, 1_000), (6, 1_004)), "it does not go back");
        let (mut realm, entity) = (Realm::new(SourceId(1), Terms::default(), 0), entity_of(&[7; 32]));
        let at = |tick: u32| Instant::ZERO + coplay_world::TICK * i64::from(tick);
        let come = |realm: &mut Realm, tick: u32| {
            realm.advance(at(tick), tick);
            realm.hear(at(tick), entity, &Wish { stamp: at(tick), run: 1, name: "Ada".into(), presses: vec![] });
            (realm.field().get(entity).expect("it is in").lives, tick)
        };
        let (came, stayed) = (come(&mut realm, 1_000), come(&mut realm, 1_090));
        assert!(!is_another(came, stayed));
        (1_100..1_700).step_by(50).for_each(|tick| realm.advance(at(tick), tick));
        assert!(realm.field().get(entity).is_none(), "it was silent for so long that it left");
        assert!(is_another(stayed, come(&mut realm, 1_700)));
    }
}
