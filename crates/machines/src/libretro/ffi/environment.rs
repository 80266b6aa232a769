//! What a core asks and tells of its surroundings.
//!
//! Everything that could differ between two computers gets the same answer on all of them, or a refusal. Whatever is not listed is refused, which
//! libretro demands that a core can live with.

use std::ffi::{c_char, c_uint, c_void};

use super::super::host::{AvInfo, Descriptor, Device, quirk};
use super::super::options::values_of;
use super::super::video::Format;
use super::abi::*;
use super::callbacks::{self, Shared};
use super::read::{get, list, put, text};

/// States are made to be sent to others and loaded there, the one use of which libretro says so (`ROLLBACK_NETPLAY`). They must then not
/// depend on address or process, and some cores leave out what differs between sites only then.
const STATES_ARE_FOR: c_uint = 3;

/// A part of the memory that the core has named.
pub(super) struct Map {
    pub(super) name: String,
    pub(super) at: *const u8,
    pub(super) len: usize,
    /// Whether it is RAM, as the core says, and not registers or the like.
    pub(super) is_ram: bool,
}

/// Answers a command.
///
/// # Safety
/// `data` is what the header says belongs to the command, or null.
pub(super) unsafe fn answer(shared: &mut Shared, what: c_uint, data: *mut c_void) -> bool {
    // SAFETY: each takes only commands that it knows, with the data that belong to them.
    unsafe { asked(shared, what, data).or_else(|| told(shared, what, data)).or_else(|| options(shared, what, data)) }
        .unwrap_or(false)
}

/// Questions.
unsafe fn asked(shared: &mut Shared, what: c_uint, data: *mut c_void) -> Option<bool> {
    let host = &mut shared.host;
    // SAFETY: the type that is written is the one that belongs to the command.
    Some(unsafe {
        match what {
            command::GET_OVERSCAN => put(data, 0u8),
            command::GET_CAN_DUPE => put(data, 1u8),
            command::GET_SYSTEM_DIRECTORY | command::GET_CORE_ASSETS_DIRECTORY => {
                put(data, host.system_directory.as_ptr())
            }
            command::GET_SAVE_DIRECTORY => put(data, host.save_directory.as_ptr()),
            command::GET_INPUT_DEVICE_CAPABILITIES => put(data, 1u64 << device::JOYPAD | 1 << device::ANALOG),
            command::GET_LOG_INTERFACE => put(data, LogCallback { log: callbacks::log }),
            command::GET_PERF_INTERFACE => put(data, perf()),
            // English, everywhere.
            command::GET_LANGUAGE => put(data, 0 as c_uint),
            command::GET_AUDIO_VIDEO_ENABLE => {
                host.asked_what_to_produce = true;
                put(data, host.produce as c_uint) || data.is_null()
            }
            command::GET_FASTFORWARDING => put(data, 0u8),
            command::GET_TARGET_REFRESH_RATE => put(data, 60f32),
            command::GET_INPUT_BITMASKS => put(data, 1u8) || data.is_null(),
            command::GET_MESSAGE_INTERFACE_VERSION => put(data, 1 as c_uint),
            command::GET_INPUT_MAX_USERS => put(data, host.players as c_uint),
            command::GET_SAVESTATE_CONTEXT => put(data, STATES_ARE_FOR) || data.is_null(),
            _ => return None,
        }
    })
}

