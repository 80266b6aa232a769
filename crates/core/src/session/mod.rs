//! The shared machine: several sites step the same game with the same inputs, frame by frame.
//!
//! A [`Session`] is one site's end of it. It is a pure state machine: datagrams, the time and local inputs go in, datagrams,
//! [`Request`]s and [`Event`]s come out. The host program owns the machine, the sockets and the clock. See the [crate]
//! for a complete example.
//!
//! What holds at any time:
//! - a frame is confirmed, in order, when it is stepped with the inputs that every site gave for it; no frame further than the
//!   window from that is stepped at all, and none is left as it was guessed once the truth is known;
//! - a local input takes effect in exactly the frame that was promised when it was asked for;
//! - everything has a bound: memory, packet size, distance between sites.

mod alone;
mod auto;
mod buffer;
mod chain;
mod compare;
mod config;
mod event;
mod finder;
mod guess;
mod join;
mod late;
mod lobby;
mod mend;
mod order;
mod packet;
mod peer;
mod play;
mod relay;
mod report;
mod reports;
mod search;
mod send;
mod serve;
mod settings;
mod stats;
mod view;

pub use auto::Costs;
pub use buffer::Buffering;
pub use config::{Config, ConfigError, MIN_DROP_AFTER, Sending};
pub use event::{End, Event, Freeze, Request};
pub use finder::{Finder, Want};
pub use guess::{Past, Predictor};
pub use join::Join;
pub use late::MIN_LATE_AFTER;
pub use report::{MAX_REGION_NAME, MAX_REGIONS, MAX_SPAN, PAGE, Region, RegionDifference, Report, Span};
pub use serve::Certain;
pub use settings::{
    Absent, Difference, GameId, MAX_COMPARE_EVERY, MAX_LAG, MAX_OPTIONS, MAX_REACH, MAX_TEXT, MAX_WINDOW, MachineId,
    Settings, SettingsError, Starvation,
};
pub use stats::{Dropped, PeerStats, Stats};

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use crate::feed::Feed;
use crate::frame::Frame;
use crate::id::{Addr, SiteId, SiteSet};
use crate::input::{Layout, Stream, Word};
use crate::pace::Pacer;
use crate::time::{GroupInstant, Instant, TimeDelta};
use crate::wire::{Error, Hello, Order, Search, Tick, is_feed, is_tick};
use alone::Alone;
use auto::Auto;
use buffer::Pause;
use chain::Chain;
use compare::{Digests, Told};
use event::Events;
use join::Joining;
use mend::Mending;
use peer::{Peer, Seat};
use search::Inquiry;
use view::View;

/// Frames whose beginning is remembered: at least as many as sites can be apart.
const STARTS: usize = 256;
/// Packets that nobody may need are this far apart.
const KEEP_ALIVE: TimeDelta = TimeDelta::from_millis(100);
/// A wait may be a lost packet for so long; then it is a fault, and packets are sent less often.
const HURRY: TimeDelta = TimeDelta::from_millis(300);
/// Who leaves a lobby says so for as long as this.
const GOODBYE: TimeDelta = TimeDelta::from_secs(1);
/// Stands for a time that must be looked up.
const LOOK_AGAIN: Instant = Instant::from_nanos(i64::MIN);
/// Leaving, freezing and giving up take their time, and are looked after this often.
const WATCH_EVERY: TimeDelta = TimeDelta::from_millis(50);
/// What is called with an earlier time than the last call, by no more than this, has waited somewhere; by more, a clock was set back.
const ARRIVED_BEFORE: TimeDelta = TimeDelta::from_millis(250);
/// A host program that does not call for so long has no right to complain that others are late.
const DOZED: TimeDelta = TimeDelta::from_millis(150);
/// A host program that does not call for so long was asleep itself.
const ASLEEP: TimeDelta = TimeDelta::from_secs(1);

