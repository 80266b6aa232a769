//! When a site leaves properly, all others agree on its last frame and play on. The last remaining site can play on
//! alone, and the others can rejoin it.

use crate::common::{SessionSetup, TestSession, at, lossy_link, ms, rtt_link, secs, site_id, site_set};
use coplay::codec::MAX_DATAGRAM;
use coplay::frame::Frame;
use coplay::input::Recovery;
use coplay::session::message::{Hello, Refusal};
use coplay::session::{Config, Event, SessionEnd, State};
use coplay::spectator_feed::FeedConfig;
use coplay::time::TimeDelta;
use coplay_sim::session_network::SessionNetwork;

/// Returns the frame at which `site` reported that `leaver` left; `None` if it reported no leave, or more than one.
fn leave_frame(game: &TestSession, site: usize, leaver: usize) -> Option<Frame> {
    let left = |event: &Event| match event {
        Event::Left { site, frame } if *site == site_id(leaver) => Some(*frame),
        _ => None,
    };
    let mut found = game.events_of(site).filter_map(|reported| left(&reported.event));
    found.next().filter(|_| found.next().is_none())
}

fn end_reason(game: &TestSession, site: usize) -> Option<SessionEnd> {
    let end = game.find_event(site, |event| if let Event::Ended(end) = event { Some(*end) } else { None });
    end.map(|(_, end)| end)
}

/// Lets two of three sites leave one after the other. Asserts that after the first leave the others agree on the last
/// frame and play on, and that after the second the last site ends as [`SessionEnd::Alone`].
fn leave_in_turn(loss: f64, first: usize, second: usize, min_fps: f64) {
    let case = format!("loss {loss}, {first} leaves and then {second}");
    let mut game = SessionSetup::new(3, lossy_link(100, loss)).start();
    game.run_until(at(secs(8)));
    game.leave(first);
    let gone = game.now();
    game.run_for(secs(10));

    let stay = [0, 1, 2].into_iter().filter(|site| *site != first);
    let frames: Vec<_> = stay.clone().map(|site| leave_frame(&game, site, first)).collect();
    assert!(frames[0].is_some() && frames[0] == frames[1], "{case}: {frames:?}");
    assert_eq!(game.state(first), State::Ended(SessionEnd::Left), "{case}");
    assert_eq!(end_reason(&game, first), Some(SessionEnd::Left), "{case}");
    for site in stay.clone() {
        let fps = game.fps(site, gone, game.now());
        assert!(fps >= min_fps, "{case}: site {site} at {fps:.2} fps");
        let longest = game.frame_times(site, gone).into_iter().fold(0.0, f64::max);
        assert!(longest < 120.0 || loss > 0.0, "{case}: site {site} stalled for {longest:.0} ms");
        assert_eq!(game.state(site), State::Running, "{case}");
        let frozen = game.events_of(site).any(|reported| matches!(reported.event, Event::Frozen(_)));
        assert!(!frozen, "{case}: site {site} froze");
    }
    // The checker expects neutral input of a site after its last frame.
    game.assert_consistent();

    game.leave(second);
    let last = 3 - first - second;
    game.run_for(secs(4));
    assert!(leave_frame(&game, last, second).is_some(), "{case}");
    assert_eq!(end_reason(&game, second), Some(SessionEnd::Left), "{case}");
    assert_eq!(end_reason(&game, last), Some(SessionEnd::Alone), "{case}");
    game.assert_consistent();
}

#[test]
fn remaining_sites_play_on_after_each_leave() {
    for (first, second) in [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)] {
        leave_in_turn(0.0, first, second, 59.8);
    }
}

#[test]
fn remaining_sites_play_on_after_each_leave_with_20_percent_loss() {
    for (first, second) in [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)] {
        leave_in_turn(0.2, first, second, 58.0);
    }
}

