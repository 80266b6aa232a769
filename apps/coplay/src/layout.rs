//! Where a picture goes: as large as there is room for, in the shape it is meant to be seen in.

/// A place in something of `width` × `height`, all in the same unit.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PictureRect {
    /// From the left.
    pub x: f32,
    /// From the top.
    pub y: f32,
    /// How wide.
    pub width: f32,
    /// How high.
    pub height: f32,
}

/// How a picture may grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scaling {
    /// Its rows are all equally high: by whole steps, as long as one fits.
    #[default]
    Integer,
    /// As far as there is room.
    Fractional,
}

/// Fits a picture with so many rows and this aspect (width divided by height) into a room, in the middle.
pub fn fit_picture(room: (f32, f32), rows: usize, aspect: f32, growth: Scaling) -> PictureRect {
    let (room_width, room_height) = (room.0.max(0.0), room.1.max(0.0));
    let aspect = if aspect.is_finite() && aspect > 0.0 { aspect } else { 4.0 / 3.0 };
    let free = room_height.min(room_width / aspect);
    let rows = rows.max(1) as f32;
    let height = match growth {
        Scaling::Integer if free >= rows => (free / rows).floor() * rows,
        _ => free,
    };
    let width = match growth {
        Scaling::Integer => (height * aspect).round().min(room_width),
        Scaling::Fractional => height * aspect,
    };
    PictureRect { x: ((room_width - width) / 2.0).floor(), y: ((room_height - height) / 2.0).floor(), width, height }
}

/// How many pictures go beside each other: all in a row, or one above the other where that makes them larger.
pub fn column_count(room: (f32, f32), pictures: usize, aspect: f32) -> usize {
    let height = |columns: usize| {
        let rows = pictures.div_ceil(columns);
        (room.1 / rows as f32).min(room.0 / columns as f32 / aspect.max(0.01))
    };
    (1..=pictures).max_by(|a, b| height(*a).total_cmp(&height(*b))).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integer_scaling_leaves_a_border_and_keeps_the_aspect() {
        let place = fit_picture((1000.0, 800.0), 240, 4.0 / 3.0, Scaling::Integer);
        assert_eq!((place.width, place.height), (960.0, 720.0));
        assert_eq!((place.x, place.y), (20.0, 40.0));
    }

    #[test]
    fn fractional_scaling_fills_one_dimension() {
        let place = fit_picture((1000.0, 800.0), 240, 4.0 / 3.0, Scaling::Fractional);
        assert_eq!((place.width, place.height, place.x), (1000.0, 750.0, 0.0));
    }

    #[test]
    fn picture_larger_than_the_area_is_scaled_down() {
        let place = fit_picture((100.0, 100.0), 240, 1.0, Scaling::Integer);
        assert_eq!((place.width, place.height), (100.0, 100.0));
    }

    #[test]
    fn degenerate_sizes_give_a_valid_rect() {
        for (room, aspect) in [((0.0, 0.0), 1.0), ((-5.0, 10.0), 1.3), ((50.0, 50.0), f32::NAN), ((50.0, 50.0), 0.0)] {
            let place = fit_picture(room, 0, aspect, Scaling::Integer);
            assert!(place.width >= 0.0 && place.height >= 0.0 && place.width <= room.0.max(0.0), "{place:?}");
        }
    }

    #[test]
    fn column_count_maximizes_picture_size() {
        assert_eq!(column_count((1600.0, 700.0), 2, 4.0 / 3.0), 2);
        assert_eq!(column_count((500.0, 1200.0), 2, 4.0 / 3.0), 1);
        assert_eq!(column_count((500.0, 1200.0), 1, 4.0 / 3.0), 1);
    }
}
