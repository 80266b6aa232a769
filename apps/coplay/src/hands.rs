//! What is pressed at the moment, by keys and gamepads, as one word per player.

use std::sync::{Mutex, MutexGuard, PoisonError};

use coplay::input::{InputWord, MAX_PLAYERS};
use coplay_machines::pad::{Button, StickAxis};

use crate::config::{ACTIONS, Action, Config};
use crate::key::Key;
use crate::scene::{Command, Move};

/// All players' hands. Front ends and gamepads press, the game looks.
#[derive(Debug, Default)]
pub struct Hands {
    held: Mutex<[Held; MAX_PLAYERS]>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Held {
    keys: InputWord,
    pad: InputWord,
    /// What was pressed since the last look, so that a press shorter than a frame counts, too.
    tapped: InputWord,
}

/// Buttons are the low bits of a word.
const BUTTONS: InputWord = 0xffff;

impl Hands {
    /// What each player presses. A press shorter than a frame is seen once.
    pub fn look(&self) -> [InputWord; MAX_PLAYERS] {
        self.lock().each_mut().map(|held| held.keys | held.pad | std::mem::take(&mut held.tapped))
    }

    /// What a player's keys press now.
    pub fn set_keys(&self, player: usize, word: InputWord) {
        self.set(player, word, |held| &mut held.keys);
    }

    /// What a player's gamepad presses now.
    pub fn set_pad(&self, player: usize, word: InputWord) {
        self.set(player, word, |held| &mut held.pad);
    }

    fn set(&self, player: usize, word: InputWord, which: impl Fn(&mut Held) -> &mut InputWord) {
        if let Some(held) = self.lock().get_mut(player) {
            held.tapped |= word & BUTTONS;
            *which(held) = word;
        }
    }

    fn lock(&self) -> MutexGuard<'_, [Held; MAX_PLAYERS]> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What each key does, and which are held.
#[derive(Debug)]
pub struct Keyboard {
    plays: Vec<Vec<(usize, Button)>>,
    does: Vec<Option<Action>>,
    held: Vec<bool>,
}

impl Keyboard {
    /// A keyboard as set.
    pub fn new(config: &Config) -> Self {
        let mut plays = vec![vec![]; Key::COUNT];
        for (player, map) in config.players.iter().enumerate() {
            for (button, key) in map.iter().flat_map(|(button, keys)| keys.iter().map(move |key| (*button, key))) {
                plays[key.index()].push((player, button));
            }
        }
        let mut does = vec![None; Key::COUNT];
        for (action, ..) in ACTIONS {
            config.keys_of(action).iter().for_each(|key| does[key.index()] = Some(action));
        }
        Self { plays, does, held: vec![false; Key::COUNT] }
    }

    /// A key went down or up. Says what is wanted by that; while a menu is open, keys move in it and play nothing.
    pub fn on_key(&mut self, hands: &Hands, key: Key, down: bool, shift: bool, menu: bool) -> Option<Command> {
        let before = std::mem::replace(&mut self.held[key.index()], down);
        let plays = !menu || !down;
        if plays && !self.plays[key.index()].is_empty() {
            self.press(hands);
        }
        let action = self.does[key.index()];
        match action {
            Some(Action::Fast) if down != before => return Some(Command::Fast(down)),
            _ if !down => return None,
            _ => {}
        }
        // A key that is held repeats in a menu and where it turns something, nowhere else.
        if menu && let Some(step) = moves(key) {
            return Some(Command::Move(step));
        }
        if before && !matches!(action, Some(Action::More | Action::Less)) {
            return None;
        }
        command(action?, shift)
    }

    /// All keys are up: nobody looks at us any more. Says what is wanted by that.
    pub fn let_go(&mut self, hands: &Hands) -> Option<Command> {
        let fast = self.does.iter().zip(&self.held).any(|(does, held)| *held && *does == Some(Action::Fast));
        self.held.fill(false);
        self.press(hands);
        fast.then_some(Command::Fast(false))
    }

