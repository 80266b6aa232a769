//! Properties of session packets, of input streams with any order of arrival, and of input ownership.
//!
//! The cases are the same in every run. For other or more cases: `PROPTEST_RNG_SEED=7 PROPTEST_CASES=100000 cargo test
//! -p coplay --test properties`.

use coplay::frame::{Frame, FrameRate};
use coplay::id::{MAX_SITES, SiteId, SiteSet};
use coplay::input::{InputWord, MAX_PLAYERS, Ownership, STREAM_CAPACITY, Stream};
use coplay::input::{MAX_MISSING_RANGES, MissingRanges};
use coplay::session::message::{
    ClockProbe, CommandKind, Extra, Extras, Hello, InputEnds, MembershipDecision, PauseRequest, Refusal, RelayedInputs,
    ResentInputsList, ScheduledCommand, SenderIdentity, SessionMessage, Tick, TickDigest, TuningStats, Vote,
};
use coplay::session::{AbsentInput, GameId, MAX_OPTIONS, MachineId, Settings, StarvationPolicy};
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
    fn tick_round_trips(parts in tick_parts(), resends in vec(resend(), 0..4), extras in vec(extra(), 0..6)) {
        let carrier = carrier_tick(&resends, &extras);
        let (carried_extras, carried_resends) = carried_parts(&carrier);
        let expected_extras = extras.iter().map(OwnedExtra::extra).collect::<Vec<_>>();
        prop_assert_eq!(carried_extras.iter().collect::<Vec<_>>(), expected_extras);
        let tick = parts.tick(carried_extras, carried_resends);
        let decoded =
            tick.resends.iter().map(|resend| (resend.end_minus_first, resend.frame_count, resend.changes.to_vec()));
        prop_assert_eq!(decoded.collect::<Vec<_>>(), resends);
        let mut buf = [0; 4_096];
        let len = tick.encode(&mut buf).expect("tick fits the buffer");
        prop_assert_eq!(SessionMessage::decode(&buf[..len]), Ok(SessionMessage::Tick(tick)));
    }

    #[test]
    fn hello_round_trips(hello in hello()) {
        let mut buf = [0; 8_192];
        let len = hello.encode(&mut buf).expect("hello fits the buffer");
        prop_assert_eq!(SessionMessage::decode(&buf[..len]), Ok(SessionMessage::Hello(Box::new(hello))));
        for short in 0..len {
            prop_assert!(SessionMessage::decode(&buf[..short]).is_err());
        }
    }

    #[test]
    fn inputs_arrive_in_any_order(
        expected in test_inputs(),
        deliveries in vec((any::<prop::sample::Index>(), 1..80usize, any::<bool>()), 0..60),
        resend in vec((1..200usize, any::<bool>()), 1..8),
    ) {
        let mut receiver = Receiver::new(&expected);
        for (first, len, absolute) in deliveries {
            let first = first.index(expected.inputs.len());
            receiver.receive(first, expected.inputs.len().min(first + len), absolute);
        }
        for (len, absolute) in resend.into_iter().cycle() {
            let first = receiver.received_count();
            if first == expected.inputs.len() {
                break;
            }
            receiver.receive(first, expected.inputs.len().min(first + len), absolute);
            prop_assert!(receiver.received_count() > first, "a resend from the start of the gap has an effect");
        }
        prop_assert_eq!(receiver.stream.end(), receiver.stream.received_end());
    }

    #[test]
    fn only_owned_bits_are_transmitted(
        ownership in ownership(MAX_SITES),
        words in vec(any::<InputWord>(), MAX_PLAYERS),
    ) {
        let players = ownership.players();
        let mut merged = vec![0; players];
        for site in SiteId::first(MAX_SITES) {
            let layout = ownership.layout(site);
            let mut packed = vec![0; layout.width()];
            layout.pack(&words, &mut packed);
            let mut alone = vec![0; players];
            layout.unpack(&packed, &mut alone);
            for player in 0..players {
                prop_assert_eq!(alone[player], words[player] & ownership.mask(site, player));
            }
            let owned = (0..players).flat_map(|player| ownership.mask(site, player).to_le_bytes());
            prop_assert_eq!(layout.width(), owned.filter(|byte| *byte != 0).count());
            layout.unpack(&packed, &mut merged);
        }
        for player in 0..players {
            let owned = SiteId::first(MAX_SITES).fold(0, |bits, site| bits | ownership.mask(site, player));
            prop_assert_eq!(merged[player], words[player] & owned);
        }
    }
}

