//! QUIC configuration of the two connections to a peer.

use std::any::Any;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::iroh::endpoint::{Controller, ControllerFactory, QuicTransportConfig, VarInt};
use coplay::codec::MAX_DATAGRAM;

/// One of the two connections between two peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectionPurpose {
    /// Time-critical datagrams of the game.
    Game,
    /// Data that may be delayed: spectator feeds and snapshots.
    Bulk,
}

/// Time without incoming packets after which a connection is closed; iroh abandons a single path earlier.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// Interval of the packets that keep an idle connection open.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(2);

/// Capacity of the send queue of a game connection, in bytes: few datagrams, since they are stale after a long outage.
const GAME_SEND_BUFFER: usize = 16 * MAX_DATAGRAM;
/// Capacity of the send queue of a bulk connection, in bytes.
const BULK_SEND_BUFFER: usize = 128 * MAX_DATAGRAM;
/// Capacity of a connection's queue of received datagrams, in bytes.
const RECEIVE_BUFFER: usize = 256 * MAX_DATAGRAM;

/// Maximum number of unidirectional streams that a peer may have open on a connection; each carries one datagram that
/// is too long for the path.
pub(super) const MAX_STREAMS: u32 = 32;

/// Congestion window of the game connection, in bytes: room for 60 datagrams of maximum length per second until a
/// silent direct path is abandoned after 15 s. A game sends at a fixed rate far below the capacity of a usual link, so
/// there is nothing to probe for.
pub(super) const GAME_CONGESTION_WINDOW: u64 = 60 * 15 * MAX_DATAGRAM as u64;

impl ConnectionPurpose {
    pub(super) const ALL: [Self; 2] = [Self::Game, Self::Bulk];

    /// Returns the ALPN protocol name of the connection.
    pub(super) fn alpn(self) -> &'static [u8] {
        match self {
            Self::Game => b"coplay/1",
            Self::Bulk => b"coplay-bulk/1",
        }
    }

    pub(super) fn from_alpn(alpn: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.alpn() == alpn)
    }

    pub(super) fn transport_config(self) -> QuicTransportConfig {
        let config = QuicTransportConfig::builder()
            .max_idle_timeout(IDLE_TIMEOUT.try_into().ok())
            .keep_alive_interval(KEEP_ALIVE_INTERVAL)
            .max_concurrent_bidi_streams(VarInt::from_u32(1))
            .max_concurrent_uni_streams(VarInt::from_u32(MAX_STREAMS))
            .stream_receive_window(VarInt::from_u32(2 * MAX_DATAGRAM as u32))
            .receive_window(VarInt::from_u32(2 * MAX_STREAMS * MAX_DATAGRAM as u32))
            .datagram_receive_buffer_size(Some(RECEIVE_BUFFER));
        match self {
            Self::Game => config
                .datagram_send_buffer_size(GAME_SEND_BUFFER)
                .congestion_controller_factory(Arc::new(FixedCongestionWindow))
                .build(),
            Self::Bulk => config.datagram_send_buffer_size(BULK_SEND_BUFFER).build(),
        }
    }
}

/// Congestion controller with a constant window, large enough that no game datagram is held back and becomes stale.
#[derive(Clone, Copy, Debug)]
struct FixedCongestionWindow;

impl ControllerFactory for FixedCongestionWindow {
    fn build(self: Arc<Self>, _now: Instant, _mtu: u16) -> Box<dyn Controller> {
        Box::new(*self)
    }
}

impl Controller for FixedCongestionWindow {
    fn on_congestion_event(
        &mut self,
        _now: Instant,
        _sent: Instant,
        _persistent: bool,
        _ecn: bool,
        _lost_bytes: u64,
        _largest_lost: u64,
    ) {
    }

    fn on_mtu_update(&mut self, _mtu: u16) {}

    fn window(&self) -> u64 {
        GAME_CONGESTION_WINDOW
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(*self)
    }

    fn initial_window(&self) -> u64 {
        GAME_CONGESTION_WINDOW
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}
