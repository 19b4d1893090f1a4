//! What all charts with two axes share: the title, the axes with their ticks, and where a pair of values stands.

use super::{
    axis::{Axis, Ends, Ruler},
    svg::{Anchor, Svg, line, width_of},
};

/// Height of a line of text.
pub(super) const LINE: f64 = 15.0;
const PLOT: (f64, f64) = (540.0, 290.0); // of which labels of series take what they need
const WORDS: usize = 84; // characters of a title that fit beside each other

/// The plot of a chart and its axes.
pub(super) struct Frame {
    pub(super) left: f64,
    pub(super) top: f64,
    pub(super) width: f64,
    pub(super) height: f64,
    /// Space to the right of the plot.
    right: f64,
    title: Vec<String>,
    labels: (String, String),
    x: Ruler,
    y: Ruler,
}

impl Frame {
    /// A frame for values on two axes; `right` is left free beside the plot, whose height is at least `height`.
    pub(super) fn new(
        title: &str,
        (x, x_values): (&Axis, impl Iterator<Item = f64>),
        (y, y_values): (&Axis, impl Iterator<Item = f64>),
        x_ends: Ends,
        (right, height): (f64, f64),
    ) -> Self {
        let (labels, title) = ((x.label.clone(), y.label.clone()), wrapped(title));
        let (x, y) = (Ruler::new(x, x_values, x_ends), Ruler::new(y, y_values, Ends::Ticks));
        let widest = y.ticks.iter().map(|(_, label)| width_of(label)).fold(0.0, f64::max);
        let top = 16.0 + LINE * title.len() as f64 + if title.is_empty() { 0.0 } else { 12.0 };
        let left = widest + if labels.1.is_empty() { 14.0 } else { 34.0 };
        Self { left, top, width: PLOT.0, height: height.max(PLOT.1), right, title, labels, x, y }
    }

    /// Where a pair of values stands in the picture.
    pub(super) fn at(&self, (x, y): (f64, f64)) -> Option<(f64, f64)> {
        let (x, y) = (self.x.share(x)?, self.y.share(y)?);
        Some((self.left + x * self.width, self.top + (1.0 - y) * self.height))
    }

    /// Where a value of the first axis meets the plot's upper edge.
    pub(super) fn at_x(&self, x: f64) -> Option<(f64, f64)> {
        self.x.share(x).map(|share| (self.left + share * self.width, self.top))
    }

    /// The same as [`Self::at`] in the coordinates of the plot.
    pub(super) fn within(&self, pair: (f64, f64)) -> Option<(f64, f64)> {
        self.at(pair).map(|(x, y)| (x - self.left, y - self.top))
    }

    /// Whether a place of the picture lies in the plot.
    pub(super) fn holds(&self, (x, y): (f64, f64)) -> bool {
        let inside = |value: f64, start: f64, extent: f64| {
            (start - 0.01..=start + extent + 0.01).contains(&value)
        };
        inside(x, self.left, self.width) && inside(y, self.top, self.height)
    }

    /// The right and lower edge of the plot.
    pub(super) fn end(&self) -> (f64, f64) {
        (self.left + self.width, self.top + self.height)
    }

    /// Begins a picture with the title and the axes.
    pub(super) fn open(&self) -> Svg {
        let ((right, bottom), below) = (self.end(), 30.0 + LINE);
        let mut svg = Svg::new(right + self.right, bottom + below, &self.title.join(" "));
        draw_title(&mut svg, &self.title);
        for (value, label) in &self.y.ticks {
            if let Some(share) = self.y.share(*value) {
                let y = bottom - share * self.height;
                svg.path("grid", &line([(self.left, y), (right, y)]), "");
                svg.text("note", (self.left - 7.0, y + 4.0), Anchor::End, label);
            }
        }
        for (value, label) in &self.x.ticks {
            if let Some(share) = self.x.share(*value) {
                let x = self.left + share * self.width;
                svg.path("axis", &line([(x, bottom), (x, bottom + 4.0)]), "");
                svg.text("note", (x, bottom + 17.0), Anchor::Middle, label);
            }
        }
        svg.path("axis", &line([(self.left, bottom), (right, bottom)]), "");
        let middle = (self.left + self.width / 2.0, self.top + self.height / 2.0);
        svg.text("label", (middle.0, bottom + 35.0), Anchor::Middle, &self.labels.0);
        if !self.labels.1.is_empty() {
            svg.upright("label", (13.0, middle.1), Anchor::Middle, &self.labels.1);
        }
        svg
    }

    /// Says that there is nothing to draw.
    pub(super) fn say_empty(&self, svg: &mut Svg) {
        let middle = (self.left + self.width / 2.0, self.top + self.height / 2.0);
        svg.text("note", middle, Anchor::Middle, "no data");
    }
}

pub(super) fn draw_title(svg: &mut Svg, title: &[String]) {
    for (i, words) in title.iter().enumerate() {
        svg.text("title", (2.0, 16.0 + LINE * i as f64), Anchor::Start, words);
    }
}

/// A title in lines that fit the picture.
pub(super) fn wrapped(title: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in title.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + word.chars().count() < WORDS => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}
