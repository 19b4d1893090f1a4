//! No prediction sees its target: for every family, objective, pattern, position and mixing that settings accept, the
//! target is changed in the data, and the prediction of it stays what it was.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;

use burn::tensor::Device;
use whatwhere_attention::{Mixing, Pattern, Position};
use whatwhere_data::{Batch, Batches, Corpus, DataSettings, Split};
use whatwhere_training::{RunSettings, trainer};
use whatwhere_transformer::{Mode, Model, Sequences};

const FAMILIES: [&str; 3] = ["decoder", "encoder", "encoder_decoder"];
const OBJECTIVES: [&str; 5] = ["next_token", "masked", "translate", "prefix", "classify"];

/// Tokens of a row, and the letter of a line that is changed.
const LENGTH: usize = 16;
const CHANGED: usize = 7;

/// Joined patterns and those with settings, beside the plain names.
const JOINED: [&str; 14] = [
    "{ kind = 'window', left = 3, right = 2 }",
    "{ kind = 'dilated', left = 2, right = 2, step = 2 }",
    "{ kind = 'and', of = ['causal', 'random'] }",
    "{ kind = 'and', of = ['full', 'global'] }",
    "{ kind = 'and', of = ['causal', 'document'] }",
    "{ kind = 'and', of = ['document', { kind = 'window', left = 4, right = 4 }] }",
    "{ kind = 'and', of = ['causal', { kind = 'or', of = ['document', 'global'] }] }",
    "{ kind = 'or', of = ['causal', 'global'] }",
    "{ kind = 'or', of = ['strided', { kind = 'window', left = 2 }] }",
    "{ kind = 'and', of = ['causal', { kind = 'or', of = ['global', 'prefix'] }] }",
    "{ kind = 'prefix', length = 9 }",
    // The letter that is changed, and one that is not.
    "{ kind = 'global', tokens = [88, 97] }",
    "{ kind = 'or', of = [{ kind = 'window', left = 2, right = 2 }, { kind = 'global', tokens = [88] }] }",
    "{ kind = 'and', of = ['causal', { kind = 'or', of = [{ kind = 'window', left = 2 }, { kind = 'global', tokens = [88, 97] }] }] }",
];

fn settings(family: &str, objective: &str, attention: &str, more: &str) -> String {
    let source = match objective {
        "translate" => "source = 'pairs'\n",
        "classify" => "source = 'labeled'\n",
        _ => "",
    };
    // Nothing but the mask stands where a token is to be predicted: BERT's tenth that shows the token itself is a choice.
    let objective = match objective {
        "masked" => "{ kind = 'masked', share = 0.75, hidden = 1.0, random = 0.0 }".into(),
        // Shorter than what stands before the token that is changed.
        "prefix" => "{ kind = 'prefix', share = 0.4 }".into(),
        "classify" => "{ kind = 'classify', classes = ['no', 'yes'] }".into(),
        other => format!("'{other}'"),
    };
    format!(
        "[data]\n{source}tokenizer = 'bytes'\nobjective = {objective}\nvalid_share = 0.0\n\
         [model]\nfamily = '{family}'\nwidth = 16\nlayers = 2\n{more}\n\
         [model.attention]\nheads = 2\n{attention}\n[training]\nbatch = 4\nlength = {LENGTH}"
    )
}

