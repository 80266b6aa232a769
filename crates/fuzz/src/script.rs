//! The language of the target `session`: two bytes that set the scene, then one deed after the other.
//!
//! Any bytes are a script, and what is missing at the end is zero, so that a fuzzer may cut and splice as it likes.

use coplay::input::Recovery;
use coplay::pace::Pacing;

use crate::bytes::Bytes;

/// Deeds of one script; further ones are ignored.
const MAX_DEEDS: usize = 32;

/// What happens in one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// Who plays, and how.
    pub scene: Scene,
    /// What happens, in this order.
    pub deeds: Vec<Deed>,
}

/// Who plays, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scene {
    /// Whether a third site plays.
    pub third: bool,
    /// How lost inputs come back.
    pub recovery: Recovery,
    /// How frames are paced.
    pub pacing: Pacing,
    /// Whether packets leave when a timer rings, and not at once.
    pub timer: bool,
    /// Whether the deeds begin in the lobby, and not in a running game.
    pub lobby: bool,
    /// Whether sites end the session when another is silent for long.
    pub gives_up: bool,
    /// Who owns which bits.
    pub owners: Owners,
    /// The local lag: one of 2, 0, 6, 120 frames.
    pub lag: u8,
    /// How long a packet is under way when nothing is wrong: one of 0, 7, 40, 150 milliseconds.
    pub delay_ms: u8,
    /// Whether there are 1,000 frames per second, and not 60; only with two sites, because it is slow to fuzz.
    pub fast: bool,
    /// Whether the last site is attacked, and not the first.
    pub last_is_victim: bool,
}

/// Who owns which bits of which players.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owners {
    /// Each site has 16 bits of its own player.
    Pads,
    /// Each site has a part of every byte of one player.
    Shared,
    /// Each site has ten bytes of its own player.
    Sticks,
    /// The last site has all bits of eight players, the others have none.
    LastAll,
}

/// One thing that happens. Packets under way, and those of the album, are chosen by a number modulo how many there are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deed {
    /// So many times two milliseconds (and two more) in which nothing is wrong.
    Flow(u8),
    /// So many milliseconds (and one more) in which nothing arrives.
    Cut(u8),
    /// So many times three frames in which no site does anything.
    Sleep(u8),
    /// A packet that is under way arrives.
    Deliver(u8),
    /// A packet that is under way is lost.
    Drop(u8),
    /// A packet that is under way arrives, and will once more.
    Duplicate(u8),
    /// A packet of the album arrives once more.
    Replay(u8),
    /// A changed packet of the album arrives at the victim.
    Mutate {
        /// Which.
        packet: u8,
        /// What kind of change.
        how: u8,
        /// Where.
        at: u8,
        /// To what.
        value: u8,
    },
    /// Any bytes arrive at the victim, from a peer's address.
    Peer(Vec<u8>),
    /// Any bytes arrive at the victim, from an address that nobody has.
    Stranger(Vec<u8>),
    /// The rest of a tick arrives at the victim from an address that nobody has, but with the name of a peer.
    Identified {
        /// What the tick has besides, and its probe's stamp if it has one.
        flags: u8,
        /// All that follows the identity, or the stamp.
        rest: Vec<u8>,
    },
    /// A peer's newest tick, or the one that was forged before, arrives at the victim with one field replaced.
    Forge {
        /// Which; 16 more if it is the newest.
        field: u8,
        /// By what.
        value: u32,
    },
    /// A peer's hello arrives at the victim with one field replaced.
    Hello {
        /// Which.
        field: u8,
        /// By what.
        value: u32,
    },
    /// A site leaves.
    Leave(u8),
    /// A player presses something: from then on a site's input is this, or, with the top bit set, another one in every frame.
    Press {
        /// Whose.
        site: u8,
        /// What.
        value: u8,
    },
    /// All is well again; unless something was forged, the game must go on.
    Heal,
}

impl Script {
    /// The script that these bytes are.
    pub fn decode(data: &[u8]) -> Self {
        let mut bytes = Bytes::new(data);
        let scene = Scene::decode(&mut bytes);
        let mut deeds = Vec::new();
        while !bytes.is_empty() && deeds.len() < MAX_DEEDS {
            deeds.push(Deed::decode(&mut bytes));
        }
        Self { scene, deeds }
    }

    /// The bytes that are this script.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = self.scene.encode().to_vec();
        for deed in &self.deeds {
            deed.encode(&mut bytes);
        }
        bytes
    }
}

const RECOVERIES: [Recovery; 4] = [Recovery::Adaptive, Recovery::Redundant, Recovery::History, Recovery::Adaptive];
const PACINGS: [Pacing; 4] = [Pacing::Even, Pacing::Paper, Pacing::PaperUnsynchronised, Pacing::Even];
const OWNERS: [Owners; 4] = [Owners::Pads, Owners::Shared, Owners::Sticks, Owners::LastAll];
const LAGS: [u8; 4] = [2, 0, 6, 120];
const DELAYS_MS: [u8; 4] = [0, 7, 40, 150];

fn choose<T: Copy>(from: &[T; 4], bits: u8) -> T {
    from[usize::from(bits & 3)]
}

fn place<T: PartialEq>(of: &T, within: &[T; 4]) -> u8 {
    within.iter().position(|one| one == of).unwrap_or(0) as u8
}

