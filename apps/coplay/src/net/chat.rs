//! What people say to each other.

use std::time::{Duration, Instant};

use coplay_net::lobby::MAX_CHAT_LEN;

use crate::scene::Scene;

/// How long a line is seen, and how many at once.
const LINE_DURATION: Duration = Duration::from_secs(12);
const MAX_LINES: usize = 6;

/// What was said of late, and what is being typed.
#[derive(Debug, Default)]
pub(super) struct Chat {
    lines: Vec<(String, Instant)>,
    draft: Option<String>,
}

impl Chat {
    /// Somebody said something.
    pub(super) fn add_line(&mut self, now: Instant, name: &str, line: &str) {
        if self.lines.len() == MAX_LINES {
            self.lines.remove(0);
        }
        let name = if name.is_empty() { "somebody" } else { name };
        self.lines.push((format!("{name}: {line}"), now + LINE_DURATION));
    }

    /// Somebody here wants to say something.
    pub(super) fn open(&mut self) {
        self.draft = Some(String::new());
    }

    /// Or not.
    pub(super) fn close(&mut self) {
        self.draft = None;
    }

    pub(super) fn is_open(&self) -> bool {
        self.draft.is_some()
    }

    /// One more letter.
    pub(super) fn type_char(&mut self, sign: char) {
        if let Some(text) = &mut self.draft
            && !sign.is_control()
            && text.len() + sign.len_utf8() <= MAX_CHAT_LEN
        {
            text.push(sign);
        }
    }

    /// One letter less.
    pub(super) fn erase_char(&mut self) {
        if let Some(text) = &mut self.draft {
            text.pop();
        }
    }

    /// What was typed is to be said, if it is anything.
    pub(super) fn take_message(&mut self) -> Option<String> {
        self.draft.take().map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
    }

    /// Draws it into a scene.
    pub(super) fn draw(&self, now: Instant, scene: &mut Scene) {
        // Who is about to answer wants to see what was said.
        let seen = |until: &Instant| self.is_open() || now < *until;
        scene.chat = self.lines.iter().filter(|(_, until)| seen(until)).map(|(line, _)| line.clone()).collect();
        scene.chat_draft.clone_from(&self.draft);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typed_message_is_sent_once_and_limited_in_length() {
        let mut chat = Chat::default();
        chat.type_char('x');
        assert_eq!(chat.take_message(), None, "nobody wanted to say anything");
        chat.open();
        " hi\n!?".chars().for_each(|sign| chat.type_char(sign));
        chat.erase_char();
        assert_eq!((chat.take_message(), chat.take_message()), (Some("hi!".into()), None));
        chat.open();
        (0..MAX_CHAT_LEN).for_each(|_| chat.type_char('é'));
        assert!(chat.take_message().is_some_and(|line| line.len() <= MAX_CHAT_LEN));
    }

    #[test]
    fn chat_lines_expire_unless_the_input_is_open() {
        let (mut chat, now, mut scene) = (Chat::default(), Instant::now(), Scene::default());
        (0..9).for_each(|n| chat.add_line(now, "Ann", &n.to_string()));
        chat.draw(now, &mut scene);
        assert_eq!((scene.chat.len(), scene.chat.last().map(String::as_str)), (MAX_LINES, Some("Ann: 8")));
        chat.draw(now + LINE_DURATION, &mut scene);
        assert!(scene.chat.is_empty());
        chat.open();
        chat.draw(now + LINE_DURATION, &mut scene);
        assert_eq!((scene.chat.len(), scene.chat_draft.as_deref()), (MAX_LINES, Some("")));
    }
}
