//! Scripts of the target `session`: four bytes that configure the run, followed by actions.
//!
//! Any bytes are a script, and missing bytes at the end count as zero, so that a fuzzer may cut and splice freely.

use coplay::input::Recovery;
use coplay::pace::Pacing;
use coplay::session::{MAX_LEAD, MAX_PREDICTION_WINDOW};

use crate::script_reader::ScriptReader;

/// Maximum number of actions in a script; further bytes are ignored.
const MAX_ACTIONS: usize = 32;

/// A script for one run of the target `session`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// Configuration of the sites and the network.
    pub setup: ScriptSetup,
    /// Actions in the order in which they are performed.
    pub actions: Vec<ScriptAction>,
}

/// Configuration of the sites and of the network between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScriptSetup {
    /// Whether a third site plays; without effect if six sites play.
    pub has_third_site: bool,
    /// Recovery of lost inputs at all sites.
    pub recovery: Recovery,
    /// Pacing of frames at all sites.
    pub pacing: Pacing,
    /// Whether packets leave on a timer, and not at once.
    pub is_timer_sending: bool,
    /// Whether the actions start in the lobby, and not in a running game.
    pub starts_in_lobby: bool,
    /// Whether a site ends the session when another is silent for 400 ms.
    pub is_silence_fatal: bool,
    /// Distribution of the input bits over the sites.
    pub ownership: OwnershipKind,
    /// Input delay: one of 2, 0, 6, 120 frames.
    pub input_delay: u8,
    /// Latency of an undisturbed packet: one of 0, 7, 40, 150 milliseconds.
    pub delay_ms: u8,
    /// Whether there are 1,000 frames per second, and not 60; only with two sites, because it is slow to fuzz.
    pub is_fast: bool,
    /// Whether the attacker's packets go to the last site, and not to the first.
    pub is_last_site_victim: bool,
    /// Prediction window in frames, at most 60 and as far as the input delay allows.
    pub prediction_window: u8,
    /// Whether six sites play, and not two or three.
    pub has_six_sites: bool,
    /// Milliseconds of silence after which a site is dropped: never, 300, 400 or 500.
    pub drop_timeout_ms: Option<u16>,
    /// Incarnation with which each site starts: one of 1, 0, 2, the largest.
    pub incarnation: u32,
    /// Whether the last site joins late.
    pub has_late_joiner: bool,
    /// Whether input delay and prediction window follow the links automatically.
    pub is_auto: bool,
    /// Whether a late joiner starts from the first frame, and not from a snapshot.
    pub joins_from_first_frame: bool,
    /// Whether a state takes 40,008 bytes, and not 8.
    pub has_bulky_state: bool,
}

/// Distribution of the input bits of all players over the sites.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnershipKind {
    /// Each site owns 16 bits of its own player.
    Pads,
    /// Up to three sites own different bits of one player's word; further sites own none.
    Shared,
    /// Each site owns ten bytes of its own player.
    AnalogSticks,
    /// The last site owns all bits of all nine players, the others own none.
    AllToLast,
}

