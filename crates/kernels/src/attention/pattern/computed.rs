//! What is predicted to be computed is computed, and sparse patterns compute little more than they show.

use std::sync::atomic::Ordering;

use super::{
    And, Causal, Dilated, Documents, Draw, Fixed, Global, Or, Pattern, Random, Strided, Tile,
    Window, computed_pairs, visible_pairs,
};
use crate::attention::{
    Arrangement, Attention, Gradients, Inputs, Layers, Shape, backward::Backward,
};

const LENGTH: usize = 1500;

fn patterns() -> Vec<(&'static str, Box<dyn Pattern>)> {
    let draw = Draw { heads: 1, queries: LENGTH, keys: LENGTH, block: 64, count: 3, seed: 1 };
    let random = || Random::new(draw).unwrap();
    let window = Window { left: 64, right: 64 };
    let global = Global::at((0..LENGTH).step_by(100).collect());
    let strided = |stride| Strided::new(stride).unwrap();
    vec![
        ("causal", Box::new(Causal::upper_left())),
        ("window", Box::new(window)),
        ("documents", Box::new(Documents::new(vec![vec![0, 400, 401, 1000]]).unwrap())),
        ("strided", Box::new(strided(40))),
        ("strided, beyond", Box::new(strided(2000))),
        ("fixed", Box::new(Fixed::new(64, 4).unwrap())),
        ("dilated", Box::new(Dilated::new(32, 0, 8).unwrap())),
        ("random", Box::new(random())),
        ("BigBird", Box::new(Or(window, Or(random(), Global::first(1))))),
        ("Longformer", Box::new(Or(window, global.clone()))),
        ("Longformer, causal", Box::new(And(Causal::upper_left(), Or(window, global)))),
        ("two of them", Box::new(Or(strided(50), Dilated::new(8, 8, 7).unwrap()))),
    ]
}

fn whole() -> Tile {
    Tile { batch: 0, head: 0, queries: 0..LENGTH, keys: 0..LENGTH }
}

#[test]
fn as_many_pairs_are_computed_as_predicted() {
    let shape = Shape::square(1, 1, LENGTH, 4);
    let [q, k, v] = [0.1, 0.2, 0.3].map(|value| vec![value; shape.q_len()]);
    let inputs = Inputs { q: &q, k: &k, v: &v };
    for (name, pattern) in patterns() {
        let attention = Attention::new(shape, &*pattern);
        let predicted = computed_pairs(&*pattern, &whole());
        let layers = Layers::of(&attention);
        let plan = layers.plan(&attention, &inputs);
        let (mut out, mut lse) = (vec![0.0; shape.out_len()], vec![0.0; shape.rows()]);
        plan.forward(&layers, &mut out, &mut lse);
        assert_eq!(plan.compared.swap(0, Ordering::Relaxed), predicted, "{name}, forward");
        let mut gradients = Gradients::zeros(&attention);
        let pass = Backward { plan: &plan, out: &out, lse: &lse, d_out: &out };
        pass.run(&layers, &mut gradients);
        assert_eq!(plan.compared.load(Ordering::Relaxed), predicted, "{name}, backward");
    }
}

#[test]
fn sparse_patterns_compute_a_few_times_what_they_show_and_less_than_neighbors() {
    for (name, pattern) in patterns() {
        let shown = visible_pairs(&*pattern, &whole());
        let computed = computed_pairs(&*pattern, &whole());
        let neighbors = Layers::choose(&*pattern, &whole(), Arrangement::Neighbors).pairs(&whole());
        assert!(shown <= computed && computed <= neighbors, "{name}: {computed} of {neighbors}");
        assert!(computed < 3 * shown, "{name}: {computed} for {shown}");
    }
}
