//! Graphs of plugins are run, by every command; the commands about plugins.

use std::{fs, path::Path};

use serde_json::{Value, json};

use crate::{
    plugins::{Source, WELL, answer, folder, graph, listed, table},
    support::{bantam, command, fail, model, stderr, stdout},
};

#[test]
fn a_graph_from_a_plugin_is_run_and_the_log_says_whose_it_is() {
    let (vocab, width) = table();
    let folder = folder();
    let answer = answer(&graph(vocab, width, "logits", &json!({})));
    Source { answer: &answer, ..WELL }.compile(folder.path(), "plain");
    let directory = folder.path().to_str().unwrap();
    let arguments = ["probe", &model("llama-dense"), "--tokens", "1,2", "--greedy", "2"];
    let with = bantam(&[&arguments[..], &["--plugins", directory]].concat());
    assert!(with.status.success(), "{}", stderr(&with));
    assert!(stderr(&with).contains("`llama` is taken by the plugin `test`"), "{}", stderr(&with));
    let built_in = bantam(&[&arguments[..], &["--plugins", directory, "--family", "built-in"]].concat());
    assert_eq!(stdout(&built_in), stdout(&bantam(&arguments)));
    assert_ne!(stdout(&built_in), stdout(&with), "the plugin's model has no layers");
    let named = bantam(&[&arguments[..], &["--plugins", directory, "--family", "test"]].concat());
    assert_eq!(stdout(&named), stdout(&with));
    let unknown = fail(1, &[&arguments[..], &["--plugins", directory, "--family", "other"]].concat());
    assert!(unknown.contains("--family other"), "{unknown}");
}

/// The fixture of Llama with another name for how its text is cut into pieces.
fn with_unknown_pieces(to: &Path) {
    let file = bantam_gguf::GgufFile::open(model("llama-dense")).unwrap();
    let mut writer = bantam_gguf::writer::GgufWriter::new();
    for (key, value) in file.metadata().iter() {
        match key {
            "tokenizer.ggml.pre" => writer.key(key, "nobodys-own"),
            key => writer.key(key, value.clone()),
        };
    }
    for tensor in file.tensors() {
        writer.tensor(&tensor.name, tensor.ty, &tensor.shape, file.tensor_bytes(tensor).unwrap());
    }
    writer.write(fs::File::create(to).unwrap()).unwrap();
}

