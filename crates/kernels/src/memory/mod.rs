//! What outlives a call: buffers that go from one step to the next, scratch of each thread, tables of angles.

mod angles;
pub(crate) mod pool;
pub(crate) mod scratch;
