//! The people around a game, as a site sees them: the list and who keeps it, the lobby, the start, and who goes.

use coplay::id::{SiteId, SiteSet};
use coplay::input::Ownership;
use coplay::session::{Session, Settings, State};
use coplay::time::{Instant, TimeDelta};
use coplay_machines::Machine;
use coplay_machines::control::Control;

use super::Drive;
use crate::clock;
use crate::drive::{Failure, Front, News, ping};
use crate::key::{PeerKey, random};
use crate::party::{self, Knock, List, Member, Message, Party, To};
use crate::transport::Place;

/// Who waits for a start and does not hear from the host for so long gives up.
const HOST_PATIENCE: TimeDelta = TimeDelta::from_secs(15);
/// A guest says that it is there this often, until the game begins.
const STILL_HERE: TimeDelta = TimeDelta::from_secs(2);
/// Who is awaited for the start and is not heard of for so long has to come later.
const START_PATIENCE: TimeDelta = TimeDelta::from_secs(6);
/// How far away the others are is measured this often, until the session does it.
const PING_EVERY: TimeDelta = TimeDelta::from_secs(1);
/// Where we can be reached is looked at this often.
const PLACES_EVERY: TimeDelta = TimeDelta::from_secs(5);
/// The last mail gets so long.
const FAREWELL: TimeDelta = TimeDelta::from_millis(800);

impl Drive {
    /// Somebody is not where it was looked for. That is of interest only as long as it was not found elsewhere.
    pub(super) fn note_closed(&self, place: &Place, what: &str, front: &mut dyn Front) {
        let member = self.party.members.iter().find(|member| member.places.contains(place));
        if member.is_some_and(|member| self.post.transport.place_of(&member.key).is_some()) {
            return;
        }
        let note = match member.filter(|member| !member.name.is_empty()) {
            Some(member) => format!("{what} {} ({})", member.name, place.brief()),
            None => format!("{what} {}", place.brief()),
        };
        front.tell(News::Note(note));
    }

    /// Somebody wants to know how far away we are, or answers that.
    pub(super) fn take_ping(&mut self, at: Instant, from: PeerKey, word: ping::Word) {
        if let Some(list) = &mut self.list {
            list.note_heard(at, &from);
        }
        match word {
            ping::Word::Asked { number } => {
                let answer = ping::Word::Answered { number, watchers: self.party.watchers };
                self.post.transport.send(&from, &answer.write());
            }
            ping::Word::Answered { number, .. } => _ = self.pings.on_answer(at, &from, number),
        }
    }

    /// A message came.
    pub(super) fn hear(&mut self, from: PeerKey, message: Message, front: &mut dyn Front) {
        if let Some(list) = &mut self.list {
            let seen = self.post.transport.place_of(&from);
            return list.handle_message(clock::now(), from, message, seen);
        }
        match message {
            Message::Party(party) if party.serial > self.party.serial && self.keeper.believes(&self.party, &from) => {
                self.heard_keeper = clock::now();
                self.party = party;
                self.party_changed(front);
            }
            Message::Knock(knock) => self.on_knock(from, knock),
            _ if self.keeper.key() != from => {}
            Message::Watchers(watchers) => {
                self.heard_keeper = clock::now();
                self.party.watchers = watchers;
                self.show_party(front);
            }
            Message::Chat { name, line } => {
                self.heard_keeper = clock::now();
                front.tell(News::Chat { name: &name, line: &line });
            }
            _ => self.heard_keeper = clock::now(),
        }
    }

    /// Somebody wants to come in, and somebody else keeps the list; unless that is the very one who knocks, because it was started anew.
    fn on_knock(&mut self, from: PeerKey, knock: Knock) {
        if self.keeper.key() == from {
            self.on_keeper_gone(&from);
        }
        if let Some(list) = &mut self.list {
            let seen = self.post.transport.place_of(&from);
            return list.handle_message(clock::now(), from, Message::Knock(knock), seen);
        }
        let keeper = self.keeper.key();
        let member = self.party.members.iter().find(|member| member.key == keeper);
        let told = member.map_or(&[][..], |member| &member.places);
        let places = party::places(told, self.post.transport.place_of(&keeper));
        self.post.mail(from, &Message::Refused(party::Refusal::NotMe { keeper, places }));
    }

