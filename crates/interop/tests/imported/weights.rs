//! Trained models from elsewhere, where they are at hand: stories260K and gpt-nano-sort in `../shared/data`, SmolLM2 and
//! MiniLM in `../models`.

use std::{
    collections::BTreeMap,
    env, fs,
    io::Write,
    ops::ControlFlow,
    path::{Path, PathBuf},
};

use crate::{common::Golden, writer::gguf};
use safetensors::{Dtype, tensor::TensorView};
use serde_json::{Value, json};
use whatwhere_interop::import;
use whatwhere_training::{Generation, Pooling, Run, Sampling};
use whatwhere_transformer::Sequences;

/// A folder or file beside the repository; says so where there is none.
fn beside(variable: &str, folder: &str, path: &str) -> Option<PathBuf> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let found = env::var_os(variable).map_or(root.join(folder), PathBuf::from).join(path);
    if found.exists() {
        return Some(found);
    }
    let _ = writeln!(std::io::stderr(), "SKIPPED: no {path} in ../{folder} or ${variable}");
    None
}

fn imported(path: &Path) -> (tempfile::TempDir, Run) {
    let out = tempfile::tempdir().unwrap();
    let folder = out.path().join("run");
    import(path, &folder, &mut |_, _| {}).unwrap();
    let run = Run::open(&folder).unwrap();
    (out, run)
}

fn greedy(run: &Run, prompt: &str, limit: usize) -> String {
    let generation = Generation { sampling: Sampling::greedy(), limit, stop: vec![] };
    run.generate(prompt, &generation, |_| ControlFlow::Continue(())).unwrap()
}

#[test]
fn stories260k_tells_the_published_story() {
    let Some(folder) = beside("WHATWHERE_SHARED", "shared", "data/weights_stories260K") else {
        return;
    };
    let file = fs::read(folder.join("stories260K.bin")).unwrap();
    let word = |at: usize| [file[at], file[at + 1], file[at + 2], file[at + 3]];
    let head: Vec<usize> = (0..7).map(|i| i32::from_le_bytes(word(4 * i)) as usize).collect();
    let [width, inner, layers, heads, kv_heads, vocabulary, length] = head[..] else { panic!() };
    let mut at = 28;
    let mut take = |shape: &[usize]| {
        let count: usize = shape.iter().product();
        let bytes = file[at..at + 4 * count].to_vec();
        at += 4 * count;
        bytes
    };
    let kv = width / heads * kv_heads;
    let mut tensors =
        vec![("token_embd.weight".to_owned(), vec![vocabulary, width], take(&[vocabulary, width]))];
    for (name, shape) in [
        ("attn_norm", vec![width]),
        ("attn_q", vec![width, width]),
        ("attn_k", vec![kv, width]),
        ("attn_v", vec![kv, width]),
        ("attn_output", vec![width, width]),
        ("ffn_norm", vec![width]),
        ("ffn_gate", vec![inner, width]),
        ("ffn_down", vec![width, inner]),
        ("ffn_up", vec![inner, width]),
    ] {
        for layer in 0..layers {
            tensors.push((format!("blk.{layer}.{name}.weight"), shape.clone(), take(&shape)));
        }
    }
    tensors.push(("output_norm.weight".into(), vec![width], take(&[width])));
    let (tokens, scores, types) = pieces(&fs::read(folder.join("tok512.bin")).unwrap(), vocabulary);
    let values = json!({
        "general.architecture": "llama", "llama.context_length": length, "llama.embedding_length": width,
        "llama.block_count": layers, "llama.feed_forward_length": inner, "llama.attention.head_count": heads,
        "llama.attention.head_count_kv": kv_heads, "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.scores": scores,
        "tokenizer.ggml.token_type": types, "tokenizer.ggml.bos_token_id": 1, "tokenizer.ggml.eos_token_id": 2,
    });
    let out = tempfile::tempdir().unwrap();
    let path = out.path().join("stories.gguf");
    fs::write(&path, gguf(&values, &tensors)).unwrap();
    let (_folder, run) = imported(&path);
    let reference = fs::read_to_string(folder.join("reference_greedy.txt")).unwrap();
    let (ids, text) = reference.split_once("text:\n").unwrap();
    let ids: Vec<u32> = ids
        .split("ids:")
        .nth(1)
        .unwrap()
        .split_whitespace()
        .map(|id| id.parse().unwrap())
        .collect();
    assert_eq!(run.tokenizer().unwrap().decode(&ids).trim(), text.trim());
    let story = greedy(&run, "", ids.len() - 1);
    assert_eq!(story.trim(), text.trim());
    // What the story was made of, its own tokenizer cuts it into again.
    let again = run.encode("Once upon a time, there was a little girl named Lily.").unwrap();
    assert_eq!(again[..], ids[..again.len()]);
}

