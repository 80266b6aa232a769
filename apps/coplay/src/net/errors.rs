//! Why a game with others could not be, as a person is told.

use coplay::session::SessionEnd;
use coplay_net::lobby::JoinRefusal;
use coplay_net::runner::RunError;

use crate::error::AppError;

/// A failure, and what can be done about it.
pub(super) fn to_app_error(failure: &RunError) -> AppError {
    let trouble = AppError::failure(failure.to_string());
    match failure {
        RunError::Unreachable { wrong_secret: false, .. } => trouble.hint(
            "is there a network, is the host still there, is the ticket copied as a whole, and does a firewall or router let UDP through?",
        ),
        RunError::Unreachable { wrong_secret: true, .. } => {
            trouble.hint("copy the whole ticket again, with what follows #; the host may have started anew")
        }
        RunError::WrongPeer { .. } => {
            trouble.hint("ask the host for the ticket that it shows now; your own ticket leads back to yourself")
        }
        RunError::Refused(JoinRefusal::Full) => {
            trouble.hint("`coplay watch` with the same ticket lets you look on; the host can start with more --players")
        }
        RunError::Refused(JoinRefusal::VersionMismatch(_)) => trouble.hint("everybody needs the same version of coplay"),
        RunError::Refused(JoinRefusal::NoSpectators) => trouble.hint("the host said --private; ask for a seat, and join"),
        RunError::Refused(JoinRefusal::WrongGameKind) => trouble.hint("`coplay maze join` with the same ticket leads in"),
        RunError::Refused(JoinRefusal::NotLeader { .. }) => trouble.hint("ask the host for its ticket"),
        RunError::GameMismatch(points) => trouble.hint(difference_hint(points)),
        RunError::UnreadableSettings => trouble.hint("everybody needs the same version of coplay"),
        RunError::InvalidSettings(_) => trouble.hint("update coplay at both ends; if that does not help, do not join this host"),
        RunError::Machine(_) => trouble.hint("start it again to come back; if that does not help, try another --core"),
        RunError::HostGone => trouble.hint("ask the host to start again"),
        RunError::SessionConfig(_) => trouble.hint("ask the host for other settings"),
        RunError::FeedDropped(_) => trouble.hint("watch again with the same ticket to come back to what is played now"),
    }
}

fn difference_hint(points: &[String]) -> &'static str {
    let about = |what: &str| points.iter().any(|point| point.contains(what));
    if about("the game") {
        "use the very same file as the host; another release or a changed copy is another game"
    } else if about("version") || about("first frames") {
        "everybody needs the same version of the machine; the built-in one comes with coplay, cores are installed"
    } else if about("the machine") {
        "play on the same machine as the host: leave --core out to have the right one found"
    } else {
        "everybody needs the same settings; leave --core out to have the host's used"
    }
}

/// Why a session ended, if that is a failure.
pub(super) fn end_error(end: &SessionEnd) -> Option<AppError> {
    match end {
        SessionEnd::Left | SessionEnd::Alone => None,
        SessionEnd::Silent(_) => Some(
            AppError::failure("nobody else was heard of for too long")
                .hint("look after the network; then the same command brings you back to your seat"),
        ),
        SessionEnd::Dropped => Some(
            AppError::failure("the others went on without us").hint("the same command brings you back to your seat"),
        ),
        SessionEnd::NoWayIn(reason) => Some(
            AppError::failure(format!("nobody could let us into the game: {reason}"))
                .hint("try the same command again"),
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
        let mut failures = vec![
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
        let elsewhere = JoinRefusal::NotLeader { leader: coplay_net::PeerKey([7; 32]), addrs: vec![host_addr()] };
        let refusals = [
            JoinRefusal::Full,
            JoinRefusal::VersionMismatch(9),
            JoinRefusal::NoSpectators,
            JoinRefusal::WrongGameKind,
            elsewhere,
        ];
        failures.extend(refusals.map(RunError::Refused));
        for failure in failures {
            let told = to_app_error(&failure).to_string();
            assert!(told.lines().count() == 2 && told.contains("\nhint: "), "{told}");
            assert_eq!(to_app_error(&failure).exit_code(), 1);
        }
    }
}
