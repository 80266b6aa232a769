//! A client: its own objects, which it commands, and those of others, which it follows.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};

use super::client_object::{ClientObject, ObjectChange, ReceiveContext};
use super::confirmed::TimerProgress;
use super::encode::put_motion;
use super::peer::{IncarnationOrder, MotionPeer};
use super::simulator::Simulator;
use super::{
    CommandNumber, Consistency, MAX_OBJECTS, MAX_UNKNOWN_OBJECTS, MotionConfig, MotionConfigError, MotionPredictor,
    MotionTimer, ObjectId, ObjectMoment,
};
use crate::codec::{BufferFull, DecodeError, MAX_DATAGRAM};
use crate::motion::message::{MotionDatagramWriter, MotionItem, MotionItems};
use crate::time::{Instant, TimeDelta};

/// Maximum number of queued events; beyond it the oldest are discarded.
const MAX_EVENTS: usize = 256;

/// Client of one motion server: it commands its own objects and follows those that it subscribes to.
#[derive(Debug)]
pub struct MotionClient<P: MotionPredictor> {
    config: MotionConfig,
    predictor: P,
    now: Instant,
    server: MotionPeer,
    objects: BTreeMap<ObjectId, RemoteObjectOf<P>>,
    /// Objects for which the server must be asked to stop its updates.
    unsubscribed: BTreeSet<ObjectId>,
    is_leaving: bool,
    /// Whether this client follows every object that the server shows to it.
    follows_shown_objects: bool,
    events: VecDeque<MotionClientEvent>,
    malformed: u64,
}

type RemoteObjectOf<P> = ClientObject<<P as MotionPredictor>::State, <P as MotionPredictor>::Vector>;

/// An event for the host program of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MotionClientEvent {
    /// The server sent the state of an object for the first time, or for the first time since the server restarted or
    /// this client released control. Also reported when control of an object that was never commanded is transferred,
    /// and when the spawn of another object with the same id arrives; commands issued to the previous object are then
    /// void.
    Appeared(ObjectId),
    /// A command of the server for an own object arrived, or a transfer of control of an object that was commanded
    /// before: this client's commands in flight are void and may be issued again. If the first update of the object
    /// from a restarted server overrules the commands, this event is reported instead of [`Self::Appeared`].
    Overruled(ObjectId),
    /// The server removed an object, hid it from this client, or has no object with this id.
    Removed(ObjectId),
    /// The server restarted while this client had the state of at least one object. The local state of each object may
    /// be invalid until the restarted server has sent the object's state.
    ServerRestarted,
}