/// A stream counts the changes of the input in a gap modulo 256. Inputs that change in every frame arrive after a gap
/// of 200 to 299 frames, which must not look like a gap without changes.
#[test]
fn gap_with_256_changes_is_not_closed() {
    let inputs = (0..700usize).map(|frame| vec![frame as u8 ^ (frame >> 8) as u8]).collect();
    let expected = TestInputs { width: 1, inputs };
    for known in [1, 44, 300] {
        for first in known + 200..known + 300 {
            let mut receiver = Receiver::new(&expected);
            receiver.receive(0, known.min(200), false);
            receiver.receive(known.min(200), known, false);
            receiver.receive(first, first + 1, true);
            assert_eq!(receiver.received_count(), known, "the gap from {known} to {first} stays open");
        }
    }
}

// ---- Packets.

/// A tick without its extras and retransmissions, which can only be created from bytes.
#[derive(Clone, Debug)]
struct TickParts {
    end: u16,
    end_minus_ack: i32,
    identity: Option<SenderIdentity>,
    probe: Option<ClockProbe>,
    digest: Option<TickDigest>,
    missing: MissingRanges,
    frame_count: u32,
    is_absolute: bool,
    changes: Vec<u8>,
}

impl TickParts {
    fn tick<'a>(&'a self, extras: Extras<'a>, resends: ResentInputsList<'a>) -> Tick<'a> {
        Tick {
            end: self.end,
            end_minus_ack: self.end_minus_ack,
            identity: self.identity,
            probe: self.probe,
            digest: self.digest,
            missing: self.missing,
            extras,
            resends,
            frame_count: self.frame_count,
            is_absolute: self.is_absolute,
            changes: &self.changes,
        }
    }
}

fn tick_parts() -> impl Strategy<Value = TickParts> {
    let identity = (any::<u64>(), any::<u8>()).prop_map(|(session_id, site)| SenderIdentity { session_id, site });
    let digest = any::<(u16, u32, u64)>().prop_map(|(frame, state_hash, input_digest)| TickDigest {
        frame,
        state_hash,
        input_digest,
    });
    (
        (any::<u16>(), any::<i32>()),
        (option::of(identity), option::of(probe()), option::of(digest)),
        vec((any::<u16>(), 1..=u16::MAX), 0..=MAX_MISSING_RANGES),
        (any::<u32>(), any::<bool>(), vec(any::<u8>(), 0..300)),
    )
        .prop_map(
            |((end, end_minus_ack), (identity, probe, digest), ranges, (frame_count, is_absolute, changes))| {
                let mut missing_ranges = MissingRanges::default();
                for (held, missing) in ranges {
                    assert!(missing_ranges.push(held.into(), missing.into()));
                }
                TickParts {
                    end,
                    end_minus_ack,
                    identity,
                    probe,
                    digest,
                    missing: missing_ranges,
                    frame_count,
                    is_absolute,
                    changes,
                }
            },
        )
}

/// Generates probes whose times are multiples of their wire units.
fn probe() -> impl Strategy<Value = ClockProbe> {
    let echo = (any::<u32>(), 0..u32::MAX).prop_map(|(stamp, units)| (stamp, i64::from(units) * 16_000));
    let lateness = (-7_999..=7_999i64).prop_map(|units| units * 31_250);
    (0..1u64 << 40, option::of(echo), any::<i32>(), option::of(lateness)).prop_map(
        |(stamp_us, echo, end_minus_frame, lateness_ns)| ClockProbe { stamp_us, echo, end_minus_frame, lateness_ns },
    )
}

/// Generates retransmissions: first frame (counted back from the end of the tick), number of frames and changes.
fn resend() -> impl Strategy<Value = (u32, u32, Vec<u8>)> {
    (1..=u32::MAX, any::<prop::sample::Index>(), vec(any::<u8>(), 0..200))
        .prop_map(|(back, len, changes)| (back, 1 + len.index(back as usize) as u32, changes))
}

/// Encodes a tick with nothing but these retransmissions and extras.
fn carrier_tick(resends: &[(u32, u32, Vec<u8>)], extras: &[OwnedExtra]) -> Vec<u8> {
    let mut block = Vec::new();
    for (back, len, changes) in resends {
        put_varint(&mut block, *back);
        put_varint(&mut block, *len);
        block.extend((changes.len() as u16).to_le_bytes());
        block.extend(changes);
    }
    let flag = |block: &[u8], flag: u8| if block.is_empty() { 0 } else { flag };
    let encoded_extras: Vec<u8> = extras.iter().flat_map(OwnedExtra::encode).collect();
    let mut bytes = vec![0x80 | flag(&encoded_extras, 0x04) | flag(&block, 0x02), 0, 0, 0];
    for block in [encoded_extras, block].into_iter().filter(|block| !block.is_empty()) {
        bytes.extend((block.len() as u16).to_le_bytes());
        bytes.extend(block);
    }
    bytes.push(0);
    bytes
}

