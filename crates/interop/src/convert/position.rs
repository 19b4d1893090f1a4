//! Paths between encodings.

use toml::{Table, Value};
use whatwhere_attention::{
    Position,
    position::{Learned, Polar, Rotary, RotaryLayout, Sinusoidal, T5},
};
use whatwhere_kernels::attention::Buckets;
use whatwhere_transformer::{Parameter, Site};

use super::{Converted, Step};
use crate::{Error, error::Result, places, places::Place};

/// What there is a path between, and what it keeps.
const PATHS: &str = "sinusoidal to learned (exact up to its length), learned to learned of another length (exact up to the \
    shorter), alibi to t5 (exact up to its near buckets), alibi to alibi with learned slopes (exact), rotary to rotary with \
    the other layout (exact) or with another base, share or scaling such as yarn (a start), rotary to polar (a start)";

/// Scalings that are asked for as if they were encodings.
const SCALINGS: [&str; 5] = ["linear", "ntk", "dynamic_ntk", "yarn", "llama3"];

pub(super) fn convert(converted: &mut Converted, to: &Value, length: usize) -> Result<()> {
    let from = current(converted)?;
    let mut to = read(&from, to, length)?;
    let step = match (&from, &mut to) {
        (Position::Sinusoidal(from), Position::Learned(to)) if to.grid.is_none() => {
            learned(converted, from, to)?
        }
        (Position::Learned(from), Position::Learned(to))
            if from.length != to.length && from.grid.or(to.grid).is_none() =>
        {
            longer(converted, from, to)
        }
        (Position::Alibi(_), Position::T5(to)) => table(converted, to)?,
        (Position::Alibi(from), Position::Alibi(to)) if from.learned != to.learned => Step {
            change: String::new(),
            exact: true,
            length: None,
            how: "the slopes stay as they are, and learn or do not".into(),
        },
        (Position::Rotary(from), Position::Rotary(to)) if from != to => {
            rotary(converted, from, to)?
        }
        (Position::Rotary(from), Position::Polar(to)) => polar(converted, from, to)?,
        (from, to) if from == to => {
            return Err(Error::Refused(format!("position: the model has {} already", words(from))));
        }
        (from, to) => {
            let (from, to) = (from.name(), to.name());
            return Err(Error::Refused(format!("no path from {from} to {to}; there are: {PATHS}")));
        }
    };
    write(converted, &to)?;
    let change = format!("{} to {}", words(&from), words(&to));
    converted.steps.push(Step { change, ..step });
    Ok(())
}

fn words(position: &Position) -> String {
    let value = Value::try_from(position).unwrap_or_else(|_| position.name().into());
    value.as_str().map_or_else(|| value.to_string(), String::from)
}

/// The encoding that is asked for: what is not said of it is as it was, or as large as the length needs.
fn read(from: &Position, value: &Value, length: usize) -> Result<Position> {
    let mut table = match value {
        Value::String(name) if SCALINGS.contains(&name.as_str()) => {
            let trained = match name.as_str() {
                "linear" | "ntk" => String::new(),
                _ => format!(", length = {length}"),
            };
            let scaling = format!("{{ kind = \"{name}\", factor = 4.0{trained} }}");
            return Err(Error::Refused(format!(
                "position = {name}: a scaling of rotary, expected a table such as {{ kind = \"rotary\", scaling = {scaling} }}"
            )));
        }
        Value::String(name) => Table::from_iter([("kind".into(), Value::String(name.clone()))]),
        Value::Table(table) => table.clone(),
        other => {
            return Err(Error::Refused(format!("position = {other}: expected a name or a table")));
        }
    };
    if table.get("kind").and_then(Value::as_str) == Some(from.name()) {
        let had = Value::try_from(from).ok().and_then(|had| had.as_table().cloned());
        let given = std::mem::replace(&mut table, had.unwrap_or_default());
        table.extend(given);
    }
    if let (Position::Rotary(_), Some("polar")) = (from, table.get("kind").and_then(Value::as_str))
    {
        let had = Value::try_from(from).ok().and_then(|had| had.as_table().cloned());
        for (key, value) in had.unwrap_or_default() {
            if ["base", "channels", "heads", "grid"].contains(&key.as_str()) {
                table.entry(key).or_insert(value);
            }
        }
    }
    let sizes = [("learned", "length", 1), ("t5", "buckets", 4), ("t5", "max_distance", 8)];
    for (kind, key, times) in sizes {
        if table.get("kind").and_then(Value::as_str) == Some(kind) && !table.contains_key(key) {
            // Buckets of a table with two sides are shared out to both.
            table.insert(key.into(), ((times * length) as i64).into());
        }
    }
    let value = Value::Table(table);
    value.clone().try_into().map_err(|e: toml::de::Error| {
        Error::Refused(format!("position = {value}: {}", e.message()))
    })
}

