//! Golden bytes of the session protocol, written by hand. A change to any of them changes the protocol and needs a new
//! protocol version.

use coplay::codec::{DecodeError, MAX_DATAGRAM, VERSION};
use coplay::frame::{Frame, FrameRate};
use coplay::id::{MAX_SITES, SiteId, SiteSet};
use coplay::input::MissingRanges;
use coplay::input::{Ownership, Stream};
use coplay::session::message::{
    ClockProbe, CommandKind, Extra, Extras, Hello, MembershipDecision, PauseRequest, Refusal, RelayedInputs,
    ResentInputs, ResentInputsList, ScheduledCommand, SenderIdentity, SessionMessage, Tick, TickDigest, TuningStats,
    Vote,
};
use coplay::session::{AbsentInput, GameId, MachineId, Settings, StarvationPolicy};

/// A datagram, field by field, in hexadecimal.
type Golden = &'static [&'static str];

const PLAIN: Golden = &[
    "80",   // flags: a tick with nothing but inputs
    "3412", // end: 0x1234
    "10",   // end - ack: 8
    "03",   // len: 3 frames
    "01ff", // changes: at once, the first byte of two, to 0xff
];

const EVERYTHING: Golden = &[
    "fc",               // flags: tick, identity, probe, digest, request, extras
    "e803",             // end: 1000
    "01",               // end - ack: -1
    "efcdab8967452301", // identity: session
    "02",               // identity: site
    "5544332211",       // probe: stamp, 40 bits of microseconds
    "c901",             // probe: 1 + the hold time of the echoed stamp, 200 times 16 microseconds
    "efbeadde",         // probe: the echoed stamp, 32 bits of microseconds
    "0c",               // probe: end - frame: 6
    "03",               // probe: lateness of -2 times 31.25 microseconds
    "c003",             // digest: frame 960
    "bebafeca",         // digest: hash
    "f0debc9a78563412", // digest: hash of all inputs of the sender
    "02",               // request: two ranges
    "0002",             // request: 0 frames held, 2 missing
    "05ac02",           // request: 5 frames held, 300 missing
    "0300",             // extras: 3 bytes
    "01f207",           // leave: before frame 1010
    "00",               // len: no inputs
];

const RESENT: Golden = &[
    "a2",         // flags: tick, probe, resends
    "2c01",       // end: 300
    "00",         // end - ack: 0
    "0100000000", // probe: stamp
    "00",         // probe: no echo
    "00",         // probe: end - frame: 0
    "807d",       // probe: lateness of 250 ms, which stands for none
    "0f00",       // resends: 15 bytes
    "28",         // resend: from frame end - 40 on
    "02",         // resend: 2 frames
    "0300",       // resend: 3 bytes
    "070105",     // resend: changes
    "c801",       // resend: from frame end - 200 on
    "8001",       // resend: 128 frames
    "0200",       // resend: 2 bytes
    "0900",       // resend: changes
    "01",         // len: 1 frame
    "027f",       // changes
];

const ABSOLUTE: Golden = &[
    "81",     // flags: a tick with an absolute start of the inputs
    "0700",   // end: 7
    "d804",   // end - ack: 300
    "03",     // len: 3 frames
    "2a",     // changes: the 42nd change so far
    "031122", // changes: at once, both bytes of two, to 0x11 and 0x22
    "0633",   // changes: after one unchanged frame, the second byte, to 0x33
];

