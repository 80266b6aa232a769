//! Tests of the bisection. In most of them, sites exchange messages over a simulated network, which can lose packets.

use alloc::string::String;
use alloc::vec;

use super::*;
use crate::codec::MAX_DATAGRAM;
use crate::session::desync::message::{DesyncMessage, HashList, RegionList};

const SPAN: (u32, u32) = (60, 119);

fn site(number: usize) -> SiteId {
    SiteId::new(number as u8).unwrap()
}

fn span() -> FrameSpan {
    FrameSpan::new(Frame::new(SPAN.0), Frame::new(SPAN.1)).unwrap()
}

/// A site with a machine of 100,000 bytes of RAM, in which one byte may be changed from some frame on.
struct TestSite {
    bisector: DesyncBisector,
    memory_change: Option<(u32, usize)>,
    /// Whether the replay gives other hashes than the game did after frames above 100.
    is_nondeterministic: bool,
    can_replay: bool,
    has_no_regions: bool,
    is_muted: bool,
}

impl TestSite {
    fn ram(&self, frame: Frame) -> Vec<u8> {
        let mut ram = vec![frame.number() as u8; 100_000];
        if let Some((_, at)) = self.memory_change.filter(|(from, _)| frame.number() >= *from) {
            ram[at] ^= 0x80;
        }
        ram
    }

    fn hash(bytes: &[u8]) -> u32 {
        crate::hash::xxh64(0, bytes) as u32
    }

    fn regions(&self, frame: Frame) -> Vec<StateRegion> {
        let ram = self.ram(frame);
        let mut regions = vec![StateRegion { name: "ram".into(), len: ram.len() as u32, hash: Self::hash(&ram) }];
        let other = |number: usize| StateRegion { name: std::format!("region number {number}"), len: 64, hash: 1 };
        regions.extend((1..64).map(other));
        regions
    }

    /// Answers local queries, as a host program does, until none is left.
    fn answer_local_queries(&mut self) {
        while let Some(query) = self.bisector.local_query() {
            match query {
                LocalQuery::Regions { .. } if self.has_no_regions => self.bisector.on_unable(),
                LocalQuery::Hashes { .. } if !self.can_replay => self.bisector.on_unable(),
                LocalQuery::Hashes { first, .. } => {
                    let hash =
                        Self::hash(&self.ram(first)) ^ u32::from(self.is_nondeterministic && first.number() > 100);
                    self.bisector.on_local_hash(first, hash);
                }
                LocalQuery::Regions { frame } => {
                    let regions = self.regions(frame);
                    self.bisector.on_local_regions(frame, &regions);
                }
                LocalQuery::Pages { frame, region, first_page } => {
                    let bytes = if region == 0 { self.ram(frame) } else { vec![0; 64] };
                    let pages = bytes.chunks(PAGE_SIZE as usize).skip(first_page as usize).take(MAX_HASHES);
                    let hashes: Vec<u32> = pages.map(Self::hash).collect();
                    self.bisector.on_local_pages(frame, region, first_page, &hashes);
                }
            }
        }
    }
}

struct TestNetwork {
    sites: Vec<TestSite>,
    random: u64,
    /// Packet loss in percent.
    loss_percent: u64,
}

impl TestNetwork {
    fn new(changes: &[Option<(u32, usize)>]) -> Self {
        let all = SiteSet::first(changes.len());
        let site = |(number, change): (usize, &Option<(u32, usize)>)| TestSite {
            bisector: DesyncBisector::new(site(number), all),
            memory_change: *change,
            is_nondeterministic: false,
            can_replay: true,
            has_no_regions: false,
            is_muted: false,
        };
        Self { sites: changes.iter().enumerate().map(site).collect(), random: 1, loss_percent: 0 }
    }

    fn deliver(&mut self, from: usize, to: usize, bytes: &[u8]) {
        self.random = self.random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        let lost = (self.random >> 33) % 100 < self.loss_percent || self.sites[from].is_muted;
        if !lost {
            let message = DesyncMessage::decode(bytes).unwrap();
            self.sites[to].bisector.on_message(site(from), &message);
        }
    }

    /// Simulates 100 ms: every site answers its local queries, and sends each other site at most one query and one
    /// answer.
    fn round(&mut self) {
        let mut buf = [0; MAX_DATAGRAM];
        for from in 0..self.sites.len() {
            self.sites[from].answer_local_queries();
            for to in (0..self.sites.len()).filter(|to| *to != from) {
                if let Some(len) = self.sites[from].bisector.poll_query(site(to), &mut buf) {
                    self.deliver(from, to, &buf[..len]);
                }
                if let Some(len) = self.sites[from].bisector.poll_answer(site(to), &mut buf) {
                    self.deliver(from, to, &buf[..len]);
                }
            }
        }
    }

