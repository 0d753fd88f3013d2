//! Textures that kernels read copies of their inputs from (see `kernel::sharing`); `copies` says which holds what.
//!
//! On the CPU drivers that use them, textures are host memory, as all staging is.

use smallvec::SmallVec;

use crate::device::{Gpu, driver};
use crate::ids::SegmentId;
use crate::kernel::pipeline::{BindGroups, Range};
use crate::kernel::sharing::{TEXELS_PER_ROW, Textures};
use crate::stream::copies::{Bytes, Copies, Found, Slots};

/// Bytes of a row of texels.
const ROW_SIZE: u64 = TEXELS_PER_ROW as u64 * 16;

#[derive(Default)]
pub(super) struct Stage {
    copies: Copies,
    /// The texture of each slot.
    textures: Vec<Option<(wgpu::Texture, wgpu::TextureView)>>,
}

impl Stage {
    /// The slots of a dispatch whose inputs are all there already; `None` where something is to be copied first.
    pub(super) fn held(&mut self, ranges: &[Range], textures: Textures) -> Option<Slots> {
        self.copies.begin();
        self.copies.held(textured(ranges.iter(), textures).flatten())
    }

    /// Copies what a dispatch reads from textures and is not there. `Err` holds the driver's words.
    pub(super) fn fill(
        &mut self,
        gpu: &Gpu,
        encoder: &mut wgpu::CommandEncoder,
        segments: &[Option<wgpu::Buffer>],
        ranges: &[Range],
        textures: Textures,
        groups: &mut BindGroups,
    ) -> Result<Slots, String> {
        self.copies.begin();
        let mut slots = Slots::new();
        for range in textured(ranges.iter(), textures).flatten() {
            let rows = u32::try_from(range.2.div_ceil(ROW_SIZE)).unwrap_or(u32::MAX);
            let mut gone = Slots::new();
            let found = self.copies.get(*range, rows, &mut gone);
            for slot in gone {
                groups.forget_segment(marker(slot));
                self.textures[slot] = None;
            }
            let Found { slot, rows, held } = found;
            self.textures.resize(self.textures.len().max(slot + 1), None);
            let (texture, _) = match &mut self.textures[slot] {
                Some(texture) => texture,
                none => {
                    let texture = driver::create_texture(gpu, TEXELS_PER_ROW, rows)?;
                    let view = texture.create_view(&wgpu::TextureViewDescriptor::default());
                    none.insert((texture, view))
                }
            };
            if !held && let Some(buffer) = segments.get(range.0.0 as usize).and_then(Option::as_ref) {
                copy(encoder, buffer, texture, range);
            }
            slots.push(slot);
        }
        Ok(slots)
    }

    /// Every command that can write to a segment passes here once it is encoded, with the bytes.
    pub(super) fn written(&mut self, bytes: Bytes) {
        self.copies.written(bytes);
    }

    /// The segment is another one now.
    pub(super) fn forget(&mut self, segment: SegmentId) {
        self.copies.forget(segment);
    }

    /// The ranges as the bind-group cache knows them: a texture in place of what is copied to it.
    pub(super) fn ranges(&self, ranges: &SmallVec<[Range; 6]>, textures: Textures, slots: &Slots) -> SmallVec<[Range; 6]> {
        let mut out = ranges.clone();
        for (range, slot) in textured(out.iter_mut(), textures).zip(slots) {
            *range = Some((marker(*slot), 0, 0));
        }
        out
    }

    /// Bytes of the textures.
    pub(super) fn size(&self) -> u64 {
        self.copies.rows() * ROW_SIZE
    }

    /// The texture of each binding, up to the last that is one.
    pub(super) fn views(&self, textures: Textures, slots: &Slots) -> SmallVec<[Option<&wgpu::TextureView>; 6]> {
        let mut slots = slots.iter();
        let mut next = || self.textures.get(*slots.next()?).and_then(Option::as_ref).map(|(_, view)| view);
        let bindings = 0..Textures::BITS - textures.leading_zeros();
        bindings.map(|i| if textures >> i & 1 == 1 { next() } else { None }).collect()
    }
}

fn copy(encoder: &mut wgpu::CommandEncoder, buffer: &wgpu::Buffer, texture: &wgpu::Texture, (_, offset, size): &Bytes) {
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
                texture,
                mip_level: 0,
                origin: wgpu::Origin3d { x: 0, y: first, z: 0 },
                aspect: wgpu::TextureAspect::All,
            },
            wgpu::Extent3d { width, height, depth_or_array_layers: 1 },
        );
    }
}

/// The entries whose bindings are textures.
fn textured<T>(entries: impl Iterator<Item = T>, textures: Textures) -> impl Iterator<Item = T> {
    entries.enumerate().filter(move |(i, _)| textures >> i & 1 == 1).map(|(_, entry)| entry)
}

/// Stands for the texture of a slot among the segments of the bind-group cache; segments are counted from 0.
fn marker(slot: usize) -> SegmentId {
    SegmentId(u32::MAX - slot as u32)
}
