//! A site joins a running session and costs the players no frame. A fault during the join harms only the sites that it
//! concerns.

use crate::common::{SessionSetup, TestSession, at, lossy_link, ms, rtt_link, secs, site_id, site_set};
use coplay::frame::FrameRate;
use coplay::session::message::{CommandKind, Extra, ScheduledCommand, SessionMessage};
use coplay::session::{AbsentInput, Config, Event, SessionEnd, Settings, State};
use coplay::spectator_feed::{FeedConfig, SourceError, SpectatorStart};
use coplay::time::TimeDelta;
use coplay_links::link::LinkConfig;
use coplay_sim::late_join::LateJoinExperiment;
use coplay_sim::session_network::SessionNetwork;
use coplay_sim::site::SessionSabotage;

/// Time after the start of the simulation at which the first late joiner starts.
const JOINS_AT: TimeDelta = TimeDelta::from_secs(4);

/// Starts a session with the first `starters` sites. All sites serve late joiners.
fn start_joinable(setup: &SessionSetup, starters: usize, change: impl Fn(&mut Config)) -> TestSession {
    setup.start_with(|_, config| {
        config.settings.starting_sites = (0..starters).map(site_id).collect();
        change(config);
        let settings = config.settings.clone();
        config.feed = Some(FeedConfig { log_bytes: 1 << 20, ..FeedConfig::new(config.session_id, 7, settings) });
    })
}

fn enable_drop_timeout(config: &mut Config) {
    config.drop_timeout = Some(secs(1));
}

/// Starts two sites of three; the third is absent.
fn start_two_of_three(setup: &SessionSetup, change: impl Fn(&mut Config)) -> TestSession {
    let mut game = start_joinable(setup, 2, change);
    game.set_late_joiners([2]);
    game
}

fn join_frame(game: &TestSession, reporter: usize, site: usize) -> Option<u32> {
    let frame = |event: &Event| match event {
        Event::Joined { site: joined, frame } if *joined == site_id(site) => Some(frame.number()),
        _ => None,
    };
    game.events_of(reporter).filter_map(|reported| frame(&reported.event)).last()
}

fn end_reason(game: &TestSession, site: usize) -> Option<SessionEnd> {
    let end = game.find_event(site, |event| if let Event::Ended(end) = event { Some(*end) } else { None });
    end.map(|(_, end)| end)
}

/// Asserts that these sites are running, that they played at full speed for the last 2 s, and that all sites agree.
#[track_caller]
fn assert_running_at_full_speed<const N: usize>(game: &TestSession, case: &str, sites: [usize; N]) {
    for site in sites {
        let fps = game.fps(site, game.now() - secs(2), game.now());
        let state = game.state(site);
        assert!(
            state == State::Running && fps > 58.0,
            "{case}: site {site} at {fps:.1} fps, {state:?}, {:?}",
            game.events
        );
    }
    game.assert_consistent();
}

#[test]
fn third_site_joins_a_running_game() {
    for (prediction_window, loss) in [(0, 0.0), (0, 0.05), (8, 0.0), (8, 0.05), (8, 0.2)] {
        let case = format!("prediction window {prediction_window}, loss {loss}");
        let mut game = start_two_of_three(
            &SessionSetup { prediction_window, ..SessionSetup::new(3, lossy_link(100, loss)) },
            |_| {},
        );
        game.run_until(at(JOINS_AT));
        game.join(2, |_| {});
        game.run_while(secs(8), |game| join_frame(game, 2, 2).is_none());
        game.run_for(secs(5));
        let frames = [0, 1, 2].map(|site| join_frame(&game, site, 2));
        assert!(frames[0].is_some() && frames.iter().all(|frame| *frame == frames[0]), "{case}: {frames:?}");
        assert_running_at_full_speed(&game, &case, [0, 1, 2]);
    }
}

/// A player that leaves may be far ahead of the coordinator: its inputs count in frames that the coordinator has not
/// reached yet. The joiner does not have those inputs, so its first frame comes after them.
#[test]
fn join_frame_is_after_the_last_input_of_a_leaver() {
    for after in (1_500..2_500).step_by(50) {
        let mut game =
            start_two_of_three(&SessionSetup { prediction_window: 60, ..SessionSetup::new(3, rtt_link(100)) }, |_| {});
        game.run_until(at(JOINS_AT));
        game.network.suspend(0, at(JOINS_AT + ms(1_500)));
        game.join(2, |_| {});
        // The coordinator falls behind: its machine is slower than the game.
        game.network.nodes[0].step_cost = ms(20);
        game.run_for(ms(after));
        game.leave(1);
        game.run_for(secs(2));
        game.network.nodes[0].step_cost = TimeDelta::ZERO;
        game.run_for(secs(8));
        assert_running_at_full_speed(&game, &format!("site 1 leaves after {after} ms"), [0, 2]);
    }
}

/// On a high-latency link a source needs more than 1 s to accept a spectator and to answer its first request. A joiner
/// that switched sources every second would never get a frame.
#[test]
fn joiner_waits_for_a_source_with_high_latency() {
    let mut game = start_joinable(
        &SessionSetup { prediction_window: 40, ..SessionSetup::new(4, rtt_link(600)) },
        3,
        enable_drop_timeout,
    );
    game.set_late_joiners([3]);
    game.run_until(at(JOINS_AT));
    game.join(3, |_| {});
    let join_scheduled = |game: &TestSession| game.network.captured().any(|packet| is_join_command(&packet.bytes));
    game.network.start_capture(100);
    game.run_while(secs(12), |game| !join_scheduled(game));
    // Until this site is dropped, no source has the frames that the joiner needs.
    game.crash(2);
    game.run_for(secs(20));
    assert!(join_frame(&game, 3, 3).is_some(), "{:?} {:?}", game.state(3), end_reason(&game, 3));
    assert_running_at_full_speed(&game, "three of four", [0, 1, 3]);
}

