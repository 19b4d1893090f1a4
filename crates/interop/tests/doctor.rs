//! Faults that are put into good models, and the convention that the doctor must name.
//!
//! Faults are put where they happen: into `config.json`, into tensors of a file, into the settings or parameters of a run.
//! The logits are those that transformers wrote of the good model.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use serde_json::{Map, Value, json};
use whatwhere_interop::{
    doctor::{self, Examination, Sample, TOLERANCE},
    import,
};
use whatwhere_training::{Folder, RunSettings};
use whatwhere_transformer::{Model, Parameter};

type Tensors = BTreeMap<String, (Vec<usize>, Vec<f32>)>;

/// What is done to a good model.
enum Fault {
    Config(fn(&mut Map<String, Value>)),
    Tensors(fn(&mut Tensors)),
    /// Changes of a run's settings, as `--set`.
    Settings(&'static [&'static str]),
    Parameters(fn(&mut [Parameter])),
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/families").join(name)
}

fn broken(name: &str, fault: &Fault) -> Model {
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path().join("model");
    fs::create_dir(&folder).unwrap();
    for entry in fs::read_dir(fixture(name)).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, folder.join(path.file_name().unwrap())).unwrap();
    }
    match fault {
        Fault::Config(change) => {
            let path = folder.join("config.json");
            let mut config = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
            change(&mut config);
            fs::write(&path, Value::Object(config).to_string()).unwrap();
        }
        Fault::Tensors(change) => {
            let path = folder.join("model.safetensors");
            let bytes = fs::read(&path).unwrap();
            let file = SafeTensors::deserialize(&bytes).unwrap();
            let values = |view: &TensorView| {
                let bytes = view.data().chunks_exact(4);
                bytes.map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect::<Vec<f32>>()
            };
            let mut all: Tensors = file
                .tensors()
                .into_iter()
                .map(|(name, view)| (name, (view.shape().to_vec(), values(&view))))
                .collect();
            change(&mut all);
            let bytes: BTreeMap<&String, Vec<u8>> = all
                .iter()
                .map(|(name, (_, values))| {
                    (name, values.iter().flat_map(|v| v.to_le_bytes()).collect())
                })
                .collect();
            let views = all.iter().map(|(name, (shape, _))| {
                (name, TensorView::new(Dtype::F32, shape.clone(), &bytes[name]).unwrap())
            });
            fs::write(&path, safetensors::serialize(views, None).unwrap()).unwrap();
        }
        Fault::Settings(_) | Fault::Parameters(_) => {}
    }
    let Fault::Settings(changes) = fault else {
        let model = doctor::open(&folder).unwrap();
        let Fault::Parameters(change) = fault else { return model };
        let mut parameters = model.parameters();
        change(&mut parameters);
        return model.settings().build_with(parameters, &model.device()).unwrap();
    };
    let run = temporary.path().join("run");
    import(&folder, &run, &mut |_, _| {}).unwrap();
    let changes: Vec<String> = changes.iter().map(|change| (*change).into()).collect();
    let text = fs::read_to_string(run.join("config.toml")).unwrap();
    let settings = RunSettings::read(&text, &changes).unwrap();
    Folder::new(&run).save_settings(&settings).unwrap();
    doctor::open(&run).unwrap()
}

fn examined(name: &str, fault: &Fault) -> Examination {
    let samples = Sample::read(&fixture(name).join("golden.safetensors"), None).unwrap();
    doctor::examine(&broken(name, fault), &samples, TOLERANCE, &mut |_, _| {}).unwrap()
}

/// Rows of every tensor whose name ends so, as `order` says of their place and number.
fn rows(all: &mut Tensors, ends: &[&str], order: impl Fn(usize) -> usize) {
    for (_, (shape, values)) in all.iter_mut().filter(|(n, _)| ends.iter().any(|e| n.ends_with(e)))
    {
        let row = values.len() / shape[0];
        let from = |to: usize| values[order(to) * row..(order(to) + 1) * row].to_vec();
        *values = (0..shape[0]).flat_map(from).collect();
    }
}

fn columns(all: &mut Tensors, end: &str, order: impl Fn(usize) -> usize) {
    for (_, (shape, values)) in all.iter_mut().filter(|(name, _)| name.ends_with(end)) {
        let width = shape[1];
        *values =
            values.chunks(width).flat_map(|row| (0..width).map(|to| row[order(to)])).collect();
    }
}

