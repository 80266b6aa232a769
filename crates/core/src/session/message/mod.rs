//! The datagrams between the sites of a session, other than those of spectator feeds and desync searches.

mod extra;
mod hello;
mod tick;

pub use extra::{
    CommandKind, Extra, Extras, InputEnds, MembershipDecision, PauseRequest, RelayedInputs, ScheduledCommand,
    TuningStats, Vote,
};
pub(crate) use extra::{put_extra, put_relay_header};
pub use hello::{Hello, Refusal};
pub use tick::{ClockProbe, ResentInputs, ResentInputsList, SenderIdentity, Tick, TickDigest};
pub(crate) use tick::{TickHeader, put_plain_header};

use crate::codec::DecodeError;

/// A datagram between two sites of a session, other than those of spectator feeds and desync searches.
#[derive(Clone, Debug, PartialEq)]
pub enum SessionMessage<'a> {
    /// A packet of a running game, one per frame.
    Tick(Tick<'a>),
    /// A packet of the lobby, or to or from a site outside the running game.
    Hello(alloc::boxed::Box<Hello>),
}

impl<'a> SessionMessage<'a> {
    /// Decodes one datagram: a tick if the top bit of its first byte is set, else a hello.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        match bytes.first() {
            None => Err(DecodeError::Truncated),
            Some(_) if is_tick(bytes) => Tick::decode(bytes).map(Self::Tick),
            Some(_) => Hello::decode(bytes).map(|hello| Self::Hello(alloc::boxed::Box::new(hello))),
        }
    }
}

/// Returns whether a datagram, if valid, is a packet of a running game.
pub(crate) fn is_tick(bytes: &[u8]) -> bool {
    bytes.first().is_some_and(|first| first & tick::TICK_FLAG != 0)
}
