//! Messages of the lobby protocol.

use serde::{Deserialize, Serialize};

use crate::key::PeerKey;
use crate::peer_addr::{MAX_PEER_ADDR_LEN, PeerAddr};

/// Version of the lobby protocol; a join request of another version is refused.
pub const PROTOCOL_VERSION: u16 = 4;
/// Maximum length of a display name, in bytes.
pub const MAX_NAME_LEN: usize = 32;
/// Maximum length of a chat line, in bytes.
pub const MAX_CHAT_LEN: usize = 400;
/// Maximum number of addresses per member.
pub const MAX_PEER_ADDRS: usize = 8;
/// Maximum number of players at one computer: no machine has more pads.
pub const MAX_PADS: u8 = 8;
/// Maximum length of the encoded settings, in bytes.
const MAX_SETTINGS_LEN: usize = 4_096;

/// Message between two sites of a lobby, or between a member and a joiner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LobbyMessage {
    /// Request to join as a player, a spectator or a member of a mesh.
    JoinRequest(JoinRequest),
    /// Refusal of a join request.
    Refused(JoinRefusal),
    /// Complete state of the lobby as the roster leader knows it.
    Lobby(LobbyInfo),
    /// Whether the sender is ready to start.
    Ready(bool),
    /// A line of chat.
    Chat {
        /// Display name of the author; the roster leader replaces it by the name in its roster.
        name: String,
        /// The line, at most [`MAX_CHAT_LEN`] bytes.
        text: String,
    },
    /// The sender leaves.
    Bye,
    /// Number of spectators. With many spectators it changes often, so the leader also sends it without the rest of the
    /// lobby.
    SpectatorCount(u16),
    /// The sender's addresses have changed to these.
    AddrsChanged(Vec<PeerAddr>),
}

/// Request to join a lobby or a mesh.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinRequest {
    /// Protocol version of the joiner, which must equal [`PROTOCOL_VERSION`].
    pub version: u16,
    /// Display name of the joiner, at most [`MAX_NAME_LEN`] bytes.
    pub name: String,
    /// Role that the joiner requests.
    pub intent: JoinIntent,
    /// Addresses at which other peers may reach the joiner.
    pub addrs: Vec<PeerAddr>,
}

/// Role that a joiner requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum JoinIntent {
    /// Play, with this number of pads at one computer.
    Play(u8),
    /// Watch as a spectator.
    Spectate,
    /// Join a peer world as a member of a [mesh](crate::mesh). The random bytes identify this run of the joiner's
    /// program.
    JoinMesh([u8; 16]),
}

/// Reason why a joiner is refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum JoinRefusal {
    /// The joiner's protocol version differs from this one, which is that of the refusing site.
    VersionMismatch(u16),
    /// No seat is free, the joiner requests more pads than are free, or the maximum number of spectators or mesh
    /// members is reached.
    Full,
    /// The host admits no spectators.
    NoSpectators,
    /// The member asked is not the roster leader.
    NotLeader {
        /// Key of the leader, which the joiner can ask instead.
        leader: PeerKey,
        /// Known addresses of the leader.
        addrs: Vec<PeerAddr>,
    },
    /// The joiner asks for the other kind of game: for a peer world at the host of a session, or for a session at a
    /// member of a peer world.
    WrongGameKind,
}

/// State of a lobby, as its roster leader sends it to each member and spectator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LobbyInfo {
    /// Revision, which the leader increments before it sends the lobby to all members. A change of only the spectator
    /// count does not increment it.
    pub serial: u32,
    /// Random id of the session; the leader draws another one whenever it starts the game.
    pub session: u64,
    /// Session settings in the engine's encoding.
    pub settings: Vec<u8>,
    /// Whether the game has started.
    pub is_started: bool,
    /// Members that own a seat, ordered by seat.
    pub members: Vec<LobbyMember>,
    /// Whether spectators are admitted.
    pub allows_spectators: bool,
    /// Number of admitted spectators; the leader updates it at most once per second.
    pub spectator_count: u16,
    /// Seat of the recipient of this message; `None` for a spectator.
    pub your_site: Option<u8>,
}

/// A member that owns a seat.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LobbyMember {
    /// Seat number, which is the site number.
    pub site: u8,
    /// Public key to which the seat belongs.
    pub key: PeerKey,
    /// Display name, at most [`MAX_NAME_LEN`] bytes.
    pub name: String,
    /// Number of players at this site, at most [`MAX_PADS`].
    pub pads: u8,
    /// Addresses at which the member can be reached.
    pub addrs: Vec<PeerAddr>,
    /// Whether the member is ready to start.
    pub is_ready: bool,
    /// Whether the member is connected as far as the leader knows; an absent member keeps its seat.
    pub is_present: bool,
}

impl LobbyMessage {
    /// Encodes the message for a reliable channel.
    ///
    /// # Panics
    /// Never: every message can be encoded.
    pub fn to_bytes(&self) -> Vec<u8> {
        postcard::to_allocvec(self).expect("every message can be encoded")
    }

