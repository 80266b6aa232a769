//! Frames are evenly spaced and simultaneous at all sites, as fast as the latency and the input delay allow.

use crate::common::{SessionSetup, at, lossy_link, mean, mean_abs_deviation, ms, rtt_link, secs};
use coplay::pace::Pacing;
use coplay::session::State;
use coplay::time::TimeDelta;
use coplay_links::link::{Jitter, LinkConfig};
use coplay_sim::clock::NodeClock;
use coplay_sim::session_experiment::{SessionExperiment, SessionMeasurements};

const PERIOD_MS: f64 = 1_000.0 / 60.0;

fn measure(rtt_ms: i64) -> SessionMeasurements {
    let outcome = SessionExperiment::new(rtt_link(rtt_ms)).run();
    assert!(outcome.is_complete && outcome.states_equal, "RTT {rtt_ms}: {outcome:?}");
    outcome
}

#[test]
fn full_speed_while_input_delay_covers_latency() {
    for rtt_ms in [0, 50, 100, 150, 190] {
        let outcome = measure(rtt_ms);
        for frame_ms in &outcome.mean_frame_ms {
            assert!((frame_ms - PERIOD_MS).abs() < 0.01, "RTT {rtt_ms}: {outcome:?}");
        }
        assert!(outcome.worst_deviation_ms() < 0.5, "RTT {rtt_ms}: {outcome:?}");
        assert!(outcome.synchrony_ms < 1.0, "RTT {rtt_ms}: {outcome:?}");
    }
}

#[test]
fn evenly_slower_when_latency_exceeds_input_delay() {
    for rtt_ms in [240, 300, 400] {
        let outcome = measure(rtt_ms);
        let bound_ms = rtt_ms as f64 / 2.0 / 6.0;
        for frame_ms in &outcome.mean_frame_ms {
            assert!((frame_ms / bound_ms - 1.0).abs() < 0.02, "RTT {rtt_ms}: {outcome:?}");
        }
        assert!(outcome.worst_deviation_ms() < 0.5, "RTT {rtt_ms}: {outcome:?}");
        assert!(outcome.synchrony_ms < 1.0, "RTT {rtt_ms}: {outcome:?}");
    }
}

/// Returns the mean deviation of the frame times of site 0, the master, over three seeds with the published pacing.
fn published_deviation_ms(rtt_ms: i64) -> f64 {
    let run = |seed: u64| {
        SessionExperiment { seed, ..SessionExperiment::as_published(rtt_link(rtt_ms)) }.run().deviation_ms[0]
    };
    mean(&[1, 2, 3].map(run))
}

#[test]
fn published_pacing_is_smooth_up_to_130_ms_rtt_and_rough_from_140_to_170() {
    for rtt_ms in (0..=130).step_by(10) {
        let deviation_ms = published_deviation_ms(rtt_ms);
        assert!(deviation_ms < 5.0, "RTT {rtt_ms}: {deviation_ms:.2} ms");
    }
    let scan = (140..=200).step_by(10).map(|rtt_ms| (rtt_ms, published_deviation_ms(rtt_ms)));
    let scan: Vec<(i64, f64)> = scan.collect();
    let threshold = scan.iter().find(|(_, deviation_ms)| *deviation_ms >= 5.0);
    assert!(threshold.is_some_and(|(rtt_ms, _)| (140..=170).contains(rtt_ms)), "{scan:.2?}");
}

/// Lets site `late` sleep through the start, so that it begins more than 300 ms late. Returns measurements of 20 s that
/// begin 10 s after it wakes: the mean absolute deviation of the frame times of each site, in milliseconds, and the
/// share of the other site's frames that stall.
fn pacing_after_a_late_start(pacing: Pacing, late: usize) -> ([f64; 2], f64) {
    let first = 1 - late;
    let mut game = SessionSetup::new(2, rtt_link(100)).start_with(|_, config| config.pacing = pacing);
    game.run_while(secs(10), |game| (0..2).any(|site| !matches!(game.state(site), State::Starting { .. })));
    let wake = game.now() + ms(800);
    game.network.pause(late, wake);
    game.run_until(wake + secs(10));
    let settled = game.now();
    let stalls = game.stats(first).stalls;
    game.run_for(secs(20));
    game.assert_consistent();
    assert!(game.step_times[late][0] - game.step_times[first][0] > ms(300), "site {late} did not start late");
    if pacing == Pacing::Even {
        assert!(
            game.worst_start_skew_ms(settled) < 1.0,
            "site {late} started late: {} ms apart",
            game.worst_start_skew_ms(settled)
        );
    }
    let times = [0, 1].map(|site| game.frame_times(site, settled));
    let stall_share = (game.stats(first).stalls - stalls) as f64 / times[first].len() as f64;
    (times.map(|times| mean_abs_deviation(&times)), stall_share)
}

#[test]
fn starting_first_causes_no_stalls() {
    for late in [0, 1] {
        let (deviations, stall_share) = pacing_after_a_late_start(Pacing::Even, late);
        assert!(deviations.iter().all(|ms| *ms < 0.5), "site {late} started late: {deviations:?}");
        assert!(
            stall_share == 0.0,
            "site {late} started late: the other site stalls in {:.1} % of its frames",
            stall_share * 100.0
        );
        // Without a common pacing plan the first site stalls for ever. This shows that the measurement detects it.
        let (_, stall_share) = pacing_after_a_late_start(Pacing::ZhaoUnsynchronised, late);
        assert!(
            stall_share > 0.5,
            "site {late} started late: the other site stalls in only {:.1} % of its frames",
            stall_share * 100.0
        );
    }
}

