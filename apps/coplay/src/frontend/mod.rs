//! Front ends: they show a scene and send back what is pressed and wanted. A window where there is a display, a terminal where
//! there is none.

pub mod terminal;
pub mod window;

use std::io::IsTerminal;
use std::path::PathBuf;

use crate::config::Config;
use crate::error::AppError;
use crate::ui_link::{GamePort, ui_link};

/// Where to show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrontendKind {
    /// In a window.
    Window,
    /// In a window, or in the terminal if none can be opened.
    WindowOrTerminal,
    /// In the terminal that we were started from.
    Terminal,
}

/// What a person asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrontendRequest {
    /// A window, whatever there is.
    pub window: bool,
    /// The terminal, whatever there is.
    pub terminal: bool,
}

/// How it looks.
#[derive(Clone, Debug, Default)]
pub struct DisplayOptions {
    /// What is shown.
    pub title: String,
    /// How many pictures there are, their rows and their aspect: a window begins with room for them.
    pub pictures: (usize, usize, f32),
    /// Room for a graph and dials.
    pub has_graph: bool,
    /// Where the last picture of all goes.
    pub screenshot: Option<PathBuf>,
}

/// What is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AvailableOutputs {
    /// A display for windows.
    pub has_display: bool,
    /// A terminal that shows what we write, and gives us what is typed.
    pub has_terminal: bool,
}

impl AvailableOutputs {
    /// Looks around.
    pub fn detect() -> Self {
        let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let display = !cfg!(target_os = "linux") || set("DISPLAY") || set("WAYLAND_DISPLAY");
        Self { has_display: display, has_terminal: std::io::stdout().is_terminal() && std::io::stdin().is_terminal() }
    }
}

impl FrontendKind {
    /// The best that there is for what was asked; `None` where there is nothing and nothing special was asked for.
    pub fn choose(asked: FrontendRequest, here: AvailableOutputs) -> Result<Option<Self>, AppError> {
        match (asked.window, asked.terminal) {
            (true, _) if !here.has_display => Err(AppError::failure("there is no display to open a window on")
                .hint("say --terminal to play in this terminal, or --headless to see nothing")),
            (_, true) if !here.has_terminal => Err(AppError::failure("input or output is not a terminal")
                .hint("start it from a terminal, without redirecting anything, or say --headless")),
            (true, _) => Ok(Some(Self::Window)),
            (_, true) => Ok(Some(Self::Terminal)),
            _ if here.has_display && here.has_terminal => Ok(Some(Self::WindowOrTerminal)),
            _ if here.has_display => Ok(Some(Self::Window)),
            _ if here.has_terminal => Ok(Some(Self::Terminal)),
            _ => Ok(None),
        }
    }

    /// The same where something must be seen.
    pub fn choose_required(asked: FrontendRequest) -> Result<Self, AppError> {
        Self::choose(asked, AvailableOutputs::detect())?.ok_or_else(|| {
            AppError::failure("there is neither a display nor a terminal to show anything on")
                .hint("say --headless to run without")
        })
    }
}

/// Runs a game on a thread of its own and shows it here until it ends; whoever closes the front end ends it.
pub fn run_with_frontend<T: Send>(
    front: FrontendKind,
    look: &DisplayOptions,
    config: &Config,
    game: impl FnOnce(GamePort) -> Result<T, AppError> + Send,
) -> Result<T, AppError> {
    let (stage, view) = ui_link();
    std::thread::scope(|scope| {
        let game = std::thread::Builder::new().name("game".into()).spawn_scoped(scope, || {
            stage.wait_until_ready();
            game(stage)
        });
        let game = game.map_err(|error| AppError::failure(format!("no thread for the game: {error}")))?;
        // The view is dropped with the front end, which tells the game to end.
        let shown = match front {
            FrontendKind::Window => window::run(view, look, config).unwrap_or_else(|closed| Err(closed.1)),
            FrontendKind::WindowOrTerminal => window::run(view, look, config).unwrap_or_else(|closed| {
                let (view, trouble) = *closed;
                eprintln!("{}", trouble.as_note());
                terminal::run(view, look, config)
            }),
            FrontendKind::Terminal => terminal::run(view, look, config),
        };
        let outcome = game.join().unwrap_or_else(|_| Err(crate::panic_hook::internal_error()));
        shown.and(outcome)
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
