//! A host that sends any settings it likes, whatever the program would let it send.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use coplay_machines::nes::Nes;
use coplay_machines::session_adapter::{self, SessionOptions};
use coplay_net::key::{Identity, Secret};
use coplay_net::lobby::{JoinIntent, LobbyInfo, LobbyMember, LobbyMessage};
use coplay_net::reliable::Channel;
use coplay_net::udp::UdpTransport;
use coplay_net::{Incoming, PeerKey, Transport, clock};

const SECRET: &str = "tennis";

/// The host; it ends when this is dropped.
pub struct HostileHost {
    ticket: String,
    machine_name: Arc<Mutex<String>>,
    is_stopped: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl HostileHost {
    /// Offers a game on the machine of [`set_machine`](Self::set_machine_name).
    pub fn start() -> Self {
        let (queue, incoming) = sync_channel(1_024);
        let listening =
            UdpTransport::listen("127.0.0.1:0".parse().unwrap(), Identity::random(), Secret::from_text(SECRET), queue);
        let transport = listening.expect("a free port");
        let ticket = format!("udp://{}#{SECRET}", transport.local_addr().expect("an address"));
        let (machine, over) = (Arc::<Mutex<String>>::default(), Arc::<AtomicBool>::default());
        let (its_machine, its_end) = (machine.clone(), over.clone());
        let thread = std::thread::spawn(move || serve(&transport, &incoming, &its_machine, &its_end));
        Self { ticket, machine_name: machine, is_stopped: over, thread: Some(thread) }
    }

    pub fn ticket(&self) -> &str {
        &self.ticket
    }

    /// Guests that knock from now on are told that the machine has this name.
    pub fn set_machine_name(&self, name: &str) {
        *self.machine_name.lock().unwrap() = name.to_owned();
    }
}

impl Drop for HostileHost {
    fn drop(&mut self) {
        self.is_stopped.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
    }
}

/// Lets everybody in, and tells them the settings.
fn serve(transport: &UdpTransport, incoming: &Receiver<Incoming>, machine: &Mutex<String>, over: &AtomicBool) {
    let mut lines: BTreeMap<PeerKey, Channel> = BTreeMap::new();
    while !over.load(Ordering::Relaxed) {
        match incoming.recv_timeout(Duration::from_millis(20)) {
            // A guest that comes back has the same key, and must not get what was meant for the one before.
            Ok(Incoming::Connected { peer, .. }) => _ = lines.insert(peer, Channel::new()),
            Ok(Incoming::Datagram { from, bytes, .. }) => {
                let line = lines.entry(from).or_default();
                line.handle_datagram(&bytes);
                while let Some(message) = line.poll_message() {
                    if let Some(LobbyMessage::JoinRequest(knock)) = LobbyMessage::from_bytes(&message) {
                        let party = lobby_state_for(transport.key(), from, knock.intent, &machine.lock().unwrap());
                        line.send(&LobbyMessage::Lobby(party).to_bytes()).expect("a short message");
                    }
                }
            }
            _ => {}
        }
        for (peer, line) in &mut lines {
            while let Some(bytes) = line.poll_transmit(clock::now()) {
                transport.send(peer, &bytes);
            }
        }
    }
}

fn lobby_state_for(host: PeerKey, guest: PeerKey, wish: JoinIntent, machine: &str) -> LobbyInfo {
    let nes = Nes::open(&coplay_testcores::images::nes(), "game").expect("a sound image");
    let mut settings = session_adapter::settings(&nes, SessionOptions::new(2));
    settings.machine.name = machine.to_owned();
    let member = |site, key| LobbyMember {
        site,
        key,
        name: "x".into(),
        pads: 1,
        addrs: vec![],
        is_ready: true,
        is_present: true,
    };
    let plays = wish != JoinIntent::Spectate;
    let members = [(0, host), (1, guest)].into_iter().filter(|(site, _)| plays || *site == 0);
    LobbyInfo {
        serial: 1,
        session: 7,
        settings: settings.to_bytes().expect("short settings"),
        is_started: false,
        members: members.map(|(site, key)| member(site, key)).collect(),
        allows_spectators: true,
        spectator_count: 0,
        your_site: plays.then_some(1),
    }
}
