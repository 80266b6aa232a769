//! Spectators step every frame from their start on, with the inputs that were played, also over slow, lossy and
//! interrupted links. The feed drops spectators that are too slow or silent. Spectators do not change the players'
//! traffic.

use crate::common::spectator_network::{
    LargeStateMachine, SESSION_ID, SpectatorTestNetwork, corrupt_datagram, feed_config, minute, settings,
    spectator_config, spectator_config_from_start,
};
use crate::common::{ms, secs};
use coplay::codec::MAX_DATAGRAM;
use coplay::id::Addr;
use coplay::spectator_feed::message::{CloseReason, FeedMessage, Subscribe};
use coplay::spectator_feed::{FeedConfig, SourceError, SpectatorConfig, SpectatorEvent};
use coplay::time::TimeDelta;
use coplay_links::link::{LinkConfig, Loss, Rate};
use coplay_links::random::Random;

const MIB: usize = 1 << 20;

fn lossy_link(rtt: i64, loss: f64) -> LinkConfig {
    LinkConfig { loss: Loss::Independent(loss), ..LinkConfig::constant_rtt(ms(rtt)) }
}

fn rate_limited_link(bits_per_second: u64, rtt: i64, loss: f64) -> LinkConfig {
    let bytes_per_second = bits_per_second / 8;
    LinkConfig { rate: Some(Rate { bytes_per_second, queue_bytes: bytes_per_second / 2 }), ..lossy_link(rtt, loss) }
}

fn empty_machine() -> LargeStateMachine {
    LargeStateMachine::new(0, false)
}

#[test]
fn incompressible_snapshot_downloads_over_a_slow_lossy_link() {
    let mut network = SpectatorTestNetwork::new(
        1,
        LargeStateMachine::new(MIB, true),
        feed_config(),
        rate_limited_link(1_000_000, 300, 0.02),
    );
    network.run_for(secs(30));
    let spectator = network.add_spectator(spectator_config(&[0]), empty_machine());
    let time = network.run_until_live(spectator, minute());
    println!("1 MiB of noise over 1 Mbit/s, RTT 300 ms, 2 % loss: live after {time}");
    let stats = network.nodes[spectator].spectator().stats();
    println!(
        "requested {} parts, received {}, memory {}",
        stats.requested_parts, stats.received_parts, network.nodes[spectator].peak_memory
    );
    network.run_for(secs(10));
    network.assert_saw_every_frame(spectator);
    assert!(time < secs(16), "the link alone needs 9 s: {time}");
    assert_eq!(network.nodes[spectator].loads, 1);
}

#[test]
fn compressible_snapshot_downloads_faster() {
    let mut network = SpectatorTestNetwork::new(
        1,
        LargeStateMachine::new(MIB, false),
        feed_config(),
        rate_limited_link(1_000_000, 100, 0.0),
    );
    network.run_for(secs(5));
    let spectator = network.add_spectator(spectator_config(&[0]), empty_machine());
    let time = network.run_until_live(spectator, minute());
    println!("1 MiB of compressible state over 1 Mbit/s, RTT 100 ms: live after {time}");
    assert!(time < secs(3), "{time}");
    network.run_for(secs(5));
    network.assert_saw_every_frame(spectator);
}

#[test]
fn spectator_replays_a_long_game_from_the_beginning() {
    let config = FeedConfig { log_bytes: 4 * MIB, ..feed_config() };
    let mut network = SpectatorTestNetwork::new(2, LargeStateMachine::new(100, true), config, lossy_link(100, 0.02));
    network.run_for(secs(600));
    let fresh = LargeStateMachine::new(100, true);
    let spectator = network.add_spectator(spectator_config_from_start(&[0]), fresh);
    let time = network.run_until_live(spectator, minute());
    println!("10 minutes from the beginning, RTT 100 ms, 2 % loss: live after {time}");
    network.run_for(secs(10));
    network.assert_saw_every_frame(spectator);
    assert_eq!(network.nodes[spectator].frames[0], 0);
    assert!(time < secs(10), "{time}");
}

