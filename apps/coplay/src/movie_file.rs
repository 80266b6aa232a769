//! A movie from a file, one thing after the other.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use coplay::frame::Frame;
use coplay::input::{InputWord, MAX_PLAYERS};
use coplay::movie::{MovieEntry, MovieError, MovieReader};
use coplay::session::Settings;

use crate::error::{AppError, describe_io_error};

/// Bytes read at once.
const READ_SIZE: usize = 1 << 16;

/// A movie that is being read.
#[derive(Debug)]
pub struct MovieFile {
    path: PathBuf,
    file: File,
    reader: MovieReader,
    buffer: Vec<u8>,
    /// The part of the piece that the reader has not taken yet.
    unread: std::ops::Range<usize>,
}

/// What comes next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MovieItem {
    /// The machine is put into a state before the first frame.
    Snapshot(Vec<u8>),
    /// A frame, with one word per player.
    Frame([InputWord; MAX_PLAYERS]),
    /// The state after the last frame had this hash.
    Hash(Frame, u64),
    /// Something happens to the machine.
    Mark(Vec<u8>),
    /// The movie is whole, and over.
    End,
    /// It goes no further: what came before is good.
    Broken(MovieError),
}

impl MovieFile {
    /// Opens a file, and reads as far as what was played.
    pub fn open(path: &Path) -> Result<Self, AppError> {
        let unreadable = |error: std::io::Error| {
            AppError::failure(format!("the movie {} cannot be read: {}", path.display(), describe_io_error(&error)))
        };
        if path.is_dir() {
            return Err(AppError::failure(format!("{} is a directory, not a movie", path.display()))
                .hint("name one file that `coplay play --record` made"));
        }
        let file = File::open(path).map_err(unreadable).map_err(|trouble| trouble.hint("is the name right?"))?;
        let mut film =
            Self { path: path.to_owned(), file, reader: MovieReader::new(), buffer: vec![0; READ_SIZE], unread: 0..0 };
        match film.read_item()? {
            None => Ok(film),
            Some(MovieItem::Broken(error)) => Err(film.open_error(error)),
            Some(_) => Err(film.open_error(MovieError::Damaged { frame: Frame::ZERO })),
        }
    }

    fn open_error(&self, error: MovieError) -> AppError {
        let path = self.path.display();
        match error {
            MovieError::NotAMovie => AppError::failure(format!("{path} is not a movie"))
                .hint("movies are made by `coplay play --record FILE`"),
            MovieError::UnsupportedVersion(version) => {
                AppError::failure(format!("{path} is a movie of format {version}, which this program does not know"))
                    .hint("a newer coplay may play it")
            }
            MovieError::Damaged { .. } => {
                AppError::failure(format!("{path} is damaged at its very beginning")).hint("try another copy")
            }
            MovieError::Truncated { .. } => AppError::failure(format!("{path} breaks off before its first frame"))
                .hint("it is empty, or was not copied as a whole"),
        }
    }

    /// What was played.
    pub fn settings(&self) -> &Settings {
        self.reader.settings().expect("a film is open only when its header was read")
    }

    /// The frame that comes next.
    pub fn next_frame(&self) -> Frame {
        self.reader.next_frame()
    }

    /// What comes next.
    pub fn next_item(&mut self) -> Result<MovieItem, AppError> {
        loop {
            if let Some(next) = self.read_item()? {
                return Ok(next);
            }
        }
    }

    /// What comes next; `None` for the header.
    fn read_item(&mut self) -> Result<Option<MovieItem>, AppError> {
        loop {
            match self.reader.poll() {
                Err(error) => return Ok(Some(MovieItem::Broken(error))),
                Ok(Some(entry)) => return Ok(to_owned_item(entry)),
                Ok(None) => {}
            }
            self.feed_reader()?;
        }
    }

    fn feed_reader(&mut self) -> Result<(), AppError> {
        if self.unread.is_empty() {
            let read = self.file.read(&mut self.buffer).map_err(|error| {
                AppError::failure(format!(
                    "the movie {} cannot be read: {}",
                    self.path.display(),
                    describe_io_error(&error)
                ))
            })?;
            self.unread = 0..read;
            if read == 0 {
                self.reader.end_input();
            }
        }
        self.unread.start += self.reader.push(&self.buffer[self.unread.clone()]);
        Ok(())
    }
}

fn to_owned_item(entry: MovieEntry<'_>) -> Option<MovieItem> {
    Some(match entry {
        MovieEntry::Header { .. } => return None,
        MovieEntry::Snapshot { state, .. } => MovieItem::Snapshot(state.to_vec()),
        MovieEntry::Frame { words, .. } => {
            let mut all = [0; MAX_PLAYERS];
            all[..words.len()].copy_from_slice(words);
            MovieItem::Frame(all)
        }
        MovieEntry::Hash { frame, hash } => MovieItem::Hash(frame, hash),
        MovieEntry::Mark { bytes, .. } => MovieItem::Mark(bytes.to_vec()),
        MovieEntry::End { .. } => MovieItem::End,
    })
}
