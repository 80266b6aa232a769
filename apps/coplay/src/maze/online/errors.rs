//! Errors of a serverless maze as users see them, each with a hint.

use coplay_maze::{Maze, MazeSettings};
use coplay_net::lobby::JoinRefusal;
use coplay_net::mesh::MeshError;
use coplay_shell::error::AppError;

/// Hint about different versions of the program.
const SAME_VERSION: &str = "install the same version of coplay on all computers; `coplay --version` prints it";

/// Converts an error of the mesh to a message with a hint for the user.
pub(super) fn to_app_error(error: &MeshError) -> AppError {
    let app_error = AppError::failure(error.to_string());
    match error {
        MeshError::Unreachable { wrong_secret: false, .. } => app_error.hint(
            "ask the player who gave you the ticket whether the maze still runs, and run `coplay maze join 'TICKET'` \
             again; firewalls must pass UDP",
        ),
        MeshError::Unreachable { wrong_secret: true, .. } => {
            app_error.hint("ask for the current ticket, copy all of it, and run `coplay maze join 'TICKET'`")
        }
        MeshError::WrongPeer { .. } => {
            app_error.hint("ask for the current ticket of that player, or of another player in the maze")
        }
        MeshError::Refused(JoinRefusal::Full) => app_error.hint("open another maze with `coplay maze host`"),
        MeshError::Refused(JoinRefusal::VersionMismatch(_)) | MeshError::SettingsTooLong => {
            app_error.hint(SAME_VERSION)
        }
        MeshError::Refused(JoinRefusal::WrongGameKind | JoinRefusal::NotLeader { .. } | JoinRefusal::NoSpectators) => {
            app_error.hint("run `coplay join 'TICKET'` with the same ticket")
        }
        MeshError::NoReply => app_error
            .hint("run the same command again; if `coplay world serve` printed the ticket, put --world before it"),
        MeshError::Multicast(_) => {
            app_error.hint("use --multicast auto, which uses unicast where multicast does not work")
        }
    }
}

/// Returns the error for a joined maze whose settings this version cannot decode.
pub(super) fn unknown_settings_error() -> AppError {
    AppError::failure("this version of coplay cannot read the settings of the maze").hint(SAME_VERSION)
}

/// Returns the error for invalid settings on the command line.
pub(super) fn invalid_settings_error() -> AppError {
    let (min, max) = (Maze::SIDE_RANGE.start(), Maze::SIDE_RANGE.end());
    AppError::usage("invalid maze settings").hint(format!(
        "set --side to {min} to {max} cells, and --playout-delay and --bucket to 10 to {} ms",
        MazeSettings::MAX_TICKS * 10
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
