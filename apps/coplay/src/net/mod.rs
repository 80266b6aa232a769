//! `coplay host`, `coplay join` and `coplay watch`: games with others.
//!
//! The [drive](coplay_net::drive) runs the game on the game's thread. Here is who sits in front of it (`Person`): a person at a window or a
//! terminal, or lines of text and a bot; and everything before and after: tickets, keys, finding the same game, what it came to.

pub(crate) mod announce;
mod chat;
mod company;
mod failure;
mod find;
mod graph;
pub(crate) mod lan;
mod plain;
pub(crate) mod quit;
pub(crate) mod report;
mod screen;
mod survey;

use std::sync::Arc;

use coplay::time::TimeDelta;
use coplay_machines::Machine;
use coplay_machines::session_adapter::SessionOptions;
use coplay_net::Transport;
use coplay_net::impair::{ImpairedTransport, Impairment};
use coplay_net::iroh::RelayConfig;
use coplay_net::lan::GameKind;
use coplay_net::lobby::{JoinIntent, MAX_NAME_LEN};
use coplay_net::runner::{
    AlonePolicy, Frontend, HostConfig, JoinConfig, LobbyConnection, PlayerRunner, RunError, RunOptions, RunOutcome,
    SpectateOptions,
};
use coplay_net::ticket::Ticket;

use crate::cli::net as cli;
use crate::cli::net::{Dial, Lan};
use crate::config::Config;
use crate::front::{self, Look};
use crate::game::{self, Game};
use crate::meet::{self, TicketHere, Way};
use crate::seat::Seat;
use crate::sharing::{self, Shared};
use crate::summary::Summary;
use crate::trouble::Trouble;
use company::{Company, Role, join_command};
use find::Sources;
use plain::Plain;
use screen::{Habits, Screen};

pub use survey::survey;

/// How long a guest knocks.
pub(crate) const PATIENCE: TimeDelta = TimeDelta::from_secs(15);

/// Whoever sits in front of a game.
trait Person: Frontend {
    /// This machine is played on.
    fn meet(&mut self, machine: &dyn Machine);

    /// There is a way to us, which this ticket tells.
    fn open_door(&mut self, own: TicketHere);

    /// What was missing, to be told at the end.
    fn notes(&mut self) -> Vec<String> {
        vec![]
    }
}

/// What a game came to; `None` if somebody changed their mind before.
type Ran = Result<Option<RunOutcome>, Trouble>;

/// `coplay host`.
pub fn host(args: &cli::Host) -> Result<Summary, Trouble> {
    check_part(&args.part)?;
    let Shared { machine, window, costs, checked } = open(args)?;
    let title = machine.game_id().name.clone();
    let players = check_players(args, &*machine)?;
    let way = way(args.udp.as_deref(), args.secret.as_deref(), args.relay.as_ref())?;
    let presence = &args.part.presence;
    let seat = Seat::choose(args.part.seat.as_deref(), &way.group())?;
    let log = report::frame_log(&presence.log)?;
    let line = way.open(seat.identity.clone())?;
    let tape = report::tape(&presence.log)?;
    let ticket = (line.ticket)();
    let transport = impaired(line.transport, presence.impair.as_ref())?;
    let plan = HostConfig {
        name: name(presence.name.as_deref()),
        pads: args.pads,
        players,
        session_options: within(terms(args.lag, args.window)?, window),
        absent_input: args.absent.into(),
        is_private: args.private,
        options: RunOptions { costs, ..manner(&args.part, args.view) },
    };
    let picture = (1, machine.picture().height, machine.picture().aspect);
    let usual = if args.view.headless { Lan::Hide } else { Lan::See };
    let _sign = lan::tell(GameKind::SharedMachine, args.lan.unwrap_or(usual), (&title, &plan.name), &ticket);
    let look = Look { title, pictures: picture, ..Look::default() };
    if !checked && args.machine.core.is_some() {
        eprintln!("note: {} was not checked yet: `coplay check` says whether it is fit to be shared", look.title);
    }
    let ticket = ticket.to_string();
    let uses = [("to join, a friend types:", join_command(&ticket)), ("to watch:", format!("coplay watch '{ticket}'"))];
    announce::announce(&ticket, &uses);
    announce::warn_if_alone(&*transport, args.udp.as_deref());
    let setting = Setting { view: args.view, look, habits: habits(&args.part, args.pads), log: &presence.log };
    setting.run(Company::new(Role::Host, ticket), |person, _| {
        person.meet(&*machine);
        person.open_door(line.ticket);
        let drive = PlayerRunner::host(transport, line.incoming, machine, &plan);
        let mut drive = drive.map_err(|failure| failure::trouble(&failure))?;
        log.into_iter().for_each(|log| drive.set_frame_log(log));
        tape.into_iter().for_each(|tape| drive.set_recorder(tape));
        told(drive.run(person))
    })
}

