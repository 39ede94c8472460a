//! `strftime_now`: the date and time as templates ask for it.

use jiff::civil::DateTime;
use jiff::fmt::strtime;
use minijinja::{Error, ErrorKind, State};

use super::guard;

/// The local date and time.
pub fn local_now() -> DateTime {
    jiff::ZonedDateTime::now().datetime()
}

/// Most bytes that one byte of a format may become: `%c`, and fields padded to a width.
const GROWTH: usize = 128;

/// `datetime.strftime` of a time without a zone, for a template that pays for it.
pub(super) fn strftime(state: &State<'_, '_>, now: DateTime, format: &str) -> Result<String, Error> {
    guard::pay_bytes(state, format.len().saturating_mul(GROWTH))?;
    format_time(now, format)
}

fn format_time(now: DateTime, format: &str) -> Result<String, Error> {
    strtime::format(c_locale(format), now)
        .map_err(|error| Error::new(ErrorKind::InvalidOperation, format!("strftime_now({format:?}): {error}")))
}

/// `format` with those directives spelled out that depend on the locale or need a zone.
fn c_locale(format: &str) -> String {
    let mut spelled = String::with_capacity(format.len());
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            spelled.push(c);
            continue;
        }
        match chars.next() {
            Some('c') => spelled.push_str("%a %b %e %H:%M:%S %Y"),
            Some('x') => spelled.push_str("%m/%d/%y"),
            Some('X') => spelled.push_str("%H:%M:%S"),
            Some('f') => spelled.push_str("%6f"),
            Some('z' | 'Z') => {}
            Some(directive) => spelled.extend(['%', directive]),
            None => spelled.push_str("%%"),
        }
    }
    spelled
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_written_as_python_writes_them() {
        let now: DateTime = "2026-10-01T12:34:56".parse().unwrap();
        for (format, want) in [
            ("%d %b %Y", "01 Oct 2026"),
            ("%A, %B %d, %Y", "Thursday, October 01, 2026"),
            ("%Y-%m-%d %H:%M:%S", "2026-10-01 12:34:56"),
            ("%a %-d %j %I %p %y 100%%", "Thu 1 274 12 PM 26 100%"),
            ("%c|%x|%X|%f|%z|%Z", "Thu Oct  1 12:34:56 2026|10/01/26|12:34:56|000000||"),
        ] {
            assert_eq!(format_time(now, format).unwrap(), want);
        }
        assert!(format_time(now, "%!").is_err());
    }
}
