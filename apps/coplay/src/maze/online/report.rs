//! What being in a maze came to: a summary, and numbers for those who measure.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::path::Path;

use coplay::peer_world::{EntityId, PeerWorldStats, WorldPeerStats, WorldSiteId};
use coplay::time::TimeDelta;
use coplay_maze::{MazeSite, OTHER_AVATARS, Score};
use coplay_net::mesh::{MeshStats, Traffic};

use crate::error::AppError;
use crate::maze::scoreboard_view::format_score;
use crate::net::report::write_error;
use crate::summary::Summary;

/// One of the others, as it was known last.
#[derive(Clone, Debug, Default)]
pub(super) struct PeerReport {
    pub(super) name: String,
    pub(super) stats: WorldPeerStats,
    /// It hears us by multicast.
    pub(super) hears_multicast: bool,
}

/// What it came to.
pub(super) struct MazeReport {
    site: WorldSiteId,
    seconds: f64,
    seed_and_side: (u64, u8),
    scores: Vec<(EntityId, String, Score)>,
    stats: PeerWorldStats,
    traffic: MeshStats,
    peers: BTreeMap<WorldSiteId, PeerReport>,
}

/// Sees that numbers can be written there.
pub(super) fn check_writable(path: &Path) -> Result<(), AppError> {
    let opened = OpenOptions::new().append(true).create(true).open(path);
    opened.map(drop).map_err(|error| write_error(path, &error))
}

impl MazeReport {
    pub(super) fn new(
        game: &MazeSite,
        own: String,
        peers: BTreeMap<WorldSiteId, PeerReport>,
        counts: MeshStats,
        took: TimeDelta,
    ) -> Self {
        let name = |entity: EntityId| {
            let other = peers.get(&entity.site).map_or("somebody", |peer| &peer.name);
            let owner = if entity.site == game.site() { &own } else { other };
            if entity.index == OTHER_AVATARS {
                return format!("{owner}, others");
            }
            format!("{owner}, avatar {}", entity.index + 1)
        };
        let scores = game.scores().ranking().into_iter().map(|(entity, score)| (entity, name(entity), score)).collect();
        let maze = (game.rules().maze.seed(), game.rules().maze.cells_per_side());
        Self {
            site: game.site(),
            seconds: took.as_secs_f64(),
            seed_and_side: maze,
            scores,
            stats: game.stats(),
            traffic: counts,
            peers,
        }
    }

    /// In a few rows.
    pub(super) fn summary(&self) -> Summary {
        let mut summary = Summary::default();
        summary.add_row("maze", self.seed_and_side.0.to_string(), &format!("{0} × {0} cells", self.seed_and_side.1));
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
            "told",
            format!("{updates_sent} updates"),
            &format!("{updates_skipped} more could be reckoned"),
        );
        summary.add_row("heard", format!("{updates_received} updates"), &format!("{updates_late} of them late"));
    }

    fn add_traffic_rows(&self, summary: &mut Summary) {
        let rate = |traffic: &Traffic| {
            let (datagrams, bytes) = self.per_second(traffic);
            (format!("{datagrams:.1} a second"), format!("datagrams, {bytes:.0} bytes a second"))
        };
        let rows = [
            ("one by one", &self.traffic.unicast_sent, "out"),
            ("multicast", &self.traffic.multicast_sent, "out"),
            ("one by one", &self.traffic.unicast_received, "in"),
            ("multicast", &self.traffic.multicast_received, "in"),
        ];
        for (what, traffic, way) in rows.into_iter().filter(|(_, traffic, _)| traffic.datagrams > 0) {
            let (value, about) = rate(traffic);
            summary.add_row(what, value, &format!("{about} {way}"));
        }
    }

    fn per_second(&self, traffic: &Traffic) -> (f64, f64) {
        let seconds = self.seconds.max(1e-3);
        (traffic.datagrams as f64 / seconds, traffic.bytes as f64 / seconds)
    }

    /// Writes all numbers into a file.
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
        let traffic = |traffic: &Traffic| {
            let (datagrams, bytes) = self.per_second(traffic);
            format!(
                "{{\"datagrams\":{},\"bytes\":{},\"datagrams_per_second\":{datagrams:.3},\"bytes_per_second\":{bytes:.1}}}",
                traffic.datagrams, traffic.bytes
            )
        };
        let MeshStats {
            unicast_sent: sent,
            multicast_sent: multicast,
            unicast_received: received,
            multicast_received: heard,
            ..
        } = &self.traffic;
        let peers: Vec<String> = self.peers.iter().map(|(site, peer)| peer.to_json(*site)).collect();
        let score = |(entity, _, score): &(EntityId, String, Score)| {
            format!("{{\"avatar\":\"{entity:?}\",\"hits\":{},\"falls\":{}}}", score.hits, score.falls)
        };
        let scores: Vec<String> = self.scores.iter().map(score).collect();
        format!(
            "{{\"site\":\"{:?}\",\"seconds\":{:.3},\"updates_sent\":{updates_sent},\"updates_skipped\":{updates_skipped},\"updates_received\":{updates_received},\"updates_late\":{updates_late},\"updates_refused\":{updates_refused},\"rate\":{rate},\"malformed\":{malformed},\"sent\":{},\"multicast\":{},\"received\":{},\"heard\":{},\"peers\":[{}],\"scores\":[{}]}}",
            self.site,
            self.seconds,
            traffic(sent),
            traffic(multicast),
            traffic(received),
            traffic(heard),
            peers.join(","),
            scores.join(",")
        )
    }
}

impl PeerReport {
    fn summary_text(&self) -> String {
        let WorldPeerStats { rtt, clock_offset: offset, loss_share: lost, .. } = self.stats;
        let ms =
            |span: Option<TimeDelta>| span.map_or("unknown".into(), |span| format!("{:.2} ms", span.as_millis_f64()));
        let way = if self.hears_multicast { "by multicast" } else { "one by one" };
        format!("round trip {}, clock ahead {}, loss {:.1} %, {way}", ms(rtt), ms(offset), lost * 100.0)
    }

    fn to_json(&self, site: WorldSiteId) -> String {
        let WorldPeerStats { rtt, jitter, clock_offset: offset, loss_share: lost, late_share: late, .. } = self.stats;
        let ms = |span: Option<TimeDelta>| span.map_or("null".into(), |span| format!("{:.4}", span.as_millis_f64()));
        format!(
            "{{\"site\":\"{site:?}\",\"rtt_ms\":{},\"jitter_ms\":{},\"offset_ms\":{},\"loss\":{lost:.4},\"late\":{late:.4},\"multicast\":{}}}",
            ms(rtt),
            ms(Some(jitter)),
            ms(offset),
            self.hears_multicast
        )
    }
}
