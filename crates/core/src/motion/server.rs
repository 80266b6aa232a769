//! The server: the reference simulators of all objects, and who is told of which.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::cmp::Ordering;

use super::course::Heard;
use super::peer::{Peer, Run};
use super::reference::Reference;
use super::speak::{put_motion, put_timer};
use super::{BEAT, ClientId, Config, ConfigError, MAX_CLIENTS, MAX_OBJECTS, Moment, Number, ObjectId, Predictor};
use crate::time::{Instant, TimeDelta};
use crate::wire::motion::{MotionDatagram, MotionItem, MotionItems};
use crate::wire::{BufferFull, DecodeError, MAX_DATAGRAM};

/// Events that nobody asked for yet.
const MAX_EVENTS: usize = 1_024;
/// So often is said at the most that there is no such object: who has not heard it asks again.
const MOST_GONE: u8 = 8;
/// Who is silent for so long is forgotten.
const FORGET: TimeDelta = TimeDelta::from_secs(10);

/// The server of objects that move.
#[derive(Debug)]
pub struct Server<P: Predictor> {
    config: Config,
    predictor: P,
    now: Instant,
    /// When everything was last brought up to date.
    advanced: Instant,
    references: BTreeMap<ObjectId, ReferenceOf<P>>,
    /// Objects appear in this epoch: no object that is gone got there, so none is taken for one that was called the same.
    epoch: u32,
    guests: BTreeMap<ClientId, Guest>,
    /// Who may have something to be sent.
    due: BTreeSet<ClientId>,
    events: VecDeque<ServerEvent>,
    refused: u64,
}

type ReferenceOf<P> = Reference<<P as Predictor>::State, <P as Predictor>::Vector>;

/// Something that happened at a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerEvent {
    /// A client is heard for the first time, or was started anew.
    Came(ClientId),
    /// A client said goodbye, or was silent for long. Its objects go on until they are [removed](Server::remove) or [given away](Server::assign).
    Left(ClientId),
    /// A client wants to be told of an object that there is: see [`Server::show`].
    Wanted(ClientId, ObjectId),
    /// An object was commanded by its owner.
    Commanded(ObjectId),
}

/// A client, and what it was told.
#[derive(Debug)]
struct Guest {
    peer: Peer,
    told: BTreeMap<ObjectId, Told>,
}

/// What a client was told of an object.
#[derive(Clone, Copy, Debug, Default)]
struct Told {
    /// The newest command that it has.
    acked: Option<Number>,
    /// The newest command that was sent to it.
    sent: Option<Number>,
    /// When it was last told anything of it.
    at: Option<Instant>,
    /// Its command came, and is to be answered.
    is_answer_due: bool,
    /// It is to believe that there is no such object.
    is_hidden: bool,
    /// How often it was told that there is none.
    gone: u8,
}

/// What is to be said of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Say {
    Gone,
    Motion,
    Answer,
    Beat,
}

impl Told {
    /// It asked for what is not there: that is answered once, or who asks for much would make us say much.
    const IN_VAIN: Self =
        Self { acked: None, sent: None, at: None, is_answer_due: false, is_hidden: false, gone: MOST_GONE - 1 };

    fn what(&self, now: Instant, newest: Option<Number>, repeat_after: TimeDelta) -> Option<Say> {
        let passed = self.at.map_or(TimeDelta::MAX, |at| now - at);
        match newest {
            None => (passed >= repeat_after).then_some(Say::Gone),
            Some(newest) if self.acked.is_none_or(|acked| acked < newest) => {
                (self.sent != Some(newest) || passed >= repeat_after).then_some(Say::Motion)
            }
            Some(_) if self.is_answer_due => Some(Say::Answer),
            Some(_) => (passed >= BEAT).then_some(Say::Beat),
        }
    }
}

