//! What rides along in a few ticks only: leaving, orders, votes, and inputs passed on for others.
//!
//! Each entry begins with its kind, so that there is room for more. All of them are checked when the tick is read.

use super::{BufferFull, ByteReader, ByteWriter, DecodeError};
use crate::frame::Frame;
use crate::id::{MAX_SITES, SiteId, SiteSet};

/// One of the things that ride along.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extra<'a> {
    /// The sender leaves the game: its inputs end before this frame.
    Leave(Frame),
    /// Something that happens at one frame everywhere.
    Command(ScheduledCommand),
    /// Where the sender stands in a change of the view.
    Vote(Vote),
    /// A change of the view that is decided: the number of the view that it ends, how, and how many views ended after that one
    /// without dropping anybody.
    DecisionReport(u32, MembershipDecision, u32),
    /// The sender misses inputs of a third site from this frame on.
    RelayRequest(SiteId, Frame),
    /// Inputs of a third site, passed on.
    Relay(RelayedInputs<'a>),
    /// A third site has left the game, passed on: its inputs end before this frame.
    LeaveReport(SiteId, Frame),
    /// How things are at the sender.
    TuningStats(TuningStats),
    /// Nobody begins a frame before this time: inputs are about to run out.
    Pause(PauseRequest),
}

/// A pause of all sites.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PauseRequest {
    /// The site that asked for it.
    pub requested_by: SiteId,
    /// The frame that it was about to begin.
    pub frame: Frame,
    /// Until when, in group time.
    pub until_ns: i64,
}

/// Something that happens at one frame everywhere. It counts from the moment that its sender's input for the frame is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScheduledCommand {
    /// The site that gave it.
    pub issuer: SiteId,
    /// When.
    pub frame: Frame,
    /// What.
    pub kind: CommandKind,
}

/// What a site needs and what it can do, for whoever turns the dials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TuningStats {
    /// How many frames old its newest inputs are when they are needed, but for a few.
    pub input_age: u32,
    /// How many frames its machine can repair within one.
    pub max_prediction_window: u32,
}

/// What is ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandKind {
    /// A site plays from this frame on.
    Join {
        /// Which.
        site: SiteId,
        /// Which start of its program: nobody else takes it for his.
        incarnation: u32,
        /// Who plays already.
        members: SiteSet,
        /// The number of their view.
        epoch: u32,
        /// By how many frames local input is delayed.
        input_delay: u32,
        /// How many frames may be guessed.
        prediction_window: u32,
    },
    /// Local lag and window, in frames.
    SetDelay {
        /// By how many frames local input is delayed.
        input_delay: u32,
        /// How many frames may be guessed.
        prediction_window: u32,
        /// How many frames inputs are old, which is why.
        input_age: u32,
        /// At the site for which they are oldest.
        site: SiteId,
    },
}

/// Where a site stands in a change of the view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vote {
    /// The view that is to end.
    pub epoch: u32,
    /// The highest ballot that the sender takes part in: a round and the number of the site that leads it.
    pub ballot: u32,
    /// The sites that would be dropped.
    pub drop: SiteSet,
    /// How far the sender has their inputs.
    pub input_ends: InputEnds,
    /// Those of them that left of their own accord, and of whom nothing is missing there.
    pub left_sites: SiteSet,
    /// Those of them that whoever leads the ballot can hear and will not wait for, which counts if it is the coordinator.
    pub to_evict: SiteSet,
    /// The order of one of them that may be in force.
    pub command: Option<ScheduledCommand>,
    /// The newest outcome that the sender has accepted, and in which ballot.
    pub accepted: Option<(u32, MembershipDecision)>,
}

/// The outcome of a change of the view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MembershipDecision {
    /// The sites that are dropped.
    pub drop: SiteSet,
    /// The first frame without each of them.
    pub input_ends: InputEnds,
    /// Those of them that had left of their own accord.
    pub left_sites: SiteSet,
    /// The order of one of them that stays in force; all others of theirs are void.
    pub command: Option<ScheduledCommand>,
}

