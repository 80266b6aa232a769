//! A site of a game over a real network.

mod alone;
mod people;

pub use alone::Alone;

use std::sync::Arc;
use std::sync::mpsc::Receiver;

use coplay::id::{Addr, SiteId};
use coplay::input::{InputWord, MAX_PLAYERS};
use coplay::movie;
use coplay::session::{AbsentInput, Event, LateJoin, MachineCosts, Session, SessionEnd, Settings, State};
use coplay::spectator_feed::{FeedConfig, SpectatorStart};
use coplay::time::{Instant, TimeDelta};
use coplay::wire::{MAX_DATAGRAM, is_feed};
use coplay_machines::control::{Control, Controlled, Lamp};
use coplay_machines::hosted::{self, Hosted, Terms, Turn};
use coplay_machines::{Machine, hosted::Trouble};

use super::book::{Book, Standing};
use super::guest::check_players;
use super::log::{Beat, FrameLog};
use super::ping::{self, Pings};
use super::tape::Tape;
use super::{Command, Failure, Front, LOOK_EVERY, News, Outcome, STATUS_EVERY, Status, Why};
use crate::clock;
use crate::key::{PeerKey, random};
use crate::mail::Mail;
use crate::party::{Keeper, List, Member, Message, Party};
use crate::post::Post;
use crate::transport::{Incoming, Place, Transport};

/// Datagrams taken between two looks at the session: nobody can keep it from its frames.
const MOST_AT_ONCE: usize = 256;
/// Datagrams are told to the session with the time at which they came, as long as that is not longer ago.
const WAITED: TimeDelta = TimeDelta::from_millis(200);
/// Who was dropped comes back so soon.
const COME_BACK: TimeDelta = TimeDelta::from_millis(300);
/// A site that is no quorum and asks nobody ([`Alone::Wait`]) gives up after this many times `drop_after`.
pub const GIVE_UP: u8 = 12;
/// Who is lost comes back so often before it hears a newer list: for certain fewer times.
const SESSIONS_PER_SERIAL: u32 = 16;
/// The largest state that is taken from another site.
const MAX_STATE: usize = 64 << 20;
/// The log of all inputs, for those whose machines cannot load a state: some hours.
const LOG_BYTES: usize = 16 << 20;

/// How a game is offered.
#[derive(Clone, Debug)]
pub struct HostPlan {
    /// What to call us.
    pub name: String,
    /// How many play at this computer.
    pub pads: u8,
    /// How many play in all.
    pub players: u8,
    /// Lag, window and the like. The number of sites follows from the players.
    pub terms: Terms,
    /// What is done for a site that was dropped.
    pub absent: AbsentInput,
    /// Whether nobody may watch.
    pub private: bool,
    /// How this site takes part.
    pub manner: Manner,
}

/// How a site takes part.
#[derive(Clone, Copy, Debug, Default)]
pub struct Manner {
    /// Leaves after so many frames.
    pub frames: Option<u32>,
    /// Who is silent for so long is dropped; `None` waits.
    pub drop_after: Option<TimeDelta>,
    /// Who holds up the game for so long is dropped, if that is on us to decide; `None` waits.
    pub late_after: Option<TimeDelta>,
    /// Behaviour when all other players are silent and this site is no quorum.
    pub alone: Alone,
    /// What the machine costs, as far as that is known.
    pub costs: MachineCosts,
}

/// A site of a game: session, machine and network, to be [run](Self::run).
pub struct Drive {
    pub(super) post: Post,
    book: Book,
    hosted: Hosted,
    lamp: Lamp,
    players: usize,
    party: Party,
    keeper: Keeper,
    /// The list, if we keep it.
    list: Option<List>,
    /// The serial number of the list as the one who kept it before us told it.
    taken_over: Option<u32>,
    /// Somebody else played with us when that was last looked at.
    had_company: bool,
    newly_alone: bool,
    seats: (u8, u8),
    me: u8,
    name: String,
    manner: Manner,
    session: Option<Session>,
    session_number: Option<u64>,
    /// The game had begun when we came, or we fell out of it.
    late: bool,
    incarnation: u32,
    begin_at: Instant,
    /// When the session was made, while it has not started.
    begun: Instant,
    heard_keeper: Instant,
    next_sign: Instant,
    next_status: Instant,
    pings: Pings,
    /// Where the others were told that we can be reached.
    pub(super) told_places: Vec<Place>,
    next_places: Instant,
    log: Option<FrameLog>,
    tape: Option<Tape>,
    beat: Beat,
    /// Buttons of the machine, to be pressed with the next input.
    controls: InputWord,
    diverged: bool,
    done: Option<Why>,
    leaving: bool,
    local: Vec<InputWord>,
    words: Vec<InputWord>,
}

