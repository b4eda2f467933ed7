//! The scripted HTTP server of `testkit` as a program: prints its URL and serves until its stdin ends.
//!
//! Each flag is a method of [`Script`]: `--with-session`, `--status-once 429:1`, `--require-header 'X-Key: 1'`...

use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::ExitCode;

use anyhow::{Context, bail};
use testkit::http_server::LineEnd;
use testkit::{HttpServer, Script};

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("fake-http-server: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn run() -> anyhow::Result<()> {
    let Options { address, is_until_killed, script } = parse(std::env::args().skip(1))?;
    let server = HttpServer::start_at(address, script);
    writeln!(io::stdout(), "{}", server.url()).context("could not print the URL")?;
    if is_until_killed {
        loop {
            std::thread::park();
        }
    }
    io::copy(&mut io::stdin(), &mut io::sink()).context("could not read stdin")?;
    server.stop();
    Ok(())
}

/// What the command line asks for.
struct Options {
    address: SocketAddr,
    /// The end of stdin means nothing: in a container there may be none.
    is_until_killed: bool,
    script: Script,
}

fn parse(arguments: impl IntoIterator<Item = String>) -> anyhow::Result<Options> {
    let (mut address, mut script) = (SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), Script::default());
    let mut is_until_killed = false;
    let mut arguments = arguments.into_iter();
    while let Some(flag) = arguments.next() {
        let mut value = || arguments.next().with_context(|| format!("`{flag}` needs a value"));
        script = match flag.as_str() {
            "--port" => {
                address.set_port(value()?.parse()?);
                script
            }
            "--everywhere" => {
                address.set_ip(Ipv4Addr::UNSPECIFIED.into());
                script
            }
            "--until-killed" => {
                is_until_killed = true;
                script
            }
            "--streamable" => script.streamable(),
            "--sse" => script.sse(),
            "--at" => script.at(&value()?),
            "--answers-as-sse" => script.answers_as_sse(),
            "--pretty" => script.pretty(),
            "--crlf" => script.line_end(LineEnd::CrLf),
            "--cr" => script.line_end(LineEnd::Cr),
            "--chunks-of" => script.chunks_of(value()?.parse()?),
            "--with-session" => script.with_session(),
            "--with-get-stream" => script.with_get_stream(),
            "--require-header" => {
                let header = value()?;
                let (name, value) = header.split_once(':').context("a header needs a colon")?;
                script.require_header(name, value.trim())
            }
            "--status-once" => {
                let value = value()?;
                let (status, retry_after) = match value.split_once(':') {
                    Some((status, seconds)) => (status, Some(seconds.parse()?)),
                    None => (value.as_str(), None),
                };
                script.status_once(status.parse()?, retry_after)
            }
            "--redirect-once" => script.redirect_once(307, value()?),
            "--drop-stream-before-answer" => script.drop_stream_before_answer(value()?.parse()?),
            "--refuse-initialize" => script.refuse_initialize(value()?.parse()?),
            "--slow-headers" => script.slow_headers(value()?.parse()?),
            "--garbage" => script.garbage(),
            "--close-after-headers" => script.close_after_headers(),
            _ => bail!("unknown flag `{flag}`"),
        };
    }
    Ok(Options { address, is_until_killed, script })
}
