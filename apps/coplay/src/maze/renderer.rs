//! Draws a maze into a scene: first-person view, map in its corner, name labels and scores.
//!
//! In a serverless maze, avatars of this site are shown at the current tick, and remote avatars at an earlier tick: the
//! view delay gives their updates time to arrive.

use std::time::Instant;

use coplay::peer_world::EntityId;
use coplay::time::Instant as Time;
use coplay_machines::Picture;
use coplay_maze::angle::shortest_turn;
use coplay_maze::render::{Camera, Canvas, Shape, Sprite, draw_map, draw_view, name_position, player_colour};
use coplay_maze::{Avatar, Life, MazeRules, MazeSite, Position, RESPAWN_TICKS, TICKS_PER_SECOND};

use super::peer_history::PeerHistory;
use super::scoreboard_view::{ScoreboardView, TABLE_HEADER};
use crate::rate_meter::RateMeter;
use crate::scene::{Label, Overlay, Scene, Screen};

/// Width of the first-person view, in pixels.
pub const VIEW_WIDTH: usize = 576;
/// Height of the first-person view, in pixels.
pub const VIEW_HEIGHT: usize = 360;
/// Side of the square map, in pixels.
const MAP_SIZE: usize = 152;
/// Margin between the map and the edges of the view, in pixels.
const MAP_MARGIN: usize = 8;

/// Avatar to draw, with the tick of its state.
pub(super) struct VisibleAvatar {
    pub(super) entity: EntityId,
    pub(super) avatar: Avatar,
    pub(super) tick: u32,
}

/// Content of one picture, whether it comes from peers or from a server.
pub(super) struct MazeView<'a> {
    pub(super) rules: &'a MazeRules,
    /// Id of the local player's avatar.
    pub(super) own_entity: EntityId,
    pub(super) camera: Camera,
    /// All avatars, each at its displayed tick, including that of the local player.
    pub(super) avatars: Vec<VisibleAvatar>,
    /// Function that returns the displayed name of an avatar.
    pub(super) name: &'a dyn Fn(EntityId) -> String,
    /// If the local player is dead: notice of the hit, and number of ticks since the hit.
    pub(super) death: Option<(&'a str, u32)>,
}

/// Renderer with its canvases, the smoothed camera, and the network graph.
pub struct MazeRenderer {
    view_canvas: Canvas,
    map_canvas: Canvas,
    /// Camera after the previous and after the current tick; pictures are drawn between ticks.
    camera_steps: Option<[CameraStep; 2]>,
    frame_rate: RateMeter,
    history: PeerHistory,
    is_graph_shown: bool,
}

/// Camera after a tick, and the spawn count of the player's avatar.
#[derive(Clone, Copy)]
struct CameraStep {
    tick: u32,
    lives: u16,
    camera: Camera,
}

impl MazeRenderer {
    /// Creates a renderer that has drawn nothing.
    pub fn new(now: Instant) -> Self {
        Self {
            view_canvas: Canvas::new(VIEW_WIDTH, VIEW_HEIGHT),
            map_canvas: Canvas::new(MAP_SIZE, MAP_SIZE),
            camera_steps: None,
            frame_rate: RateMeter::new(now),
            history: PeerHistory::default(),
            is_graph_shown: false,
        }
    }

    /// Shows or hides the network graph.
    pub fn toggle_graph(&mut self) {
        self.is_graph_shown = !self.is_graph_shown;
    }

    /// Samples camera and network statistics after the game has advanced. Must be called after each tick for smooth
    /// motion.
    pub fn on_advance(&mut self, now: Time, game: &MazeSite) {
        self.history.sample_if_due(now, game);
        let (Some(tick), Some(avatar)) = (game.tick(), game.avatar(0)) else { return };
        let camera = Camera { position: avatar.position, heading: avatar.heading };
        let step = CameraStep { tick, lives: avatar.spawn_count, camera };
        self.camera_steps = Some(match self.camera_steps {
            Some([_, last]) if last.tick < tick && last.lives == step.lives => [last, step],
            Some(steps) if steps[1].tick == tick => steps,
            _ => [step, step],
        });
    }

