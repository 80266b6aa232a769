//! Somebody in front of a window or a terminal. Everything here is on the game's thread and never waits: scenes go to the front end by
//! swapping buffers.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use coplay::frame::Frame;
use coplay::input::InputWord;
use coplay::session::Event;
use coplay_machines::Machine;
use coplay_machines::control::MachineControl;
use coplay_net::clock;
use coplay_net::runner::{Frontend, RunnerEvent, UserCommand};

use super::Person;
use super::chat::Chat;
use super::company::{Company, Role};
use super::graph::History;
use super::plain::bots;
use super::quit::QuitQuestion;
use crate::bot::Bot;
use crate::config::{Action, Config};
use crate::desk::{Can, Desk, Invitation, Wish};
use crate::meet::TicketHere;
use crate::outfit::Outfit;
use crate::scene::{Command as Asked, Move, Overlay, Screen as Picture};
use crate::stage::Stage;

/// While no frames come, scenes are this far apart.
const DRAW_EVERY: Duration = Duration::from_millis(40);

/// The person's end of a stage.
pub(super) struct Screen<'a> {
    stage: Stage,
    config: &'a Config,
    desk: Desk,
    outfit: Option<Outfit>,
    pads: usize,
    seed: Option<u64>,
    bots: Vec<Bot>,
    company: Company,
    patience: Option<f64>,
    /// The key that pauses, and goes on; and the one that opens the menu.
    go_on: String,
    menu: String,
    chat: Chat,
    history: History,
    graph: bool,
    picture: Picture,
    /// Frames are seen.
    playing: bool,
    next_draw: Instant,
    wants: VecDeque<UserCommand>,
    quit: QuitQuestion,
    leaving: bool,
}

/// What a person does not decide in front of the screen.
#[derive(Clone, Copy, Debug)]
pub(super) struct Habits {
    /// How many play here.
    pub(super) pads: usize,
    /// A bot plays.
    pub(super) seed: Option<u64>,
    /// After so many seconds of silence the game goes on without somebody.
    pub(super) patience: Option<f64>,
}

impl<'a> Screen<'a> {
    pub(super) fn new(stage: Stage, config: &'a Config, company: Company, habits: Habits) -> Self {
        let Habits { pads, seed, patience } = habits;
        let key = |action| config.keys_of(action).first().map(|key| key.label()).unwrap_or_default();
        Self {
            stage,
            config,
            desk: Desk::new(config, can(company.role()), &[]),
            outfit: None,
            pads,
            seed,
            bots: vec![],
            company: company.with_alone_key(key(Action::Alone)),
            patience,
            go_on: key(Action::Pause),
            menu: key(Action::Menu),
            chat: Chat::default(),
            history: History::default(),
            graph: false,
            picture: Picture::default(),
            playing: false,
            next_draw: Instant::now(),
            wants: VecDeque::new(),
            quit: QuitQuestion::default(),
            leaving: false,
        }
    }

    fn take(&mut self, asked: Asked) {
        let now = Instant::now();
        if self.chat.is_open() && self.on_typing(asked) {
            return;
        }
        match asked {
            Asked::Exit => self.leave(),
            Asked::Quit => {
                if self.quit.request(now, &self.company.others()) {
                    self.leave();
                }
            }
            Asked::Menu if self.quit.is_open(now) => self.quit.withdraw(),
            Asked::Chat => self.chat.open(),
            Asked::Graph => self.graph = !self.graph,
            Asked::Pause => self.press(MachineControl::Pause),
            Asked::Save => self.press(MachineControl::Save),
            Asked::Load => self.press(MachineControl::Load),
            Asked::Reset => self.press(MachineControl::Reset),
            Asked::Move(Move::Enter) if !self.desk.is_open() => {
                if self.company.role() == Role::Host && !self.company.is_started() {
                    self.wants.push_back(UserCommand::Start);
                }
            }
            asked => match self.desk.handle(now, asked) {
                Some(Wish::Reset) => self.press(MachineControl::Reset),
                Some(Wish::GoOnAlone) => self.wants.push_back(UserCommand::ContinueAlone),
                _ => {}
            },
        }
    }

    /// Whether a command was about what is typed.
    fn on_typing(&mut self, asked: Asked) -> bool {
        match asked {
            Asked::Type(sign) => self.chat.push(sign),
            Asked::Erase => self.chat.erase(),
            Asked::Menu => self.chat.close(),
            Asked::Move(Move::Enter) => self.wants.extend(self.chat.finish().map(UserCommand::Chat)),
            _ => return false,
        }
        true
    }