impl MembershipDecision {
    /// That these are dropped, with nothing known of them yet.
    pub const fn dropping(drop: SiteSet) -> Self {
        Self { drop, input_ends: [Frame::ZERO; MAX_SITES], left_sites: SiteSet::EMPTY, command: None }
    }
}

/// A frame for each site of a set.
pub type InputEnds = [Frame; MAX_SITES];

/// Inputs of a third site, passed on, always with an absolute start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RelayedInputs<'a> {
    /// Whose.
    pub site: SiteId,
    /// Their first frame.
    pub first_frame: Frame,
    /// How many frames.
    pub frame_count: u32,
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
        let mut reader = ByteReader::new(self.bytes);
        core::iter::from_fn(move || (!reader.is_empty()).then(|| get_extra(&mut reader).ok()).flatten())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(super) fn decode(reader: &mut ByteReader<'a>) -> Result<Self, DecodeError> {
        let size = reader.u16()?;
        let bytes = reader.take(usize::from(size))?;
        let mut checked = ByteReader::new(bytes);
        while !checked.is_empty() {
            get_extra(&mut checked)?;
        }
        if bytes.is_empty() { Err(DecodeError::Malformed) } else { Ok(Self { bytes }) }
    }

    pub(super) fn encode(&self, writer: &mut ByteWriter<'_>) -> Result<(), BufferFull> {
        writer.put(&(self.bytes.len() as u16).to_le_bytes())?;
        writer.put(self.bytes)
    }
}

const LEAVE: u8 = 1;
const COMMAND: u8 = 2;
const VOTE: u8 = 3;
const DECISION_REPORT: u8 = 4;
const RELAY_REQUEST: u8 = 5;
const RELAY: u8 = 6;
const TUNING_STATS: u8 = 7;
const LEAVE_REPORT: u8 = 8;
const PAUSE: u8 = 9;

impl Extra<'_> {
    /// Writes an entry, for tests and tools.
    pub fn encode(&self, buf: &mut [u8]) -> Result<usize, BufferFull> {
        let mut writer = ByteWriter::new(buf);
        put_extra(&mut writer, self)?;
        Ok(writer.len())
    }
}

pub(crate) fn put_extra(writer: &mut ByteWriter<'_>, extra: &Extra<'_>) -> Result<(), BufferFull> {
    match extra {
        Extra::Leave(frame) => {
            writer.u8(LEAVE)?;
            put_frame(writer, *frame)
        }
        Extra::Command(order) => {
            writer.u8(COMMAND)?;
            put_command(writer, order)
        }
        Extra::Vote(vote) => {
            writer.u8(VOTE)?;
            put_vote(writer, vote)
        }
        Extra::DecisionReport(view, decision, since) => {
            writer.u8(DECISION_REPORT)?;
            writer.varint(*view)?;
            put_decision(writer, decision)?;
            writer.varint(*since)
        }
        Extra::RelayRequest(site, end) => {
            writer.u8(RELAY_REQUEST)?;
            writer.u8(site.number())?;
            put_frame(writer, *end)
        }
        Extra::LeaveReport(site, last) => {
            writer.u8(LEAVE_REPORT)?;
            writer.u8(site.number())?;
            put_frame(writer, *last)
        }
        Extra::TuningStats(condition) => {
            writer.u8(TUNING_STATS)?;
            writer.varint(condition.input_age)?;
            writer.varint(condition.max_prediction_window)
        }
        Extra::Pause(hold) => {
            writer.put(&[PAUSE, hold.requested_by.number()])?;
            put_frame(writer, hold.frame)?;
            writer.put(&hold.until_ns.to_le_bytes())
        }
        Extra::Relay(relay) => {
            put_relay_header(writer, relay.site, relay.first_frame, relay.frame_count)?;
            writer.put(&(relay.changes.len() as u16).to_le_bytes())?;
            writer.put(relay.changes)
        }
    }
}

/// Writes everything of a relay but its inputs, which follow with their size in front.
pub(crate) fn put_relay_header(
    writer: &mut ByteWriter<'_>,
    site: SiteId,
    first: Frame,
    len: u32,
) -> Result<(), BufferFull> {
    writer.u8(RELAY)?;
    writer.u8(site.number())?;
    put_frame(writer, first)?;
    writer.varint(len)
}

