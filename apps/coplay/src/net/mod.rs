//! `coplay host`, `coplay join` and `coplay watch`: games with others.
//!
//! The [drive](coplay_net::drive) runs the game on the game's thread. Here is who sits in front of it (`Person`): a person at a window or a
//! terminal, or lines of text and a bot; and everything before and after: tickets, keys, finding the same game, what it came to.

pub(crate) mod announce;
mod chat;
mod errors;
mod find_machine;
mod headless;
mod interactive;
pub(crate) mod lan;
mod link_probe;
mod lobby_view;
pub(crate) mod quit;
pub(crate) mod report;
mod session_history;

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
use crate::cli::net::{AutoOrFrames, LanVisibility};
use crate::config::Config;
use crate::connect::{self, TicketSource, TransportKind};
use crate::error::AppError;
use crate::frontend::{self, DisplayOptions};
use crate::game::{self, GameImage};
use crate::seat_key::SeatKey;
use crate::sharing::{self, ShareableMachine};
use crate::summary::Summary;
use find_machine::MachineSources;
use headless::HeadlessFrontend;
use interactive::{InteractiveFrontend, UiOptions};
use lobby_view::{LobbyView, Role, join_command};

pub use link_probe::probe_link;

/// How long a guest knocks.
pub(crate) const JOIN_TIMEOUT: TimeDelta = TimeDelta::from_secs(15);

/// Whoever sits in front of a game.
trait GameFrontend: Frontend {
    /// This machine is played on.
    fn on_machine(&mut self, machine: &dyn Machine);

    /// There is a way to us, which this ticket tells.
    fn set_own_ticket(&mut self, own: TicketSource);

    /// What was missing, to be told at the end.
    fn take_notes(&mut self) -> Vec<String> {
        vec![]
    }
}

/// What a game came to; `None` if somebody changed their mind before.
type RunResult = Result<Option<RunOutcome>, AppError>;

/// `coplay host`.
pub fn host(args: &cli::HostArgs) -> Result<Summary, AppError> {
    check_player_args(&args.player)?;
    let ShareableMachine { machine, max_prediction_window: window, costs, is_checked: checked } =
        open_host_machine(args)?;
    let title = machine.game_id().name.clone();
    let players = check_player_count(args, &*machine)?;
    let way = transport_kind(args.udp.as_deref(), args.secret.as_deref(), args.relay.as_ref())?;
    let presence = &args.player.participant;
    let seat = SeatKey::choose(args.player.seat.as_deref(), &way.seat_group())?;
    let log = report::open_frame_log(&presence.log)?;
    let line = way.open(seat.identity.clone())?;
    let tape = report::open_recorder(&presence.log)?;
    let ticket = (line.own_ticket)();
    let transport = with_impairment(line.transport, presence.impair.as_ref())?;
    let plan = HostConfig {
        name: player_name(presence.name.as_deref()),
        pads: args.pads,
        players,
        session_options: limit_prediction_window(session_options(args.input_delay, args.prediction_window)?, window),
        absent_input: args.absent.into(),
        is_private: args.private,
        options: RunOptions { costs, ..run_options(&args.player, args.display) },
    };
    let picture = (1, machine.picture().height, machine.picture().aspect);
    let usual = if args.display.headless { LanVisibility::Hide } else { LanVisibility::See };
    let _sign = lan::announce_game(GameKind::SharedMachine, args.lan.unwrap_or(usual), (&title, &plan.name), &ticket);
    let look = DisplayOptions { title, pictures: picture, ..DisplayOptions::default() };
    if !checked && args.machine.core.is_some() {
        eprintln!("note: {} was not checked yet: `coplay check` says whether it is fit to be shared", look.title);
    }
    let ticket = ticket.to_string();
    let uses = [("to join, a friend types:", join_command(&ticket)), ("to watch:", format!("coplay watch '{ticket}'"))];
    announce::print_ticket(&ticket, &uses);
    announce::warn_if_no_network(&*transport, args.udp.as_deref());
    let setting = GameRun {
        display: args.display,
        display_options: look,
        ui_options: ui_options(&args.player, args.pads),
        log: &presence.log,
    };
    setting.run(LobbyView::new(Role::Host, ticket), |person, _| {
        person.on_machine(&*machine);
        person.set_own_ticket(line.own_ticket);
        let drive = PlayerRunner::host(transport, line.incoming, machine, &plan);
        let mut drive = drive.map_err(|failure| errors::to_app_error(&failure))?;
        log.into_iter().for_each(|log| drive.set_frame_log(log));
        tape.into_iter().for_each(|tape| drive.set_recorder(tape));
        to_run_result(drive.run(person))
    })
}

