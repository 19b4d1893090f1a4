//! Heat: a table of values as a map, such as who attends to whom.
//!
//! A value is drawn as the strength of one color (or of two, for values on both sides of 0), so that a map reads the same
//! on light and dark screens, in print, and without telling colors apart. Cells of equal strength are one path: a map of
//! 128 × 128 cells stays below a few hundred kilobytes.

use std::fmt::Write;

use super::{
    axis::{label, said},
    frame::{LINE, draw_title, wrapped},
    svg::{Anchor, Svg, number, rect, shortened, width_of},
};

/// A table of values as a map.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Heat {
    /// What the chart shows.
    pub title: String,
    /// What columns are.
    pub x: String,
    /// What rows are.
    pub y: String,
    /// Names of the columns, or none.
    pub columns: Vec<String>,
    /// Names of the rows, or none.
    pub rows: Vec<String>,
    /// Row by row from the top; what is not finite stays blank.
    pub values: Vec<Vec<f64>>,
    /// The values of the weakest and the strongest color; from the data if absent.
    pub range: Option<(f64, f64)>,
    /// Two colors, one for values below 0, one for values above.
    pub diverging: bool,
}

const WIDEST: f64 = 470.0; // of the map
const CELL: f64 = 34.0; // at the most
const NAMED: f64 = 8.0; // of a cell whose row and column have a name of their own, at the least
const LETTERS: usize = 128; // names that are all shown
const LEGEND: f64 = 90.0; // height of the legend
const LEVELS: i32 = 32; // strengths told apart
const HINTS: usize = 2500; // cells that show their value when pointed at
const NAME: usize = 18; // characters of a name that are shown
const APART: f64 = 3.0; // pixels between two names
const LINE_OF_NAMES: f64 = 11.0; // height of a name
const SMALL: f64 = 0.84; // size of a name beside the charts' other text

pub(super) struct Layout {
    pub(super) left: f64,
    pub(super) top: f64,
    pub(super) cell: (f64, f64),
    pub(super) cells: (usize, usize),
}

impl Layout {
    fn size(&self) -> (f64, f64) {
        (self.cell.0 * self.cells.0 as f64, self.cell.1 * self.cells.1 as f64)
    }
}

impl Heat {
    /// The chart as an `<svg>` element.
    pub fn svg(&self) -> String {
        let title = wrapped(&self.title);
        let layout = self.layout(title.len());
        let ((width, height), range) = (layout.size(), self.shown());
        let right = layout.left + width;
        let bottom = layout.top + height.max(LEGEND);
        let picture = (right.max(300.0) + 92.0, bottom + 28.0);
        let mut svg = Svg::new(picture.0, picture.1, &title.join(" "));
        draw_title(&mut svg, &title);
        svg.path("ground", &rect((layout.left, layout.top), (width, height)), "");
        if layout.cells.0 * layout.cells.1 <= HINTS {
            self.draw_cells(&mut svg, &layout, range);
        } else {
            self.draw_levels(&mut svg, &layout, range);
        }
        self.draw_names(&mut svg, &layout);
        self.draw_legend(&mut svg, (right + 18.0, layout.top), range);
        if self.values.iter().all(|row| row.is_empty()) {
            let middle = (layout.left + width / 2.0, layout.top + height / 2.0);
            svg.text("note", middle, Anchor::Middle, "no data");
        }
        svg.finish()
    }

    fn layout(&self, title: usize) -> Layout {
        let widest = self.values.iter().map(Vec::len).max().unwrap_or(0);
        let (columns, rows) = (widest.max(1), self.values.len().max(1));
        // Whole pixels, where there are some to spare: edges between cells stay invisible.
        let whole = |size: f64| if size >= 2.0 { size.floor() } else { size };
        let square = whole((WIDEST / columns.max(rows) as f64).min(CELL));
        let square = if self.shows_all_names() { square.max(NAMED) } else { square };
        // A few long rows are drawn high enough to be seen.
        let cell = match (columns / rows, rows / columns) {
            (0..=3, 0..=3) => (square, square),
            _ => {
                let fit = |count: usize| (WIDEST / count as f64).min(CELL);
                (whole(fit(columns)), whole(fit(rows).min(22.0)))
            }
        };
        let longest = |names: &[String]| {
            let widths = names.iter().map(|name| width_of(&shown_name(name)));
            SMALL * widths.fold(0.0, f64::max)
        };
        let label = if self.y.is_empty() { 8.0 } else { 26.0 };
        let head = if self.x.is_empty() { 8.0 } else { 26.0 };
        let above = match self.upright(cell.0) {
            true => self.widest_column(),
            false if self.columns.is_empty() => 0.0,
            false => 12.0,
        };
        Layout {
            left: (longest(&self.rows) + label + 6.0).round(),
            top: (10.0 + LINE * title as f64 + above + head).round(),
            cell,
            cells: (columns, rows),
        }
    }

