//! A session that cannot continue reports a freeze, with the sites that it waits for and the time at which the wait
//! began. It waits for as long as its configuration says, and loses no input.

use crate::common::manual_hosts::ManualHosts;
use crate::common::{ReportedEvent, SessionSetup, TestSession, at, ms, rtt_link, secs, site_id, site_set};
use coplay::codec::MAX_DATAGRAM;
use coplay::id::{Addr, SiteSet};
use coplay::session::{Event, Freeze, Session, SessionEnd, State};
use coplay::time::{Instant, TimeDelta};
use coplay_sim::clock::NodeClock;
use coplay_sim::session_network::SessionNetwork;

/// Duration of a stall that counts as a freeze by default.
const FREEZE_AFTER: TimeDelta = ms(250);

fn as_frozen(event: &Event) -> Option<Freeze> {
    if let Event::Frozen(freeze) = event { Some(*freeze) } else { None }
}

fn as_resumed(event: &Event) -> Option<TimeDelta> {
    if let Event::Resumed { after, .. } = event { Some(*after) } else { None }
}

fn as_ended(event: &Event) -> Option<SessionEnd> {
    if let Event::Ended(end) = event { Some(*end) } else { None }
}

fn as_address_changed(event: &Event) -> Option<(usize, Addr)> {
    if let Event::AddressChanged { site, addr } = event { Some((site.index(), *addr)) } else { None }
}

/// Asserts that a site is frozen with these sites awaited and silent, and that it reported the freeze in time. Returns
/// the freeze.
#[track_caller]
fn assert_frozen(game: &TestSession, site: usize, waiting_for: SiteSet, silent: SiteSet) -> Freeze {
    let (reported_at, first) = game.find_event(site, as_frozen).expect("a freeze event");
    let late = game.network.nodes[site].clock.local(reported_at) - first.since - FREEZE_AFTER;
    assert!(late >= ms(0) && late <= ms(150), "site {site} reported the freeze {late} after the threshold");
    let stuck_since = game.network.nodes[site].clock.local(game.last_sample_at[site]);
    assert_eq!(first.since, stuck_since, "frozen since the newest input was sampled");
    let State::Frozen(freeze) = game.state(site) else { panic!("site {site} is {:?}", game.state(site)) };
    assert_eq!((freeze.waiting_for, freeze.silent_sites), (waiting_for, silent), "site {site}");
    assert_eq!(
        (freeze.since, freeze.frame.number() as usize),
        (stuck_since, game.step_times[site].len()),
        "site {site}"
    );
    freeze
}

/// Asserts that all sites resume within 500 ms of the heal, are at full speed soon after, and have lost nothing.
#[track_caller]
fn assert_resumes(game: &mut TestSession, healed: Instant) {
    game.run_until(healed + secs(12));
    for site in 0..game.step_times.len() {
        let after_heal = game.events_of(site).filter(|reported| reported.at >= healed);
        let resumed: Vec<&ReportedEvent> =
            after_heal.filter(|reported| as_resumed(&reported.event).is_some()).collect();
        assert_eq!(resumed.len(), 1, "site {site} reported {:?}", game.events_of(site).collect::<Vec<_>>());
        let after = resumed[0].at - healed;
        assert!(after < ms(500), "site {site} resumed only {after} after the heal");
        let fps = game.fps(site, healed + ms(500), healed + ms(1_500));
        assert!(fps >= 55.0, "site {site} resumed at {fps} fps");
        let fps = game.fps(site, healed + secs(2), healed + secs(12));
        assert!(fps >= 59.8, "site {site} settled at {fps} fps");
        assert_eq!(game.state(site), State::Running, "site {site}");
    }
    let apart = game.worst_start_skew_ms(healed + secs(10));
    assert!(apart < 1.0, "{apart:.3} ms apart");
    game.assert_consistent();
}