#[test]
fn spectator_from_the_first_frame_needs_no_input_log() {
    let mut network =
        SpectatorTestNetwork::new(2, LargeStateMachine::new(100, true), feed_config(), lossy_link(100, 0.0));
    network.is_playing = false;
    let spectator = network.add_spectator(spectator_config_from_start(&[0]), LargeStateMachine::new(100, true));
    network.run_for(secs(1));
    network.is_playing = true;
    network.run_for(secs(10));
    network.assert_saw_every_frame(spectator);
    assert_eq!(network.nodes[spectator].frames[0], 0);
}

#[test]
fn spectator_from_the_beginning_without_a_log_is_refused() {
    let mut network =
        SpectatorTestNetwork::new(2, LargeStateMachine::new(100, true), feed_config(), lossy_link(100, 0.0));
    network.run_for(secs(60));
    let spectator = network.add_spectator(spectator_config_from_start(&[0]), LargeStateMachine::new(100, true));
    network.run_for(secs(5));
    let reason = SourceError::Refused(CloseReason::TooOld);
    assert!(network.nodes[spectator].has_event(|event| *event == SpectatorEvent::Dropped { reason }));
}

#[test]
fn spectator_keeps_up_with_20_percent_loss() {
    let mut network =
        SpectatorTestNetwork::new(3, LargeStateMachine::new(50_000, true), feed_config(), lossy_link(80, 0.2));
    network.run_for(secs(5));
    let spectator = network.add_spectator(spectator_config(&[0]), empty_machine());
    let time = network.run_until_live(spectator, secs(10));
    println!("20 % loss: live after {time}");
    network.run_for(secs(60));
    network.assert_saw_every_frame(spectator);
    let stats = network.nodes[spectator].spectator().stats();
    println!("20 % loss: {} stalls in a minute, {} frames requested", stats.stalls, stats.requested_frames);
    assert!(stats.stalls < 60, "{stats:?}");
}

#[test]
fn spectator_frames_are_evenly_paced() {
    let mut network =
        SpectatorTestNetwork::new(4, LargeStateMachine::new(1_000, true), feed_config(), lossy_link(60, 0.01));
    network.run_for(secs(5));
    let spectator = network.add_spectator(spectator_config(&[0]), empty_machine());
    network.run_until_live(spectator, secs(10));
    network.run_for(secs(5));
    let from = network.nodes[spectator].shown_at.len();
    network.run_for(secs(20));
    network.assert_saw_every_frame(spectator);
    let shown = &network.nodes[spectator].shown_at[from..];
    let steps: Vec<f64> = shown.windows(2).map(|pair| (pair[1] - pair[0]).as_millis_f64()).collect();
    let mean = steps.iter().sum::<f64>() / steps.len() as f64;
    let deviation = steps.iter().map(|step| (step - mean).abs()).sum::<f64>() / steps.len() as f64;
    let behind = network.played_inputs.len() as u32 - network.nodes[spectator].frames.last().unwrap();
    println!("1 % loss, RTT 60: {mean:.2} ms between frames, deviation {deviation:.2} ms, {behind} frames behind");
    assert!((mean - 16.67).abs() < 0.2 && deviation < 1.0, "{mean} {deviation}");
    assert!(behind < 30);
}

#[test]
fn snapshot_download_resumes_after_a_cut() {
    let mut network = SpectatorTestNetwork::new(
        5,
        LargeStateMachine::new(MIB, true),
        feed_config(),
        rate_limited_link(4_000_000, 50, 0.01),
    );
    network.run_for(secs(5));
    let spectator = network.add_spectator(spectator_config(&[0]), empty_machine());
    network.run_for(secs(1));
    let before = network.nodes[spectator].spectator().download_progress();
    assert!(before > 0.2 && before < 0.8, "{before}");
    network.set_cut(0, spectator, true);
    network.run_for(secs(8));
    network.set_cut(0, spectator, false);
    let time = network.run_until_live(spectator, minute());
    println!("after a cut of 8 s in the middle of a download: live after {time}");
    let stats = network.nodes[spectator].spectator().stats();
    assert!(stats.received_parts < (MIB / 1_100) as u64 * 12 / 10, "nothing is downloaded twice: {stats:?}");
    network.run_for(secs(5));
    network.assert_saw_every_frame(spectator);
}

