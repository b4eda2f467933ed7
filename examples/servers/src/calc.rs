//! The server `example-calc`, for what language models get wrong: sums, units and dates.

mod exact;
mod expression;
mod units;

use crate::calendar::{Date, day_and_time, unix_seconds};
use crate::{Answer, Arguments, Effect, Field, Kind, Server, Tool, ToolError};
use exact::Number;
use serde_json::json;
use std::time::SystemTime;

/// The server.
#[must_use]
pub fn server() -> Server {
    let tool = |name, description, input, run: fn(&Arguments) -> Result<Answer, ToolError>| Tool {
        name,
        description,
        effect: Effect::Reads,
        input,
        run: Box::new(run),
    };
    Server {
        name: "example-calc",
        instructions: "Use these tools for every calculation instead of working it out yourself.",
        tools: vec![
            tool(
                "evaluate",
                "Computes an expression exactly, with fractions instead of rounding. `exact` says whether the \
                 result is exact: roots and very long numbers are not.",
                vec![Field::required(
                    "expression",
                    Kind::Text,
                    "Numbers with + - * / ^ ( ) and sqrt( ). `%` is a hundredth: 200 * 15% is 30, 200 + 10% is 200.1.",
                )],
                evaluate,
            ),
            tool(
                "convert",
                "Converts between units of length, mass, time, data, volume (US), speed or temperature.",
                vec![
                    Field::required("value", Kind::Number, "How many."),
                    Field::required("from", Kind::Text, "The unit of the value, such as mi, kg, MiB, cup, km/h or °F."),
                    Field::required("to", Kind::Text, "The unit to convert to."),
                ],
                convert,
            ),
            tool(
                "statistics",
                "Count, sum, mean, median, least and greatest of a list of numbers, computed exactly.",
                vec![Field::required("numbers", Kind::Numbers, "At least one number.")],
                statistics,
            ),
            tool(
                "days_between",
                "How many days, and how many workdays (Monday to Friday), lie from one date to another. \
                 The first date counts, the last does not.",
                vec![
                    Field::required("from", Kind::Text, "A date such as 2024-02-29."),
                    Field::required("to", Kind::Text, "A date such as 2024-12-24."),
                ],
                days_between,
            ),
            tool(
                "add_to_date",
                "The date and weekday so much later, or earlier with negative numbers. Years and months are added \
                 first; where the month has no such day, its last day is taken.",
                vec![
                    Field::required("date", Kind::Text, "A date such as 2024-02-29."),
                    Field::optional("years", Kind::Integer, "Years to add."),
                    Field::optional("months", Kind::Integer, "Months to add."),
                    Field::optional("weeks", Kind::Integer, "Weeks to add."),
                    Field::optional("days", Kind::Integer, "Days to add."),
                ],
                add_to_date,
            ),
            tool(
                "now",
                "The present date, weekday and time.",
                vec![Field::optional("utc_offset", Kind::Text, "The time zone as +02:00 or -05:30. UTC if left out.")],
                now,
            ),
        ],
    }
}

fn evaluate(arguments: &Arguments) -> Result<Answer, ToolError> {
    let value = expression::evaluate(arguments.text("expression")?).map_err(sentence)?;
    Ok(Answer {
        text: in_words(value),
        data: json!({"result": value.to_string(), "decimal": value.decimal(), "exact": value.is_exact()}),
    })
}

fn convert(arguments: &Arguments) -> Result<Answer, ToolError> {
    let from = units::find(arguments.text("from")?).map_err(sentence)?;
    let to = units::find(arguments.text("to")?).map_err(sentence)?;
    let value = exactly(arguments.number("value")?)?;
    let result = units::convert(value, from, to).map_err(sentence)?;
    let (from, to) = (from.symbol(), to.symbol());
    Ok(Answer {
        text: format!("{} {from} = {} {to}", value.decimal(), result.decimal()),
        data: json!({"result": result.to_string(), "decimal": result.decimal(), "exact": result.is_exact(), "unit": to}),
    })
}

