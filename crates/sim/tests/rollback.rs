//! Frames may be stepped on guesses: only where inputs are missing, no deeper than the window, and whatever was guessed wrong is
//! repaired once, in time for the next frame, at the same cost for everybody.

mod common;

use common::manual_hosts::ManualHosts;
use common::{
    ActionKind, MachineAction, SessionSetup, TestSession, at, lossy_link, mean, mean_abs_deviation, ms, rtt_link, secs,
};
use coplay::frame::Frame;
use coplay::input::{InputWord, Ownership};
use coplay::pace::Pacing;
use coplay::session::{Config, Event, InputHistory, InputPredictor, SessionEnd, State};
use coplay::time::{Instant, TimeDelta};
use coplay_sim::clock::NodeClock;
use coplay_sim::link::{Jitter, LinkConfig};
use coplay_sim::site::RandomPlayer;

/// A sound game in which the lag is short and up to `window` frames are guessed.
fn rollback_setup(sites: usize, link: LinkConfig, window: u32) -> SessionSetup {
    SessionSetup { input_delay: 2, prediction_window: window, ..SessionSetup::new(sites, link) }
}

fn set_change_probability(game: &mut TestSession, restlessness: f64) {
    game.network.sites.iter_mut().for_each(|site| site.player.change_probability = restlessness);
}

fn count_by_site(game: &TestSession, act: ActionKind) -> Vec<usize> {
    (0..game.actions.len()).map(|site| game.count_actions(site, act, at(secs(0)))).collect()
}

#[test]
fn no_rollback_when_predictions_are_right() {
    for link in [rtt_link(200), lossy_link(200, 0.1)] {
        let mut game = rollback_setup(2, link, 16).start();
        set_change_probability(&mut game, 0.0);
        game.run_until(at(secs(20)));
        game.assert_consistent();
        assert!(game.step_times.iter().all(|steps| steps.len() > 1_000), "too few frames");
        assert!(count_by_site(&game, ActionKind::Save).iter().all(|saves| *saves > 1_000), "nothing was guessed");
        assert_eq!(
            (count_by_site(&game, ActionKind::Load), count_by_site(&game, ActionKind::Resimulate)),
            (vec![0; 2], vec![0; 2])
        );
    }
}

#[test]
fn no_save_when_nothing_is_predicted() {
    for (lag, rtt_ms) in [(2, 0), (2, 60), (6, 100), (6, 190)] {
        let mut game =
            SessionSetup { input_delay: lag, prediction_window: 8, ..SessionSetup::new(3, rtt_link(rtt_ms)) }.start();
        game.run_until(at(secs(20)));
        game.assert_consistent();
        assert_eq!(count_by_site(&game, ActionKind::Save), [0; 3], "lag {lag}, RTT {rtt_ms}");
    }
}

/// When each frame became certain at a site.
fn confirmation_times(done: &[MachineAction]) -> Vec<Instant> {
    done.iter().filter(|done| done.kind == ActionKind::Confirm).map(|done| done.at).collect()
}

#[test]
fn state_is_saved_once_before_each_predicted_step() {
    for link in [rtt_link(100), rtt_link(170), LinkConfig::broadband(), lossy_link(120, 0.1)] {
        let mut game = rollback_setup(3, link.clone(), 12).start();
        game.run_until(at(secs(20)));
        game.assert_consistent();
        for done in &game.actions {
            let confirmed = confirmation_times(done);
            let open =
                |done: &MachineAction| confirmed.get(done.frame as usize).is_none_or(|certain| *certain > done.at);
            let steps = done.iter().filter(|done| matches!(done.kind, ActionKind::FirstStep | ActionKind::Resimulate));
            let guessed = steps.filter(|step| open(step)).count();
            let saves = done.iter().filter(|done| done.kind == ActionKind::Save);
            let needless = saves.clone().find(|save| !open(save));
            assert_eq!(needless, None, "over {link:?}");
            assert!(saves.clone().count() <= guessed, "{} saves, {guessed} guesses, {link:?}", saves.count());
            let twice =
                done.windows(2).find(|pair| pair[0].kind == ActionKind::Save && pair[1].kind == ActionKind::Save);
            assert_eq!(twice, None, "over {link:?}");
        }
    }
}

