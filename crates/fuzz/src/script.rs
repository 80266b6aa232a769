//! The language of the target `session`: four bytes that set the scene, then one deed after the other.
//!
//! Any bytes are a script, and what is missing at the end is zero, so that a fuzzer may cut and splice as it likes.

use coplay::input::Recovery;
use coplay::pace::Pacing;
use coplay::session::{MAX_LEAD, MAX_PREDICTION_WINDOW};

use crate::script_reader::ScriptReader;

/// Deeds of one script; further ones are ignored.
const MAX_ACTIONS: usize = 32;

/// What happens in one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// Who plays, and how.
    pub setup: ScriptSetup,
    /// What happens, in this order.
    pub actions: Vec<ScriptAction>,
}

/// Who plays, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScriptSetup {
    /// Whether a third site plays.
    pub has_third_site: bool,
    /// How lost inputs come back.
    pub recovery: Recovery,
    /// How frames are paced.
    pub pacing: Pacing,
    /// Whether packets leave when a timer rings, and not at once.
    pub is_timer_sending: bool,
    /// Whether the deeds begin in the lobby, and not in a running game.
    pub starts_in_lobby: bool,
    /// Whether sites end the session when another is silent for long.
    pub is_silence_fatal: bool,
    /// Who owns which bits.
    pub ownership: OwnershipKind,
    /// The local lag: one of 2, 0, 6, 120 frames.
    pub input_delay: u8,
    /// How long a packet is under way when nothing is wrong: one of 0, 7, 40, 150 milliseconds.
    pub delay_ms: u8,
    /// Whether there are 1,000 frames per second, and not 60; only with two sites, because it is slow to fuzz.
    pub is_fast: bool,
    /// Whether the last site is attacked, and not the first.
    pub is_last_site_victim: bool,
    /// How many frames may be guessed, as far as the lag allows.
    pub prediction_window: u8,
    /// Whether six sites play, and not two or three.
    pub has_six_sites: bool,
    /// After how many milliseconds of silence a site is dropped: never, 300, 400 or 500.
    pub drop_timeout_ms: Option<u16>,
    /// The number that each site's program was started with: one of 1, 0, 2, the largest.
    pub incarnation: u32,
    /// Whether the last site comes when the others play.
    pub has_late_joiner: bool,
    /// Whether lag and window follow what the links need.
    pub is_auto: bool,
    /// Whether who comes late begins with the first frame, and not with a state.
    pub joins_from_first_frame: bool,
    /// Whether a state takes 40,000 bytes, and not 8.
    pub has_bulky_state: bool,
}

/// Who owns which bits of which players.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnershipKind {
    /// Each site has 16 bits of its own player.
    Pads,
    /// Each site has a part of every byte of one player.
    Shared,
    /// Each site has ten bytes of its own player.
    AnalogSticks,
    /// The last site has all bits of eight players, the others have none.
    AllToLast,
}

