//! Previews a game over a link: simulates sessions with several delay settings, among them the one that the automatic
//! delay control reaches.

use coplay::session::MachineCosts;
use coplay::time::TimeDelta;
use coplay_links::link::{Jitter, LinkConfig};
use coplay_sim::session_experiment::SessionExperiment;

use crate::bench::ExperimentContext;
use crate::numbers::{lossy_link, max_or_zero, mean, ms};

/// Properties of a simulated link between two players.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkQuality {
    /// Round-trip time without jitter.
    pub rtt_ms: f64,
    /// Mean jitter in each direction.
    pub jitter_ms: f64,
    /// Fraction of packets lost, from 0 to 1.
    pub loss: f64,
}

/// Properties of the machine that both players run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MachineProfile {
    /// Times to step a frame, to save a state and to load one.
    pub costs: MachineCosts,
    /// Whether the machine saves and loads its state exactly. Prediction requires it.
    pub can_save: bool,
}

/// A pair of input delay and prediction window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DelaySetting {
    /// Input delay in frames.
    pub input_delay: u32,
    /// Prediction window in frames.
    pub prediction_window: u32,
}

/// Measurements of one delay setting.
#[derive(Clone, Copy, Debug)]
pub struct PreviewRow {
    /// Measured delay setting.
    pub setting: DelaySetting,
    /// Mean frame rate of the first site, over 1,800 frames.
    pub frames_per_second: f64,
    /// Mean absolute deviation of the frame time from its mean, at the worse site.
    pub deviation_ms: f64,
    /// Longest time between two successive frame starts at any site.
    pub max_frame_ms: f64,
    /// Mean latency from a button press to the player's own screen.
    pub local_latency_ms: f64,
    /// Mean latency from a button press to the other player's screen.
    pub remote_latency_ms: f64,
    /// Resimulated frames per 100 frames at the worse site.
    pub resimulated_per_100_frames: f64,
    /// Payload bytes per second from one site to the other.
    pub bytes_per_second: f64,
}

/// Measurements of several delay settings over one link.
#[derive(Clone, Debug)]
pub struct LinkPreview {
    /// One row per setting: first those without prediction, then those with it.
    pub rows: Vec<PreviewRow>,
    /// Setting that the automatic delay control has reached after three minutes.
    pub auto_setting: DelaySetting,
}

/// Grade of a setting by its frame rate and evenness.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Smoothness {
    /// Above 59.5 frames per second with a deviation below 1 ms: like a local game.
    Smooth,
    /// Not smooth, but above 55 frames per second with a deviation below 5 ms.
    Uneven,
    /// Slower or more uneven than that: hardly enjoyable.
    Rough,
}

/// Initial setting of the automatic delay control, as in the program.
const AUTO_START: DelaySetting = DelaySetting { input_delay: 2, prediction_window: 8 };
/// Frames for which the automatic delay control runs before its setting is read: three minutes.
const AUTO_SETTLING_FRAMES: u32 = 10_800;
/// Number of frames that the preview measures with each setting.
const MEASURED_FRAMES: u32 = 1_800;

impl LinkQuality {
    fn config(&self) -> LinkConfig {
        let jitter = match self.jitter_ms {
            0.0 => Jitter::None,
            mean_ms => Jitter::Exponential { mean: ms(mean_ms) },
        };
        LinkConfig { jitter, ..lossy_link(self.rtt_ms, self.loss) }
    }
}

impl PreviewRow {
    /// Grades the frame rate and the deviation of the frame time.
    pub fn smoothness(&self) -> Smoothness {
        match (self.frames_per_second, self.deviation_ms) {
            (speed, deviation) if speed > 59.5 && deviation < 1.0 => Smoothness::Smooth,
            (speed, deviation) if speed > 55.0 && deviation < 5.0 => Smoothness::Uneven,
            _ => Smoothness::Rough,
        }
    }
}

/// Measures sessions with all candidate settings over a link, in virtual time.
pub fn preview_link(context: &mut ExperimentContext<'_>, link: LinkQuality, machine: MachineProfile) -> LinkPreview {
    let seed = context.seed;
    let auto = context.run_jobs(0.3, &[()], |()| auto_pick(seed, link, machine))[0];
    let settings = candidate_settings(machine, auto);
    let rows = context.run_jobs(0.7, &settings, |setting| measure_setting(seed, link, machine, *setting));
    LinkPreview { rows, auto_setting: auto }
}

/// Returns the settings to compare: several fixed ones, of which those with prediction require a machine that can save,
/// and the one that the automatic delay control reached.
fn candidate_settings(machine: MachineProfile, picked: DelaySetting) -> Vec<DelaySetting> {
    let lockstep = [2, 4, 6, 8, 12].map(|input_delay| DelaySetting { input_delay, prediction_window: 0 });
    let predicting = [(0, 8), (2, 8), (4, 8), (0, 16), (2, 16)]
        .map(|(input_delay, prediction_window)| DelaySetting { input_delay, prediction_window });
    let predicting = predicting.into_iter().filter(|_| machine.can_save);
    let mut settings: Vec<DelaySetting> = lockstep.into_iter().chain(predicting).chain([picked]).collect();
    settings.sort_by_key(|setting| (setting.prediction_window > 0, setting.input_delay, setting.prediction_window));
    settings.dedup();
    settings
}

