//! Connections to the servers of a world. The client connects to all of them and plays on one of them.

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
use coplay_shell::error::AppError;
use coplay_world::{
    CONSISTENCY_TOLERANCE, Client, ConsistencySummary, PROTOCOL_VERSION, ServerMessage, ServerSelector,
};

use super::notices::NoticeTracker;
use crate::connect::{self, Connection};
use crate::maze::scoreboard_view::format_score;
use crate::net::{JOIN_TIMEOUT, with_impairment};
use crate::summary::Summary;

/// Silence of all servers after which the user sees a notice.
const SILENCE_NOTICE_AFTER: TimeDelta = TimeDelta::from_millis(1_500);
/// Silence of all servers after which the game ends with an error.
const SILENCE_TIMEOUT: TimeDelta = TimeDelta::from_secs(30);
/// Join timeout if every server address has refused the secret, or all servers are full or of another version: waiting
/// longer is pointless.
const REFUSAL_TIMEOUT: TimeDelta = TimeDelta::from_secs(3);
/// Interval at which silent servers are redialed.
const REDIAL_INTERVAL: TimeDelta = TimeDelta::from_secs(2);
/// Largest number of server addresses that are dialed.
const MAX_SERVER_ADDRS: usize = 64;
/// Number of leave messages that are sent, since each may be lost.
const LEAVE_REPEATS: u32 = 3;
/// Interval between leave messages.
const LEAVE_INTERVAL: TimeDelta = TimeDelta::from_millis(15);
/// Largest number of datagrams handled after the deadline of an exchange, so that a backlog cannot stall the game.
const MAX_OVERDUE_DATAGRAMS: usize = 64;

/// Client of a world, and its connections to the servers.
pub(super) struct ServerLink {
    pub(super) client: Client,
    consistency: ConsistencySummary,
    notices: NoticeTracker,
    selector: ServerSelector<PeerKey>,
    transport: Arc<dyn Transport>,
    incoming: Receiver<Incoming>,
    /// Function that returns whether this client's transport can dial an address.
    is_supported_addr: fn(&str) -> bool,
    /// Addresses of servers, each with the key of the server that last answered there.
    servers: BTreeMap<String, Option<PeerKey>>,
    next_redial: Instant,
    started: Instant,
    /// Addresses at which a server refused the secret.
    refused_addrs: BTreeSet<String>,
}

impl ServerLink {
    pub(super) fn new(
        connection: Connection,
        others: &[Ticket],
        name: String,
        impairment: Option<&Impairment>,
    ) -> Result<Self, AppError> {
        let now = clock::now();
        let transport = with_impairment(connection.transport, impairment)?;
        let (client, selector) =
            (Client::new(now, &name, u32::from_le_bytes(random_bytes())), ServerSelector::new(now));
        let (servers, incoming) = (BTreeMap::new(), connection.incoming);
        let uses_iroh = connection.host_addrs.iter().any(|addr| is_iroh_addr(&addr.0));
        let is_supported_addr = if uses_iroh { is_iroh_addr } else { is_socket_addr };
        let (next_redial, started, refused_addrs) = (now, now, BTreeSet::new());
        let (consistency, notices) = (ConsistencySummary::default(), NoticeTracker::new(&client, 0));
        let mut link = Self {
            client,
            consistency,
            notices,
            selector,
            transport,
            incoming,
            is_supported_addr,
            servers,
            next_redial,
            started,
            refused_addrs,
        };
        link.add_addrs(connection.host_addrs.into_iter().map(|addr| addr.0));
        for ticket in others {
            link.add_addrs(connect::ticket_addrs(ticket)?.into_iter().map(|addr| addr.0));
        }
        Ok(link)
    }

    /// Adds and dials those server addresses that are new and that the transport supports.
    fn add_addrs(&mut self, addrs: impl IntoIterator<Item = String>) {
        let is_supported_addr = self.is_supported_addr;
        for addr in addrs.into_iter().filter(|addr| is_supported_addr(addr)) {
            if !self.servers.contains_key(&addr) && self.make_room() {
                self.transport.dial(&PeerAddr(addr.clone()), None);
                self.servers.insert(addr, None);
            }
        }
    }

