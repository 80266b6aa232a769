//! When packets leave, and to whom.

use super::lobby::HELLO_INTERVAL;
use super::{
    FAST_RETRANSMIT, FramePhase, KEEP_ALIVE_INTERVAL, Phase, SEND_TIME_UNKNOWN, SendPolicy, Session, Transmit,
};
use crate::time::{Instant, TimeDelta};
use crate::wire::MAX_DATAGRAM;

impl Session {
    /// Writes the next datagram to be sent now into `buf`, which must hold [`MAX_DATAGRAM`] bytes.
    #[inline]
    pub fn poll_transmit(&mut self, now: Instant, buf: &mut [u8]) -> Option<Transmit> {
        if self.due_peers == 0 && self.next_send > now + self.clock_set_back {
            return if self.side_work { self.transmit_side_work(now, buf) } else { None };
        }
        let transmit = self.transmit(now, buf);
        if transmit.is_none() && self.side_work { self.transmit_side_work(now, buf) } else { transmit }
    }

    fn transmit(&mut self, now: Instant, buf: &mut [u8]) -> Option<Transmit> {
        let now = self.monotonic_time(now);
        assert!(buf.len() >= MAX_DATAGRAM, "a buffer for datagrams holds {MAX_DATAGRAM} bytes");
        let index = self.next_due_peer(now)?;
        let greeting = self.pacer.is_none() || self.peers[index].lobby.is_hello_due;
        let len = match greeting {
            true => self.encode_hello(now, index, buf),
            false => self.encode_tick(now, index, buf).expect("a tick fits into a packet"),
        };
        self.due_peers &= !(1 << index);
        if self.due_peers == 0 {
            self.next_send = self.next_send_after_all(now, greeting);
        }
        let peer = &mut self.peers[index];
        peer.on_sent(now, len);
        Some(Transmit { to: peer.addr, len })
    }

    /// The peer to which a packet leaves now: one for which there is something new, or one whose time has come.
    fn next_due_peer(&mut self, now: Instant) -> Option<usize> {
        if self.due_peers != 0 && !self.is_over() {
            return Some(self.due_peers.trailing_zeros() as usize);
        }
        self.hello_pending = self.peers.iter().any(|peer| peer.lobby.is_hello_due);
        let times = (0..self.peers.len()).map(|index| (self.send_time(index), index));
        let (earliest, index) = times.min()?;
        self.next_send = earliest;
        (earliest <= now).then_some(index)
    }

    /// When to look for packets whose time has come, after one has been sent to everybody.
    fn next_send_after_all(&self, now: Instant, greeting: bool) -> Instant {
        match self.phase {
            // Nobody got anything earlier than the frame began, so nobody is due before this.
            Phase::Running(step)
                if !greeting && !self.hello_pending && self.config.send_policy == SendPolicy::AtOnce =>
            {
                self.frame_begun_at.min(now) + self.resend_interval(step)
            }
            _ => SEND_TIME_UNKNOWN,
        }
    }

    /// There is something new for a peer, unless packets leave by a timer.
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

    /// There is something new for everybody.
    pub(super) fn mark_all_due(&mut self) {
        if self.hello_pending || self.config.send_policy != SendPolicy::AtOnce {
            for index in 0..self.peers.len() {
                self.mark_due(index);
            }
            // What must wait leaves as soon as it may.
            self.invalidate_send_time();
        } else {
            self.due_peers |= self.active_peers;
        }
    }

    /// Something may have changed when the next packet leaves.
    pub(super) fn invalidate_send_time(&mut self) {
        self.next_send = SEND_TIME_UNKNOWN;
    }

    /// When the next packet to a peer leaves if there is nothing new.
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

    /// While somebody waits, packets follow each other at half the pace of frames, so that with the one that ends the wait there are
    /// never more of them than frames there could have been; after a while it must be a fault.
    pub(super) fn resend_interval(&self, step: FramePhase) -> TimeDelta {
        match step {
            FramePhase::AwaitInputs { began } if self.last_call - began > FAST_RETRANSMIT => KEEP_ALIVE_INTERVAL,
            _ => self.pacer.as_ref().map_or(KEEP_ALIVE_INTERVAL, |pacer| (pacer.period() * 2).min(KEEP_ALIVE_INTERVAL)),
        }
    }

    /// The first time after `sent` at which a timer of this period rings.
    fn next_timer_tick(&self, period: TimeDelta, sent: Instant) -> Instant {
        let rung = (sent - self.created_at).as_nanos().div_euclid(period.as_nanos().max(1));
        self.created_at + period * (rung + 1)
    }
}
