//! Handles the environment commands of a core: queries, notifications and options.
//!
//! A query whose answer could differ between two computers gets the same answer on all of them, or is refused, except
//! that the paths of folders may differ. Commands that this module does not know are refused, and libretro requires
//! cores to handle a refusal.

use std::ffi::{c_char, c_uint, c_void};

use super::super::frontend_state::{AvInfo, Descriptor, Device, quirk};
use super::super::options::parse_legacy_values;
use super::super::video::PixelFormat;
use super::abi::*;
use super::callbacks::{self, CallbackState};
use super::read::{read_list, read_text, read_value, write_value};

/// Savestate context `ROLLBACK_NETPLAY`: the only one for which libretro states that saved states are sent to other
/// computers and loaded there. Such states must not depend on addresses or the process. Only in this context do some
/// cores leave out data that differ between sites.
const SAVESTATE_CONTEXT_NETPLAY: c_uint = 3;

/// A memory region named by the core.
pub(super) struct MappedMemory {
    pub(super) name: String,
    pub(super) ptr: *const u8,
    pub(super) len: usize,
    /// Whether the core declares the region as RAM, and not as registers or similar.
    pub(super) is_ram: bool,
}

/// Answers an environment command. Returns `false` if the command is refused.
///
/// # Safety
///
/// `data` is the data that `libretro.h` specifies for the command, or null.
pub(super) unsafe fn handle_command(shared: &mut CallbackState, command_id: c_uint, data: *mut c_void) -> bool {
    // SAFETY: each function handles only commands that it knows, with their data.
    unsafe {
        handle_query(shared, command_id, data)
            .or_else(|| handle_notification(shared, command_id, data))
            .or_else(|| handle_option_command(shared, command_id, data))
    }
    .unwrap_or(false)
}

/// Answers a query that is not about options; `None` for other commands.
unsafe fn handle_query(shared: &mut CallbackState, command_id: c_uint, data: *mut c_void) -> Option<bool> {
    let frontend = &mut shared.frontend;
    // SAFETY: the written type is the one of the command.
    Some(unsafe {
        match command_id {
            command::GET_OVERSCAN => write_value(data, 0u8),
            command::GET_CAN_DUPE => write_value(data, 1u8),
            command::GET_SYSTEM_DIRECTORY | command::GET_CORE_ASSETS_DIRECTORY => {
                write_value(data, frontend.system_directory.as_ptr())
            }
            command::GET_SAVE_DIRECTORY => write_value(data, frontend.save_directory.as_ptr()),
            command::GET_INPUT_DEVICE_CAPABILITIES => write_value(data, 1u64 << device::JOYPAD | 1 << device::ANALOG),
            command::GET_LOG_INTERFACE => write_value(data, LogCallback { log: callbacks::log }),
            command::GET_PERF_INTERFACE => write_value(data, perf_callback()),
            // English on all computers.
            command::GET_LANGUAGE => write_value(data, 0 as c_uint),
            command::GET_AUDIO_VIDEO_ENABLE => {
                frontend.has_queried_outputs = true;
                write_value(data, frontend.requested_outputs as c_uint) || data.is_null()
            }
            command::GET_FASTFORWARDING => write_value(data, 0u8),
            command::GET_TARGET_REFRESH_RATE => write_value(data, 60f32),
            command::GET_INPUT_BITMASKS => write_value(data, 1u8) || data.is_null(),
            command::GET_MESSAGE_INTERFACE_VERSION => write_value(data, 1 as c_uint),
            command::GET_INPUT_MAX_USERS => write_value(data, frontend.players as c_uint),
            command::GET_SAVESTATE_CONTEXT => write_value(data, SAVESTATE_CONTEXT_NETPLAY) || data.is_null(),
            _ => return None,
        }
    })
}

fn perf_callback() -> PerfCallback {
    PerfCallback {
        get_time_usec: callbacks::time_usec,
        get_cpu_features: callbacks::cpu_features,
        get_perf_counter: callbacks::perf_counter,
        perf_register: callbacks::perf_register,
        perf_start: callbacks::perf_nothing,
        perf_stop: callbacks::perf_nothing,
        perf_log: callbacks::perf_log,
    }
}

