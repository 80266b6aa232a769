//! What the sites of a group tell each other, beside what they play.

use std::net::SocketAddrV4;

use serde::{Deserialize, Serialize};

use super::MAX_TERMS;
use super::seal::GroupKey;
use crate::key::PeerKey;
use crate::party::{self, MAX_NAME, MAX_PLACE, MAX_PLACES};
use crate::post::Letter;
use crate::transport::Place;

/// The first byte of what only a group says. What is said at the door is the same as around any game, and begins with another.
const MARK: u8 = 0x67;
/// The most bytes of accounts in one message, as they are written.
const MOST_BYTES: usize = 12_000;
/// And the most accounts, whatever they say.
const MOST_ACCOUNTS: usize = 256;

/// One run of a program: a number that nobody had before, by which what is sealed in it differs from whatever was sealed before.
pub(super) type Run = [u8; 16];

/// What all are told of one of them. Only itself and who lets it in make a new one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Account {
    /// Of two accounts that others give of a member the one with the higher stamp holds. Its own needs none.
    pub(super) stamp: u32,
    pub(super) key: PeerKey,
    pub(super) site: u32,
    pub(super) run: Run,
    pub(super) name: String,
    pub(super) places: Vec<Place>,
}

/// You are in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Welcome {
    pub(super) key: GroupKey,
    pub(super) terms: Vec<u8>,
    pub(super) multicast: Option<SocketAddrV4>,
    /// What all will be told of you.
    pub(super) you: Account,
}

/// A message between two sites of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Message {
    Welcome(Welcome),
    /// What I know of some of us, in the group of this name.
    Accounts {
        group: u64,
        accounts: Vec<Account>,
    },
    /// I am off.
    Bye,
}

/// Whatever comes by mail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Word {
    /// At the door.
    Door(party::Message),
    /// Inside.
    Inside(Message),
}

impl Letter for Word {
    fn to_bytes(&self) -> Vec<u8> {
        match self {
            Self::Door(message) => message.to_bytes(),
            Self::Inside(message) => {
                postcard::to_extend(message, vec![MARK]).expect("nothing in a message can fail to be written")
            }
        }
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let Some(rest) = bytes.strip_prefix(&[MARK]) else {
            return party::Message::from_bytes(bytes).map(Self::Door);
        };
        let (message, rest) = postcard::take_from_bytes::<Message>(rest).ok()?;
        (rest.is_empty() && message.is_modest()).then_some(Self::Inside(message))
    }
}

impl Message {
    fn is_modest(&self) -> bool {
        match self {
            Self::Welcome(welcome) => welcome.terms.len() <= MAX_TERMS && welcome.you.is_modest(),
            Self::Accounts { accounts, .. } => {
                accounts.len() <= MOST_ACCOUNTS && accounts.iter().all(Account::is_modest)
            }
            Self::Bye => true,
        }
    }
}

impl Account {
    fn is_modest(&self) -> bool {
        let places = self.places.len() <= MAX_PLACES && self.places.iter().all(|place| place.0.len() <= MAX_PLACE);
        self.name.len() <= MAX_NAME && places
    }

    /// The most bytes that it takes.
    fn len(&self) -> usize {
        let places: usize = self.places.iter().map(|place| place.0.len() + 2).sum();
        5 + 32 + 5 + 16 + 1 + self.name.len() + 1 + places
    }
}

/// Accounts as messages, none of which is too long to be mailed.
pub(super) fn tell(group: u64, accounts: impl IntoIterator<Item = Account>) -> Vec<Word> {
    let mut parts: Vec<(usize, Vec<Account>)> = Vec::new();
    for account in accounts {
        let len = account.len();
        match parts.last_mut() {
            Some((sum, part)) if *sum + len <= MOST_BYTES => {
                *sum += len;
                part.push(account);
            }
            _ => parts.push((len, vec![account])),
        }
    }
    parts.into_iter().map(|(_, accounts)| Word::Inside(Message::Accounts { group, accounts })).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mail::MAX_MESSAGE;

    fn account(number: u8, places: usize) -> Account {
        let places = (0..places).map(|place| Place("x".repeat(MAX_PLACE - place))).collect();
        let name = "n".repeat(MAX_NAME);
        let site = u32::MAX - u32::from(number);
        Account { stamp: u32::MAX, key: PeerKey([number; 32]), site, run: [number; 16], name, places }
    }

    #[test]
    fn words_come_back_as_they_were() {
        let group = GroupKey::random();
        let multicast = Some("239.255.77.77:5700".parse().unwrap());
        let welcome = Welcome { key: group.clone(), terms: vec![7; MAX_TERMS], multicast, you: account(1, 2) };
        let inside = [Message::Welcome(welcome), Message::Bye];
        let words = inside.map(Word::Inside).into_iter().chain(tell(group.name(), [account(1, 2), account(2, 0)]));
        for word in words.chain([Word::Door(party::Message::Bye)]) {
            assert_eq!(Word::from_bytes(&word.to_bytes()), Some(word));
        }
    }

    #[test]
    fn what_says_too_much_is_not_taken() {
        let long_name = Account { name: "n".repeat(MAX_NAME + 1), ..account(1, 1) };
        let many_places = account(1, MAX_PLACES + 1);
        for account in [long_name.clone(), many_places] {
            let word = Word::Inside(Message::Accounts { group: 1, accounts: vec![account] });
            assert_eq!(Word::from_bytes(&word.to_bytes()), None);
        }
        let welcome = |terms, you| Welcome { key: GroupKey::random(), terms, multicast: None, you };
        for welcome in [welcome(vec![0; MAX_TERMS + 1], account(1, 1)), welcome(vec![], long_name)] {
            assert_eq!(Word::from_bytes(&Word::Inside(Message::Welcome(welcome)).to_bytes()), None);
        }
        let mut bytes = Word::Inside(Message::Bye).to_bytes();
        bytes.push(0);
        assert_eq!((Word::from_bytes(&bytes), Word::from_bytes(&[MARK]), Word::from_bytes(&[])), (None, None, None));
    }

    #[test]
    fn however_many_there_are_each_message_can_be_mailed() {
        let all: Vec<Account> = (0..128).map(|number| account(number, MAX_PLACES)).collect();
        let told = tell(1, all.clone());
        assert!(told.iter().all(|word| word.to_bytes().len() <= MAX_MESSAGE), "too long");
        let again = told.into_iter().flat_map(|word| match word {
            Word::Inside(Message::Accounts { accounts, .. }) => accounts,
            other => panic!("{other:?}"),
        });
        assert_eq!(again.collect::<Vec<_>>(), all);
    }
}