fn perf() -> PerfCallback {
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
unsafe fn told(shared: &mut Shared, what: c_uint, data: *mut c_void) -> Option<bool> {
    let host = &mut shared.host;
    // SAFETY: the type that is read is the one that belongs to the command.
    let understood = unsafe {
        match what {
            // Who switches the machine off in a menu of its own sees it stand still, as all the others do.
            command::SHUTDOWN | command::SET_PERFORMANCE_LEVEL | command::SET_SUPPORT_ACHIEVEMENTS => Some(()),
            command::SET_HW_RENDER => {
                host.wanted_gpu = true;
                None
            }
            command::SET_ROTATION => get::<c_uint>(data).map(|turns| host.video.turns = turns % 4),
            command::SET_MESSAGE => {
                get::<Message>(data).and_then(|told| text(told.msg)).map(|line| host.log.say(&line))
            }
            command::SET_MESSAGE_EXT => {
                get::<MessageExt>(data).and_then(|told| text(told.msg)).map(|line| host.log.say(&line))
            }
            command::SET_PIXEL_FORMAT => {
                get::<c_uint>(data).and_then(Format::numbered).map(|format| host.video.format = format)
            }
            command::SET_SUPPORT_NO_GAME => get::<u8>(data).map(|without| host.runs_without_game = without != 0),
            command::SET_GEOMETRY => get(data).map(|geometry| set_geometry(&mut host.av, geometry)),
            command::SET_SYSTEM_AV_INFO => get(data).map(|av| host.av = av_info(av)),
            command::SET_INPUT_DESCRIPTORS => descriptors(data).map(|found| host.descriptors = found),
            command::SET_CONTROLLER_INFO => ports(data).map(|found| host.ports = found),
            command::SET_SERIALIZATION_QUIRKS | command::SET_SERIALIZATION_QUIRKS_LATER => {
                get::<u64>(data).map(|quirks| {
                    host.quirks = quirks;
                    put(data, quirks | quirk::HOST_KNOWS_VARIABLE_SIZE);
                })
            }
            command::SET_FRAME_TIME_CALLBACK => get::<FrameTimeCallback>(data)
                .map(|told| shared.frame_time = told.callback.map(|callback| (callback, told.reference))),
            command::SET_MEMORY_MAPS => get::<MemoryMap>(data).map(|told| shared.maps = maps(told)),
            _ => return None,
        }
    };
    Some(understood.is_some())
}

fn set_geometry(av: &mut AvInfo, geometry: GameGeometry) {
    (av.width, av.height, av.aspect) = (geometry.base_width, geometry.base_height, geometry.aspect_ratio);
}

pub(super) fn av_info(told: SystemAvInfo) -> AvInfo {
    let mut av = AvInfo { fps: told.timing.fps, sound_rate: told.timing.sample_rate, ..AvInfo::default() };
    set_geometry(&mut av, told.geometry);
    av
}

/// # Safety
/// A list that ends with an entry without description, or null.
unsafe fn descriptors(data: *const c_void) -> Option<Vec<Descriptor>> {
    // SAFETY: as promised; descriptions are texts.
    let entries = unsafe { list(data.cast::<InputDescriptor>(), |entry| entry.description.is_null()) };
    let read = |entry: InputDescriptor| Descriptor {
        port: entry.port,
        device: entry.device,
        index: entry.index,
        id: entry.id,
        // SAFETY: as above.
        label: unsafe { text(entry.description) }.unwrap_or_default(),
    };
    (!data.is_null()).then(|| entries.into_iter().map(read).collect())
}

/// # Safety
/// A list that ends with an entry without types, or null.
unsafe fn ports(data: *const c_void) -> Option<Vec<Vec<Device>>> {
    // SAFETY: as promised.
    let entries = unsafe { list(data.cast::<ControllerInfo>(), |entry| entry.types.is_null()) };
    let read = |entry: ControllerInfo| {
        let kinds = (0..entry.num_types.min(64) as usize)
            // SAFETY: there are so many types.
            .map(|i| unsafe { entry.types.add(i).read_unaligned() })
            // SAFETY: descriptions are texts.
            .map(|kind| Device { name: unsafe { text(kind.desc) }.unwrap_or_default(), id: kind.id });
        kinds.collect()
    };
    (!data.is_null()).then(|| entries.into_iter().map(read).collect())
}

/// # Safety
/// The map has as many entries as it says.
unsafe fn maps(told: MemoryMap) -> Vec<Map> {
    let count = if told.descriptors.is_null() { 0 } else { told.num_descriptors.min(256) as usize };
    // SAFETY: as promised.
    let entries = (0..count).map(|i| unsafe { told.descriptors.add(i).read_unaligned() });
    let written = entries.filter(|entry| entry.flags & memory::CONST == 0 && !entry.ptr.is_null());
    let read = |entry: MemoryDescriptor| {
        // SAFETY: the name of an address space is a text.
        let space = unsafe { text(entry.addrspace) }.unwrap_or_default();
        let at = entry.ptr.cast::<u8>().cast_const().wrapping_add(entry.offset);
        Map {
            name: format!("memory {space}{:x}", entry.start),
            at,
            len: entry.len,
            is_ram: entry.flags & memory::RAM != 0,
        }
    };
    written.map(read).collect()
}

/// Options, in all forms that libretro has had.
unsafe fn options(shared: &mut Shared, what: c_uint, data: *mut c_void) -> Option<bool> {
    let options = &mut shared.host.options;
    // SAFETY: the type that is read or written is the one that belongs to the command.
    unsafe {
        match what {
            command::GET_CORE_OPTIONS_VERSION => return Some(put(data, 2 as c_uint)),
            // Options do not change while a game runs.
            command::GET_VARIABLE_UPDATE => return Some(put(data, 0u8)),
            command::SET_CORE_OPTIONS_DISPLAY => return Some(true),
            command::GET_VARIABLE => {
                let mut variable = get::<Variable>(data)?;
                let value = text(variable.key).and_then(|key| options.value(&key).map(|value| value.as_ptr()));
                variable.value = value.unwrap_or(std::ptr::null());
                return Some(put(data, variable) && value.is_some());
            }
            command::SET_VARIABLES => {
                for variable in list(data.cast::<Variable>(), |entry| entry.key.is_null()) {
                    let values = text(variable.value).map(|declared| values_of(&declared)).unwrap_or_default();
                    options.declare(text(variable.key)?, values, None);
                }
            }
            command::SET_CORE_OPTIONS => declare_v1(shared, data.cast()),
            command::SET_CORE_OPTIONS_INTL => declare_v1(shared, get::<OptionsV1Intl>(data)?.us),
            command::SET_CORE_OPTIONS_V2 => declare_v2(shared, get::<OptionsV2>(data)?.definitions),
            command::SET_CORE_OPTIONS_V2_INTL => {
                declare_v2(shared, get::<OptionsV2>(get::<OptionsV2Intl>(data)?.us.cast())?.definitions);
            }
            _ => return None,
        }
    }
    Some(true)
}

/// # Safety
/// A list that ends with an entry without key, or null.
unsafe fn declare_v1(shared: &mut Shared, at: *const OptionV1) {
    // SAFETY: as promised.
    for option in unsafe { list(at, |entry| entry.key.is_null()) } {
        // SAFETY: all that an entry points at are texts.
        unsafe { declare(shared, option.key, &option.values, option.default_value) };
    }
}

/// # Safety
/// A list that ends with an entry without key, or null.
unsafe fn declare_v2(shared: &mut Shared, at: *const OptionV2) {
    // SAFETY: as promised.
    for option in unsafe { list(at, |entry| entry.key.is_null()) } {
        // SAFETY: all that an entry points at are texts.
        unsafe { declare(shared, option.key, &option.values, option.default_value) };
    }
}

/// # Safety
/// All pointers are texts or null.
unsafe fn declare(shared: &mut Shared, key: *const c_char, values: &[OptionValue], default: *const c_char) {
    // SAFETY: as promised.
    let values = values.iter().map_while(|value| unsafe { text(value.value) }).collect();
    // SAFETY: as promised.
    if let (Some(key), default) = unsafe { (text(key), text(default)) } {
        shared.host.options.declare(key, values, default);
    }
}
