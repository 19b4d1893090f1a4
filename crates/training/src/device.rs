//! Where a run computes: the one place that decides it.

use burn::tensor::Device;

use crate::RunSettings;

/// What optimizers and evaluations compute on.
pub(crate) fn cpu() -> Device {
    Device::flex()
}

impl RunSettings {
    /// Where its model lives; training needs [`Device::autodiff`] of it.
    pub fn device(&self) -> Device {
        cpu()
    }
}