    /// Makes room for another address: at the limit, removes one address without a live server. Returns whether there
    /// is room.
    fn make_room(&mut self) -> bool {
        let now = clock::now();
        let is_silent = |key: &Option<PeerKey>| key.is_none_or(|key| !self.selector.is_live(now, key));
        if self.servers.len() >= MAX_SERVER_ADDRS
            && let Some(addr) = self.servers.iter().find(|(_, key)| is_silent(key)).map(|(addr, _)| addr.clone())
        {
            self.servers.remove(&addr);
        }
        self.servers.len() < MAX_SERVER_ADDRS
    }

    /// Redials addresses without a live server every 2 s: a restarted server has another key.
    fn redial_silent(&mut self, now: Instant) {
        if now < self.next_redial {
            return;
        }
        self.next_redial = now + REDIAL_INTERVAL;
        self.selector.expire_silent(now);
        for (addr, key) in &self.servers {
            if key.is_some_and(|key| self.selector.is_live(now, key)) {
                continue;
            }
            self.transport.dial(&PeerAddr(addr.clone()), None);
            // If the connection still exists, the transport does not report it again.
            if let Some(key) = key.filter(|key| self.transport.addr_of(key).is_some()) {
                self.selector.add_server(key);
            }
        }
    }

    /// Waits until the client has an avatar in the world. Returns `false` if a signal asked the program to stop. Fails
    /// after 15 s, or after 3 s if all servers are full, speak another version, or have refused the secret.
    pub(super) fn wait_until_joined(&mut self) -> Result<bool, AppError> {
        while self.client.avatar().is_none() {
            if crate::signals::is_stop_requested() {
                return Ok(false);
            }
            let now = clock::now();
            let is_hopeless = self.is_refused_everywhere()
                || self.selector.are_all_full(now)
                || self.selector.other_protocol_version().is_some();
            if now - self.started >= if is_hopeless { REFUSAL_TIMEOUT } else { JOIN_TIMEOUT } {
                return Err(self.join_error());
            }
            self.exchange(now + TimeDelta::from_millis(20))?;
        }
        // Scores from an earlier visit give no notice.
        self.notices = NoticeTracker::new(&self.client, self.selector.moves());
        Ok(true)
    }

    /// Returns whether every known address has refused the secret.
    fn is_refused_everywhere(&self) -> bool {
        self.servers.keys().all(|addr| self.refused_addrs.contains(addr))
    }

    fn join_error(&self) -> AppError {
        if let Some(theirs) = self.selector.other_protocol_version() {
            return protocol_error(theirs);
        }
        if self.selector.are_all_full(clock::now()) {
            return AppError::failure("the world is full")
                .hint("run the same command again in 5 minutes, when the places of players who left are free");
        }
        match !self.refused_addrs.is_empty() {
            true => AppError::failure("a server refused the secret of --world")
                .hint("copy the whole line for players that `coplay world serve` prints, with the whole ticket"),
            false => AppError::failure("no server of this world answered within 15 s").hint(
                "check the address, and that `coplay world serve` runs there; \
                 leave out --world to join a maze without servers",
            ),
        }
    }

    /// Sends the leave message to the current server three times, so that other players see the departure at once.
    pub(super) fn leave(&self) {
        let Some(server) = self.selector.current() else { return };
        for _ in 0..LEAVE_REPEATS {
            self.transport.send(&server, &self.client.leave_message());
            std::thread::sleep(LEAVE_INTERVAL.to_duration());
        }
    }

