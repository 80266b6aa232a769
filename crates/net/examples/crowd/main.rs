//! One process that is a whole crowd of spectators of a running game: each with a key and a socket of its own, a handshake, a seat in the
//! stands, and the engine that keeps up with a feed. Only the machine is missing, so that one computer can be so many.
//!
//! Says every second how many see the game live, what the feed costs for each of them, and how far behind they are.

mod spectator;

use std::net::{SocketAddr, ToSocketAddrs};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use coplay_net::key::Secret;
use spectator::{CrowdSpectator, SpectatorMetrics};

const HELP: &str = "\
usage: crowd udp://HOST:PORT#SECRET [--count N] [--rate N] [--seconds N]

Watches a running game N (1000) times over, for N seconds (30) after N newcomers a second (100) have all asked to be let in, and says
how many see it live, what it costs for each, and how far behind they are. Exits with 1 unless all of them see it live at the end.";

struct Options {
    host: SocketAddr,
    secret: String,
    count: usize,
    rate: f64,
    seconds: f64,
}

fn main() -> ExitCode {
    match options() {
        Ok(None) => {
            println!("{HELP}");
            ExitCode::SUCCESS
        }
        Ok(Some(options)) => match run_spectators(&options) {
            Ok(true) => ExitCode::SUCCESS,
            Ok(false) => ExitCode::FAILURE,
            Err(error) => fail(&error),
        },
        Err(error) => fail(&error),
    }
}

fn fail(error: &dyn std::error::Error) -> ExitCode {
    eprintln!("error: {error}");
    ExitCode::FAILURE
}

fn options() -> Result<Option<Options>, lexopt::Error> {
    use lexopt::prelude::*;
    let (mut ticket, mut count, mut rate, mut seconds) = (None, 1_000, 100.0, 30.0);
    let mut parser = lexopt::Parser::from_env();
    while let Some(arg) = parser.next()? {
        match arg {
            Long("count") => count = parser.value()?.parse()?,
            Long("rate") => rate = parser.value()?.parse()?,
            Long("seconds") => seconds = parser.value()?.parse()?,
            Long("help") | Short('h') => return Ok(None),
            Value(value) if ticket.is_none() => ticket = Some(value.string()?),
            _ => return Err(arg.unexpected()),
        }
    }
    let Some(ticket) = ticket else { return Ok(None) };
    let read = ticket.strip_prefix("udp://").and_then(|rest| rest.split_once('#'));
    let found = read.and_then(|(host, secret)| Some((host.to_socket_addrs().ok()?.next()?, secret.to_owned())));
    let (host, secret) = found.ok_or("a ticket looks like udp://HOST:PORT#SECRET")?;
    Ok(Some(Options { host, secret, count, rate, seconds }))
}

/// Whether all of them saw it live in the end.
fn run_spectators(options: &Options) -> std::io::Result<bool> {
    let over = Arc::new(AtomicBool::new(false));
    let views: Vec<Arc<Mutex<SpectatorMetrics>>> = (0..options.count).map(|_| Arc::default()).collect();
    let secret = Secret::from_text(&options.secret);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let all_live = runtime.block_on(async {
        let began = Instant::now();
        for (number, view) in views.iter().enumerate() {
            let come = began + Duration::from_secs_f64(number as f64 / options.rate);
            let (view, over, host, secret) = (view.clone(), over.clone(), options.host, secret.clone());
            tokio::spawn(async move {
                tokio::time::sleep_until(come.into()).await;
                // Without a socket there is nobody; the count shows it.
                if let Ok(spectator) = CrowdSpectator::new(host, secret, view).await {
                    spectator.run(&over).await;
                }
            });
        }
        let all_in = options.count as f64 / options.rate;
        let end = began + Duration::from_secs_f64(all_in + options.seconds);
        let mut last = CrowdReport::from_metrics(&views);
        while Instant::now() < end {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let report = CrowdReport::from_metrics(&views);
            println!("{}", report.format_since(&last));
            last = report;
        }
        let all_live = last.live == options.count;
        over.store(true, Ordering::Relaxed);
        tokio::time::sleep(spectator::DRAIN_TIMEOUT).await;
        all_live
    });
    Ok(all_live)
}

/// The crowd at one moment.
struct CrowdReport {
    taken_at: Instant,
    live: usize,
    disconnected: usize,
    total: SpectatorMetrics,
    frames_behind: Vec<i64>,
}

impl CrowdReport {
    fn from_metrics(views: &[Arc<Mutex<SpectatorMetrics>>]) -> Self {
        let views: Vec<SpectatorMetrics> =
            views.iter().map(|view| *view.lock().unwrap_or_else(PoisonError::into_inner)).collect();
        let live: Vec<&SpectatorMetrics> = views.iter().filter(|view| view.is_live).collect();
        let mut behind: Vec<i64> = live.iter().map(|view| view.frames_behind).collect();
        behind.sort_unstable();
        let total = views.iter().fold(SpectatorMetrics::default(), |sum, view| sum.plus(view));
        let gone = views.iter().filter(|view| view.is_disconnected).count();
        Self { taken_at: Instant::now(), live: live.len(), disconnected: gone, total, frames_behind: behind }
    }

    fn format_since(&self, last: &Self) -> String {
        let each = |now: u64, then: u64| {
            (now - then) as f64 / (self.taken_at - last.taken_at).as_secs_f64() / self.live.max(1) as f64
        };
        let (now, then) = (&self.total, &last.total);
        format!(
            "{} live, {} gone; for each a second: in {:.1} datagrams, {:.0} bytes, out {:.1}, {:.0}; {:.1} frames; behind {} frames in the middle, {} at worst; {} waits",
            self.live,
            self.disconnected,
            each(now.datagrams_in, then.datagrams_in),
            each(now.bytes_in, then.bytes_in),
            each(now.datagrams_out, then.datagrams_out),
            each(now.bytes_out, then.bytes_out),
            each(now.frames, then.frames),
            self.frames_behind.get(self.frames_behind.len() / 2).unwrap_or(&0),
            self.frames_behind.last().unwrap_or(&0),
            now.stalls,
        )
    }
}
