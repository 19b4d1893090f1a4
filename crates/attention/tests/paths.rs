//! The fused path and the composed path agree, forward and backward, for every combination of choices.

#![expect(clippy::unwrap_used, reason = "a test may stop at once")]

#[path = "common/outcome.rs"]
mod outcome;

use burn::tensor::{Device, Distribution, Tensor};
use whatwhere_attention::{
    AttentionBias, AttentionSettings, Error, Input, Mixing, Path, Pattern, Position, QkNorm,
    Scaling, Score, pattern, position,
};
use whatwhere_settings::{Refusal, Share};

use outcome::{Outcome, run};

/// f32 rounding of sums over some dozen terms of size 1, twice over.
const TOLERANCE: f32 = 2e-4;

const LENGTH: usize = 19;

fn small(pattern: Pattern) -> Pattern {
    match pattern {
        Pattern::Window(_) => pattern::Window { left: 4, right: 1 }.into(),
        Pattern::Dilated(_) => pattern::Dilated { left: 3, right: 0, step: 2 }.into(),
        Pattern::Strided(_) => pattern::Strided { stride: 5 }.into(),
        Pattern::Fixed(_) => pattern::Fixed { stride: 5, summary: 2 }.into(),
        Pattern::Random(_) => pattern::Random { block: 4, count: 2, length: 24, seed: 3 }.into(),
        Pattern::Predicted(_) => pattern::Predicted { radius: 4 }.into(),
        Pattern::Prefix(_) => pattern::Prefix { length: 6.into() }.into(),
        other => other,
    }
}

fn assert_close(what: &str, a: &[f32], b: &[f32]) {
    assert_eq!(a.len(), b.len(), "{what}");
    let size = b.iter().fold(1.0f32, |m, x| m.max(x.abs()));
    for (i, (a, b)) in a.iter().zip(b).enumerate() {
        assert!((a - b).abs() <= TOLERANCE * size, "{what} at {i}: fused {a}, composed {b}");
    }
}

fn check(settings: &AttentionSettings) {
    let name = format!(
        "{} {} {:?}",
        settings.score.name(),
        settings.pattern.name(),
        settings.position.iter().map(Position::name).collect::<Vec<_>>()
    );
    let device = Device::flex().autodiff();
    let layer = settings.build(&device).unwrap();
    let x =
        Tensor::<3>::random([2, LENGTH, settings.width], Distribution::Normal(0.0, 1.0), &device);
    let input = |path| Input {
        documents: Some(vec![vec![0, 7, 12]]),
        key_lengths: Some(vec![LENGTH, LENGTH - 4]),
        seed: Some(5),
        path,
        ..Input::new(x.clone())
    };
    let (fused, composed) = (run(&layer, input(Path::Fused)), run(&layer, input(Path::Composed)));
    assert_close(&format!("{name}: out"), &fused.out, &composed.out);
    assert_close(&format!("{name}: d_x"), &fused.d_x, &composed.d_x);
    for ((parameter, a), (_, b)) in fused.gradients.iter().zip(&composed.gradients) {
        let what = format!("{name}: {parameter}");
        // Encodings of embeddings act before the layer.
        if parameter.contains("position")
            && settings.position.iter().any(|p| matches!(p, Position::Learned(_)))
        {
            continue;
        }
        let (a, b) = (a.as_ref().expect(&what), b.as_ref().expect(&what));
        assert_close(&what, a, b);
        assert!(a.iter().any(|x| *x != 0.0), "{what}: no gradient");
    }
}

fn base() -> AttentionSettings {
    AttentionSettings {
        width: 24,
        heads: 4,
        kv_heads: Some(2),
        bias: AttentionBias::All,
        ..Default::default()
    }
}

#[test]
fn both_paths_agree_for_every_score_pattern_and_position() {
    let (mut checked, mut refused) = (0, 0);
    for score in Score::all() {
        for pattern in Pattern::all().into_iter().map(small) {
            for position in Position::all() {
                let settings = AttentionSettings {
                    score: score.clone(),
                    pattern: pattern.clone(),
                    position: vec![position],
                    ..base()
                };
                match settings.check() {
                    Ok(()) => {
                        check(&settings);
                        checked += 1;
                    }
                    Err(Error::Refused(Refusal::Combination { .. })) => refused += 1,
                    Err(other) => panic!("{other}"),
                }
            }
        }
    }
    // COMBINATIONS.md says which are refused, and has a test of its own.
    assert!(refused < checked / 5, "{refused} refused, {checked} checked");
}

