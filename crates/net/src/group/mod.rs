//! A group of sites without a server: each can send a datagram to all others, to those who want to hear of a region, or to one.
//!
//! Whoever knows the ticket of any of them knocks there and is let in; then it calls all others, so that there is a secured channel
//! between any two. Whoever founded the group may leave, and the rest goes on. Everybody keeps a list, and lists are merged.
//!
//! What is for many is sent once where [multicast](Multicast) gets through, and to one after the other where it does not. Each
//! site tells each other one every second whether it hears it by multicast: this *beat* also shows that it is there. So a pair between which
//! multicast is lost falls back to their channel within some seconds, and only that pair.
//!
//! What comes by a channel is from the member that it says. What comes by multicast is from one of the group, and any of
//! them can have made it: see `seal`. So nothing of the list is ever told by multicast.

mod counts;
mod door;
mod event;
mod failure;
mod hearing;
mod hearsay;
mod list;
mod message;
mod multicast;
mod people;
mod seal;

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender};

use coplay::peer_world::WorldRegion;
use coplay::time::{Instant, TimeDelta};
use coplay::wire::MAX_DATAGRAM;

use crate::clock;
use crate::impair::{Impairment, Outbox};
use crate::key::{PeerKey, random};
use crate::mail::Mail;
use crate::party::{MAX_NAME, tidy};
use crate::post::Post;
use crate::transport::{Incoming, Place, Transport};
use hearing::Hearing;
use list::List;
use message::{Account, Message, Welcome, Word};
use multicast::{ALL, Channels, channel_of, interface_towards};
use seal::{GroupKey, Opener, Sealer};

pub use counts::{Counts, Traffic};
pub use door::Approach;
pub use event::{Dest, Event, Member, Why};
pub use failure::Failure;
pub use multicast::{Multicast, MulticastError, USUAL};
pub use seal::Unfit;

/// The most sites of a group. If several let somebody in at the same moment there may be a few more; nobody is put out for that.
pub const MAX_SITES: usize = 64;
/// The longest terms.
pub const MAX_TERMS: usize = 1_000;
/// The longest datagram.
pub const MAX_BYTES: usize = MAX_DATAGRAM - 1;

/// The first byte of a datagram on a channel: something of the game, or whether the sender hears us by multicast.
const GAME: u8 = 0x44;
const BEAT: u8 = 0x45;

/// What is due is looked after this often.
const LOOK: TimeDelta = TimeDelta::from_millis(50);
/// Who looked so long ago was asleep.
const ASLEEP: TimeDelta = TimeDelta::from_secs(3);
/// Something is sent by multicast at least this often, so that the others know whether they hear it.
const BEACON: TimeDelta = TimeDelta::from_millis(500);
/// However late we are, so many things that came are taken at a time.
const MOST_LATE: usize = 64;
/// The last mail gets so long.
const FAREWELL: TimeDelta = TimeDelta::from_millis(800);

/// What carries a group.
pub struct Wire {
    /// What carries datagrams between two.
    pub transport: Arc<dyn Transport>,
    /// What comes in.
    pub incoming: Receiver<Incoming>,
    /// The other end of that: what comes by multicast goes there, too.
    pub queue: SyncSender<Incoming>,
}

/// How to take part.
#[derive(Clone, Debug, Default)]
pub struct Manner {
    /// What to call us.
    pub name: String,
    /// How to reach many at once, if at all.
    pub multicast: Option<Multicast>,
    /// As if what comes by multicast came over worse links, one from each sender. Channels are impaired where they are
    /// [made](crate::impair::Impaired).
    pub impairment: Option<Impairment>,
}

