//! What a game with others leaves behind, and how soon it is told that there will be none: real processes, real sockets.

#[allow(dead_code, unreachable_pub, reason = "each test uses a part of it")]
mod common;

use std::time::{Duration, Instant};

use common::arg;
use common::run::{host, join, place};

const FRAMES: &str = "400";

/// The inputs of a movie, frame by frame.
fn inputs(bytes: &[u8]) -> Vec<Vec<coplay::input::InputWord>> {
    let (mut reader, mut rest, mut all) = (coplay::movie::MovieReader::new(), bytes, vec![]);
    loop {
        rest = &rest[reader.push(rest)..];
        match reader.poll().expect("a sound movie") {
            Some(coplay::movie::MovieEntry::Frame { words, .. }) => all.push(words.to_vec()),
            Some(coplay::movie::MovieEntry::End { .. }) => return all,
            Some(_) => {}
            None if rest.is_empty() => reader.end_input(),
            None => {}
        }
    }
}

#[test]
fn both_keep_the_same_movie_and_another_process_proves_it() {
    let (place, game) = place("net-record");
    let films = [place.at("host.movie"), place.at("guest.movie")];
    let record = |film| ["--frames", FRAMES, "--record", arg(film)];
    let mut host = host(&place, &game, &record(&films[0]));
    let ticket = host.ticket();
    let mut guest = join(&place, &ticket, &game, &record(&films[1]));
    for run in [&mut host, &mut guest] {
        run.assert_ends_well();
        let recorded =
            run.out().lines().find_map(|line| line.strip_prefix("recorded")?.split_whitespace().next()?.parse().ok());
        assert!(recorded.is_some_and(|frames: usize| frames >= 400), "{run}");
    }
    let [one, other] = films.each_ref().map(|film| inputs(&std::fs::read(film).expect("it is there")));
    let common = one.len().min(other.len());
    assert!(common >= 400 && one[..common] == other[..common], "{} and {} frames", one.len(), other.len());
    assert!(one.iter().flatten().any(|word| *word != 0), "somebody pressed something");
    for film in &films {
        let replay = place.run(&["replay", arg(film), arg(&game), "--headless"]);
        assert_eq!(replay.code, Some(0), "{replay:?}");
        assert!(replay.row("hashes").parse::<u32>().is_ok_and(|hashes| hashes >= 6), "{replay:?}");
        assert!(replay.out.contains("all equal"), "{replay:?}");
    }
    // What is there is not overwritten by chance.
    join(&place, &ticket, &game, &record(&films[1])).assert_fails(2, &["exists already", "--force"]);
}

#[test]
fn a_wrong_secret_is_told_early_and_leaves_no_movie_behind() {
    let (place, game) = place("net-secret-early");
    let host = host(&place, &game, &[]);
    let wrong = format!("{}#other", host.ticket().split('#').next().expect("a ticket"));
    let (film, begun) = (place.at("none.movie"), Instant::now());
    join(&place, &wrong, &game, &["--record", arg(&film)]).assert_fails(1, &["does not know our secret"]);
    // Patience alone ends after 15 s; the key of a secret takes a while to make on a busy computer.
    assert!(begun.elapsed() < Duration::from_secs(12), "{:?}", begun.elapsed());
    assert!(!film.exists());
}
