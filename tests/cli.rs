//! The command line's contract: exit codes, what goes to which stream, and what each command prints.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod support;

use std::fs;

use bantam_gguf::{GgufFile, writer::GgufWriter};
use serde_json::{Value, json};
use support::{bantam, f32_file, fail, fixture, json, model, stderr, stdout, succeed};

const COMMANDS: &[&str] = &[
    "serve",
    "generate",
    "inspect",
    "probe",
    "benchmark",
    "tokenize",
    "render",
    "plan",
    "plugins",
    "doctor",
    "transcript-audit",
];

#[test]
fn help_and_version_go_to_standard_output() {
    let help = succeed(&["--help"]);
    for command in COMMANDS {
        assert!(help.contains(&format!("  {command} ")), "{command}");
        let own = succeed(&[command, "--help"]);
        assert!(own.contains("Usage: bantam ") && own.contains("--help"), "{own}");
    }
    assert!(succeed(&["--version"]).starts_with("bantam "));
}

#[test]
fn wrong_usage_exits_with_2_and_names_what_is_wrong() {
    let llama = model("llama-dense");
    let folder = tempfile::tempdir().unwrap();
    let none = folder.path().join("none.json");
    fs::write(&none, "[]").unwrap();
    let (none, dumped) = (format!("@{}", none.display()), folder.path().display().to_string());
    for (arguments, named) in [
        (&[][..], "no command"),
        (&["dance"], "dance"),
        (&["serve"], "MODEL"),
        (&["inspect", &llama, "--nonsense"], "--nonsense"),
        (&["serve", &llama, "--port", "x"], "--port"),
        (&["serve", &llama, "--parallel", "0"], "--parallel"),
        (&["serve", &llama, "--temperature", "hot"], "--temperature"),
        (&["serve", &llama, "-ngl", "some"], "--n-gpu-layers"),
        (&["serve", &llama, "--expert-mode", "none"], "--expert-mode"),
        (&["probe", &llama, "--tokens", "1", "--kv", "auto"], "--cache-type-k auto"),
        (&["plan"], "MODEL"),
        (&["plan", &llama, "--vram", "12"], "--vram"),
        (&["plan", &llama, "--ram", "much"], "--ram"),
        (&["probe", &llama, "--tokens", "1,x"], "--tokens"),
        (&["probe", &llama, "--tokens", "1", "--kv", "q1"], "--kv"),
        (&["probe", &llama, "--tokens", "@"], "--tokens @"),
        (&["probe", &llama, "--tokens", "-1"], "--tokens -1"),
        (&["generate", &llama, "--prompt", "x", "--max-tokens", "-1"], "'--max-tokens <N>'"),
        (&["generate", &llama, "--prompt", "x", "--seed", "-1"], "'--seed <N>'"),
        (&["serve", &llama, "--port", "-1"], "'--port <PORT>'"),
        (&["serve", &llama, "--port", "0", "--api-key", " "], "--api-key"),
        (&["serve", &llama, "--port", "0", "--api-key", "a,,b"], "--api-key"),
        (&["serve", &llama, "--port", "0", "--cors-origin", "not an origin"], "--cors-origin"),
        (&["serve", &llama, "--port", "0", "--host", "999.1"], "--host `999.1`"),
        (&["serve", &llama, "--port", "0", "--host", ""], "--host ``"),
        (&["tokenize", &llama], "--text"),
        (&["tokenize", &llama, "--text", "a", "--file", "b"], "--file"),
        (&["inspect", "hf:nowhere"], "hf:OWNER/REPO"),
        (&["inspect", &llama, "--tensor", "x"], "--dump"),
        // What only the model shows to be wrong.
        (&["inspect", &llama, "--tensor", "none", "--dump", "x"], "none"),
        (&["probe", &llama, "--tokens", "1000000"], "1000000"),
        (&["probe", &llama, "--tokens", &none], "at least one token"),
        (&["probe", &llama, "--tokens", "1", "--check", "luck"], "luck"),
        (
            &["probe", &llama, "--tokens", "1", "--dump", "nothing*", &dumped],
            "--dump nothing*: no value has such a name",
        ),
        (&["benchmark", &llama, "--prompt-tokens", "5000"], "--prompt-tokens: 5000 tokens"),
        (&["benchmark", &llama, "--depth", "4090", "--decode-tokens", "7"], "at most 4096"),
        (&["benchmark", &llama, "--sweep=64,4095"], "--sweep and --decode-tokens: 4159 tokens"),
        (&["benchmark", &llama, "--sweep=0"], "--sweep"),
        (&["benchmark", "--json"], "MODEL"),
        (&["benchmark", "compare", "a.json"], "<B>"),
        (&["generate", &llama, "--prompt", "x", "--context", "2"], "--context"),
        (&["generate", &llama, "--prompt", "x", "--logit-bias", "{\"7\": 1e39}"], "--logit-bias"),
    ] {
        let error = fail(2, arguments);
        assert!(error.contains(named), "{arguments:?}: {error}");
    }
}

