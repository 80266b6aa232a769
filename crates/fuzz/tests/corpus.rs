//! Replays the corpus of every fuzz target, so that no earlier finding returns.

use std::fs;
use std::path::Path;

/// Runs `target` on each file of its corpus, in the order of their names.
fn replay(name: &str, target: fn(&[u8])) {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
    let entries = fs::read_dir(&dir).unwrap_or_else(|e| panic!("cannot read {}: {e}", dir.display()));
    let mut files: Vec<_> = entries.map(|entry| entry.expect("a readable directory entry").path()).collect();
    files.sort();
    assert!(!files.is_empty(), "{} is empty: the test would prove nothing", dir.display());
    for file in files {
        // Printed only when the test fails: the last file named is the one that broke an invariant.
        println!("replaying {}", file.display());
        target(&fs::read(&file).expect("a readable corpus file"));
    }
}

#[test]
fn wire_corpus_replays() {
    replay("wire", coplay_fuzz::wire);
}

#[test]
fn session_corpus_replays() {
    replay("session", coplay_fuzz::session);
}

#[test]
fn feed_corpus_replays() {
    replay("feed", coplay_fuzz::feed);
}

#[test]
fn movie_corpus_replays() {
    replay("movie", coplay_fuzz::movie);
}

#[test]
fn worlds_corpus_replays() {
    replay("worlds", coplay_fuzz::worlds);
}
