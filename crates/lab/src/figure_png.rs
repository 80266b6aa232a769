//! Renders figures as PNG images.

use std::sync::Arc;

use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::fontdb::Database;
use resvg::usvg::{Options, Tree};

/// Image pixels per SVG unit.
const SCALE: f32 = 2.0;

/// Renders one of our SVGs as PNG. The only font is the one embedded in the program, so the image is the same on every
/// computer.
pub fn render_png(svg: &str) -> Vec<u8> {
    let tree = Tree::from_str(svg, &svg_options()).expect("our own SVGs are well formed");
    let size = tree.size();
    let (width, height) = ((size.width() * SCALE).ceil() as u32, (size.height() * SCALE).ceil() as u32);
    let mut pixmap = Pixmap::new(width, height).expect("our own SVGs have a size");
    resvg::render(&tree, Transform::from_scale(SCALE, SCALE), &mut pixmap.as_mut());
    encode_png(&pixmap)
}

fn svg_options() -> Options<'static> {
    let mut fonts = Database::new();
    fonts.load_font_data(epaint_default_fonts::UBUNTU_LIGHT.to_vec());
    let family = fonts.faces().flat_map(|face| face.families.first()).map(|(name, _)| name.clone()).next();
    let family = family.unwrap_or_default();
    fonts.set_sans_serif_family(family.clone());
    Options { fontdb: Arc::new(fonts), font_family: family, ..Options::default() }
}

/// Encodes the image without an alpha channel, since every figure has an opaque background.
fn encode_png(pixmap: &Pixmap) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, pixmap.width(), pixmap.height());
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let rgb: Vec<u8> = pixmap.pixels().iter().flat_map(|pixel| [pixel.red(), pixel.green(), pixel.blue()]).collect();
    let mut writer = encoder.write_header().expect("writing to memory cannot fail");
    writer.write_image_data(&rgb).expect("writing to memory cannot fail");
    writer.finish().expect("writing to memory cannot fail");
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::{Figure, Panel, PlotAxis, SeriesStyle};

    /// Returns the width and the RGB bytes of a rendered figure with one panel titled `title`.
    fn decoded_image(title: &str) -> (u32, Vec<u8>) {
        let panel = Panel::new(title, PlotAxis::new("x"), PlotAxis::new("y")).line(
            "l",
            SeriesStyle::First,
            [(0.0, 1.0), (1.0, 2.0)],
        );
        let bytes = render_png(&Figure::new("f", "f", "", vec![panel]).to_svg());
        let mut reader = png::Decoder::new(std::io::Cursor::new(bytes)).read_info().unwrap();
        let mut rgb = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut rgb).unwrap();
        (info.width, rgb)
    }

    #[test]
    fn rendered_png_has_background_line_and_text() {
        let (width, rgb) = decoded_image("words");
        assert_eq!(width, 1_760);
        let count = |rgb: &[u8], colour: [u8; 3]| rgb.chunks(3).filter(|pixel| **pixel == colour).count();
        assert!(count(&rgb, [255; 3]) > 500_000, "a light background");
        assert!(count(&rgb, [0x00, 0x67, 0xa5]) > 500, "a line in the series' colour");
        let dark = |rgb: &[u8]| rgb.chunks(3).filter(|pixel| pixel.iter().all(|part| *part < 120)).count();
        assert!(dark(&rgb) > dark(&decoded_image("").1) + 100, "the title is drawn");
    }
}
