//! Every site detects a machine whose state differs, at the first frame that is compared, and reports no false desync.

use crate::common::{SessionSetup, TestSession, at, lossy_link, mean_abs_deviation, ms, rtt_link, secs};
use coplay::frame::Frame;
use coplay::session::Event;
use coplay::session::message::{ClockProbe, SessionMessage, Tick};
use coplay_sim::session_network::SessionNetwork;

const HASH_INTERVAL: u32 = 60;

/// Returns the divergence events of a site as pairs of the other site, whose state differs, and the compared frame.
fn divergence_events(game: &TestSession, site: usize) -> Vec<(usize, u32)> {
    let diverged = |event: &Event| match event {
        Event::Diverged { site, frame } => Some((site.index(), frame.number())),
        _ => None,
    };
    game.events_of(site).filter_map(|reported| diverged(&reported.event)).collect()
}

/// Returns the first compared frame whose number is at least `frame - 1`. The state after every 60th frame is compared.
fn next_compared(frame: u32) -> u32 {
    frame.div_ceil(HASH_INTERVAL) * HASH_INTERVAL - 1
}

#[test]
fn every_site_reports_the_diverged_site_and_first_compared_frame() {
    for sites in [2, 3, 5] {
        for broken in [0, sites - 1] {
            for link in [rtt_link(100), lossy_link(100, 0.1)] {
                let mut game = SessionSetup::new(sites, link).start();
                game.run_until(at(secs(7)));
                game.network.nodes[broken].machine.score[0] ^= 1;
                let first = next_compared(game.stats(broken).frame.number() + 1);
                game.run_for(secs(5));
                for site in 0..sites {
                    let mut alarms = divergence_events(&game, site);
                    alarms.sort_unstable();
                    let others = (0..sites).filter(|other| *other != site);
                    let expected =
                        others.filter(|other| site == broken || *other == broken).map(|other| (other, first));
                    assert!(alarms.iter().copied().eq(expected), "site {site} of {sites}, {broken} broken: {alarms:?}");
                }
            }
        }
    }
}

/// Returns the first differing frame of each desync report of a site.
fn reported_first_frames(game: &TestSession, site: usize) -> Vec<Option<u32>> {
    let report = |event: &Event| match event {
        Event::DesyncReport(report) => Some(report.first_frame.map(Frame::number)),
        _ => None,
    };
    game.events_of(site).filter_map(|reported| report(&reported.event)).collect()
}

#[test]
fn desync_report_names_the_first_differing_frame_for_any_hash_interval() {
    for (interval, diverges_at) in [(60, 310), (280, 290), (300, 310), (900, 910)] {
        let mut game = SessionSetup { prediction_window: 4, ..SessionSetup::new(3, lossy_link(60, 0.02)) }.start_with(
            |_, config| {
                config.settings.compare_interval = interval;
                config.bisect_desyncs = true;
            },
        );
        game.network.nodes[1].diverges_at = Some(diverges_at);
        game.run_until(at(secs(40)));
        for site in 0..3 {
            assert_eq!(
                reported_first_frames(&game, site),
                [Some(diverges_at)],
                "site {site}, compared every {interval} frames"
            );
        }
    }
}

#[test]
fn every_hash_mismatch_is_counted_and_the_game_continues() {
    let mut game = SessionSetup::new(3, rtt_link(60)).start();
    game.run_frames(301);
    game.network.nodes[1].machine.score[1] ^= 1 << 20;
    game.run_frames(301 + 10 * HASH_INTERVAL as usize);
    game.run_for(ms(500));
    let compared = u64::from(game.stats(0).frame.number() / HASH_INTERVAL) - 5;
    assert_eq!(compared, 10, "the game continues; only the host program may stop it");
    let mismatches = |site, peer| game.peer_stats(site, peer).mismatches;
    assert_eq!(game.peer_stats(0, 1).compared, compared + 5, "every comparison is counted");
    assert_eq!([mismatches(0, 1), mismatches(2, 1), mismatches(1, 0), mismatches(1, 2)], [compared; 4]);
    assert_eq!([mismatches(0, 2), mismatches(2, 0)], [0; 2], "the others agree with each other");
    assert_eq!(divergence_events(&game, 0), [(1, 359)], "reported once, counted every time");
}

