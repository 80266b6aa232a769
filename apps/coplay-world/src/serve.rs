//! `serve`: one server of a world, in real time.

use std::collections::BTreeSet;
use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TrySendError, sync_channel};

use coplay::mirror::{MirrorConfig, MirrorEvent as Happened, MirrorStats, SourceId};
use coplay::time::{GroupInstant, Instant, TimeDelta};
use coplay::wire::MAX_DATAGRAM;
use coplay_maze::MazeSettings;
use coplay_net::clock;
use coplay_net::key::{Secret, random_bytes};
use coplay_net::ticket;
use coplay_world::{Server, ServerInfo};
use tracing::{error, info, warn};

use crate::cli::{LogStyle, ServeArgs};
use crate::error::CliError;
use crate::http::{self, SharedMetrics};
use crate::metrics::{ServerMetrics, process_usage, remaining_tick_time};
use crate::mirror_network::{MirrorMessage, MirrorNetwork, MirrorNetworkConfig};
use crate::player_network::{PlayerNetwork, TransportKind};
use crate::signals;

/// What may wait for the world's thread.
const QUEUE_CAPACITY: usize = 16_384;
/// However much there is, the world goes on after so much of it.
const MAX_MESSAGES_PER_TURN: usize = 4_096;
/// What players send waits for so long at the most. It has its effect in a tick, but who asks how far away we are wants to know soon.
const PLAYER_POLL_INTERVAL: TimeDelta = TimeDelta::from_millis(3);
/// Whoever looks at the numbers sees them as of so long ago at the most.
const METRICS_INTERVAL: TimeDelta = TimeDelta::from_millis(500);
/// How a server does is logged this often.
const STATS_LOG_INTERVAL: TimeDelta = TimeDelta::from_secs(10);
/// When the ticks of the world last for no longer than this, it is said this often.
const EXPIRY_WARNING_TIME: TimeDelta = TimeDelta::from_secs(30 * 86_400);
const EXPIRY_WARNING_INTERVAL: TimeDelta = TimeDelta::from_secs(3_600);
/// A server that should not be alone gets so long, and then says so this often.
const ISOLATION_WARNING_DELAY: TimeDelta = TimeDelta::from_secs(4);
const ISOLATION_WARNING_INTERVAL: TimeDelta = TimeDelta::from_secs(30);
/// Who was asked to come to a world and finds another maze there waits for so long for a server with its own: the first that is heard may
/// be the one that is wrong.
const MISMATCH_TIMEOUT: TimeDelta = TimeDelta::from_secs(1);
/// Players get so long to find another server when this one is to stop, and what it told gets so long to arrive.
const DRAIN_TIMEOUT: TimeDelta = TimeDelta::from_secs(8);
/// Of so many servers it is said that they have another world.
const MAX_MISMATCHED_SERVERS: usize = 64;
/// Mazes that nobody chose have numbers below this: short enough to be told to somebody.
const DEFAULT_SEED_LIMIT: u64 = 10_000;

/// Runs a server until it is told to stop.
pub fn run(args: &ServeArgs) -> Result<ExitCode, CliError> {
    init_logging(args);
    signals::install_handler();
    let secret = world_secret(args)?;
    let mut hall = ServerProcess::open(args, &secret)?;
    hall.print_join_commands(&secret);
    let end = args.seconds.map(|seconds| clock::now() + TimeDelta::from_secs(seconds.into()));
    while !signals::is_stop_requested() && end.is_none_or(|end| clock::now() < end) {
        hall.run_once();
        if let Some(trouble) = hall.settings_mismatch(clock::now()) {
            hall.mirror_network.close();
            return Err(trouble);
        }
    }
    hall.drain();
    Ok(ExitCode::SUCCESS)
}

fn init_logging(args: &ServeArgs) {
    use tracing_subscriber::EnvFilter;
    // Who configures zenoh wants to know why it does not work; everybody else is told in other words.
    let zenoh = if args.zenoh.is_some() { "error" } else { "off" };
    let usual = || EnvFilter::new(format!("warn,coplay_world_app=info,zenoh={zenoh}"));
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| usual());
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // There is a log already where a test began one.
    let _ = match args.log {
        LogStyle::Text => log.with_target(false).with_ansi(std::io::stderr().is_terminal()).try_init(),
        LogStyle::Json => log.json().try_init(),
    };
}