#[test]
fn leaver_waits_until_all_peers_acknowledge() {
    for loss in [0.0, 0.2] {
        let mut game = SessionSetup::new(3, lossy_link(100, loss)).start();
        game.run_until(at(secs(8)));
        game.leave(0);
        let requested = game.now();
        game.run_while(secs(3), |game| end_reason(game, 0).is_none());
        let took = game.now() - requested;
        assert!(took >= ms(99) && took < ms(1_000), "loss {loss}: it took {took}");
        assert!(
            [1, 2].into_iter().all(|site| leave_frame(&game, site, 0).is_some()),
            "loss {loss}: a site has not reported the leave"
        );
    }
}

#[test]
fn all_sites_leave_at_once() {
    for loss in [0.0, 0.2] {
        let mut game = SessionSetup::new(3, lossy_link(100, loss)).start();
        game.run_until(at(secs(8)));
        (0..3).for_each(|site| game.leave(site));
        game.run_for(secs(3));
        for site in 0..3 {
            assert_eq!(end_reason(&game, site), Some(SessionEnd::Left), "loss {loss}: site {site}");
        }
    }
}

#[test]
fn leave_from_the_lobby_is_reported() {
    let mut game = SessionSetup::new(3, rtt_link(100)).start();
    game.set_isolated(2, true);
    game.run_until(at(secs(2)));
    game.leave(0);
    game.run_for(secs(2));
    assert_eq!(end_reason(&game, 0), Some(SessionEnd::Left));
    assert_eq!(leave_frame(&game, 1, 0), Some(Frame::ZERO));
    assert!(matches!(game.state(1), State::Lobby { .. }), "{:?}", game.state(1));
}

#[test]
fn last_inputs_take_effect_before_the_leave_does() {
    let mut game = SessionSetup::new(2, rtt_link(100)).start();
    game.run_until(at(secs(8)));
    let promised = game.stats(1).frame.number() + 6;
    game.leave(1);
    game.run_for(ms(900));
    let frame = leave_frame(&game, 0, 1).expect("a leave event").number();
    assert!(frame.abs_diff(promised) <= 1, "left with frame {frame}, inputs were promised up to {promised}");
    assert!(game.step_times[0].len() as u32 > frame, "the survivor stepped past it");
    game.assert_consistent();
}

/// Lets one of three sites leave at time `then`. Asserts that a game that has begun continues, and that otherwise the
/// other sites stay in the lobby.
fn leave_at(loss: f64, leaver: usize, then: TimeDelta) {
    let case = format!("loss {loss}, site {leaver} leaves at {then}");
    let seed = 1 + then.as_nanos().unsigned_abs() / 1_000_000;
    let mut game = SessionSetup { seed, ..SessionSetup::new(3, lossy_link(100, loss)) }.start();
    game.run_until(at(then));
    game.leave(leaver);
    game.run_for(secs(12));
    let stay = [0, 1, 2].into_iter().filter(|site| *site != leaver);
    let in_lobby = |site: usize| matches!(game.state(site), State::Lobby { .. });
    let states: Vec<_> = (0..3).map(|site| game.state(site)).collect();
    if game.step_times.iter().any(|steps| !steps.is_empty()) {
        let min_fps = if loss > 0.0 { 58.0 } else { 59.5 };
        for site in stay.clone() {
            assert_eq!(game.state(site), State::Running, "{case}: {states:?}");
            let fps = game.fps(site, game.now() - secs(5), game.now());
            assert!(fps >= min_fps, "{case}: site {site} at {fps:.2} fps, {states:?}");
        }
    } else {
        assert!(stay.clone().all(in_lobby), "{case}: {states:?}");
    }
    assert_eq!(game.state(leaver), State::Ended(SessionEnd::Left), "{case}: {states:?}");
    game.assert_consistent();
}

#[test]
fn leave_at_any_time_never_blocks_the_others() {
    for leaver in 0..3 {
        (0..=1_500).step_by(10).for_each(|then| leave_at(0.0, leaver, ms(then)));
    }
}

#[test]
fn leave_at_any_time_never_blocks_the_others_with_packet_loss() {
    for leaver in 0..3 {
        (0..=1_500).step_by(10).for_each(|then| leave_at(0.1, leaver, ms(then)));
    }
}

