//! Whose files are loaded, and where the copies lie that are run.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    plugins::{Source, WELL, folder, listed},
    support::{self, Server, command, model},
};

#[test]
fn files_that_others_could_have_written_are_not_loaded() {
    let folder = folder();
    let plugin = WELL.compile(folder.path(), "well");
    let word = |expected: Option<&str>| {
        let found = listed(folder.path());
        let error = found[0].1["error"].as_str();
        assert_eq!(error.is_some(), expected.is_some(), "{error:?}");
        assert!(error.unwrap_or_default().contains(expected.unwrap_or_default()), "{error:?}");
    };
    word(None);
    fs::set_permissions(&plugin, fs::Permissions::from_mode(0o666)).unwrap();
    word(Some("every user may write"));
    fs::set_permissions(&plugin, fs::Permissions::from_mode(0o600)).unwrap();
    word(None);
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    word(Some("directory"));
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o1777)).unwrap();
    word(None);
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
    if std::os::unix::fs::chown(&plugin, Some(12345), None).is_ok() {
        word(Some("12345"));
    }
}

#[test]
fn a_replaced_plugin_is_met_anew_and_told_of_once() {
    let folder = folder();
    let directory = folder.path().to_str().unwrap();
    let server = Server::start(&[&model("qwen3-dense"), "--plugins", directory]);
    fs::write(folder.path().join("new.so"), b"no library").unwrap();
    assert_eq!(server.get("/v1/models").0, 200);
    let first = server.line_with("new.so");
    assert!(first.contains("neither a library"), "{first}");
    assert_eq!(server.get("/v1/models").0, 200);
    fs::write(folder.path().join("new.so"), b"\x7fELF").unwrap();
    fs::remove_file(folder.path().join("new.so")).unwrap();
    Source { abi: "3", ..WELL }.compile(folder.path(), "new");
    assert_eq!(server.get("/v1/models").0, 200);
    // What it was in between may be told of too.
    server.line_with("version 3");
}

/// Processes whose command line has this in it.
#[cfg(target_os = "linux")]
fn processes(with: &str) -> usize {
    let of = |entry: fs::DirEntry| fs::read(entry.path().join("cmdline")).unwrap_or_default();
    let lines = fs::read_dir("/proc").unwrap().map(|entry| of(entry.unwrap()));
    lines.filter(|line| String::from_utf8_lossy(line).contains(with)).count()
}

#[cfg(target_os = "linux")]
#[test]
fn a_host_that_is_killed_leaves_no_process_and_its_copies_are_swept() {
    let (folder, places) = (folder(), folder());
    Source { describe: "for (;;) pause();", ..WELL }.compile(folder.path(), "hangs");
    let mut list = command();
    list.args(["plugins", "--plugins"]).arg(folder.path()).env("TMPDIR", places.path());
    let mut host = list.stdout(std::process::Stdio::null()).spawn().unwrap();
    let copies = places.path().to_str().unwrap().to_owned();
    support::wait_for("the process that asks", || (processes(&copies) > 0).then_some(()));
    host.kill().unwrap();
    host.wait().unwrap();
    support::wait_for("its end", || (processes(&copies) == 0).then_some(()));
    let left = || fs::read_dir(places.path()).unwrap().count();
    assert_eq!(left(), 1);
    let none = self::folder();
    let output = command().args(["plugins", "--plugins"]).arg(none.path()).env("TMPDIR", places.path()).output();
    assert!(output.unwrap().status.success());
    assert_eq!(left(), 0);
}

/// What is said of the one plugin in a directory; none: it is taken.
fn refusal(directory: &Path) -> Option<String> {
    let found = listed(directory);
    assert_eq!(found.len(), 1, "{found:?}");
    found[0].1["error"].as_str().map(str::to_owned)
}

