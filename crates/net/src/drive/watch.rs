//! Looking on.

use coplay::feed::{Start, WatchConfig, WatchEvent, WatchRequest, Watcher};
use coplay::frame::Frame;
use coplay::id::Addr;
use coplay::session::{Settings, Stats};
use coplay::time::{Instant, TimeDelta};
use coplay::wire::MAX_DATAGRAM;
use coplay_machines::Machine;
use coplay_machines::control::Controlled;

use super::book::{Book, Standing};
use super::guest::{Guest, differences};
use super::log::{Beat, FrameLog};
use super::post::Post;
use super::{Command, Failure, Front, LOOK_EVERY, News, Outcome, STATUS_EVERY, Status, Why};
use crate::clock;
use crate::key::PeerKey;
use crate::mail::Mail;
use crate::party::{Message, Party};
use crate::transport::Incoming;

/// How to look on.
#[derive(Clone, Copy, Debug, Default)]
pub struct WatchPlan {
    /// Ends after so many frames.
    pub frames: Option<u32>,
}

/// Somebody who looks on.
pub struct Watch {
    post: Post,
    book: Book,
    party: Party,
    host: PeerKey,
    machine: Box<dyn Machine>,
    watcher: Option<Watcher>,
    plan: WatchPlan,
    log: Option<FrameLog>,
    beat: Beat,
    seen: u32,
    diverged: bool,
    next_status: Instant,
    done: Option<Why>,
}

impl Guest {
    /// Looks on with a machine of our own, which must be the one that the host has.
    pub fn look_on(mut self, machine: Box<dyn Machine>, plan: WatchPlan) -> Result<Watch, Failure> {
        let machine: Box<dyn Machine> = Box::new(Controlled::new(machine));
        let differences = differences(&self.settings, &*machine);
        if !differences.is_empty() {
            self.post.mail(self.host, &Message::Bye);
            self.post.farewell(TimeDelta::from_millis(500));
            return Err(Failure::Different(differences));
        }
        let mut book = Book::default();
        book.note_party(&self.party);
        Ok(Watch {
            post: self.post,
            book,
            party: self.party,
            host: self.host,
            machine,
            watcher: None,
            plan,
            log: None,
            beat: Beat::default(),
            seen: 0,
            diverged: false,
            next_status: clock::now(),
            done: None,
        })
    }
}

impl Watch {
    /// Writes down every step.
    pub fn set_log(&mut self, log: FrameLog) {
        self.log = Some(log);
    }

    /// Runs until it is over.
    pub fn run(&mut self, front: &mut dyn Front) -> Result<Outcome, Failure> {
        let result = self.run_on(front);
        self.post.mail(self.host, &Message::Bye);
        self.post.farewell(TimeDelta::from_millis(500));
        if let Some(log) = &mut self.log {
            log.end();
        }
        result
    }

    fn run_on(&mut self, front: &mut dyn Front) -> Result<Outcome, Failure> {
        loop {
            while let Some(incoming) = self.post.try_next() {
                self.take(incoming, front);
            }
            let now = clock::now();
            if self.party.started && self.watcher.is_none() {
                self.begin(now)?;
            }
            self.see(front)?;
            self.send_all(now);
            self.look_around(now, front)?;
            if let Some(why) = self.done.take() {
                let stats =
                    Stats { frame: Frame::new(self.seen), confirmed: Frame::new(self.seen), ..Stats::default() };
                let numbers = self.beat.numbers(stats, Vec::new(), self.post.transport.refused());
                return Ok(Outcome { why, frames: self.seen, agreed: !self.diverged, numbers });
            }
            let due = self.watcher.as_ref().and_then(Watcher::poll_timeout);
            let until = [due, self.post.timeout()].into_iter().flatten().fold(now + LOOK_EVERY, Instant::min);
            if let Some(incoming) = self.post.wait(until) {
                self.take(incoming, front);
            }
        }
    }

