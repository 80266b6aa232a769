//! The way to the servers of a world: all of them are called, one of them is played on.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use coplay::time::{Instant, TimeDelta};
use coplay_net::impair::Impairment;
use coplay_net::ticket::Ticket;
use coplay_net::{Incoming, PeerKey, Place, Transport, clock};
use coplay_world::{Client, Voyage, Word};

use crate::maze::board::in_words;
use crate::meet::Line;
use crate::net::{PATIENCE, impaired};
use crate::summary::Summary;
use crate::trouble::Trouble;

/// Without a word from any server for so long it is over.
const ALONE: TimeDelta = TimeDelta::from_secs(15);
/// However late we are, so much of what came is taken before the game goes on.
const MOST_LATE: usize = 64;

/// A player, and the servers.
pub(super) struct Link {
    pub(super) client: Client,
    voyage: Voyage<PeerKey>,
    transport: Arc<dyn Transport>,
    incoming: Receiver<Incoming>,
    called: BTreeSet<String>,
    began: Instant,
    /// Somebody answered, but did not take the secret.
    refused: bool,
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
        let (client, voyage) = (Client::new(now, &name), Voyage::new(now));
        let mut link = Self {
            client,
            voyage,
            transport,
            incoming: line.incoming,
            called: BTreeSet::new(),
            began: now,
            refused: false,
        };
        link.call(line.places.into_iter().map(|place| place.0));
        link.call(others.iter().filter_map(|ticket| match ticket {
            Ticket::Udp { host, port, .. } => Some(format!("{host}:{port}")),
            Ticket::Iroh { .. } => None,
        }));
        Ok(link)
    }

    fn call(&mut self, places: impl IntoIterator<Item = String>) {
        for place in places {
            if place.parse::<SocketAddr>().is_ok() && self.called.insert(place.clone()) {
                self.transport.call(&Place(place), None);
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
            if now - self.began >= PATIENCE {
                return Err(self.nobody());
            }
            self.exchange(now + TimeDelta::from_millis(20))?;
        }
        Ok(true)
    }

    fn nobody(&self) -> Trouble {
        match self.refused {
            true => {
                Trouble::failure("a server answers, but does not know us").hint("is the secret after # the world's?")
            }
            false => Trouble::failure("no server of this world answers")
                .hint("does coplay world serve run there, and is the address right?"),
        }
    }

    /// Sends what there is to send and takes what comes, until then.
    pub(super) fn exchange(&mut self, until: Instant) -> Result<(), Trouble> {
        let mut late = 0;
        loop {
            let now = clock::now();
            self.speak(now);
            if now - self.client.heard() >= ALONE && self.client.avatar().is_some() {
                return Err(Trouble::failure("no server of this world is heard any more")
                    .hint("what was scored is kept by them: join again when they are back"));
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
        self.client.advance(now);
        if self.voyage.choose(now, self.client.heard(), self.client.drains()).is_some() {
            self.client.on_other_server(now);
        }
        if let Some((servers, ping)) = self.voyage.poll_pings(now) {
            servers.iter().for_each(|server| _ = self.transport.send(server, &ping));
        }
        if let Some((wish, server)) = self.client.poll_wish(now).zip(self.voyage.current()) {
            self.transport.send(&server, &wish);
        }
    }

    fn take(&mut self, incoming: Incoming) {
        match incoming {
            Incoming::Datagram { at, from, bytes } => self.hear(at, from, &bytes),
            Incoming::Up { peer, .. } => self.voyage.on_up(peer),
            Incoming::Unanswered { refused, .. } => self.refused |= refused,
            Incoming::Multicast { .. } | Incoming::Stranger { .. } => {}
        }
    }

    fn hear(&mut self, at: Instant, from: PeerKey, bytes: &[u8]) {
        if let Some(Word::Pong(pong)) = Word::from_bytes(bytes, None) {
            self.voyage.on_pong(at, from, &pong);
        } else if self.voyage.current() == Some(from) && self.client.handle_datagram(at, bytes) {
            let mirrors = self.client.mirrors().to_vec();
            self.call(mirrors);
        }
    }

    /// A word for the status line.
    pub(super) fn status(&self) -> String {
        let servers = self.client.mirrors().len() + 1;
        let trip = self.client.rtt().map_or_else(String::new, |rtt| format!(", {:.0} ms away", rtt.as_millis_f64()));
        format!("on one of {servers} server{}{trip}", if servers == 1 { "" } else { "s" })
    }

    /// What it came to.
    pub(super) fn summary(&self) -> Summary {
        let mut summary = Summary::default();
        let played = (clock::now() - self.began).as_secs_f64();
        summary.row("played", format!("{played:.0} s"), &self.status());
        summary.row("score", in_words(self.client.score()), "as the servers acknowledged it");
        summary.row("moves", self.voyage.moves().to_string(), "to another server");
        summary
    }
}
