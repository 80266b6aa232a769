//! What went wrong, as a person is told: one sentence, and a hint where something can be done about it.

use std::fmt;

/// Who has to do something about it, which decides the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppErrorKind {
    /// The command was given wrongly: exit code 2.
    Usage,
    /// It was given well and did not work: exit code 1.
    Failure,
    /// Somebody outside ended it before it came to anything: exit code 130, as shells have it for Ctrl-C.
    Interrupted,
}

/// A sentence about what went wrong, and a hint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppError {
    kind: AppErrorKind,
    message: String,
    hint: Option<String>,
}

impl AppError {
    /// The command cannot be carried out as it was given.
    pub fn usage(what: impl Into<String>) -> Self {
        Self { kind: AppErrorKind::Usage, message: what.into(), hint: None }
    }

    /// The command could not be carried out.
    pub fn failure(what: impl Into<String>) -> Self {
        Self { kind: AppErrorKind::Failure, message: what.into(), hint: None }
    }

    /// Somebody asked us to end before it came to anything.
    pub fn interrupted(what: impl Into<String>) -> Self {
        Self { kind: AppErrorKind::Interrupted, message: what.into(), hint: None }
    }

    /// With what to do about it.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// As a note, where it is got over.
    pub fn as_note(&self) -> String {
        format!("note: {}", self.message)
    }

    /// The exit code of a program that ends with this.
    pub fn exit_code(&self) -> u8 {
        match self.kind {
            AppErrorKind::Usage => 2,
            AppErrorKind::Failure => 1,
            AppErrorKind::Interrupted => 130,
        }
    }
}

impl fmt::Display for AppError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", self.message)?;
        match &self.hint {
            Some(hint) => write!(f, "\nhint: {hint}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for AppError {}

/// What the system says about a file, in words that follow its name.
pub fn describe_io_error(error: &std::io::Error) -> String {
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
    fn error_and_hint_are_two_lines() {
        let trouble = AppError::usage("that is not a number").hint("try 3");
        assert_eq!(trouble.to_string(), "error: that is not a number\nhint: try 3");
        assert_eq!((trouble.exit_code(), AppError::failure("no").exit_code()), (2, 1));
    }
}
