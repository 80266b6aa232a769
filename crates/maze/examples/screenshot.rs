//! Lets ten ninjas play, by default for 1,000 ticks, and writes the view of one of them as a PPM image: `screenshot
//! [SEED [TICKS [WIDTH HEIGHT]]] > screenshot.ppm`.

use std::io::{self, Write};

use coplay::peer_world::{EntityId, WorldSiteId};
use coplay_maze::render::{Camera, Canvas, Shape, Sprite, draw_map, draw_view, player_colour};
use coplay_maze::{Avatar, Life, Maze, MazeRules, Ninja, Position};

const PLAYERS: u8 = 10;

fn main() -> io::Result<()> {
    let numbers: Vec<u32> = std::env::args().skip(1).filter_map(|argument| argument.parse().ok()).collect();
    let number = |at: usize, otherwise: u32| numbers.get(at).copied().unwrap_or(otherwise);
    let (seed, ticks) = (number(0, 7), number(1, 1_000));
    let (width, height) = (number(2, 640) as usize, number(3, 400) as usize);

    let rules = MazeRules::new(Maze::new(seed.into(), 12));
    let avatars = simulate(&rules, seed, ticks);
    let me = &avatars[0].1;
    let camera = Camera { position: me.position, heading: me.heading };
    let sprites = sprites(&rules, ticks, &avatars);
    let mut view = Canvas::new(width, height);
    draw_view(&rules, camera, &sprites, &mut view);
    let mut map = Canvas::new(height * 2 / 5, height * 2 / 5);
    draw_map(&rules, camera, &sprites, &mut map);
    view.paste(&map, width.saturating_sub(map.width() + 4), 4);
    write_ppm(&view)
}

fn simulate(rules: &MazeRules, seed: u32, ticks: u32) -> Vec<(EntityId, Avatar)> {
    let id = |index| EntityId { site: WorldSiteId(seed), index };
    let mut avatars: Vec<_> = (0..PLAYERS).map(|index| (id(index), rules.spawn_avatar(&[], index.into()))).collect();
    let mut ninjas: Vec<_> = (0..PLAYERS).map(|index| Ninja::new(index.into())).collect();
    for tick in 0..=ticks {
        let seen = avatars.clone();
        for (me, ninja) in ninjas.iter_mut().enumerate() {
            let others: Vec<_> = seen.iter().filter(|(id, _)| *id != seen[me].0).cloned().collect();
            let living: Vec<Position> =
                others.iter().filter(|(_, avatar)| avatar.is_alive()).map(|(_, avatar)| avatar.position).collect();
            let controls = ninja.choose_controls(tick, rules, &seen[me].1, &others);
            rules.step(tick, &mut avatars[me].1, controls, &living, me as u64);
        }
        resolve_hits(rules, tick, &mut avatars);
    }
    avatars
}

fn resolve_hits(rules: &MazeRules, tick: u32, avatars: &mut [(EntityId, Avatar)]) {
    for victim in 0..avatars.len() {
        let position = avatars[victim].1.position;
        let mut others = avatars.iter().enumerate().filter(|(other, _)| *other != victim);
        if others.any(|(_, (_, avatar))| avatar.shots.iter().any(|shot| rules.shot_hits(shot, tick, position))) {
            rules.kill(tick, &mut avatars[victim].1);
        }
    }
}

/// Returns the sprites of all avatars and shots, except for the avatar of the camera.
fn sprites(rules: &MazeRules, tick: u32, avatars: &[(EntityId, Avatar)]) -> Vec<Sprite> {
    let others = avatars.iter().skip(1).map(|(id, avatar)| {
        let shape = match avatar.life {
            Life::Alive => Shape::Avatar { heading: avatar.heading },
            Life::Dead { since } => Shape::Dead { ticks_dead: tick.saturating_sub(since) },
        };
        Sprite { position: avatar.position, colour: player_colour(*id), shape }
    });
    let shots = avatars.iter().flat_map(|(id, avatar)| {
        let positions = avatar.shots.iter().filter_map(|shot| rules.shot_position(shot, tick));
        positions.map(|position| Sprite { position, colour: player_colour(*id), shape: Shape::Shot })
    });
    others.chain(shots).collect()
}

fn write_ppm(canvas: &Canvas) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "P6 {} {} 255", canvas.width(), canvas.height())?;
    let colours: Vec<u8> = canvas.pixels().chunks(4).flat_map(|pixel| [pixel[0], pixel[1], pixel[2]]).collect();
    out.write_all(&colours)?;
    out.flush()
}
