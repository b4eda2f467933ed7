//! Finds the lines of a server's stderr that state why it failed.
//!
//! The last line is often the least useful one: the location of the log (`npm`), the line of code (most languages),
//! the version of Node. A few rules apply to the kept lines: those that only accompany an error are left out, and of
//! the rest the last ones that name an error count.

/// How many lines state a cause, at most.
const MAX_CAUSE_LINES: usize = 3;
/// How many invalid fields are named, at most.
const MAX_FIELDS: usize = 2;

/// How lines begin that accompany an error, in any language or package manager.
const COMPANIONS: [&str; 36] = [
    "at ",
    "File \"",
    "note: ",
    "stack backtrace:",
    "Stack backtrace:",
    "Node.js v",
    "... ",
    "goroutine ",
    "Traceback (",
    "Exception Group Traceback (",
    "During handling of the above exception",
    "The above exception was the direct cause",
    "For further information",
    "For more information",
    "For a full report",
    "Require stack:",
    "- /",
    "Emitted 'error' event",
    "code: '",
    "errno: ",
    "syscall: '",
    "path: '",
    "url: '",
    "address: '",
    "requireStack: ",
    "npm notice",
    "npm warn",
    "A complete log of this run",
    "Log files were not written",
    "Note that you can also install",
    "tarball, folder, http url",
    "This is related to npm not being able",
    "This is probably not a problem with npm",
    "In most cases you or one of your dependencies",
    "a package version that doesn't exist",
    "exit status ",
];

/// A line of its own before causes (Rust), which a Java stack trace has before each of them.
const CAUSED_BY: &str = "Caused by:";

/// Words of lines that name an error, in lower case.
const ERROR_WORDS: [&str; 31] = [
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
    "no matching",
    "giving up",
    "abort",
];

/// The lines that state the cause, in their order; the last meaningful line if none names an error.
pub fn cause_lines<'l>(lines: impl IntoIterator<Item = &'l str>) -> Vec<&'l str> {
    let lines: Vec<&str> = lines.into_iter().filter(|line| !line.trim().is_empty()).collect();
    let meaningful: Vec<&str> =
        (0..lines.len()).filter(|&at| !is_companion(&lines, at)).map(|at| lines[at].trim()).collect();
    let Some(&last) = meaningful.last() else { return lines.last().map(|line| line.trim()).into_iter().collect() };
    if let Some(found) = validation_errors(&meaningful) {
        return found;
    }
    let Some(end) = meaningful.iter().rposition(|line| names_error(line)) else { return vec![last] };
    // A line that ends with a colon (`thread 'main' panicked at src/main.rs:2:5:`) is explained by the next one.
    let end = if meaningful[end].ends_with(':') && end + 1 < meaningful.len() { end + 1 } else { end };
    let is_part = |line: &&&str| names_error(line) && !line.ends_with(':');
    let before = meaningful[..end].iter().rev().take(MAX_CAUSE_LINES - 1).take_while(is_part).count();
    meaningful[end - before..=end].to_vec()
}

/// A pydantic error, if that is the last one: the summary, and below it each field with its error.
fn validation_errors<'l>(meaningful: &[&'l str]) -> Option<Vec<&'l str>> {
    let begin = meaningful.iter().rposition(|line| line.contains(" validation error"))?;
    let below = &meaningful[begin + 1..];
    let is_about_field = |pair: &&[&str]| pair[1].contains("[type=") || pair[1].contains("(type=");
    let fields = below.chunks_exact(2).take_while(is_about_field).count();
    let is_last = !below[2 * fields..].iter().any(|line| names_error(line));
    (fields > 0 && is_last).then(|| meaningful[begin..=begin + 2 * fields.min(MAX_FIELDS)].to_vec())
}

/// Whether a line names an error. The prefix that `npm` puts before everything does not count.
fn names_error(line: &str) -> bool {
    let line = without_prefix(line).to_lowercase();
    ERROR_WORDS.iter().any(|word| line.contains(word))
}

