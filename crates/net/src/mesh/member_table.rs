//! The members of a mesh as one site knows them. Every site keeps a table, and tables are merged; none is
//! authoritative.
//!
//! Information from a member about itself, in a [`MemberInfo`] on the secured channel between the two sites, is
//! *first-hand* and overrides all reports. Information about a member from another site is a *report*: it makes this
//! site dial an absent member, and has no other effect. So no site can speak for another, and a reported member takes
//! no slot of a real one. Each site decides by itself whether a member is *present*: the member is, as long as its
//! datagrams arrive on that channel. A member that returns with its key is the same member, and has its site number
//! again.

use std::collections::{BTreeMap, VecDeque};

use coplay::time::{Instant, TimeDelta};

use super::dial_report_limiter::DialReportLimiter;
use super::message::MemberInfo;
use super::seal::MeshKey;
use super::{DepartureReason, MAX_KNOWN_MEMBERS, MAX_MEMBERS, MeshEvent, MeshMember};
use crate::key::PeerKey;
use crate::lobby::JoinRefusal;
use crate::peer_addr::PeerAddr;
use crate::seal::RunId;

/// Silence after which a member counts as gone, and time without an answer after which a reported member is not dialed
/// any longer.
const MEMBER_TIMEOUT: TimeDelta = TimeDelta::from_secs(10);
/// Time after which a member that is gone is forgotten. If the member returns later, it counts as new, with its former
/// site number.
const FORGET_TIMEOUT: TimeDelta = TimeDelta::from_secs(15 * 60);
/// Time since a member joined during which it may not know others that different sites admitted at the same time.
const RECENT_JOIN_AGE: TimeDelta = TimeDelta::from_secs(10);

/// Members that one site knows, with the pending events and canceled dials that follow from changes.
#[derive(Debug)]
pub(super) struct MemberTable {
    mesh_key: MeshKey,
    own_info: MemberInfo,
    peers: BTreeMap<PeerKey, PeerEntry>,
    dial_report_limiter: DialReportLimiter,
    events: VecDeque<MeshEvent>,
    canceled_dials: Vec<PeerKey>,
}

/// Information about another member, its presence, and whether it is being dialed.
#[derive(Debug)]
struct PeerEntry {
    info: MemberInfo,
    /// Whether `info` comes from the member itself; otherwise all of it is a report.
    is_first_hand: bool,
    presence: Presence,
    /// Time of the last datagram or of the last change of `presence`, whichever is later; a suspension of this computer
    /// moves it forward.
    since: Instant,
    /// Time at which the member last became present; `None` if it never was.
    joined_at: Option<Instant>,
    /// Start of dialing because of a report; `None` if the member is not being dialed.
    dialed_since: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Presence {
    /// The member is known from a report, its admission or its own information; no datagram has made it present yet.
    Expected,
    Present,
    Silent,
    /// The member said goodbye.
    Left,
}

/// Effect of merging a member's information.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MergeOutcome {
    /// Nothing to do: the information is rejected, is a report that is no reason to dial, or at most updates the name
    /// and the addresses of a member known first-hand.
    Ignored,
    /// The reporter seems to receive a member that this site does not: dial that member.
    Dial,
    /// First information from the member itself, or from another run of it: the member may not know this site either.
    NewFirstHand,
}

impl MemberTable {
    /// Returns a table that contains only this site.
    pub(super) fn new(mesh_key: MeshKey, own_info: MemberInfo) -> Self {
        let (peers, dial_report_limiter) = (BTreeMap::new(), DialReportLimiter::default());
        Self { mesh_key, own_info, peers, dial_report_limiter, events: VecDeque::new(), canceled_dials: Vec::new() }
    }

    /// Returns this site's own information, as it is sent to others.
    pub(super) fn own_info(&self) -> &MemberInfo {
        &self.own_info
    }

    pub(super) fn poll_event(&mut self) -> Option<MeshEvent> {
        self.events.pop_front()
    }

