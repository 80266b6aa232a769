//! Score table of a server world, with the discrepancy of each avatar for which it is known.

use coplay::motion::Consistency;
use coplay::peer_world::EntityId;
use coplay_maze::Score;
use coplay_maze::render::player_colour;
use coplay_world::Client;

use crate::scene::TableRow;

/// Largest number of rows of the table shown during play.
const MAX_ROWS: usize = 8;

/// Returns the name of an avatar as the local player sees it: "you", the name on the scoreboard, or "unknown player".
pub(super) fn display_name(client: &Client, entity: EntityId) -> String {
    if client.own_entity() == Some(entity) {
        return "you".into();
    }
    let known = client.scoreboard().find(|(other, ..)| *other == entity).map(|(_, name, _)| name);
    known.filter(|name| !name.is_empty()).unwrap_or("unknown player").into()
}

/// Returns the 8 best rows for display. If the local player's row is not among them, it replaces the last of them.
pub(super) fn score_table(client: &Client) -> Vec<TableRow> {
    let own = |entity: EntityId| client.own_entity() == Some(entity);
    let mut rows: Vec<(EntityId, Score)> = client
        .scoreboard()
        .map(|(entity, _, score)| (entity, if own(entity) { client.score() } else { score }))
        .collect();
    rows.sort_by_key(|(entity, score)| (std::cmp::Reverse(score.hits), score.falls, *entity));
    if let Some(at) = rows.iter().position(|(entity, _)| own(*entity)).filter(|at| *at >= MAX_ROWS) {
        rows.swap(at, MAX_ROWS - 1);
    }
    let entry = |(entity, score): (EntityId, Score)| TableRow {
        name: display_name(client, entity),
        value: format_score_value(score, client.consistency(entity)),
        colour: player_colour(entity),
        is_own: own(entity),
    };
    rows.into_iter().take(MAX_ROWS).map(entry).collect()
}

/// Formats hits and falls, and, if known, the discrepancy D between displayed and authoritative state of the avatar.
fn format_score_value(score: Score, consistency: Option<Consistency>) -> String {
    let consistency = consistency.map_or_else(String::new, |consistency| format!(", D {:.0}", consistency.discrepancy));
    format!("{} : {}{consistency}", score.hits, score.falls)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn discrepancy_is_shown_for_visible_avatars() {
        let (score, over) = (Score { hits: 3, falls: 4 }, coplay_world::CONSISTENCY_WINDOW);
        let consistency =
            Consistency { discrepancy: 12.4, tolerance: coplay_world::CONSISTENCY_TOLERANCE, duration: over };
        assert_eq!(format_score_value(score, None), "3 : 4");
        assert_eq!(format_score_value(score, Some(consistency)), "3 : 4, D 12");
    }
}
