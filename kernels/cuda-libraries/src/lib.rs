//! Where NVIDIA's driver, run-time compiler, cuBLAS and headers are on a machine.
//!
//! Nothing of CUDA is linked: what there is is found when a program starts. [`find`] looks through [`Places`], in this order:
//! toolkits (`CUDA_PATH`, `CUDA_HOME`, `/opt/cuda`, `/usr/local/cuda`), the folders of the system's loader, and the folders
//! of Python's packages, where NVIDIA's own packages lie. It reads names of files only and loads nothing.

mod os;

use std::{
    ffi::OsString,
    fmt, fs,
    path::{Path, PathBuf},
};

/// What a GPU backend needs from NVIDIA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// The driver's library.
    Driver,
    /// The compiler of kernels at run time.
    Nvrtc,
    /// Headers that kernels include.
    Headers,
    /// Matrix products; kernels of our own do without.
    Cublas,
}

impl Part {
    /// All of them, the most needed first.
    pub const ALL: &[Part] = &[Part::Driver, Part::Nvrtc, Part::Headers, Part::Cublas];

    /// Its name for people.
    pub fn name(self) -> &'static str {
        match self {
            Part::Driver => "NVIDIA driver",
            Part::Nvrtc => "NVRTC",
            Part::Headers => "CUDA headers",
            Part::Cublas => "cuBLAS",
        }
    }

    /// Whether nothing can be computed on a GPU without it.
    pub fn is_needed(self) -> bool {
        self != Part::Cublas
    }

    /// What to do where it is missing.
    pub fn fix(self) -> &'static str {
        match self {
            Part::Driver if cfg!(windows) => "install NVIDIA's driver for the card",
            Part::Driver => "install NVIDIA's driver for the card (Debian: apt install nvidia-driver), and start again",
            Part::Nvrtc => "pip install nvidia-cuda-nvrtc, or set CUDA_PATH to a CUDA toolkit",
            Part::Headers => "pip install nvidia-cuda-runtime, or set CUDA_PATH to a CUDA toolkit",
            Part::Cublas => "pip install nvidia-cublas, or set CUDA_PATH to a CUDA toolkit",
        }
    }

    /// The number of a library's version, if a file of this name is one that holds the part; those without a number in
    /// their names count as 0.
    fn version(self, system: System, file: &str) -> Option<Vec<u32>> {
        let numbers = |text: &str, between: char| -> Option<Vec<u32>> {
            if text.is_empty() {
                return Some(vec![0]);
            }
            text.split(between).map(|number| number.parse().ok()).collect()
        };
        let linux = |stem: &str| {
            let rest = file.strip_prefix(stem)?.strip_prefix(".so")?;
            numbers(rest.strip_prefix('.').unwrap_or(rest), '.')
        };
        let windows = |stem: &str| numbers(file.strip_prefix(stem)?.strip_suffix(".dll")?.trim_end_matches("_0"), '_');
        match (self, system) {
            (Part::Headers, _) => (file == HEADER).then(|| vec![0]),
            (Part::Driver, System::Linux) => linux("libcuda"),
            (Part::Nvrtc, System::Linux) => linux("libnvrtc"),
            (Part::Cublas, System::Linux) => linux("libcublas"),
            (Part::Driver, System::Windows) => (file.eq_ignore_ascii_case("nvcuda.dll")).then(|| vec![0]),
            (Part::Nvrtc, System::Windows) => windows("nvrtc64_"),
            (Part::Cublas, System::Windows) => windows("cublas64_"),
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A header that every kernel includes.
const HEADER: &str = "cuda_fp16.h";

/// How libraries are named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum System {
    /// `libcuda.so.1`.
    Linux,
    /// `nvcuda.dll`.
    Windows,
}

/// Folders to look through. Those that do not exist are passed over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    /// How libraries are named.
    pub system: System,
    /// Roots of toolkits, with folders such as `lib64` and `include` in them.
    pub toolkits: Vec<PathBuf>,
    /// Folders that hold libraries.
    pub loader: Vec<PathBuf>,
    /// Folders that hold Python packages (`site-packages`).
    pub packages: Vec<PathBuf>,
}

impl Places {
    /// Where this process would look.
    pub fn of_this_machine() -> Self {
        os::places(&|name| std::env::var_os(name))
    }

    /// Those that environment variables of these values lead to, with the usual ones.
    pub fn of_environment(variable: &dyn Fn(&str) -> Option<OsString>) -> Self {
        os::places(variable)
    }

