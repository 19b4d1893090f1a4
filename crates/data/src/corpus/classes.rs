//! The classes of a corpus: their names, and what a text of each counts.

use std::collections::{BTreeMap, BTreeSet};

use whatwhere_settings::Refuses;

use crate::{
    Error, Result,
    settings::{ClassWeights, Classify, WeightRule},
};

/// Classes in their order; none where nothing is classified.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Classes {
    pub(crate) names: Vec<String>,
    /// What a text counts in the training loss, by its class.
    pub(crate) weights: Vec<f32>,
}

impl Classes {
    /// The classes that the settings name, or those of the training data; `counts` are texts by label, where they are known.
    pub(super) fn new(
        settings: &Classify,
        found: &BTreeSet<&str>,
        counts: Option<&BTreeMap<&str, u64>>,
    ) -> Result<Self> {
        let names = match settings.classes.is_empty() {
            true => sorted(found),
            false => settings.classes.clone(),
        };
        let weights = weights(settings, &names, counts)?;
        Ok(Self { names, weights })
    }

    /// The number of a label.
    pub(super) fn number(&self, label: &str) -> Option<u32> {
        self.names.iter().position(|name| name == label).map(|class| class as u32)
    }

    /// Their names, as many as a message bears.
    pub(super) fn listed(&self) -> String {
        const SHOWN: usize = 10;
        let mut listed = self.names[..self.names.len().min(SHOWN)].join(", ");
        if self.names.len() > SHOWN {
            listed += &format!(" and {} more", self.names.len() - SHOWN);
        }
        listed
    }
}

/// By number where all are numbers, otherwise by name.
fn sorted(found: &BTreeSet<&str>) -> Vec<String> {
    let mut names: Vec<&str> = found.iter().copied().collect();
    let numbers: Option<Vec<i64>> = names.iter().map(|name| name.parse().ok()).collect();
    if numbers.is_some() {
        names.sort_by_key(|name| name.parse::<i64>().unwrap_or_default());
    }
    names.into_iter().map(str::to_owned).collect()
}

fn weights(
    settings: &Classify,
    names: &[String],
    counts: Option<&BTreeMap<&str, u64>>,
) -> Result<Vec<f32>> {
    const SETTING: &str = "objective.class_weights";
    match &settings.class_weights {
        ClassWeights::Rule(WeightRule::Even) => Ok(vec![1.0; names.len()]),
        ClassWeights::Rule(WeightRule::Balanced) => {
            let Some(counts) = counts else {
                let reason = "a task makes its examples as they are asked for, so that nobody has counted them; use numbers";
                return Err(Error::setting(SETTING, "balanced", reason));
            };
            let all: u64 = counts.values().sum();
            let weight = |name: &String| match counts.get(name.as_str()) {
                Some(texts) => (all as f64 / (names.len() as f64 * *texts as f64)) as f32,
                None => 1.0,
            };
            Ok(names.iter().map(weight).collect())
        }
        ClassWeights::Each(each) => {
            if let Some(unknown) = each.keys().find(|name| !names.contains(name)) {
                let reason =
                    format!("there is no such class; expected some of {}", names.join(", "));
                return Err(Error::setting(SETTING, format!("{unknown:?}"), reason));
            }
            Ok(names
                .iter()
                .map(|name| each.get(name).map_or(1.0, |weight| *weight as f32))
                .collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(settings: &Classify, labels: &[&str]) -> Result<Classes> {
        let mut counts = BTreeMap::new();
        labels.iter().for_each(|label| *counts.entry(*label).or_default() += 1);
        Classes::new(settings, &labels.iter().copied().collect(), Some(&counts))
    }

    #[test]
    fn numbers_are_sorted_as_numbers_and_words_as_words() {
        let none = Classify::default();
        assert_eq!(of(&none, &["10", "9", "-1"]).unwrap().names, ["-1", "9", "10"]);
        assert_eq!(of(&none, &["10", "9", "b"]).unwrap().names, ["10", "9", "b"]);
        let given = Classify { classes: vec!["b".into(), "a".into()], ..none };
        assert_eq!(of(&given, &["a", "b"]).unwrap().names, ["b", "a"]);
    }

    #[test]
    fn balanced_classes_count_the_same() {
        let balanced = ClassWeights::Rule(WeightRule::Balanced);
        let settings = Classify { class_weights: balanced, ..Default::default() };
        // As scikit-learn's compute_class_weight: 4 / (2 · 3) and 4 / (2 · 1).
        let classes = of(&settings, &["a", "a", "b", "a"]).unwrap();
        assert_eq!(classes.weights, [4.0 / 6.0, 2.0]);
        let each = ClassWeights::Each([("b".to_owned(), 3.0)].into());
        let settings = Classify { class_weights: each.clone(), ..Default::default() };
        assert_eq!(of(&settings, &["a", "b"]).unwrap().weights, [1.0, 3.0]);
        let message = of(&settings, &["a", "c"]).unwrap_err().to_string();
        assert!(
            message.contains("\"b\": there is no such class; expected some of a, c"),
            "{message}"
        );
    }
}