fn carried_parts(carrier: &[u8]) -> (Extras<'_>, ResentInputsList<'_>) {
    match SessionMessage::decode(carrier) {
        Ok(SessionMessage::Tick(tick)) => (tick.extras, tick.resends),
        other => panic!("not a tick: {other:?}"),
    }
}

/// An [`Extra`] that owns its bytes.
#[derive(Clone, Debug)]
enum OwnedExtra {
    Short(Extra<'static>),
    Relay(SiteId, Frame, u32, Vec<u8>),
}

impl OwnedExtra {
    fn extra(&self) -> Extra<'_> {
        match self {
            Self::Short(extra) => *extra,
            Self::Relay(site, first, len, changes) => {
                Extra::Relay(RelayedInputs { site: *site, first_frame: *first, frame_count: *len, changes })
            }
        }
    }

    fn encode(&self) -> Vec<u8> {
        let mut buf = [0; 512];
        let len = self.extra().encode(&mut buf).expect("extra fits the buffer");
        buf[..len].to_vec()
    }
}

fn extra() -> impl Strategy<Value = OwnedExtra> {
    let short = prop_oneof![
        frame().prop_map(Extra::Leave),
        command().prop_map(Extra::Command),
        vote().prop_map(Extra::Vote),
        (any::<u32>(), decision(), any::<u32>())
            .prop_map(|(epoch, decision, since)| Extra::DecisionReport(epoch, decision, since)),
        (site(), frame()).prop_map(|(site, frame)| Extra::RelayRequest(site, frame)),
        (site(), frame()).prop_map(|(site, frame)| Extra::LeaveReport(site, frame)),
        any::<(u32, u32)>().prop_map(|(input_age, max_prediction_window)| Extra::TuningStats(TuningStats {
            input_age,
            max_prediction_window
        })),
        (site(), frame(), any::<i64>()).prop_map(|(requested_by, frame, until_ns)| Extra::Pause(PauseRequest {
            requested_by,
            frame,
            until_ns
        })),
    ];
    let relay = (site(), frame(), 1..=u32::MAX, vec(any::<u8>(), 0..300));
    prop_oneof![
        6 => short.prop_map(OwnedExtra::Short),
        1 => relay.prop_map(|(site, first, len, changes)| OwnedExtra::Relay(site, first, len, changes)),
    ]
}

fn vote() -> impl Strategy<Value = Vote> {
    (any::<(u32, u32, u8, u8)>(), input_ends(), option::of(command()), option::of((any::<u32>(), decision()))).prop_map(
        |((epoch, ballot, left, evict), (drop, input_ends), command, accepted)| {
            let (left_sites, to_evict) = (SiteSet::from_bits(left), SiteSet::from_bits(evict));
            Vote { epoch, ballot, drop, input_ends, left_sites, to_evict, command, accepted }
        },
    )
}

fn decision() -> impl Strategy<Value = MembershipDecision> {
    (input_ends(), any::<u8>(), option::of(command())).prop_map(|((drop, input_ends), left, command)| {
        let left_sites = SiteSet::from_bits(left);
        MembershipDecision { drop, input_ends, left_sites, command }
    })
}

/// Generates a set of sites, and for each of them the frame at which its inputs end.
fn input_ends() -> impl Strategy<Value = (SiteSet, InputEnds)> {
    (any::<u8>(), vec(frame(), MAX_SITES)).prop_map(|(bits, frames)| {
        let sites = SiteSet::from_bits(bits);
        let mut ends = [Frame::ZERO; MAX_SITES];
        sites.iter().for_each(|site| ends[site.index()] = frames[site.index()]);
        (sites, ends)
    })
}

fn command() -> impl Strategy<Value = ScheduledCommand> {
    let set_delay =
        (any::<(u32, u32, u32)>(), site()).prop_map(|((input_delay, prediction_window, input_age), site)| {
            CommandKind::SetDelay { input_delay, prediction_window, input_age, site }
        });
    let join = (site(), any::<u8>(), any::<[u32; 4]>()).prop_map(
        |(site, members, [incarnation, epoch, input_delay, prediction_window])| CommandKind::Join {
            site,
            incarnation,
            members: SiteSet::from_bits(members),
            epoch,
            input_delay,
            prediction_window,
        },
    );
    let kind = prop_oneof![join, set_delay];
    (site(), frame(), kind).prop_map(|(issuer, frame, kind)| ScheduledCommand { issuer, frame, kind })
}

