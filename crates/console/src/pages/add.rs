//! Adds servers: by hand, from the config of any client, or from programs on this machine. The connection is tested and
//! the tools are shown before a server is added.

mod import;

use http::StatusCode;
use registry::Transport;
use serde_json::{Map, Value, json};
use service::{Error, Registration};

use crate::form::Form;
use crate::html::{Html, html};
use crate::layout::Page;
use crate::pages::server::{report_in_words, report_with_tools};
use crate::pages::{error_text, options, server_path};
use crate::request::PageRequest;
use crate::response::PageResponse;

/// The kinds of servers that can be described in a form.
const KINDS: [(&str, &str); 4] = [
    ("stdio", "A program on this machine"),
    ("http", "A URL (Streamable HTTP)"),
    ("sse", "A URL (HTTP+SSE, older)"),
    ("docker", "A container"),
];

/// The page.
pub(crate) async fn show(request: &PageRequest<'_>) -> Result<PageResponse, Error> {
    Ok(page(request, StatusCode::OK, &by_hand(request, &Form::default(), None), &import::sections(request).await?))
}

fn page(request: &PageRequest<'_>, status: StatusCode, form: &Html, others: &Html) -> PageResponse {
    let hint = if request.form.has("action") {
        ""
    } else {
        "The connection is tested first, and you see the server's tools before it is added."
    };
    let body = html!(
        r#"<h1>Add server</h1><p class="muted">{hint}</p><div class="columns"><section aria-labelledby="by-hand"><h2 id="by-hand">By hand</h2>{form}</section><div>{others}</div></div>"#,
        hint = hint,
        form = form,
        others = others,
    );
    PageResponse::Page(status, Page { title: "Add server".into(), place: "/add", body, script: None })
}

/// A message about the input, and the field it belongs to.
struct Note {
    is_good: bool,
    text: String,
    field: Option<&'static str>,
}

impl Note {
    fn bad(text: impl Into<String>) -> Self {
        Self { is_good: false, text: text.into(), field: None }
    }

    fn at(field: &'static str, text: impl Into<String>) -> Self {
        Self { is_good: false, text: text.into(), field: Some(field) }
    }
}

