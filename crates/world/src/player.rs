//! A player on this server: what it wants, and what it was shown.

use std::collections::VecDeque;

use coplay::peer_world::EntityId;
use coplay::time::{Instant, TimeDelta};

use crate::talk::{Press, Wish};

/// A player sees so often how things are, and gets a page of what else there is to know.
const VIEW_EVERY: TimeDelta = TimeDelta::from_millis(40);
pub(crate) const PAGE_EVERY: TimeDelta = TimeDelta::from_millis(500);
/// Presses that wait for their turn; who presses more is not heard.
const MOST_WAITING: usize = 32;
/// The most ticks of a walk that are taken back because the player had let go by then.
const MOST_BACK: u32 = 30;

/// A player on this server.
#[derive(Clone, Debug)]
pub(crate) struct Player {
    /// Which run of the player's this is: who begins anew begins to count anew.
    pub(crate) run: u32,
    /// The tick in which it came.
    pub(crate) came: u32,
    /// What it wants to be called.
    pub(crate) name: String,
    /// When something came from it last.
    pub(crate) heard: Instant,
    /// Its newest stamp, and when that came.
    pub(crate) stamp: (Instant, Instant),
    /// The newest press that took effect, and the tick in which it did.
    pressed: (u32, u32),
    waiting: VecDeque<Press>,
    next_view: Instant,
    next_page: Instant,
    /// Who felled it last.
    pub(crate) felled_by: Option<EntityId>,
    /// Where in the table its next page begins.
    pub(crate) line: usize,
}

/// A press whose turn it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Due {
    pub(crate) press: Press,
    /// For so many ticks the buttons before were held too long here.
    pub(crate) back: u32,
}

impl Player {
    /// It comes with the presses that it made elsewhere. Only the newest counts, and at once: the buttons before it were held elsewhere.
    pub(crate) fn new(now: Instant, tick: u32, wish: &Wish) -> Self {
        let newest = wish.presses.last();
        let (before, lasted) = newest.map_or((0, 0), |press| (press.number.saturating_sub(1), press.lasted));
        Self {
            run: wish.run,
            came: tick,
            name: wish.name.clone(),
            heard: now,
            stamp: (wish.stamp, now),
            pressed: (before, tick.saturating_sub(lasted)),
            waiting: VecDeque::new(),
            next_view: now,
            next_page: now,
            felled_by: None,
            line: 0,
        }
    }

    /// It says something. What it said before is known already. How many of its presses are new.
    pub(crate) fn hear(&mut self, now: Instant, wish: &Wish) -> u64 {
        self.heard = now;
        if wish.stamp > self.stamp.0 {
            self.stamp = (wish.stamp, now);
        }
        let mut news = 0;
        for press in &wish.presses {
            let newest = self.waiting.back().map_or(self.pressed.0, |waiting| waiting.number);
            if press.number > newest && self.waiting.len() < MOST_WAITING {
                self.waiting.push_back(*press);
                news += 1;
            }
        }
        news
    }

    /// The next press whose turn it is in this tick: when the buttons before were held for as long as the player held them.
    pub(crate) fn next_press(&mut self, tick: u32) -> Option<Due> {
        let press = *self.waiting.front()?;
        let (number, since) = self.pressed;
        let held = tick.saturating_sub(since);
        // Of presses that were never heard of it is not known how long they were held.
        let lasted = if press.number == number + 1 { press.lasted } else { held };
        // Who is in arrears does not get further behind.
        if held < lasted && self.waiting.len() < MOST_WAITING / 2 {
            return None;
        }
        self.waiting.pop_front();
        self.pressed = (press.number, tick);
        Some(Due { press, back: held.saturating_sub(lasted).min(MOST_BACK) })
    }

    /// The newest press that took effect, and for how many ticks by now.
    pub(crate) fn pressed(&self, tick: u32) -> (u32, u32) {
        let (number, since) = self.pressed;
        (number, tick.saturating_sub(since))
    }

    /// Whether it is to be shown how things are.
    pub(crate) fn wants_view(&mut self, now: Instant) -> bool {
        is_due(&mut self.next_view, now, VIEW_EVERY)
    }

    /// Whether it is to get a page.
    pub(crate) fn wants_page(&mut self, now: Instant) -> bool {
        is_due(&mut self.next_page, now, PAGE_EVERY)
    }
}

/// Whether it is time, and then the next time; who is late does not make up for it.
fn is_due(next: &mut Instant, now: Instant, every: TimeDelta) -> bool {
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

    fn wish(stamp: i64, presses: &[(u32, u32)]) -> Wish {
        let press =
            |(number, lasted): &(u32, u32)| Press { number: *number, lasted: *lasted, controls: Controls::default() };
        let (stamp, presses) = (Instant::from_nanos(stamp), presses.iter().map(press).collect());
        Wish { run: 7, stamp, name: "Ada".into(), presses }
    }

    fn due(player: &mut Player, tick: u32) -> Option<(u32, u32)> {
        player.next_press(tick).map(|due| (due.press.number, due.back))
    }

    #[test]
    fn buttons_are_held_for_as_long_as_the_player_held_them() {
        let now = Instant::from_nanos(1_000);
        let mut player = Player::new(now, 100, &wish(1, &[(4, 0)]));
        assert_eq!(player.hear(now, &wish(1, &[(4, 0)])), 1);
        assert_eq!(due(&mut player, 100), Some((4, 0)));
        assert_eq!(player.hear(now, &wish(2, &[(4, 0), (5, 20), (6, 10)])), 2);
        assert_eq!(due(&mut player, 110), None, "5 is too early");
        assert_eq!(due(&mut player, 128), Some((5, 8)), "5 is late by 8");
        assert_eq!(player.pressed(130), (5, 2));
        assert_eq!(due(&mut player, 137), None);
        assert_eq!(due(&mut player, 138), Some((6, 0)));
        assert_eq!(player.hear(now, &wish(3, &[(5, 20), (6, 10)])), 0);
        assert_eq!(due(&mut player, 900), None, "what is known is not done again");
        player.hear(now, &wish(3, &[(8, 1)]));
        assert_eq!(due(&mut player, 910), Some((8, 0)), "7 was never heard of");
        player.hear(now, &wish(4, &[(9, 5)]));
        assert_eq!(due(&mut player, 10_000), Some((9, MOST_BACK)), "nobody goes back for long");
        assert_eq!(player.pressed(10_000 + 70_000), (9, 70_000), "however long it is");
    }

    #[test]
    fn who_comes_from_elsewhere_does_not_wait_for_what_it_did_there() {
        let now = Instant::from_nanos(1_000);
        let first = wish(1, &[(4, 900)]);
        let mut player = Player::new(now, 5_000, &first);
        assert_eq!(player.hear(now, &first), 1);
        assert_eq!(due(&mut player, 5_001), Some((4, 1)));
    }
}
