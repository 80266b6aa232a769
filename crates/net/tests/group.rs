//! Groups without a server over real sockets, each site on a thread of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, spawn};
use std::time::{Duration, Instant};

use coplay::peer_world::WorldRegion;
use coplay::time::TimeDelta;
use coplay_net::group::{Approach, Counts, Dest, Event, Failure, Group, Manner, Member, Multicast, Why, Wire};
use coplay_net::iroh::{Iroh, Relay};
use coplay_net::key::{Identity, Secret, Token};
use coplay_net::mail::Mail;
use coplay_net::party::{Knock, Message, Refusal, VERSION, Wish};
use coplay_net::udp::Udp;
use coplay_net::{Incoming, PeerKey, Place, Transport, clock};
use rtp_types::RtpPacket;

/// Nothing here takes longer, even where the computer has much else to do.
const PATIENCE: Duration = Duration::from_secs(60);

/// What the sites of a group reach each other by.
#[derive(Clone)]
enum Net {
    Udp,
    Iroh(Token),
}

fn wire(net: &Net, identity: Identity, secret: &str) -> Wire {
    wire_at(Ipv4Addr::LOCALHOST, net, identity, secret)
}

fn wire_at(ip: Ipv4Addr, net: &Net, identity: Identity, secret: &str) -> Wire {
    let (queue, incoming) = sync_channel(4_096);
    let (addr, sender) = (SocketAddr::from((ip, 0)), queue.clone());
    let transport: Arc<dyn Transport> = match net {
        Net::Udp => Arc::new(Udp::listen(addr, identity, Secret::from_text(secret), sender).expect("a free port")),
        Net::Iroh(token) => {
            Arc::new(Iroh::listen(addr, &identity, token.clone(), Relay::None, sender).expect("a free port"))
        }
    };
    Wire { transport, incoming, queue }
}

/// What a site is asked to do.
enum Order {
    All(Vec<u8>),
    One(u32, Vec<u8>),
    These(Vec<u32>, Vec<u8>),
    Region(WorldRegion, Vec<u32>, Vec<u8>),
    Listen(Vec<WorldRegion>),
    Leave,
    Die,
}

/// What a site has seen.
#[derive(Default)]
struct Seen {
    events: Vec<Event>,
    members: Vec<Member>,
    counts: Counts,
    /// Who hears it by multicast.
    heard_by: BTreeSet<u32>,
}

/// A site on a thread of its own.
struct Site {
    site: u32,
    place: Place,
    key: PeerKey,
    terms: Vec<u8>,
    orders: Sender<Order>,
    seen: Arc<Mutex<Seen>>,
    thread: JoinHandle<()>,
}

impl Site {
    fn run(group: Group, place: Place, key: PeerKey) -> Self {
        let (orders, to_do) = channel();
        let (site, terms, seen) = (group.site(), group.terms().to_vec(), Arc::new(Mutex::new(Seen::default())));
        let shown = seen.clone();
        let thread = spawn(move || drive(group, &to_do, &shown));
        Self { site, place, key, terms, orders, seen, thread }
    }

    fn ask(&self, order: Order) {
        self.orders.send(order).expect("the site runs");
    }

