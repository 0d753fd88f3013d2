//! What needs a real browser, Chromium: `cargo test --test browser -- --ignored`. `CHROMIUM` names another program than `chromium`.

mod chromium;
#[cfg(feature = "gpu")]
#[path = "../support/every_shader.rs"]
mod every_shader;
mod memory_page;
#[cfg(feature = "gpu")]
mod shaders;
#[path = "../support/story.rs"]
mod story;
