//! The server: the reference simulators of all objects, and the clients' subscriptions to them.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::cmp::Ordering;

use super::authoritative::AuthoritativeObject;
use super::command_history::CommandReceipt;
use super::encode::{put_motion, put_timer};
use super::peer::{IncarnationOrder, MotionPeer};
use super::{
    ClientId, CommandNumber, MAX_CLIENTS, MAX_OBJECTS, MAX_UNKNOWN_OBJECTS, MotionConfig, MotionConfigError,
    MotionPredictor, ObjectId, ObjectMoment, TIMER_UPDATE_INTERVAL,
};
use crate::codec::{BufferFull, DecodeError, MAX_DATAGRAM};
use crate::motion::message::{MotionDatagramWriter, MotionItem, MotionItems};
use crate::time::{Instant, TimeDelta};

/// Maximum number of queued events; beyond it the oldest are discarded.
const MAX_EVENTS: usize = 1_024;
/// Maximum number of removal notices per client and object; a client that missed all of them subscribes again.
const MAX_REMOVAL_NOTICES: u8 = 8;
/// Silence after which a client is removed.
const CLIENT_TIMEOUT: TimeDelta = TimeDelta::from_secs(10);

/// Server of moving objects: it runs their reference simulators and sends updates to the clients.
#[derive(Debug)]
pub struct MotionServer<P: MotionPredictor> {
    config: MotionConfig,
    predictor: P,
    now: Instant,
    /// Time up to which all objects were last advanced.
    advanced_at: Instant,
    objects: BTreeMap<ObjectId, AuthoritativeObjectOf<P>>,
    /// Epoch of newly spawned objects. No removed object has reached it, so a new object is never mistaken for an
    /// earlier one with the same id.
    spawn_epoch: u32,
    clients: BTreeMap<ClientId, ClientRecord>,
    /// Clients to which a datagram may be due.
    clients_due: BTreeSet<ClientId>,
    /// Whether a datagram may be due to any client.
    are_all_due: bool,
    events: VecDeque<MotionServerEvent>,
    malformed: u64,
}

type AuthoritativeObjectOf<P> = AuthoritativeObject<<P as MotionPredictor>::State, <P as MotionPredictor>::Vector>;

/// An event for the host program of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MotionServerEvent {
    /// A client sent its first datagram, or its first one after it restarted, left, timed out or was removed.
    ClientJoined(ClientId),
    /// A client said goodbye, timed out or was removed. Its objects move on until they are
    /// [removed](MotionServer::remove) or [transferred](MotionServer::transfer_ownership).
    ClientLeft(ClientId),
    /// A client requests updates of an existing object that it does not receive yet or that is hidden from it;
    /// [`MotionServer::show`] grants them.
    SubscriptionRequested(ClientId, ObjectId),
    /// This command arrived from the client that controls the object, and was applied.
    ObjectCommanded(ObjectId, CommandNumber),
}

/// A client and its subscriptions.
#[derive(Debug)]
struct ClientRecord {
    peer: MotionPeer,
    subscriptions: BTreeMap<ObjectId, ObjectSubscription>,
}

/// State of the updates of one object to one client.
#[derive(Clone, Copy, Debug, Default)]
struct ObjectSubscription {
    /// Newest command that the client has acknowledged or issued.
    acked: Option<CommandNumber>,
    /// Newest command that was sent to the client.
    last_sent: Option<CommandNumber>,
    /// Time of the last message to the client about the object.
    last_sent_at: Option<Instant>,
    /// Whether a command of the client arrived and must be answered.
    is_answer_due: bool,
    /// Whether the object is hidden from the client, as if it did not exist.
    is_hidden: bool,
    /// Number of removal notices sent to the client.
    removal_notices: u8,
}

/// Kind of a message to a client about an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ObjectMessage {
    Removed,
    Motion,
    Answer,
    TimerUpdate,
}

impl ObjectSubscription {
    /// Subscription to an object that does not exist. It is answered once, so that a client with many requests does not
    /// cause many messages.
    const UNKNOWN_OBJECT: Self = Self {
        acked: None,
        last_sent: None,
        last_sent_at: None,
        is_answer_due: false,
        is_hidden: false,
        removal_notices: MAX_REMOVAL_NOTICES - 1,
    };

    /// Returns whether the client may receive the object: it exists, was shown to the client, and is not hidden since.
    fn is_granted(&self) -> bool {
        !self.is_hidden && self.removal_notices == 0
    }

