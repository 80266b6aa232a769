//! Groups without a server over real sockets, each site on a thread of its own.

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
    MeshTransport, MulticastConfig,
};
use coplay_net::reliable::Channel;
use coplay_net::udp::UdpTransport;
use coplay_net::{Incoming, PeerAddr, PeerKey, Transport, clock};
use rtp_types::RtpPacket;

/// Nothing here takes longer, even where the computer has much else to do.
const TIMEOUT: Duration = Duration::from_secs(60);

/// What the sites of a group reach each other by.
#[derive(Clone)]
enum TransportKind {
    Udp,
    Iroh(Token),
}

fn mesh_transport(net: &TransportKind, identity: Identity, secret: &str) -> MeshTransport {
    mesh_transport_at(Ipv4Addr::LOCALHOST, net, identity, secret)
}

fn mesh_transport_at(ip: Ipv4Addr, net: &TransportKind, identity: Identity, secret: &str) -> MeshTransport {
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
    MeshTransport { transport, incoming, incoming_sender: queue }
}

/// What a site is asked to do.
enum TestCommand {
    SendAll(Vec<u8>),
    SendToOne(u32, Vec<u8>),
    SendToSites(Vec<u32>, Vec<u8>),
    SendToRegion(WorldRegion, Vec<u32>, Vec<u8>),
    Subscribe(Vec<WorldRegion>),
    Leave,
    Crash,
}

/// What a site has seen.
#[derive(Default)]
struct Observations {
    events: Vec<MeshEvent>,
    members: Vec<MeshMember>,
    stats: MeshStats,
    /// Who hears it by multicast.
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
    fn start(group: Mesh, place: PeerAddr, key: PeerKey) -> Self {
        let (orders, to_do) = channel();
        let (site, terms, seen) =
            (group.site(), group.settings().to_vec(), Arc::new(Mutex::new(Observations::default())));
        let shown = seen.clone();
        let thread = spawn(move || run_mesh(group, &to_do, &shown));
        Self { site, addr: place, key, settings: terms, commands: orders, observed: seen, thread }
    }

    fn send_command(&self, order: TestCommand) {
        self.commands.send(order).expect("the site runs");
    }

