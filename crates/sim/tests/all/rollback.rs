//! Frames may be stepped with predicted inputs: only where inputs are missing, and no deeper than the prediction
//! window. A misprediction is rolled back once, in time for the next frame, at the same cost for all sites.

use crate::common::manual_hosts::ManualHosts;
use crate::common::{
    ActionKind, MachineAction, SessionSetup, TestSession, at, lossy_link, mean, mean_abs_deviation, ms, rtt_link, secs,
};
use coplay::frame::Frame;
use coplay::input::{InputWord, Ownership};
use coplay::pace::Pacing;
use coplay::session::{Config, Event, InputHistory, InputPredictor, SessionEnd, State};
use coplay::time::{Instant, TimeDelta};
use coplay_links::link::{Jitter, LinkConfig};
use coplay_sim::clock::NodeClock;
use coplay_sim::site::RandomPlayer;

/// Returns a setup with an input delay of 2 frames and this prediction window.
fn rollback_setup(sites: usize, link: LinkConfig, prediction_window: u32) -> SessionSetup {
    SessionSetup { input_delay: 2, prediction_window, ..SessionSetup::new(sites, link) }
}

fn set_change_probability(game: &mut TestSession, change_probability: f64) {
    game.network.nodes.iter_mut().for_each(|site| site.player.change_probability = change_probability);
}

fn count_by_site(game: &TestSession, kind: ActionKind) -> Vec<usize> {
    (0..game.actions.len()).map(|site| game.count_actions(site, kind, at(secs(0)))).collect()
}

#[test]
fn no_rollback_when_predictions_are_right() {
    for link in [rtt_link(200), lossy_link(200, 0.1)] {
        let mut game = rollback_setup(2, link, 16).start();
        set_change_probability(&mut game, 0.0);
        game.run_until(at(secs(20)));
        game.assert_consistent();
        assert!(game.step_times.iter().all(|steps| steps.len() > 1_000), "too few frames");
        assert!(count_by_site(&game, ActionKind::Save).iter().all(|saves| *saves > 1_000), "no frame was predicted");
        assert_eq!(
            (count_by_site(&game, ActionKind::Load), count_by_site(&game, ActionKind::Resimulate)),
            (vec![0; 2], vec![0; 2])
        );
    }
}

#[test]
fn no_save_when_nothing_is_predicted() {
    for (input_delay, rtt_ms) in [(2, 0), (2, 60), (6, 100), (6, 190)] {
        let mut game =
            SessionSetup { input_delay, prediction_window: 8, ..SessionSetup::new(3, rtt_link(rtt_ms)) }.start();
        game.run_until(at(secs(20)));
        game.assert_consistent();
        assert_eq!(count_by_site(&game, ActionKind::Save), [0; 3], "input delay {input_delay}, RTT {rtt_ms}");
    }
}

/// Returns the time at which each frame was confirmed.
fn confirmation_times(actions: &[MachineAction]) -> Vec<Instant> {
    actions.iter().filter(|action| action.kind == ActionKind::Confirm).map(|action| action.at).collect()
}

#[test]
fn state_is_saved_once_before_each_predicted_step() {
    for link in [rtt_link(100), rtt_link(170), LinkConfig::broadband(), lossy_link(120, 0.1)] {
        let mut game = rollback_setup(3, link.clone(), 12).start();
        game.run_until(at(secs(20)));
        game.assert_consistent();
        for actions in &game.actions {
            let confirmed = confirmation_times(actions);
            let is_predicted = |action: &MachineAction| {
                confirmed.get(action.frame as usize).is_none_or(|confirmed_at| *confirmed_at > action.at)
            };
            let steps =
                actions.iter().filter(|action| matches!(action.kind, ActionKind::FirstStep | ActionKind::Resimulate));
            let predicted = steps.filter(|step| is_predicted(step)).count();
            let saves = actions.iter().filter(|action| action.kind == ActionKind::Save);
            let needless = saves.clone().find(|save| !is_predicted(save));
            assert_eq!(needless, None, "over {link:?}");
            assert!(
                saves.clone().count() <= predicted,
                "{} saves, {predicted} predicted steps, {link:?}",
                saves.count()
            );
            let twice =
                actions.windows(2).find(|pair| pair[0].kind == ActionKind::Save && pair[1].kind == ActionKind::Save);
            assert_eq!(twice, None, "over {link:?}");
        }
    }
}

