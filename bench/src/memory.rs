//! Peak memory beyond the inputs. A peak can only grow within a process, so every measurement has its own.

use std::{
    env,
    hint::black_box,
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail};
use whatwhere_bench::status;

use crate::{
    burn::Burn,
    ours::{Problem, Task},
};

/// MiB that one call of ours needs at its peak, measured in a fresh process by [`of_this_process`].
pub(crate) fn of_ours(task: Task, threads: usize) -> Result<f64> {
    in_fresh_process("--memory-of", task, threads)
}

/// MiB that one call of burn's needs at its peak, in the same way.
pub(crate) fn of_burn(task: Task, threads: usize) -> Result<f64> {
    in_fresh_process("--memory-of-burn", task, threads)
}

fn in_fresh_process(option: &str, task: Task, threads: usize) -> Result<f64> {
    let output = Command::new(env::current_exe().context("cannot find this program")?)
        .args([option, &task.to_string(), "--threads", &threads.to_string()])
        .stderr(Stdio::inherit())
        .output()
        .context("cannot start this program again")?;
    if !output.status.success() {
        bail!("the measurement of memory ended ({})", output.status);
    }
    let text = String::from_utf8_lossy(&output.stdout);
    text.trim().parse().with_context(|| format!("found {text:?}, expected a number of MiB"))
}

/// MiB that our first call in this process needs at its peak: results, scratch and threads.
pub(crate) fn of_this_process(task: Task) -> Result<f64> {
    let problem = Problem::new(task);
    beyond_inputs(|| problem.run())
}

/// [`of_this_process`] for burn's call.
pub(crate) fn of_burn_in_this_process(task: Task) -> Result<f64> {
    let rival = Burn::new(&Problem::new(task))?;
    beyond_inputs(|| anyhow::Ok(rival.run()))
}

fn beyond_inputs<T, E>(call: impl FnOnce() -> Result<T, E>) -> Result<f64>
where
    anyhow::Error: From<E>,
{
    status::reset_peak()?;
    let before = status::kib("VmRSS:")?;
    black_box(call()?);
    Ok((status::kib("VmHWM:")? - before) / 1024.0)
}
