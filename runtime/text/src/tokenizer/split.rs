//! Pre-tokenizers: how each `tokenizer.ggml.pre` cuts a text before merging.
//!
//! The published patterns end in `\s+(?!\S)|\s+`: a run of white space leaves its last character to the word that
//! follows. [`Stage`] does that look-ahead itself, so that the patterns fit an engine that is linear in the text whatever
//! the text is. Possessive quantifiers are plain ones here: what follows them can never match what they took.

use std::borrow::Cow;

use regex::Regex;
use tokenizers::normalizers::NFC;
use tokenizers::{NormalizedString, Normalizer};

use super::spec::TokenizerSpec;
use crate::TokenizerError;

/// How one family of pre-tokenizers treats a text.
struct Family {
    /// The values of `tokenizer.ggml.pre` that mean it.
    names: &'static [&'static str],
    /// Applied in order, each inside the pieces left by the one before.
    patterns: &'static [&'static str],
    /// Those of `names` whose own tokenizer brings the text to NFC first.
    nfc: &'static [&'static str],
    /// Whether a piece that is a token is taken without merging.
    whole_pieces: bool,
    /// Whether BOS is added when the file does not say.
    adds_bos: bool,
}

/// What is left out in [`FAMILIES`] below.
const PLAIN: Family = Family { names: &[], patterns: &[], nfc: &[], whole_pieces: false, adds_bos: false };

/// GPT-2's own.
pub(super) const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
const QWEN2: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}",
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);
const LLAMA3: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}",
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);
/// Each digit alone.
pub(super) const ONE_DIGIT: &str = r"\p{N}";
const CJK_AND_HANGUL: &str = r"[\x{4e00}-\x{9fa5}\x{0800}-\x{4e00}\x{ac00}-\x{d7ff}]+";
/// The cased letters as DeepSeek LLM's tokenizer lists them.
const CASED_LETTERS: &str = concat!(
    r"\s?[A-Za-z\x{b5}\x{c0}-\x{d6}\x{d8}-\x{f6}\x{f8}-\x{1ba}\x{1bc}-\x{1bf}\x{1c4}-\x{293}\x{295}-\x{2af}",
    r"\x{370}-\x{373}\x{376}\x{377}\x{37b}-\x{37d}\x{37f}\x{386}\x{388}-\x{38a}\x{38c}\x{38e}-\x{3a1}",
    r"\x{3a3}-\x{3f5}\x{3f7}-\x{481}\x{48a}-\x{52f}\x{531}-\x{556}\x{10a0}-\x{10c5}\x{13a0}-\x{13f5}",
    r"\x{13f8}-\x{13fd}\x{1c90}-\x{1cba}\x{1cbd}-\x{1cbf}\x{1d00}-\x{1d2b}\x{1d6b}-\x{1d77}\x{1d79}-\x{1d9a}",
    r"\x{1e00}-\x{1f15}\x{1f18}-\x{1f1d}\x{1f20}-\x{1f45}\x{1f48}-\x{1f4d}\x{1f50}-\x{1f57}\x{1f59}\x{1f5b}",
    r"\x{1f5d}\x{1f5f}-\x{1f7d}\x{1f80}-\x{1fb4}\x{1fb6}-\x{1fbc}\x{1fbe}\x{1fc2}-\x{1fc4}\x{1fc6}-\x{1fcc}",
    r"\x{1fd0}-\x{1fd3}\x{1fd6}-\x{1fdb}\x{1fe0}-\x{1fec}\x{1ff2}-\x{1ff4}\x{1ff6}-\x{1ffc}\x{2102}\x{2107}",
    r"\x{210a}-\x{2113}\x{2115}\x{2119}-\x{211d}\x{2124}\x{2126}\x{2128}\x{212a}-\x{212d}\x{212f}-\x{2134}",
    r"\x{2139}\x{213c}-\x{213f}\x{2145}-\x{2149}\x{214e}\x{2183}\x{2184}\x{2c00}-\x{2c7b}\x{2c7e}-\x{2ce4}",
    r"\x{2ceb}-\x{2cee}\x{2cf2}\x{2cf3}\x{a640}-\x{a66d}\x{a680}-\x{a69b}\x{a722}-\x{a76f}\x{a771}-\x{a787}",
    r"\x{a78b}-\x{a78e}\x{ab70}-\x{abbf}\x{fb00}-\x{fb06}\x{fb13}-\x{fb17}\x{ff21}-\x{ff3a}\x{ff41}-\x{ff5a}",
    r"\x{10400}-\x{1044f}\x{104b0}-\x{104d3}\x{104d8}-\x{104fb}\x{10c80}-\x{10cb2}\x{10cc0}-\x{10cf2}",
    r"\x{118a0}-\x{118df}\x{1e900}-\x{1e943}]+"
);

