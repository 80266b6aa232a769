use super::*;

fn test_figure(panels: Vec<Panel>) -> Figure {
    Figure::new("f", "A <figure> & \"more\"", "", panels)
}

fn test_panel() -> Panel {
    let x = || (0..5).map(f64::from);
    Panel::new("Everything at once", PlotAxis::new("x"), PlotAxis::new("y"))
        .line("a line", SeriesStyle::First, x().map(|x| (x, x)))
        .dashed("dashes", SeriesStyle::Second, x().map(|x| (x, 2.0 * x)))
        .steps("steps", SeriesStyle::Third, x().map(|x| (x, 3.0)))
        .points("points", SeriesStyle::PaperText, x().map(|x| (x, 4.0)))
        .band(SeriesStyle::First, x().map(|x| (x, x - 0.5, x + 0.5)))
        .vertical_bound(2.0, "a bound")
        .horizontal_bound(3.5, "another")
}

#[test]
fn figure_is_valid_xml_and_names_each_series_once() {
    let svg = test_figure(vec![test_panel(), test_panel()]).to_svg();
    assert!(resvg::usvg::roxmltree::Document::parse(&svg).is_ok(), "{svg}");
    for name in ["a line", "dashes", "steps", "points"] {
        assert_eq!(svg.matches(&format!(">{name}<")).count(), 1, "{name}");
    }
    assert!(svg.contains("A &lt;figure&gt; &amp; &quot;more&quot;"));
}

#[test]
fn single_panel_labels_series_beside_it() {
    let svg = test_figure(vec![test_panel()]).to_inline_svg();
    assert_eq!(svg.matches(">a line<").count(), 1);
    assert!(svg.contains("leader") && !svg.contains("<style>"));
}

#[test]
fn empty_figure_is_drawn_without_nan() {
    let empty = Panel::new("", PlotAxis::new(""), PlotAxis::logarithmic("")).line("none", SeriesStyle::First, []);
    let svg = test_figure(vec![empty.clone(), empty]).columns(2).to_svg();
    assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
}

#[test]
fn nan_points_are_skipped() {
    let panel = Panel::new("", PlotAxis::new("x"), PlotAxis::new("y")).line(
        "l",
        SeriesStyle::First,
        [(0.0, f64::NAN), (1.0, 2.0)],
    );
    assert!(!test_figure(vec![panel]).to_svg().contains("NaN"));
}

#[test]
fn bars_of_several_series_are_drawn_side_by_side() {
    let names = PlotAxis::categorical("", ["one", "two"]);
    let panel = Panel::new("", names, PlotAxis::new("y")).bars("a", SeriesStyle::First, [1.0, 2.0]).bars(
        "b",
        SeriesStyle::Paper,
        [2.0, 0.0],
    );
    assert_eq!(
        test_figure(vec![panel]).to_svg().matches("class=\"bar ").count(),
        5,
        "three bars above zero, and two legend samples"
    );
}
