//! ONNX: the model as a graph of standard operators, with its weights. Every score, pattern and position, and every mixing
//! whose weights follow from places, is written out as products, biases and masks of places, so no reader has to know our
//! names for them.
//!
//! A decoder takes keys and values of earlier tokens and gives those of all; an encoder-decoder is two graphs.

mod angles;
mod attention;
mod bias;
mod graph;
mod linear;
mod model;
mod pattern;
mod position;
mod proto;
#[cfg(test)]
mod tests;

use std::{fs, io::Write, path::Path};

use whatwhere_files as files;
use whatwhere_training::{Folder, Run};
use whatwhere_transformer::{Family, ModelSettings, ParameterView, Site};

use crate::{
    Error,
    error::Result,
    export::{Exported, must_be_known_to_others, must_be_new},
};
use graph::{Data, Graph, Initializer, Kind, OPSET, Port, Size};
use model::Writer;
use proto::{Message, write_values};

/// The version of the file format that has this version of the operators.
const IR: i64 = 9;
/// Bytes of weights that one message can hold with a margin; more of them go into a file beside it.
const MOST: u64 = 1_900_000_000;

/// Writes a run as ONNX graphs into a folder, which must not be there yet.
pub fn to_onnx(run: &Path, out: &Path) -> Result<Exported> {
    must_be_new(out, "folder")?;
    let opened = Run::open(run)?;
    let settings = &opened.settings.model;
    must_be_known_to_others(settings)?;
    let views = opened.model().views();
    let graphs = graphs(settings, &views)?;
    fs::create_dir_all(out).map_err(Error::file(out))?;
    let mut tensors = 0;
    for (name, graph) in &graphs {
        tensors += graph.initializers.len();
        write(&out.join(name), graph, settings, MOST)?;
    }
    if opened.tokenizer().is_ok() {
        let path = Folder::new(run).tokenizer();
        let text = fs::read(&path).map_err(Error::file(&path))?;
        files::replace(&out.join("tokenizer.json"), |file| file.write_all(&text))
            .map_err(whatwhere_training::Error::from)?;
    }
    let family = match settings.family {
        Family::Decoder => "decoder",
        Family::Encoder => "encoder",
        Family::EncoderDecoder => "encoder_decoder",
    };
    Ok(Exported { path: out.into(), family: family.into(), tensors })
}

/// Why a run cannot be written as graphs, if it cannot.
pub(crate) fn refusal(run: &Run) -> Option<String> {
    graphs(&run.settings.model, &run.model().views()).err().map(|error| error.to_string())
}

/// The graphs of a model by the names of their files.
fn graphs<'a>(
    settings: &ModelSettings,
    views: &'a [ParameterView],
) -> Result<Vec<(&'static str, Graph<'a>)>> {
    let writer = Writer { settings };
    Ok(match settings.family {
        Family::Decoder => vec![("model.onnx", decoder(&writer, views, false)?)],
        Family::Encoder => vec![("model.onnx", encoder(&writer, views, true)?)],
        Family::EncoderDecoder => vec![
            ("encoder_model.onnx", encoder(&writer, views, false)?),
            ("decoder_model.onnx", decoder(&writer, views, true)?),
        ],
    })
}

fn encoder<'a>(writer: &Writer, views: &'a [ParameterView], to_logits: bool) -> Result<Graph<'a>> {
    let mut graph = Graph::new(views);
    let (ids, places) = writer.tokens(&mut graph, None);
    let x = writer.embed(&mut graph, Site::Encoder, &ids, &places)?;
    let hidden = writer.stack(&mut graph, Site::Encoder, x, &places, &[], None)?.out;
    let rows = |last: usize| [Size::Named("batch"), Size::Named("length"), Size::Of(last)];
    if to_logits {
        let logits = writer.logits(&mut graph, &hidden)?;
        graph.output("logits", &logits, Kind::Float, &rows(writer.settings.vocabulary));
    }
    graph.output("last_hidden_state", &hidden, Kind::Float, &rows(writer.settings.width));
    Ok(graph)
}