/// One action. Sites, packets in flight and kept packets are selected by a number modulo their count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScriptAction {
    /// Runs the network for 2 × (n + 1) ms, or until the time limit of the script. Packets arrive when they are due.
    RunNetwork(u8),
    /// Delivers nothing for n + 1 ms, or until the time limit of the script.
    CutNetwork(u8),
    /// Suspends all sites for the time of 3 × n frames.
    Sleep(u8),
    /// Delivers a packet in flight.
    Deliver(u8),
    /// Loses a packet in flight.
    Drop(u8),
    /// Delivers a copy of a packet in flight, which arrives once more later.
    Duplicate(u8),
    /// Delivers a kept packet, whether or not it has arrived before.
    Replay(u8),
    /// Delivers a mutated kept packet to the victim, from a peer's address.
    Mutate {
        /// Number of the kept packet.
        packet: u8,
        /// Kind of mutation, modulo 8.
        mutation: u8,
        /// Offset of the mutated byte, modulo the length of the packet.
        offset: u8,
        /// Operand of the mutation, such as the new byte.
        value: u8,
    },
    /// Delivers arbitrary bytes to the victim, from a peer's address.
    InjectFromPeer(Vec<u8>),
    /// Delivers arbitrary bytes to the victim, from an unknown address.
    InjectFromStranger(Vec<u8>),
    /// Delivers a tick to the victim from an unknown address, with the identity of a peer.
    InjectIdentified {
        /// Flags of the tick; a tick with a probe gets a valid stamp.
        flags: u8,
        /// Bytes after the identity, or after the stamp.
        rest: Vec<u8>,
    },
    /// Delivers a peer's newest tick, or the previously forged one, to the victim with one change.
    ForgeTick {
        /// Number of the change, modulo 16; plus 16 for the newest tick.
        field: u8,
        /// Number from which the changed fields are derived.
        value: u32,
    },
    /// Delivers a peer's hello to the victim with one or two fields replaced.
    ForgeHello {
        /// Number of the replacement, modulo 32.
        field: u8,
        /// Number from which the new values are derived.
        value: u32,
    },
    /// Makes the site with this number leave the session.
    Leave(u8),
    /// Delivers a forged extra to the victim in a peer's newest tick.
    ForgeExtra {
        /// Number of the peer among the sites other than the victim.
        from: u8,
        /// Kind of extra, modulo 8.
        kind: u8,
        /// Bit set of the sites that the extra is about.
        sites: u8,
        /// Signed offset of its frame from the victim's current frame, in units of three frames.
        frame_offset: u8,
        /// Number from which all other fields are derived.
        value: u32,
    },
    /// Crashes the site with this number.
    Crash(u8),
    /// Cuts the links between the sites in this bit set and the others.
    Partition(u8),
    /// Starts the site with this number as a late joiner, or restarts it. Without a late joiner in the setup this has
    /// no effect.
    Join(u8),
    /// Delivers a forged feed message to the victim.
    ForgeFeed {
        /// Number of the site whose address is the source, modulo the number of sites plus 1; the highest value stands
        /// for an unknown address.
        from: u8,
        /// Kind of message, modulo 14.
        kind: u8,
        /// Signed offset of its frame from the victim's current frame, in units of three frames.
        frame_offset: u8,
        /// Number from which all other fields are derived.
        value: u32,
    },
    /// Delivers a forged message of a desync search to the victim, from a peer's address.
    ForgeSearch {
        /// Kind of message, modulo 7.
        kind: u8,
        /// Signed offset of its frame from the victim's current frame, in units of three frames.
        frame_offset: u8,
        /// Number from which all other fields are derived.
        value: u32,
    },
    /// Delivers a mutated kept packet to the victim, from an unknown address.
    MutateFromStranger {
        /// Number of the kept packet.
        packet: u8,
        /// Kind of mutation, modulo 8.
        mutation: u8,
        /// Offset of the mutated byte, modulo the length of the packet.
        offset: u8,
        /// Operand of the mutation, such as the new byte.
        value: u8,
    },
    /// Sets the input that a site's player holds; with the top bit set, the input changes in every frame.
    Press {
        /// Number of the site whose input changes.
        site: u8,
        /// Input byte, from which the words of all players follow.
        value: u8,
    },
    /// Ends the partition and runs an undisturbed network until all sites continue, except those that a forgery or
    /// another fault excuses. Only the first three heals of a script count.
    Heal,
}

impl Script {
    /// Decodes a script from any bytes. Actions after the 32nd are ignored.
    pub fn decode(data: &[u8]) -> Self {
        let mut bytes = ScriptReader::new(data);
        let setup = ScriptSetup::decode(&mut bytes);
        let mut actions = Vec::new();
        while !bytes.is_empty() && actions.len() < MAX_ACTIONS {
            actions.push(ScriptAction::decode(&mut bytes));
        }
        Self { setup, actions }
    }

