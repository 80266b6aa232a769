//! Properties of feed packets, and of a feed and a spectator that receive arbitrary bytes. One more test lets a
//! spectator change to a source with different frames.
//!
//! The cases are the same in every run. For other or more cases: `PROPTEST_RNG_SEED=7 PROPTEST_CASES=100000 cargo test
//! -p coplay --test properties_feed`.

use coplay::codec::MAX_DATAGRAM;
use coplay::frame::{Frame, FrameRate};
use coplay::id::{Addr, SiteSet};
use coplay::input::Ownership;
use coplay::session::{AbsentInput, GameId, MachineId, Settings, StarvationPolicy};
use coplay::spectator_feed::message::{
    BlockRequests, CloseReason, FeedAck, FeedMessage, FrameRanges, SnapshotChunk, SnapshotOffer, SnapshotRequest,
    Subscribe, Subscribed,
};
use coplay::spectator_feed::{Feed, FeedConfig, Spectator, SpectatorConfig, SpectatorRequest};
use coplay::time::{Instant, TimeDelta};
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

const SESSION: u64 = 5;

fn settings() -> Settings {
    Settings {
        game: GameId { name: "sum".into(), hash: [1; 32] },
        machine: MachineId { name: "adder".into(), version: "1".into(), options: vec![], first_frames_hash: 0 },
        rate: FrameRate::per_second(60).expect("valid rate"),
        input_delay: 6,
        prediction_window: 0,
        auto_tune: false,
        absent_input: AbsentInput::Nothing,
        starvation_policy: StarvationPolicy::Wait,
        compare_interval: 60,
        site_count: 2,
        starting_sites: SiteSet::first(2),
        ownership: Ownership::one_player_per_site(2, 0xffff),
    }
}

fn session() -> impl Strategy<Value = u64> {
    prop_oneof![3 => Just(SESSION), 1 => any::<u64>()]
}

fn small() -> impl Strategy<Value = u32> {
    prop_oneof![4 => 0..500u32, 1 => any::<u32>()]
}

fn message() -> impl Strategy<Value = FeedMessage<'static>> {
    let subscribe = (session(), any::<u64>(), any::<u64>(), option::of(small()), option::of(any::<u64>())).prop_map(
        |(session_id, settings_digest, token, first_frame, known_snapshot)| Subscribe {
            session_id,
            settings_digest,
            token,
            first_frame,
            known_snapshot,
        },
    );
    let ranges = vec((small(), 1..u32::MAX), 0..8).prop_map(|list| {
        let mut ranges = FrameRanges::default();
        list.into_iter().for_each(|(skip, len)| assert!(ranges.push(skip, len)));
        ranges
    });
    let requests = vec((small(), 1..u16::MAX), 0..32).prop_map(|list| {
        let mut requests = BlockRequests::default();
        list.into_iter().for_each(|(block, parts)| assert!(requests.push(block, parts)));
        requests
    });
    let reason = prop_oneof![
        Just(CloseReason::Version),
        Just(CloseReason::Settings),
        Just(CloseReason::Full),
        Just(CloseReason::TooOld),
        Just(CloseReason::TooSlow),
        Just(CloseReason::Silent)
    ];
    let offer = (session(), 0..4u16, small(), 0..100_000u32, any::<u64>(), any::<u64>()).prop_map(
        |(session, snapshot, next, size, hash, digest)| SnapshotOffer {
            session_id: session,
            snapshot_id: snapshot,
            next_frame: next,
            size,
            state_hash: hash,
            digest,
        },
    );
    let chunk = (0..4u16, 0..8u32, any::<u64>(), any::<bool>(), 0..0x8000u16, 0..20u8, 0..3usize).prop_map(
        |(snapshot, block, hash, raw, size, part, kind)| {
            const BYTES: &[u8] = &[0x5a; 1_100];
            let bytes = &BYTES[..[0, 100, 1_100][kind]];
            SnapshotChunk { snapshot_id: snapshot, block, block_hash: hash, is_raw: raw, block_len: size, part, bytes }
        },
    );
    prop_oneof![
        subscribe.prop_map(FeedMessage::Subscribe),
        (session(), small(), any::<bool>(), ranges).prop_map(|(session, next, fetching, ranges)| FeedMessage::Ack(
            FeedAck { session_id: session, next_frame: next, is_fetching_snapshot: fetching, missing: ranges }
        )),
        (session(), 0..4u16, requests).prop_map(|(session, snapshot, requests)| FeedMessage::SnapshotRequest(
            SnapshotRequest { session_id: session, snapshot_id: snapshot, blocks: requests }
        )),
        session().prop_map(|session| FeedMessage::Unsubscribe { session_id: session }),
        (session(), any::<u64>()).prop_map(|(session, token)| FeedMessage::Challenge { session_id: session, token }),
        (session(), small(), small(), any::<u8>()).prop_map(|(session, oldest, end, batch)| FeedMessage::Subscribed(
            Subscribed { session_id: session, oldest_frame: oldest, end_frame: end, batch_frames: batch }
        )),
        offer.prop_map(FeedMessage::SnapshotOffer),
        chunk.prop_map(FeedMessage::SnapshotChunk),
        (session(), reason).prop_map(|(session, reason)| FeedMessage::Closed { session_id: session, reason }),
    ]
}

