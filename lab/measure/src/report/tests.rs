//! Pages of the records in the tree, and of what is none.

use std::fs;

use roxmltree::Document;

use super::*;

fn results() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/results")
}

/// The page as XML: the elements that HTML leaves open are closed for it.
fn closed(page: &str) -> String {
    let mut text = page.replace("<!DOCTYPE html>", "");
    for name in ["meta", "img"] {
        let mut from = 0;
        while let Some(at) = text[from..].find(&format!("<{name} ")) {
            let end = from + at + text[from + at..].find('>').unwrap();
            text.insert(end, '/');
            from = end;
        }
    }
    text
}

/// Whether a line behind it says, where the screen is narrow, that it goes on.
fn says_it_goes_on(node: roxmltree::Node<'_, '_>) -> bool {
    let next = node.next_sibling_element();
    next.is_some_and(|next| {
        next.attribute("class")
            .is_some_and(|class| class.starts_with("hint"))
    })
}

#[test]
fn the_published_results_make_one_page_that_asks_for_nothing() {
    let page = of_folder(&results()).unwrap();
    let text = page.render();
    let closed = closed(&text);
    let document = Document::parse(&closed).unwrap_or_else(|error| panic!("{error}"));
    for node in document.descendants() {
        for name in ["src", "href", "action"] {
            let target = node.attribute(name).unwrap_or("#");
            assert!(
                target.starts_with('#') || target.starts_with("data:"),
                "{target}"
            );
        }
        match node.tag_name().name() {
            "svg" => assert!(
                node.children()
                    .any(|child| child.has_tag_name(("http://www.w3.org/2000/svg", "title")))
            ),
            "img" => assert!(!node.attribute("alt").unwrap_or_default().is_empty()),
            "table" => assert!(node.children().any(|child| child.has_tag_name("caption"))),
            "th" => assert!(node.text().is_some_and(|text| !text.is_empty())),
            "script" | "link" | "iframe" => panic!("{node:?}"),
            // What moves within the page is named and reached by keys; as a landmark its name would
            // have to be its own.
            "div" => {
                let of = |name| node.attribute(name).unwrap_or_default();
                let moves = ["wide", "picture"].contains(&of("class"));
                assert_eq!(
                    (of("role"), of("tabindex")),
                    if moves { ("group", "0") } else { ("", "") }
                );
                assert!(!moves || !of("aria-label").is_empty());
                assert_eq!(of("class") == "picture", says_it_goes_on(node), "{node:?}");
            }
            _ => {}
        }
    }
    assert!(!text.contains("@import") && !text.contains("url(http"));
    for wanted in [
        "What serving costs",
        "What locking costs",
        "prefers-color-scheme",
        "@media print",
    ] {
        assert!(text.contains(wanted), "{wanted}");
    }
    let ids: Vec<_> = document
        .descendants()
        .filter_map(|node| node.attribute("id"))
        .collect();
    for link in document
        .descendants()
        .filter_map(|node| node.attribute("href"))
    {
        assert!(ids.contains(&link.trim_start_matches('#')), "{link}");
    }
}

#[test]
fn what_is_no_record_is_named_and_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let empty = of_folder(folder.path()).unwrap_err().to_string();
    assert!(empty.contains("holds no record"), "{empty}");
    fs::write(folder.path().join("odd.json"), "[1]").unwrap();
    fs::write(
        folder.path().join("odd.svg"),
        "<html><script>x</script></html>",
    )
    .unwrap();
    assert!(matches!(
        of_folder(folder.path()),
        Err(ReportError::Empty { .. })
    ));
    let record = crate::experiment::Record::new(
        "unheard-of <b>",
        crate::experiment::Environment::here("1", "onrush <script>"),
        7,
    );
    let mut record: crate::experiment::Record<u8, serde_json::Value> = record;
    record.runs = vec![serde_json::json!({"way": "<i>", "t_ns": 3})];
    record.write(&folder.path().join("r.json")).unwrap();
    fs::write(
        folder.path().join("p.svg"),
        "<svg xmlns=\"http://www.w3.org/2000/svg\"><title>A &lt; B</title><script>1</script></svg>",
    )
    .unwrap();
    let text = of_folder(folder.path()).unwrap().render();
    for wanted in [
        "odd.json",
        "odd.svg",
        "unheard-of &lt;b&gt;",
        "onrush &lt;script&gt;",
        "A &lt; B",
        "is not known; read its record with the onrush-lab that wrote it, which is 1",
    ] {
        assert!(text.contains(wanted), "{wanted}");
    }
    assert!(!text.contains("<script>") && !text.contains("<b>") && !text.contains("<i>"));
    let missing = of_folder(&folder.path().join("none"))
        .unwrap_err()
        .to_string();
    assert!(missing.contains("No such file"), "{missing}");
}

