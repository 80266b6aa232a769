//! A door for those who look after servers: how it does, by HTTP.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use coplay::time::Instant as Time;
use coplay_net::clock;

use crate::error::{CliError, bind_error_message};
use crate::metrics::ServerMetrics;

/// Who says nothing for so long is not listened to.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);
/// The longest question.
const MAX_REQUEST_LEN: usize = 4_096;

/// Who asks for all of the state waits for so long; then it is told what was known last.
const STATE_TIMEOUT: Duration = Duration::from_secs(1);

/// What is told at the door.
#[derive(Default)]
pub struct MetricsBoard {
    latest: Mutex<LatestMetrics>,
    changed: Condvar,
}

/// The newest numbers.
#[derive(Default)]
struct LatestMetrics {
    metrics: ServerMetrics,
    /// Somebody waits for numbers with a digest, as of now.
    is_digest_requested: bool,
}

/// What is told at the door, for who tells it and for who asks.
pub type SharedMetrics = Arc<MetricsBoard>;

impl MetricsBoard {
    fn latest(&self) -> MutexGuard<'_, LatestMetrics> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether somebody waits for numbers with a digest.
    pub fn is_digest_requested(&self) -> bool {
        self.latest().is_digest_requested
    }

    /// There are newer numbers.
    pub fn publish(&self, numbers: ServerMetrics) {
        let mut newest = self.latest();
        newest.is_digest_requested &= numbers.digest.is_none();
        newest.metrics = numbers;
        self.changed.notify_all();
    }

    fn metrics(&self) -> ServerMetrics {
        self.latest().metrics.clone()
    }

    /// All of the state as it is now, unless the world does not answer.
    fn metrics_with_digest(&self) -> ServerMetrics {
        let mut newest = self.latest();
        newest.is_digest_requested = true;
        let waited = self.changed.wait_timeout_while(newest, STATE_TIMEOUT, |newest| newest.is_digest_requested);
        waited.unwrap_or_else(PoisonError::into_inner).0.metrics.clone()
    }
}

/// Opens the door. One at a time is answered: whoever asks gets a short answer, or is shut out soon.
pub fn listen(addr: SocketAddr, notice: SharedMetrics) -> Result<SocketAddr, CliError> {
    let listener = TcpListener::bind(addr).map_err(|error| {
        let what = format!("nobody can be told by HTTP at {addr}: {}", bind_error_message(&error));
        CliError::failure(what, "choose another address with --http")
    })?;
    let here = listener.local_addr().unwrap_or(addr);
    let answer = move || {
        for stream in listener.incoming() {
            match stream {
                // Who does not listen to the end has its reasons.
                Ok(stream) => _ = handle_connection(stream, &notice),
                // Too many files are open, perhaps: that passes, or it does not.
                Err(_) => std::thread::sleep(Duration::from_millis(50)),
            }
        }
    };
    let started = std::thread::Builder::new().name("http".into()).spawn(answer);
    started.map_err(|error| CliError::failure(format!("nobody can be told by HTTP: {error}"), "leave --http out"))?;
    Ok(here)
}

fn handle_connection(mut stream: TcpStream, notice: &SharedMetrics) -> std::io::Result<()> {
    let until = Instant::now() + REQUEST_TIMEOUT;
    stream.set_write_timeout(Some(REQUEST_TIMEOUT))?;
    let mut request = Vec::new();
    let mut part = [0; 1_024];
    while !request.windows(4).any(|end| end == b"\r\n\r\n") && request.len() < MAX_REQUEST_LEN {
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
    let (status, kind, body) = respond(&request, clock::now(), notice);
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())
}

fn respond(request: &[u8], now: Time, board: &MetricsBoard) -> (&'static str, &'static str, String) {
    const TEXT: &str = "text/plain; charset=utf-8";
    let line = request.split(|byte| *byte == b'\r').next().unwrap_or_default();
    match line.strip_prefix(b"GET ").and_then(|rest| rest.split(|byte| *byte == b' ').next()) {
        Some(b"/metrics") => ("200 OK", "text/plain; version=0.0.4; charset=utf-8", board.metrics().to_prometheus(now)),
        Some(b"/state") => ("200 OK", "application/json", board.metrics_with_digest().to_json()),
        Some(b"/health") => match health(&board.metrics(), now) {
            Ok(words) => ("200 OK", TEXT, format!("{words}\n")),
            Err(words) => ("503 Service Unavailable", TEXT, format!("{words}\n")),
        },
        Some(_) => ("404 Not Found", TEXT, "there are /health, /metrics and /state\n".into()),
        None => ("400 Bad Request", TEXT, "only GET is understood\n".into()),
    }
}

