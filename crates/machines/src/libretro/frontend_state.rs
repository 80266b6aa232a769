//! The frontend's side of an instance: the data that a core's callbacks read and write, except pointers into the core.

use std::collections::VecDeque;
use std::ffi::CString;

use coplay::input::InputWord;

use super::options::CoreOptions;
use super::truncate_at_char;
use super::video::VideoFrame;

/// Maximum number of players of a core.
pub(super) const MAX_PLAYERS: usize = 8;

/// Maximum number of sample pairs per frame: 1.4 s at 48 kHz. Further samples are dropped.
const MAX_SAMPLES_PER_FRAME: usize = 1 << 16;

/// Maximum number of kept log lines. The oldest line is removed first.
const MAX_LOG_LINES: usize = 32;
/// Maximum length of a log line in bytes.
const MAX_LOG_LINE_LEN: usize = 240;

/// Flags of the outputs that a core should produce in a frame.
pub(super) mod produce {
    pub(in super::super) const VIDEO: u32 = 1;
    pub(in super::super) const SOUND: u32 = 2;
    pub(in super::super) const ALL: u32 = VIDEO | SOUND;
}

/// Flags with which a core describes its saved states, and with which the frontend answers what it supports.
pub(super) mod quirk {
    pub(in super::super) const INCOMPLETE: u64 = 1;
    pub(in super::super) const VARIABLE_SIZE: u64 = 1 << 2;
    pub(in super::super) const HOST_KNOWS_VARIABLE_SIZE: u64 = 1 << 3;
    pub(in super::super) const SINGLE_SESSION: u64 = 1 << 4;
    pub(in super::super) const ENDIAN: u64 = 1 << 5;
    pub(in super::super) const PLATFORM: u64 = 1 << 6;
}

/// Picture size, frame rate and sample rate that a core announces.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AvInfo {
    pub(super) width: u32,
    pub(super) height: u32,
    pub(super) aspect: f32,
    pub(super) fps: f64,
    pub(super) sample_rate: f64,
}

/// An input of a port, such as a button or an axis, as described by the core.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Descriptor {
    pub(super) port: u32,
    pub(super) device: u32,
    pub(super) index: u32,
    pub(super) id: u32,
    pub(super) label: String,
}

/// A device that a port takes, as announced by the core.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Display name that the core gives to the device.
    pub name: String,
    /// Device id, for [`CoreConfig::devices`](super::CoreConfig::devices).
    pub id: u32,
}

/// The last log lines of a core.
#[derive(Default)]
pub(super) struct CoreLog(VecDeque<String>);

impl CoreLog {
    pub(super) fn push(&mut self, line: &str) {
        // A line without any word besides placeholders is dropped.
        if !line.split_whitespace().any(|word| !word.contains('%') && word.contains(char::is_alphanumeric)) {
            return;
        }
        if self.0.len() == MAX_LOG_LINES {
            self.0.pop_front();
        }
        self.0.push_back(truncate_at_char(line, MAX_LOG_LINE_LEN).to_owned());
    }

    /// Adds a printf format as a log line, with `…` in place of each value.
    pub(super) fn push_format(&mut self, format: &str) {
        self.push(&strip_placeholders(format));
    }

    pub(super) fn lines(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }
}

/// Replaces the placeholders of a printf format by `…`.
fn strip_placeholders(format: &str) -> String {
    let (mut text, mut rest) = (String::with_capacity(format.len()), format);
    while let Some((before, after)) = rest.split_once('%') {
        text.push_str(before);
        if let Some(after) = after.strip_prefix('%') {
            text.push('%');
            rest = after;
            continue;
        }
        // Skips flags, width, precision and length, then one letter for the conversion.
        let mut kind = after.trim_start_matches(|sign: char| "+-# 0123456789.*hljztLq".contains(sign)).chars();
        kind.next();
        text.push('…');
        rest = kind.as_str();
    }
    text + rest
}

/// Data that the callbacks of one instance read and write, except pointers into the core.
#[derive(Default)]
pub(super) struct FrontendState {
    // Set before the core is opened.
    pub(super) options: CoreOptions,
    pub(super) system_directory: CString,
    pub(super) save_directory: CString,
    pub(super) players: u32,

    // Set by the frontend while the core runs.
    pub(super) inputs: [InputWord; MAX_PLAYERS],
    /// Whether the frame is shown and heard.
    pub(super) is_rendered: bool,
    /// Outputs that the core is to produce in this frame, as flags of [`produce`].
    pub(super) requested_outputs: u32,
    /// Whether pictures are hashed, including those of frames that are not rendered.
    pub(super) hash_pictures: bool,
    /// Time that the core sees, in microseconds: 16,667 µs per stepped frame.
    pub(super) time_us: u64,

    // Set by the core.
    pub(super) video: VideoFrame,
    pub(super) sound: Vec<[i16; 2]>,
    pub(super) av_info: AvInfo,
    pub(super) descriptors: Vec<Descriptor>,
    pub(super) ports: Vec<Vec<Device>>,
    pub(super) quirks: u64,
    pub(super) has_queried_outputs: bool,
    pub(super) runs_without_game: bool,
    pub(super) requested_gpu: bool,
    pub(super) log: CoreLog,
}

impl FrontendState {
    /// Appends sound of a rendered frame, up to [`MAX_SAMPLES_PER_FRAME`]. Sound of other frames is dropped.
    pub(super) fn push_samples(&mut self, samples: &[[i16; 2]]) {
        if self.is_rendered {
            let room = MAX_SAMPLES_PER_FRAME.saturating_sub(self.sound.len());
            self.sound.extend_from_slice(&samples[..samples.len().min(room)]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printf_placeholders_are_stripped_from_log_lines() {
        assert_eq!(strip_placeholders("bad image %s at %d"), "bad image … at …");
        assert_eq!(strip_placeholders("[%-8.*s] %#06llx, 50 %% of %zu"), "[…] …, 50 % of …");
        assert_eq!(strip_placeholders("cut off: %"), "cut off: …");
        let mut log = CoreLog::default();
        log.push_format("%s: %d");
        assert_eq!(log.lines().count(), 0, "the line has no text");
    }
}
