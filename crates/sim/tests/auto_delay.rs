//! The dials turn by themselves to what links and machines need: soon, by one frame, for all at once; and then they rest.

mod common;

use common::{ActionKind, SessionSetup, TestSession, at, lossy_link, ms, rtt_link, secs};
use coplay::frame::FrameRate;
use coplay::id::SiteId;
use coplay::session::{Config, Event};
use coplay::time::Instant;
use coplay_sim::link::{Jitter, LinkConfig, Loss};

/// What was told of one turn: the frame, lag, window, need and the site that needs it.
type DelayChange = (u32, u32, u32, u32, SiteId);

fn start_with_auto_delay(setup: &SessionSetup, change: impl Fn(usize, &mut Config)) -> TestSession {
    setup.start_with(|site, config| {
        config.settings.auto_tune = true;
        config.can_save = true;
        change(site, config);
    })
}

fn setup(sites: usize, lag: u32, link: LinkConfig) -> SessionSetup {
    SessionSetup { input_delay: lag, ..SessionSetup::new(sites, link) }
}

/// All turns that a site told of, and when.
fn delay_changes(game: &TestSession, site: usize) -> Vec<(Instant, DelayChange)> {
    let turn = |event: &Event| match *event {
        Event::DelayChanged { frame, input_delay: lag, prediction_window: window, input_age: need, site } => {
            Some((frame.number(), lag, window, need, site))
        }
        _ => None,
    };
    game.events_of(site).filter_map(|told| turn(&told.event).map(|turn| (told.at, turn))).collect()
}

/// Lag and window as they were told last.
fn current_delay_settings(game: &TestSession, before: (u32, u32)) -> (u32, u32) {
    delay_changes(game, 0).last().map_or(before, |(_, (_, lag, window, ..))| (*lag, *window))
}

/// Turns since then.
fn count_changes_since(game: &TestSession, since: Instant) -> usize {
    delay_changes(game, 0).iter().filter(|(at, _)| *at >= since).count()
}

fn total_stalls(game: &TestSession, sites: usize) -> u64 {
    (0..sites).map(|site| game.stats(site).stalls).sum()
}

/// All sites turn alike, at the same frame and by one frame at a time, and have the same states all along.
#[track_caller]
fn assert_changes_agree(game: &TestSession, sites: usize, mut before: (u32, u32)) {
    let told = |site: usize| delay_changes(game, site).into_iter().map(|(_, turn)| turn).collect::<Vec<_>>();
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
    game.assert_consistent();
}

fn print_changes(what: &str, game: &TestSession) {
    for (at, (frame, lag, window, need, site)) in delay_changes(game, 0) {
        println!(
            "{what}: {:.1} s, frame {frame}: lag {lag}, window {window}: site {site} needs {need}",
            (at - Instant::ZERO).as_secs_f64()
        );
    }
}

#[test]
fn clean_link_gets_short_input_delay_and_covering_prediction_window() {
    for lag in [2, 4] {
        let mut game = start_with_auto_delay(&setup(2, lag, rtt_link(100)), |_, _| {});
        game.run_until(at(secs(60)));
        print_changes("clean", &game);
        let (settled, stalled) = (game.now(), total_stalls(&game, 2));
        game.run_for(secs(60));
        let (lag_now, window) = current_delay_settings(&game, (lag, 0));
        // 50 ms are three frames, four with a clock's luck, and one is to spare.
        assert!(lag_now == 2 && (2..=3).contains(&window), "lag {lag_now}, window {window}");
        assert_eq!(count_changes_since(&game, settled), 0);
        assert_eq!(total_stalls(&game, 2) - stalled, 0);
        assert_changes_agree(&game, 2, (lag, 0));
    }
}

