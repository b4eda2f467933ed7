//! A disposable image registry on the loopback address with one image.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::image;

/// An image that an engine can pull, served as long as the process runs.
#[derive(Debug)]
pub struct ImageRegistry {
    port: u16,
}

struct ImageBlobs {
    manifest: Vec<u8>,
    blobs: [(String, Vec<u8>); 2],
    pause: Duration,
}

impl ImageRegistry {
    /// Serves the image of fake servers, which runs `command` by default.
    #[track_caller]
    pub fn open(command: &str) -> Self {
        Self::open_slow(command, Duration::ZERO)
    }

    /// The same, but every part of the image is delayed.
    #[track_caller]
    pub fn open_slow(command: &str, pause: Duration) -> Self {
        let layer = image::packed();
        let config = json!({"architecture": architecture(), "os": "linux", "config": {"Cmd": [command]},
            "rootfs": {"type": "layers", "diff_ids": [digest(&layer)]}});
        let config = config.to_string().into_bytes();
        let part = |kind: &str, blob: &[u8]| json!({"mediaType": format!("application/vnd.docker.{kind}"), "size": blob.len(), "digest": digest(blob)});
        let manifest = json!({"schemaVersion": 2, "mediaType": MANIFEST,
            "config": part("container.image.v1+json", &config),
            "layers": [part("image.rootfs.diff.tar.gzip", &layer)]});
        let blobs = [config, layer].map(|blob| (digest(&blob), blob));
        let goods = Arc::new(ImageBlobs { manifest: manifest.to_string().into_bytes(), blobs, pause });
        let listener = TcpListener::bind("127.0.0.1:0").expect("a test may listen on the loopback");
        let port = listener.local_addr().expect("a bound listener has an address").port();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let goods = Arc::clone(&goods);
                // A disconnected client has what it needs.
                std::thread::spawn(move || goods.serve(&stream).ok());
            }
        });
        Self { port }
    }

    /// The name of the image.
    pub fn image(&self) -> String {
        format!("127.0.0.1:{}/fakes:2", self.port)
    }
}

const MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";

impl ImageBlobs {
    fn serve(&self, mut stream: &TcpStream) -> std::io::Result<()> {
        let mut lines = BufReader::new(stream).lines();
        let request = lines.next().transpose()?.unwrap_or_default();
        while lines.next().transpose()?.is_some_and(|line| !line.is_empty()) {}
        let mut words = request.split(' ');
        let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let blob = self.blobs.iter().find(|(digest, _)| path.ends_with(digest.as_str()));
        let (status, kind, body) = match blob {
            Some((_, blob)) => ("200 OK", "application/octet-stream", &blob[..]),
            None if path.contains("/manifests/") => ("200 OK", MANIFEST, &self.manifest[..]),
            None if path == "/v2/" => ("200 OK", "application/json", &b"{}"[..]),
            None => ("404 Not Found", "text/plain", &b""[..]),
        };
        write!(
            stream,
            "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nDocker-Content-Digest: {}\r\n\
             Connection: close\r\n\r\n",
            body.len(),
            digest(body)
        )?;
        if method != "HEAD" {
            if blob.is_some() {
                std::thread::sleep(self.pause);
            }
            stream.write_all(body)?;
        }
        Ok(())
    }
}

fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn digest(bytes: &[u8]) -> String {
    let mut summing = Command::new("sha256sum");
    let mut summing = summing.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("sha256sum can be started");
    summing.stdin.take().expect("its stdin is a pipe").write_all(bytes).expect("sha256sum reads");
    let summed = summing.wait_with_output().expect("sha256sum ends");
    let text = String::from_utf8_lossy(&summed.stdout).into_owned();
    format!("sha256:{}", text.split(' ').next().unwrap_or_default())
}
