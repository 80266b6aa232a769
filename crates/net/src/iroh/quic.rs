//! How the two connections to a peer behave.

use std::any::Any;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::iroh::endpoint::{Controller, ControllerFactory, QuicTransportConfig, VarInt};
use coplay::wire::MAX_DATAGRAM;

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectionKind {
    /// What the game cannot wait for.
    Game,
    /// What may take its time.
    Bulk,
}

/// A connection on which nothing comes is given up after so long; a single way to a peer earlier, by iroh.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(2);

/// Datagrams that wait to be sent. If there is no way out for long, those of the game are not worth keeping.
const GAME_SEND_BUFFER: usize = 16 * MAX_DATAGRAM;
const BULK_SEND_BUFFER: usize = 128 * MAX_DATAGRAM;
const RECEIVE_BUFFER: usize = 256 * MAX_DATAGRAM;

/// Datagrams of a peer that are too long for the path, at once.
pub(super) const MAX_STREAMS: u32 = 32;

/// What may be under way without having been acknowledged: what the longest datagrams at 60 a second amount to until the path is
/// given up (15 s). A game sends at a rate of its own, far below any line's: there is nothing to find out about the line.
pub(super) const GAME_CONGESTION_WINDOW: u64 = 60 * 15 * MAX_DATAGRAM as u64;

impl ConnectionKind {
    pub(super) const ALL: [Self; 2] = [Self::Game, Self::Bulk];

    /// What the peers call it when they connect.
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

/// A congestion controller that never holds anything back, and so never keeps what is stale.
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