/// Returns the largest number of rollbacks between the first steps of two successive frames.
fn max_rollbacks_in_a_frame(actions: &[MachineAction]) -> usize {
    let frames = actions.split(|action| action.kind == ActionKind::FirstStep);
    frames.map(|frame| frame.iter().filter(|action| action.kind == ActionKind::Load).count()).max().unwrap_or(0)
}

#[test]
fn mispredictions_of_several_players_share_one_rollback() {
    for sites in [4, 8] {
        for step_cost in [0, 300] {
            let link = LinkConfig { jitter: Jitter::Uniform(ms(15)), ..rtt_link(150) };
            let mut game = rollback_setup(sites, link, 12).start();
            game.network.nodes.iter_mut().for_each(|site| site.step_cost = TimeDelta::from_micros(step_cost));
            game.run_until(at(secs(20)));
            game.assert_consistent();
            for (site, actions) in game.actions.iter().enumerate() {
                let loads = actions.iter().filter(|action| action.kind == ActionKind::Load).count();
                let frames = game.step_times[site].len();
                // Each peer changes its input every 8 frames on average.
                let expected = frames as f64 * (1.0 - 0.875f64.powi(sites as i32 - 1));
                let case = format!("site {site} of {sites}, {step_cost} us per step: {loads} rollbacks");
                assert!((loads as f64 / expected - 1.0).abs() < 0.15, "{case}, {expected:.0} expected");
                // A rollback starts before its frame by its own duration. An input that arrives after that needs one
                // more rollback.
                assert!(max_rollbacks_in_a_frame(actions) <= if step_cost == 0 { 1 } else { 2 }, "{case}");
            }
        }
    }
}

#[test]
fn rollback_that_fits_between_frames_delays_no_frame() {
    let mut game = SessionSetup { input_delay: 6, ..rollback_setup(2, rtt_link(310), 8) }.start();
    game.network.nodes.iter_mut().for_each(|site| site.step_cost = TimeDelta::from_micros(1_500));
    game.run_until(at(secs(20)));
    game.assert_consistent();
    for actions in &game.actions {
        let fresh = |action: &&MachineAction| action.kind == ActionKind::FirstStep && action.at > at(secs(5));
        let starts: Vec<Instant> = actions.iter().filter(fresh).map(|action| action.at).collect();
        let resimulated = actions.iter().filter(|action| action.kind == ActionKind::Resimulate).count();
        assert!(resimulated > 200, "only {resimulated} frames were resimulated");
        let times: Vec<f64> = starts.windows(2).map(|pair| (pair[1] - pair[0]).as_millis_f64()).collect();
        let deviation = mean_abs_deviation(&times);
        assert!(deviation < 0.3, "frame times deviate by {deviation:.2} ms with {resimulated} resimulated frames");
    }
}

/// Asserts that every frame is stepped first exactly once, in order, and never again once it is confirmed. Returns the
/// depth of the deepest rollback in frames.
#[track_caller]
fn deepest_rollback(actions: &[MachineAction]) -> u32 {
    let (mut next, mut fresh, mut confirmed, mut deepest) = (0, 0, 0, 0);
    for action in actions {
        match action.kind {
            ActionKind::Save => assert_eq!(action.frame, next, "saved frame"),
            ActionKind::Load => {
                assert!(
                    (confirmed..fresh).contains(&action.frame),
                    "rolled back to {} of {confirmed}..{fresh}",
                    action.frame
                );
                next = action.frame;
                deepest = deepest.max(fresh - action.frame);
            }
            ActionKind::FirstStep => {
                assert_eq!((action.frame, next), (fresh, fresh), "first step");
                (next, fresh) = (fresh + 1, fresh + 1);
            }
            ActionKind::Resimulate => {
                assert!(
                    action.frame == next && next < fresh,
                    "resimulated {}, expected {next} below {fresh}",
                    action.frame
                );
                next += 1;
            }
            ActionKind::Confirm => {
                assert!(
                    action.frame == confirmed && confirmed < next,
                    "confirmed {}, expected {confirmed}",
                    action.frame
                );
                confirmed += 1;
            }
        }
    }
    deepest
}

