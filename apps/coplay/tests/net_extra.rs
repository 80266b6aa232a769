//! What a game with others leaves behind, and how soon it is told that there will be none: real processes, real sockets.

#[allow(dead_code, unreachable_pub, reason = "each test uses a part of it")]
mod common;

use std::io::{BufRead, BufReader, Read};
use std::process::Child;
use std::time::{Duration, Instant};

use common::{Outcome, Place, arg};

const FRAMES: &str = "400";

/// A host with a bot, and its ticket.
fn host(place: &Place, more: &[&str]) -> (Running, String) {
    let args = ["host", "--udp", "127.0.0.1:0", "--headless", "--bot", "1", "--frames", FRAMES, "--name", "Ann"];
    let mut child = place.program().args(args).args(more).spawn().expect("the program starts");
    let mut out = BufReader::new(child.stdout.take().expect("it is piped"));
    let mut ticket = String::new();
    out.read_line(&mut ticket).expect("it shows a ticket");
    (Running { child, out: Some(out) }, ticket.trim().to_owned())
}

/// A process that is gone when the test is.
struct Running {
    child: Child,
    out: Option<BufReader<std::process::ChildStdout>>,
}

impl Running {
    fn end(mut self) -> Outcome {
        let (mut out, mut err) = (String::new(), String::new());
        let mut from = self.out.take().expect("it is read once");
        let mut complaints = self.child.stderr.take().expect("it is piped");
        let reader = std::thread::spawn(move || complaints.read_to_string(&mut err).map(|_| err));
        from.read_to_string(&mut out).expect("it is text");
        let code = self.child.wait().expect("it ends").code();
        Outcome { code, out, err: reader.join().expect("it is read").expect("it is text") }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// The inputs of a movie, frame by frame.
fn inputs(bytes: &[u8]) -> Vec<Vec<coplay::input::Word>> {
    let (mut reader, mut rest, mut all) = (coplay::movie::Reader::new(), bytes, vec![]);
    loop {
        rest = &rest[reader.push(rest)..];
        match reader.poll().expect("a sound movie") {
            Some(coplay::movie::Entry::Frame { words, .. }) => all.push(words.to_vec()),
            Some(coplay::movie::Entry::End { .. }) => return all,
            Some(_) => {}
            None if rest.is_empty() => reader.end(),
            None => {}
        }
    }
}

#[test]
fn both_keep_the_same_movie_and_another_process_proves_it() {
    let place = Place::new("net-record");
    let films = [place.at("host.movie"), place.at("guest.movie")];
    let (host, ticket) = host(&place, &["--record", arg(&films[0])]);
    let guest = ["join", &ticket, "--headless", "--bot", "2", "--frames", FRAMES, "--record", arg(&films[1])];
    let guest = place.run(&guest);
    let host = host.end();
    for outcome in [&host, &guest] {
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        assert!(outcome.row("recorded").parse::<usize>().is_ok_and(|frames| frames >= 400), "{outcome:?}");
    }
    let [one, other] = films.each_ref().map(|film| inputs(&std::fs::read(film).expect("it is there")));
    let common = one.len().min(other.len());
    assert!(common >= 400 && one[..common] == other[..common], "{} and {} frames", one.len(), other.len());
    assert!(one.iter().flatten().any(|word| *word != 0), "somebody pressed something");
    for film in &films {
        let replay = place.run(&["replay", arg(film), "--headless"]);
        assert_eq!(replay.code, Some(0), "{replay:?}");
        assert!(replay.row("hashes").parse::<u32>().is_ok_and(|hashes| hashes >= 6), "{replay:?}");
        assert!(replay.out.contains("all equal"), "{replay:?}");
    }
    // What is there is not overwritten by chance.
    let again = place.run(&["join", &ticket, "--headless", "--record", arg(&films[1])]);
    assert_eq!(again.code, Some(2), "{again:?}");
    assert!(again.err.contains("exists already") && again.err.contains("--force"), "{again:?}");
}

#[test]
fn a_wrong_secret_is_told_early_and_leaves_no_movie_behind() {
    let place = Place::new("net-secret");
    let (_host, ticket) = host(&place, &[]);
    let wrong = format!("{}#other", ticket.split('#').next().expect("a ticket"));
    let (film, begun) = (place.at("none.movie"), Instant::now());
    let guest = place.run(&["join", &wrong, "--headless", "--record", arg(&film)]);
    assert_eq!(guest.code, Some(1), "{guest:?}");
    assert!(guest.err.contains("does not know our secret") && guest.err.contains("\nhint: "), "{guest:?}");
    // Patience alone ends after 15 s; the key of a secret takes a while to make on a busy computer.
    assert!(begun.elapsed() < Duration::from_secs(12), "{:?}", begun.elapsed());
    assert!(!film.exists());
}
