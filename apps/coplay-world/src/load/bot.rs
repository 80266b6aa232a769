//! One bot of a load test: a client of the world with a key and a UDP socket of its own.

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

/// Longest wait of the event loop for a datagram.
const MAX_WAIT: TimeDelta = TimeDelta::from_millis(50);
/// Interval between connection attempts to servers that do not answer.
const RECONNECT_INTERVAL: TimeDelta = TimeDelta::from_secs(2);
/// Number of goodbyes that a leaving bot sends, since each may be lost.
const LEAVE_REPEATS: u32 = 3;
/// Interval between the goodbyes of a leaving bot.
const LEAVE_INTERVAL: TimeDelta = TimeDelta::from_millis(10);
/// Interval between two decisions of a bot that plays as a ninja.
const DECISION_INTERVAL: TimeDelta = TimeDelta::from_millis(40);
/// Number of commands per shot, for bots that alternate their buttons.
const COMMANDS_PER_SHOT: u64 = 50;

pub(super) struct BotConfig {
    pub(super) number: usize,
    pub(super) seed: u64,
    /// Button changes per second; with 0 the bot plays as a ninja.
    pub(super) commands_per_second: u32,
    pub(super) impairment: Option<Impairment>,
}

/// Statistics of one bot, for the report.
#[derive(Clone, Debug, Default)]
pub(super) struct BotStats {
    /// Whether the bot has an avatar and has received a message of its server within the last second.
    pub(super) is_present: bool,
    /// Number of times that the avatar was replaced by a new one, other than by a respawn.
    pub(super) avatars_lost: u32,
    /// Number of acknowledged hits and falls that the server's newest report lacks.
    pub(super) scores_lost: u32,
    pub(super) acknowledged: Score,
    pub(super) server_moves: u32,
    /// Longest time between two new views or directories from the bot's server, across changes of server, in
    /// milliseconds, once it had an avatar.
    pub(super) longest_silence_ms: f64,
    pub(super) rtt_ms: Option<f64>,
    /// Time by which the bot's avatar was ahead of the server's or behind it, in milliseconds: sum of absolute values
    /// and count.
    pub(super) lead_time_ms: (f64, u64),
    pub(super) consistency: ConsistencySummary,
    pub(super) sent: (u64, u64),
    pub(super) received: (u64, u64),
    /// Number of button changes, whether a server receives them or not. A ninja's are not counted.
    pub(super) commands: u64,
    /// Reason why the bot could not open its socket; `None` if it could, or has not started yet.
    pub(super) socket_error: Option<String>,
}

impl BotStats {
    /// Processes a server's report of our score, and counts as lost by how much it is below the highest earlier report.
    /// Servers must not lose acknowledged scores. The client alone would accept a lower score as a rollback.
    fn on_reported_score(&mut self, reported: Score) {
        let best = &mut self.acknowledged;
        *best = Score { hits: best.hits.max(reported.hits), falls: best.falls.max(reported.falls) };
        self.scores_lost = (best.hits - reported.hits) + (best.falls - reported.falls);
    }
}

/// Bot that plays over the network as a client; with `--impair`, over an emulated uplink.
pub(super) struct Bot {
    servers: Vec<SocketAddr>,
    endpoint: Endpoint,
    config: BotConfig,
    client: Client,
    selector: ServerSelector<PeerKey>,
    /// Addresses of servers, each with the key of the server that last answered there.
    server_addrs: BTreeMap<SocketAddr, Option<PeerKey>>,
    /// Addresses of other servers, as last reported by the bot's server.
    known_mirrors: Vec<String>,
    next_reconnect: Instant,
    ninja: Ninja,
    outbox: Option<LinkEmulator>,
    ready_to_send: Vec<(PeerKey, Vec<u8>)>,
    next_decision: Instant,
    last_received: Instant,
    /// Last observed spawn count of the bot's avatar, with the tick of that observation.
    last_spawn: Option<(u16, u32)>,
    stats: BotStats,
    shared_stats: Arc<Mutex<BotStats>>,
}

