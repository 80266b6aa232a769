//! The send schedule: the time of the next packet to each peer.
//!
//! With [`SendPolicy::AtOnce`] a packet leaves as soon as there is something new for a peer, one per frame. A hello
//! that is due to a peer takes the place of its next tick. Where nothing is new, packets leave at the intervals that
//! keep the link alive and resend what was lost.

use super::SendPolicy;
use super::jitter_buffer::JitterBufferModel;
use super::peer::Peer;
use super::phase::{FramePhase, Phase};
use crate::input::Stream;
use crate::time::{Instant, TimeDelta};

/// Interval of hellos until this site plays or is admitted to a running game: in the lobby to each peer that has a
/// seat, from a joiner to all peers. A hello that is due to a peer is sent half an interval after the last packet to
/// it.
pub(super) const HELLO_INTERVAL: TimeDelta = TimeDelta::from_millis(50);
/// Keep-alive interval: the longest time between two packets to a peer with a seat, unless the send policy sets a
/// longer one.
const KEEP_ALIVE_INTERVAL: TimeDelta = TimeDelta::from_millis(100);
/// Duration of fast retransmission during a stall. A stall up to this long may be a lost packet; a longer stall is a
/// fault, and packets are resent every [`KEEP_ALIVE_INTERVAL`] only.
const FAST_RETRANSMIT: TimeDelta = TimeDelta::from_millis(300);

/// The peers to which a packet is due, and the time of the next packet.
#[derive(Debug)]
pub(super) struct SendSchedule {
    policy: SendPolicy,
    created_at: Instant,
    /// Bit set of peer indices for which there is something new to send.
    due_peers: u8,
    /// Bit set of the indices of peers whose seats are taken, or about to be taken by a joiner. New inputs are sent to
    /// these peers.
    active_peers: u8,
    /// Bit set of the indices of peers whose next packet is a hello.
    hellos_due: u8,
    /// Whether a peer may wait for a hello. Recomputed whenever nothing new is due.
    is_hello_pending: bool,
    /// Earliest time at which a packet is due although nothing is new; `None` if it must be recomputed.
    next_send: Option<Instant>,
    /// Whether ticks may have to carry extras besides inputs.
    are_extras_pending: bool,
}

/// What the send schedule reads of the other parts.
#[derive(Debug)]
pub(super) struct SendFacts<'a> {
    pub(super) phase: Phase,
    pub(super) peers: &'a [Peer],
    pub(super) own_inputs: &'a Stream,
    /// Session time of the last call.
    pub(super) last_call: Instant,
    /// Nominal time between two frames.
    pub(super) nominal_period: TimeDelta,
    /// Current time between two frames; `None` while this site is not admitted to a game.
    pub(super) period: Option<TimeDelta>,
    pub(super) input_delay: u32,
}

impl SendFacts<'_> {
    /// Returns the time between packets to a peer by equation 3 of Kim and Park, for [`SendPolicy::Measured`].
    fn send_interval(&self, peer: &Peer) -> TimeDelta {
        JitterBufferModel::new(self.nominal_period, self.input_delay, peer.clock()).send_interval()
    }
}

impl SendSchedule {
    /// Creates the schedule of a session that was created at `now`. `active` tells for each peer whether its seat is
    /// taken.
    pub(super) fn new(now: Instant, policy: SendPolicy, active: impl Iterator<Item = bool>) -> Self {
        let mut schedule = Self {
            policy,
            created_at: now,
            due_peers: 0,
            active_peers: 0,
            hellos_due: 0,
            is_hello_pending: false,
            next_send: Some(now),
            are_extras_pending: false,
        };
        active.enumerate().for_each(|(index, is_active)| schedule.set_active(index, is_active));
        schedule
    }

    /// Notes whether the seat of a peer is taken, or about to be taken by a joiner.
    pub(super) fn set_active(&mut self, index: usize, is_active: bool) {
        self.active_peers = self.active_peers & !(1 << index) | u8::from(is_active) << index;
    }

