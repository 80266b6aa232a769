//! `--delay` and `--prediction`: their values, and the delay settings that the two flags describe together.

use coplay_shell::error::AppError;

/// Largest `--delay` and `--prediction` of a shared game, in frames.
pub const MAX_DELAY_FRAMES: u32 = 60;

/// Value of `--delay` or `--prediction`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AutoOrFrames {
    /// The engine adapts the value to links and machines.
    Auto,
    /// Fixed number of frames.
    Frames(u32),
}

/// Returns a parser of `auto` or a number of frames from 0 to `max`.
pub(super) fn auto_or_frames(
    max: u32,
) -> impl Fn(&str) -> Result<AutoOrFrames, String> + Clone + Send + Sync + 'static {
    move |text| match text.parse() {
        _ if text == "auto" => Ok(AutoOrFrames::Auto),
        Ok(frames) if frames <= max => Ok(AutoOrFrames::Frames(frames)),
        _ => Err(format!("must be `auto` or a number of frames from 0 to {max}")),
    }
}

/// Returns the fixed input delay and prediction window, or `None` for automatic ones.
///
/// The engine adapts both values or neither. If only one flag is given, `auto` makes both values automatic, and a
/// number takes the other value from `defaults` (input delay, prediction window). If neither flag is given, returns
/// `unset`. Fails if one flag is `auto` and the other a number.
pub fn fixed_delays(
    delay: Option<AutoOrFrames>,
    prediction: Option<AutoOrFrames>,
    defaults: (u32, u32),
    unset: Option<(u32, u32)>,
) -> Result<Option<(u32, u32)>, AppError> {
    use AutoOrFrames::{Auto, Frames};
    Ok(match (delay, prediction) {
        (None, None) => unset,
        (Some(Auto), None | Some(Auto)) | (None, Some(Auto)) => None,
        (Some(Frames(delay)), Some(Frames(prediction))) => Some((delay, prediction)),
        (Some(Frames(delay)), None) => Some((delay, defaults.1)),
        (None, Some(Frames(prediction))) => Some((defaults.0, prediction)),
        (Some(Auto), Some(Frames(_))) | (Some(Frames(_)), Some(Auto)) => {
            return Err(AppError::usage("--delay and --prediction must be both `auto` or both a number of frames")
                .hint("give numbers or `auto` for both, or leave both out"));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delay_flags_are_auto_or_a_frame_count() {
        let parse = auto_or_frames(60);
        assert_eq!(
            (parse("auto"), parse("0"), parse("60")),
            (Ok(AutoOrFrames::Auto), Ok(AutoOrFrames::Frames(0)), Ok(AutoOrFrames::Frames(60)))
        );
        for wrong in ["", "61", "-1", "many", "Auto"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn delay_and_prediction_are_both_auto_or_both_fixed() {
        let (auto, three) = (Some(AutoOrFrames::Auto), Some(AutoOrFrames::Frames(3)));
        let fixed = |delay, prediction| fixed_delays(delay, prediction, (2, 8), Some((2, 8)));
        assert_eq!((fixed(None, None), fixed_delays(None, None, (2, 8), None)), (Ok(Some((2, 8))), Ok(None)));
        for (delay, prediction) in [(auto, None), (None, auto), (auto, auto)] {
            assert_eq!(fixed(delay, prediction), Ok(None));
        }
        assert_eq!(fixed(three, Some(AutoOrFrames::Frames(0))), Ok(Some((3, 0))));
        assert_eq!((fixed(three, None), fixed(None, three)), (Ok(Some((3, 8))), Ok(Some((2, 3)))));
        assert!(fixed(auto, three).is_err() && fixed(three, auto).is_err());
    }
}
