//! One computer of the simulated world: a session, a machine, a player, and what can be wrong with it.

use std::collections::VecDeque;

use coplay::id::{Addr, MAX_SITES, SiteId, SiteSet};
use coplay::input::InputWord;
use coplay::session::{PAGE_SIZE, Session, State, StateRegion};
use coplay::time::{Instant, TimeDelta};
use coplay::wire::{Extra, MAX_DATAGRAM, MembershipDecision, SessionMessage};

use crate::clock::NodeClock;
use crate::random::Random;
use crate::toy_machine::{ToyMachine, mix_hash};

/// A site: what a host program and its computer are to a session.
#[derive(Debug)]
pub struct SimulatedSite {
    /// The engine under test.
    pub session: Session,
    /// The shared machine.
    pub machine: ToyMachine,
    /// This computer's clock.
    pub clock: NodeClock,
    /// Who plays here.
    pub player: RandomPlayer,
    /// How long the machine takes for a step.
    pub step_cost: TimeDelta,
    /// States kept for later, with the frame that comes next in each.
    pub slots: Vec<Option<(u32, ToyMachine)>>,
    /// Frames stepped, but perhaps with wrong inputs.
    pub(crate) unconfirmed: VecDeque<UnconfirmedFrame>,
    /// What the session asked for that makes no sense.
    pub(crate) invalid_request: Option<String>,
    /// When it was driven last, and how often at that instant.
    calls_at_instant: (Instant, u32),
    /// Frames before this one were stepped.
    stepped_end: u32,
    /// In this frame the machine computes something else than others do.
    pub diverges_at: Option<u32>,
    /// It came late.
    pub(crate) is_late_joiner: bool,
    /// The next frame that the machine steps.
    pub(crate) next_frame: u32,
    /// How this site is broken on purpose.
    pub sabotage: Option<Sabotage>,
    /// Whether it is dead.
    pub is_crashed: bool,
    pub(crate) addr: Addr,
    pub(crate) address_changes: u64,
    pub(crate) wake_id: u64,
    pub(crate) busy_until: Instant,
    pub(crate) asleep_until: Instant,
    pub(crate) local_input: Vec<InputWord>,
    pub(crate) previous_input: Vec<InputWord>,
    pub(crate) frame_inputs: Vec<InputWord>,
    pub(crate) has_sampled: bool,
    socket_buffer: Vec<(Addr, Vec<u8>)>,
}

/// A frame whose inputs are not certain yet, or were not told of.
#[derive(Debug)]
pub(crate) struct UnconfirmedFrame {
    pub(crate) frame: u32,
    pub(crate) inputs: Vec<InputWord>,
    pub(crate) hash: u64,
}

/// Faults of an engine, put where they would show, to prove that the checkers see them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    /// After an input was used here, another one is sent in its place.
    ReplaceInput,
    /// Inputs take effect one frame later than promised.
    InputDelayOffByOne,
    /// Inputs that are passed on for others are changed on the way.
    ForgeRelay,
    /// What was sent once is never sent again.
    NoRetransmit,
    /// A state that a latecomer gets has a wrong byte.
    CorruptSnapshot,
    /// Whenever it would have to wait, it takes itself for a quorum and drops all others.
    ContinueWithoutQuorum,
}

/// More calls than this at one instant are without end.
const MAX_CALLS_PER_INSTANT: u32 = 20_000;

/// Packets that the socket of a sleeping computer holds.
const SOCKET_BUFFER_DATAGRAMS: usize = 64;

impl SimulatedSite {
    /// A site with a perfect computer and an idle player.
    pub fn new(session: Session, clock: NodeClock, addr: Addr, players: usize, seed: u64) -> Self {
        let slots = session.slots();
        Self {
            session,
            machine: ToyMachine::new(players),
            clock,
            player: RandomPlayer::new(seed, players),
            step_cost: TimeDelta::ZERO,
            slots: vec![None; slots],
            unconfirmed: VecDeque::new(),
            invalid_request: None,
            calls_at_instant: (Instant::ZERO, 0),
            stepped_end: 0,
            diverges_at: None,
            is_late_joiner: false,
            next_frame: 0,
            sabotage: None,
            is_crashed: false,
            addr,
            address_changes: 0,
            wake_id: 0,
            busy_until: Instant::ZERO,
            asleep_until: Instant::ZERO,
            local_input: vec![0; players],
            previous_input: vec![0; players],
            frame_inputs: Vec::new(),
            has_sampled: false,
            socket_buffer: Vec::new(),
        }
    }

    /// Keeps the machine's state in a place.
    pub(crate) fn save(&mut self, frame: u32, slot: usize) {
        if frame != self.next_frame {
            self.report_invalid_request(format!(
                "asked to save the state before frame {frame} when {} was next",
                self.next_frame
            ));
        }
        match self.slots.get_mut(slot) {
            Some(place) => *place = Some((frame, self.machine.clone())),
            None => self.report_invalid_request(format!("asked to save into slot {slot}")),
        }
    }

