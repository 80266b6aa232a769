//! The loop of somebody who plays in a maze, in front of a window or a terminal, and of nobody who does.

use std::time::Instant;

use coplay::input::InputWord;
use coplay::time::{Instant as Time, TimeDelta};
use coplay_maze::MazeSite;

use super::board::Board;
use super::controls::{controls, keys, pad};
use super::net::MazeNet;
use super::stage::Eyes;
use crate::config::Config;
use crate::desk::{Can, Desk};
use crate::gamepad::Gamepads;
use crate::scene::Command;
use crate::stage::Stage;
use crate::trouble::Trouble;

/// Pictures are this far apart: about 60 in a second.
const DRAW_EVERY: TimeDelta = TimeDelta::from_micros(16_667);
/// Somebody outside who wants us to end does not wait longer than this.
const LOOK_EVERY: TimeDelta = TimeDelta::from_millis(50);

/// Somebody who plays.
struct Player<'a, N> {
    stage: Stage,
    desk: Desk,
    game: &'a mut MazeSite,
    net: &'a mut N,
    eyes: Eyes,
    board: Board,
    /// What was pressed since the last tick: also a short press counts.
    pressed: InputWord,
    next_draw: Time,
}

/// Plays on a stage until the person has enough or the time is up; what was missing is said at the end. The game stays as it is then: leaving
/// is for who opened it.
pub fn play(
    stage: Stage,
    config: &Config,
    game: &mut MazeSite,
    net: &mut impl MazeNet,
    seconds: Option<u32>,
) -> Result<Vec<String>, Trouble> {
    let pads = [pad()];
    let can = Can { pause: net.can_pause(), graph: true, silent: true, ..Can::default() };
    let mut desk = Desk::new(config, can, &pads);
    let note = Gamepads::new(config, &pads, stage.hands().clone()).start();
    let begun = net.now();
    desk.say(Instant::now(), keys(config));
    net.invitation().into_iter().for_each(|invitation| desk.invite(invitation));
    let eyes = Eyes::new(Instant::now());
    let mut player = Player { stage, desk, game, net, eyes, board: Board::new(true), pressed: 0, next_draw: begun };
    let end = seconds.map(|seconds| begun + TimeDelta::from_secs(seconds.into()));
    while !player.is_over() && end.is_none_or(|end| player.net.now() < end) {
        player.go_on()?;
    }
    Ok(note.into_iter().collect())
}

/// Lets a game go on that nobody looks at, until then or until somebody asks us to end.
pub fn advance_until(game: &mut MazeSite, net: &mut impl MazeNet, end: Time) -> Result<(), Trouble> {
    while net.now() < end && !crate::stop::is_asked() {
        let now = net.now();
        game.advance(now);
        let next = game.poll_timeout(now).min(now + LOOK_EVERY).min(end);
        net.exchange(game, next)?;
    }
    Ok(())
}

impl<N: MazeNet> Player<'_, N> {
    /// Takes what the person wants; whether that is to end.
    fn is_over(&mut self) -> bool {
        while !self.desk.is_over()
            && let Some(command) = self.stage.poll_command()
        {
            match command {
                Command::Graph => self.eyes.toggle_graph(),
                command => _ = self.desk.handle(Instant::now(), command),
            }
        }
        self.desk.is_over()
    }

    fn go_on(&mut self) -> Result<(), Trouble> {
        if self.desk.is_still() {
            self.stand_still();
            return Ok(());
        }
        let now = self.net.now();
        self.advance(now);
        if now >= self.next_draw {
            self.draw(now);
            self.next_draw = (self.next_draw + DRAW_EVERY).max(now);
        }
        let next = self.game.poll_timeout(now).min(self.next_draw);
        self.net.exchange(self.game, next)
    }

    fn advance(&mut self, now: Time) {
        self.pressed |= self.stage.hands().look()[0];
        self.game.set_controls(controls(self.pressed));
        let tick = self.game.tick();
        self.game.advance(now);
        if self.game.tick() != tick {
            self.pressed = 0;
        }
        self.eyes.follow(now, self.game);
        if let Some(words) = self.board.hear(self.game) {
            self.desk.say(Instant::now(), words);
        }
    }

    /// Time does not pass in the maze, but what lies over it can be read.
    fn stand_still(&mut self) {
        let begun = Instant::now();
        self.draw(self.net.now());
        let spent = begun.elapsed();
        std::thread::sleep(DRAW_EVERY.to_duration().saturating_sub(spent));
        self.net.pause(begun.elapsed());
    }

    fn draw(&mut self, now: Time) {
        let Self { stage, desk, game, net, eyes, board, .. } = self;
        stage.show(|scene| {
            desk.draw(Instant::now(), scene);
            eyes.draw(now, game, board, &net.status(), scene);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::maze::Alone;
    use crate::stage::stage;
    use coplay::peer_world::{UpdatePolicy, WorldSiteId};
    use coplay_machines::pad::Button;
    use coplay_maze::MazeSettings;

    fn game(net: &Alone) -> MazeSite {
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
    fn a_short_press_fires_once_and_a_long_one_walks() {
        let (stage, mut view) = stage();
        let mut net = Alone::in_virtual_time();
        let mut game = game(&net);
        let begun = game.avatar(0).unwrap().position;
        view.hands().set_pad(0, Button::A.bit());
        view.hands().set_pad(0, 0);
        view.hands().set_keys(0, Button::Up.bit());
        play(stage, &Config::default(), &mut game, &mut net, Some(1)).unwrap();
        let own = game.avatar(0).unwrap();
        assert_eq!(own.shots.last_number(), 1);
        assert!(own.position.distance(begun) > 100, "{}", own.position.distance(begun));
        assert!(view.look() && view.scene().screens.len() == 1);
        assert!(view.scene().toast.as_deref().is_some_and(|toast| toast.contains("walk")));
    }

    #[test]
    fn it_ends_when_nobody_looks_any_more() {
        let (stage, view) = stage();
        let mut net = Alone::in_virtual_time();
        let mut game = game(&net);
        drop(view);
        play(stage, &Config::default(), &mut game, &mut net, None).unwrap();
        assert_eq!(game.tick(), None);
    }
}
