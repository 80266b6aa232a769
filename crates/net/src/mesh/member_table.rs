//! Who is in the group, as one of them knows. Everybody keeps a list, and lists are merged; nobody's is the right one.
//!
//! What a member says of itself, in an [`MemberInfo`] on the channel between us, holds. What others say of it is *hearsay*: it gets somebody called
//! who is not here, and counts for nothing else. So nobody can speak for another, and who was only told of takes nobody's place. Whether a
//! member is *here* each site judges for itself, by hearing it on that channel. Who comes back with its key is the same member, and has
//! its number again.

use std::collections::{BTreeMap, VecDeque};

use coplay::time::{Instant, TimeDelta};

use super::dial_limiter::DialLimiter;
use super::message::{MemberInfo, RunId};
use super::seal::MeshKey;
use super::{DepartureReason, MAX_MEMBERS, MeshEvent, MeshMember};
use crate::key::PeerKey;
use crate::lobby::JoinRefusal;
use crate::transport::PeerAddr;

/// A member that is not heard for so long is gone, and who was told of and does not answer for so long is not sought any more.
const MEMBER_TIMEOUT: TimeDelta = TimeDelta::from_secs(10);
/// Who is gone for so long is forgotten; if it comes back all the same it is a newcomer, with the number that it had.
const FORGET_TIMEOUT: TimeDelta = TimeDelta::from_secs(15 * 60);
/// Who came so lately may not have been told of others who came at the same time, elsewhere.
const RECENT_JOIN_AGE: TimeDelta = TimeDelta::from_secs(10);
/// The most that are remembered, here or not.
pub(super) const MAX_KNOWN_MEMBERS: usize = 2 * MAX_MEMBERS;

/// The list of one site.
#[derive(Debug)]
pub(super) struct MemberTable {
    mesh_key: MeshKey,
    own_info: MemberInfo,
    peers: BTreeMap<PeerKey, PeerEntry>,
    dial_limiter: DialLimiter,
    events: VecDeque<MeshEvent>,
    canceled_dials: Vec<PeerKey>,
}

/// Somebody else.
#[derive(Debug)]
struct PeerEntry {
    info: MemberInfo,
    /// The account is its own; otherwise all of it is hearsay.
    is_first_hand: bool,
    presence: Presence,
    /// When it was last heard, or when its presence became what it is.
    since: Instant,
    /// When it came, if it ever did.
    joined_at: Option<Instant>,
    /// Since when it is called on somebody's word.
    dialed_since: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Presence {
    /// We were told of it, and have not heard it yet.
    Expected,
    Present,
    Silent,
    /// It said so.
    Left,
}

/// What an account is to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MergeOutcome {
    /// Nothing that we did not know, or nothing that we can use.
    Ignored,
    /// Somebody else seems to hear it, and we do not: it is worth a call.
    Dial,
    /// It told us of itself, and we did not know that: it may not know us either.
    NewFirstHand,
}

impl MemberTable {
    /// Nobody is known but ourselves.
    pub(super) fn new(group: MeshKey, me: MemberInfo) -> Self {
        let (others, hearsay) = (BTreeMap::new(), DialLimiter::default());
        Self {
            mesh_key: group,
            own_info: me,
            peers: others,
            dial_limiter: hearsay,
            events: VecDeque::new(),
            canceled_dials: Vec::new(),
        }
    }

    /// What others are told of us.
    pub(super) fn own_info(&self) -> &MemberInfo {
        &self.own_info
    }

    pub(super) fn poll_event(&mut self) -> Option<MeshEvent> {
        self.events.pop_front()
    }

    /// Those who need not be called any more.
    pub(super) fn take_canceled_dials(&mut self) -> Vec<PeerKey> {
        std::mem::take(&mut self.canceled_dials)
    }

    /// All who are here, and we.
    pub(super) fn members(&self) -> impl Iterator<Item = MeshMember> {
        let others = self.peers.values().filter(|other| other.presence == Presence::Present);
        std::iter::once(&self.own_info).chain(others.map(|other| &other.info)).map(MeshMember::from_info)
    }

