//! Those who watch see what was played, all of it and nothing else, however bad their line; and nobody else pays for that.

mod common;

use common::spectator_network::{
    LargeStateMachine, SESSION_ID, SpectatorTestNetwork, corrupt_datagram, feed_config, minute, settings, watch_config,
    watch_config_from_start,
};
use common::{ms, secs};
use coplay::id::Addr;
use coplay::spectator_feed::{FeedConfig, SourceError, SpectatorConfig, SpectatorEvent};
use coplay::time::TimeDelta;
use coplay::wire::{CloseReason, FeedMessage, MAX_DATAGRAM, Subscribe};
use coplay_sim::link::{LinkConfig, Loss, Rate};
use coplay_sim::random::Random;

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
    let mut stand = SpectatorTestNetwork::new(
        1,
        LargeStateMachine::new(MIB, true),
        feed_config(),
        rate_limited_link(1_000_000, 300, 0.02),
    );
    stand.run_for(secs(30));
    let watcher = stand.add_spectator(watch_config(&[0]), empty_machine());
    let time = stand.run_until_live(watcher, minute());
    println!("1 MiB of noise over 1 Mbit/s, RTT 300 ms, 2 % loss: live after {time}");
    let stats = stand.nodes[watcher].spectator().stats();
    println!(
        "asked for {} parts, got {}, memory {}",
        stats.requested_parts, stats.received_parts, stand.nodes[watcher].peak_memory
    );
    stand.run_for(secs(10));
    stand.assert_saw_every_frame(watcher);
    assert!(time < secs(16), "the line alone needs 9 s: {time}");
    assert_eq!(stand.nodes[watcher].loads, 1);
}

#[test]
fn compressible_snapshot_downloads_faster() {
    let mut stand = SpectatorTestNetwork::new(
        1,
        LargeStateMachine::new(MIB, false),
        feed_config(),
        rate_limited_link(1_000_000, 100, 0.0),
    );
    stand.run_for(secs(5));
    let watcher = stand.add_spectator(watch_config(&[0]), empty_machine());
    let time = stand.run_until_live(watcher, minute());
    println!("1 MiB of order over 1 Mbit/s, RTT 100 ms: live after {time}");
    assert!(time < secs(3), "{time}");
    stand.run_for(secs(5));
    stand.assert_saw_every_frame(watcher);
}

#[test]
fn spectator_replays_a_long_game_from_the_beginning() {
    let config = FeedConfig { log_bytes: 4 * MIB, ..feed_config() };
    let mut stand = SpectatorTestNetwork::new(2, LargeStateMachine::new(100, true), config, lossy_link(100, 0.02));
    stand.run_for(secs(600));
    let fresh = LargeStateMachine::new(100, true);
    let watcher = stand.add_spectator(watch_config_from_start(&[0]), fresh);
    let time = stand.run_until_live(watcher, minute());
    println!("10 minutes from the beginning, RTT 100 ms, 2 % loss: live after {time}");
    stand.run_for(secs(10));
    stand.assert_saw_every_frame(watcher);
    assert_eq!(stand.nodes[watcher].frames[0], 0);
    assert!(time < secs(10), "{time}");
}

#[test]
fn spectator_from_the_first_frame_needs_no_input_log() {
    let mut stand =
        SpectatorTestNetwork::new(2, LargeStateMachine::new(100, true), feed_config(), lossy_link(100, 0.0));
    stand.is_playing = false;
    let watcher = stand.add_spectator(watch_config_from_start(&[0]), LargeStateMachine::new(100, true));
    stand.run_for(secs(1));
    stand.is_playing = true;
    stand.run_for(secs(10));
    stand.assert_saw_every_frame(watcher);
    assert_eq!(stand.nodes[watcher].frames[0], 0);
}

#[test]
fn watching_from_the_beginning_without_a_log_is_refused() {
    let mut stand =
        SpectatorTestNetwork::new(2, LargeStateMachine::new(100, true), feed_config(), lossy_link(100, 0.0));
    stand.run_for(secs(60));
    let watcher = stand.add_spectator(watch_config_from_start(&[0]), LargeStateMachine::new(100, true));
    stand.run_for(secs(5));
    let reason = SourceError::Refused(CloseReason::TooOld);
    assert!(stand.nodes[watcher].has_event(|event| *event == SpectatorEvent::Dropped { reason }));
}

