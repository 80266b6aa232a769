//! A client: its own objects, which it commands, and those of others, which it follows.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};

use super::confirmed::TimerProgress;
use super::encode::put_motion;
use super::peer::{IncarnationOrder, MotionPeer};
use super::remote_object::{ObjectChange, ReceiveContext, RemoteObject};
use super::{
    CommandNumber, Consistency, MAX_OBJECTS, MotionConfig, MotionConfigError, MotionPredictor, ObjectId, ObjectMoment,
};
use crate::time::{Instant, TimeDelta};
use crate::wire::motion::{MotionDatagram, MotionItem, MotionItems};
use crate::wire::{BufferFull, DecodeError, MAX_DATAGRAM};

/// Events that nobody asked for yet.
const MAX_EVENTS: usize = 256;

/// A client of one server.
#[derive(Debug)]
pub struct MotionClient<P: MotionPredictor> {
    config: MotionConfig,
    predictor: P,
    now: Instant,
    server: MotionPeer,
    objects: BTreeMap<ObjectId, RemoteObjectOf<P>>,
    /// Of these the server is to be told that nothing is wanted.
    unsubscribed: BTreeSet<ObjectId>,
    is_leaving: bool,
    events: VecDeque<MotionClientEvent>,
    malformed: u64,
}

type RemoteObjectOf<P> = RemoteObject<<P as MotionPredictor>::State, <P as MotionPredictor>::Vector>;

/// Something that happened at a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MotionClientEvent {
    /// The server told of an object for the first time, or for the first time since it was started anew; or of another one that is called the same, and
    /// then commands that were given to the one before do not count.
    Appeared(ObjectId),
    /// The server decided about one of our objects: commands that were under way do not count, and may be given again.
    Overruled(ObjectId),
    /// There is no such object any more.
    Removed(ObjectId),
    /// The server was started anew.
    ServerRestarted,
}

impl<P: MotionPredictor> MotionClient<P> {
    /// A client that knows of nothing yet.
    pub fn new(now: Instant, config: MotionConfig, predictor: P) -> Result<Self, MotionConfigError> {
        config.check()?;
        Ok(Self {
            config,
            predictor,
            now,
            server: MotionPeer::new(now),
            objects: BTreeMap::new(),
            unsubscribed: BTreeSet::new(),
            is_leaving: false,
            events: VecDeque::new(),
            malformed: 0,
        })
    }

    /// How motion is shared.
    pub fn config(&self) -> &MotionConfig {
        &self.config
    }

    /// An object is ours to command, if the server thinks so, too. It is there when the server told of it.
    pub fn own(&mut self, object: ObjectId) {
        let now = self.now;
        self.ensure_object(object).into_iter().for_each(|replica| replica.take_control(now));
    }

    /// An object of others is of interest. If it was ours, it is not any more.
    pub fn subscribe(&mut self, object: ObjectId) {
        self.ensure_object(object).into_iter().for_each(RemoteObject::release_control);
    }

    fn ensure_object(&mut self, object: ObjectId) -> Option<&mut RemoteObjectOf<P>> {
        if self.objects.len() >= MAX_OBJECTS && !self.objects.contains_key(&object) {
            return None;
        }
        self.unsubscribed.remove(&object);
        Some(self.objects.entry(object).or_insert_with(|| RemoteObject::new(self.now, &self.config)))
    }

    /// An object is of no interest any more.
    pub fn unsubscribe(&mut self, object: ObjectId) {
        if self.objects.remove(&object).is_some() {
            self.unsubscribed.insert(object);
        }
    }

    /// Says goodbye with the next datagram.
    pub fn leave(&mut self) {
        self.is_leaving = true;
    }

    /// Commands one of our objects: it moves like this from now on. Commands within [`Config::jitter_buffer`] are combined into one. Whether the object is ours.
    pub fn command(&mut self, now: Instant, object: ObjectId, vector: P::Vector) -> bool {
        self.advance(now);
        let Some(RemoteObject { controller: Some(hand), simulator, .. }) = self.objects.get_mut(&object) else {
            return false;
        };
        match simulator {
            Some(simulator) => {
                hand.command(self.now, vector, simulator, (&self.predictor, &self.config, &self.server));
            }
            None => hand.set_pending(vector),
        }
        true
    }

    /// Brings everything up to now: to be called once in a frame.
    pub fn advance(&mut self, now: Instant) {
        self.now = self.now.max(now);
        for replica in self.objects.values_mut() {
            replica.advance(self.now, &self.predictor, &self.config, &self.server);
        }
    }