fn statistics(arguments: &Arguments) -> Result<Answer, ToolError> {
    let mut numbers = Vec::new();
    for number in arguments.numbers("numbers")? {
        numbers.push(exactly(number)?);
    }
    numbers.sort_by(|a, b| a.order(*b));
    let (Some(least), Some(greatest)) = (numbers.first(), numbers.last()) else {
        return Err(ToolError::new("`numbers` is empty; give at least one number"));
    };
    let count = i32::try_from(numbers.len()).map_err(|_| ToolError::new("`numbers` is too long"))?;
    let sum = numbers.iter().try_fold(Number::ZERO, |sum, number| sum.plus(*number)).map_err(sentence)?;
    let mean = sum.over(Number::whole(count)).map_err(sentence)?;
    // With an odd count both are the one in the middle.
    let middle = (numbers[(numbers.len() - 1) / 2], numbers[numbers.len() / 2]);
    let median = middle.0.plus(middle.1).and_then(|both| both.over(Number::whole(2))).map_err(sentence)?;
    let figures = [("sum", sum), ("mean", mean), ("median", median), ("least", *least), ("greatest", *greatest)];
    let mut data = json!({"count": count, "exact": figures.iter().all(|(_, figure)| figure.is_exact())});
    let mut text = format!("count: {count}");
    for (name, figure) in figures {
        data[name] = figure.decimal().into();
        text += &format!("\n{name}: {}", in_words(figure));
    }
    Ok(Answer { text, data })
}

fn days_between(arguments: &Arguments) -> Result<Answer, ToolError> {
    let from = date(arguments.text("from")?)?;
    let to = date(arguments.text("to")?)?;
    let days = to.day_number() - from.day_number();
    let workdays = from.workdays_until(to);
    Ok(Answer {
        text: format!(
            "{days} days from {} {from} to {} {to}, of which {workdays} are workdays",
            from.weekday(),
            to.weekday()
        ),
        data: json!({
            "days": days,
            "workdays": workdays,
            "from_weekday": from.weekday(),
            "to_weekday": to.weekday(),
        }),
    })
}

fn add_to_date(arguments: &Arguments) -> Result<Answer, ToolError> {
    let start = date(arguments.text("date")?)?;
    let amount = |name| arguments.optional_integer(name).unwrap_or(0);
    let result = (|| {
        let months = amount("years").checked_mul(12)?.checked_add(amount("months"))?;
        let days = amount("weeks").checked_mul(7)?.checked_add(amount("days"))?;
        start.plus_months(months)?.plus_days(days)
    })();
    let Some(date) = result else {
        return Err(ToolError::new("the result is not within the years 1 to 9999"));
    };
    Ok(Answer {
        text: format!("{} {date}", date.weekday()),
        data: json!({"date": date.to_string(), "weekday": date.weekday()}),
    })
}

fn now(arguments: &Arguments) -> Result<Answer, ToolError> {
    let offset = arguments.optional_text("utc_offset").unwrap_or("+00:00");
    let Some(seconds) = offset_seconds(offset) else {
        return Err(ToolError::new(format!("`utc_offset` must look like +02:00 or -05:30, not {offset:?}")));
    };
    let moment = unix_seconds(SystemTime::now()) + seconds;
    let Some((date, time)) = day_and_time(moment) else {
        return Err(ToolError::new("the clock of this computer is beyond the year 9999"));
    };
    let weekday = date.weekday();
    let timestamp = format!("{date}T{time}{offset}");
    Ok(Answer {
        text: format!("{weekday} {timestamp}"),
        data: json!({"timestamp": timestamp, "date": date.to_string(), "time": time, "weekday": weekday}),
    })
}

fn sentence(error: impl std::fmt::Display) -> ToolError {
    ToolError::new(error.to_string())
}

fn in_words(value: Number) -> String {
    let (whole, decimal) = (value.to_string(), value.decimal());
    match (value.is_exact(), whole == decimal) {
        (false, _) => format!("≈ {whole} (not exact)"),
        (true, true) => whole,
        (true, false) => format!("{whole} ≈ {decimal}"),
    }
}

/// A JSON number as it was written, not as floating point keeps it: 0.1 is a tenth.
fn exactly(number: &serde_json::Number) -> Result<Number, ToolError> {
    let text = number.to_string();
    let magnitude =
        Number::parse(text.trim_start_matches('-')).ok_or_else(|| ToolError::new(format!("`{text}` is too large")))?;
    Ok(if text.starts_with('-') { magnitude.negated() } else { magnitude })
}

