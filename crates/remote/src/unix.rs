//! Addresses of HTTP over a Unix socket. A URL has no room for the path of a file, so its host is that path in
//! hexadecimal digits.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use hyper::Uri;

const SCHEME: &str = "http+unix";

/// The URL of the service that listens on the socket at `path`.
pub fn unix_url(path: &Path) -> String {
    path.as_os_str().as_bytes().iter().fold(format!("{SCHEME}://"), |mut url, byte| {
        write!(url, "{byte:02x}").expect("writing to a string cannot fail");
        url
    })
}

/// The path of the socket, if the URL is of one.
pub(crate) fn path_in(url: &Uri) -> Option<PathBuf> {
    let digits = url.host().filter(|_| url.scheme_str() == Some(SCHEME))?;
    let pairs = digits.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).ok());
    let bytes = pairs.map(|pair| u8::from_str_radix(pair?, 16).ok()).collect::<Option<Vec<u8>>>()?;
    Some(PathBuf::from(OsString::from_vec(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_a_socket_survives_its_url() {
        for path in ["/run/x.sock", "/tmp/ä b%/%2F?#.sock"] {
            let url: Uri = format!("{}/api?x=1", unix_url(Path::new(path))).parse().unwrap();
            assert_eq!(path_in(&url).as_deref(), Some(Path::new(path)));
            assert_eq!(url.path_and_query().unwrap(), "/api?x=1");
        }
        for other in ["http://example.org/x", "http+unix://xyz/"] {
            assert_eq!(path_in(&other.parse().unwrap()), None);
        }
    }
}
