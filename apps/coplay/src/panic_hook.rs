//! Records panics, and reports a panic that ends the run as one error message. Panics that do not end the run, such as
//! those that a machine catches, are not reported.

use std::panic::PanicHookInfo;
use std::sync::{Mutex, PoisonError};

use crate::error::AppError;

/// Message and location of the last panic; `None` if there was none, or if [`internal_error`] has taken it.
static LAST_PANIC: Mutex<Option<String>> = Mutex::new(None);

/// Installs a panic hook that records panics and prints nothing.
pub(crate) fn install() {
    std::panic::set_hook(Box::new(record_panic));
}

fn record_panic(info: &PanicHookInfo<'_>) {
    let location = info.location().map_or_else(String::new, |at| format!(" in {}, line {}", at.file(), at.line()));
    let message = info.payload_as_str().unwrap_or("unknown cause");
    *LAST_PANIC.lock().unwrap_or_else(PoisonError::into_inner) = Some(format!("{message}{location}"));
}

/// Takes the last panic and converts it into an error that asks for a bug report.
pub(crate) fn internal_error() -> AppError {
    let last = LAST_PANIC.lock().unwrap_or_else(PoisonError::into_inner).take();
    let message = last.unwrap_or_else(|| "unknown cause".into());
    AppError::failure(format!("internal error: {message}")).hint("please report this bug, with the command you typed")
}