/// Returns the largest number of unconfirmed frames right after the first step of a frame.
fn max_predicted_frames(actions: &[MachineAction]) -> usize {
    let confirmed = confirmation_times(actions);
    let fresh = actions.iter().filter(|action| action.kind == ActionKind::FirstStep);
    let predicted = fresh
        .map(|fresh| fresh.frame as usize + 1 - confirmed.partition_point(|confirmed_at| *confirmed_at <= fresh.at));
    predicted.max().unwrap_or(0)
}

#[test]
fn every_frame_is_stepped_first_once_confirmed_once_and_within_the_prediction_window() {
    let links = [rtt_link(100), rtt_link(400), lossy_link(150, 0.2), LinkConfig::broadband(), LinkConfig::wifi()];
    for link in links {
        for (sites, prediction_window) in [(2, 1), (2, 8), (4, 8), (3, 16), (2, 60)] {
            let mut game = rollback_setup(sites, link.clone(), prediction_window).start();
            game.run_until(at(secs(15)));
            game.assert_consistent();
            for actions in &game.actions {
                let deepest = deepest_rollback(actions);
                assert!(
                    deepest <= prediction_window,
                    "a rollback of {deepest} frames with a prediction window of {prediction_window} over {link:?}"
                );
                let predicted = max_predicted_frames(actions);
                assert!(
                    predicted <= prediction_window as usize,
                    "{predicted} predicted frames with a prediction window of {prediction_window} over {link:?}"
                );
            }
            let frames = game.state_hashes.iter().map(Vec::len).min().unwrap_or(0);
            assert!(frames > 150, "{frames} frames are confirmed over {link:?}");
            assert!(game.state_hashes.iter().all(|hashes| hashes[..frames] == game.state_hashes[0][..frames]));
        }
    }
}

#[test]
fn game_slows_evenly_when_the_prediction_window_is_exhausted() {
    for (rtt_ms, prediction_window) in [(400, 8), (500, 8), (240, 4)] {
        let mut game = rollback_setup(2, rtt_link(rtt_ms), prediction_window).start();
        game.run_until(at(secs(40)));
        game.assert_consistent();
        let bound_ms = rtt_ms as f64 / 2.0 / f64::from(2 + prediction_window);
        for (site, actions) in game.actions.iter().enumerate() {
            let times = game.frame_times(site, at(secs(10)));
            let case = format!("RTT {rtt_ms}, prediction window {prediction_window}: {:.3} ms per frame", mean(&times));
            assert!((mean(&times) / bound_ms - 1.0).abs() < 0.005, "{case}, the link allows {bound_ms:.3}");
            assert!(mean_abs_deviation(&times) < 0.1, "{case}, off by {:.3}", mean_abs_deviation(&times));
            assert_eq!(deepest_rollback(actions), prediction_window, "{case}");
        }
    }
}

/// Plays two sites for 20 s at a round trip of 200 ms with this predictor.
fn play_with_predictor(predictor: InputPredictor, change_probability: f64) -> TestSession {
    let mut game = rollback_setup(2, rtt_link(200), 16).start_with(|_, config| config.predictor = predictor);
    set_change_probability(&mut game, change_probability);
    game.run_until(at(secs(20)));
    game.assert_consistent();
    game
}

fn total_rollbacks(game: &TestSession) -> usize {
    count_by_site(game, ActionKind::Load).iter().sum()
}

/// Predicts like [`InputPredictor::Repeat`].
fn predict_repeat(past: &InputHistory<'_>, _: Frame, words: &mut [InputWord]) {
    if let Some(last) = past.end().checked_sub(1) {
        past.read(last, words);
    }
}

/// Predicts the inverse of the last input of each player.
fn predict_inverse(past: &InputHistory<'_>, frame: Frame, words: &mut [InputWord]) {
    predict_repeat(past, frame, words);
    words.iter_mut().for_each(|word| *word = !*word);
}

