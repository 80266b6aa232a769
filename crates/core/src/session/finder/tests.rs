//! Sites that differ, on a bad network.

use alloc::string::String;
use alloc::vec;

use super::*;
use crate::wire::{Hashes, MAX_DATAGRAM, Regions, Search};

const SPAN: (u32, u32) = (60, 119);

fn site(number: usize) -> SiteId {
    SiteId::new(number as u8).unwrap()
}

fn span() -> Span {
    Span::new(Frame::new(SPAN.0), Frame::new(SPAN.1)).unwrap()
}

/// A site with a machine whose ram is poked at some byte from some frame on.
struct Site {
    finder: Finder,
    poke: Option<(u32, usize)>,
    /// Playing again gives something else than the game did.
    unsteady: bool,
    able: bool,
    nameless: bool,
    mute: bool,
}

impl Site {
    fn ram(&self, frame: Frame) -> Vec<u8> {
        let mut ram = vec![frame.number() as u8; 100_000];
        if let Some((_, at)) = self.poke.filter(|(from, _)| frame.number() >= *from) {
            ram[at] ^= 0x80;
        }
        ram
    }

    fn hash(bytes: &[u8]) -> u32 {
        crate::hash::xxh64(0, bytes) as u32
    }

    fn regions(&self, frame: Frame) -> Vec<Region> {
        let ram = self.ram(frame);
        let mut regions = vec![Region { name: "ram".into(), len: ram.len() as u32, hash: Self::hash(&ram) }];
        let other = |number: usize| Region { name: std::format!("region number {number}"), len: 64, hash: 1 };
        regions.extend((1..64).map(other));
        regions
    }

    /// Does what a host program would.
    fn serve(&mut self) {
        while let Some(want) = self.finder.want() {
            match want {
                Want::Regions { .. } if self.nameless => self.finder.on_unable(),
                Want::Hashes { .. } if !self.able => self.finder.on_unable(),
                Want::Hashes { from, .. } => {
                    let hash = Self::hash(&self.ram(from)) ^ u32::from(self.unsteady && from.number() > 100);
                    self.finder.on_local_hash(from, hash);
                }
                Want::Regions { frame } => {
                    let regions = self.regions(frame);
                    self.finder.on_local_regions(frame, &regions);
                }
                Want::Pages { frame, region, from } => {
                    let bytes = if region == 0 { self.ram(frame) } else { vec![0; 64] };
                    let pages = bytes.chunks(PAGE as usize).skip(from as usize).take(MAX_HASHES);
                    let hashes: Vec<u32> = pages.map(Self::hash).collect();
                    self.finder.on_local_pages(frame, region, from, &hashes);
                }
            }
        }
    }
}

struct World {
    sites: Vec<Site>,
    random: u64,
    /// How many of a hundred packets are lost.
    loss: u64,
}

impl World {
    fn new(pokes: &[Option<(u32, usize)>]) -> Self {
        let all = SiteSet::first(pokes.len());
        let site = |(number, poke): (usize, &Option<(u32, usize)>)| Site {
            finder: Finder::new(site(number), all),
            poke: *poke,
            unsteady: false,
            able: true,
            nameless: false,
            mute: false,
        };
        Self { sites: pokes.iter().enumerate().map(site).collect(), random: 1, loss: 0 }
    }

    fn pass(&mut self, from: usize, to: usize, bytes: &[u8]) {
        self.random = self.random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        let lost = (self.random >> 33) % 100 < self.loss || self.sites[from].mute;
        if !lost {
            let message = Search::decode(bytes).unwrap();
            self.sites[to].finder.on_message(site(from), &message);
        }
    }

    /// One tenth of a second.
    fn round(&mut self) {
        let mut buf = [0; MAX_DATAGRAM];
        for from in 0..self.sites.len() {
            self.sites[from].serve();
            for to in (0..self.sites.len()).filter(|to| *to != from) {
                if let Some(len) = self.sites[from].finder.poll_ask(site(to), &mut buf) {
                    self.pass(from, to, &buf[..len]);
                }
                if let Some(len) = self.sites[from].finder.poll_answer(site(to), &mut buf) {
                    self.pass(from, to, &buf[..len]);
                }
            }
        }
    }