/// The form with the input and a message.
fn by_hand(request: &PageRequest<'_>, written: &Form, note: Option<Note>) -> Html {
    let kind = written.value_of("kind").unwrap_or("stdio");
    let is_tried = note.as_ref().is_some_and(|note| note.is_good);
    let wrong = note.as_ref().and_then(|note| note.field);
    let sign = |name: &str| {
        (wrong == Some(name)).then(|| html!(r#" aria-invalid="true" aria-describedby="problem" autofocus"#))
    };
    let note = note.map(|Note { is_good, text, .. }| {
        let (tone, role) = if is_good { ("ok", "status") } else { ("bad", "alert") };
        html!(
            r#"<div class="flash {tone}" role="{role}" id="problem"><pre tabindex="0">{text}</pre></div>"#,
            tone = tone,
            role = role,
            text = text
        )
    });
    let field = |name: &str, title: &str, hint: &str, example: &str| {
        html!(
            r#"<div class="field"><label for="f-{name}">{title} <span class="hint">{hint}</span></label><input id="f-{name}" name="{name}" value="{value:#}" placeholder="{example}" spellcheck="false"{sign}></div>"#,
            name = name,
            sign = sign(name),
            title = title,
            hint = hint,
            example = example,
            value = written.text(name),
        )
    };
    let lines = |name: &str, title: &str, hint: &str, example: &str| {
        html!(
            r#"<div class="field"><label for="f-{name}">{title} <span class="hint">{hint}</span></label><textarea id="f-{name}" name="{name}" rows="3" placeholder="{example}" spellcheck="false"{sign}>{value:#}</textarea></div>"#,
            name = name,
            sign = sign(name),
            title = title,
            hint = hint,
            example = example,
            value = written.text(name),
        )
    };
    let primary = if is_tried { ("quiet", "") } else { ("", "quiet") };
    html!(
        r#"<form class="card" method="post" action="/add">{csrf}{note}{name}{description}
<div class="field"><label for="f-kind">Kind</label><select id="f-kind" name="kind" data-kinds>{kinds}</select></div>
<fieldset data-kind="stdio"><legend>A program</legend>{command}{args}{env}{cwd}</fieldset>
<fieldset data-kind="http sse"><legend>A URL</legend>{url}{headers}</fieldset>
<fieldset data-kind="docker"><legend>A container</legend>{image}{docker_args}{docker_env}{volumes}{ports}</fieldset>
{timeout}<div class="field"><label class="check"><input type="checkbox" name="lazy"{lazy}> Start the server only when it is needed</label></div>
<div class="actions"><button name="action" value="test" class="{test}" data-busy="Testing …">Test</button><button name="action" value="save" class="{save}" data-busy="Testing and adding …">Test and add</button>
<button name="action" value="save-untested" class="quiet">Add without a test</button></div></form>"#,
        csrf = request.csrf(),
        note = note,
        name = field("name", "Name", "lowercase letters, digits, - and _", "github"),
        description = field("description", "Description", "what the server is for; optional", ""),
        kinds = options(KINDS.map(|(value, name)| (value, name.to_owned())), kind),
        command = field("command", "Command", "", "npx"),
        args = lines("args", "Arguments", "one per line", "-y\n@modelcontextprotocol/server-github"),
        env = lines(
            "env",
            "Environment",
            "NAME=value, one per line; ${VAR} is replaced when connecting",
            "GITHUB_TOKEN=${GITHUB_TOKEN}"
        ),
        cwd = field("cwd", "Working folder", "optional", "/home/me/project"),
        url = field("url", "Address", "", "https://example.com/mcp"),
        headers = lines("headers", "Headers", "Name: value, one per line", "Authorization: Bearer ${TOKEN}"),
        image = field("image", "Image", "", "ghcr.io/github/github-mcp-server"),
        docker_args = lines("docker_args", "Arguments", "one per line", ""),
        docker_env = lines("docker_env", "Environment", "NAME=value, one per line", ""),
        volumes = lines(
            "volumes",
            "Folders and volumes",
            "HERE:/INSIDE, or HERE:/INSIDE:ro for read-only; one per line",
            "/home/me/notes:/notes:ro"
        ),
        ports = field("port", "Port", "the port, if the server uses HTTP; leave empty for stdio", ""),
        timeout = field("timeout", "Timeout", "milliseconds for each call; empty for the default", ""),
        lazy = written.has("lazy").then(|| html!(" checked")),
        test = primary.0,
        save = primary.1,
    )
}

/// Tests or adds one or several servers.
pub(crate) async fn act(request: &PageRequest<'_>) -> Result<PageResponse, Error> {
    match request.form.text("action") {
        "paste" => import::pasted(request).await,
        "try" => import::take(request, false).await,
        "take" => import::take(request, true).await,
        action => one(request, action).await,
    }
}

async fn one(request: &PageRequest<'_>, action: &str) -> Result<PageResponse, Error> {
    let others = import::sections(request).await?;
    let again = |note: Note| {
        let status = if note.is_good { StatusCode::OK } else { StatusCode::UNPROCESSABLE_ENTITY };
        page(request, status, &by_hand(request, &request.form, Some(note)), &others)
    };
    if let Some((field, why)) = missing(&request.form) {
        return Ok(again(Note::at(field, why)));
    }
    if let Some(why) = whole_line(&request.form) {
        return Ok(again(Note::at("command", why)));
    }
    // Reported before the test, which may take some time.
    if request.service().server(request.form.text("name").trim()).await.is_ok() {
        return Ok(again(Note::at("name", "Name: a server with this name already exists.")));
    }
    let registration = match registration(&request.form) {
        Ok(registration) => registration,
        Err((field, why)) => return Ok(again(Note::at(field, why))),
    };
    let mut next = "";
    if action != "save-untested" {
        match request.service().test_unregistered(registration.clone()).await {
            Ok(report) if report.success && action == "test" => {
                return Ok(again(Note { is_good: true, text: report_with_tools(&report), field: None }));
            }
            Ok(report) if report.success => {}
            Ok(report) if report.sign_in_required && action == "test" => {
                let text = report_in_words(&report) + " Add it, then sign in on its page.";
                return Ok(again(Note { is_good: true, text, field: None }));
            }
            // Only a server that was added can be signed in to.
            Ok(report) if report.sign_in_required => next = " It requires a sign-in: sign in here.",
            Ok(report) => {
                let hint = other_kind(request.form.text("kind"), report.error.as_deref().unwrap_or_default());
                return Ok(again(Note::bad(report_in_words(&report) + hint + &two_in_one(&request.form))));
            }
            Err(error) => return Ok(again(refusal(&error, request.form.text("kind")))),
        }
    }
    let name = registration.name.clone();
    Ok(match request.service().register(&request.actor, registration).await {
        Ok(_) => request.done(format!("Added {name}.{next}"), server_path(&name)),
        Err(error) => again(refusal(&error, request.form.text("kind"))),
    })
}

/// Detects a whole shell command where only the program belongs.
fn whole_line(form: &Form) -> Option<String> {
    let command = form.value_of("command").filter(|_| !matches!(form.text("kind"), "docker" | "http" | "sse"))?;
    let (program, rest) = command.split_once(char::is_whitespace)?;
    if std::path::Path::new(command).exists() {
        return None;
    }
    let rest = rest.split_whitespace().collect::<Vec<_>>().join("\n");
    Some(format!("Command: enter only the program, `{program}`. The rest goes into Arguments, one per line:\n{rest}"))
}

/// Detects an option and its value on one line, which would be one argument.
fn two_in_one(form: &Form) -> String {
    let both = lines(form, "args").find(|line| line.starts_with('-') && line.contains(' ') && !line.contains('='));
    both.map(|line| format!("\nEach line of Arguments is one argument: `{line}` may have to be two."))
        .unwrap_or_default()
}

/// What to try if a server responds, but not as the chosen kind.
fn other_kind(kind: &str, error: &str) -> &'static str {
    let is_answer = ["HTTP 400", "HTTP 404", "HTTP 405", "HTTP 406", "HTTP 415", "instead of JSON or an event stream"];
    match kind {
        _ if !is_answer.iter().any(|sign| error.contains(sign)) => "",
        "http" => "\nIf the URL is right, it may be an older server: try “A URL (HTTP+SSE, older)”.",
        "sse" => "\nIf the URL is right, it may be a newer server: try “A URL (Streamable HTTP)”.",
        _ => "",
    }
}

/// A required field that is empty.
fn missing(form: &Form) -> Option<(&'static str, &'static str)> {
    let needed = match form.text("kind") {
        "docker" => ("image", "Image: enter the image to run"),
        "http" | "sse" => ("url", "URL: enter the URL of the server"),
        _ => ("command", "Command: enter the program to start"),
    };
    let all = [("name", "Name: enter a name"), needed];
    all.into_iter().find(|(field, _)| form.value_of(field).is_none())
}

/// The reason of a refusal at the first affected field, without internal names.
fn refusal(error: &Error, kind: &str) -> Note {
    let plain = |text: &str| text.replace("$.mcpServers.", "");
    let Error::Validation { problems } = error else { return Note::bad(plain(&error_text(error))) };
    let line = |problem: &service::Problem| match field_of(&problem.loc, kind) {
        // The name of the field is already shown before it.
        Some((_, title)) => {
            let key = problem.loc.last().map(String::as_str).unwrap_or_default();
            let message = problem.msg.strip_prefix(&format!("`{key}` ")).unwrap_or(&problem.msg);
            format!("{title}: {}", plain(message))
        }
        None => plain(&format!("{}: {}", problem.loc.last().map(String::as_str).unwrap_or_default(), problem.msg)),
    };
    let text = problems.iter().map(line).collect::<Vec<_>>().join("\n");
    let field = problems.iter().find_map(|problem| field_of(&problem.loc, kind)).map(|(field, _)| field);
    Note { is_good: false, text, field }
}

/// The field for a location in a registration, and its name.
fn field_of(place: &[String], kind: &str) -> Option<(&'static str, &'static str)> {
    let is_docker = kind == "docker";
    let steps: Vec<&str> = place.iter().map(String::as_str).filter(|step| *step != "body").collect();
    let key = match steps.as_slice() {
        ["connection_config", "docker", key, ..] | ["connection_config", key, ..] => *key,
        ["name"] => return Some(("name", "Name")),
        ["description"] => return Some(("description", "Description")),
        _ => return None,
    };
    // An item of a list belongs to the field of the list.
    Some(match key.split('[').next().unwrap_or(key) {
        "command" => ("command", "Command"),
        "args" if is_docker => ("docker_args", "Arguments"),
        "args" => ("args", "Arguments"),
        "env" if is_docker => ("docker_env", "Environment"),
        "env" => ("env", "Environment"),
        "cwd" => ("cwd", "Working folder"),
        "timeout" => ("timeout", "Timeout"),
        "url" | "base_url" => ("url", "Address"),
        "headers" => ("headers", "Headers"),
        "image" => ("image", "Image"),
        "volumes" => ("volumes", "Folders and volumes"),
        "ports" => ("port", "Port"),
        _ => return None,
    })
}

/// The registration in a form, or the problem of a field.
fn registration(form: &Form) -> Result<Registration, (&'static str, String)> {
    let mut config = Map::new();
    let transport = match form.text("kind") {
        "docker" => {
            let mut docker = json!({"image": form.text("image").trim()});
            if let Some(args) = listed(form, "docker_args") {
                docker["args"] = args;
            }
            if let Some(env) = pairs(form, "docker_env", '=')? {
                docker["env"] = env;
            }
            if let Some(volumes) = listed(form, "volumes") {
                docker["volumes"] = volumes;
            }
            let port = port(form)?;
            if let Some(port) = port {
                docker["ports"] = json!([port]);
            }
            config.insert("docker".to_owned(), docker);
            if port.is_some() { Transport::Http } else { Transport::Stdio }
        }
        kind @ ("http" | "sse") => {
            config.insert("url".to_owned(), json!(form.text("url").trim()));
            config.extend(pairs(form, "headers", ':')?.map(|headers| ("headers".to_owned(), headers)));
            if kind == "http" { Transport::Http } else { Transport::Sse }
        }
        _ => {
            config.insert("command".to_owned(), json!(form.text("command").trim()));
            config.extend(listed(form, "args").map(|args| ("args".to_owned(), args)));
            config.extend(pairs(form, "env", '=')?.map(|env| ("env".to_owned(), env)));
            config.extend(form.value_of("cwd").map(|cwd| ("cwd".to_owned(), json!(cwd))));
            Transport::Stdio
        }
    };
    if let Some(text) = form.value_of("timeout") {
        let number = text.parse::<u64>().ok().filter(|number| *number > 0);
        let number =
            number.ok_or(("timeout", "Timeout: enter a whole number of milliseconds, or nothing".to_owned()))?;
        config.insert("timeout".to_owned(), json!(number));
    }
    if form.has("lazy") {
        config.insert("lazy".to_owned(), json!(true));
    }
    Ok(Registration {
        name: form.text("name").trim().to_owned(),
        description: form.value_of("description").map(str::to_owned),
        transport_type: transport,
        deployment_type: None,
        connection_config: config,
        health_check_url: None,
        auto_connect: true,
        enabled: true,
    })
}

fn port(form: &Form) -> Result<Option<u16>, (&'static str, String)> {
    let number = |text: &str| text.parse().ok().filter(|port| *port > 0);
    let wrong = || ("port", "Port: enter a number from 1 to 65535, or nothing".to_owned());
    form.value_of("port").map(|text| number(text).ok_or_else(wrong)).transpose()
}

fn lines<'f>(form: &'f Form, name: &str) -> impl Iterator<Item = &'f str> {
    form.get(name).unwrap_or_default().lines().map(str::trim).filter(|line| !line.is_empty())
}