#[test]
fn sites_use_the_configured_predictor() {
    let usual = play_with_predictor(InputPredictor::Repeat, 0.125);
    let same = play_with_predictor(InputPredictor::Custom(predict_repeat), 0.125);
    assert_eq!(same.actions, usual.actions, "the same predictions");
    assert_eq!(total_rollbacks(&play_with_predictor(InputPredictor::Neutral, 0.0)), 0, "no input changes");
    // A held button stays pressed, so a neutral prediction is wrong in every frame.
    let neutral = play_with_predictor(InputPredictor::Neutral, 0.01);
    assert!(total_rollbacks(&neutral) > 1_500, "{} rollbacks with neutral predictions", total_rollbacks(&neutral));
    let wrong = play_with_predictor(InputPredictor::Custom(predict_inverse), 0.0);
    let frames = wrong.step_times[0].len() + wrong.step_times[1].len();
    assert!(total_rollbacks(&wrong) > frames * 9 / 10, "{} rollbacks in {frames} frames", total_rollbacks(&wrong));
    // Mispredictions cost steps, but neither time nor agreement.
    let fps = wrong.fps(0, at(secs(5)), at(secs(20)));
    assert!(fps > 59.9, "{fps:.2} fps");
}

#[test]
fn each_site_may_use_its_own_predictor() {
    let predictors = [InputPredictor::Repeat, InputPredictor::Neutral, InputPredictor::Custom(predict_inverse)];
    let mut game =
        rollback_setup(3, lossy_link(150, 0.05), 12).start_with(|site, config| config.predictor = predictors[site]);
    game.run_until(at(secs(20)));
    game.assert_consistent();
    let resimulated = count_by_site(&game, ActionKind::Resimulate);
    assert!(resimulated[0] < resimulated[1] && resimulated[1] < resimulated[2], "{resimulated:?}");
}

#[test]
fn perfect_predictor_causes_no_rollback() {
    /// Predicts exactly the inputs of the players of [`ManualHosts`].
    fn predict_perfectly(_: &InputHistory<'_>, frame: Frame, words: &mut [InputWord]) {
        words
            .iter_mut()
            .enumerate()
            .for_each(|(player, word)| *word = InputWord::from(frame.number() / 9 % 3) << player);
    }
    let play = |predictor: InputPredictor| {
        let mut pair = ManualHosts::new(2, ms(90), |config: &mut Config| {
            (config.settings.input_delay, config.settings.prediction_window, config.predictor) = (2, 8, predictor);
        });
        pair.run_until_running();
        pair.run_for(secs(10));
        let stats = pair.hosts[0].session.stats();
        assert!(stats.frame.number() > 500 && pair.mismatch_count(0, 1) == 0, "{stats:?}");
        stats.rollbacks
    };
    assert!(play(InputPredictor::Repeat) > 50);
    assert_eq!(play(InputPredictor::Custom(predict_perfectly)), 0);
}

#[test]
fn inputs_of_a_leaver_are_no_longer_predicted() {
    for loss in [0.0, 0.2] {
        for leaver in 0..3 {
            let case = format!("loss {loss}, site {leaver} leaves");
            let mut game = rollback_setup(3, lossy_link(200, loss), 8).start();
            game.run_until(at(secs(8)));
            game.leave(leaver);
            game.run_for(secs(10));
            game.assert_consistent();
            assert_eq!(game.state(leaver), State::Ended(SessionEnd::Left), "{case}");
            for site in (0..3).filter(|site| *site != leaver) {
                let left = game.events_of(site).filter(|reported| matches!(reported.event, Event::Left { .. })).count();
                assert_eq!((left, game.state(site)), (1, State::Running), "{case}");
                let fps = game.fps(site, at(secs(10)), game.now());
                assert!(fps > 58.0, "{case}: site {site} at {fps:.2} fps");
                assert!(deepest_rollback(&game.actions[site]) <= 8, "{case}");
            }
        }
    }
}