    /// Draws the current state of the game into a scene, with scores, graph and status line.
    pub fn draw(
        &mut self,
        now: Time,
        game: &MazeSite,
        scoreboard_view: &ScoreboardView,
        status: &str,
        scene: &mut Scene,
    ) {
        scene.graph = self
            .is_graph_shown
            .then(|| self.history.graph(|site| scoreboard_view.name(game, EntityId { site, index: 0 })));
        let view = match (game.tick(), game.avatar(0), self.camera(now, game)) {
            (Some(tick), Some(own), Some(camera)) => Some(MazeView {
                rules: game.rules(),
                own_entity: EntityId { site: game.site(), index: 0 },
                camera,
                avatars: visible_avatars(game, tick),
                name: &|entity| scoreboard_view.name(game, entity),
                death: dead_since(own).map(|since| (scoreboard_view.last_hit_text(), tick.saturating_sub(since))),
            }),
            _ => None,
        };
        scene.table = if view.is_some() { scoreboard_view.table(game) } else { vec![] };
        self.draw_maze_view(view.as_ref(), (game.rules(), status), scene);
    }

    /// Draws a view into a scene, or the overlay "Joining the maze" if there is no view yet.
    pub(super) fn draw_maze_view(
        &mut self,
        view: Option<&MazeView<'_>>,
        (rules, status): (&MazeRules, &str),
        scene: &mut Scene,
    ) {
        self.frame_rate.count_event(Instant::now());
        scene.status = self.status_line(rules, status);
        scene.table_header = TABLE_HEADER;
        let Some(view) = view else {
            scene.screens.clear();
            let overlay = || Overlay { title: "Joining the maze".into(), ..Overlay::default() };
            scene.overlay.get_or_insert_with(overlay);
            return;
        };
        self.draw_screen(view, &mut scene.screens(1)[0]);
        if let Some((hit_notice, ticks)) = view.death {
            tint_red(&mut scene.screens[0]);
            scene.toast = Some(respawn_text(hit_notice, ticks));
        }
    }

    /// Returns the camera interpolated between the last two ticks, so that motion is smooth at any frame rate.
    fn camera(&self, now: Time, game: &MazeSite) -> Option<Camera> {
        let [before, after] = self.camera_steps?;
        let tick_start = game.world().tick_start(after.tick)?;
        let tick = game.world().config().tick_duration.as_secs_f64();
        Some(interpolate_camera(before.camera, after.camera, (now - tick_start).as_secs_f64() / tick))
    }

    fn draw_screen(&mut self, view: &MazeView<'_>, screen: &mut Screen) {
        let (rules, sprites) = (view.rules, sprites(view));
        draw_view(rules, view.camera, &sprites, &mut self.view_canvas);
        screen.labels = self.name_labels(view);
        draw_map(rules, view.camera, &sprites, &mut self.map_canvas);
        self.view_canvas.paste(&self.map_canvas, VIEW_WIDTH - MAP_SIZE - MAP_MARGIN, MAP_MARGIN);
        let aspect = VIEW_WIDTH as f32 / VIEW_HEIGHT as f32;
        screen.is_smooth = true;
        screen.show(Picture { width: VIEW_WIDTH, height: VIEW_HEIGHT, aspect, rgba: self.view_canvas.pixels() });
    }

    fn name_labels(&self, view: &MazeView<'_>) -> Vec<Label> {
        let living = view.avatars.iter().filter(|shown| shown.entity != view.own_entity && shown.avatar.is_alive());
        let label = |shown: &VisibleAvatar| {
            let [x, y] = name_position(view.rules, view.camera, shown.avatar.position, &self.view_canvas)?;
            Some(Label { text: (view.name)(shown.entity), x, y, colour: player_colour(shown.entity) })
        };
        living.filter_map(label).collect()
    }

    fn status_line(&self, rules: &MazeRules, status: &str) -> String {
        let maze = &rules.maze;
        format!(
            "{status}   maze seed {}, {2} × {2} cells   {:.0} fps",
            maze.seed(),
            self.frame_rate.per_second(),
            maze.cells_per_side()
        )
    }
}

/// Returns the tick in which an avatar died; `None` if it is alive.
pub(super) fn dead_since(avatar: &Avatar) -> Option<u32> {
    match avatar.life {
        Life::Alive => None,
        Life::Dead { since } => Some(since),
    }
}