#[test]
fn other_failures_exit_with_1_and_name_the_file_or_field() {
    let llama = model("llama-dense");
    let hostile = fixture("gguf/bad-magic.gguf").display().to_string();
    let folder = fixture("gguf").display().to_string();
    for (arguments, named) in [
        (&["inspect", "no/such.gguf"][..], "no/such.gguf"),
        (&["inspect", &hostile], "bad-magic.gguf"),
        (&["serve", &hostile, "--port", "0"], "bad-magic.gguf"),
        (&["generate", &hostile, "--prompt", "x"], "bad-magic.gguf"),
        (&["inspect", &folder], "directory"),
        (&["tokenize", &llama, "--file", "no/such.txt"], "no/such.txt"),
        (&["tokenize", &llama, "--batch", &llama], "llama-dense"),
        (&["probe", &llama, "--tokens", "@no/such.json"], "no/such.json"),
        (&["render", "--case", "no/such.json", "--template", "x"], "no/such.json"),
        (&["plan", &hostile], "bad-magic.gguf"),
        // What there is no device for.
        (&["serve", &llama, "--port", "0", "-ngl", "3"], "-ngl 3: "),
        (&["serve", &llama, "--port", "0", "-ngl=all"], "-ngl all: "),
        (&["serve", &llama, "--port", "0", "--device", "0"], "--device 0: "),
        (&["serve", &llama, "--port", "0", "--gpu-cache-mib", "64"], "--gpu-cache-mib 64: "),
        (&["serve", &llama, "--port", "0", "--moe-device", "gpu"], "--expert-mode resident: "),
        (&["serve", &llama, "--port", "0", "--dense-requant", "q8"], "--dense-requant q8: "),
        // Nor where there are some, so many.
        (&["serve", &llama, "--port", "0", "--backend", "cuda", "--device", "99"], "leave it out"),
        (&["plan", &llama, "--backend", "cuda", "--device", "99"], "leave it out"),
    ] {
        let error = fail(1, arguments);
        assert!(error.contains(named), "{arguments:?}: {error}");
    }
}

#[test]
fn no_hostile_container_is_more_than_an_error() {
    let expect: Value = serde_json::from_slice(&fs::read(fixture("gguf/expect.json")).unwrap()).unwrap();
    let mut hostile = 0;
    for file in fs::read_dir(fixture("gguf")).unwrap().map(|e| e.unwrap().path()) {
        if file.extension().is_none_or(|e| e != "gguf") {
            continue;
        }
        let output = bantam(&["inspect", file.to_str().unwrap()]);
        assert!(matches!(output.status.code(), Some(0 | 1)), "{}: {}", file.display(), stderr(&output));
        hostile += usize::from(!output.status.success());
    }
    assert!(hostile > 20, "{hostile} refused; {expect}");
}

#[test]
fn inspect_tells_metadata_configuration_and_tensors() {
    let report = json(&["inspect", &model("llama-dense")]);
    assert_eq!(report["metadata"]["general.architecture"], "llama");
    assert!(report["config"].is_object(), "{}", report["config"]);
    assert!(report.get("config_error").is_none() && report.get("graph").is_none());
    let tensors = report["tensors"].as_array().unwrap();
    let embedding = tensors.iter().find(|t| t["name"] == "token_embd.weight").unwrap();
    let width = &report["metadata"]["llama.embedding_length"];
    assert_eq!((&embedding["shape"][0], &embedding["shape"][1]), (width, &json!(448)));
    let elements = width.as_u64().unwrap() * 448;
    assert_eq!((&embedding["type"], &embedding["bytes"]), (&json!("F32"), &json!(4 * elements)));
    assert!(json(&["inspect", &model("llama-dense"), "--graph"])["graph"].is_object());
}

