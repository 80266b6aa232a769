//! What must hold in a maze, judged by what was delivered and by what people at the sites see.

use std::collections::{BTreeMap, BTreeSet};

use coplay::peer_world::{DeadReckoning, EntityId, Provenance, WorldSiteId};
use coplay::time::{Instant, TimeDelta};
use coplay::wire::{PeerWorldItem, PeerWorldItems};
use coplay_maze::{Avatar, MazeEvent, ScoreRecord, UNIT, WALK_SPEED};

use super::scenario::Fault;
use super::{Arena, Delivery, Scenario};
use crate::scenario::Played;
use crate::toy::mix;

/// Ticks after which an avatar that nothing was heard of must not be shown.
const GIVE_UP: u32 = 100;
/// Views are compared when they are so many ticks old: by then all of it has arrived everywhere.
const OLD: u32 = 70;
/// Clocks are known so well, and so well in one house.
const CLOCK: TimeDelta = TimeDelta::from_millis(10);
const CLOCK_LAN: TimeDelta = TimeDelta::from_millis(1);
/// The most memory of one site.
const MEMORY: usize = 4 << 20;
/// Violations of one kind are told so often.
const MOST: usize = 3;

/// What is broken on purpose, at the first place, to see that it is seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    /// It takes updates for those of other ticks.
    Shift,
    /// It is told of no records.
    Deaf,
    /// Nor by who leaves, of whom it hears the goodbye.
    Wordless,
    /// It gets wrong stamps for clocks.
    Stamps,
    /// What it is shown is not what was delivered to it.
    Ghosts,
}

/// How somebody is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gone {
    /// It crashed, or its goodbye got to nobody who is still here and could pass on what it said.
    Unheard,
    /// Somebody who is here has its last words.
    Heard,
}

/// The judge of one scenario.
pub(super) struct Judge {
    sabotage: Option<Sabotage>,
    /// How well clocks must be known.
    clock: TimeDelta,
    /// The ticks of the updates that got to each place.
    delivered: BTreeMap<(usize, EntityId), BTreeSet<u32>>,
    /// Hits as they were told where they happened: who, and by whom.
    hits: BTreeMap<(EntityId, EntityId), u32>,
    /// The places where somebody went, and how.
    gone: BTreeMap<usize, Gone>,
    violations: Vec<String>,
    views: u64,
    trace: u64,
}

impl Judge {
    pub(super) fn new(scenario: &Scenario) -> Self {
        Self {
            sabotage: scenario.sabotage,
            clock: if scenario.is_lan() { CLOCK_LAN } else { CLOCK },
            delivered: BTreeMap::new(),
            hits: BTreeMap::new(),
            gone: BTreeMap::new(),
            violations: Vec::new(),
            views: 0,
            trace: scenario.seed,
        }
    }

    fn violation(&mut self, promise: &str, what: impl FnOnce() -> String) {
        let told = self.violations.iter().filter(|told| told.starts_with(promise)).count();
        if told < MOST {
            self.violations.push(format!("{promise}: {}", what()));
        }
    }

    pub(super) fn on_enter(&mut self, place: usize) {
        self.delivered.retain(|(to, _), _| *to != place);
    }

    pub(super) fn on_gone(&mut self, arena: &mut Arena, place: usize) {
        self.on_deliveries(arena);
        arena.present().into_iter().for_each(|present| self.count_hits(arena, present));
        self.gone.insert(place, Gone::Unheard);
        self.excuse_lost_words(arena, place);
    }

    /// A place goes, and with it the last words of sites that only it had heard. No protocol can bring them back: it may have been cut off
    /// from the others until now, or have heard the goodbye a moment ago. What any place that stays knows is still demanded of all.
    fn excuse_lost_words(&mut self, arena: &Arena, going: usize) {
        let staying: Vec<usize> = arena.present().into_iter().filter(|place| *place != going).collect();
        let hits = &self.hits;
        for (gone, how) in &mut self.gone {
            let site = arena.site(*gone);
            let decided: u32 = hits.iter().filter(|((whom, _), _)| whom.site == site).map(|(_, times)| times).sum();
            // A site that is back counts hits of its own, and these do not show that it was reminded of those before.
            let needed = |place: usize| if place == *gone { decided } else { known_falls(arena, going, site) };
            if !staying.iter().any(|place| known_falls(arena, *place, site) >= needed(*place)) {
                *how = Gone::Unheard;
            }
        }
    }