/// Returns all avatars: those of this site at `tick`, remote ones at the tick that is earlier by the view delay.
fn visible_avatars(game: &MazeSite, tick: u32) -> Vec<VisibleAvatar> {
    let past = tick.saturating_sub(game.view_delay_ticks());
    let site = game.site();
    let ours = (0..game.avatars()).filter_map(|index| Some((index as u8, game.avatar(index)?.clone())));
    let ours = ours.map(|(index, avatar)| VisibleAvatar { entity: EntityId { site, index }, avatar, tick });
    let theirs = game.others_at(past).map(|(entity, avatar)| VisibleAvatar { entity, avatar, tick: past });
    ours.chain(theirs).collect()
}

/// Returns the sprites of all shots, and of all avatars except the local player's.
fn sprites(view: &MazeView<'_>) -> Vec<Sprite> {
    let avatars = view.avatars.iter().filter(|shown| shown.entity != view.own_entity).map(|shown| {
        let shape = match shown.avatar.life {
            Life::Alive => Shape::Avatar { heading: shown.avatar.heading },
            Life::Dead { since } => Shape::Dead { ticks_dead: shown.tick.saturating_sub(since) },
        };
        Sprite { position: shown.avatar.position, colour: player_colour(shown.entity), shape }
    });
    let shots = view.avatars.iter().flat_map(|shown| {
        let positions = shown.avatar.shots.iter().filter_map(|shot| view.rules.shot_position(shot, shown.tick));
        positions.map(|position| Sprite { position, colour: player_colour(shown.entity), shape: Shape::Shot })
    });
    avatars.chain(shots).collect()
}

/// Interpolates between two cameras; `fraction` is 0 at `before` and 1 at `after`.
pub(super) fn interpolate_camera(before: Camera, after: Camera, fraction: f64) -> Camera {
    let fraction = fraction.clamp(0.0, 1.0);
    let along = |from: i32, to: i32| from + (f64::from(to.wrapping_sub(from)) * fraction) as i32;
    let turn = f64::from(shortest_turn(before.heading, after.heading)) * fraction;
    Camera {
        position: Position {
            x: along(before.position.x, after.position.x),
            y: along(before.position.y, after.position.y),
        },
        heading: before.heading.wrapping_add_signed(turn as i16),
    }
}

/// Tints the picture red, which shows that the local player is dead.
fn tint_red(screen: &mut Screen) {
    for pixel in screen.rgba.as_chunks_mut::<4>().0 {
        let [red, green, blue, _] = pixel;
        *red = (*red / 4 * 3).saturating_add(60);
        (*green, *blue) = (*green / 2, *blue / 2);
    }
}

