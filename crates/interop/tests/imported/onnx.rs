//! ONNX graphs of every score, pattern, position and mixing, in every family. Here they are written and their inputs and outputs
//! counted; with `WHATWHERE_ONNX_CASES=FOLDER` they stay there, with our logits beside them, for `bench/onnx_check.py`, which asks
//! onnxruntime.

use std::{
    collections::BTreeSet,
    env, fs,
    path::{Path, PathBuf},
};

use serde_json::json;
use whatwhere_attention::{AttentionSettings, Mixing, Pattern, Position, Score};
use whatwhere_interop::{import, to_onnx};
use whatwhere_training::Run;
use whatwhere_transformer::{Family, ModelSettings};

use crate::{common::folders, trained::run_of};

const LENGTH: usize = 13;

/// Settings by name; those that are refused as such are left out.
struct Cases(Vec<(String, ModelSettings)>);

impl Cases {
    fn add(&mut self, name: impl Into<String>, text: &str) -> bool {
        let heads = if text.contains("heads = ") { "" } else { "attention = { heads = 4 }\n" };
        let base = format!("vocabulary = 19\nwidth = 24\nlayers = 2\n{heads}");
        match ModelSettings::from_toml(&format!("{base}{text}")) {
            Ok(settings) => {
                self.0.push((name.into(), settings));
                true
            }
            Err(_) => false,
        }
    }

    fn must(&mut self, name: impl Into<String>, text: &str) {
        assert!(self.add(name, text), "{text}");
    }
}

/// Mixings with gates that follow content, which a graph refuses by name.
const GATED: [&str; 3] = ["gated_linear", "delta", "gated_delta"];

fn attention(more: &str) -> String {
    format!("[attention]\nheads = 4\nkv_heads = 2\n{more}\n")
}

/// A table of a choice that reaches less far than a text of [`LENGTH`], so that its bounds show.
fn near(kind: &str) -> String {
    let more = match kind {
        "learned" => ", length = 40",
        "shaw" => ", reach = 3",
        "t5" => ", buckets = 8, max_distance = 9",
        "disentangled" => ", buckets = 4, length = 8",
        "single_angle" => ", period = 9",
        "window" => ", left = 4",
        "dilated" => ", left = 2, step = 3",
        "strided" => ", stride = 4",
        "fixed" => ", stride = 4, summary = 2",
        "prefix" => ", length = 5",
        "global" => ", positions = 2",
        "random" => ", block = 2, count = 2, length = 10",
        _ => "",
    };
    format!("{{ kind = '{kind}'{more} }}")
}

