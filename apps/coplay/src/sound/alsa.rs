//! Sound on Linux: libasound, opened at run time. A computer without it plays without sound; a program that was linked with it
//! would not even start there. This is one of the few places with unsafe code: it speaks to C.
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
/// Pairs that are written at once: 5 ms.
const CHUNK_PAIRS: usize = 240;
/// How much the device may keep, in microseconds.
const LATENCY_MICROS: c_uint = 40_000;
// From alsa/pcm.h.
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

/// The functions of libasound that are used, and the library that they live in.
struct Alsa {
    open: Open,
    set_params: SetParams,
    write: Write,
    recover: Recover,
    close: Close,
    strerror: Strerror,
    _library: Library,
}

/// A device that plays until this is dropped.
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

/// Takes libasound's complaints, which would otherwise go to stderr, in the middle of what is shown there.
unsafe extern "C" fn ignore_error() {}

impl Alsa {
    fn load() -> Option<Self> {
        // SAFETY: libasound runs nothing of consequence when it is loaded, and every symbol below has the type that alsa/pcm.h and
        // alsa/error.h give it. The functions are used only while the library is kept.
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
            // The handler is called with arguments it does not take: in the C conventions of Linux the caller clears them away.
            if let Ok(set_handler) = alsa._library.get::<SetHandler>(b"snd_lib_error_set_handler\0") {
                set_handler(Some(ignore_error));
            }
            Some(alsa)
        }
    }

    fn error_text(&self, error: c_int) -> String {
        // SAFETY: snd_strerror gives a text that lives as long as the library, for any number.
        unsafe { CStr::from_ptr((self.strerror)(error)) }.to_string_lossy().to_lowercase()
    }
}

/// An open device. It belongs to one thread at a time.
struct Pcm {
    alsa: Alsa,
    handle: *mut c_void,
}

// SAFETY: a handle of libasound may be used by any thread, as long as it is by one at a time; it is moved to a thread and stays there.
unsafe impl Send for Pcm {}

impl Drop for Pcm {
    fn drop(&mut self) {
        // SAFETY: the handle was opened, is closed once, and is not used any more.
        unsafe { (self.alsa.close)(self.handle) };
    }
}

impl Pcm {
    fn open() -> Result<Self, String> {
        let alsa = Alsa::load().ok_or("libasound is not installed")?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: the name ends with a zero, and the handle is written before it is read, if all went well.
        let opened = unsafe { (alsa.open)(&mut handle, c"default".as_ptr(), PLAYBACK, 0) };
        if opened < 0 || handle.is_null() {
            return Err(alsa.error_text(opened));
        }
        let pcm = Self { alsa, handle };
        // SAFETY: the handle is open.
        let set = unsafe { (pcm.alsa.set_params)(pcm.handle, S16, INTERLEAVED, 2, RATE, 1, LATENCY_MICROS) };
        if set < 0 { Err(pcm.alsa.error_text(set)) } else { Ok(pcm) }
    }

    /// Waits until the device has taken these pairs; `false` if it is gone.
    fn write(&mut self, mut pairs: &[[i16; 2]]) -> bool {
        while !pairs.is_empty() {
            // SAFETY: the handle is open, and that many pairs of two samples of 16 bits are there to be read.
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

/// Opens the device and plays what the tap gives.
pub(super) fn open(
    tap: impl FnOnce(f64) -> (Arc<SampleRing>, SampleSource),
) -> Result<(Stream, Arc<SampleRing>, f64), String> {
    let mut pcm = Pcm::open()?;
    let rate = f64::from(RATE);
    let (ring, mut tap) = tap(rate);
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = stop.clone();
    let play = move || {
        let (begun, mut played) = (Instant::now(), 0usize);
        while !stopped.load(Ordering::Relaxed) {
            let piece: [[i16; 2]; CHUNK_PAIRS] = std::array::from_fn(|_| tap.next_pair());
            if !pcm.write(&piece) {
                return;
            }
            played += CHUNK_PAIRS;
            // A device that is none takes everything at once: no faster than it could be heard, then.
            let heard = begun + Duration::from_secs_f64((played as f64 / rate - 0.1).max(0.0));
            std::thread::sleep(heard.saturating_duration_since(Instant::now()));
        }
    };
    let thread = std::thread::Builder::new().name("sound".into()).spawn(play).map_err(|error| error.to_string())?;
    Ok((Stream { stop, thread: Some(thread) }, ring, rate))
}
