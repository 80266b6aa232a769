//! Each site sends one small datagram per frame and link, and at most one more per stalled frame.

use crate::common::{SessionSetup, TestSession, lossy_link, rtt_link, secs};
use coplay::input::InputWord;
use coplay_sim::session_experiment::{SessionExperiment, SessionMeasurements};

/// Input mask of 16 buttons and four 16-bit sticks.
const STICKS: InputWord = (1 << 80) - 1;

fn measure(sites: usize, input_delay: u32, loss: f64) -> SessionMeasurements {
    let outcome = SessionExperiment { sites, input_delay, ..SessionExperiment::new(lossy_link(100, loss)) }.run();
    assert!(outcome.is_complete && outcome.states_equal, "{sites} sites: {outcome:?}");
    outcome
}

#[test]
fn one_datagram_of_at_most_12_bytes_per_frame_and_link() {
    for sites in [2, 8] {
        for loss in [0.0, 0.05] {
            let outcome = measure(sites, 6, loss);
            assert!((outcome.packets_per_frame - 1.0).abs() < 0.01, "{sites} sites, loss {loss}: {outcome:?}");
            assert!(outcome.bytes_per_packet <= 12.0, "{sites} sites, loss {loss}: {outcome:?}");
        }
    }
}

#[test]
fn packet_loss_adds_bytes_but_no_datagrams() {
    // With 20 % loss, seven links need a longer input delay than one. Otherwise frames stall, and stalls cost packets.
    for (sites, input_delay) in [(2, 6), (8, 8)] {
        let outcome = measure(sites, input_delay, 0.2);
        assert!((outcome.packets_per_frame - 1.0).abs() < 0.01, "{sites} sites: {outcome:?}");
        assert!(outcome.bytes_per_packet <= 16.0, "{sites} sites: {outcome:?}");
    }
}

#[test]
fn stall_costs_at_most_one_datagram() {
    let outcome = measure(8, 6, 0.2);
    assert!(outcome.stall_ratio > 0.01, "no site stalled: {outcome:?}");
    assert!((1.0..1.0 + outcome.stall_ratio).contains(&outcome.packets_per_frame), "{outcome:?}");
    assert!(outcome.bytes_per_packet <= 16.0, "{outcome:?}");
}

/// Traffic that one site sent to one peer, and the number of frames that the site stepped meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SentTraffic {
    frames: u64,
    packets: u64,
    bytes: u64,
}

fn sent_traffic(game: &TestSession, site: usize, peer: usize) -> SentTraffic {
    let stats = game.peer_stats(site, peer);
    SentTraffic { frames: game.step_times[site].len() as u64, packets: stats.packets_out, bytes: stats.bytes_out }
}

/// Returns the traffic that a site sends to its peer in one minute, after 5 s of warm-up.
fn sent_in_a_minute(game: &mut TestSession, site: usize) -> SentTraffic {
    game.run_for(secs(5));
    let before = sent_traffic(game, site, 1 - site);
    game.run_for(secs(60));
    game.assert_consistent();
    let after = sent_traffic(game, site, 1 - site);
    SentTraffic {
        frames: after.frames - before.frames,
        packets: after.packets - before.packets,
        bytes: after.bytes - before.bytes,
    }
}

#[test]
fn acknowledgement_never_needs_its_own_datagram() {
    for rtt_ms in [0, 33, 100, 190] {
        for site in [0, 1] {
            let mut game = SessionSetup::new(2, rtt_link(rtt_ms)).start();
            // Only the peer has input changes to send; this site has nothing but acknowledgements.
            game.network.nodes[site].player.change_probability = 0.0;
            game.network.nodes[1 - site].player.change_probability = 1.0;
            let sent = sent_in_a_minute(&mut game, site);
            assert_eq!(sent.packets, sent.frames, "RTT {rtt_ms}, site {site}");
        }
    }
}

/// Returns the bytes that site 0 sends in one minute. Each player owns the bits of `owned` and changes only those of
/// `moved`, with this probability per frame.
fn bytes_per_minute(owned: InputWord, moved: InputWord, change_probability: f64) -> u64 {
    let mut game = SessionSetup { input_mask: owned, ..SessionSetup::new(2, rtt_link(100)) }.start();
    for site in &mut game.network.nodes {
        (site.player.mask, site.player.change_probability) = (moved, change_probability);
    }
    sent_in_a_minute(&mut game, 0).bytes
}

#[test]
fn unchanged_inputs_cost_no_bytes() {
    let pad = 0xffff;
    let (idle, rare, frequent) =
        (bytes_per_minute(pad, pad, 0.0), bytes_per_minute(pad, pad, 1.0 / 8.0), bytes_per_minute(pad, pad, 0.5));
    assert!(idle < rare && rare < frequent, "{idle}, {rare} and {frequent} bytes");
}

#[test]
fn sticks_cost_bytes_only_where_they_change() {
    let pad = 0xffff;
    assert_eq!(
        bytes_per_minute(STICKS, pad, 0.0),
        bytes_per_minute(pad, pad, 0.0),
        "sticks at rest cost as much as no sticks"
    );
    let [buttons, one_stick, all] = [pad, pad << 16, STICKS].map(|moved| bytes_per_minute(STICKS, moved, 0.5));
    // The same number of bytes change, so the same number are sent.
    let apart = (buttons as f64 / one_stick as f64 - 1.0).abs();
    assert!(apart < 0.02, "{buttons} bytes for buttons, {one_stick} for a stick");
    assert!(one_stick * 2 < all, "{one_stick} bytes for one stick, {all} for all");
    let wide = buttons as f64 / bytes_per_minute(pad, pad, 0.5) as f64;
    assert!(wide < 1.5, "buttons cost {wide:.2} times as much beside sticks at rest");
}
