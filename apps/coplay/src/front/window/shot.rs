//! The last picture of a window, as a file.

use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use eframe::egui::{self, ColorImage, ScreenshotCallback, ViewportCommand};

use crate::trouble::{Trouble, in_words};

/// A screenshot that is wanted, or not.
#[derive(Clone, Debug)]
pub(super) struct Shot {
    path: Option<PathBuf>,
    asked: bool,
    taken: Taken,
}

/// Whether it was taken, and whether that went well.
type Taken = Arc<Mutex<Option<Result<(), Trouble>>>>;

impl Shot {
    pub(super) fn new(path: Option<PathBuf>) -> Self {
        Self { path, asked: false, taken: Taken::default() }
    }

    /// Asks for the picture if it is wanted; whether nothing is left to do.
    pub(super) fn is_done(&mut self, ctx: &egui::Context) -> bool {
        let Some(path) = &self.path else { return true };
        if !std::mem::replace(&mut self.asked, true) {
            let (path, taken) = (path.clone(), self.taken.clone());
            let callback = ScreenshotCallback::new(move |image| {
                let written = write(&path, &image)
                    .map_err(|why| Trouble::failure(format!("{} cannot be written: {why}", path.display())));
                *taken.lock().unwrap_or_else(PoisonError::into_inner) = Some(written);
            });
            ctx.send_viewport_cmd(ViewportCommand::Screenshot(callback));
        }
        ctx.request_repaint();
        self.taken.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Whether all went well.
    pub(super) fn outcome(&self) -> Result<(), Trouble> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner).take().unwrap_or(Ok(()))
    }
}

fn write(path: &Path, image: &ColorImage) -> Result<(), String> {
    let file = File::create(path).map_err(|error| in_words(&error))?;
    let [width, height] = image.size.map(|size| size as u32);
    let mut encoder = png::Encoder::new(BufWriter::new(file), width, height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let rgb: Vec<u8> = image.pixels.iter().flat_map(|pixel| [pixel.r(), pixel.g(), pixel.b()]).collect();
    let mut writer = encoder.write_header().map_err(|error| error.to_string())?;
    writer.write_image_data(&rgb).map_err(|error| error.to_string())
}
