//! Coming to a game: knock, hear the terms, find the game, sit down.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use coplay::session::Settings;
use coplay::time::{Instant, TimeDelta};
use coplay_machines::control::ControlledMachine;
use coplay_machines::{Machine, session_adapter};

use super::player::{PlayerRunner, RunOptions};
use super::{Frontend, RunError, RunnerEvent, UserCommand};
use crate::clock;
use crate::dial_failures::{DialFailure, DialFailures};
use crate::key::PeerKey;
use crate::lobby::{JoinIntent, JoinRefusal, JoinRequest, LobbyInfo, LobbyMessage, PROTOCOL_VERSION};
use crate::reliable::Channel;
use crate::reliable::Mux;
use crate::transport::{Incoming, PeerAddr, Transport};

/// How to come to a game.
#[derive(Clone, Debug)]
pub struct JoinConfig {
    /// What to call us.
    pub name: String,
    /// What we want.
    pub intent: JoinIntent,
    /// Where the host may be, or anybody else of the game.
    pub addrs: Vec<PeerAddr>,
    /// Who must answer there, if that is known.
    pub expected_peer: Option<PeerKey>,
    /// We go on knocking so long.
    pub timeout: TimeDelta,
}

/// Somebody who was let in and has not sat down yet.
pub struct LobbyConnection {
    pub(super) mux: Mux,
    pub(super) lobby: LobbyInfo,
    pub(super) settings: Settings,
    pub(super) leader: PeerKey,
    pub(super) name: String,
    /// Where we said that we can be reached.
    announced_addrs: Vec<PeerAddr>,
}

impl LobbyConnection {
    /// Knocks, until somebody opens or patience ends. The front end may quit meanwhile, which is no failure and gives `None`.
    pub fn connect(
        transport: Arc<dyn Transport>,
        incoming: Receiver<Incoming>,
        plan: &JoinConfig,
        front: &mut dyn Frontend,
    ) -> Result<Option<Self>, RunError> {
        let mut door = JoinAttempt::new(Mux::new(transport, incoming), plan);
        loop {
            while let Some(command) = front.poll_command() {
                if command == UserCommand::Quit {
                    return Ok(None);
                }
            }
            let now = clock::now();
            door.mux.flush(now);
            let wake = now + TimeDelta::from_millis(50);
            if let Some(incoming) = door.mux.recv_until(door.mux.poll_timeout().map_or(wake, |due| due.min(wake))) {
                door.handle_incoming(incoming, plan)?;
            }
            if let Some((host, party)) = door.admitted.take() {
                let settings = Settings::from_bytes(&party.settings).map_err(|_| RunError::UnreadableSettings)?;
                settings.check().map_err(RunError::InvalidSettings)?;
                front.on_event(RunnerEvent::LobbyChanged(&party));
                let (post, name, places) = (door.mux, plan.name.clone(), door.own_addrs);
                return Ok(Some(Self {
                    mux: post,
                    lobby: party,
                    settings,
                    leader: host,
                    name,
                    announced_addrs: places,
                }));
            }
            door.check_timeout(now, plan)?;
        }
    }

    /// What is played, and how.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Who is around.
    pub fn lobby(&self) -> &LobbyInfo {
        &self.lobby
    }

    /// Goes away again, and gives the seat back.
    pub fn leave(mut self) {
        self.mux.send(self.leader, &LobbyMessage::Bye);
        self.mux.drain(TimeDelta::from_millis(500));
    }

    /// Takes the seat with a machine of our own, which must be the one that the host has.
    pub fn into_player(mut self, machine: Box<dyn Machine>, manner: RunOptions) -> Result<PlayerRunner, RunError> {
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
        others.for_each(|(places, key)| self.mux.dial(&places, key));
        let mut drive = PlayerRunner::new(self.mux, machine, (self.lobby, self.leader), me, self.name, manner);
        drive.announced_addrs = self.announced_addrs;
        Ok(drive)
    }
}

