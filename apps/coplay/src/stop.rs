//! Ends a run cleanly when somebody outside asks for it: Ctrl-C, a hang-up, a shutdown.

use std::sync::atomic::{AtomicBool, Ordering};

static ASKED: AtomicBool = AtomicBool::new(false);

/// Whether it is time to end.
pub fn is_asked() -> bool {
    ASKED.load(Ordering::Relaxed)
}

/// Listens to signals from now on. Who asks twice does not want to wait.
pub fn listen() {
    // Without a handler the system's own does the job.
    _ = ctrlc::set_handler(|| {
        if ASKED.swap(true, Ordering::Relaxed) {
            crate::front::terminal::restore();
            std::process::exit(1);
        }
    });
}
