//! Layout of pictures: as large as the area allows, in their own aspect ratio.

/// Rectangle of a picture within its area. All numbers have the unit of the area.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PictureRect {
    /// Distance from the left edge of the area.
    pub x: f32,
    /// Distance from the top edge of the area.
    pub y: f32,
    /// Width of the scaled picture.
    pub width: f32,
    /// Height of the scaled picture.
    pub height: f32,
}

/// Permitted scale factors of a picture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scaling {
    /// Whole factors, so that all rows have the same height. A picture larger than its area is scaled down by any
    /// factor.
    #[default]
    Integer,
    /// Any factor, as large as the area allows.
    Fractional,
}

/// Fits a picture with `rows` rows and this aspect ratio (width divided by height) into the middle of an area.
pub fn fit_picture(area: (f32, f32), rows: usize, aspect: f32, scaling: Scaling) -> PictureRect {
    let (area_width, area_height) = (area.0.max(0.0), area.1.max(0.0));
    let aspect = if aspect.is_finite() && aspect > 0.0 { aspect } else { 4.0 / 3.0 };
    let max_height = area_height.min(area_width / aspect);
    let rows = rows.max(1) as f32;
    let height = match scaling {
        Scaling::Integer if max_height >= rows => (max_height / rows).floor() * rows,
        _ => max_height,
    };
    let width = match scaling {
        Scaling::Integer => (height * aspect).round().min(area_width),
        Scaling::Fractional => height * aspect,
    };
    PictureRect { x: ((area_width - width) / 2.0).floor(), y: ((area_height - height) / 2.0).floor(), width, height }
}

/// Returns the number of columns in which this many pictures of this aspect ratio are largest in an area.
pub fn column_count(area: (f32, f32), pictures: usize, aspect: f32) -> usize {
    let height = |columns: usize| {
        let rows = pictures.div_ceil(columns);
        (area.1 / rows as f32).min(area.0 / columns as f32 / aspect.max(0.01))
    };
    (1..=pictures).max_by(|a, b| height(*a).total_cmp(&height(*b))).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integer_scaling_leaves_a_border_and_keeps_the_aspect() {
        let rect = fit_picture((1000.0, 800.0), 240, 4.0 / 3.0, Scaling::Integer);
        assert_eq!((rect.width, rect.height), (960.0, 720.0));
        assert_eq!((rect.x, rect.y), (20.0, 40.0));
    }

    #[test]
    fn fractional_scaling_fills_one_dimension() {
        let rect = fit_picture((1000.0, 800.0), 240, 4.0 / 3.0, Scaling::Fractional);
        assert_eq!((rect.width, rect.height, rect.x), (1000.0, 750.0, 0.0));
    }

    #[test]
    fn picture_larger_than_the_area_is_scaled_down() {
        let rect = fit_picture((100.0, 100.0), 240, 1.0, Scaling::Integer);
        assert_eq!((rect.width, rect.height), (100.0, 100.0));
    }

    #[test]
    fn degenerate_sizes_give_a_valid_rect() {
        for (area, aspect) in [((0.0, 0.0), 1.0), ((-5.0, 10.0), 1.3), ((50.0, 50.0), f32::NAN), ((50.0, 50.0), 0.0)] {
            let rect = fit_picture(area, 0, aspect, Scaling::Integer);
            assert!(rect.width >= 0.0 && rect.height >= 0.0 && rect.width <= area.0.max(0.0), "{rect:?}");
        }
    }

    #[test]
    fn column_count_maximizes_picture_size() {
        assert_eq!(column_count((1600.0, 700.0), 2, 4.0 / 3.0), 2);
        assert_eq!(column_count((500.0, 1200.0), 2, 4.0 / 3.0), 1);
        assert_eq!(column_count((500.0, 1200.0), 1, 4.0 / 3.0), 1);
    }
}
