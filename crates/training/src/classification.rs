//! Figures of who tells classes: accuracy, F1, confusion and calibration, from logits and true classes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Evaluation;

/// Which figure of a validation is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BestBy {
    /// The lowest loss.
    #[default]
    Loss,
    /// The highest share of right predictions.
    Accuracy,
    /// The highest mean of the classes' F1, for `classify`; rare classes count as much as others.
    MacroF1,
}

impl BestBy {
    /// The figure.
    pub fn of(self, evaluation: &Evaluation) -> f64 {
        match self {
            Self::Loss => evaluation.loss,
            Self::Accuracy => evaluation.accuracy,
            Self::MacroF1 => evaluation.macro_f1.unwrap_or(0.0),
        }
    }

    /// Whether a figure is better than another.
    pub fn is_better(self, figure: f64, than: f64) -> bool {
        match self {
            Self::Loss => figure < than,
            Self::Accuracy | Self::MacroF1 => figure > than,
        }
    }

    /// Its name in settings.
    pub fn name(self) -> &'static str {
        match self {
            Self::Loss => "loss",
            Self::Accuracy => "accuracy",
            Self::MacroF1 => "macro_f1",
        }
    }
}

/// How well classes are told apart.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Classification {
    /// Texts.
    pub texts: u64,
    /// Nats per text.
    pub loss: f64,
    /// Share of texts whose class is the likeliest.
    pub accuracy: f64,
    /// Half of the 95 % confidence interval of the accuracy, over texts drawn anew (Wilson's, which has a width at 1, too).
    pub margin: f64,
    /// Mean of the F1 of classes that occur or were given, as scikit-learn's.
    pub macro_f1: f64,
    /// Expected calibration error: how far the probability of the likeliest class is from the share of right answers, over
    /// texts of like probability ([`BINS`]). Guo et al. 2017, <https://arxiv.org/abs/1706.04599>.
    pub calibration_error: f64,
    /// Figures of each class.
    pub classes: Vec<ClassFigures>,
    /// Texts by their class (row) and the likeliest (column).
    pub confusion: Vec<Vec<u64>>,
}

/// Figures of one class; 0 where nothing is divided by nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClassFigures {
    /// Its name.
    pub class: String,
    /// Of texts that were told as this class, the share that is.
    pub precision: f64,
    /// Of texts of this class, the share that was told.
    pub recall: f64,
    /// The harmonic mean of both.
    pub f1: f64,
    /// Texts of this class.
    pub texts: u64,
}

/// Ranges of probability of one width, for the calibration error.
pub const BINS: usize = 15;

/// What is counted, text by text.
#[derive(Clone, Debug)]
pub struct Tally {
    classes: usize,
    nats: f64,
    /// Row by row.
    confusion: Vec<u64>,
    bins: [Bin; BINS],
}

#[derive(Clone, Copy, Debug, Default)]
struct Bin {
    texts: u64,
    right: u64,
    probability: f64,
}

impl Tally {
    /// Of so many classes.
    pub fn new(classes: usize) -> Self {
        let confusion = vec![0; classes * classes];
        Self { classes, nats: 0.0, confusion, bins: [Bin::default(); BINS] }
    }

    /// Counts a text by its logits and its class.
    ///
    /// # Panics
    /// If there are other classes than were told of.
    pub fn add(&mut self, logits: &[f32], class: usize) {
        assert_eq!(logits.len(), self.classes, "a logit for each class");
        let probabilities = probabilities(logits);
        let told = likeliest(&probabilities);
        let peak = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum: f64 = logits.iter().map(|logit| f64::from(logit - peak).exp()).sum();
        self.nats += sum.ln() - f64::from(logits[class] - peak);
        self.confusion[class * self.classes + told] += 1;
        // A range has its upper end, so that certainty belongs to the last.
        let place = (probabilities[told] * BINS as f64).ceil() as usize;
        let bin = &mut self.bins[place.clamp(1, BINS) - 1];
        bin.texts += 1;
        bin.right += u64::from(told == class);
        bin.probability += probabilities[told];
    }

    /// Texts counted.
    pub fn texts(&self) -> u64 {
        self.confusion.iter().sum()
    }

    /// The figures, with the classes' names; not numbers if nothing was counted.
    pub fn figures(&self, names: &[String]) -> Classification {
        let texts = self.texts();
        let rows = || self.confusion.chunks(self.classes.max(1));
        let right: u64 = rows().enumerate().map(|(class, row)| row[class]).sum();
        let accuracy = right as f64 / texts as f64;
        let class_figures = |class: usize| {
            let is = rows().nth(class).map_or(0, |row| row.iter().sum());
            let told: u64 = rows().map(|row| row[class]).sum();
            let both = self.confusion[class * self.classes + class];
            let share = |part: u64, of: u64| if of == 0 { 0.0 } else { part as f64 / of as f64 };
            ClassFigures {
                class: names.get(class).cloned().unwrap_or_else(|| class.to_string()),
                precision: share(both, told),
                recall: share(both, is),
                f1: share(2 * both, is + told),
                texts: is,
            }
        };
        let classes: Vec<ClassFigures> = (0..self.classes).map(class_figures).collect();
        let occurs = |class: usize| classes[class].texts > 0 || rows().any(|row| row[class] > 0);
        let scores: Vec<f64> = (0..self.classes)
            .filter(|class| occurs(*class))
            .map(|class| classes[class].f1)
            .collect();
        let off = |bin: &Bin| (bin.right as f64 - bin.probability).abs() / texts as f64;
        Classification {
            texts,
            loss: self.nats / texts as f64,
            accuracy,
            margin: wilson(accuracy, texts as f64),
            macro_f1: scores.iter().sum::<f64>() / scores.len() as f64,
            calibration_error: self.bins.iter().map(off).sum(),
            classes,
            confusion: rows().map(<[u64]>::to_vec).collect(),
        }
    }

