//! What holds for any packet, any inputs in any order, and any ownership.
//!
//! The cases are the same in every run. For others, or more: `PROPTEST_RNG_SEED=7 PROPTEST_CASES=100000 cargo test -p coplay
//! --test properties`.

use coplay::frame::{Frame, FrameRate};
use coplay::id::{MAX_SITES, SiteId, SiteSet};
use coplay::input::{CAPACITY, MAX_PLAYERS, Ownership, Stream, Word};
use coplay::session::{Absent, GameId, MAX_OPTIONS, MachineId, Settings, Starvation};
use coplay::wire::{
    Answers, Condition, Decision, Digest, Ends, Extra, Extras, Hello, Hold, Identity, MAX_RANGES, Message, Order,
    Probe, Ranges, Refusal, Relay, Tick, Vote, What,
};
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
    fn a_tick_comes_back(parts in parts(), answers in vec(answer(), 0..4), extras in vec(extra(), 0..6)) {
        let carrier = carrier(&answers, &extras);
        let (told_extras, told_answers) = carried(&carrier);
        prop_assert_eq!(told_extras.iter().collect::<Vec<_>>(), extras.iter().map(Told::extra).collect::<Vec<_>>());
        let tick = parts.tick(told_extras, told_answers);
        let told = tick.answers.iter().map(|answer| (answer.end_minus_first, answer.len, answer.changes.to_vec()));
        prop_assert_eq!(told.collect::<Vec<_>>(), answers);
        let mut buf = [0; 4_096];
        let len = tick.encode(&mut buf).expect("room for a tick");
        prop_assert_eq!(Message::decode(&buf[..len]), Ok(Message::Tick(tick)));
    }

    #[test]
    fn a_hello_comes_back(hello in hello()) {
        let mut buf = [0; 8_192];
        let len = hello.encode(&mut buf).expect("room for a hello");
        prop_assert_eq!(Message::decode(&buf[..len]), Ok(Message::Hello(Box::new(hello))));
        for short in 0..len {
            prop_assert!(Message::decode(&buf[..short]).is_err());
        }
    }

    #[test]
    fn inputs_arrive_whatever_the_order(
        truth in truth(),
        deliveries in vec((any::<prop::sample::Index>(), 1..80usize, any::<bool>()), 0..60),
        resend in vec((1..200usize, any::<bool>()), 1..8),
    ) {
        let mut receiver = Receiver::new(&truth);
        for (first, len, absolute) in deliveries {
            let first = first.index(truth.inputs.len());
            receiver.hear(first, truth.inputs.len().min(first + len), absolute);
        }
        for (len, absolute) in resend.into_iter().cycle() {
            let first = receiver.heard();
            if first == truth.inputs.len() {
                break;
            }
            receiver.hear(first, truth.inputs.len().min(first + len), absolute);
            prop_assert!(receiver.heard() > first, "a resend from where the gap begins is of use");
        }
        prop_assert_eq!(receiver.stream.end(), receiver.stream.top());
    }

    #[test]
    fn exactly_the_owned_bits_travel(ownership in ownership(MAX_SITES), words in vec(any::<Word>(), MAX_PLAYERS)) {
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

/// The changes in a gap are counted modulo 256: the longest gap must not make them look like none.
#[test]
fn a_gap_full_of_changes_is_not_taken_for_one_without() {
    let inputs = (0..700usize).map(|frame| vec![frame as u8 ^ (frame >> 8) as u8]).collect();
    let truth = Truth { width: 1, inputs };
    for known in [1, 44, 300] {
        for first in known + 200..known + 300 {
            let mut receiver = Receiver::new(&truth);
            receiver.hear(0, known.min(200), false);
            receiver.hear(known.min(200), known, false);
            receiver.hear(first, first + 1, true);
            assert_eq!(receiver.heard(), known, "nothing is known between {known} and {first}");
        }
    }
}

// ---- Packets.

/// A tick without its extras and answers, which cannot be had but from bytes.
#[derive(Clone, Debug)]
struct Parts {
    end: u16,
    end_minus_ack: i32,
    identity: Option<Identity>,
    probe: Option<Probe>,
    digest: Option<Digest>,
    request: Ranges,
    len: u32,
    absolute: bool,
    changes: Vec<u8>,
}

impl Parts {
    fn tick<'a>(&'a self, extras: Extras<'a>, answers: Answers<'a>) -> Tick<'a> {
        Tick {
            end: self.end,
            end_minus_ack: self.end_minus_ack,
            identity: self.identity,
            probe: self.probe,
            digest: self.digest,
            request: self.request,
            extras,
            answers,
            len: self.len,
            absolute: self.absolute,
            changes: &self.changes,
        }
    }
}

