//! Asks the program to end cleanly on SIGINT (Ctrl-C), SIGHUP or SIGTERM.

use std::sync::atomic::{AtomicBool, Ordering};

/// Time that a game has to leave after its terminal was closed. Then the program ends.
const SHUTDOWN_GRACE: std::time::Duration = std::time::Duration::from_secs(2);

static IS_STOP_REQUESTED: AtomicBool = AtomicBool::new(false);

/// Returns whether a signal asked the program to end.
pub fn is_stop_requested() -> bool {
    IS_STOP_REQUESTED.load(Ordering::Relaxed)
}

/// Installs the signal handler. From the first signal on, [`is_stop_requested`] returns `true`. A second signal ends
/// the program at once.
pub fn install_handler() {
    // If no handler can be installed, the default action of the signal ends the program.
    _ = ctrlc::set_handler(|| {
        if IS_STOP_REQUESTED.swap(true, Ordering::Relaxed) {
            crate::frontend::terminal::restore();
            std::process::exit(1);
        }
        // A read from a closed terminal never returns, so the front end does not end. The game has time to leave.
        if crate::frontend::terminal::is_closed() {
            std::thread::sleep(SHUTDOWN_GRACE);
            std::process::exit(1);
        }
    });
}
