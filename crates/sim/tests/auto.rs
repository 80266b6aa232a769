//! The dials turn by themselves to what links and machines need: soon, by one frame, for all at once; and then they rest.

mod common;

use common::{Act, Game, Setup, at, lossy, ms, rtt, secs};
use coplay::frame::FrameRate;
use coplay::id::SiteId;
use coplay::session::{Config, Event};
use coplay::time::Instant;
use coplay_sim::link::{Jitter, LinkConfig, Loss};

/// What was told of one turn: the frame, lag, window, need and the site that needs it.
type Turn = (u32, u32, u32, u32, SiteId);

fn auto(setup: &Setup, change: impl Fn(usize, &mut Config)) -> Game {
    setup.play_with(|site, config| {
        config.settings.auto_tune = true;
        config.can_save = true;
        change(site, config);
    })
}

fn setup(sites: usize, lag: u32, link: LinkConfig) -> Setup {
    Setup { lag, ..Setup::new(sites, link) }
}

/// All turns that a site told of, and when.
fn turns(game: &Game, site: usize) -> Vec<(Instant, Turn)> {
    let turn = |event: &Event| match *event {
        Event::DelayChanged { frame, input_delay: lag, prediction_window: window, input_age: need, site } => {
            Some((frame.number(), lag, window, need, site))
        }
        _ => None,
    };
    game.told(site).filter_map(|told| turn(&told.event).map(|turn| (told.at, turn))).collect()
}

/// Lag and window as they were told last.
fn dials(game: &Game, before: (u32, u32)) -> (u32, u32) {
    turns(game, 0).last().map_or(before, |(_, (_, lag, window, ..))| (*lag, *window))
}

/// Turns since then.
fn turned(game: &Game, since: Instant) -> usize {
    turns(game, 0).iter().filter(|(at, _)| *at >= since).count()
}

fn stalls(game: &Game, sites: usize) -> u64 {
    (0..sites).map(|site| game.stats(site).stalls).sum()
}

/// All sites turn alike, at the same frame and by one frame at a time, and have the same states all along.
#[track_caller]
fn assert_fair(game: &Game, sites: usize, mut before: (u32, u32)) {
    let told = |site: usize| turns(game, site).into_iter().map(|(_, turn)| turn).collect::<Vec<_>>();
    let first = told(0);
    for site in 1..sites {
        assert_eq!(told(site), first, "site {site}");
    }
    for (frame, lag, window, need, site) in first {
        let apart = (lag.abs_diff(before.0), window.abs_diff(before.1));
        assert!(apart.0 <= 1 && apart.1 <= 1, "from {before:?} to {:?} at frame {frame}", (lag, window));
        assert!(site.index() < sites && need <= 60, "site {site} needs {need}");
        before = (lag, window);
    }
    for site in 0..sites {
        assert_eq!((game.stats(site).input_delay, game.stats(site).prediction_window), before, "site {site}");
    }
    game.assert_sound();
}

fn say(what: &str, game: &Game) {
    for (at, (frame, lag, window, need, site)) in turns(game, 0) {
        println!(
            "{what}: {:.1} s, frame {frame}: lag {lag}, window {window}: site {site} needs {need}",
            (at - Instant::ZERO).as_secs_f64()
        );
    }
}

#[test]
fn a_clean_link_gets_a_short_lag_and_a_window_that_covers_it() {
    for lag in [2, 4] {
        let mut game = auto(&setup(2, lag, rtt(100)), |_, _| {});
        game.run_until(at(secs(60)));
        say("clean", &game);
        let (settled, stalled) = (game.now(), stalls(&game, 2));
        game.run_for(secs(60));
        let (lag_now, window) = dials(&game, (lag, 0));
        // 50 ms are three frames, four with a clock's luck, and one is to spare.
        assert!(lag_now == 2 && (2..=3).contains(&window), "lag {lag_now}, window {window}");
        assert_eq!(turned(&game, settled), 0);
        assert_eq!(stalls(&game, 2) - stalled, 0);
        assert_fair(&game, 2, (lag, 0));
    }
}

