//! The recovery policy for lost inputs affects bytes and stalls, never the inputs that are played.

use std::collections::BTreeMap;

use crate::common::{SessionSetup, TestSession, lossy_link, rtt_link, secs};
use coplay::codec::MAX_DATAGRAM;
use coplay::input::Recovery;
use coplay::session::message::SessionMessage;
use coplay::time::Instant;
use coplay_links::link::{LinkConfig, Loss};

const POLICIES: [Recovery; 4] = [Recovery::Redundant, Recovery::History, Recovery::Adaptive, Recovery::Classic];
/// Input mask of 16 buttons and four 16-bit sticks.
const STICKS: u128 = (1 << 80) - 1;

fn start_with_policies(setup: &SessionSetup, policies: &[Recovery]) -> TestSession {
    setup.start_with(|site, config| config.recovery = policies[site % policies.len()])
}

/// Plays `frames` frames and returns the state hash after each, the same at all sites.
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
        // Reference run over perfect links. The inputs of the players depend on the frame alone.
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
        game.network.nodes.iter_mut().for_each(|site| site.player.change_probability = 0.9);
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

/// Counts of captured ticks, of those with requests or answers, and the longest datagram in bytes.
#[derive(Debug, Default)]
struct CapturedTraffic {
    packets: usize,
    requests: usize,
    answers: usize,
    longest_datagram: usize,
}

fn captured_traffic(game: &TestSession, since: Instant) -> CapturedTraffic {
    let mut traffic = CapturedTraffic::default();
    for packet in game.network.captured().filter(|packet| packet.at >= since) {
        let Ok(SessionMessage::Tick(tick)) = SessionMessage::decode(&packet.bytes) else { panic!("not a tick") };
        traffic.packets += 1;
        traffic.requests += usize::from(!tick.missing.is_empty());
        traffic.answers += usize::from(!tick.resends.is_empty());
        traffic.longest_datagram = traffic.longest_datagram.max(packet.bytes.len());
    }
    traffic
}

/// Plays two sites for one minute with one recovery policy and input change probability. Returns the captured traffic,
/// the packets per frame and link, and the session.
fn capture_one_minute(
    setup: &SessionSetup,
    policy: Recovery,
    change_probability: f64,
) -> (CapturedTraffic, f64, TestSession) {
    let mut game = start_with_policies(setup, &[policy]);
    game.network.nodes.iter_mut().for_each(|site| site.player.change_probability = change_probability);
    game.run_for(secs(5));
    game.network.start_capture(20_000);
    let (since, before) = (game.now(), game.step_times[0].len() + game.step_times[1].len());
    game.run_for(secs(60));
    game.assert_consistent();
    let frames = game.step_times[0].len() + game.step_times[1].len() - before;
    let traffic = captured_traffic(&game, since);
    let per_frame = traffic.packets as f64 / frames as f64;
    (traffic, per_frame, game)
}

#[test]
fn history_recovery_requests_and_answers_inside_regular_ticks() {
    let setup = SessionSetup { input_delay: 18, ..SessionSetup::new(2, lossy_link(100, 0.05)) };
    let (traffic, per_frame, game) = capture_one_minute(&setup, Recovery::History, 1.0 / 8.0);
    assert!(traffic.requests > 10 && traffic.answers > 10, "no input was requested: {traffic:?}");
    assert!((per_frame - 1.0).abs() < 0.002, "{per_frame:.4} packets per frame");
    let fps = game.fps(0, game.now() - secs(60), game.now());
    assert!(fps > 59.5, "{fps:.2} fps, although the input delay covers a request and its answer");
}

#[test]
fn redundant_recovery_never_sends_requests() {
    let setup = SessionSetup::new(2, lossy_link(100, 0.2));
    let (traffic, ..) = capture_one_minute(&setup, Recovery::Redundant, 1.0 / 8.0);
    assert_eq!((traffic.requests, traffic.answers), (0, 0), "{traffic:?}");
}

#[test]
fn adaptive_recovery_never_sends_requests_for_pads() {
    let (traffic, ..) = capture_one_minute(&SessionSetup::new(2, lossy_link(100, 0.2)), Recovery::Adaptive, 0.5);
    assert_eq!((traffic.requests, traffic.answers), (0, 0), "{traffic:?}");
}

