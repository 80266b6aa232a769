//! One computer of the simulated world: a session, a machine, a player, and what can be wrong with it.

use std::collections::VecDeque;

use coplay::id::{Addr, MAX_SITES, SiteId, SiteSet};
use coplay::input::InputWord;
use coplay::session::{PAGE_SIZE, Session, State, StateRegion};
use coplay::time::{Instant, TimeDelta};
use coplay::wire::{Extra, MAX_DATAGRAM, MembershipDecision, SessionMessage};

use crate::clock::NodeClock;
use crate::random::Random;
use crate::toy::{Toy, mix};

/// A site: what a host program and its computer are to a session.
#[derive(Debug)]
pub struct Site {
    /// The engine under test.
    pub session: Session,
    /// The shared machine.
    pub machine: Toy,
    /// This computer's clock.
    pub clock: NodeClock,
    /// Who plays here.
    pub player: Player,
    /// How long the machine takes for a step.
    pub step_cost: TimeDelta,
    /// States kept for later, with the frame that comes next in each.
    pub slots: Vec<Option<(u32, Toy)>>,
    /// Frames stepped, but perhaps with wrong inputs.
    pub(crate) open: VecDeque<OpenFrame>,
    /// What the session asked for that makes no sense.
    pub(crate) nonsense: Option<String>,
    /// When it was driven last, and how often at that instant.
    drives: (Instant, u32),
    /// Frames before this one were stepped.
    seen: u32,
    /// In this frame the machine computes something else than others do.
    pub diverges_at: Option<u32>,
    /// It came late.
    pub(crate) joined: bool,
    /// The next frame that the machine steps.
    pub(crate) next_frame: u32,
    /// How this site is broken on purpose.
    pub sabotage: Option<Sabotage>,
    /// Whether it is dead.
    pub crashed: bool,
    pub(crate) addr: Addr,
    pub(crate) moves: u64,
    pub(crate) alarm: u64,
    pub(crate) busy_until: Instant,
    pub(crate) away_until: Instant,
    pub(crate) words: Vec<InputWord>,
    pub(crate) words_before: Vec<InputWord>,
    pub(crate) words_now: Vec<InputWord>,
    pub(crate) sampled: bool,
    held: Vec<(Addr, Vec<u8>)>,
}

/// A frame whose inputs are not certain yet, or were not told of.
#[derive(Debug)]
pub(crate) struct OpenFrame {
    pub(crate) frame: u32,
    pub(crate) words: Vec<InputWord>,
    pub(crate) hash: u64,
}

/// Faults of an engine, put where they would show, to prove that the checkers see them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    /// After an input was used here, another one is sent in its place.
    ReplaceInput,
    /// Inputs take effect one frame later than promised.
    LagOffByOne,
    /// Inputs that are passed on for others are changed on the way.
    ForgeRelay,
    /// What was sent once is never sent again.
    NoResend,
    /// A state that a latecomer gets has a wrong byte.
    WrongSnapshot,
    /// Whenever it would have to wait, it takes itself for a quorum and drops all others.
    GoOnAlone,
}

/// More calls than this at one instant are without end.
const MOST_DRIVES: u32 = 20_000;

/// Packets that the socket of a sleeping computer holds.
const SOCKET_BUFFER: usize = 64;

impl Site {
    /// A site with a perfect computer and an idle player.
    pub fn new(session: Session, clock: NodeClock, addr: Addr, players: usize, seed: u64) -> Self {
        let slots = session.slots();
        Self {
            session,
            machine: Toy::new(players),
            clock,
            player: Player::new(seed, players),
            step_cost: TimeDelta::ZERO,
            slots: vec![None; slots],
            open: VecDeque::new(),
            nonsense: None,
            drives: (Instant::ZERO, 0),
            seen: 0,
            diverges_at: None,
            joined: false,
            next_frame: 0,
            sabotage: None,
            crashed: false,
            addr,
            moves: 0,
            alarm: 0,
            busy_until: Instant::ZERO,
            away_until: Instant::ZERO,
            words: vec![0; players],
            words_before: vec![0; players],
            words_now: Vec::new(),
            sampled: false,
            held: Vec::new(),
        }
    }