fn is_join_command(bytes: &[u8]) -> bool {
    let Ok(SessionMessage::Tick(tick)) = SessionMessage::decode(bytes) else { return false };
    tick.extras
        .iter()
        .any(|extra| matches!(extra, Extra::Command(ScheduledCommand { kind: CommandKind::Join { .. }, .. })))
}

#[test]
fn second_site_joins_a_single_player() {
    let mut game = start_joinable(&SessionSetup::new(2, lossy_link(100, 0.05)), 1, |_| {});
    game.set_late_joiners([1]);
    game.run_until(at(JOINS_AT));
    assert!(game.fps(0, at(secs(2)), at(JOINS_AT)) > 59.0, "one site plays alone at full speed");
    game.join(1, |_| {});
    game.run_for(secs(8));
    assert!(join_frame(&game, 0, 1).is_some(), "{:?}", game.events);
    assert_running_at_full_speed(&game, "two", [0, 1]);
}

/// Without a drop timeout the players wait for the crashed site until its restarted program sends packets. Then it
/// rejoins.
#[test]
fn restarted_site_rejoins_with_a_higher_incarnation() {
    for (sites, site, prediction_window) in
        [(3, 0, 0), (3, 1, 8), (3, 2, 0), (3, 2, 8), (2, 0, 0), (2, 0, 8), (2, 1, 8)]
    {
        let case = format!("site {site} of {sites}, prediction window {prediction_window}");
        let mut game = start_joinable(
            &SessionSetup { prediction_window, ..SessionSetup::new(sites, lossy_link(100, 0.02)) },
            sites,
            |_| {},
        );
        game.run_until(at(JOINS_AT));
        game.crash(site);
        game.run_for(secs(2));
        let frozen = (0..sites).all(|other| other == site || matches!(game.state(other), State::Frozen(_)));
        assert!(frozen, "{case}: a site continues without it");
        game.network.change_address(site);
        game.join(site, |_| {});
        game.run_for(secs(8));
        assert!(join_frame(&game, site, site).is_some(), "{case}: {:?} {:?}", game.state(site), game.events);
        (0..sites).for_each(|site| assert_running_at_full_speed(&game, &case, [site]));
    }
}

/// A program restarted with the same incarnation number is not the one that played, and must not take its seat.
#[test]
fn rejoin_with_an_old_incarnation_is_refused() {
    let mut game = start_joinable(&SessionSetup::new(3, rtt_link(100)), 3, enable_drop_timeout);
    game.run_until(at(JOINS_AT));
    game.crash(2);
    game.run_for(secs(3));
    game.join(2, |config| config.incarnation = 1);
    game.run_for(secs(5));
    assert_eq!(join_frame(&game, 0, 2), None);
    assert_running_at_full_speed(&game, "the others", [0, 1]);
}

#[test]
fn joiner_without_load_support_replays_all_inputs() {
    let disable_saving = |config: &mut Config| config.can_save = false;
    let mut game = start_two_of_three(&SessionSetup::new(3, lossy_link(100, 0.05)), disable_saving);
    game.run_until(at(secs(20)));
    game.join(2, |config| config.late_join.iter_mut().for_each(|join| join.start = SpectatorStart::FirstFrame));
    game.run_for(secs(8));
    assert!(join_frame(&game, 2, 2).is_some(), "{:?}", game.events);
    assert_eq!(game.state_hashes[2][..1_000], game.state_hashes[0][..1_000], "from the first frame on");
    assert_running_at_full_speed(&game, "replay", [0, 1, 2]);
}

/// Site 2 crashes. Its last input is repeated until it is back, also at site 3, which joins only after the crash.
#[test]
fn last_input_of_a_dropped_site_is_repeated_until_it_rejoins() {
    for (seed, prediction_window, loss) in [(1, 0, 0.0), (2, 8, 0.05), (3, 8, 0.0), (4, 0, 0.05), (5, 3, 0.02)] {
        let case = format!("seed {seed}, prediction window {prediction_window}, loss {loss}");
        let mut game = start_joinable(
            &SessionSetup { prediction_window, seed, ..SessionSetup::new(4, lossy_link(100, loss)) },
            3,
            |config| {
                enable_drop_timeout(config);
                config.settings.absent_input = AbsentInput::Repeat;
            },
        );
        game.set_late_joiners([3]);
        game.network.nodes.iter_mut().for_each(|site| site.player.change_probability = 1.0);
        game.run_until(at(JOINS_AT));
        game.crash(2);
        game.run_for(secs(3));
        game.join(3, |_| {});
        game.run_for(secs(6));
        game.join(2, |_| {});
        game.run_for(secs(6));
        let dropped =
            game.find_event(0, |event| if let Event::Dropped { frame, .. } = event { Some(*frame) } else { None });
        let (from, until) = (dropped.expect(&case).1.number(), join_frame(&game, 0, 2).expect(&case));
        let pressed = |frame: u32| game.checker.first_incarnation_frame(0, frame as usize).expect("it was played").0[2];
        assert!(pressed(from - 1) != 0 && until - from > 300, "{case}: frames {from} to {until}");
        let released = (from..until).find(|frame| pressed(*frame) != pressed(from - 1));
        assert_eq!(released, None, "{case}: frames {from} to {until}");
        assert!(pressed(until) == 0, "{case}: a rejoined site presses nothing at first");
        assert_running_at_full_speed(&game, &case, [0, 1, 2, 3]);
    }
}

