//! `load`: many software players on a world, each with a key and a socket of its own, and a table of what it was like for them.
//!
//! A player does all that one at a screen does to play: it proves who it is, seals, keeps its server's clock, moves its avatar at once, is put
//! right, and goes elsewhere when its server is silent. Who thinks as a ninja looks at everybody whom it sees; who presses a given number of
//! commands a second looks at nobody, which is cheaper, so that it is the servers that are tried and not the players.

mod bot;
mod bot_fleet;
mod report;

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use coplay_net::key::Secret;
use coplay_net::ticket::Ticket;

use crate::cli::LoadArgs;
use crate::error::CliError;
use crate::signals;

pub(crate) use bot_fleet::{BotFleet, FleetConfig, FleetTotals};
pub use report::fetch_state;

/// How it goes is told this often.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(5);

/// Plays, and prints a table. Exits with 1 if somebody lost what was acknowledged, or was nowhere in the end.
pub fn run(args: &LoadArgs) -> Result<ExitCode, CliError> {
    signals::install_handler();
    let (servers, secret) = resolve_servers(&args.world)?;
    let orders = FleetConfig {
        servers,
        secret,
        player_count: args.players,
        joins_per_second: args.rate,
        commands_per_second: args.commands,
        impairment: args.impair.clone(),
        seed: args.seed,
    };
    let crowd = BotFleet::start(&orders)?;
    let all_sent = Duration::from_secs_f64(f64::from(args.players) / f64::from(args.rate));
    wait_with_progress(&crowd, all_sent + Duration::from_secs(args.seconds.into()));
    let report = crowd.report();
    crowd.check_sockets()?;
    drop(crowd);
    if !report.has_anybody_joined() {
        return Err(CliError::failure(
            "no server of this world let anybody in",
            "does coplay world serve run there, is the address right, and is the secret after # the world's?",
        ));
    }
    print!("{report}");
    for http in &args.http {
        println!(
            "{http}  {}",
            fetch_state(&http.to_string()).unwrap_or_else(|error| format!("does not answer: {error}"))
        );
    }
    Ok(if report.is_success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Waits until all have played for long enough, and says how it goes.
fn wait_with_progress(crowd: &BotFleet, time: Duration) {
    let end = Instant::now() + time;
    let mut next = Instant::now() + PROGRESS_INTERVAL;
    while Instant::now() < end && !signals::is_stop_requested() {
        std::thread::sleep(Duration::from_millis(100));
        if Instant::now() >= next {
            next += PROGRESS_INTERVAL;
            eprintln!("{}", crowd.report().progress_line());
        }
    }
}

/// Where the servers are, and the secret that they share.
fn resolve_servers(world: &[Ticket]) -> Result<(Vec<SocketAddr>, Secret), CliError> {
    let mut servers = Vec::new();
    let mut secrets = Vec::new();
    for ticket in world {
        let Ticket::Udp { host, port, secret } = ticket else { continue };
        let found = (host.as_str(), *port).to_socket_addrs().ok().and_then(|mut all| all.next());
        servers.push(found.ok_or_else(|| {
            CliError::failure(format!("there is no computer called {host}"), "is the world's address right?")
        })?);
        secrets.push(secret.clone());
    }
    secrets.dedup();
    match &secrets[..] {
        [secret] => Ok((servers, Secret::from_text(secret))),
        _ => Err(CliError::usage_error(
            "the servers of one world have one secret",
            "give addresses with the same secret",
        )),
    }
}