    /// Presses a button of the machine, for all; and says so, because the others would wonder who did. A pause is seen.
    fn press(&mut self, control: MachineControl) {
        if self.company.role() == Role::Watcher {
            return self.desk.say(Instant::now(), "who watches cannot do that");
        }
        if self.playing {
            let words = match control {
                MachineControl::Pause => None,
                MachineControl::Reset => Some("(switches the machine off and on)"),
                MachineControl::Save => Some("(keeps this moment)"),
                MachineControl::Load => Some("(goes back to the moment that was kept)"),
            };
            self.wants.push_back(UserCommand::Control(control));
            self.wants.extend(words.map(|words| UserCommand::Chat(words.into())));
        }
    }

    /// The ticket is another one than before: that is worth a word where it is not seen.
    fn note_way_in(&mut self, now: Instant) {
        if self.company.look_for_way_in() && self.overlay().is_none() {
            self.desk.say(now, format!("others can join by another ticket now; {} shows it", self.go_on));
        }
        let ticket = self.company.ticket().to_owned();
        self.desk.invite(Invitation { ticket, command: "coplay join", at_once: false });
    }

    /// The last other player is gone. The ticket does not fit here; the menu has it.
    fn note_alone(&mut self, now: Instant) {
        self.note_way_in(now);
        let gone = self.company.how_gone();
        self.desk.notify(now, format!("{gone}; you play on alone. Ticket to come back: {}, Ask others in", self.menu));
    }

    /// Once: a front end that is gone asks to end again and again.
    fn leave(&mut self) {
        if !std::mem::replace(&mut self.leaving, true) {
            self.wants.push_back(UserCommand::Quit);
        }
    }

    /// What lies over the picture if nothing of the desk's does.
    fn overlay(&self) -> Option<Overlay> {
        self.company.overlay(clock::now(), self.playing, self.patience, &self.go_on)
    }

    fn draw(&mut self) {
        let now = Instant::now();
        self.next_draw = now + DRAW_EVERY;
        let (desk, company, chat) = (&self.desk, &self.company, &self.chat);
        let graph = self.graph.then(|| self.history.graph(|site| company.name(site)));
        let (picture, playing, overlay) = (&self.picture, self.playing, self.overlay());
        let others = company.others();
        let question = self.quit.overlay(now, &others);
        self.stage.show(|scene| {
            if playing {
                scene.screens(1)[0].clone_from(picture);
            } else {
                scene.screens.clear();
            }
            scene.status = company.status_line();
            scene.graph = graph;
            scene.copy = None;
            desk.draw(now, scene);
            chat.draw(now, scene);
            if scene.overlay.is_none() && overlay.is_some() {
                scene.overlay = overlay;
                scene.copy = Some(company.ticket().to_owned());
            }
            scene.asks_to_quit = !others.is_empty() && question.is_none();
            if question.is_some() {
                scene.overlay = question;
            }
        });
    }
}

fn can(role: Role) -> Can {
    Can { reset: role != Role::Watcher, share: true, ..Can::default() }
}

impl Person for Screen<'_> {
    fn meet(&mut self, machine: &dyn Machine) {
        let pads = &machine.pads()[..self.pads.min(machine.pads().len())];
        self.desk = Desk::new(self.config, can(self.company.role()), pads);
        self.outfit = Some(Outfit::open(self.config, pads, &self.stage, &mut self.desk));
        self.bots = self.seed.map(|seed| bots(seed, machine)).unwrap_or_default();
    }

    fn open_door(&mut self, own: TicketHere) {
        self.company.open_door(own);
    }

    fn notes(&mut self) -> Vec<String> {
        self.outfit.as_mut().map(|outfit| std::mem::take(&mut outfit.notes)).unwrap_or_default()
    }
}

