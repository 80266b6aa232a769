//! A node that may run a server of a mirrored game.

use std::collections::BTreeMap;

use coplay::codec::MAX_DATAGRAM;
use coplay::mirror::{Mirror, MirrorDestination, MirrorRequest, SourceId};
use coplay::time::{Instant, TimeDelta};
use coplay_links::random::{LogNormal, Random};

use super::sabotage::MirrorSabotage;
use super::test_game::{IssuedEvent, SourceState};
use super::{MirrorObservation, MirrorServerPlan, address};
use crate::network::{Datagram, Moment, Node, Outbox, Reaction};

/// A computer on which a server may run.
pub struct MirrorNode {
    pub(super) plan: MirrorServerPlan,
    pub(super) server: Option<MirrorServer>,
    /// Events issued by each source that ran here. The first of a source has sequence number 1.
    pub(super) issued_events: BTreeMap<SourceId, Vec<IssuedEvent>>,
    pub(super) random: Random,
    pub(super) issue_intervals: LogNormal,
    pub(super) sabotage: Option<MirrorSabotage>,
}

/// A running server: its mirror, and its copy of the game.
pub struct MirrorServer {
    /// The engine under test.
    pub mirror: Mirror,
    /// State of the game at this server, one part per source.
    pub source_states: BTreeMap<SourceId, SourceState>,
    busy_until: Instant,
    pub(super) next_issue_at: Option<Instant>,
    issued_count: u32,
}

impl MirrorServer {
    pub(super) fn new(mirror: Mirror) -> Self {
        Self { mirror, source_states: BTreeMap::new(), busy_until: Instant::ZERO, next_issue_at: None, issued_count: 0 }
    }
}

impl Node for MirrorNode {
    type Context<'a> = dyn FnMut(usize, MirrorObservation) + 'a;
    const KEEPS_PLACE: bool = true;

    fn handle_datagram(&mut self, now: &Moment<'_>, datagram: Datagram<'_>, _: &mut Self::Context<'_>) -> Reaction {
        // A datagram to a source that no longer runs is lost.
        let Some(server) = self.server.as_mut().filter(|server| address(server.mirror.source()) == datagram.to) else {
            return Reaction::Wait;
        };
        let tampered = self.sabotage.map(|sabotage| sabotage.tamper_incoming(datagram.bytes));
        let from = SourceId(datagram.from.0 as u32);
        server.mirror.handle_datagram(now.local, from, tampered.as_deref().unwrap_or(datagram.bytes));
        Reaction::Run
    }

    /// Issues due events, serves requests, and applies delivered events.
    fn work(&mut self, now: &Moment<'_>, observe: &mut Self::Context<'_>) -> Option<TimeDelta> {
        self.issue_due_events(now);
        self.serve_requests(now, observe);
        None
    }

    fn poll_transmit(&mut self, now: &Moment<'_>, out: &mut Outbox<'_>, _: &mut Self::Context<'_>) -> Option<usize> {
        let mirror = &mut self.server.as_mut()?.mirror;
        let transmit = mirror.poll_transmit(now.local, &mut out.buf[..MAX_DATAGRAM])?;
        match transmit.to {
            MirrorDestination::All => out.to.extend(mirror.peers().map(address)),
            MirrorDestination::One(source) => out.to.push(address(source)),
        }
        let Some(sabotage) = self.sabotage else { return Some(transmit.len) };
        let tampered = sabotage.tamper_outgoing(&out.buf[..transmit.len]);
        out.buf[..tampered.len()].copy_from_slice(&tampered);
        Some(tampered.len())
    }

    fn poll_timeout(&mut self, now: &Moment<'_>) -> Option<Instant> {
        let server = self.server.as_ref()?;
        let timeout = now.clock.true_time(server.mirror.poll_timeout());
        let busy = if server.busy_until > now.now { server.busy_until } else { Instant::FAR_FUTURE };
        let next = timeout.min(busy).min(server.next_issue_at.unwrap_or(Instant::FAR_FUTURE));
        Some(next.max(now.now + TimeDelta::from_micros(1)))
    }
}

impl MirrorNode {
    fn issue_due_events(&mut self, now: &Moment<'_>) {
        let (now, local) = (now.now, now.local);
        let Self { plan, server, issued_events, random, issue_intervals, .. } = self;
        let Some(server) = server else { return };
        while let Some(at) = server.next_issue_at.filter(|at| *at <= now) {
            let issued = plan.script.draw_event(random);
            let payload = issued.payload(plan.script.bytes);
            if server.mirror.issue(local, issued.to_issue(&payload)).is_ok() {
                issued_events.entry(server.mirror.source()).or_default().push(issued);
                server.issued_count += 1;
            }
            let next = at + TimeDelta::from_nanos(issue_intervals.sample(random) as i64);
            server.next_issue_at = (server.issued_count < plan.script.count).then_some(next);
        }
    }

    fn serve_requests(&mut self, now: &Moment<'_>, observe: &mut <Self as Node>::Context<'_>) {
        let &Moment { node, now, local, .. } = now;
        let Self { plan, server, sabotage, .. } = self;
        let sabotage = *sabotage;
        let Some(server) = server else { return };
        while let Some(request) = server.mirror.poll_request(local) {
            match request {
                MirrorRequest::Snapshot { of } => {
                    let bytes = server.source_states.get(&of).map(|part| part.save(plan.bulk)).unwrap_or_default();
                    server.mirror.handle_snapshot(local, of, &bytes);
                }
                MirrorRequest::Install { of, mut bytes } => {
                    sabotage.into_iter().for_each(|sabotage| sabotage.tamper_snapshot(&mut bytes));
                    server.source_states.insert(of, SourceState::load(&bytes));
                    observe(node, MirrorObservation::Installed { of });
                }
            }
        }
        while server.busy_until <= now {
            let Some(delivery) = server.mirror.poll_delivery(local) else { break };
            let (source, seq) = (delivery.source, delivery.seq);
            let part = server.source_states.entry(source).or_default();
            let times = sabotage.map_or(1, |sabotage| sabotage.apply_count(&delivery));
            let in_order = (0..times).all(|_| part.apply_payload(seq, delivery.key, delivery.payload));
            let (at, gtd, late, own) = (delivery.at, delivery.gtd, delivery.is_out_of_order, delivery.is_own);
            if plan.work > TimeDelta::ZERO {
                server.busy_until = now + plan.work;
            }
            observe(
                node,
                MirrorObservation::Delivered {
                    source,
                    seq,
                    at,
                    gtd,
                    is_in_order: in_order,
                    is_late: late,
                    is_own: own,
                },
            );
        }
        while let Some(event) = server.mirror.poll_event() {
            observe(node, MirrorObservation::EngineEvent(event));
        }
    }
}
