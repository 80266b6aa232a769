//! A quorum of sites drops a silent site, and all of them agree on the last frame with its inputs. Sites without a
//! quorum do not continue. Where only a link is cut, a third site relays the inputs and the game continues.

use crate::common::{SessionSetup, TestSession, at, lossy_link, ms, rtt_link, secs, site_id, site_set};
use coplay::frame::Frame;
use coplay::id::{SiteId, SiteSet};
use coplay::input::Recovery;
use coplay::session::message::{Extra, SessionMessage};
use coplay::session::{Config, Event, SessionEnd, State};
use coplay::spectator_feed::FeedConfig;
use coplay::time::{Instant, TimeDelta};
use coplay_links::link::LinkConfig;

/// Silence after which a site is dropped.
const DROP_TIMEOUT: TimeDelta = ms(1_000);
/// Time limit from the start of the silence until the game continues: the drop timeout, a ballot and its answer.
const DECISION_DEADLINE: TimeDelta = ms(1_600);

fn enable_drop_timeout(config: &mut Config) {
    config.drop_timeout = Some(DROP_TIMEOUT);
}

fn start_with_drop_timeout(sites: usize, link: LinkConfig) -> TestSession {
    let mut game = SessionSetup::new(sites, link).start_with(|_, config| enable_drop_timeout(config));
    game.run_until(at(secs(8)));
    game
}

/// Returns the sites that a site reported as dropped, each with the first frame without it.
fn reported_drops(game: &TestSession, site: usize) -> Vec<(usize, Frame)> {
    let pick = |event: &Event| match event {
        Event::Dropped { site, frame } => Some((site.index(), *frame)),
        _ => None,
    };
    game.events_of(site).filter_map(|reported| pick(&reported.event)).collect()
}

fn is_running(game: &TestSession, site: usize) -> bool {
    game.state(site) == State::Running
}

/// Asserts that the sites of `some` dropped exactly `gone`, at the same frames, and play at full speed.
#[track_caller]
fn assert_continue_without(game: &TestSession, some: SiteSet, gone: SiteSet, since: Instant) {
    let sites: Vec<usize> = some.iter().map(|site| site.index()).collect();
    let drops = reported_drops(game, sites[0]);
    let dropped: SiteSet = drops.iter().map(|(site, _)| site_id(*site)).collect();
    assert_eq!((dropped, drops.len()), (gone, gone.iter().count()), "site {} dropped {drops:?}", sites[0]);
    for site in sites {
        assert_eq!(reported_drops(game, site), drops, "site {site}");
        assert!(is_running(game, site), "site {site} is {:?}", game.state(site));
        let fps = game.fps(site, since + DECISION_DEADLINE, since + DECISION_DEADLINE + secs(1));
        // With packet loss, one site learns of the decision before another, runs ahead by that time and stalls a
        // little.
        assert!(fps >= 45.0, "site {site} continues at {fps:.2} fps");
        let fps = game.fps(site, game.now() - secs(2), game.now());
        assert!(fps >= 59.5, "site {site} plays at {fps:.2} fps");
    }
}

/// Asserts that these sites are frozen, dropped no site, and stepped no frame from 500 ms after `since` on.
#[track_caller]
fn assert_frozen_without_drop(game: &TestSession, some: SiteSet, since: Instant) {
    for site in some.iter().map(|site| site.index()) {
        assert_eq!(reported_drops(game, site), [], "site {site}");
        assert!(matches!(game.state(site), State::Frozen(_)), "site {site} is {:?}", game.state(site));
        let fps = game.fps(site, since + ms(500), game.now());
        assert!(fps == 0.0, "site {site} steps at {fps:.2} fps");
    }
}

/// Crashes one site and asserts that the others drop it.
fn assert_crashed_site_is_dropped(sites: usize, gone: usize, link: LinkConfig) {
    let mut game = start_with_drop_timeout(sites, link);
    let then = game.now();
    game.crash(gone);
    game.run_for(secs(8));
    let stay: SiteSet = (0..sites).filter(|site| *site != gone).map(site_id).collect();
    assert_continue_without(&game, stay, site_set([gone]), then);
    game.assert_consistent();
}