#[test]
fn longer_latency_is_followed_quickly_and_shorter_latency_slowly() {
    let mut game = start_with_auto_delay(&setup(2, 2, rtt_link(60)), |_, _| {});
    game.run_until(at(secs(30)));
    let before = current_delay_settings(&game, (2, 0));
    let set = |game: &mut TestSession, millis: i64| {
        game.network.link(0, 1).set_config(rtt_link(millis));
        game.network.link(1, 0).set_config(rtt_link(millis));
    };
    let worse = game.now();
    set(&mut game, 200);
    game.run_for(secs(15));
    let stalled = total_stalls(&game, 2);
    game.run_for(secs(30));
    let after = current_delay_settings(&game, (2, 0));
    let last = delay_changes(&game, 0).last().map(|(at, _)| *at).expect("they turned");
    println!("from {before:?} to {after:?} within {:.1} s", (last - worse).as_secs_f64());
    assert_eq!(after.0, 2, "repairs reach, so lag stays");
    assert!(after.1 >= before.1 + 4 && last - worse < secs(15), "{before:?} {after:?} {:?}", last - worse);
    assert_eq!(total_stalls(&game, 2), stalled, "frames wait though the dials have turned");
    let better = game.now();
    set(&mut game, 60);
    game.run_for(secs(160));
    print_changes("longer and shorter", &game);
    let down: Vec<_> = delay_changes(&game, 0).into_iter().filter(|(at, _)| *at >= better).collect();
    assert_eq!(current_delay_settings(&game, (2, 0)), before);
    assert!(down[0].0 - better > secs(10), "the first turn back comes after {}", down[0].0 - better);
    assert!(down.windows(2).all(|pair| pair[1].0 - pair[0].0 > secs(8)), "{down:?}");
    assert_changes_agree(&game, 2, (2, 0));
}

/// Turns within a minute on a link, once they have settled.
fn changes_in_a_minute(seed: u64, link: &LinkConfig) -> (usize, TestSession) {
    let mut game = start_with_auto_delay(&SessionSetup { seed, ..setup(2, 2, link.clone()) }, |_, _| {});
    game.run_until(at(secs(45)));
    let settled = game.now();
    game.run_for(secs(60));
    (count_changes_since(&game, settled), game)
}

#[test]
fn noisy_link_does_not_cause_oscillation() {
    let noisy = LinkConfig { jitter: Jitter::Uniform(ms(30)), ..lossy_link(60, 0.05) };
    let restless = LinkConfig { jitter: Jitter::Exponential { mean: ms(15) }, reorder: true, ..lossy_link(80, 0.05) };
    let bursty = LinkConfig { jitter: Jitter::Uniform(ms(30)), loss: Loss::bursts(0.05, 3.0), ..rtt_link(60) };
    for (name, link) in [("noisy", noisy), ("restless", restless), ("bursty", bursty)] {
        let mut counts = Vec::new();
        for seed in 1..=8 {
            let (count, game) = changes_in_a_minute(seed, &link);
            let (lag, _) = current_delay_settings(&game, (2, 0));
            assert_eq!(lag, 2, "{name}, seed {seed}");
            assert_changes_agree(&game, 2, (2, 0));
            counts.push(count);
        }
        println!("{name}: turns in a minute {counts:?}");
        assert!(counts.iter().all(|count| *count <= 3), "{name}: {counts:?}");
    }
}

/// The computer of one site does something else for a moment now and then, in the middle of a repair.
#[test]
fn short_machine_stall_does_not_change_the_delay() {
    for seed in 1..=3 {
        let mut game = start_with_auto_delay(&SessionSetup { seed, ..setup(2, 2, rtt_link(140)) }, |_, _| {});
        game.network.sites[1].step_cost = ms(1);
        game.run_until(at(secs(60)));
        let then = game.now();
        let settled = current_delay_settings(&game, (2, 0));
        for _ in 0..6 {
            let loads = game.count_actions(1, ActionKind::Load, then);
            game.run_while(secs(5), |game| game.count_actions(1, ActionKind::Load, then) == loads);
            game.network.sites[1].step_cost = ms(40);
            game.run_for(ms(2));
            game.network.sites[1].step_cost = ms(1);
            game.run_for(secs(10));
        }
        // Frames that were late for it may ask for a frame more of guesses; but no machine is slow.
        let (lag, window) = current_delay_settings(&game, (2, 0));
        assert!(lag == settled.0 && window >= settled.1, "seed {seed}: {:?}", delay_changes(&game, 0));
        assert!(count_changes_since(&game, then) <= 1, "seed {seed}: {:?}", delay_changes(&game, 0));
        assert_changes_agree(&game, 2, (2, 0));
    }
}

#[test]
fn slow_machine_gets_a_prediction_window_that_fits_into_a_frame() {
    let mut game = start_with_auto_delay(&setup(2, 2, lossy_link(200, 0.02)), |_, _| {});
    game.network.sites[1].step_cost = ms(3);
    game.run_until(at(secs(120)));
    print_changes("slow machine", &game);
    let (lag, window) = current_delay_settings(&game, (2, 0));
    // Four steps, three of them repairs, are 12 of 16.7 ms.
    assert_eq!(window, 3);
    assert!((4..=6).contains(&lag), "the rest of the way is lag: {lag}");
    let since = game.now();
    game.run_for(secs(30));
    let fps = game.fps(1, since, game.now());
    assert!((59.0..61.0).contains(&fps), "{fps}");
    assert_changes_agree(&game, 2, (2, 0));
}

