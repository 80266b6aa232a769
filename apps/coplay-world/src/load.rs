//! `load`: many bots on a world, each with a key and a socket of its own, and a report of their lost scores, delays and
//! traffic.
//!
//! A bot does what a player's client does: it authenticates, seals its datagrams, follows the server's clock, moves
//! its avatar at once, reconciles it, and moves to another server when its own is silent. A bot that plays as a
//! ninja advances all avatars in view. A bot with a given number of commands per second advances only its own, which is
//! cheaper, so that the servers are tested and not the bots.

mod bot;
mod bot_fleet;
mod report;

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use coplay_net::key::Secret;
use coplay_net::ticket::Ticket;
use coplay_shell::error::AppError;
use coplay_shell::signals;

use crate::cli::LoadArgs;

pub(crate) use bot_fleet::{BotFleet, FleetConfig, FleetTotals};
pub use report::fetch_state;

/// Interval between progress lines on standard error.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(5);

/// Runs the bots, and prints a report. The exit code is 1 if acknowledged state was lost, or a bot was not in the world
/// at the end.
pub fn run(args: &LoadArgs) -> Result<ExitCode, AppError> {
    signals::install_handler();
    let (servers, secret) = resolve_servers(&args.world)?;
    let config = FleetConfig {
        servers,
        secret,
        player_count: args.players,
        joins_per_second: args.rate,
        commands_per_second: args.commands,
        impairment: args.impair.clone(),
        seed: args.seed,
    };
    let fleet = BotFleet::start(&config)?;
    let join_time = Duration::from_secs_f64(f64::from(args.players) / f64::from(args.rate));
    wait_with_progress(&fleet, join_time + Duration::from_secs(args.seconds.into()));
    let report = fleet.report();
    fleet.check_sockets()?;
    drop(fleet);
    if !report.has_anybody_joined() {
        return Err(AppError::failure("no server of this world admitted a bot").hint(
            "check that `coplay world serve` runs there, and copy the whole URL that it prints, with the part after #",
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

/// Waits for `time` or a signal, and prints progress to standard error.
fn wait_with_progress(fleet: &BotFleet, time: Duration) {
    let end = Instant::now() + time;
    let mut next = Instant::now() + PROGRESS_INTERVAL;
    while Instant::now() < end && !signals::is_stop_requested() {
        std::thread::sleep(Duration::from_millis(100));
        if Instant::now() >= next {
            next += PROGRESS_INTERVAL;
            eprintln!("{}", fleet.report().progress_line());
        }
    }
}

/// Resolves the addresses of the servers, and returns them with the secret that all servers share.
fn resolve_servers(world: &[Ticket]) -> Result<(Vec<SocketAddr>, Secret), AppError> {
    let mut servers = Vec::new();
    let mut secrets = Vec::new();
    for ticket in world {
        let Ticket::Udp { host, port, secret } = ticket else { continue };
        let resolved = (host.as_str(), *port).to_socket_addrs().ok().and_then(|mut all| all.next());
        servers.push(resolved.ok_or_else(|| {
            AppError::failure(format!("cannot resolve host {host}")).hint(
                "use the URL that `coplay world serve` printed, which has a numeric address, or check the host name \
                 and the network connection",
            )
        })?);
        secrets.push(secret.clone());
    }
    secrets.dedup();
    match &secrets[..] {
        [secret] => Ok((servers, Secret::from_text(secret))),
        _ => Err(AppError::usage("the URLs have different secrets")
            .hint("give the URLs of servers of one world, which all have the same secret")),
    }
}
