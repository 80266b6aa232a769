//! Scoreboard of a serverless maze: names, ranking, and notices about recent events.

use std::collections::BTreeSet;

use coplay::peer_world::EntityId;
use coplay_maze::render::player_colour;
use coplay_maze::{MazeEvent, MazeSite, OTHER_AVATARS, Score, Scoreboard};

use crate::scene::TableRow;

/// Largest number of rows of the table shown during play.
const MAX_ROWS: usize = 8;
pub(super) const TABLE_HEADER: &str = "hits : falls";

/// Names and scores from the local player's point of view, and notices about recent events.
#[derive(Clone, Debug)]
pub struct ScoreboardView {
    /// Whether a person plays this site's first avatar, which is then called "you".
    has_human: bool,
    /// Scoreboard as of the last call of [`poll_notice`](Self::poll_notice).
    previous_scores: Scoreboard,
    /// Text about the last hit on the local player; empty before the first.
    last_hit_text: String,
}

/// Row of the scoreboard: one avatar.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScoreboardRow {
    /// Id of the avatar.
    pub entity: EntityId,
    /// Name of the avatar, as the local player sees it.
    pub name: String,
    /// Hits and falls of the avatar.
    pub score: Score,
}

impl ScoreboardView {
    /// Creates a view that has seen no events. `has_human` states whether a person plays this site's first avatar.
    pub fn new(has_human: bool) -> Self {
        Self { has_human, previous_scores: Scoreboard::default(), last_hit_text: String::new() }
    }

    /// Returns the name of an avatar as the local player sees it: "you", "ninja 1", or the name of another site's
    /// avatar.
    pub fn name(&self, game: &MazeSite, entity: EntityId) -> String {
        match (entity.site == game.site(), self.has_human, entity.index) {
            (false, ..) | (.., OTHER_AVATARS) => game.scores().display_name(entity),
            (true, true, 0) => "you".into(),
            (true, true, index) => format!("ninja {index}"),
            (true, false, index) => format!("ninja {}", index + 1),
        }
    }

    /// Returns a row for each avatar that is present or has hits or falls, the best first.
    pub fn rows(&self, game: &MazeSite) -> Vec<ScoreboardRow> {
        let scores = game.scores();
        let ours = (0..game.avatars()).map(|index| EntityId { site: game.site(), index: index as u8 });
        let theirs = game.world().newest_states().map(|(entity, ..)| entity);
        let scored = scores.ranking().into_iter().map(|(entity, _)| entity);
        let all: BTreeSet<EntityId> = ours.chain(theirs).chain(scored).collect();
        let row = |entity| ScoreboardRow { entity, name: self.name(game, entity), score: scores.score(entity) };
        let mut rows: Vec<ScoreboardRow> = all.into_iter().map(row).collect();
        rows.sort_by_key(|row| (std::cmp::Reverse(row.score.hits), row.score.falls, row.entity));
        rows
    }

    /// Returns the 8 best rows for display. If the local player's row is not among them, it replaces the last of them.
    pub fn table(&self, game: &MazeSite) -> Vec<TableRow> {
        let own = EntityId { site: game.site(), index: 0 };
        let mut rows = self.rows(game);
        let at = rows.iter().position(|row| row.entity == own).filter(|at| *at >= MAX_ROWS);
        if let Some(at) = at {
            rows.swap(at, MAX_ROWS - 1);
        }
        let entry = |row: ScoreboardRow| TableRow {
            value: format!("{} : {}", row.score.hits, row.score.falls),
            colour: player_colour(row.entity),
            is_own: row.entity == own,
            name: row.name,
        };
        rows.into_iter().take(MAX_ROWS).map(entry).collect()
    }

    /// Returns a text about what happened since the last call: a site joined or left, or the local player was hit or
    /// hit an avatar; `None` if nothing of this happened. Of several events the text is about the last one, and about a
    /// hit by the local player only if there was no other event.
    pub fn poll_notice(&mut self, game: &mut MazeSite) -> Option<String> {
        let mut notice = self.own_hit_notice(game);
        while let Some(event) = game.poll_event() {
            let text = match event {
                MazeEvent::SiteJoined(site) => Some(format!("{} joined", self.name(game, EntityId { site, index: 0 }))),
                MazeEvent::SiteLeft(site) => Some(format!("{} left", self.name(game, EntityId { site, index: 0 }))),
                MazeEvent::AvatarHit { index: 0, shooter } if self.has_human => {
                    self.last_hit_text = format!("you were hit by {}", self.name(game, shooter));
                    Some(self.last_hit_text.clone())
                }
                MazeEvent::AvatarHit { .. } => None,
            };
            notice = text.or(notice);
        }
        notice
    }