#[test]
fn spectator_keeps_up_with_20_percent_loss() {
    let mut stand =
        SpectatorTestNetwork::new(3, LargeStateMachine::new(50_000, true), feed_config(), lossy_link(80, 0.2));
    stand.run_for(secs(5));
    let watcher = stand.add_spectator(watch_config(&[0]), empty_machine());
    let time = stand.run_until_live(watcher, secs(10));
    println!("20 % loss: live after {time}");
    stand.run_for(secs(60));
    stand.assert_saw_every_frame(watcher);
    let stats = stand.nodes[watcher].spectator().stats();
    println!("20 % loss: {} stalls in a minute, {} frames asked for", stats.stalls, stats.requested_frames);
    assert!(stats.stalls < 60, "{stats:?}");
}

#[test]
fn spectator_frames_are_evenly_paced() {
    let mut stand =
        SpectatorTestNetwork::new(4, LargeStateMachine::new(1_000, true), feed_config(), lossy_link(60, 0.01));
    stand.run_for(secs(5));
    let watcher = stand.add_spectator(watch_config(&[0]), empty_machine());
    stand.run_until_live(watcher, secs(10));
    stand.run_for(secs(5));
    let from = stand.nodes[watcher].shown_at.len();
    stand.run_for(secs(20));
    stand.assert_saw_every_frame(watcher);
    let shown = &stand.nodes[watcher].shown_at[from..];
    let steps: Vec<f64> = shown.windows(2).map(|pair| (pair[1] - pair[0]).as_millis_f64()).collect();
    let mean = steps.iter().sum::<f64>() / steps.len() as f64;
    let deviation = steps.iter().map(|step| (step - mean).abs()).sum::<f64>() / steps.len() as f64;
    let behind = stand.played_inputs.len() as u32 - stand.nodes[watcher].frames.last().unwrap();
    println!("1 % loss, RTT 60: {mean:.2} ms between frames, deviation {deviation:.2} ms, {behind} frames behind");
    assert!((mean - 16.67).abs() < 0.2 && deviation < 1.0, "{mean} {deviation}");
    assert!(behind < 30);
}

#[test]
fn snapshot_download_resumes_after_a_cut() {
    let mut stand = SpectatorTestNetwork::new(
        5,
        LargeStateMachine::new(MIB, true),
        feed_config(),
        rate_limited_link(4_000_000, 50, 0.01),
    );
    stand.run_for(secs(5));
    let watcher = stand.add_spectator(watch_config(&[0]), empty_machine());
    stand.run_for(secs(1));
    let before = stand.nodes[watcher].spectator().download_progress();
    assert!(before > 0.2 && before < 0.8, "{before}");
    stand.set_cut(0, watcher, true);
    stand.run_for(secs(8));
    stand.set_cut(0, watcher, false);
    let time = stand.run_until_live(watcher, minute());
    println!("after a cut of 8 s in the middle of a download: live after {time}");
    let stats = stand.nodes[watcher].spectator().stats();
    assert!(stats.received_parts < (MIB / 1_100) as u64 * 12 / 10, "nothing is downloaded twice: {stats:?}");
    stand.run_for(secs(5));
    stand.assert_saw_every_frame(watcher);
}

#[test]
fn spectator_catches_up_or_reloads_after_a_cut() {
    for (cut, loads) in [(8, 1), (40, 2)] {
        let mut stand =
            SpectatorTestNetwork::new(6, LargeStateMachine::new(10_000, true), feed_config(), lossy_link(50, 0.01));
        stand.run_for(secs(5));
        let patient = SpectatorConfig { give_up_timeout: secs(60), ..watch_config(&[0]) };
        let watcher = stand.add_spectator(patient, empty_machine());
        stand.run_until_live(watcher, secs(5));
        stand.set_cut(0, watcher, true);
        stand.run_for(secs(cut));
        stand.set_cut(0, watcher, false);
        stand.run_for(secs(10));
        stand.assert_saw_every_frame(watcher);
        assert_eq!(stand.nodes[watcher].loads, loads, "cut for {cut} s");
    }
}

