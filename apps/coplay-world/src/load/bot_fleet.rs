//! Bots of a load test, on as many threads as there are processors.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use coplay_net::impair::Impairment;
use coplay_net::key::Secret;
use coplay_shell::error::AppError;

use super::bot::{Bot, BotConfig, BotStats};
use super::report::LoadReport;

/// Interval at which a thread that waits to start its next bot checks whether the run is over.
const STOP_CHECK_INTERVAL: Duration = Duration::from_millis(50);

#[derive(Clone, Debug)]
pub(crate) struct FleetConfig {
    pub(crate) servers: Vec<SocketAddr>,
    pub(crate) secret: Secret,
    pub(crate) player_count: u32,
    pub(crate) joins_per_second: u32,
    /// Button changes per second of each bot; with 0 the bots play as ninjas.
    pub(crate) commands_per_second: u32,
    pub(crate) impairment: Option<Impairment>,
    pub(crate) seed: u64,
}

/// Bots that play until the fleet is dropped.
pub(crate) struct BotFleet {
    bot_stats: Vec<Arc<Mutex<BotStats>>>,
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    started: Instant,
}

/// Sums over all bots up to now.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FleetTotals {
    /// Number of bots that have an avatar and have received a message of their server within the last second.
    pub(crate) present: usize,
    /// Number of button changes of all bots.
    pub(crate) commands: u64,
    /// Number of bytes that all bots sent to servers.
    pub(crate) bytes_sent: u64,
    /// Number of bytes that all bots received from servers.
    pub(crate) bytes_received: u64,
}

impl BotFleet {
    /// Starts the threads of the bots. The bots connect one after the other, `joins_per_second` of them per second.
    pub(crate) fn start(config: &FleetConfig) -> Result<Self, AppError> {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let bot_stats: Vec<Arc<Mutex<BotStats>>> = (0..config.player_count).map(|_| Arc::default()).collect();
        let mut fleet = Self { bot_stats, is_over: Arc::default(), threads: Vec::new(), started: Instant::now() };
        for first in 0..threads {
            let numbers = (first..fleet.bot_stats.len()).step_by(threads);
            let group = BotGroup {
                config: config.clone(),
                bot_stats: numbers.map(|number| (number, Arc::clone(&fleet.bot_stats[number]))).collect(),
                is_over: Arc::clone(&fleet.is_over),
                started: fleet.started,
            };
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let thread = std::thread::Builder::new().name("bots".into());
            let started = runtime.and_then(|runtime| thread.spawn(move || runtime.block_on(group.run())));
            fleet.threads.push(started.map_err(|error| {
                AppError::failure(format!("cannot start the bots: {error}"))
                    .hint("close other programs and run the same command again")
            })?);
        }
        Ok(fleet)
    }

    /// Returns the report of all bots up to now.
    pub(crate) fn report(&self) -> LoadReport {
        LoadReport::from_stats(&self.bot_stats, self.started.elapsed())
    }

    /// Returns the sums over all bots up to now.
    pub(crate) fn totals(&self) -> FleetTotals {
        let mut sum = FleetTotals::default();
        for stats in &self.bot_stats {
            let stats = stats.lock().unwrap_or_else(PoisonError::into_inner);
            sum.present += usize::from(stats.is_present);
            sum.commands += stats.commands;
            sum.bytes_sent += stats.sent.1;
            sum.bytes_received += stats.received.1;
        }
        sum
    }

    /// Returns an error if a bot could not open its socket.
    pub(crate) fn check_sockets(&self) -> Result<(), AppError> {
        let socket_error =
            |stats: &Arc<Mutex<BotStats>>| stats.lock().unwrap_or_else(PoisonError::into_inner).socket_error.clone();
        let mut reasons = self.bot_stats.iter().filter_map(socket_error);
        let Some(reason) = reasons.next() else { return Ok(()) };
        let (some, all) = (1 + reasons.count(), self.bot_stats.len());
        let hint = format!("use fewer bots, or allow more open files with `ulimit -n {}`", all + 200);
        Err(AppError::failure(format!("{some} of {all} bots have no socket: {reason}")).hint(hint))
    }
}

impl Drop for BotFleet {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A panic of the thread has already been reported.
            let _ = thread.join();
        }
    }
}

/// Bots that run on one thread.
struct BotGroup {
    config: FleetConfig,
    bot_stats: Vec<(usize, Arc<Mutex<BotStats>>)>,
    is_over: Arc<AtomicBool>,
    started: Instant,
}

impl BotGroup {
    async fn run(self) {
        let mut playing = Vec::new();
        for (number, stats) in &self.bot_stats {
            let join_time =
                self.started + Duration::from_secs_f64(*number as f64 / f64::from(self.config.joins_per_second));
            if !self.wait_until(join_time).await {
                break;
            }
            let FleetConfig { servers, secret, commands_per_second, impairment, seed, .. } = self.config.clone();
            let config = BotConfig { number: *number, seed, commands_per_second, impairment };
            let player = Bot::new(servers, secret, config, Arc::clone(stats));
            playing.push(tokio::spawn(player.run(Arc::clone(&self.is_over))));
        }
        for player in playing {
            // A panic of the task has already been reported.
            let _ = player.await;
        }
    }

    /// Waits until `moment`. Returns `false` if the run ended before that.
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
