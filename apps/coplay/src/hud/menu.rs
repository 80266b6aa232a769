//! The menu.

use std::time::Instant;

use super::{Hud, HudRequest, OpenPanel};
use crate::scene::{MenuMove, Overlay};

/// A row of the menu.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MenuItem {
    Continue,
    GoOnAlone,
    Save,
    Load,
    Slot,
    Volume,
    Invitation,
    Reset,
    Keys,
    Quit,
}

impl Hud {
    /// A move in the menu, or away from the keys.
    pub(super) fn on_menu_move(&mut self, now: Instant, step: MenuMove) -> Option<HudRequest> {
        let OpenPanel::Menu(chosen) = self.panel else {
            if step == MenuMove::Enter {
                self.panel = OpenPanel::Closed;
            }
            return None;
        };
        let rows = self.menu_items();
        let row = rows[chosen.min(rows.len() - 1)];
        match step {
            MenuMove::Up => self.panel = OpenPanel::Menu((chosen + rows.len() - 1) % rows.len()),
            MenuMove::Down => self.panel = OpenPanel::Menu((chosen + 1) % rows.len()),
            MenuMove::Left if row == MenuItem::Slot => self.choose_slot(now, -1),
            MenuMove::Right if row == MenuItem::Slot => self.choose_slot(now, 1),
            MenuMove::Left if row == MenuItem::Volume => self.change_volume(now, false),
            MenuMove::Right if row == MenuItem::Volume => self.change_volume(now, true),
            MenuMove::Left | MenuMove::Right => {}
            MenuMove::Enter => return self.activate(now, row),
        }
        None
    }

    fn activate(&mut self, now: Instant, row: MenuItem) -> Option<HudRequest> {
        match row {
            MenuItem::Slot => self.choose_slot(now, 1),
            MenuItem::Volume => self.toggle_mute(now),
            MenuItem::Keys => self.panel = OpenPanel::Help,
            MenuItem::Invitation => self.panel = OpenPanel::Invitation,
            MenuItem::Quit => self.is_quitting = true,
            MenuItem::Continue | MenuItem::GoOnAlone | MenuItem::Save | MenuItem::Load | MenuItem::Reset => {
                self.panel = OpenPanel::Closed;
                self.is_pause_requested = false;
            }
        }
        match row {
            MenuItem::Save => Some(HudRequest::Save(self.slot)),
            MenuItem::Load => Some(HudRequest::Load(self.slot)),
            MenuItem::Reset => Some(HudRequest::Reset),
            MenuItem::GoOnAlone => Some(HudRequest::GoOnAlone),
            _ => None,
        }
    }

    fn menu_items(&self) -> Vec<MenuItem> {
        let mut rows = vec![MenuItem::Continue];
        if self.can_go_on_alone {
            rows.push(MenuItem::GoOnAlone);
        }
        if self.capabilities.slots {
            rows.extend([MenuItem::Save, MenuItem::Load, MenuItem::Slot]);
        }
        if !self.capabilities.no_sound {
            rows.push(MenuItem::Volume);
        }
        if self.invitation.is_some() {
            rows.push(MenuItem::Invitation);
        }
        if self.capabilities.reset {
            rows.push(MenuItem::Reset);
        }
        rows.extend([MenuItem::Keys, MenuItem::Quit]);
        rows
    }

    fn item_text(&self, row: MenuItem) -> (String, String) {
        let (left, right) = match row {
            MenuItem::Continue => ("Go on", String::new()),
            MenuItem::GoOnAlone => ("Play on alone", "the others are silent".into()),
            MenuItem::Save => ("Keep this moment", format!("in slot {}", self.slot)),
            MenuItem::Load => ("Go back", format!("to slot {}", self.slot)),
            MenuItem::Slot => ("Slot", format!("‹ {} ›", self.slot)),
            MenuItem::Volume if self.is_muted => ("Sound", "‹ off ›".into()),
            MenuItem::Volume => ("Sound", format!("‹ {} % ›", self.volume)),
            MenuItem::Invitation => ("Ask others in", String::new()),
            MenuItem::Reset => ("Switch off and on", String::new()),
            MenuItem::Keys => ("Keys", String::new()),
            MenuItem::Quit => ("End", String::new()),
        };
        (left.into(), right)
    }

    /// The menu as it is shown, with this row chosen.
    pub(super) fn menu_overlay(&self, chosen: usize) -> Overlay {
        Overlay {
            title: if self.capabilities.pause { "Pause".into() } else { "Menu".into() },
            rows: self.menu_items().into_iter().map(|row| self.item_text(row)).collect(),
            selected: Some(chosen),
            footer: "↑ ↓ choose   ← → change   Enter do it   Esc go on".into(),
        }
    }
}