    /// The others who are here, with their numbers.
    pub(super) fn present_peers(&self) -> impl Iterator<Item = (PeerKey, u32)> {
        let here = self.peers.values().filter(|other| other.presence == Presence::Present);
        here.map(|other| (other.info.key, other.info.site))
    }

    /// All who may be reached: those who told us of themselves, and have not said goodbye.
    pub(super) fn reachable(&self) -> impl Iterator<Item = &MemberInfo> {
        let reachable = |other: &&PeerEntry| other.is_first_hand && other.presence != Presence::Left;
        self.peers.values().filter(reachable).map(|other| &other.info)
    }

    /// What a newcomer, or anybody, is told: us, and those whom we hear ourselves. Hearsay is not passed on.
    pub(super) fn gossip_infos(&self) -> impl Iterator<Item = &MemberInfo> {
        let here = self.peers.values().filter(|other| other.presence == Presence::Present);
        std::iter::once(&self.own_info).chain(here.map(|other| &other.info))
    }

    /// Who came a short while ago.
    pub(super) fn recent_joiners(&self, now: Instant) -> impl Iterator<Item = PeerKey> {
        let fresh = move |other: &&PeerEntry| other.joined_at.is_some_and(|came| now - came < RECENT_JOIN_AGE);
        self.peers
            .values()
            .filter(|other| other.presence == Presence::Present)
            .filter(fresh)
            .map(|other| other.info.key)
    }

    /// The number of somebody who has not said goodbye, be it hearsay.
    pub(super) fn site_of(&self, key: &PeerKey) -> Option<u32> {
        self.peers.get(key).filter(|other| other.presence != Presence::Left).map(|other| other.info.site)
    }

    /// Whether somebody is here.
    pub(super) fn is_present(&self, key: &PeerKey) -> bool {
        self.peers.get(key).is_some_and(|other| other.presence == Presence::Present)
    }

    /// Who has a number.
    pub(super) fn key_of(&self, site: u32) -> Option<PeerKey> {
        self.reachable().find(|account| account.site == site).map(|account| account.key)
    }

    /// What we know of somebody.
    pub(super) fn info_of(&self, key: &PeerKey) -> Option<&MemberInfo> {
        self.peers.get(key).map(|other| &other.info)
    }

    /// Lets somebody in, or in again; `true` if the others have to be told.
    pub(super) fn admit(
        &mut self,
        now: Instant,
        key: PeerKey,
        run: RunId,
        (name, places): (String, Vec<PeerAddr>),
    ) -> Result<(MemberInfo, bool), JoinRefusal> {
        let known = self.peers.get(&key).filter(|other| other.is_first_hand).map(|other| &other.info);
        if let Some(account) = known.filter(|account| account.run_id == run) {
            return Ok((account.clone(), false));
        }
        if self.present_peers().filter(|(other, _)| *other != key).count() + 1 >= MAX_MEMBERS {
            return Err(JoinRefusal::Full);
        }
        // A stamp that was only told is not gone on from: it may be anything.
        let stamp = known.map_or(1, |account| account.revision.saturating_add(1));
        let site =
            known.map(|account| account.site).or_else(|| self.free_site_number(&key)).ok_or(JoinRefusal::Full)?;
        let account = MemberInfo { revision: stamp, key, site, run_id: run, name, addrs: places };
        self.apply_first_hand(now, account.clone());
        Ok((account, true))
    }

    /// A number that nobody else has: the same for a key wherever it comes in, unless that is taken.
    fn free_site_number(&self, key: &PeerKey) -> Option<u32> {
        self.mesh_key.site_numbers(key).find(|site| !self.is_site_number_taken(*site, key))
    }

    /// Whether it is the number of somebody else, who told us so itself.
    fn is_site_number_taken(&self, site: u32, by_other_than: &PeerKey) -> bool {
        let has = |account: &MemberInfo| account.site == site && account.key != *by_other_than;
        has(&self.own_info) || self.peers.values().any(|other| other.is_first_hand && has(&other.info))
    }