    /// Encodes the script. [`decode`](Self::decode) returns an equal script if this one has at most 32 actions, byte
    /// strings of at most 255 bytes, and only values that its setup documents.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = self.setup.encode().to_vec();
        for action in &self.actions {
            action.encode(&mut bytes);
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
    /// Two sites with pads and an input delay of 2 frames, in a running game, on a network without latency.
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
        let (sites, link, prediction, drops) = (bytes.u8(), bytes.u8(), bytes.u8(), bytes.u8());
        Self {
            has_third_site: sites & 0x01 != 0,
            recovery: choose(&RECOVERIES, sites >> 1),
            pacing: choose(&PACINGS, sites >> 3),
            is_timer_sending: sites & 0x20 != 0,
            starts_in_lobby: sites & 0x40 != 0,
            is_silence_fatal: sites & 0x80 != 0,
            ownership: choose(&OWNERSHIPS, link),
            input_delay: choose(&INPUT_DELAYS, link >> 2),
            delay_ms: choose(&DELAYS_MS, link >> 4),
            is_fast: link & 0x40 != 0 && sites & 0x01 == 0 && prediction & 0x40 == 0,
            is_last_site_victim: link & 0x80 != 0,
            prediction_window: ((prediction & 0x3f) % (MAX_PREDICTION_WINDOW as u8 + 1))
                .min(MAX_LEAD as u8 - choose(&INPUT_DELAYS, link >> 2)),
            has_six_sites: prediction & 0x40 != 0,
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
        let sites = flag(self.has_third_site, 0x01)
            | index_of(&self.recovery, &RECOVERIES) << 1
            | index_of(&self.pacing, &PACINGS) << 3
            | flag(self.is_timer_sending, 0x20)
            | flag(self.starts_in_lobby, 0x40)
            | flag(self.is_silence_fatal, 0x80);
        let link = index_of(&self.ownership, &OWNERSHIPS)
            | index_of(&self.input_delay, &INPUT_DELAYS) << 2
            | index_of(&self.delay_ms, &DELAYS_MS) << 4
            | flag(self.is_fast, 0x40)
            | flag(self.is_last_site_victim, 0x80);
        let prediction = self.prediction_window | flag(self.has_six_sites, 0x40);
        let drops = index_of(&self.drop_timeout_ms, &DROP_TIMEOUTS_MS)
            | index_of(&self.incarnation, &INCARNATIONS) << 2
            | flag(self.has_late_joiner, 0x10)
            | flag(self.is_auto, 0x20)
            | flag(self.joins_from_first_frame, 0x40)
            | flag(self.has_bulky_state, 0x80);
        [sites, link, prediction, drops]
    }

    /// Returns the number of sites: 2, 3 or 6.
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
            Self::Mutate { packet, mutation, offset, value } => out.extend([7, *packet, *mutation, *offset, *value]),
            Self::InjectFromPeer(bytes) => out.extend([vec![8], string(bytes)].concat()),
            Self::InjectFromStranger(bytes) => out.extend([vec![9], string(bytes)].concat()),
            Self::InjectIdentified { flags, rest } => out.extend([vec![10, *flags], string(rest)].concat()),
            Self::ForgeTick { field, value } => out.extend([&[11][..], &number(*field, *value)].concat()),
            Self::ForgeHello { field, value } => out.extend([&[12][..], &number(*field, *value)].concat()),
            Self::Leave(site) => out.extend([13, *site]),
            Self::Press { site, value } => out.extend([14, *site, *value]),
            Self::Heal => out.push(15),
            Self::ForgeExtra { from, kind, sites, frame_offset, value } => {
                out.extend([16, *from, *kind, *sites, *frame_offset]);
                out.extend(value.to_le_bytes());
            }
            Self::Crash(site) => out.extend([17, *site]),
            Self::Partition(sites) => out.extend([18, *sites]),
            Self::Join(site) => out.extend([19, *site]),
            Self::ForgeFeed { from, kind, frame_offset, value } => {
                out.extend([&[20, *from, *kind][..], &number(*frame_offset, *value)].concat());
            }
            Self::ForgeSearch { kind, frame_offset, value } => {
                out.extend([&[21, *kind][..], &number(*frame_offset, *value)].concat())
            }
            Self::MutateFromStranger { packet, mutation, offset, value } => {
                out.extend([22, *packet, *mutation, *offset, *value])
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn script_round_trips() {
        let setup = ScriptSetup {
            has_third_site: true,
            recovery: Recovery::History,
            input_delay: 120,
            delay_ms: 40,
            ..ScriptSetup::PLAIN
        };
        let setup = ScriptSetup {
            prediction_window: 7,
            has_six_sites: true,
            drop_timeout_ms: Some(300),
            incarnation: u32::MAX,
            ..setup
        };
        let setup = ScriptSetup {
            has_late_joiner: true,
            is_auto: true,
            joins_from_first_frame: true,
            has_bulky_state: true,
            ..setup
        };
        let bytes = vec![1, 2, 3];
        let script = Script {
            setup: ScriptSetup {
                pacing: Pacing::Zhao,
                ownership: OwnershipKind::AllToLast,
                starts_in_lobby: true,
                ..setup
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