impl Drive {
    /// Offers a game on this machine.
    pub fn host(
        transport: Arc<dyn Transport>,
        incoming: Receiver<Incoming>,
        machine: Box<dyn Machine>,
        plan: &HostPlan,
    ) -> Result<Self, Failure> {
        let players = plan.players.clamp(1, machine.pads().len().min(MAX_PLAYERS - 1) as u8);
        let pads = plan.pads.clamp(1, players);
        let seats = (players - pads + 1).max(2);
        let post = Post::new(transport, incoming);
        let places = post.own_places();
        let me = Member {
            site: 0,
            key: post.transport.key(),
            name: plan.name.clone(),
            pads,
            places: places.clone(),
            ready: true,
            here: true,
        };
        let machine = Controlled::new(machine);
        let mut settings = hosted::settings(&machine, Terms { sites: seats, ..plan.terms });
        settings.absent_input = plan.absent;
        let terms = settings.to_bytes().ok_or(Failure::Terms)?;
        let list = List::new(me, u64::from_le_bytes(random()) | 1, terms, (seats, players), !plan.private);
        let party = list.party().clone();
        let keeper = post.transport.key();
        let mut drive = Self::new(post, machine, (party, keeper), 0, plan.name.clone(), plan.manner);
        (drive.list, drive.seats, drive.told_places) = (Some(list), (seats, players), places);
        Ok(drive)
    }

    /// A site of this party, whose list somebody keeps.
    pub(super) fn new(
        post: Post,
        machine: Controlled,
        (party, keeper): (Party, PeerKey),
        me: u8,
        name: String,
        manner: Manner,
    ) -> Self {
        let (players, now) = (machine.pads().len(), clock::now());
        let mut book = Book::default();
        book.note_party(&party);
        Self {
            post,
            book,
            lamp: machine.lamp(),
            hosted: Hosted::new(Box::new(machine)),
            players,
            late: party.started,
            party,
            keeper: Keeper::new(keeper),
            list: None,
            taken_over: None,
            had_company: false,
            newly_alone: false,
            seats: (0, 0),
            me,
            name,
            manner,
            session: None,
            session_number: None,
            incarnation: 0,
            begin_at: now,
            begun: now,
            heard_keeper: now,
            next_sign: now,
            next_status: now,
            pings: Pings::default(),
            told_places: Vec::new(),
            next_places: now,
            log: None,
            tape: None,
            beat: Beat::default(),
            controls: 0,
            diverged: false,
            done: None,
            leaving: false,
            local: Vec::new(),
            words: Vec::new(),
        }
    }

    /// Writes down every step.
    pub fn set_log(&mut self, log: FrameLog) {
        self.log = Some(log);
    }

    /// Keeps a movie of what is played: with those who begin from the first frame on, with those who come late from there on.
    pub fn set_tape(&mut self, tape: Tape) {
        self.tape = Some(tape);
    }

    /// What is known of the people around.
    pub fn party(&self) -> &Party {
        &self.party
    }