#[test]
fn two_sites_join_at_once() {
    for (prediction_window, loss, apart) in [(0, 0.0, 0), (8, 0.05, 0), (8, 0.05, 150), (8, 0.0, 700)] {
        let case = format!("prediction window {prediction_window}, loss {loss}, {apart} ms apart");
        let mut game = start_joinable(
            &SessionSetup { prediction_window, ..SessionSetup::new(4, lossy_link(100, loss)) },
            2,
            |_| {},
        );
        game.set_late_joiners([2, 3]);
        game.run_until(at(JOINS_AT));
        game.join(2, |_| {});
        game.run_for(ms(apart));
        game.join(3, |_| {});
        game.run_for(secs(12));
        for (reporter, site) in [(0, 2), (0, 3), (1, 2), (1, 3), (2, 2), (3, 3)] {
            assert!(join_frame(&game, reporter, site).is_some(), "{case}: site {reporter}, {:?}", game.events);
        }
        assert_running_at_full_speed(&game, &case, [0, 1, 2, 3]);
    }
}

/// Returns whether the join command for `site` was sent to it at least 60 ms ago. By then it has arrived over links
/// with a round trip of up to 100 ms.
fn has_received_join_command(game: &TestSession, site: usize) -> bool {
    was_join_command_sent(game, site, ms(60))
}

/// Returns whether the join command for `site` was sent to it at least `ago` before now.
fn was_join_command_sent(game: &TestSession, site: usize, ago: TimeDelta) -> bool {
    let is_join = |extra: Extra<'_>| match extra {
        Extra::Command(ScheduledCommand { kind: CommandKind::Join { site: joiner, .. }, .. }) => {
            joiner == site_id(site)
        }
        _ => false,
    };
    let has_join = |bytes: &[u8]| match SessionMessage::decode(bytes) {
        Ok(SessionMessage::Tick(tick)) => tick.extras.iter().any(is_join),
        _ => false,
    };
    game.network.captured().any(|packet| packet.to == site && packet.at + ago <= game.now() && has_join(&packet.bytes))
}

/// The coordinator of two sites drops the other, which needs no vote, up to 775 ms after it sent the join command to a
/// joiner. The joiner, which reaches both, follows that decision.
#[test]
fn joiner_follows_a_drop_decided_before_its_first_frame() {
    for (prediction_window, after) in [0, 8]
        .into_iter()
        .flat_map(|prediction_window| (0..800).step_by(25).map(move |after| (prediction_window, after)))
    {
        let case = format!("prediction window {prediction_window}, dropped {after} ms after the join command");
        let mut game = start_two_of_three(
            &SessionSetup { prediction_window, ..SessionSetup::new(3, rtt_link(100)) },
            enable_drop_timeout,
        );
        game.network.start_capture(2_000);
        game.run_until(at(JOINS_AT));
        game.join(2, |_| {});
        game.run_while(secs(8), |game| !was_join_command_sent(game, 2, ms(0)));
        game.run_for(ms(after));
        let now = game.local_time(0);
        assert!(game.network.nodes[0].session.drop_site(now, site_id(1)), "{case}");
        game.network.wake(0);
        game.run_for(secs(6));
        assert_eq!(end_reason(&game, 1), Some(SessionEnd::Dropped), "{case}");
        assert_running_at_full_speed(&game, &case, [0, 2]);
    }
}

/// A site that was dropped with a button held rejoins, is admitted, and leaves before its first frame. Some sites learn
/// of the leave long before others. The inputs substituted for the site until then do not change.
#[test]
fn joiner_that_leaves_before_its_first_frame_changes_no_inputs() {
    for (prediction_window, uplink_ms, later) in
        [(0, [10, 90], 0), (8, [10, 90], 0), (8, [90, 10], 30), (0, [10, 90], 100), (8, [10, 300], 60)]
    {
        let case =
            format!("prediction window {prediction_window}, uplinks of {uplink_ms:?} ms, leaves {later} ms later");
        let mut game =
            start_joinable(&SessionSetup { prediction_window, ..SessionSetup::new(3, rtt_link(100)) }, 3, |config| {
                enable_drop_timeout(config);
                config.settings.absent_input = AbsentInput::Repeat;
            });
        for (to, millis) in uplink_ms.into_iter().enumerate() {
            game.network.link(2, to).set_config(rtt_link(2 * millis));
        }
        game.network.nodes.iter_mut().for_each(|site| site.player.change_probability = 1.0);
        game.run_until(at(JOINS_AT));
        game.crash(2);
        game.run_for(secs(3));
        game.network.start_capture(2_000);
        game.join(2, |_| {});
        game.run_while(secs(8), |game| !has_received_join_command(game, 2));
        game.run_for(ms(later));
        game.leave(2);
        game.run_for(secs(5));
        assert_eq!(end_reason(&game, 2), Some(SessionEnd::Left), "{case}");
        assert_running_at_full_speed(&game, &case, [0, 1]);
    }
}

