//! A site takes its seat in a running game, and nobody who plays loses a frame by it; whatever goes wrong meanwhile harms only who
//! was concerned.

mod common;

use common::{SessionSetup, TestSession, at, lossy_link, ms, rtt_link, secs, site_id, site_set};
use coplay::session::{AbsentInput, Config, Event, SessionEnd, Settings, State};
use coplay::spectator_feed::{FeedConfig, SourceError, SpectatorStart};
use coplay::time::TimeDelta;
use coplay::wire::{CommandKind, Extra, ScheduledCommand, SessionMessage};
use coplay_sim::late_join::LateJoinExperiment;
use coplay_sim::link::LinkConfig;
use coplay_sim::session_network::SessionNetwork;
use coplay_sim::site::Sabotage;

/// When somebody comes.
const JOINS_AT: TimeDelta = TimeDelta::from_secs(4);

/// Sites of which the first `starters` start, and all of which serve those who come late.
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

/// Two play, and a third has not come yet.
fn start_two_of_three(setup: &SessionSetup, change: impl Fn(&mut Config)) -> TestSession {
    let mut game = start_joinable(setup, 2, change);
    game.set_late_joiners([2]);
    game
}

fn join_frame(game: &TestSession, teller: usize, site: usize) -> Option<u32> {
    let frame = |event: &Event| match event {
        Event::Joined { site: joined, frame } if *joined == site_id(site) => Some(frame.number()),
        _ => None,
    };
    game.events_of(teller).filter_map(|told| frame(&told.event)).last()
}

fn end_reason(game: &TestSession, site: usize) -> Option<SessionEnd> {
    let end = game.find_event(site, |event| if let Event::Ended(end) = event { Some(*end) } else { None });
    end.map(|(_, end)| end)
}

/// All these play, at full speed of late, and everybody saw the same.
#[track_caller]
fn assert_running_at_full_speed<const N: usize>(game: &TestSession, what: &str, sites: [usize; N]) {
    for site in sites {
        let fps = game.fps(site, game.now() - secs(2), game.now());
        let state = game.state(site);
        assert!(
            state == State::Running && fps > 58.0,
            "{what}: site {site} at {fps:.1} fps, {state:?}, {:?}",
            game.events
        );
    }
    game.assert_consistent();
}

#[test]
fn third_site_joins_a_running_game() {
    for (window, loss) in [(0, 0.0), (0, 0.05), (8, 0.0), (8, 0.05), (8, 0.2)] {
        let what = format!("window {window}, loss {loss}");
        let mut game = start_two_of_three(
            &SessionSetup { prediction_window: window, ..SessionSetup::new(3, lossy_link(100, loss)) },
            |_| {},
        );
        game.run_until(at(JOINS_AT));
        game.join(2, |_| {});
        game.run_while(secs(8), |game| join_frame(game, 2, 2).is_none());
        game.run_for(secs(5));
        let frames = [0, 1, 2].map(|site| join_frame(&game, site, 2));
        assert!(frames[0].is_some() && frames.iter().all(|frame| *frame == frames[0]), "{what}: {frames:?}");
        assert_running_at_full_speed(&game, &what, [0, 1, 2]);
    }
}

/// A player who leaves may be far ahead of the coordinator: its inputs count in frames that the coordinator has not reached yet. Who
/// joins does not have them.
#[test]
fn join_frame_is_after_the_last_input_of_a_leaver() {
    for after in (1_500..2_500).step_by(50) {
        let mut game =
            start_two_of_three(&SessionSetup { prediction_window: 60, ..SessionSetup::new(3, rtt_link(100)) }, |_| {});
        game.run_until(at(JOINS_AT));
        game.network.suspend(0, at(JOINS_AT + ms(1_500)));
        game.join(2, |_| {});
        // The coordinator stays behind: its machine is slower than the game.
        game.network.sites[0].step_cost = ms(20);
        game.run_for(ms(after));
        game.leave(1);
        game.run_for(secs(2));
        game.network.sites[0].step_cost = TimeDelta::ZERO;
        game.run_for(secs(8));
        assert_running_at_full_speed(&game, &format!("site 1 leaves after {after} ms"), [0, 2]);
    }
}

