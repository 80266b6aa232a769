//! Styles of figures: colours that are distinguishable with colour blindness (Okabe and Ito), for light and dark
//! backgrounds.

/// Colour and marker of a series, by its role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeriesStyle {
    /// The paper's method, a baseline, or another series in contrast to ours.
    Paper,
    /// First of our variants in a figure.
    First,
    /// Second of our variants in a figure.
    Second,
    /// Third of our variants in a figure.
    Third,
    /// Fourth of our variants in a figure.
    Fourth,
    /// Fifth of our variants in a figure.
    Fifth,
    /// Values quoted from a paper's text or computed by a formula, and marks of events such as pauses.
    PaperText,
}

impl SeriesStyle {
    /// Styles for several series that differ in one parameter, in the order in which a figure uses them.
    pub const SEQUENCE: [Self; 6] = [Self::First, Self::Second, Self::Third, Self::Fourth, Self::Fifth, Self::Paper];

    pub(super) fn css_class(self) -> &'static str {
        match self {
            Self::Paper => "paper",
            Self::First => "first",
            Self::Second => "second",
            Self::Third => "third",
            Self::Fourth => "fourth",
            Self::Fifth => "fifth",
            Self::PaperText => "words",
        }
    }
}

/// Colours of the series styles: CSS class, colour on a light background, colour on a dark background.
const COLOURS: [(&str, &str, &str); 7] = [
    ("paper", "#c8500a", "#f08a4b"),
    ("first", "#0067a5", "#5ab4f0"),
    ("second", "#00855f", "#3cc8a0"),
    ("third", "#a8508c", "#e08cc0"),
    ("fourth", "#b07d00", "#e6b432"),
    ("fifth", "#4b9bd2", "#96d2ff"),
    ("words", "#3c3c46", "#d2d2dc"),
];

/// Style rules of all classes, without colours.
const BASE_CSS: &str = "
.plot text{font-family:Ubuntu-Light,Ubuntu,'Segoe UI','Helvetica Neue',Arial,sans-serif;font-size:13px}
.plot .title{font-size:15px}
.plot .end{text-anchor:end}
.plot .middle{text-anchor:middle}
.plot .grid,.plot .base,.plot .bound,.plot .leader,.plot .line{fill:none}
.plot .grid{stroke-width:1}
.plot .base{stroke-width:1}
.plot .bound{stroke-width:1.5;stroke-dasharray:2 4;stroke-linecap:round}
.plot .leader{stroke-width:.75}
.plot .line{stroke-width:2.25;stroke-linejoin:round;stroke-linecap:round}
.plot .dashed{stroke-dasharray:7 5}
.plot .thin{stroke-width:1.25}
.plot .band{fill-opacity:.2}
.plot .dot{stroke-width:1.25}
.plot .speck{fill-opacity:.7}
.plot .halo{paint-order:stroke;stroke-width:4px;stroke-linejoin:round}
";

/// Returns the colour rules for a light or dark background, for elements below the CSS selector `scope`.
fn color_css(
    scope: &str,
    pick: fn(&(&str, &'static str, &'static str)) -> &'static str,
    background: [&str; 4],
) -> String {
    let [paper, text, faint, grid] = background;
    let mut css = format!(
        "{scope} .ground{{fill:{paper}}}{scope} text{{fill:{text}}}{scope} .faint{{fill:{faint}}}\
         {scope} .grid{{stroke:{grid}}}{scope} .base{{stroke:{faint}}}{scope} .bound{{stroke:{text}}}{scope} .leader{{stroke:{faint}}}\
         {scope} .dot,{scope} .halo{{stroke:{paper}}}\n"
    );
    for colour in &COLOURS {
        let (class, shade) = (colour.0, pick(colour));
        css += &format!(
            "{scope} .line.{class}{{stroke:{shade}}}{scope} .band.{class},{scope} .dot.{class},{scope} .speck.{class},{scope} .bar.{class},{scope} text.{class}{{fill:{shade}}}\n"
        );
    }
    css
}

fn light_css(scope: &str) -> String {
    color_css(scope, |colour| colour.1, ["#ffffff", "#1e1e26", "#6a6a76", "#e6e6ec"])
}

fn dark_css(scope: &str) -> String {
    color_css(scope, |colour| colour.2, ["#16181d", "#e6e6ee", "#9a9aa8", "#2c2f38"])
}

/// Returns the style of a page with inline figures, for light and dark backgrounds.
pub fn page_css() -> String {
    format!("{BASE_CSS}{}@media(prefers-color-scheme:dark){{{}}}", light_css(".plot"), dark_css(".plot"))
}

/// Returns the style element of a stand-alone figure.
pub(super) fn file_css() -> String {
    format!("<style>{BASE_CSS}{}</style>", light_css(".plot"))
}
