//! Network between servers: zenoh, peer to peer, with all messages sealed.
//!
//! In a world whose secret derives the name `W`, server `S` publishes its hellos as `coplay/W/hello/S`, messages for
//! all servers as `coplay/W/all/S`, and messages for server `T` as `coplay/W/one/T/S`.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use coplay::mirror::{MirrorDestination, SourceId};
use coplay::time::{Instant, TimeDelta};
use coplay_net::clock;
use coplay_net::key::Secret;
use coplay_shell::error::AppError;
use coplay_world::{ServerHello, ServerInfo};
use zenoh::Wait;
use zenoh::bytes::ZBytes;
use zenoh::pubsub::Publisher;
use zenoh::qos::CongestionControl;

use crate::replay_guard::{HelloStatus, ReplayGuard};
use crate::seal::{OpenedMessage, ServerOpener, ServerSealer, Topic};

/// Interval at which this server sends hellos.
const HELLO_INTERVAL: TimeDelta = TimeDelta::from_millis(500);
/// Hello interval while a nonce waits to be sent: one to echo, or a new one of this server.
const PENDING_HELLO_INTERVAL: TimeDelta = TimeDelta::from_millis(50);
/// Silence after which a server is forgotten, and its address is not sent to players.
const SERVER_TIMEOUT: TimeDelta = TimeDelta::from_secs(3);
/// Key of the listening endpoints in a configuration of zenoh.
const LISTEN_KEY: &str = "listen/endpoints";
/// Largest number of publishers to single servers. Beyond it all of them are closed and opened again on demand.
const MAX_UNICAST_PUBLISHERS: usize = 256;

/// Message of another server. All but [`MirrorMessage::UnverifiedHello`] are protected against replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MirrorMessage {
    /// Datagram for this server's mirror.
    Datagram {
        /// Time at which zenoh delivered the datagram, on the local clock.
        at: Instant,
        /// Server that sent the datagram.
        from: SourceId,
        /// Contents of the datagram, decrypted.
        bytes: Vec<u8>,
    },
    /// Hello of a server that has echoed our nonce.
    Hello {
        /// Server that sent the hello.
        from: SourceId,
        /// Maze, ninjas, player addresses and state of that server.
        info: ServerInfo,
    },
    /// Hello of a server that has not echoed our nonce yet. Our next hello answers it.
    UnverifiedHello,
}

/// Network between servers: the zenoh session, its publishers, the replay guard, and the known servers.
pub struct ServerNetwork {
    session: zenoh::Session,
    key_prefix: String,
    source: SourceId,
    sealer: ServerSealer,
    broadcast_publisher: Publisher<'static>,
    hello_publisher: Publisher<'static>,
    unicast_publishers: BTreeMap<SourceId, Publisher<'static>>,
    replay_guard: Arc<Mutex<ReplayGuard>>,
    last_hello: Option<Instant>,
    known_servers: BTreeMap<SourceId, (Instant, ServerInfo)>,
}

/// Zenoh endpoints and configuration of a server.
#[derive(Clone, Debug, Default)]
pub struct ServerNetworkConfig<'a> {
    /// Endpoint on which the server listens, in zenoh's notation, unless the configuration file has one.
    pub listen: String,
    /// Other servers: `HOST:PORT`, or endpoints in zenoh's notation.
    pub peers: &'a [String],
    /// Zenoh configuration file to start from; without it, peer mode and no multicast scouting.
    pub config_file: Option<&'a Path>,
}

impl ServerNetwork {
    /// Opens the network. Calls `on_message` from threads of zenoh for every message of another server that the replay
    /// guard does not reject.
    pub fn open(
        network: &ServerNetworkConfig<'_>,
        secret: &Secret,
        source: SourceId,
        on_message: impl Fn(MirrorMessage) + Send + Sync + 'static,
    ) -> Result<Self, AppError> {
        let session = zenoh::open(zenoh_config(network)?).wait().map_err(|error| {
            let hint = "check the addresses of --peer and the file of --zenoh, or choose another port with --listen";
            AppError::failure(format!("cannot open the network between servers: {}", short_message(&*error))).hint(hint)
        })?;
        let key_prefix = world_key_prefix(secret);
        let replay_guard = Arc::new(Mutex::new(ReplayGuard::default()));
        let (opener, on_message) = (Arc::new(ServerOpener::new(secret)), Arc::new(on_message));
        let parts = [
            ("hello/*".into(), Topic::Hello),
            ("all/*".into(), Topic::All),
            (format!("one/{source}/*"), Topic::One(source)),
        ];
        for (part, topic) in parts {
            let (opener, on_message, replay_guard) =
                (Arc::clone(&opener), Arc::clone(&on_message), Arc::clone(&replay_guard));
            let listen = move |sample: zenoh::sample::Sample| {
                let at = clock::now();
                let opened = opener.open(topic, &sample.payload().to_bytes());
                let Some(opened) = opened.filter(|opened| opened.from.source != source) else { return };
                to_mirror_message(at, topic, opened, &mut lock(&replay_guard)).into_iter().for_each(&*on_message);
            };
            let subscribed =
                session.declare_subscriber(format!("{key_prefix}/{part}")).callback(listen).background().wait();
            subscribed.map_err(|error| zenoh_error(&*error))?;
        }
        let publisher = |part: String| declare_publisher(&session, format!("{key_prefix}/{part}"));
        let broadcast_publisher = publisher(format!("all/{source}"))?;
        let hello_publisher = publisher(format!("hello/{source}"))?;
        let sealer = ServerSealer::new(secret, source);
        Ok(Self {
            session,
            key_prefix,
            source,
            sealer,
            broadcast_publisher,
            hello_publisher,
            unicast_publishers: BTreeMap::new(),
            replay_guard,
            last_hello: None,
            known_servers: BTreeMap::new(),
        })
    }

