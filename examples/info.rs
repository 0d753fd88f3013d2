//! Prints what linn runs on: adapter, driver, limits, features and versions. Paste it into bug reports.
//!
//! `cargo run --example info`

fn main() -> anyhow::Result<()> {
    env_logger::Builder::from_env(env_logger::Env::default().default_filter_or("warn")).init();
    let device = linn::Device::open()?;
    print!("{}", describe(&device));
    Ok(())
}

/// The report, one fact per line.
pub fn describe(device: &linn::Device) -> String {
    let (info, limits) = (device.info(), device.limits());
    let mib = |bytes: u64| format!("{:.0} MiB", bytes as f64 / f64::from(1 << 20));
    let lines = [
        ("adapter", info.name.clone()),
        ("backend", info.backend.clone()),
        ("driver", info.driver.clone()),
        ("kind", format!("{:?}", info.kind)),
        ("largest buffer", mib(limits.max_buffer_size)),
        ("largest binding", mib(limits.max_storage_buffer_binding_size)),
        ("storage buffers per kernel", limits.max_storage_buffers.to_string()),
        ("immediates", format!("{} bytes", limits.max_immediate_size)),
        ("block alignment", format!("{} bytes", limits.storage_alignment)),
        ("workgroup", format!("{} invocations, {} bytes", limits.max_invocations, limits.max_workgroup_memory)),
        ("subgroup size", if limits.subgroup_size == 0 { "not fixed".into() } else { limits.subgroup_size.to_string() }),
        ("memory limit", device.mem_get_info().map_or("none (wgpu does not say how much there is)".into(), |(_, all)| mib(all))),
        (
            "driver memory",
            device.driver_memory().map_or("not told".into(), |held| format!("{} in {} pieces", mib(held.reserved), held.blocks)),
        ),
        ("features", device.features().join(" ")),
        ("linn", env!("CARGO_PKG_VERSION").into()),
        ("wgpu", "30".into()),
        ("target", format!("{} {}", std::env::consts::ARCH, std::env::consts::OS)),
    ];
    lines.iter().map(|(name, value)| format!("{name:28}{value}\n")).collect()
}
