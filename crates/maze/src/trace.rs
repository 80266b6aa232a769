//! What one site sent, heard and saw, line by line: everything from which can be computed how far apart the views were.

use std::fmt;
use std::str::FromStr;

use coplay::peer_world::{EntityId, WorldSiteId};

/// The first line of a trace.
pub const HEADER: &str = "coplay maze trace 1";

/// One line: what, and when on the clock of who wrote it, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Line {
    /// When.
    pub at: i64,
    /// What.
    pub what: What,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum What {
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
    Heard {
        /// Of whom.
        entity: EntityId,
        /// Which one in the row.
        sequence: u16,
        /// Of which tick.
        tick: u32,
    },
    /// An entity in a view; also our own.
    Seen {
        /// Which.
        entity: EntityId,
        /// The tick that is shown.
        tick: u32,
        /// Where it is, in units.
        position: (f64, f64),
        /// Whether it is alive.
        alive: bool,
    },
    /// Somebody's clock is ahead of ours by so many nanoseconds, as far as we know.
    Offset {
        /// Whose.
        peer: WorldSiteId,
        /// By how much.
        ahead: i64,
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

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = self.at;
        match self.what {
            What::Site(site) => write!(f, "site,{at},{site:?}"),
            What::Sent { entity, tick, position: (x, y) } => write!(f, "sent,{at},{entity:?},{tick},{x:.2},{y:.2}"),
            What::Heard { entity, sequence, tick } => write!(f, "heard,{at},{entity:?},{sequence},{tick}"),
            What::Seen { entity, tick, position: (x, y), alive } => {
                write!(f, "seen,{at},{entity:?},{tick},{x:.2},{y:.2},{}", u8::from(alive))
            }
            What::Offset { peer, ahead } => write!(f, "offset,{at},{peer:?},{ahead}"),
            What::Score { entity, hits, falls } => write!(f, "score,{at},{entity:?},{hits},{falls}"),
        }
    }
}

/// A line that is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoLine;

impl FromStr for Line {
    type Err = NoLine;

    fn from_str(text: &str) -> Result<Self, NoLine> {
        let mut fields = text.split(',');
        let mut next = || fields.next().ok_or(NoLine);
        let (kind, at) = (next()?, number(next()?)?);
        let what = match kind {
            "site" => What::Site(site(next()?)?),
            "sent" => What::Sent {
                entity: entity(next()?)?,
                tick: number(next()?)?,
                position: (number(next()?)?, number(next()?)?),
            },
            "heard" => What::Heard { entity: entity(next()?)?, sequence: number(next()?)?, tick: number(next()?)? },
            "seen" => What::Seen {
                entity: entity(next()?)?,
                tick: number(next()?)?,
                position: (number(next()?)?, number(next()?)?),
                alive: next()? == "1",
            },
            "offset" => What::Offset { peer: site(next()?)?, ahead: number(next()?)? },
            "score" => What::Score { entity: entity(next()?)?, hits: number(next()?)?, falls: number(next()?)? },
            _ => return Err(NoLine),
        };
        if fields.next().is_some() { Err(NoLine) } else { Ok(Self { at, what }) }
    }
}

fn number<T: FromStr>(text: &str) -> Result<T, NoLine> {
    text.parse().map_err(|_| NoLine)
}

fn site(text: &str) -> Result<WorldSiteId, NoLine> {
    u32::from_str_radix(text, 16).map(WorldSiteId).map_err(|_| NoLine)
}

fn entity(text: &str) -> Result<EntityId, NoLine> {
    let (owner, index) = text.split_once('.').ok_or(NoLine)?;
    Ok(EntityId { site: site(owner)?, index: number(index)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_back_and_what_is_none_is_refused() {
        let entity = EntityId { site: WorldSiteId(0xdead_beef), index: 3 };
        let lines = [
            What::Site(WorldSiteId(7)),
            What::Sent { entity, tick: 5, position: (1.5, -2.25) },
            What::Heard { entity, sequence: 65_535, tick: 9 },
            What::Seen { entity, tick: 9, position: (0.0, 65_535.5), alive: true },
            What::Offset { peer: WorldSiteId(1), ahead: -12 },
            What::Score { entity, hits: 3, falls: 0 },
        ];
        for what in lines {
            let line = Line { at: -77, what };
            assert_eq!(line.to_string().parse(), Ok(line));
        }
        for text in ["", "seen", "site,1", "site,1,xyz", "offset,1,2,3,4", "sent,1,7,2,3,4", "nothing,1,2"] {
            assert_eq!(text.parse::<Line>(), Err(NoLine), "{text}");
        }
    }
}
