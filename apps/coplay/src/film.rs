//! A movie from a file, one thing after the other.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use coplay::frame::Frame;
use coplay::input::{InputWord, MAX_PLAYERS};
use coplay::movie::{MovieEntry, MovieError, MovieReader};
use coplay::session::Settings;

use crate::trouble::{Trouble, in_words};

/// Bytes read at once.
const PIECE: usize = 1 << 16;

/// A movie that is being read.
#[derive(Debug)]
pub struct Film {
    path: PathBuf,
    file: File,
    reader: MovieReader,
    piece: Vec<u8>,
    /// The part of the piece that the reader has not taken yet.
    rest: std::ops::Range<usize>,
}

/// What comes next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
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

impl Film {
    /// Opens a file, and reads as far as what was played.
    pub fn open(path: &Path) -> Result<Self, Trouble> {
        let unreadable = |error: std::io::Error| {
            Trouble::failure(format!("the movie {} cannot be read: {}", path.display(), in_words(&error)))
        };
        if path.is_dir() {
            return Err(Trouble::failure(format!("{} is a directory, not a movie", path.display()))
                .hint("name one file that `coplay play --record` made"));
        }
        let file = File::open(path).map_err(unreadable).map_err(|trouble| trouble.hint("is the name right?"))?;
        let mut film =
            Self { path: path.to_owned(), file, reader: MovieReader::new(), piece: vec![0; PIECE], rest: 0..0 };
        match film.advance()? {
            None => Ok(film),
            Some(Next::Broken(error)) => Err(film.unplayable(error)),
            Some(_) => Err(film.unplayable(MovieError::Damaged { frame: Frame::ZERO })),
        }
    }

    fn unplayable(&self, error: MovieError) -> Trouble {
        let path = self.path.display();
        match error {
            MovieError::NotAMovie => Trouble::failure(format!("{path} is not a movie"))
                .hint("movies are made by `coplay play --record FILE`"),
            MovieError::UnsupportedVersion(version) => {
                Trouble::failure(format!("{path} is a movie of format {version}, which this program does not know"))
                    .hint("a newer coplay may play it")
            }
            MovieError::Damaged { .. } => {
                Trouble::failure(format!("{path} is damaged at its very beginning")).hint("try another copy")
            }
            MovieError::Truncated { .. } => Trouble::failure(format!("{path} breaks off before its first frame"))
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
    pub fn poll(&mut self) -> Result<Next, Trouble> {
        loop {
            if let Some(next) = self.advance()? {
                return Ok(next);
            }
        }
    }

    /// What comes next; `None` for the header.
    fn advance(&mut self) -> Result<Option<Next>, Trouble> {
        loop {
            match self.reader.poll() {
                Err(error) => return Ok(Some(Next::Broken(error))),
                Ok(Some(entry)) => return Ok(copy(entry)),
                Ok(None) => {}
            }
            self.feed()?;
        }
    }

    fn feed(&mut self) -> Result<(), Trouble> {
        if self.rest.is_empty() {
            let read = self.file.read(&mut self.piece).map_err(|error| {
                Trouble::failure(format!("the movie {} cannot be read: {}", self.path.display(), in_words(&error)))
            })?;
            self.rest = 0..read;
            if read == 0 {
                self.reader.end_input();
            }
        }
        self.rest.start += self.reader.push(&self.piece[self.rest.clone()]);
        Ok(())
    }
}

fn copy(entry: MovieEntry<'_>) -> Option<Next> {
    Some(match entry {
        MovieEntry::Header { .. } => return None,
        MovieEntry::Snapshot { state, .. } => Next::Snapshot(state.to_vec()),
        MovieEntry::Frame { words, .. } => {
            let mut all = [0; MAX_PLAYERS];
            all[..words.len()].copy_from_slice(words);
            Next::Frame(all)
        }
        MovieEntry::Hash { frame, hash } => Next::Hash(frame, hash),
        MovieEntry::Mark { bytes, .. } => Next::Mark(bytes.to_vec()),
        MovieEntry::End { .. } => Next::End,
    })
}
