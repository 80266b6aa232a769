//! The others: who is let in, who is told of whom, and what is due.

use coplay::time::{Instant, TimeDelta};

use super::member_table::MergeOutcome;
use super::message::{MemberInfo, MeshMessage, MeshOrLobbyMessage, MeshWelcome, split_into_messages};
use super::{ALL_CHANNEL, HEARTBEAT_DATAGRAM, HOST_SUSPENDED, Mesh};
use crate::clock;
use crate::key::PeerKey;
use crate::lobby::{self, JoinIntent, JoinRefusal, JoinRequest, MAX_NAME_LEN, PROTOCOL_VERSION, merge_addrs, sanitize};

/// All that we know is told to one of the others this often, in turn: what somebody has missed, for whatever reason, it learns so.
const GOSSIP_INTERVAL: TimeDelta = TimeDelta::from_secs(5);
/// Where we can be reached is looked at this often.
const ADDR_CHECK_INTERVAL: TimeDelta = TimeDelta::from_secs(5);

impl Mesh {
    pub(super) fn handle_reliable(&mut self, from: PeerKey, bytes: &[u8]) {
        let now = clock::now();
        self.member_table.on_received(now, &from);
        for word in self.mux.handle_datagram(from, bytes) {
            self.on_message(now, from, word);
        }
        self.on_members_changed();
    }

    pub(super) fn on_message(&mut self, now: Instant, from: PeerKey, word: MeshOrLobbyMessage) {
        match word {
            MeshOrLobbyMessage::Lobby(lobby::LobbyMessage::JoinRequest(knock)) => {
                self.on_join_request(now, from, &knock)
            }
            MeshOrLobbyMessage::Mesh(MeshMessage::Members { mesh_id: group, infos: accounts })
                if group == self.mesh_key.mesh_id() =>
            {
                accounts.into_iter().for_each(|account| self.on_member_info(now, from, account));
                self.member_table.on_received(now, &from);
            }
            MeshOrLobbyMessage::Mesh(MeshMessage::Bye) => self.member_table.on_bye(now, &from),
            MeshOrLobbyMessage::Lobby(_) | MeshOrLobbyMessage::Mesh(_) => {}
        }
    }

    /// Somebody wants to come in.
    fn on_join_request(&mut self, now: Instant, from: PeerKey, knock: &JoinRequest) {
        let admitted = match knock.intent {
            _ if knock.version != PROTOCOL_VERSION => Err(JoinRefusal::VersionMismatch(PROTOCOL_VERSION)),
            JoinIntent::JoinMesh(run) => {
                let places = merge_addrs(&knock.addrs, self.mux.transport.addr_of(&from));
                self.member_table.admit(now, from, run, (sanitize(&knock.name, MAX_NAME_LEN), places))
            }
            JoinIntent::Play(_) | JoinIntent::Spectate => Err(JoinRefusal::WrongGameKind),
        };
        match admitted {
            Ok((account, is_new)) => self.send_welcome(now, from, account, is_new),
            Err(refusal) => self.mux.send(from, &MeshOrLobbyMessage::Lobby(lobby::LobbyMessage::Refused(refusal))),
        }
    }

    fn send_welcome(&mut self, now: Instant, from: PeerKey, you: MemberInfo, is_new: bool) {
        self.member_table.on_received(now, &from);
        let (key, terms, multicast) = (self.mesh_key.clone(), self.settings.clone(), self.multicast_group);
        let welcome =
            MeshWelcome { mesh_key: key, settings: terms, multicast_group: multicast, your_info: you.clone() };
        self.mux.send(from, &MeshOrLobbyMessage::Mesh(MeshMessage::Welcome(welcome)));
        self.send_all_members(from);
        if is_new {
            let others: Vec<PeerKey> =
                self.member_table.present_peers().map(|(key, _)| key).filter(|key| *key != from).collect();
            self.send_member_infos(others, [you]);
        }
    }

    /// Somebody tells us of somebody: of itself, or of another.
    fn on_member_info(&mut self, now: Instant, from: PeerKey, account: MemberInfo) {
        match self.member_table.merge(now, &from, account.clone()) {
            MergeOutcome::Dial => self.dial_member(&account),
            MergeOutcome::NewFirstHand => self.announce_self([from]),
            MergeOutcome::Ignored => {}
        }
    }

    /// Calls somebody; or, where there is a way to it already, tells it of us, so that it answers.
    fn dial_member(&mut self, account: &MemberInfo) {
        self.mux.dial(&account.addrs, account.key);
        if self.mux.transport.addr_of(&account.key).is_some() {
            self.announce_self([account.key]);
        }
    }

    /// Who came at the same time as this one, elsewhere, was not told of it.
    pub(super) fn announce_to_recent_members(&mut self, who: &PeerKey) {
        let fresh: Vec<PeerKey> = self.member_table.recent_joiners(clock::now()).filter(|key| key != who).collect();
        let account = self.member_table.info_of(who).cloned();
        self.send_member_infos(fresh, account);
    }

