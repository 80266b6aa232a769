//! `coplay host`, `coplay join` and `coplay watch`: shared games.
//!
//! The [runner](coplay_net::runner) runs the game on the game thread. This module has its front ends (`GameFrontend`),
//! for a window or terminal and headless, and everything before and after the game: tickets, seat keys, finding the
//! host's game and machine, and the summary.

mod chat;
mod errors;
mod find_machine;
mod headless;
mod interactive;
pub(crate) mod lan;
mod link_probe;
mod lobby_view;
pub(crate) mod print_ticket;
pub(crate) mod quit;
pub(crate) mod report;
mod session_history;

use std::sync::Arc;

use coplay::time::TimeDelta;
use coplay_machines::Machine;
use coplay_machines::session_adapter::SharedGameOptions;
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
use coplay_shell::error::AppError;

use crate::cli::delays::{AutoOrFrames, fixed_delays};
use crate::cli::net as cli;
use crate::cli::net::LanVisibility;
use crate::config::UserSettings;
use crate::connect::{self, OwnTicketFn, TransportKind};
use crate::frontend::{self, DisplayOptions};
use crate::game::{self, GameImage};
use crate::netplay_approval::{self, ApprovedMachine};
use crate::seat_key::SeatKey;
use crate::summary::Summary;
use find_machine::MachineSources;
use headless::HeadlessFrontend;
use interactive::{InteractiveFrontend, UiOptions};
use lobby_view::{LobbyView, Role, join_command};

pub use link_probe::probe_link;

/// Time that a joiner waits for the answer of a host, of a site in a maze or of a server before it gives up.
pub(crate) const JOIN_TIMEOUT: TimeDelta = TimeDelta::from_secs(15);

/// Front end of a shared game: a [`Frontend`] of the runner, with functions for the steps before and after the run.
trait GameFrontend: Frontend {
    /// Passes the opened machine to the front end, before the first frame.
    fn on_machine(&mut self, machine: &dyn Machine);

    /// Sets the function that returns the ticket by which others can join this site.
    fn set_own_ticket(&mut self, own: OwnTicketFn);

    /// Takes the notes about devices that cannot be used, for the end of the run.
    fn take_notes(&mut self) -> Vec<String> {
        vec![]
    }
}

/// Outcome of a run; `None` if the user quit before this site was admitted to the game.
type RunResult = Result<Option<RunOutcome>, AppError>;

/// Runs `coplay host`: opens a game and its session, and plays until the end.
pub fn host(args: &cli::HostArgs) -> Result<Summary, AppError> {
    check_player_args(&args.player)?;
    let ApprovedMachine { machine, max_prediction_window, costs, is_checked } = open_host_machine(args)?;
    let title = machine.game_id().name.clone();
    let players = check_player_count(args, &*machine)?;
    let kind = transport_kind(args.udp.as_deref(), args.secret.as_deref(), args.relay.as_ref())?;
    let participant = &args.player.participant;
    let seat = SeatKey::choose(args.player.seat.as_deref(), &kind.seat_group())?;
    let log = report::open_frame_log(&participant.log)?;
    let connection = kind.open(seat.identity.clone())?;
    let recorder = report::open_recorder(&participant.log)?;
    let ticket = (connection.own_ticket)();
    let transport = with_impairment(connection.transport, participant.impair.as_ref())?;
    let host_config = HostConfig {
        name: player_name(participant.name.as_deref()),
        pads: args.pads,
        players,
        session_options: limit_prediction_window(session_options(args.delay, args.prediction)?, max_prediction_window),
        absent_input: args.absent.into(),
        is_private: args.private,
        options: RunOptions { costs, ..run_options(&args.player, args.display) },
    };
    let picture = (1, machine.picture().height, machine.picture().aspect);
    let default_lan = if args.display.headless { LanVisibility::Hide } else { LanVisibility::See };
    let lan = args.lan.unwrap_or(default_lan);
    let _advertisement = lan::announce_game(GameKind::SharedMachine, lan, (&title, &host_config.name), &ticket);
    let display_options = DisplayOptions { title, pictures: picture, ..DisplayOptions::default() };
    if !is_checked && args.machine.core.is_some() {
        let title = &display_options.title;
        eprintln!("note: {title} was not checked on this core; `coplay check` tests whether it can be shared");
    }
    let ticket = ticket.to_string();
    let mut uses = vec![("to join, type:", join_command(&ticket))];
    if !args.private {
        uses.push(("to watch, type:", format!("coplay watch '{ticket}'")));
    }
    print_ticket::print_ticket(&ticket, &uses);
    print_ticket::warn_if_no_network(&*transport, args.udp.as_deref());
    let run = GameRun {
        display: args.display,
        display_options,
        ui_options: ui_options(&args.player, args.pads),
        log: &participant.log,
    };
    run.run(LobbyView::new(Role::Host, ticket), |frontend, _| {
        frontend.on_machine(&*machine);
        frontend.set_own_ticket(connection.own_ticket);
        let runner = PlayerRunner::host(transport, connection.incoming, machine, &host_config);
        let mut runner = runner.map_err(|error| errors::to_app_error(&error))?;
        log.into_iter().for_each(|log| runner.set_frame_log(log));
        recorder.into_iter().for_each(|recorder| runner.set_recorder(recorder));
        to_run_result(runner.run(frontend))
    })
}