/// One thing that happens. Packets under way, and those of the album, are chosen by a number modulo how many there are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScriptAction {
    /// So many times two milliseconds (and two more) in which nothing is wrong.
    RunNetwork(u8),
    /// So many milliseconds (and one more) in which nothing arrives.
    CutNetwork(u8),
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
        mutation: u8,
        /// Where.
        offset: u8,
        /// To what.
        value: u8,
    },
    /// Any bytes arrive at the victim, from a peer's address.
    InjectFromPeer(Vec<u8>),
    /// Any bytes arrive at the victim, from an address that nobody has.
    InjectFromStranger(Vec<u8>),
    /// The rest of a tick arrives at the victim from an address that nobody has, but with the name of a peer.
    InjectIdentified {
        /// What the tick has besides, and its probe's stamp if it has one.
        flags: u8,
        /// All that follows the identity, or the stamp.
        rest: Vec<u8>,
    },
    /// A peer's newest tick, or the one that was forged before, arrives at the victim with one field replaced.
    ForgeTick {
        /// Which; 16 more if it is the newest.
        field: u8,
        /// By what.
        value: u32,
    },
    /// A peer's hello arrives at the victim with one field replaced.
    ForgeHello {
        /// Which.
        field: u8,
        /// By what.
        value: u32,
    },
    /// A site leaves.
    Leave(u8),
    /// An extra that nobody wrote arrives at the victim in a peer's newest tick.
    ForgeExtra {
        /// Which peer's.
        from: u8,
        /// What kind of extra.
        kind: u8,
        /// The sites that it is about.
        sites: u8,
        /// How far its frame is from the one at hand, and to which side.
        frame_offset: u8,
        /// Everything else.
        value: u32,
    },
    /// A site dies.
    Crash(u8),
    /// From now on nothing passes between these sites and the others.
    Partition(u8),
    /// A site comes that was not there yet, or starts anew.
    Join(u8),
    /// A packet of a feed that nobody wrote arrives at the victim.
    ForgeFeed {
        /// From which site's address; or from one that nobody has.
        from: u8,
        /// What kind of packet.
        kind: u8,
        /// How far its frame is from the one at hand, and to which side.
        frame_offset: u8,
        /// Everything else.
        value: u32,
    },
    /// A packet of a search that nobody makes arrives at the victim, from a peer's address.
    ForgeSearch {
        /// What kind of packet.
        kind: u8,
        /// How far its frame is from the one at hand, and to which side.
        frame_offset: u8,
        /// Everything else.
        value: u32,
    },
    /// A changed packet of the album arrives at the victim, from an address that nobody has.
    MutateFromStranger {
        /// Which.
        packet: u8,
        /// What kind of change.
        mutation: u8,
        /// Where.
        offset: u8,
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
        let mut bytes = ScriptReader::new(data);
        let scene = ScriptSetup::decode(&mut bytes);
        let mut deeds = Vec::new();
        while !bytes.is_empty() && deeds.len() < MAX_ACTIONS {
            deeds.push(ScriptAction::decode(&mut bytes));
        }
        Self { setup: scene, actions: deeds }
    }

    /// The bytes that are this script.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = self.setup.encode().to_vec();
        for deed in &self.actions {
            deed.encode(&mut bytes);
        }
        bytes
    }
}

const RECOVERIES: [Recovery; 4] = [Recovery::Adaptive, Recovery::Redundant, Recovery::History, Recovery::Classic];
const PACINGS: [Pacing; 4] = [Pacing::Even, Pacing::Zhao, Pacing::ZhaoUnsynchronised, Pacing::Even];
const OWNERSHIPS: [OwnershipKind; 4] =
    [OwnershipKind::Pads, OwnershipKind::Shared, OwnershipKind::AnalogSticks, OwnershipKind::AllToLast];
const DROP_TIMEOUTS_MS: [Option<u16>; 4] = [None, Some(300), Some(400), Some(500)];
const INCARNATIONS: [u32; 4] = [1, 0, 2, u32::MAX];
const INPUT_DELAYS: [u8; 4] = [2, 0, 6, 120];
const DELAYS_MS: [u8; 4] = [0, 7, 40, 150];

fn choose<T: Copy>(from: &[T; 4], bits: u8) -> T {
    from[usize::from(bits & 3)]
}

fn index_of<T: PartialEq>(of: &T, within: &[T; 4]) -> u8 {
    within.iter().position(|one| one == of).unwrap_or(0) as u8
}

impl ScriptSetup {
    /// Two sites with pads, lag 2, in a running game, on a network that takes no time.
    pub const PLAIN: Self = Self {
        has_third_site: false,
        recovery: Recovery::Adaptive,
        pacing: Pacing::Even,
        is_timer_sending: false,
        starts_in_lobby: false,
        is_silence_fatal: false,
        ownership: OwnershipKind::Pads,
        input_delay: 2,
        delay_ms: 0,
        is_fast: false,
        is_last_site_victim: false,
        prediction_window: 0,
        has_six_sites: false,
        drop_timeout_ms: None,
        incarnation: 1,
        has_late_joiner: false,
        is_auto: false,
        joins_from_first_frame: false,
        has_bulky_state: false,
    };

    fn decode(bytes: &mut ScriptReader<'_>) -> Self {
        let (who, how, guesses, drops) = (bytes.u8(), bytes.u8(), bytes.u8(), bytes.u8());
        Self {
            has_third_site: who & 0x01 != 0,
            recovery: choose(&RECOVERIES, who >> 1),
            pacing: choose(&PACINGS, who >> 3),
            is_timer_sending: who & 0x20 != 0,
            starts_in_lobby: who & 0x40 != 0,
            is_silence_fatal: who & 0x80 != 0,
            ownership: choose(&OWNERSHIPS, how),
            input_delay: choose(&INPUT_DELAYS, how >> 2),
            delay_ms: choose(&DELAYS_MS, how >> 4),
            is_fast: how & 0x40 != 0 && who & 0x01 == 0 && guesses & 0x40 == 0,
            is_last_site_victim: how & 0x80 != 0,
            prediction_window: ((guesses & 0x3f) % (MAX_PREDICTION_WINDOW as u8 + 1))
                .min(MAX_LEAD as u8 - choose(&INPUT_DELAYS, how >> 2)),
            has_six_sites: guesses & 0x40 != 0,
            drop_timeout_ms: choose(&DROP_TIMEOUTS_MS, drops),
            incarnation: choose(&INCARNATIONS, drops >> 2),
            has_late_joiner: drops & 0x10 != 0,
            is_auto: drops & 0x20 != 0,
            joins_from_first_frame: drops & 0x40 != 0,
            has_bulky_state: drops & 0x80 != 0,
        }
    }

