//! Meshes over real sockets, each site on a thread of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, spawn};
use std::time::{Duration, Instant};

use coplay::peer_world::WorldRegion;
use coplay::time::TimeDelta;
use coplay_net::iroh::{IrohTransport, RelayConfig};
use coplay_net::key::{Identity, Secret, Token};
use coplay_net::lobby::{JoinIntent, JoinRefusal, JoinRequest, LobbyMessage, PROTOCOL_VERSION};
use coplay_net::mesh::{
    DepartureReason, Dest, Mesh, MeshError, MeshEvent, MeshJoinConfig, MeshMember, MeshOptions, MeshStats,
    MulticastConfig, TransportWithIncoming,
};
use coplay_net::reliable::Channel;
use coplay_net::udp::UdpTransport;
use coplay_net::{Incoming, PeerAddr, PeerKey, Transport, clock};
use rtp_types::RtpPacket;

/// Time limit of every wait, generous enough for a loaded computer.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Transport between the sites of a mesh.
#[derive(Clone)]
enum TransportKind {
    Udp,
    Iroh(Token),
}

fn mesh_transport(net: &TransportKind, identity: Identity, secret: &str) -> TransportWithIncoming {
    mesh_transport_at(Ipv4Addr::LOCALHOST, net, identity, secret)
}

fn mesh_transport_at(ip: Ipv4Addr, net: &TransportKind, identity: Identity, secret: &str) -> TransportWithIncoming {
    let (queue, incoming) = sync_channel(4_096);
    let (addr, sender) = (SocketAddr::from((ip, 0)), queue.clone());
    let transport: Arc<dyn Transport> = match net {
        TransportKind::Udp => {
            Arc::new(UdpTransport::listen(addr, identity, Secret::from_text(secret), sender).expect("a free port"))
        }
        TransportKind::Iroh(token) => Arc::new(
            IrohTransport::listen(addr, &identity, token.clone(), RelayConfig::None, sender).expect("a free port"),
        ),
    };
    TransportWithIncoming { transport, incoming, incoming_sender: queue }
}

/// Command to a site.
enum TestCommand {
    SendAll(Vec<u8>),
    SendToOne(u32, Vec<u8>),
    SendToSites(Vec<u32>, Vec<u8>),
    SendToRegion(WorldRegion, Vec<u32>, Vec<u8>),
    Subscribe(Vec<WorldRegion>),
    Leave,
    Crash,
}

/// Observations of a site.
#[derive(Default)]
struct Observations {
    events: Vec<MeshEvent>,
    members: Vec<MeshMember>,
    stats: MeshStats,
    /// Sites that receive this one by multicast.
    multicast_receivers: BTreeSet<u32>,
}

/// A site on a thread of its own.
struct TestSite {
    site: u32,
    addr: PeerAddr,
    key: PeerKey,
    settings: Vec<u8>,
    commands: Sender<TestCommand>,
    observed: Arc<Mutex<Observations>>,
    thread: JoinHandle<()>,
}

impl TestSite {
    fn start(mesh: Mesh, addr: PeerAddr, key: PeerKey) -> Self {
        let (commands, command_receiver) = channel();
        let (site, settings, observed) =
            (mesh.site(), mesh.settings().to_vec(), Arc::new(Mutex::new(Observations::default())));
        let published = observed.clone();
        let thread = spawn(move || run_mesh(mesh, &command_receiver, &published));
        Self { site, addr, key, settings, commands, observed, thread }
    }

    fn send_command(&self, command: TestCommand) {
        self.commands.send(command).expect("the site runs");
    }

