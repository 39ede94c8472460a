//! Streaming: text comes out the same however it is cut into pieces, whole characters only, and nothing of a stop
//! string ever.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use std::path::Path;
use std::sync::LazyLock;

use bantam_gguf::GgufFile;
use bantam_text::{Segment, Specials, StopMatcher, Tokenizer};
use proptest::prelude::*;

fn load(name: &str) -> Tokenizer {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/tokenizers");
    Tokenizer::from_gguf(GgufFile::open(directory.join(name)).unwrap().metadata()).unwrap()
}

static BYTE_LEVEL: LazyLock<Tokenizer> = LazyLock::new(|| load("smollm2.gguf"));
static SENTENCE_PIECE: LazyLock<Tokenizer> = LazyLock::new(|| load("llama-spm.gguf"));

/// Text with everything that makes tokenizers stumble.
fn any_text() -> impl Strategy<Value = String> {
    let parts = prop_oneof![
        any::<String>(),
        "[ \\t\\r\\n]{0,6}",
        "[a-zA-Z0-9.,'<|>\u{e9}\u{4e2d}\u{1f600}\u{301} ]{0,12}",
        Just("<|im_end|>".to_owned()),
        Just("</s>".to_owned()),
    ];
    prop::collection::vec(parts, 0..6).prop_map(|parts| parts.concat())
}

/// What a stop matcher must do, on the whole text at once.
fn oracle<'t>(text: &'t str, stops: &[String]) -> (&'t str, Option<String>) {
    let stops = stops.iter().filter(|stop| !stop.is_empty());
    let found = stops.filter_map(|stop| text.find(stop.as_str()).map(|at| (at + stop.len(), at, stop)));
    found.min().map_or((text, None), |(_, at, stop)| (&text[..at], Some(stop.clone())))
}

fn stream(tokenizer: &Tokenizer, ids: &[u32], skip_special: bool) -> String {
    let mut decoder = tokenizer.stream(skip_special);
    let mut text: String = ids.iter().map(|id| decoder.push(*id)).collect();
    text.push_str(&decoder.finish());
    text
}

