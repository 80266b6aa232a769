//! Report of a load test: presence, losses, delays and traffic of all bots.

use std::fmt;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use coplay_world::{CONSISTENCY_TOLERANCE, ConsistencySummary};

use super::bot::BotStats;

/// Statistics of all bots at one moment.
#[derive(Clone, Debug)]
pub(crate) struct LoadReport {
    bot_stats: Vec<BotStats>,
    elapsed: Duration,
}

impl LoadReport {
    pub(super) fn from_stats(stats: &[Arc<Mutex<BotStats>>], elapsed: Duration) -> Self {
        let bot_stats =
            stats.iter().map(|stats| stats.lock().unwrap_or_else(PoisonError::into_inner).clone()).collect();
        Self { bot_stats, elapsed }
    }

    fn present_count(&self) -> usize {
        self.bot_stats.iter().filter(|stats| stats.is_present).count()
    }

    fn sum(&self, part: impl Fn(&BotStats) -> u64) -> u64 {
        self.bot_stats.iter().map(part).sum()
    }

    /// Returns the consistency of the avatars that all bots displayed, own and remote.
    fn consistency(&self) -> ConsistencySummary {
        let mut all = ConsistencySummary::default();
        self.bot_stats.iter().for_each(|stats| all.merge(&stats.consistency));
        all
    }

    /// Returns the number of avatars that were replaced, and of acknowledged hits and falls that were lost.
    fn losses(&self) -> (u64, u64) {
        (self.sum(|stats| stats.avatars_lost.into()), self.sum(|stats| stats.scores_lost.into()))
    }

    /// Returns whether any bot knows the round-trip time to its server, which is measured with the views of the world.
    pub(super) fn has_anybody_joined(&self) -> bool {
        self.bot_stats.iter().any(|stats| stats.rtt_ms.is_some())
    }

    /// Returns whether all bots are in the world, and no bot lost its avatar or acknowledged scores.
    pub(super) fn is_success(&self) -> bool {
        self.present_count() == self.bot_stats.len() && self.losses() == (0, 0)
    }

    pub(super) fn progress_line(&self) -> String {
        format!(
            "{:4.0} s: {} of {} bots in the world, {} hits, {} moves between servers, longest silence of a server {:.0} ms",
            self.elapsed.as_secs_f64(),
            self.present_count(),
            self.bot_stats.len(),
            self.sum(|stats| stats.acknowledged.hits.into()),
            self.sum(|stats| stats.server_moves.into()),
            worst(self.bot_stats.iter().map(|stats| stats.longest_silence_ms)),
        )
    }
}

impl fmt::Display for LoadReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.bot_stats.len().max(1) as f64;
        let each = |sum: u64| sum as f64 / count / self.elapsed.as_secs_f64();
        let mut rtts: Vec<f64> = self.bot_stats.iter().filter_map(|stats| stats.rtt_ms).collect();
        rtts.sort_by(f64::total_cmp);
        let lead_time = self
            .bot_stats
            .iter()
            .fold((0.0, 0), |sum, stats| (sum.0 + stats.lead_time_ms.0, sum.1 + stats.lead_time_ms.1));
        writeln!(
            f,
            "bots                  {} of {} in the world at the end",
            self.present_count(),
            self.bot_stats.len()
        )?;
        let ((avatars, scores), acknowledged) = (self.losses(), self.sum(|stats| stats.acknowledged.hits.into()));
        writeln!(f, "lost                  {avatars} avatars, {scores} acknowledged hits and falls")?;
        writeln!(f, "acknowledged hits     {acknowledged}")?;
        writeln!(f, "moves between servers {}", self.sum(|stats| stats.server_moves.into()))?;
        writeln!(
            f,
            "longest silence       {:.0} ms between two messages of a bot's servers",
            worst(self.bot_stats.iter().map(|stats| stats.longest_silence_ms))
        )?;
        writeln!(f, "round trip            {:.1} ms (median of the bots)", rtts.get(rtts.len() / 2).unwrap_or(&0.0))?;
        let mean_lead = lead_time.0 / lead_time.1.max(1) as f64;
        writeln!(f, "own avatar            {mean_lead:.1} ms ahead of the server's or behind it, on average")?;
        let consistency = self.consistency();
        writeln!(
            f,
            "discrepancy           {:.1} unit·s on average, {:.1} for own avatars; {:.1} % of all samples below {CONSISTENCY_TOLERANCE:.0} unit·s",
            consistency.mean_discrepancy().unwrap_or_default(),
            consistency.own_discrepancy().unwrap_or_default(),
            consistency.tolerated().unwrap_or_default() * 100.0,
        )?;
        let (sent, received) = (self.sum(|stats| stats.sent.1), self.sum(|stats| stats.received.1));
        writeln!(f, "bytes per second      {:.0} sent, {:.0} received, per bot", each(sent), each(received))?;
        let (sent, received) = (self.sum(|stats| stats.sent.0), self.sum(|stats| stats.received.0));
        writeln!(f, "datagrams per second  {:.1} sent, {:.1} received, per bot", each(sent), each(received))
    }
}

fn worst(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(0.0, f64::max)
}

/// Fetches `/state` from the HTTP address of a server and returns the body of the answer. Waits up to 3 s for each part
/// of it.
pub fn fetch_state(http: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(http)?;
    stream.set_read_timeout(Some(Duration::from_secs(3)))?;
    write!(stream, "GET /state HTTP/1.1\r\nHost: {http}\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer.rsplit("\r\n\r\n").next().unwrap_or_default().trim().to_owned())
}
