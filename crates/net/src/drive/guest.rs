//! Coming to a game: knock, hear the terms, find the game, sit down.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use coplay::session::Settings;
use coplay::time::{Instant, TimeDelta};
use coplay_machines::control::Controlled;
use coplay_machines::{Machine, hosted};

use super::site::{Drive, Manner};
use super::{Command, Failure, Front, News};
use crate::clock;
use crate::closed::{Closed, How};
use crate::key::PeerKey;
use crate::mail::Mail;
use crate::party::{Knock, Message, Party, Refusal, VERSION, Wish};
use crate::post::Post;
use crate::transport::{Incoming, Place, Transport};

/// How to come to a game.
#[derive(Clone, Debug)]
pub struct JoinPlan {
    /// What to call us.
    pub name: String,
    /// What we want.
    pub wish: Wish,
    /// Where the host may be, or anybody else of the game.
    pub places: Vec<Place>,
    /// Who must answer there, if that is known.
    pub expect: Option<PeerKey>,
    /// We go on knocking so long.
    pub patience: TimeDelta,
}

/// Somebody who was let in and has not sat down yet.
pub struct Guest {
    pub(super) post: Post,
    pub(super) party: Party,
    pub(super) settings: Settings,
    pub(super) host: PeerKey,
    pub(super) name: String,
    /// Where we said that we can be reached.
    places: Vec<Place>,
}

impl Guest {
    /// Knocks, until somebody opens or patience ends. The front end may quit meanwhile, which is no failure and gives `None`.
    pub fn knock(
        transport: Arc<dyn Transport>,
        incoming: Receiver<Incoming>,
        plan: &JoinPlan,
        front: &mut dyn Front,
    ) -> Result<Option<Self>, Failure> {
        let mut door = Door::new(Post::new(transport, incoming), plan);
        loop {
            while let Some(command) = front.poll() {
                if command == Command::Quit {
                    return Ok(None);
                }
            }
            let now = clock::now();
            door.post.flush(now);
            let wake = now + TimeDelta::from_millis(50);
            if let Some(incoming) = door.post.wait(door.post.timeout().map_or(wake, |due| due.min(wake))) {
                door.take(incoming, plan)?;
            }
            if let Some((host, party)) = door.opened.take() {
                let settings = Settings::from_bytes(&party.terms).map_err(|_| Failure::Terms)?;
                settings.check().map_err(Failure::Settings)?;
                front.tell(News::Party(&party));
                let (post, name, places) = (door.post, plan.name.clone(), door.places);
                return Ok(Some(Self { post, party, settings, host, name, places }));
            }
            door.check_patience(now, plan)?;
        }
    }

    /// What is played, and how.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Who is around.
    pub fn party(&self) -> &Party {
        &self.party
    }

    /// Goes away again, and gives the seat back.
    pub fn leave(mut self) {
        self.post.mail(self.host, &Message::Bye);
        self.post.farewell(TimeDelta::from_millis(500));
    }

    /// Takes the seat with a machine of our own, which must be the one that the host has.
    pub fn sit_down(mut self, machine: Box<dyn Machine>, manner: Manner) -> Result<Drive, Failure> {
        let machine = Controlled::new(machine);
        let differences = differences(&self.settings, &machine);
        if !differences.is_empty() {
            self.post.mail(self.host, &Message::Bye);
            self.post.farewell(TimeDelta::from_millis(500));
            return Err(Failure::Different(differences));
        }
        let me = self.party.you.ok_or(Failure::Refused(Refusal::Full))?;
        self.post.mail(self.host, &Message::Ready(true));
        let others = self.party.members.iter().map(|member| (member.places.clone(), member.key));
        others.for_each(|(places, key)| self.post.call(&places, key));
        let mut drive = Drive::new(self.post, machine, (self.party, self.host), me, self.name, manner);
        drive.told_places = self.places;
        Ok(drive)
    }
}

/// Everything in which our machine and game are not those of the host.
pub(super) fn differences(theirs: &Settings, machine: &dyn Machine) -> Vec<String> {
    let ours = hosted::settings(machine, hosted::Terms::new(theirs.site_count));
    let same = Settings { game: ours.game, machine: ours.machine, rate: ours.rate, ..theirs.clone() };
    let players = check_players(theirs, machine).err();
    same.differences(theirs).iter().map(ToString::to_string).chain(players).collect()
}

/// Refuses settings that have another number of players than the machine. The host can change the settings until the game starts, so
/// this is checked again then.
pub(super) fn check_players(theirs: &Settings, machine: &dyn Machine) -> Result<(), String> {
    match (machine.pads().len(), theirs.ownership.players()) {
        (ours, theirs) if ours == theirs => Ok(()),
        (ours, theirs) => Err(format!("the number of players differs: {ours} here, {theirs} there")),
    }
}

/// Standing in front of the door.
struct Door {
    post: Post,
    since: Instant,
    /// Somebody answered, and has our knock.
    knocked: bool,
    /// Whom we asked because somebody else, who does not let people in, said so.
    sent_to: BTreeSet<PeerKey>,
    closed: Closed,
    /// Where we say that we can be reached.
    places: Vec<Place>,
    opened: Option<(PeerKey, Party)>,
}

impl Door {
    fn new(post: Post, plan: &JoinPlan) -> Self {
        plan.places.iter().for_each(|place| post.transport.call(place, plan.expect));
        let places = post.own_places();
        let (since, sent_to, closed) = (clock::now(), BTreeSet::new(), Closed::default());
        Self { post, since, knocked: false, sent_to, closed, places, opened: None }
    }

    fn take(&mut self, incoming: Incoming, plan: &JoinPlan) -> Result<(), Failure> {
        match incoming {
            Incoming::Up { peer, called: Some(_) } => {
                self.places = self.post.own_places();
                let (name, places) = (plan.name.clone(), self.places.clone());
                let knock = Knock { version: VERSION, name, wish: plan.wish, places };
                self.post.mail(peer, &Message::Knock(knock));
                self.knocked = true;
            }
            Incoming::Datagram { from, bytes, .. } if Mail::is_mail(&bytes) => {
                for message in self.post.take(from, &bytes) {
                    match message {
                        Message::Party(party) => self.opened = Some((from, party)),
                        Message::Refused(Refusal::NotMe { keeper, places }) => self.ask(keeper, &places),
                        Message::Refused(refusal) => return Err(Failure::Refused(refusal)),
                        _ => {}
                    }
                }
            }
            other => self.closed.note(other),
        }
        Ok(())
    }

    /// Somebody else of the same game may open; nobody is asked twice.
    fn ask(&mut self, keeper: PeerKey, places: &[Place]) {
        if self.sent_to.insert(keeper) {
            places.iter().for_each(|place| self.post.transport.call(place, Some(keeper)));
        }
    }

    /// Ends the wait when patience does, or as soon as there is nothing to wait for.
    fn check_patience(&self, now: Instant, plan: &JoinPlan) -> Result<(), Failure> {
        let hopeless = self.closed.is_final(plan.places.len()) && !self.knocked;
        if !hopeless && now - self.since < plan.patience {
            return Ok(());
        }
        let somewhere = || plan.places.first().cloned().unwrap_or_else(|| Place("the host's place".into()));
        Err(match self.closed.worst() {
            _ if self.knocked => Failure::HostGone,
            Some((place, How::Stranger)) => Failure::Stranger { place: place.clone() },
            Some((place, how)) => Failure::Unanswered { place: place.clone(), refused: how == How::Refused },
            None => Failure::Unanswered { place: somewhere(), refused: false },
        })
    }
}