    /// Waits until something is so.
    #[track_caller]
    fn wait(&self, what: &str, is_so: impl Fn(&Seen) -> bool) {
        let until = Instant::now() + PATIENCE;
        while !is_so(&self.seen.lock().unwrap()) {
            let seen = self.seen.lock().unwrap();
            assert!(Instant::now() < until, "{what}: {:?} {:?} {:?}", seen.members, seen.counts, seen.events.last());
            drop(seen);
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[track_caller]
    fn wait_for(&self, others: &[&Site]) {
        let all: BTreeSet<u32> = others.iter().map(|other| other.site).chain([self.site]).collect();
        self.wait("all are there", |seen| {
            seen.members.iter().map(|member| member.site).collect::<BTreeSet<_>>() == all
        });
    }

    #[track_caller]
    fn wait_for_bytes(&self, from: &Site, expected: &[u8]) {
        self.wait(&format!("{expected:?}"), |seen| count(seen, from, expected) > 0);
    }

    fn end(self, order: Order) {
        self.ask(order);
        self.thread.join().unwrap();
    }
}

fn count(seen: &Seen, from: &Site, expected: &[u8]) -> usize {
    let same = |event: &&Event| matches!(event, Event::Datagram { from: site, bytes, .. } if *site == from.site && bytes == expected);
    seen.events.iter().filter(same).count()
}

fn drive(mut group: Group, to_do: &Receiver<Order>, shown: &Mutex<Seen>) {
    loop {
        let now = clock::now();
        while let Ok(order) = to_do.try_recv() {
            match order {
                Order::All(bytes) => group.send(now, &Dest::All, 90_000, &bytes),
                Order::One(site, bytes) => group.send(now, &Dest::One(site), 90_000, &bytes),
                Order::These(sites, bytes) => group.send(now, &Dest::These(&sites), 90_000, &bytes),
                Order::Region(region, sites, bytes) => {
                    group.send(now, &Dest::Region { region, sites: &sites }, 90_000, &bytes);
                }
                Order::Listen(regions) => group.listen_to(&regions),
                Order::Leave => return group.leave(),
                Order::Die => return,
            }
        }
        let event = group.poll(now + TimeDelta::from_millis(10));
        let mut seen = shown.lock().unwrap();
        seen.events.extend(event);
        seen.members = group.members().collect();
        seen.counts = group.counts();
        let now = clock::now();
        seen.heard_by =
            seen.members.iter().map(|member| member.site).filter(|site| group.is_heard_by(now, *site)).collect();
    }
}

fn manner(name: &str) -> Manner {
    Manner { name: name.into(), ..Manner::default() }
}

fn found(net: &Net, manner: &Manner) -> Result<Site, Failure> {
    let wire = wire(net, Identity::random(), "maze");
    let (place, key) = (wire.transport.own_places().remove(0), wire.transport.key());
    Group::found(wire, b"terms", manner).map(|group| Site::run(group, place, key))
}

fn try_join(net: &Net, identity: Identity, secret: &str, at: &Place, manner: &Manner) -> Result<Site, Failure> {
    let wire = wire(net, identity, secret);
    let (place, key) = (wire.transport.own_places().remove(0), wire.transport.key());
    let approach = Approach { places: vec![at.clone()], expect: None, patience: PATIENCE.into() };
    let group = Group::join(wire, &approach, manner, || true)?.expect("nobody gave up");
    Ok(Site::run(group, place, key))
}

fn join(net: &Net, at: &Site, manner: &Manner) -> Site {
    try_join(net, Identity::random(), "maze", &at.place, manner).expect("let in")
}

#[test]
fn three_sites_reach_each_other_one_by_one() {
    for net in [Net::Udp, Net::Iroh(Token::random())] {
        let ann = found(&net, &manner("Ann")).unwrap();
        let bob = join(&net, &ann, &manner("Bob"));
        // Any of them lets in.
        let cid = join(&net, &bob, &manner("Cid"));
        assert_eq!((&bob.terms[..], &cid.terms[..]), (&b"terms"[..], &b"terms"[..]));
        let all = [&ann, &bob, &cid];
        for site in all {
            let others: Vec<&Site> = all.into_iter().filter(|other| other.site != site.site).collect();
            site.wait_for(&others);
            let named: BTreeMap<u32, String> =
                site.seen.lock().unwrap().members.iter().map(|member| (member.site, member.name.clone())).collect();
            assert_eq!([ann.site, bob.site, cid.site].map(|site| named[&site].clone()), ["Ann", "Bob", "Cid"]);
        }
        cid.ask(Order::All(b"to all".into()));
        cid.ask(Order::One(ann.site, b"to one".into()));
        ann.ask(Order::These(vec![bob.site, cid.site], b"to these".into()));
        ann.wait_for_bytes(&cid, b"to one");
        ann.wait_for_bytes(&cid, b"to all");
        bob.wait_for_bytes(&cid, b"to all");
        bob.wait_for_bytes(&ann, b"to these");
        cid.wait_for_bytes(&ann, b"to these");
        assert_eq!(count(&bob.seen.lock().unwrap(), &cid, b"to one"), 0);
        let sent = |counts: Counts| (counts.sent.datagrams, counts.sent.bytes, counts.multicast.datagrams);
        cid.wait("it is counted", |seen| sent(seen.counts) == (3, 18, 0));
        bob.end(Order::Leave);
        ann.wait_for(&[&cid]);
        ann.end(Order::Die);
        cid.end(Order::Die);
    }
}

#[test]
fn who_does_not_know_the_secret_gets_nowhere() {
    let ann = found(&Net::Udp, &manner("Ann")).unwrap();
    let refused = try_join(&Net::Udp, Identity::random(), "labyrinth", &ann.place, &manner("Eve")).err();
    assert_eq!(refused, Some(Failure::Unanswered { place: ann.place.clone(), refused: true }));
    assert_eq!(ann.seen.lock().unwrap().members.len(), 1);
    ann.end(Order::Die);
}

/// What somebody is answered who knocks with other words than ours.
fn answer(at: &Site, version: u16, wish: Wish) -> Message {
    let Wire { transport, incoming, .. } = wire(&Net::Udp, Identity::random(), "maze");
    transport.call(&at.place, None);
    let mut mail = Mail::new();
    mail.send(&Message::Knock(Knock { version, name: "Eve".into(), wish, places: vec![] }).to_bytes()).unwrap();
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until {
        while let Some(bytes) = mail.poll_transmit(clock::now()) {
            transport.send(&at.key, &bytes);
        }
        if let Ok(Incoming::Datagram { bytes, .. }) = incoming.recv_timeout(Duration::from_millis(20)) {
            mail.handle_datagram(&bytes);
        }
        if let Some(message) = mail.poll_message() {
            return Message::from_bytes(&message).expect("an answer at the door");
        }
    }
    panic!("no answer");
}

#[test]
fn who_wants_something_else_is_told_why_not() {
    let ann = found(&Net::Udp, &manner("Ann")).unwrap();
    let other_version = answer(&ann, VERSION + 1, Wish::Roam([1; 16]));
    assert_eq!(other_version, Message::Refused(Refusal::Version(VERSION)));
    assert_eq!(answer(&ann, VERSION, Wish::Play(1)), Message::Refused(Refusal::OtherKind));
    assert_eq!(answer(&ann, VERSION, Wish::Watch), Message::Refused(Refusal::OtherKind));
    assert_eq!(ann.seen.lock().unwrap().members.len(), 1);
    ann.end(Order::Die);
}

#[test]
fn terms_have_a_bound() {
    let wire = wire(&Net::Udp, Identity::random(), "maze");
    assert_eq!(Group::found(wire, &[0; 1_001], &manner("Ann")).err(), Some(Failure::Terms));
}

#[test]
fn the_group_goes_on_without_who_founded_it() {
    let ann = found(&Net::Udp, &manner("Ann")).unwrap();
    let bob = join(&Net::Udp, &ann, &manner("Bob"));
    let cid = join(&Net::Udp, &ann, &manner("Cid"));
    cid.wait_for(&[&ann, &bob]);
    bob.wait_for(&[&ann, &cid]);
    let founder = ann.site;
    ann.end(Order::Leave);
    let left = |seen: &Seen| seen.events.contains(&Event::Went { site: founder, why: Why::Left });
    bob.wait("the founder left", left);
    cid.wait("the founder left", left);
    let dan = join(&Net::Udp, &cid, &manner("Dan"));
    assert_eq!(dan.terms, b"terms");
    dan.wait_for(&[&bob, &cid]);
    bob.wait_for(&[&cid, &dan]);
    bob.ask(Order::All(b"still here".into()));
    dan.wait_for_bytes(&bob, b"still here");
    cid.wait_for_bytes(&bob, b"still here");
    [bob, cid, dan].into_iter().for_each(|site| site.end(Order::Die));
}

/// Killed and back, once before the others missed it, and once after; elsewhere each time, and with the same number.
#[test]
fn who_was_killed_comes_back_with_its_number() {
    let ann = found(&Net::Udp, &manner("Ann")).unwrap();
    let bob = join(&Net::Udp, &ann, &manner("Bob"));
    let identity = Identity::random();
    let come = |at: &Site| try_join(&Net::Udp, identity.clone(), "maze", &at.place, &manner("Cid")).expect("let in");
    let cid = come(&ann);
    let site = cid.site;
    ann.wait_for(&[&bob, &cid]);
    bob.wait_for(&[&ann, &cid]);
    cid.end(Order::Die);
    let cid = come(&bob);
    assert_eq!(cid.site, site);
    let went = |why: Why| move |seen: &Seen| seen.events.contains(&Event::Went { site, why });
    ann.wait("it begins anew", went(Why::Anew));
    bob.wait("it begins anew", went(Why::Anew));
    cid.wait_for(&[&ann, &bob]);
    ann.wait_for(&[&bob, &cid]);
    ann.ask(Order::All(b"there you are".into()));
    cid.wait_for_bytes(&ann, b"there you are");
    cid.end(Order::Die);
    ann.wait("it is silent", went(Why::Silent));
    bob.wait("it is silent", went(Why::Silent));
    let cid = come(&ann);
    assert_eq!(cid.site, site);
    cid.wait_for(&[&ann, &bob]);
    bob.wait_for(&[&ann, &cid]);
    bob.ask(Order::One(site, b"again".into()));
    cid.wait_for_bytes(&bob, b"again");
    [ann, bob, cid].into_iter().for_each(|site| site.end(Order::Die));
}

/// Several who come at the same time, at different doors, find all others.
#[test]
fn those_who_come_at_once_find_each_other() {
    let ann = found(&Net::Udp, &manner("Ann")).unwrap();
    let bob = join(&Net::Udp, &ann, &manner("Bob"));
    let places = [ann.place.clone(), bob.place.clone()];
    let coming: Vec<JoinHandle<Site>> = (0..6)
        .map(|number: usize| {
            let place = places[number % 2].clone();
            spawn(move || {
                let manner = manner(&format!("guest {number}"));
                try_join(&Net::Udp, Identity::random(), "maze", &place, &manner).expect("let in")
            })
        })
        .collect();
    let mut all: Vec<Site> = coming.into_iter().map(|thread| thread.join().unwrap()).collect();
    all.extend([ann, bob]);
    for site in &all {
        let others: Vec<&Site> = all.iter().filter(|other| other.site != site.site).collect();
        site.wait_for(&others);
    }
    all[0].ask(Order::All(b"hello".into()));
    all[1..].iter().for_each(|site| site.wait_for_bytes(&all[0], b"hello"));
    all.into_iter().for_each(|site| site.end(Order::Die));
}

/// A place for multicast that nobody else uses.
fn meeting() -> Multicast {
    let port = UdpSocket::bind("0.0.0.0:0").unwrap().local_addr().unwrap().port();
    let group = SocketAddrV4::new(Ipv4Addr::new(239, 255, (port >> 8) as u8 & 0x7f, 1 + (port as u8 & 0x7f)), port);
    Multicast { group, interface: Some(Ipv4Addr::LOCALHOST), required: true }
}

fn with_multicast(name: &str, multicast: &Multicast) -> Manner {
    Manner { multicast: Some(multicast.clone()), ..manner(name) }
}

/// Some environments have no multicast. Then it is said, and all must work without.
fn found_with_multicast(multicast: &Multicast) -> Option<Site> {
    match found(&Net::Udp, &with_multicast("Ann", multicast)) {
        Ok(site) => Some(site),
        Err(Failure::Multicast(error)) => {
            println!("there is no multicast here, so only the way around it is tested: {error}");
            let wanted = Multicast { required: false, ..multicast.clone() };
            let ann = found(&Net::Udp, &with_multicast("Ann", &wanted)).unwrap();
            let bob = join(&Net::Udp, &ann, &with_multicast("Bob", &wanted));
            bob.wait_for(&[&ann]);
            bob.ask(Order::All(b"one by one".into()));
            ann.wait_for_bytes(&bob, b"one by one");
            [ann, bob].into_iter().for_each(|site| site.end(Order::Die));
            None
        }
        Err(other) => panic!("{other}"),
    }
}

/// A plain socket that hears one address of a group and can say anything there.
fn eavesdrop(addr: SocketAddrV4) -> UdpSocket {
    use socket2::{Domain, Socket, Type};
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None).unwrap();
    socket.set_reuse_address(true).unwrap();
    socket.bind(&SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, addr.port()).into()).unwrap();
    socket.join_multicast_v4(addr.ip(), &Ipv4Addr::LOCALHOST).unwrap();
    socket.set_multicast_if_v4(&Ipv4Addr::LOCALHOST).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.into()
}

