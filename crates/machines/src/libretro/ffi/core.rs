//! Wraps the functions of a loaded core in safe methods.

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

/// Maximum length of a memory region in bytes. Longer regions are skipped.
const MAX_REGION_LEN: usize = 64 << 20;

macro_rules! core_functions {
    ($($name:ident: $kind:ty,)*) => {
        /// The functions of a core.
        struct CoreFunctions { $($name: $kind,)* }

        impl CoreFunctions {
            /// # Safety
            ///
            /// The symbols named like the fields of `CoreFunctions` have the types of `libretro.h`.
            unsafe fn of(library: &Library) -> Result<Self, CoreLoadError> {
                Ok(Self {
                    // SAFETY: guaranteed by the caller. The library outlives the functions: `Core` owns both.
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
    retro_set_input_state: unsafe extern "C" fn(InputStateFn),
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

/// Reason why a core cannot be loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) enum CoreLoadError {
    /// The operating system cannot load the library; contains the error message.
    Load(String),
    /// The library is not a libretro core: this function is missing.
    MissingFunction(&'static str),
    /// The core uses this version of the libretro API instead of [`API_VERSION`].
    UnsupportedVersion(u32),
}

/// Name, version and supported files, as the core reports them.
#[derive(Clone, Debug, Default)]
pub(in super::super) struct CoreInfo {
    pub(in super::super) name: String,
    pub(in super::super) version: String,
    /// Supported file extensions, in lower case; empty if the core reports none.
    pub(in super::super) extensions: Vec<String>,
    /// Whether the core reads the game from a file instead of from memory.
    pub(in super::super) needs_file: bool,
}

/// A game to load, from memory or from a file.
#[derive(Clone, Copy)]
pub(in super::super) struct GameContent<'a> {
    pub(in super::super) path: &'a CStr,
    /// Image in memory; `None` if the core reads the file.
    pub(in super::super) image: Option<&'a [u8]>,
}

/// An instance of a core. It has its own variables as long as no other instance loads the same file.
pub(in super::super) struct Core {
    functions: CoreFunctions,
    info: CoreInfo,
    is_initialized: bool,
    has_game: bool,
    // Declared before `callback_state`, so dropped before it: the library may still call back while it is unloaded.
    _library: Library,
    callback_state: Box<RefCell<CallbackState>>,
}

// SAFETY: all access is through `&mut Core`, by one thread at a time, and each call sets the callback state of that
// thread. The pointers in it point into memory of the process. A core that binds itself to the thread that loaded it
// violates libretro's rules: ordinary frontends also load and run a game from different threads.
unsafe impl Send for Core {}

impl Core {
    /// Loads and initializes a core. Loading the library already runs code of it.
    pub(in super::super) fn open(path: &Path, frontend: FrontendState) -> Result<Self, CoreLoadError> {
        // SAFETY: the code that runs is that of the core, which the caller trusts.
        let library = unsafe { load(path) }.map_err(|error| CoreLoadError::Load(error.to_string()))?;
        // SAFETY: a library with all these symbols is a core.
        let functions = unsafe { CoreFunctions::of(&library) }?;
        let callback_state = Box::new(RefCell::new(CallbackState { frontend, ..CallbackState::default() }));
        let mut core = Self {
            functions,
            info: CoreInfo::default(),
            is_initialized: false,
            has_game: false,
            _library: library,
            callback_state,
        };
        // SAFETY: this function may be called at any time.
        let version = core.call(|functions| unsafe { (functions.retro_api_version)() });
        if version != API_VERSION {
            return Err(CoreLoadError::UnsupportedVersion(version));
        }
        core.init();
        Ok(core)
    }

    /// Runs `f` while the callbacks of this thread act on this instance.
    fn call<R>(&mut self, f: impl FnOnce(&CoreFunctions) -> R) -> R {
        let _entered = CurrentStateGuard::new(&self.callback_state);
        f(&self.functions)
    }

    fn init(&mut self) {
        // SAFETY: the calls are in the order that libretro requires, and the callbacks are valid for the lifetime of
        // the program.
        self.call(|functions| unsafe {
            (functions.retro_set_environment)(callbacks::environment);
            (functions.retro_init)();
            (functions.retro_set_video_refresh)(callbacks::video);
            (functions.retro_set_audio_sample)(callbacks::sample);
            (functions.retro_set_audio_sample_batch)(callbacks::samples);
            (functions.retro_set_input_poll)(callbacks::poll);
            (functions.retro_set_input_state)(callbacks::state);
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
        // SAFETY: there is space for the answer, and its texts stay valid while the library is loaded.
        let read = |at| unsafe { read_text(at) }.unwrap_or_default();
        // SAFETY: as above.
        self.call(|functions| unsafe { (functions.retro_get_system_info)(&mut info) });
        let extensions = read(info.valid_extensions);
        CoreInfo {
            name: read(info.library_name),
            version: read(info.library_version),
            extensions: extensions
                .split('|')
                .filter(|extension| !extension.is_empty())
                .map(str::to_lowercase)
                .collect(),
            needs_file: info.need_fullpath != 0,
        }
    }

    pub(in super::super) fn info(&self) -> &CoreInfo {
        &self.info
    }

    pub(in super::super) fn frontend(&mut self) -> &mut FrontendState {
        &mut self.callback_state.get_mut().frontend
    }

    /// Loads the game, or starts without one, and returns whether the core accepted it. The caller must keep the
    /// content alive as long as the core, because some cores keep pointers to it.
    pub(in super::super) fn load_game(&mut self, content: Option<GameContent<'_>>) -> bool {
        let game = content.map(|content| GameInfo {
            path: content.path.as_ptr(),
            data: content.image.map_or(ptr::null(), |image| image.as_ptr().cast()),
            size: content.image.map_or(0, <[u8]>::len),
            meta: ptr::null(),
        });
        let game = game.as_ref().map_or(ptr::null(), ptr::from_ref);
        // SAFETY: the pointer is null, for a core without a game, or a game as in the header.
        self.has_game = self.call(|functions| unsafe { (functions.retro_load_game)(game) }) != 0;
        if self.has_game {
            let mut av = SystemAvInfo::default();
            // SAFETY: there is space for the answer, and a game is loaded.
            self.call(|functions| unsafe { (functions.retro_get_system_av_info)(&mut av) });
            self.frontend().av_info = environment::av_info(av);
        }
        self.has_game
    }

    /// Connects a device to a port; `None` disconnects it.
    pub(in super::super) fn set_port_device(&mut self, port: usize, device: Option<u32>) {
        let device = device.unwrap_or(device::NONE);
        // SAFETY: a core ignores ports that it does not have.
        self.call(|functions| unsafe { (functions.retro_set_controller_port_device)(port as c_uint, device) });
    }

    /// Runs a frame, after the frame-time callback if the core registered one.
    pub(in super::super) fn run(&mut self) {
        assert!(self.has_game, "no game is loaded");
        let frame_time = self.callback_state.get_mut().frame_time;
        self.call(|functions| {
            if let Some((callback, reference)) = frame_time {
                // SAFETY: the core registered this function to be called before each frame, by this thread.
                unsafe { callback(reference) };
            }
            // SAFETY: a game is loaded.
            unsafe { (functions.retro_run)() };
        });
    }

    /// Returns the number of bytes that a saved state needs now; 0 if the core cannot save.
    pub(in super::super) fn state_size(&mut self) -> usize {
        assert!(self.has_game, "no game is loaded");
        // SAFETY: a game is loaded.
        self.call(|functions| unsafe { (functions.retro_serialize_size)() })
    }

    /// Lets the core save its state into `into`, of which it may leave bytes unchanged. Returns whether the core
    /// succeeded.
    pub(in super::super) fn save(&mut self, into: &mut [u8]) -> bool {
        assert!(self.has_game, "no game is loaded");
        // SAFETY: pointer and length are those of the slice, and a game is loaded.
        self.call(|functions| unsafe { (functions.retro_serialize)(into.as_mut_ptr().cast(), into.len()) }) != 0
    }

    /// Loads a saved state without header. Returns whether the core accepted it.
    pub(in super::super) fn load(&mut self, state: &[u8]) -> bool {
        assert!(self.has_game, "no game is loaded");
        // SAFETY: pointer and length are those of the slice, and a game is loaded. The core interprets the bytes.
        self.call(|functions| unsafe { (functions.retro_unserialize)(state.as_ptr().cast(), state.len()) }) != 0
    }

    /// Passes each memory region to `show`, with its name and whether it is RAM: system RAM, save RAM and video RAM,
    /// then the regions that the core names. Skips empty regions, regions longer than [`MAX_REGION_LEN`] and regions
    /// inside an earlier one.
    pub(in super::super) fn visit_memory(&mut self, show: &mut dyn FnMut(&str, bool, &[u8])) {
        let standard_regions =
            [("system ram", memory::SYSTEM_RAM), ("save ram", memory::SAVE_RAM), ("video ram", memory::VIDEO_RAM)]
                .map(|(name, id)| (name, true, self.memory_region(id)));
        let callback_state = self.callback_state.get_mut();
        let named_regions =
            callback_state.memory_maps.iter().map(|map| (map.name.as_str(), map.is_ram, (map.ptr, map.len)));
        let regions = || standard_regions.into_iter().chain(named_regions.clone()).enumerate();
        for (i, (name, is_ram, (at, len))) in regions() {
            let within = |(other, other_len): (*const u8, usize)| {
                other.addr() <= at.addr() && at.addr().saturating_add(len) <= other.addr().saturating_add(other_len)
            };
            if at.is_null()
                || len == 0
                || len > MAX_REGION_LEN
                || regions().take(i).any(|(_, (_, _, other))| within(other))
            {
                continue;
            }
            // SAFETY: memory that a core exposes stays in place while the game is loaded, and the core does not run
            // meanwhile.
            show(name, is_ram, unsafe { slice::from_raw_parts(at, len) });
        }
    }

    fn memory_region(&mut self, id: c_uint) -> (*const u8, usize) {
        // SAFETY: a game is loaded.
        self.call(|functions| unsafe { ((functions.retro_get_memory_data)(id), (functions.retro_get_memory_size)(id)) })
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        // SAFETY: the order of libretro; only completed initializations are undone.
        let (has_game, is_initialized) = (self.has_game, self.is_initialized);
        self.call(|functions| unsafe {
            if has_game {
                (functions.retro_unload_game)();
            }
            if is_initialized {
                (functions.retro_deinit)();
            }
        });
    }
}

/// Loads a library, resolves all symbols now and hides them from other libraries.
///
/// # Safety
///
/// The caller trusts the library: loading runs its code.
#[cfg(unix)]
unsafe fn load(path: &Path) -> Result<Library, libloading::Error> {
    use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
    // SAFETY: guaranteed by the caller.
    unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) }.map(Into::into)
}

/// Loads a library.
///
/// # Safety
///
/// The caller trusts the library: loading runs its code.
#[cfg(not(unix))]
unsafe fn load(path: &Path) -> Result<Library, libloading::Error> {
    // SAFETY: guaranteed by the caller.
    unsafe { Library::new(path) }
}
