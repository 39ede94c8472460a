//! Why the cache had no more of a prompt, for the log and `/slots`.

use std::fmt::{self, Display, Formatter};

use bantam_text::Tokenizer;

use crate::words::printable;

/// Characters of a token that are shown.
const SHOWN: usize = 24;

/// Where a prompt's cached beginning ended, although cached prompts begin like it or none does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Miss {
    /// Tokens that were found; the one at this index is the first that had to be computed.
    pub at: usize,
    /// Tokens that cached prompts begin with alike. Where these are more, the state after them was not kept.
    pub known: usize,
    /// The token behind the known ones, where another is cached there.
    pub differs: Option<Difference>,
}

/// Two tokens in one place, as text of a few printable characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// In what is cached.
    pub cached: String,
    /// In the prompt.
    pub asked: String,
}

impl Difference {
    pub(crate) fn new(cached: u32, asked: u32, tokenizer: &Tokenizer) -> Self {
        let [cached, asked] = [cached, asked].map(|token| shown(&tokenizer.decode(&[token], false)));
        Difference { cached, asked }
    }
}

fn shown(bytes: &[u8]) -> String {
    let clean = printable(&String::from_utf8_lossy(bytes));
    match clean.char_indices().nth(SHOWN) {
        Some((end, _)) => clean.get(..end).unwrap_or_default().to_owned() + "…",
        None => clean,
    }
}

impl Miss {
    /// The miss of a prompt of which `found` tokens were found and `known` begin cached prompts, where at most `limit` can
    /// be taken. None if there is no more to find: all is, or the cached prompt ends there.
    pub(crate) fn new(found: usize, known: usize, limit: usize, differs: Option<Difference>) -> Option<Self> {
        let known = known.min(limit);
        let ended = found > 0 && differs.is_none();
        (known > found || (found < limit && !ended)).then_some(Miss { at: found, known, differs })
    }

    /// Why, in a clause.
    pub fn why(&self) -> String {
        let differs = self.differs.as_ref().map(|d| format!("cached \"{}\", asked \"{}\"", d.cached, d.asked));
        match (self.known > self.at, differs) {
            (false, Some(differs)) => differs,
            (false, None) => "nothing cached begins so".to_owned(),
            (true, None) => format!("the state after {} known tokens was not kept", self.known),
            (true, Some(differs)) => {
                format!("the state after {} known tokens was not kept; there {differs}", self.known)
            }
        }
    }
}

impl Display for Miss {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "miss at {}: {}", self.at, self.why())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(found: usize, known: usize, limit: usize, differs: bool) -> Option<String> {
        let differs = differs.then(|| Difference { cached: "foo".into(), asked: "bar".into() });
        Miss::new(found, known, limit, differs).map(|miss| miss.to_string())
    }

    #[test]
    fn a_miss_names_the_place_and_the_reason() {
        let differs = r#"cached "foo", asked "bar""#;
        assert_eq!(told(8, 8, 20, true).unwrap(), format!("miss at 8: {differs}"));
        assert_eq!(told(0, 0, 20, false).unwrap(), "miss at 0: nothing cached begins so");
        assert_eq!(told(5, 8, 20, false).unwrap(), "miss at 5: the state after 8 known tokens was not kept");
        let both = format!("miss at 5: the state after 8 known tokens was not kept; there {differs}");
        assert_eq!(told(5, 8, 20, true).unwrap(), both);
    }

    #[test]
    fn where_all_is_found_that_there_is_nothing_is_missed() {
        assert_eq!(told(8, 8, 20, false), None, "what is cached ends there");
        assert_eq!(told(19, 20, 19, false), None, "the whole prompt");
    }

    #[test]
    fn tokens_are_shown_short_and_printable() {
        assert_eq!(shown(b"a\n\x1b"), "a\\n\\u{1b}");
        assert_eq!(shown("é".repeat(30).as_bytes()), "é".repeat(SHOWN) + "…");
    }
}
