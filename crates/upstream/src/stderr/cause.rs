//! Finds the lines of a server's stderr that state why it failed.
//!
//! The last line is often the least useful one: where the log is (`npm`), which line of code it was (most languages), which
//! version of Node it was. A few rules, applied to what is kept of stderr: what only accompanies an error is left out, and of
//! the rest the last lines count that name an error.

/// As many lines state a cause, at most.
const MOST_LINES: usize = 3;

/// How lines begin that accompany an error, in any language or package manager.
const COMPANIONS: [&str; 25] = [
    "at ",
    "File \"",
    "note: ",
    "stack backtrace:",
    "Node.js v",
    "... ",
    "goroutine ",
    "Caused by:",
    "Traceback (",
    "During handling of the above exception",
    "The above exception was the direct cause",
    "For further information",
    "For more information",
    "For a full report",
    "code: '",
    "requireStack: ",
    "npm notice",
    "npm warn",
    "A complete log of this run",
    "Log files were not written",
    "Note that you can also install",
    "tarball, folder, http url",
    "This is related to npm not being able",
    "This is probably not a problem with npm",
    "exit status ",
];

/// Words of lines that name an error, in lower case.
const ERROR_WORDS: [&str; 30] = [
    "error",
    "fail",
    "cannot",
    "can't",
    "could not",
    "couldn't",
    "not found",
    "no such",
    "denied",
    "refused",
    "invalid",
    "missing",
    "must be",
    "must have",
    "required",
    "unable",
    "exception",
    "panic",
    "fatal",
    "is not",
    "not set",
    "not exist",
    "unknown",
    "unexpected",
    "timed out",
    "unauthorized",
    "forbidden",
    "no solution",
    "giving up",
    "abort",
];

/// The lines that state the cause, in their order; the last line that says anything if none names an error.
pub fn cause_lines<'l>(lines: impl IntoIterator<Item = &'l str>) -> Vec<&'l str> {
    let lines: Vec<&str> = lines.into_iter().filter(|line| !line.trim().is_empty()).collect();
    let spoken: Vec<&str> =
        (0..lines.len()).filter(|&at| !is_companion(&lines, at)).map(|at| lines[at].trim()).collect();
    let Some(&last) = spoken.last() else { return lines.last().map(|line| line.trim()).into_iter().collect() };
    let Some(end) = spoken.iter().rposition(|line| names_error(line)) else { return vec![last] };
    // What announces something (`thread 'main' panicked at src/main.rs:2:5:`) is explained by the next line.
    let end = if spoken[end].ends_with(':') && end + 1 < spoken.len() { end + 1 } else { end };
    let is_part = |line: &&&str| names_error(line) && !line.ends_with(':');
    let before = spoken[..end].iter().rev().take(MOST_LINES - 1).take_while(is_part).count();
    spoken[end - before..=end].to_vec()
}

/// Whether a line names an error. The prefix that `npm` puts before everything does not count.
fn names_error(line: &str) -> bool {
    let line = without_prefix(line).to_lowercase();
    ERROR_WORDS.iter().any(|word| line.contains(word))
}

/// Whether the line only accompanies an error: a place in a program, a piece of its text, a pointer to more.
fn is_companion(lines: &[&str], at: usize) -> bool {
    let said = without_prefix(lines[at].trim());
    let after_number = said.trim_start_matches(|letter: char| letter.is_ascii_digit());
    let is_numbered_frame = after_number.len() < said.len() && after_number.starts_with(": ");
    let has_words = said.chars().any(char::is_alphabetic);
    is_numbered_frame
        || !has_words
        || COMPANIONS.iter().any(|start| said.starts_with(start))
        || is_program_text(lines, at)
}

/// Whether the line is quoted from a program: Python shows it under its place, Node with a caret under it.
fn is_program_text(lines: &[&str], at: usize) -> bool {
    let is_below_place = at > 0 && lines[at - 1].trim().starts_with("File \"") && lines[at].starts_with("    ");
    let is_above_caret = lines.get(at + 1).is_some_and(|next| {
        let next = next.trim();
        next.contains('^') && next.chars().all(|sign| "^~".contains(sign))
    });
    is_below_place || is_above_caret
}

