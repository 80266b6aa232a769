//! What people around a game tell each other, beside the game.

use serde::{Deserialize, Serialize};

use crate::key::PeerKey;
use crate::transport::Place;

/// Another version speaks another language here.
pub const VERSION: u16 = 4;
/// The longest name, in bytes.
pub const MAX_NAME: usize = 32;
/// The longest line of chat, in bytes.
pub const MAX_LINE: usize = 400;
/// The longest place, in bytes.
pub const MAX_PLACE: usize = 200;
/// The most places of one member.
pub const MAX_PLACES: usize = 8;
/// The most players at one computer: no machine has more pads.
pub const MAX_PADS: u8 = 8;
/// The longest terms.
const MAX_TERMS: usize = 4_096;

/// A message between two of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Message {
    /// May I come in?
    Knock(Knock),
    /// No.
    Refused(Refusal),
    /// Who is here and what is played, as the host knows it.
    Party(Party),
    /// Whether I am ready to begin.
    Ready(bool),
    /// A line of chat, and who says it.
    Chat {
        /// Its name.
        name: String,
        /// What it says.
        line: String,
    },
    /// I am off.
    Bye,
    /// So many look on now. It changes often where many do, and is told without all the rest.
    Watchers(u16),
    /// I can be reached elsewhere now.
    Places(Vec<Place>),
}

/// Somebody wants to come in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Knock {
    /// The version of this language.
    pub version: u16,
    /// What to call it.
    pub name: String,
    /// What it wants.
    pub wish: Wish,
    /// Where others may reach it.
    pub places: Vec<Place>,
}

/// What somebody wants to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Wish {
    /// Play, so many people at one computer.
    Play(u8),
    /// Look on.
    Watch,
    /// Walk about in a world without a server, as one of a [group](crate::group): with the number of this run of its program.
    Roam([u8; 16]),
}

/// Why somebody is not let in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    /// It speaks another version.
    Version(u16),
    /// There is no seat free, or not so many players.
    Full,
    /// Nobody may look on.
    Private,
    /// Ask who keeps the list.
    NotMe {
        /// Who that is.
        keeper: PeerKey,
        /// Where it can be reached.
        places: Vec<Place>,
    },
    /// What is played here is of another kind: a world without a server, or none.
    OtherKind,
}

/// Everything about the people around one game.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Party {
    /// Grows with every change.
    pub serial: u32,
    /// The number of the session.
    pub session: u64,
    /// The settings, as the engine writes them.
    pub terms: Vec<u8>,
    /// Whether it has begun.
    pub started: bool,
    /// Who has a seat, in order of seats.
    pub members: Vec<Member>,
    /// Whether others may look on.
    pub open: bool,
    /// How many look on.
    pub watchers: u16,
    /// The seat of who gets this; `None` looks on.
    pub you: Option<u8>,
}

/// Somebody who has a seat.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// The seat.
    pub site: u8,
    /// Who it is.
    pub key: PeerKey,
    /// What to call it.
    pub name: String,
    /// How many play there.
    pub pads: u8,
    /// Where it can be reached.
    pub places: Vec<Place>,
    /// Whether it is ready to begin.
    pub ready: bool,
    /// Whether it is here, as far as the host knows; a seat waits for who has it.
    pub here: bool,
}

impl Message {
    /// As bytes.
    ///
    /// # Panics
    /// Never: nothing in a message can fail to be written.
    pub fn to_bytes(&self) -> Vec<u8> {
        postcard::to_allocvec(self).expect("a message can be written")
    }

