//! The loss: how surprised a model is by the tokens that count.

use burn::tensor::{Device, Int, Tensor, activation};
use whatwhere_attention::Path;
use whatwhere_data::{Batch, Labels};
use whatwhere_transformer::{Mode, Model, Segments, Sequences, fused::Targets};

use crate::Error;

/// A batch on a device.
pub(crate) struct Loaded {
    tokens: Sequences,
    source: Option<Sequences>,
    /// Whether rows are told as classes, each from one pooled state.
    tells_classes: bool,
    /// Positions that count, as indices into `rows · length`; nothing if all do.
    counted: Option<Tensor<1, Int>>,
    /// The same as numbers; of classes the last position of each row, which has been read when the class is told.
    positions: Vec<usize>,
    /// Tokens of a row, padding included.
    length: usize,
    /// Targets of those positions: tokens, or classes.
    targets: Vec<u32>,
    /// Their weights; nothing if all are 1.
    weights: Option<Vec<f32>>,
    /// The sum of the weights.
    pub(crate) weight: f64,
    /// Tokens read, padding included.
    pub(crate) read: u64,
}

/// What a pass over a batch gives.
pub(crate) struct BatchLoss {
    /// The sum of the weighed losses, in nats, with label smoothing, `[1]`.
    pub(crate) loss: Tensor<1>,
    /// The same as a number.
    pub(crate) nats: f64,
    /// Positions that count whose target is the likeliest token.
    pub(crate) right: u64,
}

/// Sums over some positions.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Part {
    pub(crate) nats: f64,
    pub(crate) weight: f64,
    pub(crate) right: u64,
    pub(crate) positions: u64,
}

impl Part {
    /// As numbers that can be sent; counts below 2⁵³ stay what they are.
    pub(crate) fn figures(&self) -> [f64; 4] {
        [self.nats, self.weight, self.right as f64, self.positions as f64]
    }

    pub(crate) fn of([nats, weight, right, positions]: [f64; 4]) -> Self {
        Self { nats, weight, right: right as u64, positions: positions as u64 }
    }
}

impl std::ops::AddAssign for Part {
    fn add_assign(&mut self, other: Self) {
        self.nats += other.nats;
        self.weight += other.weight;
        self.right += other.right;
        self.positions += other.positions;
    }
}

/// The loss of `[positions, width]` states: one operation on the CPU, the framework's own on other backends and where the
/// composed path is asked for.
fn loss(model: &Model, hidden: Tensor<2>, targets: Targets, path: Path) -> BatchLoss {
    if path != Path::Composed
        && let Some((loss, sum)) = model.cross_entropy(hidden.clone(), targets)
    {
        return BatchLoss { loss, nats: sum.nats, right: sum.correct };
    }
    let logits = match &model.classifier {
        None => model.logits(hidden.unsqueeze_dim(0)).squeeze_dim::<2>(0),
        Some(_) => model.class_logits(hidden, path).expect("the model has classes"),
    };
    composed(logits, targets)
}

/// The loss of `[positions, vocabulary]` logits by the framework's operations.
fn composed(logits: Tensor<2>, targets: Targets) -> BatchLoss {
    let device = logits.device();
    let log_probabilities = activation::log_softmax(logits, 1);
    let tokens: Vec<i32> = targets.tokens.iter().map(|target| *target as i32).collect();
    let tokens = Tensor::<1, Int>::from_data(tokens.as_slice(), &device);
    let best = log_probabilities.clone().argmax(1).squeeze_dim::<1>(1);
    let right = best.equal(tokens.clone()).int().sum().into_scalar::<i64>() as u64;
    let aimed = log_probabilities.clone().gather(1, tokens.unsqueeze_dim(1));
    let mut each = aimed.squeeze_dim::<1>(1).neg();
    let smoothing = f64::from(targets.smoothing);
    if smoothing > 0.0 {
        let even = log_probabilities.mean_dim(1).squeeze_dim::<1>(1).neg();
        each = each * (1.0 - smoothing) + even * smoothing;
    }
    if let Some(weights) = targets.weights {
        each = each * Tensor::from_data(weights, &device);
    }
    let loss = each.sum();
    let nats = f64::from(loss.clone().into_scalar::<f32>());
    BatchLoss { loss, nats, right }
}

