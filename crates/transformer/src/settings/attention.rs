//! What each attention of a model is set to.

use whatwhere_attention::{AttentionSettings, Pattern, Projections, pattern::Token};
use whatwhere_settings::Refuses;

use super::{ModelSettings, Site};
use crate::Error;

impl ModelSettings {
    /// The settings of one layer's attention: the defaults of its site, then `attention`, then what site and layer have
    /// otherwise.
    pub fn attention(&self, site: Site, layer: usize) -> Result<AttentionSettings, Error> {
        if let Some(kind) = self.recurrent.filter(|_| site != Site::Cross) {
            let reason =
                "a recurrence has no self-attention; attention to the source is model.cross";
            return Err(Error::setting("recurrent", kind.name(), reason));
        }
        let mut table = toml::Table::new();
        let own = match site {
            Site::Encoder => Some(&self.encoder),
            Site::Decoder => None,
            Site::Cross => Some(&self.cross),
        };
        let common = self.attention.iter().filter(|(key, _)| {
            // The encoder's tokens are elsewhere: what is said of the own sequence does not hold for them.
            site != Site::Cross || !matches!(key.as_str(), "pattern" | "position" | "mixing")
        });
        match site {
            Site::Encoder => table.extend([("pattern".into(), "full".into())]),
            Site::Decoder => table.extend([("pattern".into(), "causal".into())]),
            Site::Cross => {
                table.extend([
                    ("pattern".into(), "full".into()),
                    ("position".into(), "none".into()),
                ]);
            }
        }
        if self.recurrent.is_some() {
            table.insert("heads".into(), toml::Value::Integer(1));
            table.extend(self.attends.score().map(|score| ("score".into(), score.into())));
        }
        table.extend(common.map(|(key, value)| (key.clone(), value.clone())));
        table.extend(own.into_iter().flatten().map(|(key, value)| (key.clone(), value.clone())));
        if site != Site::Cross && !self.alternate.is_empty() {
            table.extend(self.alternate[layer % self.alternate.len()].clone());
        }
        if table.contains_key("width") {
            let reason = "attention is as wide as the model; set model.width";
            return Err(Error::setting("attention.width", &table["width"], reason));
        }
        if let Some(found) = table.get("epsilon") {
            let reason = "all norms of a model have one; set model.epsilon";
            return Err(Error::setting("attention.epsilon", found, reason));
        }
        let leaves_projections = self.recurrent.is_some() && !table.contains_key("projections");
        table.insert("width".into(), toml::Value::Integer(self.width as i64));
        table.insert("epsilon".into(), toml::Value::Float(self.epsilon));
        let mut settings: AttentionSettings =
            toml::Value::Table(table).try_into().map_err(|e: toml::de::Error| {
                Error::unreadable(format!("attention of the {}: {}", site.name(), e.message()))
            })?;
        if leaves_projections {
            settings.projections = match settings.score.is_product() {
                true => Projections::None,
                false => Projections::Compared,
            };
        }
        settings.check()?;
        Ok(settings)
    }

    /// Whether embeddings are multiplied by √width: as set, or as an encoding that is added to them was published.
    pub fn scales_embeddings(&self) -> Result<bool, Error> {
        if let Some(scales) = self.scale_embeddings {
            return Ok(scales);
        }
        for (site, depth) in
            [(Site::Encoder, self.encoder_depth()), (Site::Decoder, self.decoder_depth())]
        {
            if depth > 0 && self.attention(site, 0)?.position.iter().any(|p| p.scales_embeddings())
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Looks up the ids of tokens that patterns name by their text; a refusal says why one has none.
    pub fn resolve_tokens(
        &mut self,
        id_of: &dyn Fn(&str) -> Result<u32, String>,
        vocabulary: usize,
    ) -> Result<(), Error> {
        let own = [&mut self.attention, &mut self.encoder, &mut self.cross];
        for table in own.into_iter().chain(&mut self.alternate) {
            let Some(value) = table.get_mut("pattern") else { continue };
            let unreadable = |found: &str| Error::unreadable(format!("pattern: {found}"));
            let pattern: Pattern =
                value.clone().try_into().map_err(|e: toml::de::Error| unreadable(e.message()))?;
            if pattern.needs_tokens() {
                let known = pattern.with_tokens(id_of).map_err(whatwhere_attention::Error::from)?;
                let is_beyond =
                    |token: &&Token| matches!(token, Token::Id(id) if *id as usize >= vocabulary);
                if let Some(Token::Id(id)) = known.tokens().iter().find(is_beyond) {
                    let reason = format!("the tokenizer has {vocabulary} tokens, counted from 0");
                    return Err(Error::setting("pattern.tokens", id, reason));
                }
                *value = toml::Value::try_from(known).map_err(|e| unreadable(&e.to_string()))?;
            }
        }
        Ok(())
    }

    /// How many positions the decoder knows; nothing if there is no such bound.
    pub fn longest(&self) -> Option<usize> {
        let attention = self.attention(Site::Decoder, 0).ok()?;
        attention.position.iter().filter_map(|position| position.limit()).min()
    }
}
