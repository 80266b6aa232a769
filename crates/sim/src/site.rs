//! One site of a simulated network: a session, a machine and a player.

use std::collections::VecDeque;

use coplay::codec::MAX_DATAGRAM;
use coplay::id::{Addr, MAX_SITES, SiteId, SiteSet};
use coplay::input::InputWord;
use coplay::session::message::{Extra, MembershipDecision, SessionMessage};
use coplay::session::{PAGE_SIZE, Session, State, StateRegion};
use coplay::time::{Instant, TimeDelta};

use crate::toy_machine::{ToyMachine, mix_hash};
use coplay_links::random::Random;

/// A simulated site: the host program of one session.
#[derive(Debug)]
pub struct SimulatedSite {
    /// The engine under test.
    pub session: Session,
    /// The site's replica of the shared machine.
    pub machine: ToyMachine,
    /// Source of the local inputs.
    pub player: RandomPlayer,
    /// Time for which the site is busy with one step of the machine.
    pub step_cost: TimeDelta,
    /// Saved states by slot, each with the frame that the machine steps next from it.
    pub slots: Vec<Option<(u32, ToyMachine)>>,
    /// Frames stepped, perhaps with mispredicted inputs, and not yet reported as confirmed.
    pub(crate) unconfirmed: VecDeque<UnconfirmedFrame>,
    /// Description of the first request that cannot be served, or of an endless loop, until it is reported.
    pub(crate) invalid_request: Option<String>,
    /// Frame after the newest frame that was stepped or is part of a restored state.
    stepped_end: u32,
    /// Frame after whose step the machine's state is corrupted, to provoke a desync; `None` if it never is.
    pub diverges_at: Option<u32>,
    /// Whether the site was restarted with a session that joins a running game.
    pub(crate) is_late_joiner: bool,
    /// Frame that the machine must step next.
    pub(crate) next_frame: u32,
    /// Deliberate defect of this site; `None` for a correct one.
    pub sabotage: Option<SessionSabotage>,
    pub(crate) local_input: Vec<InputWord>,
    pub(crate) previous_input: Vec<InputWord>,
    pub(crate) frame_inputs: Vec<InputWord>,
    pub(crate) has_sampled: bool,
    /// Whether the host program has begun to serve requests, and is neither done nor interrupted by a step.
    pub(crate) is_serving: bool,
}

/// A stepped frame that is not confirmed yet, or whose confirmation is not reported yet.
#[derive(Debug)]
pub(crate) struct UnconfirmedFrame {
    pub(crate) frame: u32,
    pub(crate) inputs: Vec<InputWord>,
    pub(crate) hash: u64,
}

/// Deliberate defects of a site, to prove that the checkers detect them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionSabotage {
    /// The site sends site 0 other inputs than those that it uses itself.
    ReplaceInput,
    /// The site passes each sampled input to its session one frame late.
    InputDelayOffByOne,
    /// The site changes the inputs that it relays for other sites.
    ForgeRelay,
    /// Once the game has started, the site sends only right after it sampled an input. So it retransmits nothing while
    /// it waits for inputs.
    NoRetransmit,
    /// The site flips one bit of every snapshot that it serves to late joiners and spectators.
    CorruptSnapshot,
    /// Whenever its session is frozen, the site drops all other sites by a forged decision, without a quorum.
    ContinueWithoutQuorum,
}

impl SimulatedSite {
    /// Creates a site without faults, whose machine steps in no time and whose player changes its inputs at random.
    pub fn new(session: Session, players: usize, seed: u64) -> Self {
        let slots = session.slots();
        Self {
            session,
            machine: ToyMachine::new(players),
            player: RandomPlayer::new(seed, players),
            step_cost: TimeDelta::ZERO,
            slots: vec![None; slots],
            unconfirmed: VecDeque::new(),
            invalid_request: None,
            stepped_end: 0,
            diverges_at: None,
            is_late_joiner: false,
            next_frame: 0,
            sabotage: None,
            local_input: vec![0; players],
            previous_input: vec![0; players],
            frame_inputs: Vec::new(),
            has_sampled: false,
            is_serving: false,
        }
    }

    /// Saves the machine's state to a slot. Reports an invalid request if the slot does not exist, or if `frame` is not
    /// the frame that the machine steps next.
    pub(crate) fn save(&mut self, frame: u32, slot: usize) {
        if frame != self.next_frame {
            self.report_invalid_request(format!(
                "was asked to save the state before frame {frame}, but frame {} is next",
                self.next_frame
            ));
        }
        match self.slots.get_mut(slot) {
            Some(saved) => *saved = Some((frame, self.machine.clone())),
            None => self.report_invalid_request(format!("was asked to save to slot {slot}, which does not exist")),
        }
    }

