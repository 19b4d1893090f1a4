//! What the programs of this folder share: where things are, and how a worker in a process of its own is asked.

pub mod cpu;
pub mod place;
pub mod status;
pub mod talk;