    /// Keeps the machine's state in a place.
    pub(crate) fn save(&mut self, frame: u32, slot: usize) {
        if frame != self.next_frame {
            self.complain(format!("asked to save the state before frame {frame} when {} was next", self.next_frame));
        }
        match self.slots.get_mut(slot) {
            Some(place) => *place = Some((frame, self.machine.clone())),
            None => self.complain(format!("asked to save into slot {slot}")),
        }
    }

    /// The parts of the state, for whoever looks for a difference.
    pub(crate) fn tell_regions(&mut self) {
        let region = |(name, bytes): (&str, Vec<u8>)| StateRegion {
            name: name.into(),
            len: bytes.len() as u32,
            hash: hash_of(&bytes),
        };
        let regions: Vec<StateRegion> = self.machine.regions().into_iter().map(region).collect();
        self.session.handle_regions(&regions);
    }

    pub(crate) fn tell_pages(&mut self, region: u8, from: u32) {
        let regions = self.machine.regions();
        let pages =
            regions.get(usize::from(region)).into_iter().flat_map(|(_, bytes)| bytes.chunks(PAGE_SIZE as usize));
        let hashes: Vec<u32> = pages.skip(from as usize).take(256).map(hash_of).collect();
        self.session.handle_pages(&hashes);
    }

    /// The state that a latecomer gets.
    pub(crate) fn snapshot(&mut self, frame: u32, slot: Option<usize>) {
        let kept = slot.map(|slot| self.slots.get(slot).cloned().flatten());
        let state = match kept {
            None if frame == self.next_frame => Some(self.machine.clone()),
            None => None,
            Some(kept) => kept.filter(|(saved, _)| *saved == frame).map(|(_, machine)| machine),
        };
        match state {
            Some(machine) => {
                let mut bytes = machine.to_bytes();
                bytes[0] ^= u8::from(self.sabotage == Some(Sabotage::WrongSnapshot));
                self.session.handle_snapshot(&bytes, machine.hash());
            }
            None => {
                self.complain(format!("asked for the state before frame {frame} in slot {slot:?}, where it is not"))
            }
        }
    }

    /// A state from elsewhere.
    pub(crate) fn restore(&mut self, frame: u32, machine: Option<Toy>) {
        match machine {
            Some(machine) => {
                (self.machine, self.next_frame, self.seen) = (machine, frame, frame);
                self.open.clear();
            }
            None => self.complain(format!("got no state before frame {frame}")),
        }
    }

    /// How often it has moved.
    pub fn moves(&self) -> u64 {
        self.moves
    }