fn world_secret(args: &ServeArgs) -> Result<String, CliError> {
    if [&args.secret, &args.server_secret].into_iter().flatten().any(|secret| !ticket::is_valid_secret(secret)) {
        return Err(CliError::usage_error(
            "a secret is empty, too long, or has a space in it",
            "a secret is one word, such as 16 letters and digits that nobody can guess",
        ));
    }
    match &args.secret {
        Some(secret) => Ok(secret.clone()),
        None if args.peer.is_empty() => Ok(Secret::random_text()),
        None => Err(CliError::usage_error(
            "without the secret of the world nobody is let in",
            "say --secret WORD, as the other servers do",
        )),
    }
}

/// A server with all its networks.
struct ServerProcess {
    server: Server,
    own_info: ServerInfo,
    player_network: PlayerNetwork,
    mirror_network: MirrorNetwork,
    /// What other servers say.
    mirror_messages: Receiver<MirrorMessage>,
    /// Where players find the other servers, by UDP and by iroh.
    mirror_addrs: [Vec<String>; 2],
    shared_metrics: SharedMetrics,
    /// The last tick, and when it was made.
    last_tick: Option<(u32, Instant)>,
    next_metrics: Instant,
    next_log: Instant,
    /// What had passed between the servers when that was last logged.
    logged_stats: MirrorStats,
    next_isolation_warning: Instant,
    next_expiry_warning: Instant,
    /// Whether zenoh is configured: others may have to be reached in another way than players.
    has_zenoh_config: bool,
    /// Whether there should be others.
    has_peers: bool,
    /// Whether servers have a secret of their own.
    has_server_secret: bool,
    /// Servers of which it was said that they have another world.
    mismatched_servers: BTreeSet<SourceId>,
    /// When the first of them was heard, and what is wrong then if nobody has our world.
    settings_mismatch: Option<(Instant, CliError)>,
    /// Whether another server with our world was ever heard.
    has_met_peer: bool,
}

impl ServerProcess {
    fn open(args: &ServeArgs, secret: &str) -> Result<Self, CliError> {
        let key = Secret::from_text(secret);
        // Who knows the one and not the other is no server.
        let both = args.server_secret.as_ref().map(|servers| format!("{secret} {servers}"));
        let servers_key = both.map_or_else(|| key.clone(), |both| Secret::from_text(&both));
        let source = SourceId(u32::from_le_bytes(random_bytes()).max(1));
        let (players, here) = PlayerNetwork::open(args, &key)?;
        let (queue, said) = sync_channel(QUEUE_CAPACITY);
        let network = MirrorNetworkConfig {
            listen: format!("tcp/{here}"),
            peers: &args.peer,
            config_file: args.zenoh.as_deref(),
        };
        let hear = move |said| match queue.try_send(said) {
            // What finds no room is asked for again.
            Ok(()) | Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {}
        };
        let mirrors = MirrorNetwork::open(&network, &servers_key, source, hear)?;
        let seed = args.seed.unwrap_or_else(|| default_seed(&key));
        let terms = MazeSettings { seed, cells_per_side: args.side, ..MazeSettings::default() };
        let config = MirrorConfig {
            is_founder: args.peer.is_empty(),
            policy: args.policy.policy(),
            ..MirrorConfig::new(source)
        };
        let now = clock::now();
        let server = Server::new(now, config, terms, args.ninjas)
            .map_err(|error| CliError::usage_error(format!("there can be no such server: {error}"), "see --help"))?;
        let notice = SharedMetrics::default();
        if let Some(addr) = args.http {
            let here = http::listen(addr, Arc::clone(&notice))?;
            info!(%here, "numbers by HTTP");
        }
        let greeting = ServerInfo {
            settings: terms,
            ninja_count: args.ninjas,
            is_draining: false,
            player_addrs: players.public_addrs(),
        };
        Ok(Self {
            server,
            own_info: greeting,
            player_network: players,
            mirror_network: mirrors,
            mirror_messages: said,
            mirror_addrs: [vec![], vec![]],
            shared_metrics: notice,
            last_tick: None,
            next_metrics: now,
            next_log: now + STATS_LOG_INTERVAL,
            logged_stats: MirrorStats::default(),
            next_isolation_warning: now + ISOLATION_WARNING_DELAY,
            next_expiry_warning: now,
            has_zenoh_config: args.zenoh.is_some(),
            has_peers: !args.peer.is_empty(),
            has_server_secret: args.server_secret.is_some(),
            mismatched_servers: BTreeSet::new(),
            settings_mismatch: None,
            has_met_peer: false,
        })
    }

