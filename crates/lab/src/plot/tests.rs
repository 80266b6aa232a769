use super::*;

fn figure(panels: Vec<Panel>) -> Figure {
    Figure::new("f", "A <figure> & \"more\"", "", panels)
}

fn panel() -> Panel {
    let x = || (0..5).map(f64::from);
    Panel::new("Everything at once", Axis::new("x"), Axis::new("y"))
        .line("a line", Ink::First, x().map(|x| (x, x)))
        .dashed("dashes", Ink::Second, x().map(|x| (x, 2.0 * x)))
        .steps("steps", Ink::Third, x().map(|x| (x, 3.0)))
        .points("points", Ink::Words, x().map(|x| (x, 4.0)))
        .band(Ink::First, x().map(|x| (x, x - 0.5, x + 0.5)))
        .vertical(2.0, "a bound")
        .horizontal(3.5, "another")
}

#[test]
fn a_figure_is_well_formed_and_says_all_names_once() {
    let svg = figure(vec![panel(), panel()]).to_svg();
    assert!(resvg::usvg::roxmltree::Document::parse(&svg).is_ok(), "{svg}");
    for name in ["a line", "dashes", "steps", "points"] {
        assert_eq!(svg.matches(&format!(">{name}<")).count(), 1, "{name}");
    }
    assert!(svg.contains("A &lt;figure&gt; &amp; &quot;more&quot;"));
}

#[test]
fn one_panel_alone_has_its_names_beside_it() {
    let svg = figure(vec![panel()]).to_inline_svg();
    assert_eq!(svg.matches(">a line<").count(), 1);
    assert!(svg.contains("leader") && !svg.contains("<style>"));
}

#[test]
fn nothing_at_all_can_be_drawn() {
    let empty = Panel::new("", Axis::new(""), Axis::logarithmic("")).line("none", Ink::First, []);
    let svg = figure(vec![empty.clone(), empty]).columns(2).to_svg();
    assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
}

#[test]
fn what_is_no_number_is_left_out() {
    let panel = Panel::new("", Axis::new("x"), Axis::new("y")).line("l", Ink::First, [(0.0, f64::NAN), (1.0, 2.0)]);
    assert!(!figure(vec![panel]).to_svg().contains("NaN"));
}

#[test]
fn bars_stand_side_by_side() {
    let names = Axis::of_names("", ["one", "two"]);
    let panel =
        Panel::new("", names, Axis::new("y")).bars("a", Ink::First, [1.0, 2.0]).bars("b", Ink::Paper, [2.0, 0.0]);
    assert_eq!(
        figure(vec![panel]).to_svg().matches("class=\"bar ").count(),
        5,
        "three that are something, and two samples"
    );
}