proptest! {
    #[test]
    fn what_stands_behind_a_special_token_is_encoded_for_itself(parts in prop::collection::vec((any_text(), any::<bool>()), 0..6)) {
        for tokenizer in [&*BYTE_LEVEL, &*SENTENCE_PIECE] {
            let segment = |(text, trusted): &(String, bool)| {
                Segment { text: text.clone(), specials: if *trusted { Specials::Parse } else { Specials::Plain } }
            };
            let segments: Vec<Segment> = parts.iter().map(segment).collect();
            let prompt = tokenizer.join(&segments).unwrap();
            let ids = tokenizer.encode_joined(&prompt).unwrap();
            for (special, (_, id)) in prompt.specials().enumerate() {
                let behind = tokenizer.encode_from(&prompt, special).unwrap();
                prop_assert_eq!(behind.first(), Some(&id));
                prop_assert!(ids.ends_with(&behind));
            }
        }
    }

    #[test]
    fn ids_spell_what_they_were_decoded_to(ids in prop::collection::vec(0u32..49152, 0..20), cut in 0usize..60) {
        for tokenizer in [&*BYTE_LEVEL, &*SENTENCE_PIECE] {
            let vocabulary = tokenizer.vocab_size() as u32;
            let ids: Vec<u32> = ids.iter().map(|id| id % vocabulary).collect();
            let decoded = stream(tokenizer, &ids, true);
            let text: String = decoded.chars().take(cut).collect();
            let (taken, bytes) = tokenizer.spelling(&ids, &text);
            prop_assert_eq!(stream(tokenizer, &ids[..taken], true), &text[..bytes]);
            if decoded == text && !text.ends_with(char::REPLACEMENT_CHARACTER) {
                prop_assert_eq!((taken, bytes), (ids.len(), text.len()));
            }
        }
    }

    #[test]
    fn byte_level_text_survives(text in any_text()) {
        for specials in [Specials::Parse, Specials::Plain] {
            let ids = BYTE_LEVEL.encode(&text, specials).unwrap();
            prop_assert_eq!(String::from_utf8(BYTE_LEVEL.decode(&ids, false)).unwrap(), text.clone());
        }
    }

    #[test]
    fn sentence_piece_text_survives(text in any_text()) {
        // A typed "▁" is a space to SentencePiece.
        let ids = SENTENCE_PIECE.encode(&text, Specials::Plain).unwrap();
        let decoded = String::from_utf8(SENTENCE_PIECE.decode(&ids, false)).unwrap();
        prop_assert_eq!(decoded, text.replace('▁', " "));
    }

    #[test]
    fn any_ids_stream_to_what_they_decode_to(ids in prop::collection::vec(0u32..50_000, 0..40), skip in any::<bool>()) {
        for tokenizer in [&*BYTE_LEVEL, &*SENTENCE_PIECE] {
            let decoded = tokenizer.decode(&ids, skip);
            prop_assert_eq!(stream(tokenizer, &ids, skip), String::from_utf8_lossy(&decoded));
        }
    }

    #[test]
    fn byte_tokens_stream_to_what_they_decode_to(bytes in prop::collection::vec(any::<u8>(), 0..20)) {
        let id = |byte: &u8| SENTENCE_PIECE.token_to_id(&format!("<0x{byte:02X}>")).unwrap();
        let ids: Vec<u32> = bytes.iter().map(id).collect();
        let decoded = SENTENCE_PIECE.decode(&ids, false);
        prop_assert_eq!(stream(&SENTENCE_PIECE, &ids, false), String::from_utf8_lossy(&decoded));
    }

    #[test]
    fn stop_strings_never_leak(
        text in "[abé]{0,12}",
        stops in prop::collection::vec("[abé]{0,4}", 0..4),
        cuts in prop::collection::vec(0usize..5, 1..12),
    ) {
        let (want, want_hit) = oracle(&text, &stops);
        let mut matcher = StopMatcher::new(stops.clone()).unwrap();
        let (mut shown, mut hit) = (String::new(), None);
        let mut chars = text.chars();
        for size in cuts.into_iter().chain([usize::MAX]) {
            let output = matcher.push(&chars.by_ref().take(size).collect::<String>());
            shown.push_str(&output.text);
            prop_assert!(want.starts_with(&shown), "{:?} shown of {:?}", shown, want);
            hit = hit.or(output.hit);
        }
        shown.push_str(&matcher.finish());
        // Of several stop strings complete at once the longest is named.
        prop_assert_eq!((shown.as_str(), hit), (want, want_hit));
    }

    #[test]
    fn text_that_is_no_stop_string_is_not_held_back(text in "[a-y]{1,20}") {
        let mut matcher = StopMatcher::new(["z".to_owned(), "zebra".to_owned()]).unwrap();
        prop_assert_eq!(matcher.push(&text).text, text);
    }
}

#[test]
fn a_character_spread_over_tokens_comes_whole() {
    let ids = BYTE_LEVEL.encode("🦙", Specials::Plain).unwrap();
    assert!(ids.len() > 1);
    let mut decoder = BYTE_LEVEL.stream(true);
    let pieces: Vec<String> = ids.iter().map(|id| decoder.push(*id)).collect();
    assert!(pieces[..ids.len() - 1].iter().all(String::is_empty));
    assert_eq!(pieces.last().unwrap(), "🦙");
    assert_eq!(decoder.finish(), "");
}

#[test]
fn a_character_that_is_cut_off_is_shown_as_such() {
    let ids = BYTE_LEVEL.encode("🦙", Specials::Plain).unwrap();
    let mut decoder = BYTE_LEVEL.stream(true);
    assert_eq!(decoder.push(ids[0]), "");
    assert_eq!(decoder.finish(), "\u{fffd}");
}