/// The line without what `npm` puts before everything it says about an error, a bare code such as `404` included.
fn without_prefix(line: &str) -> &str {
    let rest = ["npm error", "npm ERR!"].iter().find_map(|prefix| line.strip_prefix(prefix));
    let Some(rest) = rest else { return line };
    let rest = rest.trim_start();
    let code = rest.split_whitespace().next().unwrap_or_default();
    let is_code = code == code.to_ascii_lowercase() && code.chars().all(|sign| sign.is_ascii_alphanumeric());
    let is_repeated = is_code && ["404", "enoent", "eacces", "notsup", "network"].contains(&code);
    if is_repeated { rest[code.len()..].trim_start() } else { rest }
}

#[cfg(test)]
mod tests {
    use super::cause_lines;

    #[track_caller]
    fn states(said: &str, expected: &[&str]) {
        assert_eq!(cause_lines(said.lines()), expected, "{said}");
    }

    #[test]
    fn a_package_that_does_not_exist_is_named() {
        states(
            "npm error code E404\nnpm error 404 Not Found - GET https://registry.npmjs.org/nope - Not found\n\
             npm error 404\nnpm error 404  'nope@*' is not in this registry.\nnpm error 404\n\
             npm error 404 Note that you can also install from a\nnpm error 404 tarball, folder, http url, or git folder.\n\
             npm notice\nnpm notice New major version of npm available! 10.8.2 -> 11.6.2\n\
             npm error A complete log of this run can be found in: /root/.npm/_logs/x-debug-0.log\n",
            &[
                "npm error 404 Not Found - GET https://registry.npmjs.org/nope - Not found",
                "npm error 404  'nope@*' is not in this registry.",
            ],
        );
        states(
            "  × No solution found when resolving tool dependencies:\n  ╰─▶ Because nope was not found in the package \
             registry and you require nope, we can conclude that your requirements are unsatisfiable.\n",
            &[
                "╰─▶ Because nope was not found in the package registry and you require nope, we can conclude that your \
               requirements are unsatisfiable.",
            ],
        );
    }

    #[test]
    fn a_file_that_npm_cannot_read_is_named() {
        states(
            "npm error code ENOENT\nnpm error syscall open\nnpm error path /x/package.json\nnpm error errno -2\n\
             npm error enoent Could not read package.json: Error: ENOENT: no such file or directory, open '/x/package.json'\n\
             npm error enoent This is related to npm not being able to find a file.\nnpm error enoent\n\
             npm error A complete log of this run can be found in: /root/.npm/_logs/x-debug-0.log\n",
            &[
                "npm error enoent Could not read package.json: Error: ENOENT: no such file or directory, open '/x/package.json'",
            ],
        );
    }

    #[test]
    fn what_happened_is_told_and_not_where() {
        states(
            "thread 'main' panicked at src/main.rs:2:5:\nno such key\nstack backtrace:\n   0: rust_begin_unwind\n             \
             at /rustc/x\n   7: _start\nnote: Some details are omitted",
            &["no such key"],
        );
        states(
            "/x.js:3\n    throw new Error('bad')\n    ^\n\nError: bad\n    at Object.<anonymous> (/x.js:3:7)\n\nNode.js v20.1.0\n",
            &["Error: bad"],
        );
        states(
            "node:internal/modules/cjs/loader:1404\n  throw err;\n  ^\n\nError: Cannot find module '/x/index.js'\n    \
             at Function._resolveFilename (node:internal/modules/cjs/loader:1401:15) {\n  code: 'MODULE_NOT_FOUND',\n  \
             requireStack: []\n}\n\nNode.js v22.1.0\n",
            &["Error: Cannot find module '/x/index.js'"],
        );
        states(
            "Traceback (most recent call last):\n  File \"/x.py\", line 1, in <module>\n    raise ValueError('bad')\n    \
             ~~~~~^^^^^^\nValueError: DATABASE_URL must be set\n",
            &["ValueError: DATABASE_URL must be set"],
        );
        states(
            "panic: runtime error: index out of range\n\ngoroutine 1 [running]:\nmain.main()\n\t/x.go:4 +0x1d\nexit status 2\n",
            &["panic: runtime error: index out of range"],
        );
        states(
            "Error: could not reach the database\n\nCaused by:\n    connection refused (os error 111)\n",
            &["Error: could not reach the database", "connection refused (os error 111)"],
        );
    }

    #[test]
    fn what_is_said_after_the_error_does_not_hide_it() {
        states(
            "INFO starting\nERROR failed to read config.toml\nINFO closing 3 files\nINFO bye\n",
            &["ERROR failed to read config.toml"],
        );
    }

    #[test]
    fn without_an_error_the_last_words_are_better_than_nothing() {
        states("hello\nbye\n\n", &["bye"]);
        states("  at the end\n\n", &["at the end"]);
        states("", &[]);
    }
}
