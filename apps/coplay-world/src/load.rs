//! `load`: many software players on a world, each with a key and a socket of its own, and a table of what it was like for them.

mod player;
mod report;

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use coplay_net::key::Secret;
use coplay_net::ticket::Ticket;

use crate::cli::Load;
use crate::stop;
use crate::trouble::Trouble;
use player::{Manner, Player, Seen};
use report::Report;

pub use report::ask;

/// How it goes is told this often.
const TELL_EVERY: Duration = Duration::from_secs(5);

/// Plays, and prints a table. Exits with 1 if somebody lost what was acknowledged, or was nowhere in the end.
pub fn run(args: &Load) -> Result<ExitCode, Trouble> {
    stop::listen();
    let (servers, secret) = servers(&args.world)?;
    let over = Arc::new(AtomicBool::new(false));
    let seen: Vec<Arc<Mutex<Seen>>> = (0..args.players).map(|_| Arc::default()).collect();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Trouble::failure(format!("nobody can play: {error}"), "is the system overloaded?"))?;
    let report = runtime.block_on(async {
        let began = Instant::now();
        for (number, seen) in seen.iter().enumerate() {
            let manner = Manner {
                number,
                seed: args.seed,
                commands: args.commands,
                impairment: args.impair.clone(),
                comes: began + Duration::from_secs_f64(number as f64 / f64::from(args.rate)),
            };
            let player = Player::new(servers.clone(), secret.clone(), manner, Arc::clone(seen));
            tokio::spawn(player.play(Arc::clone(&over)));
        }
        let all_sent = Duration::from_secs_f64(f64::from(args.players) / f64::from(args.rate));
        watch(&seen, began, all_sent, args.seconds).await;
        let report = Report::of(&seen, began.elapsed());
        over.store(true, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(200)).await;
        report
    });
    print!("{report}");
    for http in &args.http {
        println!("{http}  {}", ask(http).unwrap_or_else(|error| format!("does not answer: {error}")));
    }
    Ok(if report.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Waits until all have played for long enough, and says how it goes.
async fn watch(seen: &[Arc<Mutex<Seen>>], began: Instant, all_sent: Duration, seconds: u32) {
    let end = began + all_sent + Duration::from_secs(seconds.into());
    let mut next = Instant::now() + TELL_EVERY;
    while Instant::now() < end && !stop::is_asked() {
        tokio::time::sleep(Duration::from_millis(100)).await;
        if Instant::now() >= next {
            next += TELL_EVERY;
            eprintln!("{}", Report::of(seen, began.elapsed()).brief());
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
