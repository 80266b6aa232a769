//! `serve`: one server of a world, in real time.

use std::collections::{BTreeMap, BTreeSet};
use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TrySendError, sync_channel};

use coplay::bucket::EntityId;
use coplay::mirror::{Config, Notice as Happened, Source};
use coplay::time::{GroupInstant, Instant, TimeDelta};
use coplay::wire::MAX_DATAGRAM;
use coplay_maze::Terms;
use coplay_net::impair::Impaired;
use coplay_net::key::{Identity, Secret, random};
use coplay_net::ticket;
use coplay_net::udp::Udp;
use coplay_net::{Incoming, PeerKey, Transport, clock};
use coplay_world::{Greeting, Server, entity_of};
use tracing::{error, info, warn};

use crate::cli::{LogStyle, Serve};
use crate::door::{self, Notice};
use crate::metrics::{Numbers, usage};
use crate::mirrors::{Mirrors, Network, Said};
use crate::stop;
use crate::trouble::Trouble;

/// What may wait for the world's thread.
const QUEUE: usize = 16_384;
/// However much there is, the world goes on after so much of it.
const MOST_AT_ONCE: usize = 4_096;
/// What players send waits for so long at the most. It has its effect in a tick, but who asks how far away we are wants to know soon.
const LOOK: TimeDelta = TimeDelta::from_millis(3);
/// Whoever looks at the numbers sees them as of so long ago at the most.
const NUMBERS_EVERY: TimeDelta = TimeDelta::from_millis(500);
/// How a server does is logged this often.
const LOG_EVERY: TimeDelta = TimeDelta::from_secs(10);
/// Players get so long to find another server when this one is to stop, and what it told gets so long to arrive.
const DRAIN: TimeDelta = TimeDelta::from_secs(8);
/// Of so many servers it is said that they have another world.
const MOST_WARNED: usize = 64;
/// Mazes that nobody chose have numbers below this: short enough to be told to somebody.
const SEEDS: u64 = 10_000;
/// Keys of players who were here that are remembered.
const MAX_KEYS: usize = 65_536;

/// Runs a server until it is told to stop.
pub fn run(args: &Serve) -> Result<ExitCode, Trouble> {
    start_log(args.log);
    stop::listen();
    let secret = secret(args)?;
    let mut hall = Process::open(args, &secret)?;
    hall.announce(&secret);
    let end = args.seconds.map(|seconds| clock::now() + TimeDelta::from_secs(seconds.into()));
    while !stop::is_asked() && end.is_none_or(|end| clock::now() < end) {
        hall.turn();
    }
    hall.drain();
    Ok(ExitCode::SUCCESS)
}

fn start_log(style: LogStyle) {
    use tracing_subscriber::EnvFilter;
    let filter =
        EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn,coplay_world_app=info,zenoh=error"));
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // There is a log already where a test began one.
    let _ = match style {
        LogStyle::Text => log.with_target(false).with_ansi(std::io::stderr().is_terminal()).try_init(),
        LogStyle::Json => log.json().try_init(),
    };
}

fn secret(args: &Serve) -> Result<String, Trouble> {
    match &args.secret {
        Some(secret) if !ticket::is_secret(secret) => Err(Trouble::misuse(
            "the secret is empty, too long, or has a space in it",
            "a secret is one word, such as 16 letters and digits that nobody can guess",
        )),
        Some(secret) => Ok(secret.clone()),
        None if args.peer.is_empty() => Ok(Secret::random_text()),
        None => Err(Trouble::misuse(
            "without the secret of the world nobody is let in",
            "say --secret WORD, as the other servers do",
        )),
    }
}

/// A server with all its networks.
struct Process {
    server: Server,
    greeting: Greeting,
    transport: Arc<dyn Transport>,
    mirrors: Mirrors,
    /// What players send, and what other servers say.
    players: Receiver<Incoming>,
    said: Receiver<Said>,
    keys: BTreeMap<EntityId, PeerKey>,
    places: Vec<String>,
    notice: Notice,
    next_numbers: Instant,
    next_log: Instant,
    sent: (u64, u64),
    received: (u64, u64),
    /// Whether servers have a secret of their own.
    has_own_secret: bool,
    /// Servers of which it was said that they have another world.
    warned: BTreeSet<Source>,
}

