//! Sublayers as single operations: the same numbers as composed ones, and the same bits whatever is kept.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use burn::{
    module::{Module, ModuleVisitor, Param},
    tensor::{Device, Gradients, Tensor},
};
use whatwhere_attention::Path;
use whatwhere_transformer::{Mode, Model, ModelSettings, Sequences};

/// Sums in another order, of gradients up to some tens.
const TOLERANCE: f32 = 2e-3;

/// Norms before and after, with and without biases and gates, heads in groups, and everything that drops.
const KINDS: [&str; 3] = [
    "dropout = 0.2\nattention = { heads = 2, dropout = 0.1, position = ['polar', 't5'] }",
    "norm_place = 'post'\nnorm = 'layer'\nbias = true\nactivation = 'swiglu'\ndropout = 0.2\n\
     attention = { heads = 4, kv_heads = 2, bias = true, position = 'alibi' }",
    "norm = 'layer'\nbias = true\nactivation = 'gelu_tanh'\n\
     attention = { heads = 2, head_dim = 12, bias = true, score = 'additive', position = 'shaw' }",
];

fn model(kind: &str, recompute: &str) -> Model {
    model_of(16, kind, recompute)
}

fn model_of(width: usize, kind: &str, recompute: &str) -> Model {
    let text = format!(
        "family = 'encoder_decoder'\nvocabulary = 11\nwidth = {width}\nlayers = 2\nfeed_forward = 24\n\
         recompute = '{recompute}'\n{kind}"
    );
    ModelSettings::from_toml(&text).unwrap().build(3, &Device::flex().autodiff()).unwrap()
}

/// The logits, and the gradient of every parameter by its name.
fn pass(model: &Model, path: Path) -> Passed {
    pass_over(model, path, 9)
}

type Passed = (Vec<f32>, Vec<(String, Vec<f32>)>);

fn pass_over(model: &Model, path: Path, length: usize) -> Passed {
    let rows = |batch: usize, length: usize| {
        let row = |i: usize| (0..length).map(|j| ((i * 5 + j * 3 + j * j) % 11) as u32).collect();
        Sequences::from_rows(&(0..batch).map(row).collect::<Vec<Vec<u32>>>())
    };
    let mut source = rows(2, 7);
    source.lengths = Some(vec![7, 4]);
    let mode = Mode { seed: Some(5), path };
    let logits = model.forward(Some(&source), &rows(2, length), mode).unwrap();
    let gradients = logits.clone().powi_scalar(2).sum().backward();
    let mut reading = Reading { gradients, path: Vec::new(), found: Vec::new() };
    model.visit(&mut reading);
    (logits.into_data().try_to_vec().unwrap(), reading.found)
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
        if let Some(gradient) = param.val().grad(&self.gradients) {
            let values = gradient.into_data().try_to_vec().unwrap();
            self.found.push((self.path.join("."), values));
        }
    }
}

#[test]
fn what_is_formed_again_has_the_same_bits() {
    for kind in KINDS {
        let model_that_keeps = model(kind, "none");
        let kept = pass(&model_that_keeps, Path::Fused);
        for recompute in ["attention", "block"] {
            // Its weights: tables of encodings come from the framework's one generator, which other tests draw from, too.
            let weights = model_that_keeps.parameters();
            let model = model(kind, recompute).with_parameters(weights).unwrap();
            let again = pass(&model, Path::Fused);
            assert_eq!(again.0, kept.0, "{recompute} {kind}");
            for (again, kept) in again.1.iter().zip(&kept.1) {
                assert!(again == kept, "{}: {recompute} {kind}", kept.0);
            }
        }
    }
}

#[test]
fn gradients_of_all_parameters_agree_with_the_composed_ones() {
    for kind in KINDS {
        let model = model(kind, "none");
        let [fused, composed] = [Path::Fused, Path::Composed].map(|path| pass(&model, path).1);
        assert_eq!(fused.len(), composed.len(), "{kind}");
        for ((name, fused), (_, composed)) in fused.iter().zip(&composed) {
            let each = fused.iter().zip(composed).map(|(a, b)| (a - b).abs() / (1.0 + b.abs()));
            let far = each.fold(0.0, f32::max);
            assert!(far < TOLERANCE, "{name}: {far} {kind}");
        }
    }
}

/// Large enough that buffers come from the pool, where they hold what was left in them.
#[test]
fn neither_used_buffers_nor_threads_change_a_bit() {
    for kind in KINDS {
        let model = model_of(64, kind, "none");
        let first = pass_over(&model, Path::Fused, 70);
        for threads in [1, 2, 4] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let again = pool.install(|| pass_over(&model, Path::Fused, 70));
            assert!(again == first, "{threads} threads {kind}");
        }
    }
}