const QUERY_KEY: [&str; 2] = ["q_proj.weight", "k_proj.weight"];

/// Rows of a head of 8 from halves to pairs side by side, as GGUF stores them.
fn side_by_side(all: &mut Tensors) {
    rows(all, &QUERY_KEY, |to| to / 8 * 8 + to % 2 * 4 + to % 8 / 2);
}

fn half_apart(all: &mut Tensors) {
    rows(all, &QUERY_KEY, |to| to / 8 * 8 + to % 4 * 2 + to % 8 / 4);
}

fn halves_swapped(all: &mut Tensors) {
    rows(all, &QUERY_KEY, |to| to / 8 * 8 + (to + 4) % 8);
}

/// Four query heads of 8 in the order that tiling two key heads would have.
fn tiled(all: &mut Tensors) {
    let order = |to: usize| [0, 2, 1, 3][to / 8] * 8 + to % 8;
    rows(all, &["q_proj.weight", "q_proj.bias"], order);
    columns(all, "o_proj.weight", order);
}

fn exchanged(all: &mut Tensors, a: &str, b: &str) {
    let names: Vec<String> = all.keys().filter(|name| name.contains(a)).cloned().collect();
    for name in names {
        let other = name.replace(a, b);
        let (first, second) = (all[&name].clone(), all[&other].clone());
        all.insert(name, second);
        all.insert(other, first);
    }
}

fn transposed(all: &mut Tensors, ends: &[&str]) {
    for (_, (shape, values)) in all.iter_mut().filter(|(n, _)| ends.iter().any(|e| n.ends_with(e)))
    {
        let (rows, columns) = (shape[0], shape[1]);
        if rows == columns {
            *values = (0..columns)
                .flat_map(|c| (0..rows).map(|r| values[r * columns + c]).collect::<Vec<_>>())
                .collect();
        }
    }
}

/// Queries, keys and values of four heads of 8, which stand by head, in thirds.
fn in_thirds(all: &mut Tensors) {
    let order = |to: usize| to % 32 / 8 * 24 + to / 32 * 8 + to % 8;
    rows(all, &["query_key_value.weight", "query_key_value.bias"], order);
}

/// The same the other way.
fn by_head(all: &mut Tensors) {
    let order = |to: usize| to % 24 / 8 * 32 + to / 24 * 8 + to % 8;
    columns(all, "c_attn.weight", order);
    rows(all, &["c_attn.bias"], order);
}

fn gains(all: &mut Tensors, part: &str, by: f32) {
    for (_, (_, values)) in
        all.iter_mut().filter(|(n, _)| n.contains(part) && n.ends_with("weight"))
    {
        values.iter_mut().for_each(|value| *value += by);
    }
}

/// Slopes by one sequence whatever the number of heads.
fn plain_slopes(all: &mut [Parameter]) {
    for one in all.iter_mut().filter(|one| one.name.ends_with("slopes")) {
        let count = one.values.len() as f32;
        one.values = (1..=one.values.len()).map(|i| (-8.0 * i as f32 / count).exp2()).collect();
    }
}

fn reversed_slopes(all: &mut [Parameter]) {
    let slopes = all.iter_mut().filter(|one| one.name.ends_with("slopes"));
    slopes.for_each(|one| one.values.reverse());
}

fn places_later(all: &mut [Parameter]) {
    for one in all.iter_mut().filter(|one| one.name.ends_with("Learned.table")) {
        let width = one.shape[1];
        one.values.rotate_left(width);
    }
}

fn rope(config: &mut Map<String, Value>, key: &str, value: Value) {
    config["rope_parameters"][key] = value;
}

