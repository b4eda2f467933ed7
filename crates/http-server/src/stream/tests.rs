//! Streams as their senders and readers see them.

use super::*;

fn limits() -> Limits {
    Limits { bytes_waiting: 1000, bytes_kept: 500, session_bytes_kept: 2000, ..Limits::default() }
}

fn identity() -> Arc<Identity> {
    Identity::alone(&limits())
}

fn say(stream: &Stream, what: Outbound, text: &str) {
    stream.send(what, Message::Own(text.as_bytes()));
    stream.flush();
}

fn in_session(takes_notifications: bool) -> (Stream, Arc<Usage>) {
    let usage = Arc::new(Usage::new());
    assert!(usage.begin_request(1));
    (Stream::in_session(&limits(), 7, takes_notifications, &usage, &identity()), usage)
}

/// Everything the reader gets before it must wait or the stream ends, and whether it ended.
fn read(stream: &Stream, reader: u32) -> (String, bool) {
    let mut text = Vec::new();
    let mut context = Context::from_waker(Waker::noop());
    loop {
        match stream.poll_next(&mut context, reader) {
            Poll::Ready(Some(piece)) => text.extend_from_slice(&piece),
            Poll::Ready(None) => return (String::from_utf8(text).unwrap(), true),
            Poll::Pending => return (String::from_utf8(text).unwrap(), false),
        }
    }
}

fn event(number: u32, text: &str) -> String {
    format!("event: message\nid: 7-{number}\ndata: {text}\n\n")
}

#[tokio::test]
async fn an_answer_alone_is_accepted_unchanged() {
    let (stream, usage) = in_session(true);
    say(&stream, Outbound::Response, "{}\n");
    let First::Answer(answer) = stream.first(false).await else { panic!() };
    assert_eq!(answer.as_slice().concat(), b"{}");
    assert_eq!(usage.requests(), 0);
}

#[tokio::test]
async fn an_answer_behind_something_else_is_read_as_events() {
    let (stream, _) = in_session(true);
    say(&stream, Outbound::Notification, "1");
    say(&stream, Outbound::Response, "2");
    assert!(matches!(stream.first(false).await, First::Events));
    let Reader { number: reader, at } = stream.open();
    assert_eq!(at.unwrap().to_string(), "7-0");
    assert_eq!(read(&stream, reader), (event(1, "1") + &event(2, "2"), true));
}

#[tokio::test]
async fn a_reader_of_json_only_gets_only_the_answer() {
    let (stream, _) = in_session(false);
    say(&stream, Outbound::Notification, "1");
    say(&stream, Outbound::Response, "2");
    assert!(matches!(stream.first(false).await, First::Answer(_)));
}

#[tokio::test]
async fn a_reader_of_events_only_gets_the_answer_as_one() {
    let (stream, _) = in_session(true);
    say(&stream, Outbound::Response, "2");
    assert!(matches!(stream.first(true).await, First::Events));
    let reader = stream.open().number;
    assert_eq!(read(&stream, reader), (event(1, "2"), true));
}

#[tokio::test]
async fn a_request_that_is_given_up_has_no_answer() {
    let (stream, usage) = in_session(true);
    let (first, ()) = tokio::join!(stream.first(false), async { stream.give_up() });
    assert!(matches!(first, First::Nothing));
    assert_eq!(usage.requests(), 0);
    stream.give_up();
    assert_eq!(usage.requests(), 0, "it ends once");
}

#[test]
fn a_reader_that_reconnects_gets_missed_messages() {
    let (stream, usage) = in_session(true);
    let reader = stream.open().number;
    say(&stream, Outbound::Notification, "1");
    say(&stream, Outbound::Notification, "2");
    assert_eq!(read(&stream, reader), (event(1, "1") + &event(2, "2"), false));
    assert!(usage.is_busy());
    stream.leave(reader);
    say(&stream, Outbound::Response, "3");
    assert!(!usage.is_busy() && !stream.is_gone());

    let again = stream.take_over(Some(1)).unwrap().number;
    assert_eq!(read(&stream, again), (event(2, "2") + &event(3, "3"), true));
    stream.leave(again);
    assert_eq!(stream.take_over(Some(3)), None, "there is nothing behind the end");
    let from_the_start = stream.take_over(Some(0)).unwrap().number;
    assert_eq!(read(&stream, from_the_start).0.matches("data: ").count(), 3);
}

#[test]
fn a_second_reader_replaces_the_first() {
    let usage = Arc::new(Usage::new());
    let stream = Stream::lasting(&limits(), Some(0), &usage, &identity());
    say(&stream, Outbound::Notification, "before anybody reads");
    let first = stream.take_over(None).unwrap().number;
    assert!(read(&stream, first).0.contains("before anybody reads"));
    let second = stream.take_over(None).unwrap().number;
    say(&stream, Outbound::Notification, "news");
    assert_eq!(read(&stream, first), (String::new(), true));
    assert_eq!(read(&stream, second).0, "event: message\nid: 0-2\ndata: news\n\n");
    stream.leave(first);
    assert!(usage.is_busy(), "the second still reads");
    stream.leave(second);
    assert!(!usage.is_busy());
    let third = stream.take_over(None).unwrap();
    assert_eq!(third.at.unwrap().to_string(), "0-2", "what was read is not read again");
}