impl Loaded {
    pub(crate) fn new(batch: &Batch, model: &Model, device: &Device) -> Result<Self, Error> {
        let vocabulary = model.settings().vocabulary;
        let source = batch.source.iter().flat_map(|source| &source.tokens);
        let mut read = batch.tokens.iter().chain(source);
        if let Some(token) = read.find(|id| **id as usize >= vocabulary) {
            return Err(Error::Settings(format!(
                "token {token} is unknown to the model, whose vocabulary has {vocabulary}"
            )));
        }
        if batch.labels.is_some() != model.classifier.is_some() {
            return Err(Error::Settings(
                match model.classifier {
                    Some(_) => "the model tells classes, and these texts have no labels",
                    None => "these texts have labels, and the model knows no classes",
                }
                .into(),
            ));
        }
        if let Some(labels) = &batch.labels {
            return Self::labeled(batch, labels, model);
        }
        let all = batch.weights.iter().all(|weight| *weight == 1.0);
        let positions: Vec<usize> =
            (0..batch.targets.len()).filter(|position| batch.weights[*position] != 0.0).collect();
        if positions.is_empty() {
            return Err(Error::Settings("a batch without a target that counts".into()));
        }
        let ints = |values: Vec<i32>| Tensor::<1, Int>::from_data(values.as_slice(), device);
        let even = positions.iter().all(|position| batch.weights[*position] == 1.0);
        let weights: Vec<f32> = positions.iter().map(|position| batch.weights[*position]).collect();
        let mut tokens = Sequences::new(batch.tokens.clone(), batch.rows);
        tokens.lengths = Some(batch.lengths.clone());
        tokens.documents = Some(batch.documents.clone());
        tokens.prefixes = batch.prefixes.clone();
        Ok(Self {
            tokens,
            tells_classes: false,
            source: batch.source.as_ref().map(|source| {
                let mut sequences = Sequences::new(source.tokens.clone(), batch.rows);
                sequences.lengths = Some(source.lengths.clone());
                sequences
            }),
            counted: (!all)
                .then(|| ints(positions.iter().map(|position| *position as i32).collect())),
            targets: positions.iter().map(|position| batch.targets[*position]).collect(),
            weight: weights.iter().map(|weight| f64::from(*weight)).sum(),
            weights: (!even).then_some(weights),
            positions,
            length: batch.length,
            read: (batch.tokens.len() + batch.source.as_ref().map_or(0, |s| s.tokens.len())) as u64,
        })
    }

    /// Rows that are told as classes.
    fn labeled(batch: &Batch, labels: &Labels, model: &Model) -> Result<Self, Error> {
        let classes = model.settings().classes;
        if let Some(class) = labels.classes.iter().find(|class| **class as usize >= classes) {
            return Err(Error::Settings(format!(
                "class {class} is unknown to the model, which has {classes}"
            )));
        }
        let mut tokens = Sequences::new(batch.tokens.clone(), batch.rows);
        tokens.lengths = Some(batch.lengths.clone());
        tokens.documents = Some(batch.documents.clone());
        // Of a pair the second text has the second type, where a model has types.
        if model.settings().token_types > 1 {
            let row = |second: &usize| {
                let second = *second;
                (0..batch.length).map(move |at| u32::from(at >= second))
            };
            tokens.types = Some(labels.seconds.iter().flat_map(row).collect());
        }
        let even = labels.weights.iter().all(|weight| *weight == 1.0);
        let last = batch.lengths.iter().enumerate();
        Ok(Self {
            tokens,
            tells_classes: true,
            source: None,
            counted: None,
            positions: last.map(|(row, length)| row * batch.length + length - 1).collect(),
            targets: labels.classes.clone(),
            weight: labels.weights.iter().map(|weight| f64::from(*weight)).sum(),
            weights: (!even).then(|| labels.weights.clone()),
            length: batch.length,
            read: batch.tokens.len() as u64,
        })
    }

    /// Of every row the logits of the classes, and the number of its class after them.
    pub(crate) fn class_logits(&self, model: &Model) -> Result<Vec<f32>, Error> {
        let logits = model.classify(&self.tokens, Mode::default())?;
        let [_, classes] = logits.dims();
        let logits: Vec<f32> = logits.into_data().try_into_vec().expect("logits are f32");
        let rows = logits.chunks(classes).zip(&self.targets);
        // Exact: nobody has as many classes as f32 has whole numbers.
        Ok(rows.flat_map(|(logits, class)| logits.iter().copied().chain([*class as f32])).collect())
    }

