//! Conversions between encodings and heads: what is called exact keeps the logits, what is not says so, and what has no path
//! is refused with what has.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};

use whatwhere_interop::{
    convert::{Conversion, convert},
    doctor::{self, Sample},
};
use whatwhere_transformer::{Mode, Model, Sequences};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/families").join(name)
}

fn conversion(position: Option<&str>, kv_heads: Option<usize>) -> Conversion {
    let position = position.map(|text| Conversion::position(text).unwrap());
    Conversion { position, kv_heads, length: 48 }
}

fn logits(model: &Model, sample: &Sample) -> Vec<f32> {
    let source = sample.source.as_ref().map(|source| Sequences::from_rows(&[source]));
    let tokens = Sequences::from_rows(&[&sample.ids]);
    let logits = model.forward(source.as_ref(), &tokens, Mode::default()).unwrap();
    logits.into_data().try_into_vec().unwrap()
}

/// The largest difference after a conversion, of the largest logit; and whether it was called exact.
fn distance(name: &str, conversion: &Conversion) -> (f32, bool) {
    let model = doctor::open(&fixture(name)).unwrap();
    let samples = Sample::read(&fixture(name).join("golden.safetensors"), None).unwrap();
    let converted = convert(&model, conversion).unwrap();
    let exact = converted.is_exact();
    let other = converted.settings.build_with(converted.parameters, &model.device()).unwrap();
    assert_ne!(other.settings(), model.settings());
    let (mut far, mut largest) = (0f32, 0f32);
    for sample in &samples {
        let (before, after) = (logits(&model, sample), logits(&other, sample));
        assert!(after.iter().all(|logit| logit.is_finite()));
        let differences = before.iter().zip(&after).map(|(a, b)| (a - b).abs());
        far = differences.fold(far, f32::max);
        largest = before.iter().fold(largest, |largest, logit| largest.max(logit.abs()));
    }
    (far / largest, exact)
}

#[test]
fn exact_paths_keep_logits() {
    let interleaved = "{ kind = 'rotary', layout = 'interleaved' }";
    let halves = "{ kind = 'rotary', layout = 'half_split' }";
    for (name, position, kv_heads) in [
        ("marian", Some("learned"), None),
        ("m2m_100", Some("{ kind = 'learned', length = 64 }"), None),
        ("bloom", Some("t5"), None),
        ("mpt", Some("{ kind = 't5', buckets = 96, max_distance = 100 }"), None),
        ("bloom", Some("{ kind = 'alibi', learned = true }"), None),
        ("llama", Some(interleaved), None),
        ("qwen3", Some(interleaved), None),
        ("olmo2", Some(interleaved), None),
        ("neox", Some(interleaved), None),
        ("llama_yarn", Some(interleaved), None),
        ("gptj", Some(halves), None),
        ("roformer", Some(halves), None),
        ("gpt2", Some("{ kind = 'learned', length = 64 }"), None),
        ("llama", None, Some(4)),
        ("qwen2", Some(interleaved), Some(4)),
    ] {
        let (far, exact) = distance(name, &conversion(position, kv_heads));
        assert!(exact && far < 1e-5, "{name} to {position:?} {kv_heads:?}: {far:e}, {exact}");
    }
}

#[test]
fn what_is_not_exact_says_so() {
    for (name, position, kv_heads) in [
        ("llama", Some("polar"), None),
        ("llama", Some("{ kind = 'polar', magnitude = 'identity' }"), None),
        ("gptj", Some("polar"), None),
        (
            "llama",
            Some("{ kind = 'rotary', scaling = { kind = 'yarn', factor = 4.0, length = 16 } }"),
            None,
        ),
        ("llama", None, Some(1)),
        ("gpt2", None, Some(2)),
        ("bart", None, Some(1)),
    ] {
        let (far, exact) = distance(name, &conversion(position, kv_heads));
        assert!(!exact && far > 1e-3, "{name} to {position:?} {kv_heads:?}: {far:e}, {exact}");
    }
    // Beyond its near buckets a table of few is not what ALiBi was.
    let few = conversion(Some("{ kind = 't5', buckets = 8, max_distance = 20 }"), None);
    let converted = convert(&doctor::open(&fixture("bloom")).unwrap(), &few).unwrap();
    assert_eq!(converted.steps[0].length, Some(4));
    assert!(distance("bloom", &few).0 > 1e-3);
}

#[test]
fn a_base_that_is_not_named_stays() {
    let model = doctor::open(&fixture("llama_llama3")).unwrap();
    let asked = conversion(Some("{ kind = 'rotary', layout = 'interleaved' }"), None);
    let text = toml::to_string(&convert(&model, &asked).unwrap().settings.attention).unwrap();
    assert!(text.contains("llama3") && text.contains("interleaved"), "{text}");
}

#[test]
fn what_has_no_path_is_refused_with_what_has() {
    for (name, position, kv_heads, said) in [
        (
            "gpt2",
            Some("rotary"),
            None,
            "no path from learned to rotary; there are: sinusoidal to learned",
        ),
        ("llama", Some("t5"), None, "no path from rotary to t5"),
        ("llama", Some("rotary"), None, "already"),
        (
            "llama",
            Some("yarn"),
            None,
            "a scaling of rotary, expected a table such as { kind = \"rotary\"",
        ),
        ("llama", Some("{ kind = 'rotary', bases = 3 }"), None, "unknown field"),
        (
            "gemma3",
            Some("{ kind = 'rotary', layout = 'interleaved' }"),
            None,
            "layers have encodings of their own",
        ),
        (
            "llama",
            None,
            Some(3),
            "the model has 2 key heads for 4 query heads, expected one of 1, 4",
        ),
        ("olmo2", None, Some(4), "QK-norm has a gain"),
        ("llama", None, None, "nothing to convert"),
    ] {
        let model = doctor::open(&fixture(name)).unwrap();
        let error = convert(&model, &conversion(position, kv_heads)).unwrap_err().to_string();
        assert!(error.contains(said), "{name} to {position:?}: {error}");
    }
    let error = Conversion::position("{ base = 3 }").unwrap_err().to_string();
    assert!(error.contains("expected a name such as learned"), "{error}");
}
