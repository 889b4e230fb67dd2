//! Each kind of picture, and what is no picture.

use std::fs;

use roxmltree::{Document, Node};

use super::*;

fn lines() -> Chart {
    Chart::lines("Lines")
        .x("packet size", Unit::Bytes)
        .y("CPU per packet", Unit::Nanoseconds)
}

/// One of each kind, with all that it can have.
fn gallery() -> Vec<(&'static str, Chart)> {
    let environment = Environment::here("0.1.0 (abcdef0)", "onrush-lab bench nothing --quick");
    let names = [
        "sendto",
        "sendmmsg",
        "sendmmsg_gso",
        "uring_zc",
        "sendfile_gso",
        "group",
        "mmap",
        "read",
    ];
    let sizes = [64.0, 256.0, 1024.0, 1472.0, 4096.0, 16_384.0];
    let mut log = lines().log_x(2).log_y(10).source(&environment);
    let mut flat = Chart::bars("Processor time of each path, in both modes")
        .categories([
            "a path with the very longest of all names that anybody had",
            "sendfile",
            "x<&>",
        ])
        .y("CPU", Unit::Named("ns/packet"))
        .source(&environment);
    let mut stack = Chart::stacked("Where the time goes")
        .categories(["sendto", "sendmmsg", "sendmmsg_gso"])
        .y("CPU per packet", Unit::Nanoseconds);
    for (i, name) in (1_u32..).zip(names) {
        let factor = f64::from(i * i);
        let points = sizes.map(|x: f64| (x, 40.0 * factor + x * factor / 50.0));
        let with_interval = points.map(|(x, y)| {
            let value = Value {
                at: Some(y),
                interval: Some((y * 0.9, y * 1.15)),
            };
            (
                x,
                if i == 2 && x == 1024.0 {
                    Value::default()
                } else {
                    value
                },
            )
        });
        log = log.series(name, with_interval);
        flat = flat.values(
            name,
            [
                Value::from(40.0 * factor),
                Value::default(),
                Value {
                    at: Some(30.0 * factor),
                    interval: Some((25.0 * factor, 36.0 * factor)),
                },
            ],
        );
        stack = stack.values(name, [100.0 * factor, 50.0, 10.0 * factor]);
    }
    let wave = |phase: f64| {
        (0..400)
            .map(f64::from)
            .map(move |x| (x, 50.0 + 45.0 * (x / 40.0 + phase).sin()))
    };
    let mut sixteen = Chart::lines("Sixteen series")
        .x("clients", Unit::Count)
        .y("load", Unit::Percent);
    for i in 0..16 {
        sixteen = sixteen.series(&format!("series {i}"), wave(f64::from(i) / 8.0));
    }
    let steps = Chart::steps("Lateness of packets")
        .x("lateness", Unit::Nanoseconds)
        .log_x(10)
        .y("packets", Unit::Count)
        .mark_x(2e7, "20 ms")
        .mark_x(2.2e7, "and a bit")
        .series(
            "engine",
            [
                (1e3, 10.0),
                (1e4, 70_000.0),
                (1e5, 20_000.0),
                (1e6, 100.0),
                (5e7, 0.0),
            ],
        )
        .series(
            "loop",
            [
                (1e3, 0.0),
                (1e4, 7000.0),
                (1e5, 20_000.0),
                (1e6, 60_000.0),
                (5e7, 100.0),
            ],
        )
        .source(&environment);
    vec![
        ("log", log),
        ("bars", flat),
        ("stacked", stack),
        ("steps", steps),
        ("sixteen", sixteen),
    ]
}

fn texts(svg: &str) -> Vec<String> {
    let document = Document::parse(svg).expect("well-formed");
    let is_text = |node: &Node<'_, '_>| node.has_tag_name("text");
    let texts = document.descendants().filter(is_text);
    texts
        .map(|node| node.text().unwrap_or_default().trim().to_owned())
        .collect()
}

fn count(svg: &str, tag: &str) -> usize {
    let document = Document::parse(svg).expect("well-formed");
    document
        .descendants()
        .filter(|node| node.tag_name().name() == tag)
        .count()
}

