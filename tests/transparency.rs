//! Bytes in = bytes out: the bytes of arguments, results and errors pass unchanged.

use testkit::{Config, Driver, fake, raw};

use crate::fixture::{Journal, connected};

/// Numbers that a parser would round, shorten or refuse.
const NUMBERS: &[&str] = &[
    "0",
    "-0",
    "0.0",
    "-0.0",
    "1.0",
    "1.50",
    "1e2",
    "1E2",
    "1e+2",
    "1E-2",
    "1e400",
    "-1e400",
    "1e-400",
    "0e0",
    "0.1e-7",
    "9007199254740993",
    "18446744073709551616",
    "-9223372036854775809",
    "1234567890123456789012345678901234567890",
    "0.1000000000000000055511151231257827",
    "3.141592653589793238462643383279",
    "1e00000000000000000000002",
];

/// Strings in every spelling.
const STRINGS: &[&str] = &[
    r#""""#,
    r#"" ""#,
    r#""\"""#,
    r#""\\""#,
    r#""\/""#,
    r#""/""#,
    r#""\b\f\n\r\t""#,
    r#""\u0000""#,
    r#""\u0000a\u0000""#,
    r#""\u001f""#,
    r#""\u007f""#,
    "\"\u{7f}\"",
    r#""\u00e9""#,
    r#""\u00E9""#,
    "\"é\"",
    "\"e\u{301}\"",
    r#""\ud83d\ude00""#,
    r#""\uD83D\uDE00""#,
    "\"😀\"",
    r#""\ud800""#,
    r#""\udc00""#,
    r#""\ud800\ud800""#,
    r#""\udc00\ud800""#,
    r#""\ud800x""#,
    r#""\u2028\u2029""#,
    "\"\u{2028}\u{2029}\"",
    "\"\u{feff}\"",
    "\"\u{fffd}\"",
    "\"\u{ffff}\"",
    "\"\u{10ffff}\"",
    "\"\u{202e}right to left\"",
    "\"\u{200b}\u{200d}\"",
    "\"👨‍👩‍👧\"",
    r#""\\u0041""#,
    r#""\\\\""#,
    r#""\\\"""#,
    r#""</script>""#,
    r#""{\"id\":1,\"result\":{}}""#,
    r#""\"id\":7}""#,
    r#""{id}""#,
    r#""null""#,
    r#""]}""#,
];

/// Structure: order, repetition, white space, emptiness.
const SHAPES: &[&str] = &[
    "null",
    "true",
    "false",
    "[]",
    "{}",
    "[ ]",
    "{ }",
    "[[]]",
    "[{}]",
    "{\"a\":{}}",
    "[null,true,false]",
    r#"{"b":1,"a":2,"c":0}"#,
    r#"{"a":1,"a":2}"#,
    r#"{"a":{"b":1,"b":2},"a":[]}"#,
    r#"{"":1}"#,
    r#"{"":{"":{"":[]}}}"#,
    r#"{" ":1,"\t":2,"\u0000":3}"#,
    r#"{"\u0061":1,"a":2}"#,
    r#"{"\ud800":1}"#,
    r#"{"é":1,"\u00e9":2}"#,
    r#"{"__proto__":{"x":1}}"#,
    r#"{"constructor":null,"toString":0}"#,
    r#"{"10":1,"9":2,"1":3}"#,
    "{ \"a\" : 1 , \"b\" : [ 1 , 2 ] }",
    "{\t\"a\"\t:\t1\t}",
    "{\r\"a\":\r1\r}",
    "[ 1,2 ,3 , 4]",
    "  {\"a\":1}  ",
    r#"{"id":1,"jsonrpc":"1.0","method":"x"}"#,
    r#"{"id":null,"result":{},"error":{}}"#,
    r#"{"name":"one:echo","arguments":{},"_meta":{"progressToken":9}}"#,
    r#"{"params":{"name":"x","requestId":1,"cursor":"c","progressToken":1}}"#,
    r#"[[[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]]]"#,
    r#"[1,"1",1.0,"1.0",[1],{"1":1}]"#,
    r#"{"content":[{"type":"text","text":"x","annotations":{"audience":["user"],"priority":1.0},"_meta":{"a/b":[1e2]}}]}"#,
    r#"{"content":[{"type":"hologram","data":"?","unknown":{"deep":[{}]}}],"structuredContent":{"n":1e2},"x":null}"#,
    r#"{"_meta":{"io.example/trace":{"id":1.0},"progressToken":"not ours","":[]},"content":[]}"#,
    r#"{"isError":true,"content":[]}"#,
    r#"{"isError":"maybe","content":null,"resultType":"input_required"}"#,
];

