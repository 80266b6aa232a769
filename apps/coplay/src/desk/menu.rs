//! The menu.

use std::time::Instant;

use super::{Desk, Over, Wish};
use crate::scene::{Move, Overlay};

/// A row of the menu.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Row {
    Continue,
    GoOnAlone,
    Save,
    Load,
    Slot,
    Volume,
    Invite,
    Reset,
    Keys,
    Quit,
}

impl Desk {
    /// A move in the menu, or away from the keys.
    pub(super) fn on_move(&mut self, now: Instant, step: Move) -> Option<Wish> {
        let Over::Menu(chosen) = self.over else {
            if step == Move::Enter {
                self.over = Over::Nothing;
            }
            return None;
        };
        let rows = self.rows();
        let row = rows[chosen.min(rows.len() - 1)];
        match step {
            Move::Up => self.over = Over::Menu((chosen + rows.len() - 1) % rows.len()),
            Move::Down => self.over = Over::Menu((chosen + 1) % rows.len()),
            Move::Left if row == Row::Slot => self.choose_slot(now, -1),
            Move::Right if row == Row::Slot => self.choose_slot(now, 1),
            Move::Left if row == Row::Volume => self.change_volume(now, false),
            Move::Right if row == Row::Volume => self.change_volume(now, true),
            Move::Left | Move::Right => {}
            Move::Enter => return self.enter(now, row),
        }
        None
    }

    fn enter(&mut self, now: Instant, row: Row) -> Option<Wish> {
        match row {
            Row::Slot => self.choose_slot(now, 1),
            Row::Volume => self.mute(now),
            Row::Keys => self.over = Over::Help,
            Row::Invite => self.over = Over::Invitation,
            Row::Quit => self.quit = true,
            Row::Continue | Row::GoOnAlone | Row::Save | Row::Load | Row::Reset => {
                self.over = Over::Nothing;
                self.paused = false;
            }
        }
        match row {
            Row::Save => Some(Wish::Save(self.slot)),
            Row::Load => Some(Wish::Load(self.slot)),
            Row::Reset => Some(Wish::Reset),
            Row::GoOnAlone => Some(Wish::GoOnAlone),
            _ => None,
        }
    }

    fn rows(&self) -> Vec<Row> {
        let mut rows = vec![Row::Continue];
        if self.can_go_on_alone {
            rows.push(Row::GoOnAlone);
        }
        if self.can.slots {
            rows.extend([Row::Save, Row::Load, Row::Slot]);
        }
        if !self.can.silent {
            rows.push(Row::Volume);
        }
        if self.invitation.is_some() {
            rows.push(Row::Invite);
        }
        if self.can.reset {
            rows.push(Row::Reset);
        }
        rows.extend([Row::Keys, Row::Quit]);
        rows
    }

    fn describe(&self, row: Row) -> (String, String) {
        let (left, right) = match row {
            Row::Continue => ("Go on", String::new()),
            Row::GoOnAlone => ("Play on alone", "the others are silent".into()),
            Row::Save => ("Keep this moment", format!("in slot {}", self.slot)),
            Row::Load => ("Go back", format!("to slot {}", self.slot)),
            Row::Slot => ("Slot", format!("‹ {} ›", self.slot)),
            Row::Volume if self.muted => ("Sound", "‹ off ›".into()),
            Row::Volume => ("Sound", format!("‹ {} % ›", self.volume)),
            Row::Invite => ("Ask others in", String::new()),
            Row::Reset => ("Switch off and on", String::new()),
            Row::Keys => ("Keys", String::new()),
            Row::Quit => ("End", String::new()),
        };
        (left.into(), right)
    }

    /// The menu as it is shown, with this row chosen.
    pub(super) fn menu(&self, chosen: usize) -> Overlay {
        Overlay {
            title: if self.can.pause { "Pause".into() } else { "Menu".into() },
            rows: self.rows().into_iter().map(|row| self.describe(row)).collect(),
            chosen: Some(chosen),
            foot: "↑ ↓ choose   ← → change   Enter do it   Esc go on".into(),
        }
    }
}
