//! The receiving end.

mod ask;
mod config;
mod hear;

pub use config::{Start, WatchConfig};

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use super::download::Download;
use super::event::{Events, Trouble, WatchEvent, WatchRequest, WatchStats};
use super::flow::Flow;
use super::pace::{Pace, Step};
use super::store::Store;
use super::{layout_of_all, settings_digest};
use crate::frame::Frame;
use crate::id::Addr;
use crate::input::{InputLayout, InputWord};
use crate::session::SettingsError;
use crate::time::{Instant, TimeDelta};

/// The most events kept for a host program that does not ask.
const MOST_EVENTS: usize = 16;
/// A state of a new source is waited for no longer than this, however seldom states are compared.
const PROVEN_WITHIN: TimeDelta = TimeDelta::from_secs(3);
/// The last words are said so many times.
const GOODBYES: u8 = 3;

/// The receiving end of a feed.
#[derive(Debug)]
pub struct Watcher {
    config: WatchConfig,
    layout: InputLayout,
    settings: u64,
    now: Instant,
    contact: Contact,
    /// Which source, and what it told us to say.
    source: usize,
    token: u64,
    /// When the source was last heard, and when any was.
    heard: Instant,
    heard_any: Instant,
    first_asked: Instant,
    asked_to_watch: Instant,
    attempts: u32,
    refusals: usize,
    bad_blocks: u32,
    stage: Stage,
    download: Option<Download>,
    store: Store,
    /// The frame after the last that our source has, and whether that is all.
    newest: Frame,
    /// Some source has told how far the game is.
    joined: bool,
    ended: bool,
    level: u8,
    flow: Flow,
    asked: VecDeque<Asked>,
    /// Mean bytes of a frame, in 1/16.
    frame_bytes: usize,
    acked_at: Instant,
    sent_at: Instant,
    pace: Pace,
    was_live: bool,
    was_starving: bool,
    words: Vec<InputWord>,
    hashes: VecDeque<(Frame, u64)>,
    hash: Hash,
    /// The first frame that a new contact brought and when that began, until a state shows that it plays the game of the contact before.
    unproven: Option<(Frame, Instant)>,
    events: Events<WatchEvent>,
    stats: WatchStats,
}

/// How we stand with our source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Contact {
    Asking,
    Watching,
    Leaving(u8),
    Over,
}

/// How we stand with the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// A state is needed.
    Fetch,
    /// A state is complete.
    Load,
    /// It was given out.
    Loaded,
    /// Frames follow.
    Run,
}

/// A hash that the host program is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hash {
    None,
    Due { frame: Frame, expected: u64, loaded: bool },
    Asked { frame: Frame, expected: u64, loaded: bool },
}

/// Frames that were asked for.
#[derive(Clone, Copy, Debug)]
struct Asked {
    first: Frame,
    until: Frame,
    at: Instant,
    /// Some of it has come.
    came: bool,
}

impl Watcher {
    /// Begins to watch.
    pub fn new(now: Instant, config: WatchConfig) -> Result<Self, SettingsError> {
        config.settings.check()?;
        let layout = layout_of_all(&config.settings);
        Ok(Self {
            settings: settings_digest(&config.settings),
            now,
            contact: Contact::Asking,
            source: 0,
            token: 0,
            heard: now,
            heard_any: now,
            first_asked: now,
            asked_to_watch: Instant::from_nanos(i64::MIN),
            attempts: 0,
            refusals: 0,
            bad_blocks: 0,
            stage: if config.start == Start::Snapshot { Stage::Fetch } else { Stage::Run },
            download: None,
            store: Store::new(layout.width(), config.backlog),
            newest: Frame::ZERO,
            joined: false,
            ended: false,
            level: 0,
            flow: Flow::new(now),
            asked: VecDeque::new(),
            frame_bytes: 16 * 4,
            acked_at: now,
            sent_at: Instant::from_nanos(i64::MIN),
            pace: Pace::new(config.settings.rate.period(), config.spare, config.far),
            was_live: false,
            was_starving: false,
            words: vec![0; config.settings.ownership.players()],
            hashes: VecDeque::new(),
            hash: Hash::None,
            unproven: None,
            events: Events::new(MOST_EVENTS),
            stats: WatchStats::default(),
            layout,
            config,
        })
    }

    fn own_time(&mut self, now: Instant) -> Instant {
        // Whoever was asleep cannot blame others for their silence.
        let asleep = now - self.now;
        if asleep > self.config.silence {
            self.heard += asleep;
            self.heard_any += asleep;
        }
        self.now = self.now.max(now);
        self.now
    }

