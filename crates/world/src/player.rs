//! A player on this server: its place in the motion engine, what it sees, and the schedule of the messages to it.

use std::collections::BTreeMap;

use coplay::motion::ClientId;
use coplay::peer_world::EntityId;
use coplay::time::{Instant, TimeDelta};

use crate::protocol::ClientInput;

/// Interval of the views sent to a player.
const VIEW_INTERVAL: TimeDelta = TimeDelta::from_millis(25);
/// Interval of the directory messages sent to a player.
pub(crate) const DIRECTORY_INTERVAL: TimeDelta = TimeDelta::from_millis(500);
/// Time for which an avatar that leaves the view of a player is still sent, so that one at the edge does not come and
/// go.
const OUT_OF_VIEW_DELAY: TimeDelta = TimeDelta::from_secs(1);

/// Player on this server.
#[derive(Clone, Debug)]
pub(crate) struct Player {
    /// Random number of the client's run.
    pub(crate) run: u32,
    /// Tick in which the player joined this server.
    pub(crate) joined_tick: u32,
    /// Time of the last input of the player. A suspension of the server after that input moves this time forwards.
    pub(crate) last_received: Instant,
    /// Client of the motion server that this player is.
    pub(crate) client: ClientId,
    /// Avatars that are sent to the player, with the time at which each was last in its view.
    visible: BTreeMap<EntityId, Instant>,
    next_view: Instant,
    next_directory: Instant,
    /// Avatar that last hit the player on this server.
    pub(crate) last_hit_by: Option<EntityId>,
    /// Scoreboard row at which the next directory message begins.
    pub(crate) next_score_row: usize,
}

impl Player {
    /// Creates a player that joins with this input.
    pub(crate) fn new(now: Instant, tick: u32, client: ClientId, input: &ClientInput) -> Self {
        Self {
            run: input.run,
            joined_tick: tick,
            last_received: now,
            client,
            visible: BTreeMap::new(),
            next_view: now,
            next_directory: now,
            last_hit_by: None,
            next_score_row: 0,
        }
    }

    /// Notes the avatars in the player's view. Returns those that have been out of it for 1 s.
    pub(crate) fn update_view(&mut self, now: Instant, in_view: &[EntityId]) -> Vec<EntityId> {
        self.visible.extend(in_view.iter().map(|entity| (*entity, now)));
        let mut left = Vec::new();
        self.visible.retain(|entity, seen| {
            let is_near = now - *seen < OUT_OF_VIEW_DELAY;
            left.extend((!is_near).then_some(*entity));
            is_near
        });
        left
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
