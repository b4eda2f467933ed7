//! Markup in which every value is escaped by its type: anything but [`Html`] is text, and text cannot become markup.
//!
//! [`html!`] is `format!` with that rule. Names in the template must be given values in the call (nothing is captured),
//! so no value can bypass it.
//!
//! Values for display also have invisible characters made visible. Values that a form or a script sends back must stay
//! unchanged; use `{name:#}` for them: in `value`, in a `textarea`, and in `data-` attributes that scripts read.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

/// Markup that is part of a page as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Html(pub(crate) String);

/// A value that can be part of a page.
pub(crate) trait ToHtml {
    /// Writes the value, escaped.
    fn show(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result;
}

/// A value for a template.
pub(crate) struct Value<'v, T: ?Sized>(pub(crate) &'v T);

impl<T: ToHtml + ?Sized> fmt::Display for Value<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.show(f)
    }
}

/// Markup from a template and values. Attributes must be in double quotes.
macro_rules! html {
    ($template:literal $(, $name:ident = $value:expr)* $(,)?) => {
        // A template from `concat!` captures no variables.
        $crate::html::Html(format!(concat!("", $template) $(, $name = $crate::html::Value(&$value))*))
    };
    ($template:literal $(, $value:expr)+ $(,)?) => {
        $crate::html::Html(format!(concat!("", $template) $(, $crate::html::Value(&$value))+))
    };
}
pub(crate) use html;

impl Html {
    /// Appends markup.
    pub(crate) fn add(&mut self, more: &Html) {
        self.0.push_str(&more.0);
    }
}

impl FromIterator<Html> for Html {
    fn from_iter<I: IntoIterator<Item = Html>>(parts: I) -> Self {
        parts.into_iter().fold(Self::default(), |mut all, part| {
            all.add(&part);
            all
        })
    }
}

/// The replacement of a character. Control characters and those that change the direction of text are shown, not
/// applied: a name must not be able to imitate another one.
fn replacement(letter: char) -> Option<Cow<'static, str>> {
    let shown = match letter {
        '&' => "&amp;",
        '<' => "&lt;",
        '>' => "&gt;",
        '"' => "&quot;",
        '\'' => "&#39;",
        '\n' | '\t' => return None,
        '\r' => "",
        '\u{0}'..='\u{1f}' => return char::from_u32(0x2400 + letter as u32).map(|sign| sign.to_string().into()),
        '\u{7f}' => "\u{2421}",
        '\u{80}'..='\u{9f}'
        // Those in between join letters, in Persian, Hindi and emoji.
        | '\u{61c}' | '\u{200b}' | '\u{200e}' | '\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{feff}'
        | '\u{fff9}'..='\u{fffb}'
        | '\u{e0000}'..='\u{e007f}' => {
            return Some(format!("\u{27e8}U+{:04X}\u{27e9}", letter as u32).into());
        }
        _ => return None,
    };
    Some(shown.into())
}

/// The same for values that must come back unchanged: invisible characters become numeric references. Browsers replace
/// some references, so those characters stay.
fn exact(letter: char) -> Option<Cow<'static, str>> {
    match letter {
        '&' | '<' | '>' | '"' | '\'' => replacement(letter),
        '\u{0}' | '\u{80}'..='\u{9f}' => None,
        _ => replacement(letter).map(|_| format!("&#{};", letter as u32).into()),
    }
}

impl ToHtml for str {
    fn show(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let replaced = if f.alternate() { exact } else { replacement };
        let mut rest = self;
        while let Some((at, letter, instead)) =
            rest.char_indices().find_map(|(at, letter)| Some((at, letter, replaced(letter)?)))
        {
            f.write_str(&rest[..at])?;
            f.write_str(&instead)?;
            rest = &rest[at + letter.len_utf8()..];
        }
        f.write_str(rest)
    }
}

impl ToHtml for Html {
    fn show(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl ToHtml for String {
    fn show(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().show(f)
    }
}

impl ToHtml for Cow<'_, str> {
    fn show(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        str::show(self, f)
    }
}

impl ToHtml for Arc<str> {
    fn show(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        str::show(self, f)
    }
}

impl<T: ToHtml + ?Sized> ToHtml for &T {
    fn show(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        T::show(self, f)
    }
}

/// None is empty.
impl<T: ToHtml> ToHtml for Option<T> {
    fn show(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_ref().map_or(Ok(()), |value| value.show(f))
    }
}

macro_rules! numbers {
    ($($number:ty),*) => {$(
        impl ToHtml for $number {
            fn show(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
    )*};
}
numbers!(u16, u32, u64, usize, i64);

#[cfg(test)]
mod tests {
    #[test]
    fn text_stays_text_in_every_position() {
        let evil = r#""><script>alert('1')</script>&"#;
        let shown = html!(r#"<a title="{t}">{t}</a>"#, t = evil).0;
        let escaped = "&quot;&gt;&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;&amp;";
        assert_eq!(shown, format!(r#"<a title="{escaped}">{escaped}</a>"#));
    }

    #[test]
    fn markup_is_put_in_as_it_is_and_absent_values_are_nothing() {
        let inner = html!("<b>{}</b>", 7_u32);
        assert_eq!(html!("<p>{}{}</p>", inner, None::<String>).0, "<p><b>7</b></p>");
    }

    #[test]
    fn what_cannot_be_seen_is_shown() {
        assert_eq!(html!("{}", "a\u{1b}[1m\u{202e}b\nc\u{0}").0, "a\u{241b}[1m\u{27e8}U+202E\u{27e9}b\nc\u{2400}");
        let family = "\u{1f468}\u{200d}\u{1f469} \u{645}\u{6cc}\u{200c}\u{62e}";
        assert_eq!(html!("{}", family).0, family, "what joins letters is one of them");
    }

    #[test]
    fn what_a_form_gives_back_is_what_it_was() {
        let odd = "\u{200d}\u{202e}\u{1b}";
        assert_eq!(html!(r#"<input value="{v:#}">"#, v = odd).0, "<input value=\"\u{200d}&#8238;&#27;\">");
        assert_eq!(html!("{v:#}", v = Some("<\"&\r")).0, "&lt;&quot;&amp;&#13;");
    }

    #[test]
    fn every_value_of_a_form_is_looked_up_exactly() {
        fn sources(folder: &std::path::Path, found: &mut Vec<std::path::PathBuf>) {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    sources(&path, found);
                } else if !path.ends_with("html.rs") {
                    found.push(path);
                }
            }
        }
        let mut files = Vec::new();
        sources(std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src")), &mut files);
        for file in files {
            let text = std::fs::read_to_string(&file).unwrap();
            let given_back = ["value=\"{", "data-path=\"{", "data-name=\"{"];
            let inexact = given_back
                .iter()
                .flat_map(|sign| text.split(sign).skip(1))
                .filter(|rest| rest.split_once('}').is_some_and(|(name, _)| !name.ends_with(":#") && name.len() < 40));
            assert_eq!(inexact.count(), 0, "{}: `value=` without `:#`", file.display());
            let areas = text.split("}</textarea>").collect::<Vec<_>>();
            assert!(areas[..areas.len() - 1].iter().all(|area| area.ends_with(":#")), "{}: textarea", file.display());
        }
    }
}