#[test]
fn crashed_site_is_dropped_and_the_others_continue() {
    for sites in [3, 4, 5] {
        (0..sites).for_each(|gone| assert_crashed_site_is_dropped(sites, gone, rtt_link(100)));
    }
}

#[test]
fn crashed_site_is_dropped_with_packet_loss() {
    for sites in [3, 4] {
        (0..sites).for_each(|gone| assert_crashed_site_is_dropped(sites, gone, lossy_link(60, 0.1)));
    }
}

#[test]
fn crashed_site_is_dropped_with_predicted_frames() {
    for prediction_window in [1, 8, 60] {
        for gone in 0..3 {
            let mut game = SessionSetup::new(3, lossy_link(100, 0.05)).start_with(|_, config| {
                enable_drop_timeout(config);
                config.settings.prediction_window = prediction_window;
            });
            game.run_until(at(secs(8)));
            let then = game.now();
            game.crash(gone);
            game.run_for(secs(9));
            let stay: SiteSet = (0..3).filter(|site| *site != gone).map(site_id).collect();
            assert_continue_without(&game, stay, site_set([gone]), then);
            game.assert_consistent();
        }
    }
}

#[test]
fn successive_crashes_are_dropped_until_the_quorum_is_lost() {
    let mut game = start_with_drop_timeout(4, rtt_link(60));
    for gone in [0, 3, 1] {
        game.crash(gone);
        game.run_for(secs(4));
    }
    // Two of three are a majority. Of two, only the lower one continues.
    assert_eq!(reported_drops(&game, 2).iter().map(|(site, _)| *site).collect::<Vec<_>>(), [0, 3]);
    assert!(matches!(game.state(2), State::Frozen(_)), "{:?}", game.state(2));
    game.assert_consistent();
}

/// Site 1 crashes, and only site 2 has its last inputs. Sites 0 and 2 decide on these inputs together, and then site 2
/// crashes before it has relayed them. Site 0 plays on without them.
#[test]
fn inputs_of_a_dropped_site_lost_with_their_only_holder_are_truncated() {
    for prediction_window in [0, 8] {
        let mut game = SessionSetup { prediction_window, ..SessionSetup::new(3, rtt_link(200)) }
            .start_with(|_, config| config.drop_timeout = Some(DROP_TIMEOUT));
        game.run_until(at(secs(8)));
        game.network.set_cut(0, 1, true);
        game.network.link(2, 0).set_cut(true);
        game.run_for(ms(100));
        game.crash(1);
        game.run_for(ms(1_500));
        game.network.link(2, 0).set_cut(false);
        game.run_while(secs(4), |game| reported_drops(game, 0).is_empty());
        game.crash(2);
        game.run_for(secs(6));
        assert_eq!(
            game.state(0),
            State::Running,
            "prediction window {prediction_window}: {:?}",
            reported_drops(&game, 0)
        );
        let fps = game.fps(0, game.now() - secs(2), game.now());
        assert!(fps > 59.0, "prediction window {prediction_window}: {fps:.1} fps");
        game.assert_consistent();
    }
}

/// One site has a longer drop timeout than the others. The ballots of the others fail until that site also considers
/// the crashed site silent.
#[test]
fn crashed_site_is_dropped_when_one_peer_has_a_longer_timeout() {
    for patient in 0..3 {
        let mut game = SessionSetup::new(4, rtt_link(60)).start_with(|site, config| {
            enable_drop_timeout(config);
            if site == patient {
                config.drop_timeout = Some(secs(8));
            }
        });
        game.run_until(at(secs(8)));
        game.crash(3);
        game.run_for(secs(12));
        for site in 0..3 {
            assert_eq!(
                reported_drops(&game, site).iter().map(|(site, _)| *site).collect::<Vec<_>>(),
                [3],
                "site {site}"
            );
            let fps = game.fps(site, game.now() - secs(2), game.now());
            assert!(fps >= 59.5, "site {site} plays at {fps:.2} fps where site {patient} has the longer timeout");
        }
        game.assert_consistent();
    }
}