#[test]
fn no_false_desync_in_ten_thousand_frames_with_packet_loss() {
    for sites in [2, 4] {
        let mut game = SessionSetup::new(sites, lossy_link(100, 0.2)).start();
        game.run_frames(10_000);
        game.assert_consistent();
        for site in 0..sites {
            assert_eq!(divergence_events(&game, site), [], "site {site} of {sites}");
            for peer in (0..sites).filter(|peer| *peer != site) {
                assert_eq!(game.peer_stats(site, peer).mismatches, 0, "site {site} of {sites}");
            }
        }
    }
}

/// Packets carry only the low 16 bits of a frame number, which wrap around after 65,536 frames. A desync after that is
/// still reported with its frame.
#[test]
fn sixteen_bit_frame_wraparound_is_harmless() {
    let mut game = SessionSetup::new(2, lossy_link(60, 0.05)).start();
    game.run_frames(66_500);
    game.assert_consistent();
    assert_eq!([divergence_events(&game, 0), divergence_events(&game, 1)], [[], []]);
    game.network.nodes[1].machine.score[0] ^= 1;
    let first = next_compared(game.stats(1).frame.number() + 1);
    game.run_for(secs(3));
    assert_eq!(divergence_events(&game, 0), [(1, first)]);
}

#[test]
fn permanent_divergence_is_detected_over_high_latency() {
    for interval in [1, 2, 10] {
        let setup = SessionSetup { input_delay: 14, ..SessionSetup::new(2, rtt_link(300)) };
        let mut game = setup.start_with(|_, config| config.settings.compare_interval = interval);
        game.network.nodes[1].machine.score[0] ^= 1;
        game.run_until(at(secs(10)));
        for site in [0, 1] {
            let alarms = divergence_events(&game, site);
            assert_eq!(alarms.len(), 1, "site {site}, every {interval}: {alarms:?}");
            let mismatches = game.peer_stats(site, 1 - site).mismatches;
            assert!(mismatches > 10, "site {site}, every {interval}: {mismatches} mismatches");
        }
    }
}

/// Returns the tick with a clock probe that site 0 sent to site 1 within the last millisecond, with a forged frame in
/// the probe; `None` if there was none.
fn forge_probe(game: &TestSession, end_minus_frame: i32) -> Option<Vec<u8>> {
    let just_now = game.now() - ms(1);
    let mut sent = game.network.captured().filter(|packet| packet.at > just_now && (packet.from, packet.to) == (0, 1));
    sent.find_map(|packet| {
        let Ok(SessionMessage::Tick(tick)) = SessionMessage::decode(&packet.bytes) else { return None };
        let probe = ClockProbe { end_minus_frame, ..tick.probe? };
        let mut buf = vec![0; 2_000];
        let len = Tick { probe: Some(probe), ..tick }.encode(&mut buf).ok()?;
        buf.truncate(len);
        Some(buf)
    })
}

#[test]
fn forged_probe_frame_does_not_disturb_pacing() {
    for end_minus_frame in [-1_000_000_000, -1_000, 1_000, 400] {
        let mut game = SessionSetup::new(2, rtt_link(40)).start();
        game.run_until(at(secs(8)));
        game.network.start_capture(10);
        game.run_while(secs(1), |game| forge_probe(game, end_minus_frame).is_none());
        let forged = forge_probe(&game, end_minus_frame).expect("a probe");
        // The forged probe arrives together with the true one.
        game.run_for(ms(20));
        game.network.inject(1, SessionNetwork::address(0, 0), &forged);
        game.network.wake(1);
        let (then, stalls) = (game.now(), game.stats(1).stalls);
        game.run_for(secs(10));
        let (deviation, skew) = (mean_abs_deviation(&game.frame_times(1, then)), game.worst_start_skew_ms(then));
        assert!(
            deviation < 0.2 && skew < 1.0,
            "{end_minus_frame}: {deviation:.2} ms mean deviation, {skew:.2} ms apart"
        );
        assert_eq!(game.stats(1).stalls, stalls, "{end_minus_frame}");
        game.assert_consistent();
    }
}
