//! Properties of the desync bisection: every message has exactly one encoding, and every bisection ends, whatever
//! messages arrive.
//!
//! The cases are the same in every run. For other or more cases: `PROPTEST_RNG_SEED=7 PROPTEST_CASES=100000 cargo test
//! -p coplay --test desync`.

use coplay::codec::MAX_DATAGRAM;
use coplay::frame::Frame;
use coplay::id::{SiteId, SiteSet};
use coplay::session::{DesyncBisector, FrameSpan, LocalQuery, StateRegion};
use coplay::session::{DesyncMessage, HashList, RegionList};
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
    fn desync_message_has_one_encoding(kind in 0x1f..=0x28u8, rest in vec(any::<u8>(), 0..64), small in any::<bool>()) {
        let mut bytes = vec![kind];
        bytes.extend(rest.iter().map(|byte| if small { byte % 4 } else { *byte }));
        let mut buf = [0; MAX_DATAGRAM];
        if let Ok(message) = DesyncMessage::decode(&bytes) {
            prop_assert!(DesyncMessage::is_desync_message(&bytes));
            let len = message.encode(&mut buf).expect("packet fits the buffer");
            prop_assert_eq!(&buf[..len], &bytes[..]);
        }
    }

    #[test]
    fn bisection_ends_whatever_peers_send(messages in vec((1..4u8, message()), 0..200), has_mismatch in any::<bool>()) {
        let own_site = SiteId::new(0).expect("valid site number");
        let mut bisector = DesyncBisector::new(own_site, SiteSet::first(3));
        if has_mismatch {
            bisector.on_mismatch(span(), 1);
        }
        let mut buf = [0; MAX_DATAGRAM];
        for (site, message) in &messages {
            let from = SiteId::new(*site).expect("valid site number");
            message.with_message(|message| bisector.on_message(from, &message));
            answer_local_queries(&mut bisector);
            if let Some(len) = bisector.poll_answer(from, &mut buf) {
                prop_assert!(DesyncMessage::decode(&buf[..len]).is_ok());
            }
        }
        let searched = bisector.span().is_some();
        let mut rounds = 0;
        while bisector.is_searching() {
            answer_local_queries(&mut bisector);
            for site in SiteId::first(3) {
                bisector.poll_query(site, &mut buf);
            }
            rounds += 1;
            prop_assert!(rounds < 2_000, "the bisection sends queries forever");
        }
        prop_assert_eq!(bisector.poll_report().is_some(), searched);
    }
}

fn span() -> FrameSpan {
    FrameSpan::new(Frame::new(4), Frame::new(7)).expect("valid span")
}

fn region(number: u8) -> StateRegion {
    StateRegion { name: format!("r{number}"), len: 100_000, hash: 7 }
}

/// Answers the bisector's queries about the local machine, as a host program does.
fn answer_local_queries(bisector: &mut DesyncBisector) {
    while let Some(query) = bisector.local_query() {
        match query {
            LocalQuery::Hashes { first: from, .. } => bisector.on_local_hash(from, from.number()),
            LocalQuery::Regions { frame } => bisector.on_local_regions(frame, &[0, 1, 2].map(region)),
            LocalQuery::Pages { frame, region, first_page: from } => {
                bisector.on_local_pages(frame, region, from, &[1, 2, 3])
            }
        }
    }
}

/// Fields of a random message, mostly about the frames around [`span`].
#[derive(Clone, Debug)]
struct TestMessage {
    kind: u8,
    frame: Frame,
    small: u8,
    total: u8,
    page: u32,
    digest: Option<u32>,
    hashes: Vec<[u8; 4]>,
}

fn message() -> impl Strategy<Value = TestMessage> {
    let frame = prop_oneof![9 => (4..9u32).prop_map(Frame::new), 1 => any::<u32>().prop_map(Frame::new)];
    let page = prop_oneof![Just(0), Just(256), any::<u32>()];
    let hash = prop_oneof![(4..8u32).prop_map(u32::to_le_bytes), any::<[u8; 4]>()];
    (0..7u8, frame, 0..4u8, any::<u8>(), page, option::of(any::<u32>()), vec(hash, 0..6)).prop_map(
        |(kind, frame, small, total, page, digest, hashes)| TestMessage {
            kind,
            frame,
            small,
            total,
            page,
            digest,
            hashes,
        },
    )
}

impl TestMessage {
    fn with_message(&self, take: impl FnOnce(DesyncMessage<'_>)) {
        let Self { frame, small, total, page: from, digest, .. } = *self;
        let (span, hashes) = (span(), HashList::new(&self.hashes));
        let regions = [0, 1, 2, 3].map(|number| StateRegion { hash: u32::from(total), ..region(number) });
        let mut packed = [0; 200];
        take(match self.kind {
            0 => DesyncMessage::HashesRequest { span, from: frame, digest },
            1 => DesyncMessage::Hashes { span, from: frame, digest, hashes },
            2 => DesyncMessage::CannotReplay { span, digest },
            3 => DesyncMessage::RegionsRequest { frame, from: small },
            4 => {
                let regions = RegionList::pack(&regions[usize::from(small)..], &mut packed);
                DesyncMessage::Regions { frame, from: small, total: total % 6, regions }
            }
            5 => DesyncMessage::PagesRequest { frame, region: small, from },
            _ => DesyncMessage::Pages { frame, region: small, from, hashes },
        });
    }
}
