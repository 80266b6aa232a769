//! A world as one server has it: what is known of all objects, the simulators of those that it owns, and the players who are here.
//!
//! Pure: the time and what others say go in; [deeds](Deed) for the other servers and datagrams for the players come out.

use std::collections::{BTreeMap, BTreeSet};

use coplay::hash::xxh64;
use coplay::mirror::SourceId;
use coplay::peer_world::{DeadReckoning, EntityId, WorldSiteId};
use coplay::time::{Instant, TimeDelta};
use coplay_maze::{Avatar, Controls, Maze, Ninja, Position, Rules, Score, Terms};

use crate::being::Being;
use crate::deed::{Deed, Fact};
use crate::doubt::Doubts;
use crate::field::Field;
use crate::hall::{Hall, Happening, Mind};
use crate::player::Player;
use crate::register::{KEPT, Register};
use crate::talk::{MAX_TALK, Page, View, Wish};

/// Who is silent for so long has left.
const SILENT: TimeDelta = TimeDelta::from_secs(5);
/// A player whom another server took is not taken back for so long: what still comes from it was under way.
const LOST: TimeDelta = TimeDelta::from_secs(1);
/// An avatar of a server that is gone, whose player does not come back for so many ticks, is gone, too.
const ORPHANED: u32 = 1_500;
/// Who was away catches up with at most so many ticks; it missed the rest.
const MOST_CATCH_UP: u32 = 50;
/// A player sees others up to so many cells away, and so many at the most.
const REACH: i32 = 4;
const MOST_SEEN: usize = 48;
/// The table is made anew at most this often.
const TABLE_EVERY: TimeDelta = TimeDelta::from_millis(200);
/// What nobody needs to know any more is looked for this often, in ticks.
const FORGET_EVERY: u32 = 100;
/// Who was not there for so long was asleep, and heard nobody meanwhile.
const ASLEEP: TimeDelta = TimeDelta::from_secs(1);
/// So many lines of the table are on a page.
pub(crate) const LINES: usize = 24;
/// The most places of other servers on it.
const MOST_MIRRORS: usize = 8;
/// Ninjas have this index, and players any other.
const NINJA: u8 = u8::MAX;

/// What objects are told from other hashes by.
const WORLD: u64 = 0x0077_6f72_6c64;

/// A world as one server has it.
pub struct Realm {
    me: SourceId,
    terms: Terms,
    ninjas: u8,
    register: Register,
    hall: Hall,
    field: Field,
    players: BTreeMap<EntityId, Player>,
    /// Presses of players that were heard here.
    commands: u64,
    /// Players whom another server took or who said goodbye, in which run of theirs, and when.
    lost: BTreeMap<EntityId, (u32, Instant)>,
    tick: Option<u32>,
    advanced: Option<Instant>,
    /// The last tick of which players were told.
    talked: Option<u32>,
    deeds: Vec<Deed>,
    doubts: Doubts,
    /// Everybody who is there, the best first, and when that was put down.
    table: Vec<(EntityId, String, Score)>,
    tabled: Option<Instant>,
    /// Servers that are gone, and since which tick.
    gone: BTreeMap<SourceId, u32>,
    drains: bool,
}

/// The object that belongs to a player's key.
pub fn entity_of(key: &[u8; 32]) -> EntityId {
    let hash = xxh64(WORLD, key);
    EntityId { site: WorldSiteId(hash as u32), index: (hash >> 32) as u8 & 0x7f }
}

/// The object of a ninja.
pub fn ninja(number: u8) -> EntityId {
    EntityId { site: WorldSiteId(number.into()), index: NINJA }
}

impl Realm {
    /// A world of which nothing is known yet.
    pub fn new(me: SourceId, terms: Terms, ninjas: u8) -> Self {
        Self {
            me,
            terms,
            ninjas,
            register: Register::default(),
            hall: Hall::new(Rules::new(Maze::new(terms.seed, terms.side))),
            field: Field::default(),
            players: BTreeMap::new(),
            commands: 0,
            lost: BTreeMap::new(),
            tick: None,
            advanced: None,
            talked: None,
            deeds: Vec::new(),
            doubts: Doubts::default(),
            table: Vec::new(),
            tabled: None,
            gone: BTreeMap::new(),
            drains: false,
        }
    }