/// Handles a notification that is not about options; `None` for other commands. Refuses GPU rendering, and
/// notifications whose data are needed but missing or invalid.
unsafe fn handle_notification(shared: &mut CallbackState, command_id: c_uint, data: *mut c_void) -> Option<bool> {
    let frontend = &mut shared.frontend;
    // SAFETY: the read type is the one of the command.
    let handled = unsafe {
        match command_id {
            // Accepted without effect. A core that a player shuts down in its own menu halts by itself, at every site.
            command::SHUTDOWN | command::SET_PERFORMANCE_LEVEL | command::SET_SUPPORT_ACHIEVEMENTS => Some(()),
            command::SET_HW_RENDER => {
                frontend.requested_gpu = true;
                None
            }
            command::SET_ROTATION => read_value::<c_uint>(data).map(|turns| frontend.video.quarter_turns = turns % 4),
            command::SET_MESSAGE => {
                read_value::<Message>(data).and_then(|value| read_text(value.msg)).map(|line| frontend.log.push(&line))
            }
            command::SET_MESSAGE_EXT => read_value::<MessageExt>(data)
                .and_then(|value| read_text(value.msg))
                .map(|line| frontend.log.push(&line)),
            command::SET_PIXEL_FORMAT => read_value::<c_uint>(data)
                .and_then(PixelFormat::from_libretro)
                .map(|format| frontend.video.format = format),
            command::SET_SUPPORT_NO_GAME => {
                read_value::<u8>(data).map(|without| frontend.runs_without_game = without != 0)
            }
            command::SET_GEOMETRY => read_value(data).map(|geometry| set_geometry(&mut frontend.av_info, geometry)),
            command::SET_SYSTEM_AV_INFO => read_value(data).map(|av| frontend.av_info = av_info(av)),
            command::SET_INPUT_DESCRIPTORS => read_descriptors(data).map(|found| frontend.descriptors = found),
            command::SET_CONTROLLER_INFO => read_ports(data).map(|found| frontend.ports = found),
            command::SET_SERIALIZATION_QUIRKS | command::SET_SERIALIZATION_QUIRKS_LATER => {
                read_value::<u64>(data).map(|quirks| {
                    frontend.quirks = quirks;
                    write_value(data, quirks | quirk::HOST_KNOWS_VARIABLE_SIZE);
                })
            }
            command::SET_FRAME_TIME_CALLBACK => read_value::<FrameTimeCallback>(data)
                .map(|value| shared.frame_time = value.callback.map(|callback| (callback, value.reference))),
            command::SET_MEMORY_MAPS => {
                read_value::<MemoryMap>(data).map(|value| shared.memory_maps = read_memory_maps(value))
            }
            _ => return None,
        }
    };
    Some(handled.is_some())
}

fn set_geometry(av: &mut AvInfo, geometry: GameGeometry) {
    (av.width, av.height, av.aspect) = (geometry.base_width, geometry.base_height, geometry.aspect_ratio);
}

pub(super) fn av_info(value: SystemAvInfo) -> AvInfo {
    let mut av = AvInfo { fps: value.timing.fps, sample_rate: value.timing.sample_rate, ..AvInfo::default() };
    set_geometry(&mut av, value.geometry);
    av
}

/// Reads the input descriptors of the core; `None` for a null pointer.
///
/// # Safety
///
/// `data` is null or a list that ends with an entry without description.
unsafe fn read_descriptors(data: *const c_void) -> Option<Vec<Descriptor>> {
    // SAFETY: guaranteed by the caller; descriptions are texts.
    let entries = unsafe { read_list(data.cast::<InputDescriptor>(), |entry| entry.description.is_null()) };
    let read = |entry: InputDescriptor| Descriptor {
        port: entry.port,
        device: entry.device,
        index: entry.index,
        id: entry.id,
        // SAFETY: as above.
        label: unsafe { read_text(entry.description) }.unwrap_or_default(),
    };
    (!data.is_null()).then(|| entries.into_iter().map(read).collect())
}

/// Reads the devices that each port takes, at most 64 per port; `None` for a null pointer.
///
/// # Safety
///
/// `data` is null or a list that ends with an entry without types.
unsafe fn read_ports(data: *const c_void) -> Option<Vec<Vec<Device>>> {
    // SAFETY: guaranteed by the caller.
    let entries = unsafe { read_list(data.cast::<ControllerInfo>(), |entry| entry.types.is_null()) };
    let read = |entry: ControllerInfo| {
        let devices = (0..entry.num_types.min(64) as usize)
            // SAFETY: the entry has `num_types` types.
            .map(|i| unsafe { entry.types.add(i).read_unaligned() })
            // SAFETY: descriptions are texts.
            .map(|device| Device { name: unsafe { read_text(device.desc) }.unwrap_or_default(), id: device.id });
        devices.collect()
    };
    (!data.is_null()).then(|| entries.into_iter().map(read).collect())
}

