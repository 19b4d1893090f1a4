//! What the page asks, asked from Rust: `answers RUN TEXT QUESTIONS.json` prints a run's answers about a text, and those about
//! encodings and patterns, as bytes in hexadecimal. `.ci/web` holds what a browser computes against them.
//!
//! `QUESTIONS.json` is a list of `{"of": "reading" or "choices", "what": …, "pairs": [[name, value], …]}`; without arguments a
//! question about an encoding is asked.

use std::{env, error::Error, fs, sync::Arc};

use serde::Deserialize;
use whatwhere_lab::view::{Answer, Opening, Parameters, View, choices};
use whatwhere_training::Run;

#[derive(Deserialize)]
struct Question {
    of: String,
    what: String,
    pairs: Vec<(String, String)>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = env::args().skip(1).collect();
    let [run, text, questions] = args.as_slice() else {
        let pairs = [("name", "alibi"), ("length", "4")];
        let Answer { bytes, .. } = choices::answer("position", &Parameters::new(pairs))?;
        let answer: serde_json::Value = serde_json::from_slice(&bytes)?;
        let heads = answer["bias"].as_array().map_or(0, Vec::len);
        assert!(heads > 1, "every head has a slope of its own");
        println!("alibi adds to the scores of {heads} heads, each by its own slope");
        return Ok(());
    };
    let opening = Opening { text: text.clone(), ..Opening::default() };
    let view = View::open(&Arc::new(Run::open(run)?), &opening)?;
    let questions: Vec<Question> = serde_json::from_slice(&fs::read(questions)?)?;
    let mut answers = Vec::new();
    for Question { of, what, pairs } in questions {
        let parameters = Parameters::new(pairs);
        let answer = match of.as_str() {
            "reading" => view.answer(&what, &parameters)?,
            _ => choices::answer(&what, &parameters)?,
        };
        answers.push(answer.bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>());
    }
    println!("{}", serde_json::to_string(&answers)?);
    Ok(())
}