    fn mismatch(&mut self, number: usize) {
        let digest = Site::hash(&self.sites[number].ram(span().last()));
        self.sites[number].finder.on_mismatch(span(), digest);
    }

    /// Searches until everybody has a report.
    fn reports(&mut self) -> Vec<Report> {
        (0..self.sites.len()).for_each(|number| self.mismatch(number));
        self.search()
    }

    fn search(&mut self) -> Vec<Report> {
        let mut reports = vec![None; self.sites.len()];
        for _ in 0..2_000 {
            self.round();
            for (site, report) in self.sites.iter_mut().zip(&mut reports) {
                *report = site.finder.poll_report().map(|report| *report).or(report.take());
            }
        }
        reports.into_iter().map(|report| report.expect("every search ends")).collect()
    }
}

#[test]
fn three_sites_name_the_frame_the_site_and_the_page() {
    for loss in [0, 30] {
        let mut world = World::new(&[None, Some((97, 70_000)), None]);
        world.loss = loss;
        for (number, report) in world.reports().into_iter().enumerate() {
            assert_eq!(report.first_frame, Some(Frame::new(97)));
            assert_eq!((report.odd, report.unsteady, report.unable), (Some(site(1)), SiteSet::EMPTY, SiteSet::EMPTY));
            assert_eq!(report.other, Some(site(if number == 1 { 0 } else { 1 })));
            let [difference] = &report.regions[..] else { panic!("{report:?}") };
            assert_eq!((difference.name.as_str(), difference.offset, difference.len), ("ram", 70_000 / 256 * 256, 256));
            assert_ne!(difference.ours, difference.theirs);
        }
    }
}

#[test]
fn two_sites_name_the_frame_but_not_the_site() {
    let mut world = World::new(&[Some((60, 99_999)), None]);
    for report in world.reports() {
        assert_eq!((report.first_frame, report.odd), (Some(Frame::new(60)), None));
        assert_eq!((report.regions[0].offset, report.regions[0].len), (390 * 256, 100_000 - 390 * 256));
    }
}

#[test]
fn one_site_that_noticed_is_enough() {
    let mut world = World::new(&[None, Some((119, 0)), None]);
    world.mismatch(2);
    for report in world.search() {
        assert_eq!((report.first_frame, report.odd), (Some(Frame::new(119)), Some(site(1))));
    }
}

#[test]
fn a_site_that_cannot_play_again_leaves_a_span_and_a_vote() {
    let mut world = World::new(&[None, Some((97, 5)), None]);
    world.sites[1].able = false;
    for report in world.reports() {
        assert_eq!((report.first_frame, report.span), (None, span()));
        assert_eq!((report.odd, report.unable), (Some(site(1)), SiteSet::from_iter([site(1)])));
        assert!(report.regions.is_empty());
    }
    world = World::new(&[None, Some((97, 5)), None]);
    world.sites[0].able = false;
    for report in world.reports() {
        assert_eq!((report.first_frame, report.odd), (Some(Frame::new(97)), Some(site(1))), "{report}");
    }
}

#[test]
fn a_machine_that_is_not_like_itself_is_named() {
    let mut world = World::new(&[None, None]);
    world.sites[1].unsteady = true;
    for report in world.reports() {
        assert_eq!((report.first_frame, report.odd), (Some(Frame::new(101)), Some(site(1))));
        assert_eq!(report.unsteady, SiteSet::from_iter([site(1)]));
    }
}

#[test]
fn who_says_nothing_is_left_out_in_the_end() {
    let mut world = World::new(&[None, Some((80, 7)), None]);
    world.sites[2].mute = true;
    let reports = world.reports();
    for report in &reports[..2] {
        assert_eq!((report.first_frame, report.odd), (Some(Frame::new(80)), None));
        assert_eq!(report.unable, SiteSet::from_iter([site(2)]));
    }
    assert_eq!(reports[2].odd, Some(site(1)), "it heard the others");
}

/// A machine that can be hashed, but has no names for the parts of its state.
#[test]
fn a_site_that_cannot_tell_its_regions_ends_the_search_for_all() {
    let mut world = World::new(&[None, Some((80, 7))]);
    world.sites[1].nameless = true;
    for report in world.reports() {
        assert_eq!((report.first_frame, report.regions.len()), (Some(Frame::new(80)), 0));
    }
}

