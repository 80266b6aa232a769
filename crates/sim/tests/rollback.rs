//! Frames may be stepped on guesses: only where inputs are missing, no deeper than the window, and whatever was guessed wrong is
//! repaired once, in time for the next frame, at the same cost for everybody.

mod common;

use common::by_hand::Hosts;
use common::{Act, Done, Game, Setup, at, deviation, lossy, mean, ms, rtt, secs};
use coplay::frame::Frame;
use coplay::input::{InputWord, Ownership};
use coplay::pace::Pacing;
use coplay::session::{Config, Event, InputHistory, InputPredictor, SessionEnd, State};
use coplay::time::{Instant, TimeDelta};
use coplay_sim::clock::NodeClock;
use coplay_sim::link::{Jitter, LinkConfig};
use coplay_sim::site::Player;

/// A sound game in which the lag is short and up to `window` frames are guessed.
fn setup(sites: usize, link: LinkConfig, window: u32) -> Setup {
    Setup { lag: 2, window, ..Setup::new(sites, link) }
}

fn set_restlessness(game: &mut Game, restlessness: f64) {
    game.world.sites.iter_mut().for_each(|site| site.player.restlessness = restlessness);
}

fn count(game: &Game, act: Act) -> Vec<usize> {
    (0..game.done.len()).map(|site| game.count(site, act, at(secs(0)))).collect()
}

#[test]
fn nothing_is_repaired_where_the_guess_was_right() {
    for link in [rtt(200), lossy(200, 0.1)] {
        let mut game = setup(2, link, 16).play();
        set_restlessness(&mut game, 0.0);
        game.run_until(at(secs(20)));
        game.assert_sound();
        assert!(game.steps.iter().all(|steps| steps.len() > 1_000), "too few frames");
        assert!(count(&game, Act::Save).iter().all(|saves| *saves > 1_000), "nothing was guessed");
        assert_eq!((count(&game, Act::Load), count(&game, Act::Again)), (vec![0; 2], vec![0; 2]));
    }
}

#[test]
fn nothing_is_saved_where_nothing_is_guessed() {
    for (lag, rtt_ms) in [(2, 0), (2, 60), (6, 100), (6, 190)] {
        let mut game = Setup { lag, window: 8, ..Setup::new(3, rtt(rtt_ms)) }.play();
        game.run_until(at(secs(20)));
        game.assert_sound();
        assert_eq!(count(&game, Act::Save), [0; 3], "lag {lag}, RTT {rtt_ms}");
    }
}

/// When each frame became certain at a site.
fn confirmed_at(done: &[Done]) -> Vec<Instant> {
    done.iter().filter(|done| done.act == Act::Confirm).map(|done| done.at).collect()
}

#[test]
fn a_state_is_saved_once_before_each_step_that_rests_on_a_guess() {
    for link in [rtt(100), rtt(170), LinkConfig::broadband(), lossy(120, 0.1)] {
        let mut game = setup(3, link.clone(), 12).play();
        game.run_until(at(secs(20)));
        game.assert_sound();
        for done in &game.done {
            let confirmed = confirmed_at(done);
            let open = |done: &Done| confirmed.get(done.frame as usize).is_none_or(|certain| *certain > done.at);
            let steps = done.iter().filter(|done| matches!(done.act, Act::Fresh | Act::Again));
            let guessed = steps.filter(|step| open(step)).count();
            let saves = done.iter().filter(|done| done.act == Act::Save);
            let needless = saves.clone().find(|save| !open(save));
            assert_eq!(needless, None, "over {link:?}");
            assert!(saves.clone().count() <= guessed, "{} saves, {guessed} guesses, {link:?}", saves.count());
            let twice = done.windows(2).find(|pair| pair[0].act == Act::Save && pair[1].act == Act::Save);
            assert_eq!(twice, None, "over {link:?}");
        }
    }
}

/// The most loads between two fresh steps of a site.
fn most_repairs_in_a_frame(done: &[Done]) -> usize {
    let frames = done.split(|done| done.act == Act::Fresh);
    frames.map(|frame| frame.iter().filter(|done| done.act == Act::Load).count()).max().unwrap_or(0)
}

