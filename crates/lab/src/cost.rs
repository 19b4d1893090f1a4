//! What a model costs: arithmetic by prediction, memory by the system's account.

use std::fs;

use serde::{Deserialize, Serialize};
use whatwhere_attention::{AttentionSettings, Heads, pattern::PatternContext};
use whatwhere_data::Objective;
use whatwhere_kernels::attention::pattern::{Tile, computed_pairs, visible_pairs};
use whatwhere_training::RunSettings;
use whatwhere_transformer::{Attends, Family, Site};

use crate::Error;

/// Floating-point operations of a forward pass for one token, a multiplication with its addition counted as two.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Flops {
    /// Of projections, feed-forwards and the output.
    pub matrices: f64,
    /// Of comparing and mixing the pairs that the pattern shows: what attention has to do.
    pub visible: f64,
    /// The same for the pairs in every block that the kernels compute: what attention does.
    pub computed: f64,
}

/// Pairs of a query and a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pairs {
    /// That the pattern shows.
    pub visible: u64,
    /// That lie in blocks which the kernels do not skip.
    pub computed: u64,
}

impl Flops {
    /// Predicted from a run's settings at its trained length.
    pub fn of(settings: &RunSettings, vocabulary: usize) -> Result<Self, Error> {
        let mut flops = Self::of_length(settings, settings.training.length)?;
        let model = &settings.model;
        let (width, channels) = (model.width, model.output_channels());
        let mut weights = 0;
        // Classes are told once for a text, which is nothing beside its tokens.
        if !matches!(settings.data.objective(), Objective::Classify(_)) {
            weights += channels * vocabulary;
            if model.output_transform || model.projects_output() {
                weights += width * channels;
            }
        }
        weights += model.embedding_width.map_or(0, |from| from * width);
        flops.matrices += 2.0 * weights as f64;
        Ok(flops)
    }

    /// Of one token among `length`, without the output.
    fn of_length(settings: &RunSettings, length: usize) -> Result<Self, Error> {
        let model = &settings.model;
        let feed_forward = model.width * model.feed_forward_width();
        let feed_forward = if model.is_gated() { 3 * feed_forward } else { 2 * feed_forward };
        let mut flops = Self { matrices: 0.0, visible: 0.0, computed: 0.0 };
        let mut sites = Vec::new();
        sites.extend((0..model.encoder_depth()).map(|layer| (Site::Encoder, layer)));
        sites.extend((0..model.decoder_depth()).map(|layer| (Site::Decoder, layer)));
        if model.family == Family::EncoderDecoder {
            sites.extend((0..model.decoder_depth()).map(|layer| (Site::Cross, layer)));
        }
        // A recurrence has one attention, if any.
        if model.attends != Attends::None {
            sites.push((Site::Cross, 0));
        }
        flops.matrices += 2.0 * model.recurrent_weights().iter().sum::<usize>() as f64;
        for (site, layer) in sites {
            let attention = model.attention(site, layer)?;
            let heads = attention.sizes()?;
            let wide = heads.heads * heads.head_dim;
            flops.matrices += 2.0 * attention.projection_weights()? as f64;
            if site != Site::Cross {
                flops.matrices += 2.0 * feed_forward as f64;
            }
            let extra = extra_channels(&attention, &heads);
            if let Some(each) = attention.mixing.flops_per_token(&heads, extra) {
                flops.visible += each;
                flops.computed += each;
                continue;
            }
            let each = pair(&attention, &heads) / length as f64;
            let pairs = Pairs::of(&attention, length)?;
            flops.visible += each * pairs.visible as f64;
            flops.computed += each * pairs.computed as f64;
            let asked = 2.0 * (wide * asked(&attention, length)) as f64;
            flops.visible += asked;
            flops.computed += asked;
        }
        Ok(flops)
    }

    /// A forward pass, as the pattern asks.
    pub fn forward(&self) -> f64 {
        self.matrices + self.visible
    }

