//! Screenshot of a window as a PNG file, taken when the game is over.

use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use coplay_shell::error::{AppError, describe_io_error};
use eframe::egui::{self, ColorImage, ScreenshotCallback, ViewportCommand};

/// Screenshot of the window at the end of a game, if a path is given.
#[derive(Clone, Debug)]
pub(super) struct Screenshot {
    path: Option<PathBuf>,
    is_requested: bool,
    result: ScreenshotResult,
}

/// Outcome of writing the file; `None` until the screenshot was taken.
type ScreenshotResult = Arc<Mutex<Option<Result<(), AppError>>>>;

impl Screenshot {
    pub(super) fn new(path: Option<PathBuf>) -> Self {
        Self { path, is_requested: false, result: ScreenshotResult::default() }
    }

    /// Requests the screenshot on the first call if there is a path. Returns whether nothing is left to do: the file
    /// was written, or writing it failed, or there is no path.
    pub(super) fn poll_done(&mut self, ctx: &egui::Context) -> bool {
        let Some(path) = &self.path else { return true };
        if !std::mem::replace(&mut self.is_requested, true) {
            let (path, result) = (path.clone(), self.result.clone());
            let callback = ScreenshotCallback::new(move |image| {
                let written = write_png(&path, &image).map_err(|why| {
                    AppError::failure(format!("cannot write {}: {why}", path.display()))
                        .hint("choose another file with --screenshot FILE")
                });
                *result.lock().unwrap_or_else(PoisonError::into_inner) = Some(written);
            });
            ctx.send_viewport_cmd(ViewportCommand::Screenshot(callback));
        }
        ctx.request_repaint();
        self.result.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Takes the outcome of writing the file; `Ok` if there was no screenshot.
    pub(super) fn outcome(&self) -> Result<(), AppError> {
        self.result.lock().unwrap_or_else(PoisonError::into_inner).take().unwrap_or(Ok(()))
    }
}

fn write_png(path: &Path, image: &ColorImage) -> Result<(), String> {
    let file = File::create(path).map_err(|error| describe_io_error(&error))?;
    let [width, height] = image.size.map(|size| size as u32);
    let mut encoder = png::Encoder::new(BufWriter::new(file), width, height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let rgb: Vec<u8> = image.pixels.iter().flat_map(|pixel| [pixel.r(), pixel.g(), pixel.b()]).collect();
    let mut writer = encoder.write_header().map_err(|error| error.to_string())?;
    writer.write_image_data(&rgb).map_err(|error| error.to_string())
}
