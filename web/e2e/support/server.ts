import { type ChildProcess, spawn } from "node:child_process";
import { mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { built } from "./built";

/** The server whose model says what a script tells it to: `cargo build --profile ci -p bantam-protocols --example scripted`. */
const SCRIPTED = process.env.BANTAM_SCRIPTED ?? built("examples/scripted");

/** What the model says when the prompt has `when`; the last such text decides. */
export interface Answer {
    when: string;
    say: string;
    /** Milliseconds a token takes. */
    ms?: number;
    fails?: boolean;
}

export interface Script {
    answers: Answer[];
    prompt_ms?: number;
}

export interface Server {
    url: string;
    port: number;
    /** Ends it as a crash would, and waits until it is gone. */
    kill(): Promise<void>;
}

/** Starts the scripted server; `flags` are its own. */
export function startScripted(script: Script, flags: readonly string[] = []): Promise<Server> {
    const path = join(mkdtempSync(join(tmpdir(), "bantam-e2e-")), "script.json");
    writeFileSync(path, JSON.stringify(script));
    return start(SCRIPTED, [path, ...flags]);
}

/** Starts a program that tells on standard error where it listens. */
export async function start(program: string, args: readonly string[]): Promise<Server> {
    const child = spawn(program, args, { stdio: ["ignore", "ignore", "pipe"] });
    const url = await listening(child);
    return { url, port: Number(new URL(url).port), kill: () => kill(child) };
}

function listening(child: ChildProcess): Promise<string> {
    return new Promise((resolve, reject) => {
        let said = "";
        child.stderr?.on("data", (piece) => {
            said += piece;
            const url = /listening on (http:\/\/\S+)/.exec(said)?.[1];
            if (url) resolve(url);
        });
        child.on("error", reject);
        child.on("exit", (code) => reject(new Error(`The server ended (${code}) before it listened: ${said}`)));
    });
}

function kill(child: ChildProcess): Promise<void> {
    if (child.exitCode !== null || child.signalCode !== null) return Promise.resolve();
    return new Promise((resolve) => {
        child.once("exit", () => resolve());
        child.kill("SIGKILL");
    });
}
