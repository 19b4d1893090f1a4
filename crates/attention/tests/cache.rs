//! Token by token, in chunks, and in one pass: the same outputs, for every causal combination.

#![expect(clippy::unwrap_used, reason = "a test may stop at once")]

use burn::tensor::{Device, Distribution, Tensor};
use whatwhere_attention::{
    Attention, AttentionSettings, Cache, Error, Input, Mixing, Path, Pattern, Position, Scaling,
    Score, mixing, pattern, position,
};
use whatwhere_settings::{Refusal, Share};

/// f32 rounding; the tiles of a row differ between the passes.
const TOLERANCE: f32 = 1e-4;

const LENGTH: usize = 40;

fn causal_patterns() -> Vec<Pattern> {
    use pattern::*;
    let causal = || Pattern::from(Causal::default());
    vec![
        causal(),
        Window { left: 6, right: 0 }.into(),
        Dilated { left: 3, right: 0, step: 3 }.into(),
        Strided { stride: 5 }.into(),
        Fixed { stride: 6, summary: 2 }.into(),
        And {
            of: vec![
                causal(),
                Or {
                    of: vec![
                        Window { left: 4, right: 0 }.into(),
                        Global { positions: Some(2.into()), ..Default::default() }.into(),
                    ],
                }
                .into(),
            ],
        }
        .into(),
        And { of: vec![causal(), Random { block: 4, count: 3, length: 64, seed: 1 }.into()] }
            .into(),
        And { of: vec![causal(), Prefix { length: 5.into() }.into()] }.into(),
    ]
}

fn positions() -> Vec<Vec<Position>> {
    use position::*;
    let mut all: Vec<Vec<Position>> = Position::all().into_iter().map(|p| vec![p]).collect();
    all.push(vec![
        Rotary { scaling: Scaling::DynamicNtk { factor: 2.0, length: 16 }, ..Default::default() }
            .into(),
    ]);
    all.push(vec![Rotary { scaling: Scaling::yarn(4.0, 16), ..Default::default() }.into()]);
    all.push(vec![
        Polar { delta: DeltaInit::Uniform, ..Default::default() }.into(),
        Alibi::default().into(),
    ]);
    all.push(vec![Shaw { queries: true, reach: 4, ..Default::default() }.into()]);
    all.push(vec![
        Rotary {
            grid: Some(7),
            channels: Share::first(0.67),
            heads: Share::first(0.5),
            ..Default::default()
        }
        .into(),
        Polar { grid: Some(6), heads: Share::between(0.5, 1.0), ..Default::default() }.into(),
    ]);
    all
}

fn values(x: Tensor<3>) -> Vec<f32> {
    x.into_data().try_to_vec::<f32>().unwrap()
}

/// Outputs of the layer fed with `steps` tokens at a time.
fn decode(layer: &Attention, x: &Tensor<3>, steps: usize, cache: &mut Cache) -> Vec<Tensor<3>> {
    let length = x.dims()[1];
    (0..length)
        .step_by(steps)
        .map(|start| {
            let part = x.clone().narrow(1, start, steps.min(length - start));
            layer.decode(Input::new(part), cache).unwrap()
        })
        .collect()
}

fn assert_close(name: &str, a: &[f32], b: &[f32]) {
    assert_eq!(a.len(), b.len(), "{name}");
    for (i, (a, b)) in a.iter().zip(b).enumerate() {
        assert!((a - b).abs() < TOLERANCE, "{name} at {i}: {a}, expected {b}");
    }
}

#[test]
fn under_a_bounded_reach_the_cache_stays_bounded_and_right() {
    let device = Device::flex();
    let toml =
        "width = 24\nheads = 4\nposition = 'rotary'\npattern = { kind = 'window', left = 15 }";
    let layer = AttentionSettings::from_toml(toml).unwrap().build(&device).unwrap();
    let x = Tensor::<3>::random([1, 500, 24], Distribution::Normal(0.0, 1.0), &device);
    let whole = values(layer.forward(Input::new(x.clone())).unwrap());
    let mut cache = Cache::new();
    let mut parts = Vec::new();
    for position in 0..500 {
        let token = x.clone().narrow(1, position, 1);
        parts.push(layer.decode(Input::new(token), &mut cache).unwrap());
        assert!(cache.keys() <= 256, "{} keys kept", cache.keys());
    }
    assert_close("window", &values(Tensor::cat(parts, 1)), &whole);
}

