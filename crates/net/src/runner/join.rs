//! Joining a lobby: sends a join request, receives the settings, compares the game, and takes a seat.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use coplay::session::Settings;
use coplay::time::{Instant, TimeDelta};
use coplay_machines::Machine;
use coplay_machines::control::ControlledMachine;

use super::game_match::differences;
use super::player::{PlayerRunner, RunOptions};
use super::{Frontend, RunError, RunnerEvent, UserCommand};
use crate::clock;
use crate::dial_failures::{DialFailure, DialFailures};
use crate::key::PeerKey;
use crate::lobby::{JoinIntent, JoinRefusal, JoinRequest, LobbyInfo, LobbyMessage, PROTOCOL_VERSION};
use crate::peer_addr::PeerAddr;
use crate::reliable::Channel;
use crate::reliable::Mux;
use crate::transport::{Incoming, Transport};

/// Settings of a join attempt.
#[derive(Clone, Debug)]
pub struct JoinConfig {
    /// Display name of the joiner, at most [`MAX_NAME_LEN`](crate::lobby::MAX_NAME_LEN) bytes.
    pub name: String,
    /// Role that the joiner requests: player, with its number of pads, or spectator.
    pub intent: JoinIntent,
    /// Addresses at which the host, or another member of the game, may be reached.
    pub addrs: Vec<PeerAddr>,
    /// Key of the site that must answer; `None` accepts any site at the addresses that knows the secret or token.
    pub expected_peer: Option<PeerKey>,
    /// Time limit for the whole attempt, from the first dial to the admission.
    pub timeout: TimeDelta,
}

/// This site's connection to a lobby, from its admission until it becomes a player or a spectator.
pub struct LobbyConnection {
    pub(super) mux: Mux,
    pub(super) lobby: LobbyInfo,
    pub(super) settings: Settings,
    pub(super) leader: PeerKey,
    pub(super) name: String,
    /// Own addresses that the other members know.
    announced_addrs: Vec<PeerAddr>,
}

impl LobbyConnection {
    /// Starts dialing the addresses, and sends a join request to each site that answers, until one admits this site. If
    /// a member refers this site to the roster leader, dials the leader. Fails if a site refuses this one for another
    /// reason, if none admits it in time, or if the settings of the game are unreadable or invalid. If the user quits
    /// meanwhile, returns `None`.
    pub fn connect(
        transport: Arc<dyn Transport>,
        incoming: Receiver<Incoming>,
        config: &JoinConfig,
        frontend: &mut dyn Frontend,
    ) -> Result<Option<Self>, RunError> {
        let mut attempt = JoinAttempt::new(Mux::new(transport, incoming), config);
        loop {
            while let Some(command) = frontend.poll_command() {
                if command == UserCommand::Quit {
                    return Ok(None);
                }
            }
            let now = clock::now();
            attempt.mux.flush(now);
            let wake = now + TimeDelta::from_millis(50);
            if let Some(incoming) = attempt.mux.recv_until(attempt.mux.poll_timeout().map_or(wake, |due| due.min(wake)))
            {
                attempt.handle_incoming(incoming, config)?;
            }
            if let Some((leader, lobby)) = attempt.admitted.take() {
                let settings = Settings::from_bytes(&lobby.settings).map_err(|_| RunError::UnreadableSettings)?;
                settings.check().map_err(RunError::InvalidSettings)?;
                frontend.on_event(RunnerEvent::LobbyChanged(&lobby));
                let (mux, name, announced_addrs) = (attempt.mux, config.name.clone(), attempt.own_addrs);
                return Ok(Some(Self { mux, lobby, settings, leader, name, announced_addrs }));
            }
            attempt.check_timeout(now, config)?;
        }
    }

    /// Returns the session settings that this site got with its admission.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Returns the lobby as this site got it with its admission.
    pub fn lobby(&self) -> &LobbyInfo {
        &self.lobby
    }

    /// Leaves the lobby and gives the seat back. Waits at most 0.5 s for the acknowledgement.
    pub fn leave(mut self) {
        self.mux.send(self.leader, &LobbyMessage::Bye);
        self.mux.drain(TimeDelta::from_millis(500));
    }