fn date(text: &str) -> Result<Date, ToolError> {
    let no_such_day =
        || ToolError::new(format!("{text:?} is not a date; write it as year-month-day, such as 2024-02-29"));
    Date::parse(text.trim()).ok_or_else(no_such_day)
}

/// Reads `+02:00`. Offsets go up to 14 hours.
fn offset_seconds(text: &str) -> Option<i64> {
    let (sign, rest) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+')?),
    };
    let (hours, minutes) = rest.split_once(':')?;
    let digits = |text: &str| {
        let two = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
        if two { text.parse::<i64>().ok() } else { None }
    };
    let (hours, minutes) = (digits(hours)?, digits(minutes)?);
    (hours <= 14 && minutes < 60).then_some(sign * (hours * 3600 + minutes * 60))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    /// The data of the answer, or the sentence of the mistake.
    fn call(name: &str, arguments: &Value) -> Value {
        let request = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": {"name": name, "arguments": arguments}});
        let answer = server().answer(request.to_string().as_bytes()).expect("an answer");
        let result = &answer["result"];
        if result["isError"] == true {
            result["content"][0]["text"].clone()
        } else {
            result["structuredContent"].clone()
        }
    }

    #[test]
    fn expressions_are_evaluated() {
        assert_eq!(
            call("evaluate", &json!({"expression": "0.1 + 0.2"})),
            json!({"result": "0.3", "decimal": "0.3", "exact": true})
        );
        assert_eq!(
            call("evaluate", &json!({"expression": "2/3"})),
            json!({"result": "2/3", "decimal": "0.66666666666666666667", "exact": true})
        );
        assert_eq!(call("evaluate", &json!({"expression": "1/0"})), "this divides by zero");
    }

    #[test]
    fn quantities_are_converted_from_the_number_as_written() {
        assert_eq!(
            call("convert", &json!({"value": 0.1, "from": "km", "to": "m"})),
            json!({"result": "100", "decimal": "100", "exact": true, "unit": "m"})
        );
        assert_eq!(call("convert", &json!({"value": -40, "from": "°C", "to": "°F"}))["decimal"], "-40");
    }

    #[test]
    fn statistics_are_exact() {
        assert_eq!(
            call("statistics", &json!({"numbers": [0.3, -1, 0.1, 0.2]})),
            json!({"count": 4, "sum": "-0.4", "mean": "-0.1", "median": "0.15", "least": "-1", "greatest": "0.3", "exact": true})
        );
        assert_eq!(call("statistics", &json!({"numbers": [5, 1, 9]}))["median"], "5");
        assert_eq!(call("statistics", &json!({"numbers": []})), "`numbers` is empty; give at least one number");
    }

    #[test]
    fn dates_are_counted_and_moved() {
        let between = call("days_between", &json!({"from": "2024-02-28", "to": "2024-03-01"}));
        assert_eq!(between["days"], 2);
        assert_eq!(between["workdays"], 2);
        assert_eq!(
            call("add_to_date", &json!({"date": "2024-02-29", "years": 1, "days": 1})),
            json!({"date": "2025-03-01", "weekday": "Saturday"})
        );
        assert_eq!(
            call("add_to_date", &json!({"date": "2024-02-29", "weeks": i64::MAX})),
            "the result is not within the years 1 to 9999"
        );
        let mistake = call("days_between", &json!({"from": "yesterday", "to": "2024-03-01"}));
        assert_eq!(mistake, "\"yesterday\" is not a date; write it as year-month-day, such as 2024-02-29");
    }

    #[test]
    fn offsets_are_read() {
        assert_eq!(offset_seconds("+02:00"), Some(7200));
        assert_eq!(offset_seconds("-05:30"), Some(-19_800));
        for text in ["", "2", "+2:00", "+15:00", "+00:60", "+-1:00", "Z", "02:00"] {
            assert_eq!(offset_seconds(text), None, "{text}");
        }
    }

    #[test]
    fn now_has_the_offset_it_was_asked_for() {
        let answer = call("now", &json!({"utc_offset": "+05:30"}));
        assert!(answer["timestamp"].as_str().is_some_and(|text| text.ends_with("+05:30")), "{answer}");
        let mistake = call("now", &json!({"utc_offset": "Berlin"}));
        assert!(mistake.as_str().is_some_and(|text| text.contains("+02:00")), "{mistake}");
    }
}
