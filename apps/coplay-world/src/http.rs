//! HTTP endpoints for operators: `/health`, `/metrics` and `/state`.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use coplay::time::Instant as Time;
use coplay_net::clock;
use coplay_shell::error::AppError;

use crate::metrics::ServerMetrics;
use crate::player_network::bind_error_message;

/// Longest time to receive a complete request, and longest wait of a write.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);
/// Length of a request beyond which the server stops reading it, in bytes.
const MAX_REQUEST_LEN: usize = 4_096;

/// Longest wait of `/state` for a fresh digest; then it serves the last known state.
const STATE_TIMEOUT: Duration = Duration::from_secs(1);

/// Newest metrics, published by the world's thread and read by the HTTP thread.
#[derive(Default)]
pub struct MetricsBoard {
    latest: Mutex<LatestMetrics>,
    changed: Condvar,
}

/// Newest metrics, and whether a request waits for a digest.
#[derive(Default)]
struct LatestMetrics {
    metrics: ServerMetrics,
    /// Whether a request to `/state` waits for metrics with a digest.
    is_digest_requested: bool,
}

/// Metrics board shared by the world's thread and the HTTP thread.
pub type SharedMetrics = Arc<MetricsBoard>;

impl MetricsBoard {
    fn latest(&self) -> MutexGuard<'_, LatestMetrics> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether a request to `/state` waits for metrics with a digest. The world's thread computes a digest only
    /// then.
    pub fn is_digest_requested(&self) -> bool {
        self.latest().is_digest_requested
    }

    /// Replaces the metrics. Wakes up the HTTP thread if it waits for metrics.
    pub fn publish(&self, metrics: ServerMetrics) {
        let mut latest = self.latest();
        latest.is_digest_requested &= metrics.digest.is_none();
        latest.metrics = metrics;
        self.changed.notify_all();
    }

    fn metrics(&self) -> ServerMetrics {
        self.latest().metrics.clone()
    }

    /// Requests metrics with a digest. Returns the last known metrics if the world's thread does not publish any with a
    /// digest within 1 s.
    fn metrics_with_digest(&self) -> ServerMetrics {
        let mut latest = self.latest();
        latest.is_digest_requested = true;
        let waited = self.changed.wait_timeout_while(latest, STATE_TIMEOUT, |latest| latest.is_digest_requested);
        waited.unwrap_or_else(PoisonError::into_inner).0.metrics.clone()
    }
}

/// Starts the HTTP thread and returns the address on which it listens. The thread serves one connection at a time,
/// since each gets a short answer or times out within seconds.
pub fn listen(addr: SocketAddr, metrics: SharedMetrics) -> Result<SocketAddr, AppError> {
    let listener = TcpListener::bind(addr).map_err(|error| {
        let message = format!("cannot serve HTTP on {addr}: {}", bind_error_message(&error));
        AppError::failure(message).hint("choose another port or address with --http")
    })?;
    let local_addr = listener.local_addr().unwrap_or(addr);
    let serve = move || {
        for stream in listener.incoming() {
            match stream {
                // A client that hangs up early is not an error.
                Ok(stream) => _ = handle_connection(stream, &metrics),
                // Perhaps too many files are open, which may pass.
                Err(_) => std::thread::sleep(Duration::from_millis(50)),
            }
        }
    };
    let started = std::thread::Builder::new().name("http".into()).spawn(serve);
    started.map_err(|error| {
        AppError::failure(format!("cannot start the HTTP thread: {error}")).hint("leave out --http")
    })?;
    Ok(local_addr)
}

fn handle_connection(mut stream: TcpStream, metrics: &SharedMetrics) -> std::io::Result<()> {
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
    let (status, kind, body) = respond(&request, clock::now(), metrics);
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
            Ok(status) => ("200 OK", TEXT, format!("{status}\n")),
            Err(status) => ("503 Service Unavailable", TEXT, format!("{status}\n")),
        },
        Some(_) => ("404 Not Found", TEXT, "not found; the paths are /health, /metrics and /state\n".into()),
        None => ("400 Bad Request", TEXT, "only GET is supported\n".into()),
    }
}

/// Returns the state of the server in one word: `Err` if the world is stalled, or the server is draining or not open to
/// players yet, else `Ok`.
fn health(metrics: &ServerMetrics, now: Time) -> Result<&'static str, &'static str> {
    match metrics {
        _ if metrics.is_stalled(now) => Err("stalled"),
        ServerMetrics { is_draining: true, .. } => Err("draining"),
        ServerMetrics { is_open: false, .. } => Err("starting"),
        // Present players go on playing.
        ServerMetrics { is_full: true, .. } => Ok("full"),
        _ => Ok("ok"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coplay::time::TimeDelta;

    const NOW: Time = Time::from_nanos(100_000_000_000);

    fn healthy_metrics() -> ServerMetrics {
        ServerMetrics { is_open: true, tick: 7, tick_time: Some(NOW), ..ServerMetrics::default() }
    }

    fn respond_with(request: &[u8], now: Time, metrics: ServerMetrics) -> (&'static str, String) {
        let board = MetricsBoard::default();
        board.publish(metrics);
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
        let health = |after: i64, metrics: ServerMetrics| {
            respond_with(b"GET /health HTTP/1.1\r\n\r\n", NOW + TimeDelta::from_millis(after), metrics)
        };
        assert_eq!(health(0, ServerMetrics::default()), ("503 Service Unavailable", "starting\n".into()));
        assert_eq!(health(2_900, healthy_metrics()), ("200 OK", "ok\n".into()));
        assert_eq!(health(3_000, healthy_metrics()), ("503 Service Unavailable", "stalled\n".into()));
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
                assert!(board.is_digest_requested(), "metrics without a digest end the request");
                board.publish(ServerMetrics { digest: Some(5), ..healthy_metrics() });
                board.is_digest_requested()
            })
        };
        assert!(respond(b"GET /state HTTP/1.1\r\n\r\n", NOW, &board).2.contains("\"digest\":\"0000000000000005\""));
        assert!(!world.join().expect("the thread ends"));
    }

    #[test]
    fn state_is_served_even_if_the_server_loop_is_stalled() {
        let local_addr = listen(([127, 0, 0, 1], 0).into(), SharedMetrics::default()).unwrap();
        let mut stream = TcpStream::connect(local_addr).unwrap();
        stream.write_all(b"GET /state HTTP/1.1\r\nHost: here\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n") && text.contains("\"players\":0"), "{text}");
    }
}
