//! Software renderer: a first-person view and a map. Pure: shapes go in, pixels come out, for any size of canvas from a
//! terminal to a window.
//!
//! Nothing that sites must agree on depends on this module, so it may use floating point.

mod avatars;
mod canvas;
mod colour;
mod effects;
mod floor_and_ceiling;
mod map;
mod projection;
mod scene;
mod surface;
mod wall;

pub use canvas::Canvas;
pub use colour::{Colour, PLAYER_COLOURS, player_colour};
pub use map::draw_map;

use crate::position::Position;
use crate::rules::MazeRules;
use projection::{Projected, Projection};

/// Depth along the viewing direction below which names are shown, in units.
const MAX_NAME_DISTANCE: f32 = 2_400.0;

/// Height of a name above the floor, in units: a little above the head of an avatar.
const NAME_HEIGHT: f32 = 86.0;

/// Viewpoint from which a picture is drawn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Camera {
    /// Position of the player's eye, 76 units above the floor.
    pub position: Position,
    /// Viewing direction, as a heading.
    pub heading: u16,
}

/// Object that is drawn in the maze.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sprite {
    /// Centre of the object.
    pub position: Position,
    /// Colour of the player that owns the object.
    pub colour: Colour,
    /// Kind of the object, with its state.
    pub shape: Shape,
}

/// Kind of a drawn object, which determines its appearance.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    /// Living avatar, drawn as a sphere with a face.
    Avatar {
        /// Heading in which the avatar looks.
        heading: u16,
    },
    /// Shot in flight, drawn as a ball of light.
    Shot,
    /// Dead avatar, drawn as flat remains with a blast in the first 90 ticks.
    Dead {
        /// Ticks since the avatar was killed.
        ticks_dead: u32,
    },
}

/// Draws the first-person view: the maze, all sprites that no wall hides, and a crosshair.
pub fn draw_view(rules: &MazeRules, camera: Camera, sprites: &[Sprite], canvas: &mut Canvas) {
    if canvas.is_empty() {
        return;
    }
    let eye = Projection::new(&rules.maze, camera, canvas);
    scene::draw_maze(&rules.maze, camera.position, &eye, canvas);
    let mut seen: Vec<(Projected, &Sprite)> =
        sprites.iter().filter_map(|sprite| Some((eye.project(&rules.maze, sprite.position)?, sprite))).collect();
    seen.sort_by(|(one, _), (other, _)| other.depth.total_cmp(&one.depth));
    for (seen, sprite) in seen {
        draw_sprite(&eye, &seen, sprite, canvas);
    }
    draw_crosshair(canvas);
}

/// Returns where to write the name of an avatar: the middle and the lower edge of the name, as fractions of the
/// picture's width and height. `canvas` must hold the view just drawn from `camera`. Returns `None` if a wall hides the
/// avatar's centre, if the centre is left or right of the picture, or if its depth is 24 units or less, or 2,400 units
/// or more.
pub fn name_position(rules: &MazeRules, camera: Camera, avatar: Position, canvas: &Canvas) -> Option<[f32; 2]> {
    let eye = Projection::new(&rules.maze, camera, canvas);
    let seen = eye.project(&rules.maze, avatar).filter(|seen| seen.depth < MAX_NAME_DISTANCE)?;
    let column = (0.0..canvas.width() as f32).contains(&seen.x).then_some(seen.x as usize)?;
    (seen.depth < canvas.column_depth(column)).then(|| {
        let row = eye.screen_row(NAME_HEIGHT, seen.depth);
        [seen.x / canvas.width() as f32, row / canvas.height() as f32]
    })
}

fn draw_sprite(eye: &Projection, seen: &Projected, sprite: &Sprite, canvas: &mut Canvas) {
    match sprite.shape {
        Shape::Avatar { heading } => avatars::draw_avatar(eye, seen, sprite.colour, heading, canvas),
        Shape::Shot => effects::draw_shot(eye, seen, sprite.colour, canvas),
        Shape::Dead { ticks_dead } => {
            avatars::draw_remains(eye, seen, sprite.colour, canvas);
            effects::draw_blast(eye, seen, sprite.colour, ticks_dead, canvas);
        }
    }
}

