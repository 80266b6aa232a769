//! Main loops of a serverless maze: interactive with a window or terminal front end, and headless.

use std::time::Instant;

use coplay::input::InputWord;
use coplay::time::{Instant as Time, TimeDelta};
use coplay_maze::MazeSite;
use coplay_shell::error::AppError;

use super::controls::{controls_from_word, key_help, maze_pad};
use super::net::MazeNet;
use super::renderer::MazeRenderer;
use super::scoreboard_view::ScoreboardView;
use crate::config::UserSettings;
use crate::gamepad::Gamepads;
use crate::hud::{Hud, HudCapabilities};
use crate::scene::UiCommand;
use crate::ui_link::GamePort;

/// Interval between redraws, for 60 pictures per second.
const DRAW_INTERVAL: TimeDelta = TimeDelta::from_micros(16_667);
/// Interval at which a headless run checks for stop signals.
const POLL_INTERVAL: TimeDelta = TimeDelta::from_millis(50);

/// Interactive game of a person: game, network, renderer and user interface.
struct MazePlayer<'a, N> {
    ui: GamePort,
    hud: Hud,
    game: &'a mut MazeSite,
    net: &'a mut N,
    renderer: MazeRenderer,
    scoreboard_view: ScoreboardView,
    /// Buttons pressed since the last tick, so that presses shorter than a tick count.
    pressed_since_tick: InputWord,
    next_draw: Time,
}

/// Plays until the user quits or the time is up. Returns notes for the summary about gamepads that cannot be used. Does
/// not leave the maze: that is up to the caller.
pub fn play(
    ui: GamePort,
    config: &UserSettings,
    game: &mut MazeSite,
    net: &mut impl MazeNet,
    seconds: Option<u32>,
) -> Result<Vec<String>, AppError> {
    let pads = [maze_pad()];
    let capabilities =
        HudCapabilities { pause: net.can_pause(), graph: true, no_sound: true, ..HudCapabilities::default() };
    let mut hud = Hud::new(config, capabilities, &pads);
    let note = Gamepads::new(config, &pads, ui.input_state().clone()).start();
    let started = net.now();
    hud.show_toast(Instant::now(), key_help(config));
    net.invitation().into_iter().for_each(|invitation| hud.invite(invitation));
    let renderer = MazeRenderer::new(Instant::now());
    let mut player = MazePlayer {
        ui,
        hud,
        game,
        net,
        renderer,
        scoreboard_view: ScoreboardView::new(true),
        pressed_since_tick: 0,
        next_draw: started,
    };
    let end = seconds.map(|seconds| started + TimeDelta::from_secs(seconds.into()));
    while !player.process_commands() && end.is_none_or(|end| player.net.now() < end) {
        player.run_once()?;
    }
    Ok(note.into_iter().collect())
}

/// Advances a game without a front end until `end` or until a stop signal.
pub fn advance_until(game: &mut MazeSite, net: &mut impl MazeNet, end: Time) -> Result<(), AppError> {
    while net.now() < end && !crate::signals::is_stop_requested() {
        let now = net.now();
        game.advance(now);
        let next = game.poll_timeout(now).min(now + POLL_INTERVAL).min(end);
        net.exchange(game, next)?;
    }
    Ok(())
}

impl<N: MazeNet> MazePlayer<'_, N> {
    /// Handles the user's commands. Returns whether the user quits.
    fn process_commands(&mut self) -> bool {
        while !self.hud.is_quit_requested()
            && let Some(command) = self.ui.poll_command()
        {
            match command {
                UiCommand::Graph => self.renderer.toggle_graph(),
                command => _ = self.hud.handle_command(Instant::now(), command),
            }
        }
        self.hud.is_quit_requested()
    }

    fn run_once(&mut self) -> Result<(), AppError> {
        if self.hud.is_paused() {
            self.draw_paused();
            return Ok(());
        }
        let now = self.net.now();
        self.advance(now);
        if now >= self.next_draw {
            self.draw(now);
            self.next_draw = (self.next_draw + DRAW_INTERVAL).max(now);
        }
        let next = self.game.poll_timeout(now).min(self.next_draw);
        self.net.exchange(self.game, next)
    }

    fn advance(&mut self, now: Time) {
        self.pressed_since_tick |= self.ui.input_state().sample()[0];
        self.game.set_controls(controls_from_word(self.pressed_since_tick));
        let tick = self.game.tick();
        self.game.advance(now);
        if self.game.tick() != tick {
            self.pressed_since_tick = 0;
        }
        self.renderer.on_advance(now, self.game);
        if let Some(notice) = self.scoreboard_view.poll_notice(self.game) {
            self.hud.show_toast(Instant::now(), notice);
        }
    }

    /// Redraws while the game is paused, waits for one redraw interval, and excludes that time from the game time.
    fn draw_paused(&mut self) {
        let started = Instant::now();
        self.draw(self.net.now());
        let spent = started.elapsed();
        std::thread::sleep(DRAW_INTERVAL.to_duration().saturating_sub(spent));
        self.net.add_pause(started.elapsed());
    }

    fn draw(&mut self, now: Time) {
        let Self { ui, hud, game, net, renderer, scoreboard_view, .. } = self;
        ui.show(|scene| {
            hud.draw(Instant::now(), scene);
            renderer.draw(now, game, scoreboard_view, &net.status(), scene);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::maze::SoloNet;
    use crate::ui_link::ui_link;
    use coplay::peer_world::{UpdatePolicy, WorldSiteId};
    use coplay_machines::pad::Button;
    use coplay_maze::MazeSettings;

    fn game(net: &SoloNet) -> MazeSite {
        MazeSite::new(
            net.now(),
            WorldSiteId(1),
            true,
            &MazeSettings::default(),
            UpdatePolicy::default(),
            (Some("Ann"), 0),
        )
        .unwrap()
    }

    #[test]
    fn short_press_fires_once_and_held_key_walks() {
        let (ui, mut frontend_port) = ui_link();
        let mut net = SoloNet::in_virtual_time();
        let mut game = game(&net);
        let start = game.avatar(0).unwrap().position;
        frontend_port.input_state().set_pad(0, Button::A.bit());
        frontend_port.input_state().set_pad(0, 0);
        frontend_port.input_state().set_keys(0, Button::Up.bit());
        play(ui, &UserSettings::default(), &mut game, &mut net, Some(1)).unwrap();
        let own = game.avatar(0).unwrap();
        assert_eq!(own.shots.last_number(), 1);
        assert!(own.position.distance(start) > 100, "{}", own.position.distance(start));
        assert!(frontend_port.refresh_scene() && frontend_port.scene().screens.len() == 1);
        assert!(frontend_port.scene().toast.as_deref().is_some_and(|toast| toast.contains("walk")));
    }

    #[test]
    fn game_ends_when_the_frontend_is_gone() {
        let (ui, frontend_port) = ui_link();
        let mut net = SoloNet::in_virtual_time();
        let mut game = game(&net);
        drop(frontend_port);
        play(ui, &UserSettings::default(), &mut game, &mut net, None).unwrap();
        assert_eq!(game.tick(), None);
    }
}