fn get_extra<'a>(reader: &mut ByteReader<'a>) -> Result<Extra<'a>, DecodeError> {
    Ok(match reader.u8()? {
        LEAVE => Extra::Leave(get_frame(reader)?),
        COMMAND => Extra::Command(get_command(reader)?),
        VOTE => Extra::Vote(get_vote(reader)?),
        DECISION_REPORT => Extra::DecisionReport(reader.varint()?, get_decision(reader)?, reader.varint()?),
        RELAY_REQUEST => Extra::RelayRequest(get_site(reader)?, get_frame(reader)?),
        LEAVE_REPORT => Extra::LeaveReport(get_site(reader)?, get_frame(reader)?),
        RELAY => Extra::Relay(get_relay(reader)?),
        PAUSE => Extra::Pause(get_pause(reader)?),
        TUNING_STATS => {
            Extra::TuningStats(TuningStats { input_age: reader.varint()?, max_prediction_window: reader.varint()? })
        }
        _ => return Err(DecodeError::Malformed),
    })
}

fn get_pause(reader: &mut ByteReader<'_>) -> Result<PauseRequest, DecodeError> {
    let (by, frame) = (get_site(reader)?, get_frame(reader)?);
    Ok(PauseRequest { requested_by: by, frame, until_ns: reader.u64()? as i64 })
}

fn get_relay<'a>(reader: &mut ByteReader<'a>) -> Result<RelayedInputs<'a>, DecodeError> {
    let (site, first, len) = (get_site(reader)?, get_frame(reader)?, reader.varint()?);
    let size = reader.u16()?;
    let changes = reader.take(usize::from(size))?;
    if len == 0 {
        Err(DecodeError::Malformed)
    } else {
        Ok(RelayedInputs { site, first_frame: first, frame_count: len, changes })
    }
}

const JOIN: u8 = 0;
const SET_DELAY: u8 = 1;

fn put_command(writer: &mut ByteWriter<'_>, order: &ScheduledCommand) -> Result<(), BufferFull> {
    writer.u8(order.issuer.number())?;
    put_frame(writer, order.frame)?;
    match order.kind {
        CommandKind::Join { site, incarnation, members, epoch: view, input_delay: lag, prediction_window: window } => {
            writer.put(&[JOIN, site.number(), members.bits()])?;
            writer.varint(incarnation)?;
            writer.varint(view)?;
            writer.varint(lag)?;
            writer.varint(window)
        }
        CommandKind::SetDelay { input_delay: lag, prediction_window: window, input_age: need, site } => {
            writer.u8(SET_DELAY)?;
            writer.varint(lag)?;
            writer.varint(window)?;
            writer.varint(need)?;
            writer.u8(site.number())
        }
    }
}

fn get_command(reader: &mut ByteReader<'_>) -> Result<ScheduledCommand, DecodeError> {
    let (by, frame) = (get_site(reader)?, get_frame(reader)?);
    let what = match reader.u8()? {
        JOIN => get_join(reader)?,
        SET_DELAY => get_set_delay(reader)?,
        _ => return Err(DecodeError::Malformed),
    };
    Ok(ScheduledCommand { issuer: by, frame, kind: what })
}

fn get_join(reader: &mut ByteReader<'_>) -> Result<CommandKind, DecodeError> {
    let (site, members) = (get_site(reader)?, SiteSet::from_bits(reader.u8()?));
    let (incarnation, view, lag) = (reader.varint()?, reader.varint()?, reader.varint()?);
    Ok(CommandKind::Join {
        site,
        incarnation,
        members,
        epoch: view,
        input_delay: lag,
        prediction_window: reader.varint()?,
    })
}

fn get_set_delay(reader: &mut ByteReader<'_>) -> Result<CommandKind, DecodeError> {
    let (lag, window, need) = (reader.varint()?, reader.varint()?, reader.varint()?);
    Ok(CommandKind::SetDelay { input_delay: lag, prediction_window: window, input_age: need, site: get_site(reader)? })
}

