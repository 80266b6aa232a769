//! What every game on a screen has in common: standing still, going faster, the menu, the keys, how loud it is, and a word about what was
//! just done. A game tells what it can do; the desk tells the game what is wanted.

mod help;
mod menu;

use std::time::{Duration, Instant};

use coplay_machines::pad::Pad;

use crate::config::Config;
use crate::scene::{Command, Overlay, Scene, WIDE, in_lines};
use crate::slots::SLOTS;

/// How long a word stays.
const TOAST: Duration = Duration::from_secs(2);
/// How long a notice stays.
const NOTICE: Duration = Duration::from_secs(10);
/// How far one press changes the volume, in percent.
const LOUDER: u8 = 5;

/// What a game allows.
#[derive(Clone, Copy, Debug, Default)]
pub struct Can {
    /// To stand still. Others would have to wait where a game is shared.
    pub pause: bool,
    /// To go faster.
    pub fast: bool,
    /// To keep moments and go back to them.
    pub slots: bool,
    /// To switch the machine off and on.
    pub reset: bool,
    /// To turn dials, with the keys that change the volume otherwise.
    pub dials: bool,
    /// To do things for all, because others play, too; and to talk with them.
    pub share: bool,
    /// To show how the network does; who shares can, anyway.
    pub graph: bool,
    /// To be played in silence: there is nothing to be heard, louder or less loud.
    pub silent: bool,
}

/// What the game itself has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Keep this moment.
    Save(u8),
    /// Go back to that one.
    Load(u8),
    /// Switch off and on.
    Reset,
    /// Play on alone, without the others.
    GoOnAlone,
    /// More or less of the chosen dial.
    Turn(bool),
    /// Another dial: so many further.
    Choose(i8),
    /// A dial to a place.
    TurnTo {
        /// Which.
        dial: usize,
        /// To where.
        to: u32,
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
    pub at_once: bool,
}

impl Invitation {
    fn overlay(&self) -> Overlay {
        let mut rows = in_lines("Ticket", &self.ticket);
        let whole = format!("{} '{}'", self.command, self.ticket);
        let short = format!("{} 'TICKET'", self.command);
        rows.push(("To join".into(), if whole.len() <= WIDE { whole } else { short }));
        rows.push(("Play".into(), "it is also in the menu".into()));
        let chosen = Some(rows.len() - 1);
        Overlay { title: "Others can come in".into(), rows, chosen, foot: "Enter or Esc play".into() }
    }
}

/// What lies over the picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Over {
    Nothing,
    Help,
    Invitation,
    /// The menu, with this row chosen.
    Menu(usize),
}

/// The state of all that.
#[derive(Debug)]
pub struct Desk {
    can: Can,
    over: Over,
    paused: bool,
    fast: bool,
    speed: u32,
    slot: u8,
    volume: u8,
    muted: bool,
    quit: bool,
    toast: Option<(String, Instant)>,
    /// Why the machine stands still.
    failure: Option<String>,
    help: Overlay,
    invitation: Option<Invitation>,
    /// The game waits for others, who are silent, and can go on without them.
    can_go_on_alone: bool,
}

impl Desk {
    /// A desk for a game that can do this, on these pads.
    pub fn new(config: &Config, can: Can, pads: &[Pad]) -> Self {
        Self {
            can,
            over: Over::Nothing,
            paused: false,
            fast: false,
            speed: config.fast,
            slot: 0,
            volume: config.volume,
            muted: config.mute,
            quit: false,
            toast: None,
            failure: None,
            help: help::help(config, can, pads),
            invitation: None,
            can_go_on_alone: false,
        }
    }

    /// Others can come in like this.
    pub fn invite(&mut self, invitation: Invitation) {
        if invitation.at_once {
            self.over = Over::Invitation;
        }
        self.invitation = Some(invitation);
    }

    /// Offers to play on alone, or does not any more.
    pub fn offer_to_go_on_alone(&mut self, offered: bool) {
        self.can_go_on_alone = offered;
    }

