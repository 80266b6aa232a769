//! A loaded core.

use std::cell::RefCell;
use std::ffi::{CStr, c_uint, c_void};
use std::path::Path;
use std::ptr;
use std::slice;

use libloading::Library;

use super::super::frontend_state::FrontendState;
use super::abi::*;
use super::callbacks::{self, CallbackState, CurrentStateGuard};
use super::environment;
use super::read::read_text;

/// Bytes of a part of the memory that are looked at, at most.
const MAX_REGION_LEN: usize = 64 << 20;

macro_rules! core_functions {
    ($($name:ident: $kind:ty,)*) => {
        /// The functions of a core.
        struct CoreFunctions { $($name: $kind,)* }

        impl CoreFunctions {
            /// # Safety
            /// What the library calls by these names has the types of `libretro.h`.
            unsafe fn of(library: &Library) -> Result<Self, CoreLoadError> {
                Ok(Self {
                    // SAFETY: as promised. The library outlives the functions: `Core` owns both.
                    $($name: *unsafe { library.get::<$kind>(concat!(stringify!($name), "\0")) }
                        .map_err(|_| CoreLoadError::MissingFunction(stringify!($name)))?,)*
                })
            }
        }
    };
}

core_functions! {
    retro_api_version: unsafe extern "C" fn() -> c_uint,
    retro_set_environment: unsafe extern "C" fn(Environment),
    retro_set_video_refresh: unsafe extern "C" fn(VideoRefresh),
    retro_set_audio_sample: unsafe extern "C" fn(AudioSample),
    retro_set_audio_sample_batch: unsafe extern "C" fn(AudioSampleBatch),
    retro_set_input_poll: unsafe extern "C" fn(InputPoll),
    retro_set_input_state: unsafe extern "C" fn(InputState),
    retro_init: unsafe extern "C" fn(),
    retro_deinit: unsafe extern "C" fn(),
    retro_get_system_info: unsafe extern "C" fn(*mut SystemInfo),
    retro_get_system_av_info: unsafe extern "C" fn(*mut SystemAvInfo),
    retro_set_controller_port_device: unsafe extern "C" fn(c_uint, c_uint),
    retro_load_game: unsafe extern "C" fn(*const GameInfo) -> u8,
    retro_unload_game: unsafe extern "C" fn(),
    retro_run: unsafe extern "C" fn(),
    retro_serialize_size: unsafe extern "C" fn() -> usize,
    retro_serialize: unsafe extern "C" fn(*mut c_void, usize) -> u8,
    retro_unserialize: unsafe extern "C" fn(*const c_void, usize) -> u8,
    retro_get_memory_data: unsafe extern "C" fn(c_uint) -> *const u8,
    retro_get_memory_size: unsafe extern "C" fn(c_uint) -> usize,
}

/// Why a file is no core that can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) enum CoreLoadError {
    /// The system cannot load it; in its words.
    Load(String),
    /// A function is missing.
    MissingFunction(&'static str),
    /// It speaks another version of libretro.
    UnsupportedVersion(u32),
}

/// What a core says of itself.
#[derive(Clone, Debug, Default)]
pub(in super::super) struct CoreInfo {
    pub(in super::super) name: String,
    pub(in super::super) version: String,
    /// Endings of the files that it takes.
    pub(in super::super) extensions: Vec<String>,
    /// Whether it reads a game from a file instead of from memory.
    pub(in super::super) needs_file: bool,
}

/// A game for a core.
#[derive(Clone, Copy)]
pub(in super::super) struct GameContent<'a> {
    pub(in super::super) path: &'a CStr,
    /// The image, if it is not to be read from the file.
    pub(in super::super) image: Option<&'a [u8]>,
}

/// A core: one instance, alone with its variables as long as nobody else loads the same file.
pub(in super::super) struct Core {
    functions: CoreFunctions,
    info: CoreInfo,
    is_initialized: bool,
    has_game: bool,
    // In this order: while the library is unloaded it may still call.
    _library: Library,
    callback_state: Box<RefCell<CallbackState>>,
}

// SAFETY: all access is through `&mut Core`, by one thread at a time, and the host is that thread's for each call. The pointers in it are
// into memory of the process. A core that binds itself to the thread that loaded it breaks libretro's rules, and no core that plays in
// an ordinary front end can tell threads apart: those too load a game and run it from different ones.
unsafe impl Send for Core {}

