//! Measures the link to a site without joining its game, by pings. Every player answers pings, in the lobby and in the
//! running game.
//!
//! The probed site counts the probing site neither as a player nor as a spectator. Once connected, the probe sends only
//! pings.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};

use coplay::time::{Instant, TimeDelta};

use super::RunError;
use super::ping::PingMessage;
use crate::clock;
use crate::key::PeerKey;
use crate::peer_addr::PeerAddr;
use crate::transport::{Incoming, Transport};

/// Settings of a link probe.
#[derive(Clone, Debug)]
pub struct LinkProbeConfig {
    /// Addresses at which a site may be reached.
    pub addrs: Vec<PeerAddr>,
    /// Key of the site that must answer; `None` accepts any site at the addresses that knows the secret or token.
    pub expected_peer: Option<PeerKey>,
    /// Time limit for connecting.
    pub timeout: TimeDelta,
    /// Number of pings that the probe sends.
    pub ping_count: u32,
    /// Interval between pings.
    pub ping_interval: TimeDelta,
}

/// Measured quality of a link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkReport {
    /// Minimum round-trip time.
    pub min_rtt: TimeDelta,
    /// Mean excess of the round-trip time over `min_rtt`.
    pub jitter: TimeDelta,
    /// Packet loss in one direction, 0 to 1, under the assumption that both directions are alike.
    pub loss: f64,
    /// Number of replies received, and number of pings sent.
    pub replies: (u32, u32),
}

/// Time limit for the arrival of replies after the last ping.
const REPLY_TIMEOUT: TimeDelta = TimeDelta::from_secs(2);

impl LinkReport {
    /// Computes the report from round-trip times; `None` without any reply.
    fn from_rtts(rtts: &[TimeDelta], ping_count: u32) -> Option<Self> {
        let min_rtt = rtts.iter().copied().min()?;
        let excess: TimeDelta = rtts.iter().fold(TimeDelta::ZERO, |sum, rtt| sum + (*rtt - min_rtt));
        let reply_rate = rtts.len() as f64 / f64::from(ping_count.max(1));
        Some(Self {
            min_rtt,
            jitter: excess / rtts.len() as i64,
            loss: (1.0 - reply_rate.sqrt()).clamp(0.0, 1.0),
            replies: (rtts.len() as u32, ping_count),
        })
    }
}

/// Measures the link to the first dialed site that answers the dial. Fails if none does within the time limit, or if no
/// ping gets a reply.
pub fn probe_link(
    transport: &Arc<dyn Transport>,
    incoming: &Receiver<Incoming>,
    config: &LinkProbeConfig,
) -> Result<LinkReport, RunError> {
    config.addrs.iter().for_each(|addr| transport.dial(addr, config.expected_peer));
    let peer = connect(incoming, config)?;
    let rtts = measure_rtts(transport, incoming, config, peer);
    LinkReport::from_rtts(&rtts, config.ping_count).ok_or(RunError::HostGone)
}

/// Waits until a dialed site is connected, and returns its key.
fn connect(incoming: &Receiver<Incoming>, config: &LinkProbeConfig) -> Result<PeerKey, RunError> {
    let until = clock::now() + config.timeout;
    let addr = config.addrs.first().cloned().unwrap_or_else(|| PeerAddr("the host of the ticket".into()));
    let mut error = RunError::Unreachable { addr, wrong_secret: false };
    while let Some(event) = recv_until(incoming, until) {
        match event {
            Incoming::Connected { peer, dialed: Some(_) } => return Ok(peer),
            Incoming::Unreachable { addr, wrong_secret } => error = RunError::Unreachable { addr, wrong_secret },
            Incoming::WrongPeer { addr } => error = RunError::WrongPeer { addr },
            Incoming::Connected { dialed: None, .. } | Incoming::Datagram { .. } | Incoming::Multicast { .. } => {}
        }
        // A single address that failed for a lasting reason ends the wait.
        let is_final = matches!(error, RunError::Unreachable { wrong_secret: true, .. } | RunError::WrongPeer { .. });
        if is_final && config.addrs.len() == 1 {
            break;
        }
    }
    Err(error)
}

/// Sends the pings and returns the round-trip time of each reply.
fn measure_rtts(
    transport: &Arc<dyn Transport>,
    incoming: &Receiver<Incoming>,
    config: &LinkProbeConfig,
    peer: PeerKey,
) -> Vec<TimeDelta> {
    let mut sent: Vec<Instant> = Vec::new();
    let mut rtts = Vec::new();
    while rtts.len() < config.ping_count as usize {
        let now = clock::now();
        let due = sent.last().map_or(now, |last| *last + config.ping_interval);
        let all_sent = sent.len() == config.ping_count as usize;
        if !all_sent && due <= now {
            // Without a connection at this moment the ping counts as lost.
            transport.send(&peer, &PingMessage::Ping { nonce: sent.len() as u32 }.encode());
            sent.push(now);
            continue;
        }
        let until = if all_sent { sent.last().map_or(now, |last| *last + REPLY_TIMEOUT) } else { due };
        match recv_until(incoming, until) {
            Some(Incoming::Datagram { at, from, bytes }) if from == peer => {
                if let Some(PingMessage::Pong { nonce, .. }) = PingMessage::decode(&bytes) {
                    rtts.extend(sent.get(nonce as usize).map(|sent| (at - *sent).max(TimeDelta::ZERO)));
                }
            }
            None if all_sent => break,
            _ => {}
        }
    }
    rtts
}

/// Returns the next event, waiting until `until` at most; `None` if there was none.
fn recv_until(incoming: &Receiver<Incoming>, until: Instant) -> Option<Incoming> {
    let left = (until - clock::now()).to_duration();
    match incoming.recv_timeout(left) {
        Ok(event) => Some(event),
        Err(RecvTimeoutError::Timeout) => None,
        // The transport is gone: only the time limit remains.
        Err(RecvTimeoutError::Disconnected) => {
            std::thread::sleep(left);
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_report_computes_rtt_jitter_and_loss() {
        let rtts = [20, 22, 20, 26].map(TimeDelta::from_millis);
        let report = LinkReport::from_rtts(&rtts, 4).unwrap();
        assert_eq!((report.min_rtt, report.jitter), (TimeDelta::from_millis(20), TimeDelta::from_millis(2)));
        assert_eq!((report.loss, report.replies), (0.0, (4, 4)));
        // With 50 % loss each way a quarter of the pings gets a reply.
        assert_eq!(LinkReport::from_rtts(&rtts, 16).unwrap().loss, 0.5);
        assert_eq!(LinkReport::from_rtts(&[], 16), None);
    }
}
