//! One software player.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use coplay::peer_world::EntityId;
use coplay::time::{Instant, TimeDelta};
use coplay_maze::{Avatar, Controls, Ninja, RESPAWN_TICKS, Score};
use coplay_net::impair::{Impairment, LinkEmulator};
use coplay_net::key::{Identity, Secret, random_bytes};
use coplay_net::udp::{Endpoint, EndpointEvent, MAX_SEALED, Received};
use coplay_net::{PeerKey, clock};
use coplay_world::{Client, ConsistencySummary, ServerMessage, ServerSelector};
use tokio::net::UdpSocket;

/// Longer than this nobody waits before it looks around.
const MAX_WAIT: TimeDelta = TimeDelta::from_millis(50);
/// Servers that do not answer are called again this often.
const RECONNECT_INTERVAL: TimeDelta = TimeDelta::from_secs(2);
/// Who leaves says so this often, so far apart: each may be lost.
const LEAVE_REPEATS: u32 = 3;
const LEAVE_INTERVAL: TimeDelta = TimeDelta::from_millis(10);
/// Software decides this often.
const DECISION_INTERVAL: TimeDelta = TimeDelta::from_millis(40);
/// Of those who press other buttons whatever happens, one command in so many is a shot.
const COMMANDS_PER_SHOT: u64 = 50;

/// How somebody plays.
pub(super) struct BotConfig {
    pub(super) number: usize,
    pub(super) seed: u64,
    /// Changes of buttons in a second; with 0 as a ninja plays.
    pub(super) commands_per_second: u32,
    pub(super) impairment: Option<Impairment>,
}

/// What it was like for somebody.
#[derive(Clone, Debug, Default)]
pub(super) struct BotStats {
    /// Whether it has an avatar and hears of it.
    pub(super) is_present: bool,
    /// Avatars that began anew all of a sudden.
    pub(super) avatars_lost: u32,
    /// Acknowledged hits and falls that the server does not know of now.
    pub(super) scores_lost: u32,
    pub(super) acknowledged: Score,
    pub(super) server_moves: u32,
    /// The longest time without a word from any server, in milliseconds.
    pub(super) longest_silence_ms: f64,
    pub(super) rtt_ms: Option<f64>,
    /// By how much its own avatar was ahead of the server's or behind it: sum and count.
    pub(super) lead_time_ms: (f64, u64),
    pub(super) consistency: ConsistencySummary,
    pub(super) sent: (u64, u64),
    pub(super) received: (u64, u64),
    /// How often it pressed other buttons, whether a server hears it or not.
    pub(super) commands: u64,
    /// Why it has no socket.
    pub(super) socket_error: Option<String>,
}

impl BotStats {
    /// A server says what our score is. What any ever said is not to be less: the client believes servers that forget, we hold it against them.
    fn on_reported_score(&mut self, told: Score) {
        let best = &mut self.acknowledged;
        *best = Score { hits: best.hits.max(told.hits), falls: best.falls.max(told.falls) };
        self.scores_lost = (best.hits - told.hits) + (best.falls - told.falls);
    }
}

/// A software player.
pub(super) struct Bot {
    servers: Vec<SocketAddr>,
    endpoint: Endpoint,
    config: BotConfig,
    client: Client,
    selector: ServerSelector<PeerKey>,
    /// Where servers are, and who answered there last.
    server_addrs: BTreeMap<SocketAddr, Option<PeerKey>>,
    /// What the server said last of where others are.
    known_mirrors: Vec<String>,
    next_reconnect: Instant,
    ninja: Ninja,
    outbox: Option<LinkEmulator>,
    ready_to_send: Vec<(PeerKey, Vec<u8>)>,
    next_decision: Instant,
    last_received: Instant,
    /// How often our avatar came to life, and in which tick we saw that.
    last_spawn: Option<(u16, u32)>,
    stats: BotStats,
    shared_stats: Arc<Mutex<BotStats>>,
}