/// At least one entry of each type. [`Extras`] can only be created from bytes; [`extras`] returns the expected entries.
const EXTRAS: Golden = &[
    "84",               // flags: tick, extras
    "6400",             // end: 100
    "00",               // end - ack: 0
    "7900",             // extras: 121 bytes
    "01",               // leave
    "ac02",             // leave: before frame 300
    "02",               // command
    "00",               // command: issued by site 0
    "9003",             // command: at frame 400
    "00",               // command: join
    "03",               // command: site 3
    "07",               // command: sites 0, 1 and 2 play already
    "05",               // command: incarnation 5 of its program
    "8001",             // command: epoch 128
    "02",               // command: input delay 2
    "0a",               // command: prediction window 10
    "02",               // command
    "01",               // command: issued by site 1
    "05",               // command: at frame 5
    "01",               // command: set delay
    "06",               // command: input delay 6
    "0c",               // command: prediction window 12
    "11",               // command: input age of 17 frames
    "02",               // command: input age reported by site 2
    "03",               // vote
    "02",               // vote: on ending epoch 2
    "09",               // vote: ballot 9, the first that site 1 leads
    "05",               // vote: drops sites 0 and 2
    "c801",             // vote: inputs of site 0 before frame 200
    "6e",               // vote: inputs of site 2 before frame 110
    "01",               // vote: site 0 left voluntarily
    "04",               // vote: the sender wants to evict site 2
    "01",               // vote: a command that may be in force
    "00",               // command: issued by site 0
    "9601",             // command: at frame 150
    "00",               // command: join
    "07",               // command: site 7
    "07",               // command: sites 0, 1 and 2 play already
    "05",               // command: incarnation 5 of its program
    "8001",             // command: epoch 128
    "02",               // command: input delay 2
    "0a",               // command: prediction window 10
    "01",               // vote: a decision was accepted
    "08",               // vote: in ballot 8, the first that site 0 leads
    "04",               // decision: site 2 is dropped
    "70",               // decision: the first frame without site 2 is 112
    "00",               // decision: site 2 did not leave voluntarily
    "00",               // decision: no command
    "03",               // vote
    "00",               // vote: on ending epoch 0
    "12",               // vote: ballot 18
    "00",               // vote: drops no site
    "00",               // vote: no site left voluntarily
    "00",               // vote: no site is to be evicted
    "00",               // vote: no command
    "00",               // vote: no decision was accepted
    "04",               // decision report
    "ffffffff0f",       // decision report: the highest epoch
    "80",               // decision: site 7 is dropped
    "feffffff07",       // decision: at the highest frame number
    "80",               // decision: site 7 had left voluntarily
    "01",               // decision: a command stays in force
    "07",               // command: issued by site 7
    "00",               // command: at frame 0
    "01",               // command: set delay
    "00",               // command: input delay 0
    "00",               // command: prediction window 0
    "11",               // command: input age of 17 frames
    "02",               // command: input age reported by site 2
    "00",               // decision report: no later epoch ended
    "04",               // decision report
    "00",               // decision report: epoch 0
    "00",               // decision: no site is dropped
    "00",               // decision: no site had left voluntarily
    "00",               // decision: no command
    "ac02",             // decision report: 300 later epochs ended without dropping a site
    "05",               // relay request
    "02",               // relay request: of site 2
    "6e",               // relay request: from frame 110 on
    "06",               // relay
    "02",               // relay: of site 2
    "8001",             // relay: from frame 128 on
    "04",               // relay: 4 frames
    "0400",             // relay: 4 bytes
    "050311ff",         // relay: changes, the 5th so far, both bytes of two
    "07",               // tuning stats
    "ac02",             // tuning stats: input age of 300 frames
    "08",               // tuning stats: 8 frames can be resimulated in time
    "08",               // leave report
    "02",               // leave report: site 2
    "70",               // leave report: before frame 112
    "09",               // pause
    "01",               // pause: requested by site 1
    "81ce01",           // pause: before frame 26,369
    "00ca9a3b00000000", // pause: until 1 s of group time
    "00",               // len: no inputs
];

const HELLO: Golden = &[
    "04",               // version
    "efcdab8967452301", // session
    "01",               // site
    "04030201",         // incarnation
    "05000000",         // the receiver's incarnation
    "03",               // agreed: sites 0 and 1
    "06",               // flags: echo, start
    "40420f0000000000", // stamp: 1,000,000 microseconds
    "583e0f0000000000", // echo: stamp 999,000
    "90d00300",         // echo: held for 250,000 nanoseconds
    "fbffffffffffffff", // start: -5 nanoseconds of group time
    "04706f6e67",       // game: "pong"
    "0001020304050607", // game: hash
    "08090a0b0c0d0e0f",
    "1011121314151617",
    "18191a1b1c1d1e1f",
    "03746f79",         // machine: "toy"
    "0131",             // machine: version "1"
    "01",               // machine: one option
    "0462696f73",       // machine: "bios"
    "03686c65",         // machine: "hle"
    "8877665544332211", // machine: hash of its first frames
    "98a1e312",         // rate: 39,375,000 frames
    "c3fe27",           // rate: in 655,171 seconds
    "06",               // input delay: 6 frames
    "00",               // prediction window: 0 frames
    "07",               // flags: delay settings are tuned, absent inputs repeat, all sites pause on starvation
    "3c",               // hashes are compared every 60 frames
    "02",               // sites
    "03",               // starting sites: sites 0 and 1
    "02",               // players
    "ffff03",           // site 0 owns 16 bits of player 0
    "00",               // and nothing of player 1
    "00",               // site 1 owns nothing of player 0
    "808004",           // and bit 16 of player 1
];

