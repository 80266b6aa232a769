//! Keyboard input of a terminal, with releases that most terminals do not report.
//!
//! Most terminals report key presses and auto-repeats, but no releases. Terminals with the kitty keyboard protocol
//! report releases if asked to, and the front end asks; the console of Windows always reports them. In all other
//! terminals a key counts as held for 320 ms after a press, until the first auto-repeat is due, and for 110 ms after
//! each repeat. Pressing a direction releases the opposite one at once. So a tap lasts a bit longer than the physical
//! press, and a held key stays held.

use std::time::{Duration, Instant};

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use crate::input_state::edit_command;
use crate::key::Key;
use crate::scene::UiCommand;

/// Time for which a key counts as held after a press: longer than the usual delay before the first auto-repeat.
const HOLD_AFTER_PRESS: Duration = Duration::from_millis(320);
/// Time for which a key counts as held after an auto-repeat.
const HOLD_AFTER_REPEAT: Duration = Duration::from_millis(110);
const OPPOSITES: [(&str, &str); 4] = [("Left", "Right"), ("Right", "Left"), ("Up", "Down"), ("Down", "Up")];

/// Press or release of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KeyChange {
    pub(super) key: Key,
    pub(super) is_down: bool,
    pub(super) has_shift: bool,
}

/// Converts key events to presses and releases. If the terminal reports no releases, derives them from the time since
/// the last press or auto-repeat.
#[derive(Debug)]
pub(super) struct HeldKeys {
    /// Whether the terminal reports key releases.
    reports_releases: bool,
    /// Keys that are presumed to be held, each until a time; empty if the terminal reports releases.
    held_until: Vec<(Key, Instant)>,
}

impl HeldKeys {
    pub(super) fn new(reports_releases: bool) -> Self {
        Self { reports_releases, held_until: vec![] }
    }

    /// Handles a key event and passes the resulting presses and releases to `on_change`.
    pub(super) fn on_event(&mut self, now: Instant, event: &KeyEvent, mut on_change: impl FnMut(KeyChange)) {
        let is_down = event.kind != KeyEventKind::Release;
        // Combinations with these modifiers belong to the terminal, not to a game.
        if is_down && event.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT | KeyModifiers::SUPER) {
            return;
        }
        let Some(key) = to_key(event.code) else { return };
        let has_shift = event.modifiers.contains(KeyModifiers::SHIFT) || event.code == KeyCode::BackTab;
        if self.reports_releases || !is_down {
            return on_change(KeyChange { key, is_down, has_shift });
        }
        let opposite =
            OPPOSITES.iter().find(|(name, _)| *name == key.name()).and_then(|(_, other)| Key::from_name(other));
        self.held_until.retain(|(held, _)| {
            let is_opposite = Some(*held) == opposite;
            if is_opposite {
                on_change(KeyChange { key: *held, is_down: false, has_shift: false });
            }
            !is_opposite
        });
        on_change(KeyChange { key, is_down: true, has_shift });
        match self.held_until.iter_mut().find(|(held, _)| *held == key) {
            Some((_, until)) => *until = (*until).max(now + HOLD_AFTER_REPEAT),
            None => self.held_until.push((key, now + HOLD_AFTER_PRESS)),
        }
    }

    /// Releases keys whose hold time after the last press or auto-repeat is over. Passes the releases to `on_change`.
    pub(super) fn release_expired(&mut self, now: Instant, mut on_change: impl FnMut(KeyChange)) {
        self.held_until.retain(|(key, until)| {
            if *until <= now {
                on_change(KeyChange { key: *key, is_down: false, has_shift: false });
            }
            *until > now
        });
    }
}

/// Returns whether a key event requests to quit (Ctrl+C or Ctrl+Q). Auto-repeats do not count: they would confirm the
/// question that the first press raised.
pub(super) fn is_interrupt(event: &KeyEvent) -> bool {
    let control = event.modifiers.contains(KeyModifiers::CONTROL);
    control && matches!(event.code, KeyCode::Char('c' | 'C' | 'q' | 'Q')) && event.kind == KeyEventKind::Press
}

/// Returns the command of a key event while a chat message is typed; `None` if the key has none.
pub(super) fn typed_command(event: &KeyEvent) -> Option<UiCommand> {
    if event.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::SUPER) {
        return None;
    }
    match event.code {
        KeyCode::Char(character) => Some(UiCommand::TypeChar(character)),
        code => to_key(code).and_then(edit_command),
    }
}

fn to_key(code: KeyCode) -> Option<Key> {
    let name = match code {
        KeyCode::Char(character) => return Key::from_char(character),
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

    fn changes_on_press(held_keys: &mut HeldKeys, now: Instant, code: KeyCode) -> Vec<(&'static str, bool)> {
        let mut changes = vec![];
        held_keys.on_event(now, &press(code), |change| changes.push((change.key.name(), change.is_down)));
        changes
    }

    fn changes_on_time(held_keys: &mut HeldKeys, now: Instant) -> Vec<(&'static str, bool)> {
        let mut changes = vec![];
        held_keys.release_expired(now, |change| changes.push((change.key.name(), change.is_down)));
        changes
    }

    #[test]
    fn key_is_held_while_it_repeats() {
        let (mut held_keys, start) = (HeldKeys::new(false), Instant::now());
        assert_eq!(changes_on_press(&mut held_keys, start, KeyCode::Char('x')), [("X", true)]);
        assert_eq!(changes_on_time(&mut held_keys, start + HOLD_AFTER_PRESS / 2), []);
        for repeat in 0..20 {
            let now = start + HOLD_AFTER_PRESS * 9 / 10 + HOLD_AFTER_REPEAT * repeat / 3;
            changes_on_press(&mut held_keys, now, KeyCode::Char('x'));
            assert_eq!(changes_on_time(&mut held_keys, now), []);
        }
        assert_eq!(changes_on_time(&mut held_keys, start + HOLD_AFTER_PRESS * 10), [("X", false)]);
        assert_eq!(changes_on_time(&mut held_keys, start + HOLD_AFTER_PRESS * 11), []);
    }

    #[test]
    fn direction_releases_the_opposite_one() {
        let (mut held_keys, now) = (HeldKeys::new(false), Instant::now());
        changes_on_press(&mut held_keys, now, KeyCode::Left);
        changes_on_press(&mut held_keys, now, KeyCode::Up);
        assert_eq!(changes_on_press(&mut held_keys, now, KeyCode::Right), [("Left", false), ("Right", true)]);
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
        let event = |character, kind| KeyEvent::new_with_kind(KeyCode::Char(character), KeyModifiers::CONTROL, kind);
        for character in ['c', 'Q'] {
            assert!(is_interrupt(&event(character, KeyEventKind::Press)));
            assert!(!is_interrupt(&event(character, KeyEventKind::Repeat)));
            assert!(!is_interrupt(&event(character, KeyEventKind::Release)));
        }
        assert!(!is_interrupt(&press(KeyCode::Char('q'))));
    }

    #[test]
    fn reported_key_releases_are_used() {
        let (mut held_keys, now) = (HeldKeys::new(true), Instant::now());
        assert_eq!(changes_on_press(&mut held_keys, now, KeyCode::F(5)), [("F5", true)]);
        assert_eq!(changes_on_time(&mut held_keys, now + HOLD_AFTER_PRESS * 9), []);
        let up = KeyEvent::new_with_kind(KeyCode::F(5), KeyModifiers::NONE, KeyEventKind::Release);
        let mut changes = vec![];
        held_keys.on_event(now, &up, |change| changes.push(change.is_down));
        assert_eq!(changes, [false]);
    }
}