    /// Whether every name is shown, for which a map may grow: words cannot be guessed from their neighbors, numbers can.
    fn shows_all_names(&self) -> bool {
        let is_word = |name: &String| name.parse::<f64>().is_err();
        let names = self.columns.len().max(self.rows.len());
        names <= LETTERS && self.columns.iter().chain(&self.rows).any(is_word)
    }

    /// Whether names of columns are too wide to stand beside each other; of numbers some can be left out.
    fn upright(&self, cell: f64) -> bool {
        let are_numbers = self.columns.iter().all(|name| name.parse::<f64>().is_ok());
        !are_numbers && self.widest_column() + APART > cell
    }

    fn widest_column(&self) -> f64 {
        let widths = self.columns.iter().map(|name| width_of(&shown_name(name)));
        SMALL * widths.fold(0.0, f64::max)
    }

    /// The values of no and of full color.
    fn shown(&self) -> (f64, f64) {
        let finite = || self.values.iter().flatten().copied().filter(|value| value.is_finite());
        let found =
            (finite().fold(f64::INFINITY, f64::min), finite().fold(f64::NEG_INFINITY, f64::max));
        let (low, high) =
            self.range.filter(|(l, h)| l.is_finite() && h.is_finite()).unwrap_or(found);
        if self.diverging {
            let most = low.abs().max(high.abs());
            return if most.is_finite() && most > 0.0 { (-most, most) } else { (-1.0, 1.0) };
        }
        match (low, high) {
            _ if !low.is_finite() || !high.is_finite() => (0.0, 1.0),
            // Weights and counts start at 0, and a map of equal values is one of full cells.
            _ if self.range.is_none() && low >= 0.0 => (0.0, if high > 0.0 { high } else { 1.0 }),
            _ if low < high => (low, high),
            _ => (low - 1.0, low),
        }
    }

    /// The level of a value, from −LEVELS to LEVELS.
    fn level(&self, value: f64, (low, high): (f64, f64)) -> Option<i32> {
        let share = match self.diverging {
            true => value / high,
            false => value / (high - low) - low / (high - low),
        };
        let least = if self.diverging { -1.0 } else { 0.0 };
        value.is_finite().then(|| (share.clamp(least, 1.0) * f64::from(LEVELS)).round() as i32)
    }

    fn draw_cells(&self, svg: &mut Svg, layout: &Layout, range: (f64, f64)) {
        for (row, values) in self.values.iter().enumerate() {
            for (column, value) in values.iter().enumerate() {
                let Some(level) = self.level(*value, range) else { continue };
                let corner = (
                    layout.left + layout.cell.0 * column as f64,
                    layout.top + layout.cell.1 * row as f64,
                );
                let hint = self.hint(row, column, *value);
                let (class, strength) = shade(level);
                svg.shade(class, strength, &rect(corner, layout.cell), &hint);
            }
        }
    }

    pub(super) fn draw_levels(&self, svg: &mut Svg, layout: &Layout, range: (f64, f64)) {
        let mut paths = vec![String::new(); 2 * LEVELS as usize + 1];
        let (width, height) = layout.cell;
        for (row, values) in self.values.iter().enumerate() {
            let levels: Vec<Option<i32>> =
                values.iter().map(|value| self.level(*value, range)).collect();
            let mut column = 0;
            for equal in levels.chunk_by(|a, b| a == b) {
                if let Some(level) = equal[0].filter(|level| *level != 0) {
                    let x = number(layout.left + width * column as f64);
                    let y = number(layout.top + height * row as f64);
                    let (across, down) = (number(width * equal.len() as f64), number(height));
                    let path = &mut paths[(level + LEVELS) as usize];
                    // Writing to a string cannot fail.
                    let _ = write!(path, "M{x} {y}h{across}v{down}h-{across}z");
                }
                column += equal.len();
            }
        }
        for (level, path) in (-LEVELS..).zip(&paths) {
            let (class, strength) = shade(level);
            svg.shade(class, strength, path, "");
        }
    }