    /// Decodes a message from an untrusted peer; `None` if it is malformed or exceeds a limit.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (message, rest) = postcard::take_from_bytes::<Self>(bytes).ok()?;
        (rest.is_empty() && message.is_within_limits()).then_some(message)
    }

    fn is_within_limits(&self) -> bool {
        let are_valid = |addrs: &[PeerAddr]| {
            addrs.len() <= MAX_PEER_ADDRS && addrs.iter().all(|addr| addr.0.len() <= MAX_PEER_ADDR_LEN)
        };
        match self {
            Self::JoinRequest(request) => {
                let pads = if let JoinIntent::Play(pads) = request.intent { pads } else { 0 };
                request.name.len() <= MAX_NAME_LEN && are_valid(&request.addrs) && pads <= MAX_PADS
            }
            Self::Chat { name, text } => name.len() <= MAX_NAME_LEN && text.len() <= MAX_CHAT_LEN,
            Self::Lobby(lobby) => {
                let member = |member: &LobbyMember| {
                    member.name.len() <= MAX_NAME_LEN && are_valid(&member.addrs) && member.pads <= MAX_PADS
                };
                lobby.settings.len() <= MAX_SETTINGS_LEN
                    && lobby.members.len() <= coplay::id::MAX_SITES
                    && lobby.members.iter().all(member)
                    && lobby.members.iter().all(|member| usize::from(member.site) < coplay::id::MAX_SITES)
            }
            Self::AddrsChanged(addrs) | Self::Refused(JoinRefusal::NotLeader { addrs, .. }) => are_valid(addrs),
            Self::Refused(_) | Self::Ready(_) | Self::Bye | Self::SpectatorCount(_) => true,
        }
    }
}

/// Removes control characters, truncates to `max_len` bytes, and trims white space.
pub(crate) fn sanitize(text: &str, max_len: usize) -> String {
    let mut sanitized = String::new();
    for character in text.chars().filter(|character| !character.is_control()) {
        if sanitized.len() + character.len_utf8() > max_len {
            break;
        }
        sanitized.push(character);
    }
    sanitized.trim().into()
}

/// Returns at most [`MAX_PEER_ADDRS`] addresses of a peer to pass on to others: the observed one first, then those that
/// the peer reported.
pub(crate) fn merge_addrs(reported: &[PeerAddr], seen: Option<PeerAddr>) -> Vec<PeerAddr> {
    let mut addrs: Vec<PeerAddr> = seen.into_iter().chain(reported.iter().cloned()).take(MAX_PEER_ADDRS).collect();
    addrs.dedup();
    addrs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lobby_messages_round_trip() {
        let request = JoinRequest {
            version: PROTOCOL_VERSION,
            name: "Ann".into(),
            intent: JoinIntent::Play(2),
            addrs: vec![PeerAddr("here".into())],
        };
        let addrs = vec![PeerAddr("there".into())];
        let not_leader = JoinRefusal::NotLeader { leader: PeerKey([7; 32]), addrs: addrs.clone() };
        let with_addrs = [LobbyMessage::AddrsChanged(addrs), LobbyMessage::Refused(not_leader)];
        let short = [
            LobbyMessage::Refused(JoinRefusal::Full),
            LobbyMessage::Ready(true),
            LobbyMessage::Bye,
            LobbyMessage::SpectatorCount(900),
        ];
        for message in [LobbyMessage::JoinRequest(request)].into_iter().chain(with_addrs).chain(short) {
            assert_eq!(LobbyMessage::from_bytes(&message.to_bytes()), Some(message));
        }
    }

    #[test]
    fn oversized_messages_are_rejected() {
        let name = "x".repeat(MAX_NAME_LEN + 1);
        assert_eq!(LobbyMessage::from_bytes(&LobbyMessage::Chat { name, text: String::new() }.to_bytes()), None);
        let line = "x".repeat(MAX_CHAT_LEN + 1);
        assert_eq!(LobbyMessage::from_bytes(&LobbyMessage::Chat { name: String::new(), text: line }.to_bytes()), None);
        let addrs = vec![PeerAddr("x".into()); MAX_PEER_ADDRS + 1];
        assert_eq!(LobbyMessage::from_bytes(&LobbyMessage::AddrsChanged(addrs.clone()).to_bytes()), None);
        let not_leader = JoinRefusal::NotLeader { leader: PeerKey([7; 32]), addrs };
        assert_eq!(LobbyMessage::from_bytes(&LobbyMessage::Refused(not_leader).to_bytes()), None);
        let mut bytes = LobbyMessage::Bye.to_bytes();
        bytes.push(0);
        assert_eq!(LobbyMessage::from_bytes(&bytes), None);
    }

    #[test]
    fn too_many_pads_are_rejected() {
        let request = |pads| JoinRequest {
            version: PROTOCOL_VERSION,
            name: "Ann".into(),
            intent: JoinIntent::Play(pads),
            addrs: vec![],
        };
        let member = |pads| LobbyMember {
            site: 0,
            key: PeerKey([7; 32]),
            name: "Ann".into(),
            pads,
            addrs: vec![],
            is_ready: true,
            is_present: true,
        };
        let lobby = |pads| LobbyInfo {
            serial: 1,
            session: 1,
            settings: vec![],
            is_started: false,
            members: vec![member(pads)],
            allows_spectators: true,
            spectator_count: 0,
            your_site: None,
        };
        let is_decoded = |message: LobbyMessage| LobbyMessage::from_bytes(&message.to_bytes()).is_some();
        for (pads, is_valid) in [(1, true), (8, true), (9, false), (255, false)] {
            assert_eq!(is_decoded(LobbyMessage::JoinRequest(request(pads))), is_valid, "{pads} pads in a join request");
            assert_eq!(is_decoded(LobbyMessage::Lobby(lobby(pads))), is_valid, "{pads} pads in a lobby");
        }
    }

    #[test]
    fn names_are_sanitized() {
        assert_eq!(sanitize(" An\x1b[31mn\n ", 32), "An[31mn");
        assert_eq!(sanitize("äöü", 3), "ä");
    }
}