const FAMILIES: &[Family] = &[
    Family {
        names: &[
            "qwen2",
            "deepseek-r1-qwen",
            "kormo",
            "f2llmv2",
            "megrez",
            "stablelm2",
            "hunyuan",
            "solar-open",
            "grok-2",
        ],
        patterns: &[QWEN2],
        nfc: &["qwen2", "deepseek-r1-qwen"],
        ..PLAIN
    },
    Family {
        names: &["qwen35"],
        patterns: &[concat!(
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}",
            r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
        )],
        nfc: &["qwen35"],
        ..PLAIN
    },
    Family {
        names: &[
            "llama-bpe",
            "llama3",
            "llama-v3",
            "lfm2",
            "pixtral",
            "falcon3",
            "falcon-h1",
            "midm-2.0",
            "jina-v5-nano",
        ],
        patterns: &[LLAMA3],
        whole_pieces: true,
        adds_bos: true,
        ..PLAIN
    },
    Family { names: &["chatglm-bpe", "glm4", "glm5"], patterns: &[LLAMA3], whole_pieces: true, ..PLAIN },
    Family { names: &["smaug-bpe", "dbrx"], patterns: &[LLAMA3], ..PLAIN },
    Family {
        names: &["k2-horizon"],
        patterns: &[concat!(
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}\x{200c}\x{200d}]+|\p{N}{1,3}",
            r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
        )],
        nfc: &["k2-horizon"],
        ..PLAIN
    },
    Family {
        names: &["deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"],
        patterns: &[
            r"\p{N}{1,3}",
            r"[\x{4e00}-\x{9fa5}\x{3040}-\x{309f}\x{30a0}-\x{30ff}]+",
            concat!(
                r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"##,
                r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
            ),
        ],
        ..PLAIN
    },
    Family {
        names: &["deepseek-llm"],
        patterns: &[
            r"[\r\n]",
            CASED_LETTERS,
            r"\s?[!-/:-~\x{ff01}-\x{ff0f}\x{ff1a}-\x{ff5e}\x{2018}-\x{201f}\x{3000}-\x{3002}]+",
            r"\s+$",
            CJK_AND_HANGUL,
            ONE_DIGIT,
        ],
        ..PLAIN
    },
    Family {
        names: &["deepseek-coder"],
        patterns: &[r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", CJK_AND_HANGUL, ONE_DIGIT],
        ..PLAIN
    },
    Family {
        names: &[
            "gpt-2",
            "phi-2",
            "jina-es",
            "jina-de",
            "jina-v1-en",
            "jina-v2-es",
            "jina-v2-de",
            "jina-v2-code",
            "gigachat",
            "exaone4",
            "a.x-4.0",
            "mellum",
            "modern-bert",
            "mpt",
            "olmo",
            "jais",
            "trillion",
            "granite-docling",
        ],
        patterns: &[GPT2],
        ..PLAIN
    },
    Family {
        names: &["smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b", "mellum2"],
        patterns: &[ONE_DIGIT, GPT2],
        ..PLAIN
    },
    Family {
        names: &["bailingmoe", "bailingmoe2", "llada-moe"],
        patterns: &[concat!(
            r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}",
            r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
        )],
        ..PLAIN
    },
    Family {
        names: &["tekken"],
        patterns: &[concat!(
            r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+",
            r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}",
            r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
        )],
        whole_pieces: true,
        adds_bos: true,
        ..PLAIN
    },
    Family {
        names: &["gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"],
        patterns: &[concat!(
            r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
            r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
            r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
        )],
        ..PLAIN
    },
    Family { names: &["laguna"], patterns: &[r"[^\n]+|[\n]+", QWEN2], ..PLAIN },
];

/// Stands in where a byte-level file does not name its pre-tokenizer.
const DEFAULT: &str = "gpt-2";

