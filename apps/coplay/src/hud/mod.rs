//! Heads-up display that all games share: pause, fast forward, menu, help, volume, invitation and short messages. A
//! game declares its [`HudCapabilities`]; the HUD handles commands itself and returns a [`HudRequest`] for work that
//! only the game can do.

mod help;
mod menu;

use std::time::{Duration, Instant};

use coplay_machines::pad::PadLayout;

use crate::config::{Action, UserSettings};
use crate::save_slots::SLOT_COUNT;
use crate::scene::{MAX_LINE_WIDTH, Overlay, Scene, UiCommand, join_footer, key_hint, wrap_rows};

/// Display time of a toast, a short message over the picture.
const TOAST_DURATION: Duration = Duration::from_secs(2);
/// Display time of a notice, an important message that replaces the toast.
const NOTICE_DURATION: Duration = Duration::from_secs(10);
/// Volume change per key press, in percentage points.
const VOLUME_STEP: u8 = 5;

/// Functions of a game that the HUD offers to the user.
#[derive(Clone, Copy, Debug, Default)]
pub struct HudCapabilities {
    /// Local pause. A game with other players does not have one, because they would have to wait.
    pub pause: bool,
    /// Fast forward while a key is held.
    pub fast_forward: bool,
    /// Save states in slots.
    pub slots: bool,
    /// Reset of the machine by the user.
    pub reset: bool,
    /// Adjustable settings, changed by the keys that otherwise change the volume.
    pub dials: bool,
    /// Machine shared with other players: pause, save, load and reset act for all players, and there is a chat.
    pub shared_game: bool,
    /// The saved state of a shared game, which exists if the machine has exact save states.
    pub shared_slot: bool,
    /// Network graph that the user can show and hide. Games with `shared_game` always have it.
    pub graph: bool,
    /// Game without sound: volume and mute are not offered.
    pub no_sound: bool,
}

/// Request from the HUD that only the game can carry out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HudRequest {
    /// Save the state in this slot.
    Save(u8),
    /// Load the state of this slot.
    Load(u8),
    /// Reset the machine.
    Reset,
    /// Continue without the other players, who are silent.
    GoOnAlone,
    /// Increase (`true`) or decrease the selected dial by one step.
    StepDial(bool),
    /// Move the selection by this number of dials.
    SelectDial(i8),
    /// Set a dial to a value.
    SetDial {
        /// Index of the dial in [`Scene::dials`].
        dial: usize,
        /// New value of the dial.
        value: u32,
    },
}

/// Content of the panel with which the user invites other players.
#[derive(Clone, Debug)]
pub struct Invitation {
    /// Ticket with which others can join.
    pub ticket: String,
    /// Command that precedes the ticket on the command line.
    pub command: &'static str,
    /// Whether the HUD opens the panel at once, because no other player is in the game yet.
    pub opens_immediately: bool,
}

impl Invitation {
    /// Returns the panel with the ticket. `menu_key` is the label of the key that closes it, as Enter does.
    fn overlay(&self, menu_key: &str) -> Overlay {
        let mut rows = wrap_rows("Ticket", &self.ticket);
        let whole = format!("{} '{}'", self.command, self.ticket);
        let short = format!("{} 'TICKET'", self.command);
        rows.push(("To join".into(), if whole.len() <= MAX_LINE_WIDTH { whole } else { short }));
        rows.push(("Play".into(), "the ticket stays in the menu: Invite players".into()));
        let selected = Some(rows.len() - 1);
        let keys = if menu_key.is_empty() { "Enter".into() } else { format!("Enter or {menu_key}") };
        Overlay { title: "Invite players".into(), rows, selected, footer: key_hint(&keys, "play") }
    }
}

/// Panel over the picture, if one is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OpenPanel {
    Closed,
    Help,
    Invitation,
    /// The menu is open, with this entry selected.
    Menu(usize),
}

/// State of the heads-up display, which all games use.
#[derive(Debug)]
pub struct Hud {
    capabilities: HudCapabilities,
    panel: OpenPanel,
    is_pause_requested: bool,
    is_fast_forward: bool,
    speed: u32,
    slot: u8,
    volume: u8,
    is_muted: bool,
    is_quitting: bool,
    toast: Option<(String, Instant)>,
    /// Reason why the machine has halted; `None` while it runs.
    failure: Option<String>,
    help_overlay: Overlay,
    /// Label of the key that opens and closes the menu; empty if there is none.
    menu_key: String,
    /// Label of the key that resets the machine; empty if there is none.
    reset_key: String,
    /// Label of the key that loads the saved state; empty if there is none.
    load_key: String,
    invitation: Option<Invitation>,
    /// Whether the game waits for silent players and can continue without them.
    can_go_on_alone: bool,
}

