//! The body of a response with any framing, piece by piece as it arrives.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, ErrorKind, Read};
use std::net::TcpStream;

use super::{malformed, read_headers, read_line};

#[derive(Debug)]
pub(super) struct Body<'c> {
    reader: &'c mut BufReader<TcpStream>,
    framing: Framing,
    /// Received bytes that do not form a complete line yet.
    pub(super) pending: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
enum Framing {
    /// The remaining bytes.
    Sized(usize),
    Chunked,
    UntilClosed,
    Over,
}

impl<'c> Body<'c> {
    pub(super) fn of(
        status: u16,
        headers: &BTreeMap<String, String>,
        reader: &'c mut BufReader<TcpStream>,
    ) -> io::Result<Self> {
        let length = headers.get("content-length").map(|length| length.parse::<usize>());
        let is_chunked = headers.get("transfer-encoding").is_some_and(|coding| coding.eq_ignore_ascii_case("chunked"));
        let framing = match length {
            _ if status == 204 || status == 304 || status < 200 => Framing::Over,
            _ if is_chunked => Framing::Chunked,
            Some(length) => Framing::Sized(length.map_err(|_| malformed("the content length"))?),
            None => Framing::UntilClosed,
        };
        Ok(Self { reader, framing, pending: Vec::new() })
    }

    /// The next bytes. `None` at the end of the body; an error if the connection breaks before it.
    pub(super) fn next_piece(&mut self) -> io::Result<Option<Vec<u8>>> {
        match self.framing {
            Framing::Over => Ok(None),
            Framing::Chunked => self.next_chunk(),
            Framing::Sized(0) => {
                self.framing = Framing::Over;
                Ok(None)
            }
            Framing::Sized(left) => {
                let piece = self.take(left)?;
                if piece.is_empty() {
                    return Err(ErrorKind::UnexpectedEof.into());
                }
                self.framing = Framing::Sized(left - piece.len());
                Ok(Some(piece))
            }
            Framing::UntilClosed => {
                let piece = self.take(usize::MAX)?;
                Ok((!piece.is_empty()).then_some(piece))
            }
        }
    }

    fn next_chunk(&mut self) -> io::Result<Option<Vec<u8>>> {
        let line = read_line(self.reader)?;
        if line.is_empty() {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        let size = line.split(';').next().unwrap_or_default().trim();
        let size = usize::from_str_radix(size, 16).map_err(|_| malformed("the size of a chunk"))?;
        if size == 0 {
            read_headers(self.reader)?; // Trailers, or just the empty line.
            self.framing = Framing::Over;
            return Ok(None);
        }
        let mut chunk = vec![0; size];
        self.reader.read_exact(&mut chunk)?;
        if !read_line(self.reader)?.is_empty() {
            return Err(malformed("the end of a chunk"));
        }
        Ok(Some(chunk))
    }

    /// At most so many bytes of what is there, or comes next.
    fn take(&mut self, most: usize) -> io::Result<Vec<u8>> {
        let there = self.reader.fill_buf()?;
        let piece = there[..there.len().min(most)].to_vec();
        self.reader.consume(piece.len());
        Ok(piece)
    }
}
