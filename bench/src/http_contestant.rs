//! Who is measured over HTTP: the server itself (direct), a proxy that parses nothing (floor), and us on two ways.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use anyhow::{Context, Result};
use serde_json::json;

use crate::contestant::{Contestant, Credentials, Kind, Programs, Servers};
use crate::http_connection::HttpConnection;
use crate::processes::{relay_processes, wait_until_calm};
use crate::rest_client::RestClient;
use crate::service::Service;
use crate::session::{Session, handshake};

/// What stands between the client and the server.
#[derive(Debug, Clone, Copy)]
enum Route {
    Direct,
    Proxy,
    UsToStdio,
    UsToHttp,
    UsToProtected(Credentials),
    /// At the address of a profile.
    UsWithProfile,
    /// With limits of calls.
    UsWithLimits,
}

pub(crate) struct HttpContestant {
    pub(crate) contestant: Contestant,
    route: Route,
    /// What it is told besides.
    arguments: &'static [&'static str],
}

pub(crate) fn http_contestants() -> Vec<HttpContestant> {
    let all = [
        ("direct", Kind::Direct, Route::Direct),
        ("floor proxy", Kind::Floor, Route::Proxy),
        ("us → stdio", Kind::Us, Route::UsToStdio),
        ("us → HTTP", Kind::Us, Route::UsToHttp),
    ];
    let all = all.into_iter().map(|(name, kind, route)| (Contestant { name: name.to_owned(), kind }, route));
    all.map(|(contestant, route)| HttpContestant { contestant, route, arguments: &[] }).collect()
}

/// Us without and with recording of calls, in front of a server over stdio: the cheapest calls, so that what it costs
/// shows most.
pub(crate) fn recording_contestants() -> [HttpContestant; 2] {
    let us = |name: &str, arguments| {
        let contestant = Contestant { name: name.to_owned(), kind: Kind::Us };
        HttpContestant { contestant, route: Route::UsToStdio, arguments }
    };
    [us("without recording", &["--no-history"]), us("every call recorded", &[])]
}

/// Us with a token in the config, and with one from a token endpoint, in front of a server over HTTP.
pub(crate) fn credential_holders() -> [HttpContestant; 2] {
    [("static header", Credentials::Header), ("signed in", Credentials::SignIn)].map(|(name, credentials)| {
        let contestant = Contestant { name: name.to_owned(), kind: Kind::Us };
        HttpContestant { contestant, route: Route::UsToProtected(credentials), arguments: &[] }
    })
}

/// Us twice, for clients of both versions of HTTP.
pub(crate) fn versions_of_http() -> [HttpContestant; 2] {
    ["HTTP/1.1, 64 connections", "HTTP/2, one connection"].map(|name| {
        let contestant = Contestant { name: name.to_owned(), kind: Kind::Us };
        HttpContestant { contestant, route: Route::UsToStdio, arguments: &[] }
    })
}

/// Us without a profile, and at the address of one, in front of a server over stdio.
pub(crate) fn profile_contestants() -> [HttpContestant; 2] {
    [("everything", Route::UsToStdio), ("a profile", Route::UsWithProfile)].map(|(name, route)| {
        let contestant = Contestant { name: name.to_owned(), kind: Kind::Us };
        HttpContestant { contestant, route, arguments: &[] }
    })
}

/// Us without limits of calls, and with some that are never reached, in front of a server over stdio.
pub(crate) fn limit_contestants() -> [HttpContestant; 2] {
    [("no limits", Route::UsToStdio), ("limits", Route::UsWithLimits)].map(|(name, route)| {
        let contestant = Contestant { name: name.to_owned(), kind: Kind::Us };
        HttpContestant { contestant, route, arguments: &[] }
    })
}

/// Limits of each kind that applies to every call and stops none.
fn set_limits(service: &Arc<Service>) -> Result<()> {
    let mut rest = RestClient::open(Arc::clone(service))?;
    let limit = json!({"per_second": 100_000, "concurrent": 100_000, "per_day": 1_000_000_000});
    for name in ["identity/*", "server/*", "tool/*"] {
        rest.put(&format!("/limits/{name}"), &limit, 200)?;
    }
    Ok(())
}

/// The test server that all of them reach, but for `us → stdio`, which starts one of its own.
pub(crate) fn start_server(programs: &Programs) -> Result<Arc<Service>> {
    let log = programs.scratch.path().join("bench-http-server.stderr");
    let server = Service::start(&mut Command::new(&programs.http_server), &log);
    Ok(Arc::new(server.context("could not start the test server")?))
}

impl HttpContestant {
    /// Starts it and waits until it lists all tools.
    pub(crate) fn start(&self, programs: &Programs, server: &Arc<Service>) -> Result<Session<HttpConnection>> {
        self.try_start(programs, server).with_context(|| programs.failed_start(&self.contestant))
    }

    fn try_start(&self, programs: &Programs, server: &Arc<Service>) -> Result<Session<HttpConnection>> {
        let start = Instant::now();
        let service = match self.command(programs, server)? {
            None => Arc::clone(server),
            Some(mut command) => Arc::new(Service::start(&mut command, &programs.log_path(&self.contestant))?),
        };
        if matches!(self.route, Route::UsWithLimits) {
            set_limits(&service)?;
        }
        let mut connection = HttpConnection::open_at(service, self.path())?;
        handshake(&mut connection)?;
        let names = self.contestant.complete_list(&mut connection, Servers::plain(1))?.names()?;
        let relay = relay_processes(connection.service.pid());
        let ready_after = start.elapsed();
        wait_until_calm(&relay);
        Ok(Session { connection, names, ready_after, relay, check: self.contestant.check() })
    }

    /// The path that its clients use.
    pub(crate) fn path(&self) -> &'static str {
        match self.route {
            Route::UsWithProfile => "/mcp/@bench",
            _ => "/mcp",
        }
    }

    fn command(&self, programs: &Programs, server: &Service) -> Result<Option<Command>> {
        let config = match self.route {
            Route::Direct => return Ok(None),
            Route::Proxy => {
                let mut command = Command::new(&programs.floor_proxy);
                command.arg(server.address.to_string());
                return Ok(Some(command));
            }
            Route::UsToStdio | Route::UsWithLimits => programs.write_config(Servers::plain(1))?,
            Route::UsWithProfile => programs.write_profile_config()?,
            Route::UsToHttp => programs.write_remote_config(server.address)?,
            Route::UsToProtected(credentials) => programs.write_protected_config(server.address, credentials)?,
        };
        let mut command = Command::new(&programs.service);
        command.args(["serve", "--listen", "127.0.0.1:0", "--data-dir"]).arg(fresh_folder_next_to(&config));
        command.arg("--config").arg(config).args(self.arguments);
        Ok(Some(command))
    }
}

/// A folder that no other run has used, which goes away with the config.
fn fresh_folder_next_to(config: &Path) -> PathBuf {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    config.with_extension(format!("{}.data", NUMBER.fetch_add(1, Ordering::Relaxed)))
}