    /// Sends a datagram. A datagram that cannot be sent now is lost; its receiver then requests the missing events.
    pub fn send(&mut self, to: MirrorDestination, bytes: &[u8]) {
        let topic = match to {
            MirrorDestination::All => Topic::All,
            MirrorDestination::One(other) => Topic::One(other),
        };
        let sealed = self.sealer.seal(topic, bytes);
        let publisher = match to {
            MirrorDestination::All => &self.broadcast_publisher,
            MirrorDestination::One(other) => {
                if self.unicast_publishers.len() >= MAX_UNICAST_PUBLISHERS {
                    self.unicast_publishers.clear();
                }
                let key = format!("{}/one/{other}/{}", self.key_prefix, self.source);
                match self.unicast_publishers.entry(other) {
                    std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
                    std::collections::btree_map::Entry::Vacant(entry) => match declare_publisher(&self.session, key) {
                        Ok(publisher) => entry.insert(publisher),
                        Err(_) => return,
                    },
                }
            }
        };
        let _ = publisher.put(ZBytes::from(sealed)).wait();
    }

    /// Sends a hello if the last one is 500 ms old, or 50 ms while a nonce waits to be sent.
    pub fn send_hello(&mut self, now: Instant, info: &ServerInfo) {
        let mut replay_guard = lock(&self.replay_guard);
        let interval = if replay_guard.is_echo_pending() { PENDING_HELLO_INTERVAL } else { HELLO_INTERVAL };
        if self.last_hello.is_some_and(|sent| now - sent < interval) {
            return;
        }
        self.last_hello = Some(now);
        let (nonce, echoed_nonces) = replay_guard.nonces_to_send();
        drop(replay_guard);
        let hello = ServerHello { nonce, echoed_nonces, info: info.clone() };
        let sealed = self.sealer.seal(Topic::Hello, &hello.to_bytes());
        let _ = self.hello_publisher.put(ZBytes::from(sealed)).wait();
    }

    /// Stores the info of another server with our maze. Returns whether the server is new, or was forgotten because it
    /// was silent for 3 s.
    pub fn on_server_info(&mut self, now: Instant, from: SourceId, info: ServerInfo) -> bool {
        self.known_servers.retain(|_, (received, _)| now - *received < SERVER_TIMEOUT);
        self.known_servers.insert(from, (now, info)).is_none()
    }

    /// Returns whether a hello of this server with our maze has arrived. A server that is silent for 3 s is forgotten
    /// at the next hello of any server with our maze.
    pub fn is_known(&self, source: SourceId) -> bool {
        self.known_servers.contains_key(&source)
    }

    /// Returns the addresses for players, on all transports, of the other servers that are neither draining nor silent
    /// for 3 s.
    pub fn player_addrs(&self, now: Instant) -> impl Iterator<Item = &String> {
        let admits =
            move |(received, info): &&(Instant, ServerInfo)| now - *received < SERVER_TIMEOUT && !info.is_draining;
        self.known_servers.values().filter(admits).flat_map(|(_, info)| &info.player_addrs)
    }

    /// Closes the session after pending messages are sent.
    pub fn close(self) {
        let _ = self.session.close().wait();
    }
}

fn lock(replay_guard: &Mutex<ReplayGuard>) -> MutexGuard<'_, ReplayGuard> {
    replay_guard.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Converts an opened message; `None` if it may be a replay or is a malformed hello.
fn to_mirror_message(
    at: Instant,
    topic: Topic,
    opened: OpenedMessage,
    replay_guard: &mut ReplayGuard,
) -> Option<MirrorMessage> {
    let OpenedMessage { from, sequence, payload } = opened;
    if topic != Topic::Hello {
        return replay_guard.accept(from, sequence).then_some(MirrorMessage::Datagram {
            at,
            from: from.source,
            bytes: payload,
        });
    }
    let hello = ServerHello::from_bytes(&payload)?;
    Some(match replay_guard.on_hello(from, sequence, &hello)? {
        HelloStatus::Verified => MirrorMessage::Hello { from: from.source, info: hello.info },
        HelloStatus::Unverified => MirrorMessage::UnverifiedHello,
    })
}

