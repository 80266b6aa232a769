//! Images of figures.

use std::sync::Arc;

use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::fontdb::Database;
use resvg::usvg::{Options, Tree};

/// Points of the image for each of the figure.
const SCALE: f32 = 2.0;

/// An SVG of ours as PNG. The only font is the one that comes with the program: the image is the same everywhere.
pub fn render_png(svg: &str) -> Vec<u8> {
    let tree = Tree::from_str(svg, &svg_options()).expect("our own drawings are well formed");
    let size = tree.size();
    let (width, height) = ((size.width() * SCALE).ceil() as u32, (size.height() * SCALE).ceil() as u32);
    let mut pixmap = Pixmap::new(width, height).expect("our own drawings have a size");
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

/// Without what can be seen through: there is a ground under everything.
fn encode_png(pixmap: &Pixmap) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, pixmap.width(), pixmap.height());
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let colours: Vec<u8> =
        pixmap.pixels().iter().flat_map(|pixel| [pixel.red(), pixel.green(), pixel.blue()]).collect();
    let mut writer = encoder.write_header().expect("memory takes everything");
    writer.write_image_data(&colours).expect("memory takes everything");
    writer.finish().expect("memory takes everything");
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::{Figure, Panel, PlotAxis, SeriesStyle};

    /// The image of one panel with this title, as rows of colours.
    fn decoded_image(title: &str) -> (u32, Vec<u8>) {
        let panel = Panel::new(title, PlotAxis::new("x"), PlotAxis::new("y")).line(
            "l",
            SeriesStyle::First,
            [(0.0, 1.0), (1.0, 2.0)],
        );
        let bytes = render_png(&Figure::new("f", "f", "", vec![panel]).to_svg());
        let mut reader = png::Decoder::new(std::io::Cursor::new(bytes)).read_info().unwrap();
        let mut colours = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut colours).unwrap();
        (info.width, colours)
    }

    #[test]
    fn rendered_png_has_background_line_and_text() {
        let (width, colours) = decoded_image("words");
        assert_eq!(width, 1_760);
        let count = |colours: &[u8], colour: [u8; 3]| colours.chunks(3).filter(|pixel| **pixel == colour).count();
        assert!(count(&colours, [255; 3]) > 500_000, "a light ground");
        assert!(count(&colours, [0x00, 0x67, 0xa5]) > 500, "a line in its colour");
        let dark = |colours: &[u8]| colours.chunks(3).filter(|pixel| pixel.iter().all(|part| *part < 120)).count();
        assert!(dark(&colours) > dark(&decoded_image("").1) + 100, "words are drawn");
    }
}
