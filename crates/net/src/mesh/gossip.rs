//! Membership: admission, gossip about members, and periodic work.

use coplay::time::{Instant, TimeDelta};

use super::member_table::MergeOutcome;
use super::message::{MemberInfo, MeshMessage, MeshOrLobbyMessage, MeshWelcome, split_into_messages};
use super::{ALL_CHANNEL, HEARTBEAT_DATAGRAM, HOST_SUSPENDED, Mesh};
use crate::clock;
use crate::key::PeerKey;
use crate::lobby::{self, JoinIntent, JoinRefusal, JoinRequest, MAX_NAME_LEN, PROTOCOL_VERSION, merge_addrs, sanitize};

/// Gossip interval. Each turn sends information about all present members to the next peer, so that a member which
/// missed an update catches up.
const GOSSIP_INTERVAL: TimeDelta = TimeDelta::from_secs(5);
/// Interval between checks whether this site's own addresses have changed.
const ADDR_CHECK_INTERVAL: TimeDelta = TimeDelta::from_secs(5);

impl Mesh {
    pub(super) fn handle_reliable(&mut self, from: PeerKey, bytes: &[u8]) {
        let now = clock::now();
        self.member_table.on_received(now, &from);
        for message in self.mux.handle_datagram(from, bytes) {
            self.on_message(now, from, message);
        }
        self.on_members_changed();
    }

    pub(super) fn on_message(&mut self, now: Instant, from: PeerKey, message: MeshOrLobbyMessage) {
        match message {
            MeshOrLobbyMessage::Lobby(lobby::LobbyMessage::JoinRequest(request)) => {
                self.on_join_request(now, from, &request)
            }
            MeshOrLobbyMessage::Mesh(MeshMessage::Members { mesh_id, infos }) if mesh_id == self.mesh_key.mesh_id() => {
                infos.into_iter().for_each(|info| self.on_member_info(now, from, info));
                self.member_table.on_received(now, &from);
            }
            MeshOrLobbyMessage::Mesh(MeshMessage::Bye) => self.member_table.on_bye(now, &from),
            MeshOrLobbyMessage::Lobby(_) | MeshOrLobbyMessage::Mesh(_) => {}
        }
    }

    /// Admits the sender of a join request, or refuses it with a reason.
    fn on_join_request(&mut self, now: Instant, from: PeerKey, request: &JoinRequest) {
        let admitted = match request.intent {
            _ if request.version != PROTOCOL_VERSION => Err(JoinRefusal::VersionMismatch(PROTOCOL_VERSION)),
            JoinIntent::JoinMesh(run) => {
                let addrs = merge_addrs(&request.addrs, self.mux.transport.addr_of(&from));
                self.member_table.admit(now, from, run, (sanitize(&request.name, MAX_NAME_LEN), addrs))
            }
            JoinIntent::Play(_) | JoinIntent::Spectate => Err(JoinRefusal::WrongGameKind),
        };
        match admitted {
            Ok((info, is_new)) => self.send_welcome(now, from, info, is_new),
            Err(refusal) => self.mux.send(from, &MeshOrLobbyMessage::Lobby(lobby::LobbyMessage::Refused(refusal))),
        }
    }

    fn send_welcome(&mut self, now: Instant, from: PeerKey, your_info: MemberInfo, is_new: bool) {
        self.member_table.on_received(now, &from);
        let (mesh_key, settings, multicast_group) =
            (self.mesh_key.clone(), self.settings.clone(), self.multicast_group);
        let welcome = MeshWelcome { mesh_key, settings, multicast_group, your_info: your_info.clone() };
        self.mux.send(from, &MeshOrLobbyMessage::Mesh(MeshMessage::Welcome(welcome)));
        self.send_all_members(from);
        if is_new {
            let others: Vec<PeerKey> =
                self.member_table.present_peers().map(|(key, _)| key).filter(|key| *key != from).collect();
            self.send_member_infos(others, [your_info]);
        }
    }

    /// Merges information about a member, from that member itself or from another. Depending on the outcome, starts
    /// dialing the member, or announces this site to it.
    fn on_member_info(&mut self, now: Instant, from: PeerKey, info: MemberInfo) {
        match self.member_table.merge(now, &from, info.clone()) {
            MergeOutcome::Dial => self.dial_member(&info),
            MergeOutcome::NewFirstHand => self.announce_self([from]),
            MergeOutcome::Ignored => {}
        }
    }

    /// Starts dialing a member. If a connection to it exists already, announces this site instead, so that the member
    /// answers.
    fn dial_member(&mut self, info: &MemberInfo) {
        self.mux.dial(&info.addrs, info.key);
        if self.mux.transport.addr_of(&info.key).is_some() {
            self.announce_self([info.key]);
        }
    }

