//! Writes the seeds of the corpus: packets of every flavour, and a script for every kind of trouble.

use std::path::Path;
use std::{fs, io};

use coplay::frame::Frame;
use coplay::id::{MAX_SITES, SiteId, SiteSet};
use coplay::input::Recovery;
use coplay::pace::Pacing;
use coplay::wire::{Decision, Extra, Order, Relay, Vote, What};
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

/// Ticks with one extra each.
fn extras() -> Vec<(String, Vec<u8>)> {
    let (site, first) = (SiteId::first(3).last().expect("three sites"), Frame::new(150));
    let join = Order { by: site, frame: first, what: What::Join(site) };
    let dials = Order { what: What::Dials { lag: 6, window: 200 }, ..join };
    let ends = std::array::from_fn(|at| if at < 2 { first } else { Frame::ZERO });
    let decision = Decision { drop: SiteSet::first(2), lasts: ends, order: Some(join) };
    let vote = Vote { view: 1, ballot: 10, drop: SiteSet::first(2), ends, order: Some(dials), accepted: None };
    let accepted = Vote { accepted: Some((9, decision)), ..vote };
    let nobody = Decision { drop: SiteSet::EMPTY, lasts: [Frame::ZERO; MAX_SITES], order: None };
    let named = [
        ("leave", Extra::Leave(first)),
        ("join", Extra::Order(join)),
        ("dials", Extra::Order(dials)),
        ("vote", Extra::Vote(vote)),
        ("vote-accepted", Extra::Vote(accepted)),
        ("decided", Extra::Decided(7, decision)),
        ("decided-nobody", Extra::Decided(300, nobody)),
        ("want", Extra::Want(site, first)),
        ("relay", Extra::Relay(Relay { site, first, len: 4, changes: &[1, 3, 8, 9] })),
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
    let paper = Scene { pacing: Pacing::Paper, timer: true, delay_ms: 7, lag: 6, ..RUNNING };
    let last = Scene { last_is_victim: true, ..RUNNING };
    let guess = Scene { window: 8, delay_ms: 40, ..RUNNING };
    let guess_far = Scene { window: 60, lag: 0, delay_ms: 150, ..RUNNING };
    let drop = Scene { third: true, drop_after_ms: Some(200), delay_ms: 7, ..RUNNING };
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
        ("paper-alone", script(Scene { pacing: Pacing::PaperUnsynchronised, ..paper }, [Flow(200), Sleep(9), Heal])),
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
