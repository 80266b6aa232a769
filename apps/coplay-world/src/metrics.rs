//! Metrics of a server: as text for Prometheus, and as JSON for people and scripts.

use std::fmt::Write as _;

use coplay::mirror::{GTD_BUCKET_WIDTH, MirrorStats};
use coplay::time::{Instant, TimeDelta};
use coplay_world::TICK_DURATION;

/// Time without a tick after which a world counts as stalled.
const STALL_TIMEOUT: TimeDelta = TimeDelta::from_secs(3);

/// State, counters and resource usage of a server at one moment.
#[derive(Clone, Debug, Default)]
pub struct ServerMetrics {
    /// Id that the server drew at random for this run.
    pub source: String,
    /// Whether the server is ready for players: it knows the world time, and had time to learn from other servers.
    pub is_open: bool,
    /// Whether the server asks its players to move to other servers, because it is about to stop.
    pub is_draining: bool,
    /// Whether the world has no room for new players. Present players are not affected.
    pub is_full: bool,
    /// Last simulated tick of the world; 0 before the first.
    pub tick: u32,
    /// Time at which that tick was simulated, on the local clock; `None` before the first.
    pub tick_time: Option<Instant>,
    /// Number of players that are connected to this server.
    pub player_count: usize,
    /// Number of entities, players and ninjas, that this server simulates.
    pub owned_entities: usize,
    /// Number of avatars in the world, on all servers.
    pub entities: usize,
    /// Number of known entities, including departed ones with a score.
    pub known_entities: usize,
    /// Number of other servers that are reachable at present.
    pub mirror_count: usize,
    /// Hash of the known state; `None` unless a request to `/state` asked for it.
    pub digest: Option<u64>,
    /// Number of motion commands that this server has accepted from players.
    pub commands: u64,
    /// Time by which the group time is ahead of the clock of this computer, in milliseconds. Where all processes read
    /// the same clock, it differs between the servers of one computer by the difference of their group times.
    pub group_time_offset_ms: f64,
    /// Counters and delays of the events exchanged with other servers.
    pub mirror_stats: MirrorStats,
    /// Numbers of datagrams and bytes sent to players since the start.
    pub players_sent: (u64, u64),
    /// Numbers of datagrams and bytes received from players since the start.
    pub players_received: (u64, u64),
    /// Number of datagrams from players that were rejected, dropped by the kernel, or found a full queue.
    pub refused_datagrams: u64,
    /// Processor time that the server process has used, in seconds.
    pub cpu_seconds: f64,
    /// Resident memory of the server process, in bytes.
    pub memory_bytes: u64,
}

/// Returns the time from this tick until the 32-bit tick counter of a world runs out. The counter lasts 497 days.
pub fn remaining_tick_time(tick: u32) -> TimeDelta {
    TICK_DURATION * i64::from(u32::MAX - tick)
}

impl ServerMetrics {
    /// Returns the time since the last tick; `None` before the first.
    fn tick_age(&self, now: Instant) -> Option<TimeDelta> {
        self.tick_time.map(|ticked| (now - ticked).max(TimeDelta::ZERO))
    }

    /// Returns whether the world has not advanced for 3 s; `false` before the first tick. The HTTP thread calls this,
    /// because the thread of a stalled world cannot.
    pub fn is_stalled(&self, now: Instant) -> bool {
        self.tick_age(now).is_some_and(|age| age >= STALL_TIMEOUT)
    }