    /// Takes the keys of the peers whose dials are to be canceled.
    pub(super) fn take_canceled_dials(&mut self) -> Vec<PeerKey> {
        std::mem::take(&mut self.canceled_dials)
    }

    /// Returns this site and all present members.
    pub(super) fn members(&self) -> impl Iterator<Item = MeshMember> {
        let others = self.peers.values().filter(|other| other.presence == Presence::Present);
        std::iter::once(&self.own_info).chain(others.map(|other| &other.info)).map(MeshMember::from_info)
    }

    /// Returns the other present members with their site numbers.
    pub(super) fn present_peers(&self) -> impl Iterator<Item = (PeerKey, u32)> {
        let present = self.peers.values().filter(|other| other.presence == Presence::Present);
        present.map(|other| (other.info.key, other.info.site))
    }

    /// Returns all members that may be reached: known first-hand, and without a goodbye.
    pub(super) fn reachable(&self) -> impl Iterator<Item = &MemberInfo> {
        let reachable = |other: &&PeerEntry| other.is_first_hand && other.presence != Presence::Left;
        self.peers.values().filter(reachable).map(|other| &other.info)
    }

    /// Returns the information to pass on to other sites: this site's own and that of present members. Reports are not
    /// passed on.
    pub(super) fn gossip_infos(&self) -> impl Iterator<Item = &MemberInfo> {
        let present = self.peers.values().filter(|other| other.presence == Presence::Present);
        std::iter::once(&self.own_info).chain(present.map(|other| &other.info))
    }

    /// Returns the present members that joined less than 10 s ago.
    pub(super) fn recent_joiners(&self, now: Instant) -> impl Iterator<Item = PeerKey> {
        let is_recent = move |other: &&PeerEntry| other.joined_at.is_some_and(|joined| now - joined < RECENT_JOIN_AGE);
        self.peers
            .values()
            .filter(|other| other.presence == Presence::Present)
            .filter(is_recent)
            .map(|other| other.info.key)
    }

    /// Returns the site number of a known member, even if the member is only reported; `None` after a goodbye.
    pub(super) fn site_of(&self, key: &PeerKey) -> Option<u32> {
        self.peers.get(key).filter(|other| other.presence != Presence::Left).map(|other| other.info.site)
    }

    pub(super) fn is_present(&self, key: &PeerKey) -> bool {
        self.peers.get(key).is_some_and(|other| other.presence == Presence::Present)
    }

    /// Returns the key of the reachable member with this site number.
    pub(super) fn key_of(&self, site: u32) -> Option<PeerKey> {
        self.reachable().find(|info| info.site == site).map(|info| info.key)
    }

    /// Returns the information about a member, first-hand or reported.
    pub(super) fn info_of(&self, key: &PeerKey) -> Option<&MemberInfo> {
        self.peers.get(key).map(|other| &other.info)
    }

    /// Admits a member, or readmits it. Returns its information, and whether that is new, so that the others must be
    /// notified. Fails if the mesh is full.
    pub(super) fn admit(
        &mut self,
        now: Instant,
        key: PeerKey,
        run_id: RunId,
        (name, addrs): (String, Vec<PeerAddr>),
    ) -> Result<(MemberInfo, bool), JoinRefusal> {
        let known = self.peers.get(&key).filter(|other| other.is_first_hand).map(|other| &other.info);
        if let Some(info) = known.filter(|info| info.run_id == run_id) {
            return Ok((info.clone(), false));
        }
        if self.present_peers().filter(|(other, _)| *other != key).count() + 1 >= MAX_MEMBERS {
            return Err(JoinRefusal::Full);
        }
        // The revision of a report is not continued: it may be anything.
        let revision = known.map_or(1, |info| info.revision.saturating_add(1));
        let site = known.map(|info| info.site).or_else(|| self.free_site_number(&key)).ok_or(JoinRefusal::Full)?;
        let info = MemberInfo { revision, key, site, run_id, name, addrs };
        self.apply_first_hand(now, info.clone());
        Ok((info, true))
    }