/// The most loads between two fresh steps of a site.
fn max_rollbacks_in_a_frame(done: &[MachineAction]) -> usize {
    let frames = done.split(|done| done.kind == ActionKind::FirstStep);
    frames.map(|frame| frame.iter().filter(|done| done.kind == ActionKind::Load).count()).max().unwrap_or(0)
}

#[test]
fn mispredictions_of_several_players_share_one_rollback() {
    for sites in [4, 8] {
        for step_cost in [0, 300] {
            let link = LinkConfig { jitter: Jitter::Uniform(ms(15)), ..rtt_link(150) };
            let mut game = rollback_setup(sites, link, 12).start();
            game.network.sites.iter_mut().for_each(|site| site.step_cost = TimeDelta::from_micros(step_cost));
            game.run_until(at(secs(20)));
            game.assert_consistent();
            for (site, done) in game.actions.iter().enumerate() {
                let loads = done.iter().filter(|done| done.kind == ActionKind::Load).count();
                let frames = game.step_times[site].len();
                // Each of the others changes something every 8 frames.
                let expected = frames as f64 * (1.0 - 0.875f64.powi(sites as i32 - 1));
                let what = format!("site {site} of {sites}, {step_cost} us a step: {loads} repairs");
                assert!((loads as f64 / expected - 1.0).abs() < 0.15, "{what}, {expected:.0} expected");
                // A repair begins before its frame by as much as it takes; what comes after that needs one more.
                assert!(max_rollbacks_in_a_frame(done) <= if step_cost == 0 { 1 } else { 2 }, "{what}");
            }
        }
    }
}

#[test]
fn rollback_that_fits_between_frames_delays_no_frame() {
    let mut game = SessionSetup { input_delay: 6, ..rollback_setup(2, rtt_link(310), 8) }.start();
    game.network.sites.iter_mut().for_each(|site| site.step_cost = TimeDelta::from_micros(1_500));
    game.run_until(at(secs(20)));
    game.assert_consistent();
    for done in &game.actions {
        let fresh = |done: &&MachineAction| done.kind == ActionKind::FirstStep && done.at > at(secs(5));
        let starts: Vec<Instant> = done.iter().filter(fresh).map(|done| done.at).collect();
        let repaired = done.iter().filter(|done| done.kind == ActionKind::Resimulate).count();
        assert!(repaired > 200, "only {repaired} frames were repaired");
        let times: Vec<f64> = starts.windows(2).map(|pair| (pair[1] - pair[0]).as_millis_f64()).collect();
        let deviation = mean_abs_deviation(&times);
        assert!(deviation < 0.3, "frames deviate by {deviation:.2} ms for {repaired} that were repaired");
    }
}

/// Follows a machine and sees that every frame comes once for the first time, in order, and never again once it is certain. Returns
/// the deepest repair.
#[track_caller]
fn deepest_rollback(done: &[MachineAction]) -> u32 {
    let (mut next, mut fresh, mut certain, mut deepest) = (0, 0, 0, 0);
    for done in done {
        match done.kind {
            ActionKind::Save => assert_eq!(done.frame, next, "saved"),
            ActionKind::Load => {
                assert!((certain..fresh).contains(&done.frame), "went back to {} of {certain}..{fresh}", done.frame);
                next = done.frame;
                deepest = deepest.max(fresh - done.frame);
            }
            ActionKind::FirstStep => {
                assert_eq!((done.frame, next), (fresh, fresh), "fresh");
                (next, fresh) = (fresh + 1, fresh + 1);
            }
            ActionKind::Resimulate => {
                assert!(done.frame == next && next < fresh, "{} again, {next} was next, {fresh} is fresh", done.frame);
                next += 1;
            }
            ActionKind::Confirm => {
                assert!(done.frame == certain && certain < next, "{} is certain, {certain} was next", done.frame);
                certain += 1;
            }
        }
    }
    deepest
}

/// The most frames of a site that rested on guesses at once.
fn max_predicted_frames(done: &[MachineAction]) -> usize {
    let confirmed = confirmation_times(done);
    let fresh = done.iter().filter(|done| done.kind == ActionKind::FirstStep);
    let open = fresh.map(|fresh| fresh.frame as usize + 1 - confirmed.partition_point(|certain| *certain <= fresh.at));
    open.max().unwrap_or(0)
}

