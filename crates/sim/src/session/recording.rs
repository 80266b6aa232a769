//! Movie recording at one site. The movie, complete or truncated, must match the frames that the site confirmed.

use coplay::movie::{MovieEntry, MovieError, MovieReader, MovieStartPoint, MovieWriter};
use coplay::session::{Session, Settings};
use coplay::time::TimeDelta;

use crate::session::checker::SessionChecker;
use coplay_links::random::Random;

/// Interval of virtual time at which newly confirmed frames are recorded.
pub const RECORD_INTERVAL: TimeDelta = TimeDelta::from_millis(50);
/// Probability that a scenario records a movie.
const RECORDED_SHARE: f64 = 0.2;

/// Recorder of a movie at one site.
#[derive(Debug)]
pub struct MovieRecording {
    site: usize,
    writer: MovieWriter,
    bytes: Vec<u8>,
    compare_every: u32,
    random: Random,
    write_error: Option<String>,
}

/// Draws the number of the site that records a movie, below `starters`; `None` in 80 % of the scenarios. The stream
/// name is part of the seed and must not change.
pub fn draw_movie_site(seed: u64, starters: usize) -> Option<usize> {
    let mut random = Random::stream(seed, "movie");
    random.chance(RECORDED_SHARE).then(|| random.below(starters as u64) as usize)
}

impl MovieRecording {
    /// Starts a movie that begins at the first frame.
    pub fn new(seed: u64, site: usize, settings: &Settings) -> Self {
        Self {
            site,
            writer: MovieWriter::new(settings, MovieStartPoint::PowerOn).expect("settings are valid"),
            bytes: Vec::new(),
            compare_every: settings.compare_interval,
            random: Random::stream(seed, "movie at work"),
            write_error: None,
        }
    }

    /// Returns the number of the recording site.
    pub fn site(&self) -> usize {
        self.site
    }

    /// Writes to the movie the frames that the session confirmed since the last call, with their state hashes.
    pub fn record_confirmed_frames(&mut self, session: &mut Session) {
        while let Some(confirmed) = session.poll_confirmed() {
            let written = self.writer.push(confirmed.frame, confirmed.inputs);
            let hashed = confirmed.hash.map_or(Ok(()), |hash| self.writer.push_hash(confirmed.frame, hash));
            if let Err(error) = written.and(hashed) {
                self.write_error.get_or_insert(error.to_string());
            }
            while let Some(bytes) = self.writer.poll_bytes() {
                self.bytes.extend_from_slice(bytes);
            }
        }
    }

    /// Finishes the movie. Checks that the movie, and a copy that is cut off at a random byte, match the history of the
    /// site's first incarnation.
    pub fn check(mut self, checker: &mut SessionChecker) {
        if let Err(error) = self.writer.finish() {
            self.write_error.get_or_insert(error.to_string());
        }
        while let Some(bytes) = self.writer.poll_bytes() {
            self.bytes.extend_from_slice(bytes);
        }
        let cut = self.random.below(self.bytes.len() as u64) as usize;
        let complete = self.read_back(&self.bytes, checker).and_then(|(frames, error)| match error {
            None => Ok(frames),
            Some(error) => Err(error.to_string()),
        });
        let truncated = self.read_back(&self.bytes[..cut], checker).and_then(|(frames, error)| match error {
            Some(MovieError::Truncated { frame }) if frame.number() == frames => Ok(()),
            error => Err(format!("truncated after {frames} frames, but the reader reports {error:?}")),
        });
        checker.movie_frames += complete.as_ref().map_or(0, |frames| u64::from(*frames));
        let complete = complete.and_then(|frames| match self.is_missing_frame(frames, checker) {
            true => Err(format!("confirmed frame {frames} is missing")),
            false => Ok(()),
        });
        for error in [complete, truncated].into_iter().filter_map(Result::err).chain(self.write_error.take()) {
            checker.report_violation("movie", format!("the movie of site {}: {error}", self.site));
        }
    }

    /// Reads a movie as far as possible. Returns the number of frames and the error that stopped the reader, if any.
    /// Fails if a frame or a state hash differs from the site's history, or if a state hash is missing.
    fn read_back(&self, mut rest: &[u8], checker: &SessionChecker) -> Result<(u32, Option<MovieError>), String> {
        let (mut reader, mut frames, mut hashed) = (MovieReader::new(), 0, None);
        loop {
            rest = &rest[reader.push(rest)..];
            let entry = match reader.poll() {
                Ok(entry) => entry,
                Err(error) => return Ok((frames, Some(error))),
            };
            match entry {
                Some(MovieEntry::Frame { frame, words }) => {
                    if self.is_missing_hash(frames, hashed) {
                        return Err(format!("the state hash after frame {} is missing", frames - 1));
                    }
                    let reported = checker.first_incarnation_frame(self.site, frame.number() as usize);
                    if frame.number() != frames || reported.is_some_and(|(theirs, _)| theirs != words) {
                        return Err(format!("frame {frame} has different inputs than at the site"));
                    }
                    frames += 1;
                }
                Some(MovieEntry::Hash { frame, hash }) => {
                    let reported = checker.first_incarnation_frame(self.site, frame.number() as usize);
                    if reported.is_some_and(|(_, theirs)| theirs != hash) {
                        return Err(format!("the state hash after frame {frame} differs from the site's"));
                    }
                    hashed = Some(frame.number());
                }
                Some(MovieEntry::End { .. }) => return Ok((frames, None)),
                Some(_) => {}
                None if rest.is_empty() => reader.end_input(),
                None => {}
            }
        }
    }

    /// Returns whether a movie of `frames` frames lacks a frame that the site confirmed. The last confirmed frame may
    /// be missing while its state is being hashed.
    fn is_missing_frame(&self, frames: u32, checker: &SessionChecker) -> bool {
        let hashed = self.compare_every > 0 && (frames + 1).is_multiple_of(self.compare_every);
        checker.first_incarnation_frame(self.site, (frames + u32::from(hashed)) as usize).is_some()
    }

    /// Returns whether the movie should have a state hash after the last of `frames` frames and has none. `hashed` is
    /// the last frame with a hash.
    fn is_missing_hash(&self, frames: u32, hashed: Option<u32>) -> bool {
        let due = frames > 0 && self.compare_every > 0 && frames.is_multiple_of(self.compare_every);
        due && hashed != frames.checked_sub(1)
    }
}
