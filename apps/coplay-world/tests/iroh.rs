//! A player who comes by iroh: it plays, learns where the other servers are, and goes there when its own dies.

mod common;

use std::collections::BTreeSet;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use common::{RunningServer, free_port, start_server, state_field, wait_for, wait_until_healthy};
use coplay::time::TimeDelta;
use coplay_net::iroh::{IrohAddr, IrohTransport, RelayConfig};
use coplay_net::key::Identity;
use coplay_net::{Incoming, PeerAddr, PeerKey, Ticket, Transport as _, clock};
use coplay_world::{Client, ServerMessage, ServerSelector};

/// By iroh, without help from outside.
const IROH_ARGS: &[&str] = &["--iroh", "--relay", "none"];

/// The ticket that a server shows.
fn printed_ticket(server: &mut RunningServer) -> Ticket {
    let shown = server.stdout_lines.by_ref().map_while(Result::ok).find_map(|line| {
        let (_, ticket) = line.strip_prefix("through most routers:")?.split_once('\'')?;
        ticket.strip_suffix('\'')?.parse().ok()
    });
    shown.expect("a server with iroh shows a ticket")
}

struct IrohPlayer {
    iroh: IrohTransport,
    incoming: Receiver<Incoming>,
    client: Client,
    selector: ServerSelector<PeerKey>,
    called_addrs: Vec<String>,
    connected_servers: BTreeSet<PeerKey>,
}

impl IrohPlayer {
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
            selector: ServerSelector::new(now),
            called_addrs: vec![],
            connected_servers: BTreeSet::new(),
        };
        player.call(home.to_peer_addr());
        player
    }

    fn call(&mut self, place: PeerAddr) {
        if !self.called_addrs.contains(&place.0) {
            self.iroh.dial(&place, None);
            self.called_addrs.push(place.0);
        }
    }

    fn run_until(&mut self, mut is_over: impl FnMut(&Self) -> bool) {
        let until = Instant::now() + Duration::from_secs(60);
        while !is_over(self) {
            assert!(Instant::now() < until, "it takes too long");
            self.run_once();
        }
    }

    fn run_once(&mut self) {
        let now = clock::now();
        self.client.advance(now);
        if self.selector.select(now, self.client.last_received(), self.client.is_draining()).is_some() {
            self.client.on_server_change(now);
        }
        if let Some((servers, ping)) = self.selector.poll_pings(now) {
            servers.iter().for_each(|server| _ = self.iroh.send(server, &ping));
        }
        if let Some((wish, server)) = self.client.poll_input(now).zip(self.selector.current()) {
            self.iroh.send(&server, &wish);
        }
        match self.incoming.recv_timeout(Duration::from_millis(10)) {
            Ok(Incoming::Connected { peer, .. }) => {
                self.connected_servers.insert(peer);
                self.selector.add_server(peer);
            }
            Ok(Incoming::Datagram { at, from, bytes }) => match ServerMessage::from_bytes(&bytes, None) {
                Some(ServerMessage::Pong(pong)) => self.selector.on_pong(at, from, &pong),
                _ => _ = self.selector.current() == Some(from) && self.client.handle_datagram(at, &bytes),
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
fn iroh_player_moves_to_another_server_when_its_server_dies() {
    let mut first = start_server(free_port(), free_port(), &[], IROH_ARGS);
    wait_until_healthy(&first);
    let second = start_server(free_port(), free_port(), &[first.player_port], IROH_ARGS);
    wait_until_healthy(&second);

    let mut player = IrohPlayer::new(&printed_ticket(&mut first));
    player.run_until(|player| player.client.avatar().is_some() && player.connected_servers.len() == 2);
    let (me, server) = (player.client.own_entity(), player.selector.current());
    assert!(me.is_some() && server.is_some());

    let has_player = |server: &RunningServer| state_field(server.http_port, "players").as_deref() == Some("1");
    let (dying, left) = if has_player(&second) { (second, first) } else { (first, second) };
    let server = player.selector.current();
    drop(dying);
    player.run_until(|player| {
        let heard = clock::now() - player.client.last_received() < TimeDelta::from_millis(500);
        heard && player.selector.current() != server && player.client.avatar().is_some()
    });
    assert_eq!(player.client.own_entity(), me, "it is somebody else now");
    wait_for("that the other server has the player", || has_player(&left));
}
