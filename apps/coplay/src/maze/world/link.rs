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

use super::news::News;
use crate::maze::board::in_words;
use crate::meet::{self, Line};
use crate::net::{PATIENCE, impaired};
use crate::summary::Summary;
use crate::trouble::Trouble;

/// Without a word from any server for so long it is said, and for so long it is over.
const SILENT: TimeDelta = TimeDelta::from_millis(1_500);
const ALONE: TimeDelta = TimeDelta::from_secs(30);
/// Who is not known at one server is soon told so: it will hardly be known at another.
const REFUSED: TimeDelta = TimeDelta::from_secs(3);
/// Servers that do not answer are called again this often.
const CALL_EVERY: TimeDelta = TimeDelta::from_secs(2);
/// The most places at which servers may be.
const MOST_PLACES: usize = 64;
/// Who leaves says so this often, so far apart: each may be lost.
const GOODBYES: u32 = 3;
const GOODBYE_EVERY: TimeDelta = TimeDelta::from_millis(15);
/// However late we are, so much of what came is taken before the game goes on.
const MOST_LATE: usize = 64;

/// A player, and the servers.
pub(super) struct Link {
    pub(super) client: Client,
    consistency: ConsistencySummary,
    news: News,
    voyage: ServerSelector<PeerKey>,
    transport: Arc<dyn Transport>,
    incoming: Receiver<Incoming>,
    /// Whether a place is one that our transport leads to.
    leads_to: fn(&str) -> bool,
    /// Where servers are, and who answered there last.
    places: BTreeMap<String, Option<PeerKey>>,
    next_calls: Instant,
    began: Instant,
    /// Where somebody answered, but did not take the secret.
    refused: BTreeSet<String>,
}

impl Link {
    pub(super) fn new(
        line: Line,
        others: &[Ticket],
        name: String,
        impairment: Option<&Impairment>,
    ) -> Result<Self, Trouble> {
        let now = clock::now();
        let transport = impaired(line.transport, impairment)?;
        let (client, voyage) = (Client::new(now, &name, u32::from_le_bytes(random_bytes())), ServerSelector::new(now));
        let (places, incoming) = (BTreeMap::new(), line.incoming);
        let by_iroh = line.places.iter().any(|place| is_home(&place.0));
        let leads_to = if by_iroh { is_home } else { is_address };
        let (next_calls, began, refused) = (now, now, BTreeSet::new());
        let (consistency, news) = (ConsistencySummary::default(), News::new(&client, 0));
        let mut link = Self {
            client,
            consistency,
            news,
            voyage,
            transport,
            incoming,
            leads_to,
            places,
            next_calls,
            began,
            refused,
        };
        link.learn(line.places.into_iter().map(|place| place.0));
        for ticket in others {
            link.learn(meet::places(ticket)?.into_iter().map(|place| place.0));
        }
        Ok(link)
    }

    /// There are servers at these places.
    fn learn(&mut self, places: impl IntoIterator<Item = String>) {
        let leads_to = self.leads_to;
        for place in places.into_iter().filter(|place| leads_to(place)) {
            if !self.places.contains_key(&place) && self.has_room() {
                self.transport.dial(&PeerAddr(place.clone()), None);
                self.places.insert(place, None);
            }
        }
    }

    /// Whether another place can be remembered: one where nobody is may have to go for it.
    fn has_room(&mut self) -> bool {
        let now = clock::now();
        let is_silent = |key: &Option<PeerKey>| key.is_none_or(|key| !self.voyage.is_live(now, key));
        if self.places.len() >= MOST_PLACES
            && let Some(place) = self.places.iter().find(|(_, key)| is_silent(key)).map(|(place, _)| place.clone())
        {
            self.places.remove(&place);
        }
        self.places.len() < MOST_PLACES
    }

    /// Calls again where nobody answers any more: a server that is started anew is another one.
    fn call_again(&mut self, now: Instant) {
        if now < self.next_calls {
            return;
        }
        self.next_calls = now + CALL_EVERY;
        self.voyage.expire_silent(now);
        for (place, key) in &self.places {
            if key.is_some_and(|key| self.voyage.is_live(now, key)) {
                continue;
            }
            self.transport.dial(&PeerAddr(place.clone()), None);
            // Where there still is a way nobody says again that there is one.
            if let Some(key) = key.filter(|key| self.transport.addr_of(key).is_some()) {
                self.voyage.add_server(key);
            }
        }
    }

    /// Waits until we are in. `false` if somebody changed their mind.
    pub(super) fn enter(&mut self) -> Result<bool, Trouble> {
        while self.client.avatar().is_none() {
            if crate::stop::is_asked() {
                return Ok(false);
            }
            let now = clock::now();
            let is_hopeless = self.is_refused() || self.voyage.are_all_full(now);
            if now - self.began >= if is_hopeless { REFUSED } else { PATIENCE } {
                return Err(self.nobody());
            }
            self.exchange(now + TimeDelta::from_millis(20))?;
        }
        // What was scored before is no news.
        self.news = News::new(&self.client, self.voyage.moves());
        Ok(true)
    }