/// `coplay join`.
pub fn join(args: &cli::JoinArgs) -> Result<Summary, AppError> {
    check_player_args(&args.player)?;
    let Some(ticket) = lan::choose_ticket(GameKind::SharedMachine, args.connect.ticket.as_deref())? else {
        return Ok(Summary::default());
    };
    let seat = SeatKey::choose(args.player.seat.as_deref(), &ticket.seat_group())?;
    let presence = &args.player.participant;
    let (log, tape) = (report::open_frame_log(&presence.log)?, report::open_recorder(&presence.log)?);
    let look = DisplayOptions {
        title: "a game with others".into(),
        pictures: (1, 240, 4.0 / 3.0),
        ..DisplayOptions::default()
    };
    let setting = GameRun {
        display: args.display,
        display_options: look,
        ui_options: ui_options(&args.player, args.pads),
        log: &presence.log,
    };
    setting.run(LobbyView::new(Role::Joiner, ticket.to_string()), |person, config| {
        let visit = GameJoin {
            ticket: &ticket,
            args: &args.connect,
            participant: presence,
            intent: JoinIntent::Play(args.pads),
        };
        let Some((guest, shared)) = visit.join(&seat, person, config)? else { return Ok(None) };
        let drive = guest
            .into_player(shared.machine, RunOptions { costs: shared.costs, ..run_options(&args.player, args.display) });
        let mut drive = drive.map_err(|failure| errors::to_app_error(&failure))?;
        log.into_iter().for_each(|log| drive.set_frame_log(log));
        tape.into_iter().for_each(|tape| drive.set_recorder(tape));
        to_run_result(drive.run(person))
    })
}

/// `coplay watch`.
pub fn watch(args: &cli::WatchArgs) -> Result<Summary, AppError> {
    let Some(ticket) = lan::choose_ticket(GameKind::SharedMachine, args.connect.ticket.as_deref())? else {
        return Ok(Summary::default());
    };
    let presence = &args.participant;
    let (log, tape) = (report::open_frame_log(&presence.log)?, report::open_recorder(&presence.log)?);
    let look = DisplayOptions { title: "watching".into(), pictures: (1, 240, 4.0 / 3.0), ..DisplayOptions::default() };
    let habits = UiOptions { pads: 0, bot_seed: None, drop_timeout_seconds: None };
    let setting = GameRun { display: args.display, display_options: look, ui_options: habits, log: &presence.log };
    setting.run(LobbyView::new(Role::Spectator, ticket.to_string()), |person, config| {
        let visit =
            GameJoin { ticket: &ticket, args: &args.connect, participant: presence, intent: JoinIntent::Spectate };
        let Some((guest, shared)) = visit.join(&SeatKey::new(), person, config)? else { return Ok(None) };
        let watch = guest.into_spectator(shared.machine, SpectateOptions { frame_limit: presence.log.frames });
        let mut watch = watch.map_err(|failure| errors::to_app_error(&failure))?;
        log.into_iter().for_each(|log| watch.set_frame_log(log));
        tape.into_iter().for_each(|tape| watch.set_recorder(tape));
        to_run_result(watch.run(person))
    })
}

/// Coming to the game of somebody else.
struct GameJoin<'a> {
    ticket: &'a Ticket,
    args: &'a cli::ConnectArgs,
    participant: &'a cli::ParticipantArgs,
    intent: JoinIntent,
}

