//! The clock of this computer, as the engine counts time.

use coplay::time::Instant;

/// Now, on the clock that never goes back (CLOCK_MONOTONIC where there is one).
#[cfg(unix)]
pub fn now() -> Instant {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Instant::from_nanos(time.tv_sec * 1_000_000_000 + time.tv_nsec)
}

/// Now, on the clock that never goes back.
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
