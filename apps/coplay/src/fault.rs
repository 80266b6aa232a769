//! Faults of our own: told in one sentence, at the place that can tell it. A machine may catch one on its way, and then nobody hears of it.

use std::panic::PanicHookInfo;
use std::sync::{Mutex, PoisonError};

use crate::trouble::Trouble;

/// What the last fault was.
static LAST: Mutex<Option<String>> = Mutex::new(None);

/// Keeps faults to be told, from now on.
pub(crate) fn listen() {
    std::panic::set_hook(Box::new(note));
}

fn note(info: &PanicHookInfo<'_>) {
    let place =
        info.location().map_or_else(String::new, |place| format!(" in {}, line {}", place.file(), place.line()));
    let what = info.payload_as_str().unwrap_or("something that should not happen");
    *LAST.lock().unwrap_or_else(PoisonError::into_inner) = Some(format!("{what}{place}"));
}

/// The last fault, as a person is told.
pub(crate) fn trouble() -> Trouble {
    let last = LAST.lock().unwrap_or_else(PoisonError::into_inner).take();
    let what = last.unwrap_or_else(|| "something that should not happen".into());
    Trouble::failure(format!("coplay has a fault: {what}")).hint("please tell those who make it what you did")
}
