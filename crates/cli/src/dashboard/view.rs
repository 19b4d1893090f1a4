//! What is known of a run, and how it is drawn.

use std::env;

use ratatui::{
    Frame,
    layout::{Constraint, Layout, Rect},
    style::{Color, Modifier, Style},
    symbols::Marker,
    text::Line,
    widgets::{Axis, Block, Chart, Dataset, Gauge, GraphType, Paragraph, Wrap},
};
use whatwhere_training::{Record, journal::Past};

use crate::progress::Pace;

/// Points of a curve before neighbours are joined: more than a wide terminal can show.
const POINTS: usize = 1024;

/// A run as it is shown.
pub(super) struct View {
    steps: u64,
    pace: Pace,
    /// Where the curves begin.
    first: u64,
    step: u64,
    record: Option<Record>,
    train: Curve,
    pub(super) valid: Curve,
    pub(super) sample: String,
    pub(super) is_stopping: bool,
    has_color: bool,
}

impl View {
    pub(super) fn new(step: u64, steps: u64) -> Self {
        let no_color = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self {
            steps,
            pace: Pace::new(step),
            first: step,
            step,
            record: None,
            train: Curve::default(),
            valid: Curve::default(),
            sample: String::new(),
            is_stopping: false,
            has_color: !no_color,
        }
    }

    /// The losses of the updates before this process, so that curves go on.
    pub(super) fn recall(&mut self, past: &[Past]) {
        for Past { step, loss, valid } in past {
            self.first = self.first.min(step - 1);
            loss.iter().for_each(|loss| self.train.push(*step as f64, *loss));
            valid.iter().for_each(|loss| self.valid.push(*step as f64, *loss));
        }
    }

    pub(super) fn updated(&mut self, record: &Record, step: u64) {
        self.step = step;
        self.record = Some(*record);
        self.train.push(step as f64, record.loss);
    }

    pub(super) fn render(&self, frame: &mut Frame) {
        let area = frame.area();
        let figures = if area.width < 72 { 2 } else { 1 };
        let sample = if area.height < 20 { 0 } else { area.height / 4 };
        let heights = [Constraint::Length(figures), Constraint::Min(0), Constraint::Length(sample)];
        let heights = heights.into_iter().chain([Constraint::Length(1); 2]);
        let [top, middle, text, gauge, keys] = Layout::vertical(heights).areas(area);
        frame.render_widget(Paragraph::new(self.figures()).wrap(Wrap { trim: true }), top);
        self.render_curves(frame, middle);
        if sample > 0 {
            let block = Block::bordered().title(" sample ");
            let lines: Vec<Line> =
                self.sample.lines().map(|line| line.replace('\t', " ").into()).collect();
            frame
                .render_widget(Paragraph::new(lines).wrap(Wrap { trim: false }).block(block), text);
        }
        let share = (self.step as f64 / self.steps.max(1) as f64).clamp(0.0, 1.0);
        let label = format!("{} of {} updates", self.step, self.steps);
        frame.render_widget(
            Gauge::default().ratio(share).label(label).gauge_style(self.style(Color::Cyan)),
            gauge,
        );
        let hint = match self.is_stopping {
            true => "stopping after this update; Ctrl-C ends at once",
            false => "q or Ctrl-C stops and saves",
        };
        let dim = Style::default().add_modifier(Modifier::DIM);
        frame.render_widget(Paragraph::new(Line::styled(hint, dim)), keys);
    }

    /// Rates and times, as far as known.
    fn figures(&self) -> String {
        let Some(record) = self.record else { return "the first update is under way".into() };
        let Record { lr, grad_norm, tokens_per_second, .. } = record;
        let left = self.pace.left(self.step, self.steps);
        format!(
            "lr {lr:.2e}   grad norm {grad_norm:.3}   {tokens_per_second:.0} tokens/s   {left} left"
        )
    }

