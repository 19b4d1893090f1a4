//! Who sees whom in each task.

use whatwhere_kernels::attention::pattern::{
    Causal, Dilated, Draw, Fixed, Full, Global, Or, Pair, Pattern, Random, Strided, Window,
};

use crate::ours::{HEADS, Task, WINDOW, What};

/// A pattern by its definition alone.
pub(crate) struct Defined(pub(crate) Box<dyn Pattern>);

impl Pattern for Defined {
    fn sees(&self, pair: Pair) -> bool {
        self.0.sees(pair)
    }
}

impl Task {
    /// Whether what its pattern shows is gathered.
    pub(crate) fn is_gathered(&self) -> bool {
        use What::{BigBird, Dilated, Fixed, Strided, StridedRoot};
        matches!(self.what, Strided | StridedRoot | Fixed | Dilated | BigBird)
    }

    /// Who sees whom.
    pub(crate) fn pattern(&self) -> Box<dyn Pattern> {
        let drawn = "fits any length of the table";
        match self.what {
            What::Full | What::Additive => Box::new(Full),
            What::Window => Box::new(Window { left: WINDOW - 1, right: 0 }),
            What::Strided => Box::new(Strided::new(128).expect("a stride")),
            What::StridedRoot => Box::new(Strided::new(self.length.isqrt()).expect("a stride")),
            What::Fixed => Box::new(Fixed::new(128, 8).expect("a summary in the stride")),
            What::Dilated => Box::new(Dilated::new(64, 0, 8).expect("a step")),
            What::BigBird => {
                let (queries, keys) = (self.length, self.length);
                let count = 3.min(keys.div_ceil(64));
                let draw = Draw { heads: HEADS, queries, keys, block: 64, count, seed: 0 };
                let window = Window { left: WINDOW / 2, right: WINDOW / 2 - 1 };
                Box::new(Or(window, Or(Random::new(draw).expect(drawn), Global::first(1))))
            }
            _ => Box::new(Causal { offset: 0 }),
        }
    }
}
