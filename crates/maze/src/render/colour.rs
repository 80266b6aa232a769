//! Colours of players, and arithmetic on light.

use coplay::peer_world::EntityId;

use crate::rng::Rng;

/// Colour as red, green and blue, each from 0 to 255.
pub type Colour = [u8; 3];

/// Colours of players, chosen to be distinguishable even with impaired colour vision and to stand out from the walls.
pub const PLAYER_COLOURS: [Colour; 10] = [
    [240, 70, 60],   // red
    [70, 170, 255],  // blue
    [255, 235, 60],  // yellow
    [60, 200, 110],  // green
    [235, 120, 215], // pink
    [255, 130, 30],  // orange
    [100, 235, 235], // turquoise
    [165, 110, 250], // violet
    [240, 240, 240], // white
    [170, 215, 70],  // lime
];

/// Returns the colour of an avatar, the same at every site. Ten avatars of one site with successive indices have
/// different colours.
pub fn player_colour(id: EntityId) -> Colour {
    let first = Rng::from_parts(&[id.site.0.into()]).below(PLAYER_COLOURS.len() as u32) as usize;
    PLAYER_COLOURS[(first + usize::from(id.index)) % PLAYER_COLOURS.len()]
}

/// Light as red, green and blue, each from 0 to 1.
pub(super) type LinearColour = [f32; 3];

pub(super) fn to_light(colour: Colour) -> LinearColour {
    colour.map(|part| f32::from(part) / 255.0)
}

pub(super) fn to_colour(light: LinearColour) -> Colour {
    light.map(|part| (part * 255.0) as u8)
}

/// Multiplies all components by a factor.
pub(super) fn scale(light: LinearColour, by: f32) -> LinearColour {
    light.map(|part| part * by)
}

/// Interpolates from `first` (at share 0) to `second` (at share 1).
pub(super) fn mix(first: LinearColour, second: LinearColour, share: f32) -> LinearColour {
    std::array::from_fn(|part| first[part] + (second[part] - first[part]) * share)
}

pub(super) fn add(one: LinearColour, other: LinearColour) -> LinearColour {
    std::array::from_fn(|part| one[part] + other[part])
}

#[cfg(test)]
mod tests {
    use super::*;
    use coplay::peer_world::WorldSiteId;

    #[test]
    fn avatars_of_a_site_have_distinct_colours() {
        let colours: std::collections::BTreeSet<Colour> =
            (0..10).map(|index| player_colour(EntityId { site: WorldSiteId(99), index })).collect();
        assert_eq!(colours.len(), PLAYER_COLOURS.len());
    }

    #[test]
    fn player_colours_are_distinguishable() {
        for (at, one) in PLAYER_COLOURS.iter().enumerate() {
            for other in &PLAYER_COLOURS[..at] {
                let apart: i32 = (0..3).map(|part| (i32::from(one[part]) - i32::from(other[part])).abs()).sum();
                assert!(apart > 100, "{one:?} and {other:?}");
            }
        }
    }
}
