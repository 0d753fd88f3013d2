//! Whether a run can fit at all: found out before anything is built, since a system short of memory stalls or kills.
//!
//! Shape letters: L layers, H heads, C width, T context, B batch, V vocabulary.

use anyhow::{Result, bail};
use linn::device::{AdapterKind, Device};
use linn::memory::Bytes;

use super::settings::Settings;

/// Refuses what the adapter, the limit or the memory of the host cannot hold.
pub fn check(settings: &Settings, vocabulary: usize, device: &Device) -> Result<()> {
    let largest = device.limits().max_storage_buffer_binding_size.min(device.limits().max_buffer_size);
    for (what, flags, elements) in tensors(settings, vocabulary) {
        let size = elements * ELEMENT;
        if size > largest as f64 {
            bail!(
                "{what} would take {}, {} holds tensors of {} at most\nhelp: pass a smaller {flags}",
                bytes(size),
                device.name(),
                Bytes(largest)
            );
        }
    }
    let needed = needed(settings, vocabulary);
    let (room, of) = room(device);
    if needed > room as f64 {
        bail!(
            "this training needs {} or more, {of} is {}\nhelp: pass smaller settings: --n-layer, --n-embd, --context, --batch",
            bytes(needed),
            Bytes(room)
        );
    }
    Ok(())
}

/// Bytes that a run needs at least: parameters, gradients and AdamW's two moments, and what the backward pass of one batch reads.
/// In f64, where no product overflows.
pub fn needed(settings: &Settings, vocabulary: usize) -> f64 {
    let [l, h, c, t, b, v] = letters(settings, vocabulary);
    let biases = if settings.bias { 11.0 * c } else { 0.0 };
    let head = if settings.tied { 0.0 } else { v * c };
    let parameters = l * (12.0 * c * c + 2.0 * c + biases) + (v + t + 1.0) * c + head;
    // Per token and block: inputs of the norms and products 4 C, queries, keys and values 3 C, both sides of gelu 8 C,
    // attention weights H T.
    let kept = b * t * (l * (15.0 * c + h * t) + c + v);
    (4.0 * parameters + kept) * ELEMENT
}

/// The largest tensors: what they are, the flags that make them smaller, elements.
fn tensors(settings: &Settings, vocabulary: usize) -> [(&'static str, &'static str, f64); 6] {
    let [_, h, c, t, b, v] = letters(settings, vocabulary);
    [
        ("the batch", "--batch or --context", b * t),
        ("the weights of a layer", "--n-embd", 4.0 * c * c),
        ("the embedding", "--n-embd or --context", c * v.max(t)),
        ("a layer's activations", "--batch, --context or --n-embd", 4.0 * b * t * c),
        ("the attention weights", "--batch, --context or --n-head", b * h * t * t),
        ("the logits", "--batch or --context", b * t * v),
    ]
}

/// Bytes there are for tensors, and of what.
fn room(device: &Device) -> (u64, &'static str) {
    let limit = (device.memory_limit(), "the memory limit");
    // A software driver takes the memory of the host; of another one nobody says how much it has, but it says when that is used up.
    let host = (device.info().kind == AdapterKind::Software).then(|| (free_on_the_host(), "the host's free memory"));
    host.into_iter().chain([limit]).min().unwrap_or(limit)
}

/// Free memory, within the bound of a container; `u64::MAX` where the system does not say it in files, as Linux does.
fn free_on_the_host() -> u64 {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let kilobytes = |line: &str| line.strip_prefix("MemAvailable:")?.trim().strip_suffix("kB")?.trim().parse::<u64>().ok();
    let free = read("/proc/meminfo").lines().find_map(kilobytes).map_or(u64::MAX, |free| free.saturating_mul(1024));
    free.min(read("/sys/fs/cgroup/memory.max").trim().parse().unwrap_or(u64::MAX))
}

fn letters(settings: &Settings, vocabulary: usize) -> [f64; 6] {
    [settings.n_layer, settings.n_head, settings.n_embd, settings.context, settings.batch, vocabulary].map(|size| size as f64)
}

fn bytes(size: f64) -> Bytes {
    Bytes(size as u64) // saturates
}

/// Bytes of an f32 or i32.
const ELEMENT: f64 = 4.0;
