//! The report of a check, and the netplay features that a session may use according to the report.

use std::time::Duration;

use coplay::session::{Config, MachineCosts};
use coplay::time::TimeDelta;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::CHECK_VERSION;
use super::measure::MeasuredCosts;
use super::verdict::{CheckComparison, CheckVerdict, LockstepReason, MachineFault};
use crate::machine::Machine;

/// Input delay in frames that players hardly notice.
pub(super) const COMFORTABLE_INPUT_DELAY: u32 = 2;

/// The report of a check on a machine with a game.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckReport {
    /// Whether and how the machine is fit for netplay.
    pub verdict: CheckVerdict,
    /// Identity of the checked machine and game.
    pub identity: SubjectIdentity,
    /// Number of equal frames per comparison. Comparisons without an equal frame are missing.
    pub compared: Vec<ComparedFrames>,
    /// Comparisons that ended before their planned number of frames, for lack of time.
    pub cut_short: Vec<CheckComparison>,
    /// Times measured on this computer during the check.
    pub measured: MeasuredCosts,
    /// Number of frames that can be rolled back within 80 % of a frame period, at most 20, at this computer's load
    /// during the check; 0 without rollback.
    #[serde(rename = "window")]
    pub prediction_window: u32,
    /// Remarks for the user, for example that pressed buttons had no effect.
    pub notes: Vec<String>,
    /// Duration of the check without the smoke test, in milliseconds.
    #[serde(rename = "took_ms")]
    pub elapsed_ms: u64,
}

/// Identity of the checked machine and game, the check version and the platform.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubjectIdentity {
    /// SHA-256 hash in hexadecimal of machine id, game image, frame rate and pads; empty if the machine failed in the
    /// smoke test. Version, options, image hash, players and period are then empty or 0.
    pub key: String,
    /// Name of the machine, from its machine id; if the machine failed in the smoke test,
    /// [`CheckSubject::machine_name`](super::CheckSubject::machine_name).
    pub machine: String,
    /// Version in the machine id.
    pub version: String,
    /// Options in the machine id, as key and value.
    pub options: Vec<(String, String)>,
    /// Display name of the game.
    pub game: String,
    /// SHA-256 hash of the game's image, in hexadecimal.
    pub game_sha256: String,
    /// Number of pads that the machine has.
    pub players: usize,
    /// Frame period in nanoseconds.
    pub period_ns: u64,
    /// Operating system and processor architecture.
    pub platform: String,
    /// Value of [`CHECK_VERSION`] when the check ran.
    #[serde(rename = "check")]
    pub check_version: u32,
}

/// Number of frames in which a comparison found no difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ComparedFrames {
    /// Comparison to which the number belongs.
    pub comparison: CheckComparison,
    /// Number of frames in which both instances were equal.
    pub frames: u32,
}

/// Results of the comparisons, from which the report is built.
pub(super) struct CheckResults {
    pub(super) verdict: CheckVerdict,
    pub(super) compared: Vec<ComparedFrames>,
    pub(super) cut_short: Vec<CheckComparison>,
    pub(super) measured: MeasuredCosts,
    pub(super) notes: Vec<String>,
}

/// Netplay features that a session may use with a machine, according to a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fitness {
    /// Whether the machine may be shared at all.
    pub can_share: bool,
    /// Whether the machine's states may be saved, loaded and sent to other sites.
    pub can_save: bool,
    /// Maximum prediction window in frames, from the measured costs; 0 without rollback.
    pub max_prediction_window: u32,
    /// Median times of steps, saves and loads on this computer.
    pub costs: MachineCosts,
}

impl SubjectIdentity {
    /// Returns the identity of a machine on this computer.
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

