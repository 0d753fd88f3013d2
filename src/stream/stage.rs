//! Textures that kernels read copies of their inputs from (see `kernel::sharing`).
//!
//! A dispatch uses the first, second .. of them for its first, second .. texture; the next dispatch uses the same ones.
//! They grow and are never given back before the device closes. On the CPU drivers that use them, textures are host
//! memory, as all staging is.

use smallvec::SmallVec;

use crate::device::{Gpu, driver};
use crate::ids::SegmentId;
use crate::kernel::pipeline::{BindGroups, Range};
use crate::kernel::sharing::{TEXELS_PER_ROW, Textures};

/// Bytes of a row of texels.
const ROW_SIZE: u64 = TEXELS_PER_ROW as u64 * 16;
/// Rows of the first texture: 1 MiB.
const FEWEST_ROWS: u32 = 64;

#[derive(Default)]
pub(super) struct Stage {
    slots: SmallVec<[Slot; 2]>,
}

struct Slot {
    texture: wgpu::Texture,
    view: wgpu::TextureView,
    rows: u32,
}

impl Stage {
    /// Copies the ranges that are textures. `Err` holds the driver's words.
    pub(super) fn fill(
        &mut self,
        gpu: &Gpu,
        encoder: &mut wgpu::CommandEncoder,
        segments: &[Option<wgpu::Buffer>],
        ranges: &[Range],
        textures: Textures,
        groups: &mut BindGroups,
    ) -> Result<(), String> {
        for (i, range) in textured(ranges.iter(), textures).enumerate() {
            let Some((segment, offset, size)) = range else { continue };
            let Some(buffer) = segments.get(segment.0 as usize).and_then(Option::as_ref) else { continue };
            let rows = u32::try_from(size.div_ceil(ROW_SIZE)).unwrap_or(u32::MAX);
            if self.slots.get(i).is_none_or(|slot| slot.rows < rows) {
                let slot = Slot::new(gpu, rows.max(FEWEST_ROWS).next_power_of_two())?;
                groups.forget_segment(marker(i));
                match self.slots.get_mut(i) {
                    Some(old) => *old = slot,
                    None => self.slots.push(slot),
                }
            }
            let whole = (size / ROW_SIZE) as u32;
            let rest = (size % ROW_SIZE).div_ceil(16) as u32;
            for (first, width, height) in [(0, TEXELS_PER_ROW, whole), (whole, rest, 1)] {
                if width == 0 || height == 0 {
                    continue;
                }
                encoder.copy_buffer_to_texture(
                    wgpu::TexelCopyBufferInfo {
                        buffer,
                        layout: wgpu::TexelCopyBufferLayout {
                            offset: offset + u64::from(first) * ROW_SIZE,
                            bytes_per_row: Some(ROW_SIZE as u32),
                            rows_per_image: None,
                        },
                    },
                    wgpu::TexelCopyTextureInfo {
                        texture: &self.slots[i].texture,
                        mip_level: 0,
                        origin: wgpu::Origin3d { x: 0, y: first, z: 0 },
                        aspect: wgpu::TextureAspect::All,
                    },
                    wgpu::Extent3d { width, height, depth_or_array_layers: 1 },
                );
            }
        }
        Ok(())
    }

    /// The ranges as the bind-group cache knows them: what is read as a texture is always the same texture.
    pub(super) fn ranges(&self, ranges: &SmallVec<[Range; 6]>, textures: Textures) -> SmallVec<[Range; 6]> {
        let mut out = ranges.clone();
        for (i, range) in textured(out.iter_mut(), textures).enumerate() {
            *range = Some((marker(i), 0, 0));
        }
        out
    }

    /// Bytes of the textures.
    pub(super) fn size(&self) -> u64 {
        self.slots.iter().map(|slot| u64::from(slot.rows) * ROW_SIZE).sum()
    }

    /// The texture of each binding, up to the last that is one.
    pub(super) fn views(&self, textures: Textures) -> SmallVec<[Option<&wgpu::TextureView>; 6]> {
        let mut slots = self.slots.iter();
        let bindings = 0..Textures::BITS - textures.leading_zeros();
        bindings.map(|i| if textures >> i & 1 == 1 { slots.next().map(|slot| &slot.view) } else { None }).collect()
    }
}

/// The entries whose bindings are textures.
fn textured<T>(entries: impl Iterator<Item = T>, textures: Textures) -> impl Iterator<Item = T> {
    entries.enumerate().filter(move |(i, _)| textures >> i & 1 == 1).map(|(_, entry)| entry)
}

/// Stands for texture `i` among the segments of the bind-group cache; segments are counted from 0.
fn marker(i: usize) -> SegmentId {
    SegmentId(u32::MAX - i as u32)
}

impl Slot {
    fn new(gpu: &Gpu, rows: u32) -> Result<Slot, String> {
        let texture = driver::create_texture(gpu, TEXELS_PER_ROW, rows)?;
        let view = texture.create_view(&wgpu::TextureViewDescriptor::default());
        Ok(Slot { texture, view, rows })
    }
}
