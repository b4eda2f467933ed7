//! Connections are reused, and a request never arrives twice.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::*;

/// What a server does with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Answer,
    AnswerAndClose,
    Close,
    /// Begins a response and never ends it.
    Dawdle,
}

/// What a server reports to the test.
#[derive(Debug, PartialEq, Eq)]
enum Seen {
    Connected,
    Request,
    Closed,
}

/// A server that performs one action after the other, whichever connection the request arrives on.
async fn server(actions: Vec<Action>) -> (Arc<Pool>, mpsc::UnboundedReceiver<Seen>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url: Uri = format!("http://{}/", listener.local_addr().unwrap()).parse().unwrap();
    let (sender, seen) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        let actions = Arc::new(Mutex::new(actions.into_iter()));
        while let Ok((socket, _)) = listener.accept().await {
            sender.send(Seen::Connected).unwrap();
            tokio::spawn(serve(socket, Arc::clone(&actions), sender.clone()));
        }
    });
    (Arc::new(Pool::new(&url).unwrap()), seen)
}

async fn serve(
    mut socket: TcpStream,
    actions: Arc<Mutex<std::vec::IntoIter<Action>>>,
    sender: mpsc::UnboundedSender<Seen>,
) {
    let mut read = Vec::new();
    while socket.read_buf(&mut read).await.is_ok_and(|length| length > 0) {
        if !read.ends_with(b"\r\n\r\nhello") {
            continue;
        }
        read.clear();
        sender.send(Seen::Request).unwrap();
        let action = actions.lock().unwrap().next().expect("no request is unexpected");
        let answer = match action {
            Action::Answer | Action::AnswerAndClose => "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nworld",
            Action::Dawdle => "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nwor",
            Action::Close => "",
        };
        socket.write_all(answer.as_bytes()).await.unwrap();
        if matches!(action, Action::Close | Action::AnswerAndClose) {
            break;
        }
    }
    drop(socket);
    sender.send(Seen::Closed).unwrap();
}

/// On a paused clock, time advances only when nothing else can happen.
#[tokio::test(start_paused = true)]
async fn a_machine_that_does_not_answer_is_given_up_after_seconds() {
    // Connections are not accepted, and the backlog is full.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    let mut waiting = Vec::new();
    while let Ok(Ok(connection)) = timeout(Duration::from_millis(1), TcpStream::connect(address)).await {
        waiting.push(connection);
    }
    let pool = Arc::new(Pool::new(&format!("http://{address}/").parse().unwrap()).unwrap());
    let began = Instant::now();
    let error = pool.send(request()).await.unwrap_err();
    assert_eq!(error.to_string(), "it is unreachable: its host does not respond");
    assert_eq!(began.elapsed().as_secs(), 4);
}

fn request() -> Request<Full<Bytes>> {
    let mut request = Request::post("/").body(Full::from("hello")).unwrap();
    request.headers_mut().insert("host", "x".parse().unwrap());
    request
}

async fn ask(pool: &Arc<Pool>) -> Result<Bytes, RequestError> {
    pool.send(request()).await?.into_body().whole().await
}

async fn next(seen: &mut mpsc::UnboundedReceiver<Seen>) -> Seen {
    timeout(Duration::from_secs(120), seen.recv()).await.expect("it happens").expect("the server lives")
}

/// Lets the end of a connection, which has arrived on this machine already, be processed.
async fn hear_the_news() {
    sleep(Duration::from_millis(20)).await;
}

#[tokio::test]
async fn a_connection_is_used_again_once_its_answer_is_read() {
    let (pool, mut seen) = server(vec![Action::Answer; 3]).await;
    for _ in 0..3 {
        assert_eq!(ask(&pool).await.unwrap(), "world");
    }
    assert_eq!(next(&mut seen).await, Seen::Connected);
    for _ in 0..3 {
        assert_eq!(next(&mut seen).await, Seen::Request);
    }
    assert!(seen.try_recv().is_err());
}

