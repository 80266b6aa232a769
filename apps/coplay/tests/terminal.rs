//! Games in a terminal: the program draws them, restores the terminal at its end and on Ctrl+C, and ends when the
//! terminal is closed.
#![cfg(target_os = "linux")]

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::common::{Outcome, TestDir};

/// Runs the program in a terminal of its own without a display, types `typed` after 4 s, and returns all bytes sent to
/// the terminal.
fn run_in_terminal(dir: &TestDir, args: &str, typed: &[u8]) -> String {
    run_in_terminal_with_display(dir, args, typed, "")
}

/// Does the same as [`run_in_terminal`], with this value of `DISPLAY`.
fn run_in_terminal_with_display(dir: &TestDir, args: &str, typed: &[u8], display: &str) -> String {
    let mut command = Command::new("script");
    dir.isolate(&mut command);
    command.env("DISPLAY", display);
    let program = format!("stty cols 80 rows 30; {} {args}; echo CODE $?", crate::PROGRAM);
    command.args(["-qc", &program, "/dev/null"]).env("COLORTERM", "truecolor").stdin(Stdio::piped());
    let mut child = command.spawn().expect("script comes with every Linux");
    let mut stdin = child.stdin.take().unwrap();
    // The program queries the capabilities of the terminal. Keys typed before the answer would be read as the answer.
    std::thread::sleep(Duration::from_secs(4));
    stdin.write_all(typed).unwrap();
    let outcome = Outcome::from(child.wait_with_output().unwrap());
    drop(stdin);
    outcome.out
}

fn assert_terminal_restored(sent: &str) {
    let shown = sent.rfind('▀').expect("half blocks were shown");
    for sequence in ["\x1b[?25h", "\x1b[?1049l"] {
        assert!(sent.rfind(sequence).is_some_and(|position| position > shown), "{sequence:?} is not sent at the end");
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
    assert!(sent.contains("note: cannot open a window") && sent.contains("CODE 0"), "{sent}");
}

#[test]
fn terminal_is_restored_on_ctrl_c() {
    let sent = run_in_terminal(&TestDir::new("tty-break"), "play --terminal --mute --bot 1", b"\x03");
    assert_terminal_restored(&sent);
    assert!(sent.contains("CODE 0"));
}

#[test]
fn help_key_shows_the_keys() {
    let dir = TestDir::new("tty-keys");
    let sent = run_in_terminal(&dir, "demo --terminal --mute --frames 420 --screenshot shot.txt", b"?");
    assert_terminal_restored(&sent);
    let shot = std::fs::read_to_string(dir.path_of("shot.txt")).unwrap();
    assert!(shot.contains("Keys") && shot.contains("select the next dial"), "{shot}");
}

/// Returns whether a process still runs; a zombie does not.
fn is_running(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with('Z'))
}

#[test]
fn program_ends_when_the_terminal_is_closed() {
    let dir = TestDir::new("tty-closed");
    let pid_file = dir.path_of("pid");
    let mut command = Command::new("script");
    dir.isolate(&mut command);
    let program = format!("echo $$ > {}; exec {} play --terminal --mute --bot 1", pid_file.display(), crate::PROGRAM);
    command.args(["-qc", &program, "/dev/null"]).stdin(Stdio::piped()).stdout(Stdio::null());
    let mut child = command.spawn().expect("script comes with every Linux");
    std::thread::sleep(Duration::from_secs(4));
    let pid = std::fs::read_to_string(&pid_file).expect("the program was started").trim().to_owned();
    assert!(is_running(&pid));
    child.kill().expect("the terminal runs");
    child.wait().expect("the terminal was killed");
    let ended = (0..100).any(|_| {
        std::thread::sleep(Duration::from_millis(200));
        !is_running(&pid)
    });
    assert!(ended, "the program still runs without a terminal");
}