/// Everything in which our machine and game are not those of the host.
pub(super) fn differences(theirs: &Settings, machine: &dyn Machine) -> Vec<String> {
    let ours = session_adapter::settings(machine, session_adapter::SessionOptions::new(theirs.site_count));
    let same = Settings { game: ours.game, machine: ours.machine, rate: ours.rate, ..theirs.clone() };
    let players = check_player_count(theirs, machine).err();
    same.differences(theirs).iter().map(ToString::to_string).chain(players).collect()
}

/// Refuses settings that have another number of players than the machine. The host can change the settings until the game starts, so
/// this is checked again then.
pub(super) fn check_player_count(theirs: &Settings, machine: &dyn Machine) -> Result<(), String> {
    match (machine.pads().len(), theirs.ownership.players()) {
        (ours, theirs) if ours == theirs => Ok(()),
        (ours, theirs) => Err(format!("the number of players differs: {ours} here, {theirs} there")),
    }
}

/// Standing in front of the door.
struct JoinAttempt {
    mux: Mux,
    started_at: Instant,
    /// Somebody answered, and has our knock.
    has_requested: bool,
    /// Whom we asked because somebody else, who does not let people in, said so.
    redirected_to: BTreeSet<PeerKey>,
    dial_failures: DialFailures,
    /// Where we say that we can be reached.
    own_addrs: Vec<PeerAddr>,
    admitted: Option<(PeerKey, LobbyInfo)>,
}

impl JoinAttempt {
    fn new(post: Mux, plan: &JoinConfig) -> Self {
        plan.addrs.iter().for_each(|place| post.transport.dial(place, plan.expected_peer));
        let places = post.own_addrs();
        let (since, sent_to, closed) = (clock::now(), BTreeSet::new(), DialFailures::default());
        Self {
            mux: post,
            started_at: since,
            has_requested: false,
            redirected_to: sent_to,
            dial_failures: closed,
            own_addrs: places,
            admitted: None,
        }
    }

    fn handle_incoming(&mut self, incoming: Incoming, plan: &JoinConfig) -> Result<(), RunError> {
        match incoming {
            Incoming::Connected { peer, dialed: Some(_) } => {
                self.own_addrs = self.mux.own_addrs();
                let (name, places) = (plan.name.clone(), self.own_addrs.clone());
                let knock = JoinRequest { version: PROTOCOL_VERSION, name, intent: plan.intent, addrs: places };
                self.mux.send(peer, &LobbyMessage::JoinRequest(knock));
                self.has_requested = true;
            }
            Incoming::Datagram { from, bytes, .. } if Channel::is_channel_datagram(&bytes) => {
                for message in self.mux.handle_datagram(from, &bytes) {
                    match message {
                        LobbyMessage::Lobby(party) => self.admitted = Some((from, party)),
                        LobbyMessage::Refused(JoinRefusal::NotLeader { leader: keeper, addrs: places }) => {
                            self.follow_redirect(keeper, &places)
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

    /// Somebody else of the same game may open; nobody is asked twice.
    fn follow_redirect(&mut self, keeper: PeerKey, places: &[PeerAddr]) {
        if self.redirected_to.insert(keeper) {
            places.iter().for_each(|place| self.mux.transport.dial(place, Some(keeper)));
        }
    }

    /// Ends the wait when patience does, or as soon as there is nothing to wait for.
    fn check_timeout(&self, now: Instant, plan: &JoinConfig) -> Result<(), RunError> {
        let hopeless = self.dial_failures.is_final(plan.addrs.len()) && !self.has_requested;
        if !hopeless && now - self.started_at < plan.timeout {
            return Ok(());
        }
        let somewhere = || plan.addrs.first().cloned().unwrap_or_else(|| PeerAddr("the host's place".into()));
        Err(match self.dial_failures.worst() {
            _ if self.has_requested => RunError::HostGone,
            Some((place, DialFailure::WrongPeer)) => RunError::WrongPeer { addr: place.clone() },
            Some((place, how)) => {
                RunError::Unreachable { addr: place.clone(), wrong_secret: how == DialFailure::WrongSecret }
            }
            None => RunError::Unreachable { addr: somewhere(), wrong_secret: false },
        })
    }
}