impl GameJoin<'_> {
    /// Knocks, and finds what is played there; `None` if somebody changed their mind.
    fn join(
        &self,
        seat: &SeatKey,
        person: &mut dyn GameFrontend,
        config: &Config,
    ) -> Result<Option<(LobbyConnection, ShareableMachine)>, AppError> {
        let Self { ticket, args: come, participant: presence, intent: wish } = *self;
        let line = connect::open_for_ticket(ticket, seat.identity.clone(), come.relay.clone())?;
        person.set_own_ticket(line.own_ticket.clone());
        let transport = with_impairment(line.transport, presence.impair.as_ref())?;
        let name = player_name(presence.name.as_deref());
        let plan = JoinConfig {
            name,
            intent: wish,
            addrs: line.host_addrs,
            expected_peer: line.expected_key,
            timeout: JOIN_TIMEOUT,
        };
        let guest = LobbyConnection::connect(transport, line.incoming, &plan, person);
        let Some(guest) = guest.map_err(|failure| errors::to_app_error(&failure))? else { return Ok(None) };
        let crate::cli::MachineArgs { core, system_dir: system } = &come.machine;
        let system = system.as_deref().or(config.system_dir.as_deref());
        let sources = MachineSources {
            game: come.game.as_deref(),
            core: core.as_ref(),
            system_dir: system,
            game_dirs: &config.game_dirs,
        };
        open_same_machine(guest, sources, person).map(Some)
    }
}

/// Where a game is seen, and what is written down of it.
struct GameRun<'a> {
    display: cli::OnlineDisplayArgs,
    display_options: DisplayOptions,
    ui_options: UiOptions,
    log: &'a cli::LogArgs,
}

impl GameRun<'_> {
    /// Runs a game in front of whoever is there.
    fn run(
        self,
        company: LobbyView,
        game: impl FnOnce(&mut dyn GameFrontend, &Config) -> RunResult + Send,
    ) -> Result<Summary, AppError> {
        let log = self.log;
        let ran = self.run_with_frontend(company, game);
        report::remove_empty_movie(log);
        ran
    }

    fn run_with_frontend(
        self,
        company: LobbyView,
        game: impl FnOnce(&mut dyn GameFrontend, &Config) -> RunResult + Send,
    ) -> Result<Summary, AppError> {
        let Self { display: view, display_options: look, ui_options: habits, log } = self;
        let mut config = Config::load()?.for_shared_game(habits.pads);
        config.scale = view.scale.unwrap_or(config.scale);
        config.mute |= view.mute;
        crate::signals::install_handler();
        let (ran, notes) = if view.headless {
            let mut plain = HeadlessFrontend::new(company, habits.bot_seed);
            (game(&mut plain, &config)?, plain.take_notes())
        } else {
            let front = frontend::FrontendKind::choose_required(view.requested_frontend())?;
            frontend::run_with_frontend(front, &look, &config, |stage| {
                let mut screen = InteractiveFrontend::new(stage, &config, company, habits);
                let ran = game(&mut screen, &config)?;
                Ok((ran, screen.take_notes()))
            })?
        };
        match ran {
            Some(outcome) => report::finish(&outcome, log, notes),
            None => Ok(Summary::default().with_notes(notes)),
        }
    }
}

fn to_run_result(ran: Result<RunOutcome, RunError>) -> RunResult {
    ran.map(Some).map_err(|failure| errors::to_app_error(&failure))
}

/// The host's game on its machine, as it may be shared.
fn open_host_machine(args: &cli::HostArgs) -> Result<ShareableMachine, AppError> {
    let game = args.game.as_deref().map(GameImage::read).transpose()?;
    let opened = game::open_machine(game.as_ref(), &args.machine.spec(&args.core_options, args.players)?)?;
    sharing::shareable(opened.into())
}

/// Where the dials turn by themselves, they begin with no more than can be repaired in time.
fn limit_prediction_window(terms: SessionOptions, most: Option<u32>) -> SessionOptions {
    let window = terms.prediction_window.min(most.filter(|_| terms.auto_delay).unwrap_or(u32::MAX));
    SessionOptions { prediction_window: window, ..terms }
}

