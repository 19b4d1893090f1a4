//! Bars: one value for each name, one below the other, so that long names can be read.

use super::{
    axis::{Axis, Ends, Ruler, said},
    frame::{LINE, draw_title, wrapped},
    marker::color,
    svg::{Anchor, Svg, line, rect, shortened, width_of},
};

/// Named values as lengths.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bars {
    /// What the chart shows.
    pub title: String,
    /// What the values are, with their unit; they run across.
    pub x: String,
    /// What the names are; they stand one below the other.
    pub y: String,
    /// From the top.
    pub bars: Vec<Bar>,
}

/// A name, its value, and low and high of the value.
pub type Bar = (String, f64, Option<(f64, f64)>);

const NAME: usize = 32; // characters of a name that are shown
const PITCH: f64 = 24.0; // from bar to bar
const THICK: f64 = 15.0;
const WIDTH: f64 = 640.0; // with the names

impl Bars {
    /// The chart as an `<svg>` element.
    pub fn svg(&self) -> String {
        let spreads = self.bars.iter().filter_map(|bar| bar.2);
        let values = self.bars.iter().map(|bar| bar.1).chain(spreads.flat_map(|(l, h)| [l, h]));
        // Lengths only mean something from 0 on.
        let axis = Axis::linear(self.x.as_str());
        let ruler = Ruler::new(&axis, values.chain([0.0]), Ends::Ticks);
        let names = self.bars.iter().map(|bar| width_of(&shortened(&bar.0, NAME)));
        let title = wrapped(&self.title);
        let left = names.fold(0.0, f64::max) + if self.y.is_empty() { 14.0 } else { 34.0 };
        let top = 24.0 + LINE * title.len() as f64;
        let width = (WIDTH - left).max(240.0) - 60.0; // a value is written behind its bar
        let bottom = top + PITCH * self.bars.len().max(1) as f64;
        let mut svg = Svg::new(left + width + 60.0, bottom + 30.0 + LINE, &title.join(" "));
        draw_title(&mut svg, &title);
        let x = |value: f64| ruler.share(value).map(|share| left + share * width);
        for (value, label) in &ruler.ticks {
            if let Some(x) = x(*value) {
                svg.path("grid", &line([(x, top), (x, bottom)]), "");
                svg.text("note", (x, bottom + 17.0), Anchor::Middle, label);
            }
        }
        let base = left + ruler.base() * width;
        for (i, (name, value, spread)) in self.bars.iter().enumerate() {
            let y = top + PITCH * (i as f64 + 0.5);
            svg.text("name", (left - 7.0, y + 4.0), Anchor::End, &shortened(name, NAME));
            let Some(end) = x(*value) else {
                svg.text("note", (base + 5.0, y + 4.0), Anchor::Start, "no value");
                continue;
            };
            let bar = rect((base.min(end), y - THICK / 2.0), ((end - base).abs(), THICK));
            svg.path(&format!("bar {}", color(0)), &bar, &hint(name, *value, *spread));
            let mut far = end.max(base);
            if let Some([Some(low), Some(high)]) = spread.map(|(l, h)| [x(l), x(h)]) {
                svg.path("whisker", &line([(low, y), (high, y)]), "");
                far = far.max(high);
            }
            svg.text("note", (far + 6.0, y + 4.0), Anchor::Start, &said(*value));
        }
        svg.path("axis", &line([(base, top), (base, bottom)]), "");
        if self.bars.is_empty() {
            svg.text("note", (left + width / 2.0, top + 16.0), Anchor::Middle, "no data");
        }
        svg.text("label", (left + width / 2.0, bottom + 35.0), Anchor::Middle, &self.x);
        if !self.y.is_empty() {
            svg.upright("label", (13.0, (top + bottom) / 2.0), Anchor::Middle, &self.y);
        }
        svg.finish()
    }
}

fn hint(name: &str, value: f64, spread: Option<(f64, f64)>) -> String {
    match spread {
        Some((low, high)) => {
            format!("{name}: {} ({} to {})", said(value), said(low), said(high))
        }
        None => format!("{name}: {}", said(value)),
    }
}
