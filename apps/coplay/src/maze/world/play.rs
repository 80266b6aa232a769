//! The loop of somebody who plays on a world, in front of a window or a terminal.

use std::time::Instant;

use coplay::input::InputWord;
use coplay::time::{Instant as Time, TimeDelta};
use coplay_maze::Avatar;
use coplay_maze::render::Camera;
use coplay_net::clock;

use super::graph::History;
use super::link::Link;
use super::news::fall;
use super::table::{name, table};
use crate::config::Config;
use crate::desk::{Can, Desk};
use crate::gamepad::Gamepads;
use crate::maze::controls::{controls, keys, pad};
use crate::maze::stage::{Eyes, Shown, Sight, between, fallen_since};
use crate::scene::{Command, Overlay};
use crate::stage::Stage;
use crate::trouble::Trouble;

/// Pictures are this far apart: about 60 in a second.
const DRAW_EVERY: TimeDelta = TimeDelta::from_micros(16_667);

/// Somebody who plays.
struct Player<'a> {
    stage: Stage,
    desk: Desk,
    link: &'a mut Link,
    eyes: Eyes,
    history: History,
    graph: bool,
    pressed: InputWord,
}

/// Plays on a stage until the person has enough or the time is up; what was missing is said at the end.
pub(super) fn play(
    stage: Stage,
    config: &Config,
    link: &mut Link,
    seconds: Option<u32>,
) -> Result<Vec<String>, Trouble> {
    let pads = [pad()];
    let mut desk = Desk::new(config, Can { graph: true, silent: true, ..Can::default() }, &pads);
    let note = Gamepads::new(config, &pads, stage.hands().clone()).start();
    desk.say(Instant::now(), keys(config));
    let eyes = Eyes::new(Instant::now());
    let mut player = Player { stage, desk, link, eyes, history: History::default(), graph: false, pressed: 0 };
    let end = seconds.map(|seconds| clock::now() + TimeDelta::from_secs(seconds.into()));
    while !player.is_over() && end.is_none_or(|end| clock::now() < end) {
        player.go_on(clock::now())?;
    }
    Ok(note.into_iter().collect())
}

/// What is shown while no server is heard.
fn waiting(silence: TimeDelta) -> Overlay {
    let rows = vec![("no server is heard".into(), format!("for {:.0} s", silence.as_secs_f64()))];
    Overlay {
        title: "Waiting for a server".into(),
        rows,
        chosen: None,
        foot: "it goes on when one is back   F10 leave".into(),
    }
}

impl Player<'_> {
    /// Takes what the person wants; whether that is to end.
    fn is_over(&mut self) -> bool {
        while !self.desk.is_over()
            && let Some(command) = self.stage.poll_command()
        {
            match command {
                Command::Graph => self.graph = !self.graph,
                command => _ = self.desk.handle(Instant::now(), command),
            }
        }
        self.desk.is_over()
    }

    /// From one picture to the next.
    fn go_on(&mut self, now: Time) -> Result<(), Trouble> {
        self.pressed = self.stage.hands().look()[0];
        self.link.client.set_controls(now, controls(self.pressed));
        let news = self.link.news();
        if !news.is_empty() {
            self.desk.say(Instant::now(), news.join("; "));
        }
        self.history.look(now, &self.link.client);
        self.draw(now);
        self.link.exchange(now + DRAW_EVERY)
    }

    fn draw(&mut self, now: Time) {
        let Self { stage, desk, link, eyes, history, graph, .. } = self;
        let client = &link.client;
        let Some(rules) = client.rules() else { return };
        let status = link.status();
        let name = |entity| name(client, entity);
        let camera = client.last_step().map(|([before, after], part)| {
            let at = |(position, heading)| Camera { position, heading };
            between(at(before), at(after), part)
        });
        let fall = fall(client);
        let own = client.own_entity().zip(client.avatar()).zip(camera);
        let sight = own.zip(client.tick(now)).map(|(((me, own), camera), tick)| {
            let shown = |(entity, avatar): (_, &Avatar)| Shown { entity, avatar: avatar.clone(), tick };
            Sight {
                rules,
                me,
                camera,
                shown: client.others().chain([(me, own)]).map(shown).collect(),
                name: &name,
                fallen: fallen_since(own).map(|since| (fall.as_str(), tick.saturating_sub(since))),
            }
        });
        stage.show(|scene| {
            desk.draw(Instant::now(), scene);
            scene.overlay = scene.overlay.take().or_else(|| link.silence().map(waiting));
            scene.table = table(client);
            scene.graph = graph.then(|| history.graph());
            eyes.draw_sight(sight.as_ref(), (rules, &status), scene);
        });
    }
}