    /// Takes a command; says what the game itself has to do.
    pub fn handle(&mut self, now: Instant, command: Command) -> Option<Wish> {
        match command {
            Command::Quit | Command::Exit => self.quit = true,
            Command::Menu => self.over = if self.over == Over::Nothing { Over::Menu(0) } else { Over::Nothing },
            Command::Help => self.over = if self.over == Over::Help { Over::Nothing } else { Over::Help },
            Command::Pause if self.can.pause => self.paused = !self.paused,
            Command::Fast(on) => self.fast = on && self.can.fast,
            Command::Save | Command::Load if !self.can.slots => self.say(now, "no slots here"),
            Command::Save => return Some(Wish::Save(self.slot)),
            Command::Load => return Some(Wish::Load(self.slot)),
            Command::Slot(by) if self.can.slots => self.choose_slot(now, by),
            Command::Reset if self.can.reset => return Some(Wish::Reset),
            Command::GoOnAlone if self.can_go_on_alone => return Some(Wish::GoOnAlone),
            Command::Mute | Command::More | Command::Less if self.can.silent => {}
            Command::Mute => self.mute(now),
            Command::More if self.can.dials => return Some(Wish::Turn(true)),
            Command::Less if self.can.dials => return Some(Wish::Turn(false)),
            Command::More => self.change_volume(now, true),
            Command::Less => self.change_volume(now, false),
            Command::Choose(by) if self.can.dials => return Some(Wish::Choose(by)),
            Command::Turn { dial, to } if self.can.dials => return Some(Wish::TurnTo { dial, to }),
            Command::Move(step) => return self.on_move(now, step),
            _ => {}
        }
        None
    }

    fn choose_slot(&mut self, now: Instant, by: i8) {
        self.slot = (self.slot as i8 + by).rem_euclid(SLOTS as i8) as u8;
        self.say(now, format!("slot {}", self.slot));
    }

    fn mute(&mut self, now: Instant) {
        self.muted = !self.muted;
        self.say(now, if self.muted { "sound off" } else { "sound on" });
    }

    fn change_volume(&mut self, now: Instant, up: bool) {
        self.volume = if up { (self.volume + LOUDER).min(100) } else { self.volume.saturating_sub(LOUDER) };
        self.muted = false;
        self.say(now, format!("volume {} %", self.volume));
    }

    /// Says something, for a moment.
    pub fn say(&mut self, now: Instant, what: impl Into<String>) {
        self.toast = Some((what.into(), now + TOAST));
    }

    /// Says something that has to be read.
    pub fn notify(&mut self, now: Instant, what: impl Into<String>) {
        self.toast = Some((what.into(), now + NOTICE));
    }

    /// Shows why the machine stands still, for as long as it does.
    pub fn set_failure(&mut self, why: Option<&str>) {
        if self.failure.as_deref() != why {
            self.failure = why.map(str::to_owned);
        }
    }

    /// Whether something of the desk lies over the picture.
    pub fn is_open(&self) -> bool {
        self.over != Over::Nothing
    }

    /// Whether it is time to end.
    pub fn is_over(&self) -> bool {
        self.quit
    }

    /// Whether the game stands still: somebody wants it to, or reads something that lies over it.
    pub fn is_still(&self) -> bool {
        self.can.pause && (self.paused || self.over != Over::Nothing)
    }

    /// How many times the usual speed.
    pub fn speed(&self) -> u32 {
        if self.fast && !self.is_still() { self.speed } else { 1 }
    }

    /// How loud, in percent, and whether not at all.
    pub fn sound(&self) -> (u8, bool) {
        (self.volume, self.muted)
    }

    /// The slot that is chosen.
    pub fn slot(&self) -> u8 {
        self.slot
    }

    /// Draws what is of the desk into a scene.
    pub fn draw(&self, now: Instant, scene: &mut Scene) {
        scene.toast = self.toast.as_ref().filter(|(_, until)| now < *until).map(|(text, _)| text.clone());
        if let Some(invitation) = self.invitation.as_ref() {
            scene.copy = (self.over == Over::Invitation).then(|| invitation.ticket.clone());
        }
        scene.overlay = match self.over {
            Over::Nothing if self.paused => Some(Overlay { title: "Pause".into(), ..Overlay::default() }),
            Over::Nothing => self.failure.as_deref().map(stands_still),
            Over::Help => Some(self.help.clone()),
            Over::Invitation => self.invitation.as_ref().map(Invitation::overlay),
            Over::Menu(chosen) => Some(self.menu(chosen)),
        };
    }
}

fn stands_still(why: &str) -> Overlay {
    let foot = "switch it off and on, or go back to a moment that was kept".into();
    Overlay { title: "The machine stands still".into(), rows: vec![(why.into(), String::new())], chosen: None, foot }
}