/// Error objects, valid and invalid.
const ERRORS: &[&str] = &[
    r#"{"code":-32603,"message":"x"}"#,
    r#"{"code":-32000,"message":"x","data":null}"#,
    r#"{"code":0,"message":""}"#,
    r#"{"code":99999999999999999999,"message":"out of range"}"#,
    r#"{"code":-2147483649,"message":"out of range"}"#,
    r#"{"code":1.0,"message":"x"}"#,
    r#"{"code":1e2,"message":"x"}"#,
    r#"{"code":"E_STRING","message":"x"}"#,
    r#"{"code":-32601,"message":"Tool not found: one:echo"}"#,
    r#"{"message":"first","code":1}"#,
    r#"{"message":"no code"}"#,
    r#"{"code":1}"#,
    r#"{"code":1,"message":"x","data":[1.0,"\ud800"]}"#,
    r#"{"code":1,"message":"x","data":"text"}"#,
    r#"{"code":1,"message":"x","data":-0}"#,
    r#"{"code":1,"message":"x","data":true}"#,
    r#"{"code":1,"message":"x","data":{}}"#,
    r#"{"code":1,"message":"x","stack":["a","b"],"cause":{"code":2}}"#,
    r#"{"code":1,"code":2,"message":"x"}"#,
    r#"{ "code" : 1 , "message" : "\ud800\u0000" }"#,
    r#"{"code":1,"message":null}"#,
    "null",
    "\"just text\"",
    "[]",
    "5",
    "{}",
];

/// Whole lines that a server may write, with `{id}` for the id of the request.
const LINES: &[&str] = &[
    r#"{"jsonrpc":"2.0","id":{id},"result":{}}"#,
    r#"{"result":{},"jsonrpc":"2.0","id":{id}}"#,
    r#"{"id":{id},"result":{"a":1.0},"jsonrpc":"2.0"}"#,
    r#" { "jsonrpc" : "2.0" , "id" : {id} , "result" : { } } "#,
    "\t{\t\"id\"\t:\t{id}\t,\"jsonrpc\":\"2.0\",\"result\":null}",
    r#"{"jsonrpc":"2.0","id":{id},"result":{"id":{id},"x":"{id}"}}"#,
    r#"{"jsonrpc":"2.0","unknown":{"id":5},"id":{id},"result":{},"more":[1e2]}"#,
    r#"{"unknown":1,"unknown":2,"jsonrpc":"2.0","id":{id},"result":{}}"#,
    r#"{"\u0069d":{id},"jsonrpc":"2.0","result":{}}"#,
    r#"{"jsonrpc":"2.0","r\u0065sult":{"x":1},"id":{id}}"#,
    r#"{"error":{"code":1,"message":"x"},"id":{id},"jsonrpc":"2.0"}"#,
    r#"{"jsonrpc":"2.0","params":{"name":1,"_meta":5},"id":{id},"result":[]}"#,
    r#"{"_meta":{"progressToken":1},"jsonrpc":"2.0","id":{id},"result":"text"}"#,
];

/// Ids in every spelling that JSON-RPC allows.
const IDS: &[&str] = &[
    "0",
    "-0",
    "1",
    "-1",
    "1.0",
    "1e2",
    "1E+2",
    "0.5",
    "9007199254740993",
    "123456789012345678901234567890",
    "1e400",
    "\"\"",
    "\"1\"",
    r#""\u0041""#,
    r#""\ud800""#,
    r#""\"quoted\"""#,
    r#""\u0000""#,
    "\"é😀\"",
    "\" spaces \"",
    r#""null""#,
    r#""a\/b""#,
];

