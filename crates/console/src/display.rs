//! Formats numbers, times and statuses, the same on every page.

use std::time::Duration;

use registry::{ExecutionStatus, Status, Timestamp};

use crate::html::{Html, html};

/// A number with thousands separators.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push('\u{202f}');
        }
        out.push(digit);
    }
    out
}

/// `1 server`, `2 servers`.
pub(crate) fn several(number: u64, one: &str) -> String {
    format!("{} {one}{}", count(number), if number == 1 { "" } else { "s" })
}

/// A duration.
pub(crate) fn took(span: Duration) -> String {
    let seconds = span.as_secs_f64();
    match seconds {
        _ if seconds < 0.000_95 => format!("{:.0} µs", seconds * 1e6),
        _ if seconds < 0.0995 => format!("{:.1} ms", seconds * 1e3),
        _ if seconds < 0.9995 => format!("{:.0} ms", seconds * 1e3),
        _ if seconds < 99.95 => format!("{seconds:.1} s"),
        _ => long(span),
    }
}

/// A long duration, in its two largest units.
pub(crate) fn long(span: Duration) -> String {
    let seconds = span.as_secs();
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        3600..86_400 => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

/// A size in bytes.
pub(crate) fn size(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{:.1} KB", bytes as f64 / 1024.0),
        1_048_576..1_073_741_824 => format!("{:.1} MB", bytes as f64 / 1_048_576.0),
        _ => format!("{:.1} GB", bytes as f64 / 1_073_741_824.0),
    }
}

/// The cost of a definition in tokens, roughly: four bytes are about one token.
pub(crate) fn tokens(bytes: u64) -> String {
    format!("≈ {}", count(bytes.div_ceil(4)))
}

/// A share in percent.
pub(crate) fn percent(share: f64) -> String {
    busy(share * 100.0)
}

/// The use of one CPU.
pub(crate) fn busy(percent: f64) -> String {
    if percent > 0.0 && percent < 9.95 { format!("{percent:.1} %") } else { format!("{percent:.0} %") }
}

/// A time: relative for people, exact as a tooltip and for scripts.
pub(crate) fn moment(at: Timestamp) -> Html {
    let now = Timestamp::now();
    let text = if at > now {
        format!("in {}", long(at.since(now)))
    } else {
        match now.since(at) {
            span if span < Duration::from_secs(5) => "just now".to_owned(),
            span => format!("{} ago", long(span)),
        }
    };
    timed(at, &html!("{}", text))
}

/// A local time to the second.
pub(crate) fn exact(at: Timestamp) -> Html {
    timed(at, &html!("{}", at.local("%Y-%m-%d %H:%M:%S")))
}

/// A local time of day to the minute.
pub(crate) fn minute(at: Timestamp) -> String {
    at.local("%H:%M")
}

/// A text with its time: in UTC for scripts, with its time zone as a tooltip.
fn timed(at: Timestamp, text: &Html) -> Html {
    html!(
        r#"<time datetime="{iso}" title="{exact}">{text}</time>"#,
        iso = at.to_string(),
        exact = at.local("%Y-%m-%d %H:%M:%S %:z"),
        text = text
    )
}

/// A time of day to the millisecond, with the date if it is not today.
pub(crate) fn clock(at: Timestamp) -> Html {
    let day = at.local("%Y-%m-%d");
    let other_day = (Timestamp::now().local("%Y-%m-%d") != day).then(|| html!(r#"{} <br>"#, day));
    timed(at, &html!("{other_day}{text}", other_day = other_day, text = at.local("%H:%M:%S.%3f")))
}

/// A status with colour, icon and word: colour alone is not accessible.
pub(crate) fn badge(tone: &str, word: &str) -> Html {
    html!(r#"<span class="badge {tone}"><i></i>{word}</span>"#, tone = tone, word = word)
}

/// The status of a server.
pub(crate) fn status(status: Status) -> Html {
    let tone = match status {
        Status::Connected => "ok",
        Status::Degraded | Status::Connecting | Status::SignInRequired => "warn",
        Status::Error => "bad",
        Status::Disconnected | Status::Disabled => "idle",
    };
    badge(tone, status.as_str())
}

/// The status of a call.
pub(crate) fn execution(status: ExecutionStatus) -> Html {
    let tone = match status {
        ExecutionStatus::Success => "ok",
        ExecutionStatus::Error | ExecutionStatus::Timeout => "bad",
        ExecutionStatus::Cancelled => "idle",
        ExecutionStatus::Pending | ExecutionStatus::Executing => "warn",
    };
    badge(tone, status.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_times_can_be_read() {
        assert_eq!([count(7), count(1234), count(1_234_567)], ["7", "1\u{202f}234", "1\u{202f}234\u{202f}567"]);
        assert_eq!(took(Duration::from_micros(420)), "420 µs");
        assert_eq!(took(Duration::from_millis(7)), "7.0 ms");
        assert_eq!(took(Duration::from_millis(840)), "840 ms");
        assert_eq!(took(Duration::from_secs(75)), "75.0 s");
        assert_eq!(long(Duration::from_secs(90_000)), "1 d 1 h");
        assert_eq!([percent(0.0), percent(0.012), percent(0.5)], ["0 %", "1.2 %", "50 %"]);
        assert_eq!(tokens(401), "≈ 101");
        let old: Timestamp = "2024-02-03T04:05:06.789Z".parse().unwrap();
        let text = old.local(">%Y-%m-%d <br>%H:%M:%S.789</time>");
        assert!(clock(old).0.contains(&text), "{:?}", clock(old));
        assert!(clock(old).0.contains(r#"datetime="2024-02-03T04:05:06.789000Z""#), "{:?}", clock(old));
        assert!(!clock(Timestamp::now()).0.contains("<br>"));
    }
}
