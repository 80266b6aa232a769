//! The host program of a fuzzed site: does what its session asks for, and checks that it makes sense.

use coplay::frame::Frame;
use coplay::session::{Request, State};
use coplay::time::Instant;

use crate::machine::Words;
use crate::site::Site;

/// What a bulky state takes beside itself, in bytes.
const BULK: usize = 40_000;

/// What a session asks for, without what it borrows.
#[derive(Debug)]
pub(crate) enum Asked {
    Sample(Frame),
    Save(Frame, usize),
    Load(Frame, usize),
    Advance(Frame, Words, bool),
    Snapshot(Frame, Option<usize>),
    Restore(Frame, Vec<u8>),
    Hash,
}

impl Site {
    /// What the session asks for next.
    pub(crate) fn ask(&mut self, now: Instant) -> Option<Asked> {
        Some(match self.session.poll_request(now)? {
            Request::Sample { frame } => Asked::Sample(frame),
            Request::Save { frame, slot } => Asked::Save(frame, slot),
            Request::Load { frame, slot } => Asked::Load(frame, slot),
            Request::Advance { frame, inputs, fresh } => {
                let mut words = Words::default();
                words[..inputs.len()].copy_from_slice(inputs);
                Asked::Advance(frame, words, fresh)
            }
            Request::Snapshot { frame, slot } => Asked::Snapshot(frame, slot),
            Request::Restore { frame, state } => Asked::Restore(frame, state.to_vec()),
            Request::Hash { .. } => Asked::Hash,
            Request::Regions { .. } | Request::Pages { .. } => unreachable!("differences are not looked into"),
        })
    }

    /// Does it.
    pub(crate) fn serve(&mut self, now: Instant, asked: Asked, players: usize, bulky: bool) {
        let joining = matches!(self.session.state(), State::Joining { .. });
        if !joining {
            self.seated.get_or_insert(self.machine.stepped);
        }
        match asked {
            Asked::Sample(frame) => self.serve_sample(now, frame.number()),
            Asked::Save(frame, slot) => self.machine.save(frame.number(), slot),
            Asked::Load(frame, slot) => self.machine.load(frame.number(), slot),
            Asked::Advance(frame, words, fresh) => {
                assert!(!joining || !fresh, "who comes late shows nothing");
                self.machine.advance(frame.number(), &words[..players], fresh || joining);
            }
            Asked::Snapshot(frame, slot) => {
                let (state, hash) = self.machine.snapshot(frame.number(), slot, if bulky { BULK } else { 0 });
                self.session.handle_snapshot(&state, hash);
            }
            Asked::Restore(frame, state) => {
                assert!(joining, "only who comes late takes another's state");
                self.machine.restore(frame.number(), &state);
            }
            Asked::Hash => self.session.handle_hash(self.machine.state),
        }
        if !joining {
            self.machine.confirm(self.session.stats().confirmed.number());
        }
    }

    fn serve_sample(&mut self, now: Instant, frame: u32) {
        assert!(!self.left, "who left is not asked");
        if let Some(before) = frame.checked_sub(1).filter(|_| self.asked_from.is_some()) {
            assert!(self.given.contains_key(&before), "frame {frame} does not follow on the one before");
        }
        self.asked_from.get_or_insert(frame);
        let words = self.sample(frame);
        self.session.handle_input(now, &words);
    }
}
