//! Encodings and patterns without a model: what can be set, and what it does.
//!
//! The same questions can be answered in a browser by these functions compiled to WASM: nothing here needs a run.

use serde_json::json;
use whatwhere_attention::{Pattern, Position};
use whatwhere_settings::reference;

use super::{Answer, Parameters, Question};
use crate::{
    Error,
    show::{PatternFigures, PositionFigures},
};

const QUESTIONS: [Question<()>; 3] =
    [("choices", choices), ("position", position), ("pattern", pattern)];

/// Answers `choices`, what there is and can be set; `position`, scores against distance; `pattern`, who sees whom.
pub fn answer(what: &str, parameters: &Parameters) -> Result<Answer, Error> {
    super::answer(&QUESTIONS, &(), what, parameters)
}

fn choices((): &(), parameters: &Parameters) -> Result<Answer, Error> {
    parameters.known(&[])?;
    Ok(Answer::json(&json!({
        "position": reference::choices::<Position>(),
        "pattern": reference::choices::<Pattern>(),
    })))
}

fn position((): &(), parameters: &Parameters) -> Result<Answer, Error> {
    parameters.known(&["name", "set", "length"])?;
    let length = parameters.value_or("length", 0)?;
    let length = (parameters.word("length").is_some()).then_some(length);
    let (name, changes) = (parameters.needed("name")?, parameters.all("set"));
    Ok(Answer::json(&PositionFigures::of(name, &changes, length)?))
}

fn pattern((): &(), parameters: &Parameters) -> Result<Answer, Error> {
    parameters.known(&["name", "set", "length"])?;
    let length = parameters.value_or("length", 256)?;
    let (name, changes) = (parameters.needed("name")?, parameters.all("set"));
    Ok(Answer::json(&PatternFigures::of(name, &changes, length)?))
}