/// `coplay join`.
pub fn join(args: &cli::Join) -> Result<Summary, Trouble> {
    check_part(&args.part)?;
    let Some(ticket) = lan::ticket(GameKind::SharedMachine, args.come.ticket.as_deref())? else {
        return Ok(Summary::default());
    };
    let seat = Seat::choose(args.part.seat.as_deref(), &ticket.seat_group())?;
    let presence = &args.part.presence;
    let (log, tape) = (report::frame_log(&presence.log)?, report::tape(&presence.log)?);
    let look = Look { title: "a game with others".into(), pictures: (1, 240, 4.0 / 3.0), ..Look::default() };
    let setting = Setting { view: args.view, look, habits: habits(&args.part, args.pads), log: &presence.log };
    setting.run(Company::new(Role::Guest, ticket.to_string()), |person, config| {
        let visit = Visit { ticket: &ticket, come: &args.come, presence, wish: JoinIntent::Play(args.pads) };
        let Some((guest, shared)) = visit.come_in(&seat, person, config)? else { return Ok(None) };
        let drive =
            guest.into_player(shared.machine, RunOptions { costs: shared.costs, ..manner(&args.part, args.view) });
        let mut drive = drive.map_err(|failure| failure::trouble(&failure))?;
        log.into_iter().for_each(|log| drive.set_frame_log(log));
        tape.into_iter().for_each(|tape| drive.set_recorder(tape));
        told(drive.run(person))
    })
}

/// `coplay watch`.
pub fn watch(args: &cli::Watch) -> Result<Summary, Trouble> {
    let Some(ticket) = lan::ticket(GameKind::SharedMachine, args.come.ticket.as_deref())? else {
        return Ok(Summary::default());
    };
    let presence = &args.presence;
    let (log, tape) = (report::frame_log(&presence.log)?, report::tape(&presence.log)?);
    let look = Look { title: "watching".into(), pictures: (1, 240, 4.0 / 3.0), ..Look::default() };
    let habits = Habits { pads: 0, seed: None, patience: None };
    let setting = Setting { view: args.view, look, habits, log: &presence.log };
    setting.run(Company::new(Role::Watcher, ticket.to_string()), |person, config| {
        let visit = Visit { ticket: &ticket, come: &args.come, presence, wish: JoinIntent::Spectate };
        let Some((guest, shared)) = visit.come_in(&Seat::new(), person, config)? else { return Ok(None) };
        let watch = guest.into_spectator(shared.machine, SpectateOptions { frame_limit: presence.log.frames });
        let mut watch = watch.map_err(|failure| failure::trouble(&failure))?;
        log.into_iter().for_each(|log| watch.set_frame_log(log));
        tape.into_iter().for_each(|tape| watch.set_recorder(tape));
        told(watch.run(person))
    })
}

/// Coming to the game of somebody else.
struct Visit<'a> {
    ticket: &'a Ticket,
    come: &'a cli::Come,
    presence: &'a cli::Presence,
    wish: JoinIntent,
}

impl Visit<'_> {
    /// Knocks, and finds what is played there; `None` if somebody changed their mind.
    fn come_in(
        &self,
        seat: &Seat,
        person: &mut dyn Person,
        config: &Config,
    ) -> Result<Option<(LobbyConnection, Shared)>, Trouble> {
        let Self { ticket, come, presence, wish } = *self;
        let line = meet::call(ticket, seat.identity.clone(), come.relay.clone())?;
        person.open_door(line.ticket.clone());
        let transport = impaired(line.transport, presence.impair.as_ref())?;
        let name = name(presence.name.as_deref());
        let plan = JoinConfig { name, intent: wish, addrs: line.places, expected_peer: line.expect, timeout: PATIENCE };
        let guest = LobbyConnection::connect(transport, line.incoming, &plan, person);
        let Some(guest) = guest.map_err(|failure| failure::trouble(&failure))? else { return Ok(None) };
        let crate::cli::Machine { core, system } = &come.machine;
        let system = system.as_deref().or(config.system.as_deref());
        let sources = Sources { game: come.game.as_deref(), core: core.as_ref(), system, folders: &config.games };
        equip(guest, sources, person).map(Some)
    }
}

/// Where a game is seen, and what is written down of it.
struct Setting<'a> {
    view: cli::View,
    look: Look,
    habits: Habits,
    log: &'a cli::Log,
}