#[test]
fn a_stream_without_a_last_event_id_cannot_resume() {
    let stream = Stream::of_request(&limits(), true, &identity());
    let Reader { number: reader, at } = stream.open();
    assert_eq!(at, None);
    say(&stream, Outbound::Notification, "1");
    assert_eq!(read(&stream, reader).0, "event: message\ndata: 1\n\n");
    stream.leave(reader);
    assert!(stream.is_gone());
    assert_eq!(stream.take_over(Some(0)), None);

    let (undecided, usage) = in_session(true);
    undecided.leave(0);
    assert!(undecided.is_gone());
    assert_eq!(usage.requests(), 1, "the request still runs");
    say(&undecided, Outbound::Response, "late");
    assert_eq!((usage.requests(), undecided.weight()), (0, 0));
}

#[test]
fn the_cache_is_bounded_and_evicts_the_oldest() {
    let (stream, _) = in_session(true);
    let reader = stream.open().number;
    for number in 1..=20 {
        say(&stream, Outbound::Notification, &format!("{number}:{}", "x".repeat(60)));
        read(&stream, reader);
        assert!(stream.weight() <= 500, "{}", stream.weight());
    }
    let again = stream.take_over(Some(1)).unwrap().number;
    let (kept, _) = read(&stream, again);
    assert!(kept.contains("data: 20:") && kept.contains("id: 7-20\n"));
    assert!(!kept.contains("data: 1:"));
}

#[test]
fn unread_messages_without_a_reader_are_dropped() {
    let (stream, _) = in_session(true);
    let reader = stream.open().number;
    stream.leave(reader);
    for _ in 0..100 {
        say(&stream, Outbound::Notification, &"x".repeat(100));
    }
    assert!(stream.weight() < 800, "{}", stream.weight());
    assert!(stream.catch_up().is_none(), "nobody waits for who is not there");
    say(&stream, Outbound::Response, "the end");
    let again = stream.take_over(Some(0)).unwrap().number;
    assert!(read(&stream, again).0.ends_with("data: the end\n\n"));
}

#[test]
fn an_answer_too_large_to_be_kept_ends_the_stream_without_it() {
    let (stream, usage) = in_session(true);
    let reader = stream.open().number;
    stream.leave(reader);
    say(&stream, Outbound::Response, &"x".repeat(3000));
    assert_eq!((usage.requests(), stream.weight()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_makes_senders_wait_but_not_for_ever() {
    let (stream, _) = in_session(true);
    let reader = stream.open().number;
    while stream.catch_up().is_none() {
        say(&stream, Outbound::Notification, &"x".repeat(100));
    }
    let before = tokio::time::Instant::now();
    stream.catch_up().unwrap().await;
    assert!(before.elapsed() >= limits().slow_reader_timeout);
    assert!(stream.catch_up().is_none(), "once is enough");

    let weight = stream.weight();
    say(&stream, Outbound::Notification, "left out");
    assert_eq!(stream.weight(), weight);
    say(&stream, Outbound::Notification, r#"{"jsonrpc":"2.0","id":1,"method":"elicitation/create"}"#);
    assert!(stream.weight() > weight, "somebody waits for the answer to a question");

    read(&stream, reader);
    say(&stream, Outbound::Notification, "told again");
    say(&stream, Outbound::Response, "the end");
    let (rest, ended) = read(&stream, reader);
    assert!(rest.contains("told again") && rest.contains("the end") && ended);
}

#[tokio::test]
async fn senders_go_on_as_soon_as_a_slow_reader_has_caught_up() {
    let (stream, _) = in_session(true);
    let reader = stream.open().number;
    while stream.catch_up().is_none() {
        say(&stream, Outbound::Notification, &"x".repeat(100));
    }
    tokio::join!(stream.catch_up().unwrap(), async {
        tokio::task::yield_now().await;
        read(&stream, reader);
    });
    say(&stream, Outbound::Notification, "told");
    assert!(read(&stream, reader).0.contains("told"));
}

#[test]
fn a_closed_stream_ends_for_everybody() {
    let (stream, usage) = in_session(true);
    let reader = stream.open().number;
    say(&stream, Outbound::Notification, "unread");
    stream.close();
    assert_eq!(read(&stream, reader), (String::new(), true));
    assert!(stream.is_gone() && stream.is_stale(Duration::MAX));
    assert_eq!((usage.requests(), stream.take_over(Some(0))), (0, None));
}

#[test]
fn a_stream_that_retires_waits_for_the_answers_of_its_requests() {
    let usage = Arc::new(Usage::new());
    let stream = Stream::lasting(&limits(), None, &usage, &identity());
    let reader = stream.take_over(None).unwrap().number;
    assert!(usage.begin_request(9) && usage.begin_request(9));
    stream.retire();
    say(&stream, Outbound::Response, "1");
    assert!(!read(&stream, reader).1);
    stream.give_up();
    assert!(read(&stream, reader).1);
}

#[test]
fn no_server_request_is_sent_on_a_stream_that_was_never_opened() {
    let usage = Arc::new(Usage::new());
    let stream = Stream::lasting(&limits(), Some(0), &usage, &identity());
    assert!(stream.is_gone());
    let reader = stream.take_over(None).unwrap().number;
    stream.leave(reader);
    assert!(!stream.is_gone(), "it may come back");
}

#[test]
fn a_finished_stream_is_read_to_its_end() {
    let usage = Arc::new(Usage::new());
    let stream = Stream::lasting(&limits(), None, &usage, &identity());
    let reader = stream.take_over(None).unwrap().number;
    say(&stream, Outbound::Response, "1");
    say(&stream, Outbound::Response, "2");
    stream.finish();
    assert_eq!(read(&stream, reader), ("event: message\ndata: 1\n\nevent: message\ndata: 2\n\n".to_owned(), true));
}