/// One site of a group. It belongs to one thread, which calls [`poll`](Self::poll) all the time.
pub struct Group {
    post: Post,
    key: GroupKey,
    terms: Vec<u8>,
    list: List,
    hearing: Hearing,
    /// Where the group meets by multicast, if it does; and our own way to that, if there is one.
    meets: Option<SocketAddrV4>,
    channels: Option<Channels>,
    /// The interface is the one that leads to the others.
    follows: bool,
    /// What comes by multicast and is still under way, if that is to be impaired.
    under_way: Option<Outbox>,
    events: VecDeque<Event>,
    counts: Counts,
    next_look: Instant,
    last_look: Instant,
    next_beacon: Instant,
    next_round: Instant,
    /// Who was told of all when it was last somebody's turn.
    last_round: Option<PeerKey>,
    next_places: Instant,
}

impl Group {
    /// Founds a group of our own, with nobody else in it yet.
    pub fn found(wire: Wire, terms: &[u8], manner: &Manner) -> Result<Self, Failure> {
        if terms.len() > MAX_TERMS {
            return Err(Failure::Terms);
        }
        let (key, me) = (GroupKey::random(), wire.transport.key());
        let site = key.site(&me, 0);
        let post = Post::new(wire.transport, wire.incoming);
        let places = post.own_places();
        let you = Account { stamp: 1, key: me, site, run: random(), name: tidy(&manner.name, MAX_NAME), places };
        let multicast = manner.multicast.as_ref().map(|multicast| multicast.group);
        let towards = you.places.first().cloned();
        let mut group = Self::enter(post, Welcome { key, terms: terms.to_vec(), multicast, you }, manner);
        group.open_channels(manner, towards.as_ref(), wire.queue)?;
        if group.channels.is_none() {
            group.meets = None;
        }
        Ok(group)
    }

    fn enter(post: Post, welcome: Welcome, manner: &Manner) -> Self {
        let now = clock::now();
        Self {
            post,
            list: List::new(welcome.key.clone(), welcome.you),
            key: welcome.key,
            terms: welcome.terms,
            hearing: Hearing::default(),
            meets: welcome.multicast,
            channels: None,
            follows: manner.multicast.as_ref().is_some_and(|multicast| multicast.interface.is_none()),
            under_way: manner.impairment.clone().map(|impairment| Outbox::new(now, impairment)),
            events: VecDeque::new(),
            counts: Counts::default(),
            next_look: now,
            last_look: now,
            next_beacon: now,
            next_round: now,
            last_round: None,
            next_places: now,
        }
    }

    /// Begins with multicast, as far as it is wanted and works.
    fn open_channels(
        &mut self,
        manner: &Manner,
        towards: Option<&Place>,
        queue: SyncSender<Incoming>,
    ) -> Result<(), Failure> {
        let Some(wanted) = &manner.multicast else { return Ok(()) };
        let opened = self.meets.ok_or(MulticastError::Unused).and_then(|group| {
            let interface = wanted.interface.or_else(|| towards.and_then(interface_towards));
            let (site, run) = (self.list.me().site, self.list.me().run);
            let keys = (Sealer::new(&self.key, site, run), Opener::new(&self.key, site));
            Channels::open(group, interface.unwrap_or(Ipv4Addr::UNSPECIFIED), keys, queue)
        });
        match opened {
            Ok(channels) => self.channels = Some(channels),
            Err(error) if wanted.required => return Err(Failure::Multicast(error)),
            Err(MulticastError::Unused) => {}
            Err(error) => self.events.push_back(Event::NoMulticast(error)),
        }
        Ok(())
    }

    /// Our number.
    pub fn site(&self) -> u32 {
        self.list.me().site
    }

    /// What was agreed on when the group was founded.
    pub fn terms(&self) -> &[u8] {
        &self.terms
    }

    /// All who are here, ourselves first.
    pub fn members(&self) -> impl Iterator<Item = Member> {
        self.list.members()
    }

    /// Where the group meets by multicast, if we take part in that.
    pub fn multicast(&self) -> Option<SocketAddrV4> {
        self.meets.filter(|_| self.channels.is_some())
    }

