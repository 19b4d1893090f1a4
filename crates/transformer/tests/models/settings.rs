//! Every setting of a model beside every other: both paths, any steps, and slopes.

use burn::{
    module::{Module, ModuleVisitor, Param},
    tensor::{Device, Gradients, Tensor},
};
use whatwhere_attention::Path;
use whatwhere_transformer::{
    Mode, Model, ModelSettings, Sequences,
    generate::{Generator, Sampling},
};

use crate::{assert_close, places, rows, values};

/// Lines of settings, one of each list.
fn product(lists: &[&[&str]]) -> Vec<String> {
    lists.iter().fold(vec![String::new()], |all, list| {
        let longer = |text: &String| -> Vec<String> {
            list.iter().map(|line| format!("{text}{line}\n")).collect()
        };
        all.iter().flat_map(longer).collect()
    })
}

/// The settings, unless they make no sense together.
fn sensible(family: &str, extra: &str) -> Option<ModelSettings> {
    let text = format!(
        "family = '{family}'\nvocabulary = 11\nwidth = 16\nlayers = 2\nfeed_forward = 24\n{extra}"
    );
    let settings: ModelSettings = toml::from_str(&text).unwrap();
    settings.check().is_ok().then_some(settings)
}

/// A model whose gains are not 1 and whose biases are not 0.
pub(super) fn shaken(settings: &ModelSettings, device: &Device) -> Model {
    let model = settings.build(3, device).unwrap();
    let mut parameters = model.parameters();
    for (at, parameter) in parameters.iter_mut().enumerate() {
        for (i, value) in parameter.values.iter_mut().enumerate() {
            *value += (((at * 31 + i) * 7919 % 1013) as f32 - 506.0) / 2500.0;
        }
    }
    model.with_parameters(parameters).unwrap()
}

pub(super) fn inputs(model: &Model) -> (Option<Sequences>, Sequences) {
    let mut source = rows(2, 7);
    source.lengths = Some(vec![7, 4]);
    let mut tokens = rows(2, 9);
    if model.settings().token_types > 0 {
        tokens.types = Some((0..18).map(|i| (i / 4 % 2) as u32).collect());
    }
    (model.settings().family.has_source().then_some(source), tokens)
}

trait HasSource {
    fn has_source(self) -> bool;
}

impl HasSource for whatwhere_transformer::Family {
    fn has_source(self) -> bool {
        self == whatwhere_transformer::Family::EncoderDecoder
    }
}

/// Logits, and the gradient of every parameter under `Σ logit²`.
pub(super) fn pass(
    model: &Model,
    path: Path,
    seed: Option<u64>,
) -> (Vec<f32>, Vec<(String, Vec<f32>)>) {
    let (source, tokens) = inputs(model);
    let logits = model.forward(source.as_ref(), &tokens, Mode { seed, path }).unwrap();
    let gradients = logits.clone().powi_scalar(2).sum().backward();
    let mut reading = Reading { gradients, path: Vec::new(), found: Vec::new() };
    model.visit(&mut reading);
    (values(logits), reading.found)
}

struct Reading {
    gradients: Gradients,
    path: Vec<String>,
    found: Vec<(String, Vec<f32>)>,
}

impl ModuleVisitor for Reading {
    fn enter_module(&mut self, name: &str, _: &str) {
        self.path.push(name.into());
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let name = self.path.join(".");
        let gradient = param.val().grad(&self.gradients);
        let gradient = gradient.unwrap_or_else(|| panic!("{name} receives a gradient"));
        self.found.push((name, gradient.into_data().try_to_vec().unwrap()));
    }
}

/// Both paths give the same logits and gradients, and a cache those of one pass.
fn agree(settings: &ModelSettings, what: &str) {
    let model = shaken(settings, &Device::flex().autodiff());
    let seed = (settings.dropout > 0.0).then_some(5);
    let [fused, composed] = [Path::Fused, Path::Composed].map(|path| pass(&model, path, seed));
    assert_close(&fused.0, &composed.0, what);
    for ((name, fused), (_, composed)) in fused.1.iter().zip(&composed.1) {
        let most = composed.iter().fold(1.0, |most: f32, d| most.max(d.abs()));
        let each = fused.iter().zip(composed).map(|(a, b)| (a - b).abs() / most);
        let far = each.fold(0.0, f32::max);
        assert!(far < 1e-4, "{name}: {far} of {most}, {what}");
    }
    cached(&shaken(settings, &Device::flex()), what);
}