impl Process {
    fn open(args: &Serve, secret: &str) -> Result<Self, Trouble> {
        let key = Secret::from_text(secret);
        // Who knows the one and not the other is no server.
        let both = args.server_secret.as_ref().map(|servers| format!("{secret} {servers}"));
        let servers_key = both.map_or_else(|| key.clone(), |both| Secret::from_text(&both));
        let source = Source(u32::from_le_bytes(random()).max(1));
        let (udp, players) = listen(args, &key)?;
        let (queue, said) = sync_channel(QUEUE);
        let here = udp.local_addr().unwrap_or(args.listen);
        let transport = impaired(udp, args)?;
        let network = Network { listen: format!("tcp/{here}"), peers: &args.peer, config: args.zenoh.as_deref() };
        let hear = move |said| match queue.try_send(said) {
            // What finds no room is asked for again.
            Ok(()) | Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {}
        };
        let mirrors = Mirrors::open(&network, &servers_key, source, hear)?;
        let seed = args.seed.unwrap_or_else(|| usual_seed(&key));
        let terms = Terms { seed, side: args.side, ..Terms::default() };
        let config = Config { founder: args.peer.is_empty(), policy: args.policy.policy(), ..Config::new(source) };
        let now = clock::now();
        let server = Server::new(now, config, terms, args.ninjas)
            .map_err(|error| Trouble::misuse(format!("there can be no such server: {error}"), "see --help"))?;
        let place = args.public.map_or_else(|| place(&*transport, here), |public| public.to_string());
        let notice = Notice::default();
        if let Some(addr) = args.http {
            let here = door::open(addr, Arc::clone(&notice))?;
            info!(%here, "numbers by HTTP");
        }
        let greeting = Greeting { terms, ninjas: args.ninjas, drains: false, place };
        Ok(Self {
            server,
            greeting,
            transport,
            mirrors,
            players,
            said,
            keys: BTreeMap::new(),
            places: Vec::new(),
            notice,
            next_numbers: now,
            next_log: now + LOG_EVERY,
            sent: (0, 0),
            received: (0, 0),
            has_own_secret: args.server_secret.is_some(),
            warned: BTreeSet::new(),
        })
    }

    fn announce(&self, secret: &str) {
        let world = format!("udp://{}#{secret}", self.greeting.place);
        info!(source = %self.server.source(), place = self.greeting.place, "a server of a world");
        println!("players come with:        coplay maze join --world '{world}'");
        let servers = if self.has_own_secret { " --server-secret …" } else { "" };
        let Greeting { terms: Terms { seed, side, .. }, ninjas, place, .. } = &self.greeting;
        let maze = format!("--seed {seed} --side {side} --ninjas {ninjas}");
        let another = format!("coplay world serve --peer {place} --secret '{secret}'{servers} {maze}");
        println!("another server, with:     {another}");
    }

    /// Takes what comes until the next tick, or until another server says something, and does what is due. Of what players send only note is
    /// taken before that, many at a time: to be woken for each would cost more than all that is done for it.
    fn turn(&mut self) {
        let until = self.server.poll_timeout(clock::now());
        loop {
            let left = (until - clock::now()).min(LOOK);
            let said = self.said.recv_timeout(left.to_duration()).ok();
            self.take_players();
            if let Some(said) = said {
                self.take_said(said);
                break;
            }
            if clock::now() >= until {
                break;
            }
        }
        self.advance();
    }

    fn take_players(&mut self) {
        for _ in 0..MOST_AT_ONCE {
            match self.players.try_recv() {
                Ok(Incoming::Datagram { at, from, bytes }) => self.take_player(at, from, &bytes),
                Ok(_) => {}
                Err(_) => break,
            }
        }
    }

    /// Takes what another server says, and what others said by now.
    fn take_said(&mut self, first: Said) {
        self.hear(first);
        for _ in 0..MOST_AT_ONCE {
            let Ok(said) = self.said.try_recv() else { break };
            self.hear(said);
        }
    }

    fn hear(&mut self, said: Said) {
        match said {
            // Who has another maze, or has not said which, is not listened to.
            Said::Datagram { at, from, bytes } if self.mirrors.knows(from) => {
                self.server.handle_mirror(at, from, &bytes);
            }
            Said::Datagram { .. } => {}
            Said::Hello { from, greeting } => self.meet(from, greeting),
        }
    }

    fn take_player(&mut self, at: Instant, from: PeerKey, bytes: &[u8]) {
        self.received.0 += 1;
        self.received.1 += bytes.len() as u64;
        let entity = entity_of(&from.0);
        if self.keys.len() >= MAX_KEYS && !self.keys.contains_key(&entity) {
            self.keys.clear();
        }
        self.keys.insert(entity, from);
        if let Some(answer) = self.server.handle_player(at, entity, bytes) {
            self.send(&from, &answer);
        }
    }

    fn meet(&mut self, from: Source, greeting: Greeting) {
        let now = clock::now();
        if (greeting.terms, greeting.ninjas) != (self.greeting.terms, self.greeting.ninjas) {
            if self.warned.len() < MOST_WARNED && self.warned.insert(from) {
                error!(%from, place = greeting.place, "another server has another maze: --seed, --side and --ninjas must be the same on all");
            }
            return;
        }
        let place = greeting.place.clone();
        if self.mirrors.on_greeting(now, from, greeting) {
            info!(%from, place, "another server");
            self.server.add_peer(now, from);
        }
        self.places = self.mirrors.places(now);
    }

    fn send(&mut self, to: &PeerKey, bytes: &[u8]) {
        if self.transport.send(to, bytes) {
            self.sent.0 += 1;
            self.sent.1 += bytes.len() as u64;
        }
    }