#[test]
fn spectator_switches_source_during_a_download() {
    let mut stand = SpectatorTestNetwork::new(
        7,
        LargeStateMachine::new(MIB, true),
        feed_config(),
        rate_limited_link(4_000_000, 50, 0.01),
    );
    let other = stand.add_feed(feed_config());
    stand.run_for(secs(5));
    let watcher = stand.add_spectator(watch_config(&[0, other]), empty_machine());
    stand.run_for(secs(1));
    assert!(stand.nodes[watcher].spectator().download_progress() > 0.2);
    stand.nodes[0].is_dead = true;
    let time = stand.run_until_live(watcher, minute());
    println!("the source dies in the middle of a download: live {time} later");
    stand.run_for(secs(5));
    stand.assert_saw_every_frame(watcher);
    assert!(stand.nodes[watcher].has_event(|event| matches!(event, SpectatorEvent::SourceChanged { .. })));
}

#[test]
fn live_spectator_switches_source_without_reloading() {
    let mut stand =
        SpectatorTestNetwork::new(8, LargeStateMachine::new(1_000, true), feed_config(), lossy_link(50, 0.01));
    let other = stand.add_feed(FeedConfig { batch_frames: 5, ..feed_config() });
    stand.run_for(secs(5));
    let watcher = stand.add_spectator(watch_config(&[0, other]), empty_machine());
    stand.run_until_live(watcher, secs(5));
    stand.run_for(secs(3));
    stand.nodes[0].is_dead = true;
    stand.run_for(secs(10));
    stand.assert_saw_every_frame(watcher);
    assert_eq!(stand.nodes[watcher].loads, 1, "only what was missed is fetched");
}

#[test]
fn snapshot_download_continues_from_a_second_source() {
    let mut stand = SpectatorTestNetwork::new(
        9,
        LargeStateMachine::new(MIB, true),
        feed_config(),
        rate_limited_link(4_000_000, 50, 0.0),
    );
    let other = stand.add_feed(feed_config());
    stand.run_for(secs(5));
    // Both have the same snapshot because somebody asked both at the same time.
    let (one, two) = (
        stand.add_spectator(watch_config(&[0]), empty_machine()),
        stand.add_spectator(watch_config(&[other]), empty_machine()),
    );
    let watcher = stand.add_spectator(watch_config(&[0, other]), empty_machine());
    stand.run_for(secs(1));
    stand.nodes[0].is_dead = true;
    stand.run_until_live(watcher, minute());
    let stats = stand.nodes[watcher].spectator().stats();
    assert!(stats.received_parts < (MIB / 1_100) as u64 * 12 / 10, "the second source goes on: {stats:?}");
    stand.run_for(secs(5));
    stand.assert_saw_every_frame(watcher);
    stand.assert_saw_every_frame(two);
    assert!(stand.nodes[one].live_at.is_none());
}

#[test]
fn only_the_slow_spectator_is_dropped() {
    let mut stand =
        SpectatorTestNetwork::new(10, LargeStateMachine::new(1_000, true), feed_config(), lossy_link(50, 0.01));
    stand.run_for(secs(5));
    let good: Vec<usize> = (0..3).map(|_| stand.add_spectator(watch_config(&[0]), empty_machine())).collect();
    let slow = stand.add_spectator(watch_config(&[0]), empty_machine());
    stand.run_for(secs(5));
    // Hardly anything gets to it any more, but it is heard.
    let rate = Some(Rate { bytes_per_second: 180, queue_bytes: 600 });
    stand.link(0, slow).set_config(LinkConfig { rate, ..lossy_link(50, 0.0) });
    stand.run_for(secs(60));
    let reason = SourceError::Refused(CloseReason::TooSlow);
    let node = &stand.nodes[slow];
    println!("the slow one: {:?}", node.events);
    assert!(node.has_event(|event| *event == SpectatorEvent::Dropped { reason }), "{:?}", node.events);
    assert!(node.has_event(|event| matches!(event, SpectatorEvent::Slowed { .. })), "{:?}", node.events);
    for watcher in good {
        stand.assert_saw_every_frame(watcher);
    }
    assert_eq!(stand.nodes[0].feed().stats().spectators, 3);
}

