//! Feeds recorded or synthetic allocations to the very pool that devices use, one row at a time, and prints what that took.
//!
//! `cargo run --release --example replay -- FILES...`, files being workloads (`op,id,size,stream` rows) or snapshots with a
//! history as JSON (linn's `Snapshot::to_json`, or PyTorch's), plain or gzip.
//! Without files, the synthetic workloads of `--seed` are replayed.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::{Parser, ValueEnum};
use linn::memory::{Bytes, Config, Policy};
use linn::profile::replay::{Figures, Options, Workload, replay};
use linn::profile::synthetic::{FAMILIES, generate};

#[allow(clippy::duplicate_mod)] // The gpu tests include two examples that share it.
#[path = "shared/words.rs"]
pub mod words;

/// Replays allocations on the pool of linn and says what it reserved.
#[derive(Parser)]
pub struct Args {
    /// Workloads (rows) and snapshots with a history (JSON), plain or gzip; none: synthetic workloads.
    files: Vec<PathBuf>,
    /// Rules of placement [default: what --alloc-conf says, else linn].
    #[arg(long, value_enum)]
    policy: Option<PolicyArg>,
    /// Most bytes to reserve: BYTES, or FACTORxlive (of each workload's peak of live bytes), or FACTORxlive+BYTES; units KiB,
    /// MiB, GiB.
    #[arg(long, allow_hyphen_values = true)]
    limit: Option<String>,
    /// Largest segment.
    #[arg(long, default_value = "64GiB", allow_hyphen_values = true)]
    max_segment: String,
    /// Submissions complete so many rows later; 0: at once.
    #[arg(long, default_value_t = 0)]
    late: u64,
    /// Move live blocks: 1% of what is allocated to reserve less, and what it takes before a request fails. (Other amounts:
    /// `--alloc-conf compaction:pressure` or `compaction:SHARE`.)
    #[arg(long)]
    compact: bool,
    /// Further settings, as in LINN_ALLOC_CONF.
    #[arg(long, default_value = "")]
    alloc_conf: String,
    /// Replay on the device, not in simulation: each tensor is written when it is made and before it is dropped, on its
    /// stream. `--late` and `--max-segment` are the device's then.
    #[arg(long)]
    device: bool,
    /// Seed of the synthetic workloads.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Length of the synthetic workloads.
    #[arg(long, default_value_t = 1)]
    scale: u64,
    /// Write the synthetic workloads to this folder, as gzip, instead of replaying them.
    #[arg(long)]
    write: Option<PathBuf>,
    /// One JSON object per workload and line instead of a table.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum PolicyArg {
    Linn,
    Pytorch,
}

fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(why) if why.use_stderr() => {
            eprintln!("error: {}", words::flags_in_words(&why));
            return ExitCode::from(2);
        }
        // What was asked for: --help.
        Err(why) => why.exit(),
    };
    let (out, errors) = run(&args);
    // A reader that has gone away (`| head -1`) has seen enough.
    let _ = std::io::stdout().write_all(out.as_bytes());
    errors.iter().for_each(|why| eprintln!("error: {}", words::in_words(why)));
    if errors.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The example: what it prints, and why files are missing there.
pub fn run(args: &Args) -> (String, Vec<anyhow::Error>) {
    let mut errors = Vec::new();
    let out = match &args.write {
        Some(folder) => write(folder, &synthetic(args)),
        None => table(args, &mut errors),
    };
    let out = out.unwrap_or_else(|why| {
        errors.push(why);
        String::new()
    });
    (out, errors)
}

/// A row for each workload that can be replayed; the others are `errors`.
fn table(args: &Args, errors: &mut Vec<anyhow::Error>) -> Result<String> {
    // What is wrong with the arguments is said once.
    settings(args)?;
    args.limit.as_deref().map(|text| limit(text, 0)).transpose()?;
    let mut out = String::new();
    if !args.json {
        out += "workload                       allocations  peak live  reserved   ratio  bought  edges  waits     moved  failed  ns/pair\n";
    }
    let mut logs = Vec::new();
    let mut bought = 0;
    for workload in workloads(args) {
        let replayed = workload.and_then(|workload| {
            let figures = one(args, &workload).with_context(|| format!("replaying {}", workload.name))?;
            Ok((workload, figures))
        });
        let (workload, figures) = match replayed {
            Ok(replayed) => replayed,
            Err(why) => {
                errors.push(why);
                continue;
            }
        };
        logs.push((figures.peak_reserved.max(1) as f64 / figures.peak_live.max(1) as f64).ln());
        bought += figures.driver_calls;
        out += &if args.json { json(&workload, &figures) } else { row(&workload, &figures) };
    }
    if !args.json && !logs.is_empty() {
        let mean = (logs.iter().sum::<f64>() / logs.len() as f64).exp();
        out += &format!(
            "{} workloads: peak reserved / peak live {mean:.4} in the geometric mean, {bought} segments bought\n",
            logs.len()
        );
    }
    Ok(out)
}

