//! The send schedule: the time of the next packet to each peer.

use super::lobby::HELLO_INTERVAL;
use super::phase::{FramePhase, Phase};
use super::{FAST_RETRANSMIT, KEEP_ALIVE_INTERVAL, SendPolicy, Session, Transmit};
use crate::codec::MAX_DATAGRAM;
use crate::time::{Instant, TimeDelta};

impl Session {
    /// Writes the next datagram to be sent now into `buf`, which must hold at least [`MAX_DATAGRAM`] bytes. Call it
    /// until it returns `None`.
    #[inline]
    pub fn poll_transmit(&mut self, now: Instant, buf: &mut [u8]) -> Option<Transmit> {
        if self.due_peers == 0 && self.next_send.is_some_and(|at| at > now + self.clock_set_back) {
            return if self.side_work { self.transmit_side_work(now, buf) } else { None };
        }
        let transmit = self.transmit(now, buf);
        if transmit.is_none() && self.side_work { self.transmit_side_work(now, buf) } else { transmit }
    }

    fn transmit(&mut self, now: Instant, buf: &mut [u8]) -> Option<Transmit> {
        let now = self.monotonic_time(now);
        assert!(buf.len() >= MAX_DATAGRAM, "the buffer must hold at least {MAX_DATAGRAM} bytes");
        let index = self.next_due_peer(now)?;
        let is_hello = self.pacer.is_none() || self.peers[index].lobby.is_hello_due;
        let len = match is_hello {
            true => self.encode_hello(now, index, buf),
            false => self.encode_tick(now, index, buf).expect("a tick always fits into a packet"),
        };
        self.due_peers &= !(1 << index);
        if self.due_peers == 0 {
            self.next_send = self.next_send_after_all(now, is_hello);
        }
        let peer = &mut self.peers[index];
        peer.on_sent(now, len);
        Some(Transmit { to: peer.addr, len })
    }

    /// Returns the peer to which a packet leaves now: one with something new, or one whose send time has come.
    fn next_due_peer(&mut self, now: Instant) -> Option<usize> {
        if self.due_peers != 0 && !self.is_over() {
            return Some(self.due_peers.trailing_zeros() as usize);
        }
        self.hello_pending = self.peers.iter().any(|peer| peer.lobby.is_hello_due);
        let times = (0..self.peers.len()).map(|index| (self.send_time(index), index));
        let (earliest, index) = times.min()?;
        self.next_send = Some(earliest);
        (earliest <= now).then_some(index)
    }

    /// Returns the next send time once every peer with something new has got its packet; `None` if that time must be
    /// recomputed.
    fn next_send_after_all(&self, now: Instant, is_hello: bool) -> Option<Instant> {
        match self.phase {
            // No peer got a packet earlier than the start of the frame, so no peer is due before this.
            Phase::Running(step)
                if !is_hello && !self.hello_pending && self.config.send_policy == SendPolicy::AtOnce =>
            {
                Some(self.frame_begun_at.min(now) + self.resend_interval(step))
            }
            _ => None,
        }
    }

    /// Marks that there is something new for a peer, so that a packet leaves now, unless a timer or the measured send
    /// interval delays the packet, a hello is due to the peer, or the peer's seat is free.
    pub(super) fn mark_due(&mut self, index: usize) {
        let peer = &self.peers[index];
        let time = match self.config.send_policy {
            SendPolicy::AtOnce => true,
            SendPolicy::Timer(_) => false,
            SendPolicy::Measured => {
                self.last_call - peer.last_sent_at >= self.send_interval(index) - self.frame_period() / 2
            }
        };
        if time && !peer.lobby.is_hello_due && !peer.is_free() {
            self.due_peers |= 1 << index;
        }
    }

    pub(super) fn frame_period(&self) -> TimeDelta {
        self.config.settings.rate.period()
    }

    /// Marks that there is something new for every peer whose seat is taken, or about to be taken by a joiner.
    pub(super) fn mark_all_due(&mut self) {
        if self.hello_pending || self.config.send_policy != SendPolicy::AtOnce {
            for index in 0..self.peers.len() {
                self.mark_due(index);
            }
            // Delayed packets leave as soon as their interval allows.
            self.invalidate_send_time();
        } else {
            self.due_peers |= self.active_peers;
        }
    }

    /// Discards the cached send time, because the time of the next packet may have changed.
    pub(super) fn invalidate_send_time(&mut self) {
        self.next_send = None;
    }

    /// Returns when the next packet to a peer leaves if there is nothing new; [`Instant::FAR_FUTURE`] for never.
    pub(super) fn send_time(&self, index: usize) -> Instant {
        let peer = &self.peers[index];
        match self.phase {
            Phase::Over(_) => Instant::FAR_FUTURE,
            _ if peer.lobby.is_hello_due => peer.last_sent_at + HELLO_INTERVAL / 2,
            Phase::Joining if self.pacer.is_none() => peer.last_sent_at + HELLO_INTERVAL,
            _ if peer.is_free() => Instant::FAR_FUTURE,
            Phase::Lobby | Phase::Starting { .. } => peer.last_sent_at + HELLO_INTERVAL,
            Phase::Joining => peer.last_sent_at + self.resend_interval(FramePhase::Idle),
            Phase::Running(step) => match self.config.send_policy {
                SendPolicy::AtOnce => peer.last_sent_at + self.resend_interval(step),
                SendPolicy::Measured if peer.sender.has_unsent(&self.own_inputs) => {
                    peer.last_sent_at + self.send_interval(index)
                }
                SendPolicy::Measured => peer.last_sent_at + self.resend_interval(step).max(self.send_interval(index)),
                SendPolicy::Timer(period) => self.next_timer_tick(period, peer.last_sent_at),
            },
        }
    }

    /// Returns the interval between packets while a frame waits or nothing is new. It is two frame periods, at most
    /// [`KEEP_ALIVE_INTERVAL`]: including the packet that ends the wait, no more packets than frames leave at 20 or
    /// more frames per second. A wait longer than [`FAST_RETRANSMIT`] is a fault, and the interval is
    /// [`KEEP_ALIVE_INTERVAL`].
    pub(super) fn resend_interval(&self, step: FramePhase) -> TimeDelta {
        match step {
            FramePhase::AwaitInputs { began } if self.last_call - began > FAST_RETRANSMIT => KEEP_ALIVE_INTERVAL,
            _ => self.pacer.as_ref().map_or(KEEP_ALIVE_INTERVAL, |pacer| (pacer.period() * 2).min(KEEP_ALIVE_INTERVAL)),
        }
    }

    /// Returns the first expiry after `sent` of a timer that has run with this period since the session was created.
    fn next_timer_tick(&self, period: TimeDelta, sent: Instant) -> Instant {
        let expired = (sent - self.created_at).as_nanos().div_euclid(period.as_nanos().max(1));
        self.created_at + period * (expired + 1)
    }
}
