//! What `/metrics` tells, in Prometheus' text format.

use std::{
    fmt::Write as _,
    sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    time::Duration,
};

/// Upper bounds of what takes time, in milliseconds.
const MILLISECONDS: [u64; 12] = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 5000, 20000];
/// Upper bounds of texts in a step.
const TEXTS: [u64; 8] = [1, 2, 4, 8, 16, 32, 64, 128];

/// Counters and histograms of one run.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    requests: AtomicU64,
    cancelled: AtomicU64,
    prompt_tokens: AtomicU64,
    cached_tokens: AtomicU64,
    written_tokens: AtomicU64,
    slots: AtomicUsize,
    first_token: Histogram<12>,
    next_token: Histogram<12>,
    step: Histogram<8>,
}

/// Counts below and at each bound, and beyond the last.
#[derive(Debug)]
struct Histogram<const N: usize> {
    counts: [AtomicU64; N],
    beyond: AtomicU64,
    sum: AtomicU64,
}

impl<const N: usize> Default for Histogram<N> {
    fn default() -> Self {
        let counts = std::array::from_fn(|_| AtomicU64::new(0));
        Self { counts, beyond: AtomicU64::new(0), sum: AtomicU64::new(0) }
    }
}

impl<const N: usize> Histogram<N> {
    /// `value` is in the unit of the bounds, `exact` in that of the sum.
    fn observe(&self, bounds: [u64; N], value: f64, exact: u64) {
        let at = bounds.iter().position(|bound| value <= *bound as f64);
        at.map_or(&self.beyond, |at| &self.counts[at]).fetch_add(1, Relaxed);
        self.sum.fetch_add(exact, Relaxed);
    }

    /// `bound` is what a bound is in the unit that is told, `unit` what one of the sum is.
    fn tell(
        &self,
        out: &mut String,
        name: &str,
        model: &str,
        bounds: [u64; N],
        bound: f64,
        unit: f64,
    ) {
        let mut total = 0;
        for (count, limit) in self.counts.iter().zip(bounds) {
            total += count.load(Relaxed);
            let limit = limit as f64 * bound;
            let _ = writeln!(out, "{name}_bucket{{model=\"{model}\",le=\"{limit}\"}} {total}");
        }
        total += self.beyond.load(Relaxed);
        let sum = self.sum.load(Relaxed) as f64 * unit;
        let _ = writeln!(out, "{name}_bucket{{model=\"{model}\",le=\"+Inf\"}} {total}");
        let _ = writeln!(out, "{name}_sum{{model=\"{model}\"}} {sum}");
        let _ = writeln!(out, "{name}_count{{model=\"{model}\"}} {total}");
    }
}

/// What each metric is.
const HELP: [(&str, &str, &str); 10] = [
    ("whatwhere_requests_total", "counter", "Prompts that were begun."),
    ("whatwhere_cancelled_total", "counter", "Texts whose client left before they were done."),
    ("whatwhere_prompt_tokens_total", "counter", "Tokens of prompts."),
    (
        "whatwhere_cached_tokens_total",
        "counter",
        "Tokens of prompts that were known from earlier ones.",
    ),
    ("whatwhere_written_tokens_total", "counter", "Tokens written."),
    ("whatwhere_slots_busy", "gauge", "Texts that are being read or written."),
    ("whatwhere_waiting", "gauge", "Texts and questions that wait."),
    (
        "whatwhere_first_token_seconds",
        "histogram",
        "From the request to the first token of a text.",
    ),
    ("whatwhere_next_token_seconds", "histogram", "Between two tokens of a text."),
    ("whatwhere_step_texts", "histogram", "Texts that one step wrote a token of."),
];

impl Metrics {
    pub(crate) fn began(&self, prompt: usize, cached: usize) {
        self.requests.fetch_add(1, Relaxed);
        self.prompt_tokens.fetch_add(prompt as u64, Relaxed);
        self.cached_tokens.fetch_add(cached as u64, Relaxed);
    }