    /// Waits until something is so.
    #[track_caller]
    fn wait_until(&self, what: &str, is_so: impl Fn(&Observations) -> bool) {
        let until = Instant::now() + TIMEOUT;
        while !is_so(&self.observed.lock().unwrap()) {
            let seen = self.observed.lock().unwrap();
            assert!(Instant::now() < until, "{what}: {:?} {:?} {:?}", seen.members, seen.stats, seen.events.last());
            drop(seen);
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[track_caller]
    fn wait_for_members(&self, others: &[&TestSite]) {
        let all: BTreeSet<u32> = others.iter().map(|other| other.site).chain([self.site]).collect();
        self.wait_until("all are there", |seen| {
            seen.members.iter().map(|member| member.site).collect::<BTreeSet<_>>() == all
        });
    }

    #[track_caller]
    fn wait_for_bytes(&self, from: &TestSite, expected: &[u8]) {
        self.wait_until(&format!("{expected:?}"), |seen| count_datagrams(seen, from, expected) > 0);
    }

    fn end(self, order: TestCommand) {
        self.send_command(order);
        self.thread.join().unwrap();
    }
}

fn count_datagrams(seen: &Observations, from: &TestSite, expected: &[u8]) -> usize {
    let same = |event: &&MeshEvent| matches!(event, MeshEvent::Datagram { from: site, bytes, .. } if *site == from.site && bytes == expected);
    seen.events.iter().filter(same).count()
}

fn run_mesh(mut group: Mesh, to_do: &Receiver<TestCommand>, shown: &Mutex<Observations>) {
    loop {
        let now = clock::now();
        while let Ok(order) = to_do.try_recv() {
            match order {
                TestCommand::SendAll(bytes) => group.send(now, &Dest::All, 90_000, &bytes),
                TestCommand::SendToOne(site, bytes) => group.send(now, &Dest::Site(site), 90_000, &bytes),
                TestCommand::SendToSites(sites, bytes) => group.send(now, &Dest::Sites(&sites), 90_000, &bytes),
                TestCommand::SendToRegion(region, sites, bytes) => {
                    group.send(now, &Dest::Region { region, sites: &sites }, 90_000, &bytes);
                }
                TestCommand::Subscribe(regions) => group.subscribe_regions(&regions),
                TestCommand::Leave => return group.leave(),
                TestCommand::Crash => return,
            }
        }
        let event = group.poll(now + TimeDelta::from_millis(10));
        let mut seen = shown.lock().unwrap();
        seen.events.extend(event);
        seen.members = group.members().collect();
        seen.stats = group.stats();
        let now = clock::now();
        seen.multicast_receivers = seen
            .members
            .iter()
            .map(|member| member.site)
            .filter(|site| group.is_multicast_received_by(now, *site))
            .collect();
    }
}

fn mesh_options(name: &str) -> MeshOptions {
    MeshOptions { name: name.into(), ..MeshOptions::default() }
}

fn create_mesh(net: &TransportKind, manner: &MeshOptions) -> Result<TestSite, MeshError> {
    let wire = mesh_transport(net, Identity::random(), "maze");
    let (place, key) = (wire.transport.own_addrs().remove(0), wire.transport.key());
    Mesh::create(wire, b"terms", manner).map(|group| TestSite::start(group, place, key))
}

fn try_join(
    net: &TransportKind,
    identity: Identity,
    secret: &str,
    at: &PeerAddr,
    manner: &MeshOptions,
) -> Result<TestSite, MeshError> {
    let wire = mesh_transport(net, identity, secret);
    let (place, key) = (wire.transport.own_addrs().remove(0), wire.transport.key());
    let approach = MeshJoinConfig { addrs: vec![at.clone()], expected_peer: None, timeout: TIMEOUT.into() };
    let group = Mesh::join(wire, &approach, manner, || true)?.expect("nobody gave up");
    Ok(TestSite::start(group, place, key))
}

fn join(net: &TransportKind, at: &TestSite, manner: &MeshOptions) -> TestSite {
    try_join(net, Identity::random(), "maze", &at.addr, manner).expect("let in")
}

#[test]
fn three_sites_exchange_unicast_datagrams() {
    for net in [TransportKind::Udp, TransportKind::Iroh(Token::random())] {
        let ann = create_mesh(&net, &mesh_options("Ann")).unwrap();
        let bob = join(&net, &ann, &mesh_options("Bob"));
        // Any of them lets in.
        let cid = join(&net, &bob, &mesh_options("Cid"));
        assert_eq!((&bob.settings[..], &cid.settings[..]), (&b"terms"[..], &b"terms"[..]));
        let all = [&ann, &bob, &cid];
        for site in all {
            let others: Vec<&TestSite> = all.into_iter().filter(|other| other.site != site.site).collect();
            site.wait_for_members(&others);
            let named: BTreeMap<u32, String> =
                site.observed.lock().unwrap().members.iter().map(|member| (member.site, member.name.clone())).collect();
            assert_eq!([ann.site, bob.site, cid.site].map(|site| named[&site].clone()), ["Ann", "Bob", "Cid"]);
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
        cid.wait_until("it is counted", |seen| sent(seen.stats) == (3, 18, 0));
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

/// What somebody is answered who knocks with other words than ours.
fn join_answer(at: &TestSite, version: u16, wish: JoinIntent) -> LobbyMessage {
    let MeshTransport { transport, incoming, .. } = mesh_transport(&TransportKind::Udp, Identity::random(), "maze");
    transport.dial(&at.addr, None);
    let mut mail = Channel::new();
    mail.send(
        &LobbyMessage::JoinRequest(JoinRequest { version, name: "Eve".into(), intent: wish, addrs: vec![] }).to_bytes(),
    )
    .unwrap();
    let until = Instant::now() + TIMEOUT;
    while Instant::now() < until {
        while let Some(bytes) = mail.poll_transmit(clock::now()) {
            transport.send(&at.key, &bytes);
        }
        if let Ok(Incoming::Datagram { bytes, .. }) = incoming.recv_timeout(Duration::from_millis(20)) {
            mail.handle_datagram(&bytes);
        }
        if let Some(message) = mail.poll_message() {
            return LobbyMessage::from_bytes(&message).expect("an answer at the door");
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
    let wire = mesh_transport(&TransportKind::Udp, Identity::random(), "maze");
    assert_eq!(Mesh::create(wire, &[0; 1_001], &mesh_options("Ann")).err(), Some(MeshError::SettingsTooLong));
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
    let left =
        |seen: &Observations| seen.events.contains(&MeshEvent::Left { site: founder, reason: DepartureReason::Left });
    bob.wait_until("the founder left", left);
    cid.wait_until("the founder left", left);
    let dan = join(&TransportKind::Udp, &cid, &mesh_options("Dan"));
    assert_eq!(dan.settings, b"terms");
    dan.wait_for_members(&[&bob, &cid]);
    bob.wait_for_members(&[&cid, &dan]);
    bob.send_command(TestCommand::SendAll(b"still here".into()));
    dan.wait_for_bytes(&bob, b"still here");
    cid.wait_for_bytes(&bob, b"still here");
    [bob, cid, dan].into_iter().for_each(|site| site.end(TestCommand::Crash));
}

/// Killed and back, once before the others missed it, and once after; elsewhere each time, and with the same number.
#[test]
fn restarted_site_keeps_its_site_number() {
    let ann = create_mesh(&TransportKind::Udp, &mesh_options("Ann")).unwrap();
    let bob = join(&TransportKind::Udp, &ann, &mesh_options("Bob"));
    let identity = Identity::random();
    let come = |at: &TestSite| {
        try_join(&TransportKind::Udp, identity.clone(), "maze", &at.addr, &mesh_options("Cid")).expect("let in")
    };
    let cid = come(&ann);
    let site = cid.site;
    ann.wait_for_members(&[&bob, &cid]);
    bob.wait_for_members(&[&ann, &cid]);
    cid.end(TestCommand::Crash);
    let cid = come(&bob);
    assert_eq!(cid.site, site);
    let went =
        |why: DepartureReason| move |seen: &Observations| seen.events.contains(&MeshEvent::Left { site, reason: why });
    ann.wait_until("it begins anew", went(DepartureReason::Restarted));
    bob.wait_until("it begins anew", went(DepartureReason::Restarted));
    cid.wait_for_members(&[&ann, &bob]);
    ann.wait_for_members(&[&bob, &cid]);
    ann.send_command(TestCommand::SendAll(b"there you are".into()));
    cid.wait_for_bytes(&ann, b"there you are");
    cid.end(TestCommand::Crash);
    ann.wait_until("it is silent", went(DepartureReason::TimedOut));
    bob.wait_until("it is silent", went(DepartureReason::TimedOut));
    let cid = come(&ann);
    assert_eq!(cid.site, site);
    cid.wait_for_members(&[&ann, &bob]);
    bob.wait_for_members(&[&ann, &cid]);
    bob.send_command(TestCommand::SendToOne(site, b"again".into()));
    cid.wait_for_bytes(&bob, b"again");
    [ann, bob, cid].into_iter().for_each(|site| site.end(TestCommand::Crash));
}

/// Several who come at the same time, at different doors, find all others.
#[test]
fn concurrent_joiners_find_each_other() {
    let ann = create_mesh(&TransportKind::Udp, &mesh_options("Ann")).unwrap();
    let bob = join(&TransportKind::Udp, &ann, &mesh_options("Bob"));
    let places = [ann.addr.clone(), bob.addr.clone()];
    let coming: Vec<JoinHandle<TestSite>> = (0..6)
        .map(|number: usize| {
            let place = places[number % 2].clone();
            spawn(move || {
                let manner = mesh_options(&format!("guest {number}"));
                try_join(&TransportKind::Udp, Identity::random(), "maze", &place, &manner).expect("let in")
            })
        })
        .collect();
    let mut all: Vec<TestSite> = coming.into_iter().map(|thread| thread.join().unwrap()).collect();
    all.extend([ann, bob]);
    for site in &all {
        let others: Vec<&TestSite> = all.iter().filter(|other| other.site != site.site).collect();
        site.wait_for_members(&others);
    }
    all[0].send_command(TestCommand::SendAll(b"hello".into()));
    all[1..].iter().for_each(|site| site.wait_for_bytes(&all[0], b"hello"));
    all.into_iter().for_each(|site| site.end(TestCommand::Crash));
}

/// A place for multicast that nobody else uses.
fn unused_multicast_config() -> MulticastConfig {
    let port = UdpSocket::bind("0.0.0.0:0").unwrap().local_addr().unwrap().port();
    let group = SocketAddrV4::new(Ipv4Addr::new(239, 255, (port >> 8) as u8 & 0x7f, 1 + (port as u8 & 0x7f)), port);
    MulticastConfig { group, interface: Some(Ipv4Addr::LOCALHOST), is_required: true }
}

fn with_multicast(name: &str, multicast: &MulticastConfig) -> MeshOptions {
    MeshOptions { multicast: Some(multicast.clone()), ..mesh_options(name) }
}

/// Some environments have no multicast. Then it is said, and all must work without.
fn create_mesh_with_multicast(multicast: &MulticastConfig) -> Option<TestSite> {
    match create_mesh(&TransportKind::Udp, &with_multicast("Ann", multicast)) {
        Ok(site) => Some(site),
        Err(MeshError::Multicast(error)) => {
            println!("there is no multicast here, so only the way around it is tested: {error}");
            let wanted = MulticastConfig { is_required: false, ..multicast.clone() };
            let ann = create_mesh(&TransportKind::Udp, &with_multicast("Ann", &wanted)).unwrap();
            let bob = join(&TransportKind::Udp, &ann, &with_multicast("Bob", &wanted));
            bob.wait_for_members(&[&ann]);
            bob.send_command(TestCommand::SendAll(b"one by one".into()));
            ann.wait_for_bytes(&bob, b"one by one");
            [ann, bob].into_iter().for_each(|site| site.end(TestCommand::Crash));
            None
        }
        Err(other) => panic!("{other}"),
    }
}

/// A plain socket that hears one address of a group and can say anything there.
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
    site.wait_until("others hear it by multicast", |seen| seen.multicast_receivers == others);
}

/// Three sites that all hear each other, or nothing where there is no multicast.
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
    ann.wait_until("it is counted", |seen| seen.stats.multicast_sent.bytes >= before.multicast_sent.bytes + 45);
    assert_eq!(ann.observed.lock().unwrap().stats.unicast_sent, before.unicast_sent, "nobody was sent it alone");
    bob.wait_until("it is counted", |seen| seen.stats.multicast_received.datagrams >= 1);

    // What standard tools see: RTP, and nothing of what it says.
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
    assert!(!packet.windows(4).any(|four| four == b"once"), "it is sealed");

    assert_bad_packets_are_rejected(&multicast, &listener, &packet, [&bob, &cid]);
    assert_eq!(count_datagrams(&bob.observed.lock().unwrap(), &ann, b"once for all"), 1);
    [ann, bob, cid].into_iter().for_each(|site| site.end(TestCommand::Crash));
}

/// Replayed, forged, from a stranger, and garbage: each is counted, and what is genuine still comes.
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
    // The sequence number makes it a packet that did not come before.
    let thrown = [packet.to_vec(), changed(3), changed(9), b"garbage".to_vec(), vec![0x80; 1_400]];
    let is_counted = |seen: &Observations| {
        let unfit = seen.stats.multicast_rejected;
        unfit.replayed >= 1 && unfit.forged >= 1 && unfit.unknown_senders >= 1 && unfit.garbage >= 2
    };
    thrown.iter().for_each(|bytes| _ = socket.send_to(bytes, multicast.group).unwrap());
    for site in sites {
        site.wait_until("all of it is counted", is_counted);
    }
    sites[0].send_command(TestCommand::SendAll(b"genuine".into()));
    sites[1].wait_for_bytes(sites[0], b"genuine");
}

#[test]
fn region_datagrams_reach_only_subscribers() {
    let multicast = unused_multicast_config();
    let Some([ann, bob, cid]) = three_sites_with_multicast(&multicast) else { return };
    let (here, there) = (WorldRegion { x: 3, y: 4 }, WorldRegion { x: 4, y: 4 });
    bob.send_command(TestCommand::Subscribe(vec![here]));
    cid.send_command(TestCommand::Subscribe(vec![there]));
    // When the order was carried out is not seen; so it is said until it is heard.
    let sites = vec![bob.site, cid.site];
    let until = Instant::now() + TIMEOUT;
    let heard = |site: &TestSite, bytes: &[u8]| count_datagrams(&site.observed.lock().unwrap(), &ann, bytes) > 0;
    while !(heard(&bob, b"here") && heard(&cid, b"there")) {
        assert!(Instant::now() < until);
        ann.send_command(TestCommand::SendToRegion(here, sites.clone(), b"here".into()));
        ann.send_command(TestCommand::SendToRegion(there, sites.clone(), b"there".into()));
        std::thread::sleep(Duration::from_millis(20));
    }
    // From now on each hears its own region and not the other's.
    ann.send_command(TestCommand::SendToRegion(here, sites.clone(), b"only here".into()));
    ann.send_command(TestCommand::SendToRegion(there, sites, b"only there".into()));
    ann.send_command(TestCommand::SendAll(b"to all".into()));
    bob.wait_for_bytes(&ann, b"only here");
    cid.wait_for_bytes(&ann, b"only there");
    bob.wait_for_bytes(&ann, b"to all");
    cid.wait_for_bytes(&ann, b"to all");
    assert!(!heard(&bob, b"only there") && !heard(&cid, b"only here"));
    [ann, bob, cid].into_iter().for_each(|site| site.end(TestCommand::Crash));
}

/// Who has nobody in the world only looks on, and would miss everything if it listened to no region.
#[test]
fn site_without_region_receives_all_regions() {
    let multicast = unused_multicast_config();
    let Some([ann, bob, cid]) = three_sites_with_multicast(&multicast) else { return };
    bob.send_command(TestCommand::Subscribe(vec![WorldRegion { x: 3, y: 4 }]));
    bob.send_command(TestCommand::Subscribe(vec![]));
    let heard = |bytes: &[u8]| count_datagrams(&bob.observed.lock().unwrap(), &ann, bytes) > 0;
    let until = Instant::now() + TIMEOUT;
    for (x, y) in [(3, 4), (4, 4), (0, 0), (1, 255)] {
        while !heard(&[x, y]) {
            assert!(Instant::now() < until, "nothing of region {x} {y}");
            ann.send_command(TestCommand::SendToRegion(WorldRegion { x, y }, vec![bob.site], vec![x, y]));
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    [ann, bob, cid].into_iter().for_each(|site| site.end(TestCommand::Crash));
}

/// Of three, one has no multicast: only what is for that one goes one by one.
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
    ann.wait_until("it is counted", |seen| seen.stats.unicast_sent.datagrams == before + 1);
    cid.send_command(TestCommand::SendAll(b"me, too".into()));
    ann.wait_for_bytes(&cid, b"me, too");
    bob.wait_for_bytes(&cid, b"me, too");
    [ann, bob, cid].into_iter().for_each(|site| site.end(TestCommand::Crash));
}

/// Multicast works at first, and after a while does not get through to one of them any more.
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
    let heard = bob.observed.lock().unwrap().stats.multicast_received.datagrams;
    ann.send_command(TestCommand::SendAll(b"by the channel".into()));
    bob.wait_for_bytes(&ann, b"by the channel");
    assert_eq!(bob.observed.lock().unwrap().stats.multicast_received.datagrams, heard);
    [ann, bob].into_iter().for_each(|site| site.end(TestCommand::Crash));
}

#[test]
fn incoming_multicast_can_be_impaired() {
    let multicast = unused_multicast_config();
    let Some(ann) = create_mesh_with_multicast(&multicast) else { return };
    let impairment = "delay=300".parse().ok();
    let bob = join(&TransportKind::Udp, &ann, &MeshOptions { impairment, ..with_multicast("Bob", &multicast) });
    wait_for_multicast_receivers(&ann, &[&bob]);
    let began = clock::now();
    ann.send_command(TestCommand::SendAll(b"slowly".into()));
    bob.wait_for_bytes(&ann, b"slowly");
    let came = bob.observed.lock().unwrap().events.iter().find_map(|event| match event {
        MeshEvent::Datagram { at, bytes, .. } if bytes == b"slowly" => Some(*at),
        _ => None,
    });
    assert!(came.unwrap() - began >= TimeDelta::from_millis(300));
    [ann, bob].into_iter().for_each(|site| site.end(TestCommand::Crash));
}

/// Who founds a group cannot know yet by which interface the others will come.
#[test]
fn multicast_interface_follows_the_first_peer() {
    let multicast = MulticastConfig { interface: None, ..unused_multicast_config() };
    let wire = mesh_transport_at(Ipv4Addr::UNSPECIFIED, &TransportKind::Udp, Identity::random(), "maze");
    let (key, own) = (wire.transport.key(), wire.transport.own_addrs().remove(0));
    let place = PeerAddr(format!("127.0.0.1:{}", own.0.parse::<SocketAddr>().unwrap().port()));
    let ann = match Mesh::create(wire, b"terms", &with_multicast("Ann", &multicast)) {
        Ok(group) => TestSite::start(group, place, key),
        Err(failure) => return println!("there is no multicast here, so nothing is tested: {failure}"),
    };
    let bob = join(&TransportKind::Udp, &ann, &with_multicast("Bob", &multicast));
    wait_for_multicast_receivers(&ann, &[&bob]);
    wait_for_multicast_receivers(&bob, &[&ann]);
    [ann, bob].into_iter().for_each(|site| site.end(TestCommand::Crash));
}

#[test]
fn unavailable_multicast_is_reported() {
    let no_interface = MulticastConfig { interface: Some(Ipv4Addr::new(192, 0, 2, 77)), ..unused_multicast_config() };
    let told = create_mesh(&TransportKind::Udp, &with_multicast("Ann", &no_interface))
        .err()
        .expect("no such interface")
        .to_string();
    assert!(told.starts_with("multicast does not work on the interface of 192.0.2.77: "), "{told}");
    let no_group = MulticastConfig { group: "192.0.2.1:5700".parse().unwrap(), ..unused_multicast_config() };
    let told =
        create_mesh(&TransportKind::Udp, &with_multicast("Ann", &no_group)).err().expect("no such group").to_string();
    assert!(told.contains("192.0.2.1:5700 is no place for multicast"), "{told}");

    // Where it is only wished for, it is told, and all goes on without.
    let wished = MulticastConfig { is_required: false, ..no_interface };
    let ann = create_mesh(&TransportKind::Udp, &with_multicast("Ann", &wished)).unwrap();
    ann.wait_until("it is told", |seen| matches!(seen.events.first(), Some(MeshEvent::MulticastUnavailable(_))));
    // Nobody there uses it, so who insists on it cannot come.
    let insists = try_join(
        &TransportKind::Udp,
        Identity::random(),
        "maze",
        &ann.addr,
        &with_multicast("Bob", &unused_multicast_config()),
    )
    .err();
    assert_eq!(insists.map(|failure| failure.to_string()).as_deref(), Some("those who are there do not use multicast"));
    ann.end(TestCommand::Crash);
}