/// One site's end of a shared game.
#[derive(Debug)]
pub struct Session {
    config: Config,
    peers: Vec<Peer>,
    phase: Phase,
    /// When the game starts, once that is agreed on.
    start: Option<GroupInstant>,
    refused: bool,
    pacer: Option<Pacer>,
    /// The site whose plan we follow; `None` when that is ourselves.
    pace_setter: Option<SiteId>,
    /// The next frame to be stepped for the first time, or the one being stepped.
    frame: Frame,
    /// The next frame of the host program's machine, which during a repair is in the past.
    at: Frame,
    /// The first frame that was stepped with a wrong guess.
    wrong: Option<Frame>,
    mending: Mending,
    starts: [Instant; STARTS],
    /// Our own inputs.
    own: Stream,
    layout: Layout,
    words: Vec<Word>,
    fed_words: Vec<Word>,
    digests: Digests<Told>,
    /// The hash of our own inputs.
    chain: Chain,
    /// The same where a repair may still change them.
    tentative: Digests,
    /// The next frame whose state is compared once it is certain.
    compare_next: Option<Frame>,
    /// The frame whose state the host program hashes.
    hashing: Option<Frame>,
    /// The frame at hand had to wait for inputs.
    waited: bool,
    /// Since when, as far as we were awake; and for whom, in the end.
    waiting_since: Instant,
    awaited: SiteSet,
    /// When the frame at hand, or the one before it, began.
    begun: Instant,
    frozen: Option<Freeze>,
    /// A pause of all sites.
    pause: Pause,
    dials: Dials,
    /// What they will be from a frame on.
    turning: Option<Dials>,
    /// The furthest that anybody was ever allowed to be ahead.
    most_reach: u32,
    view: View,
    /// Sites that the game went on without although no quorum decided that.
    alone: Alone,
    /// What is to happen at one frame everywhere.
    order: Option<Order>,
    /// The frame of the newest order that was carried out.
    carried_out: Option<Frame>,
    /// Some ticks carry more than inputs.
    talkative: bool,
    auto: Option<Box<Auto>>,
    /// There is or was something to do beside the game.
    aside: bool,
    /// What is needed to look into differences.
    inquiry: Option<Box<Inquiry>>,
    /// We are on our way into a running game.
    joining: Option<Box<Joining>>,
    /// Those who watch, and those who come late.
    feed: Option<Box<Feed>>,
    /// Everything before this frame is in the feed; and everything before that one can be searched for differences.
    fed: Frame,
    searchable: Frame,
    /// Everything before this frame was told to whoever keeps a movie.
    told: Frame,
    /// The frame whose state the host program was asked for.
    snapshot_asked: Option<Frame>,
    /// Frames before this one came to us with certainty.
    born: Frame,
    /// Frames before this one are made up for as quickly as the machine can.
    fast_until: Frame,
    /// It is time to tell how things are here.
    telling_condition: bool,
    /// We are going away.
    leaving: Option<Leave>,
    left: SiteSet,
    events: Events,
    stats: Stats,
    /// The peers, by index, for which there is something new.
    due: u8,
    /// The peers, by index, that are there to hear it.
    listeners: u8,
    /// No packet leaves before this because its time has come; the earliest of all times if that must be looked up again.
    next_send: Instant,
    /// Somebody waits for a hello in the middle of the game.
    greetings: bool,
    /// When to look after slow things again.
    next_watch: Instant,
    /// By how much the host program's clock has gone back so far, all in all: our own never does.
    set_back: TimeDelta,
    /// When the host program last called.
    called: Instant,
    created: Instant,
}

/// Our leaving.
#[derive(Clone, Copy, Debug)]
struct Leave {
    /// Our inputs end before this frame.
    frame: Frame,
    since: Instant,
    /// How we tell it.
    end: End,
}

/// How long local input waits, and how many frames may be guessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Dials {
    /// Since this frame.
    from: Frame,
    lag: u32,
    window: u32,
}

/// Where a session is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Lobby,
    /// We watch until we are let in.
    Joining,
    Starting {
        at: Instant,
    },
    Running(Step),
    Over(End),
}

/// Where a running game is in its frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// It is not time yet.
    Rest,
    /// The frame has begun, its local input is to be taken.
    Sample,
    /// The host program takes it.
    Sampling,
    /// The other sites' inputs are awaited.
    Gather { began: Instant },
    /// The machine is brought up to where it should be; the state that it has may be saved already.
    Run { aim: Aim, saved: bool },
    /// The host program steps the machine.
    Stepping,
    /// The past is played once more, aside.
    Aside,
    /// It is to keep the state, because it was hashed.
    Anchor { place: usize, aim: Option<Aim> },
    /// It is to hash the state.
    Hash,
    /// The same in the middle of a repair.
    HashPast { aim: Aim },
}

/// What the machine is brought up to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Aim {
    /// The frame that has not begun yet: nobody waits for it.
    Rest,
    /// The frame that began then, which is stepped.
    Frame { began: Instant },
}