    fn next_message(
        &self,
        now: Instant,
        newest: Option<CommandNumber>,
        retransmit_timeout: TimeDelta,
    ) -> Option<ObjectMessage> {
        let elapsed = self.last_sent_at.map_or(TimeDelta::MAX, |at| now - at);
        match newest {
            None => (elapsed >= retransmit_timeout).then_some(ObjectMessage::Removed),
            Some(newest) if self.acked.is_none_or(|acked| acked < newest) => {
                (self.last_sent != Some(newest) || elapsed >= retransmit_timeout).then_some(ObjectMessage::Motion)
            }
            Some(_) if self.is_answer_due => Some(ObjectMessage::Answer),
            Some(_) => (elapsed >= TIMER_UPDATE_INTERVAL).then_some(ObjectMessage::TimerUpdate),
        }
    }
}

impl<P: MotionPredictor> MotionServer<P> {
    /// Creates a server without objects. Fails if [`MotionConfig::check`] does.
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
            are_all_due: false,
            events: VecDeque::new(),
            malformed: 0,
        })
    }

    /// Returns the settings passed to [`MotionServer::new`].
    pub fn config(&self) -> &MotionConfig {
        &self.config
    }

    /// Spawns an object, controlled by the client `owner` or, with `None`, by the server. Replaces an object with the
    /// same id. Returns false if there are [`MAX_OBJECTS`] other objects.
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
        // Where clients are not trusted, a client that asked for an object that did not exist, or was hidden from it,
        // must be granted this one.
        let must_be_granted = self.config.owner_tolerance.is_some();
        for record in self.clients.values_mut() {
            if must_be_granted && record.subscriptions.get(&object).is_some_and(|known| !known.is_granted()) {
                record.subscriptions.remove(&object);
            }
            // Everything that clients have received so far was about another object.
            let granted = record.subscriptions.get_mut(&object);
            granted.into_iter().for_each(|subscription| *subscription = ObjectSubscription::default());
        }
        owner.into_iter().for_each(|owner| self.show(owner, object));
        true
    }

    /// Transfers control of an object to a client or, with `None`, to the server. Commands of the previous owner that
    /// are in flight are void. The new owner receives updates of the object from now on.
    pub fn transfer_ownership(&mut self, object: ObjectId, owner: Option<ClientId>) {
        let Some(reference) = self.objects.get_mut(&object) else { return };
        if reference.owner != owner {
            reference.transfer_ownership(self.now, owner, &self.predictor, &self.config);
            self.are_all_due = true;
        }
        owner.into_iter().for_each(|owner| self.show(owner, object));
    }

    /// Removes an object and notifies the clients that receive updates of it.
    pub fn remove(&mut self, object: ObjectId) {
        if let Some(reference) = self.objects.remove(&object) {
            self.spawn_epoch = self.spawn_epoch.max(reference.next_epoch());
            self.are_all_due = true;
        }
    }

    /// Commands an object on behalf of the server, overruling its owner, whose commands in flight are void.
    pub fn command(&mut self, now: Instant, object: ObjectId, vector: P::Vector) {
        self.advance(now);
        if let Some(reference) = self.objects.get_mut(&object) {
            reference.command(self.now, vector, &self.predictor, &self.config);
        }
        self.are_all_due = true;
    }

    /// Places an object in another state, overruling its owner, whose commands in flight are void.
    pub fn place(&mut self, now: Instant, object: ObjectId, state: P::State, vector: P::Vector) {
        self.advance(now);
        if let Some(reference) = self.objects.get_mut(&object) {
            reference.place(self.now, state, vector);
        }
        self.are_all_due = true;
    }

    /// Sends updates of an object to a client from now on, if both exist.
    pub fn show(&mut self, client: ClientId, object: ObjectId) {
        if let Some(record) = self.clients.get_mut(&client).filter(|_| self.objects.contains_key(&object)) {
            let subscription = record.subscriptions.entry(object).or_default();
            if subscription.is_hidden {
                *subscription = ObjectSubscription::default();
            }
            self.clients_due.insert(client);
        }
    }

    /// Hides an object from a client that receives updates of it, as if the object had been removed.
    pub fn hide(&mut self, client: ClientId, object: ObjectId) {
        if let Some(subscription) =
            self.clients.get_mut(&client).and_then(|record| record.subscriptions.get_mut(&object))
        {
            *subscription = ObjectSubscription { is_hidden: true, ..ObjectSubscription::default() };
            self.clients_due.insert(client);
        }
    }

    /// Advances all objects to `now`, and removes the clients that were silent for 10 s. Must be called once per frame.
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
        let silent = self.clients.iter().filter(|(_, record)| now - record.peer.last_received_at >= CLIENT_TIMEOUT);
        let silent: Vec<ClientId> = silent.map(|(client, _)| *client).collect();
        silent.into_iter().for_each(|client| self.remove_client(client));
        self.are_all_due = true;
    }

    /// Removes a client and its subscriptions, and reports [`MotionServerEvent::ClientLeft`]. Its objects remain.
    pub fn remove_client(&mut self, client: ClientId) {
        if self.clients.remove(&client).is_some() {
            self.clients_due.remove(&client);
            self.push_event(MotionServerEvent::ClientLeft(client));
        }
    }

    /// Handles a datagram from a client. A malformed one is counted, and ignored from its first malformed item on.
    pub fn handle_datagram(&mut self, now: Instant, client: ClientId, bytes: &[u8]) {
        self.now = self.now.max(now);
        if self.handle_items(client, bytes).is_err() {
            self.malformed += 1;
        }
    }

    fn handle_items(&mut self, client: ClientId, bytes: &[u8]) -> Result<(), DecodeError> {
        let items = MotionItems::new(bytes)?;
        let header = items.header();
        if !self.clients.contains_key(&client) && self.clients.len() >= MAX_CLIENTS {
            return Ok(());
        }
        let now = self.now;
        let record = self
            .clients
            .entry(client)
            .or_insert_with(|| ClientRecord { peer: MotionPeer::new(now), subscriptions: BTreeMap::new() });
        match record.peer.on_header(now, header) {
            IncarnationOrder::Stale => return Ok(()),
            IncarnationOrder::Same => {}
            IncarnationOrder::New => self.on_client_restart(client),
        }
        self.clients_due.insert(client);
        if ![0, self.config.incarnation].contains(&header.receiver_incarnation) {
            // The datagram is for an earlier incarnation of this server, so the client's knowledge does not come from
            // this one. An echo reveals the new incarnation.
            self.clients.get_mut(&client).into_iter().for_each(|record| record.peer.on_probe());
            return Ok(());
        }
        let mut start = None;
        for item in items {
            self.on_item(client, header.sent_at, item?, &mut start)?;
        }
        Ok(())
    }

    fn on_client_restart(&mut self, client: ClientId) {
        if let Some(record) = self.clients.get_mut(&client) {
            record.subscriptions.clear();
            let own = self.objects.iter().filter(|(_, reference)| reference.owner == Some(client));
            record.subscriptions.extend(own.map(|(object, _)| (*object, ObjectSubscription::default())));
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
            MotionItem::Command { object, number, previous_segment, vector } => {
                let vector = self.predictor.decode_vector(vector).ok_or(DecodeError::Malformed)?;
                let start = start.take().filter(|start| (start.0, start.1) == (object, number)).map(|start| start.2);
                self.on_command(client, object, (number, previous_segment, vector), start)?;
            }
            MotionItem::Timer { object, timer, command_age, .. } => {
                let owner = self.clients.get(&client).map(|record| &record.peer);
                let own = self.objects.get_mut(&object).filter(|reference| reference.owner == Some(client));
                if let (Some(owner), Some(reference)) = (owner, own) {
                    reference.start_segment_timer(now, sent, timer, command_age, (owner, &self.config));
                }
            }
            MotionItem::Ack { object, number, .. } => {
                let subscription =
                    self.clients.get_mut(&client).and_then(|record| record.subscriptions.get_mut(&object));
                if let (Some(subscription), Some(reference)) = (subscription, self.objects.get(&object)) {
                    subscription.acked = Some(number.min(reference.newest_number())).max(subscription.acked);
                }
            }
            MotionItem::Subscribe(object) => self.on_subscribe(client, object),
            MotionItem::Unsubscribe(object) => {
                self.clients.get_mut(&client).into_iter().for_each(|record| _ = record.subscriptions.remove(&object));
            }
            MotionItem::Echo { sent: ours, received } => {
                if let Some(record) = self.clients.get_mut(&client) {
                    record.peer.on_echo(now, ours, received, sent);
                }
            }
            MotionItem::Probe => self.clients.get_mut(&client).into_iter().for_each(|record| record.peer.on_probe()),
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
            // The command was in flight when the server decided otherwise.
            Ordering::Less => return Ok(()),
            Ordering::Equal => {}
            // Only the server starts an epoch.
            Ordering::Greater => return Err(DecodeError::Malformed),
        }
        let receipt = reference.on_owner_command(self.now, command, start, (&self.predictor, &self.config));
        if receipt == CommandReceipt::Gap {
            return Ok(());
        }
        if let Some(subscription) =
            self.clients.get_mut(&client).and_then(|record| record.subscriptions.get_mut(&object))
        {
            subscription.acked = Some(number).max(subscription.acked);
            subscription.is_answer_due = true;
        }
        if receipt == CommandReceipt::New {
            self.are_all_due = true;
            self.push_event(MotionServerEvent::ObjectCommanded(object, number));
        }
        Ok(())
    }

    /// Handles a subscription request: queues [`MotionServerEvent::SubscriptionRequested`] if the object exists and is
    /// not sent to the client, and a removal notice if the object is unknown. If updates of the object are sent to the
    /// client, but none within the retransmit timeout, the client has not received the earlier ones, and its
    /// subscription starts over.
    fn on_subscribe(&mut self, client: ClientId, object: ObjectId) {
        let now = self.now;
        let Some(record) = self.clients.get_mut(&client) else { return };
        let retransmit_timeout = record.peer.retransmit_timeout();
        let exists = self.objects.contains_key(&object);
        if let Some(subscription) = record.subscriptions.get_mut(&object).filter(|subscription| !subscription.is_hidden)
        {
            if subscription.last_sent_at.is_none_or(|at| now - at >= retransmit_timeout) {
                *subscription = if exists { ObjectSubscription::default() } else { ObjectSubscription::UNKNOWN_OBJECT };
            }
        } else if exists {
            self.push_event(MotionServerEvent::SubscriptionRequested(client, object));
        } else if record.subscriptions.len() < MAX_UNKNOWN_OBJECTS {
            record.subscriptions.insert(object, ObjectSubscription::UNKNOWN_OBJECT);
        }
    }

    /// Encodes the next datagram to send, if there is one, and returns its destination and length. `buf` should have
    /// room for [`MAX_DATAGRAM`] bytes.
    pub fn poll_transmit(&mut self, now: Instant, buf: &mut [u8]) -> Option<(ClientId, usize)> {
        self.advance(now);
        if core::mem::take(&mut self.are_all_due) {
            self.clients_due.extend(self.clients.keys());
        }
        let room = buf.len().min(MAX_DATAGRAM);
        while let Some(client) = self.clients_due.first().copied() {
            if let Some(len) = self.encode_datagram(client, &mut buf[..room]) {
                return Some((client, len));
            }
            self.clients_due.remove(&client);
        }
        None
    }

    /// Encodes the next datagram to one client, if there is one, and returns its length: for host programs that send to
    /// each client at times of their own. `buf` should have room for [`MAX_DATAGRAM`] bytes.
    pub fn poll_transmit_to(&mut self, now: Instant, client: ClientId, buf: &mut [u8]) -> Option<usize> {
        self.advance(now);
        let room = buf.len().min(MAX_DATAGRAM);
        self.encode_datagram(client, &mut buf[..room])
    }

    fn encode_datagram(&mut self, client: ClientId, buf: &mut [u8]) -> Option<usize> {
        let record = self.clients.get_mut(&client)?;
        let header = record.peer.header(self.now, self.config.incarnation);
        let mut datagram = MotionDatagramWriter::new(buf, header).ok()?;
        let echo = record.peer.pending_echo();
        let is_echo_requested = record.peer.put_echo(&mut datagram).ok()?;
        let len_before = datagram.len();
        let retransmit_timeout = record.peer.retransmit_timeout();
        for (object, subscription) in &mut record.subscriptions {
            let existing = self.objects.get(object);
            let reference_or_epoch = existing
                .filter(|_| !subscription.is_hidden)
                .ok_or_else(|| existing.map_or(self.spawn_epoch, AuthoritativeObject::next_epoch));
            let newest = reference_or_epoch.ok().map(AuthoritativeObject::newest_number);
            let Some(message) = subscription.next_message(self.now, newest, retransmit_timeout) else { continue };
            // Messages that do not fit go into the next datagram.
            if put_object_message(
                &mut datagram,
                &self.predictor,
                (*object, reference_or_epoch),
                message,
                subscription,
                self.now,
            )
            .is_err()
            {
                break;
            }
            (subscription.last_sent_at, subscription.last_sent, subscription.is_answer_due) =
                (Some(self.now), newest, false);
            subscription.removal_notices += u8::from(message == ObjectMessage::Removed);
        }
        record.subscriptions.retain(|_, subscription| subscription.removal_notices < MAX_REMOVAL_NOTICES);
        if datagram.len() > len_before || (is_echo_requested && !datagram.is_empty()) {
            return Some(datagram.len());
        }
        record.peer.restore_echo(echo);
        None
    }

    /// Returns the time by which the host program must poll again, if no datagram arrives before.
    pub fn poll_timeout(&self) -> Instant {
        let soonest = self.clients.values().map(|record| record.peer.retransmit_timeout()).min();
        self.now + soonest.unwrap_or(TIMER_UPDATE_INTERVAL)
    }

    /// Predicts an object at `now`, or at the latest time that this server was called with if that is later. `None` for
    /// an unknown object.
    pub fn moment_at(&self, now: Instant, object: ObjectId) -> Option<ObjectMoment<P::State>> {
        Some(self.objects.get(&object)?.moment_at(now.max(self.now), &self.predictor, &self.config))
    }

    /// Returns the state of an object at the time that this server was last advanced to. `None` for an unknown object.
    pub fn state(&self, object: ObjectId) -> Option<&P::State> {
        self.objects.get(&object).map(|reference| reference.simulator().displayed())
    }

    /// Returns the motion vector of the object's newest command. `None` for an unknown object.
    pub fn vector(&self, object: ObjectId) -> Option<&P::Vector> {
        Some(&self.objects.get(&object)?.simulator().commands.newest().vector)
    }

    /// Returns the motion vector of a command of an object; `None` if the command is unknown or no longer kept.
    pub fn vector_of(&self, object: ObjectId, command: CommandNumber) -> Option<&P::Vector> {
        self.objects.get(&object)?.simulator().commands.find(command).map(|command| &command.vector)
    }

    /// Returns the ids of the spawned objects.
    pub fn objects(&self) -> impl Iterator<Item = ObjectId> {
        self.objects.keys().copied()
    }

    /// Returns the client that controls an object. `None` if the server does, or for an unknown object.
    pub fn owner(&self, object: ObjectId) -> Option<ClientId> {
        self.objects.get(&object)?.owner
    }

    /// Returns the clients that have sent a datagram and have neither left, timed out nor been removed.
    pub fn clients(&self) -> impl Iterator<Item = ClientId> {
        self.clients.keys().copied()
    }

    /// Returns the estimate of a client's clock, with the round-trip time of the link. `None` for an unknown client.
    pub fn clock(&self, client: ClientId) -> Option<&crate::clock::Clock> {
        self.clients.get(&client).map(|record| &record.peer.clock)
    }

    /// Removes and returns the oldest queued event.
    pub fn poll_event(&mut self) -> Option<MotionServerEvent> {
        self.events.pop_front()
    }

    fn push_event(&mut self, event: MotionServerEvent) {
        if self.events.len() >= MAX_EVENTS {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    /// Returns the number of malformed datagrams received since this server was created.
    pub fn malformed(&self) -> u64 {
        self.malformed
    }

    /// Returns the approximate heap size in bytes, which is bounded whatever arrives.
    pub fn memory(&self) -> usize {
        let object_size = |object: &AuthoritativeObjectOf<P>| size_of_val(object) + object.memory();
        let record_size = |record: &ClientRecord| {
            size_of::<ClientRecord>()
                + record.peer.memory()
                + record.subscriptions.len() * size_of::<(ObjectId, ObjectSubscription)>()
        };
        let objects: usize = self.objects.values().map(object_size).sum();
        let records: usize = self.clients.values().map(record_size).sum();
        objects + records + self.events.capacity() * size_of::<MotionServerEvent>()
    }
}

/// Appends a message about an object. If the object does not exist or is hidden from the client, appends a removal
/// notice with the lowest epoch of a later object with the same id.
fn put_object_message<P: MotionPredictor>(
    datagram: &mut MotionDatagramWriter<'_>,
    predictor: &P,
    (object, reference_or_epoch): (ObjectId, Result<&AuthoritativeObjectOf<P>, u32>),
    message: ObjectMessage,
    subscription: &ObjectSubscription,
    now: Instant,
) -> Result<(), BufferFull> {
    let reference = match reference_or_epoch {
        Ok(reference) => reference,
        Err(epoch) => return datagram.put(MotionItem::Removed { object, epoch }),
    };
    let (number, progress) = (reference.newest_number(), reference.progress(now));
    match message {
        ObjectMessage::Removed | ObjectMessage::Motion => put_motion(
            datagram,
            predictor,
            object,
            reference.simulator().commands.commands_since(subscription.acked),
            progress,
        ),
        ObjectMessage::Answer => {
            datagram.put(MotionItem::Ack { object, number, sent: reference.command_sent_at })?;
            put_timer(datagram, object, number, progress)
        }
        ObjectMessage::TimerUpdate => put_timer(datagram, object, number, progress),
    }
}
