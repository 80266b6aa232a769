//! Front end of a shared game for a window or a terminal. It runs on the game thread and never waits: scenes go to the
//! window or terminal by swapping buffers.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use coplay::frame::Frame;
use coplay::input::InputWord;
use coplay::session::Event;
use coplay_machines::control::MachineControl;
use coplay_machines::{Machine, NetplaySupport};
use coplay_net::clock;
use coplay_net::runner::{Frontend, RunnerEvent, UserCommand};

use super::GameFrontend;
use super::chat::Chat;
use super::headless::bots_for_pads;
use super::lobby_view::{LobbyView, PanelKeys, Role};
use super::quit::QuitConfirmation;
use super::session_history::SessionHistory;
use crate::bot::Bot;
use crate::config::{Action, UserSettings};
use crate::connect::OwnTicketFn;
use crate::hud::{Hud, HudCapabilities, HudRequest, Invitation};
use crate::scene::{MenuMove, Overlay, Screen, UiCommand};
use crate::speaker_and_gamepads::SpeakerAndGamepads;
use crate::ui_link::GamePort;

/// Time between two scenes while no new frame is shown.
const DRAW_INTERVAL: Duration = Duration::from_millis(40);

/// Front end for a person at a window or terminal.
pub(super) struct InteractiveFrontend<'a> {
    ui: GamePort,
    config: &'a UserSettings,
    hud: Hud,
    devices: Option<SpeakerAndGamepads>,
    pads: usize,
    bot_seed: Option<u64>,
    bots: Vec<Bot>,
    lobby_view: LobbyView,
    drop_timeout_seconds: Option<f64>,
    /// Label of the key that pauses and resumes.
    pause_key: String,
    /// Label of the key that opens the menu.
    menu_key: String,
    chat: Chat,
    history: SessionHistory,
    is_graph_shown: bool,
    picture: Screen,
    /// Whether a first frame was shown.
    is_playing: bool,
    next_draw: Instant,
    pending_commands: VecDeque<UserCommand>,
    quit_confirmation: QuitConfirmation,
    is_leaving: bool,
}

/// Options of the front end, from the command line.
#[derive(Clone, Copy, Debug)]
pub(super) struct UiOptions {
    /// Number of players at this computer; 0 for a spectator.
    pub(super) pads: usize,
    /// Seed of bots that play in place of people; `None` lets people play.
    pub(super) bot_seed: Option<u64>,
    /// Silence after which the session drops a player, in seconds; `None` waits forever.
    pub(super) drop_timeout_seconds: Option<f64>,
}

impl<'a> InteractiveFrontend<'a> {
    pub(super) fn new(ui: GamePort, config: &'a UserSettings, lobby_view: LobbyView, options: UiOptions) -> Self {
        let UiOptions { pads, bot_seed, drop_timeout_seconds } = options;
        Self {
            ui,
            config,
            hud: Hud::new(config, capabilities(lobby_view.role(), false), &[]),
            devices: None,
            pads,
            bot_seed,
            bots: vec![],
            lobby_view: lobby_view.with_keys(PanelKeys::new(config)),
            drop_timeout_seconds,
            pause_key: config.key_label(Action::Pause),
            menu_key: config.key_label(Action::Menu),
            chat: Chat::default(),
            history: SessionHistory::default(),
            is_graph_shown: false,
            picture: Screen::default(),
            is_playing: false,
            next_draw: Instant::now(),
            pending_commands: VecDeque::new(),
            quit_confirmation: QuitConfirmation::default(),
            is_leaving: false,
        }
    }

