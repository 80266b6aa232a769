//! What will it feel like? For one link, what each setting of the dials gives its players, and which one `auto` picks.

use coplay::session::MachineCosts;
use coplay::time::TimeDelta;
use coplay_sim::link::{Jitter, LinkConfig};
use coplay_sim::session_experiment::SessionExperiment as Game;

use crate::bench::ExperimentContext;
use crate::numbers::{lossy_link, max_or_zero, mean, ms};

/// A link between two players.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkQuality {
    /// There and back.
    pub rtt_ms: f64,
    /// The mean of what is added in each direction.
    pub jitter_ms: f64,
    /// The part of all packets that are lost, from 0 to 1.
    pub loss: f64,
}

/// A machine that both have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MachineProfile {
    /// What it takes to step, save and load.
    pub costs: MachineCosts,
    /// Whether it can save and load its state exactly. Without that nothing can be guessed.
    pub can_save: bool,
}

/// The dials.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DelaySetting {
    /// By how many frames an input is delayed.
    pub input_delay: u32,
    /// How many frames may be guessed.
    pub prediction_window: u32,
}

/// What a setting gives.
#[derive(Clone, Copy, Debug)]
pub struct PreviewRow {
    /// The setting.
    pub setting: DelaySetting,
    /// Frames per second.
    pub frames_per_second: f64,
    /// Mean absolute deviation of the frame time, at the worse site.
    pub deviation_ms: f64,
    /// The longest time between two frames.
    pub max_frame_ms: f64,
    /// From a press until it shows where it was pressed.
    pub local_latency_ms: f64,
    /// From a press until it shows at the other site.
    pub remote_latency_ms: f64,
    /// Frames stepped once more, for 100 frames, at the worse site.
    pub resimulated_per_100_frames: f64,
    /// Bytes of payload in a second and one direction.
    pub bytes_per_second: f64,
}

/// What it feels like.
#[derive(Clone, Debug)]
pub struct LinkPreview {
    /// By setting: those that wait first, then those that guess.
    pub rows: Vec<PreviewRow>,
    /// What the dials come to when they turn by themselves.
    pub auto_setting: DelaySetting,
}

/// How smooth something is, in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Smoothness {
    /// At full speed, and nobody sees that it is not one computer.
    Smooth,
    /// Not quite even, or a little slow.
    Uneven,
    /// No pleasure.
    Rough,
}

/// Where the dials begin when they turn by themselves, as in the program.
const AUTO_START: DelaySetting = DelaySetting { input_delay: 2, prediction_window: 8 };
/// Long enough for them to come to rest, in frames: three minutes.
const AUTO_SETTLING_FRAMES: u32 = 10_800;
/// Frames that are measured.
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
    /// In a word.
    pub fn smoothness(&self) -> Smoothness {
        match (self.frames_per_second, self.deviation_ms) {
            (speed, deviation) if speed > 59.5 && deviation < 1.0 => Smoothness::Smooth,
            (speed, deviation) if speed > 55.0 && deviation < 5.0 => Smoothness::Uneven,
            _ => Smoothness::Rough,
        }
    }
}

/// Tries all settings over a link.
pub fn preview_link(bench: &mut ExperimentContext<'_>, link: LinkQuality, machine: MachineProfile) -> LinkPreview {
    let seed = bench.seed;
    let auto = bench.run_jobs(0.3, &[()], |()| auto_pick(seed, link, machine))[0];
    let settings = candidate_settings(machine, auto);
    let rows = bench.run_jobs(0.7, &settings, |setting| measure_setting(seed, link, machine, *setting));
    LinkPreview { rows, auto_setting: auto }
}

/// Settings worth a look, and the one that was picked.
fn candidate_settings(machine: MachineProfile, picked: DelaySetting) -> Vec<DelaySetting> {
    let waiting = [2, 4, 6, 8, 12].map(|lag| DelaySetting { input_delay: lag, prediction_window: 0 });
    let guessing = [(0, 8), (2, 8), (4, 8), (0, 16), (2, 16)]
        .map(|(lag, window)| DelaySetting { input_delay: lag, prediction_window: window });
    let guessing = guessing.into_iter().filter(|_| machine.can_save);
    let mut settings: Vec<DelaySetting> = waiting.into_iter().chain(guessing).chain([picked]).collect();
    settings.sort_by_key(|setting| (setting.prediction_window > 0, setting.input_delay, setting.prediction_window));
    settings.dedup();
    settings
}

fn simulated_session(seed: u64, link: LinkQuality, machine: MachineProfile, setting: DelaySetting) -> Game {
    let DelaySetting { input_delay: lag, prediction_window: window } = setting;
    // Where frames are guessed, a state is kept before each of them.
    let save = if window > 0 { machine.costs.save } else { TimeDelta::ZERO };
    let step_cost = machine.costs.step + save;
    let MachineProfile { costs, can_save } = machine;
    Game {
        seed,
        input_delay: lag,
        prediction_window: window,
        costs,
        can_save,
        step_cost,
        frames: MEASURED_FRAMES,
        ..Game::new(link.config())
    }
}

/// What the dials come to when they turn by themselves.
fn auto_pick(seed: u64, link: LinkQuality, machine: MachineProfile) -> DelaySetting {
    let begin = DelaySetting {
        prediction_window: if machine.can_save { AUTO_START.prediction_window } else { 0 },
        ..AUTO_START
    };
    let game = Game { auto_delay: true, frames: AUTO_SETTLING_FRAMES, ..simulated_session(seed, link, machine, begin) };
    let mut now = begin;
    game.run_observed(|world| {
        let stats = world.sites[0].session.stats();
        now = DelaySetting { input_delay: stats.input_delay, prediction_window: stats.prediction_window };
    });
    now
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

    fn row_of(feel: &LinkPreview, lag: u32, window: u32) -> PreviewRow {
        *feel
            .rows
            .iter()
            .find(|row| row.setting == DelaySetting { input_delay: lag, prediction_window: window })
            .expect("it was tried")
    }

    #[test]
    fn auto_picks_a_smooth_setting_with_low_latency() {
        let feel = preview(LinkQuality { rtt_ms: 120.0, jitter_ms: 5.0, loss: 0.02 }, ZERO_COST_MACHINE);
        let picked = row_of(&feel, feel.auto_setting.input_delay, feel.auto_setting.prediction_window);
        assert_eq!(picked.smoothness(), Smoothness::Smooth, "{picked:?}");
        assert!(picked.local_latency_ms < 60.0 && feel.auto_setting.prediction_window > 0, "{picked:?}");
        assert_eq!(row_of(&feel, 2, 0).smoothness(), Smoothness::Rough, "60 ms there do not fit into 2 frames");
        assert!(row_of(&feel, 2, 8).local_latency_ms + 60.0 < row_of(&feel, 8, 0).local_latency_ms);
    }

    #[test]
    fn machine_without_save_gets_no_prediction_window() {
        let feel = preview(
            LinkQuality { rtt_ms: 120.0, jitter_ms: 0.0, loss: 0.0 },
            MachineProfile { can_save: false, ..ZERO_COST_MACHINE },
        );
        assert!(
            feel.rows.iter().all(|row| row.setting.prediction_window == 0) && feel.auto_setting.prediction_window == 0
        );
        assert_eq!(row_of(&feel, feel.auto_setting.input_delay, 0).smoothness(), Smoothness::Smooth, "{feel:?}");
        assert!(feel.auto_setting.input_delay >= 4, "{:?}", feel.auto_setting);
    }
}
