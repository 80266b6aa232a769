//! Estimates text widths and spreads labels so that they do not overlap.

/// Estimates the width of a text at a font size. The estimate is slightly more than the width in most fonts, so that
/// the text fits into its space.
pub(super) fn text_width(text: &str, size: f64) -> f64 {
    let units: f64 = text.chars().map(char_width).sum();
    units * size
}

/// Returns the width of a character relative to the font size.
fn char_width(letter: char) -> f64 {
    match letter {
        'i' | 'j' | 'l' | 'I' | '.' | ',' | ':' | ';' | '\'' | '|' | '!' => 0.29,
        'f' | 't' | 'r' | ' ' | '(' | ')' | '-' | '/' => 0.37,
        'm' | 'w' | 'M' | 'W' | '%' | '@' => 0.87,
        'A'..='Z' | '→' | '≥' | '≤' | '×' => 0.68,
        _ => 0.57,
    }
}

/// Moves positions apart, as little as possible, until they are at least `gap` from each other and, if there is room
/// for all, between two ends. Keeps their order.
pub(super) fn spread_labels(wanted: &[f64], gap: f64, (low, high): (f64, f64)) -> Vec<f64> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by(|one, other| wanted[*one].total_cmp(&wanted[*other]));
    // Groups of touching positions: the centre, which is the mean of the members' wanted positions if all fit there,
    // and the number of members.
    let mut groups: Vec<(f64, usize)> = Vec::new();
    for at in &order {
        groups.push((wanted[*at], 1));
        while let [.., (above, many), (below, few)] = groups[..] {
            if below - above >= gap * (many + few) as f64 / 2.0 {
                break;
            }
            let count = many + few;
            let mean = (above * many as f64 + below * few as f64) / count as f64;
            groups.truncate(groups.len() - 2);
            groups.push((clamp_group_center(mean, count, gap, (low, high)), count));
        }
    }
    let positions = groups.iter().flat_map(|(mean, count)| {
        let first = clamp_group_center(*mean, *count, gap, (low, high)) - gap * (*count as f64 - 1.0) / 2.0;
        (0..*count).map(move |number| first + gap * number as f64)
    });
    let mut spread = vec![0.0; wanted.len()];
    order.iter().zip(positions).for_each(|(at, position)| spread[*at] = position);
    spread
}

/// Returns the centre nearest to `mean` at which a group of `count` positions is between two ends. A group too large
/// for that begins at the lower end.
fn clamp_group_center(mean: f64, count: usize, gap: f64, (low, high): (f64, f64)) -> f64 {
    let half = gap * (count as f64 - 1.0) / 2.0;
    mean.min(high - half).max(low + half)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_spread_in_order_without_overlap() {
        let spread = spread_labels(&[50.0, 52.0, 51.0, 300.0, 1.0], 16.0, (10.0, 290.0));
        assert_eq!(spread, [35.0, 67.0, 51.0, 290.0, 10.0]);
        let crowded = super::spread_labels(&[0.0, 0.0, 0.0], 16.0, (0.0, 100.0));
        assert_eq!(crowded, [0.0, 16.0, 32.0]);
    }

    #[test]
    fn longer_text_is_wider() {
        assert!(text_width("delay 16", 13.0) > text_width("delay 8", 13.0) && text_width("", 13.0) == 0.0);
    }
}