fn synthetic(args: &Args) -> Vec<Workload> {
    FAMILIES.iter().filter_map(|family| generate(family, args.seed, args.scale.max(1))).collect()
}

/// One after the other, so that one is in memory at a time.
fn workloads(args: &Args) -> Box<dyn Iterator<Item = Result<Workload>> + '_> {
    if args.files.is_empty() {
        return Box::new(synthetic(args).into_iter().map(Ok));
    }
    Box::new(args.files.iter().map(|path| read(path).with_context(|| path.display().to_string())))
}

fn read(path: &Path) -> Result<Workload> {
    let mut bytes = std::fs::read(path)?;
    if bytes.starts_with(&[0x1f, 0x8b]) {
        let mut plain = Vec::new();
        flate2::read::GzDecoder::new(bytes.as_slice()).read_to_end(&mut plain)?;
        bytes = plain;
    }
    if bytes.first() == Some(&0x80) {
        bail!(
            "this is a pickle\nhelp: write it as JSON: python -c 'import json, pickle, sys; json.dump(pickle.load(sys.stdin.buffer), sys.stdout)'"
        );
    }
    let text = String::from_utf8(bytes).context("this is no text\nhelp: pass rows op,id,size,stream or a snapshot as JSON")?;
    let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let name = file.trim_end_matches(".gz").trim_end_matches(".csv").trim_end_matches(".json").trim_end_matches(".workload");
    if text.trim_start().starts_with('{') {
        return Ok(Workload::from_snapshot(name, &text)?);
    }
    Ok(Workload::parse(name, &text)?)
}

fn write(folder: &Path, workloads: &[Workload]) -> Result<String> {
    std::fs::create_dir_all(folder)?;
    let mut out = String::new();
    for workload in workloads {
        let path = folder.join(format!("{}.workload.csv.gz", workload.name));
        let mut file = flate2::write::GzEncoder::new(std::fs::File::create(&path)?, flate2::Compression::best());
        file.write_all(workload.to_text().as_bytes())?;
        file.finish()?;
        out += &format!("{}: {} rows\n", path.display(), workload.rows.len());
    }
    Ok(out)
}

/// `12`, `12KiB`, `1.5GiB`: bytes. `None` for what is not written so.
fn bytes(text: &str) -> Option<u64> {
    let (number, unit) = text.split_at(text.find(|c: char| c.is_alphabetic()).unwrap_or(text.len()));
    let unit = match unit {
        "" | "B" => 1u64,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return None,
    };
    let bytes = factor(number)? * unit as f64;
    (bytes < u64::MAX as f64).then_some(bytes as u64)
}

/// A number in plain digits: no sign, no exponent, nothing infinite.
fn factor(text: &str) -> Option<f64> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    text.parse().ok().filter(|number: &f64| plain && number.is_finite())
}

fn limit(text: &str, peak_live: u64) -> Result<u64> {
    let parsed = match text.split_once("xlive") {
        None => bytes(text),
        Some((times, more)) => {
            let more = if more.is_empty() { Some(0) } else { more.strip_prefix('+').and_then(bytes) };
            let share = factor(times).filter(|times| *times > 0.0).map(|times| times * peak_live as f64);
            // (Where nothing is live, nothing is limited.)
            share.zip(more).and_then(|(share, more)| (share as u64).checked_add(more)).map(|bytes| bytes.max(1))
        }
    };
    parsed.filter(|bytes| *bytes > 0).with_context(|| {
        format!("--limit is {text:?}\nhelp: pass BYTES, FACTORxlive or FACTORxlive+BYTES, for instance 512MiB or 1.03xlive+8MiB")
    })
}

/// The smallest segment that can hold anything: a block is 512 bytes at least under PyTorch's rules.
const SMALLEST_SEGMENT: u64 = 512;

fn max_segment(text: &str) -> Result<u64> {
    bytes(text).filter(|bytes| *bytes >= SMALLEST_SEGMENT).with_context(|| {
        format!("--max-segment is {text:?}\nhelp: pass {SMALLEST_SEGMENT} bytes or more, for instance 256MiB or 2GiB")
    })
}

/// What `--policy`, `--compact` and `--alloc-conf` say together.
fn settings(args: &Args) -> Result<Config> {
    let mut config = Config { max_segment: max_segment(&args.max_segment)?, ..Config::default() };
    let wanted = args.policy.map(|policy| match policy {
        PolicyArg::Linn => Policy::Linn,
        PolicyArg::Pytorch => Policy::Pytorch,
    });
    config.policy = wanted.unwrap_or_default();
    config.apply(compaction(args))?;
    config.apply(&args.alloc_conf)?;
    if wanted.is_some_and(|wanted| wanted != config.policy) {
        bail!("--policy and --alloc-conf {:?} name two policies\nhelp: leave one of them out", args.alloc_conf)
    }
    Ok(config)
}

