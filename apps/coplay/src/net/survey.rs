//! What the line to somebody is like, for who wants to know before playing.

use coplay::time::TimeDelta;
use coplay_net::iroh::RelayConfig;
use coplay_net::runner::{self, LinkProbeConfig, LinkReport};

use super::failure;
use crate::meet;
use crate::seat::Seat;
use crate::trouble::Trouble;

/// How long is called.
const PATIENCE: TimeDelta = TimeDelta::from_secs(15);
/// How many questions are asked, and how often: for five seconds.
const QUESTIONS: u32 = 200;
const EVERY: TimeDelta = TimeDelta::from_millis(25);

/// Looks at the line to whoever gave this ticket. Nobody there is bothered.
pub fn survey(ticket: &str, relay: Option<RelayConfig>) -> Result<LinkReport, Trouble> {
    let ticket = meet::read_ticket(ticket)?;
    let line = meet::call(&ticket, Seat::new().identity, relay)?;
    eprintln!("asking there and back for five seconds ...");
    let (places, expect) = (line.places, line.expect);
    let plan = LinkProbeConfig {
        addrs: places,
        expected_peer: expect,
        timeout: PATIENCE,
        ping_count: QUESTIONS,
        ping_interval: EVERY,
    };
    runner::probe_link(&line.transport, &line.incoming, &plan).map_err(|failure| failure::trouble(&failure))
}
