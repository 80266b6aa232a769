//! Monotonic clock of this computer, as an engine [`Instant`].

use coplay::time::Instant;

/// Returns the current time of the monotonic clock (`CLOCK_MONOTONIC`), which other programs on this computer share.
#[cfg(unix)]
pub fn now() -> Instant {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Instant::from_nanos(time.tv_sec * 1_000_000_000 + time.tv_nsec)
}

/// Returns the time since the first call, on a monotonic clock.
#[cfg(not(unix))]
pub fn now() -> Instant {
    use std::sync::OnceLock;
    use std::time::Instant as Host;
    static ORIGIN: OnceLock<Host> = OnceLock::new();
    let since = ORIGIN.get_or_init(Host::now).elapsed();
    Instant::from_nanos(i64::try_from(since.as_nanos()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_advances() {
        let then = now();
        std::thread::sleep(std::time::Duration::from_millis(2));
        assert!((now() - then).as_nanos() >= 2_000_000);
    }
}