    fn advance(&mut self) {
        let now = clock::now();
        self.server.advance(now);
        let mut buf = [0; MAX_DATAGRAM];
        while let Some(transmit) = self.server.poll_mirror(now, &mut buf) {
            self.mirrors.send(transmit.to, &buf[..transmit.len]);
        }
        for (entity, bytes) in self.server.poll_players(now, &self.places) {
            if let Some(key) = self.keys.get(&entity).copied() {
                self.send(&key, &bytes);
            }
        }
        while let Some(happened) = self.server.poll_notice() {
            match happened {
                Happened::Came(source) => info!(%source, "a server is here"),
                Happened::Left(source) => warn!(%source, "a server is gone"),
                Happened::GaveUp { source, seq } => warn!(%source, seq, "an event was given up"),
                Happened::Forgot(source) => info!(%source, "a server that was gone is forgotten"),
            }
        }
        self.mirrors.greet(now, &self.greeting);
        self.tell_numbers(now);
    }

    fn tell_numbers(&mut self, now: Instant) {
        if now < self.next_numbers {
            return;
        }
        self.next_numbers = now + NUMBERS_EVERY;
        let numbers = self.numbers(now);
        if now >= self.next_log {
            self.next_log = now + LOG_EVERY;
            let delay = |part| numbers.stats.gtd_quantile(part).unwrap_or_default().as_millis_f64();
            info!(
                players = numbers.players,
                objects = numbers.beings,
                mirrors = numbers.mirrors,
                issued = numbers.stats.issued,
                delivered = numbers.stats.delivered,
                delay_p50_ms = delay(500),
                delay_p99_ms = delay(990),
                "how it goes"
            );
        }
        *self.notice.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = numbers;
    }

    fn numbers(&self, now: Instant) -> Numbers {
        let realm = self.server.realm();
        let (cpu_seconds, memory) = usage();
        Numbers {
            source: self.server.source().to_string(),
            open: self.server.is_open(now),
            drains: realm.drains(),
            tick: realm.tick().unwrap_or_default(),
            players: realm.players().count(),
            owned: realm.owned(),
            beings: realm.register().len(),
            mirrors: self.server.mirror().present().count(),
            digest: realm.register().digest(realm.rules()),
            commands: realm.commands(),
            time_ahead_ms: self.server.mirror().group_time(now).map_or(0.0, |time| ahead_ms(now, time)),
            stats: *self.server.stats(),
            players_sent: self.sent,
            players_received: self.received,
            refused: self.transport.refused().total(),
            cpu_seconds,
            memory,
        }
    }

    /// Lets players go elsewhere, sees that nothing is lost, and says goodbye.
    fn drain(mut self) {
        info!("draining");
        self.server.realm_mut().drain();
        self.greeting.drains = true;
        let until = clock::now() + DRAIN;
        let has_others = self.server.mirror().present().next().is_some();
        let has_players = |server: &Server| has_others && server.realm().players().next().is_some();
        while (has_players(&self.server) || !self.server.is_known_elsewhere()) && clock::now() < until {
            self.turn();
        }
        self.server.leave();
        let end = clock::now() + TimeDelta::from_millis(100);
        while clock::now() < end {
            self.turn();
        }
        info!("gone");
        self.mirrors.close();
    }
}

/// By how much the time that all servers share is ahead of our clock.
fn ahead_ms(now: Instant, time: GroupInstant) -> f64 {
    TimeDelta::from_nanos(time.as_nanos() - now.as_nanos()).as_millis_f64()
}

/// The maze of a world for which none was chosen: the same on all its servers.
fn usual_seed(secret: &Secret) -> u64 {
    let [low, high, ..] = secret.derive("world maze");
    u64::from(u16::from_le_bytes([low, high])) % SEEDS
}

/// The way to players as it is, or worse.
fn impaired(udp: Arc<Udp>, args: &Serve) -> Result<Arc<dyn Transport>, Trouble> {
    let Some(impairment) = args.impair.clone() else { return Ok(udp) };
    let impaired = Impaired::new(udp, impairment);
    let failed = |error| Trouble::failure(format!("the way out cannot be made worse: {error}"), "leave --impair out");
    Ok(Arc::new(impaired.map_err(failed)?))
}

/// Where players reach us: an address that others can use, if there is one.
fn place(transport: &dyn Transport, here: std::net::SocketAddr) -> String {
    transport.own_places().first().map_or_else(|| here.to_string(), |place| place.0.clone())
}

/// Listens for players: what they send comes out of the queue.
fn listen(args: &Serve, secret: &Secret) -> Result<(Arc<Udp>, Receiver<Incoming>), Trouble> {
    let (queue, players) = sync_channel(QUEUE);
    let udp = Udp::listen(args.listen, Identity::random(), secret.clone(), queue).map_err(|error| {
        Trouble::failure(
            format!("nothing can listen at {}: {error}", args.listen),
            "choose another address with --listen",
        )
    })?;
    Ok((Arc::new(udp), players))
}
