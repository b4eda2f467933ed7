//! How the benchmark's own HTTP programs listen: a line on stderr says where, and they end when their stdin does.

use std::error::Error;
use std::io;

use anyhow::{Context, Result};
use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::HttpService;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};

/// What stands before the address in the line that says where a program listens.
pub const ANNOUNCEMENT: &str = "listening on http://";

/// Serves on a free port of the loopback address until stdin ends: no program is left when the benchmark is killed.
pub fn serve<S>(service: S) -> Result<()>
where
    S: HttpService<Incoming> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
    S::ResBody: Send + 'static,
    <S::ResBody as Body>::Data: Send,
    <S::ResBody as Body>::Error: Into<Box<dyn Error + Send + Sync>>,
{
    std::thread::spawn(end_with_stdin);
    // One thread is the cheapest per request; and the client that measures is one thread as well.
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_io().build().context("could not start a runtime")?.block_on(accept(service))
}

async fn accept<S>(service: S) -> Result<()>
where
    S: HttpService<Incoming> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
    S::ResBody: Send + 'static,
    <S::ResBody as Body>::Data: Send,
    <S::ResBody as Body>::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.context("could not listen")?;
    let address = listener.local_addr().context("could not tell where we listen")?;
    eprintln!("{ANNOUNCEMENT}{address}");
    loop {
        let (stream, _) = listener.accept().await.context("could not accept a connection")?;
        tokio::spawn(serve_one(stream, service.clone()));
    }
}

async fn serve_one<S>(stream: TcpStream, service: S)
where
    S: HttpService<Incoming>,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
    S::ResBody: 'static,
    <S::ResBody as Body>::Error: Into<Box<dyn Error + Send + Sync>>,
{
    if let Err(error) = stream.set_nodelay(true) {
        eprintln!("warning: small answers may wait: {error}");
    }
    if let Err(error) = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await {
        eprintln!("warning: a connection ended badly: {error}");
    }
}

fn end_with_stdin() {
    let outcome = io::copy(&mut io::stdin(), &mut io::sink());
    std::process::exit(i32::from(outcome.is_err()));
}
