//! The way to the other servers: zenoh, peer to peer, with everything sealed.
//!
//! Of a world whose secret comes to `W`, a server that is `S` says `coplay/W/hello/S` so that others know of it, `coplay/W/all/S` what is for
//! all, and `coplay/W/one/T/S` what is for server `T`.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use coplay::mirror::{MirrorDestination, SourceId};
use coplay::time::{Instant, TimeDelta};
use coplay_net::clock;
use coplay_net::key::Secret;
use coplay_world::{ServerHello, ServerInfo};
use zenoh::Wait;
use zenoh::bytes::ZBytes;
use zenoh::pubsub::Publisher;
use zenoh::qos::CongestionControl;

use crate::error::CliError;
use crate::replay_guard::{HelloStatus, ReplayGuard};
use crate::seal::{OpenedMessage, Opener, Sealer, Topic};

/// Greetings are said this often, and this soon when somebody waits for one; whoever said none for so long is not sent players any more.
const HELLO_INTERVAL: TimeDelta = TimeDelta::from_millis(500);
const PENDING_HELLO_INTERVAL: TimeDelta = TimeDelta::from_millis(50);
const SERVER_TIMEOUT: TimeDelta = TimeDelta::from_secs(3);
/// Where zenoh listens, in its configuration.
const LISTEN_KEY: &str = "listen/endpoints";
/// Servers that are sent something to alone, at the most.
const MAX_UNICAST_PUBLISHERS: usize = 256;

/// Something that another server says. But for [`MirrorMessage::Stranger`] it is no recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MirrorMessage {
    /// A datagram for the mirror.
    Datagram {
        /// When it came.
        at: Instant,
        /// From whom.
        from: SourceId,
        /// What it says.
        bytes: Vec<u8>,
    },
    /// It is there.
    Hello {
        /// Who.
        from: SourceId,
        /// What it says of itself.
        info: ServerInfo,
    },
    /// Somebody says that it is there, and is to be greeted before more is said of it.
    UnverifiedHello,
}

/// The way to the other servers.
pub struct MirrorNetwork {
    session: zenoh::Session,
    key_prefix: String,
    source: SourceId,
    sealer: Sealer,
    broadcast_publisher: Publisher<'static>,
    hello_publisher: Publisher<'static>,
    unicast_publishers: BTreeMap<SourceId, Publisher<'static>>,
    replay_guard: Arc<Mutex<ReplayGuard>>,
    last_hello: Option<Instant>,
    known_servers: BTreeMap<SourceId, (Instant, ServerInfo)>,
}

/// Where to find others.
#[derive(Clone, Debug, Default)]
pub struct MirrorNetworkConfig<'a> {
    /// Where to listen, as zenoh says it.
    pub listen: String,
    /// Other servers: `HOST:PORT`, or as zenoh says it.
    pub peers: &'a [String],
    /// A configuration of zenoh to begin with.
    pub config_file: Option<&'a Path>,
}

