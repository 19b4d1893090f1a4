//! One case: do both sides agree, and how long does each take when they take turns?

use std::{
    collections::BTreeMap,
    hint::black_box,
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use whatwhere_bench::{place::Place, talk::Died};

use crate::{
    agree::{Against, TOLERANCE, worst_difference},
    burn::{self, Burn},
    cases::{Case, Measure, Rival},
    memory,
    ours::{Problem, Task},
    table::Row,
    worker::{Way, Worker},
};

/// A short call is repeated until its turn has taken about this long; the first one wakes the threads.
const TURN_MS: f64 = 40.0;
const MOST_CALLS: f64 = 20.0;
/// Between turns. torch's threads spin for some milliseconds after a call (6 ms were seen) and then sleep; until
/// then they would take the other side's cores.
pub(crate) const SETTLE: Duration = Duration::from_millis(30);
/// All turns of a case together take about this long, unless the least number of rounds takes longer.
const CASE_MS: f64 = 3000.0;
const LEAST_ROUNDS: f64 = 5.0;
const MOST_ROUNDS: f64 = 50.0;
const QUICK_ROUNDS: usize = 2;
/// Ways slower than the fastest by more than this, noise included, get no turns.
const CONTENDER: f64 = 1.5;

/// What all cases share.
pub(crate) struct Session<'p> {
    pub(crate) place: &'p Place,
    pub(crate) python: PathBuf,
    pub(crate) threads: usize,
    pub(crate) worker: Worker<'p>,
    /// Rounds that were asked for.
    pub(crate) rounds: Option<usize>,
    pub(crate) quick: bool,
    /// Whether timed cases tell their memory, too.
    pub(crate) memory: bool,
    /// GFLOP/s this machine can do.
    pub(crate) peak: f64,
}

