//! linn inside an application: a small renderer draws what linn computed, off screen, into a PNG.
//!
//! The application opens wgpu as it would without linn and lends its device and queue. linn computes a surface, light and
//! perspective included; the renderer's vertices and indices are tensors, read where they lie.

use std::path::Path;
use std::sync::mpsc;

use anyhow::{Context, anyhow};
use linn::autograd::cat;
use linn::stream::interop::Window;
use linn::wgpu::{self, util::DeviceExt};
use linn::{DType, Device, DeviceOptions, Tensor};

/// Pixels of the picture; a row of it is a multiple of 256 bytes, as copies want it.
pub const WIDTH: u32 = 640;
pub const HEIGHT: u32 = 448;

fn main() -> anyhow::Result<()> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "linn-render.png".into());
    run(false, Path::new(&path))
}

/// The example; `quick` is for the tests that run it.
pub fn run(quick: bool, path: &Path) -> anyhow::Result<()> {
    // The application's own device. `linn::wgpu` is the version that linn takes.
    let (device, queue) = pollster::block_on(open())?;
    let mut options = DeviceOptions::default();
    (options.buffer_uses.vertex, options.buffer_uses.index) = (true, true);
    let linn = Device::from_wgpu(&device, &queue, options)?;
    let renderer = Renderer::new(&device);
    let n = if quick { 48 } else { 200 };

    let grid = Grid::new(&linn, n)?;
    let vertices = grid.vertices(0.0)?;
    // The renderer's commands as a part of the stream: after what computes the vertices, and before what comes next.
    let (draw, inputs) = (renderer.clone(), [&vertices, &grid.indices]);
    linn.current_stream().with_encoder(&inputs, &[], move |encoder, windows| draw.record(encoder, windows))?;
    linn.synchronize()?;
    let inside = renderer.pixels(&device, &queue)?;

    // Or in a submission of the application's own, which borrows the tensors for it.
    let exports = inputs.iter().map(|tensor| tensor.export()).collect::<linn::Result<Vec<_>>>()?;
    let windows: Vec<Window> = exports.iter().map(|export| export.window().clone()).collect();
    let mut encoder = device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
    renderer.record(&mut encoder, &windows);
    queue.submit([encoder.finish()]);
    exports.into_iter().for_each(|export| export.submitted());
    let outside = renderer.pixels(&device, &queue)?;
    anyhow::ensure!(inside == outside, "the same picture either way");

    save(path, &inside)?;
    println!("{} triangles on {}, drawn twice, saved as {}", 2 * (n - 1) * (n - 1), linn.name(), path.display());
    Ok(())
}

/// A wgpu device, as applications open it.
async fn open() -> anyhow::Result<(wgpu::Device, wgpu::Queue)> {
    let gl = std::env::var("LINN_BACKEND").is_ok_and(|name| name == "gl");
    let backends = if gl { wgpu::Backends::GL } else { wgpu::Backends::PRIMARY };
    let descriptor = wgpu::InstanceDescriptor { backends, ..wgpu::InstanceDescriptor::new_without_display_handle() };
    let adapter = wgpu::Instance::new(descriptor).request_adapter(&wgpu::RequestAdapterOptions::default()).await?;
    Ok(adapter.request_device(&wgpu::DeviceDescriptor::default()).await?)
}

/// What of the surface does not change from picture to picture.
struct Grid {
    linn: Device,
    n: usize,
    x: Tensor,
    z: Tensor,
    indices: Tensor,
}

impl Grid {
    fn new(linn: &Device, n: usize) -> anyhow::Result<Grid> {
        // -1 to 1 along each side.
        let side = Tensor::arange(linn, n, DType::F32)?.mul_scalar(2.0 / (n - 1) as f64)?.add_scalar(-1.0)?;
        let flat = Tensor::zeros(linn, &[n, n])?;
        let (x, z) = (flat.add(&side)?, flat.add(&side.reshape(&[n as isize, 1])?)?);
        // Two triangles for each square.
        let squares = (0..n - 1).flat_map(|row| (0..n - 1).map(move |column| (row * n + column) as u32));
        let m = n as u32;
        let indices: Vec<u32> = squares.flat_map(|at| [at, at + m, at + 1, at + 1, at + m, at + m + 1]).collect();
        let indices = Tensor::from_slice(linn, &[indices.len()], &indices)?;
        Ok(Grid { linn: linn.clone(), n, x, z, indices })
    }

