//! Keys of a terminal.
//!
//! Most terminals tell when a key goes down and again and again while it is held, but not when it goes up. Those with the keyboard protocol of kitty
//! do tell, and are asked to. For the others a key counts as held for a while after it went down, until the first repeat should have come, and
//! for a shorter while after each repeat; a direction lets go of the opposite one at once. So a tap lasts a bit longer than the
//! finger, and a held key stays held.

use std::time::{Duration, Instant};

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use crate::hands::edits;
use crate::key::Key;
use crate::scene::Command;

/// How long a key counts as held after it went down, and after it was repeated.
const PRESSED: Duration = Duration::from_millis(320);
const REPEATED: Duration = Duration::from_millis(110);
const OPPOSITES: [(&str, &str); 4] = [("Left", "Right"), ("Right", "Left"), ("Up", "Down"), ("Down", "Up")];

/// What happened to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stroke {
    pub(super) key: Key,
    pub(super) down: bool,
    pub(super) shift: bool,
}

/// Keys that are held as far as one can tell.
#[derive(Debug)]
pub(super) struct Holds {
    /// The terminal tells when a key goes up.
    tells: bool,
    until: Vec<(Key, Instant)>,
}

impl Holds {
    pub(super) fn new(tells: bool) -> Self {
        Self { tells, until: vec![] }
    }

    /// A key event; gives out what that means.
    pub(super) fn on_event(&mut self, now: Instant, event: &KeyEvent, mut stroke: impl FnMut(Stroke)) {
        let down = event.kind != KeyEventKind::Release;
        // What goes with these keys is for the terminal and its programs, not for a game.
        if down && event.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT | KeyModifiers::SUPER) {
            return;
        }
        let Some(key) = translate(event.code) else { return };
        let shift = event.modifiers.contains(KeyModifiers::SHIFT) || event.code == KeyCode::BackTab;
        if self.tells || !down {
            return stroke(Stroke { key, down, shift });
        }
        let opposite = OPPOSITES.iter().find(|(name, _)| *name == key.name()).and_then(|(_, other)| Key::named(other));
        self.until.retain(|(held, _)| {
            let goes = Some(*held) == opposite;
            if goes {
                stroke(Stroke { key: *held, down: false, shift: false });
            }
            !goes
        });
        stroke(Stroke { key, down: true, shift });
        match self.until.iter_mut().find(|(held, _)| *held == key) {
            Some((_, until)) => *until = (*until).max(now + REPEATED),
            None => self.until.push((key, now + PRESSED)),
        }
    }

    /// Lets go of keys that were not repeated in time.
    pub(super) fn on_time(&mut self, now: Instant, mut stroke: impl FnMut(Stroke)) {
        self.until.retain(|(key, until)| {
            if *until <= now {
                stroke(Stroke { key: *key, down: false, shift: false });
            }
            *until > now
        });
    }
}

/// Whether the key asks to quit. Repeats of a held key do not: they would answer the question that the first press led to.
pub(super) fn is_interrupt(event: &KeyEvent) -> bool {
    let control = event.modifiers.contains(KeyModifiers::CONTROL);
    control && matches!(event.code, KeyCode::Char('c' | 'C' | 'q' | 'Q')) && event.kind == KeyEventKind::Press
}

/// What a key means to somebody who types.
pub(super) fn typed(event: &KeyEvent) -> Option<Command> {
    if event.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::SUPER) {
        return None;
    }
    match event.code {
        KeyCode::Char(sign) => Some(Command::Type(sign)),
        code => translate(code).and_then(edits),
    }
}