/// The one encoding that all layers have.
fn current(converted: &Converted) -> Result<Position> {
    let settings = &converted.settings;
    let refused = |found: &str| {
        Err(Error::Refused(format!("position: {found}; expected one encoding for all layers")))
    };
    let mut found: Option<Position> = None;
    for (site, depth) in
        [(Site::Encoder, settings.encoder_depth()), (Site::Decoder, settings.decoder_depth())]
    {
        for layer in 0..depth {
            let own = settings.attention(site, layer)?.position;
            let [one] = own.as_slice() else {
                return refused("the model has several encodings side by side");
            };
            match &found {
                None => found = Some(one.clone()),
                Some(other) if other == one => {}
                Some(_) => return refused("layers have encodings of their own"),
            }
        }
    }
    found.map_or_else(|| refused("the model has no layers"), Ok)
}

/// Writes the encoding for all layers.
fn write(converted: &mut Converted, to: &Position) -> Result<()> {
    let settings = &mut converted.settings;
    // What follows from the encoding stays as it was.
    settings.scale_embeddings = Some(settings.scales_embeddings()?);
    let value = Value::try_from(to).map_err(|e| Error::Refused(e.to_string()))?;
    settings.encoder.remove("position");
    settings.alternate.iter_mut().for_each(|table: &mut Table| {
        table.remove("position");
    });
    if settings.alternate.iter().all(Table::is_empty) {
        settings.alternate.clear();
    }
    settings.attention.insert("position".into(), value);
    Ok(())
}

/// Stacks of the model, by the beginning of their parameters' names.
fn stacks(converted: &Converted) -> Vec<&'static str> {
    let settings = &converted.settings;
    let depths = [("encoder", settings.encoder_depth()), ("decoder", settings.decoder_depth())];
    depths.into_iter().filter(|(_, depth)| *depth > 0).map(|(name, _)| name).collect()
}

fn learned(converted: &mut Converted, from: &Sinusoidal, to: &mut Learned) -> Result<Step> {
    let settings = &converted.settings;
    let projects_last = settings.embedding_width.is_some() && settings.project_positions;
    let width = if projects_last { settings.embedding_channels() } else { settings.width };
    let value = |place: usize, channel: usize| {
        from.value((place + from.first) as f64, channel, width) as f32
    };
    let places = 0..to.length;
    let values: Vec<f32> =
        places.flat_map(|place| (0..width).map(move |channel| value(place, channel))).collect();
    for stack in stacks(converted) {
        let name = format!("{stack}.position.0.Learned.table");
        let shape = vec![to.length, width];
        converted.parameters.push(Parameter { name, shape, values: values.clone() });
    }
    let how = format!("the waves of the first {} places become the table", to.length);
    Ok(Step { change: String::new(), exact: true, length: Some(to.length), how })
}

fn longer(converted: &mut Converted, from: &Learned, to: &Learned) -> Step {
    converted.rewrite("Learned.table", |one| {
        let width = one.shape[1];
        let last = one.values[(from.length - 1) * width..].to_vec();
        one.values.truncate(to.length * width);
        while one.values.len() < to.length * width {
            one.values.extend(&last);
        }
        one.shape[0] = to.length;
    });
    let shorter = from.length.min(to.length);
    let rest =
        if to.length > from.length { "; places beyond have the last one's vector" } else { "" };
    let how = format!("the vectors of the first {shorter} places stay{rest}");
    Step { change: String::new(), exact: true, length: Some(shorter), how }
}

