//! Memory is cached: allocated, reserved and cached; a limit; an out-of-memory error, and life after it; a history to look at.

use linn::memory::{Category, HistoryOptions};
use linn::{Device, DeviceOptions, Error, Tensor};

const MIB: u64 = 1 << 20;

fn main() -> anyhow::Result<()> {
    run(false)
}

/// The example; `quick` is for the tests that run it.
pub fn run(_quick: bool) -> anyhow::Result<()> {
    let mut options = DeviceOptions::default();
    options.memory_limit = Some(64 * MIB);
    let device = Device::open_with(options)?;
    device.record_memory_history(Some(HistoryOptions::default()));
    let mib = |bytes: u64| bytes as f64 / MIB as f64;
    let show = |what: &str| {
        println!(
            "{what:40} allocated {:5.1}, reserved {:5.1} MiB",
            mib(device.memory_allocated()),
            mib(device.memory_reserved())
        );
    };

    show("nothing yet");
    let weights = Tensor::zeros(&device, &[4, 1 << 20])?;
    weights.set_category(Category::Parameter);
    show("16 MiB of parameters");
    {
        let _temporary = (&weights * 2.0)?;
        show("and a result of the same size");
    }
    show("dropped: allocated falls, reserved stays");
    let bought = device.stats().memory.num_device_alloc;
    let again = (&weights + 1.0)?;
    assert_eq!(device.stats().memory.num_device_alloc, bought, "the cached block was lent again");
    show("the next result takes the cached block");

    // Every reserved byte has a category, always.
    for (name, bytes) in device.memory_breakdown().parts().filter(|(_, bytes)| *bytes > 0) {
        println!("    {name:16} {:5.1} MiB", mib(bytes));
    }
    assert_eq!(device.memory_breakdown().sum(), device.memory_reserved());

    // Told before a request fails, and when 9/10 of the limit are reserved.
    let _oom = device.attach_out_of_memory_observer(|_, report| println!("\nno room for {} bytes", report.requested));
    let _short = device.attach_memory_limit_observer(0.9, |_, now| println!("running short: {now}"))?;

    // Too much is a value. It says who holds the memory, and everything goes on.
    match Tensor::zeros(&device, &[16, 1 << 20]) {
        Err(Error::OutOfMemory(report)) => println!("\n{report}\n"),
        other => anyhow::bail!("64 MiB more should not fit, got {other:?}"),
    }
    assert_eq!(weights.narrow(0, 0, 1)?.to_vec::<f32>()?.len(), 1 << 20);
    drop(again);
    device.empty_cache()?;
    show("after empty_cache only the parameters");
    println!("{}", device.memory_summary(true));
    if let Some((free, total)) = device.mem_get_info() {
        println!("{:.1} of {:.1} MiB can still be reserved", mib(free), mib(total));
    }

    // All that happened: for PyTorch's memory_viz page, and as a page of our own that any browser opens.
    let snapshot = device.memory_snapshot();
    let folder = std::env::temp_dir();
    // Nobody else's files, nor those of a run beside this one.
    let name = format!("linn_memory_{}", std::process::id());
    let (json, page) = (folder.join(format!("{name}.json")), folder.join(format!("{name}.html")));
    std::fs::write(&json, snapshot.to_json())?;
    std::fs::write(&page, snapshot.to_html("the example 03_memory"))?;
    println!("{} events; open {}, or drop {} onto memory_viz", snapshot.trace.len(), page.display(), json.display());
    Ok(())
}
