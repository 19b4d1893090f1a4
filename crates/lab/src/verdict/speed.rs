//! How fast cells train, in words: never more than the measurement bears.

use super::{list, marked};
use crate::{
    cost::Load,
    results::{CellResult, Results},
    statistics::Summary,
};

impl Results {
    /// Who trains fastest, if that can be said.
    pub(super) fn speed_in_words(&self) -> Option<String> {
        let mut speeds: Vec<(&CellResult, Summary)> = self
            .cells
            .iter()
            .filter_map(|cell| Some((cell, cell.tokens_per_second?)))
            .filter(|(_, speed)| speed.mean > 0.0)
            .collect();
        speeds.sort_by(|a, b| b.1.mean.total_cmp(&a.1.mean));
        let (fastest, slowest) = (speeds.first()?, speeds.last()?);
        if speeds.len() < 2 {
            return None;
        }
        let range = format!("{:.0} to {:.0} tokens/s", slowest.1.mean, fastest.1.mean);
        if self.has_several_kinds() {
            return Some(format!(
                "Nothing is said about speed ({range}): cells come from different kinds of machines."
            ));
        }
        if let Some(load) = self.load().filter(Load::is_heavy) {
            return Some(format!(
                "Nothing is said about speed ({range}): other programs kept up to {:.1} of {} cores busy while these runs \
                 trained.",
                load.others, load.cores
            ));
        }
        if self.conditions().is_some() {
            return Some(format!(
                "Nothing is said about speed ({range}): runs trained side by side."
            ));
        }
        if speeds.iter().any(|(_, speed)| speed.margin.is_none()) {
            return Some(format!(
                "Nothing is said about speed ({range}): the runs are too short to know its spread."
            ));
        }
        let within_noise = |speed: &Summary| ends(speed).1 >= ends(&fastest.1).0;
        let (same, slower): (Vec<_>, Vec<_>) =
            speeds[1..].iter().partition(|(_, speed)| within_noise(speed));
        let names = |cells: &[&(&CellResult, Summary)]| {
            list(&cells.iter().map(|(cell, _)| marked(&cell.name)).collect::<Vec<_>>())
        };
        if slower.is_empty() {
            return Some(format!("All train equally fast within noise ({range})."));
        }
        let beside = match same.is_empty() {
            true => String::new(),
            false => format!(", and within noise of it {}", names(&same)),
        };
        Some(format!(
            "{} trains fastest with {} tokens/s{beside}; {} is slowest with {}, {:.2} × the time.",
            marked(&fastest.0.name),
            speed(&fastest.1),
            marked(&slowest.0.name),
            speed(&slowest.1),
            fastest.1.mean / slowest.1.mean
        ))
    }

    /// The heaviest load under which any run trained, where it is known.
    pub fn load(&self) -> Option<Load> {
        let runs = self.cells.iter().flat_map(CellResult::runs);
        runs.fold(None, |worst, run| Load::worse(worst, run.cost.load))
    }
}

/// `12300 ± 200`, with the margin where there is one.
pub fn speed(summary: &Summary) -> String {
    let margin = summary.margin.map_or(String::new(), |margin| format!(" ± {margin:.0}"));
    format!("{:.0}{margin}", summary.mean)
}

fn ends(speed: &Summary) -> (f64, f64) {
    speed.interval().unwrap_or((speed.mean, speed.mean))
}

#[cfg(test)]
mod tests {
    use whatwhere_training::{Evaluation, Machine};

    use super::*;
    use crate::{
        compare::{Comparison, Cost, Trained},
        cost::Flops,
        grid::Axis,
        results::Outcome,
    };

