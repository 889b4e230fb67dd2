//! Each kind of picture, and what is no picture.

use roxmltree::{Document, Node};

use super::unit::Unit;
use super::*;
use crate::experiment::Environment;

fn lines() -> Chart {
    Chart::lines("Lines")
        .x("packet size", Unit::Bytes)
        .y("CPU per packet", Unit::Nanoseconds)
}

fn bars() -> Chart {
    Chart::bars("Bars").categories(["c", "d"])
}

/// One of each kind, with all that it can have.
fn gallery() -> Vec<(&'static str, Chart)> {
    let environment = Environment::here("0.1.0 (abcdef0)", "onrush-lab bench nothing --quick");
    let long = "a path with the very longest of all names that anybody had";
    let mut log = lines().log_x(2).log_y(10).source(&environment);
    let mut flat = Chart::bars("Processor time of each path, in both modes")
        .categories([long, "sendfile", "x<&>"])
        .y("CPU", Unit::Named("ns/packet"))
        .source(&environment);
    let mut stack = Chart::stacked("Where the time goes")
        .categories(["sendto", "sendmmsg", "sendmmsg_gso"])
        .y("CPU per packet", Unit::Nanoseconds);
    for (i, name) in (1_u32..).zip([
        "sendto",
        "sendmmsg_gso",
        "uring_zc",
        "a",
        "b",
        "c",
        "d",
        "e",
    ]) {
        let value = |at: f64| Value {
            at: Some(at),
            interval: Some((at * 0.9, at * 1.15)),
        };
        let factor = f64::from(i * i);
        let sizes = [64.0, 256.0, 1472.0, 4096.0, 16_384.0];
        log = log.series(name, sizes.map(|x| (x, value(40.0 * factor + x / 50.0))));
        flat = flat.values(
            name,
            [value(40.0 * factor), Value::default(), value(30.0 * factor)],
        );
        stack = stack.values(name, [100.0 * factor, 50.0, 10.0 * factor]);
    }
    let steps = Chart::steps("Lateness of packets")
        .x("lateness", Unit::Nanoseconds)
        .log_x(10)
        .y("packets", Unit::Count)
        .mark_x(2e7, "20 ms")
        .mark_x(2.2e7, "and a bit")
        .series(
            "engine",
            [(1e3, 10.0), (1e4, 70_000.0), (1e5, 20_000.0), (5e7, 0.0)],
        )
        .series(
            "loop",
            [(1e3, 0.0), (1e4, 7000.0), (1e6, 60_000.0), (5e7, 100.0)],
        )
        .source(&environment);
    [
        ("log", log),
        ("bars", flat),
        ("stacked", stack),
        ("steps", steps),
    ]
    .into()
}

fn count(svg: &str, tag: &str) -> usize {
    let document = Document::parse(svg).expect("well-formed");
    let is_it = |node: &Node<'_, '_>| node.tag_name().name() == tag;
    document.descendants().filter(is_it).count()
}

fn has_text(chart: &Chart, text: &str) -> bool {
    let svg = chart.render().unwrap();
    let document = Document::parse(&svg).expect("well-formed");
    let mut texts = document
        .descendants()
        .filter(|node| node.has_tag_name("text"));
    texts.any(|node| node.text() == Some(text))
}

/// With ONRUSH_PLOTS=DIR the pictures are written there, to be looked at.
#[test]
fn every_kind_of_picture_is_well_formed_and_described() {
    for (name, chart) in gallery() {
        let svg = chart.render().unwrap();
        if let Some(folder) = std::env::var_os("ONRUSH_PLOTS") {
            let file = std::path::Path::new(&folder).join(format!("{name}.svg"));
            std::fs::write(file, &svg).unwrap();
        }
        let document = Document::parse(&svg).unwrap_or_else(|error| panic!("{name}: {error}"));
        let root = document.root_element();
        assert_eq!(root.attribute("role"), Some("img"), "{name}");
        let first: Vec<_> = root.children().filter(Node::is_element).take(2).collect();
        assert_eq!(first[0].text(), Some(chart.title()), "{name}");
        let description = first[1].text().unwrap();
        for series in &chart.table().0[1..] {
            assert!(description.contains(series), "{name}: {description}");
        }
        assert!(svg.len() < 64 << 10, "{name}: {} bytes", svg.len());
        assert!(svg.contains("prefers-color-scheme:dark"), "{name}");
        assert!(!chart.render_inline().unwrap().contains("<style"), "{name}");
    }
}

#[test]
fn nothing_reaches_over_the_edge() {
    for (name, chart) in gallery() {
        let svg = chart.render().unwrap();
        let document = Document::parse(&svg).unwrap();
        let size = |name| {
            document
                .root_element()
                .attribute(name)
                .unwrap()
                .parse()
                .unwrap()
        };
        let (width, height): (f64, f64) = (size("width"), size("height"));
        let sides = [
            ("x", width),
            ("x1", width),
            ("x2", width),
            ("y", height),
            ("y2", height),
        ];
        for node in document.descendants() {
            for (attribute, max) in sides {
                let at: Option<f64> = node.attribute(attribute).map(|at| at.parse().unwrap());
                assert!(
                    at.is_none_or(|at| (0.0..=max).contains(&at)),
                    "{name}: {node:?}"
                );
            }
        }
    }
}

