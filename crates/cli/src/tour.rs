//! The tour: every choice timed at the size asked for and checked against the f64 reference at a small one.

use std::io::{Write, stdout};

use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressStyle};
use rayon::{ThreadPool, ThreadPoolBuilder};
use serde::Serialize;
use whatwhere_kernels::{Error, Simd, attention::Shape};

use crate::{
    choices::{self, Axis, Call, Choice},
    failure::Failure,
    measure,
    table::Form,
};

/// The size at which a choice is checked: the length crosses a tile and ends within the next;
/// the definition takes milliseconds.
const CHECKED: [usize; 3] = [2, 130, 16]; // heads, length, head_dim

/// Rounding of f32 in sums of some hundred terms, relative to the largest number of a slice or 1. About a hundred
/// times the unit roundoff; the largest error seen is a tenth of it.
const BOUND: f64 = 1e-5;

/// Bytes of the queries. A call holds about ten tensors of that size.
const LARGEST: usize = 128 << 20;

const CANNOT_WRITE: &str = "cannot write to standard output";

#[derive(clap::Args, Clone, Debug, PartialEq)]
pub(crate) struct Args {
    /// Tokens, 1 to 8192.
    #[arg(long, value_name = "N", default_value_t = 1024)]
    length: usize,
    /// Attention heads, 1 to 64.
    #[arg(long, value_name = "N", default_value_t = 8)]
    heads: usize,
    /// Size of one head, an even number from 2 to 256.
    #[arg(long, value_name = "N", default_value_t = 64)]
    head_dim: usize,
    /// Threads, 1 to 1024; all cores unless given.
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Seed of every random number.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Print one JSON object per line instead of a table.
    #[arg(long)]
    json: bool,
}

/// The sizes and the machine of a tour.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Setup {
    pub(crate) batch: usize,
    pub(crate) heads: usize,
    pub(crate) head_dim: usize,
    pub(crate) length: usize,
    pub(crate) threads: usize,
    pub(crate) simd: &'static str,
    pub(crate) seed: u64,
}

/// What the tour finds out about a choice.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) axis: Axis,
    pub(crate) name: &'static str,
    #[serde(skip)]
    pub(crate) about: &'static str,
    /// Share of the pairs of a query and a key.
    pub(crate) visible: f64,
    pub(crate) milliseconds: f64,
    pub(crate) tokens_per_second: f64,
    /// Numbers of this choice that a model learns.
    pub(crate) learned: usize,
    pub(crate) out_error: f64,
    pub(crate) gradient_error: f64,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    args.check()?;
    let pool = ThreadPoolBuilder::new().num_threads(args.threads.unwrap_or(0)).build()?;
    let rows = tour(args, &pool, &mut stdout().lock())?;
    let differ = |row: &&Row| row.out_error.max(row.gradient_error) > BOUND;
    let wrong: Vec<&str> = rows.iter().filter(differ).map(|row| row.name).collect();
    if wrong.is_empty() {
        return Ok(());
    }
    let message = format!("not within {BOUND:e} of the definition: {}", wrong.join(", "));
    Err(Failure::world(message, "this is a bug; please report it with the lines above").into())
}