fn parts() -> impl Strategy<Value = Parts> {
    let identity = (any::<u64>(), any::<u8>()).prop_map(|(session, site)| Identity { session, site });
    let digest = any::<(u16, u32, u64)>().prop_map(|(frame, hash, inputs)| Digest { frame, hash, inputs });
    (
        (any::<u16>(), any::<i32>()),
        (option::of(identity), option::of(probe()), option::of(digest)),
        vec((any::<u16>(), 1..=u16::MAX), 0..=MAX_RANGES),
        (any::<u32>(), any::<bool>(), vec(any::<u8>(), 0..300)),
    )
        .prop_map(|((end, end_minus_ack), (identity, probe, digest), ranges, (len, absolute, changes))| {
            let mut request = Ranges::default();
            for (held, missing) in ranges {
                assert!(request.push(held.into(), missing.into()));
            }
            Parts { end, end_minus_ack, identity, probe, digest, request, len, absolute, changes }
        })
}

/// A probe whose times are whole multiples of the units in which they travel.
fn probe() -> impl Strategy<Value = Probe> {
    let echo = (any::<u32>(), 0..u32::MAX).prop_map(|(stamp, units)| (stamp, i64::from(units) * 16_000));
    let late = (-7_999..=7_999i64).prop_map(|units| units * 31_250);
    (0..1u64 << 40, option::of(echo), any::<i32>(), option::of(late))
        .prop_map(|(stamp_us, echo, end_minus_frame, late_ns)| Probe { stamp_us, echo, end_minus_frame, late_ns })
}

/// First frame (told from the end), length, changes.
fn answer() -> impl Strategy<Value = (u32, u32, Vec<u8>)> {
    (1..=u32::MAX, any::<prop::sample::Index>(), vec(any::<u8>(), 0..200))
        .prop_map(|(back, len, changes)| (back, 1 + len.index(back as usize) as u32, changes))
}

/// The bytes of a tick that has nothing but these answers and extras.
fn carrier(answers: &[(u32, u32, Vec<u8>)], extras: &[Told]) -> Vec<u8> {
    let mut block = Vec::new();
    for (back, len, changes) in answers {
        put_varint(&mut block, *back);
        put_varint(&mut block, *len);
        block.extend((changes.len() as u16).to_le_bytes());
        block.extend(changes);
    }
    let flag = |block: &[u8], flag: u8| if block.is_empty() { 0 } else { flag };
    let told: Vec<u8> = extras.iter().flat_map(Told::encode).collect();
    let mut bytes = vec![0x80 | flag(&told, 0x04) | flag(&block, 0x02), 0, 0, 0];
    for block in [told, block].into_iter().filter(|block| !block.is_empty()) {
        bytes.extend((block.len() as u16).to_le_bytes());
        bytes.extend(block);
    }
    bytes.push(0);
    bytes
}

fn carried(carrier: &[u8]) -> (Extras<'_>, Answers<'_>) {
    match Message::decode(carrier) {
        Ok(Message::Tick(tick)) => (tick.extras, tick.answers),
        other => panic!("not a tick: {other:?}"),
    }
}

/// An extra that borrows nothing.
#[derive(Clone, Debug)]
enum Told {
    Short(Extra<'static>),
    Relay(SiteId, Frame, u32, Vec<u8>),
}

impl Told {
    fn extra(&self) -> Extra<'_> {
        match self {
            Self::Short(extra) => *extra,
            Self::Relay(site, first, len, changes) => {
                Extra::Relay(Relay { site: *site, first: *first, len: *len, changes })
            }
        }
    }

    fn encode(&self) -> Vec<u8> {
        let mut buf = [0; 512];
        let len = self.extra().encode(&mut buf).expect("room for an extra");
        buf[..len].to_vec()
    }
}

fn extra() -> impl Strategy<Value = Told> {
    let short = prop_oneof![
        frame().prop_map(Extra::Leave),
        order().prop_map(Extra::Order),
        vote().prop_map(Extra::Vote),
        (any::<u32>(), decision(), any::<u32>()).prop_map(|(view, how, since)| Extra::Decided(view, how, since)),
        (site(), frame()).prop_map(|(site, frame)| Extra::Want(site, frame)),
        (site(), frame()).prop_map(|(site, frame)| Extra::Left(site, frame)),
        any::<(u32, u32)>().prop_map(|(need, window)| Extra::Condition(Condition { need, window })),
        (site(), frame(), any::<i64>()).prop_map(|(by, frame, until_ns)| Extra::Hold(Hold { by, frame, until_ns })),
    ];
    let relay = (site(), frame(), 1..=u32::MAX, vec(any::<u8>(), 0..300));
    prop_oneof![
        6 => short.prop_map(Told::Short),
        1 => relay.prop_map(|(site, first, len, changes)| Told::Relay(site, first, len, changes)),
    ]
}