    fn party_changed(&mut self, front: &mut dyn Front) {
        self.book.note_party(&self.party);
        // It begins anew, without somebody who did not come.
        if self.session_number != Some(self.party.session) && !self.late {
            self.session = None;
        }
        for member in &self.party.members {
            self.post.call(&member.places, member.key);
        }
        self.show_party(front);
    }

    pub(super) fn show_party(&self, front: &mut dyn Front) {
        front.tell(News::Party(&self.party));
    }

    /// Until the session knows how far away the others are.
    pub(super) fn measure_trips(&mut self, now: Instant) {
        if self.is_running() {
            return self.pings.stop();
        }
        let others = self.party.members.iter().filter(|member| member.here && member.site != self.me);
        let transport = &self.post.transport;
        let send = |to: &PeerKey, bytes: &[u8]| _ = transport.send(to, bytes);
        self.pings.ask(now, PING_EVERY, others.map(|member| member.key), send);
    }

    /// An address may change, and a relay may be found late: then the others must know.
    pub(super) fn look_where_we_are(&mut self, now: Instant) {
        if now < self.next_places {
            return;
        }
        self.next_places = now + PLACES_EVERY;
        let places = self.post.own_places();
        if places == self.told_places {
            return;
        }
        self.told_places.clone_from(&places);
        let me = self.post.transport.key();
        match &mut self.list {
            Some(list) => list.set_places(&me, &places, None),
            None => self.post.mail(self.keeper.key(), &Message::Places(places)),
        }
    }

    /// What the list has to say to others and to us.
    pub(super) fn tend_list(&mut self, front: &mut dyn Front) {
        let Some(list) = &mut self.list else { return };
        list.handle_timeout(clock::now());
        while let Some((to, message)) = list.poll_message() {
            match to {
                To::One(key) => self.post.mail(key, &message),
                To::Watchers { but } => {
                    let watchers = list.watchers().copied().filter(|key| Some(*key) != but);
                    self.post.mail_all(watchers, &message);
                }
            }
        }
        while let Some(event) = list.poll_event() {
            if let party::Event::Chat { name, line } = &event {
                front.tell(News::Chat { name, line });
            }
        }
        let (complete, changed) =
            (list.is_complete() && !list.party().started, list.party().serial != self.party.serial);
        let watchers = list.party().watchers;
        if changed {
            self.party = Party { you: Some(self.me), ..list.party().clone() };
            self.party_changed(front);
        } else if watchers != self.party.watchers {
            self.party.watchers = watchers;
            self.show_party(front);
        }
        if complete {
            self.start();
        }
    }

    /// The host begins with those who are ready; the others can come later.
    pub(super) fn start(&mut self) {
        let Some(list) = self.list.as_mut().filter(|list| !list.party().started) else { return };
        Self::lay_and_start(list, self.hosted.machine());
    }

    fn lay_and_start(list: &mut List, machine: &dyn Machine) {
        let Ok(settings) = Settings::from_bytes(&list.party().terms) else { return };
        let settings = lay_seats(settings, machine, &list.party().members);
        if let Some(terms) = settings.to_bytes() {
            list.start(u64::from_le_bytes(random()) | 1, terms);
        }
    }

    /// Somebody said that it was ready and is not heard of since: the others begin without it.
    pub(super) fn watch_start(&mut self, now: Instant) {
        let Some(State::Lobby { waiting_for }) = self.session.as_ref().map(Session::state) else {
            self.begun = now;
            return;
        };
        let Some(list) = self.list.as_mut().filter(|_| now - self.begun > START_PATIENCE) else { return };
        self.begun = now;
        waiting_for.iter().for_each(|site| list.give_up_on(site.number()));
        Self::lay_and_start(list, self.hosted.machine());
    }

