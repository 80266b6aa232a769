//! Pads: the layout of a player's buttons and sticks in an input word.
//!
//! The pads of all machines have the layout of libretro's joypad, so that a frontend can map keys and gamepads without
//! knowing the machine: 16 buttons in the low bits, then four axes of 16 bits each, as two's complement.

use coplay::input::InputWord;

/// A button of a pad. Its value is its bit number in an input word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
#[allow(missing_docs, reason = "the names are self-explanatory")]
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
#[allow(missing_docs, reason = "the names are self-explanatory")]
pub enum StickAxis {
    LeftX = 0,
    LeftY,
    RightX,
    RightY,
}

const AXIS_BITS: u32 = 16;

impl Button {
    /// All buttons, in bit order.
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

    /// Returns the mask of the button's bit in an input word.
    pub const fn bit(self) -> InputWord {
        1 << self as u8
    }

    /// Returns whether the button is pressed in an input word.
    pub const fn is_in(self, word: InputWord) -> bool {
        word & self.bit() != 0
    }
}

impl StickAxis {
    /// All axes, in bit order.
    pub const ALL: [Self; 4] = [Self::LeftX, Self::LeftY, Self::RightX, Self::RightY];

    const fn shift(self) -> u32 {
        16 + self as u32 * AXIS_BITS
    }

    /// Returns the mask of the 16 bits of the axis in an input word.
    pub const fn mask(self) -> InputWord {
        0xffff << self.shift()
    }

    /// Returns the deflection of the stick along the axis in `word`; 0 is the centre.
    pub const fn position(self, word: InputWord) -> i16 {
        (word >> self.shift()) as i16
    }

    /// Returns an input word with the stick deflected by `position` along the axis and nothing else pressed.
    pub const fn word_at(self, position: i16) -> InputWord {
        (position as u16 as InputWord) << self.shift()
    }
}

/// The buttons and axes of one player.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PadLayout {
    /// Bits of the input word that the machine reads.
    pub mask: InputWord,
    /// Labels that the machine gives to its buttons, such as "Jump"; a button that is not listed has no label.
    pub labels: Vec<(Button, String)>,
}

impl PadLayout {
    /// Creates a pad with these buttons, without axes and labels.
    pub fn with_buttons(buttons: &[Button]) -> Self {
        Self { mask: buttons.iter().fold(0, |mask, button| mask | button.bit()), labels: Vec::new() }
    }

    /// Returns the buttons of the pad, in bit order.
    pub fn buttons(&self) -> impl Iterator<Item = Button> {
        Button::ALL.into_iter().filter(|button| button.is_in(self.mask))
    }

    /// Returns the axes of the pad, in bit order.
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
        let pad = PadLayout::with_buttons(&[Button::A, Button::Start]);
        assert_eq!(pad.buttons().collect::<Vec<_>>(), [Button::Start, Button::A]);
        assert_eq!(pad.axes().count(), 0);
    }
}