/// The last inputs of a site are lost, one of its goodbyes arrives, and then it crashes. The other site ends after its
/// silence timeout.
#[test]
fn leaver_that_crashes_before_its_inputs_arrive_times_out() {
    for leaver in [0, 1] {
        let mut game = SessionSetup::new(2, rtt_link(100)).start_with(|_, config| {
            config.silence_timeout = Some(secs(3));
            config.recovery = Recovery::History;
        });
        let stays = 1 - leaver;
        game.run_until(at(secs(8)));
        game.network.link(leaver, stays).set_cut(true);
        game.run_for(ms(60));
        game.network.link(leaver, stays).set_cut(false);
        game.leave(leaver);
        game.run_for(ms(1));
        game.network.crash(leaver);
        game.run_for(secs(10));
        assert_eq!(leave_frame(&game, stays, leaver), None, "inputs are missing");
        assert_eq!(end_reason(&game, stays), Some(SessionEnd::Silent(site_id(leaver))), "{:?}", game.state(stays));
        game.assert_consistent();
    }
}

/// Starts sites that may play on alone and serve late joiners.
fn start_joinable(setup: &SessionSetup, change: impl Fn(&mut Config)) -> TestSession {
    setup.start_with(|_, config| {
        config.can_play_alone = true;
        change(config);
        config.feed = Some(FeedConfig::new(config.session_id, 7, config.settings.clone()));
    })
}

fn enable_drop_timeout(config: &mut Config) {
    config.drop_timeout = Some(secs(1));
}

fn disable_drop_timeout(config: &mut Config) {
    config.drop_timeout = None;
}

#[track_caller]
fn assert_full_speed(game: &TestSession, case: &str, site: usize) {
    let fps = game.fps(site, game.now() - secs(2), game.now());
    let state = game.state(site);
    assert!(state == State::Running && fps > 58.0, "{case}: site {site} at {fps:.1} fps, {state:?}, {:?}", game.events);
}

fn has_reported_join(game: &TestSession, reporter: usize, site: usize) -> bool {
    game.events_of(reporter)
        .any(|reported| matches!(reported.event, Event::Joined { site: joined, .. } if joined == site_id(site)))
}

/// Lets `joiner` join and asserts that it has the same states as `stays` from then on.
#[track_caller]
fn assert_rejoins(game: &mut TestSession, case: &str, joiner: usize, stays: usize) {
    game.join(joiner, |_| {});
    game.run_for(secs(8));
    assert!(
        has_reported_join(game, joiner, joiner) && has_reported_join(game, stays, joiner),
        "{case}: {:?}",
        game.events
    );
    [joiner, stays].into_iter().for_each(|site| assert_full_speed(game, case, site));
    let (one, other) = (game.confirmed_states(joiner), game.confirmed_states(stays));
    let common: Vec<_> = one.iter().filter(|(frame, _)| other.contains_key(frame)).collect();
    assert!(common.len() > 120, "{case}: only {} common frames", common.len());
    assert!(common.iter().all(|(frame, hash)| other[frame] == **hash), "{case}: the states differ");
}

#[test]
fn last_site_plays_on_alone_and_a_leaver_rejoins() {
    for (sites, prediction_window, loss) in [(2, 0, 0.0), (2, 8, 0.1), (3, 8, 0.0)] {
        for stays in 0..sites {
            let case = format!("{sites} sites, prediction window {prediction_window}, loss {loss}, site {stays} stays");
            let mut game = start_joinable(
                &SessionSetup { prediction_window, ..SessionSetup::new(sites, lossy_link(100, loss)) },
                enable_drop_timeout,
            );
            game.run_until(at(secs(5)));
            let leavers: Vec<usize> = (0..sites).filter(|site| *site != stays).collect();
            leavers.iter().for_each(|site| game.leave(*site));
            game.run_for(secs(6));
            assert!(
                leavers.iter().all(|site| end_reason(&game, *site) == Some(SessionEnd::Left)),
                "{case}: {:?}",
                game.events
            );
            assert_full_speed(&game, &case, stays);
            assert_rejoins(&mut game, &case, leavers[0], stays);
            game.assert_consistent();
        }
    }
}

