//! Lines: one value against another, for several series.

use super::{
    axis::{Axis, Ends, said},
    frame::{Frame, LINE},
    labels::spread,
    marker::{color, mark},
    svg::{Anchor, Svg, escape, line, shortened, width_of},
};

/// Curves that are named where they end.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Lines {
    /// What the chart shows.
    pub title: String,
    /// Across.
    pub x: Axis,
    /// Up.
    pub y: Axis,
    /// The curves.
    pub series: Vec<Series>,
    /// Whether every point is a measurement and gets its mark; otherwise a few marks tell the curves apart.
    pub marks: bool,
    /// A value of `x` to point out, and what it is, such as the trained length.
    pub rule: Option<(f64, String)>,
}

/// One curve.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    /// What it is called in the picture.
    pub name: String,
    /// From left to right; the curve is interrupted where a value is not finite.
    pub points: Vec<(f64, f64)>,
    /// Low and high at each point.
    pub band: Option<Vec<(f64, f64)>>,
    /// For a baseline, or a curve of another kind.
    pub dashed: bool,
}

const NAME: usize = 30; // characters of a name that are shown
const POINTS: usize = 2048; // of a curve, about four for each pixel
const SPARSE: usize = 5; // marks on a curve whose points are no measurements

impl Lines {
    /// The chart as an `<svg>` element.
    pub fn svg(&self) -> String {
        let frame = self.frame();
        let mut svg = frame.open();
        if !self.series.iter().any(|series| !runs(series, &frame).is_empty()) {
            frame.say_empty(&mut svg);
            return svg.finish();
        }
        self.draw_rule(&mut svg, &frame);
        svg.clipped((frame.left, frame.top), (frame.width, frame.height), |svg| {
            for (i, series) in self.series.iter().enumerate() {
                draw_band(svg, &frame, i, series);
            }
            for (i, series) in self.series.iter().enumerate() {
                let dashed = if series.dashed { " dashed" } else { "" };
                for run in runs(series, &frame).iter().filter(|run| run.len() > 1) {
                    let points = run.iter().map(|index| frame.within(series.points[*index]));
                    let class = format!("curve {}{dashed}", color(i));
                    svg.path(&class, &line(thinned(points.flatten().collect())), &series.name);
                }
            }
        });
        for (i, series) in self.series.iter().enumerate() {
            self.draw_marks(&mut svg, &frame, i, series);
        }
        if self.is_named() {
            self.draw_names(&mut svg, &frame);
        }
        svg.finish()
    }

    /// The names of the curves with their marks, as HTML: for screens on which the end of a chart is out of sight.
    pub fn legend(&self) -> String {
        let entry = |(i, series): (usize, &Series)| {
            let (class, mark) = (color(i), mark(i, (6.0, 6.0)));
            let line = if series.dashed { " (dashed)" } else { "" };
            format!(
                "<li><svg class=\"chart\" width=\"12\" height=\"12\"><path class=\"mark {class}\" d=\"{mark}\"/></svg> {}{line}</li>",
                escape(&series.name)
            )
        };
        let entries: String = self.series.iter().enumerate().map(entry).collect();
        format!("<ul class=\"legend\">{entries}</ul>")
    }

    /// Whether there are names to show.
    fn is_named(&self) -> bool {
        self.series.iter().any(|series| !series.name.is_empty())
    }

    fn frame(&self) -> Frame {
        let names = self.series.iter().map(|series| width_of(&shortened(&series.name, NAME)));
        let right = if self.is_named() { 40.0 + names.fold(0.0, f64::max) } else { 24.0 };
        let points = || self.series.iter().flat_map(|series| &series.points);
        let bands = self.series.iter().flat_map(|series| series.band.iter().flatten());
        let rule = self.rule.iter().map(|rule| rule.0);
        let x = (&self.x, points().map(|point| point.0).chain(rule));
        let y = points().map(|point| point.1).chain(bands.flat_map(|(low, high)| [*low, *high]));
        let height = (self.series.len() as f64 + 1.0) * LINE;
        Frame::new(&self.title, x, (&self.y, y), Ends::Data, (right, height))
    }

    fn draw_rule(&self, svg: &mut Svg, frame: &Frame) {
        let Some((value, label)) = &self.rule else { return };
        let Some((x, _)) = frame.at_x(*value).filter(|place| frame.holds(*place)) else { return };
        let bottom = frame.end().1;
        svg.path("rule", &line([(x, frame.top), (x, bottom)]), label);
        let near_end = x > frame.left + 0.7 * frame.width;
        let (x, anchor) = if near_end { (x - 5.0, Anchor::End) } else { (x + 5.0, Anchor::Start) };
        svg.text("note", (x, frame.top - 4.0), anchor, label);
    }

