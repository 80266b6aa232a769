//! Errors for the user: one sentence, and a hint with the next thing to try.

use std::fmt;

/// Error of a command: message, hint and exit code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CliError {
    message: String,
    hint: String,
    code: u8,
}

impl CliError {
    /// Creates an error for an invalid command line: exit code 2.
    pub fn usage_error(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { message: message.into(), hint: hint.into(), code: 2 }
    }

    /// Creates an error for a valid command that failed: exit code 1.
    pub fn failure(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { message: message.into(), hint: hint.into(), code: 1 }
    }

    /// Returns 2 for an invalid command line, 1 for a command that failed.
    pub fn exit_code(&self) -> u8 {
        self.code
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}\nhint: {}", self.message, self.hint)
    }
}

impl std::error::Error for CliError {}

/// Describes why a listening socket could not be opened.
pub fn bind_error_message(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::AddrInUse => "the port is already in use".into(),
        std::io::ErrorKind::AddrNotAvailable => "this computer does not have this address".into(),
        std::io::ErrorKind::PermissionDenied => "permission denied".into(),
        _ => error.to_string(),
    }
}
