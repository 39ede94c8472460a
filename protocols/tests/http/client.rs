//! A client that sees every byte: plain HTTP/1.1 over a socket.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Longest wait for an answer; a hang fails the test.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Reply {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.body))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.filter(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value).next()
    }

    /// The data of the server-sent events.
    pub(crate) fn events(&self) -> Vec<String> {
        self.body.lines().filter_map(|line| line.strip_prefix("data: ")).map(str::to_owned).collect()
    }

    fn parse(bytes: &[u8]) -> Reply {
        let end = bytes.windows(4).position(|w| w == b"\r\n\r\n").expect("a head");
        let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let mut reply = Reply { status, head, body: String::new() };
        let raw = &bytes[end + 4..];
        let body = if reply.header("transfer-encoding") == Some("chunked") { unchunk(raw) } else { raw.to_vec() };
        reply.body = String::from_utf8(body).unwrap();
        reply
    }
}

fn unchunk(mut raw: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(end) = raw.windows(2).position(|w| w == b"\r\n") {
        let size = usize::from_str_radix(std::str::from_utf8(&raw[..end]).unwrap(), 16).unwrap();
        body.extend_from_slice(&raw[end + 2..end + 2 + size]);
        raw = &raw[end + 4 + size..];
    }
    body
}

/// Sends these bytes and reads until the server closes.
pub(crate) async fn raw(address: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let exchange = async {
        let mut socket = TcpStream::connect(address).await.unwrap();
        socket.write_all(bytes).await.unwrap();
        let mut answer = Vec::new();
        socket.read_to_end(&mut answer).await.unwrap();
        answer
    };
    tokio::time::timeout(PATIENCE, exchange).await.expect("an answer in time")
}

pub(crate) fn request(method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut head = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n", body.len());
    for (name, value) in headers.iter().chain(&[("connection", "close")]) {
        head += &format!("{name}: {value}\r\n");
    }
    [head.as_bytes(), b"\r\n", body].concat()
}

pub(crate) async fn send(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Reply {
    Reply::parse(&raw(address, &request(method, path, headers, body)).await)
}

/// A stream that is read event by event, and left by dropping it.
pub(crate) struct Streaming {
    socket: TcpStream,
    read: Vec<u8>,
}

impl Streaming {
    pub(crate) async fn post(address: SocketAddr, path: &str, body: &Value) -> Streaming {
        Self::ask(address, &request("POST", path, &[], body.to_string().as_bytes())).await
    }

    pub(crate) async fn get(address: SocketAddr, path: &str) -> Streaming {
        Self::ask(address, &request("GET", path, &[], b"")).await
    }

    async fn ask(address: SocketAddr, bytes: &[u8]) -> Streaming {
        let mut socket = TcpStream::connect(address).await.unwrap();
        socket.write_all(bytes).await.unwrap();
        Streaming { socket, read: Vec::new() }
    }

    /// The data of the next event, comments left out; `None` at the end.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        loop {
            let begin = self.read.windows(6).position(|bytes| bytes == b"data: ");
            let line = begin.and_then(|at| Some((at, self.read[at..].iter().position(|byte| *byte == b'\n')? + at)));
            if let Some((begin, end)) = line {
                let data = serde_json::from_slice(&self.read[begin + 6..end]).unwrap();
                self.read.drain(..end);
                return Some(data);
            }
            let more = tokio::time::timeout(PATIENCE, self.socket.read_buf(&mut self.read)).await;
            if more.expect("an event in time").unwrap() == 0 {
                return None;
            }
        }
    }

    /// The next event, which there must be.
    pub(crate) async fn event(&mut self) -> Value {
        self.next().await.unwrap()
    }
}