    /// Forward and backward: two more products for each matrix, and two and a half times attention, whose scores are
    /// computed again.
    pub fn training(&self) -> f64 {
        3.0 * self.matrices + 3.5 * self.visible
    }
}

/// Operations for one pair in all heads: a product over what is compared, and one over the values.
fn pair(attention: &AttentionSettings, heads: &Heads) -> f64 {
    let values = heads.heads * heads.head_dim;
    2.0 * (values + extra_channels(attention, heads) + values) as f64
}

/// Channels, over all heads, by which queries and keys grow.
fn extra_channels(attention: &AttentionSettings, heads: &Heads) -> usize {
    attention.position.iter().map(|position| position.extra_channels(heads)).sum()
}

/// Vectors of distances that every key is asked by.
fn asked(attention: &AttentionSettings, length: usize) -> usize {
    let asking = attention.position.iter().filter(|position| position.asks_keys());
    asking.map(|position| 2 * position.reach().unwrap_or(length).min(length) + 1).sum()
}

impl Pairs {
    /// Of one head over a sequence of its own.
    pub fn of(attention: &AttentionSettings, length: usize) -> Result<Self, Error> {
        let heads = attention.sizes()?;
        if attention.pattern.deviation().is_some() {
            // It follows content, so it is not known before; a window around the predicted position at the most.
            let full = (length * length) as u64;
            return Ok(Self { visible: full, computed: full });
        }
        // A whole window may be one document: the most there can be.
        let documents = Some(&[vec![0]][..]);
        // How often tokens of a kind stand in a text is not known before: as if there were none.
        let tokens = Some((&[Vec::new()][..], 0));
        let context =
            PatternContext { heads: heads.heads, documents, tokens, first_query: 0, centers: None };
        let pattern =
            attention.pattern.build(&context).map_err(whatwhere_attention::Error::from)?;
        let tile = Tile { batch: 0, head: 0, queries: 0..length, keys: 0..length };
        Ok(Self {
            visible: visible_pairs(&*pattern, &tile),
            computed: computed_pairs(&*pattern, &tile),
        })
    }
}

/// The most memory of this process since the last [`reset_peak`], in bytes; nothing where the system keeps no account.
pub fn peak_memory() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(kib * 1024)
}

/// Sets the peak back to what is in use now.
pub fn reset_peak() {
    // Without it the peak is that of the whole process, which is still an upper bound.
    let _ = fs::write("/proc/self/clear_refs", "5");
}

/// What other programs did to the machine while a run trained.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// Cores that others kept busy, on average.
    pub others: f64,
    /// Cores there are.
    pub cores: usize,
}

/// Share of the cores that others may keep busy before speeds say nothing.
const BUSY: f64 = 0.1;

impl Load {
    /// Whether speeds measured under it say little.
    pub fn is_heavy(&self) -> bool {
        self.others > BUSY * self.cores as f64
    }

    /// The heavier of two.
    pub fn worse(a: Option<Self>, b: Option<Self>) -> Option<Self> {
        [a, b].into_iter().flatten().max_by(|a, b| a.others.total_cmp(&b.others))
    }
}

/// The system's account of processor time at a moment, in ticks.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    busy: u64,
    all: u64,
    own: u64,
    cores: usize,
}

impl Clock {
    /// Now; nothing where the system keeps no such account.
    pub fn start() -> Option<Self> {
        Self::read(
            &fs::read_to_string("/proc/stat").ok()?,
            &fs::read_to_string("/proc/self/stat").ok()?,
        )
    }