    /// The loss of the batch, with the segments before it where a model remembers them.
    pub(crate) fn batch_loss(
        &self,
        model: &Model,
        segments: Option<&mut Segments>,
        mode: Mode,
        smoothing: f64,
    ) -> Result<BatchLoss, Error> {
        let hidden = self.hidden(model, segments, mode)?;
        let hidden = match &self.counted {
            None => hidden,
            Some(positions) => hidden.select(0, positions.clone()),
        };
        let targets = Targets {
            tokens: &self.targets,
            weights: self.weights.as_deref(),
            smoothing: smoothing as f32,
        };
        Ok(loss(model, hidden, targets, mode.path))
    }

    /// The loss of the batch, apart for positions of a row below each of `ends` and not below the one before.
    pub(crate) fn loss_by_position(
        &self,
        model: &Model,
        segments: Option<&mut Segments>,
        ends: &[usize],
    ) -> Result<Vec<Part>, Error> {
        let hidden = self.hidden(model, segments, Mode::default())?;
        let device = hidden.device();
        let mut parts = vec![Part::default(); ends.len()];
        let mut members: Vec<Vec<usize>> = vec![Vec::new(); ends.len()];
        for (index, position) in self.positions.iter().enumerate() {
            let part = ends.partition_point(|end| *end <= position % self.length);
            members[part.min(ends.len() - 1)].push(index);
        }
        for (part, members) in parts.iter_mut().zip(members) {
            if members.is_empty() {
                continue;
            }
            let row = |index: &usize| match self.tells_classes {
                true => *index as i32,
                false => self.positions[*index] as i32,
            };
            let rows: Vec<i32> = members.iter().map(row).collect();
            let rows = Tensor::<1, Int>::from_data(rows.as_slice(), &device);
            let tokens: Vec<u32> = members.iter().map(|index| self.targets[*index]).collect();
            let weights: Option<Vec<f32>> =
                self.weights.as_ref().map(|all| members.iter().map(|index| all[*index]).collect());
            let targets = Targets { tokens: &tokens, weights: weights.as_deref(), smoothing: 0.0 };
            let batch_loss =
                loss(model, hidden.clone().select(0, rows), targets, Mode::default().path);
            let weight = weights.map_or(tokens.len() as f64, |weights| {
                weights.iter().map(|weight| f64::from(*weight)).sum()
            });
            *part = Part {
                nats: batch_loss.nats,
                weight,
                right: batch_loss.right,
                positions: tokens.len() as u64,
            };
        }
        Ok(parts)
    }

    /// The last layer's states, `[rows · length, width]`; those of rows that are told as classes pooled, `[rows, width]`.
    fn hidden(
        &self,
        model: &Model,
        segments: Option<&mut Segments>,
        mode: Mode,
    ) -> Result<Tensor<2>, Error> {
        if self.tells_classes {
            return Ok(model.pooled(&self.tokens, mode)?);
        }
        let hidden = match segments {
            Some(segments) => model.segment(&self.tokens, segments, mode)?,
            None => model.hidden(self.source.as_ref(), &self.tokens, mode)?,
        };
        let [rows, length, width] = hidden.dims();
        Ok(hidden.reshape([rows * length, width]))
    }
}

#[cfg(test)]
mod tests {
    use whatwhere_attention::Position;
    use whatwhere_data::{Batches, Corpus, Split};

    use super::*;
    use crate::finetune::Trainable;
    use crate::{
        RunSettings,
        optimizer::{GradientBuffers, Optimizer, OptimizerState},
        trainer,
    };

    fn loaded(family: &str, position: &str) -> (Model, Loaded, Device) {
        loaded_with(family, position, "")
    }