    fn on_command(&mut self, command: UiCommand) {
        let now = Instant::now();
        if self.chat.is_open() && self.on_typing(command) {
            return;
        }
        match command {
            UiCommand::Exit => self.leave(),
            UiCommand::Quit => {
                if self.quit_confirmation.request(now, &self.lobby_view.other_players()) {
                    self.leave();
                }
            }
            UiCommand::Menu if self.quit_confirmation.is_open(now) => self.quit_confirmation.cancel(),
            UiCommand::Chat => self.chat.open(),
            UiCommand::Graph => self.is_graph_shown = !self.is_graph_shown,
            UiCommand::Pause => self.press_control(MachineControl::Pause),
            UiCommand::Save => self.press_control(MachineControl::Save),
            UiCommand::Load => self.press_control(MachineControl::Load),
            UiCommand::Reset => self.press_control(MachineControl::Reset),
            UiCommand::Move(MenuMove::Enter) if !self.hud.has_open_panel() => {
                if self.lobby_view.role() == Role::Host && !self.lobby_view.is_started() {
                    self.pending_commands.push_back(UserCommand::Start);
                }
            }
            command => match self.hud.handle_command(now, command) {
                Some(HudRequest::Reset) => self.press_control(MachineControl::Reset),
                Some(HudRequest::GoOnAlone) => self.pending_commands.push_back(UserCommand::ContinueAlone),
                _ => {}
            },
        }
    }

    /// Handles a command while a chat message is typed; returns `false` if the command is not about the message.
    fn on_typing(&mut self, command: UiCommand) -> bool {
        match command {
            UiCommand::TypeChar(character) => self.chat.type_char(character),
            UiCommand::EraseChar => self.chat.erase_char(),
            UiCommand::Menu => self.chat.close(),
            UiCommand::Move(MenuMove::Enter) => {
                self.pending_commands.extend(self.chat.take_message().map(UserCommand::Chat))
            }
            _ => return false,
        }
        true
    }

    /// Sends a machine control for all sites, and a chat line that shows the others which player sent the control. For
    /// a pause, all sites show an overlay instead. Before the first frame, does nothing. A spectator only gets a
    /// message that spectators cannot control the machine.
    fn press_control(&mut self, control: MachineControl) {
        if self.lobby_view.role() == Role::Spectator {
            return self.hud.show_toast(Instant::now(), "spectators cannot control the machine");
        }
        if self.is_playing {
            let text = match control {
                MachineControl::Pause => None,
                MachineControl::Reset => Some("(resets the machine)"),
                MachineControl::Save => Some("(saves the state)"),
                MachineControl::Load => Some("(loads the saved state, if there is one)"),
            };
            self.pending_commands.push_back(UserCommand::Control(control));
            self.pending_commands.extend(text.map(|text| UserCommand::Chat(text.into())));
        }
    }

    /// Updates the ticket and the invitation. Shows a message if the ticket changed and is not on the screen.
    fn update_ticket(&mut self, now: Instant) {
        if self.lobby_view.update_ticket() && self.overlay().is_none() {
            self.hud
                .show_toast(now, format!("the ticket has changed; press {}, Invite players, to see it", self.menu_key));
        }
        let ticket = self.lobby_view.ticket().to_owned();
        self.hud.invite(Invitation { ticket, command: "coplay join", opens_immediately: false });
    }

    /// Shows a notice that the last other player is gone. The ticket is too long for the notice, which names the menu
    /// entry that shows the ticket.
    fn on_alone(&mut self, now: Instant) {
        self.update_ticket(now);
        let departure = self.lobby_view.departure_text();
        self.hud.show_notice(
            now,
            format!("{departure}; you play on alone. To invite players: press {}, Invite players", self.menu_key),
        );
    }

    /// Queues one quit command, however often it is called: a window or terminal that is gone returns `Exit` on every
    /// poll.
    fn leave(&mut self) {
        if !std::mem::replace(&mut self.is_leaving, true) {
            self.pending_commands.push_back(UserCommand::Quit);
        }
    }

    /// Returns the panel of the lobby view, if there is one. It is shown while the HUD has no panel open.
    fn overlay(&self) -> Option<Overlay> {
        self.lobby_view.overlay(clock::now(), self.is_playing, self.drop_timeout_seconds, &self.pause_key)
    }

