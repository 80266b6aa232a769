//! A peer that is reachable but stalls the game is awaited, or dropped by the coordinator, as the host program
//! configures.

use crate::common::{SessionSetup, TestSession, at, lossy_link, ms, rtt_link, secs, site_id};
use coplay::session::{AbsentInput, Config, ConfigError, Event, MIN_STALL_LIMIT, Session, SessionEnd, State};
use coplay::spectator_feed::FeedConfig;
use coplay::time::{Instant, TimeDelta};
use coplay_links::link::LinkConfig;

/// Stall limit: time for which a site may stall the game.
const STALL_LIMIT: TimeDelta = TimeDelta::from_millis(500);
/// Time limit for the drop of a site that stalls the game for at least half of the time.
const DROP_DEADLINE: TimeDelta = TimeDelta::from_secs(3);

/// Starts a session with this stall limit. All sites serve late joiners.
fn start_with_stall_limit(setup: &SessionSetup, stall_limit: Option<TimeDelta>) -> TestSession {
    setup.start_with(|_, config| {
        config.stall_limit = stall_limit;
        config.settings.absent_input = AbsentInput::Repeat;
        config.feed = Some(FeedConfig::new(config.session_id, 7, config.settings.clone()));
    })
}

fn drop_frame(game: &TestSession, reporter: usize, site: usize) -> Option<u32> {
    let frame = |event: &Event| match event {
        Event::Dropped { site: dropped, frame } if *dropped == site_id(site) => Some(frame.number()),
        _ => None,
    };
    game.find_event(reporter, frame).map(|(_, frame)| frame)
}

fn has_joined(game: &TestSession, reporter: usize, site: usize, since: Instant) -> bool {
    let joined = |event: &Event| matches!(event, Event::Joined { site: joined, .. } if *joined == site_id(site));
    game.events_of(reporter).any(|reported| reported.at > since && joined(&reported.event))
}

fn recent_fps(game: &TestSession, site: usize) -> f64 {
    game.fps(site, game.now() - secs(2), game.now())
}

/// Makes each step of this site take 30 ms, which is longer than a frame.
fn slow_down(game: &mut TestSession, site: usize) {
    game.network.nodes[site].step_cost = ms(30);
}

/// Sets the conditions of all links of a site, in both directions.
fn set_links_of(game: &mut TestSession, site: usize, link: &LinkConfig) {
    for other in (0..game.network.nodes.len()).filter(|other| *other != site) {
        game.network.link(site, other).set_config(link.clone());
        game.network.link(other, site).set_config(link.clone());
    }
}

/// Fault that makes a site stall the others.
type Slowdown = fn(&mut TestSession, usize);

const SLOWDOWNS: [(&str, Slowdown); 3] = [
    ("a slow machine", slow_down),
    ("a latency of 350 ms", |game, site| set_links_of(game, site, &rtt_link(700))),
    ("a loss of 93 %", |game, site| set_links_of(game, site, &lossy_link(60, 0.93))),
];

#[test]
fn slow_peer_is_awaited_without_a_stall_timeout() {
    for (case, fault) in SLOWDOWNS {
        let mut game = start_with_stall_limit(&SessionSetup::new(3, rtt_link(60)), None);
        game.run_until(at(secs(5)));
        fault(&mut game, 2);
        game.run_for(secs(6));
        assert!(recent_fps(&game, 0) < 45.0, "{case} stalls no site: {:.1} fps", recent_fps(&game, 0));
        assert_eq!(drop_frame(&game, 0, 2), None, "{case}");
        game.assert_consistent();
    }
}

#[test]
fn slow_peer_is_dropped_by_the_coordinator() {
    for prediction_window in [0, 4] {
        for (case, fault) in SLOWDOWNS {
            for slow_site in [1, 2] {
                let case = format!("{case} of site {slow_site}, prediction window {prediction_window}");
                let mut game = start_with_stall_limit(
                    &SessionSetup { prediction_window, ..SessionSetup::new(3, rtt_link(60)) },
                    Some(STALL_LIMIT),
                );
                game.run_until(at(secs(5)));
                fault(&mut game, slow_site);
                game.run_for(DROP_DEADLINE + secs(3));
                let frame = drop_frame(&game, 0, slow_site);
                assert!(frame.is_some(), "{case} is awaited: {:.1} fps", recent_fps(&game, 0));
                for site in (0..3).filter(|site| *site != slow_site) {
                    assert_eq!(drop_frame(&game, site, slow_site), frame, "{case}, reported by site {site}");
                    assert!(
                        recent_fps(&game, site) > 58.0,
                        "{case}: site {site} plays at {:.1} fps",
                        recent_fps(&game, site)
                    );
                }
                game.assert_consistent();
            }
        }
    }
}

