//! Ticks to one peer: which optional parts they carry, and their encoding.
//!
//! Most ticks carry inputs and an acknowledgement only. Probes, digests, identities, requests and extras make a tick
//! longer; they are gathered only for the packets that need them.

use super::digest_history::FrameDigest;
use super::peers::Peers;
use super::relay::{RelayFacts, Relays};
use crate::codec::{BufferFull, ByteWriter, MAX_DATAGRAM};
use crate::frame::Frame;
use crate::input::{MissingRanges, Recovery, Stream, missing_ranges, write_with_length};
use crate::session::message::{
    ClockProbe, Extra, MembershipDecision, PauseRequest, ScheduledCommand, SenderIdentity, TickDigest, TickHeader,
    TuningStats, Vote, put_extra, put_plain_header,
};
use crate::time::{Instant, TimeDelta};

/// Largest plausible distance in frames between a frame that a tick names and the frame that this site expects: the
/// largest distance between two sites.
pub(super) const MAX_FRAME_DISTANCE: i64 = 256;

/// The optional parts of a tick that few ticks carry, in the order in which they are encoded.
#[derive(Clone, Copy, Debug)]
pub(super) struct TickExtras {
    pub(super) command: Option<ScheduledCommand>,
    /// End of this site's inputs, if this site leaves. It is encoded after the command: a receiver that knows of the
    /// leave refuses this site's commands for that frame and later ones.
    pub(super) leave: Option<Frame>,
    pub(super) vote: Option<Vote>,
    /// The last decision, for a peer that needs it: its epoch, and the number of epochs since.
    pub(super) decision: Option<(u32, MembershipDecision, u32)>,
    pub(super) tuning: Option<TuningStats>,
    pub(super) pause: Option<PauseRequest>,
    pub(super) relay: RelayFacts,
}

impl TickExtras {
    fn write(
        &self,
        now: Instant,
        index: usize,
        (peers, relays): (&Peers, &Relays),
        writer: &mut ByteWriter<'_>,
    ) -> Result<(), BufferFull> {
        let Self { command, leave, vote, decision, tuning, pause, relay } = self;
        let of_own = [
            command.map(Extra::Command),
            leave.map(Extra::Leave),
            vote.map(Extra::Vote),
            decision.map(|(epoch, decision, since)| Extra::DecisionReport(epoch, decision, since)),
            tuning.map(Extra::TuningStats),
            pause.map(Extra::Pause),
        ];
        of_own.iter().flatten().try_for_each(|extra| put_extra(writer, extra))?;
        relays.write(now, index, peers, relay, writer)
    }

    /// Returns whether a tick to this peer carries extras.
    #[cold]
    fn is_empty(&self, now: Instant, index: usize, parts: (&Peers, &Relays)) -> bool {
        let mut buf = [0; MAX_DATAGRAM];
        let mut writer = ByteWriter::new(&mut buf);
        self.write(now, index, parts, &mut writer).is_ok() && writer.len() == 0
    }
}

/// What every tick depends on.
#[derive(Clone, Copy, Debug)]
pub(super) struct TickContext<'a> {
    pub(super) now: Instant,
    pub(super) recovery: Recovery,
    pub(super) own_inputs: &'a Stream,
}

/// What only ticks with a probe contain.
#[derive(Debug)]
pub(super) struct ProbeContent {
    /// This site, for a peer that may have lost its address.
    pub(super) identity: SenderIdentity,
    /// The frame that this site is in.
    pub(super) frame: Frame,
    /// Planned start of that frame.
    pub(super) planned_start: Option<Instant>,
    /// Newest digest of this site.
    pub(super) digest: Option<(Frame, FrameDigest)>,
}

/// Encodes the next tick to a peer. `extras` is `None` if ticks carry none at present.
#[inline]
pub(super) fn encode_tick(
    index: usize,
    context: TickContext<'_>,
    (peers, relays): (&mut Peers, &mut Relays),
    extras: Option<&TickExtras>,
    probe: impl FnOnce() -> ProbeContent,
    buf: &mut [u8],
) -> Result<usize, BufferFull> {
    let TickContext { now, recovery, own_inputs } = context;
    let extras = extras.filter(|extras| !extras.is_empty(now, index, (peers, relays)));
    let peer = &mut peers[index];
    let plan = peer.plan_tick(recovery, own_inputs, extras.is_some());
    let end_minus_ack = (plan.end - peer.acknowledgement()) as i32;
    let needs_identity = peer.may_have_lost_address(now, own_inputs);
    let has_probe = needs_identity || peer.is_probe_due(now);
    let has_resends = peer.has_resends(now, own_inputs, plan.end);
    let has_requests = peer.requests_missing_inputs(recovery);
    let is_plain = !has_probe && !has_resends && extras.is_none() && !has_requests;
    let mut writer = ByteWriter::new(&mut buf[..MAX_DATAGRAM]);
    if is_plain {
        put_plain_header(&mut writer, plan.end.low16(), end_minus_ack, plan.is_absolute)?;
    } else {
        let missing = if has_requests { missing_ranges(peer.inputs()) } else { MissingRanges::default() };
        let header = TickHeader { end: plan.end.low16(), end_minus_ack, missing, ..TickHeader::default() };
        let header = match has_probe {
            true => with_probe(header, now, (probe(), peer.take_echo(now)), needs_identity, plan.end),
            false => header,
        };
        header.encode(&mut writer, (extras.is_some(), has_resends), plan.is_absolute)?;
    }
    if let Some(extras) = extras {
        write_with_length(&mut writer, |writer| extras.write(now, index, (peers, relays), writer))?;
        relays.on_tick(index);
    }
    let peer = &mut peers[index];
    if has_resends {
        peer.encode_resends(now, own_inputs, plan.end, &mut writer)?;
    }
    writer.varint((plan.end - plan.first) as u32)?;
    own_inputs.encode(&mut writer, plan.first, plan.end, plan.is_absolute)?;
    peer.on_tick_encoded(&plan);
    Ok(writer.len())
}

