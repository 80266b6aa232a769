//! ggrs sessions in lockstep mode (no prediction).
//!
//! With [`PollPolicy::Once`], each site is driven in the cheapest way that the documentation of ggrs allows: per frame,
//! one input and one call of `advance_frame`, which polls the socket itself. ggrs reads the real clock there, which is
//! part of its cost.
//!
//! Two things make ggrs look cheaper here than in a game. Its quality reports follow the real clock, five per second:
//! at the speed of a benchmark it sends hardly any, while at 60 frames per second there is one per twelve frames and
//! link, and an answer to it. And it cannot compare states in this mode, because it never requests that a state be
//! saved.

use std::cell::RefCell;
use std::rc::Rc;

use ggrs::{
    Config, GgrsRequest, Message, NonBlockingSocket, P2PSession, PlayerType, PredictRepeatLast, SessionBuilder,
};
use ggrs::{DesyncDetection, SessionState};

use crate::inbox::Inbox;
use crate::workload::{DigestMachine, Engine, FRAME_RATE, INPUT_DELAY, Inputs, Traffic};

/// Form in which messages pass between the sites.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageEncoding {
    /// As bytes, encoded as in the UDP socket of ggrs.
    Bytes,
    /// As values. Nothing is encoded or decoded, and no bytes are counted.
    Messages,
}

/// Calls of a ggrs session, per frame, that poll its socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PollPolicy {
    /// `advance_frame` alone, which polls.
    Once,
    /// `poll_remote_clients` and then `advance_frame`, as in the examples of ggrs.
    Twice,
}

/// All sites of a ggrs session in lockstep.
pub struct GgrsGroup {
    sites: Vec<GgrsLockstepSite>,
    wire: Rc<RefCell<SharedWire>>,
    inputs: Inputs,
    polling: PollPolicy,
    target_frame: u32,
}

struct GgrsLockstepSite {
    number: usize,
    session: P2PSession<GgrsLockstepConfig>,
    machine: DigestMachine,
}

struct GgrsLockstepConfig;

impl Config for GgrsLockstepConfig {
    type Input = u16;
    type InputPredictor = PredictRepeatLast;
    type State = ();
    type Address = usize;
}

/// Messages that wait for each site, as bytes or as values.
struct SharedWire {
    inboxes: Vec<Inbox>,
    messages: Vec<Vec<(usize, Message)>>,
    message_count: u64,
}

struct WireSocket {
    number: usize,
    passing: MessageEncoding,
    wire: Rc<RefCell<SharedWire>>,
}

impl NonBlockingSocket<usize> for WireSocket {
    fn send_to(&mut self, message: &Message, to: &usize) {
        let mut wire = self.wire.borrow_mut();
        match self.passing {
            MessageEncoding::Bytes => {
                let bytes = bincode::serialize(&message).expect("messages are encodable");
                wire.inboxes[*to].push(self.number, &bytes);
            }
            MessageEncoding::Messages => {
                wire.messages[*to].push((self.number, message.clone()));
                wire.message_count += 1;
            }
        }
    }

    fn receive_all_messages(&mut self) -> Vec<(usize, Message)> {
        let mut wire = self.wire.borrow_mut();
        let mut received = Vec::new();
        match self.passing {
            MessageEncoding::Bytes => wire.inboxes[self.number].drain(|from, bytes| {
                if let Ok(message) = bincode::deserialize(bytes) {
                    received.push((from, message));
                }
            }),
            MessageEncoding::Messages => received.append(&mut wire.messages[self.number]),
        }
        received
    }
}

impl GgrsGroup {
    /// Creates `sites` sites and runs them until all are connected.
    pub fn new(sites: usize, inputs: Inputs, passing: MessageEncoding, polling: PollPolicy) -> Self {
        let wire = Rc::new(RefCell::new(SharedWire {
            inboxes: (0..sites).map(|_| Inbox::new()).collect(),
            messages: (0..sites).map(|_| Vec::with_capacity(64)).collect(),
            message_count: 0,
        }));
        let socket = |number| WireSocket { number, passing, wire: Rc::clone(&wire) };
        let mut all: Vec<GgrsLockstepSite> =
            (0..sites).map(|number| GgrsLockstepSite::new(number, sites, socket(number))).collect();
        while all.iter().any(|site| site.session.current_state() != SessionState::Running) {
            for site in &mut all {
                site.session.poll_remote_clients();
            }
        }
        Self { sites: all, wire, inputs, polling, target_frame: 0 }
    }
}

impl GgrsLockstepSite {
    fn new(number: usize, sites: usize, socket: WireSocket) -> Self {
        let builder = SessionBuilder::<GgrsLockstepConfig>::new()
            .with_num_players(sites)
            .and_then(|builder| builder.with_fps(FRAME_RATE as usize))
            .expect("valid player count and frame rate")
            .with_max_prediction_window(0)
            .with_input_delay(INPUT_DELAY as usize)
            .with_desync_detection_mode(DesyncDetection::Off);
        let player = |other| if other == number { PlayerType::Local } else { PlayerType::Remote(other) };
        let builder = (0..sites).try_fold(builder, |builder, other| builder.add_player(player(other), other));
        let session = builder.and_then(|builder| builder.start_p2p_session(socket)).expect("settings are valid");
        Self { number, session, machine: DigestMachine::default() }
    }

    fn step_frame(&mut self, inputs: &Inputs, polling: PollPolicy) {
        if polling == PollPolicy::Twice {
            self.session.poll_remote_clients();
        }
        let input = inputs.pressed(self.number, self.machine.frames());
        self.session.add_local_input(self.number, input).expect("the player is local");
        for request in self.session.advance_frame().expect("the session runs") {
            match request {
                GgrsRequest::AdvanceFrame { inputs } => self.machine.step(inputs.iter().map(|(input, _)| *input)),
                GgrsRequest::SaveGameState { .. } | GgrsRequest::LoadGameState { .. } => {
                    unreachable!("lockstep neither saves nor loads")
                }
            }
        }
        self.session.events().for_each(drop);
    }
}

impl Engine for GgrsGroup {
    fn run(&mut self, frames: u32) {
        self.target_frame += frames;
        let mut rounds = 0;
        while self.sites.iter().any(|site| site.machine.frames() < self.target_frame) {
            for site in &mut self.sites {
                site.step_frame(&self.inputs, self.polling);
            }
            rounds += 1;
        }
        // The first site waits once for the others to start.
        assert!(rounds <= frames + 1, "stalled: {rounds} rounds for {frames} frames");
    }

    fn traffic(&self) -> Traffic {
        let wire = self.wire.borrow();
        let messages = Traffic { datagrams: wire.message_count, bytes: 0 };
        wire.inboxes.iter().map(Inbox::traffic).chain([messages]).sum()
    }

    fn states(&self) -> Vec<u64> {
        self.sites.iter().map(|site| site.machine.state_after(self.target_frame)).collect()
    }
}
