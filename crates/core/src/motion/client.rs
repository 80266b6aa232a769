//! A client: its own objects, which it commands, and those of others, which it follows.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};

use super::known::Progress;
use super::peer::{Peer, Run};
use super::replica::{Ear, News, Replica};
use super::speak::put_motion;
use super::{Config, ConfigError, Consistency, MAX_OBJECTS, Moment, Number, ObjectId, Predictor};
use crate::time::{Instant, TimeDelta};
use crate::wire::motion::{MotionDatagram, MotionItem, MotionItems};
use crate::wire::{BufferFull, DecodeError, MAX_DATAGRAM};

/// Events that nobody asked for yet.
const MAX_EVENTS: usize = 256;

/// A client of one server.
#[derive(Debug)]
pub struct Client<P: Predictor> {
    config: Config,
    predictor: P,
    now: Instant,
    server: Peer,
    replicas: BTreeMap<ObjectId, ReplicaOf<P>>,
    /// Of these the server is to be told that nothing is wanted.
    ignored: BTreeSet<ObjectId>,
    leaving: bool,
    events: VecDeque<ClientEvent>,
    refused: u64,
}

type ReplicaOf<P> = Replica<<P as Predictor>::State, <P as Predictor>::Vector>;

/// Something that happened at a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientEvent {
    /// The server told of an object for the first time, or for the first time since it was started anew; or of another one that is called the same, and
    /// then commands that were given to the one before do not count.
    Appeared(ObjectId),
    /// The server decided about one of our objects: commands that were under way do not count, and may be given again.
    Overruled(ObjectId),
    /// There is no such object any more.
    Gone(ObjectId),
    /// The server was started anew.
    ServerAnew,
}

impl<P: Predictor> Client<P> {
    /// A client that knows of nothing yet.
    pub fn new(now: Instant, config: Config, predictor: P) -> Result<Self, ConfigError> {
        config.check()?;
        Ok(Self {
            config,
            predictor,
            now,
            server: Peer::new(now),
            replicas: BTreeMap::new(),
            ignored: BTreeSet::new(),
            leaving: false,
            events: VecDeque::new(),
            refused: 0,
        })
    }

    /// How motion is shared.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// An object is ours to command, if the server thinks so, too. It is there when the server told of it.
    pub fn own(&mut self, object: ObjectId) {
        let now = self.now;
        self.want(object).into_iter().for_each(|replica| replica.take_over(now));
    }

    /// An object of others is of interest. If it was ours, it is not any more.
    pub fn watch(&mut self, object: ObjectId) {
        self.want(object).into_iter().for_each(Replica::let_go);
    }

    fn want(&mut self, object: ObjectId) -> Option<&mut ReplicaOf<P>> {
        if self.replicas.len() >= MAX_OBJECTS && !self.replicas.contains_key(&object) {
            return None;
        }
        self.ignored.remove(&object);
        Some(self.replicas.entry(object).or_insert_with(|| Replica::new(self.now, &self.config)))
    }

    /// An object is of no interest any more.
    pub fn ignore(&mut self, object: ObjectId) {
        if self.replicas.remove(&object).is_some() {
            self.ignored.insert(object);
        }
    }

    /// Says goodbye with the next datagram.
    pub fn leave(&mut self) {
        self.leaving = true;
    }

    /// Commands one of our objects: it moves like this from now on. Commands within [`Config::jitter_buffer`] are combined into one. Whether the object is ours.
    pub fn command(&mut self, now: Instant, object: ObjectId, vector: P::Vector) -> bool {
        self.advance(now);
        let Some(Replica { hand: Some(hand), simulator, .. }) = self.replicas.get_mut(&object) else { return false };
        match simulator {
            Some(simulator) => {
                hand.command(self.now, vector, simulator, (&self.predictor, &self.config, &self.server));
            }
            None => hand.want(vector),
        }
        true
    }

    /// Brings everything up to now: to be called once in a frame.
    pub fn advance(&mut self, now: Instant) {
        self.now = self.now.max(now);
        for replica in self.replicas.values_mut() {
            replica.advance(self.now, &self.predictor, &self.config, &self.server);
        }
    }