    /// Advances the client, sends due datagrams and handles received ones, until `until`. Fails if the client has
    /// joined the world and all servers have been silent for 30 s.
    pub(super) fn exchange(&mut self, until: Instant) -> Result<(), AppError> {
        let mut overdue = 0;
        loop {
            let now = clock::now();
            self.send_pending(now);
            if now - self.client.last_received() >= SILENCE_TIMEOUT && self.client.avatar().is_some() {
                return Err(AppError::failure("no server of this world has responded for 30 s")
                    .hint("run the same command again; your score is kept while at least one server runs"));
            }
            overdue += usize::from(now >= until);
            if overdue > MAX_OVERDUE_DATAGRAMS {
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
        if let Some((input, server)) = self.client.poll_input(now).zip(self.selector.current()) {
            self.transport.send(&server, &input);
        }
    }

    fn on_incoming(&mut self, incoming: Incoming) {
        match incoming {
            Incoming::Datagram { at, from, bytes } => self.on_datagram(at, from, &bytes),
            Incoming::Connected { peer, dialed } => self.on_up(peer, dialed),
            Incoming::Unreachable { addr, wrong_secret: true } => _ = self.refused_addrs.insert(addr.0),
            Incoming::Unreachable { .. } => {}
            Incoming::Multicast { .. } | Incoming::WrongPeer { .. } => {}
        }
    }

    fn on_up(&mut self, peer: PeerKey, dialed: Option<PeerAddr>) {
        self.selector.add_server(peer);
        if let Some(key) = dialed.and_then(|addr| self.servers.get_mut(&addr.0)) {
            *key = Some(peer);
        }
    }

    fn on_datagram(&mut self, at: Instant, from: PeerKey, bytes: &[u8]) {
        let Some(message) = ServerMessage::from_bytes(bytes) else { return };
        if let ServerMessage::Pong(pong) = message {
            self.selector.on_pong(at, from, &pong);
        } else if self.selector.current() == Some(from) && self.client.handle_message(at, message) {
            let mirrors = self.client.mirrors().to_vec();
            self.add_addrs(mirrors);
        }
    }

    /// Returns texts about events since the last call, such as a hit or a move to another server.
    pub(super) fn notices(&mut self) -> Vec<String> {
        self.notices.poll(clock::now(), &mut self.client, self.selector.moves())
    }

    /// Returns the text for the status line: how long no server has responded, or else the number of servers and the
    /// round-trip time.
    pub(super) fn status(&self) -> String {
        if let Some(silence) = self.silence() {
            return format!("no server has responded for {:.0} s", silence.as_secs_f64());
        }
        let rtt =
            self.client.rtt().map_or_else(String::new, |rtt| format!(", round trip {:.0} ms", rtt.as_millis_f64()));
        match self.client.mirrors().len() {
            0 => format!("connected to the only server{rtt}"),
            others => format!("connected to one of {} servers{rtt}", others + 1),
        }
    }

    /// Returns the time since the last accepted message of a server; `None` if it is less than 1.5 s.
    pub(super) fn silence(&self) -> Option<TimeDelta> {
        let silence = clock::now() - self.client.last_received();
        (silence >= SILENCE_NOTICE_AFTER).then_some(silence)
    }

    /// Returns the summary of the game for the end of the run.
    pub(super) fn summary(&self) -> Summary {
        let mut summary = Summary::default();
        let played = (clock::now() - self.started).as_secs_f64();
        summary.add_row("played", format!("{played:.0} s"), &self.status());
        summary.add_row("score", format_score(self.client.score()), "acknowledged by the servers");
        if let (Some(own), Some(all), Some(tolerated)) =
            (self.consistency.own_discrepancy(), self.consistency.mean_discrepancy(), self.consistency.tolerated())
        {
            let value = format!("D {own:.1}, {all:.1}");
            let share = tolerated * 100.0;
            let meaning = format!(
                "mean discrepancy of your avatar and of all visible avatars, in unit·s over 2 s; \
                 {share:.0} % of the samples below {CONSISTENCY_TOLERANCE:.0}"
            );
            summary.add_row("consistency", value, &meaning);
        }
        summary.add_row("moves", self.selector.moves().to_string(), "from one server to another");
        summary
    }
}

/// Returns the error for servers that speak another version of the world protocol.
fn protocol_error(theirs: u8) -> AppError {
    let older = if theirs < PROTOCOL_VERSION { "the servers" } else { "this program" };
    AppError::failure(format!(
        "the servers of this world speak version {theirs} of the world protocol, this program version {PROTOCOL_VERSION}"
    ))
    .hint(format!("update {older}, so that both come from the same release of coplay"))
}

fn is_socket_addr(addr: &str) -> bool {
    addr.parse::<SocketAddr>().is_ok()
}

fn is_iroh_addr(addr: &str) -> bool {
    IrohAddr::from_peer_addr(&PeerAddr(addr.into())).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn player_is_told_both_protocol_versions_and_what_to_update() {
        let (older, newer) = (protocol_error(1).to_string(), protocol_error(PROTOCOL_VERSION + 1).to_string());
        for (text, theirs) in [(&older, 1), (&newer, PROTOCOL_VERSION + 1)] {
            let versions =
                format!("speak version {theirs} of the world protocol, this program version {PROTOCOL_VERSION}");
            assert!(text.contains(&versions), "{text}");
        }
    }
}