#[test]
fn inspect_goes_on_where_the_architecture_is_unknown() {
    for file in ["gguf/two-tensors.gguf", "tokenizers/llama-spm.gguf"] {
        let report = json(&["inspect", fixture(file).to_str().unwrap()]);
        assert!(report["config"].is_null() && report["config_error"].is_string(), "{file}: {report}");
        assert!(report["metadata"].is_object() && report["tensors"].is_array());
    }
}

#[test]
fn a_graph_that_was_asked_for_and_cannot_be_is_a_failure_with_the_rest_printed() {
    let output = bantam(&["inspect", fixture("gguf/two-tensors.gguf").to_str().unwrap(), "--graph"]);
    assert_eq!(output.status.code(), Some(1));
    let report: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert!(report["graph"].is_null() && report["tensors"].is_array(), "{report}");
    assert!(stderr(&output).lines().last().unwrap().starts_with("error: --graph: "), "{}", stderr(&output));
}

#[test]
fn a_wrong_field_of_a_case_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let (case, template) = (folder.path().join("case.json"), folder.path().join("template.jinja"));
    fs::write(&template, "{{ messages[0].content }}").unwrap();
    let turn = json!({"role": "user", "content": "hi"});
    fs::write(&case, json!([{"messages": [turn]}, {"messages": [], "tools": "all"}]).to_string()).unwrap();
    let arguments = ["render", "--template", template.to_str().unwrap(), "--case", case.to_str().unwrap()];
    let outcomes = json(&arguments);
    assert!(outcomes[0]["text"].is_string(), "one wrong case leaves the others as they are: {outcomes}");
    assert_eq!(outcomes[1]["error"], "[1].tools: expected an array or null, found a string");
    fs::write(&case, json!({"messages": [null]}).to_string()).unwrap();
    assert!(fail(1, &arguments).ends_with("case.json: messages[0]: expected an object, found nothing"));
    fs::write(&case, json!({"messages": [], "kwargs": {"messages": []}}).to_string()).unwrap();
    assert!(fail(1, &arguments).contains("`messages` is the renderer's own"));
}

#[test]
fn a_template_without_an_end_is_refused_soon() {
    let folder = tempfile::tempdir().unwrap();
    let (case, template) = (folder.path().join("case.json"), folder.path().join("template.jinja"));
    let doubled = "{% set ns = namespace(x=['x']) %}{% for i in range(40) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}";
    fs::write(&template, format!("{doubled}{{{{ ns.x ~ '' }}}}")).unwrap();
    fs::write(&case, json!({"messages": []}).to_string()).unwrap();
    let error = fail(1, &["render", "--template", template.to_str().unwrap(), "--case", case.to_str().unwrap()]);
    assert!(error.contains("more steps or memory than allowed"), "{error}");
}

#[test]
fn inspect_shortens_vocabularies_unless_asked_for_all() {
    let file = fixture("tokenizers/llama-spm.gguf").display().to_string();
    let tokens =
        |flags: &[&str]| json(&[&["inspect", &file], flags].concat())["metadata"]["tokenizer.ggml.tokens"].clone();
    let short = tokens(&[]);
    assert_eq!(short["type"], "string");
    assert_eq!(short["length"], json!(tokens(&["--full"]).as_array().unwrap().len()));
}

#[test]
fn inspect_dumps_a_tensor_as_numbers() {
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("norm.f32");
    json(&["inspect", &model("llama-dense"), "--tensor", "token_embd.weight", "--dump", file.to_str().unwrap()]);
    let values = f32_file(&file);
    assert_eq!(values.len() % 448, 0);
    let model = fs::read(model("llama-dense")).unwrap();
    let row: Vec<u8> = values[..64].iter().flat_map(|v| v.to_le_bytes()).collect();
    assert!(model.windows(row.len()).any(|window| window == row), "the values are not the file's");
}

fn text_cases() -> Value {
    serde_json::from_slice(&fs::read(fixture("models/llama-dense/text.json")).unwrap()).unwrap()
}