    fn mismatch(&mut self, number: usize) {
        let digest = TestSite::hash(&self.sites[number].ram(span().last()));
        self.sites[number].bisector.on_mismatch(span(), digest);
    }

    /// Lets every site notice the mismatch, and runs the search. Returns each site's report.
    fn reports(&mut self) -> Vec<DesyncReport> {
        (0..self.sites.len()).for_each(|number| self.mismatch(number));
        self.search()
    }

    fn search(&mut self) -> Vec<DesyncReport> {
        let mut reports = vec![None; self.sites.len()];
        for _ in 0..2_000 {
            self.round();
            for (site, report) in self.sites.iter_mut().zip(&mut reports) {
                *report = site.bisector.poll_report().map(|report| *report).or(report.take());
            }
        }
        reports.into_iter().map(|report| report.expect("every search ends")).collect()
    }
}

#[test]
fn three_sites_find_frame_site_and_page() {
    for loss in [0, 30] {
        let mut network = TestNetwork::new(&[None, Some((97, 70_000)), None]);
        network.loss_percent = loss;
        for (number, report) in network.reports().into_iter().enumerate() {
            assert_eq!(report.first_frame, Some(Frame::new(97)));
            assert_eq!(
                (report.odd_site, report.nondeterministic_sites, report.unable_sites),
                (Some(site(1)), SiteSet::EMPTY, SiteSet::EMPTY)
            );
            assert_eq!(report.compared_site, Some(site(if number == 1 { 0 } else { 1 })));
            let [difference] = &report.regions[..] else { panic!("{report:?}") };
            assert_eq!((difference.name.as_str(), difference.offset, difference.len), ("ram", 70_000 / 256 * 256, 256));
            assert_ne!(difference.ours, difference.theirs);
        }
    }
}

#[test]
fn two_sites_find_frame_but_not_odd_site() {
    let mut network = TestNetwork::new(&[Some((60, 99_999)), None]);
    for report in network.reports() {
        assert_eq!((report.first_frame, report.odd_site), (Some(Frame::new(60)), None));
        assert_eq!((report.regions[0].offset, report.regions[0].len), (390 * 256, 100_000 - 390 * 256));
    }
}

#[test]
fn one_mismatch_report_starts_the_search_everywhere() {
    let mut network = TestNetwork::new(&[None, Some((119, 0)), None]);
    network.mismatch(2);
    for report in network.search() {
        assert_eq!((report.first_frame, report.odd_site), (Some(Frame::new(119)), Some(site(1))));
    }
}

#[test]
fn site_that_cannot_replay_still_yields_span_and_odd_site() {
    let mut network = TestNetwork::new(&[None, Some((97, 5)), None]);
    network.sites[1].can_replay = false;
    for report in network.reports() {
        assert_eq!((report.first_frame, report.span), (None, span()));
        assert_eq!((report.odd_site, report.unable_sites), (Some(site(1)), SiteSet::from_iter([site(1)])));
        assert!(report.regions.is_empty());
    }
    network = TestNetwork::new(&[None, Some((97, 5)), None]);
    network.sites[0].can_replay = false;
    for report in network.reports() {
        assert_eq!((report.first_frame, report.odd_site), (Some(Frame::new(97)), Some(site(1))), "{report}");
    }
}

#[test]
fn nondeterministic_machine_is_named() {
    let mut network = TestNetwork::new(&[None, None]);
    network.sites[1].is_nondeterministic = true;
    for report in network.reports() {
        assert_eq!((report.first_frame, report.odd_site), (Some(Frame::new(101)), Some(site(1))));
        assert_eq!(report.nondeterministic_sites, SiteSet::from_iter([site(1)]));
    }
}

#[test]
fn silent_site_is_excluded_after_unanswered_queries() {
    let mut network = TestNetwork::new(&[None, Some((80, 7)), None]);
    network.sites[2].is_muted = true;
    let reports = network.reports();
    for report in &reports[..2] {
        assert_eq!((report.first_frame, report.odd_site), (Some(Frame::new(80)), None));
        assert_eq!(report.unable_sites, SiteSet::from_iter([site(2)]));
    }
    assert_eq!(reports[2].odd_site, Some(site(1)), "site 2 received the messages of the others");
}

/// Site 1's machine can be hashed, but names no regions of its state. Both searches must end with the first differing
/// frame and without regions.
#[test]
fn site_without_regions_ends_the_search() {
    let mut network = TestNetwork::new(&[None, Some((80, 7))]);
    network.sites[1].has_no_regions = true;
    for report in network.reports() {
        assert_eq!((report.first_frame, report.regions.len()), (Some(Frame::new(80)), 0));
    }
}

