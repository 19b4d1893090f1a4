//! Rotary's settings in the words of `config.json`, as transformers 4 spells them and 5 still reads them.

use serde_json::{Map, Value, json};

/// Longer than any text: families that do not follow the length do not ask for it.
const ANY_LENGTH: u64 = 1 << 20;

/// Base, share, scaling and length of a position that is one; nothing that contradicts it if it is not.
pub(super) fn words(position: &Value) -> Map<String, Value> {
    let mut out = Map::new();
    let base = position["base"].as_f64().unwrap_or(10_000.0);
    out.insert("rope_theta".into(), base.into());
    out.insert("max_position_embeddings".into(), ANY_LENGTH.into());
    if let Some(share) = position["channels"].as_f64() {
        out.insert("partial_rotary_factor".into(), share.into());
    }
    let scaling = &position["scaling"];
    let number = |key: &str| scaling[key].clone();
    let length = scaling["length"].as_u64().unwrap_or(1);
    let factor = scaling["factor"].as_f64().unwrap_or(1.0);
    // The length that is reached, from which some readers take the factor.
    let reached = (length as f64 * factor).round() as u64;
    let (table, longest) = match scaling["kind"].as_str() {
        Some("linear") => (json!({ "rope_type": "linear", "factor": factor }), ANY_LENGTH),
        Some("dynamic_ntk") => (json!({ "rope_type": "dynamic", "factor": factor }), length),
        Some("yarn") => {
            let mut table = json!({
                "rope_type": "yarn", "factor": factor, "original_max_position_embeddings": length,
                "beta_fast": number("fast"), "beta_slow": number("slow"), "truncate": number("truncate"),
            });
            for key in ["attention_factor", "mscale", "mscale_all_dim"] {
                if !scaling[key].is_null() {
                    table[key] = number(key);
                }
            }
            (table, reached)
        }
        Some("llama3") => {
            let table = json!({
                "rope_type": "llama3", "factor": factor, "original_max_position_embeddings": length,
                "low_freq_factor": number("low"), "high_freq_factor": number("high"),
            });
            (table, reached)
        }
        Some("longrope") => {
            let mut table = json!({
                "rope_type": "longrope", "factor": factor, "original_max_position_embeddings": length,
                "short_factor": number("short_factor"), "long_factor": number("long_factor"),
            });
            if !scaling["attention_factor"].is_null() {
                table["attention_factor"] = number("attention_factor");
            }
            (table, reached)
        }
        _ => return out,
    };
    out.insert("rope_scaling".into(), table);
    out.insert("max_position_embeddings".into(), longest.into());
    out
}