#[test]
fn a_longer_way_is_followed_soon_and_a_shorter_one_late() {
    let mut game = auto(&setup(2, 2, rtt(60)), |_, _| {});
    game.run_until(at(secs(30)));
    let before = dials(&game, (2, 0));
    let set = |game: &mut Game, millis: i64| {
        game.world.link(0, 1).set_config(rtt(millis));
        game.world.link(1, 0).set_config(rtt(millis));
    };
    let worse = game.now();
    set(&mut game, 200);
    game.run_for(secs(15));
    let stalled = stalls(&game, 2);
    game.run_for(secs(30));
    let after = dials(&game, (2, 0));
    let last = turns(&game, 0).last().map(|(at, _)| *at).expect("they turned");
    println!("from {before:?} to {after:?} within {:.1} s", (last - worse).as_secs_f64());
    assert_eq!(after.0, 2, "repairs reach, so lag stays");
    assert!(after.1 >= before.1 + 4 && last - worse < secs(15), "{before:?} {after:?} {:?}", last - worse);
    assert_eq!(stalls(&game, 2), stalled, "frames wait though the dials have turned");
    let better = game.now();
    set(&mut game, 60);
    game.run_for(secs(160));
    say("longer and shorter", &game);
    let down: Vec<_> = turns(&game, 0).into_iter().filter(|(at, _)| *at >= better).collect();
    assert_eq!(dials(&game, (2, 0)), before);
    assert!(down[0].0 - better > secs(10), "the first turn back comes after {}", down[0].0 - better);
    assert!(down.windows(2).all(|pair| pair[1].0 - pair[0].0 > secs(8)), "{down:?}");
    assert_fair(&game, 2, (2, 0));
}

/// Turns within a minute on a link, once they have settled.
fn turns_in_a_minute(seed: u64, link: &LinkConfig) -> (usize, Game) {
    let mut game = auto(&Setup { seed, ..setup(2, 2, link.clone()) }, |_, _| {});
    game.run_until(at(secs(45)));
    let settled = game.now();
    game.run_for(secs(60));
    (turned(&game, settled), game)
}

#[test]
fn a_noisy_link_does_not_make_them_turn_all_the_time() {
    let noisy = LinkConfig { jitter: Jitter::Uniform(ms(30)), ..lossy(60, 0.05) };
    let restless = LinkConfig { jitter: Jitter::Exponential { mean: ms(15) }, reorder: true, ..lossy(80, 0.05) };
    let bursty = LinkConfig { jitter: Jitter::Uniform(ms(30)), loss: Loss::bursts(0.05, 3.0), ..rtt(60) };
    for (name, link) in [("noisy", noisy), ("restless", restless), ("bursty", bursty)] {
        let mut counts = Vec::new();
        for seed in 1..=8 {
            let (count, game) = turns_in_a_minute(seed, &link);
            let (lag, _) = dials(&game, (2, 0));
            assert_eq!(lag, 2, "{name}, seed {seed}");
            assert_fair(&game, 2, (2, 0));
            counts.push(count);
        }
        println!("{name}: turns in a minute {counts:?}");
        assert!(counts.iter().all(|count| *count <= 3), "{name}: {counts:?}");
    }
}

/// The computer of one site does something else for a moment now and then, in the middle of a repair.
#[test]
fn a_hiccup_turns_nothing() {
    for seed in 1..=3 {
        let mut game = auto(&Setup { seed, ..setup(2, 2, rtt(140)) }, |_, _| {});
        game.world.sites[1].step_cost = ms(1);
        game.run_until(at(secs(60)));
        let then = game.now();
        let settled = dials(&game, (2, 0));
        for _ in 0..6 {
            let loads = game.count(1, Act::Load, then);
            game.run_while(secs(5), |game| game.count(1, Act::Load, then) == loads);
            game.world.sites[1].step_cost = ms(40);
            game.run_for(ms(2));
            game.world.sites[1].step_cost = ms(1);
            game.run_for(secs(10));
        }
        // Frames that were late for it may ask for a frame more of guesses; but no machine is slow.
        let (lag, window) = dials(&game, (2, 0));
        assert!(lag == settled.0 && window >= settled.1, "seed {seed}: {:?}", turns(&game, 0));
        assert!(turned(&game, then) <= 1, "seed {seed}: {:?}", turns(&game, 0));
        assert_fair(&game, 2, (2, 0));
    }
}

