//! Front ends. A front end draws the newest scene of a game, and sends pressed buttons and commands back. The default
//! is a window where there is a display, and the terminal otherwise.

pub mod terminal;
pub mod window;

use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::Duration;

use coplay_shell::error::AppError;
use coplay_shell::panic_hook;

use crate::config::{Action, UserSettings};
use crate::key::Key;
use crate::scene::{join_footer, key_hint};
use crate::ui_link::{GamePort, ui_link};

/// Time in which a second request to quit confirms the first.
pub(crate) const QUIT_CONFIRM_TIMEOUT: Duration = Duration::from_secs(5);

/// Kind of front end that shows a game.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrontendKind {
    /// A window; an error if none can be opened.
    Window,
    /// A window, or the terminal if no window can be opened.
    WindowOrTerminal,
    /// The terminal that the program was started from.
    Terminal,
}

/// Front end that the user requested on the command line. If neither flag is set, the program chooses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrontendRequest {
    /// `--window`: fails without a display.
    pub window: bool,
    /// `--terminal`: fails if stdin or stdout is not a terminal.
    pub terminal: bool,
}

/// Title and initial size of a front end.
#[derive(Clone, Debug, Default)]
pub struct DisplayOptions {
    /// Title of the window or terminal.
    pub title: String,
    /// Number of pictures, pixel rows of each, and aspect ratio (width divided by height). The initial size of a window
    /// fits them.
    pub pictures: (usize, usize, f32),
    /// Whether the initial size leaves room for a graph and dials.
    pub has_graph: bool,
    /// File for a screenshot that is taken at the end; `None` takes none.
    pub screenshot: Option<PathBuf>,
}

/// Outputs on which this process can show a game.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AvailableOutputs {
    /// Whether there seems to be a display. Opening a window on it may still fail.
    pub has_display: bool,
    /// Whether stdin and stdout are both a terminal.
    pub has_terminal: bool,
}

impl AvailableOutputs {
    /// Detects the outputs. On Linux there is a display if `DISPLAY` or `WAYLAND_DISPLAY` is set; other systems always
    /// have one.
    pub fn detect() -> Self {
        let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let display = !cfg!(target_os = "linux") || set("DISPLAY") || set("WAYLAND_DISPLAY");
        Self { has_display: display, has_terminal: std::io::stdout().is_terminal() && std::io::stdin().is_terminal() }
    }
}

impl FrontendKind {
    /// Chooses the best available front end for a request. Returns `None` if there is no output and none was requested.
    /// Fails if the requested output is not available.
    pub fn choose(request: FrontendRequest, available: AvailableOutputs) -> Result<Option<Self>, AppError> {
        match (request.window, request.terminal) {
            (true, _) if !available.has_display => Err(AppError::failure("cannot open a window: there is no display")
                .hint("use --terminal to play in this terminal, or --headless to run without a picture")),
            (_, true) if !available.has_terminal => {
                Err(AppError::failure("standard input or output is not a terminal")
                    .hint("start coplay in a terminal without redirection, or use --headless"))
            }
            (true, _) => Ok(Some(Self::Window)),
            (_, true) => Ok(Some(Self::Terminal)),
            _ if available.has_display && available.has_terminal => Ok(Some(Self::WindowOrTerminal)),
            _ if available.has_display => Ok(Some(Self::Window)),
            _ if available.has_terminal => Ok(Some(Self::Terminal)),
            _ => Ok(None),
        }
    }

    /// Chooses a front end for a command that needs one. Fails if there is neither a display nor a terminal.
    pub fn choose_required(request: FrontendRequest) -> Result<Self, AppError> {
        Self::choose(request, AvailableOutputs::detect())?.ok_or_else(|| {
            AppError::failure("neither a display nor a terminal is available")
                .hint("use --headless to run without a picture")
        })
    }
}

/// Returns the text at the right end of the status line: the keys that open the list of keys and the menu. Many
/// terminals keep F1 for themselves, so a front end chooses which of the `help` keys it names.
fn status_keys(help: Option<&Key>, config: &UserSettings) -> String {
    let help = help.map(|key| key.label()).unwrap_or_default();
    join_footer(&[key_hint(&help, "keys"), key_hint(&config.key_label(Action::Menu), "menu")])
}

/// Runs a game on its own thread and a front end on the calling thread until the game ends. Closing the front end ends
/// the game.
pub fn run_with_frontend<T: Send>(
    kind: FrontendKind,
    options: &DisplayOptions,
    config: &UserSettings,
    game: impl FnOnce(GamePort) -> Result<T, AppError> + Send,
) -> Result<T, AppError> {
    let (game_port, frontend_port) = ui_link();
    std::thread::scope(|scope| {
        let game = std::thread::Builder::new().name("game".into()).spawn_scoped(scope, || {
            game_port.wait_until_ready();
            game(game_port)
        });
        let game = game.map_err(|error| {
            AppError::failure(format!("cannot start the game thread: {error}"))
                .hint("close other programs, and run the same command again")
        })?;
        // The port is dropped with the front end, and the game then receives `UiCommand::Exit`.
        let frontend_result = match kind {
            FrontendKind::Window => window::run(frontend_port, options, config).unwrap_or_else(|closed| Err(closed.1)),
            FrontendKind::WindowOrTerminal => window::run(frontend_port, options, config).unwrap_or_else(|closed| {
                let (port, error) = *closed;
                eprintln!("{}", error.as_note());
                terminal::run(port, options, config)
            }),
            FrontendKind::Terminal => terminal::run(frontend_port, options, config),
        };
        let outcome = game.join().unwrap_or_else(|_| Err(panic_hook::internal_error()));
        frontend_result.and(outcome)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window_is_preferred_and_no_output_gives_none() {
        let choose = |window, terminal, display, tty| {
            FrontendKind::choose(
                FrontendRequest { window, terminal },
                AvailableOutputs { has_display: display, has_terminal: tty },
            )
        };
        assert_eq!(choose(false, false, true, true).unwrap(), Some(FrontendKind::WindowOrTerminal));
        assert_eq!(choose(false, false, true, false).unwrap(), Some(FrontendKind::Window));
        assert_eq!(choose(true, false, true, true).unwrap(), Some(FrontendKind::Window));
        assert_eq!(choose(false, false, false, true).unwrap(), Some(FrontendKind::Terminal));
        assert_eq!(choose(false, false, false, false).unwrap(), None);
        assert_eq!(choose(false, true, true, true).unwrap(), Some(FrontendKind::Terminal));
        assert!(choose(true, false, false, true).is_err() && choose(false, true, true, false).is_err());
    }
}
