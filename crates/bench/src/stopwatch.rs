//! What the calling thread spends inside an engine: time, by the cheapest clock there is, and allocations.
#![cfg_attr(target_arch = "x86_64", expect(unsafe_code, reason = "the counter of cycles is read by an instruction"))]

use std::time::{Duration, Instant};

use crate::allocation_counter::allocations;

/// The counter of cycles, which goes on at a steady pace; elsewhere than on x86-64, nanoseconds of the real clock.
#[cfg(target_arch = "x86_64")]
fn read_counter() -> u64 {
    // SAFETY: every processor of this kind has the instruction, and it touches no memory.
    unsafe { core::arch::x86_64::_rdtsc() }
}

#[cfg(not(target_arch = "x86_64"))]
fn read_counter() -> u64 {
    crate::virtual_clock::real_nanos()
}

/// How long one count takes, in nanoseconds; it takes a moment to find out.
pub fn nanos_per_count() -> f64 {
    let (began, before) = (Instant::now(), read_counter());
    while began.elapsed() < Duration::from_millis(50) {
        std::hint::spin_loop();
    }
    let counted = read_counter() - before;
    began.elapsed().as_nanos() as f64 / counted as f64
}

/// Counts from start to stop, about a millisecond, that no engine takes: the thread was put aside for another.
const PREEMPTION_COUNTS: u64 = 1 << 21;

/// Sums up what is spent between [`start`](Self::start) and [`stop`](Self::stop).
#[derive(Clone, Copy, Debug, Default)]
pub struct Stopwatch {
    started: u64,
    allocated: u64,
    spent: EngineCost,
}

/// What was spent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineCost {
    /// Time, in counts.
    pub clock_counts: u64,
    /// How often memory was asked for.
    pub allocations: u64,
}

impl EngineCost {
    /// What was spent since an earlier time.
    pub fn since(self, earlier: Self) -> Self {
        Self {
            clock_counts: self.clock_counts - earlier.clock_counts,
            allocations: self.allocations - earlier.allocations,
        }
    }
}

impl std::iter::Sum for EngineCost {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, one| Self {
            clock_counts: sum.clock_counts + one.clock_counts,
            allocations: sum.allocations + one.allocations,
        })
    }
}

impl Stopwatch {
    /// From here on everything counts.
    #[inline]
    pub fn start(&mut self) {
        self.allocated = allocations();
        self.started = read_counter();
    }

    /// Nothing counts any more.
    #[inline]
    pub fn stop(&mut self) {
        let counts = read_counter().saturating_sub(self.started);
        self.spent.clock_counts += if counts < PREEMPTION_COUNTS { counts } else { 0 };
        self.spent.allocations += allocations() - self.allocated;
    }

    /// What was spent so far.
    pub fn spent(&self) -> EngineCost {
        self.spent
    }
}
