//! Every kind of pattern, fitted to the sizes of a call.

use whatwhere_kernels::attention::{
    Shape,
    pattern::{
        And, Causal, Dilated, Documents, Draw, Fixed, Full, Global, KeyLengths, Or, Pattern,
        Prefix, Random, Spans, Strided, Window, from_fn,
    },
};

use super::Sizes;

/// A pattern by name.
#[derive(Clone, Copy)]
pub(crate) struct PatternChoice {
    pub(crate) name: &'static str,
    make: fn(&Sizes) -> Box<dyn Pattern>,
}

impl PatternChoice {
    pub(crate) const FULL: Self = Self { name: "full", make: |_| Box::new(Full) };
    pub(crate) const CAUSAL: Self =
        Self { name: "causal, upper left", make: |_| Box::new(Causal::upper_left()) };

    pub(crate) fn make(&self, sizes: &Sizes) -> Box<dyn Pattern> {
        (self.make)(sizes)
    }
}

pub(crate) fn every_pattern() -> Vec<PatternChoice> {
    let choice = |name, make| PatternChoice { name, make };
    vec![
        PatternChoice::FULL,
        PatternChoice::CAUSAL,
        choice("causal, lower right", |s| {
            Box::new(Causal::lower_right(s.shape.queries, s.shape.keys))
        }),
        choice("causal, ahead", |_| Box::new(Causal { offset: 3 })),
        choice("causal, behind all of the first queries", |s| Box::new(blind(s))),
        choice("window", |_| Box::new(WINDOW)),
        choice("causal window", |_| Box::new(Window { left: 7, right: 0 })),
        choice("wide window", |_| Box::new(Window { left: 70, right: 40 })),
        choice("dilated", |_| Box::new(Dilated::new(3, 2, 3).expect("the step is above 0"))),
        choice("strided", |_| Box::new(Strided::new(5).expect("the stride is above 0"))),
        choice("fixed", |_| Box::new(Fixed::new(8, 2).expect("the summary is in the stride"))),
        choice("random", |s| Box::new(random(s))),
        choice("global, first", |_| Box::new(Global::first(4))),
        choice("global, each sequence", |s| {
            let lists = (0..s.shape.batch).map(|row| vec![3 + 7 * row, 40, 41 + row]).collect();
            Box::new(Global::each(1, lists).expect("a list for each sequence"))
        }),
        choice("global, listed", |_| Box::new(Global::at(vec![5, 24, 25, 90, 100]))),
        choice("prefix", |_| Box::new(Prefix::new(vec![12]).expect("the list has an entry"))),
        choice("documents", |s| {
            let starts = (0..s.shape.batch).map(|batch| vec![0, 9 + batch, 22, 60, 97]).collect();
            Box::new(Documents::new(starts).expect("the starts ascend"))
        }),
        choice("key lengths", |s| Box::new(key_lengths(s))),
        choice("causal and key lengths", |s| Box::new(And(Causal::upper_left(), key_lengths(s)))),
        choice("window or random or global", |s| {
            Box::new(Or(WINDOW, Or(random(s), Global::first(2))))
        }),
        choice("causal and (window or global)", |_| {
            Box::new(And(Causal::upper_left(), Or(WINDOW, Global::at(vec![4, 30]))))
        }),
        choice("spans", |s| Box::new(spans(s))),
        choice("function", |_| {
            Box::new(from_fn(|p| (p.query * 3 + p.key * 5 + p.head + p.batch) % 7 < 3))
        }),
    ]
}

const WINDOW: Window = Window { left: 5, right: 3 };

/// Hides everything from the first third of the queries.
fn blind(sizes: &Sizes) -> Causal {
    let Sizes { shape, first_query, first_key } = sizes;
    Causal { offset: *first_key as isize - (first_query + shape.queries / 3) as isize }
}

fn random(sizes: &Sizes) -> Random {
    let (block, end) = (4, sizes.end());
    let count = 3.min(end.div_ceil(block));
    Random::new(Draw { heads: sizes.shape.heads, queries: end, keys: end, block, count, seed: 3 })
        .expect("the count is at most the number of blocks")
}

/// Ranges that wander from row to row, some of them empty.
fn spans(sizes: &Sizes) -> Spans {
    let Shape { batch, heads, queries, keys, .. } = sizes.shape;
    let spans = (0..batch * heads * queries).map(|row| {
        let start = sizes.first_key + row * 11 % (keys + 3);
        start..start + row % 9
    });
    Spans::new([batch, heads, queries], sizes.first_query, spans.collect())
        .expect("a range for each row")
}

/// Every second sequence is shorter, every third has no keys at all.
fn key_lengths(sizes: &Sizes) -> KeyLengths {
    let end = sizes.first_key + sizes.shape.keys;
    let length = |batch: usize| match batch % 3 {
        0 => end - sizes.shape.keys / 4,
        1 => end - sizes.shape.keys / 2,
        _ => 0,
    };
    KeyLengths::new((0..sizes.shape.batch).map(length).collect()).expect("there is a sequence")
}
