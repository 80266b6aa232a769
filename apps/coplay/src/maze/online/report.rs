//! Report of a serverless maze: a summary for the player, and statistics as JSON.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::path::Path;

use coplay::peer_world::{EntityId, PeerWorldStats, WorldPeerStats, WorldSiteId};
use coplay::time::TimeDelta;
use coplay_maze::{MazeSite, OTHER_AVATARS, Score};
use coplay_net::mesh::{MeshStats, TrafficCount};
use coplay_shell::error::AppError;

use crate::maze::scoreboard_view::format_score;
use crate::net::report::write_error;
use crate::summary::Summary;

/// Name and last known link statistics of a peer, present or departed.
#[derive(Clone, Debug, Default)]
pub(super) struct PeerReport {
    pub(super) name: String,
    pub(super) stats: WorldPeerStats,
    /// Whether the peer receives this site's datagrams by multicast.
    pub(super) hears_multicast: bool,
}

/// Scores, update statistics, traffic and peers of a whole run.
pub(super) struct MazeReport {
    site: WorldSiteId,
    seconds: f64,
    seed_and_side: (u64, u8),
    scores: Vec<(EntityId, String, Score)>,
    stats: PeerWorldStats,
    traffic: MeshStats,
    peers: BTreeMap<WorldSiteId, PeerReport>,
}

/// Checks that the statistics file can be written, and creates it.
pub(super) fn check_writable(path: &Path) -> Result<(), AppError> {
    let opened = OpenOptions::new().append(true).create(true).open(path);
    opened.map(drop).map_err(|error| write_error(path, &error))
}

impl MazeReport {
    pub(super) fn new(
        game: &MazeSite,
        own: String,
        peers: BTreeMap<WorldSiteId, PeerReport>,
        traffic: MeshStats,
        played: TimeDelta,
    ) -> Self {
        let name = |entity: EntityId| {
            let other = peers.get(&entity.site).map_or("unknown player", |peer| &peer.name);
            let owner = if entity.site == game.site() { &own } else { other };
            if entity.index == OTHER_AVATARS {
                return format!("{owner}, other avatars");
            }
            format!("{owner}, avatar {}", entity.index + 1)
        };
        let scores = game.scores().ranking().into_iter().map(|(entity, score)| (entity, name(entity), score)).collect();
        let maze = (game.rules().maze.seed(), game.rules().maze.cells_per_side());
        Self {
            site: game.site(),
            seconds: played.as_secs_f64(),
            seed_and_side: maze,
            scores,
            stats: game.stats(),
            traffic,
            peers,
        }
    }

    /// Returns the summary that is printed at the end.
    pub(super) fn summary(&self) -> Summary {
        let mut summary = Summary::default();
        summary.add_row(
            "maze",
            self.seed_and_side.0.to_string(),
            &format!("seed; {0} × {0} cells", self.seed_and_side.1),
        );
        summary.add_row("played", format!("{:.1} s", self.seconds), "");
        self.add_update_rows(&mut summary);
        self.add_traffic_rows(&mut summary);
        for peer in self.peers.values() {
            summary.add_row("peer", peer.name.clone(), &peer.summary_text());
        }
        for (at, (_, name, score)) in self.scores.iter().enumerate() {
            let value = format_score(*score);
            summary.add_row(if at == 0 { "score" } else { "" }, value, name);
        }
        summary
    }

    fn add_update_rows(&self, summary: &mut Summary) {
        let PeerWorldStats { updates_sent, updates_skipped, updates_received, updates_late, .. } = self.stats;
        summary.add_row(
            "sent",
            format!("{updates_sent} updates"),
            &format!("{updates_skipped} more not sent: the other sites' dead reckoning predicts them"),
        );
        summary.add_row("received", format!("{updates_received} updates"), &format!("{updates_late} arrived too late"));
    }

