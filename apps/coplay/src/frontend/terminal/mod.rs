//! Terminal front end: draws pictures with coloured half blocks. It sends only changed cells, so that it is fast enough
//! over ssh.

mod draw;
mod grid;
mod keys;

use std::io::{Write, stdout};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use coplay_shell::error::{AppError, describe_io_error};
use crossterm::event::{
    self, DisableFocusChange, EnableFocusChange, Event, KeyEventKind, KeyboardEnhancementFlags as Flags,
    PopKeyboardEnhancementFlags, PushKeyboardEnhancementFlags,
};
use crossterm::{cursor, execute, terminal};

use super::{DisplayOptions, status_keys};
use crate::config::{Action, UserSettings};
use crate::input_state::Keyboard;
use crate::scene::UiCommand;
use crate::ui_link::FrontendPort;
use grid::{ColourDepth, Grid};
use keys::{HeldKeys, KeyChange, is_interrupt, typed_command};

/// Minimum interval between redraws. About 30 redraws per second limit the traffic to a remote terminal.
const DRAW_INTERVAL: Duration = Duration::from_millis(33);
/// Longest wait for a key event before the newest scene is taken.
const KEY_POLL_TIMEOUT: Duration = Duration::from_millis(5);

/// Escape sequence that pushes the window title onto the terminal's title stack.
const SAVE_TITLE: &[u8] = b"\x1b[22;2t";
/// Escape sequence that pops the window title from the terminal's title stack.
const RESTORE_TITLE: &[u8] = b"\x1b[23;2t";

/// Whether this process has changed the terminal's state and must restore it.
static IS_TERMINAL_CHANGED: AtomicBool = AtomicBool::new(false);
/// Whether this process has enabled key release reports (kitty keyboard protocol).
static ARE_KEY_RELEASES_ENABLED: AtomicBool = AtomicBool::new(false);

/// Restores the terminal to its original state. Does nothing if this process has not changed that state. May be called
/// at any time, also after a panic.
pub fn restore() {
    if !IS_TERMINAL_CHANGED.swap(false, Ordering::SeqCst) {
        return;
    }
    let mut out = stdout();
    if ARE_KEY_RELEASES_ENABLED.swap(false, Ordering::SeqCst) {
        _ = execute!(out, PopKeyboardEnhancementFlags);
    }
    _ = out.write_all(RESTORE_TITLE);
    _ = execute!(
        out,
        DisableFocusChange,
        terminal::EndSynchronizedUpdate,
        // After a resize some terminals keep remains of the picture.
        terminal::Clear(terminal::ClearType::All),
        cursor::MoveTo(0, 0),
        cursor::Show,
        terminal::LeaveAlternateScreen
    );
    _ = terminal::disable_raw_mode();
}

/// Returns whether the terminal was closed while the front end used it.
pub(crate) fn is_closed() -> bool {
    use std::io::IsTerminal as _;
    IS_TERMINAL_CHANGED.load(Ordering::SeqCst) && !std::io::stdin().is_terminal()
}

/// Terminal in raw mode; dropping the guard restores the terminal.
struct TerminalGuard;

impl TerminalGuard {
    fn acquire() -> std::io::Result<Self> {
        terminal::enable_raw_mode()?;
        IS_TERMINAL_CHANGED.store(true, Ordering::SeqCst);
        let guard = Self;
        let mut out = stdout();
        out.write_all(SAVE_TITLE)?;
        execute!(out, terminal::EnterAlternateScreen, cursor::Hide, EnableFocusChange)?;
        if terminal::supports_keyboard_enhancement().unwrap_or(false) {
            // Alternate keys report the character that a key produces, not only its base key: `?` is not `/`.
            let flags = Flags::DISAMBIGUATE_ESCAPE_CODES
                | Flags::REPORT_EVENT_TYPES
                | Flags::REPORT_ALL_KEYS_AS_ESCAPE_CODES
                | Flags::REPORT_ALTERNATE_KEYS;
            execute!(out, PushKeyboardEnhancementFlags(flags))?;
            ARE_KEY_RELEASES_ENABLED.store(true, Ordering::SeqCst);
        }
        Ok(guard)
    }
}

impl Drop for TerminalGuard {
    fn drop(&mut self) {
        restore();
    }
}

/// Terminal front end: keyboard state, the grid for the next drawing, and the grid that the terminal shows.
struct TerminalFrontend {
    port: FrontendPort,
    keyboard: Keyboard,
    held_keys: HeldKeys,
    colour_depth: ColourDepth,
    /// Text at the right end of the status line.
    status_keys: String,
    grid: Grid,
    last_drawn: Option<Grid>,
    output: Vec<u8>,
}

