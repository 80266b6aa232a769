//! What went wrong, as a person is told: one sentence, and a hint where something can be done about it.

use std::fmt;

/// Who has to do something about it, which decides the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The command was given wrongly: exit code 2.
    Misuse,
    /// It was given well and did not work: exit code 1.
    Failure,
    /// Somebody outside ended it before it came to anything: exit code 130, as shells have it for Ctrl-C.
    Stopped,
}

/// A sentence about what went wrong, and a hint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    kind: Kind,
    what: String,
    hint: Option<String>,
}

impl Trouble {
    /// The command cannot be carried out as it was given.
    pub fn misuse(what: impl Into<String>) -> Self {
        Self { kind: Kind::Misuse, what: what.into(), hint: None }
    }

    /// The command could not be carried out.
    pub fn failure(what: impl Into<String>) -> Self {
        Self { kind: Kind::Failure, what: what.into(), hint: None }
    }

    /// Somebody asked us to end before it came to anything.
    pub fn stopped(what: impl Into<String>) -> Self {
        Self { kind: Kind::Stopped, what: what.into(), hint: None }
    }

    /// With what to do about it.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// As a note, where it is got over.
    pub fn as_note(&self) -> String {
        format!("note: {}", self.what)
    }

    /// The exit code of a program that ends with this.
    pub fn exit_code(&self) -> u8 {
        match self.kind {
            Kind::Misuse => 2,
            Kind::Failure => 1,
            Kind::Stopped => 130,
        }
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", self.what)?;
        match &self.hint {
            Some(hint) => write!(f, "\nhint: {hint}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Trouble {}

/// What the system says about a file, in words that follow its name.
pub fn in_words(error: &std::io::Error) -> String {
    use std::io::ErrorKind as E;
    match error.kind() {
        E::NotFound => "there is no such file".into(),
        E::PermissionDenied => "access is not permitted".into(),
        E::IsADirectory => "it is a directory".into(),
        E::NotADirectory => "a part of the path is not a directory".into(),
        E::StorageFull => "the disk is full".into(),
        E::ReadOnlyFilesystem => "the file system cannot be written to".into(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_and_a_hint_are_two_lines() {
        let trouble = Trouble::misuse("that is not a number").hint("try 3");
        assert_eq!(trouble.to_string(), "error: that is not a number\nhint: try 3");
        assert_eq!((trouble.exit_code(), Trouble::failure("no").exit_code()), (2, 1));
    }
}