fn vote() -> impl Strategy<Value = Vote> {
    (any::<(u32, u32, u8, u8)>(), ends(), option::of(order()), option::of((any::<u32>(), decision()))).prop_map(
        |((view, ballot, left, unwanted), (drop, ends), order, accepted)| {
            let (left, unwanted) = (SiteSet::from_bits(left), SiteSet::from_bits(unwanted));
            Vote { view, ballot, drop, ends, left, unwanted, order, accepted }
        },
    )
}

fn decision() -> impl Strategy<Value = Decision> {
    (ends(), any::<u8>(), option::of(order())).prop_map(|((drop, lasts), left, order)| {
        let left = SiteSet::from_bits(left);
        Decision { drop, lasts, left, order }
    })
}

/// Some sites, and a frame for each of them.
fn ends() -> impl Strategy<Value = (SiteSet, Ends)> {
    (any::<u8>(), vec(frame(), MAX_SITES)).prop_map(|(bits, frames)| {
        let sites = SiteSet::from_bits(bits);
        let mut ends = [Frame::ZERO; MAX_SITES];
        sites.iter().for_each(|site| ends[site.index()] = frames[site.index()]);
        (sites, ends)
    })
}

fn order() -> impl Strategy<Value = Order> {
    let dials = (any::<(u32, u32, u32)>(), site()).prop_map(|((lag, window, need), site)| What::Dials {
        lag,
        window,
        need,
        site,
    });
    let join =
        (site(), any::<u8>(), any::<[u32; 4]>()).prop_map(|(site, members, [incarnation, view, lag, window])| {
            What::Join { site, incarnation, members: SiteSet::from_bits(members), view, lag, window }
        });
    let what = prop_oneof![join, dials];
    (site(), frame(), what).prop_map(|(by, frame, what)| Order { by, frame, what })
}

fn frame() -> impl Strategy<Value = Frame> {
    (0..u32::MAX / 2).prop_map(Frame::new)
}

fn site() -> impl Strategy<Value = SiteId> {
    (0..MAX_SITES as u8).prop_map(|number| SiteId::new(number).expect("a site's number"))
}

