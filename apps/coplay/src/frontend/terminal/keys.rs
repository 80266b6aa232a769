//! Keys of a terminal.
//!
//! Most terminals tell when a key goes down and again and again while it is held, but not when it goes up. Those with the keyboard protocol of kitty
//! do tell, and are asked to. For the others a key counts as held for a while after it went down, until the first repeat should have come, and
//! for a shorter while after each repeat; a direction lets go of the opposite one at once. So a tap lasts a bit longer than the
//! finger, and a held key stays held.

use std::time::{Duration, Instant};

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use crate::input_state::edit_command;
use crate::key::Key;
use crate::scene::UiCommand;

/// How long a key counts as held after it went down, and after it was repeated.
const HOLD_AFTER_PRESS: Duration = Duration::from_millis(320);
const HOLD_AFTER_REPEAT: Duration = Duration::from_millis(110);
const OPPOSITES: [(&str, &str); 4] = [("Left", "Right"), ("Right", "Left"), ("Up", "Down"), ("Down", "Up")];

/// What happened to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KeyChange {
    pub(super) key: Key,
    pub(super) is_down: bool,
    pub(super) has_shift: bool,
}

/// Keys that are held as far as one can tell.
#[derive(Debug)]
pub(super) struct HeldKeys {
    /// The terminal tells when a key goes up.
    reports_releases: bool,
    held_until: Vec<(Key, Instant)>,
}

impl HeldKeys {
    pub(super) fn new(tells: bool) -> Self {
        Self { reports_releases: tells, held_until: vec![] }
    }

    /// A key event; gives out what that means.
    pub(super) fn on_event(&mut self, now: Instant, event: &KeyEvent, mut stroke: impl FnMut(KeyChange)) {
        let down = event.kind != KeyEventKind::Release;
        // What goes with these keys is for the terminal and its programs, not for a game.
        if down && event.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT | KeyModifiers::SUPER) {
            return;
        }
        let Some(key) = to_key(event.code) else { return };
        let shift = event.modifiers.contains(KeyModifiers::SHIFT) || event.code == KeyCode::BackTab;
        if self.reports_releases || !down {
            return stroke(KeyChange { key, is_down: down, has_shift: shift });
        }
        let opposite =
            OPPOSITES.iter().find(|(name, _)| *name == key.name()).and_then(|(_, other)| Key::from_name(other));
        self.held_until.retain(|(held, _)| {
            let goes = Some(*held) == opposite;
            if goes {
                stroke(KeyChange { key: *held, is_down: false, has_shift: false });
            }
            !goes
        });
        stroke(KeyChange { key, is_down: true, has_shift: shift });
        match self.held_until.iter_mut().find(|(held, _)| *held == key) {
            Some((_, until)) => *until = (*until).max(now + HOLD_AFTER_REPEAT),
            None => self.held_until.push((key, now + HOLD_AFTER_PRESS)),
        }
    }

    /// Lets go of keys that were not repeated in time.
    pub(super) fn release_expired(&mut self, now: Instant, mut stroke: impl FnMut(KeyChange)) {
        self.held_until.retain(|(key, until)| {
            if *until <= now {
                stroke(KeyChange { key: *key, is_down: false, has_shift: false });
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
pub(super) fn typed_command(event: &KeyEvent) -> Option<UiCommand> {
    if event.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::SUPER) {
        return None;
    }
    match event.code {
        KeyCode::Char(sign) => Some(UiCommand::TypeChar(sign)),
        code => to_key(code).and_then(edit_command),
    }
}

fn to_key(code: KeyCode) -> Option<Key> {
    let name = match code {
        KeyCode::Char(sign) => return Key::from_char(sign),
        KeyCode::F(number @ 1..=12) => return Key::from_name(&format!("F{number}")),
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
    Key::from_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn press(code: KeyCode) -> KeyEvent {
        KeyEvent::new(code, KeyModifiers::NONE)
    }

    fn changes_on_press(holds: &mut HeldKeys, now: Instant, code: KeyCode) -> Vec<(&'static str, bool)> {
        let mut strokes = vec![];
        holds.on_event(now, &press(code), |stroke| strokes.push((stroke.key.name(), stroke.is_down)));
        strokes
    }

    fn changes_on_time(holds: &mut HeldKeys, now: Instant) -> Vec<(&'static str, bool)> {
        let mut strokes = vec![];
        holds.release_expired(now, |stroke| strokes.push((stroke.key.name(), stroke.is_down)));
        strokes
    }

    #[test]
    fn key_is_held_while_it_repeats() {
        let (mut holds, start) = (HeldKeys::new(false), Instant::now());
        assert_eq!(changes_on_press(&mut holds, start, KeyCode::Char('x')), [("X", true)]);
        assert_eq!(changes_on_time(&mut holds, start + HOLD_AFTER_PRESS / 2), []);
        for repeat in 0..20 {
            let now = start + HOLD_AFTER_PRESS * 9 / 10 + HOLD_AFTER_REPEAT * repeat / 3;
            changes_on_press(&mut holds, now, KeyCode::Char('x'));
            assert_eq!(changes_on_time(&mut holds, now), []);
        }
        assert_eq!(changes_on_time(&mut holds, start + HOLD_AFTER_PRESS * 10), [("X", false)]);
        assert_eq!(changes_on_time(&mut holds, start + HOLD_AFTER_PRESS * 11), []);
    }

    #[test]
    fn direction_releases_the_opposite_one() {
        let (mut holds, now) = (HeldKeys::new(false), Instant::now());
        changes_on_press(&mut holds, now, KeyCode::Left);
        changes_on_press(&mut holds, now, KeyCode::Up);
        assert_eq!(changes_on_press(&mut holds, now, KeyCode::Right), [("Left", false), ("Right", true)]);
    }

    #[test]
    fn typing_gives_characters_and_edit_commands() {
        assert_eq!(typed_command(&press(KeyCode::Char('é'))), Some(UiCommand::TypeChar('é')));
        assert_eq!(typed_command(&press(KeyCode::Backspace)), Some(UiCommand::EraseChar));
        assert_eq!(typed_command(&press(KeyCode::Esc)), Some(UiCommand::Menu));
        assert_eq!(typed_command(&press(KeyCode::F(5))), None);
        assert_eq!(typed_command(&KeyEvent::new(KeyCode::Char('a'), KeyModifiers::CONTROL)), None);
    }

    #[test]
    fn held_interrupt_key_requests_quit_once() {
        let event = |sign, kind| KeyEvent::new_with_kind(KeyCode::Char(sign), KeyModifiers::CONTROL, kind);
        for sign in ['c', 'Q'] {
            assert!(is_interrupt(&event(sign, KeyEventKind::Press)));
            assert!(!is_interrupt(&event(sign, KeyEventKind::Repeat)));
            assert!(!is_interrupt(&event(sign, KeyEventKind::Release)));
        }
        assert!(!is_interrupt(&press(KeyCode::Char('q'))));
    }

    #[test]
    fn reported_key_releases_are_used() {
        let (mut holds, now) = (HeldKeys::new(true), Instant::now());
        assert_eq!(changes_on_press(&mut holds, now, KeyCode::F(5)), [("F5", true)]);
        assert_eq!(changes_on_time(&mut holds, now + HOLD_AFTER_PRESS * 9), []);
        let up = KeyEvent::new_with_kind(KeyCode::F(5), KeyModifiers::NONE, KeyEventKind::Release);
        let mut strokes = vec![];
        holds.on_event(now, &up, |stroke| strokes.push(stroke.is_down));
        assert_eq!(strokes, [false]);
    }
}
