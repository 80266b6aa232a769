//! Both engines do the same work: the same inputs reach every machine in the same frames.

use coplay_bench::work::{Engine, Inputs};
use coplay_bench::{ours, peer};

fn states(mut engine: impl Engine) -> Vec<u64> {
    engine.run(600);
    engine.run(400);
    engine.states()
}

#[test]
fn every_site_of_every_engine_gets_the_same_inputs() {
    for sites in [2, 4, 8] {
        let inputs = || Inputs::new(7, sites);
        let expected = vec![states(ours::Group::new(sites, inputs(), ours::Waking::Datagrams))[0]; sites];
        for waking in [ours::Waking::Datagrams, ours::Waking::Frames] {
            assert_eq!(states(ours::Group::new(sites, inputs(), waking)), expected, "{sites} sites, {waking:?}");
        }
        for passing in [peer::Passing::Bytes, peer::Passing::Messages] {
            for polling in [peer::Polling::Once, peer::Polling::Twice] {
                let group = peer::Group::new(sites, inputs(), passing, polling);
                assert_eq!(states(group), expected, "{sites} sites, {passing:?}, {polling:?}");
            }
        }
    }
}
