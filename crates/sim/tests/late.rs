//! Who is heard, but holds up the game: waited for, or dropped at the word of the coordinator, as the host program wishes.

mod common;

use common::{Game, Setup, at, id, lossy, ms, rtt, secs};
use coplay::session::{AbsentInput, Config, ConfigError, Event, MIN_STALL_LIMIT, Session, SessionEnd, State};
use coplay::spectator_feed::FeedConfig;
use coplay::time::{Instant, TimeDelta};
use coplay_sim::link::LinkConfig;

/// For how long a site may hold up the game.
const LATE_AFTER: TimeDelta = TimeDelta::from_millis(500);
/// Whoever holds it up half of the time and more is dropped within this.
const SOON: TimeDelta = TimeDelta::from_secs(3);

/// Everybody serves those who come late.
fn play(setup: &Setup, late_after: Option<TimeDelta>) -> Game {
    setup.play_with(|_, config| {
        config.stall_limit = late_after;
        config.settings.absent_input = AbsentInput::Repeat;
        config.feed = Some(FeedConfig::new(config.session_id, 7, config.settings.clone()));
    })
}

fn dropped(game: &Game, teller: usize, site: usize) -> Option<u32> {
    let frame = |event: &Event| match event {
        Event::Dropped { site: dropped, frame } if *dropped == id(site) => Some(frame.number()),
        _ => None,
    };
    game.find(teller, frame).map(|(_, frame)| frame)
}

fn has_joined(game: &Game, teller: usize, site: usize, since: Instant) -> bool {
    let joined = |event: &Event| matches!(event, Event::Joined { site: joined, .. } if *joined == id(site));
    game.told(teller).any(|told| told.at > since && joined(&told.event))
}

fn speed(game: &Game, site: usize) -> f64 {
    game.fps(site, game.now() - secs(2), game.now())
}

/// The machine of a site takes longer than a frame.
fn slow_down(game: &mut Game, site: usize) {
    game.world.sites[site].step_cost = ms(30);
}

/// All ways to a site are so long.
fn move_away(game: &mut Game, site: usize, link: &LinkConfig) {
    for other in (0..game.world.sites.len()).filter(|other| *other != site) {
        game.world.link(site, other).set_config(link.clone());
        game.world.link(other, site).set_config(link.clone());
    }
}

/// What makes a site hold up the others.
type Trouble = fn(&mut Game, usize);

const TROUBLES: [(&str, Trouble); 3] = [
    ("a slow machine", slow_down),
    ("a way that is too long", |game, site| move_away(game, site, &rtt(700))),
    ("a way that loses nearly everything", |game, site| move_away(game, site, &lossy(60, 0.93))),
];

#[test]
fn who_is_late_is_waited_for_where_that_is_wished() {
    for (what, trouble) in TROUBLES {
        let mut game = play(&Setup::new(3, rtt(60)), None);
        game.run_until(at(secs(5)));
        trouble(&mut game, 2);
        game.run_for(secs(6));
        assert!(speed(&game, 0) < 45.0, "{what} holds up nobody: {:.1} fps", speed(&game, 0));
        assert_eq!(dropped(&game, 0, 2), None, "{what}");
        game.assert_sound();
    }
}

#[test]
fn who_is_late_is_dropped_at_the_word_of_the_coordinator() {
    for window in [0, 4] {
        for (what, trouble) in TROUBLES {
            for late in [1, 2] {
                let what = format!("{what} of site {late}, window {window}");
                let mut game = play(&Setup { window, ..Setup::new(3, rtt(60)) }, Some(LATE_AFTER));
                game.run_until(at(secs(5)));
                trouble(&mut game, late);
                game.run_for(SOON + secs(3));
                let frame = dropped(&game, 0, late);
                assert!(frame.is_some(), "{what} is waited for: {:.1} fps", speed(&game, 0));
                for site in (0..3).filter(|site| *site != late) {
                    assert_eq!(dropped(&game, site, late), frame, "{what}, told by site {site}");
                    assert!(speed(&game, site) > 58.0, "{what}: site {site} plays at {:.1} fps", speed(&game, site));
                }
                game.assert_sound();
            }
        }
    }
}

#[test]
fn of_two_the_coordinator_goes_on_alone() {
    let mut game = play(&Setup::new(2, rtt(60)), Some(LATE_AFTER));
    game.run_until(at(secs(5)));
    slow_down(&mut game, 1);
    game.run_for(SOON + secs(2));
    assert!(dropped(&game, 0, 1).is_some() && speed(&game, 0) > 58.0);
    assert_eq!(game.state(1), State::Ended(SessionEnd::Dropped), "it is told");
    game.assert_sound();
}

#[test]
fn a_late_coordinator_is_waited_for() {
    let mut game = play(&Setup::new(3, rtt(60)), Some(LATE_AFTER));
    game.run_until(at(secs(5)));
    slow_down(&mut game, 0);
    game.run_for(secs(5));
    assert!((0..3).all(|site| (0..3).all(|other| dropped(&game, site, other).is_none())));
    game.assert_sound();
}

#[test]
fn nobody_is_dropped_for_a_hiccup_nor_for_what_another_does() {
    for window in [0, 8] {
        let mut game = play(&Setup { window, ..Setup::new(4, lossy(150, 0.03)) }, Some(LATE_AFTER));
        game.run_until(at(secs(5)));
        game.world.pause(2, game.now() + ms(350));
        game.run_for(secs(6));
        assert!((0..4).all(|site| dropped(&game, 0, site).is_none()), "window {window}");
        slow_down(&mut game, 3);
        game.run_for(SOON + secs(3));
        assert!(dropped(&game, 0, 3).is_some() && (0..3).all(|site| dropped(&game, 0, site).is_none()));
        game.assert_sound();
    }
}