    /// The rules that hold.
    pub fn rules(&self) -> &Rules {
        self.hall.rules()
    }

    /// What is agreed on.
    pub fn terms(&self) -> &Terms {
        &self.terms
    }

    /// All that is known.
    pub fn register(&self) -> &Register {
        &self.register
    }

    /// Everybody as of now.
    pub fn field(&self) -> &Field {
        &self.field
    }

    /// The players who are here.
    pub fn players(&self) -> impl Iterator<Item = EntityId> {
        self.players.keys().copied()
    }

    /// How often players pressed other buttons, as far as it was heard here.
    pub fn commands(&self) -> u64 {
        self.commands
    }

    /// How many objects are ours.
    pub fn owned(&self) -> usize {
        self.hall.len()
    }

    /// The last tick that was made.
    pub fn tick(&self) -> Option<u32> {
        self.tick
    }

    /// From now on players are told to go elsewhere.
    pub fn drain(&mut self) {
        self.drains = true;
    }

    /// Whether players are told to go elsewhere.
    pub fn drains(&self) -> bool {
        self.drains
    }

    /// What the other servers must be told, in this order.
    pub fn take_deeds(&mut self) -> Vec<Deed> {
        std::mem::take(&mut self.deeds)
    }

    /// The others are told of a deed with the event of this number.
    pub fn on_told(&mut self, deed: &Deed, seq: u64) {
        if let Fact::Counted(count) = deed.fact {
            self.doubts.on_told(deed.entity, count, seq);
        }
    }

    /// Another server has all our events up to this one, or there is none to have them.
    pub fn on_known_elsewhere(&mut self, seq: u64) {
        let (register, me) = (&self.register, self.me);
        self.doubts.on_known(seq, |entity| register.counted(entity, me));
    }

    /// Everybody makes their ticks up to this one.
    pub fn advance(&mut self, now: Instant, tick: u32) {
        if self.tick.is_some_and(|last| tick <= last) {
            return;
        }
        self.wake(now);
        let last = self.tick.unwrap_or(tick.saturating_sub(1));
        for tick in last.max(tick.saturating_sub(MOST_CATCH_UP)) + 1..=tick {
            self.press(tick);
            for happening in self.hall.step(tick, &mut self.field) {
                self.on_happening(tick, happening);
            }
        }
        self.tick = Some(tick);
        self.dismiss_silent(now);
        self.lost.retain(|_, (_, since)| now - *since < LOST);
        if last / FORGET_EVERY != tick / FORGET_EVERY {
            self.register.forget(tick).into_iter().for_each(|entity| self.field.remove(entity));
        }
    }

    /// Whoever was asleep does not blame others for silence.
    fn wake(&mut self, now: Instant) {
        let gap = now - self.advanced.replace(now).unwrap_or(now);
        if gap >= ASLEEP {
            self.players.values_mut().for_each(|player| player.heard = (player.heard + gap).min(now));
        }
    }

    fn press(&mut self, tick: u32) {
        for (entity, player) in &mut self.players {
            while let Some(due) = player.next_press(tick) {
                self.hall.press(*entity, due.press.controls, due.back, &mut self.field);
            }
        }
    }

    fn on_happening(&mut self, tick: u32, happening: Happening) {
        match happening {
            Happening::Moved(entity) => self.tell_stand(tick, entity),
            Happening::Fell { whom, by } => {
                self.players.get_mut(&whom).into_iter().for_each(|player| player.felled_by = Some(by));
                self.count(whom, Score { hits: 0, falls: 1 });
                self.count(by, Score { hits: 1, falls: 0 });
            }
        }
    }

    fn count(&mut self, entity: EntityId, more: Score) {
        let before = self.register.counted(entity, self.me);
        self.doubts.on_more(entity, before);
        let (hits, falls) = (before.hits.saturating_add(more.hits), before.falls.saturating_add(more.falls));
        self.tell(Deed { entity, fact: Fact::Counted(Score { hits, falls }) });
    }

    /// Hits and falls that will not be forgotten, whichever server dies.
    pub fn score(&self, entity: EntityId) -> Score {
        let (all, ours) = (self.register.score(entity), self.register.counted(entity, self.me));
        let sure = self.doubts.sure(entity, ours);
        let of = |all: u32, ours: u32, sure: u32| all.saturating_sub(ours.saturating_sub(sure));
        Score { hits: of(all.hits, ours.hits, sure.hits), falls: of(all.falls, ours.falls, sure.falls) }
    }

