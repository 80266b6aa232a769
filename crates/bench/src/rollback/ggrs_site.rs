//! A site of the rollback benchmark that runs ggrs.
//!
//! The site is driven according to the documentation and the two-player example of ggrs: a loop at 60 frames per
//! second, in which a tick is longer by a tenth while `frames_ahead` is above zero. Where there is a choice, the site
//! is driven in the cheapest way. Once the sites are connected, a tick calls `advance_frame` without
//! `poll_remote_clients`, because `advance_frame` polls the socket first. The host program keeps the states in slots
//! like those of coplay, and ggrs's cells hold none, so that no state is copied twice. States are not compared, which
//! is the default.
//!
//! When the prediction window is exhausted, `advance_frame` requests no new frame; the next tick tries again.

use coplay::time::Instant;
use ggrs::{
    Config, DesyncDetection, GgrsError, GgrsEvent, GgrsRequest, Message, NonBlockingSocket, P2PSession, PlayerType,
    PredictRepeatLast, SessionBuilder, SessionState,
};

use super::host_program::{BenchHost, SharedQueues};
use super::{BenchCase, FRAME_PERIOD};
use crate::workload::FRAME_RATE;

/// Factor by which a tick is longer while the site is ahead of the others, as in the examples of ggrs.
const SLOWDOWN_WHEN_AHEAD: f64 = 1.1;
/// Byte range of the message kind in an encoded message.
const MESSAGE_KIND_RANGE: std::ops::Range<usize> = 2..6;
/// Encoded kind of an input message.
const INPUT_MESSAGE_KIND: [u8; 4] = [2, 0, 0, 0];

/// A site of ggrs, called once per tick.
pub struct GgrsSite {
    number: usize,
    session: P2PSession<GgrsConfig>,
    input_delay: u32,
    slot_count: usize,
    deadline: Instant,
    error: Option<String>,
}

struct GgrsConfig;

impl Config for GgrsConfig {
    type Input = u16;
    type InputPredictor = PredictRepeatLast;
    type State = ();
    type Address = usize;
}

/// A socket that encodes and decodes as the UDP socket of ggrs does.
struct QueueSocket {
    queues: SharedQueues,
}

impl NonBlockingSocket<usize> for QueueSocket {
    fn send_to(&mut self, message: &Message, to: &usize) {
        let bytes = bincode::serialize(&message).expect("messages are encodable");
        self.queues.borrow_mut().outbox.push(*to, &bytes);
    }

    fn receive_all_messages(&mut self) -> Vec<(usize, Message)> {
        let mut received = Vec::new();
        self.queues.borrow_mut().inbox.drain(|from, bytes| {
            if let Ok(message) = bincode::deserialize(bytes) {
                received.push((from, message));
            }
        });
        received
    }
}

impl super::network::RollbackSite for GgrsSite {
    const WOKEN_BY_DATAGRAMS: bool = false;

    fn new(case: &BenchCase, number: usize, queues: SharedQueues) -> Self {
        let builder = SessionBuilder::<GgrsConfig>::new()
            .with_num_players(case.sites)
            .and_then(|builder| builder.with_fps(FRAME_RATE as usize))
            .expect("valid player count and frame rate")
            .with_max_prediction_window(case.prediction_window as usize)
            .with_input_delay(case.input_delay as usize)
            .with_desync_detection_mode(DesyncDetection::Off);
        let player = |other| if other == number { PlayerType::Local } else { PlayerType::Remote(other) };
        let builder = (0..case.sites).try_fold(builder, |builder, other| builder.add_player(player(other), other));
        let session = builder.and_then(|builder| builder.start_p2p_session(QueueSocket { queues }));
        Self {
            number,
            session: session.expect("settings are valid"),
            input_delay: case.input_delay,
            slot_count: case.prediction_window as usize + 1,
            deadline: case.start_time(number),
            error: None,
        }
    }

    fn wake(&mut self, now: Instant, host: &mut BenchHost) {
        host.stopwatch.start();
        match self.session.current_state() {
            SessionState::Running => self.advance_frame(host),
            SessionState::Synchronizing => self.session.poll_remote_clients(),
        }
        for event in self.session.events() {
            if let GgrsEvent::Disconnected { addr } = event {
                self.error.get_or_insert_with(|| format!("disconnected from site {addr}"));
            }
        }
        let ahead = self.session.frames_ahead() > 0;
        self.deadline = now + if ahead { FRAME_PERIOD.scale(SLOWDOWN_WHEN_AHEAD) } else { FRAME_PERIOD };
        host.stopwatch.stop();
    }

    fn deadline(&self) -> Instant {
        self.deadline
    }

    fn carries_inputs(bytes: &[u8]) -> bool {
        bytes.get(MESSAGE_KIND_RANGE) == Some(&INPUT_MESSAGE_KIND)
    }

    fn error(&self) -> Option<String> {
        self.error.clone()
    }
}

impl GgrsSite {
    fn advance_frame(&mut self, host: &mut BenchHost) {
        let input = host.sample(self.session.current_frame() as u32 + self.input_delay);
        self.session.add_local_input(self.number, input).expect("the player is local");
        match self.session.advance_frame() {
            Ok(requests) => requests.into_iter().for_each(|request| self.serve_request(request, host)),
            Err(GgrsError::PredictionThreshold) => {}
            Err(error) => panic!("cannot advance the frame: {error}"),
        }
    }

    fn serve_request(&self, request: GgrsRequest<GgrsConfig>, host: &mut BenchHost) {
        let slot = |frame: i32| frame as usize % self.slot_count;
        match request {
            GgrsRequest::SaveGameState { cell, frame } => {
                cell.save(frame, None, None);
                host.save(frame as u32, slot(frame));
            }
            GgrsRequest::LoadGameState { frame, .. } => host.load(frame as u32, slot(frame)),
            GgrsRequest::AdvanceFrame { inputs } => {
                host.step(inputs.iter().map(|(input, _)| *input));
            }
        }
    }
}
