//! Parsers of flag values. Every error completes the sentence "invalid value X for --flag: ..." in plain words.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// Returns a parser of whole numbers in `range`.
pub fn whole_number<T>(range: RangeInclusive<T>) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static
where
    T: FromStr + PartialOrd + Display + Clone + Send + Sync + 'static,
{
    move |text| {
        let number = text.parse().ok().filter(|number| range.contains(number));
        number.ok_or_else(|| format!("must be a whole number from {} to {}", range.start(), range.end()))
    }
}

/// Returns a parser of whole numbers in `range`, whose error names the unit.
pub fn whole_number_in<T>(
    range: RangeInclusive<T>,
    unit: &'static str,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static
where
    T: FromStr + PartialOrd + Display + Clone + Send + Sync + 'static,
{
    let parse = whole_number(range);
    move |text| parse(text).map_err(|error| format!("{error} {unit}"))
}

/// Parses the seed of a random generator.
pub fn parse_seed(text: &str) -> Result<u64, String> {
    whole_number(0..=u64::MAX)(text).map_err(|error| format!("{error}, such as 42"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_number_outside_its_range_is_rejected() {
        let parse = whole_number(1_u8..=8);
        assert_eq!((parse("1"), parse("8")), (Ok(1), Ok(8)));
        for wrong in ["", "0", "9", "-5", "1.5", "many", "99999999999999999999"] {
            assert_eq!(parse(wrong), Err("must be a whole number from 1 to 8".into()), "{wrong}");
        }
    }
}