#[test]
fn tokenize_gives_the_models_own_ids() {
    let cases = text_cases();
    let vectors = cases["tokenizer"]["vectors"].as_array().unwrap();
    let scratch = tempfile::tempdir().unwrap();
    let batch = scratch.path().join("texts.json");
    let texts: Vec<&Value> = vectors.iter().map(|vector| &vector["text"]).collect();
    fs::write(&batch, serde_json::to_vec(&texts).unwrap()).unwrap();
    let ids: Vec<&Value> = vectors.iter().map(|vector| &vector["ids"]).collect();
    assert_eq!(json(&["tokenize", &model("llama-dense"), "--batch", batch.to_str().unwrap()]), json!(ids));
    assert_eq!(&json(&["tokenize", &model("llama-dense"), "--text", texts[0].as_str().unwrap()]), ids[0]);
    let file = scratch.path().join("text.txt");
    fs::write(&file, texts[1].as_str().unwrap()).unwrap();
    assert_eq!(&json(&["tokenize", &model("llama-dense"), "--file", file.to_str().unwrap()]), ids[1]);
}

#[test]
fn control_tokens_in_a_text_count_only_when_asked() {
    let llama = model("llama-dense");
    let plain = json(&["tokenize", &llama, "--text", "<|eot_id|>"]);
    let special = json(&["tokenize", &llama, "--text", "<|eot_id|>", "--special"]);
    assert!(plain.as_array().unwrap().len() > 1);
    assert_eq!(special, json!([441]));
}

#[test]
fn render_gives_the_prompt_exactly() {
    let scratch = tempfile::tempdir().unwrap();
    let case = scratch.path().join("case.json");
    for chat in text_cases()["chat"].as_array().unwrap() {
        let mut kwargs = chat["kwargs"].clone();
        kwargs["add_generation_prompt"] = chat["add_generation_prompt"].clone();
        let body = json!({ "messages": chat["messages"], "tools": chat["tools"], "kwargs": kwargs });
        fs::write(&case, body.to_string()).unwrap();
        let rendered = succeed(&["render", &model("llama-dense"), "--case", case.to_str().unwrap()]);
        assert_eq!(Some(rendered.as_str()), chat["rendered"].as_str());
    }
}

#[test]
fn render_takes_a_template_and_many_cases() {
    let scratch = tempfile::tempdir().unwrap();
    let (template, cases) = (scratch.path().join("t.jinja"), scratch.path().join("cases.json"));
    fs::write(&template, "{% if not messages %}{{ raise_exception('no messages') }}{% endif %}{{ messages[0].content }}|{{ bos_token }}|{{ strftime_now('%Y-%m-%d %H:%M') }}").unwrap();
    let case = json!({ "messages": [{ "role": "user", "content": "hi" }], "special_tokens": { "bos_token": "<s>" } });
    fs::write(&cases, json!([case, { "messages": [] }]).to_string()).unwrap();
    let (template, path) = (template.to_str().unwrap(), cases.to_str().unwrap());
    let both = json(&["render", "--template", template, "--case", path, "--now", "2026-01-02T03:04:05"]);
    assert_eq!(both[0], json!({ "text": "hi|<s>|2026-01-02 03:04" }));
    assert!(both[1]["error"].as_str().unwrap().contains("no messages"), "{both}");
    fs::write(&cases, json!({ "messages": [] }).to_string()).unwrap();
    assert!(fail(1, &["render", "--template", template, "--case", path]).contains("no messages"));
}

#[test]
fn generate_prints_the_text_and_nothing_else() {
    let llama = model("llama-dense");
    let flags = ["--max-tokens", "8", "--temperature", "0"];
    let run = |more: &[&str]| succeed(&[&["generate", &llama, "--prompt", "Hello"], more, &flags].concat());
    let (chat, raw) = (run(&[]), run(&["--raw"]));
    assert!(!chat.is_empty() && !raw.is_empty());
    assert_ne!(chat, raw, "the template makes no difference");
    assert_eq!(run(&[]), chat);
    assert!(!chat.contains("<|start_header_id|>"));
}

/// A copy of the model with other metadata.
fn rewritten(to: &std::path::Path, change: impl Fn(&str, &mut GgufWriter) -> bool) {
    let file = GgufFile::open(model("llama-dense")).unwrap();
    let mut writer = GgufWriter::new();
    for (key, value) in file.metadata().iter() {
        if !change(key, &mut writer) {
            writer.key(key, value.clone());
        }
    }
    for tensor in file.tensors() {
        writer.tensor(&tensor.name, tensor.ty, &tensor.shape, file.tensor_bytes(tensor).unwrap());
    }
    writer.write(fs::File::create(to).unwrap()).unwrap();
}