/// Returns the zenoh key prefix that separates this world's messages from those of other worlds.
fn world_key_prefix(secret: &Secret) -> String {
    let name = secret.derive("world name");
    let hex: String = name[..8].iter().map(|byte| format!("{byte:02x}")).collect();
    format!("coplay/{hex}")
}

fn declare_publisher(session: &zenoh::Session, key: String) -> Result<Publisher<'static>, AppError> {
    // A congested link drops messages instead of delaying the game; the receiver requests missing events again.
    let publisher = session.declare_publisher(key).congestion_control(CongestionControl::Drop).express(true).wait();
    publisher.map_err(|error| zenoh_error(&*error))
}

fn zenoh_error(error: &(dyn std::error::Error + Send + Sync)) -> AppError {
    AppError::failure(format!("cannot exchange messages with other servers: {}", short_message(error)))
        .hint("run the same command again; if you use --zenoh, check that the file permits the keys coplay/**")
}

/// Returns zenoh's message without the location in its source code.
fn short_message(error: &(dyn std::error::Error + Send + Sync)) -> String {
    let text = error.to_string();
    text.split(" at /").next().unwrap_or(&text).to_owned()
}

fn zenoh_config(network: &ServerNetworkConfig<'_>) -> Result<zenoh::Config, AppError> {
    let mut config = match network.config_file {
        None => zenoh::Config::default(),
        Some(path) => zenoh::Config::from_file(path).map_err(|error| {
            let hint = "check the path; for the format, see https://zenoh.io/docs/manual/configuration";
            AppError::usage(format!(
                "cannot use {} as a zenoh configuration: {}",
                path.display(),
                short_message(&*error)
            ))
            .hint(hint)
        })?,
    };
    let has_listen_endpoint = config.get_json(LISTEN_KEY).ok() != zenoh::Config::default().get_json(LISTEN_KEY).ok();
    let mut set = |key: &str, value: String| {
        config.insert_json5(key, &value).map_err(|error| {
            AppError::usage(format!("zenoh rejects {value} for {key}: {}", short_message(&*error)))
                .hint("give each --peer as HOST:PORT, or as a zenoh endpoint such as tls/play.example.org:7700")
        })
    };
    if network.config_file.is_none() {
        set("mode", "\"peer\"".into())?;
        // Servers find each other by address only: a world must not show up in another network.
        set("scouting/multicast/enabled", "false".into())?;
    }
    // A configured listening endpoint, perhaps with TLS, must not be complemented by one in the clear.
    if !has_listen_endpoint {
        set(LISTEN_KEY, format!("[{}]", json_quoted(&network.listen)))?;
    }
    if !network.peers.is_empty() {
        let peers: Vec<String> = network.peers.iter().map(|peer| json_quoted(&zenoh_endpoint(peer))).collect();
        set("connect/endpoints", format!("[{}]", peers.join(",")))?;
    }
    Ok(config)
}

/// Returns an address as a zenoh endpoint: TCP unless it names a protocol.
fn zenoh_endpoint(peer: &str) -> String {
    if peer.contains('/') { peer.into() } else { format!("tcp/{peer}") }
}

fn json_quoted(text: &str) -> String {
    format!("{text:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listen_endpoints(file: Option<&str>) -> String {
        let path = std::env::temp_dir().join(format!("coplay-zenoh-{}.json5", std::process::id()));
        file.iter().for_each(|text| std::fs::write(&path, text).expect("the file can be written"));
        let peers = ["a.example:1".into(), "tls/b.example:2".into()];
        let network = ServerNetworkConfig {
            listen: "tcp/127.0.0.1:7700".into(),
            peers: &peers,
            config_file: file.map(|_| path.as_path()),
        };
        let config = zenoh_config(&network).expect("the configuration is valid");
        let connects = config.get_json("connect/endpoints").expect("the key exists");
        assert!(connects.contains("tcp/a.example:1") && connects.contains("tls/b.example:2"), "{connects}");
        config.get_json(LISTEN_KEY).expect("the key exists")
    }

    /// With TLS configured, the server must not also listen in the clear.
    #[test]
    fn listen_endpoints_of_the_config_file_take_precedence() {
        assert_eq!(listen_endpoints(None), r#"["tcp/127.0.0.1:7700"]"#);
        let tls = listen_endpoints(Some(r#"{ listen: { endpoints: ["tls/127.0.0.1:7447"] } }"#));
        assert_eq!(tls, r#"["tls/127.0.0.1:7447"]"#);
        assert_eq!(listen_endpoints(Some(r#"{ mode: "peer" }"#)), r#"["tcp/127.0.0.1:7700"]"#);
    }
}