#[track_caller]
fn wait_for_hearing(site: &Site, others: &[&Site]) {
    let others: BTreeSet<u32> = others.iter().map(|other| other.site).collect();
    site.wait("others hear it by multicast", |seen| seen.heard_by == others);
}

/// Three sites that all hear each other, or nothing where there is no multicast.
fn three_by_multicast(multicast: &Multicast) -> Option<[Site; 3]> {
    let ann = found_with_multicast(multicast)?;
    let bob = join(&Net::Udp, &ann, &with_multicast("Bob", multicast));
    let cid = join(&Net::Udp, &bob, &with_multicast("Cid", multicast));
    wait_for_hearing(&ann, &[&bob, &cid]);
    wait_for_hearing(&bob, &[&ann, &cid]);
    wait_for_hearing(&cid, &[&ann, &bob]);
    Some([ann, bob, cid])
}

#[test]
fn one_datagram_reaches_all_who_hear_it() {
    let multicast = meeting();
    let Some([ann, bob, cid]) = three_by_multicast(&multicast) else { return };
    let listener = eavesdrop(multicast.group);
    let before = ann.seen.lock().unwrap().counts;
    ann.ask(Order::All(b"once for all".into()));
    bob.wait_for_bytes(&ann, b"once for all");
    cid.wait_for_bytes(&ann, b"once for all");
    ann.wait("it is counted", |seen| seen.counts.multicast.bytes >= before.multicast.bytes + 45);
    assert_eq!(ann.seen.lock().unwrap().counts.sent, before.sent, "nobody was sent it alone");
    bob.wait("it is counted", |seen| seen.counts.heard.datagrams >= 1);

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

    refuse_what_is_not_genuine(&multicast, &listener, &packet, [&bob, &cid]);
    assert_eq!(count(&bob.seen.lock().unwrap(), &ann, b"once for all"), 1);
    [ann, bob, cid].into_iter().for_each(|site| site.end(Order::Die));
}