#[test]
fn a_predicted_place_learns_from_a_memory_longer_than_the_queries() {
    let device = Device::flex().autodiff();
    let settings = AttentionSettings {
        pattern: pattern::Predicted::default().into(),
        position: vec![],
        ..base()
    };
    let layer = settings.build(&device).unwrap();
    let normal =
        |length| Tensor::<3>::random([2, length, 24], Distribution::Normal(0.0, 1.0), &device);
    let (x, memory) = (normal(5), normal(130));
    let input = |path| Input { memory: Some(memory.clone()), path, ..Input::new(x.clone()) };
    let (fused, composed) = (run(&layer, input(Path::Fused)), run(&layer, input(Path::Composed)));
    assert_close("out", &fused.out, &composed.out);
    for name in ["pattern.hidden.weight", "pattern.center.weight"] {
        let of = |outcome: &Outcome| {
            let found = outcome.gradients.iter().find(|(parameter, _)| parameter.contains(name));
            found.and_then(|(_, gradient)| gradient.clone()).expect(name)
        };
        assert!(of(&fused).iter().any(|x| *x != 0.0), "{name}: no gradient");
        assert_close(name, &of(&fused), &of(&composed));
    }
}

/// Every mixing without scores, with its settings.
fn without_scores() -> Vec<Mixing> {
    let has_none = |mixing: &Mixing| !mixing.has_scores();
    let mut all: Vec<Mixing> = Mixing::all().into_iter().filter(has_none).collect();
    for words in [
        "kind = 'linear'\nfeature_map = 'relu'",
        "kind = 'linear'\nfeature_map = 'exp'",
        "kind = 'linear'\nfeature_map = 'softmax'\nscale = 0.5",
        "kind = 'linear'\nfeature_map = 'identity'\nscale = 0.2",
        "kind = 'retention'\nnorm = false",
        "kind = 'gated_linear'\ngates = 'head'\ntemperature = 2.0",
        "kind = 'gated_linear'\nrank = 3\nnorm = false",
        "kind = 'gated_delta'\nnorm = false",
    ] {
        all.push(toml::from_str(words).unwrap());
    }
    all
}

#[test]
fn both_paths_agree_for_every_mixing_without_scores() {
    use position::*;
    let grid = Rotary { grid: Some(4), channels: Share::first(0.67), ..Default::default() };
    let mixed: Vec<Position> = vec![
        Rotary { heads: Share::first(0.5), ..Default::default() }.into(),
        Polar { heads: Share::between(0.5, 1.0), delta: DeltaInit::Uniform, ..Default::default() }
            .into(),
    ];
    let some = |position: Position| vec![position];
    let mut positions: Vec<Vec<Position>> = Position::all().into_iter().map(some).collect();
    positions.extend([vec![], vec![grid.into()], mixed]);
    let scaling = Scaling::yarn(4.0, 8);
    positions.push(vec![Rotary { scaling, ..Default::default() }.into()]);
    let mut refused = 0;
    for mixing in without_scores() {
        for pattern in [Pattern::Full(Default::default()), Pattern::Causal(Default::default())] {
            for (i, position) in positions.iter().enumerate() {
                let settings = AttentionSettings {
                    pattern: pattern.clone(),
                    position: position.clone(),
                    kv_heads: Some([4, 2, 1][i % 3]),
                    mixing: mixing.clone(),
                    ..base()
                };
                match settings.check() {
                    Ok(()) => check(&settings),
                    Err(Error::Refused(Refusal::Combination { .. })) => refused += 1,
                    Err(other) => panic!("{other}"),
                }
            }
        }
    }
    // Encodings that add to scores; and states that are carried from token to token, where all tokens are seen.
    let (of_scores, carried) = (5, without_scores().iter().filter(|m| m.is_causal()).count());
    // Channels that forget at a pace of their own do not turn.
    let turns = |position: &&Vec<Position>| {
        position.iter().any(|one| one.rotates(&base().sizes().unwrap()))
    };
    let turning = positions.iter().filter(turns).count();
    let of_channels = without_scores().iter().filter(|m| m.refuses_rotation().is_some()).count();
    let all = positions.len();
    let expected = 2 * of_scores * without_scores().len()
        + carried * (all - of_scores)
        + of_channels * turning;
    assert_eq!((refused, of_channels), (expected, 2));
}

