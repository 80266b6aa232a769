//! What a run came to, in a few rows.

use std::fmt;
use std::time::Duration;

use coplay::frame::FrameRate;

/// The rows, and what else a person may want to know.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    rows: Vec<(&'static str, String, String)>,
    /// Words that go to stderr: what was missing.
    pub notes: Vec<String>,
}

impl Summary {
    /// So many frames, and how fast that was where they came as fast as they could.
    pub fn for_frames(frames: u64, took: Option<Duration>, rate: FrameRate) -> Self {
        let mut summary = Self::default();
        summary.add_row("frames", frames.to_string(), "");
        if let Some(took) = took {
            let (count, seconds) = rate.fraction();
            let usual = f64::from(count) / f64::from(seconds);
            let speed = frames as f64 / took.as_secs_f64().max(1e-9);
            summary.add_row(
                "speed",
                format!("{speed:.1} fps"),
                &format!("{:.1} times the usual {usual:.2}", speed / usual),
            );
        }
        summary
    }

    /// One more row: what, how much, and a word about it.
    pub fn add_row(&mut self, what: &'static str, value: String, about: &str) {
        self.rows.push((what, value, about.into()));
    }

    /// Whether it came to nothing.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// With words about what was missing.
    pub fn with_notes(mut self, notes: Vec<String>) -> Self {
        self.notes = notes;
        self
    }

    /// Shows it: rows on stdout, notes on stderr.
    pub fn print(&self) {
        crate::print_stdout(&self.to_string());
        self.notes.iter().for_each(|note| eprintln!("note: {note}"));
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (what, value, about) in &self.rows {
            let row = format!("{what:<12} {value:<18} {about}");
            writeln!(f, "{}", row.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_printed_in_order() {
        let mut summary = Summary::for_frames(600, Some(Duration::from_secs(5)), FrameRate::per_second(60).unwrap());
        summary.add_row("state", "00ff".into(), "");
        assert_eq!(
            summary.to_string(),
            "frames       600\nspeed        120.0 fps          2.0 times the usual 60.00\nstate        00ff\n"
        );
    }
}