#[test]
fn compressed_records_are_on_the_page() {
    let folder = tempfile::tempdir().unwrap();
    let here = crate::experiment::Environment::here("1", "c");
    let record = crate::experiment::Record::<u8, u8>::new("x", here, 1);
    record.write(&folder.path().join("r.json.gz")).unwrap();
    fs::write(folder.path().join("log.gz"), "").unwrap();
    let text = of_folder(folder.path()).unwrap().render();
    assert!(text.contains("r.json.gz") && !text.contains("log.gz"));
}

#[test]
fn a_folder_has_so_many_files_and_no_more() {
    let folder = tempfile::tempdir().unwrap();
    let write =
        |number: usize| fs::write(folder.path().join(format!("{number}.json")), "").unwrap();
    (0..FILES_MAX).for_each(write);
    assert!(matches!(
        of_folder(folder.path()),
        Err(ReportError::Empty { .. })
    ));
    write(FILES_MAX);
    assert!(matches!(
        of_folder(folder.path()),
        Err(ReportError::Files { .. })
    ));
    let deep = tempfile::tempdir().unwrap();
    let mut path = deep.path().to_owned();
    for _ in 0..DEPTH_MAX {
        path.push("d");
    }
    fs::create_dir_all(path.join("d")).unwrap();
    let record = crate::experiment::Record::<u8, u8>::new(
        "x",
        crate::experiment::Environment::here("1", "c"),
        1,
    );
    record.write(&path.join("d/r.json")).unwrap();
    assert!(of_folder(deep.path()).is_err());
    record.write(&path.join("r.json")).unwrap();
    assert!(of_folder(deep.path()).is_ok());
}

/// Every record in the tree is of an experiment that is known: it is told as such, and all of it
/// but a verdict can be compared with another of its kind.
#[test]
fn every_published_record_is_told_and_can_be_compared() {
    let mut files = Vec::new();
    collect(&results(), &results(), DEPTH_MAX, &mut files).unwrap();
    let mut seen = 0;
    for file in files
        .iter()
        .filter(|file| file.extension().unwrap() == "json")
    {
        let Ok(record) = AnyRecord::read_any(file) else {
            continue;
        };
        seen += 1;
        let name = file.display();
        let report = of(&record).unwrap_or_else(|error| panic!("{name}: {error}"));
        let figures = report.figures();
        for drawing in report.drawings() {
            let drawn = drawing.chart.render();
            assert!(drawn.is_ok(), "{name}: {}: {drawn:?}", drawing.file);
        }
        let is_verdict = record.experiment == crate::lock::reliability::NAME;
        assert_eq!(figures.is_empty(), is_verdict, "{name}");
        // A name says what was measured and nothing that was found, or no other record would have
        // it.
        for word in [
            "arrived",
            "involuntary",
            "received_packets",
            "sends_zero_copy",
        ] {
            assert!(
                !figures.iter().any(|figure| figure.name.contains(word)),
                "{name}: {word}"
            );
        }
    }
    assert!(seen > 30, "{seen}");
}

#[test]
fn a_chart_that_cannot_be_drawn_costs_no_other() {
    use crate::plot::{Chart, Drawing, Unit};
    let chart = |x: f64| {
        Chart::lines("Lines")
            .y("time", Unit::Nanoseconds)
            .series("s", [(1.0, 1.0), (x, 2.0)])
    };
    let mut report = Report::new("Charts");
    report.add([f64::NAN, 2.0].map(|x| Drawing::new("x.svg", chart(x))));
    let section = Section {
        report,
        environment: None,
    };
    let page = Page {
        title: String::new(),
        sections: vec![section],
    };
    let text = page.render();
    assert_eq!(text.matches("<svg ").count(), 1);
    assert!(text.contains("Lines: s: NaN cannot be drawn"), "{text}");
}

#[test]
fn a_load_has_its_histogram_and_quotes_are_escaped() {
    use crate::load::{self, Settings};
    let environment = crate::experiment::Environment::here("1", "onrush-lab load rtsp://h/<x>");
    let settings = Settings::new(vec!["rtsp://h/<x>".to_owned()], 2);
    let mut record = crate::experiment::Record::new(load::NAME, environment, settings);
    record.runs.push(load::report::tests::run());
    let page = |record: &load::LoadRecord| of_record("2 viewers", &record.any().unwrap()).render();
    let text = page(&record);
    for said in [
        "<svg",
        "rtsp://h/&lt;x&gt;",
        "2 viewers",
        "budget",
        "kept: ",
        "load generator",
    ] {
        assert!(text.contains(said), "{said}");
    }
    assert!(!text.contains("<x>"));
    record.runs[0].lateness = crate::histogram::Histogram::default();
    record.runs[0].watching = 1;
    assert!(page(&record).contains("MISSED: "), "also without a packet");
}

