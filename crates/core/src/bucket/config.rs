//! What is agreed on or chosen before a world begins.

use super::Site;
use crate::time::TimeDelta;

/// A world as one site enters it. All but the site's number, `founder` and `sending` must be the same everywhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Who we are.
    pub site: Site,
    /// Whether the world begins with us: then its time is our clock's. Everybody else learns it from those who are there.
    pub founder: bool,
    /// The smallest step of the world's time.
    pub tick: TimeDelta,
    /// Ticks in a bucket: what is issued in the same one is seen together (T in the paper).
    pub bucket: u32,
    /// Ticks that everybody waits for what the others issue (Δ in the paper).
    pub delay: u32,
    /// Ticks after which an entity that nothing was heard of is not shown any more.
    pub give_up: u32,
    /// When our own entities are told of.
    pub sending: Sending,
}

/// When an entity's state is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sending {
    /// Updates of an entity in a second, at the most.
    pub most: u32,
    /// At the least: what others hear if nothing changes, or if the network cannot carry more.
    pub least: u32,
    /// Updates that others would reckon rightly, by no more than so many units wrong, are not sent. `None` sends all.
    pub tolerance: Option<u32>,
    /// Whether to send less often where receivers report that much is lost or late.
    pub adapt: bool,
}

impl Sending {
    /// Always so many in a second, as in the paper.
    pub const fn fixed(per_second: u32) -> Self {
        Self { most: per_second, least: per_second, tolerance: None, adapt: false }
    }

    /// As many as the network carries.
    pub const fn adaptive(least: u32, most: u32) -> Self {
        Self { most, least, tolerance: None, adapt: true }
    }

    /// Only what others would not reckon themselves.
    pub const fn reckoned(tolerance: u32) -> Self {
        Self { most: 25, least: 4, tolerance: Some(tolerance), adapt: false }
    }
}

impl Default for Sending {
    fn default() -> Self {
        Self { adapt: true, ..Self::reckoned(8) }
    }
}

/// The longest bucket and delay, in ticks, and the longest time to give up.
const MOST_TICKS: u32 = 100;
const LONGEST_SILENCE: u32 = 1_000;
/// The most updates of an entity in a second.
const MOST_PER_SECOND: u32 = 100;

/// Why no world can be like that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigError {
    /// A tick is shorter than a millisecond or longer than a second.
    Tick,
    /// A bucket has no ticks, or too many.
    Bucket,
    /// The delay, or the time after which to give up, is too long, or nothing.
    Delay,
    /// Nothing is sent, more at the least than at the most, or too much.
    Sending,
}

impl core::fmt::Display for ConfigError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Tick => "a tick takes between a millisecond and a second",
            Self::Bucket => "a bucket has between 1 and 100 ticks",
            Self::Delay => "a delay has between 1 and 100 ticks, and it takes between 1 and 1,000 to give up",
            Self::Sending => "between 1 and 100 updates a second are sent, at the least no more than at the most",
        })
    }
}

impl core::error::Error for ConfigError {}

impl Config {
    /// The paper's world: buckets of 40 ms, a delay of 150 ms, and a second before giving up; in ticks of 10 ms.
    pub fn new(site: Site, founder: bool) -> Self {
        let tick = TimeDelta::from_millis(10);
        Self { site, founder, tick, bucket: 4, delay: 15, give_up: 100, sending: Sending::default() }
    }

    /// Whether there can be such a world.
    pub fn check(&self) -> Result<(), ConfigError> {
        let sane = |ticks| (1..=MOST_TICKS).contains(&ticks);
        let Sending { least, most, .. } = self.sending;
        if !(TimeDelta::from_millis(1)..=TimeDelta::from_secs(1)).contains(&self.tick) {
            Err(ConfigError::Tick)
        } else if !sane(self.bucket) {
            Err(ConfigError::Bucket)
        } else if !sane(self.delay) || !(1..=LONGEST_SILENCE).contains(&self.give_up) {
            Err(ConfigError::Delay)
        } else if least == 0 || least > most || most > MOST_PER_SECOND {
            Err(ConfigError::Sending)
        } else {
            Ok(())
        }
    }

    /// Ticks in a second.
    pub(super) fn ticks_per_second(&self) -> u32 {
        (TimeDelta::from_secs(1).as_nanos() / self.tick.as_nanos()).max(1) as u32
    }

    /// Ticks for which states are kept: what is shown now, and what an entity that is given up on was last heard at.
    pub(super) fn kept(&self) -> u32 {
        self.bucket + self.delay + self.give_up
    }
}