fn translate(code: KeyCode) -> Option<Key> {
    let name = match code {
        KeyCode::Char(sign) => return Key::typed(sign),
        KeyCode::F(number @ 1..=12) => return Key::named(&format!("F{number}")),
        KeyCode::Up => "Up",
        KeyCode::Down => "Down",
        KeyCode::Left => "Left",
        KeyCode::Right => "Right",
        KeyCode::Enter => "Enter",
        KeyCode::Tab | KeyCode::BackTab => "Tab",
        KeyCode::Esc => "Escape",
        KeyCode::Backspace => "Backspace",
        KeyCode::Insert => "Insert",
        KeyCode::Delete => "Delete",
        KeyCode::Home => "Home",
        KeyCode::End => "End",
        KeyCode::PageUp => "PageUp",
        KeyCode::PageDown => "PageDown",
        _ => return None,
    };
    Key::named(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn press(code: KeyCode) -> KeyEvent {
        KeyEvent::new(code, KeyModifiers::NONE)
    }

    fn told(holds: &mut Holds, now: Instant, code: KeyCode) -> Vec<(&'static str, bool)> {
        let mut strokes = vec![];
        holds.on_event(now, &press(code), |stroke| strokes.push((stroke.key.name(), stroke.down)));
        strokes
    }

    fn late(holds: &mut Holds, now: Instant) -> Vec<(&'static str, bool)> {
        let mut strokes = vec![];
        holds.on_time(now, |stroke| strokes.push((stroke.key.name(), stroke.down)));
        strokes
    }

    #[test]
    fn a_key_is_held_as_long_as_it_is_repeated() {
        let (mut holds, start) = (Holds::new(false), Instant::now());
        assert_eq!(told(&mut holds, start, KeyCode::Char('x')), [("X", true)]);
        assert_eq!(late(&mut holds, start + PRESSED / 2), []);
        for repeat in 0..20 {
            let now = start + PRESSED * 9 / 10 + REPEATED * repeat / 3;
            told(&mut holds, now, KeyCode::Char('x'));
            assert_eq!(late(&mut holds, now), []);
        }
        assert_eq!(late(&mut holds, start + PRESSED * 10), [("X", false)]);
        assert_eq!(late(&mut holds, start + PRESSED * 11), []);
    }

    #[test]
    fn a_direction_lets_go_of_the_opposite_one() {
        let (mut holds, now) = (Holds::new(false), Instant::now());
        told(&mut holds, now, KeyCode::Left);
        told(&mut holds, now, KeyCode::Up);
        assert_eq!(told(&mut holds, now, KeyCode::Right), [("Left", false), ("Right", true)]);
    }

    #[test]
    fn who_types_gives_letters() {
        assert_eq!(typed(&press(KeyCode::Char('é'))), Some(Command::Type('é')));
        assert_eq!(typed(&press(KeyCode::Backspace)), Some(Command::Erase));
        assert_eq!(typed(&press(KeyCode::Esc)), Some(Command::Menu));
        assert_eq!(typed(&press(KeyCode::F(5))), None);
        assert_eq!(typed(&KeyEvent::new(KeyCode::Char('a'), KeyModifiers::CONTROL)), None);
    }

    #[test]
    fn a_held_interrupt_asks_to_quit_once() {
        let event = |sign, kind| KeyEvent::new_with_kind(KeyCode::Char(sign), KeyModifiers::CONTROL, kind);
        for sign in ['c', 'Q'] {
            assert!(is_interrupt(&event(sign, KeyEventKind::Press)));
            assert!(!is_interrupt(&event(sign, KeyEventKind::Repeat)));
            assert!(!is_interrupt(&event(sign, KeyEventKind::Release)));
        }
        assert!(!is_interrupt(&press(KeyCode::Char('q'))));
    }

    #[test]
    fn a_terminal_that_tells_is_believed() {
        let (mut holds, now) = (Holds::new(true), Instant::now());
        assert_eq!(told(&mut holds, now, KeyCode::F(5)), [("F5", true)]);
        assert_eq!(late(&mut holds, now + PRESSED * 9), []);
        let up = KeyEvent::new_with_kind(KeyCode::F(5), KeyModifiers::NONE, KeyEventKind::Release);
        let mut strokes = vec![];
        holds.on_event(now, &up, |stroke| strokes.push(stroke.down));
        assert_eq!(strokes, [false]);
    }
}