    fn press(&self, hands: &Hands) {
        let mut words = [0; crate::config::PLAYERS];
        for (plays, _) in self.plays.iter().zip(&self.held).filter(|(_, held)| **held) {
            plays.iter().for_each(|(player, button)| words[*player] |= button.bit());
        }
        words.iter().enumerate().for_each(|(player, word)| hands.set_keys(player, *word));
    }
}

/// What a key does while somebody types; letters come otherwise.
pub fn edits(key: Key) -> Option<Command> {
    Some(match key.name() {
        "Enter" => Command::Move(Move::Enter),
        "Escape" => Command::Menu,
        "Backspace" => Command::Erase,
        _ => return None,
    })
}

fn moves(key: Key) -> Option<Move> {
    Some(match key.name() {
        "Up" => Move::Up,
        "Down" => Move::Down,
        "Left" => Move::Left,
        "Right" => Move::Right,
        "Enter" | "Space" => Move::Enter,
        _ => return None,
    })
}

fn command(action: Action, shift: bool) -> Option<Command> {
    Some(match action {
        Action::Help => Command::Help,
        Action::Pause => Command::Pause,
        Action::Menu => Command::Menu,
        Action::Fast => return None,
        Action::Save => Command::Save,
        Action::Load => Command::Load,
        Action::NextSlot => Command::Slot(if shift { -1 } else { 1 }),
        Action::Reset => Command::Reset,
        Action::Mute => Command::Mute,
        Action::More => Command::More,
        Action::Less => Command::Less,
        Action::PreviousDial => Command::Choose(-1),
        Action::NextDial => Command::Choose(1),
        Action::Graph => Command::Graph,
        Action::Chat => Command::Chat,
        Action::Alone => Command::GoOnAlone,
        Action::Fullscreen => Command::Fullscreen,
        Action::Quit => Command::Quit,
    })
}

/// What a stick presses on a machine that has none: the directions.
pub fn directions(x: i16, y: i16, dead_zone: i16) -> InputWord {
    let pressed = |on: bool, button: Button| if on { button.bit() } else { 0 };
    pressed(x < -dead_zone, Button::Left)
        | pressed(x > dead_zone, Button::Right)
        | pressed(y < -dead_zone, Button::Up)
        | pressed(y > dead_zone, Button::Down)
}

/// A stick that hardly moved is at rest.
pub fn rested(axis: StickAxis, position: i16, dead_zone: i16) -> InputWord {
    if position.unsigned_abs() > dead_zone.unsigned_abs() { axis.word_at(position) } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        Key::named(name).unwrap()
    }

    #[test]
    fn keys_press_buttons_of_their_player() {
        let (mut keyboard, hands) = (Keyboard::new(&Config::default()), Hands::default());
        for name in ["X", "Right", "I"] {
            assert_eq!(keyboard.on_key(&hands, key(name), true, false, false), None);
        }
        assert_eq!(hands.look()[..2], [Button::A.bit() | Button::Right.bit(), Button::Up.bit()]);
        keyboard.on_key(&hands, key("X"), false, false, false);
        assert_eq!(hands.look()[0], Button::Right.bit());
        assert_eq!(keyboard.let_go(&hands), None);
        assert_eq!(hands.look(), [0; MAX_PLAYERS]);
    }

    #[test]
    fn a_press_shorter_than_a_frame_is_seen_once() {
        let (mut keyboard, hands) = (Keyboard::new(&Config::default()), Hands::default());
        keyboard.on_key(&hands, key("X"), true, false, false);
        keyboard.on_key(&hands, key("X"), false, false, false);
        assert_eq!((hands.look()[0], hands.look()[0]), (Button::A.bit(), 0));
    }

    #[test]
    fn actions_come_once_per_press_and_moves_again_and_again() {
        let (mut keyboard, hands) = (Keyboard::new(&Config::default()), Hands::default());
        assert_eq!(keyboard.on_key(&hands, key("F5"), true, false, false), Some(Command::Save));
        assert_eq!(keyboard.on_key(&hands, key("F5"), true, false, false), None);
        assert_eq!(keyboard.on_key(&hands, key("F6"), true, true, false), Some(Command::Slot(-1)));
        assert_eq!(keyboard.on_key(&hands, key("Tab"), true, false, false), Some(Command::Fast(true)));
        assert_eq!(keyboard.on_key(&hands, key("Tab"), true, false, false), None);
        assert_eq!(keyboard.on_key(&hands, key("Tab"), false, false, false), Some(Command::Fast(false)));
        for _ in 0..2 {
            let step = keyboard.on_key(&hands, key("Down"), true, false, true);
            assert_eq!(step, Some(Command::Move(Move::Down)));
        }
        assert_eq!(hands.look()[0], 0, "keys that move in a menu play nothing");
    }

    #[test]
    fn who_looks_elsewhere_does_not_go_faster_any_more() {
        let (mut keyboard, hands) = (Keyboard::new(&Config::default()), Hands::default());
        keyboard.on_key(&hands, key("Tab"), true, false, false);
        assert_eq!(keyboard.let_go(&hands), Some(Command::Fast(false)));
        assert_eq!(keyboard.let_go(&hands), None);
        assert_eq!(keyboard.on_key(&hands, key("Tab"), true, false, false), Some(Command::Fast(true)));
    }

    #[test]
    fn sticks_are_directions_where_there_are_none() {
        assert_eq!(directions(-20_000, 9_000, 10_000), Button::Left.bit());
        assert_eq!(directions(i16::MIN, i16::MAX, 10_000), Button::Left.bit() | Button::Down.bit());
        assert_eq!(rested(StickAxis::LeftX, -9_000, 10_000), 0);
        assert_eq!(rested(StickAxis::LeftX, i16::MIN, 10_000), StickAxis::LeftX.word_at(i16::MIN));
    }
}