    fn render_curves(&self, frame: &mut Frame, area: Rect) {
        let last = |name: &str, curve: &Curve| match curve.last {
            Some(loss) => format!("{name} {loss:.4}"),
            None => format!("{name} -"),
        };
        let (train, valid) = (self.train.points(), self.valid.points());
        let curves = vec![
            Dataset::default()
                .name(last("train", &self.train))
                .marker(Marker::Braille)
                .graph_type(GraphType::Line)
                .style(self.style(Color::Cyan))
                .data(&train),
            // Another marker, so that the two can be told apart without colors.
            Dataset::default()
                .name(last("valid", &self.valid))
                .marker(Marker::Dot)
                .graph_type(GraphType::Scatter)
                .style(self.style(Color::Yellow).add_modifier(Modifier::BOLD))
                .data(&valid),
        ];
        let losses = || train.iter().chain(&valid).map(|(_, loss)| *loss);
        let (low, high) = losses()
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), y| (low.min(y), high.max(y)));
        let (low, high) = match low < high {
            true => (low, high),
            false if low == high => (low - 0.5, high + 0.5),
            false => (0.0, 1.0),
        };
        // As far as it has come, so that the beginning of a long run is not a single column.
        let (begun, now) = (self.first, self.step.max(self.first + 1));
        let steps = [begun, begun.midpoint(now), now];
        let heights = [low, f64::midpoint(low, high), high].map(|loss| format!("{loss:.2}"));
        let across = Axis::default()
            .title("update")
            .bounds([begun as f64, now as f64])
            .labels(steps.map(|step| step.to_string()));
        let up = Axis::default().title("loss").bounds([low, high]).labels(heights);
        let half = (Constraint::Ratio(1, 2), Constraint::Ratio(2, 3));
        let chart = Chart::new(curves).x_axis(across).y_axis(up).hidden_legend_constraints(half);
        frame.render_widget(chart, area);
    }

    fn style(&self, color: Color) -> Style {
        if self.has_color { Style::default().fg(color) } else { Style::default() }
    }
}

/// A curve of any length in bounded memory: when there are too many points, each two become their mean.
pub(super) struct Curve {
    kept: Vec<(f64, f64)>,
    /// Points behind each kept one.
    each: usize,
    sum: (f64, f64),
    count: usize,
    last: Option<f64>,
}

impl Default for Curve {
    fn default() -> Self {
        Self { kept: Vec::new(), each: 1, sum: (0.0, 0.0), count: 0, last: None }
    }
}

impl Curve {
    /// Adds a point; what is not a number is left out.
    pub(super) fn push(&mut self, x: f64, y: f64) {
        if !y.is_finite() {
            return;
        }
        self.last = Some(y);
        self.sum = (self.sum.0 + x, self.sum.1 + y);
        self.count += 1;
        if self.count < self.each {
            return;
        }
        self.kept.extend(self.pending());
        (self.sum, self.count) = ((0.0, 0.0), 0);
        if self.kept.len() >= POINTS {
            let mean = |pair: &[(f64, f64)]| {
                let count = pair.len() as f64;
                let sum = pair.iter().fold((0.0, 0.0), |sum, p| (sum.0 + p.0, sum.1 + p.1));
                (sum.0 / count, sum.1 / count)
            };
            self.kept = self.kept.chunks(2).map(mean).collect();
            self.each *= 2;
        }
    }

    fn pending(&self) -> Option<(f64, f64)> {
        let count = self.count as f64;
        (self.count > 0).then(|| (self.sum.0 / count, self.sum.1 / count))
    }

    fn points(&self) -> Vec<(f64, f64)> {
        self.kept.iter().copied().chain(self.pending()).collect()
    }
}

#[cfg(test)]
mod tests {
    use ratatui::{Terminal, backend::TestBackend};

    use super::*;

    const SIZES: [(u16, u16); 5] = [(80, 24), (120, 40), (40, 12), (10, 3), (1, 1)];

    fn drawn(view: &View, (width, height): (u16, u16)) -> Vec<String> {
        let mut terminal =
            Terminal::new(TestBackend::new(width, height)).expect("no real terminal");
        let frame = terminal.draw(|frame| view.render(frame)).expect("no real terminal");
        let cells = frame.buffer.content().chunks(width.into());
        cells.map(|row| row.iter().map(|cell| cell.symbol()).collect::<String>()).collect()
    }

