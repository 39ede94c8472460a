//! Grammars in llguidance's form of Lark, written piece by piece.

use bantam_family_api::MessageHeader;
use bantam_text::Specials;
use llguidance::api::{GrammarWithLexer, TopLevelGrammar};
use serde_json::Value;

use crate::Vocabulary;
use crate::schema::with_options;

/// A grammar in the making. Expressions are texts that may stand in a rule's body.
pub(crate) struct Lark<'a> {
    vocabulary: &'a Vocabulary,
    rules: String,
    parts: Vec<GrammarWithLexer>,
    names: usize,
}

impl<'a> Lark<'a> {
    pub(crate) fn new(vocabulary: &'a Vocabulary) -> Self {
        Self { vocabulary, rules: String::new(), parts: Vec::new(), names: 0 }
    }

    /// A new rule; what it is named.
    pub(crate) fn rule(&mut self, body: &str) -> String {
        let name = self.name();
        self.define(&name, body);
        name
    }

    /// A name for a rule that is defined later: rules may contain themselves.
    pub(crate) fn name(&mut self) -> String {
        self.names += 1;
        format!("r{}", self.names)
    }

    pub(crate) fn define(&mut self, name: &str, body: &str) {
        self.rules.push_str(&format!("{name}: {body}\n"));
    }

    /// A new terminal: one regular expression, matched as long as it can be.
    pub(crate) fn terminal(&mut self, body: &str) -> String {
        let name = self.name().to_uppercase();
        self.define(&name, body);
        name
    }

    /// A JSON text that a prepared schema describes.
    pub(crate) fn json(&mut self, schema: Value) -> String {
        self.part(GrammarWithLexer::from_json_schema(with_options(schema)))
    }

    /// A grammar of its own, with names and white space of its own.
    pub(crate) fn part(&mut self, grammar: GrammarWithLexer) -> String {
        let name = self.name();
        self.parts.push(GrammarWithLexer { name: Some(name.clone()), ..grammar });
        format!("@{name}")
    }

    /// This text as a model writes it: control tokens where it spells them, and plain text.
    pub(crate) fn mark(&self, text: &str) -> String {
        let pieces: Vec<String> = pieces(self.vocabulary, text).iter().map(Piece::expression).collect();
        pieces.join(" ")
    }

    /// The header of a message to one of these, which may be left out, behind what may stand between two messages.
    pub(crate) fn header<'n>(
        &mut self,
        between: &[String],
        header: &MessageHeader,
        recipients: impl IntoIterator<Item = &'n str>,
    ) -> String {
        let between: String = between.iter().map(|text| format!("({})? ", self.mark(text))).collect();
        let recipients: Vec<String> = recipients.into_iter().map(literal).collect();
        let (before, behind) = (self.mark(&header.before), self.mark(&header.behind));
        let whole = self.rule(&format!("{between}{before} ({}) {behind}", recipients.join(" | ")));
        self.rule(&format!("{whole}?"))
    }

    pub(crate) fn vocabulary(&self) -> &'a Vocabulary {
        self.vocabulary
    }

    pub(crate) fn finish(mut self, start: &str) -> TopLevelGrammar {
        self.define("start", start);
        let whole = GrammarWithLexer { lark_grammar: Some(self.rules), ..GrammarWithLexer::default() };
        TopLevelGrammar { grammars: [vec![whole], self.parts].concat(), max_tokens: None }
    }
}

/// A stretch of a mark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// Text, in whatever tokens.
    Text(String),
    /// A control token.
    Token(u32),
}

impl Piece {
    pub(crate) fn expression(&self) -> String {
        match self {
            Self::Text(text) => literal(text),
            Self::Token(id) => format!("<[{id}]>"),
        }
    }
}

/// Cuts a mark where it spells control tokens.
pub(crate) fn pieces(vocabulary: &Vocabulary, text: &str) -> Vec<Piece> {
    let tokenizer = vocabulary.tokenizer();
    let ids = tokenizer.encode(text, Specials::Parse).unwrap_or_default();
    let mut pieces = Vec::new();
    let mut rest = text;
    for id in ids.into_iter().filter(|&id| vocabulary.is_special(id)) {
        let spelled = String::from_utf8_lossy(vocabulary.bytes(id)).into_owned();
        let Some((before, behind)) = rest.split_once(spelled.as_str()) else { continue };
        pieces.extend((!before.is_empty()).then(|| Piece::Text(before.into())));
        pieces.push(Piece::Token(id));
        rest = behind;
    }
    pieces.extend((!rest.is_empty()).then(|| Piece::Text(rest.into())));
    pieces
}

/// A text as it stands.
pub(crate) fn literal(text: &str) -> String {
    Value::from(text).to_string()
}

/// A regular expression. Slashes in it are escaped.
pub(crate) fn regex(expression: &str) -> String {
    format!("/{}/", llguidance::regex_to_lark(expression, ""))
}

/// A regular expression of this text.
pub(crate) fn quoted(text: &str) -> String {
    let special = |c: char| r"\.+*?()|[]{}^$#&-~".contains(c);
    text.chars().fold(String::new(), |mut written, c| {
        if special(c) {
            written.push('\\');
        }
        written.push(c);
        written
    })
}
