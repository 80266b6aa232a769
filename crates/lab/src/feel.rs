//! What will it feel like? For one link, what each setting of the dials gives its players, and which one `auto` picks.

use coplay::session::MachineCosts;
use coplay::time::TimeDelta;
use coplay_sim::link::{Jitter, LinkConfig};
use coplay_sim::measure::Experiment as Game;

use crate::bench::Bench;
use crate::numbers::{lossy, mean, most, ms};

/// A link between two players.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// There and back.
    pub rtt_ms: f64,
    /// The mean of what is added in each direction.
    pub jitter_ms: f64,
    /// The part of all packets that are lost, from 0 to 1.
    pub loss: f64,
}

/// A machine that both have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Machine {
    /// What it takes to step, save and load.
    pub costs: MachineCosts,
    /// Whether it can save and load its state exactly. Without that nothing can be guessed.
    pub can_save: bool,
}

/// The dials.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Setting {
    /// By how many frames an input is delayed.
    pub lag: u32,
    /// How many frames may be guessed.
    pub window: u32,
}

/// What a setting gives.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The setting.
    pub setting: Setting,
    /// Frames per second.
    pub frames_per_second: f64,
    /// Mean absolute deviation of the frame time, at the worse site.
    pub deviation_ms: f64,
    /// The longest time between two frames.
    pub longest_ms: f64,
    /// From a press until it shows where it was pressed.
    pub own_ms: f64,
    /// From a press until it shows at the other site.
    pub other_ms: f64,
    /// Frames stepped once more, for 100 frames, at the worse site.
    pub again: f64,
    /// Bytes of payload in a second and one direction.
    pub bytes_per_second: f64,
}

/// What it feels like.
#[derive(Clone, Debug)]
pub struct Feel {
    /// By setting: those that wait first, then those that guess.
    pub rows: Vec<Row>,
    /// What the dials come to when they turn by themselves.
    pub auto: Setting,
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
const BEGIN: Setting = Setting { lag: 2, window: 8 };
/// Long enough for them to come to rest, in frames: three minutes.
const SETTLING: u32 = 10_800;
/// Frames that are measured.
const FRAMES: u32 = 1_800;

impl Link {
    fn config(&self) -> LinkConfig {
        let jitter = match self.jitter_ms {
            0.0 => Jitter::None,
            mean_ms => Jitter::Exponential { mean: ms(mean_ms) },
        };
        LinkConfig { jitter, ..lossy(self.rtt_ms, self.loss) }
    }
}

impl Row {
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
pub fn feel(bench: &mut Bench<'_>, link: Link, machine: Machine) -> Feel {
    let seed = bench.seed;
    let auto = bench.spread(0.3, &[()], |()| pick(seed, link, machine))[0];
    let settings = settings(machine, auto);
    let rows = bench.spread(0.7, &settings, |setting| measure(seed, link, machine, *setting));
    Feel { rows, auto }
}

/// Settings worth a look, and the one that was picked.
fn settings(machine: Machine, picked: Setting) -> Vec<Setting> {
    let waiting = [2, 4, 6, 8, 12].map(|lag| Setting { lag, window: 0 });
    let guessing = [(0, 8), (2, 8), (4, 8), (0, 16), (2, 16)].map(|(lag, window)| Setting { lag, window });
    let guessing = guessing.into_iter().filter(|_| machine.can_save);
    let mut settings: Vec<Setting> = waiting.into_iter().chain(guessing).chain([picked]).collect();
    settings.sort_by_key(|setting| (setting.window > 0, setting.lag, setting.window));
    settings.dedup();
    settings
}

fn game(seed: u64, link: Link, machine: Machine, setting: Setting) -> Game {
    let Setting { lag, window } = setting;
    // Where frames are guessed, a state is kept before each of them.
    let save = if window > 0 { machine.costs.save } else { TimeDelta::ZERO };
    let step_cost = machine.costs.step + save;
    let Machine { costs, can_save } = machine;
    Game { seed, lag, window, costs, can_save, step_cost, frames: FRAMES, ..Game::new(link.config()) }
}

/// What the dials come to when they turn by themselves.
fn pick(seed: u64, link: Link, machine: Machine) -> Setting {
    let begin = Setting { window: if machine.can_save { BEGIN.window } else { 0 }, ..BEGIN };
    let game = Game { auto: true, frames: SETTLING, ..game(seed, link, machine, begin) };
    let mut now = begin;
    game.run_watched(|world| {
        let stats = world.sites[0].session.stats();
        now = Setting { lag: stats.input_delay, window: stats.prediction_window };
    });
    now
}

fn measure(seed: u64, link: Link, machine: Machine, setting: Setting) -> Row {
    let outcome = game(seed, link, machine, setting).run();
    Row {
        setting,
        frames_per_second: outcome.fps(),
        deviation_ms: outcome.worst_deviation_ms(),
        longest_ms: outcome.longest_ms,
        own_ms: mean(&outcome.own_ms),
        other_ms: mean(&outcome.other_ms),
        again: most(outcome.resimulated.iter().copied()),
        bytes_per_second: outcome.bytes_per_frame * outcome.fps(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::Length;

    const FAST: Machine = Machine {
        costs: MachineCosts { step: TimeDelta::ZERO, save: TimeDelta::ZERO, load: TimeDelta::ZERO },
        can_save: true,
    };

    fn feel_of(link: Link, machine: Machine) -> Feel {
        feel(&mut Bench::new(1, Length::Short, 2, &|_| {}), link, machine)
    }

    fn row(feel: &Feel, lag: u32, window: u32) -> Row {
        *feel.rows.iter().find(|row| row.setting == Setting { lag, window }).expect("it was tried")
    }

    #[test]
    fn auto_picks_what_is_smooth_and_short() {
        let feel = feel_of(Link { rtt_ms: 120.0, jitter_ms: 5.0, loss: 0.02 }, FAST);
        let picked = row(&feel, feel.auto.lag, feel.auto.window);
        assert_eq!(picked.smoothness(), Smoothness::Smooth, "{picked:?}");
        assert!(picked.own_ms < 60.0 && feel.auto.window > 0, "{picked:?}");
        assert_eq!(row(&feel, 2, 0).smoothness(), Smoothness::Rough, "60 ms there do not fit into 2 frames");
        assert!(row(&feel, 2, 8).own_ms + 60.0 < row(&feel, 8, 0).own_ms);
    }

    #[test]
    fn what_cannot_save_is_not_guessed() {
        let feel = feel_of(Link { rtt_ms: 120.0, jitter_ms: 0.0, loss: 0.0 }, Machine { can_save: false, ..FAST });
        assert!(feel.rows.iter().all(|row| row.setting.window == 0) && feel.auto.window == 0);
        assert_eq!(row(&feel, feel.auto.lag, 0).smoothness(), Smoothness::Smooth, "{feel:?}");
        assert!(feel.auto.lag >= 4, "{:?}", feel.auto);
    }
}
