//! `serve`: one server of a world, in real time.

use std::collections::BTreeSet;
use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TrySendError, sync_channel};

use coplay::mirror::{MirrorConfig, MirrorEvent as Happened, MirrorStats, SourceId};
use coplay::time::{GroupInstant, Instant, TimeDelta};
use coplay::wire::MAX_DATAGRAM;
use coplay_maze::Terms;
use coplay_net::clock;
use coplay_net::key::{Secret, random_bytes};
use coplay_net::ticket;
use coplay_world::{Greeting, Server};
use tracing::{error, info, warn};

use crate::cli::{LogStyle, Serve};
use crate::door::{self, Notice};
use crate::metrics::{Numbers, time_left, usage};
use crate::mirrors::{Mirrors, Network, Said};
use crate::players::{Players, Way};
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
/// When the ticks of the world last for no longer than this, it is said this often.
const ENDS_SOON: TimeDelta = TimeDelta::from_secs(30 * 86_400);
const WARN_OF_END_EVERY: TimeDelta = TimeDelta::from_secs(3_600);
/// A server that should not be alone gets so long, and then says so this often.
const FIRST_WARNING: TimeDelta = TimeDelta::from_secs(4);
const WARN_EVERY: TimeDelta = TimeDelta::from_secs(30);
/// Who was asked to come to a world and finds another maze there waits for so long for a server with its own: the first that is heard may
/// be the one that is wrong.
const ASTRAY: TimeDelta = TimeDelta::from_secs(1);
/// Players get so long to find another server when this one is to stop, and what it told gets so long to arrive.
const DRAIN: TimeDelta = TimeDelta::from_secs(8);
/// Of so many servers it is said that they have another world.
const MOST_WARNED: usize = 64;
/// Mazes that nobody chose have numbers below this: short enough to be told to somebody.
const SEEDS: u64 = 10_000;

/// Runs a server until it is told to stop.
pub fn run(args: &Serve) -> Result<ExitCode, Trouble> {
    start_log(args);
    stop::listen();
    let secret = secret(args)?;
    let mut hall = Process::open(args, &secret)?;
    hall.announce(&secret);
    let end = args.seconds.map(|seconds| clock::now() + TimeDelta::from_secs(seconds.into()));
    while !stop::is_asked() && end.is_none_or(|end| clock::now() < end) {
        hall.turn();
        if let Some(trouble) = hall.astray(clock::now()) {
            hall.mirrors.close();
            return Err(trouble);
        }
    }
    hall.drain();
    Ok(ExitCode::SUCCESS)
}

