//! Keys by name, the same in a window, in a terminal and in the settings.

use std::fmt;

/// A key of a keyboard.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(u8);

/// All keys that every front end knows, by name. A shift key alone is none of them: most terminals do not tell of it.
const NAMES: [&str; 80] = [
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
const SIGNS: [(char, &str); 17] = [
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
    pub const COUNT: usize = NAMES.len();

    /// The key of this name, in capitals or not; a sign is its own name.
    pub fn named(name: &str) -> Option<Self> {
        let mut chars = name.chars();
        if let (Some(sign), None) = (chars.next(), chars.next())
            && let Some(key) = Self::typed(sign)
        {
            return Some(key);
        }
        let at = NAMES.iter().position(|known| known.eq_ignore_ascii_case(name))?;
        Some(Self(at as u8))
    }

    /// The key that gives this sign.
    pub fn typed(sign: char) -> Option<Self> {
        let name = match sign {
            ' ' => "Space",
            _ => SIGNS.iter().find(|(known, _)| *known == sign).map_or("", |(_, name)| name),
        };
        let mut buffer = [0; 4];
        let name = if name.is_empty() { &*sign.encode_utf8(&mut buffer) } else { name };
        let at = NAMES.iter().position(|known| known.eq_ignore_ascii_case(name))?;
        Some(Self(at as u8))
    }

    /// Its number, below [`Key::COUNT`].
    pub fn index(self) -> usize {
        usize::from(self.0)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        NAMES[self.index()]
    }

    /// What is printed on it.
    pub fn label(self) -> String {
        match self.name() {
            "Up" => "↑".into(),
            "Down" => "↓".into(),
            "Left" => "←".into(),
            "Right" => "→".into(),
            "Escape" => "Esc".into(),
            name => match SIGNS.iter().find(|(_, known)| *known == name) {
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
    fn every_key_is_found_by_its_name_and_no_name_is_given_twice() {
        for (index, name) in NAMES.iter().enumerate() {
            let key = Key::named(name).unwrap();
            assert_eq!((key.index(), key.name()), (index, *name));
            assert_eq!(Key::named(&name.to_lowercase()), Some(key));
        }
    }

    #[test]
    fn signs_and_letters_are_keys() {
        assert_eq!(Key::named("-"), Key::named("Minus"));
        assert_eq!(Key::typed('x'), Key::named("X"));
        assert_eq!(Key::typed(' '), Key::named("space"));
        assert_eq!((Key::named("Ctrl"), Key::named(""), Key::typed('é')), (None, None, None));
        assert_eq!(Key::named("[").unwrap().label(), "[");
    }
}
