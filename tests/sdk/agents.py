"""Real agents to the end of a task with tools, against a server whose model says what a script tells it to:
python agents.py SCRIPTED FOLDER [NAME...]

SCRIPTED is the built example (`cargo build --profile ci -p bantam-protocols --example scripted`), FOLDER has the agents'
commands, as `npm install @openai/codex @anthropic-ai/claude-code opencode-ai` puts them into `node_modules/.bin`. Those that
are not there are passed over. Each is asked for a note; the model calls the agent's tool for commands, reads what that printed,
and ends.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

SCRIPTED, FOLDER = (pathlib.Path(path).resolve() for path in sys.argv[1:3])
# What the command prints is nowhere in the command: the model has read it if it says the last words.
COMMAND = "echo made > note.txt && echo star''board"
PRINTED, LAST = "starboard", "The note is made."
MODEL = "scripted"


def call(name, **arguments):
    """A turn that thinks, says something, and calls a tool."""
    written = json.dumps({"name": name, "arguments": arguments})
    return f"<think>\nA note is wanted.\n</think>\n\nI make it.\n<tool_call>\n{written}\n</tool_call>"


def claude(url, home):
    more = {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_AUTH_TOKEN": "x", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
    return ["claude", "-p", "claude-note, please", "--model", MODEL, "--allowedTools", "Bash"], more


def codex(url, home):
    (home / ".codex").mkdir()
    provider = {"name": "Bantam", "base_url": f"{url}/v1", "wire_api": "responses"}
    lines = [f'model = "{MODEL}"', 'model_provider = "bantam"', "[model_providers.bantam]"]
    lines += [f"{key} = {json.dumps(value)}" for key, value in provider.items()]
    (home / ".codex" / "config.toml").write_text("\n".join(lines))
    flags = ["--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
    return ["codex", "exec", *flags, "codex-note, please"], {}


def opencode(url, home):
    provider = {
        "npm": "@ai-sdk/openai-compatible", "name": "Bantam", "options": {"baseURL": f"{url}/v1", "apiKey": "x"},
        "models": {MODEL: {"name": MODEL}},
    }
    config = {"model": f"bantam/{MODEL}", "autoupdate": False, "provider": {"bantam": provider}}
    config["permission"] = {"bash": "allow"}
    return ["opencode", "run", "opencode-note, please"], {"OPENCODE_CONFIG_CONTENT": json.dumps(config)}


AGENTS = {
    "claude": (claude, call("Bash", command=COMMAND, description="Makes a note")),
    "codex": (codex, call("exec_command", cmd=COMMAND)),
    "opencode": (opencode, call("bash", command=COMMAND)),
}


def server(folder):
    """The server and its address."""
    answers = [{"when": "", "say": "Nothing."}, {"when": PRINTED, "say": LAST}]
    answers += [{"when": f"{name}-note", "say": say} for name, (_, say) in AGENTS.items()]
    script = folder / "script.json"
    script.write_text(json.dumps({"answers": answers}))
    log = folder / "server.log"
    with log.open("w") as written:
        process = subprocess.Popen([SCRIPTED, script, "--context", "300000"], stderr=written)
    for _ in range(300):
        if "listening on " in log.read_text():
            return process, log.read_text().split("listening on ")[1].split()[0]
        assert process.poll() is None, log.read_text()
        time.sleep(0.1)
    process.kill()
    raise AssertionError(f"the server does not listen: {log.read_text()}")


def run(name, url, folder):
    home, work = folder / f"{name}-home", folder / f"{name}-work"
    home.mkdir()
    work.mkdir()
    command, more = AGENTS[name][0](url, home)
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("ANTHROPIC_", "OPENAI_"))}
    places = {"HOME": home, "PWD": work, "XDG_DATA_HOME": home / "data", "XDG_CONFIG_HOME": home / "config"}
    environment |= {key: str(place) for key, place in places.items()} | more
    told = subprocess.run(
        [FOLDER / command[0], *command[1:]], cwd=work, env=environment, stdin=subprocess.DEVNULL, capture_output=True,
        text=True, timeout=300,
    )
    assert told.returncode == 0, (told.stdout, told.stderr)
    assert LAST in told.stdout, (told.stdout, told.stderr)
    note = work / "note.txt"
    assert note.exists() and note.read_text() == "made\n", (told.stdout, told.stderr)


def main():
    names = sys.argv[3:] or [name for name in AGENTS if (FOLDER / name).exists()]
    assert names, f"there is none of {', '.join(AGENTS)} in {FOLDER}"
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        process, url = server(folder)
        try:
            for name in names:
                run(name, url, folder)
                print("ok", name)
        finally:
            process.terminate()
            process.wait()


main()