/// ALiBi's penalties as a table of buckets.
fn table(converted: &mut Converted, to: &mut T5) -> Result<Step> {
    let settings = &converted.settings;
    to.bidirectional = settings.encoder_depth() > 0;
    if settings.encoder_depth() > 0 && settings.decoder_depth() > 0 {
        let reason = "the encoder's distances have two sides and the decoder's one, which one setting does not say";
        return Err(Error::Refused(format!("alibi to t5: {reason}")));
    }
    if settings.share_positions {
        let reason = "share_positions would take the first layer's slopes for all";
        return Err(Error::Refused(format!("alibi to t5: {reason}")));
    }
    let T5 { buckets, max_distance, bidirectional } = *to;
    let kind = Buckets { count: buckets, max_distance, bidirectional };
    // The distances of each bucket, as far as they are told apart.
    let reach = max_distance.max(buckets) as isize + 1;
    let mut members: Vec<Vec<f64>> = vec![Vec::new(); buckets];
    let right = if bidirectional { reach } else { 0 };
    for distance in -reach..=right {
        members[kind.index(distance)].push(distance.unsigned_abs() as f64);
    }
    let alone = |distance: isize| members[kind.index(distance)].len() == 1;
    let is_exact = |far: &usize| {
        let far = *far as isize;
        alone(-far) && (!bidirectional || alone(far))
    };
    let exact = (0..max_distance).take_while(is_exact).count();
    let means: Vec<f64> = members
        .iter()
        .map(|all| if all.is_empty() { 0.0 } else { all.iter().sum::<f64>() / all.len() as f64 })
        .collect();
    for one in &mut converted.parameters {
        let Some(start) = one.name.strip_suffix("Alibi.slopes").map(String::from) else { continue };
        let heads = one.values.len();
        one.name = format!("{start}T5.table");
        one.shape = vec![heads, buckets];
        one.values = one
            .values
            .iter()
            .flat_map(|slope| means.iter().map(|mean| (-f64::from(*slope) * mean) as f32))
            .collect();
    }
    let how = format!(
        "penalties of the {exact} nearest distances have buckets of their own, farther ones share the mean of theirs"
    );
    Ok(Step { change: String::new(), exact: true, length: Some(exact), how })
}

/// Another layout is another order of channels; all else is a start for training.
fn rotary(converted: &mut Converted, from: &Rotary, to: &Rotary) -> Result<Step> {
    let other = Rotary { layout: from.layout, ..to.clone() };
    if from.layout != to.layout {
        let to_pairs = to.layout == RotaryLayout::Interleaved;
        reorder(converted, from, to_pairs);
    }
    if other == *from {
        let how = "the channels of queries and keys stand in the other order".into();
        return Ok(Step { change: String::new(), exact: true, length: None, how });
    }
    let how = "the weights stay, and angles are others: a start for training".into();
    Ok(Step { change: String::new(), exact: false, length: None, how })
}

/// Channels of queries and keys between halves and pairs, within those that rotate.
fn reorder(converted: &mut Converted, rotary: &Rotary, to_pairs: bool) {
    for Place { prefix, heads, own } in places::attentions(&converted.settings) {
        if !own {
            continue;
        }
        let turning = rotary.channels.of(heads.head_dim);
        let half = turning.len() / 2;
        let from = |to: usize| -> usize {
            if !turning.contains(&to) || half == 0 {
                return to;
            }
            let at = to - turning.start;
            turning.start
                + match to_pairs {
                    true => at % 2 * half + at / 2,
                    false => at % half * 2 + at / half,
                }
        };
        for part in ["query", "key", "query_norm", "key_norm"] {
            let start = format!("{prefix}.{part}.");
            for one in converted.parameters.iter_mut().filter(|one| one.name.starts_with(&start)) {
                let columns = one.shape.last().copied().unwrap_or(0);
                if columns == 0 || !columns.is_multiple_of(heads.head_dim) {
                    continue;
                }
                let order: Vec<usize> = (0..columns)
                    .map(|to| to / heads.head_dim * heads.head_dim + from(to % heads.head_dim))
                    .collect();
                let rows = one.values.chunks(columns);
                one.values = rows.flat_map(|row| order.iter().map(|at| row[*at])).collect();
            }
        }
    }
}

/// Polar's channels have frequencies of their own: a pair's two become neighbours, where polar's are nearest to the pair's.
fn polar(converted: &mut Converted, from: &Rotary, to: &Polar) -> Result<Step> {
    if from.scaling != Default::default() {
        let reason = "polar has no scaling; convert to rotary without one first";
        return Err(Error::Refused(format!("rotary to polar: {reason}")));
    }
    if from.layout == RotaryLayout::HalfSplit {
        reorder(converted, from, true);
    }
    for (name, shape) in position_shapes(converted, to)? {
        let values = vec![0.0; shape.iter().product()];
        converted.parameters.push(Parameter { name, shape, values });
    }
    let how = "queries and keys become magnitudes of the same channels, phases start at 0: a start for training".into();
    Ok(Step { change: String::new(), exact: false, length: None, how })
}

/// Parameters of positions that the model has with this encoding, and not yet.
fn position_shapes(converted: &Converted, to: &Polar) -> Result<Vec<(String, Vec<usize>)>> {
    let mut other = Converted {
        settings: converted.settings.clone(),
        parameters: Vec::new(),
        steps: Vec::new(),
    };
    write(&mut other, &Position::from(*to))?;
    let had: Vec<&String> = converted.parameters.iter().map(|one| &one.name).collect();
    Ok(other.settings.shapes()?.into_iter().filter(|(name, _)| !had.contains(&name)).collect())
}