impl Session<'_> {
    pub(crate) fn measure(&mut self, case: &Case) -> Result<Row> {
        let mut row = match (&case.rival, case.measure) {
            (Rival::Torch(kind), Measure::Time) => self.time_against_torch(case, kind)?,
            (Rival::Burn, Measure::Time) => self.time_against_burn(case)?,
            (Rival::Ours(name, rival), Measure::Time) => self.time_ours(case, name, *rival)?,
            (Rival::Torch(kind), Measure::Memory) => {
                let problem = Problem::new(case.ours);
                let ways = self.worker.prepare(kind, &problem)?;
                let way = ways.first().context("the worker has no way to compute this")?;
                Row::new(case, format!("torch {way}"))
            }
            (Rival::Burn, Measure::Memory) => Row::new(case, burn::NAME.to_owned()),
            (Rival::Ours(name, _), Measure::Memory) => Row::new(case, (*name).to_owned()),
        };
        if self.memory || case.measure == Measure::Memory {
            eprintln!("  memory");
            match self.peaks(case, &row.rival) {
                Ok((ours, rival)) => (row.ours_mib, row.rival_mib) = (Some(ours), Some(rival)),
                // Only Linux tells peaks; times are worth having without.
                Err(error) if case.measure == Measure::Time => eprintln!("  unknown: {error:#}"),
                Err(error) => return Err(error),
            }
        }
        row.finish(case, self.peak);
        Ok(row)
    }

    fn time_against_torch(&mut self, case: &Case, kind: &str) -> Result<Row> {
        let problem = Problem::new(case.ours);
        let (ways, error) = self.agreeing(kind, &problem)?;
        let pass = case.ours.pass;
        let mut firsts = BTreeMap::new();
        for name in &ways {
            let way = Way { name, pass };
            let first = self.worker.time(way, 1)?;
            let more = calls(first);
            let best = if more == 1 { first } else { self.worker.time(way, more)?.min(first) };
            firsts.insert(name.clone(), best);
        }
        let fastest = firsts.values().copied().fold(f64::INFINITY, f64::min);
        let mut times: BTreeMap<String, f64> =
            firsts.iter().filter(|(_, ms)| **ms <= CONTENDER * fastest).map(own).collect();

        let mut ours = time(&problem, 1)?;
        let turn = |ms: f64| ms * calls(ms) as f64;
        let rounds = self.rounds(turn(ours) + times.values().map(|ms| turn(*ms)).sum::<f64>());
        for _ in 0..rounds {
            thread::sleep(SETTLE);
            ours = ours.min(time(&problem, calls(ours))?);
            for (name, best) in &mut times {
                thread::sleep(SETTLE);
                *best = best.min(self.worker.time(Way { name, pass }, calls(*best))?);
            }
        }
        firsts.extend(times.iter().map(own));
        let listed: Vec<String> =
            firsts.iter().map(|(name, ms)| format!("{name} {ms:.1}")).collect();
        eprintln!("  {rounds} rounds; ours {ours:.1} ms; torch: {}", listed.join("; "));
        let (name, ms) = fastest_of(&firsts).context("no way is left")?;
        let mut row = Row::new(case, format!("torch {name}"));
        (row.ours_ms, row.rival_ms, row.error) = (Some(ours), Some(ms), Some(error));
        row.ways = firsts;
        Ok(row)
    }

    fn time_against_burn(&mut self, case: &Case) -> Result<Row> {
        let problem = Problem::new(case.ours);
        let rival = Burn::new(&problem)?;
        let (result, error) =
            worst_difference(&problem.run()?, &rival.results()?, Against::Tensor)?;
        eprintln!("  {}: largest difference {error:.1e} ({result})", burn::NAME);
        if error > TOLERANCE {
            bail!("ours ({}) and burn disagree: {result} differs by {error:.1e}", problem.task);
        }
        let (mut ours_ms, mut rival_ms) = (time(&problem, 1)?, rival.time(1));
        let turn = |ms: f64| ms * calls(ms) as f64;
        let rounds = self.rounds(turn(ours_ms) + turn(rival_ms));
        thread::sleep(SETTLE);
        for _ in 0..rounds {
            ours_ms = ours_ms.min(time(&problem, calls(ours_ms))?);
            rival_ms = rival_ms.min(rival.time(calls(rival_ms)));
        }
        eprintln!("  {rounds} rounds; ours {ours_ms:.1} ms; {} {rival_ms:.1} ms", burn::NAME);
        let mut row = Row::new(case, burn::NAME.to_owned());
        (row.ours_ms, row.rival_ms, row.error) = (Some(ours_ms), Some(rival_ms), Some(error));
        Ok(row)
    }

    fn time_ours(&mut self, case: &Case, name: &str, rival: Task) -> Result<Row> {
        let (problem, rival) = (Problem::new(case.ours), Problem::new(rival));
        let mut error: f64 = 0.0;
        for problem in [&problem, &rival] {
            let found = match problem.task.is_gathered() {
                true => by_definition(problem)?,
                false => self.agreeing(problem.task.kind(), problem)?.1,
            };
            error = error.max(found);
        }
        let (mut ours_ms, mut rival_ms) = (time(&problem, 1)?, time(&rival, 1)?);
        let turn = |ms: f64| ms * calls(ms) as f64;
        let rounds = self.rounds(turn(ours_ms) + turn(rival_ms));
        thread::sleep(SETTLE);
        for _ in 0..rounds {
            ours_ms = ours_ms.min(time(&problem, calls(ours_ms))?);
            rival_ms = rival_ms.min(time(&rival, calls(rival_ms))?);
        }
        eprintln!("  {rounds} rounds; ours {ours_ms:.1} ms; {name} {rival_ms:.1} ms");
        let mut row = Row::new(case, name.to_owned());
        (row.ours_ms, row.rival_ms, row.error) = (Some(ours_ms), Some(rival_ms), Some(error));
        Ok(row)
    }

    /// Torch's ways that give what ours gives, and the largest difference that was accepted.
    /// A way that cannot run here or is not right is left out; if none is left, that is an error.
    fn agreeing(&mut self, kind: &str, problem: &Problem) -> Result<(Vec<String>, f64)> {
        let ours = problem.run()?;
        let (mut agreeing, mut error, mut complaints) = (Vec::new(), 0.0f64, Vec::new());
        for name in self.worker.prepare(kind, problem)? {
            let complaint = match self.worker.results(Way { name: &name, pass: problem.task.pass })
            {
                Ok(theirs) => {
                    let (result, difference) =
                        worst_difference(&ours, &theirs, problem.task.against())?;
                    eprintln!("  {name}: largest difference {difference:.1e} ({result})");
                    if difference <= problem.task.tolerance() {
                        agreeing.push(name);
                        error = error.max(difference);
                        continue;
                    }
                    format!("{name}: {result} differs by {difference:.1e}")
                }
                Err(died) if died.downcast_ref::<Died>().is_some() => return Err(died),
                Err(failed) => format!("{name}: {failed}"),
            };
            eprintln!("  left out: {complaint}");
            complaints.push(complaint);
        }
        if agreeing.is_empty() {
            bail!(
                "ours ({}) and torch disagree, expected differences up to {:.0e} of the \
                 root mean square:\n  {}",
                problem.task,
                problem.task.tolerance(),
                complaints.join("\n  "),
            );
        }
        Ok((agreeing, error))
    }

    /// MiB of ours and of the rival, each measured in a process of its own.
    fn peaks(&self, case: &Case, rival: &str) -> Result<(f64, f64)> {
        let ours = memory::of_ours(case.ours, self.threads)?;
        let rival = match &case.rival {
            Rival::Torch(kind) => {
                let mut fresh = Worker::start(self.place, &self.python, self.threads)?;
                fresh.prepare(kind, &Problem::new(case.ours))?;
                let name = rival.strip_prefix("torch ").unwrap_or(rival);
                fresh.memory(Way { name, pass: case.ours.pass })?
            }
            Rival::Burn => memory::of_burn(case.ours, self.threads)?,
            Rival::Ours(_, task) => memory::of_ours(*task, self.threads)?,
        };
        Ok((ours, rival))
    }

    fn rounds(&self, round_ms: f64) -> usize {
        rounds(self.rounds, self.quick, round_ms)
    }
}

