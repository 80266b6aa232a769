//! `serve`: one server of a world, in real time.

use std::collections::BTreeSet;
use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TrySendError, sync_channel};

use coplay::codec::MAX_DATAGRAM;
use coplay::mirror::{MirrorConfig, MirrorEvent, MirrorStats, SourceId};
use coplay::time::{GroupInstant, Instant, TimeDelta};
use coplay_maze::MazeSettings;
use coplay_net::clock;
use coplay_net::key::{Secret, random_bytes};
use coplay_net::ticket;
use coplay_shell::error::AppError;
use coplay_shell::signals;
use coplay_world::{Server, ServerInfo};
use tracing::{error, info, warn};

use crate::cli::{LogStyle, ServeArgs};
use crate::http::{self, SharedMetrics};
use crate::metrics::{ServerMetrics, process_usage, remaining_tick_time};
use crate::player_network::{PlayerNetwork, TransportKind};
use crate::server_network::{MirrorMessage, ServerNetwork, ServerNetworkConfig};

/// Largest number of messages from other servers that wait for the world's thread. Further ones are dropped.
const QUEUE_CAPACITY: usize = 16_384;
/// Largest number of players' datagrams processed in one turn, and of queued messages of other servers.
const MAX_MESSAGES_PER_TURN: usize = 4_096;
/// Longest wait before players' datagrams are processed. Input takes effect only in a tick, but pings measure the round
/// trip and need quick answers.
const PLAYER_POLL_INTERVAL: TimeDelta = TimeDelta::from_millis(3);
/// Interval at which metrics are published, unless a request for a digest comes first.
const METRICS_INTERVAL: TimeDelta = TimeDelta::from_millis(500);
/// Interval between statistics in the log.
const STATS_LOG_INTERVAL: TimeDelta = TimeDelta::from_secs(10);
/// Remaining time of the tick counter below which the server warns.
const EXPIRY_WARNING_TIME: TimeDelta = TimeDelta::from_secs(30 * 86_400);
/// Interval between warnings that the tick counter runs out.
const EXPIRY_WARNING_INTERVAL: TimeDelta = TimeDelta::from_secs(3_600);
/// Time from the start of a server with `--peer` to its first warning that no other server answers.
const ISOLATION_WARNING_DELAY: TimeDelta = TimeDelta::from_secs(4);
/// Interval between warnings that no other server answers.
const ISOLATION_WARNING_INTERVAL: TimeDelta = TimeDelta::from_secs(30);
/// Time from the first hello of a server with a different maze until a server with `--peer` exits, unless it has found
/// a server with its own maze by then. The wrong maze may be that of the other server, so it does not exit at once.
const MISMATCH_TIMEOUT: TimeDelta = TimeDelta::from_secs(1);
/// Longest time for players to move to another server, and for our updates to be replicated, when this server stops.
const DRAIN_TIMEOUT: TimeDelta = TimeDelta::from_secs(8);
/// Largest number of servers with a different maze that are logged.
const MAX_MISMATCHED_SERVERS: usize = 64;
/// Number of possible default seeds: few enough that a seed is short to read out.
const DEFAULT_SEED_LIMIT: u64 = 10_000;

/// Runs a server until a signal or `--seconds` stops it.
pub fn run(args: &ServeArgs) -> Result<ExitCode, AppError> {
    init_logging(args);
    signals::install_handler();
    let secret = world_secret(args)?;
    let mut process = ServerProcess::open(args, &secret)?;
    process.print_join_commands(&secret);
    let end = args.seconds.map(|seconds| clock::now() + TimeDelta::from_secs(seconds.into()));
    while !signals::is_stop_requested() && end.is_none_or(|end| clock::now() < end) {
        process.run_once();
        if let Some(error) = process.settings_mismatch(clock::now()) {
            process.server_network.close();
            return Err(error);
        }
    }
    process.drain();
    Ok(ExitCode::SUCCESS)
}

