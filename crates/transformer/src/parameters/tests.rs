//! Every parameter of every model has a role, and every row of the table is met.

use std::collections::BTreeSet;

use whatwhere_attention::{Mixing, Pattern, Position, Score};

use super::*;

/// Rows of [`ROLES`] that were met, and every parameter's name and role.
#[derive(Default)]
struct Met {
    path: ParameterPath,
    rows: BTreeSet<usize>,
    roles: Vec<(String, Role)>,
}

impl ModuleVisitor for Met {
    fn enter_module(&mut self, name: &str, container: &str) {
        self.path.enter(name, container);
    }

    fn exit_module(&mut self, _name: &str, _container: &str) {
        self.path.exit();
    }

    fn visit_float<const D: usize>(&mut self, _param: &Param<Tensor<D>>) {
        self.rows.extend(self.path.row());
        self.roles.push((self.path.name(), self.path.role()));
    }
}

fn models() -> Vec<String> {
    let names = |setting: &str, names: &[&str]| -> Vec<String> {
        let choices = names.iter().filter(|name| !["and", "or"].contains(name));
        choices.map(|name| format!("attention.{setting} = '{name}'")).collect()
    };
    let mut models: Vec<String> = [
        "tied = false",
        "norm = 'layer'\nbias = true",
        "activation = 'swiglu'",
        "activation = 'gelu'",
        "norm_place = 'post'",
        "attention.qk_norm = 'head'",
        "attention = { qk_norm = 'all', qk_norm_kind = 'layer', bias = 'qkv', heads = 4 }",
        "classes = 3\ntied = false\noutput_bias = true\noutput_transform = true",
        "token_types = 2\noutput_bias = true\noutput_transform = true",
        "embedding_width = 8\nembedding_norm = true\nnorm_place = 'both'",
    ]
    .map(String::from)
    .into();
    models.extend(names("position", Position::NAMES));
    models.extend(names("score", Score::NAMES));
    models.extend(names("pattern", Pattern::NAMES));
    models.extend(names("mixing", Mixing::NAMES));
    models.push("attention.mixing = { kind = 'gated_linear', gates = 'head' }".into());
    models
}

#[test]
fn every_parameter_of_every_model_has_its_role() {
    let mut rows = BTreeSet::new();
    for family in ["decoder", "encoder", "encoder_decoder"] {
        for extra in models() {
            let text = format!(
                "family = '{family}'\nvocabulary = 11\nwidth = 16\nlayers = 2\nencoder.heads = 2\ncross.heads = 2\n{extra}"
            );
            let Ok(settings) = ModelSettings::from_toml(&text) else { continue };
            // Choices that do not go together are refused.
            let Ok(model) = settings.build(1, &Device::flex()) else { continue };
            let mut met = Met::default();
            model.visit(&mut met);
            let views = model.views();
            assert!(
                views.iter().map(|v| (&v.name, v.role)).eq(met.roles.iter().map(|(n, r)| (n, *r)))
            );
            rows.extend(met.rows);
            let count = |role| met.roles.iter().filter(|(_, found)| *found == role).count();
            let blocks = settings.encoder_depth() + settings.decoder_depth();
            let crosses = if family == "encoder_decoder" { 2 } else { 0 };
            assert_eq!(count(Role::ResidualProjection), 2 * blocks + crosses, "{text}");
            let tables = 1 + usize::from(settings.token_types > 0);
            assert_eq!(count(Role::Embedding), tables, "{text}");
            let tells = settings.classes > 0;
            assert_eq!(count(Role::Output), usize::from(!settings.tied && !tells), "{text}");
            assert_eq!(count(Role::Head), usize::from(tells), "{text}");
            for (name, role) in &met.roles {
                let parts: Vec<&str> = name.split('.').collect();
                let is_choice = ["position", "score", "pattern", "mixing"]
                    .iter()
                    .any(|part| parts.contains(part));
                assert!(*role != Role::Table || is_choice, "{name} has no role");
                let is_norm = parts.iter().any(|part| part.contains("norm"));
                let is_bias = name.ends_with("bias") || name.ends_with("beta");
                assert_eq!(*role == Role::Gain, is_norm && !is_bias, "{name}");
            }
        }
    }
    assert_eq!(rows.len(), ROLES.len(), "every row of the table is met, found {rows:?}");
}