impl<P: Predictor> Server<P> {
    /// A server without objects.
    pub fn new(now: Instant, config: Config, predictor: P) -> Result<Self, ConfigError> {
        config.check()?;
        Ok(Self {
            config,
            predictor,
            now,
            advanced: now,
            references: BTreeMap::new(),
            epoch: 0,
            guests: BTreeMap::new(),
            due: BTreeSet::new(),
            events: VecDeque::new(),
            refused: 0,
        })
    }

    /// How motion is shared.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// An object begins here. A client commands it, or the server itself. Whether there was room for it. One that was called the same is no more.
    pub fn spawn(
        &mut self,
        now: Instant,
        object: ObjectId,
        owner: Option<ClientId>,
        state: P::State,
        vector: P::Vector,
    ) -> bool {
        self.advance(now);
        self.remove(object);
        if self.references.len() >= MAX_OBJECTS {
            return false;
        }
        self.references.insert(object, Reference::new(self.now, owner, self.epoch, state, vector));
        // What anybody was told is of another object.
        self.guests
            .values_mut()
            .filter_map(|guest| guest.told.get_mut(&object))
            .for_each(|told| *told = Told::default());
        owner.into_iter().for_each(|owner| self.show(owner, object));
        true
    }

    /// From now on this client commands an object, or the server itself. Commands of who did before that are under way do not count.
    pub fn give(&mut self, object: ObjectId, owner: Option<ClientId>) {
        let Some(reference) = self.references.get_mut(&object) else { return };
        if reference.owner != owner {
            reference.give(self.now, owner, &self.predictor, &self.config);
            self.on_changed(object);
        }
        owner.into_iter().for_each(|owner| self.show(owner, object));
    }

    /// There is no such object any more; who knows of it is told.
    pub fn remove(&mut self, object: ObjectId) {
        if let Some(reference) = self.references.remove(&object) {
            self.epoch = self.epoch.max(reference.next_epoch());
            self.on_changed(object);
        }
    }

    /// The server itself commands an object, whatever its owner wants; commands of the owner that are under way do not count.
    pub fn command(&mut self, now: Instant, object: ObjectId, vector: P::Vector) {
        self.advance(now);
        if let Some(reference) = self.references.get_mut(&object) {
            reference.command(self.now, vector, &self.predictor, &self.config);
        }
        self.on_changed(object);
    }

    /// The server puts an object somewhere else, whatever its owner wants; commands of the owner that are under way do not count.
    pub fn place(&mut self, now: Instant, object: ObjectId, state: P::State, vector: P::Vector) {
        self.advance(now);
        if let Some(reference) = self.references.get_mut(&object) {
            reference.place(self.now, state, vector);
        }
        self.on_changed(object);
    }

    /// A client is told of an object from now on, if both are known.
    pub fn show(&mut self, client: ClientId, object: ObjectId) {
        if let Some(guest) = self.guests.get_mut(&client).filter(|_| self.references.contains_key(&object)) {
            let told = guest.told.entry(object).or_default();
            if told.is_hidden {
                *told = Told::default();
            }
            self.due.insert(client);
        }
    }

    /// A client is not told of an object any more: as if there were none.
    pub fn hide(&mut self, client: ClientId, object: ObjectId) {
        if let Some(told) = self.guests.get_mut(&client).and_then(|guest| guest.told.get_mut(&object)) {
            *told = Told { is_hidden: true, ..Told::default() };
            self.due.insert(client);
        }
    }

    fn on_changed(&mut self, object: ObjectId) {
        let concerned = self.guests.iter().filter(|(_, guest)| guest.told.contains_key(&object));
        let concerned: Vec<ClientId> = concerned.map(|(client, _)| *client).collect();
        self.due.extend(concerned);
    }