impl MirrorNetwork {
    /// Opens the way. What others say is handed to `hear`, from another thread.
    pub fn open(
        network: &MirrorNetworkConfig<'_>,
        secret: &Secret,
        source: SourceId,
        hear: impl Fn(MirrorMessage) + Send + Sync + 'static,
    ) -> Result<Self, CliError> {
        let session = zenoh::open(zenoh_config(network)?).wait().map_err(|error| {
            let hint =
                "is the port free, and are the other servers' names right? A port of its own is chosen with --listen";
            CliError::failure(format!("there is no way to other servers: {}", short_message(&*error)), hint)
        })?;
        let prefix = world_key_prefix(secret);
        let acquaintances = Arc::new(Mutex::new(ReplayGuard::default()));
        let (opener, hear) = (Arc::new(Opener::new(secret)), Arc::new(hear));
        let parts = [
            ("hello/*".into(), Topic::Hello),
            ("all/*".into(), Topic::All),
            (format!("one/{source}/*"), Topic::One(source)),
        ];
        for (part, topic) in parts {
            let (opener, hear, acquaintances) = (Arc::clone(&opener), Arc::clone(&hear), Arc::clone(&acquaintances));
            let listen = move |sample: zenoh::sample::Sample| {
                let at = clock::now();
                let opened = opener.open(topic, &sample.payload().to_bytes());
                let Some(opened) = opened.filter(|opened| opened.from.source != source) else { return };
                to_mirror_message(at, topic, opened, &mut lock(&acquaintances)).into_iter().for_each(&*hear);
            };
            let subscribed =
                session.declare_subscriber(format!("{prefix}/{part}")).callback(listen).background().wait();
            subscribed.map_err(|error| zenoh_error(&*error))?;
        }
        let publisher = |part: String| declare_publisher(&session, format!("{prefix}/{part}"));
        let (to_all, hello) = (publisher(format!("all/{source}"))?, publisher(format!("hello/{source}"))?);
        let sealer = Sealer::new(secret, source);
        let (to_one, known) = (BTreeMap::new(), BTreeMap::new());
        Ok(Self {
            session,
            key_prefix: prefix,
            source,
            sealer,
            broadcast_publisher: to_all,
            hello_publisher: hello,
            unicast_publishers: to_one,
            replay_guard: acquaintances,
            last_hello: None,
            known_servers: known,
        })
    }

    /// Sends a datagram. What cannot be sent now is lost, and will be asked for.
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

    /// Says that we are there, if it is time to.
    pub fn send_hello(&mut self, now: Instant, greeting: &ServerInfo) {
        let mut acquaintances = lock(&self.replay_guard);
        let every = if acquaintances.is_echo_pending() { PENDING_HELLO_INTERVAL } else { HELLO_INTERVAL };
        if self.last_hello.is_some_and(|greeted| now - greeted < every) {
            return;
        }
        self.last_hello = Some(now);
        let (nonce, heard) = acquaintances.nonces_to_send();
        drop(acquaintances);
        let hello = ServerHello { nonce, echoed_nonces: heard, info: greeting.clone() };
        let sealed = self.sealer.seal(Topic::Hello, &hello.to_bytes());
        let _ = self.hello_publisher.put(ZBytes::from(sealed)).wait();
    }

    /// Another server says that it is there. Whether it is new.
    pub fn on_server_info(&mut self, now: Instant, from: SourceId, greeting: ServerInfo) -> bool {
        self.known_servers.retain(|_, (heard, _)| now - *heard < SERVER_TIMEOUT);
        self.known_servers.insert(from, (now, greeting)).is_none()
    }

    /// Whether a server said of late that it has the same world.
    pub fn is_known(&self, source: SourceId) -> bool {
        self.known_servers.contains_key(&source)
    }

    /// Where players find the others that take any, on all ways.
    pub fn player_addrs(&self, now: Instant) -> impl Iterator<Item = &String> {
        let takes =
            move |(heard, greeting): &&(Instant, ServerInfo)| now - *heard < SERVER_TIMEOUT && !greeting.is_draining;
        self.known_servers.values().filter(takes).flat_map(|(_, greeting)| &greeting.player_addrs)
    }

    /// Lets the last words get out, and closes.
    pub fn close(self) {
        let _ = self.session.close().wait();
    }
}

fn lock(acquaintances: &Mutex<ReplayGuard>) -> MutexGuard<'_, ReplayGuard> {
    acquaintances.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a message is to us: nothing if it may be a recording.
fn to_mirror_message(
    at: Instant,
    topic: Topic,
    opened: OpenedMessage,
    acquaintances: &mut ReplayGuard,
) -> Option<MirrorMessage> {
    let OpenedMessage { from, sequence: number, payload: content } = opened;
    if topic != Topic::Hello {
        return acquaintances.accept(from, number).then_some(MirrorMessage::Datagram {
            at,
            from: from.source,
            bytes: content,
        });
    }
    let hello = ServerHello::from_bytes(&content)?;
    Some(match acquaintances.on_hello(from, number, &hello)? {
        HelloStatus::Verified => MirrorMessage::Hello { from: from.source, info: hello.info },
        HelloStatus::Unverified => MirrorMessage::UnverifiedHello,
    })
}