    /// The parts of the state, for whoever looks for a difference.
    pub(crate) fn answer_regions(&mut self) {
        let region = |(name, bytes): (&str, Vec<u8>)| StateRegion {
            name: name.into(),
            len: bytes.len() as u32,
            hash: hash_bytes(&bytes),
        };
        let regions: Vec<StateRegion> = self.machine.regions().into_iter().map(region).collect();
        self.session.handle_regions(&regions);
    }

    pub(crate) fn answer_pages(&mut self, region: u8, from: u32) {
        let regions = self.machine.regions();
        let pages =
            regions.get(usize::from(region)).into_iter().flat_map(|(_, bytes)| bytes.chunks(PAGE_SIZE as usize));
        let hashes: Vec<u32> = pages.skip(from as usize).take(256).map(hash_bytes).collect();
        self.session.handle_pages(&hashes);
    }

    /// The state that a latecomer gets.
    pub(crate) fn answer_snapshot(&mut self, frame: u32, slot: Option<usize>) {
        let kept = slot.map(|slot| self.slots.get(slot).cloned().flatten());
        let state = match kept {
            None if frame == self.next_frame => Some(self.machine.clone()),
            None => None,
            Some(kept) => kept.filter(|(saved, _)| *saved == frame).map(|(_, machine)| machine),
        };
        match state {
            Some(machine) => {
                let mut bytes = machine.to_bytes();
                bytes[0] ^= u8::from(self.sabotage == Some(Sabotage::CorruptSnapshot));
                self.session.handle_snapshot(&bytes, machine.hash());
            }
            None => self.report_invalid_request(format!(
                "asked for the state before frame {frame} in slot {slot:?}, where it is not"
            )),
        }
    }

    /// A state from elsewhere.
    pub(crate) fn load_snapshot(&mut self, frame: u32, machine: Option<ToyMachine>) {
        match machine {
            Some(machine) => {
                (self.machine, self.next_frame, self.stepped_end) = (machine, frame, frame);
                self.unconfirmed.clear();
            }
            None => self.report_invalid_request(format!("got no state before frame {frame}")),
        }
    }

    /// How often it has moved.
    pub fn address_changes(&self) -> u64 {
        self.address_changes
    }

    /// Starts the program anew.
    pub fn restart(&mut self, session: Session) {
        let players = self.local_input.len();
        self.session = session;
        let ballast = std::mem::take(&mut self.machine.ballast);
        self.machine = ToyMachine::new(players);
        self.machine.ballast = ballast;
        self.slots.fill(None);
        self.unconfirmed.clear();
        self.socket_buffer.clear();
        (self.is_crashed, self.has_sampled, self.is_late_joiner, self.next_frame) = (false, false, true, 0);
        (self.diverges_at, self.stepped_end) = (None, 0);
        self.busy_until = Instant::ZERO;
    }

    /// Puts the machine back.
    pub(crate) fn load(&mut self, frame: u32, slot: usize) {
        match self.slots.get(slot) {
            Some(Some((saved, machine))) if *saved == frame => {
                self.machine = machine.clone();
                self.next_frame = frame;
            }
            other => {
                let what = format!("asked to load frame {frame} from slot {slot}, which has {other:?}");
                self.report_invalid_request(what);
            }
        }
    }

    /// Steps the machine; returns the state's hash.
    pub(crate) fn advance(&mut self, frame: u32, words: &[InputWord], fresh: bool) -> u64 {
        if frame != self.next_frame {
            self.report_invalid_request(format!("asked to step frame {frame} when {} was next", self.next_frame));
        }
        self.machine.step(words);
        if self.diverges_at == Some(frame) {
            self.machine.corrupt_state();
        }
        self.next_frame = frame + 1;
        let hash = self.machine.hash();
        let first_time = frame >= self.stepped_end;
        match self.unconfirmed.iter_mut().find(|open| open.frame == frame) {
            Some(open) if !fresh => {
                open.inputs.copy_from_slice(words);
                open.hash = hash;
            }
            // A latecomer's first frames are not to be seen.
            None if first_time && (fresh || self.is_late_joiner) => {
                self.stepped_end = frame + 1;
                self.unconfirmed.push_back(UnconfirmedFrame { frame, inputs: words.to_vec(), hash });
            }
            // The past is played again, aside.
            None if !first_time && !fresh && frame < self.session.stats().confirmed.number() => {}
            _ => self.report_invalid_request(format!(
                "stepped frame {frame} again, or for the first time, and said otherwise"
            )),
        }
        hash
    }

    /// The next frame that is certain and was not told of.
    pub(crate) fn next_confirmed(&mut self) -> Option<UnconfirmedFrame> {
        let certain = self.session.stats().confirmed.number();
        let told = self.unconfirmed.front().is_some_and(|open| open.frame < certain);
        told.then(|| self.unconfirmed.pop_front()).flatten()
    }

    /// A session that always wants to be called at once would stop time.
    pub(crate) fn detect_busy_loop(&mut self, now: Instant) {
        self.calls_at_instant =
            if self.calls_at_instant.0 == now { (now, self.calls_at_instant.1 + 1) } else { (now, 0) };
        if self.calls_at_instant.1 > MAX_CALLS_PER_INSTANT {
            self.report_invalid_request("wants to be called again and again".into());
            self.is_crashed = true;
        }
    }