/// Where a session is, for its host program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Waiting for sites to come and agree.
    Lobby {
        /// Those that have not.
        waiting_for: SiteSet,
    },
    /// On the way into a running game.
    Joining {
        /// How much of the state is here, in percent.
        downloaded: u8,
    },
    /// All agree; the first frame comes at this instant.
    Starting {
        /// When, on our clock.
        at: Instant,
    },
    /// Frames follow each other.
    Running,
    /// Frames do not follow each other.
    Frozen(Freeze),
    /// Over.
    Ended(End),
}

/// A datagram to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Where to.
    pub to: Addr,
    /// How many bytes of the buffer.
    pub len: usize,
}

/// The peers, by index, that get packets.
fn listeners(peers: &[Peer]) -> u8 {
    peers.iter().enumerate().filter(|(_, peer)| !peer.is_free()).fold(0, |bits, (index, _)| bits | 1 << index)
}

impl Session {
    /// Takes part in a session, from its lobby on.
    pub fn new(now: Instant, config: Config) -> Result<Self, ConfigError> {
        config.check()?;
        let settings = &config.settings;
        let (ownership, first) = (&settings.ownership, Frame::new(settings.lag));
        let layout = ownership.layout(config.site);
        let sizes = (layout.width(), settings.slots());
        let peer = |(site, addr): &(SiteId, Addr)| Peer::new(now, *site, *addr, ownership.layout(*site), first, sizes);
        let mut peers: Vec<Peer> = config.peers.iter().map(peer).collect();
        let absent = |peer: &&mut Peer| !settings.starters.contains(peer.site);
        peers.iter_mut().filter(absent).for_each(|peer| peer.seat = Seat::Free(Frame::ZERO));
        let joining = config.join.map(|join| Joining::new(now, join, &config)).transpose()?;
        let feed = config.feed.clone().map(|feed| Feed::new(feed).map(Box::new)).transpose()?;
        let searching = config.investigate && config.can_save && settings.compare_every > 0;
        let everyone = SiteSet::first(usize::from(settings.sites));
        let inquiry = searching.then(|| Inquiry::new(config.site, everyone, settings, Frame::ZERO));
        let phase = if joining.is_some() { Phase::Joining } else { Phase::Lobby };
        Ok(Self {
            listeners: listeners(&peers),
            peers,
            phase,
            start: None,
            refused: false,
            pacer: None,
            pace_setter: None,
            frame: Frame::ZERO,
            at: Frame::ZERO,
            wrong: None,
            mending: Mending::default(),
            starts: [now; STARTS],
            own: Stream::new(layout.width(), first),
            layout,
            words: vec![0; ownership.players()],
            fed_words: vec![0; ownership.players()],
            digests: Digests::default(),
            chain: Chain::new(first),
            tentative: Digests::default(),
            hashing: None,
            waited: false,
            waiting_since: now,
            awaited: SiteSet::EMPTY,
            begun: now,
            compare_next: settings.compare_every.checked_sub(1).map(Frame::new),
            frozen: None,
            pause: Pause::default(),
            dials: Dials { from: Frame::ZERO, lag: settings.lag, window: settings.window },
            turning: None,
            most_reach: settings.lag + settings.window,
            view: View::default(),
            alone: Alone::default(),
            order: None,
            carried_out: None,
            talkative: false,
            auto: settings.auto.then(|| Box::new(Auto::new(now, config.costs))),
            telling_condition: false,
            aside: joining.is_some() || feed.is_some(),
            inquiry,
            joining,
            feed,
            fed: Frame::ZERO,
            searchable: Frame::ZERO,
            told: Frame::ZERO,
            snapshot_asked: None,
            born: Frame::ZERO,
            fast_until: Frame::ZERO,
            leaving: None,
            left: SiteSet::EMPTY,
            events: Events::new(),
            stats: Stats { lag: settings.lag, window: settings.window, ..Stats::default() },
            due: 0,
            next_send: now,
            greetings: false,
            next_watch: now,
            set_back: TimeDelta::ZERO,
            called: now,
            created: now,
            config,
        })
    }

