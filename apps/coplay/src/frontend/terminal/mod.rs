//! A game in a terminal: half blocks in colour. Works over ssh; only cells that change are sent.

mod draw;
mod grid;
mod keys;

use std::io::{Write, stdout};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crossterm::event::{
    self, DisableFocusChange, EnableFocusChange, Event, KeyEventKind, KeyboardEnhancementFlags as Flags,
    PopKeyboardEnhancementFlags, PushKeyboardEnhancementFlags,
};
use crossterm::{cursor, execute, terminal};

use super::DisplayOptions;
use crate::config::Config;
use crate::error::{AppError, describe_io_error};
use crate::input_state::Keyboard;
use crate::scene::UiCommand;
use crate::ui_link::FrontendPort;
use grid::{ColourDepth, Grid};
use keys::{HeldKeys, KeyChange, is_interrupt, typed_command};

/// Pictures are at least this far apart: a terminal is not a screen, and lines are thin.
const DRAW_INTERVAL: Duration = Duration::from_millis(33);
/// How long keys may wait.
const KEY_POLL_TIMEOUT: Duration = Duration::from_millis(5);

/// Terminals keep the title of their window on a stack.
const SAVE_TITLE: &[u8] = b"\x1b[22;2t";
const RESTORE_TITLE: &[u8] = b"\x1b[23;2t";

/// The terminal is not as we found it.
static IS_TERMINAL_CHANGED: AtomicBool = AtomicBool::new(false);
/// It was asked to tell when keys go up.
static ARE_KEY_RELEASES_ENABLED: AtomicBool = AtomicBool::new(false);

/// Gives the terminal back as it was found. Does nothing where it was not changed; can be called at any time, also from a panic.
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
        // Where the size changed meanwhile, some terminals keep a part of what was there.
        terminal::Clear(terminal::ClearType::All),
        cursor::MoveTo(0, 0),
        cursor::Show,
        terminal::LeaveAlternateScreen
    );
    _ = terminal::disable_raw_mode();
}

/// Whether the terminal that we use was closed.
pub(crate) fn is_closed() -> bool {
    use std::io::IsTerminal as _;
    IS_TERMINAL_CHANGED.load(Ordering::SeqCst) && !std::io::stdin().is_terminal()
}

/// The terminal, for as long as it is ours.
struct TerminalGuard;

impl TerminalGuard {
    fn acquire() -> std::io::Result<Self> {
        terminal::enable_raw_mode()?;
        IS_TERMINAL_CHANGED.store(true, Ordering::SeqCst);
        let ours = Self;
        let mut out = stdout();
        out.write_all(SAVE_TITLE)?;
        execute!(out, terminal::EnterAlternateScreen, cursor::Hide, EnableFocusChange)?;
        if terminal::supports_keyboard_enhancement().unwrap_or(false) {
            // With the sign that a key gives, not only the one that is printed on it: `?` is not `/`.
            let flags = Flags::DISAMBIGUATE_ESCAPE_CODES
                | Flags::REPORT_EVENT_TYPES
                | Flags::REPORT_ALL_KEYS_AS_ESCAPE_CODES
                | Flags::REPORT_ALTERNATE_KEYS;
            execute!(out, PushKeyboardEnhancementFlags(flags))?;
            ARE_KEY_RELEASES_ENABLED.store(true, Ordering::SeqCst);
        }
        Ok(ours)
    }
}

impl Drop for TerminalGuard {
    fn drop(&mut self) {
        restore();
    }
}

/// The terminal as a front end.
struct TerminalFrontend {
    port: FrontendPort,
    keyboard: Keyboard,
    held_keys: HeldKeys,
    colour_depth: ColourDepth,
    grid: Grid,
    last_drawn: Option<Grid>,
    output: Vec<u8>,
}

/// Shows a game until it is over, or somebody ends it.
pub(super) fn run(view: FrontendPort, look: &DisplayOptions, config: &Config) -> Result<(), AppError> {
    let broken = |error: std::io::Error| {
        AppError::failure(format!("the terminal cannot be used: {}", describe_io_error(&error)))
            .hint("say --headless to run without")
    };
    let ours = TerminalGuard::acquire().map_err(broken)?;
    let title = terminal::SetTitle(format!("{} – coplay", look.title));
    execute!(stdout(), title).map_err(broken)?;
    let mut front = TerminalFrontend {
        port: view,
        keyboard: Keyboard::new(config),
        held_keys: HeldKeys::new(ARE_KEY_RELEASES_ENABLED.load(Ordering::SeqCst) || cfg!(windows)),
        colour_depth: detect_colour_depth(),
        grid: Grid::new(0, 0),
        last_drawn: None,
        output: vec![],
    };
    let ended = front.run().map_err(broken);
    drop(ours);
    ended?;
    match &look.screenshot {
        Some(path) => std::fs::write(path, front.grid.text()).map_err(|error| {
            AppError::failure(format!("{} cannot be written: {}", path.display(), describe_io_error(&error)))
        }),
        None => Ok(()),
    }
}

/// What the terminal says of its colours.
fn detect_colour_depth() -> ColourDepth {
    let says = |name: &str, words: &[&str]| {
        std::env::var(name).is_ok_and(|value| words.iter().any(|word| value.to_lowercase().contains(word)))
    };
    let all = says("COLORTERM", &["truecolor", "24bit"])
        || says("TERM", &["direct", "truecolor", "kitty", "alacritty", "ghostty", "foot", "wezterm"])
        || std::env::var_os("WT_SESSION").is_some();
    if all { ColourDepth::TrueColour } else { ColourDepth::Xterm256 }
}

impl TerminalFrontend {
    fn run(&mut self) -> std::io::Result<()> {
        let (mut next, mut fresh) = (Instant::now(), false);
        self.port.set_ready();
        while !self.port.is_over() {
            while event::poll(if self.port.is_over() { Duration::ZERO } else { KEY_POLL_TIMEOUT })? {
                let event = event::read()?;
                fresh |= matches!(event, Event::Resize(..));
                self.on_event(&event);
                if Instant::now() >= next {
                    break;
                }
            }
            self.release_expired_keys();
            fresh |= self.port.refresh_scene();
            if fresh && Instant::now() >= next {
                next = Instant::now() + DRAW_INTERVAL;
                fresh = false;
                self.draw()?;
            }
        }
        // How it ended is seen, too.
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
                let mut strokes = vec![];
                self.held_keys.on_event(Instant::now(), key, |stroke| strokes.push(stroke));
                strokes.into_iter().for_each(|stroke| self.on_key_change(stroke));
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
        let mut strokes = vec![];
        self.held_keys.release_expired(Instant::now(), |stroke| strokes.push(stroke));
        strokes.into_iter().for_each(|stroke| self.on_key_change(stroke));
    }

    fn on_key_change(&mut self, KeyChange { key, is_down: down, has_shift: shift }: KeyChange) {
        let menu = self.port.scene().overlay.as_ref().is_some_and(|overlay| overlay.selected.is_some());
        if let Some(command) = self.keyboard.on_key(self.port.input_state(), key, down, shift, menu) {
            self.port.send(command);
        }
    }

    fn draw(&mut self) -> std::io::Result<()> {
        let (columns, rows) = terminal::size()?;
        if (self.grid.columns, self.grid.rows) != (usize::from(columns), usize::from(rows)) {
            self.grid = Grid::new(usize::from(columns), usize::from(rows));
        }
        draw::draw_scene(self.port.scene(), &mut self.grid);
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
