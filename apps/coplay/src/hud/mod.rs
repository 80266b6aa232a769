//! What every game on a screen has in common: standing still, going faster, the menu, the keys, how loud it is, and a word about what was
//! just done. A game tells what it can do; the desk tells the game what is wanted.

mod help;
mod menu;

use std::time::{Duration, Instant};

use coplay_machines::pad::Pad;

use crate::config::Config;
use crate::save_slots::SLOT_COUNT;
use crate::scene::{MAX_LINE_WIDTH, Overlay, Scene, UiCommand, wrap_rows};

/// How long a word stays.
const TOAST_DURATION: Duration = Duration::from_secs(2);
/// How long a notice stays.
const NOTICE_DURATION: Duration = Duration::from_secs(10);
/// How far one press changes the volume, in percent.
const VOLUME_STEP: u8 = 5;

/// What a game allows.
#[derive(Clone, Copy, Debug, Default)]
pub struct HudCapabilities {
    /// To stand still. Others would have to wait where a game is shared.
    pub pause: bool,
    /// To go faster.
    pub fast_forward: bool,
    /// To keep moments and go back to them.
    pub slots: bool,
    /// To switch the machine off and on.
    pub reset: bool,
    /// To turn dials, with the keys that change the volume otherwise.
    pub dials: bool,
    /// To do things for all, because others play, too; and to talk with them.
    pub shared_game: bool,
    /// To show how the network does; who shares can, anyway.
    pub graph: bool,
    /// To be played in silence: there is nothing to be heard, louder or less loud.
    pub no_sound: bool,
}

/// What the game itself has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HudRequest {
    /// Keep this moment.
    Save(u8),
    /// Go back to that one.
    Load(u8),
    /// Switch off and on.
    Reset,
    /// Play on alone, without the others.
    GoOnAlone,
    /// More or less of the chosen dial.
    StepDial(bool),
    /// Another dial: so many further.
    SelectDial(i8),
    /// A dial to a place.
    SetDial {
        /// Which.
        dial: usize,
        /// To where.
        value: u32,
    },
}

/// How others come in.
#[derive(Clone, Debug)]
pub struct Invitation {
    /// The ticket.
    pub ticket: String,
    /// What a friend types in front of it.
    pub command: &'static str,
    /// Whether it is shown at once: nobody else is there yet.
    pub opens_immediately: bool,
}

impl Invitation {
    fn overlay(&self) -> Overlay {
        let mut rows = wrap_rows("Ticket", &self.ticket);
        let whole = format!("{} '{}'", self.command, self.ticket);
        let short = format!("{} 'TICKET'", self.command);
        rows.push(("To join".into(), if whole.len() <= MAX_LINE_WIDTH { whole } else { short }));
        rows.push(("Play".into(), "it is also in the menu".into()));
        let chosen = Some(rows.len() - 1);
        Overlay { title: "Others can come in".into(), rows, selected: chosen, footer: "Enter or Esc play".into() }
    }
}

/// What lies over the picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OpenPanel {
    Closed,
    Help,
    Invitation,
    /// The menu, with this row chosen.
    Menu(usize),
}

/// The state of all that.
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
    /// Why the machine stands still.
    failure: Option<String>,
    help_overlay: Overlay,
    invitation: Option<Invitation>,
    /// The game waits for others, who are silent, and can go on without them.
    can_go_on_alone: bool,
}

impl Hud {
    /// A desk for a game that can do this, on these pads.
    pub fn new(config: &Config, can: HudCapabilities, pads: &[Pad]) -> Self {
        Self {
            capabilities: can,
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
            help_overlay: help::help_overlay(config, can, pads),
            invitation: None,
            can_go_on_alone: false,
        }
    }

    /// Others can come in like this.
    pub fn invite(&mut self, invitation: Invitation) {
        if invitation.opens_immediately {
            self.panel = OpenPanel::Invitation;
        }
        self.invitation = Some(invitation);
    }

    /// Offers to play on alone, or does not any more.
    pub fn set_can_go_on_alone(&mut self, offered: bool) {
        self.can_go_on_alone = offered;
    }

