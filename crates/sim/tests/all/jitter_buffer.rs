//! Jitter buffers after Kim and Park. With an input delay of 0.3 s and history recovery the buffers are stable under
//! packet loss; with 0.2 s they run empty and all sites pause together. Other tests cover measured send intervals and
//! the packets that recovery costs.

use crate::common::{SessionSetup, TestSession, at, lossy_link, ms, rtt_link, secs, site_id};
use coplay::input::Recovery;
use coplay::session::{Event, SendPolicy, StarvationPolicy};
use coplay::time::{Instant, TimeDelta};
use coplay_links::link::{Jitter, LinkConfig};

/// Round-trip time in milliseconds that the results of Kim and Park imply: 65 ms each way.
const RTT: i64 = 130;
const WARM_UP: TimeDelta = TimeDelta::from_secs(5);

/// Starts two sites that pause on starvation and send at measured intervals, with this input delay in frames and this
/// recovery policy.
fn start_buffered(input_delay: u32, link: LinkConfig, recovery: Recovery) -> TestSession {
    SessionSetup { input_delay, ..SessionSetup::new(2, link) }.start_with(|_, config| {
        config.settings.starvation_policy = StarvationPolicy::Pause;
        config.recovery = recovery;
        config.send_policy = SendPolicy::Measured;
    })
}

/// Returns the pauses that a site reported: time of the report, frame before which the site that asked for the pause
/// waits, and duration.
fn pauses(game: &TestSession, site: usize) -> Vec<(Instant, u32, TimeDelta)> {
    let pause = |at: Instant, event: &Event| match event {
        Event::Paused { frame, duration, .. } => Some((at, frame.number(), *duration)),
        _ => None,
    };
    game.events_of(site).filter_map(|reported| pause(reported.at, &reported.event)).collect()
}

/// Plays for `time` and returns the share of that time in which at least one of the two jitter buffers is empty.
fn starvation_ratio(game: &mut TestSession, time: TimeDelta) -> f64 {
    let until = game.now() + time;
    let (mut samples, mut empty) = (0, 0);
    while game.now() < until {
        game.run_for(ms(5));
        samples += 1;
        empty += usize::from(game.peer_stats(0, 1).buffered_frames.min(game.peer_stats(1, 0).buffered_frames) < 1);
    }
    empty as f64 / f64::from(samples)
}

#[test]
fn input_delay_of_300_ms_keeps_buffers_stable_under_loss() {
    for loss in [0.01, 0.05] {
        let mut game = start_buffered(18, lossy_link(RTT, loss), Recovery::History);
        game.run_until(at(WARM_UP));
        let starved = starvation_ratio(&mut game, secs(60));
        // A buffer runs empty only where the answer is lost as well, which is rare.
        assert!(starved < 0.002, "a buffer is empty for {starved:.4} of the time with a loss of {loss}");
        assert!(pauses(&game, 0).len() <= 2, "{:?}", pauses(&game, 0));
        assert!(game.fps(0, at(WARM_UP), game.now()) > 59.0);
        game.assert_consistent();
    }
}

#[test]
fn input_delay_of_200_ms_makes_all_sites_pause_together() {
    for sites in [2, 3] {
        let setup = SessionSetup { input_delay: 12, ..SessionSetup::new(sites, lossy_link(RTT, 0.008)) };
        let mut game = setup.start_with(|_, config| {
            config.settings.starvation_policy = StarvationPolicy::Pause;
            config.recovery = Recovery::History;
        });
        game.run_until(at(secs(65)));
        let reported: Vec<_> = (0..sites).map(|site| pauses(&game, site)).collect();
        assert!(reported[0].len() >= 5, "only {} pauses", reported[0].len());
        for site in 1..sites {
            assert_eq!(reported[site].len(), reported[0].len(), "site {site}");
            for (_, frame, _) in &reported[0] {
                let starts = [0, site].map(|site| game.step_times[site][*frame as usize + 5]);
                let apart = (starts[0] - starts[1]).abs();
                assert!(apart < ms(3), "sites 0 and {site} resume {apart} apart");
            }
        }
        game.assert_consistent();
    }
}

#[test]
fn clean_link_causes_no_pause_and_one_datagram_per_frame() {
    let mut game = start_buffered(18, rtt_link(RTT), Recovery::History);
    game.run_until(at(secs(30)));
    assert_eq!((pauses(&game, 0), pauses(&game, 1)), (vec![], vec![]));
    let (buffered, packets) = (game.peer_stats(0, 1).buffered_frames, game.peer_stats(0, 1).packets_out as usize);
    assert!((13..=15).contains(&buffered), "{buffered} frames are buffered, not the input delay minus the latency");
    assert!(
        packets.abs_diff(game.step_times[0].len()) < 90,
        "{packets} packets in {} frames",
        game.step_times[0].len()
    );
}