#[test]
fn lower_of_two_sites_continues_and_the_higher_waits() {
    for (gone, stays) in [(1, 0), (0, 1)] {
        let mut game = start_with_drop_timeout(2, rtt_link(100));
        let then = game.now();
        game.crash(gone);
        game.run_for(secs(6));
        match stays {
            0 => assert_continue_without(&game, site_set([0]), site_set([1]), then),
            _ => assert_frozen_without_drop(&game, site_set([1]), then),
        }
        game.assert_consistent();
    }
}

#[test]
fn site_without_quorum_ends_after_the_silence_timeout() {
    let mut game = SessionSetup::new(2, rtt_link(100)).start_with(|_, config| {
        enable_drop_timeout(config);
        config.silence_timeout = Some(secs(3));
    });
    game.run_until(at(secs(8)));
    game.crash(0);
    game.run_for(secs(6));
    assert_eq!(game.state(1), State::Ended(SessionEnd::Silent(site_id(0))));
    game.assert_consistent();
}

/// Partitions the network and asserts that the sites of `continuing` drop the rest, which ends as dropped after the
/// heal.
fn assert_partition_resolves(sites: usize, continuing: SiteSet, prediction_window: u32) {
    let mut game = SessionSetup::new(sites, rtt_link(60)).start_with(|_, config| {
        enable_drop_timeout(config);
        config.settings.prediction_window = prediction_window;
    });
    game.run_until(at(secs(8)));
    let then = game.now();
    let rest: SiteSet = (0..sites).map(site_id).filter(|site| !continuing.contains(*site)).collect();
    game.set_partition(continuing, true);
    game.run_for(secs(8));
    assert_continue_without(&game, continuing, rest, then);
    assert_frozen_without_drop(&game, rest, then + ms(17 * i64::from(prediction_window)));
    game.set_partition(continuing, false);
    game.run_for(secs(2));
    for site in rest.iter().map(|site| site.index()) {
        assert_eq!(game.state(site), State::Ended(SessionEnd::Dropped), "site {site}");
        assert_eq!(reported_drops(&game, site), [], "site {site}");
    }
    assert_continue_without(&game, continuing, rest, then);
    game.assert_consistent();
}

#[test]
fn half_with_the_lowest_site_continues_after_an_even_partition() {
    for prediction_window in [0, 8] {
        assert_partition_resolves(4, site_set([0, 1]), prediction_window);
        assert_partition_resolves(4, site_set([0, 3]), prediction_window);
        assert_partition_resolves(2, site_set([0]), prediction_window);
    }
}

#[test]
fn majority_continues_after_a_partition() {
    for prediction_window in [0, 8] {
        assert_partition_resolves(4, site_set([1, 2, 3]), prediction_window);
        assert_partition_resolves(3, site_set([1, 2]), prediction_window);
        assert_partition_resolves(5, site_set([0, 2, 4]), prediction_window);
        assert_partition_resolves(5, site_set([2, 3, 4]), prediction_window);
    }
}

/// Sites 0 and 3 drop sites 1 and 2, or are about to. Then site 3 leaves. Sites 1 and 2 receive its goodbye at once,
/// site 0 only later. Either site 0 continues, or sites 1 and 2 do, never both.
#[test]
fn leave_does_not_give_dropped_sites_a_quorum() {
    for after in (440..800).step_by(4) {
        let mut game = SessionSetup::new(4, rtt_link(60)).start_with(|_, config| config.drop_timeout = Some(ms(400)));
        game.run_until(at(secs(8)));
        game.set_partition(site_set([0, 3]), true);
        game.run_for(ms(after));
        game.leave(3);
        let deliver_leave = |game: &mut TestSession, others: bool| {
            game.network.link(3, 0).set_cut(others);
            [1, 2].into_iter().for_each(|site| game.network.link(3, site).set_cut(!others));
        };
        deliver_leave(&mut game, true);
        game.run_for(ms(150));
        deliver_leave(&mut game, false);
        game.run_for(secs(6));
        let running: Vec<usize> = (0..3).filter(|site| is_running(&game, *site)).collect();
        assert!(running == [0] || running == [1, 2], "left after {after} ms: {running:?} continue");
        game.assert_consistent();
    }
}

