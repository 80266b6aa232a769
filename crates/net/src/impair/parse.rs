//! Text form of an impairment: `delay=40,jitter=5,loss=2`, or `wifi,loss=5`.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use coplay::time::TimeDelta;
use coplay_links::link::{Delay, Jitter, LinkConfig, Loss, Rate};

use super::Impairment;

/// Default length of the queue in front of a rate-limited link, as the time to send a full queue at the link's rate, in
/// milliseconds.
const DEFAULT_QUEUE_MS: f64 = 200.0;

/// Reason why a text is not an impairment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImpairmentError {
    /// A part has an unknown name, lacks `=` and a value, or is a preset and not the first part.
    UnknownPart(String),
    /// The value of a part is invalid.
    InvalidValue {
        /// Name of the part.
        part: &'static str,
        /// Value as given.
        value: String,
        /// Description of the accepted values.
        expected: String,
    },
    /// A part has no effect without another part, which is missing.
    MissingPart {
        /// Name of the part.
        part: &'static str,
        /// Name of the part that it depends on.
        required: &'static str,
    },
}

impl fmt::Display for ImpairmentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownPart(part) => write!(
                f,
                "unknown impairment {part:?}; an impairment is a list of delay=MS, jitter=MS, loss=PERCENT, \
                 burst=PACKETS, duplicate=PERCENT, reorder, rate=KBIT, queue=MS, cut=FROM-UNTIL and seed=N, separated \
                 by commas, with rate in kbit/s and cut in seconds; the list may start with lan, broadband, wifi, \
                 mobile, satellite or awful"
            ),
            Self::InvalidValue { part, value, expected } => write!(f, "{part} must be {expected}, not {value:?}"),
            Self::MissingPart { part, required } => write!(f, "{part} requires {required}"),
        }
    }
}

impl std::error::Error for ImpairmentError {}

/// Parts read so far.
#[derive(Default)]
struct ImpairmentBuilder {
    impairment: Impairment,
    loss: Option<f64>,
    burst: Option<f64>,
    kbits: Option<f64>,
    queue_ms: Option<f64>,
}

impl FromStr for Impairment {
    type Err = ImpairmentError;

    fn from_str(text: &str) -> Result<Self, ImpairmentError> {
        let mut builder = ImpairmentBuilder::default();
        for (at, part) in text.split(',').map(str::trim).enumerate() {
            match (part.split_once('='), preset(part)) {
                (Some((name, value)), _) => builder.set(name, value)?,
                (None, Some(link)) if at == 0 => builder.impairment.link = link,
                (None, _) if part == "reorder" => builder.impairment.link.reorder = true,
                (None, _) => return Err(ImpairmentError::UnknownPart(part.into())),
            }
        }
        builder.finish()
    }
}

fn preset(name: &str) -> Option<LinkConfig> {
    Some(match name {
        "lan" => LinkConfig::lan(),
        "broadband" => LinkConfig::broadband(),
        "wifi" => LinkConfig::wifi(),
        "mobile" => LinkConfig::mobile(),
        "satellite" => LinkConfig::satellite(),
        "awful" => LinkConfig::awful(),
        _ => return None,
    })
}