fn hello() -> impl Strategy<Value = Hello> {
    let who = (any::<u64>(), site(), any::<(u32, u32)>(), any::<u8>());
    let alone = any::<u32>().prop_map(|number| Some(Refusal::Alone { frame: Frame::new(number) }));
    let refusal = prop_oneof![Just(None), Just(Some(Refusal::Running)), Just(Some(Refusal::Dropped)), alone];
    let flags = (any::<bool>(), option::of(any::<bool>()), refusal);
    let times = (any::<u64>(), option::of(any::<(u64, u32)>()), option::of(any::<i64>()));
    (who, flags, times, settings()).prop_map(
        |((session, site, (incarnation, yours), agreed), (leaving, joining, refusal), times, settings)| {
            let (stamp_us, echo, start_ns) = times;
            let agreed = SiteSet::from_bits(agreed);
            Hello {
                session,
                site,
                incarnation,
                yours,
                agreed,
                leaving,
                joining,
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
    let machine = (text(), text(), vec((text(), text()), 0..=MAX_OPTIONS), any::<u64>())
        .prop_map(|(name, version, options, first_frames)| MachineId { name, version, options, first_frames });
    let numbers = (rate(), any::<(u32, u32, u32)>(), any::<bool>(), any::<(bool, bool)>());
    let seats = (0..=MAX_SITES).prop_flat_map(|sites| (Just(sites as u8), any::<u8>(), ownership(sites)));
    (game, machine, numbers, seats).prop_map(
        |(game, machine, (rate, (lag, window, compare_every), auto, (repeat, pause)), (sites, starters, ownership))| {
            Settings {
                game,
                machine,
                rate,
                lag,
                window,
                auto,
                absent: if repeat { Absent::Repeat } else { Absent::Nothing },
                starvation: if pause { Starvation::Pause } else { Starvation::Wait },
                compare_every,
                sites,
                starters: SiteSet::from_bits(starters),
                ownership,
            }
        },
    )
}

/// Between 1 and 1,000 frames per second.
fn rate() -> impl Strategy<Value = FrameRate> {
    (1..=4_000_000u32, 1_000..=1_000_000u64).prop_map(|(seconds, thousandths)| {
        let frames = u64::from(seconds) * thousandths / 1_000;
        FrameRate::new(frames as u32, seconds).expect("a frame rate")
    })
}

/// Disjoint sets of bits for the first so many sites: where two claim a bit, the lower one gets it.
fn ownership(sites: usize) -> impl Strategy<Value = Ownership> {
    let sparse = (any::<Word>(), any::<Word>()).prop_map(|(one, other)| one & other);
    let mask = prop_oneof![Just(0), Just(Word::MAX), (0..128u32).prop_map(|bit| 1 << bit), sparse];
    vec(vec(mask, sites), 1..=MAX_PLAYERS).prop_map(|claims| {
        let mut ownership = Ownership::new(claims.len());
        for (player, claims) in claims.into_iter().enumerate() {
            let mut taken = 0;
            for (site, claim) in SiteId::first(MAX_SITES).zip(claims) {
                ownership.give(site, player, claim & !taken).expect("bits that nobody owns");
                taken |= claim;
            }
        }
        ownership
    })
}

// ---- Inputs.

const START: Frame = Frame::new(5);

/// What really was pressed, frame by frame.
#[derive(Clone, Debug)]
struct Truth {
    width: usize,
    inputs: Vec<Vec<u8>>,
}

/// Stretches of equal inputs, of any width; now and then very short ones.
fn truth() -> impl Strategy<Value = Truth> {
    let width = prop_oneof![Just(0usize), 1..=4usize, 5..=8usize, 9..=24usize, Just(128usize)];
    let longest = prop_oneof![Just(1usize), Just(4), Just(40)];
    (width, longest).prop_flat_map(|(width, longest)| {
        // Few different bytes, so that an input often comes back to what it was.
        vec((vec(0..3u8, width), 1..=longest), 1..40).prop_map(move |runs| {
            let inputs = runs.into_iter().flat_map(|(input, frames)| std::iter::repeat_n(input, frames));
            Truth { width, inputs: inputs.collect() }
        })
    })
}

impl Truth {
    fn before(&self, at: usize) -> Vec<u8> {
        at.checked_sub(1).map_or(vec![0; self.width], |before| self.inputs[before].clone())
    }

    /// How many times the input has changed up to the one at `at`.
    fn changes(&self, at: usize) -> usize {
        (0..=at).filter(|at| self.inputs[*at] != self.before(*at)).count()
    }

    /// The bytes of the inputs of `first..until`, written as the protocol says, by other means than the engine's.
    fn encode(&self, first: usize, until: usize, absolute: bool) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut from = first;
        if absolute {
            bytes.push(self.changes(first) as u8);
            put_token(&mut bytes, 0, &vec![0; self.width], &self.inputs[first]);
            from += 1;
        }
        let mut skip = 0;
        for at in from..until {
            let before = self.before(at);
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

/// After `skip` unchanged frames, `old` turns into `new`.
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

/// A stream that must never know anything but the truth.
struct Receiver<'a> {
    truth: &'a Truth,
    stream: Stream,
}

impl<'a> Receiver<'a> {
    fn new(truth: &'a Truth) -> Self {
        Self { truth, stream: Stream::new(truth.width, START) }
    }

    /// How many inputs are here without a gap.
    fn heard(&self) -> usize {
        (self.stream.end() - START) as usize
    }

    fn hear(&mut self, first: usize, until: usize, absolute: bool) {
        if first >= until {
            return;
        }
        let bytes = self.truth.encode(first, until, absolute);
        let before = (self.stream.end(), self.stream.top());
        let taken = self.stream.receive(START + first as u32, (until - first) as u32, absolute, &bytes);
        let after = (self.stream.end(), self.stream.top());
        match taken {
            Ok(()) => assert!(after.0 >= before.0 && after.1 >= before.1, "{before:?} became {after:?}"),
            Err(_) => assert_eq!(before, after, "what is not taken changes nothing"),
        }
        if taken.is_ok() && first <= self.heard() {
            assert!(self.heard() >= until, "{first}..{until} is here");
        }
        assert!(after.0 <= after.1 && after.1 - after.0 <= CAPACITY as i64 / 2, "{after:?}");
        self.check();
    }

    fn check(&self) {
        for (frame, input) in (0..).map(|at| START + at).zip(&self.truth.inputs) {
            if let Some(known) = self.stream.value(frame) {
                assert_eq!(known, input, "frame {frame}, of which all before {} are here", self.stream.end());
            }
        }
    }
}