/// Crashes the highest site and, `after` later, site 0, which would lead the ballot about the highest one or leads it
/// already. Asserts that the remaining sites report the same drops, and that they play exactly if they are a quorum.
fn assert_leader_crash_is_safe(sites: usize, after: TimeDelta, loss: f64, seed: u64) {
    let case = format!("{sites} sites, the leader crashes {after} after the first site, loss {loss}, seed {seed}");
    let mut game = SessionSetup { seed, ..SessionSetup::new(sites, lossy_link(80, loss)) }
        .start_with(|_, config| enable_drop_timeout(config));
    game.run_until(at(secs(8)));
    game.crash(sites - 1);
    game.run_for(after);
    game.crash(0);
    game.run_for(secs(8));
    let stay: Vec<usize> = (1..sites - 1).collect();
    // All sites that report drops report the same ones, and no two sites continue with different histories.
    let violations = game.checker.find_violations();
    assert!(violations.is_empty(), "{case}: {violations:#?}");
    let drops: Vec<_> = stay.iter().map(|site| reported_drops(&game, *site)).collect();
    assert!(drops.iter().all(|other| *other == drops[0]), "{case}: {drops:?}");
    // Of five sites three remain, which is a quorum. Of four two remain, which suffices only if the first crashed site
    // was dropped before.
    let has_quorum = sites == 5 || drops[0].iter().any(|(site, _)| *site == sites - 1);
    for site in stay {
        let state = game.state(site);
        assert_eq!(state == State::Running, has_quorum, "{case}: site {site} is {state:?}, dropped {drops:?}");
    }
}

#[test]
fn ballot_leader_crash_is_safe() {
    for sites in [4, 5] {
        for after in (900..=1_500).step_by(20) {
            assert_leader_crash_is_safe(sites, ms(after), 0.0, 1);
        }
    }
}

#[test]
fn ballot_leader_crash_is_safe_with_packet_loss() {
    for sites in [4, 5] {
        for after in (900..=1_500).step_by(20) {
            (0..3).for_each(|seed| assert_leader_crash_is_safe(sites, ms(after), 0.25, 10 * after as u64 + seed));
        }
    }
}

#[test]
fn site_silent_for_less_than_the_timeout_is_not_dropped() {
    for slow in 0..3 {
        // Isolated, paused or suspended for less than the drop timeout. The pause is long enough for the site to notice
        // that its host program stalled.
        let faults: [fn(&mut TestSession, usize); 3] = [
            |game, slow| {
                game.set_isolated(slow, true);
                game.run_for(ms(800));
                game.set_isolated(slow, false);
            },
            |game, slow| game.network.pause(slow, game.now() + ms(800)),
            |game, slow| game.network.suspend(slow, game.now() + ms(800)),
        ];
        for (number, fault) in faults.into_iter().enumerate() {
            let mut game = start_with_drop_timeout(3, lossy_link(100, 0.02));
            fault(&mut game, slow);
            let healed = game.now() + ms(800);
            game.run_until(healed + secs(8));
            for site in 0..3 {
                assert_eq!(reported_drops(&game, site), [], "fault {number} of site {slow}, reported by site {site}");
                assert!(is_running(&game, site), "fault {number} of site {slow}: site {site} {:?}", game.state(site));
                let fps = game.fps(site, healed + secs(2), game.now());
                assert!(fps >= 59.5, "fault {number} of site {slow}: site {site} at {fps:.2} fps");
            }
            game.assert_consistent();
        }
    }
}

