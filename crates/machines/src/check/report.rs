//! Everything that was found out, and what a session makes of it.

use std::time::Duration;

use coplay::session::{Config, MachineCosts};
use coplay::time::TimeDelta;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::CHECK_VERSION;
use super::measure::MeasuredCosts;
use super::verdict::{CheckComparison, CheckVerdict, LockstepReason, MachineFault};
use crate::machine::Machine;

/// With this lag nobody feels that a button is late.
pub(super) const COMFORTABLE_INPUT_DELAY: u32 = 2;

/// Everything that was found out about a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckReport {
    /// Whether it is fit to be shared, and how.
    pub verdict: CheckVerdict,
    /// Who was checked.
    pub identity: SubjectIdentity,
    /// How many frames were found to be equal, by comparison.
    pub compared: Vec<ComparedFrames>,
    /// Comparisons for which there was less time than they should have had.
    pub cut_short: Vec<CheckComparison>,
    /// What it costs on this computer.
    pub measured: MeasuredCosts,
    /// How many frames can be repaired within one, as busy as this computer was; none if nothing can be guessed.
    pub prediction_window: u32,
    /// What else a person should know.
    pub notes: Vec<String>,
    /// How long it took to find out, in milliseconds.
    pub elapsed_ms: u64,
}

/// Who was checked, by what, and where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubjectIdentity {
    /// A hash of all that tells machine and game from others; nothing, here and below, if it could not be opened.
    pub key: String,
    /// The machine's name.
    pub machine: String,
    /// Its version.
    pub version: String,
    /// Its options that are not the usual ones.
    pub options: Vec<(String, String)>,
    /// The game's name.
    pub game: String,
    /// The SHA-256 of the game's image.
    pub game_sha256: String,
    /// How many can play.
    pub players: usize,
    /// The time of a frame, in nanoseconds.
    pub period_ns: u64,
    /// The system and the kind of processor.
    pub platform: String,
    /// The version of the check.
    pub check_version: u32,
}

/// What was compared, and was equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ComparedFrames {
    /// In which way.
    pub comparison: CheckComparison,
    /// For how many frames.
    pub frames: u32,
}

/// What a check found.
pub(super) struct CheckResults {
    pub(super) verdict: CheckVerdict,
    pub(super) compared: Vec<ComparedFrames>,
    pub(super) cut_short: Vec<CheckComparison>,
    pub(super) measured: MeasuredCosts,
    pub(super) notes: Vec<String>,
}

/// How a machine may be used by a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fitness {
    /// Whether it may be shared at all.
    pub can_share: bool,
    /// Whether its states may be saved, loaded and given to others.
    pub can_save: bool,
    /// The most frames that may be guessed.
    pub max_prediction_window: u32,
    /// What it costs.
    pub costs: MachineCosts,
}

impl SubjectIdentity {
    /// Of a machine, on this computer.
    pub fn of_machine(machine: &dyn Machine) -> Self {
        let (id, game) = (machine.machine_id(), machine.game_id());
        Self {
            key: identity_key(machine),
            machine: id.name.clone(),
            version: id.version.clone(),
            options: id.options.clone(),
            game: game.name.clone(),
            game_sha256: hex(&game.hash),
            players: machine.pads().len(),
            period_ns: machine.frame_rate().period().as_nanos().unsigned_abs(),
            platform: platform(),
            check_version: CHECK_VERSION,
        }
    }

    /// Of one that could not be opened, as far as it is known.
    pub(super) fn unopened(key: &str, machine: &str, game: &str) -> Self {
        Self {
            key: key.into(),
            machine: machine.into(),
            version: String::new(),
            options: Vec::new(),
            game: game.into(),
            game_sha256: String::new(),
            players: 0,
            period_ns: 0,
            platform: platform(),
            check_version: CHECK_VERSION,
        }
    }

    pub(super) fn period(&self) -> TimeDelta {
        TimeDelta::from_nanos(self.period_ns.min(i64::MAX as u64) as i64)
    }
}

impl CheckReport {
    pub(super) fn new(machine: &dyn Machine, found: CheckResults, took: Duration) -> Self {
        let CheckResults { mut verdict, compared, cut_short, measured, mut notes } = found;
        let identity = SubjectIdentity::of_machine(machine);
        // Whether it is fit must not depend on what else this computer does just now.
        if verdict == CheckVerdict::Rollback && measured.best_case_costs().max_prediction_window(identity.period()) == 0
        {
            verdict = too_slow_verdict(&measured, &identity);
        }
        let exact = verdict == CheckVerdict::Rollback;
        let window = if exact { measured.median_costs().max_prediction_window(identity.period()) } else { 0 };
        if exact && window == 0 {
            notes.push("this computer was too busy to repair a frame within another".into());
        }
        Self {
            verdict,
            identity,
            compared,
            cut_short,
            measured,
            prediction_window: window,
            notes,
            elapsed_ms: took.as_millis().min(u128::from(u64::MAX)) as u64,
        }
    }