fn init_logging(args: &ServeArgs) {
    use tracing_subscriber::EnvFilter;
    // An operator who configures zenoh needs its errors; for others our own messages suffice.
    let zenoh = if args.zenoh.is_some() { "error" } else { "off" };
    let default_filter = || EnvFilter::new(format!("warn,coplay_world_app=info,zenoh={zenoh}"));
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| default_filter());
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // A test may already have installed a logger.
    let _ = match args.log {
        LogStyle::Text => log.with_target(false).with_ansi(std::io::stderr().is_terminal()).try_init(),
        LogStyle::Json => log.json().try_init(),
    };
}

fn world_secret(args: &ServeArgs) -> Result<String, AppError> {
    if [&args.secret, &args.server_secret].into_iter().flatten().any(|secret| !ticket::is_valid_secret(secret)) {
        return Err(AppError::usage("invalid secret: must be 1 to 128 bytes without spaces")
            .hint("use one word, such as 16 random letters and digits, for --secret and --server-secret"));
    }
    match &args.secret {
        Some(secret) => Ok(secret.clone()),
        None if args.peer.is_empty() => Ok(Secret::random_text()),
        None => {
            Err(AppError::usage("missing --secret: the other servers admit only servers with the secret of the world")
                .hint(
                    "add --secret WORD, as in the command that another server printed after `more servers join with:`",
                ))
        }
    }
}

/// Running server: the world, its networks for players and for servers, and the times of its periodic work.
struct ServerProcess {
    server: Server,
    own_info: ServerInfo,
    player_network: PlayerNetwork,
    server_network: ServerNetwork,
    /// Messages of other servers that wait to be processed.
    mirror_messages: Receiver<MirrorMessage>,
    /// Addresses of the other servers that players can move to, by UDP and by iroh.
    mirror_addrs: [Vec<String>; 2],
    shared_metrics: SharedMetrics,
    /// Last simulated tick, and when it was simulated; `None` before the first.
    last_tick: Option<(u32, Instant)>,
    next_metrics: Instant,
    next_log: Instant,
    /// Mirror statistics as of the last time they were logged.
    logged_stats: MirrorStats,
    next_isolation_warning: Instant,
    next_expiry_warning: Instant,
    /// Whether `--zenoh` was given. Other servers may then need an endpoint that differs from the players' address.
    has_zenoh_config: bool,
    /// Whether `--peer` was given.
    has_peers: bool,
    /// Whether `--server-secret` was given.
    has_server_secret: bool,
    /// Servers with a different maze, each of which was logged once.
    mismatched_servers: BTreeSet<SourceId>,
    /// Time of the first hello of a server with a different maze, and the error to exit with if no server has our maze.
    settings_mismatch: Option<(Instant, AppError)>,
    /// Whether a server with our maze has ever sent a hello.
    has_met_peer: bool,
}