    /// Marks that there is something new for every peer whose seat is taken, so that a packet leaves now. Returns
    /// `false` if that needs [`mark_all`](Self::mark_all), because packets are delayed or hellos are due.
    #[inline]
    pub(super) fn mark_active(&mut self) -> bool {
        let is_immediate = !self.is_hello_pending && self.policy == SendPolicy::AtOnce;
        if is_immediate {
            self.due_peers |= self.active_peers;
        }
        is_immediate
    }

    /// Marks that there is something new for every peer, unless a timer or the measured send interval delays the
    /// packet, a hello is due to the peer, or the peer's seat is free.
    #[cold]
    pub(super) fn mark_all(&mut self, facts: &SendFacts<'_>) {
        for (index, peer) in facts.peers.iter().enumerate() {
            let is_time = match self.policy {
                SendPolicy::AtOnce => true,
                SendPolicy::Timer(_) => false,
                SendPolicy::Measured => {
                    facts.last_call - peer.last_sent_at() >= facts.send_interval(peer) - facts.nominal_period / 2
                }
            };
            if is_time && !peer.is_free() {
                self.mark_answer_due(index);
            }
        }
        // Delayed packets leave as soon as their interval allows.
        self.next_send = None;
    }

    /// Makes a tick to a peer due now, unless its next packet is a hello.
    pub(super) fn mark_answer_due(&mut self, index: usize) {
        if !self.is_hello_due(index) {
            self.mark_due(index);
        }
    }

    /// Makes a packet to a peer due now.
    pub(super) fn mark_due(&mut self, index: usize) {
        self.due_peers |= 1 << index;
    }

    /// Makes the next packet to a peer a hello.
    pub(super) fn require_hello(&mut self, index: usize) {
        self.hellos_due |= 1 << index;
        self.is_hello_pending = true;
    }

    pub(super) fn is_hello_due(&self, index: usize) -> bool {
        self.hellos_due >> index & 1 != 0
    }

    /// Discards the cached send time, because the time of the next packet may have changed.
    pub(super) fn invalidate(&mut self) {
        self.next_send = None;
    }

    /// Cancels all packets that are due now, because the session is over.
    pub(super) fn cancel(&mut self) {
        self.due_peers = 0;
    }

    /// Returns whether there is nothing new to send.
    #[inline]
    pub(super) fn is_nothing_new(&self) -> bool {
        self.due_peers == 0
    }

    /// Returns the earliest time at which a packet is due although nothing is new, if it is known.
    #[inline]
    pub(super) fn next_send(&self) -> Option<Instant> {
        self.next_send
    }

    /// Returns whether no packet is due before a time later than `now`, without computing send times.
    #[inline]
    pub(super) fn is_idle(&self, now: Instant) -> bool {
        self.due_peers == 0 && self.next_send.is_some_and(|at| at > now)
    }

    /// Returns when the next packet leaves.
    pub(super) fn next_packet_at(&self, facts: &SendFacts<'_>) -> Instant {
        if self.due_peers != 0 {
            return facts.last_call;
        }
        let times = (0..facts.peers.len()).map(|index| self.send_time(index, facts));
        self.next_send.unwrap_or_else(|| times.min().unwrap_or(Instant::FAR_FUTURE))
    }

    /// Returns a peer for which there is something new.
    #[inline]
    pub(super) fn first_due(&self) -> Option<usize> {
        (self.due_peers != 0).then(|| self.due_peers.trailing_zeros() as usize)
    }

    /// Returns the peer to which a packet leaves now although there is nothing new.
    pub(super) fn next_timed_peer(&mut self, now: Instant, facts: &SendFacts<'_>) -> Option<usize> {
        self.is_hello_pending = self.hellos_due != 0;
        let times = (0..facts.peers.len()).map(|index| (self.send_time(index, facts), index));
        let (earliest, index) = times.min()?;
        self.next_send = Some(earliest);
        (earliest <= now).then_some(index)
    }

    /// Notes that a hello to a peer is being sent.
    pub(super) fn on_hello(&mut self, index: usize) {
        self.hellos_due &= !(1 << index);
    }

    /// Notes that a packet to a peer was sent. Returns whether it was the last with something new, so that
    /// [`plan_next`](Self::plan_next) has to be called.
    #[inline]
    pub(super) fn on_sent(&mut self, index: usize) -> bool {
        self.due_peers &= !(1 << index);
        self.due_peers == 0
    }

