//! Front end without a screen: prints a line to stderr for each event that concerns the user.

use coplay::frame::Frame;
use coplay::input::InputWord;
use coplay::session::Event;
use coplay_machines::Machine;
use coplay_net::runner::{Frontend, RunnerEvent, UserCommand};

use super::GameFrontend;
use super::lobby_view::{LobbyView, Role, join_command};
use crate::bot::Bot;
use crate::connect::OwnTicketFn;

/// Front end that prints to stderr. The players at this computer are bots, or press nothing.
pub(super) struct HeadlessFrontend {
    lobby_view: LobbyView,
    bot_seed: Option<u64>,
    bots: Vec<Bot>,
    last_members_line: String,
    /// Whether the present failure of the machine was printed.
    is_failure_reported: bool,
    is_leaving: bool,
    /// Whether the hint about `--go-on-alone` was printed for the present silence.
    is_go_on_alone_offered: bool,
}

impl HeadlessFrontend {
    pub(super) fn new(lobby_view: LobbyView, bot_seed: Option<u64>) -> Self {
        Self {
            lobby_view,
            bot_seed,
            bots: vec![],
            last_members_line: String::new(),
            is_failure_reported: false,
            is_leaving: false,
            is_go_on_alone_offered: false,
        }
    }

    /// Prints the command to join, if the ticket has changed since the last call.
    fn print_changed_ticket(&mut self) {
        if self.lobby_view.update_ticket() {
            print_line(&format!("the ticket has changed; to join:   {}", join_command(self.lobby_view.ticket())));
        }
    }
}

/// Returns the message for the last remaining player, with the command for the departed player to rejoin.
fn alone_notice(lobby: &LobbyView) -> String {
    format!("you play on alone; to rejoin, {} can type:   {}", lobby.last_departed(), join_command(lobby.ticket()))
}

fn print_line(line: &str) {
    eprintln!("{line}");
}

impl GameFrontend for HeadlessFrontend {
    fn on_machine(&mut self, machine: &dyn Machine) {
        let bots = self.bot_seed.map(|seed| bots_for_pads(seed, machine));
        self.bots = bots.unwrap_or_default();
        let (game, id) = (machine.game_id(), machine.machine_id());
        print_line(&format!("game: {} on {} {}", game.name, id.name, id.version));
    }

    fn set_own_ticket(&mut self, own: OwnTicketFn) {
        self.lobby_view.set_own_ticket(own);
    }
}

/// Creates a bot for every pad of the machine, each of which changes its input every 8 frames on average.
pub(super) fn bots_for_pads(seed: u64, machine: &dyn Machine) -> Vec<Bot> {
    machine.pads().iter().enumerate().map(|(player, pad)| Bot::new_restless(seed, player, pad)).collect()
}

impl Frontend for HeadlessFrontend {
    fn sample_input(&mut self, pads: &mut [InputWord]) {
        pads.iter_mut().zip(&mut self.bots).for_each(|(word, bot)| *word = bot.press());
    }

    fn show_frame(&mut self, _: Frame, machine: &dyn Machine) {
        let was_reported = std::mem::replace(&mut self.is_failure_reported, machine.failure().is_some());
        if let Some(reason) = machine.failure().filter(|_| !was_reported) {
            print_line(&format!("the machine has halted: {reason}"));
        }
    }

    fn on_event(&mut self, event: RunnerEvent<'_>) {
        match event {
            RunnerEvent::LobbyChanged(lobby) => {
                self.lobby_view.on_lobby_state(lobby);
                self.print_changed_ticket();
                let members = self.lobby_view.members_line();
                if members != self.last_members_line {
                    print_line(&format!("players: {members}"));
                    self.last_members_line = members;
                }
            }
            RunnerEvent::Session(Event::Frozen(freeze)) => {
                let names: Vec<String> =
                    freeze.waiting_for.iter().map(|site| self.lobby_view.player_name(site.number())).collect();
                print_line(&format!("the game is waiting for {}", names.join(", ")));
            }
            RunnerEvent::Session(event) => {
                if let Some(text) = self.lobby_view.on_event(event) {
                    print_line(&text);
                }
            }
            RunnerEvent::Chat { name, text } => print_line(&format!("{name}: {text}")),
            RunnerEvent::Note(text) => print_line(&text),
            RunnerEvent::PlayingAlone => {
                self.print_changed_ticket();
                print_line(&alone_notice(&self.lobby_view));
            }
            RunnerEvent::Status(status) => {
                if let Some(text) = self.lobby_view.on_status(status) {
                    print_line(&text);
                }
                let was_offered = std::mem::replace(&mut self.is_go_on_alone_offered, status.can_continue_alone);
                if status.can_continue_alone && !was_offered {
                    print_line(
                        "all other players are silent; without --go-on-alone, the game waits for them, and ends after \
                         12 times the time of --drop-after, unless that is `never`",
                    );
                }
                self.print_changed_ticket();
            }
        }
    }

    fn poll_command(&mut self) -> Option<UserCommand> {
        if self.is_leaving || !crate::signals::is_stop_requested() {
            return None;
        }
        self.is_leaving = true;
        print_line(if self.lobby_view.role() == Role::Spectator { "you stop watching" } else { "you leave the game" });
        Some(UserCommand::Quit)
    }
}