    fn print_join_commands(&self, secret: &str) {
        let ServerInfo {
            settings: MazeSettings { seed, cells_per_side: side, .. },
            ninja_count: ninjas,
            player_addrs: places,
            ..
        } = &self.own_info;
        let place = &places[0];
        info!(source = %self.server.source(), place, "a server of a world");
        println!("players come with:        coplay maze join --world 'udp://{place}#{secret}'");
        if let Some(ticket) = self.player_network.ticket() {
            println!("through most routers:     coplay maze join --world '{ticket}'");
        }
        let servers = if self.has_server_secret { " --server-secret WORD" } else { "" };
        let maze = format!("--seed {seed} --side {side} --ninjas {ninjas}");
        let peer = if self.has_zenoh_config { "ENDPOINT" } else { place };
        let iroh = if self.player_network.ticket().is_some() { " --iroh" } else { "" };
        let zenoh = if self.has_zenoh_config { " --zenoh FILE" } else { "" };
        let another = format!("coplay world serve --peer {peer} --secret '{secret}'{servers} {maze}{iroh}{zenoh}");
        println!("another server, with:     {another}");
        println!("                          (on this computer also with another port: --listen)");
    }

    /// Takes what comes until the next tick, or until another server says something, and does what is due. Of what players send only note is
    /// taken before that, many at a time: to be woken for each would cost more than all that is done for it.
    fn run_once(&mut self) {
        let until = self.server.poll_timeout(clock::now());
        loop {
            let left = (until - clock::now()).min(PLAYER_POLL_INTERVAL);
            let said = self.mirror_messages.recv_timeout(left.to_duration()).ok();
            self.receive_from_players();
            if let Some(said) = said {
                self.receive_from_mirrors(said);
                break;
            }
            if clock::now() >= until {
                break;
            }
        }
        self.advance();
    }

    fn receive_from_players(&mut self) {
        self.player_network.evict_idle_routes(self.server.world().players());
        for _ in 0..MAX_MESSAGES_PER_TURN {
            let Some((at, entity, bytes)) = self.player_network.poll_datagram() else { break };
            if let Some(answer) = self.server.handle_player(at, entity, &bytes) {
                self.player_network.send(entity, &answer);
            }
        }
    }

    /// Takes what another server says, and what others said by now.
    fn receive_from_mirrors(&mut self, first: MirrorMessage) {
        self.handle_mirror_message(first);
        for _ in 0..MAX_MESSAGES_PER_TURN {
            let Ok(said) = self.mirror_messages.try_recv() else { break };
            self.handle_mirror_message(said);
        }
    }

    fn handle_mirror_message(&mut self, said: MirrorMessage) {
        match said {
            // Who has another maze is not listened to.
            MirrorMessage::Datagram { at, from, bytes } if self.mirror_network.is_known(from) => {
                self.server.handle_mirror(at, from, &bytes);
            }
            MirrorMessage::Datagram { .. } => {}
            MirrorMessage::Hello { from, info: greeting } => self.on_server_info(from, greeting),
            // It is greeted with the next turn.
            MirrorMessage::UnverifiedHello => {}
        }
    }

    fn on_server_info(&mut self, from: SourceId, greeting: ServerInfo) {
        let now = clock::now();
        if (greeting.settings, greeting.ninja_count) != (self.own_info.settings, self.own_info.ninja_count) {
            if self.settings_mismatch.is_none() {
                self.settings_mismatch = Some((now, settings_mismatch_error(&self.own_info, &greeting)));
            }
            if self.mismatched_servers.len() < MAX_MISMATCHED_SERVERS && self.mismatched_servers.insert(from) {
                error!(%from, place = greeting.player_addrs.first(), "another server has another maze: --seed, --side and --ninjas must be the same on all");
            }
            return;
        }
        let place = greeting.player_addrs.first().cloned();
        if self.mirror_network.on_server_info(now, from, greeting) {
            info!(%from, place, "another server");
            self.has_met_peer = true;
            self.server.add_peer(now, from);
        }
        self.refresh_mirror_addrs(now);
    }

    /// Why this server is in no world that it could be a part of: it was to come to others, and there are only such with another maze.
    fn settings_mismatch(&mut self, now: Instant) -> Option<CliError> {
        let is_so = self.has_peers && !self.has_met_peer;
        self.settings_mismatch
            .take_if(|(since, _)| is_so && now - *since >= MISMATCH_TIMEOUT)
            .map(|(_, trouble)| trouble)
    }

