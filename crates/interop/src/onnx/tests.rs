//! Graphs read back by a reader of a few lines: every name is defined before it is used, every initializer is used, sizes and
//! bytes agree, and weights beside the file are those within it.

use std::{collections::BTreeSet, fs};

use whatwhere_transformer::ModelSettings;

use super::*;

/// Fields of a message: number, and a number or bytes.
fn fields(mut bytes: &[u8]) -> Vec<(u64, Field<'_>)> {
    let mut out = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes);
        let value = match tag & 7 {
            0 => Field::Number(varint(&mut bytes)),
            2 => {
                let length = varint(&mut bytes) as usize;
                let (own, rest) = bytes.split_at(length);
                bytes = rest;
                Field::Bytes(own)
            }
            5 => {
                bytes = &bytes[4..];
                Field::Number(0)
            }
            other => panic!("kind {other}"),
        };
        out.push((tag >> 3, value));
    }
    out
}

#[derive(Clone, Copy)]
enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let (mut value, mut shift) = (0, 0);
    loop {
        let (byte, rest) = bytes.split_first().unwrap();
        *bytes = rest;
        value |= u64::from(byte & 127) << shift;
        if byte & 128 == 0 {
            return value;
        }
        shift += 7;
    }
}

fn all<'a>(message: &[(u64, Field<'a>)], field: u64) -> Vec<&'a [u8]> {
    let one = |(number, value): &(u64, Field<'a>)| match value {
        Field::Bytes(bytes) if *number == field => Some(*bytes),
        _ => None,
    };
    message.iter().filter_map(one).collect()
}

fn words(message: &[(u64, Field)], field: u64) -> Vec<String> {
    all(message, field).into_iter().map(|bytes| String::from_utf8(bytes.into()).unwrap()).collect()
}

fn numbers(message: &[(u64, Field)], field: u64) -> Vec<u64> {
    let one = |(number, value): &(u64, Field)| match value {
        Field::Number(value) if *number == field => Some(*value),
        _ => None,
    };
    message.iter().filter_map(one).collect()
}

/// Checks one file and returns its number of nodes.
fn sound(file: &[u8], name: &str) -> usize {
    let model = fields(file);
    assert_eq!(numbers(&model, 1), [IR as u64], "{name}");
    let graph = fields(all(&model, 7)[0]);
    let mut defined: BTreeSet<String> = BTreeSet::new();
    let mut unused: BTreeSet<String> = BTreeSet::new();
    for tensor in all(&graph, 5) {
        let tensor = fields(tensor);
        let own = words(&tensor, 8).remove(0);
        let count: u64 = numbers(&tensor, 1).iter().product();
        let size = match numbers(&tensor, 2)[0] {
            1 => 4,
            7 | 11 => 8,
            9 => 1,
            other => panic!("{name}: {own} is of type {other}"),
        };
        if numbers(&tensor, 14).is_empty() {
            assert_eq!(all(&tensor, 9)[0].len() as u64, count * size, "{name}: {own}");
        }
        assert!(defined.insert(own.clone()), "{name}: {own} twice");
        unused.insert(own);
    }
    for port in all(&graph, 11) {
        let port = words(&fields(port), 1).remove(0);
        assert!(defined.insert(port.clone()), "{name}: {port} twice");
        unused.insert(port);
    }
    let nodes = all(&graph, 1);
    for node in &nodes {
        let node = fields(node);
        for input in words(&node, 1) {
            assert!(defined.contains(&input), "{name}: {input} is not there yet");
            unused.remove(&input);
        }
        for output in words(&node, 2) {
            assert!(defined.insert(output.clone()), "{name}: {output} twice");
        }
    }
    for port in all(&graph, 12) {
        let port = words(&fields(port), 1).remove(0);
        assert!(defined.contains(&port), "{name}: no {port}");
    }
    assert!(unused.is_empty(), "{name}: nobody reads {unused:?}");
    nodes.len()
}

fn built(text: &str) -> (ModelSettings, Vec<ParameterView>) {
    let text = format!("vocabulary = 11\nwidth = 16\nlayers = 2\n{text}");
    let settings = ModelSettings::from_toml(&text).unwrap();
    let views = settings.build(1, &Default::default()).unwrap().views();
    (settings, views)
}