    /// Takes in what the server sent. Bytes that make no sense are dropped, and counted.
    pub fn handle_datagram(&mut self, now: Instant, bytes: &[u8]) {
        self.now = self.now.max(now);
        if self.take_in(bytes).is_err() {
            self.refused += 1;
        }
    }

    fn take_in(&mut self, bytes: &[u8]) -> Result<(), DecodeError> {
        let items = MotionItems::new(bytes)?;
        let head = items.header();
        // What is for an earlier run of ours says nothing: the server does not know yet that we know nothing.
        if head.receiver_incarnation != self.config.run {
            return Ok(());
        }
        match self.server.on_head(self.now, head) {
            Run::Past => return Ok(()),
            Run::Same => {}
            Run::New => self.on_server_anew(),
        }
        let mut start = None;
        for item in items {
            self.on_item(head.sent_at, item?, &mut start)?;
        }
        Ok(())
    }

    fn on_server_anew(&mut self) {
        if self.replicas.values().any(|replica| replica.simulator.is_some()) {
            self.tell(ClientEvent::ServerAnew);
        }
        self.replicas.values_mut().for_each(Replica::on_server_anew);
    }

    fn on_item(
        &mut self,
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
                self.on_command(sent, object, (number, leg, vector), start);
            }
            MotionItem::Timer { object, number, timer, catch_up: owed, command_age: since, timer_at_command: from } => {
                if let Some((replica, mut ear)) = self.ear(sent, object) {
                    replica.on_timer(&mut ear, number, Progress { timer, owed, since, from });
                }
            }
            MotionItem::Ack { object, number, sent } => {
                if let Some(replica) = self.replicas.get_mut(&object) {
                    replica.on_heard(number, sent);
                }
            }
            MotionItem::Removed { object, epoch } => self.on_gone(object, epoch),
            MotionItem::Echo { sent: ours, received } => {
                if let Some(delay) = self.server.on_echo(now, ours, received, sent) {
                    let ear = (&self.predictor, &self.config);
                    self.replicas.values_mut().for_each(|replica| replica.on_delay(now, delay, ear));
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
    fn ear(&mut self, sent: Instant, object: ObjectId) -> Option<(&mut ReplicaOf<P>, Ear<'_, P>)> {
        let replica = self.replicas.get_mut(&object)?;
        let ear =
            Ear { now: self.now, sent, predictor: &self.predictor, config: &self.config, server: &mut self.server };
        Some((replica, ear))
    }

    fn on_command(
        &mut self,
        sent: Instant,
        object: ObjectId,
        command: (Number, TimeDelta, P::Vector),
        start: Option<P::State>,
    ) {
        let Some((replica, ear)) = self.ear(sent, object) else {
            if self.ignored.len() < MAX_OBJECTS {
                self.ignored.insert(object);
            }
            return;
        };
        match replica.on_command(&ear, command, start) {
            Some(News::Appeared) => self.tell(ClientEvent::Appeared(object)),
            Some(News::Overruled) => self.tell(ClientEvent::Overruled(object)),
            None => {}
        }
    }

    fn on_gone(&mut self, object: ObjectId, epoch: u32) {
        if self.replicas.get(&object).is_some_and(|replica| replica.is_of(epoch)) {
            // It was overtaken by word of another object that is called the same.
            return;
        }
        if self.replicas.remove(&object).is_some() {
            self.tell(ClientEvent::Gone(object));
        }
        if self.ignored.len() < MAX_OBJECTS {
            self.ignored.insert(object);
        }
    }

    /// The next datagram to the server, if there is one: its length. The buffer should have room for [`MAX_DATAGRAM`] bytes.
    pub fn poll_transmit(&mut self, now: Instant, buf: &mut [u8]) -> Option<usize> {
        self.advance(now);
        let room = buf.len().min(MAX_DATAGRAM);
        let head = self.server.head(self.now, self.config.run);
        let mut datagram = MotionDatagram::new(&mut buf[..room], head).ok()?;
        let echo = self.server.echo();
        let is_wanted = self.server.put_echo(&mut datagram).ok()?;
        let begun = datagram.len();
        // What has no room goes with the next one.
        let _ = self.put_all(&mut datagram);
        if datagram.len() > begun || (is_wanted && !datagram.is_empty()) {
            return Some(datagram.len());
        }
        self.server.keep_echo(echo);
        None
    }

    fn put_all(&mut self, datagram: &mut MotionDatagram<'_>) -> Result<(), BufferFull> {
        let now = self.now;
        if core::mem::take(&mut self.leaving) {
            datagram.put(MotionItem::Leave)?;
        }
        self.put_commands(datagram)?;
        let repeat_after = self.server.repeat_after();
        for (object, replica) in &mut self.replicas {
            if let (Some(sent), Some(simulator)) = (replica.heard, &replica.simulator) {
                let number = simulator.course.newest().number;
                datagram.put(MotionItem::Ack { object: *object, number, sent })?;
                replica.heard = None;
            }
            if replica.is_to_be_asked_for(now, repeat_after) {
                datagram.put(MotionItem::Subscribe(*object))?;
                replica.asked = Some(now);
            }
        }
        while let Some(object) = self.ignored.first().copied() {
            datagram.put(MotionItem::Unsubscribe(object))?;
            self.ignored.remove(&object);
        }
        self.server.put_probe(now, datagram)
    }

    /// Commands that the server does not have, as far as we know.
    fn put_commands(&mut self, datagram: &mut MotionDatagram<'_>) -> Result<(), BufferFull> {
        let (now, repeat_after) = (self.now, self.server.repeat_after());
        for (object, replica) in &mut self.replicas {
            if replica.is_doubtful() {
                continue;
            }
            let (Some(hand), Some(simulator)) = (&mut replica.hand, &mut replica.simulator) else { continue };
            if hand.is_due(now, simulator.course.newest().number, repeat_after) {
                let (timer, since) = (simulator.timer.value(), hand.age(now));
                let progress = Progress { timer, owed: TimeDelta::ZERO, since, from: TimeDelta::ZERO };
                put_motion(datagram, &self.predictor, *object, simulator.course.since(hand.acked()), progress)?;
                hand.on_sent(now, &mut simulator.timer, (&self.config, &self.server));
            }
        }
        Ok(())
    }

    /// When there may be something to send again.
    pub fn poll_timeout(&self) -> Instant {
        let repeat_after = self.server.repeat_after();
        let closes = |replica: &ReplicaOf<P>| replica.hand.as_ref()?.closes(&self.config);
        let soonest = self.replicas.values().filter_map(closes).min();
        let next = self.server.next_probe().min(self.now + repeat_after);
        soonest.map_or(next, |at| at.min(next)).max(self.now + TimeDelta::from_micros(1))
    }

    /// An object at a time that is not past, if the server told of it.
    pub fn at(&self, now: Instant, object: ObjectId) -> Option<Moment<P::State>> {
        let simulator = self.replicas.get(&object)?.simulator.as_ref()?;
        Some(simulator.at(&self.predictor, now.max(self.now), &self.config))
    }

    /// The motion of an object as it was commanded last.
    pub fn vector(&self, object: ObjectId) -> Option<&P::Vector> {
        Some(&self.replicas.get(&object)?.simulator.as_ref()?.course.newest().vector)
    }

    /// How consistent what is seen of an object was of late with the server's (Definition 2.3), as far as is known by now.
    pub fn consistency(&self, object: ObjectId) -> Option<Consistency> {
        Some(self.replicas.get(&object)?.consistency(&self.predictor, &self.config))
    }

    /// The objects that are ours or of interest.
    pub fn objects(&self) -> impl Iterator<Item = ObjectId> {
        self.replicas.keys().copied()
    }

    /// The server's clock, and the way to it.
    pub fn clock(&self) -> &crate::clock::Clock {
        &self.server.clock
    }

    /// When the server was last heard.
    pub fn heard(&self) -> Instant {
        self.server.heard
    }

    /// Something that happened since this was last asked.
    pub fn poll_event(&mut self) -> Option<ClientEvent> {
        self.events.pop_front()
    }

    fn tell(&mut self, event: ClientEvent) {
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
        let replica = |replica: &ReplicaOf<P>| size_of_val(replica) + replica.memory();
        let replicas: usize = self.replicas.values().map(replica).sum();
        let queues = self.events.capacity() * size_of::<ClientEvent>() + self.ignored.len() * size_of::<ObjectId>();
        replicas + queues + self.server.memory()
    }
}
