//! Records panics, and reports a panic that ends the run as one error message.

use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::sync::{Mutex, PoisonError};

use crate::error::AppError;

/// Message and location of the last panic; `None` if there was none, or if [`internal_error`] has taken it.
static LAST_PANIC: Mutex<Option<String>> = Mutex::new(None);

/// What happens at once with a panic of a thread other than the main thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadPanics {
    /// It is printed to stderr: the program continues without the thread.
    Printed,
    /// It is not printed: the program reports it if it ends the run, and others, such as those that a machine catches,
    /// must not disturb the picture in a terminal.
    Hidden,
}

/// Installs a panic hook that records panics.
pub fn install(threads: ThreadPanics) {
    std::panic::set_hook(Box::new(move |info| {
        let panic = describe_panic(info);
        if let (ThreadPanics::Printed, Some(name)) = (threads, other_thread_name()) {
            eprintln!("error: internal error in thread {name}: {panic}\nhint: {REPORT_HINT}");
        }
        *LAST_PANIC.lock().unwrap_or_else(PoisonError::into_inner) = Some(panic);
    }));
}

/// Runs a command, and converts a panic into an error that asks for a bug report.
pub fn catch<T>(command: impl FnOnce() -> Result<T, AppError>) -> Result<T, AppError> {
    catch_unwind(AssertUnwindSafe(command)).unwrap_or_else(|_| Err(internal_error()))
}

/// Takes the last panic and converts it into an error that asks for a bug report.
pub fn internal_error() -> AppError {
    let last = LAST_PANIC.lock().unwrap_or_else(PoisonError::into_inner).take();
    let message = last.unwrap_or_else(|| "unknown cause".into());
    AppError::failure(format!("internal error: {message}")).hint(REPORT_HINT)
}

const REPORT_HINT: &str = "please report this bug, with the command you typed";

fn describe_panic(info: &PanicHookInfo<'_>) -> String {
    let location = info.location().map_or_else(String::new, |at| format!(" in {}, line {}", at.file(), at.line()));
    format!("{}{location}", info.payload_as_str().unwrap_or("unknown cause"))
}

/// Returns the name of the current thread; `None` for the main thread.
fn other_thread_name() -> Option<String> {
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("without a name");
    (name != "main").then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panic_becomes_an_error_with_its_message_and_place() {
        install(ThreadPanics::Hidden);
        let outcome: Result<(), AppError> = catch(|| panic!("the sum is wrong"));
        _ = std::panic::take_hook();
        let text = outcome.unwrap_err().to_string();
        assert!(text.starts_with("error: internal error: the sum is wrong in ") && text.contains(", line "), "{text}");
        assert!(text.ends_with("\nhint: please report this bug, with the command you typed"), "{text}");
    }
}
