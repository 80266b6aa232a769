//! One of the crowd.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use coplay::id::Addr;
use coplay::session::Settings;
use coplay::spectator_feed::{Spectator as FeedSpectator, SpectatorConfig, SpectatorEvent, SpectatorRequest};
use coplay::time::{Instant, TimeDelta};
use coplay::wire::MAX_DATAGRAM;
use coplay_net::key::{Identity, Secret};
use coplay_net::mail::Mail;
use coplay_net::party::{Knock, Message, Party, VERSION, Wish};
use coplay_net::udp::{Endpoint, Event, MAX_SEALED, Received};
use coplay_net::{PeerKey, clock};
use tokio::net::UdpSocket;

/// So long it says goodbye.
pub(crate) const FAREWELL: Duration = Duration::from_millis(500);
/// It looks at least this often whether the show is over.
const LOOK: TimeDelta = TimeDelta::from_millis(100);

/// What it sees, in numbers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct View {
    pub(crate) live: bool,
    pub(crate) gone: bool,
    pub(crate) behind: i64,
    pub(crate) frames: u64,
    pub(crate) stalls: u64,
    pub(crate) datagrams_in: u64,
    pub(crate) bytes_in: u64,
    pub(crate) datagrams_out: u64,
    pub(crate) bytes_out: u64,
}

impl View {
    /// What two saw together, as far as it can be added.
    pub(crate) fn plus(self, other: &Self) -> Self {
        Self {
            frames: self.frames + other.frames,
            stalls: self.stalls + other.stalls,
            datagrams_in: self.datagrams_in + other.datagrams_in,
            bytes_in: self.bytes_in + other.bytes_in,
            datagrams_out: self.datagrams_out + other.datagrams_out,
            bytes_out: self.bytes_out + other.bytes_out,
            ..self
        }
    }
}

/// Somebody who looks on.
pub(crate) struct Spectator {
    socket: UdpSocket,
    endpoint: Endpoint,
    host: Option<PeerKey>,
    mail: Mail,
    watcher: Option<FeedSpectator>,
    numbers: View,
    view: Arc<Mutex<View>>,
}

impl Spectator {
    pub(crate) async fn new(host: SocketAddr, secret: Secret, view: Arc<Mutex<View>>) -> std::io::Result<Self> {
        let any = match host {
            SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
            SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
        };
        let socket = UdpSocket::bind(any).await?;
        let mut endpoint = Endpoint::new(Identity::random(), secret);
        endpoint.call(clock::now(), host, None);
        let (mail, numbers) = (Mail::new(), View::default());
        Ok(Self { socket, endpoint, host: None, mail, watcher: None, numbers, view })
    }

    /// Watches until the show is over.
    pub(crate) async fn watch(mut self, over: &AtomicBool) {
        while !over.load(Ordering::Relaxed) {
            let due = self.work();
            let wait = tokio::time::Instant::now() + (due - clock::now()).to_duration();
            let _ = tokio::time::timeout_at(wait, self.socket.readable()).await;
            self.receive();
        }
        let _ = self.mail.send(&Message::Bye.to_bytes());
        self.watcher.iter_mut().for_each(|watcher| watcher.leave(clock::now()));
        self.work();
    }

    fn receive(&mut self) {
        let (mut bytes, mut out) = ([0; 2_048], [0; MAX_SEALED]);
        while let Ok((len, from)) = self.socket.try_recv_from(&mut bytes) {
            self.numbers.datagrams_in += 1;
            self.numbers.bytes_in += len as u64;
            let now = clock::now();
            if let Received::Data { len, .. } = self.endpoint.handle_datagram(now, from, &bytes[..len], &mut out) {
                self.take(now, &out[..len]);
            }
        }
    }