#[test]
fn pacing_tolerates_one_percent_clock_skew() {
    for (one, other) in [(0.0, 10_000.0), (10_000.0, 0.0), (-5_000.0, 5_000.0), (0.0, -10_000.0)] {
        let clock = |skew_ppm: f64, offset: TimeDelta| NodeClock { offset, skew_ppm };
        let clocks = vec![clock(one, secs(5)), clock(other, secs(-900))];
        let mut game = SessionSetup { clocks, ..SessionSetup::new(2, rtt_link(100)) }.start();
        game.run_until(at(secs(50)));
        game.assert_consistent();
        let times = [0, 1].map(|site| game.frame_times(site, at(secs(20))));
        let case = format!("clocks off by {one} and {other} ppm");
        for times in &times {
            assert!(mean_abs_deviation(times) < 0.5, "{case}: {:.3} ms", mean_abs_deviation(times));
        }
        let (first, second) = (mean(&times[0]), mean(&times[1]));
        assert!((first - second).abs() < 0.002, "{case}: {first:.4} and {second:.4} ms per frame");
        assert!((first / PERIOD_MS - 1.0).abs() < 0.0105, "{case}: {first:.4} ms per frame");
    }
}

/// Time stamps carry only the low 32 or 40 bits of microseconds, which wrap around every 72 minutes or every 13 days.
#[test]
fn clock_stamp_wraparound_is_harmless() {
    for end_us in [0, 1 << 32, 1 << 39, 1 << 40] {
        for site in [0, 1] {
            let mut clocks = vec![NodeClock::TRUE; 2];
            clocks[site].offset = TimeDelta::from_micros(end_us) - secs(15);
            let mut game = SessionSetup { clocks, ..SessionSetup::new(2, rtt_link(100)) }.start();
            game.run_until(at(secs(30)));
            game.assert_consistent();
            let apart = game.worst_start_skew_ms(at(secs(5)));
            assert!(apart < 1.0, "site {site} passes {end_us} us: {apart:.3} ms apart");
            let rtt = game.peer_stats(1 - site, site).rtt.as_millis_f64();
            assert!((rtt - 100.0).abs() < 1.0, "site {site} passes {end_us} us: RTT {rtt:.3} ms");
        }
    }
}

#[test]
fn one_peer_with_jitter_does_not_slow_the_others() {
    let steady = rtt_link(80);
    for unsteady in [0, 3] {
        for jitter in [Jitter::Uniform(ms(30)), Jitter::Exponential { mean: ms(10) }] {
            let mut game = SessionSetup::new(4, steady.clone()).start();
            for other in (0..4).filter(|other| *other != unsteady) {
                let link = LinkConfig { jitter, ..steady.clone() };
                game.network.link(unsteady, other).set_config(link.clone());
                game.network.link(other, unsteady).set_config(link);
            }
            game.run_until(at(secs(35)));
            game.assert_consistent();
            for site in (0..4).filter(|site| *site != unsteady) {
                let fps = game.fps(site, at(secs(5)), at(secs(35)));
                assert!(fps >= 57.0, "site {site} at {fps:.2} fps beside site {unsteady} with {jitter:?}");
            }
        }
    }
}

#[test]
fn sites_resynchronise_after_one_paused() {
    for sites in [2, 3] {
        for paused in 0..sites {
            let mut game = SessionSetup::new(sites, rtt_link(100)).start();
            game.run_until(at(secs(15)));
            let wake = game.now() + ms(500);
            game.network.pause(paused, wake);
            game.run_until(wake + secs(12));
            game.assert_consistent();
            let apart = game.worst_start_skew_ms(wake + secs(10));
            assert!(apart < 1.0, "{sites} sites, site {paused} paused: {apart:.3} ms apart");
            let fps = game.fps(0, wake + secs(10), wake + secs(12));
            assert!(fps > 59.0, "{sites} sites, site {paused} paused: {fps:.1} fps");
        }
    }
}

#[test]
fn frame_time_varies_by_at_most_4_percent_on_a_healthy_link() {
    let links = [
        rtt_link(0),
        rtt_link(50),
        rtt_link(100),
        rtt_link(150),
        rtt_link(190),
        LinkConfig::lan(),
        LinkConfig::broadband(),
        lossy_link(100, 0.01),
    ];
    for link in links {
        for sites in [2, 4] {
            let mut game = SessionSetup::new(sites, link.clone()).start();
            game.run_until(at(secs(60)));
            game.assert_consistent();
            for site in 0..sites {
                let times = game.frame_times(site, at(secs(0)));
                assert!(times.len() > 3_400, "{} frames over {link:?}", times.len());
                let changes = times.windows(2).map(|pair| (pair[1] - pair[0]).abs());
                let worst = changes.fold(0.0, f64::max) / PERIOD_MS;
                assert!(
                    worst <= 0.04,
                    "site {site} of {sites}: {:.1} % from one frame to the next over {link:?}",
                    worst * 100.0
                );
            }
        }
    }
}
