//! Writes the seeds of the corpus: packets of every flavour, and a script for every kind of trouble.

use std::path::Path;
use std::{fs, io};

use coplay::frame::Frame;
use coplay::id::{MAX_SITES, SiteId, SiteSet};
use coplay::input::Recovery;
use coplay::pace::Pacing;
use coplay::wire::{CommandKind, Extra, MembershipDecision, RelayedInputs, ScheduledCommand, TuningStats, Vote};
use coplay_fuzz::flavours;
use coplay_fuzz::script::{Deed, Owners, Scene, Script};

const RUNNING: Scene = Scene::PLAIN;
/// Flags of ticks that together have every block, alone and in company.
const TICKS: [u8; 16] =
    [0x80, 0x81, 0x82, 0x83, 0x84, 0x85, 0x88, 0x8b, 0xa0, 0xb0, 0xb1, 0xb4, 0xb8, 0xe4, 0xf0, 0xf4];
/// Where a hello has its flags.
const HELLO_FLAGS_AT: usize = 19;
/// Answers and the start from nothing are what looks different in a wide tick.
const WIDE_TICKS: [u8; 2] = [0x81, 0x83];

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

/// What real sites send, one packet of each flavour.
fn packets() -> Vec<(String, Vec<u8>)> {
    let mut found = std::collections::BTreeMap::new();
    for (scene, script) in scripts() {
        let wide = script.scene.owners == Owners::LastAll;
        for bytes in flavours(&script) {
            let name = match bytes[0] {
                hello if hello & 0x80 == 0 && scene == "lobby" => format!("hello-{:02x}", bytes[HELLO_FLAGS_AT]),
                hello if hello & 0x80 == 0 => continue,
                flags if wide && WIDE_TICKS.contains(&flags) => format!("tick-{flags:02x}-wide"),
                flags if TICKS.contains(&flags) => format!("tick-{flags:02x}"),
                _ => continue,
            };
            found.entry(name).or_insert(bytes);
        }
    }
    found.into_iter().collect()
}

/// Pieces of input, each with its kind (and the size of its changes), first frame and length in front.
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