    pub(crate) fn cancelled(&self, texts: usize) {
        self.cancelled.fetch_add(texts as u64, Relaxed);
    }

    pub(crate) fn slots(&self, busy: usize) {
        self.slots.store(busy, Relaxed);
    }

    pub(crate) fn first_token(&self, time: Duration) {
        self.written_tokens.fetch_add(1, Relaxed);
        let micros = time.as_micros() as u64;
        self.first_token.observe(MILLISECONDS, time.as_secs_f64() * 1e3, micros);
    }

    pub(crate) fn next_token(&self, time: Duration) {
        self.written_tokens.fetch_add(1, Relaxed);
        let micros = time.as_micros() as u64;
        self.next_token.observe(MILLISECONDS, time.as_secs_f64() * 1e3, micros);
    }

    pub(crate) fn step(&self, texts: usize) {
        self.step.observe(TEXTS, texts as f64, texts as u64);
    }

    /// The page of several runs, with how many texts wait for each.
    pub(crate) fn page<'a>(all: impl Iterator<Item = (&'a str, &'a Self, usize)>) -> String {
        let all: Vec<(String, &Self, usize)> = all
            .map(|(name, metrics, waiting)| {
                let name = name.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
                (name, metrics, waiting)
            })
            .collect();
        let mut out = String::new();
        for (name, kind, help) in HELP {
            let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
            for (model, metrics, waiting) in &all {
                metrics.tell(&mut out, name, model, *waiting);
            }
        }
        out
    }

    fn tell(&self, out: &mut String, name: &str, model: &str, waiting: usize) {
        let value = match name {
            "whatwhere_requests_total" => self.requests.load(Relaxed),
            "whatwhere_cancelled_total" => self.cancelled.load(Relaxed),
            "whatwhere_prompt_tokens_total" => self.prompt_tokens.load(Relaxed),
            "whatwhere_cached_tokens_total" => self.cached_tokens.load(Relaxed),
            "whatwhere_written_tokens_total" => self.written_tokens.load(Relaxed),
            "whatwhere_slots_busy" => self.slots.load(Relaxed) as u64,
            "whatwhere_waiting" => waiting as u64,
            "whatwhere_first_token_seconds" => {
                return self.first_token.tell(out, name, model, MILLISECONDS, 1e-3, 1e-6);
            }
            "whatwhere_next_token_seconds" => {
                return self.next_token.tell(out, name, model, MILLISECONDS, 1e-3, 1e-6);
            }
            _ => return self.step.tell(out, name, model, TEXTS, 1.0, 1.0),
        };
        let _ = writeln!(out, "{name}{{model=\"{model}\"}} {value}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn histograms_count_what_is_at_or_below_each_bound() {
        let metrics = Metrics::default();
        for millis in [1, 3, 3, 30_000] {
            metrics.next_token(Duration::from_millis(millis));
        }
        metrics.began(10, 4);
        let page = Metrics::page([("a\"b", &metrics, 2)].into_iter());
        for line in [
            "whatwhere_next_token_seconds_bucket{model=\"a\\\"b\",le=\"0.001\"} 1",
            "whatwhere_next_token_seconds_bucket{model=\"a\\\"b\",le=\"0.005\"} 3",
            "whatwhere_next_token_seconds_bucket{model=\"a\\\"b\",le=\"20\"} 3",
            "whatwhere_next_token_seconds_bucket{model=\"a\\\"b\",le=\"+Inf\"} 4",
            "whatwhere_next_token_seconds_count{model=\"a\\\"b\"} 4",
            "whatwhere_written_tokens_total{model=\"a\\\"b\"} 4",
            "whatwhere_cached_tokens_total{model=\"a\\\"b\"} 4",
            "whatwhere_waiting{model=\"a\\\"b\"} 2",
        ] {
            assert!(page.lines().any(|found| found == line), "{line}\n{page}");
        }
        assert_eq!(page.matches("# TYPE").count(), HELP.len());
    }
}