/// Runs `coplay join`: takes a seat in the game of a host, and plays until the end. Without a ticket the user chooses a
/// game of the local network; without a terminal these games are only listed.
pub fn join(args: &cli::JoinArgs) -> Result<Summary, AppError> {
    check_player_args(&args.player)?;
    let typed = args.connect.ticket.as_deref();
    let Some(ticket) = lan::choose_ticket(GameKind::SharedMachine, "coplay join", typed)? else {
        return Ok(Summary::default());
    };
    let seat = SeatKey::choose(args.player.seat.as_deref(), &ticket.seat_group())?;
    let participant = &args.player.participant;
    let (log, recorder) = (report::open_frame_log(&participant.log)?, report::open_recorder(&participant.log)?);
    let display_options =
        DisplayOptions { title: "Shared game".into(), pictures: (1, 240, 4.0 / 3.0), ..DisplayOptions::default() };
    let run = GameRun {
        display: args.display,
        display_options,
        ui_options: ui_options(&args.player, args.pads),
        log: &participant.log,
    };
    run.run(LobbyView::new(Role::Joiner, ticket.to_string()), |frontend, config| {
        let join = GameJoin { ticket: &ticket, args: &args.connect, participant, intent: JoinIntent::Play(args.pads) };
        let Some((lobby, shared)) = join.join(&seat, frontend, config)? else { return Ok(None) };
        let options = RunOptions { costs: shared.costs, ..run_options(&args.player, args.display) };
        let runner = lobby.into_player(shared.machine, options);
        let mut runner = runner.map_err(|error| errors::to_app_error(&error))?;
        log.into_iter().for_each(|log| runner.set_frame_log(log));
        recorder.into_iter().for_each(|recorder| runner.set_recorder(recorder));
        to_run_result(runner.run(frontend))
    })
}

/// Runs `coplay watch`: watches the game of a host as a spectator.
pub fn watch(args: &cli::WatchArgs) -> Result<Summary, AppError> {
    let typed = args.connect.ticket.as_deref();
    let Some(ticket) = lan::choose_ticket(GameKind::SharedMachine, "coplay watch", typed)? else {
        return Ok(Summary::default());
    };
    let participant = &args.participant;
    let (log, recorder) = (report::open_frame_log(&participant.log)?, report::open_recorder(&participant.log)?);
    let display_options =
        DisplayOptions { title: "Watching a game".into(), pictures: (1, 240, 4.0 / 3.0), ..DisplayOptions::default() };
    let ui_options = UiOptions { pads: 0, bot_seed: None, drop_timeout_seconds: None };
    let run = GameRun { display: args.display, display_options, ui_options, log: &participant.log };
    run.run(LobbyView::new(Role::Spectator, ticket.to_string()), |frontend, config| {
        let join = GameJoin { ticket: &ticket, args: &args.connect, participant, intent: JoinIntent::Spectate };
        let Some((lobby, shared)) = join.join(&SeatKey::new(), frontend, config)? else { return Ok(None) };
        let runner = lobby.into_spectator(shared.machine, SpectateOptions { frame_limit: participant.log.frames });
        let mut runner = runner.map_err(|error| errors::to_app_error(&error))?;
        log.into_iter().for_each(|log| runner.set_frame_log(log));
        recorder.into_iter().for_each(|recorder| runner.set_recorder(recorder));
        to_run_result(runner.run(frontend))
    })
}