#[test]
fn every_command_that_opens_a_model_takes_plugins() {
    let (vocab, width) = table();
    let (folder, scratch) = (folder(), folder());
    let mut said: Value = serde_json::from_str(&answer(&graph(vocab, width, "logits", &json!({})))).unwrap();
    // Room for a prompt in the template's form.
    said["model"]["context_length"] = json!(512);
    said["model"]["tokenizer"] = json!({"pre": {"patterns": ["\\s?\\p{L}+", "\\s+"]}});
    Source { answer: &said.to_string(), ..WELL }.compile(folder.path(), "hints");
    let [file, case] = ["model.gguf", "case.json"].map(|name| scratch.path().join(name).display().to_string());
    with_unknown_pieces(Path::new(&file));
    fs::write(&case, r#"{"messages":[{"role":"user","content":"hi"}]}"#).unwrap();
    for arguments in [
        vec!["render", &file, "--case", &case],
        vec!["tokenize", &file, "--text", "a b"],
        vec!["generate", &file, "--prompt", "a", "--max-tokens", "2"],
        vec!["inspect", &file, "--graph"],
        vec!["plan", &file],
        vec!["probe", &file, "--tokens", "1,2"],
        vec!["benchmark", &file, "--prompt-tokens", "8", "--decode-tokens", "2", "--iterations", "1"],
    ] {
        let run = |by_flag: bool| {
            let mut command = command();
            command.args(&arguments);
            match by_flag {
                true => command.arg("--plugins").arg(folder.path()),
                false => command.env("BANTAM_PLUGINS", folder.path()),
            };
            let output = command.output().unwrap();
            assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
        };
        [true, false].into_iter().for_each(run);
    }
    let without = bantam(&["render", &file, "--case", &case]);
    assert!(stderr(&without).contains("nobodys-own"), "{}", stderr(&without));
}

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
#[test]
fn a_plugin_starts_no_process_and_no_thread() {
    let before_all = r#"
        #include <errno.h>
        #include <pthread.h>
        static void *nothing(void *of) { return of; }
        static int starts(void) {
            pthread_t thread; char *arguments[] = {"/bin/true", NULL};
            if (fork() >= 0 || vfork() >= 0 || errno != EPERM) return 1;
            if (pthread_create(&thread, NULL, nothing, NULL) == 0) return 2;
            execv(arguments[0], arguments);
            return errno == EPERM ? 0 : 3;
        }
    "#;
    let folder = folder();
    Source { before_all, describe: "int way = starts(); if (way) return way;", ..WELL }
        .compile(folder.path(), "starts");
    let (_, told) = &listed(folder.path())[0];
    assert_eq!(told["name"], "test", "{told}");
}

#[test]
fn the_command_checks_one_file_and_lists_in_words() {
    let folder = folder();
    let directory = folder.path().to_str().unwrap();
    let well = WELL.compile(folder.path(), "well");
    let bad = Source { abi: "3", ..WELL }.compile(folder.path(), "bad");
    let lines = stdout(&bantam(&["plugins", "--plugins", directory]));
    assert!(lines.contains("test 1.0, ABI 0, for llama") && lines.contains("refused: it speaks version 3"), "{lines}");
    let checked = bantam(&["plugins", "check", well.to_str().unwrap()]);
    assert!(checked.status.success() && stdout(&checked).contains("test 1.0"), "{}", stderr(&checked));
    let checked = bantam(&["plugins", "check", bad.to_str().unwrap()]);
    assert_eq!(checked.status.code(), Some(1));
    assert!(stderr(&checked).contains("bad.") && stderr(&checked).contains("version 3"), "{}", stderr(&checked));
    let by_variable = command().arg("plugins").env("BANTAM_PLUGINS", directory).output().unwrap();
    assert_eq!(stdout(&by_variable), lines);
    let none = bantam(&["plugins", "--plugins", "/nonexistent"]);
    assert!(stdout(&none).contains("no plugins in /nonexistent"), "{}", stdout(&none));
    assert!(stderr(&none).contains("/nonexistent: there is no such directory"), "{}", stderr(&none));
    let file = fail(2, &["plugins", "--plugins", well.to_str().unwrap()]);
    assert!(file.contains("expected a directory"), "{file}");
}

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
#[test]
fn a_plugin_does_nothing_to_files_processes_and_the_network() {
    let (folder, scratch) = (folder(), folder());
    let kept = scratch.path().join("kept");
    fs::write(&kept, "as it was").unwrap();
    let before_all = r#"
        #include <errno.h>
        #include <fcntl.h>
        #include <sys/ptrace.h>
        #include <sys/socket.h>
        #include <sys/stat.h>
        #include <sys/syscall.h>
        #define KEPT "{kept}"
        static int harm(void) {
            int way = 0;
            #define REFUSED(what) way++; errno = 0; if ((what) >= 0 || errno != EPERM) return way;
            REFUSED(open(KEPT, O_WRONLY))
            REFUSED(open(KEPT, O_RDONLY | O_TRUNC))
            REFUSED(open(KEPT ".new", O_CREAT | O_RDONLY, 0600))
            REFUSED(syscall(SYS_openat2, AT_FDCWD, KEPT, NULL, 0))
            REFUSED(truncate(KEPT, 0))
            REFUSED(unlink(KEPT))
            REFUSED(rename(KEPT, KEPT ".new"))
            REFUSED(link(KEPT, KEPT ".new"))
            REFUSED(symlink(KEPT, KEPT ".new"))
            REFUSED(mkdir(KEPT ".new", 0700))
            REFUSED(chmod(KEPT, 0666))
            REFUSED(socket(AF_INET, SOCK_STREAM, 0))
            REFUSED(socket(AF_UNIX, SOCK_STREAM, 0))
            /* Signal 0 and no such process: should they not be refused, they do no harm. */
            REFUSED(kill(getppid(), 0))
            REFUSED(kill(-1, 0))
            REFUSED(syscall(SYS_tgkill, getppid(), getppid(), 0))
            REFUSED(ptrace(PTRACE_ATTACH, 0x7fffffff, NULL, NULL))
            REFUSED(syscall(SYS_process_vm_writev, getppid(), NULL, 0, NULL, 0, 0))
            REFUSED(syscall(SYS_io_uring_setup, 1, NULL))
            /* Reading is no harm, and a signal to itself is its own affair. */
            int file = open(KEPT, O_RDONLY);
            char text[16];
            if (read(file, text, sizeof text) != 9) return 100;
            return kill(getpid(), 0) == 0 ? 0 : 101;
        }
    "#;
    let before_all = before_all.replace("{kept}", kept.to_str().unwrap());
    Source { before_all: &before_all, describe: "int way = harm(); if (way) return way;", ..WELL }
        .compile(folder.path(), "harms");
    let (_, told) = &listed(folder.path())[0];
    assert_eq!(told["name"], "test", "{told}");
    assert_eq!(fs::read_to_string(&kept).unwrap(), "as it was");
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 1);
}
