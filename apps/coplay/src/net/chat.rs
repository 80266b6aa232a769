//! Chat of a shared game: recent lines, and the message that is being typed.

use std::time::{Duration, Instant};

use coplay_net::lobby::MAX_CHAT_LEN;

use crate::scene::Scene;

/// Time for which a line is shown.
const LINE_DURATION: Duration = Duration::from_secs(12);
/// Largest number of lines that are kept; a further line replaces the oldest one.
const MAX_LINES: usize = 6;

/// Recent lines, each with the time until which it is shown, and the draft of a message.
#[derive(Debug, Default)]
pub(super) struct Chat {
    lines: Vec<(String, Instant)>,
    draft: Option<String>,
}

impl Chat {
    /// Adds a line that a player or spectator sent.
    pub(super) fn add_line(&mut self, now: Instant, name: &str, line: &str) {
        if self.lines.len() == MAX_LINES {
            self.lines.remove(0);
        }
        let name = if name.is_empty() { "unnamed" } else { name };
        self.lines.push((format!("{name}: {line}"), now + LINE_DURATION));
    }

    /// Starts an empty message. [`type_char`](Self::type_char) appends to it.
    pub(super) fn open(&mut self) {
        self.draft = Some(String::new());
    }

    /// Discards the message that is being typed.
    pub(super) fn close(&mut self) {
        self.draft = None;
    }

    pub(super) fn is_open(&self) -> bool {
        self.draft.is_some()
    }

    /// Adds a character to the message, unless it is a control character or the message would exceed [`MAX_CHAT_LEN`]
    /// bytes.
    pub(super) fn type_char(&mut self, character: char) {
        if let Some(text) = &mut self.draft
            && !character.is_control()
            && text.len() + character.len_utf8() <= MAX_CHAT_LEN
        {
            text.push(character);
        }
    }

    pub(super) fn erase_char(&mut self) {
        if let Some(text) = &mut self.draft {
            text.pop();
        }
    }

    /// Ends typing, and returns the trimmed message; `None` if it is empty.
    pub(super) fn take_message(&mut self) -> Option<String> {
        self.draft.take().map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
    }

    /// Draws the lines and the draft into a scene.
    pub(super) fn draw(&self, now: Instant, scene: &mut Scene) {
        // While a message is typed, older lines stay: the message may answer them.
        let is_shown = |until: &Instant| self.is_open() || now < *until;
        scene.chat = self.lines.iter().filter(|(_, until)| is_shown(until)).map(|(line, _)| line.clone()).collect();
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
        assert_eq!(chat.take_message(), None, "no message was started");
        chat.open();
        " hi\n!?".chars().for_each(|character| chat.type_char(character));
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
