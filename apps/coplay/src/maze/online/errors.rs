//! Errors of a serverless maze as users see them, each with a hint.

use coplay_maze::{Maze, MazeSettings};
use coplay_net::lobby::JoinRefusal;
use coplay_net::mesh::MeshError;

use crate::error::AppError;

/// Converts an error of the mesh to a message with a hint for the user.
pub(super) fn to_app_error(error: &MeshError) -> AppError {
    let app_error = AppError::failure(error.to_string());
    match error {
        MeshError::Unreachable { wrong_secret: false, .. } => app_error.hint(
            "check the network connection, that the ticket is complete, that its owner is still in the maze, \
             and that firewall and router pass UDP",
        ),
        MeshError::Unreachable { wrong_secret: true, .. } => {
            app_error.hint("copy the whole ticket again, including the part after #; the maze may have been restarted")
        }
        MeshError::WrongPeer { .. } => app_error
            .hint("ask for the ticket that is shown there now, or for the ticket of another player in the maze"),
        MeshError::Refused(JoinRefusal::Full) => app_error.hint("open a maze of your own: coplay maze host"),
        MeshError::Refused(JoinRefusal::VersionMismatch(_)) | MeshError::SettingsTooLong => {
            app_error.hint("all players need the same version of coplay")
        }
        MeshError::Refused(JoinRefusal::WrongGameKind | JoinRefusal::NotLeader { .. } | JoinRefusal::NoSpectators) => {
            app_error.hint("use `coplay join` with the same ticket")
        }
        MeshError::NoReply => {
            app_error.hint("try again; put --world before the ticket if `coplay world serve` printed it")
        }
        MeshError::Multicast(_) => {
            app_error.hint("use --multicast auto, which falls back to unicast where multicast does not work")
        }
    }
}

/// Returns the error for a joined maze whose settings this version cannot decode.
pub(super) fn unknown_settings_error() -> AppError {
    AppError::failure("the settings of the maze are not supported by this version")
        .hint("all players need the same version of coplay")
}

/// Returns the error for invalid settings on the command line.
pub(super) fn invalid_settings_error() -> AppError {
    let (min, max) = (Maze::SIDE_RANGE.start(), Maze::SIDE_RANGE.end());
    AppError::usage("invalid maze settings").hint(format!(
        "--side is {min} to {max} cells; --delay and --bucket are 1 to {} ticks",
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
        let addr = PeerAddr("192.0.2.1:7000".into());
        let mut errors = vec![
            MeshError::Unreachable { addr: addr.clone(), wrong_secret: false },
            MeshError::Unreachable { addr: addr.clone(), wrong_secret: true },
            MeshError::WrongPeer { addr },
            MeshError::NoReply,
            MeshError::SettingsTooLong,
            MeshError::Multicast(MulticastError::NotUsedByMesh),
        ];
        errors.extend(
            [JoinRefusal::Full, JoinRefusal::VersionMismatch(9), JoinRefusal::WrongGameKind, JoinRefusal::NoSpectators]
                .map(MeshError::Refused),
        );
        for error in errors {
            let error = to_app_error(&error);
            assert!(error.to_string().contains("\nhint: ") && error.exit_code() == 1, "{error}");
        }
    }
}