const REFUSAL: Golden = &[
    "04",               // version
    "0000000000000000", // session
    "00",               // site
    "00000000",         // incarnation
    "00000000",         // the receiver's incarnation: unknown
    "00",               // agreed: no site
    "09",               // flags: leaving, refused because the game runs
    "ffffffffffffffff", // stamp
    "00",               // game: no name
    "0000000000000000", // game: hash
    "0000000000000000",
    "0000000000000000",
    "0000000000000000",
    "00",               // machine: no name
    "00",               // machine: no version
    "00",               // machine: no options
    "0000000000000000", // machine: hash of its first frames
    "01",               // rate: 1 frame
    "01",               // rate: in 1 second
    "00",               // input delay
    "00",               // prediction window
    "00",               // flags: none
    "00",               // hashes are not compared
    "02",               // sites
    "02",               // starting sites: site 1
    "01",               // players
    "00",               // site 0 owns nothing
    "00",               // site 1 owns nothing
];

/// Offset in bytes of the flags in [`REFUSAL`].
const REFUSAL_FLAGS_AT: usize = 19;

fn bytes(golden: Golden) -> Vec<u8> {
    let digits: Vec<u8> = golden.iter().flat_map(|field| field.bytes()).collect();
    assert!(digits.len().is_multiple_of(2));
    let text = |pair| std::str::from_utf8(pair).expect("hexadecimal is ASCII");
    digits.chunks(2).map(|pair| u8::from_str_radix(text(pair), 16).expect("two hexadecimal digits")).collect()
}

fn plain_tick() -> Tick<'static> {
    Tick {
        end: 0x1234,
        end_minus_ack: 8,
        identity: None,
        probe: None,
        digest: None,
        missing: MissingRanges::default(),
        extras: Extras::default(),
        resends: ResentInputsList::default(),
        frame_count: 3,
        is_absolute: false,
        changes: &[0x01, 0xff],
    }
}