    fn take(&mut self, now: Instant, bytes: &[u8]) {
        if !Mail::is_mail(bytes) {
            // It watches at the host, which has the first seat.
            self.watcher.iter_mut().for_each(|watcher| watcher.handle_datagram(now, Addr(0), bytes));
            return;
        }
        self.mail.handle_datagram(bytes);
        while let Some(message) = self.mail.poll_message() {
            match Message::from_bytes(&message) {
                Some(Message::Party(party)) if party.started && self.watcher.is_none() => self.begin(now, &party),
                Some(Message::Refused(_)) => self.numbers.gone = true,
                _ => {}
            }
        }
    }

    fn begin(&mut self, now: Instant, party: &Party) {
        let Ok(settings) = Settings::from_bytes(&party.terms) else { return };
        let config = SpectatorConfig::new(party.session, settings, vec![Addr(0)]);
        self.watcher = FeedSpectator::new(now, config).ok();
    }

    /// Does all that is due; says when something is again.
    fn work(&mut self) -> Instant {
        let now = clock::now();
        if self.endpoint.poll_timeout().is_some_and(|due| due <= now) {
            self.endpoint.handle_timeout(now);
        }
        while let Some(event) = self.endpoint.poll_event() {
            if let Event::Up { peer, .. } = event {
                self.knock(peer);
            }
        }
        self.see(now);
        self.send_all(now);
        self.show();
        let watcher = self.watcher.as_ref().and_then(FeedSpectator::poll_timeout);
        let due = [watcher, self.mail.poll_timeout(), self.endpoint.poll_timeout()];
        due.into_iter().flatten().fold(now + LOOK, Instant::min)
    }

    fn knock(&mut self, host: PeerKey) {
        self.host = Some(host);
        let knock = Knock { version: VERSION, name: "one of many".into(), wish: Wish::Watch, places: vec![] };
        let _ = self.mail.send(&Message::Knock(knock).to_bytes());
    }

    /// There is no machine: what the feed says of its state is believed.
    fn see(&mut self, now: Instant) {
        let Some(watcher) = &mut self.watcher else { return };
        while let Some(request) = watcher.poll_request(now) {
            match request {
                SpectatorRequest::Load { .. } => {}
                SpectatorRequest::Advance { .. } => self.numbers.frames += 1,
                SpectatorRequest::Hash { expected, .. } => watcher.handle_hash(expected),
            }
        }
        while let Some(event) = watcher.poll_event() {
            self.numbers.gone |= matches!(event, SpectatorEvent::Dropped { .. } | SpectatorEvent::Ended { .. });
        }
        (self.numbers.live, self.numbers.stalls) = (watcher.is_live(), watcher.stats().stalls);
        self.numbers.behind = watcher.newest_frame() - watcher.next_frame();
    }

    fn send_all(&mut self, now: Instant) {
        while let Some((to, bytes)) = self.endpoint.poll_transmit() {
            self.send(&bytes, to);
        }
        let Some(channel) = self.host.and_then(|host| self.endpoint.channel(&host)).cloned() else { return };
        let (mut bytes, mut out) = ([0; MAX_DATAGRAM], [0; MAX_SEALED]);
        while let Some(bytes) = self.mail.poll_transmit(now) {
            if let Some(len) = channel.seal(&bytes, &mut out) {
                self.send(&out[..len], channel.addr());
            }
        }
        while let Some(transmit) = self.watcher.as_mut().and_then(|watcher| watcher.poll_transmit(now, &mut bytes)) {
            if let Some(len) = channel.seal(&bytes[..transmit.len], &mut out) {
                self.send(&out[..len], channel.addr());
            }
        }
    }

    /// What does not get out is lost, as it may be later on its way.
    fn send(&mut self, bytes: &[u8], to: SocketAddr) {
        if self.socket.try_send_to(bytes, to).is_ok() {
            self.numbers.datagrams_out += 1;
            self.numbers.bytes_out += bytes.len() as u64;
        }
    }

    fn show(&self) {
        *self.view.lock().unwrap_or_else(PoisonError::into_inner) = self.numbers;
    }
}