    /// Who waits for a start must know that somebody will give it.
    pub(super) fn watch_keeper(&mut self, now: Instant) -> Result<(), Failure> {
        if self.list.is_some() || self.session.is_some() {
            return Ok(());
        }
        if now >= self.next_sign {
            self.next_sign = now + STILL_HERE;
            self.post.mail(self.keeper.key(), &Message::Ready(true));
        }
        if self.post.is_idle() {
            self.heard_keeper = now;
        }
        if now - self.heard_keeper > HOST_PATIENCE { Err(Failure::HostGone) } else { Ok(()) }
    }

    pub(super) fn set_here(&mut self, site: SiteId, here: bool) {
        if let Some(list) = &mut self.list {
            list.set_here(site.number(), here);
        } else if let Some(member) = self.party.members.iter_mut().find(|member| member.site == site.number()) {
            member.here = here;
        }
    }

    /// A site is gone: for good, or so that it can come back.
    pub(super) fn on_gone(&mut self, site: SiteId, left: bool) {
        self.set_here(site, false);
        let gone = self.party.members.iter().find(|member| member.site == site.number()).map(|member| member.key);
        let Some(gone) = gone else { return };
        self.on_keeper_gone(&gone);
        if let Some(list) = self.list.as_mut().filter(|_| left) {
            list.handle_message(clock::now(), gone, Message::Bye, None);
        }
    }

    /// If this is who kept the list, the next one goes on with it: perhaps we.
    fn on_keeper_gone(&mut self, gone: &PeerKey) {
        if let Some(member) = self.party.members.iter_mut().find(|member| member.key == *gone) {
            member.here = false;
        }
        self.keeper.on_gone(&self.party, gone);
        if self.list.is_none() && self.keeper.key() == self.post.transport.key() {
            self.taken_over = Some(self.party.serial);
            self.list = Some(List::take_over(self.party.clone(), self.seats_of_party()));
        }
    }

    /// The others went on without us, and with the list if it was ours.
    pub(super) fn go_astray(&mut self) {
        self.list = None;
        // Where both of two kept a list, ours leapt when we took it over. Of who keeps it now, every newer one counts.
        self.party.serial = self.taken_over.take().unwrap_or(self.party.serial);
        self.heard_keeper = clock::now();
        self.keeper.on_astray(&self.party, &self.post.transport.key());
    }

    fn seats_of_party(&self) -> (u8, u8) {
        let settings = Settings::from_bytes(&self.party.terms);
        settings.map_or(self.seats, |settings| (settings.site_count, settings.ownership.players() as u8))
    }

    pub(super) fn say_goodbye(&mut self) {
        match &self.list {
            Some(list) => self.post.mail_all(list.watchers().copied(), &Message::Bye),
            None => self.post.mail(self.keeper.key(), &Message::Bye),
        }
        self.post.farewell(FAREWELL);
    }
}

/// Gives every member as many pads as it has people, the seats that are free one each, and everybody the buttons of the machine.
fn lay_seats(mut settings: Settings, machine: &dyn Machine, members: &[Member]) -> Settings {
    let pads = machine.pads();
    let control = pads.len() - 1;
    let mut ownership = Ownership::new(pads.len());
    let mut next = 0..control;
    let mut give = |site: SiteId, count: u8, ownership: &mut Ownership| {
        for player in next.by_ref().take(usize::from(count)) {
            ownership.assign(site, player, pads[player].mask).expect("nobody has it yet");
        }
        let bits = Control::mask(site.index());
        ownership.assign(site, control, bits).expect("every site has bits of its own");
    };
    let sites: Vec<SiteId> = SiteId::first(usize::from(settings.site_count)).collect();
    let member = |site: &SiteId| members.iter().find(|member| member.site == site.number());
    for site in sites.iter().filter(|site| member(site).is_some()) {
        give(*site, member(site).map_or(1, |member| member.pads), &mut ownership);
    }
    for site in sites.iter().filter(|site| member(site).is_none()) {
        give(*site, 1, &mut ownership);
    }
    settings.ownership = ownership;
    let ready = members.iter().filter(|member| member.ready && member.here);
    settings.starting_sites = ready.filter_map(|member| SiteId::new(member.site)).collect::<SiteSet>();
    settings
}
