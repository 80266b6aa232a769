//! Front ends: they show a scene and send back what is pressed and wanted. A window where there is a display, a terminal where
//! there is none.

pub mod terminal;
pub mod window;

use std::io::IsTerminal;
use std::path::PathBuf;

use crate::config::Config;
use crate::stage::{Stage, stage};
use crate::trouble::Trouble;

/// Where to show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Front {
    /// In a window.
    Window,
    /// In a window, or in the terminal if none can be opened.
    Either,
    /// In the terminal that we were started from.
    Terminal,
}

/// What a person asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// A window, whatever there is.
    pub window: bool,
    /// The terminal, whatever there is.
    pub terminal: bool,
}

/// How it looks.
#[derive(Clone, Debug, Default)]
pub struct Look {
    /// What is shown.
    pub title: String,
    /// How many pictures there are, their rows and their aspect: a window begins with room for them.
    pub pictures: (usize, usize, f32),
    /// Room for a graph and dials.
    pub graph: bool,
    /// Where the last picture of all goes.
    pub screenshot: Option<PathBuf>,
}

/// What is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Available {
    /// A display for windows.
    pub display: bool,
    /// A terminal that shows what we write, and gives us what is typed.
    pub terminal: bool,
}

impl Available {
    /// Looks around.
    pub fn here() -> Self {
        let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let display = !cfg!(target_os = "linux") || set("DISPLAY") || set("WAYLAND_DISPLAY");
        Self { display, terminal: std::io::stdout().is_terminal() && std::io::stdin().is_terminal() }
    }
}

impl Front {
    /// The best that there is for what was asked; `None` where there is nothing and nothing special was asked for.
    pub fn choose(asked: Asked, here: Available) -> Result<Option<Self>, Trouble> {
        match (asked.window, asked.terminal) {
            (true, _) if !here.display => Err(Trouble::failure("there is no display to open a window on")
                .hint("say --terminal to play in this terminal, or --headless to see nothing")),
            (_, true) if !here.terminal => Err(Trouble::failure("input or output is not a terminal")
                .hint("start it from a terminal, without redirecting anything, or say --headless")),
            (true, _) => Ok(Some(Self::Window)),
            (_, true) => Ok(Some(Self::Terminal)),
            _ if here.display && here.terminal => Ok(Some(Self::Either)),
            _ if here.display => Ok(Some(Self::Window)),
            _ if here.terminal => Ok(Some(Self::Terminal)),
            _ => Ok(None),
        }
    }

    /// The same where something must be seen.
    pub fn need(asked: Asked) -> Result<Self, Trouble> {
        Self::choose(asked, Available::here())?.ok_or_else(|| {
            Trouble::failure("there is neither a display nor a terminal to show anything on")
                .hint("say --headless to run without")
        })
    }
}

/// Runs a game on a thread of its own and shows it here until it ends; whoever closes the front end ends it.
pub fn show<T: Send>(
    front: Front,
    look: &Look,
    config: &Config,
    game: impl FnOnce(Stage) -> Result<T, Trouble> + Send,
) -> Result<T, Trouble> {
    let (stage, view) = stage();
    std::thread::scope(|scope| {
        let game = std::thread::Builder::new().name("game".into()).spawn_scoped(scope, || {
            stage.wait();
            game(stage)
        });
        let game = game.map_err(|error| Trouble::failure(format!("no thread for the game: {error}")))?;
        // The view is dropped with the front end, which tells the game to end.
        let shown = match front {
            Front::Window => window::run(view, look, config).unwrap_or_else(|closed| Err(closed.1)),
            Front::Either => window::run(view, look, config).unwrap_or_else(|closed| {
                let (view, trouble) = *closed;
                eprintln!("{}", trouble.as_note());
                terminal::run(view, look, config)
            }),
            Front::Terminal => terminal::run(view, look, config),
        };
        let outcome = game.join().unwrap_or_else(|_| Err(crate::fault::trouble()));
        shown.and(outcome)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_best_and_nothing_is_told() {
        let choose = |window, terminal, display, tty| {
            Front::choose(Asked { window, terminal }, Available { display, terminal: tty })
        };
        assert_eq!(choose(false, false, true, true).unwrap(), Some(Front::Either));
        assert_eq!(choose(false, false, true, false).unwrap(), Some(Front::Window));
        assert_eq!(choose(true, false, true, true).unwrap(), Some(Front::Window));
        assert_eq!(choose(false, false, false, true).unwrap(), Some(Front::Terminal));
        assert_eq!(choose(false, false, false, false).unwrap(), None);
        assert_eq!(choose(false, true, true, true).unwrap(), Some(Front::Terminal));
        assert!(choose(true, false, false, true).is_err() && choose(false, true, true, false).is_err());
    }
}