/// A rejoining site is admitted, and leaves before it has received its join command, as its hellos show. One of the
/// others may receive nothing from it. The inputs substituted for the site do not change.
#[test]
fn joiner_that_leaves_unaware_of_its_join_changes_no_inputs() {
    for (prediction_window, cut_from) in [(0, None), (8, None), (0, Some(0)), (8, Some(1))] {
        let case = format!("prediction window {prediction_window}, site {cut_from:?} receives nothing from it");
        let mut game =
            start_joinable(&SessionSetup { prediction_window, ..SessionSetup::new(3, rtt_link(100)) }, 3, |config| {
                enable_drop_timeout(config);
                config.settings.absent_input = AbsentInput::Repeat;
            });
        game.network.nodes.iter_mut().for_each(|site| site.player.change_probability = 1.0);
        game.run_until(at(JOINS_AT));
        game.crash(2);
        game.run_for(secs(3));
        game.network.start_capture(2_000);
        game.join(2, |_| {});
        game.run_while(secs(8), |game| !was_join_command_sent(game, 2, ms(0)));
        (0..2).for_each(|site| game.network.link(site, 2).set_cut(true));
        cut_from.into_iter().for_each(|site| game.network.link(2, site).set_cut(true));
        game.leave(2);
        game.run_for(secs(6));
        assert_eq!(end_reason(&game, 2), Some(SessionEnd::Left), "{case}");
        assert_running_at_full_speed(&game, &case, [0, 1]);
    }
}

/// The coordinator sleeps while a joiner asks to be admitted and leaves; the goodbye to the coordinator is lost. When
/// the coordinator wakes, it finds in its socket that the joiner is ready. No site waits for the joiner that left.
#[test]
fn joiner_that_left_while_the_coordinator_slept_is_not_awaited() {
    for (asleep, after) in
        [2_500, 4_000].into_iter().flat_map(|asleep| (800..1_700).step_by(75).map(move |after| (asleep, after)))
    {
        let case = format!("site 0 sleeps for {asleep} ms, site 2 leaves after {after} ms");
        let mut game = start_two_of_three(&SessionSetup::new(3, rtt_link(40)), |_| {});
        game.run_until(at(JOINS_AT));
        game.join(2, |_| {});
        // The joiner has reached all sites and is about to be ready.
        game.run_for(ms(400));
        game.network.suspend(0, at(JOINS_AT + ms(400 + asleep)));
        game.run_for(ms(after - 400));
        game.network.link(2, 0).set_cut(true);
        game.leave(2);
        game.run_for(secs(12));
        assert_eq!(end_reason(&game, 2), Some(SessionEnd::Left), "{case}");
        assert_running_at_full_speed(&game, &case, [0, 1]);
    }
}

/// A joiner is admitted and then receives nothing for a while, although its own packets arrive. Meanwhile a fourth site
/// joins, or auto-tuning changes the delay settings. A command scheduled for one frame must also take effect at a site
/// that has not reached that frame yet.
#[test]
fn joiner_that_receives_nothing_for_a_while_misses_no_command() {
    for (prediction_window, auto, cut_ms) in
        [(0, false, 1_500), (8, false, 1_500), (8, false, 3_000), (0, true, 1_500), (0, true, 3_000)]
    {
        let case = format!("prediction window {prediction_window}, auto {auto}, receives nothing for {cut_ms} ms");
        let mut game =
            start_joinable(&SessionSetup { prediction_window, ..SessionSetup::new(4, rtt_link(100)) }, 2, |config| {
                config.settings.auto_tune = auto
            });
        game.set_late_joiners([2, 3]);
        game.run_until(at(JOINS_AT));
        game.network.start_capture(2_000);
        game.join(2, |_| {});
        if !auto {
            game.join(3, |_| {});
        }
        game.run_while(secs(8), |game| !has_received_join_command(game, 2) && !has_received_join_command(game, 3));
        let joiner = if has_received_join_command(&game, 2) { 2 } else { 3 };
        let set_receiving = |game: &mut TestSession, receiving: bool| {
            (0..4).filter(|site| *site != joiner).for_each(|site| game.network.link(site, joiner).set_cut(!receiving));
        };
        set_receiving(&mut game, false);
        game.run_for(ms(cut_ms));
        set_receiving(&mut game, true);
        game.run_for(secs(12));
        if auto {
            assert_running_at_full_speed(&game, &case, [0, 1, 2]);
        } else {
            assert_running_at_full_speed(&game, &case, [0, 1, 2, 3]);
        }
    }
}

/// Runs a late join of site 3 during which site `crashed` crashes, `after` the start of the join.
fn crash_during_join(crashed: usize, after: TimeDelta) -> TestSession {
    let setup = SessionSetup {
        prediction_window: 8,
        input_delay: 4,
        seed: 1 + after.as_nanos().unsigned_abs(),
        ..SessionSetup::new(4, lossy_link(100, 0.02))
    };
    let absent = if after.as_nanos() % 100_000_000 == 0 { AbsentInput::Nothing } else { AbsentInput::Repeat };
    let mut game = start_joinable(&setup, 3, |config| {
        enable_drop_timeout(config);
        config.settings.absent_input = absent;
    });
    game.set_late_joiners([3]);
    game.network.nodes[..3].iter_mut().for_each(|site| site.machine.ballast = ballast());
    game.run_until(at(JOINS_AT));
    game.join(3, |_| {});
    game.run_for(after);
    game.crash(crashed);
    game.run_for(secs(14));
    game
}

/// Returns extra state of 150 kB, which takes a few hundred milliseconds to download.
fn ballast() -> Vec<u8> {
    (0..150_000u32).map(|at| (at.wrapping_mul(0x9e37_79b9) >> 21) as u8).collect()
}

/// Asserts that the remaining sites play, and that the joiner plays as well, or that its session ended and it can join
/// again.
fn assert_join_crash_is_harmless(game: &mut TestSession, case: &str, others: [usize; 2]) {
    assert_running_at_full_speed(game, case, others);
    match end_reason(game, 3) {
        None => assert_running_at_full_speed(game, case, [3]),
        Some(SessionEnd::Dropped | SessionEnd::NoWayIn(_)) => {
            game.join(3, |_| {});
            game.run_for(secs(8));
            assert_running_at_full_speed(game, case, [others[0], others[1], 3]);
        }
        Some(end) => panic!("{case}: {end:?}"),
    }
}