impl Setting<'_> {
    /// Runs a game in front of whoever is there.
    fn run(
        self,
        company: Company,
        game: impl FnOnce(&mut dyn Person, &Config) -> Ran + Send,
    ) -> Result<Summary, Trouble> {
        let log = self.log;
        let ran = self.run_here(company, game);
        report::tidy(log);
        ran
    }

    fn run_here(
        self,
        company: Company,
        game: impl FnOnce(&mut dyn Person, &Config) -> Ran + Send,
    ) -> Result<Summary, Trouble> {
        let Self { view, look, habits, log } = self;
        let mut config = Config::load()?.with_others(habits.pads);
        config.scale = view.scale.unwrap_or(config.scale);
        config.mute |= view.mute;
        crate::stop::listen();
        let (ran, notes) = if view.headless {
            let mut plain = Plain::new(company, habits.seed);
            (game(&mut plain, &config)?, plain.notes())
        } else {
            let front = front::Front::need(view.asked())?;
            front::show(front, &look, &config, |stage| {
                let mut screen = Screen::new(stage, &config, company, habits);
                let ran = game(&mut screen, &config)?;
                Ok((ran, screen.notes()))
            })?
        };
        match ran {
            Some(outcome) => report::finish(&outcome, log, notes),
            None => Ok(Summary::default().with_notes(notes)),
        }
    }
}

fn told(ran: Result<RunOutcome, RunError>) -> Ran {
    ran.map(Some).map_err(|failure| failure::trouble(&failure))
}

/// The host's game on its machine, as it may be shared.
fn open(args: &cli::Host) -> Result<Shared, Trouble> {
    let game = args.game.as_deref().map(Game::read).transpose()?;
    let opened = game::open(game.as_ref(), &args.machine.wanted(&args.setup, args.players)?)?;
    sharing::shared(opened.into())
}

/// Where the dials turn by themselves, they begin with no more than can be repaired in time.
fn within(terms: SessionOptions, most: Option<u32>) -> SessionOptions {
    let window = terms.prediction_window.min(most.filter(|_| terms.auto_delay).unwrap_or(u32::MAX));
    SessionOptions { prediction_window: window, ..terms }
}

/// How others come in.
pub(crate) fn way(udp: Option<&str>, secret: Option<&str>, relay: Option<&RelayConfig>) -> Result<Way, Trouble> {
    match (udp, relay) {
        (Some(listen), _) => Way::udp(listen, secret),
        (None, Some(relay)) => Ok(Way::iroh(relay.clone())),
        (None, None) => Ok(Way::iroh(Config::load()?.relay)),
    }
}

fn check_players(args: &cli::Host, machine: &dyn Machine) -> Result<u8, Trouble> {
    let pads = machine.pads().len();
    // Two unless something else is said, but not more than there is room for.
    let usual = (args.pads + 1).max(2).min(pads.try_into().unwrap_or(u8::MAX));
    let players = args.players.unwrap_or(usual);
    if usize::from(players) > pads {
        let what = format!("this machine has pads for {pads}, not for {players}");
        return Err(Trouble::misuse(what).hint(format!("say --players with 1 to {pads}")));
    }
    if args.pads > players {
        let what = format!("{} cannot play here if {players} play in all", args.pads);
        return Err(Trouble::misuse(what).hint("say more --players, or fewer --pads"));
    }
    Ok(players)
}

/// Lag and window: fixed where a number is said, otherwise both turn by themselves. They turn together or not at all.
fn terms(lag: Option<Dial>, window: Option<Dial>) -> Result<SessionOptions, Trouble> {
    let usual = SessionOptions::new(2);
    let (lag, window) = match (lag, window) {
        (None | Some(Dial::Auto), None | Some(Dial::Auto)) => return Ok(usual),
        (Some(Dial::Frames(lag)), Some(Dial::Frames(window))) => (lag, window),
        (Some(Dial::Frames(lag)), None) => (lag, usual.prediction_window),
        (None, Some(Dial::Frames(window))) => (usual.input_delay, window),
        (Some(Dial::Auto), Some(Dial::Frames(_))) | (Some(Dial::Frames(_)), Some(Dial::Auto)) => {
            return Err(Trouble::misuse("--lag and --window turn by themselves together, or not at all")
                .hint("give numbers for both, or leave both out"));
        }
    };
    Ok(SessionOptions { input_delay: lag, prediction_window: window, auto_delay: false, ..usual })
}

/// Refuses flags that contradict each other.
fn check_part(part: &cli::Part) -> Result<(), Trouble> {
    if part.go_on_alone && part.drop_after.0.is_none() {
        let what = "--go-on-alone does nothing with --drop-after never, which waits for silent players for ever";
        return Err(Trouble::misuse(what).hint("say --drop-after with a number of seconds, or leave --go-on-alone out"));
    }
    Ok(())
}