    /// Brings everything up to now: to be called once in a frame.
    pub fn advance(&mut self, now: Instant) {
        self.now = self.now.max(now);
        if self.now <= self.advanced {
            return;
        }
        let now = self.now;
        self.advanced = now;
        for reference in self.references.values_mut() {
            reference.advance(now, &self.predictor, &self.config);
        }
        let silent = self.guests.iter().filter(|(_, guest)| now - guest.peer.heard >= FORGET);
        let silent: Vec<ClientId> = silent.map(|(client, _)| *client).collect();
        silent.into_iter().for_each(|client| self.forget(client));
        self.due.extend(self.guests.keys());
    }

    /// A client is no more.
    pub fn forget(&mut self, client: ClientId) {
        if self.guests.remove(&client).is_some() {
            self.due.remove(&client);
            self.tell(ServerEvent::Left(client));
        }
    }

    /// Takes in what a client sent. Bytes that make no sense are dropped, and counted.
    pub fn handle_datagram(&mut self, now: Instant, client: ClientId, bytes: &[u8]) {
        self.now = self.now.max(now);
        if self.take_in(client, bytes).is_err() {
            self.refused += 1;
        }
    }

    fn take_in(&mut self, client: ClientId, bytes: &[u8]) -> Result<(), DecodeError> {
        let items = MotionItems::new(bytes)?;
        let head = items.header();
        if !self.guests.contains_key(&client) && self.guests.len() >= MAX_CLIENTS {
            return Ok(());
        }
        let now = self.now;
        let guest = self.guests.entry(client).or_insert_with(|| Guest { peer: Peer::new(now), told: BTreeMap::new() });
        match guest.peer.on_head(now, head) {
            Run::Past => return Ok(()),
            Run::Same => {}
            Run::New => self.on_client_anew(client),
        }
        self.due.insert(client);
        if ![0, self.config.run].contains(&head.receiver_incarnation) {
            // It is for an earlier run of ours: what it knows it does not know from us. An echo tells it that we are another.
            self.guests.get_mut(&client).into_iter().for_each(|guest| guest.peer.on_probe());
            return Ok(());
        }
        let mut start = None;
        for item in items {
            self.on_item(client, head.sent_at, item?, &mut start)?;
        }
        Ok(())
    }

    fn on_client_anew(&mut self, client: ClientId) {
        if let Some(guest) = self.guests.get_mut(&client) {
            guest.told.clear();
            let own = self.references.iter().filter(|(_, reference)| reference.owner == Some(client));
            guest.told.extend(own.map(|(object, _)| (*object, Told::default())));
        }
        self.tell(ServerEvent::Came(client));
    }

    fn on_item(
        &mut self,
        client: ClientId,
        sent: Instant,
        item: MotionItem<'_>,
        start: &mut Option<(ObjectId, Number, P::State)>,
    ) -> Result<(), DecodeError> {
        let now = self.now;
        match item {
            MotionItem::StartState { object, number, state } => {
                let state = self.predictor.decode_state(state).ok_or(DecodeError::Malformed)?;
                *start = Some((object, number, state));
            }
            MotionItem::Command { object, number, previous_segment: leg, vector } => {
                let vector = self.predictor.decode_vector(vector).ok_or(DecodeError::Malformed)?;
                let start = start.take().filter(|start| (start.0, start.1) == (object, number)).map(|start| start.2);
                self.on_command(client, object, (number, leg, vector), start)?;
            }
            MotionItem::Timer { object, timer, command_age: since, .. } => {
                let owner = self.guests.get(&client).map(|guest| &guest.peer);
                let own = self.references.get_mut(&object).filter(|reference| reference.owner == Some(client));
                if let (Some(owner), Some(reference)) = (owner, own) {
                    reference.begin(now, sent, timer, since, (owner, &self.config));
                }
            }
            MotionItem::Ack { object, number, .. } => {
                let told = self.guests.get_mut(&client).and_then(|guest| guest.told.get_mut(&object));
                if let (Some(told), Some(reference)) = (told, self.references.get(&object)) {
                    told.acked = Some(number.min(reference.newest())).max(told.acked);
                }
            }
            MotionItem::Subscribe(object) => self.on_watch(client, object),
            MotionItem::Unsubscribe(object) => {
                self.guests.get_mut(&client).into_iter().for_each(|guest| _ = guest.told.remove(&object));
            }
            MotionItem::Echo { sent: ours, received } => {
                if let Some(guest) = self.guests.get_mut(&client) {
                    guest.peer.on_echo(now, ours, received, sent);
                }
            }
            MotionItem::Probe => self.guests.get_mut(&client).into_iter().for_each(|guest| guest.peer.on_probe()),
            MotionItem::Leave => self.forget(client),
            MotionItem::Removed { .. } => return Err(DecodeError::Malformed),
        }
        Ok(())
    }

