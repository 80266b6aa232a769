//! What a core asks and tells of its surroundings.
//!
//! Everything that could differ between two computers gets the same answer on all of them, or a refusal. Whatever is not listed is refused, which
//! libretro demands that a core can live with.

use std::ffi::{c_char, c_uint, c_void};

use super::super::frontend_state::{AvInfo, Descriptor, Device, quirk};
use super::super::options::parse_legacy_values;
use super::super::video::PixelFormat;
use super::abi::*;
use super::callbacks::{self, CallbackState};
use super::read::{read_list, read_text, read_value, write_value};

/// States are made to be sent to others and loaded there, the one use of which libretro says so (`ROLLBACK_NETPLAY`). They must then not
/// depend on address or process, and some cores leave out what differs between sites only then.
const SAVESTATE_CONTEXT_NETPLAY: c_uint = 3;

/// A part of the memory that the core has named.
pub(super) struct MappedMemory {
    pub(super) name: String,
    pub(super) ptr: *const u8,
    pub(super) len: usize,
    /// Whether it is RAM, as the core says, and not registers or the like.
    pub(super) is_ram: bool,
}

/// Answers a command.
///
/// # Safety
/// `data` is what the header says belongs to the command, or null.
pub(super) unsafe fn handle_command(shared: &mut CallbackState, what: c_uint, data: *mut c_void) -> bool {
    // SAFETY: each takes only commands that it knows, with the data that belong to them.
    unsafe {
        handle_query(shared, what, data)
            .or_else(|| handle_notification(shared, what, data))
            .or_else(|| handle_option_command(shared, what, data))
    }
    .unwrap_or(false)
}

