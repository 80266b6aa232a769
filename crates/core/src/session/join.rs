//! Coming late: taking a free seat, or one's own again, while the game runs.
//!
//! A latecomer first watches: a [`Watcher`] brings it the state, or all inputs since the first frame, and every frame since, until
//! it is as far as the players. Meanwhile it greets them all and learns their clocks. When it is ready the coordinator orders a
//! frame with which it sits down. Frames before that it has from the feed, frames from there on come with the players' ticks.
//!
//! Nobody waits for it: what it would press in its first frames is nothing at all, and that is told as soon as the order is
//! known. By the time it has caught up, its inputs are due like everybody's.

use alloc::boxed::Box;

use super::event::{End, Event, Request};
use super::peer::{Peer, Seat};
use super::reports::{Reports, UNPLAYED};
use super::search::Inquiry;
use super::settings::Absent;
use super::view::View;
use super::{Phase, Session, SettingsError, Step};
use crate::feed::{Start, Trouble, WatchConfig, WatchEvent, WatchRequest, Watcher};
use crate::frame::Frame;
use crate::id::{Addr, SiteId, SiteSet};
use crate::input::{CAPACITY, Stream};
use crate::pace::Pacer;
use crate::time::{Instant, TimeDelta};
use crate::wire::{Order, Tick, What};

/// How a site comes late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Join {
    /// Where to begin: with a snapshot, or with the first frame of the game, for machines that cannot load a state.
    pub start: Start,
    /// The largest state that is taken, in bytes.
    pub most_state: usize,
}

/// A latecomer is ready to play when it is no further behind than this.
const NEAR: TimeDelta = TimeDelta::from_millis(700);
/// For so long it presses nothing at first, beside the time that its packets take.
const SETTLING: TimeDelta = TimeDelta::from_millis(500);
/// It sits down when it is no more than this many frames behind what the others have given inputs for.
const MOST_BEHIND: i64 = 200;
/// A newcomer without progress for this long, plus [`ANSWER`] round trips, requests its frames from another source.
const STUCK: TimeDelta = TimeDelta::from_secs(1);
/// Round trips until a source has accepted a watcher and answered its first question, each of which may be lost once.
const ANSWER: i64 = 6;
/// And after so long gives it back, because everybody waits for him.
const HOPELESS: TimeDelta = TimeDelta::from_secs(8);
/// It never presses nothing for longer than this many frames.
const MOST_SETTLING: i64 = 200;
/// The others may run ahead for as long, by a window more, and give inputs further ahead by the lag. No more than these can be kept
/// here until their frames come, with some to spare for dials that turn meanwhile.
const MOST_AHEAD: i64 = CAPACITY as i64 / 2 - 8;

/// A site on its way into a running game.
#[derive(Debug)]
pub(super) struct Joining {
    pub(super) watcher: Watcher,
    /// The frame with which it sits down.
    seat_from: Option<Frame>,
    /// Who ordered that.
    seated_by: Option<SiteId>,
    /// How far we are, and since when.
    reached: (Frame, Instant),
    /// When we last turned to another source because of that.
    turned: Instant,
    /// The words of the frame before the next are known: the machine has stepped it, and was not put behind it.
    stepped: bool,
    /// It has said that it is ready. An order that comes before was for an earlier start of our program.
    pub(super) told_ready: bool,
}

impl Joining {
    pub(super) fn new(now: Instant, join: Join, config: &super::Config) -> Result<Box<Self>, SettingsError> {
        let from: alloc::vec::Vec<Addr> = config.peers.iter().map(|(_, addr)| *addr).collect();
        let watching = WatchConfig::new(config.session, config.settings.clone(), from);
        // Nobody looks on: whatever is late is made up for at once.
        let watching = WatchConfig { start: join.start, max_state: join.most_state, far: 0, ..watching };
        let reached = (Frame::ZERO, now);
        Watcher::new(now, watching).map(|watcher| {
            Box::new(Self {
                watcher,
                seat_from: None,
                seated_by: None,
                reached,
                turned: now,
                stepped: false,
                told_ready: false,
            })
        })
    }
}

impl Session {
    /// Whether we are as far as the players, and know them all.
    pub(super) fn is_ready_to_join(&self) -> bool {
        let Some(joining) = &self.joining else { return false };
        let behind = joining.watcher.newest_frame() - joining.watcher.next_frame();
        let near = NEAR.as_nanos() / self.config.settings.rate.period().as_nanos().max(1);
        joining.watcher.is_live() && behind <= near && !joining.watcher.is_unproven()
    }