    /// Whether a site hears by multicast what we send.
    pub fn is_heard_by(&self, now: Instant, site: u32) -> bool {
        self.channels.is_some() && self.hearing.hears_us(now, site)
    }

    /// What was sent and received so far.
    pub fn counts(&self) -> Counts {
        let (unfit, crowded_out) = self.channels.as_ref().map(Channels::refused).unwrap_or_default();
        Counts { unfit, crowded_out, refused: self.post.transport.refused(), ..self.counts }
    }

    /// Listens to what is sent to these regions, beside what is for all; without any, to what is sent to any region. Who hears more than
    /// that must bear it: it may come one by one.
    pub fn listen_to(&mut self, regions: &[WorldRegion]) {
        let listens = self.channels.as_mut().map_or(Ok(()), |channels| channels.listen_to(regions));
        if let Err(error) = listens {
            // Who misses a region must be sent everything one by one.
            self.channels = None;
            self.events.push_back(Event::NoMulticast(error));
        }
    }

    /// Sends a datagram at once. The timestamp is for who looks at RTP headers: a clock of 90,000 ticks a second.
    pub fn send(&mut self, now: Instant, to: &Dest<'_>, timestamp: u32, bytes: &[u8]) {
        if bytes.len() > MAX_BYTES {
            self.counts.too_long += 1;
            return;
        }
        match to {
            Dest::All => {
                let sites: Vec<u32> = self.list.here().map(|(_, site)| site).collect();
                self.send_to_many(now, ALL, timestamp, bytes, &sites);
            }
            Dest::Region { region, sites } => self.send_to_many(now, channel_of(*region), timestamp, bytes, sites),
            Dest::These(sites) => self.send_one_by_one(bytes, sites.iter().copied()),
            Dest::One(site) => self.send_one_by_one(bytes, [*site]),
        }
    }

    /// By multicast, if anybody hears us there, and one by one to those who do not.
    fn send_to_many(&mut self, now: Instant, channel: u8, timestamp: u32, bytes: &[u8], sites: &[u32]) {
        let anybody = self.list.here().any(|(_, site)| self.is_heard_by(now, site));
        let cast = anybody && self.cast(now, channel, timestamp, bytes);
        let deaf: Vec<u32> = sites.iter().copied().filter(|site| !cast || !self.is_heard_by(now, *site)).collect();
        self.send_one_by_one(bytes, deaf);
    }

    fn cast(&mut self, now: Instant, channel: u8, timestamp: u32, bytes: &[u8]) -> bool {
        let sent = self.channels.as_mut().and_then(|channels| channels.send(channel, timestamp, bytes));
        sent.into_iter().for_each(|len| self.counts.multicast.count(len));
        if sent.is_some() && channel == ALL {
            self.next_beacon = now + BEACON;
        }
        sent.is_some()
    }

    fn send_one_by_one(&mut self, bytes: &[u8], sites: impl IntoIterator<Item = u32>) {
        let datagram = [&[GAME], bytes].concat();
        for site in sites {
            let key = self.list.key_of(site);
            if key.is_some_and(|key| self.post.transport.send(&key, &datagram)) {
                self.counts.sent.count(bytes.len());
            }
        }
    }

    /// The next thing that happens, if it does before the deadline.
    pub fn poll(&mut self, deadline: Instant) -> Option<Event> {
        let mut late = 0;
        loop {
            let now = clock::now();
            self.look_after(now);
            if let Some(event) = self.events.pop_front() {
                return Some(event);
            }
            late += usize::from(now >= deadline);
            if late > MOST_LATE {
                return None;
            }
            match self.post.wait(self.wake().min(deadline)) {
                Some(incoming) => self.take(incoming),
                None if clock::now() >= deadline => return None,
                None => {}
            }
        }
    }

