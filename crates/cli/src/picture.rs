//! The picture: above, who sees whom under a pattern; below, how a score changes with the distance.
//!
//! Everything drawn is computed: the maps by [`Pattern::sees`], the curves by [`reference::scores`] of one query and
//! keys that all have the same content, so that only position tells them apart.

use std::{
    fs::{self, File},
    io::Write,
    path::Path,
    process,
};

use anyhow::{Context, Result};
use whatwhere_kernels::{
    Error,
    attention::{
        Attention, Inputs, Shape,
        pattern::{
            And, Causal, Dilated, Documents, Draw, Fixed, Full, Global, Or, Pair, Pattern, Prefix,
            Random, Strided, Window,
        },
        reference,
    },
};

use crate::{
    choices,
    failure::Failure,
    supply::{Supply, Tensors},
    svg::{Anchor, Svg, line, number},
};

const STYLE: &str = include_str!("picture.css");
const TITLE: &str = "Attention patterns as maps of who sees whom, and position encodings as curves of score against distance";
const SIZE: (f64, f64) = (900.0, 460.0);
const LEFT: f64 = 44.0; // of the first panel in both rows
const MAPS_TOP: f64 = 70.0;
const PLOTS_TOP: f64 = 288.0;
const MAPS_NOTE: &str =
    "filled: the query of this row sees the key of this column; below, the share of such pairs";
const PLOTS_NOTE: &str =
    "one query and one key at every distance; untrained, tables drawn at random";

const LENGTH: usize = 32; // places of a map
const CELL: f64 = 3.0;
const MAP: f64 = LENGTH as f64 * CELL;
const MAP_PITCH: f64 = 106.5;

const FARTHEST: usize = 64; // distance at the right end of a plot
const HEADS: usize = 4;
const HEAD_DIM: usize = 64;
const PLOT: (f64, f64) = (124.0, 132.0);
const PLOT_PITCH: f64 = 143.5;
const SCORES: (f64, f64) = (-6.0, 6.0); // at the lower and upper end of a plot
const SEED: u64 = 1;

/// Writes the picture; whoever reads `path` meanwhile finds the old file or the new one, never a part.
pub(crate) fn save(path: &Path) -> Result<()> {
    if path.extension().is_none_or(|extension| extension != "svg") {
        let message = format!("{} does not end in .svg", path.display());
        let hint = format!("try {}", path.with_extension("svg").display());
        return Err(Failure::usage(message, hint).into());
    }
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    if !folder.is_dir() {
        let folder = folder.display();
        let message = format!("cannot write {}: {folder} is not a folder", path.display());
        return Err(Failure::world(message, format!("create it with mkdir -p {folder}")).into());
    }
    let picture = draw()?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let temporary = folder.join(format!(".{name}.{}.tmp", process::id()));
    let written = File::create_new(&temporary)
        .and_then(|mut file| file.write_all(picture.as_bytes()).and_then(|()| file.sync_all()))
        .and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        // It may not exist; the first error is the one to tell.
        let _ = fs::remove_file(&temporary);
    }
    written.with_context(|| format!("cannot write {}", path.display()))
}

fn draw() -> Result<String, Error> {
    let mut svg = Svg::new(SIZE.0, SIZE.1, TITLE, STYLE);
    svg.clip("plot", PLOT.0, PLOT.1);
    draw_heading(&mut svg, 20.0, "Where may a query look?", MAPS_NOTE);
    for (i, (name, pattern)) in maps()?.iter().enumerate() {
        svg.group(LEFT + i as f64 * MAP_PITCH, MAPS_TOP, |svg| draw_map(svg, name, pattern));
    }
    svg.upright("note", (LEFT - 8.0, MAPS_TOP + MAP / 2.0), "← query");
    draw_heading(&mut svg, 218.0, "What does position do to a score?", PLOTS_NOTE);
    draw_legend(&mut svg, 231.0);
    for (i, (name, note, choice)) in PLOTS.iter().enumerate() {
        let curves = curves(choice)?;
        svg.group(LEFT + i as f64 * PLOT_PITCH, PLOTS_TOP, |svg| {
            draw_plot(svg, (name, note), &curves, i == 0);
        });
    }
    svg.upright("note", (LEFT - 28.0, PLOTS_TOP + PLOT.1 / 2.0), "score");
    Ok(svg.finish())
}