/// Whether players are well off here, in words.
fn health(numbers: &ServerMetrics, now: Time) -> Result<&'static str, &'static str> {
    match numbers {
        _ if numbers.is_stalled(now) => Err("the world stands still"),
        ServerMetrics { is_draining: true, .. } => Err("draining"),
        ServerMetrics { is_open: false, .. } => Err("starting"),
        // Who plays goes on playing.
        ServerMetrics { is_full: true, .. } => Ok("full"),
        _ => Ok("ok"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coplay::time::TimeDelta;

    const NOW: Time = Time::from_nanos(100_000_000_000);

    /// A server that is as it should be.
    fn healthy_metrics() -> ServerMetrics {
        ServerMetrics { is_open: true, tick: 7, tick_time: Some(NOW), ..ServerMetrics::default() }
    }

    fn respond_with(request: &[u8], now: Time, numbers: ServerMetrics) -> (&'static str, String) {
        let board = MetricsBoard::default();
        board.publish(numbers);
        let (status, _, body) = respond(request, now, &board);
        (status, body)
    }

    #[test]
    fn requests_get_the_right_status() {
        let status = |request: &[u8]| respond_with(request, NOW, healthy_metrics()).0;
        assert_eq!(status(b"GET /health HTTP/1.1\r\n\r\n"), "200 OK");
        assert_eq!(status(b"GET /elsewhere HTTP/1.1\r\n\r\n"), "404 Not Found");
        assert_eq!(status(b"\xff\xff"), "400 Bad Request");
        assert!(
            respond_with(b"GET /metrics HTTP/1.0\r\n\r\n", NOW, healthy_metrics()).1.contains("coplay_world_open 1")
        );
    }

    #[test]
    fn stalled_world_is_unhealthy() {
        let health = |after: i64, numbers: ServerMetrics| {
            respond_with(b"GET /health HTTP/1.1\r\n\r\n", NOW + TimeDelta::from_millis(after), numbers)
        };
        assert_eq!(health(0, ServerMetrics::default()), ("503 Service Unavailable", "starting\n".into()));
        assert_eq!(health(2_900, healthy_metrics()), ("200 OK", "ok\n".into()));
        assert_eq!(health(3_000, healthy_metrics()), ("503 Service Unavailable", "the world stands still\n".into()));
        assert_eq!(
            health(0, ServerMetrics { is_draining: true, ..healthy_metrics() }),
            ("503 Service Unavailable", "draining\n".into())
        );
        assert_eq!(health(0, ServerMetrics { is_full: true, ..healthy_metrics() }), ("200 OK", "full\n".into()));
    }

    #[test]
    fn digest_is_computed_only_on_request() {
        let board = SharedMetrics::default();
        board.publish(healthy_metrics());
        assert!(!board.is_digest_requested());
        let world = {
            let board = Arc::clone(&board);
            std::thread::spawn(move || {
                while !board.is_digest_requested() {
                    std::thread::sleep(Duration::from_millis(1));
                }
                board.publish(healthy_metrics());
                assert!(board.is_digest_requested(), "that was without a digest");
                board.publish(ServerMetrics { digest: Some(5), ..healthy_metrics() });
                board.is_digest_requested()
            })
        };
        assert!(respond(b"GET /state HTTP/1.1\r\n\r\n", NOW, &board).2.contains("\"digest\":\"0000000000000005\""));
        assert!(!world.join().expect("it ends"));
    }

    #[test]
    fn state_is_served_even_if_the_server_loop_is_stalled() {
        let here = listen(([127, 0, 0, 1], 0).into(), SharedMetrics::default()).unwrap();
        let mut stream = TcpStream::connect(here).unwrap();
        stream.write_all(b"GET /state HTTP/1.1\r\nHost: here\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n") && text.contains("\"players\":0"), "{text}");
    }
}