    /// Waits until `holds` returns `true`; panics with `condition` after 60 s.
    #[track_caller]
    fn wait_until(&self, condition: &str, holds: impl Fn(&Observations) -> bool) {
        let deadline = Instant::now() + TIMEOUT;
        while !holds(&self.observed.lock().unwrap()) {
            let observed = self.observed.lock().unwrap();
            assert!(
                Instant::now() < deadline,
                "{condition}: {:?} {:?} {:?}",
                observed.members,
                observed.stats,
                observed.events.last()
            );
            drop(observed);
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[track_caller]
    fn wait_for_members(&self, others: &[&TestSite]) {
        let all: BTreeSet<u32> = others.iter().map(|other| other.site).chain([self.site]).collect();
        self.wait_until("all members are present", |observed| {
            observed.members.iter().map(|member| member.site).collect::<BTreeSet<_>>() == all
        });
    }

    #[track_caller]
    fn wait_for_bytes(&self, from: &TestSite, expected: &[u8]) {
        self.wait_until(&format!("{expected:?}"), |observed| count_datagrams(observed, from, expected) > 0);
    }

    fn end(self, command: TestCommand) {
        self.send_command(command);
        self.thread.join().unwrap();
    }
}

fn count_datagrams(observed: &Observations, from: &TestSite, expected: &[u8]) -> usize {
    let is_expected = |event: &&MeshEvent| matches!(event, MeshEvent::Datagram { from: site, bytes, .. } if *site == from.site && bytes == expected);
    observed.events.iter().filter(is_expected).count()
}

fn run_mesh(mut mesh: Mesh, commands: &Receiver<TestCommand>, published: &Mutex<Observations>) {
    loop {
        let now = clock::now();
        while let Ok(command) = commands.try_recv() {
            match command {
                TestCommand::SendAll(bytes) => mesh.send(now, &Dest::All, 90_000, &bytes),
                TestCommand::SendToOne(site, bytes) => mesh.send(now, &Dest::Site(site), 90_000, &bytes),
                TestCommand::SendToSites(sites, bytes) => mesh.send(now, &Dest::Sites(&sites), 90_000, &bytes),
                TestCommand::SendToRegion(region, sites, bytes) => {
                    mesh.send(now, &Dest::Region { region, sites: &sites }, 90_000, &bytes);
                }
                TestCommand::Subscribe(regions) => mesh.subscribe_regions(&regions),
                TestCommand::Leave => return mesh.leave(),
                TestCommand::Crash => return,
            }
        }
        let event = mesh.poll(now + TimeDelta::from_millis(10));
        let mut observed = published.lock().unwrap();
        observed.events.extend(event);
        observed.members = mesh.members().collect();
        observed.stats = mesh.stats();
        let now = clock::now();
        observed.multicast_receivers = observed
            .members
            .iter()
            .map(|member| member.site)
            .filter(|site| mesh.is_multicast_received_by(now, *site))
            .collect();
    }
}

fn mesh_options(name: &str) -> MeshOptions {
    MeshOptions { name: name.into(), ..MeshOptions::default() }
}

fn create_mesh(net: &TransportKind, options: &MeshOptions) -> Result<TestSite, MeshError> {
    let mesh_transport = mesh_transport(net, Identity::random(), "maze");
    let (addr, key) = (mesh_transport.transport.own_addrs().remove(0), mesh_transport.transport.key());
    Mesh::create(mesh_transport, b"settings", options).map(|mesh| TestSite::start(mesh, addr, key))
}

fn try_join(
    net: &TransportKind,
    identity: Identity,
    secret: &str,
    at: &PeerAddr,
    options: &MeshOptions,
) -> Result<TestSite, MeshError> {
    let mesh_transport = mesh_transport(net, identity, secret);
    let (addr, key) = (mesh_transport.transport.own_addrs().remove(0), mesh_transport.transport.key());
    let config = MeshJoinConfig { addrs: vec![at.clone()], expected_peer: None, timeout: TIMEOUT.into() };
    let mesh = Mesh::join(mesh_transport, &config, options, || true)?.expect("the attempt was not cancelled");
    Ok(TestSite::start(mesh, addr, key))
}

fn join(net: &TransportKind, at: &TestSite, options: &MeshOptions) -> TestSite {
    try_join(net, Identity::random(), "maze", &at.addr, options).expect("admitted")
}

#[test]
fn three_sites_exchange_unicast_datagrams() {
    for net in [TransportKind::Udp, TransportKind::Iroh(Token::random())] {
        let ann = create_mesh(&net, &mesh_options("Ann")).unwrap();
        let bob = join(&net, &ann, &mesh_options("Bob"));
        // Any member admits joiners.
        let cid = join(&net, &bob, &mesh_options("Cid"));
        assert_eq!((&bob.settings[..], &cid.settings[..]), (&b"settings"[..], &b"settings"[..]));
        let all = [&ann, &bob, &cid];
        for site in all {
            let others: Vec<&TestSite> = all.into_iter().filter(|other| other.site != site.site).collect();
            site.wait_for_members(&others);
            let names: BTreeMap<u32, String> =
                site.observed.lock().unwrap().members.iter().map(|member| (member.site, member.name.clone())).collect();
            assert_eq!([ann.site, bob.site, cid.site].map(|site| names[&site].clone()), ["Ann", "Bob", "Cid"]);
        }
        cid.send_command(TestCommand::SendAll(b"to all".into()));
        cid.send_command(TestCommand::SendToOne(ann.site, b"to one".into()));
        ann.send_command(TestCommand::SendToSites(vec![bob.site, cid.site], b"to these".into()));
        ann.wait_for_bytes(&cid, b"to one");
        ann.wait_for_bytes(&cid, b"to all");
        bob.wait_for_bytes(&cid, b"to all");
        bob.wait_for_bytes(&ann, b"to these");
        cid.wait_for_bytes(&ann, b"to these");
        assert_eq!(count_datagrams(&bob.observed.lock().unwrap(), &cid, b"to one"), 0);
        let sent = |counts: MeshStats| {
            (counts.unicast_sent.datagrams, counts.unicast_sent.bytes, counts.multicast_sent.datagrams)
        };
        cid.wait_until("the datagrams are counted", |observed| sent(observed.stats) == (3, 18, 0));
        bob.end(TestCommand::Leave);
        ann.wait_for_members(&[&cid]);
        ann.end(TestCommand::Crash);
        cid.end(TestCommand::Crash);
    }
}

#[test]
fn wrong_secret_cannot_join() {
    let ann = create_mesh(&TransportKind::Udp, &mesh_options("Ann")).unwrap();
    let refused = try_join(&TransportKind::Udp, Identity::random(), "labyrinth", &ann.addr, &mesh_options("Eve")).err();
    assert_eq!(refused, Some(MeshError::Unreachable { addr: ann.addr.clone(), wrong_secret: true }));
    assert_eq!(ann.observed.lock().unwrap().members.len(), 1);
    ann.end(TestCommand::Crash);
}

/// Sends a join request with this version and intent, and returns the answer.
fn join_answer(at: &TestSite, version: u16, intent: JoinIntent) -> LobbyMessage {
    let TransportWithIncoming { transport, incoming, .. } =
        mesh_transport(&TransportKind::Udp, Identity::random(), "maze");
    transport.dial(&at.addr, None);
    let mut channel = Channel::new();
    channel
        .send(&LobbyMessage::JoinRequest(JoinRequest { version, name: "Eve".into(), intent, addrs: vec![] }).to_bytes())
        .unwrap();
    let deadline = Instant::now() + TIMEOUT;
    while Instant::now() < deadline {
        while let Some(bytes) = channel.poll_transmit(clock::now()) {
            transport.send(&at.key, &bytes);
        }
        if let Ok(Incoming::Datagram { bytes, .. }) = incoming.recv_timeout(Duration::from_millis(20)) {
            channel.handle_datagram(&bytes);
        }
        if let Some(message) = channel.poll_message() {
            return LobbyMessage::from_bytes(&message).expect("a lobby message");
        }
    }
    panic!("no answer");
}

#[test]
fn other_join_requests_are_refused_with_reason() {
    let ann = create_mesh(&TransportKind::Udp, &mesh_options("Ann")).unwrap();
    let other_version = join_answer(&ann, PROTOCOL_VERSION + 1, JoinIntent::JoinMesh([1; 16]));
    assert_eq!(other_version, LobbyMessage::Refused(JoinRefusal::VersionMismatch(PROTOCOL_VERSION)));
    assert_eq!(
        join_answer(&ann, PROTOCOL_VERSION, JoinIntent::Play(1)),
        LobbyMessage::Refused(JoinRefusal::WrongGameKind)
    );
    assert_eq!(
        join_answer(&ann, PROTOCOL_VERSION, JoinIntent::Spectate),
        LobbyMessage::Refused(JoinRefusal::WrongGameKind)
    );
    assert_eq!(ann.observed.lock().unwrap().members.len(), 1);
    ann.end(TestCommand::Crash);
}

#[test]
fn oversized_settings_are_rejected() {
    let mesh_transport = mesh_transport(&TransportKind::Udp, Identity::random(), "maze");
    assert_eq!(Mesh::create(mesh_transport, &[0; 1_001], &mesh_options("Ann")).err(), Some(MeshError::SettingsTooLong));
}

#[test]
fn mesh_survives_its_founder_leaving() {
    let ann = create_mesh(&TransportKind::Udp, &mesh_options("Ann")).unwrap();
    let bob = join(&TransportKind::Udp, &ann, &mesh_options("Bob"));
    let cid = join(&TransportKind::Udp, &ann, &mesh_options("Cid"));
    cid.wait_for_members(&[&ann, &bob]);
    bob.wait_for_members(&[&ann, &cid]);
    let founder = ann.site;
    ann.end(TestCommand::Leave);
    let left = |observed: &Observations| {
        observed.events.contains(&MeshEvent::Left { site: founder, reason: DepartureReason::Left })
    };
    bob.wait_until("the founder left", left);
    cid.wait_until("the founder left", left);
    let dan = join(&TransportKind::Udp, &cid, &mesh_options("Dan"));
    assert_eq!(dan.settings, b"settings");
    dan.wait_for_members(&[&bob, &cid]);
    bob.wait_for_members(&[&cid, &dan]);
    bob.send_command(TestCommand::SendAll(b"still here".into()));
    dan.wait_for_bytes(&bob, b"still here");
    cid.wait_for_bytes(&bob, b"still here");
    [bob, cid, dan].into_iter().for_each(|site| site.end(TestCommand::Crash));
}

/// A site keeps its site number through two restarts, the first before the others notice its absence, the second after
/// its timeout. It joins through another member each time.
#[test]
fn restarted_site_keeps_its_site_number() {
    let ann = create_mesh(&TransportKind::Udp, &mesh_options("Ann")).unwrap();
    let bob = join(&TransportKind::Udp, &ann, &mesh_options("Bob"));
    let identity = Identity::random();
    let join_again = |at: &TestSite| {
        try_join(&TransportKind::Udp, identity.clone(), "maze", &at.addr, &mesh_options("Cid")).expect("admitted")
    };
    let cid = join_again(&ann);
    let site = cid.site;
    ann.wait_for_members(&[&bob, &cid]);
    bob.wait_for_members(&[&ann, &cid]);
    cid.end(TestCommand::Crash);
    let cid = join_again(&bob);
    assert_eq!(cid.site, site);
    let has_left = |reason: DepartureReason| {
        move |observed: &Observations| observed.events.contains(&MeshEvent::Left { site, reason })
    };
    ann.wait_until("the restart is detected", has_left(DepartureReason::Restarted));
    bob.wait_until("the restart is detected", has_left(DepartureReason::Restarted));
    cid.wait_for_members(&[&ann, &bob]);
    ann.wait_for_members(&[&bob, &cid]);
    ann.send_command(TestCommand::SendAll(b"there you are".into()));
    cid.wait_for_bytes(&ann, b"there you are");
    cid.end(TestCommand::Crash);
    ann.wait_until("the site times out", has_left(DepartureReason::TimedOut));
    bob.wait_until("the site times out", has_left(DepartureReason::TimedOut));
    let cid = join_again(&ann);
    assert_eq!(cid.site, site);
    cid.wait_for_members(&[&ann, &bob]);
    bob.wait_for_members(&[&ann, &cid]);
    bob.send_command(TestCommand::SendToOne(site, b"again".into()));
    cid.wait_for_bytes(&bob, b"again");
    [ann, bob, cid].into_iter().for_each(|site| site.end(TestCommand::Crash));
}

/// Sites that join at the same time through different members find all others.
#[test]
fn concurrent_joiners_find_each_other() {
    let ann = create_mesh(&TransportKind::Udp, &mesh_options("Ann")).unwrap();
    let bob = join(&TransportKind::Udp, &ann, &mesh_options("Bob"));
    let addrs = [ann.addr.clone(), bob.addr.clone()];
    let joining: Vec<JoinHandle<TestSite>> = (0..6)
        .map(|number: usize| {
            let addr = addrs[number % 2].clone();
            spawn(move || {
                let options = mesh_options(&format!("joiner {number}"));
                try_join(&TransportKind::Udp, Identity::random(), "maze", &addr, &options).expect("admitted")
            })
        })
        .collect();
    let mut all: Vec<TestSite> = joining.into_iter().map(|thread| thread.join().unwrap()).collect();
    all.extend([ann, bob]);
    for site in &all {
        let others: Vec<&TestSite> = all.iter().filter(|other| other.site != site.site).collect();
        site.wait_for_members(&others);
    }
    all[0].send_command(TestCommand::SendAll(b"hello".into()));
    all[1..].iter().for_each(|site| site.wait_for_bytes(&all[0], b"hello"));
    all.into_iter().for_each(|site| site.end(TestCommand::Crash));
}

/// Returns settings that require multicast on the loopback interface, at an address and a port that other tests are
/// unlikely to use.
fn unused_multicast_config() -> MulticastConfig {
    let port = UdpSocket::bind("0.0.0.0:0").unwrap().local_addr().unwrap().port();
    let group = SocketAddrV4::new(Ipv4Addr::new(239, 255, (port >> 8) as u8 & 0x7f, 1 + (port as u8 & 0x7f)), port);
    MulticastConfig { group, interface: Some(Ipv4Addr::LOCALHOST), is_required: true }
}

fn with_multicast(name: &str, multicast: &MulticastConfig) -> MeshOptions {
    MeshOptions { multicast: Some(multicast.clone()), ..mesh_options(name) }
}

/// Creates a mesh with multicast. Where multicast is unavailable, checks the fallback to unicast and returns `None`.
fn create_mesh_with_multicast(multicast: &MulticastConfig) -> Option<TestSite> {
    match create_mesh(&TransportKind::Udp, &with_multicast("Ann", multicast)) {
        Ok(site) => Some(site),
        Err(MeshError::Multicast(error)) => {
            println!("multicast is unavailable here, so only the fallback is tested: {error}");
            let optional = MulticastConfig { is_required: false, ..multicast.clone() };
            let ann = create_mesh(&TransportKind::Udp, &with_multicast("Ann", &optional)).unwrap();
            let bob = join(&TransportKind::Udp, &ann, &with_multicast("Bob", &optional));
            bob.wait_for_members(&[&ann]);
            bob.send_command(TestCommand::SendAll(b"by unicast".into()));
            ann.wait_for_bytes(&bob, b"by unicast");
            [ann, bob].into_iter().for_each(|site| site.end(TestCommand::Crash));
            None
        }
        Err(other) => panic!("{other}"),
    }
}

/// Opens a plain socket that receives one multicast address and can send anything to it.
fn open_eavesdropper(addr: SocketAddrV4) -> UdpSocket {
    use socket2::{Domain, Socket, Type};
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None).unwrap();
    socket.set_reuse_address(true).unwrap();
    socket.bind(&SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, addr.port()).into()).unwrap();
    socket.join_multicast_v4(addr.ip(), &Ipv4Addr::LOCALHOST).unwrap();
    socket.set_multicast_if_v4(&Ipv4Addr::LOCALHOST).unwrap();
    socket.set_read_timeout(Some(TIMEOUT)).unwrap();
    socket.into()
}

