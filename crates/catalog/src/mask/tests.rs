//! Tables of masked and unmasked texts, and a property test that no secret remains.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::arguments::arguments as shown_arguments;
use super::{MASK, address, text};

fn shown(items: &Value) -> Value {
    Value::Array(shown_arguments(None, items.as_array().unwrap()))
}

#[test]
fn secrets_in_arguments_are_hidden_however_they_are_written() {
    for (written, expected) in [
        (json!(["--header", "Authorization: Bearer hidden-1"]), json!(["--header", "Authorization: ***"])),
        (json!(["-H", "X-Anything:hidden-1"]), json!(["-H", "X-Anything:***"])),
        (json!(["--header=X-Other: hidden-1"]), json!(["--header=X-Other: ***"])),
        (json!(["-HX-Other: hidden-1"]), json!(["-HX-Other: ***"])),
        (json!(["Authorization:Bearer hidden-1"]), json!(["Authorization:***"])),
        (json!(["Authorization: Basic hidden-1"]), json!(["Authorization: ***"])),
        (json!(["--auth", "hidden-1"]), json!(["--auth", "***"])),
        (json!(["-e", "ANYTHING=hidden-1"]), json!(["-e", "ANYTHING=***"])),
        (json!(["-eANYTHING=hidden-1"]), json!(["-eANYTHING=***"])),
        (json!(["--env=ANYTHING=hidden-1"]), json!(["--env=ANYTHING=***"])),
        (json!(["GITHUB_PAT=hidden-1"]), json!(["GITHUB_PAT=***"])),
        (json!(["sk-proj-hidden0123456789"]), json!(["***"])),
        (json!(["--with=ghp_hidden0123456789abcdef"]), json!(["--with=***"])),
        (json!(["https://host/mcp/sk-hidden0123456789/x"]), json!(["https://host/mcp/***/x"])),
        (json!(["say Bearer hidden-1"]), json!(["say Bearer ***"])),
        (json!(["say basic aGlkZGVuOjE="]), json!(["say basic ***"])),
        (json!(["--pwd=hidden-1"]), json!(["--pwd=***"])),
        (json!(["--password=hidden-1 with a space"]), json!(["--password=***"])),
        (json!(["--password", "hidden-1"]), json!(["--password", "***"])),
        (json!(["--basic", "hidden-1"]), json!(["--basic", "***"])),
        (json!(["--basic", "me:hidden-1"]), json!(["--basic", "***"])),
        (json!(["--basic-auth", "me:hidden-1"]), json!(["--basic-auth", "***"])),
        (json!(["-u", "me:hidden-1"]), json!(["-u", "me:***"])),
        (json!(["-ume:hidden-1"]), json!(["-ume:***"])),
        (json!(["--user", "me:hidden-1"]), json!(["--user", "me:***"])),
        (json!(["--user=me:hidden-1"]), json!(["--user=me:***"])),
        (json!(["--proxy-user", "me:hid:den-1"]), json!(["--proxy-user", "me:***"])),
        (json!(["-p", "hidden-1"]), json!(["-p", "***"])),
        (json!(["-phidden-1"]), json!(["-p***"])),
        (json!(["-pSECRET"]), json!(["-p***"])),
        (json!(["-psecret"]), json!(["-p***"])),
        (json!(["-Dapp.password=hidden-1"]), json!(["-Dapp.password=***"])),
        (json!([{"password": "hidden-1"}]), json!([{"password": "***"}])),
        (json!([["--token", "hidden-1"]]), json!([["--token", "***"]])),
    ] {
        assert_eq!(shown(&written), expected);
    }
}

