//! Whatever the order in which inputs come, and whatever is lost of them: what is certain in the end is what the players did.
//!
//! The cases are the same in every run. For others, or more: `PROPTEST_RNG_SEED=7 PROPTEST_CASES=1000 cargo test -p coplay --test
//! guesses`.

use coplay::frame::{Frame, FrameRate};
use coplay::id::{Addr, SiteId, SiteSet};
use coplay::input::{InputWord, Ownership};
use coplay::session::{
    AbsentInput, Config, GameId, InputPredictor, MachineId, Request, Session, Settings, StarvationPolicy,
};
use coplay::time::{Instant, TimeDelta};
use coplay::wire::MAX_DATAGRAM;
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

/// From then on nothing is lost or late.
const HEALED_AT: Instant = Instant::from_nanos(6_000_000_000);

proptest! {
    #![proptest_config(config())]

    #[test]
    fn confirmed_frames_match_the_players_inputs(
        lag in 0..5u32,
        window in prop_oneof![Just(0), 1..12u32],
        neutral in any::<bool>(),
        restless in 1..9u32,
        fates in vec(prop_oneof![4 => (0..150i64).prop_map(Some), 1 => Just(None)], 1..200),
    ) {
        let predictor = if neutral { InputPredictor::Neutral } else { InputPredictor::Repeat };
        let mut ends = [0, 1].map(|site| TestSite::new(site, lag, window, predictor));
        let mut under_way: Vec<(Instant, usize, Vec<u8>)> = Vec::new();
        let mut fates = fates.into_iter().cycle();
        for now in (0..9_000).map(|ms| Instant::ZERO + TimeDelta::from_millis(ms)) {
            for (site, end) in ends.iter_mut().enumerate() {
                let arrived: Vec<_> = under_way.extract_if(.., |(at, to, _)| *at <= now && *to == site).collect();
                for (_, _, bytes) in arrived {
                    end.session.handle_datagram(now, Addr(1 - site as u64), &bytes);
                }
                for bytes in end.run(now, restless) {
                    // The network comes to rest in the end.
                    let fate = if now < HEALED_AT { fates.next().flatten() } else { Some(10) };
                    if let Some(delay) = fate {
                        under_way.push((now + TimeDelta::from_millis(delay), 1 - site, bytes));
                    }
                }
            }
        }
        for end in ends {
            let certain = end.session.stats().confirmed.number();
            prop_assert!(certain > 20, "{certain} frames are certain");
            for frame in 0..certain {
                let words = end.stepped.get(frame as usize);
                prop_assert_eq!(words, Some(&[0, 1].map(|site| expected_input(site, frame, lag, restless))), "frame {}", frame);
            }
        }
    }
}

/// What a site's player does in a frame.
fn expected_input(site: usize, frame: u32, lag: u32, restless: u32) -> InputWord {
    match frame.checked_sub(lag) {
        Some(_) => InputWord::from((frame / restless).wrapping_mul(2_654_435_761 + site as u32) >> 24),
        None => 0,
    }
}

/// One of two sites, and its machine, which only remembers what it was stepped with.
struct TestSite {
    session: Session,
    stepped: Vec<[InputWord; 2]>,
    saved: Vec<Option<usize>>,
    input_delay: u32,
    site: usize,
}

impl TestSite {
    fn new(site: usize, lag: u32, window: u32, predictor: InputPredictor) -> Self {
        let settings = Settings {
            game: GameId { name: "none".into(), hash: [1; 32] },
            machine: MachineId { name: "none".into(), version: "1".into(), options: Vec::new(), first_frames_hash: 0 },
            rate: FrameRate::per_second(60).expect("a frame rate"),
            input_delay: lag,
            prediction_window: window,
            auto_tune: false,
            absent_input: AbsentInput::Nothing,
            starvation_policy: StarvationPolicy::Wait,
            compare_interval: 0,
            site_count: 2,
            starting_sites: SiteSet::first(2),
            ownership: Ownership::one_player_per_site(2, 0xff),
        };
        let id = |site: usize| SiteId::new(site as u8).expect("a site");
        let peers = vec![(id(1 - site), Addr(1 - site as u64))];
        let saved = vec![None; settings.rollback_slots()];
        let config = Config { predictor, ..Config::new(7, id(site), peers, settings) };
        let session = Session::new(Instant::ZERO, config).expect("a sound config");
        Self { session, stepped: Vec::new(), saved, input_delay: lag, site }
    }

    /// Does what is asked for and returns what is to be sent.
    fn run(&mut self, now: Instant, restless: u32) -> Vec<Vec<u8>> {
        let mut sent = Vec::new();
        let mut buf = [0; MAX_DATAGRAM];
        loop {
            while let Some(transmit) = self.session.poll_transmit(now, &mut buf) {
                sent.push(buf[..transmit.len].to_vec());
            }
            match self.session.poll_request(now) {
                None => return sent,
                Some(Request::Sample { frame }) => {
                    let word = expected_input(self.site, frame.number(), self.input_delay, restless);
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
                Some(Request::Snapshot { .. } | Request::Restore { .. }) => unreachable!("nobody comes late"),
                Some(Request::Regions { .. } | Request::Pages { .. }) => unreachable!("nothing differs"),
                Some(Request::Hash { .. }) => unreachable!("nothing is compared"),
            }
        }
    }
}