    /// Takes the seat with the local machine, and reports this site as ready. If game, machine, frame rate or number of
    /// players differ from the host's, leaves the lobby and fails. Fails also for a spectator, which has no seat.
    pub fn into_player(mut self, machine: Box<dyn Machine>, options: RunOptions) -> Result<PlayerRunner, RunError> {
        let machine = ControlledMachine::new(machine);
        let differences = differences(&self.settings, &machine);
        if !differences.is_empty() {
            self.mux.send(self.leader, &LobbyMessage::Bye);
            self.mux.drain(TimeDelta::from_millis(500));
            return Err(RunError::GameMismatch(differences));
        }
        let me = self.lobby.your_site.ok_or(RunError::Refused(JoinRefusal::Full))?;
        self.mux.send(self.leader, &LobbyMessage::Ready(true));
        let others = self.lobby.members.iter().map(|member| (member.addrs.clone(), member.key));
        others.for_each(|(addrs, key)| self.mux.dial(&addrs, key));
        let mut runner = PlayerRunner::new(self.mux, machine, (self.lobby, self.leader), me, self.name, options);
        runner.announced_addrs = self.announced_addrs;
        Ok(runner)
    }
}

/// A running attempt to join.
struct JoinAttempt {
    mux: Mux,
    started_at: Instant,
    /// Whether a member answered the dial and this site sent it the join request.
    has_requested: bool,
    /// Leaders that this site dialed because another member, which does not admit joiners, named them.
    redirected_to: BTreeSet<PeerKey>,
    dial_failures: DialFailures,
    /// Own addresses in the join request.
    own_addrs: Vec<PeerAddr>,
    admitted: Option<(PeerKey, LobbyInfo)>,
}

impl JoinAttempt {
    fn new(mux: Mux, config: &JoinConfig) -> Self {
        config.addrs.iter().for_each(|addr| mux.transport.dial(addr, config.expected_peer));
        let own_addrs = mux.own_addrs();
        let (started_at, redirected_to, dial_failures) = (clock::now(), BTreeSet::new(), DialFailures::default());
        Self { mux, started_at, has_requested: false, redirected_to, dial_failures, own_addrs, admitted: None }
    }

    fn handle_incoming(&mut self, incoming: Incoming, config: &JoinConfig) -> Result<(), RunError> {
        match incoming {
            Incoming::Connected { peer, dialed: Some(_) } => {
                self.own_addrs = self.mux.own_addrs();
                let (name, addrs) = (config.name.clone(), self.own_addrs.clone());
                let request = JoinRequest { version: PROTOCOL_VERSION, name, intent: config.intent, addrs };
                self.mux.send(peer, &LobbyMessage::JoinRequest(request));
                self.has_requested = true;
            }
            Incoming::Datagram { from, bytes, .. } if Channel::is_channel_datagram(&bytes) => {
                for message in self.mux.handle_datagram(from, &bytes) {
                    match message {
                        LobbyMessage::Lobby(lobby) => self.admitted = Some((from, lobby)),
                        LobbyMessage::Refused(JoinRefusal::NotLeader { leader, addrs }) => {
                            self.follow_redirect(leader, &addrs)
                        }
                        LobbyMessage::Refused(refusal) => return Err(RunError::Refused(refusal)),
                        _ => {}
                    }
                }
            }
            other => self.dial_failures.record(other),
        }
        Ok(())
    }

    /// Starts dialing the leader that another member named, unless this leader was named before.
    fn follow_redirect(&mut self, leader: PeerKey, addrs: &[PeerAddr]) {
        if self.redirected_to.insert(leader) {
            addrs.iter().for_each(|addr| self.mux.transport.dial(addr, Some(leader)));
        }
    }

    /// Fails at the time limit of the attempt, or as soon as the attempt cannot succeed.
    fn check_timeout(&self, now: Instant, config: &JoinConfig) -> Result<(), RunError> {
        let hopeless = self.dial_failures.is_final(config.addrs.len()) && !self.has_requested;
        if !hopeless && now - self.started_at < config.timeout {
            return Ok(());
        }
        let any_addr = || config.addrs.first().cloned().unwrap_or_else(|| PeerAddr("the host of the ticket".into()));
        Err(match self.dial_failures.worst() {
            _ if self.has_requested => RunError::HostGone,
            Some((addr, DialFailure::WrongPeer)) => RunError::WrongPeer { addr: addr.clone() },
            Some((addr, failure)) => {
                RunError::Unreachable { addr: addr.clone(), wrong_secret: failure == DialFailure::WrongSecret }
            }
            None => RunError::Unreachable { addr: any_addr(), wrong_secret: false },
        })
    }
}