#[test]
fn two_sites_freeze_and_resume_after_a_three_second_cut() {
    let mut game = SessionSetup::new(2, rtt_link(100)).start();
    game.run_until(at(secs(8)));
    game.network.set_cut(0, 1, true);
    game.run_for(secs(3));
    let freezes =
        [(0, 1), (1, 0)].map(|(site, other)| assert_frozen(&game, site, site_set([other]), site_set([other])));
    for (site, freeze) in freezes.into_iter().enumerate() {
        let waited = game.local_time(site) - freeze.since;
        assert!(waited < secs(3) && waited > ms(2_800), "site {site} has waited for {waited}");
    }
    game.network.set_cut(0, 1, false);
    let healed = game.now();
    assert_resumes(&mut game, healed);
    let (_, after) = game.find_event(0, as_resumed).expect("a resume event");
    assert!(after > ms(2_800) && after < ms(3_500), "reported a wait of {after}");
}

#[test]
fn freeze_distinguishes_a_stalled_site_from_a_silent_one() {
    let mut game = SessionSetup::new(3, rtt_link(100)).start();
    game.run_until(at(secs(8)));
    // Site 1 receives nothing, and only site 2 receives from it.
    game.network.set_cut(0, 1, true);
    game.network.link(2, 1).set_cut(true);
    game.run_for(secs(3));
    assert_frozen(&game, 0, site_set([1]), site_set([1]));
    assert_frozen(&game, 1, site_set([0, 2]), site_set([0, 2]));
    assert_frozen(&game, 2, site_set([1]), site_set([]));
    game.network.set_cut(0, 1, false);
    game.network.link(2, 1).set_cut(false);
    let healed = game.now();
    assert_resumes(&mut game, healed);
}

#[test]
fn all_sites_report_the_silent_site() {
    for lost in 0..3 {
        let mut game = SessionSetup::new(3, rtt_link(100)).start();
        game.run_until(at(secs(8)));
        game.set_isolated(lost, true);
        game.run_for(secs(3));
        for site in (0..3).filter(|site| *site != lost) {
            assert_frozen(&game, site, site_set([lost]), site_set([lost]));
        }
        let others: SiteSet = (0..3).filter(|site| *site != lost).map(site_id).collect();
        assert_frozen(&game, lost, others, others);
        game.set_isolated(lost, false);
        let healed = game.now();
        assert_resumes(&mut game, healed);
    }
}

#[test]
fn one_way_cut_freezes_both_ends() {
    let mut game = SessionSetup::new(2, rtt_link(100)).start();
    game.run_until(at(secs(8)));
    game.network.link(0, 1).set_cut(true);
    game.run_for(secs(3));
    assert_frozen(&game, 0, site_set([1]), site_set([]));
    assert_frozen(&game, 1, site_set([0]), site_set([0]));
    game.network.link(0, 1).set_cut(false);
    let healed = game.now();
    assert_resumes(&mut game, healed);
}

#[test]
fn address_change_during_the_game_is_followed() {
    for mover in [0, 1, 2] {
        let mut game = SessionSetup::new(3, rtt_link(100)).start();
        game.run_until(at(secs(8)));
        game.network.change_address(mover);
        let then = game.now();
        game.run_for(secs(12));
        for site in (0..3).filter(|site| *site != mover) {
            let (reported_at, moved) = game.find_event(site, as_address_changed).expect("an address change event");
            assert_eq!(moved, (mover, SessionNetwork::address(mover, 1)), "site {site}");
            assert!(reported_at - then < ms(700), "site {site} noticed only after {}", reported_at - then);
        }
        for site in 0..3 {
            let longest = game.frame_times(site, then).into_iter().fold(0.0, f64::max);
            assert!(longest < 800.0, "site {site} stalled for {longest:.0} ms");
            let fps = game.fps(site, then + secs(2), then + secs(12));
            assert!(fps >= 59.8, "site {site} at {fps:.2} fps");
        }
        game.assert_consistent();
    }
}

