//! Both engines do the same work: the same inputs reach every machine in the same frames. Without packet loss, the
//! number of resimulated frames is within 2 % of the required minimum.

use coplay::time::{Instant, TimeDelta};
use coplay_bench::rollback::host_program::SiteFrameTotals;
use coplay_bench::rollback::measure::find_wrong_state;
use coplay_bench::rollback::network::{RollbackNetwork, RollbackSite};
use coplay_bench::rollback::{self, BenchCase};
use coplay_bench::workload::{Engine, Inputs};
use coplay_bench::{coplay_lockstep, ggrs_lockstep};

fn run_and_collect_states(mut engine: impl Engine) -> Vec<u64> {
    engine.run(600);
    engine.run(400);
    engine.states()
}

#[test]
fn lockstep_engines_deliver_the_same_inputs_to_every_site() {
    for sites in [2, 4, 8] {
        let inputs = || Inputs::new(7, sites);
        let expected = vec![
            run_and_collect_states(coplay_lockstep::CoplayGroup::new(
                sites,
                inputs(),
                coplay_lockstep::WakePolicy::Datagrams
            ))[0];
            sites
        ];
        for waking in [coplay_lockstep::WakePolicy::Datagrams, coplay_lockstep::WakePolicy::Frames] {
            assert_eq!(
                run_and_collect_states(coplay_lockstep::CoplayGroup::new(sites, inputs(), waking)),
                expected,
                "{sites} sites, {waking:?}"
            );
        }
        for passing in [ggrs_lockstep::MessageEncoding::Bytes, ggrs_lockstep::MessageEncoding::Messages] {
            for polling in [ggrs_lockstep::PollPolicy::Once, ggrs_lockstep::PollPolicy::Twice] {
                let group = ggrs_lockstep::GgrsGroup::new(sites, inputs(), passing, polling);
                assert_eq!(run_and_collect_states(group), expected, "{sites} sites, {passing:?}, {polling:?}");
            }
        }
    }
}

/// A case in which delay and loss cause mispredictions at every site.
const LOSSY_CASE: BenchCase =
    BenchCase { sites: 3, rtt_ms: 200, loss_percent: 20, input_delay: 2, prediction_window: 8, seed: 7 };

fn play_case<S: RollbackSite>(case: BenchCase) -> RollbackNetwork<S> {
    let mut network = RollbackNetwork::<S>::new(case);
    network.run_until(Instant::ZERO + TimeDelta::from_secs(20));
    assert_eq!(network.first_error(), None);
    assert!(network.hosts().iter().all(|host| host.counts().resimulated > 100), "too few resimulated frames");
    network
}

#[test]
fn rollback_engines_end_in_the_same_states() {
    for sites in [2, 4, 8] {
        let case = BenchCase { sites, ..LOSSY_CASE };
        let (ours, ggrs) =
            (play_case::<rollback::coplay_site::CoplaySite>(case), play_case::<rollback::ggrs_site::GgrsSite>(case));
        assert_eq!(find_wrong_state(&ours, case), None);
        assert_eq!(find_wrong_state(&ggrs, case), None);
        let frames = ours.confirmed_frames().min(ggrs.confirmed_frames());
        assert!(frames > 600, "only {frames} frames to compare");
        let (one, other) = (&ours.hosts()[0].digests()[..frames], &ggrs.hosts()[0].digests()[..frames]);
        assert_eq!(one, other, "{sites} sites");
    }
}

#[test]
fn resimulated_frames_match_the_required_minimum() {
    let case = BenchCase { loss_percent: 0, ..LOSSY_CASE };
    let near = |counts: SiteFrameTotals| {
        counts.resimulated.abs_diff(counts.required_resimulated) <= counts.required_resimulated / 50
    };
    assert!(play_case::<rollback::coplay_site::CoplaySite>(case).hosts().iter().all(|host| near(host.counts())));
    assert!(play_case::<rollback::ggrs_site::GgrsSite>(case).hosts().iter().all(|host| near(host.counts())));
}

#[test]
fn wrong_state_is_detected() {
    let network = play_case::<rollback::coplay_site::CoplaySite>(LOSSY_CASE);
    assert!(find_wrong_state(&network, BenchCase { seed: 8, ..LOSSY_CASE }).is_some());
}