fn manner(part: &cli::Part, view: cli::View) -> RunOptions {
    let alone = match (part.go_on_alone, view.headless) {
        (true, _) => AlonePolicy::Continue,
        (false, true) => AlonePolicy::Wait,
        (false, false) => AlonePolicy::Ask,
    };
    RunOptions {
        alone_policy: alone,
        frame_limit: part.presence.log.frames,
        drop_timeout: part.drop_after.0,
        stall_limit: part.late_after.0,
        ..RunOptions::default()
    }
}

fn habits(part: &cli::Part, pads: u8) -> Habits {
    let patience = part.drop_after.0.map(|patience| patience.as_secs_f64());
    Habits { pads: usize::from(pads), seed: part.bot, patience }
}

/// What to call somebody who does not say.
pub(crate) fn name(said: Option<&str>) -> String {
    let system = || login(|name| std::env::var(name).ok());
    let mut name = said.map(str::to_owned).or_else(system).unwrap_or_default();
    name.retain(|sign| !sign.is_control());
    while name.len() > MAX_NAME_LEN {
        name.pop();
    }
    if name.trim().is_empty() { "somebody".into() } else { name }
}

/// The name that somebody has at this computer, by what is set there; many are called root, who are none.
fn login(set: impl Fn(&str) -> Option<String>) -> Option<String> {
    let names = ["USER", "LOGNAME", "USERNAME"].into_iter().filter_map(set).map(|name| name.trim().to_owned());
    names.into_iter().find(|name| !name.is_empty() && name != "root")
}

/// A transport as it is, or as if its way out were worse.
pub(crate) fn impaired(
    transport: Arc<dyn Transport>,
    impairment: Option<&Impairment>,
) -> Result<Arc<dyn Transport>, Trouble> {
    let Some(impairment) = impairment else { return Ok(transport) };
    let impaired = ImpairedTransport::new(transport, impairment.clone()).map_err(|error| {
        Trouble::failure(format!("the way out cannot be made worse: {error}")).hint("try it without --impair")
    })?;
    Ok(Arc::new(impaired))
}

/// Finds what is played there; who has it not gives the seat back.
fn equip(
    guest: LobbyConnection,
    sources: Sources<'_>,
    person: &mut dyn Person,
) -> Result<(LobbyConnection, Shared), Trouble> {
    let found = find::machine(&sharing::plain(guest.settings()), sources);
    match found.and_then(|machine| sharing::like_theirs(machine, guest.settings())) {
        Ok(shared) => {
            person.meet(&*shared.machine);
            Ok((guest, shared))
        }
        Err(trouble) => {
            guest.leave();
            Err(trouble)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_says_no_name_is_called_as_at_this_computer() {
        let called = |set: &[(&str, &str)]| {
            login(|name| set.iter().find(|(other, _)| *other == name).map(|(_, value)| (*value).to_owned()))
        };
        assert_eq!(called(&[("USER", " ann "), ("LOGNAME", "ben")]).as_deref(), Some("ann"));
        assert_eq!(called(&[("USER", " "), ("LOGNAME", "ben")]).as_deref(), Some("ben"));
        assert_eq!(called(&[("USER", "root"), ("LOGNAME", "root")]), None);
        assert_eq!((called(&[]), name(Some("")).as_str()), (None, "somebody"));
        assert_eq!(name(Some("root")), "root", "who says so is called so");
    }

    #[test]
    fn dials_turn_together_or_not_at_all() {
        let (auto, three) = (Some(Dial::Auto), Some(Dial::Frames(3)));
        assert!(
            terms(None, None).unwrap().auto_delay
                && terms(auto, None).unwrap().auto_delay
                && terms(auto, auto).unwrap().auto_delay
        );
        let fixed = terms(three, Some(Dial::Frames(0))).unwrap();
        assert_eq!((fixed.input_delay, fixed.prediction_window, fixed.auto_delay), (3, 0, false));
        assert_eq!((terms(three, None).unwrap().input_delay, terms(None, three).unwrap().prediction_window), (3, 3));
        assert!(terms(auto, three).is_err() && terms(three, auto).is_err());
    }

    #[test]
    fn dials_that_turn_by_themselves_begin_with_what_can_be_repaired() {
        let auto = terms(None, None).unwrap();
        assert_eq!([None, Some(3), Some(20)].map(|most| within(auto, most).prediction_window), [8, 3, 8]);
        let fixed = terms(None, Some(Dial::Frames(6))).unwrap();
        assert_eq!(within(fixed, Some(3)).prediction_window, 6, "who says a number means it");
    }

    #[test]
    fn everybody_is_called_something() {
        assert_eq!(name(Some("An\nn")), "Ann");
        assert!(!name(Some("  ")).trim().is_empty() && !name(None).is_empty());
        assert!(name(Some(&"é".repeat(40))).len() <= MAX_NAME_LEN);
    }
}
