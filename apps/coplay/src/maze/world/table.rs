//! Who leads on a world.

use coplay::motion::Consistency;
use coplay::peer_world::EntityId;
use coplay_maze::Score;
use coplay_maze::render::player_colour;
use coplay_world::Client;

use crate::scene::Entry;

/// Rows of the table that are seen while one plays.
const ROWS: usize = 8;

/// What somebody is called here.
pub(super) fn name(client: &Client, entity: EntityId) -> String {
    if client.own_entity() == Some(entity) {
        return "you".into();
    }
    let known = client.scoreboard().find(|(other, ..)| *other == entity).map(|(_, name, _)| name);
    known.filter(|name| !name.is_empty()).unwrap_or("somebody").into()
}

/// The best of all, and in any case who looks.
pub(super) fn table(client: &Client) -> Vec<Entry> {
    let own = |entity: EntityId| client.own_entity() == Some(entity);
    let mut rows: Vec<(EntityId, Score)> = client
        .scoreboard()
        .map(|(entity, _, score)| (entity, if own(entity) { client.score() } else { score }))
        .collect();
    rows.sort_by_key(|(entity, score)| (std::cmp::Reverse(score.hits), score.falls, *entity));
    if let Some(at) = rows.iter().position(|(entity, _)| own(*entity)).filter(|at| *at >= ROWS) {
        rows.swap(at, ROWS - 1);
    }
    let entry = |(entity, score): (EntityId, Score)| Entry {
        name: name(client, entity),
        value: value(score, client.consistency(entity)),
        ink: player_colour(entity),
        own: own(entity),
    };
    rows.into_iter().take(ROWS).map(entry).collect()
}

/// Hits and falls, and how far who is seen is from where the server has it.
fn value(score: Score, seen: Option<Consistency>) -> String {
    let seen = seen.map_or_else(String::new, |seen| format!(", D {:.0}", seen.discrepancy));
    format!("{} : {}{seen}", score.hits, score.falls)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_who_is_seen_the_discrepancy_is_told() {
        let (score, over) = (Score { hits: 3, falls: 4 }, coplay_world::CONSISTENCY_WINDOW);
        let seen = Consistency { discrepancy: 12.4, tolerance: coplay_world::CONSISTENCY_TOLERANCE, duration: over };
        assert_eq!(value(score, None), "3 : 4");
        assert_eq!(value(score, Some(seen)), "3 : 4, D 12");
    }
}