    fn encode(&self) -> [u8; 4] {
        let flag = |on: bool, bit: u8| if on { bit } else { 0 };
        let who = flag(self.has_third_site, 0x01)
            | index_of(&self.recovery, &RECOVERIES) << 1
            | index_of(&self.pacing, &PACINGS) << 3
            | flag(self.is_timer_sending, 0x20)
            | flag(self.starts_in_lobby, 0x40)
            | flag(self.is_silence_fatal, 0x80);
        let how = index_of(&self.ownership, &OWNERSHIPS)
            | index_of(&self.input_delay, &INPUT_DELAYS) << 2
            | index_of(&self.delay_ms, &DELAYS_MS) << 4
            | flag(self.is_fast, 0x40)
            | flag(self.is_last_site_victim, 0x80);
        let guesses = self.prediction_window | flag(self.has_six_sites, 0x40);
        let drops = index_of(&self.drop_timeout_ms, &DROP_TIMEOUTS_MS)
            | index_of(&self.incarnation, &INCARNATIONS) << 2
            | flag(self.has_late_joiner, 0x10)
            | flag(self.is_auto, 0x20)
            | flag(self.joins_from_first_frame, 0x40)
            | flag(self.has_bulky_state, 0x80);
        [who, how, guesses, drops]
    }

    /// How many sites play.
    pub fn site_count(&self) -> usize {
        if self.has_six_sites { 6 } else { 2 + usize::from(self.has_third_site) }
    }
}

