//! Every example runs, with small settings.

#[path = "../../examples/04_autograd.rs"]
#[allow(dead_code)]
mod autograd;
#[path = "../../examples/09_classifier.rs"]
#[allow(dead_code)]
mod classifier;
#[path = "../../examples/01_hello_tensor.rs"]
#[allow(dead_code)]
mod hello_tensor;
#[path = "../../examples/info.rs"]
#[allow(dead_code)]
mod info;
#[path = "../../examples/03_memory.rs"]
#[allow(dead_code)]
mod memory;
#[path = "../../examples/08_memory_laboratory.rs"]
#[allow(dead_code)]
mod memory_laboratory;
#[path = "../../examples/07_own_kernel.rs"]
#[allow(dead_code)]
mod own_kernel;
#[path = "../../examples/05_render.rs"]
#[allow(dead_code)]
mod render;
#[path = "../../examples/06_rules_in_numbers.rs"]
#[allow(dead_code)]
mod rules_in_numbers;
#[path = "../../examples/02_streams_and_events.rs"]
#[allow(dead_code)]
mod streams_and_events;

#[test]
fn example_01_hello_tensor() {
    hello_tensor::run(true).unwrap();
}

#[test]
fn example_02_streams_and_events() {
    streams_and_events::run(true).unwrap();
}

#[test]
fn example_03_memory() {
    memory::run(true).unwrap();
}

#[test]
fn example_04_autograd() {
    autograd::run(true).unwrap();
}

/// The picture: a surface in the middle, symmetric, darker in the valleys than on the crests, and nothing around it.
#[test]
fn example_05_render() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("picture.png");
    render::run(true, &path).unwrap();
    let mut reader = png::Decoder::new(std::io::BufReader::new(std::fs::File::open(&path).unwrap())).read_info().unwrap();
    let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut pixels).unwrap();
    assert_eq!((info.width, info.height, info.color_type), (render::WIDTH, render::HEIGHT, png::ColorType::Rgba));
    let pixel = |x: u32, y: u32| {
        let at = ((y * render::WIDTH + x) * 4) as usize;
        [pixels[at], pixels[at + 1], pixels[at + 2], pixels[at + 3]]
    };
    let lit = |x: u32, y: u32| pixel(x, y) != [0, 0, 0, 255];
    let (middle, right) = (render::WIDTH / 2, render::WIDTH - 1);
    for corner in [(0, 0), (right, 0), (0, render::HEIGHT - 1), (right, render::HEIGHT - 1)] {
        assert!(!lit(corner.0, corner.1), "{corner:?}: {:?}", pixel(corner.0, corner.1));
    }
    let all = (0..render::HEIGHT).flat_map(|y| (0..render::WIDTH).map(move |x| (x, y)));
    let drawn: Vec<(u32, u32)> = all.filter(|(x, y)| lit(*x, *y)).collect();
    assert!((80_000..150_000).contains(&drawn.len()), "{} pixels are drawn", drawn.len());
    let mirrored = drawn.iter().filter(|(x, y)| lit(right - x, *y)).count();
    assert!(mirrored * 100 > drawn.len() * 98, "{mirrored} of {} have a mirror image", drawn.len());
    // The crest in the middle is yellow, the valley beside it blue.
    let yellow = drawn.iter().filter(|(x, y)| x.abs_diff(middle) < 30 && pixel(*x, *y)[0] > pixel(*x, *y)[2]).count();
    let blue = drawn.iter().filter(|(x, y)| pixel(*x, *y)[2] / 2 > pixel(*x, *y)[0]).count();
    assert!(yellow > 200 && blue > 2000, "{yellow} yellow in the middle, {blue} blue");
}

#[test]
fn example_06_rules_in_numbers() {
    rules_in_numbers::run(true).unwrap();
}

#[test]
fn example_07_own_kernel() {
    own_kernel::run(true).unwrap();
}

#[test]
fn example_info_names_the_adapter_and_the_versions() {
    let device = crate::device::device();
    let text = info::describe(&device);
    for word in [device.name(), "backend", "largest binding", "features", env!("CARGO_PKG_VERSION")] {
        assert!(text.contains(word), "{word} is missing in\n{text}");
    }
}

/// It checks its own relations: formulas, hooks, peaks, losses to the bit, waits, the puzzles and their cures.
#[test]
fn example_08_memory_laboratory() {
    memory_laboratory::run(true).unwrap();
}

/// A few steps, after which the network is ahead of the linear model; the example itself asks for 97 %.
#[test]
fn example_09_classifier() {
    classifier::run(true).unwrap();
}