    /// Takes in a datagram. Anything can be handed in: what is of no use is dropped and counted. `now` may be when it arrived, if that is
    /// no more than a quarter of a second ago.
    pub fn handle_datagram(&mut self, now: Instant, from: Addr, bytes: &[u8]) {
        let now = self.notice_sleep(now);
        if self.is_over() {
            return;
        }
        if Search::is(bytes) {
            return self.handle_search(now, from, bytes);
        }
        if is_feed(bytes) {
            return self.handle_feed(now, from, bytes);
        }
        if is_tick(bytes) {
            let mut tick = Tick::default();
            match tick.read(bytes) {
                Ok(()) => self.handle_tick(now, from, &tick, bytes.len()),
                Err(_) => self.stats.dropped.malformed += 1,
            }
            return;
        }
        match Hello::decode(bytes) {
            Ok(hello) => self.handle_hello(now, from, &hello, bytes.len()),
            Err(Error::Version(version)) => self.handle_other_version(from, version),
            Err(_) => self.stats.dropped.malformed += 1,
        }
        self.look_again();
    }

    /// Lets time pass. [`Session::poll_request`] does it, too.
    pub fn handle_timeout(&mut self, now: Instant) {
        let now = self.notice_sleep(now);
        self.pass_time(now);
    }

    fn pass_time(&mut self, now: Instant) {
        match self.phase {
            Phase::Starting { at } if at <= now => self.start_running(at),
            Phase::Running(_) if self.next_watch <= now => {
                self.next_watch = now + WATCH_EVERY;
                self.watch(now);
            }
            Phase::Running(_) => {}
            Phase::Lobby | Phase::Joining if self.leaving.is_some_and(|leave| now - leave.since > GOODBYE) => {
                self.end(End::Left);
            }
            Phase::Lobby => self.try_start(now),
            Phase::Joining => self.watch_joining(now),
            Phase::Starting { .. } | Phase::Over(_) => {}
        }
    }

    /// Our time, which never goes back, from the host program's, which should not.
    #[inline]
    fn own_time(&mut self, now: Instant) -> Instant {
        let steady = self.set_back == TimeDelta::ZERO && now >= self.called;
        if steady { now } else { self.own_time_set_back(now) }
    }

    /// Our time where the host program's went back, now or before.
    #[cold]
    fn own_time_set_back(&mut self, now: Instant) -> Instant {
        let ours = now + self.set_back;
        // A datagram may be handed in with the time at which it arrived, which was before this program was done with something else.
        if self.called - ours > ARRIVED_BEFORE {
            self.set_back += self.called - ours;
        }
        ours.max(self.called)
    }

    /// Whoever was asleep cannot blame others for their silence.
    fn notice_sleep(&mut self, now: Instant) -> Instant {
        let now = self.own_time(now);
        self.note_call(now);
        now
    }

    fn note_call(&mut self, now: Instant) {
        let away = now - self.called;
        self.called = now;
        if away > DOZED {
            self.waiting_since += away;
        }
        if away > ASLEEP {
            for peer in &mut self.peers {
                peer.heard += away;
            }
        }
    }

    /// Leaves the game: the others go on with neutral input from the frame after our last one. Go on polling until
    /// [`Event::Ended`], or as long as you like; it comes when all others know, at most 30 s later. Where the others leave at the same
    /// time, it may be told as [`End::Alone`].
    pub fn leave(&mut self, now: Instant) {
        let now = self.notice_sleep(now);
        self.leave_as(now, End::Left);
    }

    /// Leaves, and tells it like this.
    fn leave_as(&mut self, now: Instant, end: End) {
        self.leaving.get_or_insert(Leave { frame: self.own.end(), since: now, end });
        if let Some(feed) = &mut self.feed {
            // What we know of the game ends here.
            feed.dismiss();
        }
        if let Phase::Starting { at } = self.phase {
            self.start_running(at);
        }
        if self.phase == Phase::Joining && self.pacer.is_some() {
            // The others count on us already.
            self.phase = Phase::Running(Step::Rest);
            self.joining = None;
            self.next_watch = now + WATCH_EVERY;
        }
        if matches!(self.phase, Phase::Running(_)) {
            self.phase = Phase::Running(Step::Rest);
        }
        self.frozen = None;
        self.talk();
        self.set_all_due();
        self.look_again();
    }