/// Scripts for a feed and one who watches: how it is served, the size of a state, and deeds.
fn feeds() -> Vec<(String, Vec<u8>)> {
    let play = [8, 0x91, 0, 200, 0, 200];
    let gaps = [8, 0x91, 0, 60, 1, 90, 0, 20, 1, 200, 0, 200];
    let scene = |how: u8, size: u8, deeds: &[&[u8]]| [&[how, size], &deeds.concat()[..]].concat();
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

/// Scripts for worlds: time, bytes for somebody, and what was said last once more with a change in it.
fn worlds() -> Vec<(String, Vec<u8>)> {
    let wait = [0, 60, 0, 60];
    let again = |whom: u8| -> Vec<u8> {
        (0..60).flat_map(|at| [2, whom, at, 1 << (at % 8), 2, whom, at, 0xff, 0, 1]).collect()
    };
    let junk = |whom: u8| -> Vec<u8> { (0..32).flat_map(|byte| [1, whom, 3, byte, whom, 0xff, 0, 1]).collect() };
    let named = [("site", 0), ("player", 1), ("view", 2), ("mirror", 3)];
    let script = |(name, whom): (&str, u8)| {
        [
            (format!("{name}-again"), [&wait[..], &again(whom)].concat()),
            (format!("{name}-junk"), [&wait[..], &junk(whom)].concat()),
        ]
    };
    named.into_iter().flat_map(script).collect()
}

/// Recordings as blocks, each with its kind, place, frames and length in front, behind a byte that says what the header is.
fn movies() -> Vec<(String, Vec<u8>)> {
    let block = |kind: u8, place: u32, frames: u16, payload: &[u8]| {
        [&[kind][..], &place.to_le_bytes(), &frames.to_le_bytes(), &[payload.len() as u8], payload].concat()
    };
    let end = |place| block(4, place, 0, &[]);
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

/// Ticks with one extra each.
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
    let dials = ScheduledCommand {
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
        command: Some(dials),
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
        ("dials", Extra::Command(dials)),
        ("vote", Extra::Vote(vote)),
        ("vote-accepted", Extra::Vote(accepted)),
        ("decided", Extra::DecisionReport(7, decision, 0)),
        ("decided-nobody", Extra::DecisionReport(300, nobody, 2)),
        ("want", Extra::RelayRequest(site, first)),
        ("left", Extra::LeaveReport(site, first)),
        ("condition", Extra::TuningStats(TuningStats { input_age: 300, max_prediction_window: 8 })),
        ("relay", Extra::Relay(RelayedInputs { site, first_frame: first, frame_count: 4, changes: &[1, 3, 8, 9] })),
    ];
    named.into_iter().map(|(name, extra)| (format!("extra-{name}"), alone(&extra))).collect()
}

/// A tick with nothing but this extra.
fn alone(extra: &Extra<'_>) -> Vec<u8> {
    let mut buf = [0; 256];
    let len = extra.encode(&mut buf).expect("room for an extra");
    [&[0x84, 0, 0, 0][..], &(len as u16).to_le_bytes(), &buf[..len], &[0]].concat()
}

fn script(scene: Scene, deeds: impl IntoIterator<Item = Deed>) -> Script {
    Script { scene, deeds: deeds.into_iter().collect() }
}

fn press(site: u8, value: u8) -> Deed {
    Deed::Press { site, value }
}

/// A script for every kind of trouble.
fn scripts() -> Vec<(&'static str, Script)> {
    use Deed::*;
    let lobby = Scene { lobby: true, delay_ms: 7, ..RUNNING };
    let three = Scene { third: true, owners: Owners::Shared, ..RUNNING };
    let history = Scene { recovery: Recovery::History, delay_ms: 40, lag: 6, ..RUNNING };
    let wide = Scene { owners: Owners::LastAll, ..history };
    let paper = Scene { pacing: Pacing::Zhao, timer: true, delay_ms: 7, lag: 6, ..RUNNING };
    let last = Scene { last_is_victim: true, ..RUNNING };
    let guess = Scene { window: 8, delay_ms: 40, ..RUNNING };
    let guess_far = Scene { window: 60, lag: 0, delay_ms: 150, ..RUNNING };
    let drop = Scene { third: true, drop_after_ms: Some(300), delay_ms: 7, ..RUNNING };
    let crowd = Scene { crowd: true, third: false, ..drop };
    let burst = [press(0, 0x81), press(1, 0x93), Flow(40), Cut(90), Drop(3), Drop(3), Drop(5), Flow(60), Heal];
    let ahead = |field, time| [Forge { field, value: 199 }, Cut(time)];
    let unacknowledged =
        [vec![press(1, 0x81)], ahead(14, 199).to_vec(), ahead(14, 199).to_vec(), ahead(14, 199).to_vec()];
    let never = [vec![press(1, 0x81), Flow(235), Cut(99)], ahead(13, 100).to_vec(), vec![press(1, 1)]].concat();
    let never = [never, ahead(14, 199).to_vec(), ahead(14, 199).to_vec(), ahead(14, 255).to_vec()].concat();
    let mut all = vec![
        ("plain", script(RUNNING, [press(0, 5), Flow(50), press(1, 0x85), Flow(100), Heal])),
        ("lobby", script(lobby, [Flow(255), Flow(255), Flow(255), Heal])),
        ("lobby-left", script(lobby, [Flow(100), Leave(1), Flow(200)])),
        ("lobby-lost", script(lobby, [Flow(80), Drop(0), Cut(200), Flow(200), Replay(0), Replay(1), Heal])),
        ("burst", script(RUNNING, burst.clone())),
        ("burst-history", script(history, burst.clone())),
        ("burst-redundant", script(Scene { recovery: Recovery::Redundant, ..history }, burst.clone())),
        ("burst-sticks", script(Scene { owners: Owners::Sticks, ..history }, burst.clone())),
        ("burst-wide", script(wide, burst.clone())),
        ("burst-wide-adaptive", script(Scene { recovery: Recovery::Adaptive, ..wide }, burst.clone())),
        ("burst-three", script(Scene { third: true, ..history }, burst.clone())),
        ("burst-long-lag", script(Scene { lag: 120, delay_ms: 150, ..history }, burst.clone())),
        ("no-lag", script(Scene { lag: 0, delay_ms: 7, ..RUNNING }, burst.clone())),
        ("guess", script(guess, burst.clone())),
        ("guess-history", script(Scene { recovery: Recovery::History, ..guess }, burst.clone())),
        ("guess-wide", script(Scene { owners: Owners::LastAll, ..guess_far }, burst.clone())),
        ("guess-fast", script(Scene { fast: true, ..guess_far }, burst.clone())),
        ("guess-three", script(Scene { third: true, ..guess_far }, burst)),
        ("guess-leave", script(guess, [press(1, 0x99), Flow(20), Leave(1), Flow(100), Flow(255)])),
        ("drop", script(drop, [press(2, 0x91), Flow(20), Crash(2), Flow(200), Heal])),
        ("drop-coordinator", script(drop, [press(0, 0x91), Flow(20), Crash(0), Flow(200), Heal])),
        ("drop-guessed", script(Scene { window: 60, ..drop }, [press(0, 0x91), Crash(0), Flow(200), Heal])),
        ("drop-two-in-turn", script(crowd, [Crash(5), Flow(110), Crash(0), Flow(255), Heal])),
        ("drop-of-two", script(Scene { third: false, ..drop }, [Part(1), Flow(100), Part(0), Flow(100), Heal])),
        ("part", script(drop, [press(1, 0x91), Part(1), Flow(200), Part(0), Flow(200), Heal])),
        ("part-crowd", script(crowd, [Flow(20), Part(0b11_1000), Flow(255), Part(0), Flow(200), Heal])),
        ("part-for-a-moment", script(crowd, [Part(0b10_0000), Flow(105), Part(0), Flow(200), Heal])),
        ("part-leave", script(crowd, [Part(0b11_0110), Flow(110), Leave(3), Part(0b1), Flow(255), Part(0), Heal])),
        ("drop-slept", script(drop, [Flow(20), Sleep(4), Flow(200), Sleep(60), Flow(100), Heal])),
        ("drop-leaver", script(drop, [press(1, 0x91), Cut(60), Leave(1), Flow(5), Crash(1), Flow(200), Heal])),
        ("paper", script(paper, [press(0, 0x80), Flow(200), Cut(100), Flow(100), Heal])),
        ("paper-alone", script(Scene { pacing: Pacing::ZhaoUnsynchronised, ..paper }, [Flow(200), Sleep(9), Heal])),
        ("sleep", script(RUNNING, [Flow(20), Sleep(60), Flow(100), Heal])),
        ("freeze", script(RUNNING, [Cut(255), Cut(255), Flow(30), Heal])),
        ("gives-up", script(Scene { gives_up: true, ..RUNNING }, [Cut(255), Cut(255), Heal])),
        ("leave", script(RUNNING, [press(1, 0x99), Flow(20), Leave(1), Flow(100), Flow(255), Flow(255)])),
        ("leave-of-three", script(three, [Flow(20), Leave(0), Flow(200), Leave(2), Flow(200), Flow(255)])),
        ("leave-unheard", script(three, [Leave(2), Cut(50), Drop(1), Drop(2), Flow(100), Cut(200), Flow(200)])),
        (
            "order",
            script(RUNNING, [Cut(90), Deliver(5), Deliver(2), Duplicate(1), Deliver(1), Flow(9), Replay(3), Heal]),
        ),
        ("stranger", script(RUNNING, [Stranger(vec![0x80, 9, 0, 2, 1]), Stranger(vec![]), Flow(30), Heal])),
        (
            "raw",
            script(RUNNING, [Peer(vec![0x80, 9, 0, 2, 1]), Peer(vec![2]), Peer(vec![0x81, 20, 0, 4, 2, 1, 3, 4, 5])]),
        ),
        ("unacknowledged", script(Scene { fast: true, ..last }, unacknowledged.concat())),
        ("unacknowledged-still", script(Scene { fast: true, ..last }, unacknowledged[1..].concat())),
        ("never-acknowledged", script(Scene { fast: true, lobby: true, ..last }, never)),
        ("moved", script(RUNNING, [Identified { flags: 0x20, rest: vec![0, 0, 0, 0] }, Flow(90), Cut(9)])),
        ("unmoved", script(last, [Identified { flags: 0, rest: vec![1, 0] }, Flow(90), Heal])),
    ];
    let forgeries =
        |scene: Scene, forge: fn(u8) -> Deed| script(scene, (0..16).flat_map(move |field| [forge(field), Flow(8)]));
    let lies = |scene: Scene, sites: u8, near: u8, value: u32| {
        let lie = move |kind| Extra { from: kind, kind, sites, near, value };
        script(scene, (0..8).flat_map(move |kind| [lie(kind), Cut(8), lie(kind), Flow(80)]))
    };
    let left = |scene: Scene, value: u32| {
        let lie = |kind, near, value| Extra { from: 0, kind, sites: 0b100, near, value };
        let seat = [Flow(20), Leave(2), Flow(255), Flow(255), lie(0, 0xf0, value), Cut(200), lie(6, 0xf0, value)];
        script(scene, seat.into_iter().chain([Flow(100), Cut(100), lie(6, 0xf8, value), Flow(100)]))
    };
    let late = Scene { late: true, last_is_victim: true, delay_ms: 7, window: 4, ..RUNNING };
    let late_three = Scene { third: true, drop_after_ms: Some(300), ..late };
    let beside = |scene: Scene, from: u8, near: u8, value: u32| {
        let fake = move |kind| Feed { from, kind, near, value };
        let fakes = (0..14).flat_map(move |kind| [fake(kind), Flow(9)]);
        script(scene, [Come(scene.sites() as u8 - 1), Flow(40)].into_iter().chain(fakes).chain([Flow(255)]))
    };
    let after = |scene: Scene, deeds: Vec<Deed>| {
        let come = [Flow(20), Come(scene.sites() as u8 - 1), Flow(90), Flow(90)];
        script(scene, come.into_iter().chain(deeds.into_iter().flat_map(|deed| [deed, Flow(30)])))
    };
    let searches = |value| (0..7).map(|kind| Search { kind, near: 0, value }).collect::<Vec<_>>();
    let joins = |value| (0..8).map(|kind| Extra { from: 0, kind, sites: 0b11, near: 4, value }).collect::<Vec<_>>();
    let strays = (0..12).map(|how| Stray { packet: 3 * how, how, at: how, value: 0x42 }).collect::<Vec<_>>();
    let arrive =
        [press(0, 0x91), press(1, 0x85), Flow(40), Come(1), Flow(255), Flow(255), Flow(255), Flow(255), Flow(255)];
    let come_three = [press(2, 0x91), Come(2), Flow(255), Flow(255), Flow(255), Flow(255), Heal, Flow(255)];
    let again =
        [press(2, 0x91), Come(2), Flow(255), Flow(255), Crash(2), Flow(200), Come(2), Flow(255), Flow(255), Heal];
    let restart = [press(1, 0x91), Flow(50), Crash(1), Flow(200), Come(1), Flow(255), Flow(255), Flow(255), Heal];
    let leave = [Come(2), Flow(255), Flow(255), Leave(0), Flow(255), Leave(2), Come(2), Flow(255), Come(0), Flow(255)];
    let lossy = [Come(2), Flow(60), Cut(90), Flow(60), Cut(200), Flow(200), Drop(1), Drop(3), Flow(255), Cut(99), Heal];
    let parted = [Come(2), Flow(200), Part(1), Flow(255), Part(0), Flow(255), Flow(255), Heal];
    all.extend([
        ("late", script(late, arrive.iter().cloned().chain([Heal]))),
        ("late-bulky", script(Scene { bulky: true, ..late }, arrive.iter().cloned().chain([Heal]))),
        ("late-beginning", script(Scene { from_the_beginning: true, ..late }, arrive.iter().cloned().chain([Heal]))),
        ("late-auto", script(Scene { auto: true, delay_ms: 40, ..late }, arrive.iter().cloned().chain([Heal]))),
        ("late-lobby", script(Scene { lobby: true, ..late }, arrive.iter().cloned().chain([Heal]))),
        ("late-fast", script(Scene { fast: true, ..late }, arrive.iter().cloned().chain([Heal]))),
        ("late-wide", script(Scene { owners: Owners::LastAll, ..late }, arrive)),
        ("late-three", script(late_three, come_three.clone())),
        (
            "late-three-history",
            script(Scene { recovery: Recovery::History, window: 0, ..late_three }, come_three.clone()),
        ),
        (
            "late-crowd",
            script(Scene { crowd: true, third: false, ..late_three }, [Come(5), Flow(255), Flow(255), Heal]),
        ),
        ("late-again", script(late_three, again)),
        ("late-restart", script(late_three, restart)),
        ("late-leave", script(late_three, leave)),
        ("late-lossy", script(late_three, lossy)),
        ("late-part", script(late_three, parted)),
        ("late-lies", after(late_three, joins(0x0001_0302))),
        ("late-lies-dials", after(Scene { last_is_victim: false, ..late_three }, joins(0x0002_0202))),
        ("auto", script(Scene { auto: true, delay_ms: 40, ..RUNNING }, come_three)),
        ("feed-near", beside(late_three, 0, 4, 0x0001_0408)),
        ("feed-state", beside(Scene { third: false, ..late_three }, 0, 2, 0x0000_0120)),
        ("feed-far", beside(late_three, 0, 0, 0xff04_4103)),
        ("feed-served", beside(Scene { last_is_victim: false, ..late_three }, 2, 0xfc, 0x0101_0203)),
        ("feed-stranger", beside(Scene { last_is_victim: false, ..late_three }, 3, 0, 0x2002_ff01)),
        (
            "auto-lies",
            script(
                Scene { auto: true, ..three },
                (0..5).flat_map(|from| [Extra { from, kind: 7, sites: 0, near: 0, value: 0xffff_ff00 }, Flow(250)]),
            ),
        ),
        ("search", after(Scene { last_is_victim: false, ..late }, searches(0x1003_0201))),
        ("search-late", after(late, searches(0xff03_ff01))),
        ("strays", after(late_three, strays)),
    ]);
    let three_last = Scene { last_is_victim: true, ..three };
    all.extend([
        ("lies", lies(three, 0b110, 0, 0x0001_0001)),
        ("lies-guess", lies(Scene { third: true, ..guess }, 0b100, 4, 0x0001_0308)),
        ("lies-past", lies(Scene { third: true, ..guess_far }, 0b110, 0xf0, 0x0000_0709)),
        ("lies-far", lies(three_last, 0b11, 0, 0xff01_0303)),
        ("lies-crowd", lies(Scene { owners: Owners::LastAll, ..crowd }, 0xff, 0xfe, 0x0002_0308)),
        ("lies-drop", lies(drop, 0b100, 0, 0x0001_8209)),
        ("lies-seat", left(three_last, 0x0000_0102)),
        ("lies-seat-other", left(Scene { third: true, last_is_victim: false, ..guess }, 0x0001_0102)),
        ("forged-near", forgeries(RUNNING, |field| Forge { field: 16 | field, value: 0x0102_0304 })),
        ("forged-far", forgeries(last, |field| Forge { field: 16 | field, value: 0xfff0_fffd })),
        ("forged-wide", forgeries(Scene { last_is_victim: true, ..wide }, |field| Forge { field, value: 0x2001_0902 })),
        ("forged-hello", forgeries(RUNNING, |field| Hello { field, value: 3 })),
        ("forged-lobby", forgeries(lobby, |field| Hello { field, value: 0x0100_0003 })),
        ("forged-lobby-last", forgeries(Scene { lobby: true, ..last }, |field| Hello { field, value: 0x8000_0000 })),
        ("mutated", forgeries(RUNNING, |how| Mutate { packet: how, how, at: how, value: 0x42 })),
        ("mutated-three", forgeries(three, |how| Mutate { packet: 9, how, at: 3, value: how << 3 })),
    ]);
    all
}