#[test]
fn coordinator_of_two_drops_a_slow_peer_and_continues() {
    let mut game = start_with_stall_limit(&SessionSetup::new(2, rtt_link(60)), Some(STALL_LIMIT));
    game.run_until(at(secs(5)));
    slow_down(&mut game, 1);
    game.run_for(DROP_DEADLINE + secs(2));
    assert!(drop_frame(&game, 0, 1).is_some() && recent_fps(&game, 0) > 58.0);
    assert_eq!(game.state(1), State::Ended(SessionEnd::Dropped), "the dropped site learns of the drop");
    game.assert_consistent();
}

#[test]
fn slow_coordinator_is_awaited() {
    let mut game = start_with_stall_limit(&SessionSetup::new(3, rtt_link(60)), Some(STALL_LIMIT));
    game.run_until(at(secs(5)));
    slow_down(&mut game, 0);
    game.run_for(secs(5));
    assert!((0..3).all(|site| (0..3).all(|other| drop_frame(&game, site, other).is_none())));
    game.assert_consistent();
}

#[test]
fn short_stall_or_slow_third_site_drops_nobody_else() {
    for prediction_window in [0, 8] {
        let mut game = start_with_stall_limit(
            &SessionSetup { prediction_window, ..SessionSetup::new(4, lossy_link(150, 0.03)) },
            Some(STALL_LIMIT),
        );
        game.run_until(at(secs(5)));
        game.network.pause(2, game.now() + ms(350));
        game.run_for(secs(6));
        assert!((0..4).all(|site| drop_frame(&game, 0, site).is_none()), "prediction window {prediction_window}");
        slow_down(&mut game, 3);
        game.run_for(DROP_DEADLINE + secs(3));
        assert!(drop_frame(&game, 0, 3).is_some() && (0..3).all(|site| drop_frame(&game, 0, site).is_none()));
        game.assert_consistent();
    }
}

#[test]
fn dropped_slow_peer_rejoins_once_its_latency_is_short() {
    let mut game = start_with_stall_limit(&SessionSetup::new(3, rtt_link(60)), Some(STALL_LIMIT));
    game.run_until(at(secs(5)));
    set_links_of(&mut game, 2, &rtt_link(700));
    game.run_for(DROP_DEADLINE + secs(2));
    let out = game.now();
    assert_eq!(game.state(2), State::Ended(SessionEnd::Dropped));
    game.join(2, |_| {});
    game.run_for(secs(10));
    assert!(!has_joined(&game, 0, 2, out), "its latency is still too high");
    assert!(recent_fps(&game, 0) > 58.0, "it slows the others to {:.1} fps", recent_fps(&game, 0));
    set_links_of(&mut game, 2, &rtt_link(60));
    game.run_for(secs(12));
    assert!(has_joined(&game, 0, 2, out), "it is {:?}", game.state(2));
    assert!((0..3).all(|site| recent_fps(&game, site) > 58.0));
    game.assert_consistent();
}

#[test]
fn coordinator_can_drop_any_site_on_request() {
    for sites in [2, 3, 5] {
        let mut game = start_with_stall_limit(&SessionSetup::new(sites, lossy_link(100, 0.05)), None);
        game.run_until(at(secs(5)));
        let now = game.local_time(1);
        assert!(!game.network.nodes[1].session.drop_site(now, site_id(0)), "only the coordinator may drop a site");
        let now = game.local_time(0);
        assert!(!game.network.nodes[0].session.drop_site(now, site_id(0)), "the coordinator cannot drop itself");
        assert!(game.network.nodes[0].session.drop_site(now, site_id(sites - 1)));
        game.network.wake(0);
        game.run_for(secs(3));
        let frame = drop_frame(&game, 0, sites - 1);
        assert!(frame.is_some());
        assert!(
            (0..sites - 1).all(|site| drop_frame(&game, site, sites - 1) == frame && recent_fps(&game, site) > 58.0)
        );
        assert_eq!(game.state(sites - 1), State::Ended(SessionEnd::Dropped), "the dropped site learns of the drop");
        game.assert_consistent();
    }
}