    /// Formats the metrics in the text format of Prometheus.
    pub fn to_prometheus(&self, now: Instant) -> String {
        let stats = &self.mirror_stats;
        let mut text = String::new();
        let mut gauge = |name: &str, help: &str, value: f64| write_metric(&mut text, name, "gauge", help, value);
        gauge("players", "Players on this server", self.player_count as f64);
        gauge("owned_objects", "Entities simulated by this server", self.owned_entities as f64);
        gauge("objects", "Entities in the world", self.entities as f64);
        gauge("known_objects", "Known entities, including departed ones with a score", self.known_entities as f64);
        gauge("mirrors", "Other servers from which messages arrived within the last 3 s", self.mirror_count as f64);
        gauge(
            "open",
            "1 once the server is ready for players, even if it is full or stopping, else 0",
            f64::from(u8::from(self.is_open)),
        );
        gauge("full", "1 if the world has no room for new players, else 0", f64::from(u8::from(self.is_full)));
        gauge("tick", "Current tick of the world, 10 ms each", f64::from(self.tick));
        let age = self.tick_age(now).map_or(f64::NAN, TimeDelta::as_secs_f64);
        gauge("tick_age_seconds", "Seconds since the current tick was simulated", age);
        gauge(
            "seconds_left",
            "Seconds until the 32-bit tick counter runs out",
            remaining_tick_time(self.tick).as_secs_f64(),
        );
        gauge("memory_bytes", "Resident memory in bytes", self.memory_bytes as f64);
        let mut counter = |name: &str, help: &str, value: f64| write_metric(&mut text, name, "counter", help, value);
        counter("commands_total", "Input changes received from players", self.commands as f64);
        counter("cpu_seconds_total", "Processor time used, in seconds", self.cpu_seconds);
        counter("events_issued_total", "Events issued by this server", stats.issued as f64);
        let (delivered, late) = (stats.remote_delivered() as f64, stats.over_threshold as f64);
        counter(
            "events_delivered_total",
            "Events of other servers delivered to this server's copy of the world",
            delivered,
        );
        counter("events_late_total", "Events of other servers delivered more than 150 ms after their issue", late);
        counter(
            "events_dropped_total",
            "Obsolete events of other servers received but not delivered",
            stats.dropped as f64,
        );
        counter(
            "events_skipped_total",
            "Obsolete events of other servers that were missing and not awaited",
            stats.skipped as f64,
        );
        counter(
            "events_asked_total",
            "Missing events requested from other servers; a repeated request counts again",
            stats.requested as f64,
        );
        counter(
            "mirror_sent_bytes_total",
            "Bytes sent to other servers, before encryption; a datagram to all servers counts once",
            stats.sent.1 as f64,
        );
        counter(
            "mirror_received_bytes_total",
            "Bytes received from other servers, after decryption",
            stats.received.1 as f64,
        );
        counter("player_sent_datagrams_total", "Datagrams sent to players", self.players_sent.0 as f64);
        counter("player_sent_bytes_total", "Bytes sent to players, before encryption", self.players_sent.1 as f64);
        counter("player_received_datagrams_total", "Datagrams received from players", self.players_received.0 as f64);
        counter(
            "player_received_bytes_total",
            "Bytes received from players, after decryption",
            self.players_received.1 as f64,
        );
        counter(
            "refused_datagrams_total",
            "Datagrams from players rejected or discarded",
            self.refused_datagrams as f64,
        );
        self.write_delay_histogram(&mut text);
        text
    }

    /// Writes a histogram of the delays with which events of other servers were delivered.
    fn write_delay_histogram(&self, text: &mut String) {
        let name = "coplay_world_event_delay_seconds";
        let _ = writeln!(
            text,
            "# HELP {name} Delay of events of other servers from issue to delivery, in seconds\n# TYPE {name} histogram"
        );
        let mut sum = 0;
        for (step, count) in self.mirror_stats.gtd_histogram.iter().enumerate() {
            sum += *count;
            let until = (GTD_BUCKET_WIDTH * (step as i64 + 1)).as_secs_f64();
            if step + 1 < self.mirror_stats.gtd_histogram.len() && (step + 1) % 25 == 0 {
                let _ = writeln!(text, "{name}_bucket{{le=\"{until}\"}} {sum}");
            }
        }
        let _ = writeln!(text, "{name}_bucket{{le=\"+Inf\"}} {sum}");
        let _ = writeln!(text, "{name}_sum {}\n{name}_count {sum}", self.mirror_stats.gtd_sum_s());
    }

