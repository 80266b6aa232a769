//! A player that connects by iroh: it plays, learns the addresses of the other servers, and moves to another server
//! when its own dies.

use std::collections::BTreeSet;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use crate::common::{RunningServer, free_port, start_server, state_field, wait_for, wait_until_healthy};
use coplay::time::TimeDelta;
use coplay_net::iroh::{IrohAddr, IrohTransport, RelayConfig};
use coplay_net::key::Identity;
use coplay_net::{Incoming, PeerAddr, PeerKey, Ticket, Transport as _, clock};
use coplay_world::{Client, ServerMessage, ServerSelector};

/// Arguments of a server that admits players by iroh, without relays.
const IROH_ARGS: &[&str] = &["--iroh", "--relay", "none"];

/// Returns the iroh ticket that a server prints when it starts.
fn printed_ticket(server: &mut RunningServer) -> Ticket {
    let ticket = server.stdout_lines.by_ref().map_while(Result::ok).find_map(|line| {
        let (_, ticket) = line.strip_prefix("through most routers:")?.split_once('\'')?;
        ticket.strip_suffix('\'')?.parse().ok()
    });
    ticket.expect("a server with iroh prints a ticket")
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
        let Ticket::Iroh { addr: home, token } = ticket else { panic!("the ticket is not for iroh") };
        let (queue, incoming) = sync_channel(1_024);
        let any_port = "127.0.0.1:0".parse().unwrap();
        let iroh = IrohTransport::listen(any_port, &Identity::random(), token.clone(), RelayConfig::None, queue)
            .expect("iroh listens");
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

    fn call(&mut self, addr: PeerAddr) {
        if !self.called_addrs.contains(&addr.0) {
            self.iroh.dial(&addr, None);
            self.called_addrs.push(addr.0);
        }
    }

    fn run_until(&mut self, mut is_over: impl FnMut(&Self) -> bool) {
        let until = Instant::now() + Duration::from_secs(60);
        while !is_over(self) {
            assert!(Instant::now() < until, "timed out");
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
        if let Some((input, server)) = self.client.poll_input(now).zip(self.selector.current()) {
            self.iroh.send(&server, &input);
        }
        match self.incoming.recv_timeout(Duration::from_millis(10)) {
            Ok(Incoming::Connected { peer, .. }) => {
                self.connected_servers.insert(peer);
                self.selector.add_server(peer);
            }
            Ok(Incoming::Datagram { at, from, bytes }) => match ServerMessage::from_bytes(&bytes) {
                Some(ServerMessage::Pong(pong)) => self.selector.on_pong(at, from, &pong),
                Some(message) => {
                    _ = self.selector.current() == Some(from) && self.client.handle_message(at, message);
                }
                None => {}
            },
            _ => {}
        }
        let mirrors: Vec<PeerAddr> = self.client.mirrors().iter().cloned().map(PeerAddr).collect();
        assert!(
            mirrors.iter().all(|addr| IrohAddr::from_peer_addr(addr).is_some()),
            "the server sent addresses of other transports: {mirrors:?}"
        );
        mirrors.into_iter().for_each(|addr| self.call(addr));
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
        let has_received = clock::now() - player.client.last_received() < TimeDelta::from_millis(500);
        has_received && player.selector.current() != server && player.client.avatar().is_some()
    });
    assert_eq!(player.client.own_entity(), me, "the player has another entity");
    wait_for("the player on the other server", || has_player(&left));
}