    /// Takes in what the server sent. Bytes that make no sense are dropped, and counted.
    pub fn handle_datagram(&mut self, now: Instant, bytes: &[u8]) {
        self.now = self.now.max(now);
        if self.handle_items(bytes).is_err() {
            self.malformed += 1;
        }
    }

    fn handle_items(&mut self, bytes: &[u8]) -> Result<(), DecodeError> {
        let items = MotionItems::new(bytes)?;
        let head = items.header();
        // What is for an earlier run of ours says nothing: the server does not know yet that we know nothing.
        if head.receiver_incarnation != self.config.incarnation {
            return Ok(());
        }
        match self.server.on_head(self.now, head) {
            IncarnationOrder::Stale => return Ok(()),
            IncarnationOrder::Same => {}
            IncarnationOrder::New => self.on_server_restart(),
        }
        let mut start = None;
        for item in items {
            self.on_item(head.sent_at, item?, &mut start)?;
        }
        Ok(())
    }

    fn on_server_restart(&mut self) {
        if self.objects.values().any(|replica| replica.simulator.is_some()) {
            self.push_event(MotionClientEvent::ServerRestarted);
        }
        self.objects.values_mut().for_each(RemoteObject::on_server_restart);
    }

    fn on_item(
        &mut self,
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
                self.on_command(sent, object, (number, leg, vector), start);
            }
            MotionItem::Timer { object, number, timer, catch_up: owed, command_age: since, timer_at_command: from } => {
                if let Some((replica, mut ear)) = self.receive_context(sent, object) {
                    replica.on_timer(
                        &mut ear,
                        number,
                        TimerProgress { timer, catch_up: owed, segment_age: since, initial_timer: from },
                    );
                }
            }
            MotionItem::Ack { object, number, sent } => {
                if let Some(replica) = self.objects.get_mut(&object) {
                    replica.on_ack(number, sent);
                }
            }
            MotionItem::Removed { object, epoch } => self.on_removed(object, epoch),
            MotionItem::Echo { sent: ours, received } => {
                if let Some(delay) = self.server.on_echo(now, ours, received, sent) {
                    let ear = (&self.predictor, &self.config);
                    self.objects.values_mut().for_each(|replica| replica.on_delay(now, delay, ear));
                }
            }
            MotionItem::Probe => self.server.on_probe(),
            MotionItem::Subscribe(_) | MotionItem::Unsubscribe(_) | MotionItem::Leave => {
                return Err(DecodeError::Malformed);
            }
        }
        Ok(())
    }

    /// A replica, and what it hears with.
    fn receive_context(
        &mut self,
        sent: Instant,
        object: ObjectId,
    ) -> Option<(&mut RemoteObjectOf<P>, ReceiveContext<'_, P>)> {
        let replica = self.objects.get_mut(&object)?;
        let ear = ReceiveContext {
            now: self.now,
            sent,
            predictor: &self.predictor,
            config: &self.config,
            server: &mut self.server,
        };
        Some((replica, ear))
    }

    fn on_command(
        &mut self,
        sent: Instant,
        object: ObjectId,
        command: (CommandNumber, TimeDelta, P::Vector),
        start: Option<P::State>,
    ) {
        let Some((replica, ear)) = self.receive_context(sent, object) else {
            if self.unsubscribed.len() < MAX_OBJECTS {
                self.unsubscribed.insert(object);
            }
            return;
        };
        match replica.on_command(&ear, command, start) {
            Some(ObjectChange::Appeared) => self.push_event(MotionClientEvent::Appeared(object)),
            Some(ObjectChange::Overruled) => self.push_event(MotionClientEvent::Overruled(object)),
            None => {}
        }
    }

    fn on_removed(&mut self, object: ObjectId, epoch: u32) {
        if self.objects.get(&object).is_some_and(|replica| replica.is_in_epoch(epoch)) {
            // It was overtaken by word of another object that is called the same.
            return;
        }
        if self.objects.remove(&object).is_some() {
            self.push_event(MotionClientEvent::Removed(object));
        }
        if self.unsubscribed.len() < MAX_OBJECTS {
            self.unsubscribed.insert(object);
        }
    }

    /// The next datagram to the server, if there is one: its length. The buffer should have room for [`MAX_DATAGRAM`] bytes.
    pub fn poll_transmit(&mut self, now: Instant, buf: &mut [u8]) -> Option<usize> {
        self.advance(now);
        let room = buf.len().min(MAX_DATAGRAM);
        let head = self.server.head(self.now, self.config.incarnation);
        let mut datagram = MotionDatagram::new(&mut buf[..room], head).ok()?;
        let echo = self.server.pending_echo();
        let is_wanted = self.server.put_echo(&mut datagram).ok()?;
        let begun = datagram.len();
        // What has no room goes with the next one.
        let _ = self.put_items(&mut datagram);
        if datagram.len() > begun || (is_wanted && !datagram.is_empty()) {
            return Some(datagram.len());
        }
        self.server.restore_echo(echo);
        None
    }

    fn put_items(&mut self, datagram: &mut MotionDatagram<'_>) -> Result<(), BufferFull> {
        let now = self.now;
        if core::mem::take(&mut self.is_leaving) {
            datagram.put(MotionItem::Leave)?;
        }
        self.put_commands(datagram)?;
        let repeat_after = self.server.retransmit_timeout();
        for (object, replica) in &mut self.objects {
            if let (Some(sent), Some(simulator)) = (replica.ack_due, &replica.simulator) {
                let number = simulator.commands.newest().number;
                datagram.put(MotionItem::Ack { object: *object, number, sent })?;
                replica.ack_due = None;
            }
            if replica.needs_request(now, repeat_after) {
                datagram.put(MotionItem::Subscribe(*object))?;
                replica.last_requested_at = Some(now);
            }
        }
        while let Some(object) = self.unsubscribed.first().copied() {
            datagram.put(MotionItem::Unsubscribe(object))?;
            self.unsubscribed.remove(&object);
        }
        self.server.put_probe(now, datagram)
    }

    /// Commands that the server does not have, as far as we know.
    fn put_commands(&mut self, datagram: &mut MotionDatagram<'_>) -> Result<(), BufferFull> {
        let (now, repeat_after) = (self.now, self.server.retransmit_timeout());
        for (object, replica) in &mut self.objects {
            if replica.is_unverified() {
                continue;
            }
            let (Some(hand), Some(simulator)) = (&mut replica.controller, &mut replica.simulator) else { continue };
            if hand.is_due(now, simulator.commands.newest().number, repeat_after) {
                let (timer, since) = (simulator.timer.value(), hand.command_age(now));
                let progress = TimerProgress {
                    timer,
                    catch_up: TimeDelta::ZERO,
                    segment_age: since,
                    initial_timer: TimeDelta::ZERO,
                };
                put_motion(
                    datagram,
                    &self.predictor,
                    *object,
                    simulator.commands.commands_since(hand.acked()),
                    progress,
                )?;
                hand.on_sent(now, &mut simulator.timer, (&self.config, &self.server));
            }
        }
        Ok(())
    }

    /// When there may be something to send again.
    pub fn poll_timeout(&self) -> Instant {
        let repeat_after = self.server.retransmit_timeout();
        let closes = |replica: &RemoteObjectOf<P>| replica.controller.as_ref()?.combining_ends_at(&self.config);
        let soonest = self.objects.values().filter_map(closes).min();
        let next = self.server.next_probe().min(self.now + repeat_after);
        soonest.map_or(next, |at| at.min(next)).max(self.now + TimeDelta::from_micros(1))
    }

    /// An object at a time that is not past, if the server told of it.
    pub fn moment_at(&self, now: Instant, object: ObjectId) -> Option<ObjectMoment<P::State>> {
        let simulator = self.objects.get(&object)?.simulator.as_ref()?;
        Some(simulator.at(&self.predictor, now.max(self.now), &self.config))
    }

    /// The motion of an object as it was commanded last.
    pub fn vector(&self, object: ObjectId) -> Option<&P::Vector> {
        Some(&self.objects.get(&object)?.simulator.as_ref()?.commands.newest().vector)
    }

    /// How consistent what is seen of an object was of late with the server's (Definition 2.3), as far as is known by now.
    pub fn consistency(&self, object: ObjectId) -> Option<Consistency> {
        Some(self.objects.get(&object)?.consistency(&self.predictor, &self.config))
    }

    /// The objects that are ours or of interest.
    pub fn objects(&self) -> impl Iterator<Item = ObjectId> {
        self.objects.keys().copied()
    }

    /// The server's clock, and the way to it.
    pub fn clock(&self) -> &crate::clock::Clock {
        &self.server.clock
    }

    /// When the server was last heard.
    pub fn last_received_at(&self) -> Instant {
        self.server.last_received_at
    }

    /// Something that happened since this was last asked.
    pub fn poll_event(&mut self) -> Option<MotionClientEvent> {
        self.events.pop_front()
    }

    fn push_event(&mut self, event: MotionClientEvent) {
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
        let replica = |replica: &RemoteObjectOf<P>| size_of_val(replica) + replica.memory();
        let replicas: usize = self.objects.values().map(replica).sum();
        let queues =
            self.events.capacity() * size_of::<MotionClientEvent>() + self.unsubscribed.len() * size_of::<ObjectId>();
        replicas + queues + self.server.memory()
    }
}
