//! Measurement of the link to a host before a game.

use coplay::time::TimeDelta;
use coplay_net::iroh::RelayConfig;
use coplay_net::runner::{self, LinkProbeConfig, LinkReport};
use coplay_shell::error::AppError;

use super::errors;
use crate::connect;
use crate::seat_key::SeatKey;

/// Longest wait for a connection to the host.
const CONNECT_TIMEOUT: TimeDelta = TimeDelta::from_secs(15);
/// Number of probes, sent over 5 s.
const PROBE_COUNT: u32 = 200;
/// Time between two probes.
const PROBE_INTERVAL: TimeDelta = TimeDelta::from_millis(25);

/// Measures the link to the host of this ticket for 5 s. The measurement takes no seat and does not disturb the host's
/// game.
pub fn probe_link(ticket: &str, relay: Option<RelayConfig>) -> Result<LinkReport, AppError> {
    let ticket = connect::parse_ticket(ticket)?;
    let connection = connect::open_for_ticket(&ticket, SeatKey::new().identity, relay)?;
    eprintln!("connecting to the host, then measuring the link for 5 s ...");
    let config = LinkProbeConfig {
        addrs: connection.host_addrs,
        expected_peer: connection.expected_key,
        timeout: CONNECT_TIMEOUT,
        ping_count: PROBE_COUNT,
        ping_interval: PROBE_INTERVAL,
    };
    runner::probe_link(&connection.transport, &connection.incoming, &config)
        .map_err(|error| errors::to_app_error(&error))
}