impl ImpairmentBuilder {
    fn set(&mut self, name: &str, value: &str) -> Result<(), ImpairmentError> {
        let link = &mut self.impairment.link;
        match name {
            "delay" => link.delay = Delay::Constant(millis(parse_number("delay", value, 0.0..=60_000.0)?)),
            "jitter" => {
                link.jitter = Jitter::Exponential { mean: millis(parse_number("jitter", value, 0.0..=10_000.0)?) }
            }
            "loss" => self.loss = Some(parse_number("loss", value, 0.0..=100.0)? / 100.0),
            "burst" => self.burst = Some(parse_number("burst", value, 1.0..=10_000.0)?),
            "duplicate" => link.duplicate = parse_number("duplicate", value, 0.0..=100.0)? / 100.0,
            "rate" => self.kbits = Some(parse_number("rate", value, 1.0..=10_000_000.0)?),
            "queue" => self.queue_ms = Some(parse_number("queue", value, 0.0..=60_000.0)?),
            "cut" => self.impairment.cuts.push(parse_cut(value)?),
            "seed" => self.impairment.seed = parse_seed(value)?,
            _ => return Err(ImpairmentError::UnknownPart(name.into())),
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Impairment, ImpairmentError> {
        let link = &mut self.impairment.link;
        match (self.loss, self.burst) {
            (Some(loss), Some(burst)) if loss < 1.0 => link.loss = Loss::bursts(loss, burst),
            (Some(loss), _) => link.loss = Loss::Independent(loss),
            (None, Some(_)) => return Err(ImpairmentError::MissingPart { part: "burst", required: "loss" }),
            (None, None) => {}
        }
        match (self.kbits, self.queue_ms) {
            (Some(kbits), queue) => link.rate = Some(rate(kbits, queue.unwrap_or(DEFAULT_QUEUE_MS))),
            (None, Some(_)) => return Err(ImpairmentError::MissingPart { part: "queue", required: "rate" }),
            (None, None) => {}
        }
        Ok(self.impairment)
    }
}

fn rate(kbits: f64, queue_ms: f64) -> Rate {
    let bytes_per_second = kbits * 125.0;
    Rate { bytes_per_second: bytes_per_second as u64, queue_bytes: (bytes_per_second * queue_ms / 1e3) as u64 }
}

fn millis(millis: f64) -> TimeDelta {
    TimeDelta::from_nanos((millis * 1e6).round() as i64)
}

fn parse_number(part: &'static str, value: &str, range: RangeInclusive<f64>) -> Result<f64, ImpairmentError> {
    let found = value.parse().ok().filter(|number| range.contains(number));
    found.ok_or_else(|| {
        let unit = match part {
            "loss" | "duplicate" => "%",
            "burst" => "packets",
            "rate" => "kbit/s",
            _ => "ms",
        };
        let expected = format!("a number from {} to {} {unit}", range.start(), range.end());
        ImpairmentError::InvalidValue { part, value: value.into(), expected }
    })
}

fn parse_cut(value: &str) -> Result<(TimeDelta, TimeDelta), ImpairmentError> {
    let invalid = || {
        let expected = "two times in seconds, the first before the second, such as 5-7.5".into();
        ImpairmentError::InvalidValue { part: "cut", value: value.into(), expected }
    };
    let (from, until) = value.split_once('-').ok_or_else(invalid)?;
    let second = |text| parse_number("cut", text, 0.0..=1e6).map_err(|_| invalid());
    let (from, until) = (second(from)?, second(until)?);
    if from < until { Ok((millis(from * 1e3), millis(until * 1e3))) } else { Err(invalid()) }
}

fn parse_seed(value: &str) -> Result<u64, ImpairmentError> {
    let expected = format!("a whole number from 0 to {}", u64::MAX);
    value.parse().map_err(|_| ImpairmentError::InvalidValue { part: "seed", value: value.into(), expected })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Impairment {
        text.parse().unwrap()
    }

    #[test]
    fn all_impairment_parts_are_parsed() {
        let all = read("delay=40,jitter=5,loss=2,burst=3,duplicate=1,reorder,rate=512,queue=100,cut=5-7.5,seed=7");
        let link = LinkConfig {
            delay: Delay::Constant(TimeDelta::from_millis(40)),
            jitter: Jitter::Exponential { mean: TimeDelta::from_millis(5) },
            reorder: true,
            loss: Loss::bursts(0.02, 3.0),
            duplicate: 0.01,
            rate: Some(Rate { bytes_per_second: 64_000, queue_bytes: 6_400 }),
        };
        assert_eq!(all.link, link);
        assert_eq!((all.cuts, all.seed), (vec![(TimeDelta::from_secs(5), TimeDelta::from_millis(7_500))], 7));
        assert_eq!(read("loss=20").link.loss, Loss::Independent(0.2));
        assert_eq!(read("loss=100,burst=4").link.loss, Loss::Independent(1.0), "at 100 % loss a burst never ends");
        assert_eq!(read("delay=0.25").link.delay, Delay::Constant(TimeDelta::from_micros(250)));
    }

    #[test]
    fn preset_parts_can_be_overridden() {
        assert_eq!(read("wifi").link, LinkConfig::wifi());
        assert_eq!(read("awful,loss=0").link, LinkConfig { loss: Loss::Independent(0.0), ..LinkConfig::awful() });
    }

    #[test]
    fn invalid_impairments_are_rejected() {
        let cases = [
            ("", "unknown impairment \"\""),
            ("slow", "unknown impairment \"slow\""),
            ("delay=4,wifi", "unknown impairment \"wifi\""),
            ("ping=3", "unknown impairment \"ping\""),
            ("delay=-1", "delay must be a number from 0 to 60000 ms, not \"-1\""),
            ("delay=NaN", "delay must be"),
            ("loss=101", "loss must be a number from 0 to 100 %"),
            ("loss=", "loss must be"),
            ("burst=3", "burst requires loss"),
            ("queue=3", "queue requires rate"),
            ("cut=5", "cut must be two times in seconds"),
            ("cut=5-3", "cut must be two times in seconds"),
            ("cut=x-3", "cut must be two times in seconds, the first before the second, such as 5-7.5, not \"x-3\""),
            ("seed=1.5", "seed must be a whole number from 0 to"),
        ];
        for (text, expected) in cases {
            let message = text.parse::<Impairment>().unwrap_err().to_string();
            assert!(message.starts_with(expected), "{text}: {message}");
        }
    }
}
