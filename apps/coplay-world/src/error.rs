//! What went wrong, as a person is told: one sentence, and a hint where something can be done about it.

use std::fmt;

/// A sentence about what went wrong, a hint, and the exit code of a program that ends with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CliError {
    message: String,
    hint: String,
    code: u8,
}

impl CliError {
    /// The command cannot be carried out as it was given.
    pub fn usage_error(what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { message: what.into(), hint: hint.into(), code: 2 }
    }

    /// The command could not be carried out.
    pub fn failure(what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { message: what.into(), hint: hint.into(), code: 1 }
    }

    /// The exit code of a program that ends with this.
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

/// What the system says about an address to listen at.
pub fn bind_error_message(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::AddrInUse => "the port is taken by another program".into(),
        std::io::ErrorKind::AddrNotAvailable => "it is no address of this computer".into(),
        std::io::ErrorKind::PermissionDenied => "that is not permitted".into(),
        _ => error.to_string(),
    }
}