    fn on_command(
        &mut self,
        client: ClientId,
        object: ObjectId,
        command: (Number, TimeDelta, P::Vector),
        start: Option<P::State>,
    ) -> Result<(), DecodeError> {
        let number = command.0;
        let own = self.references.get_mut(&object).filter(|reference| reference.owner == Some(client));
        let Some(reference) = own else { return Ok(()) };
        match number.epoch.cmp(&reference.newest().epoch) {
            // It was under way when the server decided otherwise.
            Ordering::Less => return Ok(()),
            Ordering::Equal => {}
            // Nobody but the server begins an epoch.
            Ordering::Greater => return Err(DecodeError::Malformed),
        }
        let heard = reference.hear(self.now, command, start, (&self.predictor, &self.config));
        if heard == Heard::Missing {
            return Ok(());
        }
        if let Some(told) = self.guests.get_mut(&client).and_then(|guest| guest.told.get_mut(&object)) {
            told.acked = Some(number).max(told.acked);
            told.is_answer_due = true;
        }
        if heard == Heard::New {
            self.on_changed(object);
            self.tell(ServerEvent::Commanded(object));
        }
        Ok(())
    }

    /// Who asks again has not heard, whatever we believe.
    fn on_watch(&mut self, client: ClientId, object: ObjectId) {
        let now = self.now;
        let Some(guest) = self.guests.get_mut(&client) else { return };
        let repeat_after = guest.peer.repeat_after();
        let is_there = self.references.contains_key(&object);
        if let Some(told) = guest.told.get_mut(&object).filter(|told| !told.is_hidden) {
            if told.at.is_none_or(|at| now - at >= repeat_after) {
                *told = if is_there { Told::default() } else { Told::IN_VAIN };
            }
        } else if is_there {
            self.tell(ServerEvent::Wanted(client, object));
        } else if guest.told.len() < MAX_OBJECTS {
            guest.told.insert(object, Told::IN_VAIN);
        }
    }

    /// The next datagram to be sent, if there is one: to whom, and its length. The buffer should have room for [`MAX_DATAGRAM`] bytes.
    pub fn poll_transmit(&mut self, now: Instant, buf: &mut [u8]) -> Option<(ClientId, usize)> {
        self.advance(now);
        let room = buf.len().min(MAX_DATAGRAM);
        while let Some(client) = self.due.first().copied() {
            if let Some(len) = self.datagram_to(client, &mut buf[..room]) {
                return Some((client, len));
            }
            self.due.remove(&client);
        }
        None
    }