impl ServerProcess {
    fn open(args: &ServeArgs, secret: &str) -> Result<Self, AppError> {
        let key = Secret::from_text(secret);
        // A player knows only the world's secret, so the servers' key derives from both secrets.
        let both = args.server_secret.as_ref().map(|server_secret| format!("{secret} {server_secret}"));
        let server_key = both.map_or_else(|| key.clone(), |both| Secret::from_text(&both));
        let source = SourceId(u32::from_le_bytes(random_bytes()).max(1));
        let (player_network, local_addr) = PlayerNetwork::open(args, &key)?;
        let (queue, mirror_messages) = sync_channel(QUEUE_CAPACITY);
        let network = ServerNetworkConfig {
            listen: format!("tcp/{local_addr}"),
            peers: &args.peer,
            config_file: args.zenoh.as_deref(),
        };
        let on_message = move |message| match queue.try_send(message) {
            // A message that finds no room is lost; the mirror later requests the missing events again.
            Ok(()) | Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {}
        };
        let server_network = ServerNetwork::open(&network, &server_key, source, on_message)?;
        let seed = args.seed.unwrap_or_else(|| default_seed(&key));
        let settings = MazeSettings { seed, cells_per_side: args.side, ..MazeSettings::default() };
        let config = MirrorConfig {
            is_founder: args.peer.is_empty(),
            policy: args.policy.policy(),
            ..MirrorConfig::new(source)
        };
        let now = clock::now();
        let server = Server::new(now, config, settings, args.ninjas).map_err(|error| {
            let hint = "`coplay world serve --help` lists all options";
            AppError::usage(format!("invalid server settings: {error}")).hint(hint)
        })?;
        let shared_metrics = SharedMetrics::default();
        if let Some(addr) = args.http {
            let here = http::listen(addr, Arc::clone(&shared_metrics))?;
            info!(%here, "serving health, metrics and state over HTTP");
        }
        let own_info = ServerInfo {
            settings,
            ninja_count: args.ninjas,
            is_draining: false,
            player_addrs: player_network.public_addrs(),
        };
        Ok(Self {
            server,
            own_info,
            player_network,
            server_network,
            mirror_messages,
            mirror_addrs: [vec![], vec![]],
            shared_metrics,
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
        let addr = &self.own_info.player_addrs[0];
        info!(source = %self.server.source(), place = addr, "server started");
        println!("players join with:        coplay maze join --world 'udp://{addr}#{secret}'");
        if let Some(ticket) = self.player_network.ticket() {
            println!("through most routers:     coplay maze join --world '{ticket}'");
        }
        let server_secret = if self.has_server_secret { " --server-secret WORD" } else { "" };
        let maze = maze_flags(&self.own_info);
        let peer = if self.has_zenoh_config { "ENDPOINT" } else { addr };
        let iroh = if self.player_network.ticket().is_some() { " --iroh" } else { "" };
        let zenoh = if self.has_zenoh_config { " --zenoh FILE" } else { "" };
        let command =
            format!("coplay world serve --peer {peer} --secret '{secret}'{server_secret} {maze}{iroh}{zenoh}");
        println!("more servers join with:   {command}");
        println!("                          (on this computer add --listen with another port)");
    }

    /// Receives until the world's next deadline, or until another server sends a message, and then does the due work.
    /// Meanwhile it processes players' datagrams every 3 ms, many at a time: a wake-up for each would cost more than
    /// the work itself.
    fn run_once(&mut self) {
        let until = self.server.poll_timeout(clock::now());
        loop {
            let left = (until - clock::now()).min(PLAYER_POLL_INTERVAL);
            let message = self.mirror_messages.recv_timeout(left.to_duration()).ok();
            self.receive_from_players();
            if let Some(message) = message {
                self.receive_from_mirrors(message);
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

    /// Processes a message of another server, and the further messages that are already queued.
    fn receive_from_mirrors(&mut self, first: MirrorMessage) {
        self.handle_mirror_message(first);
        for _ in 0..MAX_MESSAGES_PER_TURN {
            let Ok(message) = self.mirror_messages.try_recv() else { break };
            self.handle_mirror_message(message);
        }
    }

    fn handle_mirror_message(&mut self, message: MirrorMessage) {
        match message {
            // Servers with a different maze are ignored.
            MirrorMessage::Datagram { at, from, bytes } if self.server_network.is_known(from) => {
                self.server.handle_mirror(at, from, &bytes);
            }
            MirrorMessage::Datagram { .. } => {}
            MirrorMessage::Hello { from, info } => self.on_server_info(from, info),
            // The next hello, due within 50 ms, echoes its nonce.
            MirrorMessage::UnverifiedHello => {}
        }
    }

    fn on_server_info(&mut self, from: SourceId, info: ServerInfo) {
        let now = clock::now();
        if (info.settings, info.ninja_count) != (self.own_info.settings, self.own_info.ninja_count) {
            if self.settings_mismatch.is_none() {
                self.settings_mismatch = Some((now, settings_mismatch_error(&self.own_info, &info)));
            }
            if self.mismatched_servers.len() < MAX_MISMATCHED_SERVERS && self.mismatched_servers.insert(from) {
                let place = info.player_addrs.first();
                error!(
                    %from,
                    place,
                    "ignoring a server with different settings for the maze or its ninjas: all servers of a world need the \
                     same --seed, --side and --ninjas, and the same version of coplay"
                );
            }
            return;
        }
        let place = info.player_addrs.first().cloned();
        if self.server_network.on_server_info(now, from, info) {
            info!(%from, place, "found another server");
            self.has_met_peer = true;
            self.server.add_peer(now, from);
        }
        self.refresh_mirror_addrs(now);
    }

    /// Returns an error if this server was started with `--peer`, has found no server with its maze, and received the
    /// first hello of a server with a different maze at least [`MISMATCH_TIMEOUT`] ago.
    fn settings_mismatch(&mut self, now: Instant) -> Option<AppError> {
        let is_alone = self.has_peers && !self.has_met_peer;
        self.settings_mismatch
            .take_if(|(since, _)| is_alone && now - *since >= MISMATCH_TIMEOUT)
            .map(|(_, error)| error)
    }

    /// Refreshes the addresses of other servers for players, without servers that are draining or were silent for 3 s.
    fn refresh_mirror_addrs(&mut self, now: Instant) {
        for (transport, addrs) in [TransportKind::Udp, TransportKind::Iroh].into_iter().zip(&mut self.mirror_addrs) {
            *addrs = self
                .server_network
                .player_addrs(now)
                .filter(|addr| TransportKind::of_addr(addr) == transport)
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
            self.server_network.send(transmit.to, &buf[..transmit.len]);
        }
        let mirror_addrs = |entity| &*self.mirror_addrs[self.player_network.transport_of(entity) as usize];
        for (entity, bytes) in self.server.poll_players(now, mirror_addrs) {
            self.player_network.send(entity, &bytes);
        }
        while let Some(event) = self.server.poll_mirror_event() {
            log_mirror_event(event);
        }
        self.server_network.send_hello(now, &self.own_info);
        self.publish_metrics(now);
    }

    fn publish_metrics(&mut self, now: Instant) {
        let is_digest_requested = self.shared_metrics.is_digest_requested();
        if now < self.next_metrics && !is_digest_requested {
            return;
        }
        self.next_metrics = now + METRICS_INTERVAL;
        self.own_info.player_addrs = self.player_network.public_addrs();
        self.refresh_mirror_addrs(now);
        let mut metrics = self.metrics(now);
        self.log_warnings(now, &metrics);
        if now >= self.next_log {
            self.next_log = now + STATS_LOG_INTERVAL;
            self.log_stats(&metrics);
        }
        if is_digest_requested {
            let world = self.server.world();
            metrics.digest = Some(world.entities().digest(world.rules()));
        }
        self.shared_metrics.publish(metrics);
    }

    /// Logs warnings that need an operator's action: no other server reachable, or a tick counter that runs out.
    fn log_warnings(&mut self, now: Instant, metrics: &ServerMetrics) {
        if self.has_peers
            && metrics.mirror_count == 0
            && self.mismatched_servers.is_empty()
            && now >= self.next_isolation_warning
        {
            self.next_isolation_warning = now + ISOLATION_WARNING_INTERVAL;
            warn!(
                "no other server answers: check that the servers at --peer run, are reachable and use the same secrets"
            );
        }
        let left = remaining_tick_time(metrics.tick);
        if left <= EXPIRY_WARNING_TIME && now >= self.next_expiry_warning {
            self.next_expiry_warning = now + EXPIRY_WARNING_INTERVAL;
            let hours_left = left.as_secs_f64() / 3_600.0;
            warn!(
                hours_left,
                "the tick counter runs out in less than 30 days, and then the world stops: before that, stop all its \
                 servers, and start the first one again only when all have stopped; all scores are lost"
            );
        }
    }

    /// Logs the statistics since the last call, or since the start at the first call: about 10 s.
    fn log_stats(&mut self, metrics: &ServerMetrics) {
        let before = std::mem::replace(&mut self.logged_stats, metrics.mirror_stats);
        let mut stats = metrics.mirror_stats;
        stats.gtd_histogram.iter_mut().zip(before.gtd_histogram).for_each(|(count, before)| *count -= before);
        let delay = |part| stats.gtd_quantile(part).unwrap_or_default().as_millis_f64();
        info!(
            players = metrics.player_count,
            objects = metrics.entities,
            mirrors = metrics.mirror_count,
            issued = stats.issued - before.issued,
            delivered = stats.remote_delivered(),
            late = stats.over_threshold - before.over_threshold,
            delay_p50_ms = delay(500),
            delay_p99_ms = delay(990),
            "statistics of the last 10 s"
        );
    }

    fn metrics(&self, now: Instant) -> ServerMetrics {
        let world = self.server.world();
        let (cpu_seconds, memory) = process_usage();
        ServerMetrics {
            source: self.server.source().to_string(),
            is_open: self.server.is_open(now),
            is_draining: world.is_draining(),
            is_full: world.is_full(),
            tick: self.last_tick.map_or(0, |(tick, _)| tick),
            tick_time: self.last_tick.map(|(_, at)| at),
            player_count: world.players().count(),
            owned_entities: world.owned_count(),
            entities: world.avatars().len(),
            known_entities: world.entities().len(),
            mirror_count: self.server.mirror().present_peers().count(),
            digest: None,
            commands: world.commands(),
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

    /// Asks players to move to other servers, waits up to 8 s until they have moved and our updates are replicated, and
    /// leaves the world. Does not wait for players if no other server is present.
    fn drain(mut self) {
        info!("stopping: players move to other servers, if there are any");
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
        info!("server stopped");
        self.server_network.close();
    }
}

/// Returns the error of a server whose peer has a different maze. The hint names the flags of the peer's maze, or the
/// version of the program if those flags are equal to ours.
fn settings_mismatch_error(ours: &ServerInfo, theirs: &ServerInfo) -> AppError {
    let addr = theirs.player_addrs.first().map_or_else(String::new, |addr| format!(" at {addr}"));
    let message = format!("the server{addr} has different settings for the maze or its ninjas");
    let hint = match maze_flags(theirs) {
        same if same == maze_flags(ours) => "use the same version of coplay on all servers".into(),
        flags => format!("run the same command with {flags}: all servers of a world need the same values"),
    };
    AppError::usage(message).hint(hint)
}

/// Formats the flags that select a server's maze and ninjas.
fn maze_flags(info: &ServerInfo) -> String {
    let MazeSettings { seed, cells_per_side, .. } = info.settings;
    format!("--seed {seed} --side {cells_per_side} --ninjas {}", info.ninja_count)
}

fn log_mirror_event(event: MirrorEvent) {
    match event {
        MirrorEvent::PeerJoined(source) => info!(%source, "another server joined"),
        MirrorEvent::PeerLeft(source) => warn!(%source, "another server left or is unreachable"),
        MirrorEvent::EventAbandoned { source, seq } => warn!(%source, seq, "dropped an event that is not obsolete"),
        MirrorEvent::SourceForgotten(source) => {
            info!(%source, "discarded the events of a server that had left, because the limit of 256 known servers was reached")
        }
        MirrorEvent::SnapshotTooLong { of, len } => {
            error!(%of, len, "cannot send the entities of the server `of` to another server: their snapshot exceeds the limit of 16 MiB");
        }
        MirrorEvent::SnapshotUnavailable { of, from } => {
            warn!(%of, %from, "a server did not send a snapshot; requesting it again if it is still missing");
        }
    }
}

/// Returns by how many milliseconds the group time is ahead of our clock.
fn group_time_offset_ms(now: Instant, time: GroupInstant) -> f64 {
    TimeDelta::from_nanos(time.as_nanos() - now.as_nanos()).as_millis_f64()
}

/// Derives the seed of a world without `--seed` from its secret, so that it is equal on all its servers.
fn default_seed(secret: &Secret) -> u64 {
    let [low, high, ..] = secret.derive("world maze");
    u64::from(u16::from_le_bytes([low, high])) % DEFAULT_SEED_LIMIT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_mismatch_error_names_the_expected_settings() {
        let info = |seed, bucket_ticks, ninja_count| ServerInfo {
            settings: MazeSettings { seed, cells_per_side: 9, bucket_ticks, ..MazeSettings::default() },
            ninja_count,
            is_draining: false,
            player_addrs: vec!["10.0.0.1:7700".into()],
        };
        let error = settings_mismatch_error(&info(1, 4, 2), &info(7, 4, 3));
        assert_eq!(error.exit_code(), 2);
        let text = error.to_string();
        assert!(text.contains("10.0.0.1:7700") && text.contains("with --seed 7 --side 9 --ninjas 3:"), "{text}");
        let text = settings_mismatch_error(&info(1, 4, 2), &info(1, 5, 2)).to_string();
        assert!(text.contains("version") && !text.contains("--seed"), "{text}");
    }
}
