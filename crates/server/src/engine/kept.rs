//! What was read of earlier prompts, for prompts that begin alike.

use whatwhere_transformer::DecoderState;

use super::chunks;

/// States after whole chunks of prompts, the one that was used last at the end.
#[derive(Debug)]
pub(super) struct Kept {
    most: usize,
    states: Vec<(Vec<u32>, DecoderState)>,
}

impl Kept {
    /// Keeps so many at the most.
    pub(super) fn new(most: usize) -> Self {
        Self { most, states: Vec::new() }
    }

    /// A state that has read as many tokens of a prompt as are known up to a cut. The last token is never among them,
    /// because its logits are to be computed.
    pub(super) fn take(&mut self, prompt: &[u32]) -> Option<DecoderState> {
        let common = |tokens: &[u32]| {
            let same = tokens.iter().zip(prompt).take_while(|(a, b)| a == b).count();
            chunks::last(same.min(prompt.len().saturating_sub(1)))
        };
        let found = (0..self.states.len()).max_by_key(|at| common(&self.states[*at].0))?;
        let length = common(&self.states[found].0);
        if length == 0 {
            return None;
        }
        let kept = self.states.remove(found);
        let mut state = kept.1.clone();
        self.states.push(kept);
        // A cache that has dropped old keys cannot go back as far as that.
        state.rollback(state.length() - length).is_ok().then_some(state)
    }

    /// Keeps what a state has read of a prompt, up to the last cut.
    pub(super) fn keep(&mut self, prompt: &[u32], mut state: DecoderState) {
        let length = chunks::last(prompt.len());
        let known = |tokens: &[u32]| tokens.starts_with(&prompt[..length]);
        if length == 0 || self.states.iter().any(|(tokens, _)| known(tokens)) {
            return;
        }
        if state.rollback(state.length() - length).is_err() {
            return;
        }
        self.states.retain(|(tokens, _)| !prompt.starts_with(tokens));
        self.states.push((prompt[..length].to_vec(), state));
        if self.states.len() > self.most {
            self.states.remove(0);
        }
    }
}
