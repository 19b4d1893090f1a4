//! Logits of tiny Llama models written by transformers, computed again with this crate's layer: grouped heads, rotary in
//! halves, and YaRN beyond the trained length.
#![expect(clippy::unwrap_used, reason = "a test may stop at once")]

mod common;

use burn::{
    module::Param,
    tensor::{Device, Tensor, activation::silu},
};
use whatwhere_attention::{AttentionSettings, Input, Path, Scaling, position::Rotary};

use common::{File, difference, fixtures};

/// Logits of size 10 after two layers in f32.
const TOLERANCE: f32 = 2e-4;

fn norm(file: &File, name: &str, x: Tensor<3>) -> Tensor<3> {
    let size = (x.clone().powi_scalar(2).mean_dim(2) + 1e-6).sqrt();
    x / size * file.floats::<1>(&format!("{name}.weight")).unsqueeze::<3>()
}

fn logits(file: &File, golden: &File, scaling: Scaling, path: Path) -> Tensor<3> {
    let settings = AttentionSettings {
        width: 64,
        heads: 4,
        kv_heads: Some(2),
        position: vec![Rotary { scaling, ..Default::default() }.into()],
        ..Default::default()
    };
    let linear = |x: Tensor<3>, name: &str| x.matmul(file.weight(name).unsqueeze::<3>());
    let ids = golden.ids("input_ids");
    let length = ids.dims()[0] / 2;
    let embedded = file.floats::<2>("model.embed_tokens.weight").select(0, ids);
    let mut x = embedded.reshape([2, length, 64]);
    for block in ["model.layers.0", "model.layers.1"] {
        let mut layer = settings.build(&Device::flex()).unwrap();
        for (linear, name) in [
            (&mut layer.query, "q_proj"),
            (&mut layer.key, "k_proj"),
            (&mut layer.value, "v_proj"),
            (&mut layer.output, "o_proj"),
        ] {
            linear.weight = Param::from_tensor(file.weight(&format!("{block}.self_attn.{name}")));
        }
        let normed = norm(file, &format!("{block}.input_layernorm"), x.clone());
        x = x + layer.forward(Input { path, ..Input::new(normed) }).unwrap();
        let hidden = norm(file, &format!("{block}.post_attention_layernorm"), x.clone());
        let gate = silu(linear(hidden.clone(), &format!("{block}.mlp.gate_proj")));
        let up = linear(hidden, &format!("{block}.mlp.up_proj"));
        x = x + linear(gate * up, &format!("{block}.mlp.down_proj"));
    }
    linear(norm(file, "model.norm", x), "lm_head")
}

#[test]
fn logits_of_llama_are_met_with_and_without_yarn() {
    let Some(folder) = fixtures("huggingface") else { return };
    let yarn = Scaling::Yarn { factor: 4.0, length: 16, fast: 32.0, slow: 1.0 };
    // The last case is wrong, and noticed.
    let cases = [
        ("llama_gqa", Scaling::None, true),
        ("llama_yarn", yarn, true),
        ("llama_yarn", Scaling::None, false),
    ];
    for (name, scaling, right) in cases {
        let file = File::read(&folder.join(name).join("model.safetensors"));
        let golden = File::read(&folder.join(name).join("golden.safetensors"));
        for path in [Path::Fused, Path::Composed] {
            let difference =
                difference(logits(&file, &golden, scaling, path), golden.floats("logits"));
            eprintln!("{name} with {scaling:?} by {path:?}: {difference:e}");
            assert_eq!(difference < TOLERANCE, right, "{name}: {difference:e}");
        }
    }
}