/// llama2.c's file of tokens: names, scores, types.
fn pieces(file: &[u8], count: usize) -> (Vec<String>, Vec<f64>, Vec<i32>) {
    let (mut tokens, mut scores, mut types, mut at) = (vec![], vec![], vec![], 4);
    for id in 0..count {
        let word = |at: usize| [file[at], file[at + 1], file[at + 2], file[at + 3]];
        scores.push(f64::from(f32::from_le_bytes(word(at))));
        let length = i32::from_le_bytes(word(at + 4)) as usize;
        let text = String::from_utf8_lossy(&file[at + 8..at + 8 + length]).into_owned();
        at += 8 + length;
        tokens.push(match id {
            0 => "<unk>".into(),
            1 => "<s>".into(),
            2 => "</s>".into(),
            _ => text.replace(' ', "▁"),
        });
        types.push(match id {
            0 => 2,
            1 | 2 => 3,
            3..259 => 6,
            _ => 1,
        });
    }
    (tokens, scores, types)
}

#[test]
fn gpt_nano_sorts_as_it_was_trained_to() {
    let Some(folder) = beside("WHATWHERE_SHARED", "shared", "data/weights_gpt_nano_sort") else {
        return;
    };
    let read = |name: &str| -> Value {
        serde_json::from_slice(&fs::read(folder.join(name)).unwrap()).unwrap()
    };
    let model = read("gpt-nano-sort-model.json");
    let mut tensors: BTreeMap<String, (Vec<usize>, Vec<u8>)> = BTreeMap::new();
    for (name, tensor) in model.as_object().unwrap() {
        if name == "config" || name.ends_with(".attn.bias") {
            continue;
        }
        let (mut shape, mut data) = array(tensor);
        // minGPT's layers are stored `[to, from]`, GPT-2's `[from, to]`.
        if shape.len() == 2 && name.contains(".c_") {
            let (rows, columns) = (shape[0], shape[1]);
            let at = |row: usize, column: usize| 4 * (row * columns + column);
            data = (0..columns)
                .flat_map(|column| (0..rows).map(move |row| (row, column)))
                .flat_map(|(row, column)| data[at(row, column)..][..4].to_vec())
                .collect();
            shape.reverse();
        }
        tensors.insert(name.clone(), (shape, data));
    }
    let views = tensors.iter().map(|(name, (shape, data))| {
        (name.clone(), TensorView::new(Dtype::F32, shape.clone(), data).unwrap())
    });
    let out = tempfile::tempdir().unwrap();
    let config = json!({
        "model_type": "gpt2", "n_embd": 48, "n_head": 3, "n_layer": 3, "n_positions": 11, "vocab_size": 3,
        "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5, "tie_word_embeddings": false,
    });
    fs::write(out.path().join("config.json"), config.to_string()).unwrap();
    let bytes = safetensors::serialize(views, None).unwrap();
    fs::write(out.path().join("model.safetensors"), bytes).unwrap();
    let (_folder, run) = imported(out.path());
    let partials = read("gpt-nano-sort-t0-partials.json");
    let floats = |name: &str| -> Vec<f32> {
        let (_, bytes) = array(&partials[name]);
        bytes.chunks(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
    };
    let ids: Vec<u32> = floats("idx").iter().map(|id| *id as u32).collect();
    let rows: Vec<Vec<u32>> = ids.chunks(11).map(<[u32]>::to_vec).collect();
    let (logits, _) = run.logits(None, &rows).unwrap();
    for (found, want) in logits.iter().zip(floats("lm_head")) {
        assert!((found - want).abs() < 1e-4, "{found}, expected {want}");
    }
    // What each layer gives is read by the norm of the next one, and after the last by the last norm.
    let (inputs, last) = run.model().look(None, &Sequences::from_rows(&rows), 0).unwrap();
    let read = |layer: usize| inputs[layer].input.x.clone().into_data().try_into_vec().unwrap();
    let last: Vec<f32> = last.into_data().try_into_vec().unwrap();
    let weights = |name: &str| -> Vec<f32> {
        let bytes = &tensors[&format!("transformer.{name}")].1;
        bytes.chunks(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
    };
    let normed = |stream: &str, norm: &str| -> Vec<f32> {
        let (gain, bias) = (weights(&format!("{norm}.weight")), weights(&format!("{norm}.bias")));
        let row = |row: &[f32]| -> Vec<f32> {
            let mean = row.iter().sum::<f32>() / 48.0;
            let variance = row.iter().map(|x| (x - mean).powi(2)).sum::<f32>() / 48.0;
            let unit = row.iter().map(|x| (x - mean) / (variance + 1e-5).sqrt());
            unit.zip(&gain).zip(&bias).map(|((x, gain), bias)| x * gain + bias).collect()
        };
        floats(stream).chunks(48).flat_map(row).collect()
    };
    for (name, found, want) in [
        ("x", read(0), floats("ln1")),
        ("block0", read(1), normed("block0", "h.1.ln_1")),
        ("block1", read(2), normed("block1", "h.2.ln_1")),
        ("block2", last.clone(), normed("block2", "ln_f")),
        ("ln_f", last, floats("ln_f")),
    ] {
        assert_eq!(found.len(), want.len(), "{name}");
        let far = found.iter().zip(&want).fold(0f32, |far, (a, b)| far.max((a - b).abs()));
        assert!(far < 1e-4, "{name} differs by {far:e}");
    }
    let message = greedy_refusal(&run);
    assert!(message.contains("no tokenizer"), "{message}");
}

fn greedy_refusal(run: &Run) -> String {
    let generation = Generation::default();
    run.generate("1", &generation, |_| ControlFlow::Continue(())).unwrap_err().to_string()
}

/// Shape and bytes of a tensor in JSON.
fn array(tensor: &Value) -> (Vec<usize>, Vec<u8>) {
    let shape = tensor["shape"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap() as usize);
    (shape.collect(), base64(tensor["data"].as_str().unwrap()))
}

fn base64(text: &str) -> Vec<u8> {
    let digit = |byte: u8| match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let digits: Vec<u32> =
        text.bytes().filter(|b| *b != b'=').map(|b| u32::from(digit(b))).collect();
    let mut bytes = Vec::new();
    for four in digits.chunks(4) {
        let bits = four.iter().fold(0, |bits, digit| bits << 6 | digit) << (6 * (4 - four.len()));
        bytes.extend_from_slice(&bits.to_be_bytes()[1..four.len()]);
    }
    bytes
}

/// "The capital of France is" by the ids of transformers, from the folder and from the file in four bits.
#[test]
fn smollm2_goes_on_as_transformers_does() {
    for path in ["smollm2", "gguf/SmolLM2-135M-Instruct.Q4_1.gguf"] {
        let Some(path) = beside("WHATWHERE_MODELS", "models", path) else { return };
        let (_folder, run) = imported(&path);
        let prompt = run.encode("The capital of France is").unwrap();
        let mut ids = prompt.clone();
        for _ in 0..8 {
            let (logits, [_, length, vocabulary]) = run.logits(None, &[ids.clone()]).unwrap();
            let last = &logits[(length - 1) * vocabulary..];
            ids.push((0..vocabulary).max_by(|a, b| last[*a].total_cmp(&last[*b])).unwrap() as u32);
        }
        assert_eq!(
            ids[prompt.len()..],
            [7042, 30, 198, 198, 504, 2988, 314, 42],
            "{}",
            path.display()
        );
        if let Some(golden) = beside("WHATWHERE_MODELS", "models", "smollm2/golden.safetensors") {
            let golden = Golden::read(&golden);
            assert_eq!(golden.ids("input_ids"), [prompt]);
            let (found, _) = run.logits(None, &golden.ids("input_ids")).unwrap();
            let (want, _) = golden.floats("logits");
            let far = found.iter().zip(&want).fold(0f32, |far, (a, b)| far.max((a - b).abs()));
            let largest = want.iter().fold(0f32, |largest, value| largest.max(value.abs()));
            assert!(far < 1e-4 * largest, "{}: {far} of {largest}", path.display());
        }
        assert_eq!(run.imported.as_ref().unwrap().specials.ends, [2]);
        let template = run.imported.as_ref().unwrap().chat_template.as_ref().unwrap();
        assert!(template.contains("<|im_start|>"), "{template}");
    }
}

#[test]
fn minilm_finds_the_same_sentences_alike() {
    let Some(path) = beside("WHATWHERE_MODELS", "models", "minilm") else { return };
    let (_folder, run) = imported(&path);
    let golden: Value =
        serde_json::from_slice(&fs::read(path.join("golden.json")).unwrap()).unwrap();
    for pair in golden["pairs"].as_array().unwrap() {
        let embed = |side: &str| {
            let text = pair[side].as_str().unwrap();
            let ids: Vec<u32> =
                serde_json::from_value(pair[format!("{side}_ids")].clone()).unwrap();
            assert_eq!(run.encode(text).unwrap(), ids, "{text}");
            run.embed(text, Pooling::Mean, true).unwrap()
        };
        let cosine: f32 = embed("a").iter().zip(embed("b")).map(|(a, b)| a * b).sum();
        let want = pair["cosine"].as_f64().unwrap() as f32;
        assert!((cosine - want).abs() < 1e-4, "{pair}: found {cosine}");
    }
}