#[test]
fn a_slow_machine_gets_no_more_to_repair_than_fits_into_a_frame() {
    let mut game = auto(&setup(2, 2, lossy(200, 0.02)), |_, _| {});
    game.world.sites[1].step_cost = ms(3);
    game.run_until(at(secs(120)));
    say("slow machine", &game);
    let (lag, window) = dials(&game, (2, 0));
    // Four steps, three of them repairs, are 12 of 16.7 ms.
    assert_eq!(window, 3);
    assert!((4..=6).contains(&lag), "the rest of the way is lag: {lag}");
    let since = game.now();
    game.run_for(secs(30));
    let fps = game.fps(1, since, game.now());
    assert!((59.0..61.0).contains(&fps), "{fps}");
    assert_fair(&game, 2, (2, 0));
}

/// A computer that has much else to do for a while is trusted again afterwards, though with the window shut nothing is repaired there.
#[test]
fn a_machine_that_is_quick_again_gets_its_window_back() {
    let mut game = auto(&setup(2, 2, rtt(120)), |_, _| {});
    game.world.sites[1].step_cost = ms(2);
    game.run_until(at(secs(60)));
    let before = dials(&game, (2, 0));
    assert!(before.0 == 2 && before.1 >= 2, "{before:?}");
    game.world.sites[1].step_cost = ms(12);
    game.run_for(secs(60));
    let busy = dials(&game, (2, 0));
    assert!(busy.0 > 2 && busy.1 == 0, "{busy:?}");
    game.world.sites[1].step_cost = ms(2);
    game.run_for(secs(240));
    say("busy for a while", &game);
    assert_eq!(dials(&game, (2, 0)), before);
    assert_fair(&game, 2, (2, 0));
}

#[test]
fn a_machine_that_cannot_save_gets_lag_and_so_do_all() {
    let mut game = auto(&setup(3, 2, rtt(120)), |site, config| config.can_save = site != 1);
    game.run_until(at(secs(60)));
    say("cannot save", &game);
    let stalled = stalls(&game, 3);
    game.run_for(secs(30));
    let (lag, window) = dials(&game, (2, 0));
    assert_eq!(window, 0);
    assert!((4..=6).contains(&lag), "{lag}");
    assert!(turns(&game, 0).iter().all(|(_, (_, _, window, ..))| *window == 0), "never any window");
    assert_eq!(stalls(&game, 3), stalled);
    assert_fair(&game, 3, (2, 0));
}

#[test]
fn one_bad_link_of_four_is_named_and_covered_for_all() {
    let mut game = auto(&setup(4, 2, rtt(30)), |_, _| {});
    let bad = LinkConfig { jitter: Jitter::Uniform(ms(20)), ..lossy(180, 0.03) };
    for other in 0..3 {
        game.world.link(3, other).set_config(bad.clone());
        game.world.link(other, 3).set_config(bad.clone());
    }
    game.run_until(at(secs(60)));
    say("one bad link", &game);
    let (since, stalled) = (game.now(), stalls(&game, 4));
    game.run_for(secs(60));
    let (lag, window) = dials(&game, (2, 0));
    assert!(lag == 2 && window >= 5, "lag {lag}, window {window}");
    let frames = 4.0 * 60.0 * 60.0;
    let share = (stalls(&game, 4) - stalled) as f64 / frames;
    println!("one bad link: {:.2} % of all frames wait", share * 100.0);
    assert!(share < 0.01, "{share}");
    assert!((0..4).all(|site| game.fps(site, since, game.now()) > 59.0));
    assert_fair(&game, 4, (2, 0));
}

#[test]
fn a_window_to_begin_with_is_not_given_up_for_want_of_news() {
    // The first words about the machines' condition are lost, and with them nothing is known yet.
    let mut game = auto(&Setup { window: 6, ..setup(3, 2, lossy(100, 0.3)) }, |_, _| {});
    game.run_until(at(secs(12)));
    say("no news", &game);
    assert!(turns(&game, 0).iter().all(|(_, (_, lag, ..))| *lag == 2), "{:?}", turns(&game, 0));
    assert_fair(&game, 3, (2, 6));
}

#[test]
fn a_slow_rate_needs_fewer_frames() {
    let half = |_: usize, config: &mut Config| {
        config.settings.rate = FrameRate::per_second(30).expect("a rate");
    };
    let mut game = auto(&setup(2, 2, rtt(100)), half);
    game.run_until(at(secs(90)));
    say("30 fps", &game);
    let (lag, window) = dials(&game, (2, 0));
    assert!(lag == 2 && window <= 1, "lag {lag}, window {window}");
    assert_fair(&game, 2, (2, 0));
}