    /// Sends information about a new member to the members that joined less than 10 s ago: members that different sites
    /// admitted at the same time do not know each other.
    pub(super) fn announce_to_recent_members(&mut self, peer: &PeerKey) {
        let recent: Vec<PeerKey> = self.member_table.recent_joiners(clock::now()).filter(|key| key != peer).collect();
        let info = self.member_table.info_of(peer).cloned();
        self.send_member_infos(recent, info);
    }

    fn announce_self(&mut self, to: impl IntoIterator<Item = PeerKey> + Clone) {
        self.send_member_infos(to, [self.member_table.own_info().clone()]);
    }

    /// Announces this site to a known member with which a connection was established.
    pub(super) fn on_connected(&mut self, peer: PeerKey) {
        if self.member_table.site_of(&peer).is_some() {
            self.announce_self([peer]);
        }
    }

    fn send_member_infos(
        &mut self,
        to: impl IntoIterator<Item = PeerKey> + Clone,
        infos: impl IntoIterator<Item = MemberInfo>,
    ) {
        for message in split_into_messages(self.mesh_key.mesh_id(), infos) {
            self.mux.send_to_all(to.clone(), &message);
        }
    }

    fn send_all_members(&mut self, to: PeerKey) {
        let infos: Vec<MemberInfo> = self.member_table.gossip_infos().filter(|info| info.key != to).cloned().collect();
        self.send_member_infos([to], infos);
    }

    /// Handles the events and canceled dials of the member table, and restricts accepted multicast to that of its
    /// reachable members.
    fn on_members_changed(&mut self) {
        self.handle_member_events();
        self.member_table.take_canceled_dials().iter().for_each(|key| self.mux.transport.cancel_dial(key));
        if let Some(socket) = &self.multicast_socket {
            socket.set_sources(self.member_table.reachable().map(|info| (info.site, info.run_id)));
        }
    }

