//! Coming to a group: knock at one of its members, until it opens.

use coplay::time::{Instant, TimeDelta};

use super::message::{Message, Run, Welcome, Word};
use super::{Failure, Group, Manner, Wire};
use crate::clock;
use crate::closed::{Closed, How};
use crate::key::{PeerKey, random};
use crate::mail::Mail;
use crate::party::{self, Knock, Refusal, VERSION, Wish};
use crate::post::Post;
use crate::transport::{Incoming, Place};

/// It is looked this often whether we still want to come in.
const LOOK: TimeDelta = TimeDelta::from_millis(50);

/// Where to knock.
#[derive(Clone, Debug)]
pub struct Approach {
    /// Where somebody of the group may be.
    pub places: Vec<Place>,
    /// Who must answer there, if that is known.
    pub expect: Option<PeerKey>,
    /// We go on knocking so long.
    pub patience: TimeDelta,
}

impl Group {
    /// Knocks, until somebody opens or patience ends. `still` is asked now and then, and ends it with `false`, which is no failure.
    pub fn join(
        wire: Wire,
        approach: &Approach,
        manner: &Manner,
        mut still: impl FnMut() -> bool,
    ) -> Result<Option<Self>, Failure> {
        let mut door = Door::new(Post::new(wire.transport, wire.incoming), approach);
        while still() {
            let now = clock::now();
            door.post.flush(now);
            let wake = now + LOOK;
            if let Some(incoming) = door.post.wait(door.post.timeout().map_or(wake, |due| due.min(wake))) {
                door.take(incoming, &manner.name)?;
            }
            if let Some((host, welcome)) = door.opened.take() {
                let towards = door.post.transport.place_of(&host);
                let mut group = Self::enter(door.post, welcome, manner);
                group.open_channels(manner, towards.as_ref(), wire.queue)?;
                door.told.into_iter().for_each(|(from, word)| group.on_word(now, from, word));
                return Ok(Some(group));
            }
            door.check_patience(now, approach)?;
        }
        Ok(None)
    }
}

/// Standing in front of the door.
struct Door {
    post: Post,
    run: Run,
    since: Instant,
    /// Somebody answered, and has our knock.
    knocked: bool,
    closed: Closed,
    opened: Option<(PeerKey, Welcome)>,
    /// What came right behind that.
    told: Vec<(PeerKey, Word)>,
}

impl Door {
    fn new(post: Post, approach: &Approach) -> Self {
        approach.places.iter().for_each(|place| post.transport.call(place, approach.expect));
        let (run, since, closed) = (random(), clock::now(), Closed::default());
        Self { post, run, since, knocked: false, closed, opened: None, told: Vec::new() }
    }

    fn take(&mut self, incoming: Incoming, name: &str) -> Result<(), Failure> {
        match incoming {
            Incoming::Up { peer, called: Some(_) } => {
                let (name, wish, places) = (name.into(), Wish::Roam(self.run), self.post.own_places());
                let knock = Knock { version: VERSION, name, wish, places };
                self.post.mail(peer, &Word::Door(party::Message::Knock(knock)));
                self.knocked = true;
            }
            Incoming::Datagram { from, bytes, .. } if Mail::is_mail(&bytes) => self.read(from, &bytes)?,
            other => self.closed.note(other),
        }
        Ok(())
    }

    fn read(&mut self, from: PeerKey, bytes: &[u8]) -> Result<(), Failure> {
        for word in self.post.take(from, bytes) {
            match word {
                Word::Inside(Message::Welcome(welcome)) if self.is_ours(&welcome) => {
                    self.opened = Some((from, welcome));
                }
                // Nobody of a group says that somebody else lets people in.
                Word::Door(party::Message::Refused(Refusal::NotMe { .. })) => {
                    return Err(Failure::Refused(Refusal::OtherKind));
                }
                Word::Door(party::Message::Refused(refusal)) => return Err(Failure::Refused(refusal)),
                word if self.opened.is_some() => self.told.push((from, word)),
                Word::Door(_) | Word::Inside(_) => {}
            }
        }
        Ok(())
    }

    /// Whether it is us who are let in, now, and with a number that all others will believe.
    fn is_ours(&self, Welcome { key, you, .. }: &Welcome) -> bool {
        you.run == self.run && you.key == self.post.transport.key() && key.sites(&you.key).any(|site| site == you.site)
    }

    /// Ends the wait when patience does, or as soon as there is nothing to wait for.
    fn check_patience(&self, now: Instant, approach: &Approach) -> Result<(), Failure> {
        let hopeless = self.closed.is_final(approach.places.len()) && !self.knocked;
        if !hopeless && now - self.since < approach.patience {
            return Ok(());
        }
        let somewhere = || approach.places.first().cloned().unwrap_or_else(|| Place("the place in the ticket".into()));
        Err(match self.closed.worst() {
            _ if self.knocked => Failure::Ignored,
            Some((place, How::Stranger)) => Failure::Stranger { place: place.clone() },
            Some((place, how)) => Failure::Unanswered { place: place.clone(), refused: how == How::Refused },
            None => Failure::Unanswered { place: somewhere(), refused: false },
        })
    }
}