/// On a long link a source needs more than a second to accept a watcher and to answer its first question. A newcomer that turned to
/// another source every second would never get a frame.
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
    let seated = |game: &TestSession| game.network.captured().any(|packet| is_join_command(&packet.bytes));
    game.network.start_capture(100);
    game.run_while(secs(12), |game| !seated(game));
    // Until this site is dropped, no source has the frames that the newcomer needs.
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
    assert!(game.fps(0, at(secs(2)), at(JOINS_AT)) > 59.0, "nobody is needed to play alone");
    game.join(1, |_| {});
    game.run_for(secs(8));
    assert!(join_frame(&game, 0, 1).is_some(), "{:?}", game.events);
    assert_running_at_full_speed(&game, "two", [0, 1]);
}

/// Without a limit to patience the players wait for the dead one, until its program is heard again.
#[test]
fn restarted_site_rejoins_with_a_higher_incarnation() {
    for (sites, site, window) in [(3, 0, 0), (3, 1, 8), (3, 2, 0), (3, 2, 8), (2, 0, 0), (2, 0, 8), (2, 1, 8)] {
        let what = format!("site {site} of {sites}, window {window}");
        let mut game = start_joinable(
            &SessionSetup { prediction_window: window, ..SessionSetup::new(sites, lossy_link(100, 0.02)) },
            sites,
            |_| {},
        );
        game.run_until(at(JOINS_AT));
        game.crash(site);
        game.run_for(secs(2));
        let frozen = (0..sites).all(|other| other == site || matches!(game.state(other), State::Frozen(_)));
        assert!(frozen, "{what}: nobody goes on without it");
        game.network.change_address(site);
        game.join(site, |_| {});
        game.run_for(secs(8));
        assert!(join_frame(&game, site, site).is_some(), "{what}: {:?} {:?}", game.state(site), game.events);
        (0..sites).for_each(|site| assert_running_at_full_speed(&game, &what, [site]));
    }
}

/// A program that was started again with the same number is not the one that played, and must not take its seat.
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
    let cannot = |config: &mut Config| config.can_save = false;
    let mut game = start_two_of_three(&SessionSetup::new(3, lossy_link(100, 0.05)), cannot);
    game.run_until(at(secs(20)));
    game.join(2, |config| config.late_join.iter_mut().for_each(|join| join.start = SpectatorStart::FirstFrame));
    game.run_for(secs(8));
    assert!(join_frame(&game, 2, 2).is_some(), "{:?}", game.events);
    assert_eq!(game.state_hashes[2][..1_000], game.state_hashes[0][..1_000], "from the first frame on");
    assert_running_at_full_speed(&game, "replay", [0, 1, 2]);
}

/// Site 2 dies; for it the last input goes on, also at site 3, which comes only then, until it is back.
#[test]
fn last_input_of_a_dropped_site_is_repeated_until_it_rejoins() {
    for (seed, window, loss) in [(1, 0, 0.0), (2, 8, 0.05), (3, 8, 0.0), (4, 0, 0.05), (5, 3, 0.02)] {
        let what = format!("seed {seed}, window {window}, loss {loss}");
        let mut game = start_joinable(
            &SessionSetup { prediction_window: window, seed, ..SessionSetup::new(4, lossy_link(100, loss)) },
            3,
            |config| {
                enable_drop_timeout(config);
                config.settings.absent_input = AbsentInput::Repeat;
            },
        );
        game.set_late_joiners([3]);
        game.network.sites.iter_mut().for_each(|site| site.player.change_probability = 1.0);
        game.run_until(at(JOINS_AT));
        game.crash(2);
        game.run_for(secs(3));
        game.join(3, |_| {});
        game.run_for(secs(6));
        game.join(2, |_| {});
        game.run_for(secs(6));
        let dropped =
            game.find_event(0, |event| if let Event::Dropped { frame, .. } = event { Some(*frame) } else { None });
        let (from, until) = (dropped.expect(&what).1.number(), join_frame(&game, 0, 2).expect(&what));
        let pressed = |frame: u32| game.checker.first_incarnation_frame(0, frame as usize).expect("it was played").0[2];
        assert!(pressed(from - 1) != 0 && until - from > 300, "{what}: frames {from} to {until}");
        let lets_go = (from..until).find(|frame| pressed(*frame) != pressed(from - 1));
        assert_eq!(lets_go, None, "{what}: frames {from} to {until}");
        assert!(pressed(until) == 0, "{what}: who is back presses nothing at first");
        assert_running_at_full_speed(&game, &what, [0, 1, 2, 3]);
    }
}