/// How others come in.
pub(crate) fn transport_kind(
    udp: Option<&str>,
    secret: Option<&str>,
    relay: Option<&RelayConfig>,
) -> Result<TransportKind, AppError> {
    match (udp, relay) {
        (Some(listen), _) => TransportKind::udp(listen, secret),
        (None, Some(relay)) => Ok(TransportKind::iroh(relay.clone())),
        (None, None) => Ok(TransportKind::iroh(Config::load()?.relay)),
    }
}

fn check_player_count(args: &cli::HostArgs, machine: &dyn Machine) -> Result<u8, AppError> {
    let pads = machine.pads().len();
    // Two unless something else is said, but not more than there is room for.
    let usual = (args.pads + 1).max(2).min(pads.try_into().unwrap_or(u8::MAX));
    let players = args.players.unwrap_or(usual);
    if usize::from(players) > pads {
        let what = format!("this machine has pads for {pads}, not for {players}");
        return Err(AppError::usage(what).hint(format!("say --players with 1 to {pads}")));
    }
    if args.pads > players {
        let what = format!("{} cannot play here if {players} play in all", args.pads);
        return Err(AppError::usage(what).hint("say more --players, or fewer --pads"));
    }
    Ok(players)
}

/// Lag and window: fixed where a number is said, otherwise both turn by themselves. They turn together or not at all.
fn session_options(lag: Option<AutoOrFrames>, window: Option<AutoOrFrames>) -> Result<SessionOptions, AppError> {
    let usual = SessionOptions::new(2);
    let (lag, window) = match (lag, window) {
        (None | Some(AutoOrFrames::Auto), None | Some(AutoOrFrames::Auto)) => return Ok(usual),
        (Some(AutoOrFrames::Frames(lag)), Some(AutoOrFrames::Frames(window))) => (lag, window),
        (Some(AutoOrFrames::Frames(lag)), None) => (lag, usual.prediction_window),
        (None, Some(AutoOrFrames::Frames(window))) => (usual.input_delay, window),
        (Some(AutoOrFrames::Auto), Some(AutoOrFrames::Frames(_)))
        | (Some(AutoOrFrames::Frames(_)), Some(AutoOrFrames::Auto)) => {
            return Err(AppError::usage("--lag and --window turn by themselves together, or not at all")
                .hint("give numbers for both, or leave both out"));
        }
    };
    Ok(SessionOptions { input_delay: lag, prediction_window: window, auto_delay: false, ..usual })
}

/// Refuses flags that contradict each other.
fn check_player_args(part: &cli::PlayerArgs) -> Result<(), AppError> {
    if part.go_on_alone && part.drop_after.0.is_none() {
        let what = "--go-on-alone does nothing with --drop-after never, which waits for silent players for ever";
        return Err(AppError::usage(what).hint("say --drop-after with a number of seconds, or leave --go-on-alone out"));
    }
    Ok(())
}

fn run_options(part: &cli::PlayerArgs, view: cli::OnlineDisplayArgs) -> RunOptions {
    let alone = match (part.go_on_alone, view.headless) {
        (true, _) => AlonePolicy::Continue,
        (false, true) => AlonePolicy::Wait,
        (false, false) => AlonePolicy::Ask,
    };
    RunOptions {
        alone_policy: alone,
        frame_limit: part.participant.log.frames,
        drop_timeout: part.drop_after.0,
        stall_limit: part.late_after.0,
        ..RunOptions::default()
    }
}

fn ui_options(part: &cli::PlayerArgs, pads: u8) -> UiOptions {
    let patience = part.drop_after.0.map(|patience| patience.as_secs_f64());
    UiOptions { pads: usize::from(pads), bot_seed: part.bot, drop_timeout_seconds: patience }
}

/// What to call somebody who does not say.
pub(crate) fn player_name(said: Option<&str>) -> String {
    let system = || login_name(|name| std::env::var(name).ok());
    let mut name = said.map(str::to_owned).or_else(system).unwrap_or_default();
    name.retain(|sign| !sign.is_control());
    while name.len() > MAX_NAME_LEN {
        name.pop();
    }
    if name.trim().is_empty() { "somebody".into() } else { name }
}