#[test]
fn what_several_players_did_is_repaired_at_once() {
    for sites in [4, 8] {
        for step_cost in [0, 300] {
            let link = LinkConfig { jitter: Jitter::Uniform(ms(15)), ..rtt(150) };
            let mut game = setup(sites, link, 12).play();
            game.world.sites.iter_mut().for_each(|site| site.step_cost = TimeDelta::from_micros(step_cost));
            game.run_until(at(secs(20)));
            game.assert_sound();
            for (site, done) in game.done.iter().enumerate() {
                let loads = done.iter().filter(|done| done.act == Act::Load).count();
                let frames = game.steps[site].len();
                // Each of the others changes something every 8 frames.
                let expected = frames as f64 * (1.0 - 0.875f64.powi(sites as i32 - 1));
                let what = format!("site {site} of {sites}, {step_cost} us a step: {loads} repairs");
                assert!((loads as f64 / expected - 1.0).abs() < 0.15, "{what}, {expected:.0} expected");
                // A repair begins before its frame by as much as it takes; what comes after that needs one more.
                assert!(most_repairs_in_a_frame(done) <= if step_cost == 0 { 1 } else { 2 }, "{what}");
            }
        }
    }
}

#[test]
fn no_frame_is_late_for_a_repair_that_fits_before_it() {
    let mut game = Setup { lag: 6, ..setup(2, rtt(310), 8) }.play();
    game.world.sites.iter_mut().for_each(|site| site.step_cost = TimeDelta::from_micros(1_500));
    game.run_until(at(secs(20)));
    game.assert_sound();
    for done in &game.done {
        let fresh = |done: &&Done| done.act == Act::Fresh && done.at > at(secs(5));
        let starts: Vec<Instant> = done.iter().filter(fresh).map(|done| done.at).collect();
        let repaired = done.iter().filter(|done| done.act == Act::Again).count();
        assert!(repaired > 200, "only {repaired} frames were repaired");
        let times: Vec<f64> = starts.windows(2).map(|pair| (pair[1] - pair[0]).as_millis_f64()).collect();
        let deviation = deviation(&times);
        assert!(deviation < 0.3, "frames deviate by {deviation:.2} ms for {repaired} that were repaired");
    }
}

/// Follows a machine and sees that every frame comes once for the first time, in order, and never again once it is certain. Returns
/// the deepest repair.
#[track_caller]
fn deepest_repair(done: &[Done]) -> u32 {
    let (mut next, mut fresh, mut certain, mut deepest) = (0, 0, 0, 0);
    for done in done {
        match done.act {
            Act::Save => assert_eq!(done.frame, next, "saved"),
            Act::Load => {
                assert!((certain..fresh).contains(&done.frame), "went back to {} of {certain}..{fresh}", done.frame);
                next = done.frame;
                deepest = deepest.max(fresh - done.frame);
            }
            Act::Fresh => {
                assert_eq!((done.frame, next), (fresh, fresh), "fresh");
                (next, fresh) = (fresh + 1, fresh + 1);
            }
            Act::Again => {
                assert!(done.frame == next && next < fresh, "{} again, {next} was next, {fresh} is fresh", done.frame);
                next += 1;
            }
            Act::Confirm => {
                assert!(done.frame == certain && certain < next, "{} is certain, {certain} was next", done.frame);
                certain += 1;
            }
        }
    }
    deepest
}

/// The most frames of a site that rested on guesses at once.
fn most_guessed(done: &[Done]) -> usize {
    let confirmed = confirmed_at(done);
    let fresh = done.iter().filter(|done| done.act == Act::Fresh);
    let open = fresh.map(|fresh| fresh.frame as usize + 1 - confirmed.partition_point(|certain| *certain <= fresh.at));
    open.max().unwrap_or(0)
}

#[test]
fn every_frame_is_fresh_once_and_certain_once_and_no_deeper_than_the_window() {
    let links = [rtt(100), rtt(400), lossy(150, 0.2), LinkConfig::broadband(), LinkConfig::wifi()];
    for link in links {
        for (sites, window) in [(2, 1), (2, 8), (4, 8), (3, 16), (2, 60)] {
            let mut game = setup(sites, link.clone(), window).play();
            game.run_until(at(secs(15)));
            game.assert_sound();
            for done in &game.done {
                let deepest = deepest_repair(done);
                assert!(deepest <= window, "{deepest} frames at once with a window of {window} over {link:?}");
                let guessed = most_guessed(done);
                assert!(guessed <= window as usize, "{guessed} guessed with a window of {window} over {link:?}");
            }
            let frames = game.hashes.iter().map(Vec::len).min().unwrap_or(0);
            assert!(frames > 150, "{frames} frames are certain over {link:?}");
            assert!(game.hashes.iter().all(|hashes| hashes[..frames] == game.hashes[0][..frames]));
        }
    }
}