#[test]
fn tokens_that_were_taken_back_leave_nothing() {
    let device = Device::flex();
    for pattern in causal_patterns() {
        let settings = AttentionSettings { width: 24, heads: 4, pattern, ..Default::default() };
        let name = format!("{:?}", settings.pattern);
        let layer = settings.build(&device).unwrap();
        let random =
            |count| Tensor::<3>::random([1, count, 24], Distribution::Normal(0.0, 1.0), &device);
        let x = random(400);
        let (mut cache, mut straight) = (Cache::new(), Cache::new());
        for position in 0..400 {
            let token = x.clone().narrow(1, position, 1);
            let expected = layer.decode(Input::new(token.clone()), &mut straight).unwrap();
            // Some other tokens, one by one or together, which are taken back again.
            let others = [0, 1, 3, 64][position % 4];
            for _ in 0..others {
                layer.decode(Input::new(random(1)), &mut cache).unwrap();
            }
            cache.rollback(others).unwrap();
            layer.decode(Input::new(random(5)), &mut cache).unwrap();
            cache.rollback(5).unwrap();
            let found = layer.decode(Input::new(token), &mut cache).unwrap();
            assert_eq!(values(found), values(expected), "{name} at {position}");
        }
        assert_eq!(cache.length(), 400);
        let refused = cache.rollback(401).unwrap_err().to_string();
        assert!(refused.starts_with("tokens = 401: "), "{refused}");
    }
}

#[test]
fn no_tokens_leave_a_cache_as_it_was() {
    let device = Device::flex();
    let layer =
        AttentionSettings::from_toml("width = 24\nheads = 4").unwrap().build(&device).unwrap();
    let x = Tensor::<3>::random([2, 3, 24], Distribution::Normal(0.0, 1.0), &device);
    let whole = values(layer.forward(Input::new(x.clone())).unwrap());
    let mut cache = Cache::new();
    let mut parts = Vec::new();
    for count in [0, 2, 0, 1, 0] {
        let first = cache.length();
        let tokens = x.clone().slice([0..2, first..first + count]);
        parts.push(layer.decode(Input::new(tokens), &mut cache).unwrap());
    }
    assert_eq!(cache.keys(), 3);
    let parts = parts.into_iter().filter(|part| part.dims()[1] > 0).collect();
    assert_close("parts", &values(Tensor::cat(parts, 1)), &whole);
}

#[test]
fn decoding_in_any_steps_equals_one_pass() {
    let device = Device::flex();
    for pattern in causal_patterns() {
        for position in positions() {
            for (score, kv_heads) in [(Score::all().remove(0), 4), (Score::all().pop().unwrap(), 1)]
            {
                let settings = AttentionSettings {
                    width: 24,
                    heads: 4,
                    kv_heads: Some(kv_heads),
                    score,
                    pattern: pattern.clone(),
                    position: position.clone(),
                    ..Default::default()
                };
                let name = format!("{:?} {:?}", settings.pattern, settings.position);
                let layer = settings.build(&device).unwrap();
                let x =
                    Tensor::<3>::random([2, LENGTH, 24], Distribution::Normal(0.0, 1.0), &device);
                let grows = position
                    .iter()
                    .any(|p| matches!(p, Position::Rotary(r) if r.scaling.follows_length()));
                let whole = values(layer.forward(Input::new(x.clone())).unwrap());
                for steps in [1, 3, 17] {
                    let mut cache = Cache::new();
                    let parts = decode(&layer, &x, steps, &mut cache);
                    assert_eq!(cache.length(), LENGTH);
                    if grows {
                        // Each step must equal a pass over what has been seen by then: the angles follow the length.
                        for (i, part) in parts.into_iter().enumerate() {
                            let (start, end) = (i * steps, ((i + 1) * steps).min(LENGTH));
                            let seen =
                                layer.forward(Input::new(x.clone().narrow(1, 0, end))).unwrap();
                            assert_close(
                                &name,
                                &values(part),
                                &values(seen.narrow(1, start, end - start)),
                            );
                        }
                    } else {
                        assert_close(&name, &values(Tensor::cat(parts, 1)), &whole);
                    }
                }
            }
        }
    }
}

