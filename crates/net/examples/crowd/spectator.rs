//! A spectator without a machine: socket, secured endpoint, lobby channel, feed client, and measurements of the feed.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use coplay::codec::MAX_DATAGRAM;
use coplay::id::Addr;
use coplay::session::Settings;
use coplay::spectator_feed::{Spectator as FeedSpectator, SpectatorConfig, SpectatorEvent, SpectatorRequest};
use coplay::time::{Instant, TimeDelta};
use coplay_net::key::{Identity, Secret};
use coplay_net::lobby::{JoinIntent, JoinRequest, LobbyInfo, LobbyMessage, PROTOCOL_VERSION};
use coplay_net::reliable::Channel;
use coplay_net::udp::{Endpoint, EndpointEvent, MAX_SEALED, Received};
use coplay_net::{PeerKey, clock};
use tokio::net::UdpSocket;

/// Time for which the process lets all spectators leave before the process ends.
pub(crate) const DRAIN_TIMEOUT: Duration = Duration::from_millis(500);
/// Maximum interval between checks whether to stop.
const STOP_POLL_INTERVAL: TimeDelta = TimeDelta::from_millis(100);

/// Measurements of one spectator.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SpectatorMetrics {
    pub(crate) is_live: bool,
    pub(crate) is_disconnected: bool,
    pub(crate) frames_behind: i64,
    pub(crate) frames: u64,
    pub(crate) stalls: u64,
    pub(crate) datagrams_in: u64,
    pub(crate) bytes_in: u64,
    pub(crate) datagrams_out: u64,
    pub(crate) bytes_out: u64,
}

impl SpectatorMetrics {
    /// Returns the sums of the counters of two spectators; the other fields are those of `self`.
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

/// A spectator without a machine.
pub(crate) struct CrowdSpectator {
    socket: UdpSocket,
    endpoint: Endpoint,
    host: Option<PeerKey>,
    channel: Channel,
    feed_client: Option<FeedSpectator>,
    metrics: SpectatorMetrics,
    published_metrics: Arc<Mutex<SpectatorMetrics>>,
}

impl CrowdSpectator {
    pub(crate) async fn new(
        host: SocketAddr,
        secret: Secret,
        published_metrics: Arc<Mutex<SpectatorMetrics>>,
    ) -> std::io::Result<Self> {
        let any = match host {
            SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
            SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
        };
        let socket = UdpSocket::bind(any).await?;
        let mut endpoint = Endpoint::new(Identity::random(), secret);
        endpoint.dial(clock::now(), host, None);
        let (channel, metrics) = (Channel::new(), SpectatorMetrics::default());
        Ok(Self { socket, endpoint, host: None, channel, feed_client: None, metrics, published_metrics })
    }

    /// Watches until `stop` is set, then leaves.
    pub(crate) async fn run(mut self, stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) {
            let due = self.run_due();
            let wait = tokio::time::Instant::now() + (due - clock::now()).to_duration();
            let _ = tokio::time::timeout_at(wait, self.socket.readable()).await;
            self.receive_all();
        }
        let _ = self.channel.send(&LobbyMessage::Bye.to_bytes());
        self.feed_client.iter_mut().for_each(|spectator| spectator.leave(clock::now()));
        self.run_due();
    }

    fn receive_all(&mut self) {
        let (mut bytes, mut out) = ([0; 2_048], [0; MAX_SEALED]);
        while let Ok((len, from)) = self.socket.try_recv_from(&mut bytes) {
            self.metrics.datagrams_in += 1;
            self.metrics.bytes_in += len as u64;
            let now = clock::now();
            if let Received::Data { len, .. } = self.endpoint.handle_datagram(now, from, &bytes[..len], &mut out) {
                self.handle_datagram(now, &out[..len]);
            }
        }
    }

    fn handle_datagram(&mut self, now: Instant, bytes: &[u8]) {
        if !Channel::is_channel_datagram(bytes) {
            // The feed comes from the host, which has the first seat.
            self.feed_client.iter_mut().for_each(|spectator| spectator.handle_datagram(now, Addr(0), bytes));
            return;
        }
        self.channel.handle_datagram(bytes);
        while let Some(message) = self.channel.poll_message() {
            match LobbyMessage::from_bytes(&message) {
                Some(LobbyMessage::Lobby(lobby)) if lobby.is_started && self.feed_client.is_none() => {
                    self.start_spectating(now, &lobby)
                }
                Some(LobbyMessage::Refused(_)) => self.metrics.is_disconnected = true,
                _ => {}
            }
        }
    }

