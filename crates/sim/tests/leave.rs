//! A site that leaves properly is missed by nobody: all others agree on its last frame and play on. The last one left can play on alone,
//! and the others come back to it.

mod common;

use common::{Game, Setup, at, id, lossy, ms, rtt, secs, set};
use coplay::frame::Frame;
use coplay::input::Recovery;
use coplay::session::{Config, Event, SessionEnd, State};
use coplay::spectator_feed::FeedConfig;
use coplay::time::TimeDelta;
use coplay::wire::{Hello, MAX_DATAGRAM, Refusal};
use coplay_sim::world::World;

/// The frame with which a site said that another has left; `None` if it did not, or said so twice.
fn left(game: &Game, site: usize, leaver: usize) -> Option<Frame> {
    let left = |event: &Event| match event {
        Event::Left { site, frame } if *site == id(leaver) => Some(*frame),
        _ => None,
    };
    let mut found = game.told(site).filter_map(|told| left(&told.event));
    found.next().filter(|_| found.next().is_none())
}

fn ended(game: &Game, site: usize) -> Option<SessionEnd> {
    let end = game.find(site, |event| if let Event::Ended(end) = event { Some(*end) } else { None });
    end.map(|(_, end)| end)
}

/// Three sites; one leaves, then another, and one is left over.
fn leave_in_turn(loss: f64, first: usize, second: usize, fps_least: f64) {
    let what = format!("loss {loss}, {first} leaves and then {second}");
    let mut game = Setup::new(3, lossy(100, loss)).play();
    game.run_until(at(secs(8)));
    game.leave(first);
    let gone = game.now();
    game.run_for(secs(10));

    let stay = [0, 1, 2].into_iter().filter(|site| *site != first);
    let frames: Vec<_> = stay.clone().map(|site| left(&game, site, first)).collect();
    assert!(frames[0].is_some() && frames[0] == frames[1], "{what}: {frames:?}");
    assert_eq!(game.state(first), State::Ended(SessionEnd::Left), "{what}");
    assert_eq!(ended(&game, first), Some(SessionEnd::Left), "{what}");
    for site in stay.clone() {
        let fps = game.fps(site, gone, game.now());
        assert!(fps >= fps_least, "{what}: site {site} at {fps:.2} fps");
        let longest = game.frame_times(site, gone).into_iter().fold(0.0, f64::max);
        assert!(longest < 120.0 || loss > 0.0, "{what}: site {site} stood still for {longest:.0} ms");
        assert_eq!(game.state(site), State::Running, "{what}");
        let frozen = game.told(site).any(|told| matches!(told.event, Event::Frozen(_)));
        assert!(!frozen, "{what}: site {site} froze");
    }
    // The ledger holds every site to neutral input after its last frame.
    game.assert_sound();

    game.leave(second);
    let last = 3 - first - second;
    game.run_for(secs(4));
    assert!(left(&game, last, second).is_some(), "{what}");
    assert_eq!(ended(&game, second), Some(SessionEnd::Left), "{what}");
    assert_eq!(ended(&game, last), Some(SessionEnd::Alone), "{what}");
    game.assert_sound();
}

#[test]
fn each_of_three_leaves_and_the_others_play_on() {
    for (first, second) in [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)] {
        leave_in_turn(0.0, first, second, 59.8);
    }
}

#[test]
fn so_they_do_when_a_fifth_of_all_packets_is_lost() {
    for (first, second) in [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)] {
        leave_in_turn(0.2, first, second, 58.0);
    }
}

#[test]
fn the_leaver_waits_until_all_know() {
    for loss in [0.0, 0.2] {
        let mut game = Setup::new(3, lossy(100, loss)).play();
        game.run_until(at(secs(8)));
        game.leave(0);
        let asked = game.now();
        game.run_while(secs(3), |game| ended(game, 0).is_none());
        let took = game.now() - asked;
        assert!(took >= ms(99) && took < ms(1_000), "loss {loss}: it took {took}");
        assert!([1, 2].into_iter().all(|site| left(&game, site, 0).is_some()), "loss {loss}: somebody does not know");
    }
}

#[test]
fn all_leave_at_once() {
    for loss in [0.0, 0.2] {
        let mut game = Setup::new(3, lossy(100, loss)).play();
        game.run_until(at(secs(8)));
        (0..3).for_each(|site| game.leave(site));
        game.run_for(secs(3));
        for site in 0..3 {
            assert_eq!(ended(&game, site), Some(SessionEnd::Left), "loss {loss}: site {site}");
        }
    }
}

