//! A site that leaves properly is missed by nobody: all others agree on its last frame and play on.

mod common;

use common::{Game, Setup, at, id, lossy, ms, rtt, secs};
use coplay::frame::Frame;
use coplay::input::Recovery;
use coplay::session::{End, Event, State};
use coplay::time::TimeDelta;

/// The frame with which a site said that another has left; `None` if it did not, or said so twice.
fn left(game: &Game, site: usize, leaver: usize) -> Option<Frame> {
    let left = |event: &Event| match event {
        Event::Left { site, frame } if *site == id(leaver) => Some(*frame),
        _ => None,
    };
    let mut found = game.told(site).filter_map(|told| left(&told.event));
    found.next().filter(|_| found.next().is_none())
}

fn ended(game: &Game, site: usize) -> Option<End> {
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
    assert_eq!(game.state(first), State::Ended(End::Left), "{what}");
    assert_eq!(ended(&game, first), Some(End::Left), "{what}");
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
    assert_eq!(ended(&game, second), Some(End::Left), "{what}");
    assert_eq!(ended(&game, last), Some(End::Alone), "{what}");
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
            assert_eq!(ended(&game, site), Some(End::Left), "loss {loss}: site {site}");
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
    assert_eq!(ended(&game, 0), Some(End::Left));
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
    assert_eq!(game.state(leaver), State::Ended(End::Left), "{what}: {states:?}");
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
            config.give_up_after = Some(secs(3));
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
        assert_eq!(ended(&game, stays), Some(End::Silent(id(leaver))), "{:?}", game.state(stays));
        game.assert_sound();
    }
}
