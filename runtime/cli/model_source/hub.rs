//! Models on the Hugging Face hub: names, the choice of a file, the download.

use std::{
    fs,
    path::{Path, PathBuf},
    str::FromStr,
};

use hf_hub::{
    Repo,
    api::sync::{ApiBuilder, ApiError, ApiRepo},
};

use crate::{error::CliError, home};

/// Formats in the order in which they are taken when the user names none: good answers for their size first, then what
/// is smaller, then what is larger.
const PREFERRED: &[&str] = &[
    "Q4_K_M", "Q4_K_S", "Q4_0", "Q4_1", "IQ4_XS", "IQ4_NL", "Q5_K_M", "Q5_K_S", "Q6_K", "Q8_0", "Q3_K_M", "Q2_K",
    "BF16", "F16", "F32",
];

/// `OWNER/REPO[:QUANT]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HubModel {
    repo: String,
    quant: Option<String>,
}

impl FromStr for HubModel {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (repo, quant) = match text.split_once(':') {
            Some((repo, quant)) => (repo, Some(quant)),
            None => (text, None),
        };
        let parts: Vec<&str> = repo.split('/').collect();
        if parts.len() != 2 || !parts.iter().copied().chain(quant).all(is_name) {
            return Err("expected hf:OWNER/REPO or hf:OWNER/REPO:QUANT, such as hf:OWNER/REPO:Q4_K_M".into());
        }
        Ok(HubModel { repo: repo.into(), quant: quant.map(Into::into) })
    }
}

/// Whether this may be a part of a hub name: no path can be made of it.
fn is_name(part: &str) -> bool {
    !part.is_empty()
        && !part.starts_with('.')
        && part.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
}

impl HubModel {
    /// Downloads the model's files unless they are there already; gives the first. Without the hub, what was downloaded
    /// earlier has to do.
    pub(crate) fn locate(&self) -> Result<PathBuf, CliError> {
        let folder = home::models()?.join("hub");
        let mut builder = ApiBuilder::from_env().with_cache_dir(folder.clone());
        if let Ok(token) = std::env::var("HF_TOKEN") {
            builder = builder.with_token(Some(token));
        }
        let repo = builder.build().map_err(|e| self.failed(&e))?.model(self.repo.clone());
        let error = match repo.info() {
            Ok(info) => {
                let files: Vec<String> = info.siblings.into_iter().map(|file| file.rfilename).collect();
                return self.download(&repo, &files);
            }
            Err(error) => self.failed(&error),
        };
        match self.downloaded_in(&folder) {
            Some(path) => {
                eprintln!("{error}; going on with {}", path.display());
                Ok(path)
            }
            None => Err(error),
        }
    }

    fn download(&self, repo: &ApiRepo, files: &[String]) -> Result<PathBuf, CliError> {
        let refused = |why| CliError::Failed(format!("hf:{}: {why}", self.repo));
        let chosen = choose(files, self.quant.as_deref()).map_err(refused)?;
        let paths: Result<Vec<PathBuf>, _> = shards(chosen).iter().map(|file| repo.get(file)).collect();
        let first = paths.map_err(|e| self.failed(&e))?.into_iter().next();
        first.ok_or_else(|| refused(format!("{chosen} has no parts")))
    }

    /// The model's first file, if an earlier download left it.
    fn downloaded_in(&self, folder: &Path) -> Option<PathBuf> {
        let repo = folder.join(Repo::model(self.repo.clone()).folder_name());
        let commit = fs::read_to_string(repo.join("refs/main")).ok()?;
        let snapshot = repo.join("snapshots").join(commit.trim());
        let chosen = choose(&files_below(&snapshot, ""), self.quant.as_deref()).ok()?.to_owned();
        Some(snapshot.join(chosen))
    }

    fn failed(&self, error: &ApiError) -> CliError {
        CliError::Failed(format!(
            "hf:{}: {error}; check the name and the network (for gated models, HF_TOKEN), or download the .gguf file \
             yourself and name it",
            self.repo
        ))
    }
}

/// Names of all files below a folder, by their path from there.
fn files_below(folder: &Path, prefix: &str) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = |entry: fs::DirEntry| {
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        if entry.path().is_dir() { files_below(&entry.path(), &format!("{name}/")) } else { vec![name] }
    };
    entries.flat_map(names).collect()
}

/// The file to load out of a repository's: of the format asked for, else of the first preferred one that is there.
fn choose<'f>(files: &'f [String], quant: Option<&str>) -> Result<&'f str, String> {
    let models: Vec<&str> = files.iter().map(String::as_str).filter(|f| is_model(f)).collect();
    let of = |format: &str| models.iter().copied().filter(|f| has_format(f, format)).min_by_key(|f| (f.len(), *f));
    let found = match quant {
        Some(quant) => of(quant),
        None => PREFERRED.iter().find_map(|format| of(format)).or_else(|| models.first().copied()),
    };
    found.ok_or_else(|| match quant {
        _ if models.is_empty() => "no .gguf model in this repository; look for one whose name ends in GGUF".into(),
        Some(quant) => format!("no file of format {quant}; there are: {}", models.join(", ")),
        None => "no model file".into(),
    })
}

