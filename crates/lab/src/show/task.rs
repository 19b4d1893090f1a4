//! `show task`: examples of a synthetic task, as pictures where prompts are pictures.

use whatwhere_data::{
    Source,
    task::{Example, Task},
};
use whatwhere_random::Random;
use whatwhere_settings::reference::choices;

use super::{Page, Picture, Section};
use crate::{Error, chart::Heat};

/// Examples are those of this seed.
const SEED: u64 = 0;
/// Letters of a prompt that stand in a table.
const LONGEST: usize = 200;

/// Draws some examples of a task by its name, changed by `key=value` pairs of its settings.
pub fn task(name: &str, changes: &[String], count: usize) -> Result<Page, Error> {
    let source = source(name, changes)?;
    let task = source.task().expect("only tasks are asked for");
    task.check()?;
    let examples: Vec<Example> =
        (0..count as u64).map(|number| task.example(&mut Random::new(&[SEED, number]))).collect();
    let about = choices::<Source>().into_iter().find(|about| about.name == name);
    let words = about.map(|about| about.summary.join(" ")).into_iter().collect();
    let drawn =
        examples.iter().enumerate().map(|(number, example)| map(name, task, number, example));
    let pictures: Vec<Picture> = drawn.flatten().collect();
    let table = if pictures.is_empty() { table(&examples) } else { Vec::new() };
    let section = Section { heading: name.to_owned(), words, pictures, side_by_side: true, table };
    Ok(Page { title: format!("Task: {name}"), sections: vec![section], ..Page::default() })
}

/// The task of a name with changes to its settings.
fn source(name: &str, changes: &[String]) -> Result<Source, Error> {
    let tasks: Vec<&str> =
        Source::all().iter().filter(|source| source.task().is_some()).map(Source::name).collect();
    if !tasks.contains(&name) {
        let tasks = tasks.join(", ");
        return Err(Error::Request(format!("no task is called {name}; there are {tasks}")));
    }
    let mut table = toml::Table::from_iter([("source".into(), name.into())]);
    for change in changes {
        whatwhere_training::set(&mut table, &format!("source.{change}"))?;
    }
    let chosen = table.remove("source").expect("set above");
    chosen.try_into().map_err(|found: toml::de::Error| {
        Error::Request(format!("task {name}: {}", found.message().trim_end()))
    })
}

/// An example whose prompt is a picture.
fn map(name: &str, task: &dyn Task, number: usize, example: &Example) -> Option<Picture> {
    let picture = task.picture(example)?;
    let map = Heat {
        title: format!("{name} {number}: {}", example.answer),
        x: "column".into(),
        y: "row".into(),
        values: picture.pixels.chunks(picture.width).map(<[f64]>::to_vec).collect(),
        range: Some((0.0, 1.0)),
        ..Default::default()
    };
    let caption = format!("The answer is {}.", example.answer);
    Some(Picture::new(format!("{name}-{number}"), map.svg(), caption))
}

fn table(examples: &[Example]) -> Vec<Vec<String>> {
    let short = |text: &str| match text.char_indices().nth(LONGEST) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    };
    let mut table = vec![["prompt", "answer"].map(String::from).to_vec()];
    table.extend(examples.iter().map(|one| vec![short(&one.prompt), short(&one.answer)]));
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_task_is_shown_and_pictures_are_drawn() {
        for source in Source::all().iter().filter(|source| source.task().is_some()) {
            let page = task(source.name(), &[], 3).unwrap();
            let section = &page.sections[0];
            let shown = section.pictures.len() + section.table.len().saturating_sub(1);
            assert_eq!(shown, 3, "{}", source.name());
        }
        let page = task("pathfinder", &["dashes=6".into()], 2).unwrap();
        let names: Vec<&str> = page.sections[0].pictures.iter().map(|p| p.name.as_str()).collect();
        assert_eq!(names, ["pathfinder-0", "pathfinder-1"]);
        assert!(!page.html().contains("NaN"));
    }

    #[test]
    fn other_names_and_settings_are_refused() {
        let refused =
            |name: &str, change: &str| task(name, &[change.into()], 1).unwrap_err().to_string();
        assert!(refused("text", "path=x").contains("no task is called text; there are"));
        assert!(refused("pathfinder", "dots=3").contains("unknown field `dots`"));
        assert!(refused("pathfinder", "size=3").contains("source.size = 3: expected 16 to 128"));
    }
}
