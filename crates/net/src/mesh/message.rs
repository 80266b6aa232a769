//! Messages between the sites of a mesh.

use std::net::SocketAddrV4;

use serde::{Deserialize, Serialize};

use super::MAX_SETTINGS_LEN;
use super::seal::MeshKey;
use crate::key::PeerKey;
use crate::lobby::{self, MAX_NAME_LEN, MAX_PEER_ADDRS};
use crate::peer_addr::{MAX_PEER_ADDR_LEN, PeerAddr};
use crate::reliable::ChannelMessage;
use crate::seal::RunId;

/// First byte of a mesh message. Join requests and refusals are lobby messages, which start with another byte.
const MESH_MARKER: u8 = 0x67;
/// Maximum number of encoded bytes of member information in one message.
const MAX_INFOS_LEN: usize = 12_000;
/// Maximum number of member infos in a received message; a message with more is dropped.
const MAX_INFOS: usize = 256;

/// Information about a member. Only the member itself and the site that admits it create a new revision.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct MemberInfo {
    /// Revision of the information. Of two reports about a member the one that compares greater holds; information from
    /// the member itself always holds.
    pub(super) revision: u32,
    pub(super) key: PeerKey,
    pub(super) site: u32,
    pub(super) run_id: RunId,
    pub(super) name: String,
    pub(super) addrs: Vec<PeerAddr>,
}

/// Answer to an admitted joiner: key, settings and multicast group of the mesh, and the joiner's own information.
/// Information about the other members follows in [`MeshMessage::Members`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct MeshWelcome {
    pub(super) mesh_key: MeshKey,
    pub(super) settings: Vec<u8>,
    pub(super) multicast_group: Option<SocketAddrV4>,
    /// The joiner's information as the others will get it.
    pub(super) your_info: MemberInfo,
}

/// Message between two members.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum MeshMessage {
    Welcome(MeshWelcome),
    /// Information about one or more members of the mesh `mesh_id`.
    Members {
        mesh_id: u64,
        infos: Vec<MemberInfo>,
    },
    /// The sender leaves.
    Bye,
}

/// Message on a reliable channel of a mesh.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum MeshOrLobbyMessage {
    /// Admission protocol, shared with the lobby.
    Lobby(lobby::LobbyMessage),
    /// Welcome, member information or goodbye.
    Mesh(MeshMessage),
}

impl ChannelMessage for MeshOrLobbyMessage {
    fn to_bytes(&self) -> Vec<u8> {
        match self {
            Self::Lobby(message) => message.to_bytes(),
            Self::Mesh(message) => {
                postcard::to_extend(message, vec![MESH_MARKER]).expect("every message can be encoded")
            }
        }
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let Some(rest) = bytes.strip_prefix(&[MESH_MARKER]) else {
            return lobby::LobbyMessage::from_bytes(bytes).map(Self::Lobby);
        };
        let (message, rest) = postcard::take_from_bytes::<MeshMessage>(rest).ok()?;
        (rest.is_empty() && message.is_within_limits()).then_some(Self::Mesh(message))
    }
}

impl MeshMessage {
    fn is_within_limits(&self) -> bool {
        match self {
            Self::Welcome(welcome) => {
                welcome.settings.len() <= MAX_SETTINGS_LEN && welcome.your_info.is_within_limits()
            }
            Self::Members { infos, .. } => infos.len() <= MAX_INFOS && infos.iter().all(MemberInfo::is_within_limits),
            Self::Bye => true,
        }
    }
}

impl MemberInfo {
    fn is_within_limits(&self) -> bool {
        let are_addrs_valid =
            self.addrs.len() <= MAX_PEER_ADDRS && self.addrs.iter().all(|addr| addr.0.len() <= MAX_PEER_ADDR_LEN);
        self.name.len() <= MAX_NAME_LEN && are_addrs_valid
    }

    /// Returns an upper bound of the encoded length, in bytes.
    fn max_encoded_len(&self) -> usize {
        let addrs: usize = self.addrs.iter().map(|addr| addr.0.len() + 2).sum();
        5 + 32 + 5 + 16 + 1 + self.name.len() + 1 + addrs
    }
}

