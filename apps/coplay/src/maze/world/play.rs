//! The loop of somebody who plays on a world, in front of a window or a terminal.

use std::time::Instant;

use coplay::input::InputWord;
use coplay::time::{Instant as Time, TimeDelta};
use coplay_maze::Avatar;
use coplay_maze::render::Camera;
use coplay_net::clock;

use super::notices::hit_text;
use super::score_table::{display_name, score_table};
use super::server_history::ServerHistory;
use super::server_link::ServerLink;
use crate::config::Config;
use crate::error::AppError;
use crate::gamepad::Gamepads;
use crate::hud::{Hud, HudCapabilities};
use crate::maze::controls::{controls_from_word, key_help, maze_pad};
use crate::maze::renderer::{MazeRenderer, MazeView, VisibleAvatar, dead_since, interpolate_camera};
use crate::scene::{Overlay, UiCommand};
use crate::ui_link::GamePort;

/// Pictures are this far apart: about 60 in a second.
const DRAW_INTERVAL: TimeDelta = TimeDelta::from_micros(16_667);

/// Somebody who plays.
struct WorldPlayer<'a> {
    ui: GamePort,
    hud: Hud,
    link: &'a mut ServerLink,
    renderer: MazeRenderer,
    history: ServerHistory,
    is_graph_shown: bool,
    pressed: InputWord,
}

/// Plays on a stage until the person has enough or the time is up; what was missing is said at the end.
pub(super) fn play(
    stage: GamePort,
    config: &Config,
    link: &mut ServerLink,
    seconds: Option<u32>,
) -> Result<Vec<String>, AppError> {
    let pads = [maze_pad()];
    let mut desk =
        Hud::new(config, HudCapabilities { graph: true, no_sound: true, ..HudCapabilities::default() }, &pads);
    let note = Gamepads::new(config, &pads, stage.input_state().clone()).start();
    desk.show_toast(Instant::now(), key_help(config));
    let eyes = MazeRenderer::new(Instant::now());
    let mut player = WorldPlayer {
        ui: stage,
        hud: desk,
        link,
        renderer: eyes,
        history: ServerHistory::default(),
        is_graph_shown: false,
        pressed: 0,
    };
    let end = seconds.map(|seconds| clock::now() + TimeDelta::from_secs(seconds.into()));
    while !player.process_commands() && end.is_none_or(|end| clock::now() < end) {
        player.run_once(clock::now())?;
    }
    Ok(note.into_iter().collect())
}

/// What is shown while no server is heard.
fn waiting_overlay(silence: TimeDelta) -> Overlay {
    let rows = vec![("no server is heard".into(), format!("for {:.0} s", silence.as_secs_f64()))];
    Overlay {
        title: "Waiting for a server".into(),
        rows,
        selected: None,
        footer: "it goes on when one is back   F10 leave".into(),
    }
}

impl WorldPlayer<'_> {
    /// Takes what the person wants; whether that is to end.
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

    /// From one picture to the next.
    fn run_once(&mut self, now: Time) -> Result<(), AppError> {
        self.pressed = self.ui.input_state().sample()[0];
        self.link.client.set_controls(now, controls_from_word(self.pressed));
        let news = self.link.notices();
        if !news.is_empty() {
            self.hud.show_toast(Instant::now(), news.join("; "));
        }
        self.history.sample_if_due(now, &self.link.client);
        self.draw(now);
        self.link.exchange(now + DRAW_INTERVAL)
    }

    fn draw(&mut self, now: Time) {
        let Self { ui: stage, hud: desk, link, renderer: eyes, history, is_graph_shown: graph, .. } = self;
        let client = &link.client;
        let Some(rules) = client.rules() else { return };
        let status = link.status();
        let name = |entity| display_name(client, entity);
        let camera = client.last_step().map(|([before, after], part)| {
            let at = |(position, heading)| Camera { position, heading };
            interpolate_camera(at(before), at(after), part)
        });
        let fall = hit_text(client);
        let own = client.own_entity().zip(client.avatar()).zip(camera);
        let sight = own.zip(client.tick(now)).map(|(((me, own), camera), tick)| {
            let shown = |(entity, avatar): (_, &Avatar)| VisibleAvatar { entity, avatar: avatar.clone(), tick };
            MazeView {
                rules,
                own_entity: me,
                camera,
                avatars: client.others().chain([(me, own)]).map(shown).collect(),
                name: &name,
                death: dead_since(own).map(|since| (fall.as_str(), tick.saturating_sub(since))),
            }
        });
        stage.show(|scene| {
            desk.draw(Instant::now(), scene);
            scene.overlay = scene.overlay.take().or_else(|| link.silence().map(waiting_overlay));
            scene.table = score_table(client);
            scene.graph = graph.then(|| history.graph());
            eyes.draw_maze_view(sight.as_ref(), (rules, &status), scene);
        });
    }
}
