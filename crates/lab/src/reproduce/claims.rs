//! The list of claims.

use std::path::Path;

use whatwhere_data::Source;
use whatwhere_training::{RunSettings, presets};

use super::{By, Claim, Expectation, Experiment, Part, forgetting, own, permutation, saturation};
use crate::Error;

const TEXT: &str = include_str!("../../configs/text.toml");
const NOVELS: &str = include_str!("../../configs/novels.toml");
const INDEXING: &str = presets::text("compare-indexing");
const TRANSLATION: &str = include_str!("../../configs/translation.toml");
const BLANKS: &str = include_str!("../../configs/blanks.toml");
const JSB: &str = presets::text("pope-jsb");
const PUBLISHED_INDEXING: &str = presets::text("pope-indirect");

const POPE: &str = "Gopalakrishnan et al. 2025, https://arxiv.org/abs/2509.10534";
pub(super) const SHAW: &str = "Shaw et al. 2018, https://arxiv.org/abs/1803.02155";
const VASWANI: &str = "Vaswani et al. 2017, https://arxiv.org/abs/1706.03762";
const ALIBI: &str = "Press et al. 2022, https://arxiv.org/abs/2108.12409";

pub(super) const PLAIN: Part = Part {
    name: "runs",
    settings: TEXT,
    changes: &[],
    axes: &[],
    seeds: 3,
    baseline: "",
    lengths: &[],
    tokens: 32_768,
    bleu: false,
    expects: &[],
};

pub(super) const fn expect(better: &'static str, than: &'static str, by: By) -> Expectation {
    Expectation { better, than, by }
}