/// What is to be said at the end about a machine that stands still.
pub fn note_of_failure(why: Option<&str>) -> Option<String> {
    why.map(|why| format!("the machine stood still at the end: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scene::Move;
    use coplay_machines::pad::Button;

    const ALL: Can = Can {
        pause: true,
        fast: true,
        slots: true,
        reset: true,
        dials: false,
        share: false,
        graph: false,
        silent: false,
    };

    fn desk(can: Can) -> (Desk, Instant) {
        (Desk::new(&Config::default(), can, &[Pad::with_buttons(&Button::ALL)]), Instant::now())
    }

    fn overlay(desk: &Desk, now: Instant) -> Overlay {
        let mut scene = Scene::default();
        desk.draw(now, &mut scene);
        scene.overlay.unwrap_or_default()
    }

    #[test]
    fn who_opened_a_maze_sees_the_ticket_and_finds_it_again() {
        let mut desk = Desk::new(&Config::default(), Can::default(), &[]);
        let ticket = "udp://192.0.2.1:7000#word".to_owned();
        desk.invite(Invitation { ticket: ticket.clone(), command: "coplay maze join", at_once: true });
        let (now, mut scene) = (Instant::now(), Scene::default());
        let shown = |desk: &Desk, scene: &mut Scene| {
            desk.draw(now, scene);
            let rows = scene.overlay.as_ref().map_or(vec![], |overlay| overlay.rows.clone());
            rows.iter().any(|(_, right)| *right == format!("coplay maze join '{ticket}'"))
        };
        assert!(shown(&desk, &mut scene) && scene.copy.as_deref() == Some(ticket.as_str()));
        desk.handle(now, Command::Move(Move::Enter));
        assert!(!shown(&desk, &mut scene) && scene.copy.is_none());
        desk.handle(now, Command::Menu);
        desk.handle(now, Command::Move(Move::Down));
        desk.handle(now, Command::Move(Move::Down));
        desk.handle(now, Command::Move(Move::Enter));
        assert!(shown(&desk, &mut scene));
        assert_eq!(overlay(&desk, now).foot, "Enter or Esc play");
        desk.handle(now, Command::Menu);
        assert!(!desk.is_open(), "one plays");
    }

    #[test]
    fn the_menu_is_walked_round_and_does_what_it_says() {
        let (mut desk, now) = desk(ALL);
        desk.handle(now, Command::Menu);
        assert!(desk.is_still());
        let rows = overlay(&desk, now).rows.len();
        assert_eq!(rows, 8);
        (0..rows).for_each(|_| _ = desk.handle(now, Command::Move(Move::Down)));
        assert_eq!(overlay(&desk, now).chosen, Some(0));
        desk.handle(now, Command::Slot(-1));
        desk.handle(now, Command::Move(Move::Down));
        assert_eq!(desk.handle(now, Command::Move(Move::Enter)), Some(Wish::Save(9)));
        assert!(!desk.is_still());
        desk.handle(now, Command::Menu);
        desk.handle(now, Command::Move(Move::Up));
        desk.handle(now, Command::Move(Move::Enter));
        assert!(desk.is_over());
    }

    #[test]
    fn what_a_game_cannot_do_is_neither_offered_nor_done() {
        let (mut desk, now) = desk(Can::default());
        for command in [Command::Pause, Command::Fast(true), Command::Reset, Command::Save, Command::Choose(1)] {
            assert_eq!(desk.handle(now, command), None);
        }
        assert_eq!((desk.is_still(), desk.speed()), (false, 1));
        desk.handle(now, Command::Menu);
        assert!(!desk.is_still(), "a shared game goes on behind its menu");
        assert_eq!(overlay(&desk, now).rows.len(), 4);
    }

    #[test]
    fn words_go_after_a_while() {
        let (mut desk, now) = desk(ALL);
        desk.handle(now, Command::More);
        let mut scene = Scene::default();
        desk.draw(now, &mut scene);
        assert_eq!(scene.toast.as_deref(), Some("volume 85 %"));
        desk.draw(now + TOAST, &mut scene);
        assert_eq!(scene.toast, None);
    }

    #[test]
    fn a_machine_that_stands_still_is_told_of_for_as_long_as_it_does() {
        let (mut desk, now) = desk(ALL);
        desk.set_failure(Some("it is down"));
        assert_eq!(overlay(&desk, now).rows, [("it is down".into(), String::new())]);
        desk.handle(now, Command::Menu);
        assert!(overlay(&desk, now).chosen.is_some(), "the menu has to be reached");
        desk.handle(now, Command::Menu);
        desk.set_failure(None);
        assert_eq!(overlay(&desk, now), Overlay::default());
    }

    #[test]
    fn faster_only_while_held_and_moving() {
        let (mut desk, now) = desk(ALL);
        desk.handle(now, Command::Fast(true));
        assert_eq!(desk.speed(), 4);
        desk.handle(now, Command::Pause);
        assert_eq!(desk.speed(), 1);
    }
}
