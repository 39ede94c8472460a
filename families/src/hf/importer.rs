//! Building an [`Import`] from tables.

use bantam_family_api::{FamilyError, HfCheckpoint, Import, MetaValue};
use bantam_graph::WeightExpr;

use super::config::{Config, meta_value};

/// One tensor: what the family calls it, what the files do, each behind a prefix, and how one becomes the other. `S` is
/// what the latter depends on.
pub(crate) struct Row<S> {
    pub(crate) to: &'static str,
    pub(crate) from: &'static str,
    pub(crate) how: How<S>,
}

/// How a tensor of the files becomes the family's.
pub(crate) enum How<S> {
    /// As it is.
    Same,
    /// `1 + w`: the files hold a gain's distance from 1.
    PlusOne,
    /// By an expression.
    Made(fn(&S, WeightExpr) -> WeightExpr),
    /// As many tensors, numbered at the `{}` of their name, on top of each other.
    Stacked(fn(&S) -> usize),
}

/// Collects what a checkpoint holds in a family's terms.
pub(crate) struct Importer<'h> {
    from: &'h HfCheckpoint,
    import: Import,
}

impl<'h> Importer<'h> {
    /// For the family's architecture of this name.
    pub(crate) fn new(from: &'h HfCheckpoint, architecture: &str) -> Self {
        let mut import = Import::default();
        import.checkpoint.architecture = architecture.into();
        let name = MetaValue::Text(architecture.into());
        import.checkpoint.metadata.insert("general.architecture".into(), name);
        Importer { from, import }
    }

    /// Copies values of `config.json` that are given: each row is the family's key, less the architecture, and the
    /// file's.
    ///
    /// # Errors
    /// A value that metadata cannot hold.
    pub(crate) fn keys(&mut self, config: Config<'_>, table: &[(&str, &str)]) -> Result<(), FamilyError> {
        for (to, from) in table {
            match config.get(from) {
                None => self.origin(to, config.path(from)),
                Some(value) => {
                    let wrong = || config.wrong(from, "a number, text, bool or an array of these", &value.to_string());
                    self.set(to, config.path(from), meta_value(value).ok_or_else(wrong)?);
                }
            }
        }
        Ok(())
    }

    /// Sets a key, less the architecture, to what was computed of the key `origin`.
    pub(crate) fn set(&mut self, key: &str, origin: String, value: MetaValue) {
        let architecture = &self.import.checkpoint.architecture;
        let key = format!("{architecture}.{key}");
        self.import.checkpoint.metadata.insert(key.clone(), value);
        self.import.origins.insert(key, origin);
    }

    fn origin(&mut self, key: &str, origin: String) {
        self.import.origins.insert(format!("{}.{key}", self.import.checkpoint.architecture), origin);
    }

    /// Whether the files have a tensor of this name.
    pub(crate) fn has(&self, tensor: &str) -> bool {
        self.from.tensors.contains_key(tensor)
    }

    /// Adds the tensors of a table: names are `to` and `from` behind these prefixes.
    ///
    /// # Errors
    /// A tensor whose parts do not fit each other or are incomplete.
    pub(crate) fn tensors<S>(&mut self, table: &[Row<S>], [to, from]: [&str; 2], sizes: &S) -> Result<(), FamilyError> {
        for row in table {
            let (name, origin) = (format!("{to}{}", row.to), format!("{from}{}", row.from));
            match self.expr(row, &origin, sizes)? {
                Some(expr) => self.import.insert(self.from, &name, &origin, expr)?,
                // Two rows may make the same tensor: then the first that is there counts.
                None => drop(self.import.origins.entry(name).or_insert(origin)),
            }
        }
        Ok(())
    }

    /// Adds the output matrix, which has one of these names. One in the files counts even if it is said to be `tied` to the
    /// embeddings: after training one of the two alone they differ, whatever the key says.
    ///
    /// # Errors
    /// If it is missing though it is not tied.
    pub(crate) fn output(&mut self, tied: Option<bool>, names: &[&'static str]) -> Result<(), FamilyError> {
        match (tied, names.iter().find(|name| self.has(name))) {
            (Some(true) | None, None) => Ok(()),
            (_, Some(from)) => self.tensors(&[Row { to: "output.weight", from, how: How::Same }], ["", ""], &()),
            (Some(false), None) => Err(FamilyError::Tensor {
                tensor: names.first().copied().unwrap_or_default().into(),
                expected: "to be in the files, since `tie_word_embeddings` is false".into(),
                found: "no tensor of this name".into(),
            }),
        }
    }

    fn expr<S>(&self, row: &Row<S>, origin: &str, sizes: &S) -> Result<Option<WeightExpr>, FamilyError> {
        if let How::Stacked(count) = row.how {
            return self.stacked(origin, count(sizes));
        }
        if !self.has(origin) {
            return Ok(None);
        }
        let tensor = WeightExpr::Tensor(origin.into());
        Ok(Some(match row.how {
            How::Same | How::Stacked(_) => tensor,
            How::PlusOne => WeightExpr::Affine { of: Box::new(tensor), scale: 1.0, offset: 1.0 },
            How::Made(make) => make(sizes, tensor),
        }))
    }

    /// The first missing one of several is named, unless all are.
    fn stacked(&self, origin: &str, count: usize) -> Result<Option<WeightExpr>, FamilyError> {
        let Some((before, behind)) = origin.split_once("{}") else { return Ok(None) };
        let one_of_them = |name: &String| name.starts_with(before) && name.ends_with(behind);
        if count == 0 || !self.from.tensors.keys().any(one_of_them) {
            return Ok(None);
        }
        let mut parts = Vec::new();
        for tensor in (0..count).map(|i| format!("{before}{i}{behind}")) {
            if !self.has(&tensor) {
                let expected = format!("to be in the files, as one of {count}");
                return Err(FamilyError::Tensor { tensor, expected, found: "no tensor of this name".into() });
            }
            parts.push(WeightExpr::Tensor(tensor));
        }
        Ok(Some(WeightExpr::Stack(parts)))
    }

    /// What was collected.
    pub(crate) fn finish(self) -> Import {
        self.import
    }
}