#[test]
fn who_leaves_the_lobby_is_told_of() {
    let mut game = Setup::new(3, rtt(100)).play();
    game.isolate(2, true);
    game.run_until(at(secs(2)));
    game.leave(0);
    game.run_for(secs(2));
    assert_eq!(ended(&game, 0), Some(SessionEnd::Left));
    assert_eq!(left(&game, 1, 0), Some(Frame::ZERO));
    assert!(matches!(game.state(1), State::Lobby { .. }), "{:?}", game.state(1));
}

#[test]
fn last_inputs_take_effect_before_the_leave_does() {
    let mut game = Setup::new(2, rtt(100)).play();
    game.run_until(at(secs(8)));
    let promised = game.stats(1).frame.number() + 6;
    game.leave(1);
    game.run_for(ms(900));
    let frame = left(&game, 0, 1).expect("it left").number();
    assert!(frame.abs_diff(promised) <= 1, "left with frame {frame}, inputs were promised up to {promised}");
    assert!(game.steps[0].len() as u32 > frame, "the survivor stepped past it");
    game.assert_sound();
}

/// One of three leaves so long after all came; whatever had begun by then goes on, and nobody waits for it for ever.
fn leave_at(loss: f64, leaver: usize, then: TimeDelta) {
    let what = format!("loss {loss}, site {leaver} leaves at {then}");
    let seed = 1 + then.as_nanos().unsigned_abs() / 1_000_000;
    let mut game = Setup { seed, ..Setup::new(3, lossy(100, loss)) }.play();
    game.run_until(at(then));
    game.leave(leaver);
    game.run_for(secs(12));
    let stay = [0, 1, 2].into_iter().filter(|site| *site != leaver);
    let in_lobby = |site: usize| matches!(game.state(site), State::Lobby { .. });
    let states: Vec<_> = (0..3).map(|site| game.state(site)).collect();
    if game.steps.iter().any(|steps| !steps.is_empty()) {
        let fps_least = if loss > 0.0 { 58.0 } else { 59.5 };
        for site in stay.clone() {
            assert_eq!(game.state(site), State::Running, "{what}: {states:?}");
            let fps = game.fps(site, game.now() - secs(5), game.now());
            assert!(fps >= fps_least, "{what}: site {site} at {fps:.2} fps, {states:?}");
        }
    } else {
        assert!(stay.clone().all(in_lobby), "{what}: {states:?}");
    }
    assert_eq!(game.state(leaver), State::Ended(SessionEnd::Left), "{what}: {states:?}");
    game.assert_sound();
}

#[test]
fn nobody_is_stuck_whenever_somebody_leaves() {
    for leaver in 0..3 {
        (0..=1_500).step_by(10).for_each(|then| leave_at(0.0, leaver, ms(then)));
    }
}

#[test]
fn nor_is_anybody_when_packets_are_lost() {
    for leaver in 0..3 {
        (0..=1_500).step_by(10).for_each(|then| leave_at(0.1, leaver, ms(then)));
    }
}

/// The last inputs of a site are lost, one of its goodbyes arrives, and then it dies.
#[test]
fn a_leaver_that_dies_before_its_inputs_are_here_is_given_up() {
    for leaver in [0, 1] {
        let mut game = Setup::new(2, rtt(100)).play_with(|_, config| {
            config.silence_timeout = Some(secs(3));
            config.recovery = Recovery::History;
        });
        let stays = 1 - leaver;
        game.run_until(at(secs(8)));
        game.world.link(leaver, stays).set_cut(true);
        game.run_for(ms(60));
        game.world.link(leaver, stays).set_cut(false);
        game.leave(leaver);
        game.run_for(ms(1));
        game.world.crash(leaver);
        game.run_for(secs(10));
        assert_eq!(left(&game, stays, leaver), None, "inputs are missing");
        assert_eq!(ended(&game, stays), Some(SessionEnd::Silent(id(leaver))), "{:?}", game.state(stays));
        game.assert_sound();
    }
}

/// Sites that play on alone and serve those who come late.
fn open(setup: &Setup, change: impl Fn(&mut Config)) -> Game {
    setup.play_with(|_, config| {
        config.can_play_alone = true;
        change(config);
        config.feed = Some(FeedConfig::new(config.session_id, 7, config.settings.clone()));
    })
}

fn drops(config: &mut Config) {
    config.drop_timeout = Some(secs(1));
}

fn waits(config: &mut Config) {
    config.drop_timeout = None;
}

