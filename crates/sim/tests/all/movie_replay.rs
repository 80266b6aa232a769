//! A movie reproduces its game: replayed on another machine it reaches the same states, and a machine that diverges is
//! detected.

use crate::common::{SessionSetup, TestSession, at, lossy_link, ms, secs};
use coplay::frame::Frame;
use coplay::movie::{HashComparison, MovieEntry, MovieReader, MovieStartPoint, MovieWriter};
use coplay::session::Session;
use coplay_sim::toy_machine::ToyMachine;

/// Writes all frames confirmed since the last call into the movie. Returns their number.
fn record_confirmed(session: &mut Session, writer: &mut MovieWriter, file: &mut Vec<u8>) -> usize {
    let mut frames = 0;
    while let Some(confirmed) = session.poll_confirmed() {
        writer.push(confirmed.frame, confirmed.inputs).expect("frames come in order");
        if let Some(hash) = confirmed.hash {
            writer.push_hash(confirmed.frame, hash).expect("a hash after its frame");
        }
        while let Some(bytes) = writer.poll_bytes() {
            file.extend_from_slice(bytes);
        }
        frames += 1;
    }
    frames
}

/// Plays a game with rollbacks and packet loss. Returns it with the movie of each site.
fn play_and_record() -> (TestSession, Vec<Vec<u8>>) {
    let mut game =
        SessionSetup { input_delay: 2, prediction_window: 8, ..SessionSetup::new(2, lossy_link(140, 0.1)) }.start();
    let settings = game.network.nodes[0].session.settings().clone();
    let mut writers: Vec<MovieWriter> =
        (0..2).map(|_| MovieWriter::new(&settings, MovieStartPoint::PowerOn).expect("valid settings")).collect();
    let mut files = vec![Vec::new(); 2];
    while game.now() < at(secs(40)) {
        game.run_for(ms(200));
        for ((site, writer), file) in game.network.nodes.iter_mut().zip(&mut writers).zip(&mut files) {
            record_confirmed(&mut site.session, writer, file);
        }
    }
    for (writer, file) in writers.iter_mut().zip(&mut files) {
        writer.finish().expect("room for the end");
        while let Some(bytes) = writer.poll_bytes() {
            file.extend_from_slice(bytes);
        }
    }
    (game, files)
}

#[derive(Debug, Default)]
struct ReplayResult {
    state_hashes: Vec<u64>,
    checked: HashComparison,
    is_complete: bool,
}

/// Replays a movie, up to its end or the first error, on a new machine. The machine's state is corrupted after frame
/// `diverges_at`, if given.
fn replay(mut rest: &[u8], diverges_at: Option<u32>) -> ReplayResult {
    let (mut reader, mut machine, mut replayed) = (MovieReader::new(), ToyMachine::new(2), ReplayResult::default());
    loop {
        rest = &rest[reader.push(rest)..];
        match reader.poll() {
            Ok(Some(MovieEntry::Frame { frame, words })) => {
                machine.step(words);
                if diverges_at == Some(frame.number()) {
                    machine.corrupt_state();
                }
                replayed.state_hashes.push(machine.hash());
            }
            Ok(Some(MovieEntry::Hash { frame, hash })) => _ = replayed.checked.on_hash(frame, hash, machine.hash()),
            Ok(Some(MovieEntry::End { .. })) => {
                replayed.is_complete = true;
                return replayed;
            }
            Ok(Some(_)) => {}
            Ok(None) if rest.is_empty() => reader.end_input(),
            Ok(None) => {}
            Err(_) => return replayed,
        }
    }
}

#[test]
fn movie_of_a_game_with_rollback_and_loss_replays_identically() {
    let (game, files) = play_and_record();
    assert!(game.stats(0).rollbacks > 50, "only {} rollbacks", game.stats(0).rollbacks);
    for (site, file) in files.iter().enumerate() {
        let replayed = replay(file, None);
        let frames = replayed.state_hashes.len();
        println!("site {site}: {frames} frames in {} bytes, {} hashes", file.len(), replayed.checked.compared);
        assert!(replayed.is_complete && frames > 2_000, "{frames} frames");
        assert_eq!(replayed.state_hashes[..], game.state_hashes[site][..frames]);
        assert!(frames + 1 >= game.state_hashes[site].len(), "{frames} of {}", game.state_hashes[site].len());
        assert!(replayed.checked.is_equal());
        assert_eq!(replayed.checked.compared, frames as u64 / 60, "every 60th state is hashed");
    }
    game.assert_consistent();
}

#[test]
fn truncated_movie_replays_up_to_the_cut() {
    let (game, files) = play_and_record();
    let file = &files[0];
    let mut longest = 0;
    for cut in (0..file.len()).step_by(97) {
        let replayed = replay(&file[..cut], None);
        let frames = replayed.state_hashes.len();
        assert!(!replayed.is_complete && frames >= longest);
        assert_eq!(replayed.state_hashes[..], game.state_hashes[0][..frames]);
        longest = frames;
    }
    assert!(longest > 1_500, "{longest}");
}

#[test]
fn replay_divergence_is_detected_at_the_next_hash() {
    let (_, files) = play_and_record();
    for (diverges_at, equal, different) in
        [(0, None, 59), (59, None, 59), (60, Some(59), 119), (1_000, Some(959), 1_019)]
    {
        let checked = replay(&files[1], Some(diverges_at)).checked;
        assert_eq!(checked.first_mismatch, Some(Frame::new(different)), "diverges in frame {diverges_at}");
        assert_eq!(checked.last_equal, equal.map(Frame::new), "diverges in frame {diverges_at}");
    }
}
