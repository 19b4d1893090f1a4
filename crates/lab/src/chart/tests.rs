//! Every chart with every kind of data: well-formed, without numbers that are none.

use super::{svg::number, *};

/// Names of elements that are open at the end, closed in the wrong order, or badly written.
fn faults(document: &str) -> Vec<String> {
    let (mut open, mut faults) = (Vec::<&str>::new(), Vec::new());
    for part in document.split('<').skip(1) {
        let Some((tag, text)) = part.split_once('>') else {
            faults.push(format!("no end of <{part}"));
            continue;
        };
        let name = tag.split_whitespace().next().unwrap_or("").trim_end_matches('/');
        if tag.matches('"').count() % 2 == 1 {
            faults.push(format!("an open quote in <{tag}>"));
        }
        if ["NaN", "inf"].iter().any(|word| tag.contains(word)) {
            faults.push(format!("no number in <{tag}>"));
        }
        if text
            .split('&')
            .skip(1)
            .any(|entity| entity.split_once(';').is_none_or(|e| e.0.len() >= 5))
        {
            faults.push(format!("a bare & in {text}"));
        }
        match name.strip_prefix('/') {
            Some(name) if open.pop() != Some(name) => faults.push(format!("</{name}>")),
            None if !tag.ends_with('/') => open.push(name),
            _ => {}
        }
    }
    faults.extend(open.into_iter().map(|name| format!("<{name}> stays open")));
    faults
}

fn series(name: &str, points: Vec<(f64, f64)>) -> Series {
    Series { name: name.into(), points, ..Series::default() }
}

fn lines(scale: Scale, series: Vec<Series>) -> Lines {
    let axis = |label: &str| Axis { label: label.into(), scale, range: None };
    Lines { title: "a < b".into(), x: axis("x"), y: axis("y"), series, ..Lines::default() }
}

/// Awkward values, many of them on both axes.
fn awkward() -> Vec<Vec<(f64, f64)>> {
    vec![
        vec![],
        vec![(0.0, 0.0)],
        vec![(3.0, 7.0)],
        vec![(1.0, 5.0), (2.0, 5.0), (3.0, 5.0)],
        vec![(f64::NAN, 1.0), (1.0, f64::NAN), (f64::INFINITY, f64::NEG_INFINITY)],
        vec![(1.0, 1.0), (2.0, f64::NAN), (3.0, 2.0), (4.0, 3.0), (5.0, f64::INFINITY)],
        vec![(-1e308, 1e308), (1e308, -1e308), (0.0, 1e-320)],
        vec![(1e-9, 1e9), (1e9, 1e-9)],
        vec![(5.0, -1.0), (4.0, 0.0), (3.0, 1.0)],
    ]
}

#[test]
fn lines_and_dots_survive_any_data() {
    for points in awkward() {
        let band = Some(points.iter().map(|(_, y)| (y - 1.0, y + 1.0)).collect());
        let banded = Series { band, dashed: true, ..series("\"b\" & <c>\0", points.clone()) };
        for scale in [Scale::Linear, Scale::Log] {
            for marks in [false, true] {
                let rule = Some((2.0, "trained & tested".into()));
                let all = vec![series("a", points.clone()), banded.clone()];
                let chart = Lines { marks, rule, ..lines(scale, all) };
                assert_eq!(faults(&chart.svg()), [""; 0], "{points:?}");
            }
            let dots = points.iter().map(|&(x, y)| Dot {
                name: "dot".into(),
                x,
                y,
                spread: Some((y - 1.0, y + 1.0)),
            });
            let axis = Axis { label: "x".into(), scale, range: Some((f64::NAN, 1.0)) };
            let chart =
                Scatter { title: String::new(), x: axis.clone(), y: axis, points: dots.collect() };
            assert_eq!(faults(&chart.svg()), [""; 0], "{points:?}");
        }
    }
}

#[test]
fn bars_and_heat_survive_any_data() {
    for points in awkward() {
        let bars = points.iter().map(|&(x, y)| ("<bar>".to_owned(), x, Some((x, y)))).collect();
        let chart = Bars { title: "t".into(), x: "x".into(), y: "y".into(), bars };
        assert_eq!(faults(&chart.svg()), [""; 0], "{points:?}");
        for diverging in [false, true] {
            // Once with hints for every cell, once as paths by level.
            for copies in [1, 60] {
                let row: Vec<f64> = points.iter().flat_map(|&(x, y)| [x, y]).collect();
                let values = vec![row.repeat(copies); copies];
                let chart = Heat {
                    title: "t".into(),
                    columns: vec!["a longer name".into(); values[0].len()],
                    rows: vec!["<".into(), ">".into()],
                    values,
                    diverging,
                    ..Heat::default()
                };
                assert_eq!(faults(&chart.svg()), [""; 0], "{points:?}");
            }
        }
    }
    assert_eq!(faults(&Heat::default().svg()), [""; 0]);
}