/// Every fault, the model it is put into, and the convention it breaks.
const CASES: &[(&str, &str, Fault)] = &[
    ("rotary layout", "llama", Fault::Tensors(side_by_side)),
    ("rotary layout", "mistral", Fault::Tensors(half_apart)),
    ("rotary layout", "qwen3", Fault::Settings(&["model.attention.position.layout=interleaved"])),
    ("rotary layout", "gptj", Fault::Settings(&["model.attention.position.layout=half_split"])),
    ("rotary direction", "llama", Fault::Tensors(halves_swapped)),
    ("rotary direction", "mistral", Fault::Tensors(halves_swapped)),
    ("rotary base", "llama", Fault::Config(|c| rope(c, "rope_theta", json!(500_000.0)))),
    ("rotary base", "mistral", Fault::Config(|c| rope(c, "rope_theta", json!(77.0)))),
    ("rotary base", "llama_llama3", Fault::Config(|c| rope(c, "rope_theta", json!(2e6)))),
    ("rotary channels", "neox", Fault::Config(|c| rope(c, "partial_rotary_factor", json!(1.0)))),
    ("rotary channels", "phi", Fault::Config(|c| rope(c, "partial_rotary_factor", json!(0.25)))),
    ("rotary scaling", "llama_linear", Fault::Config(|c| rope(c, "rope_type", json!("default")))),
    ("rotary scaling", "llama_linear", Fault::Config(|c| rope(c, "factor", json!(3.0)))),
    (
        "rotary scaling",
        "llama",
        Fault::Config(|c| {
            c["rope_parameters"] = json!({ "rope_type": "yarn", "factor": 4.0, "rope_theta": 10_000.0,
            "original_max_position_embeddings": 16 });
        }),
    ),
    ("head tiling", "llama", Fault::Tensors(tiled)),
    ("head tiling", "qwen2", Fault::Tensors(tiled)),
    (
        "causal alignment",
        "llama",
        Fault::Settings(&["model.attention.pattern={ kind = 'causal', offset = -1 }"]),
    ),
    (
        "causal alignment",
        "gpt2",
        Fault::Settings(&["model.attention.pattern={ kind = 'causal', offset = -1 }"]),
    ),
    ("causal alignment", "bert", Fault::Settings(&["model.attention.pattern=causal"])),
    (
        "causal alignment",
        "roberta",
        Fault::Settings(&["model.attention.pattern={ kind = 'causal', offset = 1 }"]),
    ),
    ("ALiBi slopes", "bloom", Fault::Parameters(plain_slopes)),
    ("ALiBi slopes", "mpt", Fault::Parameters(plain_slopes)),
    ("ALiBi slopes", "mpt", Fault::Parameters(reversed_slopes)),
    ("window", "mistral", Fault::Config(|c| c["sliding_window"] = json!(8))),
    ("window", "mistral", Fault::Config(|c| c["sliding_window"] = json!(6))),
    ("window", "gemma2", Fault::Config(|c| c["sliding_window"] = json!(8))),
    ("window", "qwen2_window", Fault::Config(|c| c["sliding_window"] = json!(6))),
    (
        "window",
        "gemma2",
        Fault::Config(|c| c["layer_types"] = json!(["full_attention", "sliding_attention"])),
    ),
    (
        "window",
        "longformer",
        Fault::Settings(&[
            "model.alternate=[{ pattern = { kind = 'window', left = 5, right = 5 } }, { pattern = { kind = 'window', left = 3, right = 3 } }]",
        ]),
    ),
    ("soft cap", "gemma2", Fault::Config(|c| c["attn_logit_softcapping"] = Value::Null)),
    ("soft cap", "gemma2", Fault::Config(|c| c["final_logit_softcapping"] = Value::Null)),
    ("soft cap", "llama", Fault::Settings(&["model.attention.soft_cap=2"])),
    ("soft cap", "gpt2", Fault::Settings(&["model.output_soft_cap=5"])),
    ("score scale", "llama", Fault::Settings(&["model.attention.score=dot"])),
    (
        "score scale",
        "bert",
        Fault::Settings(&["model.attention.score={ kind = 'dot', scale = 0.125 }"]),
    ),
    ("score scale", "gemma2", Fault::Config(|c| c["query_pre_attn_scalar"] = json!(8))),
    ("score scale", "t5", Fault::Settings(&["model.attention.score=scaled_dot"])),
    ("epsilon", "llama", Fault::Config(|c| c["rms_norm_eps"] = json!(1e-6))),
    ("epsilon", "bert", Fault::Config(|c| c["layer_norm_eps"] = json!(1e-12))),
    ("epsilon", "bloom", Fault::Config(|c| c["layer_norm_epsilon"] = json!(0.1))),
    ("embedding scale", "marian", Fault::Config(|c| c["scale_embedding"] = json!(false))),
    ("embedding scale", "m2m_100", Fault::Config(|c| c["scale_embedding"] = json!(false))),
    ("embedding scale", "gemma", Fault::Settings(&["model.scale_embeddings=false"])),
    ("norm gain", "gemma", Fault::Tensors(|all| gains(all, "norm", -1.0))),
    ("norm gain", "llama", Fault::Tensors(|all| gains(all, "norm", 1.0))),
    ("activation", "gpt2", Fault::Config(|c| c["activation_function"] = json!("gelu"))),
    ("activation", "bert", Fault::Config(|c| c["hidden_act"] = json!("gelu_new"))),
    ("activation", "llama", Fault::Config(|c| c["hidden_act"] = json!("gelu"))),
    ("gate and up", "llama", Fault::Tensors(|all| exchanged(all, "gate_proj", "up_proj"))),
    ("gate and up", "gemma", Fault::Tensors(|all| exchanged(all, "gate_proj", "up_proj"))),
    ("norm", "llama", Fault::Settings(&["model.norm=layer", "model.norm_bias=false"])),
    ("norm", "t5", Fault::Settings(&["model.norm=layer", "model.norm_bias=false"])),
    ("residual", "neox", Fault::Config(|c| c["use_parallel_residual"] = json!(false))),
    ("residual", "neox_sequential", Fault::Config(|c| c["use_parallel_residual"] = json!(true))),
    ("first place", "gpt2", Fault::Parameters(places_later)),
    ("first place", "opt", Fault::Parameters(places_later)),
    (
        "sinusoidal layout",
        "marian",
        Fault::Settings(&[
            "model.attention.position={ kind = 'sinusoidal', layout = 'interleaved' }",
        ]),
    ),
    ("buckets", "t5", Fault::Config(|c| c["relative_attention_max_distance"] = json!(128))),
    ("queries and keys", "bert", Fault::Tensors(|all| exchanged(all, "self.query.", "self.key."))),
    ("queries and keys", "phi", Fault::Tensors(|all| exchanged(all, "q_proj", "k_proj"))),
    ("fused queries, keys and values", "neox", Fault::Tensors(in_thirds)),
    ("fused queries, keys and values", "gpt2", Fault::Tensors(by_head)),
    (
        "stored transposed",
        "bert",
        Fault::Tensors(|all| {
            transposed(
                all,
                &["query.weight", "key.weight", "value.weight", "attention.output.dense.weight"],
            );
        }),
    ),
    (
        "stored transposed",
        "llama",
        Fault::Tensors(|all| transposed(all, &["q_proj.weight", "o_proj.weight"])),
    ),
];

