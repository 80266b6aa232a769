//! A door for those who look after servers: how it does, by HTTP.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::metrics::Numbers;
use crate::trouble::{Trouble, in_words};

/// Who says nothing for so long is not listened to.
const PATIENCE: Duration = Duration::from_secs(2);
/// The longest question.
const MAX_REQUEST: usize = 4_096;

/// What is told at the door: the newest numbers.
pub type Notice = Arc<Mutex<Numbers>>;

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
    let numbers = notice.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let (status, kind, body) = answer(&request, &numbers);
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())
}

fn answer(request: &[u8], numbers: &Numbers) -> (&'static str, &'static str, String) {
    const TEXT: &str = "text/plain; charset=utf-8";
    let line = request.split(|byte| *byte == b'\r').next().unwrap_or_default();
    match line.strip_prefix(b"GET ").and_then(|rest| rest.split(|byte| *byte == b' ').next()) {
        Some(b"/metrics") => ("200 OK", "text/plain; version=0.0.4; charset=utf-8", numbers.prometheus()),
        Some(b"/state") => ("200 OK", "application/json", numbers.json()),
        Some(b"/health") if numbers.open && !numbers.drains => ("200 OK", TEXT, "ok\n".into()),
        Some(b"/health") if numbers.drains => ("503 Service Unavailable", TEXT, "draining\n".into()),
        Some(b"/health") => ("503 Service Unavailable", TEXT, "starting\n".into()),
        Some(_) => ("404 Not Found", TEXT, "there are /health, /metrics and /state\n".into()),
        None => ("400 Bad Request", TEXT, "only GET is understood\n".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_are_answered() {
        let up = Numbers { open: true, ..Numbers::default() };
        let status = |request: &[u8], numbers: &Numbers| answer(request, numbers).0;
        assert_eq!(status(b"GET /health HTTP/1.1\r\n\r\n", &up), "200 OK");
        assert_eq!(status(b"GET /health HTTP/1.1\r\n\r\n", &Numbers::default()), "503 Service Unavailable");
        assert_eq!(status(b"GET /elsewhere HTTP/1.1\r\n\r\n", &up), "404 Not Found");
        assert_eq!(status(b"\xff\xff", &up), "400 Bad Request");
        assert!(answer(b"GET /metrics HTTP/1.0\r\n\r\n", &up).2.contains("coplay_world_open 1"));
    }

    #[test]
    fn it_answers_over_a_real_socket() {
        let here = open(([127, 0, 0, 1], 0).into(), Notice::default()).unwrap();
        let mut stream = TcpStream::connect(here).unwrap();
        stream.write_all(b"GET /state HTTP/1.1\r\nHost: here\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n") && text.contains("\"players\":0"), "{text}");
    }
}
