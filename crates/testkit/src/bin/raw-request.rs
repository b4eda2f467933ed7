//! Sends what it reads from stdin to an address and writes what comes back to stdout, for tests that need another user.
//!
//! Usage: `raw-request ADDRESS [abandon]`. With `abandon` it closes the connection without waiting for an answer.

use std::io::{self, Read, Write};
use std::net::TcpStream;

fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut request = Vec::new();
    io::stdin().read_to_end(&mut request)?;
    let address = arguments.first().ok_or_else(|| io::Error::other("the address is missing"))?;
    let mut stream = TcpStream::connect(address)?;
    stream.write_all(&request)?;
    if arguments.get(1).is_some_and(|word| word == "abandon") {
        return Ok(());
    }
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    io::stdout().write_all(&answer)
}