/// Ticket and options with which this site joins or watches the game of a host.
struct GameJoin<'a> {
    ticket: &'a Ticket,
    args: &'a cli::ConnectArgs,
    participant: &'a cli::ParticipantArgs,
    intent: JoinIntent,
}

impl GameJoin<'_> {
    /// Connects to the host and opens its game on the same machine; `None` if the user quit.
    fn join(
        &self,
        seat: &SeatKey,
        frontend: &mut dyn GameFrontend,
        config: &UserSettings,
    ) -> Result<Option<(LobbyConnection, ApprovedMachine)>, AppError> {
        let Self { ticket, args, participant, intent } = *self;
        let connection = connect::open_for_ticket(ticket, seat.identity.clone(), args.relay.clone())?;
        frontend.set_own_ticket(connection.own_ticket.clone());
        let transport = with_impairment(connection.transport, participant.impair.as_ref())?;
        let join_config = JoinConfig {
            name: player_name(participant.name.as_deref()),
            intent,
            addrs: connection.host_addrs,
            expected_peer: connection.expected_key,
            timeout: JOIN_TIMEOUT,
        };
        let lobby = LobbyConnection::connect(transport, connection.incoming, &join_config, frontend);
        let Some(lobby) = lobby.map_err(|error| errors::to_app_error(&error))? else { return Ok(None) };
        let crate::cli::MachineArgs { core, system_dir } = &args.machine;
        let sources = MachineSources {
            game: args.game.as_deref(),
            core: core.as_ref(),
            system_dir: system_dir.as_deref().or(config.system_dir.as_deref()),
            game_dirs: &config.game_dirs,
        };
        open_same_machine(lobby, sources, frontend).map(Some)
    }
}

/// Front end options of a run, and its log files.
struct GameRun<'a> {
    display: cli::OnlineDisplayArgs,
    display_options: DisplayOptions,
    ui_options: UiOptions,
    log: &'a cli::RunOutputArgs,
}

impl GameRun<'_> {
    /// Runs `game` with the front end that the options ask for, and returns the summary. Removes a movie that stayed
    /// empty.
    fn run(
        self,
        lobby_view: LobbyView,
        game: impl FnOnce(&mut dyn GameFrontend, &UserSettings) -> RunResult + Send,
    ) -> Result<Summary, AppError> {
        let log = self.log;
        let result = self.run_with_frontend(lobby_view, game);
        report::remove_empty_movie(log);
        result
    }

    fn run_with_frontend(
        self,
        lobby_view: LobbyView,
        game: impl FnOnce(&mut dyn GameFrontend, &UserSettings) -> RunResult + Send,
    ) -> Result<Summary, AppError> {
        let Self { display, display_options, ui_options, log } = self;
        let mut config = UserSettings::load()?.for_shared_game(ui_options.pads);
        config.scale = display.scale.unwrap_or(config.scale);
        config.mute |= display.mute;
        crate::signals::install_handler();
        let (outcome, notes) = if display.headless {
            let mut headless = HeadlessFrontend::new(lobby_view, ui_options.bot_seed);
            (game(&mut headless, &config)?, headless.take_notes())
        } else {
            let kind = frontend::FrontendKind::choose_required(display.requested_frontend())?;
            frontend::run_with_frontend(kind, &display_options, &config, |ui| {
                let mut interactive = InteractiveFrontend::new(ui, &config, lobby_view, ui_options);
                let outcome = game(&mut interactive, &config)?;
                Ok((outcome, interactive.take_notes()))
            })?
        };
        match outcome {
            Some(outcome) => report::finish(&outcome, log, notes),
            None => Ok(Summary::default().with_notes(notes)),
        }
    }
}

fn to_run_result(result: Result<RunOutcome, RunError>) -> RunResult {
    result.map(Some).map_err(|error| errors::to_app_error(&error))
}

/// Opens the game that is to be hosted, on its machine, in the form in which it may be shared.
fn open_host_machine(args: &cli::HostArgs) -> Result<ApprovedMachine, AppError> {
    let game = args.game.as_deref().map(GameImage::read).transpose()?;
    let opened = game::open_machine(game.as_ref(), &args.machine.spec(&args.core_options, args.players)?)?;
    netplay_approval::shareable(opened.into())
}

