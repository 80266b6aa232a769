//! Writes the generated part of the corpus of each target: scripts for `session`, `feed`, `movie` and `worlds`, and for
//! `wire` session packets, fragments of inputs, and ticks with extras.

use std::path::Path;
use std::{fs, io};

use coplay::frame::Frame;
use coplay::id::{MAX_SITES, SiteId, SiteSet};
use coplay::input::Recovery;
use coplay::pace::Pacing;
use coplay::session::message::{
    CommandKind, Extra, MembershipDecision, RelayedInputs, ScheduledCommand, TuningStats, Vote,
};
use coplay_fuzz::sample_packets;
use coplay_fuzz::script::{OwnershipKind, Script, ScriptAction, ScriptSetup};

const RUNNING_SETUP: ScriptSetup = ScriptSetup::PLAIN;
/// Flags of ticks that together have every block, in several combinations.
const TICK_FLAGS: [u8; 16] =
    [0x80, 0x81, 0x82, 0x83, 0x84, 0x85, 0x88, 0x8b, 0xa0, 0xb0, 0xb1, 0xb4, 0xb8, 0xe4, 0xf0, 0xf4];
/// Offset of the flags in a hello, in bytes.
const HELLO_FLAGS_OFFSET: usize = 19;
/// Flags of ticks whose encoding differs with wide inputs: resends and absolute inputs.
const WIDE_TICK_FLAGS: [u8; 2] = [0x81, 0x83];

fn main() -> io::Result<()> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    for (name, script) in scripts() {
        fs::write(corpus.join("session").join(name), script.encode())?;
    }
    for (name, bytes) in packets().into_iter().chain(inputs()).chain(extras()) {
        fs::write(corpus.join("wire").join(name), bytes)?;
    }
    for (name, bytes) in feeds() {
        fs::write(corpus.join("feed").join(name), bytes)?;
    }
    for (name, bytes) in movies() {
        fs::write(corpus.join("movie").join(name), bytes)?;
    }
    for (name, bytes) in worlds() {
        fs::write(corpus.join("worlds").join(name), bytes)?;
    }
    Ok(())
}

/// Returns packets that the sites of the session scripts send, with the names of their corpus files: one tick for each
/// of the [`TICK_FLAGS`], one with wide inputs for each of the [`WIDE_TICK_FLAGS`], and one hello for each value of its
/// flags in the script `lobby`. Packets that no site sends are left out.
fn packets() -> Vec<(String, Vec<u8>)> {
    let mut found = std::collections::BTreeMap::new();
    for (scene, script) in scripts() {
        let wide = script.setup.ownership == OwnershipKind::AllToLast;
        for bytes in sample_packets(&script) {
            let name = match bytes[0] {
                hello if hello & 0x80 == 0 && scene == "lobby" => format!("hello-{:02x}", bytes[HELLO_FLAGS_OFFSET]),
                hello if hello & 0x80 == 0 => continue,
                flags if wide && WIDE_TICK_FLAGS.contains(&flags) => format!("tick-{flags:02x}-wide"),
                flags if TICK_FLAGS.contains(&flags) => format!("tick-{flags:02x}"),
                _ => continue,
            };
            found.entry(name).or_insert(bytes);
        }
    }
    found.into_iter().collect()
}

/// Returns fragments of inputs; each starts with its kind (and the size of its changes), first frame and length.
fn inputs() -> Vec<(String, Vec<u8>)> {
    let piece = |absolute: bool, first: u8, len: u8, changes: &[u8]| {
        [&[(changes.len() as u8) << 3 | u8::from(absolute), first, len - 1], changes].concat()
    };
    let gap = [piece(false, 0, 3, &[]), piece(true, 6, 2, &[0, 0]), piece(true, 10, 1, &[2, 0])].concat();
    let order = [piece(true, 4, 4, &[1, 3, 8, 9]), piece(false, 0, 5, &[12, 3]), piece(false, 2, 2, &[1, 7])].concat();
    let wide = [piece(true, 0, 2, &[1, 0, 3, 1, 1, 5, 6]), piece(false, 1, 9, &[2, 1, 128, 9])].concat();
    let groups = piece(false, 0, 3, &[1, 3, 2, 3, 7, 8, 9]);
    let far = [piece(false, 0, 200, &[]), piece(false, 199, 200, &[]), piece(true, 250, 255, &[0, 0])].concat();
    let named = [("gap", gap), ("order", order), ("wide", wide), ("groups", groups), ("far", far)];
    named.into_iter().map(|(name, bytes)| (format!("inputs-{name}"), bytes)).collect()
}