    /// Somebody tells us of itself, or of another. Of us nobody needs to tell us, and a number must follow from its member's key.
    pub(super) fn merge(&mut self, now: Instant, from: &PeerKey, told: MemberInfo) -> MergeOutcome {
        let follows = self.mesh_key.site_numbers(&told.key).any(|site| site == told.site);
        match told.key == *from {
            _ if told.key == self.own_info.key || !follows || self.is_site_number_taken(told.site, &told.key) => {
                MergeOutcome::Ignored
            }
            true => self.apply_first_hand(now, told),
            false => self.on_report(now, from, told),
        }
    }

    /// What a member says of itself holds, whatever was said of it before.
    fn apply_first_hand(&mut self, now: Instant, account: MemberInfo) -> MergeOutcome {
        self.remove_conflicting_report(account.site, &account.key);
        let Some(known) = self.peers.get_mut(&account.key) else {
            let met = self.insert(now, account, true);
            return if met { MergeOutcome::NewFirstHand } else { MergeOutcome::Ignored };
        };
        let anew = (known.info.run_id, known.info.site) != (account.run_id, account.site);
        if anew && known.presence == Presence::Present {
            self.events.push_back(MeshEvent::Left { site: known.info.site, reason: DepartureReason::Restarted });
        }
        if anew {
            (known.presence, known.since) = (Presence::Expected, now);
        }
        known.info = account;
        let met = !std::mem::replace(&mut known.is_first_hand, true) || anew;
        if met { MergeOutcome::NewFirstHand } else { MergeOutcome::Ignored }
    }

    /// Who was only told of gives way to whose number it really is.
    fn remove_conflicting_report(&mut self, site: u32, key: &PeerKey) {
        let has = |other: &&PeerEntry| !other.is_first_hand && other.info.site == site && other.info.key != *key;
        if let Some(rumoured) = self.peers.values().find(has).map(|other| other.info.key) {
            self.remove(&rumoured);
        }
    }

    /// Somebody tells us of another. It may be wrong, or lie.
    fn on_report(&mut self, now: Instant, from: &PeerKey, told: MemberInfo) -> MergeOutcome {
        let has_number = |other: &PeerEntry| other.info.site == told.site && other.info.key != told.key;
        let is_sought = self.peers.get(&told.key).is_none_or(|known| known.is_worth_dialing(&told));
        let is_wanted = is_sought && !self.peers.values().any(has_number);
        if !is_wanted || !self.dial_limiter.try_acquire(now, from) {
            return MergeOutcome::Ignored;
        }
        if let Some(known) = self.peers.get_mut(&told.key) {
            known.mark_dialed(now, told);
            return MergeOutcome::Dial;
        }
        if self.insert(now, told, false) { MergeOutcome::Dial } else { MergeOutcome::Ignored }
    }

    /// Somebody whom we did not know; `false` if there is no room.
    fn insert(&mut self, now: Instant, account: MemberInfo, own: bool) -> bool {
        let has_room = self.peers.len() < MAX_KNOWN_MEMBERS || self.evict_one(own);
        if has_room {
            let sought = (!own).then_some(now);
            let other = PeerEntry {
                info: account,
                is_first_hand: own,
                presence: Presence::Expected,
                since: now,
                joined_at: None,
                dialed_since: sought,
            };
            self.peers.insert(other.info.key, other);
        }
        has_room
    }

    /// Forgets somebody: who was only told of before who was here, and who is gone for longest first. For hearsay nobody is forgotten who was
    /// ever here, or may be about to.
    fn evict_one(&mut self, for_own: bool) -> bool {
        let goes = |other: &&PeerEntry| match for_own {
            true => !other.is_first_hand || !other.is_present_or_expected(),
            false => !other.is_first_hand && !other.is_present_or_expected(),
        };
        let first = self
            .peers
            .values()
            .filter(goes)
            .min_by_key(|other| (other.is_first_hand, other.is_present_or_expected(), other.since));
        let first = first.map(|other| other.info.key);
        first.is_some_and(|key| self.remove(&key))
    }

    fn remove(&mut self, key: &PeerKey) -> bool {
        self.canceled_dials.push(*key);
        self.peers.remove(key).is_some()
    }