    /// The figures that all evaluations have.
    pub fn evaluation(&self) -> Evaluation {
        self.figures(&[]).evaluation()
    }
}

impl Classification {
    /// The figures that all evaluations have.
    pub fn evaluation(&self) -> Evaluation {
        Evaluation {
            loss: self.loss,
            perplexity: self.loss.exp(),
            bits_per_byte: None,
            accuracy: self.accuracy,
            tokens: self.texts,
            macro_f1: Some(self.macro_f1),
            calibration_error: Some(self.calibration_error),
        }
    }
}

/// Half of Wilson's 95 % interval of a share of so many.
fn wilson(share: f64, count: f64) -> f64 {
    const Z: f64 = 1.959_963_984_540_054;
    let spread = share * (1.0 - share) / count + (Z / (2.0 * count)).powi(2);
    Z / (1.0 + Z * Z / count) * spread.sqrt()
}

/// Probabilities of logits.
pub(crate) fn probabilities(logits: &[f32]) -> Vec<f64> {
    let peak = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let powers: Vec<f64> = logits.iter().map(|logit| f64::from(logit - peak).exp()).collect();
    let sum: f64 = powers.iter().sum();
    powers.into_iter().map(|power| power / sum).collect()
}

/// The first of the likeliest classes.
pub(crate) fn likeliest(probabilities: &[f64]) -> usize {
    let better = |best: usize, class: usize| {
        if probabilities[class] > probabilities[best] { class } else { best }
    };
    (0..probabilities.len()).fold(0, better)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Logits of ten texts over four classes, the last of which neither occurs nor is told, with their classes.
    const TEXTS: [([f32; 4], usize); 10] = [
        ([2.0, 0.5, -1.0, -3.0], 0),
        ([0.1, 0.2, 0.0, -2.0], 1),
        ([-1.0, 3.0, 0.5, -1.0], 1),
        ([1.5, 1.4, 0.3, -4.0], 1),
        ([0.0, -0.5, 2.5, 0.2], 2),
        ([0.3, 0.1, 0.2, -1.5], 2),
        ([4.0, -1.0, 0.0, -2.0], 0),
        ([-0.2, 0.9, 0.8, 0.1], 2),
        ([0.7, 0.6, -0.5, -0.4], 0),
        ([-2.0, 1.0, 1.2, -1.0], 1),
    ];

    fn tally() -> Tally {
        let mut tally = Tally::new(4);
        TEXTS.iter().for_each(|(logits, class)| tally.add(logits, *class));
        tally
    }

    /// By scikit-learn 1.9.1 (accuracy_score, f1_score with average="macro", precision_recall_fscore_support, log_loss,
    /// confusion_matrix) and, for the calibration error, by NumPy from the paper's formula.
    #[test]
    fn figures_are_those_of_scikit_learn() {
        let names: Vec<String> = ["a", "b", "c", "d"].map(String::from).into();
        let figures = tally().figures(&names);
        let expected = EXPECTED;
        let close = |a: f64, b: f64| assert!((a - b).abs() < 1e-7, "{a} {b}");
        close(figures.accuracy, expected.accuracy);
        close(figures.macro_f1, expected.macro_f1);
        close(figures.loss, expected.loss);
        close(figures.calibration_error, expected.calibration_error);
        assert_eq!(figures.confusion, expected.confusion.map(Vec::from));
        for (found, (precision, recall, f1)) in figures.classes.iter().zip(expected.classes) {
            close(found.precision, precision);
            close(found.recall, recall);
            close(found.f1, f1);
        }
        // By hand: Wilson's interval of 6 of 10 is 0.3127 to 0.8318.
        close(figures.margin, 0.259_572_950_280_052_8);
        assert_eq!(figures.classes[3].texts, 0);
        assert_eq!(figures.texts, 10);
    }

    struct Expected {
        accuracy: f64,
        macro_f1: f64,
        loss: f64,
        calibration_error: f64,
        confusion: [[u64; 4]; 4],
        classes: [(f64, f64, f64); 4],
    }

    const EXPECTED: Expected = Expected {
        accuracy: 0.6,
        macro_f1: 0.5738095238095239,
        loss: 0.6588763545452022,
        calibration_error: 0.2034856330405966,
        confusion: [[3, 0, 0, 0], [1, 2, 1, 0], [1, 1, 1, 0], [0, 0, 0, 0]],
        classes: [
            (0.6, 1.0, 0.75),
            (0.6666666666666666, 0.5, 0.5714285714285714),
            (0.5, 0.3333333333333333, 0.4),
            (0.0, 0.0, 0.0),
        ],
    };

    #[test]
    fn certainty_is_calibrated_where_it_is_right() {
        let mut tally = Tally::new(2);
        (0..4).for_each(|_| tally.add(&[40.0, 0.0], 0));
        assert!(tally.figures(&[]).calibration_error < 1e-12);
        (0..4).for_each(|_| tally.add(&[40.0, 0.0], 1));
        let figures = tally.figures(&[]);
        assert!((figures.calibration_error - 0.5).abs() < 1e-12);
        assert!((figures.loss - 20.0).abs() < 1e-6);
    }

    #[test]
    fn the_best_is_the_lowest_loss_or_the_highest_share() {
        let evaluation = tally().evaluation();
        assert!(BestBy::Loss.is_better(0.1, 0.2) && !BestBy::Accuracy.is_better(0.1, 0.2));
        assert_eq!(BestBy::MacroF1.of(&evaluation), evaluation.macro_f1.unwrap());
        assert_eq!(evaluation.tokens, 10);
    }
}
