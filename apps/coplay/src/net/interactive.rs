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

use super::GameFrontend;
use super::chat::Chat;
use super::headless::bots_for_pads;
use super::lobby_view::{LobbyView, Role};
use super::quit::QuitConfirmation;
use super::session_history::SessionHistory;
use crate::bot::Bot;
use crate::config::{Action, Config};
use crate::connect::TicketSource;
use crate::devices::Devices;
use crate::hud::{Hud, HudCapabilities, HudRequest, Invitation};
use crate::scene::{MenuMove, Overlay, Screen as Picture, UiCommand as Asked};
use crate::ui_link::GamePort;

/// While no frames come, scenes are this far apart.
const DRAW_INTERVAL: Duration = Duration::from_millis(40);

/// The person's end of a stage.
pub(super) struct InteractiveFrontend<'a> {
    ui: GamePort,
    config: &'a Config,
    hud: Hud,
    devices: Option<Devices>,
    pads: usize,
    bot_seed: Option<u64>,
    bots: Vec<Bot>,
    lobby_view: LobbyView,
    drop_timeout_seconds: Option<f64>,
    /// The key that pauses, and goes on; and the one that opens the menu.
    pause_key: String,
    menu_key: String,
    chat: Chat,
    history: SessionHistory,
    is_graph_shown: bool,
    picture: Picture,
    /// Frames are seen.
    is_playing: bool,
    next_draw: Instant,
    pending_commands: VecDeque<UserCommand>,
    quit_confirmation: QuitConfirmation,
    is_leaving: bool,
}

/// What a person does not decide in front of the screen.
#[derive(Clone, Copy, Debug)]
pub(super) struct UiOptions {
    /// How many play here.
    pub(super) pads: usize,
    /// A bot plays.
    pub(super) bot_seed: Option<u64>,
    /// After so many seconds of silence the game goes on without somebody.
    pub(super) drop_timeout_seconds: Option<f64>,
}

impl<'a> InteractiveFrontend<'a> {
    pub(super) fn new(stage: GamePort, config: &'a Config, company: LobbyView, habits: UiOptions) -> Self {
        let UiOptions { pads, bot_seed: seed, drop_timeout_seconds: patience } = habits;
        let key = |action| config.keys_of(action).first().map(|key| key.label()).unwrap_or_default();
        Self {
            ui: stage,
            config,
            hud: Hud::new(config, capabilities(company.role()), &[]),
            devices: None,
            pads,
            bot_seed: seed,
            bots: vec![],
            lobby_view: company.with_go_on_alone_key(key(Action::GoOnAlone)),
            drop_timeout_seconds: patience,
            pause_key: key(Action::Pause),
            menu_key: key(Action::Menu),
            chat: Chat::default(),
            history: SessionHistory::default(),
            is_graph_shown: false,
            picture: Picture::default(),
            is_playing: false,
            next_draw: Instant::now(),
            pending_commands: VecDeque::new(),
            quit_confirmation: QuitConfirmation::default(),
            is_leaving: false,
        }
    }

    fn on_command(&mut self, asked: Asked) {
        let now = Instant::now();
        if self.chat.is_open() && self.on_typing(asked) {
            return;
        }
        match asked {
            Asked::Exit => self.leave(),
            Asked::Quit => {
                if self.quit_confirmation.request(now, &self.lobby_view.other_players()) {
                    self.leave();
                }
            }
            Asked::Menu if self.quit_confirmation.is_open(now) => self.quit_confirmation.cancel(),
            Asked::Chat => self.chat.open(),
            Asked::Graph => self.is_graph_shown = !self.is_graph_shown,
            Asked::Pause => self.press_control(MachineControl::Pause),
            Asked::Save => self.press_control(MachineControl::Save),
            Asked::Load => self.press_control(MachineControl::Load),
            Asked::Reset => self.press_control(MachineControl::Reset),
            Asked::Move(MenuMove::Enter) if !self.hud.has_open_panel() => {
                if self.lobby_view.role() == Role::Host && !self.lobby_view.is_started() {
                    self.pending_commands.push_back(UserCommand::Start);
                }
            }
            asked => match self.hud.handle_command(now, asked) {
                Some(HudRequest::Reset) => self.press_control(MachineControl::Reset),
                Some(HudRequest::GoOnAlone) => self.pending_commands.push_back(UserCommand::ContinueAlone),
                _ => {}
            },
        }
    }

    /// Whether a command was about what is typed.
    fn on_typing(&mut self, asked: Asked) -> bool {
        match asked {
            Asked::TypeChar(sign) => self.chat.type_char(sign),
            Asked::EraseChar => self.chat.erase_char(),
            Asked::Menu => self.chat.close(),
            Asked::Move(MenuMove::Enter) => {
                self.pending_commands.extend(self.chat.take_message().map(UserCommand::Chat))
            }
            _ => return false,
        }
        true
    }

