//! Where systems keep libraries and Python's packages. The one module of this crate that differs between systems.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

use crate::{Places, System, entries};

/// A variable's value, if it is set to something.
type Variable<'a> = &'a dyn Fn(&str) -> Option<OsString>;

pub(crate) fn places(variable: Variable<'_>) -> Places {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty());
    let usual: &[&str] = if cfg!(windows) { &[] } else { &["/opt/cuda", "/usr/local/cuda"] };
    let toolkits = ["CUDA_PATH", "CUDA_HOME"].into_iter().filter_map(|name| set(name).map(PathBuf::from));
    let path = if cfg!(windows) { "PATH" } else { "LD_LIBRARY_PATH" };
    let given: Vec<PathBuf> = set(path).map(|value| std::env::split_paths(&value).collect()).unwrap_or_default();
    Places {
        system: if cfg!(windows) { System::Windows } else { System::Linux },
        toolkits: toolkits.chain(usual.iter().map(PathBuf::from)).collect(),
        loader: given.into_iter().filter(|folder| !folder.as_os_str().is_empty()).chain(libraries(&set)).collect(),
        packages: packages(&set),
    }
}

/// Folders that the loader looks through by itself.
fn libraries(set: Variable<'_>) -> Vec<PathBuf> {
    if cfg!(windows) {
        return set("SystemRoot").map(|root| Path::new(&root).join("System32")).into_iter().collect();
    }
    const USUAL: &[&str] = &[
        "/usr/lib/x86_64-linux-gnu",
        "/lib/x86_64-linux-gnu",
        "/usr/lib/aarch64-linux-gnu",
        "/lib/aarch64-linux-gnu",
        "/usr/lib64",
        "/lib64",
        "/usr/lib",
        "/lib",
        "/usr/lib/wsl/lib",
        "/run/opengl-driver/lib",
    ];
    let configured = entries(Path::new("/etc/ld.so.conf.d")).into_iter().filter(|name| name.ends_with(".conf"));
    let lines = configured.filter_map(|name| fs::read_to_string(Path::new("/etc/ld.so.conf.d").join(name)).ok());
    let lines: Vec<PathBuf> = lines
        .flat_map(|text| text.lines().map(|line| line.trim().to_owned()).collect::<Vec<_>>())
        .filter(|line| line.starts_with('/'))
        .map(PathBuf::from)
        .collect();
    lines.into_iter().chain(USUAL.iter().map(PathBuf::from)).collect()
}

/// Folders of Python's packages: of the environment that is active, of this user, and of the system.
fn packages(set: Variable<'_>) -> Vec<PathBuf> {
    let environments = ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(|name| set(name).map(PathBuf::from));
    let mut folders = Vec::new();
    if let Some(path) = set("PYTHONPATH") {
        folders.extend(std::env::split_paths(&path));
    }
    if cfg!(windows) {
        folders.extend(environments.map(|root| root.join("Lib").join("site-packages")));
        let users = set("APPDATA").map(|data| Path::new(&data).join("Python"));
        folders.extend(users.iter().flat_map(|root| below(root, "Python", "site-packages")));
        let programs = set("LOCALAPPDATA").map(|data| Path::new(&data).join("Programs").join("Python"));
        folders.extend(programs.iter().flat_map(|root| below(root, "Python", "Lib/site-packages")));
        return folders;
    }
    let user = set("HOME").map(|home| Path::new(&home).join(".local"));
    let roots = environments.chain(user).chain(["/usr/local", "/usr"].map(PathBuf::from));
    for lib in roots.map(|root| root.join("lib")) {
        for name in ["site-packages", "dist-packages"] {
            folders.extend(below(&lib, "python3", name));
        }
    }
    folders
}

/// `name` in each folder below `root` whose name begins so, the last first: of several versions the highest.
fn below(root: &Path, begins: &str, name: &str) -> Vec<PathBuf> {
    let folders = entries(root).into_iter().rev().filter(|folder| folder.starts_with(begins));
    folders.map(|folder| root.join(folder).join(name)).filter(|folder| folder.is_dir()).collect()
}