#[test]
fn site_can_continue_alone_after_all_peers_crashed() {
    for (sites, stays, change) in [
        (2, 1, enable_drop_timeout as fn(&mut Config)),
        (2, 0, disable_drop_timeout),
        (2, 1, disable_drop_timeout),
        (3, 0, enable_drop_timeout),
        (3, 2, enable_drop_timeout),
    ] {
        let case = format!("{sites} sites, site {stays} stays");
        let mut game =
            start_joinable(&SessionSetup { prediction_window: 8, ..SessionSetup::new(sites, rtt_link(100)) }, change);
        game.run_until(at(secs(5)));
        assert!(!game.continue_alone(stays), "{case}: the others still play");
        let crashed: Vec<usize> = (0..sites).filter(|site| *site != stays).collect();
        crashed.iter().for_each(|site| game.crash(*site));
        game.run_for(ms(900));
        assert!(!game.continue_alone(stays), "{case}: the silence is too short");
        game.run_for(secs(4));
        assert!(matches!(game.state(stays), State::Frozen(_)), "{case}: {:?}", game.state(stays));
        assert!(game.continue_alone(stays), "{case}");
        assert!(!game.continue_alone(stays), "{case}: it already plays alone");
        game.run_for(secs(4));
        assert_full_speed(&game, &case, stays);
        assert_rejoins(&mut game, &case, crashed[0], stays);
        game.assert_consistent();
    }
}

#[test]
fn site_cannot_continue_alone_while_a_peer_is_reachable() {
    let mut game = start_joinable(&SessionSetup::new(3, rtt_link(100)), disable_drop_timeout);
    game.run_until(at(secs(5)));
    game.crash(0);
    game.run_for(secs(8));
    for site in [1, 2] {
        assert!(matches!(game.state(site), State::Frozen(_)) && !game.continue_alone(site), "site {site}");
    }
}

fn split_brain_events(game: &TestSession, reporter: usize, site: usize) -> Vec<bool> {
    let own_game_kept = |event: &Event| match event {
        Event::SplitBrainResolved { site: other, is_own_game_kept } if *other == site_id(site) => {
            Some(*is_own_game_kept)
        }
        _ => None,
    };
    game.events_of(reporter).filter_map(|reported| own_game_kept(&reported.event)).collect()
}

/// Lets both of two sites continue alone while the link between them is cut, site `late`, if any, 3 s after the other.
/// Asserts that after the heal the game of site `kept`, which progressed further, is kept.
fn assert_both_alone_merge(loss: f64, change: fn(&mut Config), late: Option<usize>, kept: usize) {
    let case = format!("loss {loss}, site {late:?} continues later");
    let mut game =
        start_joinable(&SessionSetup { prediction_window: 8, ..SessionSetup::new(2, lossy_link(100, loss)) }, change);
    game.run_until(at(secs(5)));
    game.set_isolated(0, true);
    game.run_for(secs(4));
    for site in (0..2).filter(|site| Some(*site) != late) {
        // With a drop timeout the lower site continues by itself.
        assert!(game.continue_alone(site) || game.state(site) == State::Running, "{case}: site {site}");
    }
    game.run_for(secs(3));
    late.into_iter().for_each(|site| assert!(game.continue_alone(site), "{case}"));
    game.run_for(secs(3));
    [0, 1].into_iter().for_each(|site| assert_eq!(game.state(site), State::Running, "{case}: site {site}"));
    game.set_isolated(0, false);
    let yields = 1 - kept;
    game.run_while(secs(4), |game| end_reason(game, yields).is_none());
    assert_eq!(end_reason(&game, yields), Some(SessionEnd::Dropped), "{case}");
    assert_eq!(
        (split_brain_events(&game, yields, kept), split_brain_events(&game, kept, yields)),
        (vec![false], vec![true]),
        "{case}: both sites report it"
    );
    assert_full_speed(&game, &case, kept);
    assert_rejoins(&mut game, &case, yields, kept);
}

#[test]
fn sites_that_both_continued_alone_merge_into_the_longer_game() {
    for loss in [0.0, 0.05] {
        assert_both_alone_merge(loss, disable_drop_timeout, Some(0), 1);
        assert_both_alone_merge(loss, disable_drop_timeout, Some(1), 0);
        assert_both_alone_merge(loss, enable_drop_timeout, None, 0);
        assert_both_alone_merge(loss, enable_drop_timeout, Some(1), 0);
    }
}

