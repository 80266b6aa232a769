//! Clean end of a run on SIGINT, SIGTERM or SIGHUP. A second signal ends the program at once.

use std::sync::atomic::{AtomicBool, Ordering};

static STOP_REQUESTED: AtomicBool = AtomicBool::new(false);

/// Returns whether a signal has asked the program to stop.
pub(crate) fn is_stop_requested() -> bool {
    STOP_REQUESTED.load(Ordering::Relaxed)
}

/// Installs the handler: the first signal requests a stop, the second one exits with code 1.
pub(crate) fn install_handler() {
    // If no handler can be installed, the default action of the system applies.
    _ = ctrlc::set_handler(|| {
        if STOP_REQUESTED.swap(true, Ordering::Relaxed) {
            std::process::exit(1);
        }
    });
}
