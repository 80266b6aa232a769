//! Ends a run cleanly when somebody outside asks for it: Ctrl-C, a hang-up, a shutdown.

use std::sync::atomic::{AtomicBool, Ordering};

/// A game needs no longer than this to end.
const GOODBYE: std::time::Duration = std::time::Duration::from_secs(2);

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
        // Who waits for keys from a terminal that was closed waits for ever: the game says goodbye, and that is all.
        if crate::front::terminal::is_gone() {
            std::thread::sleep(GOODBYE);
            std::process::exit(1);
        }
    });
}
