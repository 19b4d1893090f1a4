//! How a run was trained: kept beside it, because only the process that trains can know it.

use std::{fs, io::Write, path::PathBuf};

use serde::{Deserialize, Serialize};
use whatwhere_files as files;
use whatwhere_training::{Folder, Machine};

use crate::{Error, cost::Load};

/// `conditions.json` of a run folder.
#[derive(Clone, Default, Serialize, Deserialize)]
pub(super) struct Conditions {
    pub(super) jobs: usize,
    pub(super) peak_memory: Option<u64>,
    #[serde(default)]
    pub(super) stretches: Vec<f64>,
    #[serde(default)]
    pub(super) load: Option<Load>,
    /// All that it was trained on.
    #[serde(default)]
    pub(super) machines: Vec<Machine>,
}

impl Conditions {
    /// Of a run that this machine takes up.
    pub(super) fn begun(jobs: usize) -> Self {
        Self { jobs, machines: vec![Machine::here()], ..Self::default() }
    }

    fn path(folder: &Folder) -> PathBuf {
        folder.path().join("conditions.json")
    }

    pub(super) fn load(folder: &Folder) -> Option<Self> {
        serde_json::from_str(&fs::read_to_string(Self::path(folder)).ok()?).ok()
    }

    pub(super) fn save(&self, folder: &Folder) -> Result<(), Error> {
        let text = serde_json::to_string(self).expect("numbers and names");
        Ok(files::replace(&Self::path(folder), |writer| writer.write_all(text.as_bytes()))?)
    }

    /// Of a run that was begun under these conditions and went on under others.
    pub(super) fn then(mut self, later: Self) -> Self {
        let jobs = self.jobs.max(later.jobs);
        for machine in later.machines {
            if !self.machines.contains(&machine) {
                self.machines.push(machine);
            }
        }
        Self {
            jobs,
            peak_memory: self.peak_memory.max(later.peak_memory).filter(|_| jobs == 1),
            stretches: [self.stretches, later.stretches].concat(),
            load: Load::worse(self.load, later.load),
            machines: self.machines,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_moved_has_both_machines_once() {
        let on = |host: &str| {
            let machine = Machine { host: host.into(), ..Machine::here() };
            Conditions {
                jobs: 1,
                peak_memory: Some(7),
                machines: vec![machine],
                ..Conditions::default()
            }
        };
        let moved = on("a").then(on("b")).then(on("a"));
        let hosts: Vec<&str> = moved.machines.iter().map(|machine| machine.host.as_str()).collect();
        assert_eq!((hosts, moved.peak_memory), (vec!["a", "b"], Some(7)));
        let folder = tempfile::tempdir().unwrap();
        let folder = Folder::new(folder.path());
        std::fs::write(Conditions::path(&folder), r#"{"jobs":2,"peak_memory":null}"#).unwrap();
        assert!(Conditions::load(&folder).unwrap().machines.is_empty(), "a file of before");
    }
}
