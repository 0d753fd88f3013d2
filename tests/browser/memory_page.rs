//! The memory page: it draws what the history says, asks nobody, throws nothing, and how fast it is.

use std::path::Path;

use linn::memory::sim::SimDevice;
use linn::memory::{Action, Category, Config, HistoryOptions, Snapshot, Tag};
use serde_json::Value;

use crate::chromium;
use crate::story::Story;

/// Opens the page, lets it draw many frames, and reads what it wrote down about them.
fn measure(snapshot: &Snapshot) -> Value {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let page = folder.path().join("memory.html");
    std::fs::write(&page, snapshot.to_html("a pretend training run")).expect("the page is written");
    let text = dump(&page, folder.path());
    let start = text.find("id=\"measured\"").unwrap_or_else(|| panic!("the script did not come to its end:\n{}", tail(&text)));
    let start = start + text[start..].find('>').expect("a tag ends") + 1;
    let measured = &text[start..start + text[start..].find("</pre>").expect("the element ends")];
    let measured = measured.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    serde_json::from_str(&measured).unwrap_or_else(|error| panic!("{error}: {measured}"))
}

fn tail(text: &str) -> &str {
    &text[text.len().saturating_sub(2000)..]
}

/// The document after its script has run.
fn dump(page: &Path, folder: &Path) -> String {
    let mut command = chromium::command(folder);
    command.args(["--disable-gpu", "--window-size=1500,1150", "--dump-dom"]);
    let output = command.arg(format!("file://{}#measure", page.display())).output().unwrap_or_else(chromium::is_missing);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
    text
}

fn check(snapshot: &Snapshot, measured: &Value) {
    println!(
        "{} events: loaded in {} ms; best and median frame: {} ms to zoom or pan, {} ms to another moment",
        measured["events"], measured["load_ms"], measured["zoom_ms"], measured["moment_ms"]
    );
    assert_eq!(measured["errors"], serde_json::json!([]), "no script error, nothing blocked");
    assert_eq!(measured["resources"], 0, "nothing was asked of any network");
    assert_eq!(measured["events"], snapshot.trace.len());
    assert_eq!(measured["last_reserved"].as_f64(), Some(snapshot.stats.reserved_bytes.current as f64));
    assert_eq!(measured["last_allocated"].as_f64(), Some(snapshot.stats.allocated_bytes.current as f64));
    let ooms = snapshot.trace.iter().filter(|event| event.action == Action::Oom).count();
    assert_eq!(measured["ooms"], ooms);
}

#[test]
#[ignore = "needs Chromium"]
fn a_hundred_thousand_events_are_drawn() {
    let snapshot = Story::new(HistoryOptions::default(), |_| ()).run(100_000);
    let measured = measure(&snapshot);
    check(&snapshot, &measured);
    assert!(measured["events"].as_u64() >= Some(100_000));
    assert_eq!(measured["peak_reserved"].as_f64(), Some(snapshot.stats.reserved_bytes.peak as f64));
    assert_eq!(measured["peak_allocated"].as_f64(), Some(snapshot.stats.allocated_bytes.peak as f64));
    assert!(measured["ooms"].as_u64() >= Some(3) && measured["holders"].as_u64() >= Some(5));
    let hands = &measured["hands"];
    assert!(hands["hover"].as_str().is_some_and(|text| text.contains("reserved") && text.contains("story.rs:")), "{hands}");
    assert!(hands["zoom"].as_f64().is_some_and(|zoom| zoom < 0.8), "the wheel zooms: {hands}");
    assert_eq!(hands["step"], 1, "a key goes to the event before");
    assert!(hands["blocks"].as_u64() >= Some(20), "blocks in their segments: {hands}");
    assert_eq!(hands["blocks"], hands["named"], "each says where it comes from");
    assert!(measured["colors"].as_u64() >= Some(8), "the layers are on the canvas: {measured}");
}

#[test]
#[ignore = "needs Chromium"]
fn pages_without_a_history_or_memory_are_drawn() {
    let mut device = SimDevice::new(1 << 30, Config::default());
    let snapshot = device.pool_mut().snapshot();
    check(&snapshot, &measure(&snapshot));
    let _held = device.alloc(linn::ids::StreamId(1), 1 << 20, Tag::here(Category::Input, "from_slice")).expect("fits");
    let snapshot = device.pool_mut().snapshot();
    let measured = measure(&snapshot);
    check(&snapshot, &measured);
    assert_eq!((&measured["peak_allocated"], &measured["holders"]), (&Value::from(1 << 20), &Value::from(1)));
}
