//! What people say to each other.

use std::time::{Duration, Instant};

use coplay_net::lobby::MAX_CHAT_LEN;

use crate::scene::Scene;

/// How long a line is seen, and how many at once.
const SEEN: Duration = Duration::from_secs(12);
const LINES: usize = 6;

/// What was said of late, and what is being typed.
#[derive(Debug, Default)]
pub(super) struct Chat {
    lines: Vec<(String, Instant)>,
    typing: Option<String>,
}

impl Chat {
    /// Somebody said something.
    pub(super) fn hear(&mut self, now: Instant, name: &str, line: &str) {
        if self.lines.len() == LINES {
            self.lines.remove(0);
        }
        let name = if name.is_empty() { "somebody" } else { name };
        self.lines.push((format!("{name}: {line}"), now + SEEN));
    }

    /// Somebody here wants to say something.
    pub(super) fn open(&mut self) {
        self.typing = Some(String::new());
    }

    /// Or not.
    pub(super) fn close(&mut self) {
        self.typing = None;
    }

    pub(super) fn is_open(&self) -> bool {
        self.typing.is_some()
    }

    /// One more letter.
    pub(super) fn push(&mut self, sign: char) {
        if let Some(text) = &mut self.typing
            && !sign.is_control()
            && text.len() + sign.len_utf8() <= MAX_CHAT_LEN
        {
            text.push(sign);
        }
    }

    /// One letter less.
    pub(super) fn erase(&mut self) {
        if let Some(text) = &mut self.typing {
            text.pop();
        }
    }

    /// What was typed is to be said, if it is anything.
    pub(super) fn finish(&mut self) -> Option<String> {
        self.typing.take().map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
    }

    /// Draws it into a scene.
    pub(super) fn draw(&self, now: Instant, scene: &mut Scene) {
        // Who is about to answer wants to see what was said.
        let seen = |until: &Instant| self.is_open() || now < *until;
        scene.chat = self.lines.iter().filter(|(_, until)| seen(until)).map(|(line, _)| line.clone()).collect();
        scene.typing.clone_from(&self.typing);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_typed_is_said_once_and_is_never_too_long() {
        let mut chat = Chat::default();
        chat.push('x');
        assert_eq!(chat.finish(), None, "nobody wanted to say anything");
        chat.open();
        " hi\n!?".chars().for_each(|sign| chat.push(sign));
        chat.erase();
        assert_eq!((chat.finish(), chat.finish()), (Some("hi!".into()), None));
        chat.open();
        (0..MAX_CHAT_LEN).for_each(|_| chat.push('é'));
        assert!(chat.finish().is_some_and(|line| line.len() <= MAX_CHAT_LEN));
    }

    #[test]
    fn lines_go_after_a_while_unless_somebody_answers() {
        let (mut chat, now, mut scene) = (Chat::default(), Instant::now(), Scene::default());
        (0..9).for_each(|n| chat.hear(now, "Ann", &n.to_string()));
        chat.draw(now, &mut scene);
        assert_eq!((scene.chat.len(), scene.chat.last().map(String::as_str)), (LINES, Some("Ann: 8")));
        chat.draw(now + SEEN, &mut scene);
        assert!(scene.chat.is_empty());
        chat.open();
        chat.draw(now + SEEN, &mut scene);
        assert_eq!((scene.chat.len(), scene.typing.as_deref()), (LINES, Some("")));
    }
}
