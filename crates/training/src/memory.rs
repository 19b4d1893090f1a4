//! Memory of a run: estimated from its settings before a model is made, and what the machine has.
//!
//! Weights, their gradients and what the optimizer remembers are counted; what a step keeps for its backward pass follows from
//! the sublayers' operations, each of which keeps its input, its norm's output and what it cannot form again.

use std::fs;

use serde::Serialize;
use whatwhere_attention::{AttentionSettings, Position};
use whatwhere_data::{BatchSize, TokenizerSettings};
use whatwhere_kernels::Precision;
use whatwhere_transformer::{Family, ModelSettings, NormPlace, Recompute, Site};

use crate::{Error, RunSettings};

/// Bytes of a value.
const VALUE: f64 = 4.0;
/// Values of logits that the loss holds at once.
const HELD: f64 = (1 << 25) as f64;
/// The program, its threads and buffers that do not grow with the model, in bytes; measured.
const PROGRAM: f64 = 52e6;
/// What encodings that ask keys take for each pair of a layer's query and key, kept and beside it, in values, and whatever the
/// framework's operations take for themselves, in bytes; measured.
const ASKED: [f64; 2] = [3.0, 2.5];
const FRAMEWORK: f64 = 25e6;
/// What a mixing with gates keeps for each channel that positions rotate, and for each that they add; measured.
const ROTATED: [f64; 2] = [1.5, 8.0];

/// An estimate in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Memory {
    /// Learned values, a number.
    pub parameters: u64,
    /// The learned values, and of those that adapters adapt what they were.
    pub weights: u64,
    /// Their gradients, and sums of them that wait for those of more batches.
    pub gradients: u64,
    /// What the optimizer remembers of them.
    pub optimizer: u64,
    /// What a step keeps for its backward pass, and needs beside it.
    pub activations: u64,
    /// The program itself.
    pub program: u64,
    /// All of it: the most at one time.
    pub total: u64,
}

impl Memory {
    /// Of training with these settings; data are not counted. A vocabulary that only data can tell is taken as 256.
    pub fn of(settings: &RunSettings) -> Result<Self, Error> {
        Self::of_rank(settings, 1)
    }

    /// [`Self::of`], of each of so many ranks: what the optimizer remembers is divided among them.
    pub fn of_rank(settings: &RunSettings, ranks: usize) -> Result<Self, Error> {
        let mut settings = settings.clone();
        let model = &mut settings.model;
        if model.vocabulary == 0 {
            model.vocabulary = match settings.data.tokenizer() {
                TokenizerSettings::Bpe(bpe) => bpe.vocabulary,
                _ => 256,
            };
        }
        let parameters = model.parameter_count()?;
        let each = parameters as f64 * VALUE;
        let [copies, updated] = match &settings.training.lora {
            Some(lora) => lora.sizes(&settings.model.shapes()?).map(|size| size as f64 * VALUE),
            None => [0.0, each],
        };
        let slots = settings.training.optimizer.slots() as f64;
        let activations = VALUE * activations(&settings)?;
        // Sums over blocks of 1, 2, 4, … batches that wait for the next: the update's tree.
        let batches = settings.training.accumulate.div_ceil(ranks as u64).max(1);
        let gradients = each * f64::from(1 + batches.ilog2());
        let weights = each + copies;
        let optimizer = updated * slots / ranks as f64;
        let total = weights + gradients + optimizer + activations + PROGRAM;
        Ok(Self {
            parameters,
            weights: weights as u64,
            gradients: gradients as u64,
            optimizer: optimizer as u64,
            activations: activations as u64,
            program: PROGRAM as u64,
            total: total as u64,
        })
    }

    /// Refuses a run that needs more than there is, where the system says how much.
    pub fn check(&self) -> Result<(), Error> {
        match available() {
            Some(available) if self.total > available => {
                Err(Error::Memory { needed: self.total, available, parameters: self.parameters })
            }
            _ => Ok(()),
        }
    }
}

/// Values that a step keeps, and the most it needs beside them.
fn activations(settings: &RunSettings) -> Result<f64, Error> {
    let model = &settings.model;
    let length = settings.training.length as f64;
    let tokens = match settings.training.batch {
        BatchSize::Rows(rows) => rows as f64 * length,
        BatchSize::Tokens { tokens } => tokens as f64,
    };
    let (width, inner) = (model.width as f64, model.feed_forward_width() as f64);
    let gates = if model.is_gated() { 2.0 } else { 1.0 };
    // What the norm of a sublayer's output is given.
    let outputs = if model.norm_place == NormPlace::Both { width } else { 0.0 };
    // Embeddings, the last norm, and the loss with its gradient.
    let mut kept = 4.0 * width;
    if model.output_transform {
        kept += 4.0 * model.output_channels() as f64;
    }
    let mut most: f64 = 0.0;
    let mut asks: f64 = 0.0;
    let mut has_gates = false;
    let mut sites = Vec::new();
    sites.extend((0..model.encoder_depth()).map(|layer| (Site::Encoder, layer)));
    for layer in 0..model.decoder_depth() {
        sites.push((Site::Decoder, layer));
        if model.family == Family::EncoderDecoder {
            sites.push((Site::Cross, layer));
        }
    }
    for (site, layer) in sites {
        let attention = model.attention(site, layer)?;
        let compared = compared(&attention)?;
        let formed = of_attention(model, &attention, site, compared + outputs);
        if attention.position.iter().any(Position::asks_keys) {
            asks = asks.max(attention.heads as f64 * length);
            kept += ASKED[0] * attention.heads as f64 * length;
        }
        has_gates |= attention.mixing.is_causal();
        // What comes out of a sublayer, and its gradient.
        kept += 2.0 * width + formed.kept;
        most = most.max(2.0 * width + compared + formed.again);
        if site != Site::Cross {
            let formed =
                Formed::of(width + gates * inner + outputs, model.recompute == Recompute::Block);
            kept += 2.0 * width + formed.kept;
            most = most.max(2.0 * width + (1.0 + gates) * inner + formed.again);
        }
    }
    for [more, beside] in model.recurrent_activations() {
        kept += more as f64;
        most = most.max(beside as f64);
    }
    // Without instructions for bf16 products are of rounded copies, those of the vocabulary the largest.
    let training = &settings.training;
    let copies = match (training.precision, training.precision.means()) {
        (Precision::Bf16, None) => {
            let vocabulary = model.vocabulary as f64;
            (tokens * vocabulary).min(HELD) + vocabulary * model.output_channels() as f64
        }
        _ => 0.0,
    };
    // The embeddings' gradient has two parts where the output shares them.
    let table =
        if model.tied { (model.vocabulary * model.embedding_channels()) as f64 } else { 0.0 };
    let framework = if asks > 0.0 || has_gates { FRAMEWORK / VALUE } else { 0.0 };
    Ok(tokens * (kept + most + ASKED[1] * asks) + table + copies + framework)
}