impl Scene {
    /// Two sites with pads, lag 2, in a running game, on a network that takes no time.
    pub const PLAIN: Self = Self {
        third: false,
        recovery: Recovery::Adaptive,
        pacing: Pacing::Even,
        timer: false,
        lobby: false,
        gives_up: false,
        owners: Owners::Pads,
        lag: 2,
        delay_ms: 0,
        fast: false,
        last_is_victim: false,
    };

    fn decode(bytes: &mut Bytes<'_>) -> Self {
        let (who, how) = (bytes.u8(), bytes.u8());
        Self {
            third: who & 0x01 != 0,
            recovery: choose(&RECOVERIES, who >> 1),
            pacing: choose(&PACINGS, who >> 3),
            timer: who & 0x20 != 0,
            lobby: who & 0x40 != 0,
            gives_up: who & 0x80 != 0,
            owners: choose(&OWNERS, how),
            lag: choose(&LAGS, how >> 2),
            delay_ms: choose(&DELAYS_MS, how >> 4),
            fast: how & 0x40 != 0 && who & 0x01 == 0,
            last_is_victim: how & 0x80 != 0,
        }
    }

    fn encode(&self) -> [u8; 2] {
        let flag = |on: bool, bit: u8| if on { bit } else { 0 };
        let who = flag(self.third, 0x01)
            | place(&self.recovery, &RECOVERIES) << 1
            | place(&self.pacing, &PACINGS) << 3
            | flag(self.timer, 0x20)
            | flag(self.lobby, 0x40)
            | flag(self.gives_up, 0x80);
        let how = place(&self.owners, &OWNERS)
            | place(&self.lag, &LAGS) << 2
            | place(&self.delay_ms, &DELAYS_MS) << 4
            | flag(self.fast, 0x40)
            | flag(self.last_is_victim, 0x80);
        [who, how]
    }

    /// How many sites play.
    pub fn sites(&self) -> usize {
        2 + usize::from(self.third)
    }
}

impl Deed {
    fn decode(bytes: &mut Bytes<'_>) -> Self {
        match bytes.u8() & 0x0f {
            0 => Self::Flow(bytes.u8()),
            1 => Self::Cut(bytes.u8()),
            2 => Self::Sleep(bytes.u8()),
            3 => Self::Deliver(bytes.u8()),
            4 => Self::Drop(bytes.u8()),
            5 => Self::Duplicate(bytes.u8()),
            6 => Self::Replay(bytes.u8()),
            7 => Self::Mutate { packet: bytes.u8(), how: bytes.u8(), at: bytes.u8(), value: bytes.u8() },
            8 => Self::Peer(bytes.string()),
            9 => Self::Stranger(bytes.string()),
            10 => Self::Identified { flags: bytes.u8(), rest: bytes.string() },
            11 => Self::Forge { field: bytes.u8(), value: bytes.u32() },
            12 => Self::Hello { field: bytes.u8(), value: bytes.u32() },
            13 => Self::Leave(bytes.u8()),
            14 => Self::Press { site: bytes.u8(), value: bytes.u8() },
            _ => Self::Heal,
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let number = |field: u8, value: u32| {
            let [a, b, c, d] = value.to_le_bytes();
            [field, a, b, c, d]
        };
        let string = |bytes: &[u8]| [&[bytes.len().min(255) as u8], &bytes[..bytes.len().min(255)]].concat();
        match self {
            Self::Flow(time) => out.extend([0, *time]),
            Self::Cut(time) => out.extend([1, *time]),
            Self::Sleep(time) => out.extend([2, *time]),
            Self::Deliver(packet) => out.extend([3, *packet]),
            Self::Drop(packet) => out.extend([4, *packet]),
            Self::Duplicate(packet) => out.extend([5, *packet]),
            Self::Replay(packet) => out.extend([6, *packet]),
            Self::Mutate { packet, how, at, value } => out.extend([7, *packet, *how, *at, *value]),
            Self::Peer(bytes) => out.extend([vec![8], string(bytes)].concat()),
            Self::Stranger(bytes) => out.extend([vec![9], string(bytes)].concat()),
            Self::Identified { flags, rest } => out.extend([vec![10, *flags], string(rest)].concat()),
            Self::Forge { field, value } => out.extend([&[11][..], &number(*field, *value)].concat()),
            Self::Hello { field, value } => out.extend([&[12][..], &number(*field, *value)].concat()),
            Self::Leave(site) => out.extend([13, *site]),
            Self::Press { site, value } => out.extend([14, *site, *value]),
            Self::Heal => out.push(15),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_comes_back() {
        let scene = Scene { third: true, recovery: Recovery::History, lag: 120, delay_ms: 40, ..Scene::PLAIN };
        let bytes = vec![1, 2, 3];
        let script = Script {
            scene: Scene { pacing: Pacing::Paper, owners: Owners::LastAll, lobby: true, ..scene },
            deeds: vec![
                Deed::Flow(1),
                Deed::Cut(2),
                Deed::Sleep(3),
                Deed::Deliver(4),
                Deed::Drop(5),
                Deed::Duplicate(6),
                Deed::Replay(7),
                Deed::Mutate { packet: 8, how: 9, at: 10, value: 11 },
                Deed::Peer(bytes.clone()),
                Deed::Stranger(Vec::new()),
                Deed::Identified { flags: 12, rest: bytes },
                Deed::Forge { field: 13, value: 14_000 },
                Deed::Hello { field: 15, value: u32::MAX },
                Deed::Leave(16),
                Deed::Press { site: 17, value: 18 },
                Deed::Heal,
            ],
        };
        assert_eq!(Script::decode(&script.encode()), script);
    }
}