impl Bot {
    pub(super) fn new(
        servers: Vec<SocketAddr>,
        secret: Secret,
        config: BotConfig,
        shared_stats: Arc<Mutex<BotStats>>,
    ) -> Self {
        let now = clock::now();
        let impairment =
            config.impairment.clone().map(|of_all| Impairment { seed: of_all.seed ^ config.number as u64, ..of_all });
        Self {
            servers,
            endpoint: Endpoint::new(Identity::random(), secret),
            client: Client::new(now, &format!("player {}", config.number + 1), u32::from_le_bytes(random_bytes())),
            selector: ServerSelector::new(now),
            server_addrs: BTreeMap::new(),
            known_mirrors: Vec::new(),
            next_reconnect: now,
            ninja: Ninja::new(config.seed ^ config.number as u64),
            outbox: impairment.map(|impairment| LinkEmulator::new(now, impairment)),
            ready_to_send: Vec::new(),
            next_decision: now,
            last_received: now,
            last_spawn: None,
            stats: BotStats::default(),
            shared_stats,
            config,
        }
    }

    /// Plays until `is_over` is set, and then leaves the world.
    pub(super) async fn run(mut self, is_over: Arc<AtomicBool>) {
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
        while !is_over.load(Ordering::Relaxed) {
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

    /// Connects to the servers at those of `addrs` that are not known yet.
    fn add_servers(&mut self, addrs: impl IntoIterator<Item = SocketAddr>) {
        for addr in addrs {
            if let Entry::Vacant(entry) = self.server_addrs.entry(addr) {
                entry.insert(None);
                self.endpoint.dial(clock::now(), addr, None);
            }
        }
    }

    /// Connects again, every 2 s, to the addresses where no server answers: a restarted server has another key.
    fn reconnect_silent(&mut self, now: Instant) {
        if now < self.next_reconnect {
            return;
        }
        self.next_reconnect = now + RECONNECT_INTERVAL;
        self.selector.expire_silent(now);
        let is_silent = |key: &Option<PeerKey>| key.is_none_or(|key| !self.selector.is_live(now, key));
        for (addr, _) in self.server_addrs.iter().filter(|(_, key)| is_silent(key)) {
            self.endpoint.dial(now, *addr, None);
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
        let Some(message) = ServerMessage::from_bytes(bytes) else { return };
        if let ServerMessage::Pong(pong) = message {
            self.selector.on_pong(now, from, &pong);
        } else if self.selector.current() == Some(from) && self.client.handle_message(now, message) {
            if self.last_spawn.is_some() {
                self.stats.longest_silence_ms =
                    self.stats.longest_silence_ms.max((now - self.last_received).as_millis_f64());
            }
            self.last_received = now;
            self.update_stats();
            self.add_mirrors();
        }
    }

    /// Connects to servers that are new in the list of mirrors of the bot's server.
    fn add_mirrors(&mut self) {
        if self.client.mirrors() != self.known_mirrors {
            self.known_mirrors = self.client.mirrors().to_vec();
            let addrs: Vec<SocketAddr> = self.known_mirrors.iter().filter_map(|addr| addr.parse().ok()).collect();
            self.add_servers(addrs);
        }
    }

    /// Updates the statistics after a message, and checks whether our avatar was replaced.
    fn update_stats(&mut self) {
        self.stats.on_reported_score(self.client.reported_score());
        let spawn = self.client.avatar().map(|avatar| avatar.spawn_count).zip(self.client.tick(self.last_received));
        if let (Some(before), Some(now)) = (self.last_spawn, spawn) {
            self.stats.avatars_lost += u32::from(is_new_avatar(before, now));
        }
        self.last_spawn = spawn.or(self.last_spawn);
        self.stats.rtt_ms = self.client.rtt().map(TimeDelta::as_millis_f64);
        self.stats.lead_time_ms.0 += self.client.lead_time().as_millis_f64().abs();
        self.stats.lead_time_ms.1 += 1;
        self.stats.consistency.sample(self.last_received, &self.client);
    }

    /// Does all work that is due. Returns the latest time for the next call.
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

    fn publish_stats(&self) {
        self.shared_stats.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&self.stats);
    }

    /// Changes the buttons if that is due, and advances the client. A bot with a given number of commands advances only
    /// its own avatar, and only when it changes the buttons.
    fn update_controls(&mut self, now: Instant) {
        let is_time = now >= self.next_decision;
        if self.config.commands_per_second > 0 {
            if is_time {
                let interval = TimeDelta::from_micros(1_000_000 / i64::from(self.config.commands_per_second));
                self.next_decision = (self.next_decision + interval).max(now);
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

    /// Alternates the buttons, so that the avatar changes course every time and the servers must exchange an update.
    /// Also counts commands before the bot has an avatar: the count shows whether the bot keeps up, not whether its
    /// server does.
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
        if let Some((input, server)) = self.client.poll_input(now).zip(self.selector.current()) {
            self.queue_datagram(now, server, &input);
        }
    }

    fn queue_datagram(&mut self, now: Instant, to: PeerKey, bytes: &[u8]) {
        match &mut self.outbox {
            Some(outbox) => outbox.send(now, to, bytes),
            None => self.ready_to_send.push((to, bytes.to_vec())),
        }
    }

    /// Seals and sends the queued datagrams that are due.
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

/// Returns whether the avatar was replaced, given two observed spawn counts with their ticks. A dead avatar takes
/// [`RESPAWN_TICKS`] to respawn, which adds 1 to the count; the count of a new avatar starts at the tick in which it
/// joins.
fn is_new_avatar((before, tick_before): (u16, u32), (spawn_count, tick): (u16, u32)) -> bool {
    let most = tick.saturating_sub(tick_before) / RESPAWN_TICKS + 1;
    u32::from(spawn_count.wrapping_sub(before)) > most
}

#[cfg(test)]
mod tests {
    use super::*;
    use coplay::mirror::SourceId;
    use coplay_maze::MazeSettings;
    use coplay_world::{ClientInput, ServerWorld, player_entity};

    #[test]
    fn lost_score_is_counted_until_a_server_reports_it_again() {
        let mut stats = BotStats::default();
        let lost = [(5, 3), (4, 4), (0, 0), (1, 0), (5, 4), (6, 4)].map(|(hits, falls)| {
            stats.on_reported_score(Score { hits, falls });
            stats.scores_lost
        });
        assert_eq!(lost, [0, 1, 9, 8, 0, 0]);
        assert_eq!(stats.acknowledged, Score { hits: 6, falls: 4 });
    }

    #[test]
    fn respawn_is_not_counted_as_a_lost_avatar() {
        assert!(!is_new_avatar((7, 1_000), (7, 1_004)) && !is_new_avatar((7, 1_000), (8, 1_004)));
        assert!(!is_new_avatar((u16::MAX, 1_000), (1, 1_000 + RESPAWN_TICKS)), "a wrapped count looks new");
        assert!(is_new_avatar((7, 1_000), (6, 1_004)), "a lower count does not look new");
        let (mut world, entity) = (ServerWorld::new(SourceId(1), MazeSettings::default(), 0), player_entity(&[7; 32]));
        let at = |tick: u32| Instant::ZERO + coplay_world::TICK_DURATION * i64::from(tick);
        let join = |world: &mut ServerWorld, tick: u32| {
            world.advance(at(tick), tick);
            world.on_input(at(tick), entity, &ClientInput { run: 1, name: "Ada".into(), motion: vec![] });
            (world.avatars().get(entity).expect("the player has an avatar").spawn_count, tick)
        };
        let (joined, stayed) = (join(&mut world, 1_000), join(&mut world, 1_090));
        assert!(!is_new_avatar(joined, stayed));
        (1_100..1_700).step_by(50).for_each(|tick| world.advance(at(tick), tick));
        assert!(world.avatars().get(entity).is_none(), "the silent player is still in the world");
        assert!(is_new_avatar(stayed, join(&mut world, 1_700)));
    }
}
