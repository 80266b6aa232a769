//! Host that sends settings which the program itself would not send.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use coplay_machines::nes::Nes;
use coplay_machines::session_adapter::{self, SharedGameOptions};
use coplay_net::key::{Identity, Secret};
use coplay_net::lobby::{JoinIntent, LobbyInfo, LobbyMember, LobbyMessage};
use coplay_net::reliable::Channel;
use coplay_net::udp::UdpTransport;
use coplay_net::{Incoming, PeerKey, Transport, clock};

const SECRET: &str = "tennis";

/// Hostile host, which stops when it is dropped.
pub(crate) struct HostileHost {
    ticket: String,
    machine_name: Arc<Mutex<String>>,
    is_stopped: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl HostileHost {
    /// Starts a host on a free port. [`set_machine_name`](Self::set_machine_name) sets the machine of its game.
    pub(crate) fn start() -> Self {
        let (queue, incoming) = sync_channel(1_024);
        let opened =
            UdpTransport::listen("127.0.0.1:0".parse().unwrap(), Identity::random(), Secret::from_text(SECRET), queue);
        let transport = opened.expect("a free port");
        let ticket = format!("udp://{}#{SECRET}", transport.local_addr().expect("an address"));
        let (machine_name, is_stopped) = (Arc::<Mutex<String>>::default(), Arc::<AtomicBool>::default());
        let (name, stopped) = (machine_name.clone(), is_stopped.clone());
        let thread = std::thread::spawn(move || serve(&transport, &incoming, &name, &stopped));
        Self { ticket, machine_name, is_stopped, thread: Some(thread) }
    }

    pub(crate) fn ticket(&self) -> &str {
        &self.ticket
    }

    /// Sets the name of the machine in the settings that joiners get from now on.
    pub(crate) fn set_machine_name(&self, name: &str) {
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

/// Admits every joiner, and sends it the lobby with the settings, until `stopped` is set.
fn serve(transport: &UdpTransport, incoming: &Receiver<Incoming>, machine: &Mutex<String>, stopped: &AtomicBool) {
    let mut channels: BTreeMap<PeerKey, Channel> = BTreeMap::new();
    while !stopped.load(Ordering::Relaxed) {
        match incoming.recv_timeout(Duration::from_millis(20)) {
            // A joiner that reconnects has the same key, and must not receive the old messages.
            Ok(Incoming::Connected { peer, .. }) => _ = channels.insert(peer, Channel::new()),
            Ok(Incoming::Datagram { from, bytes, .. }) => {
                let channel = channels.entry(from).or_default();
                channel.handle_datagram(&bytes);
                while let Some(message) = channel.poll_message() {
                    if let Some(LobbyMessage::JoinRequest(request)) = LobbyMessage::from_bytes(&message) {
                        let lobby = lobby_state_for(transport.key(), from, request.intent, &machine.lock().unwrap());
                        channel.send(&LobbyMessage::Lobby(lobby).to_bytes()).expect("a short message");
                    }
                }
            }
            _ => {}
        }
        for (peer, channel) in &mut channels {
            while let Some(bytes) = channel.poll_transmit(clock::now()) {
                transport.send(peer, &bytes);
            }
        }
    }
}

fn lobby_state_for(host: PeerKey, joiner: PeerKey, intent: JoinIntent, machine: &str) -> LobbyInfo {
    let nes = Nes::open(&coplay_testcores::images::nes(), "game").expect("a valid image");
    let mut settings = session_adapter::settings(&nes, SharedGameOptions::new(2));
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
    let plays = intent != JoinIntent::Spectate;
    let members = [(0, host), (1, joiner)].into_iter().filter(|(site, _)| plays || *site == 0);
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