fn put_option<T>(
    writer: &mut ByteWriter<'_>,
    value: Option<&T>,
    put: impl FnOnce(&mut ByteWriter<'_>, &T) -> Result<(), BufferFull>,
) -> Result<(), BufferFull> {
    writer.u8(u8::from(value.is_some()))?;
    value.map_or(Ok(()), |value| put(writer, value))
}

fn get_option<'a, T>(
    reader: &mut ByteReader<'a>,
    get: impl FnOnce(&mut ByteReader<'a>) -> Result<T, DecodeError>,
) -> Result<Option<T>, DecodeError> {
    match reader.u8()? {
        0 => Ok(None),
        1 => get(reader).map(Some),
        _ => Err(DecodeError::Malformed),
    }
}

fn put_vote(writer: &mut ByteWriter<'_>, vote: &Vote) -> Result<(), BufferFull> {
    writer.varint(vote.epoch)?;
    writer.varint(vote.ballot)?;
    put_input_ends(writer, vote.drop, &vote.input_ends)?;
    writer.put(&[vote.left_sites.bits(), vote.to_evict.bits()])?;
    put_option(writer, vote.command.as_ref(), put_command)?;
    put_option(writer, vote.accepted.as_ref(), |writer, (ballot, decision)| {
        writer.varint(*ballot)?;
        put_decision(writer, decision)
    })
}

fn get_vote(reader: &mut ByteReader<'_>) -> Result<Vote, DecodeError> {
    let (view, ballot) = (reader.varint()?, reader.varint()?);
    let (drop, ends) = get_input_ends(reader)?;
    let (left, unwanted) = (SiteSet::from_bits(reader.u8()?), SiteSet::from_bits(reader.u8()?));
    let order = get_option(reader, get_command)?;
    let accepted = get_option(reader, |reader| Ok((reader.varint()?, get_decision(reader)?)))?;
    Ok(Vote {
        epoch: view,
        ballot,
        drop,
        input_ends: ends,
        left_sites: left,
        to_evict: unwanted,
        command: order,
        accepted,
    })
}

fn put_decision(writer: &mut ByteWriter<'_>, decision: &MembershipDecision) -> Result<(), BufferFull> {
    put_input_ends(writer, decision.drop, &decision.input_ends)?;
    writer.u8(decision.left_sites.bits())?;
    put_option(writer, decision.command.as_ref(), put_command)
}

fn get_decision(reader: &mut ByteReader<'_>) -> Result<MembershipDecision, DecodeError> {
    let (drop, lasts) = get_input_ends(reader)?;
    let left = SiteSet::from_bits(reader.u8()?);
    Ok(MembershipDecision { drop, input_ends: lasts, left_sites: left, command: get_option(reader, get_command)? })
}

fn put_input_ends(writer: &mut ByteWriter<'_>, sites: SiteSet, ends: &InputEnds) -> Result<(), BufferFull> {
    writer.u8(sites.bits())?;
    sites.iter().try_for_each(|site| put_frame(writer, ends[site.index()]))
}

fn get_input_ends(reader: &mut ByteReader<'_>) -> Result<(SiteSet, InputEnds), DecodeError> {
    let sites = SiteSet::from_bits(reader.u8()?);
    let mut ends = [Frame::ZERO; MAX_SITES];
    for site in sites.iter() {
        ends[site.index()] = get_frame(reader)?;
    }
    Ok((sites, ends))
}

fn put_frame(writer: &mut ByteWriter<'_>, frame: Frame) -> Result<(), BufferFull> {
    writer.varint(frame.number())
}

/// The last frames there can be stand for something else, and nobody gets there.
fn get_frame(reader: &mut ByteReader<'_>) -> Result<Frame, DecodeError> {
    Some(reader.varint()?).filter(|frame| *frame < u32::MAX / 2).map(Frame::new).ok_or(DecodeError::Malformed)
}

fn get_site(reader: &mut ByteReader<'_>) -> Result<SiteId, DecodeError> {
    SiteId::new(reader.u8()?).ok_or(DecodeError::Malformed)
}
