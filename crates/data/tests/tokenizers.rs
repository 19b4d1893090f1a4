//! What is encoded comes back, whole and token by token, before and after saving.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::collections::BTreeSet;

use proptest::prelude::*;
use whatwhere_data::{Error, Special, Tokenizer};

const SAMPLES: [&str; 7] = [
    "to be, or not to be",
    "  two  spaces\n\n\tand a tab \r\n",
    "다람쥐 헌 쳇바퀴에 타고파",
    "👩‍👩‍👧 and 🇰🇷, e\u{301} and é",
    "the <end> of a <padding> and <mask>",
    "don't 1234 §±",
    "",
];

fn all_specials() -> [Special; 4] {
    [Special::Padding, Special::Begin, Special::End, Special::Mask]
}

fn tokenizers(specials: &[Special]) -> Vec<(&'static str, Tokenizer)> {
    let characters: BTreeSet<char> = SAMPLES.iter().flat_map(|s| s.chars()).collect();
    let text = SAMPLES.join("\n").repeat(20);
    vec![
        ("bytes", Tokenizer::of_bytes(specials).unwrap()),
        ("characters", Tokenizer::of_characters(&characters, specials).unwrap()),
        ("bpe", Tokenizer::train([text.as_str()].into_iter(), 400, specials).unwrap()),
    ]
}

#[test]
fn decode_gives_back_what_was_encoded() {
    for specials in [&[][..], &all_specials()] {
        for (name, tokenizer) in tokenizers(specials) {
            for sample in SAMPLES {
                let tokens = tokenizer.encode(sample).unwrap();
                assert!(tokens.iter().all(|&t| !tokenizer.is_special(t)), "{name} {sample:?}");
                assert_eq!(tokenizer.decode(&tokens), sample, "{name}");
            }
        }
    }
}

#[test]
fn a_saved_tokenizer_encodes_the_same_and_so_does_the_tokenizers_crate() {
    let folder = tempfile::tempdir().unwrap();
    for (name, tokenizer) in tokenizers(&all_specials()) {
        let path = folder.path().join(format!("{name}.json"));
        tokenizer.save(&path).unwrap();
        let loaded = Tokenizer::load(&path).unwrap();
        let plain = tokenizers::Tokenizer::from_file(&path).unwrap();
        assert_eq!(loaded.vocabulary(), tokenizer.vocabulary());
        assert_eq!(
            (loaded.padding(), loaded.begin(), loaded.end(), loaded.mask(), loaded.unknown()),
            (tokenizer.padding(), tokenizer.begin(), tokenizer.end(), tokenizer.mask(), None)
        );
        for sample in SAMPLES {
            let tokens = tokenizer.encode(sample).unwrap();
            assert_eq!(loaded.encode(sample).unwrap(), tokens, "{name}");
            assert_eq!(plain.decode(&tokens, true).unwrap(), sample, "{name}");
            // The crate alone takes a special token's name in a text for the token.
            if !sample.contains("<end>") {
                let theirs = plain.encode(sample, false).unwrap();
                assert_eq!(theirs.get_ids(), tokens, "{name} {sample:?}");
            }
        }
    }
}

#[test]
fn vocabularies_have_special_tokens_only_where_asked() {
    for ((name, without), (_, with)) in tokenizers(&[]).into_iter().zip(tokenizers(&all_specials()))
    {
        assert_eq!(without.padding(), None);
        match name {
            "bytes" => assert_eq!((without.vocabulary(), with.vocabulary()), (256, 260)),
            "characters" => assert_eq!(without.vocabulary() + 4, with.vocabulary()),
            _ => assert!(
                with.vocabulary() <= 400 && with.mask() == Some(with.vocabulary() as u32 - 1)
            ),
        }
    }
}

#[test]
fn training_twice_gives_the_same_merges() {
    let folder = tempfile::tempdir().unwrap();
    let text = SAMPLES.join(" ").repeat(50);
    let files = ["a", "b"].map(|name| {
        let path = folder.path().join(name);
        Tokenizer::train([text.as_str()].into_iter(), 500, &[]).unwrap().save(&path).unwrap();
        std::fs::read(path).unwrap()
    });
    assert!(files[0] == files[1]);
}

#[test]
fn a_long_text_is_cut_without_changing_its_tokens() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokenizer.json");
    let text = "A line of words, \n\n  another one\nand  \nmore\t\n가나다\n다라\n".repeat(6000);
    let tokenizer = Tokenizer::train([text.as_str()].into_iter(), 300, &[]).unwrap();
    tokenizer.save(&path).unwrap();
    let plain = tokenizers::Tokenizer::from_file(&path).unwrap();
    let tokens = tokenizer.encode(&text).unwrap();
    assert_eq!(plain.encode(text.as_str(), false).unwrap().get_ids(), tokens);
    assert_eq!(tokenizer.decode(&tokens), text);
}