#[test]
fn every_fault_is_named() {
    let mut wrong = Vec::new();
    for (index, (convention, name, fault)) in CASES.iter().enumerate() {
        let found = examined(name, fault);
        eprintln!("{convention}, {name}: {:.1e}, {:?}", found.distance, found.diagnosis);
        if found.agrees || found.diagnosis != [*convention] {
            let nearest: Vec<_> = found.tried.iter().take(3).collect();
            wrong.push(format!(
                "{index} {convention} of {name}: {:?} {nearest:#?}",
                found.diagnosis
            ));
        }
    }
    assert!(wrong.is_empty(), "{} of {}: {}", wrong.len(), CASES.len(), wrong.join("\n"));
}

/// A file with an output of its own, of which the config says that it is the embeddings'.
#[test]
fn an_output_that_should_be_tied_is_named() {
    for name in ["llama_tied_bias", "gpt2"] {
        let good = doctor::open(&fixture(name)).unwrap();
        let mut settings = good.settings().clone();
        settings.tied = false;
        let mut parameters = good.parameters();
        let (width, vocabulary) = (settings.width, settings.vocabulary);
        let values =
            (0..width * vocabulary).map(|i| ((i * 37 % 101) as f32 - 50.0) / 50.0).collect();
        parameters.push(Parameter {
            name: "output.weight".into(),
            shape: vec![width, vocabulary],
            values,
        });
        let model = settings.build_with(parameters, &good.device()).unwrap();
        let samples = Sample::read(&fixture(name).join("golden.safetensors"), None).unwrap();
        let found = doctor::examine(&model, &samples, TOLERANCE, &mut |_, _| {}).unwrap();
        assert_eq!(found.diagnosis, ["tied output"], "{name}");
    }
}

#[test]
fn two_faults_at_once_are_named_together() {
    let fault = Fault::Config(|config| {
        rope(config, "rope_theta", json!(500_000.0));
        config["hidden_act"] = json!("gelu");
    });
    let found = examined("llama", &fault);
    assert_eq!(found.diagnosis.len(), 1, "{:?}", found.diagnosis);
    let words: BTreeSet<&str> = found.diagnosis[0].split(" and ").collect();
    assert_eq!(words, BTreeSet::from(["activation", "rotary base"]));
}