/// Whether a file is a model, or the first part of one (and not a vision tower, a draft or calibration data).
fn is_model(file: &str) -> bool {
    let name = file.rsplit('/').next().unwrap_or(file).to_ascii_lowercase();
    let first = shard_of(&name).is_none_or(|(_, number, _)| number == 1);
    name.ends_with(".gguf") && first && !["mmproj", "imatrix", "draft"].iter().any(|other| name.contains(other))
}

/// Whether the path has the format as a word of its own: `Q4_K` is not a word of `x-Q4_K_M.gguf`.
fn has_format(file: &str, format: &str) -> bool {
    let (file, format) = (file.to_ascii_uppercase(), format.to_ascii_uppercase());
    file.match_indices(&format).any(|(at, _)| {
        let before = file[..at].chars().next_back();
        let after = file[at + format.len()..].chars().next();
        before.is_none_or(|c| !c.is_ascii_alphanumeric())
            && after.is_none_or(|c| !c.is_ascii_alphanumeric() && c != '_')
    })
}

/// The stem, number and count of `STEM-00001-of-00003.gguf`.
fn shard_of(file: &str) -> Option<(&str, u32, u32)> {
    let (rest, count) = file.strip_suffix(".gguf")?.rsplit_once("-of-")?;
    let (stem, number) = rest.rsplit_once('-')?;
    if number.len() != 5 || count.len() != 5 {
        return None;
    }
    Some((stem, number.parse().ok()?, count.parse().ok()?))
}

/// All files of a model, given its first.
fn shards(first: &str) -> Vec<String> {
    match shard_of(first) {
        Some((stem, _, count)) => (1..=count).map(|number| format!("{stem}-{number:05}-of-{count:05}.gguf")).collect(),
        None => vec![first.to_owned()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn names_are_parsed_and_paths_refused() {
        let model: HubModel = "owner/Repo-1.5_GGUF:Q8_0".parse().unwrap();
        assert_eq!((model.repo.as_str(), model.quant.as_deref()), ("owner/Repo-1.5_GGUF", Some("Q8_0")));
        assert_eq!("owner/repo".parse::<HubModel>().unwrap().quant, None);
        for bad in ["", "owner", "owner/", "/repo", "a/b/c", "../b", "a/..", "a/b:", "a/b:c:d", "a b/c"] {
            assert!(bad.parse::<HubModel>().is_err(), "{bad}");
        }
    }

    #[test]
    fn the_format_asked_for_is_a_whole_word() {
        let files = files(&["m-Q4_K_M.gguf", "m-Q4_K.gguf", "m-UD-Q4_K_XL.gguf", "Q8_0/m-Q8_0-00001-of-00002.gguf"]);
        assert_eq!(choose(&files, Some("q4_k")), Ok("m-Q4_K.gguf"));
        assert_eq!(choose(&files, Some("Q4_K_XL")), Ok("m-UD-Q4_K_XL.gguf"));
        assert_eq!(choose(&files, Some("Q8_0")), Ok("Q8_0/m-Q8_0-00001-of-00002.gguf"));
        let refused = choose(&files, Some("Q6_K")).unwrap_err();
        assert!(refused.contains("Q6_K") && refused.contains("m-Q4_K_M.gguf"), "{refused}");
    }

    #[test]
    fn without_a_format_the_preferred_one_is_taken() {
        let all = files(&["README.md", "mmproj-Q4_K_M.gguf", "m-F16.gguf", "m-Q8_0.gguf", "m-Q4_K_M.gguf"]);
        assert_eq!(choose(&all, None), Ok("m-Q4_K_M.gguf"));
        assert_eq!(choose(&all[..4], None), Ok("m-Q8_0.gguf"));
        assert_eq!(choose(&files(&["odd.gguf"]), None), Ok("odd.gguf"));
        assert!(choose(&files(&["model.safetensors", "mmproj-F16.gguf"]), None).is_err());
    }

    #[test]
    fn a_split_model_is_all_its_parts() {
        let parts = files(&["m-Q4_0-00002-of-00003.gguf", "m-Q4_0-00003-of-00003.gguf", "m-Q4_0-00001-of-00003.gguf"]);
        let first = choose(&parts, None).unwrap();
        assert_eq!(first, "m-Q4_0-00001-of-00003.gguf");
        assert_eq!(shards(first), [parts[2].clone(), parts[0].clone(), parts[1].clone()]);
        assert_eq!(shards("m.gguf"), ["m.gguf"]);
    }

    #[test]
    fn an_earlier_download_is_found_without_the_hub() {
        let folder = tempfile::tempdir().unwrap();
        let snapshot = folder.path().join("models--owner--repo/snapshots/abc/Q8_0");
        let refs = folder.path().join("models--owner--repo/refs");
        fs::create_dir_all(&snapshot).unwrap();
        fs::create_dir_all(&refs).unwrap();
        fs::write(refs.join("main"), "abc").unwrap();
        let file = snapshot.join("m-Q8_0-00001-of-00002.gguf");
        fs::write(&file, "").unwrap();
        let found = |name: &str| name.parse::<HubModel>().unwrap().downloaded_in(folder.path());
        assert_eq!(found("owner/repo"), Some(file.clone()));
        assert_eq!(found("owner/repo:Q8_0"), Some(file));
        assert_eq!(found("owner/repo:Q4_0"), None);
        assert_eq!(found("owner/other"), None);
    }
}
