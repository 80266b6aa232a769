//! What rides along in a few ticks only: leaving, orders, votes, and inputs passed on for others.
//!
//! Each entry begins with its kind, so that there is room for more. All of them are checked when the tick is read.

use super::{Error, Full, Reader, Writer};
use crate::frame::Frame;
use crate::id::{MAX_SITES, SiteId, SiteSet};

/// One of the things that ride along.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extra<'a> {
    /// The sender leaves the game: its inputs end before this frame.
    Leave(Frame),
    /// Something that happens at one frame everywhere.
    Order(Order),
    /// Where the sender stands in a change of the view.
    Vote(Vote),
    /// A change of the view that is decided: the number of the view that it ends, how, and how many views ended after that one
    /// without dropping anybody.
    Decided(u32, Decision, u32),
    /// The sender misses inputs of a third site from this frame on.
    Want(SiteId, Frame),
    /// Inputs of a third site, passed on.
    Relay(Relay<'a>),
    /// A third site has left the game, passed on: its inputs end before this frame.
    Left(SiteId, Frame),
    /// How things are at the sender.
    Condition(Condition),
    /// Nobody begins a frame before this time: inputs are about to run out.
    Hold(Hold),
}

/// A pause of all sites.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The site that asked for it.
    pub by: SiteId,
    /// The frame that it was about to begin.
    pub frame: Frame,
    /// Until when, in group time.
    pub until_ns: i64,
}

/// Something that happens at one frame everywhere. It counts from the moment that its sender's input for the frame is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// The site that gave it.
    pub by: SiteId,
    /// When.
    pub frame: Frame,
    /// What.
    pub what: What,
}

/// What a site needs and what it can do, for whoever turns the dials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Condition {
    /// How many frames old its newest inputs are when they are needed, but for a few.
    pub need: u32,
    /// How many frames its machine can repair within one.
    pub window: u32,
}

/// What is ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A site plays from this frame on.
    Join {
        /// Which.
        site: SiteId,
        /// Which start of its program: nobody else takes it for his.
        incarnation: u32,
        /// Who plays already.
        members: SiteSet,
        /// The number of their view.
        view: u32,
        /// By how many frames local input is delayed.
        lag: u32,
        /// How many frames may be guessed.
        window: u32,
    },
    /// Local lag and window, in frames.
    Dials {
        /// By how many frames local input is delayed.
        lag: u32,
        /// How many frames may be guessed.
        window: u32,
        /// How many frames inputs are old, which is why.
        need: u32,
        /// At the site for which they are oldest.
        site: SiteId,
    },
}

/// Where a site stands in a change of the view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vote {
    /// The view that is to end.
    pub view: u32,
    /// The highest ballot that the sender takes part in: a round and the number of the site that leads it.
    pub ballot: u32,
    /// The sites that would be dropped.
    pub drop: SiteSet,
    /// How far the sender has their inputs.
    pub ends: Ends,
    /// Those of them that left of their own accord, and of whom nothing is missing there.
    pub left: SiteSet,
    /// Those of them that whoever leads the ballot can hear and will not wait for, which counts if it is the coordinator.
    pub unwanted: SiteSet,
    /// The order of one of them that may be in force.
    pub order: Option<Order>,
    /// The newest outcome that the sender has accepted, and in which ballot.
    pub accepted: Option<(u32, Decision)>,
}

/// The outcome of a change of the view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The sites that are dropped.
    pub drop: SiteSet,
    /// The first frame without each of them.
    pub lasts: Ends,
    /// Those of them that had left of their own accord.
    pub left: SiteSet,
    /// The order of one of them that stays in force; all others of theirs are void.
    pub order: Option<Order>,
}

impl Decision {
    /// That these are dropped, with nothing known of them yet.
    pub const fn dropping(drop: SiteSet) -> Self {
        Self { drop, lasts: [Frame::ZERO; MAX_SITES], left: SiteSet::EMPTY, order: None }
    }
}

/// A frame for each site of a set.
pub type Ends = [Frame; MAX_SITES];

/// Inputs of a third site, passed on, always with an absolute start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Relay<'a> {
    /// Whose.
    pub site: SiteId,
    /// Their first frame.
    pub first: Frame,
    /// How many frames.
    pub len: u32,
    /// Their change tokens.
    pub changes: &'a [u8],
}

/// The entries of one tick, checked when it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Extras<'a> {
    bytes: &'a [u8],
}