    /// Whether nobody takes us.
    fn is_refused(&self) -> bool {
        self.places.keys().all(|place| self.refused.contains(place))
    }

    fn nobody(&self) -> Trouble {
        if self.voyage.are_all_full(clock::now()) {
            return Trouble::failure("this world is full")
                .hint("who has left makes room after some minutes: the same command joins then");
        }
        match !self.refused.is_empty() {
            true => {
                Trouble::failure("a server answers, but does not know us").hint("is the secret after # the world's?")
            }
            false => Trouble::failure("no server of this world answers")
                .hint("does coplay world serve run there, and is the address right? A maze without servers is joined without --world"),
        }
    }

    /// Says goodbye: others see at once that we left.
    pub(super) fn leave(&self) {
        let Some(server) = self.voyage.current() else { return };
        for _ in 0..GOODBYES {
            self.transport.send(&server, &self.client.leave_message());
            std::thread::sleep(GOODBYE_EVERY.to_duration());
        }
    }

    /// Sends what there is to send and takes what comes, until then.
    pub(super) fn exchange(&mut self, until: Instant) -> Result<(), Trouble> {
        let mut late = 0;
        loop {
            let now = clock::now();
            self.speak(now);
            if now - self.client.last_received() >= ALONE && self.client.avatar().is_some() {
                return Err(Trouble::failure("no server of this world is heard any more")
                    .hint("the same command joins again; as long as one of them runs, what was scored is kept"));
            }
            late += usize::from(now >= until);
            if late > MOST_LATE {
                return Ok(());
            }
            let next = until.min(self.client.poll_timeout()).min(self.voyage.poll_timeout());
            match self.incoming.recv_timeout((next - now).to_duration()) {
                Ok(incoming) => self.take(incoming),
                Err(_) if clock::now() >= until => return Ok(()),
                Err(_) => {}
            }
        }
    }

    fn speak(&mut self, now: Instant) {
        self.call_again(now);
        self.client.advance(now);
        self.consistency.sample(now, &self.client);
        if self.voyage.select(now, self.client.last_received(), self.client.is_draining()).is_some() {
            self.client.on_server_change(now);
        }
        if let Some((servers, ping)) = self.voyage.poll_pings(now) {
            servers.iter().for_each(|server| _ = self.transport.send(server, &ping));
        }
        if let Some((wish, server)) = self.client.poll_input(now).zip(self.voyage.current()) {
            self.transport.send(&server, &wish);
        }
    }

    fn take(&mut self, incoming: Incoming) {
        match incoming {
            Incoming::Datagram { at, from, bytes } => self.hear(at, from, &bytes),
            Incoming::Connected { peer, dialed: called } => self.on_up(peer, called),
            Incoming::Unreachable { addr: place, wrong_secret: true } => _ = self.refused.insert(place.0),
            Incoming::Unreachable { .. } => {}
            Incoming::Multicast { .. } | Incoming::WrongPeer { .. } => {}
        }
    }

    fn on_up(&mut self, peer: PeerKey, called: Option<PeerAddr>) {
        self.voyage.add_server(peer);
        if let Some(key) = called.and_then(|place| self.places.get_mut(&place.0)) {
            *key = Some(peer);
        }
    }

    fn hear(&mut self, at: Instant, from: PeerKey, bytes: &[u8]) {
        if let Some(ServerMessage::Pong(pong)) = ServerMessage::from_bytes(bytes, None) {
            self.voyage.on_pong(at, from, &pong);
        } else if self.voyage.current() == Some(from) && self.client.handle_datagram(at, bytes) {
            let mirrors = self.client.mirrors().to_vec();
            self.learn(mirrors);
        }
    }

    /// What happened since the last time that this was asked.
    pub(super) fn news(&mut self) -> Vec<String> {
        self.news.take(clock::now(), &mut self.client, self.voyage.moves())
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
        (silence >= SILENT).then_some(silence)
    }

    /// What it came to.
    pub(super) fn summary(&self) -> Summary {
        let mut summary = Summary::default();
        let played = (clock::now() - self.began).as_secs_f64();
        summary.row("played", format!("{played:.0} s"), &self.status());
        summary.row("score", in_words(self.client.score()), "as the servers acknowledged it");
        if let (Some(own), Some(all), Some(tolerated)) =
            (self.consistency.own_discrepancy(), self.consistency.mean_discrepancy(), self.consistency.tolerated())
        {
            let value = format!("D {own:.1}, {all:.1}");
            let share = tolerated * 100.0;
            let meaning = format!(
                "of you and of all you saw, in unit·s over two seconds; {share:.0} % below {CONSISTENCY_TOLERANCE:.0}"
            );
            summary.row("consistency", value, &meaning);
        }
        summary.row("moves", self.voyage.moves().to_string(), "to another server");
        summary
    }
}

/// Whether UDP leads to a place.
fn is_address(place: &str) -> bool {
    place.parse::<SocketAddr>().is_ok()
}

/// Whether iroh does.
fn is_home(place: &str) -> bool {
    IrohAddr::from_peer_addr(&PeerAddr(place.into())).is_some()
}
