//! As much SVG as charts need. Coordinates have two decimals at the most, so that files stay small.

use std::fmt::Write;

/// An SVG element being written.
pub(super) struct Svg {
    text: String,
}

/// Where a text stands relative to its point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

impl Svg {
    /// A chart of this size that scales to the space it is given; `title` is read to those who do not see it.
    pub(super) fn new(width: f64, height: f64, title: &str) -> Self {
        let (width, height, title) = (number(width), number(height), escape(title));
        let mut svg = Self { text: String::new() };
        svg.push(&format!(
            "<svg class=\"chart\" xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
             height=\"{height}\" role=\"img\">\n<title>{title}</title>"
        ));
        svg
    }

    pub(super) fn finish(mut self) -> String {
        self.push("</svg>");
        self.text
    }

    /// Draws in the rectangle at `x`, `y` and cuts off what lies outside; coordinates are those of the rectangle.
    pub(super) fn clipped(
        &mut self,
        (x, y): (f64, f64),
        (width, height): (f64, f64),
        draw: impl FnOnce(&mut Self),
    ) {
        let [x, y, width, height] = [x, y, width, height].map(number);
        self.push(&format!("<svg x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\">"));
        draw(self);
        self.push("</svg>");
    }

    pub(super) fn text(&mut self, class: &str, (x, y): (f64, f64), anchor: Anchor, words: &str) {
        let anchor = match anchor {
            Anchor::Start => "",
            Anchor::Middle => " text-anchor=\"middle\"",
            Anchor::End => " text-anchor=\"end\"",
        };
        let (x, y, words) = (number(x), number(y), escape(words));
        self.push(&format!("<text class=\"{class}\" x=\"{x}\" y=\"{y}\"{anchor}>{words}</text>"));
    }

    /// Text that runs upwards from its point, or is centered on it.
    pub(super) fn upright(&mut self, class: &str, (x, y): (f64, f64), anchor: Anchor, words: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let (x, y, words) = (number(x), number(y), escape(words));
        self.push(&format!(
            "<text class=\"{class}\" transform=\"translate({x} {y}) rotate(-90)\" text-anchor=\"{anchor}\">{words}</text>"
        ));
    }

    /// A path by its commands; `hint` shows when pointed at.
    pub(super) fn path(&mut self, class: &str, commands: &str, hint: &str) {
        if commands.is_empty() {
            return;
        }
        if hint.is_empty() {
            self.push(&format!("<path class=\"{class}\" d=\"{commands}\"/>"));
        } else {
            let hint = escape(hint);
            self.push(&format!(
                "<path class=\"{class}\" d=\"{commands}\"><title>{hint}</title></path>"
            ));
        }
    }

    /// A path filled more or less strongly, 0 to 1.
    pub(super) fn shade(&mut self, class: &str, strength: f64, commands: &str, hint: &str) {
        let strength = number(strength);
        let class = format!("{class}\" fill-opacity=\"{strength}");
        self.path(&class, commands, hint);
    }

    fn push(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }
}

/// The commands of a line through points.
pub(super) fn line(points: impl IntoIterator<Item = (f64, f64)>) -> String {
    let mut commands = String::new();
    for (i, (x, y)) in points.into_iter().enumerate() {
        let command = if i == 0 { 'M' } else { 'L' };
        // Writing to a string cannot fail.
        let _ = write!(commands, "{command}{} {}", number(x), number(y));
    }
    commands
}

/// The commands of a rectangle.
pub(super) fn rect((x, y): (f64, f64), (width, height): (f64, f64)) -> String {
    let [x, y, width, height] = [x, y, width, height].map(number);
    format!("M{x} {y}h{width}v{height}h-{width}z")
}

/// A number with at most two decimals.
pub(super) fn number(value: f64) -> String {
    let text = format!("{value:.2}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

/// About how wide a text is, in pixels of the charts' 12-pixel font.
pub(super) fn width_of(text: &str) -> f64 {
    let width = |c: char| match c {
        'i' | 'l' | 'j' | '.' | ',' | '\'' | '|' | ':' => 3.6,
        'm' | 'w' | 'M' | 'W' => 10.5,
        c if c.is_uppercase() || !c.is_ascii() => 8.2,
        _ => 6.8,
    };
    text.chars().map(width).sum()
}

/// At most `longest` characters, an ellipsis for the rest.
pub(super) fn shortened(text: &str, longest: usize) -> String {
    if text.chars().count() <= longest {
        return text.to_owned();
    }
    text.chars().take(longest.saturating_sub(1)).chain(['…']).collect()
}

/// Text as it may stand in XML and HTML, attributes included; characters that XML does not have become `�`.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\t' | '\n' | '\r' => out.push(c),
            '\0'..='\x1f' | '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}