    /// Passes name, length and hash of each region of the state to the session, for desync bisection.
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

    /// Passes the state before `frame` to the session, for late joiners and spectators: from `slot` or, if `slot` is
    /// `None`, from the machine. Reports an invalid request if that is not the state before `frame`.
    pub(crate) fn answer_snapshot(&mut self, frame: u32, slot: Option<usize>) {
        let saved_state = slot.map(|slot| self.slots.get(slot).cloned().flatten());
        let state = match saved_state {
            None if frame == self.next_frame => Some(self.machine.clone()),
            None => None,
            Some(saved_state) => saved_state.filter(|(saved, _)| *saved == frame).map(|(_, machine)| machine),
        };
        match state {
            Some(machine) => {
                let mut bytes = machine.to_bytes();
                bytes[0] ^= u8::from(self.sabotage == Some(SessionSabotage::CorruptSnapshot));
                self.session.handle_snapshot(&bytes, machine.hash());
            }
            None => self.report_invalid_request(format!(
                "was asked for the state before frame {frame} in slot {slot:?}, which does not hold it"
            )),
        }
    }

    /// Loads a state received from another site, with `frame` as the next frame. `None` stands for bytes that did not
    /// decode and is reported as an invalid request.
    pub(crate) fn load_snapshot(&mut self, frame: u32, machine: Option<ToyMachine>) {
        match machine {
            Some(machine) => {
                (self.machine, self.next_frame, self.stepped_end) = (machine, frame, frame);
                self.unconfirmed.clear();
            }
            None => self.report_invalid_request(format!("received an invalid state before frame {frame}")),
        }
    }

    /// Restarts the host program with a new session and a machine at frame 0. Player, step cost, sabotage and ballast
    /// stay.
    pub(crate) fn restart(&mut self, session: Session) {
        let players = self.local_input.len();
        self.session = session;
        let ballast = std::mem::take(&mut self.machine.ballast);
        self.machine = ToyMachine::new(players);
        self.machine.ballast = ballast;
        self.slots.fill(None);
        self.unconfirmed.clear();
        (self.has_sampled, self.is_serving, self.is_late_joiner, self.next_frame) = (false, false, true, 0);
        (self.diverges_at, self.stepped_end) = (None, 0);
    }

    /// Loads the state before `frame` from a slot into the machine. Reports an invalid request if the slot does not
    /// hold that state.
    pub(crate) fn load(&mut self, frame: u32, slot: usize) {
        match self.slots.get(slot) {
            Some(Some((saved, machine))) if *saved == frame => {
                self.machine = machine.clone();
                self.next_frame = frame;
            }
            other => {
                let description =
                    format!("was asked to load the state before frame {frame} from slot {slot}, which holds {other:?}");
                self.report_invalid_request(description);
            }
        }
    }

    /// Steps the machine and returns the state hash after the step. A frame out of order or a wrong `fresh` is reported
    /// as an invalid request.
    pub(crate) fn advance(&mut self, frame: u32, words: &[InputWord], fresh: bool) -> u64 {
        if frame != self.next_frame {
            self.report_invalid_request(format!(
                "was asked to step frame {frame}, but frame {} is next",
                self.next_frame
            ));
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
            // A late joiner steps its first frames as resimulated ones.
            None if first_time && (fresh || self.is_late_joiner) => {
                self.stepped_end = frame + 1;
                self.unconfirmed.push_back(UnconfirmedFrame { frame, inputs: words.to_vec(), hash });
            }
            // Desync bisection resimulates confirmed frames.
            None if !first_time && !fresh && frame < self.session.stats().confirmed.number() => {}
            _ => self.report_invalid_request(format!("was asked to step frame {frame} with a wrong value of `fresh`")),
        }
        hash
    }

    /// Removes and returns the next frame that is confirmed and not reported yet; `None` if there is none.
    pub(crate) fn next_confirmed(&mut self) -> Option<UnconfirmedFrame> {
        let confirmed = self.session.stats().confirmed.number();
        let is_confirmed = self.unconfirmed.front().is_some_and(|open| open.frame < confirmed);
        is_confirmed.then(|| self.unconfirmed.pop_front()).flatten()
    }

    pub(crate) fn report_invalid_request(&mut self, description: String) {
        self.invalid_request.get_or_insert(description);
    }

    /// Returns whether the site may send a datagram now: always, except with [`SessionSabotage::NoRetransmit`] in a
    /// game that has started, when the site has not just sampled an input.
    pub(crate) fn may_transmit(&mut self) -> bool {
        let running = matches!(self.session.state(), State::Running | State::Frozen(_));
        self.sabotage != Some(SessionSabotage::NoRetransmit) || !running || self.has_sampled
    }