    /// Returns a site number that no other member has: the same for a key at every admitting site, unless it is taken.
    fn free_site_number(&self, key: &PeerKey) -> Option<u32> {
        self.mesh_key.site_numbers(key).find(|site| !self.is_site_number_taken(*site, key))
    }

    /// Returns whether this site or a member known first-hand, other than the member with the key `by_other_than`, has
    /// this site number.
    fn is_site_number_taken(&self, site: u32, by_other_than: &PeerKey) -> bool {
        let has = |info: &MemberInfo| info.site == site && info.key != *by_other_than;
        has(&self.own_info) || self.peers.values().any(|other| other.is_first_hand && has(&other.info))
    }

    /// Merges information about a member, from that member itself or from another. Ignores information about this site,
    /// and a site number that is not derived from the member's key or belongs to another member.
    pub(super) fn merge(&mut self, now: Instant, from: &PeerKey, info: MemberInfo) -> MergeOutcome {
        let is_derived = self.mesh_key.site_numbers(&info.key).any(|site| site == info.site);
        match info.key == *from {
            _ if info.key == self.own_info.key || !is_derived || self.is_site_number_taken(info.site, &info.key) => {
                MergeOutcome::Ignored
            }
            true => self.apply_first_hand(now, info),
            false => self.on_report(now, from, info),
        }
    }

    /// Applies first-hand information, which overrides all earlier reports. Another run or another site number than
    /// before counts as a restart of the member.
    fn apply_first_hand(&mut self, now: Instant, info: MemberInfo) -> MergeOutcome {
        self.remove_conflicting_report(info.site, &info.key);
        let Some(known) = self.peers.get_mut(&info.key) else {
            let is_new = self.insert(now, info, true);
            return if is_new { MergeOutcome::NewFirstHand } else { MergeOutcome::Ignored };
        };
        let is_restarted = (known.info.run_id, known.info.site) != (info.run_id, info.site);
        if is_restarted && known.presence == Presence::Present {
            self.events.push_back(MeshEvent::Left { site: known.info.site, reason: DepartureReason::Restarted });
        }
        if is_restarted {
            (known.presence, known.since) = (Presence::Expected, now);
        }
        known.info = info;
        let is_new = !std::mem::replace(&mut known.is_first_hand, true) || is_restarted;
        if is_new { MergeOutcome::NewFirstHand } else { MergeOutcome::Ignored }
    }

    /// Removes a reported member whose site number really belongs to the member with the key `key`.
    fn remove_conflicting_report(&mut self, site: u32, key: &PeerKey) {
        let has = |other: &&PeerEntry| !other.is_first_hand && other.info.site == site && other.info.key != *key;
        if let Some(reported) = self.peers.values().find(has).map(|other| other.info.key) {
            self.remove(&reported);
        }
    }

    /// Handles a report about another member, which may be wrong or forged. Its only possible effect is that this site
    /// dials that member.
    fn on_report(&mut self, now: Instant, from: &PeerKey, report: MemberInfo) -> MergeOutcome {
        let has_number = |other: &PeerEntry| other.info.site == report.site && other.info.key != report.key;
        let is_worth_dialing = self.peers.get(&report.key).is_none_or(|known| known.is_worth_dialing(&report));
        let is_wanted = is_worth_dialing && !self.peers.values().any(has_number);
        if !is_wanted || !self.dial_report_limiter.try_acquire(now, from) {
            return MergeOutcome::Ignored;
        }
        if let Some(known) = self.peers.get_mut(&report.key) {
            known.mark_dialed(now, report);
            return MergeOutcome::Dial;
        }
        if self.insert(now, report, false) { MergeOutcome::Dial } else { MergeOutcome::Ignored }
    }

