//! Showing that one knows the group's token, without telling it.
//!
//! Both sides of a connection have numbers that nobody else has, and that belong to this connection alone (RFC 5705). A proof is a hash
//! of them, keyed with the token, one for each direction: it is worth nothing anywhere else. Who calls shows its proof first; who
//! is called answers with its own, or closes.

use ::iroh::endpoint::{Connection, ConnectionError, ReadToEndError, VarInt};
use blake2::Blake2sMac;
use blake2::digest::consts::U16;
use blake2::digest::{KeyInit, Mac};

use crate::key::Token;

/// A connection is closed with this if its other end does not know the token.
pub(super) const REFUSED: VarInt = VarInt::from_u32(1);
/// … if there are others, or no room.
pub(super) const NOT_NEEDED: VarInt = VarInt::from_u32(2);

const LEN: usize = 16;

/// Why somebody who was called is not the one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Missed {
    /// Nobody answered, or the connection broke.
    Silence,
    /// It says that we do not know its token.
    Refused,
    /// It does not know ours.
    Stranger,
}

#[derive(Clone, Copy)]
enum Side {
    Caller = 1,
    Called = 2,
}

fn mac(connection: &Connection, token: &Token, side: Side) -> Option<Blake2sMac<U16>> {
    let mut numbers = [0; 32];
    connection.export_keying_material(&mut numbers, b"EXPORTER-coplay-token", &[side as u8]).ok()?;
    let mut mac = <Blake2sMac<U16> as KeyInit>::new_from_slice(token.bytes()).ok()?;
    mac.update(&numbers);
    Some(mac)
}

fn made(connection: &Connection, token: &Token, side: Side) -> Option<[u8; LEN]> {
    mac(connection, token, side).map(|mac| mac.finalize().into_bytes().into())
}

/// Compares in constant time.
fn is_good(connection: &Connection, token: &Token, side: Side, proof: &[u8]) -> bool {
    mac(connection, token, side).is_some_and(|mac| mac.verify_slice(proof).is_ok())
}

/// Shows our proof to whom we called, and looks at its own.
pub(super) async fn show(connection: &Connection, token: &Token) -> Result<(), Missed> {
    let ours = made(connection, token, Side::Caller).ok_or(Missed::Silence)?;
    let (mut send, mut receive) = connection.open_bi().await.map_err(|_| missed(connection))?;
    send.write_all(&ours).await.map_err(|_| missed(connection))?;
    let _ = send.finish();
    let theirs = receive.read_to_end(LEN).await.map_err(|error| match error {
        ReadToEndError::Read(_) => missed(connection),
        ReadToEndError::TooLong => Missed::Stranger,
    })?;
    if is_good(connection, token, Side::Called, &theirs) {
        return Ok(());
    }
    connection.close(REFUSED, b"");
    Err(Missed::Stranger)
}

fn missed(connection: &Connection) -> Missed {
    match connection.close_reason() {
        Some(ConnectionError::ApplicationClosed(close)) if close.error_code == REFUSED => Missed::Refused,
        _ => Missed::Silence,
    }
}

/// Looks at the proof of somebody who called, and answers with ours; closes the connection if it is not good.
pub(super) async fn check(connection: &Connection, token: &Token) -> bool {
    let Ok((mut send, mut receive)) = connection.accept_bi().await else { return false };
    let theirs = receive.read_to_end(LEN).await.unwrap_or_default();
    if !is_good(connection, token, Side::Caller, &theirs) {
        connection.close(REFUSED, b"");
        return false;
    }
    let Some(ours) = made(connection, token, Side::Called) else { return false };
    let sent = send.write_all(&ours).await.is_ok();
    sent && send.finish().is_ok()
}