#[tokio::test]
async fn a_closed_idle_connection_is_replaced_silently() {
    let (pool, mut seen) = server(vec![Action::AnswerAndClose; 3]).await;
    for _ in 0..3 {
        assert_eq!(ask(&pool).await.unwrap(), "world");
        for expected in [Seen::Connected, Seen::Request, Seen::Closed] {
            assert_eq!(next(&mut seen).await, expected);
        }
        hear_the_news().await;
    }
}

#[tokio::test]
async fn a_request_that_may_have_been_carried_out_is_not_sent_again() {
    let (pool, mut seen) = server(vec![Action::Close, Action::Answer, Action::Close]).await;
    for is_answered in [false, true, false] {
        match ask(&pool).await {
            Ok(answer) => assert!(is_answered && answer == "world"),
            Err(error) => assert!(!is_answered && !error.left_untouched(), "{error}"),
        }
    }
    let expected =
        [Seen::Connected, Seen::Request, Seen::Closed, Seen::Connected, Seen::Request, Seen::Request, Seen::Closed];
    for expected in expected {
        assert_eq!(next(&mut seen).await, expected);
    }
}

#[tokio::test]
async fn an_answer_that_is_dropped_before_its_end_closes_its_connection() {
    let (pool, mut seen) = server(vec![Action::Dawdle, Action::Answer]).await;
    let mut body = pool.send(request()).await.unwrap().into_body();
    assert_eq!(body.next().await.unwrap().unwrap(), "wor");
    drop(body);
    for expected in [Seen::Connected, Seen::Request, Seen::Closed] {
        assert_eq!(next(&mut seen).await, expected);
    }
    assert_eq!(ask(&pool).await.unwrap(), "world");
}

#[tokio::test]
async fn a_request_that_is_given_up_closes_its_connection() {
    let (pool, mut seen) = server(vec![Action::Answer, Action::Dawdle]).await;
    ask(&pool).await.unwrap();
    assert_eq!(next(&mut seen).await, Seen::Connected);
    assert_eq!(next(&mut seen).await, Seen::Request);
    let asking = tokio::spawn({
        let pool = Arc::clone(&pool);
        async move { ask(&pool).await }
    });
    assert_eq!(next(&mut seen).await, Seen::Request);
    asking.abort();
    assert_eq!(next(&mut seen).await, Seen::Closed);
}

#[tokio::test]
async fn a_connection_that_was_idle_for_long_is_closed() {
    let (pool, mut seen) = server(vec![Action::Answer]).await;
    ask(&pool).await.unwrap();
    pool.tidy();
    assert_eq!(pool.lock().len(), 1);
    pool.lock()[0].use_until = Instant::now();
    pool.tidy();
    for expected in [Seen::Connected, Seen::Request, Seen::Closed] {
        assert_eq!(next(&mut seen).await, expected);
    }
}

#[tokio::test]
async fn an_unreachable_address_means_that_nothing_was_sent() {
    let (pool, _) = {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url: Uri = format!("http://{}/", listener.local_addr().unwrap()).parse().unwrap();
        (Arc::new(Pool::new(&url).unwrap()), listener)
    };
    let error = ask(&pool).await.unwrap_err();
    assert!(error.left_untouched() && error.to_string().contains("refused"), "{error}");
}

#[test]
fn a_connection_is_not_used_when_the_server_may_just_be_closing_it() {
    let kept = |value: Option<&'static str>| {
        let mut headers = HeaderMap::new();
        headers.extend(value.map(|value| (KEEP_ALIVE, value.parse().unwrap())));
        keep_alive_timeout(&headers)
    };
    assert_eq!(kept(None), IDLE_TIMEOUT);
    assert_eq!(kept(Some("timeout=5")), Duration::from_secs(4));
    assert_eq!(kept(Some("max=100, timeout=5")), Duration::from_secs(4));
    assert_eq!(kept(Some("timeout=0")), Duration::ZERO);
    assert_eq!(kept(Some("timeout=3600")), IDLE_TIMEOUT);
    assert_eq!(kept(Some("timeout=soon")), IDLE_TIMEOUT);
}
