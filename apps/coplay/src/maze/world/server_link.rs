//! The way to the servers of a world: all of them are called, one of them is played on.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use coplay::time::{Instant, TimeDelta};
use coplay_net::impair::Impairment;
use coplay_net::iroh::IrohAddr;
use coplay_net::key::random_bytes;
use coplay_net::ticket::Ticket;
use coplay_net::{Incoming, PeerAddr, PeerKey, Transport, clock};
use coplay_world::{CONSISTENCY_TOLERANCE, Client, ConsistencySummary, ServerMessage, ServerSelector};

use super::notices::NoticeTracker;
use crate::connect::{self, Connection};
use crate::error::AppError;
use crate::maze::scoreboard_view::format_score;
use crate::net::{JOIN_TIMEOUT, with_impairment};
use crate::summary::Summary;

/// Without a word from any server for so long it is said, and for so long it is over.
const SILENCE_NOTICE_AFTER: TimeDelta = TimeDelta::from_millis(1_500);
const SILENCE_TIMEOUT: TimeDelta = TimeDelta::from_secs(30);
/// Who is not known at one server is soon told so: it will hardly be known at another.
const REFUSAL_TIMEOUT: TimeDelta = TimeDelta::from_secs(3);
/// Servers that do not answer are called again this often.
const REDIAL_INTERVAL: TimeDelta = TimeDelta::from_secs(2);
/// The most places at which servers may be.
const MAX_SERVER_ADDRS: usize = 64;
/// Who leaves says so this often, so far apart: each may be lost.
const LEAVE_REPEATS: u32 = 3;
const LEAVE_INTERVAL: TimeDelta = TimeDelta::from_millis(15);
/// However late we are, so much of what came is taken before the game goes on.
const MAX_OVERDUE_DATAGRAMS: usize = 64;

/// A player, and the servers.
pub(super) struct ServerLink {
    pub(super) client: Client,
    consistency: ConsistencySummary,
    notices: NoticeTracker,
    selector: ServerSelector<PeerKey>,
    transport: Arc<dyn Transport>,
    incoming: Receiver<Incoming>,
    /// Whether a place is one that our transport leads to.
    is_supported_addr: fn(&str) -> bool,
    /// Where servers are, and who answered there last.
    servers: BTreeMap<String, Option<PeerKey>>,
    next_redial: Instant,
    started: Instant,
    /// Where somebody answered, but did not take the secret.
    refused_addrs: BTreeSet<String>,
}

impl ServerLink {
    pub(super) fn new(
        line: Connection,
        others: &[Ticket],
        name: String,
        impairment: Option<&Impairment>,
    ) -> Result<Self, AppError> {
        let now = clock::now();
        let transport = with_impairment(line.transport, impairment)?;
        let (client, voyage) = (Client::new(now, &name, u32::from_le_bytes(random_bytes())), ServerSelector::new(now));
        let (places, incoming) = (BTreeMap::new(), line.incoming);
        let by_iroh = line.host_addrs.iter().any(|place| is_iroh_addr(&place.0));
        let leads_to = if by_iroh { is_iroh_addr } else { is_socket_addr };
        let (next_calls, began, refused) = (now, now, BTreeSet::new());
        let (consistency, news) = (ConsistencySummary::default(), NoticeTracker::new(&client, 0));
        let mut link = Self {
            client,
            consistency,
            notices: news,
            selector: voyage,
            transport,
            incoming,
            is_supported_addr: leads_to,
            servers: places,
            next_redial: next_calls,
            started: began,
            refused_addrs: refused,
        };
        link.add_addrs(line.host_addrs.into_iter().map(|place| place.0));
        for ticket in others {
            link.add_addrs(connect::ticket_addrs(ticket)?.into_iter().map(|place| place.0));
        }
        Ok(link)
    }

    /// There are servers at these places.
    fn add_addrs(&mut self, places: impl IntoIterator<Item = String>) {
        let leads_to = self.is_supported_addr;
        for place in places.into_iter().filter(|place| leads_to(place)) {
            if !self.servers.contains_key(&place) && self.make_room() {
                self.transport.dial(&PeerAddr(place.clone()), None);
                self.servers.insert(place, None);
            }
        }
    }