/// Writes a row for every choice as soon as it is known.
fn tour(args: &Args, pool: &ThreadPool, out: &mut impl Write) -> Result<Vec<Row>> {
    let setup = Setup {
        batch: 1,
        heads: args.heads,
        head_dim: args.head_dim,
        length: args.length,
        threads: pool.current_num_threads(),
        simd: Simd::detect().name(),
        seed: args.seed,
    };
    let choices = choices::every();
    let form = Form::of_stdout(args.json);
    // Draws on standard error, and nothing at all when that is no terminal.
    let bar = ProgressBar::new(choices.len() as u64)
        .with_style(ProgressStyle::with_template("{bar:30} {pos} of {len}  {msg}")?);
    bar.suspend(|| form.head(&setup, out)).context(CANNOT_WRITE)?;
    let mut rows: Vec<Row> = Vec::new();
    for choice in &choices {
        bar.set_message(choice.name);
        let row = pool.install(|| look_at(choice, &setup))?;
        let first = rows.last().is_none_or(|last| last.axis != row.axis);
        bar.suspend(|| form.row(&setup, &row, first, out).and_then(|()| out.flush()))
            .context(CANNOT_WRITE)?;
        rows.push(row);
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(rows)
}

fn look_at(choice: &Choice, setup: &Setup) -> Result<Row, Error> {
    let Setup { batch, heads, head_dim, length, seed, .. } = *setup;
    let shape = Shape::square(batch, heads, length, head_dim);
    let (visible, seconds, learned) = choice.run(shape, seed, |call| {
        let Call { attention, .. } = call;
        Ok((measure::visible(attention), measure::seconds(call)?, measure::learned(attention)))
    })?;
    let [heads, length, head_dim] = CHECKED;
    let small = Shape::square(1, heads, length, head_dim);
    let (out_error, gradient_error) = choice.run(small, seed, measure::errors)?;
    Ok(Row {
        axis: choice.axis,
        name: choice.name,
        about: choice.about,
        visible,
        milliseconds: 1e3 * seconds,
        tokens_per_second: (shape.batch * shape.queries) as f64 / seconds,
        learned,
        out_error,
        gradient_error,
    })
}

impl Args {
    fn check(&self) -> Result<(), Failure> {
        let threads = self.threads.unwrap_or(1);
        let ranges = [
            ("--length", self.length, 1, 8192, "1024"),
            ("--heads", self.heads, 1, 64, "8"),
            ("--head-dim", self.head_dim, 2, 256, "64"),
            ("--threads", threads, 1, 1024, "2, or leave it out for all cores"),
        ];
        for (option, found, least, greatest, good) in ranges {
            if !(least..=greatest).contains(&found) {
                let message = format!("{option} {found} is outside {least} to {greatest}");
                return Err(Failure::usage(message, format!("try {option} {good}")));
            }
        }
        let bytes = self.length * self.heads * self.head_dim * size_of::<f32>();
        if bytes > LARGEST {
            let (found, allowed) = (bytes >> 20, LARGEST >> 20);
            let message = format!("queries of {found} MiB are more than {allowed} MiB");
            return Err(Failure::usage(message, "try a smaller --length, --heads or --head-dim"));
        }
        if !self.head_dim.is_multiple_of(2) {
            let message = format!("--head-dim {} is odd, but rotary turns pairs", self.head_dim);
            return Err(Failure::usage(message, format!("try --head-dim {}", self.head_dim + 1)));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tiny(length: usize, heads: usize, head_dim: usize) -> Args {
        Args { length, heads, head_dim, threads: Some(2), seed: 7, json: true }
    }

    fn tour_of(args: &Args) -> (Vec<Row>, String) {
        args.check().unwrap();
        let pool = ThreadPoolBuilder::new().num_threads(2).build().unwrap();
        let mut out = Vec::new();
        let rows = tour(args, &pool, &mut out).unwrap();
        (rows, String::from_utf8(out).unwrap())
    }

    #[test]
    fn every_choice_agrees_with_the_reference() {
        for (seed, args) in [tiny(40, 4, 8), tiny(1, 1, 2)].into_iter().enumerate() {
            let (rows, _) = tour_of(&Args { seed: seed as u64, ..args });
            assert_eq!(rows.len(), choices::every().len());
            for row in rows {
                let worst = row.out_error.max(row.gradient_error);
                assert!(worst <= BOUND, "{:?} {}: {worst:e}", row.axis, row.name);
                assert!(row.visible > 0.0 && row.visible <= 1.0, "{}", row.name);
            }
        }
    }

    #[test]
    fn json_has_one_object_for_each_choice() {
        let (rows, text) = tour_of(&tiny(16, 2, 4));
        assert_eq!(text.lines().count(), rows.len());
        for (line, row) in text.lines().zip(rows) {
            let object: serde_json::Value = serde_json::from_str(line).unwrap();
            assert_eq!(object["name"], row.name);
            assert_eq!((&object["length"], &object["learned"]), (&16.into(), &row.learned.into()));
            assert!(object["milliseconds"].as_f64().unwrap() > 0.0);
        }
    }

    #[test]
    fn sizes_out_of_range_are_refused_with_a_hint() {
        let good = tiny(16, 2, 4);
        let wrong = [
            Args { length: 0, ..good.clone() },
            Args { length: 8193, ..good.clone() },
            Args { heads: 0, ..good.clone() },
            Args { heads: 65, ..good.clone() },
            Args { head_dim: 0, ..good.clone() },
            Args { head_dim: 7, ..good.clone() },
            Args { threads: Some(0), ..good.clone() },
            Args { length: 8192, heads: 64, head_dim: 256, ..good.clone() },
        ];
        for args in wrong {
            let failure = args.check().unwrap_err();
            assert!(failure.is_usage && failure.hint.starts_with("try "), "{args:?}: {failure}");
        }
    }
}
