//! The server: the reference simulators of all objects, and who is told of which.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::cmp::Ordering;

use super::authoritative::AuthoritativeObject;
use super::command_history::CommandReceipt;
use super::encode::{put_motion, put_timer};
use super::peer::{IncarnationOrder, MotionPeer};
use super::{
    ClientId, CommandNumber, MAX_CLIENTS, MAX_OBJECTS, MotionConfig, MotionConfigError, MotionPredictor, ObjectId,
    ObjectMoment, TIMER_UPDATE_INTERVAL,
};
use crate::time::{Instant, TimeDelta};
use crate::wire::motion::{MotionDatagram, MotionItem, MotionItems};
use crate::wire::{BufferFull, DecodeError, MAX_DATAGRAM};

/// Events that nobody asked for yet.
const MAX_EVENTS: usize = 1_024;
/// So often is said at the most that there is no such object: who has not heard it asks again.
const MAX_REMOVAL_NOTICES: u8 = 8;
/// Who is silent for so long is forgotten.
const CLIENT_TIMEOUT: TimeDelta = TimeDelta::from_secs(10);

/// The server of objects that move.
#[derive(Debug)]
pub struct MotionServer<P: MotionPredictor> {
    config: MotionConfig,
    predictor: P,
    now: Instant,
    /// When everything was last brought up to date.
    advanced_at: Instant,
    objects: BTreeMap<ObjectId, AuthoritativeObjectOf<P>>,
    /// Objects appear in this epoch: no object that is gone got there, so none is taken for one that was called the same.
    spawn_epoch: u32,
    clients: BTreeMap<ClientId, ClientRecord>,
    /// Who may have something to be sent.
    clients_due: BTreeSet<ClientId>,
    events: VecDeque<MotionServerEvent>,
    malformed: u64,
}

type AuthoritativeObjectOf<P> = AuthoritativeObject<<P as MotionPredictor>::State, <P as MotionPredictor>::Vector>;

/// Something that happened at a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MotionServerEvent {
    /// A client is heard for the first time, or was started anew.
    ClientJoined(ClientId),
    /// A client said goodbye, or was silent for long. Its objects go on until they are [removed](Server::remove_subscriber) or [given away](Server::assign).
    ClientLeft(ClientId),
    /// A client wants to be told of an object that there is: see [`Server::visible_at`].
    SubscriptionRequested(ClientId, ObjectId),
    /// An object was commanded by its owner.
    ObjectCommanded(ObjectId),
}

/// A client, and what it was told.
#[derive(Debug)]
struct ClientRecord {
    peer: MotionPeer,
    subscriptions: BTreeMap<ObjectId, ObjectSubscription>,
}

/// What a client was told of an object.
#[derive(Clone, Copy, Debug, Default)]
struct ObjectSubscription {
    /// The newest command that it has.
    acked: Option<CommandNumber>,
    /// The newest command that was sent to it.
    last_sent: Option<CommandNumber>,
    /// When it was last told anything of it.
    last_sent_at: Option<Instant>,
    /// Its command came, and is to be answered.
    is_answer_due: bool,
    /// It is to believe that there is no such object.
    is_hidden: bool,
    /// How often it was told that there is none.
    removal_notices: u8,
}

/// What is to be said of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ObjectMessage {
    Removed,
    Motion,
    Answer,
    TimerUpdate,
}

impl ObjectSubscription {
    /// It asked for what is not there: that is answered once, or who asks for much would make us say much.
    const UNKNOWN_OBJECT: Self = Self {
        acked: None,
        last_sent: None,
        last_sent_at: None,
        is_answer_due: false,
        is_hidden: false,
        removal_notices: MAX_REMOVAL_NOTICES - 1,
    };

    fn next_message(
        &self,
        now: Instant,
        newest: Option<CommandNumber>,
        repeat_after: TimeDelta,
    ) -> Option<ObjectMessage> {
        let passed = self.last_sent_at.map_or(TimeDelta::MAX, |at| now - at);
        match newest {
            None => (passed >= repeat_after).then_some(ObjectMessage::Removed),
            Some(newest) if self.acked.is_none_or(|acked| acked < newest) => {
                (self.last_sent != Some(newest) || passed >= repeat_after).then_some(ObjectMessage::Motion)
            }
            Some(_) if self.is_answer_due => Some(ObjectMessage::Answer),
            Some(_) => (passed >= TIMER_UPDATE_INTERVAL).then_some(ObjectMessage::TimerUpdate),
        }
    }
}