    pub(crate) fn report_invalid_request(&mut self, what: String) {
        self.invalid_request.get_or_insert(what);
    }

    /// The socket of a sleeping computer keeps a few packets.
    pub(crate) fn buffer_datagram(&mut self, sender: Addr, bytes: &[u8]) {
        if self.socket_buffer.len() < SOCKET_BUFFER_DATAGRAMS {
            self.socket_buffer.push((sender, bytes.to_vec()));
        }
    }

    pub(crate) fn deliver_buffered(&mut self, local: Instant) {
        for (sender, bytes) in self.socket_buffer.drain(..) {
            self.session.handle_datagram(local, sender, &bytes);
        }
    }

    /// Whether a packet leaves at all.
    pub(crate) fn may_transmit(&mut self) -> bool {
        let running = matches!(self.session.state(), State::Running | State::Frozen(_));
        self.sabotage != Some(Sabotage::NoRetransmit) || !running || self.has_sampled
    }

    /// Changes the last byte of the newest change of input in what goes to the first site.
    pub(crate) fn tamper(&mut self, to: usize, bytes: &mut [u8]) {
        if self.sabotage == Some(Sabotage::ForgeRelay) {
            return forge_relay(bytes);
        }
        if self.sabotage != Some(Sabotage::ReplaceInput) || to != 0 {
            return;
        }
        let changed =
            matches!(SessionMessage::decode(bytes), Ok(SessionMessage::Tick(tick)) if !tick.changes.is_empty());
        if let Some(last) = bytes.last_mut().filter(|_| changed) {
            *last ^= 0x01;
        }
    }

    /// A word that nobody said: the others are all dropped, each with what is here of its inputs.
    pub(crate) fn inject_forged_decision(&mut self, local: Instant, others: impl Iterator<Item = (SiteId, Addr)>) {
        let State::Frozen(_) = self.session.state() else { return };
        let others: Vec<(SiteId, Addr)> = others.collect();
        let drop: SiteSet = others.iter().map(|(site, _)| *site).collect();
        let stats = self.session.stats();
        let mut lasts = [stats.confirmed; MAX_SITES];
        for (site, _) in &others {
            let ahead = self.session.peer_stats(local, *site).map_or(0, |stats| stats.buffered_frames);
            let end = u32::try_from(ahead).map_or(stats.confirmed, |ahead| stats.frame + ahead);
            lasts[site.index()] = end.max(stats.confirmed);
        }
        let decision = MembershipDecision { drop, input_ends: lasts, left_sites: SiteSet::EMPTY, command: None };
        for (view, (_, sender)) in (0..4).flat_map(|view| others.iter().map(move |other| (view, other))) {
            self.session.handle_datagram(local, *sender, &tick_with_extra(&Extra::DecisionReport(view, decision, 0)));
        }
    }

    /// The session has said all it wants to say about the newest input.
    pub(crate) fn clear_sampled(&mut self) {
        self.has_sampled = false;
    }
}

/// Changes the last byte of inputs that are passed on.
fn forge_relay(bytes: &mut [u8]) {
    let Ok(SessionMessage::Tick(tick)) = SessionMessage::decode(bytes) else { return };
    let relays = tick.extras.iter().filter_map(|extra| match extra {
        Extra::Relay(relay) => relay.changes.last(),
        _ => None,
    });
    let start = bytes.as_ptr().addr();
    let places: Vec<usize> = relays.map(|last| std::ptr::from_ref(last).addr() - start).collect();
    places.into_iter().for_each(|place| bytes[place] ^= 1);
}

/// A tick with nothing but this extra.
fn tick_with_extra(extra: &Extra<'_>) -> Vec<u8> {
    let mut buf = [0; MAX_DATAGRAM];
    let len = extra.encode(&mut buf).expect("room for an extra");
    [&[0x84, 0, 0, 0][..], &(len as u16).to_le_bytes(), &buf[..len], &[0]].concat()
}

fn hash_bytes(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |hash, byte| mix_hash(hash, u64::from(*byte))) as u32
}

/// A player: changes some of the words now and then, to random values.
#[derive(Debug)]
pub struct RandomPlayer {
    random: Random,
    held_input: Vec<InputWord>,
    /// How likely a word changes in a frame.
    pub change_probability: f64,
    /// Bits that a change can set.
    pub mask: InputWord,
}

impl RandomPlayer {
    /// A player who changes 16 bits every eight frames on average.
    pub fn new(seed: u64, players: usize) -> Self {
        Self {
            random: Random::stream(seed, "player"),
            held_input: vec![0; players],
            change_probability: 1.0 / 8.0,
            mask: 0xffff,
        }
    }

    /// The words of a frame.
    pub(crate) fn next_input(&mut self, out: &mut [InputWord]) {
        for word in &mut self.held_input {
            if self.random.chance(self.change_probability) {
                *word = (InputWord::from(self.random.bits()) << 64 | InputWord::from(self.random.bits())) & self.mask;
            }
        }
        out.copy_from_slice(&self.held_input);
    }
}
