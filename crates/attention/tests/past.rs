//! Segment by segment with what came before, and in one pass: the same outputs, for every causal combination.

use burn::tensor::{Device, Distribution, Tensor};
use whatwhere_attention::{
    AttentionSettings, Cache, Input, Mixing, Path, Pattern, Position, Scaling, pattern,
    position::Rotary,
};

/// f32 rounding; the tiles of a row differ between the passes.
const TOLERANCE: f32 = 1e-4;

const LENGTH: usize = 24;
const SPLIT: usize = 14;

fn normal(device: &Device) -> Tensor<3> {
    Tensor::random([2, LENGTH, 24], Distribution::Normal(0.0, 1.0), device)
}

fn difference(a: Tensor<3>, b: Tensor<3>) -> f32 {
    (a - b).abs().max().into_scalar::<f32>()
}

/// The second segment of `x` after the first.
fn second(x: &Tensor<3>) -> Input {
    Input {
        past: Some(x.clone().narrow(1, 0, SPLIT)),
        first: SPLIT,
        ..Input::new(x.clone().narrow(1, SPLIT, LENGTH - SPLIT))
    }
}

fn layers() -> Vec<AttentionSettings> {
    let causal = || Pattern::from(pattern::Causal::default());
    let base = AttentionSettings { width: 24, heads: 4, kv_heads: Some(2), ..Default::default() };
    let mut all = Vec::new();
    for pattern in [causal(), pattern::Window { left: 6, right: 0 }.into()] {
        for position in Position::all() {
            let (pattern, position) = (pattern.clone(), vec![position]);
            all.push(AttentionSettings { pattern, position, ..base.clone() });
        }
    }
    for position in
        ["{ kind = 'rotary', grid = 5, channels = 0.67 }", "{ kind = 'polar', grid = 5 }"]
    {
        let text = format!("width = 24\nheads = 4\nposition = {position}");
        all.push(AttentionSettings::from_toml(&text).expect("the settings compose"));
    }
    let text = "width = 24\nheads = 4\nposition = { kind = 'shaw', reach = 5, queries = true }";
    all.push(AttentionSettings::from_toml(text).expect("the settings compose"));
    let scaling = Scaling::DynamicNtk { factor: 2.0, length: 16 };
    let position = vec![Rotary { scaling, ..Default::default() }.into()];
    all.push(AttentionSettings { position, ..base.clone() });
    for mixing in Mixing::all() {
        for position in [vec![], vec![Rotary::default().into()]] {
            let settings = AttentionSettings { mixing: mixing.clone(), position, ..base.clone() };
            all.extend(settings.check().is_ok().then_some(settings));
        }
    }
    all
}

#[test]
fn a_segment_after_its_past_equals_the_end_of_one_pass() {
    let device = Device::flex();
    for settings in layers() {
        let layer = settings.build(&device).unwrap();
        let x = normal(&device);
        for path in [Path::Auto, Path::Composed] {
            for key_lengths in [None, Some(vec![LENGTH, SPLIT + 3])] {
                let whole =
                    Input { path, key_lengths: key_lengths.clone(), ..Input::new(x.clone()) };
                let whole = layer.forward(whole).unwrap();
                let part = layer.forward(Input { path, key_lengths, ..second(&x) }).unwrap();
                let far = difference(part, whole.narrow(1, SPLIT, LENGTH - SPLIT));
                assert!(far < TOLERANCE, "{settings:?}: {far}");
            }
        }
    }
}

/// Relative encodings do not notice where a sequence starts, because keys start there, too.
#[test]
fn a_later_first_place_moves_queries_and_keys() {
    let device = Device::flex();
    for position in ["rotary", "polar", "alibi", "t5", "shaw", "transformer_xl"] {
        let text = format!("width = 24\nheads = 4\nposition = '{position}'");
        let layer = AttentionSettings::from_toml(&text).unwrap().build(&device).unwrap();
        let x = normal(&device);
        let key_lengths = Some(vec![LENGTH, 9]);
        let at = |first| {
            let key_lengths = key_lengths.clone();
            layer.forward(Input { first, key_lengths, ..Input::new(x.clone()) }).unwrap()
        };
        let far = difference(at(0), at(100));
        assert!(far < TOLERANCE, "{position}: {far}");
    }
}

#[test]
fn no_gradient_reaches_the_past() {
    let device = Device::flex().autodiff();
    let settings = AttentionSettings { width: 24, heads: 4, ..Default::default() };
    let layer = settings.build(&device).unwrap();
    for path in [Path::Fused, Path::Composed] {
        let past = normal(&device).require_grad();
        let x = normal(&device).require_grad();
        let input =
            Input { past: Some(past.clone()), first: LENGTH, path, ..Input::new(x.clone()) };
        let gradients = layer.forward(input).unwrap().sum().backward();
        assert!(past.grad(&gradients).is_none());
        assert!(x.grad(&gradients).is_some());
        assert!(layer.key.as_ref().unwrap().weight.val().grad(&gradients).is_some());
    }
}

#[test]
fn a_past_without_meaning_is_refused() {
    let device = Device::flex();
    let settings = AttentionSettings { width: 24, heads: 4, ..Default::default() };
    let layer = settings.build(&device).unwrap();
    let x = normal(&device);
    let refusal = |input: Input| layer.forward(input).unwrap_err().to_string();
    let message = refusal(Input { first: SPLIT - 1, ..second(&x) });
    assert_eq!(message, "first = 13: the past has 14 positions before it");
    let message = refusal(Input { memory: Some(x.clone()), ..second(&x) });
    assert!(message.starts_with("past with a memory"), "{message}");
    let narrow = Tensor::zeros([2, 3, 8], &device);
    let message = refusal(Input { past: Some(narrow), ..second(&x) });
    assert_eq!(message, "past has shape [2, 3, 8], expected [2, positions, 24]");
    let message = layer.decode(second(&x), &mut Cache::new()).unwrap_err().to_string();
    assert!(message.starts_with("past with a cache"), "{message}");
}