/// Formats the hit notice with the seconds until the respawn, `ticks` ticks after the hit.
fn respawn_text(hit_notice: &str, ticks: u32) -> String {
    let left = RESPAWN_TICKS.saturating_sub(ticks).div_ceil(TICKS_PER_SECOND);
    format!("{hit_notice}: respawn in {left} s")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::maze::{MazeNet, SoloNet, advance_until};
    use coplay::peer_world::{UpdatePolicy, WorldSiteId};
    use coplay::time::TimeDelta;
    use coplay_maze::MazeSettings;

    fn game(net: &SoloNet, ninjas: u8) -> MazeSite {
        let settings = MazeSettings { cells_per_side: 5, ..MazeSettings::default() };
        MazeSite::new(net.now(), WorldSiteId(1), true, &settings, UpdatePolicy::default(), (Some("Ann"), ninjas))
            .unwrap()
    }

    fn drawn_scene(renderer: &mut MazeRenderer, game: &mut MazeSite, net: &SoloNet) -> Scene {
        let (mut scene, mut scoreboard_view) = (Scene::default(), ScoreboardView::new(true));
        scoreboard_view.poll_notice(game);
        renderer.on_advance(net.now(), game);
        renderer.draw(net.now(), game, &scoreboard_view, "alone", &mut scene);
        scene
    }

    #[test]
    fn scene_has_view_map_table_and_status() {
        let mut net = SoloNet::in_virtual_time();
        let (mut game, mut renderer) = (game(&net, 3), MazeRenderer::new(Instant::now()));
        let end = net.now() + TimeDelta::from_millis(200);
        advance_until(&mut game, &mut net, end).unwrap();
        let scene = drawn_scene(&mut renderer, &mut game, &net);
        let screen = &scene.screens[0];
        assert_eq!((scene.screens.len(), screen.width, screen.height), (1, VIEW_WIDTH, VIEW_HEIGHT));
        let pixels_in = |left: usize, top: usize, wide: usize, high: usize| {
            let pixels = (top..top + high).flat_map(|y| (left..left + wide).map(move |x| (x, y)));
            pixels.map(|(x, y)| screen.pixel(x, y)).collect::<Vec<_>>()
        };
        let map =
            renderer.map_canvas.pixels().as_chunks::<4>().0.iter().map(|[red, green, blue, _]| [*red, *green, *blue]);
        assert_eq!(
            pixels_in(VIEW_WIDTH - MAP_SIZE - MAP_MARGIN, MAP_MARGIN, MAP_SIZE, MAP_SIZE),
            map.collect::<Vec<_>>()
        );
        let view = pixels_in(0, 0, VIEW_WIDTH - MAP_SIZE - MAP_MARGIN, VIEW_HEIGHT);
        let colours: std::collections::BTreeSet<_> = view.into_iter().collect();
        assert!(colours.len() > 100, "too few colours for shaded walls, floor and ceiling: {}", colours.len());
        assert_eq!((scene.table.len(), scene.graph.is_none()), (4, true));
        assert_eq!(scene.table_header, "hits : falls");
        assert!(scene.status.contains("alone") && scene.status.contains("5 × 5"), "{}", scene.status);
        renderer.toggle_graph();
        assert!(drawn_scene(&mut renderer, &mut game, &net).graph.is_some());
    }

    #[test]
    fn dead_player_sees_red_and_respawn_time() {
        let mut net = SoloNet::in_virtual_time();
        let (mut game, mut renderer) = (game(&net, 8), MazeRenderer::new(Instant::now()));
        let is_alive = |game: &MazeSite| game.avatar(0).is_some_and(Avatar::is_alive);
        while is_alive(&game) {
            let end = net.now() + TimeDelta::from_millis(50);
            advance_until(&mut game, &mut net, end).unwrap();
            assert!(end < Time::ZERO + TimeDelta::from_secs(600), "eight ninjas did not hit an idle player");
        }
        let scene = drawn_scene(&mut renderer, &mut game, &net);
        let toast = scene.toast.unwrap();
        assert!(toast.starts_with("you were hit by ninja ") && toast.ends_with(": respawn in 2 s"), "{toast}");
        assert!(scene.screens[0].rgba.as_chunks::<4>().0.iter().all(|[red, ..]| *red >= 60));
        let end = net.now() + TimeDelta::from_secs(2);
        advance_until(&mut game, &mut net, end).unwrap();
        assert_eq!(drawn_scene(&mut renderer, &mut game, &net).toast, None);
    }

    #[test]
    fn nothing_is_drawn_before_world_time_is_known() {
        let net = SoloNet::in_virtual_time();
        let mut game = game(&net, 1);
        let scene = drawn_scene(&mut MazeRenderer::new(Instant::now()), &mut game, &net);
        assert!(scene.screens.is_empty() && scene.overlay.is_some());
    }

    #[test]
    fn remote_avatars_are_delayed_and_own_are_current() {
        let (_, [game, _]) = crate::maze::test_pair::play_pair(3);
        let tick = game.tick().unwrap();
        let shown = visible_avatars(&game, tick);
        let ticks = |own: bool| {
            let some = shown.iter().filter(|shown| (shown.entity.site == game.site()) == own);
            some.map(|shown| shown.tick).collect::<Vec<_>>()
        };
        assert_eq!(ticks(true), [tick; 3]);
        assert_eq!(ticks(false), [tick - game.view_delay_ticks(); 3]);
        let own_entity = EntityId { site: game.site(), index: 0 };
        let camera = Camera { position: Position::default(), heading: 0 };
        let view =
            MazeView { rules: game.rules(), own_entity, camera, avatars: shown, name: &|_| String::new(), death: None };
        assert_eq!(
            sprites(&view).iter().filter(|sprite| sprite.shape != Shape::Shot).count(),
            5,
            "all avatars except the own one"
        );
    }

    #[test]
    fn camera_interpolation_turns_the_short_way() {
        let at = |x, heading| Camera { position: Position { x, y: 0 }, heading };
        let half = |one, other| interpolate_camera(one, other, 0.5);
        assert_eq!(half(at(0, 65_436), at(100, 100)), at(50, 0));
        assert_eq!(interpolate_camera(at(0, 7), at(100, 9), 3.0), at(100, 9), "the fraction is clamped to 1");
    }
}
