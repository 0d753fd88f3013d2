//! Starting Chromium, and hearing from a page in it.
#![cfg_attr(not(feature = "gpu"), allow(dead_code))] // pages that answer need wgpu's shaders

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// Chromium without a window, which keeps all it writes in `folder` and asks no network of its own accord.
pub fn command(folder: &Path) -> Command {
    let mut command = Command::new(program());
    command.args(["--headless", "--no-sandbox", "--disable-quic", "--no-first-run", "--disable-sync"]);
    command.args(["--disable-background-networking", "--disable-component-update"]);
    command.arg(format!("--user-data-dir={}", folder.join("user").display())).stdin(Stdio::null());
    command
}

fn program() -> String {
    std::env::var("CHROMIUM").unwrap_or_else(|_| "chromium".into())
}

pub fn is_missing<T>(error: std::io::Error) -> T {
    panic!("{}: {error}\nhelp: install Chromium, or name it in CHROMIUM", program())
}

/// Opens `/` of `files` (by path) with WebGPU on SwiftShader, and returns what the page posts, to any path.
pub fn answer_of(files: HashMap<&'static str, String>, patience: Duration) -> String {
    struct Ended(Child);
    impl Drop for Ended {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port of this machine");
    let address = listener.local_addr().expect("it is bound");
    let (sender, posted) = mpsc::channel();
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            if let Ok(Some(body)) = connection.and_then(|connection| serve(connection, &files)) {
                let _ = sender.send(body);
                return;
            }
        }
    });
    let mut command = command(folder.path());
    command.args(["--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader"]).arg(format!("http://{address}/"));
    let browser = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap_or_else(is_missing);
    let _browser = Ended(browser);
    posted.recv_timeout(patience).unwrap_or_else(|_| panic!("the page said nothing for {} s", patience.as_secs()))
}

/// One request: a file, or what was posted.
fn serve(mut connection: TcpStream, files: &HashMap<&'static str, String>) -> std::io::Result<Option<String>> {
    let mut lines = BufReader::new(connection.try_clone()?);
    let mut first = String::new();
    lines.read_line(&mut first)?;
    let mut len = 0;
    loop {
        let mut header = String::new();
        if lines.read_line(&mut header)? == 0 || header.trim().is_empty() {
            break;
        }
        if let Some(value) = header.to_ascii_lowercase().strip_prefix("content-length:") {
            len = value.trim().parse().unwrap_or(0);
        }
    }
    let mut words = first.split_whitespace();
    let (method, path) = (words.next(), words.next().unwrap_or("/"));
    let (status, body, posted) = match (method, files.get(path)) {
        (Some("POST"), _) => {
            let mut body = vec![0; len];
            lines.read_exact(&mut body)?;
            ("200 OK", "", Some(String::from_utf8_lossy(&body).into_owned()))
        }
        (_, Some(file)) => ("200 OK", file.as_str(), None),
        _ => ("404 Not Found", "", None),
    };
    let kind = if path == "/" { "text/html" } else { "application/json" };
    write!(connection, "HTTP/1.1 {status}\r\nContent-Type: {kind}; charset=utf-8\r\nContent-Length: {}\r\n", body.len())?;
    write!(connection, "Connection: close\r\n\r\n{body}")?;
    Ok(posted)
}
