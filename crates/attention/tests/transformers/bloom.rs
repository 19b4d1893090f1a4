//! Bloom: ALiBi. Its bias is `slope · key`, which softmax cannot tell from `−slope · distance`.

use burn::{
    module::Param,
    tensor::{Tensor, activation::gelu_approximate},
};
use whatwhere_attention::{Input, Position, position::Alibi};

use super::{Model, TOLERANCE, meets, projections, settings};

fn logits(model: &Model, position: &Position) -> Tensor<3> {
    let norm = |x, name: String| model.layer_norm(x, &name, 1e-5);
    let embedded = model.embed("input_ids", "transformer.word_embeddings.weight");
    let mut x = norm(embedded, "transformer.word_embeddings_layernorm".into());
    for block in ["transformer.h.0", "transformer.h.1"] {
        let name = format!("{block}.self_attention");
        let names = [(); 4].map(|()| format!("{name}.dense"));
        let mut layer = model.attention(&settings(position), names);
        // Rows of the joint projection are ordered by head, then q, k, v.
        let joint = format!("{name}.query_key_value");
        let weight = model.file.floats::<2>(&format!("{joint}.weight")).reshape([4, 3, 16 * 64]);
        let bias = model.file.floats::<1>(&format!("{joint}.bias")).reshape([4, 3, 16]);
        for (i, linear) in projections(&mut layer).into_iter().take(3).enumerate() {
            let own = weight.clone().narrow(1, i, 1).reshape([64, 64]).transpose();
            linear.weight = Param::from_tensor(own);
            linear.bias = Some(Param::from_tensor(bias.clone().narrow(1, i, 1).reshape([64])));
        }
        let normed = norm(x.clone(), format!("{block}.input_layernorm"));
        x = x + layer.forward(Input { path: model.path, ..Input::new(normed) }).unwrap();
        let hidden = norm(x.clone(), format!("{block}.post_attention_layernorm"));
        let hidden = model.linear(hidden, &format!("{block}.mlp.dense_h_to_4h"));
        x = x + model.linear(gelu_approximate(hidden), &format!("{block}.mlp.dense_4h_to_h"));
    }
    model.tied(norm(x, "transformer.ln_f".into()), "transformer.word_embeddings.weight")
}

#[test]
fn logits_of_bloom_are_met() {
    meets("bloom_alibi", Alibi::default(), TOLERANCE, logits);
}