    /// Where players find the others: who was not heard for a while is not among them.
    fn refresh_mirror_addrs(&mut self, now: Instant) {
        for (way, places) in [TransportKind::Udp, TransportKind::Iroh].into_iter().zip(&mut self.mirror_addrs) {
            *places = self
                .mirror_network
                .player_addrs(now)
                .filter(|place| TransportKind::of_addr(place) == way)
                .cloned()
                .collect();
        }
    }

    fn advance(&mut self) {
        let now = clock::now();
        self.server.advance(now);
        if let Some(tick) =
            self.server.world().tick().filter(|tick| self.last_tick.is_none_or(|(last, _)| last != *tick))
        {
            self.last_tick = Some((tick, now));
        }
        let mut buf = [0; MAX_DATAGRAM];
        while let Some(transmit) = self.server.poll_mirror(now, &mut buf) {
            self.mirror_network.send(transmit.to, &buf[..transmit.len]);
        }
        let places = |entity| &*self.mirror_addrs[self.player_network.transport_of(entity) as usize];
        for (entity, bytes) in self.server.poll_players(now, places) {
            self.player_network.send(entity, &bytes);
        }
        while let Some(happened) = self.server.poll_mirror_event() {
            log_mirror_event(happened);
        }
        self.mirror_network.send_hello(now, &self.own_info);
        self.publish_metrics(now);
    }

    fn publish_metrics(&mut self, now: Instant) {
        let is_asked = self.shared_metrics.is_digest_requested();
        if now < self.next_metrics && !is_asked {
            return;
        }
        self.next_metrics = now + METRICS_INTERVAL;
        self.own_info.player_addrs = self.player_network.public_addrs();
        self.refresh_mirror_addrs(now);
        let mut numbers = self.metrics(now);
        self.log_warnings(now, &numbers);
        if now >= self.next_log {
            self.next_log = now + STATS_LOG_INTERVAL;
            self.log_stats(&numbers);
        }
        if is_asked {
            let realm = self.server.world();
            numbers.digest = Some(realm.entities().digest(realm.rules()));
        }
        self.shared_metrics.publish(numbers);
    }

    /// Says what somebody should do something about.
    fn log_warnings(&mut self, now: Instant, numbers: &ServerMetrics) {
        if self.has_peers
            && numbers.mirror_count == 0
            && self.mismatched_servers.is_empty()
            && now >= self.next_isolation_warning
        {
            self.next_isolation_warning = now + ISOLATION_WARNING_INTERVAL;
            warn!("no other server is heard: do those at --peer run, and are the secrets the same?");
        }
        let left = remaining_tick_time(numbers.tick);
        if left <= EXPIRY_WARNING_TIME && now >= self.next_expiry_warning {
            self.next_expiry_warning = now + EXPIRY_WARNING_INTERVAL;
            let hours_left = left.as_secs_f64() / 3_600.0;
            warn!(
                hours_left,
                "the ticks of this world run out, and then it stands still: stop all its servers before, and start them anew"
            );
        }
    }

    /// Says how it went since that was last said.
    fn log_stats(&mut self, numbers: &ServerMetrics) {
        let before = std::mem::replace(&mut self.logged_stats, numbers.mirror_stats);
        let mut stats = numbers.mirror_stats;
        stats.gtd_histogram.iter_mut().zip(before.gtd_histogram).for_each(|(count, before)| *count -= before);
        let delay = |part| stats.gtd_quantile(part).unwrap_or_default().as_millis_f64();
        info!(
            players = numbers.player_count,
            objects = numbers.entities,
            mirrors = numbers.mirror_count,
            issued = stats.issued - before.issued,
            delivered = stats.remote_delivered(),
            late = stats.over_threshold - before.over_threshold,
            delay_p50_ms = delay(500),
            delay_p99_ms = delay(990),
            "how it went for ten seconds"
        );
    }

