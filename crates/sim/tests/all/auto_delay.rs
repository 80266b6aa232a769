//! Auto-tuning adapts the delay settings to links and machines. It changes them by at most one frame at a time, at the
//! same frame at all sites, and stops when they fit.

use crate::common::{ActionKind, SessionSetup, TestSession, at, lossy_link, ms, rtt_link, secs};
use coplay::frame::FrameRate;
use coplay::id::SiteId;
use coplay::session::{Config, Event};
use coplay::time::Instant;
use coplay_links::link::{Jitter, LinkConfig, Loss};

/// A change of the delay settings: frame, input delay, prediction window, input age and the site with that input age.
type DelayChange = (u32, u32, u32, u32, SiteId);

fn start_with_auto_delay(setup: &SessionSetup, change: impl Fn(usize, &mut Config)) -> TestSession {
    setup.start_with(|site, config| {
        config.settings.auto_tune = true;
        config.can_save = true;
        change(site, config);
    })
}

fn setup(sites: usize, input_delay: u32, link: LinkConfig) -> SessionSetup {
    SessionSetup { input_delay, ..SessionSetup::new(sites, link) }
}

/// Returns the delay changes that a site reported, with their true times.
fn delay_changes(game: &TestSession, site: usize) -> Vec<(Instant, DelayChange)> {
    let change = |event: &Event| match *event {
        Event::DelayChanged { frame, input_delay, prediction_window, input_age, site } => {
            Some((frame.number(), input_delay, prediction_window, input_age, site))
        }
        _ => None,
    };
    game.events_of(site).filter_map(|reported| change(&reported.event).map(|change| (reported.at, change))).collect()
}

/// Returns the input delay and the prediction window after the last change that site 0 reported, or `before` if it
/// reported none.
fn current_delay_settings(game: &TestSession, before: (u32, u32)) -> (u32, u32) {
    delay_changes(game, 0)
        .last()
        .map_or(before, |(_, (_, input_delay, prediction_window, ..))| (*input_delay, *prediction_window))
}

/// Returns the number of delay changes that site 0 reported since `since`.
fn count_changes_since(game: &TestSession, since: Instant) -> usize {
    delay_changes(game, 0).iter().filter(|(at, _)| *at >= since).count()
}

fn total_stalls(game: &TestSession, sites: usize) -> u64 {
    (0..sites).map(|site| game.stats(site).stalls).sum()
}

/// Asserts that all sites reported the same changes at the same frames, each by at most one frame, use the last one,
/// and agree in inputs and states.
#[track_caller]
fn assert_changes_agree(game: &TestSession, sites: usize, mut before: (u32, u32)) {
    let changes = |site: usize| delay_changes(game, site).into_iter().map(|(_, change)| change).collect::<Vec<_>>();
    let first = changes(0);
    for site in 1..sites {
        assert_eq!(changes(site), first, "site {site}");
    }
    for (frame, input_delay, prediction_window, input_age, site) in first {
        let apart = (input_delay.abs_diff(before.0), prediction_window.abs_diff(before.1));
        assert!(
            apart.0 <= 1 && apart.1 <= 1,
            "from {before:?} to {:?} at frame {frame}",
            (input_delay, prediction_window)
        );
        assert!(site.index() < sites && input_age <= 60, "the input age of site {site} is {input_age}");
        before = (input_delay, prediction_window);
    }
    for site in 0..sites {
        assert_eq!((game.stats(site).input_delay, game.stats(site).prediction_window), before, "site {site}");
    }
    game.assert_consistent();
}

fn print_changes(case: &str, game: &TestSession) {
    for (at, (frame, input_delay, prediction_window, input_age, site)) in delay_changes(game, 0) {
        println!(
            "{case}: {:.1} s, frame {frame}: input delay {input_delay}, prediction window {prediction_window}, \
             input age {input_age} at site {site}",
            (at - Instant::ZERO).as_secs_f64()
        );
    }
}