impl Frontend for Screen<'_> {
    fn sample_input(&mut self, pads: &mut [InputWord]) {
        if self.bots.is_empty() {
            pads.iter_mut().zip(self.stage.hands().look()).for_each(|(word, pressed)| *word = pressed);
        } else {
            pads.iter_mut().zip(&mut self.bots).for_each(|(word, bot)| *word = bot.press());
        }
    }

    fn show_frame(&mut self, _: Frame, machine: &dyn Machine) {
        self.playing = true;
        self.desk.set_failure(machine.failure());
        self.picture.show(machine.picture());
        if let Some(outfit) = &mut self.outfit {
            outfit.play(machine, self.desk.sound(), false);
        }
        self.draw();
    }

    fn on_event(&mut self, news: RunnerEvent<'_>) {
        let now = Instant::now();
        match news {
            RunnerEvent::LobbyChanged(party) => {
                self.company.on_party(party);
                self.note_way_in(now);
            }
            RunnerEvent::Session(event) => {
                // Where the dials stand is in the status line, and they turn often.
                let quiet = matches!(event, Event::DelayChanged { .. });
                if let Some(words) = self.company.on_event(event).filter(|_| !quiet) {
                    self.desk.say(now, words);
                }
            }
            RunnerEvent::Chat { name, text: line } => self.chat.hear(now, name, line),
            RunnerEvent::Note(words) => self.desk.say(now, words),
            RunnerEvent::PlayingAlone => self.note_alone(now),
            RunnerEvent::Status(status) => {
                // Who paused is in the overlay.
                if let Some(words) = self.company.on_status(status).filter(|_| self.overlay().is_none()) {
                    self.desk.say(now, words);
                }
                self.note_way_in(now);
                self.desk.offer_to_go_on_alone(status.can_continue_alone);
                self.history.take(status);
            }
        }
    }

    fn poll_command(&mut self) -> Option<UserCommand> {
        while !self.leaving {
            let Some(asked) = self.stage.poll_command() else { break };
            self.take(asked);
            if self.desk.is_over() {
                self.leave();
            }
        }
        if Instant::now() >= self.next_draw {
            self.draw();
        }
        self.wants.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stage::{View, stage};
    use coplay_net::lobby::{LobbyInfo, LobbyMember};

    fn screen(config: &Config, role: Role) -> (Screen<'_>, View) {
        let (stage, view) = stage();
        let company = Company::new(role, "udp://a:1#x".into());
        let habits = Habits { pads: 1, seed: None, patience: None };
        (Screen::new(stage, config, company, habits), view)
    }

    fn polled(screen: &mut Screen<'_>) -> Vec<UserCommand> {
        std::iter::from_fn(|| screen.poll_command()).collect()
    }

    #[test]
    fn who_hosts_starts_with_enter_and_says_what_is_typed() {
        let config = Config::default();
        let (mut screen, view) = screen(&config, Role::Host);
        view.send(Asked::Move(Move::Enter));
        view.send(Asked::Chat);
        "hi".chars().for_each(|sign| view.send(Asked::Type(sign)));
        view.send(Asked::Move(Move::Enter));
        assert_eq!(polled(&mut screen), [UserCommand::Start, UserCommand::Chat("hi".into())]);
        view.send(Asked::Chat);
        view.send(Asked::Menu);
        view.send(Asked::Type('x'));
        assert_eq!(polled(&mut screen), [], "what was not said");
    }

    #[test]
    fn buttons_of_the_machine_are_for_those_who_play() {
        let config = Config::default();
        let said = UserCommand::Chat("(keeps this moment)".into());
        let both = vec![UserCommand::Control(MachineControl::Save), said];
        for (role, pressed) in [(Role::Guest, both), (Role::Watcher, vec![])] {
            let (mut screen, view) = screen(&config, role);
            view.send(Asked::Save);
            assert_eq!(polled(&mut screen), [], "nothing to keep yet");
            screen.show_frame(Frame::new(0), &crate::toy::ToyMachine::new(1));
            view.send(Asked::Save);
            assert_eq!(polled(&mut screen), pressed);
        }
    }

    #[test]
    fn who_watches_has_a_say_and_sees_who_paused() {
        let config = Config::default();
        let (mut screen, mut view) = screen(&config, Role::Watcher);
        view.send(Asked::Chat);
        "hi".chars().for_each(|sign| view.send(Asked::Type(sign)));
        view.send(Asked::Move(Move::Enter));
        assert_eq!(polled(&mut screen), [UserCommand::Chat("hi".into())]);
        let status = coplay_net::runner::Status { paused_by: Some(0), ..Default::default() };
        screen.on_event(RunnerEvent::Status(&status));
        screen.show_frame(Frame::new(0), &crate::toy::ToyMachine::new(1));
        assert!(view.look());
        assert_eq!(view.scene().overlay.as_ref().map(|overlay| overlay.title.as_str()), Some("Paused"));
    }

    /// Ann and Bob play, or are about to.
    fn party(started: bool) -> LobbyInfo {
        let member = |site: u8, name: &str| LobbyMember {
            site,
            key: coplay_net::PeerKey([site; 32]),
            name: name.into(),
            pads: 1,
            addrs: vec![],
            is_ready: true,
            is_present: true,
        };
        let members = vec![member(0, "Ann"), member(1, "Bob")];
        LobbyInfo {
            serial: 1,
            session: 1,
            settings: vec![],
            is_started: started,
            members,
            allows_spectators: true,
            spectator_count: 0,
            your_site: Some(1),
        }
    }

    #[test]
    fn leaving_others_alone_takes_two_presses() {
        let config = Config::default();
        let (mut screen, mut view) = screen(&config, Role::Guest);
        screen.on_event(RunnerEvent::LobbyChanged(&party(true)));
        screen.show_frame(Frame::new(0), &crate::toy::ToyMachine::new(1));
        assert!(view.look() && view.scene().asks_to_quit);
        view.send(Asked::Quit);
        assert_eq!(polled(&mut screen), [], "one press by mistake ends no game");
        screen.show_frame(Frame::new(1), &crate::toy::ToyMachine::new(1));
        assert!(view.look() && !view.scene().asks_to_quit);
        let question = view.scene().overlay.clone().expect("a question");
        assert_eq!(question.rows, [("Ann".into(), "plays with you".into())]);
        view.send(Asked::Menu);
        view.send(Asked::Quit);
        assert_eq!(polled(&mut screen), [], "Esc answered the question");
        view.send(Asked::Quit);
        assert_eq!(polled(&mut screen), [UserCommand::Quit]);
    }

    #[test]
    fn whoever_leaves_nobody_alone_leaves_at_once() {
        let config = Config::default();
        let mut alone = party(true);
        alone.members[0].is_present = false;
        for (role, party) in [(Role::Guest, party(false)), (Role::Guest, alone), (Role::Watcher, party(true))] {
            let (mut screen, view) = screen(&config, role);
            screen.on_event(RunnerEvent::LobbyChanged(&party));
            view.send(Asked::Quit);
            assert_eq!(polled(&mut screen), [UserCommand::Quit], "{role:?} {party:?}");
        }
    }

    #[test]
    fn playing_on_alone_is_offered_by_a_key_and_in_the_menu() {
        let config = Config::default();
        let (mut screen, mut view) = screen(&config, Role::Guest);
        view.send(Asked::GoOnAlone);
        assert_eq!(polled(&mut screen), [], "nothing is offered");
        let offer = coplay_net::runner::Status { can_continue_alone: true, ..Default::default() };
        screen.on_event(RunnerEvent::Status(&offer));
        view.send(Asked::GoOnAlone);
        [Asked::Menu, Asked::Move(Move::Down), Asked::Move(Move::Enter)].into_iter().for_each(|asked| view.send(asked));
        assert_eq!(polled(&mut screen), [UserCommand::ContinueAlone, UserCommand::ContinueAlone]);
        screen.on_event(RunnerEvent::PlayingAlone);
        screen.show_frame(Frame::new(0), &crate::toy::ToyMachine::new(1));
        assert!(view.look());
        assert!(view.scene().toast.as_ref().is_some_and(|toast| toast.contains("you play on alone")));
        // The ticket is in the menu from then on, and can be copied there.
        screen.on_event(RunnerEvent::Status(&Default::default()));
        let down = Asked::Move(Move::Down);
        [Asked::Menu, down, down, Asked::Move(Move::Enter)].into_iter().for_each(|asked| view.send(asked));
        polled(&mut screen);
        screen.show_frame(Frame::new(1), &crate::toy::ToyMachine::new(1));
        assert!(view.look() && view.scene().copy.as_deref() == Some("udp://a:1#x"));
    }

    #[test]
    fn a_window_that_is_gone_leaves_once() {
        let config = Config::default();
        let (mut screen, view) = screen(&config, Role::Guest);
        screen.on_event(RunnerEvent::LobbyChanged(&party(true)));
        drop(view);
        assert_eq!(polled(&mut screen), [UserCommand::Quit]);
        assert_eq!(polled(&mut screen), []);
    }

    #[test]
    fn the_lobby_and_then_the_game_are_seen() {
        let config = Config::default();
        let (mut screen, mut view) = screen(&config, Role::Guest);
        screen.poll_command();
        assert!(view.look());
        assert_eq!(view.scene().overlay.as_ref().map(|overlay| overlay.title.as_str()), Some("Knocking"));
        assert_eq!(view.scene().copy.as_deref(), Some("udp://a:1#x"));
        screen.show_frame(Frame::new(0), &crate::toy::ToyMachine::new(1));
        assert!(view.look() && view.scene().overlay.is_none() && view.scene().screens.len() == 1);
        view.send(Asked::Graph);
        screen.poll_command();
        screen.show_frame(Frame::new(1), &crate::toy::ToyMachine::new(1));
        assert!(view.look() && view.scene().graph.is_some());
    }
}
