//! Building an [`Import`] from tables.

use bantam_family_api::{AxisOrder, FamilyError, HfCheckpoint, Import, MetaValue};
use bantam_graph::WeightExpr;

use super::config::Config;

/// One key: what the family calls it, less the architecture, and what the file does.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    to: &'static str,
    from: &'static str,
    absent: Absent,
}

/// What a missing key means.
#[derive(Clone, Copy, Debug)]
enum Absent {
    /// The file is incomplete.
    Refused,
    /// This size, as in the reference's configuration class.
    Size(u64),
    /// This number, likewise.
    Number(f64),
    /// This bool, likewise.
    Flag(bool),
    /// Nothing, and neither does null: the family knows models with and without it.
    Nothing,
}

impl Key {
    /// A key that must be there.
    pub const fn needed(to: &'static str, from: &'static str) -> Self {
        Key { to, from, absent: Absent::Refused }
    }

    /// A key for which the reference has a default.
    pub const fn or(to: &'static str, from: &'static str, default: f64) -> Self {
        Key { to, from, absent: Absent::Number(default) }
    }

    /// A key for which the reference has a default.
    pub const fn or_size(to: &'static str, from: &'static str, default: u64) -> Self {
        Key { to, from, absent: Absent::Size(default) }
    }

    /// A key for which the reference has a default.
    pub const fn or_flag(to: &'static str, from: &'static str, default: bool) -> Self {
        Key { to, from, absent: Absent::Flag(default) }
    }

    /// A key that may be missing or null.
    pub const fn optional(to: &'static str, from: &'static str) -> Self {
        Key { to, from, absent: Absent::Nothing }
    }
}

/// One tensor: what the family calls it, what the files do, each behind a prefix, and how one becomes the other. `S` is
/// what the latter depends on.
pub struct Row<S> {
    /// The family's name for it, behind a prefix.
    pub to: &'static str,
    /// The files' name for it, behind another.
    pub from: &'static str,
    /// How one becomes the other.
    pub how: How<S>,
}

/// How a tensor of the files becomes the family's.
pub enum How<S> {
    /// As it is.
    Same,
    /// `1 + w`: the files hold a gain's distance from 1.
    PlusOne,
    /// By an expression, from a tensor of this shape.
    Made(Shape<S>, fn(&S, WeightExpr) -> WeightExpr),
    /// By an expression, from so many entries; axes of extent 1 do not count, which writers set as they like.
    Entries(fn(&S) -> usize, fn(&S, WeightExpr) -> WeightExpr),
    /// As many tensors of this shape, numbered at the `{}` of their name, on top of each other.
    Stacked(fn(&S) -> usize, Shape<S>),
}

/// The shape of a tensor in the files, to the letter: what is made of it would also come out of another one with as many
/// entries, and be wrong.
pub type Shape<S> = fn(&S) -> Vec<usize>;

/// Collects what a checkpoint holds in a family's terms.
pub struct Importer<'h> {
    from: &'h HfCheckpoint,
    import: Import,
}

impl<'h> Importer<'h> {
    /// For the family's architecture of this name.
    pub fn new(from: &'h HfCheckpoint, architecture: &str) -> Self {
        let mut import = Import::default();
        import.checkpoint.architecture = architecture.into();
        import.checkpoint.axes = AxisOrder::SlowestFirst;
        let name = MetaValue::Text(architecture.into());
        import.checkpoint.metadata.insert("general.architecture".into(), name);
        Importer { from, import }
    }

    /// Copies values of `config.json`.
    ///
    /// # Errors
    /// A value that metadata cannot hold, or a missing key that is needed.
    pub fn keys(&mut self, config: Config<'_>, table: &[Key]) -> Result<(), FamilyError> {
        for &Key { to, from, absent } in table {
            let may_be_null = matches!(absent, Absent::Nothing);
            let value = if may_be_null && config.is_null(from) { None } else { config.meta_opt(from)? };
            let default = match absent {
                Absent::Size(n) => Some(MetaValue::Uint(n)),
                Absent::Number(x) => Some(MetaValue::Float(x)),
                Absent::Flag(flag) => Some(MetaValue::Bool(flag)),
                Absent::Refused | Absent::Nothing => None,
            };
            match value.or(default) {
                Some(value) => self.set(to, config.path(from), value),
                None if may_be_null => self.origin(to, config.path(from)),
                None => return Err(config.missing(from, "a value")),
            }
        }
        Ok(())
    }