impl Hud {
    /// Creates the HUD of a game with these capabilities and pads.
    pub fn new(config: &UserSettings, capabilities: HudCapabilities, pads: &[PadLayout]) -> Self {
        Self {
            capabilities,
            panel: OpenPanel::Closed,
            is_pause_requested: false,
            is_fast_forward: false,
            speed: config.fast_forward,
            slot: 0,
            volume: config.volume,
            is_muted: config.mute,
            is_quitting: false,
            toast: None,
            failure: None,
            help_overlay: help::help_overlay(config, capabilities, pads),
            menu_key: config.key_label(Action::Menu),
            reset_key: config.key_label(Action::Reset),
            load_key: config.key_label(Action::Load),
            invitation: None,
            can_go_on_alone: false,
        }
    }

    /// Sets the invitation that the menu offers, and opens its panel if `opens_immediately` is set.
    pub fn invite(&mut self, invitation: Invitation) {
        if invitation.opens_immediately {
            self.panel = OpenPanel::Invitation;
        }
        self.invitation = Some(invitation);
    }

    /// Sets whether the user may play on alone, by key or from the menu.
    pub fn set_can_go_on_alone(&mut self, can_go_on_alone: bool) {
        self.can_go_on_alone = can_go_on_alone;
    }

    /// Handles a command of the user. Returns the request that the game has to carry out, if any.
    pub fn handle_command(&mut self, now: Instant, command: UiCommand) -> Option<HudRequest> {
        match command {
            UiCommand::Quit | UiCommand::Exit => self.is_quitting = true,
            UiCommand::Menu => {
                self.panel = if self.panel == OpenPanel::Closed { OpenPanel::Menu(0) } else { OpenPanel::Closed }
            }
            UiCommand::Help => {
                self.panel = if self.panel == OpenPanel::Help { OpenPanel::Closed } else { OpenPanel::Help }
            }
            UiCommand::Pause if self.capabilities.pause => self.is_pause_requested = !self.is_pause_requested,
            UiCommand::FastForward(on) => self.is_fast_forward = on && self.capabilities.fast_forward,
            UiCommand::Save | UiCommand::Load if !self.capabilities.slots => {
                self.show_toast(now, "save states work only in `coplay play` and in shared games")
            }
            UiCommand::Save => return Some(HudRequest::Save(self.slot)),
            UiCommand::Load => return Some(HudRequest::Load(self.slot)),
            UiCommand::Slot(by) if self.capabilities.slots => self.choose_slot(now, by),
            UiCommand::Reset if self.capabilities.reset => return Some(HudRequest::Reset),
            UiCommand::GoOnAlone if self.can_go_on_alone => return Some(HudRequest::GoOnAlone),
            UiCommand::Mute | UiCommand::Increase | UiCommand::Decrease if self.capabilities.no_sound => {}
            UiCommand::Mute => self.toggle_mute(now),
            UiCommand::Increase if self.capabilities.dials => return Some(HudRequest::StepDial(true)),
            UiCommand::Decrease if self.capabilities.dials => return Some(HudRequest::StepDial(false)),
            UiCommand::Increase => self.change_volume(now, true),
            UiCommand::Decrease => self.change_volume(now, false),
            UiCommand::SelectDial(by) if self.capabilities.dials => return Some(HudRequest::SelectDial(by)),
            UiCommand::SetDial { dial, value: to } if self.capabilities.dials => {
                return Some(HudRequest::SetDial { dial, value: to });
            }
            UiCommand::Move(step) => return self.on_menu_move(now, step),
            _ => {}
        }
        None
    }

    fn choose_slot(&mut self, now: Instant, by: i8) {
        self.slot = (self.slot as i8 + by).rem_euclid(SLOT_COUNT as i8) as u8;
        self.show_toast(now, format!("slot {}", self.slot));
    }

    fn toggle_mute(&mut self, now: Instant) {
        self.is_muted = !self.is_muted;
        self.show_toast(now, if self.is_muted { "muted" } else { "sound on" });
    }

    fn change_volume(&mut self, now: Instant, up: bool) {
        self.volume = if up { (self.volume + VOLUME_STEP).min(100) } else { self.volume.saturating_sub(VOLUME_STEP) };
        self.is_muted = false;
        self.show_toast(now, format!("volume {} %", self.volume));
    }

    /// Shows a short message for 2 s, in place of the present one.
    pub fn show_toast(&mut self, now: Instant, text: impl Into<String>) {
        self.toast = Some((text.into(), now + TOAST_DURATION));
    }