#[track_caller]
fn assert_full_speed(game: &Game, what: &str, site: usize) {
    let fps = game.fps(site, game.now() - secs(2), game.now());
    let state = game.state(site);
    assert!(state == State::Running && fps > 58.0, "{what}: site {site} at {fps:.1} fps, {state:?}, {:?}", game.events);
}

fn joined(game: &Game, teller: usize, site: usize) -> bool {
    game.told(teller).any(|told| matches!(told.event, Event::Joined { site: joined, .. } if joined == id(site)))
}

/// A site that is not in the game comes back to it, and both have the same states from then on.
#[track_caller]
fn come_back(game: &mut Game, what: &str, comes: usize, stays: usize) {
    game.come(comes, |_| {});
    game.run_for(secs(8));
    assert!(joined(game, comes, comes) && joined(game, stays, comes), "{what}: {:?}", game.events);
    [comes, stays].into_iter().for_each(|site| assert_full_speed(game, what, site));
    let (one, other) = (game.certain_states(comes), game.certain_states(stays));
    let common: Vec<_> = one.iter().filter(|(frame, _)| other.contains_key(frame)).collect();
    assert!(common.len() > 120, "{what}: only {} frames together", common.len());
    assert!(common.iter().all(|(frame, hash)| other[frame] == **hash), "{what}: other states");
}

#[test]
fn the_last_one_left_plays_on_and_the_leaver_comes_back() {
    for (sites, window, loss) in [(2, 0, 0.0), (2, 8, 0.1), (3, 8, 0.0)] {
        for stays in 0..sites {
            let what = format!("{sites} sites, window {window}, loss {loss}, site {stays} stays");
            let mut game = open(&Setup { window, ..Setup::new(sites, lossy(100, loss)) }, drops);
            game.run_until(at(secs(5)));
            let leavers: Vec<usize> = (0..sites).filter(|site| *site != stays).collect();
            leavers.iter().for_each(|site| game.leave(*site));
            game.run_for(secs(6));
            assert!(
                leavers.iter().all(|site| ended(&game, *site) == Some(SessionEnd::Left)),
                "{what}: {:?}",
                game.events
            );
            assert_full_speed(&game, &what, stays);
            come_back(&mut game, &what, leavers[0], stays);
            game.assert_sound();
        }
    }
}

#[test]
fn whose_last_other_player_died_can_go_on_alone() {
    for (sites, stays, change) in
        [(2, 1, drops as fn(&mut Config)), (2, 0, waits), (2, 1, waits), (3, 0, drops), (3, 2, drops)]
    {
        let what = format!("{sites} sites, site {stays} stays");
        let mut game = open(&Setup { window: 8, ..Setup::new(sites, rtt(100)) }, change);
        game.run_until(at(secs(5)));
        assert!(!game.go_on_alone(stays), "{what}: the others play");
        let dead: Vec<usize> = (0..sites).filter(|site| *site != stays).collect();
        dead.iter().for_each(|site| game.crash(*site));
        game.run_for(ms(900));
        assert!(!game.go_on_alone(stays), "{what}: silence may be a hiccup");
        game.run_for(secs(4));
        assert!(matches!(game.state(stays), State::Frozen(_)), "{what}: {:?}", game.state(stays));
        assert!(game.go_on_alone(stays), "{what}");
        assert!(!game.go_on_alone(stays), "{what}: once is enough");
        game.run_for(secs(4));
        assert_full_speed(&game, &what, stays);
        come_back(&mut game, &what, dead[0], stays);
        game.assert_sound();
    }
}

#[test]
fn nobody_goes_on_alone_while_another_player_is_heard() {
    let mut game = open(&Setup::new(3, rtt(100)), waits);
    game.run_until(at(secs(5)));
    game.crash(0);
    game.run_for(secs(8));
    for site in [1, 2] {
        assert!(matches!(game.state(site), State::Frozen(_)) && !game.go_on_alone(site), "site {site}");
    }
}

fn met(game: &Game, teller: usize, site: usize) -> Vec<bool> {
    let ours = |event: &Event| match event {
        Event::SplitBrainResolved { site: other, is_own_game_kept: ours } if *other == id(site) => Some(*ours),
        _ => None,
    };
    game.told(teller).filter_map(|told| ours(&told.event)).collect()
}