    /// Presses a button of the machine, for all; and says so, because the others would wonder who did. A pause is seen.
    fn press_control(&mut self, control: MachineControl) {
        if self.lobby_view.role() == Role::Spectator {
            return self.hud.show_toast(Instant::now(), "who watches cannot do that");
        }
        if self.is_playing {
            let words = match control {
                MachineControl::Pause => None,
                MachineControl::Reset => Some("(switches the machine off and on)"),
                MachineControl::Save => Some("(keeps this moment)"),
                MachineControl::Load => Some("(goes back to the moment that was kept)"),
            };
            self.pending_commands.push_back(UserCommand::Control(control));
            self.pending_commands.extend(words.map(|words| UserCommand::Chat(words.into())));
        }
    }

    /// The ticket is another one than before: that is worth a word where it is not seen.
    fn update_ticket(&mut self, now: Instant) {
        if self.lobby_view.update_ticket() && self.overlay().is_none() {
            self.hud.show_toast(now, format!("others can join by another ticket now; {} shows it", self.pause_key));
        }
        let ticket = self.lobby_view.ticket().to_owned();
        self.hud.invite(Invitation { ticket, command: "coplay join", opens_immediately: false });
    }

    /// The last other player is gone. The ticket does not fit here; the menu has it.
    fn on_alone(&mut self, now: Instant) {
        self.update_ticket(now);
        let gone = self.lobby_view.departure_text();
        self.hud.show_notice(
            now,
            format!("{gone}; you play on alone. Ticket to come back: {}, Ask others in", self.menu_key),
        );
    }

    /// Once: a front end that is gone asks to end again and again.
    fn leave(&mut self) {
        if !std::mem::replace(&mut self.is_leaving, true) {
            self.pending_commands.push_back(UserCommand::Quit);
        }
    }

    /// What lies over the picture if nothing of the desk's does.
    fn overlay(&self) -> Option<Overlay> {
        self.lobby_view.overlay(clock::now(), self.is_playing, self.drop_timeout_seconds, &self.pause_key)
    }

    fn draw(&mut self) {
        let now = Instant::now();
        self.next_draw = now + DRAW_INTERVAL;
        let (desk, company, chat) = (&self.hud, &self.lobby_view, &self.chat);
        let graph = self.is_graph_shown.then(|| self.history.graph(|site| company.player_name(site)));
        let (picture, playing, overlay) = (&self.picture, self.is_playing, self.overlay());
        let others = company.other_players();
        let question = self.quit_confirmation.overlay(now, &others);
        self.ui.show(|scene| {
            if playing {
                scene.screens(1)[0].clone_from(picture);
            } else {
                scene.screens.clear();
            }
            scene.status = company.status_line();
            scene.graph = graph;
            scene.clipboard_text = None;
            desk.draw(now, scene);
            chat.draw(now, scene);
            if scene.overlay.is_none() && overlay.is_some() {
                scene.overlay = overlay;
                scene.clipboard_text = Some(company.ticket().to_owned());
            }
            scene.needs_quit_confirmation = !others.is_empty() && question.is_none();
            if question.is_some() {
                scene.overlay = question;
            }
        });
    }
}

fn capabilities(role: Role) -> HudCapabilities {
    HudCapabilities { reset: role != Role::Spectator, shared_game: true, ..HudCapabilities::default() }
}

impl GameFrontend for InteractiveFrontend<'_> {
    fn on_machine(&mut self, machine: &dyn Machine) {
        let pads = &machine.pads()[..self.pads.min(machine.pads().len())];
        self.hud = Hud::new(self.config, capabilities(self.lobby_view.role()), pads);
        self.devices = Some(Devices::open(self.config, pads, &self.ui, &mut self.hud));
        self.bots = self.bot_seed.map(|seed| bots_for_pads(seed, machine)).unwrap_or_default();
    }

    fn set_own_ticket(&mut self, own: TicketSource) {
        self.lobby_view.set_own_ticket(own);
    }

    fn take_notes(&mut self) -> Vec<String> {
        self.devices.as_mut().map(|outfit| std::mem::take(&mut outfit.notes)).unwrap_or_default()
    }
}

