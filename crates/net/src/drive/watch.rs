//! Looking on.

use coplay::frame::Frame;
use coplay::id::Addr;
use coplay::movie;
use coplay::session::{Settings, Stats};
use coplay::spectator_feed::{Spectator, SpectatorConfig, SpectatorEvent, SpectatorRequest, SpectatorStart};
use coplay::time::{Instant, TimeDelta};
use coplay::wire::MAX_DATAGRAM;
use coplay_machines::Machine;
use coplay_machines::control::{Controlled, Lamp};

use super::book::{Book, Standing};
use super::guest::{Guest, check_players, differences};
use super::log::{Beat, FrameLog};
use super::ping::{self, Pings};
use super::tape::{Tape, is_compared};
use super::{Command, Failure, Front, LOOK_EVERY, News, Outcome, STATUS_EVERY, Status, Why};
use crate::clock;
use crate::key::PeerKey;
use crate::mail::Mail;
use crate::party::{Knock, Message, Party, Refusal, VERSION, Wish};
use crate::post::Post;
use crate::transport::Incoming;

/// Whoever keeps the list is asked this often whether it is there: it counts us for as long as it hears of us.
const PING_EVERY: TimeDelta = TimeDelta::from_secs(5);

/// The last frames of a game get so long to come.
const THE_END: TimeDelta = TimeDelta::from_secs(1);

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
    settings: Settings,
    /// Who keeps the list, as far as we know.
    host: PeerKey,
    name: String,
    pings: Pings,
    machine: Box<dyn Machine>,
    lamp: Lamp,
    watcher: Option<Spectator>,
    plan: WatchPlan,
    log: Option<FrameLog>,
    tape: Option<Tape>,
    beat: Beat,
    seen: u32,
    diverged: bool,
    next_status: Instant,
    /// Everybody who played has said goodbye: so long the feed may still take to come to its end.
    over_at: Option<Instant>,
    done: Option<Why>,
}

impl Guest {
    /// Looks on with a machine of our own, which must be the one that the host has.
    pub fn look_on(mut self, machine: Box<dyn Machine>, plan: WatchPlan) -> Result<Watch, Failure> {
        let machine = Controlled::new(machine);
        let differences = differences(&self.settings, &machine);
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
            settings: self.settings,
            host: self.host,
            name: self.name,
            pings: Pings::default(),
            lamp: machine.lamp(),
            machine: Box::new(machine),
            watcher: None,
            plan,
            log: None,
            tape: None,
            beat: Beat::default(),
            seen: 0,
            diverged: false,
            next_status: clock::now(),
            over_at: None,
            done: None,
        })
    }
}

impl Watch {
    /// Writes down every step.
    pub fn set_log(&mut self, log: FrameLog) {
        self.log = Some(log);
    }

    /// Keeps a movie of what is seen.
    pub fn set_tape(&mut self, tape: Tape) {
        self.tape = Some(tape);
    }