/// The coordinator drops a site that leaves at the same time with a button held. For a dropped site the button stays
/// pressed, for a leaver it does not. All sites apply the same outcome.
#[test]
fn leave_concurrent_with_a_drop_is_resolved_equally_everywhere() {
    for after in (0..=160).step_by(8) {
        let mut game = start_with_stall_limit(&SessionSetup::new(3, rtt_link(60)), None);
        game.network.nodes.iter_mut().for_each(|site| site.player.change_probability = 1.0);
        game.run_until(at(secs(5)));
        let now = game.local_time(0);
        assert!(game.network.nodes[0].session.drop_site(now, site_id(2)));
        game.network.wake(0);
        game.run_for(ms(after));
        game.leave(2);
        game.run_for(secs(3));
        assert!((0..2).all(|site| recent_fps(&game, site) > 58.0), "left after {after} ms");
        game.assert_consistent();
    }
}

/// All remaining sites would have to agree, and one of them cannot receive from the coordinator, so a ballot would only
/// freeze the game.
#[test]
fn slow_peer_is_awaited_while_the_coordinator_is_cut_off_from_a_site() {
    let mut game = start_with_stall_limit(&SessionSetup::new(4, rtt_link(60)), Some(STALL_LIMIT));
    game.run_until(at(secs(5)));
    game.network.set_cut(0, 3, true);
    game.run_for(secs(1));
    game.network.pause(2, game.now() + ms(1_200));
    game.run_for(ms(1_200) + secs(4));
    for site in 0..4 {
        assert!(recent_fps(&game, site) > 50.0, "site {site} plays at {:.1} fps", recent_fps(&game, site));
        assert_eq!(drop_frame(&game, 0, site), None);
    }
    game.assert_consistent();
}

/// Site 3 is dropped while only the slow site 2 has its last inputs, and site 2 crashes. The coordinator waits for
/// those inputs for a while and then drops site 2 as well.
#[test]
fn dead_holder_of_a_dropped_sites_last_inputs_is_dropped_too() {
    let (holder, gone) = (2, 3);
    let mut game = start_with_stall_limit(&SessionSetup::new(4, rtt_link(30)), Some(STALL_LIMIT));
    game.run_until(at(secs(8)));
    game.network.nodes[holder].step_cost = ms(250);
    game.run_for(ms(300));
    (0..holder).for_each(|site| game.network.set_cut(site, gone, true));
    game.run_for(ms(50));
    let now = game.local_time(0);
    game.network.nodes[0].session.drop_site(now, site_id(gone));
    game.network.wake(0);
    game.run_while(secs(3), |game| drop_frame(game, 0, gone).is_none());
    assert_eq!(drop_frame(&game, 0, holder), None);
    game.crash(gone);
    game.crash(holder);
    game.run_for(secs(30));
    assert!(drop_frame(&game, 0, holder).is_some(), "{:?}", game.state(0));
    assert!(recent_fps(&game, 0) > 59.0, "{:.1} fps", recent_fps(&game, 0));
}

#[test]
fn too_short_stall_timeout_is_rejected() {
    let config = Config { stall_limit: Some(MIN_STALL_LIMIT / 2), ..SessionSetup::new(2, rtt_link(0)).config(0) };
    let error = Session::new(Instant::ZERO, config).expect_err("a stall limit below the minimum");
    assert_eq!(error, ConfigError::StallLimitTooShort(MIN_STALL_LIMIT / 2));
    assert!(error.to_string().contains("the minimum is 100"), "{error}");
}

/// A coordinator that charged a site for a stall gives the role back. When it coordinates again a minute later, the
/// stall is forgotten.
#[test]
fn stall_before_a_change_of_the_coordinator_is_forgotten() {
    let setup = SessionSetup::new(3, rtt_link(60));
    let mut game = setup.start_with(|_, config| {
        (config.stall_limit, config.drop_timeout) = (Some(secs(1)), Some(secs(3)));
        config.feed = Some(FeedConfig::new(config.session_id, 7, config.settings.clone()));
    });
    game.run_until(at(secs(4)));
    game.leave(0);
    game.run_for(secs(3));
    let until = game.now() + secs(1);
    game.network.pause(2, until);
    game.run_for(ms(1_100));
    game.join(0, |_| {});
    game.run_for(secs(60));
    assert!([0, 1, 2].iter().all(|site| recent_fps(&game, *site) > 58.0), "site 0 does not rejoin");
    game.leave(0);
    game.run_for(ms(300));
    let until = game.now() + ms(600);
    game.network.pause(2, until);
    game.run_for(secs(5));
    assert_eq!(drop_frame(&game, 1, 2), None);
    assert!(recent_fps(&game, 1) > 58.0 && recent_fps(&game, 2) > 58.0);
}
