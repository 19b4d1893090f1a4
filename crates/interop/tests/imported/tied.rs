//! Tensors that files hold once, twice or under another's name: what transformers makes of them is made here.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use serde_json::{Value, json};
use whatwhere_interop::import;
use whatwhere_training::Run;
use whatwhere_transformer::Family;

use crate::common::{Golden, distance};

type Weights = BTreeMap<String, (Vec<usize>, Vec<u8>)>;

fn family(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/families").join(name)
}

/// A copy of a fixture with other tensors and with other values in its config.
fn changed(name: &str, out: &Path, more: &Value, change: impl Fn(&mut Weights)) -> PathBuf {
    let folder = out.join("model");
    fs::create_dir_all(&folder).unwrap();
    let mut config: Value =
        serde_json::from_slice(&fs::read(family(name).join("config.json")).unwrap()).unwrap();
    config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    fs::write(folder.join("config.json"), config.to_string()).unwrap();
    let bytes = fs::read(family(name).join("model.safetensors")).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let mut weights: Weights = file
        .iter()
        .map(|(name, view)| (name.into(), (view.shape().to_vec(), view.data().to_vec())))
        .collect();
    change(&mut weights);
    let views = weights.iter().map(|(name, (shape, data))| {
        (name.clone(), TensorView::new(Dtype::F32, shape.clone(), data).unwrap())
    });
    fs::write(folder.join("model.safetensors"), safetensors::serialize(views, None).unwrap())
        .unwrap();
    folder
}

/// Imports the copy and answers what the fixture was asked.
fn logits(
    name: &str,
    more: &Value,
    change: impl Fn(&mut Weights),
) -> Result<(Vec<f32>, Run), String> {
    let out = tempfile::tempdir().unwrap();
    let folder = changed(name, out.path(), more, change);
    import(&folder, &out.path().join("run"), &mut |_, _| {}).map_err(|e| e.to_string())?;
    let run = Run::open(out.path().join("run")).unwrap();
    let golden = Golden::read(&family(name).join("golden.safetensors"));
    let ids = golden.ids("input_ids");
    let (sources, ids) = match run.model().family() {
        Family::EncoderDecoder => (Some(ids), golden.ids("decoder_input_ids")),
        _ => (None, ids),
    };
    let (logits, _) = run.logits(sources.as_deref(), &ids).unwrap();
    Ok((logits, run))
}

fn truth(name: &str) -> Vec<f32> {
    Golden::read(&family(name).join("golden.safetensors")).floats("logits").0
}

/// The values of another table of the same sizes.
fn turned(bytes: &[u8]) -> Vec<u8> {
    let value = |b: &[u8]| -1.5 * f32::from_le_bytes([b[0], b[1], b[2], b[3]]);
    bytes.chunks_exact(4).flat_map(|b| value(b).to_le_bytes()).collect()
}

const EMBEDDINGS: [(&str, &str, &[&str]); 5] = [
    ("gpt2", "transformer.wte.weight", &["lm_head.weight"]),
    ("llama_tied_bias", "model.embed_tokens.weight", &["lm_head.weight"]),
    ("bert", "bert.embeddings.word_embeddings.weight", &["cls.predictions.decoder.weight"]),
    ("t5", "shared.weight", &["lm_head.weight", "encoder.embed_tokens.weight"]),
    (
        "bart",
        "model.shared.weight",
        &[
            "lm_head.weight",
            "model.encoder.embed_tokens.weight",
            "model.decoder.embed_tokens.weight",
        ],
    ),
];

