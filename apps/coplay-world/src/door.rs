//! A door for those who look after servers: how it does, by HTTP.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use coplay::time::Instant as Time;
use coplay_net::clock;

use crate::metrics::Numbers;
use crate::trouble::{Trouble, in_words};

/// Who says nothing for so long is not listened to.
const PATIENCE: Duration = Duration::from_secs(2);
/// The longest question.
const MAX_REQUEST: usize = 4_096;

/// Who asks for all of the state waits for so long; then it is told what was known last.
const FOR_STATE: Duration = Duration::from_secs(1);

/// What is told at the door.
#[derive(Default)]
pub struct Board {
    newest: Mutex<Newest>,
    changed: Condvar,
}

/// The newest numbers.
#[derive(Default)]
struct Newest {
    numbers: Numbers,
    /// Somebody waits for numbers with a digest, as of now.
    is_asked: bool,
}

/// What is told at the door, for who tells it and for who asks.
pub type Notice = Arc<Board>;

impl Board {
    fn newest(&self) -> MutexGuard<'_, Newest> {
        self.newest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether somebody waits for numbers with a digest.
    pub fn is_asked(&self) -> bool {
        self.newest().is_asked
    }

    /// There are newer numbers.
    pub fn put(&self, numbers: Numbers) {
        let mut newest = self.newest();
        newest.is_asked &= numbers.digest.is_none();
        newest.numbers = numbers;
        self.changed.notify_all();
    }

    fn numbers(&self) -> Numbers {
        self.newest().numbers.clone()
    }

    /// All of the state as it is now, unless the world does not answer.
    fn state(&self) -> Numbers {
        let mut newest = self.newest();
        newest.is_asked = true;
        let waited = self.changed.wait_timeout_while(newest, FOR_STATE, |newest| newest.is_asked);
        waited.unwrap_or_else(PoisonError::into_inner).0.numbers.clone()
    }
}

/// Opens the door. One at a time is answered: whoever asks gets a short answer, or is shut out soon.
pub fn open(addr: SocketAddr, notice: Notice) -> Result<SocketAddr, Trouble> {
    let listener = TcpListener::bind(addr).map_err(|error| {
        let what = format!("nobody can be told by HTTP at {addr}: {}", in_words(&error));
        Trouble::failure(what, "choose another address with --http")
    })?;
    let here = listener.local_addr().unwrap_or(addr);
    let answer = move || {
        for stream in listener.incoming() {
            match stream {
                // Who does not listen to the end has its reasons.
                Ok(stream) => _ = serve(stream, &notice),
                // Too many files are open, perhaps: that passes, or it does not.
                Err(_) => std::thread::sleep(Duration::from_millis(50)),
            }
        }
    };
    let started = std::thread::Builder::new().name("http".into()).spawn(answer);
    started.map_err(|error| Trouble::failure(format!("nobody can be told by HTTP: {error}"), "leave --http out"))?;
    Ok(here)
}

fn serve(mut stream: TcpStream, notice: &Notice) -> std::io::Result<()> {
    let until = Instant::now() + PATIENCE;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut request = Vec::new();
    let mut part = [0; 1_024];
    while !request.windows(4).any(|end| end == b"\r\n\r\n") && request.len() < MAX_REQUEST {
        let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        stream.set_read_timeout(Some(left))?;
        if Instant::now() >= until {
            return Ok(());
        }
        match stream.read(&mut part)? {
            0 => break,
            len => request.extend_from_slice(&part[..len]),
        }
    }
    let (status, kind, body) = answer(&request, clock::now(), notice);
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())
}

