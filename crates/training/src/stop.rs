//! Text up to a stop string.

use std::ops::ControlFlow;

/// Text that is said as it comes, except what may still become a stop string.
#[derive(Debug)]
pub struct StopFilter<'a> {
    stop: &'a [String],
    /// What was said so far.
    pub said: String,
    held: String,
}

impl<'a> StopFilter<'a> {
    /// A filter for these strings, none of which is said.
    pub fn new(stop: &'a [String]) -> Self {
        Self { stop, said: String::new(), held: String::new() }
    }

    /// Takes more text, and says what can no longer become a stop string; breaks after one was found.
    pub fn push(
        &mut self,
        text: &str,
        each: &mut impl FnMut(&str) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        self.held.push_str(text);
        let found = self.stop.iter().filter(|stop| !stop.is_empty());
        if let Some(at) = found.filter_map(|stop| self.held.find(stop.as_str())).min() {
            self.held.truncate(at);
            let _ = self.release(each);
            return ControlFlow::Break(());
        }
        let open = |suffix: &str| self.stop.iter().any(|stop| stop.starts_with(suffix));
        let keep = self
            .held
            .char_indices()
            .map(|(at, _)| at)
            .find(|at| open(&self.held[*at..]))
            .unwrap_or(self.held.len());
        let rest = self.held.split_off(keep);
        let flow = self.release(each);
        self.held = rest;
        flow
    }

    /// Says what was held back.
    pub fn release(&mut self, each: &mut impl FnMut(&str) -> ControlFlow<()>) -> ControlFlow<()> {
        if self.held.is_empty() {
            return ControlFlow::Continue(());
        }
        self.said.push_str(&self.held);
        let flow = each(&self.held);
        self.held.clear();
        flow
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_stops_before_a_stop_string_that_comes_in_pieces() {
        let stop = vec!["END".to_owned(), "\n\n".to_owned()];
        for (pieces, expected) in [
            (vec!["one E", "N", "D two"], "one "),
            (vec!["one E", "N", "d two"], "one ENd two"),
            (vec!["one\n", "two\n", "\nthree"], "one\ntwo"),
            (vec!["EEND"], "E"),
        ] {
            let mut filter = StopFilter::new(&stop);
            let mut heard = String::new();
            let mut hear = |text: &str| {
                heard.push_str(text);
                ControlFlow::Continue(())
            };
            let ended = pieces.into_iter().any(|piece| filter.push(piece, &mut hear).is_break());
            assert!(ended || filter.release(&mut hear).is_continue());
            assert_eq!((heard.as_str(), filter.said.as_str()), (expected, expected));
        }
    }
}