/// What tells this world's messages from others'.
fn world_key_prefix(secret: &Secret) -> String {
    let name = secret.derive("world name");
    let hex: String = name[..8].iter().map(|byte| format!("{byte:02x}")).collect();
    format!("coplay/{hex}")
}

fn declare_publisher(session: &zenoh::Session, key: String) -> Result<Publisher<'static>, CliError> {
    // What is late is worth nothing: the game must not wait for a line that is full.
    let publisher = session.declare_publisher(key).congestion_control(CongestionControl::Drop).express(true).wait();
    publisher.map_err(|error| zenoh_error(&*error))
}

fn zenoh_error(error: &(dyn std::error::Error + Send + Sync)) -> CliError {
    CliError::failure(format!("zenoh does not work: {}", short_message(error)), "is its configuration sound?")
}

/// What zenoh says, without where in its own code it says so.
fn short_message(error: &(dyn std::error::Error + Send + Sync)) -> String {
    let text = error.to_string();
    text.split(" at /").next().unwrap_or(&text).to_owned()
}

fn zenoh_config(network: &MirrorNetworkConfig<'_>) -> Result<zenoh::Config, CliError> {
    let mut config = match network.config_file {
        None => zenoh::Config::default(),
        Some(path) => zenoh::Config::from_file(path).map_err(|error| {
            let hint = "zenoh's own documentation says what can be in it";
            CliError::usage_error(
                format!("{} is no configuration of zenoh: {}", path.display(), short_message(&*error)),
                hint,
            )
        })?,
    };
    let listens = config.get_json(LISTEN_KEY).ok() != zenoh::Config::default().get_json(LISTEN_KEY).ok();
    let mut set = |key: &str, value: String| {
        config.insert_json5(key, &value).map_err(|error| {
            CliError::usage_error(
                format!("zenoh does not take {value} for {key}: {}", short_message(&*error)),
                "an address is HOST:PORT",
            )
        })
    };
    if network.config_file.is_none() {
        set("mode", "\"peer\"".into())?;
        // Others are found by name: what is meant for one network must not turn up in another.
        set("scouting/multicast/enabled", "false".into())?;
    }
    // Who says where to listen in its configuration wants it so, for TLS perhaps, and not in the clear besides.
    if !listens {
        set(LISTEN_KEY, format!("[{}]", json_quoted(&network.listen)))?;
    }
    if !network.peers.is_empty() {
        let peers: Vec<String> = network.peers.iter().map(|peer| json_quoted(&zenoh_endpoint(peer))).collect();
        set("connect/endpoints", format!("[{}]", peers.join(",")))?;
    }
    Ok(config)
}

/// An address as zenoh says it: by TCP unless something else is said.
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
        file.iter().for_each(|text| std::fs::write(&path, text).expect("there is room"));
        let peers = ["a.example:1".into(), "tls/b.example:2".into()];
        let network = MirrorNetworkConfig {
            listen: "tcp/127.0.0.1:7700".into(),
            peers: &peers,
            config_file: file.map(|_| path.as_path()),
        };
        let config = zenoh_config(&network).expect("it is sound");
        let connects = config.get_json("connect/endpoints").expect("it can be asked");
        assert!(connects.contains("tcp/a.example:1") && connects.contains("tls/b.example:2"), "{connects}");
        config.get_json(LISTEN_KEY).expect("it can be asked")
    }

    /// Whoever configures TLS must not find the same port open in the clear.
    #[test]
    fn listen_endpoints_of_the_config_file_take_precedence() {
        assert_eq!(listen_endpoints(None), r#"["tcp/127.0.0.1:7700"]"#);
        let tls = listen_endpoints(Some(r#"{ listen: { endpoints: ["tls/127.0.0.1:7447"] } }"#));
        assert_eq!(tls, r#"["tls/127.0.0.1:7447"]"#);
        assert_eq!(listen_endpoints(Some(r#"{ mode: "peer" }"#)), r#"["tcp/127.0.0.1:7700"]"#);
    }
}