#[test]
fn jitter_reduces_the_datagram_rate() {
    let link = LinkConfig { jitter: Jitter::Uniform(ms(60)), ..rtt_link(60) };
    let mut game = start_buffered(18, link, Recovery::History);
    game.run_until(at(secs(30)));
    let packets = game.peer_stats(0, 1).packets_out as usize;
    assert!(packets * 3 < game.step_times[0].len() * 2, "{packets} packets in {} frames", game.step_times[0].len());
    assert!(game.fps(0, at(WARM_UP), game.now()) > 57.0);
    game.assert_consistent();
}

#[test]
fn pause_refills_a_buffer_after_a_latency_increase() {
    let mut game = start_buffered(18, rtt_link(60), Recovery::History);
    game.run_until(at(WARM_UP));
    for (from, to) in [(0, 1), (1, 0)] {
        game.network.link(from, to).set_config(rtt_link(560));
    }
    game.run_for(secs(10));
    assert!(!pauses(&game, 0).is_empty() && game.stats(0).pauses > 0);
    assert_eq!(
        game.events_of(0)
            .filter(|reported| matches!(reported.event, Event::Dropped { site, .. } if site == site_id(1)))
            .count(),
        0
    );
    game.assert_consistent();
}

/// Returns the packets from site 0 to site 1 per 3,600 frames, which is one minute without stalls.
fn datagrams_per_minute(recovery: Recovery, loss: f64) -> u64 {
    let setup = SessionSetup { input_delay: 18, ..SessionSetup::new(2, lossy_link(RTT, loss)) };
    let mut game = setup.start_with(|_, config| config.recovery = recovery);
    game.run_until(at(WARM_UP));
    let (before, frames) = (game.peer_stats(0, 1).packets_out, game.step_times[0].len());
    game.run_for(secs(60));
    game.assert_consistent();
    // Stalls reduce the number of frames, so the count is normalised.
    (game.peer_stats(0, 1).packets_out - before) * 3_600 / (game.step_times[0].len() - frames) as u64
}

#[test]
fn history_needs_no_extra_datagrams_and_classic_one_per_request_and_answer() {
    let expected = datagrams_per_minute(Recovery::History, 0.0);
    for loss in [0.01, 0.05, 0.1] {
        let (history, classic) =
            (datagrams_per_minute(Recovery::History, loss), datagrams_per_minute(Recovery::Classic, loss));
        assert!(history.abs_diff(expected) <= expected / 100, "{history} packets, {expected} without loss");
        // Each site sends requests for its own losses and answers to those of its peer. Most gaps turn out to be empty
        // and need neither.
        let lost = (3_600.0 * loss) as u64;
        assert!(classic > expected + lost / 4, "{classic} packets with a loss of {loss}");
        assert!(classic < expected + 4 * lost, "{classic} packets with a loss of {loss}");
    }
}

/// A site that slept answers late, so that the measured latency to it includes the sleep. Lost inputs are requested
/// again soon nevertheless.
#[test]
fn classic_recovery_retries_soon_after_a_peer_slept() {
    for seed in 0..20 {
        let setup = SessionSetup { seed, input_delay: 4, ..SessionSetup::new(4, lossy_link(40, 0.2)) };
        let mut game = setup.start_with(|_, config| config.recovery = Recovery::Classic);
        game.run_until(at(WARM_UP));
        let wakes = game.now() + secs(3);
        game.network.pause(2, wakes);
        game.run_until(wakes + ms(1_500));
        let stepped = |site: usize| game.step_times[site].len();
        let before: Vec<usize> = (0..4).map(stepped).collect();
        game.run_for(ms(1_500));
        assert!((0..4).all(|site| game.step_times[site].len() > before[site]), "seed {seed}: a site does not play");
        game.assert_consistent();
    }
}

/// Inputs that wait for the next packet leave as soon as the send interval is over, so that the game has more than 90 %
/// of the frame rate that the latency allows.
#[test]
fn measured_send_interval_does_not_slow_the_game_on_a_steady_link() {
    for rtt_ms in [20, 34, 40] {
        let setup = SessionSetup { input_delay: 1, ..SessionSetup::new(2, rtt_link(rtt_ms)) };
        let mut game = setup.start_with(|_, config| config.send_policy = SendPolicy::Measured);
        game.run_until(at(WARM_UP + secs(20)));
        let (fps, allowed) = (game.fps(0, at(WARM_UP), game.now()), (2_000.0 / rtt_ms as f64).min(60.0));
        assert!(fps > 0.9 * allowed, "{fps:.1} fps at a round trip of {rtt_ms} ms");
        game.assert_consistent();
    }
}