    /// Of a machine that could not be opened.
    pub(super) fn unopened(machine: &str, game: &str, fault: MachineFault) -> Self {
        Self {
            verdict: CheckVerdict::Unfit { fault },
            identity: SubjectIdentity::unopened("", machine, game),
            compared: Vec::new(),
            cut_short: Vec::new(),
            measured: MeasuredCosts::default(),
            prediction_window: 0,
            notes: Vec::new(),
            elapsed_ms: 0,
        }
    }

    /// Whether it says the same on another day: nothing was left out, and nothing in it is owed to what else this computer did.
    pub fn is_cacheable(&self) -> bool {
        let busy = match &self.verdict {
            CheckVerdict::Rollback => self.prediction_window == 0,
            CheckVerdict::Lockstep { reason } => matches!(reason, LockstepReason::TooSlow { .. }),
            CheckVerdict::Unfit { .. } => false,
        };
        !busy && self.cut_short.is_empty() && !self.identity.key.is_empty()
    }

    /// How the machine may be used by a session.
    pub fn fitness(&self) -> Fitness {
        let exact = match &self.verdict {
            CheckVerdict::Rollback | CheckVerdict::Lockstep { reason: LockstepReason::TooSlow { .. } } => true,
            CheckVerdict::Lockstep { .. } | CheckVerdict::Unfit { .. } => false,
        };
        Fitness {
            can_share: self.verdict.is_fit(),
            can_save: exact,
            max_prediction_window: self.prediction_window,
            costs: self.measured.median_costs(),
        }
    }

    /// The lag that a game without guesses wants on a link with this round trip: as many frames as an input is on its way, and one
    /// to spare.
    pub fn lockstep_input_delay(&self, round_trip: TimeDelta) -> u32 {
        let period = self.identity.period_ns.max(1);
        let one_way = round_trip.as_nanos().max(0).unsigned_abs() / 2;
        (one_way.div_ceil(period) + 1).min(u64::from(u32::MAX)) as u32
    }

    /// The longest round trip at which no frame has to wait with this window and a lag that nobody feels.
    pub fn max_round_trip(&self) -> TimeDelta {
        self.identity.period() * i64::from(2 * (COMFORTABLE_INPUT_DELAY + self.prediction_window))
    }

    /// As JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("plain data")
    }
}

impl Fitness {
    /// Lets one site take part with what is known of its machine: `auto` turns its dials by that, and nobody is offered a state that is
    /// not exact. What all sites agree on is left as it is; who opens a game sets [`Settings::window`](coplay::session::Settings::window)
    /// to no more than [`window`](Self::window).
    pub fn apply(&self, config: &mut Config) {
        config.can_save &= self.can_save;
        config.bisect_desyncs &= self.can_save;
        config.machine_costs = self.costs;
    }
}

fn too_slow_verdict(measured: &MeasuredCosts, identity: &SubjectIdentity) -> CheckVerdict {
    let costs = measured.best_case_costs();
    let repair = costs.load + (costs.step + costs.save) * 2;
    let reason =
        LockstepReason::TooSlow { rollback_ns: repair.as_nanos().unsigned_abs(), period_ns: identity.period_ns };
    CheckVerdict::Lockstep { reason }
}

/// The system and the kind of processor.
fn platform() -> String {
    format!("{} {}", std::env::consts::OS, std::env::consts::ARCH)
}

/// A hash of everything that tells a machine and its game from others, as text.
pub(super) fn identity_key(machine: &dyn Machine) -> String {
    let (id, game, mut hash) = (machine.machine_id(), machine.game_id(), Sha256::new());
    let options = id.options.iter().flat_map(|(key, value)| [key, value]);
    for text in [&id.name, &id.version].into_iter().chain(options) {
        hash.update((text.len() as u64).to_le_bytes());
        hash.update(text);
    }
    hash.update(id.first_frames_hash.to_le_bytes());
    hash.update(game.hash);
    let (frames, seconds) = machine.frame_rate().fraction();
    hash.update([frames.to_le_bytes(), seconds.to_le_bytes()].concat());
    machine.pads().iter().for_each(|pad| hash.update(pad.mask.to_le_bytes()));
    hex(&hash.finalize())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