#[track_caller]
fn wait_for_multicast_receivers(site: &TestSite, others: &[&TestSite]) {
    let others: BTreeSet<u32> = others.iter().map(|other| other.site).collect();
    site.wait_until("the others receive it by multicast", |observed| observed.multicast_receivers == others);
}

/// Creates three sites that receive each other by multicast; `None` where multicast is unavailable.
fn three_sites_with_multicast(multicast: &MulticastConfig) -> Option<[TestSite; 3]> {
    let ann = create_mesh_with_multicast(multicast)?;
    let bob = join(&TransportKind::Udp, &ann, &with_multicast("Bob", multicast));
    let cid = join(&TransportKind::Udp, &bob, &with_multicast("Cid", multicast));
    wait_for_multicast_receivers(&ann, &[&bob, &cid]);
    wait_for_multicast_receivers(&bob, &[&ann, &cid]);
    wait_for_multicast_receivers(&cid, &[&ann, &bob]);
    Some([ann, bob, cid])
}

#[test]
fn one_multicast_datagram_reaches_all_sites() {
    let multicast = unused_multicast_config();
    let Some([ann, bob, cid]) = three_sites_with_multicast(&multicast) else { return };
    let listener = open_eavesdropper(multicast.group);
    let before = ann.observed.lock().unwrap().stats;
    ann.send_command(TestCommand::SendAll(b"once for all".into()));
    bob.wait_for_bytes(&ann, b"once for all");
    cid.wait_for_bytes(&ann, b"once for all");
    ann.wait_until("the packet is counted", |observed| {
        observed.stats.multicast_sent.bytes >= before.multicast_sent.bytes + 45
    });
    assert_eq!(ann.observed.lock().unwrap().stats.unicast_sent, before.unicast_sent, "nothing was sent by unicast");
    bob.wait_until("the packet is counted", |observed| observed.stats.multicast_received.datagrams >= 1);

    // Standard tools see RTP, and nothing of the content.
    let mut bytes = [0; 2_048];
    let packet = loop {
        let len = listener.recv(&mut bytes).unwrap();
        let rtp = RtpPacket::parse(&bytes[..len]).expect("an RTP packet");
        assert_eq!((rtp.version(), rtp.payload_type()), (2, 96));
        if rtp.ssrc() == ann.site && rtp.timestamp() == 90_000 {
            break bytes[..len].to_vec();
        }
    };
    assert_eq!(packet.len(), 12 + 5 + b"once for all".len() + 16);
    assert!(!packet.windows(4).any(|four| four == b"once"), "the content is sealed");

    assert_bad_packets_are_rejected(&multicast, &listener, &packet, [&bob, &cid]);
    assert_eq!(count_datagrams(&bob.observed.lock().unwrap(), &ann, b"once for all"), 1);
    [ann, bob, cid].into_iter().for_each(|site| site.end(TestCommand::Crash));
}

