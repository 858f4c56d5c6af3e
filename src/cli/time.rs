//! Times as people and programs read them: RFC 3339, in UTC unless asked otherwise.

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use super::Failure;

/// A time from microseconds since the Unix epoch.
pub(crate) fn from_micros(micros: u64) -> Option<Timestamp> {
    Timestamp::from_microsecond(i64::try_from(micros).ok()?).ok()
}

/// A time as a line of a file has it.
pub(crate) fn parse(text: &str) -> Option<Timestamp> {
    text.parse().ok()
}

/// RFC 3339.
pub(crate) fn rfc3339(time: Timestamp, local: bool) -> String {
    if local {
        let zoned = time.to_zoned_datetime(TimeZone::system());
        return zoned.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string();
    }
    time.to_string()
}

/// To the second, for tables.
pub(crate) fn short(time: Timestamp, local: bool) -> String {
    let seconds = Timestamp::from_second(time.as_second()).unwrap_or(time);
    rfc3339(seconds, local)
}

/// Seconds since `start`, for reports.
pub(crate) fn seconds_since(start: std::time::Instant) -> f64 {
    let elapsed = SignedDuration::try_from(start.elapsed()).unwrap_or_default();
    (elapsed.as_secs_f64() * 1e6).round() / 1e6
}

/// A time that the user gives, in microseconds since the Unix epoch: RFC 3339, `yesterday`, or how
/// long ago: `2h`, `3d`.
pub(crate) fn parse_since(text: &str) -> Result<i64, Failure> {
    let now = jiff::ZonedDateTime::now();
    let ago = |text: &str| {
        let span = text.parse::<jiff::Span>().ok()?;
        now.checked_sub(span).ok().map(|then| then.timestamp())
    };
    let then = match text.trim() {
        "today" => now.start_of_day().ok().map(|day| day.timestamp()),
        "yesterday" => {
            now.yesterday().and_then(|day| day.start_of_day()).ok().map(|d| d.timestamp())
        }
        text => parse(text).or_else(|| ago(text)),
    };
    then.map(|then| then.as_microsecond()).ok_or_else(|| {
        let hint = "give 2026-03-01T10:00:00Z, 2h, 3d, today or yesterday";
        Failure::usage(format!("{text:?} is no time"), hint)
    })
}