/// With ONRUSH_PLOTS=DIR the pictures are written there, to be looked at.
#[test]
fn every_kind_of_picture_is_well_formed_small_and_told_in_words() {
    for (name, chart) in gallery() {
        let svg = chart.render().unwrap();
        if let Some(folder) = std::env::var_os("ONRUSH_PLOTS") {
            fs::write(
                std::path::Path::new(&folder)
                    .join(name)
                    .with_extension("svg"),
                &svg,
            )
            .unwrap();
        }
        let document = Document::parse(&svg).unwrap_or_else(|error| panic!("{name}: {error}"));
        let root = document.root_element();
        assert_eq!(root.attribute("role"), Some("img"), "{name}");
        let first: Vec<_> = root.children().filter(Node::is_element).take(2).collect();
        assert_eq!(first[0].text(), Some(chart.title.as_str()), "{name}");
        let description = first[1].text().unwrap();
        for series in &chart.series {
            assert!(description.contains(&series.name), "{name}: {description}");
        }
        assert!(svg.len() < 96 << 10, "{name}: {} bytes", svg.len());
        assert!(svg.contains("prefers-color-scheme:dark"), "{name}");
        assert!(!chart.render_inline().unwrap().contains("<style"), "{name}");
    }
}

#[test]
fn nothing_reaches_over_the_edge() {
    for (name, chart) in gallery() {
        let svg = chart.render().unwrap();
        let document = Document::parse(&svg).unwrap();
        let size: Vec<f64> = document
            .root_element()
            .attribute("viewBox")
            .unwrap()
            .split(' ')
            .map(|n| n.parse().unwrap())
            .collect();
        let within = |node: &Node<'_, '_>, name_of: &str, max: f64| {
            let at: Option<f64> = node.attribute(name_of).map(|n| n.parse().unwrap());
            assert!(
                at.is_none_or(|at| (0.0..=max).contains(&at)),
                "{name}: {node:?}"
            );
        };
        for node in document
            .descendants()
            .filter(|node| !node.has_tag_name("pattern"))
        {
            for attribute in ["x", "x1", "x2", "cx"] {
                within(&node, attribute, size[2]);
            }
            for attribute in ["y", "y1", "y2", "cy"] {
                within(&node, attribute, size[3]);
            }
        }
    }
}

#[test]
fn names_are_text_whatever_is_in_them() {
    let odd = "<script>alert('&\"')</script>\u{1}\u{0}\u{fffe}";
    let kept = "<script>alert('&\"')</script>\u{fffd}\u{fffd}\u{fffd}";
    let svg = Chart::lines(odd)
        .x(odd, Unit::Count)
        .y(odd, Unit::Count)
        .series(odd, [(1.0, 1.0)])
        .series("b", [(1.0, 1.0)])
        .mark_x(1.0, odd)
        .note(odd)
        .render()
        .unwrap();
    assert_eq!(count(&svg, "script"), 0);
    let told = texts(&svg).into_iter().filter(|text| text == kept).count();
    assert_eq!(told, 6, "title, both axes, legend, mark, note");
    let bars = Chart::bars("b")
        .categories([odd])
        .values("s", [1.0])
        .render()
        .unwrap();
    assert!(texts(&bars).iter().any(|text| text == kept));
}

#[test]
fn without_points_it_says_so() {
    let svg = lines()
        .series("a", [(1.0, None::<f64>)])
        .series("b", [(1.0, 2.0)])
        .render()
        .unwrap();
    assert!(
        texts(&svg).iter().any(|text| text == "a (no data)"),
        "{svg}"
    );
    for chart in [
        lines(),
        lines().series("a", Vec::<(f64, f64)>::new()),
        Chart::bars("empty"),
        Chart::stacked("e"),
    ] {
        let svg = chart.render().unwrap();
        assert!(texts(&svg).iter().any(|text| text == NO_DATA), "{svg}");
    }
}

#[test]
fn a_single_point_is_a_marker_in_the_picture() {
    let svg = lines().series("a", [(1472.0, 90.0)]).render().unwrap();
    assert_eq!((count(&svg, "circle"), count(&svg, "polyline")), (1, 0));
    let svg = lines()
        .log_x(2)
        .log_y(10)
        .series("a", [(1472.0, 90.0)])
        .render()
        .unwrap();
    assert_eq!(count(&svg, "circle"), 1);
}