    /// Inserts an unknown member. Returns `false` if there is no room.
    fn insert(&mut self, now: Instant, info: MemberInfo, is_first_hand: bool) -> bool {
        let has_room = self.peers.len() < MAX_KNOWN_MEMBERS || self.evict_one(is_first_hand);
        if has_room {
            let dialed_since = (!is_first_hand).then_some(now);
            let other = PeerEntry {
                info,
                is_first_hand,
                presence: Presence::Expected,
                since: now,
                joined_at: None,
                dialed_since,
            };
            self.peers.insert(other.info.key, other);
        }
        has_room
    }

    /// Forgets one member: a reported one before a first-hand one, a silent or departed one before an expected one, and
    /// then the one silent for longest. Never forgets a first-hand member that is present or expected. To make room for
    /// a report (`for_first_hand` is `false`), forgets only a reported member that did not answer or has left. Returns
    /// `false` if there is no member to forget.
    fn evict_one(&mut self, for_first_hand: bool) -> bool {
        let may_go = |other: &&PeerEntry| match for_first_hand {
            true => !other.is_first_hand || !other.is_present_or_expected(),
            false => !other.is_first_hand && !other.is_present_or_expected(),
        };
        let first = self
            .peers
            .values()
            .filter(may_go)
            .min_by_key(|other| (other.is_first_hand, other.is_present_or_expected(), other.since));
        let first = first.map(|other| other.info.key);
        first.is_some_and(|key| self.remove(&key))
    }

    fn remove(&mut self, key: &PeerKey) -> bool {
        self.canceled_dials.push(*key);
        self.peers.remove(key).is_some()
    }

    /// Sets this site's own addresses and increments its revision.
    pub(super) fn set_own_addrs(&mut self, addrs: Vec<PeerAddr>) {
        self.own_info.revision = self.own_info.revision.saturating_add(1);
        self.own_info.addrs = addrs;
    }

    /// Records a datagram on the secured channel, which makes its sender present, and returns the sender's site number.
    /// Returns `None` for a sender without first-hand information, or one that said goodbye.
    pub(super) fn on_received(&mut self, now: Instant, key: &PeerKey) -> Option<u32> {
        let other = self.peers.get_mut(key).filter(|other| other.is_first_hand && other.presence != Presence::Left)?;
        other.since = now;
        if std::mem::replace(&mut other.presence, Presence::Present) != Presence::Present {
            let is_rejoin = other.joined_at.replace(now).is_some();
            self.events.push_back(MeshEvent::Joined { member: MeshMember::from_info(&other.info), is_rejoin });
        }
        if other.dialed_since.take().is_some() {
            self.canceled_dials.push(*key);
        }
        Some(other.info.site)
    }

    /// Marks a member as departed after its goodbye, and cancels dialing it.
    pub(super) fn on_bye(&mut self, now: Instant, key: &PeerKey) {
        let Some(other) = self.peers.get_mut(key) else { return };
        if other.presence == Presence::Present {
            self.events.push_back(MeshEvent::Left { site: other.info.site, reason: DepartureReason::Left });
        }
        (other.presence, other.since) = (Presence::Left, now);
        self.canceled_dials.push(*key);
    }

    /// Restarts the timeouts of present and expected members after this site was suspended: it cannot know which of
    /// them were silent meanwhile.
    pub(super) fn reset_timeouts(&mut self, now: Instant) {
        self.peers.values_mut().filter(|other| other.is_present_or_expected()).for_each(|other| other.since = now);
    }

    /// Marks members silent for 10 s as gone, cancels dials that were not answered for 10 s, and forgets members gone
    /// for 15 min.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        for other in self.peers.values_mut() {
            if other.is_present_or_expected() && now - other.since > MEMBER_TIMEOUT {
                if other.presence == Presence::Present {
                    self.events.push_back(MeshEvent::Left { site: other.info.site, reason: DepartureReason::TimedOut });
                }
                (other.presence, other.since) = (Presence::Silent, now);
            }
            if other.dialed_since.take_if(|since| now - *since > MEMBER_TIMEOUT).is_some() {
                self.canceled_dials.push(other.info.key);
            }
        }
        let long_gone = self.peers.values().filter(|other| now - other.since > FORGET_TIMEOUT);
        let long_gone: Vec<PeerKey> = long_gone.map(|other| other.info.key).collect();
        long_gone.iter().for_each(|key| _ = self.remove(key));
    }
}

