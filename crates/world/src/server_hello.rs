//! What servers of a world tell each other of themselves, beside events: which world it is, and where players find them.

use coplay_maze::MazeSettings;

use crate::entity_update::{Reader, put_short_bytes};

/// The layout is this.
const VERSION: u8 = 3;
/// The most ways to one server, and the longest name of one.
const MAX_ADDRS: usize = 4;
const MAX_ADDR_LEN: usize = 200;

/// The most numbers of others that are said back at a time.
pub const MAX_ECHOED_NONCES: usize = 64;

/// A number that a run of a server draws. Who says it back has heard that run: what was recorded before cannot.
pub type Nonce = [u8; 16];

/// A greeting, and the proof that it is no recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerHello {
    /// What others are to say back.
    pub nonce: Nonce,
    /// What others drew, as far as they were heard: at most [`MAX_ECHOED_NONCES`].
    pub echoed_nonces: Vec<Nonce>,
    /// What the server says of itself.
    pub info: ServerInfo,
}

impl ServerHello {
    /// As bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let heard = &self.echoed_nonces[..self.echoed_nonces.len().min(MAX_ECHOED_NONCES)];
        let mut bytes = self.nonce.to_vec();
        bytes.push(heard.len() as u8);
        heard.iter().for_each(|nonce| bytes.extend_from_slice(nonce));
        bytes.extend(self.info.to_bytes());
        bytes
    }

    /// What somebody said; `None` if it is of another version, or no greeting.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        let (nonce, [count]) = (reader.take()?, reader.take()?);
        if usize::from(count) > MAX_ECHOED_NONCES {
            return None;
        }
        let heard = (0..count).map(|_| reader.take()).collect::<Option<_>>()?;
        Some(Self { nonce, echoed_nonces: heard, info: ServerInfo::from_bytes(reader.rest())? })
    }
}

/// A server says that it is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerInfo {
    /// The world.
    pub settings: MazeSettings,
    /// How many ninjas there are in it.
    pub ninja_count: u8,
    /// Whether it wants no more players.
    pub is_draining: bool,
    /// Where players reach it, on each of its ways.
    pub player_addrs: Vec<String>,
}

impl ServerInfo {
    /// As bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let terms = self.settings.to_bytes();
        let mut bytes = vec![VERSION, self.ninja_count, self.is_draining.into(), terms.len() as u8];
        bytes.extend_from_slice(&terms);
        let told = self.player_addrs.iter().filter(|place| place.len() <= MAX_ADDR_LEN);
        told.for_each(|place| put_short_bytes(&mut bytes, place.as_bytes()));
        bytes
    }

    /// What somebody said; `None` if it is of another version, or no greeting.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        let [VERSION, ninjas, drains @ (0 | 1)] = reader.take()? else { return None };
        let terms = MazeSettings::from_bytes(reader.short_bytes()?)?;
        let mut places = Vec::new();
        while !reader.rest().is_empty() {
            let place = str::from_utf8(reader.short_bytes()?).ok()?;
            places.push(place.to_owned());
        }
        // A way that cannot be told to players is no reason not to listen.
        places.retain(|place| place.len() <= MAX_ADDR_LEN);
        (places.len() <= MAX_ADDRS).then_some(Self {
            settings: terms,
            ninja_count: ninjas,
            is_draining: drains == 1,
            player_addrs: places,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_hello_round_trips() {
        let greeting = ServerInfo {
            settings: MazeSettings::default(),
            ninja_count: 3,
            is_draining: true,
            player_addrs: vec!["192.0.2.1:7700".into(), "iroh:x".into()],
        };
        let bytes = greeting.to_bytes();
        let hello = ServerHello { nonce: [7; 16], echoed_nonces: vec![[8; 16], [9; 16]], info: greeting.clone() };
        let said = hello.to_bytes();
        assert_eq!(ServerHello::from_bytes(&said), Some(hello));
        assert_eq!(
            ServerHello::from_bytes(&[&[7; 16][..], &[MAX_ECHOED_NONCES as u8 + 1], &[0; 4_000]].concat()),
            None
        );
        assert!(
            (0..49 + bytes.len() - 1)
                .all(|cut| ServerHello::from_bytes(&said[..cut]).is_none_or(|cut| cut.info != greeting))
        );
        assert_eq!(ServerInfo::from_bytes(&bytes), Some(greeting));
        assert_eq!(ServerInfo::from_bytes(&[3; 40]), None);
        assert_eq!(ServerInfo::from_bytes(&bytes[..9]), None);
    }
}
