//! Reading the chat template from the metadata of a GGUF file.

use bantam_gguf::Metadata;

use super::{ChatTemplate, DEFAULT, TemplateError};

/// Key of the template; further ones have `.NAME` behind it.
const KEY: &str = "tokenizer.chat_template";

impl ChatTemplate {
    /// The chat template of a GGUF file; `None` if it has none.
    ///
    /// # Errors
    /// A key that holds no text, and as [`ChatTemplate::new`].
    pub fn from_gguf(metadata: &Metadata) -> Result<Option<Self>, TemplateError> {
        let mut named = Vec::new();
        for (key, _) in metadata.iter() {
            if let Some(name) = key.strip_prefix(KEY).and_then(|rest| rest.strip_prefix('.')) {
                named.push((name.to_owned(), metadata.require::<&str>(key)?.to_owned()));
            }
        }
        let default = named.iter().find(|(name, _)| name == DEFAULT).map(|(_, source)| source.clone());
        let source = metadata.get::<&str>(KEY)?.map(str::to_owned).or(default);
        source.map(|source| Self::new(&source, &named)).transpose()
    }
}

#[cfg(test)]
mod tests {
    use bantam_gguf::{GgufFile, writer::GgufWriter};

    use super::*;
    use crate::{RenderInput, local_now};

    fn template(keys: &[(&str, &str)]) -> Option<ChatTemplate> {
        let mut writer = GgufWriter::new();
        for (key, text) in keys {
            writer.key(*key, *text);
        }
        let file = GgufFile::from_bytes("test.gguf", writer.to_bytes()).unwrap();
        ChatTemplate::from_gguf(file.metadata()).unwrap()
    }

    #[test]
    fn the_named_template_is_for_conversations_with_tools() {
        let keys = [("tokenizer.chat_template", "plain"), ("tokenizer.chat_template.tool_use", "tools")];
        let template = template(&keys).unwrap();
        let with_tools = RenderInput { tools: Some(serde_json::json!([{}])), ..RenderInput::default() };
        assert_eq!(template.render(&RenderInput::default(), local_now()).unwrap(), "plain");
        assert_eq!(template.render(&with_tools, local_now()).unwrap(), "tools");
    }

    #[test]
    fn a_default_among_the_named_ones_is_the_default() {
        let template = template(&[("tokenizer.chat_template.default", "named")]).unwrap();
        assert_eq!(template.render(&RenderInput::default(), local_now()).unwrap(), "named");
        assert!(self::template(&[]).is_none());
    }
}