/// Returns scripts for a feed and one spectator: configuration, size of a state, and actions.
fn feeds() -> Vec<(String, Vec<u8>)> {
    let play = [8, 0x91, 0, 200, 0, 200];
    let gaps = [8, 0x91, 0, 60, 1, 90, 0, 20, 1, 200, 0, 200];
    let scene = |flags: u8, size: u8, actions: &[&[u8]]| [&[flags, size], &actions.concat()[..]].concat();
    let fakes = |to: u8, near: u8, value: u32| -> Vec<u8> {
        let one = |kind: u8| {
            let from = if to == 7 { vec![7, kind] } else { vec![6] };
            [from, vec![kind, near], value.to_le_bytes().to_vec(), vec![0, 5]].concat()
        };
        (0..14).flat_map(one).collect()
    };
    let mutated = |what: u8| (0..16).flat_map(|how| [what, how, how, 3 * how, 0x42, 0, 5]).collect::<Vec<u8>>();
    let junk = [2, 3, 0x1b, 0, 9, 3, 0, 2, 0x10, 2, 0, 9];
    let named = [
        ("plain", scene(0, 0, &[&play])),
        ("bulky", scene(0, 120, &[&play])),
        ("wide", scene(3, 4, &[&play])),
        ("beginning", scene(0x30, 0, &[&[0, 90], &play])),
        ("beginning-not-kept", scene(0x60, 0, &[&[0, 250], &play, &play])),
        ("batches", scene(8, 9, &[&gaps])),
        ("gaps", scene(4, 60, &[&gaps, &gaps])),
        ("ended", scene(0, 9, &[&play, &[9, 0, 0, 90]])),
        ("left", scene(0, 9, &[&play, &[9, 1, 0, 90]])),
        ("slept", scene(0, 9, &[&play, &[9, 62, 0, 90]])),
        ("faked", scene(0, 0, &[&play, &fakes(6, 2, 0x0000_0120)])),
        ("faked-at-first", scene(0, 0, &[&[0, 3], &fakes(6, 4, 0x0001_0408)])),
        ("faked-far", scene(0x20, 9, &[&[0, 9], &fakes(6, 0, 0xff04_4103)])),
        ("faked-watcher", scene(0x10, 60, &[&play, &fakes(7, 0xfc, 0x2002_0203)])),
        ("mutated", scene(0, 60, &[&[0, 9], &mutated(4)])),
        ("mutated-wide", scene(3, 60, &[&[8, 0x81, 0, 9], &mutated(5)])),
        ("junk", scene(0, 0, &[&play, &junk, &play])),
    ];
    named.into_iter().map(|(name, bytes)| (name.into(), bytes)).collect()
}

/// Returns scripts for worlds, two for each participant: one injects arbitrary bytes, the other changed copies of the
/// last datagram that an honest participant sent.
fn worlds() -> Vec<(String, Vec<u8>)> {
    let wait = [0, 60, 0, 60];
    let again = |target: u8| -> Vec<u8> {
        (0..60).flat_map(|at| [2, target, at, 1 << (at % 8), 2, target, at, 0xff, 0, 1]).collect()
    };
    let junk = |target: u8| -> Vec<u8> { (0..32).flat_map(|byte| [1, target, 3, byte, target, 0xff, 0, 1]).collect() };
    let named = [("site", 0), ("player", 1), ("view", 2), ("mirror", 3)];
    let script = |(name, target): (&str, u8)| {
        [
            (format!("{name}-again"), [&wait[..], &again(target)].concat()),
            (format!("{name}-junk"), [&wait[..], &junk(target)].concat()),
        ]
    };
    named.into_iter().flat_map(script).collect()
}