    fn datagram_to(&mut self, client: ClientId, buf: &mut [u8]) -> Option<usize> {
        let guest = self.guests.get_mut(&client)?;
        let head = guest.peer.head(self.now, self.config.run);
        let mut datagram = MotionDatagram::new(buf, head).ok()?;
        let echo = guest.peer.echo();
        let is_wanted = guest.peer.put_echo(&mut datagram).ok()?;
        let begun = datagram.len();
        let repeat_after = guest.peer.repeat_after();
        for (object, told) in &mut guest.told {
            let there = self.references.get(object);
            let subject =
                there.filter(|_| !told.is_hidden).ok_or_else(|| there.map_or(self.epoch, Reference::next_epoch));
            let newest = subject.ok().map(Reference::newest);
            let Some(say) = told.what(self.now, newest, repeat_after) else { continue };
            // What has no room goes with the next one.
            if put(&mut datagram, &self.predictor, (*object, subject), say, told, self.now).is_err() {
                break;
            }
            (told.at, told.sent, told.is_answer_due) = (Some(self.now), newest, false);
            told.gone += u8::from(say == Say::Gone);
        }
        guest.told.retain(|_, told| told.gone < MOST_GONE);
        if datagram.len() > begun || (is_wanted && !datagram.is_empty()) {
            return Some(datagram.len());
        }
        guest.peer.keep_echo(echo);
        None
    }

    /// When there may be something to send again, unless something arrives.
    pub fn poll_timeout(&self) -> Instant {
        let soonest = self.guests.values().map(|guest| guest.peer.repeat_after()).min();
        self.now + soonest.unwrap_or(BEAT)
    }

    /// An object at a time that is not past.
    pub fn at(&self, now: Instant, object: ObjectId) -> Option<Moment<P::State>> {
        Some(self.references.get(&object)?.at(now.max(self.now), &self.predictor, &self.config))
    }

    /// The motion of an object as it was commanded last.
    pub fn vector(&self, object: ObjectId) -> Option<&P::Vector> {
        Some(&self.references.get(&object)?.simulator().course.newest().vector)
    }

    /// All objects.
    pub fn objects(&self) -> impl Iterator<Item = ObjectId> {
        self.references.keys().copied()
    }

    /// Who commands an object; nobody if the server does.
    pub fn owner(&self, object: ObjectId) -> Option<ClientId> {
        self.references.get(&object)?.owner
    }

    /// All clients.
    pub fn clients(&self) -> impl Iterator<Item = ClientId> {
        self.guests.keys().copied()
    }

    /// A client's clock, and the way to it.
    pub fn clock(&self, client: ClientId) -> Option<&crate::clock::Clock> {
        self.guests.get(&client).map(|guest| &guest.peer.clock)
    }

    /// Something that happened since this was last asked.
    pub fn poll_event(&mut self) -> Option<ServerEvent> {
        self.events.pop_front()
    }

    fn tell(&mut self, event: ServerEvent) {
        if self.events.len() >= MAX_EVENTS {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    /// Datagrams that made no sense.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Bytes on the heap, roughly: it is bounded, whatever arrives.
    pub fn memory(&self) -> usize {
        let reference = |one: &ReferenceOf<P>| size_of_val(one) + one.memory();
        let guest =
            |guest: &Guest| size_of::<Guest>() + guest.peer.memory() + guest.told.len() * size_of::<(ObjectId, Told)>();
        let references: usize = self.references.values().map(reference).sum();
        let guests: usize = self.guests.values().map(guest).sum();
        references + guests + self.events.capacity() * size_of::<ServerEvent>()
    }
}

/// Says something of an object, or from which epoch on there could be one.
fn put<P: Predictor>(
    datagram: &mut MotionDatagram<'_>,
    predictor: &P,
    (object, subject): (ObjectId, Result<&ReferenceOf<P>, u32>),
    say: Say,
    told: &Told,
    now: Instant,
) -> Result<(), BufferFull> {
    let reference = match subject {
        Ok(reference) => reference,
        Err(epoch) => return datagram.put(MotionItem::Removed { object, epoch }),
    };
    let (number, progress) = (reference.newest(), reference.progress(now));
    match say {
        Say::Gone | Say::Motion => {
            put_motion(datagram, predictor, object, reference.simulator().course.since(told.acked), progress)
        }
        Say::Answer => {
            datagram.put(MotionItem::Ack { object, number, sent: reference.brought })?;
            put_timer(datagram, object, number, progress)
        }
        Say::Beat => put_timer(datagram, object, number, progress),
    }
}
