//! The tables of a comparison that people read: its ranking, its lengths, its arithmetic.

use super::Table;
use crate::{
    results::{CellResult, Measure, Outcome, Results},
    statistics::{Summary, Verdict},
    verdict::{figure, speed},
};

impl Results {
    /// Cells, best first; those that were not trained last, with the reason.
    pub fn ranking_table(&self) -> Table {
        let is_task = self.measure == Measure::Accuracy;
        let has = |value: fn(&CellResult) -> bool| self.cells.iter().any(value);
        let (has_bleu, has_bits) =
            (has(|cell| cell.bleu.is_some()), has(|cell| cell.bits_per_byte.is_some()));
        let has_difference = has(|cell| cell.difference.is_some());
        let mut head = vec![""];
        head.extend(match self.measure {
            Measure::Accuracy => &["accuracy", "solved", "lift-off"][..],
            Measure::ClassAccuracy => &["accuracy", "macro F1", "calibration error", "loss"],
            Measure::Loss if has_bits => &["loss", "bits per byte"],
            Measure::Loss => &["loss"],
            Measure::BitsPerByte => &["bits per byte", "nats per token"],
        });
        let against = format!("against {}", self.baseline);
        if has_difference {
            head.extend([against.as_str(), ""]);
        }
        if has_bleu {
            head.push("BLEU");
        }
        head.extend(["tokens/s", "peak memory", "parameters"]);
        let row = |cell: &CellResult| {
            let mut row = vec![cell.name.clone()];
            row.push(shown(cell.shown(self.measure)));
            match self.measure {
                Measure::Accuracy => {
                    row.push(format!("{} of {}", cell.solved.unwrap_or(0), cell.runs().len()));
                    row.push(cell.lift_off.map_or(dash(), |lift| format!("{:.0}", lift.mean)));
                }
                Measure::ClassAccuracy => {
                    let figures = [cell.macro_f1, cell.calibration_error, cell.loss];
                    row.extend(figures.map(shown));
                }
                Measure::Loss if has_bits => row.push(shown(cell.bits_per_byte)),
                Measure::Loss => {}
                Measure::BitsPerByte => row.push(shown(cell.loss)),
            }
            if has_difference {
                row.extend(self.difference(cell));
            }
            if has_bleu {
                row.push(cell.bleu.map_or(dash(), |bleu| format!("{:.2}", bleu.mean)));
            }
            row.push(cell.tokens_per_second.map_or(dash(), |found| speed(&found)));
            row.push(cell.peak_memory().map_or(dash(), |bytes| format!("{} MiB", bytes >> 20)));
            let parameters = cell.runs().first().map(|run| run.cost.parameters);
            row.push(parameters.map_or(dash(), |count| count.to_string()));
            row
        };
        let rows = self.ranking().into_iter().map(row).collect();
        let words = self.cells.iter().filter_map(|cell| match &cell.outcome {
            Outcome::Trained { runs } => {
                let said = self.unfinished(runs.len()).filter(|_| runs.is_empty());
                Some((cell.name.clone(), said?))
            }
            Outcome::Refused { reason } => {
                Some((cell.name.clone(), format!("does not compose: {reason}")))
            }
            Outcome::Failed { reason } => Some((cell.name.clone(), format!("failed: {reason}"))),
        });
        let words = words.collect();
        let mut notes = vec![match (self.measure, self.seeds) {
            (Measure::ClassAccuracy, 1) => {
                "One run each, ± half of the 95 % interval over texts drawn anew (Wilson's).".into()
            }
            (_, 1) => "One run each.".to_owned(),
            _ => "Mean over seeds, ± half of the 95 % confidence interval.".into(),
        }];
        if self.measure == Measure::Loss {
            notes.push(format!("Loss in {}.", self.unit(Measure::Loss)));
        }
        if self.measure == Measure::ClassAccuracy {
            notes.push(
                "Accuracy: share of held-out texts whose class was told. Loss in nats per text."
                    .into(),
            );
        }
        if is_task {
            notes.push(
                "Lift-off: the update at which three quarters of the answers are right.".into(),
            );
        }
        notes.push(
            "Tokens/s: mean over stretches of the training, ± half of its 95 % confidence interval. Peak memory: the most that \
             the whole process held while it trained, data and moments of the optimizer included."
                .into(),
        );
        notes.extend(self.conditions());
        Table { head: head.into_iter().map(Into::into).collect(), rows, words, notes }
    }

    /// The difference to the baseline, and what it amounts to.
    fn difference(&self, cell: &CellResult) -> [String; 2] {
        let Some(difference) = cell.difference else { return [String::new(), String::new()] };
        let verdict = match cell.verdict {
            Some(Verdict::WithinNoise) => "within noise",
            Some(Verdict::Unknown) | None => "one seed",
            Some(verdict) if self.measure.is_better(verdict) => "better",
            Some(_) => "worse",
        };
        let margin = difference.margin.map_or(String::new(), |margin| format!(" ± {margin:.3}"));
        [format!("{:+.3}{margin}", difference.mean), verdict.into()]
    }

    /// Loss at every length, with the scalings of rotary in rows of their own; nothing if only one was read.
    pub fn lengths_table(&self) -> Option<Table> {
        let lengths = self.lengths();
        if lengths.len() < 2 {
            return None;
        }
        let head = std::iter::once(String::new());
        let head = head.chain(lengths.iter().map(|length| format!("at {length}"))).collect();
        let mut table = Table { head, ..Table::default() };
        table.notes.push(format!(
            "In {}, read at windows of other lengths without training.",
            self.unit(self.measure.at_lengths())
        ));
        for cell in self.ranking() {
            for curve in cell.length_curves() {
                let mut row = vec![curve.name(&cell.name)];
                for length in &lengths {
                    let at = curve.at(*length);
                    row.push(at.map_or(String::new(), |at| shown(at.measured(self.measure))));
                    if let Some(reason) = at.and_then(|at| at.missing.as_ref()) {
                        let note = format!("– at {length}: {reason}.");
                        if !table.notes.contains(&note) {
                            table.notes.push(note);
                        }
                    }
                }
                table.rows.push(row);
            }
        }
        Some(table)
    }

    /// Arithmetic of a forward pass, in MFLOP for each token.
    pub fn arithmetic_table(&self) -> Table {
        let mega = |flops: f64| format!("{:.3}", flops / 1e6);
        let rows = self.cells.iter().filter_map(|cell| {
            let flops = &cell.runs().first()?.cost.flops;
            let figures = [flops.matrices, flops.visible, flops.computed].map(mega);
            Some([cell.name.clone()].into_iter().chain(figures).collect())
        });
        Table {
            head: ["", "matrices", "attention, visible", "attention, computed"].map(Into::into).into(),
            rows: rows.collect(),
            words: Vec::new(),
            notes: vec![
                "MFLOP for each token of a forward pass. Visible: of the pairs that the pattern shows. Computed: of the pairs \
                 in every block that the kernels compute."
                    .into(),
            ],
        }
    }
}

fn shown(summary: Option<Summary>) -> String {
    summary.map_or(dash(), |summary| figure(&summary))
}

fn dash() -> String {
    "–".into()
}