#[test]
fn a_model_without_a_template_is_named_with_the_flag_that_needs_none() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("plain.gguf");
    rewritten(&file, |key, _| key == "tokenizer.chat_template");
    let file = file.to_str().unwrap();
    let error = fail(1, &["generate", file, "--prompt", "hi"]);
    assert!(error.contains("plain.gguf") && error.contains("--raw") && !error.contains("/v1/"), "{error}");
    succeed(&["generate", file, "--prompt", "hi", "--raw", "--max-tokens", "1"]);
}

#[test]
fn long_values_of_a_file_are_cut_in_errors() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("long.gguf");
    let long = "x".repeat(1 << 20);
    for key in ["general.architecture", "tokenizer.ggml.model", "tokenizer.ggml.pre"] {
        rewritten(&file, |found, writer| {
            if found == key {
                writer.key(key, long.as_str());
            }
            found == key
        });
        let error = fail(1, &["generate", file.to_str().unwrap(), "--prompt", "hi"]);
        assert!(error.len() < 8000 && error.contains("long.gguf"), "{key}: {} bytes", error.len());
        let report = json(&["inspect", file.to_str().unwrap()]);
        assert!(report["config_error"].as_str().is_none_or(|why| why.len() < 8000), "{key}");
    }
}

#[test]
fn a_file_is_named_once_in_an_error_about_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("typed.gguf");
    rewritten(&file, |key, writer| {
        if key == "tokenizer.ggml.model" {
            writer.key(key, 5u32);
        }
        key == "tokenizer.ggml.model"
    });
    let error = fail(1, &["tokenize", file.to_str().unwrap(), "--text", "hi"]);
    assert_eq!(error.matches("typed.gguf").count(), 1, "{error}");
    let graph = bantam(&["inspect", fixture("gguf/two-tensors.gguf").to_str().unwrap(), "--graph"]);
    let error = stderr(&graph).lines().last().unwrap().to_owned();
    assert_eq!(error.matches("two-tensors.gguf").count(), 1, "{error}");
}

#[test]
fn a_recommendation_not_to_draw_is_followed_unless_a_flag_says_otherwise() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("model.gguf");
    fs::copy(model("llama-dense"), &file).unwrap();
    let run = |more: &[&str]| {
        let flags = ["generate", file.to_str().unwrap(), "--prompt", "Hello", "--max-tokens", "24"];
        succeed(&[&flags, more].concat())
    };
    let greedy = run(&["--temperature", "0"]);
    let config = folder.path().join("generation_config.json");
    fs::write(&config, json!({"do_sample": false, "eos_token_id": [99999]}).to_string()).unwrap();
    assert_eq!(run(&["--seed", "5"]), greedy);
    assert_ne!(run(&["--seed", "5", "--temperature", "1.5"]), greedy);
    let warned = bantam(&["generate", file.to_str().unwrap(), "--prompt", "Hello", "--max-tokens", "1"]);
    assert!(stderr(&warned).contains("generation_config.json: eos_token_id names [99999]"), "{}", stderr(&warned));
    fs::write(&config, "[]").unwrap();
    let error = fail(1, &["generate", file.to_str().unwrap(), "--prompt", "Hello"]);
    assert!(error.contains("generation_config.json: expected an object"), "{error}");
}

/// Limits as a shell sets them.
#[cfg(unix)]
#[test]
fn too_few_files_or_too_little_memory_is_an_error_and_no_panic() {
    let run = |limits: &str, arguments: &str| {
        let line = format!("{limits}; exec '{}' {arguments}", env!("CARGO_BIN_EXE_bantam"));
        std::process::Command::new("sh").args(["-c", &line]).output().unwrap()
    };
    let llama = model("llama-dense");
    for files in 5..10 {
        let output = run(&format!("ulimit -n {files}"), &format!("serve '{llama}' --port 0 --host 192.0.2.1"));
        let error = stderr(&output).lines().last().unwrap_or_default().to_owned();
        assert!(error.starts_with("error: ") && !stderr(&output).contains("panicked"), "{files}: {}", stderr(&output));
        assert!(matches!(output.status.code(), Some(1 | 2)), "{files}: {error}");
    }
    let output = run("ulimit -v 2000000", &format!("generate '{llama}' --prompt hi --max-tokens 3 --threads 1"));
    assert!(output.status.success(), "{}", stderr(&output));
}

#[test]
fn the_seed_decides_what_is_drawn() {
    let llama = model("llama-dense");
    let draw = |seed: &str| {
        succeed(&["generate", &llama, "--prompt", "Hello", "--max-tokens", "16", "--temperature", "1", "--seed", seed])
    };
    assert_eq!(draw("1"), draw("1"));
    assert_ne!(draw("1"), draw("2"));
}

