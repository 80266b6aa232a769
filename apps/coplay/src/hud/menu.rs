//! Menu panel: entries, their effects and their text.

use std::time::Instant;

use super::{Hud, HudRequest, OpenPanel};
use crate::scene::{MenuMove, Overlay, join_footer, key_hint};

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
    /// Handles a key in the menu. In any other panel, Enter closes the panel.
    pub(super) fn on_menu_move(&mut self, now: Instant, step: MenuMove) -> Option<HudRequest> {
        let OpenPanel::Menu(selected) = self.panel else {
            if step == MenuMove::Enter {
                self.panel = OpenPanel::Closed;
            }
            return None;
        };
        let items = self.menu_items();
        let item = items[selected.min(items.len() - 1)];
        match step {
            MenuMove::Up => self.panel = OpenPanel::Menu((selected + items.len() - 1) % items.len()),
            MenuMove::Down => self.panel = OpenPanel::Menu((selected + 1) % items.len()),
            MenuMove::Left if item == MenuItem::Slot => self.choose_slot(now, -1),
            MenuMove::Right if item == MenuItem::Slot => self.choose_slot(now, 1),
            MenuMove::Left if item == MenuItem::Volume => self.change_volume(now, false),
            MenuMove::Right if item == MenuItem::Volume => self.change_volume(now, true),
            MenuMove::Left | MenuMove::Right => {}
            MenuMove::Enter => return self.activate(now, item),
        }
        None
    }

    fn activate(&mut self, now: Instant, item: MenuItem) -> Option<HudRequest> {
        match item {
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
        match item {
            MenuItem::Save => Some(HudRequest::Save(self.slot)),
            MenuItem::Load => Some(HudRequest::Load(self.slot)),
            MenuItem::Reset => Some(HudRequest::Reset),
            MenuItem::GoOnAlone => Some(HudRequest::GoOnAlone),
            _ => None,
        }
    }

    fn menu_items(&self) -> Vec<MenuItem> {
        let mut items = vec![MenuItem::Continue];
        if self.can_go_on_alone {
            items.push(MenuItem::GoOnAlone);
        }
        if self.capabilities.slots {
            items.extend([MenuItem::Save, MenuItem::Load, MenuItem::Slot]);
        }
        if !self.capabilities.no_sound {
            items.push(MenuItem::Volume);
        }
        if self.invitation.is_some() {
            items.push(MenuItem::Invitation);
        }
        if self.capabilities.reset {
            items.push(MenuItem::Reset);
        }
        items.extend([MenuItem::Keys, MenuItem::Quit]);
        items
    }

    fn item_text(&self, item: MenuItem) -> (String, String) {
        let (left, right) = match item {
            MenuItem::Continue => ("Resume", String::new()),
            MenuItem::GoOnAlone => ("Play on alone", "drop the silent players".into()),
            MenuItem::Save => ("Save state", format!("to slot {}", self.slot)),
            MenuItem::Load => ("Load state", format!("from slot {}", self.slot)),
            MenuItem::Slot => ("Slot", format!("‹ {} ›", self.slot)),
            MenuItem::Volume if self.is_muted => ("Volume", "‹ muted ›".into()),
            MenuItem::Volume => ("Volume", format!("‹ {} % ›", self.volume)),
            MenuItem::Invitation => ("Invite players", String::new()),
            MenuItem::Reset if self.capabilities.shared_game => ("Reset", "for all players".into()),
            MenuItem::Reset => ("Reset", String::new()),
            MenuItem::Keys => ("Keys", String::new()),
            MenuItem::Quit => ("Quit", String::new()),
        };
        (left.into(), right)
    }

    /// Builds the panel, with entry `selected` highlighted.
    pub(super) fn menu_overlay(&self, selected: usize) -> Overlay {
        Overlay {
            title: if self.capabilities.pause { "Paused".into() } else { "Menu".into() },
            rows: self.menu_items().into_iter().map(|item| self.item_text(item)).collect(),
            selected: Some(selected),
            footer: join_footer(&[
                "↑ ↓ select   ← → change   Enter confirm".into(),
                key_hint(&self.menu_key, "resume"),
            ]),
        }
    }
}
