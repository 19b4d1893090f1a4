//! As much SVG as the picture needs: groups, text, paths. Coordinates have one decimal, so that files stay small.

use std::fmt::Write;

/// An SVG document being written.
pub(crate) struct Svg {
    text: String,
}

/// Where a text stands relative to its point.
#[derive(Clone, Copy)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

impl Svg {
    /// A document that scales to the space it is given; `style` is CSS, `title` is read to those who do not see it.
    pub(crate) fn new(width: f64, height: f64, title: &str, style: &str) -> Self {
        let mut svg = Self { text: String::new() };
        svg.push(&format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" width=\"{0}\" height=\"{1}\" role=\"img\">",
            number(width),
            number(height),
        ));
        svg.push(&format!("<title>{}</title>", escaped(title)));
        svg.push(&format!("<style>{style}</style>"));
        svg
    }

    pub(crate) fn finish(mut self) -> String {
        self.push("</svg>");
        self.text
    }

    /// Draws with the origin at (`x`, `y`).
    pub(crate) fn group(&mut self, x: f64, y: f64, draw: impl FnOnce(&mut Self)) {
        self.push(&format!("<g transform=\"translate({} {})\">", number(x), number(y)));
        draw(self);
        self.push("</g>");
    }

    /// A named rectangle that [`Self::clipped`] cuts to.
    pub(crate) fn clip(&mut self, name: &str, width: f64, height: f64) {
        let (width, height) = (number(width), number(height));
        self.push(&format!(
            "<clipPath id=\"{name}\"><rect width=\"{width}\" height=\"{height}\"/></clipPath>"
        ));
    }

    pub(crate) fn clipped(&mut self, name: &str, draw: impl FnOnce(&mut Self)) {
        self.push(&format!("<g clip-path=\"url(#{name})\">"));
        draw(self);
        self.push("</g>");
    }

    pub(crate) fn text(&mut self, class: &str, (x, y): (f64, f64), anchor: Anchor, words: &str) {
        let anchor = match anchor {
            Anchor::Start => "",
            Anchor::Middle => " text-anchor=\"middle\"",
            Anchor::End => " text-anchor=\"end\"",
        };
        let (x, y, words) = (number(x), number(y), escaped(words));
        self.push(&format!("<text class=\"{class}\" x=\"{x}\" y=\"{y}\"{anchor}>{words}</text>"));
    }

    /// Text that runs upwards, centered on its point.
    pub(crate) fn upright(&mut self, class: &str, (x, y): (f64, f64), words: &str) {
        let (x, y, words) = (number(x), number(y), escaped(words));
        let place = format!("transform=\"translate({x} {y}) rotate(-90)\" text-anchor=\"middle\"");
        self.push(&format!("<text class=\"{class}\" {place}>{words}</text>"));
    }

    pub(crate) fn rect(&mut self, class: &str, width: f64, height: f64) {
        let (width, height) = (number(width), number(height));
        self.push(&format!("<rect class=\"{class}\" width=\"{width}\" height=\"{height}\"/>"));
    }

    /// A path by its commands.
    pub(crate) fn path(&mut self, class: &str, commands: &str) {
        self.push(&format!("<path class=\"{class}\" d=\"{commands}\"/>"));
    }

    fn push(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }
}

/// The commands of a line through points.
pub(crate) fn line(points: impl IntoIterator<Item = (f64, f64)>) -> String {
    let mut commands = String::new();
    for (i, (x, y)) in points.into_iter().enumerate() {
        let command = if i == 0 { 'M' } else { 'L' };
        // Writing to a string cannot fail.
        let _ = write!(commands, "{command}{} {}", number(x), number(y));
    }
    commands
}

/// A number with at most one decimal.
pub(crate) fn number(value: f64) -> String {
    let text = format!("{value:.1}");
    let text = text.strip_suffix(".0").unwrap_or(&text);
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_words_are_escaped() {
        assert_eq!([1.0, 0.25, -0.04, 12.34].map(number), ["1", "0.2", "0", "12.3"]);
        assert_eq!(escaped("a < b & c"), "a &lt; b &amp; c");
        assert_eq!(line([(0.0, 1.0), (2.5, 3.0)]), "M0 1L2.5 3");
    }
}