    /// Returns the identity of a machine that is not open in this process. Unknown fields are empty or 0.
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
    pub(super) fn new(machine: &dyn Machine, results: CheckResults, elapsed: Duration) -> Self {
        let CheckResults { mut verdict, compared, cut_short, measured, mut notes } = results;
        let identity = SubjectIdentity::of_machine(machine);
        // The verdict must not depend on the current load of this computer.
        if verdict == CheckVerdict::Rollback && measured.best_case_costs().max_prediction_window(identity.period()) == 0
        {
            verdict = too_slow_verdict(&measured, &identity);
        }
        let is_exact = verdict == CheckVerdict::Rollback;
        let window = if is_exact { measured.median_costs().max_prediction_window(identity.period()) } else { 0 };
        if is_exact && window == 0 {
            notes.push(
                "rollbacks were too slow, perhaps because other programs kept this computer busy; check again".into(),
            );
        }
        Self {
            verdict,
            identity,
            compared,
            cut_short,
            measured,
            prediction_window: window,
            notes,
            elapsed_ms: elapsed.as_millis().min(u128::from(u64::MAX)) as u64,
        }
    }

    /// Creates the report on a machine that crashed in the smoke test.
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

    /// Returns whether a repeated check would give the same verdict: the machine was opened, no comparison ended early,
    /// and neither the verdict nor a prediction window of 0 is due to the load of this computer.
    pub fn is_cacheable(&self) -> bool {
        let depends_on_load = match &self.verdict {
            CheckVerdict::Rollback => self.prediction_window == 0,
            CheckVerdict::Lockstep { reason } => matches!(reason, LockstepReason::TooSlow { .. }),
            CheckVerdict::Unfit { .. } => false,
        };
        !depends_on_load && self.cut_short.is_empty() && !self.identity.key.is_empty()
    }

    /// Returns the netplay features that a session may use with the machine.
    pub fn fitness(&self) -> Fitness {
        let is_exact = match &self.verdict {
            CheckVerdict::Rollback | CheckVerdict::Lockstep { reason: LockstepReason::TooSlow { .. } } => true,
            CheckVerdict::Lockstep { .. } | CheckVerdict::Unfit { .. } => false,
        };
        Fitness {
            can_share: self.verdict.is_fit(),
            can_save: is_exact,
            max_prediction_window: self.prediction_window,
            costs: self.measured.median_costs(),
        }
    }

    /// Returns the input delay that lockstep needs on a link with this round trip: the one-way delay in frames, rounded
    /// up, plus one frame.
    pub fn lockstep_input_delay(&self, round_trip: TimeDelta) -> u32 {
        let period = self.identity.period_ns.max(1);
        let one_way = round_trip.as_nanos().max(0).unsigned_abs() / 2;
        (one_way.div_ceil(period) + 1).min(u64::from(u32::MAX)) as u32
    }

    /// Returns the longest round trip at which no frame stalls on a link without jitter and loss, with the report's
    /// prediction window and an input delay of 2 frames.
    pub fn max_round_trip(&self) -> TimeDelta {
        self.identity.period() * i64::from(2 * (COMFORTABLE_INPUT_DELAY + self.prediction_window))
    }

    /// Formats the report as indented JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("the report contains only plain data")
    }
}

impl Fitness {
    /// Applies the fitness to the config of one site. Automatic tuning then uses the measured costs, and a site without
    /// exact states neither offers states nor takes part in desync searches. Does not change the settings, which all
    /// sites share. The host must itself limit
    /// [`Settings::prediction_window`](coplay::session::Settings::prediction_window) to
    /// [`max_prediction_window`](Self::max_prediction_window).
    pub fn apply(&self, config: &mut Config) {
        config.can_save &= self.can_save;
        config.bisect_desyncs &= self.can_save;
        config.machine_costs = self.costs;
    }
}

fn too_slow_verdict(measured: &MeasuredCosts, identity: &SubjectIdentity) -> CheckVerdict {
    let costs = measured.best_case_costs();
    let rollback = costs.load + (costs.step + costs.save) * 2;
    let reason =
        LockstepReason::TooSlow { rollback_ns: rollback.as_nanos().unsigned_abs(), period_ns: identity.period_ns };
    CheckVerdict::Lockstep { reason }
}

/// Returns the operating system and the processor architecture.
fn platform() -> String {
    format!("{} {}", std::env::consts::OS, std::env::consts::ARCH)
}

/// Returns a SHA-256 hash of machine id, game image, frame rate and pads, in hexadecimal.
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