    /// Applies the sabotage to a datagram to site `to`. [`SessionSabotage::ReplaceInput`] flips a bit in the last byte
    /// of ticks to site 0 that contain input changes, [`SessionSabotage::ForgeRelay`] one in each relayed range of
    /// inputs.
    pub(crate) fn tamper(&mut self, to: usize, bytes: &mut [u8]) {
        if self.sabotage == Some(SessionSabotage::ForgeRelay) {
            return forge_relay(bytes);
        }
        if self.sabotage != Some(SessionSabotage::ReplaceInput) || to != 0 {
            return;
        }
        let changed =
            matches!(SessionMessage::decode(bytes), Ok(SessionMessage::Tick(tick)) if !tick.changes.is_empty());
        if let Some(last) = bytes.last_mut().filter(|_| changed) {
            *last ^= 0x01;
        }
    }

    /// If the session is frozen, passes it forged decisions that seem to come from each of the other sites, for the
    /// epochs 0 to 3. Every decision drops all other sites and keeps the inputs known here.
    pub(crate) fn inject_forged_decision(&mut self, local: Instant, others: impl Iterator<Item = (SiteId, Addr)>) {
        let State::Frozen(_) = self.session.state() else { return };
        let others: Vec<(SiteId, Addr)> = others.collect();
        let drop: SiteSet = others.iter().map(|(site, _)| *site).collect();
        let stats = self.session.stats();
        let mut input_ends = [stats.confirmed; MAX_SITES];
        for (site, _) in &others {
            let ahead = self.session.peer_stats(local, *site).map_or(0, |stats| stats.buffered_frames);
            let end = u32::try_from(ahead).map_or(stats.confirmed, |ahead| stats.frame + ahead);
            input_ends[site.index()] = end.max(stats.confirmed);
        }
        let decision = MembershipDecision { drop, input_ends, left_sites: SiteSet::EMPTY, command: None };
        for (epoch, (_, sender)) in (0..4).flat_map(|epoch| others.iter().map(move |other| (epoch, other))) {
            self.session.handle_datagram(local, *sender, &tick_with_extra(&Extra::DecisionReport(epoch, decision, 0)));
        }
    }

    /// Marks that all datagrams about the newest input were sent.
    pub(crate) fn clear_sampled(&mut self) {
        self.has_sampled = false;
    }
}

/// Flips a bit in the last byte of each relayed range of inputs.
fn forge_relay(bytes: &mut [u8]) {
    let Ok(SessionMessage::Tick(tick)) = SessionMessage::decode(bytes) else { return };
    let relays = tick.extras.iter().filter_map(|extra| match extra {
        Extra::Relay(relay) => relay.changes.last(),
        _ => None,
    });
    let start = bytes.as_ptr().addr();
    let offsets: Vec<usize> = relays.map(|last| std::ptr::from_ref(last).addr() - start).collect();
    offsets.into_iter().for_each(|offset| bytes[offset] ^= 1);
}

/// Encodes a tick without inputs that carries only this extra.
fn tick_with_extra(extra: &Extra<'_>) -> Vec<u8> {
    let mut buf = [0; MAX_DATAGRAM];
    let len = extra.encode(&mut buf).expect("the extra fits");
    [&[0x84, 0, 0, 0][..], &(len as u16).to_le_bytes(), &buf[..len], &[0]].concat()
}

fn hash_bytes(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |hash, byte| mix_hash(hash, u64::from(*byte))) as u32
}

/// A simulated player, which changes the input words of its site to random values.
#[derive(Debug)]
pub struct RandomPlayer {
    random: Random,
    held_input: Vec<InputWord>,
    /// Probability that an input word is drawn again in a frame.
    pub change_probability: f64,
    /// Bits that a new input word may have.
    pub mask: InputWord,
}

impl RandomPlayer {
    /// Creates a player that redraws each input word every eight frames on average, with 16 random bits.
    pub fn new(seed: u64, players: usize) -> Self {
        Self {
            random: Random::stream(seed, "player"),
            held_input: vec![0; players],
            change_probability: 1.0 / 8.0,
            mask: 0xffff,
        }
    }

    /// Draws the input words of the next frame, and writes them to `out`, one per player.
    pub(crate) fn next_input(&mut self, out: &mut [InputWord]) {
        for word in &mut self.held_input {
            if self.random.chance(self.change_probability) {
                *word = (InputWord::from(self.random.bits()) << 64 | InputWord::from(self.random.bits())) & self.mask;
            }
        }
        out.copy_from_slice(&self.held_input);
    }
}
