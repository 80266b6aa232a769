//! Optional parts of a tick: leaves, scheduled commands, membership votes and decisions, inputs relayed for other
//! sites, tuning statistics, and pauses.
//!
//! Each entry begins with its type. All entries are validated when the tick is decoded; an unknown type makes the whole
//! tick malformed.

use crate::codec::{BufferFull, ByteReader, ByteWriter, DecodeError};
use crate::frame::Frame;
use crate::id::{MAX_SITES, SiteId, SiteSet};

/// An optional part of a tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extra<'a> {
    /// The sender leaves the game: its inputs end before this frame.
    Leave(Frame),
    /// A command that all sites apply at the same frame.
    Command(ScheduledCommand),
    /// The sender's vote in a membership ballot.
    Vote(Vote),
    /// A decided membership change: the epoch that it ends, the decision, and the number of later epochs that ended
    /// without dropping a site.
    DecisionReport(u32, MembershipDecision, u32),
    /// The sender lacks inputs of a third site from this frame on.
    RelayRequest(SiteId, Frame),
    /// Relayed inputs of a third site.
    Relay(RelayedInputs<'a>),
    /// Relayed notice that a third site has left the game: its inputs end before this frame.
    LeaveReport(SiteId, Frame),
    /// Measurements at the sender, for tuning the delay settings.
    TuningStats(TuningStats),
    /// All sites pause until the given time, because a jitter buffer is outside its watermarks.
    Pause(PauseRequest),
}

/// A pause of all sites, which one site requested and the other sites pass on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PauseRequest {
    /// The site that requested the pause.
    pub requested_by: SiteId,
    /// Frame that the requesting site was about to begin.
    pub frame: Frame,
    /// End of the pause in nanoseconds of group time.
    pub until_ns: i64,
}

/// A command that all sites apply at the same frame. It is in force once the issuer's input for that frame is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScheduledCommand {
    /// Coordinator that issued the command; it may have left since.
    pub issuer: SiteId,
    /// The frame at which the command takes effect.
    pub frame: Frame,
    /// Change that the command makes.
    pub kind: CommandKind,
}

/// A site's needs and capabilities, from which the coordinator tunes the delay settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TuningStats {
    /// Input age in frames that 98 % of the sender's frames do not exceed. It is the number of frames by which the
    /// inputs received from the slowest peer end before the sender's own, plus the frame periods for which the frame
    /// waited.
    pub input_age: u32,
    /// Longest prediction window in frames, at most 20, for which a rollback takes at most 80 % of a frame period at
    /// the sender; 0 if its machine cannot save its state.
    pub max_prediction_window: u32,
}

/// The action of a scheduled command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandKind {
    /// A site plays from the command's frame on.
    Join {
        /// The joining site.
        site: SiteId,
        /// Incarnation of the site's program, which distinguishes it from an earlier or later one.
        incarnation: u32,
        /// The sites that play already.
        members: SiteSet,
        /// Membership epoch of `members`.
        epoch: u32,
        /// Input delay in frames at the time of the join.
        input_delay: u32,
        /// Prediction window in frames at the time of the join.
        prediction_window: u32,
    },
    /// Change of input delay and prediction window.
    SetDelay {
        /// New input delay in frames.
        input_delay: u32,
        /// New prediction window in frames.
        prediction_window: u32,
        /// Input age in frames that caused the change.
        input_age: u32,
        /// Site that reported this input age, the highest of all.
        site: SiteId,
    },
}

/// A site's vote in a membership ballot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vote {
    /// The membership epoch to be ended.
    pub epoch: u32,
    /// The highest ballot that the sender takes part in: the round times 8, plus the number of the site that leads it.
    /// Ballot 0 only asks for the current epoch.
    pub ballot: u32,
    /// Sites that the ballot is to drop.
    pub drop: SiteSet,
    /// Per site in `drop`, the frame at which the inputs that the sender has of that site end.
    pub input_ends: InputEnds,
    /// Sites in `drop` that left voluntarily and of which the sender has all inputs.
    pub left_sites: SiteSet,
    /// Sites in `drop` that the sender wants to evict, whether they still send or not. Counts only if the sender leads
    /// the ballot and is the coordinator.
    pub to_evict: SiteSet,
    /// Scheduled command issued by a site in `drop` that may be in force.
    pub command: Option<ScheduledCommand>,
    /// Newest decision that the sender accepted, and its ballot; `None` if it accepted none.
    pub accepted: Option<(u32, MembershipDecision)>,
}

/// The outcome of a membership ballot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MembershipDecision {
    /// Sites that the decision drops.
    pub drop: SiteSet,
    /// Per site in `drop`, the first frame without the site's input.
    pub input_ends: InputEnds,
    /// Sites in `drop` that had left voluntarily.
    pub left_sites: SiteSet,
    /// Scheduled command issued by a site in `drop` that stays in force. All other commands of these sites are void.
    pub command: Option<ScheduledCommand>,
}

impl MembershipDecision {
    /// Creates a decision that drops these sites, with all their inputs ending at frame 0.
    pub const fn dropping(drop: SiteSet) -> Self {
        Self { drop, input_ends: [Frame::ZERO; MAX_SITES], left_sites: SiteSet::EMPTY, command: None }
    }
}

/// One frame per site, at [`SiteId::index`]. Only the frames of the sites in the accompanying set count.
pub type InputEnds = [Frame; MAX_SITES];

/// Relayed inputs of a third site, always with an absolute start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RelayedInputs<'a> {
    /// The site that the inputs belong to.
    pub site: SiteId,
    /// First frame of the inputs.
    pub first_frame: Frame,
    /// Number of consecutive frames, at least 1.
    pub frame_count: u32,
    /// Change tokens of the inputs, with an absolute start as in [`Tick::is_absolute`](super::Tick::is_absolute).
    pub changes: &'a [u8],
}

