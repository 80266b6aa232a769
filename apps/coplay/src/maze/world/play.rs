//! Interactive loop of a player in a server world, with a window or terminal front end.

use std::time::Instant;

use coplay::input::InputWord;
use coplay::time::{Instant as Time, TimeDelta};
use coplay_maze::Avatar;
use coplay_maze::render::Camera;
use coplay_net::clock;
use coplay_shell::error::AppError;

use super::notices::hit_text;
use super::score_table::{display_name, score_table};
use super::server_history::ServerHistory;
use super::server_link::ServerLink;
use crate::config::{Action, UserSettings};
use crate::gamepad::Gamepads;
use crate::hud::{Hud, HudCapabilities};
use crate::maze::controls::{controls_from_word, key_help, maze_pad};
use crate::maze::renderer::{MazeRenderer, MazeView, VisibleAvatar, dead_since, interpolate_camera};
use crate::scene::{Overlay, UiCommand, join_footer, key_hint};
use crate::ui_link::GamePort;

/// Interval between redraws, for 60 pictures per second.
const DRAW_INTERVAL: TimeDelta = TimeDelta::from_micros(16_667);

/// Interactive game of a person: link to the servers, renderer and user interface.
struct WorldPlayer<'a> {
    ui: GamePort,
    hud: Hud,
    link: &'a mut ServerLink,
    renderer: MazeRenderer,
    history: ServerHistory,
    is_graph_shown: bool,
    pressed: InputWord,
    /// Label of the key that quits, for panels.
    quit_key: String,
}

/// Plays until the user quits or the time is up. Returns notes for the summary about gamepads that cannot be used.
pub(super) fn play(
    ui: GamePort,
    config: &UserSettings,
    link: &mut ServerLink,
    seconds: Option<u32>,
) -> Result<Vec<String>, AppError> {
    let pads = [maze_pad()];
    let mut hud =
        Hud::new(config, HudCapabilities { graph: true, no_sound: true, ..HudCapabilities::default() }, &pads);
    let note = Gamepads::new(config, &pads, ui.input_state().clone()).start();
    hud.show_toast(Instant::now(), key_help(config));
    let renderer = MazeRenderer::new(Instant::now());
    let quit_key = config.key_label(Action::Quit);
    let history = ServerHistory::default();
    let mut player = WorldPlayer { ui, hud, link, renderer, history, is_graph_shown: false, pressed: 0, quit_key };
    let end = seconds.map(|seconds| clock::now() + TimeDelta::from_secs(seconds.into()));
    while !player.process_commands() && end.is_none_or(|end| clock::now() < end) {
        player.run_once(clock::now())?;
    }
    Ok(note.into_iter().collect())
}

/// Returns the panel that is shown while no server responds.
fn waiting_overlay(silence: TimeDelta, quit_key: &str) -> Overlay {
    let rows = vec![("no server has responded".into(), format!("for {:.0} s", silence.as_secs_f64()))];
    Overlay {
        title: "Waiting for a server".into(),
        rows,
        selected: None,
        footer: join_footer(&["the game resumes when a server responds".into(), key_hint(quit_key, "leave")]),
    }
}

impl WorldPlayer<'_> {
    /// Handles the user's commands. Returns whether the user quits.
    fn process_commands(&mut self) -> bool {
        while !self.hud.is_quit_requested()
            && let Some(command) = self.ui.poll_command()
        {
            match command {
                UiCommand::Graph => self.is_graph_shown = !self.is_graph_shown,
                command => _ = self.hud.handle_command(Instant::now(), command),
            }
        }
        self.hud.is_quit_requested()
    }

    /// Reads the buttons, draws a picture, and exchanges datagrams until the next redraw is due.
    fn run_once(&mut self, now: Time) -> Result<(), AppError> {
        self.pressed = self.ui.input_state().sample()[0];
        self.link.client.set_controls(now, controls_from_word(self.pressed));
        let notices = self.link.notices();
        if !notices.is_empty() {
            self.hud.show_toast(Instant::now(), notices.join("; "));
        }
        self.history.sample_if_due(now, &self.link.client);
        self.draw(now);
        self.link.exchange(now + DRAW_INTERVAL)
    }

    fn draw(&mut self, now: Time) {
        let Self { ui, hud, link, renderer, history, is_graph_shown, quit_key, .. } = self;
        let client = &link.client;
        let Some(rules) = client.rules() else { return };
        let status = link.status();
        let name = |entity| display_name(client, entity);
        let camera = client.last_step().map(|([before, after], fraction)| {
            let at = |(position, heading)| Camera { position, heading };
            interpolate_camera(at(before), at(after), fraction)
        });
        let hit_notice = hit_text(client);
        let own = client.own_entity().zip(client.avatar()).zip(camera);
        let view = own.zip(client.tick(now)).map(|(((own_entity, own), camera), tick)| {
            let shown = |(entity, avatar): (_, &Avatar)| VisibleAvatar { entity, avatar: avatar.clone(), tick };
            MazeView {
                rules,
                own_entity,
                camera,
                avatars: client.others().chain([(own_entity, own)]).map(shown).collect(),
                name: &name,
                death: dead_since(own).map(|since| (hit_notice.as_str(), tick.saturating_sub(since))),
            }
        });
        ui.show(|scene| {
            hud.draw(Instant::now(), scene);
            scene.overlay =
                scene.overlay.take().or_else(|| link.silence().map(|silence| waiting_overlay(silence, quit_key)));
            scene.table = score_table(client);
            scene.graph = is_graph_shown.then(|| history.graph());
            renderer.draw_maze_view(view.as_ref(), (rules, &status), scene);
            scene.table_header = "hits : falls, D";
        });
    }
}
