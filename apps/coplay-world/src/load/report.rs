//! What it was like for all players together.

use std::fmt;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use coplay_world::{CONSISTENCY_TOLERANCE, ConsistencySummary};

use super::bot::BotStats;

/// All players at one moment.
#[derive(Clone, Debug)]
pub(crate) struct LoadReport {
    bot_stats: Vec<BotStats>,
    elapsed: Duration,
}

impl LoadReport {
    pub(super) fn from_stats(seen: &[Arc<Mutex<BotStats>>], took: Duration) -> Self {
        let seen = seen.iter().map(|seen| seen.lock().unwrap_or_else(PoisonError::into_inner).clone()).collect();
        Self { bot_stats: seen, elapsed: took }
    }

    fn present_count(&self) -> usize {
        self.bot_stats.iter().filter(|seen| seen.is_present).count()
    }

    fn sum(&self, part: impl Fn(&BotStats) -> u64) -> u64 {
        self.bot_stats.iter().map(part).sum()
    }

    /// How far what all of them saw was from where the servers had it.
    fn consistency(&self) -> ConsistencySummary {
        let mut all = ConsistencySummary::default();
        self.bot_stats.iter().for_each(|seen| all.merge(&seen.consistency));
        all
    }

    /// Avatars, and acknowledged hits and falls, that were lost.
    fn losses(&self) -> (u64, u64) {
        (self.sum(|seen| seen.avatars_lost.into()), self.sum(|seen| seen.scores_lost.into()))
    }

    /// Whether any server ever showed anybody anything.
    pub(super) fn has_anybody_joined(&self) -> bool {
        self.bot_stats.iter().any(|seen| seen.rtt_ms.is_some())
    }

    /// Whether everybody is in, and nobody lost anything.
    pub(super) fn is_success(&self) -> bool {
        self.present_count() == self.bot_stats.len() && self.losses() == (0, 0)
    }

    /// In a line, for who waits.
    pub(super) fn progress_line(&self) -> String {
        format!(
            "{:4.0} s: {} of {} play, {} hits, {} moves to another server, longest silence {:.0} ms",
            self.elapsed.as_secs_f64(),
            self.present_count(),
            self.bot_stats.len(),
            self.sum(|seen| seen.acknowledged.hits.into()),
            self.sum(|seen| seen.server_moves.into()),
            worst(self.bot_stats.iter().map(|seen| seen.longest_silence_ms)),
        )
    }
}

impl fmt::Display for LoadReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.bot_stats.len().max(1) as f64;
        let each = |sum: u64| sum as f64 / count / self.elapsed.as_secs_f64();
        let mut rtts: Vec<f64> = self.bot_stats.iter().filter_map(|seen| seen.rtt_ms).collect();
        rtts.sort_by(f64::total_cmp);
        let ahead = self
            .bot_stats
            .iter()
            .fold((0.0, 0), |sum, seen| (sum.0 + seen.lead_time_ms.0, sum.1 + seen.lead_time_ms.1));
        writeln!(
            f,
            "players               {} of {} in the world at the end",
            self.present_count(),
            self.bot_stats.len()
        )?;
        let ((avatars, scores), acknowledged) = (self.losses(), self.sum(|seen| seen.acknowledged.hits.into()));
        writeln!(f, "lost                  {avatars} avatars, {scores} acknowledged hits and falls")?;
        writeln!(f, "acknowledged hits     {acknowledged}")?;
        writeln!(f, "moves                 {} to another server", self.sum(|seen| seen.server_moves.into()))?;
        writeln!(
            f,
            "longest silence       {:.0} ms",
            worst(self.bot_stats.iter().map(|seen| seen.longest_silence_ms))
        )?;
        writeln!(f, "round trip            {:.1} ms in the middle", rtts.get(rtts.len() / 2).unwrap_or(&0.0))?;
        writeln!(f, "own avatar            {:.1} ms from the server's on average", ahead.0 / ahead.1.max(1) as f64)?;
        let consistency = self.consistency();
        writeln!(
            f,
            "discrepancy           {:.1} unit·s on average, {:.1} of own avatars; {:.1} % of all that was seen below {CONSISTENCY_TOLERANCE:.0}",
            consistency.mean_discrepancy().unwrap_or_default(),
            consistency.own_discrepancy().unwrap_or_default(),
            consistency.tolerated().unwrap_or_default() * 100.0,
        )?;
        let (out, back) = (self.sum(|seen| seen.sent.1), self.sum(|seen| seen.received.1));
        writeln!(f, "bytes a second        {:.0} out, {:.0} in, for each player", each(out), each(back))?;
        let (out, back) = (self.sum(|seen| seen.sent.0), self.sum(|seen| seen.received.0));
        writeln!(f, "datagrams a second    {:.1} out, {:.1} in, for each player", each(out), each(back))
    }
}

fn worst(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(0.0, f64::max)
}

/// What a server says of itself.
pub fn fetch_state(http: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(http)?;
    stream.set_read_timeout(Some(Duration::from_secs(3)))?;
    write!(stream, "GET /state HTTP/1.1\r\nHost: {http}\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer.rsplit("\r\n\r\n").next().unwrap_or_default().trim().to_owned())
}