#[test]
fn every_frame_is_stepped_first_once_confirmed_once_and_within_the_prediction_window() {
    let links = [rtt_link(100), rtt_link(400), lossy_link(150, 0.2), LinkConfig::broadband(), LinkConfig::wifi()];
    for link in links {
        for (sites, window) in [(2, 1), (2, 8), (4, 8), (3, 16), (2, 60)] {
            let mut game = rollback_setup(sites, link.clone(), window).start();
            game.run_until(at(secs(15)));
            game.assert_consistent();
            for done in &game.actions {
                let deepest = deepest_rollback(done);
                assert!(deepest <= window, "{deepest} frames at once with a window of {window} over {link:?}");
                let guessed = max_predicted_frames(done);
                assert!(guessed <= window as usize, "{guessed} guessed with a window of {window} over {link:?}");
            }
            let frames = game.state_hashes.iter().map(Vec::len).min().unwrap_or(0);
            assert!(frames > 150, "{frames} frames are certain over {link:?}");
            assert!(game.state_hashes.iter().all(|hashes| hashes[..frames] == game.state_hashes[0][..frames]));
        }
    }
}

#[test]
fn game_slows_evenly_when_the_prediction_window_is_exhausted() {
    for (rtt_ms, window) in [(400, 8), (500, 8), (240, 4)] {
        let mut game = rollback_setup(2, rtt_link(rtt_ms), window).start();
        game.run_until(at(secs(40)));
        game.assert_consistent();
        let bound_ms = rtt_ms as f64 / 2.0 / f64::from(2 + window);
        for (site, done) in game.actions.iter().enumerate() {
            let times = game.frame_times(site, at(secs(10)));
            let what = format!("RTT {rtt_ms}, window {window}: {:.3} ms a frame", mean(&times));
            assert!((mean(&times) / bound_ms - 1.0).abs() < 0.005, "{what}, the link allows {bound_ms:.3}");
            assert!(mean_abs_deviation(&times) < 0.1, "{what}, off by {:.3}", mean_abs_deviation(&times));
            assert_eq!(deepest_rollback(done), window, "{what}");
        }
    }
}

/// Two that play for twenty seconds over a long way and guess in this manner.
fn play_with_predictor(predictor: InputPredictor, restlessness: f64) -> TestSession {
    let mut game = rollback_setup(2, rtt_link(200), 16).start_with(|_, config| config.predictor = predictor);
    set_change_probability(&mut game, restlessness);
    game.run_until(at(secs(20)));
    game.assert_consistent();
    game
}

fn total_rollbacks(game: &TestSession) -> usize {
    count_by_site(game, ActionKind::Load).iter().sum()
}

/// What [`Predictor::Repeat`] does.
fn predict_repeat(past: &InputHistory<'_>, _: Frame, words: &mut [InputWord]) {
    if let Some(last) = past.end().checked_sub(1) {
        past.read(last, words);
    }
}

/// The opposite of what the player did last.
fn predict_inverse(past: &InputHistory<'_>, frame: Frame, words: &mut [InputWord]) {
    predict_repeat(past, frame, words);
    words.iter_mut().for_each(|word| *word = !*word);
}

#[test]
fn sites_use_the_configured_predictor() {
    let usual = play_with_predictor(InputPredictor::Repeat, 0.125);
    let same = play_with_predictor(InputPredictor::Custom(predict_repeat), 0.125);
    assert_eq!(same.actions, usual.actions, "the same guesses");
    assert_eq!(total_rollbacks(&play_with_predictor(InputPredictor::Neutral, 0.0)), 0, "nobody touches anything");
    // Whoever holds a button does not let go of it.
    let neutral = play_with_predictor(InputPredictor::Neutral, 0.01);
    assert!(total_rollbacks(&neutral) > 1_500, "{} repairs of neutral guesses", total_rollbacks(&neutral));
    let wrong = play_with_predictor(InputPredictor::Custom(predict_inverse), 0.0);
    let frames = wrong.step_times[0].len() + wrong.step_times[1].len();
    assert!(total_rollbacks(&wrong) > frames * 9 / 10, "{} repairs in {frames} frames", total_rollbacks(&wrong));
    // To guess wrong costs steps, and neither time nor agreement.
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
    let again = count_by_site(&game, ActionKind::Resimulate);
    assert!(again[0] < again[1] && again[1] < again[2], "{again:?}");
}