    /// We can be reached elsewhere.
    pub(super) fn set_own_addrs(&mut self, places: Vec<PeerAddr>) {
        self.own_info.revision = self.own_info.revision.saturating_add(1);
        self.own_info.addrs = places;
    }

    /// Something came from somebody on the channel between us; its number if it is one of the group. Who has not told us of itself is not here yet.
    pub(super) fn on_received(&mut self, now: Instant, key: &PeerKey) -> Option<u32> {
        let other = self.peers.get_mut(key).filter(|other| other.is_first_hand && other.presence != Presence::Left)?;
        other.since = now;
        if std::mem::replace(&mut other.presence, Presence::Present) != Presence::Present {
            let again = other.joined_at.replace(now).is_some();
            self.events.push_back(MeshEvent::Joined { member: MeshMember::from_info(&other.info), is_rejoin: again });
        }
        if other.dialed_since.take().is_some() {
            self.canceled_dials.push(*key);
        }
        Some(other.info.site)
    }

    /// Somebody says that it leaves.
    pub(super) fn on_bye(&mut self, now: Instant, key: &PeerKey) {
        let Some(other) = self.peers.get_mut(key) else { return };
        if other.presence == Presence::Present {
            self.events.push_back(MeshEvent::Left { site: other.info.site, reason: DepartureReason::Left });
        }
        (other.presence, other.since) = (Presence::Left, now);
        self.canceled_dials.push(*key);
    }

    /// We were asleep ourselves, and cannot know who was silent meanwhile.
    pub(super) fn reset_timeouts(&mut self, now: Instant) {
        self.peers.values_mut().filter(|other| other.is_present_or_expected()).for_each(|other| other.since = now);
    }

    /// Lets time pass.
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
    /// Whether it is here, or may be about to be.
    fn is_present_or_expected(&self) -> bool {
        matches!(self.presence, Presence::Present | Presence::Expected)
    }

    /// Somebody speaks of it: whether that is a reason to call it. Who said goodbye in a run is not back in the same one, and who is called already is not
    /// called again where it was.
    fn is_worth_dialing(&self, told: &MemberInfo) -> bool {
        match self.presence {
            Presence::Present => false,
            Presence::Left => told.run_id != self.info.run_id,
            Presence::Expected | Presence::Silent => self.dialed_since.is_none() || told.addrs != self.info.addrs,
        }
    }

    /// It is called for a while. Of hearsay the higher stamp holds. It stays silent for us, and is not spoken of, until it is heard; otherwise
    /// who died would be spoken of for ever.
    fn mark_dialed(&mut self, now: Instant, told: MemberInfo) {
        self.dialed_since.get_or_insert(now);
        if !self.is_first_hand && told > self.info {
            self.info = told;
        }
    }
}