    /// Returns the text about the last hit on the local player; empty before the first.
    pub fn last_hit_text(&self) -> &str {
        &self.last_hit_text
    }

    /// Returns a text if the local player hit an avatar since the last call. The victim is named if exactly one other
    /// avatar fell since then.
    fn own_hit_notice(&mut self, game: &MazeSite) -> Option<String> {
        let own = EntityId { site: game.site(), index: 0 };
        let scores = game.scores();
        if self.previous_scores == *scores {
            return None;
        }
        let before = std::mem::replace(&mut self.previous_scores, scores.clone());
        if !self.has_human || scores.score(own).hits <= before.score(own).hits {
            return None;
        }
        let fell = |(entity, score): &(EntityId, Score)| *entity != own && score.falls > before.score(*entity).falls;
        let fallen: Vec<EntityId> = scores.ranking().into_iter().filter(fell).map(|(entity, _)| entity).collect();
        Some(match fallen[..] {
            [victim] => format!("you hit {}", self.name(game, victim)),
            _ => "you hit an opponent".into(),
        })
    }
}

/// Formats a score, such as "2 hits, 1 fall".
pub fn format_score(score: Score) -> String {
    let counted = |count: u32, noun: &str| format!("{count} {noun}{}", if count == 1 { "" } else { "s" });
    format!("{}, {}", counted(score.hits, "hit"), counted(score.falls, "fall"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::maze::{MazeNet, SoloNet, advance_until};
    use coplay::peer_world::{UpdatePolicy, WorldSiteId};
    use coplay::time::TimeDelta;
    use coplay_maze::MazeSettings;

    /// Simulates a game with ninjas, and with an idle player if `has_human`, for this number of seconds.
    fn play_game(has_human: bool, ninjas: u8, seconds: i64) -> MazeSite {
        let mut net = SoloNet::in_virtual_time();
        let settings = MazeSettings { cells_per_side: 5, ..MazeSettings::default() };
        let name = has_human.then_some("Ann");
        let mut game =
            MazeSite::new(net.now(), WorldSiteId(1), true, &settings, UpdatePolicy::default(), (name, ninjas)).unwrap();
        let end = net.now() + TimeDelta::from_secs(seconds);
        advance_until(&mut game, &mut net, end).unwrap();
        game
    }

    #[test]
    fn rows_are_sorted_and_include_every_avatar() {
        let rows = ScoreboardView::new(false).rows(&play_game(false, 6, 60));
        assert_eq!(rows.len(), 6);
        assert!(rows[0].score.hits > 0, "no hit within a minute in a small maze: {rows:?}");
        assert!(rows.windows(2).all(|pair| pair[0].score.hits >= pair[1].score.hits));
        let falls: u32 = rows.iter().map(|row| row.score.falls).sum();
        assert_eq!(rows.iter().map(|row| row.score.hits).sum::<u32>(), falls);
    }

    #[test]
    fn own_row_is_always_in_the_table() {
        let table = ScoreboardView::new(true).table(&play_game(true, 12, 60));
        assert_eq!(table.len(), MAX_ROWS);
        assert!(table.iter().any(|entry| entry.is_own && entry.name == "you"), "{table:?}");
    }

    #[test]
    fn hit_notice_names_the_shooter() {
        let mut game = play_game(true, 6, 60);
        let notice = ScoreboardView::new(true).poll_notice(&mut game).unwrap();
        assert!(notice.starts_with("you were hit by ninja "), "{notice}");
        assert_eq!(ScoreboardView::new(false).poll_notice(&mut game), None, "the notice is given once");
    }

    #[test]
    fn remote_avatars_have_their_names() {
        let (_, [game, _]) = crate::maze::test_pair::play_pair(3);
        let names: BTreeSet<String> = ScoreboardView::new(true).rows(&game).into_iter().map(|row| row.name).collect();
        let all = ["Ben", "Ben's ninja 1", "Ben's ninja 2", "ninja 1", "ninja 2", "you"];
        assert_eq!(names, all.map(String::from).into());
    }

    #[test]
    fn score_text_uses_singular_and_plural() {
        assert_eq!(format_score(Score { hits: 1, falls: 2 }), "1 hit, 2 falls");
    }
}
