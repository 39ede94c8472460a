//! The prompt of `/infill`: what stands before a place and behind it, in the marks that models for code were taught.

use bantam_text::{Specials, Tokenizer, TokenizerError};

use crate::error::ApiError;
use crate::fields::{FieldError, Fields};

/// Of the room, what the text behind the place may take where there is not enough: a quarter.
const SUFFIX_SHARE: usize = 4;
/// Bytes of a text that are looked at for each token that there is room for.
const BYTES_PER_TOKEN: usize = 64;

/// The marks of a vocabulary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Marks {
    prefix: u32,
    suffix: u32,
    middle: u32,
    /// Before the name of a project, and before that of a file.
    repository: Option<u32>,
    file: Option<u32>,
}

/// Spellings of each, for vocabularies whose files do not say which token it is.
const PREFIX: &[&str] =
    &["<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<|code_prefix|>", "<｜fim▁begin｜>", "<PRE>", "▁<PRE>"];
const SUFFIX: &[&str] =
    &["<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<|code_suffix|>", "<｜fim▁hole｜>", "<SUF>", "▁<SUF>"];
const MIDDLE: &[&str] =
    &["<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<|code_middle|>", "<｜fim▁end｜>", "<MID>", "▁<MID>"];
const REPOSITORY: &[&str] = &["<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"];
const FILE: &[&str] = &["<|file_sep|>"];

impl Marks {
    /// Those of this vocabulary, if it has the three that are needed.
    pub(super) fn of(tokenizer: &Tokenizer) -> Option<Self> {
        let mark = |role: &str, spellings: &[&str]| {
            let spelled = || spellings.iter().find_map(|spelling| tokenizer.token_to_id(spelling));
            tokenizer.special_id(role).or_else(spelled)
        };
        Some(Marks {
            prefix: mark("fim_pre", PREFIX)?,
            suffix: mark("fim_suf", SUFFIX)?,
            middle: mark("fim_mid", MIDDLE)?,
            repository: mark("fim_rep", REPOSITORY),
            file: mark("fim_sep", FILE),
        })
    }
}

/// What is asked for.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Infill {
    prefix: String,
    suffix: String,
    /// Of the line at the place, what stands before it: the end of the prefix.
    line: String,
    extra: Vec<Extra>,
}

/// Another piece of code that may help.
#[derive(Debug, PartialEq)]
struct Extra {
    file: String,
    text: String,
}

impl Infill {
    pub(super) fn read(fields: &Fields<'_>) -> Result<Self, FieldError> {
        let text = |key: &str| Ok(fields.text(key)?.unwrap_or_default().to_owned());
        let extra = fields.items("input_extra")?.unwrap_or_default();
        let extra = extra.iter().map(|item| {
            let item = item.object()?;
            let file = item.text("filename")?.unwrap_or("tmp").to_owned();
            Ok(Extra { file, text: item.required("text")?.text()?.to_owned() })
        });
        if fields.get("input_prefix").is_none() && fields.get("input_suffix").is_none() {
            return Err(FieldError::new("input_prefix", "is required, or `input_suffix`"));
        }
        Ok(Infill {
            prefix: text("input_prefix")?,
            suffix: text("input_suffix")?,
            line: text("prompt")?,
            extra: extra.collect::<Result<_, _>>()?,
        })
    }

    /// The prompt's tokens, `room` at most, and whether that took leaving something out: the pieces of code first, then what
    /// is farthest from the place.
    ///
    /// # Errors
    /// A fault of the vocabulary.
    pub(super) fn tokens(
        &self,
        tokenizer: &Tokenizer,
        marks: Marks,
        room: usize,
    ) -> Result<(Vec<u32>, bool), ApiError> {
        let encode = |text: &str| tokenizer.encode(text, Specials::Plain);
        let fault = |e: TokenizerError| ApiError::internal(e.to_string());
        let bytes = room.saturating_mul(BYTES_PER_TOKEN);
        let mut prefix = encode(last(&self.prefix, bytes)).map_err(fault)?;
        prefix.extend(encode(last(&self.line, bytes)).map_err(fault)?);
        let mut suffix = encode(first(&self.suffix, bytes)).map_err(fault)?;
        let mut extra = self.extra_tokens(marks, bytes, &encode).map_err(fault)?;

        let bos = tokenizer.bos().filter(|_| tokenizer.add_bos());
        let room = room.saturating_sub(3 + usize::from(bos.is_some()));
        let mut cut = self.prefix.len() > bytes || self.line.len() > bytes || self.suffix.len() > bytes;
        if prefix.len() + suffix.len() > room {
            let behind = suffix.len().min((room / SUFFIX_SHARE).max(room.saturating_sub(prefix.len())));
            suffix.truncate(behind);
            keep_last(&mut prefix, room - behind);
            cut = true;
        }
        let left = room.saturating_sub(prefix.len() + suffix.len());
        cut |= extra.len() > left;
        keep_last(&mut extra, left);

        let mut tokens = extra;
        tokens.extend(bos);
        tokens.push(marks.prefix);
        tokens.extend(prefix);
        tokens.push(marks.suffix);
        tokens.extend(suffix);
        tokens.push(marks.middle);
        Ok((tokens, cut))
    }

    /// The further pieces of code, each under the name of its file where the vocabulary has a mark for that.
    fn extra_tokens(
        &self,
        marks: Marks,
        bytes: usize,
        encode: &impl Fn(&str) -> Result<Vec<u32>, TokenizerError>,
    ) -> Result<Vec<u32>, TokenizerError> {
        let mut tokens = Vec::new();
        if let Some(mark) = marks.repository {
            tokens.push(mark);
            tokens.extend(encode("myproject\n")?);
        }
        for Extra { file, text } in &self.extra {
            match marks.file {
                Some(mark) => {
                    tokens.push(mark);
                    tokens.extend(encode(&format!("{}\n", first(file, bytes)))?);
                }
                None => tokens.extend(encode("\n\n--- snippet ---\n\n")?),
            }
            tokens.extend(encode(last(text, bytes))?);
        }
        if let Some(mark) = marks.file {
            tokens.push(mark);
            tokens.extend(encode("filename\n")?);
        }
        Ok(tokens)
    }
}

fn keep_last(tokens: &mut Vec<u32>, most: usize) {
    tokens.drain(..tokens.len().saturating_sub(most));
}

/// The end of a text, so many bytes at most, from the beginning of a character on.
fn last(text: &str, bytes: usize) -> &str {
    let least = text.len().saturating_sub(bytes);
    let start = (least..text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
    text.get(start..).unwrap_or_default()
}

/// The beginning of a text.
fn first(text: &str, bytes: usize) -> &str {
    let most = text.len().min(bytes);
    let end = (0..=most).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    text.get(..end).unwrap_or_default()
}
