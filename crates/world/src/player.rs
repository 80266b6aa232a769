//! A player on this server: its input, and the schedule of the views and directory messages that the server sends to
//! it.

use std::collections::VecDeque;

use coplay::peer_world::EntityId;
use coplay::time::{Instant, TimeDelta};

use crate::protocol::{ClientInput, InputChange};

/// Interval of the views sent to a player.
const VIEW_INTERVAL: TimeDelta = TimeDelta::from_millis(40);
/// Interval of the directory messages sent to a player.
pub(crate) const DIRECTORY_INTERVAL: TimeDelta = TimeDelta::from_millis(500);
/// Largest number of queued input changes of a player; further ones are ignored.
const MAX_QUEUED_CHANGES: usize = 32;
/// Largest number of ticks of a walk that are rewound because the player had already released the buttons.
const MAX_REWIND_TICKS: u32 = 30;

/// Player on this server.
#[derive(Clone, Debug)]
pub(crate) struct Player {
    /// Random number of the client's run. A new run numbers its input changes from 1 again.
    pub(crate) run: u32,
    /// Tick in which the player joined this server.
    pub(crate) joined_tick: u32,
    /// Display name that the player chose.
    pub(crate) name: String,
    /// Time of the last input of the player. A suspension of the server after that input moves this time forwards.
    pub(crate) last_received: Instant,
    /// Newest timestamp in the player's input, on the client's clock, and the time of its arrival on the server's
    /// clock.
    pub(crate) newest_stamp: (Instant, Instant),
    /// Number of the newest input change in effect, and the tick in which it took effect.
    applied_change: (u32, u32),
    queued_changes: VecDeque<InputChange>,
    next_view: Instant,
    next_directory: Instant,
    /// Avatar that last hit the player on this server.
    pub(crate) last_hit_by: Option<EntityId>,
    /// Scoreboard row at which the next directory message begins.
    pub(crate) next_score_row: usize,
}

/// Input change that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DueChange {
    pub(crate) change: InputChange,
    /// Ticks by which the previous buttons were held longer here than on the client, at most [`MAX_REWIND_TICKS`].
    pub(crate) rewind_ticks: u32,
}

impl Player {
    /// Creates a player from its first input, which the caller then passes to [`on_input`](Self::on_input). That call
    /// skips all input changes but the newest, which takes effect at once: the buttons before it were held before this
    /// server knew the player.
    pub(crate) fn new(now: Instant, tick: u32, input: &ClientInput) -> Self {
        let newest = input.changes.last();
        let (number_before, held_ticks) =
            newest.map_or((0, 0), |change| (change.number.saturating_sub(1), change.previous_held_ticks));
        Self {
            run: input.run,
            joined_tick: tick,
            name: input.name.clone(),
            last_received: now,
            newest_stamp: (input.stamp, now),
            applied_change: (number_before, tick.saturating_sub(held_ticks)),
            queued_changes: VecDeque::new(),
            next_view: now,
            next_directory: now,
            last_hit_by: None,
            next_score_row: 0,
        }
    }

    /// Processes input of the player. Ignores input changes that are already known or for which the queue has no room.
    /// Returns the number of changes added to the queue.
    pub(crate) fn on_input(&mut self, now: Instant, input: &ClientInput) -> u64 {
        self.last_received = now;
        if input.stamp > self.newest_stamp.0 {
            self.newest_stamp = (input.stamp, now);
        }
        let mut new_changes = 0;
        for change in &input.changes {
            let newest = self.queued_changes.back().map_or(self.applied_change.0, |queued| queued.number);
            if change.number > newest && self.queued_changes.len() < MAX_QUEUED_CHANGES {
                self.queued_changes.push_back(*change);
                new_changes += 1;
            }
        }
        new_changes
    }

