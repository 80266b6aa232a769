//! What one site sent, heard and saw, line by line: everything from which can be computed how far apart the views were.

use std::fmt;
use std::str::FromStr;

use coplay::peer_world::{EntityId, WorldSiteId};

/// The first line of a trace.
pub const HEADER: &str = "coplay maze trace 1";

/// One line: what, and when on the clock of who wrote it, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TraceEntry {
    /// When.
    pub at: i64,
    /// What.
    pub event: TraceEvent,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TraceEvent {
    /// Who writes this.
    Site(WorldSiteId),
    /// An entity of ours was told of.
    Sent {
        /// Which.
        entity: EntityId,
        /// The tick that was told of.
        tick: u32,
        /// Where it was, in units.
        position: (f64, f64),
    },
    /// An update came.
    Received {
        /// Of whom.
        entity: EntityId,
        /// Which one in the row.
        sequence: u16,
        /// Of which tick.
        tick: u32,
    },
    /// An entity in a view; also our own.
    Displayed {
        /// Which.
        entity: EntityId,
        /// The tick that is shown.
        tick: u32,
        /// Where it is, in units.
        position: (f64, f64),
        /// Whether it is alive.
        is_alive: bool,
    },
    /// Somebody's clock is ahead of ours by so many nanoseconds, as far as we know.
    ClockOffset {
        /// Whose.
        peer: WorldSiteId,
        /// By how much.
        offset_ns: i64,
    },
    /// The score at the end.
    Score {
        /// Whose.
        entity: EntityId,
        /// How often it hit.
        hits: u32,
        /// How often it was hit.
        falls: u32,
    },
}

impl fmt::Display for TraceEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = self.at;
        match self.event {
            TraceEvent::Site(site) => write!(f, "site,{at},{site:?}"),
            TraceEvent::Sent { entity, tick, position: (x, y) } => {
                write!(f, "sent,{at},{entity:?},{tick},{x:.2},{y:.2}")
            }
            TraceEvent::Received { entity, sequence, tick } => write!(f, "heard,{at},{entity:?},{sequence},{tick}"),
            TraceEvent::Displayed { entity, tick, position: (x, y), is_alive: alive } => {
                write!(f, "seen,{at},{entity:?},{tick},{x:.2},{y:.2},{}", u8::from(alive))
            }
            TraceEvent::ClockOffset { peer, offset_ns: ahead } => write!(f, "offset,{at},{peer:?},{ahead}"),
            TraceEvent::Score { entity, hits, falls } => write!(f, "score,{at},{entity:?},{hits},{falls}"),
        }
    }
}

/// A line that is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceParseError;

impl FromStr for TraceEntry {
    type Err = TraceParseError;

    fn from_str(text: &str) -> Result<Self, TraceParseError> {
        let mut fields = text.split(',');
        let mut next = || fields.next().ok_or(TraceParseError);
        let (kind, at) = (next()?, parse_number(next()?)?);
        let what = match kind {
            "site" => TraceEvent::Site(parse_site(next()?)?),
            "sent" => TraceEvent::Sent {
                entity: parse_entity(next()?)?,
                tick: parse_number(next()?)?,
                position: (parse_number(next()?)?, parse_number(next()?)?),
            },
            "heard" => TraceEvent::Received {
                entity: parse_entity(next()?)?,
                sequence: parse_number(next()?)?,
                tick: parse_number(next()?)?,
            },
            "seen" => TraceEvent::Displayed {
                entity: parse_entity(next()?)?,
                tick: parse_number(next()?)?,
                position: (parse_number(next()?)?, parse_number(next()?)?),
                is_alive: next()? == "1",
            },
            "offset" => TraceEvent::ClockOffset { peer: parse_site(next()?)?, offset_ns: parse_number(next()?)? },
            "score" => TraceEvent::Score {
                entity: parse_entity(next()?)?,
                hits: parse_number(next()?)?,
                falls: parse_number(next()?)?,
            },
            _ => return Err(TraceParseError),
        };
        if fields.next().is_some() { Err(TraceParseError) } else { Ok(Self { at, event: what }) }
    }
}

fn parse_number<T: FromStr>(text: &str) -> Result<T, TraceParseError> {
    text.parse().map_err(|_| TraceParseError)
}

fn parse_site(text: &str) -> Result<WorldSiteId, TraceParseError> {
    u32::from_str_radix(text, 16).map(WorldSiteId).map_err(|_| TraceParseError)
}

fn parse_entity(text: &str) -> Result<EntityId, TraceParseError> {
    let (owner, index) = text.split_once('.').ok_or(TraceParseError)?;
    Ok(EntityId { site: parse_site(owner)?, index: parse_number(index)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_round_trip_and_invalid_ones_are_rejected() {
        let entity = EntityId { site: WorldSiteId(0xdead_beef), index: 3 };
        let lines = [
            TraceEvent::Site(WorldSiteId(7)),
            TraceEvent::Sent { entity, tick: 5, position: (1.5, -2.25) },
            TraceEvent::Received { entity, sequence: 65_535, tick: 9 },
            TraceEvent::Displayed { entity, tick: 9, position: (0.0, 65_535.5), is_alive: true },
            TraceEvent::ClockOffset { peer: WorldSiteId(1), offset_ns: -12 },
            TraceEvent::Score { entity, hits: 3, falls: 0 },
        ];
        for what in lines {
            let line = TraceEntry { at: -77, event: what };
            assert_eq!(line.to_string().parse(), Ok(line));
        }
        for text in ["", "seen", "site,1", "site,1,xyz", "offset,1,2,3,4", "sent,1,7,2,3,4", "nothing,1,2"] {
            assert_eq!(text.parse::<TraceEntry>(), Err(TraceParseError), "{text}");
        }
    }
}
