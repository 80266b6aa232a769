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
use coplay_world::{Greeting, Hello};
use zenoh::Wait;
use zenoh::bytes::ZBytes;
use zenoh::pubsub::Publisher;
use zenoh::qos::CongestionControl;

use crate::acquaintances::{Acquaintances, Standing};
use crate::seal::{Opened, Opener, Sealer, Topic};
use crate::trouble::Trouble;

/// Greetings are said this often, and this soon when somebody waits for one; whoever said none for so long is not sent players any more.
const GREET_EVERY: TimeDelta = TimeDelta::from_millis(500);
const GREET_SOON: TimeDelta = TimeDelta::from_millis(50);
const FORGET: TimeDelta = TimeDelta::from_secs(3);
/// Where zenoh listens, in its configuration.
const LISTEN: &str = "listen/endpoints";
/// Servers that are sent something to alone, at the most.
const MAX_PUBLISHERS: usize = 256;

/// Something that another server says. But for [`Said::Stranger`] it is no recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
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
        greeting: Greeting,
    },
    /// Somebody says that it is there, and is to be greeted before more is said of it.
    Stranger,
}

/// The way to the other servers.
pub struct Mirrors {
    session: zenoh::Session,
    prefix: String,
    source: SourceId,
    sealer: Sealer,
    to_all: Publisher<'static>,
    hello: Publisher<'static>,
    to_one: BTreeMap<SourceId, Publisher<'static>>,
    acquaintances: Arc<Mutex<Acquaintances>>,
    greeted: Option<Instant>,
    known: BTreeMap<SourceId, (Instant, Greeting)>,
}

/// Where to find others.
#[derive(Clone, Debug, Default)]
pub struct Network<'a> {
    /// Where to listen, as zenoh says it.
    pub listen: String,
    /// Other servers: `HOST:PORT`, or as zenoh says it.
    pub peers: &'a [String],
    /// A configuration of zenoh to begin with.
    pub config: Option<&'a Path>,
}

impl Mirrors {
    /// Opens the way. What others say is handed to `hear`, from another thread.
    pub fn open(
        network: &Network<'_>,
        secret: &Secret,
        source: SourceId,
        hear: impl Fn(Said) + Send + Sync + 'static,
    ) -> Result<Self, Trouble> {
        let session = zenoh::open(config(network)?).wait().map_err(|error| {
            let hint =
                "is the port free, and are the other servers' names right? A port of its own is chosen with --listen";
            Trouble::failure(format!("there is no way to other servers: {}", in_short(&*error)), hint)
        })?;
        let prefix = prefix(secret);
        let acquaintances = Arc::new(Mutex::new(Acquaintances::default()));
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
                said(at, topic, opened, &mut lock(&acquaintances)).into_iter().for_each(&*hear);
            };
            let subscribed =
                session.declare_subscriber(format!("{prefix}/{part}")).callback(listen).background().wait();
            subscribed.map_err(|error| broken(&*error))?;
        }
        let publisher = |part: String| publisher(&session, format!("{prefix}/{part}"));
        let (to_all, hello) = (publisher(format!("all/{source}"))?, publisher(format!("hello/{source}"))?);
        let sealer = Sealer::new(secret, source);
        let (to_one, known) = (BTreeMap::new(), BTreeMap::new());
        Ok(Self { session, prefix, source, sealer, to_all, hello, to_one, acquaintances, greeted: None, known })
    }

    /// Sends a datagram. What cannot be sent now is lost, and will be asked for.
    pub fn send(&mut self, to: MirrorDestination, bytes: &[u8]) {
        let topic = match to {
            MirrorDestination::All => Topic::All,
            MirrorDestination::One(other) => Topic::One(other),
        };
        let sealed = self.sealer.seal(topic, bytes);
        let publisher = match to {
            MirrorDestination::All => &self.to_all,
            MirrorDestination::One(other) => {
                if self.to_one.len() >= MAX_PUBLISHERS {
                    self.to_one.clear();
                }
                let key = format!("{}/one/{other}/{}", self.prefix, self.source);
                match self.to_one.entry(other) {
                    std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
                    std::collections::btree_map::Entry::Vacant(entry) => match publisher(&self.session, key) {
                        Ok(publisher) => entry.insert(publisher),
                        Err(_) => return,
                    },
                }
            }
        };
        let _ = publisher.put(ZBytes::from(sealed)).wait();
    }

    /// Says that we are there, if it is time to.
    pub fn greet(&mut self, now: Instant, greeting: &Greeting) {
        let mut acquaintances = lock(&self.acquaintances);
        let every = if acquaintances.is_awaited() { GREET_SOON } else { GREET_EVERY };
        if self.greeted.is_some_and(|greeted| now - greeted < every) {
            return;
        }
        self.greeted = Some(now);
        let (nonce, heard) = acquaintances.numbers();
        drop(acquaintances);
        let hello = Hello { nonce, heard, greeting: greeting.clone() };
        let sealed = self.sealer.seal(Topic::Hello, &hello.to_bytes());
        let _ = self.hello.put(ZBytes::from(sealed)).wait();
    }

    /// Another server says that it is there. Whether it is new.
    pub fn on_greeting(&mut self, now: Instant, from: SourceId, greeting: Greeting) -> bool {
        self.known.retain(|_, (heard, _)| now - *heard < FORGET);
        self.known.insert(from, (now, greeting)).is_none()
    }

    /// Whether a server said of late that it has the same world.
    pub fn knows(&self, source: SourceId) -> bool {
        self.known.contains_key(&source)
    }

    /// Where players find the others that take any, on all ways.
    pub fn places(&self, now: Instant) -> impl Iterator<Item = &String> {
        let takes = move |(heard, greeting): &&(Instant, Greeting)| now - *heard < FORGET && !greeting.drains;
        self.known.values().filter(takes).flat_map(|(_, greeting)| &greeting.places)
    }

    /// Lets the last words get out, and closes.
    pub fn close(self) {
        let _ = self.session.close().wait();
    }
}