/// Whether the line only accompanies an error: a location in a program, an excerpt of its source, a pointer to more.
fn is_companion(lines: &[&str], at: usize) -> bool {
    let text = without_prefix(without_gutter(lines[at]));
    let has_words = text.chars().any(char::is_alphabetic);
    !has_words
        || text == CAUSED_BY
        || COMPANIONS.iter().any(|start| text.starts_with(start))
        || is_numbered_frame(lines, at)
        || is_program_text(lines, at)
}

/// Whether the line is a frame such as `12: main`. Causes are numbered the same way below `Caused by:`.
fn is_numbered_frame(lines: &[&str], at: usize) -> bool {
    let is_numbered = |line: &str| {
        let text = line.trim();
        let after_number = text.trim_start_matches(|message: char| message.is_ascii_digit());
        after_number.len() < text.len() && after_number.starts_with(": ")
    };
    let above = lines[..at].iter().rev().find(|line| !is_numbered(line) && !line.trim().starts_with("at "));
    is_numbered(lines[at]) && above.is_some_and(|line| line.trim().to_lowercase().ends_with("backtrace:"))
}

/// The line without the frame that Python draws around groups of exceptions.
fn without_gutter(line: &str) -> &str {
    line.trim().trim_start_matches(['|', '+']).trim_start()
}

/// Whether the line is source code: Python shows it under its location, Node with a caret under it.
fn is_program_text(lines: &[&str], at: usize) -> bool {
    let is_below_place = at > 0
        && without_gutter(lines[at - 1]).starts_with("File \"")
        && (lines[at].starts_with("    ") || lines[at].trim().starts_with("|  "));
    let is_above_caret = lines.get(at + 1).is_some_and(|next| {
        let next = next.trim();
        next.contains('^') && next.chars().all(|sign| "^~".contains(sign))
    });
    is_below_place || is_above_caret
}

/// The line without the prefix of `npm` for error output, a bare code such as `404` included.
fn without_prefix(line: &str) -> &str {
    let rest = ["npm error", "npm ERR!"].iter().find_map(|prefix| line.strip_prefix(prefix));
    let Some(rest) = rest else { return line };
    let rest = rest.trim_start();
    let code = rest.split_whitespace().next().unwrap_or_default();
    let is_code = code == code.to_ascii_lowercase() && code.chars().all(|sign| sign.is_ascii_alphanumeric());
    let is_repeated = is_code && ["404", "enoent", "eacces", "notsup", "network", "notarget"].contains(&code);
    if is_repeated { rest[code.len()..].trim_start() } else { rest }
}

#[cfg(test)]
mod tests {
    use super::cause_lines;