#[test]
fn address_change_after_a_cut_is_followed() {
    for mover in [0, 1, 2] {
        let mut game = SessionSetup::new(3, rtt_link(100)).start();
        game.run_until(at(secs(8)));
        game.set_isolated(mover, true);
        game.run_for(ms(1_500));
        game.network.change_address(mover);
        game.run_for(ms(1_500));
        game.set_isolated(mover, false);
        let healed = game.now();
        assert_resumes(&mut game, healed);
        for site in (0..3).filter(|site| *site != mover) {
            let (reported_at, moved) = game.find_event(site, as_address_changed).expect("an address change event");
            assert_eq!(moved, (mover, SessionNetwork::address(mover, 1)), "site {site}");
            assert!(reported_at >= healed, "site {site}");
        }
    }
}

#[test]
fn silent_site_ends_the_session_after_the_silence_timeout() {
    for crashed in 0..3 {
        let mut game =
            SessionSetup::new(3, rtt_link(100)).start_with(|_, config| config.silence_timeout = Some(secs(5)));
        game.run_until(at(secs(8)));
        game.network.crash(crashed);
        let then = game.now();
        game.run_for(secs(10));
        for site in (0..3).filter(|site| *site != crashed) {
            let (reported_at, end) = game.find_event(site, as_ended).expect("an end event");
            assert_eq!(end, SessionEnd::Silent(site_id(crashed)), "site {site}");
            assert_eq!(game.state(site), State::Ended(end));
            let after = reported_at - then;
            assert!(after > secs(5) && after < ms(5_250), "site {site} gave up after {after}");
        }
        game.assert_consistent();
    }
}

#[test]
fn silent_site_is_awaited_forever_without_a_timeout() {
    let mut game = SessionSetup::new(2, rtt_link(100)).start();
    game.run_until(at(secs(8)));
    game.network.set_cut(0, 1, true);
    game.run_for(secs(3_600));
    assert_frozen(&game, 0, site_set([1]), site_set([1]));
    assert_frozen(&game, 1, site_set([0]), site_set([0]));
    assert_eq!(game.find_event(0, as_ended), None);
    game.network.set_cut(0, 1, false);
    let healed = game.now();
    assert_resumes(&mut game, healed);
}

#[test]
fn site_that_slept_does_not_time_out_its_peers() {
    for sleeper in [0, 1] {
        // With the datagrams of the meantime in the socket, and with none.
        for cut in [false, true] {
            let mut game = SessionSetup::new(2, rtt_link(100)).start_with(|site, config| {
                config.silence_timeout = (site == sleeper).then_some(secs(3));
            });
            game.run_until(at(secs(8)));
            let wake = game.now() + secs(5);
            game.network.set_cut(0, 1, cut);
            game.network.pause(sleeper, wake);
            game.run_until(wake - ms(1));
            game.network.set_cut(0, 1, false);
            game.run_until(wake + secs(12));
            assert_eq!(game.find_event(sleeper, as_ended), None, "site {sleeper}, cut {cut}");
            for site in [0, 1] {
                let fps = game.fps(site, wake + secs(2), wake + secs(12));
                assert!(fps >= 59.8, "site {site} at {fps:.2} fps after site {sleeper} slept, cut {cut}");
            }
            game.assert_consistent();
        }
    }
}

/// Two sites are as far apart as possible: one sleeps while the other continues for as long as it may. The sleeping
/// site wakes up with at most 64 datagrams of its peer in its socket. No input is lost.
#[test]
fn no_input_is_lost_with_the_longest_input_delay_and_prediction_window() {
    for (input_delay, prediction_window) in [(120, 0), (120, 7), (67, 60)] {
        for sleeper in [0, 1] {
            let setup = SessionSetup { input_delay, ..SessionSetup::new(2, rtt_link(20)) };
            let mut game = setup.start_with(|_, config| config.settings.prediction_window = prediction_window);
            game.network.nodes.iter_mut().for_each(|site| site.player.change_probability = 1.0);
            game.run_until(at(secs(8)));
            game.network.pause(sleeper, game.now() + secs(6));
            game.run_for(secs(20));
            game.assert_consistent();
            assert!(
                (0..2).all(|site| game.state(site) == State::Running),
                "input delay {input_delay}, prediction window {prediction_window}, site {sleeper} slept"
            );
        }
    }
}