/// The same data twice, with another letter in one place; of texts with labels with another label.
fn corpora(data: &DataSettings, objective: &str) -> [Corpus; 2] {
    let line = |changed: bool| {
        let mut letters: Vec<u8> = (0..LENGTH - 2).map(|i| b'a' + (i * 5 % 19) as u8).collect();
        letters[CHANGED] = if changed { b'Y' } else { b'X' };
        String::from_utf8(letters).unwrap()
    };
    [false, true].map(|changed| {
        if objective == "classify" {
            return labeled(data, &[line(false), line(true)], changed);
        }
        if objective != "translate" {
            // The second document starts in the first row; no row holds two of its letters that are changed.
            let texts = vec!["abcd".into(), line(changed).repeat(5)];
            return Corpus::from_texts(texts, data).unwrap();
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pairs.tsv");
        fs::write(&path, format!("some source\t{}\nother\t{}\n", line(changed), line(false)))
            .unwrap();
        let mut data = data.clone();
        data.source = whatwhere_data::settings::Pairs {
            source: path.clone(),
            target: path,
            ..Default::default()
        }
        .into();
        Corpus::load(&data).unwrap()
    })
}

/// Two texts, the first with one of two labels.
fn labeled(data: &DataSettings, texts: &[String; 2], changed: bool) -> Corpus {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("texts.tsv");
    let label = if changed { "no" } else { "yes" };
    let [one, other] = texts;
    fs::write(&path, format!("{one}\t{label}\n{other}\tno\n")).unwrap();
    let mut data = data.clone();
    data.source = whatwhere_data::settings::Labeled {
        path,
        field: "1".into(),
        label_field: "2".into(),
        ..Default::default()
    }
    .into();
    Corpus::load(&data).unwrap()
}

fn first(settings: &RunSettings, corpus: &Corpus) -> Batch {
    let batches: Batches = trainer::batches(settings, corpus, Split::Train).unwrap();
    batches.evaluation(Some(1)).next().unwrap().unwrap()
}

/// Scores at every place, `rows · length · vocabulary`.
fn logits(model: &Model, batch: &Batch) -> Vec<f32> {
    let sequences = |tokens: &[u32], length: usize, lengths: &[usize]| {
        let rows: Vec<Vec<u32>> = tokens.chunks(length).map(<[u32]>::to_vec).collect();
        let mut sequences = Sequences::from_rows(&rows);
        sequences.lengths = Some(lengths.to_vec());
        sequences
    };
    let mut tokens = sequences(&batch.tokens, batch.length, &batch.lengths);
    tokens.documents = Some(batch.documents.clone());
    tokens.prefixes = batch.prefixes.clone();
    if batch.labels.is_some() {
        return model
            .classify(&tokens, Mode::default())
            .unwrap()
            .into_data()
            .try_into_vec()
            .unwrap();
    }
    let source = batch
        .source
        .as_ref()
        .map(|source| sequences(&source.tokens, source.length, &source.lengths));
    let logits = model.forward(source.as_ref(), &tokens, Mode::default()).unwrap();
    logits.into_data().try_into_vec().unwrap()
}

/// How far the predictions of changed targets move; nothing if none was changed.
fn moved(settings: &RunSettings, corpora: &[Corpus; 2], model: &Model) -> Option<f32> {
    let batches = corpora.each_ref().map(|corpus| first(settings, corpus));
    let [before, after] = batches.each_ref().map(|batch| logits(model, batch));
    if let [Some(a), Some(b)] = batches.each_ref().map(|batch| batch.labels.as_ref()) {
        let rows = a.classes.iter().zip(&b.classes).enumerate().filter(|(_, (a, b))| a != b);
        let classes = before.len() / batches[0].rows;
        let moves = |row: usize| {
            let row = row * classes..(row + 1) * classes;
            let each = before[row.clone()].iter().zip(&after[row]).map(|(a, b)| (a - b).abs());
            each.fold(0.0, f32::max)
        };
        return rows.map(|(row, _)| moves(row)).reduce(f32::max);
    }
    let vocabulary = before.len() / batches[0].targets.len();
    let mut far = None;
    for (place, (a, b)) in batches[0].targets.iter().zip(&batches[1].targets).enumerate() {
        if a != b && batches[0].weights[place] > 0.0 {
            let row = place * vocabulary..(place + 1) * vocabulary;
            let moves = before[row.clone()].iter().zip(&after[row]).map(|(a, b)| (a - b).abs());
            far = moves.chain(far).reduce(f32::max);
        }
    }
    far
}

fn attentions() -> Vec<String> {
    let quoted = |name: &&str| format!("'{name}'");
    let joins = ["and", "or"]; // without parts they are nothing
    let plain = Pattern::NAMES.iter().filter(|name| !joins.contains(name)).map(quoted);
    let patterns: Vec<String> = plain.chain(JOINED.map(Into::into)).collect();
    let mut all = Vec::new();
    for position in Position::NAMES {
        for mixing in Mixing::NAMES {
            for pattern in &patterns {
                all.push(format!(
                    "position = '{position}'\nmixing = '{mixing}'\npattern = {pattern}"
                ));
            }
            // What the site has by default.
            all.push(format!("position = '{position}'\nmixing = '{mixing}'"));
        }
    }
    all
}

#[test]
fn no_prediction_changes_with_its_target() {
    let mut accepted = [[0; 5]; 3];
    let mut packed = [[0; 5]; 3];
    for (f, family) in FAMILIES.into_iter().enumerate() {
        for (o, objective) in OBJECTIVES.into_iter().enumerate() {
            let mut data: Option<[Corpus; 2]> = None;
            for attention in attentions() {
                // The decoder's part of an encoder-decoder; its encoder may see all of its source.
                let more = match family {
                    "encoder_decoder" => "encoder = { pattern = 'full' }",
                    _ => "",
                };
                let text = settings(family, objective, &attention, more);
                let Ok(mut settings) = RunSettings::read(&text, &[]) else { continue };
                let corpora = data.get_or_insert_with(|| corpora(&settings.data, objective));
                settings.resolve_for(&corpora[0]).unwrap();
                let model = settings.model.build(1, &Device::flex()).unwrap();
                let far = moved(&settings, corpora, &model).expect("a target was changed");
                assert_eq!(far, 0.0, "{family}, {objective}: sees its target with {attention}");
                accepted[f][o] += 1;
                packed[f][o] += usize::from(attention.contains("document"));
            }
            if let (Some(corpora), "next_token" | "masked") = (&data, objective) {
                let of = settings(family, objective, "", "");
                let batch = first(&RunSettings::read(&of, &[]).unwrap(), &corpora[0]);
                assert_eq!(batch.documents[0], [0, 4], "a row has two documents");
            }
        }
    }
    // Rows are families, columns objectives.
    assert!(accepted[0][0] > 50 && accepted[0][1] > 50, "{accepted:?}");
    assert!(accepted[1][1] > 100 && accepted[2][2] > 50, "{accepted:?}");
    assert_eq!([accepted[0][2], accepted[1][0], accepted[1][2]], [0; 3], "{accepted:?}");
    assert_eq!([accepted[2][0], accepted[2][1]], [0; 2], "{accepted:?}");
    assert!(accepted[0][3] > 50, "{accepted:?}");
    assert_eq!([accepted[1][3], accepted[2][3]], [0; 2], "{accepted:?}");
    assert!(accepted[0][4] > 50 && accepted[1][4] > 100, "{accepted:?}");
    assert_eq!(accepted[2][4], 0, "{accepted:?}");
    // Those that are told where documents start: a prefix is seen across documents, and refuses them.
    for (f, of_family) in accepted.iter().enumerate() {
        for (o, accepted) in of_family.iter().enumerate() {
            let told = packed[f][o];
            let expected = *accepted > 0 && OBJECTIVES[o] != "prefix";
            assert_eq!(told > 8, expected, "{} {}: {told}", FAMILIES[f], OBJECTIVES[o]);
        }
    }
}

#[test]
fn a_prefix_is_seen_in_both_directions_and_nothing_behind_it() {
    for attention in
        ["", "position = 'alibi'", "pattern = { kind = 'window', left = 3 }", "pattern = 'strided'"]
    {
        let text = settings("decoder", "prefix", attention, "").replace("0.4", "1.0");
        let mut settings = RunSettings::read(&text, &[]).unwrap();
        let line = (0..400u32).map(|i| char::from(b'a' + (i * i % 23) as u8)).collect();
        let corpus = Corpus::from_texts(vec![line], &settings.data).unwrap();
        settings.resolve(corpus.vocabulary()).unwrap();
        let model = settings.model.build(1, &Device::flex()).unwrap();
        let vocabulary = settings.model.vocabulary;
        let batches: Batches = trainer::batches(&settings, &corpus, Split::Train).unwrap();
        let mut longest = 0;
        for batch in batches.evaluation(Some(6)) {
            let batch = batch.unwrap();
            let before = logits(&model, &batch);
            let prefixes = batch.prefixes.clone().unwrap();
            for (row, place) in
                (0..batch.rows).flat_map(|row| (0..batch.lengths[row]).map(move |p| (row, p)))
            {
                let mut changed = batch.clone();
                changed.tokens[row * batch.length + place] += 1;
                let after = logits(&model, &changed);
                let moves = |at: usize| {
                    let start = (row * batch.length + at) * vocabulary;
                    before[start..start + vocabulary] != after[start..start + vocabulary]
                };
                // Whoever predicts something from here on does not see it; what is given is seen by all that is read.
                let is_given = place < prefixes[row];
                for at in 0..batch.lengths[row] {
                    let counts = batch.weights[row * batch.length + at] > 0.0;
                    if at < place && counts {
                        assert!(!moves(at), "{attention}: {at} sees {place} of {prefixes:?}");
                    }
                    if is_given {
                        assert!(
                            moves(at),
                            "{attention}: {at} does not see {place} of {prefixes:?}"
                        );
                    }
                }
            }
            longest = longest.max(prefixes.into_iter().max().unwrap());
        }
        assert!(longest > 8, "{longest}");
    }
}

#[test]
fn a_prefix_is_refused_where_it_cannot_be_seen() {
    for (family, attention, more, expected) in [
        ("encoder", "", "", "an encoder sees the token"),
        ("encoder_decoder", "", "", "needs a source"),
        ("decoder", "mixing = 'linear'\nposition = 'none'", "", "linear mixing"),
        (
            "decoder",
            "pattern = { kind = 'and', of = ['causal', 'document'] }",
            "",
            "across documents",
        ),
        ("decoder", "position = 'transformer_xl'", "segment_memory = 8", "each segment"),
    ] {
        let text = settings(family, "prefix", attention, more);
        let message = RunSettings::read(&text, &[]).unwrap_err().to_string();
        assert!(
            message.contains("data.objective = prefix") && message.contains(expected),
            "{message}"
        );
    }
}

#[test]
fn what_is_refused_does_see_its_target() {
    // The settings of an encoder that fills blanks, with data of another objective: past every check.
    let text = settings("encoder", "masked", "", "");
    let mut encoder = RunSettings::read(&text, &[]).unwrap();
    for objective in ["next_token", "translate"] {
        let family = if objective == "translate" { "encoder_decoder" } else { "decoder" };
        let other = RunSettings::read(&settings(family, objective, "", ""), &[]).unwrap();
        let corpora = corpora(&other.data, objective);
        encoder.model.vocabulary = 0;
        encoder.resolve(corpora[0].vocabulary()).unwrap();
        let model = encoder.model.build(1, &Device::flex()).unwrap();
        let far = moved(&other, &corpora, &model).expect("a target was changed");
        assert!(far > 1e-4, "{objective}: {far}");
        let mut leaking = other.clone();
        leaking.model.family = encoder.model.family;
        let message = leaking.check().unwrap_err().to_string();
        assert!(message.contains("an encoder sees the"), "{message}");
    }
}

#[test]
fn a_recurrence_sees_no_target_either() {
    for (family, objective, more) in [
        ("decoder", "next_token", ""),
        ("decoder", "masked", ""),
        ("decoder", "classify", ""),
        ("encoder", "masked", "bidirectional = true"),
        ("encoder", "classify", "bidirectional = true"),
        ("encoder_decoder", "translate", "bidirectional = true"),
        ("encoder_decoder", "translate", "attends = 'before'"),
        ("encoder_decoder", "translate", "bidirectional = true\nattends = 'after'"),
        ("encoder_decoder", "translate", "attends = 'after'\ninput_feeding = true"),
    ] {
        for cell in ["gru", "lstm"] {
            let text = settings(family, objective, "", &format!("recurrent = '{cell}'\n{more}"));
            let text = text.replace("[model.attention]\nheads = 2\n", "");
            let mut settings = RunSettings::read(&text, &[]).unwrap();
            let corpora = corpora(&settings.data, objective);
            settings.resolve_for(&corpora[0]).unwrap();
            let model = settings.model.build(1, &Device::flex()).unwrap();
            assert_eq!(moved(&settings, &corpora, &model), Some(0.0), "{text}");
        }
    }
    for (family, objective, expected) in [
        ("encoder", "next_token", "an encoder sees the token"),
        ("decoder", "prefix", "a recurrence reads a prefix from the left"),
        ("decoder", "translate", "a decoder alone reads no source"),
    ] {
        let text = settings(family, objective, "", "recurrent = 'gru'");
        let text = text.replace("[model.attention]\nheads = 2\n", "");
        let message = RunSettings::read(&text, &[]).unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn layers_and_segments_see_no_target_either() {
    for (attention, more) in [
        ("position = 'transformer_xl'", "segment_memory = 8"),
        ("position = 'rotary'", "alternate = [{ pattern = 'window' }, { pattern = 'strided' }]"),
        ("position = ['sinusoidal', 'alibi']", "norm_place = 'post'\nactivation = 'swiglu'"),
    ] {
        let mut settings =
            RunSettings::read(&settings("decoder", "next_token", attention, more), &[]).unwrap();
        let corpora = corpora(&settings.data, "next_token");
        settings.resolve(corpora[0].vocabulary()).unwrap();
        let model = settings.model.build(1, &Device::flex()).unwrap();
        assert_eq!(moved(&settings, &corpora, &model), Some(0.0), "{attention} {more}");
    }
    let text = settings("decoder", "next_token", "", "alternate = [{}, { pattern = 'full' }]");
    assert!(RunSettings::read(&text, &[]).unwrap_err().to_string().contains("sees later tokens"));
}