    /// Runs until it is over.
    pub fn run(&mut self, front: &mut dyn Front) -> Result<Outcome, Failure> {
        let mut result = self.run_on(front);
        self.post.mail(self.host, &Message::Bye);
        self.post.farewell(TimeDelta::from_millis(500));
        if let Some(log) = &mut self.log {
            log.end();
        }
        if let Some(tape) = &mut self.tape {
            tape.end();
        }
        if let Ok(outcome) = &mut result {
            outcome.taped = self.tape.as_ref().map(Tape::taped);
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
                return Ok(Outcome { why, frames: self.seen, agreed: !self.diverged, numbers, taped: None });
            }
            let due = self.watcher.as_ref().and_then(Spectator::poll_timeout);
            let until = [due, self.post.timeout()].into_iter().flatten().fold(now + LOOK_EVERY, Instant::min);
            if let Some(incoming) = self.post.wait(until) {
                self.take(incoming, front);
            }
        }
    }

    fn begin(&mut self, now: Instant) -> Result<(), Failure> {
        let settings = Settings::from_bytes(&self.party.terms).map_err(|_| Failure::Terms)?;
        check_players(&settings, &*self.machine).map_err(|difference| Failure::Different(vec![difference]))?;
        for member in &self.party.members {
            self.post.call(&member.places, member.key);
        }
        // The host first: to the others there may be no way.
        let mut sources: Vec<&crate::party::Member> = self.party.members.iter().filter(|member| member.here).collect();
        sources.sort_by_key(|member| member.key != self.host);
        let from = sources.iter().map(|member| Addr(u64::from(member.site))).collect();
        let start = if self.machine.can_save() { SpectatorStart::Snapshot } else { SpectatorStart::FirstFrame };
        let config = SpectatorConfig { start, ..SpectatorConfig::new(self.party.session, settings.clone(), from) };
        self.settings = settings;
        self.watcher = Some(Spectator::new(now, config).map_err(|error| Failure::Session(error.to_string()))?);
        Ok(())
    }

    fn take(&mut self, incoming: Incoming, front: &mut dyn Front) {
        let Incoming::Datagram { at, from, bytes } = incoming else { return };
        if let Some(word) = ping::Word::read(&bytes) {
            return self.take_ping(at, from, word, front);
        }
        if !Mail::is_mail(&bytes) {
            if let (Standing::Seated(addr), Some(watcher)) = (self.book.standing(at, from), &mut self.watcher) {
                watcher.handle_datagram(at, addr, &bytes);
            }
            return;
        }
        for message in self.post.take(from, &bytes) {
            match message {
                // Nobody else has anything to say here.
                _ if from != self.host => {}
                Message::Party(party) if party.serial > self.party.serial => {
                    self.party = party;
                    self.book.note_party(&self.party);
                    front.tell(News::Party(&self.party));
                }
                Message::Chat { name, line } => front.tell(News::Chat { name: &name, line: &line }),
                Message::Refused(Refusal::NotMe { keeper, .. }) if self.book.is_seated(&keeper) => self.turn_to(keeper),
                Message::Refused(_) => self.turn_to_another(),
                Message::Bye => self.on_bye(from),
                _ => {}
            }
        }
    }

    fn take_ping(&mut self, at: Instant, from: PeerKey, word: ping::Word, front: &mut dyn Front) {
        let ping::Word::Answered { number, watchers } = word else { return };
        if self.pings.on_answer(at, &from, number) && watchers != self.party.watchers {
            self.party.watchers = watchers;
            front.tell(News::Party(&self.party));
        }
    }

    /// Shows that we are here to who keeps the list; if it is gone, somebody else of those who play keeps it now.
    fn show_up(&mut self, now: Instant) {
        if self.pings.is_silent(&self.host) {
            self.turn_to_another();
        }
        let transport = &self.post.transport;
        self.pings.ask(now, PING_EVERY, [self.host], |to, bytes| _ = transport.send(to, bytes));
    }

    /// Whoever kept the list goes; if others play on, one of them keeps it now.
    fn on_bye(&mut self, from: PeerKey) {
        self.party.members.retain(|member| member.key != from);
        if self.party.members.iter().any(|member| member.here) {
            self.turn_to_another();
        } else {
            self.over_at = Some(clock::now() + THE_END);
        }
    }

    fn turn_to_another(&mut self) {
        let keys: Vec<PeerKey> = self.party.members.iter().map(|member| member.key).collect();
        let at = keys.iter().position(|key| *key == self.host).map_or(0, |at| at + 1);
        let Some(next) = keys.get(at % keys.len().max(1)).copied().filter(|next| *next != self.host) else { return };
        self.turn_to(next);
    }

    fn turn_to(&mut self, next: PeerKey) {
        self.host = next;
        self.pings.stop();
        let (name, places) = (self.name.clone(), Vec::new());
        self.post.mail(next, &Message::Knock(Knock { version: VERSION, name, wish: Wish::Watch, places }));
    }

    fn see(&mut self, front: &mut dyn Front) -> Result<(), Failure> {
        let Some(watcher) = &mut self.watcher else { return Ok(()) };
        loop {
            let now = clock::now();
            let Some(request) = watcher.poll_request(now) else { return Ok(()) };
            match request {
                SpectatorRequest::Load { next_frame, state, .. } => {
                    self.machine.load(state).map_err(|error| Failure::Machine(error.to_string()))?;
                    match &mut self.tape {
                        Some(tape) if tape.has_begun() => tape.stop("the recording ends where frames were missed"),
                        Some(tape) => {
                            tape.begin(&self.settings, movie::MovieStart::Snapshot { frame: next_frame, state })
                        }
                        None => {}
                    }
                }
                SpectatorRequest::Advance { frame, inputs, is_presented: fresh } => {
                    self.machine.step(inputs, fresh);
                    self.seen = frame.number() + 1;
                    if let Some(tape) = &mut self.tape {
                        if !tape.has_begun() {
                            tape.begin(&self.settings, movie::MovieStart::PowerOn);
                        }
                        let hash = is_compared(frame, &self.settings).then(|| self.machine.hash());
                        tape.push(frame, inputs, hash);
                    }
                    if let Some(log) = &mut self.log {
                        log.step(frame, now, false, inputs, Some(self.machine.hash()));
                    }
                    if fresh {
                        self.beat.on_frame(now, self.machine.rate().period());
                        front.show(frame, &*self.machine);
                    }
                }
                SpectatorRequest::Hash { .. } => watcher.handle_hash(self.machine.hash()),
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
                Command::Chat(line) => {
                    front.tell(News::Chat { name: &self.name, line: &line });
                    self.post.mail(self.host, &Message::Chat { name: self.name.clone(), line });
                }
                Command::Start | Command::GoOnAlone | Command::Control(_) => {}
            }
        }
        if self.plan.frames.is_some_and(|frames| self.seen >= frames) {
            self.done = Some(Why::Done);
        }
        while let Some(event) = self.watcher.as_mut().and_then(Spectator::poll_event) {
            match event {
                SpectatorEvent::Dropped { reason } => return Err(Failure::Feed(reason.to_string())),
                SpectatorEvent::Ended { .. } => self.done = Some(Why::FeedOver),
                SpectatorEvent::Diverged { .. } => self.diverged = true,
                _ => {}
            }
        }
        if self.over_at.is_some_and(|over| now >= over) {
            self.done.get_or_insert(Why::FeedOver);
        }
        self.show_up(now);
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
        let host = self.party.members.iter().find(|member| member.key == self.host).map_or(0, |member| member.site);
        Status {
            stats,
            trips: self.pings.trip(&self.host).map(|trip| (host, trip)).into_iter().collect(),
            paused: self.lamp.paused_by(),
            fps: self.beat.fps(),
            refused: self.post.transport.refused(),
            ..Status::default()
        }
    }
}