#[test]
fn spectator_catches_up_or_reloads_after_a_cut() {
    for (cut, loads) in [(8, 1), (40, 2)] {
        let mut network =
            SpectatorTestNetwork::new(6, LargeStateMachine::new(10_000, true), feed_config(), lossy_link(50, 0.01));
        network.run_for(secs(5));
        let patient = SpectatorConfig { give_up_timeout: secs(60), ..spectator_config(&[0]) };
        let spectator = network.add_spectator(patient, empty_machine());
        network.run_until_live(spectator, secs(5));
        network.set_cut(0, spectator, true);
        network.run_for(secs(cut));
        network.set_cut(0, spectator, false);
        network.run_for(secs(10));
        network.assert_saw_every_frame(spectator);
        assert_eq!(network.nodes[spectator].loads, loads, "cut for {cut} s");
    }
}

#[test]
fn spectator_switches_source_during_a_download() {
    let mut network = SpectatorTestNetwork::new(
        7,
        LargeStateMachine::new(MIB, true),
        feed_config(),
        rate_limited_link(4_000_000, 50, 0.01),
    );
    let other = network.add_feed(feed_config());
    network.run_for(secs(5));
    let spectator = network.add_spectator(spectator_config(&[0, other]), empty_machine());
    network.run_for(secs(1));
    assert!(network.nodes[spectator].spectator().download_progress() > 0.2);
    network.nodes[0].is_dead = true;
    let time = network.run_until_live(spectator, minute());
    println!("the source crashes in the middle of a download: live {time} later");
    network.run_for(secs(5));
    network.assert_saw_every_frame(spectator);
    assert!(network.nodes[spectator].has_event(|event| matches!(event, SpectatorEvent::SourceChanged { .. })));
}

#[test]
fn live_spectator_switches_source_without_reloading() {
    let mut network =
        SpectatorTestNetwork::new(8, LargeStateMachine::new(1_000, true), feed_config(), lossy_link(50, 0.01));
    let other = network.add_feed(FeedConfig { batch_frames: 5, ..feed_config() });
    network.run_for(secs(5));
    let spectator = network.add_spectator(spectator_config(&[0, other]), empty_machine());
    network.run_until_live(spectator, secs(5));
    network.run_for(secs(3));
    network.nodes[0].is_dead = true;
    network.run_for(secs(10));
    network.assert_saw_every_frame(spectator);
    assert_eq!(network.nodes[spectator].loads, 1, "only missed frames are fetched");
}

#[test]
fn snapshot_download_continues_from_a_second_source() {
    let mut network = SpectatorTestNetwork::new(
        9,
        LargeStateMachine::new(MIB, true),
        feed_config(),
        rate_limited_link(4_000_000, 50, 0.0),
    );
    let other = network.add_feed(feed_config());
    network.run_for(secs(5));
    // Both feeds have the same snapshot because spectators subscribed to both at the same time.
    let (one, two) = (
        network.add_spectator(spectator_config(&[0]), empty_machine()),
        network.add_spectator(spectator_config(&[other]), empty_machine()),
    );
    let spectator = network.add_spectator(spectator_config(&[0, other]), empty_machine());
    network.run_for(secs(1));
    network.nodes[0].is_dead = true;
    network.run_until_live(spectator, minute());
    let stats = network.nodes[spectator].spectator().stats();
    assert!(stats.received_parts < (MIB / 1_100) as u64 * 12 / 10, "the second source continues: {stats:?}");
    network.run_for(secs(5));
    network.assert_saw_every_frame(spectator);
    network.assert_saw_every_frame(two);
    assert!(network.nodes[one].live_at.is_none());
}

