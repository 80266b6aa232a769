//! Opens a game in the emulator, after checks that explain why an image is unusable.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use tetanes_core::cart::{self, NesHeader};
use tetanes_core::control_deck::{Config, ControlDeck, Error};
use tetanes_core::input::FourPlayer;
use tetanes_core::memory::RamState;
use tetanes_core::video::VideoFilter;

use super::{NesOptions, SAMPLE_RATE};

/// Maximum number of players: four pads with a Four Score adapter.
pub const MAX_PLAYERS: usize = 4;
/// Maximum number of players without the adapter.
const PLAYERS_WITHOUT_ADAPTER: usize = 2;
/// Length in bytes of the header before the ROMs of an image.
const INES_HEADER_LEN: usize = 16;
/// Signature at the start of every image.
const INES_SIGNATURE: &[u8; 4] = b"NES\x1a";

/// Reason why a game cannot be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NesOpenError {
    /// The image does not begin with the iNES signature.
    NotNes,
    /// The image is shorter than a header, or than its header announces.
    Truncated {
        /// Length of the image in bytes.
        actual: usize,
        /// Length in bytes that the header announces; the length of the header if that is cut off.
        expected: usize,
    },
    /// The emulator does not support the cartridge's mapper, which has this number.
    UnsupportedMapper(u16),
    /// The header of the image is invalid or unsupported, or the emulator rejects the image for another reason;
    /// contains a message.
    InvalidHeader(String),
    /// The number of players is not in 1 to [`MAX_PLAYERS`].
    InvalidPlayerCount(usize),
    /// The emulator panics while it opens the game, or fails or panics in the first 30 frames of the game; contains the
    /// message.
    HaltsAtStart(String),
}

impl fmt::Display for NesOpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotNes => write!(f, "not an NES game: the iNES signature is missing"),
            Self::Truncated { actual, expected } => {
                write!(f, "the game image is cut off: it has {actual} of {expected} bytes")
            }
            Self::UnsupportedMapper(number) => {
                write!(f, "the cartridge needs mapper {number}, which the emulator does not support")
            }
            Self::InvalidHeader(reason) => write!(f, "invalid or unsupported game image: {reason}"),
            Self::InvalidPlayerCount(players) => {
                write!(f, "an NES has pads for 1 to {MAX_PLAYERS} players, not for {players}")
            }
            Self::HaltsAtStart(reason) => write!(f, "the game crashes the emulator at the start: {reason}"),
        }
    }
}

impl std::error::Error for NesOpenError {}

/// Opens the emulator with the game and powers it on, with zeros in its memory and without save files.
pub(super) fn open_deck(image: &[u8], options: &NesOptions) -> Result<ControlDeck, NesOpenError> {
    validate_image(image, options)?;
    let four_player =
        if options.players > PLAYERS_WITHOUT_ADAPTER { FourPlayer::FourScore } else { FourPlayer::Disabled };
    let config = Config::default()
        .with_ram_state(RamState::AllZeros)
        .with_sram_dir(None)
        .with_filter(VideoFilter::Pixellate)
        .with_concurrent_dpad(true)
        .with_four_player(four_player);
    let opened = catch_unwind(AssertUnwindSafe(|| {
        let mut deck = ControlDeck::with_config(config);
        deck.load_rom("game", &mut &image[..])?;
        deck.set_sample_rate(SAMPLE_RATE);
        Ok(deck)
    }));
    opened
        .map_err(|panic| NesOpenError::HaltsAtStart(super::panic_message(&*panic)))?
        .map_err(|error| open_error(&error))
}

/// Checks the number of players and the image. The emulator reads the ROMs only afterwards, so a header cannot make it
/// allocate memory for ROM data that the image lacks.
fn validate_image(image: &[u8], options: &NesOptions) -> Result<(), NesOpenError> {
    if !(1..=MAX_PLAYERS).contains(&options.players) {
        return Err(NesOpenError::InvalidPlayerCount(options.players));
    }
    if !image.starts_with(INES_SIGNATURE) {
        return Err(NesOpenError::NotNes);
    }
    if image.len() < INES_HEADER_LEN {
        return Err(NesOpenError::Truncated { actual: image.len(), expected: INES_HEADER_LEN });
    }
    let header = NesHeader::load(&mut &image[..]).map_err(|error| header_error(&error))?;
    let expected =
        INES_HEADER_LEN + (usize::from(header.prg_rom_banks) << 14) + (usize::from(header.chr_rom_banks) << 13);
    if image.len() < expected {
        return Err(NesOpenError::Truncated { actual: image.len(), expected });
    }
    if header.prg_rom_banks == 0 {
        return Err(NesOpenError::InvalidHeader("it has no program ROM".into()));
    }
    Ok(())
}

fn open_error(error: &Error) -> NesOpenError {
    match error {
        Error::UnimplementedMapper(number) => NesOpenError::UnsupportedMapper(*number),
        Error::Cart(error) => header_error(error),
        error => NesOpenError::InvalidHeader(error.to_string()),
    }
}

fn header_error(error: &cart::Error) -> NesOpenError {
    match error {
        cart::Error::InvalidHeader { message, .. } => NesOpenError::InvalidHeader(message.clone()),
        error => NesOpenError::InvalidHeader(error.to_string()),
    }
}