    fn add_traffic_rows(&self, summary: &mut Summary) {
        let rate = |traffic: &TrafficCount| {
            let (datagrams, bytes) = self.per_second(traffic);
            (format!("{datagrams:.1} datagrams/s"), format!("{bytes:.0} bytes/s"))
        };
        let rows = [
            ("unicast", &self.traffic.unicast_sent, "sent"),
            ("multicast", &self.traffic.multicast_sent, "sent"),
            ("unicast", &self.traffic.unicast_received, "received"),
            ("multicast", &self.traffic.multicast_received, "received"),
        ];
        for (label, traffic, direction) in rows.into_iter().filter(|(_, traffic, _)| traffic.datagrams > 0) {
            let (value, meaning) = rate(traffic);
            summary.add_row(label, value, &format!("{direction}, {meaning}"));
        }
    }

    fn per_second(&self, traffic: &TrafficCount) -> (f64, f64) {
        let seconds = self.seconds.max(1e-3);
        (traffic.datagrams as f64 / seconds, traffic.bytes as f64 / seconds)
    }

    /// Writes the statistics to a file, as one line of JSON.
    pub(super) fn write(&self, path: &Path) -> Result<(), AppError> {
        std::fs::write(path, self.to_json() + "\n").map_err(|error| write_error(path, &error))
    }

    fn to_json(&self) -> String {
        let PeerWorldStats {
            updates_sent,
            updates_skipped,
            updates_received,
            updates_late,
            updates_refused,
            update_rate: rate,
            malformed,
            ..
        } = self.stats;
        let traffic = |traffic: &TrafficCount| {
            let (datagrams, bytes) = self.per_second(traffic);
            format!(
                "{{\"datagrams\":{},\"bytes\":{},\"datagrams_per_second\":{datagrams:.3},\"bytes_per_second\":{bytes:.1}}}",
                traffic.datagrams, traffic.bytes
            )
        };
        let MeshStats { unicast_sent, multicast_sent, unicast_received, multicast_received, .. } = &self.traffic;
        let peers: Vec<String> = self.peers.iter().map(|(site, peer)| peer.to_json(*site)).collect();
        let score = |(entity, _, score): &(EntityId, String, Score)| {
            format!("{{\"avatar\":\"{entity:?}\",\"hits\":{},\"falls\":{}}}", score.hits, score.falls)
        };
        let scores: Vec<String> = self.scores.iter().map(score).collect();
        format!(
            "{{\"site\":\"{:?}\",\"seconds\":{:.3},\"updates_sent\":{updates_sent},\"updates_skipped\":{updates_skipped},\"updates_received\":{updates_received},\"updates_late\":{updates_late},\"updates_refused\":{updates_refused},\"rate\":{rate},\"malformed\":{malformed},\"sent\":{},\"multicast\":{},\"received\":{},\"heard\":{},\"peers\":[{}],\"scores\":[{}]}}",
            self.site,
            self.seconds,
            traffic(unicast_sent),
            traffic(multicast_sent),
            traffic(unicast_received),
            traffic(multicast_received),
            peers.join(","),
            scores.join(",")
        )
    }
}

impl PeerReport {
    fn summary_text(&self) -> String {
        let WorldPeerStats { rtt, clock_offset, loss_share, .. } = self.stats;
        let ms =
            |span: Option<TimeDelta>| span.map_or("unknown".into(), |span| format!("{:.2} ms", span.as_millis_f64()));
        let transport = if self.hears_multicast { "multicast" } else { "unicast" };
        format!(
            "round trip {}, clock offset {}, {:.1} % of its recent updates lost, reached by {transport}",
            ms(rtt),
            ms(clock_offset),
            loss_share * 100.0
        )
    }

    fn to_json(&self, site: WorldSiteId) -> String {
        let WorldPeerStats { rtt, jitter, clock_offset, loss_share, late_share, .. } = self.stats;
        let ms = |span: Option<TimeDelta>| span.map_or("null".into(), |span| format!("{:.4}", span.as_millis_f64()));
        format!(
            "{{\"site\":\"{site:?}\",\"rtt_ms\":{},\"jitter_ms\":{},\"offset_ms\":{},\"loss\":{loss_share:.4},\"late\":{late_share:.4},\"multicast\":{}}}",
            ms(rtt),
            ms(Some(jitter)),
            ms(clock_offset),
            self.hears_multicast
        )
    }
}
