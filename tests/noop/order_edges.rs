//! Order edges by name.

use linn::timeline::{EdgeKind, OrderEdge};
use linn::{DType, Device, DeviceOptions, Tensor};

use crate::stop::stop;

fn open() -> Device {
    Device::noop(DeviceOptions::default()).unwrap()
}

/// (kind, later command, its line, earlier command, its line)
fn seen(edge: &OrderEdge) -> (EdgeKind, &'static str, u32, &'static str, u32) {
    assert!(edge.command.location.file().ends_with("order_edges.rs"), "{edge}");
    let (later, earlier) = (edge.command, edge.before);
    (edge.kind, later.label, later.location.line(), earlier.label, earlier.location.line())
}

#[test]
fn edges_name_both_commands_with_their_lines() {
    let device = open();
    let side = device.new_stream();
    let go_on = stop(&device);
    device.record_order_edges(Some(100));
    let line = line!();
    let x = Tensor::full(&device, &[64], 1.0).unwrap();
    let y = side.scope(|| x.relu()).unwrap();
    x.fill_(2.0).unwrap();
    side.scope(|| x.fill_(3.0)).unwrap();
    let z = Tensor::full(&device, &[64], 1.0).unwrap();
    let end = device.default_stream().record_event();
    side.wait_event(&end).unwrap();
    side.scope(|| y.fill_(0.0)).unwrap();
    side.scope(|| y.fill_(0.0)).unwrap();
    let list = device.order_edges();
    assert_eq!(
        list.iter().map(seen).collect::<Vec<_>>(),
        [
            (EdgeKind::ReadAfterWrite, "relu", line + 2, "fill", line + 1),
            (EdgeKind::WriteAfterRead, "fill", line + 3, "relu", line + 2),
            (EdgeKind::WriteAfterWrite, "fill", line + 4, "fill", line + 3),
            (EdgeKind::Wait, "fill", line + 8, "fill", line + 5),
        ],
        "{list}"
    );
    assert_eq!(list.iter().map(|edge| edge.command.fence.stream.0).collect::<Vec<_>>(), [1, 0, 1, 1]);
    let text = list.to_string();
    assert!(text.contains("relu #1 of stream 1 (") && text.contains(": read after write\n"), "{text}");
    let dot = list.to_dot();
    assert!(dot.contains("[label=\"relu #1\\n") && dot.contains("[label=\"explicit wait\"]"), "{dot}");
    // What is submitted needs no order, so nothing is added when the device keeps up.
    drop(go_on);
    device.synchronize().unwrap();
    side.scope(|| z.relu()).unwrap();
    assert_eq!(device.order_edges(), list);
    device.record_order_edges(None);
    assert!(device.order_edges().is_empty());
}

/// The memory of a tensor that is gone serves another stream: its first writer comes after the last use of the old one.
#[test]
fn reuse_of_memory_is_an_edge_with_both_names() {
    let mut options = DeviceOptions::default();
    // Room for one of the two only.
    options.memory_limit = Some(6 << 20);
    let device = Device::noop(options).unwrap();
    let side = device.new_stream();
    let go_on = stop(&device);
    device.record_order_edges(Some(100));
    let line = line!();
    let old = Tensor::full(&device, &[1 << 20], 1.0).unwrap();
    drop(old);
    let new = side.scope(|| Tensor::full(&device, &[1 << 20], 2.0)).unwrap();
    side.scope(|| new.fill_(3.0)).unwrap();
    let list = device.order_edges();
    let expected = [(EdgeKind::MemoryReuse, "fill", line + 3, "fill", line + 1)];
    assert_eq!(list.iter().map(seen).collect::<Vec<_>>(), expected, "{list}");
    assert!(list.to_string().ends_with(": memory reuse") && list.to_dot().contains("[label=\"memory reuse\"]"), "{list}");
    drop(go_on);
    device.synchronize().unwrap();
}

#[test]
fn the_latest_edges_are_kept_and_none_unless_asked_for() {
    let device = open();
    let side = device.new_stream();
    let x = Tensor::empty(&device, &[64], DType::F32).unwrap();
    let go_on = stop(&device);
    let rounds = |count: usize| {
        let before = device.stats().timeline.order_edges;
        for round in 0..count {
            x.fill_(round as f64).unwrap();
            side.scope(|| x.fill_(0.5)).unwrap();
        }
        device.stats().timeline.order_edges - before
    };
    rounds(10);
    assert!(device.order_edges().is_empty());
    device.record_order_edges(Some(7));
    let counted = rounds(50);
    let list = device.order_edges();
    assert_eq!((list.len() as u64 + list.forgotten(), list.len()), (counted, 7));
    for stream in [0, 1] {
        let fences = list.iter().map(|edge| edge.command.fence).filter(|fence| fence.stream.0 == stream);
        let numbers: Vec<u64> = fences.map(|fence| fence.number).collect();
        assert!(numbers.len() >= 3 && numbers.is_sorted(), "oldest first: {numbers:?}");
    }
    drop(go_on);
    device.synchronize().unwrap();
}
