//! The host program of a fuzzed site: serves the requests of its session, and checks that they are valid.

use coplay::frame::Frame;
use coplay::session::{Request, State};
use coplay::time::Instant;

use crate::machine::InputWords;
use crate::site::FuzzedSite;

/// Number of bytes that a bulky state has besides its hash.
const BULKY_STATE_LEN: usize = 40_000;

/// A request of a session, without borrowed data.
#[derive(Debug)]
pub(crate) enum OwnedRequest {
    Sample(Frame),
    Save(Frame, usize),
    Load(Frame, usize),
    Advance(Frame, InputWords, bool),
    Snapshot(Frame, Option<usize>),
    Restore(Frame, Vec<u8>),
    Hash,
}

impl FuzzedSite {
    /// Returns the session's next request, which no longer borrows from the session.
    pub(crate) fn poll_owned_request(&mut self, now: Instant) -> Option<OwnedRequest> {
        Some(match self.session.poll_request(now)? {
            Request::Sample { frame } => OwnedRequest::Sample(frame),
            Request::Save { frame, slot } => OwnedRequest::Save(frame, slot),
            Request::Load { frame, slot } => OwnedRequest::Load(frame, slot),
            Request::Advance { frame, inputs, fresh } => {
                let mut words = InputWords::default();
                words[..inputs.len()].copy_from_slice(inputs);
                OwnedRequest::Advance(frame, words, fresh)
            }
            Request::Snapshot { frame, slot } => OwnedRequest::Snapshot(frame, slot),
            Request::Restore { frame, state } => OwnedRequest::Restore(frame, state.to_vec()),
            Request::Hash { .. } => OwnedRequest::Hash,
            Request::Regions { .. } | Request::Pages { .. } => unreachable!("desyncs are not bisected"),
        })
    }

    /// Serves a request and asserts that it is valid. With `bulky`, a snapshot has [`BULKY_STATE_LEN`] additional
    /// bytes.
    pub(crate) fn serve_request(&mut self, now: Instant, request: OwnedRequest, players: usize, bulky: bool) {
        let joining = matches!(self.session.state(), State::Joining { .. });
        if !joining {
            self.seated_from.get_or_insert(self.machine.stepped_frames);
        }
        match request {
            OwnedRequest::Sample(frame) => self.serve_sample(now, frame.number()),
            OwnedRequest::Save(frame, slot) => self.machine.save(frame.number(), slot),
            OwnedRequest::Load(frame, slot) => self.machine.load(frame.number(), slot),
            OwnedRequest::Advance(frame, words, fresh) => {
                assert!(!joining || !fresh, "a late joiner presents no frame");
                self.machine.advance(frame.number(), &words[..players], fresh || joining);
            }
            OwnedRequest::Snapshot(frame, slot) => {
                let (state, hash) =
                    self.machine.snapshot(frame.number(), slot, if bulky { BULKY_STATE_LEN } else { 0 });
                self.session.handle_snapshot(&state, hash);
            }
            OwnedRequest::Restore(frame, state) => {
                assert!(joining, "only a late joiner restores a state");
                self.machine.restore(frame.number(), &state);
            }
            OwnedRequest::Hash => self.session.handle_hash(self.machine.state_hash),
        }
        if !joining {
            self.machine.confirm_until(self.session.stats().confirmed.number());
        }
    }

    fn serve_sample(&mut self, now: Instant, frame: u32) {
        assert!(!self.has_left, "a site that has left is not sampled");
        if let Some(before) = frame.checked_sub(1).filter(|_| self.first_sampled_frame.is_some()) {
            assert!(self.given_inputs.contains_key(&before), "frame {frame} does not follow the previous one");
        }
        self.first_sampled_frame.get_or_insert(frame);
        let words = self.sample_input(frame);
        self.session.handle_input(now, &words);
    }
}
