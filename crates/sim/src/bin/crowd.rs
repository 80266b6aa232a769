//! Many who watch one game: what each of them costs, and that the players cannot tell.

use std::process::ExitCode;

use coplay_sim::spectators::scale::{self, SpectatorScaleResult};

fn main() -> ExitCode {
    let watchers = match std::env::args().nth(1).map(|arg| arg.parse::<usize>()) {
        None => 10_000,
        Some(Ok(watchers)) => watchers,
        Some(Err(_)) => {
            eprintln!("crowd: how many watch is a number\nhint: crowd 10000");
            return ExitCode::from(2);
        }
    };
    let (alone, watched) = (scale::run_default(0), scale::run_default(watchers));
    print_result(watchers, &watched);
    let unnoticed = alone.player_trace_hash == watched.player_trace_hash;
    println!(
        "players  {:016x} alone, {:016x} watched: {}",
        alone.player_trace_hash,
        watched.player_trace_hash,
        describe_trace_equality(unnoticed)
    );
    match unnoticed && watched.wrong_frames == 0 && watched.subscribers == watchers {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

fn describe_trace_equality(unnoticed: bool) -> &'static str {
    if unnoticed { "the same bytes at the same times" } else { "NOT THE SAME" }
}

fn print_result(watchers: usize, outcome: &SpectatorScaleResult) {
    let per_second = |count: u64| count as f64 / outcome.total_watch_seconds.max(1e-9);
    let SpectatorScaleResult {
        frames,
        subscribers: watching,
        live,
        wrong_frames: wrong,
        stalls,
        batches,
        batch_bytes,
        ..
    } = *outcome;
    println!("{frames} frames, {watchers} came, {watching} watch, {live} live, {wrong} wrong frames, {stalls} stalls");
    println!("behind   {:.1} frames on average", outcome.mean_frames_behind);
    println!("encoded  {batches} batches, {:.1} bytes each, once for all", batch_bytes as f64 / batches.max(1) as f64);
    let (packets, bytes) = (per_second(outcome.packets_down), per_second(outcome.bytes_down));
    println!("down     {packets:.1} datagrams and {bytes:.0} bytes per watcher and second");
    let per_frame = |rate: f64| rate / 60.0;
    println!("cost     {:.3} datagrams and {:.1} bytes per watcher and frame", per_frame(packets), per_frame(bytes));
    println!("of that  {:.0} bytes a second because they were asked for", per_second(outcome.requested_bytes));
    let (packets, bytes) = (per_second(outcome.packets_up), per_second(outcome.bytes_up));
    println!("up       {packets:.1} datagrams and {bytes:.0} bytes per watcher and second");
    println!(
        "memory   {} bytes for the feed, at most {} for a watcher",
        outcome.feed_memory, outcome.max_spectator_memory
    );
}
