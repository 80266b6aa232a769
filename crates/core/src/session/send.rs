//! When packets leave, and to whom.

use super::lobby::HELLO_EVERY;
use super::{HURRY, KEEP_ALIVE, LOOK_AGAIN, Phase, Sending, Session, Step, Transmit};
use crate::time::{Instant, TimeDelta};
use crate::wire::MAX_DATAGRAM;

impl Session {
    /// Writes the next datagram to be sent now into `buf`, which must hold [`MAX_DATAGRAM`] bytes.
    #[inline]
    pub fn poll_transmit(&mut self, now: Instant, buf: &mut [u8]) -> Option<Transmit> {
        if self.due == 0 && self.next_send > now + self.set_back {
            return if self.aside { self.transmit_aside(now, buf) } else { None };
        }
        let transmit = self.transmit(now, buf);
        if transmit.is_none() && self.aside { self.transmit_aside(now, buf) } else { transmit }
    }

    fn transmit(&mut self, now: Instant, buf: &mut [u8]) -> Option<Transmit> {
        let now = self.own_time(now);
        assert!(buf.len() >= MAX_DATAGRAM, "a buffer for datagrams holds {MAX_DATAGRAM} bytes");
        let index = self.next_to_send(now)?;
        let greeting = self.pacer.is_none() || self.peers[index].lobby.hello_due;
        let len = match greeting {
            true => self.encode_hello(now, index, buf),
            false => self.encode_tick(now, index, buf).expect("a tick fits into a packet"),
        };
        self.due &= !(1 << index);
        if self.due == 0 {
            self.next_send = self.after_all(now, greeting);
        }
        let peer = &mut self.peers[index];
        peer.on_sent(now, len);
        Some(Transmit { to: peer.addr, len })
    }

    /// The peer to which a packet leaves now: one for which there is something new, or one whose time has come.
    fn next_to_send(&mut self, now: Instant) -> Option<usize> {
        if self.due != 0 && !self.is_over() {
            return Some(self.due.trailing_zeros() as usize);
        }
        self.greetings = self.peers.iter().any(|peer| peer.lobby.hello_due);
        let times = (0..self.peers.len()).map(|index| (self.send_time(index), index));
        let (earliest, index) = times.min()?;
        self.next_send = earliest;
        (earliest <= now).then_some(index)
    }

    /// When to look for packets whose time has come, after one has been sent to everybody.
    fn after_all(&self, now: Instant, greeting: bool) -> Instant {
        match self.phase {
            // Nobody got anything earlier than the frame began, so nobody is due before this.
            Phase::Running(step) if !greeting && !self.greetings && self.config.sending == Sending::AtOnce => {
                self.begun.min(now) + self.resend_pause(step)
            }
            _ => LOOK_AGAIN,
        }
    }

    /// There is something new for a peer, unless packets leave by a timer.
    pub(super) fn set_due(&mut self, index: usize) {
        let peer = &self.peers[index];
        let time = match self.config.sending {
            Sending::AtOnce => true,
            Sending::Timer(_) => false,
            Sending::Measured => self.called - peer.sent >= self.send_interval(index) - self.frame_period() / 2,
        };
        if time && !peer.lobby.hello_due && !peer.is_free() {
            self.due |= 1 << index;
        }
    }

    pub(super) fn frame_period(&self) -> TimeDelta {
        self.config.settings.rate.period()
    }

    /// There is something new for everybody.
    pub(super) fn set_all_due(&mut self) {
        if self.greetings || self.config.sending != Sending::AtOnce {
            for index in 0..self.peers.len() {
                self.set_due(index);
            }
            // What must wait leaves as soon as it may.
            self.look_again();
        } else {
            self.due |= self.listeners;
        }
    }

    /// Something may have changed when the next packet leaves.
    pub(super) fn look_again(&mut self) {
        self.next_send = LOOK_AGAIN;
    }

    /// When the next packet to a peer leaves if there is nothing new.
    pub(super) fn send_time(&self, index: usize) -> Instant {
        let peer = &self.peers[index];
        match self.phase {
            Phase::Over(_) => Instant::FAR_FUTURE,
            _ if peer.lobby.hello_due => peer.sent + HELLO_EVERY / 2,
            Phase::Joining if self.pacer.is_none() => peer.sent + HELLO_EVERY,
            _ if peer.is_free() => Instant::FAR_FUTURE,
            Phase::Lobby | Phase::Starting { .. } => peer.sent + HELLO_EVERY,
            Phase::Joining => peer.sent + self.resend_pause(Step::Rest),
            Phase::Running(step) => match self.config.sending {
                Sending::AtOnce => peer.sent + self.resend_pause(step),
                Sending::Measured if peer.sender.has_unsent(&self.own) => peer.sent + self.send_interval(index),
                Sending::Measured => peer.sent + self.resend_pause(step).max(self.send_interval(index)),
                Sending::Timer(period) => self.next_ring(period, peer.sent),
            },
        }
    }

    /// While somebody waits, packets follow each other at half the pace of frames, so that with the one that ends the wait there are
    /// never more of them than frames there could have been; after a while it must be a fault.
    pub(super) fn resend_pause(&self, step: Step) -> TimeDelta {
        match step {
            Step::Gather { began } if self.called - began > HURRY => KEEP_ALIVE,
            _ => self.pacer.as_ref().map_or(KEEP_ALIVE, |pacer| (pacer.period() * 2).min(KEEP_ALIVE)),
        }
    }

    /// The first time after `sent` at which a timer of this period rings.
    fn next_ring(&self, period: TimeDelta, sent: Instant) -> Instant {
        let rung = (sent - self.created).as_nanos().div_euclid(period.as_nanos().max(1));
        self.created + period * (rung + 1)
    }
}