    /// Formats the delay histogram as a JSON list. Entry n, from 0, is the number of events of other servers that were
    /// delivered n to n + 1 ms after their issue; entry 499 also counts longer delays. Zeros at the end are left out.
    fn delay_counts_json(&self) -> String {
        let counts = &self.mirror_stats.gtd_histogram;
        let used = counts.iter().rposition(|count| *count > 0).map_or(0, |last| last + 1);
        let counts: Vec<String> = counts[..used].iter().map(u64::to_string).collect();
        format!("[{}]", counts.join(","))
    }

    /// Formats the metrics as one line of JSON, for people and scripts.
    pub fn to_json(&self) -> String {
        let stats = &self.mirror_stats;
        let quantile = |part: u32| {
            stats.gtd_quantile(part).map_or_else(|| "null".into(), |gtd| format!("{:.0}", gtd.as_millis_f64()))
        };
        let fields = [
            ("source", format!("\"{}\"", self.source)),
            ("open", self.is_open.to_string()),
            ("drains", self.is_draining.to_string()),
            ("full", self.is_full.to_string()),
            ("tick", self.tick.to_string()),
            ("players", self.player_count.to_string()),
            ("owned", self.owned_entities.to_string()),
            ("objects", self.entities.to_string()),
            ("known_objects", self.known_entities.to_string()),
            ("mirrors", self.mirror_count.to_string()),
            ("digest", self.digest.map_or_else(|| "null".into(), |digest| format!("\"{digest:016x}\""))),
            ("commands", self.commands.to_string()),
            ("time_ahead_ms", format!("{:.3}", self.group_time_offset_ms)),
            ("issued", stats.issued.to_string()),
            ("delivered", stats.remote_delivered().to_string()),
            ("late", stats.over_threshold.to_string()),
            ("dropped", (stats.dropped + stats.skipped).to_string()),
            ("asked", stats.requested.to_string()),
            ("delay_p50_ms", quantile(500)),
            ("delay_p99_ms", quantile(990)),
            ("delays", self.delay_counts_json()),
            ("mirror_sent_bytes", stats.sent.1.to_string()),
            ("player_sent_bytes", self.players_sent.1.to_string()),
            ("player_received_bytes", self.players_received.1.to_string()),
            ("cpu_seconds", format!("{:.2}", self.cpu_seconds)),
            ("memory_bytes", self.memory_bytes.to_string()),
        ];
        let fields: Vec<String> = fields.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
        format!("{{{}}}\n", fields.join(","))
    }
}

fn write_metric(text: &mut String, name: &str, kind: &str, help: &str, value: f64) {
    let _ = writeln!(
        text,
        "# HELP coplay_world_{name} {help}\n# TYPE coplay_world_{name} {kind}\ncoplay_world_{name} {value}"
    );
}

/// Returns the processor time in seconds and the resident memory in bytes of this process; 0 where the system has no
/// `/proc`.
pub fn process_usage() -> (f64, u64) {
    let ticks_per_second = 100.0;
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // Fields after the name of the program, which may contain anything.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let field = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok()).unwrap_or_default();
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    ((field(11) + field(12)) as f64 / ticks_per_second, resident_bytes(&status))
}