/// A lost packet without an input change needs no request: the change counter in the next packet proves that nothing is
/// missing.
#[test]
fn loss_without_input_change_needs_no_request() {
    for loss in [0.05, 0.3] {
        let setup = SessionSetup { input_delay: 18, ..SessionSetup::new(2, lossy_link(100, loss)) };
        let (traffic, _, mut game) = capture_one_minute(&setup, Recovery::History, 0.0);
        assert_eq!((traffic.requests, traffic.answers), (0, 0), "loss {loss}: {traffic:?}");
        let stalls = game.stats(0).stalls;
        game.run_for(secs(10));
        assert_eq!(game.stats(0).stalls, stalls, "loss {loss}");
    }
    // The more rarely inputs change, the fewer lost packets carry a change and need a request.
    let setup = SessionSetup { input_delay: 18, ..SessionSetup::new(2, lossy_link(100, 0.05)) };
    let [rare, frequent] = [1.0 / 60.0, 0.5]
        .map(|change_probability| capture_one_minute(&setup, Recovery::History, change_probability).0.answers);
    assert!(rare * 4 < frequent, "{rare} and {frequent} answers");
}

#[test]
fn history_stays_small_redundant_grows_and_adaptive_keeps_its_byte_budget() {
    let setup = SessionSetup { input_delay: 18, input_mask: STICKS, ..SessionSetup::new(2, lossy_link(200, 0.02)) };
    let [redundant, history, adaptive, _] = POLICIES.map(|policy| {
        let (traffic, _, game) = capture_one_minute(&setup, policy, 0.9);
        (game.peer_stats(0, 1).bytes_out / game.peer_stats(0, 1).packets_out, traffic)
    });
    assert!(history.0 * 4 < redundant.0, "{history:?} and {redundant:?}");
    assert!(adaptive.0 < redundant.0 && adaptive.0 < 128, "{adaptive:?} and {redundant:?}");
    assert!([&redundant, &history, &adaptive].into_iter().all(|(_, traffic)| traffic.longest_datagram <= MAX_DATAGRAM));
}

#[test]
fn adaptive_falls_back_to_history_after_a_long_loss_burst() {
    let link = LinkConfig { loss: Loss::bursts(0.05, 8.0), ..rtt_link(100) };
    let setup = SessionSetup { input_delay: 18, input_mask: STICKS, ..SessionSetup::new(2, link) };
    let (traffic, ..) = capture_one_minute(&setup, Recovery::Adaptive, 0.9);
    assert!(traffic.requests > 0 && traffic.answers > 0, "{traffic:?}");
}

#[test]
fn redundant_stalls_less_than_history_after_a_loss() {
    // The input delay covers the one-way latency and two lost packets, but not a request and its answer.
    let setup = SessionSetup { input_delay: 6, ..SessionSetup::new(2, lossy_link(100, 0.05)) };
    let [redundant, history] = [Recovery::Redundant, Recovery::History].map(|policy| {
        let (_, _, game) = capture_one_minute(&setup, policy, 1.0 / 8.0);
        game.stats(0).stalls
    });
    assert!(redundant * 10 < history, "{redundant} and {history} stalls");
}

/// Returns the intervals between successive retransmissions of the same inputs by the same site, in milliseconds, in
/// ascending order.
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

/// Answers to later losses must not delay the retransmission of an earlier answer, which all sites wait for.
#[test]
fn lost_answer_is_retransmitted_after_a_round_trip() {
    for change_probability in [1.0 / 8.0, 0.5] {
        let setup = SessionSetup { input_delay: 18, ..SessionSetup::new(2, lossy_link(100, 0.1)) };
        let mut game = start_with_policies(&setup, &[Recovery::History]);
        game.network.nodes.iter_mut().for_each(|site| site.player.change_probability = change_probability);
        game.network.start_capture(100_000);
        game.run_for(secs(300));
        game.assert_consistent();
        let times = answer_repeat_intervals_ms(&game);
        let percentile_97 = times[times.len() * 97 / 100];
        assert!(
            times.len() > 20 && percentile_97 < 200.0,
            "3 % of {} answers are retransmitted after {percentile_97:.0} ms or more",
            times.len()
        );
    }
}