fn lock(acquaintances: &Mutex<Acquaintances>) -> MutexGuard<'_, Acquaintances> {
    acquaintances.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a message is to us: nothing if it may be a recording.
fn said(at: Instant, topic: Topic, opened: Opened, acquaintances: &mut Acquaintances) -> Option<Said> {
    let Opened { from, number, content } = opened;
    if topic != Topic::Hello {
        return acquaintances.takes(from, number).then_some(Said::Datagram { at, from: from.source, bytes: content });
    }
    let hello = Hello::from_bytes(&content)?;
    Some(match acquaintances.on_hello(from, number, &hello)? {
        Standing::Known => Said::Hello { from: from.source, greeting: hello.greeting },
        Standing::New => Said::Stranger,
    })
}

/// What tells this world's messages from others'.
fn prefix(secret: &Secret) -> String {
    let name = secret.derive("world name");
    let hex: String = name[..8].iter().map(|byte| format!("{byte:02x}")).collect();
    format!("coplay/{hex}")
}

fn publisher(session: &zenoh::Session, key: String) -> Result<Publisher<'static>, Trouble> {
    // What is late is worth nothing: the game must not wait for a line that is full.
    let publisher = session.declare_publisher(key).congestion_control(CongestionControl::Drop).express(true).wait();
    publisher.map_err(|error| broken(&*error))
}

fn broken(error: &(dyn std::error::Error + Send + Sync)) -> Trouble {
    Trouble::failure(format!("zenoh does not work: {}", in_short(error)), "is its configuration sound?")
}

/// What zenoh says, without where in its own code it says so.
fn in_short(error: &(dyn std::error::Error + Send + Sync)) -> String {
    let text = error.to_string();
    text.split(" at /").next().unwrap_or(&text).to_owned()
}

fn config(network: &Network<'_>) -> Result<zenoh::Config, Trouble> {
    let mut config = match network.config {
        None => zenoh::Config::default(),
        Some(path) => zenoh::Config::from_file(path).map_err(|error| {
            let hint = "zenoh's own documentation says what can be in it";
            Trouble::misuse(format!("{} is no configuration of zenoh: {}", path.display(), in_short(&*error)), hint)
        })?,
    };
    let listens = config.get_json(LISTEN).ok() != zenoh::Config::default().get_json(LISTEN).ok();
    let mut set = |key: &str, value: String| {
        config.insert_json5(key, &value).map_err(|error| {
            Trouble::misuse(
                format!("zenoh does not take {value} for {key}: {}", in_short(&*error)),
                "an address is HOST:PORT",
            )
        })
    };
    if network.config.is_none() {
        set("mode", "\"peer\"".into())?;
        // Others are found by name: what is meant for one network must not turn up in another.
        set("scouting/multicast/enabled", "false".into())?;
    }
    // Who says where to listen in its configuration wants it so, for TLS perhaps, and not in the clear besides.
    if !listens {
        set(LISTEN, format!("[{}]", quoted(&network.listen)))?;
    }
    if !network.peers.is_empty() {
        let peers: Vec<String> = network.peers.iter().map(|peer| quoted(&endpoint(peer))).collect();
        set("connect/endpoints", format!("[{}]", peers.join(",")))?;
    }
    Ok(config)
}

/// An address as zenoh says it: by TCP unless something else is said.
fn endpoint(peer: &str) -> String {
    if peer.contains('/') { peer.into() } else { format!("tcp/{peer}") }
}

fn quoted(text: &str) -> String {
    format!("{text:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listens(file: Option<&str>) -> String {
        let path = std::env::temp_dir().join(format!("coplay-zenoh-{}.json5", std::process::id()));
        file.iter().for_each(|text| std::fs::write(&path, text).expect("there is room"));
        let peers = ["a.example:1".into(), "tls/b.example:2".into()];
        let network =
            Network { listen: "tcp/127.0.0.1:7700".into(), peers: &peers, config: file.map(|_| path.as_path()) };
        let config = config(&network).expect("it is sound");
        let connects = config.get_json("connect/endpoints").expect("it can be asked");
        assert!(connects.contains("tcp/a.example:1") && connects.contains("tls/b.example:2"), "{connects}");
        config.get_json(LISTEN).expect("it can be asked")
    }

    /// Whoever configures TLS must not find the same port open in the clear.
    #[test]
    fn where_to_listen_is_the_configurations_to_say() {
        assert_eq!(listens(None), r#"["tcp/127.0.0.1:7700"]"#);
        let tls = listens(Some(r#"{ listen: { endpoints: ["tls/127.0.0.1:7447"] } }"#));
        assert_eq!(tls, r#"["tls/127.0.0.1:7447"]"#);
        assert_eq!(listens(Some(r#"{ mode: "peer" }"#)), r#"["tcp/127.0.0.1:7700"]"#);
    }
}