#[test]
fn coordinator_crash_at_any_point_of_a_join_is_harmless() {
    for after in (0..=3_500).step_by(50) {
        let mut game = crash_during_join(0, ms(after));
        assert_join_crash_is_harmless(&mut game, &format!("the coordinator crashes after {after} ms"), [1, 2]);
    }
}

/// A site that was dropped with a button held rejoins, and the coordinator leaves or crashes just after it has
/// scheduled the join. If the join is void, the button stays pressed, also in frames that were stepped with it
/// released.
#[test]
fn coordinator_exit_during_rejoin_keeps_the_repeated_input() {
    for (leaves, after) in
        [false, true].into_iter().flat_map(|leaves| (0..=280).step_by(20).map(move |ms| (leaves, ms)))
    {
        let case = format!("the coordinator exits after {after} ms, leaves: {leaves}");
        let mut game = start_joinable(
            &SessionSetup { prediction_window: 8, input_delay: 3, ..SessionSetup::new(4, rtt_link(20)) },
            4,
            |config| {
                enable_drop_timeout(config);
                config.settings.absent_input = AbsentInput::Repeat;
            },
        );
        game.network.nodes.iter_mut().for_each(|site| site.player.change_probability = 1.0);
        game.run_until(at(JOINS_AT));
        game.crash(2);
        game.run_for(secs(3));
        game.network.start_capture(2_000);
        game.join(2, |_| {});
        game.run_while(secs(8), |game| !was_join_command_sent(game, 2, ms(0)));
        game.run_for(ms(after));
        if leaves {
            game.leave(0)
        } else {
            game.crash(0)
        }
        game.run_for(secs(8));
        assert_running_at_full_speed(&game, &case, [1, 3]);
    }
}

/// An admitted joiner loses its link to the coordinator before it knows the pacing plan. When the link is back, all
/// sites wait for the joiner's inputs, so that there is no plan any more. The joiner plays nevertheless.
#[test]
fn joiner_without_a_pacing_plan_plays_when_all_are_frozen() {
    for after in (0..1_500).step_by(50) {
        let mut game = start_joinable(&SessionSetup::new(4, rtt_link(100)), 3, |_| {});
        game.set_late_joiners([3]);
        game.run_until(at(JOINS_AT));
        game.network.start_capture(2_000);
        game.join(3, |_| {});
        game.run_for(ms(after));
        // While all sites wait for another site, there is no plan to send.
        game.network.pause(1, game.now() + secs(1));
        game.run_while(secs(8), |game| !was_join_command_sent(game, 3, ms(52)));
        game.network.set_cut(0, 3, true);
        game.run_for(secs(4));
        game.network.set_cut(0, 3, false);
        game.run_for(secs(6));
        assert_running_at_full_speed(&game, &format!("asleep after {after} ms"), [0, 1, 2, 3]);
    }
}

#[test]
fn player_crash_at_any_point_of_a_join_is_harmless() {
    for after in (0..=3_500).step_by(50) {
        let mut game = crash_during_join(1, ms(after));
        assert_join_crash_is_harmless(&mut game, &format!("a player crashes after {after} ms"), [0, 2]);
    }
}

#[test]
fn joiner_crash_at_any_point_of_a_join_is_harmless() {
    for after in (0..=3_500).step_by(50) {
        let game = crash_during_join(3, ms(after));
        assert_running_at_full_speed(&game, &format!("the joiner crashes after {after} ms"), [0, 1, 2]);
    }
}

/// The crashed site rejoins after 100 ms. Without a drop timeout all sites wait for it, and for no other site. In the
/// end all four play.
#[test]
fn player_crash_and_rejoin_at_any_point_of_a_join_is_harmless() {
    for after in (0..=3_500).step_by(50) {
        let case = format!("a player crashes after {after} ms and rejoins");
        let setup = SessionSetup {
            prediction_window: 8,
            input_delay: 4,
            seed: 1 + after as u64,
            ..SessionSetup::new(4, lossy_link(100, 0.1))
        };
        let mut game = start_joinable(&setup, 3, |_| {});
        game.set_late_joiners([3]);
        game.network.nodes[..3].iter_mut().for_each(|site| site.machine.ballast = ballast());
        game.run_until(at(JOINS_AT));
        game.join(3, |_| {});
        game.run_for(ms(after));
        game.crash(1);
        game.run_for(ms(100));
        game.join(1, |_| {});
        game.run_for(secs(14));
        assert_running_at_full_speed(&game, &case, [0, 1, 2, 3]);
    }
}

#[test]
fn joiner_with_other_settings_is_refused_with_the_difference() {
    let mut game = start_two_of_three(&SessionSetup::new(3, rtt_link(100)), |_| {});
    game.run_until(at(JOINS_AT));
    game.join(2, |config| config.settings = Settings { input_delay: 7, ..config.settings.clone() });
    game.run_for(secs(6));
    let differs = |event: &Event| match event {
        Event::Disagreed { differences, .. } => differences.first().map(|difference| difference.setting.clone()),
        _ => None,
    };
    assert_eq!(game.find_event(2, differs).map(|(_, setting)| setting), Some("the input delay".into()));
    assert_eq!(game.find_event(0, differs).map(|(_, setting)| setting), Some("the input delay".into()));
    assert_eq!((join_frame(&game, 0, 2), join_frame(&game, 1, 2)), (None, None));
    assert_running_at_full_speed(&game, "the others", [0, 1]);
}