    fn start_spectating(&mut self, now: Instant, lobby: &LobbyInfo) {
        let Ok(settings) = Settings::from_bytes(&lobby.settings) else { return };
        let config = SpectatorConfig::new(lobby.session, settings, vec![Addr(0)]);
        self.feed_client = FeedSpectator::new(now, config).ok();
    }

    /// Retransmits, serves the feed's requests, and sends what is due. Returns the time at which the next call is due.
    fn run_due(&mut self) -> Instant {
        let now = clock::now();
        if self.endpoint.poll_timeout().is_some_and(|due| due <= now) {
            self.endpoint.handle_timeout(now);
        }
        while let Some(event) = self.endpoint.poll_event() {
            if let EndpointEvent::Connected { peer, .. } = event {
                self.request_join(peer);
            }
        }
        self.serve_requests(now);
        self.transmit_all(now);
        self.publish_metrics();
        let spectator = self.feed_client.as_ref().and_then(FeedSpectator::poll_timeout);
        let due = [spectator, self.channel.poll_timeout(), self.endpoint.poll_timeout()];
        due.into_iter().flatten().fold(now + STOP_POLL_INTERVAL, Instant::min)
    }

    fn request_join(&mut self, host: PeerKey) {
        self.host = Some(host);
        let request = JoinRequest {
            version: PROTOCOL_VERSION,
            name: "crowd spectator".into(),
            intent: JoinIntent::Spectate,
            addrs: vec![],
        };
        let _ = self.channel.send(&LobbyMessage::JoinRequest(request).to_bytes());
    }

    /// Serves the feed's requests without a machine: counts the frames, and answers a hash request with the expected
    /// hash. Then updates the measurements.
    fn serve_requests(&mut self, now: Instant) {
        let Some(spectator) = &mut self.feed_client else { return };
        while let Some(request) = spectator.poll_request(now) {
            match request {
                SpectatorRequest::Load { .. } => {}
                SpectatorRequest::Advance { .. } => self.metrics.frames += 1,
                SpectatorRequest::Hash { expected, .. } => spectator.handle_hash(expected),
            }
        }
        while let Some(event) = spectator.poll_event() {
            self.metrics.is_disconnected |=
                matches!(event, SpectatorEvent::Dropped { .. } | SpectatorEvent::Ended { .. });
        }
        (self.metrics.is_live, self.metrics.stalls) = (spectator.is_live(), spectator.stats().stalls);
        self.metrics.frames_behind = spectator.newest_frame() - spectator.next_frame();
    }

    fn transmit_all(&mut self, now: Instant) {
        while let Some((to, bytes)) = self.endpoint.poll_transmit() {
            self.send(&bytes, to);
        }
        let Some(channel) = self.host.and_then(|host| self.endpoint.channel(&host)).cloned() else { return };
        let (mut bytes, mut out) = ([0; MAX_DATAGRAM], [0; MAX_SEALED]);
        while let Some(bytes) = self.channel.poll_transmit(now) {
            if let Some(len) = channel.seal(&bytes, &mut out) {
                self.send(&out[..len], channel.addr());
            }
        }
        while let Some(transmit) =
            self.feed_client.as_mut().and_then(|spectator| spectator.poll_transmit(now, &mut bytes))
        {
            if let Some(len) = channel.seal(&bytes[..transmit.len], &mut out) {
                self.send(&out[..len], channel.addr());
            }
        }
    }

    /// Sends a datagram; one that cannot be sent counts as lost.
    fn send(&mut self, bytes: &[u8], to: SocketAddr) {
        if self.socket.try_send_to(bytes, to).is_ok() {
            self.metrics.datagrams_out += 1;
            self.metrics.bytes_out += bytes.len() as u64;
        }
    }

    fn publish_metrics(&self) {
        *self.published_metrics.lock().unwrap_or_else(PoisonError::into_inner) = self.metrics;
    }
}