#[test]
fn it_slows_down_evenly_where_the_window_is_used_up() {
    for (rtt_ms, window) in [(400, 8), (500, 8), (240, 4)] {
        let mut game = setup(2, rtt(rtt_ms), window).play();
        game.run_until(at(secs(40)));
        game.assert_sound();
        let bound_ms = rtt_ms as f64 / 2.0 / f64::from(2 + window);
        for (site, done) in game.done.iter().enumerate() {
            let times = game.frame_times(site, at(secs(10)));
            let what = format!("RTT {rtt_ms}, window {window}: {:.3} ms a frame", mean(&times));
            assert!((mean(&times) / bound_ms - 1.0).abs() < 0.005, "{what}, the link allows {bound_ms:.3}");
            assert!(deviation(&times) < 0.1, "{what}, off by {:.3}", deviation(&times));
            assert_eq!(deepest_repair(done), window, "{what}");
        }
    }
}

/// Two that play for twenty seconds over a long way and guess in this manner.
fn guess_with(predictor: InputPredictor, restlessness: f64) -> Game {
    let mut game = setup(2, rtt(200), 16).play_with(|_, config| config.predictor = predictor);
    set_restlessness(&mut game, restlessness);
    game.run_until(at(secs(20)));
    game.assert_sound();
    game
}

fn repairs(game: &Game) -> usize {
    count(game, Act::Load).iter().sum()
}

/// What [`Predictor::Repeat`] does.
fn repeat(past: &InputHistory<'_>, _: Frame, words: &mut [InputWord]) {
    if let Some(last) = past.end().checked_sub(1) {
        past.read(last, words);
    }
}

/// The opposite of what the player did last.
fn contradict(past: &InputHistory<'_>, frame: Frame, words: &mut [InputWord]) {
    repeat(past, frame, words);
    words.iter_mut().for_each(|word| *word = !*word);
}

#[test]
fn sites_guess_as_they_are_told_to() {
    let usual = guess_with(InputPredictor::Repeat, 0.125);
    let same = guess_with(InputPredictor::Custom(repeat), 0.125);
    assert_eq!(same.done, usual.done, "the same guesses");
    assert_eq!(repairs(&guess_with(InputPredictor::Neutral, 0.0)), 0, "nobody touches anything");
    // Whoever holds a button does not let go of it.
    let neutral = guess_with(InputPredictor::Neutral, 0.01);
    assert!(repairs(&neutral) > 1_500, "{} repairs of neutral guesses", repairs(&neutral));
    let wrong = guess_with(InputPredictor::Custom(contradict), 0.0);
    let frames = wrong.steps[0].len() + wrong.steps[1].len();
    assert!(repairs(&wrong) > frames * 9 / 10, "{} repairs in {frames} frames", repairs(&wrong));
    // To guess wrong costs steps, and neither time nor agreement.
    let fps = wrong.fps(0, at(secs(5)), at(secs(20)));
    assert!(fps > 59.9, "{fps:.2} fps");
}

#[test]
fn each_site_may_guess_in_its_own_way() {
    let predictors = [InputPredictor::Repeat, InputPredictor::Neutral, InputPredictor::Custom(contradict)];
    let mut game = setup(3, lossy(150, 0.05), 12).play_with(|site, config| config.predictor = predictors[site]);
    game.run_until(at(secs(20)));
    game.assert_sound();
    let again = count(&game, Act::Again);
    assert!(again[0] < again[1] && again[1] < again[2], "{again:?}");
}

#[test]
fn a_predictor_that_knows_the_players_spares_all_repairs() {
    /// What the players of [`Hosts`] do.
    fn clairvoyant(_: &InputHistory<'_>, frame: Frame, words: &mut [InputWord]) {
        words
            .iter_mut()
            .enumerate()
            .for_each(|(player, word)| *word = InputWord::from(frame.number() / 9 % 3) << player);
    }
    let play = |predictor: InputPredictor| {
        let mut pair = Hosts::new(2, ms(90), |config: &mut Config| {
            (config.settings.input_delay, config.settings.prediction_window, config.predictor) = (2, 8, predictor);
        });
        pair.run_until_running();
        pair.run_for(secs(10));
        let stats = pair.hosts[0].session.stats();
        assert!(stats.frame.number() > 500 && pair.mismatches(0, 1) == 0, "{stats:?}");
        stats.rollbacks
    };
    assert!(play(InputPredictor::Repeat) > 50);
    assert_eq!(play(InputPredictor::Custom(clairvoyant)), 0);
}

