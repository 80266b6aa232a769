//! Software players on as many threads as there are processors for them.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use coplay_net::impair::Impairment;
use coplay_net::key::Secret;

use super::player::{Manner, Player, Seen};
use super::report::Report;
use crate::trouble::Trouble;

/// It is looked this often whether all is over.
const LOOK: Duration = Duration::from_millis(50);

/// Who is to play, and how.
#[derive(Clone, Debug)]
pub(crate) struct Orders {
    pub(crate) servers: Vec<SocketAddr>,
    pub(crate) secret: Secret,
    pub(crate) players: u32,
    /// So many come in a second.
    pub(crate) rate: u32,
    /// Changes of buttons in a second; with 0 as ninjas play.
    pub(crate) commands: u32,
    pub(crate) impairment: Option<Impairment>,
    pub(crate) seed: u64,
}

/// Players who play until they are told to leave.
pub(crate) struct Crowd {
    seen: Vec<Arc<Mutex<Seen>>>,
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    began: Instant,
}

/// What all players did together, up to a moment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sum {
    /// Players who are in the world.
    pub(crate) present: usize,
    /// Times that somebody pressed other buttons.
    pub(crate) commands: u64,
    /// Bytes to servers, and from them.
    pub(crate) sent: u64,
    pub(crate) received: u64,
}

impl Crowd {
    /// Sends players to the servers, one after the other.
    pub(crate) fn send(orders: &Orders) -> Result<Self, Trouble> {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let seen: Vec<Arc<Mutex<Seen>>> = (0..orders.players).map(|_| Arc::default()).collect();
        let mut crowd = Self { seen, over: Arc::default(), threads: Vec::new(), began: Instant::now() };
        for first in 0..threads {
            let numbers = (first..crowd.seen.len()).step_by(threads);
            let group = Group {
                orders: orders.clone(),
                seen: numbers.map(|number| (number, Arc::clone(&crowd.seen[number]))).collect(),
                over: Arc::clone(&crowd.over),
                began: crowd.began,
            };
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let thread = std::thread::Builder::new().name("crowd".into());
            let started = runtime.and_then(|runtime| thread.spawn(move || runtime.block_on(group.play())));
            crowd.threads.push(
                started.map_err(|error| {
                    Trouble::failure(format!("nobody can play: {error}"), "is the system overloaded?")
                })?,
            );
        }
        Ok(crowd)
    }

    /// What it was like for them up to now.
    pub(crate) fn report(&self) -> Report {
        Report::of(&self.seen, self.began.elapsed())
    }

    /// What they did up to now.
    pub(crate) fn sum(&self) -> Sum {
        let mut sum = Sum::default();
        for seen in &self.seen {
            let seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
            sum.present += usize::from(seen.is_in);
            sum.commands += seen.commands;
            sum.sent += seen.sent.1;
            sum.received += seen.received.1;
        }
        sum
    }

    /// Whether everybody got what it needs to play.
    pub(crate) fn check(&self) -> Result<(), Trouble> {
        let why = |seen: &Arc<Mutex<Seen>>| seen.lock().unwrap_or_else(PoisonError::into_inner).no_socket.clone();
        let mut reasons = self.seen.iter().filter_map(why);
        let Some(reason) = reasons.next() else { return Ok(()) };
        let (some, all) = (1 + reasons.count(), self.seen.len());
        let hint = format!("let it have more open files, such as with: ulimit -n {}", all + 200);
        Err(Trouble::failure(format!("{some} of {all} players have no socket: {reason}"), hint))
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // It ended by a panic of its own, which was told when it happened.
            let _ = thread.join();
        }
    }
}

/// The players of one thread.
struct Group {
    orders: Orders,
    seen: Vec<(usize, Arc<Mutex<Seen>>)>,
    over: Arc<AtomicBool>,
    began: Instant,
}

impl Group {
    async fn play(self) {
        let mut playing = Vec::new();
        for (number, seen) in &self.seen {
            let comes = self.began + Duration::from_secs_f64(*number as f64 / f64::from(self.orders.rate));
            if !self.waits_until(comes).await {
                break;
            }
            let Orders { servers, secret, commands, impairment, seed, .. } = self.orders.clone();
            let manner = Manner { number: *number, seed, commands, impairment };
            let player = Player::new(servers, secret, manner, Arc::clone(seen));
            playing.push(tokio::spawn(player.play(Arc::clone(&self.over))));
        }
        for player in playing {
            // It ended by a panic of its own, which was told when it happened.
            let _ = player.await;
        }
    }

    /// Whether it came to that, and all was not over before.
    async fn waits_until(&self, moment: Instant) -> bool {
        while !self.over.load(Ordering::Relaxed) {
            let left = moment.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            tokio::time::sleep(left.min(LOOK)).await;
        }
        false
    }
}