#[test]
fn only_the_slow_spectator_is_dropped() {
    let mut network =
        SpectatorTestNetwork::new(10, LargeStateMachine::new(1_000, true), feed_config(), lossy_link(50, 0.01));
    network.run_for(secs(5));
    let good: Vec<usize> = (0..3).map(|_| network.add_spectator(spectator_config(&[0]), empty_machine())).collect();
    let slow = network.add_spectator(spectator_config(&[0]), empty_machine());
    network.run_for(secs(5));
    // Hardly any packets reach the slow spectator, but its own packets arrive.
    let rate = Some(Rate { bytes_per_second: 180, queue_bytes: 600 });
    network.link(0, slow).set_config(LinkConfig { rate, ..lossy_link(50, 0.0) });
    network.run_for(secs(60));
    let reason = SourceError::Refused(CloseReason::TooSlow);
    let node = &network.nodes[slow];
    println!("the slow spectator: {:?}", node.events);
    assert!(node.has_event(|event| *event == SpectatorEvent::Dropped { reason }), "{:?}", node.events);
    assert!(node.has_event(|event| matches!(event, SpectatorEvent::Slowed { .. })), "{:?}", node.events);
    for spectator in good {
        network.assert_saw_every_frame(spectator);
    }
    assert_eq!(network.nodes[0].feed().stats().spectators, 3);
}

#[test]
fn silent_and_leaving_spectators_are_removed() {
    let mut network =
        SpectatorTestNetwork::new(11, LargeStateMachine::new(1_000, true), feed_config(), lossy_link(50, 0.0));
    let spectators: Vec<usize> =
        (0..3).map(|_| network.add_spectator(spectator_config(&[0]), empty_machine())).collect();
    network.run_for(secs(5));
    assert_eq!(network.nodes[0].feed().stats().spectators, 3);
    network.nodes[spectators[0]].is_dead = true;
    let now = network.now;
    network.nodes[spectators[1]].spectator.as_mut().unwrap().leave(now);
    network.run_for(secs(10));
    let stats = network.nodes[0].feed().stats();
    assert_eq!((stats.spectators, stats.dropped_silent), (1, 1));
    network.assert_saw_every_frame(spectators[2]);
}

#[test]
fn relay_of_a_relay_forwards_every_frame() {
    let logged_feed = || FeedConfig { log_bytes: MIB, ..feed_config() };
    let mut network =
        SpectatorTestNetwork::new(12, LargeStateMachine::new(30_000, true), feed_config(), lossy_link(40, 0.02));
    network.run_for(secs(5));
    let first = network.add_relay(spectator_config(&[0]), feed_config(), Some(empty_machine()));
    // The second relay has no machine: it forwards the data that it received.
    let second = network.add_relay(spectator_config(&[first]), logged_feed(), None);
    network.run_for(secs(10));
    let spectator = network.add_spectator(spectator_config(&[second]), empty_machine());
    let time = network.run_until_live(spectator, secs(20));
    network.run_for(secs(60));
    let late = network.add_spectator(spectator_config(&[second]), empty_machine());
    let late_time = network.run_until_live(late, secs(20));
    network.run_for(secs(10));
    let behind = |node: usize| network.played_inputs.len() as u32 - network.nodes[node].frames.last().unwrap();
    println!(
        "through two relays: live after {time}, and {late_time} a minute later; {} frames behind",
        behind(spectator)
    );
    for node in [first, second, spectator, late] {
        assert_eq!(network.nodes[node].wrong_frames, 0);
        assert_eq!(network.nodes[node].spectator().stats().mismatches, 0);
        assert!(behind(node) < 120);
    }
    assert!(network.nodes[spectator].spectator().stats().malformed == 0);
}

#[test]
fn end_is_reported_after_the_last_frame() {
    let mut network =
        SpectatorTestNetwork::new(13, LargeStateMachine::new(1_000, true), feed_config(), lossy_link(50, 0.1));
    let spectator = network.add_spectator(spectator_config(&[0]), empty_machine());
    network.run_for(secs(5));
    network.is_playing = false;
    let now = network.now;
    network.nodes[0].feed.as_mut().unwrap().end(now);
    network.run_for(secs(5));
    let last = network.played_inputs.len() as u32;
    assert!(
        network.nodes[spectator]
            .has_event(|event| *event == SpectatorEvent::Ended { frame: coplay::frame::Frame::new(last) })
    );
    assert_eq!(network.nodes[spectator].frames.last(), Some(&(last - 1)));
    assert_eq!(network.nodes[0].feed().stats().spectators, 0);
}