#[test]
fn perfect_predictor_causes_no_rollback() {
    /// What the players of [`ManualHosts`] do.
    fn clairvoyant(_: &InputHistory<'_>, frame: Frame, words: &mut [InputWord]) {
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
    assert_eq!(play(InputPredictor::Custom(clairvoyant)), 0);
}

#[test]
fn inputs_of_a_leaver_are_no_longer_predicted() {
    for loss in [0.0, 0.2] {
        for leaver in 0..3 {
            let what = format!("loss {loss}, site {leaver} leaves");
            let mut game = rollback_setup(3, lossy_link(200, loss), 8).start();
            game.run_until(at(secs(8)));
            game.leave(leaver);
            game.run_for(secs(10));
            game.assert_consistent();
            assert_eq!(game.state(leaver), State::Ended(SessionEnd::Left), "{what}");
            for site in (0..3).filter(|site| *site != leaver) {
                let left = game.events_of(site).filter(|told| matches!(told.event, Event::Left { .. })).count();
                assert_eq!((left, game.state(site)), (1, State::Running), "{what}");
                let fps = game.fps(site, at(secs(10)), game.now());
                assert!(fps > 58.0, "{what}: site {site} at {fps:.2} fps");
                assert!(deepest_rollback(&game.actions[site]) <= 8, "{what}");
            }
        }
    }
}

/// Everybody is back at full speed, and everything that was stepped is certain but for the last few frames.
#[track_caller]
fn assert_recovers(game: &mut TestSession, what: &str) {
    let healed = game.now();
    game.run_for(secs(12));
    game.assert_consistent();
    for site in 0..game.actions.len() {
        let fps = game.fps(site, healed + secs(2), healed + secs(12));
        assert!(fps > 59.5, "{what}: site {site} is back at {fps:.2} fps");
        assert_eq!(game.state(site), State::Running, "{what}");
        deepest_rollback(&game.actions[site]);
        let open = game.step_times[site].len() - game.state_hashes[site].len();
        assert!(open <= 16, "{what}: site {site} has {open} frames that are not certain");
    }
}

#[test]
fn cut_freezes_the_game_after_the_prediction_window_and_it_resumes() {
    for window in [4, 16] {
        let mut game = rollback_setup(3, rtt_link(120), window).start();
        game.run_until(at(secs(8)));
        let frames: Vec<usize> = game.state_hashes.iter().map(Vec::len).collect();
        game.set_isolated(1, true);
        game.run_for(secs(3));
        for (site, before) in frames.into_iter().enumerate() {
            let State::Frozen(freeze) = game.state(site) else { panic!("site {site} is {:?}", game.state(site)) };
            assert_eq!(freeze.frame.number() as usize, game.step_times[site].len());
            let ran = game.step_times[site].len() - before;
            assert!(ran >= window as usize && ran <= window as usize + 10, "site {site} ran {ran} frames into the cut");
        }
        game.set_isolated(1, false);
        assert_recovers(&mut game, &format!("window {window}"));
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
            game.events_of(1 - site).any(|told| matches!(told.event, Event::AddressChanged { .. })),
            "site {site} moved"
        );
        assert_recovers(&mut game, &format!("site {site} moved"));
        game.network.suspend(site, game.now() + secs(5));
        game.run_for(secs(5));
        assert_recovers(&mut game, &format!("site {site} was suspended"));
    }
}

/// What disturbs sites that are to have equal times.
#[derive(Clone, Copy, Debug)]
enum Disturbance {
    /// The clocks of the first two run one percent apart.
    Skew,
    /// One of them stands still for twenty frames.
    Freeze(usize),
    /// One of them stands still for half a frame.
    HalfFrame(usize),
    /// One of them comes half a frame late to the start.
    LateStart(usize),
}

const HALF_FRAME: TimeDelta = TimeDelta::from_micros(8_333);
const TWENTY_FRAMES: TimeDelta = TimeDelta::from_micros(333_333);

