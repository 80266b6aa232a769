//! Periodic work: clock probes, peer timeouts, the group time, history and snapshots.

use alloc::vec::Vec;

use super::send::UnicastMessage;
use super::snapshot::ServedSnapshot;
use super::{EventStream, GroupTime, Mirror, MirrorEvent, RemoteMirror, SourceId};
use crate::time::TimeDelta;

/// Number of initial clock probes per peer, sent every [`INITIAL_PROBE_INTERVAL`].
const INITIAL_PROBES: u32 = 12;
/// Interval of the first [`INITIAL_PROBES`] clock probes to a peer.
const INITIAL_PROBE_INTERVAL: TimeDelta = TimeDelta::from_millis(40);
/// Probe interval until the clock is known, and while the jitter is above [`JITTER_THRESHOLD`].
const FAST_PROBE_INTERVAL: TimeDelta = TimeDelta::from_millis(100);
/// Probe interval for a known clock with low jitter, and for an absent peer.
const SLOW_PROBE_INTERVAL: TimeDelta = TimeDelta::from_secs(1);
/// Jitter above which the fast probe interval is kept.
const JITTER_THRESHOLD: TimeDelta = TimeDelta::from_millis(4);
/// Time after its creation at which a mirror starts a group time if no present peer reports one.
const GROUP_TIME_TIMEOUT: TimeDelta = TimeDelta::from_secs(2);
/// Maximum silence of a peer whose group time is followed.
const TRUST_TIMEOUT: TimeDelta = TimeDelta::from_secs(1);
/// Number of attempts to request a missing obsolete event of an absent source after which the event is dropped.
const MAX_OBSOLETE_ATTEMPTS: u32 = 3;

impl Mirror {
    /// Queues due clock probes. When a beacon is due, also drops silent peers, follows the group time, discards history
    /// and expired snapshots, drops unrecoverable events and starts snapshot downloads.
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
        due.into_iter().for_each(|source| self.push_control(source, UnicastMessage::Probe));
    }

    fn drop_silent_peers(&mut self) {
        let (now, timeout) = (self.now, self.config.silence_timeout);
        let mut gone = Vec::new();
        for (source, peer) in self.peers.iter_mut().filter(|(_, peer)| now - peer.last_received_at >= timeout) {
            if core::mem::replace(&mut peer.is_present, false) {
                gone.push(*source);
            }
        }
        gone.into_iter().for_each(|source| self.push_event(MirrorEvent::PeerLeft(source)));
        self.peers.retain(|_, peer| peer.is_configured || now - peer.last_received_at < timeout * 20);
    }

    /// Steers towards the group time of one peer: of all peers with a lower source id than this mirror or a group time
    /// far ahead, the one with the lowest source id. Ignores peers whose group time is far behind. If this mirror knows
    /// no group time and no present peer reports one, starts one [`GROUP_TIME_TIMEOUT`] after the creation of this
    /// mirror.
    fn follow_group_time(&mut self) {
        let (now, own_source) = (self.now, self.config.source);
        let reported = |peer: &RemoteMirror| {
            (peer.is_present && now - peer.last_received_at < TRUST_TIMEOUT)
                .then(|| peer.group_time_offset_from_us(now))?
        };
        let known = self.peers.iter().filter_map(|(source, peer)| reported(peer).map(|offset| (*source, offset)));
        let is_followed = |(source, offset): &(SourceId, TimeDelta)| {
            (*source < own_source || self.group_time.is_far_behind(*offset)) && !self.group_time.is_far_ahead(*offset)
        };
        let mut followed = known.filter(is_followed);
        if let Some((_, offset)) = followed.next() {
            self.group_time.steer(now, offset);
        } else if self.group_time.offset().is_none()
            && now - self.started_at >= GROUP_TIME_TIMEOUT
            && !self.is_group_time_reported()
        {
            self.group_time = GroupTime::start(now);
        }
    }

    /// Returns whether a present peer reports a group time, even if this mirror has not measured that peer's clock yet.
    fn is_group_time_reported(&self) -> bool {
        self.peers.values().any(|peer| peer.is_present && peer.group_time_offset.is_some())
    }

    /// Discards settled events that all present peers but their source have settled, too, except for the minimum
    /// history, and all settled events beyond the maximum history. While a snapshot is served, more of the events after
    /// it are kept.
    fn discard_stable_history(&mut self) {
        for (source, stream) in &mut self.streams {
            let present = self.peers.iter().filter(|(peer_source, peer)| peer.is_present && *peer_source != source);
            let stable = present.map(|(_, peer)| peer.stream_status(*source).map_or(0, |have| have.settled_end)).min();
            let served = self.served_snapshots.get(source).map(ServedSnapshot::settled);
            stream.discard_history(stable.unwrap_or(u64::MAX), self.config.history_limits, served);
        }
    }

    /// Drops the missing obsolete events of absent sources after [`MAX_OBSOLETE_ATTEMPTS`] attempts to request them,
    /// under every drop policy.
    fn drop_unrecoverable(&mut self) {
        let unrecoverable = |stream: &EventStream| {
            let unanswered = stream.missing().iter().filter(|missing| missing.attempts >= MAX_OBSOLETE_ATTEMPTS);
            unanswered.map(|missing| missing.seq).filter(|seq| stream.is_obsolete(*seq)).collect::<Vec<u64>>()
        };
        let absent =
            self.streams.iter().filter(|(source, stream)| !self.is_present(**source) && stream.has_droppable());
        let lost: Vec<(SourceId, Vec<u64>)> = absent.map(|(source, stream)| (*source, unrecoverable(stream))).collect();
        for (source, seqs) in lost {
            seqs.into_iter().for_each(|seq| self.drop_event(source, seq));
        }
    }
}
