//! What a core calls.
//!
//! Callbacks of libretro carry no pointer to say whose they are. So each call into a core says, for its thread and for as long as it
//! lasts, which [`FrontendState`] is meant. Any number of instances can then live in one thread or in many. A thread that a core started
//! itself has no host, and neither has code that a core runs when it is not called: such calls are answered with a refusal.
//!
//! Nothing here panics; if something does nevertheless, it ends here and the core gets the refusal.

use std::cell::{Cell, RefCell};
use std::ffi::{c_char, c_uint, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::slice;

use crate::pad::{Button, StickAxis};

use super::super::frontend_state::FrontendState;
use super::super::frontend_state::MAX_PLAYERS;
use super::abi::{PerfCounter, device};
use super::environment;
use super::read;

thread_local! {
    static CURRENT_STATE: Cell<*const RefCell<CallbackState>> = const { Cell::new(ptr::null()) };
}

/// What callbacks of an instance reach.
#[derive(Default)]
pub(super) struct CallbackState {
    pub(super) frontend: FrontendState,
    pub(super) memory_maps: Vec<environment::MappedMemory>,
    pub(super) frame_time: Option<(super::abi::FrameTime, i64)>,
}

/// Makes a host the current one of this thread until it is dropped.
pub(super) struct CurrentStateGuard<'a> {
    previous: *const RefCell<CallbackState>,
    _host: &'a RefCell<CallbackState>,
}

impl<'a> CurrentStateGuard<'a> {
    pub(super) fn new(host: &'a RefCell<CallbackState>) -> Self {
        Self { previous: CURRENT_STATE.replace(host), _host: host }
    }
}

impl Drop for CurrentStateGuard<'_> {
    fn drop(&mut self) {
        CURRENT_STATE.set(self.previous);
    }
}

/// Runs `f` with the current host; `refusal` if there is none, or if it is in use further up this very stack.
fn with_current_state<R>(refusal: R, f: impl FnOnce(&mut CallbackState) -> R) -> R {
    let current = CURRENT_STATE.try_with(Cell::get).unwrap_or(ptr::null());
    // SAFETY: it is null or was set by an `Entered` that is still alive, which borrows the host; in this thread only, so nobody else looks
    // at it meanwhile.
    let Some(shared) = (unsafe { current.as_ref() }) else { return refusal };
    let run = || shared.try_borrow_mut().ok().map(|mut shared| f(&mut shared));
    catch_unwind(AssertUnwindSafe(run)).ok().flatten().unwrap_or(refusal)
}

pub(super) unsafe extern "C" fn environment(command: c_uint, data: *mut c_void) -> bool {
    // SAFETY: a core passes with a command what the header says belongs to it.
    with_current_state(false, |shared| unsafe { environment::handle_command(shared, command, data) })
}

pub(super) unsafe extern "C" fn video(data: *const c_void, width: c_uint, height: c_uint, pitch: usize) {
    with_current_state((), |shared| {
        let host = &mut shared.frontend;
        let (width, height) = (width as usize, height as usize);
        // No data: the picture is the one before. All ones: it is on a graphics card, which no core was ever given.
        let none = data.is_null() || data.addr() == usize::MAX;
        if none || !(host.is_rendered || host.hash_pictures) || !host.video.is_valid_size(width, height, pitch) {
            return;
        }
        let len = width * host.video.format.bytes_per_pixel();
        // SAFETY: a core passes `height` rows, `pitch` bytes apart, each with `width` pixels, which stay as they are during the call.
        let row = |y: usize| unsafe { slice::from_raw_parts(data.cast::<u8>().add(y * pitch), len) };
        if host.hash_pictures {
            host.video.hash_picture(width, height, row);
        }
        if host.is_rendered {
            host.video.convert_picture(width, height, row);
        }
    });
}

pub(super) unsafe extern "C" fn sample(left: i16, right: i16) {
    with_current_state((), |shared| shared.frontend.push_samples(&[[left, right]]));
}

pub(super) unsafe extern "C" fn samples(data: *const i16, frames: usize) -> usize {
    with_current_state((), |shared| {
        if !data.is_null() && data.is_aligned() && frames <= isize::MAX as usize / 4 {
            // SAFETY: a core passes so many pairs, which stay as they are during the call; pairs are as aligned as their parts.
            shared.frontend.push_samples(unsafe { slice::from_raw_parts(data.cast::<[i16; 2]>(), frames) });
        }
    });
    frames
}

pub(super) unsafe extern "C" fn poll() {}

pub(super) unsafe extern "C" fn state(port: c_uint, device: c_uint, index: c_uint, id: c_uint) -> i16 {
    with_current_state(0, |shared| {
        let port = port as usize;
        let word = if port < MAX_PLAYERS { shared.frontend.inputs[port] } else { 0 };
        match (device & device::CLASS, index, id) {
            (device::JOYPAD, _, device::ALL_BUTTONS) => word as u16 as i16,
            (device::JOYPAD, _, 0..16) => (word >> id & 1) as i16,
            (device::ANALOG, 0, 0) => StickAxis::LeftX.position(word),
            (device::ANALOG, 0, 1) => StickAxis::LeftY.position(word),
            (device::ANALOG, 1, 0) => StickAxis::RightX.position(word),
            (device::ANALOG, 1, 1) => StickAxis::RightY.position(word),
            (device::ANALOG, device::ANALOG_BUTTON, id) => {
                let pressed = Button::ALL.get(id as usize).is_some_and(|button| button.is_in(word));
                if pressed { i16::MAX } else { 0 }
            }
            _ => 0,
        }
    })
}

/// What a core says. The real signature goes on with `...`, which stable Rust cannot define. On every platform that is supported the fixed
/// arguments of such a function travel like those of any other and the caller cleans up, so the two can be read; what follows is left
/// alone, and missing in the line. The alternative is worse: cores that are refused this interface write to the terminal.
pub(super) unsafe extern "C" fn log(_level: c_uint, format: *const c_char) {
    with_current_state((), |shared| {
        // SAFETY: a format is a text.
        if let Some(line) = unsafe { read::read_text(format) } {
            shared.frontend.log.push_format(line.trim_end());
        }
    });
}

/// The time: that of the frame, never that of this computer.
pub(super) unsafe extern "C" fn time_usec() -> i64 {
    with_current_state(0, |shared| shared.frontend.time_us as i64)
}

pub(super) unsafe extern "C" fn perf_counter() -> u64 {
    with_current_state(0, |shared| shared.frontend.time_us)
}

/// No features: what a core computes must not depend on the processor.
pub(super) unsafe extern "C" fn cpu_features() -> u64 {
    0
}

pub(super) unsafe extern "C" fn perf_register(counter: *mut PerfCounter) {
    // SAFETY: it is null or a counter of the core's, which nobody else touches now.
    if let Some(counter) = unsafe { counter.as_mut() } {
        counter.registered = 1;
    }
}

pub(super) unsafe extern "C" fn perf_nothing(_: *mut PerfCounter) {}

pub(super) unsafe extern "C" fn perf_log() {}