#[test]
fn names_are_text_whatever_is_in_them() {
    let odd = "<script>alert('&\"')</script>\u{1}\u{0}\u{fffe}";
    let kept = "<script>alert('&\"')</script>\u{fffd}\u{fffd}\u{fffd}";
    let chart = Chart::lines(odd)
        .x(odd, Unit::Count)
        .y(odd, Unit::Count)
        .series(odd, [(1.0, 1.0)])
        .series("b", [(1.0, 1.0)])
        .mark_x(1.0, odd);
    let svg = chart.render().unwrap();
    assert_eq!(count(&svg, "script"), 0);
    let document = Document::parse(&svg).unwrap();
    let texts = document
        .descendants()
        .filter(|node| node.has_tag_name("text"));
    let told = texts.filter(|node| node.text() == Some(kept)).count();
    assert_eq!(told, 5, "title, both axes, legend, mark");
    let bars = Chart::bars("b").categories([odd]).values("s", [1.0]);
    assert!(has_text(&bars, kept));
}

#[test]
fn without_points_it_says_so() {
    let half = lines()
        .series("a", [(1.0, None::<f64>)])
        .series("b", [(1.0, 2.0)]);
    assert!(has_text(&half, "a (no data)") && !has_text(&half, "no data"));
    let empty = lines().series("a", Vec::<(f64, f64)>::new());
    for chart in [lines(), empty, Chart::bars("empty"), Chart::stacked("e")] {
        assert!(has_text(&chart, "no data"), "{chart:?}");
    }
}

#[test]
fn a_single_point_is_a_marker_and_a_gap_is_no_line() {
    let drawn = |points: &[Option<f64>]| {
        let points = (1..).map(f64::from).zip(points.iter().copied());
        let svg = lines().series("a", points).render().unwrap();
        (count(&svg, "path"), count(&svg, "polyline"))
    };
    assert_eq!(drawn(&[Some(90.0)]), (1, 0));
    assert_eq!(drawn(&[Some(1.0), Some(2.0), Some(3.0), Some(1.0)]), (4, 1));
    assert_eq!(
        drawn(&[Some(1.0), Some(2.0), None, Some(1.0), Some(2.0)]),
        (4, 2)
    );
}

#[test]
fn what_has_no_place_is_refused() {
    let is_refused = |chart: Chart| chart.render().is_err();
    let interval = |high| Value {
        at: Some(1.0),
        interval: Some((0.5, high)),
    };
    for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        assert!(is_refused(lines().series("a", [(1.0, bad)])));
        assert!(is_refused(lines().series("a", [(bad, 1.0)])));
        assert!(is_refused(lines().mark_x(bad, "m")));
        assert!(is_refused(lines().series("a", [(1.0, interval(bad))])));
        assert!(is_refused(bars().values("a", [bad, 1.0])));
    }
    for bad in [0.0, -1.0] {
        assert!(is_refused(lines().log_y(10).series("a", [(1.0, bad)])));
        assert!(is_refused(lines().log_x(2).series("a", [(bad, 1.0)])));
        assert!(is_refused(
            lines().log_y(10).series("a", [(1.0, interval(bad))])
        ));
        assert!(!is_refused(lines().series("a", [(bad, bad)])));
    }
    let error = bars().values("a", [1.0]).render().unwrap_err();
    assert_eq!(
        error.to_string(),
        "a: 1 values for 2 categories; give one for each"
    );
}

#[test]
fn there_are_as_many_series_as_can_be_told_apart() {
    let points = || [(0.0, 1.0), (1.0, 1.0)];
    let many = |chart: Chart, count| {
        (0..count)
            .fold(chart, |chart, i| chart.series(&i.to_string(), points()))
            .render()
    };
    for (chart, max) in [(lines(), SERIES_MAX), (bars(), BAR_SERIES_MAX)] {
        assert!(many(chart.clone(), max).is_ok());
        assert!(many(chart, max + 1).is_err());
    }
}

#[test]
fn bars_begin_at_zero_and_are_as_long_as_their_values() {
    let svg = bars()
        .log_y(10)
        .values("a", [100.0, 50.0])
        .render()
        .unwrap();
    let document = Document::parse(&svg).unwrap();
    let bars = document
        .descendants()
        .filter(|node| node.has_tag_name("rect"));
    let number = |node: Node<'_, '_>, name| -> f64 {
        node.attribute(name)
            .map_or(0.0, |number| number.parse().unwrap())
    };
    let bars: Vec<_> = bars
        .skip(1)
        .map(|bar| (number(bar, "x"), number(bar, "width")))
        .collect();
    assert_eq!(bars[0].0, bars[1].0);
    assert!((bars[0].1 / bars[1].1 - 2.0).abs() < 0.01, "{bars:?}");
}
