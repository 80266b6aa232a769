//! Prints the ticket of a host and the commands with which others use it, and warns if no other computer can reach the
//! host.

use std::io::IsTerminal;
use std::net::SocketAddr;

use coplay_net::Transport;
use qrcode::render::unicode::Dense1x2;
use qrcode::{EcLevel, QrCode};

/// Prints the ticket to stdout, for programs, and a QR code (if stderr is a terminal) and `uses` to stderr, for people.
/// A use is a purpose and the command to type.
pub(crate) fn print_ticket(ticket: &str, uses: &[(&str, String)]) {
    coplay_shell::print_stdout(&format!("{ticket}\n"));
    if std::io::stderr().is_terminal()
        && let Some(code) = qr_code(ticket)
    {
        eprintln!("{code}");
    }
    uses.iter().for_each(|(purpose, command)| eprintln!("{purpose:<26} {command}"));
}

/// Prints a warning if only this computer can reach the transport, unless `requested_addr` is a loopback address.
pub(crate) fn warn_if_no_network(transport: &dyn Transport, requested_addr: Option<&str>) {
    let is_loopback = |text: &str| text.parse::<SocketAddr>().is_ok_and(|addr| addr.ip().is_loopback());
    let addrs = transport.own_addrs();
    let is_local = !addrs.is_empty() && addrs.iter().all(|addr| is_loopback(&addr.0));
    if is_local && !requested_addr.is_some_and(is_loopback) {
        eprintln!("note: no network connection: only players on this computer can join");
    }
}

/// Returns a QR code of the text, dark on light in a terminal of any colours; `None` if the text is too long.
fn qr_code(text: &str) -> Option<String> {
    let code = QrCode::with_error_correction_level(text, EcLevel::L).ok()?;
    let image = code.render::<Dense1x2>().dark_color(Dense1x2::Dark).light_color(Dense1x2::Light).build();
    let row = |row: &str| format!("\x1b[97;40m{row}\x1b[0m");
    Some(image.lines().map(row).collect::<Vec<_>>().join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn qr_code_fits_on_a_small_terminal() {
        let code = qr_code("udp://[2001:db8:1234:5678:9abc:def0:1234:5678]:65535#abcdefghjkmnpqrs").unwrap();
        assert!(code.lines().count() <= 24, "{} rows", code.lines().count());
        assert!(code.contains('█') && code.contains('▀'));
    }
}
