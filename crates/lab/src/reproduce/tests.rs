//! Claims, their expectations and judgements.

use whatwhere_training::Evaluation;

use super::*;
use crate::{
    compare::{Cost, Point, Trained},
    cost::Flops,
    results::Outcome,
};

#[test]
fn every_expectation_names_cells_that_exist_and_compose() {
    for claim in CLAIMS {
        let Experiment::Compare(parts) = &claim.experiment else { continue };
        for part in *parts {
            let comparison = part.comparison(claim, &Changes::default(), Path::new("x")).unwrap();
            let cells = comparison.cells().unwrap_or_else(|e| panic!("{}: {e}", claim.name));
            for cell in &cells {
                assert!(cell.settings.is_ok(), "{} {}: {:?}", claim.name, cell.name, cell.settings);
            }
            for expectation in part.expects {
                for name in [expectation.better, expectation.than] {
                    let (name, scaling) = parted(name);
                    let is_length = matches!(expectation.by, By::LossAt(_));
                    assert!(scaling.is_none() || is_length, "{}: {name}", claim.name);
                    let found = cells.iter().any(|cell| cell.name == name);
                    let names: Vec<_> = cells.iter().map(|cell| &cell.name).collect();
                    assert!(found, "{}: {name} is none of {names:?}", claim.name);
                }
                if let By::LossAt(length) = expectation.by {
                    assert!(part.lengths.contains(&length), "{}: {length}", claim.name);
                }
            }
        }
    }
}

fn trained(seed: u64, accuracy: f64) -> Trained {
    let (loss, tokens) = (1.0 - accuracy, 100);
    let quality =
        Evaluation { loss, perplexity: loss.exp(), accuracy, tokens, ..Evaluation::default() };
    let flops = Flops { matrices: 1.0, visible: 1.0, computed: 1.0 };
    let cost = Cost {
        tokens_per_second: 1.0,
        stretches: Vec::new(),
        load: None,
        jobs: 1,
        peak_memory: None,
        machines: Vec::new(),
        parameters: 1,
        flops,
    };
    Trained {
        seed,
        steps: 10,
        length: 8,
        split: "valid".into(),
        held_out: Vec::new(),
        quality,
        classification: None,
        bleu: None,
        bleu_by_words: Vec::new(),
        data: String::new(),
        sample: String::new(),
        curve: vec![Point { step: 10, loss, bits_per_byte: None, accuracy }],
        lengths: Vec::new(),
        cost,
    }
}

/// A task with as many seeds as accuracies, of rotary and of PoPE.
fn findings(rotary: &[f64], polar: &[f64]) -> [Finding; 2] {
    let claim = find("indexing").expect("a claim");
    let Experiment::Compare(parts) = &claim.experiment else { panic!("trained") };
    let part = parts.iter().find(|part| part.name == "many-seeds").expect("a part");
    let comparison =
        part.comparison(claim, &Changes::default(), Path::new("x")).expect("a comparison");
    let runs = |accuracies: &[f64]| Outcome::Trained {
        runs: (1..).zip(accuracies).map(|(seed, right)| trained(seed, *right)).collect(),
    };
    let cells = comparison.cells().expect("cells");
    let results = Results::of(&comparison, &cells, vec![runs(rotary), runs(polar)])
        .expect("results of two cells");
    [By::Accuracy, By::Loss]
        .map(|by| Expectation { better: "polar delta=zero", than: "rotary", by }.judge(&results))
}

#[test]
fn findings_say_which_way_how_far_and_of_how_many_seeds() {
    let [right, loss] = findings(&[0.5, 0.5, 0.97], &[0.97, 0.98, 0.99]);
    assert_eq!(
        right.measured,
        "0.980 against 0.657, difference +0.323 ± 0.653, 3 seeds, solved by 3 and 1"
    );
    assert_eq!(right.judgement, Judgement::WithinNoise);
    assert!(loss.measured.ends_with("± 0.653, 3 seeds"), "{}", loss.measured);

    let judgements =
        |rotary: &[f64], polar: &[f64]| findings(rotary, polar).map(|finding| finding.judgement);
    let (low, high) = ([0.50, 0.52, 0.51], [0.97, 0.98, 0.99]);
    assert_eq!(judgements(&low, &high), [Judgement::Agrees; 2]);
    assert_eq!(judgements(&high, &low), [Judgement::Disagrees; 2]);
    assert_eq!(judgements(&low[..1], &high[..1]), [Judgement::AgreesOneSeed; 2]);
    assert_eq!(judgements(&high[..1], &low[..1]), [Judgement::DisagreesOneSeed; 2]);
    assert_eq!(judgements(&low, &[]), [Judgement::NotMeasured; 2]);
}

#[test]
fn only_claims_without_speeds_run_side_by_side() {
    let changes = Changes { jobs: Some(2), ..Changes::default() };
    let jobs = |name: &str| {
        let claim = find(name).unwrap();
        let Experiment::Compare([part, ..]) = &claim.experiment else { panic!("{name}") };
        part.comparison(claim, &changes, Path::new("x")).unwrap().jobs
    };
    assert_eq!((jobs("heads"), jobs("patterns"), jobs("scores")), (2, 1, 1));
}

#[test]
fn names_are_different_and_every_claim_says_what_was_reported() {
    for (at, claim) in CLAIMS.iter().enumerate() {
        assert!(CLAIMS[..at].iter().all(|other| other.name != claim.name), "{}", claim.name);
        assert!(claim.paper.contains("https://") && !claim.reports.is_empty(), "{}", claim.name);
    }
}
