//! How lost inputs come back is a matter of bytes and waits, never of what is played.

mod common;

use std::collections::BTreeMap;

use common::{SessionSetup, TestSession, lossy_link, rtt_link, secs};
use coplay::input::Recovery;
use coplay::time::Instant;
use coplay::wire::{MAX_DATAGRAM, SessionMessage};
use coplay_sim::link::{LinkConfig, Loss};

const POLICIES: [Recovery; 4] = [Recovery::Redundant, Recovery::History, Recovery::Adaptive, Recovery::Classic];
/// 16 buttons and four sticks of 16 bits.
const STICKS: u128 = (1 << 80) - 1;

fn start_with_policies(setup: &SessionSetup, policies: &[Recovery]) -> TestSession {
    setup.start_with(|site, config| config.recovery = policies[site % policies.len()])
}

/// The state after each of the first frames, the same at all sites.
fn play_and_hash(setup: &SessionSetup, policies: &[Recovery], frames: usize) -> Vec<u64> {
    let mut game = start_with_policies(setup, policies);
    game.run_frames(frames);
    game.assert_consistent();
    game.state_hashes.swap_remove(0)[..frames].to_vec()
}

#[test]
fn every_recovery_policy_and_mix_gives_the_same_states() {
    use Recovery::{Adaptive, Classic, History, Redundant};
    let links =
        [rtt_link(100), lossy_link(100, 0.1), LinkConfig { reorder: true, duplicate: 0.1, ..LinkConfig::awful() }];
    for sites in [2, 3] {
        // The same players play over perfect links; what they do depends on the frame alone.
        let perfect = SessionSetup { input_delay: 9, ..SessionSetup::new(sites, LinkConfig::perfect()) };
        let expected = play_and_hash(&perfect, &[Adaptive], 1_200);
        for link in &links {
            let setup = SessionSetup { link: link.clone(), ..perfect.clone() };
            let mixes: [&[Recovery]; 8] = [
                &[Redundant],
                &[History],
                &[Adaptive],
                &[Classic],
                &[Redundant, History],
                &[History, Adaptive],
                &[History, Classic],
                &POLICIES,
            ];
            for mix in mixes {
                assert!(play_and_hash(&setup, mix, 1_200) == expected, "{sites} sites, {mix:?}, {link:?}");
            }
        }
    }
}

#[test]
fn constantly_changing_sticks_give_the_same_states() {
    let perfect = SessionSetup { input_delay: 12, input_mask: STICKS, ..SessionSetup::new(2, LinkConfig::perfect()) };
    let states = |link: LinkConfig, policy: Recovery| {
        let mut game = start_with_policies(&SessionSetup { link, ..perfect.clone() }, &[policy]);
        game.network.sites.iter_mut().for_each(|site| site.player.change_probability = 0.9);
        game.run_frames(900);
        game.assert_consistent();
        game.state_hashes.swap_remove(1)[..900].to_vec()
    };
    let expected = states(LinkConfig::perfect(), Recovery::Adaptive);
    for policy in POLICIES {
        for link in [lossy_link(200, 0.1), LinkConfig { loss: Loss::bursts(0.1, 6.0), ..rtt_link(200) }] {
            assert!(states(link.clone(), policy) == expected, "{policy:?} over {link:?}");
        }
    }
}

/// What rode in the packets of a running game.
#[derive(Debug, Default)]
struct CapturedTraffic {
    packets: usize,
    requests: usize,
    answers: usize,
    longest_datagram: usize,
}

fn captured_traffic(game: &TestSession, since: Instant) -> CapturedTraffic {
    let mut cargo = CapturedTraffic::default();
    for packet in game.network.captured().filter(|packet| packet.at >= since) {
        let Ok(SessionMessage::Tick(tick)) = SessionMessage::decode(&packet.bytes) else {
            panic!("not a packet of a running game")
        };
        cargo.packets += 1;
        cargo.requests += usize::from(!tick.missing.is_empty());
        cargo.answers += usize::from(!tick.resends.is_empty());
        cargo.longest_datagram = cargo.longest_datagram.max(packet.bytes.len());
    }
    cargo
}

/// A minute of two sites with this policy and players this restless; gives what rode in the packets, and packets per frame and link.
fn capture_one_minute(
    setup: &SessionSetup,
    policy: Recovery,
    restlessness: f64,
) -> (CapturedTraffic, f64, TestSession) {
    let mut game = start_with_policies(setup, &[policy]);
    game.network.sites.iter_mut().for_each(|site| site.player.change_probability = restlessness);
    game.run_for(secs(5));
    game.network.start_capture(20_000);
    let (since, before) = (game.now(), game.step_times[0].len() + game.step_times[1].len());
    game.run_for(secs(60));
    game.assert_consistent();
    let frames = game.step_times[0].len() + game.step_times[1].len() - before;
    let cargo = captured_traffic(&game, since);
    let per_frame = cargo.packets as f64 / frames as f64;
    (cargo, per_frame, game)
}

#[test]
fn history_recovery_requests_and_answers_inside_regular_ticks() {
    let setup = SessionSetup { input_delay: 18, ..SessionSetup::new(2, lossy_link(100, 0.05)) };
    let (cargo, per_frame, game) = capture_one_minute(&setup, Recovery::History, 1.0 / 8.0);
    assert!(cargo.requests > 10 && cargo.answers > 10, "nothing was asked for: {cargo:?}");
    assert!((per_frame - 1.0).abs() < 0.002, "{per_frame:.4} packets per frame");
    let fps = game.fps(0, game.now() - secs(60), game.now());
    assert!(fps > 59.5, "{fps:.2} fps, though the lag covers a request and its answer");
}

