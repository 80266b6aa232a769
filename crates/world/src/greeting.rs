//! What servers of a world tell each other of themselves, beside events: which world it is, and where players find them.

use coplay_maze::Terms;

use crate::deed::{Reader, put_short};

/// The layout is this.
const VERSION: u8 = 3;
/// The most ways to one server, and the longest name of one.
const MAX_PLACES: usize = 4;
const MAX_PLACE: usize = 200;

/// The most numbers of others that are said back at a time.
pub const MAX_HEARD: usize = 64;

/// A number that a run of a server draws. Who says it back has heard that run: what was recorded before cannot.
pub type Nonce = [u8; 16];

/// A greeting, and the proof that it is no recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// What others are to say back.
    pub nonce: Nonce,
    /// What others drew, as far as they were heard: at most [`MAX_HEARD`].
    pub heard: Vec<Nonce>,
    /// What the server says of itself.
    pub greeting: Greeting,
}

impl Hello {
    /// As bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let heard = &self.heard[..self.heard.len().min(MAX_HEARD)];
        let mut bytes = self.nonce.to_vec();
        bytes.push(heard.len() as u8);
        heard.iter().for_each(|nonce| bytes.extend_from_slice(nonce));
        bytes.extend(self.greeting.to_bytes());
        bytes
    }

    /// What somebody said; `None` if it is of another version, or no greeting.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        let (nonce, [count]) = (reader.take()?, reader.take()?);
        if usize::from(count) > MAX_HEARD {
            return None;
        }
        let heard = (0..count).map(|_| reader.take()).collect::<Option<_>>()?;
        Some(Self { nonce, heard, greeting: Greeting::from_bytes(reader.rest())? })
    }
}

/// A server says that it is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Greeting {
    /// The world.
    pub terms: Terms,
    /// How many ninjas there are in it.
    pub ninjas: u8,
    /// Whether it wants no more players.
    pub drains: bool,
    /// Where players reach it, on each of its ways.
    pub places: Vec<String>,
}

impl Greeting {
    /// As bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let terms = self.terms.to_bytes();
        let mut bytes = vec![VERSION, self.ninjas, self.drains.into(), terms.len() as u8];
        bytes.extend_from_slice(&terms);
        let told = self.places.iter().filter(|place| place.len() <= MAX_PLACE);
        told.for_each(|place| put_short(&mut bytes, place.as_bytes()));
        bytes
    }

    /// What somebody said; `None` if it is of another version, or no greeting.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        let [VERSION, ninjas, drains @ (0 | 1)] = reader.take()? else { return None };
        let terms = Terms::from_bytes(reader.short()?)?;
        let mut places = Vec::new();
        while !reader.rest().is_empty() {
            let place = str::from_utf8(reader.short()?).ok()?;
            places.push(place.to_owned());
        }
        // A way that cannot be told to players is no reason not to listen.
        places.retain(|place| place.len() <= MAX_PLACE);
        (places.len() <= MAX_PLACES).then_some(Self { terms, ninjas, drains: drains == 1, places })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_comes_back() {
        let greeting = Greeting {
            terms: Terms::default(),
            ninjas: 3,
            drains: true,
            places: vec!["192.0.2.1:7700".into(), "iroh:x".into()],
        };
        let bytes = greeting.to_bytes();
        let hello = Hello { nonce: [7; 16], heard: vec![[8; 16], [9; 16]], greeting: greeting.clone() };
        let said = hello.to_bytes();
        assert_eq!(Hello::from_bytes(&said), Some(hello));
        assert_eq!(Hello::from_bytes(&[&[7; 16][..], &[MAX_HEARD as u8 + 1], &[0; 4_000]].concat()), None);
        assert!(
            (0..49 + bytes.len() - 1)
                .all(|cut| Hello::from_bytes(&said[..cut]).is_none_or(|cut| cut.greeting != greeting))
        );
        assert_eq!(Greeting::from_bytes(&bytes), Some(greeting));
        assert_eq!(Greeting::from_bytes(&[3; 40]), None);
        assert_eq!(Greeting::from_bytes(&bytes[..9]), None);
    }
}
