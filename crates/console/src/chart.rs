//! Charts as SVG: a page needs no script to show them.

use crate::html::{Html, html};

/// The number of bars in a chart.
const BARS: usize = 30;
const HEIGHT: u64 = 24;

/// A small chart of calls per minute, the newest at the right.
pub(crate) fn sparkline(values: &[u64], about: &str) -> Html {
    let most = values.iter().copied().max().unwrap_or(0).max(1);
    let shown = &values[values.len().saturating_sub(BARS)..];
    let first = BARS - shown.len();
    let bars: Html = shown
        .iter()
        .enumerate()
        .filter(|(_, value)| **value > 0)
        .map(|(at, value)| {
            let height = (value * HEIGHT).div_ceil(most).max(2);
            html!(
                r#"<rect x="{x}" y="{y}" width="3" height="{height}" rx="1"/>"#,
                x = (first + at) * 4,
                y = HEIGHT - height,
                height = height,
            )
        })
        .collect();
    html!(
        r#"<svg class="spark" viewBox="0 0 120 24" width="120" height="24" role="img" aria-label="{about}"><path d="M0 23.5h120"/>{bars}</svg>"#,
        about = about,
        bars = bars,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_keeps_to_its_box() {
        let drawn = sparkline(&[0, 1, u64::from(u32::MAX)], "calls").0;
        assert_eq!(drawn.matches("<rect").count(), 2);
        assert!(drawn.contains(r#"height="24""#) && drawn.contains(r#"height="2""#), "{drawn}");
        assert!(sparkline(&[], "calls").0.contains("<svg"));
    }
}