/// Splits member information into messages that fit [`MAX_INFOS_LEN`].
pub(super) fn split_into_messages(
    mesh_id: u64,
    infos: impl IntoIterator<Item = MemberInfo>,
) -> Vec<MeshOrLobbyMessage> {
    let mut parts: Vec<(usize, Vec<MemberInfo>)> = Vec::new();
    for info in infos {
        let len = info.max_encoded_len();
        match parts.last_mut() {
            Some((sum, part)) if *sum + len <= MAX_INFOS_LEN => {
                *sum += len;
                part.push(info);
            }
            _ => parts.push((len, vec![info])),
        }
    }
    parts.into_iter().map(|(_, infos)| MeshOrLobbyMessage::Mesh(MeshMessage::Members { mesh_id, infos })).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reliable::MAX_MESSAGE_LEN;

    fn member_info(number: u8, addr_count: usize) -> MemberInfo {
        let addrs = (0..addr_count).map(|index| PeerAddr("x".repeat(MAX_PEER_ADDR_LEN - index))).collect();
        let name = "n".repeat(MAX_NAME_LEN);
        let site = u32::MAX - u32::from(number);
        MemberInfo { revision: u32::MAX, key: PeerKey([number; 32]), site, run_id: [number; 16], name, addrs }
    }

    #[test]
    fn mesh_messages_round_trip() {
        let mesh_key = MeshKey::random();
        let multicast_group = Some("239.255.77.77:5700".parse().unwrap());
        let welcome = MeshWelcome {
            mesh_key: mesh_key.clone(),
            settings: vec![7; MAX_SETTINGS_LEN],
            multicast_group,
            your_info: member_info(1, 2),
        };
        let mesh_messages = [MeshMessage::Welcome(welcome), MeshMessage::Bye];
        let messages = mesh_messages
            .map(MeshOrLobbyMessage::Mesh)
            .into_iter()
            .chain(split_into_messages(mesh_key.mesh_id(), [member_info(1, 2), member_info(2, 0)]));
        for message in messages.chain([MeshOrLobbyMessage::Lobby(lobby::LobbyMessage::Bye)]) {
            assert_eq!(MeshOrLobbyMessage::from_bytes(&message.to_bytes()), Some(message));
        }
    }

    #[test]
    fn oversized_messages_are_rejected() {
        let long_name = MemberInfo { name: "n".repeat(MAX_NAME_LEN + 1), ..member_info(1, 1) };
        let many_addrs = member_info(1, MAX_PEER_ADDRS + 1);
        for info in [long_name.clone(), many_addrs] {
            let message = MeshOrLobbyMessage::Mesh(MeshMessage::Members { mesh_id: 1, infos: vec![info] });
            assert_eq!(MeshOrLobbyMessage::from_bytes(&message.to_bytes()), None);
        }
        let welcome = |settings, your_info| MeshWelcome {
            mesh_key: MeshKey::random(),
            settings,
            multicast_group: None,
            your_info,
        };
        for welcome in [welcome(vec![0; MAX_SETTINGS_LEN + 1], member_info(1, 1)), welcome(vec![], long_name)] {
            assert_eq!(
                MeshOrLobbyMessage::from_bytes(&MeshOrLobbyMessage::Mesh(MeshMessage::Welcome(welcome)).to_bytes()),
                None
            );
        }
        let mut bytes = MeshOrLobbyMessage::Mesh(MeshMessage::Bye).to_bytes();
        bytes.push(0);
        assert_eq!(
            (
                MeshOrLobbyMessage::from_bytes(&bytes),
                MeshOrLobbyMessage::from_bytes(&[MESH_MARKER]),
                MeshOrLobbyMessage::from_bytes(&[])
            ),
            (None, None, None)
        );
    }

    #[test]
    fn member_infos_are_split_to_fit_reliable_messages() {
        let all: Vec<MemberInfo> = (0..128).map(|number| member_info(number, MAX_PEER_ADDRS)).collect();
        let messages = split_into_messages(1, all.clone());
        assert!(messages.iter().all(|message| message.to_bytes().len() <= MAX_MESSAGE_LEN), "too long");
        let received = messages.into_iter().flat_map(|message| match message {
            MeshOrLobbyMessage::Mesh(MeshMessage::Members { infos, .. }) => infos,
            other => panic!("{other:?}"),
        });
        assert_eq!(received.collect::<Vec<_>>(), all);
    }
}
