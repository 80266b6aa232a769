//! The callbacks that a core calls.
//!
//! Libretro callbacks carry no pointer that identifies the instance. Each call into a core therefore sets the
//! [`CallbackState`] of its thread for the duration of the call, so that any number of instances can live in one thread
//! or in several. A thread that a core started has no callback state, nor has code that a core runs outside a call.
//! Callbacks from there are refused.
//!
//! These functions do not panic. Should one panic nevertheless, the panic is caught here and the callback is refused.

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

/// The data that the callbacks of an instance access.
#[derive(Default)]
pub(super) struct CallbackState {
    pub(super) frontend: FrontendState,
    pub(super) memory_maps: Vec<environment::MappedMemory>,
    pub(super) frame_time: Option<(super::abi::FrameTime, i64)>,
}

/// Guard that sets the callback state of this thread until it is dropped.
pub(super) struct CurrentStateGuard<'a> {
    previous: *const RefCell<CallbackState>,
    _state: &'a RefCell<CallbackState>,
}

impl<'a> CurrentStateGuard<'a> {
    pub(super) fn new(state: &'a RefCell<CallbackState>) -> Self {
        Self { previous: CURRENT_STATE.replace(state), _state: state }
    }
}

impl Drop for CurrentStateGuard<'_> {
    fn drop(&mut self) {
        CURRENT_STATE.set(self.previous);
    }
}

/// Runs `f` with the callback state of this thread. Returns `refusal` if the thread has no callback state, if the state
/// is borrowed further up the stack, or if `f` panics.
fn with_current_state<R>(refusal: R, f: impl FnOnce(&mut CallbackState) -> R) -> R {
    let current = CURRENT_STATE.try_with(Cell::get).unwrap_or(ptr::null());
    // SAFETY: the pointer is null or was set by a `CurrentStateGuard` that is still alive and borrows the state; it is
    // thread-local, so no other thread accesses it meanwhile.
    let Some(shared) = (unsafe { current.as_ref() }) else { return refusal };
    let run = || shared.try_borrow_mut().ok().map(|mut shared| f(&mut shared));
    catch_unwind(AssertUnwindSafe(run)).ok().flatten().unwrap_or(refusal)
}

pub(super) unsafe extern "C" fn environment(command: c_uint, data: *mut c_void) -> bool {
    // SAFETY: a core passes the data that the header specifies for the command.
    with_current_state(false, |shared| unsafe { environment::handle_command(shared, command, data) })
}

pub(super) unsafe extern "C" fn video(data: *const c_void, width: c_uint, height: c_uint, pitch: usize) {
    with_current_state((), |shared| {
        let frontend = &mut shared.frontend;
        let (width, height) = (width as usize, height as usize);
        // A null pointer repeats the previous picture. All ones stands for a picture on the GPU, but no core gets
        // access to the GPU.
        let has_no_picture = data.is_null() || data.addr() == usize::MAX;
        if has_no_picture
            || !(frontend.is_rendered || frontend.hash_pictures)
            || !frontend.video.is_valid_size(width, height, pitch)
        {
            return;
        }
        let len = width * frontend.video.format.bytes_per_pixel();
        // SAFETY: a core passes `height` rows, `pitch` bytes apart, each with `width` pixels, which do not change
        // during the call.
        let row = |y: usize| unsafe { slice::from_raw_parts(data.cast::<u8>().add(y * pitch), len) };
        if frontend.hash_pictures {
            frontend.video.hash_picture(width, height, row);
        }
        if frontend.is_rendered {
            frontend.video.convert_picture(width, height, row);
        }
    });
}

pub(super) unsafe extern "C" fn sample(left: i16, right: i16) {
    with_current_state((), |shared| shared.frontend.push_samples(&[[left, right]]));
}

pub(super) unsafe extern "C" fn samples(data: *const i16, frames: usize) -> usize {
    with_current_state((), |shared| {
        if !data.is_null() && data.is_aligned() && frames <= isize::MAX as usize / 4 {
            // SAFETY: a core passes `frames` pairs, which do not change during the call; pairs are aligned like their
            // elements.
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

/// Adds a log line of the core. The real signature ends with `...`, which stable Rust cannot define. On every supported
/// platform the fixed arguments of a variadic function are passed like those of any other function and the caller
/// cleans up, so the first two can be read. The variadic arguments are not read and are missing in the line. The
/// alternative is worse: cores that do not get this interface write to the terminal.
pub(super) unsafe extern "C" fn log(_level: c_uint, format: *const c_char) {
    with_current_state((), |shared| {
        // SAFETY: a format is a zero-terminated text.
        if let Some(line) = unsafe { read::read_text(format) } {
            shared.frontend.log.push_format(line.trim_end());
        }
    });
}

/// Returns the time that the core sees, in microseconds. It follows from the frame count, never from the clock of this
/// computer.
pub(super) unsafe extern "C" fn time_usec() -> i64 {
    with_current_state(0, |shared| shared.frontend.time_us as i64)
}

pub(super) unsafe extern "C" fn perf_counter() -> u64 {
    with_current_state(0, |shared| shared.frontend.time_us)
}

/// Reports no features: the results of a core must not depend on the processor.
pub(super) unsafe extern "C" fn cpu_features() -> u64 {
    0
}

pub(super) unsafe extern "C" fn perf_register(counter: *mut PerfCounter) {
    // SAFETY: the pointer is null or a counter of the core, which nothing else accesses now.
    if let Some(counter) = unsafe { counter.as_mut() } {
        counter.registered = 1;
    }
}

pub(super) unsafe extern "C" fn perf_nothing(_: *mut PerfCounter) {}

pub(super) unsafe extern "C" fn perf_log() {}