impl<P: MotionPredictor> MotionServer<P> {
    /// A server without objects.
    pub fn new(now: Instant, config: MotionConfig, predictor: P) -> Result<Self, MotionConfigError> {
        config.check()?;
        Ok(Self {
            config,
            predictor,
            now,
            advanced_at: now,
            objects: BTreeMap::new(),
            spawn_epoch: 0,
            clients: BTreeMap::new(),
            clients_due: BTreeSet::new(),
            events: VecDeque::new(),
            malformed: 0,
        })
    }

    /// How motion is shared.
    pub fn config(&self) -> &MotionConfig {
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
        if self.objects.len() >= MAX_OBJECTS {
            return false;
        }
        self.objects.insert(object, AuthoritativeObject::new(self.now, owner, self.spawn_epoch, state, vector));
        // What anybody was told is of another object.
        self.clients
            .values_mut()
            .filter_map(|guest| guest.subscriptions.get_mut(&object))
            .for_each(|told| *told = ObjectSubscription::default());
        owner.into_iter().for_each(|owner| self.show(owner, object));
        true
    }

    /// From now on this client commands an object, or the server itself. Commands of who did before that are under way do not count.
    pub fn transfer_ownership(&mut self, object: ObjectId, owner: Option<ClientId>) {
        let Some(reference) = self.objects.get_mut(&object) else { return };
        if reference.owner != owner {
            reference.transfer_ownership(self.now, owner, &self.predictor, &self.config);
            self.mark_subscribers_due(object);
        }
        owner.into_iter().for_each(|owner| self.show(owner, object));
    }

    /// There is no such object any more; who knows of it is told.
    pub fn remove(&mut self, object: ObjectId) {
        if let Some(reference) = self.objects.remove(&object) {
            self.spawn_epoch = self.spawn_epoch.max(reference.next_epoch());
            self.mark_subscribers_due(object);
        }
    }

    /// The server itself commands an object, whatever its owner wants; commands of the owner that are under way do not count.
    pub fn command(&mut self, now: Instant, object: ObjectId, vector: P::Vector) {
        self.advance(now);
        if let Some(reference) = self.objects.get_mut(&object) {
            reference.command(self.now, vector, &self.predictor, &self.config);
        }
        self.mark_subscribers_due(object);
    }

    /// The server puts an object somewhere else, whatever its owner wants; commands of the owner that are under way do not count.
    pub fn place(&mut self, now: Instant, object: ObjectId, state: P::State, vector: P::Vector) {
        self.advance(now);
        if let Some(reference) = self.objects.get_mut(&object) {
            reference.place(self.now, state, vector);
        }
        self.mark_subscribers_due(object);
    }

    /// A client is told of an object from now on, if both are known.
    pub fn show(&mut self, client: ClientId, object: ObjectId) {
        if let Some(guest) = self.clients.get_mut(&client).filter(|_| self.objects.contains_key(&object)) {
            let told = guest.subscriptions.entry(object).or_default();
            if told.is_hidden {
                *told = ObjectSubscription::default();
            }
            self.clients_due.insert(client);
        }
    }

    /// A client is not told of an object any more: as if there were none.
    pub fn hide(&mut self, client: ClientId, object: ObjectId) {
        if let Some(told) = self.clients.get_mut(&client).and_then(|guest| guest.subscriptions.get_mut(&object)) {
            *told = ObjectSubscription { is_hidden: true, ..ObjectSubscription::default() };
            self.clients_due.insert(client);
        }
    }

    fn mark_subscribers_due(&mut self, object: ObjectId) {
        let concerned = self.clients.iter().filter(|(_, guest)| guest.subscriptions.contains_key(&object));
        let concerned: Vec<ClientId> = concerned.map(|(client, _)| *client).collect();
        self.clients_due.extend(concerned);
    }

