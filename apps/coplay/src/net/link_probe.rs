//! What the line to somebody is like, for who wants to know before playing.

use coplay::time::TimeDelta;
use coplay_net::iroh::RelayConfig;
use coplay_net::runner::{self, LinkProbeConfig, LinkReport};

use super::errors;
use crate::connect;
use crate::error::AppError;
use crate::seat_key::SeatKey;

/// How long is called.
const CONNECT_TIMEOUT: TimeDelta = TimeDelta::from_secs(15);
/// How many questions are asked, and how often: for five seconds.
const PROBE_COUNT: u32 = 200;
const PROBE_INTERVAL: TimeDelta = TimeDelta::from_millis(25);

/// Looks at the line to whoever gave this ticket. Nobody there is bothered.
pub fn probe_link(ticket: &str, relay: Option<RelayConfig>) -> Result<LinkReport, AppError> {
    let ticket = connect::parse_ticket(ticket)?;
    let line = connect::open_for_ticket(&ticket, SeatKey::new().identity, relay)?;
    eprintln!("asking there and back for five seconds ...");
    let (places, expect) = (line.host_addrs, line.expected_key);
    let plan = LinkProbeConfig {
        addrs: places,
        expected_peer: expect,
        timeout: CONNECT_TIMEOUT,
        ping_count: PROBE_COUNT,
        ping_interval: PROBE_INTERVAL,
    };
    runner::probe_link(&line.transport, &line.incoming, &plan).map_err(|failure| errors::to_app_error(&failure))
}