#[test]
fn a_site_that_leaves_is_guessed_about_no_longer() {
    for loss in [0.0, 0.2] {
        for leaver in 0..3 {
            let what = format!("loss {loss}, site {leaver} leaves");
            let mut game = setup(3, lossy(200, loss), 8).play();
            game.run_until(at(secs(8)));
            game.leave(leaver);
            game.run_for(secs(10));
            game.assert_sound();
            assert_eq!(game.state(leaver), State::Ended(SessionEnd::Left), "{what}");
            for site in (0..3).filter(|site| *site != leaver) {
                let left = game.told(site).filter(|told| matches!(told.event, Event::Left { .. })).count();
                assert_eq!((left, game.state(site)), (1, State::Running), "{what}");
                let fps = game.fps(site, at(secs(10)), game.now());
                assert!(fps > 58.0, "{what}: site {site} at {fps:.2} fps");
                assert!(deepest_repair(&game.done[site]) <= 8, "{what}");
            }
        }
    }
}

/// Everybody is back at full speed, and everything that was stepped is certain but for the last few frames.
#[track_caller]
fn assert_goes_on(game: &mut Game, what: &str) {
    let healed = game.now();
    game.run_for(secs(12));
    game.assert_sound();
    for site in 0..game.done.len() {
        let fps = game.fps(site, healed + secs(2), healed + secs(12));
        assert!(fps > 59.5, "{what}: site {site} is back at {fps:.2} fps");
        assert_eq!(game.state(site), State::Running, "{what}");
        deepest_repair(&game.done[site]);
        let open = game.steps[site].len() - game.hashes[site].len();
        assert!(open <= 16, "{what}: site {site} has {open} frames that are not certain");
    }
}

#[test]
fn a_cut_freezes_it_when_the_window_is_used_up_and_it_goes_on() {
    for window in [4, 16] {
        let mut game = setup(3, rtt(120), window).play();
        game.run_until(at(secs(8)));
        let frames: Vec<usize> = game.hashes.iter().map(Vec::len).collect();
        game.isolate(1, true);
        game.run_for(secs(3));
        for (site, before) in frames.into_iter().enumerate() {
            let State::Frozen(freeze) = game.state(site) else { panic!("site {site} is {:?}", game.state(site)) };
            assert_eq!(freeze.frame.number() as usize, game.steps[site].len());
            let ran = game.steps[site].len() - before;
            assert!(ran >= window as usize && ran <= window as usize + 10, "site {site} ran {ran} frames into the cut");
        }
        game.isolate(1, false);
        assert_goes_on(&mut game, &format!("window {window}"));
    }
}

