//! Asks the program to end cleanly on SIGINT (Ctrl-C), SIGHUP or SIGTERM. A second signal ends it at once.

use std::sync::atomic::{AtomicBool, Ordering};

static IS_STOP_REQUESTED: AtomicBool = AtomicBool::new(false);

/// Signal that arrived, as the number of signals before it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopSignal {
    /// First signal: the program is asked to end.
    First,
    /// Later signal: the program ends with exit code 1 as soon as its handler returns.
    Repeated,
}

/// Returns whether a signal asked the program to end.
pub fn is_stop_requested() -> bool {
    IS_STOP_REQUESTED.load(Ordering::Relaxed)
}

/// Installs the signal handler. From the first signal on, [`is_stop_requested`] returns `true`. A second signal ends
/// the program at once.
pub fn install_handler() {
    install_handler_with(|_| ());
}

/// Installs the signal handler, as [`install_handler`] does; it also calls `on_signal` for every signal.
pub fn install_handler_with(on_signal: impl Fn(StopSignal) + Send + 'static) {
    // If no handler can be installed, the default action of the signal ends the program.
    _ = ctrlc::set_handler(move || {
        if !IS_STOP_REQUESTED.swap(true, Ordering::Relaxed) {
            return on_signal(StopSignal::First);
        }
        on_signal(StopSignal::Repeated);
        std::process::exit(1);
    });
}