#[test]
fn secrets_in_texts_are_hidden_and_the_rest_is_shown() {
    for (written, expected) in [
        // Connection strings.
        ("Server=db;Database=x;User Id=me;Password=hidden-1;", "Server=db;Database=x;User Id=me;Password=***;"),
        ("Server=db;Pwd=hidden 1;Encrypt=true", "Server=db;Pwd=***;Encrypt=true"),
        ("Server=db;Password='hid;den-1';Encrypt=true", "Server=db;Password='***';Encrypt=true"),
        ("Driver={PostgreSQL};Pwd={hid;den-1};Port=5432", "Driver={PostgreSQL};Pwd=***;Port=5432"),
        ("Password = hidden-1; Server = db", "Password = ***; Server = db"),
        ("AccountName=a;AccountKey=hidden-1==;EndpointSuffix=x", "AccountName=a;AccountKey=***;EndpointSuffix=x"),
        ("Endpoint=sb://x/;SharedAccessKey=hidden-1=", "Endpoint=sb://x/;SharedAccessKey=***"),
        ("host=db user=me password=hidden-1 dbname=x", "host=db user=me password=*** dbname=x"),
        ("host=db password='hidden 1' dbname=x", "host=db password='***' dbname=x"),
        ("cache:6379,password=hidden-1,ssl=True", "cache:6379,password=***,ssl=True"),
        ("jdbc:sqlserver://db;user=me;password=hidden-1;", "jdbc:sqlserver://db;user=me;password=***;"),
        ("jdbc:mysql://db/x?user=me&password=hidden-1", "jdbc:mysql://db/x?user=me&password=***"),
        // Query parameters.
        ("https://a.blob/c?sv=1&sig=hidden-1&se=2", "https://a.blob/c?sv=1&sig=***&se=2"),
        ("https://s3/o?X-Amz-Date=1&X-Amz-Signature=hidden1", "https://s3/o?X-Amz-Date=1&X-Amz-Signature=***"),
        ("https://h/mcp?a=1&token=hidden-1#x", "https://h/mcp?a=1&token=***#x"),
        ("https://h/mcp?key=hidden-1", "https://h/mcp?key=***"),
        ("https://h/#access_token=hidden-1&x=1", "https://h/#access_token=***&x=1"),
        ("see https://h/mcp?key=hidden-1 for more", "see https://h/mcp?key=*** for more"),
        // Addresses.
        ("postgres://me:hidden-1@db:5432/x?sslmode=require", "postgres://me:***@db:5432/x?sslmode=require"),
        ("redis://:hidden-1@cache/0", "redis://:***@cache/0"),
        ("mongodb+srv://me:hidden-1@a,b:1/x", "mongodb+srv://me:***@a,b:1/x"),
        ("amqp://me:hid@den-1@mq/vhost", "amqp://me:***@mq/vhost"),
        ("postgres://me:hid/den-1@db/x", "postgres://me:***@db/x"),
        ("postgres://me:hid?den#1@db/x", "postgres://me:***@db/x"),
        ("postgres://me:123/hidden@db/x", "postgres://me:***@db/x"),
        ("postgres://me:hid den@db/x", "postgres://me:***@db/x"),
        ("could not reach https://me:hidden-1@host/x today", "could not reach https://me:***@host/x today"),
        ("--proxy=http://me:hidden-1@proxy:3128", "--proxy=http://me:***@proxy:3128"),
        ("DATABASE_URL=postgres://me:hidden-1@db/x", "DATABASE_URL=postgres://me:***@db/x"),
        ("https://hidden0123456789abcdef@host/x", "https://***@host/x"),
        ("a https://m:hidden@x b ftp://m:hidden@y", "a https://m:***@x b ftp://m:***@y"),
        // JSON and headers within a text.
        (r#"{"apiKey":"hidden-1","n":1}"#, r#"{"apiKey":"***","n":1}"#),
        (r#"{"password" : "hidden 1"}"#, r#"{"password" : "***"}"#),
        (r#"{\"clientSecret\":\"hidden-1\",\"a\":1}"#, r#"{\"clientSecret\":\"***\",\"a\":1}"#),
        ("curl -H 'X-Api-Key: hidden-1' x", "curl -H 'X-Api-Key: ***' x"),
        ("sent Authorization: Basic hidden", "sent Authorization: ***"),
    ] {
        assert_eq!(text(written), expected, "{written}");
        assert_eq!(text(expected), expected, "what is masked stays as it is");
    }
}

#[test]
fn values_that_are_not_secret_stay_readable() {
    let items = json!([
        "-y",
        "mcp-remote",
        "https://host:8080/keys/1?page=2",
        "https://host:8080/@scope/package?at=me@x",
        "--header",
        "Authorization: Bearer ${TOKEN}",
        "--header",
        "Authorization:${AUTH_HEADER}",
        "-p",
        "8080",
        "-p",
        "8080:80",
        "-p",
        "127.0.0.1:8080:80/tcp",
        "-p",
        "localhost:8080",
        "-p",
        "3.12",
        "-p",
        "@me/tool",
        "-p",
        "${PASS}",
        "-p8080",
        "-p8080:80",
        "-p3000-3010",
        "-print",
        "-port=80",
        "-pv",
        "-p=80",
        "--port",
        "8080",
        "-u",
        "1000:1000",
        "-u",
        "me",
        "-uroot",
        "-u",
        "me:${PASSWORD}",
        "--basic",
        "https://host/x",
        "--no-auth",
        "visible",
        "--token-file",
        "/run/secrets/token",
        "--auth-url",
        "https://login.example/x",
        "-e",
        "NAME",
        "sk-learn-server",
        "--author",
        "me",
        "C:\\keys",
        "ein Wort: zwei",
        "a basic example of it",
        "--monkey=1",
        "${TOKEN}",
        "pk_2",
        "Server=db;Database=x;Trusted_Connection=True;",
        "postgres://me@db/x",
        "postgres://db:5432/x",
        "mongodb://a:1,b:2/x",
        "http://[::1]:8080/x",
        "https://host:${PORT}/x",
        "--config={\"port\":8080}"
    ]);
    assert_eq!(shown(&items), items);
}

#[test]
fn p_is_a_package_for_programs_that_run_packages() {
    let items = json!(["-p", "typescript", "-ptool", "tsc"]);
    let shown_by = |command| Value::Array(shown_arguments(Some(command), items.as_array().unwrap()));
    assert_eq!(shown_by("npx"), items);
    assert_eq!(shown_by("/usr/bin/docker"), items);
    assert_eq!(shown_by("mysql"), json!(["-p", "***", "-p***", "tsc"]));
}

#[test]
fn wrapped_programs_have_their_own_arguments() {
    for (command, written, expected) in [
        ("npx", json!(["-y", "mysql-mcp", "-phidden-1"]), json!(["-y", "mysql-mcp", "-p***"])),
        ("npx", json!(["-p", "typescript", "tsc", "-p", "hidden-1"]), json!(["-p", "typescript", "tsc", "-p", "***"])),
        ("uvx", json!(["--from", "x", "tool", "-phidden-1"]), json!(["--from", "x", "tool", "-p***"])),
        ("node", json!(["server.js", "-phidden-1"]), json!(["server.js", "-p***"])),
        ("python3", json!(["-m", "server", "-p", "hidden-1"]), json!(["-m", "server", "-p", "***"])),
        ("npm", json!(["exec", "--", "tool", "-phidden-1"]), json!(["exec", "--", "tool", "-p***"])),
        ("pipx", json!(["run", "tool", "-phidden-1"]), json!(["run", "tool", "-p***"])),
        ("bun", json!(["run", "server.ts", "-phidden-1"]), json!(["run", "server.ts", "-p***"])),
        (
            "docker",
            json!(["run", "-i", "--rm", "-p", "80:80", "--name", "db", "mysql", "mysql", "-phidden-1"]),
            json!(["run", "-i", "--rm", "-p", "80:80", "--name", "db", "mysql", "mysql", "-p***"]),
        ),
        ("docker", json!(["exec", "-i", "db", "mysql", "-phidden-1"]), json!(["exec", "-i", "db", "mysql", "-p***"])),
        ("mkdir", json!(["-p", "folder"]), json!(["-p", "folder"])),
        ("docker", json!(["run", "-p", "one", "image"]), json!(["run", "-p", "one", "image"])),
    ] {
        let shown = Value::Array(shown_arguments(Some(command), written.as_array().unwrap()));
        assert_eq!(shown, expected, "{command}");
    }
}

#[test]
fn secrets_in_what_a_shell_runs_are_hidden() {
    for (command, written, expected) in [
        ("sh", json!(["-c", "exec mysql -phidden-1 x"]), json!(["-c", "exec mysql -p*** x"])),
        ("/bin/bash", json!(["-lc", "server --password hidden-1"]), json!(["-lc", "server --password ***"])),
        ("sh", json!(["-c", "server --password 'hid den-1' x"]), json!(["-c", "server --password '***' x"])),
        ("sh", json!(["-c", "TOKEN=hidden-1 server"]), json!(["-c", "TOKEN=*** server"])),
        ("sh", json!(["-c", "cd /x && npx -p a tool -phidden-1"]), json!(["-c", "cd /x && npx -p a tool -p***"])),
        ("sh", json!(["-c", "curl -u me:hidden-1 https://x|cat"]), json!(["-c", "curl -u me:*** https://x|cat"])),
        ("cmd", json!(["/c", "server --token hidden-1"]), json!(["/c", "server --token ***"])),
        (
            "docker",
            json!(["run", "image", "sh", "-c", "mysql -phidden-1"]),
            json!(["run", "image", "sh", "-c", "mysql -p***"]),
        ),
        ("sh", json!(["-c", "npx -p a tool 8080 \"$TOKEN\""]), json!(["-c", "npx -p a tool 8080 \"$TOKEN\""])),
    ] {
        let shown = Value::Array(shown_arguments(Some(command), written.as_array().unwrap()));
        assert_eq!(shown, expected, "{command}");
    }
}

#[test]
fn a_secret_in_json_is_hidden_whatever_it_is() {
    for (written, expected) in [
        (r#"{"password":"hid\"den-1","n":1}"#, r#"{"password":"***","n":1}"#),
        (r#"{"tokens":["hidden-1","hid]den"],"n":1}"#, r#"{"tokens":***,"n":1}"#),
        (r#"{"pin":1,"password": 12345678, "n":1}"#, r#"{"pin":1,"password": ***, "n":1}"#),
        (r#"{"secret":{"a":"hidden-1"},"n":1}"#, r#"{"secret":***,"n":1}"#),
        (r#"{"env":{"ANY":"hidden-1","B":"hidden-2"},"n":"x"}"#, r#"{"env":{"ANY":"***","B":"***"},"n":"x"}"#),
        (r#"{"headers":{"X":"hidden-1"},"n":{"y":"x"}}"#, r#"{"headers":{"X":"***"},"n":{"y":"x"}}"#),
        (r#"{"password":null,"auth":true,"max_tokens":4096}"#, r#"{"password":null,"auth":true,"max_tokens":4096}"#),
    ] {
        assert_eq!(text(written), expected, "{written}");
        assert_eq!(text(expected), expected, "what is masked stays as it is");
    }
}

#[test]
fn a_place_has_neither_password_nor_query() {
    for (written, expected) in [
        ("https://me:hidden@host:1/x?key=hidden#hidden", "https://me@host:1/x"),
        ("https://host/x", "https://host/x"),
        ("https://hidden0123456789abcdef@host/x", "https://host/x"),
        ("postgres://me:hid?den@db/x", "postgres://me@db/x"),
    ] {
        assert_eq!(address(written), expected);
    }
}

/// Texts with a secret in place of U+0001.
const PLACES: [&[&str]; 26] = [
    &["--password", "\u{1}"],
    &["--password=\u{1}"],
    &["--api-key", "\u{1}"],
    &["--basic", "\u{1}"],
    &["--header", "X-Key: \u{1}"],
    &["--header=Authorization: Basic \u{1}"],
    &["-H", "Cookie:\u{1}"],
    &["-e", "ANY=\u{1}"],
    &["-eANY=\u{1}"],
    &["-u", "me:\u{1}"],
    &["--user=me:\u{1}"],
    &["-p\u{1}"],
    &["-p", "\u{1}"],
    &["TOKEN=\u{1}"],
    &["Server=x;Password=\u{1};Port=1"],
    &["Server=x;Pwd=\u{1}"],
    &["host=x password=\u{1} port=1"],
    &["https://h/x?sig=\u{1}&a=1"],
    &["https://h/x?a=1&X-Amz-Signature=\u{1}"],
    &["https://h/x?key=\u{1}#part"],
    &["postgres://me:\u{1}@db/x"],
    &["redis://:\u{1}@db"],
    &["mongodb+srv://me:\u{1}@a,b/x"],
    &["amqp://me:\u{1}@mq:1/v"],
    &["{\"password\":\"\u{1}\"}"],
    &["say Bearer \u{1} and more"],
];

#[test]
fn a_long_text_takes_neither_the_stack_nor_time_by_its_square() {
    for part in [
        "bearer a1 ",
        "basic a1:b ",
        "x:y/://",
        "key=x ",
        "a://b:c/",
        "{\"key\":\"x\"},",
        "key: x-key: ",
        "==::",
        "\"env\":{",
        "\"env\":{\"a\":1},",
        "\"key\":[",
    ] {
        let long = part.repeat(1 << 17);
        assert!(text(&long).len() <= 2 * long.len());
    }
}

proptest! {
    #[test]
    fn no_secret_is_left_whatever_it_is_made_of(
        beginning in "[A-Za-z]",
        middle in "[A-Za-z0-9!$%^*()_+~.@-]{6,20}",
        end in "[0-9][A-Za-z0-9]",
        place in 0..PLACES.len(),
    ) {
        // References are no secrets.
        let secret = format!("{beginning}{middle}{end}");
        let items: Vec<Value> = PLACES[place].iter().map(|part| part.replace('\u{1}', &secret).into()).collect();
        let shown = shown_arguments(None, &items);
        let all = Value::Array(shown).to_string();
        prop_assert!(!all.contains(&secret), "{all}");
        prop_assert!(all.contains(MASK), "{all}");
    }

    #[test]
    fn masking_never_panics_and_changes_nothing_twice(written in any::<String>()) {
        let once = text(&written);
        prop_assert_eq!(text(&once), once);
    }

    #[test]
    fn masking_of_what_looks_like_something_never_panics(written in "[-a-zé=:;,@?&#/'\"\\\\{}$ *kepwd]{0,40}") {
        let once = text(&written);
        prop_assert_eq!(&text(&once), &once);
        shown_arguments(None, &[Value::String(written), Value::String(once)]);
    }
}