    /// Folders that may hold libraries, or headers, in the order of the search.
    fn folders(&self, part: Part) -> Vec<PathBuf> {
        let below: &[&str] = match part {
            Part::Headers => &["include"],
            _ => &["lib64", "lib", "lib/x64", "bin/x64", "bin/x86_64", "bin"],
        };
        let of = |root: &Path| {
            let targets = entries(&root.join("targets")).into_iter().map(|target| root.join("targets").join(target));
            let roots: Vec<PathBuf> = std::iter::once(root.to_owned()).chain(targets).collect();
            roots.into_iter().flat_map(move |root| below.iter().map(move |name| root.join(name)))
        };
        let packages = self.packages.iter().map(|folder| folder.join("nvidia"));
        let packages = packages.flat_map(|folder| entries(&folder).into_iter().map(move |name| folder.join(name)));
        let toolkits: Vec<PathBuf> = self.toolkits.iter().flat_map(|root| of(root)).collect();
        let packages: Vec<PathBuf> = packages.flat_map(|root| of(&root).collect::<Vec<_>>()).collect();
        match part {
            Part::Headers => [toolkits, packages].concat(),
            // The toolkits have the driver for linking alone.
            Part::Driver => self.loader.clone(),
            Part::Nvrtc | Part::Cublas => [toolkits, self.loader.clone(), packages].concat(),
        }
    }
}

/// What was found where.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The driver's library.
    pub driver: Option<PathBuf>,
    /// The compiler's library.
    pub nvrtc: Option<PathBuf>,
    /// The folder with headers.
    pub headers: Option<PathBuf>,
    /// The library of matrix products.
    pub cublas: Option<PathBuf>,
}

impl Found {
    /// Where a part is.
    pub fn path(&self, part: Part) -> Option<&Path> {
        let found = match part {
            Part::Driver => &self.driver,
            Part::Nvrtc => &self.nvrtc,
            Part::Headers => &self.headers,
            Part::Cublas => &self.cublas,
        };
        found.as_deref()
    }

    /// Parts that nothing can be computed without, and that are not there.
    pub fn missing(&self) -> impl Iterator<Item = Part> + '_ {
        Part::ALL.iter().copied().filter(|part| part.is_needed() && self.path(*part).is_none())
    }
}

/// Looks for all parts; of several versions in one folder the highest is taken.
pub fn find(places: &Places) -> Found {
    let file = |part: Part| places.folders(part).iter().find_map(|folder| best(part, places.system, folder));
    let headers = file(Part::Headers).and_then(|header| header.parent().map(Path::to_owned));
    Found { driver: file(Part::Driver), nvrtc: file(Part::Nvrtc), headers, cublas: file(Part::Cublas) }
}

fn best(part: Part, system: System, folder: &Path) -> Option<PathBuf> {
    let versions = entries(folder).into_iter().filter_map(|name| Some((part.version(system, &name)?, name)));
    versions.max().map(|(_, name)| folder.join(name))
}