    /// A place has a new view.
    pub(super) fn on_view(&mut self, arena: &mut Arena, place: usize) {
        self.on_deliveries(arena);
        self.count_hits(arena, place);
        self.views += 1;
        let Some(game) = arena.game(place) else { return };
        self.judge_view(arena, place);
        let memory = game.world().memory();
        if memory > MEMORY {
            self.violation("memory", || format!("place {place} takes {memory} bytes"));
        }
    }

    /// Nobody is shown long after it was heard of, and what was told for the very tick is what its owner says.
    fn judge_view(&mut self, arena: &Arena, place: usize) {
        let Some((tick, shown)) = arena.game(place).map(coplay_maze::MazeSite::view) else { return };
        for shown in shown.iter().filter(|shown| shown.provenance != Provenance::Own) {
            let entity = shown.entity;
            let ticks = self.delivered.get(&(place, entity));
            let fresh = tick.saturating_sub(GIVE_UP)..=tick;
            if ticks.is_none_or(|ticks| ticks.range(fresh).next().is_none()) {
                self.violation("give up", || {
                    format!("place {place} shows {entity:?} at tick {tick}, long after it was heard of")
                });
            }
            let truth = own_account(arena, entity, tick).filter(|truth| **truth != shown.state);
            if let Some(truth) = truth.filter(|_| shown.provenance == Provenance::Received) {
                self.violation("told", || {
                    format!("place {place} shows {entity:?} at tick {tick} as {:?}, and it was {truth:?}", shown.state)
                });
            }
        }
    }

    fn on_deliveries(&mut self, arena: &mut Arena) {
        for delivery in arena.take_deliveries() {
            self.on_delivery(arena, &delivery);
        }
    }

    fn on_delivery(&mut self, arena: &Arena, delivery: &Delivery) {
        if self.sabotage == Some(Sabotage::Ghosts)
            && delivery.to == 0
            && delivery.at > Instant::ZERO + TimeDelta::from_secs(5)
        {
            return;
        }
        let Some(present) = arena.game(delivery.to).and_then(coplay_maze::MazeSite::tick) else { return };
        let site = arena.site(delivery.from);
        for item in PeerWorldItems::new(&delivery.bytes).into_iter().flatten().flatten() {
            if item == PeerWorldItem::Leave {
                self.gone.entry(delivery.from).and_modify(Gone::hear);
            }
            if let PeerWorldItem::Update(update) = item {
                let tick = present.saturating_add_signed((update.tick.wrapping_sub(present as u16) as i16).into());
                let entity = EntityId { site, index: update.entity_index };
                let ticks = self.delivered.entry((delivery.to, entity)).or_default();
                ticks.insert(tick);
                *ticks = ticks.split_off(&present.saturating_sub(4 * GIVE_UP));
            }
        }
    }

    fn count_hits(&mut self, arena: &mut Arena, place: usize) {
        let site = arena.site(place);
        let Some(game) = arena.game_mut(place) else { return };
        while let Some(news) = game.poll_event() {
            if let MazeEvent::AvatarHit { index, shooter: by } = news {
                *self.hits.entry((EntityId { site, index }, by)).or_default() += 1;
            }
        }
    }

    /// All faults are over for a while.
    pub(super) fn on_recovered(&mut self, arena: &mut Arena) {
        self.judge_presence(arena);
        self.judge_old_views(arena);
        self.judge_clocks(arena);
    }

    fn judge_presence(&mut self, arena: &Arena) {
        for place in arena.present() {
            let Some(game) = arena.game(place) else { continue };
            let seen: BTreeSet<EntityId> = game.view().1.iter().map(|shown| shown.entity).collect();
            for other in arena.present() {
                let avatars = arena.game(other).map_or(0, coplay_maze::MazeSite::avatars);
                for index in 0..avatars {
                    let entity = EntityId { site: arena.site(other), index: index as u8 };
                    if !seen.contains(&entity) {
                        self.violation("presence", || {
                            format!("place {place} does not see {entity:?} of place {other}")
                        });
                    }
                }
            }
        }
    }

    /// What everybody makes of a tick for which everything has arrived: the same, and what follows from what was told.
    fn judge_old_views(&mut self, arena: &Arena) {
        let present = arena.present();
        let Some(now) = present.iter().filter_map(|place| arena.game(*place)?.tick()).min() else { return };
        let tick = now.saturating_sub(OLD);
        let mut known: BTreeMap<EntityId, Vec<(usize, Avatar)>> = BTreeMap::new();
        for place in present {
            let Some(game) = arena.game(place) else { continue };
            for (entity, avatar) in game.others_at(tick) {
                self.judge_reckoning(arena, place, entity, (tick, &avatar));
                known.entry(entity).or_default().push((place, avatar));
            }
        }
        for (entity, states) in known {
            self.trace = mix(self.trace, states[0].1.position.x as u64);
            if let Some((place, avatar)) = states.iter().find(|(_, avatar)| *avatar != states[0].1) {
                let first = &states[0];
                self.violation("views", || {
                    format!(
                        "{entity:?} at tick {tick} is {:?} for place {} and {avatar:?} for place {place}",
                        first.1, first.0
                    )
                });
            }
        }
    }

