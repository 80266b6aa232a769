//! Measures the cost inside an engine: elapsed time, by the cheapest clock, and allocations of the calling thread.
#![cfg_attr(target_arch = "x86_64", expect(unsafe_code, reason = "reading the cycle counter needs unsafe code"))]

use std::time::{Duration, Instant};

use crate::allocation_counter::allocations;

/// Reads the cycle counter, which has a constant rate; on other architectures than x86-64, the real clock in
/// nanoseconds.
#[cfg(target_arch = "x86_64")]
fn read_counter() -> u64 {
    // SAFETY: every x86-64 processor has this instruction, and it touches no memory.
    unsafe { core::arch::x86_64::_rdtsc() }
}

#[cfg(not(target_arch = "x86_64"))]
fn read_counter() -> u64 {
    crate::virtual_clock::real_nanos()
}

/// Measures the nanoseconds per count of the stopwatch's clock; takes 50 ms.
pub fn nanos_per_count() -> f64 {
    let (began, before) = (Instant::now(), read_counter());
    while began.elapsed() < Duration::from_millis(50) {
        std::hint::spin_loop();
    }
    let counted = read_counter() - before;
    began.elapsed().as_nanos() as f64 / counted as f64
}

/// Shortest section, in counts of the clock, in which the thread is assumed to have been preempted: about 1 ms at 2
/// GHz. No engine takes that long.
const PREEMPTION_COUNTS: u64 = 1 << 21;

/// Accumulates the cost between [`start`](Self::start) and [`stop`](Self::stop).
#[derive(Clone, Copy, Debug, Default)]
pub struct Stopwatch {
    started: u64,
    allocated: u64,
    spent: EngineCost,
}

/// Time and allocations inside an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineCost {
    /// Time in counts of the stopwatch's clock.
    pub clock_counts: u64,
    /// Number of allocations, from [`allocations`].
    pub allocations: u64,
}

impl EngineCost {
    /// Returns the cost since `earlier`, a previous total of the same stopwatch.
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
    /// Begins a measured section.
    #[inline]
    pub fn start(&mut self) {
        self.allocated = allocations();
        self.started = read_counter();
    }

    /// Ends the measured section and adds its cost. The time of a section in which the thread was preempted is left
    /// out.
    #[inline]
    pub fn stop(&mut self) {
        let counts = read_counter().saturating_sub(self.started);
        self.spent.clock_counts += if counts < PREEMPTION_COUNTS { counts } else { 0 };
        self.spent.allocations += allocations() - self.allocated;
    }

    /// Returns the cost of all measured sections so far.
    pub fn spent(&self) -> EngineCost {
        self.spent
    }
}
