//! Headings in integers: 65,536 are a full turn, 0 is east, and they grow clockwise on a map with south at the bottom.

/// Quarter turn to the right: 16,384 of the 65,536 headings of a full turn.
pub const QUARTER_TURN: u16 = 1 << 14;

/// Half of a full turn: 32,768 headings.
pub const HALF_TURN: u16 = 1 << 15;

/// Fixed-point representation of 1 in the results of [`sine`] and [`cosine`].
pub const TRIG_ONE: i32 = 1 << 14;

/// Number of steps of the sine table in a quarter turn. Linear interpolation between two entries is off by less than a
/// tenth of the resolution, 1/[`TRIG_ONE`].
const SINE_TABLE_STEPS: u16 = 256;

/// Headings per table step.
const SINE_TABLE_STEP: u16 = QUARTER_TURN / SINE_TABLE_STEPS;

/// Sines of the headings from 0 to [`QUARTER_TURN`] in steps of [`SINE_TABLE_STEP`], in fixed point with 30 fractional
/// bits.
static SINE_TABLE: [i32; SINE_TABLE_STEPS as usize + 1] = build_sine_table();

const fn build_sine_table() -> [i32; SINE_TABLE_STEPS as usize + 1] {
    let mut sines = [0; SINE_TABLE_STEPS as usize + 1];
    let mut part = 0;
    while part < sines.len() {
        sines[part] = sine_series(part as i128 * HALF_PI / SINE_TABLE_STEPS as i128);
        part += 1;
    }
    sines
}

/// π/2, in fixed point with 60 fractional bits.
const HALF_PI: i128 = 1_811_004_864_519_280_711;

/// Computes the sine of an angle in radians by its power series. The angle has 60 fractional bits, the result 30.
const fn sine_series(angle: i128) -> i32 {
    let square = (angle * angle) >> 60;
    let (mut sum, mut term, mut power) = (angle, angle, 1);
    while term != 0 {
        term = -((term * square) >> 60) / ((power + 1) * (power + 2));
        sum += term;
        power += 2;
    }
    ((sum + (1 << 29)) >> 30) as i32
}

/// Returns the sine of a heading, times [`TRIG_ONE`]: the southward component of a unit vector along the heading.
pub fn sine(heading: u16) -> i32 {
    let within = heading % QUARTER_TURN;
    match heading / QUARTER_TURN {
        0 => first_quarter_sine(within),
        1 => first_quarter_sine(QUARTER_TURN - within),
        2 => -first_quarter_sine(within),
        _ => -first_quarter_sine(QUARTER_TURN - within),
    }
}

/// Returns the cosine of a heading, times [`TRIG_ONE`]: the eastward component of a unit vector along the heading.
pub fn cosine(heading: u16) -> i32 {
    sine(heading.wrapping_add(QUARTER_TURN))
}

/// Returns the sine of a heading from 0 to [`QUARTER_TURN`], times [`TRIG_ONE`], interpolated between table entries.
fn first_quarter_sine(heading: u16) -> i32 {
    let (part, rest) = (usize::from(heading / SINE_TABLE_STEP), i64::from(heading % SINE_TABLE_STEP));
    let before = i64::from(SINE_TABLE[part]);
    let between =
        if rest == 0 { 0 } else { (i64::from(SINE_TABLE[part + 1]) - before) * rest / i64::from(SINE_TABLE_STEP) };
    ((before + between + (1 << 15)) >> 16) as i32
}

/// Returns the heading of the vector (east, south). The zero vector has heading 0, east.
pub fn bearing(east: i32, south: i32) -> u16 {
    let (east, south) = (i64::from(east), i64::from(south));
    if east > 0 && south >= 0 {
        first_quarter_bearing(east, south)
    } else if east <= 0 && south > 0 {
        QUARTER_TURN + first_quarter_bearing(south, -east)
    } else if east < 0 && south <= 0 {
        HALF_TURN + first_quarter_bearing(-east, -south)
    } else if south < 0 {
        HALF_TURN + QUARTER_TURN + first_quarter_bearing(-south, east)
    } else {
        0
    }
}

/// Returns the heading, below a quarter turn, of the vector with the component `along` at heading 0 and `across` at a
/// quarter turn. Finds the heading by bisection and rounds it down.
fn first_quarter_bearing(along: i64, across: i64) -> u16 {
    let mut found = 0;
    let mut step = QUARTER_TURN / 2;
    while step > 0 {
        let tried = found + step;
        if i64::from(sine(tried)) * along <= i64::from(cosine(tried)) * across {
            found = tried;
        }
        step /= 2;
    }
    found
}

/// Returns the shortest turn from one heading to another; negative is to the left.
pub fn shortest_turn(from: u16, to: u16) -> i16 {
    to.wrapping_sub(from).cast_signed()
}

/// Converts degrees to a heading, rounded down; 360 degrees are heading 0.
pub const fn degrees(degrees: u16) -> u16 {
    (degrees as u32 * 65_536 / 360) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sine_table_is_accurate_to_the_last_digit() {
        for heading in 0..=u16::MAX {
            let true_sine = (f64::from(heading) / 32_768.0 * std::f64::consts::PI).sin() * f64::from(TRIG_ONE);
            let error = (f64::from(sine(heading)) - true_sine).abs();
            assert!(error < 0.6, "{heading}: {} is not {true_sine}", sine(heading));
        }
        assert_eq!([0, QUARTER_TURN, HALF_TURN, HALF_TURN + QUARTER_TURN].map(sine), [0, TRIG_ONE, 0, -TRIG_ONE]);
        assert_eq!([0, QUARTER_TURN, HALF_TURN, HALF_TURN + QUARTER_TURN].map(cosine), [TRIG_ONE, 0, -TRIG_ONE, 0]);
    }

    #[test]
    fn bearing_inverts_sine_and_cosine() {
        for heading in (0..=u16::MAX).step_by(7) {
            let found = bearing(cosine(heading) * 500, sine(heading) * 500);
            assert!(shortest_turn(heading, found).abs() <= 8, "the bearing of heading {heading} is {found}");
        }
        let straight = [bearing(1, 0), bearing(0, 1), bearing(-1, 0), bearing(0, -1), bearing(0, 0)];
        assert_eq!(straight, [0, QUARTER_TURN, HALF_TURN, HALF_TURN + QUARTER_TURN, 0]);
        assert!(shortest_turn(bearing(i32::MAX, i32::MIN), HALF_TURN + QUARTER_TURN + QUARTER_TURN / 2).abs() <= 1);
    }

    #[test]
    fn shortest_turn_never_exceeds_half_a_turn() {
        assert_eq!(shortest_turn(0, 10), 10);
        assert_eq!(shortest_turn(10, 0), -10);
        assert_eq!(shortest_turn(65_530, 4), 10);
        assert_eq!(shortest_turn(4, 65_530), -10);
    }
}
