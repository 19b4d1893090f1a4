//! Parameters by name, and what they are before anything is learned.

use burn::tensor::Device;
use whatwhere_transformer::{Mode, Model};

use super::{FAMILIES, rows, settings, values};

#[test]
fn parameters_written_back_give_the_same_model() {
    let device = Device::flex();
    for family in FAMILIES {
        let settings = settings(family, "tied = false");
        let model = settings.build(1, &device).unwrap();
        let other = settings.build(2, &device).unwrap();
        assert_ne!(model.parameters(), other.parameters());
        let copy = other.with_parameters(model.parameters()).unwrap();
        assert_eq!(model.parameters(), copy.parameters());
    }
}

/// Also whether each learns, as its gradient tells.
#[test]
fn a_model_built_with_parameters_is_the_one_they_came_from() {
    let device = Device::flex().autodiff();
    for position in ["'alibi'", "['learned', 't5']", "'polar'"] {
        let extra = format!("tied = false\nattention = {{ heads = 2, position = {position} }}");
        let settings = settings("decoder", &extra);
        let drawn = settings.build(1, &device).unwrap();
        let given = settings.build_with(drawn.parameters(), &device).unwrap();
        assert_eq!(given.parameters(), drawn.parameters());
        let learning = |model: &Model| {
            let logits = model.forward(None, &rows(2, 9), Mode::default()).unwrap();
            crate::missing_gradients(model, &logits.powi_scalar(2).sum().backward())
        };
        assert_eq!(learning(&given), learning(&drawn), "{position}");
        let mut fewer = drawn.parameters();
        fewer.pop();
        let message = settings.build_with(fewer, &device).unwrap_err().to_string();
        assert!(message.contains("missing; expected shape"), "{message}");
    }
}

#[test]
fn weights_are_shared_under_other_settings() {
    let device = Device::flex();
    let scaled = |scaling: &str| {
        let position = format!("position = {{ kind = 'rotary', scaling = {scaling} }}");
        settings("decoder", &format!("attention = {{ heads = 2, {position} }}"))
    };
    let plain = scaled("{ kind = 'none' }").build(1, &device).unwrap();
    let linear = scaled("{ kind = 'linear', factor = 4.0 }");
    let copied = linear.build(2, &device).unwrap().with_parameters(plain.parameters()).unwrap();
    let shared = plain.with_settings(&linear).unwrap();
    let logits = |model: &Model| values(model.forward(None, &rows(2, 9), Mode::default()).unwrap());
    assert_eq!(logits(&shared), logits(&copied));
    assert_ne!(logits(&shared), logits(&plain));
    let (at, of) = (plain.views(), shared.views());
    assert!(at.iter().zip(&of).all(|(a, b)| a.values().as_ptr() == b.values().as_ptr()));
    let other = settings("decoder", "attention = { heads = 2, position = 't5' }");
    let message = plain.with_settings(&other).unwrap_err().to_string();
    assert!(message.contains("missing"), "{message}");
}

#[test]
fn parameters_that_do_not_fit_are_refused() {
    let device = Device::flex();
    let model = settings("decoder", "").build(1, &device).unwrap();
    let refusal = |change: &dyn Fn(&mut Vec<whatwhere_transformer::Parameter>)| {
        let mut parameters = model.parameters();
        change(&mut parameters);
        model.clone().with_parameters(parameters).unwrap_err().to_string()
    };
    let missing = refusal(&|p| drop(p.remove(0)));
    assert!(missing.contains("embedding.weight: missing; expected shape [11, 16]"), "{missing}");
    let shape = refusal(&|p| p[0].shape = vec![16, 11]);
    assert!(shape.contains("has shape [16, 11], the settings ask for [11, 16]"), "{shape}");
    let unknown = refusal(&|p| {
        let mut other = p[0].clone();
        other.name = "other".into();
        p.push(other);
    });
    assert!(unknown.contains("other: the model has none of this name"), "{unknown}");
}

#[test]
fn models_that_differ_in_one_choice_start_alike_elsewhere() {
    let device = Device::flex();
    let build = |position| {
        let extra = format!("attention = {{ heads = 2, position = '{position}' }}");
        settings("decoder", &extra).build(5, &device).unwrap().parameters()
    };
    let (rotary, polar) = (build("rotary"), build("polar"));
    for parameter in &rotary {
        assert!(polar.contains(parameter), "{}", parameter.name);
    }
}

/// Tables of encodings and scores come from the framework's generator, of which a process has one.
#[test]
fn a_table_is_drawn_alike_whatever_else_the_model_has_and_whoever_draws_beside_it() {
    let device = Device::flex();
    let build = |score: &str, position: &str| {
        let extra =
            format!("attention = {{ heads = 2, score = '{score}', position = '{position}' }}");
        settings("decoder", &extra).build(5, &device).unwrap().parameters()
    };
    let alone = build("additive", "shaw");
    for parameter in build("scaled_dot", "shaw") {
        assert!(alone.contains(&parameter), "{}", parameter.name);
    }
    std::thread::scope(|scope| {
        let builders: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| (0..8).map(|_| build("additive", "shaw")).collect::<Vec<_>>()))
            .collect();
        for builder in builders {
            assert!(builder.join().unwrap().iter().all(|beside| *beside == alone));
        }
    });
}