    /// Runs until it is over.
    pub fn run(&mut self, front: &mut dyn Front) -> Result<Outcome, Failure> {
        self.show_party(front);
        let mut result = self.run_on(front);
        self.say_goodbye();
        if let Some(log) = &mut self.log {
            log.end();
        }
        self.record_certain();
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
            for _ in 0..MOST_AT_ONCE {
                let Some(incoming) = self.post.try_next() else { break };
                self.take(incoming, front);
            }
            self.play(front)?;
            self.look_around(front)?;
            if let Some(why) = self.done.take() {
                return Ok(self.outcome(why));
            }
            if let Some(incoming) = self.post.wait(self.deadline()) {
                self.take(incoming, front);
            }
        }
    }

    fn deadline(&self) -> Instant {
        let look = clock::now() + LOOK_EVERY;
        let session = self.session.as_ref().and_then(Session::poll_timeout);
        [session, self.post.timeout()].into_iter().flatten().fold(look, Instant::min)
    }

    /// Something came.
    fn take(&mut self, incoming: Incoming, front: &mut dyn Front) {
        match incoming {
            Incoming::Datagram { from, bytes, .. } if Mail::is_mail(&bytes) => {
                for message in self.post.take(from, &bytes) {
                    self.hear(from, message, front);
                }
            }
            Incoming::Datagram { at, from, bytes } => {
                // What waited for longer than this says nothing about the way that it came.
                let at = at.max(clock::now() - WAITED);
                if let Some(word) = ping::Word::read(&bytes) {
                    return self.take_ping(at, from, word);
                }
                let standing = self.book.standing(at, from);
                if let (Some(list), Standing::Watching(_)) = (&mut self.list, standing) {
                    list.note_heard(at, &from);
                }
                let Some(session) = &mut self.session else { return };
                match standing {
                    Standing::Seated(addr) => session.handle_datagram(at, addr, &bytes),
                    // Who has no seat can watch, if anybody may, and no more: it does not get near the players' packets.
                    Standing::Watching(addr) if is_feed(&bytes) && self.party.open => {
                        session.handle_datagram(at, addr, &bytes)
                    }
                    Standing::Watching(_) => {}
                }
            }
            Incoming::Up { .. } | Incoming::Multicast { .. } => {}
            Incoming::Unanswered { place, .. } => self.note_closed(&place, "no way yet to", front),
            Incoming::Stranger { place } => self.note_closed(&place, "somebody else answers for", front),
        }
    }

    /// Does what the session asks for, and sends what it has.
    fn play(&mut self, front: &mut dyn Front) -> Result<(), Failure> {
        let result = self.serve(front);
        self.send_all();
        result
    }

    fn serve(&mut self, front: &mut dyn Front) -> Result<(), Failure> {
        loop {
            let Some(session) = &mut self.session else { return Ok(()) };
            let now = clock::now();
            let Some(turn) = self.hosted.serve(now, session) else { return Ok(()) };
            self.record(&turn);
            match turn {
                Turn::Sample { .. } => self.sample(front),
                Turn::Stepped { frame, fresh } => {
                    if let Some(log) = &mut self.log {
                        let hash = self.hosted.machine_mut().hash();
                        log.step(frame, now, !fresh, self.hosted.inputs(), Some(hash));
                    }
                    if fresh {
                        self.beat.on_frame(now, self.hosted.machine().rate().period());
                        front.show(frame, self.hosted.machine());
                    }
                }
                Turn::Trouble(trouble) => return Err(self.give_up(&trouble)),
                _ => {}
            }
            // At once: nobody waits for a machine that takes its time.
            self.send_all();
        }
    }

    /// Puts on record what has become certain.
    fn record(&mut self, turn: &Turn) {
        let (Some(tape), Some(session)) = (&mut self.tape, &mut self.session) else { return };
        if matches!(session.state(), State::Joining { .. }) {
            // Whatever comes on the way in is certain.
            return tape.follow(turn, &mut self.hosted, session.settings());
        }
        if !tape.has_begun() {
            tape.begin(session.settings(), movie::MovieStart::PowerOn);
        }
        self.record_certain();
    }

    fn record_certain(&mut self) {
        let (Some(tape), Some(session)) = (&mut self.tape, &mut self.session) else { return };
        while let Some(certain) = session.poll_certain() {
            tape.push(certain.frame, certain.inputs, certain.hash);
        }
    }

    fn give_up(&mut self, trouble: &Trouble) -> Failure {
        if let Some(session) = &mut self.session {
            session.leave(clock::now());
        }
        Failure::Machine(trouble.to_string())
    }

    /// The local input, as late as it can be.
    fn sample(&mut self, front: &mut dyn Front) {
        let Some(session) = &mut self.session else { return };
        let (ownership, site, control) = (&session.settings().ownership, session.site(), self.players - 1);
        let mine = |player: &usize| *player != control && ownership.mask(site, *player) != 0;
        let players: Vec<usize> = (0..ownership.players()).filter(mine).collect();
        self.local.clear();
        self.local.resize(players.len(), 0);
        front.sample(&mut self.local);
        self.words.clear();
        self.words.resize(self.players, 0);
        for (player, word) in players.iter().zip(&self.local) {
            self.words[*player] = *word;
        }
        self.words[control] = std::mem::take(&mut self.controls);
        session.handle_input(clock::now(), &self.words);
    }

    fn send_all(&mut self) {
        let Some(session) = &mut self.session else { return };
        let mut buf = [0; MAX_DATAGRAM];
        while let Some(transmit) = session.poll_transmit(clock::now(), &mut buf) {
            if let Some(key) = self.book.key(transmit.to) {
                self.post.transport.send(&key, &buf[..transmit.len]);
            }
        }
    }

    /// Everything that is not of the moment.
    fn look_around(&mut self, front: &mut dyn Front) -> Result<(), Failure> {
        let now = clock::now();
        while let Some(command) = front.poll() {
            self.obey(command, front);
        }
        self.tend_list(front);
        self.tell_alone(front);
        if self.party.started && self.session.is_none() && now >= self.begin_at && !self.leaving {
            self.begin(now)?;
        }
        self.go_on_alone_unasked(now);
        self.hear_session(front);
        self.watch_company();
        self.watch_start(now);
        self.watch_the_end();
        self.watch_keeper(now)?;
        self.measure_trips(now);
        self.look_where_we_are(now);
        let book = &self.book;
        self.post.forget(now, |peer| book.is_seated(peer));
        self.post.flush(now);
        if now >= self.next_status {
            self.next_status = now + STATUS_EVERY;
            let status = self.status();
            front.tell(News::Status(&status));
        }
        Ok(())
    }

    fn obey(&mut self, command: Command, front: &mut dyn Front) {
        match command {
            Command::Quit => self.leave(),
            Command::Start => self.start(),
            Command::GoOnAlone => self.go_on_alone(),
            Command::Chat(line) => {
                let name = self.name.clone();
                if let Some(list) = &mut self.list {
                    return list.chat(&name, &line);
                }
                front.tell(News::Chat { name: &name, line: &line });
                self.post.mail(self.keeper.key(), &Message::Chat { name, line });
            }
            Command::Control(control) => self.controls |= Control::bit(control, usize::from(self.me)),
        }
    }

    /// Our session begins: with everybody, or in the middle of it.
    fn begin(&mut self, now: Instant) -> Result<(), Failure> {
        let settings = Settings::from_bytes(&self.party.terms).map_err(|_| Failure::Terms)?;
        let machine = self.hosted.machine();
        check_players(&settings, machine).map_err(|difference| Failure::Different(vec![difference]))?;
        let me = SiteId::new(self.me).ok_or(Failure::Terms)?;
        let sites = SiteId::first(usize::from(settings.site_count));
        let peers = sites.filter(|site| *site != me).map(|site| (site, Addr(u64::from(site.number())))).collect();
        let alone = !settings.starting_sites.contains(me);
        let mut config = hosted::config(machine, self.party.session, me, peers, settings.clone());
        let start = if machine.can_save() { SpectatorStart::Snapshot } else { SpectatorStart::FirstFrame };
        config.late_join = (self.late || alone).then_some(LateJoin { start, max_state_len: MAX_STATE });
        config.feed = Some(FeedConfig {
            log_bytes: if machine.can_save() { 0 } else { LOG_BYTES },
            max_spectators: 4_096,
            ..FeedConfig::new(self.party.session, u64::from_le_bytes(random()), settings)
        });
        // An address stands for a seat, and a seat belongs to a key.
        config.is_transport_authenticated = true;
        self.session_number = Some(self.party.session);
        self.incarnation = next_incarnation(self.incarnation, self.party.serial);
        (config.drop_timeout, config.stall_limit) = (self.manner.drop_after, self.manner.late_after);
        (config.machine_costs, config.incarnation) = (self.manner.costs, self.incarnation);
        let gives_up = self.manner.drop_after.filter(|_| self.manner.alone == Alone::Wait);
        config.silence_timeout = gives_up.map(|patience| patience * i64::from(GIVE_UP));
        config.can_play_alone = true;
        if config.late_join.is_some() && start == SpectatorStart::FirstFrame {
            self.hosted.machine_mut().reset();
        }
        self.session = Some(Session::new(now, config).map_err(|error| Failure::Session(error.to_string()))?);
        Ok(())
    }

    fn hear_session(&mut self, front: &mut dyn Front) {
        while let Some(event) = self.session.as_mut().and_then(Session::poll_event) {
            front.tell(News::Session(&event));
            match event {
                Event::Diverged { .. } => self.diverged = true,
                Event::Left { site, .. } => self.on_gone(site, true),
                Event::Dropped { site, .. } => self.on_gone(site, false),
                Event::Joined { site, .. } => self.set_here(site, true),
                Event::SplitBrainResolved { site, is_own_game_kept: false } => self.on_met(site),
                Event::Ended(end) => self.on_end(end, front),
                _ => {}
            }
        }
    }

    fn on_end(&mut self, end: SessionEnd, front: &mut dyn Front) {
        match end {
            SessionEnd::Dropped if !self.leaving => {
                front.tell(News::Note("the others went on without us; coming back".into()));
                self.record_certain();
                if let Some(tape) = &mut self.tape {
                    tape.stop("the recording ends where the others went on without us");
                }
                self.session = None;
                self.late = true;
                self.go_astray();
                self.begin_at = clock::now() + COME_BACK;
            }
            _ => self.done = Some(if self.leaving { Why::Done } else { Why::Ended(end) }),
        }
    }

    /// Leaves when that was asked for.
    fn watch_the_end(&mut self) {
        let Some(session) = &self.session else { return };
        if !self.leaving && self.manner.frames.is_some_and(|frames| session.stats().confirmed.number() >= frames) {
            self.leave();
        }
    }

    fn leave(&mut self) {
        self.leaving = true;
        match &mut self.session {
            Some(session) => session.leave(clock::now()),
            None => self.done = Some(Why::Done),
        }
    }

    fn status(&self) -> Status {
        let now = clock::now();
        let member = |member: &Member| self.pings.trip(&member.key).map(|trip| (member.site, trip));
        let mut status = Status {
            trips: self.party.members.iter().filter_map(member).collect(),
            can_go_on_alone: self.can_go_on_alone(now),
            paused: self.lamp.paused_by(),
            fps: self.beat.fps(),
            refused: self.post.transport.refused(),
            ..Status::default()
        };
        if let Some(session) = &self.session {
            (status.stats, status.state) = (session.stats(), Some(session.state()));
            let here = |site: u8| self.party.members.iter().any(|member| member.site == site && member.here);
            status.peers = peers(session, now).into_iter().filter(|(site, _)| here(*site)).collect();
        }
        status
    }

    fn outcome(&self, why: Why) -> Outcome {
        let (stats, peers) =
            self.session.as_ref().map(|session| (session.stats(), peers(session, clock::now()))).unwrap_or_default();
        let frames = stats.confirmed.number();
        let numbers = self.beat.numbers(stats, peers, self.post.transport.refused());
        Outcome { why, frames, agreed: !self.diverged, numbers, taped: None }
    }

    /// Whether the game has begun here.
    pub fn is_running(&self) -> bool {
        self.session.as_ref().is_some_and(|session| matches!(session.state(), State::Running | State::Frozen(_)))
    }
}