    #[track_caller]
    fn states(text: &str, expected: &[&str]) {
        assert_eq!(cause_lines(text.lines()), expected, "{text}");
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
    fn the_error_is_reported_and_not_its_location() {
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
    fn causes_are_reported_with_and_without_numbers() {
        states(
            "Error: could not start\n\nCaused by:\n    0: could not read config.toml\n    1: No such file or directory \
             (os error 2)\n\nStack backtrace:\n   0: anyhow::error::<impl>::msg\n             at /x/anyhow/src/error.rs:27\n   \
             1: main\n",
            &["Error: could not start", "0: could not read config.toml", "1: No such file or directory (os error 2)"],
        );
        states(
            "Exception in thread \"main\" java.lang.IllegalStateException: Failed to load config\n\tat \
             com.example.Main.load(Main.java:20)\n\tat com.example.Main.main(Main.java:10)\nCaused by: \
             java.io.FileNotFoundException: /etc/x.conf (No such file or directory)\n\tat \
             java.base/java.io.FileInputStream.open0(Native Method)\n\t... 1 more\n",
            &[
                "Exception in thread \"main\" java.lang.IllegalStateException: Failed to load config",
                "Caused by: java.io.FileNotFoundException: /etc/x.conf (No such file or directory)",
            ],
        );
        states(
            "Error: Could not find or load main class Server\nCaused by: java.lang.ClassNotFoundException: Server\n",
            &["Error: Could not find or load main class Server", "Caused by: java.lang.ClassNotFoundException: Server"],
        );
    }

    #[test]
    fn fields_that_are_not_valid_are_named() {
        let traceback = "Traceback (most recent call last):\n  File \"/app/server.py\", line 5, in <module>\n    \
                         settings = Settings()\n  File \"/x/pydantic_settings/main.py\", line 171, in __init__\n    \
                         super().__init__(\n    ~~~~~~~~~~~~~~~~^\n";
        let header = "pydantic_core._pydantic_core.ValidationError: 1 validation error for Settings";
        states(
            &format!(
                "{traceback}{header}\napi_key\n  Field required [type=missing, input_value={{}}, input_type=dict]\n    \
                 For further information visit https://errors.pydantic.dev/2.10/v/missing\n"
            ),
            &[header, "api_key", "Field required [type=missing, input_value={}, input_type=dict]"],
        );
        let header = "pydantic_core._pydantic_core.ValidationError: 3 validation errors for Settings";
        let field = |name: &str| format!("{name}\n  Input should be greater than 0 [type=greater_than]\n");
        states(
            &format!("{traceback}{header}\n{}{}{}", field("port"), field("size"), field("rate")),
            &[
                header,
                "port",
                "Input should be greater than 0 [type=greater_than]",
                "size",
                "Input should be greater than 0 [type=greater_than]",
            ],
        );
        states(
            &format!("{header}\n{}Traceback (most recent call last):\nOSError: no such file", field("port")),
            &["OSError: no such file"],
        );
    }

    #[test]
    fn what_node_and_npm_add_to_an_error_is_left_out() {
        states(
            "node:internal/modules/cjs/loader:1404\n  throw err;\n  ^\n\nError: Cannot find module 'express'\nRequire \
             stack:\n- /app/errors.js\n    at Function._resolveFilename (node:internal/modules/cjs/loader:1401:15) {\n  \
             code: 'MODULE_NOT_FOUND',\n  requireStack: [ '/app/errors.js' ]\n}\n\nNode.js v22.1.0\n",
            &["Error: Cannot find module 'express'"],
        );
        states(
            "node:events:497\n      throw er; // Unhandled 'error' event\n      ^\n\nError: listen EADDRINUSE: address \
             already in use :::3000\n    at Server.setupListenHandle (node:net:1908:16)\nEmitted 'error' event on Server \
             instance at:\n    at emitErrorNT (node:net:1887:8) {\n  code: 'EADDRINUSE',\n  errno: -98,\n  syscall: \
             'listen',\n  path: '/missing'\n}\n",
            &["Error: listen EADDRINUSE: address already in use :::3000"],
        );
        states(
            "npm error code ETARGET\nnpm error notarget No matching version found for nope@99.\nnpm error notarget In most \
             cases you or one of your dependencies are requesting\nnpm error notarget a package version that doesn't \
             exist.\nnpm error A complete log of this run can be found in: /root/.npm/_logs/x-debug-0.log\n",
            &["npm error notarget No matching version found for nope@99."],
        );
    }

    #[test]
    fn an_error_in_an_exception_group_is_reported() {
        states(
            "  + Exception Group Traceback (most recent call last):\n  |   File \"/x.py\", line 9, in <module>\n  |     \
             asyncio.run(main())\n  | ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)\n  +-+---------------- \
             1 ----------------\n    | Traceback (most recent call last):\n    |   File \"/x.py\", line 3, in main\n    |     \
             raise ValueError('no key')\n    | ValueError: API_KEY is missing\n    +------------------------------------\n",
            &[
                "| ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)",
                "| ValueError: API_KEY is missing",
            ],
        );
    }

    #[test]
    fn output_after_the_error_does_not_hide_it() {
        states(
            "INFO starting\nERROR failed to read config.toml\nINFO closing 3 files\nINFO bye\n",
            &["ERROR failed to read config.toml"],
        );
    }

    #[test]
    fn without_an_error_line_the_last_lines_are_reported() {
        states("hello\nbye\n\n", &["bye"]);
        states("  at the end\n\n", &["at the end"]);
        states("", &[]);
    }
}
