//! GGUF files that we write: every family that llama.cpp knows goes out in every kind and comes back with its logits.

use std::{collections::BTreeSet, fs, path::Path};

use whatwhere_data::{Special, Tokenizer};
use whatwhere_interop::{Weights, import, to_gguf};
use whatwhere_training::{
    Folder, Run,
    imported::{Imported, SpecialIds},
};
use whatwhere_transformer::{ModelSettings, Sequences};

use crate::common::{distance, folders};

/// What GGUF cannot say of a fixture, by the words of the refusal.
const CANNOT: &[(&str, &str)] = &[
    ("llama_longrope", "llama.cpp computes it for phi3"),
    ("bert", "llama.cpp's bert has no such tensor"),
    ("bert_hub", "llama.cpp's bert has no such tensor"),
    ("gemma2", "cannot say attention.score"),
    ("gemma3", "cannot say attention.score"),
    ("llama_dynamic", "position.scaling = dynamic_ntk"),
    ("llama_yarn", "cannot say attention.position"),
    ("mistral", "llama.cpp reads llama without windows"),
    ("neox_sequential", "cannot say activation = gelu_tanh"),
    ("phi3", "llama.cpp reads phi3 without windows"),
    ("phi_qk_norm", "llama.cpp's phi2 has no such tensor"),
    ("qwen2_window", "llama.cpp reads qwen2 without windows"),
    ("stablelm_parallel", "llama.cpp's stablelm has no such tensor"),
];

/// Families that llama.cpp does not have, or not in this way.
const UNKNOWN: &str = "is no architecture that is written as GGUF";

/// Rounding of matrices, of the largest state; these models are tiny, and their weights large. Lists of divisors are rounded in
/// every kind.
fn tolerance(name: &str, weights: Weights) -> f32 {
    match weights {
        Weights::F32 if name.contains("longrope") => 1e-6,
        Weights::F32 => 0.0,
        Weights::F16 => 2e-3,
        Weights::Q8_0 => 0.15,
    }
}

fn states(run: &Run, ids: &[Vec<u32>]) -> Vec<f32> {
    let hidden = run.model().hidden(None, &Sequences::from_rows(ids), Default::default());
    hidden.unwrap().into_data().try_into_vec().unwrap()
}

fn opened(path: &Path, out: &Path) -> Result<Run, String> {
    import(path, out, &mut |_, _| {}).map_err(|e| e.to_string())?;
    Run::open(out).map_err(|e| e.to_string())
}

