//! Joining a mesh: dials members, sends a join request to each that answers, and waits until one admits this site.

use coplay::time::{Instant, TimeDelta};

use super::message::{MeshMessage, MeshOrLobbyMessage, MeshWelcome};
use super::{Mesh, MeshError, MeshOptions, TransportWithIncoming};
use crate::clock;
use crate::dial_failures::{DialFailure, DialFailures};
use crate::key::{PeerKey, random_bytes};
use crate::lobby::{self, JoinIntent, JoinRefusal, JoinRequest, PROTOCOL_VERSION};
use crate::peer_addr::PeerAddr;
use crate::reliable::Channel;
use crate::reliable::Mux;
use crate::seal::RunId;
use crate::transport::Incoming;

/// Maximum interval at which the caller is asked whether to continue.
const POLL_INTERVAL: TimeDelta = TimeDelta::from_millis(50);

/// Member to ask for admission, and the time limit.
#[derive(Clone, Debug)]
pub struct MeshJoinConfig {
    /// Addresses at which a member may be reached.
    pub addrs: Vec<PeerAddr>,
    /// Key of the member that must answer; `None` accepts any site at the addresses that knows the secret or token.
    pub expected_peer: Option<PeerKey>,
    /// Time limit for the whole attempt, from the first dial to the admission.
    pub timeout: TimeDelta,
}

impl Mesh {
    /// Joins a mesh: dials the addresses and sends a join request to each member that answers, until one admits this
    /// site. Fails if a member refuses this site, if none admits it in time, or if multicast is required and
    /// unavailable. `keep_going` is polled at least every 50 ms; when it returns `false` the attempt ends with
    /// `Ok(None)`.
    pub fn join(
        mesh_transport: TransportWithIncoming,
        config: &MeshJoinConfig,
        options: &MeshOptions,
        mut keep_going: impl FnMut() -> bool,
    ) -> Result<Option<Self>, MeshError> {
        let mut attempt = MeshJoinAttempt::new(Mux::new(mesh_transport.transport, mesh_transport.incoming), config);
        while keep_going() {
            let now = clock::now();
            attempt.mux.flush(now);
            let wake = now + POLL_INTERVAL;
            if let Some(incoming) = attempt.mux.recv_until(attempt.mux.poll_timeout().map_or(wake, |due| due.min(wake)))
            {
                attempt.handle_incoming(incoming, &options.name)?;
            }
            if let Some((host, welcome)) = attempt.admitted.take() {
                let towards = attempt.mux.transport.addr_of(&host);
                let mut mesh = Self::from_welcome(attempt.mux, welcome, options);
                mesh.open_multicast(options, towards.as_ref(), mesh_transport.incoming_sender)?;
                attempt.early_messages.into_iter().for_each(|(from, message)| mesh.on_message(now, from, message));
                return Ok(Some(mesh));
            }
            attempt.check_timeout(now, config)?;
        }
        Ok(None)
    }
}

/// A running attempt to join.
struct MeshJoinAttempt {
    mux: Mux,
    run_id: RunId,
    started_at: Instant,
    /// Whether a member answered the dial and this site sent it the join request.
    has_requested: bool,
    dial_failures: DialFailures,
    admitted: Option<(PeerKey, MeshWelcome)>,
    /// Messages that arrived right behind the welcome, kept for the mesh.
    early_messages: Vec<(PeerKey, MeshOrLobbyMessage)>,
}

impl MeshJoinAttempt {
    fn new(mux: Mux, config: &MeshJoinConfig) -> Self {
        config.addrs.iter().for_each(|addr| mux.transport.dial(addr, config.expected_peer));
        let (run_id, started_at, dial_failures) = (random_bytes(), clock::now(), DialFailures::default());
        Self {
            mux,
            run_id,
            started_at,
            has_requested: false,
            dial_failures,
            admitted: None,
            early_messages: Vec::new(),
        }
    }

    fn handle_incoming(&mut self, incoming: Incoming, name: &str) -> Result<(), MeshError> {
        match incoming {
            Incoming::Connected { peer, dialed: Some(_) } => {
                let (name, intent, addrs) = (name.into(), JoinIntent::JoinMesh(self.run_id), self.mux.own_addrs());
                let request = JoinRequest { version: PROTOCOL_VERSION, name, intent, addrs };
                self.mux.send(peer, &MeshOrLobbyMessage::Lobby(lobby::LobbyMessage::JoinRequest(request)));
                self.has_requested = true;
            }
            Incoming::Datagram { from, bytes, .. } if Channel::is_channel_datagram(&bytes) => {
                self.handle_messages(from, &bytes)?
            }
            other => self.dial_failures.record(other),
        }
        Ok(())
    }

    fn handle_messages(&mut self, from: PeerKey, bytes: &[u8]) -> Result<(), MeshError> {
        for message in self.mux.handle_datagram(from, bytes) {
            match message {
                MeshOrLobbyMessage::Mesh(MeshMessage::Welcome(welcome)) if self.is_valid_welcome(&welcome) => {
                    self.admitted = Some((from, welcome));
                }
                // No member of a mesh names a leader, so this is a lobby.
                MeshOrLobbyMessage::Lobby(lobby::LobbyMessage::Refused(JoinRefusal::NotLeader { .. })) => {
                    return Err(MeshError::Refused(JoinRefusal::WrongGameKind));
                }
                MeshOrLobbyMessage::Lobby(lobby::LobbyMessage::Refused(refusal)) => {
                    return Err(MeshError::Refused(refusal));
                }
                message if self.admitted.is_some() => self.early_messages.push((from, message)),
                MeshOrLobbyMessage::Lobby(_) | MeshOrLobbyMessage::Mesh(_) => {}
            }
        }
        Ok(())
    }

    /// Returns whether the welcome is for this run of this site, with a site number that is derived from this site's
    /// key, as all members require.
    fn is_valid_welcome(&self, MeshWelcome { mesh_key, your_info, .. }: &MeshWelcome) -> bool {
        your_info.run_id == self.run_id
            && your_info.key == self.mux.transport.key()
            && mesh_key.site_numbers(&your_info.key).any(|site| site == your_info.site)
    }

    /// Fails at the time limit of the attempt, or as soon as the attempt cannot succeed.
    fn check_timeout(&self, now: Instant, config: &MeshJoinConfig) -> Result<(), MeshError> {
        let hopeless = self.dial_failures.is_final(config.addrs.len()) && !self.has_requested;
        if !hopeless && now - self.started_at < config.timeout {
            return Ok(());
        }
        let any_addr = || config.addrs.first().cloned().unwrap_or_else(|| PeerAddr("the address in the ticket".into()));
        Err(match self.dial_failures.worst() {
            _ if self.has_requested => MeshError::NoReply,
            Some((addr, DialFailure::WrongPeer)) => MeshError::WrongPeer { addr: addr.clone() },
            Some((addr, failure)) => {
                MeshError::Unreachable { addr: addr.clone(), wrong_secret: failure == DialFailure::WrongSecret }
            }
            None => MeshError::Unreachable { addr: any_addr(), wrong_secret: false },
        })
    }
}
