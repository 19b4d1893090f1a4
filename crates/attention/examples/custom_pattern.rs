//! A pattern of one's own: a tree in which every token sees itself and its ancestors.

use std::sync::Arc;

use burn::tensor::{Device, Distribution, Tensor};
use whatwhere_attention::{AttentionSettings, Error, Input, pattern::Full};
use whatwhere_kernels::attention::pattern::from_fn;

fn main() -> Result<(), Error> {
    let device = Device::flex();
    let settings = AttentionSettings {
        width: 32,
        heads: 4,
        pattern: Full::default().into(),
        ..Default::default()
    };
    let layer = settings.build(&device)?;
    let parents = [0, 0, 0, 1, 1, 2, 5];
    let ancestors = move |mut token: usize, of: usize| loop {
        if token == of {
            return true;
        }
        if token == 0 {
            return false;
        }
        token = parents[token];
    };
    let tree = Arc::new(from_fn(move |pair| ancestors(pair.query, pair.key)));
    let run = |x: Tensor<3>| layer.forward(Input { pattern: Some(tree.clone()), ..Input::new(x) });

    let x = Tensor::<3>::random([1, 7, 32], Distribution::Normal(0.0, 1.0), &device);
    let out = run(x.clone())?;
    // Token 5 changes: itself and its child 6 notice, nobody else.
    let changed = x.slice_assign([0..1, 5..6, 0..32], Tensor::ones([1, 1, 32], &device));
    let difference = (run(changed)? - out).abs().max_dim(2).reshape([7]);
    let noticed: Vec<f32> = difference.into_data().try_to_vec::<f32>().expect("f32 values");
    println!("change by token: {noticed:?}");
    for (token, change) in noticed.iter().enumerate() {
        assert_eq!(*change > 0.0, ancestors(token, 5), "token {token}");
    }
    Ok(())
}