    fn draw_marks(&self, svg: &mut Svg, frame: &Frame, index: usize, series: &Series) {
        let count = series.points.len();
        // Curves that run together are told apart by marks at different places.
        let sparse = (0..SPARSE).map(|i| {
            let share = (i as f64 + (index % 8) as f64 / 8.0 + 0.1) / SPARSE as f64;
            (share * count as f64) as usize
        });
        let shown: Vec<usize> = match self.marks {
            true => (0..count).collect(),
            false if self.series.len() > 1 => sparse.collect(),
            false => {
                runs(series, frame).iter().filter(|run| run.len() == 1).map(|r| r[0]).collect()
            }
        };
        for point in shown {
            let pair = series.points.get(point).copied();
            let Some(place) = pair.and_then(|pair| frame.at(pair)) else { continue };
            if frame.holds(place) {
                let class = format!("mark {}", color(index));
                svg.path(&class, &mark(index, place), &hint(series, point));
            }
        }
    }

    fn draw_names(&self, svg: &mut Svg, frame: &Frame) {
        let (right, bottom) = frame.end();
        let ends = self.series.iter().enumerate().filter_map(|(i, series)| {
            let last = *runs(series, frame).last()?.last()?;
            let (x, y) = frame.at(series.points[last])?;
            Some((i, (x, y.clamp(frame.top, bottom))))
        });
        let ends: Vec<(usize, (f64, f64))> = ends.collect();
        let heights: Vec<f64> = ends.iter().map(|(_, (_, y))| *y).collect();
        let places = spread(&heights, LINE, frame.top + 4.0, bottom);
        for ((i, (x, y)), place) in ends.into_iter().zip(places) {
            let color = color(i);
            if right - x < 1.0 {
                let lead = line([(right + 5.0, y), (right + 14.0, place)]);
                svg.path(&format!("lead {color}"), &lead, "");
            }
            let series = &self.series[i];
            svg.path(&format!("mark {color}"), &mark(i, (right + 21.0, place)), "");
            let name = shortened(&series.name, NAME);
            svg.text("name", (right + 31.0, place + 4.0), Anchor::Start, &name);
        }
    }
}

/// The points that can be placed, as uninterrupted runs of indices.
fn runs(series: &Series, frame: &Frame) -> Vec<Vec<usize>> {
    let mut runs: Vec<Vec<usize>> = Vec::new();
    let mut open = false;
    for (i, point) in series.points.iter().enumerate() {
        let placed = frame.at(*point).is_some();
        match runs.last_mut() {
            Some(run) if placed && open => run.push(i),
            _ if placed => runs.push(vec![i]),
            _ => {}
        }
        open = placed;
    }
    runs
}

/// The least and the greatest of neighbouring points, in their order, where there are more than can be told apart.
fn thinned(points: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    if points.len() <= POINTS {
        return points;
    }
    let group = (2 * points.len()).div_ceil(POINTS);
    let extremes = |group: &[(f64, f64)]| {
        let places = || 0..group.len();
        let height = |i: &usize, j: &usize| group[*i].1.total_cmp(&group[*j].1);
        let low = places().min_by(height).unwrap_or(0);
        let high = places().max_by(height).unwrap_or(0);
        [group[low.min(high)], group[low.max(high)]]
    };
    points.chunks(group).flat_map(extremes).collect()
}

fn draw_band(svg: &mut Svg, frame: &Frame, index: usize, series: &Series) {
    let Some(band) = &series.band else { return };
    for run in runs(series, frame) {
        let edge = |high: bool| {
            run.iter().filter_map(move |i| {
                let (low, up) = *band.get(*i)?;
                frame.within((series.points[*i].0, if high { up } else { low }))
            })
        };
        let low: Vec<(f64, f64)> = edge(false).collect();
        if low.len() > 1 {
            let outline = line(edge(true).chain(low.into_iter().rev())) + "z";
            svg.path(&format!("band {}", color(index)), &outline, "");
        } else if let (Some(low), Some(high)) = (edge(false).next(), edge(true).next()) {
            svg.path(&format!("spread {}", color(index)), &line([low, high]), "");
        }
    }
}

fn hint(series: &Series, point: usize) -> String {
    let (x, y) = series.points[point];
    let mut hint = format!("{}: {} at {}", series.name, said(y), said(x));
    if let Some((low, high)) = series.band.as_ref().and_then(|band| band.get(point)) {
        hint.push_str(&format!(" ({} to {})", said(*low), said(*high)));
    }
    hint
}
