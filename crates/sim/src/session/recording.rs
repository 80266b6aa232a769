//! One site keeps a movie of the game, which must be what was played, whole or cut off.

use coplay::movie::{MovieEntry, MovieError, MovieReader, MovieStart, MovieWriter};
use coplay::session::{Session, Settings};
use coplay::time::TimeDelta;

use crate::random::Random;
use crate::session::checker::SessionChecker;

/// Frames are taken so often.
pub const RECORD_INTERVAL: TimeDelta = TimeDelta::from_millis(50);
/// How many of all scenarios are recorded.
const RECORDED_SHARE: f64 = 0.2;

/// A movie in the making.
#[derive(Debug)]
pub struct MovieRecording {
    site: usize,
    writer: MovieWriter,
    bytes: Vec<u8>,
    compare_every: u32,
    random: Random,
    write_error: Option<String>,
}

/// The site that keeps a movie, if one does.
pub fn draw_movie_site(seed: u64, starters: usize) -> Option<usize> {
    let mut luck = Random::stream(seed, "movie");
    luck.chance(RECORDED_SHARE).then(|| luck.below(starters as u64) as usize)
}

impl MovieRecording {
    /// A movie from the first frame on.
    pub fn new(seed: u64, site: usize, settings: &Settings) -> Self {
        Self {
            site,
            writer: MovieWriter::new(settings, MovieStart::PowerOn).expect("the settings are sound"),
            bytes: Vec::new(),
            compare_every: settings.compare_interval,
            random: Random::stream(seed, "movie at work"),
            write_error: None,
        }
    }

    /// Whose movie it is.
    pub fn site(&self) -> usize {
        self.site
    }

    /// Takes what has become certain.
    pub fn record_confirmed_frames(&mut self, session: &mut Session) {
        while let Some(certain) = session.poll_certain() {
            let written = self.writer.push(certain.frame, certain.inputs);
            let hashed = certain.hash.map_or(Ok(()), |hash| self.writer.push_hash(certain.frame, hash));
            if let Err(error) = written.and(hashed) {
                self.write_error.get_or_insert(error.to_string());
            }
            while let Some(bytes) = self.writer.poll_bytes() {
                self.bytes.extend_from_slice(bytes);
            }
        }
    }

    /// What is on record is what the site did; and so is what is left when the end is missing.
    pub fn check(mut self, ledger: &mut SessionChecker) {
        if let Err(error) = self.writer.finish() {
            self.write_error.get_or_insert(error.to_string());
        }
        while let Some(bytes) = self.writer.poll_bytes() {
            self.bytes.extend_from_slice(bytes);
        }
        let cut = self.random.below(self.bytes.len() as u64) as usize;
        let whole = self.read_back(&self.bytes, ledger).and_then(|(frames, error)| match error {
            None => Ok(frames),
            Some(error) => Err(error.to_string()),
        });
        let part = self.read_back(&self.bytes[..cut], ledger).and_then(|(frames, error)| match error {
            Some(MovieError::Truncated { frame }) if frame.number() == frames => Ok(()),
            error => Err(format!("is cut off after {frames} frames, which is told as {error:?}")),
        });
        ledger.movie_frames += whole.as_ref().map_or(0, |frames| u64::from(*frames));
        let complete = whole.and_then(|frames| match self.is_missing_frame(frames, ledger) {
            true => Err(format!("ends before frame {frames}")),
            false => Ok(()),
        });
        for wrong in [complete, part].into_iter().filter_map(Result::err).chain(self.write_error.take()) {
            ledger.report_violation("movie", format!("the movie of site {} {wrong}", self.site));
        }
    }

    /// Reads as far as it can be read; says how many frames there were, and what stopped it.
    fn read_back(&self, mut rest: &[u8], ledger: &SessionChecker) -> Result<(u32, Option<MovieError>), String> {
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
                        return Err(format!("has no hash of the state after frame {}", frames - 1));
                    }
                    let told = ledger.first_incarnation_frame(self.site, frame.number() as usize);
                    if frame.number() != frames || told.is_some_and(|(theirs, _)| theirs != words) {
                        return Err(format!("has other inputs in frame {frame}"));
                    }
                    frames += 1;
                }
                Some(MovieEntry::Hash { frame, hash }) => {
                    let told = ledger.first_incarnation_frame(self.site, frame.number() as usize);
                    if told.is_some_and(|(_, theirs)| theirs != hash) {
                        return Err(format!("has another state after frame {frame}"));
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

    /// Whether more was played than so many frames. A last one whose state was just being hashed is not told yet.
    fn is_missing_frame(&self, frames: u32, ledger: &SessionChecker) -> bool {
        let hashed = self.compare_every > 0 && (frames + 1).is_multiple_of(self.compare_every);
        ledger.first_incarnation_frame(self.site, (frames + u32::from(hashed)) as usize).is_some()
    }

    /// Whether the last of so many frames should have come with a hash, and did not.
    fn is_missing_hash(&self, frames: u32, hashed: Option<u32>) -> bool {
        let due = frames > 0 && self.compare_every > 0 && frames.is_multiple_of(self.compare_every);
        due && hashed != frames.checked_sub(1)
    }
}
