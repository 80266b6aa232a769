//! How a server does, in the form that Prometheus reads, and as JSON for people and scripts.

use std::fmt::Write as _;

use coplay::mirror::{STEP, Stats};

/// What is told of a server.
#[derive(Clone, Debug, Default)]
pub struct Numbers {
    /// Who it is.
    pub source: String,
    /// Whether players are let in.
    pub open: bool,
    /// Whether it is about to go.
    pub drains: bool,
    /// The tick that it is in the world.
    pub tick: u32,
    /// Players who are here.
    pub players: usize,
    /// Objects that are simulated here.
    pub owned: usize,
    /// Objects in the world.
    pub beings: usize,
    /// Other servers that are here.
    pub mirrors: usize,
    /// A number that is the same where the same is known.
    pub digest: u64,
    /// Times that players pressed other buttons.
    pub commands: u64,
    /// By how much the time that all servers share is ahead of the clock of this computer, in milliseconds. Where all processes read the same clock, those of one computer say the same.
    pub time_ahead_ms: f64,
    /// What passed between the servers.
    pub stats: Stats,
    /// Datagrams and bytes to and from players.
    pub players_sent: (u64, u64),
    /// The same, the other way.
    pub players_received: (u64, u64),
    /// Datagrams that were not for us.
    pub refused: u64,
    /// Processor time that was used, in seconds.
    pub cpu_seconds: f64,
    /// Memory that is used, in bytes.
    pub memory: u64,
}

impl Numbers {
    /// For Prometheus.
    pub fn prometheus(&self) -> String {
        let stats = &self.stats;
        let mut text = String::new();
        let mut gauge = |name: &str, help: &str, value: f64| put(&mut text, name, "gauge", help, value);
        gauge("players", "Players who are here", self.players as f64);
        gauge("owned_objects", "Objects that are simulated here", self.owned as f64);
        gauge("objects", "Objects in the world", self.beings as f64);
        gauge("mirrors", "Other servers that are here", self.mirrors as f64);
        gauge("open", "Whether players are let in", f64::from(u8::from(self.open)));
        gauge("tick", "The tick that it is in the world", f64::from(self.tick));
        gauge("memory_bytes", "Memory that is used", self.memory as f64);
        let mut counter = |name: &str, help: &str, value: f64| put(&mut text, name, "counter", help, value);
        counter("commands_total", "Times that players pressed other buttons", self.commands as f64);
        counter("cpu_seconds_total", "Processor time that was used", self.cpu_seconds);
        counter("events_issued_total", "Events that were issued here", stats.issued as f64);
        counter("events_delivered_total", "Events that were delivered", stats.delivered as f64);
        counter("events_late_total", "Events that took longer than the threshold", stats.over as f64);
        counter("events_dropped_total", "Obsolete events that were here and not delivered", stats.dropped as f64);
        counter("events_skipped_total", "Obsolete events that were missing and not waited for", stats.skipped as f64);
        counter("events_asked_total", "Events that were asked for again", stats.asked as f64);
        counter("mirror_sent_bytes_total", "Bytes to other servers", stats.sent.1 as f64);
        counter("mirror_received_bytes_total", "Bytes from other servers", stats.received.1 as f64);
        counter("player_sent_datagrams_total", "Datagrams to players", self.players_sent.0 as f64);
        counter("player_sent_bytes_total", "Bytes to players", self.players_sent.1 as f64);
        counter("player_received_datagrams_total", "Datagrams from players", self.players_received.0 as f64);
        counter("player_received_bytes_total", "Bytes from players", self.players_received.1 as f64);
        counter("refused_datagrams_total", "Datagrams that were not for us", self.refused as f64);
        self.put_delays(&mut text);
        text
    }