#[test]
fn benchmark_measures_the_model_and_the_machine() {
    let report = json(&[
        "benchmark",
        &model("llama-dense"),
        "--prompt-tokens",
        "40",
        "--decode-tokens",
        "8",
        "--batch",
        "2",
        "--depth",
        "5",
        "--iterations",
        "2",
        "--threads",
        "2",
        "--json",
    ]);
    for figure in [
        "prefill_tok_s",
        "decode_tok_s",
        "load_s",
        "peak_rss_bytes",
        "read_gb_s",
        "int8_tops",
        "weight_bytes_per_token",
    ] {
        assert!(report[figure].as_f64().is_some_and(|value| value > 0.0), "{figure}: {report}");
    }
    assert_eq!((&report["threads"], &report["batch"]), (&json!(2), &json!(2)));
    assert!(report["model"].is_string());
}

#[test]
fn a_sweep_prints_a_line_for_each_length_that_another_can_be_compared_with() {
    let llama = model("llama-dense");
    let short = ["--decode-tokens", "3", "--iterations", "1", "--threads", "2"];
    let lines = succeed(&[&["benchmark", &llama, "--sweep=20,70"][..], &short].concat());
    let reports: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let lengths: Vec<_> = reports.iter().map(|report| (&report["prompt_tokens"], &report["depth"])).collect();
    assert_eq!(lengths, [(&json!(20), &json!(20)), (&json!(70), &json!(70))]);

    let folder = tempfile::tempdir().unwrap();
    let [both, last] = ["both.jsonl", "last.json"].map(|name| folder.path().join(name).to_str().unwrap().to_owned());
    fs::write(&both, &lines).unwrap();
    fs::write(&last, lines.lines().last().unwrap()).unwrap();
    let pair = json(&["benchmark", "compare", &both, &last, "--json"]);
    assert_eq!((&pair["prompt_tokens"], &pair["figures"][0]["ratio"]), (&json!(70), &json!(1.0)));
    assert!(succeed(&["benchmark", "compare", &both, &both]).contains("prompt 20, depth 20, batch 1"));

    fs::write(&last, lines.lines().next().unwrap().replace("20", "21")).unwrap();
    assert!(fail(1, &["benchmark", "compare", &last, &both]).contains("no measurement of the same lengths"));
    fs::write(&last, "{}").unwrap();
    assert!(fail(1, &["benchmark", "compare", &both, &last]).contains("last.json: line 1: expected"));
}

#[test]
fn who_asks_is_told_where_the_time_of_steps_goes() {
    let scratch = tempfile::tempdir().unwrap();
    let trace = scratch.path().join("trace.json");
    let told = support::command()
        .args(["benchmark", &model("llama-dense"), "--prompt-tokens", "40", "--decode-tokens", "8", "--threads", "2"])
        .env("BANTAM_PROFILE", "1")
        .env("BANTAM_TRACE", &trace)
        .output()
        .unwrap();
    assert!(told.status.success(), "{}", stderr(&told));
    let table = stderr(&told);
    for word in
        ["\nprefill: ", " steps of 40 rows", "\ndecode: ", " steps of 1 rows", "linear logits", "between regions"]
    {
        assert!(table.contains(word), "{word}: {table}");
    }
    let events = fs::read_to_string(trace).unwrap().trim_end().trim_end_matches(',').to_owned() + "]";
    let events: Vec<Value> = serde_json::from_str(&events).unwrap();
    assert!(events.iter().any(|event| event["name"].as_str().unwrap().starts_with("attend")));
    assert!(events.iter().all(|event| event["dur"].as_f64().unwrap() >= 0.0));
}

#[test]
fn a_conversation_is_measured_through_the_engine() {
    let gemma = model("gemma3-dense");
    let short = ["--prompt-tokens", "30", "--decode-tokens", "4", "--iterations", "1", "--threads", "2"];
    let cold: &[&str] = if cfg!(target_os = "linux") { &["--cold-cache"] } else { &[] };
    let report = json(&[&["benchmark", &gemma, "--chat", "--json"][..], &short, cold].concat());
    let turns = report["chat"].as_array().unwrap();
    assert_eq!(turns.len(), 2);
    for turn in turns {
        assert!(turn["ttft_s"].as_f64().unwrap() > 0.0 && turn["decode_tok_s"].as_f64().unwrap() > 0.0, "{turn}");
    }
    assert!(
        turns[1]["cached_tokens"].as_u64() >= turns[0]["prompt_tokens"].as_u64().map(|tokens| tokens / 2),
        "{report}"
    );
    assert!(report["first_token_s"].as_f64() >= report["load_s"].as_f64());
}

