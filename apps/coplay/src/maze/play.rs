//! The loop of somebody who plays in a maze, in front of a window or a terminal, and of nobody who does.

use std::time::Instant;

use coplay::input::InputWord;
use coplay::time::{Instant as Time, TimeDelta};
use coplay_maze::MazeSite;

use super::controls::{controls_from_word, key_help, maze_pad};
use super::net::MazeNet;
use super::renderer::MazeRenderer;
use super::scoreboard_view::ScoreboardView;
use crate::config::Config;
use crate::error::AppError;
use crate::gamepad::Gamepads;
use crate::hud::{Hud, HudCapabilities};
use crate::scene::UiCommand;
use crate::ui_link::GamePort;

/// Pictures are this far apart: about 60 in a second.
const DRAW_INTERVAL: TimeDelta = TimeDelta::from_micros(16_667);
/// Somebody outside who wants us to end does not wait longer than this.
const POLL_INTERVAL: TimeDelta = TimeDelta::from_millis(50);

/// Somebody who plays.
struct MazePlayer<'a, N> {
    ui: GamePort,
    hud: Hud,
    game: &'a mut MazeSite,
    net: &'a mut N,
    renderer: MazeRenderer,
    scoreboard_view: ScoreboardView,
    /// What was pressed since the last tick: also a short press counts.
    pressed_since_tick: InputWord,
    next_draw: Time,
}

/// Plays on a stage until the person has enough or the time is up; what was missing is said at the end. The game stays as it is then: leaving
/// is for who opened it.
pub fn play(
    stage: GamePort,
    config: &Config,
    game: &mut MazeSite,
    net: &mut impl MazeNet,
    seconds: Option<u32>,
) -> Result<Vec<String>, AppError> {
    let pads = [maze_pad()];
    let can = HudCapabilities { pause: net.can_pause(), graph: true, no_sound: true, ..HudCapabilities::default() };
    let mut desk = Hud::new(config, can, &pads);
    let note = Gamepads::new(config, &pads, stage.input_state().clone()).start();
    let begun = net.now();
    desk.show_toast(Instant::now(), key_help(config));
    net.invitation().into_iter().for_each(|invitation| desk.invite(invitation));
    let eyes = MazeRenderer::new(Instant::now());
    let mut player = MazePlayer {
        ui: stage,
        hud: desk,
        game,
        net,
        renderer: eyes,
        scoreboard_view: ScoreboardView::new(true),
        pressed_since_tick: 0,
        next_draw: begun,
    };
    let end = seconds.map(|seconds| begun + TimeDelta::from_secs(seconds.into()));
    while !player.process_commands() && end.is_none_or(|end| player.net.now() < end) {
        player.run_once()?;
    }
    Ok(note.into_iter().collect())
}

/// Lets a game go on that nobody looks at, until then or until somebody asks us to end.
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
    /// Takes what the person wants; whether that is to end.
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
        if let Some(words) = self.scoreboard_view.poll_notice(self.game) {
            self.hud.show_toast(Instant::now(), words);
        }
    }

    /// Time does not pass in the maze, but what lies over it can be read.
    fn draw_paused(&mut self) {
        let begun = Instant::now();
        self.draw(self.net.now());
        let spent = begun.elapsed();
        std::thread::sleep(DRAW_INTERVAL.to_duration().saturating_sub(spent));
        self.net.add_pause(begun.elapsed());
    }

    fn draw(&mut self, now: Time) {
        let Self { ui: stage, hud: desk, game, net, renderer: eyes, scoreboard_view: board, .. } = self;
        stage.show(|scene| {
            desk.draw(Instant::now(), scene);
            eyes.draw(now, game, board, &net.status(), scene);
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
        let (stage, mut view) = ui_link();
        let mut net = SoloNet::in_virtual_time();
        let mut game = game(&net);
        let begun = game.avatar(0).unwrap().position;
        view.input_state().set_pad(0, Button::A.bit());
        view.input_state().set_pad(0, 0);
        view.input_state().set_keys(0, Button::Up.bit());
        play(stage, &Config::default(), &mut game, &mut net, Some(1)).unwrap();
        let own = game.avatar(0).unwrap();
        assert_eq!(own.shots.last_number(), 1);
        assert!(own.position.distance(begun) > 100, "{}", own.position.distance(begun));
        assert!(view.refresh_scene() && view.scene().screens.len() == 1);
        assert!(view.scene().toast.as_deref().is_some_and(|toast| toast.contains("walk")));
    }

    #[test]
    fn game_ends_when_the_frontend_is_gone() {
        let (stage, view) = ui_link();
        let mut net = SoloNet::in_virtual_time();
        let mut game = game(&net);
        drop(view);
        play(stage, &Config::default(), &mut game, &mut net, None).unwrap();
        assert_eq!(game.tick(), None);
    }
}