fn mode(of: &Path, mode: u32) {
    fs::set_permissions(of, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_group_is_others_too() {
    let folder = folder();
    let plugin = WELL.compile(folder.path(), "well");
    mode(&plugin, 0o660);
    assert!(refusal(folder.path()).unwrap().contains("group with id"), "{:?}", refusal(folder.path()));
    mode(&plugin, 0o640);
    assert_eq!(refusal(folder.path()), None);
    mode(folder.path(), 0o770);
    assert!(refusal(folder.path()).unwrap().contains("the directory"), "{:?}", refusal(folder.path()));
}

#[test]
fn each_step_of_the_way_to_a_linked_file_is_checked() {
    let [plugins, middle, target] = [folder(), folder(), folder()];
    let file = WELL.compile(target.path(), "well");
    // The link in the directory of plugins leads to another one, and that to the file.
    let between = middle.path().join("between.so");
    symlink(&file, &between).unwrap();
    symlink(&between, plugins.path().join("link.so")).unwrap();
    assert_eq!(refusal(plugins.path()), None);
    for directory in [&plugins, &middle, &target] {
        for open in [0o777, 0o757, 0o770, 0o720] {
            mode(directory.path(), open);
            let told = refusal(plugins.path()).unwrap_or_default();
            assert!(told.contains("may write to the directory"), "{open:o}: {told}");
            assert!(told.contains(directory.path().to_str().unwrap()), "{open:o}: {told}");
        }
        // There nobody replaces what is somebody else's.
        mode(directory.path(), 0o1777);
        assert_eq!(refusal(plugins.path()), None);
        if std::os::unix::fs::chown(directory.path(), Some(12345), None).is_ok() {
            assert!(refusal(plugins.path()).unwrap().contains("12345"));
            std::os::unix::fs::chown(directory.path(), Some(0), None).unwrap();
        }
        mode(directory.path(), 0o700);
        assert_eq!(refusal(plugins.path()), None);
    }
    // Somebody else's link is a way to choose among the user's files.
    if std::os::unix::fs::lchown(&between, Some(12345), None).is_ok() {
        mode(middle.path(), 0o1777);
        assert!(refusal(plugins.path()).unwrap().contains("the link to"));
    }
}

#[test]
fn a_directory_of_plugins_that_is_a_link_is_not_better_than_its_place() {
    let [plugins, place] = [folder(), folder()];
    WELL.compile(plugins.path(), "well");
    let link = place.path().join("plugins");
    symlink(plugins.path(), &link).unwrap();
    assert_eq!(refusal(&link), None);
    mode(place.path(), 0o777);
    assert!(refusal(&link).unwrap().contains(place.path().to_str().unwrap()));
}

#[test]
fn links_are_told_of_once_each_time_they_lead_elsewhere() {
    let [plugins, target] = [folder(), folder()];
    let of_abi = |abi: &str, name: &str| Source { abi, ..WELL }.compile(target.path(), name);
    let (third, fourth) = (of_abi("3", "third"), of_abi("4", "fourth"));
    let link = plugins.path().join("link.so");
    let server = Server::start(&[&model("qwen3-dense"), "--plugins", plugins.path().to_str().unwrap()]);
    let lead_to = |target: &Path| {
        let next = plugins.path().join("next");
        symlink(target, &next).unwrap();
        fs::rename(&next, &link).unwrap();
    };
    let told = || {
        assert_eq!(server.get("/v1/models").0, 200);
        let line = server.line_with("/link.so");
        for _ in 0..3 {
            assert_eq!(server.get("/v1/models").0, 200);
        }
        fs::write(plugins.path().join("last.so"), "no library").unwrap();
        assert_eq!(server.get("/v1/models").0, 200);
        let more = server.lines_before("/last.so");
        assert!(!more.iter().any(|line| line.contains("/link.so")), "{more:#?}");
        fs::remove_file(plugins.path().join("last.so")).unwrap();
        line
    };
    lead_to(&target.path().join("nowhere"));
    assert!(told().contains("cannot be read"));
    lead_to(&third);
    assert!(told().contains("version 3"));
    lead_to(&fourth);
    assert!(told().contains("version 4"));
    // Nothing of the link or the file changes, only who could change it.
    mode(target.path(), 0o777);
    assert!(told().contains("may write to the directory"));
    mode(target.path(), 0o700);
    assert!(told().contains("version 4"));
    fs::rename(&third, &fourth).unwrap();
    assert!(told().contains("version 3"));
}

/// Modes of all that lies below a directory.
fn modes(of: &Path) -> Vec<(PathBuf, u32)> {
    let entries = fs::read_dir(of).unwrap().map(|entry| entry.unwrap());
    entries
        .flat_map(|entry| {
            let metadata = entry.metadata().unwrap();
            let below = if metadata.is_dir() { modes(&entry.path()) } else { Vec::new() };
            [(entry.path(), metadata.permissions().mode() & 0o7777)].into_iter().chain(below)
        })
        .collect()
}

/// A server whose private copies lie there.
fn with_copies_in(places: &Path, plugins: &Path) -> Server {
    let mut serve = Command::new("sh");
    serve.args(["-c", "umask 0; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_bantam"), "serve", &model("qwen3-dense")]);
    serve.args(["--port", "0", "--plugins"]).arg(plugins).env("TMPDIR", places).env_remove("BANTAM_PLUGINS");
    Server::spawn_ready(&mut serve)
}

#[test]
fn private_copies_are_this_users_alone_and_come_back() {
    let [plugins, places] = [folder(), folder()];
    WELL.compile(plugins.path(), "well");
    // For new files and directories this server's mask forbids nothing.
    let server = with_copies_in(places.path(), plugins.path());
    assert_eq!(server.get("/v1/models").0, 200);
    let made = modes(places.path());
    assert_eq!(made.iter().map(|(_, mode)| *mode).collect::<Vec<_>>(), [0o700, 0o600], "{made:?}");
    // Some systems clear away what was not touched for days.
    for (gone, is_directory) in [(&made[1].0, false), (&made[0].0, true)] {
        let removed = if is_directory { fs::remove_dir_all(gone) } else { fs::remove_file(gone) };
        removed.unwrap();
        support::wait_for("a new copy", || {
            assert_eq!(server.get("/v1/models").0, 200);
            let made: Vec<u32> = modes(places.path()).iter().map(|(_, mode)| *mode).collect();
            (made == [0o700, 0o600]).then_some(())
        });
    }
    // A copy that is not as it was made is not used.
    let copy = &modes(places.path())[1].0;
    fs::write(copy, "another").unwrap();
    support::wait_for("a true copy", || {
        assert_eq!(server.get("/v1/models").0, 200);
        let is_true = |(copy, _): &(PathBuf, u32)| fs::read(copy).is_ok_and(|copy| copy.starts_with(b"\x7fELF"));
        modes(places.path()).iter().skip(1).all(is_true).then_some(())
    });
}

#[test]
fn without_a_place_for_copies_plugins_are_refused_and_the_rest_goes_on() {
    let [plugins, places] = [folder(), folder()];
    WELL.compile(plugins.path(), "well");
    for open in [0o777, 0o770] {
        mode(places.path(), open);
        let server = with_copies_in(places.path(), plugins.path());
        let told: Vec<_> = server.before_ready.iter().filter(|line| line.contains("/well.")).collect();
        assert!(told.len() == 1 && told[0].contains("TMPDIR"), "{:#?}", server.before_ready);
        assert_eq!(server.get("/v1/models").0, 200);
        assert_eq!(fs::read_dir(places.path()).unwrap().count(), 0);
    }
    mode(places.path(), 0o1777);
    let _server = with_copies_in(places.path(), plugins.path());
    assert_eq!(modes(places.path()).len(), 2);
}

#[test]
fn only_what_this_user_has_left_is_swept() {
    let places = folder();
    let at = |name: &str| places.path().join(name);
    let made = |name: &str, bits: u32| {
        fs::create_dir(at(name)).unwrap();
        mode(&at(name), bits);
        fs::write(at(name).join("copy.so"), "copy").unwrap();
    };
    made("bantam-plugins-left", 0o700);
    made("bantam-plugins-open", 0o755);
    fs::write(at("bantam-plugins-file"), "file").unwrap();
    let kept = folder();
    fs::write(kept.path().join("copy.so"), "copy").unwrap();
    symlink(kept.path(), at("bantam-plugins-link")).unwrap();
    for pipe in [at("bantam-plugins-pipe"), at("bantam-plugins-open").join("in-use")] {
        assert!(Command::new("mkfifo").arg(pipe).status().unwrap().success());
    }
    let plugins = folder();
    WELL.compile(plugins.path(), "well");
    let _in_use = with_copies_in(places.path(), plugins.path());
    let output = command().args(["plugins", "--plugins"]).arg(plugins.path()).env("TMPDIR", places.path()).output();
    assert!(output.unwrap().status.success());
    let mut left: Vec<String> =
        fs::read_dir(places.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    left.sort();
    let expected = ["file", "link", "open", "pipe"].map(|name| format!("bantam-plugins-{name}"));
    let (known, others): (Vec<String>, Vec<String>) = left.into_iter().partition(|name| expected.contains(name));
    assert_eq!(known, expected);
    assert_eq!(others.len(), 1, "those of the server: {others:?}");
    assert!(kept.path().join("copy.so").exists());
}

#[test]
fn many_that_start_at_once_take_nothing_from_each_other() {
    let [plugins, places] = [folder(), folder()];
    WELL.compile(plugins.path(), "well");
    for _ in 0..3 {
        let lists: Vec<_> = (0..12)
            .map(|_| {
                let mut list = command();
                list.args(["plugins", "--plugins"]).arg(plugins.path()).env("TMPDIR", places.path());
                list.stdout(std::process::Stdio::piped()).spawn().unwrap()
            })
            .collect();
        for list in lists {
            let told = support::stdout(&list.wait_with_output().unwrap());
            assert!(told.contains("test 1.0"), "{told}");
        }
    }
    assert_eq!(fs::read_dir(places.path()).unwrap().count(), 0);
}

#[cfg(target_os = "linux")]
#[test]
fn a_worker_whose_host_is_gone_already_asks_nothing() {
    let (folder, places) = (folder(), folder());
    let plugin = Source { describe: "for (;;) pause();", ..WELL }.compile(folder.path(), "hangs");
    let copy = places.path().join("copy.so");
    fs::copy(plugin, &copy).unwrap();
    let mut worker = command();
    worker.args(["plugin-worker", "describe"]).arg(&copy).stdin(std::process::Stdio::piped());
    let mut worker = worker.stdout(std::process::Stdio::piped()).spawn().unwrap();
    // Nobody reads its answer any more when it begins.
    drop(worker.stdout.take());
    drop(worker.stdin.take());
    support::wait_for("its end", || worker.try_wait().unwrap());
}
