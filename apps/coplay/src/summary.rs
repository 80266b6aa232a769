//! Summary of a run: a few rows that are printed at its end.

use std::fmt;
use std::time::Duration;

use coplay::frame::FrameRate;

/// Summary: rows with name, value and explanation, and the notes.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    rows: Vec<(&'static str, String, String)>,
    /// Notes for stderr, such as those about missing devices.
    pub notes: Vec<String>,
}

impl Summary {
    /// Starts a summary with the number of frames and the speed of a run that took `elapsed`: frames per second, and
    /// their ratio to the machine's frame rate `rate`. If `elapsed` is `None`, as for a run in real time, leaves the
    /// speed out.
    pub fn for_frames(frames: u64, elapsed: Option<Duration>, rate: FrameRate) -> Self {
        let mut summary = Self::default();
        summary.add_row("frames", frames.to_string(), "");
        if let Some(elapsed) = elapsed {
            let (count, seconds) = rate.fraction();
            let normal = f64::from(count) / f64::from(seconds);
            let speed = frames as f64 / elapsed.as_secs_f64().max(1e-9);
            summary.add_row(
                "speed",
                format!("{speed:.1} fps"),
                &format!("{:.1} times the normal {normal:.2} fps", speed / normal),
            );
        }
        summary
    }

    /// Appends a row with a name, a value and an explanation `about` the value, which is "" for none.
    pub fn add_row(&mut self, name: &'static str, value: String, about: &str) {
        self.rows.push((name, value, about.into()));
    }

    /// Returns whether no row was added.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Replaces the notes.
    pub fn with_notes(mut self, notes: Vec<String>) -> Self {
        self.notes = notes;
        self
    }

    /// Prints the rows to stdout and the notes to stderr.
    pub fn print(&self) {
        coplay_shell::print_stdout(&self.to_string());
        self.notes.iter().for_each(|note| eprintln!("note: {note}"));
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value, about) in &self.rows {
            let row = format!("{name:<12} {value:<18} {about}");
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
            "frames       600\nspeed        120.0 fps          2.0 times the normal 60.00 fps\nstate        00ff\n"
        );
    }
}
