//! Confirmation before a player quits a game that others play.

use std::time::Instant;

use crate::frontend::QUIT_CONFIRM_TIMEOUT;
use crate::scene::{Overlay, join_footer, key_hint};

/// Question whether to quit, after a first request to quit. A second request within [`QUIT_CONFIRM_TIMEOUT`] quits;
/// without one, the question disappears and the player stays.
#[derive(Debug, Default)]
pub(super) struct QuitConfirmation {
    open_until: Option<Instant>,
}

impl QuitConfirmation {
    /// Handles a request to quit while `others` play; returns whether to quit now.
    pub(super) fn request(&mut self, now: Instant, others: &[String]) -> bool {
        let quits = others.is_empty() || self.is_open(now);
        self.open_until = (!quits).then(|| now + QUIT_CONFIRM_TIMEOUT);
        quits
    }

    /// Closes the question; the player stays.
    pub(super) fn cancel(&mut self) {
        self.open_until = None;
    }

    pub(super) fn is_open(&self, now: Instant) -> bool {
        self.open_until.is_some_and(|until| now < until)
    }

    /// Returns the panel with the question; `None` while the question is not open. `menu_key` is the label of the key
    /// that closes it.
    pub(super) fn overlay(&self, now: Instant, others: &[String], menu_key: &str) -> Option<Overlay> {
        self.is_open(now).then(|| Overlay {
            title: "Leave the game?".into(),
            rows: others.iter().map(|name| (name.clone(), "plays with you".into())).collect(),
            selected: None,
            footer: join_footer(&[
                "press the same key or button again within 5 s to leave".into(),
                key_hint(menu_key, "stay"),
            ]),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_quit_request_within_the_timeout_quits() {
        let (mut question, now, bob) = (QuitConfirmation::default(), Instant::now(), ["Bob".to_owned()]);
        assert!(!question.request(now, &bob) && question.overlay(now, &bob, "Esc").is_some());
        assert!(question.request(now + QUIT_CONFIRM_TIMEOUT / 2, &bob));
        assert!(!question.request(now, &bob));
        assert!(question.overlay(now + QUIT_CONFIRM_TIMEOUT, &bob, "Esc").is_none(), "the player stays");
        assert!(!question.request(now + QUIT_CONFIRM_TIMEOUT, &bob), "and is asked again");
        question.cancel();
        assert!(!question.request(now + QUIT_CONFIRM_TIMEOUT, &bob));
        assert!(question.request(now, &[]), "no other players");
    }
}
