//! Who leads on a world.

use coplay::motion::Consistency;
use coplay::peer_world::EntityId;
use coplay_maze::Score;
use coplay_maze::render::player_colour;
use coplay_world::Client;

use crate::scene::TableRow;

/// Rows of the table that are seen while one plays.
const MAX_ROWS: usize = 8;

/// What somebody is called here.
pub(super) fn display_name(client: &Client, entity: EntityId) -> String {
    if client.own_entity() == Some(entity) {
        return "you".into();
    }
    let known = client.scoreboard().find(|(other, ..)| *other == entity).map(|(_, name, _)| name);
    known.filter(|name| !name.is_empty()).unwrap_or("somebody").into()
}

/// The best of all, and in any case who looks.
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

/// Hits and falls, and how far who is seen is from where the server has it.
fn format_score_value(score: Score, seen: Option<Consistency>) -> String {
    let seen = seen.map_or_else(String::new, |seen| format!(", D {:.0}", seen.discrepancy));
    format!("{} : {}{seen}", score.hits, score.falls)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn discrepancy_is_shown_for_visible_avatars() {
        let (score, over) = (Score { hits: 3, falls: 4 }, coplay_world::CONSISTENCY_WINDOW);
        let seen = Consistency { discrepancy: 12.4, tolerance: coplay_world::CONSISTENCY_TOLERANCE, duration: over };
        assert_eq!(format_score_value(score, None), "3 : 4");
        assert_eq!(format_score_value(score, Some(seen)), "3 : 4, D 12");
    }
}