/// Values of every kind, small and large.
fn values() -> Vec<String> {
    let mut values: Vec<String> = [NUMBERS, STRINGS, SHAPES].concat().into_iter().map(str::to_owned).collect();
    values.push(format!("[{}]", NUMBERS.join(",")));
    values.push(format!("[{}]", STRINGS.join(" , ")));
    values.push(format!("{}{}", "[".repeat(2000), "]".repeat(2000)));
    values.push(format!("{}1{}", "{\"a\":".repeat(2000), "}".repeat(2000)));
    values.push(format!("{}null{}", "[{\"\":".repeat(1500), "}]".repeat(1500)));
    values.push(format!("\"{}\"", "x".repeat(3_000_000)));
    values.push(format!("\"{}\"", "\\u00e9é\\\\".repeat(200_000)));
    values.push(format!("[{}]", vec!["1.0"; 100_000].join(",")));
    values.push(format!("{}1{}", " ".repeat(70_000), " ".repeat(70_000)));
    values
}

/// Sizes around the limits of buffers, where a message arrives in pieces.
fn awkward_sizes() -> impl Iterator<Item = usize> {
    [4096, 8192, 16384, 65536, 131072].into_iter().flat_map(|size| (size - 120..size + 8).step_by(16))
}

fn corpus() -> Vec<String> {
    values().into_iter().chain(awkward_sizes().map(|size| format!("\"{}\"", "y".repeat(size)))).collect()
}

/// Compares without printing megabytes.
#[track_caller]
fn assert_same(received: &[u8], expected: &[u8], case: &str) {
    if received != expected {
        let at = received.iter().zip(expected).take_while(|(a, b)| a == b).count();
        let near = |bytes: &[u8]| {
            String::from_utf8_lossy(&bytes[at.saturating_sub(60).min(bytes.len())..bytes.len().min(at + 60)])
                .into_owned()
        };
        let case: String = case.chars().take(100).collect();
        panic!("`{case}` differs at byte {at}:\n got {}\nwant {}", near(received), near(expected));
    }
}

/// The answer to the one call in flight, whatever its id looks like.
#[track_caller]
fn exchange(client: &mut Driver, line: &str) -> Vec<u8> {
    client.send_raw(line.as_bytes());
    client.send_raw(b"\n");
    client.next_line()
}

#[test]
fn the_corpus_is_large() {
    let count = corpus().len() * 2 + ERRORS.len() + LINES.len() * 2 + IDS.len();
    assert!(count >= 150, "{count} cases");
}

