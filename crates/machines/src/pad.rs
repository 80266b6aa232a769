//! Pads: how a player's buttons and sticks are laid out in an input word.
//!
//! Every machine uses the same layout, that of libretro's joypad, so that a front end can map keys and gamepads without knowing the machine: 16
//! buttons in the low bits, then four axes of 16 bits each, as two's complement.

use coplay::input::InputWord;

/// A button of a pad.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
#[allow(missing_docs, reason = "the names are all there is to say")]
pub enum Button {
    B = 0,
    Y,
    Select,
    Start,
    Up,
    Down,
    Left,
    Right,
    A,
    X,
    L,
    R,
    L2,
    R2,
    L3,
    R3,
}

/// An axis of a stick. Left and up are negative.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
#[allow(missing_docs, reason = "the names are all there is to say")]
pub enum StickAxis {
    LeftX = 0,
    LeftY,
    RightX,
    RightY,
}

/// Bits of an axis.
const AXIS_BITS: u32 = 16;

impl Button {
    /// All of them, in the order of their bits.
    pub const ALL: [Self; 16] = [
        Self::B,
        Self::Y,
        Self::Select,
        Self::Start,
        Self::Up,
        Self::Down,
        Self::Left,
        Self::Right,
        Self::A,
        Self::X,
        Self::L,
        Self::R,
        Self::L2,
        Self::R2,
        Self::L3,
        Self::R3,
    ];

    /// The button's bit in a word.
    pub const fn bit(self) -> InputWord {
        1 << self as u8
    }

    /// Whether it is pressed.
    pub const fn is_in(self, word: InputWord) -> bool {
        word & self.bit() != 0
    }
}

impl StickAxis {
    /// All of them, in the order of their bits.
    pub const ALL: [Self; 4] = [Self::LeftX, Self::LeftY, Self::RightX, Self::RightY];

    const fn shift(self) -> u32 {
        16 + self as u32 * AXIS_BITS
    }

    /// The bits of the axis in a word.
    pub const fn mask(self) -> InputWord {
        0xffff << self.shift()
    }

    /// Where the stick is.
    pub const fn position(self, word: InputWord) -> i16 {
        (word >> self.shift()) as i16
    }

    /// A word with the stick there and nothing else pressed.
    pub const fn word_at(self, position: i16) -> InputWord {
        (position as u16 as InputWord) << self.shift()
    }
}

/// What one player can press on a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pad {
    /// The bits that count.
    pub mask: InputWord,
    /// What the machine calls its buttons, where that is not their own name: "Jump".
    pub labels: Vec<(Button, String)>,
}

impl Pad {
    /// A pad with these buttons.
    pub fn with_buttons(buttons: &[Button]) -> Self {
        Self { mask: buttons.iter().fold(0, |mask, button| mask | button.bit()), labels: Vec::new() }
    }

    /// The buttons that it has.
    pub fn buttons(&self) -> impl Iterator<Item = Button> {
        Button::ALL.into_iter().filter(|button| button.is_in(self.mask))
    }

    /// The axes that it has.
    pub fn axes(&self) -> impl Iterator<Item = StickAxis> {
        StickAxis::ALL.into_iter().filter(|axis| self.mask & axis.mask() != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_and_buttons_do_not_overlap_in_a_word() {
        let word = StickAxis::LeftX.word_at(-1) | StickAxis::RightY.word_at(i16::MIN) | Button::A.bit();
        assert_eq!((StickAxis::LeftX.position(word), StickAxis::LeftY.position(word)), (-1, 0));
        assert_eq!((StickAxis::RightX.position(word), StickAxis::RightY.position(word)), (0, i16::MIN));
        assert!(Button::A.is_in(word) && !Button::B.is_in(word));
    }

    #[test]
    fn pad_lists_exactly_its_buttons() {
        let pad = Pad::with_buttons(&[Button::A, Button::Start]);
        assert_eq!(pad.buttons().collect::<Vec<_>>(), [Button::Start, Button::A]);
        assert_eq!(pad.axes().count(), 0);
    }
}
