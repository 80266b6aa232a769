//! A player who comes by iroh: it plays, learns where the other servers are, and goes there when its own dies.

mod common;

use std::collections::BTreeSet;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use common::{Running, field, free_port, start, wait_for, wait_until_healthy};
use coplay::time::TimeDelta;
use coplay_net::iroh::{IrohAddr, IrohTransport, RelayConfig};
use coplay_net::key::Identity;
use coplay_net::{Incoming, PeerAddr, PeerKey, Ticket, Transport as _, clock};
use coplay_world::{Client, Voyage, Word};

/// By iroh, without help from outside.
const BY_IROH: &[&str] = &["--iroh", "--relay", "none"];

/// The ticket that a server shows.
fn ticket(server: &mut Running) -> Ticket {
    let shown = server.says.by_ref().map_while(Result::ok).find_map(|line| {
        let (_, ticket) = line.strip_prefix("through most routers:")?.split_once('\'')?;
        ticket.strip_suffix('\'')?.parse().ok()
    });
    shown.expect("a server with iroh shows a ticket")
}

struct Player {
    iroh: IrohTransport,
    incoming: Receiver<Incoming>,
    client: Client,
    voyage: Voyage<PeerKey>,
    called: Vec<String>,
    up: BTreeSet<PeerKey>,
}

impl Player {
    fn new(ticket: &Ticket) -> Self {
        let Ticket::Iroh { addr: home, token } = ticket else { panic!("another way was shown") };
        let (queue, incoming) = sync_channel(1_024);
        let anywhere = "127.0.0.1:0".parse().unwrap();
        let iroh = IrohTransport::listen(anywhere, &Identity::random(), token.clone(), RelayConfig::None, queue)
            .expect("it listens");
        let now = clock::now();
        let mut player = Self {
            iroh,
            incoming,
            client: Client::new(now, "Ada", 1),
            voyage: Voyage::new(now),
            called: vec![],
            up: BTreeSet::new(),
        };
        player.call(home.to_peer_addr());
        player
    }

    fn call(&mut self, place: PeerAddr) {
        if !self.called.contains(&place.0) {
            self.iroh.dial(&place, None);
            self.called.push(place.0);
        }
    }

    fn play(&mut self, mut is_over: impl FnMut(&Self) -> bool) {
        let until = Instant::now() + Duration::from_secs(60);
        while !is_over(self) {
            assert!(Instant::now() < until, "it takes too long");
            self.turn();
        }
    }

    fn turn(&mut self) {
        let now = clock::now();
        self.client.advance(now);
        if self.voyage.choose(now, self.client.heard(), self.client.drains()).is_some() {
            self.client.on_other_server(now);
        }
        if let Some((servers, ping)) = self.voyage.poll_pings(now) {
            servers.iter().for_each(|server| _ = self.iroh.send(server, &ping));
        }
        if let Some((wish, server)) = self.client.poll_wish(now).zip(self.voyage.current()) {
            self.iroh.send(&server, &wish);
        }
        match self.incoming.recv_timeout(Duration::from_millis(10)) {
            Ok(Incoming::Connected { peer, .. }) => {
                self.up.insert(peer);
                self.voyage.on_up(peer);
            }
            Ok(Incoming::Datagram { at, from, bytes }) => match Word::from_bytes(&bytes, None) {
                Some(Word::Pong(pong)) => self.voyage.on_pong(at, from, &pong),
                _ => _ = self.voyage.current() == Some(from) && self.client.handle_datagram(at, &bytes),
            },
            _ => {}
        }
        let mirrors: Vec<PeerAddr> = self.client.mirrors().iter().cloned().map(PeerAddr).collect();
        assert!(
            mirrors.iter().all(|place| IrohAddr::from_peer_addr(place).is_some()),
            "told of other ways: {mirrors:?}"
        );
        mirrors.into_iter().for_each(|place| self.call(place));
    }
}

#[test]
fn who_comes_by_iroh_plays_and_goes_on_with_another_server() {
    let mut first = start(free_port(), free_port(), &[], BY_IROH);
    wait_until_healthy(&first);
    let second = start(free_port(), free_port(), &[first.port], BY_IROH);
    wait_until_healthy(&second);

    let mut player = Player::new(&ticket(&mut first));
    player.play(|player| player.client.avatar().is_some() && player.up.len() == 2);
    let (me, server) = (player.client.me(), player.voyage.current());
    assert!(me.is_some() && server.is_some());

    let has_player = |server: &Running| field(server.http, "players").as_deref() == Some("1");
    let (dying, left) = if has_player(&second) { (second, first) } else { (first, second) };
    let server = player.voyage.current();
    drop(dying);
    player.play(|player| {
        let heard = clock::now() - player.client.heard() < TimeDelta::from_millis(500);
        heard && player.voyage.current() != server && player.client.avatar().is_some()
    });
    assert_eq!(player.client.me(), me, "it is somebody else now");
    wait_for("that the other server has the player", || has_player(&left));
}