#[test]
fn who_was_late_is_let_in_again_when_it_is_not_any_more() {
    let mut game = play(&Setup::new(3, rtt(60)), Some(LATE_AFTER));
    game.run_until(at(secs(5)));
    move_away(&mut game, 2, &rtt(700));
    game.run_for(SOON + secs(2));
    let out = game.now();
    assert_eq!(game.state(2), State::Ended(SessionEnd::Dropped));
    game.come(2, |_| {});
    game.run_for(secs(10));
    assert!(!has_joined(&game, 0, 2, out), "its way is still too long");
    assert!(speed(&game, 0) > 58.0, "it holds up the others at {:.1} fps", speed(&game, 0));
    move_away(&mut game, 2, &rtt(60));
    game.run_for(secs(12));
    assert!(has_joined(&game, 0, 2, out), "it is {:?}", game.state(2));
    assert!((0..3).all(|site| speed(&game, site) > 58.0));
    game.assert_sound();
}

#[test]
fn the_coordinator_can_go_on_without_anybody() {
    for sites in [2, 3, 5] {
        let mut game = play(&Setup::new(sites, lossy(100, 0.05)), None);
        game.run_until(at(secs(5)));
        let now = game.local(1);
        assert!(!game.world.sites[1].session.drop_site(now, id(0)), "only the coordinator can");
        let now = game.local(0);
        assert!(!game.world.sites[0].session.drop_site(now, id(0)), "not without itself");
        assert!(game.world.sites[0].session.drop_site(now, id(sites - 1)));
        game.world.wake(0);
        game.run_for(secs(3));
        let frame = dropped(&game, 0, sites - 1);
        assert!(frame.is_some());
        assert!((0..sites - 1).all(|site| dropped(&game, site, sites - 1) == frame && speed(&game, site) > 58.0));
        assert_eq!(game.state(sites - 1), State::Ended(SessionEnd::Dropped), "it is told");
        game.assert_sound();
    }
}

/// The coordinator goes on without a site that leaves just then, with a button held: for who was dropped it is held on, for who left it
/// is not, and all see the same.
#[test]
fn who_leaves_when_it_is_dropped_does_one_of_both_for_all() {
    for after in (0..=160).step_by(8) {
        let mut game = play(&Setup::new(3, rtt(60)), None);
        game.world.sites.iter_mut().for_each(|site| site.player.restlessness = 1.0);
        game.run_until(at(secs(5)));
        let now = game.local(0);
        assert!(game.world.sites[0].session.drop_site(now, id(2)));
        game.world.wake(0);
        game.run_for(ms(after));
        game.leave(2);
        game.run_for(secs(3));
        assert!((0..2).all(|site| speed(&game, site) > 58.0), "left after {after} ms");
        game.assert_sound();
    }
}

/// All who stay would have to agree, and one of them does not hear the coordinator: asking would only stop the game.
#[test]
fn where_the_coordinator_does_not_hear_all_who_is_late_is_waited_for() {
    let mut game = play(&Setup::new(4, rtt(60)), Some(LATE_AFTER));
    game.run_until(at(secs(5)));
    game.world.set_cut(0, 3, true);
    game.run_for(secs(1));
    game.world.pause(2, game.now() + ms(1_200));
    game.run_for(ms(1_200) + secs(4));
    for site in 0..4 {
        assert!(speed(&game, site) > 50.0, "site {site} plays at {:.1} fps", speed(&game, site));
        assert_eq!(dropped(&game, 0, site), None);
    }
    game.assert_sound();
}

/// Site 3 is dropped while only the slow site 2 has its last inputs, and site 2 dies. The coordinator waits for those inputs for a while and then drops
/// site 2 as well.
#[test]
fn dead_holder_of_a_dropped_sites_last_inputs_is_dropped_too() {
    let (holder, gone) = (2, 3);
    let mut game = play(&Setup::new(4, rtt(30)), Some(LATE_AFTER));
    game.run_until(at(secs(8)));
    game.world.sites[holder].step_cost = ms(250);
    game.run_for(ms(300));
    (0..holder).for_each(|site| game.world.set_cut(site, gone, true));
    game.run_for(ms(50));
    let now = game.local(0);
    game.world.sites[0].session.drop_site(now, id(gone));
    game.world.wake(0);
    game.run_while(secs(3), |game| dropped(game, 0, gone).is_none());
    assert_eq!(dropped(&game, 0, holder), None);
    game.crash(gone);
    game.crash(holder);
    game.run_for(secs(30));
    assert!(dropped(&game, 0, holder).is_some(), "{:?}", game.state(0));
    assert!(speed(&game, 0) > 59.0, "{:.1} fps", speed(&game, 0));
}

#[test]
fn too_little_patience_is_refused() {
    let config = Config { stall_limit: Some(MIN_STALL_LIMIT / 2), ..Setup::new(2, rtt(0)).config(0) };
    let refused = Session::new(Instant::ZERO, config).expect_err("nobody could play");
    assert_eq!(refused, ConfigError::StallLimitTooShort(MIN_STALL_LIMIT / 2));
    assert!(refused.to_string().contains("the least is 100"), "{refused}");
}