#[test]
fn snapshot_with_a_wrong_hash_is_refused() {
    // The hash of the source's snapshot does not match its state.
    let mut network =
        SpectatorTestNetwork::new(14, LargeStateMachine::new(1_000, true), feed_config(), lossy_link(50, 0.0));
    network.run_for(secs(1));
    let frame = coplay::frame::Frame::new(network.played_inputs.len() as u32);
    let (now, state) = (network.now, network.machine.save());
    network.nodes[0].feed.as_mut().unwrap().set_snapshot(now, frame, &state, 12_345);
    let spectator = network.add_spectator(spectator_config(&[0]), empty_machine());
    network.run_for(secs(20));
    let node = &network.nodes[spectator];
    let refused = node.has_event(|event| *event == SpectatorEvent::Dropped { reason: SourceError::BadSnapshot });
    assert!(refused || node.live_at.is_some(), "refused until there is a valid one: {:?}", node.events);
    assert!(node.spectator().stats().mismatches > 0);
}

#[test]
fn oversized_snapshot_is_not_downloaded() {
    let mut network =
        SpectatorTestNetwork::new(15, LargeStateMachine::new(MIB, true), feed_config(), lossy_link(50, 0.0));
    network.run_for(secs(1));
    let spectator = network
        .add_spectator(SpectatorConfig { max_snapshot_size: 500_000, ..spectator_config(&[0]) }, empty_machine());
    network.run_for(secs(10));
    let node = &network.nodes[spectator];
    let too_large = |event: &SpectatorEvent| {
        matches!(event, SpectatorEvent::Dropped { reason: SourceError::SnapshotTooLarge { .. } })
    };
    assert!(node.has_event(too_large), "{:?}", node.events);
    assert!(node.peak_memory < 200_000);
}

#[test]
fn spectator_with_other_settings_is_refused() {
    let mut network =
        SpectatorTestNetwork::new(16, LargeStateMachine::new(100, true), feed_config(), lossy_link(50, 0.0));
    let mut other = settings();
    other.input_delay = 9;
    let spectator =
        network.add_spectator(SpectatorConfig { settings: other, ..spectator_config(&[0]) }, empty_machine());
    network.run_for(secs(10));
    let reason = SourceError::Refused(CloseReason::Settings);
    assert!(network.nodes[spectator].has_event(|event| *event == SpectatorEvent::Dropped { reason }));
}

#[test]
fn corrupted_datagrams_do_no_lasting_harm() {
    for seed in 0..12 {
        let mut network = SpectatorTestNetwork::new(
            seed,
            LargeStateMachine::new(60_000, seed % 2 == 0),
            feed_config(),
            lossy_link(40, 0.02),
        );
        network.run_for(secs(3));
        let spectators: Vec<usize> =
            (0..3).map(|_| network.add_spectator(spectator_config(&[0]), empty_machine())).collect();
        network.tamper_random = Some(Random::new(seed));
        network.run_for(secs(20));
        network.tamper_random = None;
        for spectator in spectators {
            let memory = network.nodes[spectator].peak_memory;
            assert!(memory < (64 << 20) + (4 << 20), "{memory}");
        }
        let feed = network.nodes[0].feed();
        assert!(feed.memory() < 2_000_000, "{}", feed.memory());
        // A spectator that joins once the link is sound sees every frame.
        let late = network.add_spectator(spectator_config(&[0]), empty_machine());
        network.run_until_live(late, secs(10));
        network.run_for(secs(5));
        network.assert_saw_every_frame(late);
    }
}