/// Tokens one by one, and with a draft, as in one pass.
fn cached(model: &Model, what: &str) {
    if model.decoder.is_none() {
        return;
    }
    let (source, tokens) = inputs(model);
    let whole = values(model.forward(source.as_ref(), &tokens, Mode::default()).unwrap());
    let mut state = model.start(source.as_ref()).unwrap();
    let steps = [0..1, 1..2, 2..5, 5..6, 6..9].map(|range| {
        let mut part = places(&tokens, range.clone());
        part.types = tokens
            .types
            .as_ref()
            .map(|types| types.chunks(9).flat_map(|row| row[range.clone()].to_vec()).collect());
        model.step(&part, &mut state).unwrap()
    });
    assert_close(&values(Tensor::cat(steps.to_vec(), 1)), &whole, what);
    let source = source.map(|source| crate::row(&source, 0));
    let [plain, drafted] =
        [Generator::without_draft(model), Generator::speculative(model)].map(|generator| {
            let go_on = |_| std::ops::ControlFlow::Continue(());
            let greedy = Sampling::greedy();
            let text = generator.generate(source.as_ref(), &[1, 2], 12, &greedy, go_on).unwrap();
            (text, generator.drafted()[0])
        });
    assert_eq!(plain.0, drafted.0, "{what}");
    assert!(drafted.1 > 0, "{what}: no draft");
}

#[test]
fn sublayers_agree_in_every_order_and_with_every_activation() {
    let mut count = 0;
    for extra in product(&[
        &[
            "norm_place = 'pre'",
            "norm_place = 'post'",
            "norm_place = 'both'",
            "norm_place = 'output'",
        ],
        &["residual = 'sequential'", "residual = 'parallel'", "residual = 'parallel_two_norms'"],
        &["norm = 'rms'\nbias = true", "norm = 'layer'\nnorm_bias = true\ndropout = 0.2"],
        &[
            "activation = 'relu'\ngated = true\nepsilon = 0.1",
            "activation = 'gelu'\ngated = true",
            "activation = 'gelu_tanh'\ngated = true\nfirst_norm = false",
            "activation = 'silu'",
            "activation = 'swiglu'\nrecompute = 'block'",
        ],
        &["attention = { heads = 2 }"],
    ]) {
        for family in ["decoder", "encoder_decoder"] {
            let Some(settings) = sensible(family, &extra) else { continue };
            agree(&settings, &format!("{family} {extra}"));
            count += 1;
        }
    }
    assert!(count > 90, "{count}");
}

#[test]
fn embeddings_and_logits_agree_with_everything_around_them() {
    let families = ["decoder", "encoder", "encoder_decoder"].into_iter().cycle();
    let all = product(&[
        &["", "embedding_norm = true\nnorm = 'layer'\nbias = true"],
        &["", "token_types = 2"],
        &["", "output_bias = true"],
        &["", "output_transform = true"],
        &["", "output_soft_cap = 0.5"],
        &["tied = true", "tied = false\nscale_embeddings = true"],
        &["", "embedding_width = 8", "embedding_width = 24\nproject_positions = false"],
        &["attention = { heads = 2, position = ['learned', 'rotary'] }"],
    ]);
    for (extra, family) in all.into_iter().zip(families) {
        agree(&sensible(family, &extra).unwrap(), &format!("{family} {extra}"));
    }
}