    fn source(&self) -> Option<Addr> {
        self.config.from.get(self.source).copied()
    }

    /// What to do now; ask again until there is nothing.
    pub fn poll_request(&mut self, now: Instant) -> Option<WatchRequest<'_>> {
        let now = self.own_time(now);
        if self.contact == Contact::Over {
            return None;
        }
        if let Hash::Due { frame, expected, loaded } = self.hash {
            self.hash = Hash::Asked { frame, expected, loaded };
            return Some(WatchRequest::Hash { frame, expected });
        }
        if self.hash != Hash::None {
            // The host program has no hash for us.
            (self.hash, self.unproven) = (Hash::None, None);
        }
        match self.stage {
            Stage::Fetch => None,
            Stage::Run if !self.joined => None,
            Stage::Load => self.load(),
            Stage::Loaded => {
                (self.stage, self.download) = (Stage::Run, None);
                self.pace.restart();
                self.advance(now)
            }
            Stage::Run => self.advance(now),
        }
    }

    fn load(&mut self) -> Option<WatchRequest<'_>> {
        let download = self.download.as_ref()?;
        let (next_frame, hash) = (Frame::new(download.offer().next_frame), download.offer().state_hash);
        self.stage = Stage::Loaded;
        if let Some(frame) = next_frame.checked_sub(1) {
            self.hash = Hash::Due { frame, expected: hash, loaded: true };
        }
        Some(WatchRequest::Load { next_frame, state: download.state(), hash })
    }

    fn advance(&mut self, now: Instant) -> Option<WatchRequest<'_>> {
        let (ready, frame) = (self.store.ready(), self.store.begin());
        let behind = (self.newest - frame).max(0) as u32;
        if self.ended && frame >= self.newest {
            self.contact = Contact::Leaving(GOODBYES);
            self.ended = false;
            self.events.push(WatchEvent::Ended { frame });
            return None;
        }
        let step = self.pace.step(now, ready, behind);
        self.tell_pace(frame, behind);
        if step == Step::Wait || !self.release() {
            return None;
        }
        if step == Step::Show {
            self.pace.on_shown(now);
        }
        Some(WatchRequest::Advance { frame, inputs: &self.words, fresh: step == Step::Show })
    }

    fn tell_pace(&mut self, frame: Frame, behind: u32) {
        let live = self.pace.is_live();
        if live != core::mem::replace(&mut self.was_live, live) {
            self.refusals = if live { 0 } else { self.refusals };
            self.events.push(if live { WatchEvent::Live { frame } } else { WatchEvent::Behind { frames: behind } });
        }
        let starving = self.pace.is_starving();
        if !core::mem::replace(&mut self.was_starving, starving) && starving {
            self.stats.stalls += 1;
        }
    }

    /// Takes the next frame's words out of the store.
    fn release(&mut self) -> bool {
        let frame = self.store.begin();
        let Some(packed) = self.store.take() else { return false };
        self.words.fill(0);
        self.layout.unpack(packed, &mut self.words);
        while self.hashes.front().is_some_and(|(known, _)| *known < frame) {
            self.hashes.pop_front();
        }
        if let Some(at) = self.hashes.iter().position(|(known, _)| *known == frame) {
            let expected = self.hashes.remove(at).map_or(0, |(_, hash)| hash);
            self.hash = Hash::Due { frame, expected, loaded: false };
        }
        true
    }

    /// The words of the next frame at once, whatever the pace: for one who takes a seat and must get there. `None` if it is not the
    /// next, or not here, or no state was loaded yet.
    pub fn take_words(&mut self, frame: Frame) -> Option<&[InputWord]> {
        if self.stage != Stage::Run || frame != self.store.begin() || !self.release() {
            return None;
        }
        self.hash = Hash::None;
        Some(&self.words)
    }

    /// The hash that [`WatchRequest::Hash`] asked for. Without it this frame is not compared.
    pub fn handle_hash(&mut self, hash: u64) {
        let Hash::Asked { frame, expected, loaded } = core::mem::replace(&mut self.hash, Hash::None) else { return };
        let unproven = self.unproven.take_if(|(first, _)| *first <= frame).is_some();
        if hash == expected {
            return;
        }
        if unproven && !loaded && self.config.start == Start::Snapshot {
            return self.load_anew(self.now);
        }
        self.stats.mismatches += 1;
        if loaded {
            self.refuse_snapshot(self.now);
        } else if self.stats.mismatches == 1 {
            self.events.push(WatchEvent::Diverged { frame });
        }
    }

    /// Whether the source may play another game than the one whose frames this watcher had before: no state was compared since then, and one
    /// will be soon.
    pub(crate) fn is_unproven(&self) -> bool {
        let compared = self.config.settings.compare_interval > 0;
        compared && self.unproven.is_some_and(|(_, since)| self.now - since < PROVEN_WITHIN)
    }

    /// A source is heard from another address than before.
    pub fn move_source(&mut self, from: Addr, to: Addr) {
        for source in self.config.from.iter_mut().filter(|source| **source == from) {
            *source = to;
        }
    }

    /// Turns to the next source that is any good, because this one brings nothing; to this one again, if no other is.
    pub fn turn_away(&mut self, now: Instant, is_good: impl Fn(Addr) -> bool) {
        let now = self.own_time(now);
        if matches!(self.contact, Contact::Asking | Contact::Watching) {
            let sources = self.config.from.len().max(1);
            let mut others = (1..=sources).map(|step| (self.source + step) % sources);
            let good = others.clone().find(|other| self.config.from.get(*other).is_some_and(|addr| is_good(*addr)));
            self.turn_to(now, Trouble::Silent, good.or(others.next()).unwrap_or(self.source));
        }
    }

    /// Watches no more. Go on polling for a moment, so that the source hears of it.
    pub fn leave(&mut self, now: Instant) {
        self.own_time(now);
        if matches!(self.contact, Contact::Asking | Contact::Watching) {
            self.contact = Contact::Leaving(GOODBYES);
        }
    }

    /// When to call [`Watcher::poll_request`] and [`Watcher::poll_transmit`] again if nothing else happens; `None` when we watch no
    /// more.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let silence = (self.heard + self.config.silence).min(self.heard_any + self.config.give_up_after);
        // Just after, because it is only then too long.
        let silence = silence + TimeDelta::from_millis(1);
        let send = match self.contact {
            Contact::Over => return None,
            Contact::Leaving(_) => return Some(self.now),
            Contact::Asking => self.ask_at(),
            Contact::Watching => self.next_ask(),
        };
        let frame = self.next_request();
        Some(
            [Some(silence), Some(send), frame]
                .into_iter()
                .flatten()
                .fold(Instant::FAR_FUTURE, Instant::min)
                .max(self.now),
        )
    }

    /// When there is something for the host program to do.
    fn next_request(&self) -> Option<Instant> {
        match (self.stage, self.hash) {
            (_, Hash::Due { .. }) | (Stage::Load | Stage::Loaded, _) => Some(self.now),
            (Stage::Fetch, _) => None,
            (Stage::Run, _) if !self.joined => None,
            (Stage::Run, _) => {
                let behind = (self.newest - self.store.begin()).max(0) as u32;
                if self.ended && behind == 0 {
                    return Some(self.now);
                }
                self.pace.next(self.now, self.store.ready(), behind)
            }
        }
    }

    /// The next thing to tell.
    pub fn poll_event(&mut self) -> Option<WatchEvent> {
        self.events.pop()
    }

    /// The next frame that will be given out.
    pub fn next_frame(&self) -> Frame {
        self.store.begin()
    }

    /// The frame after the last that our source has, as far as we know.
    pub fn newest_frame(&self) -> Frame {
        self.newest
    }

    /// Whether we see what is played as it is played.
    pub fn is_live(&self) -> bool {
        self.stage == Stage::Run && self.pace.is_live()
    }

    /// Whether we watch no more.
    pub fn is_over(&self) -> bool {
        self.contact == Contact::Over
    }

    /// How much of the snapshot at hand is here, 0 to 1.
    pub fn downloaded(&self) -> f32 {
        self.download.as_ref().map_or(0.0, Download::progress)
    }

    /// The watcher in numbers.
    pub fn stats(&self) -> WatchStats {
        self.stats
    }

    /// About how many bytes the watcher takes, all in all.
    pub fn memory(&self) -> usize {
        size_of::<Self>()
            + self.store.memory()
            + self.download.as_ref().map_or(0, Download::memory)
            + self.asked.capacity() * size_of::<Asked>()
            + self.hashes.capacity() * size_of::<(Frame, u64)>()
            + self.events.memory()
            + self.words.capacity() * size_of::<InputWord>()
    }
}