    /// Tells everybody, ourselves first.
    fn tell(&mut self, deed: Deed) {
        self.register.learn(self.me, deed.clone());
        self.deeds.push(deed);
    }

    fn tell_stand(&mut self, tick: u32, entity: EntityId) {
        let epoch = self.register.get(entity).and_then(Being::term).map_or(tick, |term| term.epoch);
        let avatar = self.field.get(entity).cloned();
        self.tell(Deed { entity, fact: Fact::Stands { epoch, tick, avatar } });
    }

    /// The epoch of an object in which we have it next. Those that nobody remembers are earlier, too.
    fn next_epoch(&self, tick: u32, entity: EntityId) -> u32 {
        let term = self.register.get(entity).and_then(Being::term);
        term.map_or(tick, |term| term.epoch.saturating_add(1).max(tick))
    }

    /// An object is ours from now on, whoever had it before.
    fn take(&mut self, tick: u32, entity: EntityId, name: &str, mind: Mind) {
        let epoch = self.next_epoch(tick, entity);
        let renamed = self.register.get(entity).is_none_or(|being| being.name() != name);
        let avatar = self.field.get(entity).cloned().unwrap_or_else(|| self.newcomer(tick, entity));
        self.hall.add(tick, entity, avatar.clone(), mind, &mut self.field);
        if renamed {
            self.tell(Deed { entity, fact: Fact::Named { epoch, name: name.into() } });
        }
        self.tell(Deed { entity, fact: Fact::Stands { epoch, tick, avatar: Some(avatar) } });
    }

    /// Its lives are counted from the tick on: nobody takes it for the avatar that it had before.
    fn newcomer(&self, tick: u32, entity: EntityId) -> Avatar {
        let others: Vec<Position> = self.field.iter().map(|(_, avatar)| avatar.position).collect();
        let avatar = self.rules().newcomer(&others, number(entity));
        Avatar { lives: avatar.lives.wrapping_add(tick as u16), ..avatar }
    }

    /// An object leaves the world; its score stays.
    fn dismiss(&mut self, tick: u32, entity: EntityId) {
        self.field.remove(entity);
        if self.hall.remove(entity) {
            return self.tell_stand(tick, entity);
        }
        let epoch = self.next_epoch(tick, entity);
        self.tell(Deed { entity, fact: Fact::Stands { epoch, tick, avatar: None } });
    }

    fn dismiss_silent(&mut self, now: Instant) {
        let silent = |(_, player): &(&EntityId, &Player)| now - player.heard >= SILENT;
        let silent: Vec<EntityId> = self.players.iter().filter(silent).map(|(entity, _)| *entity).collect();
        for entity in silent {
            self.leave(entity);
        }
    }

    /// A player leaves.
    pub fn leave(&mut self, entity: EntityId) {
        if self.players.remove(&entity).is_some() && self.hall.has(entity) {
            self.dismiss(self.tick.unwrap_or_default(), entity);
        }
    }

    /// A player says goodbye, in this run of its. What still comes from that was under way.
    pub fn part(&mut self, now: Instant, entity: EntityId, run: u32) {
        if self.players.get(&entity).is_some_and(|player| player.run == run) {
            self.lost.insert(entity, (run, now));
            self.leave(entity);
        }
    }

    /// A player says something, perhaps for the first time, or for the first time in this run of its. Whether it is here now.
    pub fn hear(&mut self, now: Instant, entity: EntityId, wish: &Wish) -> bool {
        let Some(tick) = self.tick else { return false };
        if let Some(player) = self.players.get_mut(&entity).filter(|player| player.run == wish.run) {
            self.commands += player.hear(now, wish);
            return true;
        }
        let is_lost = self.lost.get(&entity).is_some_and(|(run, _)| *run == wish.run);
        if self.drains || is_lost || !self.register.has_room_for(entity) {
            return false;
        }
        let mut player = Player::new(now, tick, wish);
        self.commands += player.hear(now, wish);
        self.take(tick, entity, &player.name.clone(), Mind::Player(Controls::default()));
        self.players.insert(entity, player);
        true
    }

    /// Whether nobody new is let in.
    pub fn is_full(&self) -> bool {
        self.register.is_full()
    }