    fn begun() -> View {
        let mut view = View::new(0, 1000);
        for step in 1..=500 {
            let loss = 1.0 + 3.0 / (step as f64).sqrt();
            let record = Record {
                loss,
                lr: 1e-3,
                grad_norm: 0.5,
                tokens_per_second: 12_345.6,
                tokens: step,
            };
            view.updated(&record, step);
        }
        view.valid.push(250.0, 1.5);
        view.valid.push(500.0, 1.25);
        view.sample = "To be ▸ or not\nto be".into();
        view
    }

    #[test]
    fn nothing_is_known_before_the_first_update() {
        for size in SIZES {
            let lines = drawn(&View::new(0, 1000), size);
            assert!(!lines.concat().contains("NaN"));
        }
        let lines = drawn(&View::new(0, 1000), (80, 24));
        assert_eq!(lines[0].trim_end(), "the first update is under way");
        assert!(lines[22].contains("0 of 1000 updates"), "{lines:#?}");
        assert_eq!(lines[23].trim_end(), "q or Ctrl-C stops and saves");
    }

    #[test]
    fn curves_figures_and_samples_fit_every_size() {
        let view = begun();
        for size in SIZES {
            assert!(!drawn(&view, size).concat().contains("NaN"));
        }
        for size in [(80, 24), (120, 40)] {
            let lines = drawn(&view, size);
            let figures = "lr 1.00e-3   grad norm 0.500   12346 tokens/s   0s left";
            assert_eq!(lines[0].trim_end(), figures);
            let all = lines.concat();
            for word in ["train 1.1342", "valid 1.2500", "4.00", "update", "or not", "500 of 1000"]
            {
                assert!(all.contains(word), "{word} in {lines:#?}");
            }
        }
        let small = drawn(&view, (40, 12));
        assert!(small[0].starts_with("lr 1.00e-3   grad norm 0.500"), "{small:#?}");
        assert!(small[10].contains("500 of 1000 updates"), "{small:#?}");
        assert!(!small.concat().contains("or not"), "no room for samples: {small:#?}");
    }

    #[test]
    fn without_colors_none_is_used() {
        let view = View { has_color: false, ..begun() };
        let mut terminal = Terminal::new(TestBackend::new(80, 24)).expect("no real terminal");
        let frame = terminal.draw(|frame| view.render(frame)).expect("no real terminal");
        let plain =
            |cell: &ratatui::buffer::Cell| cell.fg == Color::Reset && cell.bg == Color::Reset;
        assert!(frame.buffer.content().iter().all(plain));
    }

    #[test]
    fn a_long_curve_keeps_its_ends_and_a_bounded_number_of_points() {
        let mut curve = Curve::default();
        for x in 0..100_000 {
            curve.push(f64::from(x), 2.0 * f64::from(x));
        }
        curve.push(100_000.0, f64::NAN);
        let points = curve.points();
        assert!((POINTS / 2..=POINTS).contains(&points.len()), "{}", points.len());
        assert!(points[0].0 < 200.0 && points[points.len() - 1].0 > 99_000.0);
        assert!(points.iter().all(|(x, y)| (y - 2.0 * x).abs() < 1e-6));
        assert_eq!(curve.last, Some(199_998.0));
    }

    #[test]
    fn curves_of_a_resumed_run_go_on_from_its_records() {
        let mut view = View::new(400, 1000);
        let past = |step, loss, valid| Past { step, loss, valid };
        view.recall(&[past(10, Some(4.5), None), past(400, Some(2.0), Some(2.25))]);
        let lines = drawn(&view, (80, 24)).concat();
        for word in ["train 2.0000", "valid 2.2500", "4.50"] {
            assert!(lines.contains(word), "{word} in {lines}");
        }
        let rows = drawn(&view, (80, 24));
        let is_axis = |row: &String| row.trim().starts_with("9 ") && row.trim().ends_with("400");
        assert!(rows.iter().any(is_axis), "from the first record on: {rows:#?}");
        assert!(lines.contains("400 of 1000 updates"), "{lines}");
    }

    #[test]
    fn a_view_that_is_asked_to_stop_says_so() {
        let view = View { is_stopping: true, ..begun() };
        assert!(drawn(&view, (80, 24))[23].starts_with("stopping after this update"));
    }
}