    fn announce_self(&mut self, to: impl IntoIterator<Item = PeerKey> + Clone) {
        self.send_member_infos(to, [self.member_table.own_info().clone()]);
    }

    /// There is a way to somebody: if we know it, it shall know us.
    pub(super) fn on_connected(&mut self, peer: PeerKey) {
        if self.member_table.site_of(&peer).is_some() {
            self.announce_self([peer]);
        }
    }

    fn send_member_infos(
        &mut self,
        to: impl IntoIterator<Item = PeerKey> + Clone,
        accounts: impl IntoIterator<Item = MemberInfo>,
    ) {
        for word in split_into_messages(self.mesh_key.mesh_id(), accounts) {
            self.mux.send_to_all(to.clone(), &word);
        }
    }

    fn send_all_members(&mut self, to: PeerKey) {
        let accounts: Vec<MemberInfo> =
            self.member_table.gossip_infos().filter(|account| account.key != to).cloned().collect();
        self.send_member_infos([to], accounts);
    }

    /// The list may have changed.
    fn on_members_changed(&mut self) {
        self.handle_member_events();
        self.member_table.take_canceled_dials().iter().for_each(|key| self.mux.transport.cancel_dial(key));
        if let Some(channels) = &self.multicast_socket {
            channels.set_sources(self.member_table.reachable().map(|account| (account.site, account.run_id)));
        }
    }

    /// Does what is due now and then.
    pub(super) fn housekeep(&mut self, now: Instant) {
        if now - self.last_housekeeping > HOST_SUSPENDED {
            self.member_table.reset_timeouts(now);
        }
        self.last_housekeeping = now;
        self.member_table.handle_timeout(now);
        self.on_members_changed();
        self.send_heartbeats(now);
        self.send_beacon(now);
        self.gossip_to_next(now);
        self.check_own_addrs(now);
        let list = &self.member_table;
        self.mux.forget_silent_peers(now, |peer| list.site_of(peer).is_some());
    }

    /// Tells everybody that we are there, and whether we hear it by multicast.
    fn send_heartbeats(&mut self, now: Instant) {
        let (hearing, deaf) = (&mut self.multicast_probe, self.multicast_socket.is_none());
        for account in self.member_table.reachable() {
            if let Some(hears) = hearing.poll_heartbeat(now, account.site, deaf) {
                self.mux.transport.send(&account.key, &[HEARTBEAT_DATAGRAM, u8::from(hears)]);
            }
        }
    }

    /// Lets itself be heard by multicast.
    fn send_beacon(&mut self, now: Instant) {
        if now >= self.next_beacon && self.member_table.reachable().next().is_some() {
            self.send_on_channel(now, ALL_CHANNEL, 0, &[]);
        }
    }

    /// Tells the next of the others all that we know, and forgets what is of no use any more.
    fn gossip_to_next(&mut self, now: Instant) {
        if now < self.next_gossip {
            return;
        }
        self.next_gossip = now + GOSSIP_INTERVAL;
        let list = &self.member_table;
        self.multicast_probe.retain(|site| list.key_of(site).is_some());
        let here: Vec<PeerKey> = self.member_table.present_peers().map(|(key, _)| key).collect();
        let after = here.iter().find(|key| Some(**key) > self.last_gossip_peer).or(here.first());
        if let Some(next) = after.copied() {
            self.last_gossip_peer = Some(next);
            self.send_all_members(next);
        }
    }

