//! Ends a run cleanly when somebody outside asks for it. Who asks twice does not want to wait.

use std::sync::atomic::{AtomicBool, Ordering};

static ASKED: AtomicBool = AtomicBool::new(false);

/// Whether it is time to end.
pub(crate) fn is_asked() -> bool {
    ASKED.load(Ordering::Relaxed)
}

/// Listens to signals from now on.
pub(crate) fn listen() {
    // Without a handler the system's own does the job.
    _ = ctrlc::set_handler(|| {
        if ASKED.swap(true, Ordering::Relaxed) {
            std::process::exit(1);
        }
    });
}