fn frame() -> impl Strategy<Value = Frame> {
    (0..u32::MAX / 2).prop_map(Frame::new)
}

fn site() -> impl Strategy<Value = SiteId> {
    (0..MAX_SITES as u8).prop_map(|number| SiteId::new(number).expect("valid site number"))
}

fn hello() -> impl Strategy<Value = Hello> {
    let identity = (any::<u64>(), site(), any::<(u32, u32)>(), any::<u8>());
    let alone = any::<u32>().prop_map(|number| Some(Refusal::ContinuedAlone { frame: Frame::new(number) }));
    let refusal = prop_oneof![Just(None), Just(Some(Refusal::AlreadyRunning)), Just(Some(Refusal::Dropped)), alone];
    let flags = (any::<bool>(), option::of(any::<bool>()), refusal);
    let times = (any::<u64>(), option::of(any::<(u64, u32)>()), option::of(any::<i64>()));
    (identity, flags, times, settings()).prop_map(
        |(
            (session_id, site, (incarnation, your_incarnation), agreed),
            (is_leaving, join_readiness, refusal),
            times,
            settings,
        )| {
            let (stamp_us, echo, start_ns) = times;
            let agreed_sites = SiteSet::from_bits(agreed);
            Hello {
                session_id,
                site,
                incarnation,
                your_incarnation,
                agreed_sites,
                is_leaving,
                join_readiness,
                refusal,
                stamp_us,
                echo,
                start_ns,
                settings,
            }
        },
    )
}

fn settings() -> impl Strategy<Value = Settings> {
    // Up to 16 characters of up to four bytes.
    let text = || "\\PC{0,16}";
    let game = (text(), any::<[u8; 32]>()).prop_map(|(name, hash)| GameId { name, hash });
    let machine = (text(), text(), vec((text(), text()), 0..=MAX_OPTIONS), any::<u64>()).prop_map(
        |(name, version, options, first_frames_hash)| MachineId { name, version, options, first_frames_hash },
    );
    let numbers = (rate(), any::<(u32, u32, u32)>(), any::<bool>(), any::<(bool, bool)>());
    let seats = (0..=MAX_SITES).prop_flat_map(|sites| (Just(sites as u8), any::<u8>(), ownership(sites)));
    (game, machine, numbers, seats).prop_map(
        |(
            game,
            machine,
            (rate, (input_delay, prediction_window, compare_interval), auto_tune, (repeat, pause)),
            (site_count, starters, ownership),
        )| {
            Settings {
                game,
                machine,
                rate,
                input_delay,
                prediction_window,
                auto_tune,
                absent_input: if repeat { AbsentInput::Repeat } else { AbsentInput::Nothing },
                starvation_policy: if pause { StarvationPolicy::Pause } else { StarvationPolicy::Wait },
                compare_interval,
                site_count,
                starting_sites: SiteSet::from_bits(starters),
                ownership,
            }
        },
    )
}

/// Generates rates from 1 to 1,000 frames per second.
fn rate() -> impl Strategy<Value = FrameRate> {
    (1..=4_000_000u32, 1_000..=1_000_000u64).prop_map(|(seconds, thousandths)| {
        let frames = u64::from(seconds) * thousandths / 1_000;
        FrameRate::new(frames as u32, seconds).expect("valid frame rate")
    })
}

/// Generates ownership of 1 to 9 players' bits by the first `sites` sites. A bit claimed by several sites goes to the
/// lowest one; a bit claimed by none has no owner.
fn ownership(sites: usize) -> impl Strategy<Value = Ownership> {
    let sparse = (any::<InputWord>(), any::<InputWord>()).prop_map(|(one, other)| one & other);
    let mask = prop_oneof![Just(0), Just(InputWord::MAX), (0..128u32).prop_map(|bit| 1 << bit), sparse];
    vec(vec(mask, sites), 1..=MAX_PLAYERS).prop_map(|claims| {
        let mut ownership = Ownership::new(claims.len());
        for (player, claims) in claims.into_iter().enumerate() {
            let mut taken = 0;
            for (site, claim) in SiteId::first(MAX_SITES).zip(claims) {
                ownership.assign(site, player, claim & !taken).expect("unowned bits");
                taken |= claim;
            }
        }
        ownership
    })
}

// ---- Inputs.

const START: Frame = Frame::new(5);

/// The true inputs, frame by frame.
#[derive(Clone, Debug)]
struct TestInputs {
    width: usize,
    inputs: Vec<Vec<u8>>,
}

