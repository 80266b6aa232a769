//! What has just happened to somebody who plays on a world, in words.

use coplay::time::Instant;
use coplay_maze::Score;
use coplay_world::{Client, ScoreRollback};

use super::score_table::display_name;

/// What was told by now.
#[derive(Debug)]
pub(super) struct NoticeTracker {
    score: Score,
    server_moves: u32,
}

impl NoticeTracker {
    /// From now on, with so many moves from one server to another by now.
    pub(super) fn new(client: &Client, moves: u32) -> Self {
        Self { score: client.score(), server_moves: moves }
    }

    /// What happened since the last time that this was asked, the oldest first.
    pub(super) fn poll(&mut self, now: Instant, client: &mut Client, moves: u32) -> Vec<String> {
        let loss = client.poll_score_rollback();
        // A server that has shown us nothing yet is not one that we are on.
        let moves = if client.tick(now).is_some() { moves } else { self.server_moves };
        let before = std::mem::replace(self, Self { score: client.score(), server_moves: moves });
        notice_lines(&before, self, loss, &hit_text(client))
    }
}

/// How we fell the last time.
pub(super) fn hit_text(client: &Client) -> String {
    match client.last_hit_by() {
        Some(by) => format!("you were hit by {}", display_name(client, by)),
        None => "you were hit".into(),
    }
}

fn notice_lines(before: &NoticeTracker, now: &NoticeTracker, loss: Option<ScoreRollback>, fall: &str) -> Vec<String> {
    let moved = (now.server_moves > before.server_moves).then_some("on another server now");
    let lost = loss.map(|loss| match loss {
        ScoreRollback::WorldRestarted => "this world began anew: all scores are gone",
        ScoreRollback::ScoreLost => "the servers have forgotten some of your score",
    });
    // Of several hits the newest score tells as much.
    let fell = (now.score.falls > before.score.falls).then_some(fall);
    let hit = (now.score.hits > before.score.hits).then_some("you hit somebody");
    [moved, lost, fell, hit].into_iter().flatten().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use coplay::mirror::SourceId;
    use coplay::peer_world::EntityId;
    use coplay::time::TimeDelta;
    use coplay_maze::MazeSettings;
    use coplay_world::{ClientInput, WorldState, ninja_entity, player_entity};
    use std::collections::BTreeSet;

    fn notices(before: (u32, u32, u32), now: (u32, u32, u32), loss: Option<ScoreRollback>) -> Vec<String> {
        let news = |(hits, falls, moves)| NoticeTracker { score: Score { hits, falls }, server_moves: moves };
        notice_lines(&news(before), &news(now), loss, "you were hit by Bob")
    }

    #[test]
    fn only_changes_give_notices() {
        assert!(notices((1, 1, 1), (1, 1, 1), None).is_empty());
        assert_eq!(notices((1, 1, 0), (2, 2, 0), None), ["you were hit by Bob", "you hit somebody"]);
        assert_eq!(notices((1, 1, 0), (1, 1, 1), None), ["on another server now"]);
        let anew = "this world began anew: all scores are gone";
        assert_eq!(notices((5, 5, 1), (0, 0, 2), Some(ScoreRollback::WorldRestarted)), ["on another server now", anew]);
        let forgotten = "the servers have forgotten some of your score";
        assert_eq!(notices((5, 5, 1), (4, 5, 1), Some(ScoreRollback::ScoreLost)), [forgotten]);
    }

    /// Plays on a server, some ticks of some hundred, and what is told meanwhile.
    fn play_ticks(
        client: &mut Client,
        news: &mut NoticeTracker,
        realm: &mut WorldState,
        ticks: std::ops::Range<u32>,
    ) -> Vec<String> {
        let (mut lines, me): (_, EntityId) = (vec![], player_entity(&[7; 32]));
        for tick in ticks {
            let now = Instant::ZERO + coplay_world::TICK_DURATION * i64::from(tick);
            client.advance(now);
            realm.advance(now, tick);
            realm.reclaim_orphans(&BTreeSet::from([SourceId(1)]));
            // Nobody else has to know for it to be sure.
            realm.take_updates().iter().for_each(|deed| realm.on_published(deed, 1));
            realm.on_replicated(u64::MAX);
            if let Some(wish) = client.poll_input(now) {
                realm.on_input(now, me, &ClientInput::from_bytes(&wish).expect("a wish"));
            }
            for (_, bytes) in realm.poll_player_messages(now, |_| &[]) {
                client.handle_datagram(now, &bytes);
            }
            lines.extend(news.poll(now, client, 0));
        }
        lines
    }

    #[test]
    fn hit_notice_names_the_shooter() {
        let terms = MazeSettings { cells_per_side: 4, ..MazeSettings::default() };
        let mut realm = WorldState::new(SourceId(1), terms, 1);
        let mut client = Client::new(Instant::ZERO, "Ada", 1);
        let mut news = NoticeTracker::new(&client, 0);
        let lines = play_ticks(&mut client, &mut news, &mut realm, 1..20_000);
        assert!(lines.iter().any(|line| line == "you were hit by ninja 1"), "{lines:?}");
        assert!(lines.iter().all(|line| line == "you were hit by ninja 1"), "{lines:?}");
        assert_eq!((client.last_hit_by(), client.score().falls as usize), (Some(ninja_entity(0)), lines.len()));
    }

    #[test]
    fn server_move_is_noticed_at_its_first_update() {
        let mut realm = WorldState::new(SourceId(1), MazeSettings::default(), 0);
        let mut client = Client::new(Instant::ZERO, "Ada", 1);
        let mut news = NoticeTracker::new(&client, 0);
        let now = Instant::ZERO + TimeDelta::from_secs(2);
        assert!(play_ticks(&mut client, &mut news, &mut realm, 1..200).is_empty());
        client.on_server_change(now);
        assert!(news.poll(now, &mut client, 1).is_empty(), "it has shown nothing yet");
        play_ticks(&mut client, &mut news, &mut realm, 200..300);
        assert_eq!(news.poll(now, &mut client, 1), ["on another server now"]);
        assert!(news.poll(now, &mut client, 1).is_empty(), "once");
    }
}