/// Values for each token between the input and the output of a sublayer: kept, or formed again by its backward pass.
struct Formed {
    kept: f64,
    again: f64,
}

impl Formed {
    fn of(values: f64, recomputes: bool) -> Self {
        match recomputes {
            false => Self { kept: values, again: 0.0 },
            true => Self { kept: 0.0, again: values },
        }
    }
}

fn of_attention(
    model: &ModelSettings,
    attention: &AttentionSettings,
    site: Site,
    compared: f64,
) -> Formed {
    let width = model.width as f64;
    let is_one_operation = site != Site::Cross && model.segment_memory == 0 && attention.is_plain();
    match is_one_operation {
        true => Formed::of(width + compared, model.recompute != Recompute::None),
        // Each step is an operation of its own: projections before and after they are split into heads.
        false => {
            let mut formed = Formed::of(3.0 * width + 2.0 * compared, false);
            let turns = |heads| attention.position.iter().any(|position| position.rotates(&heads));
            if attention.mixing.is_causal() {
                // Gates, what positions turned, and what a norm is made of.
                formed.kept += compared;
                if let Ok(heads) = attention.sizes() {
                    let turning = attention.position.iter().filter(|p| p.rotates(&heads));
                    let more: usize = turning.clone().map(|p| p.extra_channels(&heads)).sum();
                    let any =
                        if turning.count() > 0 { 2 * heads.heads * heads.head_dim } else { 0 };
                    formed.kept += ROTATED[0] * any as f64 + ROTATED[1] * more as f64;
                }
            } else if !attention.mixing.has_scores() && attention.sizes().is_ok_and(turns) {
                // Features before and after they are turned, and their gradients.
                formed.again += 2.0 * compared;
            }
            formed
        }
    }
}

/// Queries, keys, values and what is mixed of them.
fn compared(attention: &AttentionSettings) -> Result<f64, Error> {
    let heads = attention.sizes().map_err(whatwhere_transformer::Error::from)?;
    Ok((2 * (heads.heads + heads.kv_heads) * heads.head_dim + heads.heads) as f64)
}

/// The machine's memory, or what a container or a group of processes may use of it, in bytes.
pub fn available() -> Option<u64> {
    let machine = fs::read_to_string("/proc/meminfo").ok().as_deref().and_then(of_meminfo);
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    group_limits(&groups, |path| fs::read_to_string(path).ok()).into_iter().chain(machine).min()
}

fn of_meminfo(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// Limits of the process's groups and of those around them; version 2 says `max` where there is none.
fn group_limits(groups: &str, read: impl Fn(&str) -> Option<String>) -> Vec<u64> {
    let mut limits = Vec::new();
    for line in groups.lines() {
        // `0::/user.slice`, or `4:memory:/docker/1f`.
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(kinds), Some(path)) = (parts.next(), parts.next()) else { continue };
        let (root, file) = match kinds {
            "" => ("/sys/fs/cgroup", "memory.max"),
            kinds if kinds.split(',').any(|kind| kind == "memory") => {
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => continue,
        };
        let mut path = path.trim_end_matches('/');
        loop {
            let limit = read(&format!("{root}{path}/{file}"));
            limits.extend(limit.and_then(|limit| limit.trim().parse::<u64>().ok()));
            let Some((outer, _)) = path.rsplit_once('/') else { break };
            path = outer;
        }
    }
    limits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_groups_and_of_the_groups_around_them_count() {
        let read = |path: &str| match path {
            "/sys/fs/cgroup/a/b/memory.max" => Some("max\n".to_owned()),
            "/sys/fs/cgroup/a/memory.max" => Some("5000\n".into()),
            "/sys/fs/cgroup/memory/c/memory.limit_in_bytes" => Some("7000\n".into()),
            _ => None,
        };
        assert_eq!(group_limits("0::/a/b\n", read), [5000]);
        assert_eq!(group_limits("3:cpu,memory:/c/d\n2:cpuset:/a\n", read), [7000]);
        assert_eq!(group_limits("0::/\n", read), [0; 0]);
    }

    #[test]
    fn the_machine_says_what_it_has() {
        assert_eq!(of_meminfo("MemTotal:       16 kB\nMemFree:  2 kB\n"), Some(16384));
        if cfg!(target_os = "linux") {
            assert!(available().is_some_and(|bytes| bytes > 1 << 20));
        }
    }
}
