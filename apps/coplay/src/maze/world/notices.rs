//! Texts about recent events for a player in a server world.

use coplay::time::Instant;
use coplay_maze::Score;
use coplay_world::{Client, ScoreLoss};

use super::score_table::display_name;

/// The player's score and number of server changes, as of the last call of `poll`.
#[derive(Debug)]
pub(super) struct NoticeTracker {
    score: Score,
    server_moves: u32,
}

impl NoticeTracker {
    /// Creates a tracker that gives no notice of the client's current score and of `moves`, the server changes so far.
    pub(super) fn new(client: &Client, moves: u32) -> Self {
        Self { score: client.score(), server_moves: moves }
    }

    /// Returns texts about events since the last call: a move to another server, a lost score, a fall, a hit. `moves`
    /// is the number of server changes so far.
    pub(super) fn poll(&mut self, now: Instant, client: &mut Client, moves: u32) -> Vec<String> {
        let rollback = client.poll_score_rollback();
        // A server change counts once the new server has sent its first update.
        let moves = if client.tick(now).is_some() { moves } else { self.server_moves };
        let before = std::mem::replace(self, Self { score: client.score(), server_moves: moves });
        notice_lines(&before, self, rollback, &hit_text(client))
    }
}

/// Returns the text about the last hit on the player, with the name of the shooter if it is known.
pub(super) fn hit_text(client: &Client) -> String {
    match client.last_hit_by() {
        Some(by) => format!("you were hit by {}", display_name(client, by)),
        None => "you were hit".into(),
    }
}

fn notice_lines(
    before: &NoticeTracker,
    now: &NoticeTracker,
    rollback: Option<ScoreLoss>,
    hit_notice: &str,
) -> Vec<String> {
    let moved = (now.server_moves > before.server_moves).then_some("switched to another server");
    let lost = rollback.map(|rollback| match rollback {
        ScoreLoss::WorldRestarted => "the world has restarted: all scores are lost",
        ScoreLoss::ScoreLost => "the servers have lost all or part of your score",
    });
    // One notice covers several hits: the score shows their number.
    let fell = (now.score.falls > before.score.falls).then_some(hit_notice);
    let hit = (now.score.hits > before.score.hits).then_some("you hit an opponent");
    [moved, lost, fell, hit].into_iter().flatten().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use coplay::mirror::SourceId;
    use coplay::peer_world::EntityId;
    use coplay::time::TimeDelta;
    use coplay_maze::MazeSettings;
    use coplay_world::{ClientInput, ServerWorld, ninja_entity, player_entity};
    use std::collections::BTreeSet;

    fn notices(before: (u32, u32, u32), now: (u32, u32, u32), rollback: Option<ScoreLoss>) -> Vec<String> {
        let tracker = |(hits, falls, moves)| NoticeTracker { score: Score { hits, falls }, server_moves: moves };
        notice_lines(&tracker(before), &tracker(now), rollback, "you were hit by Bob")
    }

    #[test]
    fn only_changes_give_notices() {
        assert!(notices((1, 1, 1), (1, 1, 1), None).is_empty());
        assert_eq!(notices((1, 1, 0), (2, 2, 0), None), ["you were hit by Bob", "you hit an opponent"]);
        assert_eq!(notices((1, 1, 0), (1, 1, 1), None), ["switched to another server"]);
        let restarted = "the world has restarted: all scores are lost";
        assert_eq!(
            notices((5, 5, 1), (0, 0, 2), Some(ScoreLoss::WorldRestarted)),
            ["switched to another server", restarted]
        );
        let lost = "the servers have lost all or part of your score";
        assert_eq!(notices((5, 5, 1), (4, 5, 1), Some(ScoreLoss::ScoreLost)), [lost]);
    }

    /// Simulates a range of ticks on a server with one client. Returns the notices.
    fn play_ticks(
        client: &mut Client,
        tracker: &mut NoticeTracker,
        world: &mut ServerWorld,
        ticks: std::ops::Range<u32>,
    ) -> Vec<String> {
        let (mut lines, own_entity): (_, EntityId) = (vec![], player_entity(&[7; 32]));
        for tick in ticks {
            let now = Instant::ZERO + coplay_world::TICK_DURATION * i64::from(tick);
            client.advance(now);
            world.advance(now, tick);
            world.reclaim_orphans(&BTreeSet::from([SourceId(1)]));
            // There is no other server, so every update counts as replicated at once.
            world.take_updates().iter().for_each(|update| world.on_published(update, 1));
            world.on_replicated(u64::MAX);
            if let Some(input) = client.poll_input(now) {
                world.on_input(now, own_entity, &ClientInput::from_bytes(&input).expect("an encoded client input"));
            }
            for (_, bytes) in world.poll_player_messages(now, |_| &[]) {
                client.handle_datagram(now, &bytes);
            }
            lines.extend(tracker.poll(now, client, 0));
        }
        lines
    }

    #[test]
    fn hit_notice_names_the_shooter() {
        let settings = MazeSettings { cells_per_side: 4, ..MazeSettings::default() };
        let mut world = ServerWorld::new(SourceId(1), settings, 1);
        let mut client = Client::new(Instant::ZERO, "Ada", 1);
        let mut tracker = NoticeTracker::new(&client, 0);
        let lines = play_ticks(&mut client, &mut tracker, &mut world, 1..20_000);
        assert!(lines.iter().any(|line| line == "you were hit by ninja 1"), "{lines:?}");
        assert!(lines.iter().all(|line| line == "you were hit by ninja 1"), "{lines:?}");
        assert_eq!((client.last_hit_by(), client.score().falls as usize), (Some(ninja_entity(0)), lines.len()));
    }

    #[test]
    fn server_move_is_noticed_at_its_first_update() {
        let mut world = ServerWorld::new(SourceId(1), MazeSettings::default(), 0);
        let mut client = Client::new(Instant::ZERO, "Ada", 1);
        let mut tracker = NoticeTracker::new(&client, 0);
        let now = Instant::ZERO + TimeDelta::from_secs(2);
        assert!(play_ticks(&mut client, &mut tracker, &mut world, 1..200).is_empty());
        client.on_server_change(now);
        assert!(tracker.poll(now, &mut client, 1).is_empty(), "the new server has sent no update yet");
        play_ticks(&mut client, &mut tracker, &mut world, 200..300);
        assert_eq!(tracker.poll(now, &mut client, 1), ["switched to another server"]);
        assert!(tracker.poll(now, &mut client, 1).is_empty(), "the notice is given once");
    }
}