#[test]
fn giving_up_tells_what_is_known() {
    let mut world = World::new(&[None, Some((80, 7))]);
    world.mismatch(0);
    world.sites[0].serve();
    let finder = &mut world.sites[0].finder;
    assert!(finder.is_searching() && finder.poll_report().is_none());
    finder.give_up();
    let report = finder.poll_report().unwrap();
    assert_eq!((report.first_frame, report.unable), (None, SiteSet::from_iter([site(1)])));
    assert!(!finder.is_searching() && finder.poll_report().is_none());
}

#[test]
fn the_earlier_span_wins_and_not_for_ever() {
    let mut finder = Finder::new(site(0), SiteSet::first(2));
    let from = |last: u32| Span::new(Frame::new(last - 9), Frame::new(last)).unwrap();
    finder.on_mismatch(from(500), 1);
    for last in (100..500).rev() {
        let digest = None;
        finder.on_message(site(1), &Search::AskHashes { span: from(last), from: Frame::new(last), digest });
    }
    assert_eq!(finder.span(), Some(from(500 - u32::from(MAX_RESTARTS))));
    finder.on_mismatch(from(700), 1);
    assert_eq!(finder.span(), Some(from(500 - u32::from(MAX_RESTARTS))));
}

#[test]
fn any_messages_do_no_harm() {
    let mut world = World::new(&[None, Some((97, 70_000)), None]);
    let (hashes, mut packed) = ([[1, 2, 3, 4]; 256], [0; 600]);
    let all = [Region { name: "ram".into(), len: u32::MAX, hash: 9 }, Region { name: String::new(), len: 0, hash: 0 }];
    let regions = Regions::pack(&all, &mut packed);
    (0..3).for_each(|number| world.mismatch(number));
    for round in 0..400u32 {
        let frame = Frame::new([0, 60, 97, 119, u32::MAX][round as usize % 5]);
        let (hashes, small) = (Hashes::new(&hashes), round as u8);
        let messages = [
            Search::AskHashes { span: span(), from: frame, digest: None },
            Search::Hashes { span: span(), from: frame, digest: Some(round), hashes },
            Search::AskRegions { frame, from: small },
            Search::Regions { frame, from: small % 3, total: small, regions },
            Search::AskPages { frame, region: small, from: round * 128 },
            Search::Pages { frame, region: small % 2, from: round * 128, hashes },
            Search::Unable { span: span(), digest: None },
        ];
        let message = messages[round as usize % if round < 300 { 6 } else { 7 }];
        world.sites[0].finder.on_message(site(1 + round as usize % 7), &message);
        world.round();
    }
    for site in &mut world.sites {
        site.finder.give_up();
        assert!(!site.finder.is_searching());
    }
}

#[test]
fn the_longest_span_takes_some_packets() {
    let long = Span::new(Frame::new(3_600), Frame::new(7_199)).unwrap();
    let mut finders = [0, 1].map(|number| Finder::new(site(number), SiteSet::first(2)));
    for (number, finder) in finders.iter_mut().enumerate() {
        finder.on_mismatch(long, number as u32);
        while let Some(Want::Hashes { from, .. }) = finder.want() {
            finder.on_local_hash(from, from.number() + number as u32 * u32::from(from.number() >= 7_000));
        }
    }
    let mut buf = [0; MAX_DATAGRAM];
    for _ in 0..3_600usize.div_ceil(MAX_HASHES) {
        for (from, to) in [(0, 1), (1, 0)] {
            let len = finders[from].poll_ask(site(to), &mut buf).unwrap();
            finders[to].on_message(site(from), &Search::decode(&buf[..len]).unwrap());
            let len = finders[to].poll_answer(site(from), &mut buf).unwrap();
            finders[from].on_message(site(to), &Search::decode(&buf[..len]).unwrap());
        }
    }
    for finder in &mut finders {
        assert_eq!(finder.want(), Some(Want::Regions { frame: Frame::new(7_000) }));
        finder.on_local_regions(Frame::new(7_000), &[]);
        assert_eq!(finder.poll_report().unwrap().first_frame, Some(Frame::new(7_000)));
    }
}