/// One or both of the two sources corrupt a bit of every snapshot. The joiner uses the source that does not, or gives
/// up if both do.
#[test]
fn snapshot_with_a_wrong_hash_is_refused() {
    for liars in [1, 2] {
        let mut game =
            start_two_of_three(&SessionSetup { prediction_window: 8, ..SessionSetup::new(3, rtt_link(100)) }, |_| {});
        game.network.nodes[..liars].iter_mut().for_each(|site| site.sabotage = Some(SessionSabotage::CorruptSnapshot));
        game.run_until(at(JOINS_AT));
        game.join(2, |_| {});
        game.run_for(secs(20));
        match liars {
            1 => assert_running_at_full_speed(&game, "the other source is honest", [0, 1, 2]),
            _ => {
                assert_eq!(
                    end_reason(&game, 2),
                    Some(SessionEnd::NoWayIn(SourceError::BadSnapshot)),
                    "{:?}",
                    game.state(2)
                );
                assert_running_at_full_speed(&game, "the players", [0, 1]);
            }
        }
    }
}

/// Two programs claim the same seat, at once or 300 ms apart. Exactly one of them gets it.
#[test]
fn only_one_of_two_claimants_gets_the_seat() {
    for (first, later) in [(2, 0), (2, 300), (3, 0), (3, 300)] {
        let case = format!("site {first} joins {later} ms before the other");
        let three = SessionSetup { prediction_window: 8, ..SessionSetup::new(3, rtt_link(100)) };
        let mut game = SessionSetup { sites: 4, ..three.clone() }.start_with(|number, config| {
            let site = number.min(2);
            config.settings = Settings { starting_sites: site_set([0, 1]), ..three.config(site).settings };
            config.session_id = three.config(site).session_id;
            (config.site, config.peers) = (site_id(site), SessionNetwork::peers(site, 3));
            config.feed = Some(FeedConfig::new(config.session_id, 7, config.settings.clone()));
        });
        game.set_late_joiners([2, 3]);
        game.run_until(at(JOINS_AT));
        game.join(first, |_| {});
        game.run_for(ms(later));
        game.join(5 - first, |_| {});
        game.run_for(secs(8));
        let playing = [2, 3].map(|site| join_frame(&game, site, 2).is_some() && game.state(site) == State::Running);
        assert_eq!(playing.iter().filter(|plays| **plays).count(), 1, "{case}: {:?}", game.events);
        let frames = game.state_hashes[0].len().min(game.state_hashes[1].len());
        assert_eq!(game.state_hashes[0][..frames], game.state_hashes[1][..frames], "{case}");
        for site in [0, 1] {
            let fps = game.fps(site, game.now() - secs(2), game.now());
            assert!(fps > 59.0, "{case}: site {site} at {fps:.1} fps");
        }
    }
}

/// The address of the snapshot source changes during the download. The joiner follows it.
#[test]
fn snapshot_source_that_changes_address_is_followed() {
    for after in [300, 600, 900, 1_200] {
        let mut game =
            start_joinable(&SessionSetup { prediction_window: 8, ..SessionSetup::new(2, rtt_link(100)) }, 1, |_| {});
        game.set_late_joiners([1]);
        game.network.nodes[0].machine.ballast = ballast();
        game.run_until(at(JOINS_AT));
        game.join(1, |_| {});
        game.run_for(ms(after));
        game.network.change_address(0);
        game.run_for(secs(12));
        assert_running_at_full_speed(&game, &format!("moved after {after} ms"), [0, 1]);
    }
}

/// A leaving site serves no joiners; they switch to a site that stays.
#[test]
fn joiner_switches_source_when_its_source_leaves() {
    for before in [0, 300, 600, 900] {
        let mut game =
            start_joinable(&SessionSetup { prediction_window: 8, ..SessionSetup::new(4, rtt_link(100)) }, 3, |_| {});
        game.set_late_joiners([3]);
        game.network.nodes[..3].iter_mut().for_each(|site| site.machine.ballast = ballast());
        game.run_until(at(JOINS_AT));
        game.join(3, |_| {});
        game.run_for(ms(before));
        game.leave(0);
        game.run_for(secs(10));
        // A command is void if its issuer leaves before the command takes effect.
        assert_join_crash_is_harmless(&mut game, &format!("left after {before} ms"), [1, 2]);
    }
}

/// The session of a dropped site is over and answers no requests. A joiner that downloads from it switches to another
/// source and joins within 4 s.
#[test]
fn joiner_switches_source_when_its_source_is_dropped() {
    for before in [100, 300, 500] {
        let mut game =
            start_joinable(&SessionSetup { prediction_window: 8, ..SessionSetup::new(4, rtt_link(100)) }, 3, |_| {});
        game.set_late_joiners([3]);
        game.network.nodes[..3].iter_mut().for_each(|site| site.machine.ballast = ballast());
        game.run_until(at(JOINS_AT));
        // Site 1 is the first source.
        game.join(3, |config| config.peers.rotate_left(1));
        game.run_for(ms(before));
        let now = game.local_time(0);
        assert!(game.network.nodes[0].session.drop_site(now, site_id(1)));
        game.network.wake(0);
        game.run_for(secs(4));
        assert_eq!(end_reason(&game, 1), Some(SessionEnd::Dropped));
        assert!(join_frame(&game, 3, 3).is_some(), "dropped after {before} ms: {:?}", game.state(3));
        game.run_for(secs(2));
        assert_running_at_full_speed(&game, &format!("dropped after {before} ms"), [0, 2, 3]);
    }
}