    /// Sets a key, less the architecture, to what was computed of the key `origin`.
    pub fn set(&mut self, key: &str, origin: String, value: MetaValue) {
        let architecture = &self.import.checkpoint.architecture;
        let key = format!("{architecture}.{key}");
        self.import.checkpoint.metadata.insert(key.clone(), value);
        self.import.origins.insert(key, origin);
    }

    fn origin(&mut self, key: &str, origin: String) {
        self.import.origins.insert(format!("{}.{key}", self.import.checkpoint.architecture), origin);
    }

    /// Whether the files have a tensor of this name.
    pub fn has(&self, tensor: &str) -> bool {
        self.from.tensors.contains_key(tensor)
    }

    /// Adds the tensors of a table: names are `to` and `from` behind these prefixes.
    ///
    /// # Errors
    /// A tensor whose parts do not fit each other or are incomplete.
    pub fn tensors<S>(&mut self, table: &[Row<S>], [to, from]: [&str; 2], sizes: &S) -> Result<(), FamilyError> {
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
    pub fn output(&mut self, tied: Option<bool>, names: &[&'static str]) -> Result<(), FamilyError> {
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

    /// Checks the shape of a tensor that is there.
    fn expect(&self, tensor: &str, shape: &[usize]) -> Result<(), FamilyError> {
        let checkpoint = &self.import.checkpoint;
        match self.from.tensors.get(tensor) {
            Some(meta) if meta.shape != shape => Err(FamilyError::Tensor {
                tensor: tensor.into(),
                expected: format!("shape {}", checkpoint.shown(shape)),
                found: checkpoint.shown(&meta.shape),
            }),
            _ => Ok(()),
        }
    }

    /// Checks that a tensor that is there is a list.
    fn expect_entries(&self, tensor: &str, count: usize) -> Result<(), FamilyError> {
        let shape = self.from.tensors.get(tensor).map(|meta| meta.shape.as_slice()).unwrap_or_default();
        let axes: Vec<usize> = shape.iter().copied().filter(|&n| n != 1).collect();
        if axes == [count] || count == 1 && axes.is_empty() { Ok(()) } else { self.expect(tensor, &[count]) }
    }

    fn expr<S>(&self, row: &Row<S>, origin: &str, sizes: &S) -> Result<Option<WeightExpr>, FamilyError> {
        if let How::Stacked(count, shape) = row.how {
            return self.stacked(origin, count(sizes), &shape(sizes));
        }
        if !self.has(origin) {
            return Ok(None);
        }
        let tensor = WeightExpr::Tensor(origin.into());
        Ok(Some(match row.how {
            How::Same | How::Stacked(..) => tensor,
            How::PlusOne => WeightExpr::Affine { of: Box::new(tensor), scale: 1.0, offset: 1.0 },
            How::Entries(count, make) => {
                self.expect_entries(origin, count(sizes))?;
                make(sizes, tensor)
            }
            How::Made(shape, make) => {
                self.expect(origin, &shape(sizes))?;
                make(sizes, tensor)
            }
        }))
    }

    /// The first missing one of several is named, unless all are.
    fn stacked(&self, origin: &str, count: usize, shape: &[usize]) -> Result<Option<WeightExpr>, FamilyError> {
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
            self.expect(&tensor, shape)?;
            parts.push(WeightExpr::Tensor(tensor));
        }
        Ok(Some(WeightExpr::Stack(parts)))
    }

    /// What was collected.
    pub fn finish(self) -> Import {
        self.import
    }
}
