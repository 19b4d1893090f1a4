//! Questions that papers leave open, asked of the same comparisons.

use whatwhere_training::presets;

use super::{
    By, Claim, Experiment, Part,
    claims::{PLAIN, SHAW, expect},
};

const PATHS: &str = presets::text("pathfinder");

pub(super) const SHAW_QUERIES: Claim = Claim {
    name: "shaw-queries",
    title: "Relative vectors belong on keys: those on queries cost more and give less",
    paper: SHAW,
    reports: "nothing: the paper has vectors on keys and values, and does not say why it has none on queries",
    scaled_down: Some(
        "bytes of tiny Shakespeare, 0.6 M parameters, 400 updates, no vectors on values",
    ),
    minutes: 30,
    data: None,
    experiment: Experiment::Compare(&[Part {
        changes: &["training.steps=400"],
        axes: &[
            r#"position={kind="shaw",values=false},{kind="shaw",values=false,queries=true},{kind="shaw",keys=false,values=false,queries=true}"#,
        ],
        baseline: "shaw values=false",
        expects: &[
            expect("shaw values=false", "shaw keys=false values=false queries=true", By::Loss),
            expect("shaw values=false", "shaw values=false queries=true", By::Loss),
            expect("shaw values=false", "shaw values=false queries=true", By::Speed),
        ],
        ..PLAIN
    }]),
};

pub(super) const PATHFINDER: Claim = Claim {
    name: "pathfinder",
    title: "Pixels in a row need positions in two dimensions",
    paper: "Tay et al. 2020, https://arxiv.org/abs/2011.04006; Heo et al. 2024, https://arxiv.org/abs/2403.13298",
    reports: "71.4 % for a Transformer with learned positions in one dimension; axial ones were not tried there",
    scaled_down: Some(
        "pictures made here, contours of 6 dashes instead of 14, 0.1 M parameters, 2000 updates of 16 pictures, one seed",
    ),
    minutes: 600,
    data: None,
    experiment: Experiment::Compare(&[Part {
        settings: PATHS,
        axes: &[
            r#"position=rotary,{kind="rotary",grid=32},polar,{kind="polar",grid=32},sinusoidal,{kind="learned",length=1026},{kind="learned",length=1026,grid=32}"#,
        ],
        seeds: 1,
        baseline: "rotary",
        expects: &[
            expect("rotary grid=32", "rotary", By::Accuracy),
            expect("polar grid=32", "polar", By::Accuracy),
            expect("learned length=1026 grid=32", "learned length=1026", By::Accuracy),
        ],
        ..PLAIN
    }]),
};