#[test]
fn mixing_without_scores_decodes_like_one_pass() {
    let device = Device::flex();
    let mut mixings: Vec<Mixing> = Mixing::all();
    mixings.retain(|mixing| !mixing.has_scores());
    let feature_map = mixing::LinearFeatures::Identity;
    mixings.push(mixing::Linear { feature_map, scale: Some(0.3) }.into());
    mixings.push(mixing::GatedLinear { gates: mixing::Gating::Head, ..Default::default() }.into());
    let mut count = 0;
    for mixing in mixings {
        for position in positions() {
            for (kv_heads, path) in [(4, Path::Auto), (2, Path::Auto), (1, Path::Composed)] {
                let settings = AttentionSettings {
                    width: 24,
                    heads: 4,
                    kv_heads: Some(kv_heads),
                    position: position.clone(),
                    mixing: mixing.clone(),
                    ..Default::default()
                };
                if settings.check().is_err() {
                    continue;
                }
                count += 1;
                let layer = settings.build(&device).unwrap();
                let x =
                    Tensor::<3>::random([2, LENGTH, 24], Distribution::Normal(0.0, 1.0), &device);
                let input = |x: Tensor<3>| Input { path, ..Input::new(x) };
                let whole = layer.forward(input(x.clone())).unwrap();
                let name = format!("{:?} {position:?} {path:?}", settings.mixing);
                for steps in [1, 7] {
                    let mut cache = Cache::new();
                    let mut parts = Vec::new();
                    for start in (0..LENGTH).step_by(steps) {
                        // Sequences that change places and change back leave nothing behind.
                        cache.reorder(&[1, 0]).unwrap();
                        cache.reorder(&[1, 0]).unwrap();
                        let part = x.clone().narrow(1, start, steps.min(LENGTH - start));
                        parts.push(layer.decode(input(part), &mut cache).unwrap());
                    }
                    assert_eq!((cache.keys(), cache.length()), (0, LENGTH));
                    let parts = values(Tensor::cat(parts, 1));
                    assert_close(&name, &parts, &values(whole.clone()));
                }
            }
        }
    }
    assert!(count > 80, "{count}");
}

#[test]
fn a_memory_is_projected_once_and_kept() {
    let device = Device::flex();
    let settings = AttentionSettings {
        width: 24,
        heads: 4,
        position: vec![],
        pattern: Pattern::Full(Default::default()),
        ..Default::default()
    };
    let layer = settings.build(&device).unwrap();
    let normal = || Tensor::<3>::random([2, 9, 24], Distribution::Normal(0.0, 1.0), &device);
    let (x, memory) = (normal(), normal());
    let input = |x: Tensor<3>, memory: Tensor<3>| Input { memory: Some(memory), ..Input::new(x) };
    let whole = values(layer.forward(input(x.clone(), memory.clone())).unwrap());
    let mut cache = Cache::new();
    let first = layer.decode(input(x.clone().narrow(1, 0, 4), memory.clone()), &mut cache).unwrap();
    // A memory given later is not looked at: the first one is kept.
    let rest = layer.decode(input(x.narrow(1, 4, 5), memory.zeros_like()), &mut cache).unwrap();
    assert_close("memory", &values(Tensor::cat(vec![first, rest], 1)), &whole);
    assert_eq!(cache.keys(), 9);
}

#[test]
fn predicted_places_in_a_memory_are_the_same_token_by_token() {
    let device = Device::flex();
    let settings = AttentionSettings {
        width: 24,
        heads: 4,
        position: vec![],
        pattern: pattern::Predicted { radius: 3 }.into(),
        ..Default::default()
    };
    let layer = settings.build(&device).unwrap();
    let normal =
        |length| Tensor::<3>::random([2, length, 24], Distribution::Normal(0.0, 1.0), &device);
    let (x, memory) = (normal(6), normal(21));
    let input = |x: Tensor<3>, first| Input {
        memory: Some(memory.clone()),
        key_lengths: Some(vec![21, 13]),
        first,
        ..Input::new(x)
    };
    let whole = values(layer.forward(input(x.clone(), 0)).unwrap());
    let mut cache = Cache::new();
    let steps =
        (0..6).map(|i| layer.decode(input(x.clone().narrow(1, i, 1), i), &mut cache).unwrap());
    assert_close("predicted", &values(Tensor::cat(steps.collect(), 1)), &whole);
    // Without a memory, later keys would be missing.
    let error = layer.decode(Input::new(x), &mut Cache::new()).unwrap_err();
    assert!(error.to_string().contains("sees keys after the query"), "{error}");
}