/// Limits the initial prediction window of an automatically tuned session to `max` frames, the most that this computer
/// can roll back in time; `None` sets no limit.
fn limit_prediction_window(options: SharedGameOptions, max: Option<u32>) -> SharedGameOptions {
    let max = max.filter(|_| options.auto_delay).unwrap_or(u32::MAX);
    SharedGameOptions { prediction_window: options.prediction_window.min(max), ..options }
}

/// Returns the transport of the flags `--udp`, `--secret` and `--relay`; without flags, iroh with the relay of the
/// settings.
pub(crate) fn transport_kind(
    udp: Option<&str>,
    secret: Option<&str>,
    relay: Option<&RelayConfig>,
) -> Result<TransportKind, AppError> {
    match (udp, relay) {
        (Some(listen), _) => TransportKind::udp(listen, secret),
        (None, Some(relay)) => Ok(TransportKind::iroh(relay.clone())),
        (None, None) => Ok(TransportKind::iroh(UserSettings::load()?.relay)),
    }
}

fn check_player_count(args: &cli::HostArgs, machine: &dyn Machine) -> Result<u8, AppError> {
    let pads = machine.pads().len();
    // By default there is room for one player at another computer, if the machine has a pad for that player.
    let default = (args.pads + 1).max(2).min(pads.try_into().unwrap_or(u8::MAX));
    let players = args.players.unwrap_or(default);
    if usize::from(players) > pads {
        let message = format!("this machine has pads for {pads} players, not for {players}");
        return Err(AppError::usage(message).hint(format!("use --players with a number from 1 to {pads}")));
    }
    if args.pads > players {
        let message = format!("--pads {} is more than the total of {players} players", args.pads);
        return Err(AppError::usage(message).hint("use a larger number for --players, or a smaller one for --pads"));
    }
    Ok(players)
}

/// Returns session options with the fixed input delay and prediction window of the flags, or with automatic ones.
fn session_options(
    delay: Option<AutoOrFrames>,
    prediction: Option<AutoOrFrames>,
) -> Result<SharedGameOptions, AppError> {
    let auto = SharedGameOptions::new(2);
    let fixed = fixed_delays(delay, prediction, (auto.input_delay, auto.prediction_window), None)?;
    Ok(fixed.map_or(auto, |(input_delay, prediction_window)| SharedGameOptions {
        input_delay,
        prediction_window,
        auto_delay: false,
        ..auto
    }))
}

/// Rejects `--go-on-alone` with `--drop-after never`, which contradict each other.
fn check_player_args(player: &cli::PlayerArgs) -> Result<(), AppError> {
    if player.go_on_alone && player.drop_after.0.is_none() {
        let message = "--go-on-alone has no effect with --drop-after never, which waits for silent players forever";
        let hint = "use --drop-after with a number of seconds, or leave out --go-on-alone";
        return Err(AppError::usage(message).hint(hint));
    }
    Ok(())
}

fn run_options(player: &cli::PlayerArgs, display: cli::OnlineDisplayArgs) -> RunOptions {
    let alone_policy = match (player.go_on_alone, display.headless) {
        (true, _) => AlonePolicy::Continue,
        (false, true) => AlonePolicy::Wait,
        (false, false) => AlonePolicy::Ask,
    };
    RunOptions {
        alone_policy,
        frame_limit: player.participant.log.frames,
        drop_timeout: player.drop_after.0,
        stall_limit: player.drop_stalled.0,
        ..RunOptions::default()
    }
}

fn ui_options(player: &cli::PlayerArgs, pads: u8) -> UiOptions {
    let drop_timeout_seconds = player.drop_after.0.map(|timeout| timeout.as_secs_f64());
    UiOptions { pads: usize::from(pads), bot_seed: player.bot, drop_timeout_seconds }
}

/// Returns the name of the player: the given one or the login name, without control characters and cut to
/// [`MAX_NAME_LEN`] bytes; "unnamed" if nothing is left.
pub(crate) fn player_name(given: Option<&str>) -> String {
    let system = || login_name(|name| std::env::var(name).ok());
    let mut name = given.map(str::to_owned).or_else(system).unwrap_or_default();
    name.retain(|character| !character.is_control());
    while name.len() > MAX_NAME_LEN {
        name.pop();
    }
    if name.trim().is_empty() { "unnamed".into() } else { name }
}