#[test]
fn doctor_tells_how_it_is_and_fails_only_on_a_failure() {
    let scratch = tempfile::tempdir().unwrap();
    let run = |home: &std::path::Path, flags: &[&str]| {
        support::command().arg("doctor").args(flags).env("BANTAM_HOME", home).output().unwrap()
    };
    let well = run(scratch.path(), &[]);
    assert!(well.status.success(), "{}{}", stdout(&well), stderr(&well));
    let marked = |line: &str| ["[ok]", "[warn]"].iter().any(|mark| line.starts_with(mark));
    assert!(stdout(&well).lines().all(marked), "{}", stdout(&well));
    for part in ["gpu", "NVIDIA driver", "NVRTC", "CUDA headers", "cuBLAS"] {
        assert!(
            stdout(&well)
                .lines()
                .any(|line| line.contains(&format!("] {part}: ")) || line.contains(&format!("]   {part}: "))),
            "{part}"
        );
    }
    let as_json: Value = serde_json::from_slice(&run(scratch.path(), &["--json"]).stdout).unwrap();
    assert_eq!(as_json["checks"].as_array().unwrap().len(), stdout(&well).lines().count());

    let absent = scratch.path().join("not/there/yet");
    assert!(stdout(&run(&absent, &[])).contains("can be made when it is needed"));
    assert!(!absent.exists() && !scratch.path().join("not").exists(), "a look has made folders");

    let file = scratch.path().join("file");
    fs::write(&file, "").unwrap();
    let ill = run(&file, &[]);
    assert_eq!(ill.status.code(), Some(1));
    assert!(
        stdout(&ill).lines().any(|l| l.starts_with("[FAIL] home") && l.contains("BANTAM_HOME")),
        "{}",
        stdout(&ill)
    );
    assert!(stderr(&ill).lines().last().unwrap().starts_with("error: home"));
}

#[test]
fn a_plan_is_a_table_or_json() {
    let mixture = model("qwen3moe-a");
    let described = ["plan", &mixture, "--vram", "1GiB", "--ram", "8GiB"];
    let table = succeed(&described);
    for part in ["qwen3moe", "device 0", "1.00 GiB of 1.00 GiB free", "state of one sequence", "host", "8.00 GiB free"]
    {
        assert!(table.contains(part), "{part} is not in\n{table}");
    }
    assert!(table.contains("all on the device") && table.contains("as a whole"), "{table}");
    let plan = json(&[&described[..], &["--json"]].concat());
    assert_eq!((&plan["device"]["index"], &plan["spilled"]), (&json!(0), &json!(false)));
    let used = |place: &Value| {
        let uses = place["uses"].as_array().unwrap();
        let sum: u64 = uses.iter().map(|used| used["bytes"].as_u64().unwrap()).sum();
        assert_eq!(place["used_bytes"].as_u64(), Some(sum));
        sum
    };
    assert_eq!(used(&plan["device"]) + plan["device"]["left_bytes"].as_u64().unwrap(), 1 << 30);
    assert_eq!(used(&plan["host"]) + plan["host"]["left_bytes"].as_u64().unwrap(), 8 << 30);
    assert_eq!(plan["experts"]["mode"], "resident");
    assert_eq!(plan["experts"]["on_device"], plan["experts"]["experts"]);
    let layers = plan["layers"].as_array().unwrap();
    assert!(layers.iter().all(|layer| layer["mixer"] == "device" && layer["feed_forward"] == "device"), "{plan}");

    // The largest device is taken, and the CPU where that is said or nothing else is there.
    let two = json(&["plan", &mixture, "--vram", "1GiB", "--vram", "2GiB", "--backend", "cuda", "--json"]);
    assert_eq!(two["device"]["index"], 1);
    for flags in [&["--vram", "1GiB", "--backend", "cpu"][..], &["--vram", "1GiB", "-ngl", "0"], &[]] {
        let plan = json(&[&["plan", &mixture, "--json"], flags].concat());
        assert_eq!((&plan["device"], &plan["experts"]["mode"]), (&Value::Null, &json!("cpu")), "{flags:?}");
    }
    let one =
        json(&["plan", &mixture, "--vram", "1GiB", "-ngl", "1", "--expert-mode", "cpu", "--kv", "auto", "--json"]);
    let mixers: Vec<_> =
        one["layers"].as_array().unwrap().iter().map(|layer| layer["mixer"].as_str().unwrap()).collect();
    assert!(
        mixers.iter().rev().skip(1).all(|place| *place == "host") && mixers.last() == Some(&"device"),
        "{mixers:?}"
    );
    assert_eq!((&one["experts"]["on_device"], &one["cache_type_k"]), (&json!(0), &json!("f16")));
}