#[test]
fn graphs_are_sound_for_every_encoding_and_family() {
    let folder = tempfile::tempdir().unwrap();
    for family in ["decoder", "encoder", "encoder_decoder"] {
        let names = whatwhere_attention::Position::NAMES.iter().map(|name| format!("'{name}'"));
        let grids =
            ["rotary", "polar", "learned"].map(|kind| format!("{{ kind = '{kind}', grid = 3 }}"));
        for position in names.chain(grids) {
            let text = format!(
                "family = '{family}'\nattention = {{ heads = 4, kv_heads = 2, position = {position} }}"
            );
            let (settings, views) = built(&text);
            for (name, graph) in graphs(&settings, &views).unwrap() {
                let path = folder.path().join(name);
                write(&path, &graph, &settings, MOST).unwrap();
                let what = format!("{family} {position} {name}");
                let nodes = sound(&fs::read(&path).unwrap(), &what);
                assert_eq!(nodes, graph.nodes.len(), "{what}");
                assert!(!path.with_file_name(format!("{name}_data")).exists(), "{what}");
            }
        }
    }
}

#[test]
fn every_parameter_is_in_a_graph() {
    let text = "family = 'encoder_decoder'\nbias = true\nattention = { heads = 4, position = 'shaw', bias = true }";
    let (settings, views) = built(text);
    let graphs = graphs(&settings, &views).unwrap();
    let there: BTreeSet<&str> = graphs
        .iter()
        .flat_map(|(_, graph)| graph.initializers.iter().map(|one| one.name.as_str()))
        .collect();
    for view in &views {
        assert!(there.contains(view.name.as_str()), "{}", view.name);
    }
}

#[test]
fn weights_beside_the_file_are_those_within_it() {
    let folder = tempfile::tempdir().unwrap();
    let (settings, views) = built("");
    let graphs = graphs(&settings, &views).unwrap();
    let (name, graph) = &graphs[0];
    let path = folder.path().join(name);
    write(&path, graph, &settings, 0).unwrap();
    let file = fs::read(&path).unwrap();
    sound(&file, name);
    let beside = fs::read(folder.path().join("model.onnx_data")).unwrap();
    let model = fields(&file);
    let graph = fields(all(&model, 7)[0]);
    let mut found = 0;
    for tensor in all(&graph, 5) {
        let tensor = fields(tensor);
        let entries: Vec<Vec<String>> = all(&tensor, 13)
            .into_iter()
            .map(|entry| [1, 2].map(|field| words(&fields(entry), field).remove(0)).into())
            .collect();
        let [location, offset, length] = &entries[..] else { continue };
        assert_eq!(location[..], ["location", "model.onnx_data"]);
        let (offset, length): (usize, usize) =
            (offset[1].parse().unwrap(), length[1].parse().unwrap());
        let own = words(&tensor, 8).remove(0);
        let view = views.iter().find(|view| view.name == own).unwrap();
        let want: Vec<u8> = view.values().iter().flat_map(|value| value.to_le_bytes()).collect();
        assert_eq!(beside[offset..offset + length], want, "{own}");
        found += 1;
    }
    assert_eq!(found, views.len());
}

#[test]
fn layers_that_hide_alike_share_their_masks() {
    let (_, views) = built("attention = { heads = 4, position = 'none' }");
    let (settings, _) = built("attention = { heads = 4, position = 'none' }");
    let graph = &graphs(&settings, &views).unwrap()[0].1;
    let mut out = Vec::new();
    message(graph, "", None).write(&mut out).unwrap();
    let model = fields(&out);
    let inner = fields(all(&model, 7)[0]);
    let kinds: Vec<String> =
        all(&inner, 1).into_iter().map(|node| words(&fields(node), 4).remove(0)).collect();
    assert_eq!(kinds.iter().filter(|kind| *kind == "LessOrEqual").count(), 1, "{kinds:?}");
    assert_eq!(kinds.iter().filter(|kind| *kind == "Softmax").count(), 2, "{kinds:?}");
}
