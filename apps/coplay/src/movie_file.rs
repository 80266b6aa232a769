//! Reads a movie from a file, item by item, without loading the whole file.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use coplay::frame::Frame;
use coplay::input::{InputWord, MAX_PLAYERS};
use coplay::movie::{MovieEntry, MovieError, MovieReader};
use coplay::session::Settings;
use coplay_shell::error::{AppError, describe_io_error};

/// Number of bytes requested per read of the file.
const READ_SIZE: usize = 1 << 16;

/// Movie file that is open for reading, and whose header has been read.
#[derive(Debug)]
pub struct MovieFile {
    path: PathBuf,
    file: File,
    reader: MovieReader,
    buffer: Vec<u8>,
    /// Part of the buffer that the reader has not taken yet.
    unread: std::ops::Range<usize>,
}

/// Item of a movie after its header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MovieItem {
    /// State that the machine loads before the first frame.
    Snapshot(Vec<u8>),
    /// Inputs of the next frame: one word per player, 0 beyond the movie's players.
    Frame([InputWord; MAX_PLAYERS]),
    /// Frame, and the recorded state hash after it.
    Hash(Frame, u64),
    /// Content of a mark, which states an event of the machine before the next frame, such as a reset.
    Mark(Vec<u8>),
    /// End of a movie that was finished properly.
    End,
    /// Error of the file that ends the movie. All items before it are valid.
    Broken(MovieError),
}

impl MovieFile {
    /// Opens a file and reads its header. Fails unless the file is a movie of a known version with an intact header.
    pub fn open(path: &Path) -> Result<Self, AppError> {
        let unreadable = |error: std::io::Error| {
            AppError::failure(format!("cannot read the movie {}: {}", path.display(), describe_io_error(&error)))
        };
        if path.is_dir() {
            return Err(AppError::failure(format!("{} is a folder, not a movie", path.display()))
                .hint("give a file that `coplay play --record FILE` wrote"));
        }
        let file = File::open(path).map_err(unreadable).map_err(|error| error.hint("check the path of the movie"))?;
        let mut movie =
            Self { path: path.to_owned(), file, reader: MovieReader::new(), buffer: vec![0; READ_SIZE], unread: 0..0 };
        match movie.read_item()? {
            None => Ok(movie),
            Some(MovieItem::Broken(error)) => Err(movie.open_error(error)),
            Some(_) => Err(movie.open_error(MovieError::Damaged { frame: Frame::ZERO })),
        }
    }

    fn open_error(&self, error: MovieError) -> AppError {
        let path = self.path.display();
        match error {
            MovieError::NotAMovie => {
                AppError::failure(format!("{path} is not a movie")).hint("give a movie of `coplay play --record FILE`")
            }
            MovieError::UnsupportedVersion(version) => AppError::failure(format!(
                "{path} is a movie of format {version}, which this version of coplay cannot read"
            ))
            .hint("try a newer version of coplay"),
            MovieError::Damaged { .. } => {
                AppError::failure(format!("the header of {path} is damaged")).hint("try another copy of the file")
            }
            MovieError::Truncated { .. } => AppError::failure(format!("{path} ends before its first frame"))
                .hint("copy the whole file again: this copy is empty or incomplete"),
        }
    }

    /// Returns the settings of the recorded game, from the header.
    pub fn settings(&self) -> &Settings {
        self.reader.settings().expect("`open` has read the header")
    }

    /// Returns the number of the next frame to be read.
    pub fn next_frame(&self) -> Frame {
        self.reader.next_frame()
    }

    /// Reads the next item. Fails if the file cannot be read; a damaged movie gives [`MovieItem::Broken`].
    pub fn next_item(&mut self) -> Result<MovieItem, AppError> {
        loop {
            if let Some(item) = self.read_item()? {
                return Ok(item);
            }
        }
    }

    /// Reads the next entry of the movie; `None` if it was the header.
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
                    "cannot read the movie {}: {}",
                    self.path.display(),
                    describe_io_error(&error)
                ))
                .hint("try another copy of the file")
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