    /// Whether another place can be remembered: one where nobody is may have to go for it.
    fn make_room(&mut self) -> bool {
        let now = clock::now();
        let is_silent = |key: &Option<PeerKey>| key.is_none_or(|key| !self.selector.is_live(now, key));
        if self.servers.len() >= MAX_SERVER_ADDRS
            && let Some(place) = self.servers.iter().find(|(_, key)| is_silent(key)).map(|(place, _)| place.clone())
        {
            self.servers.remove(&place);
        }
        self.servers.len() < MAX_SERVER_ADDRS
    }

    /// Calls again where nobody answers any more: a server that is started anew is another one.
    fn redial_silent(&mut self, now: Instant) {
        if now < self.next_redial {
            return;
        }
        self.next_redial = now + REDIAL_INTERVAL;
        self.selector.expire_silent(now);
        for (place, key) in &self.servers {
            if key.is_some_and(|key| self.selector.is_live(now, key)) {
                continue;
            }
            self.transport.dial(&PeerAddr(place.clone()), None);
            // Where there still is a way nobody says again that there is one.
            if let Some(key) = key.filter(|key| self.transport.addr_of(key).is_some()) {
                self.selector.add_server(key);
            }
        }
    }

    /// Waits until we are in. `false` if somebody changed their mind.
    pub(super) fn wait_until_joined(&mut self) -> Result<bool, AppError> {
        while self.client.avatar().is_none() {
            if crate::signals::is_stop_requested() {
                return Ok(false);
            }
            let now = clock::now();
            let is_hopeless = self.is_refused_everywhere() || self.selector.are_all_full(now);
            if now - self.started >= if is_hopeless { REFUSAL_TIMEOUT } else { JOIN_TIMEOUT } {
                return Err(self.join_error());
            }
            self.exchange(now + TimeDelta::from_millis(20))?;
        }
        // What was scored before is no news.
        self.notices = NoticeTracker::new(&self.client, self.selector.moves());
        Ok(true)
    }

    /// Whether nobody takes us.
    fn is_refused_everywhere(&self) -> bool {
        self.servers.keys().all(|place| self.refused_addrs.contains(place))
    }

    fn join_error(&self) -> AppError {
        if self.selector.are_all_full(clock::now()) {
            return AppError::failure("this world is full")
                .hint("who has left makes room after some minutes: the same command joins then");
        }
        match !self.refused_addrs.is_empty() {
            true => {
                AppError::failure("a server answers, but does not know us").hint("is the secret after # the world's?")
            }
            false => AppError::failure("no server of this world answers")
                .hint("does coplay world serve run there, and is the address right? A maze without servers is joined without --world"),
        }
    }

    /// Says goodbye: others see at once that we left.
    pub(super) fn leave(&self) {
        let Some(server) = self.selector.current() else { return };
        for _ in 0..LEAVE_REPEATS {
            self.transport.send(&server, &self.client.leave_message());
            std::thread::sleep(LEAVE_INTERVAL.to_duration());
        }
    }

    /// Sends what there is to send and takes what comes, until then.
    pub(super) fn exchange(&mut self, until: Instant) -> Result<(), AppError> {
        let mut late = 0;
        loop {
            let now = clock::now();
            self.send_pending(now);
            if now - self.client.last_received() >= SILENCE_TIMEOUT && self.client.avatar().is_some() {
                return Err(AppError::failure("no server of this world is heard any more")
                    .hint("the same command joins again; as long as one of them runs, what was scored is kept"));
            }
            late += usize::from(now >= until);
            if late > MAX_OVERDUE_DATAGRAMS {
                return Ok(());
            }
            let next = until.min(self.client.poll_timeout()).min(self.selector.poll_timeout());
            match self.incoming.recv_timeout((next - now).to_duration()) {
                Ok(incoming) => self.on_incoming(incoming),
                Err(_) if clock::now() >= until => return Ok(()),
                Err(_) => {}
            }
        }
    }

