//! Putting a game into the machine, and saying why one does not fit.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use tetanes_core::cart::{self, NesHeader};
use tetanes_core::control_deck::{Config, ControlDeck, Error};
use tetanes_core::input::FourPlayer;
use tetanes_core::memory::RamState;
use tetanes_core::video::VideoFilter;

use super::{NesOptions, SAMPLE_RATE};

/// The most players: four pads by a Four Score.
pub const MAX_PLAYERS: usize = 4;
/// Players without one.
const PLAYERS_WITHOUT_ADAPTER: usize = 2;
/// Bytes of an image before its ROMs.
const INES_HEADER_LEN: usize = 16;
/// Every image begins with this.
const INES_SIGNATURE: &[u8; 4] = b"NES\x1a";

/// Why a game cannot be played.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NesOpenError {
    /// It is not the image of an NES game.
    NotNes,
    /// The image is shorter than it says itself.
    Truncated {
        /// The bytes that are there.
        actual: usize,
        /// The bytes that it should have.
        expected: usize,
    },
    /// The cartridge has a circuit that this machine does not know.
    UnsupportedMapper(u16),
    /// The header of the image says something that cannot be, or that this machine does not know, in the machine's own words.
    InvalidHeader(String),
    /// There cannot be so many players: 1 to [`MAX_PLAYERS`].
    InvalidPlayerCount(usize),
    /// The game stops the machine in its first frames, for this reason.
    HaltsAtStart(String),
}

impl fmt::Display for NesOpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotNes => write!(f, "this is not an NES game: it does not begin as an iNES image does"),
            Self::Truncated { actual: has, expected: needs } => {
                write!(f, "the image is cut off: it has {has} bytes and says that it should have {needs}")
            }
            Self::UnsupportedMapper(number) => {
                write!(f, "the cartridge needs mapper {number}, which this machine does not have")
            }
            Self::InvalidHeader(why) => write!(f, "the header of the image makes no sense here: {why}"),
            Self::InvalidPlayerCount(players) => {
                write!(f, "an NES has pads for 1 to {MAX_PLAYERS} players, not for {players}")
            }
            Self::HaltsAtStart(why) => write!(f, "the game stops the machine as soon as it is switched on: {why}"),
        }
    }
}

impl std::error::Error for NesOpenError {}

/// A machine with the game in it, switched on, that knows neither chance nor files.
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

/// What can be said of an image without trying it, so that a header cannot ask for more memory than the image has.
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
    let needs = INES_HEADER_LEN + (usize::from(header.prg_rom_banks) << 14) + (usize::from(header.chr_rom_banks) << 13);
    if image.len() < needs {
        return Err(NesOpenError::Truncated { actual: image.len(), expected: needs });
    }
    if header.prg_rom_banks == 0 {
        return Err(NesOpenError::InvalidHeader("there is no program in it".into()));
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