    /// What a place makes of an entity follows from what its owner did in those ticks of which it told this place, and is as near to what
    /// it did in this one as anybody can have walked since.
    fn judge_reckoning(&mut self, arena: &Arena, place: usize, entity: EntityId, (tick, shown): (u32, &Avatar)) {
        let Some((earlier, expected)) = self.reckon(arena, place, entity, tick) else { return };
        if *shown != expected {
            self.violation("reckoning", || {
                format!("place {place} makes of {entity:?} at tick {tick} {shown:?}, and what it was told {expected:?}")
            });
        }
        let (before, then) = (own_account(arena, entity, earlier), own_account(arena, entity, tick));
        let one_life = before
            .zip(then)
            .filter(|(before, then)| (before.life, before.spawn_count) == (then.life, then.spawn_count));
        let Some((_, then)) = one_life else { return };
        // It walked as far as it could, they thought that it walked the other way, and what came next bent that by as much again.
        let most = 4 * (tick - earlier) * u32::from(WALK_SPEED.unsigned_abs()) / UNIT as u32;
        let off = then.position.distance(shown.position);
        if off > most {
            self.violation("reckoning", || format!("place {place} has {entity:?} off by {off} units at tick {tick}"));
        }
    }

    /// What is to be made of a tick from the owner's own account of those ticks that got to a place; and the last of them before it. `None` if
    /// the owner was started anew since.
    fn reckon(&self, arena: &Arena, place: usize, entity: EntityId, tick: u32) -> Option<(u32, Avatar)> {
        let ticks = self.delivered.get(&(place, entity))?;
        let rules = arena.game(place)?.rules();
        let before = *ticks.range(..=tick).next_back()?;
        let earlier = own_account(arena, entity, before)?;
        let state = match ticks.range(tick + 1..).next() {
            _ if before == tick => earlier.clone(),
            Some(after) => {
                rules.interpolate(earlier, own_account(arena, entity, *after)?, tick - before, after - before)
            }
            None => rules.extrapolate(earlier, tick - before),
        };
        Some((before, state))
    }

    fn judge_clocks(&mut self, arena: &mut Arena) {
        let bound = self.clock;
        let present = arena.present();
        for place in &present {
            for other in present.iter().filter(|other| *other != place) {
                let (local, truth) = (arena.local(*place), arena.local(*other) - arena.local(*place));
                let site = arena.site(*other);
                let stats = arena.game(*place).and_then(|game| game.world().peer_stats(local, site));
                let off = stats.and_then(|stats| stats.clock_offset).map(|offset| (offset - truth).abs());
                if off.is_none_or(|off| off > bound) {
                    self.violation("clock", || {
                        format!("place {place} takes the clock of place {other} to be off by {off:?}")
                    });
                }
            }
        }
        let world = |place: &usize| Some(arena.local(*place) + arena.game(*place)?.world_clock_offset()?);
        let times: Vec<Instant> = present.iter().filter_map(world).collect();
        let apart = times.iter().max().zip(times.iter().min()).map(|(most, least)| *most - *least);
        if apart.is_some_and(|apart| apart > bound * 2) {
            self.violation("time", || format!("the world's time is {apart:?} apart"));
        }
    }

    /// Nobody shot for a while: all know all.
    pub(super) fn on_end(&mut self, arena: &mut Arena) {
        for place in arena.present() {
            self.count_hits(arena, place);
        }
        let scores: Vec<_> =
            arena.present().into_iter().filter_map(|place| Some((place, arena.game(place)?.scores()))).collect();
        let Some((first, score)) = scores.first() else { return };
        for (place, other) in &scores[1..] {
            if other != score {
                self.violation("scores", || {
                    format!("place {first} has {:?}, place {place} {:?}", score.ranking(), other.ranking())
                });
            }
        }
        let known: BTreeMap<EntityId, u32> = score.ranking().into_iter().map(|(of, score)| (of, score.falls)).collect();
        let (hits, falls, counted) = (score.total_hits(), known.values().sum::<u32>(), self.hits.values().sum::<u32>());
        self.trace = mix(self.trace, counted.into());
        self.judge_hits(arena, &known);
        if hits != falls {
            self.violation("once", || format!("{hits} times somebody hit, and {falls} times somebody was hit"));
        }
    }