fn decoder<'a>(writer: &Writer, views: &'a [ParameterView], crosses: bool) -> Result<Graph<'a>> {
    let mut graph = Graph::new(views);
    let (past, count) = writer.past(&mut graph, "")?;
    let (ids, places) = writer.tokens(&mut graph, Some(&count));
    let settings = writer.settings;
    let memory = crosses.then(|| {
        let sizes = [Size::Named("batch"), Size::Named("source"), Size::Of(settings.width)];
        let states = graph.input("encoder_hidden_states", Kind::Float, &sizes);
        let (end, zero, one) = (graph.size(&states, 1), graph.int(0), graph.int(1));
        let keys = graph.op("Range", &[&zero, &end, &one]);
        (states, attention::Places { queries: keys.clone(), keys, end })
    });
    let x = writer.embed(&mut graph, Site::Decoder, &ids, &places)?;
    let memory = memory.as_ref().map(|(states, places)| (states, places));
    let stacked = writer.stack(&mut graph, Site::Decoder, x, &places, &past, memory)?;
    let logits = writer.logits(&mut graph, &stacked.out)?;
    let sizes = [Size::Named("batch"), Size::Named("length"), Size::Of(settings.vocabulary)];
    graph.output("logits", &logits, Kind::Float, &sizes);
    for (layer, kept) in stacked.kept.iter().enumerate() {
        let input = graph.inputs[2 * layer].sizes.clone();
        let sizes = [input[0].clone(), input[1].clone(), Size::Named("total"), input[3].clone()];
        for (part, value) in [("key", &kept.keys), ("value", &kept.values)] {
            graph.output(&format!("present.{layer}.{part}"), value, Kind::Float, &sizes);
        }
    }
    Ok(graph)
}

/// Writes a graph, and beside it its weights if they are more than so many bytes.
fn write(path: &Path, graph: &Graph, settings: &ModelSettings, most: u64) -> Result<()> {
    let weights: u64 = graph.initializers.iter().map(Initializer::bytes).sum();
    let beside = (weights > most).then(|| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        format!("{name}_data")
    });
    let done = |result: std::result::Result<(), files::Error>| {
        result.map_err(whatwhere_training::Error::from)
    };
    if let Some(name) = &beside {
        done(files::replace(&path.with_file_name(name), |out| {
            graph.initializers.iter().try_for_each(|one| match one.data {
                Data::View(values) => write_values(out, values),
                Data::Own(_) => Ok(()),
            })
        }))?;
    }
    let settings = serde_json::to_string(settings).map_err(|e| Error::Refused(e.to_string()))?;
    let model = message(graph, &settings, beside.as_deref());
    done(files::replace(path, |out| model.write(out)))?;
    Ok(())
}

/// The whole file as a message.
fn message<'m>(graph: &'m Graph<'_>, settings: &str, beside: Option<&str>) -> Message<'m> {
    let mut offset = 0;
    let mut inner = Message::default().bytes(2, "whatwhere");
    for node in &graph.nodes {
        inner = inner.message(1, node.borrowed());
    }
    for one in &graph.initializers {
        inner = inner.message(5, one.message(beside, &mut offset));
    }
    inner = inner.messages(11, graph.inputs.iter().map(Port::message));
    inner = inner.messages(12, graph.outputs.iter().map(Port::message));
    let opset = Message::default().bytes(1, "").int(2, OPSET);
    let said = Message::default().bytes(1, "whatwhere").bytes(2, settings);
    Message::default()
        .int(1, IR)
        .bytes(2, "whatwhere")
        .bytes(3, env!("CARGO_PKG_VERSION"))
        .message(7, inner)
        .message(8, opset)
        .message(14, said)
}

impl Initializer<'_> {
    fn bytes(&self) -> u64 {
        match &self.data {
            Data::View(values) => size_of_val(*values) as u64,
            Data::Own(bytes) => bytes.len() as u64,
        }
    }

    fn message<'m>(&'m self, beside: Option<&str>, offset: &mut u64) -> Message<'m> {
        let sizes = self.shape.iter();
        let tensor = sizes.fold(Message::default(), |tensor, size| tensor.int(1, *size as i64));
        let tensor = tensor.int(2, self.kind as i64).bytes(8, &self.name);
        match (&self.data, beside) {
            (Data::Own(bytes), _) => tensor.bytes(9, bytes),
            (Data::View(values), None) => tensor.values(9, values),
            (Data::View(_), Some(file)) => {
                let (start, length) = (*offset, self.bytes());
                *offset += length;
                let entry =
                    |key: &str, value: String| Message::default().bytes(1, key).bytes(2, value);
                tensor
                    .message(13, entry("location", file.into()))
                    .message(13, entry("offset", start.to_string()))
                    .message(13, entry("length", length.to_string()))
                    .int(14, 1)
            }
        }
    }
}

impl Port {
    fn message<'m>(&self) -> Message<'m> {
        let size = |size: &Size| match size {
            Size::Named(name) => Message::default().bytes(2, name),
            Size::Of(count) => Message::default().int(1, *count as i64),
        };
        let shape = Message::default().messages(1, self.sizes.iter().map(size));
        let tensor = Message::default().int(1, self.kind as i64).message(2, shape);
        let of = Message::default().message(1, tensor);
        Message::default().bytes(1, &self.name).message(2, of)
    }
}
