//! GPT-2: learned positions added to embeddings.

use burn::{
    module::Param,
    tensor::{Device, Tensor, activation::gelu_approximate},
};
use whatwhere_attention::{
    Input, Position,
    position::{Learned, PositionLayer, PositionModule},
};

use super::{Model, TOLERANCE, meets, projections, settings};

fn logits(model: &Model, position: &Position) -> Tensor<3> {
    let device = Device::flex();
    let norm = |x, name: String| model.layer_norm(x, &name, 1e-5);
    // Weights are stored `[in, out]`.
    let weight = |name: &str| model.file.floats::<2>(&format!("{name}.weight"));
    let linear = |x: Tensor<3>, name: String| {
        x.matmul(weight(&name).unsqueeze()) + model.vector(&format!("{name}.bias"))
    };
    let mut positions = settings(position).build(&device).unwrap().position.remove(0);
    if let PositionModule::Learned(learned) = &mut positions {
        learned.table = Param::from_tensor(model.file.floats("transformer.wpe.weight"));
    }
    let mut x = positions.embed(model.embed("input_ids", "transformer.wte.weight"), 0).unwrap();
    for block in ["transformer.h.0", "transformer.h.1"] {
        let mut layer = settings(position).build(&device).unwrap();
        let (joint, output) = (format!("{block}.attn.c_attn"), format!("{block}.attn.c_proj"));
        let bias = |name: &str| model.file.floats::<1>(&format!("{name}.bias"));
        for (i, linear) in projections(&mut layer).into_iter().take(3).enumerate() {
            linear.weight = Param::from_tensor(weight(&joint).narrow(1, 64 * i, 64));
            linear.bias = Some(Param::from_tensor(bias(&joint).narrow(0, 64 * i, 64)));
        }
        let own = layer.output.as_mut().unwrap();
        own.weight = Param::from_tensor(weight(&output));
        own.bias = Some(Param::from_tensor(bias(&output)));
        let normed = norm(x.clone(), format!("{block}.ln_1"));
        x = x + layer.forward(Input { path: model.path, ..Input::new(normed) }).unwrap();
        let hidden = norm(x.clone(), format!("{block}.ln_2"));
        let hidden = gelu_approximate(linear(hidden, format!("{block}.mlp.c_fc")));
        x = x + linear(hidden, format!("{block}.mlp.c_proj"));
    }
    model.tied(norm(x, "transformer.ln_f".into()), "transformer.wte.weight")
}

#[test]
fn logits_of_gpt2_are_met() {
    meets("gpt2", Learned { length: 64, ..Default::default() }, TOLERANCE, logits);
}
