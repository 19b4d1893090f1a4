//! The files of a run, which rank 0 alone has.

use serde::Serialize;

use super::Record;
use crate::{Error, Evaluation, Folder, journal::Journal, lock::Lock, tensorboard};

/// Records of a run, and the lock on its folder.
pub(super) struct Records {
    pub(super) journal: Journal,
    pub(super) board: tensorboard::Writer,
    /// The hash of the run's `tokenizer.json`.
    pub(super) tokenizer: String,
    _lock: Lock,
}

#[derive(Serialize)]
struct Valid {
    valid: Evaluation,
}

impl Records {
    pub(super) fn new(
        folder: &Folder,
        board: tensorboard::Writer,
        tokenizer: String,
        lock: Lock,
    ) -> Result<Self, Error> {
        let journal = Journal::open(&folder.metrics())?;
        Ok(Self { journal, board, tokenizer, _lock: lock })
    }

    /// What an update was like.
    pub(super) fn updated(&mut self, record: &Record, step: u64) -> Result<(), Error> {
        self.journal.append(step, record)?;
        let now = tensorboard::now();
        for (tag, value) in [
            ("train/loss", record.loss),
            ("train/lr", record.lr),
            ("train/grad_norm", record.grad_norm),
            ("train/tokens_per_second", record.tokens_per_second),
        ] {
            self.board.scalar(tag, step, value as f32, now)?;
        }
        self.board.flush()
    }

    /// How good the model was.
    pub(super) fn evaluated(&mut self, evaluation: Evaluation, step: u64) -> Result<(), Error> {
        self.journal.append(step, &Valid { valid: evaluation })?;
        let now = tensorboard::now();
        self.board.scalar("valid/loss", step, evaluation.loss as f32, now)?;
        self.board.scalar("valid/accuracy", step, evaluation.accuracy as f32, now)?;
        for (tag, value) in [
            ("valid/bits_per_byte", evaluation.bits_per_byte),
            ("valid/macro_f1", evaluation.macro_f1),
            ("valid/calibration_error", evaluation.calibration_error),
        ] {
            if let Some(value) = value {
                self.board.scalar(tag, step, value as f32, now)?;
            }
        }
        self.board.flush()
    }
}