impl<'a> Extras<'a> {
    /// The entries in the order they were written.
    pub fn iter(&self) -> impl Iterator<Item = Extra<'a>> + use<'a> {
        let mut reader = Reader::new(self.bytes);
        core::iter::from_fn(move || (!reader.is_empty()).then(|| get_extra(&mut reader).ok()).flatten())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(super) fn decode(reader: &mut Reader<'a>) -> Result<Self, Error> {
        let size = reader.u16()?;
        let bytes = reader.take(usize::from(size))?;
        let mut checked = Reader::new(bytes);
        while !checked.is_empty() {
            get_extra(&mut checked)?;
        }
        if bytes.is_empty() { Err(Error::Malformed) } else { Ok(Self { bytes }) }
    }

    pub(super) fn encode(&self, writer: &mut Writer<'_>) -> Result<(), Full> {
        writer.put(&(self.bytes.len() as u16).to_le_bytes())?;
        writer.put(self.bytes)
    }
}

const LEAVE: u8 = 1;
const ORDER: u8 = 2;
const VOTE: u8 = 3;
const DECIDED: u8 = 4;
const WANT: u8 = 5;
const RELAY: u8 = 6;
const CONDITION: u8 = 7;
const LEFT: u8 = 8;
const HOLD: u8 = 9;

impl Extra<'_> {
    /// Writes an entry, for tests and tools.
    pub fn encode(&self, buf: &mut [u8]) -> Result<usize, Full> {
        let mut writer = Writer::new(buf);
        put_extra(&mut writer, self)?;
        Ok(writer.len())
    }
}

pub(crate) fn put_extra(writer: &mut Writer<'_>, extra: &Extra<'_>) -> Result<(), Full> {
    match extra {
        Extra::Leave(frame) => {
            writer.u8(LEAVE)?;
            put_frame(writer, *frame)
        }
        Extra::Order(order) => {
            writer.u8(ORDER)?;
            put_order(writer, order)
        }
        Extra::Vote(vote) => {
            writer.u8(VOTE)?;
            put_vote(writer, vote)
        }
        Extra::Decided(view, decision, since) => {
            writer.u8(DECIDED)?;
            writer.varint(*view)?;
            put_decision(writer, decision)?;
            writer.varint(*since)
        }
        Extra::Want(site, end) => {
            writer.u8(WANT)?;
            writer.u8(site.number())?;
            put_frame(writer, *end)
        }
        Extra::Left(site, last) => {
            writer.u8(LEFT)?;
            writer.u8(site.number())?;
            put_frame(writer, *last)
        }
        Extra::Condition(condition) => {
            writer.u8(CONDITION)?;
            writer.varint(condition.need)?;
            writer.varint(condition.window)
        }
        Extra::Hold(hold) => {
            writer.put(&[HOLD, hold.by.number()])?;
            put_frame(writer, hold.frame)?;
            writer.put(&hold.until_ns.to_le_bytes())
        }
        Extra::Relay(relay) => {
            put_relay_head(writer, relay.site, relay.first, relay.len)?;
            writer.put(&(relay.changes.len() as u16).to_le_bytes())?;
            writer.put(relay.changes)
        }
    }
}

/// Writes everything of a relay but its inputs, which follow with their size in front.
pub(crate) fn put_relay_head(writer: &mut Writer<'_>, site: SiteId, first: Frame, len: u32) -> Result<(), Full> {
    writer.u8(RELAY)?;
    writer.u8(site.number())?;
    put_frame(writer, first)?;
    writer.varint(len)
}

fn get_extra<'a>(reader: &mut Reader<'a>) -> Result<Extra<'a>, Error> {
    Ok(match reader.u8()? {
        LEAVE => Extra::Leave(get_frame(reader)?),
        ORDER => Extra::Order(get_order(reader)?),
        VOTE => Extra::Vote(get_vote(reader)?),
        DECIDED => Extra::Decided(reader.varint()?, get_decision(reader)?, reader.varint()?),
        WANT => Extra::Want(get_site(reader)?, get_frame(reader)?),
        LEFT => Extra::Left(get_site(reader)?, get_frame(reader)?),
        RELAY => Extra::Relay(get_relay(reader)?),
        HOLD => Extra::Hold(get_hold(reader)?),
        CONDITION => Extra::Condition(Condition { need: reader.varint()?, window: reader.varint()? }),
        _ => return Err(Error::Malformed),
    })
}

fn get_hold(reader: &mut Reader<'_>) -> Result<Hold, Error> {
    let (by, frame) = (get_site(reader)?, get_frame(reader)?);
    Ok(Hold { by, frame, until_ns: reader.u64()? as i64 })
}

fn get_relay<'a>(reader: &mut Reader<'a>) -> Result<Relay<'a>, Error> {
    let (site, first, len) = (get_site(reader)?, get_frame(reader)?, reader.varint()?);
    let size = reader.u16()?;
    let changes = reader.take(usize::from(size))?;
    if len == 0 { Err(Error::Malformed) } else { Ok(Relay { site, first, len, changes }) }
}

const JOIN: u8 = 0;
const DIALS: u8 = 1;

fn put_order(writer: &mut Writer<'_>, order: &Order) -> Result<(), Full> {
    writer.u8(order.by.number())?;
    put_frame(writer, order.frame)?;
    match order.what {
        What::Join { site, incarnation, members, view, lag, window } => {
            writer.put(&[JOIN, site.number(), members.bits()])?;
            writer.varint(incarnation)?;
            writer.varint(view)?;
            writer.varint(lag)?;
            writer.varint(window)
        }
        What::Dials { lag, window, need, site } => {
            writer.u8(DIALS)?;
            writer.varint(lag)?;
            writer.varint(window)?;
            writer.varint(need)?;
            writer.u8(site.number())
        }
    }
}