/// Every claim.
pub const CLAIMS: &[Claim] = &[
    Claim {
        name: "jsb",
        title: "On Bach's chorales PoPE has a lower loss than rotary",
        paper: POPE,
        reports: "test NLL 0.5081 with rotary, 0.4889 with PoPE; a replication has 0.5331 and 0.5009",
        scaled_down: None,
        minutes: 75,
        data: Some("Jsb16thSeparated.json of the JSB chorales"),
        experiment: Experiment::Compare(&[Part {
            settings: JSB,
            // The best validation comes at a third to a half of the updates; five evaluations without a better one end a run.
            changes: &["training.patience=5"],
            axes: &[r#"position=rotary,{kind="polar",delta="uniform"}"#],
            seeds: 1,
            baseline: "rotary",
            expects: &[expect("polar delta=uniform", "rotary", By::Loss)],
            ..PLAIN
        }]),
    },
    Claim {
        name: "side_by_side",
        title: "Rotary and PoPE side by side in a layer do better than rotary alone",
        paper: POPE,
        reports: "nothing: reviews of PoPE propose heads of both kinds in a layer, and nobody has measured them",
        scaled_down: Some(
            "bytes of tiny Shakespeare, 0.6 M parameters, 400 updates, half of the heads each",
        ),
        minutes: 20,
        data: None,
        experiment: Experiment::Compare(&[Part {
            changes: &["training.steps=400"],
            axes: &[
                r#"position=rotary,polar,[{kind="rotary",heads=0.5},{kind="polar",heads=[0.5,1.0]}]"#,
            ],
            baseline: "rotary",
            lengths: &[256, 1024],
            expects: &[
                expect("rotary(heads=0.5)+polar(heads=0.5+1.0)", "rotary", By::Loss),
                expect("rotary(heads=0.5)+polar(heads=0.5+1.0)", "polar", By::Loss),
                expect("rotary(heads=0.5)+polar(heads=0.5+1.0)", "rotary", By::LossAt(1024)),
            ],
            ..PLAIN
        }]),
    },
    Claim {
        name: "indexing",
        title: "Indirect indexing separates PoPE from other positions",
        paper: POPE,
        reports: "accuracy 94.8 % with PoPE, 11.2 % with rotary, 10.1 % learned, 1.9 % sinusoidal, 27.4 % with ALiBi on half of the heads",
        scaled_down: Some(
            "strings of 5 to 7 of 8 letters and shifts of 1 instead of 20 to 40 of 52 and 15; 0.1 M instead of 25 M parameters; 1500 instead of 100 000 updates",
        ),
        minutes: 30,
        data: None,
        experiment: Experiment::Compare(&[
            Part {
                settings: INDEXING,
                changes: &["training.steps=1500"],
                axes: &[
                    r#"position=rotary,learned,sinusoidal,alibi,{kind="polar",delta="uniform"}"#,
                ],
                seeds: 5,
                baseline: "rotary",
                expects: &[
                    expect("polar delta=uniform", "rotary", By::Accuracy),
                    expect("polar delta=uniform", "learned", By::Accuracy),
                    expect("polar delta=uniform", "sinusoidal", By::Accuracy),
                    expect("polar delta=uniform", "alibi", By::Accuracy),
                ],
                ..PLAIN
            },
            // Whether a run lifts off is chance; a few seeds cannot tell two rates apart.
            Part {
                name: "many-seeds",
                settings: INDEXING,
                changes: &["training.steps=1500"],
                axes: &[r#"position=rotary,{kind="polar",delta="zero"}"#],
                seeds: 20,
                baseline: "rotary",
                expects: &[expect("polar delta=zero", "rotary", By::Accuracy)],
                ..PLAIN
            },
        ]),
    },
    Claim {
        name: "indexing-published",
        title: "Indirect indexing as published",
        paper: POPE,
        reports: "accuracy 94.8 ± 2.9 % with PoPE and 11.2 ± 2.5 % with rotary, 3 seeds; a replication solved 1 of 8 seeds in 100 000 updates",
        scaled_down: None,
        minutes: 20_000,
        data: None,
        experiment: Experiment::Compare(&[Part {
            settings: PUBLISHED_INDEXING,
            axes: &[r#"position=rotary,{kind="polar",delta="uniform"}"#],
            baseline: "rotary",
            expects: &[expect("polar delta=uniform", "rotary", By::Accuracy)],
            ..PLAIN
        }]),
    },
    Claim {
        name: "lengths",
        title: "PoPE reads longer texts than it was trained on, rotary does not",
        paper: POPE,
        reports: "trained at 1024 and read to 10 240 (a figure without numbers): rotary rises steeply, YaRN holds to 4096, PoPE stays flat",
        scaled_down: Some("2 M parameters, trained at 512 on novels, read to 8192, zero-shot"),
        minutes: 80,
        data: Some("a folder or archive of novels; --set data.source.valid=… names held-out ones"),
        experiment: Experiment::Compare(&[Part {
            settings: NOVELS,
            axes: &[
                r#"position=rotary,alibi,sinusoidal,{kind="learned",length=8192},{kind="polar",delta="zero"},{kind="polar",delta="off"},{kind="polar",magnitude="relu"},{kind="polar",magnitude="identity"}"#,
            ],
            seeds: 1,
            baseline: "rotary",
            lengths: &[512, 1024, 2048, 4096, 8192],
            tokens: 65_536,
            expects: &[
                expect("polar delta=zero", "rotary", By::LossAt(8192)),
                expect("rotary with yarn scaling", "rotary", By::LossAt(4096)),
                expect("polar delta=zero", "rotary with yarn scaling", By::LossAt(8192)),
                expect("alibi", "rotary", By::LossAt(8192)),
                expect("alibi", "sinusoidal", By::LossAt(8192)),
                expect("alibi", "learned length=8192", By::LossAt(8192)),
                expect("polar delta=zero", "rotary", By::Loss),
                expect("polar delta=zero", "polar delta=off", By::Loss),
                expect("polar delta=zero", "polar magnitude=relu", By::Loss),
                expect("polar delta=zero", "polar magnitude=identity", By::Loss),
            ],
            ..PLAIN
        }]),
    },
    Claim {
        name: "shaw",
        title: "A few clipped distances are enough for translation, and keys matter more than values",
        paper: SHAW,
        reports: "BLEU 12.5 for k = 0, 25.5 for 1, 25.8 for 2, 25.9 for 4, 25.8 for 16; keys only 25.8, values only 25.3",
        scaled_down: Some(
            "Multi30k instead of WMT14, 2 + 2 layers of width 128, 1500 updates, one seed",
        ),
        minutes: 30,
        data: Some("a folder with Multi30k's train, val and test_2016_flickr, .en.gz and .de.gz"),
        experiment: Experiment::Compare(&[
            Part {
                name: "reach",
                settings: TRANSLATION,
                axes: &["position.reach=0,1,2,4,16"],
                seeds: 1,
                baseline: "reach 16",
                bleu: true,
                expects: &[
                    expect("reach 1", "reach 0", By::Bleu),
                    expect("reach 2", "reach 1", By::Bleu),
                    expect("reach 16", "reach 0", By::Bleu),
                ],
                ..PLAIN
            },
            Part {
                name: "sides",
                settings: TRANSLATION,
                axes: &[r#"position={kind="shaw",values=false},{kind="shaw",keys=false}"#],
                seeds: 1,
                baseline: "shaw values=false",
                bleu: true,
                expects: &[expect("shaw values=false", "shaw keys=false", By::Bleu)],
                ..PLAIN
            },
        ]),
    },
    forgetting::FORGETTING,
    own::SHAW_QUERIES,
    own::PATHFINDER,
    Claim {
        name: "sinusoidal",
        title: "Sinusoidal positions do not reach lengths they have not seen",
        paper: ALIBI,
        reports: "perplexity of sinusoidal models rises soon after the trained length; ALiBi's does not",
        scaled_down: Some("0.6 M parameters on bytes of tiny Shakespeare, trained at 256"),
        minutes: 15,
        data: None,
        experiment: Experiment::Compare(&[Part {
            settings: TEXT,
            axes: &["position=sinusoidal,alibi,none"],
            baseline: "sinusoidal",
            lengths: &[256, 512, 1024, 2048, 4096],
            expects: &[
                expect("alibi", "sinusoidal", By::LossAt(1024)),
                expect("alibi", "sinusoidal", By::LossAt(4096)),
            ],
            ..PLAIN
        }]),
    },
    Claim {
        name: "order",
        title: "Attention that sees both ways cannot tell order without positions; causal attention can",
        paper: "Vaswani et al. 2017, https://arxiv.org/abs/1706.03762; Haviv et al. 2022, https://arxiv.org/abs/2203.16634",
        reports: "self-attention is equivariant to permutation; causal language models learn without positions",
        scaled_down: None,
        minutes: 1,
        data: None,
        experiment: Experiment::Measure(permutation::measure),
    },
    Claim {
        name: "heads",
        title: "Several heads are better than one at equal parameters, too many are not",
        paper: VASWANI,
        reports: "BLEU 24.9 with 1 head, 25.5 with 4, 25.8 with 8 and 16, 25.4 with 32",
        scaled_down: Some("language modelling on bytes, width 128, 800 updates"),
        minutes: 20,
        data: None,
        experiment: Experiment::Compare(&[Part {
            axes: &["heads=1,4,8,16"],
            baseline: "heads 1",
            expects: &[
                expect("heads 4", "heads 1", By::Loss),
                expect("heads 8", "heads 1", By::Loss),
                expect("heads 16", "heads 1", By::Loss),
            ],
            ..PLAIN
        }]),
    },
    Claim {
        name: "patterns",
        title: "Sparse patterns keep most of the quality, and cost less as the length grows",
        paper: "Child et al. 2019, https://arxiv.org/abs/1904.10509; Beltagy et al. 2020, https://arxiv.org/abs/2004.05150; Katharopoulos et al. 2020, https://arxiv.org/abs/2006.16236",
        reports: "enwik8: dense 1.00 bits per byte and 1.31 s, fixed 0.99 and 0.55 s, strided 1.13 and 0.35 s",
        scaled_down: Some("0.6 M parameters on bytes, lengths 512 and 2048, 400 updates, one seed"),
        minutes: 12,
        data: None,
        experiment: Experiment::Compare(&[Part {
            changes: &["training.steps=400"],
            axes: &[
                r#"model.attention={heads=4,pattern="causal"},{heads=4,pattern={kind="window",left=127}},{heads=4,pattern={kind="strided",stride=64}},{heads=4,pattern={kind="fixed",stride=64}},{heads=4,pattern={kind="or",of=[{kind="window",left=63},{kind="and",of=["causal","random"]}]}},{heads=4,mixing="linear",position="sinusoidal"}"#,
                "training.length=512,2048",
            ],
            seeds: 1,
            baseline: "heads=4 pattern=causal, length 2048",
            expects: &[
                expect(
                    "heads=4 pattern=causal, length 2048",
                    "heads=4 pattern=window(left=127), length 2048",
                    By::Loss,
                ),
                expect(
                    "heads=4 pattern=window(left=127), length 2048",
                    "heads=4 pattern=causal, length 2048",
                    By::Speed,
                ),
                expect(
                    "heads=4 pattern=strided(stride=64), length 2048",
                    "heads=4 pattern=causal, length 2048",
                    By::Speed,
                ),
                expect(
                    "heads=4 pattern=fixed(stride=64), length 2048",
                    "heads=4 pattern=causal, length 2048",
                    By::Speed,
                ),
                expect(
                    "heads=4 pattern=or(of=window(left=63)+and(of=causal+random)), length 2048",
                    "heads=4 pattern=causal, length 2048",
                    By::Speed,
                ),
                expect(
                    "heads=4 mixing=linear position=sinusoidal, length 2048",
                    "heads=4 pattern=causal, length 2048",
                    By::Speed,
                ),
                expect(
                    "heads=4 pattern=causal, length 2048",
                    "heads=4 mixing=linear position=sinusoidal, length 2048",
                    By::Loss,
                ),
            ],
            ..PLAIN
        }]),
    },
    Claim {
        name: "scaling",
        title: "Dot products need scaling as the head dim grows",
        paper: VASWANI,
        reports: "unscaled dot products push softmax into regions with small gradients",
        scaled_down: None,
        minutes: 1,
        data: None,
        experiment: Experiment::Measure(saturation::measure),
    },
    Claim {
        name: "scores",
        title: "Scaled dot products are as good as additive scores, and faster",
        paper: "Bahdanau et al. 2015, https://arxiv.org/abs/1409.0473; Luong et al. 2015, https://arxiv.org/abs/1508.04025; Vaswani et al. 2017, https://arxiv.org/abs/1706.03762",
        reports: "Luong et al.: BLEU 18.6 with dot, 17.3 with general scores over the whole source; Vaswani et al.: additive scores beat unscaled dot products when heads are wide, scaled ones close the gap and are faster",
        scaled_down: Some(
            "language modelling on bytes with one head of 128, where scaling matters, 400 updates",
        ),
        minutes: 20,
        data: None,
        experiment: Experiment::Compare(&[Part {
            changes: &[
                "model.attention.heads=1",
                "model.attention.position=t5",
                "training.steps=400",
            ],
            axes: &["score=scaled_dot,dot,general,additive"],
            baseline: "scaled_dot",
            expects: &[
                expect("scaled_dot", "dot", By::Loss),
                expect("scaled_dot", "additive", By::Speed),
                expect("scaled_dot", "additive", By::Loss),
            ],
            ..PLAIN
        }]),
    },
    Claim {
        name: "blanks",
        title: "Filling blanks needs both sides",
        paper: "Devlin et al. 2018, https://arxiv.org/abs/1810.04805",
        reports: "both directions beat left-to-right on every task of the ablation",
        scaled_down: Some("masked bytes of tiny Shakespeare, 0.6 M parameters, 1500 updates"),
        minutes: 15,
        data: None,
        experiment: Experiment::Compare(&[Part {
            settings: BLANKS,
            axes: &["pattern=full,causal"],
            baseline: "causal",
            expects: &[expect("full", "causal", By::Loss), expect("full", "causal", By::Accuracy)],
            ..PLAIN
        }]),
    },
];

/// Learns from a path, with the held-out text that the settings name.
pub(super) fn read_from(settings: &mut RunSettings, path: &Path) -> Result<(), Error> {
    let held_out = match &settings.data.source {
        Source::Text(text) => Some((text.valid.clone(), text.test.clone())),
        _ => None,
    };
    settings.read_from(path)?;
    if let (Source::Text(text), Some((valid, test))) = (&mut settings.data.source, held_out) {
        (text.valid, text.test) = (valid, test);
    }
    Ok(())
}