    fn metrics(&self, now: Instant) -> ServerMetrics {
        let realm = self.server.world();
        let (cpu_seconds, memory) = process_usage();
        ServerMetrics {
            source: self.server.source().to_string(),
            is_open: self.server.is_open(now),
            is_draining: realm.is_draining(),
            is_full: realm.is_full(),
            tick: self.last_tick.map_or(0, |(tick, _)| tick),
            tick_time: self.last_tick.map(|(_, at)| at),
            player_count: realm.players().count(),
            owned_entities: realm.owned_count(),
            entities: realm.avatars().len(),
            known_entities: realm.entities().len(),
            mirror_count: self.server.mirror().present_peers().count(),
            digest: None,
            commands: realm.commands(),
            group_time_offset_ms: self
                .server
                .mirror()
                .group_time(now)
                .map_or(0.0, |time| group_time_offset_ms(now, time)),
            mirror_stats: *self.server.stats(),
            players_sent: self.player_network.sent,
            players_received: self.player_network.received,
            refused_datagrams: self.player_network.refused_count(),
            cpu_seconds,
            memory_bytes: memory,
        }
    }

    /// Lets players go elsewhere, sees that nothing is lost, and says goodbye.
    fn drain(mut self) {
        info!("draining");
        self.server.world_mut().drain();
        self.own_info.is_draining = true;
        let until = clock::now() + DRAIN_TIMEOUT;
        let has_others = self.server.mirror().present_peers().next().is_some();
        let has_players = |server: &Server| has_others && server.world().players().next().is_some();
        while (has_players(&self.server) || !self.server.is_fully_replicated()) && clock::now() < until {
            self.run_once();
        }
        self.server.leave();
        let end = clock::now() + TimeDelta::from_millis(100);
        while clock::now() < end {
            self.run_once();
        }
        info!("gone");
        self.mirror_network.close();
    }
}

/// What to tell who came to a world with another maze than it has.
fn settings_mismatch_error(ours: &ServerInfo, theirs: &ServerInfo) -> CliError {
    let place = theirs.player_addrs.first().map_or_else(String::new, |place| format!(" at {place}"));
    let what = format!("the server{place} has another maze than this one");
    let flags = |ServerInfo {
                     settings: MazeSettings { seed, cells_per_side: side, .. }, ninja_count: ninjas, ..
                 }: &ServerInfo| { format!("--seed {seed} --side {side} --ninjas {ninjas}") };
    let hint = match flags(theirs) {
        same if same == flags(ours) => "are all servers of the same version of coplay?".into(),
        other => format!("all servers of a world have the same maze: start this one as before, but with {other}"),
    };
    CliError::usage_error(what, hint)
}

fn log_mirror_event(happened: Happened) {
    match happened {
        Happened::PeerJoined(source) => info!(%source, "a server is here"),
        Happened::PeerLeft(source) => warn!(%source, "a server is gone"),
        Happened::EventAbandoned { source, seq } => warn!(%source, seq, "an event was given up"),
        Happened::SourceForgotten(source) => info!(%source, "a server that was gone is forgotten"),
        Happened::SnapshotTooLong { of, len } => {
            error!(%of, len, "what is known by the word of this server is too long to be told to one that comes late: that one will lack it");
        }
        Happened::SnapshotUnavailable { of, from } => {
            warn!(%of, %from, "what is known by the word of a server was asked for in vain; it is asked for again");
        }
    }
}

/// By how much the time that all servers share is ahead of our clock.
fn group_time_offset_ms(now: Instant, time: GroupInstant) -> f64 {
    TimeDelta::from_nanos(time.as_nanos() - now.as_nanos()).as_millis_f64()
}

/// The maze of a world for which none was chosen: the same on all its servers.
fn default_seed(secret: &Secret) -> u64 {
    let [low, high, ..] = secret.derive("world maze");
    u64::from(u16::from_le_bytes([low, high])) % DEFAULT_SEED_LIMIT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_mismatch_error_names_the_expected_settings() {
        let greeting = |seed, bucket, ninjas| {
            let terms = MazeSettings { seed, cells_per_side: 9, bucket_ticks: bucket, ..MazeSettings::default() };
            ServerInfo {
                settings: terms,
                ninja_count: ninjas,
                is_draining: false,
                player_addrs: vec!["10.0.0.1:7700".into()],
            }
        };
        let told = settings_mismatch_error(&greeting(1, 4, 2), &greeting(7, 4, 3));
        assert_eq!(told.exit_code(), 2);
        let told = told.to_string();
        assert!(told.contains("10.0.0.1:7700") && told.ends_with("with --seed 7 --side 9 --ninjas 3"), "{told}");
        let told = settings_mismatch_error(&greeting(1, 4, 2), &greeting(1, 5, 2)).to_string();
        assert!(told.contains("version") && !told.contains("--seed"), "{told}");
    }
}