/// Reads the writable regions among the first 256 entries of a memory map.
///
/// # Safety
///
/// The map has `num_descriptors` entries.
unsafe fn read_memory_maps(value: MemoryMap) -> Vec<MappedMemory> {
    let count = if value.descriptors.is_null() { 0 } else { value.num_descriptors.min(256) as usize };
    // SAFETY: guaranteed by the caller.
    let entries = (0..count).map(|i| unsafe { value.descriptors.add(i).read_unaligned() });
    let writable = entries.filter(|entry| entry.flags & memory::CONST == 0 && !entry.ptr.is_null());
    let read = |entry: MemoryDescriptor| {
        // SAFETY: the name of an address space is a text.
        let space = unsafe { read_text(entry.addrspace) }.unwrap_or_default();
        let at = entry.ptr.cast::<u8>().cast_const().wrapping_add(entry.offset);
        MappedMemory {
            name: format!("memory {space}{:x}", entry.start),
            ptr: at,
            len: entry.len,
            is_ram: entry.flags & memory::RAM != 0,
        }
    };
    writable.map(read).collect()
}

/// Handles the option commands of all versions of libretro. Returns `None` for other commands and for most null
/// pointers in the data; a missing list declares no options.
unsafe fn handle_option_command(shared: &mut CallbackState, command_id: c_uint, data: *mut c_void) -> Option<bool> {
    let options = &mut shared.frontend.options;
    // SAFETY: the read or written type is the one of the command.
    unsafe {
        match command_id {
            command::GET_CORE_OPTIONS_VERSION => return Some(write_value(data, 2 as c_uint)),
            // Options do not change while a game runs.
            command::GET_VARIABLE_UPDATE => return Some(write_value(data, 0u8)),
            command::SET_CORE_OPTIONS_DISPLAY => return Some(true),
            command::GET_VARIABLE => {
                let mut variable = read_value::<Variable>(data)?;
                let value = read_text(variable.key).and_then(|key| options.value(&key).map(|value| value.as_ptr()));
                variable.value = value.unwrap_or(std::ptr::null());
                return Some(write_value(data, variable) && value.is_some());
            }
            command::SET_VARIABLES => {
                for variable in read_list(data.cast::<Variable>(), |entry| entry.key.is_null()) {
                    let values =
                        read_text(variable.value).map(|declared| parse_legacy_values(&declared)).unwrap_or_default();
                    options.declare(read_text(variable.key)?, values, None);
                }
            }
            command::SET_CORE_OPTIONS => declare_v1(shared, data.cast()),
            command::SET_CORE_OPTIONS_INTL => declare_v1(shared, read_value::<OptionsV1Intl>(data)?.us),
            command::SET_CORE_OPTIONS_V2 => declare_v2(shared, read_value::<OptionsV2>(data)?.definitions),
            command::SET_CORE_OPTIONS_V2_INTL => {
                declare_v2(shared, read_value::<OptionsV2>(read_value::<OptionsV2Intl>(data)?.us.cast())?.definitions);
            }
            _ => return None,
        }
    }
    Some(true)
}

/// Declares the options of a list in version 1 of libretro's option format.
///
/// # Safety
///
/// `at` is null or a list that ends with an entry without key.
unsafe fn declare_v1(shared: &mut CallbackState, at: *const OptionV1) {
    // SAFETY: guaranteed by the caller.
    for option in unsafe { read_list(at, |entry| entry.key.is_null()) } {
        // SAFETY: all pointers of an entry are texts.
        unsafe { declare(shared, option.key, &option.values, option.default_value) };
    }
}

/// Declares the options of a list in version 2 of libretro's option format.
///
/// # Safety
///
/// `at` is null or a list that ends with an entry without key.
unsafe fn declare_v2(shared: &mut CallbackState, at: *const OptionV2) {
    // SAFETY: guaranteed by the caller.
    for option in unsafe { read_list(at, |entry| entry.key.is_null()) } {
        // SAFETY: all pointers of an entry are texts.
        unsafe { declare(shared, option.key, &option.values, option.default_value) };
    }
}

/// Declares an option, unless its key is a null pointer.
///
/// # Safety
///
/// All pointers are texts or null.
unsafe fn declare(shared: &mut CallbackState, key: *const c_char, values: &[OptionValue], default: *const c_char) {
    // SAFETY: guaranteed by the caller.
    let values = values.iter().map_while(|value| unsafe { read_text(value.value) }).collect();
    // SAFETY: guaranteed by the caller.
    if let (Some(key), default) = unsafe { (read_text(key), read_text(default)) } {
        shared.frontend.options.declare(key, values, default);
    }
}
