//! XLNet: Transformer-XL's four terms, every token seeing every other. Its projections are stored `[width, heads, head_dim]`.

use burn::{
    module::Param,
    tensor::{Device, Tensor, activation::gelu},
};
use whatwhere_attention::{
    AttentionSettings, Input, Position,
    pattern::Full,
    position::{PositionModule, TransformerXl},
};

use super::{Model, TOLERANCE, meets, projections, settings};

fn logits(model: &Model, position: &Position) -> Tensor<3> {
    let settings = AttentionSettings {
        pattern: Full::default().into(),
        bias: false.into(),
        ..settings(position)
    };
    let table = "transformer.word_embedding.weight";
    let mut x = model.embed("input_ids", table);
    for block in ["transformer.layer.0", "transformer.layer.1"] {
        let get = |name: &str| {
            model.file.floats::<3>(&format!("{block}.rel_attn.{name}")).reshape([64, 64])
        };
        let mut layer = settings.build(&Device::flex()).unwrap();
        for (linear, name) in projections(&mut layer).into_iter().zip(["q", "k", "v", "o"]) {
            let weight = get(name);
            // The output's is stored from width to heads, too.
            let weight = if name == "o" { weight.transpose() } else { weight };
            linear.weight = Param::from_tensor(weight);
        }
        if let PositionModule::TransformerXl(terms) = &mut layer.position[0] {
            let bias = |name: &str| model.file.floats::<2>(&format!("{block}.rel_attn.{name}"));
            terms.projection = Param::from_tensor(get("r"));
            terms.content = Param::from_tensor(bias("r_w_bias"));
            terms.distance = Param::from_tensor(bias("r_r_bias"));
        }
        let out = layer.forward(Input { path: model.path, ..Input::new(x.clone()) }).unwrap();
        x = model.layer_norm(x + out, &format!("{block}.rel_attn.layer_norm"), 1e-12);
        let hidden = gelu(model.linear(x.clone(), &format!("{block}.ff.layer_1")));
        let out = model.linear(hidden, &format!("{block}.ff.layer_2"));
        x = model.layer_norm(x + out, &format!("{block}.ff.layer_norm"), 1e-12);
    }
    model.tied(x, table) + model.vector("lm_loss.bias")
}

#[test]
fn logits_of_xlnet_are_met() {
    meets("xlnet_txl_relpos", TransformerXl::default(), TOLERANCE, logits);
}