    /// Clip coordinates and a colour for each point: [n * n, 8].
    fn vertices(&self, time: f64) -> anyhow::Result<Tensor> {
        let (x, z, points) = (&self.x, &self.z, self.n * self.n);
        // A ripple that fades outwards: y = cos(12 r - t) e^(-2 r^2) / 3.
        let r2 = (x.mul(x)? + z.mul(z)?)?;
        let r = r2.sqrt()?;
        let y = r.mul_scalar(12.0)?.add_scalar(-time)?.cos()?.mul(&r2.mul_scalar(-2.0)?.exp()?)?.mul_scalar(1.0 / 3.0)?;
        let column = |t: &Tensor| t.reshape(&[points as isize, 1]);
        let one = Tensor::ones(&self.linn, &[points, 1])?;
        let position = cat(&[&column(x)?, &column(&y)?, &column(z)?, &one], 1)?;
        // Looked at from the front and above: turned about x, pushed back, and seen in perspective.
        let clip = position.matmul(&Tensor::new(&self.linn, camera(0.65, 3.2))?)?;
        // From blue in the valleys to yellow on the crests.
        let up = y.mul_scalar(1.5)?.add_scalar(0.5)?.clamp(0.0, 1.0)?;
        let (red, green) = (up.mul(&up)?, up.mul_scalar(0.8)?.add_scalar(0.15)?);
        let blue = up.mul_scalar(-0.7)?.add_scalar(0.85)?;
        Ok(cat(&[&clip, &column(&red)?, &column(&green)?, &column(&blue)?, &one], 1)?)
    }
}

/// Rows of a matrix that a row of coordinates is multiplied with: turn by `angle` about x, move back by `distance`, project.
fn camera(angle: f32, distance: f32) -> [[f32; 4]; 4] {
    let (sin, cos) = angle.sin_cos();
    let (near, far, zoom) = (0.5, 10.0, 2.9);
    let (a, b) = (far / (far - near), -far * near / (far - near));
    let aspect = WIDTH as f32 / HEIGHT as f32;
    // w is the distance from the eye: distance - (y sin + z cos).
    [
        [zoom / aspect, 0.0, 0.0, 0.0],
        [0.0, zoom * cos, -sin * a, -sin],
        [0.0, -zoom * sin, -cos * a, -cos],
        [0.0, 0.0, distance * a + b, distance],
    ]
}

const SHADER: &str = "
struct Vertex { @builtin(position) position: vec4<f32>, @location(0) colour: vec4<f32> }
@vertex fn vertex(@location(0) position: vec4<f32>, @location(1) colour: vec4<f32>) -> Vertex {
    return Vertex(position, colour);
}
@fragment fn fragment(in: Vertex) -> @location(0) vec4<f32> { return in.colour; }
";

/// A render pipeline with its targets; knows nothing of linn but where its inputs lie.
#[derive(Clone)]
struct Renderer {
    pipeline: wgpu::RenderPipeline,
    colour: wgpu::Texture,
    depth: wgpu::Texture,
    pixels: wgpu::Buffer,
}