/// Replayed, forged, from a stranger, and garbage: each is counted, and what is genuine still comes.
fn refuse_what_is_not_genuine(multicast: &Multicast, socket: &UdpSocket, packet: &[u8], sites: [&Site; 2]) {
    let changed = |at: usize| {
        let mut changed = packet.to_vec();
        changed[at] ^= 0x55;
        changed
    };
    // The sequence number makes it a packet that did not come before.
    let thrown = [packet.to_vec(), changed(3), changed(9), b"garbage".to_vec(), vec![0x80; 1_400]];
    let is_counted = |seen: &Seen| {
        let unfit = seen.counts.unfit;
        unfit.replayed >= 1 && unfit.forged >= 1 && unfit.strangers >= 1 && unfit.garbage >= 2
    };
    thrown.iter().for_each(|bytes| _ = socket.send_to(bytes, multicast.group).unwrap());
    for site in sites {
        site.wait("all of it is counted", is_counted);
    }
    sites[0].ask(Order::All(b"genuine".into()));
    sites[1].wait_for_bytes(sites[0], b"genuine");
}

#[test]
fn a_region_is_heard_by_those_who_listen_to_it() {
    let multicast = meeting();
    let Some([ann, bob, cid]) = three_by_multicast(&multicast) else { return };
    let (here, there) = (WorldRegion { x: 3, y: 4 }, WorldRegion { x: 4, y: 4 });
    bob.ask(Order::Listen(vec![here]));
    cid.ask(Order::Listen(vec![there]));
    // When the order was carried out is not seen; so it is said until it is heard.
    let sites = vec![bob.site, cid.site];
    let until = Instant::now() + PATIENCE;
    let heard = |site: &Site, bytes: &[u8]| count(&site.seen.lock().unwrap(), &ann, bytes) > 0;
    while !(heard(&bob, b"here") && heard(&cid, b"there")) {
        assert!(Instant::now() < until);
        ann.ask(Order::Region(here, sites.clone(), b"here".into()));
        ann.ask(Order::Region(there, sites.clone(), b"there".into()));
        std::thread::sleep(Duration::from_millis(20));
    }
    // From now on each hears its own region and not the other's.
    ann.ask(Order::Region(here, sites.clone(), b"only here".into()));
    ann.ask(Order::Region(there, sites, b"only there".into()));
    ann.ask(Order::All(b"to all".into()));
    bob.wait_for_bytes(&ann, b"only here");
    cid.wait_for_bytes(&ann, b"only there");
    bob.wait_for_bytes(&ann, b"to all");
    cid.wait_for_bytes(&ann, b"to all");
    assert!(!heard(&bob, b"only there") && !heard(&cid, b"only here"));
    [ann, bob, cid].into_iter().for_each(|site| site.end(Order::Die));
}