/// Shows a game until it ends. Then writes the text of the last picture if a screenshot was requested.
pub(super) fn run(port: FrontendPort, options: &DisplayOptions, config: &UserSettings) -> Result<(), AppError> {
    let terminal_error = |error: std::io::Error| {
        AppError::failure(format!("cannot use the terminal: {}", describe_io_error(&error)))
            .hint("use --headless to run without a picture")
    };
    let guard = TerminalGuard::acquire().map_err(terminal_error)?;
    let title = terminal::SetTitle(format!("{} – coplay", options.title));
    execute!(stdout(), title).map_err(terminal_error)?;
    let mut frontend = TerminalFrontend {
        port,
        keyboard: Keyboard::new(config),
        held_keys: HeldKeys::new(ARE_KEY_RELEASES_ENABLED.load(Ordering::SeqCst) || cfg!(windows)),
        colour_depth: detect_colour_depth(),
        status_keys: status_keys(config.keys_of(Action::Help).last(), config),
        grid: Grid::new(0, 0),
        last_drawn: None,
        output: vec![],
    };
    let ended = frontend.run().map_err(terminal_error);
    drop(guard);
    ended?;
    match &options.screenshot {
        Some(path) => std::fs::write(path, frontend.grid.text()).map_err(|error| {
            AppError::failure(format!("cannot write {}: {}", path.display(), describe_io_error(&error)))
                .hint("choose another file with --screenshot FILE")
        }),
        None => Ok(()),
    }
}

/// Detects the colour depth from the environment variables `COLORTERM`, `TERM` and `WT_SESSION`.
fn detect_colour_depth() -> ColourDepth {
    let env_contains = |name: &str, words: &[&str]| {
        std::env::var(name).is_ok_and(|value| words.iter().any(|word| value.to_lowercase().contains(word)))
    };
    let is_true_colour = env_contains("COLORTERM", &["truecolor", "24bit"])
        || env_contains("TERM", &["direct", "truecolor", "kitty", "alacritty", "ghostty", "foot", "wezterm"])
        || std::env::var_os("WT_SESSION").is_some();
    if is_true_colour { ColourDepth::TrueColour } else { ColourDepth::Xterm256 }
}

impl TerminalFrontend {
    fn run(&mut self) -> std::io::Result<()> {
        let (mut next, mut needs_redraw) = (Instant::now(), false);
        self.port.set_ready();
        while !self.port.is_over() {
            while event::poll(if self.port.is_over() { Duration::ZERO } else { KEY_POLL_TIMEOUT })? {
                let event = event::read()?;
                needs_redraw |= matches!(event, Event::Resize(..));
                self.on_event(&event);
                if Instant::now() >= next {
                    break;
                }
            }
            self.release_expired_keys();
            needs_redraw |= self.port.refresh_scene();
            if needs_redraw && Instant::now() >= next {
                next = Instant::now() + DRAW_INTERVAL;
                needs_redraw = false;
                self.draw()?;
            }
        }
        // The last scene is drawn, too.
        if self.port.refresh_scene() { self.draw() } else { Ok(()) }
    }

    fn on_event(&mut self, event: &Event) {
        match event {
            Event::Key(key) if is_interrupt(key) => self.port.send(UiCommand::Quit),
            Event::Key(key) if self.port.scene().chat_draft.is_some() && key.kind != KeyEventKind::Release => {
                if let Some(command) = typed_command(key) {
                    self.port.send(command);
                }
            }
            Event::Key(key) => {
                let mut changes = vec![];
                self.held_keys.on_event(Instant::now(), key, |change| changes.push(change));
                changes.into_iter().for_each(|change| self.on_key_change(change));
            }
            Event::FocusLost => {
                if let Some(command) = self.keyboard.release_all(self.port.input_state()) {
                    self.port.send(command);
                }
            }
            Event::Resize(..) => self.last_drawn = None,
            _ => {}
        }
    }

    fn release_expired_keys(&mut self) {
        let mut changes = vec![];
        self.held_keys.release_expired(Instant::now(), |change| changes.push(change));
        changes.into_iter().for_each(|change| self.on_key_change(change));
    }

    fn on_key_change(&mut self, KeyChange { key, is_down, has_shift }: KeyChange) {
        let is_menu_open = self.port.scene().overlay.as_ref().is_some_and(|overlay| overlay.selected.is_some());
        if let Some(command) = self.keyboard.on_key(self.port.input_state(), key, is_down, has_shift, is_menu_open) {
            self.port.send(command);
        }
    }

    fn draw(&mut self) -> std::io::Result<()> {
        let (columns, rows) = terminal::size()?;
        if (self.grid.columns, self.grid.rows) != (usize::from(columns), usize::from(rows)) {
            self.grid = Grid::new(usize::from(columns), usize::from(rows));
        }
        draw::draw_scene(self.port.scene(), &self.status_keys, &mut self.grid);
        draw::draw_size_warning(&mut self.grid);
        self.output.clear();
        self.output.extend_from_slice(b"\x1b[?2026h");
        if self.last_drawn.is_none() {
            self.output.extend_from_slice(b"\x1b[2J");
        }
        self.grid.write_diff(self.last_drawn.as_ref(), self.colour_depth, &mut self.output);
        self.output.extend_from_slice(b"\x1b[?2026l");
        self.last_drawn = Some(self.grid.clone());
        let mut out = stdout().lock();
        out.write_all(&self.output)?;
        out.flush()
    }
}
