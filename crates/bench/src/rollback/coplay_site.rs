//! A site of coplay.

use std::hint::black_box;

use coplay::frame::FrameRate;
use coplay::id::{Addr, SiteId};
use coplay::input::{InputWord, Ownership};
use coplay::session::{Config, Request, Session, Settings};
use coplay::time::Instant;
use coplay::wire::{MAX_DATAGRAM, SessionMessage};
use coplay_sim::session_experiment::toy_settings;

use super::BenchCase;
use super::host_program::{BenchHost, SharedQueues, SiteQueues};
use crate::workload::{FRAME_RATE, HASH_INTERVAL};

/// A site of coplay, driven as its documentation says: whenever a datagram comes or its time has come.
#[derive(Debug)]
pub struct CoplaySite {
    number: usize,
    session: Session,
    queues: SharedQueues,
    input_words: Vec<InputWord>,
    buf: [u8; MAX_DATAGRAM],
    deadline: Instant,
}

/// What all sites agree on.
pub fn settings(case: &BenchCase) -> Settings {
    Settings {
        compare_interval: HASH_INTERVAL,
        prediction_window: case.prediction_window,
        rate: FrameRate::per_second(FRAME_RATE).expect("60 is a frame rate"),
        ..toy_settings(case.input_delay, Ownership::one_player_per_site(case.sites, 0xffff))
    }
}

impl super::network::RollbackSite for CoplaySite {
    const WOKEN_BY_DATAGRAMS: bool = true;

    fn new(case: &BenchCase, number: usize, mail: SharedQueues) -> Self {
        let id = SiteId::first(case.sites).nth(number).expect("no more sites than there can be");
        let others = SiteId::first(case.sites).filter(|other| *other != id);
        let peers = others.map(|other| (other, Addr(other.index() as u64))).collect();
        let (begins, config) =
            (case.start_time(number), Config { bisect_desyncs: false, ..Config::new(1, id, peers, settings(case)) });
        Self {
            number,
            session: Session::new(begins, config).expect("the settings are sound"),
            queues: mail,
            input_words: vec![0; case.sites],
            buf: [0; MAX_DATAGRAM],
            deadline: begins,
        }
    }

    fn wake(&mut self, now: Instant, host: &mut BenchHost) {
        host.stopwatch.start();
        // A host program reads its clock, which is counted as a part of what coplay costs.
        black_box(std::time::Instant::now());
        let Self { session, queues: mail, .. } = self;
        mail.borrow_mut().inbox.drain(|from, bytes| session.handle_datagram(now, Addr(from as u64), bytes));
        while self.serve_request(now, host) {
            self.transmit(now);
        }
        self.transmit(now);
        while let Some(event) = self.session.poll_event() {
            black_box(event);
        }
        self.deadline = self.session.poll_timeout().expect("the game goes on");
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
    /// Does the next thing the session asks for; `false` when there is nothing.
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
                assert_eq!(fresh, first, "the session knows which frames are new");
            }
            Some(Request::Snapshot { .. } | Request::Restore { .. }) => unreachable!("nobody comes late"),
            Some(Request::Regions { .. } | Request::Pages { .. }) => unreachable!("nothing differs"),
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