#[test]
fn a_stream_never_shows_half_a_character() {
    for (name, tokenizer) in tokenizers(&all_specials()) {
        for sample in SAMPLES {
            let mut decoder = tokenizer.stream();
            let mut text = String::new();
            for token in tokenizer.encode(sample).unwrap() {
                let new = decoder.push(token);
                assert!(!new.contains('\u{FFFD}'), "{name}");
                text += &new;
                assert!(sample.starts_with(&text));
            }
            text += &decoder.finish();
            assert_eq!(text, sample, "{name}");
        }
    }
}

#[test]
fn a_character_without_a_token_is_refused_or_unknown() {
    let known = BTreeSet::from(['a', 'b']);
    let refused = Tokenizer::of_characters(&known, &[]).unwrap().encode("abc").unwrap_err();
    assert!(matches!(refused, Error::Character { character: 'c', vocabulary: 2 }), "{refused}");
    let lenient = Tokenizer::of_characters(&known, &[Special::Unknown]).unwrap();
    assert_eq!(lenient.encode("acb").unwrap(), [0, lenient.unknown().unwrap(), 1]);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_stream_of_any_bytes_equals_decoding_them_at_once(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
        let tokenizer = Tokenizer::of_bytes(&[]).unwrap();
        let tokens: Vec<u32> = bytes.iter().map(|&byte| byte.into()).collect();
        let mut decoder = tokenizer.stream();
        let mut text: String = tokens.iter().map(|&token| decoder.push(token)).collect();
        text += &decoder.finish();
        prop_assert_eq!(&text, &String::from_utf8_lossy(&bytes));
        prop_assert_eq!(text, tokenizer.decode(&tokens));
    }

    #[test]
    fn bytes_and_merges_take_any_text(text in "\\PC{0,60}") {
        for tokenizer in [Tokenizer::of_bytes(&[]).unwrap(), Tokenizer::train(["some words"].into_iter(), 261, &[]).unwrap()] {
            prop_assert_eq!(tokenizer.decode(&tokenizer.encode(&text).unwrap()), text.clone());
        }
    }
}

#[test]
fn parts_of_a_character_are_shown_as_bytes() {
    for (name, tokenizer) in tokenizers(&all_specials()) {
        let shown = |text: &str| -> String {
            let tokens = tokenizer.encode(text).unwrap();
            tokens.iter().map(|token| tokenizer.token(*token)).collect()
        };
        assert_eq!(shown("to be"), "to be", "{name}");
        assert!(!shown("다람쥐").contains('\u{fffd}'), "{name}: {}", shown("다람쥐"));
    }
    let bytes = Tokenizer::of_bytes(&[]).unwrap();
    assert_eq!(bytes.token(0xED), "<ED>");
    assert_eq!(bytes.token(u32::from(b'a')), "a");
}

#[test]
fn kmers_cut_as_the_saved_file_says_and_give_back_what_was_encoded() {
    let letters: BTreeSet<char> = "ACGTN".chars().collect();
    let tokenizer = Tokenizer::of_kmers(6, &letters, &all_specials()).unwrap();
    assert_eq!(tokenizer.vocabulary(), 4096 + 5 + 4);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokenizer.json");
    tokenizer.save(&path).unwrap();
    let theirs = tokenizers::Tokenizer::from_file(&path).unwrap();
    for text in ["ACGTAC", "ACGTACG", "NACGTACGTACGTAA", "ACGNNTACGTACNNNNNNN", "A", ""] {
        let tokens = tokenizer.encode(text).unwrap();
        assert_eq!(theirs.encode_fast(text, false).unwrap().get_ids(), tokens, "{text}");
        assert_eq!(tokenizer.decode(&tokens), text);
        assert_eq!(Tokenizer::load(&path).unwrap().encode(text).unwrap(), tokens);
    }
    assert_eq!(tokenizer.encode("ACGTACGTACGTTN").unwrap().len(), 4);
    let refused = tokenizer.encode("ACX").unwrap_err();
    assert!(matches!(refused, Error::Character { character: 'X', .. }), "{refused}");
}

#[test]
fn words_and_pieces_of_words_keep_the_blank_after_a_prompt() {
    let notes: Vec<String> = ["60", "55", "107"].map(String::from).into();
    let tokenizer = Tokenizer::of_words(&notes, &[]).unwrap();
    let mut stream = tokenizer.stream_after(&tokenizer.encode("60 55").unwrap());
    assert_eq!(stream.push(2) + &stream.push(0) + &stream.finish(), " 107 60");
    assert_eq!(tokenizer.stream_after(&[]).push(1), "55", "no blank before the first");

    let file = serde_json::json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": { "type": "BertPreTokenizer" }, "post_processor": null,
        "decoder": { "type": "WordPiece", "prefix": "##", "cleanup": true },
        "model": {
            "type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": { "[UNK]": 0, "hello": 1, "world": 2, "down": 3, "##stairs": 4 }
        }
    });
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokenizer.json");
    std::fs::write(&path, file.to_string()).unwrap();
    let tokenizer = Tokenizer::load(&path).unwrap();
    let mut stream = tokenizer.stream_after(&tokenizer.encode("hello world").unwrap());
    assert_eq!(stream.push(3) + &stream.push(4) + &stream.finish(), " downstairs");
}