impl PeerEntry {
    fn is_present_or_expected(&self) -> bool {
        matches!(self.presence, Presence::Present | Presence::Expected)
    }

    /// Returns whether a report is a reason to dial this member. A member that said goodbye does not return in the same
    /// run. A member that is being dialed is not dialed again at the same addresses.
    fn is_worth_dialing(&self, report: &MemberInfo) -> bool {
        match self.presence {
            Presence::Present => false,
            Presence::Left => report.run_id != self.info.run_id,
            Presence::Expected | Presence::Silent => self.dialed_since.is_none() || report.addrs != self.info.addrs,
        }
    }

    /// Notes that the member is being dialed. Of two reports the greater one holds; first-hand information is kept. The
    /// member stays absent and is not passed on until a datagram from it arrives; otherwise a dead member would be
    /// reported for ever.
    fn mark_dialed(&mut self, now: Instant, report: MemberInfo) {
        self.dialed_since.get_or_insert(now);
        if !self.is_first_hand && report > self.info {
            self.info = report;
        }
    }
}

impl MeshMember {
    fn from_info(info: &MemberInfo) -> Self {
        Self { site: info.site, key: info.key, name: info.name.clone() }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use super::*;

    const NOW: Instant = Instant::from_nanos(1_000_000_000_000);
    static MESH_KEY: LazyLock<MeshKey> = LazyLock::new(MeshKey::random);

    fn later(seconds: i64) -> Instant {
        NOW + TimeDelta::from_secs(seconds)
    }

    fn key(number: u8) -> PeerKey {
        PeerKey([number; 32])
    }

    fn site(number: u8) -> u32 {
        MESH_KEY.site_number(&key(number), 0)
    }

    fn member_info(number: u8, revision: u32, run: u8) -> MemberInfo {
        let (key, site, name) = (key(number), site(number), format!("site {number}"));
        MemberInfo { revision, key, site, run_id: [run; 16], name, addrs: vec![] }
    }

    fn member_table(number: u8) -> MemberTable {
        MemberTable::new(MESH_KEY.clone(), member_info(number, 1, 1))
    }

    fn events(table: &mut MemberTable) -> Vec<String> {
        let events = std::iter::from_fn(|| table.poll_event());
        let texts = events.map(|event| match event {
            MeshEvent::Joined { member, is_rejoin } => {
                format!("{} {}", member.name, if is_rejoin { "rejoined" } else { "joined" })
            }
            MeshEvent::Left { site, reason } => format!("{site} {reason:?}"),
            other => panic!("{other:?}"),
        });
        texts.collect()
    }

    fn member_names(table: &MemberTable) -> Vec<String> {
        table.members().map(|member| member.name).collect()
    }

    fn admit_and_receive(table: &mut MemberTable, number: u8, run: u8) -> Result<(MemberInfo, bool), JoinRefusal> {
        let admitted = table.admit(NOW, key(number), [run; 16], (format!("site {number}"), vec![]));
        table.on_received(NOW, &key(number));
        admitted
    }

    /// Merges a member's information about itself, and records the datagram that brought it.
    fn merge_first_hand(table: &mut MemberTable, now: Instant, info: MemberInfo) -> MergeOutcome {
        let peer = info.key;
        let merged = table.merge(now, &peer, info);
        table.on_received(now, &peer);
        merged
    }

    #[test]
    fn member_is_present_while_datagrams_arrive() {
        let mut table = member_table(1);
        assert_eq!(table.merge(NOW, &key(9), member_info(2, 1, 1)), MergeOutcome::Dial);
        assert_eq!(table.on_received(NOW, &key(2)), None, "there is no first-hand information yet");
        assert!(member_names(&table) == ["site 1"] && table.gossip_infos().count() == 1);
        assert_eq!(merge_first_hand(&mut table, NOW, member_info(2, 1, 1)), MergeOutcome::NewFirstHand);
        assert_eq!(table.on_received(NOW, &key(2)), Some(site(2)));
        assert_eq!(member_names(&table), ["site 1", "site 2"]);
        table.handle_timeout(later(10));
        assert_eq!(events(&mut table), ["site 2 joined"]);
        table.handle_timeout(later(11));
        assert_eq!(events(&mut table), [format!("{} TimedOut", site(2))]);
        assert!(member_names(&table) == ["site 1"] && table.gossip_infos().count() == 1);
        table.on_received(later(15), &key(2));
        assert_eq!(events(&mut table), ["site 2 rejoined"], "the link was cut, and is back");
        assert_eq!(table.on_received(NOW, &key(9)), None, "this peer is unknown");
    }

    #[test]
    fn member_that_said_bye_is_not_revived_by_old_info() {
        let mut table = member_table(1);
        let (old, _) = admit_and_receive(&mut table, 2, 1).unwrap();
        table.on_bye(later(1), &key(2));
        assert_eq!(table.on_received(later(1), &key(2)), None);
        assert_eq!(
            table.merge(later(1), &key(3), old.clone()),
            MergeOutcome::Ignored,
            "old information does not revive it"
        );
        assert_eq!(merge_first_hand(&mut table, later(1), old), MergeOutcome::Ignored);
        assert_eq!(events(&mut table), ["site 2 joined".into(), format!("{} Left", site(2))]);
        assert_eq!(table.take_canceled_dials(), [key(2)]);
        assert_eq!(
            table.merge(later(2), &key(3), member_info(2, 2, 2)),
            MergeOutcome::Dial,
            "it may have been restarted"
        );
        assert_eq!(merge_first_hand(&mut table, later(2), member_info(2, 2, 2)), MergeOutcome::NewFirstHand);
        assert_eq!(events(&mut table), ["site 2 rejoined"]);
    }

    #[test]
    fn restarted_member_keeps_its_site_number() {
        let mut one = member_table(1);
        let (first, is_new) = admit_and_receive(&mut one, 2, 1).unwrap();
        assert!(
            is_new && admit_and_receive(&mut one, 2, 1) == Ok((first.clone(), false)),
            "a repeated request is admitted once"
        );
        let (second, is_new) = admit_and_receive(&mut one, 2, 2).unwrap();
        assert!(is_new && second.site == first.site && second.revision > first.revision);
        let number = first.site;
        assert_eq!(events(&mut one), ["site 2 joined".into(), format!("{number} Restarted"), "site 2 rejoined".into()]);
        let mut other_table = member_table(3);
        assert_eq!(
            admit_and_receive(&mut other_table, 2, 3).unwrap().0.site,
            number,
            "the number does not depend on the admitting site"
        );
        other_table.peers.get_mut(&key(2)).unwrap().info.site = site(4);
        assert_eq!(
            admit_and_receive(&mut other_table, 4, 1).unwrap().0.site,
            MESH_KEY.site_number(&key(4), 1),
            "site numbers are unique"
        );
    }

    #[test]
    fn reports_merge_equally_in_any_order() {
        let reports = [
            member_info(2, 1, 1),
            member_info(2, 3, 2),
            member_info(2, 3, 1),
            member_info(3, 2, 1),
            member_info(3, 1, 9),
        ];
        let at = |run: u8| vec![PeerAddr(format!("192.0.2.{run}:7"))];
        let reports = reports.map(|info| MemberInfo { addrs: at(info.run_id[0] * 10 + info.revision as u8), ..info });
        let end = |order: &[usize]| {
            let mut table = member_table(1);
            order.iter().for_each(|at| _ = table.merge(NOW, &key(9), reports[*at].clone()));
            table.peers.values().map(|other| other.info.clone()).collect::<Vec<_>>()
        };
        let expected = end(&[0, 1, 2, 3, 4]);
        for order in [[4, 3, 2, 1, 0], [2, 4, 0, 3, 1], [1, 0, 4, 2, 3], [3, 1, 3, 0, 2]] {
            assert_eq!(end(&order), expected, "{order:?}");
        }
        assert_eq!((expected[0].revision, expected[1].revision), (3, 2));
    }

    #[test]
    fn reports_do_not_override_first_hand_info() {
        let mut table = member_table(1);
        merge_first_hand(&mut table, NOW, member_info(2, 5, 1));
        let addrs = vec![PeerAddr("192.0.2.1:7".into())];
        let false_report = MemberInfo { name: "false name".into(), addrs, ..member_info(2, u32::MAX, 9) };
        assert_eq!(
            table.merge(NOW, &key(3), false_report.clone()),
            MergeOutcome::Ignored,
            "it is present, and its own information differs"
        );
        assert_eq!(
            table.merge(NOW, &key(3), member_info(1, u32::MAX, 9)),
            MergeOutcome::Ignored,
            "reports about this site are ignored"
        );
        assert_eq!(*table.own_info(), member_info(1, 1, 1));
        table.handle_timeout(later(11));
        assert_eq!(
            table.merge(later(11), &key(3), false_report.clone()),
            MergeOutcome::Dial,
            "it may be present there"
        );
        assert_eq!(table.info_of(&key(2)), Some(&member_info(2, 5, 1)));
        assert_eq!(table.on_received(later(12), &key(2)), Some(site(2)));
        assert_eq!(member_names(&table), ["site 1", "site 2"]);
        // A false report about an absent member holds until its own information arrives, whatever the revision.
        table.merge(NOW, &key(3), MemberInfo { key: key(4), site: site(4), ..false_report });
        assert_eq!(table.info_of(&key(4)).unwrap().name, "false name");
        assert_eq!(merge_first_hand(&mut table, NOW, member_info(4, 1, 1)), MergeOutcome::NewFirstHand);
        assert_eq!(
            merge_first_hand(&mut table, NOW, member_info(4, 1, 1)),
            MergeOutcome::Ignored,
            "the same information is not new"
        );
        assert_eq!(table.info_of(&key(4)), Some(&member_info(4, 1, 1)));
    }

    #[test]
    fn revision_of_a_report_is_not_continued() {
        let mut table = member_table(1);
        table.merge(NOW, &key(3), member_info(2, u32::MAX, 9));
        assert_eq!(admit_and_receive(&mut table, 2, 1).unwrap().0, member_info(2, 1, 1));
        merge_first_hand(&mut table, NOW, member_info(4, u32::MAX, 1));
        assert_eq!(
            admit_and_receive(&mut table, 4, 2).unwrap().0,
            member_info(4, u32::MAX, 2),
            "the member's own revision saturates"
        );
        assert_eq!(
            merge_first_hand(&mut table, NOW, member_info(4, u32::MAX, 1)),
            MergeOutcome::NewFirstHand,
            "and its last information holds"
        );
    }

    #[test]
    fn site_number_must_be_derived_from_the_key() {
        let mut table = member_table(1);
        let thief = |number: u8, site: u32| MemberInfo { site, ..member_info(number, 1, 1) };
        for site in [site(1), site(3), 77] {
            assert_eq!(merge_first_hand(&mut table, NOW, thief(2, site)), MergeOutcome::Ignored);
            assert_eq!(table.merge(NOW, &key(9), thief(2, site)), MergeOutcome::Ignored);
        }
        assert_eq!((table.peers.len(), table.key_of(site(1))), (0, None));
        assert_eq!(
            merge_first_hand(&mut table, NOW, thief(2, MESH_KEY.site_number(&key(2), 1))),
            MergeOutcome::NewFirstHand,
            "the next derived number is valid, too"
        );
        // A reported member does not keep another from its number.
        table.merge(NOW, &key(9), member_info(5, 1, 1));
        table.peers.get_mut(&key(5)).unwrap().info.site = site(6);
        assert_eq!(table.merge(NOW, &key(9), member_info(6, 1, 1)), MergeOutcome::Ignored);
        assert_eq!(admit_and_receive(&mut table, 6, 1).unwrap().0.site, site(6));
        assert_eq!(table.info_of(&key(5)), None);
    }

    #[test]
    fn dialing_a_silent_member_is_canceled_after_timeout() {
        let mut table = member_table(1);
        table.merge(NOW, &key(9), member_info(2, 1, 1));
        assert_eq!(
            table.merge(NOW, &key(8), member_info(2, 1, 1)),
            MergeOutcome::Ignored,
            "it is being dialed already"
        );
        table.handle_timeout(later(11));
        assert_eq!((table.take_canceled_dials(), events(&mut table)), (vec![key(2)], vec![]));
        assert_eq!(
            table.merge(later(20), &key(9), member_info(2, 1, 1)),
            MergeOutcome::Dial,
            "another member receives it"
        );
        table.handle_timeout(later(31));
        assert_eq!(table.take_canceled_dials(), [key(2)]);
        table.merge(later(40), &key(9), member_info(2, 1, 1));
        merge_first_hand(&mut table, later(41), member_info(2, 1, 1));
        assert_eq!(table.take_canceled_dials(), [key(2)], "it is present, so dialing elsewhere ends");
        table.handle_timeout(later(60));
        table.handle_timeout(later(60 * 60));
        assert_eq!(table.peers.len(), 0);
    }

    #[test]
    fn member_count_and_memory_are_bounded() {
        let mut table = member_table(255);
        (0..63).for_each(|number| assert!(admit_and_receive(&mut table, number, 1).is_ok(), "{number}"));
        assert_eq!(admit_and_receive(&mut table, 63, 1), Err(JoinRefusal::Full));
        assert!(admit_and_receive(&mut table, 5, 2).is_ok(), "a known member may return");
        table.on_bye(NOW, &key(7));
        assert!(admit_and_receive(&mut table, 63, 1).is_ok());
        for number in 64..255 {
            merge_first_hand(&mut table, NOW, member_info(number, 1, 1));
        }
        assert_eq!(table.peers.len(), MAX_KNOWN_MEMBERS);
        assert!(!table.peers.contains_key(&key(7)), "departed members make room");
    }

    #[test]
    fn reported_members_take_no_slot_of_real_members() {
        let mut table = member_table(255);
        (0..10).for_each(|number| assert!(admit_and_receive(&mut table, number, 1).is_ok()));
        let dialed = |table: &mut MemberTable, now: Instant, reporter: u8| {
            let is_dialed =
                |number: &u8| table.merge(now, &key(reporter), member_info(*number, 1, 1)) == MergeOutcome::Dial;
            (63..255).filter(is_dialed).count()
        };
        assert_eq!(dialed(&mut table, NOW, 0), MAX_MEMBERS, "the reports of one member are limited");
        assert_eq!(dialed(&mut table, NOW, 1), MAX_KNOWN_MEMBERS - MAX_MEMBERS - 10, "and the table is bounded");
        table.take_canceled_dials();
        (10..63).for_each(|number| assert!(admit_and_receive(&mut table, number, 1).is_ok(), "{number}"));
        assert_eq!((table.present_peers().count(), table.peers.len()), (63, MAX_KNOWN_MEMBERS));
        table.handle_timeout(later(11));
        assert_eq!(table.take_canceled_dials().len(), 2 * MAX_MEMBERS - 10, "none of them is dialed any more");
        assert_eq!(dialed(&mut table, later(11), 0), 2);
    }

    #[test]
    fn no_member_times_out_after_own_suspend() {
        let mut table = member_table(1);
        admit_and_receive(&mut table, 2, 1).unwrap();
        table.reset_timeouts(later(100));
        table.handle_timeout(later(105));
        assert_eq!(events(&mut table), ["site 2 joined"]);
    }
}