#[test]
fn silent_and_leaving_spectators_are_removed() {
    let mut stand =
        SpectatorTestNetwork::new(11, LargeStateMachine::new(1_000, true), feed_config(), lossy_link(50, 0.0));
    let watchers: Vec<usize> = (0..3).map(|_| stand.add_spectator(watch_config(&[0]), empty_machine())).collect();
    stand.run_for(secs(5));
    assert_eq!(stand.nodes[0].feed().stats().spectators, 3);
    stand.nodes[watchers[0]].is_dead = true;
    let now = stand.now;
    stand.nodes[watchers[1]].spectator.as_mut().unwrap().leave(now);
    stand.run_for(secs(10));
    let stats = stand.nodes[0].feed().stats();
    assert_eq!((stats.spectators, stats.dropped_silent), (1, 1));
    stand.assert_saw_every_frame(watchers[2]);
}

#[test]
fn relay_of_a_relay_forwards_every_frame() {
    let keep = || FeedConfig { log_bytes: MIB, ..feed_config() };
    let mut stand =
        SpectatorTestNetwork::new(12, LargeStateMachine::new(30_000, true), feed_config(), lossy_link(40, 0.02));
    stand.run_for(secs(5));
    let first = stand.add_relay(watch_config(&[0]), feed_config(), Some(empty_machine()));
    // The second has no machine: it passes on what it got.
    let second = stand.add_relay(watch_config(&[first]), keep(), None);
    stand.run_for(secs(10));
    let watcher = stand.add_spectator(watch_config(&[second]), empty_machine());
    let time = stand.run_until_live(watcher, secs(20));
    stand.run_for(secs(60));
    let late = stand.add_spectator(watch_config(&[second]), empty_machine());
    let late_time = stand.run_until_live(late, secs(20));
    stand.run_for(secs(10));
    let behind = |node: usize| stand.played_inputs.len() as u32 - stand.nodes[node].frames.last().unwrap();
    println!(
        "players, relay, relay, watcher: live after {time}, and {late_time} a minute later; {} frames behind",
        behind(watcher)
    );
    for node in [first, second, watcher, late] {
        assert_eq!(stand.nodes[node].wrong_frames, 0);
        assert_eq!(stand.nodes[node].spectator().stats().mismatches, 0);
        assert!(behind(node) < 120);
    }
    assert!(stand.nodes[watcher].spectator().stats().malformed == 0);
}

#[test]
fn end_is_reported_after_the_last_frame() {
    let mut stand =
        SpectatorTestNetwork::new(13, LargeStateMachine::new(1_000, true), feed_config(), lossy_link(50, 0.1));
    let watcher = stand.add_spectator(watch_config(&[0]), empty_machine());
    stand.run_for(secs(5));
    stand.is_playing = false;
    let now = stand.now;
    stand.nodes[0].feed.as_mut().unwrap().end(now);
    stand.run_for(secs(5));
    let last = stand.played_inputs.len() as u32;
    assert!(
        stand.nodes[watcher]
            .has_event(|event| *event == SpectatorEvent::Ended { frame: coplay::frame::Frame::new(last) })
    );
    assert_eq!(stand.nodes[watcher].frames.last(), Some(&(last - 1)));
    assert_eq!(stand.nodes[0].feed().stats().spectators, 0);
}