#[test]
fn a_table_is_found_under_each_of_its_names() {
    for (name, own, others) in EMBEDDINGS {
        for other in others {
            for also in [true, false] {
                let (found, run) = logits(name, &json!({}), |weights| {
                    let table = weights[own].clone();
                    weights.insert((*other).into(), table);
                    if !also {
                        weights.remove(own);
                    }
                })
                .unwrap_or_else(|e| panic!("{name}, {other}: {e}"));
                let far = distance(&found, &truth(name));
                assert!(far <= 1e-4, "{name}, {other}, {also}: {far:e}");
                assert!(run.settings.model.tied);
            }
        }
    }
    // A bias as well.
    let (found, _) = logits("bert", &json!({}), |weights| {
        let bias = weights.remove("cls.predictions.bias").unwrap();
        weights.insert("cls.predictions.decoder.bias".into(), bias);
    })
    .unwrap();
    assert!(distance(&found, &truth("bert")) <= 1e-4);
}

/// As `T5ForConditionalGeneration` of transformers 5 writes T5 1.1: it says that all tables are one, and they are two.
#[test]
fn an_output_with_values_of_its_own_is_not_tied() {
    for (name, own, others) in EMBEDDINGS {
        let two = |weights: &mut Weights| {
            let (shape, data) = weights[own].clone();
            weights.insert(others[0].into(), (shape, turned(&data)));
        };
        let (found, run) = logits(name, &json!({}), two).unwrap();
        assert!(!run.settings.model.tied, "{name}");
        let said = match name {
            "t5" => json!({ "tie_word_embeddings": false, "scale_decoder_outputs": true }),
            _ => json!({ "tie_word_embeddings": false }),
        };
        let (want, _) = logits(name, &said, two).unwrap();
        assert!(found == want, "{name}");
        assert!(distance(&found, &truth(name)) > 0.1, "{name}");
    }
}

/// Where nothing is tied, the bias of the output is the one beside its weights.
#[test]
fn untied_outputs_have_a_bias_of_their_own() {
    let said = json!({ "tie_word_embeddings": false });
    let two = |weights: &mut Weights| {
        let table = weights["bert.embeddings.word_embeddings.weight"].clone();
        weights.insert("cls.predictions.decoder.weight".into(), table);
        let (shape, data) = weights["cls.predictions.bias"].clone();
        weights.insert("cls.predictions.decoder.bias".into(), (shape, turned(&data)));
    };
    let (found, _) = logits("bert", &said, two).unwrap();
    let (want, _) = logits("bert", &said, |weights| {
        two(weights);
        let bias = weights.remove("cls.predictions.decoder.bias").unwrap();
        weights.insert("cls.predictions.bias".into(), bias);
    })
    .unwrap();
    assert!(found == want, "another bias");
    assert!(distance(&found, &truth("bert")) > 1e-2);
}

/// What stands beside T5's form of the feed-forward wins; mT5 never divides states; Gemma 3 has no cap of scores.
#[test]
fn keys_that_transformers_reads_otherwise_are_read_so() {
    let of = |name: &str, more: Value| {
        let found = logits(name, &more, |_| {});
        found.map(|(logits, run)| (logits, run.settings.to_toml().unwrap()))
    };
    let (_, silu) = of("t5", json!({ "dense_act_fn": "silu" })).unwrap();
    assert!(silu.contains("activation = \"silu\""), "{silu}");
    let (_, gated) = of("t5_v1_1", json!({ "dense_act_fn": "relu" })).unwrap();
    assert!(gated.contains("activation = \"relu\"") && gated.contains("gated = true"), "{gated}");
    let plain = json!({ "scale_decoder_outputs": false });
    let mt5 = json!({ "model_type": "mt5" });
    assert!(of("t5", plain).unwrap().0 == of("t5", mt5).unwrap().0, "mT5 divides");
    let capped = of("gemma3", json!({ "attn_logit_softcapping": 2.0 })).unwrap();
    assert!(distance(&capped.0, &truth("gemma3")) <= 1e-4);
    let slow = json!({ "slow_but_exact": true, "pretraining_tp": 2 });
    let said = of("bloom", slow).unwrap_err();
    assert!(said.contains("slow_but_exact = true, expected false"), "{said}");
}