    /// Takes a command; says what the game itself has to do.
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
            UiCommand::Save | UiCommand::Load if !self.capabilities.slots => self.show_toast(now, "no slots here"),
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
        self.show_toast(now, if self.is_muted { "sound off" } else { "sound on" });
    }

    fn change_volume(&mut self, now: Instant, up: bool) {
        self.volume = if up { (self.volume + VOLUME_STEP).min(100) } else { self.volume.saturating_sub(VOLUME_STEP) };
        self.is_muted = false;
        self.show_toast(now, format!("volume {} %", self.volume));
    }

    /// Says something, for a moment.
    pub fn show_toast(&mut self, now: Instant, what: impl Into<String>) {
        self.toast = Some((what.into(), now + TOAST_DURATION));
    }

    /// Says something that has to be read.
    pub fn show_notice(&mut self, now: Instant, what: impl Into<String>) {
        self.toast = Some((what.into(), now + NOTICE_DURATION));
    }

    /// Shows why the machine stands still, for as long as it does.
    pub fn set_failure(&mut self, why: Option<&str>) {
        if self.failure.as_deref() != why {
            self.failure = why.map(str::to_owned);
        }
    }

    /// Whether something of the desk lies over the picture.
    pub fn has_open_panel(&self) -> bool {
        self.panel != OpenPanel::Closed
    }

    /// Whether it is time to end.
    pub fn is_quit_requested(&self) -> bool {
        self.is_quitting
    }

    /// Whether the game stands still: somebody wants it to, or reads something that lies over it.
    pub fn is_paused(&self) -> bool {
        self.capabilities.pause && (self.is_pause_requested || self.panel != OpenPanel::Closed)
    }

    /// How many times the usual speed.
    pub fn speed(&self) -> u32 {
        if self.is_fast_forward && !self.is_paused() { self.speed } else { 1 }
    }

    /// How loud, in percent, and whether not at all.
    pub fn sound_settings(&self) -> (u8, bool) {
        (self.volume, self.is_muted)
    }

    /// The slot that is chosen.
    pub fn slot(&self) -> u8 {
        self.slot
    }

    /// Draws what is of the desk into a scene.
    pub fn draw(&self, now: Instant, scene: &mut Scene) {
        scene.toast = self.toast.as_ref().filter(|(_, until)| now < *until).map(|(text, _)| text.clone());
        if let Some(invitation) = self.invitation.as_ref() {
            scene.clipboard_text = (self.panel == OpenPanel::Invitation).then(|| invitation.ticket.clone());
        }
        scene.overlay = match self.panel {
            OpenPanel::Closed if self.is_pause_requested => {
                Some(Overlay { title: "Pause".into(), ..Overlay::default() })
            }
            OpenPanel::Closed => self.failure.as_deref().map(failure_overlay),
            OpenPanel::Help => Some(self.help_overlay.clone()),
            OpenPanel::Invitation => self.invitation.as_ref().map(Invitation::overlay),
            OpenPanel::Menu(chosen) => Some(self.menu_overlay(chosen)),
        };
    }
}

fn failure_overlay(why: &str) -> Overlay {
    let foot = "switch it off and on, or go back to a moment that was kept".into();
    Overlay {
        title: "The machine stands still".into(),
        rows: vec![(why.into(), String::new())],
        selected: None,
        footer: foot,
    }
}

