//! Reading the chat template from the files of a checkpoint directory.

use serde_json::Value as Json;

use super::{ChatTemplate, DEFAULT, TemplateError};

impl ChatTemplate {
    /// The templates of a checkpoint directory: the text of its chat_template.jinja, if there is one, and of its
    /// tokenizer_config.json, which may hold one template or a list of named ones. `None` if there is none.
    ///
    /// # Errors
    /// A template that is not valid Jinja.
    pub fn from_hf(jinja: Option<&str>, config: Option<&[u8]>) -> Result<Option<Self>, TemplateError> {
        // The tokenizer, which needs the file too, tells what is wrong with it.
        let config: Json = config.and_then(|config| serde_json::from_slice(config).ok()).unwrap_or_default();
        let templates = &config["chat_template"];
        let named =
            |template: &Json| Some((template["name"].as_str()?.to_owned(), template["template"].as_str()?.to_owned()));
        let named: Vec<_> = templates.as_array().into_iter().flatten().filter_map(named).collect();
        let default = named.iter().find(|(name, _)| name == DEFAULT).map(|(_, source)| source.as_str());
        let source = jinja.or_else(|| templates.as_str()).or(default);
        source.map(|source| Self::new(source, &named)).transpose()
    }
}
