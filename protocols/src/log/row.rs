//! One request as one aligned row of the log.

use std::fmt::Write as _;
use std::time::Duration;

use bantam_runtime::words::printable;

/// Stands where a request has no such figure.
const NONE: &str = "--";
/// Longest endpoint shown; paths that clients make up must not push the columns apart.
const ENDPOINT_WIDTH: usize = 20;
/// Longest reason shown.
const REASON_WIDTH: usize = 200;

const DIM: &str = "\x1b[2m";
const RED: &str = "\x1b[31m";
const RESET: &str = "\x1b[0m";

/// How a request ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// A generation that ended by itself: `stop` or `length`.
    Finished(&'static str),
    /// Another request that was answered with this status.
    Answered(u16),
    /// The client left before the end.
    Gone,
    /// Refused with this status, and why.
    Refused(u16, String),
    /// Broken off in the middle of a stream, and why.
    Failed(String),
}

impl Ending {
    pub(crate) fn is_failure(&self) -> bool {
        matches!(self, Ending::Refused(..) | Ending::Failed(_))
    }

    fn word(&self) -> String {
        match self {
            Ending::Finished(reason) => (*reason).to_owned(),
            Ending::Answered(status) | Ending::Refused(status, _) => status.to_string(),
            Ending::Gone => "gone".to_owned(),
            Ending::Failed(_) => "failed".to_owned(),
        }
    }

    fn reason(&self) -> Option<&str> {
        match self {
            Ending::Refused(_, why) | Ending::Failed(why) => Some(why),
            _ => None,
        }
    }
}

/// What the log says of a request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row {
    /// Time of day, `HH:MM:SS`.
    pub(crate) time: String,
    pub(crate) endpoint: String,
    pub(crate) prompt_tokens: Option<usize>,
    pub(crate) cached_tokens: Option<usize>,
    /// From the request's arrival to its first token.
    pub(crate) first_token: Option<Duration>,
    pub(crate) completion_tokens: Option<usize>,
    /// From the first token to the last.
    pub(crate) decode: Option<Duration>,
    pub(crate) ending: Ending,
    /// Said behind the columns.
    pub(crate) note: Option<String>,
    pub(crate) total: Duration,
}

/// The local time of day.
pub(crate) fn time_of_day() -> String {
    jiff::ZonedDateTime::now().strftime("%H:%M:%S").to_string()
}

/// The line above the rows.
pub(crate) fn header(colour: bool) -> String {
    let line = columns(["time", "endpoint", "prompt", "cached", "ttft", "out", "tok/s", "finish", "total"]);
    if colour { format!("{DIM}{line}{RESET}") } else { line }
}

impl Row {
    /// The row as text, without an end of line.
    pub(crate) fn line(&self, colour: bool) -> String {
        let or_none = |text: Option<String>| text.unwrap_or_else(|| NONE.to_owned());
        let mut line = columns([
            &self.time,
            &shorten(&self.endpoint, ENDPOINT_WIDTH),
            &or_none(self.prompt_tokens.map(count)),
            &or_none(self.cached_share()),
            &or_none(self.first_token.map(duration)),
            &or_none(self.completion_tokens.map(count)),
            &or_none(self.speed()),
            &self.ending.word(),
            &duration(self.total),
        ]);
        for said in [self.ending.reason(), self.note.as_deref()].into_iter().flatten() {
            let _ = write!(line, "  {}", shorten(said, REASON_WIDTH));
        }
        if colour && self.ending.is_failure() { format!("{RED}{line}{RESET}") } else { line }
    }

    fn cached_share(&self) -> Option<String> {
        let (cached, prompt) = (self.cached_tokens?, self.prompt_tokens?);
        // Rounded down: 100% means that nothing had to be computed.
        let percent = cached.saturating_mul(100).checked_div(prompt)?;
        Some(format!("{percent}%"))
    }

    /// Tokens a second after the first one.
    fn speed(&self) -> Option<String> {
        let after_first = self.completion_tokens?.checked_sub(1).filter(|n| *n > 0)?;
        let seconds = self.decode.filter(|d| !d.is_zero())?.as_secs_f64();
        let speed = after_first as f64 / seconds;
        Some(if speed < 99.95 { format!("{speed:.1}") } else { format!("{speed:.0}") })
    }
}

fn columns(cells: [&str; 9]) -> String {
    let [time, endpoint, prompt, cached, ttft, out, speed, finish, total] = cells;
    format!(
        "{time:<8}  {endpoint:<ENDPOINT_WIDTH$}  {prompt:>6}  {cached:>6}  {ttft:>6}  {out:>6}  {speed:>6}  \
         {finish:<6}  {total:>6}"
    )
}

/// A count in at most five characters: `312`, `26.5k`, `128k`, `1.2M`.
fn count(n: usize) -> String {
    let n = n as f64;
    match n {
        ..1000.0 => format!("{n:.0}"),
        ..99_950.0 => format!("{:.1}k", n / 1e3),
        ..999_500.0 => format!("{:.0}k", n / 1e3),
        _ => format!("{:.1}M", n / 1e6),
    }
}

