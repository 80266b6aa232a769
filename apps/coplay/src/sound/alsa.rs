//! Sound output on Linux by libasound, which is loaded at run time. Without the library the game runs without sound; a
//! program linked against the library would not start. This module calls C functions, so it needs unsafe code.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_long, c_uint, c_ulong, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use libloading::Library;

use super::SampleSource;
use super::ring::SampleRing;

const LIBRARY_NAMES: [&str; 2] = ["libasound.so.2", "libasound.so"];
const RATE: c_uint = 48_000;
/// Sample pairs per write: 5 ms.
const CHUNK_PAIRS: usize = 240;
/// Requested latency of the device, in microseconds.
const LATENCY_MICROS: c_uint = 40_000;
// Constants of alsa/pcm.h.
const PLAYBACK: c_int = 0;
const INTERLEAVED: c_int = 3;
const S16: c_int = if cfg!(target_endian = "little") { 2 } else { 3 };

type Open = unsafe extern "C" fn(*mut *mut c_void, *const c_char, c_int, c_int) -> c_int;
type SetParams = unsafe extern "C" fn(*mut c_void, c_int, c_int, c_uint, c_uint, c_int, c_uint) -> c_int;
type Write = unsafe extern "C" fn(*mut c_void, *const c_void, c_ulong) -> c_long;
type Recover = unsafe extern "C" fn(*mut c_void, c_int, c_int) -> c_int;
type Close = unsafe extern "C" fn(*mut c_void) -> c_int;
type Strerror = unsafe extern "C" fn(c_int) -> *const c_char;
type SetHandler = unsafe extern "C" fn(Option<unsafe extern "C" fn()>) -> c_int;

/// Functions of libasound, and the library that keeps them loaded.
struct Alsa {
    open: Open,
    set_params: SetParams,
    write: Write,
    recover: Recover,
    close: Close,
    strerror: Strerror,
    _library: Library,
}

/// Open device, which plays until the stream is dropped.
#[derive(Debug)]
pub(super) struct Stream {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
    }
}

/// Discards libasound's error messages, which would otherwise go to stderr and corrupt a terminal picture.
unsafe extern "C" fn ignore_error() {}

impl Alsa {
    fn load() -> Option<Self> {
        // SAFETY: loading libasound has no relevant side effects, and every symbol below has the type declared in
        // alsa/pcm.h and alsa/error.h. The functions are used only while the library is loaded.
        unsafe {
            let library = LIBRARY_NAMES.iter().find_map(|name| Library::new(*name).ok())?;
            let alsa = Self {
                open: *library.get::<Open>(b"snd_pcm_open\0").ok()?,
                set_params: *library.get::<SetParams>(b"snd_pcm_set_params\0").ok()?,
                write: *library.get::<Write>(b"snd_pcm_writei\0").ok()?,
                recover: *library.get::<Recover>(b"snd_pcm_recover\0").ok()?,
                close: *library.get::<Close>(b"snd_pcm_close\0").ok()?,
                strerror: *library.get::<Strerror>(b"snd_strerror\0").ok()?,
                _library: library,
            };
            // The handler ignores the arguments that libasound passes: in the C calling conventions of Linux the caller
            // removes them.
            if let Ok(set_handler) = alsa._library.get::<SetHandler>(b"snd_lib_error_set_handler\0") {
                set_handler(Some(ignore_error));
            }
            Some(alsa)
        }
    }

    fn error_text(&self, error: c_int) -> String {
        // SAFETY: snd_strerror returns, for any number, a string that lives as long as the library.
        unsafe { CStr::from_ptr((self.strerror)(error)) }.to_string_lossy().to_lowercase()
    }
}

/// Open PCM device, which only one thread uses at a time.
struct Pcm {
    alsa: Alsa,
    handle: *mut c_void,
}

// SAFETY: any thread may use a libasound handle, as long as only one does at a time. The handle is moved to one thread
// and stays there.
unsafe impl Send for Pcm {}

impl Drop for Pcm {
    fn drop(&mut self) {
        // SAFETY: the handle is open, is closed only here, and is not used afterwards.
        unsafe { (self.alsa.close)(self.handle) };
    }
}

impl Pcm {
    fn open() -> Result<Self, String> {
        let alsa = Alsa::load().ok_or("libasound is not installed")?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: the name is zero-terminated, and on success the handle is written before it is read.
        let opened = unsafe { (alsa.open)(&mut handle, c"default".as_ptr(), PLAYBACK, 0) };
        if opened < 0 || handle.is_null() {
            return Err(alsa.error_text(opened));
        }
        let pcm = Self { alsa, handle };
        // SAFETY: the handle is open.
        let set = unsafe { (pcm.alsa.set_params)(pcm.handle, S16, INTERLEAVED, 2, RATE, 1, LATENCY_MICROS) };
        if set < 0 { Err(pcm.alsa.error_text(set)) } else { Ok(pcm) }
    }

    /// Writes sample pairs and blocks until the device has accepted them. Returns `false` after an error from which
    /// libasound cannot recover, such as a removed device.
    fn write(&mut self, mut pairs: &[[i16; 2]]) -> bool {
        while !pairs.is_empty() {
            // SAFETY: the handle is open, and the pointer refers to that many pairs of 16-bit samples.
            let written = unsafe { (self.alsa.write)(self.handle, pairs.as_ptr().cast(), pairs.len() as c_ulong) };
            if let Ok(written) = usize::try_from(written) {
                pairs = pairs.get(written..).unwrap_or_default();
                continue;
            }
            // SAFETY: the handle is open.
            if unsafe { (self.alsa.recover)(self.handle, written as c_int, 1) } < 0 {
                return false;
            }
        }
        true
    }
}

/// Opens the default device and starts the thread that feeds it. `new_source` gets the device's rate in pairs per
/// second and creates the queue to play from. Also returns the queue and the rate.
pub(super) fn open(
    new_source: impl FnOnce(f64) -> (Arc<SampleRing>, SampleSource),
) -> Result<(Stream, Arc<SampleRing>, f64), String> {
    let mut pcm = Pcm::open()?;
    let rate = f64::from(RATE);
    let (ring, mut source) = new_source(rate);
    let stop = Arc::new(AtomicBool::new(false));
    let stop_requested = stop.clone();
    let play = move || {
        let (started, mut played) = (Instant::now(), 0usize);
        while !stop_requested.load(Ordering::Relaxed) {
            let chunk: [[i16; 2]; CHUNK_PAIRS] = std::array::from_fn(|_| source.next_pair());
            if !pcm.write(&chunk) {
                return;
            }
            played += CHUNK_PAIRS;
            // A null device accepts everything at once, so writes are limited to real time.
            let due = started + Duration::from_secs_f64((played as f64 / rate - 0.1).max(0.0));
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
        }
    };
    let thread = std::thread::Builder::new().name("sound".into()).spawn(play).map_err(|error| error.to_string())?;
    Ok((Stream { stop, thread: Some(thread) }, ring, rate))
}
