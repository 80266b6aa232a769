//! A crowd of spectators of a running game in one process. Each has its own key, socket, handshake, lobby membership
//! and feed client. Only the machine is missing, so that one computer can run thousands of them.
//!
//! Prints every second how many spectators are live, the cost of the feed per spectator, and how far behind they are.

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

Watches a running game with --count spectators (1000), which join at --rate per second (100), for --seconds (30) after
the last one joined. Prints the number of live spectators, the cost per spectator, and their distance to the players in
frames. Exits with 1 unless all spectators are live at the end.";

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
    let (host, secret) = found.ok_or("the ticket must be udp://HOST:PORT#SECRET, with a HOST that can be resolved")?;
    Ok(Some(Options { host, secret, count, rate, seconds }))
}

/// Runs all spectators and prints a report every second. Returns whether all of them were live at the end.
fn run_spectators(options: &Options) -> std::io::Result<bool> {
    let stop = Arc::new(AtomicBool::new(false));
    let metrics: Vec<Arc<Mutex<SpectatorMetrics>>> = (0..options.count).map(|_| Arc::default()).collect();
    let secret = Secret::from_text(&options.secret);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let all_live = runtime.block_on(async {
        let began = Instant::now();
        for (number, metrics_slot) in metrics.iter().enumerate() {
            let join_at = began + Duration::from_secs_f64(number as f64 / options.rate);
            let (metrics_slot, stop, host, secret) = (metrics_slot.clone(), stop.clone(), options.host, secret.clone());
            tokio::spawn(async move {
                tokio::time::sleep_until(join_at.into()).await;
                // Without a socket there is no spectator; the count shows it.
                if let Ok(spectator) = CrowdSpectator::new(host, secret, metrics_slot).await {
                    spectator.run(&stop).await;
                }
            });
        }
        let all_in = options.count as f64 / options.rate;
        let end = began + Duration::from_secs_f64(all_in + options.seconds);
        let mut last = CrowdReport::from_metrics(&metrics);
        while Instant::now() < end {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let report = CrowdReport::from_metrics(&metrics);
            println!("{}", report.format_since(&last));
            last = report;
        }
        let all_live = last.live == options.count;
        stop.store(true, Ordering::Relaxed);
        tokio::time::sleep(spectator::DRAIN_TIMEOUT).await;
        all_live
    });
    Ok(all_live)
}

/// State of the crowd at one moment.
struct CrowdReport {
    taken_at: Instant,
    live: usize,
    disconnected: usize,
    total: SpectatorMetrics,
    frames_behind: Vec<i64>,
}

impl CrowdReport {
    fn from_metrics(metrics: &[Arc<Mutex<SpectatorMetrics>>]) -> Self {
        let metrics: Vec<SpectatorMetrics> =
            metrics.iter().map(|one| *one.lock().unwrap_or_else(PoisonError::into_inner)).collect();
        let live: Vec<&SpectatorMetrics> = metrics.iter().filter(|one| one.is_live).collect();
        let mut behind: Vec<i64> = live.iter().map(|one| one.frames_behind).collect();
        behind.sort_unstable();
        let total = metrics.iter().fold(SpectatorMetrics::default(), |sum, one| sum.plus(one));
        let disconnected = metrics.iter().filter(|one| one.is_disconnected).count();
        Self { taken_at: Instant::now(), live: live.len(), disconnected, total, frames_behind: behind }
    }

    fn format_since(&self, last: &Self) -> String {
        let each = |now: u64, then: u64| {
            (now - then) as f64 / (self.taken_at - last.taken_at).as_secs_f64() / self.live.max(1) as f64
        };
        let (now, then) = (&self.total, &last.total);
        format!(
            "{} live, {} disconnected; per spectator and second: received {:.1} datagrams, {:.0} bytes, sent {:.1} datagrams, {:.0} bytes; {:.1} frames; behind by {} frames (median), {} (worst); {} stalls",
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
