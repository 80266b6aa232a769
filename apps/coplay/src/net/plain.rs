//! Nobody to see it: a line for everything that happens.

use coplay::frame::Frame;
use coplay::input::InputWord;
use coplay::session::Event;
use coplay_machines::Machine;
use coplay_net::runner::{Frontend, RunnerEvent, UserCommand};

use super::Person;
use super::company::{Company, Role, join_command};
use crate::bot::Bot;
use crate::meet::TicketHere;

/// Lines on stderr, and perhaps bots.
pub(super) struct Plain {
    company: Company,
    seed: Option<u64>,
    bots: Vec<Bot>,
    people: String,
    /// It was said that the machine stands still.
    stands: bool,
    leaving: bool,
    /// It was said how to play on alone.
    offered: bool,
}

impl Plain {
    pub(super) fn new(company: Company, seed: Option<u64>) -> Self {
        Self { company, seed, bots: vec![], people: String::new(), stands: false, leaving: false, offered: false }
    }

    /// What others type to come in, when that is something else than before.
    fn show_way_in(&mut self) {
        if self.company.look_for_way_in() {
            say(&format!("to join now:   {}", join_command(self.company.ticket())));
        }
    }
}

/// How the last player left lets the others in again.
fn alone(company: &Company) -> String {
    format!("you play on alone. For {} to come back:   {}", company.gone(), join_command(company.ticket()))
}

fn say(what: &str) {
    eprintln!("{what}");
}

impl Person for Plain {
    fn meet(&mut self, machine: &dyn Machine) {
        let bots = self.seed.map(|seed| bots(seed, machine));
        self.bots = bots.unwrap_or_default();
        let (game, id) = (machine.game_id(), machine.machine_id());
        say(&format!("{} on {} {}", game.name, id.name, id.version));
    }

    fn open_door(&mut self, own: TicketHere) {
        self.company.open_door(own);
    }
}

/// A bot for every pad.
pub(super) fn bots(seed: u64, machine: &dyn Machine) -> Vec<Bot> {
    machine.pads().iter().enumerate().map(|(player, pad)| Bot::nervous(seed, player, pad)).collect()
}

impl Frontend for Plain {
    fn sample_input(&mut self, pads: &mut [InputWord]) {
        pads.iter_mut().zip(&mut self.bots).for_each(|(word, bot)| *word = bot.press());
    }

    fn show_frame(&mut self, _: Frame, machine: &dyn Machine) {
        let stood = std::mem::replace(&mut self.stands, machine.failure().is_some());
        if let Some(why) = machine.failure().filter(|_| !stood) {
            say(&format!("the machine stands still: {why}"));
        }
    }

    fn on_event(&mut self, news: RunnerEvent<'_>) {
        match news {
            RunnerEvent::LobbyChanged(party) => {
                self.company.on_party(party);
                self.show_way_in();
                let people = self.company.people();
                if people != self.people {
                    say(&format!("here: {people}"));
                    self.people = people;
                }
            }
            // Somebody who plays with a bot does not need to know how often it waits a moment.
            RunnerEvent::Session(Event::Frozen(freeze)) => {
                let names: Vec<String> =
                    freeze.waiting_for.iter().map(|site| self.company.name(site.number())).collect();
                say(&format!("waiting for {}", names.join(", ")));
            }
            RunnerEvent::Session(event) => {
                if let Some(words) = self.company.on_event(event) {
                    say(&words);
                }
            }
            RunnerEvent::Chat { name, text: line } => say(&format!("{name}: {line}")),
            RunnerEvent::Note(words) => say(&words),
            RunnerEvent::PlayingAlone => {
                self.show_way_in();
                say(&alone(&self.company));
            }
            RunnerEvent::Status(status) => {
                if let Some(words) = self.company.on_status(status) {
                    say(&words);
                }
                let offered = std::mem::replace(&mut self.offered, status.can_continue_alone);
                if status.can_continue_alone && !offered {
                    say("nobody else is heard; started with --go-on-alone the game goes on without them");
                }
                self.show_way_in();
            }
        }
    }

    fn poll_command(&mut self) -> Option<UserCommand> {
        if self.leaving || !crate::stop::is_asked() {
            return None;
        }
        self.leaving = true;
        say(if self.company.role() == Role::Watcher { "going" } else { "leaving" });
        Some(UserCommand::Quit)
    }
}
