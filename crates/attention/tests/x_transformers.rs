//! Logits of tiny models written by x-transformers, computed again with this crate's layer.
#![expect(clippy::unwrap_used, reason = "a test may stop at once")]

mod common;

use burn::{
    module::Param,
    tensor::{Device, Tensor, activation::gelu},
};
use whatwhere_attention::{
    Attention, AttentionSettings, Input, Path, Position,
    position::{Alibi, Polar, PositionModule, Rotary, RotaryLayout, T5},
};

use common::{File, difference, fixture};

/// Logits of size 10 after two layers in f32.
const TOLERANCE: f32 = 2e-4;
/// The fixtures' README: a wrong encoding changes logits by more than this.
const WRONG: f32 = 0.1;

struct Model(File);

impl Model {
    fn get<const D: usize>(&self, name: &str) -> Tensor<D> {
        self.0.floats(name)
    }

    fn weight(&self, name: &str) -> Tensor<2> {
        self.0.weight(&format!("w.{name}"))
    }

    fn norm(&self, name: &str, x: Tensor<3>) -> Tensor<3> {
        let centered = x.clone() - x.mean_dim(2);
        let deviation = (centered.clone().powi_scalar(2).mean_dim(2) + 1e-5).sqrt();
        let gamma = self.get::<1>(&format!("w.{name}.gamma")) + 1.0; // stored as an offset from 1
        centered / deviation * gamma.unsqueeze::<3>()
    }

    fn attention(&self, block: usize, position: &Position) -> Attention {
        let settings = AttentionSettings {
            width: 64,
            heads: 4,
            position: vec![position.clone()],
            ..Default::default()
        };
        let mut layer = settings.build(&Device::flex()).unwrap();
        for (linear, name) in [
            (&mut layer.query, "to_q"),
            (&mut layer.key, "to_k"),
            (&mut layer.value, "to_v"),
            (&mut layer.output, "to_out"),
        ] {
            let name = format!("attn_layers.layers.{block}.1.{name}");
            let linear = linear.as_mut().unwrap();
            linear.weight = Param::from_tensor(self.weight(&name));
        }
        match &mut layer.position[0] {
            PositionModule::Polar(polar) => {
                let delta = self.get::<3>("w.attn_layers.polar_pos_emb.learned_bias");
                polar.delta = Some(Param::from_tensor(delta.reshape([4, 16])));
            }
            PositionModule::T5(t5) => {
                // x-transformers multiplies the table by √head_dim.
                let table = self.get::<2>("w.attn_layers.rel_pos.relative_attention_bias.weight");
                t5.table = Param::from_tensor(table.transpose() * 4.0);
            }
            _ => {}
        }
        layer
    }

    fn logits(&self, position: &Position, path: Path) -> Tensor<3> {
        let ids = self.0.ids("golden.input_ids");
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
        let Some(path) = fixture(&format!("x_transformers/{name}.safetensors")) else { continue };
        let model = Model(File::read(&path));
        let golden = model.get::<3>("golden.logits");
        for path in [Path::Fused, Path::Composed] {
            let difference = difference(model.logits(&position, path), golden.clone());
            eprintln!("{name} as {} by {path:?}: {difference:e}", position.name());
            assert_eq!(difference < TOLERANCE, right, "{name}: {difference:e}");
            assert!(right || difference > WRONG, "{name}: {difference:e}");
        }
    }
}
