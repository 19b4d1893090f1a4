//! What the programs of this folder share: where things are, how rows are written, and how a worker in a process of its own is asked.

pub mod cpu;
pub mod format;
pub mod place;
pub mod status;
pub mod talk;