    fn draw(&mut self) {
        let now = Instant::now();
        self.next_draw = now + DRAW_INTERVAL;
        let (hud, lobby_view, chat) = (&self.hud, &self.lobby_view, &self.chat);
        let graph = self.is_graph_shown.then(|| self.history.graph(|site| lobby_view.player_name(site)));
        let (picture, is_playing, overlay) = (&self.picture, self.is_playing, self.overlay());
        let others = lobby_view.other_players();
        let question = self.quit_confirmation.overlay(now, &others, &self.menu_key);
        self.ui.show(|scene| {
            if is_playing {
                scene.screens(1)[0].clone_from(picture);
            } else {
                scene.screens.clear();
            }
            scene.status = lobby_view.status_line();
            scene.graph = graph;
            scene.clipboard_text = None;
            hud.draw(now, scene);
            chat.draw(now, scene);
            if scene.overlay.is_none() && overlay.is_some() {
                scene.overlay = overlay;
                scene.clipboard_text = Some(lobby_view.ticket().to_owned());
            }
            scene.needs_quit_confirmation = !others.is_empty() && question.is_none();
            if question.is_some() {
                scene.overlay = question;
            }
        });
    }
}

fn capabilities(role: Role, can_save: bool) -> HudCapabilities {
    let is_player = role != Role::Spectator;
    HudCapabilities {
        reset: is_player,
        shared_game: true,
        shared_slot: is_player && can_save,
        ..HudCapabilities::default()
    }
}