#[test]
fn tokens_of_a_kind_are_global_in_any_steps_and_after_moves() {
    let device = Device::flex();
    let ids = |row: usize| (0..LENGTH).map(move |i| ((i * i + row * 5) % 7) as u32);
    let rows: Vec<Vec<u32>> = (0..2).map(|row| ids(row).collect()).collect();
    let x = Tensor::<3>::random([2, LENGTH, 24], Distribution::Normal(0.0, 1.0), &device);
    for inner in
        ["{ kind = 'window', left = 3 }, { kind = 'global', tokens = [2, 4] }", "'strided'"]
    {
        let text = format!(
            "width = 24\nheads = 4\npattern = {{ kind = 'and', of = ['causal', {{ kind = 'or', of = [{inner}] }}] }}"
        );
        let layer = AttentionSettings::from_toml(&text).unwrap().build(&device).unwrap();
        let part = |rows: &[Vec<u32>], x: &Tensor<3>, from: usize, to: usize| Input {
            tokens: Some(rows.iter().map(|row| row[from..to].to_vec()).collect()),
            ..Input::new(x.clone().narrow(1, from, to - from))
        };
        let whole = values(layer.forward(part(&rows, &x, 0, LENGTH)).unwrap());
        for steps in [1, 3, 17] {
            let mut cache = Cache::new();
            let parts = (0..LENGTH).step_by(steps).map(|start| {
                let end = (start + steps).min(LENGTH);
                layer.decode(part(&rows, &x, start, end), &mut cache).unwrap()
            });
            assert_close(&text, &values(Tensor::cat(parts.collect(), 1)), &whole);
        }
        // Other tokens that are taken back, and sequences that change places, leave nothing behind.
        let mut cache = Cache::new();
        layer.decode(part(&rows, &x, 0, 20), &mut cache).unwrap();
        let wrong: Vec<Vec<u32>> = rows.iter().map(|row| vec![2; row.len()]).collect();
        layer.decode(part(&wrong, &x, 20, 25), &mut cache).unwrap();
        cache.rollback(5).unwrap();
        cache.reorder(&[1, 0]).unwrap();
        let order = |x: &Tensor<3>| {
            Tensor::cat(vec![x.clone().narrow(0, 1, 1), x.clone().narrow(0, 0, 1)], 0)
        };
        let turned = [rows[1].clone(), rows[0].clone()];
        let rest = layer.decode(part(&turned, &order(&x), 20, LENGTH), &mut cache).unwrap();
        let whole = layer.forward(part(&rows, &x, 0, LENGTH)).unwrap();
        assert_close(&text, &values(order(&rest)), &values(whole.narrow(1, 20, LENGTH - 20)));
    }
    let text = "width = 24\nheads = 4\npattern = { kind = 'global', tokens = [1] }";
    let layer = AttentionSettings::from_toml(text).unwrap().build(&device).unwrap();
    let error = layer.forward(Input::new(x)).unwrap_err().to_string();
    assert!(error.contains("the call must say which tokens it has"), "{error}");
}

#[test]
fn reordering_moves_sequences() {
    let device = Device::flex();
    let layer =
        AttentionSettings { width: 24, heads: 4, ..Default::default() }.build(&device).unwrap();
    let x = Tensor::<3>::random([2, 8, 24], Distribution::Normal(0.0, 1.0), &device);
    let mut cache = Cache::new();
    decode(&layer, &x, 8, &mut cache);
    let next =
        Tensor::<3>::random([1, 1, 24], Distribution::Normal(0.0, 1.0), &device).repeat_dim(0, 2);
    let mut straight = cache.clone();
    let before = values(layer.decode(Input::new(next.clone()), &mut straight).unwrap());
    cache.reorder(&[1, 0]).unwrap();
    let after = values(layer.decode(Input::new(next), &mut cache).unwrap());
    assert_eq!((&after[..24], &after[24..]), (&before[24..], &before[..24]));
    assert!(cache.reorder(&[2]).is_err());
}

#[test]
fn a_cache_of_another_layer_and_patterns_that_look_ahead_are_refused() {
    let device = Device::flex();
    let layer = |position: Position, pattern: Pattern| {
        AttentionSettings {
            width: 24,
            heads: 4,
            position: vec![position],
            pattern,
            ..Default::default()
        }
        .build(&device)
        .unwrap()
    };
    let causal = || Pattern::Causal(Default::default());
    let x = || Input::new(Tensor::<3>::ones([1, 2, 24], &device));
    let mut cache = Cache::new();
    layer(Position::Rotary(Default::default()), causal()).decode(x(), &mut cache).unwrap();
    let error =
        layer(Position::Alibi(Default::default()), causal()).decode(x(), &mut cache).unwrap_err();
    assert!(error.to_string().contains("another position; clear it first"), "{error}");
    let error = layer(Position::Alibi(Default::default()), Pattern::Full(Default::default()))
        .decode(x(), &mut Cache::new())
        .unwrap_err();
    assert!(
        matches!(&error, Error::Refused(Refusal::Setting { setting, .. }) if setting == "pattern"),
        "{error}"
    );
}

#[test]
fn what_the_delta_rule_overwrites_stays_bounded_under_every_rotation() {
    let device = Device::flex();
    for mixing in ["delta", "gated_delta"] {
        for position in ["none", "rotary", "polar"] {
            let text = format!(
                "width = 64\nheads = 2\nposition = '{position}'\nmixing = {{ kind = '{mixing}', norm = false }}"
            );
            let layer = AttentionSettings::from_toml(&text).unwrap().build(&device).unwrap();
            let x = Tensor::random([1, 256, 64], Distribution::Normal(0.0, 1.0), &device);
            let out = values(layer.forward(Input::new(x)).unwrap());
            let most =
                out.iter().fold(0.0f32, |most, x| if x.abs() <= most { most } else { x.abs() });
            assert!(most < 10.0, "{mixing}, {position}: {most}");
        }
    }
}