#[test]
fn feed_does_not_amplify_foreign_datagrams() {
    let mut network =
        SpectatorTestNetwork::new(17, LargeStateMachine::new(1_000, true), feed_config(), lossy_link(40, 0.0));
    let spectator = network.add_spectator(spectator_config(&[0]), empty_machine());
    network.run_until_live(spectator, secs(5));
    let mut random = Random::new(3);
    let mut buf = [0; MAX_DATAGRAM];
    let (mut sent, mut received) = (0, 0);
    for flood in 0..200_000u64 {
        let from = Addr(1_000_000 + random.below(1 << 40));
        let mut bytes = match flood % 4 {
            0 => (0..random.below(200)).map(|_| random.bits() as u8).collect(),
            1 => {
                let session_id = if random.chance(0.5) { SESSION_ID } else { random.bits() };
                let subscribe = Subscribe {
                    session_id,
                    settings_digest: random.bits(),
                    token: random.bits(),
                    first_frame: None,
                    known_snapshot: None,
                };
                let len = FeedMessage::Subscribe(subscribe).encode(&mut buf).unwrap();
                buf[..len].to_vec()
            }
            2 => [&[0x11u8][..], &SESSION_ID.to_le_bytes(), &[0; 40]].concat(),
            _ => [&[0x12u8][..], &SESSION_ID.to_le_bytes(), &[1; 40]].concat(),
        };
        corrupt_datagram(&mut random, &mut bytes);
        let now = network.now;
        let feed = network.nodes[0].feed.as_mut().unwrap();
        feed.handle_datagram(now, from, &bytes);
        sent += bytes.len();
        while let Some(packet) = feed.poll_transmit(now, &mut buf) {
            if packet.to.0 >= 1_000_000 {
                received += packet.len;
                assert!(packet.len <= bytes.len(), "{packet:?} for {} bytes", bytes.len());
            }
        }
        if flood % 1_000 == 0 {
            network.run_for(TimeDelta::from_millis(5));
        }
    }
    println!("strangers sent {sent} bytes and received {received}");
    let feed = network.nodes[0].feed();
    assert_eq!(feed.stats().spectators, 1);
    assert!(feed.memory() < 500_000, "{}", feed.memory());
    network.run_for(secs(3));
    network.assert_saw_every_frame(spectator);
}

#[test]
fn downloads_share_the_feed_byte_budget() {
    let budget = FeedConfig { max_bulk_rate: 400_000, max_bulk_rate_per_spectator: 100_000, ..feed_config() };
    let mut network = SpectatorTestNetwork::new(18, LargeStateMachine::new(MIB, true), budget, lossy_link(50, 0.0));
    network.run_for(secs(5));
    let spectators: Vec<usize> =
        (0..8).map(|_| network.add_spectator(spectator_config(&[0]), empty_machine())).collect();
    network.run_for(secs(2));
    let before = network.nodes[0].feed().stats().bulk_out;
    network.run_for(secs(10));
    let rate = (network.nodes[0].feed().stats().bulk_out - before) / 10;
    assert!((370_000..=405_000).contains(&rate), "{rate} bytes per second");
    let shares: Vec<f32> = spectators.iter().map(|node| network.nodes[*node].spectator().download_progress()).collect();
    let (least, most) = (shares.iter().copied().fold(1.0, f32::min), shares.iter().copied().fold(0.0, f32::max));
    println!("8 downloads within 400 kB/s: {rate} bytes per second, between {least} and {most} of it");
    assert!(most - least < 0.1, "{shares:?}");
    assert!(network.nodes[0].feed().memory() < 3 * MIB, "one snapshot for all");
    network.run_for(secs(25));
    spectators.into_iter().for_each(|spectator| network.assert_saw_every_frame(spectator));
}

#[test]
fn one_spectator_is_limited_to_its_byte_rate() {
    let budget = FeedConfig { max_bulk_rate_per_spectator: 100_000, ..feed_config() };
    let mut network = SpectatorTestNetwork::new(19, LargeStateMachine::new(MIB, true), budget, lossy_link(50, 0.0));
    network.run_for(secs(1));
    let spectator = network.add_spectator(spectator_config(&[0]), empty_machine());
    let time = network.run_until_live(spectator, secs(20));
    assert!(time > secs(10) && time < secs(13), "{time}");
}