#[test]
fn site_waking_after_its_drop_ends_and_drops_nobody() {
    for sleeper in 0..3 {
        let mut game = start_with_drop_timeout(3, rtt_link(100));
        let then = game.now();
        game.network.pause(sleeper, then + secs(4));
        game.run_for(secs(6));
        let stay: SiteSet = (0..3).filter(|site| *site != sleeper).map(site_id).collect();
        assert_continue_without(&game, stay, site_set([sleeper]), then);
        assert_eq!(game.state(sleeper), State::Ended(SessionEnd::Dropped), "site {sleeper}");
        assert_eq!(reported_drops(&game, sleeper), [], "site {sleeper}");
        game.assert_consistent();
    }
}

/// Returns the number of datagrams since `since` that carry a relayed input or a relay request.
fn count_relay_datagrams(game: &TestSession, since: Instant) -> usize {
    let is_relay = |bytes: &[u8]| match SessionMessage::decode(bytes) {
        Ok(SessionMessage::Tick(tick)) => {
            tick.extras.iter().any(|extra| matches!(extra, Extra::RelayRequest(..) | Extra::Relay(_)))
        }
        _ => false,
    };
    game.network.captured().filter(|packet| packet.at >= since && is_relay(&packet.bytes)).count()
}

/// Cuts the link between two of three sites for 10 s. Asserts that the third site relays until the link is back.
fn assert_relays_around_cut(one: usize, other: usize, prediction_window: u32, input_delay: u32) {
    let case =
        format!("no link between {one} and {other}, prediction window {prediction_window}, input delay {input_delay}");
    let mut game = SessionSetup { input_delay, ..SessionSetup::new(3, rtt_link(50)) }.start_with(|_, config| {
        enable_drop_timeout(config);
        config.settings.prediction_window = prediction_window;
    });
    game.network.start_capture(100_000);
    game.run_until(at(secs(8)));
    assert_eq!(count_relay_datagrams(&game, at(secs(4))), 0, "{case}: relayed without need");
    game.network.set_cut(one, other, true);
    let cut = game.now();
    game.run_for(secs(10));
    assert!(count_relay_datagrams(&game, cut + secs(2)) > 0, "{case}");
    for site in 0..3 {
        assert_eq!(reported_drops(&game, site), [], "{case}: site {site}");
        let fps = game.fps(site, cut + secs(2), game.now());
        assert!(fps >= 59.0, "{case}: site {site} at {fps:.2} fps");
    }
    game.network.set_cut(one, other, false);
    let healed = game.now();
    game.run_for(secs(5));
    assert_eq!(count_relay_datagrams(&game, healed + secs(1)), 0, "{case}: still relayed");
    for site in 0..3 {
        let fps = game.fps(site, healed + secs(1), game.now());
        assert!(fps >= 59.5, "{case}: site {site} at {fps:.2} fps");
    }
    game.assert_consistent();
}

#[test]
fn inputs_are_relayed_through_a_third_site_around_a_cut() {
    for (one, other) in [(0, 1), (0, 2), (1, 2)] {
        // Through a third site an input takes twice the latency, and up to one frame more.
        assert_relays_around_cut(one, other, 0, 8);
        assert_relays_around_cut(one, other, 8, 6);
        assert_relays_around_cut(one, other, 8, 0);
    }
}

/// The link between two of three sites is cut for good, and then one of the two leaves. The third site, which reaches
/// both, relays the leave.
#[test]
fn leave_is_relayed_around_a_cut() {
    for (leaver, stays) in [(2, [0, 1]), (0, [1, 2]), (1, [0, 2]), (1, [2, 0])] {
        for (prediction_window, limit) in [(0, Some(DROP_TIMEOUT)), (8, Some(DROP_TIMEOUT)), (0, None)] {
            let case = format!("{leaver} leaves, {stays:?} stay, prediction window {prediction_window}, {limit:?}");
            let mut game = SessionSetup::new(3, rtt_link(50)).start_with(|_, config| {
                config.drop_timeout = limit;
                config.settings.prediction_window = prediction_window;
            });
            game.run_until(at(secs(8)));
            game.network.set_cut(leaver, stays[1], true);
            game.run_for(secs(3));
            let then = game.now();
            game.leave(leaver);
            game.run_for(secs(20));
            let left: Vec<_> = stays.map(|site| game.find_event(site, as_left).map(|(_, left)| left)).to_vec();
            assert!(left[0].is_some_and(|(site, _)| site == site_id(leaver)) && left[0] == left[1], "{case}: {left:?}");
            for site in stays {
                assert_eq!(reported_drops(&game, site), [], "{case}: site {site}");
                let fps = game.fps(site, then + secs(1), game.now());
                assert!(is_running(&game, site) && fps >= 59.0, "{case}: site {site} at {fps:.2} fps");
            }
            game.assert_consistent();
        }
    }
}

