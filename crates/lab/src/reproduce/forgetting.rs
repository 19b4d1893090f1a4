//! What a recurrence forgets of a long sentence, and attention finds.

use whatwhere_training::presets;

use super::{
    By, Claim, Experiment, Part,
    claims::{PLAIN, expect},
};

const RECURRENT: &str = presets::text("recurrent");

pub(super) const FORGETTING: Claim = Claim {
    name: "forgetting",
    title: "Without attention a recurrent translator forgets long sentences",
    paper: "Bahdanau et al. 2015, https://arxiv.org/abs/1409.0473; Luong et al. 2015, https://arxiv.org/abs/1508.04025",
    reports: "BLEU 17.8 without attention and 26.8 with it, trained on sentences of up to 50 words; without it BLEU falls from about 20 words on, with it there is no fall up to 60 (figure 2)",
    scaled_down: Some(
        "Multi30k instead of WMT14, whose sentences have up to 32 words, GRUs of width 256 both ways, 1.9 M parameters, 2000 updates",
    ),
    minutes: 30,
    data: Some("a folder with Multi30k's train, val and test_2016_flickr, .en.gz and .de.gz"),
    experiment: Experiment::Compare(&[Part {
        settings: RECURRENT,
        axes: &["attends=none,before,after"],
        baseline: "none",
        bleu: true,
        expects: &[
            expect("before", "none", By::Bleu),
            expect("after", "none", By::Bleu),
            expect("before", "none", By::BleuOfLongest),
            expect("after", "none", By::BleuOfLongest),
            expect("before", "none", By::Forgetting),
            expect("after", "none", By::Forgetting),
        ],
        ..PLAIN
    }]),
};