/// Each site has an equal part of one pad.
fn shared_pad_ownership(sites: usize) -> Ownership {
    let mut ownership = Ownership::new(1);
    let bits = 16 / sites;
    for site in 0..sites {
        let mask = ((1 << bits) - 1) << (site * bits);
        ownership.assign(common::site_id(site), 0, mask).expect("nobody else has it");
    }
    ownership
}

/// All sites do the same in the same frames, so only time can make a difference; they are disturbed after ten seconds.
fn start_with_equal_inputs(setup: &SessionSetup, disturbance: Disturbance) -> TestSession {
    let clock = |skew_ppm: f64| NodeClock { offset: secs(setup.seed as i64 * 77), skew_ppm };
    let clocks = match disturbance {
        Disturbance::Skew => vec![clock(0.0), clock(10_000.0)],
        _ => Vec::new(),
    };
    let setup = SessionSetup { clocks, ..setup.clone() };
    let mut game = setup.start_with(|_, config| {
        config.settings.ownership = shared_pad_ownership(setup.sites);
        // Where nothing may be guessed at first, the dials open the window.
        config.settings.auto_tune = setup.prediction_window == 0;
    });
    game.network.sites.iter_mut().for_each(|site| site.player = RandomPlayer::new(setup.seed, 1));
    if let Disturbance::LateStart(late) = disturbance {
        game.run_while(secs(10), |game| !matches!(game.state(late), State::Starting { .. }));
        let State::Starting { at } = game.state(late) else { unreachable!("it is about to start") };
        let begin = game.network.sites[late].clock.true_time(at);
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

/// In the minute after the disturbance nobody has a fifth more to repair than anybody else.
fn assert_equal_resimulation(setup: &SessionSetup, disturbance: Disturbance) {
    let mut game = start_with_equal_inputs(setup, disturbance);
    let since = game.now();
    game.run_for(secs(60));
    game.assert_consistent();
    let again: Vec<usize> =
        (0..setup.sites).map(|site| game.count_actions(site, ActionKind::Resimulate, since)).collect();
    let (most, least) = (again.iter().max().copied().unwrap_or(0), again.iter().min().copied().unwrap_or(0));
    let what = format!(
        "{disturbance:?}, {:?}, window {}, seed {}: {again:?} frames stepped again, {:.3} to 1",
        setup.link.delay,
        setup.prediction_window,
        setup.seed,
        most as f64 / least as f64,
    );
    println!("{what}");
    assert!(least > 400 && most * 5 <= least * 6, "{what}");
    // No phase is left over; what remains is the sway, 128th parts of a frame to both sides.
    let apart = game.worst_start_skew_ms(since + secs(10));
    assert!(apart < 0.3, "{what}, {apart:.3} ms apart");
}

#[test]
fn resimulation_is_balanced_between_sites() {
    use Disturbance::{Freeze, HalfFrame, LateStart, Skew};
    for disturbance in [Skew, Freeze(0), Freeze(1), HalfFrame(0), HalfFrame(1), LateStart(0), LateStart(1)] {
        // Delays of three and of six frames just so: a microsecond decides whether an input comes in time.
        for (rtt_ms, window) in [(100, 8), (100, 16), (200, 8), (200, 16)] {
            for seed in 1..=4 {
                assert_equal_resimulation(
                    &SessionSetup { seed, ..rollback_setup(2, rtt_link(rtt_ms), window) },
                    disturbance,
                );
            }
        }
    }
}

#[test]
fn resimulation_is_balanced_with_auto_delay() {
    for disturbance in [Disturbance::Skew, Disturbance::Freeze(1), Disturbance::HalfFrame(0)] {
        // Of lag and window together it is seven frames: one to spare, and six for the way, just so.
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
        game.network.sites.iter_mut().for_each(|site| site.step_cost = ms(4));
        game.run_until(at(secs(20)));
        game.assert_consistent();
        for done in &game.actions {
            assert!(deepest_rollback(done) <= 8, "{pacing:?}");
            assert!(confirmation_times(done).len() > 900, "{pacing:?}: {} frames", confirmation_times(done).len());
        }
    }
}
