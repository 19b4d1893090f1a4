//! Logits of tiny models written by x-transformers, computed again with this crate's layer.
//!
//! The fixtures are looked for at `$WHATWHERE_SHARED/fixtures/x_transformers` or `../shared/fixtures/x_transformers` beside
//! the repository; where there are none, the test says so and does nothing.
#![expect(clippy::unwrap_used, reason = "a test may stop at once")]

use std::{env, fs, path::PathBuf};

use burn::{
    module::Param,
    tensor::{Device, Int, Tensor, TensorData, activation::gelu},
};
use safetensors::SafeTensors;
use whatwhere_attention::{
    Attention, AttentionSettings, Input, Path, Position,
    position::{Alibi, Polar, PositionLayer, Rotary, RotaryLayout, T5},
};

/// Logits of size 10 after two layers in f32.
const TOLERANCE: f32 = 2e-4;
/// The fixtures' README: a wrong encoding changes logits by more than this.
const WRONG: f32 = 0.1;

fn folder() -> Option<PathBuf> {
    let beside = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let shared = env::var_os("WHATWHERE_SHARED").map_or(beside, PathBuf::from);
    let folder = shared.join("fixtures/x_transformers");
    folder.is_dir().then_some(folder)
}

struct Model<'a> {
    file: SafeTensors<'a>,
    device: Device,
}

impl Model<'_> {
    fn get<const D: usize>(&self, name: &str) -> Tensor<D> {
        let view = self.file.tensor(name).unwrap();
        let values: Vec<f32> = view
            .data()
            .chunks_exact(4)
            .map(|b| f32::from_le_bytes(b.try_into().unwrap()))
            .collect();
        Tensor::from_data(TensorData::new(values, view.shape().to_vec()), &self.device)
    }

    /// A linear layer's weight, stored `[out, in]`.
    fn weight(&self, name: &str) -> Tensor<2> {
        self.get::<2>(&format!("w.{name}.weight")).transpose()
    }

    fn norm(&self, name: &str, x: Tensor<3>) -> Tensor<3> {
        let centred = x.clone() - x.mean_dim(2);
        let deviation = (centred.clone().powi_scalar(2).mean_dim(2) + 1e-5).sqrt();
        let gamma = self.get::<1>(&format!("w.{name}.gamma")) + 1.0; // stored as an offset from 1
        centred / deviation * gamma.unsqueeze::<3>()
    }

    fn attention(&self, block: usize, position: &Position) -> Attention {
        let settings = AttentionSettings {
            width: 64,
            heads: 4,
            position: vec![position.clone()],
            ..Default::default()
        };
        let mut layer = settings.build(&self.device).unwrap();
        for (linear, name) in [
            (&mut layer.query, "to_q"),
            (&mut layer.key, "to_k"),
            (&mut layer.value, "to_v"),
            (&mut layer.output, "to_out"),
        ] {
            let name = format!("attn_layers.layers.{block}.1.{name}");
            linear.weight = Param::from_tensor(self.weight(&name));
        }
        match &mut layer.position[0] {
            PositionLayer::Polar(polar) => {
                let delta = self.get::<3>("w.attn_layers.polar_pos_emb.learned_bias");
                polar.delta = Some(Param::from_tensor(delta.reshape([4, 16])));
            }
            PositionLayer::T5(t5) => {
                // x-transformers multiplies the table by √head_dim.
                let table = self.get::<2>("w.attn_layers.rel_pos.relative_attention_bias.weight");
                t5.table = Param::from_tensor(table.transpose() * 4.0);
            }
            _ => {}
        }
        layer
    }

    fn logits(&self, position: &Position, path: Path) -> Tensor<3> {
        let ids = self.file.tensor("golden.input_ids").unwrap();
        let values: Vec<i64> = ids
            .data()
            .chunks_exact(4)
            .map(|b| i64::from(i32::from_le_bytes(b.try_into().unwrap())))
            .collect();
        let ids = Tensor::<1, Int>::from_data(TensorData::new(values, [40]), &self.device);
        let mut x = self.get::<2>("w.token_emb.emb.weight").select(0, ids).reshape([2, 20, 64]);
        for block in [0, 2] {
            let normed = self.norm(&format!("attn_layers.layers.{block}.0.0"), x.clone());
            let input = Input { path, ..Input::new(normed) };
            x = x + self.attention(block, position).forward(input).unwrap();
            let name = format!("attn_layers.layers.{}", block + 1);
            let hidden = self.norm(&format!("{name}.0.0"), x.clone());
            let linear = |x: Tensor<3>, layer: &str| {
                let bias = self.get::<1>(&format!("w.{name}.1.{layer}.bias"));
                x.matmul(self.weight(&format!("{name}.1.{layer}")).unsqueeze::<3>())
                    + bias.unsqueeze::<3>()
            };
            x = x + linear(gelu(linear(hidden, "ff.0.0")), "ff.2");
        }
        let x = self.norm("attn_layers.final_norm", x);
        x.matmul(self.weight("to_logits").unsqueeze::<3>())
    }
}

#[test]
fn logits_of_x_transformers_are_met() {
    let Some(folder) = folder() else {
        eprintln!("skipped: no fixtures/x_transformers in ../shared or $WHATWHERE_SHARED");
        return;
    };
    let rotary = |layout| Position::from(Rotary { layout, ..Default::default() });
    let cases: [(&str, Position, bool); 6] = [
        ("polar", Polar::default().into(), true),
        ("alibi", Alibi::default().into(), true),
        ("t5bias", T5::default().into(), true),
        ("rotary_full", rotary(RotaryLayout::Interleaved), true),
        // A wrong encoding is noticed.
        ("rotary_full", rotary(RotaryLayout::HalfSplit), false),
        ("polar", rotary(RotaryLayout::Interleaved), false),
    ];
    for (name, position, right) in cases {
        let bytes = fs::read(folder.join(format!("{name}.safetensors"))).unwrap();
        let file = SafeTensors::deserialize(&bytes).unwrap();
        let model = Model { file, device: Device::flex() };
        let golden = model.get::<3>("golden.logits");
        for path in [Path::Fused, Path::Composed] {
            let made = model.logits(&position, path);
            let difference = (made - golden.clone()).abs().max().into_scalar::<f32>();
            eprintln!("{name} as {} by {path:?}: {difference:e}", position.name());
            assert_eq!(difference < TOLERANCE, right, "{name}: {difference:e}");
            assert!(right || difference > WRONG, "{name}: {difference:e}");
        }
    }
}