/// The coordinator admits a joiner and is gone before the join takes effect. The joiner learns that its admission is
/// void, asks the next coordinator, and plays without a restart.
#[test]
fn joiner_whose_admission_is_void_asks_again() {
    for (leaves, input_delay) in [(false, 0), (false, 4), (true, 0), (true, 4)] {
        let case = format!("leaves: {leaves}, input delay {input_delay}");
        let setup = SessionSetup { input_delay, prediction_window: 0, ..SessionSetup::new(4, rtt_link(100)) };
        let mut game = start_joinable(&setup, 3, enable_drop_timeout);
        game.set_late_joiners([3]);
        game.run_until(at(JOINS_AT));
        game.network.start_capture(2_000);
        game.join(3, |_| {});
        game.run_while(secs(8), |game| !has_received_join_command(game, 3));
        if leaves {
            game.leave(0)
        } else {
            game.crash(0)
        }
        game.run_for(secs(8));
        assert_eq!(end_reason(&game, 3), None, "{case}");
        let frames = [1, 2, 3].map(|site| join_frame(&game, site, 3));
        assert!(frames[0].is_some() && frames.iter().all(|frame| *frame == frames[0]), "{case}: {frames:?}");
        game.assert_consistent();
    }
}

/// The coordinator admits a joiner and crashes before the join takes effect. It restarts, rejoins, and coordinates
/// again. Until it plays, it treats the joiner as a player, because the joiner considers itself one.
#[test]
fn joiner_whose_admission_is_void_is_admitted_by_the_rejoined_coordinator() {
    for away in [500, 1_000, 1_500] {
        let setup = SessionSetup { input_delay: 4, prediction_window: 0, ..SessionSetup::new(4, rtt_link(100)) };
        let mut game = start_joinable(&setup, 3, |_| {});
        game.set_late_joiners([3]);
        game.run_until(at(JOINS_AT));
        game.network.start_capture(2_000);
        game.join(3, |_| {});
        game.run_while(secs(8), |game| !has_received_join_command(game, 3));
        game.crash(0);
        game.run_for(ms(away));
        game.join(0, |_| {});
        game.run_for(secs(10));
        assert_eq!(end_reason(&game, 3), None, "{away} ms");
        assert_running_at_full_speed(&game, &format!("the coordinator is away for {away} ms"), [0, 1, 2, 3]);
    }
}

/// Between a crash and the rejoin, a player gets no packets of the site, and these do not count as lost.
#[test]
fn time_away_does_not_count_as_packet_loss() {
    let mut game = start_two_of_three(&SessionSetup::new(3, rtt_link(60)), enable_drop_timeout);
    game.run_until(at(JOINS_AT));
    game.crash(1);
    game.run_for(secs(6));
    game.join(1, |_| {});
    game.run_while(secs(8), |game| join_frame(game, 0, 1).is_none());
    for _ in 0..20 {
        game.run_for(ms(100));
        assert!(game.peer_stats(0, 1).loss < 0.01, "{:?}", game.peer_stats(0, 1));
    }
}

/// Starts three players that admit a fourth site. Their coordinator, whose links have this round-trip time, crashes as
/// soon as the joiner has received the admission, and restarts 300 ms later.
fn readmission_after_crash(setup: &SessionSetup, rtt_ms: i64, change: impl Fn(&mut Config)) -> TestSession {
    let mut game = start_joinable(setup, 3, change);
    for other in 1..4 {
        game.network.link(0, other).set_config(rtt_link(rtt_ms));
        game.network.link(other, 0).set_config(rtt_link(rtt_ms));
    }
    game.set_late_joiners([3]);
    game.run_until(at(secs(8)));
    game.network.start_capture(5_000);
    game.join(3, |_| {});
    game.run_while(secs(30), |game| !has_received_join_command(game, 3));
    game.crash(0);
    game.run_for(ms(300));
    game.join(0, |_| {});
    game
}

/// The link of the coordinator is long compared with the frame period, so the first admission is for a frame far ahead
/// of the second one. The joiner has already sent neutral inputs for more frames than a site accepts at once.
#[test]
fn second_admission_for_a_much_earlier_frame_freezes_no_player() {
    for (fps, rtt_ms, input_delay) in [(240, 300, 38), (144, 600, 46)] {
        let setup = SessionSetup { input_delay, prediction_window: 0, ..SessionSetup::new(4, rtt_link(20)) };
        let rate = FrameRate::per_second(fps).unwrap();
        let mut game = readmission_after_crash(&setup, rtt_ms, |config| config.settings.rate = rate);
        game.run_for(secs(30));
        for site in 0..4 {
            let speed = game.fps(site, game.now() - secs(2), game.now());
            let (state, full) = (game.state(site), f64::from(fps));
            assert!(speed > 0.9 * full, "site {site} plays at {speed:.1} of {full} fps: {state:?}");
        }
        game.assert_consistent();
    }
}

/// The coordinator that admitted a joiner crashes, rejoins and admits the joiner again. When the coordinator leaves
/// later, the joiner reports that as the other players do.
#[test]
fn joiner_that_was_admitted_twice_notices_a_leave() {
    for away in [500, 1_500] {
        let setup = SessionSetup { input_delay: 4, prediction_window: 0, ..SessionSetup::new(4, rtt_link(100)) };
        let mut game = start_joinable(&setup, 3, |_| {});
        game.set_late_joiners([3]);
        game.run_until(at(JOINS_AT));
        game.network.start_capture(2_000);
        game.join(3, |_| {});
        game.run_while(secs(8), |game| !has_received_join_command(game, 3));
        game.crash(0);
        game.run_for(ms(away));
        game.join(0, |_| {});
        game.run_for(secs(10));
        game.leave(0);
        game.run_for(secs(5));
        for site in 1..4 {
            let is_leave = |event: &Event| matches!(event, Event::Left { site, .. } if *site == site_id(0));
            let leaves = game.events_of(site).filter(|reported| is_leave(&reported.event)).count();
            assert_eq!(leaves, 1, "away for {away} ms, site {site}");
        }
    }
}

