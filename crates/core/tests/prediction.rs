//! Property: in whatever order inputs arrive, and whichever packets are lost, every confirmed frame is stepped with the
//! inputs that the players made.
//!
//! The cases are the same in every run. For other or more cases: `PROPTEST_RNG_SEED=7 PROPTEST_CASES=1000 cargo test -p
//! coplay --test prediction`.

use coplay::codec::MAX_DATAGRAM;
use coplay::frame::{Frame, FrameRate};
use coplay::id::{Addr, SiteId, SiteSet};
use coplay::input::{InputWord, Ownership};
use coplay::session::{
    AbsentInput, Config, GameId, InputPredictor, MachineId, Request, Session, Settings, StarvationPolicy,
};
use coplay::time::{Instant, TimeDelta};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

fn config() -> ProptestConfig {
    let default = ProptestConfig { cases: 48, ..ProptestConfig::default() };
    let rng_seed = match default.rng_seed {
        RngSeed::Random => RngSeed::Fixed(1),
        chosen => chosen,
    };
    ProptestConfig { rng_seed, failure_persistence: None, ..default }
}

/// Send time from which on no packet is lost and every packet takes 10 ms.
const HEALED_AT: Instant = Instant::from_nanos(6_000_000_000);

proptest! {
    #![proptest_config(config())]

    #[test]
    fn confirmed_frames_match_the_players_inputs(
        input_delay in 0..5u32,
        prediction_window in prop_oneof![Just(0), 1..12u32],
        neutral in any::<bool>(),
        change_interval in 1..9u32,
        fates in vec(prop_oneof![4 => (0..150i64).prop_map(Some), 1 => Just(None)], 1..200),
    ) {
        let predictor = if neutral { InputPredictor::Neutral } else { InputPredictor::Repeat };
        let mut test_sites = [0, 1].map(|site| TestSite::new(site, input_delay, prediction_window, predictor));
        let mut in_flight: Vec<(Instant, usize, Vec<u8>)> = Vec::new();
        let mut fates = fates.into_iter().cycle();
        for now in (0..9_000).map(|ms| Instant::ZERO + TimeDelta::from_millis(ms)) {
            for (site, test_site) in test_sites.iter_mut().enumerate() {
                let arrived: Vec<_> = in_flight.extract_if(.., |(at, to, _)| *at <= now && *to == site).collect();
                for (_, _, bytes) in arrived {
                    test_site.session.handle_datagram(now, Addr(1 - site as u64), &bytes);
                }
                for bytes in test_site.run(now, change_interval) {
                    // The network recovers, so that frames are confirmed before the test finishes.
                    let fate = if now < HEALED_AT { fates.next().flatten() } else { Some(10) };
                    if let Some(delay) = fate {
                        in_flight.push((now + TimeDelta::from_millis(delay), 1 - site, bytes));
                    }
                }
            }
        }
        for test_site in test_sites {
            let confirmed = test_site.session.stats().confirmed.number();
            prop_assert!(confirmed > 20, "{confirmed} frames are confirmed");
            for frame in 0..confirmed {
                let words = test_site.stepped.get(frame as usize);
                let expected = [0, 1].map(|site| expected_input(site, frame, input_delay, change_interval));
                prop_assert_eq!(words, Some(&expected), "frame {}", frame);
            }
        }
    }
}

/// Returns the input of a site's player in a frame: 0 before frame `input_delay`, then a word that changes every
/// `change_interval` frames.
fn expected_input(site: usize, frame: u32, input_delay: u32, change_interval: u32) -> InputWord {
    match frame.checked_sub(input_delay) {
        Some(_) => InputWord::from((frame / change_interval).wrapping_mul(2_654_435_761 + site as u32) >> 24),
        None => 0,
    }
}

/// One of two sites. Its machine only records the inputs of every step.
struct TestSite {
    session: Session,
    stepped: Vec<[InputWord; 2]>,
    saved: Vec<Option<usize>>,
    input_delay: u32,
    site: usize,
}

impl TestSite {
    fn new(site: usize, input_delay: u32, prediction_window: u32, predictor: InputPredictor) -> Self {
        let settings = Settings {
            game: GameId { name: "none".into(), hash: [1; 32] },
            machine: MachineId { name: "none".into(), version: "1".into(), options: Vec::new(), first_frames_hash: 0 },
            rate: FrameRate::per_second(60).expect("valid frame rate"),
            input_delay,
            prediction_window,
            auto_tune: false,
            absent_input: AbsentInput::Nothing,
            starvation_policy: StarvationPolicy::Wait,
            compare_interval: 0,
            site_count: 2,
            starting_sites: SiteSet::first(2),
            ownership: Ownership::one_player_per_site(2, 0xff),
        };
        let id = |site: usize| SiteId::new(site as u8).expect("valid site number");
        let peers = vec![(id(1 - site), Addr(1 - site as u64))];
        let saved = vec![None; settings.rollback_slots()];
        let config = Config { predictor, ..Config::new(7, id(site), peers, settings) };
        let session = Session::new(Instant::ZERO, config).expect("valid config");
        Self { session, stepped: Vec::new(), saved, input_delay, site }
    }

    /// Answers the session's requests and returns the datagrams to send.
    fn run(&mut self, now: Instant, change_interval: u32) -> Vec<Vec<u8>> {
        let mut sent = Vec::new();
        let mut buf = [0; MAX_DATAGRAM];
        loop {
            while let Some(transmit) = self.session.poll_transmit(now, &mut buf) {
                sent.push(buf[..transmit.len].to_vec());
            }
            match self.session.poll_request(now) {
                None => return sent,
                Some(Request::Sample { frame }) => {
                    let word = expected_input(self.site, frame.number(), self.input_delay, change_interval);
                    self.session.handle_input(now, &[word; 2]);
                }
                Some(Request::Save { frame, slot }) => {
                    assert_eq!(frame, Frame::new(self.stepped.len() as u32));
                    self.saved[slot] = Some(self.stepped.len());
                }
                Some(Request::Load { frame, slot }) => {
                    assert_eq!(self.saved[slot], Some(frame.number() as usize));
                    self.stepped.truncate(frame.number() as usize);
                }
                Some(Request::Advance { frame, inputs, .. }) => {
                    assert_eq!(frame, Frame::new(self.stepped.len() as u32));
                    self.stepped.push([inputs[0], inputs[1]]);
                }
                Some(Request::Snapshot { .. } | Request::Restore { .. }) => unreachable!("no site joins late"),
                Some(Request::Regions { .. } | Request::Pages { .. }) => unreachable!("no desync is bisected"),
                Some(Request::Hash { .. }) => unreachable!("states are not compared"),
            }
        }
    }
}