#[test]
fn a_gap_is_no_line() {
    let points = |gap: Option<f64>| {
        [
            (1.0, Some(1.0)),
            (2.0, Some(2.0)),
            (3.0, gap),
            (4.0, Some(1.0)),
            (5.0, Some(2.0)),
        ]
    };
    let lines_of = |gap| {
        count(
            &lines().series("a", points(gap)).render().unwrap(),
            "polyline",
        )
    };
    assert_eq!((lines_of(Some(3.0)), lines_of(None)), (1, 2));
}

#[test]
fn what_has_no_place_is_refused() {
    for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let refused = |chart: Chart| matches!(chart.render(), Err(PlotError::NotFinite { .. }));
        assert!(refused(lines().series("a", [(1.0, bad)])));
        assert!(refused(lines().series("a", [(bad, 1.0)])));
        assert!(refused(lines().mark_x(bad, "m")));
        let value = Value {
            at: Some(1.0),
            interval: Some((0.5, bad)),
        };
        assert!(refused(lines().series("a", [(1.0, value)])));
        assert!(refused(
            Chart::bars("b").categories(["c"]).values("a", [bad])
        ));
    }
}

#[test]
fn a_logarithm_of_nothing_is_refused() {
    let refused = |chart: Chart| matches!(chart.render(), Err(PlotError::NoLogarithm { .. }));
    for bad in [0.0, -1.0] {
        assert!(refused(lines().log_y(10).series("a", [(1.0, bad)])));
        assert!(refused(lines().log_x(2).series("a", [(bad, 1.0)])));
        let value = Value {
            at: Some(1.0),
            interval: Some((bad, 2.0)),
        };
        assert!(refused(lines().log_y(10).series("a", [(1.0, value)])));
        assert!(lines().series("a", [(bad, bad)]).render().is_ok());
    }
    let bars = Chart::bars("b")
        .log_y(10)
        .categories(["c"])
        .values("a", [1.0]);
    assert_eq!(bars.render(), Err(PlotError::LogarithmicBars));
}

#[test]
fn there_are_as_many_series_as_can_be_told_apart() {
    let many = |chart: Chart, count| {
        (0..count).fold(chart, |chart, i| chart.series(&i.to_string(), [(0.0, 1.0)]))
    };
    assert!(many(lines(), SERIES_MAX).render().is_ok());
    assert_eq!(
        many(lines(), SERIES_MAX + 1).render(),
        Err(PlotError::Crowded {
            count: 17,
            max: SERIES_MAX
        })
    );
    let bars = || Chart::bars("b").categories(["c"]);
    assert!(many(bars(), BAR_SERIES_MAX).render().is_ok());
    assert_eq!(
        many(bars(), BAR_SERIES_MAX + 1).render(),
        Err(PlotError::Crowded {
            count: 9,
            max: BAR_SERIES_MAX
        })
    );
}

#[test]
fn bars_have_a_value_for_each_category() {
    let bars = Chart::bars("b").categories(["c", "d"]).values("a", [1.0]);
    let error = bars.render().unwrap_err();
    assert_eq!(
        error.to_string(),
        "a: 1 values for 2 categories; give one for each"
    );
}

#[test]
fn bars_begin_at_zero_and_are_as_long_as_their_values() {
    let svg = Chart::bars("b")
        .categories(["c", "d"])
        .values("a", [100.0, 50.0])
        .render()
        .unwrap();
    let document = Document::parse(&svg).unwrap();
    let number =
        |node: Node<'_, '_>, name: &str| -> f64 { node.attribute(name).unwrap().parse().unwrap() };
    let bars: Vec<_> = document
        .descendants()
        .filter(|n| n.has_tag_name("rect"))
        .skip(1)
        .map(|n| (number(n, "x"), number(n, "width")))
        .collect();
    assert_eq!(bars[0].0, bars[1].0);
    assert!((bars[0].1 / bars[1].1 - 2.0).abs() < 0.01, "{bars:?}");
}