#[test]
fn copies_with_values_of_their_own_are_refused() {
    for (name, own, other) in [
        ("t5", "shared.weight", "decoder.embed_tokens.weight"),
        ("bart", "model.shared.weight", "model.encoder.embed_tokens.weight"),
        ("bert", "cls.predictions.bias", "cls.predictions.decoder.bias"),
    ] {
        let message = logits(name, &json!({}), |weights| {
            let (shape, data) = weights[own].clone();
            weights.insert(other.into(), (shape, turned(&data)));
        })
        .err()
        .unwrap();
        let said = format!("tensor {other}: found values of its own, expected those of {own}");
        assert!(message.contains(&said), "{message}");
    }
}

/// GPT-2's scores divided by the number of the layer, or by nothing, are those of queries that were divided before.
#[test]
fn scores_are_scaled_as_queries_would_be() {
    let scaled = |of: &dyn Fn(usize) -> f32| {
        let found = logits("gpt2", &json!({}), |weights| {
            for layer in 0..2 {
                for end in ["weight", "bias"] {
                    let name = format!("transformer.h.{layer}.attn.c_attn.{end}");
                    let (_, data) = weights.get_mut(&name).unwrap();
                    // Queries, keys and values of 32 channels side by side.
                    for row in data.chunks_mut(4 * 96) {
                        for value in row[..4 * 32].chunks_mut(4) {
                            let query =
                                f32::from_le_bytes([value[0], value[1], value[2], value[3]]);
                            value.copy_from_slice(&(query * of(layer)).to_le_bytes());
                        }
                    }
                }
            }
        });
        found.unwrap().0
    };
    // Heads have 8 channels.
    let root = 8f32.sqrt();
    for (said, want) in [
        (
            json!({ "scale_attn_by_inverse_layer_idx": true }),
            scaled(&|layer| 1.0 / (layer + 1) as f32),
        ),
        (json!({ "scale_attn_weights": false }), scaled(&|_| root)),
        (
            json!({ "scale_attn_weights": false, "scale_attn_by_inverse_layer_idx": true }),
            scaled(&|layer| root / (layer + 1) as f32),
        ),
    ] {
        let (found, _) = logits("gpt2", &said, |_| {}).unwrap();
        let far = distance(&found, &want);
        assert!(far <= 1e-4, "{said}: {far:e}");
        assert!(distance(&found, &truth("gpt2")) > 1e-2, "{said}");
    }
}

/// Where a config does not say them, values are those of the family and not of another.
#[test]
fn defaults_are_those_of_the_family() {
    let without = |name: &str, keys: &[&str]| {
        let out = tempfile::tempdir().unwrap();
        let folder = changed(name, out.path(), &json!({}), |_| {});
        let path = folder.join("config.json");
        let mut config: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        for key in keys {
            config.as_object_mut().unwrap().remove(*key);
        }
        fs::write(&path, config.to_string()).unwrap();
        import(&folder, &out.path().join("run"), &mut |_, _| {}).unwrap();
        Run::open(out.path().join("run")).unwrap().settings.to_toml().unwrap()
    };
    let gemma2 = without("gemma2", &["attn_logit_softcapping", "final_logit_softcapping"]);
    assert!(
        gemma2.contains("output_soft_cap = 30.0") && gemma2.contains("soft_cap = 50.0"),
        "{gemma2}"
    );
    let mistral = without("mistral", &["sliding_window"]);
    assert!(mistral.contains("left = 4095"), "{mistral}");
    let albert = without("albert", &["hidden_act"]);
    assert!(albert.contains("activation = \"gelu_tanh\""), "{albert}");
    let m2m = without("m2m_100", &["scale_embedding"]);
    assert!(m2m.contains("scale_embeddings = true"), "{m2m}");
    let bert = without("bert", &["type_vocab_size"]);
    assert!(bert.contains("token_types = 2"), "{bert}");
    // Heads of 8 channels, and one term that is named and not there.
    let (_, plain) =
        logits("deberta_v2_plain", &json!({ "relative_attention": false }), |weights| {
            weights.retain(|name, _| {
                !name.contains("pos_key_proj") && !name.contains("rel_embeddings")
            });
        })
        .unwrap();
    let plain = plain.settings.to_toml().unwrap();
    assert!(plain.contains("scale = 0.25"), "{plain}");
    let gemma = |more: Value| {
        let found = logits("gemma", &more, |_| {});
        found.map(|(_, run)| run.settings.to_toml().unwrap())
    };
    assert!(gemma(json!({ "hidden_act": "gelu" })).unwrap().contains("activation = \"gelu_tanh\""));
    assert!(gemma(json!({ "hidden_act": "silu" })).unwrap().contains("activation = \"swiglu\""));
    let two = gemma(json!({ "hidden_act": "silu", "hidden_activation": "gelu" })).unwrap_err();
    assert!(two.contains("hidden_act = \"silu\", expected the same as hidden_activation"), "{two}");
}