#[test]
fn snapshot_with_a_wrong_hash_is_refused() {
    // The machine at the source hashes another state than it gives out.
    let mut stand =
        SpectatorTestNetwork::new(14, LargeStateMachine::new(1_000, true), feed_config(), lossy_link(50, 0.0));
    stand.run_for(secs(1));
    let frame = coplay::frame::Frame::new(stand.played_inputs.len() as u32);
    let (now, state) = (stand.now, stand.machine.save());
    stand.nodes[0].feed.as_mut().unwrap().set_snapshot(now, frame, &state, 12_345);
    let watcher = stand.add_spectator(watch_config(&[0]), empty_machine());
    stand.run_for(secs(20));
    let node = &stand.nodes[watcher];
    let told = node.has_event(|event| *event == SpectatorEvent::Dropped { reason: SourceError::BadSnapshot });
    assert!(told || node.live_at.is_some(), "refused, until there is a good one: {:?}", node.events);
    assert!(node.spectator().stats().mismatches > 0);
}

#[test]
fn oversized_snapshot_is_not_downloaded() {
    let mut stand =
        SpectatorTestNetwork::new(15, LargeStateMachine::new(MIB, true), feed_config(), lossy_link(50, 0.0));
    stand.run_for(secs(1));
    let watcher =
        stand.add_spectator(SpectatorConfig { max_snapshot_size: 500_000, ..watch_config(&[0]) }, empty_machine());
    stand.run_for(secs(10));
    let node = &stand.nodes[watcher];
    let too_large = |event: &SpectatorEvent| {
        matches!(event, SpectatorEvent::Dropped { reason: SourceError::SnapshotTooLarge { .. } })
    };
    assert!(node.has_event(too_large), "{:?}", node.events);
    assert!(node.peak_memory < 200_000);
}

#[test]
fn spectator_with_other_settings_is_refused() {
    let mut stand =
        SpectatorTestNetwork::new(16, LargeStateMachine::new(100, true), feed_config(), lossy_link(50, 0.0));
    let mut other = settings();
    other.input_delay = 9;
    let watcher = stand.add_spectator(SpectatorConfig { settings: other, ..watch_config(&[0]) }, empty_machine());
    stand.run_for(secs(10));
    let reason = SourceError::Refused(CloseReason::Settings);
    assert!(stand.nodes[watcher].has_event(|event| *event == SpectatorEvent::Dropped { reason }));
}

#[test]
fn corrupted_datagrams_do_no_lasting_harm() {
    for seed in 0..12 {
        let mut stand = SpectatorTestNetwork::new(
            seed,
            LargeStateMachine::new(60_000, seed % 2 == 0),
            feed_config(),
            lossy_link(40, 0.02),
        );
        stand.run_for(secs(3));
        let watchers: Vec<usize> = (0..3).map(|_| stand.add_spectator(watch_config(&[0]), empty_machine())).collect();
        stand.tamper_random = Some(Random::new(seed));
        stand.run_for(secs(20));
        stand.tamper_random = None;
        for watcher in watchers {
            let memory = stand.nodes[watcher].peak_memory;
            assert!(memory < (64 << 20) + (4 << 20), "{memory}");
        }
        let feed = stand.nodes[0].feed();
        assert!(feed.memory() < 2_000_000, "{}", feed.memory());
        // Whoever comes when the line is sound sees everything.
        let late = stand.add_spectator(watch_config(&[0]), empty_machine());
        stand.run_until_live(late, secs(10));
        stand.run_for(secs(5));
        stand.assert_saw_every_frame(late);
    }
}