#[test]
fn sites_that_sleep_or_move_are_found_again() {
    for site in [0, 1] {
        let mut game = setup(2, lossy(120, 0.05), 8).play();
        game.run_until(at(secs(8)));
        let wake = game.now() + secs(2);
        game.world.pause(site, wake);
        game.run_until(wake);
        assert_goes_on(&mut game, &format!("site {site} slept"));
        game.world.move_site(site);
        game.run_for(secs(1));
        assert!(
            game.told(1 - site).any(|told| matches!(told.event, Event::AddressChanged { .. })),
            "site {site} moved"
        );
        assert_goes_on(&mut game, &format!("site {site} moved"));
        game.world.suspend(site, game.now() + secs(5));
        game.run_for(secs(5));
        assert_goes_on(&mut game, &format!("site {site} was suspended"));
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

const HALF_A_FRAME: TimeDelta = TimeDelta::from_micros(8_333);
const TWENTY_FRAMES: TimeDelta = TimeDelta::from_micros(333_333);

/// Each site has an equal part of one pad.
fn shares(sites: usize) -> Ownership {
    let mut ownership = Ownership::new(1);
    let bits = 16 / sites;
    for site in 0..sites {
        let mask = ((1 << bits) - 1) << (site * bits);
        ownership.assign(common::id(site), 0, mask).expect("nobody else has it");
    }
    ownership
}

/// All sites do the same in the same frames, so only time can make a difference; they are disturbed after ten seconds.
fn play_alike(setup: &Setup, disturbance: Disturbance) -> Game {
    let clock = |skew_ppm: f64| NodeClock { offset: secs(setup.seed as i64 * 77), skew_ppm };
    let clocks = match disturbance {
        Disturbance::Skew => vec![clock(0.0), clock(10_000.0)],
        _ => Vec::new(),
    };
    let setup = Setup { clocks, ..setup.clone() };
    let mut game = setup.play_with(|_, config| {
        config.settings.ownership = shares(setup.sites);
        // Where nothing may be guessed at first, the dials open the window.
        config.settings.auto_tune = setup.window == 0;
    });
    game.world.sites.iter_mut().for_each(|site| site.player = Player::new(setup.seed, 1));
    if let Disturbance::LateStart(late) = disturbance {
        game.run_while(secs(10), |game| !matches!(game.state(late), State::Starting { .. }));
        let State::Starting { at } = game.state(late) else { unreachable!("it is about to start") };
        let begin = game.world.sites[late].clock.true_time(at);
        game.world.pause(late, begin + HALF_A_FRAME);
    }
    game.run_until(at(secs(10)));
    match disturbance {
        Disturbance::Freeze(site) => game.world.pause(site, game.now() + TWENTY_FRAMES),
        Disturbance::HalfFrame(site) => game.world.pause(site, game.now() + HALF_A_FRAME),
        Disturbance::Skew | Disturbance::LateStart(_) => {}
    }
    game
}

/// In the minute after the disturbance nobody has a fifth more to repair than anybody else.
fn assert_fair(setup: &Setup, disturbance: Disturbance) {
    let mut game = play_alike(setup, disturbance);
    let since = game.now();
    game.run_for(secs(60));
    game.assert_sound();
    let again: Vec<usize> = (0..setup.sites).map(|site| game.count(site, Act::Again, since)).collect();
    let (most, least) = (again.iter().max().copied().unwrap_or(0), again.iter().min().copied().unwrap_or(0));
    let what = format!(
        "{disturbance:?}, {:?}, window {}, seed {}: {again:?} frames stepped again, {:.3} to 1",
        setup.link.delay,
        setup.window,
        setup.seed,
        most as f64 / least as f64,
    );
    println!("{what}");
    assert!(least > 400 && most * 5 <= least * 6, "{what}");
    // No phase is left over; what remains is the sway, 128th parts of a frame to both sides.
    let apart = game.worst_synchrony(since + secs(10));
    assert!(apart < 0.3, "{what}, {apart:.3} ms apart");
}

#[test]
fn nobody_repairs_more_than_the_other() {
    use Disturbance::{Freeze, HalfFrame, LateStart, Skew};
    for disturbance in [Skew, Freeze(0), Freeze(1), HalfFrame(0), HalfFrame(1), LateStart(0), LateStart(1)] {
        // Delays of three and of six frames just so: a microsecond decides whether an input comes in time.
        for (rtt_ms, window) in [(100, 8), (100, 16), (200, 8), (200, 16)] {
            for seed in 1..=4 {
                assert_fair(&Setup { seed, ..setup(2, rtt(rtt_ms), window) }, disturbance);
            }
        }
    }
}

#[test]
fn nor_where_the_window_was_opened_later() {
    for disturbance in [Disturbance::Skew, Disturbance::Freeze(1), Disturbance::HalfFrame(0)] {
        // Of lag and window together it is seven frames: one to spare, and six for the way, just so.
        for seed in 1..=4 {
            assert_fair(&Setup { seed, ..setup(2, rtt(200), 0) }, disturbance);
        }
    }
}

#[test]
fn an_input_that_comes_while_its_frame_is_stepped_is_not_missed() {
    for pacing in [Pacing::Even, Pacing::Zhao, Pacing::ZhaoUnsynchronised] {
        let setup = Setup { lag: 1, ..setup(2, rtt(36), 8) };
        let mut game = setup.play_with(|_, config| config.pacing = pacing);
        game.world.sites.iter_mut().for_each(|site| site.step_cost = ms(4));
        game.run_until(at(secs(20)));
        game.assert_sound();
        for done in &game.done {
            assert!(deepest_repair(done) <= 8, "{pacing:?}");
            assert!(confirmed_at(done).len() > 900, "{pacing:?}: {} frames", confirmed_at(done).len());
        }
    }
}