/// Heads with an activation of their own are refused, and not the stacks below them.
#[test]
fn an_activation_that_a_head_does_not_share_is_refused() {
    for (name, key, head) in [
        ("roberta", "hidden_act", "lm_head."),
        ("longformer", "hidden_act", "lm_head."),
        ("modernbert", "hidden_activation", "head."),
    ] {
        let more = json!({ key: "relu" });
        let message = logits(name, &more, |_| {}).err().unwrap();
        assert!(message.contains(&format!("{key} = \"relu\", expected gelu")), "{message}");
        let alone = logits(name, &more, |weights| {
            weights.retain(|name, _| !name.starts_with(head) && !name.starts_with("decoder."));
        });
        assert!(alone.is_ok(), "{name}: {:?}", alone.err());
    }
}

/// 0.32 of 8 channels are 2.56, of which transformers rotates 2, and 3.2 are no whole pairs.
#[test]
fn shares_of_channels_are_rounded_down() {
    let rope = |share: f64| json!({ "rope_parameters": { "rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": share } });
    let (a, _) = logits("phi", &rope(0.32), |_| {}).unwrap();
    let (b, _) = logits("phi", &rope(0.25), |_| {}).unwrap();
    assert!(a == b, "other channels rotate");
    let odd = logits("phi", &rope(0.4), |_| {}).err().unwrap();
    assert!(odd.contains("3 of 8 channels of a head would rotate"), "{odd}");
}

#[test]
fn values_that_are_no_numbers_are_refused_by_tensor() {
    let message = logits("llama", &json!({}), |weights| {
        let (_, data) = weights.get_mut("model.layers.1.mlp.up_proj.weight").unwrap();
        data[..4].copy_from_slice(&f32::NAN.to_le_bytes());
    })
    .err()
    .unwrap();
    assert!(
        message.contains("tensor model.layers.1.mlp.up_proj.weight: found a value"),
        "{message}"
    );
}

#[test]
fn a_tensor_that_a_header_names_twice_is_refused() {
    let out = tempfile::tempdir().unwrap();
    let folder = changed("llama", out.path(), &json!({}), |_| {});
    let path = folder.join("model.safetensors");
    let bytes = fs::read(&path).unwrap();
    let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let header: Value = serde_json::from_slice(&bytes[8..8 + length]).unwrap();
    let name = "model.norm.weight";
    let text = header.to_string();
    let twice = format!("{}, \"{name}\": {}}}", text.strip_suffix('}').unwrap(), header[name]);
    let mut file = (twice.len() as u64).to_le_bytes().to_vec();
    file.extend(twice.as_bytes());
    file.extend(&bytes[8 + length..]);
    fs::write(&path, file).unwrap();
    let message = import(&folder, &out.path().join("run"), &mut |_, _| {}).unwrap_err().to_string();
    assert!(message.contains("tensor model.norm.weight twice"), "{message}");
}
