//! Why a maze with others could not be, as a person is told.

use coplay_maze::{Maze, MazeSettings};
use coplay_net::lobby::JoinRefusal;
use coplay_net::mesh::MeshError;

use crate::error::AppError;

/// A failure, and what can be done about it.
pub(super) fn to_app_error(failure: &MeshError) -> AppError {
    let trouble = AppError::failure(failure.to_string());
    match failure {
        MeshError::Unreachable { wrong_secret: false, .. } => trouble.hint(
            "is there a network, is whoever gave the ticket still there, is it copied as a whole, and does a firewall or router let UDP through?",
        ),
        MeshError::Unreachable { wrong_secret: true, .. } => {
            trouble.hint("copy the whole ticket again, with what follows #; the maze may have been started anew")
        }
        MeshError::WrongPeer { .. } => trouble.hint("ask for the ticket that is shown there now, or for that of anybody else in the maze"),
        MeshError::Refused(JoinRefusal::Full) => trouble.hint("open a maze of your own: coplay maze host"),
        MeshError::Refused(JoinRefusal::VersionMismatch(_)) | MeshError::SettingsTooLong => trouble.hint("everybody needs the same version of coplay"),
        MeshError::Refused(JoinRefusal::WrongGameKind | JoinRefusal::NotLeader { .. } | JoinRefusal::NoSpectators) => {
            trouble.hint("`coplay join` with the same ticket leads in")
        }
        MeshError::NoReply => trouble.hint("try again; and if it is a server of a world that gave the ticket, with --world in front of it"),
        MeshError::Multicast(_) => trouble.hint("say --multicast auto, and everybody is reached one by one where it does not work"),
    }
}

/// What is agreed on there says nothing to us.
pub(super) fn unknown_settings_error() -> AppError {
    AppError::failure("their maze follows rules that we do not know").hint("everybody needs the same version of coplay")
}

/// What we would agree on is no maze.
pub(super) fn invalid_settings_error() -> AppError {
    let (least, most) = (Maze::SIDE_RANGE.start(), Maze::SIDE_RANGE.end());
    AppError::usage("there can be no such maze").hint(format!(
        "it has {least} to {most} cells each way, and a delay and a bucket of 1 to {} ticks",
        MazeSettings::MAX_TICKS
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use coplay_net::PeerAddr;
    use coplay_net::mesh::MulticastError;

    #[test]
    fn every_failure_has_a_hint_and_exit_code_1() {
        let place = PeerAddr("192.0.2.1:7000".into());
        let mut failures = vec![
            MeshError::Unreachable { addr: place.clone(), wrong_secret: false },
            MeshError::Unreachable { addr: place.clone(), wrong_secret: true },
            MeshError::WrongPeer { addr: place },
            MeshError::NoReply,
            MeshError::SettingsTooLong,
            MeshError::Multicast(MulticastError::NotUsedByMesh),
        ];
        failures.extend(
            [JoinRefusal::Full, JoinRefusal::VersionMismatch(9), JoinRefusal::WrongGameKind, JoinRefusal::NoSpectators]
                .map(MeshError::Refused),
        );
        for failure in failures {
            let told = to_app_error(&failure);
            assert!(told.to_string().contains("\nhint: ") && told.exit_code() == 1, "{told}");
        }
    }
}
