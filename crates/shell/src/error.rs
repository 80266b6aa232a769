//! Errors for the user: one sentence, and a hint if the user can fix the problem.

use std::fmt;

/// Kind of an error, which decides the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppErrorKind {
    /// Invalid command line, or invalid answer to a prompt: exit code 2.
    Usage,
    /// Valid command that failed: exit code 1.
    Failure,
    /// Signal before the command had a result: exit code 130, which shells report for Ctrl-C.
    Interrupted,
    /// Failure of another program that this one started, and that printed the error itself: its exit code.
    Printed(u8),
}

/// Error that ends a command: its kind, a message, and a hint if the user can do something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppError {
    kind: AppErrorKind,
    message: String,
    hint: Option<String>,
}

impl AppError {
    /// Creates an error for an invalid command line, or for an invalid answer to a prompt.
    pub fn usage(message: impl Into<String>) -> Self {
        Self { kind: AppErrorKind::Usage, message: message.into(), hint: None }
    }

    /// Creates an error for a command that failed.
    pub fn failure(message: impl Into<String>) -> Self {
        Self { kind: AppErrorKind::Failure, message: message.into(), hint: None }
    }

    /// Creates an error for a command that a signal ended before it had a result.
    pub fn interrupted(message: impl Into<String>) -> Self {
        Self { kind: AppErrorKind::Interrupted, message: message.into(), hint: None }
    }

    /// Creates an error that another program has printed; this program ends with the same exit code.
    pub fn printed(exit_code: u8) -> Self {
        Self { kind: AppErrorKind::Printed(exit_code), message: "another program failed".into(), hint: None }
    }

    /// Sets the hint: the next thing that the user should try.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Formats the message as a note without the hint, for a program that continues.
    pub fn as_note(&self) -> String {
        format!("note: {}", self.message)
    }

    /// Prints the error to stderr, unless another program has printed it.
    pub fn print(&self) {
        if !matches!(self.kind, AppErrorKind::Printed(_)) {
            eprintln!("{self}");
        }
    }

    /// Returns the exit code of a program that ends with this error.
    pub fn exit_code(&self) -> u8 {
        match self.kind {
            AppErrorKind::Usage => 2,
            AppErrorKind::Failure => 1,
            AppErrorKind::Interrupted => 130,
            AppErrorKind::Printed(code) => code,
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

/// Returns a phrase about an I/O error, which follows the path of the file or folder and a colon in a message.
pub fn describe_io_error(error: &std::io::Error) -> String {
    use std::io::ErrorKind as E;
    match error.kind() {
        E::NotFound => "there is no such file or folder".into(),
        E::PermissionDenied => "permission denied".into(),
        E::IsADirectory => "it is a folder".into(),
        E::NotADirectory => "a part of the path is not a folder".into(),
        E::StorageFull => "the disk is full".into(),
        E::ReadOnlyFilesystem => "the file system is read-only".into(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_and_hint_are_two_lines() {
        let error = AppError::usage("that is not a number").hint("try 3");
        assert_eq!(error.to_string(), "error: that is not a number\nhint: try 3");
        assert_eq!((error.exit_code(), AppError::failure("no").exit_code()), (2, 1));
    }
}
