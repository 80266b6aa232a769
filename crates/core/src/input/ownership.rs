//! Ownership of input bits: assigns the bits of every player's word to sites (SET\[k\] of Zhao et al.).

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

use super::{InputWord, MAX_PLAYERS, PackedInputPart};
use crate::id::{MAX_SITES, SiteId};

/// Disjoint sets of input bits, one per site. Bits without an owner are zero in every frame.
#[derive(Clone, PartialEq, Eq)]
pub struct Ownership {
    players: u8,
    masks: Box<[[InputWord; MAX_PLAYERS]; MAX_SITES]>,
}

/// Reason that [`Ownership::assign`] refused to assign bits to a site.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OwnershipError {
    /// The game has no player with this number.
    NoSuchPlayer {
        /// The requested player, counted from 0.
        player: usize,
        /// Number of players of the game.
        players: usize,
    },
    /// Another site already owns some of the bits.
    Taken {
        /// The player whose word contains the bits.
        player: usize,
        /// The requested bits that `owner` owns.
        bits: InputWord,
        /// The lowest site that owns some of the requested bits.
        owner: SiteId,
    },
}

impl fmt::Display for OwnershipError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchPlayer { player, players } => {
                write!(f, "there is no player {player}: the game has {players} players, counted from 0")
            }
            Self::Taken { player, bits, owner } => {
                write!(f, "input bits {bits:#x} of player {player} already belong to site {owner}")
            }
        }
    }
}

impl core::error::Error for OwnershipError {}

impl Ownership {
    /// Creates an ownership table without any owner. `players` is clamped to 1..=[`MAX_PLAYERS`].
    pub fn new(players: usize) -> Self {
        Self { players: players.clamp(1, MAX_PLAYERS) as u8, masks: Box::new([[0; MAX_PLAYERS]; MAX_SITES]) }
    }

    /// Creates a table in which site k owns the bits of `mask` in player k's word, the common case. There are as many
    /// players as sites.
    pub fn one_player_per_site(sites: usize, mask: InputWord) -> Self {
        let mut ownership = Self::new(sites);
        for site in SiteId::first(sites) {
            ownership.masks[site.index()][site.index()] = mask;
        }
        ownership
    }

    /// Assigns the bits of `mask` of a player's word to a site, in addition to those it owns. Fails without any change
    /// if the player does not exist or another site owns one of the bits.
    pub fn assign(&mut self, site: SiteId, player: usize, mask: InputWord) -> Result<(), OwnershipError> {
        if player >= self.players() {
            return Err(OwnershipError::NoSuchPlayer { player, players: self.players() });
        }
        for owner in SiteId::first(MAX_SITES).filter(|owner| *owner != site) {
            let bits = self.mask(owner, player) & mask;
            if bits != 0 {
                return Err(OwnershipError::Taken { player, bits, owner });
            }
        }
        self.masks[site.index()][player] |= mask;
        Ok(())
    }

    /// Returns the number of players, 1 to [`MAX_PLAYERS`].
    pub fn players(&self) -> usize {
        usize::from(self.players)
    }

    /// Returns the bits of a player's word that a site owns; 0 for a player that does not exist.
    pub fn mask(&self, site: SiteId, player: usize) -> InputWord {
        self.masks[site.index()].get(player).copied().unwrap_or(0)
    }

    /// Returns the layout in which a site's own bits are stored and sent.
    pub fn layout(&self, site: SiteId) -> InputLayout {
        let owned_bytes = (0..self.players()).flat_map(|player| {
            let mask = self.mask(site, player).to_le_bytes();
            (0..mask.len()).filter(move |byte| mask[*byte] != 0).map(move |byte| OwnedByte {
                player: player as u8,
                byte: byte as u8,
                mask: mask[byte],
            })
        });
        InputLayout::new(owned_bytes.collect())
    }
}

impl fmt::Debug for Ownership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let owned = SiteId::first(MAX_SITES).flat_map(|site| (0..self.players()).map(move |player| (site, player)));
        f.debug_map().entries(owned.map(|(s, p)| ((s, p), self.mask(s, p))).filter(|(_, mask)| *mask != 0)).finish()
    }
}

/// One byte of a packed input: a byte of a player's word, and the owned bits in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct OwnedByte {
    player: u8,
    byte: u8,
    mask: u8,
}

/// Packed layout of a site's bits: one byte for every byte of a word in which the site owns a bit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputLayout {
    bytes: Vec<OwnedByte>,
    /// Fast path: most sites own adjacent bytes of one player's word, which can be moved at once. `None` for other
    /// sites.
    contiguous: Option<ContiguousBits>,
}

/// The adjacent bytes of one player's word that a site owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ContiguousBits {
    player: usize,
    /// Position of the first of these bytes in the word, in bits.
    shift: u32,
    /// The owned bits of the word.
    mask: InputWord,
}