/// How published patterns say that a run of white space leaves its last character to what follows.
const RUNS: [&str; 3] = [r"|\s+(?!\S)|\s+", r"|\s+(?!\S)|\s", r"|\s+(?!\S)"];

/// One pattern; its matches and the text between them become pieces.
struct Stage {
    /// With a group around the alternative for runs of white space, if there is one.
    pattern: Regex,
    leaves_last: bool,
}

impl Stage {
    fn new(published: &str) -> Result<Self, TokenizerError> {
        let words = RUNS.iter().find_map(|run| published.strip_suffix(run));
        let pattern = words.map_or_else(|| published.to_owned(), |words| format!(r"{words}|(\s+)"));
        let pattern = Regex::new(&pattern).map_err(|error| TokenizerError::Library {
            what: "compiling a pre-tokenizer",
            reason: error.to_string(),
        })?;
        Ok(Self { pattern, leaves_last: words.is_some() })
    }

    /// The first match at or after `from`, as the published pattern finds it.
    fn find(&self, text: &str, from: usize) -> Option<(usize, usize)> {
        let found = self.pattern.find_at(text, from)?;
        let (start, end) = (found.start(), found.end());
        let last = found.as_str().chars().next_back().filter(|_| self.leaves_last && end < text.len());
        let last = last.filter(|last| last.is_whitespace() && last.len_utf8() < end - start);
        // Which alternative matched is dear to ask, and hardly ever needed.
        let is_run = |_: &char| self.pattern.captures_at(text, start).is_some_and(|found| found.get(1).is_some());
        let left = last.filter(is_run).map_or(0, char::len_utf8);
        Some((start, end - left))
    }

    fn split<'t>(&self, text: &'t str, piece: &mut dyn FnMut(&'t str)) {
        let mut done = 0;
        while let Some((start, end)) = self.find(text, done) {
            for range in [done..start, start..end] {
                if let Some(part) = text.get(range).filter(|part| !part.is_empty()) {
                    piece(part);
                }
            }
            if end <= done {
                break;
            }
            done = end;
        }
        if let Some(rest) = text.get(done..).filter(|rest| !rest.is_empty()) {
            piece(rest);
        }
    }
}

/// Cuts texts into the pieces inside which tokens are merged.
pub(crate) struct Splitter {
    stages: Vec<Stage>,
}

impl Splitter {
    fn new(patterns: &[&str]) -> Result<Self, TokenizerError> {
        Ok(Self { stages: patterns.iter().map(|pattern| Stage::new(pattern)).collect::<Result<_, _>>()? })
    }

    /// Calls `piece` with each piece in order; together they are `text`.
    pub(crate) fn split<'t>(&self, text: &'t str, piece: &mut dyn FnMut(&'t str)) {
        run(&self.stages, text, piece);
    }
}

fn run<'t>(stages: &[Stage], text: &'t str, piece: &mut dyn FnMut(&'t str)) {
    match stages {
        [] if text.is_empty() => {}
        [] => piece(text),
        [first, rest @ ..] => first.split(text, &mut |part| run(rest, part, piece)),
    }
}

/// What `tokenizer.ggml.pre` decides.
pub(crate) struct PreTokenizer {
    pub(crate) splitter: Splitter,
    nfc: bool,
    pub(crate) whole_pieces: bool,
    pub(crate) adds_bos: bool,
}

