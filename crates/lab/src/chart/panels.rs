//! Panels: small multiples under headings, such as every pattern as a map and every encoding as curves.

use super::{
    axis::said,
    frame::{LINE, draw_title},
    heat::{Heat, Layout},
    svg::{Anchor, Svg, line, rect},
};

/// Panels of one size under a heading.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Panels {
    /// What they show.
    pub title: String,
    /// How to read them.
    pub note: String,
    /// Panels beside each other.
    pub columns: usize,
    /// Row by row.
    pub panels: Vec<Panel>,
}

/// One of many small pictures.
#[derive(Clone, Debug, PartialEq)]
pub struct Panel {
    /// What it shows.
    pub name: String,
    /// A word to the right of the name; for curves their range if empty.
    pub note: String,
    /// What is drawn.
    pub content: Content,
}

/// What a panel holds.
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    /// Shares from 0 to 1, row by row from the top; drawn as a square.
    Map(Vec<Vec<f64>>),
    /// Points of one curve after the other, on axes of the panel's own.
    Curves(Vec<Vec<(f64, f64)>>),
}

const WIDTH: f64 = 900.0;
const GAP: f64 = 20.0;
const NAME: f64 = 18.0; // height of a panel's name
const FLAT: f64 = 0.6; // height of curves to their width

impl Panels {
    /// Groups of panels, one below the other, as an `<svg>` element.
    pub fn svg(title: &str, groups: &[Self]) -> String {
        let height: f64 = groups.iter().map(Self::height).sum();
        let mut svg = Svg::new(WIDTH + 2.0, height, title);
        let mut top = 0.0;
        for group in groups {
            group.draw(&mut svg, top);
            top += group.height();
        }
        svg.finish()
    }

    fn width(&self) -> f64 {
        let columns = self.columns.max(1) as f64;
        ((WIDTH - GAP * (columns - 1.0)) / columns).floor()
    }

    /// Of one row, its names and the space below it.
    fn pitch(&self) -> f64 {
        let is_map = |panel: &Panel| matches!(panel.content, Content::Map(_));
        let share = if self.panels.iter().any(is_map) { 1.0 } else { FLAT };
        (NAME + share * self.width() + GAP / 2.0).round()
    }

    fn height(&self) -> f64 {
        3.0 * LINE + self.pitch() * self.panels.len().div_ceil(self.columns.max(1)) as f64
    }

    fn draw(&self, svg: &mut Svg, top: f64) {
        let height = self.height();
        svg.clipped((0.0, top), (WIDTH + 2.0, height), |svg| {
            draw_title(svg, std::slice::from_ref(&self.title));
            svg.text("note", (2.0, 16.0 + LINE), Anchor::Start, &self.note);
            let columns = self.columns.max(1);
            for (i, panel) in self.panels.iter().enumerate() {
                let left = 1.0 + (i % columns) as f64 * (self.width() + GAP);
                let top = 3.0 * LINE + (i / columns) as f64 * self.pitch();
                panel.draw(svg, (left, top), self.width());
            }
        });
    }
}

impl Panel {
    fn draw(&self, svg: &mut Svg, (left, top): (f64, f64), width: f64) {
        svg.text("name", (left, top + NAME - 6.0), Anchor::Start, &self.name);
        let corner = (left, top + NAME);
        let note = match &self.content {
            Content::Map(values) => {
                draw_map(svg, values, corner, width);
                String::new()
            }
            Content::Curves(curves) => draw_curves(svg, curves, corner, (width, FLAT * width)),
        };
        let note = if self.note.is_empty() { &note } else { &self.note };
        svg.text("tiny", (left + width, top + NAME - 6.0), Anchor::End, note);
    }
}

fn draw_map(svg: &mut Svg, values: &[Vec<f64>], (left, top): (f64, f64), width: f64) {
    svg.path("ground", &rect((left, top), (width, width)), "");
    let columns = values.iter().map(Vec::len).max().unwrap_or(0).max(1);
    let (rows, range) = (values.len().max(1), (0.0, 1.0));
    let cell = (width / columns as f64, width / rows as f64);
    let heat = Heat { values: values.to_vec(), range: Some(range), ..Default::default() };
    heat.draw_levels(svg, &Layout { left, top, cell, cells: (columns, rows) }, range);
}

/// Draws curves and returns their range in words.
fn draw_curves(
    svg: &mut Svg,
    curves: &[Vec<(f64, f64)>],
    corner: (f64, f64),
    (width, height): (f64, f64),
) -> String {
    let finite = |pair: &&(f64, f64)| pair.0.is_finite() && pair.1.is_finite();
    let points = || curves.iter().flatten().filter(finite);
    let ends = |value: fn(&(f64, f64)) -> f64| {
        let values = points().map(value);
        values.fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(v), h.max(v)))
    };
    let ((left, right), (low, high)) = (ends(|pair| pair.0), ends(|pair| pair.1));
    svg.path("ground", &rect(corner, (width, height)), "");
    if points().next().is_none() {
        return "no data".into();
    }
    let share = |value: f64, low: f64, high: f64| {
        // Halves, so that no range is infinite.
        if high > low { (value / 2.0 - low / 2.0) / (high / 2.0 - low / 2.0) } else { 0.5 }
    };
    svg.clipped(corner, (width, height), |svg| {
        let x = |value: f64| share(value, left, right) * width;
        let y = |value: f64| height * (0.94 - 0.88 * share(value, low, high));
        if left < 0.0 && right > 0.0 {
            svg.path("rule", &line([(x(0.0), 0.0), (x(0.0), height)]), "");
        }
        for (i, curve) in curves.iter().enumerate() {
            let points = curve.iter().filter(finite).map(|pair| (x(pair.0), y(pair.1)));
            svg.path(&format!("curve s{}", i % 8), &line(points), "");
        }
    });
    let [low, high] = [low, high].map(|value| said((value * 10.0).round() / 10.0));
    if low == high { low } else { format!("{low} to {high}") }
}