    /// The frame with which we sit down, as long as we have not yet.
    pub(super) fn seat_to_take(&self) -> Option<Frame> {
        self.joining.as_ref().and_then(|joining| joining.seat_from)
    }

    /// Whether all is stepped that a feed can have: nobody is certain of frames that our inputs do not reach.
    pub(super) fn is_at_the_end(&self) -> bool {
        self.seat_to_take().is_some() && self.at >= self.fast_until
    }

    /// What a latecomer asks of its host program.
    #[cold]
    pub(super) fn next_joining_request(&mut self, now: Instant) -> Option<Request<'_>> {
        if self.is_at_the_end() {
            return None;
        }
        let Self { joining, words, at, frame, hashing, .. } = self;
        let joining = joining.as_mut()?;
        if joining.seat_from.is_some()
            && let Some(inputs) = joining.watcher.take_words(*frame)
        {
            words.copy_from_slice(inputs);
            joining.stepped = true;
            let next = *frame;
            (*at, *frame) = (next.next(), next.next());
            return Some(Request::Advance { frame: next, inputs: words, fresh: false });
        }
        Some(match joining.watcher.poll_request(now)? {
            WatchRequest::Load { next_frame, state, .. } => {
                joining.stepped = false;
                (*at, *frame) = (next_frame, next_frame);
                Request::Restore { frame: next_frame, state }
            }
            WatchRequest::Advance { frame: next, inputs, .. } => {
                joining.stepped = true;
                words.copy_from_slice(inputs);
                (*at, *frame) = (next.next(), next.next());
                Request::Advance { frame: next, inputs: words, fresh: false }
            }
            WatchRequest::Hash { frame, .. } => {
                *hashing = Some(frame);
                Request::Hash { frame }
            }
        })
    }

    /// What becomes of watching.
    #[cold]
    pub(super) fn watch_joining(&mut self, now: Instant) {
        self.go_on_pressing_nothing(now);
        self.watch_progress(now);
        while let Some(event) = self.joining.as_mut().and_then(|joining| joining.watcher.poll_event()) {
            match event {
                WatchEvent::Dropped { reason } => return self.give_up_joining(now, reason),
                WatchEvent::Ended { .. } => return self.give_up_joining(now, Trouble::Silent),
                WatchEvent::Diverged { frame } => {
                    let site = self.peers.iter().map(|peer| peer.site).min().unwrap_or(self.config.site);
                    self.events.push(Event::Diverged { site, frame });
                }
                _ => {}
            }
        }
    }

    /// From the order on everybody counts on us: if one source brings nothing another may, and if none does we make room.
    fn watch_progress(&mut self, now: Instant) {
        let answer = self.slowest_player() * ANSWER;
        let plays = |addr: Addr| self.peers.iter().any(|peer| peer.addr == addr && peer.is_playing());
        let Some(joining) = self.joining.as_mut().filter(|joining| joining.seat_from.is_some()) else { return };
        let next = joining.watcher.next_frame();
        if next > joining.reached.0 {
            (joining.reached, joining.turned) = ((next, now), now);
        } else if joining.seat_from <= Some(next) {
            // What follows comes from the players, too. If nothing does, they may wait for us.
            joining.turned = now;
        } else if now - joining.reached.1 > HOPELESS + answer {
            self.give_up_joining(now, Trouble::Silent);
        } else if now - joining.turned > STUCK + answer {
            joining.turned = now;
            joining.watcher.turn_away(now, plays);
        }
    }

    /// We cannot get in. Who has a seat leaves it, so that nobody waits.
    fn give_up_joining(&mut self, now: Instant, reason: Trouble) {
        match self.pacer {
            None => self.end(End::NoWayIn(reason)),
            Some(_) => self.leave_as(now, End::NoWayIn(reason)),
        }
    }

    /// A tick comes before we play: only the order to sit down is of interest. Returns whether the tick is of no further use.
    pub(super) fn take_tick_while_joining(&mut self, index: usize, tick: &Tick<'_>) -> bool {
        let Some(joining) = &self.joining else { return false };
        let unseated = joining.seat_from.is_none();
        if !joining.told_ready || !self.peers[index].lobby.knows_us || !unseated && tick.extras.is_empty() {
            return unseated;
        }
        for extra in tick.extras.iter() {
            if let crate::wire::Extra::Order(order) = extra
                && self.lets_us_in(index, &order)
                && (unseated || self.replaces_seat(&order))
            {
                self.prepare_seat(order);
                return false;
            }
        }
        unseated
    }

    /// Whether a peer orders as a coordinator that this start of our program sits down.
    fn lets_us_in(&self, index: usize, order: &Order) -> bool {
        let (me, site) = (self.config.site, self.peers[index].site);
        let What::Join { site: joins, incarnation, members, .. } = order.what else { return false };
        let sound = order.by == site && members.iter().next() == Some(site) && !members.contains(me);
        (joins, incarnation) == (me, self.config.incarnation) && sound && order.frame >= self.frame
    }

    /// Whether an order replaces the one that let us in: the giver of that is gone, and the next coordinator did not know of it.
    fn replaces_seat(&self, order: &Order) -> bool {
        let Some(giver) = self.joining.as_ref().and_then(|joining| joining.seated_by) else { return false };
        let plays = |peer: &&Peer| peer.is_playing() && peer.silence(self.called) < UNPLAYED;
        let lowest = self.peers.iter().filter(plays).map(|peer| peer.site).min();
        order.by != giver && lowest == Some(order.by)
    }

    /// The coordinator lets us in: from the frame of the order on our inputs count.
    fn prepare_seat(&mut self, order: Order) {
        let What::Join { members, view, lag, window, .. } = order.what else { return };
        let first = order.frame;
        let own_width = self.layout.width();
        for peer in &mut self.peers {
            peer.seat = Seat::Free(Frame::ZERO);
            peer.reports = Reports::default();
            (peer.vote, peer.behind, peer.withheld) = (None, false, false);
            (peer.joins, peer.leaves, peer.uninformed) = (None, None, None);
            if members.contains(peer.site) {
                peer.sit_down(first, own_width, false);
                (peer.seat, peer.joins) = (Seat::Playing, None);
                peer.lobby.playing = true;
                peer.heard = self.called;
            }
        }
        self.listeners = super::listeners(&self.peers);
        self.view = View::entered(self.called);
        self.ask_for_view(view);
        self.turn_dials(Frame::ZERO, lag, window);
        self.turning.inspect(|dials| self.dials = *dials);
        (self.order, self.carried_out) = (Some(order), Some(first));
        // With another seat, inputs that were told already must stay what they were: none.
        let told = self.seat_to_take().map(|_| self.own.end());
        self.own = Stream::new(own_width, first);
        self.chain = super::Chain::new(first);
        match &mut self.leaving {
            // Who thinks better of it is let in nevertheless if nobody knew, and leaves before the first frame.
            Some(leave) => {
                leave.frame = first;
                self.phase = Phase::Running(Step::Rest);
                self.joining = None;
            }
            None => {
                self.settle(first);
                self.press_nothing(told.unwrap_or(first).max(self.own.end()));
            }
        }
        if let Some(joining) = &mut self.joining {
            (joining.seat_from, joining.seated_by) = (Some(first), Some(order.by));
            (joining.reached, joining.turned) = ((joining.watcher.next_frame(), self.called), self.called);
        }
        self.start_pacing(self.called);
        self.talk();
        self.set_all_due();
        self.look_again();
    }

    /// Our first inputs are none, told in advance.
    fn settle(&mut self, first: Frame) {
        let period = self.config.settings.rate.period().as_nanos().max(1);
        let slowest = self.slowest_rtt();
        let (lag, window) = (i64::from(self.dials.lag), i64::from(self.dials.window));
        let most = (MOST_AHEAD - 2 * lag - window).clamp(0, MOST_SETTLING);
        let frames = ((slowest * 3 / 2 + SETTLING).as_nanos() / period).clamp(0, most) + lag;
        self.press_nothing(first + frames as u32);
    }

    /// Our inputs before this frame are none.
    fn press_nothing(&mut self, until: Frame) {
        let nothing = [[0; 16]; crate::input::MAX_BLOCKS];
        let blocks = self.own.blocks();
        while self.own.end() < until {
            self.own.push_blocks(&nothing[..blocks]);
        }
        self.fast_until = until.checked_sub(self.dials.lag).unwrap_or(until);
    }

    /// While the machine is not there yet, nobody shall wait for what we press.
    fn go_on_pressing_nothing(&mut self, now: Instant) {
        let waiting = self.seat_to_take().is_some();
        let Some(live) = self.pacer.as_ref().filter(|_| waiting).and_then(|pacer| pacer.frame_at(now)) else { return };
        let period = self.config.settings.rate.period().as_nanos().max(1);
        let slowest = self.slowest_rtt();
        let under_way = ((slowest + SETTLING / 2).as_nanos() / period).clamp(0, MOST_SETTLING) as u32;
        // Further ahead than inputs are kept nobody must run.
        let until = (live + under_way + self.dials.lag).min(self.at + MOST_BEHIND as u32);
        if until > self.own.end() {
            self.press_nothing(until);
            self.set_all_due();
        }
    }

    /// All frames before ours are stepped, and we know when the next one is due: from now on we play.
    #[cold]
    pub(super) fn sit_down_if_due(&mut self) -> bool {
        let Some(first) = self.seat_to_take().filter(|first| self.at >= *first) else { return false };
        let (now, next) = (self.called, self.at);
        let stepped = self.joining.as_ref().is_some_and(|joining| joining.stepped);
        if self.config.settings.absent == Absent::Repeat && !stepped {
            return false;
        }
        // Inputs are kept for so long; what is older comes from the feed alone.
        let playing = self.peers.iter().filter(|peer| peer.is_playing());
        if playing.map(|peer| peer.inputs.end() - next).max().is_some_and(|ahead| ahead > MOST_BEHIND) {
            return false;
        }
        // Where everybody stands still there is no plan to follow.
        let stuck = self.joining.as_ref().is_some_and(|joining| now - joining.reached.1 > STUCK / 2);
        let idle = stuck && self.is_at_the_end() || self.pace_setter.is_none();
        let known = self.pacer.as_mut().is_some_and(|pacer| pacer.leap(now, next)) || idle;
        if known {
            let everyone = SiteSet::first(usize::from(self.config.settings.sites));
            self.joining = None;
            self.see_stand_ins();
            // The feed may have brought more than the frames before ours.
            (self.frame, self.fed, self.searchable, self.born) = (next, next, next, next);
            self.compare_next = next_compared(first, self.config.settings.compare_every);
            self.skip_comparisons(next);
            if let Some(inquiry) = &mut self.inquiry {
                *inquiry = Inquiry::new(self.config.site, everyone, &self.config.settings, next);
            }
            self.phase = self.first_phase();
            self.events.push(Event::Joined { site: self.config.site, frame: first });
        }
        known
    }

    /// What is done for those who were dropped before we came, or in our first frame, shows in the frame before it.
    fn see_stand_ins(&mut self) {
        if self.config.settings.absent == Absent::Repeat {
            let Self { peers, words, at, .. } = self;
            peers.iter_mut().for_each(|peer| peer.see_stand_in(*at, words));
        }
    }

    /// The others have compared states after our first frame that we have not seen; our inputs were told in advance.
    fn skip_comparisons(&mut self, next: Frame) {
        let every = self.config.settings.compare_every;
        while let Some(frame) = self.compare_next.filter(|frame| *frame < next) {
            self.chain.advance(&self.own, frame.next(), |_| false);
            self.chain.close(frame);
            self.compare_next = Some(frame + every);
        }
    }

    /// Frames follow each other from now on.
    pub(super) fn start_pacing(&mut self, at: Instant) {
        let settings = &self.config.settings;
        let reach = self.dials.lag + self.dials.window;
        let mut pacer = Pacer::new(self.config.pacing, settings.rate.period(), reach, at);
        if self.dials.window > 0 {
            pacer.sway(self.config.site);
        }
        for peer in self.peers.iter().filter(|peer| peer.is_playing()) {
            pacer.on_delay(at, peer.site, peer.clock.rtt_min().unwrap_or_default() / 2);
        }
        self.pacer = Some(pacer);
        self.look_again();
        self.choose_pace_setter();
    }
}

/// The first frame, not before `first`, after which states are compared.
fn next_compared(first: Frame, every: u32) -> Option<Frame> {
    let next = (first.number() + 1).checked_next_multiple_of(every)?;
    (every > 0).then(|| Frame::new(next - 1))
}