/// The entries of one tick, validated when the tick was decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Extras<'a> {
    bytes: &'a [u8],
}

impl<'a> Extras<'a> {
    /// Iterates over the entries in packet order.
    pub fn iter(&self) -> impl Iterator<Item = Extra<'a>> + use<'a> {
        let mut reader = ByteReader::new(self.bytes);
        core::iter::from_fn(move || (!reader.is_empty()).then(|| get_extra(&mut reader).ok()).flatten())
    }

    /// Returns whether the tick has no entries.
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
    /// Encodes an entry and returns its length in bytes, for tests and tools.
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
        Extra::Command(command) => {
            writer.u8(COMMAND)?;
            put_command(writer, command)
        }
        Extra::Vote(vote) => {
            writer.u8(VOTE)?;
            put_vote(writer, vote)
        }
        Extra::DecisionReport(epoch, decision, since) => {
            writer.u8(DECISION_REPORT)?;
            writer.varint(*epoch)?;
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
        Extra::TuningStats(stats) => {
            writer.u8(TUNING_STATS)?;
            writer.varint(stats.input_age)?;
            writer.varint(stats.max_prediction_window)
        }
        Extra::Pause(pause) => {
            writer.put(&[PAUSE, pause.requested_by.number()])?;
            put_frame(writer, pause.frame)?;
            writer.put(&pause.until_ns.to_le_bytes())
        }
        Extra::Relay(relay) => {
            put_relay_header(writer, relay.site, relay.first_frame, relay.frame_count)?;
            writer.put(&(relay.changes.len() as u16).to_le_bytes())?;
            writer.put(relay.changes)
        }
    }
}

/// Encodes the header of a relay entry. The size of the inputs and the inputs follow.
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
    let (requested_by, frame) = (get_site(reader)?, get_frame(reader)?);
    Ok(PauseRequest { requested_by, frame, until_ns: reader.u64()? as i64 })
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

fn put_command(writer: &mut ByteWriter<'_>, command: &ScheduledCommand) -> Result<(), BufferFull> {
    writer.u8(command.issuer.number())?;
    put_frame(writer, command.frame)?;
    match command.kind {
        CommandKind::Join { site, incarnation, members, epoch, input_delay, prediction_window } => {
            writer.put(&[JOIN, site.number(), members.bits()])?;
            writer.varint(incarnation)?;
            writer.varint(epoch)?;
            writer.varint(input_delay)?;
            writer.varint(prediction_window)
        }
        CommandKind::SetDelay { input_delay, prediction_window, input_age, site } => {
            writer.u8(SET_DELAY)?;
            writer.varint(input_delay)?;
            writer.varint(prediction_window)?;
            writer.varint(input_age)?;
            writer.u8(site.number())
        }
    }
}

fn get_command(reader: &mut ByteReader<'_>) -> Result<ScheduledCommand, DecodeError> {
    let (issuer, frame) = (get_site(reader)?, get_frame(reader)?);
    let kind = match reader.u8()? {
        JOIN => get_join(reader)?,
        SET_DELAY => get_set_delay(reader)?,
        _ => return Err(DecodeError::Malformed),
    };
    Ok(ScheduledCommand { issuer, frame, kind })
}

fn get_join(reader: &mut ByteReader<'_>) -> Result<CommandKind, DecodeError> {
    let (site, members) = (get_site(reader)?, SiteSet::from_bits(reader.u8()?));
    let (incarnation, epoch, input_delay) = (reader.varint()?, reader.varint()?, reader.varint()?);
    Ok(CommandKind::Join { site, incarnation, members, epoch, input_delay, prediction_window: reader.varint()? })
}

fn get_set_delay(reader: &mut ByteReader<'_>) -> Result<CommandKind, DecodeError> {
    let (input_delay, prediction_window, input_age) = (reader.varint()?, reader.varint()?, reader.varint()?);
    Ok(CommandKind::SetDelay { input_delay, prediction_window, input_age, site: get_site(reader)? })
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
    let (epoch, ballot) = (reader.varint()?, reader.varint()?);
    let (drop, input_ends) = get_input_ends(reader)?;
    let (left_sites, to_evict) = (SiteSet::from_bits(reader.u8()?), SiteSet::from_bits(reader.u8()?));
    let command = get_option(reader, get_command)?;
    let accepted = get_option(reader, |reader| Ok((reader.varint()?, get_decision(reader)?)))?;
    Ok(Vote { epoch, ballot, drop, input_ends, left_sites, to_evict, command, accepted })
}

fn put_decision(writer: &mut ByteWriter<'_>, decision: &MembershipDecision) -> Result<(), BufferFull> {
    put_input_ends(writer, decision.drop, &decision.input_ends)?;
    writer.u8(decision.left_sites.bits())?;
    put_option(writer, decision.command.as_ref(), put_command)
}

fn get_decision(reader: &mut ByteReader<'_>) -> Result<MembershipDecision, DecodeError> {
    let (drop, input_ends) = get_input_ends(reader)?;
    let left_sites = SiteSet::from_bits(reader.u8()?);
    Ok(MembershipDecision { drop, input_ends, left_sites, command: get_option(reader, get_command)? })
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

/// Decodes a frame number. The upper half of the range is reserved, and no game gets that far.
fn get_frame(reader: &mut ByteReader<'_>) -> Result<Frame, DecodeError> {
    Some(reader.varint()?).filter(|frame| *frame < u32::MAX / 2).map(Frame::new).ok_or(DecodeError::Malformed)
}

fn get_site(reader: &mut ByteReader<'_>) -> Result<SiteId, DecodeError> {
    SiteId::new(reader.u8()?).ok_or(DecodeError::Malformed)
}
