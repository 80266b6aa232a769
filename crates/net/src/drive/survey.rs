//! What a line to somebody is like, without taking part in anything: a few bytes there and back, which everybody answers who is in a game.
//!
//! Whoever is asked does not count us among those who play or watch. Asking takes less than a player sends.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};

use coplay::time::{Instant, TimeDelta};

use super::Failure;
use super::ping::Word;
use crate::clock;
use crate::key::PeerKey;
use crate::transport::{Incoming, Place, Transport};

/// How to look at a line.
#[derive(Clone, Debug)]
pub struct SurveyPlan {
    /// Where somebody may be.
    pub places: Vec<Place>,
    /// Who must answer there, if that is known.
    pub expect: Option<PeerKey>,
    /// We go on calling so long.
    pub patience: TimeDelta,
    /// How many questions are asked.
    pub questions: u32,
    /// One every so often.
    pub every: TimeDelta,
}

/// What a line is like.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Survey {
    /// The least time there and back.
    pub least: TimeDelta,
    /// The mean of what was added to that, there and back.
    pub jitter: TimeDelta,
    /// The part of packets lost in one direction, if both are alike; 0 to 1.
    pub loss: f64,
    /// Questions that were answered, of so many.
    pub answered: (u32, u32),
}

/// Answers may take so long after the last question.
const LATEST: TimeDelta = TimeDelta::from_secs(2);

impl Survey {
    /// From the times that answers took, of so many questions; `None` if nobody answered.
    fn of(trips: &[TimeDelta], asked: u32) -> Option<Self> {
        let least = trips.iter().copied().min()?;
        let above: TimeDelta = trips.iter().fold(TimeDelta::ZERO, |sum, trip| sum + (*trip - least));
        let there_and_back = trips.len() as f64 / f64::from(asked.max(1));
        Some(Self {
            least,
            jitter: above / trips.len() as i64,
            loss: (1.0 - there_and_back.sqrt()).clamp(0.0, 1.0),
            answered: (trips.len() as u32, asked),
        })
    }
}

/// Looks at the line to whoever answers first.
pub fn survey(
    transport: &Arc<dyn Transport>,
    incoming: &Receiver<Incoming>,
    plan: &SurveyPlan,
) -> Result<Survey, Failure> {
    plan.places.iter().for_each(|place| transport.call(place, plan.expect));
    let peer = reach(incoming, plan)?;
    let trips = ask(transport, incoming, plan, peer);
    Survey::of(&trips, plan.questions).ok_or(Failure::HostGone)
}

/// Waits until somebody answers our call.
fn reach(incoming: &Receiver<Incoming>, plan: &SurveyPlan) -> Result<PeerKey, Failure> {
    let until = clock::now() + plan.patience;
    let place = plan.places.first().cloned().unwrap_or_else(|| Place("the host's place".into()));
    let mut failure = Failure::Unanswered { place, refused: false };
    while let Some(came) = next_before(incoming, until) {
        match came {
            Incoming::Up { peer, called: Some(_) } => return Ok(peer),
            Incoming::Unanswered { place, refused } => failure = Failure::Unanswered { place, refused },
            Incoming::Stranger { place } => failure = Failure::Stranger { place },
            Incoming::Up { called: None, .. } | Incoming::Datagram { .. } | Incoming::Multicast { .. } => {}
        }
        // Where there is one place, and it is closed for good, there is nothing to wait for.
        let closed = matches!(failure, Failure::Unanswered { refused: true, .. } | Failure::Stranger { .. });
        if closed && plan.places.len() == 1 {
            break;
        }
    }
    Err(failure)
}

/// Asks, and says how long each answer took.
fn ask(
    transport: &Arc<dyn Transport>,
    incoming: &Receiver<Incoming>,
    plan: &SurveyPlan,
    peer: PeerKey,
) -> Vec<TimeDelta> {
    let mut sent: Vec<Instant> = Vec::new();
    let mut trips = Vec::new();
    while trips.len() < plan.questions as usize {
        let now = clock::now();
        let due = sent.last().map_or(now, |last| *last + plan.every);
        let all_asked = sent.len() == plan.questions as usize;
        if !all_asked && due <= now {
            // If there is no way just now, it is lost on the way.
            transport.send(&peer, &Word::Asked { number: sent.len() as u32 }.write());
            sent.push(now);
            continue;
        }
        let until = if all_asked { sent.last().map_or(now, |last| *last + LATEST) } else { due };
        match next_before(incoming, until) {
            Some(Incoming::Datagram { at, from, bytes }) if from == peer => {
                if let Some(Word::Answered { number, .. }) = Word::read(&bytes) {
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
fn next_before(incoming: &Receiver<Incoming>, until: Instant) -> Option<Incoming> {
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
    fn a_line_is_told_by_its_answers() {
        let trips = [20, 22, 20, 26].map(TimeDelta::from_millis);
        let survey = Survey::of(&trips, 4).unwrap();
        assert_eq!((survey.least, survey.jitter), (TimeDelta::from_millis(20), TimeDelta::from_millis(2)));
        assert_eq!((survey.loss, survey.answered), (0.0, (4, 4)));
        // A quarter of all answers comes back where half of the packets are lost each way.
        assert_eq!(Survey::of(&trips, 16).unwrap().loss, 0.5);
        assert_eq!(Survey::of(&[], 16), None);
    }
}
