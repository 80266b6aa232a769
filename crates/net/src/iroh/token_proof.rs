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
pub(super) const CLOSE_WRONG_TOKEN: VarInt = VarInt::from_u32(1);
/// … if there are others, or no room.
pub(super) const CLOSE_NOT_NEEDED: VarInt = VarInt::from_u32(2);

const PROOF_LEN: usize = 16;

/// Why somebody who was called is not the one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectError {
    /// Nobody answered, or the connection broke.
    NoAnswer,
    /// It says that we do not know its token.
    WrongToken,
    /// It does not know ours.
    WrongPeer,
}

#[derive(Clone, Copy)]
enum ProofSide {
    Dialer = 1,
    Acceptor = 2,
}

fn mac(connection: &Connection, token: &Token, side: ProofSide) -> Option<Blake2sMac<U16>> {
    let mut numbers = [0; 32];
    connection.export_keying_material(&mut numbers, b"EXPORTER-coplay-token", &[side as u8]).ok()?;
    let mut mac = <Blake2sMac<U16> as KeyInit>::new_from_slice(token.bytes()).ok()?;
    mac.update(&numbers);
    Some(mac)
}

fn make_proof(connection: &Connection, token: &Token, side: ProofSide) -> Option<[u8; PROOF_LEN]> {
    mac(connection, token, side).map(|mac| mac.finalize().into_bytes().into())
}

/// Compares in constant time.
fn verify_proof(connection: &Connection, token: &Token, side: ProofSide, proof: &[u8]) -> bool {
    mac(connection, token, side).is_some_and(|mac| mac.verify_slice(proof).is_ok())
}

/// Shows our proof to whom we called, and looks at its own.
pub(super) async fn prove_as_dialer(connection: &Connection, token: &Token) -> Result<(), ConnectError> {
    let ours = make_proof(connection, token, ProofSide::Dialer).ok_or(ConnectError::NoAnswer)?;
    let (mut send, mut receive) = connection.open_bi().await.map_err(|_| connect_error(connection))?;
    send.write_all(&ours).await.map_err(|_| connect_error(connection))?;
    let _ = send.finish();
    let theirs = receive.read_to_end(PROOF_LEN).await.map_err(|error| match error {
        ReadToEndError::Read(_) => connect_error(connection),
        ReadToEndError::TooLong => ConnectError::WrongPeer,
    })?;
    if verify_proof(connection, token, ProofSide::Acceptor, &theirs) {
        return Ok(());
    }
    connection.close(CLOSE_WRONG_TOKEN, b"");
    Err(ConnectError::WrongPeer)
}

fn connect_error(connection: &Connection) -> ConnectError {
    match connection.close_reason() {
        Some(ConnectionError::ApplicationClosed(close)) if close.error_code == CLOSE_WRONG_TOKEN => {
            ConnectError::WrongToken
        }
        _ => ConnectError::NoAnswer,
    }
}

/// Looks at the proof of somebody who called, and answers with ours; closes the connection if it is not good.
pub(super) async fn prove_as_acceptor(connection: &Connection, token: &Token) -> bool {
    let Ok((mut send, mut receive)) = connection.accept_bi().await else { return false };
    let theirs = receive.read_to_end(PROOF_LEN).await.unwrap_or_default();
    if !verify_proof(connection, token, ProofSide::Dialer, &theirs) {
        connection.close(CLOSE_WRONG_TOKEN, b"");
        return false;
    }
    let Some(ours) = make_proof(connection, token, ProofSide::Acceptor) else { return false };
    let sent = send.write_all(&ours).await.is_ok();
    sent && send.finish().is_ok()
}
