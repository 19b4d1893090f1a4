//! Positions in two dimensions: a sequence that was read off a grid, row after row, such as the pixels of a picture.

use whatwhere_settings::Refuses;

use crate::Error;

/// Refuses a grid without columns, and channels that cannot be shared out: `parts` of them each to rows and to columns.
pub(crate) fn check(grid: Option<usize>, channels: usize, parts: usize) -> Result<(), Error> {
    let Some(grid) = grid else { return Ok(()) };
    if grid == 0 {
        return Err(Error::setting("position.grid", 0, "a row has at least one position"));
    }
    if !channels.is_multiple_of(2 * parts) {
        let reason = format!(
            "half of a head's channels are for rows and half for columns, but {channels} would be shared out; use a multiple of {}",
            2 * parts
        );
        return Err(Error::setting("position.grid", grid, reason));
    }
    Ok(())
}

/// One frequency for each of `channels`, or, on a grid, those of half of them twice, for rows and for columns.
pub(crate) fn frequencies(
    grid: Option<usize>,
    channels: usize,
    of: impl Fn(usize) -> Vec<f64>,
) -> Vec<f64> {
    match grid {
        None => of(channels),
        Some(_) => of(channels / 2).repeat(2),
    }
}