fn simulated_session(
    seed: u64,
    link: LinkQuality,
    machine: MachineProfile,
    setting: DelaySetting,
) -> SessionExperiment {
    let DelaySetting { input_delay, prediction_window } = setting;
    // With prediction, the site saves a state before every frame.
    let save = if prediction_window > 0 { machine.costs.save } else { TimeDelta::ZERO };
    let step_cost = machine.costs.step + save;
    let MachineProfile { costs, can_save } = machine;
    SessionExperiment {
        seed,
        input_delay,
        prediction_window,
        costs,
        can_save,
        step_cost,
        frames: MEASURED_FRAMES,
        ..SessionExperiment::new(link.config())
    }
}

/// Returns the setting that the automatic delay control has reached after [`AUTO_SETTLING_FRAMES`].
fn auto_pick(seed: u64, link: LinkQuality, machine: MachineProfile) -> DelaySetting {
    let initial = DelaySetting {
        prediction_window: if machine.can_save { AUTO_START.prediction_window } else { 0 },
        ..AUTO_START
    };
    let game = SessionExperiment {
        auto_delay: true,
        frames: AUTO_SETTLING_FRAMES,
        ..simulated_session(seed, link, machine, initial)
    };
    let mut current = initial;
    game.run_observed(|world| {
        let stats = world.nodes[0].session.stats();
        current = DelaySetting { input_delay: stats.input_delay, prediction_window: stats.prediction_window };
    });
    current
}

fn measure_setting(seed: u64, link: LinkQuality, machine: MachineProfile, setting: DelaySetting) -> PreviewRow {
    let outcome = simulated_session(seed, link, machine, setting).run();
    PreviewRow {
        setting,
        frames_per_second: outcome.fps(),
        deviation_ms: outcome.worst_deviation_ms(),
        max_frame_ms: outcome.longest_frame_ms,
        local_latency_ms: mean(&outcome.local_latency_ms),
        remote_latency_ms: mean(&outcome.remote_latency_ms),
        resimulated_per_100_frames: max_or_zero(outcome.resimulated_per_100.iter().copied()),
        bytes_per_second: outcome.bytes_per_frame * outcome.fps(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::ExperimentLength;

    const ZERO_COST_MACHINE: MachineProfile = MachineProfile {
        costs: MachineCosts { step: TimeDelta::ZERO, save: TimeDelta::ZERO, load: TimeDelta::ZERO },
        can_save: true,
    };

    fn preview(link: LinkQuality, machine: MachineProfile) -> LinkPreview {
        preview_link(&mut ExperimentContext::new(1, ExperimentLength::Short, 2, &|_| {}), link, machine)
    }

    fn row_of(preview: &LinkPreview, input_delay: u32, prediction_window: u32) -> PreviewRow {
        *preview
            .rows
            .iter()
            .find(|row| row.setting == DelaySetting { input_delay, prediction_window })
            .expect("the setting is a candidate")
    }

    #[test]
    fn auto_picks_a_smooth_setting_with_low_latency() {
        let preview = preview(LinkQuality { rtt_ms: 120.0, jitter_ms: 5.0, loss: 0.02 }, ZERO_COST_MACHINE);
        let picked = row_of(&preview, preview.auto_setting.input_delay, preview.auto_setting.prediction_window);
        assert_eq!(picked.smoothness(), Smoothness::Smooth, "{picked:?}");
        assert!(picked.local_latency_ms < 60.0 && preview.auto_setting.prediction_window > 0, "{picked:?}");
        assert_eq!(
            row_of(&preview, 2, 0).smoothness(),
            Smoothness::Rough,
            "an input delay of 2 frames does not cover 60 ms one way"
        );
        assert!(row_of(&preview, 2, 8).local_latency_ms + 60.0 < row_of(&preview, 8, 0).local_latency_ms);
    }

    #[test]
    fn machine_without_save_gets_no_prediction_window() {
        let preview = preview(
            LinkQuality { rtt_ms: 120.0, jitter_ms: 0.0, loss: 0.0 },
            MachineProfile { can_save: false, ..ZERO_COST_MACHINE },
        );
        assert!(
            preview.rows.iter().all(|row| row.setting.prediction_window == 0)
                && preview.auto_setting.prediction_window == 0
        );
        assert_eq!(
            row_of(&preview, preview.auto_setting.input_delay, 0).smoothness(),
            Smoothness::Smooth,
            "{preview:?}"
        );
        assert!(preview.auto_setting.input_delay >= 4, "{:?}", preview.auto_setting);
    }
}