impl GameFrontend for InteractiveFrontend<'_> {
    fn on_machine(&mut self, machine: &dyn Machine) {
        let pads = &machine.pads()[..self.pads.min(machine.pads().len())];
        let can_save = machine.netplay_support() == NetplaySupport::Rollback;
        self.hud = Hud::new(self.config, capabilities(self.lobby_view.role(), can_save), pads);
        self.devices = Some(SpeakerAndGamepads::open(self.config, pads, &self.ui, &mut self.hud));
        self.bots = self.bot_seed.map(|seed| bots_for_pads(seed, machine)).unwrap_or_default();
    }

    fn set_own_ticket(&mut self, own: OwnTicketFn) {
        self.lobby_view.set_own_ticket(own);
    }

    fn take_notes(&mut self) -> Vec<String> {
        self.devices.as_mut().map(|devices| std::mem::take(&mut devices.notes)).unwrap_or_default()
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
        if let Some(devices) = &mut self.devices {
            devices.play_sound(machine, self.hud.sound_settings(), false);
        }
        self.draw();
    }

    fn on_event(&mut self, event: RunnerEvent<'_>) {
        let now = Instant::now();
        match event {
            RunnerEvent::LobbyChanged(lobby) => {
                self.lobby_view.on_lobby_state(lobby);
                self.update_ticket(now);
            }
            RunnerEvent::Session(event) => {
                // The status line shows input delay and prediction window, which change often.
                let is_quiet = matches!(event, Event::DelayChanged { .. });
                if let Some(text) = self.lobby_view.on_event(event).filter(|_| !is_quiet) {
                    self.hud.show_toast(now, text);
                }
            }
            RunnerEvent::Chat { name, text } => self.chat.add_line(now, name, text),
            RunnerEvent::Note(text) => self.hud.show_toast(now, text),
            RunnerEvent::PlayingAlone => self.on_alone(now),
            RunnerEvent::Status(status) => {
                // The pause overlay names the player who paused.
                if let Some(text) = self.lobby_view.on_status(status).filter(|_| self.overlay().is_none()) {
                    self.hud.show_toast(now, text);
                }
                self.update_ticket(now);
                self.hud.set_can_go_on_alone(status.can_continue_alone);
                self.history.sample(status);
            }
        }
    }

    fn poll_command(&mut self) -> Option<UserCommand> {
        while !self.is_leaving {
            let Some(command) = self.ui.poll_command() else { break };
            self.on_command(command);
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

    fn frontend(config: &UserSettings, role: Role) -> (InteractiveFrontend<'_>, FrontendPort) {
        let (ui, port) = ui_link();
        let lobby_view = LobbyView::new(role, "udp://a:1#x".into());
        let options = UiOptions { pads: 1, bot_seed: None, drop_timeout_seconds: None };
        (InteractiveFrontend::new(ui, config, lobby_view, options), port)
    }

    fn poll_all(frontend: &mut InteractiveFrontend<'_>) -> Vec<UserCommand> {
        std::iter::from_fn(|| frontend.poll_command()).collect()
    }

    #[test]
    fn host_starts_with_enter_and_sends_typed_chat() {
        let config = UserSettings::default();
        let (mut screen, port) = frontend(&config, Role::Host);
        port.send(UiCommand::Move(MenuMove::Enter));
        port.send(UiCommand::Chat);
        "hi".chars().for_each(|character| port.send(UiCommand::TypeChar(character)));
        port.send(UiCommand::Move(MenuMove::Enter));
        assert_eq!(poll_all(&mut screen), [UserCommand::Start, UserCommand::Chat("hi".into())]);
        port.send(UiCommand::Chat);
        port.send(UiCommand::Menu);
        port.send(UiCommand::TypeChar('x'));
        assert_eq!(poll_all(&mut screen), [], "the message was discarded");
    }

    #[test]
    fn machine_controls_are_for_players_only() {
        let config = UserSettings::default();
        let chat = UserCommand::Chat("(saves the state)".into());
        let both = vec![UserCommand::Control(MachineControl::Save), chat];
        for (role, pressed) in [(Role::Joiner, both), (Role::Spectator, vec![])] {
            let (mut screen, port) = frontend(&config, role);
            port.send(UiCommand::Save);
            assert_eq!(poll_all(&mut screen), [], "there is no state to save yet");
            screen.show_frame(Frame::new(0), &crate::test_machine::ToyMachine::new(1));
            port.send(UiCommand::Save);
            assert_eq!(poll_all(&mut screen), pressed);
        }
    }

    #[test]
    fn spectator_can_chat_and_sees_who_paused() {
        let config = UserSettings::default();
        let (mut screen, mut port) = frontend(&config, Role::Spectator);
        port.send(UiCommand::Chat);
        "hi".chars().for_each(|character| port.send(UiCommand::TypeChar(character)));
        port.send(UiCommand::Move(MenuMove::Enter));
        assert_eq!(poll_all(&mut screen), [UserCommand::Chat("hi".into())]);
        let status = coplay_net::runner::Status { paused_by: Some(0), ..Default::default() };
        screen.on_event(RunnerEvent::Status(&status));
        screen.show_frame(Frame::new(0), &crate::test_machine::ToyMachine::new(1));
        assert!(port.refresh_scene());
        assert_eq!(port.scene().overlay.as_ref().map(|overlay| overlay.title.as_str()), Some("Paused"));
    }

    fn two_player_lobby(is_started: bool) -> LobbyInfo {
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
            is_started,
            members,
            allows_spectators: true,
            spectator_count: 0,
            your_site: Some(1),
        }
    }

    #[test]
    fn quitting_a_shared_game_needs_two_presses() {
        let config = UserSettings::default();
        let (mut screen, mut port) = frontend(&config, Role::Joiner);
        screen.on_event(RunnerEvent::LobbyChanged(&two_player_lobby(true)));
        screen.show_frame(Frame::new(0), &crate::test_machine::ToyMachine::new(1));
        assert!(port.refresh_scene() && port.scene().needs_quit_confirmation);
        port.send(UiCommand::Quit);
        assert_eq!(poll_all(&mut screen), [], "a single press does not quit");
        screen.show_frame(Frame::new(1), &crate::test_machine::ToyMachine::new(1));
        assert!(port.refresh_scene() && !port.scene().needs_quit_confirmation);
        let question = port.scene().overlay.clone().expect("the question is shown");
        assert_eq!(question.rows, [("Ann".into(), "plays with you".into())]);
        port.send(UiCommand::Menu);
        port.send(UiCommand::Quit);
        assert_eq!(poll_all(&mut screen), [], "Esc closed the question");
        port.send(UiCommand::Quit);
        assert_eq!(poll_all(&mut screen), [UserCommand::Quit]);
    }

    #[test]
    fn quitting_without_other_players_is_immediate() {
        let config = UserSettings::default();
        let mut without_ann = two_player_lobby(true);
        without_ann.members[0].is_present = false;
        for (role, lobby) in [
            (Role::Joiner, two_player_lobby(false)),
            (Role::Joiner, without_ann),
            (Role::Spectator, two_player_lobby(true)),
        ] {
            let (mut screen, port) = frontend(&config, role);
            screen.on_event(RunnerEvent::LobbyChanged(&lobby));
            port.send(UiCommand::Quit);
            assert_eq!(poll_all(&mut screen), [UserCommand::Quit], "{role:?} {lobby:?}");
        }
    }

    #[test]
    fn go_on_alone_is_offered_by_key_and_menu() {
        let config = UserSettings::default();
        let (mut screen, mut port) = frontend(&config, Role::Joiner);
        port.send(UiCommand::GoOnAlone);
        assert_eq!(poll_all(&mut screen), [], "it is not offered yet");
        let offer = coplay_net::runner::Status { can_continue_alone: true, ..Default::default() };
        screen.on_event(RunnerEvent::Status(&offer));
        port.send(UiCommand::GoOnAlone);
        [UiCommand::Menu, UiCommand::Move(MenuMove::Down), UiCommand::Move(MenuMove::Enter)]
            .into_iter()
            .for_each(|command| port.send(command));
        assert_eq!(poll_all(&mut screen), [UserCommand::ContinueAlone, UserCommand::ContinueAlone]);
        screen.on_event(RunnerEvent::PlayingAlone);
        screen.show_frame(Frame::new(0), &crate::test_machine::ToyMachine::new(1));
        assert!(port.refresh_scene());
        assert!(port.scene().toast.as_ref().is_some_and(|toast| toast.contains("you play on alone")));
        // The menu now shows the ticket, which can be copied there.
        screen.on_event(RunnerEvent::Status(&Default::default()));
        let down = UiCommand::Move(MenuMove::Down);
        [UiCommand::Menu, down, down, UiCommand::Move(MenuMove::Enter)]
            .into_iter()
            .for_each(|command| port.send(command));
        poll_all(&mut screen);
        screen.show_frame(Frame::new(1), &crate::test_machine::ToyMachine::new(1));
        assert!(port.refresh_scene() && port.scene().clipboard_text.as_deref() == Some("udp://a:1#x"));
    }

    #[test]
    fn closed_window_quits_once() {
        let config = UserSettings::default();
        let (mut screen, port) = frontend(&config, Role::Joiner);
        screen.on_event(RunnerEvent::LobbyChanged(&two_player_lobby(true)));
        drop(port);
        assert_eq!(poll_all(&mut screen), [UserCommand::Quit]);
        assert_eq!(poll_all(&mut screen), []);
    }

    #[test]
    fn lobby_is_shown_before_the_game() {
        let config = UserSettings::default();
        let (mut screen, mut port) = frontend(&config, Role::Joiner);
        screen.poll_command();
        assert!(port.refresh_scene());
        assert_eq!(port.scene().overlay.as_ref().map(|overlay| overlay.title.as_str()), Some("Connecting"));
        assert_eq!(port.scene().clipboard_text.as_deref(), Some("udp://a:1#x"));
        screen.show_frame(Frame::new(0), &crate::test_machine::ToyMachine::new(1));
        assert!(port.refresh_scene() && port.scene().overlay.is_none() && port.scene().screens.len() == 1);
        port.send(UiCommand::Graph);
        screen.poll_command();
        screen.show_frame(Frame::new(1), &crate::test_machine::ToyMachine::new(1));
        assert!(port.refresh_scene() && port.scene().graph.is_some());
    }
}
