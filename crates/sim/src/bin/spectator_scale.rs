//! Measures the cost of many spectators of one session. Checks that the players behave as without spectators, that all
//! spectators are subscribed at the end, and that no spectator had a wrong state.

use std::process::ExitCode;

use coplay_sim::spectator_scale::{self, SpectatorScaleResult};

fn main() -> ExitCode {
    let spectators = match std::env::args().nth(1).map(|arg| arg.parse::<usize>()) {
        None => 10_000,
        Some(Ok(spectators)) => spectators,
        Some(Err(_)) => {
            eprintln!(
                "error: the number of spectators must be a whole number\nhint: `spectator_scale 10000` simulates 10,000 spectators"
            );
            return ExitCode::from(2);
        }
    };
    let (without, with) = (spectator_scale::run_default(0), spectator_scale::run_default(spectators));
    print_result(spectators, &with);
    let is_same_trace = without.player_trace_hash == with.player_trace_hash;
    println!(
        "players  trace hash {:016x} without, {:016x} with spectators: {}",
        without.player_trace_hash,
        with.player_trace_hash,
        describe_trace_equality(is_same_trace)
    );
    match is_same_trace && with.wrong_frames == 0 && with.subscribers == spectators {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

fn describe_trace_equality(is_same_trace: bool) -> &'static str {
    if is_same_trace { "the same bytes at the same instants" } else { "NOT THE SAME" }
}

fn print_result(spectators: usize, result: &SpectatorScaleResult) {
    let per_second = |count: u64| count as f64 / result.total_watch_seconds.max(1e-9);
    let SpectatorScaleResult { frames, subscribers, live, wrong_frames: wrong, stalls, batches, batch_bytes, .. } =
        *result;
    println!("{frames} frames, {spectators} spectators, {subscribers} subscribed, {live} live");
    println!("errors   {wrong} frames with wrong states, {stalls} stalls, summed over all spectators");
    println!("behind   the players by {:.1} frames on average", result.mean_frames_behind);
    println!(
        "encoded  {batches} batches of {:.1} bytes on average, once for all spectators",
        batch_bytes as f64 / batches.max(1) as f64
    );
    let (packets, bytes) = (per_second(result.packets_down), per_second(result.bytes_down));
    println!("down     {packets:.1} datagrams and {bytes:.0} bytes per spectator and second");
    let per_frame = |rate: f64| rate / 60.0;
    println!("cost     {:.3} datagrams and {:.1} bytes per spectator and frame", per_frame(packets), per_frame(bytes));
    println!(
        "of that  {:.0} bytes per spectator and second for requested snapshots and missed frames",
        per_second(result.requested_bytes)
    );
    let (packets, bytes) = (per_second(result.packets_up), per_second(result.bytes_up));
    println!("up       {packets:.1} datagrams and {bytes:.0} bytes per spectator and second");
    println!(
        "memory   {} bytes for the feed, at most {} bytes for a spectator",
        result.feed_memory, result.max_spectator_memory
    );
}