fn listed(form: &Form, name: &str) -> Option<Value> {
    let all: Vec<&str> = lines(form, name).collect();
    (!all.is_empty()).then(|| json!(all))
}

fn pairs(form: &Form, name: &'static str, between: char) -> Result<Option<Value>, (&'static str, String)> {
    let mut all = Map::new();
    let is_comment = |line: &&str| between == '=' && line.starts_with('#');
    for line in lines(form, name).filter(|line| !is_comment(line)) {
        let line = if between == '=' { line.strip_prefix("export ").unwrap_or(line) } else { line };
        let (key, value) = line.split_once(between).ok_or_else(|| {
            let (title, form) = if between == ':' { ("Headers", "Name: value") } else { ("Environment", "NAME=value") };
            (name, format!("{title}: `{line}` is not {form}"))
        })?;
        all.insert(key.trim().to_owned(), json!(value.trim()));
    }
    Ok((!all.is_empty()).then_some(Value::Object(all)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_becomes_a_registration() {
        let form = Form::read(b"name=x&kind=stdio&command=npx&args=-y%0D%0Aa+b&env=A%3D1%3D2&lazy=on");
        let made = registration(&form).unwrap();
        let expected = json!({"command": "npx", "args": ["-y", "a b"], "env": {"A": "1=2"}, "lazy": true});
        assert_eq!(Value::Object(made.connection_config), expected);
        let form = Form::read(b"name=x&kind=http&url=http://h&timeout=120000");
        assert_eq!(registration(&form).unwrap().connection_config["timeout"], 120_000);
        assert_eq!(registration(&Form::read(b"kind=stdio&timeout=1m")).unwrap_err().0, "timeout");
        let form = Form::read(b"name=x&kind=sse&url=http://h&headers=A:+b:c");
        let made = registration(&form).unwrap();
        assert_eq!(made.transport_type, Transport::Sse);
        assert_eq!(Value::Object(made.connection_config), json!({"url": "http://h", "headers": {"A": "b:c"}}));
        assert!(registration(&Form::read(b"kind=http&headers=nonsense")).is_err());
        let form = Form::read(b"name=x&kind=docker&image=a&volumes=/n:/n:ro&port=8080");
        let made = registration(&form).unwrap();
        assert_eq!(made.transport_type, Transport::Http);
        let expected = json!({"docker": {"image": "a", "volumes": ["/n:/n:ro"], "ports": [8080]}});
        assert_eq!(Value::Object(made.connection_config), expected);
        assert_eq!(registration(&Form::read(b"name=x&kind=docker&image=a&port=web")).unwrap_err().0, "port");
    }

    #[test]
    fn the_wrong_kind_of_url_gets_a_hint_about_the_other() {
        assert!(other_kind("http", "it answered HTTP 404 Not Found").contains("HTTP+SSE"));
        assert!(other_kind("sse", "it answered HTTP 405 Method Not Allowed").contains("Streamable"));
        assert_eq!(other_kind("http", "it is unreachable: refused"), "");
    }

    #[test]
    fn pasted_json_gets_a_hint_to_import() {
        let why = whole_line(&Form::read(b"kind=stdio&command=npx+-y++@a/b")).unwrap();
        assert!(why.contains("`npx`") && why.ends_with("-y\n@a/b"), "{why}");
        assert_eq!(whole_line(&Form::read(b"kind=stdio&command=npx")), None);
        assert!(two_in_one(&Form::read(b"args=-u+/x.py")).contains("`-u /x.py`"));
        let form = Form::read(b"name=x&kind=stdio&command=a&env=export+A%3Db%0A%23+why");
        assert_eq!(registration(&form).unwrap().connection_config["env"], json!({"A": "b"}));
    }

    #[test]
    fn problems_are_reported_at_their_fields() {
        for (form, field, begin) in [
            (&b"name=9x&kind=stdio&command=a"[..], "name", "Name: "),
            (b"name=x&kind=http&url=ftp://h", "url", "Address: must start with http://"),
            (b"name=x&kind=docker&image=a&volumes=nonsense", "volumes", "Folders and volumes: "),
        ] {
            let form = Form::read(form);
            let problems = registration(&form).unwrap().problems();
            let note = refusal(&Error::Validation { problems }, form.text("kind"));
            assert_eq!(note.field, Some(field));
            assert!(note.text.starts_with(begin), "{}", note.text);
        }
    }
}