#[test]
fn clean_link_gets_short_input_delay_and_covering_prediction_window() {
    for input_delay in [2, 4] {
        let mut game = start_with_auto_delay(&setup(2, input_delay, rtt_link(100)), |_, _| {});
        game.run_until(at(secs(60)));
        print_changes("clean", &game);
        let (settled, stalls) = (game.now(), total_stalls(&game, 2));
        game.run_for(secs(60));
        let (final_delay, prediction_window) = current_delay_settings(&game, (input_delay, 0));
        // 50 ms are three frames, or four depending on the clock phase, and one frame is margin.
        assert!(
            final_delay == 2 && (2..=3).contains(&prediction_window),
            "input delay {final_delay}, prediction window {prediction_window}"
        );
        assert_eq!(count_changes_since(&game, settled), 0);
        assert_eq!(total_stalls(&game, 2) - stalls, 0);
        assert_changes_agree(&game, 2, (input_delay, 0));
    }
}

#[test]
fn longer_latency_is_followed_quickly_and_shorter_latency_slowly() {
    let mut game = start_with_auto_delay(&setup(2, 2, rtt_link(60)), |_, _| {});
    game.run_until(at(secs(30)));
    let before = current_delay_settings(&game, (2, 0));
    let set_rtt = |game: &mut TestSession, millis: i64| {
        game.network.link(0, 1).set_config(rtt_link(millis));
        game.network.link(1, 0).set_config(rtt_link(millis));
    };
    let worse = game.now();
    set_rtt(&mut game, 200);
    game.run_for(secs(15));
    let stalls = total_stalls(&game, 2);
    game.run_for(secs(30));
    let after = current_delay_settings(&game, (2, 0));
    let last = delay_changes(&game, 0).last().map(|(at, _)| *at).expect("a delay change");
    println!("from {before:?} to {after:?} within {:.1} s", (last - worse).as_secs_f64());
    assert_eq!(after.0, 2, "prediction suffices, so the input delay stays");
    assert!(after.1 >= before.1 + 4 && last - worse < secs(15), "{before:?} {after:?} {:?}", last - worse);
    assert_eq!(total_stalls(&game, 2), stalls, "frames stall although the delay settings have adapted");
    let better = game.now();
    set_rtt(&mut game, 60);
    game.run_for(secs(160));
    print_changes("longer and shorter", &game);
    let down: Vec<_> = delay_changes(&game, 0).into_iter().filter(|(at, _)| *at >= better).collect();
    assert_eq!(current_delay_settings(&game, (2, 0)), before);
    assert!(down[0].0 - better > secs(10), "the first decrease comes after {}", down[0].0 - better);
    assert!(down.windows(2).all(|pair| pair[1].0 - pair[0].0 > secs(8)), "{down:?}");
    assert_changes_agree(&game, 2, (2, 0));
}

/// Returns the number of delay changes within one minute on a link, after 45 s to settle, and the session.
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
            let (input_delay, _) = current_delay_settings(&game, (2, 0));
            assert_eq!(input_delay, 2, "{name}, seed {seed}");
            assert_changes_agree(&game, 2, (2, 0));
            counts.push(count);
        }
        println!("{name}: delay changes per minute {counts:?}");
        assert!(counts.iter().all(|count| *count <= 3), "{name}: {counts:?}");
    }
}

/// The computer of one site stalls six times, each time in the middle of a rollback. Its machine does not count as slow
/// because of that.
#[test]
fn short_machine_stall_does_not_change_the_delay() {
    for seed in 1..=3 {
        let mut game = start_with_auto_delay(&SessionSetup { seed, ..setup(2, 2, rtt_link(140)) }, |_, _| {});
        game.network.nodes[1].step_cost = ms(1);
        game.run_until(at(secs(60)));
        let then = game.now();
        let settled = current_delay_settings(&game, (2, 0));
        for _ in 0..6 {
            let loads = game.count_actions(1, ActionKind::Load, then);
            game.run_while(secs(5), |game| game.count_actions(1, ActionKind::Load, then) == loads);
            game.network.nodes[1].step_cost = ms(40);
            game.run_for(ms(2));
            game.network.nodes[1].step_cost = ms(1);
            game.run_for(secs(10));
        }
        // Frames that the stalls made late may add one frame of prediction, but no machine counts as slow.
        let (input_delay, prediction_window) = current_delay_settings(&game, (2, 0));
        assert!(
            input_delay == settled.0 && prediction_window >= settled.1,
            "seed {seed}: {:?}",
            delay_changes(&game, 0)
        );
        assert!(count_changes_since(&game, then) <= 1, "seed {seed}: {:?}", delay_changes(&game, 0));
        assert_changes_agree(&game, 2, (2, 0));
    }
}