    fn begin(&mut self, now: Instant) -> Result<(), Failure> {
        let settings = Settings::from_bytes(&self.party.terms).map_err(|_| Failure::Terms)?;
        for member in &self.party.members {
            self.post.call(&member.places, member.key);
        }
        // The host first: to the others there may be no way.
        let mut sources: Vec<&crate::party::Member> = self.party.members.iter().filter(|member| member.here).collect();
        sources.sort_by_key(|member| member.key != self.host);
        let from = sources.iter().map(|member| Addr(u64::from(member.site))).collect();
        let start = if self.machine.can_save() { Start::Snapshot } else { Start::Beginning };
        let config = WatchConfig { start, ..WatchConfig::new(self.party.session, settings, from) };
        self.watcher = Some(Watcher::new(now, config).map_err(|error| Failure::Session(error.to_string()))?);
        Ok(())
    }

    fn take(&mut self, incoming: Incoming, front: &mut dyn Front) {
        let Incoming::Datagram { at, from, bytes } = incoming else { return };
        if !Mail::is_mail(&bytes) {
            if let (Standing::Seated(addr), Some(watcher)) = (self.book.standing(from), &mut self.watcher) {
                watcher.handle_datagram(at, addr, &bytes);
            }
            return;
        }
        for message in self.post.take(from, &bytes) {
            match message {
                Message::Party(party) if party.serial > self.party.serial => {
                    self.party = party;
                    self.book.note_party(&self.party);
                    front.tell(News::Party(&self.party));
                }
                Message::Chat { name, line } => front.tell(News::Chat { name: &name, line: &line }),
                _ => {}
            }
        }
    }

    fn see(&mut self, front: &mut dyn Front) -> Result<(), Failure> {
        let Some(watcher) = &mut self.watcher else { return Ok(()) };
        loop {
            let now = clock::now();
            let Some(request) = watcher.poll_request(now) else { return Ok(()) };
            match request {
                WatchRequest::Load { state, .. } => {
                    self.machine.load(state).map_err(|error| Failure::Machine(error.to_string()))?;
                }
                WatchRequest::Advance { frame, inputs, fresh } => {
                    self.machine.step(inputs, fresh);
                    self.seen = frame.number() + 1;
                    if let Some(log) = &mut self.log {
                        log.step(frame, now, false, inputs, Some(self.machine.hash()));
                    }
                    if fresh {
                        self.beat.on_frame(now, self.machine.rate().period());
                        front.show(frame, &*self.machine);
                    }
                }
                WatchRequest::Hash { .. } => watcher.handle_hash(self.machine.hash()),
            }
        }
    }

    fn send_all(&mut self, now: Instant) {
        let Some(watcher) = &mut self.watcher else { return };
        let mut buf = [0; MAX_DATAGRAM];
        while let Some(transmit) = watcher.poll_transmit(now, &mut buf) {
            if let Some(key) = self.book.key(transmit.to) {
                self.post.transport.send(&key, &buf[..transmit.len]);
            }
        }
    }

    fn look_around(&mut self, now: Instant, front: &mut dyn Front) -> Result<(), Failure> {
        while let Some(command) = front.poll() {
            match command {
                Command::Quit => self.done = Some(Why::Done),
                Command::Chat(line) => self.post.mail(self.host, &Message::Chat { name: String::new(), line }),
                Command::Start | Command::Control(_) => {}
            }
        }
        if self.plan.frames.is_some_and(|frames| self.seen >= frames) {
            self.done = Some(Why::Done);
        }
        while let Some(event) = self.watcher.as_mut().and_then(Watcher::poll_event) {
            match event {
                WatchEvent::Dropped { reason } => return Err(Failure::Feed(reason.to_string())),
                WatchEvent::Ended { .. } => self.done = Some(Why::FeedOver),
                WatchEvent::Diverged { .. } => self.diverged = true,
                _ => {}
            }
        }
        self.post.flush(now);
        if now >= self.next_status {
            self.next_status = now + STATUS_EVERY;
            front.tell(News::Status(&self.status()));
        }
        Ok(())
    }

    fn status(&self) -> Status {
        let (next, newest) =
            self.watcher.as_ref().map(|watcher| (watcher.next_frame(), watcher.newest_frame())).unwrap_or_default();
        let stats = Stats { frame: newest, confirmed: next, ..Stats::default() };
        Status { stats, fps: self.beat.fps(), refused: self.post.transport.refused(), ..Status::default() }
    }
}