    /// Plans the next packet after the last one with something new, which may have been a hello. `begun_at` is when the
    /// newest frame began.
    #[inline]
    pub(super) fn plan_next(&mut self, now: Instant, is_hello: bool, begun_at: Instant, facts: &SendFacts<'_>) {
        self.next_send = match facts.phase {
            // No peer got a packet earlier than the start of the frame, so no peer is due before this.
            Phase::Running(step) if !is_hello && !self.is_hello_pending && self.policy == SendPolicy::AtOnce => {
                Some(begun_at.min(now) + resend_interval(step, facts))
            }
            _ => None,
        };
    }

    /// Returns when the next packet to a peer leaves if there is nothing new; [`Instant::FAR_FUTURE`] for never.
    fn send_time(&self, index: usize, facts: &SendFacts<'_>) -> Instant {
        let peer = &facts.peers[index];
        let sent = peer.last_sent_at();
        match facts.phase {
            Phase::Over(_) => Instant::FAR_FUTURE,
            _ if self.is_hello_due(index) => sent + HELLO_INTERVAL / 2,
            Phase::Joining if facts.period.is_none() => sent + HELLO_INTERVAL,
            _ if peer.is_free() => Instant::FAR_FUTURE,
            Phase::Lobby | Phase::Starting { .. } => sent + HELLO_INTERVAL,
            Phase::Joining => sent + resend_interval(FramePhase::Idle, facts),
            Phase::Running(step) => match self.policy {
                SendPolicy::AtOnce => sent + resend_interval(step, facts),
                SendPolicy::Measured if peer.has_unsent(facts.own_inputs) => sent + facts.send_interval(peer),
                SendPolicy::Measured => sent + resend_interval(step, facts).max(facts.send_interval(peer)),
                SendPolicy::Timer(period) => self.next_timer_tick(period, sent),
            },
        }
    }

    /// Returns the first expiry after `sent` of a timer that has run with this period since the session was created.
    fn next_timer_tick(&self, period: TimeDelta, sent: Instant) -> Instant {
        let expired = (sent - self.created_at).as_nanos().div_euclid(period.as_nanos().max(1));
        self.created_at + period * (expired + 1)
    }

    /// Marks that ticks may have to carry extras, until [`set_extras_pending`](Self::set_extras_pending) is called.
    pub(super) fn mark_extras_pending(&mut self) {
        self.are_extras_pending = true;
    }

    pub(super) fn set_extras_pending(&mut self, are_pending: bool) {
        self.are_extras_pending = are_pending;
    }

    #[inline]
    pub(super) fn are_extras_pending(&self) -> bool {
        self.are_extras_pending
    }
}