#[test]
fn slow_machine_gets_a_prediction_window_that_fits_into_a_frame() {
    let mut game = start_with_auto_delay(&setup(2, 2, lossy_link(200, 0.02)), |_, _| {});
    game.network.nodes[1].step_cost = ms(3);
    game.run_until(at(secs(120)));
    print_changes("slow machine", &game);
    let (input_delay, prediction_window) = current_delay_settings(&game, (2, 0));
    // Four steps, three of them resimulated, take 12 of 16.7 ms.
    assert_eq!(prediction_window, 3);
    assert!((4..=6).contains(&input_delay), "the rest of the latency is input delay: {input_delay}");
    let since = game.now();
    game.run_for(secs(30));
    let fps = game.fps(1, since, game.now());
    assert!((59.0..61.0).contains(&fps), "{fps}");
    assert_changes_agree(&game, 2, (2, 0));
}

/// A computer that was busy for a while gets its prediction window back, although it resimulates nothing while that
/// window is 0.
#[test]
fn recovered_machine_gets_its_prediction_window_back() {
    let mut game = start_with_auto_delay(&setup(2, 2, rtt_link(120)), |_, _| {});
    game.network.nodes[1].step_cost = ms(2);
    game.run_until(at(secs(60)));
    let before = current_delay_settings(&game, (2, 0));
    assert!(before.0 == 2 && before.1 >= 2, "{before:?}");
    game.network.nodes[1].step_cost = ms(12);
    game.run_for(secs(60));
    let busy = current_delay_settings(&game, (2, 0));
    assert!(busy.0 > 2 && busy.1 == 0, "{busy:?}");
    game.network.nodes[1].step_cost = ms(2);
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
    let stalls = total_stalls(&game, 3);
    game.run_for(secs(30));
    let (input_delay, prediction_window) = current_delay_settings(&game, (2, 0));
    assert_eq!(prediction_window, 0);
    assert!((4..=6).contains(&input_delay), "{input_delay}");
    assert!(
        delay_changes(&game, 0).iter().all(|(_, (_, _, prediction_window, ..))| *prediction_window == 0),
        "the prediction window stays 0"
    );
    assert_eq!(total_stalls(&game, 3), stalls);
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
    let (since, stalls) = (game.now(), total_stalls(&game, 4));
    game.run_for(secs(60));
    let (input_delay, prediction_window) = current_delay_settings(&game, (2, 0));
    assert!(
        input_delay == 2 && prediction_window >= 5,
        "input delay {input_delay}, prediction window {prediction_window}"
    );
    let frames = 4.0 * 60.0 * 60.0;
    let share = (total_stalls(&game, 4) - stalls) as f64 / frames;
    println!("one bad link: {:.2} % of all frames stall", share * 100.0);
    assert!(share < 0.01, "{share}");
    assert!((0..4).all(|site| game.fps(site, since, game.now()) > 59.0));
    assert_changes_agree(&game, 4, (2, 0));
}

#[test]
fn initial_prediction_window_is_kept_until_measurements_arrive() {
    // The first reports about the machines are lost, so that nothing is known about them yet.
    let mut game =
        start_with_auto_delay(&SessionSetup { prediction_window: 6, ..setup(3, 2, lossy_link(100, 0.3)) }, |_, _| {});
    game.run_until(at(secs(12)));
    print_changes("no measurements", &game);
    assert!(
        delay_changes(&game, 0).iter().all(|(_, (_, input_delay, ..))| *input_delay == 2),
        "{:?}",
        delay_changes(&game, 0)
    );
    assert_changes_agree(&game, 3, (2, 6));
}

#[test]
fn lower_frame_rate_needs_fewer_frames() {
    let half_rate = |_: usize, config: &mut Config| {
        config.settings.rate = FrameRate::per_second(30).expect("a rate");
    };
    let mut game = start_with_auto_delay(&setup(2, 2, rtt_link(100)), half_rate);
    game.run_until(at(secs(90)));
    print_changes("30 fps", &game);
    let (input_delay, prediction_window) = current_delay_settings(&game, (2, 0));
    assert!(
        input_delay == 2 && prediction_window <= 1,
        "input delay {input_delay}, prediction window {prediction_window}"
    );
    assert_changes_agree(&game, 2, (2, 0));
}
