//! Host programs that drive their sessions directly, one loop per millisecond, for behaviour that the sites of the
//! simulated network never show.

use super::{SessionSetup, at, ms, secs, site_id};
use coplay::codec::MAX_DATAGRAM;
use coplay::id::Addr;
use coplay::session::{Config, Event, Request, Session, State};
use coplay::time::{Instant, TimeDelta};
use coplay_sim::toy_machine::ToyMachine;

/// Largest number of requests, and of sent datagrams, in one loop of a host program.
const MAX_PER_LOOP: usize = 100;

/// A request that a host program does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnansweredRequest {
    Nothing,
    Sample,
    Hash,
}

/// A host program with its session, its machine and its deviations from correct behaviour.
#[derive(Debug)]
pub(crate) struct ManualHost {
    pub(crate) session: Session,
    machine: ToyMachine,
    slots: Vec<ToyMachine>,
    /// Local time at true time zero.
    pub(crate) offset: TimeDelta,
    /// Amount by which the clock advances with each reading within one loop.
    pub(crate) clock_step_per_call: TimeDelta,
    /// Time that datagrams wait in the socket. The host program passes each one in with its arrival time.
    pub(crate) datagram_wait: TimeDelta,
    pub(crate) unanswered: UnansweredRequest,
    /// Whether one byte from an unknown address arrives in each loop.
    pub(crate) receives_junk: bool,
    pub(crate) is_dead: bool,
    /// Address that this host sends from.
    pub(crate) addr: Addr,
    /// Addresses at which this host receives.
    pub(crate) listen_addrs: Vec<Addr>,
    pub(crate) step_times: Vec<Instant>,
    pub(crate) events: Vec<(Instant, Event)>,
    /// Largest number of requests in one loop.
    pub(crate) max_requests_per_loop: usize,
    /// Requests that the session issued before its polled timeout.
    pub(crate) early_requests: Vec<String>,
}

/// Host programs and the network between them.
#[derive(Debug)]
pub(crate) struct ManualHosts {
    pub(crate) now: Instant,
    one_way: TimeDelta,
    pub(crate) hosts: Vec<ManualHost>,
    /// Datagrams in flight: arrival time, sender, receiver and payload.
    in_flight: Vec<(Instant, Addr, Addr, Vec<u8>)>,
}

impl ManualHosts {
    pub(crate) fn new(sites: usize, one_way: TimeDelta, change: impl Fn(&mut Config)) -> Self {
        let setup = SessionSetup::new(sites, super::rtt_link(0));
        let host = |site: usize| {
            let mut config = setup.config(site);
            change(&mut config);
            let offset = secs(1_000);
            ManualHost {
                slots: vec![ToyMachine::new(sites); config.settings.rollback_slots()],
                session: Session::new(Instant::ZERO + offset, config).expect("valid config"),
                machine: ToyMachine::new(sites),
                offset,
                clock_step_per_call: TimeDelta::ZERO,
                datagram_wait: TimeDelta::ZERO,
                unanswered: UnansweredRequest::Nothing,
                receives_junk: false,
                is_dead: false,
                addr: Addr(site as u64),
                listen_addrs: vec![Addr(site as u64)],
                step_times: Vec::new(),
                events: Vec::new(),
                max_requests_per_loop: 0,
                early_requests: Vec::new(),
            }
        };
        Self { now: at(ms(0)), one_way, hosts: (0..sites).map(host).collect(), in_flight: Vec::new() }
    }

    pub(crate) fn run_for(&mut self, time: TimeDelta) {
        let until = self.now + time;
        while self.now < until {
            for (number, host) in self.hosts.iter_mut().enumerate().filter(|(_, host)| !host.is_dead) {
                let arrives = |(arrival, _, to, _): &mut (Instant, Addr, Addr, Vec<u8>)| {
                    *arrival <= self.now && host.listen_addrs.contains(to)
                };
                let arrived: Vec<_> = self.in_flight.extract_if(.., arrives).collect();
                let sent = host.run_loop(self.now, number, &arrived);
                let (arrival, from) = (self.now + self.one_way, host.addr);
                self.in_flight.extend(sent.into_iter().map(|(to, bytes)| (arrival, from, to, bytes)));
            }
            self.now += ms(1);
        }
    }