/// Runs for 12 s. Asserts that all sites are back at full speed after 2 s and have confirmed all but at most 16 of
/// their frames at the end.
#[track_caller]
fn assert_recovers(game: &mut TestSession, case: &str) {
    let healed = game.now();
    game.run_for(secs(12));
    game.assert_consistent();
    for site in 0..game.actions.len() {
        let fps = game.fps(site, healed + secs(2), healed + secs(12));
        assert!(fps > 59.5, "{case}: site {site} is back at {fps:.2} fps");
        assert_eq!(game.state(site), State::Running, "{case}");
        deepest_rollback(&game.actions[site]);
        let unconfirmed = game.step_times[site].len() - game.state_hashes[site].len();
        assert!(unconfirmed <= 16, "{case}: site {site} has {unconfirmed} unconfirmed frames");
    }
}

#[test]
fn cut_freezes_the_game_after_the_prediction_window_and_it_resumes() {
    for prediction_window in [4, 16] {
        let mut game = rollback_setup(3, rtt_link(120), prediction_window).start();
        game.run_until(at(secs(8)));
        let frames: Vec<usize> = game.state_hashes.iter().map(Vec::len).collect();
        game.set_isolated(1, true);
        game.run_for(secs(3));
        for (site, before) in frames.into_iter().enumerate() {
            let State::Frozen(freeze) = game.state(site) else { panic!("site {site} is {:?}", game.state(site)) };
            assert_eq!(freeze.frame.number() as usize, game.step_times[site].len());
            let ran = game.step_times[site].len() - before;
            assert!(
                ran >= prediction_window as usize && ran <= prediction_window as usize + 10,
                "site {site} ran {ran} frames into the cut"
            );
        }
        game.set_isolated(1, false);
        assert_recovers(&mut game, &format!("prediction window {prediction_window}"));
    }
}

#[test]
fn sites_that_sleep_or_change_address_recover() {
    for site in [0, 1] {
        let mut game = rollback_setup(2, lossy_link(120, 0.05), 8).start();
        game.run_until(at(secs(8)));
        let wake = game.now() + secs(2);
        game.network.pause(site, wake);
        game.run_until(wake);
        assert_recovers(&mut game, &format!("site {site} slept"));
        game.network.change_address(site);
        game.run_for(secs(1));
        assert!(
            game.events_of(1 - site).any(|reported| matches!(reported.event, Event::AddressChanged { .. })),
            "site {site} moved"
        );
        assert_recovers(&mut game, &format!("site {site} moved"));
        game.network.suspend(site, game.now() + secs(5));
        game.run_for(secs(5));
        assert_recovers(&mut game, &format!("site {site} was suspended"));
    }
}

/// Disturbance of the timing of two sites, after which both should resimulate equally many frames.
#[derive(Clone, Copy, Debug)]
enum Disturbance {
    /// The clocks of the first two sites differ by 1 %.
    Skew,
    /// One site pauses for twenty frames.
    Freeze(usize),
    /// One site pauses for half a frame.
    HalfFrame(usize),
    /// One site starts half a frame late.
    LateStart(usize),
}

const HALF_FRAME: TimeDelta = TimeDelta::from_micros(8_333);
const TWENTY_FRAMES: TimeDelta = TimeDelta::from_micros(333_333);

/// Returns an ownership that gives each site an equal share of the bits of one pad.
fn shared_pad_ownership(sites: usize) -> Ownership {
    let mut ownership = Ownership::new(1);
    let bits = 16 / sites;
    for site in 0..sites {
        let mask = ((1 << bits) - 1) << (site * bits);
        ownership.assign(crate::common::site_id(site), 0, mask).expect("unassigned bits");
    }
    ownership
}