/// Parses the resident memory from `/proc/self/status`, where it is in kilobytes whatever the page size.
fn resident_bytes(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kilobytes.unwrap_or_default() * 1_024
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    const NOW: Instant = Instant::from_nanos(100_000_000_000);

    fn sample_metrics() -> ServerMetrics {
        let ticked = Some(NOW - TimeDelta::from_millis(20));
        let mut metrics = ServerMetrics {
            player_count: 3,
            entities: 5,
            known_entities: 9,
            tick_time: ticked,
            ..ServerMetrics::default()
        };
        metrics.mirror_stats.gtd_histogram[2] = 7;
        metrics.mirror_stats.gtd_histogram[160] = 2;
        metrics.mirror_stats.gtd_histogram[499] = 1;
        (metrics.mirror_stats.delivered, metrics.mirror_stats.over_threshold) = (5_000, 3);
        metrics
    }

    /// Checks the HELP, TYPE and sample lines against the text format, version 0.0.4:
    /// <https://prometheus.io/docs/instrumenting/exposition_formats/>.
    #[test]
    fn prometheus_text_format_is_valid() {
        let text = sample_metrics().to_prometheus(NOW);
        assert!(text.ends_with('\n'));
        let (mut kinds, mut samples) = (BTreeMap::new(), Vec::new());
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            if let Some(help) = line.strip_prefix("# HELP ") {
                let (name, _) = help.split_once(' ').expect("HELP has a name and a text");
                let kind = lines.next().and_then(|line| line.strip_prefix("# TYPE "));
                let (of, kind) = kind.and_then(|line| line.split_once(' ')).expect("TYPE follows HELP");
                assert!(of == name && kinds.insert(name, kind).is_none(), "{name} is described twice");
                continue;
            }
            let (sample, value) = line.rsplit_once(' ').expect("a sample has a name and a value");
            assert!(value.parse::<f64>().is_ok(), "{line}");
            let name = sample.split('{').next().unwrap_or_default();
            assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{line}");
            samples.push((sample, value));
        }
        for (name, kind) in &kinds {
            assert_eq!(*kind == "counter", name.ends_with("_total"), "{name}");
        }
        let is_described = |(sample, _): &&(&str, &str)| {
            let name = sample.split('{').next().unwrap_or_default();
            let of = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
            kinds.contains_key(name) || of.is_some_and(|of| kinds.get(of) == Some(&"histogram"))
        };
        assert_eq!(samples.iter().filter(is_described).count(), samples.len());
    }

    #[test]
    fn histogram_buckets_are_cumulative() {
        let text = sample_metrics().to_prometheus(NOW);
        let (mut limit, mut count) = (0.0, 0);
        let buckets =
            text.lines().filter_map(|line| line.strip_prefix("coplay_world_event_delay_seconds_bucket{le=\""));
        for (le, value) in buckets.filter_map(|bucket| bucket.split_once("\"} ")) {
            let (le, value): (f64, u64) = (le.parse().expect("a number"), value.parse().expect("a count"));
            assert!(le > limit && value >= count, "{le} {value}");
            (limit, count) = (le, value);
        }
        assert_eq!((limit, count), (f64::INFINITY, 10));
        for line in ["bucket{le=\"0.025\"} 7", "bucket{le=\"0.175\"} 9", "count 10", "sum 0"] {
            assert!(text.contains(&format!("\ncoplay_world_event_delay_seconds_{line}\n")), "{line}: {text}");
        }
    }

    #[test]
    fn metrics_have_the_expected_values() {
        let (text, json) = (sample_metrics().to_prometheus(NOW), sample_metrics().to_json());
        // Both counters exclude this server's own events: `late` divided by `delivered` is the share of late events.
        for line in ["events_delivered_total 10", "events_late_total 3", "objects 5", "known_objects 9", "players 3"] {
            assert!(text.contains(&format!("\ncoplay_world_{line}\n")), "{line}: {text}");
        }
        assert!(text.contains("\ncoplay_world_tick_age_seconds 0.02\n"), "{text}");
        for field in ["\"delivered\":10,", "\"late\":3,", "\"objects\":5,", "\"known_objects\":9,", "\"digest\":null,"]
        {
            assert!(json.contains(field), "{field}: {json}");
        }
        assert!(json.starts_with("{\"source\":\"\",") && json.ends_with("}\n"));
    }

    #[test]
    fn tick_counter_lasts_497_days() {
        let day = TimeDelta::from_secs(86_400);
        assert!(remaining_tick_time(0) > day * 497 && remaining_tick_time(0) < day * 498);
        assert_eq!(remaining_tick_time(u32::MAX), TimeDelta::ZERO);
    }

    #[test]
    fn resident_memory_is_parsed_from_kilobytes() {
        assert_eq!(resident_bytes("VmPeak:\t   10 kB\nVmRSS:\t    5736 kB\n"), 5_736 * 1_024);
        assert_eq!(resident_bytes(""), 0);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn process_usage_is_not_zero() {
        assert!(process_usage().1 > 100_000);
    }
}
