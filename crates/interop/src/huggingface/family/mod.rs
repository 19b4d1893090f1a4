//! One file for each family: from `config.json` to our settings, and the table of names.

mod bart;
mod bert;
mod bloom;
mod deberta;
mod gemma;
mod gpt2;
mod llama;
mod modernbert;
mod mpt;
mod olmo;
mod opt;
mod parallel;
mod refused;
mod t5;
mod xlnet;

use std::collections::BTreeSet;

use whatwhere_transformer::ModelSettings;

use super::{config::Config, settings::Settings};
use crate::{Error, error::Result, table::Names};

/// What is known of a family.
#[derive(Clone, Copy)]
pub(crate) struct Family {
    /// The `model_type`s it has.
    pub(crate) types: &'static [&'static str],
    /// What the names of a whole model begin with, and those of a model without a head do not.
    pub(crate) prefix: &'static str,
    pub(crate) settings: fn(&Config) -> Result<Settings>,
    pub(crate) names: fn(&Config) -> Result<Names>,
}

/// All of them.
pub(crate) const FAMILIES: &[Family] = &[
    bart::BART,
    bart::M2M100,
    bart::MARIAN,
    bart::MBART,
    bart::PEGASUS,
    bert::ALBERT,
    bert::BERT,
    bert::DISTILBERT,
    bert::LONGFORMER,
    bert::ROBERTA,
    bert::ROFORMER,
    bloom::FAMILY,
    deberta::FAMILY,
    gemma::GEMMA,
    gemma::GEMMA2,
    gemma::GEMMA3,
    gpt2::FAMILY,
    llama::LLAMA,
    llama::MISTRAL,
    llama::PHI3,
    llama::QWEN2,
    llama::QWEN3,
    modernbert::FAMILY,
    mpt::FAMILY,
    olmo::OLMO,
    olmo::OLMO2,
    opt::FAMILY,
    parallel::GPTJ,
    parallel::NEOX,
    parallel::PHI,
    parallel::STABLELM,
    t5::FAMILY,
    xlnet::FAMILY,
];

/// The family of a model.
pub(crate) fn find(config: &Config) -> Result<Family> {
    let name = config.model_type()?;
    let known = FAMILIES.iter().find(|family| family.types.contains(&name.as_str()));
    if let Some(family) = known {
        return Ok(*family);
    }
    if let Some(reason) = refused::reason(&name) {
        return Err(Error::Refused(format!("model_type {name} is not imported: it is {reason}")));
    }
    let mut known: Vec<&str> = FAMILIES.iter().flat_map(|family| family.types).copied().collect();
    known.sort_unstable();
    let known = known.join(", ");
    Err(Error::Refused(format!("model_type {name} is not known; known are {known}")))
}

/// Why a family is refused by name, if it is.
pub(crate) fn refusal(name: &str) -> Option<&'static str> {
    refused::reason(name)
}

/// The class of transformers that reads a family with its head.
pub(crate) fn class(model_type: &str) -> Option<&'static str> {
    const CLASSES: &[(&str, &str)] = &[
        ("albert", "AlbertForMaskedLM"),
        ("bart", "BartForConditionalGeneration"),
        ("bert", "BertForMaskedLM"),
        ("bloom", "BloomForCausalLM"),
        ("camembert", "CamembertForMaskedLM"),
        ("deberta-v2", "DebertaV2ForMaskedLM"),
        ("distilbert", "DistilBertForMaskedLM"),
        ("gemma", "GemmaForCausalLM"),
        ("gemma2", "Gemma2ForCausalLM"),
        ("gemma3_text", "Gemma3ForCausalLM"),
        ("gpt2", "GPT2LMHeadModel"),
        ("gpt_neox", "GPTNeoXForCausalLM"),
        ("gptj", "GPTJForCausalLM"),
        ("llama", "LlamaForCausalLM"),
        ("longformer", "LongformerForMaskedLM"),
        ("m2m_100", "M2M100ForConditionalGeneration"),
        ("marian", "MarianMTModel"),
        ("mbart", "MBartForConditionalGeneration"),
        ("mistral", "MistralForCausalLM"),
        ("modernbert", "ModernBertForMaskedLM"),
        ("mpt", "MptForCausalLM"),
        ("mt5", "MT5ForConditionalGeneration"),
        ("olmo", "OlmoForCausalLM"),
        ("olmo2", "Olmo2ForCausalLM"),
        ("opt", "OPTForCausalLM"),
        ("pegasus", "PegasusForConditionalGeneration"),
        ("phi", "PhiForCausalLM"),
        ("phi3", "Phi3ForCausalLM"),
        ("qwen2", "Qwen2ForCausalLM"),
        ("qwen3", "Qwen3ForCausalLM"),
        ("roberta", "RobertaForMaskedLM"),
        ("roformer", "RoFormerForMaskedLM"),
        ("stablelm", "StableLmForCausalLM"),
        ("t5", "T5ForConditionalGeneration"),
        ("xlm-roberta", "XLMRobertaForMaskedLM"),
        ("xlnet", "XLNetLMHeadModel"),
    ];
    CLASSES.iter().find(|(name, _)| *name == model_type).map(|(_, class)| *class)
}

/// Names of tensors by which families know what a head has: those that a model of these settings would be written with.
pub(crate) fn heads(settings: &ModelSettings) -> BTreeSet<String> {
    let transforms = [
        "cls.predictions.transform.dense.weight",
        "lm_head.dense.weight",
        "lm_predictions.lm_head.dense.weight",
        "vocab_transform.weight",
        "predictions.dense.weight",
        "head.dense.weight",
    ];
    let biases = [
        "cls.predictions.bias",
        "lm_head.bias",
        "lm_predictions.lm_head.bias",
        "vocab_projector.bias",
        "predictions.bias",
        "decoder.bias",
        "lm_loss.bias",
        "final_logits_bias",
    ];
    let mut all = BTreeSet::new();
    all.extend(transforms.map(String::from).into_iter().filter(|_| settings.output_transform));
    all.extend(biases.map(String::from).into_iter().filter(|_| settings.output_bias));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_family_has_a_class() {
        for name in FAMILIES.iter().flat_map(|family| family.types) {
            assert!(class(name).is_some(), "{name}");
        }
    }

    #[test]
    fn no_name_is_of_two_families() {
        let mut names: Vec<&str> =
            FAMILIES.iter().flat_map(|family| family.types).copied().collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
        assert!(names.iter().all(|name| refused::reason(name).is_none()));
    }
}
