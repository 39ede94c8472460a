//! Pre-tokenizers: how each `tokenizer.ggml.pre` cuts a text before merging.
//!
//! The published patterns end in `\s+(?!\S)|\s+`: a run of white space leaves its last character to the word that
//! follows. That look-ahead is done by [`Stage`] instead, so that the patterns fit an engine that is linear in the text
//! whatever the text is. Possessive quantifiers of the published patterns are plain ones here; what follows them can
//! never match what they took.

use regex::Regex;

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

const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+";
const QWEN2: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}",
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+"
);
const LLAMA3: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}",
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+"
);
const ONE_DIGIT: &str = r"\p{N}";
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
            r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+"
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
            r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+"
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
                r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+"
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
            r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+"
        )],
        ..PLAIN
    },
    Family {
        names: &["tekken"],
        patterns: &[concat!(
            r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+",
            r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}",
            r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+"
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
            r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+"
        )],
        ..PLAIN
    },
    Family { names: &["laguna"], patterns: &[r"[^\n]+|\n+", QWEN2], ..PLAIN },
];

/// Stands in where a byte-level file does not name its pre-tokenizer.
const DEFAULT: &str = "gpt-2";

/// One pattern; its matches and the text between them become pieces.
struct Stage {
    pattern: Regex,
    /// Whether a run of white space leaves its last character to the word behind it.
    gives_back: bool,
    /// Whether line ends have an alternative of their own, so that a match ending in one is not such a run.
    cuts_lines: bool,
}

impl Stage {
    fn new(pattern: &str) -> Result<Self, TokenizerError> {
        let regex = Regex::new(pattern).map_err(|error| TokenizerError::Library {
            what: "compiling a pre-tokenizer",
            reason: error.to_string(),
        })?;
        let gives_back = pattern.ends_with(r"|\s+");
        Ok(Self { pattern: regex, gives_back, cuts_lines: pattern.contains(r"|\s*[\r\n]") })
    }

    /// The first match at or after `from`, as the published pattern finds it.
    fn find(&self, text: &str, from: usize) -> Option<(usize, usize)> {
        let found = self.pattern.find_at(text, from)?;
        let (start, end) = (found.start(), found.end());
        if self.gives_back && end < text.len() {
            let run = found.as_str();
            let last = run.chars().next_back().filter(|c| self.is_run_end(*c));
            if let Some(last) = last.filter(|last| last.len_utf8() < run.len()) {
                return Some((start, end - last.len_utf8()));
            }
        }
        Some((start, end))
    }

    /// Only the pattern's last alternative ends in such a character.
    fn is_run_end(&self, last: char) -> bool {
        last.is_whitespace() && !(self.cuts_lines && matches!(last, '\r' | '\n'))
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
    pub(crate) nfc: bool,
    pub(crate) whole_pieces: bool,
    pub(crate) adds_bos: bool,
}

impl PreTokenizer {
    /// The pre-tokenizer that `spec` names.
    pub(crate) fn from_spec(spec: &TokenizerSpec) -> Result<Self, TokenizerError> {
        let name = spec.pre.as_deref().filter(|name| *name != "default").unwrap_or_else(|| {
            tracing::warn!(
                "tokenizer.ggml.pre does not name a pre-tokenizer; taking \"{DEFAULT}\", which may be wrong"
            );
            DEFAULT
        });
        Self::named(name)
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