    fn send_pending(&mut self, now: Instant) {
        self.redial_silent(now);
        self.client.advance(now);
        self.consistency.sample(now, &self.client);
        if self.selector.select(now, self.client.last_received(), self.client.is_draining()).is_some() {
            self.client.on_server_change(now);
        }
        if let Some((servers, ping)) = self.selector.poll_pings(now) {
            servers.iter().for_each(|server| _ = self.transport.send(server, &ping));
        }
        if let Some((wish, server)) = self.client.poll_input(now).zip(self.selector.current()) {
            self.transport.send(&server, &wish);
        }
    }

    fn on_incoming(&mut self, incoming: Incoming) {
        match incoming {
            Incoming::Datagram { at, from, bytes } => self.on_datagram(at, from, &bytes),
            Incoming::Connected { peer, dialed: called } => self.on_up(peer, called),
            Incoming::Unreachable { addr: place, wrong_secret: true } => _ = self.refused_addrs.insert(place.0),
            Incoming::Unreachable { .. } => {}
            Incoming::Multicast { .. } | Incoming::WrongPeer { .. } => {}
        }
    }

    fn on_up(&mut self, peer: PeerKey, called: Option<PeerAddr>) {
        self.selector.add_server(peer);
        if let Some(key) = called.and_then(|place| self.servers.get_mut(&place.0)) {
            *key = Some(peer);
        }
    }

    fn on_datagram(&mut self, at: Instant, from: PeerKey, bytes: &[u8]) {
        if let Some(ServerMessage::Pong(pong)) = ServerMessage::from_bytes(bytes, None) {
            self.selector.on_pong(at, from, &pong);
        } else if self.selector.current() == Some(from) && self.client.handle_datagram(at, bytes) {
            let mirrors = self.client.mirrors().to_vec();
            self.add_addrs(mirrors);
        }
    }

    /// What happened since the last time that this was asked.
    pub(super) fn notices(&mut self) -> Vec<String> {
        self.notices.poll(clock::now(), &mut self.client, self.selector.moves())
    }

    /// A word for the status line.
    pub(super) fn status(&self) -> String {
        if let Some(silence) = self.silence() {
            return format!("no server is heard for {:.0} s", silence.as_secs_f64());
        }
        let trip = self.client.rtt().map_or_else(String::new, |rtt| format!(", {:.0} ms away", rtt.as_millis_f64()));
        match self.client.mirrors().len() {
            0 => format!("on the only server{trip}"),
            others => format!("on one of {} servers{trip}", others + 1),
        }
    }

    /// For how long no server was heard, where that is long.
    pub(super) fn silence(&self) -> Option<TimeDelta> {
        let silence = clock::now() - self.client.last_received();
        (silence >= SILENCE_NOTICE_AFTER).then_some(silence)
    }

    /// What it came to.
    pub(super) fn summary(&self) -> Summary {
        let mut summary = Summary::default();
        let played = (clock::now() - self.started).as_secs_f64();
        summary.add_row("played", format!("{played:.0} s"), &self.status());
        summary.add_row("score", format_score(self.client.score()), "as the servers acknowledged it");
        if let (Some(own), Some(all), Some(tolerated)) =
            (self.consistency.own_discrepancy(), self.consistency.mean_discrepancy(), self.consistency.tolerated())
        {
            let value = format!("D {own:.1}, {all:.1}");
            let share = tolerated * 100.0;
            let meaning = format!(
                "of you and of all you saw, in unit·s over two seconds; {share:.0} % below {CONSISTENCY_TOLERANCE:.0}"
            );
            summary.add_row("consistency", value, &meaning);
        }
        summary.add_row("moves", self.selector.moves().to_string(), "to another server");
        summary
    }
}

/// Whether UDP leads to a place.
fn is_socket_addr(place: &str) -> bool {
    place.parse::<SocketAddr>().is_ok()
}

/// Whether iroh does.
fn is_iroh_addr(place: &str) -> bool {
    IrohAddr::from_peer_addr(&PeerAddr(place.into())).is_some()
}
