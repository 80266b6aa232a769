//! The language of the target `session`: four bytes that set the scene, then one deed after the other.
//!
//! Any bytes are a script, and what is missing at the end is zero, so that a fuzzer may cut and splice as it likes.

use coplay::input::Recovery;
use coplay::pace::Pacing;
use coplay::session::{MAX_LEAD, MAX_PREDICTION_WINDOW};

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
    /// How many frames may be guessed, as far as the lag allows.
    pub window: u8,
    /// Whether six sites play, and not two or three.
    pub crowd: bool,
    /// After how many milliseconds of silence a site is dropped: never, 300, 400 or 500.
    pub drop_after_ms: Option<u16>,
    /// The number that each site's program was started with: one of 1, 0, 2, the largest.
    pub incarnation: u32,
    /// Whether the last site comes when the others play.
    pub late: bool,
    /// Whether lag and window follow what the links need.
    pub auto: bool,
    /// Whether who comes late begins with the first frame, and not with a state.
    pub from_the_beginning: bool,
    /// Whether a state takes 40,000 bytes, and not 8.
    pub bulky: bool,
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
    /// An extra that nobody wrote arrives at the victim in a peer's newest tick.
    Extra {
        /// Which peer's.
        from: u8,
        /// What kind of extra.
        kind: u8,
        /// The sites that it is about.
        sites: u8,
        /// How far its frame is from the one at hand, and to which side.
        near: u8,
        /// Everything else.
        value: u32,
    },
    /// A site dies.
    Crash(u8),
    /// From now on nothing passes between these sites and the others.
    Part(u8),
    /// A site comes that was not there yet, or starts anew.
    Come(u8),
    /// A packet of a feed that nobody wrote arrives at the victim.
    Feed {
        /// From which site's address; or from one that nobody has.
        from: u8,
        /// What kind of packet.
        kind: u8,
        /// How far its frame is from the one at hand, and to which side.
        near: u8,
        /// Everything else.
        value: u32,
    },
    /// A packet of a search that nobody makes arrives at the victim, from a peer's address.
    Search {
        /// What kind of packet.
        kind: u8,
        /// How far its frame is from the one at hand, and to which side.
        near: u8,
        /// Everything else.
        value: u32,
    },
    /// A changed packet of the album arrives at the victim, from an address that nobody has.
    Stray {
        /// Which.
        packet: u8,
        /// What kind of change.
        how: u8,
        /// Where.
        at: u8,
        /// To what.
        value: u8,
    },
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

const RECOVERIES: [Recovery; 4] = [Recovery::Adaptive, Recovery::Redundant, Recovery::History, Recovery::Classic];
const PACINGS: [Pacing; 4] = [Pacing::Even, Pacing::Zhao, Pacing::ZhaoUnsynchronised, Pacing::Even];
const OWNERS: [Owners; 4] = [Owners::Pads, Owners::Shared, Owners::Sticks, Owners::LastAll];
const DROPS_MS: [Option<u16>; 4] = [None, Some(300), Some(400), Some(500)];
const INCARNATIONS: [u32; 4] = [1, 0, 2, u32::MAX];
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
        window: 0,
        crowd: false,
        drop_after_ms: None,
        incarnation: 1,
        late: false,
        auto: false,
        from_the_beginning: false,
        bulky: false,
    };

    fn decode(bytes: &mut Bytes<'_>) -> Self {
        let (who, how, guesses, drops) = (bytes.u8(), bytes.u8(), bytes.u8(), bytes.u8());
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
            fast: how & 0x40 != 0 && who & 0x01 == 0 && guesses & 0x40 == 0,
            last_is_victim: how & 0x80 != 0,
            window: ((guesses & 0x3f) % (MAX_PREDICTION_WINDOW as u8 + 1))
                .min(MAX_LEAD as u8 - choose(&LAGS, how >> 2)),
            crowd: guesses & 0x40 != 0,
            drop_after_ms: choose(&DROPS_MS, drops),
            incarnation: choose(&INCARNATIONS, drops >> 2),
            late: drops & 0x10 != 0,
            auto: drops & 0x20 != 0,
            from_the_beginning: drops & 0x40 != 0,
            bulky: drops & 0x80 != 0,
        }
    }

    fn encode(&self) -> [u8; 4] {
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
        let guesses = self.window | flag(self.crowd, 0x40);
        let drops = place(&self.drop_after_ms, &DROPS_MS)
            | place(&self.incarnation, &INCARNATIONS) << 2
            | flag(self.late, 0x10)
            | flag(self.auto, 0x20)
            | flag(self.from_the_beginning, 0x40)
            | flag(self.bulky, 0x80);
        [who, how, guesses, drops]
    }

    /// How many sites play.
    pub fn sites(&self) -> usize {
        if self.crowd { 6 } else { 2 + usize::from(self.third) }
    }
}

impl Deed {
    fn decode(bytes: &mut Bytes<'_>) -> Self {
        match bytes.u8() % 23 {
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
            15 => Self::Heal,
            16 => Self::Extra {
                from: bytes.u8(),
                kind: bytes.u8(),
                sites: bytes.u8(),
                near: bytes.u8(),
                value: bytes.u32(),
            },
            17 => Self::Crash(bytes.u8()),
            18 => Self::Part(bytes.u8()),
            19 => Self::Come(bytes.u8()),
            20 => Self::Feed { from: bytes.u8(), kind: bytes.u8(), near: bytes.u8(), value: bytes.u32() },
            21 => Self::Search { kind: bytes.u8(), near: bytes.u8(), value: bytes.u32() },
            _ => Self::Stray { packet: bytes.u8(), how: bytes.u8(), at: bytes.u8(), value: bytes.u8() },
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
            Self::Extra { from, kind, sites, near, value } => {
                out.extend([16, *from, *kind, *sites, *near]);
                out.extend(value.to_le_bytes());
            }
            Self::Crash(site) => out.extend([17, *site]),
            Self::Part(sites) => out.extend([18, *sites]),
            Self::Come(site) => out.extend([19, *site]),
            Self::Feed { from, kind, near, value } => {
                out.extend([&[20, *from, *kind][..], &number(*near, *value)].concat());
            }
            Self::Search { kind, near, value } => out.extend([&[21, *kind][..], &number(*near, *value)].concat()),
            Self::Stray { packet, how, at, value } => out.extend([22, *packet, *how, *at, *value]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_comes_back() {
        let scene = Scene { third: true, recovery: Recovery::History, lag: 120, delay_ms: 40, ..Scene::PLAIN };
        let scene = Scene { window: 7, crowd: true, drop_after_ms: Some(300), incarnation: u32::MAX, ..scene };
        let scene = Scene { late: true, auto: true, from_the_beginning: true, bulky: true, ..scene };
        let bytes = vec![1, 2, 3];
        let script = Script {
            scene: Scene { pacing: Pacing::Zhao, owners: Owners::LastAll, lobby: true, ..scene },
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
                Deed::Extra { from: 1, kind: 2, sites: 3, near: 4, value: u32::MAX },
                Deed::Crash(19),
                Deed::Part(20),
                Deed::Come(21),
                Deed::Feed { from: 22, kind: 23, near: 24, value: 25_000 },
                Deed::Search { kind: 26, near: 27, value: 28_000 },
                Deed::Stray { packet: 29, how: 30, at: 31, value: 32 },
            ],
        };
        assert_eq!(Script::decode(&script.encode()), script);
    }
}