impl Renderer {
    fn new(device: &wgpu::Device) -> Renderer {
        let module = device.create_shader_module(wgpu::ShaderModuleDescriptor {
            label: Some("application"),
            source: wgpu::ShaderSource::Wgsl(SHADER.into()),
        });
        let (format, depth_format) = (wgpu::TextureFormat::Rgba8Unorm, wgpu::TextureFormat::Depth32Float);
        let vertex = wgpu::VertexBufferLayout {
            array_stride: 32,
            step_mode: wgpu::VertexStepMode::Vertex,
            attributes: &wgpu::vertex_attr_array![0 => Float32x4, 1 => Float32x4],
        };
        let pipeline = device.create_render_pipeline(&wgpu::RenderPipelineDescriptor {
            label: Some("application"),
            layout: None,
            vertex: wgpu::VertexState {
                module: &module,
                entry_point: Some("vertex"),
                compilation_options: Default::default(),
                buffers: &[Some(vertex)],
            },
            primitive: wgpu::PrimitiveState::default(),
            depth_stencil: Some(wgpu::DepthStencilState {
                format: depth_format,
                depth_write_enabled: Some(true),
                depth_compare: Some(wgpu::CompareFunction::Less),
                stencil: Default::default(),
                bias: Default::default(),
            }),
            multisample: Default::default(),
            fragment: Some(wgpu::FragmentState {
                module: &module,
                entry_point: Some("fragment"),
                compilation_options: Default::default(),
                targets: &[Some(format.into())],
            }),
            multiview_mask: None,
            cache: None,
        });
        let texture = |format, usage| {
            device.create_texture(&wgpu::TextureDescriptor {
                label: Some("application"),
                size: wgpu::Extent3d { width: WIDTH, height: HEIGHT, depth_or_array_layers: 1 },
                mip_level_count: 1,
                sample_count: 1,
                dimension: wgpu::TextureDimension::D2,
                format,
                usage: wgpu::TextureUsages::RENDER_ATTACHMENT | usage,
                view_formats: &[],
            })
        };
        let pixels = device.create_buffer_init(&wgpu::util::BufferInitDescriptor {
            label: Some("application"),
            contents: &vec![0; (WIDTH * HEIGHT * 4) as usize],
            usage: wgpu::BufferUsages::COPY_DST | wgpu::BufferUsages::MAP_READ,
        });
        let colour = texture(format, wgpu::TextureUsages::COPY_SRC);
        Renderer { pipeline, colour, depth: texture(depth_format, wgpu::TextureUsages::empty()), pixels }
    }

    /// Draws, and copies the picture to where it can be read. The windows: vertices, indices.
    fn record(&self, encoder: &mut wgpu::CommandEncoder, windows: &[Window]) {
        let [vertices, indices] = windows else { return };
        let view = |texture: &wgpu::Texture| texture.create_view(&wgpu::TextureViewDescriptor::default());
        let (colour, depth) = (view(&self.colour), view(&self.depth));
        let background = wgpu::Color { r: 0.0, g: 0.0, b: 0.0, a: 1.0 };
        let mut pass = encoder.begin_render_pass(&wgpu::RenderPassDescriptor {
            label: Some("application"),
            color_attachments: &[Some(wgpu::RenderPassColorAttachment {
                view: &colour,
                depth_slice: None,
                resolve_target: None,
                ops: wgpu::Operations { load: wgpu::LoadOp::Clear(background), store: wgpu::StoreOp::Store },
            })],
            depth_stencil_attachment: Some(wgpu::RenderPassDepthStencilAttachment {
                view: &depth,
                depth_ops: Some(wgpu::Operations { load: wgpu::LoadOp::Clear(1.0), store: wgpu::StoreOp::Discard }),
                stencil_ops: None,
            }),
            ..Default::default()
        });
        pass.set_pipeline(&self.pipeline);
        pass.set_vertex_buffer(0, vertices.slice());
        pass.set_index_buffer(indices.slice(), wgpu::IndexFormat::Uint32);
        pass.draw_indexed(0..(indices.size / 4) as u32, 0, 0..1);
        drop(pass);
        let layout = wgpu::TexelCopyBufferLayout { offset: 0, bytes_per_row: Some(WIDTH * 4), rows_per_image: None };
        let target = wgpu::TexelCopyBufferInfo { buffer: &self.pixels, layout };
        encoder.copy_texture_to_buffer(self.colour.as_image_copy(), target, self.colour.size());
    }

    /// The picture, when the work submitted so far is done.
    fn pixels(&self, device: &wgpu::Device, queue: &wgpu::Queue) -> anyhow::Result<Vec<u8>> {
        let (tell, told) = mpsc::channel();
        let index = queue.submit([]);
        self.pixels.map_async(wgpu::MapMode::Read, .., move |result| _ = tell.send(result));
        device.poll(wgpu::PollType::Wait { submission_index: Some(index), timeout: None })?;
        told.recv().context("the answer got lost")??;
        let pixels = self.pixels.get_mapped_range(..).map_err(|error| anyhow!("{error}"))?.to_vec();
        self.pixels.unmap();
        Ok(pixels)
    }
}

fn save(path: &Path, pixels: &[u8]) -> anyhow::Result<()> {
    let file = std::fs::File::create(path).with_context(|| format!("{} could not be created", path.display()))?;
    let mut encoder = png::Encoder::new(std::io::BufWriter::new(file), WIDTH, HEIGHT);
    encoder.set_color(png::ColorType::Rgba);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.write_header()?.write_image_data(pixels)?;
    Ok(())
}