impl Bot {
    pub(super) fn new(
        servers: Vec<SocketAddr>,
        secret: Secret,
        manner: BotConfig,
        shared: Arc<Mutex<BotStats>>,
    ) -> Self {
        let now = clock::now();
        let impairment =
            manner.impairment.clone().map(|of_all| Impairment { seed: of_all.seed ^ manner.number as u64, ..of_all });
        Self {
            servers,
            endpoint: Endpoint::new(Identity::random(), secret),
            client: Client::new(now, &format!("player {}", manner.number + 1), u32::from_le_bytes(random_bytes())),
            selector: ServerSelector::new(now),
            server_addrs: BTreeMap::new(),
            known_mirrors: Vec::new(),
            next_reconnect: now,
            ninja: Ninja::new(manner.seed ^ manner.number as u64),
            outbox: impairment.map(|impairment| LinkEmulator::new(now, impairment)),
            ready_to_send: Vec::new(),
            next_decision: now,
            last_received: now,
            last_spawn: None,
            stats: BotStats::default(),
            shared_stats: shared,
            config: manner,
        }
    }

    /// Plays until all is over.
    pub(super) async fn run(mut self, over: Arc<AtomicBool>) {
        let any = match self.servers.first() {
            Some(SocketAddr::V6(_)) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
            _ => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        };
        let socket = match UdpSocket::bind(any).await {
            Ok(socket) => socket,
            Err(error) => {
                self.stats.socket_error = Some(error.to_string());
                return self.publish_stats();
            }
        };
        self.add_servers(self.servers.clone());
        while !over.load(Ordering::Relaxed) {
            let due = self.run_once(&socket);
            let wait = tokio::time::Instant::now() + (due - clock::now()).to_duration();
            let _ = tokio::time::timeout_at(wait, socket.readable()).await;
            self.receive_datagrams(&socket);
        }
        self.leave(&socket).await;
    }

    async fn leave(&mut self, socket: &UdpSocket) {
        let Some(server) = self.selector.current() else { return };
        for _ in 0..LEAVE_REPEATS {
            self.queue_datagram(clock::now(), server, &self.client.leave_message());
            self.flush(clock::now(), socket);
            tokio::time::sleep(LEAVE_INTERVAL.to_duration()).await;
        }
        self.flush(clock::now(), socket);
    }

    /// There are servers at these places.
    fn add_servers(&mut self, places: impl IntoIterator<Item = SocketAddr>) {
        for place in places {
            if let Entry::Vacant(entry) = self.server_addrs.entry(place) {
                entry.insert(None);
                self.endpoint.dial(clock::now(), place, None);
            }
        }
    }

    /// Calls again where nobody answers any more: a server that is started anew is another one.
    fn reconnect_silent(&mut self, now: Instant) {
        if now < self.next_reconnect {
            return;
        }
        self.next_reconnect = now + RECONNECT_INTERVAL;
        self.selector.expire_silent(now);
        let is_silent = |key: &Option<PeerKey>| key.is_none_or(|key| !self.selector.is_live(now, key));
        for (place, _) in self.server_addrs.iter().filter(|(_, key)| is_silent(key)) {
            self.endpoint.dial(now, *place, None);
        }
    }

    fn receive_datagrams(&mut self, socket: &UdpSocket) {
        let (mut bytes, mut out) = ([0; 2_048], [0; MAX_SEALED]);
        while let Ok((len, from)) = socket.try_recv_from(&mut bytes) {
            self.stats.received.0 += 1;
            self.stats.received.1 += len as u64;
            let now = clock::now();
            if let Received::Data { from, len } = self.endpoint.handle_datagram(now, from, &bytes[..len], &mut out) {
                self.handle_message(now, from, &out[..len]);
            }
        }
    }

    fn handle_message(&mut self, now: Instant, from: PeerKey, bytes: &[u8]) {
        if let Some(ServerMessage::Pong(pong)) = ServerMessage::from_bytes(bytes, None) {
            self.selector.on_pong(now, from, &pong);
        } else if self.selector.current() == Some(from) && self.client.handle_datagram(now, bytes) {
            if self.last_spawn.is_some() {
                self.stats.longest_silence_ms =
                    self.stats.longest_silence_ms.max((now - self.last_received).as_millis_f64());
            }
            self.last_received = now;
            self.update_stats();
            self.add_mirrors();
        }
    }

    /// There may be other servers than before.
    fn add_mirrors(&mut self) {
        if self.client.mirrors() != self.known_mirrors {
            self.known_mirrors = self.client.mirrors().to_vec();
            let places: Vec<SocketAddr> = self.known_mirrors.iter().filter_map(|place| place.parse().ok()).collect();
            self.add_servers(places);
        }
    }

