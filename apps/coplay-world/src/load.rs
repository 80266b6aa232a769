//! `load`: many software players on a world, each with a key and a socket of its own, and a table of what it was like for them.
//!
//! A player does all that one at a screen does to play: it proves who it is, seals, keeps its server's clock, moves its avatar at once, is put
//! right, and goes elsewhere when its server is silent. Who thinks as a ninja looks at everybody whom it sees; who presses a given number of
//! commands a second looks at nobody, which is cheaper, so that it is the servers that are tried and not the players.

mod crowd;
mod player;
mod report;

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use coplay_net::key::Secret;
use coplay_net::ticket::Ticket;

use crate::cli::Load;
use crate::stop;
use crate::trouble::Trouble;

pub(crate) use crowd::{Crowd, Orders, Sum};
pub use report::ask;

/// How it goes is told this often.
const TELL_EVERY: Duration = Duration::from_secs(5);

/// Plays, and prints a table. Exits with 1 if somebody lost what was acknowledged, or was nowhere in the end.
pub fn run(args: &Load) -> Result<ExitCode, Trouble> {
    stop::listen();
    let (servers, secret) = servers(&args.world)?;
    let orders = Orders {
        servers,
        secret,
        players: args.players,
        rate: args.rate,
        commands: args.commands,
        impairment: args.impair.clone(),
        seed: args.seed,
    };
    let crowd = Crowd::send(&orders)?;
    let all_sent = Duration::from_secs_f64(f64::from(args.players) / f64::from(args.rate));
    watch(&crowd, all_sent + Duration::from_secs(args.seconds.into()));
    let report = crowd.report();
    crowd.check()?;
    drop(crowd);
    if !report.was_anybody_in() {
        return Err(Trouble::failure(
            "no server of this world let anybody in",
            "does coplay world serve run there, is the address right, and is the secret after # the world's?",
        ));
    }
    print!("{report}");
    for http in &args.http {
        println!("{http}  {}", ask(&http.to_string()).unwrap_or_else(|error| format!("does not answer: {error}")));
    }
    Ok(if report.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Waits until all have played for long enough, and says how it goes.
fn watch(crowd: &Crowd, time: Duration) {
    let end = Instant::now() + time;
    let mut next = Instant::now() + TELL_EVERY;
    while Instant::now() < end && !stop::is_asked() {
        std::thread::sleep(Duration::from_millis(100));
        if Instant::now() >= next {
            next += TELL_EVERY;
            eprintln!("{}", crowd.report().brief());
        }
    }
}

/// Where the servers are, and the secret that they share.
fn servers(world: &[Ticket]) -> Result<(Vec<SocketAddr>, Secret), Trouble> {
    let mut servers = Vec::new();
    let mut secrets = Vec::new();
    for ticket in world {
        let Ticket::Udp { host, port, secret } = ticket else { continue };
        let found = (host.as_str(), *port).to_socket_addrs().ok().and_then(|mut all| all.next());
        servers.push(found.ok_or_else(|| {
            Trouble::failure(format!("there is no computer called {host}"), "is the world's address right?")
        })?);
        secrets.push(secret.clone());
    }
    secrets.dedup();
    match &secrets[..] {
        [secret] => Ok((servers, Secret::from_text(secret))),
        _ => Err(Trouble::misuse("the servers of one world have one secret", "give addresses with the same secret")),
    }
}