impl PreTokenizer {
    /// `text` in the form in which it is to be cut.
    pub(crate) fn normalized<'t>(&self, text: &'t str) -> Cow<'t, str> {
        // Everything below U+0300 is its own NFC.
        if !self.nfc || text.chars().all(|c| c < '\u{300}') {
            return Cow::Borrowed(text);
        }
        // By the library's tables, as those are what the models' own tokenizers were used with.
        let mut normalized = NormalizedString::from(text);
        match NFC.normalize(&mut normalized) {
            Ok(()) => Cow::Owned(normalized.get().to_owned()),
            Err(_) => Cow::Borrowed(text),
        }
    }

    /// The pre-tokenizer that `spec` names, or else describes.
    pub(crate) fn from_spec(spec: &TokenizerSpec) -> Result<Self, TokenizerError> {
        let name = spec.pre.as_deref().filter(|name| *name != "default");
        let is_known = name.is_some_and(|name| FAMILIES.iter().any(|family| family.names.contains(&name)));
        if let Some(cut) = spec.cut.as_ref().filter(|_| !is_known) {
            return Self::described(cut);
        }
        let name = name.unwrap_or_else(|| {
            tracing::warn!(
                "tokenizer.ggml.pre does not name a pre-tokenizer; taking \"{DEFAULT}\", which may be wrong"
            );
            DEFAULT
        });
        Self::named(name)
    }

    /// The pre-tokenizer that a family describes.
    fn described(cut: &bantam_family_api::PreTokenizer) -> Result<Self, TokenizerError> {
        let patterns: Vec<&str> = cut.patterns.iter().map(String::as_str).collect();
        Self::published(&patterns, cut.nfc, cut.whole_pieces).ok_or_else(|| TokenizerError::Value {
            key: "the family's tokenizer hints: pre.patterns".to_owned(),
            reason: format!(
                r"expected patterns without look-around (but `\s+(?!\S)` at the end), back references and possessive quantifiers, found {patterns:?}"
            ),
        })
    }

    /// The pre-tokenizer with these published patterns; `None` if they need more than an engine that is linear in the
    /// text can do. A possessive quantifier is only believed to be needless where the pattern is a known one.
    pub(crate) fn published(patterns: &[&str], nfc: bool, whole_pieces: bool) -> Option<Self> {
        let known = |pattern: &String| FAMILIES.iter().any(|family| family.patterns.contains(&pattern.as_str()));
        let patterns: Option<Vec<String>> = patterns
            .iter()
            .map(|pattern| {
                let plain = pattern.replace("?+", "?").replace("++", "+").replace("*+", "*");
                if plain == **pattern { Some(plain) } else { Some(plain).filter(known) }
            })
            .collect();
        let stages = patterns?.iter().map(|pattern| Stage::new(pattern)).collect::<Result<_, _>>().ok()?;
        Some(Self { splitter: Splitter { stages }, nfc, whole_pieces, adds_bos: false })
    }

    /// The pre-tokenizer called `name`.
    pub(crate) fn named(name: &str) -> Result<Self, TokenizerError> {
        let family = FAMILIES.iter().find(|family| family.names.contains(&name)).ok_or_else(|| {
            let known: Vec<&str> = FAMILIES.iter().flat_map(|family| family.names).copied().collect();
            TokenizerError::UnknownPre { pre: name.to_owned(), known: known.join(", ") }
        })?;
        Ok(Self {
            splitter: Splitter::new(family.patterns)?,
            nfc: family.nfc.contains(&name),
            whole_pieces: family.whole_pieces,
            adds_bos: family.adds_bos,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(pre: &PreTokenizer, text: &str) -> Vec<String> {
        let mut pieces = Vec::new();
        pre.splitter.split(&pre.normalized(text), &mut |piece| pieces.push(piece.to_owned()));
        pieces
    }

    #[test]
    fn texts_are_cut_as_the_models_own_tokenizers_cut_them() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/tokenizers/splits.json");
        let recorded: serde_json::Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        let texts = recorded["texts"].as_array().unwrap();
        let names = recorded["pieces"].as_object().unwrap();
        assert_eq!(names.len(), 13);
        for (name, wanted) in names {
            let pre = PreTokenizer::named(name).unwrap();
            for (text, want) in texts.iter().zip(wanted.as_array().unwrap()) {
                assert_eq!(serde_json::json!(pieces(&pre, text.as_str().unwrap())), *want, "{name}: {text}");
            }
        }
    }

    #[test]
    fn k2_horizon_keeps_joiners_and_marks_in_words() {
        assert_eq!(
            pieces(&PreTokenizer::named("k2-horizon").unwrap(), "می\u{200c}خواهم x\u{301}a"),
            ["می\u{200c}خواهم", " x\u{301}a"]
        );
    }

    #[test]
    fn every_named_pattern_compiles() {
        for name in FAMILIES.iter().flat_map(|family| family.names) {
            assert_eq!(pieces(&PreTokenizer::named(name).unwrap(), "ab"), ["ab"], "{name}");
        }
    }

    #[test]
    fn an_unknown_name_is_refused_with_the_known_ones() {
        let error = PreTokenizer::named("qwen99").err().unwrap().to_string();
        assert!(error.contains("\"qwen99\"") && error.contains("qwen35") && error.contains("k2-horizon"), "{error}");
    }
}