#[test]
fn two_sites_join_at_once() {
    for (window, loss, apart) in [(0, 0.0, 0), (8, 0.05, 0), (8, 0.05, 150), (8, 0.0, 700)] {
        let what = format!("window {window}, loss {loss}, {apart} ms apart");
        let mut game = start_joinable(
            &SessionSetup { prediction_window: window, ..SessionSetup::new(4, lossy_link(100, loss)) },
            2,
            |_| {},
        );
        game.set_late_joiners([2, 3]);
        game.run_until(at(JOINS_AT));
        game.join(2, |_| {});
        game.run_for(ms(apart));
        game.join(3, |_| {});
        game.run_for(secs(12));
        for (teller, site) in [(0, 2), (0, 3), (1, 2), (1, 3), (2, 2), (3, 3)] {
            assert!(join_frame(&game, teller, site).is_some(), "{what}: site {teller}, {:?}", game.events);
        }
        assert_running_at_full_speed(&game, &what, [0, 1, 2, 3]);
    }
}

/// The order that lets a site in has reached it.
fn has_received_join_command(game: &TestSession, site: usize) -> bool {
    was_join_command_sent(game, site, ms(60))
}

/// The order that lets a site in left so long ago.
fn was_join_command_sent(game: &TestSession, site: usize, ago: TimeDelta) -> bool {
    let is_order = |extra: Extra<'_>| matches!(extra, Extra::Command(ScheduledCommand { kind: CommandKind::Join { site: joins, .. }, .. }) if joins == site_id(site));
    let lets_in = |bytes: &[u8]| matches!(SessionMessage::decode(bytes), Ok(SessionMessage::Tick(tick)) if tick.extras.iter().any(is_order));
    game.network.captured().any(|heard| heard.to == site && heard.at + ago <= game.now() && lets_in(&heard.bytes))
}

/// The coordinator of two goes on without the other one, which needs nobody's word, just before a third one's first frame. The third one,
/// who hears both, follows that decision.
#[test]
fn joiner_follows_a_drop_decided_before_its_first_frame() {
    for (window, after) in [0, 8].into_iter().flat_map(|window| (0..800).step_by(25).map(move |after| (window, after)))
    {
        let what = format!("window {window}, dropped {after} ms after the third one is let in");
        let mut game = start_two_of_three(
            &SessionSetup { prediction_window: window, ..SessionSetup::new(3, rtt_link(100)) },
            enable_drop_timeout,
        );
        game.network.start_capture(2_000);
        game.run_until(at(JOINS_AT));
        game.join(2, |_| {});
        game.run_while(secs(8), |game| !was_join_command_sent(game, 2, ms(0)));
        game.run_for(ms(after));
        let now = game.local_time(0);
        assert!(game.network.sites[0].session.drop_site(now, site_id(1)), "{what}");
        game.network.wake(0);
        game.run_for(secs(6));
        assert_eq!(end_reason(&game, 1), Some(SessionEnd::Dropped), "{what}");
        assert_running_at_full_speed(&game, &what, [0, 2]);
    }
}

/// A site that was dropped with a button held comes back, is let in, and leaves before its first frame, which some hear long before
/// others. What was done for it until then stays as it was.
#[test]
fn joiner_that_leaves_before_its_first_frame_changes_no_inputs() {
    for (window, way_out, later) in
        [(0, [10, 90], 0), (8, [10, 90], 0), (8, [90, 10], 30), (0, [10, 90], 100), (8, [10, 300], 60)]
    {
        let what = format!("window {window}, {way_out:?} ms away, leaves {later} ms later");
        let mut game = start_joinable(
            &SessionSetup { prediction_window: window, ..SessionSetup::new(3, rtt_link(100)) },
            3,
            |config| {
                enable_drop_timeout(config);
                config.settings.absent_input = AbsentInput::Repeat;
            },
        );
        for (to, millis) in way_out.into_iter().enumerate() {
            game.network.link(2, to).set_config(rtt_link(2 * millis));
        }
        game.network.sites.iter_mut().for_each(|site| site.player.change_probability = 1.0);
        game.run_until(at(JOINS_AT));
        game.crash(2);
        game.run_for(secs(3));
        game.network.start_capture(2_000);
        game.join(2, |_| {});
        game.run_while(secs(8), |game| !has_received_join_command(game, 2));
        game.run_for(ms(later));
        game.leave(2);
        game.run_for(secs(5));
        assert_eq!(end_reason(&game, 2), Some(SessionEnd::Left), "{what}");
        assert_running_at_full_speed(&game, &what, [0, 1]);
    }
}