/// Only one of two sites continues alone; the other still waits when the link heals. The waiting site ends as dropped
/// and rejoins.
#[test]
fn waiting_site_rejoins_the_peer_that_continued_alone() {
    for (continuing, loss) in [(0, 0.0), (1, 0.0), (1, 0.1)] {
        let case = format!("site {continuing} continues, loss {loss}");
        let mut game = start_joinable(
            &SessionSetup { prediction_window: 8, ..SessionSetup::new(2, lossy_link(100, loss)) },
            disable_drop_timeout,
        );
        game.run_until(at(secs(5)));
        game.set_isolated(0, true);
        game.run_for(secs(5));
        assert!(game.continue_alone(continuing), "{case}");
        game.run_for(secs(2));
        game.set_isolated(0, false);
        let waited = 1 - continuing;
        game.run_while(secs(4), |game| end_reason(game, waited).is_none());
        assert_eq!(end_reason(&game, waited), Some(SessionEnd::Dropped), "{case}");
        assert_rejoins(&mut game, &case, waited, continuing);
    }
}

/// Two of three sites outweigh the one that continued alone, whether the two continued as well or wait for that one.
/// The site that continued alone ends as dropped and rejoins.
#[test]
fn site_that_continued_alone_yields_to_a_majority() {
    for (change, case) in
        [(enable_drop_timeout as fn(&mut Config), "they continued"), (disable_drop_timeout, "they wait")]
    {
        let mut game =
            start_joinable(&SessionSetup { prediction_window: 8, ..SessionSetup::new(3, rtt_link(100)) }, change);
        game.run_until(at(secs(5)));
        game.set_partition(site_set([0]), true);
        game.run_for(secs(4));
        assert!(game.continue_alone(0), "{case}");
        game.run_for(secs(3));
        game.set_partition(site_set([0]), false);
        game.run_while(secs(4), |game| end_reason(game, 0).is_none());
        assert_eq!(end_reason(&game, 0), Some(SessionEnd::Dropped), "{case}");
        assert_rejoins(&mut game, case, 0, 1);
        assert_full_speed(&game, case, 2);
    }
}

/// A player claims to have continued alone: a running player, or a crashed one of three while the other two still reach
/// each other. No site ends because of the claim.
#[test]
fn forged_alone_refusal_evicts_nobody_with_reachable_peers() {
    for (sites, crashed) in [(2, false), (3, false), (3, true)] {
        let case = format!("{sites} sites, crashed: {crashed}");
        let setup = SessionSetup::new(sites, rtt_link(100));
        let mut game = start_joinable(&setup, disable_drop_timeout);
        game.run_until(at(secs(5)));
        if crashed {
            game.crash(sites - 1);
        }
        for number in 0..100 {
            let hello = Hello {
                session_id: setup.config(0).session_id,
                site: site_id(sites - 1),
                incarnation: 1,
                your_incarnation: 1,
                agreed_sites: site_set([]),
                is_leaving: false,
                join_readiness: None,
                refusal: Some(Refusal::ContinuedAlone { frame: Frame::new(number * 1_000) }),
                stamp_us: u64::MAX / 4 + u64::from(number),
                echo: None,
                start_ns: None,
                settings: setup.config(0).settings,
            };
            let mut buf = [0; MAX_DATAGRAM];
            let len = hello.encode(&mut buf).expect("a hello fits");
            (0..sites - 1)
                .for_each(|site| game.network.inject(site, SessionNetwork::address(sites - 1, 0), &buf[..len]));
            game.run_for(ms(50));
        }
        for site in 0..sites - 1 {
            assert_eq!(end_reason(&game, site), None, "{case}: site {site}");
            assert_eq!(split_brain_events(&game, site, sites - 1), [], "{case}: site {site}");
        }
        if crashed {
            assert!(matches!(game.state(0), State::Frozen(_)), "{case}: {:?}", game.state(0));
        } else {
            assert_full_speed(&game, &case, 0);
        }
        game.assert_consistent();
    }
}
