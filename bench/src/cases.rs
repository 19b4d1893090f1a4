//! What is measured, against what, and what is hoped for.

use crate::ours::{Pass, Task, What};

/// One line of the table.
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) ours: Task,
    pub(crate) rival: Rival,
    pub(crate) measure: Measure,
    /// The least ratio of rival to ours. Below 1 where ours may cost more than the rival.
    pub(crate) target: Option<f64>,
}

impl Case {
    /// What the rival's GFLOP/s are counted by.
    pub(crate) fn rival_flops(&self) -> Option<f64> {
        match self.rival {
            Rival::Torch(_) | Rival::Burn => self.ours.flops(),
            Rival::Ours(_, task) => task.flops(),
        }
    }
}

/// Whom ours is compared with.
pub(crate) enum Rival {
    /// The fastest of torch's ways to compute a kind, by the names of `ways.py`.
    Torch(&'static str),
    /// burn's own operation, for the same task.
    Burn,
    /// Another task of ours.
    Ours(&'static str, Task),
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Measure {
    /// Milliseconds.
    Time,
    /// MiB at the peak beyond the inputs.
    Memory,
}

/// All cases, in the order of the table.
pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (length, target) in [(512, 1.5), (2048, 1.2), (8192, 1.15)] {
        cases.push(against_torch("causal", both(What::Causal, length), "causal", Some(target)));
    }
    for (length, target) in [(512, 1.4), (2048, 1.15), (8192, 1.05)] {
        cases.push(against_torch("causal", forward(What::Causal, length), "causal", Some(target)));
    }
    let bf16 = both(What::CausalBf16, 2048);
    cases.push(against_torch("causal, bf16", bf16, "causal bf16", Some(1.2)));
    cases.push(Case {
        rival: Rival::Ours("ours in f32", both(What::Causal, 2048)),
        ..against_torch("causal, bf16 against f32", bf16, "", None)
    });
    cases.extend(against_burn());
    cases.push(against_torch("full", forward(What::Full, 2048), "full", Some(1.0)));
    cases.push(against_torch("full", both(What::Full, 2048), "full", None));
    for (name, what, kind) in [
        ("T5 buckets, causal", What::T5, "t5"),
        ("ALiBi learned, causal", What::Alibi, "alibi"),
        ("Shaw keys+values, causal", What::Shaw, "shaw"),
    ] {
        cases.push(against_torch(name, both(what, 2048), kind, Some(3.0)));
    }
    let window = both(What::Window, 8192);
    cases.push(against_torch("window 256", window, "window", Some(8.0)));
    cases.push(against_torch("window 256, in blocks", window, "window in blocks", None));
    cases.push(Case {
        name: "window 256, doubling T to 16384".into(),
        ours: both(What::Window, 16384),
        rival: Rival::Ours("ours, T=8192", window),
        measure: Measure::Time,
        target: Some(1.0 / 2.2),
    });
    cases.extend(sparse());
    cases.extend(features());
    let additive = both(What::Additive, 1024);
    cases.push(against_torch("additive score", additive, "additive", Some(3.0)));
    cases.push(against_torch("additive score, compiled", additive, "additive compiled", None));
    let linear = both(What::Linear, 8192);
    cases.push(Case {
        name: "linear mixing, causal, forward+backward, T=8192".into(),
        ours: linear,
        rival: Rival::Ours("our causal softmax", both(What::Causal, 8192)),
        measure: Measure::Time,
        target: Some(5.0),
    });
    cases.push(against_torch("linear mixing, in chunks", linear, "linear", Some(2.0)));
    let turned = both(What::TurnedLinear, 8192);
    cases.push(against_torch("linear mixing, rotary", turned, "turned linear", Some(2.0)));
    let retention = both(What::Retention, 8192);
    cases.push(against_torch("retention, in chunks", retention, "retention", Some(2.0)));
    cases.extend(memory());
    cases
}

/// The framework's own operation. Its backward pass stores several matrices of all scores, 2 GiB each at T=8192.
fn against_burn() -> Vec<Case> {
    let tasks = [both(What::Causal, 512), both(What::Causal, 2048)];
    let tasks = tasks.into_iter().chain([512, 2048, 8192].map(|t| forward(What::Causal, t)));
    let case = |ours| Case { rival: Rival::Burn, ..against_torch("causal, burn", ours, "", None) };
    tasks.map(case).collect()
}

/// Patterns that show a little of every tile, against all that is before.
fn sparse() -> Vec<Case> {
    let causal = both(What::Causal, 8192);
    let against_causal = |name: &str, what, target| Case {
        name: format!("{name}, forward+backward, T=8192"),
        ours: both(what, 8192),
        rival: Rival::Ours("our causal", causal),
        measure: Measure::Time,
        target: Some(target),
    };
    vec![
        against_causal("strided 128", What::Strided, 5.0),
        against_causal("fixed 128, summary 8", What::Fixed, 5.0),
        against_causal("dilated 64, step 8", What::Dilated, 5.0),
        against_causal("BigBird 256 + 1 + 3", What::BigBird, 6.0),
        Case {
            name: "stride √T, doubling T to 16384".into(),
            ours: both(What::StridedRoot, 16384),
            rival: Rival::Ours("ours, T=8192", both(What::StridedRoot, 8192)),
            measure: Measure::Time,
            target: Some(1.0 / 3.0),
        },
    ]
}

/// PoPE's price over rotary, and both against torch.
fn features() -> Vec<Case> {
    let (rotary, polar) = (both(What::Rotary, 2048), both(What::Polar, 2048));
    let price = |name: &str, measure, target: f64| Case {
        name: format!("PoPE against rotary, {name}, T=2048"),
        ours: polar,
        rival: Rival::Ours("our rotary", rotary),
        measure,
        target: Some(1.0 / target),
    };
    vec![
        against_torch("rotary, causal", rotary, "rotary", None),
        against_torch("PoPE, causal", polar, "polar", None),
        price("time", Measure::Time, 1.4),
        price("memory", Measure::Memory, 1.15),
    ]
}

/// Memory by length, and what doubling the length does to it.
fn memory() -> Vec<Case> {
    let causal = |length| both(What::Causal, length);
    let mut cases: Vec<Case> = [4096, 8192, 16384]
        .map(|length| Case {
            name: format!("memory, causal, forward+backward, T={length}"),
            ours: causal(length),
            rival: Rival::Torch("causal"),
            measure: Measure::Memory,
            target: None,
        })
        .into();
    cases.push(Case {
        name: "memory, causal, doubling T to 16384".into(),
        ours: causal(16384),
        rival: Rival::Ours("ours, T=8192", causal(8192)),
        measure: Measure::Memory,
        target: Some(1.0 / 2.2),
    });
    cases
}

fn against_torch(name: &str, ours: Task, kind: &'static str, target: Option<f64>) -> Case {
    let pass = match ours.pass {
        Pass::Forward => "forward",
        Pass::Both => "forward+backward",
    };
    Case {
        name: format!("{name}, {pass}, T={}", ours.length),
        ours,
        rival: Rival::Torch(kind),
        measure: Measure::Time,
        target,
    }
}

fn forward(what: What, length: usize) -> Task {
    Task { what, length, pass: Pass::Forward }
}

fn both(what: What, length: usize) -> Task {
    Task { what, length, pass: Pass::Both }
}