    /// Runs until every session is running. Panics after 10 s.
    #[track_caller]
    pub(crate) fn run_until_running(&mut self) {
        let limit = self.now + secs(10);
        while self.hosts.iter().any(|host| host.session.state() != State::Running) {
            assert!(self.now < limit, "the session does not start");
            self.run_for(ms(1));
        }
    }

    /// Returns the frame rate of `site` from `since` until now, in frames per second.
    pub(crate) fn fps(&self, site: usize, since: Instant) -> f64 {
        let frames = self.hosts[site].step_times.iter().filter(|step| **step >= since).count();
        frames as f64 / (self.now - since).as_secs_f64()
    }

    /// Returns the number of state hashes of `peer` that differed from those of `site`.
    pub(crate) fn mismatch_count(&self, site: usize, peer: usize) -> u64 {
        let host = &self.hosts[site];
        host.session.peer_stats(self.now + host.offset, site_id(peer)).expect("a peer").mismatches
    }
}

impl ManualHost {
    fn run_loop(
        &mut self,
        now: Instant,
        number: usize,
        arrived: &[(Instant, Addr, Addr, Vec<u8>)],
    ) -> Vec<(Addr, Vec<u8>)> {
        let mut local = now + self.offset;
        let per_call = self.clock_step_per_call;
        let mut clock = || {
            local += per_call;
            local
        };
        for (_, from, _, bytes) in arrived {
            self.session.handle_datagram(clock() - self.datagram_wait, *from, bytes);
        }
        if self.receives_junk {
            self.session.handle_datagram(clock(), Addr(999), &[0x55]);
        }
        let mut sent = Vec::new();
        let mut buf = [0; MAX_DATAGRAM];
        let mut requests = 0;
        while requests < MAX_PER_LOOP {
            while let Some(transmit) = self.session.poll_transmit(clock(), &mut buf) {
                assert!(sent.len() < MAX_PER_LOOP, "site {number} does not stop sending");
                sent.push((transmit.to, buf[..transmit.len].to_vec()));
            }
            let (expected, local_now) = (self.session.poll_timeout(), clock());
            let Some(request) = self.session.poll_request(local_now) else { break };
            if expected.is_none_or(|expected| expected > local_now) {
                self.early_requests.push(format!("{request:?} at {local_now:?}, expected at {expected:?}"));
            }
            requests += 1;
            match request {
                Request::Sample { .. } if self.unanswered == UnansweredRequest::Sample => {}
                Request::Hash { .. } if self.unanswered == UnansweredRequest::Hash => {}
                Request::Sample { frame } => {
                    let words = vec![u128::from(frame.number() / 9 % 3) << number; self.machine.paddles.len()];
                    self.session.handle_input(clock(), &words);
                }
                Request::Save { slot, .. } => self.slots[slot] = self.machine.clone(),
                Request::Load { slot, .. } => self.machine = self.slots[slot].clone(),
                Request::Advance { inputs, fresh, .. } => {
                    self.machine.step(inputs);
                    if fresh {
                        self.step_times.push(now);
                    }
                }
                Request::Snapshot { .. } | Request::Restore { .. } => unreachable!("no site joins late"),
                Request::Regions { .. } | Request::Pages { .. } => {}
                Request::Hash { .. } => self.session.handle_hash(self.machine.hash()),
            }
        }
        self.max_requests_per_loop = self.max_requests_per_loop.max(requests);
        while let Some(event) = self.session.poll_event() {
            self.events.push((now, event));
        }
        sent
    }
}
