//! A causal decoder layer with PoPE: it learns to repeat the token before, then decodes with a cache.

use burn::{
    optim::{AdamWConfig, GradientsParams},
    tensor::{Device, Distribution, Tensor},
};
use whatwhere_attention::{AttentionSettings, Cache, Error, Input, position::Polar};

fn main() -> Result<(), Error> {
    let device = Device::flex().autodiff();
    let settings = AttentionSettings {
        width: 32,
        heads: 4,
        position: vec![Polar::default().into()],
        ..Default::default()
    };
    let mut layer = settings.build(&device)?;
    let mut optimizer = AdamWConfig::new().init();
    let x = Tensor::<3>::random([4, 24, 32], Distribution::Normal(0.0, 1.0), &device);
    let before = Tensor::cat(vec![x.clone().narrow(1, 0, 1), x.clone().narrow(1, 0, 23)], 1);
    let mut losses = Vec::new();
    for _ in 0..200 {
        let error = layer.forward(Input::new(x.clone()))? - before.clone();
        let loss = error.powi_scalar(2).mean();
        losses.push(loss.clone().into_scalar::<f32>());
        let gradients = GradientsParams::from_grads(loss.backward(), &layer);
        layer = optimizer.step(1e-2, layer, gradients);
    }
    println!("loss {:.3} -> {:.3}", losses[0], losses[losses.len() - 1]);
    assert!(losses[losses.len() - 1] < 0.5 * losses[0], "the layer did not learn");

    let whole = layer.forward(Input::new(x.clone()))?;
    let mut cache = Cache::new();
    let tokens = (0..24).map(|i| layer.decode(Input::new(x.clone().narrow(1, i, 1)), &mut cache));
    let decoded = Tensor::cat(tokens.collect::<Result<Vec<_>, _>>()?, 1);
    let difference = (whole - decoded).abs().max().into_scalar::<f32>();
    println!("token by token differs by {difference:.1e}");
    assert!(difference < 1e-4);
    Ok(())
}