/// A past is taken in before the first query, and padding is not.
#[test]
fn states_are_carried_over_a_past_and_not_over_padding() {
    let device = Device::flex();
    for mixing in without_scores() {
        for position in [vec![], vec![Position::Rotary(Default::default())]] {
            let settings = AttentionSettings { mixing: mixing.clone(), position, ..base() };
            if settings.check().is_err() {
                continue;
            }
            let name = format!("{:?} {:?}", settings.mixing, settings.position);
            let layer = settings.build(&device).unwrap();
            let x = Tensor::<3>::random(
                [2, LENGTH, settings.width],
                Distribution::Normal(0.0, 1.0),
                &device,
            );
            let values = |x: Tensor<3>| x.into_data().try_to_vec::<f32>().unwrap();
            let whole = values(layer.forward(Input::new(x.clone())).unwrap().narrow(1, 7, 12));
            let (past, rest) = (Some(x.clone().narrow(1, 0, 7)), x.clone().narrow(1, 7, 12));
            let part = layer.forward(Input { past, first: 7, ..Input::new(rest) }).unwrap();
            assert_close(&format!("{name}: past"), &values(part), &whole);
            // What is padded does not change what stands before it, nor what it is padded with.
            let padded = |filling: f32| {
                let filled = x.clone().slice_fill([0..2, 15..LENGTH], filling);
                let key_lengths = Some(vec![15, 15]);
                layer.forward(Input { key_lengths, ..Input::new(filled) }).unwrap().narrow(1, 0, 15)
            };
            let alone = layer.forward(Input::new(x.clone().narrow(1, 0, 15))).unwrap();
            assert_close(&format!("{name}: padding"), &values(padded(2.0)), &values(alone));
        }
    }
}

#[test]
fn both_paths_agree_for_every_setting_of_the_encodings() {
    use position::*;
    let positions: Vec<Vec<Position>> = vec![
        vec![
            Rotary { heads: Share::first(0.5), ..Default::default() }.into(),
            Polar {
                heads: Share::between(0.5, 1.0),
                delta: DeltaInit::Uniform,
                ..Default::default()
            }
            .into(),
            Alibi { learned: true, heads: Share::between(0.25, 0.75) }.into(),
        ],
        vec![
            Polar { channels: Share::first(0.33), ..Default::default() }.into(),
            Rotary {
                channels: Share::between(0.33, 1.0),
                layout: RotaryLayout::Interleaved,
                ..Default::default()
            }
            .into(),
        ],
        vec![
            Polar { delta: DeltaInit::Uniform, ..Default::default() }.into(),
            Alibi { learned: true, heads: Share::first(0.5) }.into(),
        ],
        vec![Sinusoidal::default().into(), Shaw { per_head: false, ..Default::default() }.into()],
        vec![
            Rotary {
                channels: Share::first(0.67),
                heads: Share::first(0.5),
                layout: RotaryLayout::Interleaved,
                ..Default::default()
            }
            .into(),
            T5 { bidirectional: true, ..Default::default() }.into(),
        ],
        vec![
            Polar {
                magnitude: PolarMagnitude::Relu,
                delta: DeltaInit::Off,
                channels: Share::first(0.5),
                heads: Share::first(0.5),
                ..Default::default()
            }
            .into(),
        ],
        vec![Polar { magnitude: PolarMagnitude::Identity, ..Default::default() }.into()],
        vec![Rotary { grid: Some(5), channels: Share::first(0.67), ..Default::default() }.into()],
        vec![
            Rotary {
                grid: Some(4),
                channels: Share::between(0.33, 1.0),
                layout: RotaryLayout::Interleaved,
                ..Default::default()
            }
            .into(),
            Alibi::default().into(),
        ],
        vec![Polar { grid: Some(5), delta: DeltaInit::Uniform, ..Default::default() }.into()],
        vec![TransformerXl { clamp: 5 }.into(), Alibi::default().into()],
        vec![Shaw { values: false, reach: 3, ..Default::default() }.into()],
        vec![Shaw { queries: true, reach: 3, ..Default::default() }.into()],
        vec![
            Shaw { queries: true, keys: false, values: false, reach: 2, per_head: false }.into(),
            Alibi::default().into(),
        ],
        vec![Rotary { scaling: Scaling::yarn(4.0, 8), ..Default::default() }.into()],
        vec![
            Rotary {
                scaling: Scaling::DynamicNtk { factor: 2.0, length: 8 },
                ..Default::default()
            }
            .into(),
        ],
    ];
    for position in positions {
        for (heads, kv_heads) in [(4, 4), (4, 2), (4, 1), (1, 1)] {
            for (soft_cap, dropout, qk_norm) in [
                (None, 0.0, QkNorm::None),
                (Some(1.5), 0.3, QkNorm::Head),
                (None, 0.0, QkNorm::EachHead),
                (None, 0.0, QkNorm::All),
            ] {
                let settings = AttentionSettings {
                    position: position.clone(),
                    heads,
                    kv_heads: Some(kv_heads),
                    soft_cap,
                    dropout,
                    qk_norm,
                    pattern: Pattern::Full(Default::default()),
                    ..base()
                };
                match settings.check() {
                    Ok(()) => check(&settings),
                    // Two encodings cannot share one head.
                    Err(error) => {
                        let error = error.to_string();
                        assert!(heads == 1 && error.contains("leaves none of 1"), "{error}");
                    }
                }
            }
        }
    }
}