    fn loaded_with(family: &str, position: &str, model: &str) -> (Model, Loaded, Device) {
        let source = match family {
            "encoder_decoder" => "source = 'reverse'\nobjective = 'translate'",
            "encoder" => "objective = { kind = 'masked', share = 0.3 }\ntokenizer = 'characters'",
            _ => "tokenizer = 'characters'",
        };
        let attention = match position {
            "" => String::new(),
            position => format!("[model.attention]\nheads = 2\nposition = '{position}'\n"),
        };
        let text = format!(
            "[data]\n{source}\n[model]\nfamily = '{family}'\nwidth = 32\nlayers = 2\n{model}\n\
             {attention}[training]\nbatch = 4\nlength = 24"
        );
        let mut settings = RunSettings::read(&text, &[]).unwrap();
        let corpus = match family {
            "encoder_decoder" => Corpus::load(&settings.data).unwrap(),
            // No character comes twice, so that each can be known by its neighbours.
            _ => {
                let text = (0xAC00..0xAC00 + 300).filter_map(char::from_u32).collect();
                settings.data.valid_share = 0.0;
                Corpus::from_texts(vec![text], &settings.data).unwrap()
            }
        };
        settings.resolve(corpus.vocabulary()).unwrap();
        let device = Device::flex().autodiff();
        let model = settings.model.build(1, &device).unwrap();
        let batches: Batches = trainer::batches(&settings, &corpus, Split::Train).unwrap();
        let loaded = Loaded::new(&batches.get(0).unwrap(), &model, &device).unwrap();
        (model, loaded, device)
    }

    #[test]
    fn one_batch_can_be_overfitted_by_every_family_with_every_encoding() {
        for family in ["decoder", "encoder", "encoder_decoder"] {
            for position in Position::NAMES {
                let (mut model, loaded, _) = loaded(family, position);
                let mut optimizer = OptimizerState::new(Optimizer::default());
                let mut loss = f64::INFINITY;
                for step in 1..=600 {
                    let batch_loss = loaded.batch_loss(&model, None, Mode::default(), 0.0).unwrap();
                    loss = batch_loss.nats / loaded.weight;
                    if loss < 0.05 {
                        break;
                    }
                    let mut gradients = GradientBuffers::default();
                    gradients.add(&model, batch_loss.loss.backward(), &Trainable::default());
                    gradients.scale(1.0 / loaded.weight);
                    model = {
                        let all = &mut Trainable::default();
                        optimizer.update(model, &gradients, all, 5e-3, step)
                    };
                }
                // An encoder that cannot tell order cannot know which blank is which, and with the single angle, the same
                // to the left and to the right and nearly flat over 24 positions, it takes thousands of updates.
                let blind = family == "encoder" && ["none", "single_angle"].contains(position);
                assert_eq!(loss < 0.05, !blind, "{family} {position}: {loss}");
            }
        }
    }

    #[test]
    fn one_batch_can_be_overfitted_by_every_recurrence() {
        let attends = ["attends = 'before'", "attends = 'after'\ninput_feeding = true"];
        for (family, more) in [("decoder", ""), ("encoder", "bidirectional = true")]
            .into_iter()
            .chain(attends.map(|attends| ("encoder_decoder", attends)))
        {
            for cell in ["gru", "lstm"] {
                let model = format!("recurrent = '{cell}'\n{more}");
                let (mut model, loaded, _) = loaded_with(family, "", &model);
                let mut optimizer = OptimizerState::new(Optimizer::default());
                let mut loss = f64::INFINITY;
                for step in 1..=600 {
                    let batch_loss = loaded.batch_loss(&model, None, Mode::default(), 0.0).unwrap();
                    loss = batch_loss.nats / loaded.weight;
                    if loss < 0.05 {
                        break;
                    }
                    let mut gradients = GradientBuffers::default();
                    gradients.add(&model, batch_loss.loss.backward(), &Trainable::default());
                    gradients.scale(1.0 / loaded.weight);
                    let all = &mut Trainable::default();
                    model = optimizer.update(model, &gradients, all, 5e-3, step);
                }
                assert!(loss < 0.05, "{cell} {family} {more}: {loss}");
            }
        }
    }