/// Asserts that replayed and forged packets, packets of unknown senders and garbage are counted, and that authentic
/// packets still arrive.
fn assert_bad_packets_are_rejected(
    multicast: &MulticastConfig,
    socket: &UdpSocket,
    packet: &[u8],
    sites: [&TestSite; 2],
) {
    let changed = |at: usize| {
        let mut changed = packet.to_vec();
        changed[at] ^= 0x55;
        changed
    };
    // With another sequence number the packet is not a replay.
    let packets = [packet.to_vec(), changed(3), changed(9), b"garbage".to_vec(), vec![0x80; 1_400]];
    let is_counted = |observed: &Observations| {
        let rejected = observed.stats.multicast_rejected;
        rejected.replayed >= 1 && rejected.forged >= 1 && rejected.unknown_senders >= 1 && rejected.garbage >= 2
    };
    packets.iter().for_each(|bytes| _ = socket.send_to(bytes, multicast.group).unwrap());
    for site in sites {
        site.wait_until("all packets are counted", is_counted);
    }
    sites[0].send_command(TestCommand::SendAll(b"genuine".into()));
    sites[1].wait_for_bytes(sites[0], b"genuine");
}

#[test]
fn region_datagrams_reach_only_subscribers() {
    let multicast = unused_multicast_config();
    let Some([ann, bob, cid]) = three_sites_with_multicast(&multicast) else { return };
    let (one, other) = (WorldRegion { x: 3, y: 4 }, WorldRegion { x: 4, y: 4 });
    bob.send_command(TestCommand::Subscribe(vec![one]));
    cid.send_command(TestCommand::Subscribe(vec![other]));
    // The execution of the commands cannot be observed, so the test sends until the datagrams arrive.
    let sites = vec![bob.site, cid.site];
    let deadline = Instant::now() + TIMEOUT;
    let has_received = |site: &TestSite, bytes: &[u8]| count_datagrams(&site.observed.lock().unwrap(), &ann, bytes) > 0;
    while !(has_received(&bob, b"one") && has_received(&cid, b"other")) {
        assert!(Instant::now() < deadline);
        ann.send_command(TestCommand::SendToRegion(one, sites.clone(), b"one".into()));
        ann.send_command(TestCommand::SendToRegion(other, sites.clone(), b"other".into()));
        std::thread::sleep(Duration::from_millis(20));
    }
    // From now on each site receives only the region to which it subscribes.
    ann.send_command(TestCommand::SendToRegion(one, sites.clone(), b"only one".into()));
    ann.send_command(TestCommand::SendToRegion(other, sites, b"only other".into()));
    ann.send_command(TestCommand::SendAll(b"to all".into()));
    bob.wait_for_bytes(&ann, b"only one");
    cid.wait_for_bytes(&ann, b"only other");
    bob.wait_for_bytes(&ann, b"to all");
    cid.wait_for_bytes(&ann, b"to all");
    assert!(!has_received(&bob, b"only other") && !has_received(&cid, b"only one"));
    [ann, bob, cid].into_iter().for_each(|site| site.end(TestCommand::Crash));
}

