//! Mutual proof that both ends of a connection know the token of the ticket, without revealing it.
//!
//! Both ends of a connection can export keying material that belongs to this connection alone (RFC 5705). A proof is a
//! hash of it, keyed with the token, one per direction, so it is worthless on any other connection. The dialer sends
//! its proof first; the acceptor answers with its own, or closes the connection.

use ::iroh::endpoint::{Connection, ConnectionError, ReadToEndError, VarInt};
use blake2::Blake2sMac;
use blake2::digest::consts::U16;
use blake2::digest::{KeyInit, Mac};

use crate::key::Token;

/// Close code: the peer does not know the token.
pub(super) const CLOSE_WRONG_TOKEN: VarInt = VarInt::from_u32(1);
/// Close code: the connection is superseded or has an unknown ALPN, or the table has no room for its peer.
pub(super) const CLOSE_NOT_NEEDED: VarInt = VarInt::from_u32(2);

const PROOF_LEN: usize = 16;

/// Reason why a connection attempt failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectError {
    /// The peer did not answer, or the connection broke.
    NoAnswer,
    /// The peer rejected this site's token.
    WrongToken,
    /// The peer's proof is invalid: it does not know this site's token.
    WrongPeer,
}

#[derive(Clone, Copy)]
enum ProofSide {
    Dialer = 1,
    Acceptor = 2,
}

fn mac(connection: &Connection, token: &Token, side: ProofSide) -> Option<Blake2sMac<U16>> {
    let mut keying_material = [0; 32];
    connection.export_keying_material(&mut keying_material, b"EXPORTER-coplay-token", &[side as u8]).ok()?;
    let mut mac = <Blake2sMac<U16> as KeyInit>::new_from_slice(token.bytes()).ok()?;
    mac.update(&keying_material);
    Some(mac)
}

fn make_proof(connection: &Connection, token: &Token, side: ProofSide) -> Option<[u8; PROOF_LEN]> {
    mac(connection, token, side).map(|mac| mac.finalize().into_bytes().into())
}

/// Verifies a proof in constant time.
fn verify_proof(connection: &Connection, token: &Token, side: ProofSide, proof: &[u8]) -> bool {
    mac(connection, token, side).is_some_and(|mac| mac.verify_slice(proof).is_ok())
}

/// Sends this site's proof to the peer that it dialed, and verifies the peer's proof.
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

/// Verifies the proof of a dialing peer and answers with this site's own; closes the connection if the proof is wrong.
/// Returns whether the peer is admitted.
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
