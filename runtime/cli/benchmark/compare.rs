//! Two results beside each other.

use std::path::Path;

use bantam_runtime::words::printable;
use serde::Serialize;

use super::report::Report;
use crate::{error::CliError, output};

/// A figure of two results.
#[derive(Debug, Serialize)]
struct Figure {
    name: &'static str,
    a: f64,
    b: f64,
    /// `b / a`.
    ratio: f64,
}

/// Results for the same lengths.
#[derive(Debug, Serialize)]
struct Pair {
    a: String,
    b: String,
    prompt_tokens: usize,
    depth: usize,
    batch: usize,
    figures: Vec<Figure>,
}

/// Prints every result of `b` beside that of `a` for the same lengths.
///
/// # Errors
/// A file that cannot be read or holds something else; files without any lengths in common.
pub(super) fn run(a: &Path, b: &Path, json: bool) -> Result<(), CliError> {
    let (of_a, of_b) = (read(a)?, read(b)?);
    let pairs: Vec<Pair> =
        of_b.iter().filter_map(|b| of_a.iter().find(|a| lengths(a) == lengths(b)).map(|a| Pair::new(a, b))).collect();
    if pairs.is_empty() {
        let all = |reports: &[Report]| reports.iter().map(described).collect::<Vec<_>>().join("; ");
        return Err(CliError::Failed(format!(
            "{} and {} have no measurement of the same lengths in common ({} / {})",
            a.display(),
            b.display(),
            all(&of_a),
            all(&of_b)
        )));
    }
    if json { pairs.iter().try_for_each(output::json) } else { output::text(&table(&pairs)) }
}

fn lengths(report: &Report) -> (usize, usize, usize) {
    (report.prompt_tokens, report.depth, report.batch)
}

fn described(report: &Report) -> String {
    format!("prompt {}, depth {}, batch {}", report.prompt_tokens, report.depth, report.batch)
}

fn read(file: &Path) -> Result<Vec<Report>, CliError> {
    let named = |why: String| CliError::Failed(format!("{}: {why}", file.display()));
    let text = std::fs::read_to_string(file).map_err(|e| named(e.to_string()))?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let reports: Vec<Report> = lines
        .map(|(index, line)| {
            let expected = "expected what `benchmark --json` or `--sweep` prints";
            serde_json::from_str(line).map_err(|e| named(format!("line {}: {expected}: {e}", index + 1)))
        })
        .collect::<Result<_, _>>()?;
    if reports.is_empty() {
        Err(named("expected what `benchmark --json` or `--sweep` prints, found nothing".into()))
    } else {
        Ok(reports)
    }
}

impl Pair {
    fn new(a: &Report, b: &Report) -> Self {
        let figure = |name, value: &dyn Fn(&Report) -> Option<f64>| {
            let (a, b) = (value(a)?, value(b)?);
            Some(Figure { name, a, b, ratio: b / a })
        };
        let turn = |index: usize| move |report: &Report| report.chat.map(|turns| turns[index]);
        let figures = [
            figure("prefill tok/s", &|r| Some(r.prefill_tok_s)),
            figure("decode tok/s", &|r| Some(r.decode_tok_s)),
            figure("decode, share of bound", &|r| Some(r.decode_bound_share())),
            figure("load s", &|r| Some(r.load_s)),
            figure("first token s", &|r| Some(r.first_token_s)),
            figure("first turn ttft s", &|r| turn(0)(r).map(|turn| turn.ttft_s)),
            figure("second turn ttft s", &|r| turn(1)(r).map(|turn| turn.ttft_s)),
            figure("chat decode tok/s", &|r| turn(1)(r).map(|turn| turn.decode_tok_s)),
            figure("peak memory GB", &|r| r.peak_rss_bytes.map(|bytes| bytes as f64 / 1e9)),
            figure("machine: read GB/s", &|r| Some(r.read_gb_s)),
            figure("machine: int8 TOPS", &|r| Some(r.int8_tops)),
        ];
        Pair {
            a: a.model.clone(),
            b: b.model.clone(),
            prompt_tokens: b.prompt_tokens,
            depth: b.depth,
            batch: b.batch,
            figures: figures.into_iter().flatten().collect(),
        }
    }

    fn table(&self) -> String {
        let head = format!("prompt {}, depth {}, batch {}", self.prompt_tokens, self.depth, self.batch);
        let models = format!("A {}\nB {}\n", printable(&self.a), printable(&self.b));
        let rows = self.figures.iter().map(|figure| {
            format!("{:<24}{:>12} {:>12} {:>8.3}\n", figure.name, digits(figure.a), digits(figure.b), figure.ratio)
        });
        format!("{models}{head:<24}{:>12} {:>12} {:>8}\n{}", "A", "B", "B/A", rows.collect::<String>())
    }
}

fn table(pairs: &[Pair]) -> String {
    pairs.iter().map(Pair::table).collect::<Vec<_>>().join("\n")
}

/// Four digits that matter.
fn digits(value: f64) -> String {
    let decimals = (3 - value.abs().max(1e-9).log10().floor() as i64).clamp(0, 6) as usize;
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::digits;

    #[test]
    fn four_digits_are_shown() {
        assert_eq!([1234.56, 12.3456, 0.123_456, 0.0].map(digits), ["1235", "12.35", "0.1235", "0.000000"]);
    }
}