    /// When there is something to do at the latest.
    fn wake(&self) -> Instant {
        let under_way = self.under_way.as_ref().and_then(Outbox::poll_timeout);
        [self.post.timeout(), under_way].into_iter().flatten().fold(self.next_look, Instant::min)
    }

    /// Says goodbye, and sees that the others hear it. Nothing can be done with the group after that.
    pub fn leave(mut self) {
        let others: Vec<PeerKey> = self.list.here().map(|(key, _)| key).collect();
        self.post.mail_all(others, &Word::Inside(Message::Bye));
        self.post.farewell(FAREWELL);
    }

    /// Does what is due.
    fn look_after(&mut self, now: Instant) {
        while let Some((from, bytes)) = self.under_way.as_mut().and_then(|under_way| under_way.poll_transmit(now)) {
            self.hear_multicast(now, from, bytes);
        }
        if now >= self.next_look {
            self.next_look = now + LOOK;
            self.look_around(now);
        }
        self.tell_events();
        self.post.flush(now);
    }

    fn tell_events(&mut self) {
        while let Some(event) = self.list.poll_event() {
            match &event {
                Event::Came { member, .. } => {
                    self.follow(&member.key);
                    self.tell_fresh_of(&member.key);
                }
                Event::Went { site, .. } => self.hearing.forget(*site),
                Event::Datagram { .. } | Event::NoMulticast(_) => {}
            }
            self.events.push_back(event);
        }
    }

    /// As long as nobody hears us by multicast, whoever comes shows on which interface that may change.
    fn follow(&mut self, key: &PeerKey) {
        let now = clock::now();
        let lonely = !self.list.here().any(|(_, site)| self.hearing.hears_us(now, site));
        let Some(channels) = self.channels.as_mut().filter(|_| self.follows && lonely) else { return };
        let interface = self.post.transport.place_of(key).as_ref().and_then(interface_towards);
        if let Some(interface) = interface.filter(|interface| *interface != channels.interface()) {
            channels.move_to(interface);
        }
    }

    fn take(&mut self, incoming: Incoming) {
        match incoming {
            Incoming::Datagram { from, bytes, .. } if Mail::is_mail(&bytes) => self.take_mail(from, &bytes),
            Incoming::Datagram { at, from, bytes } => self.take_datagram(at, from, &bytes),
            Incoming::Multicast { at, site, bytes } => self.take_multicast(at, site, bytes),
            Incoming::Up { peer, .. } => self.on_up(peer),
            Incoming::Unanswered { .. } | Incoming::Stranger { .. } => {}
        }
    }

    fn take_datagram(&mut self, at: Instant, key: PeerKey, bytes: &[u8]) {
        match (self.list.on_heard(at, &key), bytes) {
            (Some(from), [GAME, bytes @ ..]) => {
                self.counts.received.count(bytes.len());
                self.tell_events();
                self.events.push_back(Event::Datagram { at, from, bytes: bytes.to_vec() });
            }
            (Some(from), [BEAT, hears @ (0 | 1)]) => self.hearing.on_beat(at, from, *hears == 1),
            _ => self.counts.strange += 1,
        }
    }

    fn take_multicast(&mut self, at: Instant, site: u32, bytes: Vec<u8>) {
        // It was in the list when it came; in the meantime it may have left.
        let Some(key) = self.list.key_of(site) else { return };
        match &mut self.under_way {
            Some(under_way) => under_way.send(at, key, &bytes),
            None => self.hear_multicast(at, key, bytes),
        }
    }

    fn hear_multicast(&mut self, at: Instant, key: PeerKey, bytes: Vec<u8>) {
        let Some(from) = self.list.site_of(&key) else { return };
        self.hearing.on_multicast(at, from);
        // Nothing in it: it is only there to be heard. And who is not here on its channel has not come yet, or has gone.
        if !bytes.is_empty() && self.list.is_here(&key) {
            self.counts.heard.count(bytes.len());
            self.events.push_back(Event::Datagram { at, from, bytes });
        }
    }
}
