//! Makes the clocks of the standard library show virtual time.
//!
//! ggrs reads `std::time` for its retries, reports and timeouts. The standard library calls the C library through a
//! symbol that a program may define itself, and this module does: a thread with a [virtual time](set_virtual_time)
//! reads that time, all other threads read the real one. Reading virtual time is cheaper than reading real time, which
//! favours ggrs: it reads the clock several times per frame and peer, while coplay takes the time as an argument of
//! each call. Reading real time costs a few instructions more than without this module.
#![expect(unsafe_code, reason = "replacing a function of the C library needs unsafe code")]

use std::cell::Cell;
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use coplay::time::Instant;
use libc::{c_int, c_long, clockid_t, timespec};

const SECOND: i64 = 1_000_000_000;
/// Time that the clocks show at virtual time zero, in nanoseconds, so that times before it remain representable.
const VIRTUAL_TIME_OFFSET: i64 = 1_000_000 * SECOND;

thread_local! {
    static NOW: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Sets the virtual time that all clocks show to the calling thread; `None` restores real time.
pub fn set_virtual_time(now: Option<Instant>) {
    NOW.set(now);
}

/// Returns the real monotonic time in nanoseconds, whatever virtual time is set.
pub fn real_nanos() -> u64 {
    let mut time = timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for writing.
    let failed = unsafe { real_clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    assert_eq!(failed, 0, "reading the monotonic clock failed");
    (time.tv_sec * SECOND + time.tv_nsec) as u64
}

/// Address of the replaced function of the C library; null until it has been looked up, and if there is none.
static REAL_CLOCK_GETTIME: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

type ClockGettime = unsafe extern "C" fn(clockid_t, *mut timespec) -> c_int;

/// Reads a clock. Replaces the function of the C library; in a thread with a [virtual time](set_virtual_time), every
/// clock shows that time.
///
/// # Safety
/// `time` must be valid for writing.
// SAFETY: the name and the signature are those of the C library, and so is the behaviour while no virtual time is set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_gettime(clock: clockid_t, time: *mut timespec) -> c_int {
    // At the very end of a thread its thread-local memory is gone. The clocks then show real time.
    let Some(now) = NOW.try_with(Cell::get).ok().flatten() else {
        // SAFETY: the caller guarantees that `time` is valid for writing.
        return unsafe { real_clock_gettime(clock, time) };
    };
    let nanos = now.as_nanos() + VIRTUAL_TIME_OFFSET;
    let shown = timespec { tv_sec: nanos.div_euclid(SECOND), tv_nsec: nanos.rem_euclid(SECOND) as c_long };
    // SAFETY: the caller guarantees that `time` is valid for writing.
    unsafe { time.write(shown) };
    0
}

/// Reads a clock with the function of the C library, or with a system call if there is none.
///
/// # Safety
///
/// `time` must be valid for writing.
unsafe fn real_clock_gettime(clock: clockid_t, time: *mut timespec) -> c_int {
    let mut found = REAL_CLOCK_GETTIME.load(Ordering::Relaxed);
    if found.is_null() {
        // SAFETY: the name is zero-terminated.
        found = unsafe { libc::dlsym(libc::RTLD_NEXT, c"clock_gettime".as_ptr()) };
        REAL_CLOCK_GETTIME.store(found, Ordering::Relaxed);
    }
    if found.is_null() {
        // SAFETY: these are the arguments of that system call; the caller guarantees that `time` is valid for writing.
        return unsafe { libc::syscall(libc::SYS_clock_gettime, clock, time) as c_int };
    }
    // SAFETY: the C library's function of that name has this signature; the caller guarantees that `time` is valid for
    // writing.
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
        let elsewhere = std::thread::spawn(SystemTime::now).join().expect("reading a clock does not fail");
        set_virtual_time(None);
        assert_eq!((passed, wall_passed.ok()), (Duration::from_millis(1_500), Some(Duration::from_millis(1_500))));
        let year = |time: SystemTime| time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() / 31_556_952);
        assert_eq!(year(wall), 0, "virtual time starts in the first year");
        assert!(year(elsewhere) >= 50, "other threads read real time");
        assert!(year(SystemTime::now()) >= 50, "this thread reads real time again");
    }
}