#[test]
fn feed_does_not_amplify_foreign_datagrams() {
    let mut stand =
        SpectatorTestNetwork::new(17, LargeStateMachine::new(1_000, true), feed_config(), lossy_link(40, 0.0));
    let watcher = stand.add_spectator(watch_config(&[0]), empty_machine());
    stand.run_until_live(watcher, secs(5));
    let mut luck = Random::new(3);
    let mut buf = [0; MAX_DATAGRAM];
    let (mut sent, mut got) = (0, 0);
    for flood in 0..200_000u64 {
        let from = Addr(1_000_000 + luck.below(1 << 40));
        let mut bytes = match flood % 4 {
            0 => (0..luck.below(200)).map(|_| luck.bits() as u8).collect(),
            1 => {
                let session = if luck.chance(0.5) { SESSION_ID } else { luck.bits() };
                let watch = Subscribe {
                    session_id: session,
                    settings_digest: luck.bits(),
                    token: luck.bits(),
                    first_frame: None,
                    known_snapshot: None,
                };
                let len = FeedMessage::Subscribe(watch).encode(&mut buf).unwrap();
                buf[..len].to_vec()
            }
            2 => [&[0x11u8][..], &SESSION_ID.to_le_bytes(), &[0; 40]].concat(),
            _ => [&[0x12u8][..], &SESSION_ID.to_le_bytes(), &[1; 40]].concat(),
        };
        corrupt_datagram(&mut luck, &mut bytes);
        let now = stand.now;
        let feed = stand.nodes[0].feed.as_mut().unwrap();
        feed.handle_datagram(now, from, &bytes);
        sent += bytes.len();
        while let Some(packet) = feed.poll_transmit(now, &mut buf) {
            if packet.to.0 >= 1_000_000 {
                got += packet.len;
                assert!(packet.len <= bytes.len(), "{packet:?} for {} bytes", bytes.len());
            }
        }
        if flood % 1_000 == 0 {
            stand.run_for(TimeDelta::from_millis(5));
        }
    }
    println!("strangers sent {sent} bytes and got {got}");
    let feed = stand.nodes[0].feed();
    assert_eq!(feed.stats().spectators, 1);
    assert!(feed.memory() < 500_000, "{}", feed.memory());
    stand.run_for(secs(3));
    stand.assert_saw_every_frame(watcher);
}

#[test]
fn downloads_share_the_feed_byte_budget() {
    let budget = FeedConfig { max_bulk_rate: 400_000, max_bulk_rate_per_spectator: 100_000, ..feed_config() };
    let mut stand = SpectatorTestNetwork::new(18, LargeStateMachine::new(MIB, true), budget, lossy_link(50, 0.0));
    stand.run_for(secs(5));
    let watchers: Vec<usize> = (0..8).map(|_| stand.add_spectator(watch_config(&[0]), empty_machine())).collect();
    stand.run_for(secs(2));
    let before = stand.nodes[0].feed().stats().bulk_out;
    stand.run_for(secs(10));
    let rate = (stand.nodes[0].feed().stats().bulk_out - before) / 10;
    assert!((370_000..=405_000).contains(&rate), "{rate} bytes per second");
    let shares: Vec<f32> = watchers.iter().map(|node| stand.nodes[*node].spectator().download_progress()).collect();
    let (least, most) = (shares.iter().copied().fold(1.0, f32::min), shares.iter().copied().fold(0.0, f32::max));
    println!("8 downloads within 400 kB/s: {rate} bytes per second, between {least} and {most} of it");
    assert!(most - least < 0.1, "{shares:?}");
    assert!(stand.nodes[0].feed().memory() < 3 * MIB, "one snapshot for all");
    stand.run_for(secs(25));
    watchers.into_iter().for_each(|watcher| stand.assert_saw_every_frame(watcher));
}

#[test]
fn one_spectator_is_limited_to_its_byte_rate() {
    let budget = FeedConfig { max_bulk_rate_per_spectator: 100_000, ..feed_config() };
    let mut stand = SpectatorTestNetwork::new(19, LargeStateMachine::new(MIB, true), budget, lossy_link(50, 0.0));
    stand.run_for(secs(1));
    let watcher = stand.add_spectator(watch_config(&[0]), empty_machine());
    let time = stand.run_until_live(watcher, secs(20));
    assert!(time > secs(10) && time < secs(13), "{time}");
}

#[test]
fn spectators_beyond_the_limit_are_refused() {
    let small = FeedConfig { max_spectators: 2, ..feed_config() };
    let mut stand = SpectatorTestNetwork::new(20, LargeStateMachine::new(100, true), small, lossy_link(50, 0.0));
    let other = stand.add_feed(feed_config());
    stand.run_for(secs(1));
    let first: Vec<usize> = (0..2).map(|_| stand.add_spectator(watch_config(&[0]), empty_machine())).collect();
    stand.run_for(secs(1));
    let (lost, lucky) = (
        stand.add_spectator(watch_config(&[0]), empty_machine()),
        stand.add_spectator(watch_config(&[0, other]), empty_machine()),
    );
    stand.run_for(secs(10));
    let reason = SourceError::Refused(CloseReason::Full);
    assert!(stand.nodes[lost].has_event(|event| *event == SpectatorEvent::Dropped { reason }));
    first.into_iter().chain([lucky]).for_each(|watcher| stand.assert_saw_every_frame(watcher));
    assert_eq!(stand.nodes[0].feed().stats().spectators, 2);
}