fn get_order(reader: &mut Reader<'_>) -> Result<Order, Error> {
    let (by, frame) = (get_site(reader)?, get_frame(reader)?);
    let what = match reader.u8()? {
        JOIN => get_join(reader)?,
        DIALS => get_dials(reader)?,
        _ => return Err(Error::Malformed),
    };
    Ok(Order { by, frame, what })
}

fn get_join(reader: &mut Reader<'_>) -> Result<What, Error> {
    let (site, members) = (get_site(reader)?, SiteSet::from_bits(reader.u8()?));
    let (incarnation, view, lag) = (reader.varint()?, reader.varint()?, reader.varint()?);
    Ok(What::Join { site, incarnation, members, view, lag, window: reader.varint()? })
}

fn get_dials(reader: &mut Reader<'_>) -> Result<What, Error> {
    let (lag, window, need) = (reader.varint()?, reader.varint()?, reader.varint()?);
    Ok(What::Dials { lag, window, need, site: get_site(reader)? })
}

fn put_option<T>(
    writer: &mut Writer<'_>,
    value: Option<&T>,
    put: impl FnOnce(&mut Writer<'_>, &T) -> Result<(), Full>,
) -> Result<(), Full> {
    writer.u8(u8::from(value.is_some()))?;
    value.map_or(Ok(()), |value| put(writer, value))
}

fn get_option<'a, T>(
    reader: &mut Reader<'a>,
    get: impl FnOnce(&mut Reader<'a>) -> Result<T, Error>,
) -> Result<Option<T>, Error> {
    match reader.u8()? {
        0 => Ok(None),
        1 => get(reader).map(Some),
        _ => Err(Error::Malformed),
    }
}

fn put_vote(writer: &mut Writer<'_>, vote: &Vote) -> Result<(), Full> {
    writer.varint(vote.view)?;
    writer.varint(vote.ballot)?;
    put_ends(writer, vote.drop, &vote.ends)?;
    writer.put(&[vote.left.bits(), vote.unwanted.bits()])?;
    put_option(writer, vote.order.as_ref(), put_order)?;
    put_option(writer, vote.accepted.as_ref(), |writer, (ballot, decision)| {
        writer.varint(*ballot)?;
        put_decision(writer, decision)
    })
}

fn get_vote(reader: &mut Reader<'_>) -> Result<Vote, Error> {
    let (view, ballot) = (reader.varint()?, reader.varint()?);
    let (drop, ends) = get_ends(reader)?;
    let (left, unwanted) = (SiteSet::from_bits(reader.u8()?), SiteSet::from_bits(reader.u8()?));
    let order = get_option(reader, get_order)?;
    let accepted = get_option(reader, |reader| Ok((reader.varint()?, get_decision(reader)?)))?;
    Ok(Vote { view, ballot, drop, ends, left, unwanted, order, accepted })
}

fn put_decision(writer: &mut Writer<'_>, decision: &Decision) -> Result<(), Full> {
    put_ends(writer, decision.drop, &decision.lasts)?;
    writer.u8(decision.left.bits())?;
    put_option(writer, decision.order.as_ref(), put_order)
}

fn get_decision(reader: &mut Reader<'_>) -> Result<Decision, Error> {
    let (drop, lasts) = get_ends(reader)?;
    let left = SiteSet::from_bits(reader.u8()?);
    Ok(Decision { drop, lasts, left, order: get_option(reader, get_order)? })
}

fn put_ends(writer: &mut Writer<'_>, sites: SiteSet, ends: &Ends) -> Result<(), Full> {
    writer.u8(sites.bits())?;
    sites.iter().try_for_each(|site| put_frame(writer, ends[site.index()]))
}

fn get_ends(reader: &mut Reader<'_>) -> Result<(SiteSet, Ends), Error> {
    let sites = SiteSet::from_bits(reader.u8()?);
    let mut ends = [Frame::ZERO; MAX_SITES];
    for site in sites.iter() {
        ends[site.index()] = get_frame(reader)?;
    }
    Ok((sites, ends))
}

fn put_frame(writer: &mut Writer<'_>, frame: Frame) -> Result<(), Full> {
    writer.varint(frame.number())
}

/// The last frames there can be stand for something else, and nobody gets there.
fn get_frame(reader: &mut Reader<'_>) -> Result<Frame, Error> {
    Some(reader.varint()?).filter(|frame| *frame < u32::MAX / 2).map(Frame::new).ok_or(Error::Malformed)
}

fn get_site(reader: &mut Reader<'_>) -> Result<SiteId, Error> {
    SiteId::new(reader.u8()?).ok_or(Error::Malformed)
}
