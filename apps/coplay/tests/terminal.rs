//! A game in a terminal: shows something, and gives the terminal back whatever ends it.
#![cfg(target_os = "linux")]

#[allow(dead_code, unreachable_pub, reason = "each test uses a part of it")]
mod common;

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{Outcome, TestDir};

/// Runs the program in a terminal of its own, types something, and hands out all that the terminal was sent.
fn run_in_terminal(place: &TestDir, args: &str, typed: &[u8]) -> String {
    run_in_terminal_with_display(place, args, typed, "")
}

/// The same where there seems to be a display.
fn run_in_terminal_with_display(place: &TestDir, args: &str, typed: &[u8], display: &str) -> String {
    let mut command = Command::new("script");
    place.isolate(&mut command);
    command.env("DISPLAY", display);
    let program = format!("stty cols 80 rows 30; {} {args}; echo CODE $?", env!("CARGO_BIN_EXE_coplay"));
    command.args(["-qc", &program, "/dev/null"]).env("COLORTERM", "truecolor").stdin(Stdio::piped());
    let mut child = command.spawn().expect("script comes with every Linux");
    let mut stdin = child.stdin.take().unwrap();
    // The program asks the terminal what it can do, and what is typed before that is taken for an answer.
    std::thread::sleep(Duration::from_secs(4));
    stdin.write_all(typed).unwrap();
    let outcome = Outcome::from(child.wait_with_output().unwrap());
    drop(stdin);
    outcome.out
}

fn assert_terminal_restored(sent: &str) {
    let shown = sent.rfind('▀').expect("half blocks were shown");
    for gift in ["\x1b[?25h", "\x1b[?1049l"] {
        assert!(sent.rfind(gift).is_some_and(|path_of| path_of > shown), "{gift:?} does not come at the end");
    }
}

#[test]
fn terminal_is_restored_when_the_game_ends() {
    let sent = run_in_terminal(&TestDir::new("tty-end"), "play --terminal --mute --frames 60 --bot 1", b"");
    assert_terminal_restored(&sent);
    assert!(sent.contains("CODE 0") && sent.contains("frames       60"), "{}", &sent[sent.len() - 400..]);
}

#[test]
fn terminal_is_used_when_no_window_opens() {
    let sent =
        run_in_terminal_with_display(&TestDir::new("tty-instead"), "play --mute --frames 60 --bot 1", b"", ":987");
    assert_terminal_restored(&sent);
    assert!(sent.contains("note: no window can be opened") && sent.contains("CODE 0"), "{sent}");
}

#[test]
fn terminal_is_restored_on_ctrl_c() {
    let sent = run_in_terminal(&TestDir::new("tty-break"), "play --terminal --mute --bot 1", b"\x03");
    assert_terminal_restored(&sent);
    assert!(sent.contains("CODE 0"));
}

#[test]
fn help_key_shows_the_keys() {
    let place = TestDir::new("tty-keys");
    let sent = run_in_terminal(&place, "demo --terminal --mute --frames 420 --screenshot shot.txt", b"?");
    assert_terminal_restored(&sent);
    let shot = std::fs::read_to_string(place.path_of("shot.txt")).unwrap();
    assert!(shot.contains("Keys") && shot.contains("choose the next dial"), "{shot}");
}

/// Whether a process still runs; one that nobody asks for its outcome does not.
fn is_running(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with('Z'))
}

#[test]
fn program_ends_when_the_terminal_is_closed() {
    let place = TestDir::new("tty-closed");
    let note = place.path_of("pid");
    let mut command = Command::new("script");
    place.isolate(&mut command);
    let program =
        format!("echo $$ > {}; exec {} play --terminal --mute --bot 1", note.display(), env!("CARGO_BIN_EXE_coplay"));
    command.args(["-qc", &program, "/dev/null"]).stdin(Stdio::piped()).stdout(Stdio::null());
    let mut child = command.spawn().expect("script comes with every Linux");
    std::thread::sleep(Duration::from_secs(4));
    let pid = std::fs::read_to_string(&note).expect("it was started").trim().to_owned();
    assert!(is_running(&pid));
    child.kill().expect("it runs");
    child.wait().expect("it was killed");
    let ended = (0..100).any(|_| {
        std::thread::sleep(Duration::from_millis(200));
        !is_running(&pid)
    });
    assert!(ended, "it plays on for nobody");
}
