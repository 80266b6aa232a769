//! Ends a run cleanly when somebody outside asks for it: Ctrl-C, a hang-up, a shutdown.

use std::sync::atomic::{AtomicBool, Ordering};

/// A game needs no longer than this to end.
const SHUTDOWN_GRACE: std::time::Duration = std::time::Duration::from_secs(2);

static IS_STOP_REQUESTED: AtomicBool = AtomicBool::new(false);

/// Whether it is time to end.
pub fn is_stop_requested() -> bool {
    IS_STOP_REQUESTED.load(Ordering::Relaxed)
}

/// Listens to signals from now on. Who asks twice does not want to wait.
pub fn install_handler() {
    // Without a handler the system's own does the job.
    _ = ctrlc::set_handler(|| {
        if IS_STOP_REQUESTED.swap(true, Ordering::Relaxed) {
            crate::frontend::terminal::restore();
            std::process::exit(1);
        }
        // Who waits for keys from a terminal that was closed waits for ever: the game says goodbye, and that is all.
        if crate::frontend::terminal::is_closed() {
            std::thread::sleep(SHUTDOWN_GRACE);
            std::process::exit(1);
        }
    });
}