/// A computer that has much else to do for a while is trusted again afterwards, though with the window shut nothing is repaired there.
#[test]
fn recovered_machine_gets_its_prediction_window_back() {
    let mut game = start_with_auto_delay(&setup(2, 2, rtt_link(120)), |_, _| {});
    game.network.sites[1].step_cost = ms(2);
    game.run_until(at(secs(60)));
    let before = current_delay_settings(&game, (2, 0));
    assert!(before.0 == 2 && before.1 >= 2, "{before:?}");
    game.network.sites[1].step_cost = ms(12);
    game.run_for(secs(60));
    let busy = current_delay_settings(&game, (2, 0));
    assert!(busy.0 > 2 && busy.1 == 0, "{busy:?}");
    game.network.sites[1].step_cost = ms(2);
    game.run_for(secs(240));
    print_changes("busy for a while", &game);
    assert_eq!(current_delay_settings(&game, (2, 0)), before);
    assert_changes_agree(&game, 2, (2, 0));
}

#[test]
fn machine_without_save_support_gets_input_delay_only() {
    let mut game = start_with_auto_delay(&setup(3, 2, rtt_link(120)), |site, config| config.can_save = site != 1);
    game.run_until(at(secs(60)));
    print_changes("cannot save", &game);
    let stalled = total_stalls(&game, 3);
    game.run_for(secs(30));
    let (lag, window) = current_delay_settings(&game, (2, 0));
    assert_eq!(window, 0);
    assert!((4..=6).contains(&lag), "{lag}");
    assert!(delay_changes(&game, 0).iter().all(|(_, (_, _, window, ..))| *window == 0), "never any window");
    assert_eq!(total_stalls(&game, 3), stalled);
    assert_changes_agree(&game, 3, (2, 0));
}

#[test]
fn one_bad_link_of_four_is_covered_for_all_sites() {
    let mut game = start_with_auto_delay(&setup(4, 2, rtt_link(30)), |_, _| {});
    let bad = LinkConfig { jitter: Jitter::Uniform(ms(20)), ..lossy_link(180, 0.03) };
    for other in 0..3 {
        game.network.link(3, other).set_config(bad.clone());
        game.network.link(other, 3).set_config(bad.clone());
    }
    game.run_until(at(secs(60)));
    print_changes("one bad link", &game);
    let (since, stalled) = (game.now(), total_stalls(&game, 4));
    game.run_for(secs(60));
    let (lag, window) = current_delay_settings(&game, (2, 0));
    assert!(lag == 2 && window >= 5, "lag {lag}, window {window}");
    let frames = 4.0 * 60.0 * 60.0;
    let share = (total_stalls(&game, 4) - stalled) as f64 / frames;
    println!("one bad link: {:.2} % of all frames wait", share * 100.0);
    assert!(share < 0.01, "{share}");
    assert!((0..4).all(|site| game.fps(site, since, game.now()) > 59.0));
    assert_changes_agree(&game, 4, (2, 0));
}

#[test]
fn initial_prediction_window_is_kept_until_measurements_arrive() {
    // The first words about the machines' condition are lost, and with them nothing is known yet.
    let mut game =
        start_with_auto_delay(&SessionSetup { prediction_window: 6, ..setup(3, 2, lossy_link(100, 0.3)) }, |_, _| {});
    game.run_until(at(secs(12)));
    print_changes("no news", &game);
    assert!(delay_changes(&game, 0).iter().all(|(_, (_, lag, ..))| *lag == 2), "{:?}", delay_changes(&game, 0));
    assert_changes_agree(&game, 3, (2, 6));
}

#[test]
fn lower_frame_rate_needs_fewer_frames() {
    let half = |_: usize, config: &mut Config| {
        config.settings.rate = FrameRate::per_second(30).expect("a rate");
    };
    let mut game = start_with_auto_delay(&setup(2, 2, rtt_link(100)), half);
    game.run_until(at(secs(90)));
    print_changes("30 fps", &game);
    let (lag, window) = current_delay_settings(&game, (2, 0));
    assert!(lag == 2 && window <= 1, "lag {lag}, window {window}");
    assert_changes_agree(&game, 2, (2, 0));
}
