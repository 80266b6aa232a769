//! Putting a game into the machine, and saying why one does not fit.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use tetanes_core::cart::{self, NesHeader};
use tetanes_core::control_deck::{Config, ControlDeck, Error};
use tetanes_core::input::FourPlayer;
use tetanes_core::memory::RamState;
use tetanes_core::video::VideoFilter;

use super::{Options, SOUND_RATE};

/// The most players: four pads by a Four Score.
pub const MAX_PLAYERS: usize = 4;
/// Players without one.
const PLAYERS_WITHOUT_ADAPTER: usize = 2;
/// Bytes of an image before its ROMs.
const HEADER: usize = 16;
/// Every image begins with this.
const SIGNATURE: &[u8; 4] = b"NES\x1a";

/// Why a game cannot be played.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpenError {
    /// It is not the image of an NES game.
    NotNes,
    /// The image is shorter than it says itself.
    Truncated {
        /// The bytes that are there.
        has: usize,
        /// The bytes that it should have.
        needs: usize,
    },
    /// The cartridge has a circuit that this machine does not know.
    Mapper(u16),
    /// The header of the image says something that cannot be, or that this machine does not know, in the machine's own words.
    Header(String),
    /// There cannot be so many players: 1 to [`MAX_PLAYERS`].
    Players(usize),
    /// The game stops the machine in its first frames, for this reason.
    Stops(String),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotNes => write!(f, "this is not an NES game: it does not begin as an iNES image does"),
            Self::Truncated { has, needs } => {
                write!(f, "the image is cut off: it has {has} bytes and says that it should have {needs}")
            }
            Self::Mapper(number) => write!(f, "the cartridge needs mapper {number}, which this machine does not have"),
            Self::Header(why) => write!(f, "the header of the image makes no sense here: {why}"),
            Self::Players(players) => write!(f, "an NES has pads for 1 to {MAX_PLAYERS} players, not for {players}"),
            Self::Stops(why) => write!(f, "the game stops the machine as soon as it is switched on: {why}"),
        }
    }
}

impl std::error::Error for OpenError {}

/// A machine with the game in it, switched on, that knows neither chance nor files.
pub(super) fn deck(image: &[u8], options: &Options) -> Result<ControlDeck, OpenError> {
    check(image, options)?;
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
        deck.set_sample_rate(SOUND_RATE);
        Ok(deck)
    }));
    opened.map_err(|panic| OpenError::Stops(super::words(&*panic)))?.map_err(|error| refusal(&error))
}

/// What can be said of an image without trying it, so that a header cannot ask for more memory than the image has.
fn check(image: &[u8], options: &Options) -> Result<(), OpenError> {
    if !(1..=MAX_PLAYERS).contains(&options.players) {
        return Err(OpenError::Players(options.players));
    }
    if !image.starts_with(SIGNATURE) {
        return Err(OpenError::NotNes);
    }
    if image.len() < HEADER {
        return Err(OpenError::Truncated { has: image.len(), needs: HEADER });
    }
    let header = NesHeader::load(&mut &image[..]).map_err(|error| header_refusal(&error))?;
    let needs = HEADER + (usize::from(header.prg_rom_banks) << 14) + (usize::from(header.chr_rom_banks) << 13);
    if image.len() < needs {
        return Err(OpenError::Truncated { has: image.len(), needs });
    }
    if header.prg_rom_banks == 0 {
        return Err(OpenError::Header("there is no program in it".into()));
    }
    Ok(())
}

fn refusal(error: &Error) -> OpenError {
    match error {
        Error::UnimplementedMapper(number) => OpenError::Mapper(*number),
        Error::Cart(error) => header_refusal(error),
        error => OpenError::Header(error.to_string()),
    }
}

fn header_refusal(error: &cart::Error) -> OpenError {
    match error {
        cart::Error::InvalidHeader { message, .. } => OpenError::Header(message.clone()),
        error => OpenError::Header(error.to_string()),
    }
}
