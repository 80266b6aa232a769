//! Hello messages, by which the servers of a world introduce themselves to each other: settings of the world, and
//! addresses for players.

use coplay_maze::MazeSettings;

use crate::entity_update::{Reader, put_short_bytes};

/// Version of the encoding; hellos of other versions are rejected.
const VERSION: u8 = 3;
/// Largest number of addresses of a server.
const MAX_ADDRS: usize = 4;
/// Maximum length of an address, in bytes.
const MAX_ADDR_LEN: usize = 200;

/// Largest number of echoed nonces in a hello.
pub const MAX_ECHOED_NONCES: usize = 64;

/// Random number of a server run. If another server echoes the nonce, that server's hello is no recording from before
/// this run.
pub type Nonce = [u8; 16];

/// Message by which a server introduces itself to the others. The nonces that it echoes prove that it is not a
/// recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerHello {
    /// Nonce of the sender's run. Other servers echo it.
    pub nonce: Nonce,
    /// Nonces received from other servers: at most [`MAX_ECHOED_NONCES`].
    pub echoed_nonces: Vec<Nonce>,
    /// World of the sender, and its addresses for players.
    pub info: ServerInfo,
}

impl ServerHello {
    /// Encodes the hello, with the first [`MAX_ECHOED_NONCES`] echoed nonces at most.
    pub fn to_bytes(&self) -> Vec<u8> {
        let echoed_nonces = &self.echoed_nonces[..self.echoed_nonces.len().min(MAX_ECHOED_NONCES)];
        let mut bytes = self.nonce.to_vec();
        bytes.push(echoed_nonces.len() as u8);
        echoed_nonces.iter().for_each(|nonce| bytes.extend_from_slice(nonce));
        bytes.extend(self.info.to_bytes());
        bytes
    }

    /// Decodes a hello; `None` if it has another version or is invalid.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        let (nonce, [count]) = (reader.take()?, reader.take()?);
        if usize::from(count) > MAX_ECHOED_NONCES {
            return None;
        }
        let echoed_nonces = (0..count).map(|_| reader.take()).collect::<Option<_>>()?;
        Some(Self { nonce, echoed_nonces, info: ServerInfo::from_bytes(reader.rest())? })
    }
}

/// World of a server, and its addresses for players.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerInfo {
    /// Settings of the world, equal on all its servers.
    pub settings: MazeSettings,
    /// Number of ninjas in the world, equal on all its servers.
    pub ninja_count: u8,
    /// Whether the server is about to stop and admits no more players.
    pub is_draining: bool,
    /// Addresses for players, one per transport.
    pub player_addrs: Vec<String>,
}

impl ServerInfo {
    /// Encodes the information, without addresses longer than 200 bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let settings = self.settings.to_bytes();
        let mut bytes = vec![VERSION, self.ninja_count, self.is_draining.into(), settings.len() as u8];
        bytes.extend_from_slice(&settings);
        let addrs = self.player_addrs.iter().filter(|addr| addr.len() <= MAX_ADDR_LEN);
        addrs.for_each(|addr| put_short_bytes(&mut bytes, addr.as_bytes()));
        bytes
    }

    /// Decodes the information; `None` if it has another version, is malformed or has more than four addresses of up to
    /// 200 bytes. Skips longer addresses.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        let [VERSION, ninja_count, is_draining @ (0 | 1)] = reader.take()? else { return None };
        let settings = MazeSettings::from_bytes(reader.short_bytes()?)?;
        let mut player_addrs = Vec::new();
        while !reader.rest().is_empty() {
            let addr = str::from_utf8(reader.short_bytes()?).ok()?;
            player_addrs.push(addr.to_owned());
        }
        // An address too long to pass on to players does not make the hello invalid.
        player_addrs.retain(|addr| addr.len() <= MAX_ADDR_LEN);
        (player_addrs.len() <= MAX_ADDRS).then_some(Self {
            settings,
            ninja_count,
            is_draining: is_draining == 1,
            player_addrs,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_hello_round_trips() {
        let info = ServerInfo {
            settings: MazeSettings::default(),
            ninja_count: 3,
            is_draining: true,
            player_addrs: vec!["192.0.2.1:7700".into(), "iroh:x".into()],
        };
        let bytes = info.to_bytes();
        let hello = ServerHello { nonce: [7; 16], echoed_nonces: vec![[8; 16], [9; 16]], info: info.clone() };
        let encoded = hello.to_bytes();
        assert_eq!(ServerHello::from_bytes(&encoded), Some(hello));
        assert_eq!(
            ServerHello::from_bytes(&[&[7; 16][..], &[MAX_ECHOED_NONCES as u8 + 1], &[0; 4_000]].concat()),
            None
        );
        assert!(
            (0..49 + bytes.len() - 1)
                .all(|cut| ServerHello::from_bytes(&encoded[..cut]).is_none_or(|cut| cut.info != info))
        );
        assert_eq!(ServerInfo::from_bytes(&bytes), Some(info));
        assert_eq!(ServerInfo::from_bytes(&[3; 40]), None);
        assert_eq!(ServerInfo::from_bytes(&bytes[..9]), None);
    }
}
