use std::sync::Arc;

use super::*;

const PACKETS: usize = 200_000;
const BYTES: usize = 100;
/// Send interval of 60 packets per second.
const INTERVAL: TimeDelta = TimeDelta::from_nanos(16_666_667);

fn ms(millis: i64) -> TimeDelta {
    TimeDelta::from_millis(millis)
}

fn sent_at(number: usize) -> Instant {
    Instant::ZERO + INTERVAL * number as i64
}

/// Sends `count` packets at equal intervals over a new link. Returns the deliveries of each packet, and the counters of
/// the link.
fn send_packets(config: LinkConfig, seed: u64, count: usize) -> (Vec<Deliveries>, LinkStats) {
    let mut link = Link::new(config, seed, "a>b");
    let deliveries = (0..count).map(|number| link.send(sent_at(number), BYTES)).collect();
    (deliveries, link.stats())
}

fn arrivals(deliveries: &[Deliveries]) -> Vec<Option<Instant>> {
    deliveries.iter().map(|delivery| delivery.clone().next()).collect()
}

/// Returns the delays of the packets that arrived, without those of duplicates, in milliseconds.
fn delays_ms(deliveries: &[Deliveries]) -> Vec<f64> {
    let delay = |(number, arrival): (usize, Option<Instant>)| Some((arrival? - sent_at(number)).as_millis_f64());
    arrivals(deliveries).into_iter().enumerate().filter_map(delay).collect()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn sd(values: &[f64]) -> f64 {
    let centre = mean(values);
    mean(&values.iter().map(|value| (value - centre).powi(2)).collect::<Vec<_>>()).sqrt()
}

/// Returns the lengths of all runs of lost packets.
fn burst_lengths(deliveries: &[Deliveries]) -> Vec<f64> {
    let bursts = deliveries.chunk_by(|a, b| (a.len() == 0) == (b.len() == 0));
    bursts.filter(|burst| burst[0].len() == 0).map(|burst| burst.len() as f64).collect()
}

fn is_in_order(deliveries: &[Deliveries]) -> bool {
    deliveries.iter().cloned().flatten().is_sorted()
}

#[track_caller]
fn assert_near(actual: f64, wanted: f64, tolerance: f64) {
    assert!((actual - wanted).abs() <= tolerance, "{actual} is not within {tolerance} of {wanted}");
}

#[test]
fn perfect_link_delivers_immediately() {
    let (deliveries, stats) = send_packets(LinkConfig::perfect(), 1, 1000);
    assert!(deliveries.into_iter().enumerate().all(|(number, delivery)| delivery.eq([sent_at(number)])));
    assert_eq!(stats, LinkStats { sent: 1000, bytes: 100_000, ..LinkStats::default() });
}

#[test]
fn constant_rtt_is_half_in_each_direction() {
    let (deliveries, _) = send_packets(LinkConfig::constant_rtt(ms(80)), 1, 10);
    assert_eq!(delays_ms(&deliveries), [40.0; 10]);
}

#[test]
fn independent_loss_has_its_mean_and_no_bursts() {
    let (deliveries, stats) =
        send_packets(LinkConfig { loss: Loss::Independent(0.2), ..LinkConfig::default() }, 1, PACKETS);
    assert_near(stats.lost as f64 / PACKETS as f64, 0.2, 0.004);
    assert_near(mean(&burst_lengths(&deliveries)), 1.0 / 0.8, 0.01);
}

#[test]
fn bursty_loss_has_its_mean_and_burst_length() {
    for (wanted_loss, wanted_burst) in [(0.01, 3.0), (0.05, 8.0), (0.3, 2.0), (0.1, 1.0)] {
        let loss = Loss::bursts(wanted_loss, wanted_burst);
        let (deliveries, stats) = send_packets(LinkConfig { loss, ..LinkConfig::default() }, 1, 5 * PACKETS);
        assert_near(stats.lost as f64 / stats.sent as f64, wanted_loss, 0.05 * wanted_loss);
        let bursts = burst_lengths(&deliveries);
        assert_near(mean(&bursts), wanted_burst, 0.05 * wanted_burst);
        // Lengths are geometric. Their deviation distinguishes a chain from bursts of one fixed length.
        assert_near(sd(&bursts), (wanted_burst * (wanted_burst - 1.0)).sqrt(), 0.1 * wanted_burst);
    }
}

#[test]
fn both_states_of_bursty_loss_may_lose_some() {
    let loss = Loss::Bursty { enter: 0.02, leave: 0.08, bad: 0.5, good: 0.01 };
    let (_, stats) = send_packets(LinkConfig { loss, ..LinkConfig::default() }, 1, 5 * PACKETS);
    assert_near(stats.lost as f64 / stats.sent as f64, 0.2 * 0.5 + 0.8 * 0.01, 0.004);
}

#[test]
fn outage_length_is_independent_of_the_send_rate() {
    let loss = Loss::Outages { part: 0.4, mean: ms(500) };
    for stride in [1, 5] {
        let mut link = Link::new(LinkConfig { loss, ..LinkConfig::default() }, 1, "a>b");
        let times = (0..5 * PACKETS).step_by(stride);
        let deliveries: Vec<_> = times.map(|number| link.send(sent_at(number), BYTES)).collect();
        let stats = link.stats();
        assert_near(stats.lost as f64 / stats.sent as f64, 0.4, 0.01);
        let bursts: Vec<f64> = burst_lengths(&deliveries).iter().map(|packets| packets * stride as f64).collect();
        // Outages shorter than a send interval go unobserved, so the observed ones are slightly longer on average.
        assert_near(mean(&bursts) * INTERVAL.as_millis_f64(), 500.0 + 40.0 * (stride - 1) as f64 / 4.0, 40.0);
    }
}

#[test]
fn high_loss_lengthens_the_bursts() {
    let (deliveries, stats) =
        send_packets(LinkConfig { loss: Loss::bursts(0.9, 2.0), ..LinkConfig::default() }, 1, PACKETS);
    assert_near(stats.lost as f64 / stats.sent as f64, 0.9, 0.01);
    assert_near(mean(&burst_lengths(&deliveries)), 9.0, 0.3);
}

#[test]
fn delays_have_their_distribution() {
    let config = |delay| LinkConfig { delay, reorder: true, ..LinkConfig::default() };
    for delay in [Delay::Normal { mean: ms(50), sd: ms(5) }, Delay::LogNormal { mean: ms(50), sd: ms(5) }] {
        let delays = delays_ms(&send_packets(config(delay), 1, PACKETS).0);
        assert_near(mean(&delays), 50.0, 0.1);
        assert_near(sd(&delays), 5.0, 0.1);
    }
    let tailed = delays_ms(&send_packets(config(Delay::LogNormal { mean: ms(40), sd: ms(30) }), 1, PACKETS).0);
    assert_near(mean(&tailed), 40.0, 0.5);
    assert_near(sd(&tailed), 30.0, 1.0);
    assert!(tailed.iter().all(|delay| *delay > 0.0));
}

#[test]
fn jitter_has_its_distribution_on_top_of_the_delay() {
    let config = |jitter| LinkConfig { jitter, reorder: true, ..LinkConfig::constant_rtt(ms(20)) };
    let uniform = delays_ms(&send_packets(config(Jitter::Uniform(ms(6))), 1, PACKETS).0);
    assert!(uniform.iter().all(|delay| (10.0..=16.0).contains(delay)));
    assert_near(mean(&uniform), 13.0, 0.05);
    assert_near(sd(&uniform), 6.0 / 12.0_f64.sqrt(), 0.05);
    let exponential = delays_ms(&send_packets(config(Jitter::Exponential { mean: ms(6) }), 1, PACKETS).0);
    assert!(exponential.iter().all(|delay| *delay >= 10.0));
    assert_near(mean(&exponential), 16.0, 0.1);
    assert_near(sd(&exponential), 6.0, 0.1);
}

#[test]
fn delay_is_never_negative() {
    let backwards: Arc<[TimeDelta]> = [ms(-5)].into();
    for delay in [
        Delay::Constant(ms(-5)),
        Delay::Normal { mean: ms(1), sd: ms(50) },
        Delay::LogNormal { mean: ms(-1), sd: ms(5) },
        Delay::Recorded(backwards),
        Delay::Recorded([].into()),
    ] {
        for jitter in [Jitter::None, Jitter::Uniform(ms(-3)), Jitter::Exponential { mean: ms(-3) }] {
            let config =
                LinkConfig { delay: delay.clone(), jitter, reorder: true, duplicate: 0.5, ..LinkConfig::default() };
            let (deliveries, _) = send_packets(config, 1, 1000);
            for (number, mut delivery) in deliveries.into_iter().enumerate() {
                assert!(delivery.all(|arrival| arrival >= sent_at(number)), "{delay:?} {jitter:?}");
            }
        }
    }
}

#[test]
fn recorded_delays_repeat_packet_by_packet() {
    let delay = Delay::Recorded([ms(30), ms(10), ms(20)].into());
    let config = LinkConfig { delay: delay.clone(), reorder: true, ..LinkConfig::default() };
    assert_eq!(delays_ms(&send_packets(config.clone(), 1, 7).0), [30.0, 10.0, 20.0, 30.0, 10.0, 20.0, 30.0]);

    // A lost packet uses up its delay, and a change of the other conditions does not rewind the sequence.
    let mut link = Link::new(LinkConfig { loss: Loss::Independent(1.0), ..config.clone() }, 1, "a>b");
    assert_eq!(link.send(Instant::ZERO, BYTES).len(), 0);
    link.set_config(config);
    assert!(link.send(Instant::ZERO, BYTES).eq([Instant::ZERO + ms(10)]));
}

fn jittery(reorder: bool) -> LinkConfig {
    LinkConfig { jitter: Jitter::Exponential { mean: ms(50) }, reorder, duplicate: 0.1, ..LinkConfig::default() }
}

#[test]
fn packets_are_reordered_only_if_configured() {
    assert!(is_in_order(&send_packets(jittery(false), 1, PACKETS).0));
    assert!(!is_in_order(&send_packets(jittery(true), 1, PACKETS).0));
}

#[test]
fn config_change_keeps_packet_order() {
    let mut link = Link::new(LinkConfig::constant_rtt(ms(400)), 1, "a>b");
    let slow = link.send(Instant::ZERO, BYTES);
    link.set_config(LinkConfig::perfect());
    let fast = link.send(Instant::ZERO + ms(1), BYTES);
    assert_eq!(slow, fast);
    link.set_config(LinkConfig { reorder: true, ..LinkConfig::perfect() });
    assert!(link.send(Instant::ZERO + ms(2), BYTES).eq([Instant::ZERO + ms(2)]));
    link.set_config(LinkConfig::perfect());
    assert_eq!(link.send(Instant::ZERO + ms(3), BYTES), slow, "a packet overtook the slow one");
}

#[test]
fn duplicates_have_their_frequency_and_a_delay_of_their_own() {
    let config = LinkConfig { duplicate: 0.1, ..jittery(true) };
    let (deliveries, stats) = send_packets(config, 1, PACKETS);
    let copied = deliveries.iter().filter(|delivery| delivery.len() == 2).count();
    assert_eq!(copied as u64, stats.duplicated);
    assert_near(copied as f64 / PACKETS as f64, 0.1, 0.003);
    let copy_delays: Vec<f64> = deliveries
        .into_iter()
        .enumerate()
        .filter_map(|(number, mut delivery)| Some((delivery.nth(1)? - sent_at(number)).as_millis_f64()))
        .collect();
    assert_near(mean(&copy_delays), 50.0, 2.0);
    assert_near(sd(&copy_delays), 50.0, 2.0);
}

#[test]
fn a_bottleneck_passes_its_rate_and_drops_the_rest() {
    let rate = Rate { bytes_per_second: 1_000_000, queue_bytes: 20_000 };
    let mut link = Link::new(LinkConfig { rate: Some(rate), ..LinkConfig::default() }, 1, "a>b");
    // Twice the capacity of the bottleneck for ten seconds.
    let (packet, count) = (1000, 20_000);
    let arrivals: Vec<Instant> =
        (0..count).flat_map(|number| link.send(Instant::ZERO + TimeDelta::from_micros(500) * number, packet)).collect();
    assert_near(arrivals.len() as f64, 10_000.0, 25.0);
    assert_eq!(arrivals.len() as u64 + link.stats().overflowed, count as u64);
    assert!(arrivals.windows(2).all(|pair| pair[1] - pair[0] >= ms(1)), "packets are closer than the rate allows");
}

#[test]
fn bottleneck_queue_bounds_the_queueing_delay() {
    let rate = Rate { bytes_per_second: 1_000_000, queue_bytes: 10_000 };
    let mut link = Link::new(LinkConfig { rate: Some(rate), ..LinkConfig::default() }, 1, "a>b");
    let burst: Vec<Instant> = (0..100).flat_map(|_| link.send(Instant::ZERO, 1000)).collect();
    let wanted: Vec<Instant> = (1..=10).map(|number| Instant::ZERO + ms(number)).collect();
    assert_eq!(burst, wanted);
    assert_eq!(link.stats().overflowed, 90);
    let later = Instant::ZERO + ms(3);
    let refill: Vec<Instant> = (0..100).flat_map(|_| link.send(later, 1000)).collect();
    assert_eq!(refill.len(), 3, "the queue accepts as much as has drained");
}

#[test]
fn a_packet_larger_than_the_queue_passes_an_idle_bottleneck() {
    let rate = Rate { bytes_per_second: 1_000_000, queue_bytes: 0 };
    let mut link = Link::new(LinkConfig { rate: Some(rate), ..LinkConfig::default() }, 1, "a>b");
    assert!(link.send(Instant::ZERO, 1000).eq([Instant::ZERO + ms(1)]));
    assert_eq!(link.send(Instant::ZERO, 1000).len(), 0);
    assert_eq!(link.send(Instant::ZERO + ms(1), 1000).len(), 1);
}

#[test]
fn extreme_rates_do_not_overflow() {
    for bytes_per_second in [0, 1, u64::MAX] {
        let rate = Rate { bytes_per_second, queue_bytes: u64::MAX };
        let mut link = Link::new(LinkConfig { rate: Some(rate), ..LinkConfig::default() }, 1, "a>b");
        assert!(link.send(Instant::ZERO, usize::MAX).all(|arrival| arrival >= Instant::ZERO));
    }
}

#[test]
fn a_cut_drops_what_is_sent_and_what_arrives() {
    let mut link = Link::new(LinkConfig::constant_rtt(ms(100)), 1, "a>b");
    assert_eq!(link.send(Instant::ZERO, BYTES).len(), 1);
    assert!(link.admit_arrival() && !link.is_cut());
    link.set_cut(true);
    assert_eq!(link.send(Instant::ZERO, BYTES).len(), 0);
    assert!(!link.admit_arrival() && link.is_cut());
    link.set_cut(false);
    assert_eq!(link.send(Instant::ZERO, BYTES).len(), 1);
    assert!(link.admit_arrival());
    assert_eq!(link.stats(), LinkStats { sent: 3, bytes: 300, cut: 2, ..LinkStats::default() });
}

#[test]
fn a_seed_reproduces_the_run() {
    let config = LinkConfig::awful;
    assert_eq!(send_packets(config(), 7, 10_000), send_packets(config(), 7, 10_000));
    assert_ne!(send_packets(config(), 7, 10_000), send_packets(config(), 8, 10_000));
    let mut other = Link::new(config(), 7, "b>a");
    let backwards: Vec<_> = (0..10_000).map(|number| other.send(sent_at(number), BYTES)).collect();
    assert_ne!(backwards, send_packets(config(), 7, 10_000).0, "both directions have the same random draws");
}

#[test]
fn toggling_one_impairment_does_not_change_the_random_draws_of_others() {
    let all = LinkConfig { rate: None, ..LinkConfig::awful() };
    let with_all = arrivals(&send_packets(all.clone(), 7, PACKETS).0);
    let without_copies = arrivals(&send_packets(LinkConfig { duplicate: 0.0, ..all.clone() }, 7, PACKETS).0);
    assert_eq!(without_copies, with_all);

    let without_loss = arrivals(&send_packets(LinkConfig { loss: Loss::None, ..all.clone() }, 7, PACKETS).0);
    assert!(without_loss.iter().zip(&with_all).all(|(kept, lossy)| lossy.is_none() || lossy == kept));

    let without_jitter = arrivals(&send_packets(LinkConfig { jitter: Jitter::None, ..all }, 7, PACKETS).0);
    assert!(without_jitter.iter().zip(&with_all).all(|(plain, jittery)| plain.is_some() == jittery.is_some()));
}

#[test]
fn loss_is_independent_of_delay() {
    let loss = Loss::Independent(0.5);
    let jitter = Jitter::Uniform(ms(10));
    let delays =
        delays_ms(&send_packets(LinkConfig { loss, jitter, reorder: true, ..LinkConfig::default() }, 1, PACKETS).0);
    assert_near(mean(&delays), 5.0, 0.05);
}

#[test]
fn a_cut_does_not_change_the_random_draws_of_later_packets() {
    let config = LinkConfig { rate: None, ..LinkConfig::awful() };
    let (undisturbed, _) = send_packets(config.clone(), 7, 1000);
    let mut link = Link::new(config, 7, "a>b");
    for (number, wanted) in undisturbed.into_iter().enumerate() {
        link.set_cut((100..200).contains(&number));
        let delivery = link.send(sent_at(number), BYTES);
        assert_eq!(delivery, if link.is_cut() { Deliveries::default() } else { wanted });
    }
}

#[test]
fn presets_have_their_documented_delay_and_loss() {
    // Minimum and mean delay in milliseconds, with the fraction of packets lost.
    let table = [
        (LinkConfig::perfect(), 0.0, 0.0, 0.0),
        (LinkConfig::lan(), 0.2, 0.25, 0.0),
        (LinkConfig::broadband(), 12.0, 13.0, 0.001),
        (LinkConfig::wifi(), 3.0, 18.0, 0.01),
        (LinkConfig::mobile(), 5.0, 45.0, 0.02),
        (LinkConfig::satellite(), 300.0, 310.0, 0.005),
        (LinkConfig::awful(), 10.0, 140.0, 0.1),
    ];
    for (config, min_ms, mean_ms, loss) in table {
        let name = format!("{config:?}");
        let (deliveries, stats) = send_packets(config, 1, 5 * PACKETS);
        let delays = delays_ms(&deliveries);
        let measured = mean(&delays);
        assert!(delays.iter().all(|delay| *delay >= min_ms), "{name}");
        assert!(measured >= mean_ms * 0.99 && measured <= mean_ms * 1.15, "{measured} ms in {name}");
        assert_near(stats.lost as f64 / stats.sent as f64, loss, 0.1 * loss);
        assert_eq!(stats.overflowed, 0, "{name}");
    }
}