/// Returns scripts of the target `movie`: a byte that selects the header, then blocks, each of which starts with kind,
/// frame, number of frames and length. The last two are beginnings of a file instead.
fn movies() -> Vec<(String, Vec<u8>)> {
    let block = |kind: u8, frame: u32, frames: u16, payload: &[u8]| {
        [&[kind][..], &frame.to_le_bytes(), &frames.to_le_bytes(), &[payload.len() as u8], payload].concat()
    };
    let end = |frame| block(4, frame, 0, &[]);
    let hash = [&[0x0c, 0][..], &[7; 8]].concat();
    let mark = [0, 1, 3, 9, 9, 9];
    let named = [
        ("empty", vec![0]),
        ("ended", [vec![0], end(0)].concat()),
        ("still", [vec![0], block(3, 0, 600, &[]), end(600)].concat()),
        ("changes", [vec![0], block(3, 0, 9, &[1, 5, 6, 7]), block(3, 9, 9, &[1, 5]), end(18)].concat()),
        ("hash", [vec![0], block(3, 0, 9, &hash), end(9)].concat()),
        ("mark", [vec![0], block(3, 0, 9, &mark), end(9)].concat()),
        ("state", [vec![8], block(3, 5, 9, &[]), end(14)].concat()),
        ("state-again", [vec![8], block(2, 3, 0, &[1]), end(14)].concat()),
        ("wide", [vec![3], block(3, 0, 2, &[0, 1, 1, 1, 9]), end(2)].concat()),
        ("header", [vec![16], block(1, 0, 0, &[0; 60]), end(0)].concat()),
        ("magic", b"COPLAYMV\x01".to_vec()),
        ("cut", b"COPLA".to_vec()),
    ];
    named.into_iter().map(|(name, bytes)| (name.into(), bytes)).collect()
}

/// Returns ticks with one extra each.
fn extras() -> Vec<(String, Vec<u8>)> {
    let (site, first) = (SiteId::first(3).last().expect("three sites"), Frame::new(150));
    let join = ScheduledCommand {
        issuer: site,
        frame: first,
        kind: CommandKind::Join {
            site,
            incarnation: 1,
            members: SiteSet::first(2),
            epoch: 1,
            input_delay: 6,
            prediction_window: 3,
        },
    };
    let delay = ScheduledCommand {
        kind: CommandKind::SetDelay { input_delay: 6, prediction_window: 200, input_age: 130, site },
        ..join
    };
    let ends = std::array::from_fn(|at| if at < 2 { first } else { Frame::ZERO });
    let decision = MembershipDecision {
        drop: SiteSet::first(2),
        input_ends: ends,
        left_sites: SiteSet::EMPTY,
        command: Some(join),
    };
    let vote = Vote {
        epoch: 1,
        ballot: 10,
        drop: SiteSet::first(2),
        input_ends: ends,
        left_sites: SiteSet::first(1),
        to_evict: SiteSet::EMPTY,
        command: Some(delay),
        accepted: None,
    };
    let accepted = Vote { accepted: Some((9, decision)), ..vote };
    let nobody = MembershipDecision {
        drop: SiteSet::EMPTY,
        input_ends: [Frame::ZERO; MAX_SITES],
        left_sites: SiteSet::EMPTY,
        command: None,
    };
    let named = [
        ("leave", Extra::Leave(first)),
        ("join", Extra::Command(join)),
        ("dials", Extra::Command(delay)),
        ("vote", Extra::Vote(vote)),
        ("vote-accepted", Extra::Vote(accepted)),
        ("decided", Extra::DecisionReport(7, decision, 0)),
        ("decided-nobody", Extra::DecisionReport(300, nobody, 2)),
        ("want", Extra::RelayRequest(site, first)),
        ("left", Extra::LeaveReport(site, first)),
        ("condition", Extra::TuningStats(TuningStats { input_age: 300, max_prediction_window: 8 })),
        ("relay", Extra::Relay(RelayedInputs { site, first_frame: first, frame_count: 4, changes: &[1, 3, 8, 9] })),
    ];
    named.into_iter().map(|(name, extra)| (format!("extra-{name}"), tick_with_extra(&extra))).collect()
}

