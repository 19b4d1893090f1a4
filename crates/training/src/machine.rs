//! The machine that a process runs on: whose speeds can be compared, and whose bits are the same.

use std::{fs, process::Command};

use serde::{Deserialize, Serialize};
use whatwhere_kernels::Precision;

use crate::TrainingSettings;

/// A machine, by what matters to figures.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Machine {
    /// Its name in the network.
    pub host: String,
    /// What its processor is called.
    pub processor: String,
    /// The instruction set that the kernels run on, and what multiplies bf16; others give other bits.
    pub instructions: String,
}

impl Machine {
    /// This one.
    pub fn here() -> Self {
        let instructions = Precision::Bf16.instructions();
        Self { host: host(), processor: processor(), instructions }
    }

    /// Processor and instruction set in words.
    pub fn kind(&self) -> String {
        format!("{} with {}", self.processor, self.instructions)
    }
}

impl TrainingSettings {
    /// What multiplies on this machine where products are not in f32, and whether that is any faster.
    pub fn said_of_precision(&self) -> Option<String> {
        match (self.precision, self.precision.means()) {
            (Precision::F32, _) => None,
            (Precision::Bf16, Some(means)) => {
                Some(format!("precision: products in bf16 by {means}"))
            }
            (Precision::Bf16, None) => Some(format!(
                "precision: products in bf16 are slower than f32 here: {} has neither AMX nor AVX512-BF16",
                self.precision.instructions()
            )),
        }
    }
}

/// The name of this machine in the network.
pub(crate) fn host() -> String {
    let known = fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let host = known.or_else(|| said("hostname", &[])).unwrap_or_default();
    match host.trim() {
        "" => "localhost".into(),
        host => host.into(),
    }
}

fn processor() -> String {
    let known = fs::read_to_string("/proc/cpuinfo").ok().and_then(|text| model(&text));
    let asked = || said("sysctl", &["-n", "machdep.cpu.brand_string"]);
    known.or_else(asked).unwrap_or_else(|| format!("{} processor", std::env::consts::ARCH))
}

/// What Linux calls the processor; on ARM it has numbers only.
fn model(text: &str) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    let (_, name) = line.split_once(':')?;
    Some(name.split_whitespace().collect::<Vec<_>>().join(" ")).filter(|name| !name.is_empty())
}

/// What a command of the system answers.
fn said(command: &str, args: &[&str]) -> Option<String> {
    let output = Command::new(command).args(args).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    Some(text).filter(|text| output.status.success() && !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_has_a_name_a_processor_and_instructions() {
        let here = Machine::here();
        assert!(!here.host.contains(char::is_whitespace), "{here:?}");
        assert!(!here.host.is_empty() && !here.processor.is_empty(), "{here:?}");
        assert!(here.instructions.starts_with(Precision::F32.instructions().as_str()), "{here:?}");
        assert_eq!(model("processor\t: 0\nmodel name\t: A  CPU @ 2\n"), Some("A CPU @ 2".into()));
        assert_eq!(model("CPU part\t: 0xd0c\n"), None);
    }
}