impl Frontend for InteractiveFrontend<'_> {
    fn sample_input(&mut self, pads: &mut [InputWord]) {
        if self.bots.is_empty() {
            pads.iter_mut().zip(self.ui.input_state().sample()).for_each(|(word, pressed)| *word = pressed);
        } else {
            pads.iter_mut().zip(&mut self.bots).for_each(|(word, bot)| *word = bot.press());
        }
    }

    fn show_frame(&mut self, _: Frame, machine: &dyn Machine) {
        self.is_playing = true;
        self.hud.set_failure(machine.failure());
        self.picture.show(machine.picture());
        if let Some(outfit) = &mut self.devices {
            outfit.play_sound(machine, self.hud.sound_settings(), false);
        }
        self.draw();
    }

    fn on_event(&mut self, news: RunnerEvent<'_>) {
        let now = Instant::now();
        match news {
            RunnerEvent::LobbyChanged(party) => {
                self.lobby_view.on_lobby_state(party);
                self.update_ticket(now);
            }
            RunnerEvent::Session(event) => {
                // Where the dials stand is in the status line, and they turn often.
                let quiet = matches!(event, Event::DelayChanged { .. });
                if let Some(words) = self.lobby_view.on_event(event).filter(|_| !quiet) {
                    self.hud.show_toast(now, words);
                }
            }
            RunnerEvent::Chat { name, text: line } => self.chat.add_line(now, name, line),
            RunnerEvent::Note(words) => self.hud.show_toast(now, words),
            RunnerEvent::PlayingAlone => self.on_alone(now),
            RunnerEvent::Status(status) => {
                // Who paused is in the overlay.
                if let Some(words) = self.lobby_view.on_status(status).filter(|_| self.overlay().is_none()) {
                    self.hud.show_toast(now, words);
                }
                self.update_ticket(now);
                self.hud.set_can_go_on_alone(status.can_continue_alone);
                self.history.sample(status);
            }
        }
    }

    fn poll_command(&mut self) -> Option<UserCommand> {
        while !self.is_leaving {
            let Some(asked) = self.ui.poll_command() else { break };
            self.on_command(asked);
            if self.hud.is_quit_requested() {
                self.leave();
            }
        }
        if Instant::now() >= self.next_draw {
            self.draw();
        }
        self.pending_commands.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ui_link::{FrontendPort, ui_link};
    use coplay_net::lobby::{LobbyInfo, LobbyMember};

    fn frontend(config: &Config, role: Role) -> (InteractiveFrontend<'_>, FrontendPort) {
        let (stage, view) = ui_link();
        let company = LobbyView::new(role, "udp://a:1#x".into());
        let habits = UiOptions { pads: 1, bot_seed: None, drop_timeout_seconds: None };
        (InteractiveFrontend::new(stage, config, company, habits), view)
    }

    fn poll_all(screen: &mut InteractiveFrontend<'_>) -> Vec<UserCommand> {
        std::iter::from_fn(|| screen.poll_command()).collect()
    }

    #[test]
    fn host_starts_with_enter_and_sends_typed_chat() {
        let config = Config::default();
        let (mut screen, view) = frontend(&config, Role::Host);
        view.send(Asked::Move(MenuMove::Enter));
        view.send(Asked::Chat);
        "hi".chars().for_each(|sign| view.send(Asked::TypeChar(sign)));
        view.send(Asked::Move(MenuMove::Enter));
        assert_eq!(poll_all(&mut screen), [UserCommand::Start, UserCommand::Chat("hi".into())]);
        view.send(Asked::Chat);
        view.send(Asked::Menu);
        view.send(Asked::TypeChar('x'));
        assert_eq!(poll_all(&mut screen), [], "what was not said");
    }

    #[test]
    fn machine_controls_are_for_players_only() {
        let config = Config::default();
        let said = UserCommand::Chat("(keeps this moment)".into());
        let both = vec![UserCommand::Control(MachineControl::Save), said];
        for (role, pressed) in [(Role::Joiner, both), (Role::Spectator, vec![])] {
            let (mut screen, view) = frontend(&config, role);
            view.send(Asked::Save);
            assert_eq!(poll_all(&mut screen), [], "nothing to keep yet");
            screen.show_frame(Frame::new(0), &crate::toy_machine::ToyMachine::new(1));
            view.send(Asked::Save);
            assert_eq!(poll_all(&mut screen), pressed);
        }
    }

    #[test]
    fn spectator_can_chat_and_sees_who_paused() {
        let config = Config::default();
        let (mut screen, mut view) = frontend(&config, Role::Spectator);
        view.send(Asked::Chat);
        "hi".chars().for_each(|sign| view.send(Asked::TypeChar(sign)));
        view.send(Asked::Move(MenuMove::Enter));
        assert_eq!(poll_all(&mut screen), [UserCommand::Chat("hi".into())]);
        let status = coplay_net::runner::Status { paused_by: Some(0), ..Default::default() };
        screen.on_event(RunnerEvent::Status(&status));
        screen.show_frame(Frame::new(0), &crate::toy_machine::ToyMachine::new(1));
        assert!(view.refresh_scene());
        assert_eq!(view.scene().overlay.as_ref().map(|overlay| overlay.title.as_str()), Some("Paused"));
    }

    /// Ann and Bob play, or are about to.
    fn two_player_lobby(started: bool) -> LobbyInfo {
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
    fn quitting_a_shared_game_needs_two_presses() {
        let config = Config::default();
        let (mut screen, mut view) = frontend(&config, Role::Joiner);
        screen.on_event(RunnerEvent::LobbyChanged(&two_player_lobby(true)));
        screen.show_frame(Frame::new(0), &crate::toy_machine::ToyMachine::new(1));
        assert!(view.refresh_scene() && view.scene().needs_quit_confirmation);
        view.send(Asked::Quit);
        assert_eq!(poll_all(&mut screen), [], "one press by mistake ends no game");
        screen.show_frame(Frame::new(1), &crate::toy_machine::ToyMachine::new(1));
        assert!(view.refresh_scene() && !view.scene().needs_quit_confirmation);
        let question = view.scene().overlay.clone().expect("a question");
        assert_eq!(question.rows, [("Ann".into(), "plays with you".into())]);
        view.send(Asked::Menu);
        view.send(Asked::Quit);
        assert_eq!(poll_all(&mut screen), [], "Esc answered the question");
        view.send(Asked::Quit);
        assert_eq!(poll_all(&mut screen), [UserCommand::Quit]);
    }

    #[test]
    fn quitting_without_other_players_is_immediate() {
        let config = Config::default();
        let mut alone = two_player_lobby(true);
        alone.members[0].is_present = false;
        for (role, party) in
            [(Role::Joiner, two_player_lobby(false)), (Role::Joiner, alone), (Role::Spectator, two_player_lobby(true))]
        {
            let (mut screen, view) = frontend(&config, role);
            screen.on_event(RunnerEvent::LobbyChanged(&party));
            view.send(Asked::Quit);
            assert_eq!(poll_all(&mut screen), [UserCommand::Quit], "{role:?} {party:?}");
        }
    }

    #[test]
    fn go_on_alone_is_offered_by_key_and_menu() {
        let config = Config::default();
        let (mut screen, mut view) = frontend(&config, Role::Joiner);
        view.send(Asked::GoOnAlone);
        assert_eq!(poll_all(&mut screen), [], "nothing is offered");
        let offer = coplay_net::runner::Status { can_continue_alone: true, ..Default::default() };
        screen.on_event(RunnerEvent::Status(&offer));
        view.send(Asked::GoOnAlone);
        [Asked::Menu, Asked::Move(MenuMove::Down), Asked::Move(MenuMove::Enter)]
            .into_iter()
            .for_each(|asked| view.send(asked));
        assert_eq!(poll_all(&mut screen), [UserCommand::ContinueAlone, UserCommand::ContinueAlone]);
        screen.on_event(RunnerEvent::PlayingAlone);
        screen.show_frame(Frame::new(0), &crate::toy_machine::ToyMachine::new(1));
        assert!(view.refresh_scene());
        assert!(view.scene().toast.as_ref().is_some_and(|toast| toast.contains("you play on alone")));
        // The ticket is in the menu from then on, and can be copied there.
        screen.on_event(RunnerEvent::Status(&Default::default()));
        let down = Asked::Move(MenuMove::Down);
        [Asked::Menu, down, down, Asked::Move(MenuMove::Enter)].into_iter().for_each(|asked| view.send(asked));
        poll_all(&mut screen);
        screen.show_frame(Frame::new(1), &crate::toy_machine::ToyMachine::new(1));
        assert!(view.refresh_scene() && view.scene().clipboard_text.as_deref() == Some("udp://a:1#x"));
    }

    #[test]
    fn closed_window_quits_once() {
        let config = Config::default();
        let (mut screen, view) = frontend(&config, Role::Joiner);
        screen.on_event(RunnerEvent::LobbyChanged(&two_player_lobby(true)));
        drop(view);
        assert_eq!(poll_all(&mut screen), [UserCommand::Quit]);
        assert_eq!(poll_all(&mut screen), []);
    }

    #[test]
    fn lobby_is_shown_before_the_game() {
        let config = Config::default();
        let (mut screen, mut view) = frontend(&config, Role::Joiner);
        screen.poll_command();
        assert!(view.refresh_scene());
        assert_eq!(view.scene().overlay.as_ref().map(|overlay| overlay.title.as_str()), Some("Knocking"));
        assert_eq!(view.scene().clipboard_text.as_deref(), Some("udp://a:1#x"));
        screen.show_frame(Frame::new(0), &crate::toy_machine::ToyMachine::new(1));
        assert!(view.refresh_scene() && view.scene().overlay.is_none() && view.scene().screens.len() == 1);
        view.send(Asked::Graph);
        screen.poll_command();
        screen.show_frame(Frame::new(1), &crate::toy_machine::ToyMachine::new(1));
        assert!(view.refresh_scene() && view.scene().graph.is_some());
    }
}