/// Adds the clock probe, the digest and, if needed, the sender's identity to a header. `echo` is the stamp to echo, and
/// the time for which it was held.
#[cold]
fn with_probe(
    header: TickHeader,
    now: Instant,
    (content, echo): (ProbeContent, Option<(i64, TimeDelta)>),
    needs_identity: bool,
    end: Frame,
) -> TickHeader {
    TickHeader {
        identity: needs_identity.then_some(content.identity),
        digest: content.digest.map(wire_digest),
        probe: Some(ClockProbe {
            stamp_us: now.as_micros() as u64 & 0xff_ffff_ffff,
            echo: echo.map(|(stamp, held)| (stamp as u32, held.as_nanos())),
            end_minus_frame: (end - content.frame) as i32,
            lateness_ns: content.planned_start.map(|plan| (now - plan).as_nanos()),
        }),
        ..header
    }
}

fn wire_digest((frame, FrameDigest { state_hash, input_digest }): (Frame, FrameDigest)) -> TickDigest {
    TickDigest { frame: frame.low16(), state_hash, input_digest }
}

#[cfg(test)]
mod tests {
    use super::super::peers::table;
    use super::*;
    use crate::id::SiteSet;
    use crate::session::message::Tick;
    use std::vec::Vec;

    const RELAY: RelayFacts =
        RelayFacts { muted: SiteSet::EMPTY, reported_left: SiteSet::EMPTY, is_voting: false, command: None };
    const NONE: TickExtras =
        TickExtras { command: None, leave: None, vote: None, decision: None, tuning: None, pause: None, relay: RELAY };

    fn at(millis: i64) -> Instant {
        Instant::ZERO + TimeDelta::from_millis(millis)
    }

    /// Encodes a tick of site 0 to site 1, which was received at 1 s and has all but the last of 9 inputs.
    fn encoded(now: Instant, peers: &mut Peers, extras: Option<&TickExtras>) -> Vec<u8> {
        let mut own_inputs = Stream::new(1, Frame::ZERO);
        (0..9).for_each(|_| own_inputs.push(&[1]));
        let context = TickContext { now, recovery: Recovery::default(), own_inputs: &own_inputs };
        let identity = SenderIdentity { session_id: 7, site: 0 };
        let mut relays = Relays::new(now, 1);
        let probe = || ProbeContent { identity, frame: Frame::new(6), planned_start: Some(now), digest: None };
        let mut buf = [0; MAX_DATAGRAM];
        let len = encode_tick(0, context, (peers, &mut relays), extras, probe, &mut buf).unwrap();
        buf[..len].to_vec()
    }

    fn reachable(now: Instant) -> Peers {
        let mut peers = table(0, 2);
        peers[0].on_received(now, 1);
        let mut own = Stream::new(1, Frame::ZERO);
        (0..9).for_each(|_| own.push(&[1]));
        let ack = Tick { end_minus_ack: -8, ..Tick::default() };
        assert_eq!(peers[0].on_ack(now, Frame::ZERO, &ack, &own, None), 0);
        peers
    }

    #[test]
    fn plain_tick_carries_inputs_only() {
        let mut peers = reachable(at(1_000));
        peers[0].take_echo(at(1_000));
        let bytes = encoded(at(1_001), &mut peers, None);
        let tick = Tick::decode(&bytes).unwrap();
        assert_eq!((tick.probe, tick.identity, tick.extras.is_empty()), (None, None, true));
        assert_eq!((tick.end, tick.end_minus_ack), (9, 9));
    }

    #[test]
    fn silent_peer_gets_identity_and_probe() {
        let mut peers = reachable(at(1_000));
        peers[0].take_echo(at(1_190));
        let bytes = encoded(at(1_201), &mut peers, None);
        let tick = Tick::decode(&bytes).unwrap();
        assert_eq!(tick.identity, Some(SenderIdentity { session_id: 7, site: 0 }));
        assert_eq!(tick.probe.unwrap().end_minus_frame, 3);
    }

    #[test]
    fn empty_extras_are_left_out() {
        let mut peers = reachable(at(1_000));
        let bytes = encoded(at(1_001), &mut peers, Some(&NONE));
        assert!(Tick::decode(&bytes).unwrap().extras.is_empty());
        let leaving = TickExtras { leave: Some(Frame::new(9)), ..NONE };
        let bytes = encoded(at(1_002), &mut peers, Some(&leaving));
        let tick = Tick::decode(&bytes).unwrap();
        assert!(tick.extras.iter().eq([Extra::Leave(Frame::new(9))]));
    }
}
