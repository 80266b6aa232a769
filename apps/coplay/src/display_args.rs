//! What the flags of a command choose for its display: the front end, and settings that override those of the file.

use coplay_shell::error::AppError;

use crate::cli;
use crate::config::UserSettings;
use crate::frontend::FrontendKind;

/// Returns the front end that the flags choose, by default the best available one; `None` with `--headless`. Without
/// `--headless`, fails if the requested output is not available, or if there is neither a display nor a terminal.
pub(crate) fn frontend_for(display: &cli::DisplayArgs) -> Result<Option<FrontendKind>, AppError> {
    if display.headless { Ok(None) } else { FrontendKind::choose_required(display.requested_frontend()).map(Some) }
}

/// Loads the settings, and applies `--scale` and `--mute` to them. A headless run starts from the default settings.
pub(crate) fn load_config(display: &cli::DisplayArgs) -> Result<UserSettings, AppError> {
    let mut config = if display.headless { UserSettings::default() } else { UserSettings::load()? };
    config.scale = display.scale.unwrap_or(config.scale);
    config.mute |= display.mute;
    Ok(config)
}