impl<P: MotionPredictor> MotionClient<P> {
    /// Creates a client without objects. Fails if [`MotionConfig::check`] does.
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
            follows_shown_objects: false,
            events: VecDeque::new(),
            malformed: 0,
        })
    }

    /// Returns the settings passed to [`MotionClient::new`].
    pub fn config(&self) -> &MotionConfig {
        &self.config
    }

    /// Takes control of an object. The server ignores the commands unless it has made this client the object's owner.
    /// The object has no state here until the server has sent it. Ignored if there are [`MAX_OBJECTS`] other objects.
    pub fn own(&mut self, object: ObjectId) {
        let now = self.now;
        self.ensure_object(object).into_iter().for_each(|remote| remote.take_control(now));
    }

    /// Subscribes to an object. Releases control if this client controls it. Ignored if there are [`MAX_OBJECTS`] other
    /// objects.
    pub fn subscribe(&mut self, object: ObjectId) {
        self.ensure_object(object).into_iter().for_each(ClientObject::release_control);
    }

    /// Makes this client follow every object that the server shows to it, without a subscription.
    pub fn follow_shown_objects(&mut self) {
        self.follows_shown_objects = true;
    }

    /// Makes this client follow another server, as the run `incarnation`, which must be greater than all earlier ones.
    /// Forgets the objects of others. The own objects move on from their local states until the other server, which
    /// must know them by the same ids, has sent theirs.
    pub fn change_server(&mut self, now: Instant, incarnation: u32) {
        self.now = self.now.max(now);
        self.config.incarnation = incarnation;
        self.server = MotionPeer::new(self.now);
        self.unsubscribed.clear();
        self.objects.retain(|_, remote| remote.controller.is_some());
        self.objects.values_mut().for_each(ClientObject::on_server_restart);
    }

    fn ensure_object(&mut self, object: ObjectId) -> Option<&mut RemoteObjectOf<P>> {
        if self.objects.len() >= MAX_OBJECTS && !self.objects.contains_key(&object) {
            return None;
        }
        self.unsubscribed.remove(&object);
        Some(self.objects.entry(object).or_insert_with(|| ClientObject::new(self.now, &self.config)))
    }

    /// Forgets an object and asks the server to stop its updates.
    pub fn unsubscribe(&mut self, object: ObjectId) {
        if self.objects.remove(&object).is_some() {
            self.unsubscribed.insert(object);
        }
    }

    /// Announces this client's departure in the next datagram. The server then removes the client.
    pub fn leave(&mut self) {
        self.is_leaving = true;
    }

    /// Commands an own object to move along `vector` from now on. Further commands within
    /// [`MotionConfig::combine_interval`] are combined with this one. While the object's state is unknown, only the
    /// last command is kept; it is issued once the state has arrived. Returns whether this client controls the object.
    pub fn command(&mut self, now: Instant, object: ObjectId, vector: P::Vector) -> bool {
        self.advance(now);
        let Some(ClientObject { controller: Some(controller), simulator, .. }) = self.objects.get_mut(&object) else {
            return false;
        };
        match simulator {
            Some(simulator) => {
                controller.command(self.now, vector, simulator, (&self.predictor, &self.config, &self.server));
            }
            None => controller.set_pending(vector),
        }
        true
    }

    /// Advances all objects to `now`. Must be called once per frame.
    pub fn advance(&mut self, now: Instant) {
        self.now = self.now.max(now);
        for remote in self.objects.values_mut() {
            remote.advance(self.now, &self.predictor, &self.config, &self.server);
        }
    }

    /// Handles a datagram from the server. A malformed one is counted, and ignored from its first malformed item on.
    pub fn handle_datagram(&mut self, now: Instant, bytes: &[u8]) {
        self.now = self.now.max(now);
        if self.handle_items(bytes).is_err() {
            self.malformed += 1;
        }
    }

    fn handle_items(&mut self, bytes: &[u8]) -> Result<(), DecodeError> {
        let items = MotionItems::new(bytes)?;
        let header = items.header();
        // A datagram for an earlier incarnation of this client is void: the server does not know yet that this client
        // has lost its state.
        if header.receiver_incarnation != self.config.incarnation {
            return Ok(());
        }
        match self.server.on_header(self.now, header) {
            IncarnationOrder::Stale => return Ok(()),
            IncarnationOrder::Same => {}
            IncarnationOrder::New => self.on_server_restart(),
        }
        let mut start = None;
        for item in items {
            self.on_item(header.sent_at, item?, &mut start)?;
        }
        Ok(())
    }

    fn on_server_restart(&mut self) {
        if self.objects.values().any(|remote| remote.simulator.is_some()) {
            self.push_event(MotionClientEvent::ServerRestarted);
        }
        self.objects.values_mut().for_each(ClientObject::on_server_restart);
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
            MotionItem::Command { object, number, previous_segment, vector } => {
                let vector = self.predictor.decode_vector(vector).ok_or(DecodeError::Malformed)?;
                let start = start.take().filter(|start| (start.0, start.1) == (object, number)).map(|start| start.2);
                self.on_command(sent, object, (number, previous_segment, vector), start);
            }
            MotionItem::Timer { object, number, timer, catch_up, command_age, timer_at_command } => {
                if let Some((remote, mut context)) = self.receive_context(sent, object) {
                    remote.on_timer(
                        &mut context,
                        number,
                        TimerProgress { timer, catch_up, segment_age: command_age, initial_timer: timer_at_command },
                    );
                }
            }
            MotionItem::Ack { object, number, sent } => {
                if let Some(remote) = self.objects.get_mut(&object) {
                    remote.on_ack(number, sent);
                }
            }
            MotionItem::Removed { object, epoch } => self.on_removed(object, epoch),
            MotionItem::Echo { sent: ours, received } => {
                if let Some(delay) = self.server.on_echo(now, ours, received, sent) {
                    let context = (&self.predictor, &self.config);
                    self.objects.values_mut().for_each(|remote| remote.on_delay(now, delay, context));
                }
            }
            MotionItem::Probe => self.server.on_probe(),
            MotionItem::Subscribe(_) | MotionItem::Unsubscribe(_) | MotionItem::Leave => {
                return Err(DecodeError::Malformed);
            }
        }
        Ok(())
    }

    /// Returns an object with the context in which it handles received items. `None` for an unknown object.
    fn receive_context(
        &mut self,
        sent: Instant,
        object: ObjectId,
    ) -> Option<(&mut RemoteObjectOf<P>, ReceiveContext<'_, P>)> {
        let remote = self.objects.get_mut(&object)?;
        let context = ReceiveContext {
            now: self.now,
            sent,
            predictor: &self.predictor,
            config: &self.config,
            server: &mut self.server,
        };
        Some((remote, context))
    }

    fn on_command(
        &mut self,
        sent: Instant,
        object: ObjectId,
        command: (CommandNumber, TimeDelta, P::Vector),
        start: Option<P::State>,
    ) {
        if self.follows_shown_objects && start.is_some() {
            self.ensure_object(object);
        }
        let Some((remote, context)) = self.receive_context(sent, object) else {
            if self.unsubscribed.len() < MAX_UNKNOWN_OBJECTS {
                self.unsubscribed.insert(object);
            }
            return;
        };
        match remote.on_command(&context, command, start) {
            Some(ObjectChange::Appeared) => self.push_event(MotionClientEvent::Appeared(object)),
            Some(ObjectChange::Overruled) => self.push_event(MotionClientEvent::Overruled(object)),
            None => {}
        }
    }

    fn on_removed(&mut self, object: ObjectId, epoch: u32) {
        if self.objects.get(&object).is_some_and(|remote| remote.is_in_epoch(epoch)) {
            // A newer object with the same id overtook the removal of the old one.
            return;
        }
        if self.objects.remove(&object).is_some() {
            self.push_event(MotionClientEvent::Removed(object));
        }
        if self.unsubscribed.len() < MAX_UNKNOWN_OBJECTS {
            self.unsubscribed.insert(object);
        }
    }

    /// Encodes the next datagram to the server, if there is one, and returns its length. `buf` should have room for
    /// [`MAX_DATAGRAM`] bytes.
    pub fn poll_transmit(&mut self, now: Instant, buf: &mut [u8]) -> Option<usize> {
        self.advance(now);
        let room = buf.len().min(MAX_DATAGRAM);
        let header = self.server.header(self.now, self.config.incarnation);
        let mut datagram = MotionDatagramWriter::new(&mut buf[..room], header).ok()?;
        let echo = self.server.pending_echo();
        let is_echo_requested = self.server.put_echo(&mut datagram).ok()?;
        let len_before = datagram.len();
        // Items that do not fit go into the next datagram.
        let _ = self.put_items(&mut datagram);
        if datagram.len() > len_before || (is_echo_requested && !datagram.is_empty()) {
            return Some(datagram.len());
        }
        self.server.restore_echo(echo);
        None
    }

    fn put_items(&mut self, datagram: &mut MotionDatagramWriter<'_>) -> Result<(), BufferFull> {
        let now = self.now;
        if core::mem::take(&mut self.is_leaving) {
            datagram.put(MotionItem::Leave)?;
        }
        self.put_commands(datagram)?;
        let retransmit_timeout = self.server.retransmit_timeout();
        for (object, remote) in &mut self.objects {
            if let (Some(sent), Some(simulator)) = (remote.ack_due, &remote.simulator) {
                let number = simulator.commands.newest().number;
                datagram.put(MotionItem::Ack { object: *object, number, sent })?;
                remote.ack_due = None;
            }
            if remote.needs_request(now, retransmit_timeout) {
                datagram.put(MotionItem::Subscribe(*object))?;
                remote.last_requested_at = Some(now);
            }
        }
        while let Some(object) = self.unsubscribed.first().copied() {
            datagram.put(MotionItem::Unsubscribe(object))?;
            self.unsubscribed.remove(&object);
        }
        self.server.put_probe(now, datagram)
    }

    /// Appends the commands of own objects that the server has not acknowledged and that are due to be sent for the
    /// first time or again.
    fn put_commands(&mut self, datagram: &mut MotionDatagramWriter<'_>) -> Result<(), BufferFull> {
        let (now, retransmit_timeout) = (self.now, self.server.retransmit_timeout());
        for (object, remote) in &mut self.objects {
            if !remote.is_command_due(now, (retransmit_timeout, &self.config)) {
                continue;
            }
            if let (Some(controller), Some(simulator)) = (&mut remote.controller, &mut remote.simulator) {
                let (timer, segment_age) = (simulator.timer.value(), controller.command_age(now));
                let progress =
                    TimerProgress { timer, catch_up: TimeDelta::ZERO, segment_age, initial_timer: TimeDelta::ZERO };
                put_motion(
                    datagram,
                    &self.predictor,
                    *object,
                    simulator.commands.commands_since(controller.acked()),
                    progress,
                )?;
                controller.on_sent(now, &mut simulator.timer, (&self.config, &self.server));
            }
        }
        Ok(())
    }

    /// Returns the time by which the host program must poll again, if no datagram arrives before.
    pub fn poll_timeout(&self) -> Instant {
        let of = |remote: &RemoteObjectOf<P>| remote.controller.as_ref()?.combining_ends_at(&self.config);
        let next = self.server.next_probe().min(self.now + self.server.retransmit_timeout());
        let soonest = self.objects.values().filter_map(of).min();
        soonest.map_or(next, |at| at.min(next)).max(self.now + TimeDelta::from_micros(1))
    }

    /// Returns when the next command is due to be sent for the first time. `None` if no commands are being combined, or
    /// if they cannot be sent because the server has not sent the state of their object.
    pub fn next_command_at(&self) -> Option<Instant> {
        self.objects.values().filter_map(|remote| remote.next_command_at(&self.config)).min()
    }

    /// Predicts an object at `now`, or at the latest time that this client was called with if that is later. `None`
    /// until the server has sent its state.
    pub fn moment_at(&self, now: Instant, object: ObjectId) -> Option<ObjectMoment<P::State>> {
        let simulator = self.objects.get(&object)?.simulator.as_ref()?;
        Some(simulator.at(&self.predictor, now.max(self.now), &self.config))
    }

    /// Returns the displayed state of an object at the time that this client was last advanced to. `None` until the
    /// server has sent its state.
    pub fn displayed(&self, object: ObjectId) -> Option<&P::State> {
        self.objects.get(&object)?.simulator.as_ref().map(Simulator::displayed)
    }

    /// Returns the motion timer of an object at the time that this client was last advanced to. `None` until the server
    /// has sent the object's state.
    pub fn timer(&self, object: ObjectId) -> Option<MotionTimer> {
        self.objects.get(&object)?.simulator.as_ref().map(|simulator| simulator.timer)
    }

    /// Returns the time of the last update of an object that could be applied. `None` for an object that this client
    /// neither controls nor follows.
    pub fn last_update_at(&self, object: ObjectId) -> Option<Instant> {
        self.objects.get(&object).map(ClientObject::last_update_at)
    }

    /// Returns whether a command of an own object is due to be sent, for the first time or again.
    pub fn is_command_due(&self, now: Instant) -> bool {
        let retransmit_timeout = self.server.retransmit_timeout();
        self.objects.values().any(|remote| remote.is_command_due(now, (retransmit_timeout, &self.config)))
    }

    /// Returns the motion vector of the object's newest known command. `None` until the server has sent its state.
    pub fn vector(&self, object: ObjectId) -> Option<&P::Vector> {
        Some(&self.objects.get(&object)?.simulator.as_ref()?.commands.newest().vector)
    }

    /// Returns the recent discrepancy between the displayed state and the server's (Definition 2.3), by the reports
    /// received so far. `None` for an object that this client neither controls nor subscribes to.
    pub fn consistency(&self, object: ObjectId) -> Option<Consistency> {
        Some(self.objects.get(&object)?.consistency(&self.predictor, &self.config))
    }

    /// Returns the objects that this client controls or subscribes to.
    pub fn objects(&self) -> impl Iterator<Item = ObjectId> {
        self.objects.keys().copied()
    }

    /// Returns the estimate of the server's clock, with the round-trip time of the link.
    pub fn clock(&self) -> &crate::clock::Clock {
        &self.server.clock
    }

    /// Returns the arrival time of the last datagram from the server with a valid header for this incarnation of the
    /// client; before the first, the creation time of this client.
    pub fn last_received_at(&self) -> Instant {
        self.server.last_received_at
    }

    /// Removes and returns the oldest queued event.
    pub fn poll_event(&mut self) -> Option<MotionClientEvent> {
        self.events.pop_front()
    }

    fn push_event(&mut self, event: MotionClientEvent) {
        if self.events.len() >= MAX_EVENTS {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    /// Returns the number of malformed datagrams received since this client was created.
    pub fn malformed(&self) -> u64 {
        self.malformed
    }

    /// Returns the approximate heap size in bytes, which is bounded whatever arrives.
    pub fn memory(&self) -> usize {
        let remote_size = |remote: &RemoteObjectOf<P>| size_of_val(remote) + remote.memory();
        let remotes: usize = self.objects.values().map(remote_size).sum();
        let queues =
            self.events.capacity() * size_of::<MotionClientEvent>() + self.unsubscribed.len() * size_of::<ObjectId>();
        remotes + queues + self.server.memory()
    }
}