#[test]
fn spectators_beyond_the_limit_are_refused() {
    let small = FeedConfig { max_spectators: 2, ..feed_config() };
    let mut network = SpectatorTestNetwork::new(20, LargeStateMachine::new(100, true), small, lossy_link(50, 0.0));
    let other = network.add_feed(feed_config());
    network.run_for(secs(1));
    let first: Vec<usize> = (0..2).map(|_| network.add_spectator(spectator_config(&[0]), empty_machine())).collect();
    network.run_for(secs(1));
    let (refused, accepted) = (
        network.add_spectator(spectator_config(&[0]), empty_machine()),
        network.add_spectator(spectator_config(&[0, other]), empty_machine()),
    );
    network.run_for(secs(10));
    let reason = SourceError::Refused(CloseReason::Full);
    assert!(network.nodes[refused].has_event(|event| *event == SpectatorEvent::Dropped { reason }));
    first.into_iter().chain([accepted]).for_each(|spectator| network.assert_saw_every_frame(spectator));
    assert_eq!(network.nodes[0].feed().stats().spectators, 2);
}

#[test]
fn spectator_of_a_frozen_game_sees_its_last_frame() {
    let mut network =
        SpectatorTestNetwork::new(21, LargeStateMachine::new(100, true), feed_config(), lossy_link(50, 0.01));
    let spectator = network.add_spectator(spectator_config(&[0]), empty_machine());
    network.run_for(ms(5_050));
    network.is_playing = false;
    network.run_for(secs(2));
    assert_eq!(network.nodes[spectator].frames.last(), Some(&(network.played_inputs.len() as u32 - 1)));
    let before = network.nodes[spectator].wakes;
    network.run_for(secs(30));
    let wakes = network.nodes[spectator].wakes - before;
    println!("a frozen game: {wakes} wakes in 30 s");
    assert!(wakes < 300, "{wakes}");
    network.is_playing = true;
    network.run_for(secs(5));
    network.assert_saw_every_frame(spectator);
    assert!(!network.nodes[spectator].has_event(|event| matches!(event, SpectatorEvent::Dropped { .. })));
}

#[test]
fn live_spectator_wakes_about_once_per_frame() {
    let mut network =
        SpectatorTestNetwork::new(22, LargeStateMachine::new(100, true), feed_config(), lossy_link(50, 0.02));
    let spectator = network.add_spectator(spectator_config(&[0]), empty_machine());
    network.run_until_live(spectator, secs(5));
    let before = network.nodes[spectator].wakes;
    network.run_for(secs(20));
    let wakes = (network.nodes[spectator].wakes - before) / 20;
    println!("a live spectator wakes {wakes} times per second");
    assert!(wakes < 90, "{wakes}");
}

#[test]
fn feed_whose_host_slept_keeps_its_spectators() {
    let mut network =
        SpectatorTestNetwork::new(23, LargeStateMachine::new(100, true), feed_config(), lossy_link(50, 0.0));
    let spectator = network.add_spectator(spectator_config(&[0]), empty_machine());
    network.run_for(secs(5));
    // The computer of the feed sleeps: neither a frame nor a packet for 8 s.
    (network.is_playing, network.nodes[0].is_dead) = (false, true);
    network.run_for(secs(8));
    (network.is_playing, network.nodes[0].is_dead) = (true, false);
    network.run_for(secs(5));
    network.assert_saw_every_frame(spectator);
    assert_eq!(network.nodes[spectator].loads, 1);
    assert_eq!(network.nodes[0].feed().stats().dropped_silent, 0);
}

#[test]
fn many_spectators_do_not_change_the_players_traffic() {
    let (alone, watched) = (coplay_sim::spectator_scale::run_default(0), coplay_sim::spectator_scale::run_default(150));
    assert_eq!(alone.player_trace_hash, watched.player_trace_hash, "bytes and times of the players are the same");
    assert_eq!((watched.subscribers, watched.live, watched.wrong_frames), (150, 150, 0));
    assert!(watched.max_spectator_memory < 60 * 1_024, "{watched:?}");
    assert!(watched.mean_frames_behind < 20.0, "{watched:?}");
}

