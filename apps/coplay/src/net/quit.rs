//! The question before a player leaves others alone in a game.

use std::time::{Duration, Instant};

use crate::scene::Overlay;

/// Time in which a second request to quit is an answer to the question.
pub(crate) const QUIT_AGAIN: Duration = Duration::from_secs(5);

/// Asks once. The second request within [`QUIT_AGAIN`] quits; otherwise the question goes away and the player stays.
#[derive(Debug, Default)]
pub(super) struct QuitQuestion {
    until: Option<Instant>,
}

impl QuitQuestion {
    /// Takes a request to quit while `others` play; returns whether to quit now.
    pub(super) fn request(&mut self, now: Instant, others: &[String]) -> bool {
        let quits = others.is_empty() || self.is_open(now);
        self.until = (!quits).then(|| now + QUIT_AGAIN);
        quits
    }

    /// Closes the question: the player stays.
    pub(super) fn withdraw(&mut self) {
        self.until = None;
    }

    /// Whether the question is on the screen.
    pub(super) fn is_open(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now < until)
    }

    /// The question as it is shown while it is open.
    pub(super) fn overlay(&self, now: Instant, others: &[String]) -> Option<Overlay> {
        self.is_open(now).then(|| Overlay {
            title: "Leave the game?".into(),
            rows: others.iter().map(|name| (name.clone(), "plays with you".into())).collect(),
            chosen: None,
            foot: "once more: leave   Esc: stay".into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_request_quits_unless_it_comes_late() {
        let (mut question, now, bob) = (QuitQuestion::default(), Instant::now(), ["Bob".to_owned()]);
        assert!(!question.request(now, &bob) && question.overlay(now, &bob).is_some());
        assert!(question.request(now + QUIT_AGAIN / 2, &bob));
        assert!(!question.request(now, &bob));
        assert!(question.overlay(now + QUIT_AGAIN, &bob).is_none(), "the player stays");
        assert!(!question.request(now + QUIT_AGAIN, &bob), "and is asked again");
        question.withdraw();
        assert!(!question.request(now + QUIT_AGAIN, &bob));
        assert!(question.request(now, &[]), "nobody is left alone");
    }
}