/// The same, but it has not heard that it is let in, and says so in its hellos. One of the others may not hear it at all.
#[test]
fn joiner_that_leaves_unaware_of_its_join_changes_no_inputs() {
    for (window, deaf) in [(0, None), (8, None), (0, Some(0)), (8, Some(1))] {
        let what = format!("window {window}, site {deaf:?} does not hear it");
        let mut game = start_joinable(
            &SessionSetup { prediction_window: window, ..SessionSetup::new(3, rtt_link(100)) },
            3,
            |config| {
                enable_drop_timeout(config);
                config.settings.absent_input = AbsentInput::Repeat;
            },
        );
        game.network.sites.iter_mut().for_each(|site| site.player.change_probability = 1.0);
        game.run_until(at(JOINS_AT));
        game.crash(2);
        game.run_for(secs(3));
        game.network.start_capture(2_000);
        game.join(2, |_| {});
        game.run_while(secs(8), |game| !was_join_command_sent(game, 2, ms(0)));
        (0..2).for_each(|site| game.network.link(site, 2).set_cut(true));
        deaf.into_iter().for_each(|site| game.network.link(2, site).set_cut(true));
        game.leave(2);
        game.run_for(secs(6));
        assert_eq!(end_reason(&game, 2), Some(SessionEnd::Left), "{what}");
        assert_running_at_full_speed(&game, &what, [0, 1]);
    }
}

/// The coordinator sleeps while a third one asks to be let in and, in vain, says goodbye. When it wakes it finds in its socket that the
/// third one is ready, and perhaps not the goodbye. Nobody waits for who has left.
#[test]
fn joiner_that_left_while_the_coordinator_slept_is_not_awaited() {
    for (asleep, after) in
        [2_500, 4_000].into_iter().flat_map(|asleep| (800..1_700).step_by(75).map(move |after| (asleep, after)))
    {
        let what = format!("site 0 sleeps for {asleep} ms, site 2 leaves after {after} ms");
        let mut game = start_two_of_three(&SessionSetup::new(3, rtt_link(40)), |_| {});
        game.run_until(at(JOINS_AT));
        game.join(2, |_| {});
        // It has found everybody, and is about to be ready.
        game.run_for(ms(400));
        game.network.suspend(0, at(JOINS_AT + ms(400 + asleep)));
        game.run_for(ms(after - 400));
        game.network.link(2, 0).set_cut(true);
        game.leave(2);
        game.run_for(secs(12));
        assert_eq!(end_reason(&game, 2), Some(SessionEnd::Left), "{what}");
        assert_running_at_full_speed(&game, &what, [0, 1]);
    }
}

/// A third player is let in and then hears nobody for a while, but is heard; meanwhile a fourth comes, or the dials turn. Whatever
/// happens at one frame everywhere must not pass by who is not as far yet.
#[test]
fn joiner_that_receives_nothing_for_a_while_misses_no_command() {
    for (window, auto, deaf_for) in
        [(0, false, 1_500), (8, false, 1_500), (8, false, 3_000), (0, true, 1_500), (0, true, 3_000)]
    {
        let what = format!("window {window}, auto {auto}, deaf for {deaf_for} ms");
        let mut game = start_joinable(
            &SessionSetup { prediction_window: window, ..SessionSetup::new(4, rtt_link(100)) },
            2,
            |config| config.settings.auto_tune = auto,
        );
        game.set_late_joiners([2, 3]);
        game.run_until(at(JOINS_AT));
        game.network.start_capture(2_000);
        game.join(2, |_| {});
        if !auto {
            game.join(3, |_| {});
        }
        game.run_while(secs(8), |game| !has_received_join_command(game, 2) && !has_received_join_command(game, 3));
        let deaf = if has_received_join_command(&game, 2) { 2 } else { 3 };
        let hears = |game: &mut TestSession, hears: bool| {
            (0..4).filter(|site| *site != deaf).for_each(|site| game.network.link(site, deaf).set_cut(!hears));
        };
        hears(&mut game, false);
        game.run_for(ms(deaf_for));
        hears(&mut game, true);
        game.run_for(secs(12));
        if auto {
            assert_running_at_full_speed(&game, &what, [0, 1, 2]);
        } else {
            assert_running_at_full_speed(&game, &what, [0, 1, 2, 3]);
        }
    }
}