impl MeshMember {
    fn from_info(account: &MemberInfo) -> Self {
        Self { site: account.site, key: account.key, name: account.name.clone() }
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

    fn member_info(number: u8, stamp: u32, run: u8) -> MemberInfo {
        let (key, site, name) = (key(number), site(number), format!("site {number}"));
        MemberInfo { revision: stamp, key, site, run_id: [run; 16], name, addrs: vec![] }
    }

    fn member_table(number: u8) -> MemberTable {
        MemberTable::new(MESH_KEY.clone(), member_info(number, 1, 1))
    }

    fn events(list: &mut MemberTable) -> Vec<String> {
        let events = std::iter::from_fn(|| list.poll_event());
        let told = events.map(|event| match event {
            MeshEvent::Joined { member, is_rejoin: again } => {
                format!("{} came{}", member.name, if again { " again" } else { "" })
            }
            MeshEvent::Left { site, reason: why } => format!("{site} {why:?}"),
            other => panic!("{other:?}"),
        });
        told.collect()
    }

    fn member_names(list: &MemberTable) -> Vec<String> {
        list.members().map(|member| member.name).collect()
    }

    fn admit_and_receive(list: &mut MemberTable, number: u8, run: u8) -> Result<(MemberInfo, bool), JoinRefusal> {
        let admitted = list.admit(NOW, key(number), [run; 16], (format!("site {number}"), vec![]));
        list.on_received(NOW, &key(number));
        admitted
    }

    /// A member speaks for itself.
    fn merge_first_hand(list: &mut MemberTable, now: Instant, account: MemberInfo) -> MergeOutcome {
        let who = account.key;
        let merged = list.merge(now, &who, account);
        list.on_received(now, &who);
        merged
    }

    #[test]
    fn member_is_present_while_datagrams_arrive() {
        let mut list = member_table(1);
        assert_eq!(list.merge(NOW, &key(9), member_info(2, 1, 1)), MergeOutcome::Dial);
        assert_eq!(list.on_received(NOW, &key(2)), None, "it has not told us of itself");
        assert!(member_names(&list) == ["site 1"] && list.gossip_infos().count() == 1);
        assert_eq!(merge_first_hand(&mut list, NOW, member_info(2, 1, 1)), MergeOutcome::NewFirstHand);
        assert_eq!(list.on_received(NOW, &key(2)), Some(site(2)));
        assert_eq!(member_names(&list), ["site 1", "site 2"]);
        list.handle_timeout(later(10));
        assert_eq!(events(&mut list), ["site 2 came"]);
        list.handle_timeout(later(11));
        assert_eq!(events(&mut list), [format!("{} Silent", site(2))]);
        assert!(member_names(&list) == ["site 1"] && list.gossip_infos().count() == 1);
        list.on_received(later(15), &key(2));
        assert_eq!(events(&mut list), ["site 2 came again"], "the way was cut, and is there again");
        assert_eq!(list.on_received(NOW, &key(9)), None, "nobody told us of that one");
    }

    #[test]
    fn member_that_said_bye_is_not_revived_by_old_info() {
        let mut list = member_table(1);
        let (old, _) = admit_and_receive(&mut list, 2, 1).unwrap();
        list.on_bye(later(1), &key(2));
        assert_eq!(list.on_received(later(1), &key(2)), None);
        assert_eq!(list.merge(later(1), &key(3), old.clone()), MergeOutcome::Ignored, "old news do not bring it back");
        assert_eq!(merge_first_hand(&mut list, later(1), old), MergeOutcome::Ignored);
        assert_eq!(events(&mut list), ["site 2 came".into(), format!("{} Left", site(2))]);
        assert_eq!(list.take_canceled_dials(), [key(2)]);
        assert_eq!(list.merge(later(2), &key(3), member_info(2, 2, 2)), MergeOutcome::Dial, "it may be back");
        assert_eq!(merge_first_hand(&mut list, later(2), member_info(2, 2, 2)), MergeOutcome::NewFirstHand);
        assert_eq!(events(&mut list), ["site 2 came again"]);
    }

    #[test]
    fn restarted_member_keeps_its_site_number() {
        let mut one = member_table(1);
        let (first, is_new) = admit_and_receive(&mut one, 2, 1).unwrap();
        assert!(
            is_new && admit_and_receive(&mut one, 2, 1) == Ok((first.clone(), false)),
            "who knocks twice is let in once"
        );
        let (again, is_new) = admit_and_receive(&mut one, 2, 2).unwrap();
        assert!(is_new && again.site == first.site && again.revision > first.revision);
        let number = first.site;
        assert_eq!(events(&mut one), ["site 2 came".into(), format!("{number} Anew"), "site 2 came again".into()]);
        let mut elsewhere = member_table(3);
        assert_eq!(admit_and_receive(&mut elsewhere, 2, 3).unwrap().0.site, number, "nobody there knew it");
        elsewhere.peers.get_mut(&key(2)).unwrap().info.site = site(4);
        assert_eq!(
            admit_and_receive(&mut elsewhere, 4, 1).unwrap().0.site,
            MESH_KEY.site_number(&key(4), 1),
            "two never have one number"
        );
    }

    #[test]
    fn reports_merge_equally_in_any_order() {
        let told = [
            member_info(2, 1, 1),
            member_info(2, 3, 2),
            member_info(2, 3, 1),
            member_info(3, 2, 1),
            member_info(3, 1, 9),
        ];
        let at = |run: u8| vec![PeerAddr(format!("192.0.2.{run}:7"))];
        let told =
            told.map(|account| MemberInfo { addrs: at(account.run_id[0] * 10 + account.revision as u8), ..account });
        let end = |order: &[usize]| {
            let mut list = member_table(1);
            order.iter().for_each(|at| _ = list.merge(NOW, &key(9), told[*at].clone()));
            list.peers.values().map(|other| other.info.clone()).collect::<Vec<_>>()
        };
        let expected = end(&[0, 1, 2, 3, 4]);
        for order in [[4, 3, 2, 1, 0], [2, 4, 0, 3, 1], [1, 0, 4, 2, 3], [3, 1, 3, 0, 2]] {
            assert_eq!(end(&order), expected, "{order:?}");
        }
        assert_eq!((expected[0].revision, expected[1].revision), (3, 2));
    }

    #[test]
    fn reports_do_not_override_first_hand_info() {
        let mut list = member_table(1);
        merge_first_hand(&mut list, NOW, member_info(2, 5, 1));
        let places = vec![PeerAddr("192.0.2.1:7".into())];
        let lie = MemberInfo { name: "nobody".into(), addrs: places, ..member_info(2, u32::MAX, 9) };
        assert_eq!(list.merge(NOW, &key(3), lie.clone()), MergeOutcome::Ignored, "it is here, and says something else");
        assert_eq!(
            list.merge(NOW, &key(3), member_info(1, u32::MAX, 9)),
            MergeOutcome::Ignored,
            "who we are we know best"
        );
        assert_eq!(*list.own_info(), member_info(1, 1, 1));
        list.handle_timeout(later(11));
        assert_eq!(list.merge(later(11), &key(3), lie.clone()), MergeOutcome::Dial, "it may be there");
        assert_eq!(list.info_of(&key(2)), Some(&member_info(2, 5, 1)));
        assert_eq!(list.on_received(later(12), &key(2)), Some(site(2)));
        assert_eq!(member_names(&list), ["site 1", "site 2"]);
        // Of who was not heard yet a lie is believed, until it speaks, whatever stamp it has.
        list.merge(NOW, &key(3), MemberInfo { key: key(4), site: site(4), ..lie });
        assert_eq!(list.info_of(&key(4)).unwrap().name, "nobody");
        assert_eq!(merge_first_hand(&mut list, NOW, member_info(4, 1, 1)), MergeOutcome::NewFirstHand);
        assert_eq!(
            merge_first_hand(&mut list, NOW, member_info(4, 1, 1)),
            MergeOutcome::Ignored,
            "that is the end of it"
        );
        assert_eq!(list.info_of(&key(4)), Some(&member_info(4, 1, 1)));
    }

    #[test]
    fn revision_of_a_report_is_not_continued() {
        let mut list = member_table(1);
        list.merge(NOW, &key(3), member_info(2, u32::MAX, 9));
        assert_eq!(admit_and_receive(&mut list, 2, 1).unwrap().0, member_info(2, 1, 1));
        merge_first_hand(&mut list, NOW, member_info(4, u32::MAX, 1));
        assert_eq!(
            admit_and_receive(&mut list, 4, 2).unwrap().0,
            member_info(4, u32::MAX, 2),
            "its own has no end either"
        );
        assert_eq!(
            merge_first_hand(&mut list, NOW, member_info(4, u32::MAX, 1)),
            MergeOutcome::NewFirstHand,
            "and the last word counts"
        );
    }

    #[test]
    fn site_number_must_be_derived_from_the_key() {
        let mut list = member_table(1);
        let thief = |number: u8, site: u32| MemberInfo { site, ..member_info(number, 1, 1) };
        for site in [site(1), site(3), 77] {
            assert_eq!(merge_first_hand(&mut list, NOW, thief(2, site)), MergeOutcome::Ignored);
            assert_eq!(list.merge(NOW, &key(9), thief(2, site)), MergeOutcome::Ignored);
        }
        assert_eq!((list.peers.len(), list.key_of(site(1))), (0, None));
        assert_eq!(
            merge_first_hand(&mut list, NOW, thief(2, MESH_KEY.site_number(&key(2), 1))),
            MergeOutcome::NewFirstHand,
            "the next one is its own, too"
        );
        // Who was only told of keeps nobody from its number.
        list.merge(NOW, &key(9), member_info(5, 1, 1));
        list.peers.get_mut(&key(5)).unwrap().info.site = site(6);
        assert_eq!(list.merge(NOW, &key(9), member_info(6, 1, 1)), MergeOutcome::Ignored);
        assert_eq!(admit_and_receive(&mut list, 6, 1).unwrap().0.site, site(6));
        assert_eq!(list.info_of(&key(5)), None);
    }

    #[test]
    fn dialing_a_silent_member_is_canceled_after_timeout() {
        let mut list = member_table(1);
        list.merge(NOW, &key(9), member_info(2, 1, 1));
        assert_eq!(list.merge(NOW, &key(8), member_info(2, 1, 1)), MergeOutcome::Ignored, "it is called already");
        list.handle_timeout(later(11));
        assert_eq!((list.take_canceled_dials(), events(&mut list)), (vec![key(2)], vec![]));
        assert_eq!(list.merge(later(20), &key(9), member_info(2, 1, 1)), MergeOutcome::Dial, "somebody else hears it");
        list.handle_timeout(later(31));
        assert_eq!(list.take_canceled_dials(), [key(2)]);
        list.merge(later(40), &key(9), member_info(2, 1, 1));
        merge_first_hand(&mut list, later(41), member_info(2, 1, 1));
        assert_eq!(list.take_canceled_dials(), [key(2)], "it is here, wherever else it is called");
        list.handle_timeout(later(60));
        list.handle_timeout(later(60 * 60));
        assert_eq!(list.peers.len(), 0);
    }

    #[test]
    fn member_count_and_memory_are_bounded() {
        let mut list = member_table(255);
        (0..63).for_each(|number| assert!(admit_and_receive(&mut list, number, 1).is_ok(), "{number}"));
        assert_eq!(admit_and_receive(&mut list, 63, 1), Err(JoinRefusal::Full));
        assert!(admit_and_receive(&mut list, 5, 2).is_ok(), "who was here may come back");
        list.on_bye(NOW, &key(7));
        assert!(admit_and_receive(&mut list, 63, 1).is_ok());
        for number in 64..255 {
            merge_first_hand(&mut list, NOW, member_info(number, 1, 1));
        }
        assert_eq!(list.peers.len(), MAX_KNOWN_MEMBERS);
        assert!(!list.peers.contains_key(&key(7)), "who is gone makes room");
    }

    #[test]
    fn reported_members_take_no_slot_of_real_members() {
        let mut list = member_table(255);
        (0..10).for_each(|number| assert!(admit_and_receive(&mut list, number, 1).is_ok()));
        let sought = |list: &mut MemberTable, now: Instant, teller: u8| {
            let tells = |number: &u8| list.merge(now, &key(teller), member_info(*number, 1, 1)) == MergeOutcome::Dial;
            (63..255).filter(tells).count()
        };
        assert_eq!(sought(&mut list, NOW, 0), MAX_MEMBERS, "one is heeded only so often");
        assert_eq!(
            sought(&mut list, NOW, 1),
            MAX_KNOWN_MEMBERS - MAX_MEMBERS - 10,
            "and there is room only for so many"
        );
        list.take_canceled_dials();
        (10..63).for_each(|number| assert!(admit_and_receive(&mut list, number, 1).is_ok(), "{number}"));
        assert_eq!((list.present_peers().count(), list.peers.len()), (63, MAX_KNOWN_MEMBERS));
        list.handle_timeout(later(11));
        assert_eq!(list.take_canceled_dials().len(), 2 * MAX_MEMBERS - 10, "none of them is called any more");
        assert_eq!(sought(&mut list, later(11), 0), 2);
    }

    #[test]
    fn no_member_times_out_after_own_suspend() {
        let mut list = member_table(1);
        admit_and_receive(&mut list, 2, 1).unwrap();
        list.reset_timeouts(later(100));
        list.handle_timeout(later(105));
        assert_eq!(events(&mut list), ["site 2 came"]);
    }
}
