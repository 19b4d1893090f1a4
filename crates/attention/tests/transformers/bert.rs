//! BERT: every token sees every other, learned positions added to embeddings, norms after the residual.

use burn::{
    module::Param,
    tensor::{Device, Tensor, activation::gelu},
};
use whatwhere_attention::{
    AttentionSettings, Input, Position,
    pattern::Full,
    position::{Learned, PositionLayer, PositionModule},
};

use super::{Model, TOLERANCE, meets, settings};

fn logits(model: &Model, position: &Position) -> Tensor<3> {
    let settings = AttentionSettings { pattern: Full::default().into(), ..settings(position) };
    let norm = |x, name: &str| model.layer_norm(x, &format!("{name}.LayerNorm"), 1e-12);
    let embeddings = |name: &str| format!("bert.embeddings.{name}_embeddings.weight");
    let mut positions = settings.build(&Device::flex()).unwrap().position.remove(0);
    if let PositionModule::Learned(learned) = &mut positions {
        learned.table = Param::from_tensor(model.file.floats(&embeddings("position")));
    }
    // Every token is of the first of two kinds.
    let kinds = model.file.floats::<2>(&embeddings("token_type")).narrow(0, 0, 1);
    let x = model.embed("input_ids", &embeddings("word")) + kinds.unsqueeze();
    let mut x = norm(positions.embed(x, 0).unwrap(), "bert.embeddings");
    for block in ["bert.encoder.layer.0", "bert.encoder.layer.1"] {
        let names = ["self.query", "self.key", "self.value", "output.dense"];
        let names = names.map(|name| format!("{block}.attention.{name}"));
        let layer = model.attention(&settings, names);
        let out = layer.forward(Input { path: model.path, ..Input::new(x.clone()) }).unwrap();
        x = norm(x + out, &format!("{block}.attention.output"));
        let hidden = gelu(model.linear(x.clone(), &format!("{block}.intermediate.dense")));
        let out = model.linear(hidden, &format!("{block}.output.dense"));
        x = norm(x + out, &format!("{block}.output"));
    }
    let head = "cls.predictions.transform";
    let x = norm(gelu(model.linear(x, &format!("{head}.dense"))), head);
    model.tied(x, &embeddings("word")) + model.vector("cls.predictions.bias")
}

#[test]
fn logits_of_bert_are_met() {
    meets("bert_mlm", Learned { length: 64, ..Default::default() }, TOLERANCE, logits);
}