    /// Expressions with their values as classes.
    fn labeled(model: &str) -> (Model, Loaded) {
        let text = format!(
            "[data]\nsource = {{ kind = 'listops', shortest = 4, longest = 30, depth = 3 }}\n\
             objective = {{ kind = 'classify', class_weights = {{ 3 = 2.0, 7 = 0.5 }} }}\n\
             [model]\nwidth = 32\nlayers = 2\n{model}\nattention.heads = 2\n\
             [training]\nbatch = 12\nlength = 32"
        );
        let mut settings = RunSettings::read(&text, &[]).unwrap();
        let corpus = Corpus::load(&settings.data).unwrap();
        settings.resolve_for(&corpus).unwrap();
        let device = Device::flex().autodiff();
        let model = settings.model.build(1, &device).unwrap();
        let batches: Batches = trainer::batches(&settings, &corpus, Split::Train).unwrap();
        let loaded = Loaded::new(&batches.get(0).unwrap(), &model, &device).unwrap();
        (model, loaded)
    }

    const TELLING: [&str; 5] = [
        "family = 'encoder'\npooling = 'mean'",
        "family = 'encoder'\npooling = 'first'",
        "family = 'encoder'\npooling = 'last'",
        "family = 'decoder'\npooling = 'mean'",
        "family = 'decoder'\npooling = 'last'",
    ];

    #[test]
    fn one_batch_of_classes_can_be_overfitted_with_every_pooling() {
        for kind in TELLING {
            let (mut model, loaded) = labeled(kind);
            let mut optimizer = OptimizerState::new(Optimizer::default());
            let mut loss = f64::INFINITY;
            for step in 1..=300 {
                let batch_loss = loaded.batch_loss(&model, None, Mode::default(), 0.0).unwrap();
                loss = batch_loss.nats / loaded.weight;
                if loss < 0.05 {
                    break;
                }
                let mut gradients = GradientBuffers::default();
                gradients.add(&model, batch_loss.loss.backward(), &Trainable::default());
                gradients.scale(1.0 / loaded.weight);
                let all = &mut Trainable::default();
                model = optimizer.update(model, &gradients, all, 5e-3, step);
            }
            assert!(loss < 0.05, "{kind}: {loss}");
        }
    }

    #[test]
    fn fused_and_composed_losses_of_classes_agree() {
        for kind in TELLING {
            let (model, loaded) = labeled(kind);
            assert!(loaded.weights.is_some(), "some classes count more");
            for smoothing in [0.0, 0.1] {
                let [fused, composed] = [Path::Fused, Path::Composed].map(|path| {
                    let mode = Mode { path, seed: None };
                    let batch_loss = loaded.batch_loss(&model, None, mode, smoothing).unwrap();
                    let gradients = batch_loss.loss.backward();
                    let d = model.embedding.weight.val().grad(&gradients).unwrap();
                    (batch_loss.nats, batch_loss.right, d.into_data().try_to_vec::<f32>().unwrap())
                });
                assert!((fused.0 - composed.0).abs() < 1e-3, "{} {}", fused.0, composed.0);
                assert_eq!(fused.1, composed.1);
                for (a, b) in fused.2.iter().zip(&composed.2) {
                    assert!((a - b).abs() < 1e-3, "{kind}: {a} {b}");
                }
            }
        }
    }

    #[test]
    fn fused_and_composed_losses_agree() {
        let outputs = [
            "",
            "output_bias = true\noutput_soft_cap = 0.3",
            "output_transform = true\ntied = false",
            "embedding_width = 8\noutput_soft_cap = 2.0",
        ];
        let families = ["decoder", "encoder", "encoder_decoder"];
        for (family, output) in families.iter().flat_map(|f| outputs.map(|output| (f, output))) {
            let (model, loaded, _) = loaded_with(family, "rotary", output);
            for smoothing in [0.0, 0.1] {
                let [fused, composed] = [Path::Fused, Path::Composed].map(|path| {
                    let mode = Mode { path, seed: None };
                    let batch_loss = loaded.batch_loss(&model, None, mode, smoothing).unwrap();
                    let gradients = batch_loss.loss.backward();
                    let d = model.embedding.weight.val().grad(&gradients).unwrap();
                    (batch_loss.nats, batch_loss.right, d.into_data().try_to_vec::<f32>().unwrap())
                });
                assert!((fused.0 - composed.0).abs() < 1e-3, "{} {}", fused.0, composed.0);
                assert_eq!(fused.1, composed.1);
                for (a, b) in fused.2.iter().zip(&composed.2) {
                    assert!((a - b).abs() < 1e-3, "{family}: {a} {b}");
                }
            }
        }
    }
}