#[test]
fn spectator_of_a_frozen_game_sees_its_last_frame() {
    let mut stand =
        SpectatorTestNetwork::new(21, LargeStateMachine::new(100, true), feed_config(), lossy_link(50, 0.01));
    let watcher = stand.add_spectator(watch_config(&[0]), empty_machine());
    stand.run_for(ms(5_050));
    stand.is_playing = false;
    stand.run_for(secs(2));
    assert_eq!(stand.nodes[watcher].frames.last(), Some(&(stand.played_inputs.len() as u32 - 1)));
    let before = stand.nodes[watcher].wakes;
    stand.run_for(secs(30));
    let wakes = stand.nodes[watcher].wakes - before;
    println!("a game that stands still: {wakes} wakes in 30 s");
    assert!(wakes < 300, "{wakes}");
    stand.is_playing = true;
    stand.run_for(secs(5));
    stand.assert_saw_every_frame(watcher);
    assert!(!stand.nodes[watcher].has_event(|event| matches!(event, SpectatorEvent::Dropped { .. })));
}

#[test]
fn live_spectator_wakes_about_once_per_frame() {
    let mut stand =
        SpectatorTestNetwork::new(22, LargeStateMachine::new(100, true), feed_config(), lossy_link(50, 0.02));
    let watcher = stand.add_spectator(watch_config(&[0]), empty_machine());
    stand.run_until_live(watcher, secs(5));
    let before = stand.nodes[watcher].wakes;
    stand.run_for(secs(20));
    let wakes = (stand.nodes[watcher].wakes - before) / 20;
    println!("a live watcher wakes {wakes} times a second");
    assert!(wakes < 90, "{wakes}");
}

#[test]
fn feed_whose_host_slept_keeps_its_spectators() {
    let mut stand =
        SpectatorTestNetwork::new(23, LargeStateMachine::new(100, true), feed_config(), lossy_link(50, 0.0));
    let watcher = stand.add_spectator(watch_config(&[0]), empty_machine());
    stand.run_for(secs(5));
    // The computer of the feed sleeps: neither a frame nor a packet for eight seconds.
    (stand.is_playing, stand.nodes[0].is_dead) = (false, true);
    stand.run_for(secs(8));
    (stand.is_playing, stand.nodes[0].is_dead) = (true, false);
    stand.run_for(secs(5));
    stand.assert_saw_every_frame(watcher);
    assert_eq!(stand.nodes[watcher].loads, 1);
    assert_eq!(stand.nodes[0].feed().stats().dropped_silent, 0);
}

#[test]
fn many_spectators_do_not_change_the_players_traffic() {
    let (alone, watched) =
        (coplay_sim::spectators::scale::run_default(0), coplay_sim::spectators::scale::run_default(150));
    assert_eq!(alone.player_trace_hash, watched.player_trace_hash, "not a byte, not a nanosecond");
    assert_eq!((watched.subscribers, watched.live, watched.wrong_frames), (150, 150, 0));
    assert!(watched.max_spectator_memory < 60 * 1_024, "{watched:?}");
    assert!(watched.mean_frames_behind < 20.0, "{watched:?}");
}