/// What became of a join in the middle of which somebody dies.
fn crash_during_join(dies: usize, after: TimeDelta) -> TestSession {
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
    game.network.sites[..3].iter_mut().for_each(|site| site.machine.ballast = ballast());
    game.run_until(at(JOINS_AT));
    game.join(3, |_| {});
    game.run_for(after);
    game.crash(dies);
    game.run_for(secs(14));
    game
}

/// As much as takes a few hundred milliseconds.
fn ballast() -> Vec<u8> {
    (0..150_000u32).map(|at| (at.wrapping_mul(0x9e37_79b9) >> 21) as u8).collect()
}

/// Whoever is left plays, and so does the latecomer, or it was told that it does not and can come again.
fn assert_join_crash_is_harmless(game: &mut TestSession, what: &str, others: [usize; 2]) {
    assert_running_at_full_speed(game, what, others);
    match end_reason(game, 3) {
        None => assert_running_at_full_speed(game, what, [3]),
        Some(SessionEnd::Dropped | SessionEnd::NoWayIn(_)) => {
            game.join(3, |_| {});
            game.run_for(secs(8));
            assert_running_at_full_speed(game, what, [others[0], others[1], 3]);
        }
        Some(end) => panic!("{what}: {end:?}"),
    }
}

#[test]
fn coordinator_crash_at_any_point_of_a_join_is_harmless() {
    for after in (0..=3_500).step_by(50) {
        let mut game = crash_during_join(0, ms(after));
        assert_join_crash_is_harmless(&mut game, &format!("the coordinator dies after {after} ms"), [1, 2]);
    }
}

/// A site that was dropped with a button held comes back, and the coordinator goes when it has just let it in. Where that came to nothing,
/// the button is held on, also in frames that were stepped as if it were let go.
#[test]
fn coordinator_exit_during_rejoin_keeps_the_repeated_input() {
    for (leaves, after) in
        [false, true].into_iter().flat_map(|leaves| (0..=280).step_by(20).map(move |ms| (leaves, ms)))
    {
        let what = format!("the coordinator goes after {after} ms, leaves: {leaves}");
        let mut game = start_joinable(
            &SessionSetup { prediction_window: 8, input_delay: 3, ..SessionSetup::new(4, rtt_link(20)) },
            4,
            |config| {
                enable_drop_timeout(config);
                config.settings.absent_input = AbsentInput::Repeat;
            },
        );
        game.network.sites.iter_mut().for_each(|site| site.player.change_probability = 1.0);
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
        assert_running_at_full_speed(&game, &what, [1, 3]);
    }
}

/// Who is let in loses the way to the coordinator, before it knows the plan that it would follow. When the way is back, everybody waits for its inputs, so
/// there is no plan any more.
#[test]
fn joiner_without_a_pacing_plan_plays_when_all_are_frozen() {
    for after in (0..1_500).step_by(50) {
        let mut game = start_joinable(&SessionSetup::new(4, rtt_link(100)), 3, |_| {});
        game.set_late_joiners([3]);
        game.run_until(at(JOINS_AT));
        game.network.start_capture(2_000);
        game.join(3, |_| {});
        game.run_for(ms(after));
        // While all wait for another, there is no plan to tell.
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
        assert_join_crash_is_harmless(&mut game, &format!("a player dies after {after} ms"), [0, 2]);
    }
}

#[test]
fn joiner_crash_at_any_point_of_a_join_is_harmless() {
    for after in (0..=3_500).step_by(50) {
        let game = crash_during_join(3, ms(after));
        assert_running_at_full_speed(&game, &format!("the latecomer dies after {after} ms"), [0, 1, 2]);
    }
}

