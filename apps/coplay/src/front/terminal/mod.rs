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

use super::Look;
use crate::config::Config;
use crate::hands::Keyboard;
use crate::scene::Command;
use crate::stage::View;
use crate::trouble::{Trouble, in_words};
use grid::{Colours, Grid};
use keys::{Holds, Stroke, is_interrupt, typed};

/// Pictures are at least this far apart: a terminal is not a screen, and lines are thin.
const DRAW_EVERY: Duration = Duration::from_millis(33);
/// How long keys may wait.
const WAIT: Duration = Duration::from_millis(5);

/// Terminals keep the title of their window on a stack.
const KEEP_TITLE: &[u8] = b"\x1b[22;2t";
const RESTORE_TITLE: &[u8] = b"\x1b[23;2t";

/// The terminal is not as we found it.
static CHANGED: AtomicBool = AtomicBool::new(false);
/// It was asked to tell when keys go up.
static TELLS: AtomicBool = AtomicBool::new(false);

/// Gives the terminal back as it was found. Does nothing where it was not changed; can be called at any time, also from a panic.
pub fn restore() {
    if !CHANGED.swap(false, Ordering::SeqCst) {
        return;
    }
    let mut out = stdout();
    if TELLS.swap(false, Ordering::SeqCst) {
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
pub(crate) fn is_gone() -> bool {
    use std::io::IsTerminal as _;
    CHANGED.load(Ordering::SeqCst) && !std::io::stdin().is_terminal()
}

/// The terminal, for as long as it is ours.
struct Ours;

impl Ours {
    fn take() -> std::io::Result<Self> {
        terminal::enable_raw_mode()?;
        CHANGED.store(true, Ordering::SeqCst);
        let ours = Self;
        let mut out = stdout();
        out.write_all(KEEP_TITLE)?;
        execute!(out, terminal::EnterAlternateScreen, cursor::Hide, EnableFocusChange)?;
        if terminal::supports_keyboard_enhancement().unwrap_or(false) {
            // With the sign that a key gives, not only the one that is printed on it: `?` is not `/`.
            let flags = Flags::DISAMBIGUATE_ESCAPE_CODES
                | Flags::REPORT_EVENT_TYPES
                | Flags::REPORT_ALL_KEYS_AS_ESCAPE_CODES
                | Flags::REPORT_ALTERNATE_KEYS;
            execute!(out, PushKeyboardEnhancementFlags(flags))?;
            TELLS.store(true, Ordering::SeqCst);
        }
        Ok(ours)
    }
}

impl Drop for Ours {
    fn drop(&mut self) {
        restore();
    }
}

/// The terminal as a front end.
struct Front {
    view: View,
    keyboard: Keyboard,
    holds: Holds,
    colours: Colours,
    grid: Grid,
    shown: Option<Grid>,
    out: Vec<u8>,
}

/// Shows a game until it is over, or somebody ends it.
pub(super) fn run(view: View, look: &Look, config: &Config) -> Result<(), Trouble> {
    let broken = |error: std::io::Error| {
        Trouble::failure(format!("the terminal cannot be used: {}", in_words(&error)))
            .hint("say --headless to run without")
    };
    let ours = Ours::take().map_err(broken)?;
    let title = terminal::SetTitle(format!("{} – coplay", look.title));
    execute!(stdout(), title).map_err(broken)?;
    let mut front = Front {
        view,
        keyboard: Keyboard::new(config),
        holds: Holds::new(TELLS.load(Ordering::SeqCst) || cfg!(windows)),
        colours: colours(),
        grid: Grid::new(0, 0),
        shown: None,
        out: vec![],
    };
    let ended = front.run().map_err(broken);
    drop(ours);
    ended?;
    match &look.screenshot {
        Some(path) => std::fs::write(path, front.grid.text())
            .map_err(|error| Trouble::failure(format!("{} cannot be written: {}", path.display(), in_words(&error)))),
        None => Ok(()),
    }
}

/// What the terminal says of its colours.
fn colours() -> Colours {
    let says = |name: &str, words: &[&str]| {
        std::env::var(name).is_ok_and(|value| words.iter().any(|word| value.to_lowercase().contains(word)))
    };
    let all = says("COLORTERM", &["truecolor", "24bit"])
        || says("TERM", &["direct", "truecolor", "kitty", "alacritty", "ghostty", "foot", "wezterm"])
        || std::env::var_os("WT_SESSION").is_some();
    if all { Colours::All } else { Colours::Few }
}

impl Front {
    fn run(&mut self) -> std::io::Result<()> {
        let (mut next, mut fresh) = (Instant::now(), false);
        self.view.ready();
        while !self.view.is_over() {
            while event::poll(if self.view.is_over() { Duration::ZERO } else { WAIT })? {
                let event = event::read()?;
                fresh |= matches!(event, Event::Resize(..));
                self.on_event(&event);
                if Instant::now() >= next {
                    break;
                }
            }
            self.let_go();
            fresh |= self.view.look();
            if fresh && Instant::now() >= next {
                next = Instant::now() + DRAW_EVERY;
                fresh = false;
                self.draw()?;
            }
        }
        // How it ended is seen, too.
        if self.view.look() { self.draw() } else { Ok(()) }
    }

    fn on_event(&mut self, event: &Event) {
        match event {
            Event::Key(key) if is_interrupt(key) => self.view.send(Command::Quit),
            Event::Key(key) if self.view.scene().typing.is_some() && key.kind != KeyEventKind::Release => {
                if let Some(command) = typed(key) {
                    self.view.send(command);
                }
            }
            Event::Key(key) => {
                let mut strokes = vec![];
                self.holds.on_event(Instant::now(), key, |stroke| strokes.push(stroke));
                strokes.into_iter().for_each(|stroke| self.on_stroke(stroke));
            }
            Event::FocusLost => {
                if let Some(command) = self.keyboard.let_go(self.view.hands()) {
                    self.view.send(command);
                }
            }
            Event::Resize(..) => self.shown = None,
            _ => {}
        }
    }

    fn let_go(&mut self) {
        let mut strokes = vec![];
        self.holds.on_time(Instant::now(), |stroke| strokes.push(stroke));
        strokes.into_iter().for_each(|stroke| self.on_stroke(stroke));
    }

    fn on_stroke(&mut self, Stroke { key, down, shift }: Stroke) {
        let menu = self.view.scene().overlay.as_ref().is_some_and(|overlay| overlay.chosen.is_some());
        if let Some(command) = self.keyboard.on_key(self.view.hands(), key, down, shift, menu) {
            self.view.send(command);
        }
    }

    fn draw(&mut self) -> std::io::Result<()> {
        let (columns, rows) = terminal::size()?;
        if (self.grid.columns, self.grid.rows) != (usize::from(columns), usize::from(rows)) {
            self.grid = Grid::new(usize::from(columns), usize::from(rows));
        }
        draw::draw(self.view.scene(), &mut self.grid);
        draw::draw_lack_of_room(&mut self.grid);
        self.out.clear();
        self.out.extend_from_slice(b"\x1b[?2026h");
        if self.shown.is_none() {
            self.out.extend_from_slice(b"\x1b[2J");
        }
        self.grid.paint(self.shown.as_ref(), self.colours, &mut self.out);
        self.out.extend_from_slice(b"\x1b[?2026l");
        self.shown = Some(self.grid.clone());
        let mut out = stdout().lock();
        out.write_all(&self.out)?;
        out.flush()
    }
}