/// The link between the coordinator and a joiner fails right after the admission. The other player relays all inputs,
/// but no acknowledgements, so the joiner does not learn that its admission counts. It gives its seat back.
#[test]
fn joiner_that_loses_the_coordinator_gives_its_seat_back() {
    for after in [0, 50, 90] {
        let mut game = start_two_of_three(&SessionSetup::new(3, rtt_link(100)), enable_drop_timeout);
        game.run_until(at(JOINS_AT));
        game.network.start_capture(2_000);
        game.join(2, |_| {});
        game.run_while(secs(8), |game| !has_received_join_command(game, 2));
        game.run_for(ms(after));
        game.network.set_cut(0, 2, true);
        game.run_for(secs(15));
        assert!(end_reason(&game, 2).is_some(), "cut after {after} ms: {:?}", game.state(2));
        game.run_for(secs(3));
        assert_running_at_full_speed(&game, &format!("cut after {after} ms"), [0, 1]);
    }
}

/// All players leave while a joiner that they have admitted still catches up, because its machine is slow for a moment.
/// The joiner keeps the game.
#[test]
fn joiner_keeps_the_game_that_all_players_leave() {
    for (players, after) in [(1, 500), (1, 700), (1, 1_000), (2, 700)] {
        let case = format!("{players} players leave after {after} ms");
        let setup = SessionSetup::new(players + 1, rtt_link(100));
        let mut game = start_joinable(&setup, players, |config| config.can_play_alone = true);
        game.set_late_joiners([players]);
        game.run_until(at(JOINS_AT));
        game.network.start_capture(2_000);
        game.join(players, |_| {});
        game.run_while(secs(8), |game| !has_received_join_command(game, players));
        game.network.nodes[players].step_cost = ms(60);
        game.run_for(ms(after));
        (0..players).for_each(|player| game.leave(player));
        game.run_for(ms(300));
        game.network.nodes[players].step_cost = ms(1);
        game.run_for(secs(20));
        assert_running_at_full_speed(&game, &case, [players]);
    }
}

/// A player loses its links to two of three others, and soon afterwards it and the remaining player, which still has
/// its inputs and serves a joiner, are cut off. The joiner must not have got frames with inputs that the others lack.
#[test]
fn feed_publishes_no_frames_with_inputs_that_a_quorum_may_lack() {
    for input_delay in [6, 12] {
        for (before, between) in [(0, 140), (0, 200), (120, 140), (240, 140), (240, 200), (360, 140)] {
            let setup = SessionSetup { input_delay, ..SessionSetup::new(5, rtt_link(100)) };
            let mut game = start_joinable(&setup, 4, enable_drop_timeout);
            game.set_late_joiners([4]);
            game.run_until(at(JOINS_AT));
            game.network.start_capture(2_000);
            // Site 2 is the first source.
            game.join(4, |config| config.peers.rotate_left(2));
            game.run_while(secs(8), |game| !has_received_join_command(game, 4));
            game.run_for(ms(before));
            [0, 1].into_iter().for_each(|to| game.network.link(3, to).set_cut(true));
            game.run_for(ms(between));
            game.set_partition(site_set([2, 3]), true);
            game.run_for(secs(12));
            let case = format!("input delay {input_delay}, cuts at {before} ms and {between} ms later");
            assert!(join_frame(&game, 4, 4).is_some(), "{case}: site 4 does not join");
            assert_eq!(game.checker.find_violations(), [], "{case}");
            let has_diverged = game.events.iter().any(|reported| matches!(reported.event, Event::Diverged { .. }));
            assert!(!has_diverged, "{case}");
        }
    }
}

/// Returns the experiment of a join by snapshot with a state of 100 kB, unlimited rate and a join after 6 s.
fn small_late_join(seed: u64) -> LateJoinExperiment {
    let joiner_link = LinkConfig { rate: None, ..LateJoinExperiment::by_snapshot().joiner_link };
    LateJoinExperiment {
        seed,
        joiner_link,
        state_bytes: 100_000,
        joins_at: secs(6),
        time_after_join: secs(10),
        ..LateJoinExperiment::by_snapshot()
    }
}

/// Until the join frame, the machine of every player performs the same actions at the same instants as without the
/// joiner. Afterwards each player stalls as often as without the joiner, and resimulates hardly more frames than the
/// joiner's input changes explain.
#[test]
fn late_join_costs_the_players_no_frame() {
    for seed in 1..=6 {
        let outcome = small_late_join(seed).run();
        assert!(outcome.all_running && outcome.states_equal && outcome.same_datagrams, "seed {seed}: {outcome:?}");
        assert!(outcome.datagrams > 500 && outcome.first_input_after < Some(secs(6)), "seed {seed}: {outcome:?}");
        for player in &outcome.players {
            assert!(player.same_actions && player.action_count > 300, "seed {seed}: {player:?}");
            assert_eq!(player.before[0], player.before[1], "seed {seed}");
            assert_eq!(player.after[0].stalls, player.after[1].stalls, "seed {seed}: {player:?}");
            let resimulated = player.after[0].resimulated as f64;
            assert!(
                player.joiner_input_changes > 20 && resimulated <= player.expected_resimulated() * 1.1 + 20.0,
                "seed {seed}: {player:?}"
            );
        }
    }
}