/// Names in a folder, in order; none if it cannot be read.
fn entries(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut names: Vec<String> = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort_unstable();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder with these files, all empty.
    fn tree(files: &[&str]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for file in files {
            let path = root.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        root
    }

    fn places(root: &Path, system: System) -> Places {
        let of = |names: &[&str]| names.iter().map(|name| root.join(name)).collect();
        Places {
            system,
            toolkits: of(&["path", "home", "opt/cuda"]),
            loader: of(&["lib"]),
            packages: of(&["a/site-packages", "b/site-packages"]),
        }
    }

    /// What is found, from the root.
    fn found(files: &[&str], system: System) -> [Option<String>; 4] {
        let root = tree(files);
        let found = find(&places(root.path(), system));
        let below = |part: &Part| {
            let path = found.path(*part)?.strip_prefix(root.path()).unwrap();
            Some(path.to_str().unwrap().replace('\\', "/"))
        };
        [0, 1, 2, 3].map(|i| below(&Part::ALL[i]))
    }

    fn some(paths: [&str; 4]) -> [Option<String>; 4] {
        paths.map(|path| (!path.is_empty()).then(|| path.to_owned()))
    }

    #[test]
    fn toolkits_go_before_the_loader_and_that_before_packages() {
        let packages = [
            "b/site-packages/nvidia/cu13/lib/libnvrtc.so.13",
            "b/site-packages/nvidia/cu13/lib/libcublas.so.13",
            "b/site-packages/nvidia/cu13/include/cuda_fp16.h",
            "lib/libcuda.so.1",
        ];
        let all = "b/site-packages/nvidia/cu13";
        let (nvrtc, cublas) = (format!("{all}/lib/libnvrtc.so.13"), format!("{all}/lib/libcublas.so.13"));
        let include = format!("{all}/include");
        assert_eq!(found(&packages, System::Linux), some(["lib/libcuda.so.1", &nvrtc, &include, &cublas]));
        let loader = [&packages[..], &["lib/libnvrtc.so.12"]].concat();
        assert_eq!(found(&loader, System::Linux), some(["lib/libcuda.so.1", "lib/libnvrtc.so.12", &include, &cublas]));
        let toolkit =
            [&loader[..], &["home/targets/x86_64-linux/lib/libnvrtc.so.11.2", "opt/cuda/include/cuda_fp16.h"]];
        let nvrtc = "home/targets/x86_64-linux/lib/libnvrtc.so.11.2";
        let expected = some(["lib/libcuda.so.1", nvrtc, "opt/cuda/include", &cublas]);
        assert_eq!(found(&toolkit.concat(), System::Linux), expected);
    }

    #[test]
    fn each_package_of_older_versions_has_a_folder_of_its_own() {
        let files = [
            "a/site-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.12",
            "a/site-packages/nvidia/cublas/lib/libcublas.so.12",
            "a/site-packages/nvidia/cuda_runtime/include/cuda_fp16.h",
        ];
        let [driver, nvrtc, headers, cublas] = found(&files, System::Linux);
        assert_eq!((driver, nvrtc.as_deref(), cublas.as_deref()), (None, Some(files[0]), Some(files[1])));
        assert_eq!(headers.as_deref(), Some("a/site-packages/nvidia/cuda_runtime/include"));
    }

    #[test]
    fn the_highest_version_is_taken_and_what_is_named_alike_is_not() {
        let nvrtc = |files: &[&str], system| found(files, system)[1].clone();
        let linux = ["lib/libnvrtc.so.9.2", "lib/libnvrtc.so.12", "lib/libnvrtc.so"];
        assert_eq!(nvrtc(&linux, System::Linux).as_deref(), Some("lib/libnvrtc.so.12"));
        let alike =
            ["lib/libnvrtc-builtins.so.12.4", "lib/libnvrtc.alt.so.12", "lib/libnvrtc_static.a", "lib/libnvrtc.so.x"];
        assert_eq!(nvrtc(&alike, System::Linux), None);
        let windows = ["path/bin/nvrtc64_112_0.dll", "path/bin/nvrtc64_120_0.dll", "path/bin/nvrtc64_130_0.alt.dll"];
        assert_eq!(nvrtc(&windows, System::Windows).as_deref(), Some("path/bin/nvrtc64_120_0.dll"));
        let driver = found(&["lib/nvcuda.dll", "path/bin/x64/cublas64_13.dll"], System::Windows);
        assert_eq!(driver, some(["lib/nvcuda.dll", "", "", "path/bin/x64/cublas64_13.dll"]));
    }

    #[test]
    fn what_a_toolkit_has_for_linking_is_no_driver() {
        assert_eq!(found(&["home/lib64/stubs/libcuda.so", "home/lib64/libcuda.so.1"], System::Linux), some([""; 4]));
    }

    #[test]
    fn what_is_missing_is_told_with_what_to_do_but_for_what_is_not_needed() {
        assert_eq!(Found::default().missing().collect::<Vec<_>>(), [Part::Driver, Part::Nvrtc, Part::Headers]);
        let fixes: Vec<&str> = Part::ALL.iter().map(|part| part.fix()).collect();
        assert!(fixes.iter().all(|fix| fix.contains("install")) && fixes[1] != fixes[2], "{fixes:?}");
    }

    #[test]
    fn variables_lead_the_search() {
        let root = tree(&["venv/lib/python3.11/site-packages/nvidia/cu13/lib/libnvrtc.so.13"]);
        let value = |name: &str| match name {
            "CUDA_PATH" => Some("one".into()),
            "CUDA_HOME" => Some("two".into()),
            "LD_LIBRARY_PATH" | "PATH" => std::env::join_paths(["three", "four"]).ok(),
            "VIRTUAL_ENV" => Some(root.path().join("venv").into_os_string()),
            _ => None,
        };
        let places = Places::of_environment(&value);
        assert_eq!(places.toolkits[..2], [PathBuf::from("one"), PathBuf::from("two")]);
        assert_eq!(places.loader[..2], [PathBuf::from("three"), PathBuf::from("four")]);
        if cfg!(target_os = "linux") {
            assert!(places.toolkits.ends_with(&["/opt/cuda".into(), "/usr/local/cuda".into()]), "{places:?}");
            let packages = root.path().join("venv/lib/python3.11/site-packages");
            assert_eq!(places.packages.first(), Some(&packages));
        }
    }
}