    /// Takes the next input change from the queue if it is due in this tick: the previous buttons were held as long as
    /// on the client, a change in between was lost, or at least half of [`MAX_QUEUED_CHANGES`] changes are queued.
    pub(crate) fn next_due_change(&mut self, tick: u32) -> Option<DueChange> {
        let change = *self.queued_changes.front()?;
        let (number, since) = self.applied_change;
        let held = tick.saturating_sub(since);
        // If changes in between were lost, the previous buttons have an unknown duration.
        let held_on_client = if change.number == number + 1 { change.previous_held_ticks } else { held };
        // A long queue is drained at once, so that the player does not fall further behind.
        if held < held_on_client && self.queued_changes.len() < MAX_QUEUED_CHANGES / 2 {
            return None;
        }
        self.queued_changes.pop_front();
        self.applied_change = (change.number, tick);
        Some(DueChange { change, rewind_ticks: held.saturating_sub(held_on_client).min(MAX_REWIND_TICKS) })
    }

    /// Returns the number of the newest input change in effect, and the ticks since it took effect.
    pub(crate) fn applied_change(&self, tick: u32) -> (u32, u32) {
        let (number, since) = self.applied_change;
        (number, tick.saturating_sub(since))
    }

    /// Returns whether a view is due. If so, schedules the next.
    pub(crate) fn take_view_due(&mut self, now: Instant) -> bool {
        take_due(&mut self.next_view, now, VIEW_INTERVAL)
    }

    /// Returns whether a directory message is due. If so, schedules the next.
    pub(crate) fn take_directory_due(&mut self, now: Instant) -> bool {
        take_due(&mut self.next_directory, now, DIRECTORY_INTERVAL)
    }
}

/// Returns whether the time `next` has come. If so, advances `next` by `interval`, and skips times that were missed.
fn take_due(next: &mut Instant, now: Instant, interval: TimeDelta) -> bool {
    let due = now >= *next;
    if due {
        *next = (*next + interval).max(now + interval / 2);
    }
    due
}

#[cfg(test)]
mod tests {
    use super::*;
    use coplay_maze::Controls;

    fn client_input(stamp: i64, changes: &[(u32, u32)]) -> ClientInput {
        let change = |(number, previous_held_ticks): &(u32, u32)| InputChange {
            number: *number,
            previous_held_ticks: *previous_held_ticks,
            controls: Controls::default(),
        };
        let (stamp, changes) = (Instant::from_nanos(stamp), changes.iter().map(change).collect());
        ClientInput { run: 7, stamp, name: "Ada".into(), changes }
    }

    fn next_due(player: &mut Player, tick: u32) -> Option<(u32, u32)> {
        player.next_due_change(tick).map(|due| (due.change.number, due.rewind_ticks))
    }

    #[test]
    fn controls_are_held_as_long_as_on_the_client() {
        let now = Instant::from_nanos(1_000);
        let mut player = Player::new(now, 100, &client_input(1, &[(4, 0)]));
        assert_eq!(player.on_input(now, &client_input(1, &[(4, 0)])), 1);
        assert_eq!(next_due(&mut player, 100), Some((4, 0)));
        assert_eq!(player.on_input(now, &client_input(2, &[(4, 0), (5, 20), (6, 10)])), 2);
        assert_eq!(next_due(&mut player, 110), None, "change 5 is applied too early");
        assert_eq!(next_due(&mut player, 128), Some((5, 8)), "change 5 is 8 ticks late");
        assert_eq!(player.applied_change(130), (5, 2));
        assert_eq!(next_due(&mut player, 137), None);
        assert_eq!(next_due(&mut player, 138), Some((6, 0)));
        assert_eq!(player.on_input(now, &client_input(3, &[(5, 20), (6, 10)])), 0);
        assert_eq!(next_due(&mut player, 900), None, "a known change is applied twice");
        player.on_input(now, &client_input(3, &[(8, 1)]));
        assert_eq!(next_due(&mut player, 910), Some((8, 0)), "change 7 was lost");
        player.on_input(now, &client_input(4, &[(9, 5)]));
        assert_eq!(next_due(&mut player, 10_000), Some((9, MAX_REWIND_TICKS)), "the rewind is not limited");
        assert_eq!(player.applied_change(10_000 + 70_000), (9, 70_000), "the duration is limited");
    }

    #[test]
    fn player_from_another_server_is_not_delayed_by_old_changes() {
        let now = Instant::from_nanos(1_000);
        let first = client_input(1, &[(4, 900)]);
        let mut player = Player::new(now, 5_000, &first);
        assert_eq!(player.on_input(now, &first), 1);
        assert_eq!(next_due(&mut player, 5_001), Some((4, 1)));
    }
}