    /// The next thing to tell.
    #[inline]
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop()
    }

    /// When to call [`Session::poll_request`] and [`Session::poll_transmit`] again if nothing else happens; `None` when the session is
    /// over.
    ///
    /// Be on time to a fraction of a millisecond if you can: a frame begins when you call. A socket's read timeout is often too
    /// coarse; wait with it until a few milliseconds before, then sleep.
    #[inline]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let resting = matches!(self.phase, Phase::Running(Step::Rest)) && self.leaving.is_none() && !self.aside;
        let nothing_new = self.due == 0 && self.next_send != LOOK_AGAIN && self.wrong.is_none();
        match resting && nothing_new {
            true => Some(self.next_send.min(self.next_begin()) - self.set_back),
            false => self.next_timeout(),
        }
    }

    fn next_timeout(&self) -> Option<Instant> {
        let send = match self.next_send {
            // Nobody has looked since something changed.
            LOOK_AGAIN => (0..self.peers.len()).map(|index| self.send_time(index)).min().unwrap_or(Instant::FAR_FUTURE),
            known => known,
        };
        let send = if self.due != 0 { self.called } else { send };
        let frame = match self.phase {
            Phase::Over(_) => return None,
            // There may be nobody to send to, and so no other reason to be called.
            Phase::Lobby | Phase::Joining if self.leaving.is_some() => self.called + WATCH_EVERY,
            Phase::Lobby | Phase::Joining => Instant::FAR_FUTURE,
            Phase::Starting { at } => at,
            Phase::Running(Step::Rest) if self.leaving.is_none() => self.next_mend().min(self.next_begin()),
            Phase::Running(Step::Gather { .. }) if self.leaving.is_none() && !self.may_step() => Instant::FAR_FUTURE,
            Phase::Running(Step::Gather { began }) if self.leaving.is_none() => self.guess_at(began).max(self.called),
            Phase::Running(Step::Sampling) if self.leaving.is_none() => Instant::FAR_FUTURE,
            Phase::Running(_) if self.leaving.is_none() => self.called,
            Phase::Running(_) => self.next_watch,
        };
        let aside = if self.aside { self.time_aside() } else { Instant::FAR_FUTURE };
        Some(send.min(frame).min(aside) - self.set_back)
    }

    /// Whether the session is over.
    pub fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Over(_))
    }

    /// Where the session is.
    pub fn state(&self) -> State {
        match (self.phase, self.frozen) {
            (Phase::Over(end), _) => State::Ended(end),
            (Phase::Running(_), Some(freeze)) => State::Frozen(freeze),
            (Phase::Running(_), None) => State::Running,
            (Phase::Starting { at }, _) => State::Starting { at },
            (Phase::Joining, _) => State::Joining { downloaded: self.downloaded() },
            (Phase::Lobby, _) => State::Lobby { waiting_for: self.missing_in_lobby() },
        }
    }

    /// About how many bytes the session takes, all in all. It does not grow while a game runs.
    pub fn memory(&self) -> usize {
        let peers: usize = self.peers.iter().map(Peer::memory).sum();
        let digests = self.digests.memory() + self.tentative.memory();
        size_of::<Self>() + peers + self.own.memory() + digests + self.events.memory() + self.memory_aside()
    }

    /// Who we are.
    pub fn site(&self) -> SiteId {
        self.config.site
    }

    /// What is played and how.
    pub fn settings(&self) -> &Settings {
        &self.config.settings
    }

    /// The session in numbers.
    pub fn stats(&self) -> Stats {
        let period = self.pacer.as_ref().map_or(self.config.settings.rate.period(), Pacer::period);
        Stats { frame: self.frame, confirmed: self.certain(), period, ..self.stats }
    }

    /// The link to a peer in numbers, or `None` for who is no peer.
    pub fn peer_stats(&self, now: Instant, site: SiteId) -> Option<PeerStats> {
        let now = now + self.set_back;
        let peer = self.peers.iter().find(|peer| peer.site == site)?;
        let (requests, answers) = peer.sender.asked_and_answered();
        Some(PeerStats { ahead: self.ahead(peer), requests, answers, ..peer.stats(now, self.own.end()) })
    }

    /// The time of the clock that all sites share, which is that of the lowest site.
    pub fn group_time(&self, now: Instant) -> Option<GroupInstant> {
        let now = now + self.set_back;
        match self.time_keeper() {
            None => Some(GroupInstant::from_nanos(now.as_nanos())),
            Some(keeper) => keeper.clock.to_group(now),
        }
    }

    fn local_time(&self, group: GroupInstant) -> Option<Instant> {
        match self.time_keeper() {
            None => Some(Instant::from_nanos(group.as_nanos())),
            Some(keeper) => keeper.clock.from_group(group),
        }
    }

    /// The peer whose clock is group time; `None` when it is ours.
    fn time_keeper(&self) -> Option<&Peer> {
        self.peers.iter().min_by_key(|peer| peer.site).filter(|peer| peer.site < self.config.site)
    }
}