    /// Brings everything up to now: to be called once in a frame.
    pub fn advance(&mut self, now: Instant) {
        self.now = self.now.max(now);
        if self.now <= self.advanced_at {
            return;
        }
        let now = self.now;
        self.advanced_at = now;
        for reference in self.objects.values_mut() {
            reference.advance(now, &self.predictor, &self.config);
        }
        let silent = self.clients.iter().filter(|(_, guest)| now - guest.peer.last_received_at >= CLIENT_TIMEOUT);
        let silent: Vec<ClientId> = silent.map(|(client, _)| *client).collect();
        silent.into_iter().for_each(|client| self.remove_client(client));
        self.clients_due.extend(self.clients.keys());
    }

    /// A client is no more.
    pub fn remove_client(&mut self, client: ClientId) {
        if self.clients.remove(&client).is_some() {
            self.clients_due.remove(&client);
            self.push_event(MotionServerEvent::ClientLeft(client));
        }
    }

    /// Takes in what a client sent. Bytes that make no sense are dropped, and counted.
    pub fn handle_datagram(&mut self, now: Instant, client: ClientId, bytes: &[u8]) {
        self.now = self.now.max(now);
        if self.handle_items(client, bytes).is_err() {
            self.malformed += 1;
        }
    }

    fn handle_items(&mut self, client: ClientId, bytes: &[u8]) -> Result<(), DecodeError> {
        let items = MotionItems::new(bytes)?;
        let head = items.header();
        if !self.clients.contains_key(&client) && self.clients.len() >= MAX_CLIENTS {
            return Ok(());
        }
        let now = self.now;
        let guest = self
            .clients
            .entry(client)
            .or_insert_with(|| ClientRecord { peer: MotionPeer::new(now), subscriptions: BTreeMap::new() });
        match guest.peer.on_head(now, head) {
            IncarnationOrder::Stale => return Ok(()),
            IncarnationOrder::Same => {}
            IncarnationOrder::New => self.on_client_restart(client),
        }
        self.clients_due.insert(client);
        if ![0, self.config.incarnation].contains(&head.receiver_incarnation) {
            // It is for an earlier run of ours: what it knows it does not know from us. An echo tells it that we are another.
            self.clients.get_mut(&client).into_iter().for_each(|guest| guest.peer.on_probe());
            return Ok(());
        }
        let mut start = None;
        for item in items {
            self.on_item(client, head.sent_at, item?, &mut start)?;
        }
        Ok(())
    }

    fn on_client_restart(&mut self, client: ClientId) {
        if let Some(guest) = self.clients.get_mut(&client) {
            guest.subscriptions.clear();
            let own = self.objects.iter().filter(|(_, reference)| reference.owner == Some(client));
            guest.subscriptions.extend(own.map(|(object, _)| (*object, ObjectSubscription::default())));
        }
        self.push_event(MotionServerEvent::ClientJoined(client));
    }