    /// Every hit is known once. What was decided just before a crash nobody may know of; but nothing is ever known twice, and who leaves takes nothing
    /// with it that anybody heard who stays.
    fn judge_hits(&mut self, arena: &Arena, known: &BTreeMap<EntityId, u32>) {
        let mut decided: BTreeMap<EntityId, u32> = known.keys().map(|entity| (*entity, 0)).collect();
        self.hits.iter().for_each(|((whom, _), times)| *decided.entry(*whom).or_default() += times);
        for (whom, decided) in decided {
            let known = known.get(&whom).copied().unwrap_or(0);
            let gone = arena.place_of(whom.site).and_then(|place| self.gone.get(&place));
            let is_told = gone.is_none_or(|gone| *gone == Gone::Heard);
            if known > decided || (is_told && known < decided) {
                self.violation("once", || format!("{whom:?} was hit {decided} times, and {known} are known"));
            }
        }
    }

    pub(super) fn into_played(self, scenario: &Scenario, arena: &Arena) -> Played {
        let traffic = arena.traffic();
        let count = |kind: fn(&Fault) -> bool| scenario.faults.iter().filter(|(_, fault)| kind(fault)).count() as u64;
        Played {
            violations: self.violations,
            frames: self.views,
            packets: traffic.sent,
            losses: traffic.lost + traffic.overflowed + traffic.cut,
            cuts: count(|fault| matches!(fault, Fault::Split(_))),
            crashes: count(|fault| matches!(fault, Fault::Crash(_))),
            seconds: (arena.now() - Instant::ZERO).as_secs_f64(),
            seen: u64::from(self.hits.values().sum::<u32>()),
            kinds: scenario.kinds(),
            trace: mix(self.trace, traffic.bytes),
            ..Played::default()
        }
    }
}

/// How often avatars of a site were hit, as far as a place knows.
fn known_falls(arena: &Arena, place: usize, site: WorldSiteId) -> u32 {
    let record = |game: &coplay_maze::MazeSite| {
        game.world()
            .records()
            .find(|(of, _)| *of == site)
            .and_then(|(_, record)| ScoreRecord::from_bytes(&record.bytes))
    };
    arena.game(place).and_then(record).map_or(0, |tally| tally.total_falls())
}

/// How an entity was at a tick, as its owner knows.
fn own_account(arena: &Arena, entity: EntityId, tick: u32) -> Option<&Avatar> {
    arena.game(arena.place_of(entity.site)?)?.world().own_state_at(entity.index, tick)
}

impl Gone {
    fn hear(&mut self) {
        if *self == Self::Unheard {
            *self = Self::Heard;
        }
    }
}

impl Sabotage {
    /// Changes what gets to the first place; `None` if it does not get there at all.
    pub(super) fn spoil(self, mut bytes: Box<[u8]>) -> Option<Box<[u8]>> {
        const UPDATE: u8 = 1;
        const PROBE: u8 = 5;
        const ECHO: u8 = 6;
        match self {
            Self::Shift if bytes.get(1) == Some(&UPDATE) && bytes.len() > 7 => {
                let tick = u16::from_le_bytes([bytes[5], bytes[6]]).wrapping_add(3);
                bytes[5..7].copy_from_slice(&tick.to_le_bytes());
            }
            Self::Stamps => {
                let echo = if bytes.get(1) == Some(&PROBE) { 10 } else { 1 };
                if bytes.get(echo) == Some(&ECHO) && bytes.len() >= echo + 25 {
                    for at in [echo + 9, echo + 17] {
                        let stamp: [u8; 8] = bytes[at..at + 8].try_into().expect("eight of them");
                        bytes[at..at + 8].copy_from_slice(&(i64::from_le_bytes(stamp) + 40_000_000).to_le_bytes());
                    }
                }
            }
            Self::Deaf | Self::Wordless => {
                let has = |is: fn(&PeerWorldItem<'_>) -> bool| {
                    PeerWorldItems::new(&bytes).into_iter().flatten().flatten().any(|item| is(&item))
                };
                let is_goodbye = self == Self::Wordless && has(|item| *item == PeerWorldItem::Leave);
                match has(|item| matches!(item, PeerWorldItem::Record { .. })) {
                    true if is_goodbye => bytes = [bytes[0], bytes[bytes.len() - 1]].into(),
                    true => return None,
                    false => {}
                }
            }
            _ => {}
        }
        Some(bytes)
    }
}
