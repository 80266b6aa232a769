//! Reads data that a core points at, and writes answers to it. Every length is bounded.

use std::ffi::{c_char, c_void};

/// Maximum number of bytes read of a text. A longer text is truncated.
const MAX_TEXT_LEN: usize = 4_096;

/// Maximum number of entries read of a list. Further entries are ignored.
const MAX_LIST_LEN: usize = 4_096;

/// Reads the text at a pointer; `None` for a null pointer. Invalid UTF-8 is replaced.
///
/// # Safety
///
/// The pointer is null or points at bytes that end with a zero or extend beyond [`MAX_TEXT_LEN`].
pub(super) unsafe fn read_text(at: *const c_char) -> Option<String> {
    if at.is_null() {
        return None;
    }
    let at = at.cast::<u8>();
    // SAFETY: no byte after the first zero is read.
    let len = (0..MAX_TEXT_LEN).find(|&i| unsafe { at.add(i).read() } == 0).unwrap_or(MAX_TEXT_LEN);
    // SAFETY: these bytes were just read.
    let bytes = unsafe { std::slice::from_raw_parts(at, len) };
    Some(String::from_utf8_lossy(bytes).into_owned())
}

/// Reads the structure at a pointer; `None` for a null pointer.
///
/// # Safety
///
/// The pointer is null or points at a `T`, aligned or not.
pub(super) unsafe fn read_value<T: Copy>(at: *const c_void) -> Option<T> {
    // SAFETY: as promised, for a pointer that is not null.
    (!at.is_null()).then(|| unsafe { at.cast::<T>().read_unaligned() })
}

/// Writes an answer for the core; returns `false` for a null pointer.
///
/// # Safety
///
/// The pointer is null or points at space for a `T`, aligned or not.
pub(super) unsafe fn write_value<T>(at: *mut c_void, value: T) -> bool {
    if at.is_null() {
        return false;
    }
    // SAFETY: as promised, for a pointer that is not null.
    unsafe { at.cast::<T>().write_unaligned(value) };
    true
}

/// Reads the entries of a list before the first entry for which `is_end` is true; none for a null pointer.
///
/// # Safety
///
/// The pointer is null or points at a list of `T` with such an end, or with more than [`MAX_LIST_LEN`] entries.
pub(super) unsafe fn read_list<T: Copy>(at: *const T, is_end: impl Fn(&T) -> bool) -> Vec<T> {
    if at.is_null() {
        return Vec::new();
    }
    // SAFETY: `take_while` reads nothing after the end.
    (0..MAX_LIST_LEN).map(|i| unsafe { at.add(i).read_unaligned() }).take_while(|entry| !is_end(entry)).collect()
}
