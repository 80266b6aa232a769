//! What holds for any packets of a search: they have one form, they do no harm, and every search ends.
//!
//! The cases are the same in every run. For others, or more: `PROPTEST_RNG_SEED=7 PROPTEST_CASES=100000 cargo test -p coplay
//! --test search`.

use coplay::frame::Frame;
use coplay::id::{SiteId, SiteSet};
use coplay::session::{Finder, Region, Span, Want};
use coplay::wire::{Hashes, MAX_DATAGRAM, Regions, Search};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

fn config() -> ProptestConfig {
    let default = ProptestConfig::default();
    let rng_seed = match default.rng_seed {
        RngSeed::Random => RngSeed::Fixed(1),
        chosen => chosen,
    };
    ProptestConfig { rng_seed, failure_persistence: None, ..default }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_packet_has_one_form(kind in 0x1f..=0x28u8, rest in vec(any::<u8>(), 0..64), small in any::<bool>()) {
        let mut bytes = vec![kind];
        bytes.extend(rest.iter().map(|byte| if small { byte % 4 } else { *byte }));
        let mut buf = [0; MAX_DATAGRAM];
        if let Ok(message) = Search::decode(&bytes) {
            prop_assert!(Search::is(&bytes));
            let len = message.encode(&mut buf).expect("room for a packet");
            prop_assert_eq!(&buf[..len], &bytes[..]);
        }
    }

    #[test]
    fn a_search_ends_whatever_others_say(said in vec((1..4u8, message()), 0..200), opened in any::<bool>()) {
        let me = SiteId::new(0).expect("a site");
        let mut finder = Finder::new(me, SiteSet::first(3));
        if opened {
            finder.on_mismatch(span(), 1);
        }
        let mut buf = [0; MAX_DATAGRAM];
        for (site, message) in &said {
            let from = SiteId::new(*site).expect("a site");
            message.with(|message| finder.on_message(from, &message));
            serve(&mut finder);
            if let Some(len) = finder.poll_answer(from, &mut buf) {
                prop_assert!(Search::decode(&buf[..len]).is_ok());
            }
        }
        let searched = finder.span().is_some();
        let mut asked = 0;
        while finder.is_searching() {
            serve(&mut finder);
            for site in SiteId::first(3) {
                finder.poll_ask(site, &mut buf);
            }
            asked += 1;
            prop_assert!(asked < 2_000, "nobody is asked for ever");
        }
        prop_assert_eq!(finder.poll_report().is_some(), searched);
    }
}

fn span() -> Span {
    Span::new(Frame::new(4), Frame::new(7)).expect("a span")
}

fn region(number: u8) -> Region {
    Region { name: format!("r{number}"), len: 100_000, hash: 7 }
}

/// Does what a host program would.
fn serve(finder: &mut Finder) {
    while let Some(want) = finder.want() {
        match want {
            Want::Hashes { from, .. } => finder.on_local_hash(from, from.number()),
            Want::Regions { frame } => finder.on_local_regions(frame, &[0, 1, 2].map(region)),
            Want::Pages { frame, region, from } => finder.on_local_pages(frame, region, from, &[1, 2, 3]),
        }
    }
}

/// A packet that might make sense.
#[derive(Clone, Debug)]
struct Said {
    kind: u8,
    frame: Frame,
    small: u8,
    total: u8,
    page: u32,
    digest: Option<u32>,
    hashes: Vec<[u8; 4]>,
}

fn message() -> impl Strategy<Value = Said> {
    let frame = prop_oneof![9 => (4..9u32).prop_map(Frame::new), 1 => any::<u32>().prop_map(Frame::new)];
    let page = prop_oneof![Just(0), Just(256), any::<u32>()];
    let hash = prop_oneof![(4..8u32).prop_map(u32::to_le_bytes), any::<[u8; 4]>()];
    (0..7u8, frame, 0..4u8, any::<u8>(), page, option::of(any::<u32>()), vec(hash, 0..6)).prop_map(
        |(kind, frame, small, total, page, digest, hashes)| Said { kind, frame, small, total, page, digest, hashes },
    )
}

impl Said {
    fn with(&self, take: impl FnOnce(Search<'_>)) {
        let Self { frame, small, total, page: from, digest, .. } = *self;
        let (span, hashes) = (span(), Hashes::new(&self.hashes));
        let there = [0, 1, 2, 3].map(|number| Region { hash: u32::from(total), ..region(number) });
        let mut packed = [0; 200];
        take(match self.kind {
            0 => Search::AskHashes { span, from: frame, digest },
            1 => Search::Hashes { span, from: frame, digest, hashes },
            2 => Search::Unable { span, digest },
            3 => Search::AskRegions { frame, from: small },
            4 => {
                let regions = Regions::pack(&there[usize::from(small)..], &mut packed);
                Search::Regions { frame, from: small, total: total % 6, regions }
            }
            5 => Search::AskPages { frame, region: small, from },
            _ => Search::Pages { frame, region: small, from, hashes },
        });
    }
}