/// Questions.
unsafe fn handle_query(shared: &mut CallbackState, what: c_uint, data: *mut c_void) -> Option<bool> {
    let host = &mut shared.frontend;
    // SAFETY: the type that is written is the one that belongs to the command.
    Some(unsafe {
        match what {
            command::GET_OVERSCAN => write_value(data, 0u8),
            command::GET_CAN_DUPE => write_value(data, 1u8),
            command::GET_SYSTEM_DIRECTORY | command::GET_CORE_ASSETS_DIRECTORY => {
                write_value(data, host.system_directory.as_ptr())
            }
            command::GET_SAVE_DIRECTORY => write_value(data, host.save_directory.as_ptr()),
            command::GET_INPUT_DEVICE_CAPABILITIES => write_value(data, 1u64 << device::JOYPAD | 1 << device::ANALOG),
            command::GET_LOG_INTERFACE => write_value(data, LogCallback { log: callbacks::log }),
            command::GET_PERF_INTERFACE => write_value(data, perf_callback()),
            // English, everywhere.
            command::GET_LANGUAGE => write_value(data, 0 as c_uint),
            command::GET_AUDIO_VIDEO_ENABLE => {
                host.has_queried_outputs = true;
                write_value(data, host.requested_outputs as c_uint) || data.is_null()
            }
            command::GET_FASTFORWARDING => write_value(data, 0u8),
            command::GET_TARGET_REFRESH_RATE => write_value(data, 60f32),
            command::GET_INPUT_BITMASKS => write_value(data, 1u8) || data.is_null(),
            command::GET_MESSAGE_INTERFACE_VERSION => write_value(data, 1 as c_uint),
            command::GET_INPUT_MAX_USERS => write_value(data, host.players as c_uint),
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

/// Statements. A statement without data is not understood.
unsafe fn handle_notification(shared: &mut CallbackState, what: c_uint, data: *mut c_void) -> Option<bool> {
    let host = &mut shared.frontend;
    // SAFETY: the type that is read is the one that belongs to the command.
    let understood = unsafe {
        match what {
            // Who switches the machine off in a menu of its own sees it stand still, as all the others do.
            command::SHUTDOWN | command::SET_PERFORMANCE_LEVEL | command::SET_SUPPORT_ACHIEVEMENTS => Some(()),
            command::SET_HW_RENDER => {
                host.requested_gpu = true;
                None
            }
            command::SET_ROTATION => read_value::<c_uint>(data).map(|turns| host.video.quarter_turns = turns % 4),
            command::SET_MESSAGE => {
                read_value::<Message>(data).and_then(|told| read_text(told.msg)).map(|line| host.log.push(&line))
            }
            command::SET_MESSAGE_EXT => {
                read_value::<MessageExt>(data).and_then(|told| read_text(told.msg)).map(|line| host.log.push(&line))
            }
            command::SET_PIXEL_FORMAT => {
                read_value::<c_uint>(data).and_then(PixelFormat::from_libretro).map(|format| host.video.format = format)
            }
            command::SET_SUPPORT_NO_GAME => read_value::<u8>(data).map(|without| host.runs_without_game = without != 0),
            command::SET_GEOMETRY => read_value(data).map(|geometry| set_geometry(&mut host.av_info, geometry)),
            command::SET_SYSTEM_AV_INFO => read_value(data).map(|av| host.av_info = av_info(av)),
            command::SET_INPUT_DESCRIPTORS => read_descriptors(data).map(|found| host.descriptors = found),
            command::SET_CONTROLLER_INFO => read_ports(data).map(|found| host.ports = found),
            command::SET_SERIALIZATION_QUIRKS | command::SET_SERIALIZATION_QUIRKS_LATER => {
                read_value::<u64>(data).map(|quirks| {
                    host.quirks = quirks;
                    write_value(data, quirks | quirk::HOST_KNOWS_VARIABLE_SIZE);
                })
            }
            command::SET_FRAME_TIME_CALLBACK => read_value::<FrameTimeCallback>(data)
                .map(|told| shared.frame_time = told.callback.map(|callback| (callback, told.reference))),
            command::SET_MEMORY_MAPS => {
                read_value::<MemoryMap>(data).map(|told| shared.memory_maps = read_memory_maps(told))
            }
            _ => return None,
        }
    };
    Some(understood.is_some())
}

fn set_geometry(av: &mut AvInfo, geometry: GameGeometry) {
    (av.width, av.height, av.aspect) = (geometry.base_width, geometry.base_height, geometry.aspect_ratio);
}

pub(super) fn av_info(told: SystemAvInfo) -> AvInfo {
    let mut av = AvInfo { fps: told.timing.fps, sample_rate: told.timing.sample_rate, ..AvInfo::default() };
    set_geometry(&mut av, told.geometry);
    av
}

/// # Safety
/// A list that ends with an entry without description, or null.
unsafe fn read_descriptors(data: *const c_void) -> Option<Vec<Descriptor>> {
    // SAFETY: as promised; descriptions are texts.
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

/// # Safety
/// A list that ends with an entry without types, or null.
unsafe fn read_ports(data: *const c_void) -> Option<Vec<Vec<Device>>> {
    // SAFETY: as promised.
    let entries = unsafe { read_list(data.cast::<ControllerInfo>(), |entry| entry.types.is_null()) };
    let read = |entry: ControllerInfo| {
        let kinds = (0..entry.num_types.min(64) as usize)
            // SAFETY: there are so many types.
            .map(|i| unsafe { entry.types.add(i).read_unaligned() })
            // SAFETY: descriptions are texts.
            .map(|kind| Device { name: unsafe { read_text(kind.desc) }.unwrap_or_default(), id: kind.id });
        kinds.collect()
    };
    (!data.is_null()).then(|| entries.into_iter().map(read).collect())
}

/// # Safety
/// The map has as many entries as it says.
unsafe fn read_memory_maps(told: MemoryMap) -> Vec<MappedMemory> {
    let count = if told.descriptors.is_null() { 0 } else { told.num_descriptors.min(256) as usize };
    // SAFETY: as promised.
    let entries = (0..count).map(|i| unsafe { told.descriptors.add(i).read_unaligned() });
    let written = entries.filter(|entry| entry.flags & memory::CONST == 0 && !entry.ptr.is_null());
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
    written.map(read).collect()
}

/// Options, in all forms that libretro has had.
unsafe fn handle_option_command(shared: &mut CallbackState, what: c_uint, data: *mut c_void) -> Option<bool> {
    let options = &mut shared.frontend.options;
    // SAFETY: the type that is read or written is the one that belongs to the command.
    unsafe {
        match what {
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

/// # Safety
/// A list that ends with an entry without key, or null.
unsafe fn declare_v1(shared: &mut CallbackState, at: *const OptionV1) {
    // SAFETY: as promised.
    for option in unsafe { read_list(at, |entry| entry.key.is_null()) } {
        // SAFETY: all that an entry points at are texts.
        unsafe { declare(shared, option.key, &option.values, option.default_value) };
    }
}

/// # Safety
/// A list that ends with an entry without key, or null.
unsafe fn declare_v2(shared: &mut CallbackState, at: *const OptionV2) {
    // SAFETY: as promised.
    for option in unsafe { read_list(at, |entry| entry.key.is_null()) } {
        // SAFETY: all that an entry points at are texts.
        unsafe { declare(shared, option.key, &option.values, option.default_value) };
    }
}

/// # Safety
/// All pointers are texts or null.
unsafe fn declare(shared: &mut CallbackState, key: *const c_char, values: &[OptionValue], default: *const c_char) {
    // SAFETY: as promised.
    let values = values.iter().map_while(|value| unsafe { read_text(value.value) }).collect();
    // SAFETY: as promised.
    if let (Some(key), default) = unsafe { (read_text(key), read_text(default)) } {
        shared.frontend.options.declare(key, values, default);
    }
}
