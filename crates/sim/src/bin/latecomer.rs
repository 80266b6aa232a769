//! Somebody comes late to a game: how long it takes until he plays, and what those who play notice of it.

use std::process::ExitCode;

use coplay::time::TimeDelta;
use coplay_sim::late_join::{LateJoinExperiment, LateJoinResult, PlayerImpact, StallCounts};

/// He plays within this time.
const JOIN_DEADLINE: TimeDelta = TimeDelta::from_secs(15);

fn main() -> ExitCode {
    let seed = match std::env::args().nth(1).map(|arg| arg.parse::<u64>()) {
        None => 1,
        Some(Ok(seed)) => seed,
        Some(Err(_)) => {
            eprintln!("latecomer: a seed is a number\nhint: latecomer 1");
            return ExitCode::from(2);
        }
    };
    let experiments = [
        (
            "a state of 1 MiB over 1 Mbit/s, 300 ms and 2 % loss, 20 s into a game of two",
            LateJoinExperiment::by_snapshot(),
            true,
        ),
        ("no states: 10 min of inputs played again at 1 ms a frame", LateJoinExperiment::by_replay(), false),
        (
            "one of three dies, is dropped after 1 s, and is back after 3 s from elsewhere",
            LateJoinExperiment::rejoin_after_crash(),
            true,
        ),
        ("one plays alone, and a second one comes", LateJoinExperiment::join_single_player(), true),
    ];
    let mut fine = true;
    for (what, experiment, soon) in experiments {
        println!("{what}");
        let outcome = LateJoinExperiment { seed, ..experiment }.run();
        print_result(&outcome);
        fine &=
            is_success(&outcome) && (!soon || outcome.first_input_after.is_some_and(|after| after <= JOIN_DEADLINE));
    }
    println!("{}", if fine { "all is as it should be" } else { "NOT AS IT SHOULD BE" });
    if fine { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn is_success(outcome: &LateJoinResult) -> bool {
    let unnoticed = |player: &PlayerImpact| player.same_actions && player.before[0] == player.before[1];
    outcome.all_running && outcome.states_equal && outcome.same_datagrams && outcome.players.iter().all(unnoticed)
}

fn print_result(outcome: &LateJoinResult) {
    let time = |time: Option<TimeDelta>| time.map_or("never".into(), |time| format!("{:.2} s", time.as_secs_f64()));
    let frame = outcome.join_frame.map_or("none that all agree on".into(), |frame| frame.to_string());
    println!("  begins   after {}", time(outcome.loaded_after));
    println!("  order    after {}, for frame {frame}", time(outcome.scheduled_after));
    println!("  seated   after {}", time(outcome.joined_after));
    println!(
        "  plays    after {}, then {:.1} ms behind the first",
        time(outcome.first_input_after),
        outcome.mean_behind_ms
    );
    let same = if outcome.same_datagrams { "the same bytes at the same instants" } else { "NOT THE SAME" };
    println!("  packets  {} between the players before the order: {same}", outcome.datagrams);
    outcome.players.iter().enumerate().for_each(|(number, player)| print_player(number, player));
    let states = if outcome.states_equal { "equal" } else { "NOT EQUAL" };
    let end = outcome.end_reason.map_or(String::new(), |end| format!(", the latecomer ended: {end:?}"));
    println!("  states   {states}; {}{end}", if outcome.all_running { "all play" } else { "NOT ALL PLAY" });
}

fn print_player(number: usize, player: &PlayerImpact) {
    let counts = |[with, without]: [StallCounts; 2]| {
        let (stalls, again) = ((with.stalls, without.stalls), (with.resimulated, without.resimulated));
        format!("{} stalls ({} without him), {} frames again ({} without)", stalls.0, stalls.1, again.0, again.1)
    };
    let same = if player.same_actions { "the same at the same instants" } else { "NOT THE SAME" };
    println!("  player {number} until that frame: {}; {} acts, {same}", counts(player.before), player.action_count);
    println!("  player {number} from then on:     {}", counts(player.after));
    println!(
        "    his {} changes x {:.1} frames guessed = {:.0}",
        player.joiner_input_changes,
        player.mean_prediction_depth,
        player.expected_resimulated()
    );
}