/// Encodes a tick with nothing but this extra.
fn tick_with_extra(extra: &Extra<'_>) -> Vec<u8> {
    let mut buf = [0; 256];
    let len = extra.encode(&mut buf).expect("room for an extra");
    [&[0x84, 0, 0, 0][..], &(len as u16).to_le_bytes(), &buf[..len], &[0]].concat()
}

fn script(scene: ScriptSetup, actions: impl IntoIterator<Item = ScriptAction>) -> Script {
    Script { setup: scene, actions: actions.into_iter().collect() }
}

fn press(site: u8, value: u8) -> ScriptAction {
    ScriptAction::Press { site, value }
}

/// Returns the corpus scripts of the target `session`, each with the name of its file. Together they contain every kind
/// of action, faults included.
fn scripts() -> Vec<(&'static str, Script)> {
    use ScriptAction::*;
    let lobby = ScriptSetup { starts_in_lobby: true, delay_ms: 7, ..RUNNING_SETUP };
    let three = ScriptSetup { has_third_site: true, ownership: OwnershipKind::Shared, ..RUNNING_SETUP };
    let history = ScriptSetup { recovery: Recovery::History, delay_ms: 40, input_delay: 6, ..RUNNING_SETUP };
    let wide = ScriptSetup { ownership: OwnershipKind::AllToLast, ..history };
    let paper =
        ScriptSetup { pacing: Pacing::Zhao, is_timer_sending: true, delay_ms: 7, input_delay: 6, ..RUNNING_SETUP };
    let last = ScriptSetup { is_last_site_victim: true, ..RUNNING_SETUP };
    let predicting = ScriptSetup { prediction_window: 8, delay_ms: 40, ..RUNNING_SETUP };
    let predicting_far = ScriptSetup { prediction_window: 60, input_delay: 0, delay_ms: 150, ..RUNNING_SETUP };
    let drop = ScriptSetup { has_third_site: true, drop_timeout_ms: Some(300), delay_ms: 7, ..RUNNING_SETUP };
    let crowd = ScriptSetup { has_six_sites: true, has_third_site: false, ..drop };
    let burst = [
        press(0, 0x81),
        press(1, 0x93),
        RunNetwork(40),
        CutNetwork(90),
        Drop(3),
        Drop(3),
        Drop(5),
        RunNetwork(60),
        Heal,
    ];
    let ahead = |field, time| [ForgeTick { field, value: 199 }, CutNetwork(time)];
    let unacknowledged =
        [vec![press(1, 0x81)], ahead(14, 199).to_vec(), ahead(14, 199).to_vec(), ahead(14, 199).to_vec()];
    let never =
        [vec![press(1, 0x81), RunNetwork(235), CutNetwork(99)], ahead(13, 100).to_vec(), vec![press(1, 1)]].concat();
    let never = [never, ahead(14, 199).to_vec(), ahead(14, 199).to_vec(), ahead(14, 255).to_vec()].concat();
    let mut all = vec![
        ("plain", script(RUNNING_SETUP, [press(0, 5), RunNetwork(50), press(1, 0x85), RunNetwork(100), Heal])),
        ("lobby", script(lobby, [RunNetwork(255), RunNetwork(255), RunNetwork(255), Heal])),
        ("lobby-left", script(lobby, [RunNetwork(100), Leave(1), RunNetwork(200)])),
        (
            "lobby-lost",
            script(lobby, [RunNetwork(80), Drop(0), CutNetwork(200), RunNetwork(200), Replay(0), Replay(1), Heal]),
        ),
        ("burst", script(RUNNING_SETUP, burst.clone())),
        ("burst-history", script(history, burst.clone())),
        ("burst-redundant", script(ScriptSetup { recovery: Recovery::Redundant, ..history }, burst.clone())),
        ("burst-sticks", script(ScriptSetup { ownership: OwnershipKind::AnalogSticks, ..history }, burst.clone())),
        ("burst-wide", script(wide, burst.clone())),
        ("burst-wide-adaptive", script(ScriptSetup { recovery: Recovery::Adaptive, ..wide }, burst.clone())),
        ("burst-three", script(ScriptSetup { has_third_site: true, ..history }, burst.clone())),
        ("burst-long-lag", script(ScriptSetup { input_delay: 120, delay_ms: 150, ..history }, burst.clone())),
        ("no-lag", script(ScriptSetup { input_delay: 0, delay_ms: 7, ..RUNNING_SETUP }, burst.clone())),
        ("guess", script(predicting, burst.clone())),
        ("guess-history", script(ScriptSetup { recovery: Recovery::History, ..predicting }, burst.clone())),
        ("guess-wide", script(ScriptSetup { ownership: OwnershipKind::AllToLast, ..predicting_far }, burst.clone())),
        ("guess-fast", script(ScriptSetup { is_fast: true, ..predicting_far }, burst.clone())),
        ("guess-three", script(ScriptSetup { has_third_site: true, ..predicting_far }, burst)),
        (
            "guess-leave",
            script(predicting, [press(1, 0x99), RunNetwork(20), Leave(1), RunNetwork(100), RunNetwork(255)]),
        ),
        ("drop", script(drop, [press(2, 0x91), RunNetwork(20), Crash(2), RunNetwork(200), Heal])),
        ("drop-coordinator", script(drop, [press(0, 0x91), RunNetwork(20), Crash(0), RunNetwork(200), Heal])),
        (
            "drop-guessed",
            script(ScriptSetup { prediction_window: 60, ..drop }, [press(0, 0x91), Crash(0), RunNetwork(200), Heal]),
        ),
        ("drop-two-in-turn", script(crowd, [Crash(5), RunNetwork(110), Crash(0), RunNetwork(255), Heal])),
        (
            "drop-of-two",
            script(
                ScriptSetup { has_third_site: false, ..drop },
                [Partition(1), RunNetwork(100), Partition(0), RunNetwork(100), Heal],
            ),
        ),
        ("part", script(drop, [press(1, 0x91), Partition(1), RunNetwork(200), Partition(0), RunNetwork(200), Heal])),
        (
            "part-crowd",
            script(crowd, [RunNetwork(20), Partition(0b11_1000), RunNetwork(255), Partition(0), RunNetwork(200), Heal]),
        ),
        (
            "part-for-a-moment",
            script(crowd, [Partition(0b10_0000), RunNetwork(105), Partition(0), RunNetwork(200), Heal]),
        ),
        (
            "part-leave",
            script(
                crowd,
                [Partition(0b11_0110), RunNetwork(110), Leave(3), Partition(0b1), RunNetwork(255), Partition(0), Heal],
            ),
        ),
        ("drop-slept", script(drop, [RunNetwork(20), Sleep(4), RunNetwork(200), Sleep(60), RunNetwork(100), Heal])),
        (
            "drop-leaver",
            script(drop, [press(1, 0x91), CutNetwork(60), Leave(1), RunNetwork(5), Crash(1), RunNetwork(200), Heal]),
        ),
        ("paper", script(paper, [press(0, 0x80), RunNetwork(200), CutNetwork(100), RunNetwork(100), Heal])),
        (
            "paper-alone",
            script(ScriptSetup { pacing: Pacing::ZhaoUnsynchronised, ..paper }, [RunNetwork(200), Sleep(9), Heal]),
        ),
        ("sleep", script(RUNNING_SETUP, [RunNetwork(20), Sleep(60), RunNetwork(100), Heal])),
        ("freeze", script(RUNNING_SETUP, [CutNetwork(255), CutNetwork(255), RunNetwork(30), Heal])),
        (
            "gives-up",
            script(ScriptSetup { is_silence_fatal: true, ..RUNNING_SETUP }, [CutNetwork(255), CutNetwork(255), Heal]),
        ),
        (
            "leave",
            script(
                RUNNING_SETUP,
                [press(1, 0x99), RunNetwork(20), Leave(1), RunNetwork(100), RunNetwork(255), RunNetwork(255)],
            ),
        ),
        (
            "leave-of-three",
            script(three, [RunNetwork(20), Leave(0), RunNetwork(200), Leave(2), RunNetwork(200), RunNetwork(255)]),
        ),
        (
            "leave-unheard",
            script(
                three,
                [Leave(2), CutNetwork(50), Drop(1), Drop(2), RunNetwork(100), CutNetwork(200), RunNetwork(200)],
            ),
        ),
        (
            "order",
            script(
                RUNNING_SETUP,
                [CutNetwork(90), Deliver(5), Deliver(2), Duplicate(1), Deliver(1), RunNetwork(9), Replay(3), Heal],
            ),
        ),
        (
            "stranger",
            script(
                RUNNING_SETUP,
                [InjectFromStranger(vec![0x80, 9, 0, 2, 1]), InjectFromStranger(vec![]), RunNetwork(30), Heal],
            ),
        ),
        (
            "raw",
            script(
                RUNNING_SETUP,
                [
                    InjectFromPeer(vec![0x80, 9, 0, 2, 1]),
                    InjectFromPeer(vec![2]),
                    InjectFromPeer(vec![0x81, 20, 0, 4, 2, 1, 3, 4, 5]),
                ],
            ),
        ),
        ("unacknowledged", script(ScriptSetup { is_fast: true, ..last }, unacknowledged.concat())),
        ("unacknowledged-still", script(ScriptSetup { is_fast: true, ..last }, unacknowledged[1..].concat())),
        ("never-acknowledged", script(ScriptSetup { is_fast: true, starts_in_lobby: true, ..last }, never)),
        (
            "moved",
            script(
                RUNNING_SETUP,
                [InjectIdentified { flags: 0x20, rest: vec![0, 0, 0, 0] }, RunNetwork(90), CutNetwork(9)],
            ),
        ),
        ("unmoved", script(last, [InjectIdentified { flags: 0, rest: vec![1, 0] }, RunNetwork(90), Heal])),
    ];
    let forgeries = |scene: ScriptSetup, forge: fn(u8) -> ScriptAction| {
        script(scene, (0..16).flat_map(move |field| [forge(field), RunNetwork(8)]))
    };
    let lies = |scene: ScriptSetup, sites: u8, near: u8, value: u32| {
        let lie = move |kind| ForgeExtra { from: kind, kind, sites, frame_offset: near, value };
        script(scene, (0..8).flat_map(move |kind| [lie(kind), CutNetwork(8), lie(kind), RunNetwork(80)]))
    };
    let left = |scene: ScriptSetup, value: u32| {
        let lie = |kind, near, value| ForgeExtra { from: 0, kind, sites: 0b100, frame_offset: near, value };
        let seat = [
            RunNetwork(20),
            Leave(2),
            RunNetwork(255),
            RunNetwork(255),
            lie(0, 0xf0, value),
            CutNetwork(200),
            lie(6, 0xf0, value),
        ];
        script(scene, seat.into_iter().chain([RunNetwork(100), CutNetwork(100), lie(6, 0xf8, value), RunNetwork(100)]))
    };
    let late = ScriptSetup {
        has_late_joiner: true,
        is_last_site_victim: true,
        delay_ms: 7,
        prediction_window: 4,
        ..RUNNING_SETUP
    };
    let late_three = ScriptSetup { has_third_site: true, drop_timeout_ms: Some(300), ..late };
    let beside = |scene: ScriptSetup, from: u8, near: u8, value: u32| {
        let fake = move |kind| ForgeFeed { from, kind, frame_offset: near, value };
        let fakes = (0..14).flat_map(move |kind| [fake(kind), RunNetwork(9)]);
        script(
            scene,
            [Join(scene.site_count() as u8 - 1), RunNetwork(40)].into_iter().chain(fakes).chain([RunNetwork(255)]),
        )
    };
    let after = |scene: ScriptSetup, actions: Vec<ScriptAction>| {
        let come = [RunNetwork(20), Join(scene.site_count() as u8 - 1), RunNetwork(90), RunNetwork(90)];
        script(scene, come.into_iter().chain(actions.into_iter().flat_map(|action| [action, RunNetwork(30)])))
    };
    let searches = |value| (0..7).map(|kind| ForgeSearch { kind, frame_offset: 0, value }).collect::<Vec<_>>();
    let joins = |value| {
        (0..8).map(|kind| ForgeExtra { from: 0, kind, sites: 0b11, frame_offset: 4, value }).collect::<Vec<_>>()
    };
    let strays = (0..12)
        .map(|how| MutateFromStranger { packet: 3 * how, mutation: how, offset: how, value: 0x42 })
        .collect::<Vec<_>>();
    let arrive = [
        press(0, 0x91),
        press(1, 0x85),
        RunNetwork(40),
        Join(1),
        RunNetwork(255),
        RunNetwork(255),
        RunNetwork(255),
        RunNetwork(255),
        RunNetwork(255),
    ];
    let come_three = [
        press(2, 0x91),
        Join(2),
        RunNetwork(255),
        RunNetwork(255),
        RunNetwork(255),
        RunNetwork(255),
        Heal,
        RunNetwork(255),
    ];
    let again = [
        press(2, 0x91),
        Join(2),
        RunNetwork(255),
        RunNetwork(255),
        Crash(2),
        RunNetwork(200),
        Join(2),
        RunNetwork(255),
        RunNetwork(255),
        Heal,
    ];
    let restart = [
        press(1, 0x91),
        RunNetwork(50),
        Crash(1),
        RunNetwork(200),
        Join(1),
        RunNetwork(255),
        RunNetwork(255),
        RunNetwork(255),
        Heal,
    ];
    let leave = [
        Join(2),
        RunNetwork(255),
        RunNetwork(255),
        Leave(0),
        RunNetwork(255),
        Leave(2),
        Join(2),
        RunNetwork(255),
        Join(0),
        RunNetwork(255),
    ];
    let lossy = [
        Join(2),
        RunNetwork(60),
        CutNetwork(90),
        RunNetwork(60),
        CutNetwork(200),
        RunNetwork(200),
        Drop(1),
        Drop(3),
        RunNetwork(255),
        CutNetwork(99),
        Heal,
    ];
    let parted =
        [Join(2), RunNetwork(200), Partition(1), RunNetwork(255), Partition(0), RunNetwork(255), RunNetwork(255), Heal];
    all.extend([
        ("late", script(late, arrive.iter().cloned().chain([Heal]))),
        ("late-bulky", script(ScriptSetup { has_bulky_state: true, ..late }, arrive.iter().cloned().chain([Heal]))),
        (
            "late-beginning",
            script(ScriptSetup { joins_from_first_frame: true, ..late }, arrive.iter().cloned().chain([Heal])),
        ),
        (
            "late-auto",
            script(ScriptSetup { is_auto: true, delay_ms: 40, ..late }, arrive.iter().cloned().chain([Heal])),
        ),
        ("late-lobby", script(ScriptSetup { starts_in_lobby: true, ..late }, arrive.iter().cloned().chain([Heal]))),
        ("late-fast", script(ScriptSetup { is_fast: true, ..late }, arrive.iter().cloned().chain([Heal]))),
        ("late-wide", script(ScriptSetup { ownership: OwnershipKind::AllToLast, ..late }, arrive)),
        ("late-three", script(late_three, come_three.clone())),
        (
            "late-three-history",
            script(ScriptSetup { recovery: Recovery::History, prediction_window: 0, ..late_three }, come_three.clone()),
        ),
        (
            "late-crowd",
            script(
                ScriptSetup { has_six_sites: true, has_third_site: false, ..late_three },
                [Join(5), RunNetwork(255), RunNetwork(255), Heal],
            ),
        ),
        ("late-again", script(late_three, again)),
        ("late-restart", script(late_three, restart)),
        ("late-leave", script(late_three, leave)),
        ("late-lossy", script(late_three, lossy)),
        ("late-part", script(late_three, parted)),
        ("late-lies", after(late_three, joins(0x0001_0302))),
        ("late-lies-dials", after(ScriptSetup { is_last_site_victim: false, ..late_three }, joins(0x0002_0202))),
        ("auto", script(ScriptSetup { is_auto: true, delay_ms: 40, ..RUNNING_SETUP }, come_three)),
        ("feed-near", beside(late_three, 0, 4, 0x0001_0408)),
        ("feed-state", beside(ScriptSetup { has_third_site: false, ..late_three }, 0, 2, 0x0000_0120)),
        ("feed-far", beside(late_three, 0, 0, 0xff04_4103)),
        ("feed-served", beside(ScriptSetup { is_last_site_victim: false, ..late_three }, 2, 0xfc, 0x0101_0203)),
        ("feed-stranger", beside(ScriptSetup { is_last_site_victim: false, ..late_three }, 3, 0, 0x2002_ff01)),
        (
            "auto-lies",
            script(
                ScriptSetup { is_auto: true, ..three },
                (0..5).flat_map(|from| {
                    [ForgeExtra { from, kind: 7, sites: 0, frame_offset: 0, value: 0xffff_ff00 }, RunNetwork(250)]
                }),
            ),
        ),
        ("search", after(ScriptSetup { is_last_site_victim: false, ..late }, searches(0x1003_0201))),
        ("search-late", after(late, searches(0xff03_ff01))),
        ("strays", after(late_three, strays)),
    ]);
    let three_last = ScriptSetup { is_last_site_victim: true, ..three };
    all.extend([
        ("lies", lies(three, 0b110, 0, 0x0001_0001)),
        ("lies-guess", lies(ScriptSetup { has_third_site: true, ..predicting }, 0b100, 4, 0x0001_0308)),
        ("lies-past", lies(ScriptSetup { has_third_site: true, ..predicting_far }, 0b110, 0xf0, 0x0000_0709)),
        ("lies-far", lies(three_last, 0b11, 0, 0xff01_0303)),
        ("lies-crowd", lies(ScriptSetup { ownership: OwnershipKind::AllToLast, ..crowd }, 0xff, 0xfe, 0x0002_0308)),
        ("lies-drop", lies(drop, 0b100, 0, 0x0001_8209)),
        ("lies-seat", left(three_last, 0x0000_0102)),
        (
            "lies-seat-other",
            left(ScriptSetup { has_third_site: true, is_last_site_victim: false, ..predicting }, 0x0001_0102),
        ),
        ("forged-near", forgeries(RUNNING_SETUP, |field| ForgeTick { field: 16 | field, value: 0x0102_0304 })),
        ("forged-far", forgeries(last, |field| ForgeTick { field: 16 | field, value: 0xfff0_fffd })),
        (
            "forged-wide",
            forgeries(ScriptSetup { is_last_site_victim: true, ..wide }, |field| ForgeTick {
                field,
                value: 0x2001_0902,
            }),
        ),
        ("forged-hello", forgeries(RUNNING_SETUP, |field| ForgeHello { field, value: 3 })),
        ("forged-lobby", forgeries(lobby, |field| ForgeHello { field, value: 0x0100_0003 })),
        (
            "forged-lobby-last",
            forgeries(ScriptSetup { starts_in_lobby: true, ..last }, |field| ForgeHello { field, value: 0x8000_0000 }),
        ),
        ("mutated", forgeries(RUNNING_SETUP, |how| Mutate { packet: how, mutation: how, offset: how, value: 0x42 })),
        ("mutated-three", forgeries(three, |how| Mutate { packet: 9, mutation: how, offset: 3, value: how << 3 })),
    ]);
    all
}
