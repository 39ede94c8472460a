//! Models split over several files, `NAME-00001-of-0000N.gguf` and so on.

use std::path::{Path, PathBuf};

use crate::error::{Fault, GgufError, named};
use crate::metadata::Metadata;

const NUMBER: &str = "split.no";
const COUNT: &str = "split.count";
const TENSOR_COUNT: &str = "split.tensors.count";

/// How the model that a file belongs to is split.
#[derive(Debug)]
pub(crate) struct Split {
    /// Number of files, at least 2.
    pub(crate) count: u64,
    /// Number of tensors in all files.
    tensors: u64,
    name: ShardName,
}

impl Split {
    /// Reads how the model is split from its first file; `None` where it is in one piece.
    pub(crate) fn of_first(file: &Path, metadata: &Metadata) -> Result<Option<Self>, GgufError> {
        let count = metadata.get::<u64>(COUNT)?.unwrap_or(0);
        if count < 2 {
            return Ok(None);
        }
        let name = ShardName::parse(file).filter(|name| name.count == count).ok_or_else(|| {
            let expected = format!("a name that ends in -00001-of-{count:05}.gguf");
            Fault::new("file name", expected, file.display().to_string()).in_file(file)
        })?;
        if metadata.require::<u64>(NUMBER)? != 0 && name.number != 1 {
            return Err(GgufError::NotFirstShard { file: file.into(), first: name.path(1) });
        }
        name.check(file, metadata)?;
        Ok(Some(Self { count, tensors: metadata.require(TENSOR_COUNT)?, name }))
    }

    /// The path of shard `number`, from 1.
    pub(crate) fn path(&self, number: u64) -> PathBuf {
        self.name.path(number)
    }

    /// Checks that a later file says of itself what its name says.
    pub(crate) fn check_shard(&self, number: u64, file: &Path, metadata: &Metadata) -> Result<(), GgufError> {
        self.name.with_number(number).check(file, metadata)
    }

    /// Checks the number of tensors found in all files.
    pub(crate) fn check_tensors(&self, file: &Path, found: usize) -> Result<(), GgufError> {
        if found as u64 == self.tensors {
            return Ok(());
        }
        let found = format!("{found} in {} files", self.count);
        Err(Fault::new(named("key", TENSOR_COUNT), self.tensors.to_string(), found).in_file(file))
    }
}

/// The parts of a shard's path.
#[derive(Clone, Debug)]
struct ShardName {
    directory: PathBuf,
    stem: String,
    number: u64,
    count: u64,
}

impl ShardName {
    fn parse(path: &Path) -> Option<Self> {
        let rest = path.file_name()?.to_str()?.strip_suffix(".gguf")?;
        let (rest, count) = rest.rsplit_once("-of-")?;
        let (stem, number) = rest.rsplit_once('-')?;
        let directory = path.parent()?.into();
        Some(Self { directory, stem: stem.into(), number: five_digits(number)?, count: five_digits(count)? })
    }

    fn with_number(&self, number: u64) -> Self {
        Self { number, ..self.clone() }
    }

    fn path(&self, number: u64) -> PathBuf {
        self.directory.join(format!("{}-{number:05}-of-{:05}.gguf", self.stem, self.count))
    }

    /// Checks the split keys of the file of this name.
    fn check(&self, file: &Path, metadata: &Metadata) -> Result<(), GgufError> {
        let wanted = [(NUMBER, self.number.saturating_sub(1)), (COUNT, self.count)];
        for (key, expected) in wanted {
            let found = metadata.require::<u64>(key)?;
            if found != expected {
                return Err(Fault::new(named("key", key), expected.to_string(), found.to_string()).in_file(file));
            }
        }
        Ok(())
    }
}

fn five_digits(digits: &str) -> Option<u64> {
    let plain = digits.len() == 5 && digits.bytes().all(|digit| digit.is_ascii_digit());
    plain.then(|| digits.parse().ok()).flatten()
}
