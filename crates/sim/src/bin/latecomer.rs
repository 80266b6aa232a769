//! Somebody comes late to a game: how long it takes until he plays, and what those who play notice of it.

use std::process::ExitCode;

use coplay::time::TimeDelta;
use coplay_sim::latecomer::{Counts, Latecomer, Outcome, Player};

/// He plays within this time.
const SOON: TimeDelta = TimeDelta::from_secs(15);

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
            Latecomer::by_snapshot(),
            true,
        ),
        ("no states: 10 min of inputs played again at 1 ms a frame", Latecomer::by_replay(), false),
        (
            "one of three dies, is dropped after 1 s, and is back after 3 s from elsewhere",
            Latecomer::back_again(),
            true,
        ),
        ("one plays alone, and a second one comes", Latecomer::to_one_alone(), true),
    ];
    let mut fine = true;
    for (what, experiment, soon) in experiments {
        println!("{what}");
        let outcome = Latecomer { seed, ..experiment }.run();
        print(&outcome);
        fine &= is_fine(&outcome) && (!soon || outcome.plays_after.is_some_and(|after| after <= SOON));
    }
    println!("{}", if fine { "all is as it should be" } else { "NOT AS IT SHOULD BE" });
    if fine { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn is_fine(outcome: &Outcome) -> bool {
    let unnoticed = |player: &Player| player.same_acts && player.before[0] == player.before[1];
    outcome.running && outcome.states_equal && outcome.same_packets && outcome.players.iter().all(unnoticed)
}

fn print(outcome: &Outcome) {
    let time = |time: Option<TimeDelta>| time.map_or("never".into(), |time| format!("{:.2} s", time.as_secs_f64()));
    let frame = outcome.frame.map_or("none that all agree on".into(), |frame| frame.to_string());
    println!("  begins   after {}", time(outcome.loaded_after));
    println!("  order    after {}, for frame {frame}", time(outcome.ordered_after));
    println!("  seated   after {}", time(outcome.seated_after));
    println!("  plays    after {}, then {:.1} ms behind the first", time(outcome.plays_after), outcome.behind_ms);
    let same = if outcome.same_packets { "the same bytes at the same instants" } else { "NOT THE SAME" };
    println!("  packets  {} between the players before the order: {same}", outcome.packets);
    outcome.players.iter().enumerate().for_each(|(number, player)| print_player(number, player));
    let states = if outcome.states_equal { "equal" } else { "NOT EQUAL" };
    let end = outcome.ended.map_or(String::new(), |end| format!(", the latecomer ended: {end:?}"));
    println!("  states   {states}; {}{end}", if outcome.running { "all play" } else { "NOT ALL PLAY" });
}

fn print_player(number: usize, player: &Player) {
    let counts = |[with, without]: [Counts; 2]| {
        let (stalls, again) = ((with.stalls, without.stalls), (with.resimulated, without.resimulated));
        format!("{} stalls ({} without him), {} frames again ({} without)", stalls.0, stalls.1, again.0, again.1)
    };
    let same = if player.same_acts { "the same at the same instants" } else { "NOT THE SAME" };
    println!("  player {number} until that frame: {}; {} acts, {same}", counts(player.before), player.acts);
    println!("  player {number} from then on:     {}", counts(player.after));
    println!("    his {} changes x {:.1} frames guessed = {:.0}", player.changes, player.depth, player.due());
}