/// Returns the interval between packets while a frame waits or nothing is new. It is two frame periods, at most
/// [`KEEP_ALIVE_INTERVAL`]: including the packet that ends the wait, no more packets than frames leave at 20 or more
/// frames per second. A wait longer than [`FAST_RETRANSMIT`] is a fault, and the interval is [`KEEP_ALIVE_INTERVAL`].
#[inline]
fn resend_interval(step: FramePhase, facts: &SendFacts<'_>) -> TimeDelta {
    match step {
        FramePhase::AwaitInputs { began } if facts.last_call - began > FAST_RETRANSMIT => KEEP_ALIVE_INTERVAL,
        _ => facts.period.map_or(KEEP_ALIVE_INTERVAL, |period| (period * 2).min(KEEP_ALIVE_INTERVAL)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::Frame;
    use crate::id::{Addr, MAX_SITES, SiteId};
    use crate::input::Ownership;
    use std::vec::Vec;

    const PERIOD: TimeDelta = TimeDelta::from_millis(20);

    fn at(millis: i64) -> Instant {
        Instant::ZERO + TimeDelta::from_millis(millis)
    }

    fn peers(count: u8) -> Vec<Peer> {
        let ownership = Ownership::one_player_per_site(MAX_SITES, 0xff);
        let peer = |number: u8| {
            let site = SiteId::new(number).unwrap();
            Peer::new(at(0), site, Addr(u64::from(number)), ownership.layout(site), Frame::ZERO, 1)
        };
        (1..=count).map(peer).collect()
    }

    fn schedule(policy: SendPolicy, peers: &[Peer]) -> SendSchedule {
        SendSchedule::new(at(0), policy, peers.iter().map(|_| true))
    }

    fn facts<'a>(now: Instant, peers: &'a [Peer], own_inputs: &'a Stream) -> SendFacts<'a> {
        SendFacts {
            phase: Phase::Running(FramePhase::Idle),
            peers,
            own_inputs,
            last_call: now,
            nominal_period: PERIOD,
            period: Some(PERIOD),
            input_delay: 2,
        }
    }

    /// Sends all packets that are due, and returns the indices of their receivers.
    fn send(schedule: &mut SendSchedule, now: Instant, peers: &mut [Peer], own: &Stream) -> Vec<usize> {
        let mut receivers = Vec::new();
        while let Some(index) = schedule.first_due().or_else(|| schedule.next_timed_peer(now, &facts(now, peers, own)))
        {
            let is_hello = schedule.is_hello_due(index);
            schedule.on_hello(index);
            if schedule.on_sent(index) {
                schedule.plan_next(now, is_hello, now, &facts(now, peers, own));
            }
            peers[index].on_sent(now, 10);
            receivers.push(index);
        }
        receivers
    }

    #[test]
    fn new_input_goes_to_every_active_peer_once() {
        let (mut peers, own) = (peers(3), Stream::new(1, Frame::ZERO));
        let mut schedule = schedule(SendPolicy::AtOnce, &peers);
        schedule.set_active(1, false);
        assert!(schedule.mark_active());
        assert_eq!(send(&mut schedule, at(5), &mut peers, &own)[..2], [0, 2]);
        assert!(schedule.is_idle(at(6)), "nothing is new");
    }

    #[test]
    fn resends_after_two_periods_without_news() {
        let (mut peers, own) = (peers(2), Stream::new(1, Frame::ZERO));
        let mut schedule = schedule(SendPolicy::AtOnce, &peers);
        schedule.mark_active();
        send(&mut schedule, at(100), &mut peers, &own);
        assert_eq!(schedule.next_packet_at(&facts(at(100), &peers, &own)), at(140));
        assert!(send(&mut schedule, at(139), &mut peers, &own).is_empty());
        assert_eq!(send(&mut schedule, at(140), &mut peers, &own), [0, 1]);
    }

    #[test]
    fn hello_takes_the_place_of_the_next_tick() {
        let (mut peers, own) = (peers(2), Stream::new(1, Frame::ZERO));
        let mut schedule = schedule(SendPolicy::AtOnce, &peers);
        send(&mut schedule, at(0), &mut peers, &own);
        schedule.require_hello(1);
        schedule.invalidate();
        assert!(!schedule.mark_active(), "the peer that waits for a hello gets no tick");
        schedule.mark_all(&facts(at(10), &peers, &own));
        assert_eq!(send(&mut schedule, at(10), &mut peers, &own), [0]);
        assert_eq!(send(&mut schedule, at(25), &mut peers, &own), [1], "half a hello interval after the last packet");
        assert!(!schedule.is_hello_due(1));
    }

    #[test]
    fn timer_sends_at_its_expiry_only() {
        let (mut peers, own) = (peers(1), Stream::new(1, Frame::ZERO));
        let mut schedule = schedule(SendPolicy::Timer(TimeDelta::from_millis(30)), &peers);
        send(&mut schedule, at(31), &mut peers, &own);
        assert!(!schedule.mark_active());
        schedule.mark_all(&facts(at(40), &peers, &own));
        assert!(send(&mut schedule, at(59), &mut peers, &own).is_empty());
        assert_eq!(send(&mut schedule, at(60), &mut peers, &own), [0]);
    }

    #[test]
    fn long_stall_slows_down_retransmission() {
        let (peers, own) = (peers(1), Stream::new(1, Frame::ZERO));
        let interval = |now: Instant| {
            let phase = Phase::Running(FramePhase::AwaitInputs { began: at(0) });
            resend_interval(FramePhase::AwaitInputs { began: at(0) }, &SendFacts { phase, ..facts(now, &peers, &own) })
        };
        assert_eq!((interval(at(300)), interval(at(301))), (PERIOD * 2, KEEP_ALIVE_INTERVAL));
    }
}