fn as_left(event: &Event) -> Option<(SiteId, Frame)> {
    if let Event::Left { site, frame } = event { Some((*site, *frame)) } else { None }
}

#[test]
fn forged_relayed_inputs_are_detected() {
    let mut game = SessionSetup { input_delay: 8, ..SessionSetup::new(3, rtt_link(50)) }.start_with(|_, config| {
        enable_drop_timeout(config);
        config.feed = Some(FeedConfig::new(config.session_id, 7, config.settings.clone()));
    });
    game.network.nodes[2].sabotage = Some(coplay_sim::site::SessionSabotage::ForgeRelay);
    game.run_until(at(secs(6)));
    let cut_for_a_while = |game: &mut TestSession| {
        game.network.set_cut(0, 1, true);
        game.run_for(secs(3));
        game.network.set_cut(0, 1, false);
        game.run_for(secs(3));
    };
    let forged = |game: &TestSession, site: usize, other: usize| {
        let forged = |event: &Event| matches!(event, Event::InputsForged { site, .. } if site.index() == other);
        game.events_of(site).filter(|reported| forged(&reported.event)).count()
    };
    cut_for_a_while(&mut game);
    for (site, other) in [(0, 1), (1, 0)] {
        assert_eq!(forged(&game, site, other), 1, "site {site} reports forged inputs of {other}");
    }
    // Forged inputs of the next site in the same seat are reported as well.
    game.crash(1);
    game.run_for(secs(3));
    game.join(1, |_| {});
    game.run_for(secs(6));
    assert_eq!((is_running(&game, 1), forged(&game, 0, 1)), (true, 1));
    cut_for_a_while(&mut game);
    assert_eq!((forged(&game, 0, 1), forged(&game, 1, 0)), (2, 1));
}

/// Site 2 is near site 0 and far from site 1. Site 3 is neither near nor far, and the path through it is the shortest.
/// Site 0 sends most of its relay requests to site 3.
#[test]
fn relay_with_the_lowest_latency_is_requested() {
    let mut game = SessionSetup { input_delay: 4, ..SessionSetup::new(4, rtt_link(40)) }.start_with(|_, config| {
        enable_drop_timeout(config);
        config.settings.prediction_window = 16;
    });
    for (one, other, millis) in [(0, 2, 4), (1, 2, 400)] {
        game.network.link(one, other).set_config(rtt_link(millis));
        game.network.link(other, one).set_config(rtt_link(millis));
    }
    game.run_until(at(secs(8)));
    game.network.set_cut(0, 1, true);
    game.run_for(secs(3));
    game.network.start_capture(100_000);
    let (since, resimulated) = (game.now(), game.stats(0).resimulated);
    game.run_for(secs(20));
    let relay_requests = |relay: usize| {
        let is_request = |bytes: &[u8]| match SessionMessage::decode(bytes) {
            Ok(SessionMessage::Tick(tick)) => tick.extras.iter().any(|extra| matches!(extra, Extra::RelayRequest(..))),
            _ => false,
        };
        game.network
            .captured()
            .filter(|packet| (packet.from, packet.to) == (0, relay) && is_request(&packet.bytes))
            .count()
    };
    assert!(
        relay_requests(3) > 4 * relay_requests(2),
        "{} relay requests to site 3, {} to site 2",
        relay_requests(3),
        relay_requests(2)
    );
    println!("{} resimulated frames in {}", game.stats(0).resimulated - resimulated, game.now() - since);
    for site in 0..4 {
        let fps = game.fps(site, since, game.now());
        assert!(fps >= 59.0, "site {site} at {fps:.2} fps");
    }
    game.assert_consistent();
}