#[test]
fn give_up_reports_partial_result() {
    let mut network = TestNetwork::new(&[None, Some((80, 7))]);
    network.mismatch(0);
    network.sites[0].answer_local_queries();
    let bisector = &mut network.sites[0].bisector;
    assert!(bisector.is_searching() && bisector.poll_report().is_none());
    bisector.give_up();
    let report = bisector.poll_report().unwrap();
    assert_eq!((report.first_frame, report.unable_sites), (None, SiteSet::from_iter([site(1)])));
    assert!(!bisector.is_searching() && bisector.poll_report().is_none());
}

#[test]
fn earlier_span_restarts_the_search_a_limited_number_of_times() {
    let mut bisector = DesyncBisector::new(site(0), SiteSet::first(2));
    let span_until = |last: u32| FrameSpan::new(Frame::new(last - 9), Frame::new(last)).unwrap();
    bisector.on_mismatch(span_until(500), 1);
    for last in (100..500).rev() {
        let digest = None;
        bisector.on_message(
            site(1),
            &DesyncMessage::HashesRequest { span: span_until(last), from: Frame::new(last), digest },
        );
    }
    assert_eq!(bisector.span(), Some(span_until(500 - u32::from(MAX_RESTARTS))));
    bisector.on_mismatch(span_until(700), 1);
    assert_eq!(bisector.span(), Some(span_until(500 - u32::from(MAX_RESTARTS))));
}

#[test]
fn arbitrary_messages_do_not_panic() {
    let mut network = TestNetwork::new(&[None, Some((97, 70_000)), None]);
    let (hashes, mut packed) = ([[1, 2, 3, 4]; 256], [0; 600]);
    let all = [
        StateRegion { name: "ram".into(), len: u32::MAX, hash: 9 },
        StateRegion { name: String::new(), len: 0, hash: 0 },
    ];
    let regions = RegionList::pack(&all, &mut packed);
    (0..3).for_each(|number| network.mismatch(number));
    for round in 0..400u32 {
        let frame = Frame::new([0, 60, 97, 119, u32::MAX][round as usize % 5]);
        let (hashes, small) = (HashList::new(&hashes), round as u8);
        let messages = [
            DesyncMessage::HashesRequest { span: span(), from: frame, digest: None },
            DesyncMessage::Hashes { span: span(), from: frame, digest: Some(round), hashes },
            DesyncMessage::RegionsRequest { frame, from: small },
            DesyncMessage::Regions { frame, from: small % 3, total: small, regions },
            DesyncMessage::PagesRequest { frame, region: small, from: round * 128 },
            DesyncMessage::Pages { frame, region: small % 2, from: round * 128, hashes },
            DesyncMessage::CannotReplay { span: span(), digest: None },
        ];
        let message = messages[round as usize % if round < 300 { 6 } else { 7 }];
        network.sites[0].bisector.on_message(site(1 + round as usize % 7), &message);
        network.round();
    }
    for site in &mut network.sites {
        site.bisector.give_up();
        assert!(!site.bisector.is_searching());
    }
}

#[test]
fn longest_span_is_sent_in_several_packets() {
    let long = FrameSpan::new(Frame::new(3_600), Frame::new(7_199)).unwrap();
    let mut bisectors = [0, 1].map(|number| DesyncBisector::new(site(number), SiteSet::first(2)));
    for (number, bisector) in bisectors.iter_mut().enumerate() {
        bisector.on_mismatch(long, number as u32);
        while let Some(LocalQuery::Hashes { first, .. }) = bisector.local_query() {
            bisector.on_local_hash(first, first.number() + number as u32 * u32::from(first.number() >= 7_000));
        }
    }
    let mut buf = [0; MAX_DATAGRAM];
    for _ in 0..3_600usize.div_ceil(MAX_HASHES) {
        for (from, to) in [(0, 1), (1, 0)] {
            let len = bisectors[from].poll_query(site(to), &mut buf).unwrap();
            bisectors[to].on_message(site(from), &DesyncMessage::decode(&buf[..len]).unwrap());
            let len = bisectors[to].poll_answer(site(from), &mut buf).unwrap();
            bisectors[from].on_message(site(to), &DesyncMessage::decode(&buf[..len]).unwrap());
        }
    }
    for bisector in &mut bisectors {
        assert_eq!(bisector.local_query(), Some(LocalQuery::Regions { frame: Frame::new(7_000) }));
        bisector.on_local_regions(Frame::new(7_000), &[]);
        assert_eq!(bisector.poll_report().unwrap().first_frame, Some(Frame::new(7_000)));
    }
}