#[test]
fn every_family_of_llama_cpp_goes_out_in_every_kind_and_comes_back() {
    let (mut wrong, mut met) = (Vec::new(), BTreeSet::new());
    let files = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/gguf");
    let files = fs::read_dir(files).unwrap().map(|entry| entry.unwrap().path());
    let files = files.filter(|path| path.extension().is_some_and(|end| end == "gguf"));
    let own = |path: &Path| path.parent().unwrap().ends_with("fixtures/families");
    for path in folders().into_iter().filter(|path| own(path)).chain(files) {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let out = tempfile::tempdir().unwrap();
        let Ok(run) = opened(&path, &out.path().join("run")) else { continue };
        let ids = [(0..40).map(|i| i * 7 % 61).collect::<Vec<u32>>()];
        for weights in [Weights::F32, Weights::F16, Weights::Q8_0] {
            let path = out.path().join(format!("{weights:?}.gguf"));
            let exported = match to_gguf(&out.path().join("run"), &path, weights) {
                Ok(exported) => exported,
                Err(error) => {
                    assert!(!path.exists(), "{name}");
                    let (message, words) =
                        (error.to_string(), CANNOT.iter().find(|(of, _)| *of == name));
                    if !message.contains(words.map_or(UNKNOWN, |(_, words)| *words)) {
                        wrong.push(format!("{name}: {message}"));
                    }
                    break;
                }
            };
            let again = match opened(&path, &out.path().join(format!("{weights:?}"))) {
                Ok(again) => again,
                Err(message) => {
                    wrong.push(format!("{name} {weights:?}: {message}"));
                    continue;
                }
            };
            let far = distance(&states(&again, &ids), &states(&run, &ids));
            if far > tolerance(&name, weights) {
                wrong.push(format!("{name} {weights:?}: states differ by {far:e} of the largest"));
            }
            if weights == Weights::Q8_0 && far == 0.0 && !name.contains("q8_0") {
                wrong.push(format!("{name} {weights:?}: nothing was rounded"));
            }
            met.insert(exported.family);
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    let known = [
        "bert", "bloom", "gemma", "gemma2", "gemma3", "gpt2", "gptneox", "llama", "mpt", "olmo",
        "olmo2", "phi2", "phi3", "qwen2", "qwen3", "stablelm",
    ];
    let met: Vec<&str> = met.iter().map(String::as_str).collect();
    assert_eq!(met, known);
}

/// llama.cpp's own output of these takes nothing from the embeddings: it is written as a copy of them.
#[test]
fn tied_models_go_out_with_a_copy_where_llama_cpp_has_an_output_of_its_own() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/families");
    for name in ["olmo2", "stablelm", "phi"] {
        let out = tempfile::tempdir().unwrap();
        let at = |name: &str| out.path().join(name);
        let run = opened(&root.join(name), &at("run")).unwrap();
        let settings = ModelSettings { tied: true, ..run.settings.model.clone() };
        let mut parameters = run.model().parameters();
        parameters.retain(|parameter| parameter.name != "output.weight");
        let imported = Imported::default();
        imported.save(&Folder::new(at("tied")), settings, &parameters, None).unwrap();
        to_gguf(&at("tied"), &at("out.gguf"), Weights::F32).unwrap();
        let again = opened(&at("out.gguf"), &at("again")).unwrap();
        assert!(!again.settings.model.tied, "{name}");
        let ids = [(0..20).map(|i| i * 7 % 61).collect::<Vec<u32>>()];
        let tied = Run::open(at("tied")).unwrap();
        let (want, found) = (tied.logits(None, &ids).unwrap(), again.logits(None, &ids).unwrap());
        // The same products, summed over the table's other order.
        let far = distance(&found.0, &want.0);
        assert!(found.1 == want.1 && far < 1e-6, "{name}: logits differ by {far:e} of the largest");
    }
}

/// The tokenizers of the repository's GGUF files, and what they cut.
#[test]
fn tokenizers_go_out_and_come_back() {
    let files = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/gguf");
    for name in ["llama_f32.gguf", "minilm_f16.gguf", "qwen3_f16.gguf"] {
        let out = tempfile::tempdir().unwrap();
        let at = |name: &str| out.path().join(name);
        let run = opened(&files.join(name), &at("run")).unwrap();
        to_gguf(&at("run"), &at("out.gguf"), Weights::F32).unwrap();
        let again = opened(&at("out.gguf"), &at("again")).unwrap();
        for text in ["the and in12 the", "an\nerror!"] {
            let (a, b) = (run.encode(text), again.encode(text));
            assert_eq!(a.unwrap(), b.unwrap(), "{name}: {text}");
        }
        let (a, b) = (run.imported.unwrap(), again.imported.unwrap());
        assert_eq!((a.chat_template, a.specials), (b.chat_template, b.specials), "{name}");
        let tokens = |name: &str| fs::read_to_string(at(name).join("tokenizer.json")).unwrap();
        let json = |name: &str| serde_json::from_str::<serde_json::Value>(&tokens(name)).unwrap();
        assert_eq!(json("run"), json("again"), "{name}");
    }
}

/// Tokenizers of our own: those that GGUF can say cut texts as before, the others are refused.
#[test]
fn our_tokenizers_go_out_or_are_refused() {
    let text = "the dog and the cat, and the bird\nand the dog";
    let specials = [Special::End, Special::Unknown];
    let characters = text.chars().collect();
    let words: Vec<String> = text.split_whitespace().map(String::from).collect();
    let words: Vec<String> = BTreeSet::from_iter(words).into_iter().collect();
    for (name, tokenizer, goes) in [
        ("bytes", Tokenizer::of_bytes(&specials[..1]).unwrap(), true),
        ("characters", Tokenizer::of_characters(&characters, &specials).unwrap(), true),
        ("characters alone", Tokenizer::of_characters(&characters, &[]).unwrap(), true),
        ("bpe", Tokenizer::train([text].into_iter(), 270, &specials[..1]).unwrap(), true),
        ("words", Tokenizer::of_words(&words, &specials).unwrap(), false),
        ("kmers", Tokenizer::of_kmers(2, &BTreeSet::new(), &specials).unwrap(), false),
    ] {
        let out = tempfile::tempdir().unwrap();
        let at = |name: &str| out.path().join(name);
        let size = tokenizer.vocabulary();
        let settings = format!(
            "vocabulary = {size}\nwidth = 16\nlayers = 1\nactivation = 'swiglu'\nattention = {{ heads = 2 }}"
        );
        let settings = ModelSettings::from_toml(&settings).unwrap();
        let json = tokenizer.to_json().unwrap();
        let specials =
            SpecialIds { ends: tokenizer.end().into_iter().collect(), ..SpecialIds::default() };
        let imported = Imported { specials, ..Imported::default() };
        let model = settings.build(1, &Default::default()).unwrap().parameters();
        imported.save(&Folder::new(at("run")), settings, &model, Some(&json)).unwrap();
        let exported = to_gguf(&at("run"), &at("out.gguf"), Weights::F32);
        if !goes {
            let message = exported.unwrap_err().to_string();
            assert!(message.contains("WordLevel has no name in GGUF"), "{name}: {message}");
            continue;
        }
        exported.unwrap_or_else(|e| panic!("{name}: {e}"));
        let run = Run::open(at("run")).unwrap();
        let again = opened(&at("out.gguf"), &at("again")).unwrap();
        let ids = again.tokenizer().unwrap().encode(text).unwrap();
        assert_eq!(ids, run.tokenizer().unwrap().encode(text).unwrap(), "{name}");
        assert_eq!(again.tokenizer().unwrap().decode(&ids), text, "{name}");
        assert_eq!(again.tokenizer().unwrap().end(), tokenizer.end(), "{name}");
        assert_eq!(again.encode(text).unwrap(), ids, "{name}: nothing stands around a text");
    }
}
