//! Keys by name. The names are the same in a window, in a terminal and in the settings.

use std::fmt;

/// Key of a keyboard that can have a function in the program.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(u8);

/// Names of the keys. Terminals and windows report all of them, except that a window does not report `Less`. Shift
/// alone is not among them: most terminals do not report it.
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

/// Characters of the symbol keys, with the names of these keys.
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
    /// Number of keys with a name.
    pub const COUNT: usize = KEY_NAMES.len();

    /// Returns the key of this name, in upper or lower case; `None` if there is none. The character that a key types is
    /// also a name of the key.
    pub fn from_name(name: &str) -> Option<Self> {
        let mut chars = name.chars();
        if let (Some(symbol), None) = (chars.next(), chars.next())
            && let Some(key) = Self::from_char(symbol)
        {
            return Some(key);
        }
        let index = KEY_NAMES.iter().position(|known| known.eq_ignore_ascii_case(name))?;
        Some(Self(index as u8))
    }

    /// Returns the key that types this character; `None` if there is none.
    pub fn from_char(symbol: char) -> Option<Self> {
        let name = match symbol {
            ' ' => "Space",
            _ => SYMBOL_NAMES.iter().find(|(known, _)| *known == symbol).map_or("", |(_, name)| name),
        };
        let mut buffer = [0; 4];
        let name = if name.is_empty() { &*symbol.encode_utf8(&mut buffer) } else { name };
        let index = KEY_NAMES.iter().position(|known| known.eq_ignore_ascii_case(name))?;
        Some(Self(index as u8))
    }

    /// Returns the index of the key, below [`Key::COUNT`].
    pub fn index(self) -> usize {
        usize::from(self.0)
    }

    /// Returns the name of the key, as in the settings file.
    pub fn name(self) -> &'static str {
        KEY_NAMES[self.index()]
    }

    /// Returns the short text for a key in help: a symbol, an arrow or the name.
    pub fn label(self) -> String {
        match self.name() {
            "Up" => "↑".into(),
            "Down" => "↓".into(),
            "Left" => "←".into(),
            "Right" => "→".into(),
            "Escape" => "Esc".into(),
            name => match SYMBOL_NAMES.iter().find(|(_, known)| *known == name) {
                Some((symbol, _)) => symbol.to_string(),
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