/// Cuts two groups of sites off from each other, with one site between them. Asserts that no site is dropped, and that
/// all play on at 10 fps or more with the inputs that this site relays.
fn assert_relays_for_many(recovery: Recovery, prediction_window: u32) {
    let case = format!("{recovery:?}, prediction window {prediction_window}");
    let mask = (1 << 80) - 1;
    let mut game = SessionSetup { input_delay: 30, input_mask: mask, ..SessionSetup::new(8, rtt_link(400)) }
        .start_with(|_, config| {
            enable_drop_timeout(config);
            config.recovery = recovery;
            config.settings.prediction_window = prediction_window;
        });
    // Sticks that change in every frame.
    game.network.nodes.iter_mut().for_each(|site| site.player.change_probability = 1.0);
    game.run_until(at(secs(8)));
    let then = game.now();
    for (one, other) in [0, 1].into_iter().flat_map(|one| (3..8).map(move |other| (one, other))) {
        game.network.set_cut(one, other, true);
    }
    game.run_for(secs(6));
    assert_eq!(game.network.oversized_datagrams, 0, "{case}");
    for site in 0..8 {
        assert_eq!(reported_drops(&game, site), [], "{case}: site {site}");
        let fps = game.fps(site, then + secs(2), game.now());
        assert!(fps >= 10.0, "{case}: site {site} at {fps:.2} fps");
    }
    game.assert_consistent();
}

#[test]
fn one_site_can_relay_the_inputs_of_many() {
    for recovery in [Recovery::Redundant, Recovery::History, Recovery::Adaptive, Recovery::Classic] {
        [0, 8].into_iter().for_each(|prediction_window| assert_relays_for_many(recovery, prediction_window));
    }
}

/// The last inputs of a site are lost, one of its goodbyes arrives, and then it crashes. The others drop it.
#[test]
fn leaver_that_crashes_before_its_inputs_arrive_is_dropped() {
    for leaver in 0..3 {
        let mut game = SessionSetup::new(3, rtt_link(100)).start_with(|_, config| {
            enable_drop_timeout(config);
            config.recovery = Recovery::History;
        });
        // The input changes in every frame, so that lost inputs cannot be inferred from the ones that arrive.
        game.network.nodes[leaver].player.change_probability = 1.0;
        game.run_until(at(secs(8)));
        let then = game.now();
        game.set_isolated(leaver, true);
        game.run_for(ms(60));
        game.set_isolated(leaver, false);
        game.leave(leaver);
        game.run_for(ms(1));
        game.crash(leaver);
        game.run_for(secs(6));
        let stay: SiteSet = (0..3).filter(|site| *site != leaver).map(site_id).collect();
        assert_continue_without(&game, stay, site_set([leaver]), then);
        game.assert_consistent();
    }
}

/// Sites 1 and 2 are cut off from each other and repeatedly propose to drop each other. Meanwhile site 3 receives
/// nothing, and all sites wait for it. When site 3 receives packets again, it has missed the end of several membership
/// epochs, none of which dropped a site. All four sites play on.
#[test]
fn site_that_missed_several_membership_epochs_catches_up() {
    let mut game = SessionSetup::new(4, rtt_link(60)).start_with(|_, config| config.drop_timeout = Some(ms(600)));
    game.run_until(at(secs(8)));
    game.network.set_cut(1, 2, true);
    let set_receiving = |game: &mut TestSession, receiving: bool| {
        (0..3).for_each(|site| game.network.link(site, 3).set_cut(!receiving));
    };
    set_receiving(&mut game, false);
    game.run_for(secs(5));
    set_receiving(&mut game, true);
    game.run_for(secs(5));
    for site in 0..4 {
        let fps = game.fps(site, game.now() - secs(2), game.now());
        assert!(fps > 50.0, "site {site} plays at {fps:.1} fps");
        assert_eq!(reported_drops(&game, site), [], "site {site}");
    }
    game.assert_consistent();
}
