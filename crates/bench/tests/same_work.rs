//! Both engines do the same work: the same inputs reach every machine in the same frames.

use coplay::time::{Instant, TimeDelta};
use coplay_bench::rollback::host::Books;
use coplay_bench::rollback::measure::difference;
use coplay_bench::rollback::world::{Site, World};
use coplay_bench::rollback::{self, Case};
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

/// Loss, delay and several sites: enough for guesses that are wrong, and for waits.
const CASE: Case = Case { sites: 3, rtt_ms: 200, loss_percent: 20, lag: 2, window: 8, seed: 7 };

fn played<S: Site>(case: Case) -> World<S> {
    let mut world = World::<S>::new(case);
    world.run_until(Instant::ZERO + TimeDelta::from_secs(20));
    assert_eq!(world.trouble(), None);
    assert!(world.hosts().iter().all(|host| host.books().resimulated > 100), "frames were guessed and repaired");
    world
}

#[test]
fn engines_that_guess_end_in_the_same_states() {
    for sites in [2, 4, 8] {
        let case = Case { sites, ..CASE };
        let (ours, ggrs) = (played::<rollback::ours::Site>(case), played::<rollback::peer::Site>(case));
        assert_eq!(difference(&ours, case), None);
        assert_eq!(difference(&ggrs, case), None);
        let frames = ours.confirmed().min(ggrs.confirmed());
        assert!(frames > 600, "{frames} frames are compared");
        let (one, other) = (&ours.hosts()[0].digests()[..frames], &ggrs.hosts()[0].digests()[..frames]);
        assert_eq!(one, other, "{sites} sites");
    }
}

#[test]
fn nothing_is_stepped_again_that_need_not_be() {
    let case = Case { loss_percent: 0, ..CASE };
    let near = |books: Books| books.resimulated.abs_diff(books.forecast) <= books.forecast / 50;
    assert!(played::<rollback::ours::Site>(case).hosts().iter().all(|host| near(host.books())));
    assert!(played::<rollback::peer::Site>(case).hosts().iter().all(|host| near(host.books())));
}

#[test]
fn a_wrong_state_is_found() {
    let world = played::<rollback::ours::Site>(CASE);
    assert!(difference(&world, Case { seed: 8, ..CASE }).is_some());
}
