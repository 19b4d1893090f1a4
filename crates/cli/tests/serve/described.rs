//! What is described is there, and what is there is described.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::client::{RUNS, Server};

/// The address and its parameters with what they may be.
fn address(path: &str, said: &Value, reading: &str) -> String {
    let mut address = path.replace("{model}", "words").replace("{reading}", reading);
    let parameters = said["parameters"].as_array().into_iter().flatten();
    let needed =
        parameters.filter(|parameter| parameter["in"] == "query" && parameter["required"] == true);
    for (at, parameter) in needed.enumerate() {
        let example = parameter["example"].to_string();
        let name = parameter["name"].as_str().unwrap();
        address += &format!("{}{name}={}", ['?', '&'][at.min(1)], example.trim_matches('"'));
    }
    address
}

#[test]
fn every_address_is_described() {
    let runs = RUNS.path("");
    let server = Server::start(&["words"], &["--runs", runs.to_str().unwrap()]);
    let reading = server.good("/v1/attention", &json!({ "text": "To be" }))["reading"].clone();
    let reading = reading.as_str().unwrap();
    let document = server.get("/openapi.json").json();
    let paths = document["paths"].as_object().unwrap();
    assert!(paths.len() > 35, "{}", paths.len());
    for (path, methods) in paths {
        for (method, said) in methods.as_object().unwrap() {
            let answer = match method.as_str() {
                "get" => server.get(&address(path, said, reading)),
                _ => server.post(path, &json!([])),
            };
            // Which runs and comparisons there are, nobody can say beforehand.
            let is_unknown = path == "/v1/runs/curve" || path == "/v1/runs/comparison";
            let expected = if method == "get" && !is_unknown { 200 } else { 400 };
            assert_eq!(answer.status, expected, "{method} {path}: {}", answer.text());
            assert!(
                !is_unknown || answer.text().contains("nothing is called"),
                "{}",
                answer.text()
            );
            if method == "post" {
                let schema = &said["requestBody"]["content"]["application/json"]["schema"]["$ref"];
                let name = schema.as_str().unwrap().rsplit('/').next().unwrap();
                let properties = &document["components"]["schemas"][name]["properties"];
                assert!(properties.is_object(), "{name}");
            }
        }
    }
}

/// The words and parameters that the page's questions have, as their own refusals name them.
#[test]
fn questions_of_the_page_are_described_as_they_are() {
    let server = Server::start(&["words"], &[]);
    let reading = server.good("/v1/attention", &json!({ "text": "To be" }))["reading"].clone();
    let reading = reading.as_str().unwrap();
    let document = server.get("/openapi.json").json();
    let paths = document["paths"].as_object().unwrap();
    let mut links = 0;
    for all in ["/v1/attention/{reading}/", "/v1/choices/", "/v1/runs/"] {
        let described: BTreeMap<&str, &Value> = paths
            .iter()
            .filter_map(|(path, said)| Some((path.strip_prefix(all)?, &said["get"])))
            .collect();
        let at = all.replace("{reading}", reading);
        let said = server.get(&format!("{at}none")).text();
        let words = said.split("there are ").nth(1).unwrap().split('"').next().unwrap();
        let mut words: Vec<&str> = words.split(", ").collect();
        words.sort_unstable();
        assert_eq!(described.keys().copied().collect::<Vec<_>>(), words);
        for (word, said) in described {
            let parameters = said["parameters"].as_array().unwrap().iter();
            let mut described: Vec<&str> = parameters
                .filter(|parameter| parameter["in"] == "query")
                .map(|parameter| parameter["name"].as_str().unwrap())
                .collect();
            described.sort_unstable();
            let refused = server.get(&format!("{at}{word}?none=1")).text();
            let known =
                refused.split("there are ").nth(1).map(|rest| rest.split('"').next().unwrap());
            let mut known: Vec<&str> =
                known.map(|known| known.split(", ").collect()).unwrap_or_default();
            known.sort_unstable();
            assert_eq!(described, known, "{all}{word}: {refused}");
            if all.contains("reading") {
                let opened = &paths["/v1/attention"]["post"]["responses"]["200"]["links"][word];
                assert_eq!(opened["operationId"], said["operationId"]);
                links += 1;
            }
        }
    }
    assert_eq!(links, 9);
}
