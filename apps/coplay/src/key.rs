//! Keys by name, the same in a window, in a terminal and in the settings.

use std::fmt;

/// A key of a keyboard.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(u8);

/// All keys that every front end knows, by name. A shift key alone is none of them: most terminals do not tell of it.
const KEY_NAMES: [&str; 80] = [
    "A",
    "B",
    "C",
    "D",
    "E",
    "F",
    "G",
    "H",
    "I",
    "J",
    "K",
    "L",
    "M",
    "N",
    "O",
    "P",
    "Q",
    "R",
    "S",
    "T",
    "U",
    "V",
    "W",
    "X",
    "Y",
    "Z",
    "0",
    "1",
    "2",
    "3",
    "4",
    "5",
    "6",
    "7",
    "8",
    "9",
    "Up",
    "Down",
    "Left",
    "Right",
    "Enter",
    "Space",
    "Tab",
    "Escape",
    "Backspace",
    "Insert",
    "Delete",
    "Home",
    "End",
    "PageUp",
    "PageDown",
    "F1",
    "F2",
    "F3",
    "F4",
    "F5",
    "F6",
    "F7",
    "F8",
    "F9",
    "F10",
    "F11",
    "F12",
    "Minus",
    "Equals",
    "Comma",
    "Period",
    "Slash",
    "Semicolon",
    "Quote",
    "LeftBracket",
    "RightBracket",
    "Backslash",
    "Backtick",
    "Plus",
    "Colon",
    "Pipe",
    "Question",
    "Exclamation",
    "Less",
];

/// What people type for those keys that are a sign and have a longer name here.
const SYMBOL_NAMES: [(char, &str); 17] = [
    ('-', "Minus"),
    ('=', "Equals"),
    (',', "Comma"),
    ('.', "Period"),
    ('/', "Slash"),
    (';', "Semicolon"),
    ('\'', "Quote"),
    ('[', "LeftBracket"),
    (']', "RightBracket"),
    ('\\', "Backslash"),
    ('`', "Backtick"),
    ('+', "Plus"),
    (':', "Colon"),
    ('|', "Pipe"),
    ('?', "Question"),
    ('!', "Exclamation"),
    ('<', "Less"),
];

impl Key {
    /// How many there are.
    pub const COUNT: usize = KEY_NAMES.len();

    /// The key of this name, in capitals or not; a sign is its own name.
    pub fn from_name(name: &str) -> Option<Self> {
        let mut chars = name.chars();
        if let (Some(sign), None) = (chars.next(), chars.next())
            && let Some(key) = Self::from_char(sign)
        {
            return Some(key);
        }
        let at = KEY_NAMES.iter().position(|known| known.eq_ignore_ascii_case(name))?;
        Some(Self(at as u8))
    }

    /// The key that gives this sign.
    pub fn from_char(sign: char) -> Option<Self> {
        let name = match sign {
            ' ' => "Space",
            _ => SYMBOL_NAMES.iter().find(|(known, _)| *known == sign).map_or("", |(_, name)| name),
        };
        let mut buffer = [0; 4];
        let name = if name.is_empty() { &*sign.encode_utf8(&mut buffer) } else { name };
        let at = KEY_NAMES.iter().position(|known| known.eq_ignore_ascii_case(name))?;
        Some(Self(at as u8))
    }

    /// Its number, below [`Key::COUNT`].
    pub fn index(self) -> usize {
        usize::from(self.0)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        KEY_NAMES[self.index()]
    }

    /// What is printed on it.
    pub fn label(self) -> String {
        match self.name() {
            "Up" => "↑".into(),
            "Down" => "↓".into(),
            "Left" => "←".into(),
            "Right" => "→".into(),
            "Escape" => "Esc".into(),
            name => match SYMBOL_NAMES.iter().find(|(_, known)| *known == name) {
                Some((sign, _)) => sign.to_string(),
                None => name.into(),
            },
        }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_found_by_its_unique_name() {
        for (index, name) in KEY_NAMES.iter().enumerate() {
            let key = Key::from_name(name).unwrap();
            assert_eq!((key.index(), key.name()), (index, *name));
            assert_eq!(Key::from_name(&name.to_lowercase()), Some(key));
        }
    }

    #[test]
    fn symbols_and_letters_map_to_keys() {
        assert_eq!(Key::from_name("-"), Key::from_name("Minus"));
        assert_eq!(Key::from_char('x'), Key::from_name("X"));
        assert_eq!(Key::from_char(' '), Key::from_name("space"));
        assert_eq!((Key::from_name("Ctrl"), Key::from_name(""), Key::from_char('é')), (None, None, None));
        assert_eq!(Key::from_name("[").unwrap().label(), "[");
    }
}