    fn on_item(
        &mut self,
        client: ClientId,
        sent: Instant,
        item: MotionItem<'_>,
        start: &mut Option<(ObjectId, CommandNumber, P::State)>,
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
                let owner = self.clients.get(&client).map(|guest| &guest.peer);
                let own = self.objects.get_mut(&object).filter(|reference| reference.owner == Some(client));
                if let (Some(owner), Some(reference)) = (owner, own) {
                    reference.start_segment_timer(now, sent, timer, since, (owner, &self.config));
                }
            }
            MotionItem::Ack { object, number, .. } => {
                let told = self.clients.get_mut(&client).and_then(|guest| guest.subscriptions.get_mut(&object));
                if let (Some(told), Some(reference)) = (told, self.objects.get(&object)) {
                    told.acked = Some(number.min(reference.newest_number())).max(told.acked);
                }
            }
            MotionItem::Subscribe(object) => self.on_subscribe(client, object),
            MotionItem::Unsubscribe(object) => {
                self.clients.get_mut(&client).into_iter().for_each(|guest| _ = guest.subscriptions.remove(&object));
            }
            MotionItem::Echo { sent: ours, received } => {
                if let Some(guest) = self.clients.get_mut(&client) {
                    guest.peer.on_echo(now, ours, received, sent);
                }
            }
            MotionItem::Probe => self.clients.get_mut(&client).into_iter().for_each(|guest| guest.peer.on_probe()),
            MotionItem::Leave => self.remove_client(client),
            MotionItem::Removed { .. } => return Err(DecodeError::Malformed),
        }
        Ok(())
    }

    fn on_command(
        &mut self,
        client: ClientId,
        object: ObjectId,
        command: (CommandNumber, TimeDelta, P::Vector),
        start: Option<P::State>,
    ) -> Result<(), DecodeError> {
        let number = command.0;
        let own = self.objects.get_mut(&object).filter(|reference| reference.owner == Some(client));
        let Some(reference) = own else { return Ok(()) };
        match number.epoch.cmp(&reference.newest_number().epoch) {
            // It was under way when the server decided otherwise.
            Ordering::Less => return Ok(()),
            Ordering::Equal => {}
            // Nobody but the server begins an epoch.
            Ordering::Greater => return Err(DecodeError::Malformed),
        }
        let heard = reference.on_owner_command(self.now, command, start, (&self.predictor, &self.config));
        if heard == CommandReceipt::Gap {
            return Ok(());
        }
        if let Some(told) = self.clients.get_mut(&client).and_then(|guest| guest.subscriptions.get_mut(&object)) {
            told.acked = Some(number).max(told.acked);
            told.is_answer_due = true;
        }
        if heard == CommandReceipt::New {
            self.mark_subscribers_due(object);
            self.push_event(MotionServerEvent::ObjectCommanded(object));
        }
        Ok(())
    }

    /// Who asks again has not heard, whatever we believe.
    fn on_subscribe(&mut self, client: ClientId, object: ObjectId) {
        let now = self.now;
        let Some(guest) = self.clients.get_mut(&client) else { return };
        let repeat_after = guest.peer.retransmit_timeout();
        let is_there = self.objects.contains_key(&object);
        if let Some(told) = guest.subscriptions.get_mut(&object).filter(|told| !told.is_hidden) {
            if told.last_sent_at.is_none_or(|at| now - at >= repeat_after) {
                *told = if is_there { ObjectSubscription::default() } else { ObjectSubscription::UNKNOWN_OBJECT };
            }
        } else if is_there {
            self.push_event(MotionServerEvent::SubscriptionRequested(client, object));
        } else if guest.subscriptions.len() < MAX_OBJECTS {
            guest.subscriptions.insert(object, ObjectSubscription::UNKNOWN_OBJECT);
        }
    }

    /// The next datagram to be sent, if there is one: to whom, and its length. The buffer should have room for [`MAX_DATAGRAM`] bytes.
    pub fn poll_transmit(&mut self, now: Instant, buf: &mut [u8]) -> Option<(ClientId, usize)> {
        self.advance(now);
        let room = buf.len().min(MAX_DATAGRAM);
        while let Some(client) = self.clients_due.first().copied() {
            if let Some(len) = self.encode_datagram(client, &mut buf[..room]) {
                return Some((client, len));
            }
            self.clients_due.remove(&client);
        }
        None
    }

    fn encode_datagram(&mut self, client: ClientId, buf: &mut [u8]) -> Option<usize> {
        let guest = self.clients.get_mut(&client)?;
        let head = guest.peer.head(self.now, self.config.incarnation);
        let mut datagram = MotionDatagram::new(buf, head).ok()?;
        let echo = guest.peer.pending_echo();
        let is_wanted = guest.peer.put_echo(&mut datagram).ok()?;
        let begun = datagram.len();
        let repeat_after = guest.peer.retransmit_timeout();
        for (object, told) in &mut guest.subscriptions {
            let there = self.objects.get(object);
            let subject = there
                .filter(|_| !told.is_hidden)
                .ok_or_else(|| there.map_or(self.spawn_epoch, AuthoritativeObject::next_epoch));
            let newest = subject.ok().map(AuthoritativeObject::newest_number);
            let Some(say) = told.next_message(self.now, newest, repeat_after) else { continue };
            // What has no room goes with the next one.
            if put_object_message(&mut datagram, &self.predictor, (*object, subject), say, told, self.now).is_err() {
                break;
            }
            (told.last_sent_at, told.last_sent, told.is_answer_due) = (Some(self.now), newest, false);
            told.removal_notices += u8::from(say == ObjectMessage::Removed);
        }
        guest.subscriptions.retain(|_, told| told.removal_notices < MAX_REMOVAL_NOTICES);
        if datagram.len() > begun || (is_wanted && !datagram.is_empty()) {
            return Some(datagram.len());
        }
        guest.peer.restore_echo(echo);
        None
    }

    /// When there may be something to send again, unless something arrives.
    pub fn poll_timeout(&self) -> Instant {
        let soonest = self.clients.values().map(|guest| guest.peer.retransmit_timeout()).min();
        self.now + soonest.unwrap_or(TIMER_UPDATE_INTERVAL)
    }

    /// An object at a time that is not past.
    pub fn moment_at(&self, now: Instant, object: ObjectId) -> Option<ObjectMoment<P::State>> {
        Some(self.objects.get(&object)?.moment_at(now.max(self.now), &self.predictor, &self.config))
    }

    /// The motion of an object as it was commanded last.
    pub fn vector(&self, object: ObjectId) -> Option<&P::Vector> {
        Some(&self.objects.get(&object)?.simulator().commands.newest().vector)
    }

    /// All objects.
    pub fn objects(&self) -> impl Iterator<Item = ObjectId> {
        self.objects.keys().copied()
    }

    /// Who commands an object; nobody if the server does.
    pub fn owner(&self, object: ObjectId) -> Option<ClientId> {
        self.objects.get(&object)?.owner
    }

    /// All clients.
    pub fn clients(&self) -> impl Iterator<Item = ClientId> {
        self.clients.keys().copied()
    }

    /// A client's clock, and the way to it.
    pub fn clock(&self, client: ClientId) -> Option<&crate::clock::Clock> {
        self.clients.get(&client).map(|guest| &guest.peer.clock)
    }

    /// Something that happened since this was last asked.
    pub fn poll_event(&mut self) -> Option<MotionServerEvent> {
        self.events.pop_front()
    }

    fn push_event(&mut self, event: MotionServerEvent) {
        if self.events.len() >= MAX_EVENTS {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    /// Datagrams that made no sense.
    pub fn malformed(&self) -> u64 {
        self.malformed
    }

    /// Bytes on the heap, roughly: it is bounded, whatever arrives.
    pub fn memory(&self) -> usize {
        let reference = |one: &AuthoritativeObjectOf<P>| size_of_val(one) + one.memory();
        let guest = |guest: &ClientRecord| {
            size_of::<ClientRecord>()
                + guest.peer.memory()
                + guest.subscriptions.len() * size_of::<(ObjectId, ObjectSubscription)>()
        };
        let references: usize = self.objects.values().map(reference).sum();
        let guests: usize = self.clients.values().map(guest).sum();
        references + guests + self.events.capacity() * size_of::<MotionServerEvent>()
    }
}

/// Says something of an object, or from which epoch on there could be one.
fn put_object_message<P: MotionPredictor>(
    datagram: &mut MotionDatagram<'_>,
    predictor: &P,
    (object, subject): (ObjectId, Result<&AuthoritativeObjectOf<P>, u32>),
    say: ObjectMessage,
    told: &ObjectSubscription,
    now: Instant,
) -> Result<(), BufferFull> {
    let reference = match subject {
        Ok(reference) => reference,
        Err(epoch) => return datagram.put(MotionItem::Removed { object, epoch }),
    };
    let (number, progress) = (reference.newest_number(), reference.progress(now));
    match say {
        ObjectMessage::Removed | ObjectMessage::Motion => {
            put_motion(datagram, predictor, object, reference.simulator().commands.commands_since(told.acked), progress)
        }
        ObjectMessage::Answer => {
            datagram.put(MotionItem::Ack { object, number, sent: reference.command_sent_at })?;
            put_timer(datagram, object, number, progress)
        }
        ObjectMessage::TimerUpdate => put_timer(datagram, object, number, progress),
    }
}