    /// An address may change, and a relay may be found late: then the others must know.
    fn check_own_addrs(&mut self, now: Instant) {
        if now < self.next_addr_check {
            return;
        }
        self.next_addr_check = now + ADDR_CHECK_INTERVAL;
        let places = self.mux.own_addrs();
        if places.iter().any(|place| !self.member_table.own_info().addrs.contains(place)) {
            self.member_table.set_own_addrs(places);
            let others: Vec<PeerKey> = self.member_table.reachable().map(|account| account.key).collect();
            self.announce_self(others);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;
    use std::sync::{Arc, Mutex};

    use super::super::seal::MeshKey;
    use super::*;
    use crate::mesh::MeshOptions;
    use crate::reliable::Mux;
    use crate::transport::{DropCounts, PeerAddr, Transport};

    /// A network in which everything is noted, and nobody answers.
    #[derive(Default)]
    struct RecordingTransport {
        sent: Mutex<Vec<PeerKey>>,
        dials: Mutex<Vec<(PeerKey, PeerAddr)>>,
    }

    impl Transport for RecordingTransport {
        fn key(&self) -> PeerKey {
            key(0)
        }

        fn send(&self, to: &PeerKey, _: &[u8]) -> bool {
            self.sent.lock().unwrap().push(*to);
            true
        }

        fn dial(&self, place: &PeerAddr, expect: Option<PeerKey>) {
            self.dials.lock().unwrap().extend(expect.map(|peer| (peer, place.clone())));
        }

        fn cancel_dial(&self, peer: &PeerKey) {
            self.dials.lock().unwrap().retain(|(called, _)| called != peer);
        }

        fn addr_of(&self, _: &PeerKey) -> Option<PeerAddr> {
            None
        }

        fn own_addrs(&self) -> Vec<PeerAddr> {
            vec![]
        }

        fn drop_counts(&self) -> DropCounts {
            DropCounts::default()
        }
    }

    impl RecordingTransport {
        /// To whom something was mailed since this was last asked.
        fn drain_recipients(&self, group: &mut Mesh) -> Vec<PeerKey> {
            group.mux.flush(clock::now());
            std::mem::take(&mut *self.sent.lock().unwrap())
        }

        fn dials(&self) -> usize {
            self.dials.lock().unwrap().len()
        }
    }

    fn key(number: u8) -> PeerKey {
        PeerKey([number; 32])
    }

    fn member_info(group: &MeshKey, number: u8) -> MemberInfo {
        let (key, name) = (key(number), format!("site {number}"));
        let places = (0..2).map(|place| PeerAddr(format!("192.0.2.{number}:{place}"))).collect();
        MemberInfo { revision: 1, key, site: group.site_number(&key, 0), run_id: [1; 16], name, addrs: places }
    }

    fn receive_info(group: &mut Mesh, from: u8, account: MemberInfo) {
        let word = MeshMessage::Members { mesh_id: group.mesh_key.mesh_id(), infos: vec![account] };
        group.on_message(clock::now(), key(from), MeshOrLobbyMessage::Mesh(word));
        group.on_members_changed();
    }

    /// A group of three: we, the first and the second.
    fn three_sites() -> (Arc<RecordingTransport>, Mesh) {
        let (noted, key) = (Arc::new(RecordingTransport::default()), MeshKey::random());
        let post = Mux::new(noted.clone(), sync_channel(1).1);
        let welcome =
            MeshWelcome { your_info: member_info(&key, 0), mesh_key: key, settings: vec![], multicast_group: None };
        let mut group = Mesh::from_welcome(post, welcome, &MeshOptions::default());
        for number in [1, 2] {
            let itself = member_info(&group.mesh_key, number);
            receive_info(&mut group, number, itself);
        }
        assert_eq!(group.members().count(), 3);
        noted.drain_recipients(&mut group);
        (noted, group)
    }

    #[test]
    fn false_report_about_another_member_is_ignored_and_not_forwarded() {
        let (noted, mut group) = three_sites();
        let before: Vec<_> = group.members().collect();
        for number in [0, 1] {
            let truth = member_info(&group.mesh_key, number);
            let (site, name) = (group.mesh_key.site_number(&truth.key, 1), "somebody else".into());
            let lie = MemberInfo { revision: u32::MAX, site, run_id: [9; 16], name, ..truth };
            receive_info(&mut group, 2, lie);
            let itself = member_info(&group.mesh_key, 1);
            receive_info(&mut group, 1, itself);
        }
        assert_eq!(group.members().collect::<Vec<_>>(), before);
        assert_eq!((noted.drain_recipients(&mut group), noted.dials()), (vec![], 0));
    }

    #[test]
    fn reported_but_nonexistent_members_are_dialed_briefly_and_take_no_slot() {
        let (noted, mut group) = three_sites();
        for number in 10..250 {
            let invented = member_info(&group.mesh_key, number);
            receive_info(&mut group, 2, invented);
        }
        let calls = noted.dials();
        assert!((100..=128).contains(&calls), "{calls} calls");
        assert_eq!(noted.drain_recipients(&mut group), [], "and nobody else is told of them");
        for number in 190..250 {
            let knock = JoinRequest {
                version: PROTOCOL_VERSION,
                name: String::new(),
                intent: JoinIntent::JoinMesh([2; 16]),
                addrs: vec![],
            };
            group.on_message(
                clock::now(),
                key(number),
                MeshOrLobbyMessage::Lobby(lobby::LobbyMessage::JoinRequest(knock)),
            );
        }
        assert_eq!(group.members().count(), 63);
        group.housekeep(clock::now() + TimeDelta::from_secs(11));
        assert_eq!(noted.dials(), 0);
    }

    #[test]
    fn new_member_is_introduced_to_us_and_to_recent_members() {
        let (noted, mut group) = three_sites();
        let itself = member_info(&group.mesh_key, 3);
        receive_info(&mut group, 3, itself.clone());
        let mut told = noted.drain_recipients(&mut group);
        told.sort_unstable();
        assert_eq!(told, [key(1), key(2), key(3)]);
        receive_info(&mut group, 3, itself);
        assert_eq!(noted.drain_recipients(&mut group), []);
    }
}