#[test]
fn good_models_agree_with_their_logits_and_with_themselves() {
    let mut names = Vec::new();
    for entry in fs::read_dir(fixture("")).unwrap() {
        let path = entry.unwrap().path();
        let golden = path.join("golden.safetensors");
        if !golden.is_file() || path.ends_with("minilm") {
            continue;
        }
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let model = doctor::open(&path).unwrap();
        let samples = Sample::read(&golden, None).unwrap();
        let found = doctor::examine(&model, &samples, TOLERANCE, &mut |_, _| {}).unwrap();
        assert!(found.agrees && found.diagnosis.is_empty(), "{name}: {}", found.distance);
        let checks = doctor::examine_itself(&model, None, TOLERANCE).unwrap();
        for check in &checks {
            assert!(check.agrees, "{name}: {check:?}");
        }
        assert!(checks.iter().any(|check| check.distance.is_some()), "{name}");
        names.push(name);
    }
    assert!(names.len() > 30, "{names:?}");
}

#[test]
fn angles_that_follow_the_length_are_no_fault_and_are_said() {
    for name in ["llama_dynamic", "llama_longrope", "phi3_longrope"] {
        let model = doctor::open(&fixture(name)).unwrap();
        let ids: Vec<u32> = (0..60).map(|i| (i * 29 + 5) % 60).collect();
        let checks = doctor::examine_itself(&model, Some(&ids), TOLERANCE).unwrap();
        let cached = checks.iter().find(|check| check.name == "cached").unwrap();
        assert!(cached.agrees, "{name}: {cached:?}");
        assert!(cached.reason.contains("its angles follow the length"), "{name}: {cached:?}");
    }
}

#[test]
fn references_that_do_not_belong_to_the_model_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("logits.json");
    let model = doctor::open(&fixture("llama")).unwrap();
    let row = vec![0.0; 67];
    for (line, said) in [
        (json!({ "ids": [1, 99], "logits": [row, row] }), "id 99 is outside the vocabulary"),
        (json!({ "ids": [1], "logits": [row, row] }), "found 134 logits for 1 ids"),
        (json!({ "ids": [], "logits": [] }), "found 0 logits for 0 ids"),
    ] {
        fs::write(&path, line.to_string()).unwrap();
        let samples = Sample::read(&path, None).unwrap();
        let error = doctor::examine(&model, &samples, TOLERANCE, &mut |_, _| {}).unwrap_err();
        assert!(error.to_string().contains(said), "{error}");
    }
    for (text, said) in [
        ("{\"logits\": [[0.5]]}", "name the file with their lines"),
        ("{}", "expected safetensors, or lines of"),
        ("\u{8}\0\0\0\0\0\0\0{}      ", "logits"),
    ] {
        fs::write(&path, text).unwrap();
        let error = Sample::read(&path, None).unwrap_err();
        assert!(error.to_string().contains(said), "{error}");
    }
    let batch = json!({ "input_ids": [[1, 2], [3, 4]], "logits": [[row, row], [row, row]] });
    let pair = json!({ "input_ids": [[1, 2]], "decoder_input_ids": [[3]], "logits": [[row]] });
    for (text, count, source) in [
        (batch.to_string(), 2, None),
        (
            json!([{ "ids": [1], "logits": [row] }, { "ids": [2], "logits": [row] }]).to_string(),
            2,
            None,
        ),
        (format!("{pair:#}"), 1, Some(vec![1, 2])),
        (json!({ "ids": [3], "source": [1, 2], "logits": [row] }).to_string(), 1, Some(vec![1, 2])),
    ] {
        fs::write(&path, text).unwrap();
        let samples = Sample::read(&path, None).unwrap();
        assert_eq!((samples.len(), &samples[0].source), (count, &source));
        assert!(samples.iter().all(|sample| sample.logits.len() == 67 * sample.ids.len()));
    }
    let ids = folder.path().join("ids.txt");
    fs::write(&path, json!({ "logits": [row, row] }).to_string()).unwrap();
    fs::write(&ids, "1 2\n").unwrap();
    let samples = Sample::read(&path, Some(&ids)).unwrap();
    assert_eq!((samples[0].ids.as_slice(), samples[0].logits.len()), (&[1u32, 2][..], 134));
}