/// Weights that start small know nothing: every token is about as likely as any other.
#[test]
fn first_predictions_are_even() {
    let device = Device::flex();
    for family in FAMILIES {
        for init in ["scaled", "normal", "xavier"] {
            for scale in [false, true] {
                let mut settings = settings(
                    family,
                    &format!("init = '{init}'\nscale_embeddings = {scale}\ntied = {}", !scale),
                );
                settings.width = 64;
                settings.vocabulary = 500;
                let model = settings.build(3, &device).unwrap();
                let source = rows(2, 7);
                let source = (family == "encoder_decoder").then_some(&source);
                let logits = model.forward(source, &rows(2, 9), Mode::default()).unwrap();
                let log = values(burn::tensor::activation::log_softmax(logits, 2));
                // A token other than those read, which a tied output favours: as large as the stream is small, so most
                // where projections start small beside the embeddings.
                let loss = -log.chunks(500).map(|row| f64::from(row[300])).sum::<f64>() / 18.0;
                assert!((loss - 500f64.ln()).abs() < 2.0, "{family} {init} {scale}: {loss}");
            }
        }
    }
}

/// As published: waves beside embeddings of their size, learned places that start as embeddings do.
#[test]
fn embeddings_start_as_large_as_what_is_added_to_them() {
    let device = Device::flex();
    let of = |position: &str, more: &str| {
        let more = format!("attention = {{ heads = 2, position = '{position}' }}\n{more}");
        let mut settings = settings("decoder", &more);
        settings.width = 64;
        settings.vocabulary = 50;
        let scale = if settings.scales_embeddings().unwrap() { 8.0 } else { 1.0 };
        let parameters = settings.build(3, &device).unwrap().parameters();
        let deviation = |end: &str| {
            let parameter = parameters.iter().find(|p| p.name.ends_with(end))?;
            let squares: f32 = parameter.values.iter().map(|v| v * v).sum();
            Some((squares / parameter.values.len() as f32).sqrt())
        };
        (scale * deviation("embedding.weight").unwrap(), deviation("table"))
    };
    let near = |found: f32, expected: f32| (found / expected - 1.0).abs() < 0.1;
    assert!(near(of("rotary", "init = 'normal'").0, 0.02));
    assert!(near(of("sinusoidal", "").0, 1.0));
    let unscaled = "init = 'normal'\nscale_embeddings = false";
    assert!(near(of("sinusoidal", unscaled).0, 0.02), "what is set wins");
    for (more, expected) in
        [("init = 'normal'", 0.02), ("scale_embeddings = true", 1.0), ("init = 'xavier'", 0.125)]
    {
        let (embedded, table) = of("learned", more);
        assert!(near(embedded, expected) && near(table.unwrap(), expected), "{more}: {embedded}");
    }
}

/// A sum over more channels starts with smaller weights, so that what comes out has one size at every width.
#[test]
fn first_weights_follow_the_width() {
    for width in [32, 128] {
        let mut settings = settings("decoder", "tied = false");
        settings.width = width;
        let model = settings.build(3, &Device::flex()).unwrap();
        for (name, from) in [
            ("embedding.weight", width as f32 / 3.0),
            ("output.weight", width as f32),
            ("decoder.blocks.0.attention.query.weight", width as f32),
            ("decoder.blocks.0.attention.output.weight", width as f32),
            ("decoder.blocks.1.feed_forward.down.weight", 24.0),
        ] {
            let parameter = model.parameters().into_iter().find(|p| p.name == name).unwrap();
            let squares: f32 = parameter.values.iter().map(|v| v * v).sum();
            let found = (squares / parameter.values.len() as f32).sqrt();
            let expected = (3.0 * from).powf(-0.5);
            assert!((found / expected - 1.0).abs() < 0.15, "{name} at {width}: {found}");
        }
    }
}

#[test]
fn projections_back_into_the_stream_start_smaller() {
    let device = Device::flex();
    let mut settings = settings("decoder", "init = 'normal'");
    settings.width = 64;
    let model = settings.build(3, &device).unwrap();
    let deviation = |name: &str| {
        let parameter = model.parameters().into_iter().find(|p| p.name == name).unwrap();
        let squares: f32 = parameter.values.iter().map(|v| v * v).sum();
        (squares / parameter.values.len() as f32).sqrt()
    };
    for (name, expected) in [
        ("embedding.weight", 0.02),
        ("decoder.blocks.0.attention.query.weight", 0.02),
        ("decoder.blocks.0.attention.output.weight", 0.01),
        ("decoder.blocks.1.feed_forward.up.weight", 0.02),
        ("decoder.blocks.1.feed_forward.down.weight", 0.01),
    ] {
        let found = deviation(name);
        assert!((found / expected - 1.0).abs() < 0.1, "{name}: {found}");
    }
}
