//! Measures a late join: the time until the joiner plays, and its cost for the players.

use std::process::ExitCode;

use coplay::time::TimeDelta;
use coplay_sim::late_join::{LateJoinExperiment, LateJoinResult, PlayerImpact, StallCounts};

/// Time limit from the start of the joiner to its first input, except for a join by replay.
const JOIN_DEADLINE: TimeDelta = TimeDelta::from_secs(15);

fn main() -> ExitCode {
    let seed = match std::env::args().nth(1).map(|arg| arg.parse::<u64>()) {
        None => 1,
        Some(Ok(seed)) => seed,
        Some(Err(_)) => {
            eprintln!("error: the seed must be a whole number\nhint: `late_join 1` measures with seed 1");
            return ExitCode::from(2);
        }
    };
    let experiments = [
        (
            "snapshot of 1 MiB over 1 Mbit/s, RTT 300 ms and 2 % loss, 20 s into a session of two",
            LateJoinExperiment::by_snapshot(),
            true,
        ),
        ("replay of 10 min of inputs at 1 ms per frame, without save states", LateJoinExperiment::by_replay(), false),
        (
            "one of three sites crashes, is dropped 1 s later, and rejoins 3 s after the crash from another address",
            LateJoinExperiment::rejoin_after_crash(),
            true,
        ),
        ("a second player joins a session of one", LateJoinExperiment::join_single_player(), true),
    ];
    let mut passed = true;
    for (description, experiment, has_deadline) in experiments {
        println!("{description}");
        let result = LateJoinExperiment { seed, ..experiment }.run();
        print_result(&result);
        passed &= is_success(&result)
            && (!has_deadline || result.first_input_after.is_some_and(|after| after <= JOIN_DEADLINE));
    }
    println!("{}", if passed { "all checks passed" } else { "SOME CHECKS FAILED" });
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn is_success(result: &LateJoinResult) -> bool {
    let is_unaffected = |player: &PlayerImpact| player.same_actions && player.before[0] == player.before[1];
    result.all_running && result.states_equal && result.same_datagrams && result.players.iter().all(is_unaffected)
}

fn print_result(result: &LateJoinResult) {
    let time = |time: Option<TimeDelta>| time.map_or("never".into(), |time| format!("{:.2} s", time.as_secs_f64()));
    let frame =
        result.join_frame.map_or("unknown: no site joined, or the sites disagree".into(), |frame| frame.to_string());
    println!("  loaded     after {}", time(result.loaded_after));
    println!("  scheduled  after {}, for frame {frame}", time(result.scheduled_after));
    println!("  joined     after {}", time(result.joined_after));
    println!(
        "  plays      after {}; its frames start {:.1} ms after those of the first player",
        time(result.first_input_after),
        result.mean_behind_ms
    );
    let same = if result.same_datagrams { "the same bytes at the same instants" } else { "NOT THE SAME" };
    println!("  datagrams  {} between the players before the scheduled join: {same}", result.datagrams);
    result.players.iter().enumerate().for_each(|(number, player)| print_player(number, player));
    let states = if result.states_equal { "equal" } else { "NOT EQUAL" };
    let end = result.end_reason.map_or(String::new(), |end| format!(", the joiner's session ended: {end:?}"));
    println!("  states     {states}; {}{end}", if result.all_running { "all sites run" } else { "NOT ALL SITES RUN" });
}

fn print_player(number: usize, player: &PlayerImpact) {
    let counts = |[with, without]: [StallCounts; 2]| {
        let (stalls, resimulated) = ((with.stalls, without.stalls), (with.resimulated, without.resimulated));
        format!(
            "{} stalls ({} without joiner), {} resimulated frames ({} without)",
            stalls.0, stalls.1, resimulated.0, resimulated.1
        )
    };
    let same = if player.same_actions { "the same at the same instants" } else { "NOT THE SAME" };
    println!(
        "  player {number} up to the join frame: {}; {} actions, {same}",
        counts(player.before),
        player.action_count
    );
    println!("  player {number} from then on:         {}", counts(player.after));
    println!(
        "    {} input changes of the joiner x {:.1} predicted frames = {:.0} resimulated frames expected",
        player.joiner_input_changes,
        player.mean_prediction_depth,
        player.expected_resimulated()
    );
}
