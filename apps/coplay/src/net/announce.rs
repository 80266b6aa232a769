//! Tells a host what to give to friends.

use std::io::IsTerminal;
use std::net::SocketAddr;

use coplay_net::Transport;
use qrcode::render::unicode::Dense1x2;
use qrcode::{EcLevel, QrCode};

/// Writes the ticket to stdout, for programs; and how to use it to stderr, for people: what for, and what to type.
pub(crate) fn print_ticket(ticket: &str, uses: &[(&str, String)]) {
    crate::print_stdout(&format!("{ticket}\n"));
    if std::io::stderr().is_terminal()
        && let Some(code) = qr_code(ticket)
    {
        eprintln!("{code}");
    }
    uses.iter().for_each(|(what, command)| eprintln!("{what:<26} {command}"));
}

/// Says so if nobody elsewhere can come because there is no network; unless that is what was asked for.
pub(crate) fn warn_if_no_network(transport: &dyn Transport, asked: Option<&str>) {
    let is_loopback = |text: &str| text.parse::<SocketAddr>().is_ok_and(|addr| addr.ip().is_loopback());
    let places = transport.own_addrs();
    if !places.is_empty() && places.iter().all(|place| is_loopback(&place.0)) && !asked.is_some_and(is_loopback) {
        eprintln!("there is no network: only programs on this computer can join");
    }
}

/// A text for telephones to read, dark on light whatever the terminal's colours are.
fn qr_code(text: &str) -> Option<String> {
    let code = QrCode::with_error_correction_level(text, EcLevel::L).ok()?;
    let drawn = code.render::<Dense1x2>().dark_color(Dense1x2::Dark).light_color(Dense1x2::Light).build();
    let row = |row: &str| format!("\x1b[97;40m{row}\x1b[0m");
    Some(drawn.lines().map(row).collect::<Vec<_>>().join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn qr_code_fits_on_a_small_terminal() {
        let drawn = qr_code("udp://[2001:db8:1234:5678:9abc:def0:1234:5678]:65535#abcdefghjkmnpqrs").unwrap();
        assert!(drawn.lines().count() <= 24, "{} rows", drawn.lines().count());
        assert!(drawn.contains('█') && drawn.contains('▀'));
    }
}
