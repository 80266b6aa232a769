//! Plays many random scenarios and judges each.

use coplay_sim::scenario::{KINDS, Played, Scenario};
use std::sync::atomic::{AtomicU64, Ordering};

#[allow(clippy::disallowed_methods, clippy::disallowed_types)]
fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let seeds: u64 = args[0].parse().unwrap();
    let next = AtomicU64::new(0);
    let bad = AtomicU64::new(0);
    std::thread::scope(|s| {
        for _ in 0..2 {
            s.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds {
                        break;
                    }
                    let played = Scenario::new(seed).play();
                    if !played.violations.is_empty() {
                        bad.fetch_add(1, Ordering::Relaxed);
                        println!("seed {seed}: {}", played.violations[0]);
                    }
                }
            });
        }
    });
    println!("{} bad of {seeds}", bad.load(Ordering::Relaxed));
    let _ = (KINDS, Played::default());
}