#[test]
fn a_load_of_downloads_is_told_with_its_shares() {
    use crate::load::http::{self, HttpSettings};
    let environment = crate::experiment::Environment::here("1", "onrush-lab load http://h/<x>");
    let settings = HttpSettings::new(vec!["http://h/<x>".to_owned()], 2);
    let mut record = crate::experiment::Record::new(http::NAME, environment, settings);
    record.runs.push(crate::load::http_report::tests::run());
    let page = |record: &http::HttpRecord| of_record("2 clients", &record.any().unwrap()).render();
    let text = page(&record);
    for said in [
        "<svg",
        "http://h/&lt;x&gt;",
        "What each client took",
        "evenness",
    ] {
        assert!(text.contains(said), "{said}");
    }
    record.runs[0].client_bytes.clear();
    page(&record);
}

#[test]
fn a_measurement_shows_its_rows_curves_and_what_is_missing() {
    use crate::primitives::{
        Better, Curve, Entry, Estimate, Group, Mark, Measured, Missing, NAME, Note, Point, Row,
        Series, Settings, Unit,
    };
    let row = |void: Option<String>| Row {
        id: "null_call".to_owned(),
        group: Group::Cpu,
        operation: format!("system call, void {}", void.is_some()),
        unit: Unit::Ns,
        better: Better::Less,
        estimate: Estimate {
            base: Some(10.0),
            overhead: None,
            predicted: Some(50.0),
        },
        measured: Measured::of(&[vec![60.0], vec![61.0]]).unwrap(),
        explanation: "It is <slower> than predicted.".to_owned(),
        warnings: vec!["noisy".to_owned()],
        void,
        paper: "1.2 us".to_owned(),
    };
    let series = |i: u32| Series {
        name: format!("stride {i}"),
        points: vec![
            Point {
                x: 0.0,
                samples: vec![1.0],
            },
            Point {
                x: 4096.0,
                samples: vec![f64::from(i) + 1.0, 9.0],
            },
        ],
    };
    let curve = Curve {
        id: "latency".to_owned(),
        group: Group::Memory,
        title: "The staircase".to_owned(),
        x_name: "size".to_owned(),
        x_unit: Unit::Bytes,
        x_is_logarithmic: true,
        y_name: "latency".to_owned(),
        y_unit: Unit::Ns,
        y_is_logarithmic: true,
        // More than can be told apart: two pictures. Zero has no logarithm: a linear axis.
        series: (0..20).map(series).collect(),
        marks: vec![Mark {
            name: "L1".to_owned(),
            x: 4096.0,
        }],
    };
    let environment = crate::experiment::Environment::here("1", "onrush-lab measure");
    let mut record = crate::experiment::Record::new(NAME, environment, Settings::quick());
    record.runs = vec![
        Entry::Row(row(None)),
        Entry::Row(row(Some("more than the bus can do".to_owned()))),
        Entry::Curve(curve),
        Entry::Missing(Missing {
            id: "icmp".to_owned(),
            why: "needs root".to_owned(),
        }),
        Entry::Note(Note {
            text: "a virtual machine".to_owned(),
            is_warning: true,
        }),
    ];
    let text = of_record("T", &record.any().unwrap()).render();
    Document::parse(&closed(&text)).unwrap();
    for wanted in [
        "60.5 ns",
        "It is &lt;slower&gt; than predicted. The paper's machine: 1.2 us. Warning: noisy",
        "more than the bus can do",
        "icmp",
        "needs root",
        "a virtual machine",
        "L1",
        "stride 19",
    ] {
        assert!(text.contains(wanted), "{wanted}");
    }
    assert_eq!(text.matches("<svg ").count(), 2);
    assert_eq!(text.matches(">void</td>").count(), 1);
    // On a phone a row is a card, each figure with its column's name.
    assert!(text.contains("data-name=\"measured\">60.5 ns</td>"));
    assert_eq!(
        text.matches("class=\"cards\"").count(),
        1,
        "not the figures of the pictures"
    );
    let figures = of(&record.any().unwrap()).unwrap().figures();
    assert_eq!(figures.len(), 1, "void rows are no figures");
}
