//! Attachments: images, sounds and other files next to the document, named by their digests.

use sha2::{Digest, Sha256};

/// A file next to a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attachment {
    /// Its name, without a folder.
    pub name: String,
    /// Its content.
    pub bytes: Vec<u8>,
}

impl Attachment {
    pub(super) fn new(bytes: Vec<u8>, mime: &str) -> Self {
        let digest: String = Sha256::digest(&bytes).iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        Self { name: format!("{digest}.{}", extension(mime)), bytes }
    }

    /// The link from the document.
    pub(super) fn link(&self, folder: &str) -> String {
        let mut link = String::new();
        for byte in folder.bytes() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'_' | b'-' | b'~' | b'/' => link.push(byte as char),
                _ => link.push_str(&format!("%{byte:02X}")),
            }
        }
        format!("{link}/{}", self.name)
    }
}

fn extension(mime: &str) -> &'static str {
    let mime = mime.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match mime.as_str() {
        "image/png" => "png",
        "image/jpeg" | "image/jpg" => "jpg",
        "image/gif" => "gif",
        "image/webp" => "webp",
        "image/svg+xml" => "svg",
        "image/avif" => "avif",
        "image/bmp" => "bmp",
        "image/tiff" => "tiff",
        "audio/wav" | "audio/x-wav" => "wav",
        "audio/mpeg" | "audio/mp3" => "mp3",
        "audio/ogg" => "ogg",
        "audio/flac" => "flac",
        "video/mp4" => "mp4",
        "video/webm" => "webm",
        "application/pdf" => "pdf",
        "application/zip" => "zip",
        "application/gzip" => "gz",
        "application/json" => "json",
        "text/markdown" => "md",
        "text/csv" => "csv",
        "text/plain" => "txt",
        _ => "bin",
    }
}
