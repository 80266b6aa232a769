//! Errors of shared games, each with a hint for the user.

use coplay::session::SessionEnd;
use coplay_net::lobby::JoinRefusal;
use coplay_net::runner::RunError;
use coplay_shell::error::AppError;

/// Converts an error of the runner to a message with a hint for the user.
pub(super) fn to_app_error(run_error: &RunError) -> AppError {
    let error = AppError::failure(run_error.to_string());
    match run_error {
        RunError::Unreachable { wrong_secret: false, .. } => error.hint(
            "check the network connection, ask the host whether the game still runs, and copy the whole ticket again; \
             firewalls must pass UDP",
        ),
        RunError::Unreachable { wrong_secret: true, .. } => error.hint(
            "ask the host for its current ticket, and copy all of it; a host that restarted may have a new ticket",
        ),
        RunError::WrongPeer { .. } => {
            error.hint("ask the host for its current ticket; your own ticket leads back to you")
        }
        RunError::Refused(JoinRefusal::Full) => {
            error.hint("run `coplay watch 'TICKET'`, give a smaller --pads, or ask the host for more --players")
        }
        RunError::Refused(JoinRefusal::VersionMismatch(_)) | RunError::UnreadableSettings => {
            error.hint("install the same version of coplay on both computers; `coplay --version` prints it")
        }
        RunError::Refused(JoinRefusal::NoSpectators) => {
            error.hint("run `coplay join 'TICKET'` to play, or ask the host to start without --private")
        }
        RunError::Refused(JoinRefusal::WrongGameKind) => {
            error.hint("run `coplay maze join 'TICKET'` with the same ticket")
        }
        RunError::Refused(JoinRefusal::NotLeader { .. }) => error.hint("ask the host for its current ticket"),
        RunError::GameMismatch(differences) => error.hint(difference_hint(differences)),
        RunError::InvalidSettings(_) => error.hint(
            "install the newest version of coplay on both computers; if that does not help, do not join this host",
        ),
        RunError::Machine(_) => error.hint(
            "run the same command again; joiners and spectators then return to the game, and a host starts a new one; \
             if that does not help, the host can start with another --core",
        ),
        RunError::HostGone => error.hint(
            "run the same command again; if that does not help, ask the host to start the game again, and for its new \
             ticket",
        ),
        RunError::SessionConfig(_) => error.hint("start the host with other numbers for --delay and --prediction"),
        RunError::FeedDropped(_) => error.hint("run the same command again to watch from the current frame"),
    }
}

fn difference_hint(differences: &[String]) -> &'static str {
    let about = |topic: &str| differences.iter().any(|difference| difference.contains(topic));
    if about("the game") {
        "use exactly the same game file as the host; another release or a modified copy is another game"
    } else if about("the machine differs") {
        "leave out --core, so that coplay finds the host's machine"
    } else if about("option platform") {
        "this core needs the same operating system and processor type at all players; ask the host for another --core"
    } else if about("version") {
        "install the host's version of the core, or for the built-in NES the host's version of coplay"
    } else if about("first frames") {
        "use the host's BIOS images (--system DIR) and build of the core, or for the built-in NES its build of coplay"
    } else {
        "leave out --core, so that coplay uses the host's settings"
    }
}

/// Returns the error of a session that ended for this reason; `None` if the user left, or if all other players left.
pub(super) fn end_error(end: &SessionEnd) -> Option<AppError> {
    match end {
        SessionEnd::Left | SessionEnd::Alone => None,
        SessionEnd::Silent(_) => {
            Some(AppError::failure("silent players did not return within 12 times the time of --drop-after").hint(
                "check the network connection, then run the same command again: as a joiner you return to your seat, \
                 as the host you start a new game",
            ))
        }
        SessionEnd::Dropped => Some(
            AppError::failure("the other players dropped you and continued the game")
                .hint("run the same command again to return to your seat"),
        ),
        SessionEnd::NoWayIn(reason) => Some(
            AppError::failure(format!("cannot join the running game: {reason}")).hint("run the same command again"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coplay::session::SettingsError;
    use coplay_net::PeerAddr;

    fn host_addr() -> PeerAddr {
        PeerAddr("192.0.2.1:7000".into())
    }

    #[test]
    fn every_failure_has_a_hint_and_exit_code_1() {
        let mut errors = vec![
            RunError::Unreachable { addr: host_addr(), wrong_secret: false },
            RunError::Unreachable { addr: host_addr(), wrong_secret: true },
            RunError::WrongPeer { addr: host_addr() },
            RunError::GameMismatch(vec!["the game: ours a, theirs b".into()]),
            RunError::UnreadableSettings,
            RunError::InvalidSettings(SettingsError::InvalidMachineName("/".into())),
            RunError::Machine("broken".into()),
            RunError::HostGone,
            RunError::SessionConfig("so".into()),
            RunError::FeedDropped("slow".into()),
        ];
        let not_leader = JoinRefusal::NotLeader { leader: coplay_net::PeerKey([7; 32]), addrs: vec![host_addr()] };
        let refusals = [
            JoinRefusal::Full,
            JoinRefusal::VersionMismatch(9),
            JoinRefusal::NoSpectators,
            JoinRefusal::WrongGameKind,
            not_leader,
        ];
        errors.extend(refusals.map(RunError::Refused));
        for error in errors {
            let text = to_app_error(&error).to_string();
            assert!(text.lines().count() == 2 && text.contains("\nhint: "), "{text}");
            assert_eq!(to_app_error(&error).exit_code(), 1);
        }
    }
}
