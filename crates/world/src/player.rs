//! A player on this server: what it wants, and what it was shown.

use std::collections::VecDeque;

use coplay::peer_world::EntityId;
use coplay::time::{Instant, TimeDelta};

use crate::protocol::{ClientInput, InputChange};

/// A player sees so often how things are, and gets a page of what else there is to know.
const VIEW_INTERVAL: TimeDelta = TimeDelta::from_millis(40);
pub(crate) const DIRECTORY_INTERVAL: TimeDelta = TimeDelta::from_millis(500);
/// Presses that wait for their turn; who presses more is not heard.
const MAX_QUEUED_CHANGES: usize = 32;
/// The most ticks of a walk that are taken back because the player had let go by then.
const MAX_REWIND_TICKS: u32 = 30;

/// A player on this server.
#[derive(Clone, Debug)]
pub(crate) struct Player {
    /// Which run of the player's this is: who begins anew begins to count anew.
    pub(crate) run: u32,
    /// The tick in which it came.
    pub(crate) joined_tick: u32,
    /// What it wants to be called.
    pub(crate) name: String,
    /// When something came from it last.
    pub(crate) last_received: Instant,
    /// Its newest stamp, and when that came.
    pub(crate) newest_stamp: (Instant, Instant),
    /// The newest press that took effect, and the tick in which it did.
    applied_change: (u32, u32),
    queued_changes: VecDeque<InputChange>,
    next_view: Instant,
    next_directory: Instant,
    /// Who felled it last.
    pub(crate) last_hit_by: Option<EntityId>,
    /// Where in the table its next page begins.
    pub(crate) next_score_row: usize,
}

/// A press whose turn it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DueChange {
    pub(crate) change: InputChange,
    /// For so many ticks the buttons before were held too long here.
    pub(crate) rewind_ticks: u32,
}

impl Player {
    /// It comes with the presses that it made elsewhere. Only the newest counts, and at once: the buttons before it were held elsewhere.
    pub(crate) fn new(now: Instant, tick: u32, wish: &ClientInput) -> Self {
        let newest = wish.changes.last();
        let (before, lasted) =
            newest.map_or((0, 0), |press| (press.number.saturating_sub(1), press.previous_held_ticks));
        Self {
            run: wish.run,
            joined_tick: tick,
            name: wish.name.clone(),
            last_received: now,
            newest_stamp: (wish.stamp, now),
            applied_change: (before, tick.saturating_sub(lasted)),
            queued_changes: VecDeque::new(),
            next_view: now,
            next_directory: now,
            last_hit_by: None,
            next_score_row: 0,
        }
    }

    /// It says something. What it said before is known already. How many of its presses are new.
    pub(crate) fn on_input(&mut self, now: Instant, wish: &ClientInput) -> u64 {
        self.last_received = now;
        if wish.stamp > self.newest_stamp.0 {
            self.newest_stamp = (wish.stamp, now);
        }
        let mut news = 0;
        for press in &wish.changes {
            let newest = self.queued_changes.back().map_or(self.applied_change.0, |waiting| waiting.number);
            if press.number > newest && self.queued_changes.len() < MAX_QUEUED_CHANGES {
                self.queued_changes.push_back(*press);
                news += 1;
            }
        }
        news
    }

    /// The next press whose turn it is in this tick: when the buttons before were held for as long as the player held them.
    pub(crate) fn next_due_change(&mut self, tick: u32) -> Option<DueChange> {
        let press = *self.queued_changes.front()?;
        let (number, since) = self.applied_change;
        let held = tick.saturating_sub(since);
        // Of presses that were never heard of it is not known how long they were held.
        let lasted = if press.number == number + 1 { press.previous_held_ticks } else { held };
        // Who is in arrears does not get further behind.
        if held < lasted && self.queued_changes.len() < MAX_QUEUED_CHANGES / 2 {
            return None;
        }
        self.queued_changes.pop_front();
        self.applied_change = (press.number, tick);
        Some(DueChange { change: press, rewind_ticks: held.saturating_sub(lasted).min(MAX_REWIND_TICKS) })
    }

    /// The newest press that took effect, and for how many ticks by now.
    pub(crate) fn applied_change(&self, tick: u32) -> (u32, u32) {
        let (number, since) = self.applied_change;
        (number, tick.saturating_sub(since))
    }

    /// Whether it is to be shown how things are.
    pub(crate) fn take_view_due(&mut self, now: Instant) -> bool {
        take_due(&mut self.next_view, now, VIEW_INTERVAL)
    }

    /// Whether it is to get a page.
    pub(crate) fn take_directory_due(&mut self, now: Instant) -> bool {
        take_due(&mut self.next_directory, now, DIRECTORY_INTERVAL)
    }
}

/// Whether it is time, and then the next time; who is late does not make up for it.
fn take_due(next: &mut Instant, now: Instant, every: TimeDelta) -> bool {
    let due = now >= *next;
    if due {
        *next = (*next + every).max(now + every / 2);
    }
    due
}

#[cfg(test)]
mod tests {
    use super::*;
    use coplay_maze::Controls;

    fn client_input(stamp: i64, presses: &[(u32, u32)]) -> ClientInput {
        let press = |(number, lasted): &(u32, u32)| InputChange {
            number: *number,
            previous_held_ticks: *lasted,
            controls: Controls::default(),
        };
        let (stamp, presses) = (Instant::from_nanos(stamp), presses.iter().map(press).collect());
        ClientInput { run: 7, stamp, name: "Ada".into(), changes: presses }
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
        assert_eq!(next_due(&mut player, 110), None, "5 is too early");
        assert_eq!(next_due(&mut player, 128), Some((5, 8)), "5 is late by 8");
        assert_eq!(player.applied_change(130), (5, 2));
        assert_eq!(next_due(&mut player, 137), None);
        assert_eq!(next_due(&mut player, 138), Some((6, 0)));
        assert_eq!(player.on_input(now, &client_input(3, &[(5, 20), (6, 10)])), 0);
        assert_eq!(next_due(&mut player, 900), None, "what is known is not done again");
        player.on_input(now, &client_input(3, &[(8, 1)]));
        assert_eq!(next_due(&mut player, 910), Some((8, 0)), "7 was never heard of");
        player.on_input(now, &client_input(4, &[(9, 5)]));
        assert_eq!(next_due(&mut player, 10_000), Some((9, MAX_REWIND_TICKS)), "nobody goes back for long");
        assert_eq!(player.applied_change(10_000 + 70_000), (9, 70_000), "however long it is");
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