/// Both of two go on alone while the way between them is cut, one of them later by some seconds; when they meet the game that went on
/// further is kept.
fn both_alone(loss: f64, change: fn(&mut Config), late: Option<usize>, kept: usize) {
    let what = format!("loss {loss}, site {late:?} goes on later");
    let mut game = open(&Setup { window: 8, ..Setup::new(2, lossy(100, loss)) }, change);
    game.run_until(at(secs(5)));
    game.isolate(0, true);
    game.run_for(secs(4));
    for site in (0..2).filter(|site| Some(*site) != late) {
        // With a limit the lower site goes on by itself.
        assert!(game.go_on_alone(site) || game.state(site) == State::Running, "{what}: site {site}");
    }
    game.run_for(secs(3));
    late.into_iter().for_each(|site| assert!(game.go_on_alone(site), "{what}"));
    game.run_for(secs(3));
    [0, 1].into_iter().for_each(|site| assert_eq!(game.state(site), State::Running, "{what}: site {site}"));
    game.isolate(0, false);
    let yields = 1 - kept;
    game.run_while(secs(4), |game| ended(game, yields).is_none());
    assert_eq!(ended(&game, yields), Some(SessionEnd::Dropped), "{what}");
    assert_eq!(
        (met(&game, yields, kept), met(&game, kept, yields)),
        (vec![false], vec![true]),
        "{what}: both are told"
    );
    assert_full_speed(&game, &what, kept);
    come_back(&mut game, &what, yields, kept);
}

#[test]
fn who_meets_again_after_both_went_on_alone_rejoins_the_game_that_went_on_further() {
    for loss in [0.0, 0.05] {
        both_alone(loss, waits, Some(0), 1);
        both_alone(loss, waits, Some(1), 0);
        both_alone(loss, drops, None, 0);
        both_alone(loss, drops, Some(1), 0);
    }
}

/// Only one of two goes on alone; the other still waits when they meet.
#[test]
fn who_still_waits_believes_who_went_on_alone() {
    for (goes, loss) in [(0, 0.0), (1, 0.0), (1, 0.1)] {
        let what = format!("site {goes} goes on, loss {loss}");
        let mut game = open(&Setup { window: 8, ..Setup::new(2, lossy(100, loss)) }, waits);
        game.run_until(at(secs(5)));
        game.isolate(0, true);
        game.run_for(secs(5));
        assert!(game.go_on_alone(goes), "{what}");
        game.run_for(secs(2));
        game.isolate(0, false);
        let waited = 1 - goes;
        game.run_while(secs(4), |game| ended(game, waited).is_none());
        assert_eq!(ended(&game, waited), Some(SessionEnd::Dropped), "{what}");
        come_back(&mut game, &what, waited, goes);
    }
}

/// Two of three are more than the one who went on alone, whether they went on, too, or wait for it.
#[test]
fn who_went_on_alone_yields_to_a_majority() {
    for (change, what) in [(drops as fn(&mut Config), "they went on"), (waits, "they wait")] {
        let mut game = open(&Setup { window: 8, ..Setup::new(3, rtt(100)) }, change);
        game.run_until(at(secs(5)));
        game.part(set([0]), true);
        game.run_for(secs(4));
        assert!(game.go_on_alone(0), "{what}");
        game.run_for(secs(3));
        game.part(set([0]), false);
        game.run_while(secs(4), |game| ended(game, 0).is_none());
        assert_eq!(ended(&game, 0), Some(SessionEnd::Dropped), "{what}");
        come_back(&mut game, what, 0, 1);
        assert_full_speed(&game, what, 2);
    }
}

/// A player says that it went on alone: one who plays, or one of three who does not play any more while the other two are heard.
#[test]
fn no_word_of_one_player_evicts_who_hears_others() {
    for (sites, mute) in [(2, false), (3, false), (3, true)] {
        let what = format!("{sites} sites, mute {mute}");
        let setup = Setup::new(sites, rtt(100));
        let mut game = open(&setup, waits);
        game.run_until(at(secs(5)));
        if mute {
            game.crash(sites - 1);
        }
        for number in 0..100 {
            let hello = Hello {
                session_id: setup.config(0).session_id,
                site: id(sites - 1),
                incarnation: 1,
                your_incarnation: 1,
                agreed_sites: set([]),
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
            (0..sites - 1).for_each(|site| game.world.inject(site, World::address(sites - 1, 0), &buf[..len]));
            game.run_for(ms(50));
        }
        for site in 0..sites - 1 {
            assert_eq!(ended(&game, site), None, "{what}: site {site}");
            assert_eq!(met(&game, site, sites - 1), [], "{what}: site {site}");
        }
        if mute {
            assert!(matches!(game.state(0), State::Frozen(_)), "{what}: {:?}", game.state(0));
        } else {
            assert_full_speed(&game, &what, 0);
        }
        game.assert_sound();
    }
}