    /// Another server says something.
    pub fn learn(&mut self, now: Instant, said_by: SourceId, bytes: &[u8]) -> bool {
        let Some(deed) = Deed::from_bytes(bytes, self.hall.rules()) else { return false };
        let (entity, is_stand) = (deed.entity, matches!(deed.fact, Fact::Stands { .. }));
        if self.register.learn(said_by, deed) && is_stand {
            self.follow(now, entity);
        }
        true
    }

    /// All that is known by the word of one server, for another that comes late.
    pub fn snapshot(&self, said_by: SourceId) -> Vec<u8> {
        self.register.said_by(said_by).to_bytes(self.rules())
    }

    /// Learns all that is known elsewhere by the word of one server.
    pub fn learn_all(&mut self, now: Instant, said_by: SourceId, snapshot: &[u8]) -> bool {
        let Some(other) = Register::from_bytes(snapshot, self.hall.rules()) else { return false };
        let other = other.said_by(said_by);
        for entity in self.register.merge(other) {
            self.follow(now, entity);
        }
        true
    }

    /// There is news of where an object stands: perhaps it is not ours any more.
    fn follow(&mut self, now: Instant, entity: EntityId) {
        let Some(stand) = self.register.get(entity).and_then(Being::stand) else { return };
        if stand.term.owner == self.me {
            return;
        }
        // Who is here has not left, whatever a server thinks that did not hear of us: we go on with it.
        if stand.avatar.is_none() && self.players.contains_key(&entity) && self.hall.has(entity) {
            let (tick, avatar) = (self.tick.unwrap_or_default(), self.field.get(entity).cloned());
            let epoch = self.next_epoch(tick, entity);
            return self.tell(Deed { entity, fact: Fact::Stands { epoch, tick, avatar } });
        }
        if self.hall.remove(entity)
            && let Some(player) = self.players.remove(&entity)
        {
            self.lost.insert(entity, (player.run, now));
        }
        let age = self.tick.unwrap_or_default().saturating_sub(stand.tick);
        match &stand.avatar {
            Some(avatar) if age <= KEPT => self.field.put(entity, self.hall.rules().extrapolate(avatar, age)),
            _ => self.field.remove(entity),
        }
    }

    /// Looks after objects whose server is gone, given those that are here. Of several servers one does, always the same.
    pub fn look_after(&mut self, live: &BTreeSet<SourceId>) {
        let Some(tick) = self.tick else { return };
        self.note_gone(tick, live);
        for entity in (0..self.ninjas).map(ninja) {
            let owner = self.register.get(entity).and_then(owner);
            let is_free = owner.is_none_or(|owner| self.gone.contains_key(&owner));
            if is_free && guardian(entity, self.me, live) == self.me {
                self.adopt(tick, entity);
            }
        }
        for entity in self.orphans(tick) {
            if guardian(entity, self.me, live) == self.me {
                self.dismiss(tick, entity);
            }
        }
    }

    fn note_gone(&mut self, tick: u32, live: &BTreeSet<SourceId>) {
        let owners: BTreeSet<SourceId> = self.register.iter().filter_map(|(_, being)| owner(being)).collect();
        self.gone.retain(|source, _| owners.contains(source) && !live.contains(source));
        for source in owners.into_iter().filter(|source| *source != self.me && !live.contains(source)) {
            self.gone.entry(source).or_insert(tick);
        }
    }

    /// Avatars of players who did not come back after their server was gone.
    fn orphans(&self, tick: u32) -> Vec<EntityId> {
        let is_orphan = |entity: EntityId, being: &Being| {
            let since = owner(being).and_then(|owner| self.gone.get(&owner).copied());
            entity.index != NINJA && since.is_some_and(|since| tick.saturating_sub(since) >= ORPHANED)
        };
        self.register.iter().filter(|(entity, being)| is_orphan(*entity, being)).map(|(entity, _)| entity).collect()
    }

    fn adopt(&mut self, tick: u32, ninja: EntityId) {
        let seed = u64::from(ninja.site.0) << 32 | u64::from(self.me.0);
        let name = format!("ninja {}", ninja.site.0 + 1);
        self.take(tick, ninja, &name, Mind::Ninja(Box::new(Ninja::new(seed))));
    }