/// Restarts one of three sites during the game, with a clock that continues or one that restarts from zero. Asserts
/// that the site is refused and that the others continue.
fn assert_restarted_site_is_refused(restarted: usize, from_zero: bool) {
    let mut game = SessionSetup::new(3, rtt_link(100)).start();
    game.run_until(at(secs(8)));
    let then = game.now();
    if from_zero {
        game.network.nodes[restarted].clock = NodeClock { offset: Instant::ZERO - then, skew_ppm: 0.0 };
    }
    game.restart(restarted);
    game.run_for(secs(10));
    let events =
        |site: usize| game.events_of(site).filter(move |reported| reported.at > then).map(|reported| &reported.event);
    let refused = events(restarted).any(|event| matches!(event, Event::Refused { .. }));
    assert!(refused, "site {restarted} reported {:?}", events(restarted).collect::<Vec<_>>());
    let starts = events(restarted).any(|event| matches!(event, Event::Starting { .. }));
    assert!(!starts, "site {restarted} was refused but starts");
    assert!(matches!(game.state(restarted), State::Lobby { .. }), "{:?}", game.state(restarted));
    for site in (0..3).filter(|site| *site != restarted) {
        let dropped = |event: &&Event| matches!(event, Event::Dropped { site, .. } if *site == site_id(restarted));
        assert_eq!(events(site).filter(dropped).count(), 1, "site {site} {:?}", events(site).collect::<Vec<_>>());
        assert_eq!(game.state(site), State::Running, "site {site}");
        let fps = game.fps(site, then + secs(2), game.now());
        assert!(fps >= 59.8, "site {site} at {fps:.2} fps");
    }
    game.assert_consistent();
}

#[test]
fn restarted_site_is_refused_and_the_others_continue() {
    (1..3).for_each(|site| assert_restarted_site_is_refused(site, false));
}

#[test]
fn restarted_coordinator_is_refused_and_the_others_continue() {
    assert_restarted_site_is_refused(0, false);
}

#[test]
fn restarted_site_with_a_reset_clock_is_refused() {
    [1, 2, 0].into_iter().for_each(|site| assert_restarted_site_is_refused(site, true));
}

#[test]
fn restarted_site_times_out_like_a_silent_one_without_quorum() {
    let mut game = SessionSetup::new(2, rtt_link(100)).start_with(|_, config| config.silence_timeout = Some(secs(5)));
    game.run_until(at(secs(8)));
    game.restart(0);
    game.run_for(secs(10));
    // Its packets arrive, but the awaited inputs of its first incarnation never will.
    assert_eq!(game.state(1), State::Ended(SessionEnd::Silent(site_id(0))));
    game.assert_consistent();
}

#[test]
fn second_copy_of_a_site_does_not_disturb_the_session() {
    for copied in 0..3 {
        let setup = SessionSetup::new(3, rtt_link(100));
        let mut game = setup.start();
        game.run_until(at(secs(8)));
        let (then, event_count) = (game.now(), game.events.len());
        let mut copy = Session::new(game.local_time(copied), setup.config(copied)).expect("valid config");
        for _ in 0..1_000 {
            game.run_for(ms(10));
            let local = game.local_time(copied);
            let mut buf = [0; MAX_DATAGRAM];
            while let Some(transmit) = copy.poll_transmit(local, &mut buf) {
                let to = (0..3).find(|site| SessionNetwork::address(*site, 0) == transmit.to).expect("a peer");
                game.network.inject(to, Addr(555), &buf[..transmit.len]);
            }
        }
        assert_eq!(&game.events[event_count..], [], "copy of site {copied}");
        for site in 0..3 {
            let fps = game.fps(site, then, game.now());
            assert!(fps > 59.5, "site {site} at {fps:.2} fps beside a copy of site {copied}");
        }
        game.assert_consistent();
    }
}