    fn draw_names(&self, svg: &mut Svg, layout: &Layout) {
        let Layout { left, top, cell, .. } = *layout;
        let upright = self.upright(cell.0);
        let all = self.shows_all_names();
        let class = |cell: f64| if all && cell < LINE_OF_NAMES { "small" } else { "tiny" };
        let step =
            stride(cell.0, if upright { LINE_OF_NAMES } else { self.widest_column() + APART });
        let step = if all { 1 } else { step };
        for (i, name) in self.columns.iter().enumerate().take(layout.cells.0).step_by(step) {
            let (x, name) = (left + cell.0 * (i as f64 + 0.5), shown_name(name));
            match upright {
                true => svg.upright(class(cell.0), (x + 3.0, top - 4.0), Anchor::Start, &name),
                false => svg.text(class(cell.0), (x, top - 5.0), Anchor::Middle, &name),
            }
        }
        let step = if all { 1 } else { stride(cell.1, LINE_OF_NAMES) };
        for (i, name) in self.rows.iter().enumerate().take(layout.cells.1).step_by(step) {
            let y = top + cell.1 * (i as f64 + 0.5) + 3.5;
            svg.text(class(cell.1), (left - 5.0, y), Anchor::End, &shown_name(name));
        }
        let (width, height) = layout.size();
        if !self.y.is_empty() {
            svg.upright("label", (13.0, top + height / 2.0), Anchor::Middle, &self.y);
        }
        if !self.x.is_empty() {
            svg.text("label", (left + width / 2.0, top + height + 18.0), Anchor::Middle, &self.x);
        }
    }

    fn draw_legend(&self, svg: &mut Svg, (x, top): (f64, f64), (low, high): (f64, f64)) {
        let (first, height) = (if self.diverging { -LEVELS } else { 0 }, LEGEND);
        let levels: Vec<i32> = (first..=LEVELS).step_by(4).collect();
        let step = height / levels.len() as f64;
        svg.path("ground", &rect((x, top), (12.0, height)), "");
        for (i, level) in levels.iter().rev().enumerate() {
            let (class, strength) = shade(*level);
            let corner = (x, top + step * i as f64);
            svg.shade(class, strength, &rect(corner, (12.0, step)), "");
        }
        for (share, value) in [(0.0, high), (0.5, (low + high) / 2.0), (1.0, low)] {
            let text = label(value, round_step(high - low));
            svg.text("tiny", (x + 17.0, top + share * height + 4.0), Anchor::Start, &text);
        }
    }

    fn hint(&self, row: usize, column: usize, value: f64) -> String {
        let name = |names: &[String], kind: &str, index: usize| match names.get(index) {
            Some(name) => format!("{kind} {name}"),
            None => format!("{kind} {index}"),
        };
        let (row, column) = (name(&self.rows, &self.y, row), name(&self.columns, &self.x, column));
        format!("{}, {}: {}", row.trim(), column.trim(), said(value))
    }
}

/// The class and strength of a level.
fn shade(level: i32) -> (&'static str, f64) {
    let strength = f64::from(level.abs()) / f64::from(LEVELS);
    (if level < 0 { "cold" } else { "warm" }, strength)
}

/// Show every so manieth name, if each takes this much space: 1, 2, 5, 10, 20, …
fn stride(cell: f64, space: f64) -> usize {
    let least = (space / cell.max(0.01)).ceil() as usize;
    let tens = (0..6).map(|power| 10usize.pow(power));
    tens.flat_map(|ten| [ten, 2 * ten, 5 * ten]).find(|step| *step >= least).unwrap_or(least)
}

fn shown_name(name: &str) -> String {
    shortened(name, NAME)
}

/// A hundredth of the range, rounded to a power of ten: what a legend's labels are rounded to.
fn round_step(extent: f64) -> f64 {
    10f64.powf((extent / 20.0).log10().floor())
}