fn start_log(args: &Serve) {
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

fn secret(args: &Serve) -> Result<String, Trouble> {
    if [&args.secret, &args.server_secret].into_iter().flatten().any(|secret| !ticket::is_valid_secret(secret)) {
        return Err(Trouble::misuse(
            "a secret is empty, too long, or has a space in it",
            "a secret is one word, such as 16 letters and digits that nobody can guess",
        ));
    }
    match &args.secret {
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
    players: Players,
    mirrors: Mirrors,
    /// What other servers say.
    said: Receiver<Said>,
    /// Where players find the other servers, by UDP and by iroh.
    places: [Vec<String>; 2],
    notice: Notice,
    /// The last tick, and when it was made.
    tick: Option<(u32, Instant)>,
    next_numbers: Instant,
    next_log: Instant,
    /// What had passed between the servers when that was last logged.
    logged: MirrorStats,
    next_warning: Instant,
    next_warning_of_end: Instant,
    /// Whether zenoh is configured: others may have to be reached in another way than players.
    zenoh: bool,
    /// Whether there should be others.
    has_peers: bool,
    /// Whether servers have a secret of their own.
    has_own_secret: bool,
    /// Servers of which it was said that they have another world.
    warned: BTreeSet<SourceId>,
    /// When the first of them was heard, and what is wrong then if nobody has our world.
    astray: Option<(Instant, Trouble)>,
    /// Whether another server with our world was ever heard.
    has_met: bool,
}

impl Process {
    fn open(args: &Serve, secret: &str) -> Result<Self, Trouble> {
        let key = Secret::from_text(secret);
        // Who knows the one and not the other is no server.
        let both = args.server_secret.as_ref().map(|servers| format!("{secret} {servers}"));
        let servers_key = both.map_or_else(|| key.clone(), |both| Secret::from_text(&both));
        let source = SourceId(u32::from_le_bytes(random_bytes()).max(1));
        let (players, here) = Players::open(args, &key)?;
        let (queue, said) = sync_channel(QUEUE);
        let network = Network { listen: format!("tcp/{here}"), peers: &args.peer, config: args.zenoh.as_deref() };
        let hear = move |said| match queue.try_send(said) {
            // What finds no room is asked for again.
            Ok(()) | Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {}
        };
        let mirrors = Mirrors::open(&network, &servers_key, source, hear)?;
        let seed = args.seed.unwrap_or_else(|| usual_seed(&key));
        let terms = Terms { seed, side: args.side, ..Terms::default() };
        let config = MirrorConfig {
            is_founder: args.peer.is_empty(),
            policy: args.policy.policy(),
            ..MirrorConfig::new(source)
        };
        let now = clock::now();
        let server = Server::new(now, config, terms, args.ninjas)
            .map_err(|error| Trouble::misuse(format!("there can be no such server: {error}"), "see --help"))?;
        let notice = Notice::default();
        if let Some(addr) = args.http {
            let here = door::open(addr, Arc::clone(&notice))?;
            info!(%here, "numbers by HTTP");
        }
        let greeting = Greeting { terms, ninjas: args.ninjas, drains: false, places: players.places() };
        Ok(Self {
            server,
            greeting,
            players,
            mirrors,
            said,
            places: [vec![], vec![]],
            notice,
            tick: None,
            next_numbers: now,
            next_log: now + LOG_EVERY,
            logged: MirrorStats::default(),
            next_warning: now + FIRST_WARNING,
            next_warning_of_end: now,
            zenoh: args.zenoh.is_some(),
            has_peers: !args.peer.is_empty(),
            has_own_secret: args.server_secret.is_some(),
            warned: BTreeSet::new(),
            astray: None,
            has_met: false,
        })
    }

    fn announce(&self, secret: &str) {
        let Greeting { terms: Terms { seed, side, .. }, ninjas, places, .. } = &self.greeting;
        let place = &places[0];
        info!(source = %self.server.source(), place, "a server of a world");
        println!("players come with:        coplay maze join --world 'udp://{place}#{secret}'");
        if let Some(ticket) = self.players.ticket() {
            println!("through most routers:     coplay maze join --world '{ticket}'");
        }
        let servers = if self.has_own_secret { " --server-secret WORD" } else { "" };
        let maze = format!("--seed {seed} --side {side} --ninjas {ninjas}");
        let peer = if self.zenoh { "ENDPOINT" } else { place };
        let iroh = if self.players.ticket().is_some() { " --iroh" } else { "" };
        let zenoh = if self.zenoh { " --zenoh FILE" } else { "" };
        let another = format!("coplay world serve --peer {peer} --secret '{secret}'{servers} {maze}{iroh}{zenoh}");
        println!("another server, with:     {another}");
        println!("                          (on this computer also with another port: --listen)");
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
        self.players.make_room(self.server.realm().players());
        for _ in 0..MOST_AT_ONCE {
            let Some((at, entity, bytes)) = self.players.poll() else { break };
            if let Some(answer) = self.server.handle_player(at, entity, &bytes) {
                self.players.send(entity, &answer);
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
            // Who has another maze is not listened to.
            Said::Datagram { at, from, bytes } if self.mirrors.knows(from) => {
                self.server.handle_mirror(at, from, &bytes);
            }
            Said::Datagram { .. } => {}
            Said::Hello { from, greeting } => self.meet(from, greeting),
            // It is greeted with the next turn.
            Said::Stranger => {}
        }
    }

    fn meet(&mut self, from: SourceId, greeting: Greeting) {
        let now = clock::now();
        if (greeting.terms, greeting.ninjas) != (self.greeting.terms, self.greeting.ninjas) {
            if self.astray.is_none() {
                self.astray = Some((now, another_maze(&self.greeting, &greeting)));
            }
            if self.warned.len() < MOST_WARNED && self.warned.insert(from) {
                error!(%from, place = greeting.places.first(), "another server has another maze: --seed, --side and --ninjas must be the same on all");
            }
            return;
        }
        let place = greeting.places.first().cloned();
        if self.mirrors.on_greeting(now, from, greeting) {
            info!(%from, place, "another server");
            self.has_met = true;
            self.server.add_peer(now, from);
        }
        self.find_places(now);
    }

    /// Why this server is in no world that it could be a part of: it was to come to others, and there are only such with another maze.
    fn astray(&mut self, now: Instant) -> Option<Trouble> {
        let is_so = self.has_peers && !self.has_met;
        self.astray.take_if(|(since, _)| is_so && now - *since >= ASTRAY).map(|(_, trouble)| trouble)
    }

    /// Where players find the others: who was not heard for a while is not among them.
    fn find_places(&mut self, now: Instant) {
        for (way, places) in [Way::Udp, Way::Iroh].into_iter().zip(&mut self.places) {
            *places = self.mirrors.places(now).filter(|place| Way::to(place) == way).cloned().collect();
        }
    }

    fn advance(&mut self) {
        let now = clock::now();
        self.server.advance(now);
        if let Some(tick) = self.server.realm().tick().filter(|tick| self.tick.is_none_or(|(last, _)| last != *tick)) {
            self.tick = Some((tick, now));
        }
        let mut buf = [0; MAX_DATAGRAM];
        while let Some(transmit) = self.server.poll_mirror(now, &mut buf) {
            self.mirrors.send(transmit.to, &buf[..transmit.len]);
        }
        let places = |entity| &*self.places[self.players.way_of(entity) as usize];
        for (entity, bytes) in self.server.poll_players(now, places) {
            self.players.send(entity, &bytes);
        }
        while let Some(happened) = self.server.poll_notice() {
            log_notice(happened);
        }
        self.mirrors.greet(now, &self.greeting);
        self.tell_numbers(now);
    }

    fn tell_numbers(&mut self, now: Instant) {
        let is_asked = self.notice.is_asked();
        if now < self.next_numbers && !is_asked {
            return;
        }
        self.next_numbers = now + NUMBERS_EVERY;
        self.greeting.places = self.players.places();
        self.find_places(now);
        let mut numbers = self.numbers(now);
        self.warn(now, &numbers);
        if now >= self.next_log {
            self.next_log = now + LOG_EVERY;
            self.log(&numbers);
        }
        if is_asked {
            let realm = self.server.realm();
            numbers.digest = Some(realm.register().digest(realm.rules()));
        }
        self.notice.put(numbers);
    }

    /// Says what somebody should do something about.
    fn warn(&mut self, now: Instant, numbers: &Numbers) {
        if self.has_peers && numbers.mirrors == 0 && self.warned.is_empty() && now >= self.next_warning {
            self.next_warning = now + WARN_EVERY;
            warn!("no other server is heard: do those at --peer run, and are the secrets the same?");
        }
        let left = time_left(numbers.tick);
        if left <= ENDS_SOON && now >= self.next_warning_of_end {
            self.next_warning_of_end = now + WARN_OF_END_EVERY;
            let hours_left = left.as_secs_f64() / 3_600.0;
            warn!(
                hours_left,
                "the ticks of this world run out, and then it stands still: stop all its servers before, and start them anew"
            );
        }
    }

    /// Says how it went since that was last said.
    fn log(&mut self, numbers: &Numbers) {
        let before = std::mem::replace(&mut self.logged, numbers.stats);
        let mut stats = numbers.stats;
        stats.gtd_histogram.iter_mut().zip(before.gtd_histogram).for_each(|(count, before)| *count -= before);
        let delay = |part| stats.gtd_quantile(part).unwrap_or_default().as_millis_f64();
        info!(
            players = numbers.players,
            objects = numbers.objects,
            mirrors = numbers.mirrors,
            issued = stats.issued - before.issued,
            delivered = stats.remote_delivered(),
            late = stats.over_threshold - before.over_threshold,
            delay_p50_ms = delay(500),
            delay_p99_ms = delay(990),
            "how it went for ten seconds"
        );
    }

    fn numbers(&self, now: Instant) -> Numbers {
        let realm = self.server.realm();
        let (cpu_seconds, memory) = usage();
        Numbers {
            source: self.server.source().to_string(),
            open: self.server.is_open(now),
            drains: realm.drains(),
            full: realm.is_full(),
            tick: self.tick.map_or(0, |(tick, _)| tick),
            ticked: self.tick.map(|(_, at)| at),
            players: realm.players().count(),
            owned: realm.owned(),
            objects: realm.field().len(),
            beings: realm.register().len(),
            mirrors: self.server.mirror().present_peers().count(),
            digest: None,
            commands: realm.commands(),
            time_ahead_ms: self.server.mirror().group_time(now).map_or(0.0, |time| ahead_ms(now, time)),
            stats: *self.server.stats(),
            players_sent: self.players.sent,
            players_received: self.players.received,
            refused: self.players.refused(),
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
        let has_others = self.server.mirror().present_peers().next().is_some();
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

/// What to tell who came to a world with another maze than it has.
fn another_maze(ours: &Greeting, theirs: &Greeting) -> Trouble {
    let place = theirs.places.first().map_or_else(String::new, |place| format!(" at {place}"));
    let what = format!("the server{place} has another maze than this one");
    let flags = |Greeting { terms: Terms { seed, side, .. }, ninjas, .. }: &Greeting| {
        format!("--seed {seed} --side {side} --ninjas {ninjas}")
    };
    let hint = match flags(theirs) {
        same if same == flags(ours) => "are all servers of the same version of coplay?".into(),
        other => format!("all servers of a world have the same maze: start this one as before, but with {other}"),
    };
    Trouble::misuse(what, hint)
}

fn log_notice(happened: Happened) {
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
fn ahead_ms(now: Instant, time: GroupInstant) -> f64 {
    TimeDelta::from_nanos(time.as_nanos() - now.as_nanos()).as_millis_f64()
}

/// The maze of a world for which none was chosen: the same on all its servers.
fn usual_seed(secret: &Secret) -> u64 {
    let [low, high, ..] = secret.derive("world maze");
    u64::from(u16::from_le_bytes([low, high])) % SEEDS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_another_maze_is_told_which_it_must_be() {
        let greeting = |seed, bucket, ninjas| {
            let terms = Terms { seed, side: 9, bucket, ..Terms::default() };
            Greeting { terms, ninjas, drains: false, places: vec!["10.0.0.1:7700".into()] }
        };
        let told = another_maze(&greeting(1, 4, 2), &greeting(7, 4, 3));
        assert_eq!(told.exit_code(), 2);
        let told = told.to_string();
        assert!(told.contains("10.0.0.1:7700") && told.ends_with("with --seed 7 --side 9 --ninjas 3"), "{told}");
        let told = another_maze(&greeting(1, 4, 2), &greeting(1, 5, 2)).to_string();
        assert!(told.contains("version") && !told.contains("--seed"), "{told}");
    }
}