#[test]
fn spectator_becoming_a_player_takes_all_buffered_inputs() {
    let mut stand =
        SpectatorTestNetwork::new(24, LargeStateMachine::new(1_000, true), feed_config(), lossy_link(50, 0.0));
    stand.run_for(secs(5));
    let watcher = stand.add_spectator(watch_config(&[0]), empty_machine());
    stand.run_until_live(watcher, secs(5));
    let (truth, node) = (&stand.played_inputs, &mut stand.nodes[watcher]);
    let (engine, machine) = (node.spectator.as_mut().unwrap(), node.machine.as_mut().unwrap());
    assert!(engine.take_words(engine.next_frame() + 1).is_none(), "only the next");
    while let Some(words) = engine.take_words(engine.next_frame()).map(<[u128]>::to_vec) {
        assert_eq!(words, truth[engine.next_frame().number() as usize - 1]);
        machine.step(&words);
    }
    assert_eq!(engine.next_frame(), engine.newest_frame());
    assert!(truth.len() as u32 - engine.next_frame().number() < 12, "not further behind than the way is long");
}

#[test]
fn spectator_goes_live_over_every_link_preset() {
    let lines = [
        ("lan", LinkConfig::lan()),
        ("broadband", LinkConfig::broadband()),
        ("wifi", LinkConfig::wifi()),
        ("mobile", LinkConfig::mobile()),
        ("satellite", LinkConfig::satellite()),
        ("awful", LinkConfig::awful()),
    ];
    for (name, line) in lines {
        for seed in 0..3 {
            let config = FeedConfig { log_bytes: MIB, ..feed_config() };
            let mut stand =
                SpectatorTestNetwork::new(seed, LargeStateMachine::new(200_000, true), config, line.clone());
            stand.run_for(secs(20));
            let late = stand.add_spectator(watch_config(&[0]), empty_machine());
            let early = stand.add_spectator(watch_config_from_start(&[0]), LargeStateMachine::new(200_000, true));
            let since = stand.now;
            let times = [late, early].map(|watcher| {
                stand.run_until_live(watcher, minute());
                stand.nodes[watcher].live_at.unwrap() - since
            });
            stand.run_for(secs(30));
            let [late_stats, early_stats] = [late, early].map(|watcher| stand.nodes[watcher].spectator().stats());
            println!(
                "{name}: 200 kB and live after {}, 20 s from the beginning after {}; {} and {} stalls",
                times[0], times[1], late_stats.stalls, early_stats.stalls
            );
            stand.assert_saw_every_frame(late);
            stand.assert_saw_every_frame(early);
        }
    }
}

#[test]
fn relay_keeps_its_spectators_after_a_cut() {
    let mut stand =
        SpectatorTestNetwork::new(31, LargeStateMachine::new(1_000, true), feed_config(), lossy_link(50, 0.01));
    stand.run_for(secs(5));
    let relay = stand.add_relay(watch_config(&[0]), feed_config(), Some(empty_machine()));
    stand.run_until_live(relay, secs(5));
    let watcher = stand.add_spectator(watch_config(&[relay]), empty_machine());
    stand.run_until_live(watcher, secs(5));
    stand.set_cut(0, relay, true);
    stand.run_for(secs(14));
    stand.set_cut(0, relay, false);
    // All that was missed comes at once: more than one who is slow may ever be behind.
    stand.run_for(secs(10));
    stand.assert_saw_every_frame(relay);
    stand.assert_saw_every_frame(watcher);
    assert!(!stand.nodes[watcher].has_event(|event| matches!(event, SpectatorEvent::Dropped { .. })));
    assert_eq!(stand.nodes[watcher].loads, 1);
}

#[test]
fn spectator_joining_after_a_desync_gets_a_newer_snapshot() {
    let mut stand =
        SpectatorTestNetwork::new(32, LargeStateMachine::new(1_000, true), feed_config(), lossy_link(50, 0.0));
    stand.run_for(secs(2));
    let before = stand.add_spectator(watch_config(&[0]), empty_machine());
    stand.run_until_live(before, secs(5));
    // Something happens to the machine that no input tells of.
    stand.machine.state[7] ^= 1;
    stand.nodes[0].feed.as_mut().expect("the first node has a feed").retire_snapshots();
    let after = stand.add_spectator(watch_config(&[0]), empty_machine());
    stand.run_until_live(after, secs(5));
    stand.run_for(secs(5));
    stand.assert_saw_every_frame(after);
    assert!(stand.nodes[before].has_event(|event| matches!(event, SpectatorEvent::Diverged { .. })));
}
