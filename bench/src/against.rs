//! Another build of this program as the rival: is a change slower?

use std::{
    env,
    io::{self, BufRead, Write},
    path::Path,
    process::Command,
    thread,
};

use anyhow::{Context, Result};
use serde_json::{Value, json};
use whatwhere_bench::talk::{Talk, number};

use crate::{
    cases::{Case, cases},
    measure::{SETTLE, calls, time},
    ours::Problem,
    table::Row,
};

/// What the other build is called in the table.
const NAME: &str = "the other build";

/// Both builds, each in a process of its own.
pub(crate) struct Builds {
    ours: Talk,
    other: Talk,
}

impl Builds {
    pub(crate) fn start(other: &Path, threads: usize) -> Result<Self> {
        let this = env::current_exe().context("cannot find this program")?;
        Ok(Self { ours: worker(&this, threads)?, other: worker(other, threads)? })
    }

    /// The case in turns; the best call of each build counts.
    pub(crate) fn measure(
        &mut self,
        case: &Case,
        rounds: impl Fn(f64) -> usize,
        peak: f64,
    ) -> Result<Row> {
        let (mut ours, mut other) = (ask(&mut self.ours, case, 1)?, ask(&mut self.other, case, 1)?);
        let turn = |ms: f64| ms * calls(ms) as f64;
        for _ in 0..rounds(turn(ours) + turn(other)) {
            for (talk, best) in [(&mut self.ours, &mut ours), (&mut self.other, &mut other)] {
                thread::sleep(SETTLE);
                *best = best.min(ask(talk, case, calls(*best))?);
            }
        }
        let mut row = Row::new(case, NAME.to_owned());
        (row.ours_ms, row.rival_ms, row.target) = (Some(ours), Some(other), None);
        row.finish(case, peak);
        Ok(row)
    }
}

fn worker(program: &Path, threads: usize) -> Result<Talk> {
    let mut command = Command::new(program);
    command.args(["--work", "--threads", &threads.to_string()]);
    Talk::start("build's", &mut command)
}

fn ask(talk: &mut Talk, case: &Case, calls: usize) -> Result<f64> {
    number(&talk.ask(&json!({ "case": case.name, "calls": calls }))?["ms"])
}

/// Answers for another build: the time of a case's call, until there are no more requests.
pub(crate) fn work() -> Result<()> {
    let cases = cases();
    let mut problem: Option<(String, Problem)> = None;
    for line in io::stdin().lock().lines() {
        let request: Value = serde_json::from_str(&line?)?;
        let answer = answer(&request, &cases, &mut problem);
        let answer = answer.unwrap_or_else(|error| json!({ "error": format!("{error:#}") }));
        let mut out = io::stdout().lock();
        writeln!(out, "{answer}")?;
        out.flush()?;
    }
    Ok(())
}

fn answer(
    request: &Value,
    cases: &[Case],
    problem: &mut Option<(String, Problem)>,
) -> Result<Value> {
    let name = request["case"].as_str().unwrap_or_default();
    if problem.as_ref().is_none_or(|(known, _)| known != name) {
        let case = cases.iter().find(|case| case.name == name);
        let case = case.with_context(|| format!("this build has no case '{name}'"))?;
        *problem = Some((name.to_owned(), Problem::new(case.ours)));
    }
    let (_, problem) = problem.as_ref().context("no case was asked for")?;
    Ok(json!({ "ms": time(problem, request["calls"].as_u64().unwrap_or(1) as usize)? }))
}