#[test]
fn attention_agrees_with_every_bias_and_norm_and_shared_layers() {
    let families = ["decoder", "encoder", "encoder_decoder"].into_iter().cycle();
    let mut attentions = Vec::new();
    for bias in ["none", "qkv", "all"] {
        for (norm, kind) in [
            ("none", "rms"),
            ("head", "rms"),
            ("head", "layer"),
            ("each_head", "layer"),
            ("all", "rms"),
            ("all", "layer"),
        ] {
            for position in [
                "'t5'",
                "['transformer_xl', 'learned']",
                "['rotary', 'shaw']",
                "{ kind = 'disentangled', buckets = 4, length = 6 }",
                "{ kind = 'shaw', reach = 3, queries = true }",
            ] {
                attentions.push(format!(
                    "attention = {{ heads = 4, kv_heads = 2, bias = '{bias}', qk_norm = '{norm}', qk_norm_kind = '{kind}', position = {position} }}"
                ));
            }
        }
    }
    let shared = ["", "share_layers = true", "share_positions = true"].into_iter().cycle();
    // Lists of other lengths, so that every attention meets every family and every sharing.
    for ((attention, family), shared) in
        attentions.iter().cycle().take(attentions.len() * 2).zip(families).zip(shared)
    {
        let extra = format!("{shared}\nepsilon = 1e-3\n{attention}");
        agree(&sensible(family, &extra).unwrap(), &format!("{family} {extra}"));
    }
}

#[test]
fn positions_on_a_grid_agree_in_every_family() {
    for family in ["decoder", "encoder", "encoder_decoder"] {
        for position in [
            "{ kind = 'rotary', grid = 4 }",
            "{ kind = 'rotary', grid = 3, layout = 'interleaved', channels = 0.5 }",
            "{ kind = 'polar', grid = 4, delta = 'uniform' }",
            "{ kind = 'learned', grid = 4, length = 21 }",
            "[{ kind = 'learned', grid = 5 }, { kind = 'polar', grid = 2, heads = 0.5 }, 't5']",
        ] {
            let extra = format!("attention = {{ heads = 2, position = {position} }}");
            agree(&sensible(family, &extra).unwrap(), &format!("{family} {extra}"));
        }
    }
}

#[test]
fn tokens_of_a_kind_are_global_on_both_paths_and_in_a_cache() {
    let global = "{ kind = 'or', of = [{ kind = 'window', left = 2, right = 1 }, { kind = 'global', tokens = [3, 7] }] }";
    let causal = format!("{{ kind = 'and', of = ['causal', {global}] }}");
    for (family, pattern) in
        [("decoder", &*causal), ("encoder", global), ("encoder_decoder", &causal)]
    {
        let attention = format!("attention = {{ heads = 2, pattern = {pattern} }}");
        let extra = format!("encoder = {{ pattern = {global} }}\n{attention}");
        let settings = sensible(family, &extra).unwrap();
        agree(&settings, &format!("{family} {extra}"));
        // Tokens of the kind make a difference.
        let plain = sensible(family, &extra.replace("[3, 7]", "[100]")).unwrap();
        let model = shaken(&settings, &Device::flex());
        let (source, tokens) = inputs(&model);
        let [with, without] = [&settings, &plain].map(|settings| {
            let model = model.with_settings(settings).unwrap();
            values(model.forward(source.as_ref(), &tokens, Mode::default()).unwrap())
        });
        assert!(with != without, "{family}");
    }
}

/// The slope of the loss along each parameter's own gradient, against differences of passes in f32.
#[test]
fn gradients_are_slopes() {
    for (family, extra) in [
        (
            "decoder",
            "norm_place = 'both'\nactivation = 'gelu'\ngated = true\noutput_soft_cap = 2.0\nepsilon = 0.01",
        ),
        (
            "decoder",
            "residual = 'parallel'\nactivation = 'gelu_tanh'\nbias = true\noutput_bias = true\nnorm = 'layer'",
        ),
        ("decoder", "residual = 'parallel_two_norms'\nactivation = 'silu'\nshare_layers = true"),
        (
            "encoder",
            "norm_place = 'post'\nembedding_norm = true\ntoken_types = 2\noutput_transform = true\noutput_bias = true\nnorm = 'layer'\nbias = true\nembedding_width = 8\nshare_layers = true",
        ),
        (
            "encoder_decoder",
            "norm_place = 'output'\nshare_positions = true\nattention = { heads = 2, position = 't5', qk_norm = 'all' }",
        ),
        (
            "encoder",
            "first_norm = false\nattention = { heads = 2, qk_norm = 'each_head', qk_norm_kind = 'layer', bias = 'qkv' }",
        ),
    ] {
        let settings = sensible(family, extra).unwrap();
        let model = shaken(&settings, &Device::flex().autodiff());
        let (_, gradients) = pass(&model, Path::Fused, None);
        let parameters = model.parameters();
        let loss = |index: usize, step: f32, along: &[f32]| -> f64 {
            let mut moved = parameters.clone();
            moved[index].values.iter_mut().zip(along).for_each(|(v, d)| *v += step * d);
            let model = model.clone().with_parameters(moved).unwrap();
            let (source, tokens) = inputs(&model);
            let logits = model.forward(source.as_ref(), &tokens, Mode::default()).unwrap();
            values(logits).iter().map(|z| f64::from(*z).powi(2)).sum()
        };
        for (index, (name, gradient)) in gradients.iter().enumerate() {
            assert_eq!(*name, parameters[index].name);
            let length = gradient.iter().map(|d| d * d).sum::<f32>().sqrt();
            let along: Vec<f32> = gradient.iter().map(|d| d / length.max(1e-12)).collect();
            // Two widths, so that what grows with the cube of the step cancels.
            let step = 3e-3f32;
            let across = |step: f32| loss(index, step, &along) - loss(index, -step, &along);
            let slope = (8.0 * across(step) - across(2.0 * step)) / f64::from(12.0 * step);
            let off = (slope - f64::from(length)).abs();
            assert!(off < 2e-2 * (1.0 + slope.abs()), "{name}: {slope} {length}, {family} {extra}");
        }
    }
}

