//! Faults of our own: told in one sentence, at the place that can tell it. A machine may catch one on its way, and then nobody hears of it.

use std::panic::PanicHookInfo;
use std::sync::{Mutex, PoisonError};

use crate::error::AppError;

/// What the last fault was.
static LAST_PANIC: Mutex<Option<String>> = Mutex::new(None);

/// Keeps faults to be told, from now on.
pub(crate) fn install() {
    std::panic::set_hook(Box::new(record_panic));
}

fn record_panic(info: &PanicHookInfo<'_>) {
    let place =
        info.location().map_or_else(String::new, |place| format!(" in {}, line {}", place.file(), place.line()));
    let what = info.payload_as_str().unwrap_or("something that should not happen");
    *LAST_PANIC.lock().unwrap_or_else(PoisonError::into_inner) = Some(format!("{what}{place}"));
}

/// The last fault, as a person is told.
pub(crate) fn internal_error() -> AppError {
    let last = LAST_PANIC.lock().unwrap_or_else(PoisonError::into_inner).take();
    let what = last.unwrap_or_else(|| "something that should not happen".into());
    AppError::failure(format!("coplay has a fault: {what}")).hint("please tell those who make it what you did")
}