#[test]
fn a_plan_that_does_not_fit_is_refused_with_the_numbers_and_what_helps() {
    let mixture = model("qwen3moe-a");
    let host = fail(1, &["plan", &mixture, "--ram", "1MiB"]);
    assert!(host.starts_with("error: the host: ") && host.contains("1.0 MiB"), "{host}");
    let device = ["plan", &mixture, "--vram", "100MiB", "--expert-mode", "resident", "--json"];
    let refused = fail(1, &device);
    assert!(refused.contains("device 0") && refused.contains("there are 100.0 MiB"), "{refused}");
    assert!(refused.ends_with("--expert-mode auto makes it fit"), "{refused}");
    let spilled = json(&["plan", &mixture, "--vram", "100MiB", "--json"]);
    assert_eq!((&spilled["spilled"], &spilled["device"]), (&json!(true), &Value::Null));
    assert!(succeed(&["plan", &mixture, "--vram", "100MiB"]).contains("nothing fits on the device"));
    let none = fail(1, &["plan", &mixture, "--vram", "1GiB", "--device", "3"]);
    assert!(none.contains("--device 3: there is one device, number 0"), "{none}");
    let dense = fail(1, &["plan", &model("llama-dense"), "--vram", "1GiB", "--gpu-cache-mib", "10"]);
    assert!(dense.contains("--gpu-cache-mib 10: the model has no routed experts"), "{dense}");
}

#[test]
fn a_server_tells_what_it_has_planned() {
    let server = support::Server::spawn(support::command().args([
        "serve",
        &model("qwen3moe-a"),
        "--port",
        "0",
        "-ngl",
        "auto",
        "--kv",
        "auto",
    ]));
    let line = server.line_with("CPU: ");
    for part in ["dense weights", "routed experts", "state of one sequence", "4 sequences", "keys in f16"] {
        assert!(line.contains(part), "{part} is not in {line}");
    }
}

#[test]
fn a_reader_that_stops_early_is_no_failure() {
    use std::{io::Read as _, process::Stdio};
    let file = fixture("tokenizers/llama-spm.gguf").display().to_string();
    let mut command = support::command();
    let mut child =
        command.args(["inspect", &file, "--full"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut pipe = child.stdout.take().unwrap();
    pipe.read_exact(&mut [0; 16]).unwrap();
    drop(pipe);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(stderr(&output), "");
}

#[test]
fn a_probe_goes_on_from_state_that_another_process_saved() {
    let scratch = tempfile::tempdir().unwrap();
    let path = |name: &str| scratch.path().join(name).display().to_string();
    let (model, state) = (model("qwen3-dense"), path("state"));
    let whole = json(&["probe", &model, "--tokens", "5,9,2,7,7,3,1", "--greedy", "4", "--logits", &path("whole")]);
    succeed(&["probe", &model, "--tokens", "5,9,2,7", "--save", &state]);
    let restore = ["probe", &model, "--tokens", "5,9,2,7,7,3,1", "--greedy", "4", "--restore", &state];
    let rest = json(&[&restore[..], &["--logits", &path("rest")]].concat());
    assert_eq!(rest["greedy"], whole["greedy"]);
    assert_eq!(rest["counters"]["reused_tokens"], 4);
    let (whole, rest) = (fs::read(path("whole")).unwrap(), fs::read(path("rest")).unwrap());
    assert!(whole.ends_with(&rest) && rest.len() * 7 == whole.len() * 3, "bytes of the rows behind the restored ones");

    let other_type = fail(1, &[&restore[..], &["--kv", "f16"]].concat());
    assert!(other_type.contains("another model or configuration"), "{other_type}");
    let mut damaged = fs::read(&state).unwrap();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    fs::write(&state, damaged).unwrap();
    assert!(fail(1, &restore).contains("damaged snapshot"));
}