#[test]
fn layers_that_share_have_the_parameters_of_one() {
    let size = |extra: &str| {
        let settings = sensible("encoder", extra).unwrap();
        let model = settings.build(1, &Device::flex()).unwrap();
        (model.size(), model.parameters().into_iter().map(|p| p.name).collect::<Vec<_>>())
    };
    let attention = "attention = { heads = 2, position = 't5' }";
    let (apart, _) = size(attention);
    let (tables, names) = size(&format!("share_positions = true\n{attention}"));
    assert_eq!(apart - tables, 32 * 2, "one table of 32 buckets and two heads less");
    assert!(names.contains(&"encoder.blocks.0.attention.position.0.T5.table".into()), "{names:?}");
    let (_, names) = size(&format!("share_layers = true\n{attention}"));
    assert!(names.iter().all(|name| !name.contains("blocks.1")), "{names:?}");
}

#[test]
fn types_that_do_not_fit_are_refused() {
    let refusal = |types: usize, given: Vec<u32>| {
        let settings = sensible("encoder", &format!("token_types = {types}")).unwrap();
        let mut tokens = rows(1, 3);
        tokens.types = Some(given);
        let model = settings.build(1, &Device::flex()).unwrap();
        model.forward(None, &tokens, Mode::default()).unwrap_err().to_string()
    };
    assert_eq!(refusal(2, vec![0, 1]), "2 types for 3 tokens");
    let unknown = "token type 2 is unknown to the model, which has 2";
    assert_eq!(refusal(2, vec![0, 1, 2]), unknown);
    assert_eq!(refusal(0, vec![0; 3]), "token type 0 is unknown to the model, which has 0");
}

#[test]
fn settings_that_make_no_sense_together_are_refused() {
    for (text, expected) in [
        ("epsilon = -1.0", "epsilon = -1: expected at least 0"),
        ("norm_bias = true", "norm_bias = true: an rms norm has no bias"),
        ("first_norm = false\nnorm_place = 'post'", "first_norm = false: no norm stands before"),
        ("residual = 'parallel'\nnorm_place = 'post'", "residual = parallel: needs a norm before"),
        ("residual = 'parallel'\nfamily = 'encoder_decoder'", "attention to the encoder"),
        ("residual = 'parallel'\nfirst_norm = false", "use parallel_two_norms"),
        ("embedding_width = 0", "embedding_width = 0"),
        ("output_soft_cap = 0.0", "output_soft_cap = 0: a cap is above 0"),
        ("attention = { epsilon = 1.0 }", "set model.epsilon"),
        ("share_layers = true\nalternate = [{ heads = 2 }, {}]", "share_layers = true"),
        (
            "share_positions = true\nalternate = [{ position = 't5' }, {}]",
            "share_positions = true: layers that alternate",
        ),
    ] {
        let message = ModelSettings::from_toml(text).unwrap_err().to_string();
        assert!(message.contains(expected), "{text}: {message}");
    }
}