#[test]
fn pages_and_files_hold_the_chart_and_its_style() {
    let svg = lines(Scale::Linear, vec![series("a", vec![(0.0, 1.0), (1.0, 2.0)])]).svg();
    let file = standalone(&svg);
    assert_eq!(faults(&file), [""; 0]);
    assert!(file.contains("<style>") && file.contains("prefers-color-scheme"));
    let page = page("what & where", &svg);
    assert!(page.contains("<title>what &amp; where</title>") && page.contains(&svg));
    assert!(
        !page.contains("http://") || page.matches("http").count() == page.matches("xmlns").count()
    );
}

#[test]
fn names_stand_beside_each_other_where_curves_end_together() {
    let all = (0..12).map(|i| series(&format!("run {i}"), vec![(0.0, 1.0), (1.0, 2.0)])).collect();
    let svg = lines(Scale::Linear, all).svg();
    let mut heights: Vec<f64> = svg
        .lines()
        .filter(|line| line.contains("class=\"name\""))
        .map(|line| line.split("y=\"").nth(1).unwrap().split('"').next().unwrap().parse().unwrap())
        .collect();
    heights.sort_by(f64::total_cmp);
    assert_eq!(heights.len(), 12);
    assert!(heights.windows(2).all(|pair| pair[1] - pair[0] > 12.0), "{heights:?}");
}

#[test]
fn a_long_curve_keeps_its_extremes_and_a_short_file() {
    let mut points: Vec<(f64, f64)> = (0..200_000).map(|i| (f64::from(i), 0.5)).collect();
    points[77_777].1 = 1.0;
    points[150_001].1 = 0.0;
    let svg = lines(Scale::Linear, vec![series("", points)]).svg();
    assert!(svg.len() < 60_000, "{} bytes", svg.len());
    let curve = svg.lines().find(|line| line.contains("class=\"curve")).unwrap();
    let heights: Vec<f64> = (curve.split(['M', 'L']).skip(1))
        .map(|point| point.split([' ', '"']).nth(1).unwrap().parse().unwrap())
        .collect();
    // The plot is 290 high, and its axis ends at 0 and 1.
    assert!(heights.contains(&0.0) && heights.contains(&290.0), "both peaks are drawn");
}

#[test]
fn coordinates_are_short() {
    assert_eq!([1.0, 0.25, -0.004, 12.345].map(number), ["1", "0.25", "0", "12.35"]);
}

#[test]
fn a_chart_looks_as_it_did() {
    let rotary = vec![(256.0, 3.1), (512.0, 3.0), (1024.0, 4.2), (2048.0, 6.5)];
    let band = Some(rotary.iter().map(|(_, y)| (y - 0.2, y + 0.1)).collect());
    let polar = vec![(256.0, 3.0), (512.0, 2.9), (1024.0, 2.8), (2048.0, f64::NAN)];
    let chart = Lines {
        title: "Loss by length".into(),
        x: Axis::log("length in tokens"),
        y: Axis::linear("loss in nats"),
        series: vec![Series { band, ..series("rotary", rotary) }, series("polar", polar)],
        marks: true,
        rule: Some((512.0, "trained".into())),
    };
    let expected = include_str!("lines.svg");
    assert_eq!(chart.svg(), expected, "if this is better, replace chart/lines.svg");
}

#[test]
fn panels_are_well_formed_for_any_data() {
    let panel = |content: Content| Panel { name: "a < b".into(), note: String::new(), content };
    let maps = [vec![], vec![vec![]], vec![vec![0.0, 0.5], vec![1.0, f64::NAN]]];
    let groups = [
        awkward().into_iter().map(|points| panel(Content::Curves(vec![points]))).collect(),
        maps.into_iter().map(|values| panel(Content::Map(values))).collect::<Vec<_>>(),
        vec![],
    ];
    let groups = groups.map(|panels| Panels { columns: 2, panels, ..Panels::default() });
    let svg = Panels::svg("a & b", &groups);
    assert_eq!(faults(&svg), Vec::<String>::new());
    assert_eq!(svg.matches("a &lt; b").count(), awkward().len() + 3);
    assert!(svg.contains("no data"));
}