fn full_tick(extras: Extras<'_>) -> Tick<'_> {
    let mut request = MissingRanges::default();
    assert!(request.push(0, 2) && request.push(5, 300));
    Tick {
        end: 1_000,
        end_minus_ack: -1,
        identity: Some(SenderIdentity { session_id: 0x0123_4567_89ab_cdef, site: 2 }),
        probe: Some(ClockProbe {
            stamp_us: 0x11_2233_4455,
            echo: Some((0xdead_beef, 3_200_000)),
            end_minus_frame: 6,
            lateness_ns: Some(-62_500),
        }),
        digest: Some(TickDigest { frame: 960, state_hash: 0xcafe_babe, input_digest: 0x1234_5678_9abc_def0 }),
        missing: request,
        extras,
        frame_count: 0,
        changes: &[],
        ..plain_tick()
    }
}

fn tick_with_resends(resends: ResentInputsList<'_>) -> Tick<'_> {
    let probe = ClockProbe { stamp_us: 1, echo: None, end_minus_frame: 0, lateness_ns: None };
    Tick {
        end: 300,
        end_minus_ack: 0,
        probe: Some(probe),
        resends,
        frame_count: 1,
        changes: &[0x02, 0x7f],
        ..plain_tick()
    }
}

fn absolute_tick() -> Tick<'static> {
    let changes = &[0x2a, 0x03, 0x11, 0x22, 0x06, 0x33];
    Tick { end: 7, end_minus_ack: 300, frame_count: 3, is_absolute: true, changes, ..plain_tick() }
}

fn site(number: u8) -> SiteId {
    SiteId::new(number).expect("valid site number")
}

fn input_ends<const N: usize>(ends_by_site: [(usize, u32); N]) -> [Frame; MAX_SITES] {
    let mut ends = [Frame::ZERO; MAX_SITES];
    ends_by_site.into_iter().for_each(|(site, frame)| ends[site] = Frame::new(frame));
    ends
}

fn sites<const N: usize>(numbers: [u8; N]) -> SiteSet {
    numbers.into_iter().map(site).collect()
}

fn join_command(issuer: u8, frame: u32, joiner: u8) -> ScheduledCommand {
    let kind = CommandKind::Join {
        site: site(joiner),
        incarnation: 5,
        members: sites([0, 1, 2]),
        epoch: 128,
        input_delay: 2,
        prediction_window: 10,
    };
    ScheduledCommand { issuer: site(issuer), frame: Frame::new(frame), kind }
}

fn set_delay_command(issuer: u8, frame: u32, input_delay: u32, prediction_window: u32) -> ScheduledCommand {
    ScheduledCommand {
        issuer: site(issuer),
        frame: Frame::new(frame),
        kind: CommandKind::SetDelay { input_delay, prediction_window, input_age: 17, site: site(2) },
    }
}

fn extras() -> [Extra<'static>; 12] {
    let dropped = MembershipDecision {
        drop: sites([2]),
        input_ends: input_ends([(2, 112)]),
        left_sites: SiteSet::EMPTY,
        command: None,
    };
    let vote = Vote {
        epoch: 2,
        ballot: 9,
        drop: sites([0, 2]),
        input_ends: input_ends([(0, 200), (2, 110)]),
        left_sites: sites([0]),
        to_evict: sites([2]),
        command: Some(join_command(0, 150, 7)),
        accepted: Some((8, dropped)),
    };
    let empty = SiteSet::EMPTY;
    let none = Vote {
        epoch: 0,
        ballot: 18,
        drop: empty,
        input_ends: input_ends([]),
        left_sites: empty,
        to_evict: empty,
        command: None,
        accepted: None,
    };
    let last = u32::MAX / 2 - 1;
    let decision = MembershipDecision {
        drop: sites([7]),
        input_ends: input_ends([(7, last)]),
        left_sites: sites([7]),
        command: Some(set_delay_command(7, 0, 0, 0)),
    };
    let drops_none = MembershipDecision { drop: empty, input_ends: input_ends([]), left_sites: empty, command: None };
    let changes = &[0x05, 0x03, 0x11, 0xff];
    [
        Extra::Leave(Frame::new(300)),
        Extra::Command(join_command(0, 400, 3)),
        Extra::Command(set_delay_command(1, 5, 6, 12)),
        Extra::Vote(vote),
        Extra::Vote(none),
        Extra::DecisionReport(u32::MAX, decision, 0),
        Extra::DecisionReport(0, drops_none, 300),
        Extra::RelayRequest(site(2), Frame::new(110)),
        Extra::Relay(RelayedInputs { site: site(2), first_frame: Frame::new(128), frame_count: 4, changes }),
        Extra::TuningStats(TuningStats { input_age: 300, max_prediction_window: 8 }),
        Extra::LeaveReport(site(2), Frame::new(112)),
        Extra::Pause(PauseRequest { requested_by: site(1), frame: Frame::new(26_369), until_ns: 1_000_000_000 }),
    ]
}

fn hello() -> Hello {
    let mut ownership = Ownership::new(2);
    ownership.assign(site(0), 0, 0xffff).expect("unowned bits");
    ownership.assign(site(1), 1, 0x1_0000).expect("unowned bits");
    Hello {
        session_id: 0x0123_4567_89ab_cdef,
        site: site(1),
        incarnation: 0x0102_0304,
        your_incarnation: 5,
        agreed_sites: SiteSet::first(2),
        is_leaving: false,
        join_readiness: None,
        refusal: None,
        stamp_us: 1_000_000,
        echo: Some((999_000, 250_000)),
        start_ns: Some(-5),
        settings: Settings {
            game: GameId { name: "pong".into(), hash: std::array::from_fn(|at| at as u8) },
            machine: MachineId {
                name: "toy".into(),
                version: "1".into(),
                options: vec![("bios".into(), "hle".into())],
                first_frames_hash: 0x1122_3344_5566_7788,
            },
            rate: FrameRate::new(39_375_000, 655_171).expect("valid frame rate"),
            input_delay: 6,
            prediction_window: 0,
            auto_tune: true,
            absent_input: AbsentInput::Repeat,
            starvation_policy: StarvationPolicy::Pause,
            compare_interval: 60,
            site_count: 2,
            starting_sites: SiteSet::first(2),
            ownership,
        },
    }
}

fn refusal() -> Hello {
    Hello {
        session_id: 0,
        site: site(0),
        incarnation: 0,
        your_incarnation: 0,
        agreed_sites: SiteSet::EMPTY,
        is_leaving: true,
        join_readiness: None,
        refusal: Some(Refusal::AlreadyRunning),
        stamp_us: u64::MAX,
        echo: None,
        start_ns: None,
        settings: Settings {
            game: GameId { name: String::new(), hash: [0; 32] },
            machine: MachineId {
                name: String::new(),
                version: String::new(),
                options: Vec::new(),
                first_frames_hash: 0,
            },
            rate: FrameRate::per_second(1).expect("valid frame rate"),
            input_delay: 0,
            prediction_window: 0,
            auto_tune: false,
            absent_input: AbsentInput::Nothing,
            starvation_policy: StarvationPolicy::Wait,
            compare_interval: 0,
            site_count: 2,
            starting_sites: sites([1]),
            ownership: Ownership::new(1),
        },
    }
}

fn check_tick(golden: Golden, tick: &Tick<'_>) {
    let golden = bytes(golden);
    let mut buf = [0; MAX_DATAGRAM];
    let len = tick.encode(&mut buf).expect("tick fits the buffer");
    assert_eq!(buf[..len], golden);
    assert_eq!(SessionMessage::decode(&golden), Ok(SessionMessage::Tick(tick.clone())));
    assert!(tick.encode(&mut buf[..len - 1]).is_err(), "a full buffer is reported");
}

fn check_hello(golden: Golden, hello: &Hello) {
    let golden = bytes(golden);
    let mut buf = [0; MAX_DATAGRAM];
    let len = hello.encode(&mut buf).expect("hello fits the buffer");
    assert_eq!(buf[..len], golden);
    assert_eq!(SessionMessage::decode(&golden), Ok(SessionMessage::Hello(Box::new(hello.clone()))));
    assert!(hello.encode(&mut buf[..len - 1]).is_err(), "a full buffer is reported");
}

#[test]
fn plain_tick_matches_golden_bytes() {
    check_tick(PLAIN, &plain_tick());
}

#[test]
fn tick_with_all_optional_parts_matches_golden_bytes() {
    let golden = bytes(EVERYTHING);
    let Ok(SessionMessage::Tick(tick)) = SessionMessage::decode(&golden) else { panic!("not a tick") };
    assert!(tick.extras.iter().eq([Extra::Leave(Frame::new(1_010))]));
    check_tick(EVERYTHING, &full_tick(tick.extras));
}

#[test]
fn tick_with_every_extra_matches_golden_bytes() {
    let golden = bytes(EXTRAS);
    let Ok(SessionMessage::Tick(tick)) = SessionMessage::decode(&golden) else { panic!("not a tick") };
    assert!(tick.extras.iter().eq(extras()), "{:#?}", tick.extras.iter().collect::<Vec<_>>());
    check_tick(
        EXTRAS,
        &Tick { end: 100, end_minus_ack: 0, extras: tick.extras, frame_count: 0, changes: &[], ..plain_tick() },
    );
    let mut block = Vec::new();
    for extra in extras() {
        let mut buf = [0; MAX_DATAGRAM];
        let len = extra.encode(&mut buf).expect("extra fits the buffer");
        block.extend_from_slice(&buf[..len]);
        assert!(extra.encode(&mut buf[..len - 1]).is_err(), "a full buffer is reported");
    }
    assert_eq!(block, golden[6..golden.len() - 1]);
}

#[test]
fn tick_with_resends_matches_golden_bytes() {
    // Retransmissions can only be created from bytes; these are the expected entries.
    let golden = bytes(RESENT);
    let Ok(SessionMessage::Tick(tick)) = SessionMessage::decode(&golden) else { panic!("not a tick") };
    let expected = [
        ResentInputs { end_minus_first: 40, frame_count: 2, changes: &[7, 1, 5] },
        ResentInputs { end_minus_first: 200, frame_count: 128, changes: &[9, 0] },
    ];
    assert!(tick.resends.iter().eq(expected));
    check_tick(RESENT, &tick_with_resends(tick.resends));
}

#[test]
fn absolute_tick_matches_golden_bytes() {
    check_tick(ABSOLUTE, &absolute_tick());
}

#[test]
fn hellos_match_golden_bytes() {
    check_hello(HELLO, &hello());
    check_hello(REFUSAL, &refusal());
}

#[test]
fn hello_flags_encode_state() {
    let with_flags = |flags: u8| {
        let mut golden = bytes(REFUSAL);
        golden[REFUSAL_FLAGS_AT] = flags;
        golden
    };
    let plain = Hello { is_leaving: false, refusal: None, ..refusal() };
    let known = [
        (0x00, plain.clone()),
        (0x01, Hello { is_leaving: true, ..plain.clone() }),
        (0x08, Hello { refusal: Some(Refusal::AlreadyRunning), ..plain.clone() }),
        (0x10, Hello { refusal: Some(Refusal::Dropped), ..plain.clone() }),
        (0x20, Hello { join_readiness: Some(false), ..plain.clone() }),
        (0x60, Hello { join_readiness: Some(true), ..plain.clone() }),
    ];
    for (flags, hello) in known {
        assert_eq!(Hello::decode(&with_flags(flags)), Ok(hello.clone()), "flags {flags:#04x}");
        let mut buf = [0; MAX_DATAGRAM];
        let len = hello.encode(&mut buf).expect("hello fits the buffer");
        assert_eq!(buf[..len], with_flags(flags), "flags {flags:#04x}");
    }
    let two_reasons = [0x18, 0x88, 0x90].map(|flags| ("two refusal reasons", flags));
    for (case, flags) in [("ready without joining", 0x40)].into_iter().chain(two_reasons) {
        assert_eq!(Hello::decode(&with_flags(flags)), Err(DecodeError::Malformed), "{case}");
    }
}

#[test]
fn continued_alone_refusal_carries_the_frame() {
    let mut golden = bytes(REFUSAL);
    golden[REFUSAL_FLAGS_AT] = 0x81;
    // The frame precedes the settings and follows a stamp of eight bytes.
    let at = REFUSAL_FLAGS_AT + 9;
    golden.splice(at..at, [0x78, 0x56, 0x34, 0x12]);
    let hello = Hello { refusal: Some(Refusal::ContinuedAlone { frame: Frame::new(0x1234_5678) }), ..refusal() };
    assert_eq!(Hello::decode(&golden), Ok(hello.clone()));
    let mut buf = [0; MAX_DATAGRAM];
    let len = hello.encode(&mut buf).expect("hello fits the buffer");
    assert_eq!(buf[..len], golden);
    for len in 0..golden.len() {
        assert_eq!(SessionMessage::decode(&golden[..len]), Err(DecodeError::Truncated), "the first {len} bytes");
    }
}

#[test]
fn truncated_hello_is_rejected() {
    for golden in [HELLO, REFUSAL] {
        let golden = bytes(golden);
        for len in 0..golden.len() {
            assert_eq!(SessionMessage::decode(&golden[..len]), Err(DecodeError::Truncated), "the first {len} bytes");
        }
        let longer = [&golden[..], &[0]].concat();
        assert_eq!(SessionMessage::decode(&longer), Err(DecodeError::Malformed), "a byte too many");
    }
}

#[test]
fn truncated_tick_header_is_rejected() {
    for (golden, changes) in [(PLAIN, 2), (EVERYTHING, 0), (EXTRAS, 0), (RESENT, 2), (ABSOLUTE, 6)] {
        let golden = bytes(golden);
        let whole = golden.len() - changes;
        for len in 0..golden.len() {
            let decoded = SessionMessage::decode(&golden[..len]);
            assert_eq!(decoded.is_ok(), len >= whole, "the first {len} bytes: {decoded:?}");
        }
    }
}

#[test]
fn other_protocol_version_is_reported() {
    let mut other = bytes(HELLO);
    assert_eq!(other[0], VERSION);
    for version in (0..0x80).filter(|version| *version != VERSION) {
        other[0] = version;
        assert_eq!(SessionMessage::decode(&other), Err(DecodeError::Version(version)));
        assert_eq!(SessionMessage::decode(&[version]), Err(DecodeError::Version(version)), "whatever follows");
    }
}

#[test]
fn varints_have_one_encoding() {
    let malformed: [(&str, &[u8]); 17] = [
        ("overlong zero as end - ack", &[0x80, 0, 0, 0x80, 0, 0]),
        ("33 bits as end - ack", &[0x80, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x1f, 0]),
        ("request without ranges", &[0x88, 0, 0, 0, 0, 0]),
        ("request for no frames", &[0x88, 0, 0, 0, 1, 3, 0, 0]),
        ("extras without an entry", &[0x84, 0, 0, 0, 0, 0, 0]),
        ("extra of type 0", &[0x84, 0, 0, 0, 1, 0, 0, 0]),
        ("extra of an unknown type", &[0x84, 0, 0, 0, 1, 0, 10, 0]),
        ("frame number in the reserved range", &[0x84, 0, 0, 0, 6, 0, 1, 0xff, 0xff, 0xff, 0xff, 7, 0]),
        ("invalid site", &[0x84, 0, 0, 0, 3, 0, 5, 8, 0, 0]),
        ("command of an unknown type", &[0x84, 0, 0, 0, 5, 0, 2, 0, 0, 2, 0, 0]),
        ("invalid joiner", &[0x84, 0, 0, 0, 9, 0, 2, 0, 0, 0, 8, 0, 0, 0, 0, 0]),
        ("delay settings with an invalid site", &[0x84, 0, 0, 0, 8, 0, 2, 0, 0, 1, 0, 0, 0, 8, 0]),
        ("invalid presence byte of a command", &[0x84, 0, 0, 0, 5, 0, 4, 0, 0, 0, 2, 0]),
        ("invalid presence byte of a decision", &[0x84, 0, 0, 0, 7, 0, 3, 0, 0, 0, 0, 0, 2, 0]),
        ("relay of no frames", &[0x84, 0, 0, 0, 6, 0, 6, 0, 0, 0, 0, 0, 0]),
        ("resends without an entry", &[0x82, 0, 0, 0, 0, 0, 0]),
        ("resend that ends after the tick", &[0x82, 0, 0, 0, 4, 0, 1, 2, 0, 0, 0]),
    ];
    for (case, bytes) in malformed {
        assert_eq!(SessionMessage::decode(bytes), Err(DecodeError::Malformed), "{case}");
    }
}

/// Asserts that change tokens decode to `inputs`, from frame 3 on.
fn check_changes<const WIDTH: usize>(golden: Golden, absolute: bool, inputs: &[[u8; WIDTH]]) {
    let start = Frame::new(3);
    let mut stream = Stream::new(WIDTH, start);
    stream.receive(start, inputs.len() as u32, absolute, &bytes(golden)).expect("inputs");
    assert_eq!(stream.end(), start + inputs.len() as u32);
    for (at, input) in (0..).zip(inputs) {
        assert_eq!(stream.value(start + at), Some(&input[..]), "input {at}");
    }
}

#[test]
fn narrow_input_changes_match_golden_bytes() {
    check_changes::<0>(&[], false, &[[], []]);
    check_changes::<0>(&["00", "00"], true, &[[], []]);
    // skip << width | mask of changed bytes, and their values
    check_changes(&["0611", "0122"], false, &[[0, 0], [0, 0x11], [0x22, 0x11], [0x22, 0x11]]);
    check_changes(&["01", "031122", "0633"], true, &[[0x11, 0x22], [0x11, 0x22], [0x11, 0x33]]);
    check_changes(&["1f01020304"], false, &[[0; 4], [1, 2, 3, 4]]);
}

#[test]
fn wide_input_changes_match_golden_bytes() {
    // skip, mask of changed bytes, and their values
    check_changes(&["01", "11", "aabb"], false, &[[0; 5], [0xaa, 0, 0, 0, 0xbb]]);
    // skip, mask of groups of eight bytes, mask of changed bytes in each, and their values
    let changed = [0, 7, 0, 0, 0, 0, 0, 0, 8, 9];
    check_changes(&["01", "03", "02", "03", "07", "0809"], false, &[[0; 10], changed, changed]);
    let mut last = [0; 128];
    last[127] = 0xee;
    check_changes(&["01", "00", "808002", "80", "ee"], true, &[last, last]);
}