/// Draws four strokes around the centre of the picture, which stays free.
fn draw_crosshair(canvas: &mut Canvas) {
    let (middle_x, middle_y) = (canvas.width() as i32 / 2, canvas.height() as i32 / 2);
    let unit = (canvas.height() as i32 / 100).max(1);
    let thick = (unit + 2) / 3;
    for along in 2 * unit..5 * unit {
        for aside in 0..thick {
            let aside = aside - thick / 2;
            for (x, y) in [(along, aside), (-along - 1, aside), (aside, along), (aside, -along - 1)] {
                canvas.blend(middle_x + x, middle_y + y, [0.95, 1.0, 0.95], 0.7);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::direction::Direction;
    use crate::maze::Maze;

    fn rules() -> MazeRules {
        MazeRules::new(Maze::new(7, 12))
    }

    /// Returns a camera in a cell that is open to the east, next to a cell that is closed to the east.
    fn short_corridor(rules: &MazeRules) -> Camera {
        let is_short = |cell: &(i32, i32)| {
            !rules.maze.has_wall(*cell, Direction::East) && rules.maze.has_wall((cell.0 + 1, cell.1), Direction::East)
        };
        let cell = (0..144).map(|at| (at % 12, at / 12)).find(is_short).expect("the maze has a short corridor");
        Camera { position: rules.maze.cell_centre(cell), heading: 0 }
    }

    fn position_offset(position: Position, east: i32, south: i32) -> Position {
        Position { x: position.x + east * crate::UNIT, y: position.y + south * crate::UNIT }
    }

    fn rendered_view(rules: &MazeRules, camera: Camera, sprites: &[Sprite]) -> Canvas {
        let mut canvas = Canvas::new(160, 100);
        draw_view(rules, camera, sprites, &mut canvas);
        canvas
    }

    /// Returns the number of pixels that differ between two pictures.
    fn differing_pixels(one: &Canvas, other: &Canvas) -> usize {
        let pixels = one.pixels().chunks(4).zip(other.pixels().chunks(4));
        pixels.filter(|(one, other)| one != other).count()
    }

    fn avatar_sprite(position: Position) -> Sprite {
        Sprite { position, colour: PLAYER_COLOURS[0], shape: Shape::Avatar { heading: 0 } }
    }

    /// Returns the height of the wall in the middle column, in pixels.
    fn wall_height(rules: &MazeRules, camera: Camera) -> f32 {
        let mut canvas = Canvas::new(160, 100);
        draw_view(rules, camera, &[], &mut canvas);
        Projection::new(&rules.maze, camera, &canvas).screen_size(wall::CEILING_HEIGHT, canvas.column_depth(80))
    }

    #[test]
    fn nearer_wall_is_drawn_taller() {
        let rules = rules();
        let far = short_corridor(&rules);
        let near = Camera { position: position_offset(far.position, 400, 0), ..far };
        let (far, near) = (wall_height(&rules, far), wall_height(&rules, near));
        // 752 and 352 units from the face of the wall.
        assert!((near / far - 752.0 / 352.0).abs() < 0.02, "{near} and {far}");
    }

    #[test]
    fn only_visible_avatars_are_drawn() {
        let rules = rules();
        let camera = short_corridor(&rules);
        let empty = rendered_view(&rules, camera, &[]);
        let with = |east: i32, south: i32| {
            differing_pixels(
                &empty,
                &rendered_view(&rules, camera, &[avatar_sprite(position_offset(camera.position, east, south))]),
            )
        };
        assert!(with(300, 0) > 100, "an avatar in front is not drawn");
        assert!(with(150, 0) > 2 * with(300, 0), "a nearer avatar is not larger");
        assert_eq!(with(900, 0), 0, "an avatar behind a wall is drawn");
        assert_eq!(with(-150, 0), 0, "an avatar behind the camera is drawn");
        assert_eq!(with(0, 0), 0, "an avatar at the camera is drawn");
    }

    #[test]
    fn name_is_placed_above_a_visible_avatar() {
        let rules = rules();
        let camera = short_corridor(&rules);
        let canvas = rendered_view(&rules, camera, &[]);
        let name = |east, south| name_position(&rules, camera, position_offset(camera.position, east, south), &canvas);
        let [x, y] = name(300, 0).expect("an avatar in front has a name");
        assert!((x - 0.5).abs() < 0.01 && (0.3..0.5).contains(&y), "{x} {y}");
        assert!(name(300, 60).expect("an avatar to the right has a name")[0] > 0.55);
        let hidden = [name(900, 0), name(-150, 0), name(30, 400)];
        assert_eq!(hidden, [None; 3], "names behind a wall, behind the camera and outside the picture");
    }

    #[test]
    fn walls_occlude_avatars_per_column() {
        let rules = rules();
        let camera = short_corridor(&rules);
        let mut canvas = Canvas::new(160, 100);
        draw_view(&rules, camera, &[], &mut canvas);
        let before = canvas.clone();
        // Pretends that a wall is right before the camera in the left half.
        (0..80).for_each(|x| canvas.set_column_depth(x, 10.0));
        let eye = Projection::new(&rules.maze, camera, &canvas);
        let seen = eye.project(&rules.maze, position_offset(camera.position, 300, 0)).expect("the avatar is in front");
        draw_sprite(&eye, &seen, &avatar_sprite(camera.position), &mut canvas);
        let changed = |from: usize| {
            let at = |canvas: &Canvas, x: usize, y: usize| canvas.pixels()[4 * (y * 160 + x)..][..3].to_vec();
            let pixels = (from..from + 80).flat_map(|x| (0..100).map(move |y| (x, y)));
            pixels.filter(|(x, y)| at(&before, *x, *y) != at(&canvas, *x, *y)).count()
        };
        assert_eq!(changed(0), 0);
        assert!(changed(80) > 50);
    }

    #[test]
    fn avatar_shows_its_colour_and_heading() {
        let rules = rules();
        let camera = short_corridor(&rules);
        let with = |colour, heading| {
            let shape = Shape::Avatar { heading };
            rendered_view(
                &rules,
                camera,
                &[Sprite { position: position_offset(camera.position, 200, 0), colour, shape }],
            )
        };
        let [face, back] = [crate::angle::HALF_TURN, 0].map(|heading| with(PLAYER_COLOURS[0], heading));
        assert!(differing_pixels(&face, &back) > 50, "face and back look alike");
        let other_colour = with(PLAYER_COLOURS[1], crate::angle::HALF_TURN);
        assert!(differing_pixels(&face, &other_colour) > 200, "two colours look alike");
    }

    #[test]
    fn every_canvas_size_and_camera_position_can_be_drawn() {
        let rules = rules();
        let sprites: Vec<Sprite> = (0..60)
            .map(|number| {
                let shape = match number % 3 {
                    0 => Shape::Avatar { heading: number as u16 * 999 },
                    1 => Shape::Shot,
                    _ => Shape::Dead { ticks_dead: number * 5 },
                };
                Sprite { position: rules.maze.spawn_point(number.into()), colour: PLAYER_COLOURS[0], shape }
            })
            .collect();
        let off_grid = Position { x: i32::MIN, y: i32::MAX };
        for (width, height) in [(0, 0), (0, 9), (1, 1), (3, 200), (200, 3), (97, 61)] {
            let mut canvas = Canvas::new(width, height);
            for position in sprites.iter().map(|sprite| sprite.position).chain([off_grid]) {
                let camera = Camera { position, heading: position.x as u16 };
                draw_view(&rules, camera, &sprites, &mut canvas);
                draw_map(&rules, camera, &sprites, &mut canvas);
            }
            assert_eq!(canvas.pixels().len(), 4 * width * height);
            assert!(canvas.pixels().chunks(4).all(|pixel| pixel[3] == 255), "a pixel is not opaque");
        }
    }
}