impl Core {
    /// Loads a library. That alone runs code of it.
    pub(in super::super) fn open(path: &Path, host: FrontendState) -> Result<Self, CoreLoadError> {
        // SAFETY: the code that runs is the core's, which the caller has chosen to trust.
        let library = unsafe { load(path) }.map_err(|error| CoreLoadError::Load(error.to_string()))?;
        // SAFETY: a library that has all these names is a core.
        let calls = unsafe { CoreFunctions::of(&library) }?;
        let shared = Box::new(RefCell::new(CallbackState { frontend: host, ..CallbackState::default() }));
        let mut core = Self {
            functions: calls,
            info: CoreInfo::default(),
            is_initialized: false,
            has_game: false,
            _library: library,
            callback_state: shared,
        };
        // SAFETY: may be called at any time.
        let version = core.call(|calls| unsafe { (calls.retro_api_version)() });
        if version != API_VERSION {
            return Err(CoreLoadError::UnsupportedVersion(version));
        }
        core.init();
        Ok(core)
    }

    /// Runs `f` with this instance as the current one.
    fn call<R>(&mut self, f: impl FnOnce(&CoreFunctions) -> R) -> R {
        let _entered = CurrentStateGuard::new(&self.callback_state);
        f(&self.functions)
    }

    fn init(&mut self) {
        // SAFETY: this is the order that libretro asks for, and the callbacks are good for as long as this program runs.
        self.call(|calls| unsafe {
            (calls.retro_set_environment)(callbacks::environment);
            (calls.retro_init)();
            (calls.retro_set_video_refresh)(callbacks::video);
            (calls.retro_set_audio_sample)(callbacks::sample);
            (calls.retro_set_audio_sample_batch)(callbacks::samples);
            (calls.retro_set_input_poll)(callbacks::poll);
            (calls.retro_set_input_state)(callbacks::state);
        });
        self.is_initialized = true;
        self.info = self.read_system_info();
    }

    fn read_system_info(&mut self) -> CoreInfo {
        let null = ptr::null();
        let mut info = SystemInfo {
            library_name: null,
            library_version: null,
            valid_extensions: null,
            need_fullpath: 0,
            block_extract: 0,
        };
        // SAFETY: there is room for the answer, and texts in it stay good while the library is loaded.
        let read = |at| unsafe { read_text(at) }.unwrap_or_default();
        // SAFETY: as above.
        self.call(|calls| unsafe { (calls.retro_get_system_info)(&mut info) });
        let extensions = read(info.valid_extensions);
        CoreInfo {
            name: read(info.library_name),
            version: read(info.library_version),
            extensions: extensions.split('|').filter(|it| !it.is_empty()).map(str::to_lowercase).collect(),
            needs_file: info.need_fullpath != 0,
        }
    }

    pub(in super::super) fn info(&self) -> &CoreInfo {
        &self.info
    }

    pub(in super::super) fn frontend(&mut self) -> &mut FrontendState {
        &mut self.callback_state.get_mut().frontend
    }

    /// Puts the game in, or starts without one. The content must stay for as long as the core lives: some keep pointers to it.
    pub(in super::super) fn load_game(&mut self, content: Option<GameContent<'_>>) -> bool {
        let game = content.map(|content| GameInfo {
            path: content.path.as_ptr(),
            data: content.image.map_or(ptr::null(), |image| image.as_ptr().cast()),
            size: content.image.map_or(0, <[u8]>::len),
            meta: ptr::null(),
        });
        let game = game.as_ref().map_or(ptr::null(), ptr::from_ref);
        // SAFETY: it is null, as a core without a game has it, or a game as the header has it.
        self.has_game = self.call(|calls| unsafe { (calls.retro_load_game)(game) }) != 0;
        if self.has_game {
            let mut av = SystemAvInfo::default();
            // SAFETY: there is room for the answer, and a game is loaded.
            self.call(|calls| unsafe { (calls.retro_get_system_av_info)(&mut av) });
            self.frontend().av_info = environment::av_info(av);
        }
        self.has_game
    }