    fn read(machine: &str, own: &str) -> Option<Self> {
        let numbers = |line: &str| -> Vec<u64> {
            line.split_whitespace().filter_map(|word| word.parse().ok()).collect()
        };
        // user, nice, system, idle, waiting, interrupts (two kinds), taken by a host; guests are part of user.
        let ticks = numbers(machine.lines().next()?.strip_prefix("cpu ")?);
        let all: u64 = ticks.iter().take(8).sum();
        let idle = ticks.get(3)? + ticks.get(4)?;
        let is_core = |line: &&str| line.starts_with("cpu") && !line.starts_with("cpu ");
        // After the name, which may hold anything but a closing bracket: the 12th and 13th are user and system time.
        let own = own.rsplit_once(')')?.1.split_whitespace();
        let own = own.skip(11).take(2).map(|word| word.parse::<u64>().ok()).sum::<Option<u64>>()?;
        Some(Self { busy: all - idle, all, own, cores: machine.lines().filter(is_core).count() })
    }

    /// What others did since then; nothing if no time has passed.
    pub fn load(&self) -> Option<Load> {
        self.until(&Self::start()?)
    }

    fn until(&self, now: &Self) -> Option<Load> {
        let all = now.all.checked_sub(self.all).filter(|ticks| *ticks > 0)?;
        let busy = now.busy.saturating_sub(self.busy) as f64;
        let own = now.own.saturating_sub(self.own) as f64;
        let others = (busy - own).max(0.0) * self.cores as f64 / all as f64;
        Some(Load { others, cores: self.cores })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attention(pattern: &str) -> AttentionSettings {
        AttentionSettings::from_toml(&format!("pattern = {pattern}")).unwrap()
    }

    #[test]
    fn pairs_are_those_the_pattern_shows() {
        for length in [1, 95, 96, 97, 300] {
            let causal = Pairs::of(&attention("'causal'"), length).unwrap();
            assert_eq!(causal.visible, (length * (length + 1) / 2) as u64);
            let full = Pairs::of(&attention("'full'"), length).unwrap();
            assert_eq!(full.visible, (length * length) as u64);
            let window = Pairs::of(&attention("{ kind = 'window', left = 10 }"), length).unwrap();
            assert!(window.visible <= causal.visible && window.visible <= (11 * length) as u64);
            for pairs in [causal, window] {
                assert!(pairs.visible <= pairs.computed && pairs.computed <= full.computed);
            }
        }
    }

    #[test]
    fn the_load_is_what_others_kept_busy() {
        let machine = |user: u64, idle: u64| {
            format!("cpu  {user} 0 0 {idle} 0 0 0 0 0 0\ncpu0 1 0 0 1\ncpu1 1 0 0 1\nintr 5\n")
        };
        let own = |ticks: u64| format!("7 (a) name) R 1 1 1 0 -1 4 1 0 0 0 {ticks} 5 0 0 20 0");
        let start = Clock::read(&machine(100, 50), &own(10)).unwrap();
        // 200 ticks of two cores: all busy, 100 of them with other programs.
        let load = start.until(&Clock::read(&machine(300, 50), &own(110)).unwrap()).unwrap();
        assert_eq!(load, Load { others: 1.0, cores: 2 });
        assert!(load.is_heavy());
        let alone = start.until(&Clock::read(&machine(300, 50), &own(205)).unwrap()).unwrap();
        assert!(!alone.is_heavy(), "{alone:?}");
        assert_eq!(start.until(&start), None);
        assert_eq!(Load::worse(Some(alone), Some(load)), Some(load));
    }

    #[test]
    fn a_window_costs_in_proportion_to_the_length() {
        let of = |length| {
            Pairs::of(&attention("{ kind = 'window', left = 255 }"), length).unwrap().computed
        };
        let ratio = of(8192) as f64 / of(4096) as f64;
        assert!((1.9..2.2).contains(&ratio), "{ratio}");
    }

    #[test]
    fn arithmetic_follows_the_formula() {
        let settings = RunSettings::read(
            "[model]\nwidth = 64\nlayers = 2\nattention = { heads = 4 }\n[training]\nlength = 10",
            &[],
        )
        .unwrap();
        let flops = Flops::of(&settings, 100).unwrap();
        assert_eq!(flops.matrices, 2.0 * (2.0 * 12.0 * 64.0 * 64.0 + 6400.0));
        assert_eq!(flops.visible, 2.0 * 4.0 * (4.0 * 16.0) * 55.0 / 10.0);
    }

    #[test]
    fn distances_that_ask_keys_cost_a_product_each() {
        let of = |position: &str| {
            let text = format!(
                "[model]\nwidth = 64\nlayers = 1\nattention = {{ heads = 4, position = {position} }}\n[training]\nlength = 100"
            );
            Flops::of(&RunSettings::read(&text, &[]).unwrap(), 100).unwrap().visible
        };
        let plain = of("{ kind = 'shaw', reach = 8, values = false }");
        let asking = of("{ kind = 'shaw', reach = 8, values = false, queries = true }");
        assert_eq!(asking - plain, 2.0 * 64.0 * 17.0);
        let far = of("{ kind = 'shaw', reach = 500, values = false, queries = true }");
        assert_eq!(far - plain, 2.0 * 64.0 * 201.0);
    }

    #[test]
    fn a_recurrence_costs_its_matrices() {
        let of = |model: &str| {
            let text = format!(
                "[data]\nsource = 'reverse'\n[model]\nfamily = 'encoder_decoder'\nwidth = 64\nlayers = 1\n{model}"
            );
            Flops::of(&RunSettings::read(&text, &[]).unwrap(), 100).unwrap()
        };
        let plain = of("recurrent = 'gru'");
        assert_eq!(plain.matrices, 2.0 * (2.0 * 6.0 * 64.0 * 64.0 + 6400.0));
        assert_eq!(plain.visible, 0.0);
        // Each direction has half the width: a quarter of the state's product, twice.
        let both = of("recurrent = 'gru'\nbidirectional = true");
        assert_eq!(plain.matrices - both.matrices, 2.0 * 1.5 * 64.0 * 64.0);
        let before = of("recurrent = 'gru'\nattends = 'before'\ncross.score = 'additive'");
        // What joins, what is fed, and the projections of queries and keys.
        assert_eq!(before.matrices - plain.matrices, 2.0 * (2.0 + 3.0 + 2.0) * 64.0 * 64.0);
        assert!(before.visible > 0.0);
        let after = of("recurrent = 'lstm'\nattends = 'after'\ncross.score = 'dot'");
        assert_eq!(after.matrices, 2.0 * ((2.0 * 8.0 + 2.0) * 64.0 * 64.0 + 6400.0));
    }

    #[test]
    fn matrices_before_and_after_the_stack_are_counted() {
        let of = |extra: &str| {
            let text = format!("[model]\nwidth = 64\nlayers = 1\nfeed_forward = 64\n{extra}");
            Flops::of(&RunSettings::read(&text, &[]).unwrap(), 100).unwrap().matrices
        };
        let plain = of("");
        let more = |extra: &str, weights: usize| {
            assert_eq!(of(extra) - plain, 2.0 * weights as f64, "{extra}");
        };
        more("gated = true", 64 * 64);
        more("output_transform = true", 64 * 64);
        // A projection there and back, beside the smaller output.
        assert_eq!(of("embedding_width = 16"), plain + 2.0 * (2.0 * 1024.0 - 4800.0));
    }

    #[test]
    fn channels_that_become_two_cost_twice_to_compare() {
        let of = |position: &str| {
            let text = format!("width = 64\nheads = 4\nposition = {position}");
            let attention = AttentionSettings::from_toml(&text).unwrap();
            pair(&attention, &attention.sizes().unwrap())
        };
        let plain = of("'none'");
        assert_eq!(plain, 4.0 * 4.0 * 16.0);
        assert_eq!(of("'rotary'"), plain);
        // A cosine and a sine for each of 16 channels in place of the channel.
        for position in ["'polar'", "'single_angle'"] {
            assert_eq!(of(position), plain + 2.0 * 4.0 * 16.0, "{position}");
        }
        let part = of("{ kind = 'polar', channels = 0.5, heads = 0.25 }");
        assert_eq!(part, plain + 2.0 * 8.0, "half the channels of one head");
    }
}