impl ScriptAction {
    fn decode(bytes: &mut ScriptReader<'_>) -> Self {
        match bytes.u8() % 23 {
            0 => Self::RunNetwork(bytes.u8()),
            1 => Self::CutNetwork(bytes.u8()),
            2 => Self::Sleep(bytes.u8()),
            3 => Self::Deliver(bytes.u8()),
            4 => Self::Drop(bytes.u8()),
            5 => Self::Duplicate(bytes.u8()),
            6 => Self::Replay(bytes.u8()),
            7 => Self::Mutate { packet: bytes.u8(), mutation: bytes.u8(), offset: bytes.u8(), value: bytes.u8() },
            8 => Self::InjectFromPeer(bytes.string()),
            9 => Self::InjectFromStranger(bytes.string()),
            10 => Self::InjectIdentified { flags: bytes.u8(), rest: bytes.string() },
            11 => Self::ForgeTick { field: bytes.u8(), value: bytes.u32() },
            12 => Self::ForgeHello { field: bytes.u8(), value: bytes.u32() },
            13 => Self::Leave(bytes.u8()),
            14 => Self::Press { site: bytes.u8(), value: bytes.u8() },
            15 => Self::Heal,
            16 => Self::ForgeExtra {
                from: bytes.u8(),
                kind: bytes.u8(),
                sites: bytes.u8(),
                frame_offset: bytes.u8(),
                value: bytes.u32(),
            },
            17 => Self::Crash(bytes.u8()),
            18 => Self::Partition(bytes.u8()),
            19 => Self::Join(bytes.u8()),
            20 => Self::ForgeFeed { from: bytes.u8(), kind: bytes.u8(), frame_offset: bytes.u8(), value: bytes.u32() },
            21 => Self::ForgeSearch { kind: bytes.u8(), frame_offset: bytes.u8(), value: bytes.u32() },
            _ => Self::MutateFromStranger {
                packet: bytes.u8(),
                mutation: bytes.u8(),
                offset: bytes.u8(),
                value: bytes.u8(),
            },
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let number = |field: u8, value: u32| {
            let [a, b, c, d] = value.to_le_bytes();
            [field, a, b, c, d]
        };
        let string = |bytes: &[u8]| [&[bytes.len().min(255) as u8], &bytes[..bytes.len().min(255)]].concat();
        match self {
            Self::RunNetwork(time) => out.extend([0, *time]),
            Self::CutNetwork(time) => out.extend([1, *time]),
            Self::Sleep(time) => out.extend([2, *time]),
            Self::Deliver(packet) => out.extend([3, *packet]),
            Self::Drop(packet) => out.extend([4, *packet]),
            Self::Duplicate(packet) => out.extend([5, *packet]),
            Self::Replay(packet) => out.extend([6, *packet]),
            Self::Mutate { packet, mutation: how, offset: at, value } => out.extend([7, *packet, *how, *at, *value]),
            Self::InjectFromPeer(bytes) => out.extend([vec![8], string(bytes)].concat()),
            Self::InjectFromStranger(bytes) => out.extend([vec![9], string(bytes)].concat()),
            Self::InjectIdentified { flags, rest } => out.extend([vec![10, *flags], string(rest)].concat()),
            Self::ForgeTick { field, value } => out.extend([&[11][..], &number(*field, *value)].concat()),
            Self::ForgeHello { field, value } => out.extend([&[12][..], &number(*field, *value)].concat()),
            Self::Leave(site) => out.extend([13, *site]),
            Self::Press { site, value } => out.extend([14, *site, *value]),
            Self::Heal => out.push(15),
            Self::ForgeExtra { from, kind, sites, frame_offset: near, value } => {
                out.extend([16, *from, *kind, *sites, *near]);
                out.extend(value.to_le_bytes());
            }
            Self::Crash(site) => out.extend([17, *site]),
            Self::Partition(sites) => out.extend([18, *sites]),
            Self::Join(site) => out.extend([19, *site]),
            Self::ForgeFeed { from, kind, frame_offset: near, value } => {
                out.extend([&[20, *from, *kind][..], &number(*near, *value)].concat());
            }
            Self::ForgeSearch { kind, frame_offset: near, value } => {
                out.extend([&[21, *kind][..], &number(*near, *value)].concat())
            }
            Self::MutateFromStranger { packet, mutation: how, offset: at, value } => {
                out.extend([22, *packet, *how, *at, *value])
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn script_round_trips() {
        let scene = ScriptSetup {
            has_third_site: true,
            recovery: Recovery::History,
            input_delay: 120,
            delay_ms: 40,
            ..ScriptSetup::PLAIN
        };
        let scene = ScriptSetup {
            prediction_window: 7,
            has_six_sites: true,
            drop_timeout_ms: Some(300),
            incarnation: u32::MAX,
            ..scene
        };
        let scene = ScriptSetup {
            has_late_joiner: true,
            is_auto: true,
            joins_from_first_frame: true,
            has_bulky_state: true,
            ..scene
        };
        let bytes = vec![1, 2, 3];
        let script = Script {
            setup: ScriptSetup {
                pacing: Pacing::Zhao,
                ownership: OwnershipKind::AllToLast,
                starts_in_lobby: true,
                ..scene
            },
            actions: vec![
                ScriptAction::RunNetwork(1),
                ScriptAction::CutNetwork(2),
                ScriptAction::Sleep(3),
                ScriptAction::Deliver(4),
                ScriptAction::Drop(5),
                ScriptAction::Duplicate(6),
                ScriptAction::Replay(7),
                ScriptAction::Mutate { packet: 8, mutation: 9, offset: 10, value: 11 },
                ScriptAction::InjectFromPeer(bytes.clone()),
                ScriptAction::InjectFromStranger(Vec::new()),
                ScriptAction::InjectIdentified { flags: 12, rest: bytes },
                ScriptAction::ForgeTick { field: 13, value: 14_000 },
                ScriptAction::ForgeHello { field: 15, value: u32::MAX },
                ScriptAction::Leave(16),
                ScriptAction::Press { site: 17, value: 18 },
                ScriptAction::Heal,
                ScriptAction::ForgeExtra { from: 1, kind: 2, sites: 3, frame_offset: 4, value: u32::MAX },
                ScriptAction::Crash(19),
                ScriptAction::Partition(20),
                ScriptAction::Join(21),
                ScriptAction::ForgeFeed { from: 22, kind: 23, frame_offset: 24, value: 25_000 },
                ScriptAction::ForgeSearch { kind: 26, frame_offset: 27, value: 28_000 },
                ScriptAction::MutateFromStranger { packet: 29, mutation: 30, offset: 31, value: 32 },
            ],
        };
        assert_eq!(Script::decode(&script.encode()), script);
    }
}