fn answer(request: &[u8], now: Time, board: &Board) -> (&'static str, &'static str, String) {
    const TEXT: &str = "text/plain; charset=utf-8";
    let line = request.split(|byte| *byte == b'\r').next().unwrap_or_default();
    match line.strip_prefix(b"GET ").and_then(|rest| rest.split(|byte| *byte == b' ').next()) {
        Some(b"/metrics") => ("200 OK", "text/plain; version=0.0.4; charset=utf-8", board.numbers().prometheus(now)),
        Some(b"/state") => ("200 OK", "application/json", board.state().json()),
        Some(b"/health") => match health(&board.numbers(), now) {
            Ok(words) => ("200 OK", TEXT, format!("{words}\n")),
            Err(words) => ("503 Service Unavailable", TEXT, format!("{words}\n")),
        },
        Some(_) => ("404 Not Found", TEXT, "there are /health, /metrics and /state\n".into()),
        None => ("400 Bad Request", TEXT, "only GET is understood\n".into()),
    }
}

/// Whether players are well off here, in words.
fn health(numbers: &Numbers, now: Time) -> Result<&'static str, &'static str> {
    match numbers {
        _ if numbers.stands_still(now) => Err("the world stands still"),
        Numbers { drains: true, .. } => Err("draining"),
        Numbers { open: false, .. } => Err("starting"),
        // Who plays goes on playing.
        Numbers { full: true, .. } => Ok("full"),
        _ => Ok("ok"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coplay::time::TimeDelta;

    const NOW: Time = Time::from_nanos(100_000_000_000);

    /// A server that is as it should be.
    fn up() -> Numbers {
        Numbers { open: true, tick: 7, ticked: Some(NOW), ..Numbers::default() }
    }

    fn told(request: &[u8], now: Time, numbers: Numbers) -> (&'static str, String) {
        let board = Board::default();
        board.put(numbers);
        let (status, _, body) = answer(request, now, &board);
        (status, body)
    }

    #[test]
    fn questions_are_answered() {
        let status = |request: &[u8]| told(request, NOW, up()).0;
        assert_eq!(status(b"GET /health HTTP/1.1\r\n\r\n"), "200 OK");
        assert_eq!(status(b"GET /elsewhere HTTP/1.1\r\n\r\n"), "404 Not Found");
        assert_eq!(status(b"\xff\xff"), "400 Bad Request");
        assert!(told(b"GET /metrics HTTP/1.0\r\n\r\n", NOW, up()).1.contains("coplay_world_open 1"));
    }

    #[test]
    fn a_world_that_stands_still_is_not_healthy() {
        let health = |after: i64, numbers: Numbers| {
            told(b"GET /health HTTP/1.1\r\n\r\n", NOW + TimeDelta::from_millis(after), numbers)
        };
        assert_eq!(health(0, Numbers::default()), ("503 Service Unavailable", "starting\n".into()));
        assert_eq!(health(2_900, up()), ("200 OK", "ok\n".into()));
        assert_eq!(health(3_000, up()), ("503 Service Unavailable", "the world stands still\n".into()));
        assert_eq!(health(0, Numbers { drains: true, ..up() }), ("503 Service Unavailable", "draining\n".into()));
        assert_eq!(health(0, Numbers { full: true, ..up() }), ("200 OK", "full\n".into()));
    }

    #[test]
    fn the_state_is_worked_out_for_who_asks_and_for_nobody_else() {
        let board = Notice::default();
        board.put(up());
        assert!(!board.is_asked());
        let world = {
            let board = Arc::clone(&board);
            std::thread::spawn(move || {
                while !board.is_asked() {
                    std::thread::sleep(Duration::from_millis(1));
                }
                board.put(up());
                assert!(board.is_asked(), "that was without a digest");
                board.put(Numbers { digest: Some(5), ..up() });
                board.is_asked()
            })
        };
        assert!(answer(b"GET /state HTTP/1.1\r\n\r\n", NOW, &board).2.contains("\"digest\":\"0000000000000005\""));
        assert!(!world.join().expect("it ends"));
    }

    #[test]
    fn it_answers_over_a_real_socket_also_when_the_world_does_not() {
        let here = open(([127, 0, 0, 1], 0).into(), Notice::default()).unwrap();
        let mut stream = TcpStream::connect(here).unwrap();
        stream.write_all(b"GET /state HTTP/1.1\r\nHost: here\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n") && text.contains("\"players\":0"), "{text}");
    }
}
