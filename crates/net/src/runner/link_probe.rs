//! What a line to somebody is like, without taking part in anything: a few bytes there and back, which everybody answers who is in a game.
//!
//! Whoever is asked does not count us among those who play or watch. Asking takes less than a player sends.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};

use coplay::time::{Instant, TimeDelta};

use super::RunError;
use super::ping::PingMessage;
use crate::clock;
use crate::key::PeerKey;
use crate::transport::{Incoming, PeerAddr, Transport};

/// How to look at a line.
#[derive(Clone, Debug)]
pub struct LinkProbeConfig {
    /// Where somebody may be.
    pub addrs: Vec<PeerAddr>,
    /// Who must answer there, if that is known.
    pub expected_peer: Option<PeerKey>,
    /// We go on calling so long.
    pub timeout: TimeDelta,
    /// How many questions are asked.
    pub ping_count: u32,
    /// One every so often.
    pub ping_interval: TimeDelta,
}

/// What a line is like.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkReport {
    /// The least time there and back.
    pub min_rtt: TimeDelta,
    /// The mean of what was added to that, there and back.
    pub jitter: TimeDelta,
    /// The part of packets lost in one direction, if both are alike; 0 to 1.
    pub loss: f64,
    /// Questions that were answered, of so many.
    pub replies: (u32, u32),
}

/// Answers may take so long after the last question.
const REPLY_TIMEOUT: TimeDelta = TimeDelta::from_secs(2);

impl LinkReport {
    /// From the times that answers took, of so many questions; `None` if nobody answered.
    fn from_rtts(trips: &[TimeDelta], asked: u32) -> Option<Self> {
        let least = trips.iter().copied().min()?;
        let above: TimeDelta = trips.iter().fold(TimeDelta::ZERO, |sum, trip| sum + (*trip - least));
        let there_and_back = trips.len() as f64 / f64::from(asked.max(1));
        Some(Self {
            min_rtt: least,
            jitter: above / trips.len() as i64,
            loss: (1.0 - there_and_back.sqrt()).clamp(0.0, 1.0),
            replies: (trips.len() as u32, asked),
        })
    }
}

/// Looks at the line to whoever answers first.
pub fn probe_link(
    transport: &Arc<dyn Transport>,
    incoming: &Receiver<Incoming>,
    plan: &LinkProbeConfig,
) -> Result<LinkReport, RunError> {
    plan.addrs.iter().for_each(|place| transport.dial(place, plan.expected_peer));
    let peer = connect(incoming, plan)?;
    let trips = measure_rtts(transport, incoming, plan, peer);
    LinkReport::from_rtts(&trips, plan.ping_count).ok_or(RunError::HostGone)
}

/// Waits until somebody answers our call.
fn connect(incoming: &Receiver<Incoming>, plan: &LinkProbeConfig) -> Result<PeerKey, RunError> {
    let until = clock::now() + plan.timeout;
    let place = plan.addrs.first().cloned().unwrap_or_else(|| PeerAddr("the host's place".into()));
    let mut failure = RunError::Unreachable { addr: place, wrong_secret: false };
    while let Some(came) = recv_until(incoming, until) {
        match came {
            Incoming::Connected { peer, dialed: Some(_) } => return Ok(peer),
            Incoming::Unreachable { addr: place, wrong_secret: refused } => {
                failure = RunError::Unreachable { addr: place, wrong_secret: refused }
            }
            Incoming::WrongPeer { addr: place } => failure = RunError::WrongPeer { addr: place },
            Incoming::Connected { dialed: None, .. } | Incoming::Datagram { .. } | Incoming::Multicast { .. } => {}
        }
        // Where there is one place, and it is closed for good, there is nothing to wait for.
        let closed = matches!(failure, RunError::Unreachable { wrong_secret: true, .. } | RunError::WrongPeer { .. });
        if closed && plan.addrs.len() == 1 {
            break;
        }
    }
    Err(failure)
}

/// Asks, and says how long each answer took.
fn measure_rtts(
    transport: &Arc<dyn Transport>,
    incoming: &Receiver<Incoming>,
    plan: &LinkProbeConfig,
    peer: PeerKey,
) -> Vec<TimeDelta> {
    let mut sent: Vec<Instant> = Vec::new();
    let mut trips = Vec::new();
    while trips.len() < plan.ping_count as usize {
        let now = clock::now();
        let due = sent.last().map_or(now, |last| *last + plan.ping_interval);
        let all_asked = sent.len() == plan.ping_count as usize;
        if !all_asked && due <= now {
            // If there is no way just now, it is lost on the way.
            transport.send(&peer, &PingMessage::Ping { nonce: sent.len() as u32 }.encode());
            sent.push(now);
            continue;
        }
        let until = if all_asked { sent.last().map_or(now, |last| *last + REPLY_TIMEOUT) } else { due };
        match recv_until(incoming, until) {
            Some(Incoming::Datagram { at, from, bytes }) if from == peer => {
                if let Some(PingMessage::Pong { nonce: number, .. }) = PingMessage::decode(&bytes) {
                    trips.extend(sent.get(number as usize).map(|sent| (at - *sent).max(TimeDelta::ZERO)));
                }
            }
            None if all_asked => break,
            _ => {}
        }
    }
    trips
}

/// The next thing that comes before then.
fn recv_until(incoming: &Receiver<Incoming>, until: Instant) -> Option<Incoming> {
    let left = (until - clock::now()).to_duration();
    match incoming.recv_timeout(left) {
        Ok(came) => Some(came),
        Err(RecvTimeoutError::Timeout) => None,
        // The transport is gone; there is nothing to wait for but the time.
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
        let trips = [20, 22, 20, 26].map(TimeDelta::from_millis);
        let survey = LinkReport::from_rtts(&trips, 4).unwrap();
        assert_eq!((survey.min_rtt, survey.jitter), (TimeDelta::from_millis(20), TimeDelta::from_millis(2)));
        assert_eq!((survey.loss, survey.replies), (0.0, (4, 4)));
        // A quarter of all answers comes back where half of the packets are lost each way.
        assert_eq!(LinkReport::from_rtts(&trips, 16).unwrap().loss, 0.5);
        assert_eq!(LinkReport::from_rtts(&[], 16), None);
    }
}