    /// From bytes of somebody else's; `None` if they make no sense or say too much.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (message, rest) = postcard::take_from_bytes::<Self>(bytes).ok()?;
        (rest.is_empty() && message.is_modest()).then_some(message)
    }

    fn is_modest(&self) -> bool {
        let places =
            |places: &[Place]| places.len() <= MAX_PLACES && places.iter().all(|place| place.0.len() <= MAX_PLACE);
        match self {
            Self::Knock(knock) => {
                let pads = if let Wish::Play(pads) = knock.wish { pads } else { 0 };
                knock.name.len() <= MAX_NAME && places(&knock.places) && pads <= MAX_PADS
            }
            Self::Chat { name, line } => name.len() <= MAX_NAME && line.len() <= MAX_LINE,
            Self::Party(party) => {
                let member = |member: &Member| {
                    member.name.len() <= MAX_NAME && places(&member.places) && member.pads <= MAX_PADS
                };
                party.terms.len() <= MAX_TERMS
                    && party.members.len() <= coplay::id::MAX_SITES
                    && party.members.iter().all(member)
                    && party.members.iter().all(|member| usize::from(member.site) < coplay::id::MAX_SITES)
            }
            Self::Places(told) | Self::Refused(Refusal::NotMe { places: told, .. }) => places(told),
            Self::Refused(_) | Self::Ready(_) | Self::Bye | Self::Watchers(_) => true,
        }
    }
}

/// As much of a text as fits, without anything that is not to be seen.
pub(crate) fn tidy(text: &str, most: usize) -> String {
    let mut tidy = String::new();
    for character in text.chars().filter(|character| !character.is_control()) {
        if tidy.len() + character.len_utf8() > most {
            break;
        }
        tidy.push(character);
    }
    tidy.trim().into()
}

/// Where others may be told to look for somebody: what it says itself, and what we see.
pub(crate) fn places(told: &[Place], seen: Option<Place>) -> Vec<Place> {
    let mut places: Vec<Place> = seen.into_iter().chain(told.iter().cloned()).take(MAX_PLACES).collect();
    places.dedup();
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_back_as_they_were() {
        let knock =
            Knock { version: VERSION, name: "Ann".into(), wish: Wish::Play(2), places: vec![Place("here".into())] };
        let told = vec![Place("there".into())];
        let elsewhere = Refusal::NotMe { keeper: PeerKey([7; 32]), places: told.clone() };
        let places = [Message::Places(told), Message::Refused(elsewhere)];
        let short = [Message::Refused(Refusal::Full), Message::Ready(true), Message::Bye, Message::Watchers(900)];
        for message in [Message::Knock(knock)].into_iter().chain(places).chain(short) {
            assert_eq!(Message::from_bytes(&message.to_bytes()), Some(message));
        }
    }

    #[test]
    fn what_says_too_much_is_not_taken() {
        let name = "x".repeat(MAX_NAME + 1);
        assert_eq!(Message::from_bytes(&Message::Chat { name, line: String::new() }.to_bytes()), None);
        let line = "x".repeat(MAX_LINE + 1);
        assert_eq!(Message::from_bytes(&Message::Chat { name: String::new(), line }.to_bytes()), None);
        let places = vec![Place("x".into()); MAX_PLACES + 1];
        assert_eq!(Message::from_bytes(&Message::Places(places.clone()).to_bytes()), None);
        let elsewhere = Refusal::NotMe { keeper: PeerKey([7; 32]), places };
        assert_eq!(Message::from_bytes(&Message::Refused(elsewhere).to_bytes()), None);
        let mut bytes = Message::Bye.to_bytes();
        bytes.push(0);
        assert_eq!(Message::from_bytes(&bytes), None);
    }

    #[test]
    fn numbers_of_pads_that_no_machine_has_are_not_taken() {
        let knock = |pads| Knock { version: VERSION, name: "Ann".into(), wish: Wish::Play(pads), places: vec![] };
        let member = |pads| Member {
            site: 0,
            key: PeerKey([7; 32]),
            name: "Ann".into(),
            pads,
            places: vec![],
            ready: true,
            here: true,
        };
        let party = |pads| Party {
            serial: 1,
            session: 1,
            terms: vec![],
            started: false,
            members: vec![member(pads)],
            open: true,
            watchers: 0,
            you: None,
        };
        let is_taken = |message: Message| Message::from_bytes(&message.to_bytes()).is_some();
        for (pads, taken) in [(1, true), (8, true), (9, false), (255, false)] {
            assert_eq!(is_taken(Message::Knock(knock(pads))), taken, "{pads} pads in a knock");
            assert_eq!(is_taken(Message::Party(party(pads))), taken, "{pads} pads in a list");
        }
    }

    #[test]
    fn names_are_tidied() {
        assert_eq!(tidy(" An\x1b[31mn\n ", 32), "An[31mn");
        assert_eq!(tidy("äöü", 3), "ä");
    }
}