impl InputLayout {
    fn new(owned_bytes: Vec<OwnedByte>) -> Self {
        let contiguous = owned_bytes.first().and_then(|first| {
            let is_contiguous = owned_bytes
                .iter()
                .zip(first.byte..)
                .all(|(owned, byte)| owned.player == first.player && owned.byte == byte);
            let mask = owned_bytes
                .iter()
                .fold(0, |mask, owned| mask | InputWord::from(owned.mask) << (8 * u32::from(owned.byte)));
            is_contiguous.then_some(ContiguousBits {
                player: usize::from(first.player),
                shift: 8 * u32::from(first.byte),
                mask,
            })
        });
        Self { bytes: owned_bytes, contiguous }
    }

    /// Returns the number of bytes of a packed input: one for each byte of a word in which the site owns a bit.
    pub fn width(&self) -> usize {
        self.bytes.len()
    }

    /// Extracts the owned bits of the words into `packed`, and drops all others. A missing word counts as 0.
    pub fn pack(&self, words: &[InputWord], packed: &mut [u8]) {
        for (owned, out) in self.bytes.iter().zip(packed) {
            let word = words.get(usize::from(owned.player)).copied().unwrap_or(0);
            *out = (word >> (8 * u32::from(owned.byte))) as u8 & owned.mask;
        }
    }

    /// Inserts the owned bits of `packed` into the words, in which these bits must be zero.
    pub fn unpack(&self, packed: &[u8], words: &mut [InputWord]) {
        for (owned, byte) in self.bytes.iter().zip(packed) {
            if let Some(word) = words.get_mut(usize::from(owned.player)) {
                *word |= InputWord::from(byte & owned.mask) << (8 * u32::from(owned.byte));
            }
        }
    }

    /// Extracts the owned bits from the words into blocks of 16 bytes, which must be zero before.
    pub(crate) fn pack_blocks(&self, words: &[InputWord], blocks: &mut [PackedInputPart]) {
        match (&self.contiguous, blocks) {
            (Some(contiguous), [block]) => {
                let word = words.get(contiguous.player).copied().unwrap_or(0);
                *block = ((word & contiguous.mask) >> contiguous.shift).to_le_bytes();
            }
            (_, blocks) => self.pack(words, blocks.as_flattened_mut()),
        }
    }

    /// Inserts the owned bits of blocks of 16 bytes into the words, in which these bits must be zero.
    pub(crate) fn unpack_blocks(&self, blocks: &[PackedInputPart], words: &mut [InputWord]) {
        match (&self.contiguous, blocks) {
            (Some(contiguous), [block]) => {
                if let Some(word) = words.get_mut(contiguous.player) {
                    let bits = InputWord::from_le_bytes(*block);
                    *word |= if contiguous.shift == 0 { bits } else { bits << contiguous.shift } & contiguous.mask;
                }
            }
            (_, blocks) => self.unpack(blocks.as_flattened(), words),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(number: u8) -> SiteId {
        SiteId::new(number).unwrap()
    }

    #[test]
    fn overlapping_bits_and_unknown_players_are_refused() {
        let mut ownership = Ownership::new(2);
        ownership.assign(site(0), 0, 0xff).unwrap();
        ownership.assign(site(1), 0, 0xff00).unwrap();
        let taken = ownership.assign(site(2), 0, 0x180).unwrap_err();
        assert_eq!(taken, OwnershipError::Taken { player: 0, bits: 0x80, owner: site(0) });
        assert_eq!(
            ownership.assign(site(2), 2, 1).unwrap_err(),
            OwnershipError::NoSuchPlayer { player: 2, players: 2 }
        );
    }

    #[test]
    fn two_sites_can_share_one_pad_bit_by_bit() {
        let mut ownership = Ownership::new(1);
        ownership.assign(site(0), 0, 0x5555 | 1 << 127).unwrap();
        ownership.assign(site(1), 0, 0xaaaa).unwrap();
        let mut merged = [0];
        for (number, word) in [(0, InputWord::MAX), (1, InputWord::MAX)] {
            let layout = ownership.layout(site(number));
            let mut packed = [0; 16];
            layout.pack(&[word], &mut packed[..layout.width()]);
            layout.unpack(&packed[..layout.width()], &mut merged);
        }
        assert_eq!(merged, [0xffff | 1 << 127]);
        assert_eq!(ownership.layout(site(0)).width(), 3);
    }

    #[test]
    fn blocks_and_bytes_pack_equally() {
        for mask in [0xffff, 0x00ff_ff00, 0xff_00ff, 0x1234 << 100, InputWord::MAX] {
            let layout = Ownership::one_player_per_site(2, mask).layout(site(1));
            let words = [InputWord::MAX, 0x0123_4567_89ab_cdef << 60 | 0xfedc_ba98];
            let (mut bytes, mut blocks) = ([0; 16], [[0; 16]]);
            layout.pack(&words, &mut bytes[..layout.width()]);
            layout.pack_blocks(&words, &mut blocks);
            assert_eq!(bytes, blocks[0]);
            let mut back = [0; 2];
            layout.unpack_blocks(&blocks, &mut back);
            assert_eq!(back, [0, words[1] & mask]);
        }
    }
}
