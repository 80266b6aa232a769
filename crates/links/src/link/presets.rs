//! Preset link conditions, from the best to the worst. The numbers are for one direction; use the same in both.
//!
//! The numbers are round values of the right magnitude, not measurements. Without reordering, packets behind a late one
//! wait for it, so the mean delay comes out slightly above the configured one.

use coplay::time::TimeDelta;

use super::{Delay, Jitter, LinkConfig, Loss, Rate};

const fn millis(millis: i64) -> TimeDelta {
    TimeDelta::from_millis(millis)
}

impl LinkConfig {
    /// Returns conditions without delay, jitter, loss, duplicates and bottleneck.
    pub fn perfect() -> Self {
        Self::default()
    }

    /// Returns a constant delay of half of `rtt`, for use in both directions; otherwise perfect.
    pub fn constant_rtt(rtt: TimeDelta) -> Self {
        Self { delay: Delay::Constant(rtt / 2), ..Self::default() }
    }

    /// Returns the conditions of a wired local network: 0.2 ms one-way delay, up to 0.1 ms jitter, 1 Gbit/s with a
    /// queue of 4 ms.
    pub fn lan() -> Self {
        Self {
            delay: Delay::Constant(TimeDelta::from_micros(200)),
            jitter: Jitter::Uniform(TimeDelta::from_micros(100)),
            rate: Some(Rate { bytes_per_second: 125_000_000, queue_bytes: 500_000 }),
            ..Self::default()
        }
    }

    /// Returns the conditions of fibre or cable across a country: 12 ms one-way delay, 1 ms mean jitter, 0.1 % loss, 20
    /// Mbit/s with a queue of 100 ms.
    pub fn broadband() -> Self {
        Self {
            delay: Delay::Constant(millis(12)),
            jitter: Jitter::Exponential { mean: millis(1) },
            loss: Loss::Independent(0.001),
            rate: Some(Rate { bytes_per_second: 2_500_000, queue_bytes: 250_000 }),
            ..Self::default()
        }
    }

    /// Returns the conditions of broadband behind a busy access point: 15 ± 5 ms log-normal one-way delay, 3 ms mean
    /// jitter, 1 % loss in bursts of 3, 20 Mbit/s with a queue of 100 ms.
    pub fn wifi() -> Self {
        Self {
            delay: Delay::LogNormal { mean: millis(15), sd: millis(5) },
            jitter: Jitter::Exponential { mean: millis(3) },
            loss: Loss::bursts(0.01, 3.0),
            rate: Some(Rate { bytes_per_second: 2_500_000, queue_bytes: 250_000 }),
            ..Self::default()
        }
    }

    /// Returns the conditions of a mobile phone in motion: 40 ± 15 ms log-normal one-way delay, 5 ms mean jitter, 2 %
    /// loss in bursts of 4, 5 Mbit/s with a queue of 200 ms.
    pub fn mobile() -> Self {
        Self {
            delay: Delay::LogNormal { mean: millis(40), sd: millis(15) },
            jitter: Jitter::Exponential { mean: millis(5) },
            loss: Loss::bursts(0.02, 4.0),
            rate: Some(Rate { bytes_per_second: 625_000, queue_bytes: 125_000 }),
            ..Self::default()
        }
    }

    /// Returns the conditions of a geostationary satellite: 300 ms one-way delay, up to 20 ms jitter, 0.5 % loss in
    /// bursts of 5, 2 Mbit/s with a queue of 500 ms.
    pub fn satellite() -> Self {
        Self {
            delay: Delay::Constant(millis(300)),
            jitter: Jitter::Uniform(millis(20)),
            loss: Loss::bursts(0.005, 5.0),
            rate: Some(Rate { bytes_per_second: 250_000, queue_bytes: 125_000 }),
            ..Self::default()
        }
    }

    /// Returns conditions with all impairments at once: 120 ± 60 ms log-normal one-way delay, 20 ms mean jitter,
    /// reordering, 10 % loss in bursts of 5, 2 % duplicates, 512 kbit/s with a queue of 500 ms.
    pub fn awful() -> Self {
        Self {
            delay: Delay::LogNormal { mean: millis(120), sd: millis(60) },
            jitter: Jitter::Exponential { mean: millis(20) },
            reorder: true,
            loss: Loss::bursts(0.1, 5.0),
            duplicate: 0.02,
            rate: Some(Rate { bytes_per_second: 64_000, queue_bytes: 32_000 }),
        }
    }
}
