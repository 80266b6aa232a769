//! Coming to a group: knock at one of its members, until it opens.

use coplay::time::{Instant, TimeDelta};

use super::message::{MeshMessage, MeshOrLobbyMessage, MeshWelcome, RunId};
use super::{Mesh, MeshError, MeshOptions, MeshTransport};
use crate::clock;
use crate::dial_failures::{DialFailure, DialFailures};
use crate::key::{PeerKey, random_bytes};
use crate::lobby::{self, JoinIntent, JoinRefusal, JoinRequest, PROTOCOL_VERSION};
use crate::reliable::Channel;
use crate::reliable::Mux;
use crate::transport::{Incoming, PeerAddr};

/// It is looked this often whether we still want to come in.
const POLL_INTERVAL: TimeDelta = TimeDelta::from_millis(50);

/// Where to knock.
#[derive(Clone, Debug)]
pub struct MeshJoinConfig {
    /// Where somebody of the group may be.
    pub addrs: Vec<PeerAddr>,
    /// Who must answer there, if that is known.
    pub expected_peer: Option<PeerKey>,
    /// We go on knocking so long.
    pub timeout: TimeDelta,
}

impl Mesh {
    /// Knocks, until somebody opens or patience ends. `still` is asked now and then, and ends it with `false`, which is no failure.
    pub fn join(
        wire: MeshTransport,
        approach: &MeshJoinConfig,
        manner: &MeshOptions,
        mut still: impl FnMut() -> bool,
    ) -> Result<Option<Self>, MeshError> {
        let mut door = MeshJoinAttempt::new(Mux::new(wire.transport, wire.incoming), approach);
        while still() {
            let now = clock::now();
            door.mux.flush(now);
            let wake = now + POLL_INTERVAL;
            if let Some(incoming) = door.mux.recv_until(door.mux.poll_timeout().map_or(wake, |due| due.min(wake))) {
                door.handle_incoming(incoming, &manner.name)?;
            }
            if let Some((host, welcome)) = door.admitted.take() {
                let towards = door.mux.transport.addr_of(&host);
                let mut group = Self::from_welcome(door.mux, welcome, manner);
                group.open_multicast(manner, towards.as_ref(), wire.incoming_sender)?;
                door.early_messages.into_iter().for_each(|(from, word)| group.on_message(now, from, word));
                return Ok(Some(group));
            }
            door.check_timeout(now, approach)?;
        }
        Ok(None)
    }
}

/// Standing in front of the door.
struct MeshJoinAttempt {
    mux: Mux,
    run_id: RunId,
    started_at: Instant,
    /// Somebody answered, and has our knock.
    has_requested: bool,
    dial_failures: DialFailures,
    admitted: Option<(PeerKey, MeshWelcome)>,
    /// What came right behind that.
    early_messages: Vec<(PeerKey, MeshOrLobbyMessage)>,
}

impl MeshJoinAttempt {
    fn new(post: Mux, approach: &MeshJoinConfig) -> Self {
        approach.addrs.iter().for_each(|place| post.transport.dial(place, approach.expected_peer));
        let (run, since, closed) = (random_bytes(), clock::now(), DialFailures::default());
        Self {
            mux: post,
            run_id: run,
            started_at: since,
            has_requested: false,
            dial_failures: closed,
            admitted: None,
            early_messages: Vec::new(),
        }
    }

    fn handle_incoming(&mut self, incoming: Incoming, name: &str) -> Result<(), MeshError> {
        match incoming {
            Incoming::Connected { peer, dialed: Some(_) } => {
                let (name, wish, places) = (name.into(), JoinIntent::JoinMesh(self.run_id), self.mux.own_addrs());
                let knock = JoinRequest { version: PROTOCOL_VERSION, name, intent: wish, addrs: places };
                self.mux.send(peer, &MeshOrLobbyMessage::Lobby(lobby::LobbyMessage::JoinRequest(knock)));
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
        for word in self.mux.handle_datagram(from, bytes) {
            match word {
                MeshOrLobbyMessage::Mesh(MeshMessage::Welcome(welcome)) if self.is_valid_welcome(&welcome) => {
                    self.admitted = Some((from, welcome));
                }
                // Nobody of a group says that somebody else lets people in.
                MeshOrLobbyMessage::Lobby(lobby::LobbyMessage::Refused(JoinRefusal::NotLeader { .. })) => {
                    return Err(MeshError::Refused(JoinRefusal::WrongGameKind));
                }
                MeshOrLobbyMessage::Lobby(lobby::LobbyMessage::Refused(refusal)) => {
                    return Err(MeshError::Refused(refusal));
                }
                word if self.admitted.is_some() => self.early_messages.push((from, word)),
                MeshOrLobbyMessage::Lobby(_) | MeshOrLobbyMessage::Mesh(_) => {}
            }
        }
        Ok(())
    }

    /// Whether it is us who are let in, now, and with a number that all others will believe.
    fn is_valid_welcome(&self, MeshWelcome { mesh_key: key, your_info: you, .. }: &MeshWelcome) -> bool {
        you.run_id == self.run_id
            && you.key == self.mux.transport.key()
            && key.site_numbers(&you.key).any(|site| site == you.site)
    }

    /// Ends the wait when patience does, or as soon as there is nothing to wait for.
    fn check_timeout(&self, now: Instant, approach: &MeshJoinConfig) -> Result<(), MeshError> {
        let hopeless = self.dial_failures.is_final(approach.addrs.len()) && !self.has_requested;
        if !hopeless && now - self.started_at < approach.timeout {
            return Ok(());
        }
        let somewhere =
            || approach.addrs.first().cloned().unwrap_or_else(|| PeerAddr("the place in the ticket".into()));
        Err(match self.dial_failures.worst() {
            _ if self.has_requested => MeshError::NoReply,
            Some((place, DialFailure::WrongPeer)) => MeshError::WrongPeer { addr: place.clone() },
            Some((place, how)) => {
                MeshError::Unreachable { addr: place.clone(), wrong_secret: how == DialFailure::WrongSecret }
            }
            None => MeshError::Unreachable { addr: somewhere(), wrong_secret: false },
        })
    }
}