/// Who has nobody in the world only looks on, and would miss everything if it listened to no region.
#[test]
fn who_names_no_region_hears_of_all() {
    let multicast = meeting();
    let Some([ann, bob, cid]) = three_by_multicast(&multicast) else { return };
    bob.ask(Order::Listen(vec![WorldRegion { x: 3, y: 4 }]));
    bob.ask(Order::Listen(vec![]));
    let heard = |bytes: &[u8]| count(&bob.seen.lock().unwrap(), &ann, bytes) > 0;
    let until = Instant::now() + PATIENCE;
    for (x, y) in [(3, 4), (4, 4), (0, 0), (1, 255)] {
        while !heard(&[x, y]) {
            assert!(Instant::now() < until, "nothing of region {x} {y}");
            ann.ask(Order::Region(WorldRegion { x, y }, vec![bob.site], vec![x, y]));
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    [ann, bob, cid].into_iter().for_each(|site| site.end(Order::Die));
}

/// Of three, one has no multicast: only what is for that one goes one by one.
#[test]
fn who_does_not_hear_is_sent_it_alone() {
    let multicast = meeting();
    let Some(ann) = found_with_multicast(&multicast) else { return };
    let bob = join(&Net::Udp, &ann, &with_multicast("Bob", &multicast));
    let cid = join(&Net::Udp, &ann, &manner("Cid"));
    ann.wait_for(&[&bob, &cid]);
    wait_for_hearing(&ann, &[&bob]);
    let before = ann.seen.lock().unwrap().counts.sent.datagrams;
    ann.ask(Order::All(b"everybody".into()));
    bob.wait_for_bytes(&ann, b"everybody");
    cid.wait_for_bytes(&ann, b"everybody");
    ann.wait("it is counted", |seen| seen.counts.sent.datagrams == before + 1);
    cid.ask(Order::All(b"me, too".into()));
    ann.wait_for_bytes(&cid, b"me, too");
    bob.wait_for_bytes(&cid, b"me, too");
    [ann, bob, cid].into_iter().for_each(|site| site.end(Order::Die));
}

/// Multicast works at first, and after a while does not get through to one of them any more.
#[test]
fn where_multicast_is_lost_the_channel_takes_over() {
    let multicast = meeting();
    let Some(ann) = found_with_multicast(&multicast) else { return };
    let impairment = "cut=12-100000".parse().ok();
    let bob = join(&Net::Udp, &ann, &Manner { impairment, ..with_multicast("Bob", &multicast) });
    wait_for_hearing(&ann, &[&bob]);
    ann.ask(Order::All(b"by multicast".into()));
    bob.wait_for_bytes(&ann, b"by multicast");
    wait_for_hearing(&ann, &[]);
    let heard = bob.seen.lock().unwrap().counts.heard.datagrams;
    ann.ask(Order::All(b"by the channel".into()));
    bob.wait_for_bytes(&ann, b"by the channel");
    assert_eq!(bob.seen.lock().unwrap().counts.heard.datagrams, heard);
    [ann, bob].into_iter().for_each(|site| site.end(Order::Die));
}

#[test]
fn what_comes_by_multicast_can_be_impaired() {
    let multicast = meeting();
    let Some(ann) = found_with_multicast(&multicast) else { return };
    let impairment = "delay=300".parse().ok();
    let bob = join(&Net::Udp, &ann, &Manner { impairment, ..with_multicast("Bob", &multicast) });
    wait_for_hearing(&ann, &[&bob]);
    let began = clock::now();
    ann.ask(Order::All(b"slowly".into()));
    bob.wait_for_bytes(&ann, b"slowly");
    let came = bob.seen.lock().unwrap().events.iter().find_map(|event| match event {
        Event::Datagram { at, bytes, .. } if bytes == b"slowly" => Some(*at),
        _ => None,
    });
    assert!(came.unwrap() - began >= TimeDelta::from_millis(300));
    [ann, bob].into_iter().for_each(|site| site.end(Order::Die));
}

/// Who founds a group cannot know yet by which interface the others will come.
#[test]
fn the_interface_is_the_one_that_leads_to_the_others() {
    let multicast = Multicast { interface: None, ..meeting() };
    let wire = wire_at(Ipv4Addr::UNSPECIFIED, &Net::Udp, Identity::random(), "maze");
    let (key, own) = (wire.transport.key(), wire.transport.own_places().remove(0));
    let place = Place(format!("127.0.0.1:{}", own.0.parse::<SocketAddr>().unwrap().port()));
    let ann = match Group::found(wire, b"terms", &with_multicast("Ann", &multicast)) {
        Ok(group) => Site::run(group, place, key),
        Err(failure) => return println!("there is no multicast here, so nothing is tested: {failure}"),
    };
    let bob = join(&Net::Udp, &ann, &with_multicast("Bob", &multicast));
    wait_for_hearing(&ann, &[&bob]);
    wait_for_hearing(&bob, &[&ann]);
    [ann, bob].into_iter().for_each(|site| site.end(Order::Die));
}

#[test]
fn multicast_that_is_asked_for_and_does_not_work_is_told() {
    let no_interface = Multicast { interface: Some(Ipv4Addr::new(192, 0, 2, 77)), ..meeting() };
    let told = found(&Net::Udp, &with_multicast("Ann", &no_interface)).err().expect("no such interface").to_string();
    assert!(told.starts_with("multicast does not work on the interface of 192.0.2.77: "), "{told}");
    let no_group = Multicast { group: "192.0.2.1:5700".parse().unwrap(), ..meeting() };
    let told = found(&Net::Udp, &with_multicast("Ann", &no_group)).err().expect("no such group").to_string();
    assert!(told.contains("192.0.2.1:5700 is no place for multicast"), "{told}");

    // Where it is only wished for, it is told, and all goes on without.
    let wished = Multicast { required: false, ..no_interface };
    let ann = found(&Net::Udp, &with_multicast("Ann", &wished)).unwrap();
    ann.wait("it is told", |seen| matches!(seen.events.first(), Some(Event::NoMulticast(_))));
    // Nobody there uses it, so who insists on it cannot come.
    let insists = try_join(&Net::Udp, Identity::random(), "maze", &ann.place, &with_multicast("Bob", &meeting())).err();
    assert_eq!(insists.map(|failure| failure.to_string()).as_deref(), Some("those who are there do not use multicast"));
    ann.end(Order::Die);
}
