//! The picture of all choices, in a process of its own: the framework has one generator for a process, and other tests draw
//! from it.

use whatwhere_attention::{Pattern, Position};
use whatwhere_lab::show::overview;

#[test]
fn the_overview_shows_every_choice_and_is_the_same_every_time() {
    let page = overview().unwrap();
    let svg = &page.sections[0].pictures[0].svg;
    for name in Pattern::NAMES.iter().chain(Position::NAMES) {
        assert!(svg.contains(&format!(">{name}</text>")), "{name}");
    }
    assert!(!svg.contains("NaN") && !svg.contains("inf"));
    assert_eq!(page, overview().unwrap());
}