    /// Shows an important message for 10 s, in place of the present toast.
    pub fn show_notice(&mut self, now: Instant, text: impl Into<String>) {
        self.toast = Some((text.into(), now + NOTICE_DURATION));
    }

    /// Sets the reason for which the machine has halted; `None` while the machine runs.
    pub fn set_failure(&mut self, why: Option<&str>) {
        if self.failure.as_deref() != why {
            self.failure = why.map(str::to_owned);
        }
    }

    /// Returns whether the menu, the help or the invitation is open.
    pub fn has_open_panel(&self) -> bool {
        self.panel != OpenPanel::Closed
    }

    /// Returns whether the user or a signal has asked to quit, or the front end is gone.
    pub fn is_quit_requested(&self) -> bool {
        self.is_quitting
    }

    /// Returns whether the game is paused: by command, or because a panel is open. Always `false` for a game that
    /// cannot pause.
    pub fn is_paused(&self) -> bool {
        self.capabilities.pause && (self.is_pause_requested || self.panel != OpenPanel::Closed)
    }

    /// Returns the speed factor: 1, or the configured factor during fast forward.
    pub fn speed(&self) -> u32 {
        if self.is_fast_forward && !self.is_paused() { self.speed } else { 1 }
    }

    /// Returns the volume in percent, and whether the sound is muted.
    pub fn sound_settings(&self) -> (u8, bool) {
        (self.volume, self.is_muted)
    }

    /// Returns the number of the selected save slot, from 0 to 9.
    pub fn slot(&self) -> u8 {
        self.slot
    }

    /// Draws the HUD into a scene: toast, overlay and text for the clipboard.
    pub fn draw(&self, now: Instant, scene: &mut Scene) {
        scene.toast = self.toast.as_ref().filter(|(_, until)| now < *until).map(|(text, _)| text.clone());
        if let Some(invitation) = self.invitation.as_ref() {
            scene.clipboard_text = (self.panel == OpenPanel::Invitation).then(|| invitation.ticket.clone());
        }
        scene.overlay = match self.panel {
            OpenPanel::Closed if self.is_pause_requested => {
                Some(Overlay { title: "Paused".into(), ..Overlay::default() })
            }
            OpenPanel::Closed => self.failure.as_deref().map(|why| self.failure_overlay(why)),
            OpenPanel::Help => Some(self.help_overlay.clone()),
            OpenPanel::Invitation => self.invitation.as_ref().map(|invitation| invitation.overlay(&self.menu_key)),
            OpenPanel::Menu(selected) => Some(self.menu_overlay(selected)),
        };
    }

    fn failure_overlay(&self, why: &str) -> Overlay {
        let footer = match self.capabilities {
            HudCapabilities { slots: true, .. } | HudCapabilities { shared_slot: true, .. } => {
                let load = key_hint(&self.load_key, "load the saved state");
                join_footer(&[key_hint(&self.reset_key, "reset the machine"), load])
            }
            HudCapabilities { reset: true, .. } => key_hint(&self.reset_key, "reset the machine"),
            HudCapabilities { shared_game: true, .. } => {
                "the players can reset the machine, or load a saved state".into()
            }
            _ => "run `coplay check` with the same game and core".into(),
        };
        let (title, rows) = ("The machine has halted".into(), vec![(why.into(), String::new())]);
        Overlay { title, rows, selected: None, footer }
    }
}