#[test]
fn site_restarted_after_the_silence_timeout_stays_in_the_lobby() {
    let mut game = SessionSetup::new(3, rtt_link(100)).start_with(|_, config| config.silence_timeout = Some(secs(3)));
    game.run_until(at(secs(8)));
    game.network.crash(1);
    game.run_for(secs(5));
    game.network.nodes[1].is_crashed = false;
    game.restart(1);
    game.run_for(secs(5));
    assert!(matches!(game.state(1), State::Lobby { .. }), "{:?}", game.state(1));
    assert_eq!(game.state(0), State::Ended(SessionEnd::Silent(site_id(1))));
}

#[test]
fn junk_datagrams_do_not_hide_a_silent_peer() {
    for junk in [false, true] {
        let mut pair = ManualHosts::new(2, ms(20), |config| config.silence_timeout = Some(secs(3)));
        pair.run_until_running();
        pair.run_for(secs(3));
        pair.hosts[0].receives_junk = junk;
        pair.hosts[1].is_dead = true;
        let then = pair.now;
        pair.run_for(secs(5));
        let events = &pair.hosts[0].events;
        let freeze = events.iter().find_map(|(at, event)| as_frozen(event).map(|freeze| (*at - then, freeze)));
        let (after, freeze) = freeze.expect("a freeze event");
        assert_eq!(freeze.waiting_for, site_set([1]), "junk {junk}");
        assert!(after < ms(600), "junk {junk}: the freeze was reported only after {after}");
        let end = events.iter().find_map(|(at, event)| as_ended(event).map(|end| (*at - then, end)));
        let (after, end) = end.expect("an end event");
        assert_eq!(end, SessionEnd::Silent(site_id(1)), "junk {junk}");
        assert!(after > secs(3) && after < ms(3_250), "junk {junk}: the session gave up after {after}");
    }
}

#[test]
fn address_change_is_followed_while_the_old_address_still_receives() {
    for mover in [0, 1] {
        let mut pair = ManualHosts::new(2, ms(20), |config| config.silence_timeout = Some(secs(5)));
        pair.run_until_running();
        pair.run_for(secs(3));
        let new_addr = Addr(101);
        pair.hosts[mover].addr = new_addr;
        pair.hosts[mover].listen_addrs.push(new_addr);
        let then = pair.now;
        pair.run_for(secs(2));
        let moved =
            pair.hosts[1 - mover].events.iter().find_map(|(at, event)| as_address_changed(event).map(|to| (*at, to)));
        let (reported_at, moved) = moved.expect("an address change event");
        assert_eq!(moved, (mover, new_addr));
        assert!(reported_at - then < ms(700), "noticed only after {}", reported_at - then);
        let settled = pair.now;
        pair.run_for(secs(10));
        for site in [0, 1] {
            let fps = pair.fps(site, settled);
            assert!(fps > 59.5, "site {site} at {fps:.2} fps after site {mover} moved");
        }
    }
}

#[test]
fn suspended_site_with_a_stopped_clock_resumes() {
    for input_delay in [0, 1, 6] {
        for sleeper in [0, 1] {
            let case = format!("input delay {input_delay}, site {sleeper} slept");
            let mut game =
                SessionSetup { input_delay, clocks: vec![NodeClock::TRUE; 2], ..SessionSetup::new(2, rtt_link(4)) }
                    .start();
            game.run_until(at(secs(8)));
            let wake = game.now() + secs(100);
            game.network.suspend(sleeper, wake);
            game.run_until(wake + secs(12));
            for site in [0, 1] {
                let fps = game.fps(site, wake + secs(2), wake + secs(12));
                assert!(fps >= 59.5, "{case}: site {site} at {fps:.2} fps");
                assert_eq!(game.state(site), State::Running, "{case}: site {site}");
            }
            game.assert_consistent();
        }
    }
}