/// A duration in at most six characters: `420ms`, `8.1s`, `2m05s`, `1h02m`.
fn duration(d: Duration) -> String {
    let seconds = d.as_secs_f64();
    let whole = seconds.round() as u64;
    match seconds {
        ..0.0005 => "<1ms".to_owned(),
        ..0.9995 => format!("{:.0}ms", seconds * 1e3),
        ..59.95 => format!("{seconds:.1}s"),
        ..3599.5 => format!("{}m{:02}s", whole / 60, whole % 60),
        _ => format!("{}h{:02}m", whole / 3600, whole % 3600 / 60),
    }
}

/// The text on one line and in at most so many characters; control characters, which clients can send, are escaped.
fn shorten(text: &str, most: usize) -> String {
    let clean = printable(text);
    if clean.chars().count() <= most {
        return clean;
    }
    clean.chars().take(most.saturating_sub(1)).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn row(ending: Ending) -> Row {
        Row {
            time: "14:03:27".into(),
            endpoint: "/v1/chat/completions".into(),
            prompt_tokens: Some(26_512),
            cached_tokens: Some(26_000),
            first_token: Some(Duration::from_millis(420)),
            completion_tokens: Some(313),
            decode: Some(Duration::from_secs(8)),
            ending,
            note: None,
            total: Duration::from_millis(8_440),
        }
    }

    #[test]
    fn a_finished_generation_fills_every_column_under_its_heading() {
        assert_eq!(
            header(false),
            "time      endpoint              prompt  cached    ttft     out   tok/s  finish   total"
        );
        assert_eq!(
            row(Ending::Finished("stop")).line(false),
            "14:03:27  /v1/chat/completions   26.5k     98%   420ms     313    39.0  stop      8.4s"
        );
    }

    #[test]
    fn a_refusal_shows_dashes_and_the_reason() {
        let refused = Row {
            prompt_tokens: None,
            cached_tokens: None,
            first_token: None,
            completion_tokens: None,
            decode: None,
            total: Duration::from_micros(1_600),
            ..row(Ending::Refused(400, "`messages[2].content` must be a string,\nfound an integer".into()))
        };
        assert_eq!(
            refused.line(false),
            "14:03:27  /v1/chat/completions      --      --      --      --      --  400        2ms  \
             `messages[2].content` must be a string,\\nfound an integer"
        );
    }

    #[test]
    fn only_failures_are_red_and_only_with_colour() {
        let failed = row(Ending::Failed("the executor stopped".into()));
        assert!(failed.line(true).starts_with(RED) && failed.line(true).ends_with(RESET));
        assert!(!failed.line(false).contains('\x1b'));
        assert!(!row(Ending::Gone).line(true).contains('\x1b'));
    }

    proptest! {
        #[test]
        fn what_clients_make_up_can_neither_break_the_line_nor_colour_it(path in "/\\PC{0,40}|/[\\x00-\\x7f]{0,40}", why in ".{0,300}") {
            let line = Row { endpoint: path, ..row(Ending::Refused(400, why)) }.line(false);
            prop_assert!(!line.contains(char::is_control));
            let columns: Vec<char> = line.chars().collect();
            let total = header(false).find("total").unwrap() + 5;
            prop_assert_eq!(columns[total - 4..total].iter().collect::<String>(), "8.4s");
            prop_assert!(columns.len() <= total + 2 + REASON_WIDTH);
        }
    }

    #[test]
    fn counts_and_durations_keep_to_their_columns() {
        let cases =
            [(0, "0"), (999, "999"), (1_000, "1.0k"), (99_949, "99.9k"), (128_000, "128k"), (1_200_000, "1.2M")];
        for (n, text) in cases {
            assert_eq!(count(n), text);
        }
        let cases =
            [(0, "<1ms"), (999, "999ms"), (1_000, "1.0s"), (59_900, "59.9s"), (125_000, "2m05s"), (3_720_000, "1h02m")];
        for (ms, text) in cases {
            assert_eq!(duration(Duration::from_millis(ms)), text);
        }
    }

    #[test]
    fn speed_needs_two_tokens_and_share_needs_a_prompt() {
        let one = Row { completion_tokens: Some(1), ..row(Ending::Finished("length")) };
        assert_eq!(one.speed(), None);
        let instant = Row { decode: Some(Duration::ZERO), ..row(Ending::Finished("stop")) };
        assert_eq!(instant.speed(), None);
        let empty = Row { prompt_tokens: Some(0), cached_tokens: Some(0), ..row(Ending::Finished("stop")) };
        assert_eq!(empty.cached_share(), None);
        let nearly = Row { prompt_tokens: Some(1000), cached_tokens: Some(999), ..row(Ending::Finished("stop")) };
        assert_eq!(nearly.cached_share().as_deref(), Some("99%"));
    }
}