#[test]
fn arguments_reach_the_server_byte_for_byte() {
    let journal = Journal::new();
    let mut client = connected(&Config::new().server("one", journal.fake()));
    client.tool_names();
    let mut expected = Vec::new();
    for value in corpus() {
        // The members after the id and after the name belong to the client as much as the arguments.
        let (before, between, after) = (
            r#"{ "jsonrpc":"2.0", "id": "#,
            r#" ,"x":[1.0],"method":"tools/call","params":{"name" : "#,
            format!(r#" ,"arguments":{value},"_meta":{{"a/b":1e2,"n":{{}}}} ,"y":"\ud800"}} , "z":null }}"#),
        );
        let line = [before, "1", between, "\"one:echo\"", &after].concat();
        exchange(&mut client, &line);
        expected.push((before, [between, "\"echo\"", &after].concat(), value));
    }
    let received = journal.of_method("tools/call");
    assert_eq!(received.len(), expected.len());
    for (line, (before, rest, case)) in received.iter().zip(&expected) {
        let after_id = line.strip_prefix(before.as_bytes()).expect("nothing changed before the id");
        let digits = after_id.iter().take_while(|byte| byte.is_ascii_digit()).count();
        assert!(digits > 0, "our own id is a number");
        assert_same(&after_id[digits..], rest.as_bytes(), case);
    }
}

#[test]
fn results_reach_the_client_byte_for_byte() {
    for order in [&[][..], &["--result-first"]] {
        let mut client = connected(&Config::new().server("one", fake().args(order.iter().copied())));
        client.tool_names();
        for value in corpus() {
            let line = format!(
                r#"{{"jsonrpc":"2.0","id":"\u0041","method":"tools/call","params":{{"name":"one:raw","arguments":{{"result":{}}}}}}}"#,
                raw::quote(&value)
            );
            let answer = exchange(&mut client, &line);
            let expected = if order.is_empty() {
                format!(r#"{{"jsonrpc":"2.0","id":"\u0041","result":{value}}}"#)
            } else {
                format!(r#"{{"result":{value},"jsonrpc":"2.0","id":"\u0041"}}"#)
            };
            assert_same(&answer, expected.as_bytes(), &value);
        }
    }
}

#[test]
fn errors_reach_the_client_byte_for_byte() {
    let mut client = connected(&Config::new().server("one", fake()));
    client.tool_names();
    for error in ERRORS {
        let line = format!(
            r#"{{"jsonrpc":"2.0","id":1e0,"method":"tools/call","params":{{"name":"one:raw_error","arguments":{{"error":{}}}}}}}"#,
            raw::quote(error)
        );
        let answer = exchange(&mut client, &line);
        assert_same(&answer, format!(r#"{{"jsonrpc":"2.0","id":1e0,"error":{error}}}"#).as_bytes(), error);
    }
}

#[test]
fn whole_lines_keep_their_order_blanks_and_unknown_members() {
    let mut client = connected(&Config::new().server("one", fake()));
    client.tool_names();
    for template in LINES {
        for id in ["77777777", "\"a client's \\u0069d\""] {
            let line = format!(
                r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"one:raw_line","arguments":{{"line":{}}}}}}}"#,
                raw::quote(template)
            );
            let answer = String::from_utf8(exchange(&mut client, &line)).unwrap();
            // Only the id of the envelope is ours to replace; the result is the server's.
            let at = template.find("\"id\"").or_else(|| template.find("\"\\u0069d\"")).unwrap();
            let at = if template.contains(r#""unknown":{"id":5}"#) { template.rfind("\"id\"").unwrap() } else { at };
            let (before, after) = template.split_at(at);
            let (slot, rest) = after.split_at(after.find("{id}").unwrap());
            let rest = rest.strip_prefix("{id}").unwrap();
            let start = [before, slot, id].concat();
            assert!(answer.starts_with(&start), "{template}: {answer}");
            if !rest.contains("{id}") {
                assert_eq!(answer, [start.as_str(), rest].concat(), "{template}");
            } else {
                assert!(!answer[start.len()..].contains(id), "an id inside a result is payload: {answer}");
            }
        }
    }
}

#[test]
fn ids_are_returned_as_they_were_written() {
    let mut client = connected(&Config::new().server("one", fake()));
    client.tool_names();
    for id in IDS {
        let line = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"one:raw","arguments":{{"result":"7"}}}}}}"#
        );
        let answer = exchange(&mut client, &line);
        assert_same(&answer, format!(r#"{{"jsonrpc":"2.0","id":{id},"result":7}}"#).as_bytes(), id);
        let answer = exchange(&mut client, &format!(r#"{{"id":{id},"method":"ping","jsonrpc":"2.0"}}"#));
        assert_same(&answer, format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#).as_bytes(), id);
        let answer = exchange(&mut client, &format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"x"}}"#));
        assert_eq!(raw::at(&answer, &["id"]), Some(*id));
    }
}

#[test]
fn a_name_may_be_spelled_in_any_way() {
    let journal = Journal::new();
    let mut client = connected(&Config::new().server("one", journal.fake()));
    client.tool_names();
    for name in [r#""one:echo""#, r#""\u006fne\u003aecho""#, r#""one:ech\u006f""#] {
        let line = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools\/call","params":{{"n\u0061me":{name},"arguments":{{"text":"hi"}}}}}}"#
        );
        let answer = exchange(&mut client, &line);
        assert_eq!(raw::at(&answer, &["result", "structuredContent"]), Some(r#"{"text":"hi"}"#), "{name}");
    }
}