fn compaction(args: &Args) -> &'static str {
    if args.compact { "compaction:0.01" } else { "compaction:off" }
}

fn one(args: &Args, workload: &Workload) -> Result<Figures> {
    let mut config = settings(args)?;
    if let Some(text) = &args.limit {
        config.limit = limit(text, workload.peak_live(config.max_segment))?;
    }
    if args.device {
        return on_device(args, workload, &config);
    }
    Ok(replay(workload, &Options { config, late: args.late }))
}

#[cfg(not(feature = "gpu"))]
fn on_device(_: &Args, _: &Workload, _: &Config) -> Result<Figures> {
    bail!("--device needs the gpu feature\nhelp: leave --no-default-features out")
}

/// Tensors of these sizes on a device. A few bytes are copied into each when it is made and before it is dropped, so that
/// streams, order edges and completion are real, however large it is.
#[cfg(feature = "gpu")]
fn on_device(args: &Args, workload: &Workload, config: &Config) -> Result<Figures> {
    use linn::profile::replay::Row;
    use linn::{DType, Device, DeviceOptions, Error, Stream, Tensor};
    use std::collections::HashMap;

    let policy = if config.policy == Policy::Pytorch { "policy:pytorch" } else { "policy:linn" };
    let mut options = DeviceOptions::default();
    options.memory_limit = Some(config.limit).filter(|limit| *limit != u64::MAX);
    options.alloc_conf = Some(format!("{},{},{policy}", compaction(args), args.alloc_conf));
    let device = Device::open_with(options)?;
    let mut streams: HashMap<u32, Stream> = HashMap::from([(0, device.default_stream())]);
    let mut live: HashMap<u64, (Tensor, Stream)> = HashMap::new();
    let touch = |tensor: &Tensor, value: f32| tensor.narrow(0, 0, 1)?.copy_from_slice_(&[value]);
    let largest = device.limits().max_buffer_size;
    let mut figures = Figures { peak_live: workload.peak_live(largest), ..Figures::default() };
    let mut emptied = 0;
    let start = std::time::Instant::now();
    for row in &workload.rows {
        match *row {
            Row::Alloc { id, size, stream } => {
                figures.allocations += 1;
                let stream = streams.entry(stream.0).or_insert_with(|| device.new_stream());
                let _guard = stream.enter();
                match Tensor::empty(&device, &[size.div_ceil(4) as usize], DType::F32) {
                    Ok(tensor) => {
                        touch(&tensor, id as f32)?;
                        live.insert(id, (tensor, stream.clone()));
                    }
                    Err(Error::OutOfMemory(_)) => {
                        figures.failed += 1;
                        figures.beyond_segment += u64::from(size > largest);
                    }
                    Err(error) => return Err(error.into()),
                }
            }
            Row::Free { id } => {
                if let Some((tensor, stream)) = live.remove(&id) {
                    stream.scope(|| touch(&tensor, 0.0))?;
                }
            }
            Row::EmptyCache => {
                emptied += 1;
                device.empty_cache()?;
            }
        }
    }
    device.synchronize()?;
    figures.ns_per_pair = start.elapsed().as_nanos() as f64 / figures.allocations.max(1) as f64;
    let stats = device.stats().memory;
    figures.peak_reserved = stats.reserved_bytes.peak;
    figures.driver_calls = stats.num_device_alloc;
    figures.edges = stats.order_edges;
    figures.waits = stats.num_sync_all_streams - emptied;
    figures.moved_bytes = stats.moved_bytes;
    figures.allocated_bytes = stats.allocated_bytes.allocated;
    Ok(figures)
}

fn row(workload: &Workload, figures: &Figures) -> String {
    let ratio = figures.peak_reserved as f64 / figures.peak_live.max(1) as f64;
    let beyond = match figures.beyond_segment {
        0 => String::new(),
        count => format!("  ({count} of the failed are larger than a segment may be)"),
    };
    format!(
        "{:30} {:>11} {:>10} {:>9} {ratio:>7.4} {:>7} {:>6} {:>6} {:>9} {:>7} {:>8.0}{beyond}\n",
        workload.name,
        figures.allocations,
        Bytes(figures.peak_live).to_string(),
        Bytes(figures.peak_reserved).to_string(),
        figures.driver_calls,
        figures.edges,
        figures.waits,
        Bytes(figures.moved_bytes).to_string(),
        figures.failed,
        figures.ns_per_pair,
    )
}

fn json(workload: &Workload, figures: &Figures) -> String {
    let object = serde_json::json!({
        "workload": workload.name,
        "allocations": figures.allocations,
        "peak_live": figures.peak_live,
        "peak_reserved": figures.peak_reserved,
        "driver_calls": figures.driver_calls,
        "edges": figures.edges,
        "waits": figures.waits,
        "moved_bytes": figures.moved_bytes,
        "allocated_bytes": figures.allocated_bytes,
        "failed": figures.failed,
        "ns_per_pair": figures.ns_per_pair,
    });
    format!("{object}\n")
}