/// Generates bytes that resemble a frames packet.
fn frames() -> impl Strategy<Value = Vec<u8>> {
    (0..8u8, small(), small(), vec(any::<u8>(), 0..60)).prop_map(|(flags, end, first, rest)| {
        [&[0x1b, flags][..], &end.to_le_bytes(), &first.to_le_bytes(), &rest].concat()
    })
}

/// Generates datagrams that a socket may deliver: valid packets, bytes that resemble a frames packet, and random bytes.
fn datagram() -> impl Strategy<Value = Vec<u8>> {
    let valid = message().prop_map(|message| {
        let mut buf = [0; 2 * MAX_DATAGRAM];
        let len = message.encode(&mut buf).expect("packet fits the buffer");
        buf[..len].to_vec()
    });
    prop_oneof![4 => valid, 2 => frames(), 1 => vec(any::<u8>(), 0..100)]
}

/// Subscribes a spectator at `addr` to the feed.
fn subscribe(feed: &mut Feed, addr: Addr) {
    let (now, mut buf) = (Instant::ZERO, [0; MAX_DATAGRAM]);
    let config = SpectatorConfig::new(SESSION, settings(), vec![Addr(99)]);
    let mut spectator = Spectator::new(now, config).expect("valid settings");
    for _ in 0..2 {
        while let Some(packet) = spectator.poll_transmit(now, &mut buf) {
            feed.handle_datagram(now, addr, &buf[..packet.len]);
        }
        while let Some(packet) = feed.poll_transmit(now, &mut buf) {
            spectator.handle_datagram(now, Addr(99), &buf[..packet.len]);
        }
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn feed_message_round_trips(message in message()) {
        let mut buf = [0; 2 * MAX_DATAGRAM];
        let len = message.encode(&mut buf).expect("packet fits the buffer");
        prop_assert_eq!(FeedMessage::decode(&buf[..len]), Ok(message));
    }

    #[test]
    fn arbitrary_bytes_are_decoded_or_rejected(bytes in prop_oneof![vec(any::<u8>(), 0..200), frames()]) {
        if let Ok(message) = FeedMessage::decode(&bytes) {
            let mut buf = [0; 2 * MAX_DATAGRAM];
            let len = message.encode(&mut buf).expect("a decoded message can be encoded");
            prop_assert_eq!(&buf[..len], &bytes[..], "a packet has exactly one encoding");
        }
    }

    #[test]
    fn feed_survives_arbitrary_datagrams(datagrams in vec((datagram(), 0..3u64), 0..80)) {
        let config = FeedConfig { max_spectators: 2, log_bytes: 4_096, ..FeedConfig::new(SESSION, 9, settings()) };
        let mut feed = Feed::new(config).expect("valid settings");
        let (mut now, mut buf) = (Instant::ZERO, [0; MAX_DATAGRAM]);
        (0..2).for_each(|from| subscribe(&mut feed, Addr(from)));
        prop_assert_eq!(feed.stats().spectators, 2);
        for (frame, (bytes, from)) in datagrams.into_iter().enumerate() {
            feed.push(now, Frame::new(frame as u32), &[frame as u128, 0]);
            if feed.wants_snapshot() {
                feed.set_snapshot(now, Frame::new(frame as u32 + 1), &[7; 40_000], 1);
            }
            feed.handle_datagram(now, Addr(from), &bytes);
            let mut sent = 0;
            while let Some(packet) = feed.poll_transmit(now, &mut buf) {
                prop_assert!(packet.len <= MAX_DATAGRAM);
                prop_assert!(FeedMessage::decode(&buf[..packet.len]).is_ok());
                sent += 1;
                prop_assert!(sent < 1_000);
            }
            now += TimeDelta::from_millis(16);
        }
        prop_assert!(feed.memory() < 300_000);
    }

    #[test]
    fn spectator_survives_arbitrary_datagrams(datagrams in vec((datagram(), 0..3i64), 0..80)) {
        let config = SpectatorConfig {
            max_snapshot_size: 60_000,
            max_backlog_bytes: 8_192,
            ..SpectatorConfig::new(SESSION, settings(), vec![Addr(1)])
        };
        let mut spectator = Spectator::new(Instant::ZERO, config).expect("valid settings");
        let (mut now, mut buf) = (Instant::ZERO, [0; MAX_DATAGRAM]);
        for (bytes, wait) in datagrams {
            spectator.handle_datagram(now, Addr(1), &bytes);
            let mut done = 0;
            while spectator.poll_request(now).is_some() {
                spectator.handle_hash(1);
                done += 1;
                prop_assert!(done < 10_000);
            }
            let mut sent = 0;
            while let Some(packet) = spectator.poll_transmit(now, &mut buf) {
                prop_assert!(FeedMessage::decode(&buf[..packet.len]).is_ok());
                sent += 1;
                prop_assert!(sent < 100);
            }
            while spectator.poll_event().is_some() {}
            if let Some(next) = spectator.poll_timeout() {
                prop_assert!(next >= now);
            }
            now += TimeDelta::from_millis(wait * 40);
        }
        prop_assert!(spectator.memory() < 60_000 + 60 * 16_384, "{}", spectator.memory());
    }
}

/// A site with its feed. The state of its machine is a weighted sum of the inputs of one player.
struct Player {
    feed: Feed,
    state: u64,
    is_alive: bool,
}

impl Player {
    fn step(&mut self, now: Instant, frame: u32, word: u128) {
        self.state = self.state.wrapping_mul(31).wrapping_add(word as u64);
        self.feed.push(now, Frame::new(frame), &[word, 3]);
        if frame % 60 == 59 {
            self.feed.push_hash(Frame::new(frame), self.state);
        }
        if self.feed.wants_snapshot() {
            self.feed.set_snapshot(now, Frame::new(frame + 1), &self.state.to_le_bytes(), self.state);
        }
    }
}

fn answer_requests(spectator: &mut Spectator, now: Instant, state: &mut u64) {
    while let Some(request) = spectator.poll_request(now) {
        match request {
            SpectatorRequest::Load { state: loaded, .. } => {
                *state = u64::from_le_bytes(loaded.try_into().expect("eight bytes of state"));
            }
            SpectatorRequest::Advance { inputs, .. } => *state = state.wrapping_mul(31).wrapping_add(inputs[0] as u64),
            SpectatorRequest::Hash { .. } => spectator.handle_hash(*state),
        }
    }
}

/// Two sites continue without each other from frame 300 on. At frame 600 the site that the spectator receives from
/// stops. The spectator changes to the other site, whose frames do not continue the ones seen so far, and must load
/// that site's state.
#[test]
fn spectator_loads_state_when_the_next_source_differs() {
    let player = |source| Player {
        feed: Feed::new(FeedConfig::new(SESSION, source, settings())).expect("valid settings"),
        state: 0,
        is_alive: true,
    };
    let (mut players, mut buf, mut now) = ([player(1), player(2)], [0; MAX_DATAGRAM], Instant::ZERO);
    let config = SpectatorConfig::new(SESSION, settings(), vec![Addr(0), Addr(1)]);
    let (mut spectator, mut seen) = (Spectator::new(now, config).expect("valid settings"), 0);
    for frame in 0..1_500 {
        players[0].is_alive = frame < 600;
        for (index, player) in players.iter_mut().enumerate().filter(|(_, player)| player.is_alive) {
            let word = u128::from(frame / 10 % 16) + if frame < 300 { 0 } else { index as u128 };
            player.step(now, frame, word);
        }
        answer_requests(&mut spectator, now, &mut seen);
        while let Some(packet) = spectator.poll_transmit(now, &mut buf) {
            let player = &mut players[packet.to.0 as usize];
            player.feed.handle_datagram(now, Addr(9), &buf[..packet.len]);
        }
        for (index, player) in players.iter_mut().enumerate().filter(|(_, player)| player.is_alive) {
            while let Some(packet) = player.feed.poll_transmit(now, &mut buf) {
                spectator.handle_datagram(now, Addr(index as u64), &buf[..packet.len]);
            }
        }
        now += TimeDelta::from_nanos(16_666_667);
    }
    // The remaining player adds no more frames, so that the spectator sees all of them.
    for _ in 0..200 {
        answer_requests(&mut spectator, now, &mut seen);
        while let Some(packet) = players[1].feed.poll_transmit(now, &mut buf) {
            spectator.handle_datagram(now, Addr(1), &buf[..packet.len]);
        }
        now += TimeDelta::from_nanos(16_666_667);
    }
    assert_eq!(spectator.next_frame(), Frame::new(1_500));
    assert_eq!(seen, players[1].state, "the state of the remaining player");
}