fn peers(session: &Session, now: Instant) -> Vec<(u8, coplay::session::PeerStats)> {
    let sites = SiteId::first(usize::from(session.settings().site_count));
    sites.filter_map(|site| session.peer_stats(now, site).map(|stats| (site.number(), stats))).collect()
}

/// A number that grows with every session of a seat, whoever sits there: the list grows whenever somebody is let in, is lost or is back,
/// and who keeps it tells everybody. Clocks could be set back, or be wrong, from one start of the program to the next.
fn next_incarnation(last: u32, serial: u32) -> u32 {
    serial.saturating_add(1).saturating_mul(SESSIONS_PER_SERIAL).max(last.saturating_add(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{Identity, Secret};
    use crate::udp::Udp;
    use coplay::input::Ownership;
    use coplay_machines::nes::Nes;

    /// The host can change the settings between the handshake and the start.
    #[test]
    fn settings_with_another_number_of_players_are_refused_at_the_start() {
        let (queue, incoming) = std::sync::mpsc::sync_channel(64);
        let addr = "127.0.0.1:0".parse().unwrap();
        let transport = Udp::listen(addr, Identity::random(), Secret::from_text("tennis"), queue).expect("a free port");
        let plan = HostPlan {
            name: "host".into(),
            pads: 1,
            players: 2,
            terms: Terms::new(2),
            absent: AbsentInput::Nothing,
            private: false,
            manner: Manner::default(),
        };
        let nes = Nes::open(&coplay_testcores::images::nes(), "test").expect("a sound image");
        let mut drive = Drive::host(Arc::new(transport), incoming, Box::new(nes), &plan).expect("a sound plan");
        let sound = Settings::from_bytes(&drive.party.terms).expect("sound settings");
        for players in [1, 2, 4, MAX_PLAYERS] {
            let mut ownership = Ownership::new(players);
            for player in 0..players {
                ownership.assign(SiteId::new(0).expect("a site"), player, 1).expect("nobody has it yet");
            }
            drive.party.terms = Settings { ownership, ..sound.clone() }.to_bytes().expect("it fits");
            let refused = format!("the number of players differs: 3 here, {players} there");
            assert_eq!(drive.begin(clock::now()), Err(Failure::Different(vec![refused])));
            assert!(drive.session.is_none());
        }
        drive.party.terms = sound.to_bytes().expect("it fits");
        assert_eq!(drive.begin(clock::now()), Ok(()));
    }

    #[test]
    fn who_sits_down_later_has_the_larger_number() {
        let first = next_incarnation(0, 3);
        let back_by_itself = next_incarnation(first, 3);
        let started_again = next_incarnation(0, 4);
        assert!(0 < first && first < back_by_itself && back_by_itself < started_again);
        assert!(next_incarnation(u32::MAX, u32::MAX) == u32::MAX, "nothing overflows");
    }
}