    fn trained(stretches: &[f64], others: f64) -> Trained {
        let quality = Evaluation {
            loss: 1.0,
            perplexity: 1f64.exp(),
            accuracy: 0.5,
            tokens: 9,
            ..Evaluation::default()
        };
        Trained {
            seed: 0,
            steps: 10,
            length: 8,
            held_out: Vec::new(),
            split: "valid".into(),
            quality,
            classification: None,
            bleu: None,
            bleu_by_words: Vec::new(),
            data: String::new(),
            sample: String::new(),
            curve: Vec::new(),
            lengths: Vec::new(),
            cost: Cost {
                tokens_per_second: stretches[0],
                stretches: stretches.to_vec(),
                load: Some(Load { others, cores: 2 }),
                jobs: 1,
                peak_memory: None,
                machines: Vec::new(),
                parameters: 1,
                flops: Flops { matrices: 1.0, visible: 1.0, computed: 1.0 },
            },
        }
    }

    fn words(speeds: [&[f64]; 3], others: f64) -> String {
        results(speeds.map(|speeds| trained(speeds, others))).speed_in_words().unwrap()
    }

    fn results(runs: [Trained; 3]) -> Results {
        let axis = Axis::parse("position=none,rotary,polar").unwrap();
        let comparison = Comparison { axes: vec![axis], ..Comparison::default() };
        let outcomes = runs.map(|run| Outcome::Trained { runs: vec![run] });
        let cells = comparison.cells().unwrap();
        Results::of(&comparison, &cells, outcomes.into()).unwrap()
    }

    #[test]
    fn cells_of_different_kinds_of_machines_are_said_and_their_speeds_not_compared() {
        let on = |host: &str, processor: &str, instructions: &str| {
            let (host, processor) = (host.into(), processor.into());
            let machine = Machine { host, processor, instructions: instructions.into() };
            let mut run = trained(&[100.0, 101.0, 102.0], 0.0);
            run.cost.machines = vec![machine];
            run
        };
        let said = |results: &Results| {
            let words =
                results.evidence().into_iter().find(|said| said.contains("kinds of machines"));
            (words, results.speed_in_words().unwrap())
        };
        let alike = results(["a", "b", "c"].map(|host| on(host, "one", "AVX2")));
        assert_eq!(said(&alike).0, None);
        assert!(said(&alike).1.starts_with("All train equally fast"), "{:?}", said(&alike));

        let mixed = [on("a", "one", "AVX2"), on("b", "other", "AVX-512"), on("c", "one", "AVX2")];
        let (words, speed) = said(&results(mixed));
        let expected = "cells come from different kinds of machines, one with AVX2 (a, c) for none, polar; \
                        other with AVX-512 (b) for rotary: their speeds cannot be compared, and other instruction sets \
                        round otherwise, so that losses differ a little by machine, too";
        assert_eq!(words.as_deref(), Some(expected));
        assert!(speed.starts_with("Nothing is said about speed"), "{speed}");
    }

    #[test]
    fn speeds_are_held_apart_by_their_spread() {
        let (fast, near, slow) =
            (&[100.0, 101.0, 102.0][..], &[99.0, 100.0, 101.0][..], &[50.0, 51.0, 52.0][..]);
        let said = words([fast, near, slow], 0.0);
        let expected = "`none` trains fastest with 101 ± 2 tokens/s, and within noise of it `rotary`; `polar` is slowest with 51 ± 2, 1.98 × the time.";
        assert_eq!(said, expected);
        assert!(words([fast, near, near], 0.0).starts_with("All train equally fast within noise"));
    }

    #[test]
    fn nothing_is_called_fastest_on_a_loaded_machine_or_from_one_stretch() {
        let (fast, slow) = (&[100.0, 101.0, 102.0][..], &[50.0, 51.0, 52.0][..]);
        let loaded = words([fast, slow, slow], 1.7);
        assert!(loaded.contains("other programs kept up to 1.7 of 2 cores busy"), "{loaded}");
        let short = words([&[100.0], slow, slow], 0.0);
        assert!(short.contains("too short"), "{short}");
        for said in [loaded, short] {
            assert!(!said.contains("fastest"), "{said}");
        }
    }
}
