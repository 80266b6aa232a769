//! What is done from time to time: clocks, who is here, what is kept.

use alloc::vec::Vec;

use super::send::MirrorControl;
use super::snapshot::ServedSnapshot;
use super::{EventStream, GroupTime, Mirror, MirrorEvent, MirrorPeer, SourceId};
use crate::time::TimeDelta;

/// Round trips that are made at once, for a clock, and how soon; then less so until it is known; then seldom, unless they vary much.
const INITIAL_PROBES: u32 = 12;
const INITIAL_PROBE_INTERVAL: TimeDelta = TimeDelta::from_millis(40);
const FAST_PROBE_INTERVAL: TimeDelta = TimeDelta::from_millis(100);
const SLOW_PROBE_INTERVAL: TimeDelta = TimeDelta::from_secs(1);
const JITTER_THRESHOLD: TimeDelta = TimeDelta::from_millis(4);
/// Who has heard of no time for so long begins one.
const GROUP_TIME_TIMEOUT: TimeDelta = TimeDelta::from_secs(2);
/// Whose time is followed must have been heard so lately.
const TRUST_TIMEOUT: TimeDelta = TimeDelta::from_secs(1);
/// Of a source that is gone, what is obsolete and was asked for so often is not waited for.
const MAX_OBSOLETE_ATTEMPTS: u32 = 3;

impl Mirror {
    /// Does what is due.
    pub(super) fn collect_garbage(&mut self) {
        self.probe_clocks();
        if self.now < self.next_beacon {
            return;
        }
        if self.peers.is_empty() {
            self.next_beacon = self.now + super::send::BEACON_INTERVAL;
        }
        self.drop_silent_peers();
        self.follow_group_time();
        self.discard_stable_history();
        self.drop_unrecoverable();
        self.request_snapshots();
    }

    fn probe_clocks(&mut self) {
        let now = self.now;
        let mut due = Vec::new();
        for (source, peer) in &mut self.peers {
            if now < peer.next_probe || peer.left_at.is_some() {
                continue;
            }
            peer.probe_count = peer.probe_count.saturating_add(1);
            peer.next_probe = now
                + match peer.probe_count {
                    ..INITIAL_PROBES => INITIAL_PROBE_INTERVAL,
                    _ if !peer.is_present => SLOW_PROBE_INTERVAL,
                    _ if !peer.clock.is_ready() || peer.clock.jitter() > JITTER_THRESHOLD => FAST_PROBE_INTERVAL,
                    _ => SLOW_PROBE_INTERVAL,
                };
            due.push(*source);
        }
        due.into_iter().for_each(|source| self.push_control(source, MirrorControl::Probe));
    }

    fn drop_silent_peers(&mut self) {
        let (now, patience) = (self.now, self.config.silence_timeout);
        let mut gone = Vec::new();
        for (source, peer) in self.peers.iter_mut().filter(|(_, peer)| now - peer.last_received_at >= patience) {
            if core::mem::replace(&mut peer.is_present, false) {
                gone.push(*source);
            }
        }
        gone.into_iter().for_each(|source| self.push_event(MirrorEvent::PeerLeft(source)));
        self.peers.retain(|_, peer| peer.is_configured || now - peer.last_received_at < patience * 20);
    }

    /// Follows the time of the lowest source that knows it; begins one if nobody does.
    fn follow_group_time(&mut self) {
        let (now, me) = (self.now, self.config.source);
        let told = |peer: &MirrorPeer| {
            (peer.is_present && now - peer.last_received_at < TRUST_TIMEOUT)
                .then(|| peer.group_time_offset_from_us(now))?
        };
        let known = self.peers.iter().filter_map(|(source, peer)| told(peer).map(|ahead| (*source, ahead)));
        let is_followed = |(source, ahead): &(SourceId, TimeDelta)| {
            (*source < me || self.group_time.is_far_behind(*ahead)) && !self.group_time.is_far_ahead(*ahead)
        };
        let mut followed = known.filter(is_followed);
        if let Some((_, ahead)) = followed.next() {
            self.group_time.steer(now, ahead);
        } else if self.group_time.offset().is_none()
            && now - self.started_at >= GROUP_TIME_TIMEOUT
            && !self.is_group_time_reported()
        {
            self.group_time = GroupTime::start(now);
        }
    }

    /// Whether somebody knows the time, though we do not know its clock yet.
    fn is_group_time_reported(&self) -> bool {
        self.peers.values().any(|peer| peer.is_present && peer.group_time_offset.is_some())
    }

    /// Lets go of what everybody who is here has.
    fn discard_stable_history(&mut self) {
        for (of, stream) in &mut self.streams {
            let here = self.peers.iter().filter(|(source, peer)| peer.is_present && *source != of);
            let stable = here.map(|(_, peer)| peer.have(*of).map_or(0, |have| have.settled_end)).min();
            let given = self.served_snapshots.get(of).map(ServedSnapshot::settled);
            stream.discard_history(stable.unwrap_or(u64::MAX), self.config.history_limits, given);
        }
    }

    /// Of who is gone nobody may have what is obsolete.
    fn drop_unrecoverable(&mut self) {
        let lost = |stream: &EventStream| {
            let in_vain = stream.missing().iter().filter(|missing| missing.attempts >= MAX_OBSOLETE_ATTEMPTS);
            in_vain.map(|missing| missing.seq).filter(|seq| stream.is_obsolete(*seq)).collect::<Vec<u64>>()
        };
        let gone = self.streams.iter().filter(|(source, stream)| !self.is_present(**source) && stream.has_droppable());
        let lost: Vec<(SourceId, Vec<u64>)> = gone.map(|(source, stream)| (*source, lost(stream))).collect();
        for (source, seqs) in lost {
            seqs.into_iter().for_each(|seq| self.drop_event(source, seq));
        }
    }
}
