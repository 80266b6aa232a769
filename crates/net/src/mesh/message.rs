//! What the sites of a group tell each other, beside what they play.

use std::net::SocketAddrV4;

use serde::{Deserialize, Serialize};

use super::MAX_SETTINGS_LEN;
use super::seal::MeshKey;
use crate::key::PeerKey;
use crate::lobby::{self, MAX_NAME_LEN, MAX_PEER_ADDR_LEN, MAX_PEER_ADDRS};
use crate::reliable::Message;
use crate::transport::PeerAddr;

/// The first byte of what only a group says. What is said at the door is the same as around any game, and begins with another.
const MESH_MARKER: u8 = 0x67;
/// The most bytes of accounts in one message, as they are written.
const MAX_INFOS_LEN: usize = 12_000;
/// And the most accounts, whatever they say.
const MAX_INFOS: usize = 256;

/// One run of a program: a number that nobody had before, by which what is sealed in it differs from whatever was sealed before.
pub(super) type RunId = [u8; 16];

/// What all are told of one of them. Only itself and who lets it in make a new one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct MemberInfo {
    /// Of two accounts that others give of a member the one with the higher stamp holds. Its own needs none.
    pub(super) revision: u32,
    pub(super) key: PeerKey,
    pub(super) site: u32,
    pub(super) run_id: RunId,
    pub(super) name: String,
    pub(super) addrs: Vec<PeerAddr>,
}

/// You are in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct MeshWelcome {
    pub(super) mesh_key: MeshKey,
    pub(super) settings: Vec<u8>,
    pub(super) multicast_group: Option<SocketAddrV4>,
    /// What all will be told of you.
    pub(super) your_info: MemberInfo,
}

/// A message between two sites of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum MeshMessage {
    Welcome(MeshWelcome),
    /// What I know of some of us, in the group of this name.
    Members {
        mesh_id: u64,
        infos: Vec<MemberInfo>,
    },
    /// I am off.
    Bye,
}

/// Whatever comes by mail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum MeshOrLobbyMessage {
    /// At the door.
    Lobby(lobby::LobbyMessage),
    /// Inside.
    Mesh(MeshMessage),
}

impl Message for MeshOrLobbyMessage {
    fn to_bytes(&self) -> Vec<u8> {
        match self {
            Self::Lobby(message) => message.to_bytes(),
            Self::Mesh(message) => {
                postcard::to_extend(message, vec![MESH_MARKER]).expect("nothing in a message can fail to be written")
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
            Self::Members { infos: accounts, .. } => {
                accounts.len() <= MAX_INFOS && accounts.iter().all(MemberInfo::is_within_limits)
            }
            Self::Bye => true,
        }
    }
}

impl MemberInfo {
    fn is_within_limits(&self) -> bool {
        let places =
            self.addrs.len() <= MAX_PEER_ADDRS && self.addrs.iter().all(|place| place.0.len() <= MAX_PEER_ADDR_LEN);
        self.name.len() <= MAX_NAME_LEN && places
    }

    /// The most bytes that it takes.
    fn max_encoded_len(&self) -> usize {
        let places: usize = self.addrs.iter().map(|place| place.0.len() + 2).sum();
        5 + 32 + 5 + 16 + 1 + self.name.len() + 1 + places
    }
}

/// Accounts as messages, none of which is too long to be mailed.
pub(super) fn split_into_messages(
    group: u64,
    accounts: impl IntoIterator<Item = MemberInfo>,
) -> Vec<MeshOrLobbyMessage> {
    let mut parts: Vec<(usize, Vec<MemberInfo>)> = Vec::new();
    for account in accounts {
        let len = account.max_encoded_len();
        match parts.last_mut() {
            Some((sum, part)) if *sum + len <= MAX_INFOS_LEN => {
                *sum += len;
                part.push(account);
            }
            _ => parts.push((len, vec![account])),
        }
    }
    parts
        .into_iter()
        .map(|(_, accounts)| MeshOrLobbyMessage::Mesh(MeshMessage::Members { mesh_id: group, infos: accounts }))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reliable::MAX_MESSAGE_LEN;

    fn member_info(number: u8, places: usize) -> MemberInfo {
        let places = (0..places).map(|place| PeerAddr("x".repeat(MAX_PEER_ADDR_LEN - place))).collect();
        let name = "n".repeat(MAX_NAME_LEN);
        let site = u32::MAX - u32::from(number);
        MemberInfo { revision: u32::MAX, key: PeerKey([number; 32]), site, run_id: [number; 16], name, addrs: places }
    }

    #[test]
    fn mesh_messages_round_trip() {
        let group = MeshKey::random();
        let multicast = Some("239.255.77.77:5700".parse().unwrap());
        let welcome = MeshWelcome {
            mesh_key: group.clone(),
            settings: vec![7; MAX_SETTINGS_LEN],
            multicast_group: multicast,
            your_info: member_info(1, 2),
        };
        let inside = [MeshMessage::Welcome(welcome), MeshMessage::Bye];
        let words = inside
            .map(MeshOrLobbyMessage::Mesh)
            .into_iter()
            .chain(split_into_messages(group.mesh_id(), [member_info(1, 2), member_info(2, 0)]));
        for word in words.chain([MeshOrLobbyMessage::Lobby(lobby::LobbyMessage::Bye)]) {
            assert_eq!(MeshOrLobbyMessage::from_bytes(&word.to_bytes()), Some(word));
        }
    }

    #[test]
    fn oversized_messages_are_rejected() {
        let long_name = MemberInfo { name: "n".repeat(MAX_NAME_LEN + 1), ..member_info(1, 1) };
        let many_places = member_info(1, MAX_PEER_ADDRS + 1);
        for account in [long_name.clone(), many_places] {
            let word = MeshOrLobbyMessage::Mesh(MeshMessage::Members { mesh_id: 1, infos: vec![account] });
            assert_eq!(MeshOrLobbyMessage::from_bytes(&word.to_bytes()), None);
        }
        let welcome = |terms, you| MeshWelcome {
            mesh_key: MeshKey::random(),
            settings: terms,
            multicast_group: None,
            your_info: you,
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
        let told = split_into_messages(1, all.clone());
        assert!(told.iter().all(|word| word.to_bytes().len() <= MAX_MESSAGE_LEN), "too long");
        let again = told.into_iter().flat_map(|word| match word {
            MeshOrLobbyMessage::Mesh(MeshMessage::Members { infos: accounts, .. }) => accounts,
            other => panic!("{other:?}"),
        });
        assert_eq!(again.collect::<Vec<_>>(), all);
    }
}