    /// Looks whether anything was taken from us.
    fn update_stats(&mut self) {
        self.stats.on_reported_score(self.client.reported_score());
        let lives = self.client.avatar().map(|avatar| avatar.spawn_count).zip(self.client.tick(self.last_received));
        if let (Some(before), Some(now)) = (self.last_spawn, lives) {
            self.stats.avatars_lost += u32::from(is_new_avatar(before, now));
        }
        self.last_spawn = lives.or(self.last_spawn);
        self.stats.rtt_ms = self.client.rtt().map(TimeDelta::as_millis_f64);
        self.stats.lead_time_ms.0 += self.client.lead_time().as_millis_f64().abs();
        self.stats.lead_time_ms.1 += 1;
        self.stats.consistency.sample(self.last_received, &self.client);
    }

    /// Does all that is due; says when something is again.
    fn run_once(&mut self, socket: &UdpSocket) -> Instant {
        let now = clock::now();
        if self.endpoint.poll_timeout().is_some_and(|due| due <= now) {
            self.endpoint.handle_timeout(now);
        }
        while let Some(event) = self.endpoint.poll_event() {
            if let EndpointEvent::Connected { peer, addr, .. } = event {
                self.server_addrs.entry(addr).and_modify(|key| *key = Some(peer));
                self.selector.add_server(peer);
            }
        }
        while let Some((to, bytes)) = self.endpoint.poll_transmit() {
            self.count_and_send(socket, &bytes, to);
        }
        self.reconnect_silent(now);
        self.update_controls(now);
        if self.selector.select(now, self.client.last_received(), self.client.is_draining()).is_some() {
            self.client.on_server_change(now);
        }
        self.stats.server_moves = self.selector.moves();
        self.send_due(now);
        self.flush(now, socket);
        self.stats.is_present = self.client.avatar().is_some() && now - self.last_received < TimeDelta::from_secs(1);
        self.publish_stats();
        let outbox = self.outbox.as_ref().and_then(LinkEmulator::poll_timeout);
        let due = [Some(self.selector.poll_timeout()), self.endpoint.poll_timeout(), outbox];
        let soonest = self.client.poll_timeout().min(self.next_decision).min(now + MAX_WAIT);
        due.into_iter().flatten().fold(soonest, Instant::min)
    }

    /// Tells whoever looks how it is.
    fn publish_stats(&self) {
        self.shared_stats.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&self.stats);
    }

    /// Decides if it is time to, and moves. Who does not look at others does not draw them up to now either.
    fn update_controls(&mut self, now: Instant) {
        let is_time = now >= self.next_decision;
        if self.config.commands_per_second > 0 {
            if is_time {
                let often = TimeDelta::from_micros(1_000_000 / i64::from(self.config.commands_per_second));
                self.next_decision = (self.next_decision + often).max(now);
                self.client.advance_local(now);
                self.alternate_controls(now);
            }
            return;
        }
        if is_time {
            self.next_decision = (self.next_decision + DECISION_INTERVAL).max(now);
            self.choose_ninja_controls(now);
        }
        self.client.advance(now);
    }

    /// Presses other buttons than before: such that the servers have to tell each other every time, because the avatar goes another way. Also
    /// before it has one, so that what is pressed tells how well the player keeps up, and not its server.
    fn alternate_controls(&mut self, now: Instant) {
        self.stats.commands += 1;
        let (forward, fire) = (self.stats.commands % 2 == 1, self.stats.commands.is_multiple_of(COMMANDS_PER_SHOT));
        self.client
            .set_controls(now, Controls { forward, backward: !forward, left: forward, fire, ..Controls::default() });
    }

    fn choose_ninja_controls(&mut self, now: Instant) {
        let (Some(rules), Some(me), Some(tick)) = (self.client.rules(), self.client.avatar(), self.client.tick(now))
        else {
            return;
        };
        let others: Vec<(EntityId, Avatar)> =
            self.client.others().map(|(entity, avatar)| (entity, avatar.clone())).collect();
        let controls = self.ninja.choose_controls(tick, rules, me, &others);
        self.client.set_controls(now, controls);
    }

    fn send_due(&mut self, now: Instant) {
        if let Some((servers, ping)) = self.selector.poll_pings(now) {
            servers.into_iter().for_each(|server| self.queue_datagram(now, server, &ping));
        }
        if let Some((wish, server)) = self.client.poll_input(now).zip(self.selector.current()) {
            self.queue_datagram(now, server, &wish);
        }
    }

    fn queue_datagram(&mut self, now: Instant, to: PeerKey, bytes: &[u8]) {
        match &mut self.outbox {
            Some(outbox) => outbox.send(now, to, bytes),
            None => self.ready_to_send.push((to, bytes.to_vec())),
        }
    }

    /// Sends what has been said, as soon as it is to leave.
    fn flush(&mut self, now: Instant, socket: &UdpSocket) {
        while let Some((to, bytes)) = self.outbox.as_mut().and_then(|outbox| outbox.poll_transmit(now)) {
            self.ready_to_send.push((to, bytes));
        }
        let mut out = [0; MAX_SEALED];
        for (to, bytes) in std::mem::take(&mut self.ready_to_send) {
            let Some(channel) = self.endpoint.channel(&to).cloned() else { continue };
            if let Some(len) = channel.seal(&bytes, &mut out) {
                self.count_and_send(socket, &out[..len], channel.addr());
            }
        }
    }

    fn count_and_send(&mut self, socket: &UdpSocket, bytes: &[u8], to: SocketAddr) {
        self.stats.sent.0 += 1;
        self.stats.sent.1 += bytes.len() as u64;
        // A datagram that cannot be sent is lost.
        let _ = socket.try_send_to(bytes, to);
    }
}

