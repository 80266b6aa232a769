//! Unusual and faulty host programs: they read the clock before every call, pass datagrams in with their arrival times,
//! leave a request unanswered or set their clock back. Their sessions do not stall, or play on soon afterwards. They
//! request nothing before the timeout that they report.

use crate::common::manual_hosts::{ManualHosts, UnansweredRequest};
use crate::common::{ms, secs};
use coplay::session::Event;
use coplay::time::TimeDelta;

/// Returns a pair that has played for 3 s over a perfect link with a one-way latency of 20 ms.
fn running_pair() -> ManualHosts {
    let mut pair = ManualHosts::new(2, ms(20), |_| {});
    pair.run_until_running();
    pair.run_for(secs(3));
    pair
}

#[test]
fn reading_the_clock_before_every_call_causes_no_stalls() {
    for per_call in [TimeDelta::ZERO, TimeDelta::from_micros(1)] {
        let mut pair = ManualHosts::new(2, ms(20), |_| {});
        pair.hosts.iter_mut().for_each(|host| host.clock_step_per_call = per_call);
        pair.run_for(secs(20));
        for host in &pair.hosts {
            let stats = host.session.stats();
            assert!(stats.frame.number() > 1_000, "{per_call} per call: frame {}", stats.frame);
            assert_eq!((stats.stalls, stats.stall_time), (0, TimeDelta::ZERO), "{per_call} per call");
        }
    }
}

#[test]
fn unanswered_sample_request_is_issued_once_and_stalls() {
    let mut pair = running_pair();
    pair.hosts[1].unanswered = UnansweredRequest::Sample;
    pair.hosts[1].max_requests_per_loop = 0;
    let before = pair.hosts[1].step_times.len();
    pair.run_for(secs(2));
    assert!(pair.hosts[1].max_requests_per_loop <= 3, "{} requests in a loop", pair.hosts[1].max_requests_per_loop);
    assert_eq!(pair.hosts[1].step_times.len(), before, "a frame was stepped without its input");
    assert!(pair.hosts[0].step_times.len() <= before + 8, "the peer continued without it");
    // The requested input arrives late.
    pair.hosts[1].unanswered = UnansweredRequest::Nothing;
    let local = pair.now + pair.hosts[1].offset;
    pair.hosts[1].session.handle_input(local, &[0, 0]);
    pair.run_for(secs(1));
    let answered = pair.now;
    pair.run_for(secs(5));
    for site in [0, 1] {
        let fps = pair.fps(site, answered);
        assert!(fps > 59.5, "site {site} at {fps:.2} fps");
    }
}

#[test]
fn unanswered_hash_request_is_issued_once_and_skipped() {
    let mut pair = running_pair();
    pair.hosts[1].unanswered = UnansweredRequest::Hash;
    let then = pair.now;
    pair.run_for(secs(5));
    for site in [0, 1] {
        assert!(
            pair.hosts[site].max_requests_per_loop <= 3,
            "{} requests in a loop",
            pair.hosts[site].max_requests_per_loop
        );
        let fps = pair.fps(site, then);
        assert!(fps > 59.5, "site {site} at {fps:.2} fps");
        assert_eq!(pair.mismatch_count(site, 1 - site), 0, "site {site}");
    }
}

#[test]
fn host_clock_going_backwards_stops_no_site() {
    for site in [0, 1] {
        let mut pair = running_pair();
        pair.hosts[site].offset -= secs(10);
        let then = pair.now;
        pair.run_for(secs(2));
        let frames = pair.hosts[site].step_times.iter().filter(|step| **step >= then).count();
        assert!(frames >= 60, "site {site} whose clock went back stepped {frames} frames in 2 s");
        let later = pair.now;
        pair.run_for(secs(10));
        for other in [0, 1] {
            let fps = pair.fps(other, later);
            assert!(fps > 59.0, "site {other} at {fps:.2} fps after the clock of site {site} went back");
            let frozen = pair.hosts[other].events.iter().any(|(_, event)| matches!(event, Event::Frozen(_)));
            assert!(!frozen, "site {other} froze after the clock of site {site} went back");
        }
    }
}

/// Datagrams that are passed in 12 ms late, with their arrival times, do not make the session's time run faster.
#[test]
fn datagrams_may_be_handled_with_their_arrival_time() {
    let mut pair = ManualHosts::new(2, ms(20), |_| {});
    pair.hosts.iter_mut().for_each(|host| host.datagram_wait = ms(12));
    pair.run_until_running();
    let then = pair.now;
    pair.run_for(secs(20));
    for site in [0, 1] {
        let fps = pair.fps(site, then);
        assert!((fps - 60.0).abs() < 0.06, "site {site} at {fps:.3} fps");
    }
}

#[test]
fn requests_never_precede_the_polled_timeout() {
    for per_call in [TimeDelta::ZERO, TimeDelta::from_micros(1)] {
        let mut pair = ManualHosts::new(2, ms(20), |config| config.settings.compare_interval = 1);
        pair.hosts.iter_mut().for_each(|host| host.clock_step_per_call = per_call);
        pair.run_for(secs(5));
        for host in &pair.hosts {
            assert!(host.step_times.len() > 200, "{} frames", host.step_times.len());
            assert!(
                host.early_requests.is_empty(),
                "{per_call} per call: {:#?}",
                &host.early_requests[..host.early_requests.len().min(5)]
            );
        }
    }
}
