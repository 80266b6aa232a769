//! A site of coplay.

use std::hint::black_box;

use coplay::frame::FrameRate;
use coplay::id::{Addr, SiteId};
use coplay::input::{InputWord, Ownership};
use coplay::session::{Config, Request, Session, Settings};
use coplay::time::Instant;
use coplay::wire::{MAX_DATAGRAM, SessionMessage};
use coplay_sim::measure::toy_settings;

use super::Case;
use super::host::{Host, Mail, Mailbox};
use crate::work::{COMPARE_EVERY, RATE};

/// A site of coplay, driven as its documentation says: whenever a datagram comes or its time has come.
#[derive(Debug)]
pub struct Site {
    number: usize,
    session: Session,
    mail: Mailbox,
    words: Vec<InputWord>,
    buf: [u8; MAX_DATAGRAM],
    deadline: Instant,
}

/// What all sites agree on.
pub fn settings(case: &Case) -> Settings {
    Settings {
        compare_interval: COMPARE_EVERY,
        prediction_window: case.window,
        rate: FrameRate::per_second(RATE).expect("60 is a frame rate"),
        ..toy_settings(case.lag, Ownership::one_player_per_site(case.sites, 0xffff))
    }
}

impl super::world::Site for Site {
    const WOKEN_BY_DATAGRAMS: bool = true;

    fn new(case: &Case, number: usize, mail: Mailbox) -> Self {
        let id = SiteId::first(case.sites).nth(number).expect("no more sites than there can be");
        let others = SiteId::first(case.sites).filter(|other| *other != id);
        let peers = others.map(|other| (other, Addr(other.index() as u64))).collect();
        let (begins, config) =
            (case.beginning(number), Config { bisect_desyncs: false, ..Config::new(1, id, peers, settings(case)) });
        Self {
            number,
            session: Session::new(begins, config).expect("the settings are sound"),
            mail,
            words: vec![0; case.sites],
            buf: [0; MAX_DATAGRAM],
            deadline: begins,
        }
    }

    fn wake(&mut self, now: Instant, host: &mut Host) {
        host.watch.start();
        // A host program reads its clock, which is counted as a part of what coplay costs.
        black_box(std::time::Instant::now());
        let Self { session, mail, .. } = self;
        mail.borrow_mut().inbox.drain(|from, bytes| session.handle_datagram(now, Addr(from as u64), bytes));
        while self.serve(now, host) {
            self.send(now);
        }
        self.send(now);
        while let Some(event) = self.session.poll_event() {
            black_box(event);
        }
        self.deadline = self.session.poll_timeout().expect("the game goes on");
        host.watch.stop();
    }

    fn deadline(&self) -> Instant {
        self.deadline
    }

    fn tells_inputs(bytes: &[u8]) -> bool {
        matches!(SessionMessage::decode(bytes), Ok(SessionMessage::Tick(_)))
    }

    fn trouble(&self) -> Option<String> {
        let dropped = self.session.stats().dropped_datagrams;
        (dropped.malformed + dropped.strangers + dropped.inputs > 0).then(|| format!("datagrams dropped: {dropped:?}"))
    }
}

impl Site {
    /// Does the next thing the session asks for; `false` when there is nothing.
    fn serve(&mut self, now: Instant, host: &mut Host) -> bool {
        match self.session.poll_request(now) {
            None => return false,
            Some(Request::Sample { frame }) => {
                self.words[self.number] = InputWord::from(host.sample(frame.number()));
                self.session.handle_input(now, &self.words);
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

    fn send(&mut self, now: Instant) {
        let Mail { outbox, .. } = &mut *self.mail.borrow_mut();
        while let Some(transmit) = self.session.poll_transmit(now, &mut self.buf) {
            outbox.push(transmit.to.0 as usize, &self.buf[..transmit.len]);
        }
    }
}