/// The one who dies is back at once. Without a limit to patience all wait for it, and for nobody else.
#[test]
fn player_crash_and_rejoin_at_any_point_of_a_join_is_harmless() {
    for after in (0..=3_500).step_by(50) {
        let what = format!("a player dies after {after} ms and comes back");
        let setup = SessionSetup {
            prediction_window: 8,
            input_delay: 4,
            seed: 1 + after as u64,
            ..SessionSetup::new(4, lossy_link(100, 0.1))
        };
        let mut game = start_joinable(&setup, 3, |_| {});
        game.set_late_joiners([3]);
        game.network.sites[..3].iter_mut().for_each(|site| site.machine.ballast = ballast());
        game.run_until(at(JOINS_AT));
        game.join(3, |_| {});
        game.run_for(ms(after));
        game.crash(1);
        game.run_for(ms(100));
        game.join(1, |_| {});
        game.run_for(secs(14));
        assert_running_at_full_speed(&game, &what, [0, 1, 2, 3]);
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
    assert_eq!(game.find_event(2, differs).map(|(_, what)| what), Some("the lag".into()));
    assert_eq!(game.find_event(0, differs).map(|(_, what)| what), Some("the lag".into()));
    assert_eq!((join_frame(&game, 0, 2), join_frame(&game, 1, 2)), (None, None));
    assert_running_at_full_speed(&game, "the others", [0, 1]);
}

/// The first of two who serve has a wrong byte in every state, or both have.
#[test]
fn snapshot_with_a_wrong_hash_is_refused() {
    for liars in [1, 2] {
        let mut game =
            start_two_of_three(&SessionSetup { prediction_window: 8, ..SessionSetup::new(3, rtt_link(100)) }, |_| {});
        game.network.sites[..liars].iter_mut().for_each(|site| site.sabotage = Some(Sabotage::CorruptSnapshot));
        game.run_until(at(JOINS_AT));
        game.join(2, |_| {});
        game.run_for(secs(20));
        match liars {
            1 => assert_running_at_full_speed(&game, "another one is honest", [0, 1, 2]),
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

/// A fourth program claims the third one's seat, at the same time.
#[test]
fn only_one_of_two_claimants_gets_the_seat() {
    for (first, later) in [(2, 0), (2, 300), (3, 0), (3, 300)] {
        let what = format!("site {first} comes {later} ms before the other");
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
        assert_eq!(playing.iter().filter(|plays| **plays).count(), 1, "{what}: {:?}", game.events);
        let frames = game.state_hashes[0].len().min(game.state_hashes[1].len());
        assert_eq!(game.state_hashes[0][..frames], game.state_hashes[1][..frames], "{what}");
        for site in [0, 1] {
            let fps = game.fps(site, game.now() - secs(2), game.now());
            assert!(fps > 59.0, "{what}: site {site} at {fps:.1} fps");
        }
    }
}

/// The address of the one that serves changes in the middle of the download.
#[test]
fn snapshot_source_that_changes_address_is_followed() {
    for after in [300, 600, 900, 1_200] {
        let mut game =
            start_joinable(&SessionSetup { prediction_window: 8, ..SessionSetup::new(2, rtt_link(100)) }, 1, |_| {});
        game.set_late_joiners([1]);
        game.network.sites[0].machine.ballast = ballast();
        game.run_until(at(JOINS_AT));
        game.join(1, |_| {});
        game.run_for(ms(after));
        game.network.change_address(0);
        game.run_for(secs(12));
        assert_running_at_full_speed(&game, &format!("moved after {after} ms"), [0, 1]);
    }
}

/// Whoever is about to leave serves nobody: those who come turn to one who stays.
#[test]
fn joiner_switches_source_when_its_source_leaves() {
    for before in [0, 300, 600, 900] {
        let mut game =
            start_joinable(&SessionSetup { prediction_window: 8, ..SessionSetup::new(4, rtt_link(100)) }, 3, |_| {});
        game.set_late_joiners([3]);
        game.network.sites[..3].iter_mut().for_each(|site| site.machine.ballast = ballast());
        game.run_until(at(JOINS_AT));
        game.join(3, |_| {});
        game.run_for(ms(before));
        game.leave(0);
        game.run_for(secs(10));
        // An order that its giver leaves before is void.
        assert_join_crash_is_harmless(&mut game, &format!("left after {before} ms"), [1, 2]);
    }
}

/// A small version of the experiment.
fn small_late_join(seed: u64) -> LateJoinExperiment {
    let way = LinkConfig { rate: None, ..LateJoinExperiment::by_snapshot().joiner_link };
    LateJoinExperiment {
        seed,
        joiner_link: way,
        state_bytes: 100_000,
        joins_at: secs(6),
        time_after_join: secs(10),
        ..LateJoinExperiment::by_snapshot()
    }
}

/// Until the frame with which somebody sits down, nobody's machine does anything else or at another instant than without him; and
/// afterwards nobody waits, and nothing is stepped again but for what he does.
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
            let again = player.after[0].resimulated as f64;
            assert!(
                player.joiner_input_changes > 20 && again <= player.expected_resimulated() * 1.1 + 20.0,
                "seed {seed}: {player:?}"
            );
        }
    }
}
