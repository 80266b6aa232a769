//! A site of the rollback benchmark that runs coplay.

use std::hint::black_box;

use coplay::codec::MAX_DATAGRAM;
use coplay::frame::FrameRate;
use coplay::id::{Addr, SiteId};
use coplay::input::{InputWord, Ownership};
use coplay::session::message::SessionMessage;
use coplay::session::{Config, Request, Session, Settings};
use coplay::time::Instant;
use coplay_sim::session_experiment::toy_settings;

use super::BenchCase;
use super::host_program::{BenchHost, SharedQueues, SiteQueues};
use crate::workload::{FRAME_RATE, HASH_INTERVAL};

/// A site of coplay, driven according to its documentation: by every datagram and at its deadline.
#[derive(Debug)]
pub struct CoplaySite {
    number: usize,
    session: Session,
    queues: SharedQueues,
    input_words: Vec<InputWord>,
    buf: [u8; MAX_DATAGRAM],
    deadline: Instant,
}

/// Returns the session settings of this case, which all sites share.
pub fn settings(case: &BenchCase) -> Settings {
    Settings {
        compare_interval: HASH_INTERVAL,
        prediction_window: case.prediction_window,
        rate: FrameRate::per_second(FRAME_RATE).expect("60 is a valid frame rate"),
        ..toy_settings(case.input_delay, Ownership::one_player_per_site(case.sites, 0xffff))
    }
}

impl super::network::RollbackSite for CoplaySite {
    const WOKEN_BY_DATAGRAMS: bool = true;

    fn new(case: &BenchCase, number: usize, queues: SharedQueues) -> Self {
        let id = SiteId::first(case.sites).nth(number).expect("site number is below MAX_SITES");
        let others = SiteId::first(case.sites).filter(|other| *other != id);
        let peers = others.map(|other| (other, Addr(other.index() as u64))).collect();
        let (start_time, config) =
            (case.start_time(number), Config { bisect_desyncs: false, ..Config::new(1, id, peers, settings(case)) });
        Self {
            number,
            session: Session::new(start_time, config).expect("settings are valid"),
            queues,
            input_words: vec![0; case.sites],
            buf: [0; MAX_DATAGRAM],
            deadline: start_time,
        }
    }

    fn wake(&mut self, now: Instant, host: &mut BenchHost) {
        host.stopwatch.start();
        // A host program reads its clock, which counts as part of coplay's cost.
        black_box(std::time::Instant::now());
        let Self { session, queues, .. } = self;
        queues.borrow_mut().inbox.drain(|from, bytes| session.handle_datagram(now, Addr(from as u64), bytes));
        while self.serve_request(now, host) {
            self.transmit(now);
        }
        self.transmit(now);
        while let Some(event) = self.session.poll_event() {
            black_box(event);
        }
        self.deadline = self.session.poll_timeout().expect("the session is running");
        host.stopwatch.stop();
    }

    fn deadline(&self) -> Instant {
        self.deadline
    }

    fn carries_inputs(bytes: &[u8]) -> bool {
        matches!(SessionMessage::decode(bytes), Ok(SessionMessage::Tick(_)))
    }

    fn error(&self) -> Option<String> {
        let dropped = self.session.stats().dropped_datagrams;
        (dropped.malformed + dropped.strangers + dropped.inputs > 0).then(|| format!("datagrams dropped: {dropped:?}"))
    }
}

impl CoplaySite {
    /// Serves the session's next request. Returns `false` if there is none.
    fn serve_request(&mut self, now: Instant, host: &mut BenchHost) -> bool {
        match self.session.poll_request(now) {
            None => return false,
            Some(Request::Sample { frame }) => {
                self.input_words[self.number] = InputWord::from(host.sample(frame.number()));
                self.session.handle_input(now, &self.input_words);
            }
            Some(Request::Save { frame, slot }) => host.save(frame.number(), slot),
            Some(Request::Load { frame, slot }) => host.load(frame.number(), slot),
            Some(Request::Advance { inputs, fresh, .. }) => {
                let first = host.step(inputs.iter().map(|word| *word as u16));
                assert_eq!(fresh, first, "the session reports fresh frames correctly");
            }
            Some(Request::Snapshot { .. } | Request::Restore { .. }) => unreachable!("no site joins late"),
            Some(Request::Regions { .. } | Request::Pages { .. }) => unreachable!("no desync occurs"),
            Some(Request::Hash { .. }) => self.session.handle_hash(host.digest()),
        }
        true
    }

    fn transmit(&mut self, now: Instant) {
        let SiteQueues { outbox, .. } = &mut *self.queues.borrow_mut();
        while let Some(transmit) = self.session.poll_transmit(now, &mut self.buf) {
            outbox.push(transmit.to.0 as usize, &self.buf[..transmit.len]);
        }
    }
}