fn draw_heading(svg: &mut Svg, y: f64, words: &str, note: &str) {
    svg.text("heading", (LEFT, y), Anchor::Start, words);
    svg.text("note", (LEFT, y + 17.0), Anchor::Start, note);
}

type Map = (&'static str, Box<dyn Pattern>);

/// The patterns of the upper row, at settings that show on a small map.
fn maps() -> Result<Vec<Map>, Error> {
    let draw = Draw { heads: 1, queries: LENGTH, keys: LENGTH, block: 2, count: 2, seed: SEED };
    let big_bird = Or(Window { left: 2, right: 2 }, Or(Random::new(draw)?, Global::first(2)));
    let documents = Documents::new(vec![vec![0, 7, 20]])?;
    Ok(vec![
        ("causal", Box::new(Causal::upper_left())),
        ("window", Box::new(Window { left: 6, right: 0 })),
        ("dilated", Box::new(Dilated::new(5, 0, 3)?)),
        ("strided", Box::new(Strided::new(6)?)),
        ("fixed", Box::new(Fixed::new(8, 2)?)),
        ("BigBird", Box::new(big_bird)),
        ("prefix", Box::new(Prefix::new(vec![12])?)),
        ("documents", Box::new(And(Causal::upper_left(), documents))),
    ])
}

fn draw_map(svg: &mut Svg, name: &str, pattern: &dyn Pattern) {
    let sees = |query, key| pattern.sees(Pair { batch: 0, head: 0, query, key });
    let mut commands = String::new();
    let mut count = 0;
    for query in 0..LENGTH {
        let mut key = 0;
        while key < LENGTH {
            let run = (key..LENGTH).take_while(|&key| sees(query, key)).count();
            if run > 0 {
                let (x, y, width) = (key as f64 * CELL, query as f64 * CELL, run as f64 * CELL);
                let [x, y, width] = [x, y, width].map(number);
                commands += &format!("M{x} {y}h{width}v{CELL}h-{width}z");
            }
            count += run;
            key += run + 1;
        }
    }
    let share = 100.0 * count as f64 / (LENGTH * LENGTH) as f64;
    svg.text("name", (0.0, -8.0), Anchor::Start, name);
    svg.rect("hidden", MAP, MAP);
    svg.path("seen", &commands);
    svg.text("note", (0.0, MAP + 15.0), Anchor::Start, "key →");
    svg.text("note", (MAP, MAP + 15.0), Anchor::End, &format!("{share:.0} %"));
}

/// The plots of the lower row: title, note and the choice's name.
const PLOTS: [(&str, &str, &str); 6] = [
    ("none", "content alone", "none"),
    ("ALiBi", "a slope per head", "alibi"),
    ("T5", "a number per bucket", "t5"),
    ("Shaw", "a vector per distance", "shaw_keys"),
    ("rotary", "query and key turn", "rotary"),
    ("PoPE", "only the phase turns", "polar"),
];

/// The score of each head at distances 0 to [`FARTHEST`] back, the same content everywhere.
fn curves(name: &str) -> Result<Vec<Vec<f64>>, Error> {
    let shape = Shape { queries: 1, ..Shape::square(1, HEADS, FARTHEST + 1, HEAD_DIM) };
    let Tensors { q, k, v, .. } = Tensors::new(&shape, SEED);
    let same: Vec<f32> = (0..HEADS)
        .flat_map(|head| k[shape.k_head(0, head)][..HEAD_DIM].repeat(shape.keys))
        .collect();
    let supply = Supply::new(shape, SEED);
    let mut attention = Attention { first_query: FARTHEST, ..Attention::new(shape, &Full) };
    let choice = choices::positions().into_iter().find(|choice| choice.name == name);
    choice.expect("the picture draws positions of the list").set(&mut attention, &supply);
    let scores = reference::scores(&attention, &Inputs { q: &q, k: &same, v: &v })?;
    Ok(scores.chunks_exact(shape.keys).map(|row| row.iter().rev().copied().collect()).collect())
}

fn draw_plot(svg: &mut Svg, (name, note): (&str, &str), curves: &[Vec<f64>], first: bool) {
    let x = |distance: usize| PLOT.0 * distance as f64 / FARTHEST as f64;
    let y = |score: f64| PLOT.1 * (SCORES.1 - score) / (SCORES.1 - SCORES.0);
    svg.text("name", (0.0, -24.0), Anchor::Start, name);
    svg.text("note", (0.0, -9.0), Anchor::Start, note);
    for score in [-4.0, 0.0, 4.0] {
        svg.path("grid", &line([(0.0, y(score)), (PLOT.0, y(score))]));
        if first {
            let label = number(score).replace('-', "−");
            svg.text("note", (-6.0, y(score) + 4.0), Anchor::End, &label);
        }
    }
    svg.path("axis", &line([(0.0, 0.0), (0.0, PLOT.1), (PLOT.0, PLOT.1)]));
    svg.clipped("plot", |svg| {
        for (head, scores) in curves.iter().enumerate() {
            let points =
                scores.iter().enumerate().map(|(distance, &score)| (x(distance), y(score)));
            svg.path(&format!("curve head{}", head + 1), &line(points));
        }
    });
    for (distance, anchor) in [(0, Anchor::Start), (32, Anchor::Middle), (64, Anchor::End)] {
        svg.text("note", (x(distance), PLOT.1 + 14.0), anchor, &distance.to_string());
    }
    svg.text("note", (PLOT.0 / 2.0, PLOT.1 + 30.0), Anchor::Middle, "tokens back");
}

fn draw_legend(svg: &mut Svg, y: f64) {
    for head in 1..=HEADS {
        let right = LEFT + 5.0 * PLOT_PITCH + PLOT.0 - 66.0 * (HEADS - head) as f64;
        svg.group(right, y, |svg| {
            svg.path(&format!("curve head{head}"), &line([(-55.0, 0.0), (-42.0, 0.0)]));
            svg.text("note", (0.0, 4.0), Anchor::End, &format!("head {head}"));
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names of the elements left open at the end, and whether each end closed the element opened last.
    fn unbalanced(document: &str) -> (Vec<&str>, bool) {
        let mut open = Vec::new();
        let mut proper = true;
        for tag in document.split('<').skip(1) {
            let (tag, _) = tag.split_once('>').expect("a tag ends");
            match tag.strip_prefix('/') {
                Some(name) => proper &= open.pop() == Some(name),
                None if tag.ends_with('/') => {}
                None => open.extend(tag.split_whitespace().next()),
            }
        }
        (open, proper)
    }

    #[test]
    fn the_picture_is_well_formed_and_has_every_panel() {
        let picture = draw().unwrap();
        assert_eq!(unbalanced(&picture), (vec![], true));
        let names = maps().unwrap().into_iter().map(|map| map.0).chain(PLOTS.map(|plot| plot.0));
        for name in names {
            assert!(picture.contains(&format!(">{name}</text>")), "{name}");
        }
        assert_eq!(picture.matches("class=\"seen\" d=\"M").count(), 8);
        assert_eq!(picture.matches("class=\"curve head").count(), HEADS * (PLOTS.len() + 1));
        assert!(!picture.contains("NaN") && !picture.contains("inf"));
    }

    #[test]
    fn the_picture_is_the_same_every_time() {
        assert_eq!(draw().unwrap(), draw().unwrap());
    }

    #[test]
    fn curves_are_those_of_the_formulas() {
        let [none, alibi, rotary] = ["none", "alibi", "rotary"].map(|name| curves(name).unwrap());
        for (head, (plain, sloped)) in none.iter().zip(&alibi).enumerate() {
            let slope = 0.25f64.powi(head as i32 + 1);
            for (distance, (plain, sloped)) in plain.iter().zip(sloped).enumerate() {
                assert!((plain - slope * distance as f64 - sloped).abs() < 1e-9);
            }
            assert!((plain[0] - rotary[head][0]).abs() < 1e-6, "no turn at distance 0");
        }
    }
}