/// What is to be said at the end about a machine that stands still.
pub fn failure_note(why: Option<&str>) -> Option<String> {
    why.map(|why| format!("the machine stood still at the end: {why}"))
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
        graph: false,
        no_sound: false,
    };

    fn hud(can: HudCapabilities) -> (Hud, Instant) {
        (Hud::new(&Config::default(), can, &[Pad::with_buttons(&Button::ALL)]), Instant::now())
    }

    fn overlay(desk: &Hud, now: Instant) -> Overlay {
        let mut scene = Scene::default();
        desk.draw(now, &mut scene);
        scene.overlay.unwrap_or_default()
    }

    #[test]
    fn invitation_opens_immediately_and_stays_in_the_menu() {
        let mut desk = Hud::new(&Config::default(), HudCapabilities::default(), &[]);
        let ticket = "udp://192.0.2.1:7000#word".to_owned();
        desk.invite(Invitation { ticket: ticket.clone(), command: "coplay maze join", opens_immediately: true });
        let (now, mut scene) = (Instant::now(), Scene::default());
        let shown = |desk: &Hud, scene: &mut Scene| {
            desk.draw(now, scene);
            let rows = scene.overlay.as_ref().map_or(vec![], |overlay| overlay.rows.clone());
            rows.iter().any(|(_, right)| *right == format!("coplay maze join '{ticket}'"))
        };
        assert!(shown(&desk, &mut scene) && scene.clipboard_text.as_deref() == Some(ticket.as_str()));
        desk.handle_command(now, UiCommand::Move(MenuMove::Enter));
        assert!(!shown(&desk, &mut scene) && scene.clipboard_text.is_none());
        desk.handle_command(now, UiCommand::Menu);
        desk.handle_command(now, UiCommand::Move(MenuMove::Down));
        desk.handle_command(now, UiCommand::Move(MenuMove::Down));
        desk.handle_command(now, UiCommand::Move(MenuMove::Enter));
        assert!(shown(&desk, &mut scene));
        assert_eq!(overlay(&desk, now).footer, "Enter or Esc play");
        desk.handle_command(now, UiCommand::Menu);
        assert!(!desk.has_open_panel(), "one plays");
    }

    #[test]
    fn menu_selection_wraps_and_activates_items() {
        let (mut desk, now) = hud(ALL_CAPABILITIES);
        desk.handle_command(now, UiCommand::Menu);
        assert!(desk.is_paused());
        let rows = overlay(&desk, now).rows.len();
        assert_eq!(rows, 8);
        (0..rows).for_each(|_| _ = desk.handle_command(now, UiCommand::Move(MenuMove::Down)));
        assert_eq!(overlay(&desk, now).selected, Some(0));
        desk.handle_command(now, UiCommand::Slot(-1));
        desk.handle_command(now, UiCommand::Move(MenuMove::Down));
        assert_eq!(desk.handle_command(now, UiCommand::Move(MenuMove::Enter)), Some(HudRequest::Save(9)));
        assert!(!desk.is_paused());
        desk.handle_command(now, UiCommand::Menu);
        desk.handle_command(now, UiCommand::Move(MenuMove::Up));
        desk.handle_command(now, UiCommand::Move(MenuMove::Enter));
        assert!(desk.is_quit_requested());
    }

    #[test]
    fn unsupported_commands_are_hidden_and_ignored() {
        let (mut desk, now) = hud(HudCapabilities::default());
        for command in [
            UiCommand::Pause,
            UiCommand::FastForward(true),
            UiCommand::Reset,
            UiCommand::Save,
            UiCommand::SelectDial(1),
        ] {
            assert_eq!(desk.handle_command(now, command), None);
        }
        assert_eq!((desk.is_paused(), desk.speed()), (false, 1));
        desk.handle_command(now, UiCommand::Menu);
        assert!(!desk.is_paused(), "a shared game goes on behind its menu");
        assert_eq!(overlay(&desk, now).rows.len(), 4);
    }

    #[test]
    fn toast_disappears_after_its_duration() {
        let (mut desk, now) = hud(ALL_CAPABILITIES);
        desk.handle_command(now, UiCommand::Increase);
        let mut scene = Scene::default();
        desk.draw(now, &mut scene);
        assert_eq!(scene.toast.as_deref(), Some("volume 85 %"));
        desk.draw(now + TOAST_DURATION, &mut scene);
        assert_eq!(scene.toast, None);
    }

    #[test]
    fn machine_failure_overlay_lasts_while_the_machine_fails() {
        let (mut desk, now) = hud(ALL_CAPABILITIES);
        desk.set_failure(Some("it is down"));
        assert_eq!(overlay(&desk, now).rows, [("it is down".into(), String::new())]);
        desk.handle_command(now, UiCommand::Menu);
        assert!(overlay(&desk, now).selected.is_some(), "the menu has to be reached");
        desk.handle_command(now, UiCommand::Menu);
        desk.set_failure(None);
        assert_eq!(overlay(&desk, now), Overlay::default());
    }

    #[test]
    fn fast_forward_only_while_held_and_not_paused() {
        let (mut desk, now) = hud(ALL_CAPABILITIES);
        desk.handle_command(now, UiCommand::FastForward(true));
        assert_eq!(desk.speed(), 4);
        desk.handle_command(now, UiCommand::Pause);
        assert_eq!(desk.speed(), 1);
    }
}