fn cases() -> Vec<(String, ModelSettings)> {
    let mut cases = Cases(Vec::new());
    let (mut positions, mut patterns, mut scores) =
        (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for family in ["decoder", "encoder", "encoder_decoder"] {
        let causal = family != "encoder";
        for position in Position::NAMES {
            for pattern in Pattern::NAMES {
                let own = match *pattern {
                    "and" => "{ kind = 'and', of = ['causal', { kind = 'window', left = 6, right = 3 }] }".into(),
                    "or" => format!("{{ kind = 'or', of = [{}, {}] }}", near("window"), near("global")),
                    other => near(other),
                };
                // What looks ahead is made causal where it must be.
                let joined = format!("{{ kind = 'and', of = ['causal', {own}] }}");
                let text = |own: &str| {
                    let position = near(position);
                    format!(
                        "family = '{family}'\n{}",
                        attention(&format!("position = {position}\npattern = {own}"))
                    )
                };
                let name = format!("{family} {position} {pattern}");
                if cases.add(&name, &text(&own)) || causal && cases.add(&name, &text(&joined)) {
                    positions.insert(*position);
                    patterns.insert(*pattern);
                }
            }
            for score in Score::NAMES {
                let text = attention(&format!(
                    "position = {}\nscore = '{score}'\nsoft_cap = 3.0",
                    near(position)
                ));
                if cases.add(
                    format!("{family} {position} {score}"),
                    &format!("family = '{family}'\n{text}"),
                ) {
                    scores.insert(*score);
                }
            }
        }
        for mixing in Mixing::NAMES {
            for position in ["learned", "sinusoidal", "none", "rotary", "polar", "single_angle"] {
                let text =
                    attention(&format!("mixing = '{mixing}'\nposition = {}", near(position)));
                let name = format!("{family} {mixing} {position}");
                let text = format!("family = '{family}'\n{text}");
                // A state that is carried from token to token has no meaning in an encoder.
                let encoder = match family {
                    "encoder_decoder" => "[encoder]\nmixing = 'softmax'\n",
                    _ => "",
                };
                let is_said = cases.add(name, &format!("{text}{encoder}"));
                assert!(is_said || family == "encoder" || *mixing == "gated_linear", "{text}");
            }
        }
        // Where turned features of relu meet, a denominator near zero may stand below a sum that is not: no tolerance holds.
        let by_itself =
            attention("mixing = { kind = 'linear', feature_map = 'relu' }\nposition = 'none'");
        cases.must(
            format!("{family} linear relu none"),
            &format!("family = '{family}'\n{by_itself}"),
        );
        for linear in [
            "feature_map = 'relu', scale = 0.5",
            "feature_map = 'exp', scale = 0.5",
            "feature_map = 'softmax'",
            "feature_map = 'identity', scale = 0.2",
        ] {
            for position in ["none", "rotary", "polar"] {
                let text = attention(&format!(
                    "mixing = {{ kind = 'linear', {linear} }}\nposition = {}",
                    near(position)
                ));
                let name = format!("{family} linear {linear} {position}").replace('\'', "");
                cases.must(name, &format!("family = '{family}'\n{text}"));
            }
        }
    }
    assert_eq!(positions.len(), Position::NAMES.len(), "{positions:?}");
    assert_eq!(patterns.len(), Pattern::NAMES.len(), "{patterns:?}");
    assert_eq!(scores.len(), Score::NAMES.len(), "{scores:?}");
    around(&mut cases);
    encodings(&mut cases);
    cases.0
}

/// What stands around attention.
fn around(cases: &mut Cases) {
    for norm in ["rms", "layer"] {
        for place in ["pre", "post", "both", "output"] {
            for residual in ["sequential", "parallel", "parallel_two_norms"] {
                for bias in [false, true] {
                    let text = format!(
                        "norm = '{norm}'\nnorm_place = '{place}'\nresidual = '{residual}'\nbias = {bias}\ntied = {bias}\n{}",
                        attention(&format!("bias = '{}'", if bias { "all" } else { "qkv" }))
                    );
                    cases.add(format!("{norm} {place} {residual} {bias}"), &text);
                }
            }
        }
    }
    for activation in ["relu", "gelu", "gelu_tanh", "silu", "swiglu"] {
        for gated in [false, true] {
            let text = format!("activation = '{activation}'\ngated = {gated}\nepsilon = 1e-3\n");
            cases.add(format!("{activation} {gated}"), &text.clone());
        }
    }
    for (norm, kind) in [
        ("head", "rms"),
        ("each_head", "layer"),
        ("all", "rms"),
        ("all", "layer"),
        ("head", "layer"),
    ] {
        let text = attention(&format!("qk_norm = '{norm}'\nqk_norm_kind = '{kind}'\nbias = 'qkv'"));
        cases.must(format!("qk_norm {norm} {kind}"), &text);
    }
    for (name, text) in [
        (
            "ends",
            "embedding_norm = true\ntoken_types = 2\noutput_bias = true\noutput_transform = true\noutput_soft_cap = 2.0",
        ),
        (
            "narrow",
            "embedding_width = 10\nbias = true\nattention = { heads = 4, position = 'sinusoidal' }",
        ),
        (
            "narrow first",
            "embedding_width = 10\nproject_positions = false\nattention = { heads = 4, position = 'learned' }",
        ),
        ("narrow untied", "embedding_width = 10\ntied = false"),
        ("shared layers", "share_layers = true\nattention = { heads = 4, position = 't5' }"),
        (
            "shared positions",
            "share_positions = true\nattention = { heads = 4, position = 'shaw' }",
        ),
        ("scaled embeddings", "scale_embeddings = true"),
        ("no first norm", "first_norm = false\nnorm = 'layer'"),
        (
            "in turn",
            "alternate = [{ pattern = { kind = 'window', left = 3 } }, { position = 'alibi', score = 'cosine' }]",
        ),
        (
            "two stacks",
            "family = 'encoder_decoder'\nencoder_layers = 3\ncross = { score = 'additive', qk_norm = true }",
        ),
        ("wide heads", "attention = { heads = 3, head_dim = 12 }"),
        ("one key head", "attention = { heads = 4, kv_heads = 1, position = 'polar' }"),
    ] {
        cases.must(name, text);
    }
}

/// Settings of encodings.
fn encodings(cases: &mut Cases) {
    for (name, scaling) in [
        ("linear", "{ kind = 'linear', factor = 4.0 }"),
        ("ntk", "{ kind = 'ntk', factor = 4.0 }"),
        ("dynamic", "{ kind = 'dynamic_ntk', factor = 4.0, length = 6 }"),
        ("yarn", "{ kind = 'yarn', factor = 4.0, length = 16 }"),
        ("llama3", "{ kind = 'llama3', factor = 8.0, length = 64 }"),
        (
            "longrope",
            "{ kind = 'longrope', factor = 4.0, length = 8, short_factor = [1.0, 1.5, 2.0], long_factor = [2.0, 4.0, 5.0] }",
        ),
    ] {
        let text = attention(&format!(
            "position = {{ kind = 'rotary', base = 100.0, scaling = {scaling} }}"
        ));
        cases.must(format!("rotary {name}"), &text);
    }
    for (name, position) in [
        ("rotary interleaved", "{ kind = 'rotary', layout = 'interleaved' }"),
        ("rotary partial", "{ kind = 'rotary', channels = [0.3333, 1.0] }"),
        ("rotary some heads", "{ kind = 'rotary', heads = [0.25, 0.75] }"),
        ("polar some", "{ kind = 'polar', channels = [0.1667, 0.6667], heads = [0.25, 0.75] }"),
        ("polar relu", "{ kind = 'polar', magnitude = 'relu', delta = 'off' }"),
        ("polar identity", "{ kind = 'polar', magnitude = 'identity', delta = 'uniform' }"),
        ("both", "[{ kind = 'rotary', heads = 0.5 }, { kind = 'polar', heads = [0.5, 1.0] }]"),
        (
            "channels",
            "[{ kind = 'polar', channels = 0.5 }, { kind = 'rotary', channels = [0.6667, 1.0] }, 'alibi']",
        ),
        ("rotary grid", "{ kind = 'rotary', grid = 3, channels = 0.6667 }"),
        (
            "rotary grid interleaved",
            "{ kind = 'rotary', grid = 4, channels = [0.3333, 1.0], layout = 'interleaved' }",
        ),
        ("polar grid", "{ kind = 'polar', grid = 3, delta = 'uniform' }"),
        ("learned grid", "{ kind = 'learned', grid = 3, length = 40 }"),
        ("alibi learned", "{ kind = 'alibi', learned = true, heads = [0.25, 1.0] }"),
        ("shaw shared", "{ kind = 'shaw', reach = 4, per_head = false }"),
        ("shaw keys", "{ kind = 'shaw', reach = 4, values = false }"),
        ("shaw values", "{ kind = 'shaw', reach = 4, keys = false }"),
        ("shaw queries", "{ kind = 'shaw', reach = 4, queries = true }"),
        (
            "shaw queries only",
            "{ kind = 'shaw', reach = 4, keys = false, values = false, queries = true, per_head = false }",
        ),
        ("xl clamp", "{ kind = 'transformer_xl', clamp = 4 }"),
        (
            "sinusoidal later",
            "{ kind = 'sinusoidal', layout = 'tensor2tensor', first = 2, base = 100.0 }",
        ),
        ("three", "['learned', 'sinusoidal', 't5']"),
    ] {
        cases.must(name, &attention(&format!("position = {position}")));
    }
    let encoder = |more: &str| format!("family = 'encoder'\n{}", attention(more));
    for (name, more) in [
        (
            "t5 both sides",
            "position = { kind = 't5', buckets = 8, max_distance = 9, bidirectional = true }",
        ),
        (
            "deberta plain",
            "position = { kind = 'disentangled', buckets = 0, length = 5, norm = false }",
        ),
        (
            "deberta own",
            "position = { kind = 'disentangled', buckets = 4, length = 8, shared_projections = false }\nbias = true",
        ),
        (
            "deberta c2p",
            "position = { kind = 'disentangled', position_to_content = false, shared_projections = false }",
        ),
        ("deberta p2c", "position = { kind = 'disentangled', content_to_position = false }"),
        (
            "places",
            "pattern = { kind = 'or', of = [{ kind = 'window', left = 1, right = 2 }, { kind = 'global', positions = [3, 7] }] }",
        ),
        ("two documents", "pattern = 'document'"),
        ("predicted", "pattern = { kind = 'predicted', radius = 3 }"),
    ] {
        cases.must(format!("encoder {name}"), &encoder(more));
    }
    cases.must(
        "cross predicted",
        "family = 'encoder_decoder'\ncross = { pattern = { kind = 'predicted', radius = 4 } }",
    );
}

/// A case in a folder: its graphs, ids and logits.
fn written(run: &Path, out: &Path, name: &str) -> Result<(), String> {
    to_onnx(run, &out.join("onnx")).map_err(|e| e.to_string())?;
    let run = Run::open(run).unwrap();
    let settings = &run.settings.model;
    let vocabulary = settings.vocabulary as u32;
    let length = settings.longest().unwrap_or(LENGTH).min(LENGTH);
    let ids = |seed: u32, length: usize| -> Vec<Vec<u32>> {
        (0..2)
            .map(|row| {
                (0..length as u32)
                    .map(|i| (seed + 31 * row + i * i * 5 + 3 * i) % vocabulary)
                    .collect()
            })
            .collect()
    };
    let is_pair = settings.family == Family::EncoderDecoder;
    let (rows, sources) = (ids(1, length), is_pair.then(|| ids(4, length.min(9))));
    let (logits, sizes) = run.logits(sources.as_deref(), &rows).map_err(|e| e.to_string())?;
    let follows = |layer: AttentionSettings| layer.position.iter().any(Position::follows_length);
    let site = whatwhere_transformer::Site::Decoder;
    let follows = settings.decoder_depth() > 0 && settings.attention(site, 0).is_ok_and(follows);
    let case = json!({
        "name": name, "family": settings.family, "ids": rows, "sources": sources, "logits": logits, "sizes": sizes,
        "follows_length": follows,
    });
    fs::write(out.join("case.json"), case.to_string()).unwrap();
    Ok(())
}

#[test]
fn every_choice_is_written() {
    let temporary = tempfile::tempdir().unwrap();
    let kept = env::var_os("WHATWHERE_ONNX_CASES").map(PathBuf::from);
    let root = kept.clone().unwrap_or_else(|| temporary.path().into());
    let (mut wrong, mut count) = (Vec::new(), 0);
    for (name, settings) in cases() {
        let out = root.join(name.replace(' ', "-"));
        fs::create_dir_all(&out).unwrap();
        run_of(&settings, None, &out.join("run"));
        let has_gates = GATED.iter().any(|mixing| name.split(' ').any(|word| word == *mixing));
        match written(&out.join("run"), &out, &name) {
            Ok(()) if has_gates => wrong.push(format!("{name}: its gates are written?")),
            Err(message) if !has_gates => wrong.push(format!("{name}: {message}")),
            Err(message) => assert!(message.contains("its gates follow content"), "{message}"),
            Ok(()) => {}
        }
        count += 1;
    }
    for folder in folders() {
        let name = format!("family {}", folder.file_name().unwrap().to_string_lossy());
        let out = root.join(name.replace(' ', "-"));
        fs::create_dir_all(&out).unwrap();
        if out.join("run").exists() || import(&folder, &out.join("run"), &mut |_, _| {}).is_err() {
            continue;
        }
        if let Err(message) = written(&out.join("run"), &out, &name) {
            wrong.push(format!("{name}: {message}"));
        }
        count += 1;
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(count > 300, "{count}");
    eprintln!(
        "{count} cases{}",
        kept.map_or(String::new(), |path| format!(" in {}", path.display()))
    );
}

#[test]
fn what_is_there_already_is_left_alone() {
    let out = tempfile::tempdir().unwrap();
    let settings = ModelSettings::from_toml(
        "vocabulary = 5\nwidth = 8\nlayers = 1\nattention = { heads = 2 }",
    );
    run_of(&settings.unwrap(), None, &out.path().join("run"));
    let message = to_onnx(&out.path().join("run"), out.path()).unwrap_err().to_string();
    assert!(message.contains("expected the name of a new folder"), "{message}");
}