    /// Puts down who is there, the best first.
    fn put_down(&mut self, now: Instant) {
        if self.tabled.is_some_and(|then| now - then < TABLE_EVERY) {
            return;
        }
        self.tabled = Some(now);
        let there = self.register.iter().filter(|(_, being)| owner(being).is_some());
        let table = there.map(|(entity, being)| (entity, being.name().to_owned(), self.score(entity)));
        self.table = table.collect();
        self.table.sort_by_key(|(entity, _, score)| (std::cmp::Reverse(score.hits), score.falls, *entity));
    }

    /// What players are to be shown now: nothing more until the next tick. `mirrors` is where a player finds the other servers.
    pub fn talk<'a>(&mut self, now: Instant, mirrors: impl Fn(EntityId) -> &'a [String]) -> Vec<(EntityId, Vec<u8>)> {
        let Some(tick) = self.tick.filter(|tick| self.talked != Some(*tick)) else { return vec![] };
        self.talked = Some(tick);
        self.put_down(now);
        let mut said = Vec::new();
        let mut wanted = Vec::new();
        for (entity, player) in &mut self.players {
            if player.wants_page(now) {
                said.push((*entity, page(player, self.terms, mirrors(*entity), &self.table).to_bytes()));
            }
            if player.wants_view(now) {
                wanted.push(*entity);
            }
        }
        said.extend(wanted.into_iter().filter_map(|entity| Some((entity, self.view(now, tick, entity)?))));
        said
    }

    fn view(&self, now: Instant, tick: u32, entity: EntityId) -> Option<Vec<u8>> {
        let (player, avatar) = (self.players.get(&entity)?, self.field.get(entity)?);
        let view = View {
            echo: [player.stamp.0, player.stamp.1, now],
            tick,
            run: player.run,
            came: player.came,
            pressed: player.pressed(tick),
            me: entity,
            score: self.score(entity),
            drains: self.drains,
            felled_by: player.felled_by,
            avatars: seen(&self.field, entity, avatar),
        };
        Some(view.to_bytes(self.rules()))
    }
}

/// Whose an object is that is in the world.
fn owner(being: &Being) -> Option<SourceId> {
    being.stand().filter(|stand| stand.avatar.is_some()).map(|stand| stand.term.owner)
}

/// A number that belongs to an object alone.
pub(crate) fn number(entity: EntityId) -> u64 {
    u64::from(entity.site.0) << 8 | u64::from(entity.index)
}

/// Which of the servers looks after an object whose own is gone.
fn guardian(entity: EntityId, me: SourceId, live: &BTreeSet<SourceId>) -> SourceId {
    let rank = |source: &SourceId| (xxh64(number(entity), &source.0.to_le_bytes()), *source);
    live.iter().copied().chain([me]).max_by_key(rank).unwrap_or(me)
}

/// Who a player sees: itself, and those around it, the nearest first.
fn seen(field: &Field, entity: EntityId, avatar: &Avatar) -> Vec<(EntityId, Avatar)> {
    let place = avatar.position;
    let mut near: Vec<(u64, EntityId)> = field
        .around(place, REACH)
        .filter(|other| other.entity != entity)
        .map(|other| (place.square(other.position), other.entity))
        .collect();
    if near.len() > MOST_SEEN {
        near.select_nth_unstable(MOST_SEEN);
        near.truncate(MOST_SEEN);
    }
    near.sort_unstable();
    let others = near.into_iter().filter_map(|(_, other)| Some((other, field.get(other)?.clone())));
    [(entity, avatar.clone())].into_iter().chain(others).collect()
}

/// As many places as leave room for other things.
fn some_of(mirrors: &[String]) -> Vec<String> {
    let mut room = MAX_TALK / 2;
    let fits = |place: &&String| {
        let fits = place.len() < room;
        room -= if fits { place.len() + 1 } else { 0 };
        fits
    };
    mirrors.iter().take(MOST_MIRRORS).filter(fits).cloned().collect()
}

fn page(player: &mut Player, terms: Terms, mirrors: &[String], table: &[(EntityId, String, Score)]) -> Page {
    let from = if player.line < table.len() { player.line } else { 0 };
    let lines = table[from..].iter().take(LINES).cloned().collect::<Vec<_>>();
    let page = Page { terms, mirrors: some_of(mirrors), lines };
    player.line = from + page.fitting();
    page
}
