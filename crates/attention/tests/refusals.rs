//! What a layer refuses when it is built and called, in its own words: what was wrong, what was found, what would be right.

#![expect(clippy::unwrap_used, reason = "a test may stop at once")]

use std::sync::Arc;

use burn::tensor::{Device, Tensor};
use whatwhere_attention::{
    Attention, AttentionSettings, Cache, Error, Input, Path, position::PositionLayer,
};
use whatwhere_kernels::attention::pattern::from_fn;

fn settings(text: &str) -> Result<AttentionSettings, Error> {
    AttentionSettings::from_toml(&format!("width = 24\n{text}"))
}

fn layer(text: &str) -> Attention {
    settings(text).unwrap().build(&Device::flex()).unwrap()
}

fn ones(batch: usize, length: usize, width: usize) -> Tensor<3> {
    Tensor::ones([batch, length, width], &Device::flex())
}

fn input(batch: usize, length: usize) -> Input {
    Input::new(ones(batch, length, 24))
}

#[test]
fn settings_without_meaning_are_refused_when_read() {
    let cases = [
        (
            "heads = 8\nposition = 'rotary'",
            "head_dim = 3: rotary rotates pairs, but 3 channels of a head would rotate; use an even head_dim or another position.channels",
        ),
        (
            "heads = 5",
            "heads = 5: does not divide width = 24; use one of 1, 2, 3, 4, 6, 8, 12, 24, or set head_dim",
        ),
        ("heads = 4\nkv_heads = 3", "kv_heads = 3: does not divide heads = 4"),
        ("heads = 0", "heads = 0: expected at least 1"),
        (
            "heads = 4\npattern = { kind = 'window', left = 0 }",
            "pattern.left = 0: a window of nothing but the own position mixes nothing; use 1 or more",
        ),
        (
            "heads = 4\nmixing = 'linear'\nposition = 'alibi'",
            "linear with alibi: without scores there is nothing to add to; use an encoding that rotates, or one of embeddings",
        ),
        (
            "heads = 4\nmixing = 'linear'\nposition = { kind = 'rotary', scaling = { kind = 'dynamic_ntk', factor = 2.0, length = 8 } }",
            "linear with rotary: its state sums keys that are turned already, and angles would follow the length; use another scaling",
        ),
        (
            "heads = 4\nmixing = 'linear'\nposition = { kind = 'polar', magnitude = 'relu' }",
            "linear with polar: its feature map makes the magnitudes; leave position.magnitude out",
        ),
        (
            "heads = 4\nmixing = { kind = 'linear', feature_map = 'identity' }",
            "mixing.feature_map = identity: features of both signs add up to any denominator, 0 too; set mixing.scale instead, such as 0.125",
        ),
        (
            "heads = 4\nmixing = { kind = 'linear', scale = 0.0 }",
            "mixing.scale = 0: a factor of the output is finite and not 0",
        ),
        (
            "heads = 4\nmixing = 'delta'\npattern = 'full'",
            "delta with full: its state is carried from token to token, so none sees a later one; use causal, and another mixing in an encoder",
        ),
        (
            "heads = 4\nmixing = 'retention'\nposition = 't5'",
            "retention with t5: without scores there is nothing to add to; use an encoding that rotates, or one of embeddings",
        ),
        (
            "heads = 4\nmixing = 'gated_linear'",
            "gated_linear with rotary: each channel forgets at a pace of its own, so channels cannot turn as a pair or become two; use gates = \"head\", or no such positions",
        ),
        (
            "heads = 4\nmixing = { kind = 'gated_linear', temperature = 0.0 }",
            "mixing.temperature = 0: a temperature is above 0",
        ),
        (
            "heads = 4\nmixing = { kind = 'gated_linear', rank = 0 }",
            "mixing.rank = 0: expected at least 1",
        ),
        (
            "heads = 4\nmixing = 'linear'\nposition = 'none'\nsoft_cap = 2.0",
            "linear with soft_cap: without scores there is nothing to cap",
        ),
        (
            "heads = 4\nposition = { kind = 'learned', length = 0 }",
            "position.length = 0: a table has at least one position",
        ),
        (
            "heads = 4\nposition = { kind = 'learned', grid = 0 }",
            "position.grid = 0: a row has at least one position",
        ),
        (
            "heads = 4\nposition = { kind = 'rotary', grid = 8 }",
            "position.grid = 8: half of a head's channels are for rows and half for columns, but 6 would be shared out; use a multiple of 4",
        ),
        (
            "heads = 3\nposition = { kind = 'rotary', grid = 8, scaling = { kind = 'linear', factor = 2.0 } }",
            "position.scaling with position.grid: a scaling reaches further in one dimension, and a grid has two",
        ),
        (
            "heads = 8\nposition = { kind = 'polar', grid = 8 }",
            "position.grid = 8: half of a head's channels are for rows and half for columns, but 3 would be shared out; use a multiple of 2",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(settings(text).unwrap_err().to_string(), expected, "{text}");
    }
}

#[test]
fn calls_without_meaning_are_refused() {
    let plain = layer("heads = 4");
    let linear = layer("heads = 4\nmixing = 'linear'\nposition = 'none'");
    let learned = layer("heads = 4\nposition = { kind = 'learned', length = 8 }");
    let ahead = layer("heads = 4\npattern = 'full'");
    let forward = |layer: &Attention, input: Input| layer.forward(input).unwrap_err().to_string();
    let decode = |layer: &Attention, input: Input, cache: &mut Cache| {
        layer.decode(input, cache).unwrap_err().to_string()
    };
    let mut used = Cache::new();
    plain.decode(input(2, 3), &mut used).unwrap();
    let own = Arc::new(from_fn(|pair| pair.key == pair.query));

    let cases = [
        (
            learned.position[0].embed(ones(1, 5, 24), 4).unwrap_err().to_string(),
            "position.length = 8: the input reaches position 8, longer than the table",
        ),
        (
            forward(&plain, Input::new(ones(2, 3, 23))),
            "x has shape [2, 3, 23], expected [1 or more, length, 24]",
        ),
        (
            forward(&plain, Input { memory: Some(ones(1, 5, 24)), ..input(2, 3) }),
            "memory has shape [1, 5, 24], expected [2, length, 24]",
        ),
        (
            forward(&plain, Input { key_lengths: Some(vec![3; 3]), ..input(2, 3) }),
            "list of key lengths has 3 values, expected 2",
        ),
        (
            forward(&plain, Input { key_lengths: Some(vec![]), ..input(2, 3) }),
            "list of key lengths is 0, expected at least 1",
        ),
        (forward(&plain, input(0, 2)), "x has shape [0, 2, 24], expected [1 or more, length, 24]"),
        (
            forward(&linear, Input { pattern: Some(own), ..input(2, 3) }),
            "linear with a pattern of the caller's: its state sums all keys, or all up to the query",
        ),
        (
            forward(
                &linear,
                Input { memory: Some(ones(2, 5, 24)), path: Path::Fused, ..input(2, 3) },
            ),
            "path = fused: causal linear mixing is for as many keys as queries, found 5 and 3",
        ),
        (
            forward(
                &layer("heads = 4\nmixing = 'delta'"),
                Input { memory: Some(ones(2, 3, 24)), ..input(2, 3) },
            ),
            "delta with a memory: its state is carried from token to token, and a memory's tokens are not those of x",
        ),
        (
            forward(&layer("heads = 4\npattern = 'document'"), input(2, 3)),
            "pattern = document: the call must say where documents start (`Input::documents`)",
        ),
        (
            decode(&layer("heads = 2"), input(2, 1), &mut used),
            "cache = in use: was filled by a layer with another heads; clear it first",
        ),
        (
            decode(&layer("heads = 4\nbias = true"), input(2, 1), &mut used),
            "cache = in use: was filled by a layer with another setting; clear it first",
        ),
        (
            decode(&plain, input(3, 1), &mut used),
            "cache = in use: holds 2 sequences, the input has 3",
        ),
        (
            decode(&ahead, input(2, 1), &mut Cache::new()),
            "pattern = full: sees keys after the query, which a cache does not have yet; use a causal pattern",
        ),
        (
            used.clone().reorder(&[0, 2]).unwrap_err().to_string(),
            "order = 2: the cache holds 2 sequences",
        ),
    ];
    for (found, expected) in cases {
        assert_eq!(found, expected);
    }
    // What was refused has not harmed the cache.
    assert_eq!(used.length(), 3);
    plain.decode(input(2, 1), &mut used).unwrap();
}

#[test]
fn no_tokens_give_no_outputs_and_no_keys_give_zeros() {
    for mixing in ["softmax", "linear"] {
        let layer = layer(&format!("heads = 4\nposition = 'none'\nmixing = '{mixing}'"));
        for path in [Path::Auto, Path::Composed] {
            let out = layer.forward(Input { path, ..input(2, 0) }).unwrap();
            assert_eq!(out.dims(), [2, 0, 24]);
            let memory = Some(ones(2, 0, 24));
            let out = layer.forward(Input { memory, path, ..input(2, 3) }).unwrap();
            assert_eq!(out.abs().max().into_scalar::<f32>(), 0.0);
        }
    }
}