/// Whether it is another avatar, given how often it had come to life in which tick: who falls takes a while to come back, and a newcomer's lives
/// are counted from the tick in which it came.
fn is_new_avatar((before, then): (u16, u32), (lives, now): (u16, u32)) -> bool {
    let most = now.saturating_sub(then) / RESPAWN_TICKS + 1;
    u32::from(lives.wrapping_sub(before)) > most
}

#[cfg(test)]
mod tests {
    use super::*;
    use coplay::mirror::SourceId;
    use coplay_maze::MazeSettings;
    use coplay_world::{ClientInput, WorldState, player_entity};

    #[test]
    fn lost_score_is_counted_until_a_server_reports_it_again() {
        let mut seen = BotStats::default();
        let lost = [(5, 3), (4, 4), (0, 0), (1, 0), (5, 4), (6, 4)].map(|(hits, falls)| {
            seen.on_reported_score(Score { hits, falls });
            seen.scores_lost
        });
        assert_eq!(lost, [0, 1, 9, 8, 0, 0]);
        assert_eq!(seen.acknowledged, Score { hits: 6, falls: 4 });
    }

    #[test]
    fn respawn_is_not_counted_as_a_lost_avatar() {
        assert!(!is_new_avatar((7, 1_000), (7, 1_004)) && !is_new_avatar((7, 1_000), (8, 1_004)));
        assert!(!is_new_avatar((u16::MAX, 1_000), (1, 1_000 + RESPAWN_TICKS)), "it wraps");
        assert!(is_new_avatar((7, 1_000), (6, 1_004)), "it does not go back");
        let (mut realm, entity) = (WorldState::new(SourceId(1), MazeSettings::default(), 0), player_entity(&[7; 32]));
        let at = |tick: u32| Instant::ZERO + coplay_world::TICK_DURATION * i64::from(tick);
        let come = |realm: &mut WorldState, tick: u32| {
            realm.advance(at(tick), tick);
            realm.on_input(
                at(tick),
                entity,
                &ClientInput { stamp: at(tick), run: 1, name: "Ada".into(), changes: vec![] },
            );
            (realm.avatars().get(entity).expect("it is in").spawn_count, tick)
        };
        let (came, stayed) = (come(&mut realm, 1_000), come(&mut realm, 1_090));
        assert!(!is_new_avatar(came, stayed));
        (1_100..1_700).step_by(50).for_each(|tick| realm.advance(at(tick), tick));
        assert!(realm.avatars().get(entity).is_none(), "it was silent for so long that it left");
        assert!(is_new_avatar(stayed, come(&mut realm, 1_700)));
    }
}