/// Rounds that were asked for, or as many as fit.
pub(crate) fn rounds(asked: Option<usize>, quick: bool, round_ms: f64) -> usize {
    match asked {
        Some(rounds) => rounds,
        None if quick => QUICK_ROUNDS,
        None => (CASE_MS / round_ms).clamp(LEAST_ROUNDS, MOST_ROUNDS) as usize,
    }
}

/// Calls in one turn, from the time of one.
pub(crate) fn calls(ms: f64) -> usize {
    (TURN_MS / ms).clamp(1.0, MOST_CALLS) as usize
}

/// Milliseconds of our fastest call out of some, into buffers that are used again.
pub(crate) fn time(problem: &Problem, calls: usize) -> Result<f64> {
    let mut best = f64::INFINITY;
    let mut buffers = problem.buffers();
    problem.run_into(&mut buffers)?;
    for _ in 0..calls {
        let start = Instant::now();
        problem.run_into(black_box(&mut buffers))?;
        best = best.min(start.elapsed().as_secs_f64() * 1e3);
    }
    Ok(best)
}

fn own((name, ms): (&String, &f64)) -> (String, f64) {
    (name.clone(), *ms)
}

fn fastest_of(times: &BTreeMap<String, f64>) -> Option<(&str, f64)> {
    let fastest = times.iter().min_by(|a, b| a.1.total_cmp(b.1))?;
    Some((fastest.0, *fastest.1))
}

/// How far a sparse pattern is from itself without shortcuts: every pair is asked whether the query sees the key. torch would
/// need a mask of all pairs for each head.
fn by_definition(problem: &Problem) -> Result<f64> {
    let expected = Problem::by_definition(problem.task).run()?;
    let expected: Vec<_> = expected.into_iter().map(|(name, x)| (name.to_owned(), x)).collect();
    let (result, error) = worst_difference(&problem.run()?, &expected, Against::Tensor)?;
    eprintln!("  {}, pair by pair: largest difference {error:.1e} ({result})", problem.task);
    if error > TOLERANCE {
        bail!("{} is not its definition: {result} differs by {error:.1e}", problem.task);
    }
    Ok(error)
}