/// Generates runs of equal inputs, 0 to 24 or 128 bytes wide. Some runs have one frame.
fn test_inputs() -> impl Strategy<Value = TestInputs> {
    let width = prop_oneof![Just(0usize), 1..=4usize, 5..=8usize, 9..=24usize, Just(128usize)];
    let longest = prop_oneof![Just(1usize), Just(4), Just(40)];
    (width, longest).prop_flat_map(|(width, longest)| {
        // Few different bytes, so that an input often returns to an earlier value.
        vec((vec(0..3u8, width), 1..=longest), 1..40).prop_map(move |runs| {
            let inputs = runs.into_iter().flat_map(|(input, frames)| std::iter::repeat_n(input, frames));
            TestInputs { width, inputs: inputs.collect() }
        })
    })
}

impl TestInputs {
    fn input_before(&self, at: usize) -> Vec<u8> {
        at.checked_sub(1).map_or(vec![0; self.width], |before| self.inputs[before].clone())
    }

    /// Returns the number of changes among the inputs with indices from 0 to `at`, where the input before index 0 is
    /// neutral.
    fn change_count(&self, at: usize) -> usize {
        (0..=at).filter(|at| self.inputs[*at] != self.input_before(*at)).count()
    }

    /// Encodes the inputs `first..until` as change tokens, independently of the engine's code.
    fn encode(&self, first: usize, until: usize, absolute: bool) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut from = first;
        if absolute {
            bytes.push(self.change_count(first) as u8);
            put_token(&mut bytes, 0, &vec![0; self.width], &self.inputs[first]);
            from += 1;
        }
        let mut skip = 0;
        for at in from..until {
            let before = self.input_before(at);
            if before == self.inputs[at] {
                skip += 1;
            } else {
                put_token(&mut bytes, skip, &before, &self.inputs[at]);
                skip = 0;
            }
        }
        bytes
    }
}

fn put_varint(bytes: &mut Vec<u8>, mut value: u32) {
    while value > 0x7f {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

/// Encodes a change from `old` to `new` after `skip` unchanged frames.
fn put_token(bytes: &mut Vec<u8>, skip: u32, old: &[u8], new: &[u8]) {
    let changed: Vec<bool> = old.iter().zip(new).map(|(old, new)| old != new).collect();
    let masks: Vec<u32> = changed.chunks(8).map(bits).collect();
    match new.len() {
        0..=4 => put_varint(bytes, skip << new.len() | masks.first().unwrap_or(&0)),
        5..=8 => {
            put_varint(bytes, skip);
            bytes.push(masks[0] as u8);
        }
        _ => {
            let groups: Vec<bool> = masks.iter().map(|mask| *mask != 0).collect();
            put_varint(bytes, skip);
            put_varint(bytes, bits(&groups));
            bytes.extend(masks.iter().filter(|mask| **mask != 0).map(|mask| *mask as u8));
        }
    }
    bytes.extend(new.iter().zip(changed).filter(|(_, changed)| *changed).map(|(new, _)| *new));
}

fn bits(flags: &[bool]) -> u32 {
    flags.iter().rev().fold(0, |bits, flag| bits << 1 | u32::from(*flag))
}

/// A stream that must never hold anything but the true inputs.
struct Receiver<'a> {
    expected: &'a TestInputs,
    stream: Stream,
}

impl<'a> Receiver<'a> {
    fn new(expected: &'a TestInputs) -> Self {
        Self { expected, stream: Stream::new(expected.width, START) }
    }

    /// Returns the number of inputs received without a gap.
    fn received_count(&self) -> usize {
        (self.stream.end() - START) as usize
    }

    fn receive(&mut self, first: usize, until: usize, absolute: bool) {
        if first >= until {
            return;
        }
        let bytes = self.expected.encode(first, until, absolute);
        let before = (self.stream.end(), self.stream.received_end());
        let taken = self.stream.receive(START + first as u32, (until - first) as u32, absolute, &bytes);
        let after = (self.stream.end(), self.stream.received_end());
        match taken {
            Ok(()) => assert!(after.0 >= before.0 && after.1 >= before.1, "{before:?} became {after:?}"),
            Err(_) => assert_eq!(before, after, "rejected inputs change nothing"),
        }
        if taken.is_ok() && first <= self.received_count() {
            assert!(self.received_count() >= until, "{first}..{until} was received");
        }
        assert!(after.0 <= after.1 && after.1 - after.0 <= STREAM_CAPACITY as i64 / 2, "{after:?}");
        self.check();
    }

    fn check(&self) {
        for (frame, input) in (0..).map(|at| START + at).zip(&self.expected.inputs) {
            if let Some(known) = self.stream.value(frame) {
                assert_eq!(known, input, "frame {frame}, gapless before {}", self.stream.end());
            }
        }
    }
}
