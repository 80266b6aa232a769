//! Coplay sessions in lockstep, in virtual time.

use std::hint::black_box;

use coplay::codec::MAX_DATAGRAM;
use coplay::frame::FrameRate;
use coplay::id::{Addr, SiteId};
use coplay::input::{InputWord, Ownership};
use coplay::session::{Config, Request, Session, Settings, State};
use coplay::time::{Instant, TimeDelta};
use coplay_sim::session_experiment::toy_settings;

use crate::inbox::Inbox;
use crate::workload::{DigestMachine, Engine, FRAME_RATE, HASH_INTERVAL, INPUT_DELAY, Inputs, Traffic};

/// Events that wake a site's host program, in addition to its session's timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WakePolicy {
    /// Every datagram.
    Datagrams,
    /// None: datagrams wait for the next frame.
    Frames,
}

/// All sites of a coplay session in lockstep.
#[derive(Debug)]
pub struct CoplayGroup {
    now: Instant,
    sites: Vec<CoplayLockstepSite>,
    inboxes: Vec<Inbox>,
    inputs: Inputs,
    waking: WakePolicy,
    buf: [u8; MAX_DATAGRAM],
    /// Number of frames that every site was asked to step.
    target_frame: u32,
}

#[derive(Debug)]
struct CoplayLockstepSite {
    number: usize,
    session: Session,
    machine: DigestMachine,
    input_words: Vec<InputWord>,
    deadline: Instant,
}

impl CoplayGroup {
    /// Creates `sites` sites and runs them until all are connected.
    pub fn new(sites: usize, inputs: Inputs, waking: WakePolicy) -> Self {
        let mut group = Self {
            now: Instant::ZERO,
            sites: (0..sites).map(|number| CoplayLockstepSite::new(number, sites)).collect(),
            inboxes: (0..sites).map(|_| Inbox::new()).collect(),
            inputs,
            waking: WakePolicy::Datagrams,
            buf: [0; MAX_DATAGRAM],
            target_frame: 0,
        };
        while group.sites.iter().any(|site| site.session.state() != State::Running) {
            group.process_next();
            assert!(group.now < Instant::ZERO + TimeDelta::from_secs(60), "the sites did not connect within 60 s");
        }
        group.waking = waking;
        group
    }

    /// Wakes the site with the earliest deadline. With [`WakePolicy::Datagrams`], then wakes sites until no datagram is
    /// waiting.
    fn process_next(&mut self) {
        let next = (0..self.sites.len()).min_by_key(|at| self.sites[*at].deadline).expect("at least one site");
        self.now = self.now.max(self.sites[next].deadline);
        self.wake_site(next);
        if self.waking == WakePolicy::Datagrams {
            while let Some(woken) = self.inboxes.iter().position(|inbox| !inbox.is_empty()) {
                self.wake_site(woken);
            }
        }
    }

    /// Runs the host program of a site: reads the clock, receives, serves the session's requests, and sends.
    fn wake_site(&mut self, at: usize) {
        black_box(std::time::Instant::now());
        let (now, site) = (self.now, &mut self.sites[at]);
        self.inboxes[at].drain(|from, bytes| site.session.handle_datagram(now, Addr(from as u64), bytes));
        while site.serve_request(now, &self.inputs) {
            site.transmit(now, &mut self.buf, &mut self.inboxes);
        }
        site.transmit(now, &mut self.buf, &mut self.inboxes);
        while let Some(event) = site.session.poll_event() {
            black_box(event);
        }
        site.deadline = site.session.poll_timeout().expect("the session is running");
    }
}

impl CoplayLockstepSite {
    fn new(number: usize, sites: usize) -> Self {
        let id = SiteId::first(sites).nth(number).expect("site number is below MAX_SITES");
        let others = SiteId::first(sites).filter(|other| *other != id);
        let peers = others.map(|other| (other, Addr(other.index() as u64))).collect();
        let settings = Settings {
            compare_interval: HASH_INTERVAL,
            rate: FrameRate::per_second(FRAME_RATE).expect("60 is a valid frame rate"),
            ..toy_settings(INPUT_DELAY, Ownership::one_player_per_site(sites, 0xffff))
        };
        Self {
            number,
            session: Session::new(Instant::ZERO, Config::new(1, id, peers, settings)).expect("settings are valid"),
            machine: DigestMachine::default(),
            input_words: vec![0; sites],
            deadline: Instant::ZERO,
        }
    }

    /// Serves the session's next request. Returns `false` if there is none.
    fn serve_request(&mut self, now: Instant, inputs: &Inputs) -> bool {
        match self.session.poll_request(now) {
            None => return false,
            Some(Request::Sample { frame }) => {
                self.input_words[self.number] =
                    InputWord::from(inputs.pressed(self.number, frame.number() - INPUT_DELAY));
                self.session.handle_input(now, &self.input_words);
            }
            Some(Request::Advance { inputs, .. }) => self.machine.step(inputs.iter().map(|word| *word as u16)),
            Some(Request::Snapshot { .. } | Request::Restore { .. }) => unreachable!("no site joins late"),
            Some(Request::Regions { .. } | Request::Pages { .. }) => unreachable!("no desync occurs"),
            Some(Request::Hash { .. }) => self.session.handle_hash(self.machine.state()),
            Some(Request::Save { .. } | Request::Load { .. }) => unreachable!("the prediction window is 0"),
        }
        true
    }

    fn transmit(&mut self, now: Instant, buf: &mut [u8], inboxes: &mut [Inbox]) {
        while let Some(transmit) = self.session.poll_transmit(now, buf) {
            inboxes[transmit.to.0 as usize].push(self.number, &buf[..transmit.len]);
        }
    }
}

impl Engine for CoplayGroup {
    fn run(&mut self, frames: u32) {
        self.target_frame += frames;
        while self.sites.iter().any(|site| site.machine.frames() < self.target_frame) {
            self.process_next();
        }
    }

    fn traffic(&self) -> Traffic {
        self.inboxes.iter().map(Inbox::traffic).sum()
    }

    fn states(&self) -> Vec<u64> {
        self.sites.iter().map(|site| site.machine.state_after(self.target_frame)).collect()
    }
}
