//! Nobody to see it: a line for everything that happens.

use coplay::frame::Frame;
use coplay::input::InputWord;
use coplay::session::Event;
use coplay_machines::Machine;
use coplay_net::runner::{Frontend, RunnerEvent, UserCommand};

use super::GameFrontend;
use super::lobby_view::{LobbyView, Role, join_command};
use crate::bot::Bot;
use crate::connect::TicketSource;

/// Lines on stderr, and perhaps bots.
pub(super) struct HeadlessFrontend {
    lobby_view: LobbyView,
    bot_seed: Option<u64>,
    bots: Vec<Bot>,
    last_members_line: String,
    /// It was said that the machine stands still.
    is_failure_reported: bool,
    is_leaving: bool,
    /// It was said how to play on alone.
    is_go_on_alone_offered: bool,
}

impl HeadlessFrontend {
    pub(super) fn new(company: LobbyView, seed: Option<u64>) -> Self {
        Self {
            lobby_view: company,
            bot_seed: seed,
            bots: vec![],
            last_members_line: String::new(),
            is_failure_reported: false,
            is_leaving: false,
            is_go_on_alone_offered: false,
        }
    }

    /// What others type to come in, when that is something else than before.
    fn print_changed_ticket(&mut self) {
        if self.lobby_view.update_ticket() {
            print_line(&format!("to join now:   {}", join_command(self.lobby_view.ticket())));
        }
    }
}

/// How the last player left lets the others in again.
fn alone_notice(company: &LobbyView) -> String {
    format!("you play on alone. For {} to come back:   {}", company.last_departed(), join_command(company.ticket()))
}

fn print_line(what: &str) {
    eprintln!("{what}");
}

impl GameFrontend for HeadlessFrontend {
    fn on_machine(&mut self, machine: &dyn Machine) {
        let bots = self.bot_seed.map(|seed| bots_for_pads(seed, machine));
        self.bots = bots.unwrap_or_default();
        let (game, id) = (machine.game_id(), machine.machine_id());
        print_line(&format!("{} on {} {}", game.name, id.name, id.version));
    }

    fn set_own_ticket(&mut self, own: TicketSource) {
        self.lobby_view.set_own_ticket(own);
    }
}

/// A bot for every pad.
pub(super) fn bots_for_pads(seed: u64, machine: &dyn Machine) -> Vec<Bot> {
    machine.pads().iter().enumerate().map(|(player, pad)| Bot::new_restless(seed, player, pad)).collect()
}

impl Frontend for HeadlessFrontend {
    fn sample_input(&mut self, pads: &mut [InputWord]) {
        pads.iter_mut().zip(&mut self.bots).for_each(|(word, bot)| *word = bot.press());
    }

    fn show_frame(&mut self, _: Frame, machine: &dyn Machine) {
        let stood = std::mem::replace(&mut self.is_failure_reported, machine.failure().is_some());
        if let Some(why) = machine.failure().filter(|_| !stood) {
            print_line(&format!("the machine stands still: {why}"));
        }
    }

    fn on_event(&mut self, news: RunnerEvent<'_>) {
        match news {
            RunnerEvent::LobbyChanged(party) => {
                self.lobby_view.on_lobby_state(party);
                self.print_changed_ticket();
                let people = self.lobby_view.members_line();
                if people != self.last_members_line {
                    print_line(&format!("here: {people}"));
                    self.last_members_line = people;
                }
            }
            // Somebody who plays with a bot does not need to know how often it waits a moment.
            RunnerEvent::Session(Event::Frozen(freeze)) => {
                let names: Vec<String> =
                    freeze.waiting_for.iter().map(|site| self.lobby_view.player_name(site.number())).collect();
                print_line(&format!("waiting for {}", names.join(", ")));
            }
            RunnerEvent::Session(event) => {
                if let Some(words) = self.lobby_view.on_event(event) {
                    print_line(&words);
                }
            }
            RunnerEvent::Chat { name, text: line } => print_line(&format!("{name}: {line}")),
            RunnerEvent::Note(words) => print_line(&words),
            RunnerEvent::PlayingAlone => {
                self.print_changed_ticket();
                print_line(&alone_notice(&self.lobby_view));
            }
            RunnerEvent::Status(status) => {
                if let Some(words) = self.lobby_view.on_status(status) {
                    print_line(&words);
                }
                let offered = std::mem::replace(&mut self.is_go_on_alone_offered, status.can_continue_alone);
                if status.can_continue_alone && !offered {
                    print_line("nobody else is heard; started with --go-on-alone the game goes on without them");
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
        print_line(if self.lobby_view.role() == Role::Spectator { "going" } else { "leaving" });
        Some(UserCommand::Quit)
    }
}