    /// How long events of other servers took.
    fn put_delays(&self, text: &mut String) {
        let name = "coplay_world_event_delay_seconds";
        let _ = writeln!(text, "# HELP {name} How long events of other servers took\n# TYPE {name} histogram");
        let mut sum = 0;
        for (step, count) in self.stats.gtd.iter().enumerate() {
            sum += u64::from(*count);
            let until = (STEP * (step as i64 + 1)).as_secs_f64();
            if step + 1 < self.stats.gtd.len() && (step + 1) % 25 == 0 {
                let _ = writeln!(text, "{name}_bucket{{le=\"{until}\"}} {sum}");
            }
        }
        let _ = writeln!(text, "{name}_bucket{{le=\"+Inf\"}} {sum}");
        let _ = writeln!(text, "{name}_sum {}\n{name}_count {sum}", self.stats.gtd_sum.as_secs_f64());
    }

    /// How many events of other servers took how many milliseconds: less than one, less than two, and so on.
    fn delays(&self) -> String {
        let counts = &self.stats.gtd;
        let used = counts.iter().rposition(|count| *count > 0).map_or(0, |last| last + 1);
        let counts: Vec<String> = counts[..used].iter().map(u32::to_string).collect();
        format!("[{}]", counts.join(","))
    }

    /// For people and scripts.
    pub fn json(&self) -> String {
        let stats = &self.stats;
        let quantile = |part: u32| {
            stats.gtd_quantile(part).map_or_else(|| "null".into(), |gtd| format!("{:.0}", gtd.as_millis_f64()))
        };
        let fields = [
            ("source", format!("\"{}\"", self.source)),
            ("open", self.open.to_string()),
            ("drains", self.drains.to_string()),
            ("tick", self.tick.to_string()),
            ("players", self.players.to_string()),
            ("owned", self.owned.to_string()),
            ("objects", self.beings.to_string()),
            ("mirrors", self.mirrors.to_string()),
            ("digest", format!("\"{:016x}\"", self.digest)),
            ("commands", self.commands.to_string()),
            ("time_ahead_ms", format!("{:.3}", self.time_ahead_ms)),
            ("issued", stats.issued.to_string()),
            ("delivered", stats.foreign().to_string()),
            ("late", stats.over.to_string()),
            ("dropped", (stats.dropped + stats.skipped).to_string()),
            ("asked", stats.asked.to_string()),
            ("delay_p50_ms", quantile(500)),
            ("delay_p99_ms", quantile(990)),
            ("delays", self.delays()),
            ("mirror_sent_bytes", stats.sent.1.to_string()),
            ("player_sent_bytes", self.players_sent.1.to_string()),
            ("player_received_bytes", self.players_received.1.to_string()),
            ("cpu_seconds", format!("{:.2}", self.cpu_seconds)),
            ("memory_bytes", self.memory.to_string()),
        ];
        let fields: Vec<String> = fields.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
        format!("{{{}}}\n", fields.join(","))
    }
}

fn put(text: &mut String, name: &str, kind: &str, help: &str, value: f64) {
    let _ = writeln!(
        text,
        "# HELP coplay_world_{name} {help}\n# TYPE coplay_world_{name} {kind}\ncoplay_world_{name} {value}"
    );
}

/// Processor time and memory of this program, where the system tells.
pub fn usage() -> (f64, u64) {
    let ticks_per_second = 100.0;
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // What comes after the name, which may hold anything.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let field = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok()).unwrap_or_default();
    ((field(11) + field(12)) as f64 / ticks_per_second, field(21) * 4_096)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prometheus_can_read_it() {
        let mut numbers = Numbers { players: 3, ..Numbers::default() };
        numbers.stats.gtd[2] = 7;
        numbers.stats.gtd[499] = 1;
        let text = numbers.prometheus();
        assert!(text.contains("# TYPE coplay_world_players gauge\ncoplay_world_players 3\n"));
        assert!(text.contains("coplay_world_event_delay_seconds_bucket{le=\"0.025\"} 7\n"));
        assert!(text.contains("coplay_world_event_delay_seconds_bucket{le=\"+Inf\"} 8\n"));
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (_, value) = line.rsplit_once(' ').expect("a name and a value");
            assert!(value.parse::<f64>().is_ok(), "{line}");
        }
        assert!(numbers.json().starts_with("{\"source\":\"\",") && numbers.json().ends_with("}\n"));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_program_uses_something() {
        assert!(usage().1 > 100_000);
    }
}
