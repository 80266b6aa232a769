//! Writes the seeds of the corpus: packets of every flavour, and a script for every kind of trouble.

use std::path::Path;
use std::{fs, io};

use coplay::input::Recovery;
use coplay::pace::Pacing;
use coplay_fuzz::flavours;
use coplay_fuzz::script::{Deed, Owners, Scene, Script};

const RUNNING: Scene = Scene::PLAIN;
/// Flags of ticks that together have every block, alone and in company.
const TICKS: [u8; 13] = [0x80, 0x81, 0x82, 0x83, 0x84, 0x87, 0x88, 0xa0, 0xb0, 0xb1, 0xb4, 0xb8, 0xf0];
/// Answers and the start from nothing are what looks different in a wide tick.
const WIDE_TICKS: [u8; 2] = [0x81, 0x83];

fn main() -> io::Result<()> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    for (name, script) in scripts() {
        fs::write(corpus.join("session").join(name), script.encode())?;
    }
    for (name, bytes) in packets().into_iter().chain(inputs()) {
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
                hello if hello & 0x80 == 0 && scene == "lobby" => format!("hello-{:02x}", bytes[11]),
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
        ("no-lag", script(Scene { lag: 0, delay_ms: 7, ..RUNNING }, burst)),
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
    all.extend([
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