/// Returns the note for the end of a run, from the reason `why` for which the machine has halted; `None` if the machine
/// has not halted.
pub fn failure_note(why: Option<&str>) -> Option<String> {
    why.map(|why| format!("the machine had halted by the end of the run: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scene::MenuMove;
    use coplay_machines::pad::Button;

    const ALL_CAPABILITIES: HudCapabilities = HudCapabilities {
        pause: true,
        fast_forward: true,
        slots: true,
        reset: true,
        dials: false,
        shared_game: false,
        shared_slot: false,
        graph: false,
        no_sound: false,
    };

    fn hud(capabilities: HudCapabilities) -> (Hud, Instant) {
        (Hud::new(&UserSettings::default(), capabilities, &[PadLayout::with_buttons(&Button::ALL)]), Instant::now())
    }

    fn overlay(hud: &Hud, now: Instant) -> Overlay {
        let mut scene = Scene::default();
        hud.draw(now, &mut scene);
        scene.overlay.unwrap_or_default()
    }

    #[test]
    fn invitation_opens_immediately_and_stays_in_the_menu() {
        let mut hud = Hud::new(&UserSettings::default(), HudCapabilities::default(), &[]);
        let ticket = "udp://192.0.2.1:7000#word".to_owned();
        hud.invite(Invitation { ticket: ticket.clone(), command: "coplay maze join", opens_immediately: true });
        let (now, mut scene) = (Instant::now(), Scene::default());
        let shown = |hud: &Hud, scene: &mut Scene| {
            hud.draw(now, scene);
            let rows = scene.overlay.as_ref().map_or(vec![], |overlay| overlay.rows.clone());
            rows.iter().any(|(_, right)| *right == format!("coplay maze join '{ticket}'"))
        };
        assert!(shown(&hud, &mut scene) && scene.clipboard_text.as_deref() == Some(ticket.as_str()));
        hud.handle_command(now, UiCommand::Move(MenuMove::Enter));
        assert!(!shown(&hud, &mut scene) && scene.clipboard_text.is_none());
        hud.handle_command(now, UiCommand::Menu);
        hud.handle_command(now, UiCommand::Move(MenuMove::Down));
        hud.handle_command(now, UiCommand::Move(MenuMove::Down));
        hud.handle_command(now, UiCommand::Move(MenuMove::Enter));
        assert!(shown(&hud, &mut scene));
        assert_eq!(overlay(&hud, now).footer, "Enter or Esc play");
        hud.handle_command(now, UiCommand::Menu);
        assert!(!hud.has_open_panel(), "Esc closes the invitation");
    }

    #[test]
    fn menu_selection_wraps_and_activates_items() {
        let (mut hud, now) = hud(ALL_CAPABILITIES);
        hud.handle_command(now, UiCommand::Menu);
        assert!(hud.is_paused());
        let rows = overlay(&hud, now).rows.len();
        assert_eq!(rows, 8);
        (0..rows).for_each(|_| _ = hud.handle_command(now, UiCommand::Move(MenuMove::Down)));
        assert_eq!(overlay(&hud, now).selected, Some(0));
        hud.handle_command(now, UiCommand::Slot(-1));
        hud.handle_command(now, UiCommand::Move(MenuMove::Down));
        assert_eq!(hud.handle_command(now, UiCommand::Move(MenuMove::Enter)), Some(HudRequest::Save(9)));
        assert!(!hud.is_paused());
        hud.handle_command(now, UiCommand::Menu);
        hud.handle_command(now, UiCommand::Move(MenuMove::Up));
        hud.handle_command(now, UiCommand::Move(MenuMove::Enter));
        assert!(hud.is_quit_requested());
    }

    #[test]
    fn unsupported_commands_are_hidden_and_ignored() {
        let (mut hud, now) = hud(HudCapabilities::default());
        for command in [
            UiCommand::Pause,
            UiCommand::FastForward(true),
            UiCommand::Reset,
            UiCommand::Save,
            UiCommand::SelectDial(1),
        ] {
            assert_eq!(hud.handle_command(now, command), None);
        }
        assert_eq!((hud.is_paused(), hud.speed()), (false, 1));
        hud.handle_command(now, UiCommand::Menu);
        assert!(!hud.is_paused(), "a game without pause continues behind its menu");
        assert_eq!(overlay(&hud, now).rows.len(), 4);
    }

    #[test]
    fn toast_disappears_after_its_duration() {
        let (mut hud, now) = hud(ALL_CAPABILITIES);
        hud.handle_command(now, UiCommand::Increase);
        let mut scene = Scene::default();
        hud.draw(now, &mut scene);
        assert_eq!(scene.toast.as_deref(), Some("volume 85 %"));
        hud.draw(now + TOAST_DURATION, &mut scene);
        assert_eq!(scene.toast, None);
    }

    #[test]
    fn machine_failure_overlay_lasts_while_the_machine_fails() {
        let (mut hud, now) = hud(ALL_CAPABILITIES);
        hud.set_failure(Some("it is down"));
        assert_eq!(overlay(&hud, now).rows, [("it is down".into(), String::new())]);
        assert_eq!(overlay(&hud, now).footer, "F9 reset the machine   F7 load the saved state");
        hud.handle_command(now, UiCommand::Menu);
        assert!(overlay(&hud, now).selected.is_some(), "the menu opens although the machine has halted");
        hud.handle_command(now, UiCommand::Menu);
        hud.set_failure(None);
        assert_eq!(overlay(&hud, now), Overlay::default());
    }

    #[test]
    fn fast_forward_only_while_held_and_not_paused() {
        let (mut hud, now) = hud(ALL_CAPABILITIES);
        hud.handle_command(now, UiCommand::FastForward(true));
        assert_eq!(hud.speed(), 4);
        hud.handle_command(now, UiCommand::Pause);
        assert_eq!(hud.speed(), 1);
    }
}