/// Returns the login name of the user from the environment; `None` if there is no name but root, which is not a
/// personal name.
fn login_name(env: impl Fn(&str) -> Option<String>) -> Option<String> {
    let names = ["USER", "LOGNAME", "USERNAME"].into_iter().filter_map(env).map(|name| name.trim().to_owned());
    names.into_iter().find(|name| !name.is_empty() && name != "root")
}

/// Wraps a transport in a simulated bad uplink, if `impairment` is given.
pub(crate) fn with_impairment(
    transport: Arc<dyn Transport>,
    impairment: Option<&Impairment>,
) -> Result<Arc<dyn Transport>, AppError> {
    let Some(impairment) = impairment else { return Ok(transport) };
    let impaired = ImpairedTransport::new(transport, impairment.clone()).map_err(|error| {
        AppError::failure(format!("cannot simulate a bad uplink: {error}")).hint("leave out --impair")
    })?;
    Ok(Arc::new(impaired))
}

/// Opens the host's game on the same machine, and passes the machine to the front end. If that fails, leaves the lobby,
/// which frees the seat.
fn open_same_machine(
    lobby: LobbyConnection,
    sources: MachineSources<'_>,
    frontend: &mut dyn GameFrontend,
) -> Result<(LobbyConnection, ApprovedMachine), AppError> {
    let found = find_machine::find_machine(&netplay_approval::unwrapped_settings(lobby.settings()), sources);
    match found.and_then(|machine| netplay_approval::matching_settings(machine, lobby.settings())) {
        Ok(shared) => {
            frontend.on_machine(&*shared.machine);
            Ok((lobby, shared))
        }
        Err(error) => {
            lobby.leave();
            Err(error)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn player_name_defaults_to_the_login_name() {
        let name_with = |env: &[(&str, &str)]| {
            login_name(|name| env.iter().find(|(other, _)| *other == name).map(|(_, value)| (*value).to_owned()))
        };
        assert_eq!(name_with(&[("USER", " ann "), ("LOGNAME", "ben")]).as_deref(), Some("ann"));
        assert_eq!(name_with(&[("USER", " "), ("LOGNAME", "ben")]).as_deref(), Some("ben"));
        assert_eq!(name_with(&[("USER", "root"), ("LOGNAME", "root")]), None);
        assert_eq!((name_with(&[]), player_name(Some("")).as_str()), (None, "unnamed"));
        assert_eq!(player_name(Some("root")), "root", "a name that was given is used");
    }

    #[test]
    fn session_is_automatic_unless_a_delay_is_given() {
        let three = Some(AutoOrFrames::Frames(3));
        assert!(session_options(None, None).unwrap().auto_delay);
        assert!(session_options(Some(AutoOrFrames::Auto), None).unwrap().auto_delay);
        let fixed = session_options(three, Some(AutoOrFrames::Frames(0))).unwrap();
        assert_eq!((fixed.input_delay, fixed.prediction_window, fixed.auto_delay), (3, 0, false));
        let delays = |options: SharedGameOptions| (options.input_delay, options.prediction_window);
        assert_eq!(delays(session_options(three, None).unwrap()), (3, 8));
        assert_eq!(delays(session_options(None, three).unwrap()), (2, 3));
    }

    #[test]
    fn auto_prediction_window_starts_within_the_rollback_budget() {
        let auto = session_options(None, None).unwrap();
        assert_eq!(
            [None, Some(3), Some(20)].map(|max| limit_prediction_window(auto, max).prediction_window),
            [8, 3, 8]
        );
        let fixed = session_options(None, Some(AutoOrFrames::Frames(6))).unwrap();
        assert_eq!(limit_prediction_window(fixed, Some(3)).prediction_window, 6, "a fixed number is not limited");
    }

    #[test]
    fn player_name_is_never_empty_or_too_long() {
        assert_eq!(player_name(Some("An\nn")), "Ann");
        assert!(!player_name(Some("  ")).trim().is_empty() && !player_name(None).is_empty());
        assert!(player_name(Some(&"é".repeat(40))).len() <= MAX_NAME_LEN);
    }
}
