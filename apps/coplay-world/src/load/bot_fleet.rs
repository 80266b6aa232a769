//! Software players on as many threads as there are processors for them.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use coplay_net::impair::Impairment;
use coplay_net::key::Secret;

use super::bot::{Bot, BotConfig, BotStats};
use super::report::LoadReport;
use crate::error::CliError;

/// It is looked this often whether all is over.
const STOP_CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// Who is to play, and how.
#[derive(Clone, Debug)]
pub(crate) struct FleetConfig {
    pub(crate) servers: Vec<SocketAddr>,
    pub(crate) secret: Secret,
    pub(crate) player_count: u32,
    /// So many come in a second.
    pub(crate) joins_per_second: u32,
    /// Changes of buttons in a second; with 0 as ninjas play.
    pub(crate) commands_per_second: u32,
    pub(crate) impairment: Option<Impairment>,
    pub(crate) seed: u64,
}

/// Players who play until they are told to leave.
pub(crate) struct BotFleet {
    bot_stats: Vec<Arc<Mutex<BotStats>>>,
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    started: Instant,
}

/// What all players did together, up to a moment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FleetTotals {
    /// Players who are in the world.
    pub(crate) present: usize,
    /// Times that somebody pressed other buttons.
    pub(crate) commands: u64,
    /// Bytes to servers, and from them.
    pub(crate) bytes_sent: u64,
    pub(crate) bytes_received: u64,
}

impl BotFleet {
    /// Sends players to the servers, one after the other.
    pub(crate) fn start(orders: &FleetConfig) -> Result<Self, CliError> {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let seen: Vec<Arc<Mutex<BotStats>>> = (0..orders.player_count).map(|_| Arc::default()).collect();
        let mut crowd = Self { bot_stats: seen, is_over: Arc::default(), threads: Vec::new(), started: Instant::now() };
        for first in 0..threads {
            let numbers = (first..crowd.bot_stats.len()).step_by(threads);
            let group = BotGroup {
                config: orders.clone(),
                bot_stats: numbers.map(|number| (number, Arc::clone(&crowd.bot_stats[number]))).collect(),
                is_over: Arc::clone(&crowd.is_over),
                started: crowd.started,
            };
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let thread = std::thread::Builder::new().name("crowd".into());
            let started = runtime.and_then(|runtime| thread.spawn(move || runtime.block_on(group.run())));
            crowd.threads.push(started.map_err(|error| {
                CliError::failure(format!("nobody can play: {error}"), "is the system overloaded?")
            })?);
        }
        Ok(crowd)
    }

    /// What it was like for them up to now.
    pub(crate) fn report(&self) -> LoadReport {
        LoadReport::from_stats(&self.bot_stats, self.started.elapsed())
    }

    /// What they did up to now.
    pub(crate) fn totals(&self) -> FleetTotals {
        let mut sum = FleetTotals::default();
        for seen in &self.bot_stats {
            let seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
            sum.present += usize::from(seen.is_present);
            sum.commands += seen.commands;
            sum.bytes_sent += seen.sent.1;
            sum.bytes_received += seen.received.1;
        }
        sum
    }

    /// Whether everybody got what it needs to play.
    pub(crate) fn check_sockets(&self) -> Result<(), CliError> {
        let why =
            |seen: &Arc<Mutex<BotStats>>| seen.lock().unwrap_or_else(PoisonError::into_inner).socket_error.clone();
        let mut reasons = self.bot_stats.iter().filter_map(why);
        let Some(reason) = reasons.next() else { return Ok(()) };
        let (some, all) = (1 + reasons.count(), self.bot_stats.len());
        let hint = format!("let it have more open files, such as with: ulimit -n {}", all + 200);
        Err(CliError::failure(format!("{some} of {all} players have no socket: {reason}"), hint))
    }
}

impl Drop for BotFleet {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // It ended by a panic of its own, which was told when it happened.
            let _ = thread.join();
        }
    }
}

/// The players of one thread.
struct BotGroup {
    config: FleetConfig,
    bot_stats: Vec<(usize, Arc<Mutex<BotStats>>)>,
    is_over: Arc<AtomicBool>,
    started: Instant,
}

impl BotGroup {
    async fn run(self) {
        let mut playing = Vec::new();
        for (number, seen) in &self.bot_stats {
            let comes =
                self.started + Duration::from_secs_f64(*number as f64 / f64::from(self.config.joins_per_second));
            if !self.wait_until(comes).await {
                break;
            }
            let FleetConfig { servers, secret, commands_per_second: commands, impairment, seed, .. } =
                self.config.clone();
            let manner = BotConfig { number: *number, seed, commands_per_second: commands, impairment };
            let player = Bot::new(servers, secret, manner, Arc::clone(seen));
            playing.push(tokio::spawn(player.run(Arc::clone(&self.is_over))));
        }
        for player in playing {
            // It ended by a panic of its own, which was told when it happened.
            let _ = player.await;
        }
    }

    /// Whether it came to that, and all was not over before.
    async fn wait_until(&self, moment: Instant) -> bool {
        while !self.is_over.load(Ordering::Relaxed) {
            let left = moment.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            tokio::time::sleep(left.min(STOP_CHECK_INTERVAL)).await;
        }
        false
    }
}
