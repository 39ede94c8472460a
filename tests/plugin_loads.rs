//! Fifty loads and unloads of plugins leave nothing behind: neither mapped code nor open files, neither copies nor processes.
//!
//! One test alone in its process, since it looks at all that the process holds.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

#[path = "support/plugins.rs"]
mod plugins;
mod support;

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use bantam_plugins::{
    Families, FamiliesConfig, Plugins, PluginsConfig,
    worker::{Limits, WorkerProgram},
};
use bantam_runtime::load::ModelFiles;
use plugins::{Source, WELL, custom, double, doubled, folder, table};
use support::{fixture, wait_for};

/// What this process holds of plugins.
#[derive(Debug, PartialEq, Eq)]
struct Held {
    mapped: usize,
    files: usize,
    copies: usize,
    children: usize,
    threads: usize,
}

impl Held {
    fn now(copies: &Path) -> Self {
        let mapped = fs::read_to_string("/proc/self/maps").unwrap();
        let below = |folder: PathBuf| fs::read_dir(folder).map_or(0, Iterator::count);
        let count = |folder: &str| fs::read_dir(folder).unwrap().count();
        Held {
            mapped: mapped.lines().filter(|line| line.contains("bantam-plugins-")).count(),
            files: count("/proc/self/fd"),
            copies: fs::read_dir(copies).unwrap().map(|entry| below(entry.unwrap().path())).sum(),
            children: children(),
            threads: count("/proc/self/task"),
        }
    }
}

/// Processes whose parent this one is, ended ones that nobody has waited for among them.
fn children() -> usize {
    let own = std::process::id().to_string();
    let stats = fs::read_dir("/proc").unwrap().flatten().filter_map(|e| fs::read_to_string(e.path().join("stat")).ok());
    // Behind the name, which may hold anything: state and parent.
    let parents = stats.filter_map(|stat| stat.rsplit(')').next()?.split_whitespace().nth(1).map(str::to_owned));
    parents.filter(|parent| *parent == own).count()
}

fn families(directory: &Path) -> Families {
    let worker =
        WorkerProgram { program: env!("CARGO_BIN_EXE_bantam").into(), arguments: vec!["plugin-worker".into()] };
    let config = PluginsConfig { directories: vec![directory.into()], worker, limits: Limits::default() };
    Families::with_plugins(Arc::new(Plugins::new(config)), FamiliesConfig { choice: None, allow_ops: true })
}

/// Describes the model by the plugin, and loads the plugin's library into this process as a model with ops does.
fn load(families: &Families) -> usize {
    let files = ModelFiles::open(&fixture("models/llama-dense/model.gguf")).unwrap();
    let (described, _) = files.describe(families).unwrap();
    let ops = families.ops(&described).unwrap();
    assert!(ops.is_some() && described.plugin.is_some());
    let mapped = fs::read_to_string("/proc/self/maps").unwrap();
    mapped.lines().filter(|line| line.contains("bantam-plugins-")).count()
}

#[test]
fn fifty_loads_and_unloads_leave_nothing_behind() {
    let (plugins, copies) = (folder(), folder());
    // SAFETY: nothing else runs in this process yet.
    #[allow(unsafe_code, reason = "where private copies lie is said by the environment")]
    unsafe {
        std::env::set_var("TMPDIR", copies.path());
    }
    let (_, width) = table();
    let (functions, answer) = (double(width, 0), doubled(&custom(width)));
    let file = Source { before_all: &functions, answer: &answer, ..WELL }.compile(plugins.path(), "double");
    let bytes = fs::read(&file).unwrap();
    let replace = |number: u32| {
        let next = plugins.path().join("next");
        fs::write(&next, [&bytes[..], &number.to_le_bytes()].concat()).unwrap();
        fs::rename(&next, &file).unwrap();
    };
    // The same file, met by a new host each time.
    let same = || load(&families(plugins.path()));
    let host = families(plugins.path());
    // Another file each time, met by the same host.
    let other = |number: u32| {
        replace(number);
        load(&host)
    };
    // The first rounds bring what stays for good: the loader's own, the directory of copies.
    assert!((0..5).all(|number| same() > 0 && other(number) > 0), "the library was mapped while it was used");
    let quiet = || wait_for("the last threads' end", || (Held::now(copies.path()).threads <= 3).then_some(()));
    quiet();
    let before = Held::now(copies.path());
    assert_eq!((before.mapped, before.children, before.copies), (0, 0, 1), "{before:?}");
    assert!((5..55).all(|number| same() > 0 && other(number) > 0));
    quiet();
    assert_eq!(Held::now(copies.path()), before);
    drop(host);
    let behind = Held::now(copies.path());
    assert_eq!((behind.copies, fs::read_dir(copies.path()).unwrap().count()), (0, 0), "{behind:?}");
}
