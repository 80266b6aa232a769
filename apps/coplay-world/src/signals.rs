//! Ends a run cleanly when somebody outside asks for it. Who asks twice does not want to wait.

use std::sync::atomic::{AtomicBool, Ordering};

static STOP_REQUESTED: AtomicBool = AtomicBool::new(false);

/// Whether it is time to end.
pub(crate) fn is_stop_requested() -> bool {
    STOP_REQUESTED.load(Ordering::Relaxed)
}

/// Listens to signals from now on.
pub(crate) fn install_handler() {
    // Without a handler the system's own does the job.
    _ = ctrlc::set_handler(|| {
        if STOP_REQUESTED.swap(true, Ordering::Relaxed) {
            std::process::exit(1);
        }
    });
}
