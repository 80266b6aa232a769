//! What an instance and its core have told each other. Everything that a core's callbacks touch is here.

use std::collections::VecDeque;
use std::ffi::CString;

use coplay::input::InputWord;

use super::options::CoreOptions;
use super::truncate_at_char;
use super::video::VideoFrame;

/// The most players of one machine.
pub(super) const MAX_PLAYERS: usize = 8;

/// Pairs of samples taken per frame: a second's worth at the highest usual rate.
const MAX_SAMPLES_PER_FRAME: usize = 1 << 16;

/// Lines of a core's talk that are kept, and bytes of a line.
const MAX_LOG_LINES: usize = 32;
const MAX_LOG_LINE_LEN: usize = 240;

/// Flags of what a core should produce in a frame.
pub(super) mod produce {
    pub(in super::super) const VIDEO: u32 = 1;
    pub(in super::super) const SOUND: u32 = 2;
    pub(in super::super) const ALL: u32 = VIDEO | SOUND;
}

/// What a core says of its saved states.
pub(super) mod quirk {
    pub(in super::super) const INCOMPLETE: u64 = 1;
    pub(in super::super) const VARIABLE_SIZE: u64 = 1 << 2;
    pub(in super::super) const HOST_KNOWS_VARIABLE_SIZE: u64 = 1 << 3;
    pub(in super::super) const SINGLE_SESSION: u64 = 1 << 4;
    pub(in super::super) const ENDIAN: u64 = 1 << 5;
    pub(in super::super) const PLATFORM: u64 = 1 << 6;
}

/// Size and speed of what a core shows and plays, as it says.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AvInfo {
    pub(super) width: u32,
    pub(super) height: u32,
    pub(super) aspect: f32,
    pub(super) fps: f64,
    pub(super) sample_rate: f64,
}

/// Something that can be pressed on some port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Descriptor {
    pub(super) port: u32,
    pub(super) device: u32,
    pub(super) index: u32,
    pub(super) id: u32,
    pub(super) label: String,
}

/// A kind of controller that a port takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// What the core calls it.
    pub name: String,
    /// Its number, for [`Config::devices`](super::CoreConfig::devices).
    pub id: u32,
}

/// What a core has said in words, the last lines of it.
#[derive(Default)]
pub(super) struct CoreLog(VecDeque<String>);

impl CoreLog {
    pub(super) fn push(&mut self, line: &str) {
        // What is left when placeholders are not filled in is sometimes nothing.
        if !line.split_whitespace().any(|word| !word.contains('%') && word.contains(char::is_alphanumeric)) {
            return;
        }
        if self.0.len() == MAX_LOG_LINES {
            self.0.pop_front();
        }
        self.0.push_back(truncate_at_char(line, MAX_LOG_LINE_LEN).to_owned());
    }

    /// Likewise, where it is a format for values that are not known.
    pub(super) fn push_format(&mut self, format: &str) {
        self.push(&strip_placeholders(format));
    }

    pub(super) fn lines(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }
}

/// A format of C without the values that belong into it.
fn strip_placeholders(format: &str) -> String {
    let (mut text, mut rest) = (String::with_capacity(format.len()), format);
    while let Some((before, after)) = rest.split_once('%') {
        text.push_str(before);
        if let Some(after) = after.strip_prefix('%') {
            text.push('%');
            rest = after;
            continue;
        }
        // Flags, width, precision and length; then one letter for the kind.
        let mut kind = after.trim_start_matches(|sign: char| "+-# 0123456789.*hljztLq".contains(sign)).chars();
        kind.next();
        text.push('…');
        rest = kind.as_str();
    }
    text + rest
}

/// The host's side of one instance.
#[derive(Default)]
pub(super) struct FrontendState {
    // Set by the caller.
    pub(super) options: CoreOptions,
    pub(super) system_directory: CString,
    pub(super) save_directory: CString,
    pub(super) players: u32,

    // Set for each frame.
    pub(super) inputs: [InputWord; MAX_PLAYERS],
    /// Whether the frame is seen and heard.
    pub(super) is_rendered: bool,
    /// What the core should [`requested_outputs`].
    pub(super) requested_outputs: u32,
    /// Whether pictures are hashed, also unseen ones.
    pub(super) hash_pictures: bool,
    /// The time that the core is told, in microseconds: it depends on the number of frames and on nothing else.
    pub(super) time_us: u64,

    // Told by the core.
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
    /// Takes sound, as much of it as fits.
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
        assert_eq!(log.lines().count(), 0, "nothing is left");
    }
}