/// A site that gives up its only region, as one without an avatar does, receives the datagrams of all regions; four are
/// tried.
#[test]
fn site_without_region_receives_all_regions() {
    let multicast = unused_multicast_config();
    let Some([ann, bob, cid]) = three_sites_with_multicast(&multicast) else { return };
    bob.send_command(TestCommand::Subscribe(vec![WorldRegion { x: 3, y: 4 }]));
    bob.send_command(TestCommand::Subscribe(vec![]));
    let has_received = |bytes: &[u8]| count_datagrams(&bob.observed.lock().unwrap(), &ann, bytes) > 0;
    let deadline = Instant::now() + TIMEOUT;
    for (x, y) in [(3, 4), (4, 4), (0, 0), (1, 255)] {
        while !has_received(&[x, y]) {
            assert!(Instant::now() < deadline, "nothing of region {x} {y}");
            ann.send_command(TestCommand::SendToRegion(WorldRegion { x, y }, vec![bob.site], vec![x, y]));
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    [ann, bob, cid].into_iter().for_each(|site| site.end(TestCommand::Crash));
}

/// If one of three sites has no multicast, a datagram of the founder for all goes to that site by unicast and to the
/// third by multicast. A datagram of the site without multicast reaches both others.
#[test]
fn site_without_multicast_gets_unicast() {
    let multicast = unused_multicast_config();
    let Some(ann) = create_mesh_with_multicast(&multicast) else { return };
    let bob = join(&TransportKind::Udp, &ann, &with_multicast("Bob", &multicast));
    let cid = join(&TransportKind::Udp, &ann, &mesh_options("Cid"));
    ann.wait_for_members(&[&bob, &cid]);
    wait_for_multicast_receivers(&ann, &[&bob]);
    let before = ann.observed.lock().unwrap().stats.unicast_sent.datagrams;
    ann.send_command(TestCommand::SendAll(b"everybody".into()));
    bob.wait_for_bytes(&ann, b"everybody");
    cid.wait_for_bytes(&ann, b"everybody");
    ann.wait_until("the datagram is counted", |observed| observed.stats.unicast_sent.datagrams == before + 1);
    cid.send_command(TestCommand::SendAll(b"me, too".into()));
    ann.wait_for_bytes(&cid, b"me, too");
    bob.wait_for_bytes(&cid, b"me, too");
    [ann, bob, cid].into_iter().for_each(|site| site.end(TestCommand::Crash));
}

/// After multicast stops reaching a site, datagrams to that site go by unicast.
#[test]
fn lost_multicast_falls_back_to_unicast() {
    let multicast = unused_multicast_config();
    let Some(ann) = create_mesh_with_multicast(&multicast) else { return };
    let impairment = "cut=12-100000".parse().ok();
    let bob = join(&TransportKind::Udp, &ann, &MeshOptions { impairment, ..with_multicast("Bob", &multicast) });
    wait_for_multicast_receivers(&ann, &[&bob]);
    ann.send_command(TestCommand::SendAll(b"by multicast".into()));
    bob.wait_for_bytes(&ann, b"by multicast");
    wait_for_multicast_receivers(&ann, &[]);
    let received = bob.observed.lock().unwrap().stats.multicast_received.datagrams;
    ann.send_command(TestCommand::SendAll(b"by the channel".into()));
    bob.wait_for_bytes(&ann, b"by the channel");
    assert_eq!(bob.observed.lock().unwrap().stats.multicast_received.datagrams, received);
    [ann, bob].into_iter().for_each(|site| site.end(TestCommand::Crash));
}

#[test]
fn incoming_multicast_can_be_impaired() {
    let multicast = unused_multicast_config();
    let Some(ann) = create_mesh_with_multicast(&multicast) else { return };
    let impairment = "delay=300".parse().ok();
    let bob = join(&TransportKind::Udp, &ann, &MeshOptions { impairment, ..with_multicast("Bob", &multicast) });
    wait_for_multicast_receivers(&ann, &[&bob]);
    let sent_at = clock::now();
    ann.send_command(TestCommand::SendAll(b"slowly".into()));
    bob.wait_for_bytes(&ann, b"slowly");
    let received_at = bob.observed.lock().unwrap().events.iter().find_map(|event| match event {
        MeshEvent::Datagram { at, bytes, .. } if bytes == b"slowly" => Some(*at),
        _ => None,
    });
    assert!(received_at.unwrap() - sent_at >= TimeDelta::from_millis(300));
    [ann, bob].into_iter().for_each(|site| site.end(TestCommand::Crash));
}

/// A founder without a configured interface moves its multicast to the interface towards the first joiner.
#[test]
fn multicast_interface_follows_the_first_peer() {
    let multicast = MulticastConfig { interface: None, ..unused_multicast_config() };
    let mesh_transport = mesh_transport_at(Ipv4Addr::UNSPECIFIED, &TransportKind::Udp, Identity::random(), "maze");
    let (key, own) = (mesh_transport.transport.key(), mesh_transport.transport.own_addrs().remove(0));
    let addr = PeerAddr(format!("127.0.0.1:{}", own.0.parse::<SocketAddr>().unwrap().port()));
    let ann = match Mesh::create(mesh_transport, b"settings", &with_multicast("Ann", &multicast)) {
        Ok(mesh) => TestSite::start(mesh, addr, key),
        Err(error) => return println!("multicast is unavailable here, so nothing is tested: {error}"),
    };
    let bob = join(&TransportKind::Udp, &ann, &with_multicast("Bob", &multicast));
    wait_for_multicast_receivers(&ann, &[&bob]);
    wait_for_multicast_receivers(&bob, &[&ann]);
    [ann, bob].into_iter().for_each(|site| site.end(TestCommand::Crash));
}

#[test]
fn unavailable_multicast_is_reported() {
    let no_interface = MulticastConfig { interface: Some(Ipv4Addr::new(192, 0, 2, 77)), ..unused_multicast_config() };
    let message = create_mesh(&TransportKind::Udp, &with_multicast("Ann", &no_interface))
        .err()
        .expect("no such interface")
        .to_string();
    assert!(message.starts_with("multicast does not work on interface 192.0.2.77: "), "{message}");
    let no_group = MulticastConfig { group: "192.0.2.1:5700".parse().unwrap(), ..unused_multicast_config() };
    let message =
        create_mesh(&TransportKind::Udp, &with_multicast("Ann", &no_group)).err().expect("no such group").to_string();
    assert!(message.contains("192.0.2.1:5700 is not a multicast address"), "{message}");

    // Where multicast is optional, the mesh reports the error and goes on without it.
    let optional = MulticastConfig { is_required: false, ..no_interface };
    let ann = create_mesh(&TransportKind::Udp, &with_multicast("Ann", &optional)).unwrap();
    ann.wait_until("the error is reported", |observed| {
        matches!(observed.events.first(), Some(MeshEvent::MulticastUnavailable(_)))
    });
    // The other member does not use multicast, so a joiner that requires it cannot join.
    let error = try_join(
        &TransportKind::Udp,
        Identity::random(),
        "maze",
        &ann.addr,
        &with_multicast("Bob", &unused_multicast_config()),
    )
    .err();
    assert_eq!(error.map(|error| error.to_string()).as_deref(), Some("the maze was opened without multicast"));
    ann.end(TestCommand::Crash);
}