    /// Plugs a device into a port.
    pub(in super::super) fn set_port_device(&mut self, port: usize, device: Option<u32>) {
        let device = device.unwrap_or(device::NONE);
        // SAFETY: a core ignores ports that it does not have.
        self.call(|calls| unsafe { (calls.retro_set_controller_port_device)(port as c_uint, device) });
    }

    /// Runs a frame.
    pub(in super::super) fn run(&mut self) {
        assert!(self.has_game, "a core runs only with a game");
        let frame_time = self.callback_state.get_mut().frame_time;
        self.call(|calls| {
            if let Some((callback, reference)) = frame_time {
                // SAFETY: the core gave this function to be called before each frame, by this thread.
                unsafe { callback(reference) };
            }
            // SAFETY: a game is loaded.
            unsafe { (calls.retro_run)() };
        });
    }

    /// Bytes that a state needs now.
    pub(in super::super) fn state_size(&mut self) -> usize {
        assert!(self.has_game, "a core has a state only with a game");
        // SAFETY: a game is loaded.
        self.call(|calls| unsafe { (calls.retro_serialize_size)() })
    }

    /// Saves the state into all of `into`.
    pub(in super::super) fn save(&mut self, into: &mut [u8]) -> bool {
        assert!(self.has_game, "a core has a state only with a game");
        // SAFETY: there is as much room as is said, and a game is loaded.
        self.call(|calls| unsafe { (calls.retro_serialize)(into.as_mut_ptr().cast(), into.len()) }) != 0
    }

    /// Loads a state.
    pub(in super::super) fn load(&mut self, state: &[u8]) -> bool {
        assert!(self.has_game, "a core has a state only with a game");
        // SAFETY: there are as many bytes as is said, and a game is loaded. What the core makes of them is up to it.
        self.call(|calls| unsafe { (calls.retro_unserialize)(state.as_ptr().cast(), state.len()) }) != 0
    }

    /// Shows the memory: the three parts that libretro knows, then those that the core has named and that are not within others. With
    /// each goes whether it is RAM.
    pub(in super::super) fn visit_memory(&mut self, show: &mut dyn FnMut(&str, bool, &[u8])) {
        let known =
            [("system ram", memory::SYSTEM_RAM), ("save ram", memory::SAVE_RAM), ("video ram", memory::VIDEO_RAM)]
                .map(|(name, id)| (name, true, self.memory_region(id)));
        let shared = self.callback_state.get_mut();
        let named = shared.memory_maps.iter().map(|map| (map.name.as_str(), map.is_ram, (map.ptr, map.len)));
        let parts = || known.into_iter().chain(named.clone()).enumerate();
        for (i, (name, is_ram, (at, len))) in parts() {
            let within = |(other, whole): (*const u8, usize)| {
                other.addr() <= at.addr() && at.addr().saturating_add(len) <= other.addr().saturating_add(whole)
            };
            if at.is_null()
                || len == 0
                || len > MAX_REGION_LEN
                || parts().take(i).any(|(_, (_, _, other))| within(other))
            {
                continue;
            }
            // SAFETY: memory that a core shows stays where it is while the game is loaded; the core does not run meanwhile.
            show(name, is_ram, unsafe { slice::from_raw_parts(at, len) });
        }
    }

    fn memory_region(&mut self, id: c_uint) -> (*const u8, usize) {
        // SAFETY: a game is loaded.
        self.call(|calls| unsafe { ((calls.retro_get_memory_data)(id), (calls.retro_get_memory_size)(id)) })
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        // SAFETY: the order of libretro, and only what was begun is ended.
        let (loaded, began) = (self.has_game, self.is_initialized);
        self.call(|calls| unsafe {
            if loaded {
                (calls.retro_unload_game)();
            }
            if began {
                (calls.retro_deinit)();
            }
        });
    }
}

/// Loads with everything resolved now and nothing shown to other libraries.
///
/// # Safety
/// Runs code of the library.
#[cfg(unix)]
unsafe fn load(path: &Path) -> Result<Library, libloading::Error> {
    use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
    // SAFETY: as promised.
    unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) }.map(Into::into)
}

/// Loads.
///
/// # Safety
/// Runs code of the library.
#[cfg(not(unix))]
unsafe fn load(path: &Path) -> Result<Library, libloading::Error> {
    // SAFETY: as promised.
    unsafe { Library::new(path) }
}
