//! The part of `libretro.h` that this crate uses, in C layout.
//!
//! A C `bool` that a core writes is a byte here: a core may store any value in it, and a Rust `bool` allows only two.
//! Commands keep their names from the header, without `RETRO_ENVIRONMENT_`; `SET_SERIALIZATION_QUIRKS_LATER` is the
//! second number of `SET_SERIALIZATION_QUIRKS`.

use std::ffi::{c_char, c_double, c_float, c_int, c_uint, c_void};

/// Version of the libretro API; no other exists.
pub(super) const API_VERSION: c_uint = 1;

pub(super) type Environment = unsafe extern "C" fn(c_uint, *mut c_void) -> bool;
pub(super) type VideoRefresh = unsafe extern "C" fn(*const c_void, c_uint, c_uint, usize);
pub(super) type AudioSample = unsafe extern "C" fn(i16, i16);
pub(super) type AudioSampleBatch = unsafe extern "C" fn(*const i16, usize) -> usize;
pub(super) type InputPoll = unsafe extern "C" fn();
pub(super) type InputStateFn = unsafe extern "C" fn(c_uint, c_uint, c_uint, c_uint) -> i16;
pub(super) type FrameTime = unsafe extern "C" fn(i64);

#[repr(C)]
pub(super) struct SystemInfo {
    pub(super) library_name: *const c_char,
    pub(super) library_version: *const c_char,
    pub(super) valid_extensions: *const c_char,
    pub(super) need_fullpath: u8,
    pub(super) block_extract: u8,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct GameGeometry {
    pub(super) base_width: c_uint,
    pub(super) base_height: c_uint,
    pub(super) max_width: c_uint,
    pub(super) max_height: c_uint,
    pub(super) aspect_ratio: c_float,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct SystemTiming {
    pub(super) fps: c_double,
    pub(super) sample_rate: c_double,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct SystemAvInfo {
    pub(super) geometry: GameGeometry,
    pub(super) timing: SystemTiming,
}

#[repr(C)]
pub(super) struct GameInfo {
    pub(super) path: *const c_char,
    pub(super) data: *const c_void,
    pub(super) size: usize,
    pub(super) meta: *const c_char,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Variable {
    pub(super) key: *const c_char,
    pub(super) value: *const c_char,
}

/// Length of the value array of an option in `libretro.h`.
pub(super) const MAX_OPTION_VALUES: usize = 128;

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct OptionValue {
    pub(super) value: *const c_char,
    pub(super) label: *const c_char,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct OptionV1 {
    pub(super) key: *const c_char,
    pub(super) desc: *const c_char,
    pub(super) info: *const c_char,
    pub(super) values: [OptionValue; MAX_OPTION_VALUES],
    pub(super) default_value: *const c_char,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct OptionV2 {
    pub(super) key: *const c_char,
    pub(super) desc: *const c_char,
    pub(super) desc_categorized: *const c_char,
    pub(super) info: *const c_char,
    pub(super) info_categorized: *const c_char,
    pub(super) category_key: *const c_char,
    pub(super) values: [OptionValue; MAX_OPTION_VALUES],
    pub(super) default_value: *const c_char,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct OptionsV1Intl {
    pub(super) us: *const OptionV1,
    pub(super) local: *const OptionV1,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct OptionsV2 {
    pub(super) categories: *const c_void,
    pub(super) definitions: *const OptionV2,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct OptionsV2Intl {
    pub(super) us: *const OptionsV2,
    pub(super) local: *const OptionsV2,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct InputDescriptor {
    pub(super) port: c_uint,
    pub(super) device: c_uint,
    pub(super) index: c_uint,
    pub(super) id: c_uint,
    pub(super) description: *const c_char,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct ControllerDescription {
    pub(super) desc: *const c_char,
    pub(super) id: c_uint,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct ControllerInfo {
    pub(super) types: *const ControllerDescription,
    pub(super) num_types: c_uint,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct MemoryDescriptor {
    pub(super) flags: u64,
    pub(super) ptr: *mut c_void,
    pub(super) offset: usize,
    pub(super) start: usize,
    pub(super) select: usize,
    pub(super) disconnect: usize,
    pub(super) len: usize,
    pub(super) addrspace: *const c_char,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct MemoryMap {
    pub(super) descriptors: *const MemoryDescriptor,
    pub(super) num_descriptors: c_uint,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Message {
    pub(super) msg: *const c_char,
    pub(super) frames: c_uint,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct MessageExt {
    pub(super) msg: *const c_char,
    pub(super) duration: c_uint,
    pub(super) priority: c_uint,
    pub(super) level: c_int,
    pub(super) target: c_int,
    pub(super) kind: c_int,
    pub(super) progress: i8,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct FrameTimeCallback {
    pub(super) callback: Option<FrameTime>,
    pub(super) reference: i64,
}

/// Log function that the core gets. In `libretro.h` it is variadic, which cannot be declared here. See
/// [`log`](super::callbacks::log).
#[repr(C)]
pub(super) struct LogCallback {
    pub(super) log: unsafe extern "C" fn(c_uint, *const c_char),
}

#[repr(C)]
pub(super) struct PerfCounter {
    pub(super) ident: *const c_char,
    pub(super) start: u64,
    pub(super) total: u64,
    pub(super) call_cnt: u64,
    pub(super) registered: u8,
}

#[repr(C)]
pub(super) struct PerfCallback {
    pub(super) get_time_usec: unsafe extern "C" fn() -> i64,
    pub(super) get_cpu_features: unsafe extern "C" fn() -> u64,
    pub(super) get_perf_counter: unsafe extern "C" fn() -> u64,
    pub(super) perf_register: unsafe extern "C" fn(*mut PerfCounter),
    pub(super) perf_start: unsafe extern "C" fn(*mut PerfCounter),
    pub(super) perf_stop: unsafe extern "C" fn(*mut PerfCounter),
    pub(super) perf_log: unsafe extern "C" fn(),
}

/// Commands of the environment callback.
pub(super) mod command {
    use std::ffi::c_uint;

    const EXPERIMENTAL: c_uint = 0x10000;

    pub(in super::super) const SET_ROTATION: c_uint = 1;
    pub(in super::super) const GET_OVERSCAN: c_uint = 2;
    pub(in super::super) const GET_CAN_DUPE: c_uint = 3;
    pub(in super::super) const SET_MESSAGE: c_uint = 6;
    pub(in super::super) const SHUTDOWN: c_uint = 7;
    pub(in super::super) const SET_PERFORMANCE_LEVEL: c_uint = 8;
    pub(in super::super) const GET_SYSTEM_DIRECTORY: c_uint = 9;
    pub(in super::super) const SET_PIXEL_FORMAT: c_uint = 10;
    pub(in super::super) const SET_INPUT_DESCRIPTORS: c_uint = 11;
    pub(in super::super) const SET_HW_RENDER: c_uint = 14;
    pub(in super::super) const GET_VARIABLE: c_uint = 15;
    pub(in super::super) const SET_VARIABLES: c_uint = 16;
    pub(in super::super) const GET_VARIABLE_UPDATE: c_uint = 17;
    pub(in super::super) const SET_SUPPORT_NO_GAME: c_uint = 18;
    pub(in super::super) const SET_FRAME_TIME_CALLBACK: c_uint = 21;
    pub(in super::super) const GET_INPUT_DEVICE_CAPABILITIES: c_uint = 24;
    pub(in super::super) const GET_LOG_INTERFACE: c_uint = 27;
    pub(in super::super) const GET_PERF_INTERFACE: c_uint = 28;
    pub(in super::super) const GET_CORE_ASSETS_DIRECTORY: c_uint = 30;
    pub(in super::super) const GET_SAVE_DIRECTORY: c_uint = 31;
    pub(in super::super) const SET_SYSTEM_AV_INFO: c_uint = 32;
    pub(in super::super) const SET_CONTROLLER_INFO: c_uint = 35;
    pub(in super::super) const SET_MEMORY_MAPS: c_uint = 36 | EXPERIMENTAL;
    pub(in super::super) const SET_GEOMETRY: c_uint = 37;
    pub(in super::super) const GET_LANGUAGE: c_uint = 39;
    pub(in super::super) const SET_SUPPORT_ACHIEVEMENTS: c_uint = 42 | EXPERIMENTAL;
    /// Not `SET_HW_SHARED_CONTEXT`, which has the same number with the [`EXPERIMENTAL`] bit. Some headers give this
    /// command number 87 instead.
    pub(in super::super) const SET_SERIALIZATION_QUIRKS: c_uint = 44;
    pub(in super::super) const SET_SERIALIZATION_QUIRKS_LATER: c_uint = 87;
    pub(in super::super) const GET_AUDIO_VIDEO_ENABLE: c_uint = 47 | EXPERIMENTAL;
    pub(in super::super) const GET_FASTFORWARDING: c_uint = 49 | EXPERIMENTAL;
    pub(in super::super) const GET_TARGET_REFRESH_RATE: c_uint = 50 | EXPERIMENTAL;
    pub(in super::super) const GET_INPUT_BITMASKS: c_uint = 51 | EXPERIMENTAL;
    pub(in super::super) const GET_CORE_OPTIONS_VERSION: c_uint = 52;
    pub(in super::super) const SET_CORE_OPTIONS: c_uint = 53;
    pub(in super::super) const SET_CORE_OPTIONS_INTL: c_uint = 54;
    pub(in super::super) const SET_CORE_OPTIONS_DISPLAY: c_uint = 55;
    pub(in super::super) const GET_MESSAGE_INTERFACE_VERSION: c_uint = 59;
    pub(in super::super) const SET_MESSAGE_EXT: c_uint = 60;
    pub(in super::super) const GET_INPUT_MAX_USERS: c_uint = 61;
    pub(in super::super) const SET_CORE_OPTIONS_V2: c_uint = 67;
    pub(in super::super) const SET_CORE_OPTIONS_V2_INTL: c_uint = 68;
    pub(in super::super) const GET_SAVESTATE_CONTEXT: c_uint = 72 | EXPERIMENTAL;
}

/// Device classes, without subclasses.
pub(super) mod device {
    use std::ffi::c_uint;

    pub(in super::super) const CLASS: c_uint = 0xff;
    pub(in super::super) const NONE: c_uint = 0;
    pub(in super::super) const JOYPAD: c_uint = 1;
    pub(in super::super) const ANALOG: c_uint = 5;
    /// Button id with which a core queries all buttons of a joypad at once.
    pub(in super::super) const ALL_BUTTONS: c_uint = 256;
    /// Index with which a core queries how far a button of an analog pad is pressed.
    pub(in super::super) const ANALOG_BUTTON: c_uint = 2;
}

/// Ids of memory regions, and flags of memory descriptors.
pub(super) mod memory {
    use std::ffi::c_uint;

    pub(in super::super) const SAVE_RAM: c_uint = 0;
    pub(in super::super) const SYSTEM_RAM: c_uint = 2;
    pub(in super::super) const VIDEO_RAM: c_uint = 3;
    /// Descriptor flag of memory that is never written, such as the game's image.
    pub(in super::super) const CONST: u64 = 1;
    /// Descriptor flags of system RAM, save RAM and video RAM.
    pub(in super::super) const RAM: u64 = 0b11100;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Structures must have the same size as in C on a 64-bit system.
    #[test]
    #[cfg(target_pointer_width = "64")]
    fn structures_are_laid_out_as_in_c() {
        assert_eq!(size_of::<SystemInfo>(), 32);
        assert_eq!(size_of::<SystemAvInfo>(), 40);
        assert_eq!(size_of::<GameInfo>(), 32);
        assert_eq!(size_of::<OptionV1>(), 4 * 8 + MAX_OPTION_VALUES * 16);
        assert_eq!(size_of::<OptionV2>(), 7 * 8 + MAX_OPTION_VALUES * 16);
        assert_eq!(size_of::<InputDescriptor>(), 24);
        assert_eq!(size_of::<MemoryDescriptor>(), 64);
        assert_eq!(size_of::<MessageExt>(), 32);
        assert_eq!(size_of::<PerfCounter>(), 40);
        assert_eq!(size_of::<PerfCallback>(), 56);
    }
}