    /// Handles timeouts of members, and sends the heartbeats, beacons, gossip and address changes that are due. After a
    /// suspension of this computer it first restarts the timeouts.
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
        let table = &self.member_table;
        self.mux.forget_silent_peers(now, |peer| table.site_of(peer).is_some());
    }

    /// Sends each reachable member a heartbeat if one is due. The heartbeat states whether this site receives that
    /// member's multicast.
    fn send_heartbeats(&mut self, now: Instant) {
        let (probe, is_unavailable) = (&mut self.multicast_probe, self.multicast_socket.is_none());
        for info in self.member_table.reachable() {
            if let Some(is_receiving) = probe.poll_heartbeat(now, info.site, is_unavailable) {
                self.mux.transport.send(&info.key, &[HEARTBEAT_DATAGRAM, u8::from(is_receiving)]);
            }
        }
    }

    /// Sends an empty multicast packet if a member is reachable and no other packet went to all sites for 0.5 s, so
    /// that the others can tell whether they receive this site.
    fn send_beacon(&mut self, now: Instant) {
        if now >= self.next_beacon && self.member_table.reachable().next().is_some() {
            self.send_on_channel(now, ALL_CHANNEL, 0, &[]);
        }
    }

    /// Every 5 s, sends information about all present members to the next peer in turn, and forgets the multicast state
    /// of departed sites.
    fn gossip_to_next(&mut self, now: Instant) {
        if now < self.next_gossip {
            return;
        }
        self.next_gossip = now + GOSSIP_INTERVAL;
        let table = &self.member_table;
        self.multicast_probe.retain(|site| table.key_of(site).is_some());
        let present: Vec<PeerKey> = self.member_table.present_peers().map(|(key, _)| key).collect();
        let after = present.iter().find(|key| Some(**key) > self.last_gossip_peer).or(present.first());
        if let Some(next) = after.copied() {
            self.last_gossip_peer = Some(next);
            self.send_all_members(next);
        }
    }

    /// Every 5 s, checks for new addresses of this site and announces them: an address may change, and a relay may be
    /// found late.
    fn check_own_addrs(&mut self, now: Instant) {
        if now < self.next_addr_check {
            return;
        }
        self.next_addr_check = now + ADDR_CHECK_INTERVAL;
        let addrs = self.mux.own_addrs();
        if addrs.iter().any(|addr| !self.member_table.own_info().addrs.contains(addr)) {
            self.member_table.set_own_addrs(addrs);
            let others: Vec<PeerKey> = self.member_table.reachable().map(|info| info.key).collect();
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
    use crate::peer_addr::PeerAddr;
    use crate::reliable::Mux;
    use crate::transport::{DropCounts, Transport};

    /// A transport that records recipients and dials, and on which no peer answers.
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

        fn dial(&self, addr: &PeerAddr, expect: Option<PeerKey>) {
            self.dials.lock().unwrap().extend(expect.map(|peer| (peer, addr.clone())));
        }

        fn cancel_dial(&self, peer: &PeerKey) {
            self.dials.lock().unwrap().retain(|(dialed, _)| dialed != peer);
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
        /// Returns the recipients of messages since the last call.
        fn drain_recipients(&self, mesh: &mut Mesh) -> Vec<PeerKey> {
            mesh.mux.flush(clock::now());
            std::mem::take(&mut *self.sent.lock().unwrap())
        }

        fn dials(&self) -> usize {
            self.dials.lock().unwrap().len()
        }
    }

    fn key(number: u8) -> PeerKey {
        PeerKey([number; 32])
    }

    fn member_info(mesh_key: &MeshKey, number: u8) -> MemberInfo {
        let (key, name) = (key(number), format!("site {number}"));
        let addrs = (0..2).map(|port| PeerAddr(format!("192.0.2.{number}:{port}"))).collect();
        MemberInfo { revision: 1, key, site: mesh_key.site_number(&key, 0), run_id: [1; 16], name, addrs }
    }

    fn receive_info(mesh: &mut Mesh, from: u8, info: MemberInfo) {
        let message = MeshMessage::Members { mesh_id: mesh.mesh_key.mesh_id(), infos: vec![info] };
        mesh.on_message(clock::now(), key(from), MeshOrLobbyMessage::Mesh(message));
        mesh.on_members_changed();
    }

    /// Returns a mesh of three sites: this one, and sites 1 and 2.
    fn three_sites() -> (Arc<RecordingTransport>, Mesh) {
        let (transport, key) = (Arc::new(RecordingTransport::default()), MeshKey::random());
        let mux = Mux::new(transport.clone(), sync_channel(1).1);
        let welcome =
            MeshWelcome { your_info: member_info(&key, 0), mesh_key: key, settings: vec![], multicast_group: None };
        let mut mesh = Mesh::from_welcome(mux, welcome, &MeshOptions::default());
        for number in [1, 2] {
            let own_info = member_info(&mesh.mesh_key, number);
            receive_info(&mut mesh, number, own_info);
        }
        assert_eq!(mesh.members().count(), 3);
        transport.drain_recipients(&mut mesh);
        (transport, mesh)
    }

    #[test]
    fn false_report_about_another_member_is_ignored_and_not_forwarded() {
        let (transport, mut mesh) = three_sites();
        let before: Vec<_> = mesh.members().collect();
        for number in [0, 1] {
            let truth = member_info(&mesh.mesh_key, number);
            let (site, name) = (mesh.mesh_key.site_number(&truth.key, 1), "another name".into());
            let false_info = MemberInfo { revision: u32::MAX, site, run_id: [9; 16], name, ..truth };
            receive_info(&mut mesh, 2, false_info);
            let own_info = member_info(&mesh.mesh_key, 1);
            receive_info(&mut mesh, 1, own_info);
        }
        assert_eq!(mesh.members().collect::<Vec<_>>(), before);
        assert_eq!((transport.drain_recipients(&mut mesh), transport.dials()), (vec![], 0));
    }

    #[test]
    fn reported_but_nonexistent_members_are_dialed_briefly_and_take_no_slot() {
        let (transport, mut mesh) = three_sites();
        for number in 10..250 {
            let invented = member_info(&mesh.mesh_key, number);
            receive_info(&mut mesh, 2, invented);
        }
        let dials = transport.dials();
        assert!((100..=128).contains(&dials), "{dials} dials");
        assert_eq!(transport.drain_recipients(&mut mesh), [], "reports are not forwarded");
        for number in 190..250 {
            let request = JoinRequest {
                version: PROTOCOL_VERSION,
                name: String::new(),
                intent: JoinIntent::JoinMesh([2; 16]),
                addrs: vec![],
            };
            mesh.on_message(
                clock::now(),
                key(number),
                MeshOrLobbyMessage::Lobby(lobby::LobbyMessage::JoinRequest(request)),
            );
        }
        assert_eq!(mesh.members().count(), 63);
        mesh.housekeep(clock::now() + TimeDelta::from_secs(11));
        assert_eq!(transport.dials(), 0);
    }

    #[test]
    fn new_member_is_introduced_to_us_and_to_recent_members() {
        let (transport, mut mesh) = three_sites();
        let own_info = member_info(&mesh.mesh_key, 3);
        receive_info(&mut mesh, 3, own_info.clone());
        let mut recipients = transport.drain_recipients(&mut mesh);
        recipients.sort_unstable();
        assert_eq!(recipients, [key(1), key(2), key(3)]);
        receive_info(&mut mesh, 3, own_info);
        assert_eq!(transport.drain_recipients(&mut mesh), []);
    }
}
