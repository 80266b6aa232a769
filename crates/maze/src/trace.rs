//! Trace of one site, one event per line: the updates it sent and received, the avatars it displayed, the clock offsets
//! it measured, and scores. From the traces of several sites [`drift`](crate::drift) computes how far apart their views
//! of an avatar were.

use std::fmt;
use std::str::FromStr;

use coplay::peer_world::{EntityId, WorldSiteId};

/// First line of a trace file, with the version of the format.
pub const HEADER: &str = "coplay maze trace 1";

/// One line of a trace: an event and its time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TraceEntry {
    /// Time on the clock of the writing site, in nanoseconds.
    pub at: i64,
    /// Event that the site recorded at that time.
    pub event: TraceEvent,
}

/// Event in the trace of one site.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TraceEvent {
    /// First event of a trace: the id of the site that writes it.
    Site(WorldSiteId),
    /// This site sent an update of one of its entities.
    Sent {
        /// Own entity whose state was sent.
        entity: EntityId,
        /// Tick of the sent state.
        tick: u32,
        /// Position of the entity in that tick, in units.
        position: (f64, f64),
    },
    /// This site received an update of a remote entity.
    Received {
        /// Entity that the update describes.
        entity: EntityId,
        /// Sequence number of the update among those of the entity; wraps.
        sequence: u16,
        /// Tick of the received state.
        tick: u32,
    },
    /// This site displayed an entity, remote or its own.
    Displayed {
        /// Entity in the view.
        entity: EntityId,
        /// Tick that the view displays.
        tick: u32,
        /// Displayed position, in units.
        position: (f64, f64),
        /// Whether the entity is displayed alive.
        is_alive: bool,
    },
    /// This site measured the offset of a peer's clock.
    ClockOffset {
        /// Peer whose clock was measured.
        peer: WorldSiteId,
        /// Nanoseconds by which the peer's clock is ahead of this site's clock.
        offset_ns: i64,
    },
    /// Score of an avatar at the end of the trace.
    Score {
        /// Avatar that has the score.
        entity: EntityId,
        /// Number of hits the avatar scored.
        hits: u32,
        /// Number of times the avatar was hit.
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
            TraceEvent::Displayed { entity, tick, position: (x, y), is_alive } => {
                write!(f, "seen,{at},{entity:?},{tick},{x:.2},{y:.2},{}", u8::from(is_alive))
            }
            TraceEvent::ClockOffset { peer, offset_ns } => write!(f, "offset,{at},{peer:?},{offset_ns}"),
            TraceEvent::Score { entity, hits, falls } => write!(f, "score,{at},{entity:?},{hits},{falls}"),
        }
    }
}

/// Error of a line that is not a valid trace entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceParseError;

impl FromStr for TraceEntry {
    type Err = TraceParseError;

    fn from_str(text: &str) -> Result<Self, TraceParseError> {
        let mut fields = text.split(',');
        let mut next = || fields.next().ok_or(TraceParseError);
        let (kind, at) = (next()?, parse_number(next()?)?);
        let event = match kind {
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
        if fields.next().is_some() { Err(TraceParseError) } else { Ok(Self { at, event }) }
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
        for event in lines {
            let line = TraceEntry { at: -77, event };
            assert_eq!(line.to_string().parse(), Ok(line));
        }
        for text in ["", "seen", "site,1", "site,1,xyz", "offset,1,2,3,4", "sent,1,7,2,3,4", "nothing,1,2"] {
            assert_eq!(text.parse::<TraceEntry>(), Err(TraceParseError), "{text}");
        }
    }
}
