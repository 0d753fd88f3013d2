//! The pure files of floor 2. The crate's own copies are private and come with wgpu, so they are compiled in here.

#[allow(dead_code)]
#[path = "../../src/device/load.rs"]
pub mod load;
#[allow(dead_code)]
#[path = "../../src/device/places.rs"]
pub mod places;
#[allow(dead_code)]
#[path = "../../src/device/wishes.rs"]
pub mod wishes;