/// The name that somebody has at this computer, by what is set there; many are called root, who are none.
fn login_name(set: impl Fn(&str) -> Option<String>) -> Option<String> {
    let names = ["USER", "LOGNAME", "USERNAME"].into_iter().filter_map(set).map(|name| name.trim().to_owned());
    names.into_iter().find(|name| !name.is_empty() && name != "root")
}

/// A transport as it is, or as if its way out were worse.
pub(crate) fn with_impairment(
    transport: Arc<dyn Transport>,
    impairment: Option<&Impairment>,
) -> Result<Arc<dyn Transport>, AppError> {
    let Some(impairment) = impairment else { return Ok(transport) };
    let impaired = ImpairedTransport::new(transport, impairment.clone()).map_err(|error| {
        AppError::failure(format!("the way out cannot be made worse: {error}")).hint("try it without --impair")
    })?;
    Ok(Arc::new(impaired))
}

/// Finds what is played there; who has it not gives the seat back.
fn open_same_machine(
    guest: LobbyConnection,
    sources: MachineSources<'_>,
    person: &mut dyn GameFrontend,
) -> Result<(LobbyConnection, ShareableMachine), AppError> {
    let found = find_machine::find_machine(&sharing::unwrapped_settings(guest.settings()), sources);
    match found.and_then(|machine| sharing::matching_settings(machine, guest.settings())) {
        Ok(shared) => {
            person.on_machine(&*shared.machine);
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
    fn player_name_defaults_to_the_login_name() {
        let called = |set: &[(&str, &str)]| {
            login_name(|name| set.iter().find(|(other, _)| *other == name).map(|(_, value)| (*value).to_owned()))
        };
        assert_eq!(called(&[("USER", " ann "), ("LOGNAME", "ben")]).as_deref(), Some("ann"));
        assert_eq!(called(&[("USER", " "), ("LOGNAME", "ben")]).as_deref(), Some("ben"));
        assert_eq!(called(&[("USER", "root"), ("LOGNAME", "root")]), None);
        assert_eq!((called(&[]), player_name(Some("")).as_str()), (None, "somebody"));
        assert_eq!(player_name(Some("root")), "root", "who says so is called so");
    }

    #[test]
    fn input_delay_and_prediction_window_are_both_auto_or_both_fixed() {
        let (auto, three) = (Some(AutoOrFrames::Auto), Some(AutoOrFrames::Frames(3)));
        assert!(
            session_options(None, None).unwrap().auto_delay
                && session_options(auto, None).unwrap().auto_delay
                && session_options(auto, auto).unwrap().auto_delay
        );
        let fixed = session_options(three, Some(AutoOrFrames::Frames(0))).unwrap();
        assert_eq!((fixed.input_delay, fixed.prediction_window, fixed.auto_delay), (3, 0, false));
        assert_eq!(
            (
                session_options(three, None).unwrap().input_delay,
                session_options(None, three).unwrap().prediction_window
            ),
            (3, 3)
        );
        assert!(session_options(auto, three).is_err() && session_options(three, auto).is_err());
    }

    #[test]
    fn auto_prediction_window_starts_within_the_rollback_budget() {
        let auto = session_options(None, None).unwrap();
        assert_eq!(
            [None, Some(3), Some(20)].map(|most| limit_prediction_window(auto, most).prediction_window),
            [8, 3, 8]
        );
        let fixed = session_options(None, Some(AutoOrFrames::Frames(6))).unwrap();
        assert_eq!(limit_prediction_window(fixed, Some(3)).prediction_window, 6, "who says a number means it");
    }

    #[test]
    fn player_name_is_never_empty_or_too_long() {
        assert_eq!(player_name(Some("An\nn")), "Ann");
        assert!(!player_name(Some("  ")).trim().is_empty() && !player_name(None).is_empty());
        assert!(player_name(Some(&"é".repeat(40))).len() <= MAX_NAME_LEN);
    }
}
