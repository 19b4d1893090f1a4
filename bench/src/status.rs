//! What Linux tells of a process: its memory and the pages it was given.

use std::fs;

use anyhow::{Context, Result};

/// A field of `/proc/self/status` in KiB: `VmRSS:` is in use, `VmHWM:` was in use at the peak.
pub fn kib(field: &str) -> Result<f64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let value = status.lines().find_map(|line| line.strip_prefix(field)?.split_whitespace().next());
    let value = value.with_context(|| format!("no {field} in /proc/self/status"))?;
    Ok(value.parse()?)
}

/// Sets the peak back to what is in use now (5 in proc(5)).
pub fn reset_peak() -> Result<()> {
    fs::write("/proc/self/clear_refs", "5").context("cannot reset the peak, expected Linux")
}

/// Fresh pages so far: those the system had to find and clear.
pub fn fresh_pages() -> Result<u64> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    // After the command's name in parentheses, which may hold spaces, `minflt` is the eighth field.
    let fields = stat.rsplit_once(')').map(|(_, fields)| fields);
    let field = fields.and_then(|fields| fields.split_whitespace().nth(7));
    Ok(field.context("no page faults in /proc/self/stat")?.parse()?)
}