    /// Starts the program anew.
    pub fn restart(&mut self, session: Session) {
        let players = self.words.len();
        self.session = session;
        let ballast = std::mem::take(&mut self.machine.ballast);
        self.machine = Toy::new(players);
        self.machine.ballast = ballast;
        self.slots.fill(None);
        self.open.clear();
        self.held.clear();
        (self.crashed, self.sampled, self.joined, self.next_frame) = (false, false, true, 0);
        (self.diverges_at, self.seen) = (None, 0);
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
                self.complain(what);
            }
        }
    }

    /// Steps the machine; returns the state's hash.
    pub(crate) fn advance(&mut self, frame: u32, words: &[InputWord], fresh: bool) -> u64 {
        if frame != self.next_frame {
            self.complain(format!("asked to step frame {frame} when {} was next", self.next_frame));
        }
        self.machine.step(words);
        if self.diverges_at == Some(frame) {
            self.machine.go_astray();
        }
        self.next_frame = frame + 1;
        let hash = self.machine.hash();
        let first_time = frame >= self.seen;
        match self.open.iter_mut().find(|open| open.frame == frame) {
            Some(open) if !fresh => {
                open.words.copy_from_slice(words);
                open.hash = hash;
            }
            // A latecomer's first frames are not to be seen.
            None if first_time && (fresh || self.joined) => {
                self.seen = frame + 1;
                self.open.push_back(OpenFrame { frame, words: words.to_vec(), hash });
            }
            // The past is played again, aside.
            None if !first_time && !fresh && frame < self.session.stats().confirmed.number() => {}
            _ => self.complain(format!("stepped frame {frame} again, or for the first time, and said otherwise")),
        }
        hash
    }

    /// The next frame that is certain and was not told of.
    pub(crate) fn next_certain(&mut self) -> Option<OpenFrame> {
        let certain = self.session.stats().confirmed.number();
        let told = self.open.front().is_some_and(|open| open.frame < certain);
        told.then(|| self.open.pop_front()).flatten()
    }

    /// A session that always wants to be called at once would stop time.
    pub(crate) fn note_drive(&mut self, now: Instant) {
        self.drives = if self.drives.0 == now { (now, self.drives.1 + 1) } else { (now, 0) };
        if self.drives.1 > MOST_DRIVES {
            self.complain("wants to be called again and again".into());
            self.crashed = true;
        }
    }

    pub(crate) fn complain(&mut self, what: String) {
        self.nonsense.get_or_insert(what);
    }

    /// The socket of a sleeping computer keeps a few packets.
    pub(crate) fn hold(&mut self, sender: Addr, bytes: &[u8]) {
        if self.held.len() < SOCKET_BUFFER {
            self.held.push((sender, bytes.to_vec()));
        }
    }

    pub(crate) fn hear_held(&mut self, local: Instant) {
        for (sender, bytes) in self.held.drain(..) {
            self.session.handle_datagram(local, sender, &bytes);
        }
    }

    /// Whether a packet leaves at all.
    pub(crate) fn lets_pass(&mut self) -> bool {
        let running = matches!(self.session.state(), State::Running | State::Frozen(_));
        self.sabotage != Some(Sabotage::NoResend) || !running || self.sampled
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
    pub(crate) fn hear_lie(&mut self, local: Instant, others: impl Iterator<Item = (SiteId, Addr)>) {
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
            self.session.handle_datagram(local, *sender, &alone(&Extra::DecisionReport(view, decision, 0)));
        }
    }

    /// The session has said all it wants to say about the newest input.
    pub(crate) fn settle(&mut self) {
        self.sampled = false;
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
fn alone(extra: &Extra<'_>) -> Vec<u8> {
    let mut buf = [0; MAX_DATAGRAM];
    let len = extra.encode(&mut buf).expect("room for an extra");
    [&[0x84, 0, 0, 0][..], &(len as u16).to_le_bytes(), &buf[..len], &[0]].concat()
}

fn hash_of(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |hash, byte| mix(hash, u64::from(*byte))) as u32
}

/// A player: changes some of the words now and then, to random values.
#[derive(Debug)]
pub struct Player {
    luck: Random,
    words: Vec<InputWord>,
    /// How likely a word changes in a frame.
    pub restlessness: f64,
    /// Bits that a change can set.
    pub mask: InputWord,
}

impl Player {
    /// A player who changes 16 bits every eight frames on average.
    pub fn new(seed: u64, players: usize) -> Self {
        Self { luck: Random::stream(seed, "player"), words: vec![0; players], restlessness: 1.0 / 8.0, mask: 0xffff }
    }

    /// The words of a frame.
    pub(crate) fn play(&mut self, out: &mut [InputWord]) {
        for word in &mut self.words {
            if self.luck.chance(self.restlessness) {
                *word = (InputWord::from(self.luck.bits()) << 64 | InputWord::from(self.luck.bits())) & self.mask;
            }
        }
        out.copy_from_slice(&self.words);
    }
}