#[test]
fn spectator_becoming_a_player_takes_all_buffered_inputs() {
    let mut network =
        SpectatorTestNetwork::new(24, LargeStateMachine::new(1_000, true), feed_config(), lossy_link(50, 0.0));
    network.run_for(secs(5));
    let spectator = network.add_spectator(spectator_config(&[0]), empty_machine());
    network.run_until_live(spectator, secs(5));
    let (played, node) = (&network.played_inputs, &mut network.nodes[spectator]);
    let (engine, machine) = (node.spectator.as_mut().unwrap(), node.machine.as_mut().unwrap());
    assert!(engine.take_words(engine.next_frame() + 1).is_none(), "only the next frame can be taken");
    while let Some(words) = engine.take_words(engine.next_frame()).map(<[u128]>::to_vec) {
        assert_eq!(words, played[engine.next_frame().number() as usize - 1]);
        machine.step(&words);
    }
    assert_eq!(engine.next_frame(), engine.newest_frame());
    assert!(played.len() as u32 - engine.next_frame().number() < 12, "no further behind than the latency");
}

#[test]
fn spectator_goes_live_over_every_link_preset() {
    let links = [
        ("lan", LinkConfig::lan()),
        ("broadband", LinkConfig::broadband()),
        ("wifi", LinkConfig::wifi()),
        ("mobile", LinkConfig::mobile()),
        ("satellite", LinkConfig::satellite()),
        ("awful", LinkConfig::awful()),
    ];
    for (name, link) in links {
        for seed in 0..3 {
            let config = FeedConfig { log_bytes: MIB, ..feed_config() };
            let mut network =
                SpectatorTestNetwork::new(seed, LargeStateMachine::new(200_000, true), config, link.clone());
            network.run_for(secs(20));
            let late = network.add_spectator(spectator_config(&[0]), empty_machine());
            let early = network.add_spectator(spectator_config_from_start(&[0]), LargeStateMachine::new(200_000, true));
            let since = network.now;
            let times = [late, early].map(|spectator| {
                network.run_until_live(spectator, minute());
                network.nodes[spectator].live_at.unwrap() - since
            });
            network.run_for(secs(30));
            let [late_stats, early_stats] = [late, early].map(|spectator| network.nodes[spectator].spectator().stats());
            println!(
                "{name}: 200 kB and live after {}, 20 s from the beginning after {}; {} and {} stalls",
                times[0], times[1], late_stats.stalls, early_stats.stalls
            );
            network.assert_saw_every_frame(late);
            network.assert_saw_every_frame(early);
        }
    }
}

#[test]
fn relay_keeps_its_spectators_after_a_cut() {
    let mut network =
        SpectatorTestNetwork::new(31, LargeStateMachine::new(1_000, true), feed_config(), lossy_link(50, 0.01));
    network.run_for(secs(5));
    let relay = network.add_relay(spectator_config(&[0]), feed_config(), Some(empty_machine()));
    network.run_until_live(relay, secs(5));
    let spectator = network.add_spectator(spectator_config(&[relay]), empty_machine());
    network.run_until_live(spectator, secs(5));
    network.set_cut(0, relay, true);
    network.run_for(secs(14));
    network.set_cut(0, relay, false);
    // All missed frames arrive at once: more than a slow spectator may ever be behind.
    network.run_for(secs(10));
    network.assert_saw_every_frame(relay);
    network.assert_saw_every_frame(spectator);
    assert!(!network.nodes[spectator].has_event(|event| matches!(event, SpectatorEvent::Dropped { .. })));
    assert_eq!(network.nodes[spectator].loads, 1);
}

#[test]
fn spectator_joining_after_a_desync_gets_a_newer_snapshot() {
    let mut network =
        SpectatorTestNetwork::new(32, LargeStateMachine::new(1_000, true), feed_config(), lossy_link(50, 0.0));
    network.run_for(secs(2));
    let before = network.add_spectator(spectator_config(&[0]), empty_machine());
    network.run_until_live(before, secs(5));
    // The state of the machine changes without an input.
    network.machine.state[7] ^= 1;
    network.nodes[0].feed.as_mut().expect("the first node has a feed").retire_snapshots();
    let after = network.add_spectator(spectator_config(&[0]), empty_machine());
    network.run_until_live(after, secs(5));
    network.run_for(secs(5));
    network.assert_saw_every_frame(after);
    assert!(network.nodes[before].has_event(|event| matches!(event, SpectatorEvent::Diverged { .. })));
}
