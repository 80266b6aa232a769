//! Signals of a game: they leave the terminal as it was, and end a game whose terminal was closed.

use std::time::Duration;

use coplay_shell::signals::StopSignal;
pub use coplay_shell::signals::is_stop_requested;

use crate::frontend::terminal;

/// Time that a game has to leave after its terminal was closed. Then the program ends.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(2);

/// Installs the signal handler. From the first signal on, [`is_stop_requested`] returns `true`. A second signal ends
/// the program at once.
pub fn install_handler() {
    coplay_shell::signals::install_handler_with(|signal| match signal {
        // A read from a closed terminal never returns, so the front end does not end. The game has time to leave.
        StopSignal::First if terminal::is_closed() => {
            std::thread::sleep(SHUTDOWN_GRACE);
            std::process::exit(1);
        }
        StopSignal::First => {}
        StopSignal::Repeated => terminal::restore(),
    });
}
