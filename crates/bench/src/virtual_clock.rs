//! The clocks of the standard library, in virtual time.
//!
//! ggrs reads `std::time` for its retries, reports and timeouts. The standard library asks the C library, by a symbol
//! that a program may define itself, as is done here: a thread that has [set] a time is shown that time, all others get
//! the real one. To read a virtual time is cheaper than to read a real one, which is in favour of ggrs: it reads the
//! clock several times per frame and peer, while coplay is told the time once per call. A real time costs a few
//! instructions more than without this.
#![expect(unsafe_code, reason = "a function of the C library cannot be replaced without")]

use std::cell::Cell;
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use coplay::time::Instant;
use libc::{c_int, c_long, clockid_t, timespec};

const SECOND: i64 = 1_000_000_000;
/// Virtual time begins so much later than clocks do, so that one can look back from its beginning.
const VIRTUAL_TIME_OFFSET: i64 = 1_000_000 * SECOND;

thread_local! {
    static NOW: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Shows this time to the calling thread from now on, by all clocks; `None` shows the real one.
pub fn set_virtual_time(now: Option<Instant>) {
    NOW.set(now);
}

/// The real time of a clock that never goes back, in nanoseconds, whatever is set.
pub fn real_nanos() -> u64 {
    let mut time = timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: there is room for a time.
    let failed = unsafe { real_clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    assert_eq!(failed, 0, "there is such a clock");
    (time.tv_sec * SECOND + time.tv_nsec) as u64
}

/// The function of the C library that is replaced, once it has been looked up.
static REAL_CLOCK_GETTIME: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

type ClockGettime = unsafe extern "C" fn(clockid_t, *mut timespec) -> c_int;

/// Reads a clock: the function of the C library, but for what is [set].
///
/// # Safety
/// `time` must be valid for writing.
// SAFETY: the name and the signature are those of the C library, and so is what it does while no time is set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_gettime(clock: clockid_t, time: *mut timespec) -> c_int {
    // At the very end of a thread its memory is gone, and time is real.
    let Some(now) = NOW.try_with(Cell::get).ok().flatten() else {
        // SAFETY: the caller's promise is the one that is asked for.
        return unsafe { real_clock_gettime(clock, time) };
    };
    let nanos = now.as_nanos() + VIRTUAL_TIME_OFFSET;
    let shown = timespec { tv_sec: nanos.div_euclid(SECOND), tv_nsec: nanos.rem_euclid(SECOND) as c_long };
    // SAFETY: the caller promises that there is room.
    unsafe { time.write(shown) };
    0
}

/// # Safety
/// `time` must be valid for writing.
unsafe fn real_clock_gettime(clock: clockid_t, time: *mut timespec) -> c_int {
    let mut found = REAL_CLOCK_GETTIME.load(Ordering::Relaxed);
    if found.is_null() {
        // SAFETY: the name ends with a zero, as it must.
        found = unsafe { libc::dlsym(libc::RTLD_NEXT, c"clock_gettime".as_ptr()) };
        REAL_CLOCK_GETTIME.store(found, Ordering::Relaxed);
    }
    if found.is_null() {
        // SAFETY: these are the arguments of that call of the system; the caller promises that there is room.
        return unsafe { libc::syscall(libc::SYS_clock_gettime, clock, time) as c_int };
    }
    // SAFETY: what goes by that name in the C library has this signature; the caller promises that there is room.
    unsafe { std::mem::transmute::<*mut c_void, ClockGettime>(found)(clock, time) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coplay::time::TimeDelta;
    use std::time::{Duration, SystemTime, UNIX_EPOCH};

    #[test]
    fn std_clocks_show_the_virtual_time_of_the_thread() {
        set_virtual_time(Some(Instant::ZERO));
        let (began, wall) = (std::time::Instant::now(), SystemTime::now());
        set_virtual_time(Some(Instant::ZERO + TimeDelta::from_millis(1_500)));
        let (passed, wall_passed) = (began.elapsed(), wall.elapsed());
        let elsewhere = std::thread::spawn(SystemTime::now).join().expect("to read a clock does not fail");
        set_virtual_time(None);
        assert_eq!((passed, wall_passed.ok()), (Duration::from_millis(1_500), Some(Duration::from_millis(1_500))));
        let year = |time: SystemTime| time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() / 31_556_952);
        assert_eq!(year(wall), 0, "virtual time begins early");
        assert!(year(elsewhere) >= 50, "other threads have their own");
        assert!(year(SystemTime::now()) >= 50, "real time is back");
    }
}