/// Starts sites with equal inputs in equal frames, so that only timing can differ, and runs them for 10 s. A skew or a
/// late start disturbs them from the start, a pause after the 10 s.
fn start_with_equal_inputs(setup: &SessionSetup, disturbance: Disturbance) -> TestSession {
    let clock = |skew_ppm: f64| NodeClock { offset: secs(setup.seed as i64 * 77), skew_ppm };
    let clocks = match disturbance {
        Disturbance::Skew => vec![clock(0.0), clock(10_000.0)],
        _ => Vec::new(),
    };
    let setup = SessionSetup { clocks, ..setup.clone() };
    let mut game = setup.start_with(|_, config| {
        config.settings.ownership = shared_pad_ownership(setup.sites);
        // Without an initial prediction window, auto-tuning opens one.
        config.settings.auto_tune = setup.prediction_window == 0;
    });
    game.network.nodes.iter_mut().for_each(|site| site.player = RandomPlayer::new(setup.seed, 1));
    if let Disturbance::LateStart(late) = disturbance {
        game.run_while(secs(10), |game| !matches!(game.state(late), State::Starting { .. }));
        let State::Starting { at } = game.state(late) else { unreachable!("it is about to start") };
        let begin = game.network.nodes[late].clock.true_time(at);
        game.network.pause(late, begin + HALF_FRAME);
    }
    game.run_until(at(secs(10)));
    match disturbance {
        Disturbance::Freeze(site) => game.network.pause(site, game.now() + TWENTY_FRAMES),
        Disturbance::HalfFrame(site) => game.network.pause(site, game.now() + HALF_FRAME),
        Disturbance::Skew | Disturbance::LateStart(_) => {}
    }
    game
}

/// Asserts that in the minute after the disturbance no site resimulates over 20 % more frames than another, and that
/// from 10 s on the sites' starts of a frame are less than 0.3 ms apart.
fn assert_equal_resimulation(setup: &SessionSetup, disturbance: Disturbance) {
    let mut game = start_with_equal_inputs(setup, disturbance);
    let since = game.now();
    game.run_for(secs(60));
    game.assert_consistent();
    let resimulated: Vec<usize> =
        (0..setup.sites).map(|site| game.count_actions(site, ActionKind::Resimulate, since)).collect();
    let (most, least) =
        (resimulated.iter().max().copied().unwrap_or(0), resimulated.iter().min().copied().unwrap_or(0));
    let case = format!(
        "{disturbance:?}, {:?}, prediction window {}, seed {}: {resimulated:?} resimulated frames, {:.3} to 1",
        setup.link.delay,
        setup.prediction_window,
        setup.seed,
        most as f64 / least as f64,
    );
    println!("{case}");
    assert!(least > 400 && most * 5 <= least * 6, "{case}");
    // No phase difference remains except the dither of the pacer, 1/128 of a frame to both sides.
    let apart = game.worst_start_skew_ms(since + secs(10));
    assert!(apart < 0.3, "{case}, {apart:.3} ms apart");
}

#[test]
fn resimulation_is_balanced_between_sites() {
    use Disturbance::{Freeze, HalfFrame, LateStart, Skew};
    for disturbance in [Skew, Freeze(0), Freeze(1), HalfFrame(0), HalfFrame(1), LateStart(0), LateStart(1)] {
        // Latencies of exactly three and six frames: a microsecond decides whether an input arrives in time.
        for (rtt_ms, prediction_window) in [(100, 8), (100, 16), (200, 8), (200, 16)] {
            for seed in 1..=4 {
                assert_equal_resimulation(
                    &SessionSetup { seed, ..rollback_setup(2, rtt_link(rtt_ms), prediction_window) },
                    disturbance,
                );
            }
        }
    }
}

#[test]
fn resimulation_is_balanced_with_auto_delay() {
    for disturbance in [Disturbance::Skew, Disturbance::Freeze(1), Disturbance::HalfFrame(0)] {
        // Input delay and prediction window add up to seven frames: exactly six for the latency, and one of margin.
        for seed in 1..=4 {
            assert_equal_resimulation(&SessionSetup { seed, ..rollback_setup(2, rtt_link(200), 0) }, disturbance);
        }
    }
}

#[test]
fn input_arriving_during_its_frame_step_is_not_missed() {
    for pacing in [Pacing::Even, Pacing::Zhao, Pacing::ZhaoUnsynchronised] {
        let setup = SessionSetup { input_delay: 1, ..rollback_setup(2, rtt_link(36), 8) };
        let mut game = setup.start_with(|_, config| config.pacing = pacing);
        game.network.nodes.iter_mut().for_each(|site| site.step_cost = ms(4));
        game.run_until(at(secs(20)));
        game.assert_consistent();
        for actions in &game.actions {
            assert!(deepest_rollback(actions) <= 8, "{pacing:?}");
            assert!(
                confirmation_times(actions).len() > 900,
                "{pacing:?}: {} frames",
                confirmation_times(actions).len()
            );
        }
    }
}
