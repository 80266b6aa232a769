//! Movies of shared games, with real processes and real sockets.

use std::time::{Duration, Instant};

use crate::common::path_arg;
use crate::common::run::{start_host, start_join, test_dir_with_game};

const FRAMES: &str = "400";

/// Returns the input words of every frame of a movie.
fn movie_inputs(bytes: &[u8]) -> Vec<Vec<coplay::input::InputWord>> {
    let (mut reader, mut rest, mut all) = (coplay::movie::MovieReader::new(), bytes, vec![]);
    loop {
        rest = &rest[reader.push(rest)..];
        match reader.poll().expect("a valid movie") {
            Some(coplay::movie::MovieEntry::Frame { words, .. }) => all.push(words.to_vec()),
            Some(coplay::movie::MovieEntry::End { .. }) => return all,
            Some(_) => {}
            None if rest.is_empty() => reader.end_input(),
            None => {}
        }
    }
}

#[test]
fn both_sites_record_equal_movies_that_replay() {
    let (dir, game) = test_dir_with_game("net-record");
    let movies = [dir.path_of("host.movie"), dir.path_of("joiner.movie")];
    let record = |movie| ["--frames", FRAMES, "--record", path_arg(movie)];
    let mut host = start_host(&dir, &game, &record(&movies[0]));
    let ticket = host.ticket();
    let mut joiner = start_join(&dir, &ticket, &game, &record(&movies[1]));
    for run in [&mut host, &mut joiner] {
        run.assert_ends_well();
        let recorded =
            run.out().lines().find_map(|line| line.strip_prefix("recorded")?.split_whitespace().next()?.parse().ok());
        assert!(recorded.is_some_and(|frames: usize| frames >= 400), "{run}");
    }
    let [one, other] =
        movies.each_ref().map(|movie| movie_inputs(&std::fs::read(movie).expect("the movie was written")));
    let common = one.len().min(other.len());
    assert!(common >= 400 && one[..common] == other[..common], "{} and {} frames", one.len(), other.len());
    assert!(one.iter().flatten().any(|word| *word != 0), "the bots pressed buttons");
    for movie in &movies {
        let replay = dir.run(&["replay", path_arg(movie), path_arg(&game), "--headless"]);
        assert_eq!(replay.code, Some(0), "{replay:?}");
        assert!(replay.row_value("hashes").parse::<u32>().is_ok_and(|hashes| hashes >= 6), "{replay:?}");
        assert!(replay.out.contains("all equal"), "{replay:?}");
    }
    // An existing movie is not overwritten.
    start_join(&dir, &ticket, &game, &record(&movies[1])).assert_fails(2, &["already exists", "--force"]);
}

#[test]
fn wrong_secret_fails_early_and_leaves_no_movie() {
    let (dir, game) = test_dir_with_game("net-secret-early");
    let host = start_host(&dir, &game, &[]);
    let wrong = format!("{}#other", host.ticket().split('#').next().expect("a ticket"));
    let (movie, started) = (dir.path_of("none.movie"), Instant::now());
    start_join(&dir, &wrong, &game, &["--record", path_arg(&movie)])
        .assert_fails(1, &["rejected the secret of the ticket"]);
    // The timeout alone would take 15 s. Deriving the key of a secret takes a while on a busy computer.
    assert!(started.elapsed() < Duration::from_secs(12), "{:?}", started.elapsed());
    assert!(!movie.exists());
}