#[test]
fn redundant_recovery_never_sends_requests() {
    let setup = SessionSetup::new(2, lossy_link(100, 0.2));
    let (cargo, ..) = capture_one_minute(&setup, Recovery::Redundant, 1.0 / 8.0);
    assert_eq!((cargo.requests, cargo.answers), (0, 0), "{cargo:?}");
}

#[test]
fn adaptive_recovery_never_sends_requests_for_pads() {
    let (cargo, ..) = capture_one_minute(&SessionSetup::new(2, lossy_link(100, 0.2)), Recovery::Adaptive, 0.5);
    assert_eq!((cargo.requests, cargo.answers), (0, 0), "{cargo:?}");
}

/// A gap in which nothing changed is no gap: the counter of changes in the next packet proves it.
#[test]
fn loss_without_input_change_needs_no_request() {
    for loss in [0.05, 0.3] {
        let setup = SessionSetup { input_delay: 18, ..SessionSetup::new(2, lossy_link(100, loss)) };
        let (cargo, _, mut game) = capture_one_minute(&setup, Recovery::History, 0.0);
        assert_eq!((cargo.requests, cargo.answers), (0, 0), "loss {loss}: {cargo:?}");
        let stalls = game.stats(0).stalls;
        game.run_for(secs(10));
        assert_eq!(game.stats(0).stalls, stalls, "loss {loss}");
    }
    // With players who change something now and then only those losses are asked for that hit a change.
    let setup = SessionSetup { input_delay: 18, ..SessionSetup::new(2, lossy_link(100, 0.05)) };
    let [seldom, often] =
        [1.0 / 60.0, 0.5].map(|restlessness| capture_one_minute(&setup, Recovery::History, restlessness).0.answers);
    assert!(seldom * 4 < often, "{seldom} and {often} answers");
}

#[test]
fn history_stays_small_redundant_grows_and_adaptive_keeps_its_byte_budget() {
    let setup = SessionSetup { input_delay: 18, input_mask: STICKS, ..SessionSetup::new(2, lossy_link(200, 0.02)) };
    let [redundant, history, adaptive, _] = POLICIES.map(|policy| {
        let (cargo, _, game) = capture_one_minute(&setup, policy, 0.9);
        (game.peer_stats(0, 1).bytes_out / game.peer_stats(0, 1).packets_out, cargo)
    });
    assert!(history.0 * 4 < redundant.0, "{history:?} and {redundant:?}");
    assert!(adaptive.0 < redundant.0 && adaptive.0 < 128, "{adaptive:?} and {redundant:?}");
    assert!([&redundant, &history, &adaptive].into_iter().all(|(_, cargo)| cargo.longest_datagram <= MAX_DATAGRAM));
}

#[test]
fn adaptive_falls_back_to_history_after_a_long_loss_burst() {
    let link = LinkConfig { loss: Loss::bursts(0.05, 8.0), ..rtt_link(100) };
    let setup = SessionSetup { input_delay: 18, input_mask: STICKS, ..SessionSetup::new(2, link) };
    let (cargo, ..) = capture_one_minute(&setup, Recovery::Adaptive, 0.9);
    assert!(cargo.requests > 0 && cargo.answers > 0, "{cargo:?}");
}

#[test]
fn redundant_stalls_less_than_history_after_a_loss() {
    // The lag covers the way and two lost packets, not the way back and forth.
    let setup = SessionSetup { input_delay: 6, ..SessionSetup::new(2, lossy_link(100, 0.05)) };
    let [redundant, history] = [Recovery::Redundant, Recovery::History].map(|policy| {
        let (_, _, game) = capture_one_minute(&setup, policy, 1.0 / 8.0);
        game.stats(0).stalls
    });
    assert!(redundant * 10 < history, "{redundant} and {history} waits");
}

/// The times between one answer and the next for the same inputs, shortest first, in milliseconds.
fn answer_repeat_intervals_ms(game: &TestSession) -> Vec<f64> {
    let (mut before, mut times) = (BTreeMap::new(), Vec::new());
    for packet in game.network.captured() {
        let Ok(SessionMessage::Tick(tick)) = SessionMessage::decode(&packet.bytes) else { continue };
        for answer in tick.resends.iter() {
            let first = u32::from(tick.end).wrapping_sub(answer.end_minus_first);
            let before = before.insert((packet.from, first), packet.at);
            times.extend(before.map(|before| (packet.at - before).as_millis_f64()));
        }
    }
    times.sort_by(f64::total_cmp);
    times
}

/// Later losses are answered in the meantime; they must not put off the earlier one, which everybody waits for.
#[test]
fn lost_answer_is_retransmitted_after_a_round_trip() {
    for restlessness in [1.0 / 8.0, 0.5] {
        let setup = SessionSetup { input_delay: 18, ..SessionSetup::new(2, lossy_link(100, 0.1)) };
        let mut game = start_with_policies(&setup, &[Recovery::History]);
        game.network.sites.iter_mut().for_each(|site| site.player.change_probability = restlessness);
        game.network.start_capture(100_000);
        game.run_for(secs(300));
        game.assert_consistent();
        let times = answer_repeat_intervals_ms(&game);
        let nearly_all = times[times.len() * 97 / 100];
        assert!(
            times.len() > 20 && nearly_all < 200.0,
            "3 % of {} are repeated after {nearly_all:.0} ms or more",
            times.len()
        );
    }
}
